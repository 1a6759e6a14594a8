"""Tests of the race: a search over kernels and shapes of the map in rounds, each of which drops the worst candidates.

The tests cover values, scores, rounds, survivors, failures and deadlines.
"""

import math
import time
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from hkrr import FitError, HyperKernelRidgeCV
from hkrr._maps import Diagonal, Full, Scaled, square_map_is_affordable
from hkrr.criteria import Evidence, LeaveOneOut
from hkrr.estimators.search import kernel_race
from hkrr.estimators.search.candidates import Candidate, Origin
from hkrr.estimators.search.kernel_race import PRODUCT, RADIAL, Race
from hkrr.estimators.search.search_problem import SearchProblem
from hkrr.kernels import KERNELS, Radial, kernel_name
from hkrr.rows import InMemoryRows
from support import oracles
from support import oracles_criteria as criteria_oracles
from support.random_problems import kernel_cases

# Oracle of each kernel with gamma = 1, because the map of a candidate contains the scale.
VALUES = {case.kernel: case.value for case in kernel_cases(1.0)}
ORACLES = {Evidence: criteria_oracles.evidence, LeaveOneOut: criteria_oracles.leave_one_out}
GAUSSIAN = KERNELS["gaussian"].with_gamma(1.0)
Kind, Round = kernel_race._Kind, kernel_race._Round


def _data(m=40, D=3, T=1, seed=0):
    """Return centered data. The targets depend on the first column, and a little on the second one."""
    rng = np.random.default_rng([seed, m, D, T])
    X = rng.normal(size=(m, D))
    y = np.stack([np.sin(2.0 * X[:, 0] + t) + 0.3 * X[:, 1] for t in range(T)], axis=1) + 0.2 * rng.normal(size=(m, T))
    return X - X.mean(axis=0), y - y.mean(axis=0)


def _problem(rows, make=Evidence, given=False, **options):
    """Return a search in which the number of directions is chosen, unless `given` is True."""
    options = {"rng": np.random.RandomState(0)} | options
    return SearchProblem(rows, make, range(1, rows.n_features + 1), not given, 2, **options)


def _directions(n=1, D=3):
    """Return n random maps with two directions."""
    rng = np.random.default_rng(4)
    return [Candidate(Origin.RANDOM, GAUSSIAN, rng.normal(size=(2, D)), 0.1) for _ in range(n)]


def _race(make=Evidence, m=40, T=1, weighted=False, n_directions=1, **options):
    """Run a race on centered rows, and return it."""
    X, Y = _data(m, T=T)
    w = np.random.default_rng(3).uniform(0.5, 1.5, size=m) if weighted else None
    race = Race(_problem(InMemoryRows(X, Y, w), make, **options))
    race.run(_directions(n_directions))
    return race


def _small_rounds(monkeypatch, *n_rows, max_iter=14, kept=None, n_runs=100):
    kept = kept or kernel_race._kept(1, 2, 2, 2, 1)
    monkeypatch.setattr(kernel_race, "_ROUNDS", tuple(Round(n, max_iter, n_runs, kept) for n in n_rows))


def _names(candidates):
    return {kernel_name(candidate.kernel) for candidate in candidates}


@pytest.fixture(scope="module")
def race():
    """Return a race on 40 rows, which has two rounds with all rows."""
    return _race()


# ------------------------------------------------------------------------------------ values, scores and shapes


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
def test_values_and_scores_match_the_oracle(monkeypatch, make, T, weighted):
    """Test values and scores, extrapolated from 25 of 40 rows and computed on all 40 rows.

    Candidates with a tiny nu are left out, because the oracle is inaccurate for a tiny nu.
    """
    _small_rounds(monkeypatch, 25, 60)
    race = _race(make, T=T, weighted=weighted)
    assert {candidate.n_rows for candidate in race.tried} == {25, 40}
    noisy = [candidate for candidate in race.tried if candidate.nu > 1e-4]
    assert len(noisy) > len(race.tried) / 2
    W = race.problem.rows.total_weight
    for candidate in noisy:
        X, Y, w = race.criterion(candidate.n_rows).rows.gather()
        w = np.ones(len(X)) if w is None else w
        d, D = oracles.as_matrix(candidate.B).shape
        dof = {"identity": 1, "diagonal": D, "full": d * D - d * (d - 1) / 2}[candidate.shape.name]
        value = ORACLES[make](
            VALUES[candidate.kernel], X, Y, w, None, candidate.nu / sum(w), oracles.as_matrix(candidate.B)
        )
        nats = value if make is Evidence else math.log(value) / 2.0
        score = T * W * nats + dof / 2.0 * (math.log(W) + W / sum(w) - 1.0)
        assert candidate.value == pytest.approx(value, rel=1e-8, abs=1e-8)
        assert candidate.score == pytest.approx(score, rel=1e-8, abs=1e-6)


def test_scores_are_extrapolated_to_the_rows_that_the_sample_represents(monkeypatch):
    """Test the score of 1,000 rows, of which the search has 40 rows: 1000 / 40 - 1 = 24."""
    _small_rounds(monkeypatch, 40)
    for candidate in _race(represented_weight=1_000.0).tried:
        penalty = candidate.degrees_of_freedom / 2.0 * (math.log(1_000.0) + 24.0)
        assert candidate.score == pytest.approx(1_000.0 * candidate.value + penalty, rel=1e-12)


def test_maps_have_the_shape_that_is_reported(race):
    for candidate in race.tried:
        B = candidate.B
        if isinstance(candidate.shape, Full):
            assert candidate.kernel.rotation_invariant
            assert B.shape == ((3, 3) if candidate.origin is Origin.SQUARE else (2, 3))
        else:
            assert B.shape == (3,)
            assert np.all(B > 0.0)
        if isinstance(candidate.shape, Scaled):
            assert_allclose(B, B[0], rtol=1e-14)


def test_all_kernels_and_shapes_are_tried(race):
    tried = {(candidate.origin, kernel_name(candidate.kernel)) for candidate in race.tried}
    radial = {(origin, name) for origin in (Origin.DIRECTIONS, Origin.SQUARE) for name in RADIAL}
    assert tried == radial | {
        (origin, name) for origin in (Origin.PLAIN, Origin.DIAGONAL) for name in (*RADIAL, *PRODUCT)
    }


@pytest.mark.parametrize("D", [50, 51])
def test_with_more_than_fifty_columns_only_the_cheapest_product_kernel_is_tried(monkeypatch, D):
    _small_rounds(monkeypatch, 30)
    race = Race(_problem(InMemoryRows(*_data(30, D))))
    race.run([])
    assert _names(race.tried) == {*RADIAL, *({"product_laplace"} if D == 51 else PRODUCT)}


@pytest.mark.parametrize(("n_rows", "D", "expected"), [(100, 1, False), (100, 9, True), (90, 9, False), (5, 1, False)])
def test_a_square_map_needs_twice_as_many_rows_as_it_has_parameters(n_rows, D, expected):
    """Test that a square map of nine columns, which has 45 parameters, needs more than 90 rows.

    Square maps are only affordable for radial kernels, and not for a single column.
    """
    assert square_map_is_affordable(n_rows, D, KERNELS["gaussian"]) is expected
    assert not square_map_is_affordable(10**6, D, KERNELS["anova"])


def test_square_maps_are_tried_as_soon_as_a_round_has_enough_rows(monkeypatch):
    """Test square maps of 3 columns, with 6 parameters, in rounds of 12, 13 and 40 rows: they need 13 rows."""
    _small_rounds(monkeypatch, 12, 13, 40)
    square = [candidate.n_rows for candidate in _race().tried if candidate.origin is Origin.SQUARE]
    assert set(square) == {13, 40}


def test_constant_columns_do_not_count(monkeypatch):
    """Test that 10 constant columns add no parameters, and that square maps ignore them."""
    _small_rounds(monkeypatch, 40)
    X, Y = _data()
    rows = InMemoryRows(np.hstack([X, np.full((40, 10), 3.0)]), Y).count_free_columns()
    race = Race(_problem(rows))
    race.run([])
    dof = {Origin.PLAIN: 1, Origin.DIAGONAL: 3, Origin.SQUARE: 6}
    assert {(one.origin, one.degrees_of_freedom) for one in race.tried} == set(dof.items())
    for candidate in race.tried:
        if candidate.origin is Origin.SQUARE:
            assert_allclose(candidate.B[3:], 0.0, atol=1e-12)
            assert_allclose(candidate.B[:, 3:], 0.0, atol=1e-12)


@pytest.mark.parametrize("n_directions", [1, 2])
def test_only_the_given_number_of_directions_is_tried(n_directions):
    race = _race(given=True, n_directions=n_directions)
    tried = [*race.survivors, *race.tried]
    assert {(type(one.shape), one.n_components, one.origin) for one in tried} == {(Full, 2, Origin.DIRECTIONS)}
    assert _names(race.tried) == set(RADIAL)


# ------------------------------------------------------------------------------------ rounds and survivors


def test_rounds_use_nested_samples():
    race = Race(_problem(InMemoryRows(*_data(60))))
    few, many = (race.criterion(n).rows.gather() for n in (20, 50))
    for some, more in zip(few[:2], many[:2], strict=True):
        assert_array_equal(some, more[:20])
    assert len(np.unique(many[0], axis=0)) == 50


def test_rounds_grow_to_all_rows_and_then_end(monkeypatch):
    _small_rounds(monkeypatch, 15, 30, 60, 120)
    n_rows = [candidate.n_rows for candidate in _race(m=50).tried]
    assert n_rows == sorted(n_rows)
    assert list(dict.fromkeys(n_rows)) == [15, 30, 50]


def test_a_later_round_improves_the_candidates_of_the_round_before(race):
    """Test the second round, which uses the same rows, for candidates whose map and noise are not clipped."""
    ends = {}
    for one in race.tried:
        if one.origin is not Origin.DIAGONAL:
            ends.setdefault((one.origin, one.kernel), []).append(one)
    repeated = [(one, two) for one, two in (each for each in ends.values() if len(each) == 2) if 0.003 < one.nu < 1.0]
    assert repeated
    for one, two in repeated:
        assert two.value <= one.value + 1e-12


def test_the_number_of_survivors_of_each_kind_is_limited(monkeypatch):
    kept = kernel_race._kept(1, 3, 1, 2, 0)
    _small_rounds(monkeypatch, 25, 30, kept=kept)
    race = _race(m=60, n_directions=2)
    assert Counter(map(kernel_race._kind, race.survivors)) == Counter({k: n for k, n in kept.items() if n})
    for kind, n in kept.items():
        scores = [one.score for one in race.tried if kernel_race._kind(one) is kind and one.n_rows == 30]
        best = [one.score for one in race.survivors if kernel_race._kind(one) is kind]
        assert best == sorted(scores)[:n]


def test_more_candidates_remain_if_the_last_round_has_all_rows(race):
    limit = kernel_race._FINALISTS
    assert all(n <= limit[kind] for kind, n in Counter(map(kernel_race._kind, race.survivors)).items())
    scores = [one.score for one in race.survivors]
    assert scores == sorted(scores)
    assert race.best is race.survivors[0]
    assert {one.n_rows for one in race.survivors} == {40}


def _candidate(kind, score, n_rows=40, kernel="gaussian"):
    product = kind is Kind.PRODUCT
    origin, shape, B = {
        Kind.DIRECTIONS: (Origin.DIRECTIONS, Full(), np.eye(2, 3)),
        Kind.SQUARE: (Origin.SQUARE, Full(), np.eye(3)),
        Kind.DIAGONAL: (Origin.DIAGONAL, Diagonal(), np.ones(3)),
        Kind.PRODUCT: (Origin.DIAGONAL, Diagonal(), np.ones(3)),
        Kind.PLAIN: (Origin.PLAIN, Scaled(np.ones(3)), np.ones(3)),
    }[kind]
    kernel = KERNELS["anova" if product else kernel].with_gamma(1.0)
    return Candidate(origin, kernel, B, 0.1, 0.0, score, shape=shape, n_rows=n_rows)


@pytest.mark.parametrize("kind", Kind)
def test_kinds(kind):
    assert kernel_race._kind(_candidate(kind, 0.0)) is kind


def test_the_best_of_each_kind_are_sorted_by_their_scores():
    scores = {Kind.SQUARE: (3.0, 1.0, 2.0), Kind.DIAGONAL: (9.0, 0.0), Kind.PRODUCT: (5.0,), Kind.PLAIN: (-1.0,)}
    candidates = [_candidate(kind, score) for kind, each in scores.items() for score in each]
    found = kernel_race._best_of_each_kind(candidates, kernel_race._kept(1, 2, 1, 1, 0))
    assert [one.score for one in found] == [0.0, 1.0, 2.0, 5.0]


def test_a_round_has_only_the_candidates_for_which_there_is_time():
    """Test that a candidate is kept if its predicted time is within the remaining time.

    For two slow candidates, an iteration takes 0.1 s on 20 rows, so about 0.65 s on 40 rows. With at most ten
    iterations, a slow candidate takes about 6.5 s. It is dropped if there is no time for five iterations. In nine
    seconds, there is time for one slow candidate and for a fast candidate.
    """
    slow = [replace(_candidate(Kind.SQUARE, score, 20), seconds=1.0, n_iter=10) for score in (1.0, 2.0)]
    fast = replace(_candidate(Kind.DIAGONAL, 3.0, 20), seconds=0.1, n_iter=10)
    this = Round(40, 10, 100, kernel_race._FINALISTS)

    def scores(seconds, this=this):
        problem = _problem(InMemoryRows(*_data()), deadline=time.perf_counter() + seconds)
        return [one.score for one in Race(problem)._affordable([*slow, fast], 40, this)]

    assert scores(60.0) == [1.0, 2.0, 3.0]
    assert scores(9.0) == [1.0, 3.0]
    assert scores(2.0) == [3.0]
    assert scores(0.0) == []
    assert scores(60.0, this._replace(n_runs=2)) == [1.0, 2.0]


def test_the_best_square_map_comes_second():
    kinds = (Kind.PLAIN, Kind.DIAGONAL, Kind.SQUARE, Kind.SQUARE)
    candidates = [_candidate(kind, score) for score, kind in enumerate(kinds)]
    race, this = Race(_problem(InMemoryRows(*_data()))), Round(40, 10, 100, kernel_race._FINALISTS)
    assert [one.score for one in race._affordable(candidates, 40, this)] == [0, 2, 1, 3]
    assert [one.score for one in race._affordable(candidates[:2], 40, this)] == [0, 1]


def test_candidates_without_time_stay_as_they_are_and_are_evaluated(monkeypatch):
    """Test a second round with time to improve one candidate. All candidates are evaluated on the 40 rows."""
    _small_rounds(monkeypatch, 25, 40)
    affordable = Race._affordable
    monkeypatch.setattr(Race, "_affordable", lambda *arguments: affordable(*arguments)[:1])
    race = _race()
    assert {one.n_rows for one in race.survivors} == {40}
    before = [one for one in race.tried if one.n_rows == 25]
    same = [one for one in race.survivors if any(np.array_equal(one.B, other.B) for other in before)]
    assert len(same) >= len(race.survivors) / 2
    assert len({(one.kernel, kernel_race._kind(one)) for one in race.survivors}) == len(race.survivors)


def test_the_start_of_a_run_is_clipped():
    """Test that scales are at most a factor of 100 from those of the median heuristic, and nu is in [0.003, 1]."""
    race = Race(_problem(InMemoryRows(*_data())))
    typical = race._typical[GAUSSIAN]
    start = replace(_candidate(Kind.DIAGONAL, 0.0), B=typical * np.array([1e-5, 3.0, 1e5]))
    assert_allclose(race._warm(start).B, typical * np.array([0.01, 3.0, 100.0]), rtol=1e-12)
    assert [race._warm(replace(start, nu=nu)).nu for nu in (1e-9, 0.2, 50.0)] == [0.003, 0.2, 1.0]
    square = replace(_candidate(Kind.SQUARE, 0.0), B=np.diag([1e-9, 1.0, 1e9]))
    assert_array_equal(race._warm(square).B, square.B)


# ------------------------------------------------------------------------------------ failures, deadlines and threads


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
    """Test that a kernel that fails is ignored, even if it is the Gaussian kernel."""
    _small_rounds(monkeypatch, 40)
    monkeypatch.setitem(KERNELS, name, broken)
    race = _race()
    assert _names(race.tried) == {*RADIAL, *PRODUCT} - {name}
    assert all(math.isfinite(candidate.score) for candidate in race.tried)


@broken_kernels
@pytest.mark.parametrize("name", [pytest.param("matern32", marks=pytest.mark.thorough), "gaussian"])
def test_a_fit_ignores_a_kernel_that_fails(monkeypatch, broken, name):
    monkeypatch.setitem(KERNELS, name, broken)
    X, Y = _data(50)
    assert HyperKernelRidgeCV(kernel="auto", n_init=1, random_state=0).fit(X, Y[:, 0]).score(X, Y[:, 0]) > 0.5


@broken_kernels
def test_a_fit_and_a_race_raise_if_all_kernels_fail(monkeypatch, broken):
    for name in KERNELS:
        monkeypatch.setitem(KERNELS, name, broken)
    with pytest.raises(FitError):
        _race()
    X, Y = _data()
    with pytest.raises(FitError):
        HyperKernelRidgeCV(kernel="auto", random_state=0).fit(X, Y[:, 0])


@pytest.mark.parametrize("given", [False, True])
def test_after_the_deadline_the_first_given_map_is_returned(given):
    """Test that a race whose deadline has passed evaluates the first map, and leaves the map unchanged."""
    race = Race(_problem(InMemoryRows(*_data()), given=given, deadline=0.0))
    starts = _directions(2)
    race.run(starts)
    assert (len(race.tried), len(race.survivors)) == (1, 1)
    assert_array_equal(race.best.B, starts[0].B)
    assert math.isfinite(race.best.score)


@pytest.mark.parametrize("n_components", ["auto", 2])
def test_a_fit_whose_time_is_over_before_the_race_still_gives_a_model(n_components):
    X, Y = _data(80)
    model = HyperKernelRidgeCV(n_components, kernel="auto", time_limit=1e-6, random_state=0).fit(X, Y[:, 0])
    assert model.score(X, Y[:, 0]) > 0.0
    assert n_components in ("auto", model.n_components_)


def test_threads_do_not_change_the_result(race):
    two = _race(n_threads=2)
    assert [(c.origin, c.kernel, c.value, c.score, c.nu) for c in race.tried] == [
        (c.origin, c.kernel, c.value, c.score, c.nu) for c in two.tried
    ]
