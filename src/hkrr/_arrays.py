"""Arrays of any namespace: what the maths needs beyond the array API standard.

The kernels and the objective are written against the array API, through array-api-compat, so that NumPy arrays and
torch tensors run the same lines. Two things are kept here: squared distances, the one product every radial kernel
starts with, and the Cholesky solve that never gives up silently.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from array_api_compat import array_namespace
from scipy.linalg import LinAlgError, cho_factor, cho_solve

# An array of any namespace (NumPy, torch, ...). The array API has no static type that the checkers understand yet.
Array: TypeAlias = Any

EPS = float(np.finfo(np.float64).eps)

__all__ = ["EPS", "Array", "array_namespace", "low_rank_product", "scaled_squared_distances", "solve_positive_definite"]


def scaled_squared_distances(P: Array, C: Array, gamma: float) -> Array:
    """Return ``gamma |p_i - c_j|^2`` as one matrix product of d + 2 columns.

    ``[-2 gamma P, gamma |p|^2, 1] @ [C, 1, gamma |c|^2]'``: BLAS adds the norms, so the result is written once. What
    rounding makes negative is turned around: as small as clipping it, and four times as fast.
    """
    xp = array_namespace(P, C)
    left = xp.concat([-2.0 * gamma * P, gamma * xp.sum(P * P, axis=1, keepdims=True), xp.ones_like(P[:, :1])], axis=1)
    right = xp.concat([C, xp.ones_like(C[:, :1]), gamma * xp.sum(C * C, axis=1, keepdims=True)], axis=1)
    u = left @ right.T
    return xp.abs(u, out=u)


def low_rank_product(left: Array, right: Array) -> Array:
    """Return ``left @ right'``. BLAS is slow on a single column, where broadcasting does the same."""
    return left * right.T if left.shape[1] == 1 else left @ right.T


def solve_positive_definite(A: Array, b: Array, ridge: float) -> tuple[Array, float]:
    """Solve ``(A + ridge I) x = b`` by Cholesky, and return x with the ridge that was needed.

    Where the factorisation fails, the ridge grows tenfold until it does not. ``A`` may be overwritten.
    """
    diagonal = A.diagonal().copy()
    if not np.all(np.isfinite(diagonal)):
        raise FloatingPointError("the normal equations hold values that are not finite")
    ridge = max(ridge, EPS * EPS * float(diagonal.max()))
    while True:
        np.fill_diagonal(A, diagonal + ridge)
        try:
            return cho_solve(cho_factor(A, lower=True, check_finite=False), b, check_finite=False), ridge
        except LinAlgError:
            if ridge > float(np.abs(diagonal).max()):
                raise FloatingPointError("the normal equations hold values that are not finite") from None
            ridge *= 10.0
