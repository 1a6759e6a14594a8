"""Contents of the sections on accuracy and on the largest errors: errors and intervals on the rows of the report."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.spatial import cKDTree
from sklearn.metrics import r2_score

from hkrr._base.linear_algebra import Array
from hkrr.estimators.fitted.fitted_attributes import transformed_columns
from hkrr.reporting.directions import Directions
from hkrr.reporting.report_input import RegressionInput, ReportInput, sample_indices

# Maximum number of rows in the chart of predicted against actual values.
_DOTS = 500
# Number of bins of the histogram of the errors.
_BINS = 31
# Maximum numbers of rows and of data columns in the table of the largest errors.
_MOST_ROWS, _MOST_CELLS = 20, 8
# Maximum number of rows, and of centers, that are compared to estimate whether the model was fitted to the rows.
_MOST_COMPARED = 2000
# Predictions are considered constant if the ratio of their standard deviation to that of the target is at most this
# number.
_CONSTANT = 0.01
# Two rows are considered identical if their root mean square difference is below this number of standard deviations.
_SAME = 1e-7
# The rows of the report are considered held out if the model was fitted to less than this fraction of the rows. The
# fraction is not zero, because a table may contain duplicate rows.
_LEAST_SEEN = 0.2


@dataclass(frozen=True)
class Interval:
    """Coverage and median width of the prediction intervals on the rows of the report."""

    coverage: float  # nominal
    covered: float  # fraction of the rows whose target is in the interval
    median_width: float


@dataclass(frozen=True)
class WorstRow:
    """A row with a large error."""

    name: str
    actual: float
    predicted: float
    error: float
    interval: tuple[float, float] | None
    cells: list[Any]  # values of the row in the columns `Errors.columns`


@dataclass(frozen=True)
class Errors:
    """The errors on the rows of the report. An error is the actual value minus the predicted value."""

    r2: float | None  # None if the target is constant on these rows
    rmse: float
    median_absolute: float
    mean: float
    target_std: float
    constant_prediction: bool  # whether nearly the same value is predicted for all rows
    # Estimated fraction of the report's rows that the model was fitted to. None if the user passed `held_out`.
    seen: float | None
    held_out: bool  # whether the rows are considered held out
    actual: list[float]
    predicted: list[float]
    bin_edges: list[float]
    bin_counts: list[int]
    interval: Interval | None
    no_interval_reason: str  # why the model has no intervals; empty if it has intervals
    columns: list[str]  # table columns that are shown for the rows with the largest errors
    n_columns_left_out: int  # number of table columns that are not in `columns`
    worst: list[WorstRow]


def describe_errors(data: RegressionInput, found: Directions, held_out: bool | None, coverage: float) -> Errors:
    """Return the errors and the prediction intervals on the rows of the report."""
    y, predicted = data.y, data.predicted
    errors = y - predicted
    bounds, no_interval_reason = _bounds(data, coverage)
    seen, held_out = were_held_out(data, held_out)
    dots = sample_indices(len(y), _DOTS)
    counts, edges = np.histogram(errors, bins=_BINS)
    columns = shown_columns(data, found)
    order = np.argsort(-np.abs(errors), kind="stable")[:_MOST_ROWS]
    return Errors(
        r2=None if np.ptp(y) == 0 else float(r2_score(y, predicted)),
        rmse=float(np.sqrt(np.mean(errors**2))),
        median_absolute=float(np.median(np.abs(errors))),
        mean=float(np.mean(errors)),
        target_std=float(np.std(y)),
        constant_prediction=bool(np.std(predicted) <= _CONSTANT * np.std(y)),
        seen=seen,
        held_out=held_out,
        actual=y[dots].tolist(),
        predicted=predicted[dots].tolist(),
        bin_edges=edges.tolist(),
        bin_counts=counts.tolist(),
        interval=None if bounds is None else _interval(y, bounds, coverage),
        no_interval_reason=no_interval_reason,
        columns=columns,
        n_columns_left_out=len(data.table_columns) - len(columns),
        worst=[
            WorstRow(
                name=str(data.row_names[i]),
                actual=float(y[i]),
                predicted=float(predicted[i]),
                error=float(errors[i]),
                interval=None if bounds is None else (float(bounds[i, 0]), float(bounds[i, 1])),
                cells=[plain_value(data.cell(int(i), name)) for name in columns],
            )
            for i in order
        ],
    )


def were_held_out(data: ReportInput, held_out: bool | None) -> tuple[float | None, bool]:
    """Return the estimated fraction of the rows that the model was fitted to, and whether the rows count as held out.

    If the user says whether the rows were held out, nothing is estimated, and the fraction is None.
    """
    if held_out is not None:
        return None, held_out
    seen = share_seen(data)
    return seen, seen < _LEAST_SEEN


def share_seen(data: ReportInput) -> float:
    """Return the fraction of the report's rows that the model was fitted to, estimated from its centers.

    The centers are usually training rows, but there may be many more training rows than centers. The result is the
    larger of two estimates. The first is the fraction of the report's rows that are centers. The second is the fraction
    of the centers that are rows of the report. If there are fewer centers than rows, the second estimate is multiplied
    by the ratio of the number of centers to the number of rows.
    """
    centers = data.model.centers_
    scale = np.where(np.ptp(centers, axis=0) > 0, centers.std(axis=0), np.inf)
    rows = transformed_columns(data.model, data.X) / scale
    among_rows = _share_found(centers[sample_indices(len(centers), _MOST_COMPARED)] / scale, rows)
    among_centers = _share_found(rows[sample_indices(len(rows), _MOST_COMPARED)], centers / scale)
    return max(among_rows * min(1.0, len(centers) / len(rows)), among_centers)


def _share_found(points: Array, others: Array) -> float:
    # Without a distance bound, the whole tree is searched. This is slow in many dimensions.
    distance, _ = cKDTree(others).query(points, distance_upper_bound=_SAME * math.sqrt(points.shape[1]))
    return float(np.mean(np.isfinite(distance)))


def _bounds(data: RegressionInput, coverage: float) -> tuple[Array | None, str]:
    """Return the bounds (n, 2) of the intervals and "", or None and the reason why the model has no intervals."""
    if data.interval is None:
        return None, "its class does not provide them"
    try:
        bounds = data.interval(coverage)
    except ValueError as error:  # the error message says why the model has no intervals
        return None, " ".join(str(error).split()).rstrip(".")
    if not np.all(np.isfinite(bounds)):
        return None, f"it was fitted to too few rows for intervals with coverage {coverage:g}"
    return bounds, ""


def _interval(y: Array, bounds: Array, coverage: float) -> Interval:
    inside = (bounds[:, 0] <= y) & (y <= bounds[:, 1])
    return Interval(coverage, float(np.mean(inside)), float(np.median(bounds[:, 1] - bounds[:, 0])))


def shown_columns(data: ReportInput, found: Directions) -> list[str]:
    """Return the table columns to show, in the order of the table: all columns, or the eight most important ones."""
    if len(data.table_columns) <= _MOST_CELLS:
        return data.table_columns
    chosen = [each.column for each in found.table_importances if each.column in data.table_columns][:_MOST_CELLS]
    return [name for name in data.table_columns if name in chosen]


def plain_value(value: Any) -> Any:
    """Return the value of a cell as a finite number or a string."""
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    if isinstance(value, int | float | np.number):
        return float(value) if math.isfinite(value) else ""
    return str(value).removesuffix(" 00:00:00")  # dates without a time of day have this suffix
