"""What the paper's theorems are about: leverage scores, effective dimensions, numbers of centers, rates.

With K the m x m kernel matrix at a map B, and t > 0,

    ``l_i(t) = (K (K + t m I)^-1)_ii``         leverage scores (appendix B),
    ``N(t) = sum_i l_i(t)``                    effective dimension,
    ``N_inf(t) = m max_i l_i(t)``              its largest part,

the last two for the empirical distribution of the rows: ``N_x(t) = <k_x, (Sigma + t)^-1 k_x>`` is m l_i(t) at row i.
The theorems take the population's Sigma and the supremum over all inputs: numbers of centers from these are estimates.
Approximate scores, for more rows than K could be formed for, are in `hkrr.centers`.
"""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np
from scipy.linalg import cho_solve

from hkrr._arrays import Array, jittered_cholesky
from hkrr._validation import check_int, check_positive

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
    """Return ``l_i(t) = (K (K + t m I)^-1)_ii``, each between 0 and 1.

    Parameters
    ----------
    K : array (m, m)
        A kernel matrix.
    t : float
        Lambda, or another scale to look at.

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
    # Not I - t m (K + t m)^-1, which cancels where t is large.
    hat = cho_solve((factor, True), K, check_finite=False)
    return np.clip(hat.diagonal(), 0.0, 1.0)


def effective_dimension(K: Any, t: float) -> float:
    """Return ``N(t) = tr K (K + t m I)^-1``: how many degrees of freedom a fit with lambda = t has.

    Examples
    --------
    >>> import numpy as np
    >>> from hkrr.theory import effective_dimension
    >>> round(effective_dimension(np.eye(4), 0.25), 6)
    2.0
    """
    return float(np.sum(leverage_scores(K, t)))


def maximal_dimension(K: Any, t: float) -> float:
    """Return ``N_inf(t) = m max_i l_i(t)``; at least N(t), at most kappa / t.

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
    """Return how many centers, drawn uniformly, the Nystrom theorem asks for.

    ``max(67, 5 N_inf(lambda)) log(4 kappa / (lambda delta))``: then with probability 1 - delta the rate is that of all
    rows (and at least one, where lambda is so large that the logarithm is negative).

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
    """Return how many centers, drawn by T-approximate leverage scores, the theorem of appendix B asks for.

    ``max(334, 78 T^2 N(lambda)) log(8 m / delta)``. It asks for many rows too, ``m >= 1655 kappa + 223 kappa
    log(2 kappa / delta)``, and for a lambda of at least ``19 kappa log(2 m / delta) / m``, the t0 of the scores, and at
    most the norm of the covariance operator. N is at most N_inf; the constants are larger than in `plain_centers`.

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
    """Return the exponent of the excess risk, ``theta r / (d + r)``: it falls as m to minus that (the first theorem).

    For a mother kernel in C^r and a target in the range of the integral operator to the power theta / 2, theta in
    (0, 1]; any exponent below it is reached, with a factor D d that does not depend on m. A kernel that is smooth
    without end (the Gaussian) has ``smoothness=math.inf``.

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
    """Return the exponent that holds for every m, ``r theta / ((1 + theta) (d + r))``.

    Examples
    --------
    >>> from hkrr.theory import rate_for_all_m
    >>> rate_for_all_m(3, 3.0)
    0.25
    """
    return rate(n_components, smoothness, source) / (1.0 + source)


def minimax_rate(n_features: int, smoothness: float) -> float:
    """Return ``2 r / (2 r + D)``, the best that is possible for all r-smooth functions of D inputs.

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
    if not (isinstance(smoothness, numbers.Real) and smoothness > 0):  # infinity is smooth, and allowed
        raise ValueError(f"smoothness must be positive, got {smoothness!r}")


def _check_delta(delta: float) -> None:
    if not (isinstance(delta, numbers.Real) and 0.0 < delta < 1.0):
        raise ValueError(f"delta must be between 0 and 1, got {delta!r}")
