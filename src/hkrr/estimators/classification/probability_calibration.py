"""Two links that map scores to probabilities. Their parameters are fitted by maximum likelihood to held-out scores.

The probability p_k of class k is proportional to a function of ``u_k = slope * score_k + offset_k``:

    soft link (squared loss)          psi(u_k),  psi(u) = integral over t in [0, 1] of sigmoid((u - t) / s)
    logistic link (logistic loss)     exp(u_k)

The soft link is meant for the outputs of a regression whose targets are class codes (the classes encoded as numbers).
These outputs already estimate probabilities, except that they are shrunk and can lie outside [0, 1]. The parameter s is
the softness. For a small s, psi(u) is u between 0 and 1, with smoothed ends. For a large s, psi approaches Platt's
sigmoid. For two classes, u_0 + u_1 = 1, and the values of psi sum to 1 without normalization.

The labels are smoothed as in Platt (1999). If class k has N_k rows, each of these rows has the target
(N_k + 1) / (N_k + 2) for class k. The remaining 1 / (N_k + 2) is divided equally among the other classes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, log_softmax

from hkrr._base.linear_algebra import Array

# Lower bound on probabilities. A very large score means that the row is unlike all training rows, and not that its
# class is certain.
MIN_PROBABILITY = 1e-9
# Bounds on the slope, and on the softness.
_SLOPE_BOUNDS, _SOFTNESS_BOUNDS = (0.02, 50.0), (0.02, 10.0)
# Initial values of the softness. Several values are tried, because the likelihood can have more than one maximum.
_SOFTNESS_STARTS = (0.05, 0.3, 2.0)


@dataclass(frozen=True)
class Calibration:
    """Slope, offsets of the K classes, and softness. The softness is None for the logistic link."""

    slope: float
    offsets: Array
    softness: float | None

    def linear(self, scores: Array) -> Array:
        """Return ``u = slope * scores + offsets``."""
        return self.slope * scores + self.offsets


# Scores divided by a small softness can overflow to infinity. This is harmless.
@np.errstate(over="ignore")
def probabilities(u: Array, softness: float | None) -> Array:
    """Return the probabilities of the K classes from the K columns of u. Each row sums to 1."""
    p = np.maximum(np.exp(log_softmax(u, axis=1)) if softness is None else _psi(u, softness)[0], MIN_PROBABILITY)
    return p / np.sum(p, axis=1, keepdims=True)


def probability_jacobian(u: Array, softness: float | None) -> Array:
    """Return dp_k / du_j, shape (n, K, K).

    The derivative is ``psi'(u_j) (delta_jk - p_k) / sum_i psi(u_i)`` for the soft link, and ``p_j (delta_jk - p_k)``
    for the logistic link.
    """
    p = probabilities(u, softness)
    factor = p
    if softness is not None:
        psi, slope, _ = _psi(u, softness)
        factor = slope / np.sum(np.maximum(psi, MIN_PROBABILITY), axis=1, keepdims=True)
    return factor[:, None, :] * (np.eye(u.shape[1]) - p[:, :, None])


def expand_scores(scores: Array, soft: bool) -> Array:
    """Return one column of scores for each class. The single score f of two classes is expanded to two columns.

    The columns are (1 - f) / 2 and (1 + f) / 2 for the soft link, and -f / 2 and f / 2 for the logistic link.
    """
    if scores.shape[1] > 1:
        return scores
    return np.hstack([-scores / 2, scores / 2]) + (0.5 if soft else 0.0)


def calibrate(scores: Array, codes: Array, weight: Array, soft: bool) -> Calibration:
    """Return the calibration that is fitted to the scores of held-out rows.

    `codes` are the one-hot codes of the labels, of the same shape (n, K) as the scores. A row of weight 2 has the same
    effect as two identical rows of weight 1. If `soft` is True, the soft link is used, which is meant for scores
    between 0 and 1. Otherwise the logistic link is used.
    """
    K = codes.shape[1]
    counts = weight @ codes
    smoothed = (codes * (counts + 1.0) + (1.0 - codes) / (K - 1.0)) / (codes @ (counts + 2.0))[:, None]
    # The slope stretches the scores around the pivot. The pivot is a score that carries no information about the class:
    # 1/K for outputs of a regression, and 0 for logistic scores.
    pivot = 1.0 / K if soft else 0.0
    centered, total = scores - pivot, float(np.sum(weight))

    def value_and_gradient(theta: Array) -> tuple[float, Array]:
        slope, offsets = math.exp(theta[0]), theta[1 : K + 1] - np.mean(theta[1 : K + 1])
        u = pivot + slope * centered + offsets
        if not soft:
            log_p = log_softmax(u, axis=1)
            value, by_u, by_s = -np.sum(weight[:, None] * smoothed * log_p), np.exp(log_p) - smoothed, 0.0
        else:
            s = math.exp(theta[K + 1])
            psi, psi_by_u, psi_by_s = _psi(u, s)
            psi = np.maximum(psi, MIN_PROBABILITY)
            sums = np.sum(psi, axis=1, keepdims=True)
            value = -np.sum(weight[:, None] * smoothed * np.log(psi / sums))
            by_psi = 1.0 / sums - smoothed / psi
            by_u, by_s = by_psi * psi_by_u, s * np.sum(weight[:, None] * by_psi * psi_by_s)
        by_u = weight[:, None] * by_u
        by_offsets = np.sum(by_u, axis=0)
        by_offsets -= np.mean(by_offsets)
        by_theta = [slope * np.sum(by_u * centered), *by_offsets, *([by_s] if soft else [])]
        return value / total, np.array(by_theta) / total

    log_slopes, log_softnesses = (tuple(map(math.log, bounds)) for bounds in (_SLOPE_BOUNDS, _SOFTNESS_BOUNDS))
    bounds = [log_slopes, *[(-50.0, 50.0)] * K, *[log_softnesses] * soft]
    options = {"maxiter": 500, "ftol": 1e-14, "gtol": 1e-9}
    starts = [np.append(np.zeros(K + 1), math.log(s)) for s in _SOFTNESS_STARTS] if soft else [np.zeros(K + 1)]
    results = [
        minimize(value_and_gradient, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        for start in starts
    ]
    theta = min(results, key=lambda result: float(result.fun)).x
    slope, offsets = math.exp(theta[0]), theta[1 : K + 1] - np.mean(theta[1 : K + 1])
    return Calibration(slope, offsets + (1.0 - slope) * pivot, math.exp(theta[K + 1]) if soft else None)


def _psi(u: Array, s: float) -> tuple[Array, Array, Array]:
    """Return psi, and its derivatives with respect to u and s.

    The integral is ``psi = s log((1 + e^(u/s)) / (1 + e^((u-1)/s)))``. For u > 1/2, psi is computed as
    ``1 - psi(1 - u)``, which avoids the cancellation of large numbers.
    """
    low = np.minimum(u, 1.0 - u)
    part = s * (np.logaddexp(0.0, low / s) - np.logaddexp(0.0, (low - 1.0) / s))
    left, right = expit(low / s), expit((low - 1.0) / s)
    by_s = (part + (low - 1.0) * right - low * left) / s
    above = u > 0.5
    return np.where(above, 1.0 - part, part), left - right, np.where(above, -by_s, by_s)
