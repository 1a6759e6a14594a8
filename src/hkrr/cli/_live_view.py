"""Live display of a fit: the current stage, the best candidate so far with its score, and the remaining time.

A candidate is a kernel and a map that the search has optimized.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.live import Live
from rich.table import Table

from hkrr._base.linear_algebra import Array
from hkrr._maps import ShapeName
from hkrr.cli._console import format_duration, print_line
from hkrr.cli._time_left import TimeLeft, format_time_left
from hkrr.estimators.search.progress import SearchState

if TYPE_CHECKING:
    from hkrr.tables import Split, TableClassifier, TableRegressor

# Maximum fraction of the fit time that is spent on scoring candidates on the held-out rows.
_MAX_SCORING_SHARE = 0.05
# Maximum number of held-out rows on which a candidate is scored.
_MAX_SCORED_ROWS = 2_000


class View:
    """A callback that displays the progress of a fit.

    On a terminal the display is updated in place. Otherwise one line is printed at the start of each stage. The R2 or
    the accuracy of candidates is computed on the held-out rows of `split`. `any_kernel` tells whether the search also
    chooses the kernel. The time limit in seconds is counted from the creation of the view. If the fit resumes from a
    checkpoint, `resume_message` is printed; "" means that it does not resume.
    """

    def __init__(
        self,
        console: Console,
        model: TableRegressor | TableClassifier,
        split: Split,
        any_kernel: bool,
        time_limit: float | None = None,
        resume_message: str = "",
    ) -> None:
        self._console, self._model, self._time_limit = console, model, time_limit
        self._resume_message = resume_message
        self._test, self._y = split.test.iloc[:_MAX_SCORED_ROWS], split.y_test[:_MAX_SCORED_ROWS]
        self._start = self._fit_start = time.monotonic()
        self._stage, self._best, self._n_scored = "", "", 0
        self._time_left = TimeLeft(any_kernel, bool(resume_message))
        self._best_score: float | None = None
        # The labels of the classes of a classification. The score is then the accuracy, and R2 otherwise.
        self._classes = np.unique(split.y_train) if split.task.of_classes else None
        self._score_name = "R2" if self._classes is None else "accuracy"
        self._X: Array | None = None
        # Time (of `time.monotonic`) before which no candidate is scored.
        self._next_score = 0.0

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show the display on a terminal while the context is active."""
        if not self._console.is_terminal:
            yield
            return
        with Live(get_renderable=self._table, console=self._console, refresh_per_second=4, transient=True):
            yield

    def __call__(self, state: SearchState) -> None:
        """Update the display. `state` is the current state of the search."""
        self._fit_start = time.monotonic() - state.seconds
        if self._resume_message:
            print_line(self._console, self._resume_message)
            self._resume_message = ""
        if state.n_components is not None and state.shape is not None:
            self._best = f"{ShapeName(state.shape).describe(state.n_components)}, {state.kernel}"
            self._score(state)
        if state.stage != self._stage:
            self._time_left.start_stage(state)
            self.start_stage(state.stage)

    def start_stage(self, stage: str) -> None:
        """Display the name of a new stage."""
        self._stage = stage
        if not self._console.is_terminal:
            best = self._best_score
            notes = [] if best is None else [f"best held-out {self._score_name} so far {best:.3f}"]
            note = "; ".join(filter(None, [*notes, self._format_left()]))
            print_line(self._console, f"{self._elapsed:5.0f} s  {stage}{f'  ({note})' if note else ''}")

    @property
    def _elapsed(self) -> float:
        return time.monotonic() - self._start

    def _score(self, state: SearchState) -> None:
        """Compute the score of the best candidate on the held-out rows, if the candidate is new.

        To limit the time spent on scoring, nothing is computed if the last score was computed too recently; see
        `_MAX_SCORING_SHARE`. The score is only displayed. It is not used to select a model.
        """
        began = time.monotonic()
        if state.n_found == self._n_scored or began < self._next_score or len(self._y) < 2:
            return
        from sklearn.metrics import accuracy_score, r2_score

        if self._X is None:
            self._X = self._model.transform(self._test)
        # A quick fit of a candidate can fail because of rounding errors. Its score is then not displayed.
        with suppress(ArithmeticError, np.linalg.LinAlgError):
            predicted = state.predict(self._X)
            if self._classes is None:
                score = float(r2_score(self._y, predicted))
            else:
                score = float(accuracy_score(self._y, self._classes[np.argmax(predicted, axis=1)]))
            self._best_score = score if self._best_score is None else max(self._best_score, score)
        self._n_scored, now = state.n_found, time.monotonic()
        self._next_score = now + (now - began) / _MAX_SCORING_SHARE

    def _format_left(self) -> str:
        """Return the remaining time as text, or "" if it is not known."""
        seconds = time.monotonic() - self._fit_start
        is_live = self._console.is_terminal
        left = self._time_left.smoothed(seconds) if is_live else self._time_left.estimate(seconds)
        if self._time_limit is None:
            return "" if left is None else format_time_left(left)
        limit = max(0.0, self._time_limit - self._elapsed)
        return f"at most {format_duration(limit)} left" if left is None else format_time_left(min(left, limit))

    def _table(self) -> Table:
        grid = Table.grid(padding=(0, 2))
        grid.add_row("stage", self._stage)
        grid.add_row("best so far", self._best or "no candidate yet")
        if self._best_score is not None:
            grid.add_row(f"best held-out {self._score_name}", f"{self._best_score:.3f} (preliminary)")
        grid.add_row("time", ", ".join(filter(None, [format_duration(self._elapsed), self._format_left()])))
        return grid
