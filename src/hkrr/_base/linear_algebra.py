"""Arrays of any namespace: what the maths needs beyond the array API standard.

The kernels, the objective and the criteria are written against the array API, through array-api-compat, so that NumPy
arrays and torch tensors run the same lines. What the standard lacks is here: squared distances, the one product every
radial kernel starts with, a Cholesky factorisation that meets rounding with a little more jitter, and what follows from
its factor.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from array_api_compat import array_namespace, is_torch_array
from scipy.linalg import LinAlgError, cho_solve, cholesky
from scipy.linalg import solve_triangular as scipy_solve_triangular
from scipy.linalg.lapack import dlange, dpotri

from hkrr._cholesky import cholesky_in_place, solve_with_factor

# An array of any namespace (NumPy, torch, ...). The array API has no static type that the checkers understand yet.
Array: TypeAlias = Any

EPS = float(np.finfo(np.float64).eps)
_MOST_JITTER = 1e-4
_LARGE = 2_000  # rows from which a factorisation is shared by threads
_PANEL = 250  # columns of a device's product at least: smaller ones leave it idle

__all__ = [
    "EPS",
    "Array",
    "Watch",
    "add_to_diagonal",
    "array_namespace",
    "dot",
    "gram",
    "inverse_from_factor",
    "is_torch_array",
    "jittered_cholesky",
    "low_rank_product",
    "project",
    "pull_to_map",
    "scaled_squared_distances",
    "solve_positive_definite",
    "solve_triangular",
    "solve_with_lower",
]


def scaled_squared_distances(P: Array, C: Array, gamma: float) -> Array:
    """Return ``gamma |p_i - c_j|^2`` as one matrix product of d + 2 columns.

    ``[-2 gamma P, gamma |p|^2, 1] @ [C, 1, gamma |c|^2]'``: BLAS adds the norms, so the result is written once.
    Rounding can make it a little negative.
    """
    xp = array_namespace(P, C)
    left = xp.concat([-2.0 * gamma * P, gamma * xp.sum(P * P, axis=1, keepdims=True), xp.ones_like(P[:, :1])], axis=1)
    right = xp.concat([C, xp.ones_like(C[:, :1]), gamma * xp.sum(C * C, axis=1, keepdims=True)], axis=1)
    return left @ right.T


def project(X: Array, B: Array) -> Array:
    """Return ``X B'``; a diagonal map may be given as its diagonal."""
    return X * B if B.ndim == 1 else X @ B.T


def pull_to_map(dP: Array, X: Array, B: Array) -> Array:
    """Return the gradient in B, of its shape, from that in ``X B'``."""
    return array_namespace(X).sum(dP * X, axis=0) if B.ndim == 1 else dP.T @ X


def low_rank_product(left: Array, right: Array) -> Array:
    """Return ``left @ right'``. BLAS is slow on a single column, where broadcasting does the same."""
    return left * right.T if left.shape[1] == 1 else left @ right.T


def dot(a: Array, b: Array) -> Array:
    """Return the sum of the products of all entries, without waiting for it where the arrays are on a device."""
    return array_namespace(a, b).sum(a * b) if is_torch_array(a) else np.vdot(a, b)


def gram(K: Array) -> Array:
    """Return ``K'K``, at half the cost of a product where it pays: it is symmetric."""
    if not is_torch_array(K):
        return K.T @ K  # NumPy sees the symmetry
    n = K.shape[1]
    panel = -(-n // min(8, max(1, n // _PANEL)))
    lower = array_namespace(K).zeros((n, n), dtype=K.dtype, device=K.device)
    for i in range(0, n, panel):
        lower[i : i + panel, : i + panel] = K[:, i : i + panel].T @ K[:, : i + panel]
    return lower.tril() + lower.tril(-1).T


def add_to_diagonal(A: Array, values: Any) -> Array:
    """Return A with these values, one or one for each row, added to its diagonal in place."""
    _set_diagonal(A, A.diagonal() + values)
    return A


def _set_diagonal(A: Array, values: Array) -> None:
    if is_torch_array(A):
        A.diagonal().copy_(values)
    else:
        np.fill_diagonal(A, values)


def solve_triangular(T: Array, M: Array, *, transpose: bool = False) -> Array:
    """Return ``T^-1 M``, or ``T^-T M``, of a lower triangular T; M may be overwritten."""
    if is_torch_array(T):
        from torch.linalg import solve_triangular as torch_solve_triangular

        return torch_solve_triangular(T.T if transpose else T, M, upper=transpose)
    trans = "T" if transpose else "N"
    return scipy_solve_triangular(T, M, lower=True, trans=trans, overwrite_b=True, check_finite=False)


def solve_with_lower(factor: Array, b: Array) -> Array:
    """Return ``(L L')^-1 b`` from the lower factor L."""
    if is_torch_array(factor):
        return array_namespace(factor).cholesky_solve(b, factor)
    return cho_solve((factor, True), b, check_finite=False)


def inverse_from_factor(factor: Array) -> Array:
    """Return the inverse of L L' from its lower factor L."""
    if is_torch_array(factor):
        return array_namespace(factor).cholesky_inverse(factor)
    lower, _ = dpotri(factor, lower=1)
    lower = np.tril(lower)
    return lower + np.tril(lower, -1).T


def jittered_cholesky(A: Array, jitter: float) -> tuple[Array, float]:
    """Return the lower Cholesky factor of ``A + jitter I``, and the jitter that was needed.

    Where the factorisation fails, the jitter grows tenfold until it does not; a matrix that needs more than a part in
    10^4 of its diagonal is not positive definite up to rounding, and an error. ``A`` is overwritten.
    """
    if is_torch_array(A):
        return _with_jitter(A, jitter, lambda: _torch_cholesky(A))
    # A is symmetric, so A.T is A in the order of memory that LAPACK works on without another copy.
    return _with_jitter(A, jitter, lambda: cholesky(A.T, lower=True, check_finite=False))


def _torch_cholesky(A: Array) -> Array:
    factor, info = array_namespace(A).linalg.cholesky_ex(A)
    if int(info):
        raise LinAlgError("not positive definite")
    return factor


def _with_jitter(A: Array, jitter: float, factorise: Callable[[], Array]) -> tuple[Array, float]:
    xp = array_namespace(A)
    diagonal = xp.asarray(A.diagonal(), copy=True)
    largest = float(xp.max(diagonal))
    if not math.isfinite(largest):
        raise FloatingPointError("a kernel matrix holds values that are not finite")
    enough = max(_MOST_JITTER * largest, jitter)
    while jitter <= enough:
        _set_diagonal(A, diagonal + jitter)
        try:
            return factorise(), jitter
        except LinAlgError:
            jitter = max(10.0 * jitter, EPS * largest, sys.float_info.min)
    raise FloatingPointError("a kernel matrix is not positive definite, or holds values that are not finite")


@dataclass
class Watch:
    """What a solve leaves behind for a health report: see `hkrr.diagnostics`.

    The lower factor of the system solved (what is above its diagonal means nothing) and its 1-norm; what was added to a
    diagonal beyond lambda, as a share of that diagonal's largest entry; lambda's part of the system, a matrix or, for a
    multiple of the identity, a number; and the largest condition number that costs the fitted function digits.
    """

    factor: Array = None
    norm: float = math.nan
    jitter: float = 0.0
    penalty: Array | float = 0.0
    worst: float = math.inf


def solve_positive_definite(
    A: Array, b: Array, jitter: float, n_threads: int = 1, watch: Watch | None = None
) -> tuple[Array, float]:
    """Return the solution of ``(A + jitter I) x = b``, and the jitter that was needed. ``A`` is overwritten."""
    asked, norm, largest = jitter, 0.0, 0.0
    if watch is not None:
        norm, largest = _one_norm(A), float(array_namespace(A).max(A.diagonal()))
    if len(A) >= _LARGE and not is_torch_array(A):
        factor, jitter = _with_jitter(A, jitter, lambda: cholesky_in_place(A, n_threads))
        x = solve_with_factor(factor, b)
    else:
        factor, jitter = jittered_cholesky(A, jitter)
        x = solve_with_lower(factor, b)
    if watch is not None:
        watch.factor, watch.norm = factor, norm + jitter  # the diagonal is not negative
        watch.jitter += (jitter - asked) / (largest + asked) if jitter > asked else 0.0
    return x, jitter


def _one_norm(A: Array) -> float:
    """Return the largest sum of a column's absolute values, of a symmetric matrix."""
    if is_torch_array(A):
        return float(abs(A).sum(dim=0).max())
    return float(dlange("1", A.T))  # in the order of memory that LAPACK takes without a copy
