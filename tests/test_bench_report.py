"""The page of a benchmark, from cells made by hand."""

import numpy as np
import pytest
from typer.testing import CliRunner

from hkrr import cli
from hkrr.bench import pictures, report

# R2 and seconds of three methods on four problems; the last is a table, the third of "slow" failed.
R2 = {"hkrr": [0.9, 0.8, 0.7, 0.5], "slow": [0.8, 0.85, None, 0.4], "quick": [0.1, 0.2, 0.3, 0.6]}
SECONDS = {"hkrr": 2.0, "slow": 9.0, "quick": 1.0}
PROBLEMS = ["sines:m=100,D=9", "sines:m=200,D=9", "sines:m=400,D=9", "prices.csv"]


def cells():
    return [
        {
            "problem": problem,
            "method": method,
            "R2": "" if R2[method][k] is None else R2[method][k],
            "seconds": "" if R2[method][k] is None else SECONDS[method],
            "fit_seconds": "" if R2[method][k] is None else SECONDS[method] / 2,
            "peak_mb": 0.0,
            "n_train": 100,
            "n_features": 9,
            "subspace_distance": 0.1 if method == "hkrr" and k < 3 else "",
            "error": "ValueError: it broke" if R2[method][k] is None else "",
        }
        for k, problem in enumerate(PROBLEMS)
        for method in R2
    ]


def test_ranks():
    """The failed cell is last on its problem."""
    np.testing.assert_array_equal(report.results(cells()).ranks(), [[1, 2, 3], [2, 1, 3], [1, 3, 2], [2, 3, 1]])


def test_planted_problems_are_those_with_a_distance():
    assert report.planted(report.results(cells())) == PROBLEMS[:3]


def test_best_peer():
    assert report.best_peer(report.results(cells())) == ["slow", "slow", "quick", "quick"]


def test_standing_counts_problems():
    """Least error on 1 and 3; there it needs 2 s against 9 s of one best peer and 1 s of the other."""
    first, sooner = report.standing(report.results(cells()))
    assert "on 2 of 4 (50%)" in first
    assert "on 2 of 4, and in less time than that peer's tuning and fit on 1 (25%)" in sooner
    assert "on 1 (25%)." in sooner  # 2 s against the last fit's 4.5 s


def test_losses_are_named_with_their_size():
    text = "\n".join(report.losses(report.results(cells())))
    assert "sines:m=200,D=9: slow by 0.0500" in text
    assert "prices.csv: quick by 0.1000" in text
    assert "sines:m=100" not in text
    assert "slow 3 of 4, quick 3 of 4" in text


def test_a_problem_that_not_all_were_run_on_is_left_out():
    found = report.results(cells()[:-1])
    assert found.problems == PROBLEMS[:3]


def test_the_page_and_its_pictures(tmp_path):
    drawn = pictures.draw(cells(), tmp_path)
    page = report.write(cells(), tmp_path, drawn, "hkrr bench", "30 s each").read_text()
    names = [name for name, _ in drawn]
    assert names == ["accuracy-time-models.png", "ranks-models.png", "accuracy-time-tables.png", "risk-m.png"]
    for name in names:
        assert (tmp_path / name).stat().st_size > 5000
        assert f"]({name})" in page
    assert "sines:m=400,D=9, slow: ValueError: it broke" in page
    assert "Equal rules." in page
    assert page.index("## Planted models") < page.index("## Tables")


def test_series_differ_in_one_option_alone():
    found = report.results(cells())
    assert pictures.along(found, "m") == {"sines, D=9": [(100, PROBLEMS[0]), (200, PROBLEMS[1]), (400, PROBLEMS[2])]}
    assert pictures.along(found, "D") == {}


def invoke(*arguments):
    return CliRunner().invoke(cli.app, ["bench", *arguments])


def test_the_command_runs_writes_and_goes_on(tmp_path):
    arguments = ("sines:m=60,D=3", "--methods", "krr,sir", "--seconds", "1", "--out", str(tmp_path))
    result = invoke(*arguments)
    assert result.exit_code == 0, result.output
    assert "| krr |" in result.output
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
    ],
)
def test_the_command_refuses_what_it_does_not_know(arguments, message):
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert message in result.output
