"""A monotone transform of the columns, learned from their ranks.

Kernels measure distances, so a few very large values in a column, or a column with values on two scales, can make all
other differences in this column negligible. Trees have no such problem, because they depend only on the order of the
values. A model on normal scores (the ranks of the values, as quantiles of the normal distribution) depends only on the
order, too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from hkrr._base.linear_algebra import Array, array_namespace

# Number of knots of the transform of a column.
_KNOTS = 256
# Columns with at most this number of distinct values are only standardized.
_FEW_VALUES = 10
# Largest normal score.
_MOST = 3.0


@dataclass(frozen=True)
class ColumnTransform:
    """A monotone, piecewise linear function for each column.

    Attributes
    ----------
    knots : array (n_features, n_knots)
        Points between which the function of a column is linear, in increasing order.
    values : array (n_features, n_knots)
        Values of the function at the knots.
    ranked : array of bool (n_features,)
        Whether a column is transformed to normal scores. Values outside the range of the knots are clipped. All other
        columns are only standardized, and their values are not clipped.

    Examples
    --------
    >>> import numpy as np
    >>> from hkrr.rows.column_transform import ColumnTransform
    >>> X = np.exp(np.arange(101.0))[:, None]
    >>> transform = ColumnTransform.to_normal_scores(X, np.mean(X, axis=0), np.std(X, axis=0))
    >>> transform(X[[0, 25, 50, 75, 100]])[:, 0].round(2)
    array([-2.58, -0.67,  0.  ,  0.67,  2.58])
    """

    knots: Array
    values: Array
    ranked: Array

    @classmethod
    def to_normal_scores(cls, X: Array, center: Array, scale: Array) -> ColumnTransform:
        """Return the transform of the columns of X to normal scores.

        Columns with few values are only standardized, with the given centers and scales.
        """
        D = X.shape[1]
        # A column that is only standardized has the knots -1, 0, 1, ... in standardized units.
        units = np.arange(_KNOTS) - 1.0
        knots, values = center[:, None] + units * scale[:, None], np.tile(units, (D, 1))
        ranked = np.zeros(D, dtype=bool)
        for j in range(D):
            found, counts = np.unique(X[:, j].astype(np.float64), return_counts=True)
            if len(found) <= _FEW_VALUES:
                continue
            ranks = (np.cumsum(counts) - counts / 2) / len(X)
            some = np.searchsorted(ranks, np.linspace(ranks[0], ranks[-1], _KNOTS))
            some = np.unique(np.clip(some, 0, len(found) - 1))
            # The arrays of all columns have the same length, so the last knot is repeated.
            padded = np.append(some, np.full(_KNOTS - len(some), some[-1]))
            knots[j], values[j] = found[padded], np.clip(ndtri(ranks[padded]), -_MOST, _MOST)
            ranked[j] = True
        return cls(knots, values, ranked)

    @property
    def arrays(self) -> tuple[Array, Array, Array, Array]:
        """The arguments of `interpolate` after the first: knots, values, and the range of each column."""
        return self.knots, self.values, *self._range(self.knots)

    def _range(self, points: Array) -> tuple[Array, Array]:
        """Return the first and the last of the points of each column, or infinite numbers if it is not ranked."""
        lowest, highest = points[:, 0], points[:, -1]
        return np.where(self.ranked, lowest, -np.inf), np.where(self.ranked, highest, np.inf)

    def __call__(self, X: Array) -> Array:
        """Return the transformed columns."""
        return interpolate(np.asarray(X, dtype=np.float64), *self.arrays)

    def inverse(self, T: Array) -> Array:
        """Return points whose transformed columns are T. Values of T outside the range of the knots are clipped."""
        return interpolate(np.asarray(T, dtype=np.float64), self.values, self.knots, *self._range(self.values))


def interpolate(X: Array, knots: Array, values: Array, lowest: Array, highest: Array) -> Array:
    """Return the piecewise linear functions of the columns of X.

    `knots` and `values` are those of `ColumnTransform`. Values of X outside the range from `lowest` to `highest` are
    clipped. All arrays are NumPy arrays, or tensors on the same device.
    """
    xp = array_namespace(X)
    columns = []
    for j in range(X.shape[1]):
        x, k, v = xp.minimum(xp.maximum(X[:, j], lowest[j]), highest[j]), knots[j], values[j]
        right = xp.clip(xp.searchsorted(k, x), min=1, max=len(k) - 1)
        start, width = xp.take(k, right - 1), xp.take(k, right) - xp.take(k, right - 1)
        low, high = xp.take(v, right - 1), xp.take(v, right)
        columns.append(low + (high - low) * ((x - start) / xp.where(width > 0, width, 1.0)))
    return xp.stack(columns, axis=1)
