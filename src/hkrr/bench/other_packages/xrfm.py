"""The xRFM package for recursive feature machines: with default parameters, and tuned by random search.

The search draws the parameters from the ranges that the package pytabkit uses for xRFM.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np

from hkrr._base.linear_algebra import Array
from hkrr.bench.method_interface import Answer, BenchmarkTask, Method, Setting, describe, log_uniform

# Number of rows of the subsample on which random settings are first compared. The subsample is used if there are more
# than twice as many training rows, not counting the validation rows: a fit to all training rows can then take minutes.
_SCREENING_ROWS = 1000
# Fraction of the time left that is passed to a fit as its time limit. xRFM exceeds its limit by up to one iteration.
_SHARE = 0.8


class _Fitted(NamedTuple):
    """A fitted model and its validation loss. If the fit failed, the model is None and the loss is infinite."""

    loss: float
    model: Any


class _Standardized:
    """The standardized data of a task, with methods to fit and predict. xRFM needs single precision."""

    def __init__(self, task: BenchmarkTask) -> None:
        from sklearn.preprocessing import StandardScaler

        self.task = task
        self.inputs, self.target = StandardScaler().fit(task.X), StandardScaler().fit(task.y[:, None])
        self.X = self.inputs.transform(task.X).astype(np.float32)
        self.y = self.target.transform(task.y[:, None])[:, 0].astype(np.float32)

    def fit(self, training: Array, validation: Array, setting: Setting | None, seconds: float | None) -> _Fitted:
        """Fit with the parameters in `setting` (None for the defaults). Return the model and its validation loss."""
        from xrfm import xRFM

        parameters = None
        if setting is not None:
            kernel = {name: value for name, value in setting.items() if name != "reg"}
            parameters = {"model": kernel, "fit": {"reg": setting["reg"], "iters": 5, "early_stop_rfm": True}}
        model = xRFM(
            rfm_params=parameters,
            device="cpu",
            tuning_metric="mse",
            time_limit_s=seconds,
            n_threads=self.task.threads,
            random_state=self.task.seed,
            verbose=False,
        )
        model.fit(self.X[training], self.y[training], self.X[validation], self.y[validation])
        loss = float(np.mean((np.ravel(model.predict(self.X[validation])) - self.y[validation]) ** 2))
        return _Fitted(loss if np.isfinite(loss) else np.inf, model)

    def predict(self, model: Any) -> Array:
        """Return the predictions at the test rows, in the units of the target."""
        X = self.inputs.transform(self.task.X_test).astype(np.float32)
        values = np.asarray(model.predict(X), dtype=np.float64).reshape(-1, 1)
        return np.asarray(self.target.inverse_transform(values)[:, 0])


def _draw(rng: np.random.RandomState) -> Setting:
    exponent = rng.uniform(0.7, 1.4)
    return {
        "kernel": "lpq" if rng.uniform() < 0.8 else "l2",
        "bandwidth": log_uniform(rng, 0.5, 200.0),
        "reg": log_uniform(rng, 1e-6, 10.0),
        "exponent": exponent,
        "norm_p": exponent + (2.0 - exponent) * rng.uniform(0.0, 0.8),
        "diag": bool(rng.uniform() < 0.5),
    }


def _defaults(task: BenchmarkTask) -> Answer:
    """Run xRFM with its default parameters.

    The validation rows are used only to choose the iteration, not to fit the model.
    """
    data, (training, validation) = _Standardized(task), task.validation_split()
    began = time.perf_counter()
    model = data.fit(training, validation, None, _SHARE * task.seconds).model
    return Answer(data.predict(model), None, time.perf_counter() - began, "default")


def _tuned(task: BenchmarkTask) -> Answer:
    """Run xRFM with the default setting and random settings, and predict with the model of lowest validation error.

    The search stops when the remaining time is shorter than the longest fit so far, or after 200 random settings. If
    more than 2,000 rows remain without the validation rows, half of the time left after the default fit is used to
    compare random settings on a subsample of 1,000 rows. Only the best of these settings is then fitted to all rows
    except the validation rows, and compared with the default setting.
    """
    began = time.perf_counter()
    data, (training, validation) = _Standardized(task), task.validation_split()
    rng = np.random.RandomState(task.seed)
    best, chosen, tried, n_failed = data.fit(training, validation, None, _SHARE * task.seconds), "default", 1, 0
    fit_seconds = longest = time.perf_counter() - began

    def left() -> float:
        return task.seconds - (time.perf_counter() - began)

    if len(training) > 2 * _SCREENING_ROWS:
        until = left() / 2
        screened: list[tuple[float, int, Setting]] = []
        while not screened or left() > until:
            setting = _draw(rng)
            small = _try(data, training[:_SCREENING_ROWS], validation[:_SCREENING_ROWS], setting, _SHARE * left())
            n_failed += small.model is None
            screened.append((small.loss, len(screened), setting))
        candidates, most = [min(screened)[2]], 1
        tried += len(screened)
    else:
        candidates, most = [], 200
    for k in range(most):
        if longest > left():
            break
        setting = candidates[k] if candidates else _draw(rng)
        started = time.perf_counter()
        other = _try(data, training, validation, setting, _SHARE * left())
        n_failed += other.model is None
        seconds = time.perf_counter() - started
        longest, tried = max(longest, seconds), tried + (not candidates)
        if other.loss < best.loss:
            best, chosen, fit_seconds = other, describe(setting), seconds
    return Answer(data.predict(best.model), None, fit_seconds, f"{tried} settings, {n_failed} failed, chosen: {chosen}")


def _try(data: _Standardized, training: Array, validation: Array, setting: Setting, seconds: float | None) -> _Fitted:
    """Fit with the parameters in `setting`. If the fit fails, return an infinite loss and no model."""
    try:
        return data.fit(training, validation, setting, seconds)
    except Exception:  # xRFM and PyTorch raise many types of errors
        return _Fitted(np.inf, None)


METHODS = {
    "xrfm": Method(_defaults, "the xRFM package with default parameters", ("torch", "xrfm")),
    "xrfm_tuned": Method(
        _tuned, "the xRFM package, tuned by random search over pytabkit's parameter ranges", ("torch", "xrfm")
    ),
}
