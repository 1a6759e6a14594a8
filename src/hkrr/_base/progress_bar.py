"""Progress bars. The package tqdm is used only if a bar is shown.

Whenever tqdm creates a bar, even with ``disable=True``, it acquires a lock that is shared between processes. If a
forked process is killed while it holds the lock, all other processes wait forever. Therefore a fit without a progress
bar must not use tqdm at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol, Self


class ProgressBar(Protocol):
    """The attributes of a tqdm bar that hkrr uses."""

    n: int
    total: Any  # a number, or None if it is not known

    def __iter__(self) -> Iterator[Any]: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: Any) -> None: ...
    def update(self, n: int = 1) -> Any: ...
    def set_postfix(self, *, refresh: bool = True, **values: Any) -> None: ...
    def refresh(self) -> Any: ...


class NoBar:
    """A progress bar that is not shown. It has the methods of a tqdm bar that hkrr calls, and prints nothing."""

    def __init__(self, iterable: Iterable[Any] = ()) -> None:
        self._iterable = iterable
        self.n = 0
        self.total: Any = None

    def __iter__(self) -> Iterator[Any]:
        return iter(self._iterable)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: Any) -> None:
        pass

    def update(self, n: int = 1) -> None:
        """Do nothing."""

    def set_postfix(self, **values: Any) -> None:
        """Do nothing."""

    def refresh(self) -> None:
        """Do nothing."""


def progress_bar(iterable: Iterable[Any] | None = None, *, shown: Any, **options: Any) -> ProgressBar:
    """Return a tqdm bar over the iterable if `shown` is true, else a `NoBar`. The options are passed to tqdm."""
    if not shown:
        return NoBar(() if iterable is None else iterable)
    from tqdm.auto import tqdm

    bar: ProgressBar = tqdm(iterable, **options)
    return bar
