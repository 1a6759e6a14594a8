"""hkrr demo: the table, the model and the page, and what is said of them."""

import re

import pytest
from typer.testing import CliRunner

import hkrr
from hkrr import cli
from hkrr.tables import TableRegressor, read_table


@pytest.fixture
def small(monkeypatch):
    for name, value in {"_ROWS": 100, "_COLUMNS": 4, "_DIRECTIONS": 1}.items():
        monkeypatch.setattr(cli.demo, name, value)


@pytest.mark.parametrize("alike", [True, False])
def test_the_demo(small, tmp_path, monkeypatch, alike):
    monkeypatch.setattr(cli.demo, "_ALIKE", 10.0 if alike else 0.0)
    out = tmp_path / "new"
    result = CliRunner().invoke(cli.app, ["demo", "--out", str(out), "--seed", "1"])
    assert result.exit_code == 0, result.output
    assert list(read_table(out / "planted.csv")) == ["x0", "x1", "x2", "x3", "y"]
    model = hkrr.load(out / "planted.hkrr")
    assert model.model_.n_components_ == 1
    assert str(model.held_out_) in result.stdout
    assert (out / "report.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    # What it runs are commands that work.
    shown = re.findall(r"^\$ hkrr (\w+) ", result.stdout, re.MULTILINE)
    assert shown == ["fit", "report"]
    assert ("(Kernel ridge is no better" in result.stdout) == alike


def test_a_folder_that_cannot_be(small, tmp_path):
    (tmp_path / "taken").write_text("")
    result = CliRunner().invoke(cli.app, ["demo", "--out", str(tmp_path / "taken")])
    assert result.exit_code == 2
    assert "no folder can be made there" in result.stdout


def test_flags_show_no_type_in_the_help():
    for arguments in ([], ["fit"], ["predict"], ["bench"]):
        text = CliRunner().invoke(cli.app, [*arguments, "--help"]).stdout
        assert "--help" in text
        assert "bool" not in text.lower()


def test_a_demo_that_is_stopped_ends_so(small, tmp_path, monkeypatch):
    def stop(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(TableRegressor, "fit", stop)
    result = CliRunner().invoke(cli.app, ["demo", "--out", str(tmp_path)])
    assert result.exit_code == 130
    assert result.stderr.splitlines()[-1].startswith("Stopped")
    assert not (tmp_path / "report.html").exists()


def test_a_demo_that_cannot_be_written_says_so_in_a_line(tmp_path):
    (tmp_path / "planted.csv").mkdir()
    result = CliRunner().invoke(cli.app, ["demo", "--out", str(tmp_path)])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"{tmp_path / 'planted.csv'}: Is a directory\n"
