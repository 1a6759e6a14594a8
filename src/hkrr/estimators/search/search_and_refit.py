"""Model selection by a criterion: the search on a sample, then the final fits of one model or of an ensemble.

A candidate of the search is a kernel, a map and a noise level. The winner is the best candidate. The finalists are the
candidates from which an ensemble can be made, and its members are the finalists with positive weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from hkrr._base.linear_algebra import Array, project
from hkrr._base.threads import in_threads, single_threaded_blas
from hkrr._maps import KernelExpansion
from hkrr.estimators.search.candidates import Candidate, unchanged
from hkrr.estimators.search.final_fit import FinalFit, final_fit, quick_fit
from hkrr.estimators.search.held_out_check import HeldOutCheck
from hkrr.estimators.search.progress import Phase, SearchStopped
from hkrr.estimators.search.robust_noise import Errors, shows_outliers, student_weights, weighted_rows
from hkrr.estimators.search.search_problem import SearchProblem
from hkrr.estimators.search.search_stages import CROSS_FIT_ROWS, SearchResult, run_search
from hkrr.estimators.search.stacking import LEAST_SQUARES, Stacking
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
# The predictions of a candidate are cross-fitted if its map has more parameters than this fraction of the rows.
_FLEXIBLE_SHARE = 0.02
# Candidates are cross-fitted only if their score is at most this number of nats per row and target above the best.
_MOST_NATS = 0.5


@dataclass(frozen=True)
class SelectedModel:
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
class FitPlan:
    """Everything that a search and its final fits need.

    Attributes
    ----------
    rows : Rows
        All rows, standardized. The final fits use them.
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

    def rows_of(self, candidate: Candidate) -> Rows:
        """Return all rows, with transformed columns if the candidate uses them."""
        if not candidate.ranked:
            return self.rows
        return self.rows.with_coordinates(None, None, self.problem.rows.y_offset, self.problem.ranks)

    def scaling_of(self, candidate: Candidate) -> Moments:
        """Return the moments with which `rows_of` were standardized."""
        return self.scaling.transformed(self.problem.ranks) if candidate.ranked else self.scaling


def select_model(plan: FitPlan, kernel: Kernel | None, keep_best: bool) -> SelectedModel:
    """Run the search, fit the coefficients of the winner on all rows, and return the result.

    If `kernel` is None, the kernel and the shape of the map are selected too. After Ctrl-C, the best model so far is
    returned if `keep_best` is True. Otherwise KeyboardInterrupt is raised.
    """
    problem = plan.problem
    try:
        searched = run_search(problem, kernel)
        size = plan.budget.affordable_size(searched.winner, plan.n_centers)
        problem.progress.begin("final fit on all rows", Phase.FINAL_FIT)
        fit, y_offset = _final_fit(plan, searched.winner, searched.result, searched.omega, *size)
        problem.progress.print("the fit is complete")
        return SelectedModel(searched.winner, searched.candidates, fit, y_offset)
    except KeyboardInterrupt as stop:
        return _best_so_far(problem, stop, keep_best)


class LeftOutPredictions(NamedTuple):
    """Predictions of each member for rows that were left out of its fit, or of the fit of its coefficients.

    The predictions and targets are centered. `n_parameters` are the numbers of parameters of the members, and `price`
    is the price of a parameter.
    """

    predictions: list[Array]
    targets: Array
    row_weight: Array
    n_parameters: Array
    price: float


class SelectedMembers(NamedTuple):
    """The members of an ensemble, their weights, and the predictions from which the weights were computed.

    The predictions are None if there is a single candidate and its weight does not depend on them.
    """

    fits: list[SelectedModel]
    weights: Array
    left_out: LeftOutPredictions | None


@dataclass(frozen=True)
class _Finalists:
    """The candidates from which the members of an ensemble are selected."""

    candidates: list[Candidate]
    left_out: LeftOutPredictions | None = None
    stacking: Stacking = field(default=LEAST_SQUARES)

    def weights(self, some: Array) -> Array:
        """Return the weights of all candidates, if only those with the indices `some` may be used."""
        if self.left_out is None:
            return np.ones(1)
        weights, chosen = np.zeros(len(self.candidates)), self.among(some)
        assert chosen is not None
        weights[some] = self.stacking.weights(*chosen)
        return weights

    def among(self, some: Array) -> LeftOutPredictions | None:
        """Return the predictions of the candidates with the indices `some`."""
        if self.left_out is None:
            return None
        predictions = [self.left_out.predictions[k] for k in some]
        return self.left_out._replace(predictions=predictions, n_parameters=self.left_out.n_parameters[some])


def select_members(plan: FitPlan, keep_best: bool) -> SelectedMembers:
    """Run the search, compute the weights of its best candidates, and fit the candidates with positive weights.

    The members are sorted, largest weight first. There is at least one member, possibly with the weight 0. See
    `select_model` for `keep_best`.
    """
    problem, budget = plan.problem, plan.budget
    try:
        searched = run_search(problem, None)
        try:
            finalists = _weigh(problem, searched)
        except SearchStopped:
            searched = replace(searched, result=unchanged(searched.winner, 0.0, StopReason.CALLBACK), finalists=())
            finalists = _weigh(problem, searched)
        candidates = finalists.candidates
        weights = finalists.weights(np.arange(len(candidates)))
        order = _largest_first(weights)
        n_members = budget.affordable_fits([candidates[k] for k in order], plan.n_centers)
        if n_members < len(order):
            weights = finalists.weights(order[:n_members])
            order = _largest_first(weights)
        problem.progress.begin("final fit on all rows", Phase.FINAL_FIT)
        # All members are fitted with the same numbers of rows and of centers, because their leave-one-out errors are
        # added row by row.
        sizes = [budget.affordable_size(candidates[k], plan.n_centers, len(order)) for k in order]
        size = min(sizes, key=lambda one: one[1])
        members: dict[int, SelectedModel] = {}
        for k in order:
            winner = candidates[k]
            result = (
                searched.result
                if winner is searched.winner
                else unchanged(winner, 0.0, StopReason(searched.result.reason))
            )
            try:
                fit, y_offset = _final_fit(plan, winner, result, searched.omega, *size)
                members[k] = SelectedModel(winner, searched.candidates, fit, y_offset)
            except (ArithmeticError, np.linalg.LinAlgError):
                if k == order[-1] and not members:
                    raise
        if len(members) < len(order):  # some final fits have failed because of rounding errors
            weights = finalists.weights(np.array(list(members)))
            order = _largest_first(weights)
        problem.progress.print("the fit is complete")
        return SelectedMembers([members[k] for k in order], weights[order], finalists.among(order))
    except KeyboardInterrupt as stop:
        best = _best_so_far(problem, stop, keep_best)
        left_out = _leave_one_out(problem, problem.rows, [best.winner])[1] if problem.of_classes else None
        return SelectedMembers([best], np.ones(1), left_out)


def _largest_first(weights: Array) -> Array:
    """Return the indices of the positive weights, largest weight first. If all weights are zero, return one index."""
    return np.argsort(-weights, kind="stable")[: max(1, np.count_nonzero(weights))]


def _weigh(problem: SearchProblem, searched: SearchResult) -> _Finalists:
    """Return the finalists of a search, with the predictions from which their weights are computed."""
    stacking = problem.stacking or LEAST_SQUARES
    found = list(searched.finalists) or [searched.winner]
    if not stacking.of_classes and (len(found) == 1 or not problem.in_time):
        return _Finalists([searched.winner])
    problem.progress.begin("weights of the ensemble", Phase.WEIGHTS)
    rows = weighted_rows(problem.rows, searched.omega)
    weighed, left_out = _leave_one_out(problem, rows, found)
    if left_out is not None and rows.n_rows <= CROSS_FIT_ROWS:
        weighed, left_out = _cross_fit_flexible_maps(replace(problem, rows=rows), weighed, left_out)
    return _Finalists(weighed, left_out, stacking) if left_out is not None else _Finalists([searched.winner])


def _leave_one_out(
    problem: SearchProblem, rows: InMemoryRows, candidates: Sequence[Candidate]
) -> tuple[list[Candidate], LeftOutPredictions | None]:
    """Return the candidates that can be evaluated in time, and their leave-one-out predictions.

    The predictions of the first candidate are computed even after the deadline. If no predictions can be computed, the
    second value is None.
    """
    n_rows = max(_WEIGHING_ROWS, *(one.n_rows or 0 for one in candidates))
    some = rows.at_most(n_rows, problem.rng)
    criteria = {
        ranked: problem.criterion(problem.with_columns(some, ranked), None, candidates[0].kernel)
        for ranked in {False, *(one.ranked for one in candidates)}
    }
    criterion = criteria[False]

    def predict(k: int) -> Array | None:
        if k > 0 and not problem.in_time:
            return None
        with suppress(ArithmeticError, np.linalg.LinAlgError), single_threaded_blas():
            mine = criteria[candidates[k].ranked]
            at = mine.at(candidates[k].nu / criterion.rows.total_weight, candidates[k].kernel)
            return at.leave_one_out(candidates[k].B, intercept=rows.y_offset is not None)
        return None

    found = in_threads(predict, range(len(candidates)), 1 if problem.on_gpu else problem.n_threads)
    weighed = [one for one, predicted in zip(candidates, found, strict=True) if predicted is not None]
    predictions = [predicted for predicted in found if predicted is not None]
    if not weighed:
        return [], None
    # The rows of the criterion may be only a sample. Reduce the parameter counts by the size of this sample relative to
    # all rows, so that the penalty for each parameter is the same as in a fit to all rows.
    share = criterion.rows.total_weight / problem.total_weight
    stacking = problem.stacking or LEAST_SQUARES
    counts = share * _n_parameters(weighed, stacking)
    return weighed, _left_out(criterion.rows, predictions, counts, stacking.price)


def _cross_fit_flexible_maps(
    problem: SearchProblem, candidates: list[Candidate], left_out: LeftOutPredictions
) -> tuple[list[Candidate], LeftOutPredictions]:
    """Replace the leave-one-out predictions of maps with many parameters by cross-fitted predictions.

    The leave-one-out predictions of such maps can be far too accurate. The price of a parameter is lower for
    cross-fitted predictions. Candidates that cannot be cross-fitted in time are left out, and in a regression also
    those whose score is far above the best, unless no candidate would remain.
    """
    stacking = problem.stacking or LEAST_SQUARES
    flexible = left_out.n_parameters > _FLEXIBLE_SHARE * problem.rows.total_weight
    close = np.ones(len(candidates), dtype=bool)
    if not stacking.of_classes:
        most = min(one.score for one in candidates) + _MOST_NATS * problem.rows.total_weight * problem.rows.n_targets
        close = np.array([one.score <= most for one in candidates])
    chosen = np.flatnonzero(flexible & close)
    if not np.any(flexible) or not problem.in_time:
        return candidates, left_out
    predictions: list[Array | None] = list(left_out.predictions)
    for k in np.flatnonzero(flexible):
        predictions[k] = None
    if len(chosen) > 0:
        crossed = HeldOutCheck(problem).out_of_fold([candidates[k] for k in chosen])
        for k, one in zip(chosen, crossed, strict=True):
            predictions[k] = one
    kept = [k for k, one in enumerate(predictions) if one is not None]
    if not kept:
        return candidates, left_out
    share = np.where(flexible, stacking.cross_fit_price / left_out.price, 1.0)
    counts = (share * left_out.n_parameters)[kept]
    known = [one for one in predictions if one is not None]
    return [candidates[k] for k in kept], left_out._replace(predictions=known, n_parameters=counts)


def _n_parameters(candidates: Sequence[Candidate], stacking: Stacking) -> Array:
    """Return the number of parameters of each candidate. The choice of columns is converted to parameters."""
    return np.array([one.degrees_of_freedom + one.choice / stacking.nats_per_parameter for one in candidates])


def _left_out(rows: Rows, predictions: list[Array], n_parameters: Array, price: float | None) -> LeftOutPredictions:
    _, Y, w = rows.gather()
    assert price is not None
    return LeftOutPredictions(predictions, Y, np.ones(len(Y)) if w is None else w, n_parameters, price)


def _final_fit(
    plan: FitPlan, winner: Candidate, result: Result, omega: Array | None, n_rows: int, n_centers: int
) -> tuple[FinalFit, Array | None]:
    """Return the final fit of a candidate, and with heavy-tailed noise the offset of the targets."""
    rows = plan.rows_of(winner)
    robust, y_offset = robust_rows(rows, plan.problem.of(winner).rows, winner, omega)
    given = None if y_offset is None else rows
    if n_rows < robust.n_rows:
        # A new generator with a fixed seed is used, so that all members of an ensemble use the same rows.
        some = robust.draw(n_rows, np.random.RandomState(0))
        robust, given = robust.subset(some), None if given is None else given.subset(some)
    with_uncertainty = not plan.problem.of_classes
    return final_fit(robust, winner, result, n_centers, plan.problem.rng, with_uncertainty, given), y_offset


def _best_so_far(problem: SearchProblem, stop: KeyboardInterrupt, keep_best: bool) -> SelectedModel:
    """Return a quick fit of the best candidate that can be fitted, or raise KeyboardInterrupt if there is none."""
    for best in reversed(problem.progress.best if keep_best else ()):
        with suppress(ArithmeticError, np.linalg.LinAlgError):
            rows = problem.of(best).rows
            robust, y_offset = robust_rows(rows, rows, best, problem.progress.omega_of_best)
            fit = quick_fit(robust.in_memory(), best, with_uncertainty=not problem.of_classes)
            return SelectedModel(best, [best], fit, y_offset, stop)
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
