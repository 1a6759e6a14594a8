"""Rows: data that can be summed over, block by block.

Everything the method needs of the data is a sum over rows of some function of a block of them (K'K, K'y, |r|^2, the
gradient), plus a few rows by index. `Rows.sum` is that one seam: nothing above it knows how many blocks there are,
where they are, or what computes them. The function gets all it needs beside the block, the map and other small arrays,
as arguments: they are sent to where the blocks are.

Blocks arrive in the coordinates of the optimisation: float64, shifted and scaled one block at a time, so X is never
copied.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, Self

import numpy as np
from sklearn.utils.random import sample_without_replacement

from hkrr._arrays import Array

_SHUFFLED_ROWS = 1_000_000

# fn(X_block, Y_block, weights or None, *small) -> the block's terms, summed entry by entry.
BlockFunction = Callable[..., tuple[Any, ...]]


class Rows(ABC):
    """Rows (x_i, y_i, w_i) that can be summed over, and taken by index.

    Examples
    --------
    >>> import numpy as np
    >>> from hkrr.rows import InMemoryRows, Rows
    >>> rows = InMemoryRows(np.arange(10.0).reshape(5, 2), np.ones(5), block_size=2)
    >>> def squares(X, Y, w):
    ...     return X.T @ X, Y.sum(axis=0)
    >>> isinstance(rows, Rows), rows.sum(squares)
    (True, (array([[120., 140.],
           [140., 165.]]), array([5.])))
    """

    n_rows: int
    n_counted: int  # rows of positive weight
    n_features: int
    n_free_columns: int  # columns that are no combination of the others, where these were counted, or all
    n_targets: int
    total_weight: float
    n_threads: int  # that sums, and large systems, may use
    pays_to_batch = False  # whether several small evaluations at once cost little more than one

    @abstractmethod
    def sum(self, fn: BlockFunction, width: int = 1, *small: Array) -> tuple[Any, ...]:
        """Return the entrywise sums of ``fn(X, Y, w, *small)`` over blocks; ``width`` is the number of columns fn makes
        of a row."""

    @abstractmethod
    def map(self, fn: BlockFunction, width: int = 1, *small: Array) -> Array:
        """Return one value a row, ``fn`` of each block in the order of the rows (fn returns a tuple of one array)."""

    def place(self, array: Array) -> Array:
        """Return a small array where sums are, to compute with them; on the processor, as it is."""
        return array

    def fetch(self, *arrays: Array) -> tuple[Array, ...]:
        """Return arrays from there as NumPy's, in one transfer; on the processor, as they are."""
        return arrays

    def bring(self, rows: Any) -> Rows:
        """Return some of these rows, InMemoryRows, to where small problems are best computed; here as they are."""
        some: Rows = rows
        return some

    def take(self, indices: Array) -> Array:
        """Return these rows of X, in the coordinates of the blocks."""
        return self.subset(indices).gather()[0]

    def draw(self, n: int, rng: np.random.RandomState) -> Array:
        """Return the indices of n rows of positive weight (or of all such), drawn uniformly without replacement."""
        n = min(n, self.n_rows)
        if self.n_rows <= _SHUFFLED_ROWS:
            return rng.choice(self.n_rows, n, replace=False)
        # NumPy would shuffle all the indices: memory and time that grow with the rows.
        return sample_without_replacement(self.n_rows, n, random_state=rng)

    def gather(self) -> tuple[Array, Array, Array | None]:
        """Return all the rows as one block."""
        everything: tuple[Array, Array, Array | None] = self.in_memory().gather()
        return everything

    @abstractmethod
    def subset(self, indices: Array) -> Any:
        """Return these rows as InMemoryRows, in the same coordinates."""

    @abstractmethod
    def with_coordinates(self, x_offset: Array | None, x_scale: Array | None, y_offset: Array | None) -> Self:
        """Return the same rows, whose blocks hold ``(X - x_offset) / x_scale`` and ``y - y_offset``."""

    def in_units_of_rows(self) -> Self:
        """Return the same rows with weights of mean one over the rows that count."""
        return self

    def in_memory(self) -> Any:
        """Return all the rows as InMemoryRows."""
        return self.subset(np.arange(self.n_rows))

    def largest_targets(self) -> Array:
        """Return the largest absolute value of each target, over the rows of positive weight."""
        return np.max(self.with_coordinates(None, None, None).map(_sizes), axis=0)

    def on_threads(self, n_threads: int) -> Self:
        """Return the same rows, summed by this many threads where they are summed by threads."""
        other = copy.copy(self)
        other.n_threads = n_threads
        return other


def targets(X: Array, Y: Array, w: Array | None) -> tuple[Array]:
    """Return Y: with `Rows.map`, all targets."""
    return (Y,)


def _sizes(X: Array, Y: Array, w: Array | None) -> tuple[Array]:
    return (abs(Y) if w is None else abs(Y) * (w > 0)[:, None],)


def accumulate(parts: Iterator[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Return the entrywise sums of tuples of arrays; the first is overwritten."""
    totals = list(next(parts))
    for part in parts:
        for k, term in enumerate(part):
            totals[k] += term
    return tuple(totals)
