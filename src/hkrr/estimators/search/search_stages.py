"""The whole search, from rows to one map: few rows and few centers first, more for what survives."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np

from hkrr.candidates import FIRST_LAMBDA, Candidate, descend, optimism, plain, score
from hkrr.centers import uniform_or_all
from hkrr.criteria import Criterion, Grouped
from hkrr.exceptions import FitError
from hkrr.held_out import HeldOut, is_doubtful
from hkrr.kernel_search import grouped, search_kernels
from hkrr.kernels import KERNELS, Kernel
from hkrr.outliers import compared_without
from hkrr.progress import Enough, Report
from hkrr.rows import InMemoryRows
from hkrr.search import SEARCH_CENTERS, SEARCH_ROWS, search_dimensions
from hkrr.shapes import Scaled, ScaledRows
from hkrr.solvers import Result
from hkrr.solvers.base import MESSAGES
from hkrr.threads import blas_for, single_threaded_blas

SAMPLE_ROWS = 20_000  # that any stage looks at, at most
_EXACT_ROWS, _POLISH_CENTERS, _POLISH_ITERATIONS = 1_000, 400, 40
_RESCALE_ROWS, _RESCALE_ITERATIONS, _SCALES_ITERATIONS = 2_000, 8, 30
_FEW_DIRECTIONS = 2  # maps of few directions that the search for a kernel begins with
_SHARE_OF_DIRECTIONS = 0.3  # of the time there is, while the kernel is still to be found

PLAIN_WINS = "plain kernel ridge regression on all inputs does better: no few directions were found"

DID_NOT_HOLD_UP = (
    "a map of few directions has the better criterion, but did not hold up on rows that it was not learned on:"
    " the inputs keep their own axes"
)


@dataclass(frozen=True)
class Task:
    """What a search is given: the rows, the criterion, the numbers of directions to try, and what it may spend."""

    rows: InMemoryRows
    make: type[Criterion]
    dimensions: Sequence[int]
    choose_dimension: bool  # whether all inputs, or a map of another shape, may take the place of few directions
    n_starts: int
    rng: np.random.RandomState
    stands_for: float | None = None  # the weight of all rows, where these are a part of them
    n_jobs: int | None = None
    n_threads: int = 1
    deadline: float = math.inf
    verbose: int = 0
    report: Report = field(default_factory=Report)  # is told of what is tried, and of the best candidate so far

    @property
    def total_weight(self) -> float:
        """What all the rows weigh."""
        return self.rows.total_weight if self.stands_for is None else self.stands_for

    @property
    def in_time(self) -> bool:
        """Whether the deadline has not passed."""
        return time.perf_counter() < self.deadline


def tune(task: Task, kernel: Kernel | None) -> tuple[Candidate, Result, list[Candidate]]:
    """Return the chosen candidate, the run that ended with it, and all that were tried; no kernel: that too is chosen.

    The candidates' scores are comparable among those of one stage, which see the same rows.
    """
    task = replace(task, rows=task.rows.count_free_columns())
    try:
        return _with_any_kernel(task) if kernel is None else _with_kernel(task, kernel)
    except Enough as stop:
        return *_as_it_stands(task, stop.best[-1], "callback"), list(stop.best)


def _with_kernel(task: Task, kernel: Kernel) -> tuple[Candidate, Result, list[Candidate]]:
    """Directions first, the best of them on more rows, then against plain kernel ridge regression."""
    best, ends = directions(task, kernel)
    task.report.trying("the best directions on more rows")
    polished, result = polish(task, worth_polishing(task, best))
    task.report.found(polished)
    ends = [*ends, polished]
    if task.in_time:
        with suppress(FitError):  # scales that cannot be learned anew stay as they are
            polished = rescaled(task, polished)
            task.report.found(polished)
            ends = [*ends, polished]
    if task.choose_dimension and task.rows.n_features > 1 and task.in_time:
        task.report.trying("plain kernel ridge on all columns")
        return _against_plain(task, polished, result, ends)
    return polished, result, ends


def directions(task: Task, kernel: Kernel) -> tuple[list[Candidate], list[Candidate]]:
    """Return the best candidate of each number of directions, the lowest score first, and all that were tried."""
    few = subset(task.rows, SEARCH_ROWS, task.rng).on_threads(1)
    criterion = task.make(few, uniform_or_all(few, SEARCH_CENTERS, task.rng), kernel, 1.0, True)
    best, ends = search_dimensions(
        criterion,
        task.dimensions,
        n_starts=task.n_starts,
        rng=task.rng,
        n_jobs=task.n_jobs,
        n_threads=task.n_threads,
        deadline=task.deadline,
        patient=task.choose_dimension,
        verbose=task.verbose,
        report=task.report,
    )
    ordered = compared_without(
        criterion, list(best.values()), task.deadline, n_jobs=task.n_jobs, n_threads=task.n_threads
    )
    return ordered, ends


def worth_polishing(task: Task, best: list[Candidate]) -> list[Candidate]:
    """Return the best candidate of the search, and the one that would be, did all rows say what the few have said.

    With many rows a weak direction is worth its parameters that was not with few.
    """
    W = task.total_weight
    n = task.rows.total_weight * min(1.0, SEARCH_ROWS / task.rows.n_rows)  # what the rows searched weigh

    def at_all_rows(candidate: Candidate) -> float:
        dof = candidate.degrees_of_freedom
        nats = candidate.score - 0.5 * dof * math.log(max(n, 2))
        return W / n * nats + 0.5 * dof * math.log(max(W, 2.0)) + optimism(dof, n, W)

    other = min(best, key=at_all_rows)
    return best[:1] if other is best[0] else [best[0], other]


def polish(task: Task, candidates: Sequence[Candidate]) -> tuple[Candidate, Result]:
    """Return the best of the candidates, improved on more rows with more centers, and the run."""
    many = task.rows
    centers = None if many.n_rows <= _EXACT_ROWS else uniform_or_all(many, _POLISH_CENTERS, task.rng)
    criterion = task.make(many, centers, candidates[0].kernel, 1.0, True)
    ends = []
    with blas_for(criterion.n_centers):
        for candidate in candidates:
            if not task.in_time:
                break
            start = replace(candidate, start="polished", seconds=0.0)
            with suppress(FitError):  # more rows may be more than can be evaluated: no reason to lose a sound map
                ends.append(
                    descend(
                        criterion,
                        start,
                        _POLISH_ITERATIONS,
                        task.deadline,
                        tol=1e-6,
                        plateau=1e-7,
                        verbose=task.verbose,
                    )
                )
    return min(ends, key=lambda end: end[0].score) if ends else _as_it_stands(task, candidates[0])


def rescaled(task: Task, candidate: Candidate) -> Candidate:
    """Return the map with its directions held, their scales and the noise learned anew, exact on a part of the rows.

    L-BFGS on the whole map is slow to move along the valley in which all scales and the noise change together, and
    going on with it until it has arrived overfits the directions, where these are many for the rows.
    """
    B = candidate.B
    if candidate.kernel.rotation_invariant:
        _, s, Vt = np.linalg.svd(B, full_matrices=False)
        B = s[:, None] * Vt
    exact = task.make(subset(task.rows, _EXACT_ROWS, task.rng), None, candidate.kernel, 1.0, True)
    start = replace(candidate, start="rescaled", B=B, shape=ScaledRows(B), seconds=0.0)
    with single_threaded_blas():
        end, _ = descend(exact, start, _SCALES_ITERATIONS, task.deadline, tol=1e-7, plateau=1e-9)
    return replace(end, shape=candidate.shape)


def _as_it_stands(task: Task, candidate: Candidate, reason: str | None = None) -> tuple[Candidate, Result]:
    """Return the candidate, and a run of no steps that ended with it."""
    reason = reason or ("stalled" if task.in_time else "time_limit")
    nothing: dict[str, list[float]] = {name: [] for name in ("time", "objective", "grad_norm", "step")}
    reg_lambda = candidate.nu / task.total_weight
    return candidate, Result(
        candidate.B, np.zeros((0, 1)), candidate.value, reg_lambda, 0, reason, MESSAGES[reason], nothing
    )


def _against_plain(
    task: Task, polished: Candidate, result: Result, ends: list[Candidate]
) -> tuple[Candidate, Result, list[Candidate]]:
    """Return the better of the map and of plain kernel ridge regression, by their scores on the same rows."""
    try:
        compared, rival, rival_result = compared_with_plain(task, polished)
    except (FitError, ArithmeticError):
        # A comparison that cannot be made is no reason to lose a sound map.
        return polished, result, ends
    ends = [*ends, compared, rival]
    stays, tried = _stands(task, compared, rival)
    if stays:
        return replace(polished, score=compared.score), result, [*ends, *tried]
    message = DID_NOT_HOLD_UP if tried else PLAIN_WINS
    if task.verbose:
        print(message)
    return rival, replace(rival_result, message=message), [*ends, *tried]


def compared_with_plain(task: Task, polished: Candidate) -> tuple[Candidate, Candidate, Result]:
    """Return the map and plain kernel ridge regression, both exact on the same rows, and the latter's run.

    Both learn their scale and noise there; their parameters are priced at all rows.
    """
    some = subset(task.rows, _EXACT_ROWS, task.rng)
    exact = task.make(some, None, polished.kernel, 1.0, True)
    noises = (polished.nu, 0.1, FIRST_LAMBDA * some.total_weight)
    compared = replace(polished, start="compared", shape=Scaled(polished.B), seconds=0.0)
    with single_threaded_blas():
        rival, result = plain(exact, polished.kernel, noises, task.rng, task.deadline)
        compared, _ = descend(exact, compared, _RESCALE_ITERATIONS, task.deadline)
    compared = replace(compared, shape=polished.shape)
    compared, rival = (
        replace(one, score=score(exact, one.value, one.degrees_of_freedom, task.total_weight))
        for one in (compared, rival)
    )
    return compared, rival, result


def _stands(task: Task, chosen: Candidate, rival: Candidate) -> tuple[bool, list[Candidate]]:
    """Return whether the map's lead is clear, or holds up on rows that it has not seen; and that comparison."""
    if chosen.score > rival.score:
        return False, []
    if not is_doubtful(chosen, rival) or not task.in_time:
        return True, []
    task.report.trying("whether the directions hold up on rows not learned from")
    began = time.perf_counter()
    check = HeldOut(task.make, task.n_starts, task.rng, task.n_jobs, task.n_threads, task.deadline)
    verdict = check.compare(task.rows, chosen, rival)
    seconds = time.perf_counter() - began
    errors = ((chosen, verdict.error, seconds), (rival, verdict.error_of_rival, 0.0))
    return verdict.holds, [
        replace(one, start="held out", value=error, score=error, seconds=spent) for one, error, spent in errors
    ]


def _with_any_kernel(task: Task) -> tuple[Candidate, Result, list[Candidate]]:
    """Few directions with the Gaussian kernel first, then all kernels and shapes, then the scale on more rows."""
    now = time.perf_counter()
    first = replace(task, deadline=now + _SHARE_OF_DIRECTIONS * (task.deadline - now))
    best: list[Candidate] = []
    ends: list[Candidate] = []
    with suppress(FitError):  # where the Gaussian kernel fails, another may not
        best, ends = directions(first, KERNELS["gaussian"].with_gamma(1.0))
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
        report=task.report,
    )
    message = None
    others = [end for end in tried if end.shape.name != "full" and "half" not in end.start]
    if others and task.choose_dimension and winner.shape.name == "full":
        rival = min(others, key=lambda end: ("finalist" not in end.start, end.score))
        stays, compared = _stands(task, winner, rival)
        tried += compared
        if not stays:
            winner, message = rival, DID_NOT_HOLD_UP if compared else None
    # The noise and the length scale that suit some hundred rows are not quite those of all of them.
    criterion: Grouped = grouped(task.make, task.rows, min(task.rows.n_rows, _RESCALE_ROWS), 1, task.rng)
    start = replace(winner, start="rescaled", shape=Scaled(winner.B), seconds=0.0)
    end, result = _as_it_stands(task, winner)
    if task.in_time:
        with suppress(FitError):
            end, result = descend(criterion, start, _RESCALE_ITERATIONS, task.deadline)
            end = replace(end, shape=winner.shape, score=score(criterion, end.value, winner.degrees_of_freedom))
    if winner.shape.name == "identity":
        message = message or PLAIN_WINS
    if message is not None:
        result = replace(result, message=message)
        if task.verbose:
            print(message)
    return end, result, [*ends, *tried, end]


def subset(rows: InMemoryRows, n: int, rng: np.random.RandomState) -> InMemoryRows:
    """Return n rows drawn at random, or all where there are no more."""
    return rows if rows.n_rows <= n else rows.subset(rows.draw(n, rng))
