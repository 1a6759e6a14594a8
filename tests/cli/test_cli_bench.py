"""Test the output, the files and the error messages of hkrr bench."""

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
        "prices.csv: the target is 'price', 3 columns (text columns: 1, encoded as 2 columns), "
        "dropped rows with missing values: 1, 40 training and 10 test rows"
    )
    assert description in result.output
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
        (("sines", "--methods", "catboost"), "Skipped: catboost (not installed: catboost"),
    ],
)
def test_unknown_methods_and_problems_are_refused(arguments, message):
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert message in result.output


def test_the_exit_status_is_1_if_all_fits_fail(tmp_path):
    result = invoke("sines:m=60,D=3", "--methods", "krr", "--limit", "1", "--out", str(tmp_path))
    assert result.exit_code == 1, result.output
    assert "timed out after 1 s" in result.output


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
