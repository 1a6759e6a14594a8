"""How many centers the last fit has, what its clock promises, and what a checkpoint keeps of it."""

import math
from itertools import pairwise

import pytest

from hkrr import HyperKernelRidgeCV, examination
from hkrr.kernels import Anova, Gaussian
from hkrr.last_fit import Clock, full_size
from hkrr.objective import Objective
from victims import data

clocks = pytest.mark.parametrize(
    "settings", [(Gaussian(gamma=1.0), 1, 1), (Gaussian(gamma=1.0), 30, 2), (Anova(gamma=1.0), 6, 1)], ids=str
)
BUDGETS = [-1.0, 0.0, *(10.0**k for k in range(-9, 7)), math.inf]
SIZES = [(1, 1, 1), (4999, 4999, 4999), (5000, 5000, 5000), (5001, 2000, 5001), (10_000, 2000, 10_000)]
SIZES += [(10_001, 2000, 4000), (10**7, 2000, 4000)]


@pytest.mark.parametrize(("n_rows", "smooth", "rough"), SIZES)
def test_full_size(n_rows, smooth, rough):
    assert (full_size(n_rows, smooth=True), full_size(n_rows, smooth=False)) == (smooth, rough)


@clocks
def test_seconds_grow_with_rows_and_with_centers(settings):
    clock = Clock(*settings)
    by_rows = [clock.seconds(n, 100) for n in (100, 1000, 10_000, 10**6)]
    by_centers = [clock.seconds(10_000, c) for c in (1, 10, 100, 1000, 4000)]
    exact = [clock.seconds(n, n) for n in (1, 10, 100, 1000, 10_000)]
    assert 0.0 < by_rows[0] < math.inf
    for seconds in (by_rows, by_centers, exact):
        assert all(one < other for one, other in pairwise(seconds))


@clocks
@pytest.mark.parametrize(("n_rows", "n_centers"), [(1, 1), (300, 2000), (2000, 300), (20_000, 4000), (10**6, 4000)])
def test_affordable_centers(settings, n_rows, n_centers):
    """One at least, all at most, more for more seconds, and by the same clock in time."""
    clock, most = Clock(*settings), min(n_rows, n_centers)
    found = [clock.affordable(n_rows, n_centers, budget) for budget in BUDGETS]
    assert all(isinstance(n, int) and 1 <= n <= most for n in found)
    assert found == sorted(found)
    assert (found[0], found[-1]) == (1, most)
    for n, budget in zip(found, BUDGETS, strict=True):
        assert n == 1 or clock.seconds(n_rows, n) <= budget


@clocks
def test_a_budget_between_one_center_and_all_is_used(settings):
    """Half the time of all centers buys fewer than all, and more than one."""
    clock = Clock(*settings)
    assert 1 < clock.affordable(20_000, 4000, clock.seconds(20_000, 4000) / 2.0) < 4000
    assert clock.affordable(20_000, 4000, 1.01 * clock.seconds(20_000, 4000)) == 4000


@pytest.mark.filterwarnings("ignore::hkrr.EdgeWarning")  # of one or two directions to choose from
@pytest.mark.parametrize("refit", ["full", 30])
def test_a_finished_checkpoint_has_nothing_to_solve_again(tmp_path, monkeypatch, refit):
    """The report is the first one's, also where predictions are looked at on a part of the rows only."""
    X, y = data()
    monkeypatch.setattr(examination, "SAMPLE_ROWS", 50)
    solves = []
    original = Objective.solve_alpha
    monkeypatch.setattr(Objective, "solve_alpha", lambda *given: solves.append(1) or original(*given))

    def report():
        options = {"n_init": 1, "random_state": 0, "checkpoint": tmp_path / "fit.checkpoint"}
        return HyperKernelRidgeCV([1, 2], refit=refit, **options).fit(X, y).diagnostics_

    first = report()
    assert solves
    solves.clear()
    assert report() == first
    assert solves == []
