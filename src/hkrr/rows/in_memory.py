"""Rows of arrays in memory, summed on this thread or on a pool of them."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, Literal

import numpy as np

from hkrr._arrays import Array
from hkrr.rows.base import BlockFunction, Rows, accumulate
from hkrr.threads import on_one_of_ours, pool, single_threaded_blas

# Bytes of one array of block rows x width: a few of them live in a core's cache. Measured: docs/performance.md.
_BLOCK_BYTES = 5 << 20
# Rows that the rank of X is taken from, columns up to which it is, and what is constant up to rounding.
_RANK_ROWS, _RANK_COLUMNS, _CONSTANT = 2_000, 1_000, 1e-12
# What the results of blocks that wait to be added may take: with many centers fewer threads are used.
_QUEUE_BYTES = 1 << 29


# glibc's malloc hands freed arrays of some megabytes back to the system, and each new one costs page faults (a fifth
# of a pass), until it has once seen a larger one freed. This one is never touched, so it takes no memory.
np.empty((32 << 20) - (1 << 16), dtype=np.uint8)


def threads_for_sums(width: int) -> int:
    """Return how many threads may sum terms of width x width numbers at once.

    Examples
    --------
    >>> from hkrr.rows import threads_for_sums
    >>> threads_for_sums(1000), threads_for_sums(5000)
    (33, 1)
    """
    return max(1, _QUEUE_BYTES // (16 * width * width))


class InMemoryRows(Rows):
    """Rows of arrays, summed on this thread or on a pool of them.

    Parameters
    ----------
    X, y, sample_weight : arrays of m rows (y may have several columns)
    x_offset, x_scale, y_offset : the blocks hold ``(X - x_offset) / x_scale`` and ``y - y_offset``
    block_size : rows in a block, or "auto" for blocks that suit the cache
    n_threads : threads to sum with. The sums are taken in the order of the rows: the same to the last bit.

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
        self._block_size, self.n_threads = block_size, n_threads
        self.n_rows, self.n_features = X.shape
        self.n_counted = self.n_rows if sample_weight is None else int(np.count_nonzero(sample_weight))
        self.n_targets = self._Y.shape[1]
        self.total_weight = float(self.n_rows if sample_weight is None else np.sum(sample_weight, dtype=np.float64))
        self.n_free_columns = self.n_features

    @property
    def arrays(self) -> tuple[Array, Array, Array | None]:
        """X, Y and the weights as they were given, in no other coordinates."""
        return self._X, self._Y, self._weight

    def __sizeof__(self) -> int:
        """Bytes of the arrays: Dask weighs by them what to move, and what to leave where it is."""
        return sum(array.nbytes for array in (self._X, self._Y, self._weight) if array is not None)

    def _coordinates(self, X: Array) -> Array:
        X = X.astype(np.float64, copy=False)
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
        """Return the same rows, which know (and their subsets too) how many independent columns X has.

        A constant column, or a combination of others: a map has no parameters there that the data can see. (Where there
        are fewer rows than columns all columns are combinations of some, and nothing is known of them: they count.)
        """
        other = copy.copy(self)
        X = self.take(np.arange(0, self.n_rows, -(-self.n_rows // _RANK_ROWS)))
        X = X - X[0]  # exactly zero where a column is constant
        X = X - np.mean(X, axis=0)
        length = np.linalg.norm(X, axis=0)
        X = X[:, length > _CONSTANT * np.max(length)]
        other.n_free_columns = max(1, X.shape[1])
        if 0 < X.shape[1] <= _RANK_COLUMNS:
            rank = int(np.linalg.matrix_rank(X / np.linalg.norm(X, axis=0)))
            other.n_free_columns = rank if rank < len(X) - 1 else X.shape[1]
        return other

    def with_coordinates(self, x_offset: Array | None, x_scale: Array | None, y_offset: Array | None) -> InMemoryRows:
        other = copy.copy(self)
        other._x_offset, other._x_scale, other._y_offset = x_offset, x_scale, y_offset
        return other

    def in_memory(self) -> InMemoryRows:
        return self

    def subset(self, indices: Array) -> InMemoryRows:
        """Return these rows as Rows of their own, in the same coordinates."""
        other = InMemoryRows(
            self._X[indices],
            self._Y[indices],
            None if self._weight is None else self._weight[indices],
            x_offset=self._x_offset,
            x_scale=self._x_scale,
            y_offset=self._y_offset,
            block_size=self._block_size,
            n_threads=self.n_threads,
        )
        other.n_free_columns = self.n_free_columns
        return other

    def sum(self, fn: BlockFunction, width: int = 1, *small: Array) -> tuple[Any, ...]:
        def work(blocks: list[slice]) -> tuple[Any, ...]:
            return accumulate(fn(*self._block(block), *small) for block in blocks)

        # The terms are width x width at most.
        return accumulate(self._over_groups(work, width, threads_for_sums(width)))

    def map(self, fn: BlockFunction, width: int = 1, *small: Array) -> Array:
        def work(blocks: list[slice]) -> list[Array]:
            return [fn(*self._block(block), *small)[0] for block in blocks]

        values = (block for part in self._over_groups(work, width, self.n_threads) for block in part)
        first = next(values)
        # Filled as they come: kernel matrices of all rows are no size to hold twice.
        out = np.empty((self.n_rows, *first.shape[1:]), dtype=first.dtype)
        out[: len(first)], filled = first, len(first)
        for block in values:
            out[filled : filled + len(block)] = block
            filled += len(block)
        return out

    def _groups(self, width: int) -> list[list[slice]]:
        """Return the blocks, in groups that one thread works off: never by the number of threads, or sums would differ.

        Eight groups, or groups of eight blocks where there are many: few enough that handing them out costs nothing.
        """
        if self._block_size == "auto":
            largest = max(256, _BLOCK_BYTES // (8 * max(width, self.n_features)))
            n_blocks = -(-self.n_rows // largest)
            if n_blocks > 1:
                # Blocks of one size, and a multiple of eight of them: threads end together.
                n_blocks = 8 * -(-n_blocks // 8)
            size = -(-self.n_rows // n_blocks)
        else:
            size = self._block_size
        blocks = [slice(start, start + size) for start in range(0, self.n_rows, size)]
        in_group = min(8, -(-len(blocks) // 8))
        return [blocks[i : i + in_group] for i in range(0, len(blocks), in_group)]

    def _over_groups(self, work: Callable[[list[slice]], Any], width: int, most_threads: int) -> Iterator[Any]:
        groups = self._groups(width)
        # BLAS at one thread in either case: its threads would add in another order, and ours must not multiply them.
        with single_threaded_blas():
            n_threads = min(self.n_threads, len(groups), most_threads)
            if n_threads == 1 or on_one_of_ours():
                yield from (work(blocks) for blocks in groups)
                return
            # A short queue keeps the threads busy without holding many results at once.
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
