"""A journal of what a fit has computed: a fit that is started again reads it, and goes on where it ends.

A fit is a function of its data, parameters and random state. So nothing of the state of an algorithm has to be kept,
only the results of its expensive steps: the same code runs again, is handed these instead of computing them, and comes
within moments to where it was, bit for bit.

`step` is a piece of work with a result; its key says all that the result depends on, so the order in which threads end
does not matter. Steps may be nested: when the outer one is done, what was noted within it is no longer needed. `begin`
opens a run of a solver: while it lasts its evaluations are noted, or what a solver needs to go on (`Run.remember`).

Whoever is computing finds the journal in a context variable, which the threads of `hkrr.threads` inherit; without one
(no checkpoint was asked for, or this is a worker process) all of this does nothing.
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

from hkrr.exceptions import CheckpointError
from hkrr.meaning import digest

_T = TypeVar("_T")
# Writing takes this share of the time at most (unless every step is to be written).
_SHARE_OF_WRITING = 0.05
_REMEDY = "give checkpoint another path, or delete the file to begin anew"


@dataclass
class Run:
    """What is noted of a run that is not done."""

    journal: Journal
    name: str
    evaluations: list[Any] = field(default_factory=list)
    memory: Any = None
    result: Any = None

    def noted(self) -> None:
        """Say that there is something new."""
        self.journal.write_if_due()

    def remember(self, memory: Any) -> None:
        """Note what the solver needs to go on from here, in place of what it needed before."""
        self.memory = memory
        self.noted()

    def done(self, result: Any) -> None:
        """Record the result; what was noted until here is dropped."""
        self.journal.record(self.name, result)


class Journal:
    """The results of steps by their names, the runs that are not done, and when to write them down.

    Parameters
    ----------
    write : function of the journal
    every : float
        Seconds between two writes, at least; 0: at every step.
    """

    def __init__(self, write: Callable[[Journal], None], every: float) -> None:
        self.steps: dict[str, Any] = {}
        self.runs: dict[str, Run] = {}
        self.finished, self.process = False, os.getpid()
        self._write, self._every = write, every
        self._lock, self._taken = RLock(), set[str]()
        self._changed, self._due = True, 0.0

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Make it the journal of all that is computed here, and in threads that begin here."""
        token = _here.set((self, ""))
        try:
            yield
        finally:
            _here.reset(token)

    def record(self, name: str, value: Any) -> None:
        """Record the result of a step, and drop what was noted within it."""
        with self._lock:
            self.steps[name] = value
            self._taken.discard(name)
            within = f"{name}/"
            self.runs = {key: run for key, run in self.runs.items() if key != name and not key.startswith(within)}
            self.steps = {key: step for key, step in self.steps.items() if not key.startswith(within)}
            self.write_if_due()

    def take(self, name: str) -> Run | None:
        """Return the run of that name, as far as it came; None where another thread is at the same one."""
        with self._lock:
            if name in self._taken:
                return None
            self._taken.add(name)
            return self.runs.setdefault(name, Run(self, name))

    def leave(self, name: str) -> None:
        """Let others take a run that ended without a result."""
        with self._lock:
            self._taken.discard(name)

    def write_if_due(self) -> None:
        """Write where enough time has passed."""
        with self._lock:
            self._changed = True
            if time.perf_counter() >= self._due:
                self.write()

    def write(self) -> None:
        """Write now, where there is anything new."""
        with self._lock:
            if not self._changed:
                return
            began = time.perf_counter()
            self._write(self)
            self._changed = False
            now = time.perf_counter()
            self._due = now + max(self._every, (now - began) / _SHARE_OF_WRITING if self._every > 0 else 0.0)

    def finish(self) -> None:
        """Write that the fit is done."""
        with self._lock:
            if not self.finished:
                self.finished, self._changed = True, True
            self.write()


_here: ContextVar[tuple[Journal, str] | None] = ContextVar("journal", default=None)


@contextmanager
def paused() -> Iterator[None]:
    """Hide the journal from the user's own code: what that computes is no part of the fit."""
    token = _here.set(None)
    try:
        yield
    finally:
        _here.reset(token)


def _current() -> tuple[Journal, str] | None:
    """Return the journal and the name of the step within which this is; none in a process that was forked off."""
    here = _here.get()
    return here if here is None or here[0].process == os.getpid() else None


def about(*sums: Any) -> tuple[str, ...]:
    """Return sums to nine digits, for keys: taken in another order they differ in the last."""
    return tuple(f"{float(each):.9e}" for values in sums for each in np.atleast_1d(values))


def step(
    key: tuple[Any, ...],
    compute: Callable[[], _T],
    keep: Callable[[_T], bool] = lambda value: True,
    sound: Callable[[Any], bool] = lambda value: True,
) -> _T:
    """Return what was recorded under the key, or compute it, and record it where it is to be kept.

    What is recorded and not sound was put there by somebody: it is refused.
    """
    here = _current()
    if here is None:
        return compute()
    journal, prefix = here
    name = prefix + digest(key)
    if name in journal.steps:
        known: _T = journal.steps[name]
        try:
            fine = sound(known)
        except (TypeError, ValueError):
            fine = False
        if not fine:
            raise CheckpointError(f"checkpoint holds a {key[0]} that cannot be: it was changed; {_REMEDY}")
        return known
    token = _here.set((journal, f"{name}/"))
    try:
        value = compute()
    finally:
        _here.reset(token)
    if keep(value):
        journal.record(name, value)
    return value


def known(key: tuple[Any, ...]) -> Any:
    """Return what was recorded under the key, or None: before work is handed to other processes."""
    here = _current()
    return None if here is None else here[0].steps.get(here[1] + digest(key))


def record(key: tuple[Any, ...], value: Any) -> None:
    """Record what another process has computed."""
    here = _current()
    if here is not None:
        here[0].record(here[1] + digest(key), value)


@contextmanager
def begin(*key: Any) -> Iterator[Run | None]:
    """Open a run: with its result where it is done, with what was noted of it, or None where nothing is to be noted."""
    here = _current()
    if here is None:
        yield None
        return
    journal, prefix = here
    name = prefix + digest(key)
    if name in journal.steps:
        yield Run(journal, name, result=journal.steps[name])
        return
    run = journal.take(name)
    try:
        yield run
    finally:
        if run is not None:
            journal.leave(name)
