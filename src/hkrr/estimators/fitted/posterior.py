"""The equivalent Gaussian process at the learned map: how sure it is of a prediction.

Kernel ridge regression is the posterior mean of a Gaussian process with covariance s k(Bx, Bx') and noise of variance
s nu / w_i, nu = lambda W. (s is the scale that the evidence has its maximum at, see `hkrr.criteria`: with r the
residuals it is ``sum_i w_i y_i r_i / (nu W)``, for each target.) With k_x the kernels between x and the centers, the
variance of the function at x is

    with all rows as centers   s (k(x, x) - |L^-1 D k_x|^2),              L L' = D K D + nu I,  D = diag(sqrt(w))
    with centers               s (k(x, x) - |v|^2 + |G v|^2),  v = T^-1 k_x,  T T' = K_cc,  G'G = nu (V V' + nu I)^-1

the second that of the variational posterior (Titsias, 2009). L and T follow from the model, and are computed when they
are first asked for. G does not: it is kept, lower triangular, packed, and in float32. Its rows are such that
``|G v| <= |v|``, so that what float32 rounds is 1e-7 of k(x, x).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from scipy.linalg.lapack import dtrtri, stpttr, strttp

from hkrr._arrays import (
    EPS,
    Array,
    Watch,
    add_to_diagonal,
    array_namespace,
    jittered_cholesky,
    solve_triangular,
)
from hkrr.kernels import Kernel
from hkrr.rows import Rows
from hkrr.threads import blas_for


class Factors(NamedTuple):
    """What the variance is made of: T and G, or with all rows as centers L and no G, and the roots of their weights."""

    lower: Array
    G: Array | None
    root: Array


def center_factor(kernel: Kernel, C: Array) -> Array:
    """Return T, ``T T' = K_cc``, with the jitter of the fit."""
    jitter = 10.0 * EPS * len(C) * float(np.max(kernel.diagonal(C)))
    return jittered_cholesky(kernel(C, C), jitter)[0]


def shrinkage(watch: Watch, T: Array, reg_lambda: float, rows: Rows) -> Array:
    """Return G from what a solve with centers has left behind.

    Where it was whitened the system was ``V V' / W + lambda I = L L'``, and G is ``sqrt(lambda) L^-1``; otherwise it
    was ``K'WK / W + lambda K_cc = T (V V' / W + lambda I) T'``, and G is ``sqrt(lambda) L^-1 T``.
    """
    factor = rows.fetch(watch.factor)[0]
    whitened = isinstance(watch.penalty, float)
    G = dtrtri(factor, lower=1)[0] if whitened else solve_triangular(factor, np.tril(T))
    return math.sqrt(reg_lambda) * np.tril(G)


def packed(G: Array) -> Array:
    """Return a lower triangular matrix as a vector, in float32."""
    return strttp(G.astype(np.float32, order="F"), uplo="L")[0]


def unpacked(values: Array, n: int) -> Array:
    """Return the lower triangular matrix of n rows from that vector, in float64."""
    return np.tril(stpttr(n, values, uplo="L")[0]).astype(np.float64)


def packed_length(n: int) -> int:
    """Return how long that vector is."""
    return n * (n + 1) // 2


# The factors of each model that was asked for its variance, and the coefficients that they belong to: neither pickled
# nor saved, gone with the model, and made anew after another fit.
_known: WeakKeyDictionary[Any, tuple[Array, Factors]] = WeakKeyDictionary()


def factors_of(model: Any) -> Factors:
    """Return the factors of a fitted model: c^3 / 3 of work the first time."""
    coefficients, factors = _known.get(model, (None, None))
    if factors is None or coefficients is not model.dual_coef_:
        with blas_for(len(model.centers_)):
            factors = _factors(model)
        _known[model] = (model.dual_coef_, factors)
    return factors


def _factors(model: Any) -> Factors:
    kernel, C = model.kernel_, (model.centers_ - model.x_offset_) @ model.components_.T
    packed_G = getattr(model, "posterior_factor_", None)
    if packed_G is not None:
        return Factors(center_factor(kernel, C), unpacked(packed_G, len(C)), np.ones((len(C), 1)))
    weight = getattr(model, "center_weight_", None)
    root = np.ones((len(C), 1)) if weight is None else np.sqrt(weight)[:, None]
    nu = model.reg_lambda_ * float(np.sum(root**2))
    return Factors(jittered_cholesky(add_to_diagonal(root * kernel(C, C) * root.T, nu), 0.0)[0], None, root)


def mean_and_variance(model: Any, rows: Rows) -> Array:
    """Return, one row each, the uncut predictions of all targets, and the variance of the function in units of s."""
    rows = rows.with_coordinates(model.x_offset_, None, None)
    kernel, C = model.kernel_, (model.centers_ - model.x_offset_) @ model.components_.T
    lower, G, root = factors_of(model)
    small = [model.components_, C, model.dual_coef_.reshape(len(C), -1), np.atleast_1d(model.intercept_), lower, root]

    def block(
        X: Array, Y: Array, w: Array | None, B: Array, C: Array, alpha: Array, b: Array, *factors: Array
    ) -> tuple[Array]:
        lower, root, *G = factors
        xp = array_namespace(X)
        P = X @ B.T
        K = kernel(P, C)
        predicted = K @ alpha + b
        V = solve_triangular(lower, root * K.T)
        variance = kernel.diagonal(P) - xp.sum(V * V, axis=0)
        if G:
            V = G[0] @ V
            variance += xp.sum(V * V, axis=0)
        return (xp.concat([predicted, xp.clip(variance, min=0.0)[:, None]], axis=1),)

    small = small if G is None else [*small, G]
    return rows.map(block, len(C), *(rows.place(array) for array in small))
