"""Tables as people have them: CSV (packed with gzip or not) and Parquet files, or standard input, whole or in pieces.

A CSV file is read as text, strictly: all rows have as many cells as the header. What the texts mean is found out when
all of a column is there.
"""

from __future__ import annotations

import csv
import gzip
import io
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from hkrr._validation import check_installed
from hkrr.columns import as_numbers, missing_in
from hkrr.exceptions import TableError
from hkrr.rows.source import reason, shown

_PIECE_BYTES = 4 << 20  # of a CSV file; a row must fit into one
_PIECE_CELLS = 1 << 20  # of a Parquet file
_MOST_COLUMNS = 20_000
_MOST_CELLS = 500_000_000  # of a table that is read whole: four gigabytes of numbers
_MARKS = {b"PK\x03\x04": "a zip archive or an Excel workbook: save it as CSV", b"\x93NUMPY": "a NumPy array"}
_NO_UTF8 = "this is no text in UTF-8: save it as CSV in UTF-8"
_DELIMITERS = ",;\t"


def read_table(source: str | os.PathLike[str]) -> Any:
    """Return the table of a file as a pandas data frame.

    Parameters
    ----------
    source : str or path
        A CSV file (``.tsv`` and semicolons too; packed with gzip or not), a Parquet file, or "-": either of them, from
        standard input. What it is shows in its bytes, whatever its name. A CSV file is written in UTF-8, or UTF-16
        with its mark. Its first line has the names of its columns; where all it has is numbers it is a row, and the
        columns are called "column 1", "column 2" and so on.

    Returns
    -------
    pandas.DataFrame
        Columns whose values are all numbers are such; other columns of a CSV file are texts. Empty cells, "NA" and the
        like are missing values. Names are without spaces around them.

    Raises
    ------
    TableError
        Where it is no table: empty, without rows, with rows of different lengths, two columns of one name, not text, or
        damaged. The message names the file.
    OSError
        Where there is no such file, or it must not be read.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from hkrr.tables import read_table
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "houses.csv")
    ...     _ = path.write_text("area, town\\n71.5, Trento\\nNA, Genova\\n")
    ...     frame = read_table(path)
    >>> frame.to_dict("list")
    {'area': [71.5, nan], 'town': ['Trento', 'Genova']}
    """
    import pandas as pd

    pieces, n_cells = [], 0
    for piece in read_pieces(source):
        pieces.append(piece)
        n_cells += piece.size
        if n_cells > _MOST_CELLS:
            raise TableError(f"{_name(source)}: more than {_MOST_CELLS:,} values; give fewer rows or columns")
    frame = pd.concat(pieces, ignore_index=True) if len(pieces) > 1 else pieces[0]
    with _explained(source):
        return pd.DataFrame({name: _typed(frame[name]) for name in frame.columns}, index=frame.index)


def read_pieces(source: str | os.PathLike[str]) -> Iterator[Any]:
    """Yield the table of a file in data frames of some thousand rows, numbered on; those of a CSV file hold texts.

    Parameters
    ----------
    source : as in `read_table`

    Yields
    ------
    pandas.DataFrame
    """
    check_installed("pandas", "cli", "tables")
    check_installed("pyarrow", "cli", "tables")
    with _opened(source) as (file, is_parquet):
        n_rows = 0
        with _explained(source):
            for piece in _parquet_pieces(file) if is_parquet else _csv_pieces(file):
                piece.index = range(n_rows, n_rows + len(piece))
                n_rows += len(piece)
                if len(piece):
                    yield piece
        if n_rows == 0:
            raise TableError(f"{_name(source)}: the table has no rows")


def _name(source: str | os.PathLike[str]) -> str:
    return "standard input" if os.fspath(source) == "-" else os.fspath(source)


@contextmanager
def _explained(source: str | os.PathLike[str]) -> Iterator[None]:
    """Name the file in errors, whichever library has them."""
    try:
        yield
    except TableError as error:
        raise TableError(f"{_name(source)}: {error}") from None
    except Exception as error:  # whatever pyarrow, gzip and pandas make of bytes that are no table
        raise TableError(f"{_name(source)}: cannot be read as a table ({reason(error)})") from None


@contextmanager
def _opened(source: str | os.PathLike[str]) -> Iterator[tuple[IO[bytes], bool]]:
    """Give the file, unpacked, and whether it is Parquet."""
    with _raw(source) as raw:
        file: Any = raw
        if raw.read(2) == b"\x1f\x8b":
            raw.seek(0)
            file = gzip.GzipFile(fileobj=raw)
        else:
            raw.seek(0)
        with _explained(source):
            head = file.read(8)
            file.seek(0)
            for mark, what in _MARKS.items():
                if head.startswith(mark):
                    raise TableError(f"this is {what}")
            if not head.strip():
                raise TableError("the file is empty")
        yield file, head.startswith(b"PAR1")


@contextmanager
def _raw(source: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Give a file that can be read from its beginning again: standard input through one on disk."""
    if os.fspath(source) == "-":
        with tempfile.TemporaryFile() as spool:
            shutil.copyfileobj(sys.stdin.buffer, spool)
            spool.seek(0)
            yield spool
        return
    path = Path(source)
    if path.exists() and not path.is_file():
        raise TableError(f"{path}: this is no file")
    with open(path, "rb") as file:
        yield file


def _csv_pieces(file: IO[bytes]) -> Iterator[Any]:
    from pyarrow import csv as arrow

    names, delimiter, encoding, has_header = _header(file)
    ragged: list[Any] = []

    def note(row: Any) -> str:
        ragged.append(row)
        return "error"

    reading = arrow.ReadOptions(
        use_threads=False, block_size=_PIECE_BYTES, encoding=encoding, column_names=None if has_header else names
    )
    parsing = arrow.ParseOptions(delimiter=delimiter, newlines_in_values=True, invalid_row_handler=note)
    converting = arrow.ConvertOptions(column_types=_all_text(names), strings_can_be_null=False)
    try:
        with arrow.open_csv(file, reading, parsing, converting) as reader:
            for batch in reader:
                yield _as_frame(batch, [name.strip() for name in names], decimal_comma=delimiter == ";")
    except Exception as error:
        if ragged:
            row = ragged[0]
            number = "a row" if row.number is None else f"line {row.number}"
            found = f"{row.actual_columns} cells, and the first line {row.expected_columns}"
            raise TableError(f"{number} has {found}: {shown(row.text)}") from None
        if "invalid UTF8" in str(error):
            raise TableError(_NO_UTF8) from None
        raise


def _all_text(names: list[str]) -> dict[str, Any]:
    import pyarrow

    return dict.fromkeys(names, pyarrow.string())


def _header(file: IO[bytes]) -> tuple[list[str], str, str, bool]:
    """Return the names of the columns, what is between them, the encoding, and whether the names stand there."""
    head = file.read(_PIECE_BYTES)
    file.seek(0)
    encoding = "utf-16" if head[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    if encoding != "utf-16" and b"\0" in head:
        raise TableError("this is no text: neither a CSV file nor a Parquet file")
    try:
        text = head.decode(encoding)
    except UnicodeDecodeError as error:
        if len(head) < _PIECE_BYTES or error.start < len(head) - 4:  # and not a character that the piece's end has cut
            raise TableError(_NO_UTF8) from None
        text = head[: error.start].decode(encoding)
    line = text.lstrip("\r\n").partition("\n")[0]
    delimiter = max(_DELIMITERS, key=lambda each: (line.count(each), each == ","))
    try:
        rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        names = next((row for row in rows if row), [])
    except csv.Error as error:
        raise TableError(f"its first line cannot be read ({error})") from None
    has_header = not all(map(_is_number, names))
    if not has_header:
        names = [f"column {k}" for k in range(1, len(names) + 1)]
    _check_names([name.strip() for name in names])
    return names, delimiter, "utf-16" if encoding == "utf-16" else "utf-8", has_header


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _check_names(names: list[str]) -> None:
    if not names:
        raise TableError("it has no columns")
    if len(names) > _MOST_COLUMNS:
        raise TableError(f"it has {len(names):,} columns; {_MOST_COLUMNS:,} are the most")
    repeated = next((name for name, n in Counter(names).items() if n > 1), None)
    if repeated is not None:
        what = "have no name" if repeated == "" else f"are called {shown(repeated)}"
        raise TableError(f"two columns {what}; rename one")


def _as_frame(batch: Any, names: list[str], decimal_comma: bool = False) -> Any:
    batch.validate(full=True)  # before anything is made of what a file says
    frame = batch.to_pandas()
    frame.columns = [name or "(no name)" for name in names]
    if decimal_comma:
        frame = frame.apply(lambda texts: texts.str.replace(r"^(\s*[-+]?\d*),(\d+\s*)$", r"\1.\2", regex=True))
    return frame


def _parquet_pieces(file: IO[bytes]) -> Iterator[Any]:
    from pyarrow import parquet

    with parquet.ParquetFile(file, pre_buffer=False) as opened:
        metadata, schema = opened.metadata, opened.schema_arrow
        names = [name for name in schema.names if not name.startswith("__index_level_")]  # of pandas
        _check_names([name.strip() for name in names])
        n_rows = 0
        for batch in opened.iter_batches(max(1, _PIECE_CELLS // len(names)), columns=names):
            n_rows += batch.num_rows
            # What pandas wrote of its own into the file is left alone: whoever wrote it.
            yield _as_frame(batch.replace_schema_metadata(None), [name.strip() for name in names])
        if n_rows != metadata.num_rows:
            raise TableError(f"it has {n_rows:,} rows, and says that it has {metadata.num_rows:,}; write it again")


def _typed(series: Any) -> Any:
    """Return a column of texts as numbers, where all of them are; what says that it is missing is missing."""
    import pandas as pd

    if pd.api.types.infer_dtype(series, skipna=True) not in ("string", "empty"):
        return series
    is_missing = missing_in(series)
    numbers, wrong = as_numbers(series, is_missing)
    if not np.any(wrong) and not np.all(is_missing):
        whole = not np.any(is_missing) and np.all(np.abs(numbers) < 2**53) and np.all(numbers == np.floor(numbers))
        return pd.Series(numbers.astype(np.int64) if whole else numbers, index=series.index)
    return series.str.strip().mask(is_missing)
