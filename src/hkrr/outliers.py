"""Rows far off: they must not choose the number of directions.

With Gaussian noise for a model, one target that is wildly off can pay for a direction of its own, along which some
function reaches it. So the candidates of the search are compared once more, without the rows that the best of them with
one direction less leaves far off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hkrr._arrays import Array
from hkrr.candidates import SHORT, Candidate, improve_each
from hkrr.criteria import Criterion
from hkrr.rows import InMemoryRows

# Residuals beyond so many standard deviations, as the middle one tells them, are far off: 2 in 10^9 of normal ones.
_FAR = 6.0
_NORMAL = 1.4826  # standard deviations in a median absolute deviation
# More rows than this share are no exceptions, but what the function is like.
_MOST = 0.02


def far_off(criterion: Criterion, candidate: Candidate) -> Array:
    """Return which rows a candidate leaves far off, in any target."""
    X, Y, _ = criterion.rows.gather()
    alpha = criterion.reduced(candidate.B, candidate.nu / criterion.rows.total_weight).alpha
    residuals = np.abs(Y - criterion.kernel(X @ candidate.B.T, criterion.centers @ candidate.B.T) @ alpha)
    typical = _NORMAL * np.median(residuals, axis=0)
    return np.any(residuals > _FAR * typical, axis=1) & np.all(typical > 0)


def compared_without(
    criterion: Criterion, best: Sequence[Candidate], deadline: float, *, n_jobs: int | None = None, n_threads: int = 1
) -> list[Candidate]:
    """Return the best candidate of each number of directions, the lowest score first, by the rows that are not far off.

    Where none are, or too many, the scores are as they were.
    """
    best = sorted(best, key=lambda one: one.score)
    smaller = [one for one in best if one.n_components < best[0].n_components]
    if not smaller:
        return best
    off = far_off(criterion, max(smaller, key=lambda one: one.n_components))
    rows = criterion.rows
    assert isinstance(rows, InMemoryRows)
    if not 0 < off.sum() <= _MOST * len(off):
        return best
    sound = type(criterion)(rows.subset(np.flatnonzero(~off)), criterion.centers, criterion.kernel, 1.0, True)
    ends = improve_each(sound, best, SHORT, deadline, n_jobs=n_jobs, n_threads=n_threads)
    scored = [replace(one, score=end.score) for one, end in zip(best, ends, strict=True)]
    return sorted(scored, key=lambda one: one.score)
