"""Run every method of a benchmark on every problem, and store the results in a CSV file.

A cell of the benchmark is one method on one problem. Each cell runs in its own process. The process loads the problem
and imports the method's packages before the time measurement starts. The measured seconds include tuning, fitting and
predicting. If they exceed the time limit by more than a twentieth and a second, the process is killed, and the cell is
over the limit. The measured memory is the increase of the peak resident size. To measure the machine's current speed, a
matrix product of fixed size is timed before each cell.

A stored result is reused if the data, the code of the method, the time limit and the number of threads have not
changed. Changes of the data and the code are detected by hashes. Failed cells are run again, but not cells over the
limit.
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
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np

from hkrr._base.linear_algebra import Array
from hkrr.bench.method_interface import Answer, BenchmarkTask
from hkrr.bench.problems import label, load_problem
from hkrr.bench.scores import scores_of
from hkrr.metrics import subspace_distance

# A row of the CSV file: the result of one method on one problem.
Row = dict[str, Any]
# The names of a problem and of a method.
Key = tuple[str, str]

# The columns of the CSV file.
COLUMNS = (
    "problem",
    "data",
    "task",
    "method",
    "code",
    "R2",
    "log_loss",
    "accuracy",
    "calibration_error",
    "constant_error",
    "subspace_distance",
    "seconds",
    "fit_seconds",
    "peak_mb",
    "machine_ms",
    "n_train",
    "n_features",
    "limit",
    "threads",
    "note",
    "error",
)
# The error message of a method that exceeded the time limit.
OVER_LIMIT = "over the limit"
# Environment variables that limit the number of threads.
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "LOKY_MAX_CPU_COUNT")
# Threads that wait for each other sleep. By default, they would keep a core busy, which makes some packages many times
# slower if other programs are running.
_WAITING = "OMP_WAIT_POLICY"
# Maximum number of seconds to wait for a process to exit after it has sent its result.
_GRACE = 5.0
# Maximum number of seconds for loading the problem and importing packages, before the time measurement starts.
_LOADING = 300.0
# Number of rows of the square matrices, and number of repeats, in the matrix product that measures the machine's speed.
_PROBE_ROWS, _PROBE_REPEATS = 500, 5


@dataclass(frozen=True)
class Rules:
    """The resources that every method gets on every problem."""

    # Time limit for tuning, fitting and predicting, in seconds.
    seconds: float = 30.0
    # Number of threads.
    threads: int = 2

    @property
    def most_seconds(self) -> float:
        """The time after which a process is killed."""
        return 1.05 * self.seconds + 1.0


class _Running(NamedTuple):
    """A running cell: its problem and method, its process, and the time at which the process is killed."""

    key: Key
    process: Any
    until: float
    # Whether the time measurement has started.
    started: bool = False


def run_cells(
    problems: Iterable[str],
    methods: Iterable[str],
    rules: Rules,
    path: Path,
    *,
    n_jobs: int = 1,
    on_progress: Callable[[int, int, str], None] = lambda done, total, what: None,
) -> list[Row]:
    """Run every method on every problem, append each result to a CSV file, and return all requested results.

    A cell is one method on one problem. The docstring of this module says when a result in the file is reused, so that
    its cell is not run again. `n_jobs` cells run at the same time. `on_progress` is called with the number of finished
    cells, the number of all cells, and the names of the running cells.
    """
    from hkrr.bench import METHODS
    from hkrr.bench.code_digest import code_of

    source_of = {label(problem): problem for problem in problems}
    facts = {problem: load_problem(source).facts() for problem, source in source_of.items()}
    wanted = [
        (problem, method)
        for problem in source_of
        for method in dict.fromkeys(methods)
        if facts[problem]["task"] in METHODS[method].tasks
    ]
    code = {method: code_of(method) for _, method in wanted}
    done: dict[Key, Row] = {}
    kept = []
    for row in read(path):
        key = (row["problem"], row["method"])
        if key in wanted and _same_rules(row, rules):
            is_current = (row["data"], row["code"]) == (facts[key[0]]["data"], code[key[1]])
            if not is_current or row["error"] not in ("", OVER_LIMIT):
                # The result is outdated, or the cell failed: run the cell again.
                continue
            done[key] = row
        kept.append(row)
    _rewrite(kept, path)
    todo = [key for key in wanted if key not in done]
    total, running = len(wanted), dict[Connection, _Running]()
    try:
        while todo or running:
            while todo and len(running) < n_jobs:
                problem, method = key = todo.pop(0)
                receiver, process = _start(source_of[problem], method, rules)
                running[receiver] = _Running(key, process, time.monotonic() + _LOADING)
            names = ", ".join(" ".join(each.key) for each in running.values())
            on_progress(total - len(todo) - len(running), total, names)
            for receiver, row in _finished(running, rules):
                key, process, *_ = running.pop(receiver)
                process.join(0.0 if row.get("error") == OVER_LIMIT else _GRACE)
                _kill(process)
                identity = {"problem": key[0], "method": key[1], "code": code[key[1]], **facts[key[0]]}
                done[key] = {**identity, "limit": rules.seconds, "threads": rules.threads, **row}
                append(done[key], path)
    finally:
        for each in running.values():
            _kill(each.process)
    on_progress(total, total, "")
    return [done[key] for key in wanted]


def _finished(running: dict[Connection, _Running], rules: Rules) -> Iterator[tuple[Connection, Row]]:
    """Wait at most one second. Yield the result of each cell that has finished, crashed or exceeded the time limit."""
    soonest = min(each.until for each in running.values()) - time.monotonic()
    ready = wait(list(running), timeout=min(1.0, max(0.0, soonest)))
    for receiver in [each for each in running if each in ready]:
        try:
            row = receiver.recv()
        except EOFError:  # the process crashed or was killed before it sent a result
            process = running[receiver].process
            process.join()
            yield receiver, {"error": f"the process ended with exit code {process.exitcode}"}
            continue
        if row is None:  # the time measurement has started
            until = time.monotonic() + rules.most_seconds
            running[receiver] = running[receiver]._replace(until=until, started=True)
        else:
            yield receiver, {"error": OVER_LIMIT} if row.get("seconds", 0.0) > rules.most_seconds else row
    for receiver, each in list(running.items()):
        if time.monotonic() > each.until:
            yield receiver, {"error": OVER_LIMIT if each.started else f"not loaded after {_LOADING:.0f} s"}


def _kill(process: Any) -> None:
    """Kill a process and the processes that it has started."""
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.join()


def _start(problem: str, method: str, rules: Rules) -> tuple[Connection, Any]:
    context = multiprocessing.get_context("spawn")
    # The type is Any, because the class of the connections depends on the platform.
    pipe: tuple[Any, Any] = context.Pipe(duplex=False)
    receiver, sender = pipe
    # The variables must be set before the process imports NumPy.
    waiting = {_WAITING: os.environ.get(_WAITING, "PASSIVE")}
    with _environment(dict.fromkeys(_THREADS, str(rules.threads)) | waiting):
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
    """Run `evaluate` in a child process, and send the result to the parent process."""
    # Ignore Ctrl-C: the parent process also receives the signal, and kills this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(os, "setsid"):
        os.setsid()  # the parent process kills this process together with its children
    with open(os.devnull, "w") as nowhere:  # some packages print their progress
        for stream in (1, 2):
            os.dup2(nowhere.fileno(), stream)
    sender.send(evaluate(problem, method, rules, lambda: sender.send(None)))


def evaluate(problem: str, method: str, rules: Rules, on_start: Callable[[], None] = lambda: None) -> Row:
    """Run one method on one problem. Return a dict with its scores, times and memory use, or with its error message.

    `on_start` is called when the time measurement starts.
    """
    from hkrr.bench import METHODS

    row: Row = {}
    try:
        data = load_problem(problem)
        for package in METHODS[method].packages:
            importlib.import_module(package)
        task = BenchmarkTask(data.X, data.y, data.X_test, rules.seconds, rules.threads, n_classes=data.n_classes)
        row["machine_ms"] = round(_probe(), 2)
        before = _peak(reset=True)
        on_start()
        began = time.perf_counter()
        answer = METHODS[method].answer(task)
        row["seconds"] = round(time.perf_counter() - began, 2)
        row["peak_mb"] = round(_peak() - before, 1)
        row["fit_seconds"] = "" if answer.fit_seconds is None else round(answer.fit_seconds, 2)
        row["note"] = answer.note
        row |= scores_of(data.y_test, answer.predicted, data.n_classes)
        if data.B is not None and answer.components is not None:
            row["subspace_distance"] = round(_distance(answer, data.B, data.X), 4)
    except Exception as error:
        message = (str(error).splitlines() or [""])[0]
        row["error"] = f"{type(error).__name__}: {message}"[:200]
    return row


def _distance(answer: Answer, true: Array, X: Array) -> float:
    """Return the distance between the true subspace and the subspace of the leading learned directions.

    The columns of both maps are scaled by the standard deviations of X. The number of leading directions equals the
    number of true directions. If the rows of the learned map are sorted by importance, the first rows are the leading
    directions. Otherwise the leading directions are the right singular vectors with the largest singular values.
    """
    scale = X.std(axis=0)
    found = np.asarray(answer.components) * scale
    leading = found if answer.ordered else np.linalg.svd(found, full_matrices=False)[2]
    return subspace_distance(leading[: len(true)], true * scale)


def _probe() -> float:
    """Return the median time of a matrix product of fixed size, in milliseconds."""
    A = np.ones((_PROBE_ROWS, _PROBE_ROWS))
    times = []
    for _ in range(_PROBE_REPEATS):
        began = time.perf_counter()
        A @ A
        times.append(time.perf_counter() - began)
    return 1e3 * float(np.median(times))


def _peak(reset: bool = False) -> float:
    """Return the peak memory use (resident size) in MB, or NaN on Windows.

    On Linux this is the peak since the last call with ``reset=True``. On other Unix systems it is the peak since the
    process started.
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

        # ru_maxrss is in bytes on macOS and in kilobytes on other systems.
        unit = 2**20 if sys.platform == "darwin" else 2**10
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def _same_rules(row: Row, rules: Rules) -> bool:
    return (row["limit"], row["threads"]) == (str(rules.seconds), str(rules.threads))


def read(path: Path) -> list[Row]:
    """Return the results in the CSV file as a list of dicts, or an empty list if there is no file."""
    if not path.exists():
        return []
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    if rows and set(rows[0]) != set(COLUMNS):
        raise ValueError(
            f"{path} was not written by this version of hkrr bench; move the file, or choose another output folder"
        )
    return rows


def append(row: Row, path: Path) -> None:
    """Append a result to the CSV file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a", newline="") as file:
        _write([row], file, header=file.tell() == 0)


def _rewrite(rows: list[Row], path: Path) -> None:
    """If the file has more results than the given rows, replace the file atomically by a file with these rows."""
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
