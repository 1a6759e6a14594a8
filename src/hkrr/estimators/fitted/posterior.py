"""The equivalent Gaussian process at the learned map: the variance of the fitted function.

Kernel ridge regression is the posterior mean of a Gaussian process with covariance s k(Bx, Bx') and noise variance
s nu / w_i. Here w_i are the sample weights, W is their sum, and nu = lambda W. The scale s of each target maximizes the
evidence (see `hkrr.criteria`). For residuals r_i, this scale is ``s = sum_i w_i y_i r_i / (nu W)``. Let K be the kernel
matrix between rows and centers, K_cc the kernel matrix of the centers, and k_x the kernel values between x and the
centers. The variance of the function at x is

    all rows are centers   s (k(x, x) - |L^-1 D k_x|^2),              L L' = D K D + nu I,  D = diag(sqrt(w))
    otherwise              s (k(x, x) - |v|^2 + |G v|^2),  v = T^-1 k_x,  T T' = K_cc,  G'G = nu (V V' + nu I)^-1

where ``V = T^-1 K' D``. The second formula is the variance of the variational posterior (Titsias, 2009). L and T are
computed from the fitted attributes when they are first needed. G depends on all training rows, so the model stores G
as a packed lower triangular matrix in float32. As ``|G v| <= |v|``, rounding G to float32 changes the variance by about
1e-7 k(x, x).
"""

from __future__ import annotations

import math
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from scipy.linalg.lapack import dtrtri, stpttr, strttp

from hkrr._base.linear_algebra import (
    EPS,
    Array,
    SolveInfo,
    add_to_diagonal,
    array_namespace,
    jittered_cholesky,
    project,
    solve_triangular,
)
from hkrr._base.threads import blas_for
from hkrr.estimators.fitted.fitted_attributes import FittedMap, kernel_expansion
from hkrr.kernels import Kernel
from hkrr.rows import Rows


class PosteriorFactors(NamedTuple):
    """Matrices of the variance formulas at the top of this module."""

    lower: Array  # (c, c): L if all rows are centers, T otherwise
    G: Array | None  # (c, c); None if all rows are centers
    root_weight: Array  # (c, 1): square roots of the weights of the centers if all rows are centers, ones otherwise


def center_factor(kernel: Kernel, C: Array) -> Array:
    """Return the Cholesky factor T of K_cc for the latent centers C. The jitter is the same as in the fit."""
    jitter = 10.0 * EPS * len(C) * float(np.max(kernel.diagonal(C)))
    return jittered_cholesky(kernel(C, C), jitter)[0]


def shrinkage_factor(info: SolveInfo, T: Array, reg_lambda: float, rows: Rows) -> Array:
    """Return the matrix G, computed from the details of a linear solve with fewer centers than rows (Nystrom).

    Let F be the Cholesky factor in `info`. A whitened system is ``V V' / W + lambda I = F F'``, which gives
    ``G = sqrt(lambda) F^-1``. A system that is not whitened is ``T (V V' / W + lambda I) T' = F F'``, which gives
    ``G = sqrt(lambda) F^-1 T``.
    """
    factor = rows.fetch(info.factor)[0]
    G = dtrtri(factor, lower=1)[0] if info.whitened else solve_triangular(factor, np.tril(T))
    return math.sqrt(reg_lambda) * np.tril(G)


def pack_lower(G: Array) -> Array:
    """Return the lower triangle of a matrix as a float32 vector."""
    return strttp(G.astype(np.float32, order="F"), uplo="L")[0]


def unpack_lower(values: Array, n: int) -> Array:
    """Return the lower triangular n x n matrix in float64 from the vector that `pack_lower` returned."""
    return np.tril(stpttr(n, values, uplo="L")[0]).astype(np.float64)


def packed_length(n: int) -> int:
    """Return the number of entries in the lower triangle of an n x n matrix."""
    return n * (n + 1) // 2


# Cached factors of each model, with the coefficients for which the factors were computed. If the model has other
# coefficients, because it was fitted again, its factors are computed again. The cache is neither pickled nor saved.
_cache: WeakKeyDictionary[FittedMap, tuple[Array, PosteriorFactors]] = WeakKeyDictionary()


def posterior_factors(model: FittedMap) -> PosteriorFactors:
    """Return the factors of a fitted model. With c centers, the first call takes c^3 / 3 operations."""
    coefficients, factors = _cache.get(model, (None, None))
    if factors is None or coefficients is not model.dual_coef_:
        with blas_for(len(model.centers_)):
            factors = _compute_factors(model)
        _cache[model] = (model.dual_coef_, factors)
    return factors


def _compute_factors(model: FittedMap) -> PosteriorFactors:
    kernel, C = model.kernel_, kernel_expansion(model).latent_centers
    packed = getattr(model, "posterior_factor_", None)
    if packed is not None:
        return PosteriorFactors(center_factor(kernel, C), unpack_lower(packed, len(C)), np.ones((len(C), 1)))
    weight = getattr(model, "center_weight_", None)
    root = np.ones((len(C), 1)) if weight is None else np.sqrt(weight)[:, None]
    nu = model.reg_lambda_ * float(np.sum(root**2))
    system = add_to_diagonal(root * kernel(C, C) * root.T, nu)
    return PosteriorFactors(jittered_cholesky(system, 0.0)[0], None, root)


def mean_and_variance(model: FittedMap, rows: Rows) -> Array:
    """Return the untruncated predictions and the variance of the function, as an array (n_rows, n_targets + 1).

    The first columns are the predictions of the targets. The last column is the variance divided by the scale s.
    This quotient is the same for all targets.
    """
    rows = rows.with_coordinates(model.x_offset_, None, None, model.column_transform_)
    kernel, C = model.kernel_, kernel_expansion(model).latent_centers
    lower, G, root = posterior_factors(model)
    arrays = [model.map_, C, model.dual_coef_.reshape(len(C), -1), np.atleast_1d(model.intercept_), lower, root]

    def block(
        X: Array, Y: Array, w: Array | None, B: Array, C: Array, alpha: Array, b: Array, *factors: Array
    ) -> tuple[Array]:
        lower, root, *G = factors
        xp = array_namespace(X)
        P = project(X, B)
        K = kernel(P, C)
        predicted = K @ alpha + b
        V = solve_triangular(lower, root * K.T)
        variance = kernel.diagonal(P) - xp.sum(V * V, axis=0)
        if G:
            V = G[0] @ V
            variance += xp.sum(V * V, axis=0)
        return (xp.concat([predicted, xp.clip(variance, min=0.0)[:, None]], axis=1),)

    arrays = arrays if G is None else [*arrays, G]
    return rows.map(block, len(C), *(rows.place(array) for array in arrays))
