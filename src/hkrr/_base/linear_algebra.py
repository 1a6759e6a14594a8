"""Array functions that the array API standard lacks.

The kernels, the objective and the criteria use the array API through array-api-compat, so the same code runs on NumPy
arrays and torch tensors. This module adds squared distances for radial kernels, a Cholesky factorization, and linear
solves with the Cholesky factor. If rounding errors make the factorization fail, it is repeated with a larger jitter, a
small number that is added to the diagonal.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from array_api_compat import array_namespace, is_torch_array
from scipy.linalg import LinAlgError, cho_solve
from scipy.linalg import solve_triangular as scipy_solve_triangular
from scipy.linalg.lapack import dlange

from hkrr._base import lapack
from hkrr._base.parallel_cholesky import parallel_cholesky_in_place

# The type of arrays of any library (NumPy, torch, ...). There is no common static type for all of them.
Array: TypeAlias = Any

# Machine epsilon of float64.
EPS = float(np.finfo(np.float64).eps)
# Maximum jitter that is added to the diagonal of a matrix, relative to its largest diagonal entry.
_MAX_JITTER = 1e-4
# Minimum number of rows of a linear system that is solved in float32.
_LARGE = 2_000
# Two limits: the minimum number of rows of a matrix that is inverted in float32, and the maximum relative residual of a
# linear system that is solved with a float32 factor, before iterative refinement. If the residual is larger, float64 is
# used.
_FLOAT32_ROWS, _FLOAT32_RESIDUAL = 600, 1e-3
# Maximum relative residual of a linear system that is solved with a float32 factor, after iterative refinement in
# float64. If the residual is larger, the matrix is factorized again in float64.
_REFINED_RESIDUAL = 1e-8
# A matrix is factorized in float32 only if its largest diagonal entry is between 1 / _FLOAT32_RANGE and _FLOAT32_RANGE.
# With other matrices, numbers could overflow or underflow in float32.
_FLOAT32_RANGE = 1e30
# Minimum number of columns of each matrix product in `gram`. Smaller products leave a GPU idle.
_PANEL = 250

__all__ = [
    "EPS",
    "Array",
    "SolveInfo",
    "add_to_diagonal",
    "array_namespace",
    "dot",
    "gram",
    "inverse_and_log_det",
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
    """Return the matrix of ``gamma |p_i - c_j|^2`` for the rows p_i of P and c_j of C, computed as one matrix product.

    The product is ``[-2 gamma P, gamma |p|^2, 1] @ [C, 1, gamma |c|^2]'``. The product also adds the norms, so the
    result is written to memory only once. Rounding can make entries slightly negative.
    """
    xp = array_namespace(P, C)
    left = xp.concat([-2.0 * gamma * P, gamma * xp.sum(P * P, axis=1, keepdims=True), xp.ones_like(P[:, :1])], axis=1)
    right = xp.concat([C, xp.ones_like(C[:, :1]), gamma * xp.sum(C * C, axis=1, keepdims=True)], axis=1)
    return left @ right.T


def project(X: Array, B: Array) -> Array:
    """Return ``X B'``. If B is a vector, it is the diagonal of a diagonal map."""
    return X * B if B.ndim == 1 else X @ B.T


def pull_to_map(dP: Array, X: Array, B: Array) -> Array:
    """Return the gradient with respect to B, given the gradient dP with respect to ``P = X B'``."""
    return array_namespace(X).sum(dP * X, axis=0) if B.ndim == 1 else dP.T @ X


def low_rank_product(left: Array, right: Array) -> Array:
    """Return ``left @ right.T``. For matrices with one column, broadcasting is used because it is faster than BLAS."""
    return left * right.T if left.shape[1] == 1 else left @ right.T


def dot(a: Array, b: Array) -> Array:
    """Return the sum of the products of corresponding entries.

    For PyTorch tensors the result is a tensor, so this function does not wait until a GPU has computed it.
    """
    return array_namespace(a, b).sum(a * b) if is_torch_array(a) else np.vdot(a, b)


def gram(K: Array) -> Array:
    """Return ``K'K``. For large matrices, using the symmetry of the result saves almost half of the operations."""
    if not is_torch_array(K):
        return K.T @ K  # NumPy calls a BLAS routine that computes one triangle only
    n = K.shape[1]
    panel = -(-n // min(8, max(1, n // _PANEL)))
    lower = array_namespace(K).zeros((n, n), dtype=K.dtype, device=K.device)
    for i in range(0, n, panel):
        lower[i : i + panel, : i + panel] = K[:, i : i + panel].T @ K[:, : i + panel]
    return lower.tril() + lower.tril(-1).T


def add_to_diagonal(A: Array, values: Any) -> Array:
    """Add a number, or one number for each row, to the diagonal of A in place, and return A."""
    _set_diagonal(A, A.diagonal() + values)
    return A


def _set_diagonal(A: Array, values: Array) -> None:
    if is_torch_array(A):
        A.diagonal().copy_(values)
    else:
        np.fill_diagonal(A, values)


def solve_triangular(T: Array, M: Array, *, transpose: bool = False) -> Array:
    """Return ``T^-1 M``, or ``(T')^-1 M`` if `transpose` is true. T is lower triangular. M may be overwritten."""
    if is_torch_array(T):
        from torch.linalg import solve_triangular as torch_solve_triangular

        return torch_solve_triangular(T.T if transpose else T, M, upper=transpose)
    trans = "T" if transpose else "N"
    return scipy_solve_triangular(T, M, lower=True, trans=trans, overwrite_b=True, check_finite=False)


def solve_with_lower(factor: Array, b: Array) -> Array:
    """Return ``(L L')^-1 b``, given the lower Cholesky factor L. Entries above the diagonal are not read."""
    if is_torch_array(factor):
        return array_namespace(factor).cholesky_solve(b, factor)
    # The transpose of a matrix in C order is in Fortran order, which LAPACK takes without a copy.
    return cho_solve((factor.T, False), b, check_finite=False)


def inverse_from_factor(factor: Array) -> Array:
    """Return ``(L L')^-1``, given the lower Cholesky factor L. Entries of `factor` above the diagonal are not read."""
    if is_torch_array(factor):
        return array_namespace(factor).cholesky_inverse(factor)
    return lapack.inverse_in_place(np.array(factor, order="C"))


def inverse_and_log_det(A: Array, b: Array) -> tuple[Array, Array, Array]:
    """Return the inverse of A, the logarithm of the determinant of A, and the solution x of ``A x = b``.

    A is symmetric and positive definite, and is overwritten. The inverse and the determinant of a NumPy array with at
    least 600 rows are computed in float32, which takes half the time, if this is accurate enough (see
    `_float32_factor`). The solution is then refined to the accuracy of float64.
    """
    if not is_torch_array(A) and A.dtype == np.float64 and len(A) >= _FLOAT32_ROWS:
        found = _float32_factor(A, b, lapack.cholesky_in_place)
        if found is not None:
            factor, x = found
            log_det = 2.0 * np.sum(np.log(factor.diagonal(), dtype=np.float64))
            return lapack.inverse_in_place(factor), log_det, x
    factor, _ = jittered_cholesky(A, 0.0)
    inverse, xp = inverse_from_factor(factor), array_namespace(A)
    return inverse, 2.0 * xp.sum(xp.log(factor.diagonal())), inverse @ b


def _float32_factor(A: Array, b: Array, factorize: Callable[[Array], Array]) -> tuple[Array, Array] | None:
    """Return the Cholesky factor of A in float32, and the solution of ``A x = b`` in float64.

    `factorize` returns the lower Cholesky factor of its argument and may overwrite the argument. The solution is
    computed with the factor, and improved by two steps of iterative refinement in float64. The norm of the residual,
    relative to the norm of b, must be at most 1e-3 before the refinement, 1e-6 after the first step and 1e-8 after the
    second step, for each column of b. If not, or if A cannot be factorized in float32, None is returned. Entries of the
    factor above the diagonal are undefined.
    """
    if not 1.0 / _FLOAT32_RANGE < float(np.max(A.diagonal())) < _FLOAT32_RANGE:  # also if an entry is not finite
        return None
    size = np.max(np.abs(b), axis=0)
    size = np.where(size > 0.0, size, 1.0)
    try:
        factor = factorize(A.astype(np.float32))
    except LinAlgError:
        return None
    x, residual = np.zeros(b.shape), b / size
    lengths = np.linalg.norm(residual, axis=0)
    for most in (_FLOAT32_RESIDUAL, _FLOAT32_RESIDUAL**2, _REFINED_RESIDUAL):
        x = x + solve_with_lower(factor, residual.astype(np.float32))
        residual = b / size - A @ x
        if not np.all(np.linalg.norm(residual, axis=0) <= most * lengths):
            return None
    return factor, x * size


def jittered_cholesky(A: Array, jitter: float) -> tuple[Array, float]:
    """Return the lower Cholesky factor of ``A + jitter I`` and the jitter that was used. ``A`` is overwritten.

    If the factorization fails, the jitter is multiplied by ten until the factorization succeeds. (A jitter of zero is
    first raised to the machine epsilon times the largest diagonal entry.) If the jitter would exceed 1e-4 times the
    largest diagonal entry, rounding errors cannot explain the failure, and a FloatingPointError is raised.
    """
    if is_torch_array(A):
        return _with_jitter(A, jitter, lambda: _torch_cholesky(A))
    A = np.ascontiguousarray(A.T)  # A is symmetric, and a matrix in Fortran order needs no copy
    factor, jitter = _with_jitter(A, jitter, lambda: lapack.cholesky_in_place(A))
    return np.tril(factor), jitter


def _torch_cholesky(A: Array) -> Array:
    factor, info = array_namespace(A).linalg.cholesky_ex(A)
    if int(info):
        raise LinAlgError("not positive definite")
    return factor


def _with_jitter(A: Array, jitter: float, factorize: Callable[[], Array]) -> tuple[Array, float]:
    xp = array_namespace(A)
    diagonal = xp.asarray(A.diagonal(), copy=True)
    largest = float(xp.max(diagonal))
    if not math.isfinite(largest):
        raise FloatingPointError("a kernel matrix contains values that are not finite")
    limit = max(_MAX_JITTER * largest, jitter, sys.float_info.min)
    while jitter <= limit:
        _set_diagonal(A, diagonal + jitter)
        try:
            return factorize(), jitter
        except LinAlgError:
            jitter = max(10.0 * jitter, EPS * largest, sys.float_info.min)
    raise FloatingPointError("a kernel matrix is not positive definite, or contains values that are not finite")


@dataclass(frozen=True)
class SolveInfo:
    """Details of the solution of a linear system.

    `hkrr.estimators.fitted` computes diagnostics and predictive uncertainty from these details.
    """

    # Lower Cholesky factor of the matrix of the system, undefined above the diagonal; None if there is no solution.
    factor: Array = None
    norm: float = math.nan  # 1-norm of the matrix of the system; NaN if it was not computed
    # Sum of the relative jitters of all factorized matrices. The relative jitter of a matrix is the amount added to its
    # diagonal, not counting the penalty, divided by its largest diagonal entry.
    jitter: float = 0.0
    penalize: Callable[[Array], Array] = np.zeros_like  # multiplies by the part of the matrix that comes from lambda
    whitened: bool = False  # whether the Cholesky factor of the kernel matrix of the centers whitened the system
    # Upper bound on the factor by which rounding errors are amplified in the fitted function; infinite if no bound is
    # known. If the condition number of the matrix is larger than this bound, the additional amplification affects the
    # coefficients, but not the function.
    condition_bound: float = math.inf


def solve_positive_definite(
    A: Array, b: Array, jitter: float, n_threads: int = 1, with_norm: bool = False
) -> tuple[Array, float, SolveInfo]:
    """Return the solution of ``(A + jitter I) x = b``, the jitter that was used, and details. ``A`` is overwritten.

    A NumPy array with at least 2,000 rows is factorized by `n_threads` threads, in float32 if this is accurate enough
    (see `_float32_factor`). The details contain the 1-norm of the matrix only if `with_norm` is true.
    """
    requested, largest = jitter, float(array_namespace(A).max(A.diagonal()))
    norm = _one_norm(A) if with_norm else math.nan
    if is_torch_array(A) or len(A) < _LARGE:
        factor, jitter = jittered_cholesky(A, jitter)
        x = solve_with_lower(factor, b)
    else:

        def factorize(A: Array) -> Array:
            return parallel_cholesky_in_place(A, n_threads)

        diagonal = A.diagonal().copy()
        found = _float32_factor(add_to_diagonal(A, jitter), b, factorize)
        if found is None:
            _set_diagonal(A, diagonal)
            factor, jitter = _with_jitter(A, jitter, lambda: factorize(A))
            found = factor, solve_with_lower(factor, b)
        factor, x = found
    # The jitter of a matrix of zeros has no effect on the fitted function, which is zero.
    added = (jitter - requested) / (largest + requested) if jitter > requested and largest > 0 else 0.0
    # The 1-norm of A + jitter I is exactly norm + jitter, because the diagonal of A is non-negative.
    return x, jitter, SolveInfo(factor, norm + jitter, added)


def _one_norm(A: Array) -> float:
    """Return the 1-norm of a symmetric matrix: the largest column sum of absolute values."""
    if is_torch_array(A):
        return float(abs(A).sum(dim=0).max())
    return float(dlange("1", A.T))  # A.T is in Fortran order, which LAPACK takes without a copy
