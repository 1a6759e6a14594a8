"""Parquet and CSV files, read through pyarrow in chunks of some thousand rows."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from hkrr._arrays import Array
from hkrr.rows import source
from hkrr.rows.source import Source, Target, check_unchanged, is_index, reason, shown

# Names, and characters, of the columns that an error lists.
_LISTED, _LISTED_LETTERS = 50, 500

_BUFFER_BYTES = 1 << 20  # that are read of a column at once


class ParquetSource(Source):
    """Parquet files, through pyarrow."""

    def __init__(self, paths: Sequence[Path], target: Target | None, names: list[str] | None = None) -> None:
        super().__init__()
        kinds: list[dict[str, str]] = []  # of the columns, by name
        self._lengths = []
        for path in paths:
            found, length = _kinds_and_length(path)
            kinds.append(found)
            self._lengths.append(length)
        columns = [list(found) for found in kinds]
        self._paths, self._target = list(paths), None if target is None else _named(target, columns[0], paths[0])
        self.names = _chosen(names, columns[0], self._target, paths[0])
        _check_alike(paths, columns)
        self._used = [*self.names, *([] if self._target is None else [self._target])]
        for path, found in zip(paths, kinds, strict=True):
            for name in self._used:
                _check_kind(path, name, found[name])
        self.n_features = len(self.names)
        self._size = max(1024, source.CHUNK_BYTES // (8 * len(columns[0])))

    @cached_property
    def n_rows(self) -> int:
        return sum(self._lengths)

    def _read(self) -> Iterator[tuple[str, int, Array, Array]]:
        for path, length in zip(self._paths, self._lengths, strict=True):
            first = 0
            with _parquet(path) as file:
                check_unchanged(path, file.metadata.num_rows, length)
                batches = None
                while True:
                    try:
                        batches = file.iter_batches(self._size, columns=self._used) if batches is None else batches
                        batch = next(batches, None)
                        chunk = None if batch is None else _split(batch, self.names, self._target)
                    except Exception as error:  # whatever pyarrow makes of a spoilt page
                        found = f"cannot be read after row {first} ({reason(error)}); write it again"
                        raise ValueError(f"{path}: {found}") from error
                    if chunk is None:
                        break
                    yield str(path), first, *chunk
                    first += len(chunk[0])
            if first != length:
                raise ValueError(f"{path}: it has {first} rows, and says that it has {length}; write it again")


class CSVSource(Source):
    """CSV files with a header, through pyarrow. What is used of them is read as numbers."""

    def __init__(self, paths: Sequence[Path], target: Target | None, names: list[str] | None = None) -> None:
        super().__init__()
        self._paths, columns = list(paths), [_header(path) for path in paths]
        self._target = None if target is None else _named(target, columns[0], paths[0])
        self.names = _chosen(names, columns[0], self._target, paths[0])
        _check_alike(paths, columns)
        self._columns, self.n_features = columns[0], len(self.names)
        self._options: dict[Path, Any] = {}
        self._truths: dict[Path, set[str]] = {}  # columns of true and false, by file

    def _read(self) -> Iterator[tuple[str, int, Array, Array]]:
        # The target may be one of the columns, where a model is scored that was fitted with it.
        used = list(dict.fromkeys([*(self.names or ()), *([] if self._target is None else [self._target])]))
        for path in self._paths:
            first, reader = 0, None
            while True:
                try:
                    reader = self._reader(path, used) if reader is None else reader
                    X, Y = _split(reader.read_next_batch(), self.names, self._target)
                except StopIteration:
                    break
                except Exception as error:  # whatever pyarrow makes of it
                    found = self._explained(path, first, used) or f"cannot be read after row {first} ({reason(error)})"
                    raise ValueError(f"{path}: {found}") from None
                yield str(path), first, X, Y
                first += len(X)

    def _reader(self, path: Path, used: list[str]) -> Any:
        import pyarrow
        from pyarrow import csv as arrow

        blocks = arrow.ReadOptions(block_size=source.CHUNK_BYTES)
        if path not in self._options:
            guessed = arrow.open_csv(path, read_options=blocks).schema
            # Truths are numbers too; all else is read as numbers, whatever the first chunk looks like.
            self._truths[path] = {name for name in used if pyarrow.types.is_boolean(guessed.field(name).type)}
            kinds = {name: pyarrow.bool_() if name in self._truths[path] else pyarrow.float64() for name in used}
            self._options[path] = arrow.ConvertOptions(column_types=kinds, include_columns=used)
        return arrow.open_csv(path, read_options=blocks, convert_options=self._options[path])

    def _explained(self, path: Path, first: int, used: list[str]) -> str | None:
        """Return what is wrong with which row and column, where a row is found that explains an error."""
        try:
            with open(path, newline="", encoding="utf-8-sig") as file:
                for row, values in enumerate(csv.DictReader(file)):
                    if row < first:
                        continue
                    if None in values or None in values.values():
                        return f"row {row} has not as many columns as the header, {len(self._columns)}"
                    for name in used:
                        if not _is_number(values[name], truths=name in self._truths.get(path, used)):
                            wrong = f"{shown(values[name])} in row {row}, which is no number"
                            return f"column {shown(name)} holds {wrong}"
        except (csv.Error, ValueError, KeyError):  # it is no table, text or the one that was opened
            pass
        return None


def _header(path: Path) -> list[str]:
    with open(path, newline="", encoding="utf-8-sig") as file:
        try:
            names = next(csv.reader(file), [])
        except (csv.Error, UnicodeDecodeError) as error:
            raise ValueError(f"{path}: this is no CSV file that can be read ({reason(error)})") from None
    if not names:
        raise ValueError(f"{path}: its first line is empty; a CSV file begins with the names of its columns")
    if all(_is_number(name, truths=False) for name in names):
        raise ValueError(f"{path}: its first line holds numbers; a CSV file begins with the names of its columns")
    _check_once(path, names)
    return names


def _is_number(text: str, truths: bool) -> bool:
    """Whether pyarrow takes it for a number, or for a missing one; in what may be a column of truths, for those."""
    from pyarrow import csv as arrow

    known = arrow.ConvertOptions()
    if text in known.null_values:
        return True
    if truths and (text in known.true_values or text in known.false_values):
        return True
    try:
        float(text)
    except ValueError:
        return False
    return True


def _parquet(path: Path) -> Any:
    """Return an open Parquet file, neither mapped nor buffered ahead: what was read does not stay resident.

    With a buffer for each column: without one pyarrow holds a whole row group, and of many writers that is all rows.
    """
    import pyarrow.parquet as parquet

    try:
        return parquet.ParquetFile(path, pre_buffer=False, buffer_size=_BUFFER_BYTES)
    except Exception as error:  # whatever pyarrow makes of a spoilt footer
        raise ValueError(f"{path}: this is no Parquet file that can be read ({reason(error)})") from None


def _kinds_and_length(path: Path) -> tuple[dict[str, str], int]:
    """Return the kinds of a Parquet file's columns, by name, and how many rows it says that it has."""
    with _parquet(path) as file:  # closed again: there may be thousands
        try:
            schema, metadata = file.schema_arrow, file.metadata
            names, kinds = list(schema.names), [str(kind) for kind in schema.types]
            index = [name for name in (schema.pandas_metadata or {}).get("index_columns", []) if isinstance(name, str)]
            length = int(metadata.num_rows)
            in_groups = [int(metadata.row_group(k).num_rows) for k in range(metadata.num_row_groups)]
        except Exception as error:  # a name that is no text, pandas' metadata that are no JSON
            raise ValueError(f"{path}: its footer cannot be read ({reason(error)}); write it again") from None
    if length != sum(in_groups) or min(in_groups, default=0) < 0:
        raise ValueError(f"{path}: it says that it has {length} rows, and {sum(in_groups)} in groups; write it again")
    _check_once(path, names)
    # Without the columns that pandas wrote for its index.
    return {name: kind for name, kind in zip(names, kinds, strict=True) if name not in index}, length


def _check_once(path: Path, names: list[str]) -> None:
    if len(set(names)) < len(names):
        repeated = next(name for name, n in Counter(names).items() if n > 1)
        raise ValueError(f"{path}: two columns are called {shown(repeated)}; rename one")


def _check_alike(paths: Sequence[Path], columns: list[list[str]]) -> None:
    for path, names in zip(paths, columns, strict=True):
        if names != columns[0]:
            raise ValueError(f"{path}: its columns differ from those of {paths[0]}; give files of one table")


def _named(target: Target, names: list[str], path: Path) -> str:
    if is_index(target) and -len(names) <= int(target) < len(names):
        return names[int(target)]
    if target not in names:
        raise ValueError(f"{path}: there is no column {target!r}; there are {_listed(names)}")
    return str(target)


def _chosen(wanted: list[str] | None, there: list[str], target: str | None, path: Path) -> list[str]:
    """Return the columns of X: those wanted, or all but the target."""
    found = [name for name in there if name != target] if wanted is None else wanted
    if not found:
        raise ValueError(f"{path}: {len(there)} columns; there must be one at least, beside the target")
    missing = sorted(set(found) - set(there))
    if missing:
        raise ValueError(f"{path}: there is no column {shown(missing[0])}; there are {_listed(there)}")
    return found


def _listed(names: list[str]) -> str:
    found = ", ".join(names[:_LISTED]) or "none"
    return found if len(found) <= _LISTED_LETTERS and len(names) <= _LISTED else f"{found[:_LISTED_LETTERS]}, ..."


def _check_kind(path: Path, name: str, kind: str) -> None:
    if not kind.startswith(("int", "uint", "float", "double", "halffloat", "bool", "decimal")):
        raise ValueError(
            f"{path}: column {shown(name)} is no column of numbers ({kind[:40]}); encode it first, or drop it"
        )


def _split(batch: Any, names: list[str] | None, target: str | None) -> tuple[Array, Array]:
    """Return X and Y of a batch of Arrow's."""

    def column(name: str) -> Array:
        return batch.column(name).to_numpy(zero_copy_only=False)

    X = np.empty((batch.num_rows, len(names or ())), dtype=_common([column(name).dtype for name in names or ()]))
    for k, name in enumerate(names or ()):
        X[:, k] = column(name)
    if target is None:
        return X, np.empty((len(X), 0))
    return X, np.asarray(column(target), dtype=np.float64)[:, None]


def _common(kinds: list[Any]) -> Any:
    """Return float32 where all columns are, float64 otherwise."""
    return np.float32 if kinds and all(kind == np.float32 for kind in kinds) else np.float64
