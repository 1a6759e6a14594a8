"""Finished cases on the disk: stopped and started again, cut short, asked for more, in two processes, by Ctrl-C."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
from typer.testing import CliRunner

from hkrr import cli
from hkrr.experiments import NAMES, get_experiment, nystrom, stationarity, toy_map, toy_path
from hkrr.experiments.base import Claim, Outcome, RunsFailed, reproduce
from hkrr.experiments.store import Store, column, write_csv

THIRD = {"repeat": 1, "k": 0}


@dataclass(frozen=True)
class Config:
    """Two cases a repeat."""

    scale: float = 3.0
    repeats: int = 2
    seed: int = 0


class Counted:
    """An experiment that notes what it runs, and fails at one case."""

    def __init__(self, fails_at=None, error=None):
        self.ran, self.fails_at, self.error = [], fails_at, error

    def cases(self, config):
        return [{"repeat": repeat, "k": k} for repeat in range(config.repeats) for k in range(2)]

    def run_case(self, config, case):
        if case == self.fails_at:
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
    """Return the outcome and the cases that were run for it."""
    experiment = experiment or Counted()
    return reproduce("counted", experiment, config or Config(), out, **options), experiment.ran


def _invoke(*arguments):
    return CliRunner().invoke(cli.app, ["reproduce", *arguments])


def test_a_run_leaves_its_table_its_picture_and_its_claims(tmp_path):
    outcome, ran = _run(tmp_path / "not" / "there")
    assert ran == Counted().cases(Config())
    assert [row["step"] for row in outcome.table] == [0, 1] * 4
    assert outcome.csv.read_text().splitlines()[:3] == ["repeat,k,step,value", "0,0,0,0", "0,0,1,1"]
    assert "0,1,0,0.333333" in outcome.csv.read_text()
    assert outcome.picture.read_bytes().startswith(b"\x89PNG")
    lines = outcome.csv.with_suffix(".txt").read_text().splitlines()
    assert lines == ["holds: all are there (8 rows)", "4 runs, 0 s of one core in all"]
    assert str(Claim("it is so", False, "1 of 5")) == "does not hold: it is so (1 of 5)"
    assert outcome.n_cases == 4


def test_what_was_done_before_a_stop_is_kept(tmp_path):
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


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_case_that_fails_is_told_and_leaves_the_others_to_run(tmp_path, n_jobs):
    with pytest.raises(RunsFailed, match=r"1 of 4 runs failed, the others are kept\..*ValueError: odd data"):
        _run(tmp_path, experiment=Counted(THIRD, ValueError("odd data")), n_jobs=n_jobs)
    assert not (tmp_path / "counted.csv").exists()
    outcome, ran = _run(tmp_path)
    assert ran == [THIRD]
    assert outcome.table == _run(tmp_path / "whole")[0].table


@pytest.mark.parametrize("n_lost", [1, 2, 30, 100])
def test_a_line_cut_short_costs_its_case_and_no_other(tmp_path, n_lost):
    whole, _ = _run(tmp_path)
    path = tmp_path / ".counted.jsonl"
    path.write_bytes(path.read_bytes()[:-n_lost])
    last = Counted().cases(Config())[-1]
    outcome, ran = _run(tmp_path)
    assert ran == ([] if n_lost == 1 else [last])  # without its end of line it is still a line
    assert outcome.table == whole.table
    more, ran = _run(tmp_path, Config(repeats=3))
    assert ran == [{"repeat": 2, "k": 0}, {"repeat": 2, "k": 1}]
    assert _run(tmp_path, Config(repeats=3)) == (more, [])


@pytest.mark.parametrize("other", [{"seed": 1}, {"scale": 4.0}])
def test_another_config_begins_anew(tmp_path, other):
    first, _ = _run(tmp_path / "both")
    fresh, _ = _run(tmp_path / "fresh", Config(**other))
    outcome, ran = _run(tmp_path / "both", Config(**other))
    assert len(ran) == 4
    assert outcome.table == fresh.table != first.table
    assert outcome.csv.read_bytes() == fresh.csv.read_bytes()
    assert _run(tmp_path / "both")[0].table == first.table


def test_more_repeats_run_only_the_new_ones_and_fewer_use_a_part(tmp_path):
    two, _ = _run(tmp_path, Config(repeats=2))
    three, ran = _run(tmp_path, Config(repeats=3))
    assert [case["repeat"] for case in ran] == [2, 2]
    assert three.table[: len(two.table)] == two.table
    one, ran = _run(tmp_path, Config(repeats=1))
    assert not ran
    assert one.table == two.table[: len(two.table) // 2]


def test_a_store_gives_back_what_it_was_given(tmp_path):
    rows = [{"x": 0.1 + 0.2, "y": 1e-300, "name": 'a "b", é\n'}, {"x": math.inf}]
    Store(tmp_path / "file", Config()).add({"a": 1, "b": 0.5}, rows, 2.0)
    store = Store(tmp_path / "file", Config(repeats=9))
    assert {"b": 0.5, "a": 1} in store
    assert {"a": 1} not in store
    assert store.rows({"a": 1, "b": 0.5}) == rows
    assert store.seconds({"a": 1, "b": 0.5}) == 2.0
    assert {"a": 1, "b": 0.5} not in Store(tmp_path / "file", Config(seed=9))


def test_tables_have_all_columns_and_blanks_where_there_is_nothing(tmp_path):
    table = [{"a": 1, "b": "x, y"}, {"a": 2, "c": 1 / 3}]
    write_csv(table, tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_text() == 'a,b,c\n1,"x, y",\n2,,0.333333\n'
    assert column(table, "a", b="x, y") == [1]
    assert column(table, "c", a=2) == [1 / 3]


SMALL = {
    "toy-path": toy_path.Config(max_iter=30),
    "toy-map": toy_map.Config(n_points=3),
    "stationarity": stationarity.Config(n_samples=60, n_features=4, n_centers=5, n_iterations=20, repeats=2),
    "nystrom": nystrom.Config(60, 4, 1, sizes=(40, 60), n_centers=(5, 60), n_test=50, repeats=1),
}


@pytest.mark.parametrize("name", SMALL)
def test_two_processes_and_one_after_another_are_the_same(tmp_path, name):
    experiment, config = get_experiment(name), SMALL[name]
    one, two = (reproduce(name, experiment, config, tmp_path / str(n), n_jobs=n) for n in (1, 2))
    assert one.table == two.table == experiment.run(config)
    assert one.csv.read_bytes() == two.csv.read_bytes()
    assert one.claims == two.claims == experiment.claims(one.table)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_progress_goes_up_to_all_with_the_time_left(tmp_path, n_jobs):
    with pytest.raises(KeyboardInterrupt):
        _run(tmp_path, experiment=Counted(THIRD, KeyboardInterrupt()))
    told = []
    _run(tmp_path, Config(repeats=4), n_jobs=n_jobs, on_progress=lambda *each: told.append(each))
    assert [done for done, _, _ in told] == list(range(2, 9))
    assert {total for _, total, _ in told} == {8}
    assert told[0][2] is None
    assert all(math.isfinite(left) and left >= 0.0 for _, _, left in told[1:])
    assert told[-1][2] == 0.0


def test_ctrl_c_on_the_command_line_says_how_to_go_on(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cases, run_case, ran = toy_path.cases(toy_path.Config()), toy_path.run_case, []

    def stopped(config, case):
        if case == cases[2] and case not in ran:
            raise KeyboardInterrupt
        ran.append(case)
        return run_case(config, case)

    with monkeypatch.context() as patch:
        patch.setattr(toy_path, "run_case", stopped)
        result = _invoke("toy-path", "toy-map", "--out", "here")
    assert result.exit_code == 130
    assert "What is done is kept in here: the same command goes on" in " ".join(result.output.split())
    assert ran == cases[:2]
    assert [path.name for path in Path("here").iterdir()] == [".toy-path.jsonl"]  # and the next was not begun
    ran.append(cases[2])
    monkeypatch.setattr(toy_path, "run_case", stopped)
    assert _invoke("toy-path", "--out", "here").exit_code == 0
    assert ran[3:] == cases[2:]
    _invoke("toy-path", "--out", "there")
    assert Path("here/toy-path.csv").read_bytes() == Path("there/toy-path.csv").read_bytes()


def test_an_error_on_the_command_line_is_shown(tmp_path, monkeypatch):
    monkeypatch.setattr(toy_path, "run_case", Counted({}, ValueError("odd data")).run_case)
    monkeypatch.setattr(toy_path, "cases", lambda config: [{}])
    monkeypatch.setattr(toy_map, "Config", lambda seed: SMALL["toy-map"])
    result = _invoke("toy-path", "toy-map", "--out", str(tmp_path))
    assert result.exit_code == 1
    assert "ValueError: odd data" in result.output
    assert (tmp_path / "toy-map.csv").exists()  # the next one was run all the same


@pytest.mark.parametrize("name", ["toy", "toy_path", "All", "[/bold]"])
def test_an_unknown_name_is_refused_with_the_known_ones(tmp_path, name):
    result = _invoke("toy-path", name, "--out", str(tmp_path / "new"))
    assert result.exit_code == 2
    assert name in result.output
    assert all(known in result.output for known in NAMES)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "arguments", [["--repeats", "0"], ["--seed", "-1"], ["--n-jobs", "x"], ["--n-jobs", "0"], ["--quick=yes"]]
)
def test_senseless_options_are_refused(tmp_path, arguments):
    assert _invoke("toy-path", "--out", str(tmp_path / "new"), *arguments).exit_code == 2
    assert not (tmp_path / "new").exists()
    assert _invoke().exit_code == 2


def test_options_reach_the_experiments(monkeypatch):
    made = []

    def noted(name, experiment, config, out, *, n_jobs, on_progress):
        made.append((name, config, out, n_jobs))
        return Outcome([], [], Path("a.csv"), Path("a.png"), 0, 0.0)

    monkeypatch.setattr(cli, "reproduce_one", noted)
    assert _invoke("nystrom", "toy-path", "nystrom").exit_code == 0
    assert made == [(n, get_experiment(n).Config(), Path("reproduced"), 1) for n in ("nystrom", "toy-path")]
    made.clear()
    _invoke("all", "--quick", "--seed", "7", "--repeats", "2", "--n-jobs", "2", "--out", "x")
    assert [(name, out, n_jobs) for name, _, out, n_jobs in made] == [(name, Path("x"), 2) for name in NAMES]
    for name, config, _, _ in made:
        quick = get_experiment(name).Config.quick(seed=7)
        assert config == (replace(quick, repeats=2) if hasattr(quick, "repeats") else quick)
        assert config.seed == 7


def test_brackets_in_the_name_of_the_folder_are_shown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = _invoke("toy-path", "--quick", "--out", "of [may]")
    assert result.exit_code == 0
    assert "of [may]/toy-path.csv" in " ".join(result.output.split())


# The handler anew: a shell that starts this in the background would have it ignore the signal.
MAIN = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); import hkrr.cli; hkrr.cli.main()"


@pytest.mark.parametrize(("n_jobs", "group"), [(1, True), (2, True), (2, False)])
def test_ctrl_c_ends_a_process_soon_and_quietly(tmp_path, n_jobs, group):
    """As a terminal sends it, to all the processes of the group, or to the first alone."""
    arguments = ["reproduce", "latent-dimension", "--quick", "--repeats", "20", "--n-jobs", str(n_jobs)]
    command, log = [sys.executable, "-c", MAIN, *arguments, "--out", str(tmp_path)], tmp_path / "log"
    kept = tmp_path / ".latent-dimension.jsonl"
    with open(log, "w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        for _ in range(1200):
            if process.poll() is not None or (kept.exists() and kept.read_text().count("\n") > 0):
                break
            time.sleep(0.05)
        assert process.poll() is None, log.read_text()
        (os.killpg if group else os.kill)(process.pid, signal.SIGINT)
        assert process.wait(timeout=60) == 130, log.read_text()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    shown = " ".join(log.read_text().split())
    assert "Stopped. What is done is kept in" in shown
    assert "Traceback" not in shown, shown
    assert all("rows" in json.loads(line) for line in kept.read_text().splitlines())
