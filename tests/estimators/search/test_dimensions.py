"""The search for the number of directions: starts grown and shrunk, what it keeps, ties, failures, threads and time."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from hkrr import FitError, search
from hkrr.candidates import LONG, SHORT, Candidate, Plateau, improve
from hkrr.criteria import Evidence, LeaveOneOut
from hkrr.datasets import make_mim_sines
from hkrr.kernels import KERNELS, Gaussian, Radial
from hkrr.rows import InMemoryRows
from hkrr.search import grown, moment_starts, random_starts, search_dimensions, shrunk

both = pytest.mark.parametrize("make", [Evidence, LeaveOneOut], ids=["evidence", "loo"])
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
    """The best of two random starts."""
    starts = random_starts(criterion.rows, criterion.kernel, d, 2, np.random.RandomState(seed))
    return min((improve(criterion, start, LONG) for start in starts), key=lambda end: end.value)


def _at(criterion, candidate, B=None):
    B = candidate.B if B is None else B
    return criterion.reduced(B, candidate.nu / criterion.rows.total_weight).value


# ----------------------------------------------------------------------------------------------- starts


@some_criteria
@seeds
def test_a_grown_start_has_one_more_direction_off_the_others(make, kernel, seed):
    """At the best of three lengths, with its own noise and its own value; nothing of it has been improved yet."""
    criterion = _criterion(seed=seed, make=make, kernel=kernel)
    one = improve(criterion, random_starts(criterion.rows, criterion.kernel, 2, 1, np.random.RandomState(0))[0], 20)
    bigger = grown(criterion, one, np.random.RandomState(seed))[0]
    assert (bigger.n_components, bigger.start, bigger.nu) == (3, "grown", one.nu)
    assert_array_equal(bigger.B[:2], one.B)
    new, norm = bigger.B[2], np.linalg.norm(one.B, 2)
    assert_allclose(one.B @ new, 0.0, atol=1e-12 * norm * np.linalg.norm(new))
    values = [
        _at(criterion, bigger, np.vstack([one.B, step * norm / np.linalg.norm(new) * new])) for step in (0.1, 0.3, 0.6)
    ]
    assert bigger.value == pytest.approx(min(values), rel=1e-12)
    assert bigger.score == math.inf


MISSING = {"linear": lambda u, v: u + v, "even": lambda u, v: u + v**2, "product": lambda u, v: u * v}


@seeds
@pytest.mark.parametrize("how", MISSING)
def test_the_residual_shows_the_direction_that_is_missing(how, seed):
    """Whether it adds to what is known, evenly or oddly, or multiplies it: each leaves a moment of the residual."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(400, 6))
    y = MISSING[how](X[:, 0], X[:, 1]) + 0.1 * rng.normal(size=400)
    rows = InMemoryRows(X, y - y.mean())
    criterion = Evidence(rows, rows.take(np.arange(30)), Gaussian(gamma=1.0), 1e-3, True)
    known = Candidate("known", criterion.kernel, 0.3 * np.eye(1, 6), 1.0)
    new = grown(criterion, known, np.random.RandomState(seed))[0].B[1]
    assert abs(new[1]) > 0.9 * np.linalg.norm(new)


@some_criteria
@pytest.mark.parametrize("seed", [0, 1])
def test_an_improved_start_is_never_above_its_start(make, kernel, seed):
    """Grown, shrunk and random ones, after few steps and after many: steps only go down."""
    criterion, rng = _criterion(seed=seed, make=make, kernel=kernel), np.random.RandomState(seed)
    first = random_starts(criterion.rows, criterion.kernel, 1, 1, rng)[0]
    one = improve(criterion, first, LONG)
    bigger = grown(criterion, one, rng)[0]
    two = improve(criterion, bigger, LONG)
    smaller = shrunk(two, criterion.kernel.rotation_invariant)
    for start, end in ((first, one), (bigger, two), (smaller, improve(criterion, smaller, LONG))):
        short = improve(criterion, start, SHORT)
        assert end.value <= short.value <= _at(criterion, start)


@seeds
@pytest.mark.parametrize("d", [1, 2])
def test_a_grown_start_ends_no_higher_than_the_solution_it_came_from(seed, d):
    """A map of d directions is one of d + 1, so the best of those is no worse. Two directions are planted."""
    criterion = _criterion(seed=seed)
    solution = _solution(criterion, d, seed)
    ends = [improve(criterion, start, LONG) for start in grown(criterion, solution, np.random.RandomState(seed))]
    assert {end.n_components for end in ends} == {d + 1}
    assert min(end.value for end in ends) <= solution.value


def test_shrinking_leaves_out_the_smallest_direction():
    """Of the map as a whole where rotations are free; of its own rows where they are not."""
    rng = np.random.default_rng(0)
    U, V = np.linalg.qr(rng.normal(size=(3, 3)))[0], np.linalg.qr(rng.normal(size=(6, 6)))[0][:3]
    B = (U * [3.0, 1.0, 0.2]) @ V
    candidate = Candidate("s", Gaussian(gamma=1.0), B, 0.1, -1.0, 5.0, 9.0)
    free, fixed = shrunk(candidate, True), shrunk(candidate, False)
    assert_allclose(free.B.T @ free.B, (V[:2].T * [9.0, 1.0]) @ V[:2], atol=1e-12)
    assert_array_equal(fixed.B, np.delete(B, np.argmin(np.linalg.norm(B, axis=1)), axis=0))
    for smaller in (free, fixed):
        assert (smaller.start, smaller.nu) == ("shrunk", 0.1)
        assert (smaller.value, smaller.score, smaller.seconds) == (math.inf, math.inf, 0.0)


@seeds
def test_a_direction_of_no_length_is_dropped_for_nothing(seed):
    criterion = _criterion(seed=seed)
    B = random_starts(criterion.rows, criterion.kernel, 2, 1, np.random.RandomState(seed))[0].B
    U = np.linalg.qr(np.random.default_rng(seed).normal(size=(3, 3)))[0]
    idle = Candidate("s", criterion.kernel, U @ np.vstack([B, np.zeros(6)]), 5.0)
    assert _at(criterion, shrunk(idle, True)) == pytest.approx(_at(criterion, idle), rel=1e-9)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("D", [8, 310])  # with few columns the matrix is formed, with many it is not
def test_a_start_from_moments_sees_a_product(D, weighted):
    """The target x_0 x_1 has E[y x x'] = e_0 e_1' + e_1 e_0': two eigenvectors, of 1 and -1, that span its plane."""
    rng = np.random.default_rng(D)
    X = rng.normal(size=(6000, D))
    w = rng.integers(1, 4, 6000).astype(float) if weighted else None
    rows = InMemoryRows(X, np.column_stack([0.01 * X[:, 5], X[:, 0] * X[:, 1]]), w)
    (start,) = moment_starts(rows, Gaussian(gamma=1.0), 2)
    assert start.start == "moments"
    directions = np.linalg.svd(start.B, full_matrices=False)[2]
    assert np.linalg.norm(directions[:, :2]) ** 2 > 1.6  # 2 where it is exact; D / 6000 is chance
    P = X[:2000] @ start.B.T
    assert Gaussian().median_gamma(P) == pytest.approx(1.0, rel=0.1)  # the median of other rows
    assert moment_starts(rows.subset(np.arange(50)), Gaussian(gamma=1.0), D + 1) == []


@pytest.mark.parametrize(("value", "goes_on"), [(-2.0, True), (-0.5, False)])
def test_the_start_from_moments_goes_on_beside_the_best_two(monkeypatch, value, goes_on):
    _with_ends(monkeypatch, lambda start: replace(start, value=value if start.start in MOMENTS else -1.0, score=0.0))
    _, ends = _search(_criterion(), [1], n_starts=3)
    assert [end.start for end in ends].count("random") == 2
    assert [end.start for end in ends].count("moments") == goes_on


# ----------------------------------------------------------------------------------------------- search


def _search(criterion, dimensions=range(1, 7), seed=0, n_starts=3, **options):
    return search_dimensions(criterion, dimensions, n_starts=n_starts, rng=np.random.RandomState(seed), **options)


def test_the_search_stops_two_directions_past_the_best():
    best, ends = _search(_criterion(m=300, D=10), range(1, 11), n_starts=2)
    chosen = min(best.values(), key=lambda candidate: candidate.score)
    assert chosen.n_components == 2
    assert sorted(best) == [1, 2, 3, 4]
    assert all(math.isfinite(end.score) for end in ends)


@pytest.mark.parametrize("patient", [False, True])
def test_all_the_given_numbers_are_tried_where_it_is_not_to_be_patient(patient):
    best, _ = _search(_criterion(d=1), [1, 2, 5, 6], n_starts=1, patient=patient)
    assert sorted(best) == ([1, 2, 5] if patient else [1, 2, 5, 6])


@both
@pytest.mark.parametrize("seed", [0, 1])
def test_the_best_of_each_number_is_the_lowest_of_all_its_ends(make, seed):
    """Of those that were dropped too: they were above the others when they were, and these have gone down since."""
    best, ends = _search(_criterion(make=make, seed=seed), range(1, 4), seed=seed)
    for d, candidate in best.items():
        assert candidate.n_components == d
        assert any(candidate is end for end in ends)
        assert candidate.value == min(end.value for end in ends if end.n_components == d)


def test_dropped_starts_are_among_the_ends_and_say_so():
    """Two of each number go on; the others, and the grown one where it is not among the two, are dropped.

    The start from moments takes no place from them, and is looked at below.
    """
    best, ends = _search(_criterion(), n_starts=4)
    for d in best:
        names = [end.start for end in ends if end.n_components == d and end.start not in ("shrunk", *MOMENTS)]
        dropped = [name for name in names if name.endswith(", dropped")]
        in_reserve = len(names) - (4 if d == 1 else 5)
        assert in_reserve in (0, 1)
        assert names[: len(names) - in_reserve][-2:] == [name for name in names if "dropped" not in name][:2]
        assert len(dropped) == len(names) - 2 - in_reserve
        assert {name.removesuffix(", dropped") for name in names} == ({"random"} if d == 1 else {"random", "grown"})
        assert "dropped" not in best[d].start
    firsts = [end.n_components for end in ends if end.start != "shrunk"]
    assert firsts == sorted(firsts)


def _told(found):
    best, ends = found
    return sorted(best), [(end.start, end.n_components, end.value, end.score, end.nu, end.B.tolist()) for end in ends]


def test_the_same_search_on_any_threads_and_workers():
    one = _told(_search(_criterion(), [1, 2]))
    for options in ({"n_threads": 2}, {"n_threads": 7}, {"n_jobs": 2}):
        assert _told(_search(_criterion(), [1, 2], **options)) == one


# -------------------------------------------------------------------------------- ties, failures and time


def _with_ends(monkeypatch, end_of):
    """Let every run end, without a step, as this function of its start says."""
    monkeypatch.setattr(search, "improve_each", lambda _, starts, *rest, **options: [end_of(start) for start in starts])
    monkeypatch.setattr(search, "improve", lambda _, start, *rest, **options: end_of(start))
    monkeypatch.setattr(
        search, "grown", lambda _, one, *rest: [replace(one, start="grown", B=np.eye(len(one.B) + 1, 6))]
    )


def test_of_equal_scores_the_fewest_directions_are_the_best(monkeypatch):
    """And two beyond those are enough."""
    _with_ends(monkeypatch, lambda start: replace(start, value=-float(start.n_components), score=7.0))
    best, _ = _search(_criterion())
    assert list(best) == [1, 2, 3]
    assert min(best.values(), key=lambda candidate: candidate.score).n_components == 1


def test_of_equal_ends_the_first_start_is_kept(monkeypatch):
    """In the order they are made: random ones, the grown one, then what is shrunk from more directions."""
    _with_ends(monkeypatch, lambda start: replace(start, value=0.5, score=1.0))
    best, ends = _search(_criterion(), [1, 2], n_starts=3)
    starts = _random(2, 3)
    assert_array_equal(best[1].B, starts[0])
    assert_array_equal(best[2].B, starts[3])
    others = [end for end in ends if end.start not in MOMENTS]
    assert [end.start for end in others if end.n_components == 1] == ["random, dropped", "random", "random", "shrunk"]
    assert [end.start for end in others if end.n_components == 2] == [
        "random, dropped",
        "grown, dropped",
        "random",
        "random",
    ]


def _random(n_dimensions, n_starts):
    """The maps that the search starts from for 1, 2, ... directions, as it draws them."""
    criterion, rng = _criterion(), np.random.RandomState(0)
    dimensions = range(1, n_dimensions + 1)
    starts = [random_starts(criterion.rows, criterion.kernel, d, n_starts, rng) for d in dimensions]
    return [start.B for of_one in starts for start in of_one]


def test_the_lowest_two_go_on(monkeypatch):
    _with_ends(monkeypatch, lambda start: replace(start, value=float(start.B[0, 0]), score=0.0))
    _, ends = _search(_criterion(), [1], n_starts=5)
    values = [float(B[0, 0]) for B in _random(1, 5)]
    assert len(set(values)) == 5
    assert [end.value for end in ends if end.start == "random"] == sorted(values)[:2]
    assert [end.value for end in ends if end.start == "random, dropped"] == sorted(values)[2:]


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_a_run_that_fails_as_it_goes_on_is_not_kept(monkeypatch, value):
    """Neither where there is nothing else, nor in the place of what there is."""
    _with_ends(monkeypatch, lambda start: replace(start, value=-1.0, score=-1.0))
    short = search.improve_each

    def fails_later(criterion, starts, max_iter, *rest, **options):
        ends = short(criterion, starts, max_iter, *rest, **options)
        return [
            replace(end, value=value, score=value) if max_iter == LONG and end.n_components == 2 else end
            for end in ends
        ]

    monkeypatch.setattr(search, "improve_each", fails_later)
    assert sorted(_search(_criterion(), [1, 2, 3], patient=False)[0]) == [1, 3]
    monkeypatch.setattr(search, "improve_each", short)
    monkeypatch.setattr(search, "improve", lambda _, start, *rest: replace(start, value=value, score=value))
    best, ends = _search(_criterion(), [1, 2], patient=False)
    assert [end.start for end in ends if not math.isfinite(end.value)] == ["shrunk"]
    assert best[1].value == -1.0


@pytest.mark.parametrize("failing", [1, 2, 3])
@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_a_number_of_directions_without_a_finite_criterion_is_passed_over(monkeypatch, failing, value):
    def end_of(start):
        d = start.n_components
        return replace(start, value=value if d == failing else -d, score=value if d == failing else -5.0 + d)

    _with_ends(monkeypatch, end_of)
    best, ends = _search(_criterion(), range(1, 5), patient=False)
    assert sorted(best) == sorted({1, 2, 3, 4} - {failing})
    assert all(math.isfinite(candidate.value) for candidate in best.values())
    assert not [end for end in ends if end.start == "grown" and end.n_components == failing + 1]


@dataclass(frozen=True, kw_only=True)
class NotANumber(Radial):
    """A kernel that is never a number, in how many dimensions it is asked for."""

    def value_and_decay(self, u):
        return np.full_like(u, np.nan), np.full_like(u, np.nan)


def _tried(monkeypatch, criterion, **options):
    """The numbers of directions begun before it gives up."""
    begun = []
    monkeypatch.setattr(search, "random_starts", lambda *given: begun.append(given[2]) or random_starts(*given))
    with pytest.raises(FitError, match="No start has a finite criterion"):
        _search(criterion, **options)
    return begun


def test_without_any_finite_criterion_there_is_an_error_in_the_end_and_at_the_deadline(monkeypatch):
    """All numbers are tried while there is time, and none but the first where there is none."""
    rows = _criterion().rows
    criterion = Evidence(rows, rows.take(np.arange(30)), NotANumber(gamma=1.0), 1e-3, True)
    assert _tried(monkeypatch, criterion) == [1, 2, 3, 4, 5, 6]
    assert _tried(monkeypatch, criterion, deadline=0.0) == [1]


def test_past_the_deadline_the_first_number_is_what_there_is():
    best, ends = _search(_criterion(), deadline=0.0)
    assert list(best) == [1]
    assert {end.n_components for end in ends} == {1}
    assert math.isfinite(best[1].score)


def test_plateau_ends_a_run_that_no_longer_falls():
    class State:
        def __init__(self, objective):
            self.objective = objective

    falling, resting = Plateau(1e-3), Plateau(1e-3)
    assert not any(falling(State(-0.1 * k)) for k in range(20))
    assert [resting(State(1.0)) for _ in range(7)] == [False] * 5 + [True] * 2
