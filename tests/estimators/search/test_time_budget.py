"""Tests of the predicted duration of the final fit, and of the division of a time limit."""

import math
import time
from itertools import pairwise

import numpy as np
import pytest

from hkrr.estimators.search.candidates import Candidate, Origin
from hkrr.estimators.search.time_budget import DurationModel, TimeBudget
from hkrr.kernels import Anova, Gaussian
from hkrr.rows import InMemoryRows


def _rows(n_features):
    return InMemoryRows(np.zeros((2, n_features)), np.zeros(2))


duration_models = pytest.mark.parametrize(
    "settings",
    [(Gaussian(gamma=1.0), _rows(1), 1), (Gaussian(gamma=1.0), _rows(30), 2), (Anova(gamma=1.0), _rows(6), 1)],
    ids=["gaussian, 1 column", "gaussian, 30 columns", "anova, 6 columns"],
)
# Time budgets in seconds.
BUDGETS = [-1.0, 0.0, *(10.0**k for k in range(-9, 7)), math.inf]


@duration_models
def test_seconds_grow_with_rows_and_with_centers(settings):
    duration = DurationModel(*settings)
    by_rows = [duration.seconds(n, 100) for n in (100, 1000, 10_000, 10**6)]
    by_centers = [duration.seconds(10_000, c) for c in (1, 10, 100, 1000, 4000)]
    exact = [duration.seconds(n, n) for n in (1, 10, 100, 1000, 10_000)]
    assert 0.0 < by_rows[0] < math.inf
    for seconds in (by_rows, by_centers, exact):
        assert all(one < other for one, other in pairwise(seconds))


@duration_models
@pytest.mark.parametrize(("n_rows", "n_centers"), [(1, 1), (300, 2000), (2000, 300), (20_000, 4000), (10**6, 4000)])
def test_affordable_centers(settings, n_rows, n_centers):
    """Test that a larger time budget never gives fewer centers, and that the predicted duration is within the budget.

    There are at least 500 centers, or as many as possible if this is fewer, even if the predicted duration exceeds the
    budget. If all rows are to be centers, up to half of the rows may be left out.
    """
    duration, most = DurationModel(*settings), min(n_rows, n_centers)
    found = [duration.affordable(n_rows, n_centers, budget) for budget in BUDGETS]
    for (rows, centers), budget in zip(found, BUDGETS, strict=True):
        assert isinstance(centers, int)
        assert 1 <= centers <= most
        assert rows == n_rows or (n_centers >= n_rows and rows == centers >= n_rows // 2)
        assert (rows, centers) == (n_rows, min(500, most)) or duration.seconds(rows, centers) <= budget
    assert [centers for _, centers in found] == sorted(centers for _, centers in found)
    assert (found[0], found[-1]) == ((n_rows, min(500, most)), (n_rows, most))


@duration_models
def test_a_budget_between_one_center_and_all_is_used(settings):
    """Test that half the predicted duration for all centers allows more than one center, but not all centers."""
    duration = DurationModel(*settings)
    assert 1 < duration.affordable(20_000, 4000, duration.seconds(20_000, 4000) / 2.0)[1] < 4000
    assert duration.affordable(20_000, 4000, 1.01 * duration.seconds(20_000, 4000)) == (20_000, 4000)


@duration_models
def test_rows_are_left_out_if_there_is_no_time_for_all_of_them_as_centers(settings):
    duration = DurationModel(*settings)
    n_rows, n_centers = duration.affordable(10_000, 10_000, 1.01 * duration.seconds(7_000, 7_000))
    assert n_rows == n_centers == 7_000


@duration_models
def test_a_factorization_that_fails_in_float32_takes_longer(settings):
    """Test that a tiny nu adds a factorization in float64 if all rows are centers, so fewer rows are affordable."""
    duration = DurationModel(*settings)
    moderate, small = _candidates(0.1, 1e-6)
    tiny = duration.seconds(4_000, 4_000, small)
    assert tiny > duration.seconds(4_000, 4_000, moderate)
    assert duration.seconds(4_000, 500, small) == duration.seconds(4_000, 500, moderate)
    budget = (tiny + duration.seconds(4_000, 4_000, moderate)) / 2.0
    assert duration.affordable(4_000, 4_000, budget, moderate) == (4_000, 4_000)
    n_rows, n_centers = duration.affordable(4_000, 4_000, budget, small)
    assert 2_000 <= n_rows == n_centers < 4_000


def _budget(monkeypatch, limit, left):
    """Return a time budget with the time limit `limit`, of which `left` seconds are left for final fits.

    A fit of a candidate with noise level nu to all 1,000 rows takes 10 nu seconds. With fewer rows, the time is
    proportional to the number of rows.
    """
    monkeypatch.setattr(DurationModel, "__init__", lambda *_: None)
    monkeypatch.setattr(DurationModel, "seconds", lambda _, n_rows, n_centers, one: 10.0 * one.nu * n_rows / 1_000)
    rows = InMemoryRows(np.random.default_rng(0).normal(size=(1_000, 2)), np.zeros(1_000))
    began = 0.0 if limit is None else time.perf_counter() - 0.97 * limit + left
    return TimeBudget(rows, limit, began, 0.0, 1)


def _candidates(*noises):
    return [Candidate(Origin.PLAIN, Gaussian(gamma=1.0), np.ones(2), nu) for nu in noises]


@duration_models
def test_maps_with_few_parameters_need_no_gradients(settings):
    """Test that interval scores take less time if the map has few parameters compared with the number of rows."""
    duration = DurationModel(*settings)
    few, many = _candidates(0.1)[0], Candidate(Origin.PLAIN, Gaussian(gamma=1.0), np.ones(100), 0.1)
    for n_centers in (500, 4_000):
        assert duration.seconds(4_000, n_centers, few) < duration.seconds(4_000, n_centers, many)


@pytest.mark.parametrize(
    ("limit", "left", "expected"),
    [(None, 0.0, 3), (100.0, 61.0, 3), (100.0, 59.0, 2), (100.0, 29.0, 1), (100.0, 0.0, 1)],
)
def test_affordable_fits_adds_the_times_of_the_candidates(monkeypatch, limit, left, expected):
    """Test how many of three fits, which take 10, 20 and 30 s in this order, are possible in the time left.

    At least one fit is made, even if it takes too long. Without a time limit, all fits are made.
    """
    budget = _budget(monkeypatch, limit, left)
    assert budget.affordable_fits(_candidates(1.0, 2.0, 3.0), 1_000) == expected
    if left == 59.0:
        assert budget.affordable_fits(_candidates(6.0, 1.0), 1_000) == 1
        assert budget.affordable_fits(_candidates(5.0), 1_000) == 1


def test_affordable_size_depends_on_the_candidate_and_the_number_of_fits(monkeypatch):
    """Test that the time left is divided by the number of fits, and that the predicted time depends on nu."""
    budget = _budget(monkeypatch, 100.0, 21.0)
    sizes = [budget.affordable_size(*_candidates(nu), 1_000, n_fits) for nu, n_fits in ((2.0, 1), (2.5, 1), (2.0, 2))]
    assert sizes == [(1_000, 1_000), (800, 800), (500, 500)]
    assert _budget(monkeypatch, None, 0.0).affordable_size(*_candidates(1e9), 1_000, 3) == (1_000, 1_000)
