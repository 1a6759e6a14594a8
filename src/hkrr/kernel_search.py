"""Choosing the kernel and the shape of the map, by the score that chooses the number of directions.

Tables are seldom multi-index models: there the columns mean something, and a rough kernel with a scale for each column
(a diagonal map) often says more than a few directions. So for each of some mother kernels the criterion is minimised

    over a multiple of the identity       plain kernel ridge regression,
    over diagonal maps                    from there and from the median rule; a few steps each, then the best go on,
    over full maps                        for radial kernels, from the directions found with the Gaussian kernel, and
                                          from the best diagonal map, its rank cut to that of the lowest score,

on groups of some hundred rows (`hkrr.criteria.Grouped`). The best few of all of them are improved on more and larger
groups, on all rows where these are not too many, and the lowest score, priced at all rows, wins.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import joblib
import numpy as np
from tqdm.auto import tqdm

from hkrr.candidates import FIRST_LAMBDA, LONG, SHORT, Candidate, improve, score
from hkrr.criteria import Criterion, Grouped
from hkrr.exceptions import FitError
from hkrr.kernels import KERNELS
from hkrr.rows import InMemoryRows, in_threads
from hkrr.shapes import Diagonal, Full, Scaled

# Tried with identity, diagonal and full maps; and, not being rotation invariant, with the first two alone.
RADIAL = ("gaussian", "matern52", "matern32", "laplace")
PRODUCT = ("product_matern32", "product_laplace", "anova")
_GROUP_ROWS, _GROUPS = 400, 6  # while searching
_LARGE_GROUP_ROWS, _LARGE_GROUPS = 600, 8  # for the finalists
_ONE_GROUP_ROWS = 1_500  # up to which the finalists see all rows at once
_DIAGONALS, _SQUARES, _FINALISTS = 3, 2, 6
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
    n_jobs: int | None = None,
    n_threads: int = 1,
    deadline: float = math.inf,
    verbose: int = 0,
) -> tuple[Candidate, list[Candidate]]:
    """Return the best candidate of all kernels and shapes, and all that were tried, the finalists last.

    ``few_directions`` are candidates with full maps, found with one radial kernel: starts for all of these, and with
    ``few_directions_only`` (the user gave their number) the only ones. Where there is no time for more the first of
    them comes back as it is.
    """
    bar = tqdm(disable=not verbose, desc="kernels", unit="run")
    kernels = {name: KERNELS[name].with_gamma(1.0) for name in (*RADIAL, *PRODUCT)}
    sample = rows.take(rows.draw(_MEDIAN_ROWS, rng))
    typical = {kernel: math.sqrt(kernel.median_gamma(sample)) for kernel in kernels.values()}
    groups = grouped(make, rows, _GROUP_ROWS, _GROUPS, rng)
    tried: list[Candidate] = []

    def price(end: Candidate) -> Candidate:
        """The score that it would have with all rows: the more of them, the more parameters are worth their price."""
        return replace(end, score=score(groups, end.value, end.degrees_of_freedom, rows.total_weight))

    def run_all(job: Callable[..., Candidate], on: Grouped, arguments: Sequence[tuple[Any, ...]]) -> list[Candidate]:
        """Return the ends that are finite; past the deadline none. Threads share the jobs, or the groups of each."""
        if time.perf_counter() > deadline:
            return []
        if joblib.effective_n_jobs(n_jobs) > 1:
            ends = joblib.Parallel(n_jobs=n_jobs)(joblib.delayed(job)(on, *each, deadline) for each in arguments)
        elif on.n_groups >= n_threads:
            ends = [job(on.on_threads(n_threads), *each, deadline) for each in arguments]
        else:
            ends = in_threads(lambda each: job(on, *each, deadline), arguments, n_threads)
        bar.update(len(ends))
        ends = [price(end) for end in ends if math.isfinite(end.score)]
        tried.extend(ends)
        return ends

    def improve_all(starts: Sequence[Candidate], max_iter: int, on: Grouped = groups) -> list[Candidate]:
        """Return the ends, the lowest score first."""
        return sorted(run_all(improve, on, [(start, max_iter) for start in starts]), key=lambda end: end.score)

    # What few directions there are comes first: whatever the time limit, there is something to return.
    directions = improve_all([_warm(start, start="directions") for start in few_directions], SHORT)
    others = [
        _warm(end, start="directions", kernel=kernels[name])
        for end in directions[:1]
        for name in RADIAL
        if kernels[name] != end.kernel
    ]
    improve_all(others, SHORT)

    if not few_directions_only:
        identity = np.eye(rows.n_features)
        nu = FIRST_LAMBDA * groups.rows.total_weight / groups.n_groups
        starts = [
            Candidate("plain", kernel, scale * identity, nu, shape=Scaled(identity))
            for kernel, scale in typical.items()
        ]
        plains = improve_all(starts, SHORT)
        # Twice: plain kernel ridge regression may see noise alone where a scale for each column sees all.
        starts = [replace(start, nu=_MEDIAN_NOISE) for start in starts]
        starts = [_warm(end, typical[end.kernel], start="diagonal", shape=Diagonal()) for end in [*plains, *starts]]
        diagonals = _first_of(improve_all(starts, SHORT), lambda end: end.kernel)
        best = improve_all(diagonals[:_DIAGONALS], LONG)
        if _square_is_affordable(rows):
            radial = _first_of(
                [end for end in [*best, *diagonals] if end.kernel.rotation_invariant], lambda end: end.kernel
            )
            squares = improve_all([_warm(end, start="square", shape=Full()) for end in radial[:_SQUARES]], LONG)
            improve_all([_of_best_rank(groups, end, price) for end in squares], SHORT)

    if not tried:
        # No time is left, or no kernel can be evaluated on such groups.
        if not few_directions or not math.isfinite(few_directions[0].score):
            raise FitError("No kernel has a finite criterion: check the scale of X and y.")
        return few_directions[0], []
    ranked = sorted(tried, key=lambda end: end.score)
    distinct = _first_of(ranked, lambda end: (end.kernel, end.shape.name, end.n_components))
    best_of_kinds = _first_of(distinct, _kind)
    finalists = _first_of([*best_of_kinds, *distinct], id)[:_FINALISTS]
    if rows.n_rows <= _ONE_GROUP_ROWS:
        large = grouped(make, rows, rows.n_rows, 1, rng)
    else:
        large = grouped(make, rows, _LARGE_GROUP_ROWS, _LARGE_GROUPS, rng)
    # As they stand, and warmed: more rows may have use for what few have sent to nothing.
    again = [replace(end, start=f"{end.start}, finalist", seconds=0.0) for end in finalists]
    again += [_warm(end, typical[end.kernel]) for end in again if end.nu < _LEAST_NOISE or end.shape.name == "diagonal"]
    last = improve_all(again, SHORT, large)
    last += improve_all(_first_of(last, _kind), LONG, large)
    bar.close()
    return min(last or finalists[:1], key=lambda end: end.score), tried


def grouped(
    make: type[Criterion],
    rows: InMemoryRows,
    group_rows: int,
    n_groups: int,
    rng: np.random.RandomState,
) -> Grouped:
    """Return the criterion over at most so many groups of at least so many rows (if there are), drawn at random."""
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
        B = np.diag(np.clip(np.diagonal(B), typical / _FARTHEST_SCALE, typical * _FARTHEST_SCALE))
    nu = min(max(candidate.nu, _LEAST_NOISE), _MOST_NOISE)
    fresh = replace(candidate, B=B, nu=nu, value=math.inf, score=math.inf, seconds=0.0)
    return replace(fresh, **changes)


def _square_is_affordable(rows: InMemoryRows) -> bool:
    """Whether a map of all D directions has fewer parameters than half the rows: no score would take it otherwise."""
    D = rows.n_features
    return D > 1 and Full().degrees_of_freedom(D, D, True) < rows.n_rows / 2


def _of_best_rank(groups: Grouped, square: Candidate, price: Callable[[Candidate], Candidate]) -> Candidate:
    """Return the map cut to the number of its largest directions at which its score is lowest, as it stands."""
    _, s, Vt = np.linalg.svd(square.B, full_matrices=False)
    criterion = groups.at(square.nu / groups.rows.total_weight, square.kernel)
    best = square
    for rank in range(len(s) - 1, 0, -1):
        B = s[:rank, None] * Vt[:rank]
        cut = price(replace(square, start="square, cut", B=B, value=criterion.reduced(B).value))
        best = min(best, cut, key=lambda one: one.score)
    return _warm(best)


def _kind(candidate: Candidate) -> str:
    """Return where a map came from: few directions, a square map, or a scale for each column or for all."""
    return candidate.start.split(",")[0].replace("plain", "diagonal")


def _first_of(candidates: Sequence[Candidate], key: Callable[[Candidate], object]) -> list[Candidate]:
    """Return the first candidate of each key, in the order given."""
    first: dict[object, Candidate] = {}
    for candidate in candidates:
        first.setdefault(key(candidate), candidate)
    return list(first.values())
