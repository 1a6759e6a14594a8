"""A race between kernels and shapes of the map, for tables whose columns have individual meanings.

Real tables rarely follow a multi-index model. A kernel that is not smooth (such as Laplace) with one scale per column,
or with a full D x D map, often fits them better than a few directions. A full map needs thousands of rows to be
learned, but a criterion on thousands of rows is expensive. The candidates therefore compete in rounds of 500, 1,000,
2,000 and 4,000 rows, with all of these rows as centers. Each round starts from the maps of the round before, and drops
the worst candidates. The candidates are:

- maps with few directions, found with the Gaussian kernel, for each radial kernel;
- multiples of the identity (plain kernel ridge regression), for each kernel;
- diagonal maps, for each kernel, started from plain kernel ridge regression and from the median heuristic;
- square maps, for each radial kernel, started from the diagonal map of the kernel.

The worst candidates are dropped within each of these kinds, not among all candidates: with few rows, the score of a
square map says little about its score with many rows. Scores are extrapolated to all rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any, NamedTuple

import numpy as np

from hkrr._maps import Diagonal, Full, Scaled, square_map_is_affordable
from hkrr.criteria import Criterion
from hkrr.estimators.search.candidates import SHORT, Candidate, Origin, optimism, score
from hkrr.estimators.search.progress import Phase
from hkrr.estimators.search.search_problem import SearchProblem
from hkrr.exceptions import FitError
from hkrr.kernels import KERNELS, Kernel
from hkrr.solvers.initialization import median_sample, median_scale

# Radial kernels are tried with all shapes. Product kernels are not tried with full maps, because they are not rotation
# invariant: the small advantage over a diagonal map would not be worth the additional parameters.
RADIAL = ("gaussian", "matern52", "matern32", "laplace")
PRODUCT = ("product_matern32", "product_laplace", "anova")
# The time to compute a product kernel is proportional to the number of columns. With more than _WIDE columns, only the
# cheapest product kernel is tried.
_WIDE, _CHEAPEST = 50, ("product_laplace",)
# Initial noise level nu (see `Candidate`) of a run whose scales are set by the median heuristic.
_FIRST_NOISE = 0.1
# Limits for the start of a run that continues from the result of another run: smallest nu, largest nu, and largest
# factor by which a scale may be above or below the scale of the median heuristic. Outside of these limits, gradients
# almost vanish, and the run would hardly change the map.
_LEAST_NOISE, _MOST_NOISE, _FARTHEST_SCALE = 0.003, 1.0, 100.0
# The time of one iteration is proportional to this power of the number of rows.
_COST_EXPONENT = 2.7
# A round is skipped if there is no time for this many iterations of the best candidate.
_LEAST_ITERATIONS = 5


class _Kind(Enum):
    """The kinds of candidates. Candidates are dropped by comparison with others of the same kind."""

    DIRECTIONS = auto()
    SQUARE = auto()
    DIAGONAL = auto()
    PRODUCT = auto()
    PLAIN = auto()


class _Round(NamedTuple):
    """A round: its number of rows, its maximum number of iterations, and how many candidates run in it.

    `n_runs` limits the number of candidates of all kinds together. `kept` is the number of candidates of each kind that
    go on to the next round.
    """

    n_rows: int
    max_iter: int
    n_runs: int
    kept: dict[_Kind, int]


def _kept(directions: int, square: int, diagonal: int, product: int, plain: int) -> dict[_Kind, int]:
    return dict(zip(_Kind, (directions, square, diagonal, product, plain), strict=True))


_ROUNDS = (
    _Round(500, 30, 100, _kept(1, 3, 2, 2, 1)),
    _Round(1_000, 20, 100, _kept(1, 2, 1, 1, 0)),
    _Round(2_000, 10, 100, _kept(1, 2, 1, 1, 0)),
    _Round(4_000, 10, 2, _kept(1, 2, 1, 1, 0)),
)
# On a GPU, later rounds cost little more than the first one, so they have more iterations and more runs.
_ROUNDS_ON_GPU = tuple(this._replace(max_iter=40, n_runs=100) for this in _ROUNDS)
# How many candidates of each kind remain after a round with all rows.
_FINALISTS = _kept(1, 3, 2, 2, 1)


@dataclass
class Race:
    """The race between kernels and shapes of the map: its state and its result.

    Attributes
    ----------
    problem : SearchProblem
        The input of the search. If the number of directions is given, only maps with these directions compete.
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
        kernels = [KERNELS[name].with_gamma(1.0) for name in (*RADIAL, *product)]
        sample = median_sample(rows, rng)
        # The scale of the median heuristic, for each kernel.
        self._typical = {kernel: median_scale(kernel, sample) for kernel in kernels}
        self._order = rows.draw(_ROUNDS[-1].n_rows, rng)

    @property
    def best(self) -> Candidate:
        """The survivor with the lowest score."""
        return self.survivors[0]

    def run(self, few_directions: Sequence[Candidate]) -> None:
        """Run all rounds for which there is time. `few_directions` are candidates with few directions, best first."""
        for number, this in enumerate(_ROUNDS_ON_GPU if self.problem.on_gpu else _ROUNDS):
            n_rows = min(this.n_rows, len(self._order))
            before = self.survivors
            starts = self._first_starts(few_directions) if number == 0 else self._affordable(before, n_rows, this)
            # The first round is run even after the deadline, because it gives a model.
            if not starts or (number > 0 and not self.problem.in_time):
                break
            criterion = self.criterion(n_rows)
            what = f"kernels and maps on {n_rows:,} rows"
            self.problem.progress.begin(what, Phase.KERNELS if number == 0 else Phase.FINALISTS)
            ends = self._improve(criterion, starts, this.max_iter if number > 0 else SHORT)
            if number == 0:
                ends += self._diagonal_maps(criterion, ends, this.max_iter)
            ends += self._square_maps(criterion, ends, this.max_iter)
            if not ends:
                break
            # Candidates without time for a run are only evaluated on the new rows, so that all scores are comparable.
            improved = {_configuration(one) for one in ends}
            skipped = [one for one in before if _configuration(one) not in improved]
            if self.problem.in_time:
                skipped = self._improve(criterion, skipped, 0)
            is_last = n_rows == self.problem.rows.n_rows and number > 0
            # A second round on the same rows starts from clipped values, and can end at a higher score than the first.
            same_rows = [one for one in before if one.n_rows == n_rows]
            ranked = _best_of_each([*ends, *skipped, *same_rows])
            self.survivors = _best_of_each_kind(ranked, _FINALISTS if is_last else this.kept)
            self.problem.progress.found(self.best)
            if is_last:
                break
        if not self.survivors:
            raise FitError("The criterion is not finite for any kernel: check the scale of X and y.")

    def criterion(self, n_rows: int) -> Criterion:
        """Return the criterion on the first `n_rows` rows of the race, with all of them as centers."""
        some = self.problem.rows.subset(self._order[:n_rows])
        return self.problem.criterion(some, None, KERNELS["gaussian"].with_gamma(1.0))

    def _improve(self, criterion: Criterion, starts: Sequence[Candidate], max_iter: int) -> list[Candidate]:
        """Optimize each candidate on the criterion, and return the candidates whose score is finite.

        The returned scores are extrapolated from the rows of the criterion to all rows.
        """
        starts = [replace(start, seconds=0.0, value=math.inf, score=math.inf) for start in starts]
        ends = self.problem.improve_each(criterion, starts, max_iter) if starts else []
        W, n = self.problem.total_weight, criterion.rows.total_weight
        scored = [
            replace(
                end,
                n_rows=criterion.rows.n_rows,
                score=score(criterion, end.value, end.degrees_of_freedom, W) + optimism(end.degrees_of_freedom, n, W),
            )
            for end in ends
            if math.isfinite(end.score)
        ]
        self.tried += scored
        return scored

    def _first_starts(self, few_directions: Sequence[Candidate]) -> list[Candidate]:
        """Return the starts of the first round: plain kernel ridge regression, and maps with few directions."""
        rows = self.problem.rows
        radial = [kernel for kernel in self._typical if kernel.rotation_invariant]
        starts = [
            self._warm(one, origin=Origin.DIRECTIONS, kernel=kernel) for one in few_directions for kernel in radial
        ]
        if self.problem.choose_dimension:
            ones, free = np.ones(rows.n_features), rows.n_free_columns
            starts += [
                Candidate(Origin.PLAIN, kernel, scale * ones, _FIRST_NOISE, shape=Scaled(ones), n_free_columns=free)
                for kernel, scale in self._typical.items()
            ]
        return starts

    def _diagonal_maps(self, criterion: Criterion, ends: Sequence[Candidate], max_iter: int) -> list[Candidate]:
        """Return the better of two diagonal maps for each kernel, after a long run.

        One short run starts from plain kernel ridge regression, the other from the scale of the median heuristic. The
        second run is needed if plain kernel ridge regression attributes everything to noise.
        """
        plain = [end for end in ends if isinstance(end.shape, Scaled) and len(end.B) > 1]
        starts = []
        for end in plain:
            median = replace(end, B=np.full_like(end.B, self._typical[end.kernel]), nu=_FIRST_NOISE)
            starts += [self._warm(one, origin=Origin.DIAGONAL, shape=Diagonal()) for one in (end, median)]
        best: dict[Kernel, Candidate] = {}
        for end in self._improve(criterion, starts, SHORT):
            if end.kernel not in best or end.score < best[end.kernel].score:
                best[end.kernel] = end
        return self._improve(criterion, list(best.values()), max_iter - SHORT)

    def _square_maps(self, criterion: Criterion, ends: Sequence[Candidate], max_iter: int) -> list[Candidate]:
        """Return square maps for the radial kernels without a square map, started from their diagonal maps."""
        have = {end.kernel for end in ends if end.origin is Origin.SQUARE}
        rows, varying = criterion.rows, self.problem.rows.varying_columns()
        starts = [
            self._warm(replace(end, B=end.B * varying), origin=Origin.SQUARE, shape=Full())
            for end in ends
            if isinstance(end.shape, Diagonal)
            and end.kernel not in have
            and square_map_is_affordable(rows.total_weight, rows.n_free_columns, end.kernel)
        ]
        return self._improve(criterion, starts, max_iter)

    def _affordable(self, candidates: Sequence[Candidate], n_rows: int, this: _Round) -> list[Candidate]:
        """Return the candidates for which there is time in a round, lowest score first.

        The time is predicted from earlier runs. The best square map comes second, because more rows improve the score
        of a square map most.
        """
        starts, left = [], self.problem.seconds_left
        rest = candidates[1:]
        square = next((k for k, one in enumerate(rest) if _kind(one) is _Kind.SQUARE), 0)
        for one in [*candidates[:1], *rest[square : square + 1], *rest[:square], *rest[square + 1 :]]:
            growth = (n_rows / (one.n_rows or n_rows)) ** _COST_EXPONENT
            each = one.seconds_per_iteration * growth / self.problem.n_parallel
            if each * _LEAST_ITERATIONS > left:
                continue
            left -= each * this.max_iter
            starts.append(self._warm(one))
        return starts[: this.n_runs]

    def _warm(self, candidate: Candidate, **changes: Any) -> Candidate:
        """Return the start of a run: the candidate, with noise and scales in a range where gradients do not vanish."""
        B = candidate.B
        if B.ndim == 1:
            typical = self._typical[candidate.kernel]
            B = np.clip(B, typical / _FARTHEST_SCALE, typical * _FARTHEST_SCALE)
        nu = min(max(candidate.nu, _LEAST_NOISE), _MOST_NOISE)
        return replace(replace(candidate, B=B, nu=nu), **changes)


def _kind(candidate: Candidate) -> _Kind:
    if isinstance(candidate.shape, Full):
        return _Kind.SQUARE if candidate.origin is Origin.SQUARE else _Kind.DIRECTIONS
    if not candidate.kernel.rotation_invariant:
        return _Kind.PRODUCT
    return _Kind.DIAGONAL if isinstance(candidate.shape, Diagonal) else _Kind.PLAIN


def _configuration(candidate: Candidate) -> tuple[Kernel, _Kind, type, int]:
    return candidate.kernel, _kind(candidate), type(candidate.shape), candidate.n_components


def _best_of_each(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidate with the lowest score for each kernel, kind, shape and number of directions."""
    best: dict[tuple[Kernel, _Kind, type, int], Candidate] = {}
    for one in sorted(candidates, key=lambda one: one.score):
        best.setdefault(_configuration(one), one)
    return list(best.values())


def _best_of_each_kind(candidates: Sequence[Candidate], kept: dict[_Kind, int]) -> list[Candidate]:
    """Return the candidates with the lowest scores of each kind, lowest score first."""
    ranked = sorted(candidates, key=lambda one: one.score)
    chosen = [one for kind in _Kind for one in [one for one in ranked if _kind(one) is kind][: kept[kind]]]
    return sorted(chosen, key=lambda one: one.score)
