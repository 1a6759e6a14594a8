"""Test hkrr reproduce (Ctrl-C, failed runs, options), and the command line in general."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from importlib.metadata import entry_points
from itertools import product
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hkrr import cli
from hkrr.__main__ import main
from hkrr._version import __version__
from hkrr.experiments import NAMES, get_experiment, toy_basins, toy_trajectories
from hkrr.experiments.experiment_runner import Claim, Outcome
from support.platforms import posix_only

SMALL_MAP, RUN_CASE = toy_basins.Config(n_points=3), toy_trajectories.run_case


def _invoke(*arguments):
    return CliRunner().invoke(cli.app, ["reproduce", *arguments])


def test_reproduce_can_be_resumed_after_ctrl_c(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cases, run_case, ran = toy_trajectories.cases(toy_trajectories.Config()), toy_trajectories.run_case, []

    def stopped(config, case):
        if case == cases[2] and case not in ran:
            raise KeyboardInterrupt
        ran.append(case)
        return run_case(config, case)

    with monkeypatch.context() as patch:
        patch.setattr(toy_trajectories, "run_case", stopped)
        result = _invoke("toy-path", "toy-map", "--out", "here")
    assert result.exit_code == 130
    assert "Finished runs are kept in here. Run the same command again to resume." in " ".join(result.output.split())
    assert ran == cases[:2]
    assert [path.name for path in Path("here").iterdir()] == [".toy-path.jsonl"]  # toy-map was not started
    ran.append(cases[2])
    monkeypatch.setattr(toy_trajectories, "run_case", stopped)
    assert _invoke("toy-path", "--out", "here").exit_code == 0
    assert ran[3:] == cases[2:]
    _invoke("toy-path", "--out", "there")
    assert Path("here/toy-path.csv").read_bytes() == Path("there/toy-path.csv").read_bytes()


def _failing(cases):
    """Return a function ``run_case`` for the experiment toy-path that fails for the given cases."""

    def run_case(config, case):
        if case in cases:
            raise ValueError("bad [data]")
        return RUN_CASE(config, case)

    return run_case


@pytest.mark.thorough
def test_an_experiment_whose_runs_all_fail_does_not_stop_the_next(tmp_path, monkeypatch):
    monkeypatch.setattr(toy_trajectories, "run_case", _failing(toy_trajectories.cases(toy_trajectories.Config())))
    monkeypatch.setattr(toy_basins, "Config", lambda seed: SMALL_MAP)
    result = _invoke("toy-path", "toy-map", "--out", str(tmp_path))
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)
    assert "all 27 runs failed. First failure: " in result.output
    assert "ValueError: bad [data]" in result.output
    assert (tmp_path / "toy-map.csv").exists()
    assert not (tmp_path / "toy-path.csv").exists()


@pytest.mark.thorough
def test_a_failed_run_is_shown_with_the_claims_and_does_not_stop_the_next_experiment(tmp_path, monkeypatch):
    """Test that if one run of toy-map fails, the claims, the CSV file and the figure are made from the other runs."""
    run_case, failing = toy_basins.run_case, toy_basins.cases(SMALL_MAP)[1]

    def fails_once(config, case):
        if case == failing:
            raise ValueError("bad [data]")
        return run_case(config, case)

    monkeypatch.setattr(toy_basins, "run_case", fails_once)
    monkeypatch.setattr(toy_basins, "Config", lambda seed: SMALL_MAP)
    result = _invoke("toy-map", "toy-path", "--out", str(tmp_path))
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)
    assert "  1 run failed. First failure: " in result.output
    assert "ValueError: bad [data]" in result.output
    assert result.output.count("the basin of the global minimum is larger") == 2
    assert "1 of 18 runs failed" in (tmp_path / "toy-map.txt").read_text()
    for name, kind in product(("toy-map", "toy-path"), ("csv", "png", "txt")):
        assert (tmp_path / f"{name}.{kind}").exists()


@pytest.mark.thorough  # `make test` tests failed runs only in tests/experiments
@pytest.mark.parametrize("name", ["toy-path", "convergence", "stationarity"])
def test_one_failed_run_does_not_stop_the_command(tmp_path, monkeypatch, name):
    """Test that after one failed run, the results of the other runs are written and the next experiment is run."""
    experiment = get_experiment(name)
    config = {"convergence": {"n_features": 5, "seconds": 0.02}, "stationarity": {"n_iterations": 20}}.get(name, {})
    config = replace(experiment.Config.quick(), **config)
    run_case, failing = experiment.run_case, experiment.cases(config)[1]

    def fails_once(config, case):
        if case == failing:
            raise ValueError("bad data")
        return run_case(config, case)

    monkeypatch.setattr(experiment, "run_case", fails_once)
    monkeypatch.setattr(experiment, "Config", lambda seed: config)
    monkeypatch.setattr(toy_basins, "Config", lambda seed: SMALL_MAP)
    result = _invoke(name, "toy-map", "--out", str(tmp_path))
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == 1
    assert "1 run failed" in result.output
    assert (tmp_path / f"{name}.png").exists()
    assert (tmp_path / "toy-map.csv").exists()


@pytest.mark.parametrize(
    ("holds", "verdict"),
    [(True, "holds"), (False, "does not hold"), (None, "inconclusive")],
)
def test_claims_are_printed(monkeypatch, holds, verdict):
    outcome = Outcome([], [Claim("it is so", holds, "1 [of] 2")], Path("a.csv"), Path("a.png"), 0.0)
    monkeypatch.setattr(cli.reproduce, "reproduce_one", lambda *a, **k: outcome)
    result = _invoke("toy-path")
    assert result.exit_code == 0
    assert f"  {verdict}: it is so. Measured: 1 [of] 2" in result.output.splitlines()


@pytest.mark.parametrize(("more", "is_noted"), [(0, False), (1, True), (50, True)])
def test_more_runs_at_once_than_cores_are_noted(monkeypatch, more, is_noted):
    outcome = Outcome([], [], Path("a.csv"), Path("a.png"), 0.0)
    monkeypatch.setattr(cli.reproduce, "reproduce_one", lambda *a, **k: outcome)
    n_jobs = os.cpu_count() + more
    result = _invoke("toy-path", "--n-jobs", str(n_jobs))
    assert result.exit_code == 0
    assert (f"{n_jobs} parallel runs on {os.cpu_count()} cores" in result.output) == is_noted
    assert "parallel runs" not in _invoke("toy-path", "--n-jobs", "-1").output


@pytest.mark.parametrize("missing", ["typer", "rich.console"])
def test_missing_packages_are_reported_in_one_line(monkeypatch, missing):
    monkeypatch.delitem(sys.modules, "hkrr.cli")  # main imports this module again
    monkeypatch.setitem(sys.modules, missing, None)  # makes the import of the package fail
    with pytest.raises(SystemExit) as raised:
        main()
    (line,) = raised.value.code.splitlines()  # Python prints the message on standard error and exits with status 1
    assert 'pip install "hkrr[cli]"' in line
    assert missing in line


def test_the_package_runs_as_a_module():
    command = [sys.executable, "-m", "hkrr", "reproduce", "toy"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 2
    assert "There is no experiment 'toy'" in done.stdout
    assert done.stderr == ""


def test_the_console_script_is_the_main_function():
    (script,) = entry_points(group="console_scripts", name="hkrr")
    assert script.value == "hkrr.__main__:main"
    assert callable(script.load())


@pytest.mark.parametrize("name", ["toy", "toy_path", "All", "[/bold]"])
def test_an_unknown_experiment_is_refused_and_the_known_ones_are_listed(tmp_path, name):
    result = _invoke("toy-path", name, "--out", str(tmp_path / "new"))
    assert result.exit_code == 2
    assert name in result.output
    assert all(known in result.output for known in NAMES)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "arguments", [["--repeats", "0"], ["--seed", "-1"], ["--n-jobs", "x"], ["--n-jobs", "0"], ["--quick=yes"]]
)
def test_invalid_options_are_refused(tmp_path, arguments):
    assert _invoke("toy-path", "--out", str(tmp_path / "new"), *arguments).exit_code == 2
    assert not (tmp_path / "new").exists()
    assert _invoke().exit_code == 2


@pytest.mark.parametrize("command", [["reproduce", "toy-path"], ["bench", "sines:m=60,D=3"]])
def test_an_output_folder_that_cannot_be_created(tmp_path, command):
    taken = tmp_path / "taken"
    taken.write_text("a file")
    result = CliRunner().invoke(cli.app, [*command, "--out", str(taken)])
    assert result.exit_code == 2
    assert "the folder cannot be created" in result.output
    assert taken.read_text() == "a file"


def test_version():
    result = CliRunner().invoke(cli.app, ["--version"])
    assert (result.exit_code, result.output) == (0, f"hkrr {__version__}\n")


def test_options_reach_the_experiments(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    made = []

    def record(name, experiment, config, out, *, n_jobs, on_progress):
        made.append((name, config, out, n_jobs))
        return Outcome([], [], Path("a.csv"), Path("a.png"), 0.0)

    monkeypatch.setattr(cli.reproduce, "reproduce_one", record)
    assert _invoke("nystrom", "toy-path", "nystrom").exit_code == 0
    assert made == [(n, get_experiment(n).Config(), Path("reproduced"), 1) for n in ("nystrom", "toy-path")]
    made.clear()
    _invoke("nystrom", "--quick")
    assert made == [("nystrom", get_experiment("nystrom").Config.quick(), Path("reproduced", "quick"), 1)]
    made.clear()
    _invoke("all", "--quick", "--seed", "7", "--repeats", "2", "--n-jobs", "2", "--out", "x")
    assert [(name, out, n_jobs) for name, _, out, n_jobs in made] == [(name, Path("x"), 2) for name in NAMES]
    for name, config, _, _ in made:
        quick = get_experiment(name).Config.quick(seed=7)
        assert config == (replace(quick, repeats=2) if hasattr(quick, "repeats") else quick)
        assert config.seed == 7


def test_brackets_in_a_folder_name_are_not_markup(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outcome = Outcome([], [], Path("of [may]/toy-map.csv"), Path("of [may]/toy-map.png"), 0.0)
    monkeypatch.setattr(cli.reproduce, "reproduce_one", lambda *a, **k: outcome)
    result = _invoke("toy-map", "--out", "of [may]")
    assert result.exit_code == 0
    assert str(outcome.csv) in " ".join(result.output.split())


# Restore the default handler of SIGINT: a shell that starts the tests in the background ignores the signal.
MAIN = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); import hkrr.__main__ as m; m.main()"


@posix_only
@pytest.mark.parametrize(("n_jobs", "group"), [(2, False), (1, True), (2, True)])
@pytest.mark.thorough  # `make test` interrupts `hkrr fit` instead (test_cli_processes.py)
def test_ctrl_c_stops_a_process_soon_and_without_a_traceback(tmp_path, n_jobs, group):
    """Test that SIGINT stops the command with status 130 and a message, without a traceback.

    The signal is sent to the whole process group, as by a terminal, or to the main process only.
    """
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
    output = " ".join(log.read_text().split())
    assert "Stopped. Finished runs are kept in" in output
    assert "Traceback" not in output, output
    assert all("rows" in json.loads(line) for line in kept.read_text().splitlines())
