"""Reading of tables from CSV and Parquet files or from standard input, as a whole or in pieces.

CSV files may be gzip-compressed. They are parsed as strings, and every row must have the same number of cells as the
first line. After all rows have been read, `read_table` converts the columns that contain only numbers.
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
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from hkrr._base.checks import check_installed
from hkrr._base.error_text import error_summary, quoted
from hkrr.exceptions import TableError
from hkrr.tables.encoding import as_numbers, missing_mask

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

# Number of bytes of a CSV file that form one piece. A row must fit into one piece.
_PIECE_BYTES = 4 << 20
# Number of cells of a Parquet file that form one piece.
_PIECE_CELLS = 1 << 20
# Maximum number of columns of a table.
_MAX_COLUMNS = 20_000
# Maximum number of cells that `read_table` reads. As float64 numbers, this many cells take four gigabytes.
_MAX_CELLS = 500_000_000
# First bytes of common unsupported file formats, and the end of the error message for each format.
_FOREIGN_FORMATS = {
    b"PK\x03\x04": "a zip archive or an Excel workbook; save it as CSV",
    b"\x93NUMPY": "a NumPy array; save it as CSV",
}
_NOT_UTF8 = "the text is not valid UTF-8; save the file as CSV in UTF-8"
_DELIMITERS = ",;\t"


def read_table(source: str | os.PathLike[str]) -> pd.DataFrame:
    """Read a table from a file and return it as a data frame.

    Parameters
    ----------
    source : str or path
        Path of a CSV or Parquet file, or "-" to read either format from standard input. The format is detected from the
        contents of the file, not from its name. The cells of a CSV file may be separated by commas, semicolons or tabs,
        and the file may be gzip-compressed. With semicolons, numbers may have a decimal comma. The file must be encoded
        in UTF-8, or in UTF-16 with a byte order mark. Its first line contains the column names, unless this line
        contains only numbers. Such a line is read as a row, and the columns are named "column 1", "column 2" and so on.

    Returns
    -------
    pandas.DataFrame
        Columns whose values are all numbers are numeric. The other columns contain strings if the file is a CSV file,
        and keep their types if the file is a Parquet file. Empty cells, "NA" and similar strings are missing values.
        Spaces around column names are removed.

    Raises
    ------
    TableError
        If the file is not a valid table: it is empty, is neither text nor Parquet, has no rows, has rows of different
        lengths, has two columns of the same name, is too large, or is damaged. The message names the file.
    OSError
        If the file does not exist or cannot be read.

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
        if n_cells > _MAX_CELLS:
            raise TableError(
                f"{_name(source)}: the table has more than {_MAX_CELLS:,} cells; use fewer rows or columns"
            )
    frame = pd.concat(pieces, ignore_index=True) if len(pieces) > 1 else pieces[0]
    with _errors_name_source(source):
        return pd.DataFrame({name: _convert_texts(frame[name]) for name in frame.columns}, index=frame.index)


def read_pieces(source: str | os.PathLike[str]) -> Iterator[pd.DataFrame]:
    """Read a table from a file, and yield it in pieces of four megabytes (CSV) or about a million cells (Parquet).

    Parameters
    ----------
    source : str or path
        Path of a CSV or Parquet file, or "-" for standard input, as in `read_table`.

    Yields
    ------
    pandas.DataFrame
        The next rows of the table. The index is the position of each row in the whole table, counting from 0. All
        columns of a CSV file contain strings.
    """
    check_installed("pandas", "cli", "tables")
    check_installed("pyarrow", "cli", "tables")
    with _open(source) as (file, is_parquet):
        n_rows = 0
        with _errors_name_source(source):
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
def _errors_name_source(source: str | os.PathLike[str]) -> Iterator[None]:
    """Replace every error raised in the context by a TableError whose message begins with the name of the file."""
    try:
        yield
    except TableError as error:
        raise TableError(f"{_name(source)}: {error}") from None
    except Exception as error:  # pyarrow, gzip and pandas raise many kinds of errors for damaged files
        raise TableError(f"{_name(source)}: cannot be read as a table ({error_summary(error)})") from None


@contextmanager
def _open(source: str | os.PathLike[str]) -> Iterator[tuple[IO[bytes], bool]]:
    """Open a file, decompressing it if necessary, and yield it with a flag that is True for a Parquet file."""
    with _open_seekable(source) as raw:
        file: Any = raw
        if raw.read(2) == b"\x1f\x8b":
            raw.seek(0)
            file = gzip.GzipFile(fileobj=raw)
        else:
            raw.seek(0)
        with _errors_name_source(source):
            head = file.read(8)
            file.seek(0)
            for first_bytes, description in _FOREIGN_FORMATS.items():
                if head.startswith(first_bytes):
                    raise TableError(f"this is {description}")
            if not head.strip():
                raise TableError("the file is empty")
        yield file, head.startswith(b"PAR1")


@contextmanager
def _open_seekable(source: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open the source as a seekable file. Standard input is first copied to a temporary file."""
    if os.fspath(source) == "-":
        with tempfile.TemporaryFile() as spool:
            shutil.copyfileobj(sys.stdin.buffer, spool)
            spool.seek(0)
            yield spool
        return
    path = Path(source)
    if path.exists() and not path.is_file():
        raise TableError(f"{path}: this is a folder or a device, not a regular file")
    with open(path, "rb") as file:
        yield file


def _csv_pieces(file: IO[bytes]) -> Iterator[pd.DataFrame]:
    import pyarrow as pa
    from pyarrow import csv as arrow

    names, delimiter, encoding, has_header = _read_header(file)
    ragged_rows: list[Any] = []

    def record_ragged_row(row: Any) -> str:
        ragged_rows.append(row)
        return "error"

    read_options = arrow.ReadOptions(
        use_threads=False, block_size=_PIECE_BYTES, encoding=encoding, column_names=None if has_header else names
    )
    parse_options = arrow.ParseOptions(
        delimiter=delimiter, newlines_in_values=True, invalid_row_handler=record_ragged_row
    )
    convert_options = arrow.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False)
    try:
        with arrow.open_csv(file, read_options, parse_options, convert_options) as reader:
            for batch in reader:
                yield _as_frame(batch, [name.strip() for name in names], decimal_comma=delimiter == ";")
    except Exception as error:
        if ragged_rows:
            row = ragged_rows[0]
            line = "a line" if row.number is None else f"line {row.number}"
            cells = f"{row.actual_columns} cell{'' if row.actual_columns == 1 else 's'}"
            counts = f"{cells}, but the first line has {row.expected_columns}; correct this line"
            raise TableError(f"{line} ({quoted(row.text)}) has {counts}") from None
        if "invalid UTF8" in str(error):
            raise TableError(_NOT_UTF8) from None
        raise


def _read_header(file: IO[bytes]) -> tuple[list[str], str, str, bool]:
    """Return the column names, the delimiter, the encoding, and whether the first line contains the column names."""
    head = file.read(_PIECE_BYTES)
    file.seek(0)
    encoding = "utf-16" if head[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    if encoding != "utf-16" and b"\0" in head:
        raise TableError(
            "this is neither a CSV file nor a Parquet file (it contains null bytes); save the table as CSV"
        )
    try:
        text = head.decode(encoding)
    except UnicodeDecodeError as error:
        if len(head) < _PIECE_BYTES or error.start < len(head) - 4:
            raise TableError(_NOT_UTF8) from None
        text = head[: error.start].decode(encoding)  # the last character is cut in two by the end of the piece
    line = text.lstrip("\r\n").partition("\n")[0]
    delimiter = max(_DELIMITERS, key=lambda each: (line.count(each), each == ","))
    try:
        rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        names = next((row for row in rows if row), [])
    except csv.Error as error:
        raise TableError(f"the first line cannot be parsed ({error})") from None
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
        raise TableError("the table has no columns")
    if len(names) > _MAX_COLUMNS:
        raise TableError(f"the table has {len(names):,} columns, but at most {_MAX_COLUMNS:,} are supported; drop some")
    repeated = next((name for name, n in Counter(names).items() if n > 1), None)
    if repeated is not None:
        if repeated == "":
            raise TableError("two columns have no name; give each column a name")
        raise TableError(f"two columns are named {quoted(repeated)}; rename one")


def _as_frame(batch: pa.RecordBatch, names: list[str], decimal_comma: bool = False) -> pd.DataFrame:
    batch.validate(full=True)  # raises an error if the file is damaged
    frame = batch.to_pandas()
    frame.columns = [name or "(no name)" for name in names]
    if decimal_comma:
        frame = frame.apply(lambda texts: texts.str.replace(r"^(\s*[-+]?\d*),(\d+\s*)$", r"\1.\2", regex=True))
    return frame


def _parquet_pieces(file: IO[bytes]) -> Iterator[pd.DataFrame]:
    from pyarrow import parquet

    with parquet.ParquetFile(file, pre_buffer=False) as opened:
        metadata, schema = opened.metadata, opened.schema_arrow
        names = [name for name in schema.names if not name.startswith("__index_level_")]  # the pandas index
        _check_names([name.strip() for name in names])
        n_rows = 0
        for batch in opened.iter_batches(max(1, _PIECE_CELLS // len(names)), columns=names):
            n_rows += batch.num_rows
            # Ignore the metadata that pandas stores in Parquet files. The metadata may be wrong in a damaged file.
            yield _as_frame(batch.replace_schema_metadata(None), [name.strip() for name in names])
        if n_rows != metadata.num_rows:
            raise TableError(
                f"the file contains {n_rows:,} rows, but its metadata says {metadata.num_rows:,}; write the file again"
            )


def _convert_texts(series: pd.Series) -> pd.Series:
    """Convert a column of strings to numbers if all its values are numbers. Strings such as "NA" are missing values."""
    import pandas as pd

    if pd.api.types.infer_dtype(series, skipna=True) not in ("string", "empty"):
        return series
    is_missing = missing_mask(series)
    numbers, is_invalid = as_numbers(series, is_missing)
    if not np.any(is_invalid) and not np.all(is_missing):
        is_whole = not np.any(is_missing) and np.all(np.abs(numbers) < 2**53) and np.all(numbers == np.floor(numbers))
        return pd.Series(numbers.astype(np.int64) if is_whole else numbers, index=series.index)
    return series.str.strip().mask(is_missing)
