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

_SMALLEST = 2.0**-900  # scale that values are rounded at: its units are no subnormal numbers
_LAST_DIGITS = 4.0 * EPS


@dataclass(frozen=True)
class Moments:
    """Weighted means of the columns of X and y, standard deviations of those of X, and which of them are constant."""

    x_mean: Array
    x_scale: Array  # 1 for a constant column
    constant: Array  # up to rounding
    y_mean: Array

    def coordinates(self, points: Array) -> Array:
        """Return points in the coordinates of the optimisation; constant columns are zero there."""
        return np.where(self.constant, 0.0, (points - self.x_mean) / self.x_scale)


def moments(rows: Rows) -> Moments:
    """Return the weighted moments, in two passes so that a large mean costs no digits."""

    def means(X: Array, Y: Array, w: Array | None) -> tuple[Array, Array]:
        return (X.sum(axis=0), Y.sum(axis=0)) if w is None else (w @ X, w @ Y)

    x_sum, y_sum = rows.fetch(*rows.sum(means))
    x_mean, y_mean = x_sum / rows.total_weight, y_sum / rows.total_weight
    # One that counts; the first where all do, since to look for another may be half a pass over a file.
    one = np.zeros(1, dtype=int) if rows.n_counted == rows.n_rows else rows.draw(1, np.random.RandomState(0))
    first_x, first_y, _ = rows.subset(one).gather()

    def squares(
        X: Array, Y: Array, w: Array | None, x_mean: Array, y_mean: Array, first_x: Array, first_y: Array
    ) -> tuple[Array, ...]:
        centred, deviations = X - x_mean, Y - y_mean
        with np.errstate(over="ignore"):  # told of below
            centred *= centred
            deviations *= deviations
        x_apart, y_apart = first_x != X, first_y != Y
        if w is None:
            return centred.sum(axis=0), deviations.sum(axis=0), x_apart.sum(axis=0), y_apart.sum(axis=0)
        counts = (w > 0)[:, None]
        return w @ centred, w @ deviations, (x_apart & counts).sum(axis=0), (y_apart & counts).sum(axis=0)

    small = (rows.place(array) for array in (x_mean, y_mean, first_x[0], first_y[0]))
    *sums, x_apart, y_apart = rows.fetch(*rows.sum(squares, 1, *small))
    variance, y_variance = (part / rows.total_weight for part in sums)
    if not (np.all(np.isfinite(variance)) and np.all(np.isfinite(y_variance))):
        raise FitError("X or y is too large to square: divide the columns by their size first")
    if np.any(y_apart > 0) and not np.any(y_variance > 0):
        raise FitError("y is too small to square: multiply it by a large number first")
    # Differences that are but the last digits of a column are no signal, and new rows would round elsewhere; and of
    # numbers whose squares vanish nothing is known.
    constant = (x_apart == 0) | (variance <= (_LAST_DIGITS * x_mean) ** 2) | (variance == 0.0)
    variance[constant] = 1.0
    x_scale = _coarse(np.sqrt(variance), np.sqrt(variance))
    # The mean of what is constant may be off by rounding, and what is left would look like a signal.
    x_mean = np.where(x_apart == 0, first_x[0], _coarse(x_mean, np.where(constant, np.abs(x_mean), x_scale)))
    y_mean = np.where(y_apart == 0, first_y[0], _coarse(y_mean, np.sqrt(y_variance)))
    return Moments(x_mean, x_scale, constant, y_mean)


def _coarse(values: Array, scale: Array) -> Array:
    """Return the values to 2^-40 (twelve digits) of a scale.

    Any offset and scale near the moments will do; these are the same to the last bit (but for some right between two)
    whatever the order the rows were summed in, and so is all that follows from them: threads, files, devices and
    clusters start from the same place.
    """
    scale = np.where(scale > 0, scale, np.abs(values))
    unit = np.ldexp(1.0, np.frexp(np.maximum(scale, _SMALLEST))[1] - 40)
    return np.where(scale > _SMALLEST, np.round(values / unit) * unit, values)
