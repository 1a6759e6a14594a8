"""Contents of the sections on the accuracy of a classifier, computed from its probabilities on the rows of the report.

The predicted class of a row is the most probable class. The log loss of a row is minus the logarithm of the probability
of its class. A class that is not among the classes of the model has probability 0. As in `hkrr.tables.compare`,
probabilities below 1e-9 count as 1e-9.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import entr
from sklearn.metrics import auc, confusion_matrix, roc_curve

from hkrr._base.linear_algebra import Array
from hkrr.estimators.classification.class_link import LEAST_PROBABILITY
from hkrr.reporting.class_input import ClassInput
from hkrr.reporting.directions import Directions
from hkrr.reporting.prediction_errors import plain_value, shown_columns, were_held_out

# Maximum number of points of a ROC curve.
_ROC_POINTS = 200
# Number of bins of the calibration curve. All bins have the same width.
_BINS = 10
# Maximum number of rows in the table of the rows with the largest log loss, and of classes that are listed for a row.
_MOST_ROWS, _MOST_PROBABLE = 20, 3
# The quantile of the normal distribution that gives intervals with 95% confidence.
_Z = 1.96


@dataclass(frozen=True)
class RocCurve:
    """The ROC curve of a class against all other classes, and the area under it."""

    of: int  # index of the class
    area: float
    false_positive: list[float]
    true_positive: list[float]


@dataclass(frozen=True)
class CalibrationBin:
    """The rows whose predicted class has a probability in a certain range."""

    n_rows: int
    predicted: float  # mean probability of the predicted class
    observed: float  # fraction of the rows that are predicted correctly
    low: float  # ends of the 95% confidence interval of `observed`
    high: float


@dataclass(frozen=True)
class Calibration:
    """The bins that contain rows, and the expected calibration error.

    This error is the mean of the absolute difference of `predicted` and `observed`, weighted by the numbers of rows.
    """

    bins: list[CalibrationBin]
    error: float


@dataclass(frozen=True)
class WorstClassRow:
    """A row with a large log loss."""

    name: str
    actual: int  # index of the class
    predicted: int
    log_loss: float
    probability: float  # of the actual class
    most_probable: list[tuple[int, float]]  # the most probable classes with their probabilities, in decreasing order
    cells: list[Any]  # values of the row in the columns `ClassErrors.columns`


@dataclass(frozen=True)
class ClassErrors:
    """Scores of a classifier on the rows of the report. The classes are indices of `Classes.labels`."""

    accuracy: float
    log_loss: float
    # Accuracy and log loss if the frequencies of the classes among these rows are predicted for every row.
    baseline_accuracy: float
    baseline_log_loss: float
    # Estimated fraction of the report's rows that the model was fitted to. None if the user passed `held_out`.
    seen: float | None
    held_out: bool  # whether the rows are considered held out
    confusion: list[list[int]]  # number of rows by actual class (outer list) and predicted class (inner list)
    roc: list[RocCurve]  # classes with all rows or with no row have no curve
    mean_area: float | None  # mean area of all curves, also of those that are not in `roc`
    calibration: Calibration
    columns: list[str]  # table columns that are shown for the rows with the largest log loss
    n_columns_left_out: int
    worst: list[WorstClassRow]


def describe_class_errors(data: ClassInput, found: Directions, held_out: bool | None) -> ClassErrors:
    """Return the scores of the classifier on the rows of the report."""
    p, index, classes = data.probabilities, data.index, data.classes
    predicted = np.argmax(p, axis=1)
    losses = _log_losses(p, index)
    shares = np.bincount(index) / len(index)
    seen, held_out = were_held_out(data, held_out)
    curves = [curve for k in range(classes.n_known) if (curve := _roc(index == k, p[:, k], k)) is not None]
    return ClassErrors(
        accuracy=float(np.mean(predicted == index)),
        log_loss=float(np.mean(losses)),
        baseline_accuracy=float(np.max(shares)),
        baseline_log_loss=float(np.sum(entr(shares))),
        seen=seen,
        held_out=held_out,
        confusion=confusion_matrix(index, predicted, labels=range(len(classes.labels))).tolist(),
        roc=[curve for curve in curves if curve.of in classes.coloured],
        mean_area=float(np.mean([curve.area for curve in curves])) if curves else None,
        calibration=_calibration(np.max(p, axis=1), predicted == index),
        columns=(columns := shown_columns(data, found)),
        n_columns_left_out=len(data.table_columns) - len(columns),
        worst=[
            WorstClassRow(
                name=str(data.row_names[i]),
                actual=int(index[i]),
                predicted=int(predicted[i]),
                log_loss=float(losses[i]),
                probability=float(p[i, index[i]]) if index[i] < classes.n_known else 0.0,
                most_probable=[(int(k), float(p[i, k])) for k in np.argsort(-p[i], kind="stable")[:_MOST_PROBABLE]],
                cells=[plain_value(data.cell(int(i), name)) for name in columns],
            )
            for i in np.argsort(-losses, kind="stable")[:_MOST_ROWS]
        ],
    )


def _log_losses(p: Array, index: Array) -> Array:
    """Return the log loss of each row. Classes with an index beyond the last column of p have probability 0."""
    n, n_known = p.shape
    own = np.where(index < n_known, p[np.arange(n), np.minimum(index, n_known - 1)], 0.0)
    return -np.log(np.maximum(own, LEAST_PROBABILITY))


def _roc(is_class: Array, probability: Array, k: int) -> RocCurve | None:
    """Return the ROC curve of class k, or None if all rows, or no row, are of this class."""
    if np.all(is_class) or not np.any(is_class):
        return None
    false_positive, true_positive, _ = roc_curve(is_class, probability)
    kept = np.unique(np.linspace(0, len(false_positive) - 1, _ROC_POINTS).astype(int))
    return RocCurve(
        of=k,
        area=float(auc(false_positive, true_positive)),
        false_positive=false_positive[kept].round(4).tolist(),
        true_positive=true_positive[kept].round(4).tolist(),
    )


def _calibration(probability: Array, is_right: Array) -> Calibration:
    """Return the calibration curve. `probability` contains the probabilities of the predicted classes."""
    place = np.minimum((probability * _BINS).astype(int), _BINS - 1)
    bins = []
    for k in np.unique(place):
        inside = place == k
        n, observed = int(np.sum(inside)), float(np.mean(is_right[inside]))
        bins.append(CalibrationBin(n, float(np.mean(probability[inside])), observed, *_wilson(observed, n)))
    error = sum(each.n_rows * abs(each.predicted - each.observed) for each in bins) / len(probability)
    return Calibration(bins, error)


def _wilson(share: float, n: int) -> tuple[float, float]:
    """Return Wilson's 95% confidence interval for a fraction of n rows."""
    middle, scale = share + _Z**2 / (2 * n), 1 + _Z**2 / n
    half = _Z * math.sqrt(share * (1 - share) / n + _Z**2 / (4 * n**2))
    return max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)
