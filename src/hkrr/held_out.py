"""Whether a map of many parameters holds up on rows that it was not learned on.

A price of log(m) / 2 nats for each parameter supposes that there are many rows for each. With few, a map of some
directions can be turned until a rough function of them passes through all the noise (600 rows of 200 columns, signal
and noise of equal variance: a gain of 3.2 nats for each parameter). So where a full map is ahead by little it is
learned anew on three quarters of the rows, and must be no worse on the last than its rival of few parameters.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace

import numpy as np

from hkrr.candidates import LONG, SHORT, Candidate, improve
from hkrr.centers import uniform
from hkrr.criteria import Criterion, Grouped
from hkrr.exceptions import FitError
from hkrr.objective import Objective
from hkrr.rows import InMemoryRows
from hkrr.search import search_dimensions
from hkrr.shapes import Full, square_is_affordable
from hkrr.threads import single_threaded_blas

_LEAD = 2.0  # nats for each parameter of the map, below which a lead is little
_ROWS, _GROUP_ROWS = 6_000, 500
_SEARCH_ROWS, _SEARCH_CENTERS = 2_000, 100


def is_doubtful(chosen: Candidate, rival: Candidate) -> bool:
    """Whether a full map is ahead of its rival by less than two nats for each of its parameters."""
    return chosen.shape.name == "full" and rival.score - chosen.score < _LEAD * chosen.degrees_of_freedom


def holds_up(
    make: type[Criterion],
    rows: InMemoryRows,
    chosen: Candidate,
    rival: Candidate,
    *,
    n_starts: int,
    rng: np.random.RandomState,
    n_jobs: int | None = None,
    n_threads: int = 1,
    deadline: float = math.inf,
) -> bool:
    """Return whether the map, learned anew on three quarters of at most 6,000 rows, predicts the last no worse."""
    drawn = rows.draw(_ROWS, rng)
    n_learn = max(2, 3 * len(drawn) // 4)
    if len(drawn) - n_learn < 2:
        return True  # nothing to hold out
    learn, last = rows.subset(drawn[:n_learn]).on_threads(1), rows.subset(drawn[n_learn:])
    groups = Grouped(make, learn, max(1, n_learn // _GROUP_ROWS), chosen.kernel, 1.0, n_threads)
    d, starts = chosen.n_components, []
    if square_is_affordable(learn.n_rows, learn.n_features, chosen.kernel):
        start = replace(rival, kernel=chosen.kernel, B=rival.matrix, shape=Full())
        starts += _cut(improve(groups, start, LONG, deadline), d)
    few = learn.subset(np.arange(min(n_learn, _SEARCH_ROWS)))
    centers = uniform(few, _SEARCH_CENTERS, rng) if few.n_rows > _SEARCH_CENTERS else None
    with suppress(FitError):
        best, _ = search_dimensions(
            make(few, centers, chosen.kernel, 1.0, True),
            [d - 1, d] if d > 1 else [d],
            n_starts=n_starts,
            rng=rng,
            n_jobs=n_jobs,
            n_threads=n_threads,
            deadline=deadline,
            patient=False,
        )
        starts += [best[d]] if d in best else []
    ends = [improve(groups, start, LONG, deadline) for start in starts]
    ends = [end for end in ends if math.isfinite(end.value)]
    if not ends:
        return False
    again = min(ends, key=lambda end: end.value)
    return _error(learn, last, again) <= _error(learn, last, improve(groups, rival, SHORT, deadline))


def _cut(square: Candidate, n_components: int) -> list[Candidate]:
    """Return the map cut to its largest directions, if there is one."""
    if not math.isfinite(square.value):
        return []
    _, s, Vt = np.linalg.svd(square.B, full_matrices=False)
    return [replace(square, B=s[:n_components, None] * Vt[:n_components])]


def _error(learn: InMemoryRows, last: InMemoryRows, candidate: Candidate) -> float:
    """Return the squared error on the last rows, weighted, of the fit on the others."""
    if not math.isfinite(candidate.value):
        return math.inf
    B = candidate.matrix
    with single_threaded_blas():
        alpha = Objective(learn, None, candidate.kernel, candidate.nu / learn.total_weight).solve_alpha(B)
        C = learn.gather()[0] @ B.T
        X, Y, w = last.gather()
        squares = np.sum((Y - candidate.kernel(X @ B.T, C) @ alpha) ** 2, axis=1)
    return float(np.average(squares, weights=w))
