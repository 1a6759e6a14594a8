"""Tests of the search over the number of directions: starts, survivors, ties, failures, threads and deadlines."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from hkrr import FitError
from hkrr.criteria import Evidence, LeaveOneOut
from hkrr.datasets import make_mim_sines
from hkrr.estimators.search import number_of_directions as search
from hkrr.estimators.search.candidates import LONG, SHORT, Candidate, Origin, Plateau, improve
from hkrr.estimators.search.number_of_directions import grow, moment_starts, random_starts, search_dimensions, shrink
from hkrr.kernels import KERNELS, Gaussian, ProductLaplace, Radial
from hkrr.rows import InMemoryRows

some_criteria = pytest.mark.parametrize(
    ("make", "kernel"), [(Evidence, "gaussian"), (Evidence, "product_laplace"), (LeaveOneOut, "gaussian")]
)
seeds = pytest.mark.parametrize("seed", [0, 1, 2])
MOMENTS = ("moments", "moments, dropped")


def _criterion(m=120, D=6, d=2, seed=0, make=Evidence, kernel="gaussian"):
    data = make_mim_sines(m, D, d, noise=0.1, random_state=seed)
    rows = InMemoryRows(data.X, data.y - data.y.mean())
    return make(rows, rows.take(np.arange(30)), KERNELS[kernel].with_gamma(1.0), 1e-3, True)


def _solution(criterion, d, seed):
    """Return the better of the two candidates at which two long runs from random starts end."""
    starts = random_starts(criterion.rows, criterion.kernel, d, 2, np.random.RandomState(seed))
    return min((improve(criterion, start, LONG) for start in starts), key=lambda end: end.value)


def _at(criterion, candidate, B=None):
    B = candidate.B if B is None else B
    return criterion.reduced(B, candidate.nu / criterion.rows.total_weight).value


# ----------------------------------------------------------------------------------------------- starts


@some_criteria
@seeds
def test_a_grown_start_has_one_more_orthogonal_direction(make, kernel, seed):
    """Test that the new direction is orthogonal to the others and has the best of three lengths.

    The noise does not change, and the value is the criterion of the new map.
    """
    criterion = _criterion(seed=seed, make=make, kernel=kernel)
    one = improve(criterion, random_starts(criterion.rows, criterion.kernel, 2, 1, np.random.RandomState(0))[0], 20)
    bigger = grow(criterion, one, np.random.RandomState(seed))[0]
    assert (bigger.n_components, bigger.label, bigger.nu) == (3, "grown", one.nu)
    assert_array_equal(bigger.B[:2], one.B)
    new, norm = bigger.B[2], np.linalg.norm(one.B, 2)
    assert_allclose(one.B @ new, 0.0, atol=1e-12 * norm * np.linalg.norm(new))
    values = [
        _at(criterion, bigger, np.vstack([one.B, step * norm / np.linalg.norm(new) * new])) for step in (0.1, 0.3, 0.6)
    ]
    assert bigger.value == pytest.approx(min(values), rel=1e-12)
    assert bigger.score == math.inf


# Functions of a direction u that the map contains and of a direction v that is missing.
MISSING = {"linear": lambda u, v: u + v, "even": lambda u, v: u + v**2, "product": lambda u, v: u * v}


@seeds
@pytest.mark.parametrize("how", MISSING)
def test_growing_finds_the_missing_direction_from_the_residuals(how, seed):
    """Test that growing finds a missing direction that enters as a linear term, as an even term or as a factor.

    Each of these three kinds of terms appears in a different moment of the residuals.
    """
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(400, 6))
    y = MISSING[how](X[:, 0], X[:, 1]) + 0.1 * rng.normal(size=400)
    rows = InMemoryRows(X, y - y.mean())
    criterion = Evidence(rows, rows.take(np.arange(30)), Gaussian(gamma=1.0), 1e-3, True)
    known = Candidate(Origin.RANDOM, criterion.kernel, 0.3 * np.eye(1, 6), 1.0)
    new = grow(criterion, known, np.random.RandomState(seed))[0].B[1]
    assert abs(new[1]) > 0.9 * np.linalg.norm(new)


@some_criteria
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.thorough)])
def test_an_improved_start_is_never_above_its_start(make, kernel, seed):
    """Test that short and long runs from grown, shrunk and random starts never increase the criterion."""
    criterion, rng = _criterion(seed=seed, make=make, kernel=kernel), np.random.RandomState(seed)
    first = random_starts(criterion.rows, criterion.kernel, 1, 1, rng)[0]
    one = improve(criterion, first, LONG)
    bigger = grow(criterion, one, rng)[0]
    two = improve(criterion, bigger, LONG)
    smaller = shrink(two)
    for start, end in ((first, one), (bigger, two), (smaller, improve(criterion, smaller, LONG))):
        short = improve(criterion, start, SHORT)
        assert end.value <= short.value <= _at(criterion, start)


@seeds
@pytest.mark.parametrize("d", [1, 2])
def test_a_grown_start_ends_no_higher_than_the_solution_it_came_from(seed, d):
    """Test that a run from a grown start does not end with a higher criterion than the map that was grown.

    A map with d directions is a special case of a map with d + 1 directions. The data have two directions.
    """
    criterion = _criterion(seed=seed)
    solution = _solution(criterion, d, seed)
    ends = [improve(criterion, start, LONG) for start in grow(criterion, solution, np.random.RandomState(seed))]
    assert {end.n_components for end in ends} == {d + 1}
    assert min(end.value for end in ends) <= solution.value


def test_shrinking_leaves_out_the_smallest_direction():
    """Test that shrinking removes the smallest singular direction, or the shortest row of the map.

    The singular directions are used for rotation-invariant kernels, and the rows for all other kernels.
    """
    rng = np.random.default_rng(0)
    U, V = np.linalg.qr(rng.normal(size=(3, 3)))[0], np.linalg.qr(rng.normal(size=(6, 6)))[0][:3]
    B = (U * [3.0, 1.0, 0.2]) @ V
    candidate = Candidate(Origin.RANDOM, Gaussian(gamma=1.0), B, 0.1, -1.0, 5.0, 9.0)
    free, fixed = shrink(candidate), shrink(replace(candidate, kernel=ProductLaplace(gamma=1.0)))
    assert_allclose(free.B.T @ free.B, (V[:2].T * [9.0, 1.0]) @ V[:2], atol=1e-12)
    assert_array_equal(fixed.B, np.delete(B, np.argmin(np.linalg.norm(B, axis=1)), axis=0))
    for smaller in (free, fixed):
        assert (smaller.label, smaller.nu) == ("shrunk", 0.1)
        assert (smaller.value, smaller.score, smaller.seconds) == (math.inf, math.inf, 0.0)


@seeds
def test_removing_a_zero_direction_changes_nothing(seed):
    criterion = _criterion(seed=seed)
    B = random_starts(criterion.rows, criterion.kernel, 2, 1, np.random.RandomState(seed))[0].B
    U = np.linalg.qr(np.random.default_rng(seed).normal(size=(3, 3)))[0]
    idle = Candidate(Origin.RANDOM, criterion.kernel, U @ np.vstack([B, np.zeros(6)]), 5.0)
    assert _at(criterion, shrink(idle)) == pytest.approx(_at(criterion, idle), rel=1e-9)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("D", [8, 310])  # with 310 columns the moment matrix is not formed
def test_a_start_from_moments_sees_a_product(D, weighted):
    """Test that the start from moments finds the plane of x_0 and x_1 for y = x_0 x_1.

    E[y x x'] = e_0 e_1' + e_1 e_0', with unit vectors e_0 and e_1. The eigenvectors for the eigenvalues 1 and -1 span
    the plane.
    """
    rng = np.random.default_rng(D)
    X = rng.normal(size=(6000, D))
    w = rng.integers(1, 4, 6000).astype(float) if weighted else None
    rows = InMemoryRows(X, np.column_stack([0.01 * X[:, 5], X[:, 0] * X[:, 1]]), w)
    (start,) = moment_starts(rows, Gaussian(gamma=1.0), 2)
    assert start.label == "moments"
    directions = np.linalg.svd(start.B, full_matrices=False)[2]
    assert np.linalg.norm(directions[:, :2]) ** 2 > 1.6  # 2 for exact moments; sampling error about D / 6000
    P = X[:2000] @ start.B.T
    # The start used a different sample of rows, so the value is only approximate.
    assert Gaussian().median_gamma(P) == pytest.approx(1.0, rel=0.1)
    assert moment_starts(rows.subset(np.arange(50)), Gaussian(gamma=1.0), D + 1) == []


@pytest.mark.parametrize(("value", "survives"), [(-2.0, True), (-0.5, False)])
def test_the_start_from_moments_survives_in_addition_to_the_best_two(monkeypatch, value, survives):
    _with_ends(monkeypatch, lambda start: replace(start, value=value if start.label in MOMENTS else -1.0, score=0.0))
    _, ends = _search(_criterion(), [1], n_starts=3)
    assert [end.label for end in ends].count("random") == 2
    assert [end.label for end in ends].count("moments") == survives


# ----------------------------------------------------------------------------------------------- search


def _search(criterion, dimensions=range(1, 7), seed=0, n_starts=3, **options):
    return search_dimensions(criterion, dimensions, n_starts=n_starts, rng=np.random.RandomState(seed), **options)


def test_the_search_stops_two_directions_past_the_best():
    best, ends = _search(_criterion(m=200, D=6), range(1, 7), n_starts=2)
    chosen = min(best.values(), key=lambda candidate: candidate.score)
    assert chosen.n_components == 2
    assert sorted(best) == [1, 2, 3, 4]
    assert all(math.isfinite(end.score) for end in ends)


@pytest.mark.parametrize("stop_early", [False, True])
def test_all_given_numbers_are_tried_unless_the_search_stops_early(stop_early):
    best, _ = _search(_criterion(d=1), [1, 2, 5, 6], n_starts=1, stop_early=stop_early)
    assert sorted(best) == ([1, 2, 5] if stop_early else [1, 2, 5, 6])


@pytest.mark.parametrize(
    ("make", "seed"),
    [
        (Evidence, 0),
        *(
            pytest.param(*each, marks=pytest.mark.thorough)
            for each in [(Evidence, 1), (LeaveOneOut, 0), (LeaveOneOut, 1)]
        ),
    ],
)
def test_the_best_of_each_number_has_the_lowest_value_of_all_its_runs(make, seed):
    """Test that the best candidate has the lowest value of all runs with its number of directions, dropped or not."""
    best, ends = _search(_criterion(make=make, seed=seed), range(1, 4), seed=seed)
    for d, candidate in best.items():
        assert candidate.n_components == d
        assert any(candidate is end for end in ends)
        assert candidate.value == min(end.value for end in ends if end.n_components == d)


def test_dropped_starts_are_labelled():
    """Test that two starts for each number of directions survive, and all other starts are labelled as dropped.

    The start from moments is left out here. A separate test covers it.
    """
    best, ends = _search(_criterion(), n_starts=4)
    for d in best:
        names = [end.label for end in ends if end.n_components == d and end.label not in ("shrunk", *MOMENTS)]
        dropped = [name for name in names if name.endswith(", dropped")]
        in_reserve = len(names) - (4 if d == 1 else 5)
        assert in_reserve in (0, 1)
        assert names[: len(names) - in_reserve][-2:] == [name for name in names if "dropped" not in name][:2]
        assert len(dropped) == len(names) - 2 - in_reserve
        assert {name.removesuffix(", dropped") for name in names} == ({"random"} if d == 1 else {"random", "grown"})
        assert "dropped" not in best[d].label
    firsts = [end.n_components for end in ends if end.label != "shrunk"]
    assert firsts == sorted(firsts)


def _comparable(found):
    best, ends = found
    return sorted(best), [(end.label, end.n_components, end.value, end.score, end.nu, end.B.tolist()) for end in ends]


def test_the_result_does_not_depend_on_threads_and_workers():
    one = _comparable(_search(_criterion(), [1, 2]))
    for options in ({"n_threads": 2}, {"n_threads": 7}, {"n_jobs": 2}):
        assert _comparable(_search(_criterion(), [1, 2], **options)) == one


# -------------------------------------------------------------------------------- ties, failures and time


def _with_ends(monkeypatch, end_of):
    """Replace every run from a start by ``end_of(start)``, and the result of `grow` by a map of unit vectors."""
    monkeypatch.setattr(search, "improve_each", lambda _, starts, *rest, **options: [end_of(start) for start in starts])
    monkeypatch.setattr(search, "improve", lambda _, start, *rest, **options: end_of(start))
    monkeypatch.setattr(
        search, "grow", lambda _, one, *rest: [replace(one, origin=Origin.GROWN, B=np.eye(len(one.B) + 1, 6))]
    )


def test_ties_in_the_score_go_to_fewer_directions(monkeypatch):
    """Test that, with equal scores, the smallest number of directions wins, and the search stops after two more."""
    _with_ends(monkeypatch, lambda start: replace(start, value=-float(start.n_components), score=7.0))
    best, _ = _search(_criterion())
    assert list(best) == [1, 2, 3]
    assert min(best.values(), key=lambda candidate: candidate.score).n_components == 1


def test_ties_between_runs_go_to_the_first_start(monkeypatch):
    """Test that, of runs with equal values, the first run is kept.

    The order of the starts is: random starts, the grown start, and then the shrunk start. The shrunk start is the best
    map with one more direction, without its smallest direction.
    """
    _with_ends(monkeypatch, lambda start: replace(start, value=0.5, score=1.0))
    best, ends = _search(_criterion(), [1, 2], n_starts=3)
    starts = _random(2, 3)
    assert_array_equal(best[1].B, starts[0])
    assert_array_equal(best[2].B, starts[3])
    others = [end for end in ends if end.label not in MOMENTS]
    assert [end.label for end in others if end.n_components == 1] == ["random, dropped", "random", "random", "shrunk"]
    assert [end.label for end in others if end.n_components == 2] == [
        "random, dropped",
        "grown, dropped",
        "random",
        "random",
    ]


def _random(n_dimensions, n_starts):
    """Return the random maps of the search for 1, 2, ... directions, in the order in which they are drawn."""
    criterion, rng = _criterion(), np.random.RandomState(0)
    dimensions = range(1, n_dimensions + 1)
    starts = [random_starts(criterion.rows, criterion.kernel, d, n_starts, rng) for d in dimensions]
    return [start.B for batch in starts for start in batch]


def test_the_two_lowest_starts_survive(monkeypatch):
    _with_ends(monkeypatch, lambda start: replace(start, value=float(start.B[0, 0]), score=0.0))
    _, ends = _search(_criterion(), [1], n_starts=5)
    values = [float(B[0, 0]) for B in _random(1, 5)]
    assert len(set(values)) == 5
    assert [end.value for end in ends if end.label == "random"] == sorted(values)[:2]
    assert [end.value for end in ends if end.label == "random, dropped"] == sorted(values)[2:]


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_a_long_run_that_fails_is_not_kept(monkeypatch, value):
    """Test that a failed run is discarded even if it is the only run, and never replaces a finite candidate."""
    _with_ends(monkeypatch, lambda start: replace(start, value=-1.0, score=-1.0))
    short = search.improve_each

    def fails_later(criterion, starts, max_iter, *rest, **options):
        ends = short(criterion, starts, max_iter, *rest, **options)
        return [
            replace(end, value=value, score=value) if max_iter == LONG and end.n_components == 2 else end
            for end in ends
        ]

    monkeypatch.setattr(search, "improve_each", fails_later)
    assert sorted(_search(_criterion(), [1, 2, 3], stop_early=False)[0]) == [1, 3]
    monkeypatch.setattr(search, "improve_each", short)
    monkeypatch.setattr(search, "improve", lambda _, start, *rest: replace(start, value=value, score=value))
    best, ends = _search(_criterion(), [1, 2], stop_early=False)
    assert [end.label for end in ends if not math.isfinite(end.value)] == ["shrunk"]
    assert best[1].value == -1.0


@pytest.mark.parametrize("failing", [1, 2, 3])
@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_a_number_of_directions_without_a_finite_criterion_is_skipped(monkeypatch, failing, value):
    def end_of(start):
        d = start.n_components
        return replace(start, value=value if d == failing else -d, score=value if d == failing else -5.0 + d)

    _with_ends(monkeypatch, end_of)
    best, ends = _search(_criterion(), range(1, 5), stop_early=False)
    assert sorted(best) == sorted({1, 2, 3, 4} - {failing})
    assert all(math.isfinite(candidate.value) for candidate in best.values())
    assert not [end for end in ends if end.label == "grown" and end.n_components == failing + 1]


@dataclass(frozen=True, kw_only=True)
class NotANumber(Radial):
    """A kernel whose values are all NaN."""

    def value_and_decay(self, u):
        return np.full_like(u, np.nan), np.full_like(u, np.nan)


def _tried(monkeypatch, criterion, **options):
    """Return the numbers of directions that are tried before the search fails."""
    begun = []
    monkeypatch.setattr(search, "random_starts", lambda *given: begun.append(given[2]) or random_starts(*given))
    with pytest.raises(FitError, match="not finite for any starting map"):
        _search(criterion, **options)
    return begun


def test_without_any_finite_criterion_the_search_raises(monkeypatch):
    """Test that the search raises if no criterion is finite.

    All numbers of directions are tried first. After the deadline, only the first number is tried.
    """
    rows = _criterion().rows
    criterion = Evidence(rows, rows.take(np.arange(30)), NotANumber(gamma=1.0), 1e-3, True)
    assert _tried(monkeypatch, criterion) == [1, 2, 3, 4, 5, 6]
    assert _tried(monkeypatch, criterion, deadline=0.0) == [1]


def test_after_the_deadline_only_one_direction_is_tried():
    best, ends = _search(_criterion(), deadline=0.0)
    assert list(best) == [1]
    assert {end.n_components for end in ends} == {1}
    assert math.isfinite(best[1].score)


def test_plateau_stops_a_run_that_no_longer_improves():
    class State:
        def __init__(self, objective):
            self.objective = objective

    improving, stalled = Plateau(1e-3), Plateau(1e-3)
    assert not any(improving(State(-0.1 * k)) for k in range(20))
    assert [stalled(State(1.0)) for _ in range(7)] == [False] * 5 + [True] * 2
