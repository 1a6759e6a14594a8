"""Scores of a benchmark: R2 for numbers; log loss, accuracy and calibration error for classes."""

from __future__ import annotations

import numpy as np

from hkrr._base.linear_algebra import Array

# Probabilities below this number count as this number in the log loss.
LEAST_PROBABILITY = 1e-15
# Number of bins of the calibration error.
N_BINS = 15


def r2(y: Array, predicted: Array) -> float:
    """Return the fraction of the variance of y that the predictions explain."""
    return 1.0 - float(np.mean((predicted - y) ** 2) / np.var(y))


def log_loss(y: Array, probabilities: Array) -> float:
    """Return the mean of -log p, where p is the predicted probability of the true class, at least 1e-15."""
    own = probabilities[np.arange(len(y)), y]
    return float(-np.mean(np.log(np.maximum(own, LEAST_PROBABILITY))))


def accuracy(y: Array, probabilities: Array) -> float:
    """Return the fraction of the rows whose most probable class is the true class."""
    return float(np.mean(np.argmax(probabilities, axis=1) == y))


def calibration_error(y: Array, probabilities: Array) -> float:
    """Return the expected calibration error.

    The confidence of a row is its highest probability. The rows are divided into 15 bins of equal width by their
    confidence. The result is the mean of ``|accuracy - mean confidence|`` over the bins, weighted by their numbers of
    rows.
    """
    confidence, right = probabilities.max(axis=1), np.argmax(probabilities, axis=1) == y
    bins = np.clip(np.ceil(confidence * N_BINS).astype(int) - 1, 0, N_BINS - 1)
    return float(np.sum(np.abs(np.bincount(bins, right - confidence, minlength=N_BINS))) / len(y))


def constant_error(y: Array, y_test: Array, n_classes: int) -> float:
    """Return the error of a prediction that is the same for all rows.

    For numbers, this is the root mean squared error of the mean, divided by the standard deviation of the test targets.
    For classes, it is the log loss of the class frequencies. The mean and the frequencies are those of the training
    rows.
    """
    if n_classes:
        frequencies = np.bincount(y, minlength=n_classes) / len(y)
        return log_loss(y_test, np.tile(frequencies, (len(y_test), 1)))
    return float(np.sqrt(np.mean((np.mean(y) - y_test) ** 2)) / np.std(y_test))


def scores_of(y: Array, predicted: Array, n_classes: int) -> dict[str, float]:
    """Return all scores of the predictions, by column of the CSV file.

    Raises
    ------
    ValueError
        If the predictions have the wrong shape or are not finite, or if probabilities are negative or do not sum to 1.
    """
    shape = (len(y), n_classes) if n_classes else (len(y),)
    if predicted.shape != shape or not np.all(np.isfinite(predicted)):
        raise ValueError(
            f"predictions must be finite and of shape {shape}, got shape {predicted.shape} and "
            f"{np.sum(~np.isfinite(predicted))} values that are not finite"
        )
    if not n_classes:
        return {"R2": round(r2(y, predicted), 6)}
    if np.any(predicted < 0) or np.any(np.abs(predicted.sum(axis=1) - 1.0) > 1e-3):
        raise ValueError("predictions for classes must be probabilities: not negative, and with the sum 1 in each row")
    functions = {"log_loss": log_loss, "accuracy": accuracy, "calibration_error": calibration_error}
    return {name: round(function(y, predicted), 6) for name, function in functions.items()}
