"""Samples and their weights, made ready: checked, and where all rows become centers, each sample once."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import _check_sample_weight, _num_samples

from hkrr._arrays import Array
from hkrr.rows import InMemoryRows

_BLOCK = 10_000


def check_numbers(X: Any, y: Any) -> None:
    """Raise where y, or a column of a data frame X, is no number, naming it."""
    if y is not None:
        kind = np.asarray(y).dtype.kind
        some = next((value for value in np.ravel(np.asarray(y))[:1000] if isinstance(value, str)), None)
        if some is not None or kind in "mM":
            got = f"text ({str(some)!r})" if some is not None else "dates or times"
            raise ValueError(f"y must be numbers, got {got}: this is a regressor; turn the target into numbers first")
    dtypes = getattr(X, "dtypes", None)
    if dtypes is None or not hasattr(X, "columns"):
        return  # an array: scikit-learn says what is wrong with it
    for name, dtype in zip(X.columns, dtypes, strict=True):
        # pandas: object, str, category, datetime64; polars: String, Categorical, Datetime.
        if any(word in str(dtype).lower() for word in ("object", "str", "categ", "enum", "date", "time", "duration")):
            if "object" in str(dtype).lower() and not any(isinstance(value, str) for value in X[name][:1000]):
                continue  # numbers in a column of objects
            raise ValueError(
                f"column {name!r} of X is no column of numbers ({dtype}): encode it, for example with scikit-learn's "
                "OneHotEncoder, or drop it"
            )


def check_lengths(X: Any, y: Any, sample_weight: Any) -> None:
    """Raise where X, y and sample_weight differ in length, naming both."""
    for name, value in (("y", y), ("sample_weight", sample_weight)):
        if value is None or not hasattr(value, "__len__") or not hasattr(X, "__len__") or np.ndim(value) == 0:
            continue  # left to scikit-learn's own checks
        if _num_samples(X) != _num_samples(value):
            n, m = _num_samples(value), _num_samples(X)
            raise ValueError(f"{name} has {n} entries and X has {m} rows: give one entry for each row")


def check_weights(sample_weight: Any, X: Array) -> Array | None:
    """Return the weights in float64, or None where there are none."""
    if sample_weight is None:
        return None
    weight = _check_sample_weight(sample_weight, X, dtype=np.float64)
    if np.any(weight < 0):
        raise ValueError("sample_weight must not be negative")
    if np.count_nonzero(weight) < 2:
        raise ValueError("sample_weight must be positive for at least 2 rows: one row is nothing to learn from")
    return weight


def in_units_of_rows(weight: Array | None) -> Array | None:
    """Return the weights with a mean of one over the rows that count, or None where that makes them all one.

    No objective changes with the unit of the weights, but where the noise is learned their sum is taken for the number
    of rows.
    """
    if weight is None:
        return None
    weight = weight / np.mean(weight[weight > 0])
    return None if np.all(weight == 1.0) else weight


def any_identical(X: Array, y: Array) -> bool:
    """Return whether a sample may be there twice: whether a random sum of its entries is."""
    Y = y[:, None] if y.ndim == 1 else y
    u = np.random.RandomState(0).uniform(1.0, 2.0, X.shape[1] + Y.shape[1])
    sums = np.empty(len(X))
    for start in range(0, len(X), _BLOCK):
        rows = slice(start, start + _BLOCK)
        # Entry by entry, not by a product of BLAS: equal rows must have equal sums, wherever they stand.
        with np.errstate(over="ignore"):
            sums[rows] = np.sum(np.column_stack([X[rows], Y[rows]]) * u, axis=1)
    return len(np.unique(sums)) < len(X)


def merge_identical(X: Array, y: Array, weight: Array | None) -> tuple[Array, Array, Array | None]:
    """Return each sample of positive weight once, in a fixed order, with the sum of its weights: the same objective.

    Where all rows are centers a repeated one would only make the system larger, and a repeated sample should give, to
    the last digit, what its weight gives. Copies (of a bootstrap, of a careless join) say nothing of the noise, so the
    weights then have a mean of one. But rows that repeat because inputs and targets take few values do, and are seen by
    this: the same x comes with other targets too. Where most of the repeated weight is of that kind it is kept.
    """
    if weight is not None and np.any(weight == 0):
        kept = weight > 0
        X, y, weight = X[kept], y[kept], weight[kept]
    whole = weight is None or bool(np.all(weight == np.round(weight)))
    samples, index, inverse = np.unique(np.column_stack([X, y]), axis=0, return_index=True, return_inverse=True)
    counts = np.bincount(inverse, weights=weight, minlength=len(samples)).astype(np.float64)
    X, y = X[index], y[index]
    if np.all(counts == 1.0):
        return X, y, None
    repeated = np.maximum(counts - 1.0, 0.0)
    if whole and np.sum(repeated[_seen_with_other_targets(X)]) > 0.5 * np.sum(repeated):
        return X, y, counts
    return X, y, in_units_of_rows(counts)


def each_once(rows: InMemoryRows) -> InMemoryRows:
    """Return each sample of some rows once: copies say nothing of the noise."""
    X, Y, weight = rows.gather()
    if not any_identical(X, Y):
        return rows
    return InMemoryRows(*merge_identical(X, Y, weight))


def _seen_with_other_targets(X: Array) -> Array:
    """Return which of these distinct samples have the inputs of another one."""
    _, inverse, counts = np.unique(X, axis=0, return_inverse=True, return_counts=True)
    return counts[inverse] > 1
