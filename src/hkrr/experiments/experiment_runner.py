"""The interface of an experiment, and `reproduce`, which runs an experiment case by case and stores each result.

An experiment is a module with

    Config                      a frozen dataclass with the paper's sizes as defaults; ``Config.quick()`` is smaller
    cases(config)               returns the list of runs, each described by a dict (a case)
    run_case(config, case)      runs one case and returns its rows, a list of dicts
    plot(table)                 returns a matplotlib Figure
    claims(table)               checks the paper's claims against the table

`run` runs all cases one after another and returns the table. `reproduce` also stores finished cases and reuses them.

A table is a list of rows, and a row is a dict with one observation. The result of a case depends only on the case and
the config. Cases can therefore run in any order and in any process, and finished cases can be reused. The cases are
sorted by repeat, so that an interrupted experiment has complete repeats. The exception is `nystrom`, which runs two
parts one after the other: its cases are sorted by repeat only within each part.
"""

from __future__ import annotations

import os
import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import joblib

from hkrr._base.threads import single_threaded_blas
from hkrr.experiments.result_store import Case, Row, Store, Table, provenance, write_csv

__all__ = ["Case", "Claim", "Experiment", "Outcome", "Row", "Table", "quick_config", "reproduce", "run"]


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, and whether the results of an experiment confirm the claim."""

    text: str
    # Whether the claim holds, or None if the results are inconclusive.
    holds: bool | None
    # The measured numbers that decide the claim, as text.
    number: str

    def __str__(self) -> str:
        verdict = {True: "holds", False: "does not hold", None: "inconclusive"}[self.holds]
        return f"{verdict}: {self.text}. Measured: {self.number}"


def quick_config(**fields: Any) -> Any:
    """Return a class method ``quick(seed=0)`` for a `Config` class. It returns a configuration that runs in seconds.

    The configuration has the values in `fields`, which are smaller than in the paper. All other fields have their
    defaults.
    """
    return classmethod(lambda cls, seed=0: cls(**fields, seed=seed))


class Experiment(Protocol):
    """The interface of an experiment module."""

    Config: Any

    def cases(self, config: Any) -> list[Case]:
        """Return the list of runs."""

    def run_case(self, config: Any, case: Case) -> Table:
        """Run one case and return its rows."""

    def plot(self, table: Table) -> Any:
        """Return the figure."""

    def claims(self, table: Table) -> list[Claim]:
        """Check the paper's claims against the table."""


def run(experiment: Experiment, config: Any) -> Table:
    """Run all cases of an experiment one after another, and return the table."""
    return [row for case in experiment.cases(config) for row in experiment.run_case(config, case)]


@dataclass(frozen=True)
class Outcome:
    """The result of an experiment."""

    table: Table
    claims: list[Claim]
    csv: Path
    picture: Path
    # Total time of all finished cases in seconds. Each case runs on one core.
    seconds: float
    # One error message for each failed case.
    failures: list[str] = field(default_factory=list)


def reproduce(
    name: str,
    experiment: Experiment,
    config: Any,
    out: Path,
    *,
    n_jobs: int | None = None,
    on_progress: Callable[[int, int, float | None], None] = lambda done, total, seconds_left: None,
) -> Outcome:
    """Run an experiment, and write ``name.csv``, ``name.png`` and ``name.txt`` (the claims) into a folder.

    Finished cases are stored in ``.name.jsonl`` with a hash of the config and of the library's version. Later runs
    reuse the finished cases. An interrupted run therefore resumes where it stopped, and a run with more repeats
    computes only the new repeats. If the version or a field of the config other than ``repeats`` has changed, all cases
    run again. Other changes of the code are not detected, so delete ``.name.jsonl`` after changing the code. If a case
    fails, the remaining cases still run. The files then describe only the finished cases, and `Outcome.failures`
    contains the error messages.

    Parameters
    ----------
    name : str
        Name of the experiment. The names of the files begin with this name.
    experiment : module
        The module of the experiment; see `get_experiment`.
    config : Config
        The configuration of the experiment, an instance of ``experiment.Config``.
    out : Path
        The folder into which the files are written. It is created if it does not exist.
    n_jobs : int or None, default=None
        Number of cases to run in parallel, as in joblib. None means 1.
    on_progress : callable
        Called with the number of finished cases, the number of all cases, and the estimated seconds left. The estimate
        is None before the first case has finished.
    """
    out.mkdir(parents=True, exist_ok=True)
    store = Store(out / f".{name}.jsonl", config)
    cases = experiment.cases(config)
    todo = [case for case in cases if case not in store]
    n_before, began = len(cases) - len(todo), time.perf_counter()
    on_progress(n_before, len(cases), None)
    jobs = (joblib.delayed(_timed)(experiment.run_case, config, case, os.getpid()) for case in todo)
    finished = joblib.Parallel(n_jobs=n_jobs, return_as="generator_unordered")(jobs)
    failures = []
    for n_done, (case, rows, seconds) in enumerate(finished, start=1):
        if isinstance(rows, str):
            failures.append(f"{case}: {rows}")
        else:
            store.add(case, rows, seconds)
        left = (time.perf_counter() - began) / n_done * (len(todo) - n_done)
        on_progress(n_before + n_done, len(cases), left)
    finished_cases = [case for case in cases if case in store]
    if not finished_cases:
        raise RuntimeError(f"all {len(cases)} runs failed. First failure: {failures[0]}")
    table = [row for case in finished_cases for row in store.rows(case)]
    seconds = sum(store.seconds(case) for case in finished_cases)
    csv, picture = out / f"{name}.csv", out / f"{name}.png"
    write_csv(table, csv)
    claims = experiment.claims(table)
    failed = [f"{len(failures)} of {len(cases)} runs failed. First failure: {failures[0]}"] if failures else []
    cost = f"{len(finished_cases)} runs, {seconds:.0f} s of one core in total"
    (out / f"{name}.txt").write_text("\n".join([*map(str, claims), *failed, cost, provenance(config)]) + "\n")
    _save(experiment.plot(table), picture)
    return Outcome(table, claims, csv, picture, seconds, failures)


def _save(figure: Any, path: Path) -> None:
    import matplotlib.pyplot as plt

    figure.savefig(path, dpi=110)
    plt.close(figure)


def _timed(
    run_case: Callable[[Any, Case], Table], config: Any, case: Case, main_process: int
) -> tuple[Case, Table | str, float]:
    """Run a case on one core. Return the case, its rows or the traceback of its error, and the time in seconds.

    One core is used, because the paper's time limits are for one core. Worker processes ignore Ctrl-C, because the main
    process receives the same signal and stops the workers.
    """
    if os.getpid() != main_process:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    began = time.perf_counter()
    rows: Table | str
    try:
        with single_threaded_blas():
            rows = run_case(config, case)
    except Exception:  # a failed case must not stop the other cases
        rows = traceback.format_exc()
    return case, rows, time.perf_counter() - began
