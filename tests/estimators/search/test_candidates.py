"""Tests of search candidates: scores, degrees of freedom, and runs on threads and workers."""

import math
from dataclasses import replace

import joblib
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from hkrr._maps import Diagonal, Full, Scaled
from hkrr.criteria import Evidence, Grouped, LeaveOneOut
from hkrr.estimators.search.candidates import (
    LONG_RUN,
    Candidate,
    Origin,
    descend,
    improve,
    improve_each,
    optimism,
    plain_kernel_ridge,
    score,
)
from hkrr.kernels import KERNELS, Gaussian
from hkrr.rows import InMemoryRows
from support import oracles
from support import oracles_criteria as criteria_oracles
from support.random_problems import kernel_cases

KERNEL = Gaussian(gamma=1.0)
# Whether each kernel is rotation invariant.
ROTATIONS_CHANGE_NOTHING = {
    "gaussian": True,
    "laplace": True,
    "matern12": True,
    "matern32": True,
    "matern52": True,
    "rational_quadratic": True,
    "inverse_multiquadric": True,
    "polynomial": True,
    "linear": True,
    "product_laplace": False,
    "product_matern32": False,
    "product_matern52": False,
    "anova": False,
}


def _rows(m=40, T=1, weighted=False, D=3):
    rng = np.random.default_rng([m, T, D])
    X = rng.normal(size=(m, D))
    Y = np.stack([np.sin(2.0 * X[:, 0] + t) for t in range(T)], axis=1) + 0.2 * rng.normal(size=(m, T))
    w = rng.uniform(0.5, 1.5, size=m) if weighted else None
    return InMemoryRows(X, Y - Y.mean(axis=0), w)


def _starts(n, D=3, seed=0):
    rng = np.random.default_rng(seed)
    return [Candidate(Origin.RANDOM, KERNEL, rng.normal(size=(2, D)), 0.1) for k in range(n)]


# --------------------------------------------------------------------------------------------- scores


def _diagonal(B, shape=None):
    """Return a candidate whose map is the diagonal matrix of the vector B."""
    return Candidate(Origin.SPARSE, KERNEL, np.array(B), 0.1, shape=shape or Diagonal(np.array(B)))


@pytest.mark.parametrize(("D", "k"), [(5, 0), (5, 1), (5, 2), (5, 4), (5, 5), (1, 1), (60, 3), (2_000, 700)])
def test_the_choice_of_columns_is_the_logarithm_of_a_binomial_coefficient(D, k):
    """Test that `choice` is ``log(D choose k)`` for a map that uses k of D columns. It is a term of the score."""
    B = np.random.default_rng(0).permutation(np.where(np.arange(D) < k, 0.3, 0.0))
    expected = math.log(math.comb(D, k))
    for shape in (Diagonal(B), Diagonal(), Scaled(B + 1.0)):
        assert _diagonal(B, shape).choice == pytest.approx(expected, rel=1e-10, abs=1e-10)
    if k in (0, D):
        assert _diagonal(B).choice == pytest.approx(0.0, abs=1e-10)


def test_a_matrix_makes_no_choice_of_columns():
    for B in (np.eye(2, 6), np.diag([1.0, 0.0, 0.0]), np.zeros((1, 4))):
        assert Candidate(Origin.CUT, KERNEL, B, 0.1).choice == 0.0


# Candidates for three columns, with their numbers of parameters and of choices of columns.
SCORED = {
    "none": (None, 0, 1),
    "two directions": (Candidate(Origin.RANDOM, KERNEL, np.eye(2, 3), 0.1), 5, 1),
    "identity": (_diagonal(np.ones(3), Scaled(np.ones(3))), 1, 1),
    "diagonal": (_diagonal(np.ones(3), Diagonal()), 3, 1),
    "sparse": (_diagonal([0.0, 0.5, 0.0]), 1, 3),
    "all columns": (_diagonal(np.ones(3)), 3, 1),
}


@pytest.mark.parametrize(("T", "constant", "counted"), [(1, 0, 1), (3, 0, 3), (3, 1, 2), (1, 1, 1)])
@pytest.mark.parametrize("make", [Evidence, LeaveOneOut])
def test_the_score_is_a_bic_in_nats(make, T, constant, counted):
    """Test that the score is T W l + (dof / 2) log W, where l is the criterion in nats and W the total weight.

    T is the number of targets that are not constant, or 1 if all targets are constant. The number of parameters of the
    map is dof. If only k of the D columns are used, the logarithm of the number of choices of k columns is added.
    Without a candidate, the score is T W l.
    """
    rows = _rows(T=T, weighted=True)
    X, Y, w = rows.gather()
    Y[:, :constant] = 0.0
    criterion = make(InMemoryRows(X, Y, w), None, KERNEL, 0.05)
    nats = 0.7 if make is Evidence else math.log(0.7) / 2.0
    for candidate, dof, n_choices in SCORED.values():
        for W in (None, 7.0, 1e6):
            total = sum(w) if W is None else W
            expected = counted * total * nats + dof / 2.0 * math.log(total) + math.log(n_choices)
            assert score(criterion, 0.7, candidate, W) == pytest.approx(expected, rel=1e-12)


def test_the_penalty_uses_at_least_two_rows():
    """Test that parameters are penalized even if the total weight W is 1: the penalty is then the same as for W = 2."""
    criterion = Evidence(_rows(), None, KERNEL, 0.05)
    candidate = Candidate(Origin.SQUARE, KERNEL, np.eye(3), 0.1)  # with 6 parameters
    for W in (1.0, 2.0):
        assert score(criterion, 0.0, candidate, W) == pytest.approx(3.0 * math.log(2.0))


@pytest.mark.parametrize("dof", [0.0, 1.0, 7.0])
def test_optimism(dof):
    """Test the optimism of a score that was minimized on n rows and is extrapolated to W rows.

    If the map has dof parameters, the optimism is (dof / 2) (W / n - 1) nats, and zero if W is at most n. On average,
    the maximum of the log likelihood of n rows exceeds its value at the true parameters by dof / 2. On n new rows, the
    log likelihood at the fitted parameters is lower than at the true parameters by the same amount.
    """
    assert optimism(dof, 100.0, 100.0) == 0.0
    assert optimism(dof, 100.0, 300.0) == pytest.approx(dof)
    assert optimism(dof, 400.0, 1000.0) == pytest.approx(0.75 * dof)
    assert optimism(dof, 100.0, 50.0) == 0.0  # never negative


# --------------------------------------------------------------------------------- degrees of freedom


def test_every_kernel_is_in_the_table():
    assert {name: kernel.rotation_invariant for name, kernel in KERNELS.items()} == ROTATIONS_CHANGE_NOTHING


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize(("d", "D"), [(1, 1), (1, 4), (2, 4), (3, 4), (4, 4)])
def test_degrees_of_freedom_for_each_kernel_and_shape(name, d, D):
    kernel = KERNELS[name].with_gamma(1.0)
    full = d * D - (d * (d - 1) // 2 if ROTATIONS_CHANGE_NOTHING[name] else 0)
    assert Candidate(Origin.RANDOM, kernel, np.ones((d, D)), 0.1).degrees_of_freedom == full
    assert Candidate(Origin.RANDOM, kernel, np.ones(D), 0.1, shape=Diagonal()).degrees_of_freedom == D
    for k in range(1, D + 1):
        base = np.where(np.arange(D) < k, 2.0, 0.0)
        sparse = Candidate(Origin.SPARSE, kernel, base, 0.1, shape=Diagonal(base))
        assert sparse.degrees_of_freedom == k
        assert replace(sparse, n_free_columns=2).degrees_of_freedom == min(k, 2)
    for base in (np.ones(D), np.ones((d, D))):
        assert Candidate(Origin.RANDOM, kernel, base, 0.1, shape=Scaled(base)).degrees_of_freedom == 1


RANKED = [case for case in kernel_cases(0.3) if case.shape.get("degree") != 1]


@pytest.mark.parametrize("case", RANKED, ids=lambda case: case.id)
@pytest.mark.parametrize(("d", "D"), [(1, 3), (2, 3), (3, 3)])
def test_degrees_of_freedom_equal_the_rank_of_the_jacobian(case, d, D):
    """Test that the degrees of freedom equal the rank of a Jacobian, the derivative of a kernel matrix.

    The kernel matrix of twelve points is differentiated with respect to the parameters of the map, by finite
    differences. A parameter without effect gives a singular value of about 1e-9. Polynomial kernels of degree one are
    left out.
    """
    rng = np.random.default_rng([d, D])
    X, B, scales = rng.normal(size=(12, D)), rng.normal(size=(d, D)), rng.uniform(0.5, 1.5, size=D)
    pairs = np.array([(i, j) for i in range(12) for j in range(i)])

    def matrix(shape, parameters):
        B = shape.map(parameters)
        P = X @ (np.diag(B) if B.ndim == 1 else B).T
        return np.array([case.value(P[i], P[j]) for i, j in pairs])

    sparse = np.where(np.arange(D) == 1, 0.0, scales)
    shapes = [(Full(), B), (Diagonal(), scales), (Diagonal(sparse), sparse), (Scaled(np.ones(D)), np.ones(D))]
    for shape, at in (*shapes, (Scaled(B), B)):
        parameters, columns = shape.parameters(at), []
        for k in range(parameters.size):
            step = np.zeros(parameters.size)
            step[k] = 1e-5
            step = step.reshape(parameters.shape)
            columns.append((matrix(shape, parameters + step) - matrix(shape, parameters - step)) / 2e-5)
        singular = np.linalg.svd(np.array(columns), compute_uv=False)
        found = np.count_nonzero(singular > 1e-6 * singular[0])
        assert Candidate(Origin.RANDOM, case.kernel, at, 0.1, shape=shape).degrees_of_freedom == found


# ------------------------------------------------------------------------------------------------ runs


def _comparable(ends):
    return [(end.label, end.value, end.score, end.nu) for end in ends]


@pytest.mark.parametrize(
    "given",
    [
        {"n_threads": 2},
        {"n_jobs": 2},
        pytest.param({"n_threads": 5}, marks=pytest.mark.thorough),
        pytest.param({"n_jobs": 1, "n_threads": 1}, marks=pytest.mark.thorough),
    ],
)
@pytest.mark.parametrize("grouped", [True, pytest.param(False, marks=pytest.mark.thorough)])
def test_threads_and_workers_give_the_same_candidates_in_the_same_order(given, grouped):
    """Test that the results are bitwise equal to those of separate runs, in the order of the starts.

    There may be fewer starts than threads, or no starts.
    """
    rows = _rows()
    criterion = (
        Grouped(Evidence, rows, 2, KERNEL, 1.0) if grouped else Evidence(rows, rows.take([1, 5, 9]), KERNEL, 1.0)
    )
    for n in (0, 3):
        starts = _starts(n)
        one_by_one = [improve(criterion, start, 5, np.inf) for start in starts]
        ends = improve_each(criterion, starts, 5, **given)
        assert _comparable(ends) == _comparable(one_by_one)
        assert len({end.value for end in ends}) == n
        for end, expected in zip(ends, one_by_one, strict=True):
            assert_array_equal(end.B, expected.B)


@pytest.mark.parametrize("n_threads", [1, 2])
def test_a_start_that_cannot_be_evaluated_keeps_its_place(n_threads):
    rows = _rows()
    starts = [replace(start, origin=origin) for start, origin in zip(_starts(3), Origin, strict=False)]
    starts[1] = replace(starts[1], B=np.full((2, 3), np.nan), value=-1.0, score=-1.0)
    ends = improve_each(Evidence(rows, None, KERNEL, 1.0), starts, 5, n_threads=n_threads)
    assert [end.origin for end in ends] == [start.origin for start in starts]
    assert (ends[1].value, ends[1].score) == (math.inf, math.inf)
    assert all(math.isfinite(end.value) for end in (ends[0], ends[2]))


@pytest.mark.parametrize("shape", ["full", "diagonal", "sparse", "identity"])
@pytest.mark.parametrize("max_iter", [0, 1, 7])
def test_values_match_the_oracle_and_never_increase(shape, max_iter):
    rows, kernel = _rows(weighted=True), kernel_cases(1.0)[0].value
    (X, Y, w), W = rows.gather(), rows.total_weight
    diagonal, sparse = np.array([0.5, 1.0, 2.0]), np.array([0.5, 0.0, 2.0])
    B = {"full": np.eye(2, 3), "diagonal": diagonal, "sparse": sparse, "identity": np.ones(3)}[shape]
    shapes = {"full": Full(), "diagonal": Diagonal(), "sparse": Diagonal(sparse), "identity": Scaled(B)}
    start = Candidate(Origin.RANDOM, KERNEL, B, 0.3, shape=shapes[shape])
    end, result = descend(Evidence(rows, None, KERNEL, 1.0), start, max_iter)
    values = [
        criteria_oracles.evidence(kernel, X, Y, w, None, one.nu / W, oracles.as_matrix(one.B)) for one in (start, end)
    ]
    assert end.value == result.objective == pytest.approx(values[1], rel=1e-9)
    assert end.value < values[0] if max_iter else end.value == pytest.approx(values[0], rel=1e-9)
    dof, n_choices = {"full": (5, 1), "diagonal": (3, 1), "sparse": (2, 3), "identity": (1, 1)}[shape]
    assert end.score == pytest.approx(W * values[1] + dof / 2.0 * math.log(W) + math.log(n_choices), rel=1e-9)
    if shape == "sparse":
        assert_array_equal(end.B > 0.0, [True, False, True])
    assert (end.B.shape, end.label, result.n_iter <= max_iter) == (B.shape, "random", True)
    assert_array_equal(end.B, result.B)
    assert end.nu == pytest.approx(result.reg_lambda * W)


def test_messages_do_not_mention_internal_parameters():
    """Test that messages do not mention max_iter or callbacks, which the user of a search did not set."""
    criterion, start = Evidence(_rows(), None, KERNEL, 1.0), _starts(1)[0]
    short, flat = descend(criterion, start, 1)[1], descend(criterion, start, 1000, tol=0.0)[1]
    assert (short.reason, flat.reason) == ("max_iter", "stalled")  # the second run is stopped by the Plateau callback
    assert "max_iter" not in short.message
    assert "callback" not in flat.message


@pytest.mark.parametrize("noises", [(0.1,), (1e-8, 1.0, 30.0)])
def test_plain_kernel_ridge_is_the_best_of_runs_from_each_noise(noises):
    criterion = Evidence(_rows(m=60), None, KERNEL, 1.0)
    best, result = plain_kernel_ridge(criterion, KERNEL, noises, np.random.RandomState(0))
    typical = math.sqrt(KERNEL.median_gamma(criterion.rows.gather()[0]))  # all rows: there are fewer than 1,000
    starts = [Candidate(Origin.PLAIN, KERNEL, np.full(3, typical), nu, shape=Scaled(np.ones(3))) for nu in noises]
    lowest = min(descend(criterion, start, LONG_RUN)[0].value for start in starts)
    assert best.value == result.objective == pytest.approx(lowest, rel=1e-9)
    assert (best.label, best.shape.name, best.n_components) == ("plain", "identity", 3)
    assert_allclose(best.B, best.B[0], rtol=1e-14)


@pytest.mark.parametrize(("reg_lambda", "expected"), [(1e-12, True), (1e-3, False), (1e3, True)])
def test_lambda_at_its_bound_is_reported(reg_lambda, expected):
    """Test that `lambda_at_bound` is True if lambda is at an end of its range (1e-12 or 1e3), and False otherwise.

    The candidates come from `descend`, from `improve` and from a run in a worker. No iteration is made, so lambda keeps
    its starting value.
    """
    rows = _rows()
    criterion = Evidence(rows, None, KERNEL, 1.0)
    start = replace(_starts(1)[0], nu=reg_lambda * rows.total_weight, lambda_at_bound=not expected)
    ends = [descend(criterion, start, 0)[0], improve(criterion, start, 0, np.inf)]
    with joblib.parallel_config(backend="loky"):
        ends += improve_each(criterion, [start], 0, n_jobs=2)
    assert [end.lambda_at_bound for end in ends] == [expected] * 3
