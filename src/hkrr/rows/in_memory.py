"""Rows of NumPy arrays in memory, summed by one thread or by a thread pool."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, Literal

import numpy as np

from hkrr._base.linear_algebra import Array
from hkrr._base.threads import in_pool_thread, pool, single_threaded_blas
from hkrr.rows.base import BlockFunction, Rows, accumulate
from hkrr.rows.column_transform import ColumnTransform

# Maximum size in bytes of the largest array that a block function computes. It determines the number of rows in a
# block. A few arrays of this size fit in the cache of a core. docs/performance.md has the measurements.
_BLOCK_BYTES = 5 << 20
# `InMemoryRows.count_free_columns` computes the rank of X from at most 2,000 rows, and only for at most 1,000 columns.
_RANK_ROWS, _RANK_COLUMNS = 2_000, 1_000
# `InMemoryRows.count_free_columns` treats a centered column as constant if its norm is below this fraction of the
# largest norm of a centered column.
_CONSTANT = 1e-12
# Memory limit in bytes for block results that wait to be added. With many centers, fewer threads are used, so that the
# results stay below this limit.
_QUEUE_BYTES = 1 << 29


# By default, glibc's malloc returns freed arrays of several megabytes to the operating system. The next allocation then
# causes page faults, which take a fifth of the time of a sum over the rows. malloc keeps arrays up to the size of the
# largest array freed so far. The next line therefore allocates and frees an array of 32 MB. This array is never written
# to, so it uses no memory.
np.empty((32 << 20) - (1 << 16), dtype=np.uint8)


def threads_for_sums(width: int) -> int:
    """Return the largest number of threads that may compute ``width x width`` arrays for a sum at the same time.

    With this limit, the arrays that wait to be added take less than 512 MiB.

    Examples
    --------
    >>> from hkrr.rows import threads_for_sums
    >>> threads_for_sums(1000), threads_for_sums(5000)
    (33, 1)
    """
    return max(1, _QUEUE_BYTES // (16 * width * width))


class InMemoryRows(Rows):
    """Rows of NumPy arrays, summed by one thread or by a thread pool.

    Parameters
    ----------
    X : array (m, D)
        Inputs.
    y : array (m,) or (m, n_targets)
        Targets.
    sample_weight : array (m,) or None, default=None
        Weights of the rows. None gives every row the weight 1.
    x_offset, x_scale : array (D,) or None, default=None
        Offsets and scales of the columns of X: a block function receives ``(X - x_offset) / x_scale``.
    y_offset : array (n_targets,) or None, default=None
        Offset of the targets: a block function receives ``y - y_offset``.
    block_size : int or "auto", default="auto"
        Number of rows in a block. "auto" chooses blocks that fit the cache.
    n_threads : int, default=1
        Number of threads. Blocks are always added in row order, so the sums are bitwise equal for any number of
        threads.

    Examples
    --------
    >>> import numpy as np
    >>> from hkrr.rows import InMemoryRows
    >>> rows = InMemoryRows(np.arange(6.0).reshape(3, 2), np.array([1.0, 2.0, 3.0]), x_offset=np.array([2.0, 3.0]))
    >>> rows.n_rows, rows.total_weight
    (3, 3.0)
    >>> rows.take(np.array([0, 2]))
    array([[-2., -2.],
           [ 2.,  2.]])
    """

    def __init__(
        self,
        X: Array,
        y: Array,
        sample_weight: Array | None = None,
        *,
        x_offset: Array | None = None,
        x_scale: Array | None = None,
        y_offset: Array | None = None,
        block_size: int | Literal["auto"] = "auto",
        n_threads: int = 1,
    ) -> None:
        self._X = X
        self._Y = y[:, None] if y.ndim == 1 else y
        self._weight = sample_weight
        self._x_offset, self._x_scale, self._y_offset = x_offset, x_scale, y_offset
        self._transform: ColumnTransform | None = None
        self._block_size, self.n_threads = block_size, n_threads
        self.n_rows, self.n_features = X.shape
        self.n_counted = self.n_rows if sample_weight is None else int(np.count_nonzero(sample_weight))
        self.n_targets = self._Y.shape[1]
        self.total_weight = float(self.n_rows if sample_weight is None else np.sum(sample_weight, dtype=np.float64))
        self.n_free_columns = self.n_features
        self._row_space: Array | None = None

    @property
    def arrays(self) -> tuple[Array, Array, Array | None]:
        """X (m, D), y (m, n_targets) and the weights (m,) or None. X and y are in their original units."""
        return self._X, self._Y, self._weight

    def __sizeof__(self) -> int:
        """Return the bytes of the arrays. Dask uses this size to decide which data to move between workers."""
        return sum(array.nbytes for array in (self._X, self._Y, self._weight) if array is not None)

    def _coordinates(self, X: Array) -> Array:
        X = X.astype(np.float64, copy=False)
        if self._transform is not None:
            X = self._transform(X)
        if self._x_offset is not None:
            X = X - self._x_offset
        if self._x_scale is not None:
            X = X / self._x_scale
        return X

    def _block(self, rows: slice) -> tuple[Array, Array, Array | None]:
        Y = self._Y[rows].astype(np.float64, copy=False)
        if self._y_offset is not None:
            Y = Y - self._y_offset
        weight = None if self._weight is None else self._weight[rows].astype(np.float64, copy=False)
        return self._coordinates(self._X[rows]), Y, weight

    def take(self, indices: Array) -> Array:
        return self._coordinates(self._X[indices])

    def draw(self, n: int, rng: np.random.RandomState) -> Array:
        if self._weight is None:
            return super().draw(n, rng)
        counted = np.flatnonzero(self._weight > 0)
        return rng.choice(counted, min(n, len(counted)), replace=False)

    def gather(self) -> tuple[Array, Array, Array | None]:
        return self._block(slice(None))

    def count_free_columns(self) -> InMemoryRows:
        """Return the same rows, with ``n_free_columns`` set to the number of linearly independent columns of X.

        Subsets of the returned rows inherit this number. It determines how many parameters of a map are identifiable: a
        column that is constant, or a linear combination of other columns, adds no identifiable parameters. If the rank
        cannot be computed, because there are too few rows or more than 1,000 columns, all columns that are not constant
        are counted. `in_row_space` uses the result, too.
        """
        other = copy.copy(self)
        other._row_space = None
        X = self.take(np.arange(0, self.n_rows, -(-self.n_rows // _RANK_ROWS)))
        X = X - X[0]  # makes constant columns exactly zero
        X = X - np.mean(X, axis=0)
        length = np.linalg.norm(X, axis=0)
        varies = length > _CONSTANT * np.max(length)
        X, length = X[:, varies], length[varies]
        other.n_free_columns = max(1, X.shape[1])
        if 0 < X.shape[1] < self.n_features:
            other._row_space = varies
        if 0 < X.shape[1] <= _RANK_COLUMNS:
            rank = int(np.linalg.matrix_rank(X / length))
            if rank < min(len(X) - 1, X.shape[1]):
                other.n_free_columns = rank
                directions = np.linalg.svd(X / length, full_matrices=False)[2][:rank] * length
                other._row_space = np.zeros((rank, self.n_features))
                other._row_space[:, varies] = np.linalg.qr(directions.T)[0].T
        return other

    def in_row_space(self, B: Array) -> Array:
        """Return the map without the part that gives all rows the same value.

        This part consists of the components of B along constant columns, and along constant linear combinations of
        columns. It does not affect the fit on these rows. The row space is known after `count_free_columns`.
        """
        if self._row_space is None:
            return B
        return B * self._row_space if self._row_space.ndim == 1 else B @ self._row_space.T @ self._row_space

    def varying_columns(self) -> Array:
        """Return the rows of the D x D identity matrix that select the columns of X that are not constant."""
        X = self.gather()[0]
        varying = np.flatnonzero(np.any(X[0] != X, axis=0))
        return (varying[:, None] == np.arange(self.n_features)).astype(np.float64)

    def with_coordinates(
        self,
        x_offset: Array | None,
        x_scale: Array | None,
        y_offset: Array | None,
        transform: ColumnTransform | None = None,
    ) -> InMemoryRows:
        other = copy.copy(self)
        other._x_offset, other._x_scale, other._y_offset = x_offset, x_scale, y_offset
        other._transform = transform
        return other

    def reweighted(self, factors: Array) -> InMemoryRows:
        weight = factors if self._weight is None else self._weight * factors
        other = copy.copy(self)
        other._weight = weight * (self.total_weight / np.sum(weight))
        return other.recentered()

    def recentered(self) -> InMemoryRows:
        """Return the same rows with centered targets, or the rows themselves if the targets have no offset."""
        if self._y_offset is None:
            return self
        other = copy.copy(self)
        # The first row is subtracted, so that the mean of a constant target has no rounding error.
        first = self._Y[0].astype(np.float64)
        other._y_offset = first + np.average(self._Y - first, axis=0, weights=self._weight)
        return other

    def with_weights(self, weight: Array, y_shift: Array) -> InMemoryRows:
        """Return the same rows with the given weights (n,), and `y_shift` (n_targets,) subtracted from the targets.

        `with_coordinates` still shifts and scales the original data.
        """
        other = self.with_arrays(self._X, self._Y, weight)
        if np.any(y_shift):
            other._y_offset = y_shift if self._y_offset is None else self._y_offset + y_shift
        return other

    @property
    def y_offset(self) -> Array | None:
        """The offset of the targets, or None if they are not centered."""
        return self._y_offset

    def in_memory(self) -> InMemoryRows:
        return self

    def subset(self, indices: Array) -> InMemoryRows:
        """Return the rows at the given indices, with the same offsets and scales."""
        weight = None if self._weight is None else self._weight[indices]
        return self.with_arrays(self._X[indices], self._Y[indices], weight)

    def with_arrays(self, X: Array, Y: Array, weight: Array | None) -> InMemoryRows:
        """Return rows with the given arrays, and with the offsets, scales and settings of these rows."""
        other = InMemoryRows(X, Y, weight, block_size=self._block_size, n_threads=self.n_threads)
        other.n_free_columns, other._row_space = self.n_free_columns, self._row_space
        return other.with_coordinates(self._x_offset, self._x_scale, self._y_offset, self._transform)

    def sum(self, fn: BlockFunction, width: int = 1, *small: Array) -> tuple[Any, ...]:
        def work(blocks: list[slice]) -> tuple[Any, ...]:
            return accumulate(fn(*self._block(block), *small) for block in blocks)

        # The arrays that `fn` returns have at most width x width entries.
        return accumulate(self._over_groups(work, width, threads_for_sums(width)))

    def map(self, fn: BlockFunction, width: int = 1, *small: Array) -> Array:
        # The shape and the type of the values are not known before a block was computed.
        first = self._groups(width)[0][0]
        with single_threaded_blas():
            value = fn(*self._block(first), *small)[0]
        out = np.empty((self.n_rows, *value.shape[1:]), dtype=value.dtype)
        out[first] = value

        # The threads write to the output, because the result (such as a kernel matrix of all rows) may be too large to
        # be held twice in memory.
        def work(blocks: list[slice]) -> None:
            for block in blocks:
                if block != first:
                    out[block] = fn(*self._block(block), *small)[0]

        deque(self._over_groups(work, width, self.n_threads), maxlen=0)
        return out

    def _groups(self, width: int) -> list[list[slice]]:
        """Return the blocks in groups. Each group is one task for a thread.

        Up to 64 blocks form at most eight groups. More than 64 blocks form groups of eight, to keep scheduling cheap.
        The groups do not depend on the number of threads, so the rounding of the sums does not depend on this number.
        """
        if self._block_size == "auto":
            largest = max(256, _BLOCK_BYTES // (8 * max(width, self.n_features)))
            n_blocks = -(-self.n_rows // largest)
            if n_blocks > 1:
                # With blocks of equal size, whose number is a multiple of eight, the threads finish at about the same
                # time.
                n_blocks = 8 * -(-n_blocks // 8)
            size = -(-self.n_rows // n_blocks)
        else:
            size = self._block_size
        blocks = [slice(start, start + size) for start in range(0, self.n_rows, size)]
        in_group = min(8, -(-len(blocks) // 8))
        return [blocks[i : i + in_group] for i in range(0, len(blocks), in_group)]

    def _over_groups(self, work: Callable[[list[slice]], Any], width: int, max_threads: int) -> Iterator[Any]:
        groups = self._groups(width)
        # BLAS always runs on one thread. Several BLAS threads would change the order of additions, and together with
        # the threads of this pool they would oversubscribe the cores.
        with single_threaded_blas():
            n_threads = min(self.n_threads, len(groups), max_threads)
            if n_threads == 1 or in_pool_thread():
                yield from (work(blocks) for blocks in groups)
                return
            # A short queue of pending results keeps the threads busy without holding many results in memory.
            pending: deque[Future[Any]] = deque()
            try:
                for blocks in groups:
                    pending.append(pool(n_threads).submit(work, blocks))
                    if len(pending) > n_threads + 1:
                        yield pending.popleft().result()
                while pending:
                    yield pending.popleft().result()
            finally:
                for future in pending:
                    future.cancel()


def in_memory(rows: InMemoryRows) -> Rows:
    """Return the rows unchanged.

    Some parameters are functions that move rows to a device. This function is their default, which moves nothing.
    """
    return rows
