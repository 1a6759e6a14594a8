"""Tables that are damaged or lie: refused with an error that names the file, or read as finite numbers."""

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

from hkrr.rows.sources import open_source
from mutated_tables import KINDS, PANDAS_METADATA, as_parquet, mutated, originals, outcome


def _target(kind):
    return -1 if kind == "npy" else "yy"


def _refused(path, *parts):
    """Read it all, and find the file and these parts in the message."""
    with pytest.raises(ValueError, match=re.escape(str(path))) as caught:
        list(open_source(path, _target(path.suffix[1:])).chunks())
    assert type(caught.value) is ValueError  # and none that pyarrow or Python derived from it
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize("kind", KINDS)
def test_the_files_that_are_mutated_are_sound(tmp_path, kind):
    for k, data in enumerate(originals(kind)):
        path = tmp_path / f"{k}.{kind}"
        path.write_bytes(data)
        if (kind, k) == ("parquet", 6):
            _refused(path, "column 'cc' holds NaN (a missing value?) in row 3")  # of truths
        else:
            assert outcome(path, _target(kind)) == "read"


@settings(max_examples=300, deadline=None)
@given(kind=st.sampled_from(KINDS), seed=st.integers(0, 2**32), by_index=st.booleans())
def test_mutated_tables_are_refused_or_sound(kind, seed, by_index):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"table.{kind}")
        path.write_bytes(mutated(kind, Random(seed))[1])
        assert outcome(path, 0 if by_index else _target(kind)) in ("read", "refused")


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_file_is_refused(tmp_path, kind):
    folder, pipe = tmp_path / f"folder.{kind}", tmp_path / f"pipe.{kind}"
    folder.mkdir()
    os.mkfifo(pipe)  # reading it would wait for ever
    for path in (folder, pipe):
        _refused(path, "this is no file")


@pytest.mark.parametrize("metadata", PANDAS_METADATA)
def test_metadata_that_pandas_did_not_write(tmp_path, metadata):
    path = tmp_path / "odd.parquet"
    numbers = {name: [1.0, 2.0] for name in ("aa", "bb", "cc", "yy")}
    path.write_bytes(as_parquet(pa.table(numbers).replace_schema_metadata({b"pandas": metadata})))
    if metadata in (b"null", b"[]", b'{"index_columns": [["aa"], {}, null]}'):  # these name no column
        assert outcome(path, "yy") == "read"
    else:
        _refused(path)


@pytest.mark.parametrize("times", [1, -1], ids=["in the footer", "everywhere"])
def test_a_footer_that_lies_about_the_rows(tmp_path, times):
    """Whole numbers are doubled there, and 0x16 stands before each of 64 bits: 40 rows become 41."""
    data = originals("parquet")[0]
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    lying = data[footer:].replace(b"\x16\x50", b"\x16\x52", times)
    path = tmp_path / "lying.parquet"
    path.write_bytes(data[:footer] + lying)
    assert pq.read_metadata(path).num_rows == 41
    _refused(path, "41 rows, and 40 in groups" if times == 1 else "")


@pytest.mark.parametrize("kind", KINDS)
def test_the_target_alone_is_no_table(tmp_path, kind):
    path = tmp_path / f"alone.{kind}"
    if kind == "npy":
        np.save(path, np.ones((5, 1)))
    elif kind == "csv":
        path.write_text("yy\n1\n2\n")
    else:
        pq.write_table(pa.table({"yy": [1.0, 2.0]}), path)
    _refused(path, "1 columns; there must be one at least, beside the target")


def test_very_many_columns(tmp_path):
    """More than each could be looked for among all others; and an error lists only some."""
    path = tmp_path / "wide.csv"
    names = [f"c{k}" for k in range(200_000)]
    path.write_text(",".join([*names, "c7"]) + "\n")
    _refused(path, "two columns are called 'c7'")
    path.write_text(",".join(names) + "\n")
    with pytest.raises(ValueError, match=r"there is no column 'yy'; there are c0, c1, .*\.\.\.$") as caught:
        open_source(path, "yy")
    assert len(str(caught.value)) < 1000


def test_long_values_are_shown_in_part(tmp_path):
    path = tmp_path / "long.csv"
    path.write_text(f"aa,yy\n1,2\n{'x' * 5000},3\n")
    _refused(path, "holds 'xxx", "...", "in row 1, which is no number")
    assert outcome(path, "yy") == "refused"  # which looks at the length of the message


def test_numbers_near_the_largest_are_numbers(tmp_path):
    path = tmp_path / "large.csv"
    path.write_text("aa,yy\n" + "1e308,-1e308\n" * 5)
    assert outcome(path, "yy") == "read"
    path.write_text("aa,yy\n1,2\n1e309,3\n")
    _refused(path, "column 'aa' holds infinity in row 1")
