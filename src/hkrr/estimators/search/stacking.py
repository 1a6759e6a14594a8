"""Weights of an ensemble of candidates, from leave-one-out predictions and a penalty for the parameters of the maps.

Let f_k be the leave-one-out predictions of candidate k at n rows, and p_k the number of parameters of its map. The
weights minimize

    ``|y - sum_k w_k f_k|^2 / n  +  c s^2 sum_k w_k p_k / n``    over w >= 0,

where s^2 is the smallest mean squared error of a single candidate. The leave-one-out predictions are computed at a
fixed map, which was learned from all rows. They are therefore too accurate, above all for maps with many parameters.
The second term corrects for this, as in Mallows' criterion. In Mallows' criterion for a linear model, c is 2.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import nnls

from hkrr._base.linear_algebra import Array, jittered_cholesky

# The constant c of the module docstring.
PRICE = 6.0
# Candidates with weights below this number are left out, and the weights of the other candidates are computed again.
_LEAST_WEIGHT = 0.01


def stacking_weights(predictions: Sequence[Array], Y: Array, row_weight: Array, n_parameters: Array) -> Array:
    """Return the weights of the candidates. Each target is divided by its standard deviation.

    Parameters
    ----------
    predictions : sequence of arrays (n, n_targets)
        Leave-one-out predictions of each candidate, for centered targets.
    Y : array (n, n_targets)
        Centered targets.
    row_weight : array (n,)
        Weights of the rows.
    n_parameters : array (n_candidates,)
        Numbers of parameters of the maps.
    """
    size = np.sqrt(np.average(Y * Y, axis=0, weights=row_weight))
    scale = np.sqrt(row_weight / np.sum(row_weight))[:, None] / np.where(size > 0, size, np.inf)
    y, F = (scale * Y).ravel(), np.stack([(scale * one).ravel() for one in predictions], axis=1)
    least = float(np.min(np.sum((F - y[:, None]) ** 2, axis=0)))
    price = PRICE * least * np.asarray(n_parameters) / float(np.sum(row_weight))
    kept = np.arange(F.shape[1])
    while True:
        weights = np.zeros(F.shape[1])
        weights[kept] = _priced_least_squares(F[:, kept], y, price[kept])
        small = kept[weights[kept] < _LEAST_WEIGHT]
        if len(small) == 0 or len(small) == len(kept):
            return weights
        kept = np.setdiff1d(kept, small)


def _priced_least_squares(F: Array, y: Array, price: Array) -> Array:
    """Return the w >= 0 that minimizes ``|y - F w|^2 + price'w``, where price holds the penalties of the weights."""
    gram = F.T @ F
    if not np.any(gram):
        return np.zeros(F.shape[1])
    factor, _ = jittered_cholesky(gram, 1e-10 * float(np.max(gram.diagonal())))
    return nnls(factor.T, np.linalg.solve(factor, F.T @ y - price / 2.0))[0]
