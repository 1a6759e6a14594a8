"""hkrr bench: what it runs, says, writes and refuses."""

import pytest
from typer.testing import CliRunner

from hkrr import cli


def invoke(*arguments):
    return CliRunner().invoke(cli.app, ["bench", *arguments])


def test_the_command_runs_writes_and_goes_on(tmp_path):
    arguments = ("sines:m=60,D=3", "--methods", "krr,sir", "--seconds", "1", "--out", str(tmp_path))
    result = invoke(*arguments)
    assert result.exit_code == 0, result.output
    assert "rank" in result.output
    for line in ("krr", "sir"):
        assert any(shown.startswith(line) and "/1" in shown for shown in result.output.splitlines())
    assert {path.name for path in tmp_path.iterdir()} >= {"bench.csv", "README.md"}
    kept = (tmp_path / "bench.csv").read_text()
    assert invoke(*arguments).exit_code == 0
    assert (tmp_path / "bench.csv").read_text() == kept


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("sines", "--methods", "nothing"), "There is no method 'nothing'"),
        (("nowhere.csv",), "no such file"),
        (("sines:m=x",), "must be a whole number"),
        (("sines", "--methods", "catboost"), "Left out: catboost (not installed: catboost"),
    ],
)
def test_the_command_refuses_what_it_does_not_know(arguments, message):
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert message in result.output


def test_methods_that_are_not_installed_are_left_out_and_named(tmp_path):
    result = invoke("sines:m=60,D=3", "--methods", "krr,catboost,krr", "--seconds", "1", "--out", str(tmp_path))
    assert result.exit_code == 0, result.output
    assert "Left out: catboost" in result.output
    assert "1/1 cells" in result.output
    assert "catboost" not in (tmp_path / "bench.csv").read_text()


def test_the_command_says_what_it_made_of_a_table(tmp_path):
    table = tmp_path / "prices.csv"
    lines = [f"{k},{'red' if k % 2 else 'blue'},{k * k}" for k in range(50)]
    table.write_text("\n".join(["size,colour,price", *lines, ",red,3"]))
    result = invoke(str(table), "--methods", "krr", "--seconds", "1", "--out", str(tmp_path / "out"))
    assert result.exit_code == 0, result.output
    said = (
        "prices.csv: the target is 'price', 3 columns (1 of text spread over 2), 1 rows with missing values left out, "
        "40 training and 10 test rows"
    )
    assert said in result.output
    assert said in (tmp_path / "out" / "README.md").read_text()


def test_the_command_ends_with_1_when_all_failed(tmp_path):
    result = invoke("sines:m=60,D=3", "--methods", "krr", "--limit", "1", "--out", str(tmp_path))
    assert result.exit_code == 1, result.output
    assert "not done after 1 s" in result.output


def test_two_tables_of_one_name_are_refused(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "t.csv").write_text("\n".join(["x,y", *(f"{k},{k}" for k in range(30))]))
    result = invoke(str(tmp_path / "a" / "t.csv"), str(tmp_path / "b" / "t.csv"), "--out", str(tmp_path / "out"))
    assert result.exit_code == 2
    assert "are both called 't.csv'" in result.output


def test_a_file_of_other_columns_is_left_alone(tmp_path):
    (tmp_path / "bench.csv").write_text("problem,R2\nsines,0.5\n")
    result = invoke("sines:m=60,D=3", "--methods", "krr", "--out", str(tmp_path))
    assert result.exit_code == 2
    assert "move it away" in result.output
    assert (tmp_path / "bench.csv").read_text() == "problem,R2\nsines,0.5\n"
