"""Test the table, the model, the report and the printed output of hkrr demo."""

import re

import pytest
from typer.testing import CliRunner

import hkrr
from hkrr import cli
from hkrr.tables import TableRegressor, read_table


@pytest.fixture
def small_table(monkeypatch):
    for name, value in {"_ROWS": 100, "_COLUMNS": 4, "_DIRECTIONS": 1}.items():
        monkeypatch.setattr(cli.demo, name, value)


@pytest.mark.parametrize("similar", [True, pytest.param(False, marks=pytest.mark.thorough)])
def test_the_demo(small_table, tmp_path, monkeypatch, similar):
    monkeypatch.setattr(cli.demo, "_SMALL_DIFFERENCE", 10.0 if similar else 0.0)
    out = tmp_path / "new"
    result = CliRunner().invoke(cli.app, ["demo", "--out", str(out), "--seed", "1"])
    assert result.exit_code == 0, result.output
    assert list(read_table(out / "planted.csv")) == ["x0", "x1", "x2", "x3", "y"]
    model = hkrr.load(out / "planted.hkrr")
    assert model.model_.n_components_ == 1
    assert str(model.held_out_) in result.stdout
    assert (out / "report.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    # The commands fit and report are printed.
    shown = re.findall(r"^\$ hkrr (\w+) ", result.stdout, re.MULTILINE)
    assert shown == ["fit", "report"]
    assert ("Kernel ridge is about as good" in result.stdout) == similar


def test_an_output_folder_that_cannot_be_created(small_table, tmp_path):
    (tmp_path / "taken").write_text("")
    result = CliRunner().invoke(cli.app, ["demo", "--out", str(tmp_path / "taken")])
    assert result.exit_code == 2
    assert "the folder cannot be created" in result.stdout


def test_help_shows_no_type_for_flags():
    for arguments in ([], ["fit"], ["predict"], ["bench"]):
        text = CliRunner().invoke(cli.app, [*arguments, "--help"]).stdout
        assert "--help" in text
        assert not re.search(r"\bbool(ean)?\b", text.lower())  # the help of fit contains the word "booleans"


def test_ctrl_c_stops_the_demo(small_table, tmp_path, monkeypatch):
    def stop(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(TableRegressor, "fit", stop)
    result = CliRunner().invoke(cli.app, ["demo", "--out", str(tmp_path)])
    assert result.exit_code == 130
    assert result.stderr.splitlines()[-1].startswith("Stopped")
    assert not (tmp_path / "report.html").exists()


def test_a_file_that_cannot_be_written_is_reported_in_one_line(tmp_path):
    (tmp_path / "planted.csv").mkdir()
    result = CliRunner().invoke(cli.app, ["demo", "--out", str(tmp_path)])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"{tmp_path / 'planted.csv'}: Is a directory\n"
