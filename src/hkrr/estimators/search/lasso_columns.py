"""Selection of columns by the lasso, for targets that depend on a few of many columns."""

from __future__ import annotations

import math
import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Lasso, LassoCV

from hkrr._base.linear_algebra import Array
from hkrr.rows import InMemoryRows
from hkrr.rows.weights import without_zero_weights

# Maximum number of rows that the race of kernels passes to `selected_columns`, and number of folds of the
# cross-validation.
LASSO_ROWS, _FOLDS = 2_000, 5


def selected_columns(rows: InMemoryRows) -> list[Array]:
    """Return at most two sets of columns that the lasso selects.

    Each set is a vector with one entry for each column of X: 1 if the column is selected, and 0 otherwise. The first
    set is selected with the penalty that has the smallest cross-validation error, and the second set with the largest
    penalty whose error is within one standard error of the smallest. If the two sets are equal, one of them is left
    out. With several targets, a column is selected if it is selected for at least one of the targets. A set is also
    left out if it is empty, or if it is larger than half of the number of linearly independent columns. The list is
    empty if there are fewer than 10 rows of positive weight, or fewer than 3 columns.
    """
    X, Y, w = without_zero_weights(*rows.gather())
    if len(X) < 2 * _FOLDS or X.shape[1] < 3:
        return []
    found = [np.zeros(X.shape[1]), np.zeros(X.shape[1])]
    for y in Y.T:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a coarse solution is enough to select columns
            lasso = LassoCV(cv=_FOLDS, fit_intercept=False).fit(X, y, sample_weight=w)
            errors, folds = lasso.mse_path_.mean(axis=1), math.sqrt(_FOLDS)
            best = int(np.argmin(np.abs(lasso.alphas_ - lasso.alpha_)))
            close = errors <= errors[best] + lasso.mse_path_[best].std(ddof=1) / folds
            simpler = Lasso(alpha=lasso.alphas_[np.argmax(close)], fit_intercept=False).fit(X, y, sample_weight=w)
        for columns, model in zip(found, (lasso, simpler), strict=True):
            columns[model.coef_ != 0.0] = 1.0
    if np.array_equal(found[0], found[1]):
        found.pop()
    return [columns for columns in found if 1 <= np.sum(columns) <= rows.n_free_columns / 2]
