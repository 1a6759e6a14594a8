"""Checks of in-memory data and sample weights, normalization of the weights, and merging of copies of rows.

A row consists of its inputs and its targets.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import _check_sample_weight, _num_samples

from hkrr._base.linear_algebra import Array
from hkrr.rows import InMemoryRows

# Number of rows that `any_identical` processes at once.
_BLOCK = 10_000
# Maximum number of rows among which near copies are searched for and merged. With more rows, only identical rows are
# merged, if there are any.
MERGED_ROWS = 20_000
# Largest difference between a row and its copy, in units of the scale of each column.
_TOLERANCE = 1e-5
# `find_near_copies` sorts the rows by a random projection. Before this projection, the entries are expressed in units
# of the tolerance and clipped at this absolute value. This limits the rounding errors of the projections.
_LARGEST = 1e9
# `find_near_copies` compares two rows only if their projections differ by at most the width of a window. The width is
# multiplied by this factor, as a margin for rounding errors.
_MARGIN = 1.01
# The search for near copies stops after this many comparisons per row, on average over the rows.
_COMPARISONS = 100
# Number of columns that are compared first. The other columns of two rows are compared only if the rows agree in these
# columns.
_FIRST_COLUMNS = 8


def check_numbers(X: Any, y: Any) -> None:
    """Raise a ValueError if y, or a column of a data frame X, is not numeric. The error names the column."""
    if y is not None:
        kind = np.asarray(y).dtype.kind
        some = next((value for value in np.ravel(np.asarray(y))[:1000] if isinstance(value, str)), None)
        if some is not None or kind in "mM":
            got = f"text ({str(some)!r})" if some is not None else "dates or times"
            raise ValueError(f"y must be numeric for a regressor, got {got}; convert the target to numbers first")
    dtypes = getattr(X, "dtypes", None)
    if dtypes is None or not hasattr(X, "columns"):
        return  # scikit-learn checks arrays
    for name, dtype in zip(X.columns, dtypes, strict=True):
        # pandas: object, str, category, datetime64; polars: String, Categorical, Datetime.
        if any(word in str(dtype).lower() for word in ("object", "str", "categ", "enum", "date", "time", "duration")):
            if "object" in str(dtype).lower() and not any(isinstance(value, str) for value in X[name][:1000]):
                continue  # an object column may hold numbers
            raise ValueError(
                f"column {name!r} of X is not numeric ({dtype}): encode it, for example with scikit-learn's "
                "OneHotEncoder, or drop it"
            )


def check_lengths(X: Any, y: Any, sample_weight: Any) -> None:
    """Raise a ValueError if the length of y or sample_weight differs from the number of rows of X."""
    for name, value in (("y", y), ("sample_weight", sample_weight)):
        if value is None or not hasattr(value, "__len__") or not hasattr(X, "__len__") or np.ndim(value) == 0:
            continue  # scikit-learn checks such values
        if _num_samples(X) != _num_samples(value):
            n, m = _num_samples(value), _num_samples(X)
            raise ValueError(f"{name} has {n} entries, but X has {m} rows; pass one entry per row")


def check_weights(sample_weight: Any, X: Array) -> Array | None:
    """Return the checked weights in float64, or None if no weights were passed."""
    if sample_weight is None:
        return None
    weight = _check_sample_weight(sample_weight, X, dtype=np.float64)
    if np.any(weight < 0):
        raise ValueError("sample_weight must not be negative")
    if np.count_nonzero(weight) < 2:
        raise ValueError("sample_weight must be positive for at least 2 rows")
    return weight


def normalize_weights(weight: Array | None) -> Array | None:
    """Return the weights divided by the mean of the positive weights, or None if all resulting weights are one.

    A common factor of the weights does not change the training objective. It does change a criterion that learns the
    noise variance, because such a criterion uses the sum of the weights as the number of rows.
    """
    if weight is None:
        return None
    weight = weight / np.mean(weight[weight > 0])
    return None if np.all(weight == 1.0) else weight


def any_identical(X: Array, y: Array) -> bool:
    """Return whether some rows may be identical. If the result is False, all rows are different.

    This fast test compares a random linear combination of the entries of each row.
    """
    Y = y[:, None] if y.ndim == 1 else y
    u = np.random.RandomState(0).uniform(1.0, 2.0, X.shape[1] + Y.shape[1])
    sums = np.empty(len(X))
    for start in range(0, len(X), _BLOCK):
        rows = slice(start, start + _BLOCK)
        # Equal rows must have equal sums. BLAS is not used, because its rounding depends on the position of a row.
        with np.errstate(over="ignore"):
            sums[rows] = np.sum(np.column_stack([X[rows], Y[rows]]) * u, axis=1)
    return len(np.unique(sums)) < len(X)


def find_copies(X: Array, y: Array, weight: Array | None = None) -> Array | None:
    """Return, for each row, the index of the row that it is a copy of, or its own index if it is not a copy.

    A copy has the same inputs and targets, up to the differences that `find_near_copies` allows. Among more than 20,000
    rows, only identical rows are copies.

    Return None if there are no copies, or if the repetitions are frequencies, as defined in `merge_identical`. The
    test for frequencies treats inputs that are near copies of each other as equal.
    """
    source = _find_sources(np.column_stack([X, y]))
    kept = np.flatnonzero(source == np.arange(len(X)))
    if len(kept) == len(X):
        return None
    counts = np.bincount(source, weights=weight)[kept].astype(np.float64)
    return None if _is_whole(weight) and _are_frequencies(X[kept], counts, MERGED_ROWS) else source


def any_copies(X: Array, y: Array, weight: Array | None) -> bool:
    """Return whether `merge_copies` may merge rows."""
    return any_identical(X, y) or find_copies(X, y, weight) is not None


def merge_identical(X: Array, y: Array, weight: Array | None) -> tuple[Array, Array, Array | None]:
    """Return each distinct row of positive weight once, sorted, and the weights of these rows.

    The weight of a distinct row is the sum of the weights of its copies. The weights are then normalized to a mean of
    one, except for frequencies (see below). If all resulting weights are one, None is returned instead of the weights.
    Merging does not change the training objective. If all rows are centers, a repeated row would only enlarge the
    linear system. After merging, w copies of a row give bitwise the same fit as a single row with the weight w.

    The weights are normalized because copies that come from a bootstrap or a join carry no information about the noise
    variance. Rows can also repeat because inputs and targets take few distinct values. Such repetitions are called
    frequencies. They do carry information about the noise, so the weights are not normalized. Repetitions are treated
    as frequencies if two conditions hold: all weights are integers, and most repetitions belong to inputs that also
    occur with other targets. A distinct row with the total weight w counts as w - 1 repetitions.
    """
    X, y, weight = without_zero_weights(X, y, weight)
    samples, index, inverse = np.unique(np.column_stack([X, y]), axis=0, return_index=True, return_inverse=True)
    counts = np.bincount(inverse, weights=weight, minlength=len(samples)).astype(np.float64)
    X, y = X[index], y[index]
    if np.all(counts == 1.0):
        return X, y, None
    if _is_whole(weight) and _are_frequencies(X, counts):
        return X, y, counts
    return X, y, normalize_weights(counts)


def merge_copies(X: Array, y: Array, weight: Array | None) -> tuple[Array, Array, Array | None]:
    """Return the rows as `merge_identical` does, but merge near copies too.

    Near copies have nearly equal targets. From such targets, a criterion that learns the noise variance would conclude
    that there is no noise. If there are no near copies, or if the repetitions are frequencies, the result is that of
    `merge_identical`.
    """
    X, y, weight = without_zero_weights(X, y, weight)
    source = find_copies(X, y, weight)
    return merge_identical(X, y, weight) if source is None else merge_identical(X[source], y[source], weight)


def merge_copies_of_rows(rows: InMemoryRows) -> InMemoryRows:
    """Return the rows with copies merged by `merge_copies`."""
    return rows.with_arrays(*merge_copies(*rows.arrays)) if any_copies(*rows.arrays) else rows


def find_near_copies(table: Array) -> Array:
    """Return, for each row of a table, the index of the row that it is a copy of, or its own index if it is not a copy.

    A row is a copy of another row if they differ by at most 1e-5 times the scale of the column, in every column. The
    scale is the smaller of two numbers: the standard deviation, and the distance between the first and the last decile.
    With the standard deviation alone, a few outliers could turn all other rows into copies. With three to nine rows,
    the second smallest and the second largest value replace the deciles, which would be the extremes. If both deciles
    are equal, the scale is 0, and the values of the column must be equal.

    A row that has copies is never a copy itself. Two copies of the same row therefore differ by at most twice the
    tolerance. Among the rows that are not copies, no row is a copy of another row.

    The rows are sorted by a random projection. Two rows are compared only if their projections are so close that one
    row can be a copy of the other. The search stops after 100 comparisons per row on average. If thousands of rows have
    close projections but are not copies, some copies may therefore be missed. The time for n rows is O(n log n).
    """
    n = len(table)
    # A power of two makes all entries at most one in absolute value, without rounding.
    table = table.astype(np.float64)
    table = np.ldexp(table, -np.frexp(np.max(np.abs(table), axis=0))[1])
    trimmed = max(n // 10, min(1, (n - 1) // 2))
    ranks = [trimmed, n // 2, n - 1 - trimmed]
    low, median, high = np.partition(table, ranks, axis=0)[ranks]
    deviation = np.std(table, axis=0)
    tolerance = _TOLERANCE * np.minimum(deviation, high - low)
    unit = np.where(tolerance > 0, tolerance, _TOLERANCE * deviation)
    u = np.random.RandomState(0).uniform(-1.0, 1.0, table.shape[1])
    projected = np.zeros(n)
    # Equal rows must have equal sums. BLAS is not used, because its rounding depends on the position of a row.
    for j in np.flatnonzero(unit > 0):
        with np.errstate(over="ignore"):
            projected += u[j] * np.clip((table[:, j] - median[j]) / unit[j], -_LARGEST, _LARGEST)
    order = np.argsort(projected, kind="stable")
    projected = projected[order]
    window = _MARGIN * np.sum(np.abs(u[tolerance > 0]))
    ends = np.searchsorted(projected, projected + window, side="right")
    source, left = np.arange(n), _COMPARISONS * n
    for start in np.flatnonzero(ends > np.arange(1, n + 1)):
        row, others = order[start], order[start + 1 : ends[start]]
        if source[row] != row:
            continue
        left -= len(others)
        if left < 0:
            break
        others = others[source[others] == others]
        for columns in (slice(_FIRST_COLUMNS), slice(_FIRST_COLUMNS, None)):
            close = np.abs(table[others, columns] - table[row, columns]) <= tolerance[columns]
            others = others[np.all(close, axis=1)]
        source[others] = row
    return source


def without_zero_weights(X: Array, y: Array, weight: Array | None) -> tuple[Array, Array, Array | None]:
    """Return the rows of positive weight, and their weights."""
    if weight is None or np.all(weight > 0):
        return X, y, weight
    kept = weight > 0
    return X[kept], y[kept], weight[kept]


def _is_whole(weight: Array | None) -> bool:
    """Return whether all weights are integers."""
    return weight is None or bool(np.all(weight == np.round(weight)))


def _find_sources(table: Array, n_near: int = MERGED_ROWS) -> Array:
    """Return, for each row, the index of the row that it is a copy of, or its own index if it is not a copy.

    If the table has more than `n_near` rows, only identical rows are copies. Otherwise near copies are included.
    """
    if len(table) <= n_near:
        return find_near_copies(table)
    _, index, inverse = np.unique(table, axis=0, return_index=True, return_inverse=True)
    return index[inverse]


def _are_frequencies(X: Array, counts: Array, n_near: int = 0) -> bool:
    """Return whether rows repeat because their inputs and targets take few distinct values, not because of copying.

    This is assumed if most repetitions belong to inputs that also occur with other targets. X contains the inputs of
    the distinct rows. `counts` contains the number of times that each row occurs. If X has at most `n_near` rows,
    inputs that are near copies of each other are treated as equal.
    """
    source = _find_sources(X, n_near)
    seen_with_other_targets = np.bincount(source)[source] > 1
    repeated = np.maximum(counts - 1.0, 0.0)
    return bool(np.sum(repeated[seen_with_other_targets]) > 0.5 * np.sum(repeated))
