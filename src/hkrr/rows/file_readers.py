"""Where rows on disk come from: .npy files, read in chunks of some thousand rows, and whatever has its own source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from hkrr._arrays import Array
from hkrr._validation import check_installed
from hkrr.rows import source
from hkrr.rows.arrow import CSVSource, ParquetSource
from hkrr.rows.source import BlockSource, Source, Target, check_unchanged, is_index, reason


class NumpySource(Source):
    """Files of `numpy.save`, each chunk through a memory map of its own: what was read does not stay resident."""

    def __init__(self, paths: Sequence[Path], target: Target | None, names: list[str] | None = None) -> None:
        super().__init__()
        self._paths = list(paths)
        shapes = []
        for path in paths:
            array = _mapped(path)
            if array.ndim != 2 or array.dtype.kind not in "fiub":
                raise ValueError(f"{path}: a table of numbers is needed, got shape {array.shape} of {array.dtype}")
            shapes.append(array.shape)
            if array.shape[1] != shapes[0][1]:
                raise ValueError(f"{path}: {array.shape[1]} columns, but {paths[0]} has {shapes[0][1]}")
        n_columns = shapes[0][1]
        if n_columns <= (target is not None):
            raise ValueError(f"{paths[0]}: {n_columns} columns; there must be one at least, beside the target")
        if target is not None and not (is_index(target) and -n_columns <= int(target) < n_columns):
            of = f"{paths[0]}: y must be the index of a column, below {n_columns}, for .npy files"
            raise ValueError(f"{of}; got {target!r}")
        self._lengths = [shape[0] for shape in shapes]
        self._target = None if target is None else int(target) % n_columns
        self.n_features = n_columns - (target is not None)
        self._size = max(1024, source.CHUNK_BYTES // (8 * n_columns))

    @cached_property
    def n_rows(self) -> int:
        return sum(self._lengths)

    def _read(self) -> Iterator[tuple[str, int, Array, Array]]:
        for path, length in zip(self._paths, self._lengths, strict=True):
            for first in range(0, length, self._size):
                array = _mapped(path)
                check_unchanged(path, len(array), length)
                block = np.array(array[first : first + self._size])
                if self._target is None:
                    yield str(path), first, block, np.empty((len(block), 0))
                else:
                    X = np.delete(block, self._target, axis=1)
                    yield str(path), first, X, block[:, self._target : self._target + 1]


def _mapped(path: Path) -> Array:
    try:
        return np.lib.format.open_memmap(path, mode="r")
    except Exception as error:  # whatever NumPy makes of a header that was spoilt
        raise ValueError(f"{path}: this is no array of numbers that can be read ({reason(error)})") from None


_BY_SUFFIX: dict[str, type[ParquetSource] | type[CSVSource] | type[NumpySource]] = {
    ".parquet": ParquetSource,
    ".pq": ParquetSource,
    ".csv": CSVSource,
    ".npy": NumpySource,
}


def open_source(X: Any, target: Target | None, names: list[str] | None = None) -> Source:
    """Return the source of a path, a list of paths, or a function that gives blocks; of these columns, where named."""
    if callable(X):
        return BlockSource(X)
    paths = [Path(X)] if isinstance(X, str | Path) else [Path(path) for path in X]
    for path in paths:
        if not path.exists():
            remedy = "; for a pattern, give sorted(glob.glob(...))" if "*" in str(path) else ""
            raise FileNotFoundError(f"{path}: there is no such file{remedy}")
        if not path.is_file():
            raise ValueError(f"{path}: this is no file; for the files of a folder, give a list of them")
    suffixes = {path.suffix.lower() for path in paths}
    if len(suffixes) != 1 or not suffixes <= set(_BY_SUFFIX):
        raise ValueError(f"files must be of one kind, {', '.join(_BY_SUFFIX)}; got {', '.join(sorted(suffixes))}")
    (suffix,) = suffixes
    if suffix != ".npy":
        check_installed("pyarrow", "files", f"{suffix} files")
    return _BY_SUFFIX[suffix](paths, target, names)
