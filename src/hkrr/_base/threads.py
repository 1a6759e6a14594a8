"""Threads: BLAS's, which are held at one for small products, and our own, which share large ones out."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, ExitStack, nullcontext
from contextvars import ContextVar, copy_context
from functools import cache
from threading import Condition, Event, Lock, current_thread
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

_PREFIX = "hkrr"

_T = TypeVar("_T")
_U = TypeVar("_U")

# Below this many centers BLAS's threads wait for each other longer than they save, above all on a busy machine.
_FEW_CENTERS = 3000


@cache
def _blas() -> ThreadpoolController:
    # Finding the libraries takes milliseconds, setting their threads microseconds: look once.
    return ThreadpoolController()


def _threads_of_each_blas() -> list[int]:
    return [int(lib.num_threads) for lib in _blas().lib_controllers if lib.user_api == "blas"]


def _set_threads_of_each_blas(numbers: list[int]) -> None:
    """Set them, on any thread: threadpoolctl (from 3.8) heeds only the first that did, until told to forget it."""
    libraries = [lib for lib in _blas().lib_controllers if lib.user_api == "blas"]
    for lib, number in zip(libraries, numbers, strict=True):
        forget = getattr(lib, "clear_controlling_thread", lambda force: None)
        forget(force=True)
        lib.set_num_threads(number)
        forget(force=True)  # or no other thread, as one that ends a limit of its own, could set it hereafter


def blas_threads() -> int:
    """Return how many threads BLAS would use now: what the machine, or OMP_NUM_THREADS, allows."""
    return max(_threads_of_each_blas(), default=1)


class _SharedLimit:
    """BLAS at one thread while anyone asks for it: the setting is the process's, so the first in sets it, the last out
    restores it, whatever the order in which threads come and go."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin as if nobody had ever asked."""
        self._lock, self._users, self._limit = Lock(), 0, ExitStack()

    def __enter__(self) -> None:
        with self._lock:
            if self._users == 0:
                before = _threads_of_each_blas()
                self._limit.callback(_set_threads_of_each_blas, before)
                _set_threads_of_each_blas([1] * len(before))
            self._users += 1

    def __exit__(self, *exception: object) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                self._limit.close()


_shared_limit = _SharedLimit()


def single_threaded_blas() -> AbstractContextManager[None]:
    """Hold BLAS at one thread: small products are slower on two, and our own threads must not multiply its."""
    return _shared_limit


def blas_for(n_centers: int) -> AbstractContextManager[None]:
    """Hold BLAS at one thread where there are too few centers for its threads to help."""
    return single_threaded_blas() if n_centers < _FEW_CENTERS else nullcontext()


@cache
def pool(n_threads: int) -> ThreadPoolExecutor:
    """Return a pool of so many threads."""
    # Kept between passes: threads that are made anew for each cost a tenth of a pass.
    return ThreadPoolExecutor(n_threads, thread_name_prefix=_PREFIX)


class Stopped(BaseException):
    """Raised in a thread whose result nobody waits for any more. No Exception: nothing on the way should handle it."""


_stop: ContextVar[Event | None] = ContextVar("stop", default=None)


def leave_if_stopped() -> None:
    """Raise Stopped in a thread of `in_threads` that should end: what takes long calls this now and then."""
    stop = _stop.get()
    if stop is not None and stop.is_set():
        raise Stopped


def in_threads(fn: Callable[[_T], _U], items: Iterable[_T], n_threads: int) -> list[_U]:
    """Return fn of each item, in their order, on this many threads; BLAS has one in each.

    They inherit the context variables. Where one fails, or Ctrl-C is pressed, the others end before that is raised.
    """
    with single_threaded_blas():
        if n_threads == 1 or on_one_of_ours():
            return [fn(item) for item in items]
        stop = Event()

        def one(item: _T) -> _U:
            _stop.set(stop)  # in a context of its own
            return fn(item)

        ends = [pool(n_threads).submit(copy_context().run, one, item) for item in items]
        try:
            first, _ = wait(ends, return_when=FIRST_EXCEPTION)
            # In their order, and of those that are done: whoever is still running need not end by itself.
            return [end.result() for end in ends if end in first]
        except BaseException:
            stop.set()
            for end in ends:
                end.cancel()
            wait(ends)
            raise


class InStep:
    """Runs in threads that ask questions in step: when all that still run have asked, all are answered at once.

    An answer that is an exception is raised where it was asked for. For one `map`.
    """

    def __init__(self, n: int, answer: Callable[[list[Any]], list[Any]]) -> None:
        self._answer, self._running = answer, set(range(n))
        self._questions: dict[int, Any] = {}
        self._answers: dict[int, Any] = {}
        self._changed = Condition()

    def map(self, fn: Callable[[int], _U]) -> list[_U]:
        """Return fn of 0, 1, ..., each in a thread of its own that may `ask`."""

        def work(k: int) -> _U:
            try:
                return fn(k)
            finally:
                with self._changed:
                    self._running.discard(k)
                    self._answer_all()

        n = len(self._running)
        with single_threaded_blas(), ThreadPoolExecutor(n) as threads:
            # All of them run, whatever becomes of one: a run that never began would be waited for.
            ends = [threads.submit(work, k) for k in range(n)]
        return [end.result() for end in ends]

    def ask(self, k: int, question: Any) -> Any:
        """Return the answer to run k's question; it waits for the questions of the others."""
        with self._changed:
            self._questions[k] = question
            self._answer_all()
            self._changed.wait_for(lambda: k in self._answers)
            found = self._answers.pop(k)
        if isinstance(found, Exception):
            raise found
        return found

    def _answer_all(self) -> None:
        if not self._questions or set(self._questions) != self._running:
            return
        asked, self._questions = sorted(self._questions.items()), {}  # whoever came first, the same batch
        try:
            found = self._answer([question for _, question in asked])
            answers = {k: answer for (k, _), answer in zip(asked, found, strict=True)}
        except Exception as error:  # each of them has asked for it
            answers = {k: error for k, _ in asked}
        self._answers.update(answers)
        self._changed.notify_all()


def on_one_of_ours() -> bool:
    """Whether this is a thread of a pool: one that waited there for others of its pool could wait forever."""
    return current_thread().name.startswith(_PREFIX)


def _after_fork() -> None:
    # A forked process has the pool's object and none of its threads, and a limit that nobody will leave.
    pool.cache_clear()
    _shared_limit.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
