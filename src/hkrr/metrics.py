"""How far a learned subspace is from the true one."""

from __future__ import annotations

from typing import Any

import numpy as np


def subspace_distance(B1: Any, B2: Any) -> float:
    """Return ``|(I - Q1 Q1') Q2|``, the sine of the largest angle from the row space of B2 to that of B1.

    0 when the rows of B2 lie in the span of those of B1, 1 when one of their directions is orthogonal to it. Q1 and Q2
    are orthonormal bases of the row spaces; directions below rounding do not count. Angles depend on the units of the
    columns: compare maps in the same ones.

    Parameters
    ----------
    B1, B2 : arrays (d1, D) and (d2, D)

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
        raise ValueError(f"{name} must be a finite matrix of d rows and D columns")
    _, s, Vt = np.linalg.svd(B, full_matrices=False)
    return Vt[s > max(B.shape) * np.finfo(np.float64).eps * (s[0] if len(s) else 0.0)].T
