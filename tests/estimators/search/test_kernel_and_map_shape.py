"""Tests of the search over kernels and shapes: values and scores, finalists, failures, groups and deadlines."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from hkrr import FitError, HyperKernelRidgeCV
from hkrr._maps import Diagonal, Full, Scaled, square_map_is_affordable
from hkrr.criteria import Evidence, Grouped, LeaveOneOut
from hkrr.estimators.search import kernel_and_map_shape as kernel_search
from hkrr.estimators.search.candidates import Candidate, Origin
from hkrr.estimators.search.kernel_and_map_shape import PRODUCT, RADIAL, grouped, search_kernels
from hkrr.estimators.search.search_problem import SearchProblem
from hkrr.kernels import KERNELS, Radial, kernel_name
from hkrr.rows import InMemoryRows
from support import oracles_criteria as criteria_oracles
from support.random_problems import kernel_cases

# Oracle of each kernel with gamma = 1, because the map of a candidate contains the scale.
VALUES = {case.kernel: case.value for case in kernel_cases(1.0)}
ORACLES = {Evidence: criteria_oracles.evidence, LeaveOneOut: criteria_oracles.leave_one_out}


def _small(m=80, D=3, T=1, seed=0):
    rng = np.random.default_rng([seed, m, D, T])
    X = rng.normal(size=(m, D))
    y = np.stack([np.sin(2.0 * X[:, 0] + t) for t in range(T)], axis=1) + 0.3 * rng.normal(size=(m, T))
    return X, y[:, 0] if T == 1 else y


def _task(rows, make=Evidence, only=False, **options):
    """Return a search in which the number of directions is chosen, unless `only` is True."""
    options = {"rng": np.random.RandomState(0)} | options
    return SearchProblem(rows, make, range(1, rows.n_features + 1), not only, 2, **options)


def _search(make=Evidence, m=40, T=1, weighted=False, starts=1, only=False, **options):
    """Run the search on centered rows, from random maps with two directions.

    Return X, Y, the weights, the best candidate and all candidates tried.
    """
    X, y = _small(m=m, T=T)
    w = np.random.default_rng(3).uniform(0.5, 1.5, size=m) if weighted else None
    X, y = X - X.mean(axis=0), y - y.mean(axis=0)
    rng = np.random.default_rng(4)
    given = [
        Candidate(Origin.RANDOM, KERNELS["gaussian"].with_gamma(1.0), rng.normal(size=(2, 3)), 0.1)
        for _ in range(starts)
    ]
    best, tried = search_kernels(_task(InMemoryRows(X, y, w), make, only, **options), given)
    return X, y.reshape(m, -1), np.ones(m) if w is None else w, best, tried


@pytest.mark.parametrize(
    ("make", "T", "weighted"),
    [
        (Evidence, 1, False),
        *(
            pytest.param(*each, marks=pytest.mark.thorough)
            for each in [(LeaveOneOut, 2, True), (LeaveOneOut, 1, False), (Evidence, 2, True)]
        ),
    ],
)
def test_values_and_scores_match_the_oracle(make, T, weighted):
    """Test values and scores against the oracle, with 40 rows that form one group in every stage.

    Candidates with a tiny nu are left out, because the oracle is inaccurate for a tiny nu.
    """
    X, Y, w, _, tried = _search(make, T=T, weighted=weighted)
    W, noisy = sum(w), [candidate for candidate in tried if candidate.nu > 1e-4]
    assert len(noisy) > len(tried) / 2
    for candidate in noisy:
        d, D = candidate.matrix.shape
        dof = {"identity": 1, "diagonal": D, "full": d * D - d * (d - 1) / 2}[candidate.shape.name]
        value = ORACLES[make](VALUES[candidate.kernel], X, Y, w, None, candidate.nu / W, candidate.matrix)
        nats = value if make is Evidence else math.log(value) / 2.0
        assert candidate.value == pytest.approx(value, rel=1e-8, abs=1e-8)
        assert candidate.score == pytest.approx(T * W * nats + dof / 2.0 * math.log(W), rel=1e-8, abs=1e-6)


def test_maps_have_the_shape_that_is_reported():
    *_, tried = _search()
    for candidate in tried:
        B, name = candidate.B, candidate.shape.name
        if name == "full":
            assert candidate.kernel.rotation_invariant
            assert (B.ndim, candidate.n_components) == (2, len(B))
            assert len(B) <= 3
        else:
            assert (B.shape, candidate.n_components) == ((3,), 3)
            assert np.all(B > 0.0)
        if name == "identity":
            assert_allclose(B, B[0], rtol=1e-14)
    assert {candidate.shape.name for candidate in tried} == {"identity", "diagonal", "full"}


def test_the_lowest_score_of_the_finalists_wins_and_they_come_last():
    *_, best, tried = _search()
    final = [candidate.finalist for candidate in tried]
    finalists = [candidate for candidate, is_final in zip(tried, final, strict=True) if is_final]
    assert final == sorted(final)
    assert finalists
    assert best.score == min(candidate.score for candidate in finalists)
    # All stages use the same rows, and runs never increase the criterion, so no candidate has a lower score.
    assert best.score <= min(candidate.score for candidate in tried) + 1e-6 * abs(best.score)


def test_only_a_given_number_of_directions_is_tried():
    *_, best, tried = _search(only=True, starts=2)
    assert {(candidate.shape.name, candidate.n_components) for candidate in [best, *tried]} == {("full", 2)}
    assert {kernel_name(candidate.kernel) for candidate in tried} == set(RADIAL)


@dataclass(frozen=True, kw_only=True)
class NotANumber(Radial):
    """A kernel whose values are all NaN."""

    def value_and_decay(self, u):
        return np.full_like(u, np.nan), np.full_like(u, np.nan)


@dataclass(frozen=True, kw_only=True)
class Failing(Radial):
    """A kernel that raises an error."""

    def value_and_decay(self, u):
        raise FitError("in this kernel")


broken_kernels = pytest.mark.parametrize("broken", [NotANumber(), Failing()], ids=["nan", "error"])


@pytest.mark.parametrize(
    ("broken", "name"),
    [
        (NotANumber(), "anova"),
        (Failing(), "gaussian"),
        *(
            pytest.param(*each, marks=pytest.mark.thorough)
            for each in [
                (NotANumber(), "matern32"),
                (NotANumber(), "gaussian"),
                (Failing(), "matern32"),
                (Failing(), "anova"),
            ]
        ),
    ],
)
def test_a_kernel_that_fails_is_dropped(monkeypatch, broken, name):
    """Test that a kernel that fails is ignored, even if it is the Gaussian kernel of the given maps."""
    monkeypatch.setitem(KERNELS, name, broken)
    *_, best, tried = _search()
    worked = [candidate for candidate in tried if math.isfinite(candidate.score)]
    assert any(candidate is best for candidate in worked)
    assert {kernel_name(candidate.kernel) for candidate in worked} == {*RADIAL, *PRODUCT} - {name}


@broken_kernels
@pytest.mark.parametrize("name", [pytest.param("matern32", marks=pytest.mark.thorough), "gaussian"])
def test_a_fit_ignores_a_kernel_that_fails(monkeypatch, broken, name):
    monkeypatch.setitem(KERNELS, name, broken)
    X, y = _small(m=50)
    assert HyperKernelRidgeCV(kernel="auto", n_init=1, random_state=0).fit(X, y).score(X, y) > 0.5


@broken_kernels
def test_a_fit_raises_if_all_kernels_fail(monkeypatch, broken):
    for name in KERNELS:
        monkeypatch.setitem(KERNELS, name, broken)
    with pytest.raises(FitError):
        HyperKernelRidgeCV(kernel="auto", random_state=0).fit(*_small())


@broken_kernels
def test_the_search_raises_if_all_kernels_fail(monkeypatch, broken):
    for name in KERNELS:
        monkeypatch.setitem(KERNELS, name, broken)
    with pytest.raises(FitError):
        _search()


@pytest.mark.parametrize("only", [False, True])
def test_after_the_deadline_the_first_given_map_is_returned(only):
    X, y = _small(m=40)
    given = [
        Candidate(Origin.RANDOM, KERNELS["gaussian"].with_gamma(1.0), np.eye(d, 3), 0.1, 0.5, 20.0) for d in (2, 1)
    ]
    best, tried = search_kernels(_task(InMemoryRows(X, y), only=only, deadline=0.0), given)
    assert best is given[0]
    assert tried == []


def test_threads_do_not_change_the_result():
    (*_, one), (*_, two) = (_search(n_threads=n) for n in (1, 2))
    assert [(c.kind.label, c.value, c.score, c.nu) for c in one] == [
        (c.kind.label, c.value, c.score, c.nu) for c in two
    ]


@pytest.mark.parametrize(("few", "last"), [(10, 30), (40, 40)])
def test_finalists_use_larger_groups_or_all_rows(monkeypatch, few, last):
    """Test the groups of a search on 40 rows: two groups of 12 rows, then two groups of 15 rows or all rows.

    The first runs use one of the two groups of 12 rows. The finalists use the larger groups.
    """
    sizes = {"_GROUP_ROWS": 12, "_GROUPS": 2, "_LARGE_GROUP_ROWS": 15, "_LARGE_GROUPS": 2, "_ONE_GROUP_ROWS": few}
    for name, size in sizes.items():
        monkeypatch.setattr(kernel_search, name, size)
    made = []
    monkeypatch.setattr(kernel_search, "grouped", lambda *given: made.append(grouped(*given)) or made[-1])
    X, Y, w, best, tried = _search()
    assert [(groups.rows.n_rows, groups.n_groups) for groups in made] == [(24, 2), (last, 2 if last == 30 else 1)]
    # The scores are extrapolated to 40 rows. The penalty includes the optimism of a criterion on n rows.
    for candidate in tried:
        n = last if candidate.finalist else 12 if candidate.half_groups else 24
        penalty = candidate.degrees_of_freedom / 2.0 * (math.log(40) + 40 / n - 1.0)
        assert candidate.score == pytest.approx(40 * candidate.value + penalty, rel=1e-10)
    if last == 40:
        value = criteria_oracles.evidence(VALUES[best.kernel], X, Y, w, None, best.nu / 40, best.matrix)
        assert best.value == pytest.approx(value, rel=1e-8)


@pytest.mark.parametrize(("D", "n_groups"), [(3, 6), (50, 6), (51, 5), (100, 3), (150, 2), (400, 2)])
def test_there_are_fewer_groups_for_many_columns(D, n_groups):
    rows = InMemoryRows(np.zeros((100, D)), np.zeros(100))
    found = grouped(Evidence, rows, 10, 6, np.random.RandomState(0))
    assert (found.n_groups, found.rows.n_rows) == (n_groups, 10 * n_groups)
    assert grouped(Evidence, rows, 100, 1, np.random.RandomState(0)).n_groups == 1


@pytest.mark.parametrize("D", [50, 51])
def test_with_more_than_fifty_columns_only_the_cheapest_product_kernel_is_tried(D):
    X, y = _small(m=30, D=D)
    *_, tried = search_kernels(_task(InMemoryRows(X, y - y.mean())), [])
    product = {"product_laplace"} if D == 51 else set(PRODUCT)
    assert {kernel_name(candidate.kernel) for candidate in tried} == {*RADIAL, *product}


@pytest.mark.parametrize(("n_rows", "D", "expected"), [(100, 1, False), (100, 9, True), (90, 9, False), (5, 1, False)])
def test_a_square_map_needs_twice_as_many_rows_as_it_has_parameters(n_rows, D, expected):
    """Test that a square map of nine columns, which has 45 parameters, needs more than 90 rows.

    Square maps are only affordable for radial kernels, and not for a single column.
    """
    assert square_map_is_affordable(n_rows, D, KERNELS["gaussian"]) is expected
    assert not square_map_is_affordable(10**6, D, KERNELS["anova"])


def test_constant_columns_do_not_count_as_columns_of_a_square_map():
    """Test that a square map of 3 columns, with 6 parameters, is tried on 40 rows despite 10 constant columns."""
    X, y = _small(m=40)
    rows = InMemoryRows(np.hstack([X, np.full((40, 10), 3.0)]), y - y.mean()).count_free_columns()
    *_, tried = search_kernels(_task(rows), [])
    assert {end.B.shape for end in tried if end.origin is Origin.SQUARE} == {(3, 13)}


# ------------------------------------------------------------------------------------ finalists and winners


def _runs(deadline=math.inf, total_weight=40.0, tried=()):
    problem = _task(InMemoryRows(*_small()), represented_weight=total_weight, deadline=deadline)
    runs = kernel_search._Runs(problem)
    runs.tried = list(tried)
    return runs


def _groups(m=40, weighted=False):
    X, y = _small(m=m)
    w = np.random.default_rng(3).uniform(0.5, 1.5, size=m) if weighted else None
    return Grouped(Evidence, InMemoryRows(X, y - y.mean(), w), 2, KERNELS["gaussian"].with_gamma(1.0), 1.0)


def _named(name, score=0.0, kernel="gaussian", d=None, nu=0.1):
    """Return a candidate of the given origin: "directions", "square", "diagonal" or "plain"."""
    kernel = KERNELS[kernel].with_gamma(1.0)
    if name in ("directions", "square"):
        return Candidate(Origin(name), kernel, np.eye(d or 2, 3), nu, 0.0, score, shape=Full())
    shape = Scaled(np.ones(3)) if name == "plain" else Diagonal()
    return Candidate(Origin(name), kernel, np.array([1.0, 0.5, 0.2]), nu, 0.0, score, shape=shape)


@pytest.mark.parametrize("weighted", [False, True])
def test_errors_are_leave_one_out_errors_with_a_penalty(weighted):
    """Test that the error is the mean leave-one-out error of the groups, times the penalty factor 1 + 2 dof / n."""
    groups, candidates = _groups(weighted=weighted), [_named("directions"), _named("diagonal", kernel="anova")]
    X, Y, w = groups.rows.gather()
    w = np.ones(40) if w is None else w
    for candidate, error, dof in zip(candidates, _runs().errors(candidates, groups), (5, 3), strict=True):
        expected = sum(
            sum(w[part])
            / sum(w)
            * criteria_oracles.leave_one_out(
                VALUES[candidate.kernel], X[part], Y[part], w[part], None, 0.1 / sum(w[part]), candidate.matrix
            )
            for part in (slice(0, 20), slice(20, 40))
        )
        assert error == pytest.approx(expected * (1.0 + 2.0 * dof / sum(w)), rel=1e-9)


def test_errors_that_cannot_be_computed_are_infinite():
    """Test that the error of a failing kernel is infinite, and after the deadline all errors but the first."""
    groups = _groups()
    broken = replace(_named("diagonal"), kernel=NotANumber(gamma=1.0))
    found = _runs().errors([_named("diagonal"), broken, _named("plain")], groups)
    assert [math.isfinite(error) for error in found] == [True, False, True]
    late = _runs(deadline=0.0).errors([_named("diagonal"), _named("plain"), _named("square")], groups)
    assert late == [found[0], math.inf, math.inf]


def test_scores_are_extrapolated_to_all_rows_with_a_correction_for_optimism():
    """Test a score that is extrapolated from 40 to 1,000 rows.

    The optimism of five parameters is 2.5 nats times 1000 / 40 - 1 = 24.
    """
    end = _runs(total_weight=1000.0).extrapolate_score(replace(_named("directions"), value=-0.3), _groups())
    assert end.score == pytest.approx(-300.0 + 2.5 * math.log(1000.0) + 2.5 * 24.0, rel=1e-12)


def test_finalists(monkeypatch):
    """Test that the finalists are the best candidate of each kind and the three candidates with the smallest errors.

    There is at most one finalist for each kernel, shape and number of directions. Runs on half of the groups are
    ignored, because their scores are not comparable. Candidates with a much higher score are left out, unless their
    error is small.
    """
    first, again = _named("directions", -9.0), _named("directions", -8.9)
    square, diagonal = _named("square", -8.0, d=3), _named("diagonal", -8.5, "anova")
    plain, far, farther = _named("plain", -7.8), _named("diagonal", 90.0, "laplace"), _named("plain", 95.0, "matern32")
    half = replace(_named("diagonal", -50.0, "product_laplace"), half_groups=True)
    tried = [farther, far, plain, again, half, square, diagonal, first]
    error = {id(far): 0.1, id(plain): 0.2, id(square): 0.3}
    monkeypatch.setattr(
        kernel_search._Runs, "errors", lambda runs, candidates, on: [error.get(id(one), 9.0) for one in candidates]
    )
    found = kernel_search._finalists(_runs(tried=tried), _groups())
    assert found[0] is first
    assert sorted(map(id, found)) == sorted(map(id, (first, diagonal, square, plain, far)))
    monkeypatch.setattr(kernel_search, "_FINALISTS", 4)
    fewer = kernel_search._finalists(_runs(tried=tried), _groups())
    assert [id(one) for one in fewer] == [id(one) for one in found[:4]]


def _won(monkeypatch, short, long=None, deadline=math.inf):
    """Return the index of the winner, and the runs as (index of the finalist, number of iterations).

    `short` and `long` are the scores of the finalists after short and long runs.
    """
    begun, scores = [], {kernel_search.SHORT: short, kernel_search.LONG: short if long is None else long}

    def improve(criterion, start, max_iter, deadline):
        begun.append((start.n_components - 1, max_iter))
        return replace(start, value=float(scores[max_iter][start.n_components - 1]), score=0.0)

    monkeypatch.setattr(kernel_search, "improve", improve)
    monkeypatch.setattr(kernel_search._Runs, "extrapolate_score", lambda runs, end, on: replace(end, score=end.value))
    finalists = [replace(_named("directions", k), B=np.eye(k + 1, 9)) for k in range(len(short))]
    typical = {finalists[0].kernel: 1.0}
    return kernel_search._winner(_runs(deadline), _groups(), finalists, typical).n_components - 1, begun


def test_the_lowest_score_wins_and_ties_go_to_the_first(monkeypatch):
    assert _won(monkeypatch, [3.0, 1.0, 2.0])[0] == 1
    assert _won(monkeypatch, [1.0, 1.0, 1.0])[0] == 0
    assert _won(monkeypatch, [2.0, 1.0, 1.0])[0] == 1


def test_the_best_finalists_get_long_runs(monkeypatch):
    """Test that the best two finalists get a long run, and the winner gets one more long run.

    A finalist whose score is more than 0.05 nats per row (here 2 nats) above the best gets no long run.
    """
    few, many = kernel_search.SHORT, kernel_search.LONG
    first = [(0, few), (1, few), (2, few)]
    assert _won(monkeypatch, [3.2, 1.0, 3.1]) == (1, [*first, (1, many), (1, many)])
    assert _won(monkeypatch, [2.9, 1.0, 3.1]) == (1, [*first, (1, many), (0, many), (1, many)])
    assert _won(monkeypatch, [2.9, 1.0, 3.1], [0.5, 0.7, -9.0]) == (0, [*first, (1, many), (0, many), (0, many)])


def test_after_the_deadline_the_first_finalist_wins(monkeypatch):
    assert _won(monkeypatch, [3.0, 1.0, 2.0], deadline=0.0) == (0, [])
