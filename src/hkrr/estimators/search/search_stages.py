"""The complete search: from rows to one candidate, which consists of a kernel, a map and a noise level.

A run is one optimization that improves a candidate.

The search for directions uses a sample of the rows and at most 400 centers. The best candidates are then refined on all
rows of the search. If the residuals have heavy tails, the search uses a heavy-tailed (Student-t) noise model, called
heavy-tailed noise below (`hkrr.estimators.search.robust_noise`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hkrr._base.linear_algebra import Array
from hkrr._base.threads import blas_for, single_threaded_blas
from hkrr._maps import Diagonal, Full, Scaled, ScaledRows, principal_form
from hkrr.centers import uniform_or_all
from hkrr.estimators.search.candidates import (
    AT_LIMIT,
    FIND_DIRECTIONS,
    FIRST_LAMBDA,
    FIRST_NOISE,
    SHORT_RUN,
    Candidate,
    Origin,
    descend,
    mean_only,
    plain_kernel_ridge,
    plain_start,
    score,
    score_on_all_rows,
    unchanged,
    unit_kernel,
)
from hkrr.estimators.search.directions import DirectionSearch
from hkrr.estimators.search.held_out_check import HeldOutCheck, needs_check
from hkrr.estimators.search.kernel_race import COST_EXPONENT, RADIAL, Race
from hkrr.estimators.search.progress import Phase, SearchStopped
from hkrr.estimators.search.robust_noise import (
    Errors,
    can_have_outliers,
    leave_one_out_errors,
    plain_weights,
    target_errors,
    weighted_rows,
)
from hkrr.estimators.search.search_problem import SearchProblem
from hkrr.exceptions import FitError
from hkrr.kernels import Kernel, kernel_name
from hkrr.rows import InMemoryRows
from hkrr.solvers import Result
from hkrr.solvers.driver import StopReason

# Maximum number of rows that a search uses.
SAMPLE_ROWS = 20_000
# Maximum number of rows of a criterion in which all rows are centers. If there are more rows, the criterion uses a
# sample of this size, or Nystrom centers.
_EXACT_ROWS = 1_000
# Maximum number of rows for cross-fitting the candidates of an ensemble (`hkrr.estimators.search.stacking`).
CROSS_FIT_ROWS = 1_000
# Maximum number of rows of the first fit of plain kernel ridge regression, and of its first comparison with a map.
_FEW_ROWS = 300
# Settings for polishing, the refinement of the best directions on all rows of the search. If there are more than
# _EXACT_ROWS rows, the number of centers of the search for directions is multiplied by _POLISH_RATIO, up to
# _POLISH_CENTERS. _POLISH_ITERATIONS is the maximum number of iterations.
_POLISH_RATIO, _POLISH_CENTERS, _POLISH_ITERATIONS = 2, 400, 20
# Maximum numbers of iterations for refitting one common scale of the map, and for refitting one scale per direction.
_RESCALE_ITERATIONS, _SCALES_ITERATIONS = 8, 30
# Maximum number of rows for comparing kernels at fixed directions. The kernel is changed only if the score of another
# kernel is lower by at least the second number, in nats.
_KERNEL_ROWS, _CLEARLY_LOWER = 500, 3.0
# The comparison of kernels starts from this number of maps: the best maps found with the Gaussian kernel.
_N_MAPS = 2
# Maximum number of rounds that fit the heavy-tailed noise. Each round refines the map with the current weights of the
# rows, and then computes new weights from the errors of the refined map.
_REWEIGHTINGS = 3
# A map with few directions leads clearly if its criterion is lower than the lowest criterion of the models without
# directions by this number of nats per row and target. The noise variance is then at most a quarter of theirs.
_CLEAR_LEAD = 0.7
# A map with few directions also leads clearly if it improves the criterion of a model that predicts zero by more than
# this factor times the improvement by the best model without directions.
_CLEAR_RATIO = 2.0
# A model explains almost nothing if its criterion, minus the criterion of a model that predicts zero, is above this
# number of nats per row and target.
_UNEXPLAINED = -0.05
# A map has few directions if it has one direction, or at most one direction for each group of this many columns.
_FEW_PER_COLUMNS = 4
# Fraction of the time until the deadline that a refit of plain kernel ridge regression may take before the search.
_SHARE_OF_PLAIN = 0.2
# Fractions of the time if the kernel is selected too. The search for directions may take the first fraction of the time
# until the deadline. For an ensemble, the comparison of kernels may take the second fraction of the remaining time.
# The rest is for the weights of the ensemble. With few rows, full maps are cross-fitted for the weights, which takes
# longer.
_SHARE_OF_DIRECTIONS, _SHARE_OF_RACE, _SHARE_OF_RACE_FEW_ROWS, _SHARE_OF_RACE_FOR_CLASSES = 0.3, 0.96, 0.85, 0.6

NO_SIGNAL = "no model scores better than the mean of y, so every prediction is the mean of y"

PLAIN_WINS = "plain kernel ridge regression on all inputs scores better than any map with few directions"

FAILED_CHECK = (
    "a map with few directions has the better criterion, but it predicted held-out rows worse than a model without"
    " directions; the model without directions was selected"
)


@dataclass(frozen=True)
class SearchResult:
    """The result of a search.

    Attributes
    ----------
    winner : Candidate
        The selected candidate.
    result : Result
        The result of the last run of the winner.
    candidates : list of Candidate
        All candidates tried. Their scores are comparable only if they were computed on the same rows.
    omega : array (n,) or None
        The weights of the heavy-tailed noise with which the winner was found. None means normal noise.
    finalists : tuple of Candidate
        The winner and the best candidates with other kernels and shapes, from which an ensemble can be made. Empty if
        only the winner is worth using.
    """

    winner: Candidate
    result: Result
    candidates: list[Candidate]
    omega: Array | None = None
    finalists: tuple[Candidate, ...] = ()


def run_search(problem: SearchProblem, kernel: Kernel | None) -> SearchResult:
    """Run the search. If `kernel` is None, the kernel and the shape of the map are selected too."""
    problem = replace(problem, rows=problem.rows.count_free_columns())

    def search(omega: Array | None) -> SearchResult:
        weighted = replace(problem, rows=weighted_rows(problem.rows, omega))
        problem.progress.omega = omega
        problem.progress.hold()
        if omega is not None:
            problem.progress.print("search with heavy-tailed noise, because y seems to contain outliers")
        found = _search_all_kernels(weighted) if kernel is None else SearchResult(*_search_one_kernel(weighted, kernel))
        return replace(found, omega=omega)

    try:
        has_tails = not problem.of_classes and can_have_outliers(problem.rows)
        found = _choose_noise(problem, search) if has_tails else search(None)
        # Report the selected candidate again: if there were two searches, it can be the result of the first search.
        problem.progress.omega = found.omega
        problem.progress.found(found.winner)
        return found
    except SearchStopped as stop:
        winner, result = _without_run(problem, stop.best[-1], StopReason.CALLBACK)
        return SearchResult(winner, result, list(stop.best), problem.progress.omega_of_best)


def _choose_noise(problem: SearchProblem, search: Callable[[Array | None], SearchResult]) -> SearchResult:
    """Run the search with normal noise, with heavy-tailed noise, or once with each of them.

    If the targets have heavy tails, the search is made with heavy-tailed noise. If the leave-one-out errors of the
    selected map have no heavy tails, the tails of the targets were signal. The map is then refined with normal noise,
    and the better of the two maps is returned.

    If the targets have no heavy tails, the search is made with normal noise. If the errors of the selected map, or of a
    map with fewer directions, have heavy tails, the search is made again with heavy-tailed noise, and the better of the
    two results is returned.
    """
    gaussian = unit_kernel("gaussian")
    if target_errors(problem.rows).heavy_tailed:
        found = search(plain_weights(problem.rows, gaussian, problem.rng, problem.deadline)[0])
        errors = _errors(problem, found.winner, found.omega)
        if errors is None or errors.heavy_tailed:
            return _refine_with_weights(problem, found, errors)[0]
        normal = _refined(problem, found, None)
        return _better(problem, (normal, _errors(problem, normal.winner, normal.omega)), (found, errors))
    found = search(None)
    errors = _errors(problem, found.winner, None)
    if errors is None:
        return found
    weights = errors.weights if errors.heavy_tailed else _weights_of_smaller_map(problem, found, errors)
    if weights is None or not problem.in_time:
        return found
    plain, density = plain_weights(problem.rows, gaussian, problem.rng, problem.deadline)
    robust = search(plain if errors.heavy_tailed and density > errors.student_density else weights)
    robust = replace(robust, candidates=[*found.candidates, *robust.candidates])
    robust, robust_errors = _refine_with_weights(problem, robust, _errors(problem, robust.winner, robust.omega))
    if robust_errors is None and errors.heavy_tailed:
        return robust  # no time for a comparison; the fit with normal noise is affected by outliers
    return _better(problem, (robust, robust_errors), (found, errors))


def _weights_of_smaller_map(problem: SearchProblem, found: SearchResult, errors_of_winner: Errors) -> Array | None:
    """Return the heavy-tailed noise weights of a map with fewer directions that is better than the selected map.

    The selected map can have a direction along which the function fits an outlier. The errors of the selected map then
    do not show the outlier, but the errors of a map with fewer directions do. Maps with one and two directions fewer
    are tried. If neither is better, the result is None.
    """
    winner = found.winner
    if not isinstance(winner.shape, Full):
        return None
    for d in (winner.n_components - 1, winner.n_components - 2):
        maps = [one for one in found.candidates if one.origin in FIND_DIRECTIONS and one.n_components == d]
        smaller = min(maps, key=lambda one: (-(one.n_centers or 0), one.score), default=None)
        if smaller is None or not math.isfinite(smaller.score) or not problem.in_time:
            continue
        errors = _errors(problem, smaller, None)
        if errors is not None and errors.heavy_tailed:
            robust = _refined(problem, replace(found, winner=smaller), errors.weights)
            errors = _errors(problem, robust.winner, robust.omega)
            if errors is not None and _quality(problem, smaller, errors) > _quality(problem, winner, errors_of_winner):
                return errors.weights
    return None


def _errors(problem: SearchProblem, candidate: Candidate, omega: Array | None) -> Errors | None:
    """Return the leave-one-out errors of a candidate. Return None if they are not finite, or after the deadline."""
    if not problem.in_time:
        return None
    with suppress(ArithmeticError, np.linalg.LinAlgError):
        rows = problem.of(candidate).rows
        return leave_one_out_errors(rows, omega, candidate.kernel, candidate.B, candidate.nu, problem.rng)
    return None


def _better(
    problem: SearchProblem, new: tuple[SearchResult, Errors | None], old: tuple[SearchResult, Errors]
) -> SearchResult:
    """Return the new or the old result, whichever has the higher `_quality`.

    The old result is returned if the errors of the new one are not known.
    """
    (found, errors), (found_before, errors_before) = new, old
    if errors is None or _quality(problem, found.winner, errors) <= _quality(
        problem, found_before.winner, errors_before
    ):
        return found_before
    return found


def _quality(problem: SearchProblem, candidate: Candidate, errors: Errors) -> float:
    """Return the mean log density of the errors, minus the penalty of the score (BIC) for the parameters of the map."""
    n = problem.rows.n_rows
    return errors.density - 0.5 * candidate.degrees_of_freedom * math.log(n) / n


def _refined(problem: SearchProblem, found: SearchResult, omega: Array | None) -> SearchResult:
    """Refine the selected candidate on rows with the weights `omega`. If this fails, return `found` unchanged."""
    problem.progress.omega = omega
    weighted = replace(problem, rows=weighted_rows(problem.rows, omega))
    with suppress(FitError):
        winner, result = refine(weighted, found.winner)
        others = tuple(one for one in found.finalists if one is not found.winner)
        finalists = (winner, *others) if others else ()
        return SearchResult(winner, result, [*found.candidates, winner], omega, finalists)
    return found


def _refine_with_weights(
    problem: SearchProblem, found: SearchResult, errors: Errors | None
) -> tuple[SearchResult, Errors | None]:
    """Alternately refine the map and the weights of the heavy-tailed noise. Return the last result and its errors.

    `errors` are the errors of `found`. If they are None, both arguments are returned unchanged. The refinement ends if
    the errors of a new result cannot be computed.
    """
    for _ in range(_REWEIGHTINGS):
        if errors is None:
            break
        refined = _refined(problem, found, errors.weights)
        errors_of_refined = _errors(problem, refined.winner, refined.omega)
        if errors_of_refined is None:
            break
        found, errors = refined, errors_of_refined
    return found, errors


def refine(problem: SearchProblem, candidate: Candidate) -> tuple[Candidate, Result]:
    """Improve a candidate after a change of the row weights. Return the candidate and the result of its run."""
    problem = problem.of(candidate)
    if isinstance(candidate.shape, Full):
        polished, result = polish(problem, [candidate])
        return rescale(problem, polished), result
    exact = problem.criterion(problem.rows.at_most(_EXACT_ROWS, problem.rng), None, candidate.kernel)
    with single_threaded_blas():
        return descend(exact, candidate.restarted(), _POLISH_ITERATIONS, problem.deadline)


def _search_one_kernel(problem: SearchProblem, kernel: Kernel) -> tuple[Candidate, Result, list[Candidate]]:
    """Find directions, polish the best map, and compare it with plain kernel ridge regression.

    Return the selected candidate, the result of its last run, and all candidates tried.
    """
    plain = _begin_with_plain(problem, kernel)
    return _finish_directions(problem, plain, *find_directions(problem, kernel))


def _finish_directions(
    problem: SearchProblem,
    plain: tuple[InMemoryRows, Candidate] | None,
    best: list[Candidate],
    ends: list[Candidate],
    searched_weight: float,
    other_kernels: Sequence[Kernel] = (),
) -> tuple[Candidate, Result, list[Candidate]]:
    """Polish the best directions, and compare them with plain kernel ridge regression.

    `plain` is the result of `_begin_with_plain`, and the next three arguments are the result of `find_directions`. If
    one of `other_kernels` fits these directions better than the kernel of the search, it is used instead.
    """
    problem.progress.begin("refining the best directions", Phase.POLISHING)
    polished, result = polish(problem, select_for_polishing(problem, best, searched_weight))
    problem.progress.found(polished)
    ends = [*ends, polished]
    if problem.in_time:
        # If the scales cannot be refitted, the map is kept as it is.
        with suppress(FitError):
            polished = rescale(problem, polished)
            problem.progress.found(polished)
            ends = [*ends, polished]
    if other_kernels and problem.in_time:
        with suppress(FitError):
            ends = [*ends, *_best_kernel(problem, polished, other_kernels)]
            polished = ends[-1]
            problem.progress.found(polished)
    if problem.choose_dimension and problem.rows.n_features > 1 and problem.in_time:
        problem.progress.begin("comparison with plain kernel ridge on all columns", Phase.AGAINST_PLAIN)
        return _against_plain(problem, polished, result, ends)
    return _at_least_plain(problem, plain, polished, result, ends)


def _best_kernel(problem: SearchProblem, candidate: Candidate, kernels: Sequence[Kernel]) -> list[Candidate]:
    """Fit the polished directions with other kernels. Return the candidates. The last one is the one to select.

    The kernels are compared on at most 500 rows, at fixed directions. The kernel is changed if the score of another
    kernel is clearly lower. The scales of the directions and the noise are then refitted.
    """
    exact = problem.criterion(problem.rows.at_most(_KERNEL_ROWS, problem.rng), None, candidate.kernel)
    starts = [
        candidate.restarted(origin=Origin.DIRECTIONS, kernel=kernel, shape=Scaled(candidate.B))
        for kernel in (candidate.kernel, *kernels)
    ]
    ends = [
        replace(end, shape=candidate.shape, n_rows=exact.rows.n_rows)
        for end in problem.improve_each(exact, starts, _RESCALE_ITERATIONS)
    ]
    ends = [replace(end, score=score(exact, end.value, end, problem.total_weight)) for end in ends]
    best, tried = min(ends, key=lambda end: end.score), [end for end in ends if math.isfinite(end.score)]
    if best.score > ends[0].score - _CLEARLY_LOWER or not problem.in_time:
        return [*tried, candidate]
    problem.progress.print(f"    the kernel {kernel_name(best.kernel)} fits better")
    return [*tried, rescale(problem, replace(best, n_rows=None, n_centers=candidate.n_centers))]


def _begin_with_plain(problem: SearchProblem, kernel: Kernel) -> tuple[InMemoryRows, Candidate] | None:
    """Fit plain kernel ridge regression, so that a model is ready soon if there is a time limit.

    The first fit uses at most 300 rows. Its scale and noise are then refitted on as many rows as a fifth of the time
    left allows, at most 1,000: with 300 rows of many columns, the noise is hardly determined. The result is the
    rows of the last fit, and the fit. It is None if there is no time limit, if plain kernel ridge regression cannot be
    selected (the number of directions is given, or there is only one column), or if the fit fails.
    """
    if math.isinf(problem.deadline) or not problem.choose_dimension or problem.rows.n_features == 1:
        return None
    with suppress(FitError, ArithmeticError):
        some, plain = fit_plain(problem, kernel, _FEW_ROWS)
        problem.progress.found(plain)
        affordable = _SHARE_OF_PLAIN * problem.seconds_left / (_RESCALE_ITERATIONS * plain.seconds_per_iteration)
        more = min(_EXACT_ROWS, problem.rows.n_rows, int(some.n_rows * max(affordable, 0.0) ** (1.0 / COST_EXPONENT)))
        if more > some.n_rows:
            larger = problem.rows.at_most(more, problem.rng)
            criterion = problem.criterion(larger, None, kernel)
            with single_threaded_blas(), suppress(FitError):
                refitted, _ = descend(criterion, plain.restarted(), _RESCALE_ITERATIONS, problem.deadline)
                some, plain = larger, refitted
        return some, plain
    return None


def _at_least_plain(
    problem: SearchProblem,
    plain: tuple[InMemoryRows, Candidate] | None,
    winner: Candidate,
    result: Result,
    ends: list[Candidate],
) -> tuple[Candidate, Result, list[Candidate]]:
    """Return the winner of a search, or plain kernel ridge regression if the winner may be worse.

    This function replaces the held-out check for a search that was stopped by its deadline: the winner is kept only if
    its score is so much better that no check is needed. `plain` is the result of `_begin_with_plain`. If it is None,
    the winner is always kept. The result of the last run and all candidates tried are returned too.
    """
    if plain is not None:
        some, rival = plain
        W = problem.rows.total_weight
        with single_threaded_blas(), suppress(ArithmeticError, np.linalg.LinAlgError):
            mine = problem.with_columns(some, winner.ranked)
            criterion = problem.criterion(mine, None, winner.kernel).at(winner.nu / some.total_weight)
            value = criterion.reduced(winner.B).value
            scored = replace(winner, score=score(criterion, value, winner, W))
            rival = replace(rival, score=score(criterion, rival.value, rival, W))
            if scored.score > rival.score or needs_check(scored, rival):
                return *_without_run(problem, rival), [*ends, rival]
    return winner, result, ends


def fit_plain(problem: SearchProblem, kernel: Kernel, n_rows: int) -> tuple[InMemoryRows, Candidate]:
    """Fit plain kernel ridge regression on at most `n_rows` rows. Return these rows and the fit.

    The deadline is ignored, so that there is a reasonable model after any time limit.
    """
    some = problem.rows.at_most(n_rows, problem.rng)
    exact, noises = problem.criterion(some, None, kernel), (FIRST_NOISE, FIRST_LAMBDA * some.total_weight)
    with single_threaded_blas():
        return some, plain_kernel_ridge(exact, kernel, noises, problem.rng)[0]


def find_directions(problem: SearchProblem, kernel: Kernel) -> tuple[list[Candidate], list[Candidate], float]:
    """Return the best candidate for each number of directions, all candidates, and the weight of the rows used.

    The candidates of the first list are sorted, lowest score first.
    """
    search = DirectionSearch(problem, kernel)
    search.run()
    return _found_by(search)


def _found_by(search: DirectionSearch) -> tuple[list[Candidate], list[Candidate], float]:
    return search.ranked, search.ends, search.criterion.rows.total_weight


def select_for_polishing(problem: SearchProblem, best: list[Candidate], searched_weight: float) -> list[Candidate]:
    """Return the candidate with the best score and, if it is different, the candidate with the best score on all rows.

    `best` is sorted by score, lowest first. The scores were computed on a sample with the total weight
    `searched_weight`, and are extrapolated to all rows.
    """
    other = min(best, key=lambda one: score_on_all_rows(one, searched_weight, problem.total_weight))
    return best[:1] if other is best[0] else [best[0], other]


def polish(problem: SearchProblem, candidates: Sequence[Candidate]) -> tuple[Candidate, Result]:
    """Improve the candidates on all rows of the search. Return the best candidate and the result of its run."""
    many = problem.rows
    n_centers = min(_POLISH_CENTERS, _POLISH_RATIO * max(one.n_centers or _POLISH_CENTERS for one in candidates))
    centers = None if many.n_rows <= _EXACT_ROWS else uniform_or_all(many, n_centers, problem.rng)
    criterion = problem.criterion(many, centers, candidates[0].kernel)
    options: dict[str, Any] = {"tol": 1e-6, "plateau": 1e-7}
    ends = []
    with blas_for(criterion.n_centers):
        for candidate in candidates:
            if not problem.in_time:
                break
            start = candidate.restarted(origin=Origin.POLISHED)
            # If the criterion is not finite on these rows, skip the candidate. If all candidates are skipped, the first
            # one is returned unchanged.
            with suppress(FitError):
                ends.append(descend(criterion, start, _POLISH_ITERATIONS, problem.deadline, **options))
    return min(ends, key=lambda end: end[0].score) if ends else _without_run(problem, candidates[0])


def rescale(problem: SearchProblem, candidate: Candidate) -> Candidate:
    """Return the candidate with the scales of its directions and its noise refitted on at most 1,000 rows.

    The directions themselves are held fixed. L-BFGS on the whole map would converge slowly, because the criterion
    hardly changes if all scales and the noise change together. If the map has many parameters relative to the number of
    rows, L-BFGS on the whole map could also overfit the directions.
    """
    B = principal_form(candidate.B)[0] if candidate.kernel.rotation_invariant else candidate.B
    exact = problem.criterion(problem.rows.at_most(_EXACT_ROWS, problem.rng), None, candidate.kernel)
    start = candidate.restarted(origin=Origin.RESCALED, B=B, shape=ScaledRows(B))
    with single_threaded_blas():
        end, _ = descend(exact, start, _SCALES_ITERATIONS, problem.deadline, tol=1e-7, plateau=1e-9)
    return replace(end, shape=candidate.shape)


def _without_run(
    problem: SearchProblem, candidate: Candidate, reason: StopReason | None = None
) -> tuple[Candidate, Result]:
    """Return the unchanged candidate, and the result of a run without iterations that ends at this candidate."""
    reason = reason or (StopReason.STALLED if problem.in_time else StopReason.TIME_LIMIT)
    return candidate, unchanged(candidate, candidate.nu / problem.total_weight, reason)


def _against_plain(
    problem: SearchProblem, polished: Candidate, result: Result, ends: list[Candidate]
) -> tuple[Candidate, Result, list[Candidate]]:
    """Return the better of the polished map and plain kernel ridge regression, by their scores on the same rows.

    The result of the run of the better candidate and all candidates tried are returned too.
    """
    try:
        # The comparison is made on 300 rows first. It is repeated on 1,000 rows only if the difference is not clear.
        for n_rows in (_FEW_ROWS, _EXACT_ROWS):
            compared, rival, rival_result = compare_with_plain(problem, polished, n_rows)
            if compared.score < rival.score and not needs_check(compared, rival):
                break
    except (FitError, ArithmeticError):
        # The comparison failed, but the map is still valid.
        return polished, result, ends
    ends = [*ends, compared, rival]
    keep, checked = _is_better(problem, compared, rival)
    if keep:
        problem.progress.print("    the directions are better")
        return replace(polished, score=compared.score), result, [*ends, *checked]
    message = NO_SIGNAL if rival.origin is Origin.MEAN else FAILED_CHECK if checked else PLAIN_WINS
    problem.progress.print(message)
    return rival, replace(rival_result, message=message), [*ends, *checked]


def compare_with_plain(
    problem: SearchProblem, polished: Candidate, n_rows: int = _EXACT_ROWS
) -> tuple[Candidate, Candidate, Result]:
    """Return the map and plain kernel ridge regression as candidates that were scored on the same rows.

    If predicting the mean of y has a better score than plain kernel ridge regression, it replaces plain kernel ridge
    regression. The third value is the result of the run of plain kernel ridge regression. The scale and the noise of
    the two candidates are refitted on at most `n_rows` rows, with all of these rows as centers. The scores are
    extrapolated to the total weight of the problem, including the penalty for the parameters (BIC).
    """
    some = problem.rows.at_most(n_rows, problem.rng)
    exact = problem.criterion(some, None, polished.kernel)
    noises = (polished.nu, FIRST_NOISE, FIRST_LAMBDA * some.total_weight)
    compared = polished.restarted(origin=Origin.COMPARED, shape=Scaled(polished.B))
    with single_threaded_blas():
        rival, result = plain_kernel_ridge(exact, polished.kernel, noises, problem.rng, problem.deadline)
        compared, _ = descend(exact, compared, _RESCALE_ITERATIONS, problem.deadline)
    compared = replace(compared, shape=polished.shape)
    compared, rival = (
        replace(one, score=score(exact, one.value, one, problem.total_weight)) for one in (compared, rival)
    )
    mean = mean_only(exact, rival, problem.total_weight)
    if mean.score < rival.score:
        return compared, *_without_run(problem, mean)
    return compared, rival, result


def _is_better(problem: SearchProblem, chosen: Candidate, rival: Candidate) -> tuple[bool, list[Candidate]]:
    """Return whether the map is better than its rival, and the entries of the held-out check for ``path_``.

    The scores decide. If the map is full and its score is only slightly better, the held-out check decides instead. If
    there is no time for the check, the rival is preferred. The list of entries is empty if no check was made.
    """
    if chosen.score > rival.score:
        return False, []
    if not needs_check(chosen, rival):
        return True, []
    if not problem.in_time:
        return False, []
    problem.progress.begin("checking the directions on held-out rows", Phase.HELD_OUT_CHECK)
    began = time.perf_counter()
    verdict = HeldOutCheck(problem).compare(chosen, rival)
    seconds = time.perf_counter() - began
    errors = ((chosen, verdict.error, seconds), (rival, verdict.error_of_rival, 0.0))
    return verdict.holds, [
        replace(one, origin=Origin.HELD_OUT, n_rows=None, value=error, score=error, seconds=spent)
        for one, error, spent in errors
    ]


def _search_all_kernels(problem: SearchProblem) -> SearchResult:
    """Find directions with the Gaussian kernel, then compare all kernels and shapes of the map."""
    gaussian = unit_kernel("gaussian")
    plain = _begin_with_plain(problem, gaussian)
    search = DirectionSearch(problem.with_share(_SHARE_OF_DIRECTIONS), gaussian)
    # If the Gaussian kernel fails, a different kernel may still work.
    with suppress(FitError):
        search.start()
        if not (problem.choose_dimension and search.best) or _is_worth_more(problem, search.ranked[0]):
            search.go_on()
        stop = not problem.in_time or (not problem.of_classes and _is_multi_index(problem, search.ranked[0]))
        if problem.choose_dimension and stop:
            rough = [unit_kernel(name) for name in RADIAL if name != "gaussian"]
            found = SearchResult(*_finish_directions(problem, plain, *_found_by(search), rough))
            if isinstance(found.winner.shape, Full) or not problem.in_time:
                return found
            # The directions fitted the noise, so the kernels and shapes have to be compared after all.
    share = _SHARE_OF_RACE_FEW_ROWS if problem.rows.n_rows <= CROSS_FIT_ROWS else _SHARE_OF_RACE
    share = _SHARE_OF_RACE_FOR_CLASSES if problem.of_classes else share
    ends, race = search.ends, Race(problem.with_share(share) if problem.stacking else problem)
    race.run(search.ranked[:_N_MAPS])
    winner, tried, message, survivors = race.best, race.tried, None, race.survivors
    others = [one for one in race.survivors if not isinstance(one.shape, Full) and one.n_rows == winner.n_rows]
    # The weights of a classifier are computed from cross-fitted predictions of full maps, so no check is needed.
    unsure = isinstance(winner.shape, Full) and not problem.of_classes
    if others and problem.choose_dimension and unsure:
        keep, checked = _is_better(problem, winner, others[0])
        tried += checked
        if not keep:
            winner, message = others[0], FAILED_CHECK if checked else None
            # The full map did not generalize. The other full maps have as many parameters, so none of them is used in
            # an ensemble.
            survivors = [one for one in survivors if not isinstance(one.shape, Full)]
    if problem.choose_dimension and winner.n_rows and problem.in_time:
        ones, criterion = np.ones(problem.rows.n_features), race.criterion(winner.n_rows)
        mean = mean_only(criterion, replace(winner, B=ones, shape=Scaled(ones), ranked=False), problem.total_weight)
        if mean.score < winner.score:
            winner, message, survivors = mean, NO_SIGNAL, []
    end, result = _without_run(problem, winner, StopReason.MAX_ITER if problem.in_time else None)
    result = replace(result, message=AT_LIMIT) if problem.in_time else result
    if isinstance(winner.shape, Scaled):
        message = message or PLAIN_WINS
    if message is not None:
        result = replace(result, message=message)
        problem.progress.print(message)
    # The race has compared other shapes with plain kernel ridge regression, and the check has compared full maps with
    # other shapes. A full map without competitors was not compared.
    stopped = plain if not problem.in_time and isinstance(winner.shape, Full) else None
    found = SearchResult(*_at_least_plain(problem, stopped, end, result, [*ends, *tried, end]))
    if found.winner is not end:
        return found
    return replace(found, finalists=(end, *(one for one in survivors if one is not winner)))


def _lead(problem: SearchProblem, directions: Candidate) -> tuple[float, float]:
    """Compare a map with models that do not combine columns, on at most 300 rows.

    Return two values: the criterion of the map, and the lowest criterion of the other models. Both are in nats per row
    and target, minus the criterion of a model that predicts zero. The other models are plain kernel ridge regression
    and diagonal maps, with the Gaussian and the Laplace kernel.
    """
    some = problem.rows.at_most(_FEW_ROWS, problem.rng)
    exact = problem.criterion(some, None, directions.kernel)
    starts = [replace(directions, shape=Scaled(directions.B))]
    for name in ("gaussian", "laplace"):
        plain = plain_start(some, unit_kernel(name), problem.rng)
        starts += [plain, replace(plain, shape=Diagonal())]
    zero = exact.nats(mean_only(exact, directions, some.total_weight).value)
    own, *others = (exact.nats(end.value) for end in problem.improve_each(exact, starts, SHORT_RUN))
    return own - zero, min(others) - zero


def _is_worth_more(problem: SearchProblem, directions: Candidate) -> bool:
    """Return whether the search for directions should go on, because the target may be a multi-index model.

    This is the case if a map with few directions leads clearly, as defined by `_CLEAR_LEAD` and `_CLEAR_RATIO`, or if
    the models without directions explain almost nothing.
    """
    if not problem.in_time:
        return False
    own, others = _lead(problem, directions)
    return others > _UNEXPLAINED or _lead_clearly(directions, own, others)


def _is_multi_index(problem: SearchProblem, directions: Candidate) -> bool:
    """Return whether the map has few directions and explains the target far better than models without directions."""
    return _lead_clearly(directions, *_lead(problem, directions))


def _lead_clearly(directions: Candidate, own: float, others: float) -> bool:
    few = directions.n_components <= max(1, directions.B.shape[1] // _FEW_PER_COLUMNS)
    return few and own < _UNEXPLAINED and own < max(others - _CLEAR_LEAD, _CLEAR_RATIO * others)
