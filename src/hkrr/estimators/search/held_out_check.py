"""Check on held-out rows whether a map with many parameters generalizes.

The score (BIC) penalizes each parameter of a map by log(m) / 2 nats, where m is the number of rows. This penalty is
only valid if there are many rows per parameter. With few rows per parameter, the directions of a map can be chosen such
that an irregular function of these directions fits all the noise. For example, with 600 rows, 200 columns, and signal
and noise of equal variance, each parameter improves the criterion by 3.2 nats in this way, which is as much as its
penalty log(600) / 2.

The rival of a full map is plain kernel ridge regression or a diagonal map, which has fewer parameters. If the score of
the full map is only slightly better than the score of its rival, the two are learned again on three quarters of the
rows and compared on the last quarter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hkrr._base.linear_algebra import Array
from hkrr._base.threads import in_threads, single_threaded_blas
from hkrr._maps import Diagonal, Full, KernelExpansion, principal_form, square_map_is_affordable
from hkrr.criteria import Grouped
from hkrr.estimators.search.candidates import (
    FIRST_LAMBDA,
    FIRST_NOISE,
    LONG_RUN,
    Candidate,
    Origin,
    improve,
)
from hkrr.estimators.search.directions import DirectionSearch
from hkrr.estimators.search.lasso_columns import selected_columns
from hkrr.estimators.search.progress import Progress
from hkrr.estimators.search.search_problem import SearchProblem
from hkrr.exceptions import FitError
from hkrr.kernels import Kernel
from hkrr.objective import Objective
from hkrr.rows import InMemoryRows
from hkrr.rows.in_memory import in_memory
from hkrr.solvers.initialization import median_sample, median_scale

# The check is made if the score of the map is better than the score of its rival by less than this number of nats per
# parameter of the map.
_LEAD = 3.0
# Number of folds, maximum number of rows used by the check, and number of rows in each group. The maps are learned with
# `Grouped`, the mean of the criterion over groups of rows.
_FOLDS, _ROWS, _GROUP_ROWS = 4, 6_000, 500
# One fold is held out if there are at least _FEW_ROWS rows. With fewer rows, two folds are held out in turn. With fewer
# than _VERY_FEW_ROWS rows, all four folds are held out in turn.
_FEW_ROWS, _VERY_FEW_ROWS = 2_000, 1_000


def needs_check(chosen: Candidate, rival: Candidate) -> bool:
    """Return whether the held-out check must decide between the chosen map and its rival.

    This is the case if the chosen map is full, and its score is better by less than three nats per parameter.
    """
    return isinstance(chosen.shape, Full) and rival.score - chosen.score < _LEAD * chosen.degrees_of_freedom


@dataclass(frozen=True)
class Verdict:
    """Whether a map passes the check, and the mean held-out squared errors of the map and of its rival.

    The errors are divided by the variance of y. They are NaN if no comparison was made.
    """

    holds: bool
    error: float = math.nan
    error_of_rival: float = math.nan


@dataclass(frozen=True)
class HeldOutCheck:
    """The held-out check, with the rows, the criterion and the resources of the search."""

    problem: SearchProblem

    def compare(self, chosen: Candidate, rival: Candidate) -> Verdict:
        """Return the verdict: the map passes if it predicts held-out rows at least as well as its rival.

        The mean error of the map over all comparisons must be at most that of its rival. The same must hold for the
        error in at least half of the comparisons.

        At most 6,000 rows are used, and a quarter of these rows is held out. The map and the rival are learned from
        scratch on the remaining rows. With few held-out rows, the error is not reliable. With fewer than 2,000 rows,
        the comparison is therefore repeated with a second quarter held out. With fewer than 1,000 rows, each of the
        four quarters is held out in turn. If the deadline passes, only the comparisons so far are used, and the map
        fails if there are none. With fewer than 8 rows, no comparison is made, and the map passes.
        """
        rows = self.problem.rows
        drawn = rows.draw(_ROWS, self.problem.rng)
        if len(drawn) < 2 * _FOLDS:
            return Verdict(True)  # too few rows for a comparison
        n_repeats = _FOLDS if len(drawn) < _VERY_FEW_ROWS else 2 if len(drawn) < _FEW_ROWS else 1
        errors = []
        for fold in range(n_repeats):
            held_out = np.arange(len(drawn)) % _FOLDS == fold
            learned = []
            for one in (chosen, rival):
                mine = self.problem.of(one).rows
                training, test = mine.subset(drawn[~held_out]), mine.subset(drawn[held_out])
                n_groups = max(1, training.n_rows // _GROUP_ROWS)
                groups = Grouped(self.problem.make, training, n_groups, chosen.kernel, 1.0, self.problem.n_threads)
                if one is chosen:
                    end = self._relearn_map(groups, one, self.problem.rng)
                else:
                    end = self._relearn_scales(groups, one)
                learned.append((training, test, end))
            if not self.problem.in_time:
                break
            errors.append([squared_errors(*one) for one in learned])
        if not errors:
            return Verdict(False)  # the deadline has passed
        error, error_of_rival = (float(error) for error in np.mean(np.concatenate(errors, axis=1), axis=1))
        # The map must also be at least as good in half of the folds, so that a single fold cannot decide.
        n_better = sum(float(np.mean(one)) <= float(np.mean(other)) for one, other in errors)
        return Verdict(error <= error_of_rival and 2 * n_better >= len(errors), error, error_of_rival)

    def out_of_fold(self, candidates: Sequence[Candidate]) -> list[Array | None]:
        """Return the predictions of each candidate for all rows, by models that were learned on other rows.

        The rows are divided into four folds. For each fold, the candidates are learned from scratch on the other three
        folds. If a candidate could not be learned for every fold, or if there is no time, its predictions are None.
        """
        rows, rng = self.problem.rows, self.problem.rng
        order, seeds = rng.permutation(rows.n_rows), rng.randint(2**31 - 1, size=_FOLDS)
        predictions = [np.zeros((rows.n_rows, rows.n_targets)) for _ in candidates]
        complete = np.ones(len(candidates), dtype=bool)
        for fold in range(_FOLDS):
            held_out = np.arange(len(order)) % _FOLDS == fold
            parts = {}
            for ranked, mine in {one.ranked: self.problem.of(one).rows for one in candidates}.items():
                training, test = mine.subset(order[~held_out]).recentered(), mine.subset(order[held_out])
                parts[ranked] = training, test, Grouped(self.problem.make, training, 1, candidates[0].kernel, 1.0)

            def learn(candidate: Candidate, parts: dict[bool, Any] = parts, seed: int = int(seeds[fold])) -> Candidate:
                exact = parts[candidate.ranked][-1]
                if isinstance(candidate.shape, Full):
                    # Each candidate gets its own generator, so that the result does not depend on the threads.
                    return self._relearn_map(exact, candidate, np.random.RandomState(seed))
                return self._relearn_scales(exact, candidate)

            learned = in_threads(learn, candidates, self.problem.n_threads)
            if not self.problem.in_time:
                return [None] * len(candidates)
            for k, candidate in enumerate(learned):
                complete[k] &= math.isfinite(candidate.value)
                training, test, _ = parts[candidates[k].ranked]
                predictions[k][order[held_out]] = predict_held_out(training, test, candidate)
        return [one if whole else None for one, whole in zip(predictions, complete, strict=True)]

    def _relearn_map(self, groups: Grouped, chosen: Candidate, rng: np.random.RandomState) -> Candidate:
        """Learn a full map with as many directions as the chosen map, and return the best candidate.

        If there are enough rows for a square map (D x D, for D columns), one run starts from the leading directions of
        a learned square map. If the chosen map is not from the comparison of kernels, or if there are not enough rows
        for a square map, another run starts from the best map of `DirectionSearch`.
        """
        training, d = groups.rows, chosen.n_components
        fresh = chosen.restarted()
        starts = []
        if square_map_is_affordable(training.n_rows, training.n_free_columns, chosen.kernel):
            identity = self._typical_scale(training, chosen.kernel) * self.problem.rows.varying_columns()
            square = improve(groups, replace(fresh, B=identity, nu=FIRST_NOISE), LONG_RUN, self.problem.deadline)
            if math.isfinite(square.value):
                with single_threaded_blas():
                    starts.append(replace(square, B=principal_form(square.B)[0][:d]))
        if chosen.origin is not Origin.SQUARE and not (chosen.origin is Origin.DIRECTIONS and starts):
            search = replace(self.problem, rows=training, dimensions=[d], choose_dimension=False)
            search = replace(search, represented_weight=None, progress=Progress(), place=in_memory, rng=rng)
            with suppress(FitError):
                starts.append(DirectionSearch(search, chosen.kernel).run()[d])
        ends = [improve(groups, start, LONG_RUN, self.problem.deadline) for start in starts]
        return min(ends, key=lambda end: end.value, default=fresh)

    def _relearn_scales(self, groups: Grouped, rival: Candidate) -> Candidate:
        """Learn a map of the same shape as the rival's map (identity or diagonal), and return the best candidate.

        The starting map has the scale of the median heuristic for every column. For a sparse map, the lasso selects the
        columns again.
        """
        columns = np.ones(groups.rows.n_features)
        if rival.origin is Origin.SPARSE:
            size, found = np.count_nonzero(rival.B), selected_columns(groups.rows)
            if not found:
                return rival.restarted()
            columns = min(found, key=lambda one: abs(np.sum(one) - size))
            rival = replace(rival, shape=Diagonal(columns))
        B = self._typical_scale(groups.rows, rival.kernel, columns) * columns
        noises = (FIRST_NOISE, FIRST_LAMBDA * groups.rows.total_weight / groups.n_groups)
        starts = [rival.restarted(B=B, nu=nu) for nu in noises]
        ends = [improve(groups, start, LONG_RUN, self.problem.deadline) for start in starts]
        return min(ends, key=lambda end: end.value)

    def _typical_scale(self, rows: InMemoryRows, kernel: Kernel, columns: Array | float = 1.0) -> float:
        # A generator with a fixed seed, because several threads may call this method at the same time.
        return median_scale(kernel, median_sample(rows, np.random.RandomState(0)) * columns)


def squared_errors(training: InMemoryRows, test: InMemoryRows, candidate: Candidate) -> Array:
    """Return the weighted squared error of each test row, with coefficients fitted on the training rows.

    The squared error of each target is divided by the mean square of the target on the training rows.
    """
    _, Y, w = test.gather()
    variance = np.mean(training.gather()[1] ** 2, axis=0)
    errors = Y - predict_held_out(training, test, candidate)
    squares = np.mean(errors**2 / np.where(variance > 0, variance, 1.0), axis=1)
    return squares if w is None else squares * (w / np.mean(w))


def predict_held_out(training: InMemoryRows, test: InMemoryRows, candidate: Candidate) -> Array:
    """Return predictions for the test rows, with coefficients fitted on the training rows.

    If the candidate could not be evaluated, its predictions are the mean of the targets of the training rows. The
    predictions have the same offset as the targets of the test rows.
    """
    X, Y, _ = test.gather()
    shift = np.zeros(Y.shape[1])
    if training.y_offset is not None and test.y_offset is not None:
        shift = training.y_offset - test.y_offset
    if math.isfinite(candidate.value):
        with single_threaded_blas(), suppress(ArithmeticError):
            objective = Objective(training, None, candidate.kernel, candidate.nu / training.total_weight)
            alpha = objective.solve_alpha(candidate.B)
            return shift + KernelExpansion(candidate.kernel, candidate.B, training.gather()[0], alpha).at(X)
    return np.tile(shift, (len(Y), 1))
