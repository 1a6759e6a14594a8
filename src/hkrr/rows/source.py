"""Rows that are read in chunks, in order, as often as they are asked for; and blocks that a function gives each time.

The first time all values are checked: what is no finite number is an error that names the file (or the block), the row
and the column.
"""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from hkrr._arrays import Array

Chunk = tuple[Array, Array]
Target = str | int

# Bytes of a chunk: some of them are in memory at once, read ahead and computed with.
CHUNK_BYTES = 16 << 20
_ANEW = "X gave {} when called again: it must return a new iterable of the same blocks each time"
# Characters of a name or a value that an error shows.
_SHOWN = 100


class Source(ABC):
    """Rows that are read in chunks."""

    names: list[str] | None = None  # of the columns of X
    n_features: int
    n_targets = 1

    def __init__(self) -> None:
        self._checked = False

    @cached_property
    def n_rows(self) -> int:
        """Number of rows; counted by a pass where no file says it."""
        return sum(len(X) for X, _ in self.chunks())

    @abstractmethod
    def _read(self) -> Iterator[tuple[str, int, Array, Array]]:
        """Yield what a chunk is called in errors, the number of its first row there, X and Y."""

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows in order."""
        for where, first, X, Y in self._read():
            if not self._checked:
                self._check(where, first, X, Y)
            if len(X):
                yield X, Y
        self._checked = True

    def _check(self, where: str, first: int, X: Array, Y: Array) -> None:
        for values, is_target in ((X, False), (Y, True)):
            with np.errstate(invalid="ignore", over="ignore"):  # infinities of both signs, and numbers near the largest
                total = values.sum(dtype=np.float64)
            if not np.isfinite(total) and not np.all(np.isfinite(values)):
                row, column = (int(k) for k in np.argwhere(~np.isfinite(values))[0])
                name = "the target" if is_target else self._name(column)
                value = "NaN (a missing value?)" if np.isnan(values[row, column]) else "infinity"
                raise ValueError(f"{where}: {name} holds {value} in row {first + row}; impute it or drop the row first")

    def _name(self, column: int) -> str:
        return f"column {column}" if self.names is None else f"column {shown(self.names[column])}"


class BlockSource(Source):
    """Blocks (X, y) that a function gives, from the first one on, each time it is called."""

    def __init__(self, factory: Callable[[], Iterable[Any]]) -> None:
        super().__init__()
        self._factory = factory
        self._n_seen: int | None = None  # rows of the last pass
        self._given: Any = None  # what the function returned last
        first = next(self._arrays(), None)
        if first is None:
            raise ValueError("X gave no blocks: it must return an iterable of (X, y), the same each time it is called")
        self.n_features, self.n_targets = first[0].shape[1], first[1].shape[1]
        self._first = _beginning(first)

    def _arrays(self) -> Iterator[Chunk]:
        blocks = self._factory()
        if blocks is self._given and isinstance(blocks, Iterator):
            raise ValueError("X gave the same iterator again: it must return a new iterable of its blocks each time")
        self._given = blocks
        for k, block in enumerate(blocks):
            X, y = block if isinstance(block, tuple | list) and len(block) == 2 else (block, None)
            # Copies: the function may fill the same array again, while this block is still computed with.
            X = np.array(X)
            Y = np.empty((len(X), 0)) if y is None else np.array(y)
            Y = Y[:, None] if Y.ndim == 1 else Y
            if X.ndim != 2 or X.dtype.kind not in "fiub" or Y.ndim != 2 or Y.dtype.kind not in "fiub":
                raise ValueError(f"block {k} of X must be a table of numbers, got shape {X.shape} of {X.dtype}")
            if len(X) != len(Y):
                raise ValueError(f"block {k} of X has {len(X)} rows, but {len(Y)} targets")
            yield X, Y

    def _read(self) -> Iterator[tuple[str, int, Array, Array]]:
        n_rows = 0
        for k, (X, Y) in enumerate(self._arrays()):
            if X.shape[1] != self.n_features or Y.shape[1] != self.n_targets:
                raise ValueError(f"block {k} of X has {X.shape[1]} columns, the first one has {self.n_features}")
            if k == 0 and not all(map(_same, self._first, _beginning((X, Y)))):
                raise ValueError(_ANEW.format("another first block"))
            n_rows += len(X)
            yield f"block {k}", 0, X, Y
        if n_rows != self._n_seen and (self._n_seen is not None or n_rows == 0):
            raise ValueError(_ANEW.format(f"{n_rows} rows"))
        self._n_seen = n_rows


def _beginning(block: Chunk) -> Chunk:
    """Return the first rows of a block, to know it by."""
    return block[0][:1000].copy(), block[1][:1000].copy()


def _same(first: Array, again: Array) -> bool:
    return np.array_equal(first, again, equal_nan=first.dtype.kind == "f" and again.dtype.kind == "f")


def shown(text: Any) -> str:
    """Return a value of a file, or a name, as an error shows it: the beginning of it, where it is long."""
    found = repr(text)
    return found if len(found) <= _SHOWN else f"{found[:_SHOWN]}..."


def reason(error: Exception) -> str:
    """Return the first line of another library's message, or its kind where it says nothing."""
    lines = str(error).strip().splitlines()
    return lines[0][: 2 * _SHOWN] if lines else type(error).__name__


def check_unchanged(path: Path, found: int, expected: int) -> None:
    """Raise where a file has not as many rows as it had."""
    if found != expected:
        raise ValueError(f"{path}: it had {expected} rows and now has {found}: it was changed while it was read")


def is_index(target: Any) -> bool:
    """Whether a target is given by the number of its column."""
    return isinstance(target, numbers.Integral) and not isinstance(target, bool)
