"""Test that ``hkrr fit`` fits a model to a damaged or inconsistent table, or refuses it with a one-line error."""

import tempfile
from decimal import Decimal
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from hkrr import cli
from support.mutated_commands import KINDS, outcome
from support.mutated_tables import as_parquet, mutated, originals


@pytest.mark.parametrize("kind", KINDS)
def test_the_original_files_are_valid(tmp_path, kind):
    for k, data in enumerate(originals(kind)):
        path = tmp_path / f"{k}.{kind}"
        path.write_bytes(data)
        assert outcome(path, "yy", fits=k == 0) == ("fitted" if k == 0 else "read")


@settings(max_examples=300, deadline=None)
@given(kind=st.sampled_from(KINDS), seed=st.integers(0, 2**32), target=st.sampled_from(["yy", "yy", "aa", None]))
def test_mutated_tables_are_refused_or_read(kind, seed, target):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"table.{kind}")
        path.write_bytes(mutated(kind, Random(seed))[1])
        assert outcome(path, target, fits=False) in ("read", "refused")


UNUSUAL_COLUMNS = {
    "lists": pa.array([[1.0], [2.0]] * 10),
    "records": pa.array([{"a": 1.0}, {"a": 2.0}] * 10),
    "bytes": pa.array([b"1", b"\xff"] * 10),
    "nothing": pa.array([None] * 20),
    "categories": pa.array(["red", None] * 10).dictionary_encode(),
    "moments": pa.array(range(20), pa.timestamp("ns", "Europe/Rome")),
    "days": pa.array(range(20), pa.date32()),
    "times": pa.array(range(20), pa.time64("ns")),
    "lengths": pa.array(range(20), pa.duration("s")),
    "decimals": pa.array([Decimal(k) / 8 for k in range(20)], pa.decimal256(60, 3)),
    "unsigned": pa.array([2**64 - 1 - k for k in range(20)], pa.uint64()),
    "halves": pa.array([np.float16(k) for k in range(20)], pa.float16()),
    "truths": pa.array([True, None] * 10),
    "infinite": pa.array([np.inf, 1.0] * 10),
    "far": pa.array([2**62, -(2**62)] * 10, pa.timestamp("us")),
    "names": pa.array([f"n{k}" for k in range(20)], pa.large_string()),
}


@pytest.mark.parametrize("target", ["yy", "unusual"])
@pytest.mark.parametrize("kind", UNUSUAL_COLUMNS)
def test_parquet_columns_of_every_type(tmp_path, kind, target):
    path = tmp_path / "table.parquet"
    path.write_bytes(
        as_parquet(pa.table({"aa": np.sin(np.arange(20.0)), "unusual": UNUSUAL_COLUMNS[kind], "yy": np.arange(20.0)}))
    )
    assert outcome(path, target, fits=False) in ("read", "refused")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(6))
def test_mutated_tables_on_the_command_line(tmp_path, kind, seed):
    path = tmp_path / f"table.{kind}"
    path.write_bytes(mutated(kind, Random(seed))[1])
    options = ["-o", str(tmp_path / "m"), "--kernel", "gaussian", "--n-components", "1", "--time-limit", "0.3", "-q"]
    result = CliRunner().invoke(cli.app, ["fit", str(path), *options])
    assert isinstance(result.exception, SystemExit | None), result.exception
    assert result.stdout == ""
    assert result.exit_code in (0, 1, 2)
    assert len(result.stderr.splitlines()) == (result.exit_code != 0)
    assert (tmp_path / "m").exists() == (result.exit_code == 0)
