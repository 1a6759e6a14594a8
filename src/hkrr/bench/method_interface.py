"""The interface of a benchmark method, ``run(task) -> Answer``, and random search for methods that need tuning.

Equal rules. Every method gets the same training rows, the same time budget and the same number of threads. A method
that runs with its default parameters is fitted once. A method that tunes itself is called once, with the time budget.
All other methods are tuned by random search. The search tries the default setting first, then random settings from the
method's parameter ranges. Each setting is fitted to the same four fifths of the training rows and validated on the
remaining fifth. The search stops when another setting and the final fit would probably exceed the time budget. The best
setting is then fitted to all training rows. There are two exceptions. First, recursive feature machines (`rfm` and the
xRFM package) choose the iteration by the error on a fifth of the training rows and are not fitted to these rows.
Second, boosted trees use the validation rows for early stopping, and the final fit has the number of trees found in
this way.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, NamedTuple, Protocol, Self

import numpy as np

from hkrr._base.linear_algebra import Array

# Fraction of the training rows on which random search validates a setting.
_VALIDATION_FRACTION = 0.2
# Maximum number of settings that random search tries.
MOST_SETTINGS = 200
# Random search stops after this many successive draws of settings that were already tried.
_MOST_DRAWS = 100


class Task(NamedTuple):
    """The input of a method: training rows, test inputs, time budget in seconds, number of threads, seed."""

    X: Array
    y: Array
    X_test: Array
    seconds: float
    threads: int
    seed: int = 0

    def validation_split(self) -> tuple[Array, Array]:
        """Return the indices of the rows to fit and of the validation rows. The split is the same for every method."""
        order = np.random.RandomState(self.seed).permutation(len(self.y))
        n = round(_VALIDATION_FRACTION * len(order))
        return order[n:], order[:n]


class Answer(NamedTuple):
    """The output of a method."""

    # The predictions at the test rows.
    predicted: Array
    # The learned map B, or None if the method learns no map.
    components: Array | None = None
    # The time of the final fit in seconds.
    fit_seconds: float | None = None
    # A description of the chosen setting.
    note: str = ""
    # Whether the rows of the map are sorted by importance. If False, the importance of directions is measured by the
    # singular values of the map.
    ordered: bool = False


@dataclass(frozen=True)
class Method:
    """A benchmark method."""

    # The function that tunes, fits and predicts.
    run: Callable[[Task], Answer]
    # A description in one line.
    about: str
    # The modules that are imported before the time measurement starts.
    packages: tuple[str, ...] = ()

    def missing(self) -> list[str]:
        """Return the names in ``packages`` that are not installed."""
        return [name for name in self.packages if find_spec(name.partition(".")[0]) is None]


class Estimator(Protocol):
    """A regressor in the style of scikit-learn."""

    def fit(self, X: Array, y: Array) -> Self:
        """Fit the estimator to training rows."""

    def predict(self, X: Array) -> Array:
        """Return the predictions for the rows of X."""


# A setting: the values of some parameters of an estimator. An empty setting is the default setting.
Setting = dict[str, Any]
# The type of a function that draws a random setting for a task.
Draw = Callable[[np.random.RandomState, Task], Setting]


def tuned(make: Callable[[Setting, Task], Estimator], draw: Draw) -> Callable[[Task], Answer]:
    """Return a function ``run(task)`` that tunes an estimator by random search.

    ``draw(rng, task)`` returns a random setting, a dict of parameter values. ``make(setting, task)`` returns an
    unfitted estimator. To validate a setting, the estimator is fitted with ``fit`` and its mean squared error is
    computed. If the estimator has a method ``fit_and_validate(X, y, X_validation, y_validation)``, this method is
    called instead and must return the validation error.
    """

    def run(task: Task) -> Answer:
        began = time.perf_counter()
        rng = np.random.RandomState(task.seed)
        training, validation = task.validation_split()
        best, lowest, longest, n_failed, failure = None, np.inf, 0.0, 0, ""
        tried: set[str] = set()
        while len(tried) < MOST_SETTINGS:
            # Leave time for one more setting and for the final fit, which uses all training rows. The default setting
            # is always tried.
            if tried and time.perf_counter() - began + 2.5 * longest > task.seconds:
                break
            setting = _new_setting(draw, rng, task, tried)
            if setting is None:
                break
            tried.add(repr(setting))
            started = time.perf_counter()
            try:
                model = make(setting, task)
                error = _validation_error(model, task, training, validation)
            except Exception as reason:  # the setting cannot be fitted: try the next one
                error, failure = np.inf, f"{type(reason).__name__}: {reason}"
            n_failed += not np.isfinite(error)
            longest = max(longest, time.perf_counter() - started)
            if error < lowest:
                best, chosen, lowest = model, setting, error
        if best is None:
            last = failure or "the validation error is not finite"
            raise RuntimeError(f"all {len(tried)} settings failed; the last error was {last}")
        started = time.perf_counter()
        best.fit(task.X, task.y)
        fit_seconds = time.perf_counter() - started
        failed = f", {n_failed} failed" if n_failed else ""
        note = f"{len(tried)} settings{failed}, chosen: {describe(chosen)}"
        components, ordered = components_of(best)
        return Answer(np.ravel(best.predict(task.X_test)), components, fit_seconds, note, ordered)

    return run


def _new_setting(draw: Draw, rng: np.random.RandomState, task: Task, tried: set[str]) -> Setting | None:
    """Return the next setting to try: first the default setting, then random settings that were not tried yet.

    Return None if 100 successive draws give only settings that were tried before.
    """
    if not tried:
        return {}
    for _ in range(_MOST_DRAWS):
        if repr(setting := draw(rng, task)) not in tried:
            return setting
    return None


def _validation_error(model: Estimator, task: Task, training: Array, validation: Array) -> float:
    """Fit the model to the training rows, and return its mean squared error on the validation rows."""
    X, y, X_validation, y_validation = task.X[training], task.y[training], task.X[validation], task.y[validation]
    if hasattr(model, "fit_and_validate"):
        return float(model.fit_and_validate(X, y, X_validation, y_validation))
    predicted = np.ravel(model.fit(X, y).predict(X_validation))
    return float(np.mean((predicted - y_validation) ** 2))


def describe(setting: Setting) -> str:
    """Return a setting as text of the form ``name=value name=value``, or "default" if the setting is empty."""
    pairs = (
        f"{name}={value:.3g}" if isinstance(value, float) else f"{name}={value}" for name, value in setting.items()
    )
    return " ".join(pairs) or "default"


def components_of(model: object) -> tuple[Array | None, bool]:
    """Return the map (``components_``) of a fitted model, and whether its rows are sorted by importance.

    For a pipeline, return the map of the first step that has one. If there is no map, return ``(None, False)``.
    """
    for step in [step for _, step in model.steps] if hasattr(model, "steps") else [model]:
        if hasattr(step, "components_"):
            return step.components_, hasattr(step, "eigenvalues_")
    return None, False


def log_uniform(rng: np.random.RandomState, low: float, high: float) -> float:
    """Draw a number between low and high from the log-uniform distribution."""
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def directions(rng: np.random.RandomState, task: Task) -> int:
    """Draw a number of directions between 1 and 6, or between 1 and the number of columns if this is less than 6."""
    return int(rng.randint(1, min(6, task.X.shape[1]) + 1))
