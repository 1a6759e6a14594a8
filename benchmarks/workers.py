"""Processes that run cases with a version of hkrr, and CSV files to which results are appended one at a time.

Used by search.py, unclean.py, ablation.py and simple_models.py. A worker can run with an older version of hkrr, with
which other modules of benchmarks may not work. This module and these scripts therefore import the other modules only
inside functions.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

# Root folder of the repository that contains this file. Workers can also run the code in another folder.
HERE = Path(__file__).resolve().parent.parent
Row = dict[str, Any]
# The line that a worker prints when it is ready for the first case.
_READY = "ready"


def serve(run: Callable[..., Row]) -> None:
    """Read cases from standard input, one JSON object per line, and print the result of ``run`` for each, one per line.

    A small model is fitted before, so that the time of the first case does not include the loading of libraries. If a
    case raises an error, its result is a row with the error message.
    """
    from hkrr import HyperKernelRidgeCV

    X = np.random.RandomState(0).standard_normal((60, 3))
    HyperKernelRidgeCV(random_state=0).fit(X, X[:, 0])
    print(_READY, flush=True)
    for line in sys.stdin:
        try:
            row = run(**json.loads(line))
        except Exception as error:  # the other cases still run
            row = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(row), flush=True)


class Worker:
    """A process that runs cases with the version of hkrr in a folder.

    `script` is called with the arguments "--worker" and `arguments`. It must call `serve`.
    """

    def __init__(self, script: str, folder: Path = HERE, arguments: Sequence[str] = ()) -> None:
        self._command = [sys.executable, script, "--worker", *arguments]
        self._environment = dict(os.environ, PYTHONPATH=str(folder / "src"), PYTHONWARNINGS="ignore")
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> bool:
        """Start the process, if it is not running, and wait until it is ready. Return whether it is ready."""
        if self._process is None:
            self._process = subprocess.Popen(
                self._command, env=self._environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            assert self._process.stdout is not None
            if self._process.stdout.readline().strip() != _READY:
                self.close()
        return self._process is not None

    def run(self, **case: Any) -> Row:
        """Return the results of a case. The process is started if it is not running, for example after a crash."""
        if not self.start():
            return {"error": "the process does not start"}
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        answer = ""
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(case) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        if answer:
            row: Row = json.loads(answer)
            return row
        status = self._process.wait()
        self.close()
        return {"error": f"the process ended with status {status}"}

    def close(self) -> None:
        """End the process. If a case is still running after ten seconds, the process is killed."""
        if self._process is not None:
            assert self._process.stdin is not None
            with suppress(BrokenPipeError):
                self._process.stdin.close()
            try:
                self._process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None


class Table:
    """A CSV file in benchmarks/results. Each row is written to the file immediately, so that a run can be resumed.

    Parameters
    ----------
    name : str
        Name of the file, without its suffix.
    columns : sequence of str
        Names of the columns.
    n_keys : int
        Number of columns that identify a row. They come first.
    append : bool
        Whether to keep the rows of an existing file.

    Attributes
    ----------
    path : Path
        Path of the file.
    rows : list of dict
        The rows of the file.
    """

    def __init__(self, name: str, columns: Sequence[str], n_keys: int, append: bool) -> None:
        from objective import RESULTS, read

        self.path, self.columns, self._keys = RESULTS / f"{name}.csv", list(columns), list(columns)[:n_keys]
        kept = read(name) if append else []
        if kept and list(kept[0]) != self.columns:
            raise SystemExit(f"{self.path} was written with different columns: remove it, or choose another name")
        # A row that was cut off when a run was killed has no value in its last column.
        complete = [row for row in kept if row[self.columns[-1]] is not None]
        self.rows: list[Row] = [{name: _value(name, str(text)) for name, text in row.items()} for row in complete]
        self.path.parent.mkdir(exist_ok=True)
        with open(self.path, "w", newline="") as file:
            writer = csv.DictWriter(file, self.columns, lineterminator="\n")
            writer.writeheader()
            writer.writerows(self.rows)

    def has(self, **key: Any) -> bool:
        """Return whether a row with this key exists."""
        assert set(key) == set(self._keys)
        return any(all(row[name] == value for name, value in key.items()) for row in self.rows)

    def add(self, **row: Any) -> None:
        """Append a row to the file and print it. Missing values are empty."""
        assert set(row) <= set(self.columns), set(row) - set(self.columns)
        row = {name: row.get(name, "") for name in self.columns}
        self.rows.append(row)
        with open(self.path, "a", newline="") as file:
            csv.DictWriter(file, self.columns, lineterminator="\n").writerow(row)
        print(", ".join(f"{name} {value}" for name, value in row.items() if value != ""), flush=True)


def _value(column: str, text: str) -> Any:
    """Return the value of a cell. A commit stays text, even if it consists of digits."""
    for kind in () if column == "commit" else (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def commit(folder: Path = HERE) -> str:
    """Return the commit of a checkout, with a plus sign if its source files differ from this commit."""
    git = ["git", "-C", str(folder)]
    head = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    changed = subprocess.run([*git, "status", "--porcelain", "src"], capture_output=True, text=True).stdout.strip()
    return head + ("+" if changed else "")


def used_commits(rows: Sequence[Row], column: str) -> str:
    """Return a sentence that names the commits in the rows and, if they differ, what was computed with each commit."""
    users: dict[str, dict[str, None]] = {}
    for row in rows:
        users.setdefault(str(row["commit"]) or "unknown", {})[f'"{row[column]}"'] = None
    if len(users) == 1:
        return f"All results are from commit {next(iter(users))}."
    sources = (f"commit {name} (results of {column} {', '.join(of)})" for name, of in users.items())
    return f"The results are from {' and '.join(sources)}."


def valid(rows: Sequence[Row], column: str) -> list[float]:
    """Return the numbers in a column. Empty cells, which are due to errors, are left out."""
    return [float(row[column]) for row in rows if row[column] != ""]


def median(values: Sequence[float], digits: int = 4) -> Any:
    """Return the median, or an empty string if there are no values."""
    return round(float(np.median(values)), digits) if values else ""


def least(values: Sequence[float], digits: int = 4) -> Any:
    """Return the least value, or an empty string if there are no values."""
    return round(min(values), digits) if values else ""


@contextmanager
def reported(table: Table, page: Callable[[Sequence[Row]], str], workers: Iterable[Worker]) -> Iterator[None]:
    """Close the workers at the end of the block, also after an error. Then write and print the page of the table."""
    try:
        yield
    finally:
        for worker in workers:
            worker.close()
        text = page(table.rows)
        table.path.with_suffix(".md").write_text(text)
        print(text)


def errors(rows: Sequence[Row], keys: Sequence[str]) -> list[str]:
    """Return the section of a page that lists the errors, as lines. There are no lines if there are no errors."""
    from objective import markdown

    failed = [{name: row[name] for name in (*keys, "error")} for row in rows if row["error"] != ""]
    return ["", "## Errors", "", markdown(failed)] if failed else []
