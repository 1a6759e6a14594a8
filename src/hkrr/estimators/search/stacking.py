"""Weights of an ensemble of candidates, from leave-one-out predictions and a penalty for the parameters of the maps.

Let y be the vector of the targets of n rows, f_k the leave-one-out predictions of candidate k at these rows, and p_k
the number of parameters of the map of candidate k. The weights w_k minimize

    ``|y - sum_k w_k f_k|^2 / n  +  c s^2 sum_k w_k p_k / n  +  s^2 (1 - sum_k w_k)^2 / (n t^2)``    over w >= 0,

where s^2 is the smallest mean squared error of a single candidate, or the error of predicting zero if it is smaller.
The leave-one-out predictions are computed at a fixed map, which was learned from all rows. They are therefore too
accurate, above all for maps with many parameters. The second term corrects for this, as in Mallows' criterion. In
Mallows' criterion for a linear model, c is 2. The last term is the prior that the sum of the weights is close to 1,
with the standard deviation t = 0.2. It matters only if the signal is weak: the data then hardly determine the sum of
the weights, and without the prior the sum would often be far too small.

If there are few rows, the second term is not an accurate correction for maps with many parameters. Their f_k are then
predictions of models that were learned on other rows (cross-fitting), which are not too accurate. The constant c is
smaller for these candidates. It is not zero, because the weights overfit too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from hkrr._base.linear_algebra import Array, jittered_cholesky

# Two values of the constant c of the module docstring: with leave-one-out predictions, and with cross-fitting.
PRICE, CROSS_FIT_PRICE = 3.0, 1.0
# The standard deviation t of the module docstring.
_SPREAD_OF_SUM = 0.2
# Candidates with weights below this number are left out, and the weights of the other candidates are computed again.
_LEAST_WEIGHT = 0.01


def stacking_weights(
    predictions: Sequence[Array], Y: Array, row_weight: Array, n_parameters: Array, price: float = PRICE
) -> Array:
    """Return the weights of the candidates, as defined in the docstring of this module.

    The squared errors of several targets are added, after each target is divided by its standard deviation.

    Parameters
    ----------
    predictions : sequence of arrays (n, n_targets)
        Leave-one-out or cross-fitted predictions of each candidate, for centered targets.
    Y : array (n, n_targets)
        Centered targets.
    row_weight : array (n,)
        Weights of the rows.
    n_parameters : array (n_candidates,)
        The numbers p_k of parameters of the maps.
    price : float
        The constant c.
    """
    size = np.sqrt(np.average(Y * Y, axis=0, weights=row_weight))
    scale = np.sqrt(row_weight / np.sum(row_weight))[:, None] / np.where(size > 0, size, np.inf)
    y, F = (scale * Y).ravel(), np.stack([(scale * one).ravel() for one in predictions], axis=1)
    least = min(float(y @ y), *np.sum((F - y[:, None]) ** 2, axis=0).tolist())
    prices = price * least * np.asarray(n_parameters) / float(np.sum(row_weight))
    # The prior of the sum of the weights is one more row of the least squares problem.
    prior = math.sqrt(least / float(np.sum(row_weight))) / _SPREAD_OF_SUM
    y, F = np.append(y, prior), np.vstack([F, np.full(F.shape[1], prior)])
    kept = np.arange(F.shape[1])
    while True:
        weights = np.zeros(F.shape[1])
        weights[kept] = _priced_least_squares(F[:, kept], y, prices[kept])
        small = kept[weights[kept] < _LEAST_WEIGHT]
        if len(small) == 0 or len(small) == len(kept):
            return weights
        kept = np.setdiff1d(kept, small)


@dataclass(frozen=True)
class Stacking:
    """How the weights of an ensemble are computed.

    Attributes
    ----------
    weights : callable
        A function with the parameters of `stacking_weights`, which returns the weights.
    price, cross_fit_price : float
        The price of a parameter for leave-one-out predictions and for cross-fitting.
    nats_per_parameter : float
        The price of a parameter in nats.
    of_classes : bool
        Whether the targets are indicators of classes. Their noise has no heavy tails. An ensemble is made even if a map
        with few directions explains the indicators well.
    """

    weights: Callable[[Sequence[Array], Array, Array, Array, float], Array]
    price: float
    cross_fit_price: float
    nats_per_parameter: float
    of_classes: bool = False


# The weights of a regression. If the squared error increases by the least squared error s^2, the log density of the
# errors decreases by 1/2.
LEAST_SQUARES = Stacking(stacking_weights, PRICE, CROSS_FIT_PRICE, PRICE / 2.0)


def _priced_least_squares(F: Array, y: Array, price: Array) -> Array:
    """Return the w >= 0 that minimizes ``|y - F w|^2 + price'w``, where price holds the penalties of the weights."""
    gram = F.T @ F
    if not np.any(gram):
        return np.zeros(F.shape[1])
    factor, _ = jittered_cholesky(gram, 1e-10 * float(np.max(gram.diagonal())))
    return nnls(factor.T, np.linalg.solve(factor, F.T @ y - price / 2.0))[0]
