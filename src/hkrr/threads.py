"""Threads: BLAS's, which are held at one for small products, and our own, which share large ones out."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import cache
from threading import Lock, current_thread
from typing import TypeVar

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


def blas_threads() -> int:
    """Return how many threads BLAS would use now: what the machine, or OMP_NUM_THREADS, allows."""
    return max((int(lib.num_threads) for lib in _blas().lib_controllers if lib.user_api == "blas"), default=1)


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
                self._limit.enter_context(_blas().limit(limits=1, user_api="blas"))
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


def in_threads(fn: Callable[[_T], _U], items: Iterable[_T], n_threads: int) -> list[_U]:
    """Return fn of each item, in their order, on this many threads; BLAS has one in each."""
    with single_threaded_blas():
        if n_threads == 1 or on_one_of_ours():
            return [fn(item) for item in items]
        return list(pool(n_threads).map(fn, items))


def on_one_of_ours() -> bool:
    """Whether this is a thread of a pool: one that waited there for others of its pool could wait forever."""
    return current_thread().name.startswith(_PREFIX)


def _after_fork() -> None:
    # A forked process has the pool's object and none of its threads, and a limit that nobody will leave.
    pool.cache_clear()
    _shared_limit.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
