"""Test that constant and linearly dependent columns do not count as parameters of a map."""

import numpy as np
import pytest

from hkrr import HyperKernelRidge, HyperKernelRidgeCV
from hkrr._maps import Diagonal
from hkrr.criteria import Evidence
from hkrr.estimators.search.candidates import Candidate, Origin, plain_kernel_ridge
from hkrr.estimators.search.search_problem import SearchProblem
from hkrr.estimators.search.search_stages import run_search
from hkrr.kernels import Gaussian, ProductLaplace
from hkrr.rows import InMemoryRows


def _columns(m=60, D=5, seed=0):
    return np.random.default_rng(seed).normal(size=(m, D))


def _free(X, **coordinates):
    return InMemoryRows(X, np.zeros(len(X)), **coordinates).count_free_columns().n_free_columns


def _standardization(X):
    scale = X.std(axis=0)
    return {"x_offset": X.mean(axis=0), "x_scale": np.where(scale > 1e-9 * np.abs(X).max(axis=0), scale, 1.0)}


ADDED = {
    "nothing": lambda X: X[:, :0],
    "zeros": lambda X: np.zeros((len(X), 3)),
    "constants": lambda X: np.tile([3.0, 0.1, -7.0 / 3.0], (len(X), 1)),
    "copies": lambda X: X,
    "copies of copies": lambda X: np.hstack([X, X[:, :2]]),
    "copies in other units": lambda X: 1e3 * X - 20.0,
    "sums": lambda X: X @ np.random.default_rng(9).normal(size=(X.shape[1], 4)),
    "a sum and a constant": lambda X: np.column_stack([X.sum(axis=1) + 5.0, np.full(len(X), 2.0)]),
}


@pytest.mark.parametrize("name", ADDED)
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("seed", [0, 1])
def test_dependent_columns_do_not_count(name, scaled, seed):
    X = _columns(seed=seed)
    X = np.hstack([X, ADDED[name](X)])
    assert _free(X, **(_standardization(X) if scaled else {})) == 5


@pytest.mark.parametrize("value", [1e5 + 0.1, 1e9 / 7.0, 1e15 / 7.0])
@pytest.mark.parametrize("m", [60, 1000])
@pytest.mark.parametrize("scaled", [False, True])
def test_a_large_constant_does_not_count(value, m, scaled):
    """Test that a constant column with a large value does not count, although its mean has rounding errors."""
    X = np.column_stack([_columns(m=m), np.full(m, value)])
    assert _free(X, **(_standardization(X) if scaled else {})) == 5


@pytest.mark.parametrize("m", [2, 6, 30, 31, 32, 40])
def test_with_fewer_rows_than_columns_all_but_constants_count(m):
    """Test that all columns except constant ones count, because few rows do not show which columns are dependent."""
    X = _columns(m=m, D=30)
    assert _free(X) == 30
    assert _free(np.hstack([X, np.full((m, 7), 3.0)])) == 30


def test_copies_are_detected_with_fewer_rows_than_columns():
    """Test that four copies of the same six columns count as six, with only twelve rows."""
    assert _free(np.hstack([_columns(m=12, D=6)] * 4)) == 6


def test_constants_alone_count_as_one():
    assert _free(np.full((10, 4), 3.0)) == 1


def test_independent_columns_count_in_any_units():
    X = _columns()
    assert _free(X * [1e-5, 1.0, 1e5, 1e3, 1e-3]) == 5
    assert _free(np.column_stack([X, X[:, 0] ** 2])) == 6
    assert _free(np.column_stack([X, X[:, 0] + 1e-3 * _columns(D=1, seed=1)[:, 0]])) == 6


def test_a_sample_is_used_for_many_rows():
    X = _columns(m=9001, D=6)
    assert _free(np.hstack([X, X[:, :3], np.ones((9001, 2))])) == 6


def test_with_very_many_columns_only_constants_are_left_out():
    assert _free(np.hstack([_columns(m=1300, D=1100), np.zeros((1300, 50))])) == 1100


def test_subsets_keep_the_count_and_the_rows_do_not_change():
    X = _columns()
    rows = InMemoryRows(np.hstack([X, X]), X[:, 0])
    counted = rows.count_free_columns()
    assert rows.n_free_columns == 10
    assert counted.n_free_columns == 5
    assert counted.subset(np.arange(3)).n_free_columns == 5
    assert counted.subset(np.arange(40)).subset(np.arange(20)).on_threads(2).n_free_columns == 5


@pytest.mark.parametrize(("d", "expected"), [(1, 5), (2, 9), (3, 12), (5, 15), (8, 15)])
def test_degrees_of_freedom_count_independent_columns(d, expected):
    """Test that a map with d directions has d F - d (d - 1) / 2 degrees of freedom, for F = 5 independent columns.

    If d is larger than F, there are as many degrees of freedom as for d = F.
    """
    candidate = Candidate(Origin.RANDOM, Gaussian(gamma=1.0), np.eye(d, 20), 0.1, n_free_columns=5)
    assert candidate.degrees_of_freedom == expected
    assert Candidate(Origin.RANDOM, Gaussian(gamma=1.0), np.eye(d, 5), 0.1).degrees_of_freedom == expected


def test_degrees_of_freedom_of_other_kernels_and_shapes():
    full = Candidate(Origin.RANDOM, ProductLaplace(gamma=1.0), np.eye(2, 20), 0.1, n_free_columns=5)
    assert full.degrees_of_freedom == 10
    diagonal = Candidate(Origin.RANDOM, Gaussian(gamma=1.0), np.ones(20), 0.1, shape=Diagonal(), n_free_columns=5)
    assert diagonal.degrees_of_freedom == 5
    X = _columns()
    rows = InMemoryRows(np.hstack([X, X]), X[:, 0]).count_free_columns()
    one, _ = plain_kernel_ridge(
        Evidence(rows, None, Gaussian(gamma=1.0), 1.0, True), full.kernel, [0.1], np.random.RandomState(0)
    )
    assert one.degrees_of_freedom == 1


@pytest.mark.parametrize("kernel", [Gaussian(gamma=1.0), None], ids=["gaussian", "auto"])
def test_the_parameters_of_all_candidates_count_independent_columns_only(kernel):
    """Test that four columns, copies of them and two constant columns have the number of parameters of four columns."""
    X = _columns(m=80, D=4)
    y = np.sin(2.0 * X[:, 0]) + 0.3 * np.random.default_rng(1).normal(size=80)
    rows = InMemoryRows(np.hstack([X, X, np.zeros((80, 2))]), y - y.mean())
    problem = SearchProblem(
        rows, Evidence, range(1, 11), choose_dimension=True, n_starts=2, rng=np.random.RandomState(0)
    )
    found = run_search(problem, kernel)
    winner, ends = found.winner, found.candidates
    shapes = set()
    for end in [winner, *ends]:
        name, d = end.shape.name, min(end.n_components, 4)
        shapes.add(name)
        if end.origin is Origin.SPARSE:
            expected = min(np.count_nonzero(end.B), 4)
        elif name == "full" and end.kernel.rotation_invariant:
            expected = 4 * d - d * (d - 1) / 2
        else:
            expected = {"full": 4 * end.n_components, "diagonal": 4, "identity": 1}[name]
        assert end.degrees_of_freedom == expected
    assert shapes >= ({"full", "identity"} if kernel else {"full", "diagonal"})


@pytest.mark.thorough
def test_redundant_columns_do_not_change_the_score():
    """Test that adding 140 constant columns, or three copies of all columns, does not change R2 on new rows."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(700, 10))
    y = np.sin(2.0 * X[:, 0]) + 0.3 * rng.normal(size=700)
    r2 = []
    for Z in (X, np.hstack([X, np.full((700, 140), 3.0)]), np.hstack([X] * 4)):
        model = HyperKernelRidgeCV(random_state=0).fit(Z[:200], y[:200])
        assert model.n_components_ == 1
        r2.append(model.score(Z[200:], y[200:]))
    assert r2[0] > 0.75
    assert r2[1:] == pytest.approx([r2[0]] * 2, abs=0.01)


@pytest.mark.parametrize("added", ["nothing", "constants", "sums"])
def test_diagnostics_do_not_count_redundant_columns(added):
    """Test that adjusted_share uses 2 * 5 - 1 parameters for two directions of five columns plus redundant columns."""
    X, n = _columns(m=120), 120
    y = np.sin(2.0 * X[:, 0]) + 0.3 * np.random.default_rng(1).normal(size=n)
    X = np.hstack([X, ADDED[added](X)])
    found = HyperKernelRidge(2, init=np.eye(2, X.shape[1]), max_iter=3).fit(X, y).diagnostics_
    left = n - found.effective_dimension
    assert left > 2 * 9
    expected = 1.0 - (1.0 - found.explained_share) / ((left - 9) / n) ** 2
    assert found.adjusted_share == pytest.approx(expected, rel=1e-12)
