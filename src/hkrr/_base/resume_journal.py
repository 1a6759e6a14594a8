"""The journal of a fit: the results of its expensive steps, from which an interrupted fit resumes.

A fit is a function of its data, parameters and random state. The journal therefore need not store the state of the
whole computation. To resume a fit, the same code runs again and gets the stored results instead of computing them. The
fit reaches the point of the interruption within moments, with bitwise the same numbers.

`step` computes a result, or returns the stored result. The key of a step contains everything that the result depends
on, so the order in which threads finish does not matter. Steps can be nested. When the outer step is done, the entries
of its inner steps are deleted. `open_run` opens a run of a solver. During the run, the journal records either the
evaluations of the objective or the values that the solver needs to continue (`RunRecord`).

The current journal is a context variable, which the threads of `hkrr._base.threads` inherit. If there is no journal,
because no checkpoint was requested or the code runs in a worker process, `step` computes the result and stores nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from threading import RLock
from typing import Any, TypeVar

import numpy as np

from hkrr._base.linear_algebra import Array
from hkrr._base.value_hashing import digest
from hkrr.exceptions import CheckpointError

_T = TypeVar("_T")
# Maximum fraction of the fitting time that is spent on writing the journal. It is ignored by a `Journal` with
# ``every=0``, which is written at every step.
_WRITING_SHARE = 0.05
REMEDY = "use another path for checkpoint, or delete the file to start over"


@dataclass
class RunRecord:
    """The data that a checkpoint stores about an unfinished run of a solver.

    The first seven fields are lists with one entry per call of ``objective.reduced``. A resumed run takes the results
    of these calls from the lists. The fields from `value` to `reg_lambda` are those of `hkrr.objective.Reduced`. The
    last four fields are used only by solvers that resume from their stored ``memory`` instead.
    """

    x: list[Array] = field(default_factory=list)  # the entries of the map, followed by lambda if lambda is learned
    seconds: list[float] = field(default_factory=list)  # since the start of the run
    value: list[float] = field(default_factory=list)
    grad: list[Array] = field(default_factory=list)
    alpha: list[Array] = field(default_factory=list)
    grad_log_lambda: list[float | None] = field(default_factory=list)
    reg_lambda: list[float | None] = field(default_factory=list)
    memory: dict[str, Any] | None = None  # what the solver needs to continue from its last iterate
    state: Any = None  # the last iterate, a `hkrr.solvers.State`
    start_norm: float = 0.0  # norm of the starting map
    # `Result.history`, possibly with iterates after `state`.
    history: dict[str, list[float]] = field(default_factory=dict)

    @property
    def columns(self) -> tuple[list[Any], ...]:
        """The seven lists with one entry per evaluation."""
        return self.x, self.seconds, self.value, self.grad, self.alpha, self.grad_log_lambda, self.reg_lambda


@dataclass
class Run:
    """A run of a solver in the journal. It has a record until the run is finished, and a result afterwards."""

    journal: Journal
    name: str
    record: RunRecord = field(default_factory=RunRecord)
    result: Any = None

    def add_evaluation(self, *entries: Any) -> None:
        """Record an evaluation: append `entries` to the lists in ``record.columns``, one entry to each list."""
        with self.journal.lock:  # another thread may be writing the record to the file
            for column, entry in zip(self.record.columns, entries, strict=True):
                column.append(entry)
            self.journal.write_if_due()

    def drop_evaluations(self, start: int) -> None:
        """Delete the recorded evaluations from index `start` on."""
        with self.journal.lock:
            for column in self.record.columns:
                del column[start:]

    def remember(self, **fields: Any) -> None:
        """Set the given fields of the `RunRecord`."""
        with self.journal.lock:
            vars(self.record).update(fields)
            self.journal.write_if_due()

    def finish(self, result: Any) -> None:
        """Store the result of the run and delete its record."""
        self.journal.record(self.name, result)


class Journal:
    """The results of finished steps and the records of unfinished runs, by name.

    `write` writes the journal to a file, at most once in `every` seconds. If `every` is 0, it is written at every step.
    """

    def __init__(self, write: Callable[[Journal], None], every: float) -> None:
        self.steps: dict[str, Any] = {}
        self.runs: dict[str, Run] = {}
        self.finished, self.process = False, os.getpid()
        self.lock = RLock()
        self._write, self._every = write, every
        self._open_runs = set[str]()
        self._changed, self._due = True, 0.0

    @contextmanager
    def activated(self) -> Iterator[None]:
        """Make this journal the current journal inside the context, and in the threads started inside the context."""
        token = _current.set((self, ""))
        try:
            yield
        finally:
            _current.reset(token)

    def record(self, name: str, value: Any) -> None:
        """Store `value` as the result of the step `name`, and delete the entries made inside that step."""
        with self.lock:
            self.steps[name] = value
            self._open_runs.discard(name)
            inside = f"{name}/"
            self.runs = {key: run for key, run in self.runs.items() if key != name and not key.startswith(inside)}
            self.steps = {key: step for key, step in self.steps.items() if not key.startswith(inside)}
            self.write_if_due()

    def open_run(self, name: str) -> Run | None:
        """Return the run with the given name and its record so far, or None if another thread has opened this run."""
        with self.lock:
            if name in self._open_runs:
                return None
            self._open_runs.add(name)
            return self.runs.setdefault(name, Run(self, name))

    def close_run(self, name: str) -> None:
        """Allow other threads to open a run that ended without a result."""
        with self.lock:
            self._open_runs.discard(name)

    def write_if_due(self) -> None:
        """Mark the journal as changed, and write it if enough time has passed since the last write."""
        with self.lock:
            self._changed = True
            if time.perf_counter() >= self._due:
                self.write()

    def write(self) -> None:
        """Write the journal now if it has changed since the last write."""
        with self.lock:
            if not self._changed:
                return
            started = time.perf_counter()
            self._write(self)
            self._changed = False
            now = time.perf_counter()
            self._due = now + max(self._every, (now - started) / _WRITING_SHARE if self._every > 0 else 0.0)

    def finish(self) -> None:
        """Mark the fit as finished, and write the journal."""
        with self.lock:
            if not self.finished:
                self.finished, self._changed = True, True
            self.write()


_current: ContextVar[tuple[Journal, str] | None] = ContextVar("journal", default=None)


@contextmanager
def paused() -> Iterator[None]:
    """Deactivate the journal inside the context.

    Callbacks and other user code run in this context, because their computations do not belong to the fit.
    """
    token = _current.set(None)
    try:
        yield
    finally:
        _current.reset(token)


def _journal_and_prefix() -> tuple[Journal, str] | None:
    """Return the current journal, and the prefix of the names of all entries that the current step makes.

    Return None if there is no journal, or if the journal belongs to the process from which this process was forked.
    """
    current = _current.get()
    return current if current is None or current[0].process == os.getpid() else None


def rounded(*sums: Any) -> tuple[str, ...]:
    """Return sums as strings with ten significant digits. The strings are parts of keys.

    Further digits are dropped, because they depend on the order of summation.
    """
    return tuple(f"{float(number):.9e}" for values in sums for number in np.atleast_1d(values))


def step(
    key: tuple[Any, ...],
    compute: Callable[[], _T],
    keep: Callable[[_T], bool] = lambda value: True,
    is_valid: Callable[[Any], bool] = lambda value: True,
) -> _T:
    """Return the result stored under a key. If there is none, compute it, and store it if `keep` returns True.

    The key is a tuple of all values that the result depends on. Its first entry names the result in error messages.
    `compute` computes the result, and `keep` is called with it. If `is_valid` returns False for a stored result,
    another program has changed the file, and a CheckpointError is raised.
    """
    current = _journal_and_prefix()
    if current is None:
        return compute()
    journal, prefix = current
    name = prefix + digest(key)
    if name in journal.steps:
        stored: _T = journal.steps[name]
        try:
            valid = is_valid(stored)
        except (TypeError, ValueError):
            valid = False
        if not valid:
            raise CheckpointError(
                f"the checkpoint contains an invalid {key[0]}, so another program has changed the file; {REMEDY}"
            )
        return stored
    token = _current.set((journal, f"{name}/"))
    try:
        value = compute()
    finally:
        _current.reset(token)
    if keep(value):
        journal.record(name, value)
    return value


def lookup(key: tuple[Any, ...]) -> Any:
    """Return the result stored under a key, or None if there is no such result.

    This function is used before work is sent to other processes, in which no journal is active.
    """
    current = _journal_and_prefix()
    return None if current is None else current[0].steps.get(current[1] + digest(key))


def record(key: tuple[Any, ...], value: Any) -> None:
    """Store a result that another process has computed, under its key."""
    current = _journal_and_prefix()
    if current is not None:
        current[0].record(current[1] + digest(key), value)


@contextmanager
def open_run(*key: Any) -> Iterator[Run | None]:
    """Open the run of a solver that is stored under `key`. The key contains everything that the result depends on.

    If the run is finished, it is yielded with its result, otherwise with its record so far. None is yielded if there is
    no journal, or if another thread has opened the same run.
    """
    current = _journal_and_prefix()
    if current is None:
        yield None
        return
    journal, prefix = current
    name = prefix + digest(key)
    if name in journal.steps:
        yield Run(journal, name, result=journal.steps[name])
        return
    run = journal.open_run(name)
    try:
        yield run
    finally:
        if run is not None:
            journal.close_run(name)
