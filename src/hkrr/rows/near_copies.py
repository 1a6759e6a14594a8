"""Rows that are copies of other rows up to small differences."""

from __future__ import annotations

import numpy as np

from hkrr._base.linear_algebra import Array

# Largest difference between a row and its copy, in units of the scale of each column.
TOLERANCE = 1e-5
# Before the projection, the entries are expressed in units of the tolerance and clipped at this absolute value. This
# limits the rounding errors of the projections.
_LARGEST = 1e9
# Two rows are compared only if their projections differ by at most a window width. The width is multiplied by this
# factor, as a margin for rounding errors.
_MARGIN = 1.01
# Maximum number of comparisons per row, on average over the rows.
_COMPARISONS = 100
# Number of columns that are compared first. The other columns are compared only for rows that agree in these columns.
_FIRST_COLUMNS = 8


def find_near_copies(table: Array) -> Array:
    """Return, for each row of a table, the index of the row that it is a copy of, or its own index if it is not a copy.

    A row is a copy of another row if they differ by at most 1e-5 times the scale of the column, in every column. The
    scale is the smaller of two numbers: the standard deviation, and the distance between the first and the last decile.
    With the standard deviation alone, a few outliers could turn all other rows into copies. If both deciles are equal,
    the scale is 0, and the values of the column must be equal.

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
    ranks = [n // 10, n // 2, n - 1 - n // 10]
    low, median, high = np.partition(table, ranks, axis=0)[ranks]
    deviation = np.std(table, axis=0)
    tolerance = TOLERANCE * np.minimum(deviation, high - low)
    unit = np.where(tolerance > 0, tolerance, TOLERANCE * deviation)
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
