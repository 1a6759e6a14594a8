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
_KNOTS = 128
# Columns with at most this number of distinct values are only standardized.
_FEW_VALUES = 10
# Largest normal score.
_MOST = 3.0


@dataclass(frozen=True)
class ColumnTransform:
    """A monotone function for each column: piecewise linear for some columns, and linear for all others.

    Attributes
    ----------
    center, scale : array (n_features,)
        Values x of a linear column become ``(x - center) / scale``.
    ranked : array of int (n_ranked,)
        Indices of the columns that are transformed to normal scores, and of constant columns.
    knots, values : array (n_ranked, n_knots)
        For each of these columns, the points between which the function is linear, in increasing order, and the normal
        scores at these points. Values outside the range of the knots are clipped.

    Examples
    --------
    >>> import numpy as np
    >>> from hkrr.rows.column_transform import ColumnTransform
    >>> X = np.exp(np.arange(101.0))[:, None]
    >>> transform = ColumnTransform.to_normal_scores(X, np.mean(X, axis=0), np.std(X, axis=0))
    >>> transform(X[[0, 25, 50, 75, 100]])[:, 0].round(2)
    array([-2.58, -0.67,  0.  ,  0.67,  2.58])
    """

    center: Array
    scale: Array
    ranked: Array
    knots: Array
    values: Array

    @classmethod
    def to_normal_scores(cls, X: Array, center: Array, scale: Array, constant: Array | None = None) -> ColumnTransform:
        """Return the transform of the columns of X to normal scores.

        Columns with few values are only standardized, with the given centers and scales. The columns in the boolean
        mask `constant` become zero.
        """
        ranked, knots, values = [], [], []
        for j in range(X.shape[1]):
            found, counts = np.unique(X[:, j].astype(np.float64), return_counts=True)
            if constant is not None and constant[j]:
                found, counts = center[j : j + 1], np.array([len(X)])
            elif len(found) <= _FEW_VALUES:
                continue
            ranks = (np.cumsum(counts) - counts / 2) / len(X)
            some = np.arange(len(found))
            if len(found) > _KNOTS:
                some = np.searchsorted(ranks, np.linspace(ranks[0], ranks[-1], _KNOTS))
                some = np.unique(np.clip(some, 0, len(found) - 1))
            # The arrays of all columns have the same length, so the last knot is repeated.
            some = np.append(some, np.full(_KNOTS - len(some), some[-1]))
            ranked.append(j)
            knots.append(found[some])
            values.append(np.clip(ndtri(ranks[some]), -_MOST, _MOST))
        shape = (len(ranked), _KNOTS)
        tables = (np.reshape(np.array(each, dtype=np.float64), shape) for each in (knots, values))
        return cls(center, scale, np.array(ranked, dtype=np.int64), *tables)

    @property
    def n_scored(self) -> int:
        """The number of columns that are transformed to normal scores."""
        return int(np.count_nonzero(self.values[:, 0] < self.values[:, -1]))

    @property
    def arrays(self) -> tuple[Array, ...]:
        """The arguments of `transform_columns` after the first."""
        return self.center, self.scale, self.ranked, self.knots, self.values

    def __call__(self, X: Array) -> Array:
        """Return the transformed columns."""
        return transform_columns(np.asarray(X, dtype=np.float64), *self.arrays)

    def linearity(self, X: Array) -> Array:
        """Return the squared correlation between each column of X and the transformed column.

        It is 1 for columns that are not transformed to normal scores, and for constant columns.
        """
        found, T = np.ones(X.shape[1]), self(X)
        for k, j in enumerate(self.ranked):
            if self.values[k, 0] < self.values[k, -1]:
                x = X[:, j] - self.knots[k, 0]
                found[j] = np.corrcoef(x / np.max(np.abs(x)), T[:, j])[0, 1] ** 2
        return found

    def inverse(self, T: Array) -> Array:
        """Return points whose transformed columns are T. Values of T outside the range of the knots are clipped."""
        T = np.asarray(T, dtype=np.float64)
        X = self.center + T * self.scale
        for k, j in enumerate(self.ranked):
            X[:, j] = _interpolate(T[:, j], self.values[k], self.knots[k])
        return X


def transform_columns(X: Array, center: Array, scale: Array, ranked: Array, knots: Array, values: Array) -> Array:
    """Return the transformed columns of X. The other arguments are the attributes of `ColumnTransform`.

    All arrays are NumPy arrays, or tensors on the same device.
    """
    T = (X - center) / scale
    for k in range(len(ranked)):
        j = int(ranked[k])
        T[:, j] = _interpolate(X[:, j], knots[k], values[k])
    return T


def _interpolate(x: Array, knots: Array, values: Array) -> Array:
    """Return the piecewise linear function with the given values at the knots, which are in increasing order."""
    xp = array_namespace(x)
    x = xp.minimum(xp.maximum(x, knots[0]), knots[-1])
    right = xp.clip(xp.searchsorted(knots, x), min=1, max=len(knots) - 1)
    start, low = xp.take(knots, right - 1), xp.take(values, right - 1)
    width = xp.take(knots, right) - start
    share = (x - start) / xp.where(width > 0, width, 1.0)
    return low + (xp.take(values, right) - low) * share
