"""The command line: Ctrl-C, failures, options, what it says where something is missing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from importlib.metadata import entry_points, version
from itertools import product
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hkrr import cli
from hkrr.experiments import NAMES, get_experiment, toy_map, toy_path
from hkrr.experiments.base import Claim, Outcome

SMALL_MAP, RUN_CASE = toy_map.Config(n_points=3), toy_path.run_case


def _invoke(*arguments):
    return CliRunner().invoke(cli.app, ["reproduce", *arguments])


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


def _failing(cases):
    """Return a ``run_case`` of the toy paths that fails at these."""

    def run_case(config, case):
        if case in cases:
            raise ValueError("odd [data]")
        return RUN_CASE(config, case)

    return run_case


def test_where_all_runs_fail_it_is_shown_and_the_next_experiment_is_run(tmp_path, monkeypatch):
    monkeypatch.setattr(toy_path, "run_case", _failing(toy_path.cases(toy_path.Config())))
    monkeypatch.setattr(toy_map, "Config", lambda seed: SMALL_MAP)
    result = _invoke("toy-path", "toy-map", "--out", str(tmp_path))
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)
    assert "all 27 runs failed. The first, " in result.output
    assert "ValueError: odd [data]" in result.output
    assert (tmp_path / "toy-map.csv").exists()
    assert not (tmp_path / "toy-path.csv").exists()


def test_where_a_run_fails_it_is_shown_beside_the_claims_and_the_next_experiment_is_run(tmp_path, monkeypatch):
    """A row of the map failed: claims, table and picture are of the others."""
    run_case, odd = toy_map.run_case, toy_map.cases(SMALL_MAP)[1]

    def fails_once(config, case):
        if case == odd:
            raise ValueError("odd [data]")
        return run_case(config, case)

    monkeypatch.setattr(toy_map, "run_case", fails_once)
    monkeypatch.setattr(toy_map, "Config", lambda seed: SMALL_MAP)
    result = _invoke("toy-map", "toy-path", "--out", str(tmp_path))
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)
    assert "  1 runs failed. The first, " in result.output
    assert "ValueError: odd [data]" in result.output
    assert result.output.count("the basin of the global minimum is larger") == 2
    assert "1 of 18 runs failed" in (tmp_path / "toy-map.txt").read_text()
    for name, kind in product(("toy-map", "toy-path"), ("csv", "png", "txt")):
        assert (tmp_path / f"{name}.{kind}").exists()


@pytest.mark.parametrize("name", ["toy-path", "convergence", "stationarity"])
def test_one_run_that_fails_does_not_end_the_command(tmp_path, monkeypatch, name):
    """Whichever it is: the others' claims and the next experiment come all the same."""
    experiment = get_experiment(name)
    config = {"convergence": {"n_features": 5, "seconds": 0.02}, "stationarity": {"n_iterations": 20}}.get(name, {})
    config = replace(experiment.Config.quick(), **config)
    run_case, odd = experiment.run_case, experiment.cases(config)[1]

    def fails_once(config, case):
        if case == odd:
            raise ValueError("odd data")
        return run_case(config, case)

    monkeypatch.setattr(experiment, "run_case", fails_once)
    monkeypatch.setattr(experiment, "Config", lambda seed: config)
    monkeypatch.setattr(toy_map, "Config", lambda seed: SMALL_MAP)
    result = _invoke(name, "toy-map", "--out", str(tmp_path))
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == 1
    assert "1 runs failed" in result.output
    assert (tmp_path / f"{name}.png").exists()
    assert (tmp_path / "toy-map.csv").exists()


@pytest.mark.parametrize(
    ("holds", "verdict"),
    [(True, "holds"), (False, "does not hold"), (None, "cannot be said")],
)
def test_claims_on_the_screen(monkeypatch, holds, verdict):
    outcome = Outcome([], [Claim("it is so", holds, "1 [of] 2")], Path("a.csv"), Path("a.png"), 1, 0.0)
    monkeypatch.setattr(cli.reproduce, "reproduce_one", lambda *a, **k: outcome)
    result = _invoke("toy-path")
    assert result.exit_code == 0
    assert f"  {verdict}: it is so (1 [of] 2)" in result.output.splitlines()


@pytest.mark.parametrize(("more", "is_told"), [(0, False), (1, True), (50, True)])
def test_more_runs_at_once_than_cores_are_noted(monkeypatch, more, is_told):
    outcome = Outcome([], [], Path("a.csv"), Path("a.png"), 0, 0.0)
    monkeypatch.setattr(cli.reproduce, "reproduce_one", lambda *a, **k: outcome)
    n_jobs = os.cpu_count() + more
    result = _invoke("toy-path", "--n-jobs", str(n_jobs))
    assert result.exit_code == 0
    assert (f"{n_jobs} runs at once on {os.cpu_count()} cores" in result.output) == is_told
    assert "runs at once" not in _invoke("toy-path", "--n-jobs", "-1").output


def _python(*arguments):
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_the_command_lines_packages_it_is_one_line(missing):
    code = f"import sys; sys.modules[{missing!r}] = None; import hkrr; import hkrr.__main__ as m; m.main()"
    done = _python("-c", code)
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert 'pip install "hkrr[cli]"' in line
    assert missing in line


def test_the_package_runs_as_a_module(tmp_path):
    done = _python("-m", "hkrr", "reproduce", "toy-path", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "toy-path.csv").exists()
    done = _python("-m", "hkrr", "reproduce", "toy")
    assert done.returncode == 2
    assert "There is no experiment 'toy'" in done.stdout


def test_the_command_is_the_module():
    (script,) = entry_points(group="console_scripts", name="hkrr")
    assert script.value == "hkrr.__main__:main"
    assert callable(script.load())


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


@pytest.mark.parametrize("command", [["reproduce", "toy-path"], ["bench", "sines:m=60,D=3"]])
def test_a_folder_that_cannot_be_is_refused(tmp_path, command):
    taken = tmp_path / "taken"
    taken.write_text("a file")
    result = CliRunner().invoke(cli.app, [*command, "--out", str(taken)])
    assert result.exit_code == 2
    assert "no folder can be made there" in result.output
    assert taken.read_text() == "a file"


def test_version():
    result = CliRunner().invoke(cli.app, ["--version"])
    assert (result.exit_code, result.output) == (0, f"hkrr {version('hkrr')}\n")


def test_options_reach_the_experiments(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    made = []

    def noted(name, experiment, config, out, *, n_jobs, on_progress):
        made.append((name, config, out, n_jobs))
        return Outcome([], [], Path("a.csv"), Path("a.png"), 0, 0.0)

    monkeypatch.setattr(cli.reproduce, "reproduce_one", noted)
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


def test_brackets_in_the_name_of_the_folder_are_shown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = _invoke("toy-path", "--quick", "--out", "of [may]")
    assert result.exit_code == 0
    assert "of [may]/toy-path.csv" in " ".join(result.output.split())


# The handler anew: a shell that starts this in the background would have it ignore the signal.
MAIN = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); import hkrr.__main__ as m; m.main()"


@pytest.mark.parametrize(
    ("n_jobs", "group"), [(2, False), *(pytest.param(n, True, marks=pytest.mark.thorough) for n in (1, 2))]
)
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
