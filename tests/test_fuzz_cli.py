"""Damaged and lying tables through the path of ``hkrr fit``: refused in a line, or fitted."""

import tempfile
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from hkrr import cli
from mutated_commands import KINDS, outcome
from mutated_tables import mutated, originals


@pytest.mark.parametrize("kind", KINDS)
def test_the_files_that_are_mutated_are_sound(tmp_path, kind):
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


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(6))
def test_mutated_tables_through_the_command(tmp_path, kind, seed):
    path = tmp_path / f"table.{kind}"
    path.write_bytes(mutated(kind, Random(seed))[1])
    options = ["-o", str(tmp_path / "m"), "--kernel", "gaussian", "--n-components", "1", "--time-limit", "0.3", "-q"]
    result = CliRunner().invoke(cli.app, ["fit", str(path), *options])
    assert isinstance(result.exception, SystemExit | None), result.exception
    assert result.stdout == ""
    assert result.exit_code in (0, 1, 2)
    assert len(result.stderr.splitlines()) == (result.exit_code != 0)
    assert (tmp_path / "m").exists() == (result.exit_code == 0)
