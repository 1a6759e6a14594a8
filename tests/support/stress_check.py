"""The check that every stress case and every generated case must pass."""

from __future__ import annotations

import faulthandler
import signal
import time
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from hkrr import FitError, HKRRWarning

# Time limit of a case in seconds. It is far longer than any case needs and only detects fits that hang.
SECONDS = 60
# Tolerance on the ratio of the model's squared error to the squared error of predicting the mean.
_SLACK = 1e-6


@dataclass(frozen=True)
class Outcome:
    """The outcome of a case.

    Attributes
    ----------
    explained : float or None
        Share of the variance explained on the training rows. None if the fit raised an error.
    message : str
        Message of the error. Empty if the fit gave a model.
    warned : tuple of str
        Class names of the warnings.
    seconds : float
        Duration of the fit.
    explained_on_fresh : float or None
        R2 on new rows whose targets have no noise. None if the fit raised an error or if there are no such rows.
    """

    explained: float | None
    message: str
    warned: tuple[str, ...]
    seconds: float
    explained_on_fresh: float | None = None


def check(model: Any, X: Any, y: Any, weight: Any = None, fresh: tuple[Any, Any] | None = None) -> Outcome:
    """Fit the model and return the outcome. Raise AssertionError if the outcome is neither valid nor a clear error.

    `fresh` contains the inputs of new rows and their target without noise. They are needed only for the R2 on new rows.

    A fit is valid if

    - it ends within the time limit and causes no warnings of other libraries,
    - the map, the coefficients and the predictions on training rows and new rows are finite,
    - the squared error on the training rows is at most the squared error of predicting the weighted mean of y. If the
      model has robust noise, outliers do not count, and the limit is raised for the standard error of this mean.
    """
    began = time.perf_counter()
    refusal, predicted = None, []
    with warnings.catch_warnings(record=True) as caught, time_bound(SECONDS):
        warnings.simplefilter("always")
        try:
            model.fit(X, y, weight)
            predicted = [model.predict(rows) for rows in (X, _new_rows(X), *(fresh or ())[:1])]
        except (ValueError, FitError) as error:
            refusal = error
    seconds = time.perf_counter() - began
    foreign = [warning for warning in caught if not issubclass(warning.category, HKRRWarning)]
    assert not foreign, f"a warning of another library: {foreign[0].message}"
    if refusal is not None:
        assert _is_clear(refusal), repr(refusal)
        return Outcome(None, str(refusal), (), seconds)
    for name in ("components_", "dual_coef_", "centers_", "gamma_", "reg_lambda_", "intercept_"):
        assert np.all(np.isfinite(getattr(model, name))), f"{name} is not finite"
    assert all(np.all(np.isfinite(values)) for values in predicted), "predictions are not finite"
    counts = np.ones(len(y)) if weight is None else np.array(weight, dtype=np.float64)
    slack = _SLACK
    if hasattr(model, "diagnostics_") and model.diagnostics_.outliers:
        counts[list(model.diagnostics_.outliers)] = 0.0  # a model with robust noise does not fit outliers
        # The noise model gives unequal weights to the rows that are not outliers. The weighted mean of these rows can
        # differ from their mean by a standard error.
        slack += 1.0 / np.count_nonzero(counts)
    # A prediction is a sum of coefficients times kernel values of about 1. If the coefficients are huge, its rounding
    # error is not negligible.
    slack += 4.0 * np.finfo(np.float64).eps * float(np.sum(np.abs(model.dual_coef_))) / (float(np.std(y)) or 1.0)
    share = share_of_error(predicted[0], y, counts)
    assert share <= 1.0 + slack, f"the error is {share} times that of the mean"
    names = tuple(sorted({warning.category.__name__ for warning in caught}))
    on_fresh = None if fresh is None else explained_without_noise(predicted[2], fresh[1], y)
    return Outcome(1.0 - share, "", names, seconds, on_fresh)


def share_of_error(predicted: Any, y: Any, weight: Any) -> float:
    """Return the squared error divided by the squared error of predicting the weighted mean of y.

    The denominator includes the rounding error of the predictions, so that it is not zero for a constant y.
    """
    y = np.asarray(y, dtype=np.float64).reshape(len(y), -1)
    w = np.ones(len(y)) if weight is None else np.asarray(weight, dtype=np.float64) / np.max(weight)
    unit = np.max(np.abs(y)) or 1.0
    y, found = y / unit, np.asarray(predicted, dtype=np.float64).reshape(y.shape) / unit
    rounding = np.sum(w) * y.shape[1] * (8 * np.finfo(np.asarray(predicted).dtype).eps) ** 2
    of_mean = np.sum(w[:, None] * (y - np.average(y, axis=0, weights=w)) ** 2)
    return float(np.sum(w[:, None] * (y - found) ** 2) / (of_mean + rounding))


def explained_without_noise(predicted: Any, f: Any, y: Any) -> float:
    """Return the R2 of the predictions for new rows. f is their target without noise.

    If f is constant but the training target y is not, y is noise. R2 is then the expected R2 against new targets with
    the variance of y, which is at most 0.
    """
    if np.all(f == np.ravel(f)[0]) and not np.all(y == np.ravel(y)[0]):
        return -float(np.mean((predicted - f) ** 2) / np.var(y))
    return 1.0 - share_of_error(predicted, f, None)


def _new_rows(X: Any) -> Any:
    """Return new rows, inside and outside the range of X."""
    X = np.asarray(X)
    if X.dtype.kind not in "f":
        return X[::-1]
    return np.concatenate([0.5 * X + 0.5 * X[::-1], 2.0 * X[:2]])


def _is_clear(error: Exception) -> bool:
    """Return whether an error message is clear: at least five words, and not from NumPy's linear algebra."""
    return len(str(error).split()) >= 5 and not isinstance(error, np.linalg.LinAlgError)


@contextmanager
def time_bound(seconds: int):
    """Context manager that prints all stacks and raises TimeoutError if the block takes longer than `seconds`.

    On Windows, which has no such timer, only pytest-timeout ends a test that hangs.
    """
    if not hasattr(signal, "SIGALRM"):
        yield
        return

    def stop(*_: Any) -> None:
        faulthandler.dump_traceback()
        raise TimeoutError(f"not done after {seconds} seconds")

    # pytest-timeout uses the same timer, so the remaining time of its timer is restored at the end.
    before, began = signal.signal(signal.SIGALRM, stop), time.monotonic()
    left, _ = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, max(left - (time.monotonic() - began), 0.01) if left else 0)
