"""Model selection by a criterion: the search on a sample, then the final fit on all rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hkrr._base.linear_algebra import Array, project
from hkrr._maps import KernelExpansion
from hkrr.estimators.search.candidates import Candidate
from hkrr.estimators.search.final_fit import FinalFit, TimeBudget, final_fit, quick_fit
from hkrr.estimators.search.progress import Phase
from hkrr.estimators.search.robust_noise import Errors, shows_outliers, student_weights
from hkrr.estimators.search.search_problem import SearchProblem
from hkrr.estimators.search.search_stages import tune
from hkrr.kernels import Kernel
from hkrr.kernels.expansion import expand
from hkrr.rows import InMemoryRows, Rows
from hkrr.rows.reweighted import ReweightedRows


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
    y_offset : array (n_targets,) or None
        With the heavy-tailed (Student-t) noise model, the weighted mean of the targets minus their unweighted mean. The
        weights of the noise model give outliers little influence on this mean. None with normal noise.
    interrupted_by : KeyboardInterrupt or None
        The exception if Ctrl-C stopped the search, otherwise None. After Ctrl-C, the winner is the best candidate so
        far, and its coefficients are fitted on the sample of the search instead of all rows.
    """

    winner: Candidate
    candidates: list[Candidate]
    fit: FinalFit
    y_offset: Array | None = None
    interrupted_by: KeyboardInterrupt | None = None


def select_model(
    rows: Rows, problem: SearchProblem, kernel: Kernel | None, n_centers: int, budget: TimeBudget, keep_best: bool
) -> Selection:
    """Run the search, fit the coefficients of the winner on all rows, and return the result.

    Parameters
    ----------
    rows : Rows
        All rows, standardized, for the final fit.
    problem : SearchProblem
        The input of the search. Its rows are a sample of `rows` in memory.
    kernel : Kernel or None
        The kernel. If None, the kernel and the shape of the map are selected too.
    n_centers : int
        Maximum number of centers of the final fit. The fit uses fewer centers if too little time is left.
    budget : TimeBudget
        Divides the time limit between the search and the final fit.
    keep_best : bool
        If True, the best model so far is returned after Ctrl-C. If False, KeyboardInterrupt is raised.
    """
    try:
        tuned = tune(problem, kernel)
        winner = tuned.winner
        n_centers = budget.affordable_centers(winner.kernel, n_centers)
        problem.progress.begin("final fit on all rows", Phase.FINAL_FIT)
        robust, y_offset = robust_rows(rows, problem.rows, winner, tuned.omega)
        given = None if y_offset is None else rows
        fit = final_fit(robust, winner, tuned.result, n_centers, problem.rng, given=given)
        problem.progress.print("the fit is complete")
        return Selection(winner, tuned.candidates, fit, y_offset)
    except KeyboardInterrupt as stop:
        if not keep_best or not problem.progress.best:
            raise
        best = problem.progress.best[-1]
        try:
            robust, y_offset = robust_rows(problem.rows, problem.rows, best, problem.progress.omega_of_best)
            return Selection(best, [best], quick_fit(robust.in_memory(), best), y_offset, stop)
        except (ArithmeticError, np.linalg.LinAlgError):
            # The best candidate cannot be fitted, so there is no model to keep.
            raise stop from None


def robust_rows(rows: Rows, sample: InMemoryRows, winner: Candidate, omega: Array | None) -> tuple[Rows, Array | None]:
    """Return the rows with the weights of the heavy-tailed noise, and the offset by which their targets were shifted.

    `omega` contains the weights of the rows of `sample`. If the sample contains all rows, these weights are used.
    Otherwise the weights of all rows are computed from the residuals of a fit to the sample. If `omega` is None, the
    rows are returned unchanged, and the offset is None.
    """
    if omega is None:
        return rows, None
    weighted = sample.reweighted(omega)
    shift = np.zeros(rows.n_targets) if sample.y_offset is None else weighted.y_offset - sample.y_offset
    if rows.n_rows == sample.n_rows:
        return rows.reweighted(omega), shift
    fitted = quick_fit(weighted, winner, with_uncertainty=False)
    B, centers, alpha, kernel = winner.B, fitted.objective.centers, fitted.result.alpha, winner.kernel
    X, Y, _ = weighted.gather()
    residuals = Y - KernelExpansion(kernel, B, centers, alpha).at(X)
    shown = np.flatnonzero(shows_outliers(Y))
    scale = Errors(residuals[:, shown] ** 2, np.zeros(len(Y))).scale

    def factors(X: Array, Y: Array, B: Array, C: Array, alpha: Array, shift: Array, scale: Array) -> Array:
        residuals = Y - shift - expand(kernel, X, B, C, alpha)
        return student_weights(residuals[:, shown] ** 2, scale)

    small = tuple(rows.place(array) for array in (B, project(centers, B), alpha, shift, scale))
    robust = ReweightedRows(rows, factors, len(centers), small, center=sample.y_offset is not None)
    return robust, robust.y_mean
