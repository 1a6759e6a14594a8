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
from sklearn.model_selection import train_test_split

from hkrr.diagnostics import unannounced
from hkrr.reporting.directions import sample
from hkrr.reporting.subject import Subject
from hkrr.tables.comparison import LEVEL, predicted_by_others, scores

_MOST_ROWS = 2000
_FEWEST_ROWS = 20
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
    with unannounced():
        predicted = {
            "hkrr": ours.fit(X[train], y[train]).predict(X[test]),
            **predicted_by_others(X[train], y[train], X[test], seed=0),
        }
    r2, low, high = map(list, scores(y[test], np.column_stack(list(predicted.values())), seed=0))
    return Comparison(list(predicted), r2, low, high, LEVEL, len(train), len(test), anew=True)


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
