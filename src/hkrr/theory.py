"""Quantities of the paper's theorems: leverage scores, effective dimensions, numbers of centers, rates.

Let K be the kernel matrix of m rows at a map B, and t > 0. Then

    ``l_i(t) = (K (K + t m I)^-1)_ii``         are the leverage scores (appendix B of the paper),
    ``N(t) = sum_i l_i(t)``                    is the effective dimension,
    ``N_inf(t) = m max_i l_i(t)``              is the maximal dimension.

In the paper, N and N_inf are the mean and the supremum over all inputs x of ``N_x(t) = <k_x, (Sigma + t)^-1 k_x>``.
Here Sigma is the covariance operator of the kernel features k_x of random inputs x. This module uses the empirical
distribution of the rows, for which N_x(t) at row i is m l_i(t). The numbers of centers computed here are therefore
estimates. Throughout, kappa is the maximum of k(x, x). `hkrr.centers` computes approximate leverage scores for data
sets that are too large to form K.
"""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np
from scipy.linalg import cho_solve

from hkrr._base.checks import check_int, check_positive
from hkrr._base.linear_algebra import Array, jittered_cholesky

__all__ = [
    "als_centers",
    "effective_dimension",
    "leverage_scores",
    "maximal_dimension",
    "minimax_rate",
    "plain_centers",
    "rate",
    "rate_for_all_m",
]


def leverage_scores(K: Any, t: float) -> Array:
    """Return the leverage scores ``l_i(t) = (K (K + t m I)^-1)_ii``. Each score is between 0 and 1.

    Parameters
    ----------
    K : array (m, m)
        Kernel matrix of m rows.
    t : float
        Positive regularization parameter, such as lambda.

    Examples
    --------
    >>> import numpy as np
    >>> from hkrr.theory import leverage_scores
    >>> leverage_scores(np.eye(4), 0.25)
    array([0.5, 0.5, 0.5, 0.5])
    """
    K = _kernel_matrix(K)
    check_positive("t", t)
    factor, _ = jittered_cholesky(K.copy(), t * len(K))
    # The equivalent form I - t m (K + t m I)^-1 would suffer from cancellation for large t.
    hat = cho_solve((factor, True), K, check_finite=False)
    return np.clip(hat.diagonal(), 0.0, 1.0)


def effective_dimension(K: Any, t: float) -> float:
    """Return the effective dimension ``N(t) = tr K (K + t m I)^-1``, the degrees of freedom of a fit with lambda = t.

    The parameters are the same as in `leverage_scores`.

    Examples
    --------
    >>> import numpy as np
    >>> from hkrr.theory import effective_dimension
    >>> round(effective_dimension(np.eye(4), 0.25), 6)
    2.0
    """
    return float(np.sum(leverage_scores(K, t)))


def maximal_dimension(K: Any, t: float) -> float:
    """Return the maximal dimension ``N_inf(t) = m max_i l_i(t)``. N_inf(t) is at least N(t) and at most kappa / t.

    The parameters are the same as in `leverage_scores`.

    Examples
    --------
    >>> import numpy as np
    >>> from hkrr.theory import maximal_dimension
    >>> round(maximal_dimension(np.diag([1.0, 0.0, 0.0, 0.0]), 0.25), 6)
    2.0
    """
    scores = leverage_scores(K, t)
    return float(len(scores) * np.max(scores))


def plain_centers(n_inf: float, reg_lambda: float, *, delta: float = 0.1, kappa: float = 1.0) -> int:
    """Return the number of uniformly drawn centers that the Nystrom theorem requires.

    The number is ``max(67, 5 N_inf(lambda)) log(4 kappa / (lambda delta))``, rounded up. With this many centers, the
    convergence rate is the same as with all rows as centers, with probability at least 1 - delta. If lambda is so large
    that the logarithm is negative, 1 is returned.

    Parameters
    ----------
    n_inf : float
        Maximal dimension N_inf(lambda), from `maximal_dimension`.
    reg_lambda : float
        Regularization parameter lambda.
    delta : float, default=0.1
        Probability of failure, between 0 and 1.
    kappa : float, default=1.0
        Maximum of k(x, x).

    Examples
    --------
    >>> from hkrr.theory import plain_centers
    >>> plain_centers(20.0, 1e-3)
    1060
    """
    check_positive("n_inf", n_inf, zero=True)
    check_positive("reg_lambda", reg_lambda)
    check_positive("kappa", kappa)
    _check_delta(delta)
    return max(1, math.ceil(max(67.0, 5.0 * n_inf) * math.log(4.0 * kappa / (reg_lambda * delta))))


def als_centers(n_eff: float, n_rows: int, *, delta: float = 0.1, T: float = 1.0) -> int:
    """Return the number of centers, drawn by approximate leverage scores, that the theorem of appendix B requires.

    The number is ``max(334, 78 T^2 N(lambda)) log(8 m / delta)``, rounded up, where m is the number of rows. Let kappa
    be the maximum of k(x, x), and ``t0 = 19 kappa log(2 m / delta) / m``. The theorem makes three assumptions, which
    this function does not check:

    - The approximate scores differ from the exact scores l_i(t) by a factor of at most T, for all t >= t0.
    - m is at least ``1655 kappa + 223 kappa log(2 kappa / delta)``.
    - Lambda is at least t0, and at most the norm of the covariance operator.

    The formula contains the effective dimension N, which is at most the maximal dimension N_inf in the formula of
    `plain_centers`. Its constants are larger than those in the formula of `plain_centers`.

    Parameters
    ----------
    n_eff : float
        Effective dimension N(lambda), from `effective_dimension`.
    n_rows : int
        Number of rows m.
    delta : float, default=0.1
        Probability of failure, between 0 and 1.
    T : float, default=1.0
        Accuracy of the approximate leverage scores, at least 1. Exact scores have T = 1.

    Examples
    --------
    >>> from hkrr.theory import als_centers
    >>> als_centers(10.0, 3000)
    9663
    """
    check_positive("n_eff", n_eff, zero=True)
    check_int("n_rows", n_rows, 1)
    _check_delta(delta)
    if check_positive("T", T) < 1.0:
        raise ValueError(f"T must be at least 1, got {T!r}")
    return math.ceil(max(334.0, 78.0 * T**2 * n_eff) * math.log(8.0 * n_rows / delta))


def rate(n_components: int, smoothness: float, source: float = 1.0) -> float:
    """Return the exponent ``theta r / (d + r)`` of the rate at which the excess risk decreases with the number of rows.

    By the first theorem of the paper, the excess risk is of order D d m^-e for every e below the returned exponent,
    where m is the number of rows and D the number of columns. The theorem assumes that the kernel on R^d, before the
    map is applied, is r times continuously differentiable. It also assumes a source condition: the target function lies
    in the range of the integral operator of the kernel to the power theta / 2, with theta in (0, 1].

    Parameters
    ----------
    n_components : int
        Number of directions, d.
    smoothness : float
        Smoothness r of the kernel. Use ``math.inf`` for infinitely smooth kernels such as the Gaussian.
    source : float, default=1.0
        Parameter theta of the source condition. With theta = 1, the target lies in the reproducing kernel
        Hilbert space.

    Examples
    --------
    >>> import math
    >>> from hkrr.theory import rate
    >>> rate(3, 3.0), rate(3, math.inf)
    (0.5, 1.0)
    """
    check_int("n_components", n_components, 1)
    _check_smoothness(smoothness)
    if check_positive("source", source) > 1.0:
        raise ValueError(f"source must be above 0 and at most 1, got {source!r}")
    return source / (1.0 + n_components / smoothness)


def rate_for_all_m(n_components: int, smoothness: float, source: float = 1.0) -> float:
    """Return the exponent ``theta r / ((1 + theta) (d + r))`` of a bound on the excess risk that holds for every m.

    The bound decreases like m^-e, where m is the number of rows and e is the returned exponent. The exponent that
    `rate` returns is larger, but describes the decrease for large m only. The parameters are the same as in `rate`.

    Examples
    --------
    >>> from hkrr.theory import rate_for_all_m
    >>> rate_for_all_m(3, 3.0)
    0.25
    """
    return rate(n_components, smoothness, source) / (1.0 + source)


def minimax_rate(n_features: int, smoothness: float) -> float:
    """Return the exponent ``2 r / (2 r + D)`` of the minimax rate for r times differentiable functions of D inputs.

    No method can guarantee that the excess risk for all these functions decreases faster than m^-e, where m is the
    number of rows and e is the returned exponent.

    Parameters
    ----------
    n_features : int
        Number of inputs, D.
    smoothness : float
        Smoothness r of the function. ``math.inf`` is allowed.

    Examples
    --------
    >>> from hkrr.theory import minimax_rate
    >>> minimax_rate(6, 3.0)
    0.5
    """
    check_int("n_features", n_features, 1)
    _check_smoothness(smoothness)
    return 1.0 / (1.0 + n_features / (2.0 * smoothness))


def _kernel_matrix(K: Any) -> Array:
    try:
        K = np.asarray(K, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError("K must be a square matrix of numbers") from None
    if K.ndim != 2 or K.shape[0] != K.shape[1] or K.size == 0 or not np.all(np.isfinite(K)):
        raise ValueError(f"K must be a square matrix of finite numbers, got shape {K.shape}")
    if not np.allclose(K, K.T, rtol=0.0, atol=1e-6 * np.max(np.abs(K))):
        raise ValueError("K must be symmetric")
    return K


def _check_smoothness(smoothness: float) -> None:
    # Infinity is allowed.
    if not (isinstance(smoothness, numbers.Real) and smoothness > 0):
        raise ValueError(f"smoothness must be positive, got {smoothness!r}")


def _check_delta(delta: float) -> None:
    if not (isinstance(delta, numbers.Real) and 0.0 < delta < 1.0):
        raise ValueError(f"delta must be between 0 and 1, got {delta!r}")
