"""How it compares: R2 on the same new rows, beside kernel ridge regression on all columns and a linear model.

Where the model knows scores on rows that were held out when it was made, these are shown. Otherwise the settings of the
model and its two rivals are fitted anew to three quarters of the rows of the report, and tested on the last quarter:
the model itself may have seen these.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.linear_model import RidgeCV
from sklearn.metrics import r2_score
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from hkrr._arrays import Array
from hkrr.baselines import KernelRidgeCV
from hkrr.diagnostics import unannounced
from hkrr.reporting.directions import sample
from hkrr.reporting.subject import Subject

_MOST_ROWS = 2000
_FEWEST_ROWS = 20
_RESAMPLES, _LEVEL = 500, 0.95
# What the settings of a model may hold that belongs to its own fit.
_NOT_AGAIN = {"callbacks": None, "verbose": 0, "checkpoint": None, "init": "random", "centers": "uniform"}


@dataclass(frozen=True)
class Comparison:
    """Methods, ours first, and their R2 on the same rows, with intervals by the bootstrap."""

    methods: list[str]
    r2: list[float]
    low: list[float]
    high: list[float]
    level: float
    n_train: int
    n_test: int
    anew: bool  # whether ours is a fit with the same settings, and not the model itself


def describe_comparison(subject: Subject, compare: bool) -> Comparison | None:
    """Return the scores that the model knows, or, if asked, those of a comparison made here."""
    if subject.held_out is not None:
        known = subject.held_out
        return Comparison(
            list(known.methods),
            list(known.r2),
            list(known.low),
            list(known.high),
            known.level,
            known.n_train,
            known.n_test,
            anew=False,
        )
    rows = sample(len(subject.y), _MOST_ROWS)
    if not compare or len(rows) < _FEWEST_ROWS:
        return None
    train, test = train_test_split(rows, test_size=0.25, random_state=0)
    X, y = subject.X, subject.y
    if np.ptp(y[train]) == 0 or np.ptp(y[test]) == 0:
        return None
    ours = _again(subject.model, len(train))
    rivals = [
        KernelRidgeCV(random_state=0),
        make_pipeline(StandardScaler(), RidgeCV(np.logspace(-4, 6, 11))),
    ]
    with unannounced(), np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        predicted = [model.fit(X[train], y[train]).predict(X[test]) for model in (ours, *rivals)]
    r2, low, high = _scores(y[test], predicted)
    return Comparison(["hkrr", "kernel ridge", "linear"], r2, low, high, _LEVEL, len(train), len(test), anew=True)


def _again(model: Any, n_rows: int) -> Any:
    """Return an unfitted model of the same settings, as far as these do not belong to the rows of another fit."""
    again = clone(model)
    settings = again.get_params(deep=False)
    changed = {
        name: value
        for name, value in _NOT_AGAIN.items()
        if name in settings and not (name in ("init", "centers") and isinstance(settings[name], str))
    }
    if isinstance(settings.get("n_centers"), int):
        changed["n_centers"] = min(settings["n_centers"], n_rows)
    return again.set_params(**changed)


def _scores(y: Array, predicted: list[Array]) -> tuple[list[float], list[float], list[float]]:
    """Return R2 of each, and the ends of its interval over draws of the rows, the same for all."""
    rng = np.random.default_rng(0)
    draws: list[list[float]] = []
    while len(draws) < _RESAMPLES:
        rows = rng.integers(len(y), size=len(y))
        if np.ptp(y[rows]) > 0:  # of one value alone there is no R2
            draws.append([r2_score(y[rows], each[rows]) for each in predicted])
    low, high = np.quantile(draws, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2], axis=0)
    return [float(r2_score(y, each)) for each in predicted], low.tolist(), high.tolist()
