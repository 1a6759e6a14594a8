"""The one check that every case of the stress table, and every generated one, must pass."""

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

SECONDS = 60  # that no case may take: a guard against hanging, far above what any takes
_SLACK = 1e-6  # by which the error may be above that of the mean


@dataclass(frozen=True)
class Outcome:
    """What came of a case: the share of the variance explained on the training rows, or what the error said."""

    explained: float | None
    said: str
    warned: tuple[str, ...]
    seconds: float


def check(model: Any, X: Any, y: Any, weight: Any = None) -> Outcome:
    """Return what came of a fit; raise AssertionError unless it is sound, or refused by the library's own error.

    Sound: in time, without a warning but the library's own; map, coefficients and predictions are finite, on the
    training rows and on new ones; and on the training rows the error is not above that of the (weighted) mean of y.
    """
    began = time.perf_counter()
    refusal, predicted = None, []
    with warnings.catch_warnings(record=True) as caught, time_bound(SECONDS):
        warnings.simplefilter("always")
        try:
            model.fit(X, y, weight)
            predicted = [model.predict(rows) for rows in (X, _new_rows(X))]
        except (ValueError, FitError) as error:
            refusal = error
    seconds = time.perf_counter() - began
    foreign = [warning for warning in caught if not issubclass(warning.category, HKRRWarning)]
    assert not foreign, f"a warning that is not the library's: {foreign[0].message}"
    if refusal is not None:
        assert _is_clear(refusal), repr(refusal)
        return Outcome(None, str(refusal), (), seconds)
    for name in ("components_", "dual_coef_", "centers_", "gamma_", "reg_lambda_", "intercept_"):
        assert np.all(np.isfinite(getattr(model, name))), f"{name} is not finite"
    assert all(np.all(np.isfinite(values)) for values in predicted), "predictions are not finite"
    share = share_of_error(predicted[0], y, weight)
    assert share <= 1.0 + _SLACK, f"the error is {share} times that of the mean"
    names = tuple(sorted({warning.category.__name__ for warning in caught}))
    return Outcome(1.0 - share, "", names, seconds)


def share_of_error(predicted: Any, y: Any, weight: Any) -> float:
    """Return the squared error over that of the mean of y, both up to the rounding of the predictions."""
    y = np.asarray(y, dtype=np.float64).reshape(len(y), -1)
    w = np.ones(len(y)) if weight is None else np.asarray(weight, dtype=np.float64) / np.max(weight)
    unit = np.max(np.abs(y)) or 1.0
    y, found = y / unit, np.asarray(predicted, dtype=np.float64).reshape(y.shape) / unit
    rounding = np.sum(w) * y.shape[1] * (8 * np.finfo(np.asarray(predicted).dtype).eps) ** 2
    of_mean = np.sum(w[:, None] * (y - np.average(y, axis=0, weights=w)) ** 2)
    return float(np.sum(w[:, None] * (y - found) ** 2) / (of_mean + rounding))


def _new_rows(X: Any) -> Any:
    """Return rows between those of X, and beyond them."""
    X = np.asarray(X)
    if X.dtype.kind not in "f":
        return X[::-1]
    return np.concatenate([0.5 * X + 0.5 * X[::-1], 2.0 * X[:2]])


def _is_clear(error: Exception) -> bool:
    """Return whether the message says what is wrong in words, and the error is no other library's in disguise."""
    return len(str(error).split()) >= 5 and not isinstance(error, np.linalg.LinAlgError)


@contextmanager
def time_bound(seconds: int):
    """Raise TimeoutError in the main thread after so many seconds; print all stacks first."""

    def stop(*_: Any) -> None:
        faulthandler.dump_traceback()
        raise TimeoutError(f"not done after {seconds} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
