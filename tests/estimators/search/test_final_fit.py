"""Tests of the final fit: the number of centers, and resuming from a checkpoint."""

import pytest

from hkrr import HyperKernelRidgeCV
from hkrr.estimators.fitted import diagnostics
from hkrr.estimators.search.final_fit import full_size
from hkrr.objective import Objective
from support.killed_fits import data

# Cases: number of rows, and numbers of centers with smooth=True and with smooth=False.
SIZES = [(1, 1, 1), (4999, 4999, 4999), (5000, 5000, 5000), (5001, 2000, 5001), (10_000, 2000, 10_000)]
SIZES += [(10_001, 2000, 4000), (10**7, 2000, 4000)]


@pytest.mark.parametrize(("n_rows", "smooth", "rough"), SIZES)
def test_full_size(n_rows, smooth, rough):
    assert (full_size(n_rows, smooth=True), full_size(n_rows, smooth=False)) == (smooth, rough)


@pytest.mark.filterwarnings("ignore::hkrr.EdgeWarning")  # there are only two values of n_components to choose from
@pytest.mark.parametrize("refit", ["full", 30])
def test_a_finished_checkpoint_needs_no_further_solve(tmp_path, monkeypatch, refit):
    """Test that a repeated fit with a finished checkpoint gives the same diagnostics without solving again.

    The diagnostics check the predictions on a sample of 50 rows.
    """
    X, y = data()
    monkeypatch.setattr(diagnostics, "_SAMPLE_ROWS", 50)
    solves = []
    original = Objective.solve
    monkeypatch.setattr(Objective, "solve", lambda *given: solves.append(1) or original(*given))

    def report():
        options = {"n_init": 1, "random_state": 0, "checkpoint": tmp_path / "fit.checkpoint"}
        return HyperKernelRidgeCV([1, 2], refit=refit, **options).fit(X, y).diagnostics_

    first = report()
    assert solves
    solves.clear()
    assert report() == first
    assert solves == []
