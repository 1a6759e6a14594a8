"""The last fit: the coefficients on all rows at the chosen map, and how long that will take."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from hkrr._arrays import Watch
from hkrr.candidates import Candidate
from hkrr.centers import uniform_or_all
from hkrr.conformal import SCORED_ROWS, Uncertainty, uncertainty_of
from hkrr.journal import step
from hkrr.kernels import Kernel
from hkrr.objective import Objective
from hkrr.rows import InMemoryRows, Rows, threads_for_sums
from hkrr.solvers import Result
from hkrr.solvers.base import MESSAGES
from hkrr.solves import Solve, known_of
from hkrr.threads import blas_for, in_threads, single_threaded_blas

# Up to this many rows all of them are centers; beyond, so many. Rough kernels want more of them than smooth ones.
EXACT_ROWS, CENTERS = 5_000, 2_000
EXACT_ROWS_ROUGH, CENTERS_ROUGH = 10_000, 4_000
_QUICK_CENTERS = 500
# Rows of the small pieces: of a factorisation, which is slow for its size where it is small; of a product; of the
# kernel, which many columns make slow.
_FACTOR_SAMPLE, _SAMPLE, _KERNEL_SAMPLE = 1000, 500, 150
_ROWS_FOR_A_THREAD = 1_000  # of a factorisation: its blocks of 512 rows are shared, and ever fewer


def full_size(n_rows: int, smooth: bool) -> int:
    """Return the number of centers that ``refit="full"`` stands for."""
    exact, centers = (EXACT_ROWS, CENTERS) if smooth else (EXACT_ROWS_ROUGH, CENTERS_ROUGH)
    return n_rows if n_rows <= exact else centers


def last_fit(
    rows: Rows, winner: Candidate, result: Result, n_centers: int, rng: np.random.RandomState, how_sure: bool = True
) -> tuple[Objective, Result, Solve, Uncertainty | None]:
    """Return what was solved, the run that ended with the winner, its coefficients those on all rows, and the solve.

    What is known of the solve, and how sure the model is, is recorded with the coefficients: a fit that goes on has
    nothing to solve again, and the report of one that was never interrupted. How sure it is takes longer than the
    coefficients do, and can be left out where nothing is recorded.
    """
    reg_lambda, B = winner.nu / rows.total_weight, winner.matrix
    with single_threaded_blas():
        objective = Objective(rows, uniform_or_all(rows, n_centers, rng), winner.kernel, reg_lambda)

    def compute() -> tuple[Any, ...]:
        watch = Watch()
        with single_threaded_blas():
            alpha = objective.solve_alpha(B, watch)
        with blas_for(len(objective.centers)):
            sure = uncertainty_of(objective, B, alpha, alpha, watch, winner.shape.name) if how_sure else None
            return alpha, tuple(known_of(watch, rows)), None if sure is None else tuple(sure)

    def is_fit(found: Any) -> bool:
        alpha, numbers, sure = found
        fits = isinstance(alpha, np.ndarray) and alpha.shape == (objective.n_centers, rows.n_targets)
        fits = fits and len(numbers) == len(Solve._fields) and all(isinstance(one, float) for one in numbers)
        return fits and (sure is None or len(sure) == len(Uncertainty._fields))

    alpha, known, sure = step(("last fit", objective.content, B), compute, sound=is_fit)
    result = replace(result, B=B, alpha=alpha, reg_lambda=reg_lambda)
    return objective, result, Solve(*known), None if sure is None else Uncertainty(*sure)


def quick_fit(
    sample: InMemoryRows, candidate: Candidate, how_sure: bool = True
) -> tuple[Objective, Result, Solve, Uncertainty | None]:
    """Return a last fit that takes no time, for a search that was interrupted: few centers, and the rows of the search.

    Its random numbers are its own: the search goes on as if it had not been.
    """
    nothing: dict[str, list[float]] = {name: [] for name in ("time", "objective", "grad_norm", "step")}
    message, rng = MESSAGES["interrupted"], np.random.RandomState(0)
    result = Result(candidate.B, np.zeros((0, 1)), candidate.value, 0.0, 0, "interrupted", message, nothing)
    return last_fit(sample, candidate, result, _QUICK_CENTERS, rng, how_sure)


class Clock:
    """Foretells the seconds of a last fit on so many threads, from small pieces of one timed here and now.

    The pieces run on all the threads at once, so that whatever else keeps the machine busy counts; BLAS has one thread
    in each, as in the fit. Of three times, after a cold one, the middle one is taken.
    """

    def __init__(self, kernel: Kernel, n_features: int, n_threads: int) -> None:
        P = np.random.RandomState(0).standard_normal((_KERNEL_SAMPLE, n_features))
        A, definite = np.ones((_SAMPLE, _SAMPLE)), 2.0 * np.eye(_FACTOR_SAMPLE)

        def seconds(work: Callable[[], object]) -> float:
            times = []
            for _ in range(4):
                began = time.perf_counter()
                in_threads(lambda _: work(), range(n_threads), n_threads)
                times.append(time.perf_counter() - began)
            return float(np.median(times[1:]))

        self._entry = seconds(lambda: kernel(P, P)) / _KERNEL_SAMPLE**2
        # NumPy's, which lets other threads run meanwhile; SciPy's does not.
        self._factor = seconds(lambda: np.linalg.cholesky(definite)) / _FACTOR_SAMPLE**3  # for each c^3
        # For each m c^2 of the sums over the rows: the products, their whitening, and what memory adds, as measured.
        self._product = seconds(lambda: A.T @ A) / _SAMPLE**3
        self._sum = 3.0 * self._product
        self._n_threads = n_threads

    def seconds(self, n_rows: int, n_centers: int) -> float:
        """Return about how long the coefficients will take: kernel entries, sums of products, factorisations.

        And the scores of intervals, with as many tangents as rows that have one: triangular solves.
        """
        scores = self._product * min(n_centers, n_rows) ** 2 * 3.0 * min(SCORED_ROWS, n_rows)
        if n_centers >= n_rows:
            sharing = min(self._n_threads, max(1, n_rows // _ROWS_FOR_A_THREAD))
            solve = self._entry * n_rows**2 / self._n_threads + self._factor * n_rows**3 / sharing
            return solve + scores
        sharing = min(self._n_threads, threads_for_sums(n_centers))
        sums = self._entry * n_rows * n_centers + self._sum * n_rows * n_centers**2
        return sums / sharing + self._entry * n_centers**2 + 4.0 * self._factor * n_centers**3 + scores

    def affordable(self, n_rows: int, n_centers: int, seconds: float) -> int:
        """Return how many centers, n_centers at most, can be fitted in so many seconds (one always can)."""
        n_centers = min(n_centers, n_rows)
        while n_centers > 1 and self.seconds(n_rows, n_centers) > seconds:
            n_centers = max(1, int(0.8 * n_centers))
        return n_centers


class TimeLeft:
    """What a time limit leaves for the search, and for the last fit; without one, all.

    ``reading`` is how long the last fit will take to read the rows.
    """

    def __init__(self, rows: Rows, limit: float | None, began: float, reading: float, n_threads: int) -> None:
        self._rows, self._limit, self._began = rows, limit, began
        self._reading, self._n_threads = reading, n_threads

    def deadline(self, kernel: Kernel, n_centers: int) -> float:
        """Return when the search should end, for a last fit that takes a third of the time at most."""
        if self._limit is None:
            return math.inf
        clock = Clock(kernel, self._rows.n_features, self._n_threads)
        affordable = clock.affordable(self._rows.n_rows, n_centers, self._limit / 3)
        return self._began + self._limit - clock.seconds(self._rows.n_rows, affordable) - self._reading

    def n_centers(self, kernel: Kernel, n_centers: int) -> int:
        """Return how many centers the last fit can have now."""
        if self._limit is None:
            return n_centers
        left = self._began + self._limit - time.perf_counter() - self._reading
        clock = Clock(kernel, self._rows.n_features, self._n_threads)
        return clock.affordable(self._rows.n_rows, n_centers, max(left, self._limit / 10))
