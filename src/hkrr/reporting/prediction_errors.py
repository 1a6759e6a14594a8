"""How sure it is: errors and intervals on the rows of the report, whether the fit has seen them, and the worst."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.spatial import cKDTree
from sklearn.metrics import r2_score

from hkrr._arrays import Array
from hkrr.reporting.directions import Directions, sample
from hkrr.reporting.subject import Subject

_DOTS = 500
_BINS = 31
_MOST_ROWS, _MOST_CELLS = 20, 8
_LOOKED_AT = 2000  # rows, and centers, by which it is told whether the fit has seen the rows
_FLAT = 0.01  # of the spread of the target
_SAME = 1e-7  # standard deviations between two samples that are one
_LEAST_SEEN = 0.2  # tables repeat rows: a few of them are among any others


@dataclass(frozen=True)
class Interval:
    """Intervals that should hold a share of the targets, and how many they do hold."""

    coverage: float
    covered: float
    median_width: float


@dataclass(frozen=True)
class WrongRow:
    """A row of large error."""

    name: str
    actual: float
    predicted: float
    error: float
    interval: tuple[float, float] | None
    cells: list[Any]


@dataclass(frozen=True)
class Errors:
    """The errors on the rows of the report; an error is actual minus predicted."""

    r2: float | None  # None: the target is constant on these rows
    rms: float
    median_size: float
    mean: float
    target_spread: float
    constant: bool  # the prediction is nearly the same for all rows
    seen: float | None  # the share of the rows that were centers of the fit; None where told by the caller
    held_out: bool
    actual: list[float]
    predicted: list[float]
    bin_edges: list[float]
    bin_counts: list[int]
    interval: Interval | None
    no_interval: str  # why there are none
    columns: list[str]  # of the cells of the worst rows
    n_columns_left_out: int
    worst: list[WrongRow]


def describe_errors(subject: Subject, found: Directions, held_out: bool | None, coverage: float) -> Errors:
    """Return how well the rows are predicted."""
    y, predicted = subject.y, subject.predicted
    errors = y - predicted
    bounds, no_interval = _bounds(subject, coverage)
    seen = share_seen(subject) if held_out is None else None
    dots = sample(len(y), _DOTS)
    counts, edges = np.histogram(errors, bins=_BINS)
    columns = _columns(subject, found)
    order = np.argsort(-np.abs(errors), kind="stable")[:_MOST_ROWS]
    return Errors(
        r2=None if np.ptp(y) == 0 else float(r2_score(y, predicted)),
        rms=float(np.sqrt(np.mean(errors**2))),
        median_size=float(np.median(np.abs(errors))),
        mean=float(np.mean(errors)),
        target_spread=float(np.std(y)),
        constant=bool(np.std(predicted) <= _FLAT * np.std(y)),
        seen=seen,
        held_out=seen is not None and seen < _LEAST_SEEN if held_out is None else held_out,
        actual=y[dots].tolist(),
        predicted=predicted[dots].tolist(),
        bin_edges=edges.tolist(),
        bin_counts=counts.tolist(),
        interval=None if bounds is None else _interval(y, bounds, coverage),
        no_interval=no_interval,
        columns=columns,
        n_columns_left_out=len(subject.shown_columns) - len(columns),
        worst=[
            WrongRow(
                name=str(subject.row_names[i]),
                actual=float(y[i]),
                predicted=float(predicted[i]),
                error=float(errors[i]),
                interval=None if bounds is None else (float(bounds[i, 0]), float(bounds[i, 1])),
                cells=[_plain(subject.cell(int(i), name)) for name in columns],
            )
            for i in order
        ],
    )


def share_seen(subject: Subject) -> float:
    """Return the share of the rows that are centers of the model: rows that it was fitted on.

    Centers may be few of the training rows: where these are among the rows given, all such rows count as seen.
    """
    centers = subject.model.centers_
    scale = np.where(np.ptp(centers, axis=0) > 0, centers.std(axis=0), np.inf)
    rows = subject.X / scale
    among_rows = _share_found(centers[sample(len(centers), _LOOKED_AT)] / scale, rows)
    among_centers = _share_found(rows[sample(len(rows), _LOOKED_AT)], centers / scale)
    return max(among_rows * min(1.0, len(centers) / len(rows)), among_centers)


def _share_found(points: Array, others: Array) -> float:
    # The bound keeps a tree in many dimensions from looking at every point.
    distance, _ = cKDTree(others).query(points, distance_upper_bound=_SAME * math.sqrt(points.shape[1]))
    return float(np.mean(np.isfinite(distance)))


def _bounds(subject: Subject, coverage: float) -> tuple[Array | None, str]:
    """Return the ends of the intervals, or why there are none."""
    if subject.interval is None:
        return None, "its class gives none"
    try:
        bounds = subject.interval(coverage)
    except ValueError as error:  # the model cannot say, and tells why
        return None, " ".join(str(error).split()).rstrip(".")
    if not np.all(np.isfinite(bounds)):
        return None, f"it knows too few rows for intervals that hold {coverage:g} of them"
    return bounds, ""


def _interval(y: Array, bounds: Array, coverage: float) -> Interval:
    inside = (bounds[:, 0] <= y) & (y <= bounds[:, 1])
    return Interval(coverage, float(np.mean(inside)), float(np.median(bounds[:, 1] - bounds[:, 0])))


def _columns(subject: Subject, found: Directions) -> list[str]:
    """Return the columns to show of a row: all of few, of many those that matter, in the order of the table."""
    if len(subject.shown_columns) <= _MOST_CELLS:
        return subject.shown_columns
    chosen = [each.column for each in found.named if each.column in subject.shown_columns][:_MOST_CELLS]
    return [name for name in subject.shown_columns if name in chosen]


def _plain(value: Any) -> Any:
    """Return a cell as a finite number or a text."""
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    if isinstance(value, int | float | np.number):
        return float(value) if math.isfinite(value) else ""
    return str(value).removesuffix(" 00:00:00")  # of a date
