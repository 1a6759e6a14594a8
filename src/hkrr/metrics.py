"""The distance between the row spaces of two maps, such as a learned map and the true map."""

from __future__ import annotations

from typing import Any

import numpy as np


def subspace_distance(B1: Any, B2: Any) -> float:
    """Return the sine of the largest angle between a vector in the row space of B2 and the row space of B1.

    The sine is the spectral norm ``|(I - Q1 Q1') Q2|``, where Q1 and Q2 are orthonormal bases of the row spaces.
    Directions of a map whose singular values are below rounding error are ignored. The distance is 0 if the rows of B2
    lie in the row space of B1. It is 1 if a vector in the row space of B2 is orthogonal to the row space of B1. Angles
    depend on the units of the columns, so both maps must use the same units.

    Parameters
    ----------
    B1 : array (d1, D)
        The first map, such as a learned map.
    B2 : array (d2, D)
        The second map, such as the true map.

    Examples
    --------
    >>> from hkrr.metrics import subspace_distance
    >>> subspace_distance([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], [[3.0, -4.0, 0.0]])
    0.0
    """
    Q1, Q2 = _row_basis(B1, "B1"), _row_basis(B2, "B2")
    if Q1.shape[0] != Q2.shape[0]:
        raise ValueError(f"B1 and B2 must have the same number of columns, got {Q1.shape[0]} and {Q2.shape[0]}")
    if Q2.shape[1] == 0:
        return 0.0
    return float(np.linalg.norm(Q2 - Q1 @ (Q1.T @ Q2), 2))


def _row_basis(B: Any, name: str) -> Any:
    B = np.atleast_2d(np.asarray(B, dtype=np.float64))
    if B.ndim != 2 or not np.all(np.isfinite(B)):
        raise ValueError(f"{name} must be a matrix of finite numbers with d rows and D columns")
    _, s, Vt = np.linalg.svd(B, full_matrices=False)
    return Vt[s > max(B.shape) * np.finfo(np.float64).eps * (s[0] if len(s) else 0.0)].T
