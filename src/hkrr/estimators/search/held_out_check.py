"""Whether a map of many parameters holds up on rows that it was not learned on.

A price of log(m) / 2 nats for each parameter supposes that there are many rows for each. With few, a map of some
directions can be turned until a rough function of them passes through all the noise (600 rows of 200 columns, signal
and noise of equal variance: a gain of 3.2 nats for each parameter). So where a full map is ahead by little, it and its
rival of few parameters are learned anew on three quarters of the rows, and compared on the last.
"""

from __future__ import annotations

import math
import time
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from hkrr._arrays import Array
from hkrr.candidates import FIRST_LAMBDA, LONG, Candidate, improve
from hkrr.centers import uniform_or_all
from hkrr.criteria import Criterion, Grouped
from hkrr.exceptions import FitError
from hkrr.kernels import Kernel
from hkrr.objective import Objective
from hkrr.rows import InMemoryRows
from hkrr.search import SEARCH_CENTERS, SEARCH_ROWS, search_dimensions
from hkrr.shapes import square_is_affordable
from hkrr.threads import single_threaded_blas

_LEAD = 3.0  # nats for each parameter of the map, below which a lead is little
_PARTS, _ROWS, _GROUP_ROWS = 4, 6_000, 500
_FEW_ROWS, _VERY_FEW_ROWS = 2_000, 1_000  # below which two parts, and all four, are held out in turn
_FIRST_NOISE = 0.1


def is_doubtful(chosen: Candidate, rival: Candidate) -> bool:
    """Whether a full map is ahead of its rival by less than three nats for each of its parameters."""
    return chosen.shape.name == "full" and rival.score - chosen.score < _LEAD * chosen.degrees_of_freedom


@dataclass(frozen=True)
class Verdict:
    """Whether a map holds up, and the held-out errors in units of the variance; NaN where the time ran out."""

    holds: bool
    error: float = math.nan
    error_of_rival: float = math.nan


@dataclass(frozen=True)
class HeldOut:
    """The comparison of a map with a rival of few parameters, and what it may spend."""

    make: type[Criterion]
    n_starts: int
    rng: np.random.RandomState
    n_jobs: int | None = None
    n_threads: int = 1
    deadline: float = math.inf

    def compare(self, rows: InMemoryRows, chosen: Candidate, rival: Candidate) -> Verdict:
        """Return whether the map predicts rows that it has not seen no worse than the rival does.

        At most 6,000 rows, a quarter of them held out: once, or twice in turn below 2,000 rows, four times below 1,000,
        for few rows decide wrongly. Both are learned from nothing but the other rows. Where the time runs out there is
        no verdict, and the map stays.
        """
        drawn = rows.draw(_ROWS, self.rng)
        if len(drawn) < 2 * _PARTS:
            return Verdict(True)  # too few to tell
        turns = _PARTS if len(drawn) < _VERY_FEW_ROWS else 2 if len(drawn) < _FEW_ROWS else 1
        errors = []
        for turn in range(turns):
            held_out = np.arange(len(drawn)) % _PARTS == turn
            learn, last = rows.subset(drawn[~held_out]), rows.subset(drawn[held_out])
            groups = Grouped(self.make, learn, max(1, learn.n_rows // _GROUP_ROWS), chosen.kernel, 1.0, self.n_threads)
            again, other = self._map_anew(groups, chosen), self._scales_anew(groups, rival)
            if time.perf_counter() > self.deadline:
                return Verdict(True)
            errors.append([squared_errors(learn, last, again), squared_errors(learn, last, other)])
        error, error_of_rival = (float(error) for error in np.mean(np.concatenate(errors, axis=1), axis=1))
        return Verdict(error <= error_of_rival, error, error_of_rival)

    def _map_anew(self, groups: Grouped, chosen: Candidate) -> Candidate:
        """Return a map of as many directions, from random starts, and from a square one where that may be."""
        learn, d = groups.rows, chosen.n_components
        fresh = replace(chosen, value=math.inf, score=math.inf)
        starts = []
        if square_is_affordable(learn.n_rows, learn.n_features, chosen.kernel):
            identity = self._typical_scale(learn, chosen.kernel) * np.eye(learn.n_features)
            square = improve(groups, replace(fresh, B=identity, nu=_FIRST_NOISE), LONG, self.deadline)
            if math.isfinite(square.value):
                starts.append(replace(square, B=largest_directions(square.B, d)))
        few = learn.subset(np.arange(min(learn.n_rows, SEARCH_ROWS))).on_threads(1)
        centers = uniform_or_all(few, SEARCH_CENTERS, self.rng)
        with suppress(FitError):
            best, _ = search_dimensions(
                self.make(few, centers, chosen.kernel, 1.0, True),
                [d - 1, d] if d > 1 else [d],
                n_starts=self.n_starts,
                rng=self.rng,
                n_jobs=self.n_jobs,
                n_threads=self.n_threads,
                deadline=self.deadline,
                patient=False,
            )
            starts += [best[d]] if d in best else []
        ends = [improve(groups, start, LONG, self.deadline) for start in starts]
        return min(ends, key=lambda end: end.value, default=fresh)

    def _scales_anew(self, groups: Grouped, rival: Candidate) -> Candidate:
        """Return plain kernel ridge regression, or a scale for each column, from the median rule."""
        B = self._typical_scale(groups.rows, rival.kernel) * np.ones(groups.rows.n_features)
        noises = (_FIRST_NOISE, FIRST_LAMBDA * groups.rows.total_weight / groups.n_groups)
        starts = [replace(rival, B=B, nu=nu, value=math.inf, score=math.inf) for nu in noises]
        ends = [improve(groups, start, LONG, self.deadline) for start in starts]
        return min(ends, key=lambda end: end.value)

    def _typical_scale(self, rows: InMemoryRows, kernel: Kernel) -> float:
        return math.sqrt(kernel.median_gamma(rows.take(rows.draw(500, self.rng))))


def largest_directions(B: Array, n_components: int) -> Array:
    """Return the map cut to its largest directions."""
    with single_threaded_blas():
        _, s, Vt = np.linalg.svd(B, full_matrices=False)
    return s[:n_components, None] * Vt[:n_components]


def squared_errors(learn: InMemoryRows, last: InMemoryRows, candidate: Candidate) -> Array:
    """Return each last row's squared error of the fit on the others, weighted, each target in units of its variance.

    A candidate that could not be evaluated predicts the mean.
    """
    X, Y, w = last.gather()
    seen, targets, _ = learn.gather()
    predicted = np.zeros_like(Y)
    if math.isfinite(candidate.value):
        B = candidate.matrix
        with single_threaded_blas(), suppress(ArithmeticError):
            alpha = Objective(learn, None, candidate.kernel, candidate.nu / learn.total_weight).solve_alpha(B)
            predicted = candidate.kernel(X @ B.T, seen @ B.T) @ alpha
    variance = np.mean(targets**2, axis=0)
    squares = np.mean((Y - predicted) ** 2 / np.where(variance > 0, variance, 1.0), axis=1)
    return squares if w is None else squares * (w / np.mean(w))
