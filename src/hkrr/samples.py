"""Samples and their weights, made ready: checked, and where all rows become centers, each sample once."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import _check_sample_weight, _num_samples

from hkrr._arrays import Array


def check_lengths(X: Any, y: Any, sample_weight: Any) -> None:
    """Raise where X, y and sample_weight differ in length, naming both."""
    for name, value in (("y", y), ("sample_weight", sample_weight)):
        if value is None or not hasattr(value, "__len__") or not hasattr(X, "__len__") or np.ndim(value) == 0:
            continue  # left to scikit-learn's own checks
        if _num_samples(X) != _num_samples(value):
            n, m = _num_samples(value), _num_samples(X)
            raise ValueError(f"{name} has {n} entries and X has {m} rows: give one entry for each row")


def check_weights(sample_weight: Any, X: Array) -> Array | None:
    """Return the weights in float64, or None where there are none.

    Whole numbers count as repeated rows. Others count by their ratios: they are given a mean of one, as their sum would
    be taken for a number of rows where the noise is learned.
    """
    if sample_weight is None:
        return None
    weight = _check_sample_weight(sample_weight, X, dtype=np.float64)
    if np.any(weight < 0):
        raise ValueError("sample_weight must not be negative")
    if np.count_nonzero(weight) < 2:
        raise ValueError("sample_weight must be positive for at least 2 rows: one row is nothing to learn from")
    if np.all(weight == np.round(weight)):
        return weight
    return weight * (np.count_nonzero(weight) / np.sum(weight))


def merge_identical(X: Array, y: Array, weight: Array | None) -> tuple[Array, Array, Array | None]:
    """Return each sample of positive weight once, in a fixed order, with the sum of its weights: the same objective.

    Where all rows are centers a repeated one would only make the system larger, and a repeated sample should give, to
    the last digit, what its weight gives.
    """
    if weight is not None and np.any(weight == 0):
        kept = weight > 0
        X, y, weight = X[kept], y[kept], weight[kept]
    samples, index, inverse = np.unique(np.column_stack([X, y]), axis=0, return_index=True, return_inverse=True)
    counts = np.bincount(inverse, weights=weight, minlength=len(samples)).astype(np.float64)
    return X[index], y[index], None if np.all(counts == 1.0) else counts
