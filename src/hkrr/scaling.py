"""The coordinates of the optimisation: columns of mean zero and unit variance, without a copy of X.

A linear map absorbs a scaling of the columns exactly, so this changes no function that can be learned, only where the
optimisation starts and how it is conditioned: raw units no longer decide.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hkrr._arrays import EPS, Array
from hkrr.rows import Rows


@dataclass(frozen=True)
class Moments:
    """Weighted means of the columns of X and y, and standard deviations of those of X (1 for a constant column)."""

    x_mean: Array
    x_scale: Array
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

    x_scale = np.sqrt(rows.sum(squares)[0] / rows.total_weight)
    # Below rounding of the mean a deviation is not one: such a column is constant, and stays as it is.
    x_scale[x_scale <= 10.0 * EPS * np.abs(x_mean)] = 1.0
    return Moments(x_mean, x_scale, y_sum / rows.total_weight)
