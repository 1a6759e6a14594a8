"""Tests of the search for directions: starts, cuts, widening, more centers, failures, threads and deadlines.

A cut truncates a map with many directions to fewer directions. Widening adds random directions to a map. Most searches
here use fewer centers than the library, so that a search takes about half a second.
"""

import functools
import itertools
import math
import re
import time
from dataclasses import dataclass, replace

import joblib
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse.linalg import ArpackError, ArpackNoConvergence

from hkrr import FitError
from hkrr.criteria import Evidence, LeaveOneOut
from hkrr.datasets import make_mim_mixed, make_mim_sines, make_planted
from hkrr.estimators.search import directions
from hkrr.estimators.search.candidates import FIRST_LAMBDA, Candidate, Origin, count_workers, score
from hkrr.estimators.search.directions import (
    FULL_RUN,
    RUN_AFTER_CUT,
    TRIAL_RUN,
    DirectionSearch,
    moment_starts,
    random_starts,
    same_directions,
    sorted_rows,
    starting_width,
    widen,
)
from hkrr.estimators.search.progress import Phase, Progress
from hkrr.estimators.search.search_problem import SearchProblem
from hkrr.kernels import KERNELS, Gaussian, ProductLaplace, Radial
from hkrr.metrics import subspace_distance
from hkrr.rows import InMemoryRows

GAUSSIAN, PRODUCT = Gaussian(gamma=1.0), ProductLaplace(gamma=1.0)
# Largest number of directions, number of rows and number of centers, as in `directions.SIZES`, but with fewer centers.
FEW_CENTERS = ((3, 2_000, 30), (5, 2_000, 60), (math.inf, 4_000, 120))
LIBRARY_SIZES = directions.SIZES
# Number of wide maps that the search keeps after the short runs, and the largest number of times that it widens a map.
SURVIVORS = 2
MOST_WIDENINGS = 6

PROBLEMS = {
    "sines": lambda seed: make_mim_sines(150, 4, 2, random_state=seed),
    "mixed": lambda seed: make_mim_mixed(150, 4, 2, random_state=seed),
    "weak": lambda seed: make_planted("weak", 100, n_features=3, random_state=seed),
    "single": lambda seed: make_planted("single", 100, n_features=3, random_state=seed),
    "product": lambda seed: make_planted("product", 150, n_features=4, random_state=seed),
    "noisy": lambda seed: make_mim_sines(150, 4, 2, noise=0.5, random_state=seed),
}


def thorough(*values):
    return pytest.param(*values, marks=pytest.mark.thorough)


@pytest.fixture(autouse=True)
def _few_centers(monkeypatch):
    monkeypatch.setattr(directions, "SIZES", FEW_CENTERS)


@pytest.fixture
def _short_runs(monkeypatch):
    """Make every run short. The tests that call this function do not depend on the result of the runs."""
    for name, n in (("TRIAL_RUN", 4), ("FULL_RUN", 10), ("RUN_AFTER_CUT", 6)):
        monkeypatch.setattr(directions, name, n)


short_runs = pytest.mark.usefixtures("_short_runs")


def _rows(data, weight=None):
    X = (data.X - data.X.mean(axis=0)) / data.X.std(axis=0)
    return InMemoryRows(X, data.y - data.y.mean(axis=0), weight)


def _rows_of(n_features):
    return InMemoryRows(np.random.default_rng(1).normal(size=(20, n_features)), np.zeros(20))


def _true_map(data):
    """Return the true map in the coordinates of `_rows`."""
    return data.B * data.X.std(axis=0)


def _prepared(rows, dimensions=None, *, seed=0, make=Evidence, kernel="gaussian", choose=True, n_starts=2, **options):
    dimensions = range(1, rows.n_features + 1) if dimensions is None else dimensions
    kernel = kernel if not isinstance(kernel, str) else KERNELS[kernel].with_gamma(1.0)
    rng = np.random.RandomState(seed)
    return DirectionSearch(SearchProblem(rows, make, dimensions, choose, n_starts, rng, **options), kernel)


def _search(rows, dimensions=None, **options):
    """Run a search. Return the search, with its results as attributes."""
    search = _prepared(rows, dimensions, **options)
    assert search.run() is search.best
    return search


class Clock:
    """A clock that advances by one second with each evaluation of the evidence."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        for name in ("reduced", "profiled"):
            monkeypatch.setattr(Evidence, name, self._advance_with(getattr(Evidence, name)))

    def _advance_with(self, evaluate):
        def evaluate_and_advance(*given):
            self.now += 1.0
            return evaluate(*given)

        return evaluate_and_advance


@functools.cache
def _counted(problem, seed, make, kernel):
    """Return a finished search, the states that it reported, and the number of evaluations of the evidence.

    The results are cached, because several tests look at the same search.
    """
    states = []
    rows = _rows(PROBLEMS[problem](seed))
    with pytest.MonkeyPatch.context() as monkeypatch:
        clock = Clock(monkeypatch)
        search = _search(rows, seed=seed, make=make, kernel=kernel, progress=Progress([states.append]))
    return search, states, clock.now


def _found(problem, seed=0, make=Evidence, kernel="gaussian"):
    """Return a finished search and the states that it reported."""
    return _counted(problem, seed, make, kernel)[:2]


def _winner(search):
    return min(search.best.values(), key=lambda candidate: candidate.score)


def _candidate(B, kernel=GAUSSIAN, **fields):
    return Candidate(Origin.RANDOM, kernel, np.asarray(B, dtype=float), 0.1, **fields)


# ------------------------------------------------------------------------------------------------ random starts


@pytest.mark.parametrize("kernel", ["gaussian", "matern32", "product_laplace"])
def test_random_starts_alternate_between_the_scale_of_the_median_rule_and_half_of_it(kernel):
    """Test that every second start is half as large as the scale of the median heuristic.

    The median heuristic gives gamma 1 for the projections of a map at its own scale, and gamma 4 at half this scale.
    There are fewer than 500 rows, so that the median heuristic uses all rows.
    """
    rng = np.random.default_rng(0)
    rows = InMemoryRows(rng.normal(size=(200, 6)), rng.normal(size=200), rng.uniform(0.5, 2.0, size=200))
    rows.n_free_columns = 5
    kernel = KERNELS[kernel].with_gamma(1.0)
    starts = random_starts(rows, kernel, 3, 5, np.random.RandomState(0))
    X = rows.gather()[0]
    assert_allclose([kernel.median_gamma(X @ start.B.T) for start in starts], [1.0, 4.0, 1.0, 4.0, 1.0], rtol=1e-9)
    for start in starts:
        assert (start.label, start.kernel, start.B.shape, start.n_free_columns) == ("random", kernel, (3, 6), 5)
        assert start.nu == pytest.approx(FIRST_LAMBDA * rows.total_weight)
        assert (start.value, start.score, start.seconds) == (math.inf, math.inf, 0.0)
    assert len({start.B.tobytes() for start in starts}) == 5


def test_more_random_starts_do_not_change_the_first_ones():
    rows = _rows(PROBLEMS["sines"](0))
    few, many = (random_starts(rows, GAUSSIAN, 3, n, np.random.RandomState(1)) for n in (2, 4))
    for one, other in zip(few, many, strict=False):
        assert_array_equal(one.B, other.B)


@pytest.mark.parametrize("scale", [1e-100, 1e100])
def test_random_starts_do_not_depend_on_the_units_of_x(scale):
    rows = _rows(PROBLEMS["sines"](0))
    X, Y, _ = rows.gather()
    starts = [
        random_starts(each, GAUSSIAN, 2, 2, np.random.RandomState(0)) for each in (rows, InMemoryRows(scale * X, Y))
    ]
    for one, other in zip(*starts, strict=True):
        assert_allclose(other.B * scale, one.B, rtol=1e-9)


# ------------------------------------------------------------------------------------------- starts from moments


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("D", [8, 310])  # with 310 columns the moment matrix is not formed
def test_a_start_from_moments_sees_a_product(D, weighted):
    """Test that the start from moments finds the plane of x_0 and x_1 for y = x_0 x_1.

    The moment matrix is E[y x x'] = e_0 e_1' + e_1 e_0', with unit vectors e_0 and e_1. Its eigenvectors for the
    eigenvalues 1 and -1 span the plane. The product is the second of two targets. The first target is smaller.
    """
    rng = np.random.default_rng(D)
    X = rng.normal(size=(6000, D))
    w = rng.integers(1, 4, 6000).astype(float) if weighted else None
    rows = InMemoryRows(X, np.column_stack([0.01 * X[:, 5], X[:, 0] * X[:, 1]]), w)
    (start,) = moment_starts(rows, GAUSSIAN, 2)
    assert (start.label, start.B.shape) == ("moments", (2, D))
    assert start.nu == pytest.approx(FIRST_LAMBDA * rows.total_weight)
    basis = np.linalg.svd(start.B, full_matrices=False)[2]
    assert np.linalg.norm(basis[:, :2]) ** 2 > 1.6  # 2 for exact moments; the sampling error is about D / 6000
    # The start used a different sample of rows, so the value is only approximate.
    assert Gaussian().median_gamma(X[:2000] @ start.B.T) == pytest.approx(1.0, rel=0.1)


@pytest.mark.parametrize("even", [lambda a, b: a**2 - b**2, lambda a, b: a**2 + np.abs(b)])
def test_a_start_from_moments_sees_squares_and_absolute_values(even):
    X = np.random.default_rng(0).normal(size=(3000, 10))
    y = even(X[:, 3], X[:, 7])
    (start,) = moment_starts(InMemoryRows(X, y - y.mean()), GAUSSIAN, 2)
    assert subspace_distance(start.B, np.eye(10)[[3, 7]]) < 0.3


def test_the_target_with_the_largest_sum_of_squares_determines_the_start_from_moments():
    X = np.random.default_rng(0).normal(size=(2000, 6))
    targets = np.column_stack([X[:, 0] * X[:, 1], X[:, 2] * X[:, 3]])
    for scales, plane in (((1.0, 2.0), [2, 3]), ((2.0, 1.0), [0, 1])):
        (start,) = moment_starts(InMemoryRows(X, targets * scales), GAUSSIAN, 2)
        assert subspace_distance(start.B, np.eye(6)[plane]) < 0.3


@pytest.mark.parametrize("D", [8, 310])
def test_there_is_no_start_from_moments_if_there_are_fewer_eigenvectors_than_directions(monkeypatch, D):
    """Test that no start is returned for more directions than columns, or if too few eigenvectors converge."""
    rng = np.random.default_rng(0)
    rows = InMemoryRows(rng.normal(size=(50, D)), rng.normal(size=50))
    if D == 8:
        assert moment_starts(rows, GAUSSIAN, 9) == []
        assert len(moment_starts(rows, GAUSSIAN, 8)) == 1
        return
    errors = (ArpackNoConvergence("no convergence", np.ones(2), np.eye(D, 2)), ArpackError(-9))
    for error, n_converged in zip(errors, (2, 0), strict=True):

        def fails(*given, error=error, **options):
            raise error

        monkeypatch.setattr(directions, "eigsh", fails)
        assert moment_starts(rows, GAUSSIAN, 3) == []
        assert len(moment_starts(rows, GAUSSIAN, 2)) == (n_converged == 2)


@pytest.mark.parametrize("D", [6, 310])
def test_a_start_from_moments_of_a_target_that_is_zero_is_finite_or_missing(D):
    X = np.random.default_rng(0).normal(size=(40, D))
    starts = moment_starts(InMemoryRows(X, np.zeros(40)), GAUSSIAN, 3)
    assert len(starts) <= 1
    assert all(np.all(np.isfinite(start.B)) for start in starts)


@pytest.mark.parametrize("D", [6, 310])
@pytest.mark.parametrize("scale", [1e-150, 1e-50, 1e50, 1e150])
def test_a_start_from_moments_does_not_depend_on_the_units_of_x_and_y(scale, D):
    """Test that the start from moments is the same if X or y is multiplied by a huge or tiny scale.

    The products of three such values would overflow, or become zero. The scale is rounded to a power of two, so that
    ARPACK takes the same steps.
    """
    scale = 2.0 ** round(math.log2(scale))
    rng = np.random.default_rng(D)
    X = rng.normal(size=(200, D))
    y = X[:, 0] * X[:, 1]
    (start,) = moment_starts(InMemoryRows(X, y), GAUSSIAN, 2)
    (other,) = moment_starts(InMemoryRows(X, scale * y), GAUSSIAN, 2)
    assert_array_equal(other.B, start.B)
    (other,) = moment_starts(InMemoryRows(scale * X, y), GAUSSIAN, 2)
    assert_allclose(other.B * scale, start.B, rtol=1e-9)


# ------------------------------------------------------------------------------------------- width of the starts


@pytest.mark.parametrize(
    ("n_rows", "n_features", "at_least", "width"),
    [
        (10_000, 20, 1, 8),  # 8 is the largest automatic width
        (160, 10, 1, 8),  # the map may have one entry for every two rows
        (159, 10, 1, 7),
        (80, 10, 1, 4),
        (60, 10, 1, 3),
        (5, 10, 1, 3),  # 3 is the smallest automatic width
        (10_000, 5, 1, 5),  # the width is at most the number of columns
        (5, 2, 1, 2),
        (5, 1, 1, 1),
        (10_000, 20, 12, 12),  # the width is at least `at_least`
        (5, 20, 12, 12),
        (10_000, 20, 4, 8),
        (10_000, 5, 12, 5),
    ],
)
def test_starting_width(n_rows, n_features, at_least, width):
    rows = InMemoryRows(np.zeros((n_rows, n_features)), np.zeros(n_rows))
    assert starting_width(rows, at_least) == width


def test_only_linearly_independent_columns_limit_the_starting_width():
    X = np.random.default_rng(0).normal(size=(60, 5))
    rows = InMemoryRows(np.hstack([X, X @ np.ones((5, 15))]), np.zeros(60))
    assert starting_width(rows, 1) == 3
    assert starting_width(rows.count_free_columns(), 1) == 6


# --------------------------------------------------------------------------------------- sorted rows of a map


def _value(criterion, candidate, B=None):
    B = candidate.B if B is None else B
    return criterion.reduced(B, candidate.nu / criterion.rows.total_weight).value


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kernel", ["gaussian", "matern32"])
def test_the_sorted_rows_of_a_rotation_invariant_kernel_are_orthogonal(kernel, seed):
    """Test that the rows are orthogonal, sorted by decreasing length, and give the same criterion as the map."""
    rows = _rows(PROBLEMS["sines"](seed))
    kernel = KERNELS[kernel].with_gamma(1.0)
    candidate = _candidate(np.random.default_rng(seed).normal(size=(3, 4)), kernel)
    B, lengths = sorted_rows(candidate)
    assert_allclose(B @ B.T, np.diag(lengths**2), atol=1e-12)
    assert_allclose(lengths, np.linalg.svd(candidate.B, compute_uv=False), rtol=1e-12)
    assert_allclose(B.T @ B, candidate.B.T @ candidate.B, atol=1e-12)
    criterion = Evidence(rows, rows.take(np.arange(20)), kernel, 1e-2, True)
    assert _value(criterion, candidate, B) == pytest.approx(_value(criterion, candidate), rel=1e-9)


def test_the_sorted_rows_of_a_product_kernel_are_the_rows_of_the_map():
    """Test that the rows are sorted by length, and rows of equal length keep their order."""
    rows = _rows(PROBLEMS["sines"](0))
    B = np.array([[0.0, 3.0, 0.0, 4.0], [1.0, 1.0, 1.0, 1.0], [6.0, 0.0, 0.0, 0.0], [5.0, 0.0, 0.0, 0.0]])
    candidate = _candidate(0.1 * B, PRODUCT)
    found, lengths = sorted_rows(candidate)
    assert_array_equal(found, 0.1 * B[[2, 0, 3, 1]])
    assert_allclose(lengths, [0.6, 0.5, 0.5, 0.2])
    criterion = Evidence(rows, rows.take(np.arange(20)), PRODUCT, 1e-2, True)
    assert _value(criterion, candidate, found) == pytest.approx(_value(criterion, candidate), rel=1e-9)


@pytest.mark.parametrize("kernel", [GAUSSIAN, PRODUCT])
def test_the_rows_of_a_zero_map_can_be_sorted(kernel):
    B, lengths = sorted_rows(_candidate(np.zeros((3, 4)), kernel))
    assert_array_equal(B, np.zeros((3, 4)))
    assert_array_equal(lengths, np.zeros(3))


# ------------------------------------------------------------------------------------------------- widening


@pytest.mark.parametrize("length", [0.3, 1.0])
@pytest.mark.parametrize(("d", "D", "n_added"), [(2, 9, 3), (1, 4, 3), (2, 4, 2), (3, 4, 1), (4, 4, 0), (1, 1, 0)])
def test_widening_adds_up_to_three_rows_of_the_given_length(d, D, n_added, length):
    before = np.random.default_rng(d).normal(size=(d, D))
    candidate = _candidate(before, value=-1.0, score=5.0, seconds=9.0, n_free_columns=D, n_centers=30)
    wide = widen(candidate, length, _rows_of(D), np.random.RandomState(0))
    assert wide.B.shape == (d + n_added, D)
    assert_array_equal(wide.B[:d], before)
    assert_array_equal(candidate.B, before)
    largest = np.linalg.svd(before, compute_uv=False)[0]
    assert_allclose(np.linalg.norm(wide.B[d:], axis=1), length * largest)
    assert (wide.label, wide.kernel, wide.nu) == ("widened", candidate.kernel, candidate.nu)
    assert (wide.n_free_columns, wide.n_centers) == (D, 30)
    assert (wide.value, wide.score, wide.seconds) == (math.inf, math.inf, 0.0)
    assert np.linalg.matrix_rank(wide.B) == d + n_added


def test_widening_draws_new_directions_each_time():
    candidate, rng = _candidate(np.eye(1, 5)), np.random.RandomState(0)
    first, second = (widen(candidate, 1.0, _rows_of(5), rng) for _ in range(2))
    assert not np.any(np.isclose(first.B[1:], second.B[1:]))
    assert_array_equal(first.B, widen(candidate, 1.0, _rows_of(5), np.random.RandomState(0)).B)


def test_constant_and_dependent_columns_add_no_directions():
    """Test that starting maps and widened maps ignore the parts of the inputs that do not vary.

    The additional columns are four constant columns, and a copy and the difference of columns. A map that gives the
    same values on all rows must not appear among the learned directions.
    """
    data = make_mim_sines(150, 4, 2, random_state=0)
    X = _rows(data).gather()[0]
    rows = InMemoryRows(np.hstack([X, np.ones((150, 4)), X[:, :1], X[:, 1:2] - X[:, 2:3]]), data.y).count_free_columns()
    rng = np.random.RandomState(0)
    start = random_starts(rows, GAUSSIAN, 8, 1, rng)[0]
    wide = widen(start, 1.0, rows, rng)
    for B in (start.B, wide.B):
        assert_array_equal(B[:, 4:8], 0.0)
        assert np.linalg.matrix_rank(B) == 4
    same = rows.in_row_space(np.eye(10))
    X = rows.gather()[0]
    assert_allclose((X - X[0]) @ same.T, X - X[0], atol=1e-12)  # the values on the rows change by a constant only


def test_a_widened_map_has_no_spectrum():
    """Test that widening removes the spectrum, which contains the singular values of the map before truncation."""
    candidate = _candidate(np.eye(1, 5), spectrum=(1.0, 0.1, 0.0))
    assert widen(candidate, 0.3, _rows_of(5), np.random.RandomState(0)).spectrum is None


# ---------------------------------------------------------------------------------------- the same directions


def test_rotated_and_rescaled_maps_have_the_same_directions():
    rng = np.random.default_rng(0)
    B = rng.normal(size=(3, 7))
    assert same_directions(_candidate(B), _candidate(rng.normal(size=(3, 3)) @ B))
    assert not same_directions(_candidate(B), _candidate(rng.normal(size=(3, 7))))


@pytest.mark.parametrize(("sine", "same"), [(0.0, True), (0.45, True), (0.55, False), (1.0, False)])
def test_the_sine_of_the_largest_angle_between_the_same_directions_is_below_one_half(sine, same):
    one = np.eye(2, 5)
    other = np.vstack([one[0], math.sqrt(1.0 - sine**2) * one[1] + sine * np.eye(5)[3]])
    assert same_directions(_candidate(one), _candidate(other)) == same
    assert same_directions(_candidate(other), _candidate(one)) == same


def test_maps_with_different_numbers_of_directions_never_have_the_same_directions():
    assert not same_directions(_candidate(np.eye(2, 5)), _candidate(np.eye(1, 5)))
    assert not same_directions(_candidate(np.eye(1, 5)), _candidate(np.eye(2, 5)))


def test_a_direction_of_length_zero_is_no_direction():
    """Test that a map with a row of zeros never has the same directions as a map without such a row."""
    one, other = _candidate(np.eye(2, 5)), _candidate(np.vstack([np.eye(1, 5), np.zeros(5)]))
    assert not same_directions(other, one)
    assert not same_directions(one, other)


# ------------------------------------------------------------------------------------------- planted problems


def _check_directions(search, data, largest_distance=0.25):
    winner = _winner(search)
    assert winner.n_components == len(data.B)
    assert subspace_distance(winner.B, _true_map(data)) < largest_distance


@pytest.mark.parametrize(
    ("problem", "seed"),
    [
        ("sines", 0),
        ("single", 0),
        thorough("product", 0),
        thorough("weak", 0),
        *(thorough("sines", seed) for seed in range(1, 6)),
        *(thorough("mixed", seed) for seed in range(6)),
        *(thorough(problem, seed) for problem in ("weak", "single", "product") for seed in range(1, 6)),
    ],
)
def test_the_search_finds_the_directions(problem, seed):
    _check_directions(_found(problem, seed)[0], PROBLEMS[problem](seed))


@pytest.mark.parametrize(
    ("make", "kernel"), [(LeaveOneOut, "gaussian"), (Evidence, "matern32"), (Evidence, "product_laplace")]
)
@pytest.mark.parametrize("seed", [1, thorough(2), thorough(3)])
def test_the_search_finds_the_directions_with_other_criteria_and_kernels(make, kernel, seed):
    _check_directions(_found("sines", seed, make, kernel)[0], PROBLEMS["sines"](seed))


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "make_data",
    [
        lambda seed: make_mim_sines(400, 8, 3, random_state=seed),
        lambda seed: make_mim_mixed(600, 8, 3, random_state=seed),
        lambda seed: make_planted("five", 1500, n_features=8, random_state=seed),
        lambda seed: make_planted("correlated", 400, n_features=8, random_state=seed),
        lambda seed: make_planted("heavy_tails", 400, n_features=8, random_state=seed),
    ],
    ids=["sines", "mixed", "five", "correlated", "heavy tails"],
)
def test_the_search_finds_the_directions_with_the_centers_of_the_library(monkeypatch, make_data, seed):
    monkeypatch.setattr(directions, "SIZES", LIBRARY_SIZES)
    data = make_data(seed)
    _check_directions(_search(_rows(data), seed=seed, n_starts=3), data)


@pytest.mark.parametrize("seed", [0, thorough(1), thorough(2), thorough(3)])
def test_the_search_finds_one_direction_along_which_the_target_oscillates(monkeypatch, seed):
    """Test that the direction b of y = sin(2 pi b'x) is found from 200 rows in 5 dimensions.

    With a random map, the best evidence is that of an infinite lambda, where the gradient with respect to the map is
    zero. A run must not end there. The search uses as many centers as the library does.
    """
    monkeypatch.setattr(directions, "SIZES", LIBRARY_SIZES)
    data = make_mim_sines(200, 5, 1, random_state=seed)
    search = _search(_rows(data), seed=seed, n_starts=5)
    assert subspace_distance(_winner(search).B, _true_map(data)) < 0.25


@short_runs
@pytest.mark.parametrize("scale", [2.0**-300, thorough(2.0**300)])
def test_the_units_of_y_do_not_matter(scale):
    """Test that a huge or tiny scale of the targets does not change the directions.

    The value of the criterion is shifted by the logarithm of the scale.
    """
    data = PROBLEMS["single"](0)
    one, other = (_winner(_search(_rows(each))) for each in (data, replace(data, y=scale * data.y)))
    assert one.n_components == other.n_components == 1
    assert other.value == pytest.approx(one.value + math.log(scale), abs=0.02)
    assert subspace_distance(one.B, other.B) < 0.05


@short_runs
def test_the_search_handles_several_targets_and_weights():
    """Test that the directions of two targets, which depend on different directions, are found with weighted rows."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 4))
    Y = np.column_stack([np.sin(1.5 * X[:, 0]), np.tanh(X[:, 2]) + X[:, 2]]) + 0.1 * rng.normal(size=(150, 2))
    search = _search(InMemoryRows(X, Y - Y.mean(axis=0), rng.integers(1, 4, 150).astype(float)))
    winner = _winner(search)
    assert winner.n_components == 2
    assert subspace_distance(winner.B, np.eye(4)[[0, 2]]) < 0.25
    _check_scores(search)


# -------------------------------------------------------------------------------------- candidates and scores


def _check_scores(search):
    """Check the value, the score and the number of centers of each candidate in `best`, computed from its map."""
    criterion, n_targets = search.criterion, search.criterion.rows.n_targets
    W, D = criterion.rows.total_weight, criterion.rows.n_features
    for d, candidate in search.best.items():
        assert candidate.n_components == d
        assert candidate.n_centers == criterion.n_centers
        assert candidate.value == pytest.approx(_value(criterion, candidate), rel=1e-7, abs=1e-7)
        dof = d * D - d * (d - 1) / 2 if candidate.kernel.rotation_invariant else d * D
        nats = candidate.value if isinstance(criterion, Evidence) else 0.5 * math.log(candidate.value)
        assert candidate.score == pytest.approx(n_targets * W * nats + 0.5 * dof * math.log(W))
        assert candidate.score == score(criterion, candidate.value, candidate)


FINISHED = [
    ("sines", 0, Evidence, "gaussian"),
    ("noisy", 0, Evidence, "gaussian"),
    ("sines", 1, LeaveOneOut, "gaussian"),
    ("sines", 1, Evidence, "matern32"),
    ("sines", 1, Evidence, "product_laplace"),
]
finished = pytest.mark.parametrize(("problem", "seed", "make", "kernel"), FINISHED)


@finished
def test_the_score_is_the_bic_of_the_criterion(problem, seed, make, kernel):
    _check_scores(_found(problem, seed, make, kernel)[0])


@finished
def test_the_best_of_each_number_has_the_lowest_value_of_all_its_runs(problem, seed, make, kernel):
    search = _found(problem, seed, make, kernel)[0]
    assert len(search.best) > 1
    for d, candidate in search.best.items():
        same = [end for end in search.ends if (end.n_components, end.n_centers) == (d, candidate.n_centers)]
        assert candidate.value == min(end.value for end in same)
        assert [end for end in same if end.value == candidate.value and end.label == candidate.label]


@finished
def test_each_neighbour_of_the_best_number_was_tried(problem, seed, make, kernel):
    search = _found(problem, seed, make, kernel)[0]
    d = _winner(search).n_components
    assert {d - 1, d, d + 1} & set(search.problem.dimensions) <= set(search.best)


@finished
def test_the_spectrum_of_the_winner(problem, seed, make, kernel):
    """Test that the spectrum has one entry for each direction of the map that was truncated.

    The entries are the singular values of this map, divided by the largest singular value.
    """
    search = _found(problem, seed, make, kernel)[0]
    winner = _winner(search)
    assert winner.origin is Origin.CUT
    widths = {end.n_components for end in search.ends if end.origin is not Origin.CUT}
    assert len(winner.spectrum) in widths
    if not any(end.origin is Origin.WIDENED for end in search.ends):
        assert len(winner.spectrum) == starting_width(search.criterion.rows, 1)
    assert winner.spectrum[0] == 1.0
    assert list(winner.spectrum) == sorted(winner.spectrum, reverse=True)
    assert winner.spectrum[-1] >= 0.0
    assert all(isinstance(entry, float) for entry in winner.spectrum)


@finished
def test_the_spectra_of_all_candidates_belong_to_the_maps_from_which_they_were_cut(problem, seed, make, kernel):
    """Test that each map that was cut has a spectrum, and that other maps have none."""
    search = _found(problem, seed, make, kernel)[0]
    for end in search.ends:
        assert (end.spectrum is not None) == (end.origin is Origin.CUT)
        assert end.spectrum is None or len(end.spectrum) >= end.n_components


@short_runs
def test_two_starts_survive_and_the_others_are_dropped():
    """Test that the best two of five starts are kept after the short runs.

    In the list of candidates, the starts that were dropped come first, then the two survivors.
    """
    search = _search(_rows(PROBLEMS["single"](0)), n_starts=4)
    width = starting_width(search.problem.rows, 1)
    starts, others = search.ends[:5], search.ends[5:]
    assert {start.n_components for start in starts} == {width}
    assert [start.dropped for start in starts] == [True] * (5 - SURVIVORS) + [False] * SURVIVORS
    assert sorted(start.origin for start in starts) == ["moments", *["random"] * 4]
    assert min(start.value for start in starts[:-SURVIVORS]) >= max(start.value for start in starts[-SURVIVORS:])
    assert {end.label for end in others} <= {"cut", "widened"}


@pytest.mark.parametrize("dimensions", [[1, 2], *map(thorough, ([2], [1, 3], [4], [1, 2, 3, 4]))])
def test_each_given_number_of_directions_gets_a_candidate(dimensions):
    search = _search(_rows(PROBLEMS["sines"](0)), dimensions, choose=False, n_starts=1)
    assert sorted(search.best) == dimensions
    assert all(math.isfinite(candidate.score) for candidate in search.best.values())
    values = [search.best[d].value for d in dimensions]
    assert values[0] == max(values)
    _check_scores(search)
    if 2 in dimensions:
        assert subspace_distance(search.best[2].B, _true_map(PROBLEMS["sines"](0))) < 0.25


@short_runs
def test_given_numbers_above_the_usual_width_are_possible():
    """Test that starts have the largest given number of directions, and as many centers as `SIZES` has for it."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 12))
    search = _search(InMemoryRows(X, X[:, 0] + 0.1 * rng.normal(size=100)), [1, 10], choose=False)
    assert sorted(search.best) == [1, 10]
    assert {end.n_components for end in search.ends if end.origin is Origin.RANDOM} == {10}
    assert {end.n_centers for end in search.ends} == {100}


@short_runs
@pytest.mark.parametrize("n_rows", [2, 25, thorough(3), thorough(10)])
@pytest.mark.parametrize("make", [Evidence, LeaveOneOut])
def test_few_rows_are_all_centers(n_rows, make):
    """Test that all rows are centers if there are few rows.

    The search then uses the exact criterion, which is not minimized over lambda at each map.
    """
    rows = _rows(PROBLEMS["sines"](0)).subset(np.arange(n_rows))
    search = _search(rows, make=make)
    assert search.criterion.exact
    assert {end.n_centers for end in search.ends} == {n_rows}
    _check_scores(search)


@short_runs
@pytest.mark.parametrize("D", [1, 2])
def test_one_or_two_columns(D):
    X, Y, _ = _rows(PROBLEMS["sines"](0)).gather()
    search = _search(InMemoryRows(X[:, :D], Y))
    assert sorted(search.best) == list(range(1, D + 1))


@short_runs
@pytest.mark.parametrize("what", ["x", "y"])
def test_constant_columns_or_targets_do_not_break_the_search(what):
    X, Y, _ = _rows(make_mim_sines(30, 2, 1, random_state=0)).gather()
    rows = InMemoryRows(0.0 * X, Y) if what == "x" else InMemoryRows(X, 0.0 * Y)
    search = _search(rows)
    assert all(math.isfinite(candidate.score) for candidate in search.best.values())


# ------------------------------------------------------------------------------------------ threads and workers


def _comparable(search):
    return sorted(search.best), [
        (end.label, end.n_components, end.value, end.score, end.nu, end.B.tolist(), end.spectrum) for end in search.ends
    ]


@short_runs
def test_the_result_does_not_depend_on_threads():
    """Test that threads do not change the result. The next test, which is thorough, uses worker processes."""
    rows = _rows(PROBLEMS["single"](0))
    assert _comparable(_search(rows, n_threads=2)) == _comparable(_search(rows))


@pytest.mark.thorough
def test_the_result_does_not_depend_on_worker_processes():
    rows = _rows(PROBLEMS["noisy"](0))
    with joblib.parallel_config(backend="loky"):
        found = _comparable(_search(rows, n_jobs=2))
    assert found == _comparable(_search(rows))


def test_runs_use_workers_only_with_a_joblib_backend_of_processes():
    assert [count_workers(n_jobs) for n_jobs in (None, 1, 2, -1)] == [1] * 4
    with joblib.parallel_config(backend="threading"):
        assert count_workers(2) == 1
    with joblib.parallel_config(backend="loky"):
        assert [count_workers(n_jobs) for n_jobs in (None, 2)] == [1, 2]


@short_runs
def test_a_verbose_search_prints_its_stages_and_the_best_map(capsys):
    _search(_rows(PROBLEMS["single"](0)), progress=Progress())
    assert capsys.readouterr() == ("", "")
    _search(_rows(PROBLEMS["single"](0)), progress=Progress(began=time.perf_counter(), verbose=1))
    lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r" +\d+\.\d s  \d directions at the start, gaussian", lines[0])
    assert re.search(
        r"best so far: 1 direction of 3, gaussian kernel; singular values before the cut: 1\.00 \|( 0\.\d\d)+$",
        lines[-1],
    )


# ------------------------------------------------------------------------------------- stages and more centers


def _phases(states):
    """Return the phases in their order. Consecutive equal phases are listed once."""
    phases = [state.phase for state in states]
    return [phase for k, phase in enumerate(phases) if k == 0 or phase is not phases[k - 1]]


def test_a_decided_search_has_two_phases_and_few_centers():
    """Test that the search ends after the cuts if two starts agree, and the map explains the target."""
    search, states = _found("sines", 0)
    assert _phases(states) == [Phase.STARTS, Phase.CUT]
    assert {end.n_centers for end in search.ends} == {30}
    assert states[0].stage == "4 directions at the start, gaussian"
    assert search.criterion.rows.n_rows == search.problem.rows.n_rows


def test_a_search_that_leaves_much_of_y_unexplained_widens_with_more_centers():
    """Test that a search whose best map leaves much of y unexplained continues with the phases WIDENING and CUT.

    These phases use the number of centers of the next entry of `SIZES`.
    """
    search, states = _found("noisy", 0)
    phases = _phases(states)
    assert phases[:4] == [Phase.STARTS, Phase.CUT, Phase.WIDENING, Phase.CUT]
    assert set(phases[2:]) == {Phase.WIDENING, Phase.CUT}
    assert phases.count(Phase.WIDENING) <= MOST_WIDENINGS
    centers = [end.n_centers for end in search.ends]
    assert centers == sorted(centers)
    assert set(centers) == {30, 60}
    assert {end.n_centers for end in search.ends if end.origin is Origin.WIDENED} == {60}


def test_each_new_best_candidate_is_reported():
    """Test that the last reported candidate is the winner of the search.

    Among reported candidates with the same number of centers, each has a lower score than the one before.
    """
    search = _found("noisy", 0)[0]
    progress = search.problem.progress
    assert progress.best[-1] is _winner(search)
    for n in {candidate.n_centers for candidate in progress.best}:
        scores = [candidate.score for candidate in progress.best if candidate.n_centers == n]
        assert scores == sorted(scores, reverse=True)


@short_runs
def test_a_map_with_many_directions_is_searched_with_more_rows_and_centers(monkeypatch):
    """Test that a search which finds two directions continues with the rows and centers for two directions.

    The search begins with 80 rows and 20 centers, and continues with 90 rows and 40 centers. All candidates in `best`
    must then be optimized again, because values with different centers are not comparable.
    """
    monkeypatch.setattr(directions, "SIZES", ((1, 80, 20), (2, 90, 40), (math.inf, 100, 60)))
    data = PROBLEMS["weak"](0)
    search = _search(_rows(data))
    _check_directions(search, data, 0.5)
    assert {end.n_centers for end in search.ends} == {20, 40}
    assert search.criterion.rows.n_rows == 90
    assert len({row.tobytes() for row in search.criterion.rows.gather()[0]}) == 90
    assert len({row.tobytes() for row in search.criterion.centers}) == 40
    _check_scores(search)


@short_runs
def test_there_are_never_more_centers_than_rows():
    search = _search(_rows(make_mim_sines(50, 4, 2, noise=1.0, random_state=0)))
    assert {end.n_centers for end in search.ends} == {30, 50}


@short_runs
def test_widening_finds_directions_that_the_starts_lack(monkeypatch):
    """Test that two directions are found, although the starting maps have only one direction."""
    monkeypatch.setattr(directions, "starting_width", lambda *given: 1)
    states, data = [], PROBLEMS["weak"](0)
    search = _search(_rows(data), n_starts=1, progress=Progress([states.append]))
    _check_directions(search, data)
    assert states[0].stage == "one direction, gaussian"
    assert Phase.WIDENING in _phases(states)
    assert _winner(search).origin is Origin.CUT


def test_the_widest_map_is_not_the_best_before_a_wider_map_was_tried():
    """Test that the search tries a map with one direction more than the best map.

    The target depends on four directions, one of them weakly. There are so few rows that the starting maps have three
    directions. Maps with three directions explain more than nine tenths of the target, and the two best starts have the
    same directions.
    """
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 20))
    y = X[:, 0] + 0.6 * X[:, 1] ** 2 + X[:, 0] * X[:, 2] + 0.2 * X[:, 3] ** 2 + 0.02 * rng.normal(size=120)
    search = _search(InMemoryRows(X, y - y.mean()))
    assert starting_width(search.problem.rows, 1) == 3
    assert _winner(search).n_components + 1 in search.best


@short_runs
def test_two_starts_that_disagree_are_widened(monkeypatch):
    """Test that a map is widened if the two best starts have different directions, although the map explains y.

    Widening ends as soon as it finds no new direction.
    """
    answers = []

    def disagree(one, other):
        answers.append(same_directions(one, other))
        return False if len(answers) <= 2 else answers[-1]  # the starts are compared before and after the cuts

    monkeypatch.setattr(directions, "same_directions", disagree)
    states = []
    search = _search(_rows(PROBLEMS["single"](0)), progress=Progress([states.append]))
    assert _phases(states) == [Phase.STARTS, Phase.CUT, Phase.WIDENING, Phase.CUT]
    widened = [end for end in search.ends if end.origin is Origin.WIDENED]
    assert [end.n_components for end in widened] == [3, 3]
    assert {end.n_centers for end in search.ends} == {30}
    _check_directions(search, PROBLEMS["single"](0))


def test_a_map_is_widened_at_most_six_times(monkeypatch):
    """Test that widening ends after six times, even if each run finds new directions with a lower score."""
    values = iter(range(0, -10_000, -1))

    def improve_each(criterion, starts, *given, **options):
        return [replace(start, value=value, score=value) for start, value in zip(starts, values, strict=False)]

    monkeypatch.setattr("hkrr.estimators.search.search_problem.improve_each", improve_each)
    monkeypatch.setattr(directions, "same_directions", lambda *given: False)
    states, rng = [], np.random.default_rng(0)
    rows = InMemoryRows(rng.normal(size=(60, 9)), rng.normal(size=60))
    _search(rows, range(1, 6), progress=Progress([states.append]))
    assert _phases(states).count(Phase.WIDENING) == MOST_WIDENINGS


def test_a_wide_map_that_becomes_the_best_with_more_centers_is_cut():
    """Test that the right number of directions is found if only the search with more centers can learn the target.

    The criterion of this test is constant if there are few centers.
    """

    class ConstantWithFewCenters(Evidence):
        def profiled(self, B):
            reduced = super().profiled(B)
            if self.n_centers > 30:
                return reduced
            return replace(reduced, value=1.0, grad=np.zeros_like(B), reg_lambda=1e3)

    data = PROBLEMS["mixed"](0)
    search = _search(_rows(data), make=ConstantWithFewCenters)
    assert search.criterion.n_centers == 60
    assert _winner(search).n_components == len(data.B)


# -------------------------------------------------------------------------------- number of evaluations and time


@pytest.fixture
def clock(monkeypatch):
    """Replace the time of the library by the number of evaluations of the evidence."""
    clock = Clock(monkeypatch)
    monkeypatch.setattr(time, "perf_counter", lambda: clock.now)
    return clock


@pytest.mark.parametrize(("problem", "seed"), [("sines", 0), ("single", 0), thorough("single", 1), thorough("weak", 0)])
def test_a_decided_search_needs_few_evaluations(problem, seed):
    """Test that the number of evaluations is at most 2.5 times the largest possible number of iterations.

    The largest numbers of iterations are TRIAL_RUN for the first run from each start, FULL_RUN for the further run of
    each survivor, and RUN_AFTER_CUT for each run after a cut.
    """
    search, _, n_evaluations = _counted(problem, seed, Evidence, "gaussian")
    assert Origin.WIDENED not in {end.origin for end in search.ends}
    n_cuts = sum(end.origin is Origin.CUT for end in search.ends)
    assert n_cuts <= 3 * SURVIVORS
    assert n_evaluations <= 2.5 * (
        (search.problem.n_starts + 1) * TRIAL_RUN + SURVIVORS * FULL_RUN + n_cuts * RUN_AFTER_CUT
    )


@short_runs
@pytest.mark.parametrize("options", [{}, {"n_threads": 2}, {"make": LeaveOneOut}])
def test_after_the_deadline_there_is_still_a_candidate(options):
    search = _search(_rows(PROBLEMS["sines"](0)), deadline=0.0, **options)
    assert all(math.isfinite(candidate.score) for candidate in search.best.values())
    _check_scores(search)


@short_runs
@pytest.mark.parametrize("dimensions", [[1], [2], [1, 3], [4]])
def test_after_the_deadline_there_is_still_a_candidate_with_a_given_number_of_directions(dimensions):
    search = _search(_rows(PROBLEMS["sines"](0)), dimensions, choose=False, deadline=0.0)
    assert search.best
    assert set(search.best) <= set(dimensions)
    assert all(math.isfinite(candidate.score) for candidate in search.best.values())


@pytest.mark.parametrize("deadline", [0, 1, 40, 120, *map(thorough, range(20, 400, 20))])
def test_a_deadline_can_pass_at_any_time(clock, deadline):
    """Test that there is a valid candidate if the deadline passes after any number of evaluations.

    At most 20 evaluations are made after the deadline.
    """
    search = _search(_rows(PROBLEMS["noisy"](0)), deadline=deadline)
    assert math.isfinite(_winner(search).score)
    assert clock.now <= deadline + 20
    for d, candidate in search.best.items():
        assert candidate.n_components == d
        assert candidate.n_centers == search.criterion.n_centers


@short_runs
def test_a_deadline_that_passes_while_centers_are_added_does_not_change_the_number_of_directions(clock, monkeypatch):
    """Test that the best map remains the best if the deadline passes when the search continues with more centers.

    It must not be replaced by a wide map that was never cut.
    """
    monkeypatch.setattr(directions, "SIZES", ((1, 2_000, 20), (math.inf, 2_000, 40)))

    class Slow(Evidence):
        def __init__(self, rows, centers, *given):
            super().__init__(rows, centers, *given)
            if self.n_centers == 40:
                clock.now = 1e6

    progress = Progress()
    search = _search(_rows(PROBLEMS["weak"](0)), make=Slow, deadline=1e6, progress=progress)
    before = [candidate for candidate in progress.best if candidate.n_centers == 20]
    assert before[-1].n_components == 2
    assert _winner(search).n_components == 2


@short_runs
def test_the_seconds_of_all_candidates_add_up_to_the_time_of_their_runs(clock):
    """Test that no run is counted twice."""
    search = _search(_rows(PROBLEMS["noisy"](0)))
    assert {end.n_centers for end in search.ends} == {30, 60}
    assert 0.0 < sum(end.seconds for end in search.ends) <= clock.now


# ------------------------------------------------------------------------------------------------- failures


def _raise(reduced):
    raise FloatingPointError("overflow")


def _raise_linear_algebra(reduced):
    raise np.linalg.LinAlgError("not positive definite")


HOW = {
    "raises": _raise,
    "raises LinAlgError": _raise_linear_algebra,
    "inf": lambda reduced: replace(reduced, value=math.inf),
    "nan": lambda reduced: replace(reduced, value=math.nan),
}
failures = pytest.mark.parametrize("how", ["raises", "nan", *map(thorough, ("raises LinAlgError", "inf"))])


def _failing(how, fails):
    """Return a criterion that fails at each map B for which ``fails(criterion, B)`` is true."""

    class Failing(Evidence):
        def profiled(self, B):
            reduced = super().profiled(B)
            return HOW[how](reduced) if fails(self, B) else reduced

    return Failing


SOME_NUMBERS = [("raises", 3, False), ("nan", 1, True)]


@short_runs
@pytest.mark.parametrize(
    ("how", "d", "choose"),
    [
        *SOME_NUMBERS,
        *(thorough(*each) for each in itertools.product(HOW, (1, 2, 3), (True, False)) if each not in SOME_NUMBERS),
    ],
)
def test_a_number_of_directions_without_a_finite_criterion_is_left_out(how, d, choose):
    make = _failing(how, lambda criterion, B: len(B) == d)
    search = _search(_rows(PROBLEMS["mixed"](0)), make=make, choose=choose)
    assert d not in search.best
    assert _winner(search).n_components == (2 if d != 2 else 3)
    if not choose:
        assert sorted(search.best) == sorted({1, 2, 3, 4} - {d})
    for end in search.ends:
        assert math.isfinite(end.value) == (end.n_components != d)
        assert end.dropped or math.isfinite(end.value)


@short_runs
@failures
def test_a_start_that_fails_is_dropped(how):
    """Test that the search continues with one start if all others fail."""
    first = []

    def fails(criterion, B):
        """Return whether B is a wide map (four directions) that is far from the first start.

        The criterion fails at these maps, so that only the run from the first start succeeds.
        """
        first.append(B)
        return len(B) == 4 and subspace_distance(B[:2], first[0][:2]) > 0.5

    search = _search(_rows(PROBLEMS["mixed"](0)), make=_failing(how, fails), n_starts=3)
    starts = [end for end in search.ends if end.origin in (Origin.RANDOM, Origin.MOMENTS)]
    assert sum(math.isfinite(start.value) for start in starts) == 1
    assert all(start.dropped for start in starts if not math.isfinite(start.value))
    assert math.isfinite(_winner(search).score)


@short_runs
@failures
@pytest.mark.parametrize("share", [0.3, thorough(0.05)])
def test_a_criterion_that_fails_now_and_then_is_no_problem(how, share):
    make = _failing(how, lambda criterion, B: (1e6 * abs(B[0, 0])) % 1.0 < share)
    search = _search(_rows(PROBLEMS["single"](0)), make=make, n_starts=4)
    assert all(math.isfinite(candidate.score) for candidate in search.best.values())
    _check_scores(search)


@short_runs
@failures
def test_candidates_are_kept_if_the_criterion_fails_with_more_centers(how):
    """Test that the candidates found with few centers are returned if none can be evaluated with more centers."""
    make = _failing(how, lambda criterion, B: criterion.n_centers > 30)
    search = _search(_rows(PROBLEMS["noisy"](0)), make=make)
    assert math.isfinite(_winner(search).score)


@dataclass(frozen=True, kw_only=True)
class NotANumber(Radial):
    """A kernel whose values are all NaN."""

    def value_and_decay(self, u):
        return np.full_like(u, np.nan), np.full_like(u, np.nan)


NO_CANDIDATE = "not finite for any starting map: check the scale of X and y"


@failures
@pytest.mark.parametrize("deadline", [0.0, math.inf])
def test_without_any_finite_criterion_the_search_raises(how, deadline):
    make = _failing(how, lambda criterion, B: True)
    with pytest.raises(FitError, match=NO_CANDIDATE):
        _prepared(_rows(PROBLEMS["sines"](0)), make=make, deadline=deadline).run()


@pytest.mark.parametrize("make", [Evidence, LeaveOneOut])
@pytest.mark.parametrize("n_rows", [20, 150])
def test_with_a_kernel_that_is_not_a_number_the_search_raises(make, n_rows):
    rows = _rows(PROBLEMS["sines"](0)).subset(np.arange(n_rows))
    with pytest.raises(FitError, match=NO_CANDIDATE):
        _prepared(rows, make=make, kernel=NotANumber(gamma=1.0)).run()
