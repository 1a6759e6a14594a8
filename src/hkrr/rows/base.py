"""The interface of all row sources.

A fit needs two things from the data: sums over all rows, such as K'K and K'y for the kernel matrix K, and the rows at
given indices, such as the centers. `Rows.sum` splits the rows into blocks, calls a block function for each block, and
adds the results. The callers of `Rows` do not know how many blocks there are, where they are stored, or which device
processes them. The map and other small arrays are passed to the block function as arguments, so that a row source can
send these arrays to the place where the blocks are stored.

A block function receives float64 blocks in the coordinates set by `Rows.with_coordinates`. Each block is shifted and
scaled just before it is passed to the block function, so X is never copied as a whole.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.utils.random import sample_without_replacement

from hkrr._base.linear_algebra import Array, array_namespace

if TYPE_CHECKING:
    from hkrr.rows.column_transform import ColumnTransform
    from hkrr.rows.in_memory import InMemoryRows

# Maximum number of rows for which `Rows.draw` uses NumPy's choice, which shuffles all indices.
_SHUFFLED_ROWS = 1_000_000

# Type of a block function: fn(X_block, Y_block, weights or None, *small) returns a tuple of arrays. `Rows.sum` adds
# these arrays over the blocks.
BlockFunction = Callable[..., tuple[Any, ...]]
# The arguments of `Rows.with_coordinates`: x_offset, x_scale, y_offset and transform.
Coordinates = tuple[Array | None, Array | None, Array | None, "ColumnTransform | None"]


class Rows(ABC):
    """Abstract base class of row sources: rows (x_i, y_i, w_i) that can be summed over and selected by index.

    Subclasses implement `sum`, `map`, `subset` and `with_coordinates` and set the attributes below.

    Attributes
    ----------
    n_rows : int
        Number of rows.
    n_counted : int
        Number of rows with a positive weight.
    n_features : int
        Number of columns of X.
    n_free_columns : int
        Number of linearly independent columns of X if this number has been computed, ``n_features`` otherwise.
    n_targets : int
        Number of columns of y.
    total_weight : float
        Sum of the sample weights.
    n_threads : int
        Number of threads that sums and large linear systems may use.
    pays_to_batch : bool, default=False
        Whether several small evaluations of an objective take little more time in one batch than a single evaluation,
        as on a GPU.

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
    n_counted: int
    n_features: int
    n_free_columns: int
    n_targets: int
    total_weight: float
    n_threads: int
    pays_to_batch = False

    @abstractmethod
    def sum(self, fn: BlockFunction, width: int = 1, *small: Array) -> tuple[Any, ...]:
        """Return the arrays ``fn(X, Y, w, *small)``, summed over all blocks.

        ``width`` is the number of columns of the largest array that ``fn`` computes. It determines the block size.
        """

    @abstractmethod
    def map(self, fn: BlockFunction, width: int = 1, *small: Array) -> Array:
        """Return the results of ``fn`` for all rows, in row order.

        For each block, ``fn`` must return a tuple of one array, which has one entry or row for each row of the block.
        """

    def place(self, array: Array) -> Array:
        """Return a small array on the device where sums are computed. On the CPU the array is returned unchanged."""
        return array

    def fetch(self, *arrays: Array) -> tuple[Array, ...]:
        """Return device arrays as NumPy arrays, in one transfer. On the CPU the arrays are returned unchanged."""
        return arrays

    def to_device(self, rows: InMemoryRows) -> Rows:
        """Return the given rows, moved to the device of this row source if small fits are faster on the device."""
        return rows

    def take(self, indices: Array) -> Array:
        """Return the rows of X at the given indices, shifted and scaled as set by `with_coordinates`."""
        return self.subset(indices).gather()[0]

    def draw(self, n: int, rng: np.random.RandomState) -> Array:
        """Return the indices of n rows with positive weight, drawn uniformly without replacement.

        If there are fewer than n such rows, all of them are returned.
        """
        n = min(n, self.n_rows)
        if self.n_rows <= _SHUFFLED_ROWS:
            return rng.choice(self.n_rows, n, replace=False)
        # NumPy's choice would shuffle all indices, so its memory and time would grow with the number of rows.
        return sample_without_replacement(self.n_rows, n, random_state=rng)

    def gather(self) -> tuple[Array, Array, Array | None]:
        """Return all rows as one block ``(X, Y, weights or None)``."""
        return self.in_memory().gather()

    @abstractmethod
    def subset(self, indices: Array) -> InMemoryRows:
        """Return the rows at the given indices as `InMemoryRows`, with the same offsets and scales."""

    def sample(self, n: int, rng: np.random.RandomState) -> InMemoryRows:
        """Return a uniform random sample of n rows as `InMemoryRows`, drawn by `draw`."""
        return self.subset(self.draw(n, rng))

    def at_most(self, n: int, rng: np.random.RandomState) -> Self | InMemoryRows:
        """Return a uniform random sample of n rows, or all rows if at most n rows have positive weight."""
        return self if self.n_counted <= n else self.sample(n, rng)

    @abstractmethod
    def with_coordinates(
        self,
        x_offset: Array | None,
        x_scale: Array | None,
        y_offset: Array | None,
        transform: ColumnTransform | None = None,
    ) -> Self:
        """Return the same rows in the coordinates ``(transform(X) - x_offset) / x_scale`` and ``y - y_offset``.

        X and y are the original data, regardless of the current coordinates. If an argument is None, the corresponding
        operation is omitted.
        """

    def with_normalized_weights(self) -> Self:
        """Return the same rows with the weights rescaled to a mean of one over the rows with positive weight."""
        return self

    def reweighted(self, factors: Array) -> Self:
        """Return the rows with their weights multiplied by the given factors (n,) and rescaled to the previous total.

        If the targets are centered, they are centered again, at their new weighted mean. This method supports only rows
        in memory or on a device. For other sources, use `hkrr.rows.reweighted.ReweightedRows`.
        """
        raise NotImplementedError("use hkrr.rows.reweighted.ReweightedRows for this row source")

    def in_memory(self) -> InMemoryRows:
        """Return all rows as `InMemoryRows`."""
        return self.subset(np.arange(self.n_rows))

    def largest_targets(self) -> Array:
        """Return the largest absolute value of each target over the rows with positive weight."""
        return np.max(self.with_coordinates(None, None, None).map(_absolute_targets), axis=0)

    def on_threads(self, n_threads: int) -> Self:
        """Return a copy that computes sums with ``n_threads`` threads, if this row source uses threads."""
        other = copy.copy(self)
        other.n_threads = n_threads
        return other


def targets(X: Array, Y: Array, w: Array | None) -> tuple[Array]:
    """Return Y. This is a block function: ``rows.map(targets)`` returns the targets of all rows."""
    return (Y,)


def weights(X: Array, Y: Array, w: Array | None) -> tuple[Array]:
    """Return the weights (n, 1). This is a block function: ``rows.map(weights)`` returns the weights of all rows."""
    return (array_namespace(Y).ones_like(Y[:, :1]) if w is None else w[:, None],)


def largest_target(y: Array) -> Array:
    """Return the largest absolute value of each target. `y` has the shape (n_rows,) or (n_rows, n_targets)."""
    # Integers are converted to floats, because the absolute value of -128 overflows in int8.
    return np.max(np.abs(y.astype(np.float64)), axis=0)


def _absolute_targets(X: Array, Y: Array, w: Array | None) -> tuple[Array]:
    return (abs(Y) if w is None else abs(Y) * (w > 0)[:, None],)


def accumulate(parts: Iterator[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Return the entrywise sums of tuples of arrays. The arrays of the first tuple are overwritten."""
    totals = list(next(parts))
    for part in parts:
        for k, term in enumerate(part):
            totals[k] += term
    return tuple(totals)
