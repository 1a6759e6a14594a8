"""A race between kernels and shapes of the map, for tables whose columns have individual meanings.

Real tables rarely follow a multi-index model. A kernel that is not smooth (such as Laplace) with one scale per column,
or with a full D x D map, often fits them better than a few directions. A candidate is a kernel with a map, and a run is
one optimization of a candidate. The candidates are:

- each radial kernel with maps of few directions, which were found with the Gaussian kernel;
- each kernel, including the linear kernel, with a multiple of the identity (plain kernel ridge regression);
- each kernel with a diagonal map, started from plain kernel ridge regression and from the median heuristic;
- some kernels with sparse maps: diagonal maps of the columns that the lasso selects, if these are at most half of the
  columns;
- each radial kernel with a square map (a full D x D map), started from the diagonal map of the kernel.

In an ensemble, each of these candidates except the sparse maps and the linear kernel can also use the columns after a
transform to normal scores (`hkrr.rows.column_transform`), unless the transform is clearly worse in the first round.

The candidates compete in rounds, and each round drops the worst. In the first round, they are optimized on at most 500
rows, with all of these rows as centers. With at most 1,000 rows, a second round uses all of them. With more rows, the
next rounds learn the maps from random batches of all rows (`hkrr.estimators.search.adam_on_batches`), because a full
map needs thousands of rows. After such a round, the scale and the noise of each candidate are refitted on at most 2,000
rows, and the candidates are compared on these rows.

The worst candidates are dropped within each kind of candidate, not among all candidates: with few rows, the score of a
square map says little about its score with many rows. There are seven kinds. Five are those of the list above, where
multiples of the identity and diagonal maps count only with radial kernels. The other two are the multiples of the
identity and the diagonal maps with a product kernel, and those with the linear kernel. With more than 1,000 rows, a
candidate whose score is far above the best score is also dropped, unless it is a square map. Scores
(`hkrr.estimators.search.candidates`) are extrapolated from the rows of a round to all rows.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any, NamedTuple

import numpy as np

from hkrr._base.threads import in_threads
from hkrr._maps import Diagonal, Full, Scaled, square_map_is_affordable
from hkrr.criteria import Criterion
from hkrr.estimators.search.adam_on_batches import learn_on_batches
from hkrr.estimators.search.candidates import FIRST_NOISE, SHORT_RUN, Candidate, Origin, optimism, score, unit_kernel
from hkrr.estimators.search.lasso_columns import LASSO_ROWS, selected_columns
from hkrr.estimators.search.progress import Phase
from hkrr.estimators.search.search_problem import SearchProblem
from hkrr.exceptions import FitError
from hkrr.kernels import Kernel, kernel_name
from hkrr.rows import InMemoryRows
from hkrr.solvers.initialization import median_sample, median_scale

# Radial kernels are tried with maps of all shapes (identity, diagonal and full). Product kernels are not tried with
# full maps: they treat each column separately, so a full map fits hardly better than a diagonal map, and has many more
# parameters.
RADIAL = ("gaussian", "matern52", "matern32", "laplace")
PRODUCT = ("product_matern32", "product_laplace", "anova")
# The time to compute a product kernel is proportional to the number of columns. With more than _WIDE columns, only the
# cheapest product kernel is tried.
_WIDE, _CHEAPEST = 50, ("product_laplace",)
# The linear kernel is not tried with full maps. With any map, the function is linear in the columns, and a full map
# would only change its penalty.
LINEAR = "linear"
# Kernels of sparse maps.
_SPARSE = (LINEAR, "gaussian", "matern32", "product_laplace")
# Limits on the start of a run that continues from the result of another run: the smallest nu, the largest nu, and the
# largest ratio between a scale and the scale of the median heuristic, in either direction. Outside these limits,
# gradients almost vanish, and the run would hardly change the map.
_LEAST_NOISE, _MOST_NOISE, _FARTHEST_SCALE = 0.003, 1.0, 100.0
# The time of one iteration is proportional to this power of the number of rows.
COST_EXPONENT = 2.3
# A candidate takes part in a round only if there is time for this fraction of its iterations.
_LEAST_SHARE = 0.4


class _Kind(Enum):
    """The kinds of candidates. Candidates are dropped by comparison with others of the same kind."""

    DIRECTIONS = auto()  # a map with few directions
    LINEAR = auto()  # a diagonal map or a multiple of the identity, with the linear kernel
    SPARSE = auto()  # a diagonal map of selected columns
    SQUARE = auto()  # a full D x D map
    DIAGONAL = auto()  # a diagonal map with a radial kernel
    PRODUCT = auto()  # a diagonal map or a multiple of the identity, with a product kernel
    PLAIN = auto()  # a multiple of the identity with a radial kernel


def _kept(
    directions: int, linear: int, sparse: int, square: int, diagonal: int, product: int, plain: int
) -> dict[_Kind, int]:
    return dict(zip(_Kind, (directions, linear, sparse, square, diagonal, product, plain), strict=True))


class _Batches(NamedTuple):
    """A round with random batches: rows in a batch, number of steps, and number of candidates that are improved.

    A diagonal map has so few parameters that batches of `n_rows_diagonal` rows are enough.
    """

    n_rows: int
    n_rows_diagonal: int
    n_steps: int
    n_runs: int

    def rows_for(self, candidate: Candidate) -> int:
        """Return the number of rows in a batch for a candidate."""
        return self.n_rows if isinstance(candidate.shape, Full) else self.n_rows_diagonal


# Number of rows and maximum number of iterations of the first round, and of a second round without batches.
_FIRST_ROWS, _FIRST_ITERATIONS = 500, 30
_ALL_ROWS, _ALL_ITERATIONS = 1_000, 20
_BATCHES = (_Batches(1_000, 500, 100, 100), _Batches(2_000, 1_000, 60, 4))
# On a GPU, large batches cost little more than small ones.
_BATCHES_ON_GPU = (_Batches(2_000, 2_000, 150, 100), _Batches(4_000, 4_000, 60, 3))
# Maximum number of rows on which the scale and the noise are refitted, and maximum number of iterations of this fit.
_RESCALE_ROWS, _RESCALE_ROWS_ON_GPU, _RESCALE_ITERATIONS = 2_000, 10_000, 5
# With more than _ALL_ROWS rows, product kernels take part only if their first round takes at most this share of the
# time left. With three product kernels and at most _CHEAP_COLUMNS columns, it takes about
# _COST_OF_PRODUCTS times as long as the first round of all other kernels.
_SHARE_OF_PRODUCTS, _COST_OF_PRODUCTS, _CHEAP_COLUMNS = 0.25, 2.0, 20
# Share of the time left that a round with batches may take. The rest is for the comparison after the round.
_SHARE_OF_BATCHES = 0.75
# How many candidates of each kind remain after a round.
_KEPT = _kept(1, 1, 2, 3, 2, 2, 1)
# With more than _ALL_ROWS rows, candidates whose score is above the best score by more than this number of nats per row
# and target are dropped too. Square maps are an exception, because their scores improve most with more rows, and so are
# classes, because the score says little about the log loss.
_FAR_WORSE = 0.25
# Transformed columns take part only if their best score after the first round is above the best score without the
# transform by at most this number of nats per row and target.
_CLEARLY_WORSE = 0.03


@dataclass
class Race:
    """The race between kernels and shapes of the map: its state and its result.

    Attributes
    ----------
    problem : SearchProblem
        The input of the search. If the user has given values for the number of directions, only full maps with one of
        these values compete.
    survivors : list of Candidate
        The candidates that were not dropped, lowest score first. If time ran out in a round, some scores are from the
        round before.
    tried : list of Candidate
        The result of each run.
    """

    problem: SearchProblem
    survivors: list[Candidate] = field(default_factory=list)
    tried: list[Candidate] = field(default_factory=list)

    def __post_init__(self) -> None:
        rows, rng = self.problem.rows, self.problem.rng
        product = PRODUCT if rows.n_features <= _WIDE else _CHEAPEST
        kernels = [unit_kernel(name) for name in (*RADIAL, *product, LINEAR)]
        # For each kernel, the scale of the median heuristic, for columns without and with a transform.
        versions = {False: rows} if self.problem.ranks is None else {False: rows, True: self.problem.on_ranks.rows}
        samples = {ranked: median_sample(some, rng) for ranked, some in versions.items()}
        self._typical = {
            (kernel, ranked): median_scale(kernel, sample) for ranked, sample in samples.items() for kernel in kernels
        }
        self._kernels = kernels
        self._order = rows.draw(max(_ALL_ROWS + 1, self.rescale_rows), rng)

    @property
    def best(self) -> Candidate:
        """The survivor with the lowest score."""
        return self.survivors[0]

    def run(self, few_directions: Sequence[Candidate]) -> None:
        """Run as many rounds as the time allows. `few_directions` are candidates with few directions, best first."""
        # The first round is run even after the deadline, because it gives a model.
        n_rows = self.problem.rows.n_rows
        self._begin(f"kernels and maps on {min(n_rows, _FIRST_ROWS):,} rows", Phase.KERNELS)
        first, began = min(n_rows, _FIRST_ROWS), time.perf_counter()
        starts = self._first_starts(few_directions)
        ends = self._first_runs(first, [one for one in starts if not _is_product(one)])
        seconds = time.perf_counter() - began
        of_ranks = self._on_ranks(first, starts, ends)
        seconds *= (2.0 if of_ranks else 1.0) * self._cost_of_products
        ends += of_ranks
        with_products = n_rows <= _ALL_ROWS or seconds <= _SHARE_OF_PRODUCTS * self.problem.seconds_left
        if with_products:
            products = [one for one in starts if _is_product(one)]
            ends += self._first_runs(first, [*products, *(self._ranked(one) for one in products if of_ranks)])
        sparse = [one for one in self._sparse_starts() if with_products or not _is_product(one)]
        ends += self._improve(first, sparse, _FIRST_ITERATIONS)
        if n_rows <= _ALL_ROWS:
            weight = self.criterion(first).rows.total_weight
            ends += self._improve(first, self._square_starts(ends, weight), _FIRST_ITERATIONS)
        self._keep(ends)
        if not self.survivors:
            raise FitError("The criterion is not finite for any kernel: check the scale of X and y.")
        if _FIRST_ROWS < n_rows <= _ALL_ROWS:
            self._use_all_rows()
        elif n_rows > _ALL_ROWS:
            squares = self._square_starts(ends, self.problem.total_weight)
            starts = _best_of_each_kind([*self.survivors, *squares])
            for number, batches in enumerate(_BATCHES_ON_GPU if self.problem.on_gpu else _BATCHES):
                if number == 0 or n_rows >= 2 * batches.n_rows:
                    starts = self._learn_on_batches(starts, batches)

    @property
    def _cost_of_products(self) -> float:
        """Approximate time of the first round of the product kernels, relative to that of all other kernels."""
        n_kernels = sum(not kernel.rotation_invariant for kernel in self._kernels)
        by_columns = max(1.0, self.problem.rows.n_features / _CHEAP_COLUMNS)
        return _COST_OF_PRODUCTS * by_columns * n_kernels / len(PRODUCT)

    def _begin(self, stage: str, phase: Phase) -> None:
        self.problem.progress.begin(stage, phase)

    def _keep(self, candidates: Sequence[Candidate]) -> None:
        """Make the best candidates of each kind the survivors."""
        survivors = _best_of_each_kind(_best_of_each(candidates))
        rows = self.problem.rows
        if survivors and rows.n_rows > _ALL_ROWS and not self.problem.of_classes:
            most = survivors[0].score + _FAR_WORSE * self.problem.total_weight * rows.n_targets
            survivors = [one for one in survivors if one.score <= most or _kind(one) is _Kind.SQUARE]
        self.survivors = [self._within_range(one) for one in survivors]
        if self.survivors:
            self.problem.progress.found(self.best)

    def _within_range(self, candidate: Candidate) -> Candidate:
        """Reduce very large scales of a diagonal map. They hardly change the kernel, but cause rounding errors.

        A very large scale means that the kernel is almost zero for any two rows with different values in a column.
        """
        largest = self._typical[candidate.kernel, candidate.ranked] * _FARTHEST_SCALE
        if candidate.B.ndim > 1 or np.max(candidate.B) <= largest:
            return candidate
        return replace(candidate, B=np.minimum(candidate.B, largest))

    def _use_all_rows(self) -> None:
        """Improve the survivors on all rows, if there is time."""
        n_rows = self.problem.rows.n_rows
        starts = self._in_time(self.survivors, lambda _: n_rows, _ALL_ITERATIONS)
        if not starts:
            return
        self._begin(f"kernels and maps on {n_rows:,} rows", Phase.FINALISTS)
        ends = self._improve(n_rows, starts, _ALL_ITERATIONS)
        weight = self.criterion(n_rows).rows.total_weight
        ends += self._improve(n_rows, self._square_starts(ends, weight), _ALL_ITERATIONS)
        # If there is no time to optimize a candidate, it is evaluated on the new rows without optimization, so that all
        # scores are comparable.
        improved = {_configuration(one) for one in ends}
        skipped = [one for one in self.survivors if _configuration(one) not in improved]
        if ends and self.problem.in_time:
            self._keep([*ends, *self._improve(n_rows, skipped, 0)])

    def _learn_on_batches(self, candidates: Sequence[Candidate], batches: _Batches) -> list[Candidate]:
        """Learn the maps from random batches drawn from all rows, and compare the candidates. Return the survivors."""
        problem = self.problem
        starts = self._in_time(candidates, batches.rows_for, batches.n_steps)[: batches.n_runs]
        if not starts:
            return self.survivors
        self._begin(f"kernels and maps on batches of {batches.n_rows:,} rows", Phase.FINALISTS)
        some, seeds = problem.with_share(_SHARE_OF_BATCHES), problem.rng.randint(2**31 - 1, size=len(starts))
        versions = {ranked: replace(some, rows=self._rows(ranked)) for ranked in {one.ranked for one in starts}}

        def learn(k: int) -> Candidate:
            if isinstance(starts[k].shape, Scaled):
                # The only parameters of this candidate are its scale and its noise, which are refitted below.
                return starts[k]
            mine = versions[starts[k].ranked]
            return learn_on_batches(mine, starts[k], batches.rows_for(starts[k]), batches.n_steps, int(seeds[k]))

        # The longest runs are started first, so that no thread is left with a long run at the end.
        order = sorted(range(len(starts)), key=lambda k: -starts[k].seconds_per_iteration)
        ends = dict(zip(order, in_threads(learn, order, 1 if problem.on_gpu else problem.n_parallel), strict=True))
        learned = [ends[k] for k in range(len(starts))]
        improved = {_configuration(one) for one in learned}
        others = [one for one in self.survivors if _configuration(one) not in improved]
        n_rows = min(len(self._order), self.rescale_rows)
        compared = [one for one in others if one.n_rows == n_rows]
        compared += self._rescale(learned, n_rows)
        compared += self._rescale([one for one in others if one.n_rows != n_rows], n_rows)
        if any(one.n_rows == n_rows for one in compared):
            self._keep(compared)
        return self.survivors

    @property
    def rescale_rows(self) -> int:
        """Maximum number of rows on which the scale and the noise of a candidate are refitted."""
        return _RESCALE_ROWS_ON_GPU if self.problem.on_gpu else _RESCALE_ROWS

    def _rescale(self, candidates: Sequence[Candidate], n_rows: int) -> list[Candidate]:
        """Refit the scale and the noise of each candidate on the same `n_rows` rows. The scores are then comparable."""
        if not candidates or not self.problem.in_time:
            return []
        W, found = self.problem.total_weight, []
        for ranked, some in _by_version(candidates):
            criterion = self.criterion(n_rows, ranked)
            starts = [replace(one, shape=Scaled(one.B)) for one in some]
            ends = self.problem.improve_each(criterion, starts, _RESCALE_ITERATIONS)
            for end, one in zip(ends, some, strict=True):
                if math.isfinite(end.score):
                    scored = score(criterion, end.value, one, W)
                    found.append(replace(end, shape=one.shape, n_rows=n_rows, score=scored))
        self.tried += found
        return found

    def _rows(self, ranked: bool) -> InMemoryRows:
        """Return the rows of the problem, with transformed columns if `ranked` is True."""
        return self.problem.on_ranks.rows if ranked else self.problem.rows

    def criterion(self, n_rows: int, ranked: bool = False) -> Criterion:
        """Return the criterion on the first `n_rows` rows of a random order, with all of them as centers.

        The order is the same in all rounds. If `ranked` is True, the columns are transformed to normal scores.
        """
        some = self._rows(ranked).subset(self._order[:n_rows])
        return self.problem.criterion(some, None, unit_kernel("gaussian"))

    def _improve(self, n_rows: int, starts: Sequence[Candidate], max_iter: int) -> list[Candidate]:
        """Optimize each candidate on `n_rows` rows, and return the candidates whose score is finite.

        The returned scores are extrapolated from these rows to all rows. After the deadline, nothing is returned,
        unless there is no candidate yet.
        """
        scored: list[Candidate] = []
        W = self.problem.total_weight
        for ranked, some in _by_version(starts):
            if (self.tried or scored) and not self.problem.in_time:
                break
            criterion = self.criterion(n_rows, ranked)
            fresh = [replace(start, seconds=0.0, value=math.inf, score=math.inf) for start in some]
            n = criterion.rows.total_weight
            scored += [
                replace(
                    end,
                    n_rows=criterion.rows.n_rows,
                    score=score(criterion, end.value, end, W) + optimism(end.degrees_of_freedom, n, W),
                )
                for end in self.problem.improve_each(criterion, fresh, max_iter)
                if math.isfinite(end.score)
            ]
        self.tried += scored
        return scored

    def _first_starts(self, few_directions: Sequence[Candidate]) -> list[Candidate]:
        """Return the starts of the first round: plain kernel ridge regression, and maps with few directions."""
        rows = self.problem.rows
        radial = [unit_kernel(name) for name in RADIAL]
        starts = [
            self._warm(one, origin=Origin.DIRECTIONS, kernel=kernel) for one in few_directions for kernel in radial
        ]
        if self.problem.choose_dimension:
            ones, free = np.ones(rows.n_features), rows.n_free_columns
            starts += [
                Candidate(
                    Origin.PLAIN,
                    kernel,
                    self._typical[kernel, False] * ones,
                    FIRST_NOISE,
                    shape=Scaled(ones),
                    n_free_columns=free,
                )
                for kernel in self._kernels
            ]
        return starts

    def _ranked(self, start: Candidate) -> Candidate:
        """Return a start of the first round with transformed columns."""
        if isinstance(start.shape, Scaled):
            start = replace(start, B=np.full_like(start.B, self._typical[start.kernel, True]))
        return replace(start, ranked=True, n_free_columns=self._rows(True).n_free_columns)

    def _on_ranks(self, n_rows: int, starts: Sequence[Candidate], ends: Sequence[Candidate]) -> list[Candidate]:
        """Return the results of the first round with transformed columns, for radial kernels.

        `starts` and `ends` are the starts and results without the transform. If the scores with the transform are
        clearly worse, nothing is returned. Scores of classes decide nothing, because they say little about the log
        loss.
        """
        if self.problem.ranks is None or not self.problem.choose_dimension:
            return []
        radial = [one for one in starts if kernel_name(one.kernel) in RADIAL]
        found = self._first_runs(n_rows, [self._ranked(one) for one in radial if isinstance(one.shape, Scaled)])
        others = [one.score for one in ends if kernel_name(one.kernel) in RADIAL and not isinstance(one.shape, Full)]
        if not self.problem.of_classes:
            nats = self.problem.total_weight * self._rows(True).n_targets
            least, least_of_others = (min(each, default=math.inf) for each in ([one.score for one in found], others))
            if least > least_of_others + _CLEARLY_WORSE * nats:
                return []
        directions = [self._ranked(one) for one in radial if isinstance(one.shape, Full)]
        return found + self._improve(n_rows, directions, SHORT_RUN)

    def _first_runs(self, n_rows: int, starts: Sequence[Candidate]) -> list[Candidate]:
        """Optimize the starts of the first round, then diagonal maps of their kernels. Return all results."""
        ends = self._improve(n_rows, starts, SHORT_RUN)
        return ends + self._diagonal_maps(n_rows, ends, _FIRST_ITERATIONS)

    def _diagonal_maps(self, n_rows: int, ends: Sequence[Candidate], max_iter: int) -> list[Candidate]:
        """Return the better of two diagonal maps for each kernel, after a long run.

        One short run starts from plain kernel ridge regression, the other from the scale of the median heuristic. The
        second run is needed if plain kernel ridge regression attributes everything to noise.
        """
        plain = [end for end in ends if isinstance(end.shape, Scaled) and len(end.B) > 1]
        starts = []
        for end in plain:
            scale = self._typical[end.kernel, end.ranked]
            median = replace(end, B=np.full_like(end.B, scale), nu=FIRST_NOISE)
            starts += [self._warm(one, origin=Origin.DIAGONAL, shape=Diagonal()) for one in (end, median)]
        best: dict[tuple[Kernel, bool], Candidate] = {}
        for end in sorted(self._improve(n_rows, starts, SHORT_RUN), key=lambda end: end.score):
            best.setdefault((end.kernel, end.ranked), end)
        return self._improve(n_rows, list(best.values()), max_iter - SHORT_RUN)

    def _sparse_starts(self) -> list[Candidate]:
        """Return diagonal maps of the columns that the lasso selects, by its two rules and for several kernels."""
        if not self.problem.choose_dimension or not self.problem.in_time:
            return []
        some = self.problem.rows.subset(self._order[:LASSO_ROWS])
        starts = []
        for columns in selected_columns(some):
            sample = median_sample(some, self.problem.rng) * columns
            for kernel in self._kernels:
                if kernel_name(kernel) in _SPARSE:
                    B = median_scale(kernel, sample) * columns
                    shape = Diagonal(columns)
                    starts.append(Candidate(Origin.SPARSE, kernel, B, FIRST_NOISE, shape=shape))
        return starts

    def _square_starts(self, ends: Sequence[Candidate], total_weight: float) -> list[Candidate]:
        """Return square maps for the radial kernels without a square map in `ends`, made from their diagonal maps."""
        have = {(end.kernel, end.ranked) for end in ends if end.origin is Origin.SQUARE}
        diagonal = [end for end in ends if _kind(end) is _Kind.DIAGONAL and (end.kernel, end.ranked) not in have]
        affordable = [
            end
            for end in diagonal
            if square_map_is_affordable(total_weight, self._rows(end.ranked).n_free_columns, end.kernel)
        ]
        if not affordable:
            return []
        varying = self.problem.rows.varying_columns()  # a D x D matrix
        return [self._warm(replace(end, B=end.B * varying), origin=Origin.SQUARE, shape=Full()) for end in affordable]

    def _in_time(
        self, candidates: Sequence[Candidate], rows_for: Callable[[Candidate], int], n_iter: int
    ) -> list[Candidate]:
        """Return the candidates whose runs fit in the time left: lowest score first, but the best square map second.

        The time of a run, and of refitting its scale and noise, is predicted from earlier runs. The best square map
        comes second, because more rows improve the score of a square map most.
        """
        starts, left = [], self.problem.seconds_left
        rest = candidates[1:]
        square = next((k for k, one in enumerate(rest) if _kind(one) is _Kind.SQUARE), 0)
        for one in [*candidates[:1], *rest[square : square + 1], *rest[:square], *rest[square + 1 :]]:
            run = (0.0 if isinstance(one.shape, Scaled) else n_iter) * self._cost(one, rows_for(one))
            rescale = (_RESCALE_ITERATIONS + 1) * self._cost(one, min(len(self._order), self.rescale_rows))
            if _LEAST_SHARE * run + rescale > left:
                continue
            left -= run + rescale
            starts.append(self._warm(one))
        return starts

    def _cost(self, candidate: Candidate, n_rows: int) -> float:
        """Return the seconds of an iteration on this number of rows, divided by the number of threads."""
        growth = (n_rows / (candidate.n_rows or n_rows)) ** COST_EXPONENT
        return float(candidate.seconds_per_iteration * growth / self.problem.n_parallel)

    def _warm(self, candidate: Candidate, **changes: Any) -> Candidate:
        """Return the start of a run: the candidate, with noise and scales in a range where gradients do not vanish."""
        B = candidate.B
        if B.ndim == 1:
            typical = self._typical[candidate.kernel, candidate.ranked]
            used = B > 0  # a sparse map keeps its zeros
            B = np.where(used, np.clip(B, typical / _FARTHEST_SCALE, typical * _FARTHEST_SCALE), 0.0)
        nu = min(max(candidate.nu, _LEAST_NOISE), _MOST_NOISE)
        return replace(replace(candidate, B=B, nu=nu), **changes)


def _is_product(candidate: Candidate) -> bool:
    return not candidate.kernel.rotation_invariant


def _kind(candidate: Candidate) -> _Kind:
    if isinstance(candidate.shape, Full):
        return _Kind.SQUARE if candidate.origin is Origin.SQUARE else _Kind.DIRECTIONS
    if candidate.origin is Origin.SPARSE:
        return _Kind.SPARSE
    if kernel_name(candidate.kernel) == LINEAR:
        return _Kind.LINEAR
    if _is_product(candidate):
        return _Kind.PRODUCT
    return _Kind.DIAGONAL if isinstance(candidate.shape, Diagonal) else _Kind.PLAIN


def _by_version(candidates: Sequence[Candidate]) -> list[tuple[bool, list[Candidate]]]:
    """Return the candidates without and with transformed columns: pairs of `Candidate.ranked` and a list."""
    both = [(ranked, [one for one in candidates if one.ranked is ranked]) for ranked in (False, True)]
    return [(ranked, some) for ranked, some in both if some]


def _configuration(candidate: Candidate) -> tuple[Kernel, _Kind, type, int, bool]:
    # The number of columns that are used distinguishes the sparse maps of a kernel.
    size = int(np.count_nonzero(candidate.B)) if candidate.B.ndim == 1 else candidate.n_components
    return candidate.kernel, _kind(candidate), type(candidate.shape), size, candidate.ranked


def _best_of_each(candidates: Sequence[Candidate]) -> list[Candidate]:
    """For each kernel, kind, shape and number of directions, return the candidate with the lowest score."""
    best: dict[tuple[Kernel, _Kind, type, int, bool], Candidate] = {}
    for one in sorted(candidates, key=lambda one: one.score):
        best.setdefault(_configuration(one), one)
    return list(best.values())


def _best_of_each_kind(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates with the lowest scores of each kind, lowest score first.

    If at least two candidates of a kind remain, they include the best candidate with and without transformed columns:
    the score on few rows does not tell well enough which of the two is better on all rows.
    """
    groups: dict[_Kind, list[Candidate]] = {}
    for one in sorted(candidates, key=lambda one: one.score):
        groups.setdefault(_kind(one), []).append(one)
    chosen = []
    for kind, some in groups.items():
        best, rest = some[: _KEPT[kind]], some[_KEPT[kind] :]
        others = [one for one in rest if one.ranked is not some[0].ranked]
        if others and len(best) > 1 and len({one.ranked for one in best}) == 1:
            best = [*best[:-1], others[0]]
        chosen += best
    return sorted(chosen, key=lambda one: one.score)
