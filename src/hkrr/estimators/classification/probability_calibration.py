"""From scores to probabilities: two links, and their few parameters by maximum likelihood on scores of rows left out.

    squared     p_k ~ psi((u_k) / s),  psi the identity between 0 and 1 with soft ends: the average of a logistic curve,
                psi(u) = integral over t in [0, 1] of sigmoid((u - t) / s); for two classes p_0 + p_1 = 1 by itself
    logistic    p_k ~ exp(u_k)

with u = slope * score + offset, one offset for each class. The first has Platt's sigmoid as its limit for a large
softness s, and the scores themselves for a small one: a regression on codes estimates probabilities already, but for
what it shrinks, and what goes beyond 0 and 1. Targets are smoothed as Platt's (1999): a class of N_k rows counts as if
one more row of it had been seen there, and one more of the others, which share it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, log_softmax

from hkrr._arrays import Array

# Probabilities are never nearer to zero: scores far outside mean that nothing like it was seen, not that it is sure.
LEAST = 1e-9
_SLOPES, _SOFTNESSES = (0.02, 50.0), (0.02, 10.0)
_STARTS = (0.05, 0.3, 2.0)  # of the softness, in which the likelihood has more than one maximum


@dataclass(frozen=True)
class Calibration:
    """Slope, offsets of the K classes, and the softness; None: the logistic link."""

    slope: float
    offsets: Array
    softness: float | None

    def linear(self, scores: Array) -> Array:
        """Return u."""
        return self.slope * scores + self.offsets


@np.errstate(over="ignore")  # of scores in units of a small softness: they are as good as infinite
def probabilities(u: Array, softness: float | None) -> Array:
    """Return the probabilities of the classes, rows that sum to one, from u of K columns."""
    p = np.maximum(np.exp(log_softmax(u, axis=1)) if softness is None else _psi(u, softness)[0], LEAST)
    return p / np.sum(p, axis=1, keepdims=True)


def slopes_of_probabilities(u: Array, softness: float | None) -> Array:
    """Return dp_k / du_j, (n, K, K): ``psi'(u_j) (delta_jk - p_k) / sum psi``, or ``p_j (delta_jk - p_k)``."""
    p = probabilities(u, softness)
    part = p
    if softness is not None:
        psi, slope, _ = _psi(u, softness)
        part = slope / np.sum(np.maximum(psi, LEAST), axis=1, keepdims=True)
    return part[:, None, :] * (np.eye(u.shape[1]) - p[:, :, None])


def of_all_classes(scores: Array, soft: bool) -> Array:
    """Return u of all classes from scores (n, T); the one of two classes stands for both.

    They are (1 - f) / 2 and (1 + f) / 2 for the link with soft ends, and -f / 2 and f / 2 for the logistic one.
    """
    if scores.shape[1] > 1:
        return scores
    return np.hstack([-scores / 2, scores / 2]) + (0.5 if soft else 0.0)


def calibrate(scores: Array, codes: Array, weight: Array, soft: bool) -> Calibration:
    """Return the calibration of scores of rows held out.

    Parameters
    ----------
    scores, codes : arrays (n, K)
        The codes are 1 in the column of a row's class, and 0 elsewhere.
    weight : array (n,)
        In units of rows.
    soft : bool
        Whether by the link with soft ends, for scores between 0 and 1, or by the logistic one.
    """
    K = codes.shape[1]
    counts = weight @ codes
    smooth = (codes * (counts + 1.0) + (1.0 - codes) / (K - 1.0)) / (codes @ (counts + 2.0))[:, None]
    # Where slopes turn the scores: for those of codes 1/K, which stands for no knowledge.
    middle = 1.0 / K if soft else 0.0
    centred, total = scores - middle, float(np.sum(weight))

    def value_and_gradient(theta: Array) -> tuple[float, Array]:
        slope, offsets = math.exp(theta[0]), theta[1 : K + 1] - np.mean(theta[1 : K + 1])
        u = middle + slope * centred + offsets
        if not soft:
            log_p = log_softmax(u, axis=1)
            value, by_u, by_s = -np.sum(weight[:, None] * smooth * log_p), np.exp(log_p) - smooth, 0.0
        else:
            s = math.exp(theta[K + 1])
            psi, slope_of_psi, in_s = _psi(u, s)
            psi = np.maximum(psi, LEAST)
            sums = np.sum(psi, axis=1, keepdims=True)
            value = -np.sum(weight[:, None] * smooth * np.log(psi / sums))
            by_psi = 1.0 / sums - smooth / psi
            by_u, by_s = by_psi * slope_of_psi, s * np.sum(weight[:, None] * by_psi * in_s)
        by_u = weight[:, None] * by_u
        by_offsets = np.sum(by_u, axis=0)
        by_offsets -= np.mean(by_offsets)
        by_theta = [slope * np.sum(by_u * centred), *by_offsets, *([by_s] if soft else [])]
        return value / total, np.array(by_theta) / total

    bounds = [tuple(map(math.log, _SLOPES)), *[(-50.0, 50.0)] * K, *[tuple(map(math.log, _SOFTNESSES))] * soft]
    options = {"maxiter": 500, "ftol": 1e-14, "gtol": 1e-9}
    ends = [
        minimize(value_and_gradient, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        for start in ([np.append(np.zeros(K + 1), math.log(s)) for s in _STARTS] if soft else [np.zeros(K + 1)])
    ]
    theta = min(ends, key=lambda end: float(end.fun)).x
    slope, offsets = math.exp(theta[0]), theta[1 : K + 1] - np.mean(theta[1 : K + 1])
    return Calibration(slope, offsets + (1.0 - slope) * middle, math.exp(theta[K + 1]) if soft else None)


def _psi(u: Array, s: float) -> tuple[Array, Array, Array]:
    """Return psi, and its derivatives in u and s.

    ``psi = s log((1 + e^(u/s)) / (1 + e^((u-1)/s)))``, above 1/2 as ``1 - psi(1 - u)``: nothing large cancels.
    """
    low = np.minimum(u, 1.0 - u)
    part = s * (np.logaddexp(0.0, low / s) - np.logaddexp(0.0, (low - 1.0) / s))
    left, right = expit(low / s), expit((low - 1.0) / s)
    in_s = (part + (low - 1.0) * right - low * left) / s
    above = u > 0.5
    return np.where(above, 1.0 - part, part), left - right, np.where(above, -in_s, in_s)
