"""Tests of the stored cases of an experiment after interruptions, cut lines, failures and changes of the config."""

from __future__ import annotations

import math
import os
import platform
from dataclasses import dataclass

import matplotlib.pyplot as plt
import pytest

from hkrr._version import __version__
from hkrr.experiments import get_experiment, nystrom, result_store, stationarity, toy_basins, toy_trajectories
from hkrr.experiments.experiment_runner import Claim, reproduce, run
from hkrr.experiments.result_store import Store, column, provenance, write_csv

# The third of the four cases of `Counted` with the default `Config`.
THIRD = {"repeat": 1, "k": 0}


@dataclass(frozen=True)
class Config:
    """The configuration of an experiment with two cases in each repeat."""

    scale: float = 3.0
    repeats: int = 2
    seed: int = 0


class Counted:
    """An experiment that records the cases it runs, and fails at the case ``fails_at`` (or at all cases)."""

    def __init__(self, fails_at=None, error=None):
        self.ran, self.fails_at, self.error = [], fails_at, error

    def cases(self, config):
        return [{"repeat": repeat, "k": k} for repeat in range(config.repeats) for k in range(2)]

    def run_case(self, config, case):
        if self.fails_at in (case, "all"):
            raise self.error
        self.ran.append(case)
        value = (config.seed + 10 * case["repeat"] + case["k"]) / config.scale
        return [{**case, "step": step, "value": value + step} for step in range(2)]

    def claims(self, table):
        return [Claim("all are there", True, f"{len(table)} rows")]

    def plot(self, table):
        figure, ax = plt.subplots()
        ax.plot(column(table, "value"))
        return figure


def _run(out, config=None, experiment=None, **options):
    """Run the experiment `counted`, and return the outcome and the list of the cases that were run."""
    experiment = experiment or Counted()
    return reproduce("counted", experiment, config or Config(), out, **options), experiment.ran


def test_a_run_writes_its_table_its_figure_and_its_claims(tmp_path):
    outcome, ran = _run(tmp_path / "not" / "there")
    assert ran == Counted().cases(Config())
    assert [row["step"] for row in outcome.table] == [0, 1] * 4
    assert outcome.csv.read_text().splitlines()[:3] == ["repeat,k,step,value", "0,0,0,0", "0,0,1,1"]
    assert "0,1,0,0.333333" in outcome.csv.read_text()
    assert outcome.picture.read_bytes().startswith(b"\x89PNG")
    lines = outcome.csv.with_suffix(".txt").read_text().splitlines()
    assert lines[:-1] == ["holds: all are there. Measured: 8 rows", "4 runs, 0 s of one core in total"]
    assert lines[-1] == provenance(Config())
    assert outcome.failures == []


def test_provenance_has_the_version_the_machine_and_the_config():
    text = provenance(Config(seed=7))
    assert text.startswith(f"hkrr {__version__}, {os.cpu_count()} cores (")
    assert f"Python {platform.python_version()}" in text
    assert text.endswith("; scale=3.0, repeats=2, seed=7")
    assert "\n" not in text


def test_finished_cases_are_kept_after_an_interruption(tmp_path):
    stopped, whole = Counted(THIRD, KeyboardInterrupt()), _run(tmp_path / "whole")[0]
    with pytest.raises(KeyboardInterrupt):
        _run(tmp_path / "stopped", experiment=stopped)
    outcome, ran = _run(tmp_path / "stopped")
    assert stopped.ran == Counted().cases(Config())[:2]
    assert ran == Counted().cases(Config())[2:]
    assert outcome.table == whole.table
    assert outcome.csv.read_bytes() == whole.csv.read_bytes()
    again, ran = _run(tmp_path / "stopped")
    assert not ran
    assert again.table == whole.table


@pytest.mark.parametrize("n_jobs", [1, pytest.param(2, marks=pytest.mark.thorough)])
def test_a_failed_case_is_reported_and_the_others_are_written(tmp_path, n_jobs):
    outcome, _ = _run(tmp_path, experiment=Counted(THIRD, ValueError("odd data")), n_jobs=n_jobs)
    (failure,) = outcome.failures
    assert str(THIRD) in failure
    assert "ValueError: odd data" in failure
    whole = _run(tmp_path / "whole")[0]
    assert outcome.table == [row for row in whole.table if {"repeat": row["repeat"], "k": row["k"]} != THIRD]
    assert outcome.csv.read_text().count("\n") == 1 + 6
    assert outcome.picture.read_bytes().startswith(b"\x89PNG")
    text = outcome.csv.with_suffix(".txt").read_text()
    assert text.startswith("holds: all are there. Measured: 6 rows\n1 of 4 runs failed. First failure: ")
    assert "ValueError: odd data" in text
    assert text.splitlines()[-2:] == ["3 runs, 0 s of one core in total", provenance(Config())]
    outcome, ran = _run(tmp_path)  # the second run repeats only the failed case
    assert ran == [THIRD]
    assert (outcome.table, outcome.failures) == (whole.table, [])
    assert "failed" not in outcome.csv.with_suffix(".txt").read_text()


def test_nothing_is_written_if_every_case_fails(tmp_path):
    with pytest.raises(RuntimeError, match=r"(?s)all 4 runs failed\. First failure: .*ValueError: odd data"):
        _run(tmp_path, experiment=Counted("all", ValueError("odd data")))
    assert not list(tmp_path.glob("counted.*"))
    assert len(_run(tmp_path)[1]) == 4


def test_stored_cases_are_written_if_new_ones_fail(tmp_path):
    """Test that the files contain the stored cases of two repeats if all cases of two new repeats fail."""
    whole, _ = _run(tmp_path)
    outcome, _ = _run(tmp_path, Config(repeats=4), Counted("all", ValueError("odd data")))
    assert outcome.table == whole.table
    assert len(outcome.failures) == 4
    assert "4 of 8 runs failed" in outcome.csv.with_suffix(".txt").read_text()


@pytest.mark.parametrize("n_lost", [1, 2, 30, 100])
def test_an_incomplete_line_loses_only_its_case(tmp_path, n_lost):
    whole, _ = _run(tmp_path)
    path = tmp_path / ".counted.jsonl"
    path.write_bytes(path.read_bytes()[:-n_lost])
    last = Counted().cases(Config())[-1]
    outcome, ran = _run(tmp_path)
    assert ran == ([] if n_lost == 1 else [last])  # a line without its newline is complete
    assert outcome.table == whole.table
    more, ran = _run(tmp_path, Config(repeats=3))
    assert ran == [{"repeat": 2, "k": 0}, {"repeat": 2, "k": 1}]
    assert _run(tmp_path, Config(repeats=3)) == (more, [])


@pytest.mark.parametrize("other", [{"seed": 1}, {"scale": 4.0}])
def test_another_config_starts_again(tmp_path, other):
    first, _ = _run(tmp_path / "both")
    fresh, _ = _run(tmp_path / "fresh", Config(**other))
    outcome, ran = _run(tmp_path / "both", Config(**other))
    assert len(ran) == 4
    assert outcome.table == fresh.table != first.table
    assert outcome.csv.read_bytes() == fresh.csv.read_bytes()
    assert _run(tmp_path / "both")[0].table == first.table


def test_another_version_starts_again(tmp_path, monkeypatch):
    first, _ = _run(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(result_store, "__version__", "99.0")
        outcome, ran = _run(tmp_path)
        assert len(ran) == 4
        assert outcome.csv.with_suffix(".txt").read_text().splitlines()[-1].startswith("hkrr 99.0, ")
        assert not _run(tmp_path)[1]
    again, ran = _run(tmp_path)
    assert (again.table, ran) == (first.table, [])


def test_more_repeats_run_only_the_new_ones_and_fewer_use_a_part(tmp_path):
    two, _ = _run(tmp_path, Config(repeats=2))
    three, ran = _run(tmp_path, Config(repeats=3))
    assert [case["repeat"] for case in ran] == [2, 2]
    assert three.table[: len(two.table)] == two.table
    one, ran = _run(tmp_path, Config(repeats=1))
    assert not ran
    assert one.table == two.table[: len(two.table) // 2]


def test_a_store_returns_the_rows_it_was_given(tmp_path):
    rows = [{"x": 0.1 + 0.2, "y": 1e-300, "name": 'a "b", é\n'}, {"x": math.inf}]
    Store(tmp_path / "file", Config()).add({"a": 1, "b": 0.5}, rows, 2.0)
    store = Store(tmp_path / "file", Config(repeats=9))
    assert {"b": 0.5, "a": 1} in store
    assert {"a": 1} not in store
    assert store.rows({"a": 1, "b": 0.5}) == rows
    assert store.seconds({"a": 1, "b": 0.5}) == 2.0
    assert {"a": 1, "b": 0.5} not in Store(tmp_path / "file", Config(seed=9))


def test_a_csv_file_has_all_columns_and_blanks_for_missing_values(tmp_path):
    table = [{"a": 1, "b": "x, y"}, {"a": 2, "c": 1 / 3}]
    write_csv(table, tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_text() == 'a,b,c\n1,"x, y",\n2,,0.333333\n'
    assert column(table, "a", b="x, y") == [1]
    assert column(table, "c", a=2) == [1 / 3]


SMALL = {
    "toy-path": toy_trajectories.Config(max_iter=30),
    "toy-map": toy_basins.Config(n_points=3),
    "stationarity": stationarity.Config(n_samples=60, n_features=4, n_centers=5, n_iterations=20, repeats=2),
    "nystrom": nystrom.Config(60, 4, 1, sizes=(40, 60), n_centers=(5, 60), n_test=50, repeats=1),
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", SMALL)
def test_two_processes_give_the_same_result_as_one(tmp_path, name):
    experiment, config = get_experiment(name), SMALL[name]
    one, two = (reproduce(name, experiment, config, tmp_path / str(n), n_jobs=n) for n in (1, 2))
    assert one.table == two.table == run(experiment, config)
    assert one.csv.read_bytes() == two.csv.read_bytes()
    assert one.claims == two.claims == experiment.claims(one.table)


@pytest.mark.parametrize("n_jobs", [1, pytest.param(2, marks=pytest.mark.thorough)])
def test_progress_is_reported_with_the_time_left(tmp_path, n_jobs):
    with pytest.raises(KeyboardInterrupt):
        _run(tmp_path, experiment=Counted(THIRD, KeyboardInterrupt()))
    reports = []
    _run(tmp_path, Config(repeats=4), n_jobs=n_jobs, on_progress=lambda *report: reports.append(report))
    assert [done for done, _, _ in reports] == list(range(2, 9))
    assert {total for _, total, _ in reports} == {8}
    assert reports[0][2] is None
    assert all(math.isfinite(left) and left >= 0.0 for _, _, left in reports[1:])
    assert reports[-1][2] == 0.0
