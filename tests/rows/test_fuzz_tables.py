"""Tests of damaged or inconsistent tables: reading raises an error that names the file, or returns finite numbers."""

import os
import re
import tempfile
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hkrr.rows.file_readers import open_source
from support.mutated_tables import KINDS, PANDAS_METADATA, as_parquet, mutated, originals, outcome
from support.platforms import posix_only


def _target(kind):
    return -1 if kind == "npy" else "yy"


def _refused(path, *parts):
    """Check that reading the file raises a ValueError that contains its path and the parts."""
    with pytest.raises(ValueError, match=re.escape(str(path))) as caught:
        list(open_source(path, _target(path.suffix[1:])).chunks())
    assert type(caught.value) is ValueError  # not a subclass such as pyarrow.ArrowInvalid or UnicodeDecodeError
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize("kind", KINDS)
def test_the_unmodified_files_are_valid(tmp_path, kind):
    for k, data in enumerate(originals(kind)):
        path = tmp_path / f"{k}.{kind}"
        path.write_bytes(data)
        if (kind, k) == ("parquet", 6):
            _refused(path, "column 'cc' holds NaN (a missing value?) in row 3")  # this file contains a missing boolean
        else:
            assert outcome(path, _target(kind)) == "read"


@settings(max_examples=300, deadline=None)
@given(kind=st.sampled_from(KINDS), seed=st.integers(0, 2**32), by_index=st.booleans())
def test_mutated_tables_are_rejected_or_valid(kind, seed, by_index):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"table.{kind}")
        path.write_bytes(mutated(kind, Random(seed))[1])
        assert outcome(path, 0 if by_index else _target(kind)) in ("read", "refused")


@pytest.mark.parametrize("kind", KINDS)
def test_folders_are_rejected(tmp_path, kind):
    folder = tmp_path / f"folder.{kind}"
    folder.mkdir()
    _refused(folder, "not a file")


@posix_only
@pytest.mark.parametrize("kind", KINDS)
def test_pipes_are_rejected(tmp_path, kind):
    pipe = tmp_path / f"pipe.{kind}"
    os.mkfifo(pipe)  # reading from a pipe would block forever
    _refused(pipe, "not a file")


@pytest.mark.parametrize("metadata", PANDAS_METADATA)
def test_metadata_that_pandas_did_not_write(tmp_path, metadata):
    path = tmp_path / "odd.parquet"
    numbers = {name: [1.0, 2.0] for name in ("aa", "bb", "cc", "yy")}
    path.write_bytes(as_parquet(pa.table(numbers).replace_schema_metadata({b"pandas": metadata})))
    if metadata in (b"null", b"[]", b'{"index_columns": [["aa"], {}, null]}'):  # these values name no index columns
        assert outcome(path, "yy") == "read"
    else:
        _refused(path)


@pytest.mark.parametrize("times", [1, -1], ids=["in the footer", "everywhere"])
def test_a_footer_with_a_wrong_number_of_rows(tmp_path, times):
    """Test that a Parquet file of 40 rows is rejected if its footer says that there are 41 rows.

    The wrong number is either only the total, or also the number of rows in the row groups. The footer stores integers
    doubled (zigzag encoding), and the byte 0x16 precedes each 64-bit integer.
    """
    data = originals("parquet")[0]
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    lying = data[footer:].replace(b"\x16\x50", b"\x16\x52", times)
    path = tmp_path / "lying.parquet"
    path.write_bytes(data[:footer] + lying)
    assert pq.read_metadata(path).num_rows == 41
    _refused(path, "41 rows in total, but 40 rows in the row groups" if times == 1 else "")


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_needs_a_column_besides_the_target(tmp_path, kind):
    path = tmp_path / f"alone.{kind}"
    if kind == "npy":
        np.save(path, np.ones((5, 1)))
    elif kind == "csv":
        path.write_text("yy\n1\n2\n")
    else:
        pq.write_table(pa.table({"yy": [1.0, 2.0]}), path)
    _refused(path, "the number of columns is 1; at least one column besides the target is needed")


def test_very_many_columns(tmp_path):
    """Test that the errors for a table of 200,000 columns list only some of the columns, and are raised quickly.

    A quadratic search for repeated names would be too slow.
    """
    path = tmp_path / "wide.csv"
    names = [f"c{k}" for k in range(200_000)]
    path.write_text(",".join([*names, "c7"]) + "\n")
    _refused(path, "two columns are called 'c7'")
    path.write_text(",".join(names) + "\n")
    with pytest.raises(ValueError, match=r"there is no column 'yy'; the columns are c0, c1, .*\.\.\.$") as caught:
        open_source(path, "yy")
    assert len(str(caught.value)) < 1000


def test_long_values_are_truncated_in_errors(tmp_path):
    path = tmp_path / "long.csv"
    path.write_text(f"aa,yy\n1,2\n{'x' * 5000},3\n")
    _refused(path, "holds 'xxx", "...", "in row 1, but must hold numbers")
    assert outcome(path, "yy") == "refused"  # `outcome` checks the length of the message


def test_numbers_near_the_largest_float_are_read(tmp_path):
    path = tmp_path / "large.csv"
    path.write_text("aa,yy\n" + "1e308,-1e308\n" * 5)
    assert outcome(path, "yy") == "read"
    path.write_text("aa,yy\n1,2\n1e309,3\n")
    _refused(path, "column 'aa' holds infinity in row 1")
