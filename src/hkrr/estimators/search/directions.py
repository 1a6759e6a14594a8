"""Search for directions with one kernel and one criterion: start wide, then cut.

A map with its kernel, its noise level and its score is called a candidate (`hkrr.estimators.search.candidates`).

A map with more directions than the target needs is easier to optimize than a map with just enough directions. While the
criterion is minimized, superfluous directions shrink. The search has three stages:

1. **Start wide.** Wide maps are maps with many directions, usually 8. Random wide maps, and one wide map computed from
   a moment matrix, are optimized by a few iterations. The best two are optimized by further iterations.
2. **Cut.** A wide map is truncated to its k largest singular values, for each k that is allowed. The best k is the one
   with the lowest score, a BIC (`hkrr.estimators.search.candidates`): for a rotation-invariant kernel and D columns, a
   map with d directions has ``dof = d D - d (d - 1) / 2`` parameters. The truncations to the best k and to its
   neighbours k - 1 and k + 1 are optimized again. This is repeated until both neighbours of the best k have been tried.
3. **Widen**, unless the best truncations of the two wide maps have the same directions and explain the target. Random
   directions are added to the best map, and the result is optimized and truncated. This is repeated until no new
   direction is found.

If more than five directions are found, the search also starts again from random wide maps, on the larger sample.

The more directions a function depends on, the more centers and rows are needed: with too few centers, the criterion is
flat around the solution. The search begins with 2,000 rows and 100 centers. It continues with up to 4,000 rows and 400
centers if the best map has more than 3 directions or leaves much of the target unexplained, or if another number of
directions may be better with more rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

from hkrr._base.linear_algebra import Array
from hkrr._base.threads import single_threaded_blas
from hkrr._maps import KernelExpansion, principal_form
from hkrr.centers import uniform_or_all
from hkrr.criteria import Criterion
from hkrr.estimators.search.candidates import FIRST_LAMBDA, Candidate, Origin, score, score_on_all_rows
from hkrr.estimators.search.progress import Phase
from hkrr.estimators.search.search_problem import SearchProblem
from hkrr.exceptions import FitError
from hkrr.kernels import Kernel, kernel_name
from hkrr.metrics import subspace_distance
from hkrr.rows import InMemoryRows
from hkrr.solvers.initialization import median_sample, median_scale, sample_map

# Sample sizes of the search. Each entry holds a maximum number of directions, and the numbers of rows and centers that
# are used for maps with at most this number of directions. If the best map leaves much of the target unexplained, the
# search continues with the next entry.
SIZES = ((3, 2_000, 100), (5, 2_000, 200), (math.inf, 4_000, 400))
# A map leaves much of the target unexplained if the mean square of its residuals exceeds this fraction of the mean
# square of the target.
_MUCH = 0.1
# The scores of two maps are almost the same if they differ by less than this fraction of the difference of the
# penalties for the parameters of the maps.
_CLOSE = 0.2
# Minimum and maximum number of directions of a starting map. Between these limits, the number is chosen such that there
# are at least _ROWS_PER_ENTRY rows for each entry of the map.
_LEAST_WIDTH, _MOST_WIDTH, _ROWS_PER_ENTRY = 3, 8, 2
# Maximum number of iterations: for the first run from a starting map, for a run that continues the first run, and for a
# run that starts from a truncated map.
TRIAL_RUN, FULL_RUN, RUN_AFTER_CUT = 20, 60, 30
# Number of starting maps whose short runs are followed by long runs.
_SURVIVORS = 2
# Number of directions that are added to widen a map, and their lengths in two attempts, relative to the largest
# singular value.
_ADDED, _ADDED_LENGTHS = 3, (0.3, 1.0)
# Maximum number of times that a map is widened.
_WIDENINGS = 6
# Two maps have the same directions if the sine of the largest angle between their row spaces is below this value.
_SAME_DIRECTIONS = 0.5
# Maximum number of columns D for which the D x D moment matrix is formed. With more columns, ARPACK computes its
# eigenvectors from products with vectors.
_FEW_COLUMNS = 300


def starting_width(rows: InMemoryRows, at_least: int) -> int:
    """Return the number of directions of the starting maps: 8, or fewer to have at least two rows per entry of a map.

    The number is at least 3 and at least `at_least`, but at most the number of columns.
    """
    affordable = rows.n_rows // (_ROWS_PER_ENTRY * rows.n_free_columns)
    return min(max(min(max(affordable, _LEAST_WIDTH), _MOST_WIDTH), at_least), rows.n_features)


def random_starts(
    rows: InMemoryRows, kernel: Kernel, n_components: int, n_starts: int, rng: np.random.RandomState
) -> list[Candidate]:
    """Return `n_starts` random maps, alternately with the scale of the median heuristic and with half of this scale."""
    sample = median_sample(rows, rng)
    starts = []
    for k in range(n_starts):
        B = rows.in_row_space(sample_map(n_components, rows.n_features, rng))
        scale = median_scale(kernel, sample @ B.T) * (1.0 if k % 2 == 0 else 0.5)
        starts.append(_start(Origin.RANDOM, kernel, scale * B, rows))
    return starts


def moment_starts(rows: InMemoryRows, kernel: Kernel, n_components: int) -> list[Candidate]:
    """Return a list with one starting map: the leading eigenvectors of a moment matrix.

    The moment matrix is ``sum_i w_i y_i x_i x_i'``, where x_i, y_i and w_i are the inputs, the target and the weight of
    row i. Its eigenvectors are called principal Hessian directions (Li, 1992). They are the rows of the map. The median
    heuristic sets the scale of the map. If there are several targets, the target with the largest sum of squares is
    used. The list is empty if fewer than ``n_components`` eigenvectors are found.

    This map helps if the target is an even function of a few directions, for example the product of two directions. A
    random map in many dimensions then contains almost no information on the target. The moment matrix contains this
    information if the number of rows is a few times the number of columns.
    """
    X, Y, w = rows.gather()
    # A separate generator is used, so that this function does not change the random starting maps.
    rng = np.random.RandomState(0)
    y = Y[:, int(np.argmax(np.sum(Y * Y, axis=0)))]
    leading = _leading_directions(X, y if w is None else w * y, rng, n_components)
    if len(leading) < n_components:
        return []
    B = np.array(leading)
    scale = median_scale(kernel, median_sample(rows, rng) @ B.T)
    return [_start(Origin.MOMENTS, kernel, scale * B, rows)]


def _start(origin: Origin, kernel: Kernel, B: Array, rows: InMemoryRows) -> Candidate:
    return Candidate(origin, kernel, B, FIRST_LAMBDA * rows.total_weight, n_free_columns=rows.n_free_columns)


def _leading_directions(R: Array, r: Array, rng: np.random.RandomState, n: int) -> list[Array]:
    """Return the eigenvectors of ``sum_i r_i R_i R_i'`` for the n eigenvalues of largest absolute value.

    R_i is row i of R, and r_i is entry i of r. With more than 300 columns, the matrix is not formed, and ARPACK is
    used. If ARPACK does not converge, fewer than n eigenvectors are returned.
    """
    D = R.shape[1]
    R, r = _scale_to_one(R), _scale_to_one(r)
    if D <= _FEW_COLUMNS:
        eigenvalues, vectors = np.linalg.eigh((R * r[:, None]).T @ R)
        return list(vectors[:, np.argsort(-np.abs(eigenvalues))[:n]].T)
    product = LinearOperator((D, D), matvec=lambda v: R.T @ (r * (R @ v.ravel())), dtype=np.float64)
    try:
        return list(eigsh(product, k=n, v0=rng.standard_normal(D), tol=1e-2, maxiter=50)[1].T)
    except ArpackError as error:
        # The subclass ArpackNoConvergence has an attribute with the eigenvectors that did converge.
        return list(getattr(error, "eigenvectors", np.zeros((D, 0))).T)


def _scale_to_one(values: Array) -> Array:
    """Return the values divided by a power of two, such that the largest absolute value is between 0.5 and 1.

    Products of three such values do not overflow, and the division by a power of two has no rounding error.
    """
    return np.ldexp(values, -np.frexp(np.max(np.abs(values)))[1])


def sorted_rows(candidate: Candidate) -> tuple[Array, Array]:
    """Return the map with its largest directions first, and the lengths of the directions.

    If the kernel is rotation invariant, the map is rotated first, such that its directions are orthogonal.
    """
    if candidate.kernel.rotation_invariant:
        return principal_form(candidate.B)
    lengths = np.linalg.norm(candidate.B, axis=1)
    order = np.argsort(-lengths, kind="stable")
    return candidate.B[order], lengths[order]


def widen(candidate: Candidate, length: float, rows: InMemoryRows, rng: np.random.RandomState) -> Candidate:
    """Return the candidate with up to three additional random directions.

    `length` is the length of the new directions, relative to the largest singular value of the map.
    """
    n_features = candidate.B.shape[1]
    n_added = min(_ADDED, n_features - candidate.n_components)
    added = rows.in_row_space(rng.standard_normal((n_added, n_features)))
    added *= length * candidate.norm / np.linalg.norm(added, axis=1, keepdims=True)
    B = np.vstack([candidate.B, added])
    return candidate.restarted(origin=Origin.WIDENED, B=B, spectrum=None)


def same_directions(one: Candidate, other: Candidate) -> bool:
    """Return whether two maps have the same number of directions and nearly the same row space."""
    if one.n_components != other.n_components:
        return False
    return max(subspace_distance(one.B, other.B), subspace_distance(other.B, one.B)) < _SAME_DIRECTIONS


def _line(n_components: int) -> int:
    """Return the index of the entry of `SIZES` for a number of directions."""
    return next(k for k, (most, _, _) in enumerate(SIZES) if n_components <= most)


def _lowest(candidates: dict[int, Candidate]) -> Candidate:
    return min(candidates.values(), key=lambda candidate: candidate.score)


@dataclass
class DirectionSearch:
    """The search for directions, in two parts: `start` and `go_on`.

    The search uses a sample of at most 4,000 rows of the problem. If the user has given values for the number of
    directions, there is a candidate for each of these values.
    """

    problem: SearchProblem
    kernel: Kernel  # with gamma 1
    criterion: Criterion = field(init=False)  # on the current sample and centers; gives the scores in `best`
    best: dict[int, Candidate] = field(init=False, default_factory=dict)  # by number of directions
    ends: list[Candidate] = field(init=False, default_factory=list)  # all candidates, in the order of their runs
    _decided: bool = field(init=False, default=False)
    _unfinished: list[Candidate] = field(init=False, default_factory=list)
    _sample: InMemoryRows = field(init=False)
    _size: tuple[int, int] = field(init=False, default=(0, 0))

    def run(self) -> dict[int, Candidate]:
        """Run the whole search. Return the best candidate for each number of directions that was tried."""
        self.start()
        self.go_on()
        return self.best

    @property
    def ranked(self) -> list[Candidate]:
        """The best candidate for each number of directions that was tried, lowest score first."""
        return sorted(self.best.values(), key=lambda one: one.score)

    def start(self) -> None:
        """Learn maps with many directions, truncate them, and optimize the truncations."""
        self._resize(_line(1 if self.problem.choose_dimension else self.problem.dimensions[-1]))
        wide = [self._truncations(one) for one in self._start_wide() if self.problem.in_time or not self.best]
        agree = self._agree([_lowest(cuts) for cuts in wide])
        cuts = self._cut(wide[:1] if agree else wide)
        self._decided = agree or self._agree(cuts)
        if not self.problem.choose_dimension and self.problem.in_time:
            self._start_narrow()

    def go_on(self) -> None:
        """Search for further directions, with more rows if necessary.

        Nothing is done if three conditions hold: `start` found the same directions from different starting maps, no
        larger sample is needed (see the module docstring), and a map with one direction more has been tried.
        """
        restarted = False
        for _ in range(_WIDENINGS):
            if not self.best or not self.problem.in_time:
                break
            needs_more = self._depends_on_rows or self._leaves_much(self._winner)
            grown = self._resize(_line(self._winner.n_components) + needs_more)
            if self._decided and not grown and self._larger_was_tried:
                if restarted or _line(self._winner.n_components) < len(SIZES) - 1:
                    break
                restarted = True
                self._start_again()
            self._decided = self._widen()
        if not self.problem.in_time:
            self._keep_unfinished()
        if not self.best:
            raise FitError("The criterion is not finite for any starting map: check the scale of X and y.")

    @property
    def _winner(self) -> Candidate:
        return _lowest(self.best)

    @property
    def _larger_was_tried(self) -> bool:
        """Whether a map with one direction more than the best map was tried, or cannot be selected."""
        larger = self._winner.n_components + 1
        return larger in self.best or larger not in self.problem.dimensions

    @property
    def _best_on_all_rows(self) -> Candidate:
        """The candidate with the lowest score, extrapolated to all rows."""
        n, total = self._sample.total_weight, self.problem.total_weight
        return min(self.best.values(), key=lambda one: score_on_all_rows(one, n, total))

    @property
    def _depends_on_rows(self) -> bool:
        """Whether the best number of directions may be different on all rows.

        This is assumed if another number has the lowest score after extrapolation to all rows, or almost the same score
        on the current rows.
        """
        winner, per_parameter = self._winner, 0.5 * math.log(max(self._sample.total_weight, 2.0))

        def is_close(one: Candidate) -> bool:
            penalty = per_parameter * abs(one.degrees_of_freedom - winner.degrees_of_freedom)
            return one is not winner and one.score - winner.score < _CLOSE * penalty

        close = any(is_close(one) for one in self.best.values())
        return self.problem.choose_dimension and (close or winner is not self._best_on_all_rows)

    def _begin(self, what: str, phase: Phase) -> None:
        self.problem.progress.begin(f"{what}, {kernel_name(self.kernel)}", phase)

    def _leaves_much(self, candidate: Candidate) -> bool:
        """Return whether a candidate leaves more than a tenth of the mean square of a target unexplained."""
        X, Y, w = self._sample.gather()
        try:
            with single_threaded_blas():
                alpha = self.criterion.reduced(candidate.B, candidate.nu / self.criterion.rows.total_weight).alpha
                residuals = Y - KernelExpansion(self.kernel, candidate.B, self.criterion.centers, alpha).at(X)
        except (ArithmeticError, np.linalg.LinAlgError):
            return False
        weight = np.ones(len(Y)) if w is None else w
        return bool(np.any(weight @ residuals**2 > _MUCH * (weight @ Y**2)))

    def _resize(self, line: int) -> bool:
        """Change to the sample size ``SIZES[line]`` if it has more centers than the current size.

        The best candidates so far are optimized again on the new sample. Return whether the size was changed.
        """
        rows, rng = self.problem.rows, self.problem.rng
        n_rows, n_centers = (min(number, rows.n_rows) for number in SIZES[min(line, len(SIZES) - 1)][1:])
        if n_centers <= self._size[1]:
            return False
        self._size = (n_rows, n_centers)
        some = rows.at_most(n_rows, rng).on_threads(1)  # the runs are distributed over the threads
        found, before = dict(self.best), (self.criterion, self._sample) if self.best else None
        again = self._contenders() if found else []
        centers = uniform_or_all(some, n_centers, rng)
        self._sample, self.criterion = some, self.problem.criterion(some, centers, self.kernel)
        # At a map that explains nothing of the target, the best lambda would be very large. The gradient with respect
        # to the map would then vanish, and the map would never change.
        self.criterion.most_lambda = FIRST_LAMBDA
        self.best = {}
        self._keep(self._improve([one.restarted() for one in again], TRIAL_RUN))
        if before is not None and not self.best:
            (self.criterion, self._sample), self.best = before, found
            return False
        return True

    def _contenders(self) -> list[Candidate]:
        """Return the candidates that may win on a larger sample. The current best candidate comes first.

        These are the best candidate, the candidates with one direction more and one less, and the candidate with the
        lowest score extrapolated to all rows. If the user has given values for the number of directions, all candidates
        are returned.
        """
        # The best candidate comes first, because only the first candidate is evaluated if the time runs out.
        ordered, winner = sorted(self.best.values(), key=lambda one: one.score), self._winner.n_components
        kept = {winner - 1, winner, winner + 1, self._best_on_all_rows.n_components}
        return [one for one in ordered if one.n_components in kept or not self.problem.choose_dimension]

    def _improve(self, starts: Sequence[Candidate], max_iter: int) -> list[Candidate]:
        """Optimize the candidates in `starts`. Return them in the same order. The value of a failed run is infinite."""
        starts = [replace(start, n_centers=self.criterion.n_centers) for start in starts]
        return self.problem.improve_each(self.criterion, starts, max_iter)

    def _keep_unfinished(self) -> None:
        """Add truncations that were not optimized before the deadline, if no better candidate was found."""
        for candidate in self._unfinished:
            d = candidate.n_components
            comparable = candidate.n_centers == self.criterion.n_centers and math.isfinite(candidate.value)
            if comparable and (d not in self.best or candidate.value < self.best[d].value):
                self.best[d] = candidate
                self.ends.append(candidate)

    def _keep(self, candidates: Sequence[Candidate]) -> None:
        """Add candidates to the results."""
        for candidate in candidates:
            d, failed = candidate.n_components, not math.isfinite(candidate.value)
            self.ends.append(replace(candidate, dropped=failed))
            if failed or d not in self.problem.dimensions or (d in self.best and candidate.value >= self.best[d].value):
                continue
            self.best[d] = candidate
            if candidate is self._winner:
                self.problem.progress.found(candidate)

    def _start_wide(self, at_least: int = 1) -> list[Candidate]:
        """Optimize wide starting maps by short runs. Return the best two maps, after a long run of each.

        The maps have at least `at_least` directions, if there are enough columns.
        """
        rows = self._sample
        width = starting_width(rows, at_least if self.problem.choose_dimension else self.problem.dimensions[-1])
        self._begin(f"{width} directions at the start" if width > 1 else "one direction", Phase.STARTS)
        starts = random_starts(rows, self.kernel, width, self.problem.n_starts, self.problem.rng)
        ended = self._improve([*starts, *moment_starts(rows, self.kernel, width)], TRIAL_RUN)
        ended = sorted(ended, key=lambda end: end.value)
        self.ends += [replace(end, dropped=True) for end in ended[_SURVIVORS:]]
        survivors = self._improve([end for end in ended[:_SURVIVORS] if math.isfinite(end.value)], FULL_RUN)
        self._keep(survivors)
        return [end for end in survivors if math.isfinite(end.value)]

    def _start_narrow(self) -> None:
        """Also optimize random maps that have exactly the given number of directions, or the largest given number.

        This helps if the given number is far below the number of directions that the target needs.
        """
        rows = self._sample
        starts = random_starts(rows, self.kernel, self.problem.dimensions[-1], self.problem.n_starts, self.problem.rng)
        ended = sorted(self._improve(starts, TRIAL_RUN), key=lambda end: end.value)
        self.ends += [replace(end, dropped=True) for end in ended[1:]]
        self._keep(self._improve(ended[:1], FULL_RUN))

    def _agree(self, candidates: Sequence[Candidate]) -> bool:
        """Return whether there are two candidates, and both have the same directions.

        The candidates were learned from different starting maps. If they agree, their directions are probably the best.
        """
        return len(candidates) == _SURVIVORS and same_directions(*candidates)

    def _cut(self, cuts: Sequence[dict[int, Candidate]]) -> list[Candidate]:
        """Optimize truncations of each wide map. Return the best truncation of each wide map, lowest score first.

        Each dict in `cuts` contains the truncations of one wide map, by number of directions. If the number of
        directions is chosen by score, the truncation with the lowest score and its neighbours (one direction more, one
        less) are optimized. Otherwise all truncations are optimized.
        """
        self._begin("keeping the directions that matter", Phase.CUT)
        found: list[dict[int, Candidate]] = [{} for _ in cuts]
        while self.problem.in_time or not self.best:  # after the deadline, one pass is made if there is no candidate
            chosen = [(i, d) for i, some in enumerate(cuts) for d in self._next(some, found[i])]
            if not chosen:
                break
            ends = self._improve([cuts[i][d] for i, d in chosen], RUN_AFTER_CUT)
            self._keep(ends)
            for (i, d), end in zip(chosen, ends, strict=True):
                found[i][d] = end
        best = [_lowest(some) for some in found if some]
        return sorted((end for end in best if math.isfinite(end.score)), key=lambda end: end.score)

    def _next(self, cuts: dict[int, Candidate], found: dict[int, Candidate]) -> list[int]:
        """Return every d for which the truncation of one wide map to d directions is optimized next.

        The keys of both arguments are the numbers of directions d of the candidates. `cuts` holds all truncations of
        the wide map, and `found` holds those that have already been optimized.
        """
        if not self.problem.choose_dimension:
            return [d for d in cuts if d not in found]
        center = _lowest(found or cuts).n_components
        return [d for d in (center, center - 1, center + 1) if d in cuts and d not in found]

    def _truncations(self, wide: Candidate) -> dict[int, Candidate]:
        """Return the truncations of a wide map to each number in `dimensions`, with their scores."""
        B, lengths = sorted_rows(wide)
        spectrum = tuple((lengths / (lengths[0] or 1.0)).tolist())
        cuts = {}
        with single_threaded_blas():
            for d in self.problem.dimensions:
                if d > len(B):
                    break
                cuts[d] = cut = wide.restarted(origin=Origin.CUT, B=B[:d], spectrum=spectrum)
                with suppress(ArithmeticError, np.linalg.LinAlgError):
                    value = self._value(cut.B, cut.nu)
                    cuts[d] = replace(cut, value=value, score=score(self.criterion, value, cut))
        self._unfinished += cuts.values()
        return cuts

    def _value(self, B: Array, nu: float) -> float:
        if self.criterion.profiles_lambda:
            return self.criterion.profiled(B).value
        return self.criterion.reduced(B, nu / self.criterion.rows.total_weight).value

    def _start_again(self) -> None:
        """Optimize random wide maps on the current sample, and their truncations.

        With many directions, the first wide maps were learned from too few rows and centers to find all of them.
        """
        width = self._winner.n_components + _ADDED
        wide = [self._truncations(one) for one in self._start_wide(width) if self.problem.in_time]
        if wide:
            self._cut(sorted(wide, key=lambda some: _lowest(some).score)[:1])

    def _widen(self) -> bool:
        """Add directions to the best map, optimize and truncate it. Return True if this found no new direction."""
        before = self._winner
        if before.n_components < self.problem.rows.n_features:
            self._begin(f"directions in addition to the {before.n_components} found", Phase.WIDENING)
            wide = self._improve(
                [widen(before, length, self._sample, self.problem.rng) for length in _ADDED_LENGTHS], FULL_RUN
            )
            self._keep(wide)
        elif before.origin is Origin.CUT:
            return True
        else:
            wide = [before]
        cuts = [self._truncations(end) for end in wide if math.isfinite(end.value)]
        self._cut(sorted(cuts, key=lambda some: _lowest(some).score)[:1])
        return self._winner is before or same_directions(self._winner, before)
