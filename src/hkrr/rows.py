"""Rows: data that can be summed over, block by block.

Everything the method needs of the data is a sum over rows of some function of a block of them (K'K, K'y, |r|^2, the
gradient), plus a few rows by index. `Rows.sum` is that one seam: nothing above it knows how many blocks there are, or
which thread computes them.

Blocks arrive in the coordinates of the optimisation: float64, shifted and scaled one block at a time, so X is never
copied.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import cache
from threading import Lock
from typing import Any, Literal, TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

from hkrr._arrays import Array

_T = TypeVar("_T")
_U = TypeVar("_U")

# fn(X_block, Y_block, weights or None) -> the block's terms, summed entry by entry.
BlockFunction = Callable[[Array, Array, Array | None], tuple[Any, ...]]

# Bytes of one array of block rows x width: a few of them live in a core's cache. Measured: docs/performance.md.
_BLOCK_BYTES = 5 << 20
# Below this many centers BLAS's threads wait for each other longer than they save, above all on a busy machine.
_FEW_CENTERS = 3000
# What the results of blocks that wait to be added may take: with many centers fewer threads are used.
_QUEUE_BYTES = 1 << 28


# glibc's malloc hands freed arrays of some megabytes back to the system, and each new one costs page faults (a fifth
# of a pass), until it has once seen a larger one freed. This one is never touched, so it takes no memory.
np.empty((32 << 20) - (1 << 16), dtype=np.uint8)


@cache
def _blas() -> ThreadpoolController:
    # Finding the libraries takes milliseconds, setting their threads microseconds: look once.
    return ThreadpoolController()


def blas_threads() -> int:
    """Return how many threads BLAS would use now: what the machine, or OMP_NUM_THREADS, allows."""
    return max((int(lib.num_threads) for lib in _blas().lib_controllers if lib.user_api == "blas"), default=1)


class _SharedLimit:
    """BLAS at one thread while anyone asks for it: the setting is the process's, so the first in sets it, the last out
    restores it, whatever the order in which threads come and go."""

    def __init__(self) -> None:
        self._lock, self._users, self._limit = Lock(), 0, ExitStack()

    def __enter__(self) -> None:
        with self._lock:
            if self._users == 0:
                self._limit.enter_context(_blas().limit(limits=1, user_api="blas"))
            self._users += 1

    def __exit__(self, *exception: object) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                self._limit.close()


_shared_limit = _SharedLimit()


def single_threaded_blas() -> AbstractContextManager[None]:
    """Hold BLAS at one thread: small products are slower on two, and our own threads must not multiply its."""
    return _shared_limit


def blas_for(n_centers: int) -> AbstractContextManager[None]:
    """Hold BLAS at one thread where there are too few centers for its threads to help."""
    return single_threaded_blas() if n_centers < _FEW_CENTERS else nullcontext()


@cache
def _pool(n_threads: int) -> ThreadPoolExecutor:
    # Kept between passes: threads that are made anew for each cost a tenth of a pass.
    return ThreadPoolExecutor(n_threads, thread_name_prefix="hkrr")


def in_threads(fn: Callable[[_T], _U], items: Iterable[_T], n_threads: int) -> list[_U]:
    """Return fn of each item, in their order, on this many threads; BLAS has one in each."""
    with single_threaded_blas():
        return [fn(item) for item in items] if n_threads == 1 else list(_pool(n_threads).map(fn, items))


# A forked process has the pool's object and none of its threads: it must make its own.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)


class Rows(ABC):
    """Rows (x_i, y_i, w_i) that can be summed over, and taken by index."""

    n_rows: int
    n_counted: int  # rows of positive weight
    n_features: int
    n_targets: int
    total_weight: float

    @abstractmethod
    def sum(self, fn: BlockFunction, width: int = 1) -> tuple[Any, ...]:
        """Return the entrywise sums of ``fn`` over blocks; ``width`` is the number of columns fn makes of a row."""

    @abstractmethod
    def map(self, fn: BlockFunction, width: int = 1) -> Array:
        """Return one value a row, ``fn`` of each block in the order of the rows (fn returns a tuple of one array)."""

    @abstractmethod
    def take(self, indices: Array) -> Array:
        """Return these rows of X, in the coordinates of the blocks."""

    @abstractmethod
    def draw(self, n: int, rng: np.random.RandomState) -> Array:
        """Return the indices of n rows of positive weight (or of all such), drawn uniformly without replacement."""

    @abstractmethod
    def gather(self) -> tuple[Array, Array, Array | None]:
        """Return all the rows as one block."""


class InMemoryRows(Rows):
    """Rows of arrays, summed on this thread or on a pool of them.

    Parameters
    ----------
    X, y, sample_weight : arrays of m rows (y may have several columns)
    x_offset, x_scale, y_offset : the blocks hold ``(X - x_offset) / x_scale`` and ``y - y_offset``
    block_size : rows in a block, or "auto" for blocks that suit the cache
    n_threads : threads to sum with. The sums are taken in the order of the rows: the same to the last bit.
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
        self._block_size, self._n_threads = block_size, n_threads
        self.n_rows, self.n_features = X.shape
        self.n_counted = self.n_rows if sample_weight is None else int(np.count_nonzero(sample_weight))
        self.n_targets = self._Y.shape[1]
        self.total_weight = float(self.n_rows if sample_weight is None else np.sum(sample_weight, dtype=np.float64))

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
            return rng.choice(self.n_rows, min(n, self.n_rows), replace=False)
        counted = np.flatnonzero(self._weight > 0)
        return rng.choice(counted, min(n, len(counted)), replace=False)

    def gather(self) -> tuple[Array, Array, Array | None]:
        return self._block(slice(None))

    def subset(self, indices: Array) -> InMemoryRows:
        """Return these rows as Rows of their own, in the same coordinates."""
        return InMemoryRows(
            self._X[indices],
            self._Y[indices],
            None if self._weight is None else self._weight[indices],
            x_offset=self._x_offset,
            x_scale=self._x_scale,
            y_offset=self._y_offset,
            block_size=self._block_size,
            n_threads=self._n_threads,
        )

    def sum(self, fn: BlockFunction, width: int = 1) -> tuple[Any, ...]:
        return _accumulate(self._over_groups(lambda blocks: _accumulate(fn(*self._block(b)) for b in blocks), width))

    def map(self, fn: BlockFunction, width: int = 1) -> Array:
        parts = self._over_groups(lambda blocks: [fn(*self._block(b))[0] for b in blocks], width)
        return np.concatenate([values for part in parts for values in part])

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

    def _over_groups(self, work: Callable[[list[slice]], Any], width: int) -> Iterator[Any]:
        groups = self._groups(width)
        # BLAS at one thread in either case: its threads would add in another order, and ours must not multiply them.
        with single_threaded_blas():
            n_threads = min(self._n_threads, len(groups), max(1, _QUEUE_BYTES // (16 * width * width)))
            if n_threads == 1:
                yield from (work(blocks) for blocks in groups)
                return
            # A short queue keeps the threads busy without holding many results at once.
            pending: deque[Future[Any]] = deque()
            try:
                for blocks in groups:
                    pending.append(_pool(n_threads).submit(work, blocks))
                    if len(pending) > n_threads + 1:
                        yield pending.popleft().result()
                while pending:
                    yield pending.popleft().result()
            finally:
                for future in pending:
                    future.cancel()


def _accumulate(parts: Iterator[tuple[Any, ...]]) -> tuple[Any, ...]:
    totals = list(next(parts))
    for part in parts:
        for k, term in enumerate(part):
            totals[k] += term
    return tuple(totals)
