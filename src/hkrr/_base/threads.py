"""Limits on the number of BLAS threads, and thread pools that split large computations."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, ExitStack, nullcontext
from contextvars import ContextVar, copy_context
from functools import cache
from threading import Condition, Event, Lock, current_thread
from typing import Any, TypeVar

import joblib
import numpy as np
from threadpoolctl import ThreadpoolController

# Prefix of the names of pool threads.
_PREFIX = "hkrr"

_T = TypeVar("_T")
_U = TypeVar("_U")

# BLAS uses several threads only in fits with at least this many centers. With fewer centers, several threads are slower
# than one thread, especially on a busy machine.
_FEW_CENTERS = 3000


@cache
def _blas() -> ThreadpoolController:
    # Finding the BLAS libraries takes milliseconds, so this is done only once.
    return ThreadpoolController()


def _threads_of_each_blas() -> list[int]:
    return [int(lib.num_threads) for lib in _blas().lib_controllers if lib.user_api == "blas"]


def _set_threads_of_each_blas(numbers: list[int]) -> None:
    """Set the number of threads of each BLAS library. This works from any thread.

    From version 3.8 on, threadpoolctl remembers the first thread that sets the number, and ignores all other threads
    until ``clear_controlling_thread`` is called.
    """
    libraries = [lib for lib in _blas().lib_controllers if lib.user_api == "blas"]
    for lib, number in zip(libraries, numbers, strict=True):
        clear_thread = getattr(lib, "clear_controlling_thread", lambda force: None)
        clear_thread(force=True)
        lib.set_num_threads(number)
        clear_thread(force=True)  # allow other threads to restore the number


def blas_threads() -> int:
    """Return the number of threads that BLAS uses now.

    If nothing has changed this number, it is the value of the environment variable OMP_NUM_THREADS or, without this
    variable, the number of cores.
    """
    return max(_threads_of_each_blas(), default=1)


def count_threads(n_jobs: int | None) -> int:
    """Return the number of threads for a value of `n_jobs`. None means as many threads as BLAS uses."""
    return blas_threads() if n_jobs is None else int(joblib.effective_n_jobs(n_jobs))


class _SharedLimit:
    """Context manager that limits BLAS to one thread while at least one thread is inside it.

    The number of BLAS threads is a setting of the whole process. The first thread that enters the context sets the
    number to one, and the last thread that leaves the context restores it.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Return to the initial state, in which no thread is inside the context."""
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
    """Return a context manager that limits BLAS to one thread.

    Small matrix products are slower with two BLAS threads than with one. Without this limit, each thread of a pool
    would also start BLAS threads of its own.
    """
    return _shared_limit


def blas_for(n_centers: int) -> AbstractContextManager[None]:
    """Return a context manager that limits BLAS to one thread if there are fewer than 3,000 centers."""
    return single_threaded_blas() if n_centers < _FEW_CENTERS else nullcontext()


@cache
def pool(n_threads: int) -> ThreadPoolExecutor:
    """Return a pool of `n_threads` threads.

    The pool is created once and then reused. Starting new threads for each pass over the rows would make a pass about
    10% slower.
    """
    return ThreadPoolExecutor(n_threads, thread_name_prefix=_PREFIX)


class Stopped(BaseException):
    """Raised in a thread whose result is no longer needed.

    It is not a subclass of Exception, so that ``except Exception`` does not catch it.
    """


_stop: ContextVar[Event | None] = ContextVar("stop", default=None)


def raise_if_stopped() -> None:
    """Raise Stopped if the call of `in_threads` or `Lockstep.map` that started this task has failed or was interrupted.

    Long computations call this function repeatedly, so that they end soon after such a failure or interruption.
    """
    if _is_stopped():
        raise Stopped


def _is_stopped() -> bool:
    stop = _stop.get()
    return stop is not None and stop.is_set()


def in_threads(fn: Callable[[_T], _U], items: Iterable[_T], n_threads: int) -> list[_U]:
    """Return the list of ``fn(item)`` for all items, computed on `n_threads` threads with one BLAS thread each.

    The results are in the order of the items. The threads inherit the context variables. If one thread fails, or Ctrl-C
    is pressed, all other threads are stopped before the exception is raised.
    """
    with single_threaded_blas():
        if n_threads == 1 or in_pool_thread():
            return [fn(item) for item in items]
        stop = Event()

        def one(item: _T) -> _U:
            _stop.set(stop)  # set only in the context of this task
            return fn(item)

        ends = [pool(n_threads).submit(copy_context().run, one, item) for item in items]
        try:
            first, _ = wait(ends, return_when=FIRST_EXCEPTION)
            # Ask only the finished tasks for their results: after an exception, other tasks may still be running.
            return [end.result() for end in ends if end in first]
        except BaseException:
            stop.set()
            for end in ends:
                end.cancel()
            wait(ends)
            raise


class Lockstep:
    """Threads that send requests and wait for the answers. The requests of all threads are answered in one batch.

    When every running thread has sent a request, `answer` is called with the list of requests and returns the list of
    answers. If an answer is an exception, this exception is raised in the thread that sent the request. The method
    `map` can be called only once for each instance.
    """

    def __init__(self, n: int, answer: Callable[[list[Any]], list[Any]]) -> None:
        self._answer, self._running = answer, set(range(n))
        self._requests: dict[int, Any] = {}
        self._answers: dict[int, Any] = {}
        self._changed = Condition()

    def map(self, fn: Callable[[int], _U]) -> list[_U]:
        """Return ``[fn(0), fn(1), ...]``.

        Each call ``fn(k)`` runs in its own thread and can call ``ask(k, request)``.
        """

        def work(k: int) -> _U:
            try:
                return fn(k)
            finally:
                with self._changed:
                    self._running.discard(k)
                    self._answer_all()

        n, stop = len(self._running), Event()

        def one(k: int) -> _U:
            _stop.set(stop)  # set only in the context of this thread
            return work(k)

        with single_threaded_blas(), ThreadPoolExecutor(n) as threads:
            try:
                # Start all threads, even if one fails. Otherwise running threads would wait in `ask` for a thread that
                # never starts.
                ends = [threads.submit(copy_context().run, one, k) for k in range(n)]
                wait(ends)
            except BaseException:  # Ctrl-C
                stop.set()
                with self._changed:  # end the waiting in `ask`, because some threads may not have been started
                    self._changed.notify_all()
                raise
        return [end.result() for end in ends]

    def ask(self, k: int, request: Any) -> Any:
        """Send the request of thread k, wait until all running threads have sent a request, and return the answer."""
        with self._changed:
            self._requests[k] = request
            self._answer_all()
            self._changed.wait_for(lambda: k in self._answers or _is_stopped())
            found = self._answers.pop(k, Stopped())
        if isinstance(found, BaseException):
            raise found
        return found

    def _answer_all(self) -> None:
        if not self._requests or set(self._requests) != self._running:
            return
        # Sort the requests by thread, so that the batch does not depend on timing.
        asked, self._requests = sorted(self._requests.items()), {}
        try:
            found = self._answer([request for _, request in asked])
            answers = {k: answer for (k, _), answer in zip(asked, found, strict=True)}
        except BaseException as error:  # `ask` raises this exception in every thread of the batch
            answers = {k: error for k, _ in asked}
        self._answers.update(answers)
        self._changed.notify_all()


def value_or_error(fn: Callable[[_T], _U], argument: _T) -> _U | Exception:
    """Return ``fn(argument)``, or the numerical error that the call raised.

    Functions that answer requests of a `Lockstep` return the error as an answer. It is then raised only in the thread
    that sent the request.
    """
    try:
        return fn(argument)
    except (ArithmeticError, np.linalg.LinAlgError) as error:
        return error


def in_pool_thread() -> bool:
    """Return whether the current thread belongs to a pool of this module.

    Such a thread must not submit tasks to its own pool and wait for them: if all threads of the pool did this, they
    would wait forever.
    """
    return current_thread().name.startswith(_PREFIX)


def _after_fork() -> None:
    # A forked process inherits the thread pools but not their threads, so the pools are unusable. It may also inherit a
    # BLAS thread limit that was set by a thread of the parent process. Nothing would remove this limit in the child.
    pool.cache_clear()
    _shared_limit.reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
