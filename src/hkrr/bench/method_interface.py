"""The interface of a benchmark method, ``run(task) -> Answer``, and random search for methods that need tuning.

Equal rules. Every method gets the same training rows, the same number of threads and the same hard time limit for
tuning, fitting and predicting together. The process of a method that exceeds the limit is killed, and the method has
lost on this problem. A method that tunes itself is called once, with the time limit. A method that runs with its
default parameters is fitted once. All other methods are tuned by random search. The search tries the default setting
first, then random settings from the method's parameter ranges. Each setting is fitted to the same four fifths of the
training rows and validated on the remaining fifth, by the mean squared error or the log loss. The search stops when
another setting and the final fit would probably exceed the time limit. The best setting is then fitted to all training
rows, if there is time. There are two exceptions. First, recursive feature machines (`rfm` and the xRFM package) and the
methods of pytabkit use a fifth of the training rows only for validation. Second, boosted trees use the validation rows
for early stopping, and the final fit has the number of trees found in this way.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, NamedTuple, Protocol, Self, cast

import numpy as np

from hkrr._base.linear_algebra import Array
from hkrr.bench.preparation import numeric
from hkrr.bench.scores import log_loss
from hkrr.tables.held_out_comparison import stratified

# Fraction of the training rows on which random search validates a setting.
_VALIDATION_FRACTION = 0.2
# Maximum number of settings that random search tries.
MOST_SETTINGS = 200
# Random search stops after this many successive draws of settings that were already tried.
_MOST_DRAWS = 100
# The final fit is skipped if less than this multiple of the time of the best setting is left. The final fit has a
# quarter more rows, and the test rows must be predicted.
_TIME_OF_FINAL_FIT = 1.3
# The tasks of a method.
REGRESSION, CLASSIFICATION = "regression", "classification"


class BenchmarkTask(NamedTuple):
    """The input of a method: training rows, test inputs, time limit in seconds, number of threads, seed.

    The inputs are arrays, or pandas data frames with text and missing values. The targets are numbers, or the integers
    0, 1, ..., ``n_classes - 1`` if ``n_classes`` is positive.
    """

    X: Any
    y: Array
    X_test: Any
    seconds: float
    threads: int
    seed: int = 0
    n_classes: int = 0

    def validation_split(self) -> tuple[Array, Array]:
        """Return the indices of the rows to fit and of the validation rows. The split is the same for every method."""
        order = np.random.RandomState(self.seed).permutation(len(self.y))
        n = round(_VALIDATION_FRACTION * len(order))
        order = stratified(self.y, order, n) if self.n_classes else order
        return order[n:], order[:n]


class Answer(NamedTuple):
    """The output of a method."""

    # The predictions at the test rows: numbers (n_test,), or probabilities (n_test, n_classes).
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
    run: Callable[[BenchmarkTask], Answer]
    # A description in one line.
    about: str
    # The modules that are imported before the time measurement starts.
    packages: tuple[str, ...] = ()
    # What the method predicts: "regression", "classification" or both.
    tasks: tuple[str, ...] = (REGRESSION,)
    # The function of `hkrr.bench.preparation` that prepares a data frame for the method.
    prepare: Callable[[Any, Any], tuple[Any, Any]] = numeric

    def missing(self) -> list[str]:
        """Return the names in ``packages`` that are not installed."""
        return [name for name in self.packages if find_spec(name.partition(".")[0]) is None]

    def answer(self, task: BenchmarkTask) -> Answer:
        """Prepare the inputs if they are data frames, and run the method."""
        if hasattr(task.X, "columns"):
            X, X_test = self.prepare(task.X, task.X_test)
            task = task._replace(X=X, X_test=X_test)
        return self.run(task)


class Estimator(Protocol):
    """A regressor or a classifier in the style of scikit-learn."""

    def fit(self, X: Any, y: Array) -> Self:
        """Fit the estimator to training rows."""

    def predict(self, X: Any) -> Array:
        """Return the predictions for the rows of X."""


class Classifier(Estimator, Protocol):
    """A classifier in the style of scikit-learn."""

    classes_: Array

    def predict_proba(self, X: Any) -> Array:
        """Return the probabilities of the classes for the rows of X."""


# A setting: the values of some parameters of an estimator. An empty setting is the default setting.
Setting = dict[str, Any]
# The type of a function that draws a random setting for a task.
Draw = Callable[[np.random.RandomState, BenchmarkTask], Setting]


def tuned(make: Callable[[Setting, BenchmarkTask], Estimator], draw: Draw) -> Callable[[BenchmarkTask], Answer]:
    """Return a function ``run(task)`` that tunes an estimator by random search.

    ``draw(rng, task)`` returns a random setting, a dict of parameter values. ``make(setting, task)`` returns an
    unfitted estimator. To validate a setting, the estimator is fitted with ``fit``. If the estimator has a method
    ``fit_with_validation(X, y, X_validation, y_validation)``, this method is called instead. The validation error is
    the mean squared error, or the log loss for classes.
    """

    def run(task: BenchmarkTask) -> Answer:
        began = time.perf_counter()
        rng = np.random.RandomState(task.seed)
        training, validation = task.validation_split()
        best, lowest, longest, n_failed, failure = None, np.inf, 0.0, 0, ""
        tried: set[str] = set()

        def left() -> float:
            return task.seconds - (time.perf_counter() - began)

        while len(tried) < MOST_SETTINGS:
            # Leave time for one more setting and for the final fit, which uses all training rows. The default setting
            # is always tried.
            if tried and 2.5 * longest > left():
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
            seconds = time.perf_counter() - started
            n_failed += not np.isfinite(error)
            longest = max(longest, seconds)
            if error < lowest:
                best, chosen, lowest, fit_seconds = model, setting, error, seconds
        if best is None:
            last = failure or "the validation error is not finite"
            raise RuntimeError(f"all {len(tried)} settings failed; the last error was {last}")
        failed = f", {n_failed} failed" if n_failed else ""
        note = f"{len(tried)} settings{failed}, chosen: {describe(chosen)}"
        if _TIME_OF_FINAL_FIT * fit_seconds < left():
            started = time.perf_counter()
            best.fit(task.X, task.y)
            fit_seconds = time.perf_counter() - started
        else:
            note += ", no time for the final fit"
        components, ordered = components_of(best)
        return Answer(predictions(best, task.X_test, task), components, fit_seconds, note, ordered)

    return run


def predictions(model: Estimator, X: Any, task: BenchmarkTask) -> Array:
    """Return the predictions of a fitted model: numbers, or the probabilities of all classes of the task."""
    if not task.n_classes:
        return np.ravel(np.asarray(model.predict(X), dtype=np.float64))
    probabilities, classifier = np.zeros((len(X), task.n_classes)), cast(Classifier, model)
    probabilities[:, np.asarray(classifier.classes_, dtype=int)] = classifier.predict_proba(X)
    return probabilities


def take(X: Any, index: Array) -> Any:
    """Return the rows of an array or a data frame with the given positions."""
    return X.iloc[index] if hasattr(X, "iloc") else X[index]


def _new_setting(draw: Draw, rng: np.random.RandomState, task: BenchmarkTask, tried: set[str]) -> Setting | None:
    """Return the next setting to try: first the default setting, then random settings that were not tried yet.

    Return None if 100 successive draws give only settings that were tried before.
    """
    if not tried:
        return {}
    for _ in range(_MOST_DRAWS):
        if repr(setting := draw(rng, task)) not in tried:
            return setting
    return None


def _validation_error(model: Estimator, task: BenchmarkTask, training: Array, validation: Array) -> float:
    """Fit the model to the training rows, and return its error on the validation rows."""
    X, X_validation = take(task.X, training), take(task.X, validation)
    y, y_validation = task.y[training], task.y[validation]
    if hasattr(model, "fit_with_validation"):
        model.fit_with_validation(X, y, X_validation, y_validation)
    else:
        model.fit(X, y)
    predicted = predictions(model, X_validation, task)
    return log_loss(y_validation, predicted) if task.n_classes else float(np.mean((predicted - y_validation) ** 2))


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


def directions(rng: np.random.RandomState, task: BenchmarkTask) -> int:
    """Draw a number of directions between 1 and 6, or between 1 and the number of columns if this is less than 6."""
    return int(rng.randint(1, min(6, task.X.shape[1]) + 1))
