"""Arrays of any namespace: what the maths needs beyond the array API standard.

The kernels are written against the array API, through array-api-compat, so that NumPy arrays and torch tensors run the
same lines. Two things are kept here: squared distances, the one product every radial kernel
starts with, and a Cholesky factorisation that meets rounding with a little more jitter.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from array_api_compat import array_namespace
from scipy.linalg import LinAlgError, cho_solve, cholesky

from hkrr._cholesky import cholesky_in_place, solve_with_factor

# An array of any namespace (NumPy, torch, ...). The array API has no static type that the checkers understand yet.
Array: TypeAlias = Any

EPS = float(np.finfo(np.float64).eps)
_MOST_JITTER = 1e-4
_LARGE = 2_000  # rows from which a factorisation is shared by threads

__all__ = [
    "EPS",
    "Array",
    "array_namespace",
    "jittered_cholesky",
    "low_rank_product",
    "project",
    "pull_to_map",
    "scaled_squared_distances",
    "solve_positive_definite",
]


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


def project(X: Array, B: Array) -> Array:
    """Return ``X B'``; a diagonal map may be given as its diagonal."""
    return X * B if B.ndim == 1 else X @ B.T


def pull_to_map(dP: Array, X: Array, B: Array) -> Array:
    """Return the gradient in B, of its shape, from that in ``X B'``."""
    return np.einsum("ij,ij->j", dP, X) if B.ndim == 1 else dP.T @ X


def low_rank_product(left: Array, right: Array) -> Array:
    """Return ``left @ right'``. BLAS is slow on a single column, where broadcasting does the same."""
    return left * right.T if left.shape[1] == 1 else left @ right.T


def jittered_cholesky(A: Array, jitter: float) -> tuple[Array, float]:
    """Return the lower Cholesky factor of ``A + jitter I``, and the jitter that was needed.

    Where the factorisation fails, the jitter grows tenfold until it does not; a matrix that needs more than a part in
    10^4 of its diagonal is not positive definite up to rounding, and an error. ``A`` is overwritten.
    """
    # A is symmetric, so A.T is A in the order of memory that LAPACK works on without another copy.
    return _with_jitter(A, jitter, lambda: cholesky(A.T, lower=True, check_finite=False))


def _with_jitter(A: Array, jitter: float, factorise: Callable[[], Array]) -> tuple[Array, float]:
    diagonal = A.diagonal().copy()
    largest = float(np.max(diagonal))
    if not math.isfinite(largest):
        raise FloatingPointError("a kernel matrix holds values that are not finite")
    enough = max(_MOST_JITTER * largest, jitter)
    while jitter <= enough:
        np.fill_diagonal(A, diagonal + jitter)
        try:
            return factorise(), jitter
        except LinAlgError:
            jitter = max(10.0 * jitter, EPS * largest, sys.float_info.min)
    raise FloatingPointError("a kernel matrix is not positive definite, or holds values that are not finite")


def solve_positive_definite(A: Array, b: Array, jitter: float, n_threads: int = 1) -> tuple[Array, float]:
    """Return the solution of ``(A + jitter I) x = b``, and the jitter that was needed. ``A`` is overwritten."""
    if len(A) >= _LARGE:
        A, jitter = _with_jitter(A, jitter, lambda: cholesky_in_place(A, n_threads))
        return solve_with_factor(A, b), jitter
    factor, jitter = jittered_cholesky(A, jitter)
    return cho_solve((factor, True), b, check_finite=False), jitter
