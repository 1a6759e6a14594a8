"""Readers of rows that are not in memory: .npy, Parquet and CSV files, and functions that return blocks.

A `Source` yields its rows in chunks, in the same order on every pass. The first pass checks all values. A value that is
not a finite number raises an error that names the file or block, the row and the column. `open_source` returns the
reader for a given input.
"""

from __future__ import annotations

import csv
import numbers
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from hkrr._base.checks import check_installed
from hkrr._base.error_text import error_summary, quoted
from hkrr._base.linear_algebra import Array

Chunk = tuple[Array, Array]
Target = str | int

# Size of a chunk in bytes. Up to three chunks are in memory at once, because the next chunk is read while the current
# chunk is processed.
CHUNK_BYTES = 16 << 20
# Number of bytes of a Parquet column that are read at once.
_BUFFER_BYTES = 1 << 20
# Maximum number of column names in an error message, and maximum number of characters of the list of names.
_MAX_NAMES, _MAX_NAMES_LENGTH = 50, 500
_NOT_REPEATABLE = (
    "the function passed as X returned {} when called again; it must return a new iterable of the same blocks on every "
    "call"
)


class Source(ABC):
    """Abstract base class of readers, which yield rows in chunks."""

    names: list[str] | None = None  # column names of X, or None if the columns have no names
    n_features: int
    n_targets = 1

    def __init__(self) -> None:
        self._checked = False

    @cached_property
    def n_rows(self) -> int:
        """Number of rows. If the format does not store this number, a pass over the data counts the rows."""
        return sum(len(X) for X, _ in self.chunks())

    @abstractmethod
    def _read(self) -> Iterator[tuple[str, int, Array, Array]]:
        """Yield, for each chunk, its name in error messages, the index of its first row, X and Y."""

    def chunks(self) -> Iterator[Chunk]:
        """Yield the chunks (X, Y) in order."""
        for where, first, X, Y in self._read():
            if not self._checked:
                self._check(where, first, X, Y)
            if len(X):
                yield X, Y
        self._checked = True

    def _check(self, where: str, first: int, X: Array, Y: Array) -> None:
        for values, is_target in ((X, False), (Y, True)):
            # Testing the sum first is faster than testing every value. The sum may overflow or add inf and -inf, so the
            # warnings are suppressed.
            with np.errstate(invalid="ignore", over="ignore"):
                total = values.sum(dtype=np.float64)
            if not np.isfinite(total) and not np.all(np.isfinite(values)):
                row, column = (int(k) for k in np.argwhere(~np.isfinite(values))[0])
                name = "the target" if is_target else self._name(column)
                value = "NaN (a missing value?)" if np.isnan(values[row, column]) else "infinity"
                raise ValueError(
                    f"{where}: {name} holds {value} in row {first + row}; impute the value or drop the row first"
                )

    def _name(self, column: int) -> str:
        return f"column {column}" if self.names is None else f"column {quoted(self.names[column])}"


class BlockSource(Source):
    """Reader of the blocks that a function returns. Every call of the function must return the same blocks."""

    def __init__(self, factory: Callable[[], Iterable[Any]]) -> None:
        super().__init__()
        self._factory = factory
        self._n_seen: int | None = None  # number of rows in the previous pass
        self._previous: Any = None  # the iterable that the previous call returned
        first = next(self._arrays(), None)
        if first is None:
            raise ValueError(
                "the function passed as X returned no blocks; it must return an iterable of blocks, each a pair of "
                "arrays (inputs, targets), or an array of inputs for predictions"
            )
        self.n_features, self.n_targets = first[0].shape[1], first[1].shape[1]
        self._first = _first_rows(first)

    def _arrays(self) -> Iterator[Chunk]:
        blocks = self._factory()
        if blocks is self._previous and isinstance(blocks, Iterator):
            raise ValueError(
                "the function passed as X returned the same iterator again; it must return a new iterable on every call"
            )
        self._previous = blocks
        for k, block in enumerate(blocks):
            X, y = block if isinstance(block, tuple | list) and len(block) == 2 else (block, None)
            # Copy the block, because the function may overwrite its array while this block is still being processed.
            X = np.array(X)
            Y = np.empty((len(X), 0)) if y is None else np.array(y)
            Y = Y[:, None] if Y.ndim == 1 else Y
            if X.ndim != 2 or X.dtype.kind not in "fiub" or Y.ndim != 2 or Y.dtype.kind not in "fiub":
                got = f"inputs of shape {X.shape}, dtype {X.dtype}, and targets of shape {Y.shape}, dtype {Y.dtype}"
                raise ValueError(
                    f"block {k}: the inputs must be a 2D array, and the targets a 1D or 2D array, of numbers; got {got}"
                )
            if len(X) != len(Y):
                raise ValueError(
                    f"block {k}: the inputs have {len(X)} rows, but there are {len(Y)} targets; pass one target per row"
                )
            yield X, Y

    def _read(self) -> Iterator[tuple[str, int, Array, Array]]:
        n_rows = 0
        for k, (X, Y) in enumerate(self._arrays()):
            if X.shape[1] != self.n_features or Y.shape[1] != self.n_targets:
                raise ValueError(
                    f"block {k} has {X.shape[1]} columns and {Y.shape[1]} targets, but the first block has "
                    f"{self.n_features} columns and {self.n_targets} targets"
                )
            if k == 0 and not all(map(_equal, self._first, _first_rows((X, Y)))):
                raise ValueError(_NOT_REPEATABLE.format("a different first block"))
            n_rows += len(X)
            yield f"block {k}", 0, X, Y
        if n_rows != self._n_seen and (self._n_seen is not None or n_rows == 0):
            raise ValueError(_NOT_REPEATABLE.format(f"{n_rows} rows"))
        self._n_seen = n_rows


def _first_rows(block: Chunk) -> Chunk:
    """Return a copy of the first 1,000 rows of a block. A later pass compares its first block with this copy."""
    return block[0][:1000].copy(), block[1][:1000].copy()


def _equal(a: Array, b: Array) -> bool:
    return np.array_equal(a, b, equal_nan=a.dtype.kind == "f" and b.dtype.kind == "f")


class NumpySource(Source):
    """Reader of ``.npy`` files.

    A new memory map is opened for each chunk, so that the memory of earlier chunks can be released.
    """

    def __init__(self, paths: Sequence[Path], target: Target | None, names: list[str] | None = None) -> None:
        super().__init__()
        self._paths = list(paths)
        shapes = []
        for path in paths:
            array = _memory_map(path)
            if array.ndim != 2 or array.dtype.kind not in "fiub":
                raise ValueError(
                    f"{path}: expected a 2D array of numbers, got shape {array.shape}, dtype {array.dtype}"
                )
            shapes.append(array.shape)
            if array.shape[1] != shapes[0][1]:
                raise ValueError(
                    f"{path}: the file has {array.shape[1]} columns, but {paths[0]} has {shapes[0][1]}; all files must "
                    "have the same columns"
                )
        n_columns = shapes[0][1]
        if n_columns <= (target is not None):
            raise ValueError(
                f"{paths[0]}: the number of columns is {n_columns}; at least one column besides the target is needed"
            )
        if target is not None and not (is_index(target) and -n_columns <= int(target) < n_columns):
            expected = f"for .npy files, y must be the index of a column, less than {n_columns}"
            raise ValueError(f"{paths[0]}: {expected}; got {target!r}")
        self._lengths = [shape[0] for shape in shapes]
        self._target = None if target is None else int(target) % n_columns
        self.n_features = n_columns - (target is not None)
        self._size = max(1024, CHUNK_BYTES // (8 * n_columns))

    @cached_property
    def n_rows(self) -> int:
        return sum(self._lengths)

    def _read(self) -> Iterator[tuple[str, int, Array, Array]]:
        for path, length in zip(self._paths, self._lengths, strict=True):
            for first in range(0, length, self._size):
                array = _memory_map(path)
                _check_unchanged(path, len(array), length)
                block = np.array(array[first : first + self._size])
                if self._target is None:
                    yield str(path), first, block, np.empty((len(block), 0))
                else:
                    X = np.delete(block, self._target, axis=1)
                    yield str(path), first, X, block[:, self._target : self._target + 1]


def _memory_map(path: Path) -> Array:
    try:
        return np.lib.format.open_memmap(path, mode="r")
    except Exception as error:  # NumPy raises errors of many types for a damaged header
        raise ValueError(
            f"{path}: not a readable .npy file of numbers ({error_summary(error)}); write it with numpy.save"
        ) from None


class ParquetSource(Source):
    """Reader of Parquet files, based on pyarrow."""

    def __init__(self, paths: Sequence[Path], target: Target | None, names: list[str] | None = None) -> None:
        super().__init__()
        types: list[dict[str, str]] = []  # for each file, a dictionary from column names to types
        self._lengths = []
        for path in paths:
            found, length = _parquet_types_and_length(path)
            types.append(found)
            self._lengths.append(length)
        columns = [list(found) for found in types]
        self._paths, self._target = list(paths), None if target is None else _target_name(target, columns[0], paths[0])
        self.names = _feature_names(names, columns[0], self._target, paths[0])
        _check_same_columns(paths, columns)
        self._used = [*self.names, *([] if self._target is None else [self._target])]
        for path, found in zip(paths, types, strict=True):
            for name in self._used:
                _check_numeric(path, name, found[name])
        self.n_features = len(self.names)
        self._size = max(1024, CHUNK_BYTES // (8 * len(columns[0])))

    @cached_property
    def n_rows(self) -> int:
        return sum(self._lengths)

    def _read(self) -> Iterator[tuple[str, int, Array, Array]]:
        for path, length in zip(self._paths, self._lengths, strict=True):
            first = 0
            with _open_parquet(path) as file:
                _check_unchanged(path, file.metadata.num_rows, length)
                batches = None
                while True:
                    try:
                        batches = file.iter_batches(self._size, columns=self._used) if batches is None else batches
                        batch = next(batches, None)
                        chunk = None if batch is None else _to_numpy(batch, self.names, self._target)
                    except Exception as error:  # pyarrow raises errors of many types for a damaged page
                        found = f"cannot be read after row {first} ({error_summary(error)}); write the file again"
                        raise ValueError(f"{path}: {found}") from error
                    if chunk is None:
                        break
                    yield str(path), first, *chunk
                    first += len(chunk[0])
            if first != length:
                raise ValueError(
                    f"{path}: the file contains {first} rows, but its footer says {length}; write the file again"
                )


def _open_parquet(path: Path) -> Any:
    """Open a Parquet file without a memory map and without read-ahead, to limit the memory use, and return it.

    ``buffer_size`` makes pyarrow read each column in small pieces. Without ``buffer_size``, pyarrow holds a whole row
    group in memory, and many programs write all rows into a single row group.
    """
    import pyarrow.parquet as parquet

    try:
        return parquet.ParquetFile(path, pre_buffer=False, buffer_size=_BUFFER_BYTES)
    except Exception as error:  # pyarrow raises errors of many types for a damaged footer
        raise ValueError(
            f"{path}: not a readable Parquet file ({error_summary(error)}); write the file again"
        ) from None


def _parquet_types_and_length(path: Path) -> tuple[dict[str, str], int]:
    """Return the column types of a Parquet file by name, and the number of rows according to its footer."""
    with _open_parquet(path) as file:  # close the file, since there may be thousands of files
        try:
            schema, metadata = file.schema_arrow, file.metadata
            names, types = list(schema.names), [str(type_) for type_ in schema.types]
            index = [name for name in (schema.pandas_metadata or {}).get("index_columns", []) if isinstance(name, str)]
            length = int(metadata.num_rows)
            group_lengths = [int(metadata.row_group(k).num_rows) for k in range(metadata.num_row_groups)]
        except Exception as error:  # for example, column names that are not UTF-8 or pandas metadata that is not JSON
            raise ValueError(f"{path}: cannot read the footer ({error_summary(error)}); write the file again") from None
    if length != sum(group_lengths) or min(group_lengths, default=0) < 0:
        found = f"the footer says {length} rows in total, but {sum(group_lengths)} rows in the row groups"
        raise ValueError(f"{path}: {found}; write the file again")
    _check_distinct(path, names)
    # Columns that pandas wrote for its index are not features.
    return {name: type_ for name, type_ in zip(names, types, strict=True) if name not in index}, length


class CSVSource(Source):
    """Reader of CSV files with a header, based on pyarrow. Only the features and the target are read."""

    def __init__(self, paths: Sequence[Path], target: Target | None, names: list[str] | None = None) -> None:
        super().__init__()
        self._paths, columns = list(paths), [_csv_header(path) for path in paths]
        self._target = None if target is None else _target_name(target, columns[0], paths[0])
        self.names = _feature_names(names, columns[0], self._target, paths[0])
        _check_same_columns(paths, columns)
        self._columns, self.n_features = columns[0], len(self.names)
        self._options: dict[Path, Any] = {}
        self._booleans: dict[Path, set[str]] = {}  # for each file, the names of the boolean columns

    def _read(self) -> Iterator[tuple[str, int, Array, Array]]:
        # The target can also be a feature, if `score` is called with a target column that was a feature in `fit`.
        used = list(dict.fromkeys([*(self.names or ()), *([] if self._target is None else [self._target])]))
        for path in self._paths:
            first, reader = 0, None
            while True:
                try:
                    reader = self._open(path, used) if reader is None else reader
                    X, Y = _to_numpy(reader.read_next_batch(), self.names, self._target)
                except StopIteration:
                    break
                except Exception as error:  # pyarrow raises errors of many types for invalid text
                    found = self._find_error(path, first, used)
                    found = found or f"cannot be read after row {first} ({error_summary(error)}); write the file again"
                    raise ValueError(f"{path}: {found}") from None
                yield str(path), first, X, Y
                first += len(X)

    def _open(self, path: Path, used: list[str]) -> Any:
        import pyarrow
        from pyarrow import csv as arrow

        blocks = arrow.ReadOptions(block_size=CHUNK_BYTES)
        if path not in self._options:
            guessed = arrow.open_csv(path, read_options=blocks).schema
            # Boolean columns are accepted. All other columns are read as float64, regardless of the type that pyarrow
            # infers from the first chunk.
            self._booleans[path] = {name for name in used if pyarrow.types.is_boolean(guessed.field(name).type)}
            types = {name: pyarrow.bool_() if name in self._booleans[path] else pyarrow.float64() for name in used}
            self._options[path] = arrow.ConvertOptions(column_types=types, include_columns=used)
        return arrow.open_csv(path, read_options=blocks, convert_options=self._options[path])

    def _find_error(self, path: Path, first: int, used: list[str]) -> str | None:
        """Return a description of the first invalid row at or after row ``first``, or None if no row is invalid."""
        try:
            with open(path, newline="", encoding="utf-8-sig") as file:
                for row, values in enumerate(csv.DictReader(file)):
                    if row < first:
                        continue
                    if None in values or None in values.values():
                        return (
                            f"row {row} does not have {len(self._columns)} columns, unlike the header; correct this row"
                        )
                    for name in used:
                        if not _is_number(values[name], booleans=name in self._booleans.get(path, used)):
                            value = quoted(values[name])
                            return f"column {quoted(name)} holds {value} in row {row}, but must hold numbers"
        except (csv.Error, ValueError, KeyError):  # the file is not CSV or not UTF-8, or it has changed
            pass
        return None


def _csv_header(path: Path) -> list[str]:
    with open(path, newline="", encoding="utf-8-sig") as file:
        try:
            names = next(csv.reader(file), [])
        except (csv.Error, UnicodeDecodeError) as error:
            raise ValueError(
                f"{path}: not a readable CSV file ({error_summary(error)}); save it as CSV in UTF-8"
            ) from None
    if not names:
        raise ValueError(f"{path}: the first line is empty; a CSV file must start with the column names")
    if all(_is_number(name, booleans=False) for name in names):
        raise ValueError(f"{path}: the first line holds numbers; a CSV file must start with the column names")
    _check_distinct(path, names)
    return names


def _is_number(text: str, booleans: bool) -> bool:
    """Return whether pyarrow reads the text as a number or a missing value, or as a boolean if ``booleans`` is true."""
    from pyarrow import csv as arrow

    known = arrow.ConvertOptions()
    if text in known.null_values:
        return True
    if booleans and (text in known.true_values or text in known.false_values):
        return True
    try:
        float(text)
    except ValueError:
        return False
    return True


_BY_SUFFIX: dict[str, Callable[[Sequence[Path], Target | None, list[str] | None], Source]] = {
    ".parquet": ParquetSource,
    ".pq": ParquetSource,
    ".csv": CSVSource,
    ".npy": NumpySource,
}


def open_source(X: Any, target: Target | None, names: list[str] | None = None) -> Source:
    """Return the reader of a path, a list of paths with the same extension, or a function that returns blocks.

    `target` is the name or index of the target column. It is None if there is no target, or if X is a function, whose
    blocks contain the targets. `names` are the feature columns, in the order in which they are read. None selects all
    columns except the target.
    """
    if callable(X):
        return BlockSource(X)
    paths = [Path(X)] if isinstance(X, str | Path) else [Path(path) for path in X]
    for path in paths:
        if not path.exists():
            remedy = "; for a pattern, pass sorted(glob.glob(...))" if "*" in str(path) else ""
            raise FileNotFoundError(f"{path}: there is no such file{remedy}")
        if not path.is_file():
            raise ValueError(f"{path}: not a file; for the files of a folder, pass a list of their paths")
    suffixes = {path.suffix.lower() for path in paths}
    if len(suffixes) != 1 or not suffixes <= set(_BY_SUFFIX):
        known, got = ", ".join(_BY_SUFFIX), ", ".join(sorted(suffixes))
        raise ValueError(f"files must all have the same extension, one of {known}; got {got}")
    (suffix,) = suffixes
    if suffix != ".npy":
        check_installed("pyarrow", "files", f"{suffix} files")
    return _BY_SUFFIX[suffix](paths, target, names)


def is_index(target: Any) -> bool:
    """Return whether the target is specified by an integer, the index of its column."""
    return isinstance(target, numbers.Integral) and not isinstance(target, bool)


def _check_unchanged(path: Path, found: int, expected: int) -> None:
    """Raise a ValueError if the number of rows of a file has changed."""
    if found != expected:
        raise ValueError(
            f"{path}: the file had {expected} rows and now has {found}; try again when no other process writes to it"
        )


def _check_distinct(path: Path, names: list[str]) -> None:
    if len(set(names)) < len(names):
        repeated = next(name for name, n in Counter(names).items() if n > 1)
        raise ValueError(f"{path}: two columns are called {quoted(repeated)}; rename one")


def _check_same_columns(paths: Sequence[Path], columns: list[list[str]]) -> None:
    for path, names in zip(paths, columns, strict=True):
        if names != columns[0]:
            raise ValueError(f"{path}: the columns differ from {paths[0]}; all files must have the same columns")


def _check_numeric(path: Path, name: str, type_: str) -> None:
    if not type_.startswith(("int", "uint", "float", "double", "halffloat", "bool", "decimal")):
        raise ValueError(f"{path}: column {quoted(name)} is not numeric ({type_[:40]}); encode or drop it first")


def _target_name(target: Target, names: list[str], path: Path) -> str:
    """Return the name of the target column, which is specified by its name or its index."""
    if is_index(target) and -len(names) <= int(target) < len(names):
        return names[int(target)]
    if target not in names:
        raise ValueError(f"{path}: there is no column {target!r}; the columns are {_joined(names)}")
    return str(target)


def _feature_names(wanted: list[str] | None, present: list[str], target: str | None, path: Path) -> list[str]:
    """Return the names of the feature columns: ``wanted``, or all columns except the target if ``wanted`` is None."""
    found = [name for name in present if name != target] if wanted is None else wanted
    if not found:
        raise ValueError(
            f"{path}: the number of columns is {len(present)}; at least one column besides the target is needed"
        )
    missing = sorted(set(found) - set(present))
    if missing:
        raise ValueError(f"{path}: there is no column {quoted(missing[0])}; the columns are {_joined(present)}")
    return found


def _joined(names: list[str]) -> str:
    """Return the names as a comma-separated list for an error message, truncated if the list is long."""
    found = ", ".join(names[:_MAX_NAMES]) or "none"
    short = len(found) <= _MAX_NAMES_LENGTH and len(names) <= _MAX_NAMES
    return found if short else f"{found[:_MAX_NAMES_LENGTH]}, ..."


def _to_numpy(batch: Any, names: list[str] | None, target: str | None) -> tuple[Array, Array]:
    """Return X and Y of an Arrow record batch. X is float32 if all its columns are float32, and float64 otherwise."""

    def column(name: str) -> Array:
        return batch.column(name).to_numpy(zero_copy_only=False)

    names = names or []
    is_float32 = bool(names) and all(column(name).dtype == np.float32 for name in names)
    X = np.empty((batch.num_rows, len(names)), dtype=np.float32 if is_float32 else np.float64)
    for k, name in enumerate(names):
        X[:, k] = column(name)
    if target is None:
        return X, np.empty((len(X), 0))
    return X, np.asarray(column(target), dtype=np.float64)[:, None]
