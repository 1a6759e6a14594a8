"""Model selection by a criterion: the search on a sample, then the final fits of one model or of an ensemble.

A candidate of the search is a kernel, a map and a noise level. The winner is the best candidate. The finalists are the
candidates from which an ensemble can be made, and its members are the finalists with positive weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from hkrr._base.linear_algebra import Array, project
from hkrr._base.threads import in_threads, single_threaded_blas
from hkrr._maps import KernelExpansion
from hkrr.estimators.search.candidates import Candidate, unchanged
from hkrr.estimators.search.final_fit import FinalFit, final_fit, quick_fit
from hkrr.estimators.search.held_out_check import HeldOutCheck
from hkrr.estimators.search.progress import Phase, SearchStopped
from hkrr.estimators.search.robust_noise import Errors, shows_outliers, student_weights
from hkrr.estimators.search.search_problem import SearchProblem
from hkrr.estimators.search.search_stages import Tuned, subset, tune
from hkrr.estimators.search.stacking import CROSS_FIT_PRICE, PRICE, stacking_weights
from hkrr.estimators.search.time_budget import TimeBudget
from hkrr.kernels import Kernel
from hkrr.kernels.expansion_values import expand
from hkrr.rows import InMemoryRows, Rows
from hkrr.rows.reweighted import ReweightedRows
from hkrr.rows.standardize import Moments
from hkrr.solvers import Result
from hkrr.solvers.driver import StopReason

# Minimum number of rows on which the weights of an ensemble are computed. If there are fewer rows, all rows are used.
_WEIGHING_ROWS = 2_000
# Maximum number of rows for cross-fitting (`hkrr.estimators.search.stacking`).
_CROSS_FIT_ROWS = 1_000
# Candidates are cross-fitted only if their score is at most this number of nats per row and target above the best.
_MOST_NATS = 0.5


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
        With the heavy-tailed (Student-t) noise model, the weighted mean of the targets minus their unweighted mean. In
        the weighted mean, the weights of the noise model reduce the influence of outliers. None with normal noise.
    interrupted_by : KeyboardInterrupt or None
        The exception if Ctrl-C stopped the search, otherwise None. After Ctrl-C, the winner is the best candidate so
        far, and its coefficients are fitted on the sample of the search instead of all rows.
    """

    winner: Candidate
    candidates: list[Candidate]
    fit: FinalFit
    y_offset: Array | None = None
    interrupted_by: KeyboardInterrupt | None = None


@dataclass(frozen=True)
class Ready:
    """Everything that a search and its final fits need.

    Attributes
    ----------
    rows : Rows
        All rows, standardized, for the final fits.
    scaling : Moments
        The moments with which the rows were standardized.
    problem : SearchProblem
        The input of the search. Its rows are a sample of `rows` in memory.
    budget : TimeBudget
        Divides the time limit between the search and the final fits.
    n_centers : int
        Maximum number of centers of a final fit. The fit uses fewer centers if too little time is left.
    """

    rows: Rows
    scaling: Moments
    problem: SearchProblem
    budget: TimeBudget
    n_centers: int


def select_model(ready: Ready, kernel: Kernel | None, keep_best: bool) -> Selection:
    """Run the search, fit the coefficients of the winner on all rows, and return the result.

    If `kernel` is None, the kernel and the shape of the map are selected too. After Ctrl-C, the best model so far is
    returned if `keep_best` is True. Otherwise KeyboardInterrupt is raised.
    """
    problem = ready.problem
    try:
        tuned = tune(problem, kernel)
        size = ready.budget.affordable_size(tuned.winner, ready.n_centers)
        problem.progress.begin("final fit on all rows", Phase.FINAL_FIT)
        fit, y_offset = _final_fit(ready, tuned.winner, tuned.result, tuned.omega, *size)
        problem.progress.print("the fit is complete")
        return Selection(tuned.winner, tuned.candidates, fit, y_offset)
    except KeyboardInterrupt as stop:
        return _best_so_far(problem, stop, keep_best)


def select_members(ready: Ready, keep_best: bool) -> tuple[list[Selection], Array]:
    """Run the search, compute the weights of its best candidates, and fit the candidates with positive weights.

    Return the fitted candidates (the members of the ensemble), largest weight first, and their weights. There is at
    least one member, possibly with the weight 0. See `select_model` for `keep_best`.
    """
    problem, budget = ready.problem, ready.budget
    try:
        tuned = tune(problem, None)
        try:
            finalists, weigh = _weights_of_finalists(problem, tuned)
        except SearchStopped:
            tuned = replace(tuned, result=unchanged(tuned.winner, 0.0, StopReason.CALLBACK), finalists=())
            finalists, weigh = _weights_of_finalists(problem, tuned)
        weights = weigh(np.arange(len(finalists)))
        order = _largest_first(weights)
        n_members = budget.affordable_fits([finalists[k] for k in order], ready.n_centers)
        if n_members < len(order):
            weights = weigh(order[:n_members])
            order = _largest_first(weights)
        problem.progress.begin("final fit on all rows", Phase.FINAL_FIT)
        # All members are fitted with the same numbers of rows and of centers, because their leave-one-out errors are
        # added row by row.
        sizes = [budget.affordable_size(finalists[k], ready.n_centers, len(order)) for k in order]
        size = min(sizes, key=lambda one: one[1])
        members = []
        for k in order:
            winner = finalists[k]
            result = tuned.result if winner is tuned.winner else unchanged(winner, 0.0, StopReason(tuned.result.reason))
            fit, y_offset = _final_fit(ready, winner, result, tuned.omega, *size)
            members.append(Selection(winner, tuned.candidates, fit, y_offset))
        problem.progress.print("the fit is complete")
        return members, weights[order]
    except KeyboardInterrupt as stop:
        return [_best_so_far(problem, stop, keep_best)], np.ones(1)


def _largest_first(weights: Array) -> Array:
    """Return the indices of the positive weights, largest weight first. If all weights are zero, return one index."""
    return np.argsort(-weights, kind="stable")[: max(1, np.count_nonzero(weights))]


def _weights_of_finalists(problem: SearchProblem, tuned: Tuned) -> tuple[list[Candidate], Callable[[Array], Array]]:
    """Return the finalists of a search (see `Tuned`), and a function that computes their weights in an ensemble.

    The function takes the indices of the finalists that may be used, and returns the weights of all finalists.
    """
    finalists = list(tuned.finalists) or [tuned.winner]
    if len(finalists) == 1 or not problem.in_time:
        return [tuned.winner], lambda some: np.ones(1)
    problem.progress.begin("weights of the ensemble", Phase.WEIGHTS)
    rows = problem.rows if tuned.omega is None else problem.rows.reweighted(tuned.omega)
    if rows.n_rows <= _CROSS_FIT_ROWS and rows.n_rows == problem.rows.n_rows:
        most = min(one.score for one in finalists) + _MOST_NATS * rows.total_weight * rows.n_targets
        close = [one for one in finalists if one.score <= most]
        crossed = HeldOutCheck(replace(problem, rows=rows)).out_of_fold(close)
        learned = [(one, predicted) for one, predicted in zip(close, crossed, strict=True) if predicted is not None]
        if learned:
            close, known = [one for one, _ in learned], [predicted for _, predicted in learned]
            return close, _weigher(rows, known, _n_parameters(close), CROSS_FIT_PRICE)
    n_rows = max(_WEIGHING_ROWS, *(one.n_rows or 0 for one in finalists))
    criterion = problem.criterion(subset(rows, n_rows, problem.rng), None, tuned.winner.kernel)

    def predict(k: int) -> Array | None:
        if k > 0 and not problem.in_time:
            return None
        with suppress(ArithmeticError, np.linalg.LinAlgError), single_threaded_blas():
            at = criterion.at(finalists[k].nu / criterion.rows.total_weight, finalists[k].kernel)
            return at.leave_one_out(finalists[k].B, intercept=rows.y_offset is not None)
        return None

    found = in_threads(predict, range(len(finalists)), 1 if problem.on_gpu else problem.n_threads)
    weighed = [one for one, predicted in zip(finalists, found, strict=True) if predicted is not None]
    predictions = [predicted for predicted in found if predicted is not None]
    if not weighed:
        return [tuned.winner], lambda some: np.ones(1)
    # Reduce the numbers of parameters, so that the penalty per parameter is that of a fit to all rows. The rows of the
    # criterion may be only a sample.
    share = criterion.rows.total_weight / problem.total_weight
    return weighed, _weigher(criterion.rows, predictions, share * _n_parameters(weighed), PRICE)


def _n_parameters(candidates: Sequence[Candidate]) -> Array:
    """Return the number of parameters of each candidate. The choice of columns counts too, with two units for a nat."""
    return np.array([one.degrees_of_freedom + 2.0 * one.choice / PRICE for one in candidates])


def _weigher(rows: Rows, predictions: Sequence[Array], n_parameters: Array, price: float) -> Callable[[Array], Array]:
    """Return a function that computes the weights of all candidates, given the indices of those that may be used."""
    _, Y, w = rows.gather()
    row_weight = np.ones(len(Y)) if w is None else w

    def weigh(some: Array) -> Array:
        weights = np.zeros(len(predictions))
        weights[some] = stacking_weights([predictions[k] for k in some], Y, row_weight, n_parameters[some], price)
        return weights

    return weigh


def _final_fit(
    ready: Ready, winner: Candidate, result: Result, omega: Array | None, n_rows: int, n_centers: int
) -> tuple[FinalFit, Array | None]:
    """Return the final fit of a candidate, and the offset of the targets with heavy-tailed noise."""
    robust, y_offset = robust_rows(ready.rows, ready.problem.rows, winner, omega)
    given = None if y_offset is None else ready.rows
    if n_rows < robust.n_rows:
        # A new generator with a fixed seed is used, so that all members of an ensemble use the same rows.
        some = robust.draw(n_rows, np.random.RandomState(0))
        robust, given = robust.subset(some), None if given is None else given.subset(some)
    return final_fit(robust, winner, result, n_centers, ready.problem.rng, given=given), y_offset


def _best_so_far(problem: SearchProblem, stop: KeyboardInterrupt, keep_best: bool) -> Selection:
    """Return a quick fit of the best candidate so far, or raise KeyboardInterrupt if there is no model to keep."""
    if not keep_best or not problem.progress.best:
        raise stop
    best = problem.progress.best[-1]
    try:
        robust, y_offset = robust_rows(problem.rows, problem.rows, best, problem.progress.omega_of_best)
        return Selection(best, [best], quick_fit(robust.in_memory(), best), y_offset, stop)
    except (ArithmeticError, np.linalg.LinAlgError):
        # The best candidate cannot be fitted.
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
