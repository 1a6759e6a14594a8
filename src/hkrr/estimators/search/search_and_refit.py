"""Model selection by a criterion: the search on a sample, then the final fit on all rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hkrr.estimators.search.candidates import Candidate
from hkrr.estimators.search.final_fit import FinalFit, TimeBudget, final_fit, quick_fit
from hkrr.estimators.search.progress import Phase
from hkrr.estimators.search.search_stages import Task, tune
from hkrr.kernels import Kernel
from hkrr.rows import Rows


@dataclass(frozen=True)
class Selection:
    """The result of a search: the selected model and its final fit.

    Attributes
    ----------
    winner : Candidate
        The selected candidate.
    candidates : list of Candidate
        All candidates tried. After Ctrl-C, only the winner.
    fit : FinalFit
        The final fit, with the coefficients.
    interrupted_by : KeyboardInterrupt or None
        The exception if Ctrl-C stopped the search, otherwise None. After Ctrl-C, the winner is the best candidate so
        far, and its coefficients are fitted on the sample of the search instead of all rows.
    """

    winner: Candidate
    candidates: list[Candidate]
    fit: FinalFit
    interrupted_by: KeyboardInterrupt | None = None


def select_model(
    rows: Rows, task: Task, kernel: Kernel | None, n_centers: int, budget: TimeBudget, keep_best: bool
) -> Selection:
    """Run the search of a task, fit the coefficients of the winner on all rows, and return the result.

    Parameters
    ----------
    rows : Rows
        All rows, standardized, for the final fit.
    task : Task
        The input of the search. Its rows are a sample of `rows` in memory.
    kernel : Kernel or None
        The kernel. If None, the kernel and the shape of the map are selected too.
    n_centers : int
        Maximum number of centers of the final fit. There are fewer centers if the time left is too short.
    budget : TimeBudget
        Divides the time limit between the search and the final fit.
    keep_best : bool
        Whether the best model so far is returned after Ctrl-C. Otherwise KeyboardInterrupt is raised.
    """
    try:
        winner, result, candidates = tune(task, kernel)
        n_centers = budget.affordable_centers(winner.kernel, n_centers)
        task.progress.begin("final fit on all rows", Phase.FINAL_FIT)
        return Selection(winner, candidates, final_fit(rows, winner, result, n_centers, task.rng))
    except KeyboardInterrupt as stop:
        if not keep_best or not task.progress.best:
            raise
        best = task.progress.best[-1]
        try:
            return Selection(best, [best], quick_fit(task.rows, best), stop)
        except (ArithmeticError, np.linalg.LinAlgError):
            # The best candidate cannot be fitted, so there is no model to keep.
            raise stop from None
