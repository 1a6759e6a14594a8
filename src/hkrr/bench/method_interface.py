"""The methods behind one call, ``run(task) -> Answer``, and random search for those that do not tune themselves.

Equal rules. Every method gets the same training rows, the same seconds and the same threads. What has nothing to tune
gets one fit; what tunes itself is told the seconds. All others are tuned by random search: the default setting, then
others drawn from the method's ranges, each fitted on the same four fifths of the rows and judged on the last fifth, for
as long as one more setting and the last fit are likely to end in time; the best is fitted again on all rows. (Feature
machines choose their iteration by a fifth of the rows, ours and xRFM, and are not fitted on it; boosted trees stop by
the fifth they are judged on, and are fitted again with as many trees.)
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
_MOST_DRAWS = 100  # before a range counts as exhausted


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
    ordered: bool = False  # whether the rows of the map come in the order of their importance, and have no lengths


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
Draw = Callable[[np.random.RandomState, Task], Setting]


def tuned(make: Callable[[Setting, Task], Any], draw: Draw) -> Callable[[Task], Answer]:
    """Return the run of an estimator that random search tunes: ``make(setting, task)``, ``draw(rng, task)``."""

    def run(task: Task) -> Answer:
        began = time.perf_counter()
        rng = np.random.RandomState(task.seed)
        fit, judge = task.parts()
        best, lowest, longest, n_failed, failure = None, np.inf, 0.0, 0, ""
        tried: set[str] = set()
        while len(tried) < MOST_SETTINGS:
            # One more setting, and the last fit, on more rows, must end in time; the default is tried in any case.
            if tried and time.perf_counter() - began + 2.5 * longest > task.seconds:
                break
            setting = _another(draw, rng, task, tried)
            if setting is None:
                break
            tried.add(repr(setting))
            started = time.perf_counter()
            try:
                model = make(setting, task)
                error = _judged(model, task, fit, judge)
            except Exception as reason:  # a setting that cannot be fitted is a bad one, and is counted
                error, failure = np.inf, f"{type(reason).__name__}: {reason}"
            n_failed += not np.isfinite(error)
            longest = max(longest, time.perf_counter() - started)
            if error < lowest:
                best, chosen, lowest = model, setting, error
        if best is None:
            raise RuntimeError(f"all {len(tried)} settings failed, the last with {failure or 'no finite error'}")
        started = time.perf_counter()
        best.fit(task.X, task.y)
        fit_seconds = time.perf_counter() - started
        failed = f", {n_failed} failed" if n_failed else ""
        note = f"{len(tried)} settings{failed}, chosen: {describe(chosen)}"
        components, ordered = components_of(best)
        return Answer(np.ravel(best.predict(task.X_test)), components, fit_seconds, note, ordered)

    return run


def _another(draw: Draw, rng: np.random.RandomState, task: Task, tried: set[str]) -> Setting | None:
    """Return the default first, then settings that were not tried yet; None where no more are found."""
    if not tried:
        return {}
    for _ in range(_MOST_DRAWS):
        if repr(setting := draw(rng, task)) not in tried:
            return setting
    return None


def _judged(model: Any, task: Task, fit: Array, judge: Array) -> float:
    """Return the error on the rows to judge by; a model that stops by such rows does both at once."""
    if hasattr(model, "judge"):
        return float(model.judge(task.X[fit], task.y[fit], task.X[judge], task.y[judge]))
    predicted = np.ravel(model.fit(task.X[fit], task.y[fit]).predict(task.X[judge]))
    return float(np.mean((predicted - task.y[judge]) ** 2))


def describe(setting: Setting) -> str:
    """Return a setting in a few words."""
    words = (
        f"{name}={value:.3g}" if isinstance(value, float) else f"{name}={value}" for name, value in setting.items()
    )
    return " ".join(words) or "default"


def components_of(model: Any) -> tuple[Array | None, bool]:
    """Return the map of a fitted model, or of the first step of a pipeline that has one, and whether it is ordered."""
    for step in [step for _, step in model.steps] if hasattr(model, "steps") else [model]:
        if hasattr(step, "components_"):
            return step.components_, hasattr(step, "eigenvalues_")
    return None, False


def log_uniform(rng: np.random.RandomState, low: float, high: float) -> float:
    """Return a number drawn evenly over the logarithm."""
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def directions(rng: np.random.RandomState, task: Task) -> int:
    """Return a number of directions between 1 and 6."""
    return int(rng.randint(1, min(6, task.X.shape[1]) + 1))
