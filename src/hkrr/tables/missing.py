"""Weights for rows with missing values: these rows are noisier, and the fit gives them less weight.

If a value is missing in a row, the part of the target that depends on this value acts as noise. A regression that
weights all rows equally fits this noise, and a few such rows can spoil the fit. The noise variance of row i is modelled
as

    ``v_i = base + sum of a_j over the columns j that are missing in row i``

where ``base`` is the noise variance of a complete row, and ``a_j >= 0`` the variance that is added if column j is
missing. ``base`` and all ``a_j`` are fitted by nonnegative least squares to the squared leave-one-out residuals of a
linear ridge regression. The fit is repeated a few times, with the weights 1 / v_i^2 from the previous solution
(iteratively reweighted least squares).

In the fit of the model, row i has the weight ``base / v_i``. In a prediction for row i, the sum of a_j over its missing
columns is added to the predictive variance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import nnls
from sklearn.linear_model import RidgeCV
from sklearn.preprocessing import MaxAbsScaler, StandardScaler

from hkrr._base.linear_algebra import Array
from hkrr.tables.encoding import Encoder

if TYPE_CHECKING:
    import pandas as pd

# Minimum number of rows in which a column must be missing for its a_j to be estimated.
_MIN_ROWS_MISSING = 5
# Minimum of a_j / base. A smaller a_j changes the weights too little to matter and is set to 0.
_MIN_RELATIVE_VARIANCE = 1.0
# Maximum number of rows used to estimate the variances, and number of iterations of reweighted least squares.
_MAX_ROWS, _N_ROUNDS = 20_000, 5
# Minimum weight of a row in the fit.
_MIN_WEIGHT = 1e-3


def missing_matrix(encoder: Encoder, frame: pd.DataFrame) -> Array:
    """Return a boolean matrix that is True where a value is missing, with one column for each column of the encoder.

    In columns that the encoder leaves out, all entries are False.
    """
    positions = {str(name): k for k, name in enumerate(frame.columns)}
    is_missing = np.zeros((len(frame), len(encoder.columns)), dtype=bool)
    for j, column in enumerate(encoder.columns):
        if column.is_used:
            is_missing[:, j] = column.missing(frame.iloc[:, positions[column.name]])
    return is_missing


def missing_variances(is_missing: Array, X: Array, y: Array) -> tuple[float, Array]:
    """Return the noise variance ``base`` of a complete row, and the variance a_j that is added if column j is missing.

    Columns with fewer than 5 missing values, or with a negligible effect, have a_j = 0. If every column has fewer than
    5 missing values, nothing is estimated: all a_j are 0 and ``base`` is 1. The same holds if the targets cannot be
    used for the estimate, because they are strings, are constant, are not all finite, or are not one-dimensional.
    """
    added = np.zeros(is_missing.shape[1])
    columns = np.flatnonzero(np.sum(is_missing, axis=0) >= _MIN_ROWS_MISSING)
    is_usable = y.ndim == 1 and y.dtype.kind in "fiub" and bool(np.all(np.isfinite(y))) and not np.all(y == y[0])
    if len(columns) == 0 or not is_usable:
        return 1.0, added
    rows = np.random.RandomState(0).permutation(len(y))[:_MAX_ROWS]
    scale = float(np.max(np.abs(y.astype(np.float64))))  # the squares of very large targets would overflow
    residuals = _squared_loo_residuals(X[rows], y[rows] / scale)
    design = np.hstack([np.ones((len(rows), 1)), is_missing[np.ix_(rows, columns)]])
    v = np.ones(len(rows))
    for _ in range(_N_ROUNDS):
        coefficients = nnls(design / v[:, None], residuals / v)[0]
        v = np.maximum(design @ coefficients, 1e-3 * np.mean(residuals))
    with np.errstate(over="ignore"):
        coefficients = coefficients * scale * scale
    base, of_columns = float(coefficients[0]), coefficients[1:]
    if base > 0 and np.all(np.isfinite(coefficients)):
        added[columns] = np.where(of_columns > _MIN_RELATIVE_VARIANCE * base, of_columns, 0.0)
    return base, added


def _squared_loo_residuals(X: Array, y: Array) -> Array:
    """Return the squared leave-one-out residuals of ridge regression on standardized columns."""
    ridge = RidgeCV(np.logspace(-3, 4, 8), store_cv_results=True)
    ridge.fit(StandardScaler().fit_transform(MaxAbsScaler().fit_transform(X)), y)
    residuals: Array = ridge.cv_results_[:, list(ridge.alphas).index(ridge.alpha_)]
    return residuals


def row_weights(is_missing: Array, base: float, added: Array) -> Array | None:
    """Return the weight ``base / v_i`` of each row, between 0.001 and 1, or None if all a_j are 0."""
    if not np.any(added):
        return None
    return np.maximum(base / (base + is_missing @ added), _MIN_WEIGHT)
