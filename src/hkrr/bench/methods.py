"""The methods behind one call, ``run(task) -> Answer``, and random search for those that do not tune themselves.

Equal rules. Every method gets the same training rows, the same seconds and the same threads. What has nothing to tune
gets one fit; what tunes itself is told the seconds. All others are tuned by random search: the default setting, then
settings drawn from the method's ranges, each fitted on the same four fifths of the rows and judged on the last fifth,
for as long as one more setting and the last fit are likely to end in time; the best is fitted again on all rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

from hkrr._arrays import Array

_JUDGING = 0.2
MOST_SETTINGS = 200


class Task(NamedTuple):
    """What a method is given."""

    X: Array
    y: Array
    X_test: Array
    seconds: float
    threads: int
    seed: int = 0

    def parts(self) -> tuple[Array, Array]:
        """Return the rows to fit on and those to judge by, the same for every method."""
        order = np.random.RandomState(self.seed).permutation(len(self.y))
        n = round(_JUDGING * len(order))
        return order[n:], order[:n]


class Answer(NamedTuple):
    """Predictions at the test rows; the map, the seconds of the last fit and what was chosen, where there are such."""

    predicted: Array
    components: Array | None = None
    fit_seconds: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Method:
    """How a method is run, what it is, and the packages that are imported before its clock starts."""

    run: Callable[[Task], Answer]
    about: str
    packages: tuple[str, ...] = ()

    def missing(self) -> list[str]:
        """Return the packages that are not installed."""
        return [name for name in self.packages if find_spec(name.partition(".")[0]) is None]


Setting = dict[str, Any]


def tuned(
    make: Callable[[Setting, Task], Any], draw: Callable[[np.random.RandomState, Task], Setting]
) -> Callable[[Task], Answer]:
    """Return the run of an estimator that random search tunes: ``make(setting, task)``, ``draw(rng, task)``."""

    def run(task: Task) -> Answer:
        began = time.perf_counter()
        rng = np.random.RandomState(task.seed)
        fit, judge = task.parts()
        best: Setting = {}
        lowest, n_tried, n_failed, longest, failure = np.inf, 0, 0, 0.0, ""
        while n_tried < MOST_SETTINGS:
            # One more setting, and the last fit, on more rows, must end in time; the default is tried in any case.
            if n_tried and time.perf_counter() - began + 2.5 * longest > task.seconds:
                break
            setting = draw(rng, task) if n_tried else {}
            started = time.perf_counter()
            try:
                model = make(setting, task).fit(task.X[fit], task.y[fit])
                error = float(np.mean((np.ravel(model.predict(task.X[judge])) - task.y[judge]) ** 2))
            except Exception as reason:  # a setting that cannot be fitted is a bad one, and is counted
                error, n_failed, failure = np.inf, n_failed + 1, f"{type(reason).__name__}: {reason}"
            longest = max(longest, time.perf_counter() - started)
            n_tried += 1
            if error < lowest:
                best, lowest = setting, error
        if not np.isfinite(lowest):
            raise RuntimeError(f"all {n_tried} settings failed, the last with {failure}")
        started = time.perf_counter()
        model = make(best, task).fit(task.X, task.y)
        fit_seconds = time.perf_counter() - started
        failed = f", {n_failed} failed" if n_failed else ""
        note = f"{n_tried} settings{failed}, chosen: {describe(best)}"
        return Answer(np.ravel(model.predict(task.X_test)), components_of(model), fit_seconds, note)

    return run


def describe(setting: Setting) -> str:
    """Return a setting in a few words."""
    words = (
        f"{name}={value:.3g}" if isinstance(value, float) else f"{name}={value}" for name, value in setting.items()
    )
    return " ".join(words) or "default"


def components_of(model: Any) -> Array | None:
    """Return the map of a fitted model, or of the first step of a pipeline that has one."""
    if hasattr(model, "steps"):
        return next((found for _, step in model.steps if (found := components_of(step)) is not None), None)
    return getattr(model, "components_", None)


def log_uniform(rng: np.random.RandomState, low: float, high: float) -> float:
    """Return a number drawn evenly over the logarithm."""
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def directions(rng: np.random.RandomState, task: Task) -> int:
    """Return a number of directions between 1 and 6."""
    return int(rng.randint(1, min(6, task.X.shape[1]) + 1))
