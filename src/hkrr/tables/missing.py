"""Rows of which something is missing are known less well: by how much, and what they should weigh.

What a missing value would have told is noise to the rest of its row. A regression that takes all rows for equally sure
chases that noise, and is led astray by few rows. So the variance of a row is taken to be

    ``v_i = base + sum over the columns j that are missing in row i of a_j``,

with base and a_j by nonnegative least squares on the squared leave-one-out errors of a linear ridge regression, a few
times, each time with weights 1 / v_i^2. Rows then weigh ``base / v_i``, and predictions of such rows are as unsure as
that: their variance is greater by the sum of the a_j.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import nnls
from sklearn.linear_model import RidgeCV
from sklearn.preprocessing import MaxAbsScaler, StandardScaler

from hkrr._arrays import Array
from hkrr.columns import Encoder

_FEWEST = 5  # rows in which a column is missing, for its variance to be known
_LEAST = 1.0  # of the base: what adds less than that changes nothing worth a weight
_ROWS, _ROUNDS = 20_000, 5
_LEAST_WEIGHT = 1e-3


def missing_in(encoder: Encoder, frame: Any) -> Array:
    """Return where values are missing, (n_rows, n_columns of the encoder); of columns that are left out nowhere."""
    positions = {str(name): k for k, name in enumerate(frame.columns)}
    found = np.zeros((len(frame), len(encoder.columns)), dtype=bool)
    for j, column in enumerate(encoder.columns):
        if column.kind != "left out":
            found[:, j] = column.missing(frame.iloc[:, positions[column.name]])
    return found


def variances_of_missing(missing: Array, X: Array, y: Array) -> tuple[float, Array]:
    """Return the base, and a_j for each column: 0 where little or nothing can be said."""
    known = np.zeros(missing.shape[1])
    some = np.flatnonzero(np.sum(missing, axis=0) >= _FEWEST)
    if len(some) == 0 or y.ndim != 1 or y.dtype.kind not in "fiub" or not np.all(np.isfinite(y)) or np.all(y == y[0]):
        return 1.0, known  # what is wrong with y is said by the fit
    rows = np.random.RandomState(0).permutation(len(y))[:_ROWS]
    size = float(np.max(np.abs(y.astype(np.float64))))  # the squares of very large numbers are none
    errors = _squared_errors(X[rows], y[rows] / size)
    design = np.hstack([np.ones((len(rows), 1)), missing[np.ix_(rows, some)]])
    v = np.ones(len(rows))
    for _ in range(_ROUNDS):
        found = nnls(design / v[:, None], errors / v)[0]
        v = np.maximum(design @ found, 1e-3 * np.mean(errors))
    with np.errstate(over="ignore"):
        found = found * size * size
    base = float(found[0])
    if base > 0 and np.all(np.isfinite(found)):
        known[some] = np.where(found[1:] > _LEAST * base, found[1:], 0.0)
    return base, known


def _squared_errors(X: Array, y: Array) -> Array:
    """Return the squared leave-one-out errors of ridge regression on standardised columns."""
    ridge = RidgeCV(np.logspace(-3, 4, 8), store_cv_results=True)
    ridge.fit(StandardScaler().fit_transform(MaxAbsScaler().fit_transform(X)), y)
    errors: Array = ridge.cv_results_[:, list(ridge.alphas).index(ridge.alpha_)]
    return errors


def weights_of(missing: Array, base: float, known: Array) -> Array | None:
    """Return what rows weigh, at most 1; None where all weigh as much."""
    if not np.any(known):
        return None
    return np.maximum(base / (base + missing @ known), _LEAST_WEIGHT)
