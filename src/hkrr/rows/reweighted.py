"""Rows whose weights are multiplied by factors that are computed block by block, such as functions of the residuals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hkrr._base.linear_algebra import Array
from hkrr.rows.base import BlockFunction, Rows
from hkrr.rows.column_transform import ColumnTransform
from hkrr.rows.in_memory import InMemoryRows

# Function of X, Y and small arrays. For a block of n rows, it returns an array (n,) of factors, which multiply the
# weights of the rows.
Factors = Callable[..., Array]


class ReweightedRows(Rows):
    """Rows of any source, with their weights multiplied by given factors and rescaled to the same total weight.

    ``factors(X, Y, *small)`` returns an array (n,) with the factors for a block of n rows. The small arrays are sent to
    the device, as in `Rows.sum`. `width` is the number of columns of the largest array that `factors` computes. The
    offsets and scales of the rows must already be set, because the factors depend on them. If `center` is True, the
    targets are centered at their new weighted mean `y_mean`. Otherwise `y_mean` is zero.
    """

    def __init__(self, rows: Rows, factors: Factors, width: int, small: tuple[Array, ...], *, center: bool) -> None:
        self._rows, self._factors, self._width, self._small = rows, factors, width, small
        self._scale, self.y_mean = 1.0, np.zeros(rows.n_targets)
        self.n_rows, self.n_counted, self.n_features = rows.n_rows, rows.n_counted, rows.n_features
        self.n_free_columns, self.n_targets, self.n_threads = rows.n_free_columns, rows.n_targets, rows.n_threads
        self.total_weight, self.pays_to_batch = rows.total_weight, rows.pays_to_batch
        weight, targets = self.fetch(*self.sum(_sums))
        if center:
            self.y_mean = targets / weight
        self._scale = self.total_weight / float(weight)

    def sum(self, fn: BlockFunction, width: int = 1, *small: Array) -> tuple[Any, ...]:
        return self._rows.sum(self._wrapped(fn, len(small)), max(width, self._width), *small, *self._arrays)

    def map(self, fn: BlockFunction, width: int = 1, *small: Array) -> Array:
        return self._rows.map(self._wrapped(fn, len(small)), max(width, self._width), *small, *self._arrays)

    @property
    def _arrays(self) -> tuple[Array, ...]:
        return (*self._small, self.y_mean)

    def _wrapped(self, fn: BlockFunction, n_small: int) -> BlockFunction:
        """Return a block function that computes the weights and then calls `fn`."""
        factors, scale = self._factors, self._scale

        def block(X: Array, Y: Array, w: Array | None, *arrays: Array) -> tuple[Any, ...]:
            *small, y_mean = arrays[n_small:]
            weight = scale * factors(X, Y, *small)
            return fn(X, Y - y_mean, weight if w is None else w * weight, *arrays[:n_small])

        return block

    def place(self, array: Array) -> Array:
        return self._rows.place(array)

    def fetch(self, *arrays: Array) -> tuple[Array, ...]:
        return self._rows.fetch(*arrays)

    def to_device(self, rows: InMemoryRows) -> Rows:
        return self._rows.to_device(rows)

    def draw(self, n: int, rng: np.random.RandomState) -> Array:
        return self._rows.draw(n, rng)

    def subset(self, indices: Array) -> InMemoryRows:
        rows = self._rows.subset(indices)
        X, Y, w = rows.gather()
        # The rows are in memory, so the small arrays are fetched from the device.
        weight = self._scale * self._factors(X, Y, *(self.fetch(array)[0] for array in self._small))
        return rows.with_weights(weight if w is None else w * weight, self.y_mean)

    def with_coordinates(
        self,
        x_offset: Array | None,
        x_scale: Array | None,
        y_offset: Array | None,
        transform: ColumnTransform | None = None,
    ) -> ReweightedRows:
        raise NotImplementedError(
            "ReweightedRows have fixed offsets and scales; call with_coordinates on the rows before reweighting them"
        )


def _sums(X: Array, Y: Array, w: Array | None) -> tuple[Array, Array]:
    assert w is not None
    return w.sum(), w @ Y
