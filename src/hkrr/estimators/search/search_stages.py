"""The complete search: from rows to one candidate.

The first stages use few rows and few centers. The candidates that survive are refined on more rows with more centers.

Outliers must not determine the number of directions. The criteria assume Gaussian noise. A single outlier in y can
therefore improve the criterion so much that an additional direction, along which the function fits only this outlier,
lowers the score. To avoid this, the candidates are compared again without the outliers. A row is an outlier if its
residual is very large under the candidate with the next smaller number of directions than the winner.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hkrr._base.linear_algebra import Array
from hkrr._base.threads import blas_for, single_threaded_blas
from hkrr._maps import Full, KernelExpansion, Scaled, ScaledRows, principal_form
from hkrr.centers import uniform_or_all
from hkrr.criteria import Criterion, Grouped
from hkrr.estimators.search.candidates import (
    FIRST_LAMBDA,
    SHORT,
    Candidate,
    Origin,
    descend,
    improve_each,
    optimism,
    plain_kernel_ridge,
    score,
    unchanged,
)
from hkrr.estimators.search.directions import DirectionSearch
from hkrr.estimators.search.held_out_check import HeldOutCheck, needs_check
from hkrr.estimators.search.kernel_and_map_shape import best_on_most_rows, grouped, search_kernels
from hkrr.estimators.search.progress import Phase, Progress, SearchStopped
from hkrr.exceptions import FitError
from hkrr.kernels import KERNELS, Kernel
from hkrr.rows import InMemoryRows
from hkrr.solvers import Result

# Maximum number of rows that a search uses.
SAMPLE_ROWS = 20_000
# Maximum number of rows of a criterion in which all rows are centers.
_EXACT_ROWS = 1_000
# Number of rows of a first comparison with plain kernel ridge regression.
_FEW_ROWS = 300
# Ratio of the number of centers for polishing, on more than _EXACT_ROWS rows, to that of the search for directions; the
# maximum number of these centers, and the maximum number of iterations for polishing.
_POLISH_RATIO, _POLISH_CENTERS, _POLISH_ITERATIONS = 2, 400, 20
# Maximum number of rows for the last refit of the scale and noise with kernel="auto".
_RESCALE_ROWS = 2_000
# Maximum numbers of iterations: for one common scale of the map, and for one scale per direction.
_RESCALE_ITERATIONS, _SCALES_ITERATIONS = 8, 30
# Number of maps found with the Gaussian kernel that are starts of the search over kernels.
_FEW_DIRECTIONS = 2
# Share of the time that the search for directions may take if the kernel is selected too.
_SHARE_OF_DIRECTIONS = 0.3

PLAIN_WINS = "plain kernel ridge regression on all inputs scores better than any map with few directions"

FAILED_CHECK = (
    "a map with few directions has the better criterion, but it predicted held-out rows worse than a model without"
    " directions; the model without directions was selected"
)

# Number of robust standard deviations above which a residual is an outlier. Only 2 in 10^9 normal residuals are larger.
_OUTLIER = 6.0
# Ratio of the standard deviation to the median absolute deviation of a normal distribution.
_MAD_TO_STD = 1.4826
# Maximum share of rows that can be outliers. If more rows have large residuals, these rows are treated as signal.
_MAX_OUTLIER_SHARE = 0.02


@dataclass(frozen=True)
class Task:
    """The input of a search: rows, criterion, numbers of directions to try, and resources.

    Attributes
    ----------
    rows : InMemoryRows
        The rows on which the search runs, standardized.
    make : type of Criterion
        Class of the criterion.
    dimensions : sequence of int
        Numbers of directions to try, in increasing order.
    choose_dimension : bool
        Whether the number of directions is selected automatically (``n_components="auto"``). If True, the search
        need not try all `dimensions`, and plain kernel ridge regression or a diagonal map may be selected.
    n_starts : int
        Number of random starts.
    rng : RandomState
        Random number generator of the search.
    represented_weight : float or None
        Total weight of all rows of the fit. None means that `rows` contains all rows, not only a sample.
    n_jobs, n_threads : int
        Numbers of joblib workers and of threads.
    deadline : float
        Time (of ``time.perf_counter``) at which the search stops.
    verbose : int
        If above 0, progress bars and messages are shown.
    progress : Progress
        Object that is notified of each stage and of each new best candidate.
    """

    rows: InMemoryRows
    make: type[Criterion]
    dimensions: Sequence[int]
    choose_dimension: bool
    n_starts: int
    rng: np.random.RandomState
    represented_weight: float | None = None
    n_jobs: int | None = None
    n_threads: int = 1
    deadline: float = math.inf
    verbose: int = 0
    progress: Progress = field(default_factory=Progress)

    @property
    def total_weight(self) -> float:
        """The total weight of all rows of the fit, even if the search uses only a sample of these rows."""
        return self.rows.total_weight if self.represented_weight is None else self.represented_weight

    @property
    def in_time(self) -> bool:
        """Whether the deadline has not passed."""
        return time.perf_counter() < self.deadline


def tune(task: Task, kernel: Kernel | None) -> tuple[Candidate, Result, list[Candidate]]:
    """Run the search. Return the selected candidate, the result of its last run, and all candidates tried.

    If `kernel` is None, the kernel and the shape of the map are selected too. Scores of candidates are comparable only
    if they were computed on the same rows.
    """
    task = replace(task, rows=task.rows.count_free_columns())
    try:
        return _search_all_kernels(task) if kernel is None else _search_one_kernel(task, kernel)
    except SearchStopped as stop:
        return *_without_run(task, stop.best[-1], "callback"), list(stop.best)


def _search_one_kernel(task: Task, kernel: Kernel) -> tuple[Candidate, Result, list[Candidate]]:
    """Find directions, polish the best map on more rows, and compare this map with plain kernel ridge regression.

    Return the same values as `tune`.
    """
    compares = task.choose_dimension and task.rows.n_features > 1
    plain = None
    if compares and math.isfinite(task.deadline):
        # With a time limit, the search begins with a simple model that is ready soon.
        with suppress(FitError, ArithmeticError):
            plain = fit_plain(task, kernel, _FEW_ROWS)
            task.progress.found(plain[1])
    best, ends, searched_weight = find_directions(task, kernel)
    task.progress.begin("refining the best directions on more rows", Phase.POLISHING)
    polished, result = polish(task, select_for_polishing(task, best, searched_weight))
    task.progress.found(polished)
    ends = [*ends, polished]
    if task.in_time:
        # If the scales cannot be refitted, the map is kept as it is.
        with suppress(FitError):
            polished = rescale(task, polished)
            task.progress.found(polished)
            ends = [*ends, polished]
    if compares and task.in_time:
        task.progress.begin("plain kernel ridge on all columns", Phase.AGAINST_PLAIN)
        return _against_plain(task, polished, result, ends)
    if plain is not None:
        criterion, rival = plain
        with single_threaded_blas(), suppress(ArithmeticError, np.linalg.LinAlgError):
            value = criterion.reduced(polished.B, polished.nu / criterion.rows.total_weight).value
            if score(criterion, value, polished.degrees_of_freedom) > rival.score:
                return *_without_run(task, rival), [*ends, rival]
    return polished, result, ends


def fit_plain(task: Task, kernel: Kernel, n_rows: int) -> tuple[Criterion, Candidate]:
    """Fit plain kernel ridge regression on at most `n_rows` rows. Return the criterion on these rows and the fit."""
    some = subset(task.rows, n_rows, task.rng)
    exact = task.make(some, None, kernel, 1.0, True)
    with single_threaded_blas():
        return exact, plain_kernel_ridge(exact, kernel, (0.1, FIRST_LAMBDA * some.total_weight), task.rng)[0]


def find_directions(task: Task, kernel: Kernel) -> tuple[list[Candidate], list[Candidate], float]:
    """Return the best candidate for each number of directions, all candidates, and the weight of the rows used.

    The candidates of the first list are sorted, lowest score first.
    """
    search = DirectionSearch(
        task.make,
        task.rows,
        kernel,
        task.dimensions,
        choose=task.choose_dimension,
        n_starts=task.n_starts,
        rng=task.rng,
        n_jobs=task.n_jobs,
        n_threads=task.n_threads,
        deadline=task.deadline,
        verbose=task.verbose,
        progress=task.progress,
    )
    best = list(search.run().values())
    ordered = rank_without_outliers(search.criterion, best, task.deadline, n_jobs=task.n_jobs, n_threads=task.n_threads)
    return ordered, search.ends, search.criterion.rows.total_weight


def select_for_polishing(task: Task, best: list[Candidate], searched_weight: float) -> list[Candidate]:
    """Return the best candidate on the rows of the search and, if it differs, the best candidate on all rows.

    The score on all rows is extrapolated from the score on the rows of the search. A weak direction can lower the score
    on many rows even if, on few rows, the gain is smaller than the penalty for its parameters. `searched_weight` is the
    total weight of the rows of the search.
    """
    W, n = task.total_weight, searched_weight

    def score_on_all_rows(candidate: Candidate) -> float:
        dof = candidate.degrees_of_freedom
        nats = candidate.score - 0.5 * dof * math.log(max(n, 2))
        return W / n * nats + 0.5 * dof * math.log(max(W, 2.0)) + optimism(dof, n, W)

    other = min(best, key=score_on_all_rows)
    return best[:1] if other is best[0] else [best[0], other]


def polish(task: Task, candidates: Sequence[Candidate]) -> tuple[Candidate, Result]:
    """Improve the candidates on more rows with more centers. Return the best candidate and the result of its run."""
    many = task.rows
    n_centers = min(_POLISH_CENTERS, _POLISH_RATIO * max(one.n_centers or _POLISH_CENTERS for one in candidates))
    centers = None if many.n_rows <= _EXACT_ROWS else uniform_or_all(many, n_centers, task.rng)
    criterion = task.make(many, centers, candidates[0].kernel, 1.0, True)
    options: dict[str, Any] = {"tol": 1e-6, "plateau": 1e-7, "verbose": task.verbose}
    ends = []
    with blas_for(criterion.n_centers):
        for candidate in candidates:
            if not task.in_time:
                break
            start = replace(candidate, origin=Origin.POLISHED, seconds=0.0)
            # If the criterion is not finite on more rows, the candidate remains valid, and its run is ignored.
            with suppress(FitError):
                ends.append(descend(criterion, start, _POLISH_ITERATIONS, task.deadline, **options))
    return min(ends, key=lambda end: end[0].score) if ends else _without_run(task, candidates[0])


def rescale(task: Task, candidate: Candidate) -> Candidate:
    """Return the candidate with the scales of its directions and its noise refitted on at most 1,000 rows.

    The directions themselves are held fixed. L-BFGS on the whole map converges slowly along the valley in which all
    scales and the noise change together. Running L-BFGS on the whole map to convergence could overfit the directions if
    there are few rows per parameter.
    """
    B = principal_form(candidate.B)[0] if candidate.kernel.rotation_invariant else candidate.B
    exact = task.make(subset(task.rows, _EXACT_ROWS, task.rng), None, candidate.kernel, 1.0, True)
    start = replace(candidate, origin=Origin.RESCALED, B=B, shape=ScaledRows(B), seconds=0.0)
    with single_threaded_blas():
        end, _ = descend(exact, start, _SCALES_ITERATIONS, task.deadline, tol=1e-7, plateau=1e-9)
    return replace(end, shape=candidate.shape)


def _without_run(task: Task, candidate: Candidate, reason: str | None = None) -> tuple[Candidate, Result]:
    """Return the unchanged candidate, and the result of a run without iterations that ends at this candidate."""
    reason = reason or ("stalled" if task.in_time else "time_limit")
    return candidate, unchanged(candidate, candidate.nu / task.total_weight, reason)


def _against_plain(
    task: Task, polished: Candidate, result: Result, ends: list[Candidate]
) -> tuple[Candidate, Result, list[Candidate]]:
    """Return the better of the polished map and plain kernel ridge regression, by their scores on the same rows.

    The result of the run of the better candidate and all candidates tried are returned too.
    """
    try:
        # If the difference is large, few rows are enough to see it.
        for n_rows in (_FEW_ROWS, _EXACT_ROWS):
            compared, rival, rival_result = compare_with_plain(task, polished, n_rows)
            if compared.score < rival.score and not needs_check(compared, rival):
                break
    except (FitError, ArithmeticError):
        # The comparison failed, but the map is still valid.
        return polished, result, ends
    ends = [*ends, compared, rival]
    keep, checked = _is_better(task, compared, rival)
    if keep:
        return replace(polished, score=compared.score), result, [*ends, *checked]
    message = FAILED_CHECK if checked else PLAIN_WINS
    if task.verbose:
        print(message)
    return rival, replace(rival_result, message=message), [*ends, *checked]


def compare_with_plain(
    task: Task, polished: Candidate, n_rows: int = _EXACT_ROWS
) -> tuple[Candidate, Candidate, Result]:
    """Return the map and plain kernel ridge regression as candidates that were scored on the same rows.

    The third value is the result of the run of plain kernel ridge regression. The scale and the noise of the two
    candidates are refitted on at most `n_rows` rows, with all of these rows as centers. The scores are extrapolated to
    the total weight of the task, including the penalty for the parameters (BIC).
    """
    some = subset(task.rows, n_rows, task.rng)
    exact = task.make(some, None, polished.kernel, 1.0, True)
    noises = (polished.nu, 0.1, FIRST_LAMBDA * some.total_weight)
    compared = replace(polished, origin=Origin.COMPARED, shape=Scaled(polished.B), seconds=0.0)
    with single_threaded_blas():
        rival, result = plain_kernel_ridge(exact, polished.kernel, noises, task.rng, task.deadline)
        compared, _ = descend(exact, compared, _RESCALE_ITERATIONS, task.deadline)
    compared = replace(compared, shape=polished.shape)
    compared, rival = (
        replace(one, score=score(exact, one.value, one.degrees_of_freedom, task.total_weight))
        for one in (compared, rival)
    )
    return compared, rival, result


def _is_better(task: Task, chosen: Candidate, rival: Candidate) -> tuple[bool, list[Candidate]]:
    """Return whether the map is better than its rival, and the entries of the held-out check for ``path_``.

    The scores decide. If the map is full and its lead in score is small, the held-out check decides instead. The list
    of entries is empty if no check was made.
    """
    if chosen.score > rival.score:
        return False, []
    if not needs_check(chosen, rival) or not task.in_time:
        return True, []
    task.progress.begin("checking the directions on held-out rows", Phase.HELD_OUT_CHECK)
    began = time.perf_counter()
    check = HeldOutCheck(task.make, task.n_starts, task.rng, task.n_jobs, task.n_threads, task.deadline)
    verdict = check.compare(task.rows, chosen, rival)
    seconds = time.perf_counter() - began
    errors = ((chosen, verdict.error, seconds), (rival, verdict.error_of_rival, 0.0))
    return verdict.holds, [
        replace(one, origin=Origin.HELD_OUT, half_groups=False, finalist=False, value=error, score=error, seconds=spent)
        for one, error, spent in errors
    ]


def _search_all_kernels(task: Task) -> tuple[Candidate, Result, list[Candidate]]:
    """Find directions with the Gaussian kernel, compare all kernels and map shapes, and refit the scale and noise.

    Return the same values as `tune`.
    """
    now = time.perf_counter()
    first = replace(task, deadline=now + _SHARE_OF_DIRECTIONS * (task.deadline - now))
    best: list[Candidate] = []
    ends: list[Candidate] = []
    # If the Gaussian kernel fails, a different kernel may still work.
    with suppress(FitError):
        best, ends, _ = find_directions(first, KERNELS["gaussian"].with_gamma(1.0))
    winner, tried = search_kernels(
        task.make,
        task.rows,
        best[:_FEW_DIRECTIONS],
        few_directions_only=not task.choose_dimension,
        total_weight=task.total_weight,
        rng=task.rng,
        n_jobs=task.n_jobs,
        n_threads=task.n_threads,
        deadline=task.deadline,
        verbose=task.verbose,
        progress=task.progress,
    )
    message = None
    others = [end for end in tried if not isinstance(end.shape, Full) and not end.half_groups]
    if others and task.choose_dimension and isinstance(winner.shape, Full):
        rival = best_on_most_rows(others)
        keep, checked = _is_better(task, winner, rival)
        tried += checked
        if not keep:
            winner, message = rival, FAILED_CHECK if checked else None
    # The noise and the length scale were fitted to groups of a few hundred rows. They are refitted on more rows.
    criterion: Grouped = grouped(task.make, task.rows, min(task.rows.n_rows, _RESCALE_ROWS), 1, task.rng)
    start = replace(
        winner, origin=Origin.RESCALED, half_groups=False, finalist=False, shape=Scaled(winner.B), seconds=0.0
    )
    end, result = _without_run(task, winner)
    if task.in_time:
        with suppress(FitError):
            end, result = descend(criterion, start, _RESCALE_ITERATIONS, task.deadline)
            end = replace(end, shape=winner.shape, score=score(criterion, end.value, winner.degrees_of_freedom))
    if isinstance(winner.shape, Scaled):
        message = message or PLAIN_WINS
    if message is not None:
        result = replace(result, message=message)
        if task.verbose:
            print(message)
    return end, result, [*ends, *tried, end]


def subset(rows: InMemoryRows, n: int, rng: np.random.RandomState) -> InMemoryRows:
    """Return n rows drawn at random, or all rows if there are at most n rows."""
    return rows if rows.n_rows <= n else rows.subset(rows.draw(n, rng))


def is_outlier(criterion: Criterion, candidate: Candidate) -> Array:
    """Return a mask of the rows whose residual under the candidate is very large in at least one target."""
    X, Y, _ = criterion.rows.gather()
    alpha = criterion.reduced(candidate.B, candidate.nu / criterion.rows.total_weight).alpha
    residuals = np.abs(Y - KernelExpansion(criterion.kernel, candidate.B, criterion.centers, alpha).at(X))
    typical = _MAD_TO_STD * np.median(residuals, axis=0)
    return np.any(residuals > _OUTLIER * typical, axis=1) & np.all(typical > 0)


def rank_without_outliers(
    criterion: Criterion, best: Sequence[Candidate], deadline: float, *, n_jobs: int | None = None, n_threads: int = 1
) -> list[Candidate]:
    """Return the candidates sorted by their scores without outliers, lowest score first.

    `best` has one candidate for each number of directions, and the winner is the candidate with the lowest score. The
    outliers are the rows with very large residuals under the candidate with the next smaller number of directions. If
    there is no such candidate, no outlier, or too many outliers, the scores do not change.
    """
    best = sorted(best, key=lambda one: one.score)
    smaller = [one for one in best if one.n_components < best[0].n_components]
    if not smaller:
        return best
    outliers = is_outlier(criterion, max(smaller, key=lambda one: one.n_components))
    rows = criterion.rows
    assert isinstance(rows, InMemoryRows)
    if not 0 < outliers.sum() <= _MAX_OUTLIER_SHARE * len(outliers):
        return best
    clean = type(criterion)(rows.subset(np.flatnonzero(~outliers)), criterion.centers, criterion.kernel, 1.0, True)
    ends = improve_each(clean, best, SHORT, deadline, n_jobs=n_jobs, n_threads=n_threads)
    scored = [replace(one, score=end.score) for one, end in zip(best, ends, strict=True)]
    return sorted(scored, key=lambda one: one.score)
