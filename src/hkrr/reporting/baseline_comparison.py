"""Contents of the section on the comparison with other methods: R2 on the same held-out rows.

The other methods are kernel ridge regression on all columns and a linear model. If rows were held out when the model
was fitted, the scores on these rows are reported. Otherwise three estimators are fitted to a random three quarters of
the report's rows and tested on the remaining quarter: the two other methods, and a new estimator with the model's
settings. The model itself is not tested, because it may have been fitted to the remaining quarter.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import train_test_split

from hkrr.estimators.ensemble import HyperKernelEnsemble
from hkrr.estimators.fitted.diagnostics import fit_warnings_silenced
from hkrr.reporting.report_input import RegressionInput, sample_indices
from hkrr.tables.held_out_comparison import LEVEL, baseline_predictions, r2_intervals
from hkrr.tables.inner_models import OneMapRegressor

# If methods are fitted for the comparison, they use at most _MOST_ROWS rows. With fewer than _FEWEST_ROWS rows, nothing
# is fitted, and there is no comparison.
_MOST_ROWS = 2000
_FEWEST_ROWS = 20
# Parameters of the new estimator that differ from those of the model, with their new values. `init` and `centers` are
# replaced only if they are arrays, not if they are strings.
_REPLACED_SETTINGS = {"callbacks": None, "verbose": 0, "checkpoint": None, "init": "random", "centers": "uniform"}


@dataclass(frozen=True)
class Comparison:
    """R2 of several methods on the same test rows, with bootstrap intervals. The first method is hkrr.

    The lists have one entry for each method. `low` and `high` are the ends of the intervals, and `level` is their
    confidence level. `n_train` and `n_test` are the numbers of training rows and of test rows.
    """

    methods: list[str]
    r2: list[float]
    low: list[float]
    high: list[float]
    level: float
    n_train: int
    n_test: int
    # Whether the first method is a new estimator with the settings of the model. If False, it is the model itself.
    refitted: bool


def describe_comparison(data: RegressionInput, compare: bool) -> Comparison | None:
    """Return the R2 of hkrr and of the other methods on held-out rows, or None if there is no comparison.

    If the model has held-out scores, they are returned. Otherwise the methods are fitted as the module docstring
    describes. Nothing is fitted if `compare` is False, if there are fewer than 20 rows, or if the target is constant.
    """
    known = data.held_out
    if known is not None:
        scores = list(known.methods), list(known.r2), list(known.low), list(known.high)
        return Comparison(*scores, known.level, known.n_train, known.n_test, refitted=False)
    rows = sample_indices(len(data.y), _MOST_ROWS)
    if not compare or len(rows) < _FEWEST_ROWS:
        return None
    train, test = train_test_split(rows, test_size=0.25, random_state=0)
    X, y = data.X, data.y
    if np.ptp(y[train]) == 0 or np.ptp(y[test]) == 0:
        return None
    with fit_warnings_silenced():
        predicted = {
            "hkrr": _unfitted_copy(data.whole, len(train)).fit(X[train], y[train]).predict(X[test]),
            **baseline_predictions(X[train], y[train], X[test], seed=0),
        }
    r2, low, high = map(list, r2_intervals(y[test], np.column_stack(list(predicted.values())), seed=0))
    return Comparison(list(predicted), r2, low, high, LEVEL, len(train), len(test), refitted=True)


def _unfitted_copy(model: OneMapRegressor | HyperKernelEnsemble, n_rows: int) -> OneMapRegressor | HyperKernelEnsemble:
    """Return an unfitted estimator with the settings of the model, except for the settings in _REPLACED_SETTINGS.

    The number of centers is limited to `n_rows`.
    """
    copy = clone(model)
    settings = copy.get_params(deep=False)
    changed = {
        name: value
        for name, value in _REPLACED_SETTINGS.items()
        if name in settings and not (name in ("init", "centers") and isinstance(settings[name], str))
    }
    if isinstance(settings.get("n_centers"), int):
        changed["n_centers"] = min(settings["n_centers"], n_rows)
    unfitted: OneMapRegressor | HyperKernelEnsemble = copy.set_params(**changed)
    return unfitted
