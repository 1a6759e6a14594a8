"""xRFM, the recursive feature machine of PyPI: its defaults, and tuned over the ranges that pytabkit gives for it."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np

from hkrr._arrays import Array
from hkrr.bench.methods import Answer, Method, Setting, Task, describe, log_uniform

# With twice as many rows one fit takes minutes: settings are then screened on so many of them.
_SCREENING_ROWS = 1000


class _Fitted(NamedTuple):
    loss: float
    model: Any


class _Tables:
    """The rows in xRFM's single precision, standardised, and the way back."""

    def __init__(self, task: Task) -> None:
        from sklearn.preprocessing import StandardScaler

        self.task = task
        self.inputs, self.target = StandardScaler().fit(task.X), StandardScaler().fit(task.y[:, None])
        self.X = self.inputs.transform(task.X).astype(np.float32)
        self.y = self.target.transform(task.y[:, None])[:, 0].astype(np.float32)

    def fit(self, fit: Array, judge: Array, setting: Setting | None, seconds: float | None) -> _Fitted:
        """Return the model of a setting, or of the defaults (None), with its squared error on the rows to judge by."""
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
        model.fit(self.X[fit], self.y[fit], self.X[judge], self.y[judge])
        loss = float(np.mean((np.ravel(model.predict(self.X[judge])) - self.y[judge]) ** 2))
        return _Fitted(loss if np.isfinite(loss) else np.inf, model)

    def predict(self, model: Any) -> Array:
        """Return the predictions at the test rows, in units of the target."""
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


def _defaults(task: Task) -> Answer:
    """All defaults; a fifth of the rows chooses the iteration, and is not fitted on."""
    tables, (fit, judge) = _Tables(task), task.parts()
    began = time.perf_counter()
    model = tables.fit(fit, judge, None, None).model
    return Answer(tables.predict(model), None, time.perf_counter() - began, "default")


def _tuned(task: Task) -> Answer:
    """The best, on that fifth, of the default and of settings drawn until the seconds are over.

    With many rows the settings are screened on a part of them, for half of the time, and the best one meets the default
    on all rows; a fit that has begun may end.
    """
    began = time.perf_counter()
    tables, (fit, judge) = _Tables(task), task.parts()
    rng = np.random.RandomState(task.seed)
    best, chosen, tried, n_failed = tables.fit(fit, judge, None, None), "default", 1, 0
    fit_seconds = longest = time.perf_counter() - began

    def left() -> float:
        return task.seconds - (time.perf_counter() - began)

    if len(fit) > 2 * _SCREENING_ROWS:
        until = left() / 2
        screened: list[tuple[float, int, Setting]] = []
        while not screened or left() > until:
            setting = _draw(rng)
            small = _try(tables, fit[:_SCREENING_ROWS], judge[:_SCREENING_ROWS], setting, None)
            n_failed += small.model is None
            screened.append((small.loss, len(screened), setting))
        candidates, most = [min(screened)[2]], 1
        tried += len(screened)
    else:
        candidates, most = [], 200
    for k in range(most):
        if k and longest > left():
            break
        setting = candidates[k] if candidates else _draw(rng)
        started = time.perf_counter()
        other = _try(tables, fit, judge, setting, max(left(), fit_seconds))
        n_failed += other.model is None
        seconds = time.perf_counter() - started
        longest, tried = max(longest, seconds), tried + (not candidates)
        if other.loss < best.loss:
            best, chosen, fit_seconds = other, describe(setting), seconds
    return Answer(
        tables.predict(best.model), None, fit_seconds, f"{tried} settings, {n_failed} failed, chosen: {chosen}"
    )


def _try(tables: _Tables, fit: Array, judge: Array, setting: Setting, seconds: float | None) -> _Fitted:
    """Return the fit of a setting; one that cannot be fitted is a bad one, and is told apart by having no model."""
    try:
        return tables.fit(fit, judge, setting, seconds)
    except Exception:  # whatever xRFM, or PyTorch below it, makes of a setting: counted in the note
        return _Fitted(np.inf, None)


METHODS = {
    "xrfm": Method(_defaults, "xRFM of PyPI, all defaults", ("torch", "xrfm")),
    "xrfm_tuned": Method(_tuned, "xRFM of PyPI, tuned over pytabkit's ranges", ("torch", "xrfm")),
}
