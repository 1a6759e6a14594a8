"""The live view of a fit: what is tried, the best so far on the held-out rows, the time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from hkrr.cli._console import duration, say
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
    time_limit : float or None
    """

    def __init__(self, console: Console, model: Any, split: Any, time_limit: float | None) -> None:
        self._console, self._model, self._time_limit = console, model, time_limit
        self._test, self._y = split.test.iloc[:_MOST_ROWS], split.y_test[:_MOST_ROWS]
        self._began = time.monotonic()
        self._stage, self._best, self._looked_at = "reading the columns", "", 0
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
        if state.n_components is not None:
            what = {"identity": "all columns", "diagonal": "a scale for each column"}.get(
                str(state.shape), f"{state.n_components} direction{'s' if state.n_components > 1 else ''}"
            )
            self._best = f"{what}, {state.kernel}"
            self._look(state)
        if state.stage != self._stage and not self._console.is_terminal:
            r2 = "" if self._r2 is None else f"  (held-out R2 so far {self._r2:.3f})"
            say(self._console, f"{state.seconds:5.0f} s  {state.stage}{r2}")
        self._stage = state.stage

    def _look(self, state: SearchState) -> None:
        """Score the best so far on the held-out rows: to be seen, nothing is chosen by it."""
        began = time.monotonic()
        if state.n_found == self._looked_at or began < self._may_look or len(self._y) < 2:
            return
        from sklearn.metrics import r2_score

        if self._X is None:
            self._X = self._model.transform(self._test)
        self._r2 = float(r2_score(self._y, state.predict(self._X)))
        self._looked_at, now = state.n_found, time.monotonic()
        self._may_look = now + (now - began) / _SHARE_OF_LOOKING

    def _table(self) -> Table:
        elapsed = time.monotonic() - self._began
        times = f"{duration(elapsed)}"
        if self._time_limit is not None:
            times += f", at most {duration(max(0.0, self._time_limit - elapsed))} left"
        grid = Table.grid(padding=(0, 2))
        grid.add_row("trying", self._stage)
        grid.add_row("best so far", self._best or "nothing yet")
        if self._r2 is not None:
            grid.add_row("its held-out R2", f"{self._r2:.3f} (a quick look)")
        grid.add_row("time", times)
        return grid
