"""Test that CSV and Parquet files of many forms are read, and that errors are one line that names the file."""

import gzip
import io
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pandas.testing import assert_frame_equal

import hkrr
from hkrr.tables import read_pieces, read_table, reading
from support.house_table import table

PLAIN = "area,town\n71.5,Trento\n,Genova\n"
EXPECTED = {"area": [71.5, None], "town": ["Trento", "Genova"]}


def _read(folder, data, name="table.csv"):
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return read_table(path)


def _as_lists(frame):
    return {name: [None if pd.isna(value) else value for value in frame[name]] for name in frame.columns}


@pytest.mark.parametrize(
    "data",
    [
        PLAIN.encode(),
        PLAIN.replace("\n", "\r\n").encode("utf-8-sig"),
        PLAIN.encode("utf-16"),
        PLAIN.rstrip("\n").encode(),
        b'"area" , town\n 71.5 ," Trento"\n"",Genova\n',
        b"area,town\n71.5,Trento\nNA,Genova\n",
        b"\n\narea,town\n71.5,Trento\n\nnull,Genova\n",
        b"area;town\n71,5;Trento\n;Genova\n",
        b"area\ttown\n71.5\tTrento\n\tGenova\n",
        gzip.compress(PLAIN.encode()),
    ],
    ids=["plain", "windows", "utf-16", "no final newline", "quoted", "NA", "empty lines", "semicolons", "tabs", "gzip"],
)
def test_csv_dialects_and_encodings(tmp_path, data):
    assert _as_lists(_read(tmp_path, data)) == EXPECTED


def test_a_cell_may_hold_commas_quotes_and_lines(tmp_path):
    frame = _read(tmp_path, 'a,b\n"x, ""y""\nz",1\n')
    assert _as_lists(frame) == {"a": ['x, "y"\nz'], "b": [1]}


def test_columns_of_numbers_are_numeric_and_others_are_texts(tmp_path):
    frame = _read(
        tmp_path, "whole,real,huge,words,truth,day\n1,1.5,1e300,?,true,2024-03-01\n-2,2,3,7,false,2024-03-02\n"
    )
    kinds = [frame[name].dtype.kind for name in frame.columns]
    assert kinds[:3] == ["i", "f", "f"]
    assert _as_lists(frame)["words"] == ["?", "7"]
    assert _as_lists(frame)["truth"] == ["true", "false"]
    assert _as_lists(frame)["day"] == ["2024-03-01", "2024-03-02"]


def test_parquet_files_keep_their_types(tmp_path):
    frame = table(30).drop(columns="empty").assign(day=pd.to_datetime("2024-03-01"), is_new=True)
    frame.to_parquet(tmp_path / "table.data")  # the format is detected from the contents
    found = read_table(tmp_path / "table.data")
    assert_frame_equal(found, frame, check_dtype=False)
    assert found["is_new"].dtype == bool
    assert found["day"].dtype.kind == "M"


def test_an_unnamed_index_is_not_a_column(tmp_path):
    table(30).set_index(np.arange(30)[::-1]).to_parquet(tmp_path / "table.parquet")
    assert list(read_table(tmp_path / "table.parquet").columns) == list(table(30).columns)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_standard_input(monkeypatch, kind):
    file = io.BytesIO()
    table(20).to_csv(file, index=False) if kind == "csv" else table(20).to_parquet(file)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(file.getvalue())))
    assert len(read_table("-")) == 20
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    with pytest.raises(hkrr.TableError, match=r"^standard input: the file is empty$"):
        read_table("-")


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_pieces_add_up_to_the_table(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(reading, "_PIECE_BYTES", 1000)
    monkeypatch.setattr(reading, "_PIECE_CELLS", 100)
    path = tmp_path / "table"
    table(100).to_csv(path, index=False) if kind == "csv" else table(100).to_parquet(path)
    pieces = list(read_pieces(path))
    assert len(pieces) > 5
    assert list(pd.concat(pieces).index) == list(range(100))
    again = pd.concat(pieces)["owner"]
    assert list(again) == list(table(100)["owner"])
    assert_frame_equal(read_table(path), read_table(path))


def test_a_first_line_of_numbers_is_a_row(tmp_path):
    path = tmp_path / "numbers.csv"
    path.write_text("1, 2.5\n3,-4e1\n\n5,6\n")
    assert _as_lists(read_table(path)) == {"column 1": [1, 3, 5], "column 2": [2.5, -40.0, 6.0]}


BAD = {
    "empty": (b"", "the file is empty"),
    "spaces": (b"  \n\n", "the file is empty"),
    "header only": (b"a,b\n", "the table has no rows"),
    "long row": (b"a,b\n1,2\n1,2,3\n", "line 3 ('1,2,3') has 3 cells, but the first line has 2"),
    "short row": (b"a,b\n1\n", "line 2 ('1') has 1 cell, but the first line has 2"),
    "duplicate name": (b"a,b, a\n1,2,3\n", "two columns are named 'a'; rename one"),
    "two empty names": (b"a,,\n1,2,3\n", "two columns have no name; give each column a name"),
    "latin": ("a,b\né,1\n".encode("latin-1"), "not valid UTF-8; save the file as CSV in UTF-8"),
    "bytes": (bytes(range(256)) * 9, "neither a CSV file nor a Parquet file"),
    "null bytes": (b"a,b\n1,\0\n", "neither a CSV file nor a Parquet file (it contains null bytes)"),
    "excel": (b"PK\x03\x04 and more", "an Excel workbook; save it as CSV"),
    "npy": (b"\x93NUMPY and more", "a NumPy array"),
    "truncated gzip": (gzip.compress(PLAIN.encode() * 99)[:-20], "cannot be read as a table"),
    "truncated parquet": (b"PAR1 and more", "cannot be read as a table"),
    "open quote": (b'a,b\n"1,2\n', ""),
    "too many columns": (
        b",".join(b"c%d" % k for k in range(20_001)) + b"\n",
        "at most 20,000 are supported",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_invalid_files_are_refused(tmp_path, case):
    data, message = BAD[case]
    with pytest.raises(hkrr.TableError) as raised:
        _read(tmp_path, data)
    text = str(raised.value)
    assert text.startswith(f"{tmp_path / 'table.csv'}: ")
    assert message in text
    assert "\n" not in text
    assert len(text) < 600


def test_missing_files_and_folders_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_table(tmp_path / "none.csv")
    with pytest.raises(hkrr.TableError, match="not a regular file"):
        read_table(tmp_path)


def test_too_many_cells_are_refused(tmp_path, monkeypatch):
    """Test that a table with too many cells is refused. A small compressed Parquet file can contain such a table."""
    monkeypatch.setattr(reading, "_MAX_CELLS", 1000)
    pq.write_table(pa.table({"a": np.zeros(2000)}), tmp_path / "table.parquet")
    with pytest.raises(hkrr.TableError, match="more than 1,000 cells"):
        read_table(tmp_path / "table.parquet")


def test_a_missing_package_is_an_error_with_the_install_command(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'hkrr\[cli\]'"):
        _read(tmp_path, PLAIN)
