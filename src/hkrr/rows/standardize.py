"""Standardized coordinates for the optimization: columns of mean zero and unit variance, without a copy of X.

The learned linear map can undo any scaling of the columns exactly. Standardization therefore does not change which
functions can be learned. It makes the starting point and the conditioning of the optimization independent of the units
of the columns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from hkrr._base.linear_algebra import EPS, Array
from hkrr._base.resume_journal import step
from hkrr.exceptions import FitError
from hkrr.rows import Rows
from hkrr.rows.column_transform import ColumnTransform

# `_rounded` does not round values whose scale is at most this number, because the rounding unit could be subnormal.
_SMALLEST = 2.0**-900
# A column is treated as constant if its standard deviation is at most this number times the absolute value of its mean.
_LAST_DIGITS = 4.0 * EPS


@dataclass(frozen=True)
class Moments:
    """Weighted means and standard deviations of the columns."""

    x_mean: Array
    x_scale: Array  # standard deviations of the columns of X; 1 for constant columns
    constant: Array  # boolean mask of the columns of X that are constant up to rounding
    y_mean: Array
    # A transform of the columns before they are standardized. None means no transform.
    transform: ColumnTransform | None = None

    def coordinates(self, points: Array) -> Array:
        """Return points in standardized coordinates. Constant columns become zero."""
        points = points if self.transform is None else self.transform(points)
        return np.where(self.constant, 0.0, (points - self.x_mean) / self.x_scale)

    def shifted(self, y_offset: Array | None) -> Moments:
        """Return the moments with `y_offset` added to the mean of y, or unchanged if `y_offset` is None."""
        return self if y_offset is None else replace(self, y_mean=self.y_mean + y_offset)

    def transformed(self, transform: ColumnTransform | None) -> Moments:
        """Return the moments for transformed columns, which need no standardization, or unchanged moments."""
        if transform is None:
            return self
        ones = np.ones_like(self.x_mean)
        return replace(self, x_mean=0.0 * ones, x_scale=ones, transform=transform)

    def original(self, points: Array) -> Array:
        """Return points in the units of X (after the transform, if any), given their standardized coordinates."""
        return points * self.x_scale + self.x_mean


def standardize(rows: Rows, *, scale_features: bool, fit_intercept: bool) -> tuple[Rows, Moments]:
    """Return the rows in standardized coordinates, and the moments that define these coordinates.

    The columns of X keep their original units if `scale_features` is False. The targets are centered if `fit_intercept`
    is True.
    """
    # The moments are recorded in the journal of the checkpoint (`hkrr._base.resume_journal`). If a resumed fit computed
    # them again with a different block size, they could differ by rounding errors. The fit would then not find its
    # recorded results, whose keys depend on the moments.
    found = step(("moments", rows.n_rows), lambda: moments(rows))
    if not scale_features:
        zero = np.zeros_like(found.x_mean)
        found = replace(found, x_mean=zero, x_scale=zero + 1.0, constant=np.zeros_like(found.constant))
    if not fit_intercept:
        found = replace(found, y_mean=np.zeros_like(found.y_mean))
    x_offset, x_scale = (None, None)
    if scale_features:
        # An infinite scale sets constant columns to zero.
        x_offset, x_scale = found.x_mean, np.where(found.constant, np.inf, found.x_scale)
    return rows.with_coordinates(x_offset, x_scale, found.y_mean if fit_intercept else None), found


def moments(rows: Rows) -> Moments:
    """Return the weighted means and standard deviations of the columns.

    They are computed in two passes over the rows, because a single pass would lose precision if the means are large.
    """

    def means(X: Array, Y: Array, w: Array | None) -> tuple[Array, Array]:
        return (X.sum(axis=0), Y.sum(axis=0)) if w is None else (w @ X, w @ Y)

    x_sum, y_sum = rows.fetch(*rows.sum(means))
    x_mean, y_mean = x_sum / rows.total_weight, y_sum / rows.total_weight
    # Select a row with positive weight as a reference for detecting constant columns. If all weights are positive, the
    # first row is used, because reaching a random row of a file would mean reading half of the file on average.
    one = np.zeros(1, dtype=int) if rows.n_counted == rows.n_rows else rows.draw(1, np.random.RandomState(0))
    first_x, first_y, _ = rows.subset(one).gather()

    def squares(
        X: Array, Y: Array, w: Array | None, x_mean: Array, y_mean: Array, first_x: Array, first_y: Array
    ) -> tuple[Array, ...]:
        centered, deviations = X - x_mean, Y - y_mean
        with np.errstate(over="ignore"):  # an overflow raises a FitError below
            centered *= centered
            deviations *= deviations
        x_differs, y_differs = first_x != X, first_y != Y
        if w is None:
            return centered.sum(axis=0), deviations.sum(axis=0), x_differs.sum(axis=0), y_differs.sum(axis=0)
        counts = (w > 0)[:, None]
        return w @ centered, w @ deviations, (x_differs & counts).sum(axis=0), (y_differs & counts).sum(axis=0)

    small = (rows.place(array) for array in (x_mean, y_mean, first_x[0], first_y[0]))
    *sums, x_differs, y_differs = rows.fetch(*rows.sum(squares, 1, *small))
    variance, y_variance = (part / rows.total_weight for part in sums)
    if not (np.all(np.isfinite(variance)) and np.all(np.isfinite(y_variance))):
        raise FitError("the squares of X or y overflow: divide the columns by their largest absolute values first")
    if np.any(y_differs > 0) and not np.any(y_variance > 0):
        raise FitError("the squares of y underflow to zero: multiply y by a large number first")
    # A column whose values differ only in their last digits is treated as constant: the differences are rounding errors
    # and carry no information about new rows. A column whose squared deviations underflow to zero is treated as
    # constant too.
    constant = (x_differs == 0) | (variance <= (_LAST_DIGITS * x_mean) ** 2) | (variance == 0.0)
    variance[constant] = 1.0
    x_scale = _rounded(np.sqrt(variance), np.sqrt(variance))
    # For constant columns, use the value itself as the mean. The computed mean may have a rounding error, and the
    # difference between value and mean would then look like a signal.
    x_mean = np.where(x_differs == 0, first_x[0], _rounded(x_mean, np.where(constant, np.abs(x_mean), x_scale)))
    y_mean = np.where(y_differs == 0, first_y[0], _rounded(y_mean, np.sqrt(y_variance)))
    return Moments(x_mean, x_scale, constant, y_mean)


def _rounded(values: Array, scale: Array) -> Array:
    """Return the values rounded to multiples of about 2^-40 times the scale, which keeps twelve digits.

    The optimization does not need exact moments. Rounded moments do not depend on the order in which the rows were
    summed, except for values halfway between two multiples. Fits with threads, files, GPUs and clusters therefore
    use bitwise equal standardized coordinates.
    """
    scale = np.where(scale > 0, scale, np.abs(values))
    unit = np.ldexp(1.0, np.frexp(np.maximum(scale, _SMALLEST))[1] - 40)
    return np.where(scale > _SMALLEST, np.round(values / unit) * unit, values)
