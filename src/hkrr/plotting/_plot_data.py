"""Functions that prepare the data of plots: one target, a sample of the rows, and prediction intervals."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from sklearn.utils import resample

from hkrr._base.checks import check_int
from hkrr._base.linear_algebra import Array

# Type of the parameter `coverage` of the plots: see `intervals`.
Coverage = float | None | Literal["auto"]
# Maximum number of rows in a plot.
_MOST_POINTS = 1_000


def one_target(values: Any, target: int, name: str = "y") -> Array:
    """Return column `target` of the values, as float64. Error messages refer to the values by `name`."""
    values = np.asarray(values, dtype=np.float64)
    if values.ndim == 1:
        values = values[:, None]
    if check_int("target", target, 0) >= values.shape[1]:
        raise ValueError(
            f"target must be an integer from 0 to {values.shape[1] - 1}, as {name} has {values.shape[1]} target(s); "
            f"got {target}"
        )
    column: Array = values[:, target]
    return column


def sample_rows(*arrays: Any) -> tuple[Any, ...]:
    """Return the arrays, or the same random sample of 1,000 rows of each array if they have more than 1,000 rows.

    The sample is drawn with a fixed seed. If None is passed instead of an array, None is returned in its place.
    """
    if len(np.shape(arrays[0])) == 0 or np.shape(arrays[0])[0] <= _MOST_POINTS:
        return arrays
    drawn = resample(np.arange(np.shape(arrays[0])[0]), replace=False, n_samples=_MOST_POINTS, random_state=0)
    order = np.sort(drawn)
    return tuple(None if array is None else np.asarray(array)[order] for array in arrays)


def rows_shown(n_shown: int, n_rows: int) -> str:
    """Return a string with the number of rows that a plot shows, such as "1,000 of 5,000 rows"."""
    return f"{n_rows:,} rows" if n_shown == n_rows else f"{n_shown:,} of {n_rows:,} rows"


def intervals(estimator: Any, X: Any, coverage: Coverage, target: int) -> Array | None:
    """Return the bounds (n, 2) of the prediction intervals, or None if no intervals are drawn.

    No intervals are drawn if `coverage` is None, or if the estimator has no method ``predict_interval``. If the model
    has no intervals, or was fitted to too few rows for the coverage, ``predict_interval`` raises a ValueError. With
    ``coverage="auto"``, None is then returned. If `coverage` is a number, the ValueError is passed on.
    """
    if coverage is None or not hasattr(estimator, "predict_interval"):
        return None
    try:
        lower, upper = estimator.predict_interval(X, coverage=nominal(coverage))
    except ValueError:
        if coverage != "auto":
            raise
        return None
    return np.stack(
        [np.asarray(end, dtype=np.float64).reshape(len(end), -1)[:, target] for end in (lower, upper)], axis=1
    )


def nominal(coverage: Coverage) -> float | None:
    """Return the nominal coverage, which is 0.9 for "auto"."""
    return 0.9 if coverage == "auto" else coverage
