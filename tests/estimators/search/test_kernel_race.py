"""Tests of the race: a search over kernels and shapes of the map in rounds, each of which drops the worst candidates.

The tests cover values, scores, rounds, survivors (the candidates that a round keeps), failures and deadlines.
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
from hkrr.estimators.classification.class_link import LOG_LOSS
from hkrr.estimators.search import kernel_race
from hkrr.estimators.search.candidates import Candidate, Origin
from hkrr.estimators.search.kernel_race import LINEAR, PRODUCT, RADIAL, Race
from hkrr.estimators.search.search_problem import SearchProblem
from hkrr.kernels import KERNELS, Radial, kernel_name
from hkrr.rows import InMemoryRows
from support import oracles
from support.every_criterion import ORACLES
from support.random_problems import kernel_cases

# Oracle of each kernel with gamma = 1, because the map of a candidate contains the scale.
VALUES = {case.kernel: case.value for case in kernel_cases(1.0)}
GAUSSIAN = KERNELS["gaussian"].with_gamma(1.0)
Kind, Batches = kernel_race._Kind, kernel_race._Batches


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


def _small_rounds(monkeypatch, first=500, all_rows=1_000, rescale=2_000, batches=(), kept=None):
    """Replace the numbers of rows of the rounds, and limit their runs to 14 iterations.

    The first round uses at most `first` rows. If there are more rows, but at most `all_rows`, a second round uses all
    rows. If there are more than `all_rows` rows, the rounds in `batches` learn from random batches instead. After each
    of them, the candidates are compared on at most `rescale` rows. `kept` contains the number of survivors of each
    kind.
    """
    constants = {"_FIRST_ROWS": first, "_ALL_ROWS": all_rows, "_RESCALE_ROWS": rescale, "_BATCHES": batches}
    constants |= {"_FIRST_ITERATIONS": 14, "_ALL_ITERATIONS": 14, "_KEPT": kept or kernel_race._KEPT}
    for name, value in constants.items():
        monkeypatch.setattr(kernel_race, name, value)


def _small_batches(monkeypatch, *steps, first=20, rescale=30, kept=None, n_runs=100):
    """Replace the rounds by a first round, and one round with batches for each number of steps in `steps`.

    A batch has 15 rows, or 12 rows for diagonal maps.
    """
    batches = tuple(Batches(15, 12, n_steps, n_runs) for n_steps in steps)
    _small_rounds(monkeypatch, first, first, rescale, batches, kept)


def _names(candidates):
    return {kernel_name(candidate.kernel) for candidate in candidates}


@pytest.fixture(scope="module")
def race():
    """Return a race on 40 rows: a round on 25 rows, and a round on all rows."""
    with pytest.MonkeyPatch.context() as patch:
        _small_rounds(patch, 25)
        return _race()


@pytest.fixture(scope="module")
def race_with_batches():
    """Return a race on 40 rows: a round on 20 rows, and two rounds with batches, each with a comparison on 30 rows."""
    with pytest.MonkeyPatch.context() as patch:
        _small_batches(patch, 8, 4)
        return _race()


# ------------------------------------------------------------------------------------ values, scores and shapes


@pytest.mark.parametrize(
    ("make", "T", "weighted", "batches"),
    [
        (Evidence, 1, False, False),
        (Evidence, 1, False, True),
        *(
            pytest.param(*each, marks=pytest.mark.thorough)
            for each in [
                (LeaveOneOut, 2, True, False),
                (LeaveOneOut, 1, False, False),
                (Evidence, 2, True, False),
                (LeaveOneOut, 2, True, True),
                (Evidence, 2, True, True),
            ]
        ),
    ],
)
def test_values_and_scores_match_the_oracle(monkeypatch, make, T, weighted, batches):
    """Test that the values of all candidates agree with the oracle, and that the scores agree with their formula.

    The values are computed on 25 of the 40 rows in the first round, and on all 40 rows in the second round. After a
    round with batches, the scale and the noise are refitted on 30 rows, and the value is computed on these rows. The
    scores are extrapolated to 40 rows. A score from 25 rows includes the optimism of the map (see
    `hkrr.estimators.search.candidates`). A score from 30 rows does not, because the map was learned from all rows.
    Candidates with a tiny nu are left out, because the oracle is inaccurate for a tiny nu.
    """
    if batches:
        _small_batches(monkeypatch, 6, first=25)
    else:
        _small_rounds(monkeypatch, 25)
    race = _race(make, T=T, weighted=weighted)
    assert {candidate.n_rows for candidate in race.tried} == {25, 30 if batches else 40}
    noisy = [candidate for candidate in race.tried if candidate.nu > 1e-4]
    assert len(noisy) >= 15
    W = race.problem.rows.total_weight
    for candidate in noisy:
        X, Y, w = race.criterion(candidate.n_rows).rows.gather()
        w = np.ones(len(X)) if w is None else w
        d, D = oracles.as_matrix(candidate.B).shape
        n_used = np.count_nonzero(
            np.any(oracles.as_matrix(candidate.B), axis=0)
        )  # a sparse map does not use all columns
        dof = {"identity": 1, "diagonal": n_used, "full": d * D - d * (d - 1) / 2}[candidate.shape.name]
        value = ORACLES[make](
            VALUES[candidate.kernel], X, Y, w, None, candidate.nu / sum(w), oracles.as_matrix(candidate.B)
        )
        nats = value if make is Evidence else math.log(value) / 2.0
        learned_on = W if candidate.n_rows == 30 else sum(w)
        score = T * W * nats + dof / 2.0 * (math.log(W) + W / learned_on - 1.0) + math.log(math.comb(D, n_used))
        assert candidate.value == pytest.approx(value, rel=1e-8, abs=1e-8)
        assert candidate.score == pytest.approx(score, rel=1e-8, abs=1e-6)


def test_scores_are_extrapolated_to_the_rows_that_the_sample_represents(monkeypatch):
    """Test that the scores refer to 1,000 rows if the 40 rows of the search are a sample of 1,000 rows.

    Each parameter adds a penalty of log(1000) / 2 nats, and an optimism of (1000 / 40 - 1) / 2 = 24 / 2 nats.
    """
    _small_rounds(monkeypatch)
    for candidate in _race(represented_weight=1_000.0).tried:
        penalty = candidate.degrees_of_freedom / 2.0 * (math.log(1_000.0) + 24.0)
        assert candidate.score == pytest.approx(1_000.0 * candidate.value + penalty, rel=1e-12)


def test_maps_have_the_shape_that_is_reported(race, race_with_batches):
    for candidate in [*race.tried, *race_with_batches.tried]:
        B = candidate.B
        if isinstance(candidate.shape, Full):
            assert candidate.kernel.rotation_invariant
            assert B.shape == ((3, 3) if candidate.origin is Origin.SQUARE else (2, 3))
        else:
            assert B.shape == (3,)
            assert np.all(B > 0.0)
        if isinstance(candidate.shape, Scaled):
            assert_allclose(B, B[0], rtol=1e-14)


def test_all_kernels_and_shapes_are_tried(race, race_with_batches):
    """Test that plain and diagonal maps are tried with all kernels, and few directions with all radial kernels.

    Square maps are only tried with radial kernels. With batches, only the best three square maps are tried. Sparse maps
    are only tried with four kernels.
    """
    expected = {(Origin.DIRECTIONS, name) for name in RADIAL}
    expected |= {(origin, name) for origin in (Origin.PLAIN, Origin.DIAGONAL) for name in (*RADIAL, *PRODUCT, LINEAR)}
    for one, most in ((race, len(RADIAL)), (race_with_batches, 3)):
        tried = {(candidate.origin, kernel_name(candidate.kernel)) for candidate in one.tried}
        sparse = {name for origin, name in tried if origin is Origin.SPARSE}
        assert sparse <= {LINEAR, "gaussian", "matern32", "product_laplace"}
        tried = {(origin, name) for origin, name in tried if origin is not Origin.SPARSE}
        square = {(origin, name) for origin, name in tried if origin is Origin.SQUARE}
        assert tried - square == expected
        assert 0 < len(square) <= most


def test_a_single_round_tries_square_maps_of_all_radial_kernels(monkeypatch):
    _small_rounds(monkeypatch)
    race = _race()
    assert {one.n_rows for one in race.tried} == {40}
    assert _names(one for one in race.tried if one.origin is Origin.SQUARE) == set(RADIAL)


@pytest.mark.parametrize("D", [50, 51])
def test_with_more_than_fifty_columns_only_the_cheapest_product_kernel_is_tried(monkeypatch, D):
    _small_rounds(monkeypatch)
    race = Race(_problem(InMemoryRows(*_data(30, D))))
    race.run([])
    assert _names(race.tried) == {*RADIAL, LINEAR, *({"product_laplace"} if D == 51 else PRODUCT)}


@pytest.mark.parametrize(("n_rows", "D", "expected"), [(100, 1, False), (100, 9, True), (90, 9, False), (5, 1, False)])
def test_a_square_map_needs_twice_as_many_rows_as_it_has_parameters(n_rows, D, expected):
    """Test that a square map of nine columns, which has 45 parameters, needs more than 90 rows.

    Square maps are only affordable for radial kernels, and not for a single column.
    """
    assert square_map_is_affordable(n_rows, D, KERNELS["gaussian"]) is expected
    assert not square_map_is_affordable(10**6, D, KERNELS["anova"])


@pytest.mark.parametrize(
    ("m", "first", "all_rows", "expected"),
    [(12, 500, 1_000, []), (13, 500, 1_000, [13]), (40, 12, 1_000, [40]), (12, 12, 12, []), (13, 12, 12, [13])],
)
def test_square_maps_are_tried_if_there_are_enough_rows(monkeypatch, m, first, all_rows, expected):
    """Test that square maps of 3 columns, which have 6 parameters, are tried if there are at least 13 rows.

    The race has one round, two rounds, or a round with batches. With batches, the number of rows of the whole table
    counts, not the number of rows of the first round. The expected result is the number of rows of the square maps.
    """
    _small_rounds(monkeypatch, first, all_rows, batches=(Batches(10, 10, 3, 100),))
    square = {candidate.n_rows for candidate in _race(m=m).tried if candidate.origin is Origin.SQUARE}
    assert sorted(square) == expected


def _starts_and_ends(monkeypatch):
    """Return a list to which each later call of ``SearchProblem.improve_each`` adds the criterion, starts and ends."""
    calls, original = [], SearchProblem.improve_each

    def improve_each(self, on, starts, max_iter):
        ends = original(self, on, starts, max_iter)
        calls.append((on, list(starts), ends))
        return ends

    monkeypatch.setattr(SearchProblem, "improve_each", improve_each)
    return calls


@pytest.mark.parametrize("batches", [False, True])
def test_square_maps_start_from_the_diagonal_map_of_their_kernel(monkeypatch, batches):
    if batches:
        _small_batches(monkeypatch, 0)  # without steps, the batches do not change the maps
    else:
        _small_rounds(monkeypatch)
    calls = _starts_and_ends(monkeypatch)
    tried = _race().tried
    starts = [start for _, each, _ in calls for start in each if start.origin is Origin.SQUARE]
    # After a round with batches, a refit multiplies each map by a scale. Only starts of the first refit are checked:
    # the starts of a later refit would contain this scale.
    starts = starts[:3] if batches else starts
    assert len(starts) == (3 if batches else len(RADIAL))
    for start in starts:
        maps = [one.B for one in tried if one.kernel == start.kernel and isinstance(one.shape, Diagonal)]
        assert any(np.array_equal(start.B, np.diag(B)) for B in maps)


@pytest.mark.parametrize("batches", [False, True])
def test_constant_columns_do_not_count(monkeypatch, batches):
    """Test that 10 constant columns add no parameters, and that square maps ignore them."""
    if batches:
        _small_batches(monkeypatch, 4)
    else:
        _small_rounds(monkeypatch)
    X, Y = _data()
    # With batches, the constant columns must be zero: for other constants, rounding errors of the gradient would change
    # their entries of the map.
    rows = InMemoryRows(np.hstack([X, np.full((40, 10), 0.0 if batches else 3.0)]), Y).count_free_columns()
    race = Race(_problem(rows))
    race.run([])
    dof = {Origin.PLAIN: 1, Origin.DIAGONAL: 3, Origin.SQUARE: 6}
    found = {(one.origin, one.degrees_of_freedom) for one in race.tried}
    assert {(origin, n) for origin, n in found if origin is not Origin.SPARSE} == set(dof.items())
    for candidate in race.tried:
        if candidate.origin is Origin.SPARSE:
            assert_array_equal(candidate.B[3:], 0.0)
            assert candidate.degrees_of_freedom == np.count_nonzero(candidate.B) <= 3
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


@pytest.mark.parametrize(
    ("m", "expected"), [(15, [15]), (16, [15, 16]), (30, [15, 30]), (31, [15, 31]), (45, [15, 40])]
)
def test_the_rounds_depend_on_the_number_of_rows(monkeypatch, m, expected):
    """Test the numbers of rows on which the candidates of a table of m rows are compared in each round.

    The first round uses 15 rows. If m is at most 30, the second round uses all rows. If m is larger, the second round
    learns from batches, and then compares the candidates on at most 40 rows.
    """
    _small_rounds(monkeypatch, 15, 30, 40, (Batches(10, 10, 2, 100),))
    n_rows = [candidate.n_rows for candidate in _race(m=m).tried]
    assert n_rows == sorted(n_rows)
    assert list(dict.fromkeys(n_rows)) == expected


def _batch_runs(monkeypatch):
    """Return a list of the runs on batches that follow: the kind, the shape, and the numbers of rows and of steps."""
    runs, original = [], kernel_race.learn_on_batches

    def learn(problem, start, n_rows, n_steps, seed):
        runs.append((kernel_race._kind(start), type(start.shape), n_rows, n_steps))
        return original(problem, start, n_rows, n_steps, seed)

    monkeypatch.setattr(kernel_race, "learn_on_batches", learn)
    return runs


def test_batches_are_smaller_for_diagonal_maps_and_not_needed_for_plain_kernel_ridge(monkeypatch):
    _small_batches(monkeypatch, 3)
    runs = _batch_runs(monkeypatch)
    _race(m=45)
    assert {shape for _, shape, _, _ in runs} == {Full, Diagonal}
    assert {(shape, n_rows) for _, shape, n_rows, _ in runs} == {(Full, 15), (Diagonal, 12)}
    assert {n_steps for *_, n_steps in runs} == {3}


@pytest.mark.parametrize(("m", "expected"), [(39, [3]), (40, [3, 2])])
def test_a_later_round_with_batches_needs_twice_as_many_rows_as_a_batch(monkeypatch, m, expected):
    """Test that the second round with batches, whose batches have 20 rows, is left out if there are 39 rows.

    The expected result is the numbers of steps of the runs: 3 in the first round with batches and 2 in the second. The
    second round improves at most two candidates.
    """
    _small_rounds(monkeypatch, 15, 15, 30, (Batches(40, 10, 3, 100), Batches(20, 10, 2, 2)))
    runs = _batch_runs(monkeypatch)
    race = _race(m=m)
    assert list(dict.fromkeys(n_steps for *_, n_steps in runs)) == expected
    assert sum(n_steps == 2 for *_, n_steps in runs) <= 2
    assert {one.n_rows for one in race.survivors} == {30}


def test_the_second_round_with_batches_only_replaces_the_candidates_it_improves(race_with_batches, monkeypatch):
    """Test that candidates which a second round with batches does not improve keep their kernels, scores and noise.

    In this test, the second round improves no candidate.
    """
    _small_batches(monkeypatch, 8)
    once = _race()
    _small_rounds(monkeypatch, 20, 20, 30, (Batches(15, 12, 8, 100), Batches(15, 12, 4, 0)))
    again = _race()
    assert [(one.kernel, one.score, one.nu) for one in once.survivors] == [
        (one.kernel, one.score, one.nu) for one in again.survivors
    ]
    assert len(race_with_batches.tried) > len(once.tried)


def test_no_run_increases_the_criterion(monkeypatch):
    """Test that in all runs of two races, the value at the end is at most the value at the start, on the same rows."""
    calls = _starts_and_ends(monkeypatch)
    _small_rounds(monkeypatch, 25)
    _race()
    n_calls = len(calls)
    _small_batches(monkeypatch, 6, 4)
    _race()
    assert n_calls > 3
    assert len(calls) > n_calls + 3
    for criterion, starts, ends in calls:
        for start, end in zip(starts, ends, strict=True):
            before = criterion.at(1.0, start.kernel).reduced(start.B, start.nu / criterion.rows.total_weight)
            assert end.value <= before.value + 1e-12


def test_batches_use_rows_that_are_not_in_the_first_round(monkeypatch):
    """Test that a race with batches of 15 rows uses all 45 rows of the table, although its first round has 20 rows.

    A run has nine steps. With batches of 15 rows, these are three passes through the rows.
    """
    seen, subset = [], InMemoryRows.subset
    _small_batches(monkeypatch, 9)

    def recorded(self, indices):
        seen.append(len(indices))
        used.update(np.asarray(indices).tolist())
        return subset(self, indices)

    used = set()
    monkeypatch.setattr(InMemoryRows, "subset", recorded)
    _race(m=45)
    assert {15, 12, 20, 30} <= set(seen)
    assert used == set(range(45))


@pytest.mark.parametrize("batches", [False, True])
def test_the_number_of_survivors_of_each_kind_is_limited(monkeypatch, batches):
    monkeypatch.setattr(kernel_race, "_FAR_WORSE", math.inf)
    kept, last = kernel_race._kept(1, 1, 0, 3, 1, 2, 0), 30 if batches else 60
    if batches:
        _small_batches(monkeypatch, 4, kept=kept)
    else:
        _small_rounds(monkeypatch, 25, kept=kept)
    race = _race(m=60, n_directions=2)
    left = Counter(map(kernel_race._kind, race.survivors))
    # On all rows, square maps are only tried for the kernels of the diagonal maps of the round before.
    assert left == Counter({k: n for k, n in kept.items() if n} | ({} if batches else {Kind.SQUARE: left[Kind.SQUARE]}))
    assert left[Kind.SQUARE] >= 1
    for kind, n in kept.items():
        scores = [one.score for one in race.tried if kernel_race._kind(one) is kind and one.n_rows == last]
        best = [one.score for one in race.survivors if kernel_race._kind(one) is kind]
        assert best == sorted(scores)[:n]


def test_very_large_scales_are_reduced():
    """Test that the scales of a diagonal map are at most 100 times the median scale, and that full maps are kept."""
    race = Race(_problem(InMemoryRows(*_data(40))))
    typical = race._typical[GAUSSIAN, False]
    wide = Candidate(Origin.DIAGONAL, GAUSSIAN, typical * np.array([1e5, 1.0, 0.0]), 0.1, shape=Diagonal())
    assert_allclose(race._within_range(wide).B, typical * np.array([100.0, 1.0, 0.0]))
    for kept in (replace(wide, B=typical * np.array([99.0, 1.0, 0.0])), *_directions()):
        assert race._within_range(kept) is kept


def test_candidates_with_far_worse_scores_are_dropped(monkeypatch):
    """Test that with batches, only square maps may be far above the best score, unless the targets are of classes.

    The targets hardly depend on the third column, so diagonal maps fit better than multiples of the identity.
    """
    most, problem = kernel_race._FAR_WORSE * 60, _problem(InMemoryRows(*_data(60)))
    _small_batches(monkeypatch, 4)

    def far_worse(problem):
        race = Race(problem)
        race.run(_directions(2))
        kinds = {kernel_race._kind(one) for one in race.survivors if one.score > race.best.score + most}
        return kinds - {Kind.SQUARE}

    assert not far_worse(problem)
    assert far_worse(replace(problem, stacking=LOG_LOSS))


@pytest.mark.parametrize("name", ["race", "race_with_batches"])
def test_survivors_are_sorted_and_comparable(name, request):
    race = request.getfixturevalue(name)
    limit = kernel_race._KEPT
    assert limit == kernel_race._kept(1, 1, 2, 3, 2, 2, 1)
    assert all(n <= limit[kind] for kind, n in Counter(map(kernel_race._kind, race.survivors)).items())
    scores = [one.score for one in race.survivors]
    assert scores == sorted(scores)
    assert race.best is race.survivors[0]
    assert {one.n_rows for one in race.survivors} == {40 if name == "race" else 30}


def _candidate(kind, score, n_rows=40, kernel="gaussian"):
    kernel = {Kind.PRODUCT: "anova", Kind.LINEAR: LINEAR}.get(kind, kernel)
    sparse = np.array([0.0, 1.0, 0.0])
    origin, shape, B = {
        Kind.DIRECTIONS: (Origin.DIRECTIONS, Full(), np.eye(2, 3)),
        Kind.LINEAR: (Origin.DIAGONAL, Diagonal(), np.ones(3)),
        Kind.SPARSE: (Origin.SPARSE, Diagonal(sparse), sparse),
        Kind.SQUARE: (Origin.SQUARE, Full(), np.eye(3)),
        Kind.DIAGONAL: (Origin.DIAGONAL, Diagonal(), np.ones(3)),
        Kind.PRODUCT: (Origin.DIAGONAL, Diagonal(), np.ones(3)),
        Kind.PLAIN: (Origin.PLAIN, Scaled(np.ones(3)), np.ones(3)),
    }[kind]
    return Candidate(origin, KERNELS[kernel].with_gamma(1.0), B, 0.1, 0.0, score, shape=shape, n_rows=n_rows)


@pytest.mark.parametrize("kind", Kind)
def test_kinds(kind):
    assert kernel_race._kind(_candidate(kind, 0.0)) is kind


def test_the_best_of_each_kind_are_sorted_by_their_scores(monkeypatch):
    """Test the order of the survivors, and that they include candidates with and without transformed columns."""
    monkeypatch.setattr(kernel_race, "_KEPT", kernel_race._kept(1, 0, 0, 2, 1, 1, 0))
    scores = {Kind.SQUARE: (3.0, 1.0, 2.0), Kind.DIAGONAL: (9.0, 0.0), Kind.PRODUCT: (5.0,), Kind.PLAIN: (-1.0,)}
    candidates = [_candidate(kind, score) for kind, each in scores.items() for score in each]
    candidates += [
        replace(_candidate(kind, score), ranked=True) for kind, score in ((Kind.SQUARE, 1.5), (Kind.DIAGONAL, 7.0))
    ]
    found = [(one.score, one.ranked) for one in kernel_race._best_of_each_kind(candidates)]
    assert found == [(0.0, False), (1.0, False), (1.5, True), (5.0, False)]
    candidates.append(replace(_candidate(Kind.SQUARE, 0.5), ranked=False))  # the best two are of one version
    found = [(one.score, one.ranked) for one in kernel_race._best_of_each_kind(candidates)]
    assert found == [(0.0, False), (0.5, False), (1.5, True), (5.0, False)]


@pytest.mark.parametrize("seconds", [60.0, 11.0, 8.0, 4.0, 0.0])
def test_a_round_has_only_the_candidates_for_which_there_is_time(monkeypatch, seconds):
    """Test that a candidate takes part if there is time for 40% of its run and for the refit of its scale.

    The predicted seconds of an iteration grow with the 2.3rd power of the number of rows. A run has ten iterations on
    40 rows. A refit counts as six iterations on 20 rows.
    """
    slow = [replace(_candidate(Kind.SQUARE, score, 20), seconds=1.0, n_iter=10) for score in (1.0, 2.0)]
    fast = replace(_candidate(Kind.DIAGONAL, 3.0, 20), seconds=0.1, n_iter=10)
    _small_rounds(monkeypatch, rescale=20, all_rows=19)
    race = Race(_problem(InMemoryRows(*_data()), deadline=time.perf_counter() + seconds))
    left, expected = seconds, []
    for one, per_iteration in ((slow[0], 0.1), (slow[1], 0.1), (fast, 0.01)):
        run, refit = 10 * 2.0**2.3 * per_iteration, 6 * per_iteration
        if 0.4 * run + refit <= left:
            expected.append(one.score)
            left -= run + refit
    assert [one.score for one in race._in_time([*slow, fast], lambda _: 40, 10)] == expected
    # The seconds are not close to a threshold: they were chosen so that all of these cases occur.
    assert expected == {60.0: [1.0, 2.0, 3.0], 11.0: [1.0, 2.0], 8.0: [1.0, 3.0], 4.0: [1.0], 0.0: []}[seconds]


def test_threads_share_the_predicted_time(monkeypatch):
    """Test that there is time for twice as many candidates with two threads, or with 20 instead of 40 rows."""
    _small_rounds(monkeypatch, rescale=20, all_rows=19)
    slow = [replace(_candidate(Kind.SQUARE, score, 20), seconds=1.0, n_iter=10) for score in range(4)]

    def n_starts(n_threads, n_rows):
        problem = _problem(InMemoryRows(*_data()), deadline=time.perf_counter() + 12.0, n_threads=n_threads)
        return len(Race(problem)._in_time(slow, lambda one: n_rows, 10))

    assert [n_starts(1, 40), n_starts(2, 40), n_starts(1, 20)] == [2, 4, 4]


def test_plain_kernel_ridge_needs_time_for_the_refit_only(monkeypatch):
    """Test that plain kernel ridge regression takes part if there is time for its refit, which takes 6 of 8 seconds.

    A square map with the same time per iteration does not take part, because its run on 40 rows would take 50 seconds.
    """
    _small_rounds(monkeypatch, rescale=20, all_rows=19)
    plain = replace(_candidate(Kind.PLAIN, 0.0, 20), seconds=10.0, n_iter=10)
    square = replace(_candidate(Kind.SQUARE, 1.0, 20), seconds=10.0, n_iter=10)
    race = Race(_problem(InMemoryRows(*_data()), deadline=time.perf_counter() + 8.0))
    assert [one.score for one in race._in_time([plain, square], lambda _: 40, 10)] == [0.0]
    assert race._in_time([square], lambda _: 40, 10) == []


def test_the_best_square_map_comes_second():
    kinds = (Kind.PLAIN, Kind.DIAGONAL, Kind.SQUARE, Kind.SQUARE)
    candidates = [_candidate(kind, score) for score, kind in enumerate(kinds)]
    race = Race(_problem(InMemoryRows(*_data())))
    assert [one.score for one in race._in_time(candidates, lambda _: 40, 10)] == [0, 2, 1, 3]
    assert [one.score for one in race._in_time(candidates[:2], lambda _: 40, 10)] == [0, 1]


def _time_for_one(monkeypatch):
    """Let only one candidate take part in the later rounds."""
    in_time = Race._in_time
    monkeypatch.setattr(Race, "_in_time", lambda *arguments: in_time(*arguments)[:1])


def test_candidates_without_time_stay_as_they_are_and_are_evaluated(monkeypatch):
    """Test that all candidates are evaluated on the 40 rows of the second round if there is time to improve only one.

    The other candidates keep their maps.
    """
    _small_rounds(monkeypatch, 25)
    _time_for_one(monkeypatch)
    race = _race()
    assert {one.n_rows for one in race.survivors} == {40}
    before = [one for one in race.tried if one.n_rows == 25]
    same = [one for one in race.survivors if any(np.array_equal(one.B, other.B) for other in before)]
    assert len(same) >= len(race.survivors) / 2
    assert len({(one.kernel, kernel_race._kind(one)) for one in race.survivors}) == len(race.survivors)


def test_candidates_without_time_for_batches_are_refitted(monkeypatch):
    """Test that candidates which a round with batches has no time to improve are refitted.

    There is time to improve one candidate. The maps of the other candidates are multiplied by a scale.
    """
    _small_batches(monkeypatch, 6)
    _time_for_one(monkeypatch)
    runs = _batch_runs(monkeypatch)
    race = _race()
    assert len(runs) <= 1
    assert {one.n_rows for one in race.survivors} == {30}
    before = [one for one in race.tried if one.n_rows == 20]
    unit = [one.B / np.linalg.norm(one.B) for one in before]
    same = [one for one in race.survivors if any(_close(one.B / np.linalg.norm(one.B), other) for other in unit)]
    assert len(same) >= len(race.survivors) - 1


def _close(one, two):
    return one.shape == two.shape and np.allclose(one, two, rtol=1e-10, atol=1e-12)


def test_without_time_after_the_batches_the_survivors_are_those_of_the_round_before(monkeypatch):
    _small_batches(monkeypatch, 6)
    monkeypatch.setattr(Race, "_rescale", lambda *_: [])
    race = _race()
    assert {one.n_rows for one in race.survivors} == {20}
    assert all(math.isfinite(one.score) for one in race.survivors)


def test_the_start_of_a_run_is_clipped():
    """Test that the start of a diagonal map has moderate scales, and that nu is in [0.003, 1].

    Each scale is between 1/100 and 100 times the scale of the median heuristic. Square maps are not changed.
    """
    race = Race(_problem(InMemoryRows(*_data())))
    typical = race._typical[GAUSSIAN, False]
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
    _small_rounds(monkeypatch)
    monkeypatch.setitem(KERNELS, name, broken)
    race = _race()
    assert _names(race.tried) == {*RADIAL, *PRODUCT, LINEAR} - {name}
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


@pytest.mark.parametrize("batches", [False, True])
def test_threads_do_not_change_the_result(monkeypatch, batches):
    """Test that the candidates and survivors are the same with two threads, apart from the order of `tried`."""
    if batches:
        _small_batches(monkeypatch, 8, 4)
    else:
        _small_rounds(monkeypatch, 25)

    def numbers(candidates):
        return [(c.origin.name, kernel_name(c.kernel), c.value, c.score, c.nu) for c in candidates]

    one, two = (_race(n_threads=n_threads) for n_threads in (1, 2))
    assert sorted(numbers(one.tried)) == sorted(numbers(two.tried))
    assert numbers(one.survivors) == numbers(two.survivors)


def test_the_order_of_the_candidates_does_not_depend_on_measured_times(monkeypatch):
    """Test that `tried`, which becomes the attribute ``path_``, is the same for two fits with the same random state."""
    _small_batches(monkeypatch, 4)
    orders = []
    for seed in (0, 1):
        rng = np.random.default_rng(seed)
        monkeypatch.setattr(Candidate, "seconds_per_iteration", property(lambda _, rng=rng: rng.uniform(1e-6, 1e-3)))
        orders.append([(c.origin, c.kernel, c.score) for c in _race().tried])
    assert orders[0] == orders[1]


def test_a_fit_whose_batches_all_fail_gives_a_model(monkeypatch):
    """Test that the maps of the first round are used if all runs on batches end with an infinite score."""
    _small_batches(monkeypatch, 4)
    monkeypatch.setattr(
        kernel_race,
        "learn_on_batches",
        lambda problem, start, *_: replace(start, value=math.inf, score=math.inf),
    )
    race = _race()
    assert {one.n_rows for one in race.survivors} == {30}
    assert all(math.isfinite(one.score) for one in race.survivors)


@pytest.mark.parametrize("cost", [0.0, 1e9])
def test_product_kernels_take_part_only_if_there_is_time(cost, monkeypatch):
    """Test that slow product kernels are left out of a race with a deadline, if there are many rows."""
    monkeypatch.setattr(kernel_race, "_COST_OF_PRODUCTS", cost)
    monkeypatch.setattr(kernel_race, "_FIRST_ROWS", 20)
    deadline = time.perf_counter() + 60.0
    few = _race(m=40, deadline=deadline)
    assert {kernel_name(one.kernel) for one in few.tried} >= set(PRODUCT)
    monkeypatch.setattr(kernel_race, "_ALL_ROWS", 30)
    many = _race(m=40, deadline=deadline)
    assert set(PRODUCT).isdisjoint({kernel_name(one.kernel) for one in many.tried}) == (cost > 0.0)
    assert {kernel_name(one.kernel) for one in many.tried} >= {*RADIAL, LINEAR}
