"""What an experiment is, and how one is run: case by case, each kept as soon as it is there.

An experiment is a module with

    Config                      a frozen dataclass: the paper's sizes by default; ``Config.quick()`` takes seconds
    cases(config)               the runs to make, each a dict that names it
    run_case(config, case)      the rows that a run gives, a list of dicts
    run(config)                 all of them, one after another: a table
    plot(table)                 a matplotlib Figure
    claims(table)               what the paper says of it, and whether it holds here

A table is a list of dicts, tidy: one observation a row. Cases depend on nothing but themselves and the config, so they
run in any order and in any process, and those that are done need not be done again. Repeats come last in that order:
what was stopped half-way has whole repeats.
"""

from __future__ import annotations

import os
import signal
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import joblib

from hkrr.experiments.store import Case, Row, Store, Table, provenance, write_csv
from hkrr.threads import single_threaded_blas

__all__ = ["COLOURS", "Case", "Claim", "Experiment", "Outcome", "Row", "Table", "reproduce", "run_all"]

# Okabe and Ito's colours, distinct to everyone: VarPro red and AGD blue as in the paper, our own solver green; the
# others are for what is none of them.
COLOURS = {"VarPro": "#D55E00", "AGD": "#0072B2", "L-BFGS": "#009E73"}
GREY, PURPLE, ORANGE, SKY = "#999999", "#CC79A7", "#E69F00", "#56B4E9"


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper's, whether it holds here (None: these runs cannot tell), and the number that says so."""

    text: str
    holds: bool | None
    number: str

    def __str__(self) -> str:
        verdict = {True: "holds", False: "does not hold", None: "cannot be said"}[self.holds]
        return f"{verdict}: {self.text} ({self.number})"


class Experiment(Protocol):
    """The module of an experiment."""

    Config: Any

    def cases(self, config: Any) -> list[Case]:
        """Return the runs to make."""

    def run_case(self, config: Any, case: Case) -> Table:
        """Return the rows of one run."""

    def run(self, config: Any) -> Table:
        """Return the rows of all of them."""

    def plot(self, table: Table) -> Any:
        """Return the picture."""

    def claims(self, table: Table) -> list[Claim]:
        """Return what was claimed, checked."""


def run_all(config: Any, cases: Sequence[Case], run_case: Callable[[Any, Case], Table]) -> Table:
    """Return the rows of all cases, one after another."""
    return [row for case in cases for row in run_case(config, case)]


@dataclass(frozen=True)
class Outcome:
    """What came of an experiment, and where it lies; the seconds are those of all its cases, one core each."""

    table: Table
    claims: list[Claim]
    csv: Path
    picture: Path
    n_cases: int
    seconds: float
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
    """Run what is not there yet, and write ``name.csv``, ``name.png`` and ``name.txt`` (the claims) into a folder.

    Finished cases are kept in ``.name.jsonl``, with the config they belong to: a run that was stopped goes on where it
    was, and one with more repeats makes only those; any other change of the config, or of the library's version, begins
    anew (after a change of the code, remove that file). A case that fails leaves the others to run: what is written is
    of those that ended, and `Outcome.failures` has the rest. ``on_progress`` is told how many cases are done, of how
    many, and the seconds left (None before the first has ended).
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
    ended = [case for case in cases if case in store]
    if not ended:
        raise RuntimeError(f"all {len(cases)} runs failed. The first, {failures[0]}")
    table = [row for case in ended for row in store.rows(case)]
    seconds = sum(store.seconds(case) for case in ended)
    csv, picture = out / f"{name}.csv", out / f"{name}.png"
    write_csv(table, csv)
    claims = experiment.claims(table)
    failed = [f"{len(failures)} of {len(cases)} runs failed. The first, {failures[0]}"] if failures else []
    lines = [*map(str, claims), *failed, f"{len(ended)} runs, {seconds:.0f} s of one core in all", provenance(config)]
    (out / f"{name}.txt").write_text("\n".join(lines) + "\n")
    _save(experiment.plot(table), picture)
    return Outcome(table, claims, csv, picture, len(ended), seconds, failures)


def _save(figure: Any, path: Path) -> None:
    import matplotlib.pyplot as plt

    figure.savefig(path, dpi=110)
    plt.close(figure)


def _timed(
    run_case: Callable[[Any, Case], Table], config: Any, case: Case, main_process: int
) -> tuple[Case, Table | str, float]:
    """Run a case on one core, as the paper's budgets are one core's seconds; return its rows, or what went wrong.

    Ctrl-C reaches every process of a terminal: the main one ends the others, which need not say so themselves.
    """
    if os.getpid() != main_process:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    began = time.perf_counter()
    rows: Table | str
    try:
        with single_threaded_blas():
            rows = run_case(config, case)
    except Exception:  # one run that fails must not take the others with it
        rows = traceback.format_exc()
    return case, rows, time.perf_counter() - began
