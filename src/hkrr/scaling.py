"""The coordinates of the optimisation: columns of mean zero and unit variance, without a copy of X.

A linear map absorbs a scaling of the columns exactly, so this changes no function that can be learned, only where the
optimisation starts and how it is conditioned: raw units no longer decide.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hkrr._arrays import EPS, Array
from hkrr.exceptions import FitError
from hkrr.rows import Rows


@dataclass(frozen=True)
class Moments:
    """Weighted means of the columns of X and y, standard deviations of those of X, and which of them are constant."""

    x_mean: Array
    x_scale: Array  # 1 for a constant column
    constant: Array
    y_mean: Array


def moments(rows: Rows) -> Moments:
    """Return the weighted moments, in two passes so that a large mean costs no digits."""

    def means(X: Array, Y: Array, w: Array | None) -> tuple[Array, Array]:
        return (X.sum(axis=0), Y.sum(axis=0)) if w is None else (w @ X, w @ Y)

    x_sum, y_sum = rows.sum(means)
    x_mean = x_sum / rows.total_weight

    def squares(X: Array, Y: Array, w: Array | None) -> tuple[Array]:
        centred = X - x_mean
        centred *= centred
        return (centred.sum(axis=0) if w is None else w @ centred,)

    variance = rows.sum(squares)[0] / rows.total_weight
    y_mean = y_sum / rows.total_weight
    if not (np.all(np.isfinite(variance)) and np.all(np.isfinite(y_mean))):
        raise FitError("X or y is too large to square: divide the columns by their size first")
    # What the sums of n rounded terms can leave of a constant column is no deviation: the bound of scikit-learn's
    # StandardScaler. Such a column stays as it is.
    rounding = rows.n_rows * EPS
    constant = variance <= rounding * variance + (rounding * x_mean) ** 2
    variance[constant] = 1.0
    return Moments(x_mean, np.sqrt(variance), constant, y_mean)
