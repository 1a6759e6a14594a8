"""Whether a fit has more parameters than its rows can bear: the explained share by generalised cross-validation.

The leave-one-out error at a fixed map is no sign of it, as the map has seen the row that is left out. So the parameters
of the map are counted with those of the function.
"""

from __future__ import annotations

from hkrr._arrays import Array

_FEWEST_ROWS = 100  # that tell enough of an error
_LEAST_FREEDOM = 1e-3  # of the rows, below which rounding decides what error is left for each


def parameters_of(B: Array, n_columns: int, rotation_invariant: bool) -> float:
    """Return how many parameters a full map has: ``d D``, less those of a rotation where the kernel sees none."""
    d, D = len(B), min(n_columns, int(B.shape[1]))
    return d * D - (d * (d - 1) / 2 if rotation_invariant else 0)


def adjusted_share(explained: float | None, effective_dimension: float, map_parameters: float, n: int) -> float | None:
    """Return ``1 - (1 - explained) / f^2``, -1 at least, with f the share of the n rows that is not used up.

    ``f = (n - effective_dimension - map_parameters) / n``, but the map takes half of what the function leaves at most:
    where a function passes through all rows the error and the freedom vanish together, and their ratio is what is
    known; None where even that is rounding, and of fewer than 100 rows.
    """
    left = n - effective_dimension
    if explained is None or n < _FEWEST_ROWS or not left > _LEAST_FREEDOM * n:
        return None
    free = max(left - map_parameters, 0.5 * left) / n
    return max(1.0 - (1.0 - explained) / free**2, -1.0)
