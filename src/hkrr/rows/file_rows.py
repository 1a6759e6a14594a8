"""Rows read from files in chunks. The next chunk is read while the current chunk is processed."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import numpy as np

from hkrr._base.linear_algebra import Array
from hkrr.rows.base import BlockFunction, Coordinates, Rows, accumulate
from hkrr.rows.column_transform import ColumnTransform
from hkrr.rows.file_readers import Chunk, Source
from hkrr.rows.in_memory import InMemoryRows


class FileRows(Rows):
    """Rows that a `Source` reads in chunks. Each chunk is processed as `InMemoryRows`.

    Parameters
    ----------
    source : Source
        The reader that yields the chunks.
    block_size : int or "auto", default="auto"
        Number of rows in a block. Each chunk is processed in blocks. "auto" chooses blocks that fit the cache.
    n_threads : int, default=1
        Number of threads that process a chunk.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from hkrr.rows import FileRows
    >>> from hkrr.rows.file_readers import open_source
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/rows.npy", np.arange(12.0).reshape(4, 3))
    ...     rows = FileRows(open_source(f"{folder}/rows.npy", 2))  # column 2 is the target
    ...     print(rows.n_rows, rows.n_features, rows.sum(lambda X, Y, w: (Y.sum(axis=0),)))
    4 2 (array([26.]),)
    """

    def __init__(self, source: Source, *, block_size: Literal["auto"] | int = "auto", n_threads: int = 1) -> None:
        self._source, self._block_size, self.n_threads = source, block_size, n_threads
        self.n_features = self.n_free_columns = source.n_features
        self.n_targets = source.n_targets
        self._coordinates: Coordinates = (None, None, None, None)

    @property
    def n_rows(self) -> int:  # type: ignore[override]  # a property, because counting may require reading the file
        return self._source.n_rows

    @property
    def n_counted(self) -> int:  # type: ignore[override]  # a property, like n_rows
        return self.n_rows

    @property
    def total_weight(self) -> float:  # type: ignore[override]  # a property, like n_rows
        return float(self.n_rows)

    def with_coordinates(
        self,
        x_offset: Array | None,
        x_scale: Array | None,
        y_offset: Array | None,
        transform: ColumnTransform | None = None,
    ) -> FileRows:
        other = copy.copy(self)
        other._coordinates = (x_offset, x_scale, y_offset, transform)
        return other

    def sum(self, fn: BlockFunction, width: int = 1, *small: Array) -> tuple[Any, ...]:
        return accumulate(rows.sum(fn, width, *small) for rows in self._chunks())

    def map(self, fn: BlockFunction, width: int = 1, *small: Array) -> Array:
        parts = [rows.map(fn, width, *small) for rows in self._chunks()]
        if parts:
            return np.concatenate(parts)
        # If there are no rows, evaluate fn on one row of zeros to get the shape of an empty result.
        one = self._in_memory_rows(np.zeros((1, self.n_features)), np.zeros((1, self.n_targets)))
        return one.map(fn, width, *small)[:0]

    def largest_targets(self) -> Array:
        return np.max([rows.largest_targets() for rows in self._chunks()], axis=0)

    def subset(self, indices: Array) -> InMemoryRows:
        """Return the rows at the given indices, read in one pass over the files."""
        indices = np.asarray(indices)
        order = np.argsort(indices, kind="stable")
        wanted, first, parts = indices[order], 0, []
        for X, Y in _read_ahead(self._source.chunks()):
            low, high = np.searchsorted(wanted, [first, first + len(X)])
            here = wanted[low:high] - first
            if len(here):
                parts.append((X[here], Y[here]))
            first += len(X)
            if high == len(wanted):
                break
        back = np.argsort(order, kind="stable")
        if not parts:
            return self._in_memory_rows(np.empty((0, self.n_features)), np.empty((0, self.n_targets)))
        X, Y = (np.concatenate(columns)[back] for columns in zip(*parts, strict=True))
        return self._in_memory_rows(X, Y)

    def _chunks(self) -> Iterator[InMemoryRows]:
        for X, Y in _read_ahead(self._source.chunks()):
            yield self._in_memory_rows(X, Y)

    def _in_memory_rows(self, X: Array, Y: Array) -> InMemoryRows:
        rows = InMemoryRows(X, Y, block_size=self._block_size, n_threads=self.n_threads)
        return rows.with_coordinates(*self._coordinates)


def _read_ahead(chunks: Iterator[Chunk]) -> Iterator[Chunk]:
    """Yield the chunks. A second thread reads the next chunk while the caller processes the current chunk."""
    with ThreadPoolExecutor(1) as reader:
        coming = reader.submit(next, chunks, None)
        while (chunk := coming.result()) is not None:
            coming = reader.submit(next, chunks, None)
            yield chunk
