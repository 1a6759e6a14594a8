"""Test the output, the files and the error messages of hkrr bench."""

import multiprocessing
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from hkrr import cli


def invoke(*arguments):
    return CliRunner().invoke(cli.app, ["bench", *arguments])


def test_results_are_written_and_reused(tmp_path):
    """Test that results are written, and that a second call of the command reuses them.

    Methods that are not installed are skipped, a method that is given twice runs once, and the table is described.
    """
    table, out = tmp_path / "prices.csv", tmp_path / "out"
    lines = [f"{k},{'red' if k % 2 else 'blue'},{k * k}" for k in range(50)]
    table.write_text("\n".join(["size,colour,price", *lines, ",red,3"]))
    arguments = (str(table), "--methods", "krr,sir,catboost,krr", "--seconds", "1", "--out", str(out))
    result = invoke(*arguments)
    assert result.exit_code == 0, result.output
    assert "Skipped: catboost" in result.output
    assert "2/2 fits" in result.output
    assert "rank" in result.output
    for method in ("krr", "sir"):
        assert any(line.startswith(method) and "/1" in line for line in result.output.splitlines())
    description = (
        "prices.csv: the target is 'price', 2 columns (1 not numeric), 1.2% missing values, "
        "41 training and 10 test rows"
    )
    assert description in " ".join(result.output.split())
    assert description in (out / "README.md").read_text()
    before = (out / "bench.csv").read_text()
    assert "catboost" not in before
    assert invoke(*arguments).exit_code == 0
    assert (out / "bench.csv").read_text() == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("sines", "--methods", "nothing"), "There is no method 'nothing'"),
        (("nowhere.csv",), "no such file"),
        (("sines:m=x",), "must be an integer"),
        (("sklearn:iris", "--methods", "krr,ridge"), "none of the methods is made for classification"),
        (("sines", "--methods", "catboost"), "Skipped: catboost (not installed: catboost"),
    ],
)
def test_unknown_methods_and_problems_are_refused(arguments, message):
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert message in result.output


def test_a_text_target_with_the_default_methods(tmp_path, monkeypatch):
    """The default methods are those for classes, the inferred task is printed, and there are two tables of ranks."""
    labels = [("high" if k % 25 > 12 else "low", "red" if k % 3 else "") for k in range(100)]
    lines = [f"{k % 25},{colour},{label}" for k, (label, colour) in enumerate(labels)]
    (tmp_path / "juice.csv").write_text("\n".join(["size,colour,brand", *lines]))
    started = []

    def start(problem, method, rules):
        receiver, sender = multiprocessing.Pipe(duplex=False)
        started.append(method)
        sender.send({"log_loss": 0.1 * len(started), "accuracy": 0.9, "calibration_error": 0.1, "seconds": 1.0})
        return receiver, SimpleNamespace(join=lambda timeout=None: None)

    monkeypatch.setattr("hkrr.bench.benchmark_runner._start", start)
    monkeypatch.setattr("hkrr.bench.benchmark_runner._kill", lambda process: None)
    result = invoke(str(tmp_path / "juice.csv"), "--out", str(tmp_path / "out"))
    assert result.exit_code == 0, result.output
    assert started == ["hkrr_classifier", "logistic", "svc", "random_forest", "hist_boosting"]
    output = " ".join(result.output.split())
    assert "the target is 'brand', with 2 classes ('brand' contains text), 2 columns (1 not numeric)" in output
    assert "Classes" in output
    page = (tmp_path / "out" / "README.md").read_text()
    assert page.index("relative log loss") < page.index("By accuracy:")


def test_the_exit_status_is_1_if_all_fits_fail(tmp_path, monkeypatch):
    def start(problem, method, rules):
        receiver, sender = multiprocessing.Pipe(duplex=False)
        sender.send({"error": "it broke"})
        return receiver, SimpleNamespace(join=lambda timeout=None: None)

    monkeypatch.setattr("hkrr.bench.benchmark_runner._start", start)
    monkeypatch.setattr("hkrr.bench.benchmark_runner._kill", lambda process: None)
    result = invoke("sines:m=60,D=3", "--methods", "krr", "--out", str(tmp_path))
    assert result.exit_code == 1, result.output
    assert "failed: sines:m=60,D=3 krr: it broke" in result.output


def test_two_tables_with_the_same_name_are_refused(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "t.csv").write_text("\n".join(["x,y", *(f"{k},{k}" for k in range(30))]))
    result = invoke(str(tmp_path / "a" / "t.csv"), str(tmp_path / "b" / "t.csv"), "--out", str(tmp_path / "out"))
    assert result.exit_code == 2
    assert "have the same name 't.csv'" in result.output


def test_a_csv_file_with_other_columns_is_not_overwritten(tmp_path):
    (tmp_path / "bench.csv").write_text("problem,R2\nsines,0.5\n")
    result = invoke("sines:m=60,D=3", "--methods", "krr", "--out", str(tmp_path))
    assert result.exit_code == 2
    assert "move the file, or choose another output folder" in result.output
    assert (tmp_path / "bench.csv").read_text() == "problem,R2\nsines,0.5\n"
