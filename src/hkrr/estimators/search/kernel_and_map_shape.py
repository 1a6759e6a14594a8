"""Choosing the kernel and the shape of the map, by the score that chooses the number of directions.

Tables are seldom multi-index models: there the columns mean something, and a rough kernel with a scale for each column
(a diagonal map) often says more than a few directions. So for each of some mother kernels the criterion is minimised

    over a multiple of the identity       plain kernel ridge regression,
    over diagonal maps                    from there and from the median rule; a few steps each, then the best go on,
    over full maps                        for radial kernels, from the directions found with the Gaussian kernel, and
                                          from the best diagonal map, its rank cut to that of the lowest score,

on groups of some hundred rows (`hkrr.criteria.Grouped`). The best of each of these three, by score, and of all of them
by leave-one-out error, are improved on more and larger groups, on all rows where these are not too many. There the
lowest score, priced at all rows, wins.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import joblib
import numpy as np
from tqdm.auto import tqdm

from hkrr.candidates import FIRST_LAMBDA, LONG, SHORT, Candidate, improve, improve_each, optimism, score
from hkrr.criteria import Criterion, Grouped, LeaveOneOut
from hkrr.exceptions import FitError
from hkrr.kernels import KERNELS, Kernel
from hkrr.progress import Report, in_words
from hkrr.rows import InMemoryRows
from hkrr.shapes import Diagonal, Full, Scaled, square_is_affordable
from hkrr.threads import single_threaded_blas

# Tried with identity, diagonal and full maps; and, not being rotation invariant, with the first two alone.
RADIAL = ("gaussian", "matern52", "matern32", "laplace")
PRODUCT = ("product_matern32", "product_laplace", "anova")
# Product kernels take time in proportion to the columns: beyond so many the cheapest stands for all, with fewer groups.
_WIDE, _CHEAPEST = 50, ("product_laplace",)
_GROUP_ROWS, _GROUPS = 400, 6  # while searching
_LARGE_GROUP_ROWS, _LARGE_GROUPS = 600, 8  # for the finalists
_ONE_GROUP_ROWS = 1_500  # up to which the finalists see all rows at once
_PLAINS, _DIAGONALS, _SQUARES = 1, 4, 2  # of each that go on from half the groups to all of them, and to a full map
_LONG_RUNS, _HOPELESS = 2, 0.05  # of the best; nats a row behind the best: a tenth more unexplained
_FINALISTS, _FINALISTS_BY_ERROR = 9, 3
_MEDIAN_ROWS, _MEDIAN_NOISE = 500, 0.1
# At a warm start: where the noise is next to nothing, or all there is, its gradient is nothing too, and it stays there;
# so for a column's scale that few rows have sent to nothing or to infinity.
_LEAST_NOISE, _MOST_NOISE, _FARTHEST_SCALE = 0.01, 1.0, 100.0


def search_kernels(
    make: type[Criterion],
    rows: InMemoryRows,
    few_directions: Sequence[Candidate],
    *,
    few_directions_only: bool,
    rng: np.random.RandomState,
    total_weight: float | None = None,
    n_jobs: int | None = None,
    n_threads: int = 1,
    deadline: float = math.inf,
    verbose: int = 0,
    report: Report | None = None,
) -> tuple[Candidate, list[Candidate]]:
    """Return the best candidate of all kernels and shapes, and all that were tried, the finalists last.

    ``few_directions`` are candidates with full maps, found with one radial kernel: starts for all of these, and with
    ``few_directions_only`` (the user gave their number) the only ones. Where there is no time for more the first of
    them comes back as it is.
    """
    product = PRODUCT if rows.n_features <= _WIDE else _CHEAPEST
    kernels = {name: KERNELS[name].with_gamma(1.0) for name in (*RADIAL, *product)}
    sample = rows.take(rows.draw(_MEDIAN_ROWS, rng))
    typical = {kernel: math.sqrt(kernel.median_gamma(sample)) for kernel in kernels.values()}
    groups = grouped(make, rows, _GROUP_ROWS, _GROUPS, rng)
    with tqdm(disable=not verbose, desc="kernels", unit="run") as bar:
        W = rows.total_weight if total_weight is None else total_weight
        runs = _Runs(W, n_jobs, n_threads, deadline, bar, rows.n_targets, report)
        # What few directions there are comes first: whatever the time limit, there is something to return.
        directions = runs.improve([_warm(start, start="directions") for start in few_directions], SHORT, groups)
        others = [
            _warm(end, start="directions", kernel=kernels[name])
            for end in directions[:1]
            for name in RADIAL
            if kernels[name] != end.kernel
        ]
        runs.improve(others, SHORT, groups)
        if not few_directions_only:
            half = groups.first(-(-groups.n_groups // 2))
            diagonals = _diagonals(runs, groups, half, typical)
            _squares(runs, groups, diagonals)
        if not any(not end.start.endswith("half") for end in runs.tried):
            # No time is left, or no kernel can be evaluated on such groups.
            if not few_directions or not math.isfinite(few_directions[0].score):
                raise FitError("No kernel has a finite criterion: check the scale of X and y.")
            return few_directions[0], []
        finalists = _finalists(runs, groups)
        if rows.n_rows <= _ONE_GROUP_ROWS:
            large = grouped(make, rows, rows.n_rows, 1, rng)
        else:
            large = grouped(make, rows, _LARGE_GROUP_ROWS, _LARGE_GROUPS, rng)
        return _winner(runs, large, finalists, typical), runs.tried


class _Runs:
    """The runs of a search: what they may spend, and all that has come of them."""

    def __init__(
        self,
        total_weight: float,
        n_jobs: int | None,
        n_threads: int,
        deadline: float,
        bar: Any,
        n_targets: int = 1,
        report: Report | None = None,
    ) -> None:
        self.total_weight, self._n_targets = total_weight, n_targets
        self._n_jobs, self._n_threads = n_jobs, n_threads
        self._deadline, self._bar, self._report = deadline, bar, report or Report()
        self.tried: list[Candidate] = []

    @property
    def in_time(self) -> bool:
        """Whether the deadline has not passed."""
        return time.perf_counter() < self._deadline

    def price(self, end: Candidate, on: Grouped) -> Candidate:
        """The score that it would have with all rows: the more of them, the more parameters are worth their price."""
        dof, n_rows = end.degrees_of_freedom, on.rows.total_weight
        total = score(on, end.value, dof, self.total_weight) + optimism(dof, n_rows, self.total_weight)
        return replace(end, score=total)

    def improve(self, starts: Sequence[Candidate], max_iter: int, on: Grouped) -> list[Candidate]:
        """Return the ends that are finite, the lowest score first. Threads share the groups of a run, or the runs."""
        if not self.in_time or not starts:
            return []
        self._report.trying(in_words(starts))
        if joblib.effective_n_jobs(self._n_jobs) == 1 and on.n_groups >= self._n_threads:
            threaded = on.on_threads(self._n_threads)
            ends = [improve(threaded, start, max_iter, self._deadline) for start in starts if self.in_time]
        else:
            n_jobs, n_threads = self._n_jobs, self._n_threads
            ends = improve_each(on, starts, max_iter, self._deadline, n_jobs=n_jobs, n_threads=n_threads)
        self._bar.update(len(ends))
        ends = [self.price(end, on) for end in ends if math.isfinite(end.score)]
        self.tried.extend(ends)
        ends = sorted(ends, key=lambda end: end.score)
        whole = [end for end in self.tried if not end.start.endswith("half")]
        if whole:
            self._report.found(min(whole, key=lambda end: ("finalist" not in end.start, end.score)))
        return ends

    def hopeful(self, ends: Sequence[Candidate]) -> list[Candidate]:
        """Return those that are not far behind the first, which has the lowest score."""
        far = _HOPELESS * self.total_weight * self._n_targets
        return [end for end in ends if end.score - ends[0].score <= far]

    def errors(self, candidates: Sequence[Candidate], on: Grouped) -> list[float]:
        """Return their leave-one-out errors within the groups, with the price of parameters learned there (AIC).

        Past the deadline infinity, but for the first.
        """
        held_out = Grouped(LeaveOneOut, on.rows, on.n_groups, on.kernel, 1.0, self._n_threads)
        n = on.rows.total_weight
        errors: list[float] = []
        for candidate in candidates:
            error = math.inf
            if self.in_time or not errors:
                with suppress(ArithmeticError, np.linalg.LinAlgError):
                    error = held_out.at(candidate.nu / n, candidate.kernel).reduced(candidate.B).value
            errors.append(error * (1.0 + 2.0 * candidate.degrees_of_freedom / n))
        return errors


def _diagonals(runs: _Runs, groups: Grouped, half: Grouped, typical: dict[Kernel, float]) -> list[Candidate]:
    """Run plain kernel ridge regression and diagonal maps; return the best of these for each kernel, best first.

    All of them on half of the groups, then the best of them on all.
    """
    ones = np.ones(groups.rows.n_features)
    nu = FIRST_LAMBDA * groups.rows.total_weight / groups.n_groups
    free = groups.rows.n_free_columns
    starts = [
        Candidate("plain, half", kernel, scale * ones, nu, shape=Scaled(ones), n_free_columns=free)
        for kernel, scale in typical.items()
    ]
    plains = runs.improve(starts, SHORT, half)
    runs.improve([_warm(end, start="plain") for end in plains[:_PLAINS]], SHORT, groups)
    # Twice: plain kernel ridge regression may see noise alone where a scale for each column sees all.
    starts = [replace(start, nu=_MEDIAN_NOISE) for start in starts]
    starts = [_warm(end, typical[end.kernel], start="diagonal, half", shape=Diagonal()) for end in [*plains, *starts]]
    best = _first_of(runs.improve(starts, SHORT, half), lambda end: end.kernel)[:_DIAGONALS]
    best = [replace(end, start="diagonal", value=math.inf, score=math.inf, seconds=0.0) for end in best]
    ends = runs.improve(best[:_LONG_RUNS], LONG, groups) + runs.improve(best[_LONG_RUNS:], SHORT, groups)
    return sorted(ends, key=lambda end: end.score)


def _squares(runs: _Runs, groups: Grouped, diagonals: Sequence[Candidate]) -> None:
    """Run square maps from the best diagonal ones, and these cut to fewer directions."""
    D = groups.rows.n_features
    radial = [end for end in diagonals if square_is_affordable(runs.total_weight, D, end.kernel)]
    starts = [_warm(replace(end, B=end.matrix), start="square", shape=Full()) for end in radial[:_SQUARES]]
    squares = runs.improve(starts, LONG, groups)
    runs.improve([cut for end in squares for cut in _cut(runs, groups, end)], SHORT, groups)


def _finalists(runs: _Runs, groups: Grouped) -> list[Candidate]:
    """Return the best of each kind, of the least errors, and of the lowest scores: one of each kernel and shape.

    Each diagonal map is a kind of its own: the rougher its kernel, the more it has to gain from groups of more rows.
    """
    ranked = sorted((end for end in runs.tried if not end.start.endswith("half")), key=lambda end: end.score)
    distinct = _first_of(ranked, _sort_of)
    errors = runs.errors(distinct, groups)
    by_error = [distinct[i] for i in np.argsort(errors, kind="stable")[:_FINALISTS_BY_ERROR]]
    return _first_of([*runs.hopeful(_first_of(distinct, _kind)), *by_error, *runs.hopeful(distinct)], id)[:_FINALISTS]


def _winner(runs: _Runs, large: Grouped, finalists: Sequence[Candidate], typical: dict[Kernel, float]) -> Candidate:
    """Return the finalist of the lowest score: all improved on these groups, the best two for longer.

    The winner for longer still, if it has not come to rest.
    """
    # As they stand, and warmed: more rows may have use for what few have sent to nothing.
    again = [replace(end, start=f"{end.start}, finalist", seconds=0.0) for end in finalists]
    again += [_warm(end, typical[end.kernel]) for end in again if end.nu < _LEAST_NOISE or end.shape.name == "diagonal"]
    last = runs.improve(again, SHORT, large)
    last += runs.improve(runs.hopeful(_first_of(last, _sort_of))[:_LONG_RUNS], LONG, large)
    best = min(last or finalists[:1], key=lambda end: end.score)
    return min([best, *runs.improve([best], LONG, large)], key=lambda end: end.score)


def grouped(
    make: type[Criterion],
    rows: InMemoryRows,
    group_rows: int,
    n_groups: int,
    rng: np.random.RandomState,
) -> Grouped:
    """Return the criterion over at most so many groups of at least so many rows (if there are), drawn at random.

    Fewer groups where there are many columns.
    """
    n_groups = min(n_groups, max(2, n_groups * _WIDE // rows.n_features))
    n_rows = min(rows.n_rows, n_groups * group_rows)
    n_groups = max(1, n_rows // group_rows)
    some = rows.subset(rows.draw(n_rows, rng))
    return Grouped(make, some, n_groups, KERNELS["gaussian"].with_gamma(1.0), 1.0)


def _warm(candidate: Candidate, typical: float | None = None, **changes: Any) -> Candidate:
    """Return the candidate as another start: from where it ended, but not from where a gradient has vanished.

    ``typical`` is a scale of the kernel that no column needs to be far from, to begin with.
    """
    B = candidate.B
    if typical is not None and candidate.shape.name != "full":
        B = np.clip(B, typical / _FARTHEST_SCALE, typical * _FARTHEST_SCALE)
    nu = min(max(candidate.nu, _LEAST_NOISE), _MOST_NOISE)
    fresh = replace(candidate, B=B, nu=nu, value=math.inf, score=math.inf, seconds=0.0)
    return replace(fresh, **changes)


def _cut(runs: _Runs, groups: Grouped, square: Candidate) -> list[Candidate]:
    """Return the map cut to its largest directions: as many as give the lowest score, as it stands, and one more."""
    criterion = groups.at(square.nu / groups.rows.total_weight, square.kernel)
    cuts = [square]
    with single_threaded_blas():
        _, s, Vt = np.linalg.svd(square.B, full_matrices=False)
        for rank in range(len(s) - 1, 0, -1):
            if not runs.in_time:
                break
            B = s[:rank, None] * Vt[:rank]
            cut = replace(square, start="square, cut", B=B, value=criterion.reduced(B).value)
            cuts.append(runs.price(cut, groups))
    best = min(range(len(cuts)), key=lambda i: cuts[i].score)
    return [_warm(cut) for cut in cuts[max(best - 1, 0) : best + 1]]


def _kind(candidate: Candidate) -> str:
    """Return where a map came from: few directions, a square map, or scales, for one kernel and another."""
    origin = candidate.start.split(",")[0]
    return f"{candidate.shape.name} {candidate.kernel}" if origin in ("plain", "diagonal") else origin


def _sort_of(candidate: Candidate) -> tuple[Kernel, str, int]:
    return candidate.kernel, candidate.shape.name, candidate.n_components


def _first_of(candidates: Sequence[Candidate], key: Callable[[Candidate], object]) -> list[Candidate]:
    """Return the first candidate of each key, in the order given."""
    first: dict[object, Candidate] = {}
    for candidate in candidates:
        first.setdefault(key(candidate), candidate)
    return list(first.values())
