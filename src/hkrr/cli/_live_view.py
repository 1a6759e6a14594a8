"""The live view of a fit: what is tried, the best R2 so far on the held-out rows, the time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from hkrr.cli._console import duration, say
from hkrr.cli._time_left import TimeLeft, in_words
from hkrr.progress import SearchState

# A look at the held-out rows takes this share of the time at most, and is at so many of them.
_SHARE_OF_LOOKING, _MOST_ROWS = 0.05, 2_000


class View:
    """A callback of a fit, and what it shows on a terminal; elsewhere it prints a line when another thing is tried.

    Parameters
    ----------
    console : Console
    model : TableRegressor, being fitted
    split : Split
    any_kernel : bool
        Whether the kernel is chosen too.
    time_limit : float or None
        Seconds from now that all of it may take.
    going_on : str
        What is said when the fit has begun, of a checkpoint that it goes on from.
    """

    def __init__(
        self,
        console: Console,
        model: Any,
        split: Any,
        any_kernel: bool,
        time_limit: float | None = None,
        going_on: str = "",
    ) -> None:
        self._console, self._model, self._time_limit, self._going_on = console, model, time_limit, going_on
        self._test, self._y = split.test.iloc[:_MOST_ROWS], split.y_test[:_MOST_ROWS]
        self._began = self._fit_began = time.monotonic()
        self._stage, self._best, self._looked_at = "", "", 0
        self._time_left = TimeLeft(any_kernel, bool(going_on))
        self._r2: float | None = None
        self._X: Any = None
        self._may_look = 0.0

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show it while this lasts."""
        if not self._console.is_terminal:
            yield
            return
        with Live(get_renderable=self._table, console=self._console, refresh_per_second=4, transient=True):
            yield

    def __call__(self, state: SearchState) -> None:
        """Take note of where the search stands."""
        self._fit_began = time.monotonic() - state.seconds
        if self._going_on:
            say(self._console, self._going_on)
            self._going_on = ""
        if state.n_components is not None:
            what = {"identity": "all columns", "diagonal": "a scale for each column"}.get(
                str(state.shape), f"{state.n_components} direction{'s' if state.n_components > 1 else ''}"
            )
            self._best = f"{what}, {state.kernel}"
            self._look(state)
        if state.stage != self._stage:
            self._time_left.reached(state.stage, state.n_components, state.seconds)
            self.trying(state.stage)

    def trying(self, stage: str) -> None:
        """Take note of what is tried from now on."""
        self._stage = stage
        if not self._console.is_terminal:
            known = [] if self._r2 is None else [f"best held-out R2 so far {self._r2:.3f}"]
            about = "; ".join([*known, *filter(None, [self._left()])])
            say(self._console, f"{self._elapsed:5.0f} s  {stage}{f'  ({about})' if about else ''}")

    @property
    def _elapsed(self) -> float:
        return time.monotonic() - self._began

    def _look(self, state: SearchState) -> None:
        """Score the best so far on the held-out rows: to be seen, nothing is chosen by it."""
        began = time.monotonic()
        if state.n_found == self._looked_at or began < self._may_look or len(self._y) < 2:
            return
        from sklearn.metrics import r2_score

        if self._X is None:
            self._X = self._model.transform(self._test)
        r2 = float(r2_score(self._y, state.predict(self._X)))
        self._r2 = r2 if self._r2 is None else max(self._r2, r2)
        self._looked_at, now = state.n_found, time.monotonic()
        self._may_look = now + (now - began) / _SHARE_OF_LOOKING

    def _left(self) -> str:
        """Return the time left in words, as far as it is known."""
        ask = self._time_left.at if self._console.is_terminal else self._time_left.estimate
        left = ask(time.monotonic() - self._fit_began)
        if self._time_limit is None:
            return "" if left is None else in_words(left)
        most = max(0.0, self._time_limit - self._elapsed)
        return f"at most {duration(most)} left" if left is None else in_words(min(left, most))

    def _table(self) -> Table:
        grid = Table.grid(padding=(0, 2))
        grid.add_row("trying", self._stage)
        grid.add_row("best so far", self._best or "nothing yet")
        if self._r2 is not None:
            grid.add_row("best held-out R2", f"{self._r2:.3f} (a quick look)")
        grid.add_row("time", ", ".join(filter(None, [duration(self._elapsed), self._left()])))
        return grid
