"""Parquet and CSV files, read through pyarrow in chunks of some thousand rows."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from hkrr._arrays import Array
from hkrr.rows import source
from hkrr.rows.source import Source, Target, check_unchanged, is_index

_BUFFER_BYTES = 1 << 20  # that are read of a column at once


class ParquetSource(Source):
    """Parquet files, through pyarrow."""

    def __init__(self, paths: Sequence[Path], target: Target | None, names: list[str] | None = None) -> None:
        super().__init__()
        import pyarrow.parquet as parquet

        schemas, self._lengths = [], []
        for path in paths:
            try:
                with parquet.ParquetFile(path) as file:  # closed again: there may be thousands
                    schemas.append(file.schema_arrow)
                    self._lengths.append(int(file.metadata.num_rows))
            except Exception as error:
                raise ValueError(f"{path}: this is no Parquet file that can be read ({error})") from None
        columns = [_without_index(schema) for schema in schemas]
        self._paths, self._target = list(paths), None if target is None else _named(target, columns[0], paths[0])
        self.names = _chosen(names, columns[0], self._target, paths[0])
        for path, names in zip(paths, columns, strict=True):
            _check_once(path, names)
            if names != columns[0]:
                raise ValueError(f"{path}: its columns differ from those of {paths[0]}; give files of one table")
        used = [*self.names, *([] if self._target is None else [self._target])]
        for path, schema in zip(paths, schemas, strict=True):
            for name in used:
                _check_kind(path, name, str(schema.field(name).type))
        self._used = used
        self.n_features = len(self.names)
        self._size = max(1024, source.CHUNK_BYTES // (8 * len(columns[0])))

    @cached_property
    def n_rows(self) -> int:
        return sum(self._lengths)

    def _read(self) -> Iterator[tuple[str, int, Array, Array]]:
        import pyarrow.parquet as parquet

        for path, length in zip(self._paths, self._lengths, strict=True):
            first = 0
            # Neither mapped nor buffered ahead, and a buffer for each column: without one pyarrow holds a whole row
            # group, and of many writers that is the whole file.
            with parquet.ParquetFile(path, pre_buffer=False, buffer_size=_BUFFER_BYTES) as file:
                check_unchanged(path, file.metadata.num_rows, length)
                batches = file.iter_batches(self._size, columns=self._used)
                while True:
                    try:
                        batch = next(batches, None)
                    except Exception as error:  # whatever pyarrow makes of a spoilt page
                        raise ValueError(f"{path}: cannot be read after row {first} ({error})") from error
                    if batch is None:
                        break
                    yield str(path), first, *_split(batch, self.names, self._target)
                    first += batch.num_rows


class CSVSource(Source):
    """CSV files with a header, through pyarrow. What is used of them is read as numbers."""

    def __init__(self, paths: Sequence[Path], target: Target | None, names: list[str] | None = None) -> None:
        super().__init__()
        self._paths, columns = list(paths), [_header(path) for path in paths]
        self._target = None if target is None else _named(target, columns[0], paths[0])
        self.names = _chosen(names, columns[0], self._target, paths[0])
        for path, there in zip(paths, columns, strict=True):
            _check_once(path, there)
            if there != columns[0]:
                raise ValueError(f"{path}: its columns differ from those of {paths[0]}; give files of one table")
        self._columns, self.n_features = columns[0], len(self.names)
        self._options: dict[Path, Any] = {}
        self._truths: dict[Path, set[str]] = {}  # columns of true and false, by file

    def _read(self) -> Iterator[tuple[str, int, Array, Array]]:
        import pyarrow

        # The target may be one of the columns, where a model is scored that was fitted with it.
        used = list(dict.fromkeys([*(self.names or ()), *([] if self._target is None else [self._target])]))
        for path in self._paths:
            first, reader = 0, None
            while True:
                try:
                    reader = self._reader(path, used) if reader is None else reader
                    batch = reader.read_next_batch()
                except StopIteration:
                    break
                except pyarrow.ArrowInvalid as error:
                    raise ValueError(self._explained(path, first, used, str(error))) from None
                yield str(path), first, *_split(batch, self.names, self._target)
                first += batch.num_rows

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

    def _explained(self, path: Path, first: int, used: list[str], message: str) -> str:
        """Return pyarrow's message with the file, the row and the column, where a row is found that explains it."""
        with open(path, newline="", encoding="utf-8-sig") as file:
            for row, values in enumerate(csv.DictReader(file)):
                if row < first:
                    continue
                if None in values or None in values.values():
                    n = len(self._columns)
                    return f"{path}: row {row} has not as many columns as the header, {n}"
                for name in used:
                    if not _is_number(values[name], truths=name in self._truths.get(path, used)):
                        return f"{path}: column {name!r} holds {values[name]!r} in row {row}, which is no number"
        return f"{path}: after row {first}: {message}"


def _header(path: Path) -> list[str]:
    with open(path, newline="", encoding="utf-8-sig") as file:
        try:
            names = next(csv.reader(file), [])
        except (csv.Error, UnicodeDecodeError) as error:
            raise ValueError(f"{path}: this is no CSV file that can be read ({error})") from None
    if not names:
        raise ValueError(f"{path}: its first line is empty; a CSV file begins with the names of its columns")
    if all(_is_number(name, truths=False) for name in names):
        raise ValueError(f"{path}: its first line holds numbers; a CSV file begins with the names of its columns")
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


def _without_index(schema: Any) -> list[str]:
    """Return the names of a table's columns, without those that pandas wrote for its index."""
    index = [name for name in (schema.pandas_metadata or {}).get("index_columns", []) if isinstance(name, str)]
    return [name for name in schema.names if name not in index]


def _check_once(path: Path, names: list[str]) -> None:
    repeated = [name for name in names if names.count(name) > 1]
    if repeated:
        raise ValueError(f"{path}: two columns are called {repeated[0]!r}; rename one")


def _named(target: Target, names: list[str], path: Path) -> str:
    if is_index(target) and -len(names) <= int(target) < len(names):
        return names[int(target)]
    if target not in names:
        raise ValueError(f"{path}: there is no column {target!r}; there are {', '.join(names)}")
    return str(target)


def _chosen(wanted: list[str] | None, there: list[str], target: str | None, path: Path) -> list[str]:
    """Return the columns of X: those wanted, or all but the target."""
    if wanted is None:
        return [name for name in there if name != target]
    missing = [name for name in wanted if name not in there]
    if missing:
        raise ValueError(f"{path}: there is no column {missing[0]!r}; there are {', '.join(there)}")
    return wanted


def _check_kind(path: Path, name: str, kind: str) -> None:
    if not kind.startswith(("int", "uint", "float", "double", "halffloat", "bool", "decimal")):
        raise ValueError(f"{path}: column {name!r} is no column of numbers ({kind}); encode it first, or drop it")


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
