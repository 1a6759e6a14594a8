"""One cell of a benchmark in a process of its own, and many of them with what is done kept.

A cell is a problem and a method. Its process loads the problem, imports the method's packages, and then the clock runs:
seconds are those of tuning, fitting and predicting. Its memory is how far the peak resident size rises above what was
resident before. A cell is known again by its data, not by their name, and by the code of its method; one that failed is
run again. How fast the machine was at that moment is a column too, the milliseconds of a fixed matrix product.
"""

from __future__ import annotations

import csv
import importlib
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np

from hkrr._arrays import Array
from hkrr.bench.methods import Answer, Task
from hkrr.bench.problems import label, load_problem
from hkrr.metrics import subspace_distance

Row = dict[str, Any]
Key = tuple[str, str]

COLUMNS = (
    "problem",
    "data",
    "method",
    "code",
    "R2",
    "subspace_distance",
    "seconds",
    "fit_seconds",
    "peak_mb",
    "machine_ms",
    "n_train",
    "n_features",
    "budget",
    "threads",
    "note",
    "error",
)
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "LOKY_MAX_CPU_COUNT")
# Seconds that a process has to end by itself when its work is done.
_GRACE = 5.0
# Rows and repeats of the product that tells how fast the machine is just now.
_PROBE_ROWS, _PROBE_REPEATS = 500, 5


@dataclass(frozen=True)
class Rules:
    """What every method is given: seconds to tune and fit in, threads. A process past the limit is ended."""

    seconds: float = 30.0
    threads: int = 1
    limit: float = 600.0


class _Running(NamedTuple):
    key: Key
    process: Any
    until: float


def run_cells(
    problems: Iterable[str],
    methods: Iterable[str],
    rules: Rules,
    path: Path,
    *,
    n_jobs: int = 1,
    on_progress: Callable[[int, int, str], None] = lambda done, total, what: None,
) -> list[Row]:
    """Run the cells that the file does not hold yet under these rules, add each as it ends; return all asked for."""
    from hkrr.bench.code import code_of

    source_of = {label(problem): problem for problem in problems}
    data_of = {problem: load_problem(source).fingerprint() for problem, source in source_of.items()}
    wanted = [(problem, method) for problem in source_of for method in dict.fromkeys(methods)]
    code = {method: code_of(method) for _, method in wanted}
    there = {}
    kept = []
    for row in read(path):
        key = (row["problem"], row["method"])
        if key in wanted and _same_rules(row, rules):
            if (row["data"], row["code"]) != (data_of[key[0]], code[key[1]]) or row["error"]:
                continue  # it is run again
            there[key] = row
        kept.append(row)
    _rewrite(kept, path)
    todo = [key for key in wanted if key not in there]
    total, running = len(wanted), dict[Connection, _Running]()
    try:
        while todo or running:
            while todo and len(running) < n_jobs:
                problem, method = key = todo.pop(0)
                receiver, process = _start(source_of[problem], method, rules)
                running[receiver] = _Running(key, process, time.monotonic() + rules.limit)
            now = ", ".join(" ".join(each.key) for each in running.values())
            on_progress(total - len(todo) - len(running), total, now)
            for receiver, row in _ended(running, rules):
                key, process, _ = running.pop(receiver)
                process.join(_GRACE)
                process.kill()
                process.join()
                names = {"problem": key[0], "data": data_of[key[0]], "method": key[1], "code": code[key[1]]}
                there[key] = {**names, "budget": rules.seconds, "threads": rules.threads, **row}
                append(there[key], path)
    finally:
        for each in running.values():
            each.process.kill()
            each.process.join()
    on_progress(total, total, "")
    return [there[key] for key in wanted]


def _ended(running: dict[Connection, _Running], rules: Rules) -> Iterator[tuple[Connection, Row]]:
    """Wait a second; yield the cells that have ended, or that had to be."""
    ready = wait(list(running), timeout=1.0)
    for receiver in [each for each in running if each in ready]:
        try:
            yield receiver, receiver.recv()
        except EOFError:  # it crashed or was killed
            process = running[receiver].process
            process.join()
            yield receiver, {"error": f"its process ended with exit code {process.exitcode}"}
    for receiver, (_, _, until) in list(running.items()):
        if time.monotonic() > until:
            yield receiver, {"error": f"not done after {rules.limit:.0f} s"}


def _start(problem: str, method: str, rules: Rules) -> tuple[Connection, Any]:
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    with _environment(dict.fromkeys(_THREADS, str(rules.threads))):  # the process inherits it before it imports
        process = context.Process(target=_run, args=(problem, method, rules, sender), daemon=True)
        process.start()
    sender.close()
    return receiver, process


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    kept = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in kept.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _run(problem: str, method: str, rules: Rules, sender: Connection) -> None:
    """Fit and score, in a process of its own, and send what came of it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's: it ends this process
    sender.send(evaluate(problem, method, rules))


def evaluate(problem: str, method: str, rules: Rules) -> Row:
    """Return what one method makes of one problem, or its error."""
    from hkrr.bench import METHODS

    row: Row = {}
    try:
        data = load_problem(problem)
        row["n_train"], row["n_features"] = data.X.shape
        for package in METHODS[method].packages:
            importlib.import_module(package)
        row["machine_ms"] = round(_probe(), 2)
        before = _peak(reset=True)
        began = time.perf_counter()
        answer = METHODS[method].run(Task(data.X, data.y, data.X_test, rules.seconds, rules.threads))
        row["seconds"] = round(time.perf_counter() - began, 2)
        row["peak_mb"] = round(_peak() - before, 1)
        row["fit_seconds"] = "" if answer.fit_seconds is None else round(answer.fit_seconds, 2)
        row["note"] = answer.note
        if answer.predicted.shape != data.y_test.shape or not np.all(np.isfinite(answer.predicted)):
            raise ValueError(f"predictions of shape {answer.predicted.shape}, not all of them finite numbers")
        row["R2"] = round(1.0 - float(np.mean((answer.predicted - data.y_test) ** 2) / np.var(data.y_test)), 6)
        if data.B is not None and answer.components is not None:
            row["subspace_distance"] = round(_distance(answer, data.B, data.X), 4)
    except Exception as error:
        message = (str(error).splitlines() or [""])[0]
        row["error"] = f"{type(error).__name__}: {message}"[:200]
    return row


def _distance(answer: Answer, true: Array, X: Array) -> float:
    """Return the distance of the leading directions of a map, as many as are true, in units of the columns of X.

    Leading are the first rows where a method orders them, the largest singular values of the map otherwise.
    """
    scale = X.std(axis=0)
    found = np.asarray(answer.components) * scale
    leading = found if answer.ordered else np.linalg.svd(found, full_matrices=False)[2]
    return subspace_distance(leading[: len(true)], true * scale)


def _probe() -> float:
    """Return the milliseconds of a fixed matrix product, the middle of some."""
    A = np.ones((_PROBE_ROWS, _PROBE_ROWS))
    times = []
    for _ in range(_PROBE_REPEATS):
        began = time.perf_counter()
        A @ A
        times.append(time.perf_counter() - began)
    return 1e3 * float(np.median(times))


def _peak(reset: bool = False) -> float:
    """Return the peak resident size in MB, NaN where the system does not tell.

    On Linux from the last reset on, and without what a parent left behind; on other Unix systems of all the process.
    """
    if sys.platform == "win32":
        return float("nan")
    try:
        if reset:
            Path("/proc/self/clear_refs").write_text("5")
        lines = Path("/proc/self/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 2**10
    except (OSError, StopIteration):
        import resource

        # It counts kilobytes, on macOS bytes.
        unit = 2**20 if sys.platform == "darwin" else 2**10
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def _same_rules(row: Row, rules: Rules) -> bool:
    return (row["budget"], row["threads"]) == (str(rules.seconds), str(rules.threads))


def read(path: Path) -> list[Row]:
    """Return the cells that are there."""
    if not path.exists():
        return []
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    if rows and set(rows[0]) != set(COLUMNS):
        raise ValueError(f"{path} was not written by this version of hkrr bench: move it away, or give another folder")
    return rows


def append(row: Row, path: Path) -> None:
    """Add a cell to the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a", newline="") as file:
        _write([row], file, header=file.tell() == 0)


def _rewrite(rows: list[Row], path: Path) -> None:
    """Leave these cells in the file and no others, at once."""
    if path.exists() and len(rows) < len(read(path)):
        other = path.with_suffix(".new")
        with open(other, "w", newline="") as file:
            _write(rows, file, header=True)
        other.replace(path)


def _write(rows: Iterable[Row], file: TextIO, *, header: bool) -> None:
    writer = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
    if header:
        writer.writeheader()
    writer.writerows(rows)
    file.flush()
    os.fsync(file.fileno())
