"""Evaluation of a model on held-out rows, compared with tuned kernel ridge regression and a linear model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from hkrr._base.error_text import quoted
from hkrr._base.linear_algebra import Array
from hkrr.baselines import KernelRidgeCV
from hkrr.exceptions import TableError
from hkrr.tables.encoding import HeldOutScores, as_numbers, missing_mask, suggest_names
from hkrr.tables.regressor import TableRegressor, as_frame

if TYPE_CHECKING:
    import pandas as pd

# Minimum number of training rows. If rows are held out, also the minimum number of held-out rows.
_MIN_ROWS = 2
# Number of bootstrap samples, and confidence level of the intervals.
_N_RESAMPLES, LEVEL = 1000, 0.95
# Maximum number of centers of the baseline "kernel ridge". The time of its fit grows with the cube of this number.
_MAX_KRR_CENTERS = 1000
# Regularization parameters from which the baseline "linear" chooses.
_RIDGE_ALPHAS = tuple(10.0**k for k in range(-4, 7))


@dataclass(frozen=True)
class Split:
    """A table split into training and held-out rows.

    Attributes
    ----------
    target : str
        Name of the target column.
    train, test : pandas.DataFrame
        Training rows and held-out rows, without the target column.
    y_train, y_test : array
        Targets of the training rows and of the held-out rows.
    seed : int
        Seed of the random split.
    about : str
        Text that says how many rows were dropped because they have no target, or "" if no row was dropped.
    """

    target: str
    train: pd.DataFrame
    y_train: Array
    test: pd.DataFrame
    y_test: Array
    seed: int
    about: str = ""


def hold_out(frame: pd.DataFrame, target: str, share: float = 0.2, seed: int = 0) -> Split:
    """Separate the target from a table, and return the table split at random into training and held-out rows.

    Parameters
    ----------
    frame : pandas or polars data frame
        The table, including the target column.
    target : str
        Name of the column to predict. Rows in which the target is missing are dropped.
    share : float, default=0.2
        Fraction of the rows to hold out, at least 0 and below 1. With 0, no rows are held out.
    seed : int, default=0
        Seed of the random split.

    Returns
    -------
    Split

    Examples
    --------
    >>> import pandas as pd
    >>> from hkrr.tables import hold_out
    >>> split = hold_out(pd.DataFrame({"area": range(10), "price": range(10)}), "price")
    >>> len(split.train), len(split.test), list(split.train.columns)
    (8, 2, ['area'])
    """
    if not 0.0 <= share < 1.0:
        raise ValueError(f"share must be at least 0 and below 1, got {share!r}")
    inputs, y, n_dropped = separate_target(frame, target)
    if len(y) < _MIN_ROWS:
        rows = "1 row has" if len(y) == 1 else f"{len(y)} rows have"
        raise TableError(
            f"only {rows} a target in the column {quoted(target)}; a fit needs at least {_MIN_ROWS} rows with a target"
        )
    n_test = round(share * len(y))
    if len(y) - n_test < _MIN_ROWS or (share > 0 and n_test < _MIN_ROWS):
        raise TableError(
            f"too few rows to hold out a fraction of {share:g}: {n_test} of the {len(y)} rows with a target would be "
            f"held out and {len(y) - n_test} would be used for training, but at least {_MIN_ROWS} rows are needed for "
            "each; use more rows, or hold out none"
        )
    order = np.random.RandomState(seed).permutation(len(y))
    test, train = np.sort(order[:n_test]), np.sort(order[n_test:])
    if np.all(y[train] == y[train[0]]):
        where = "row" if np.all(y == y[0]) else "training row"
        raise TableError(f"the target {quoted(target)} is {y[train[0]]:g} in every {where}; there is nothing to learn")
    about = f"dropped {n_dropped:,} row{'s' if n_dropped > 1 else ''} without a target" if n_dropped else ""
    return Split(target, inputs.iloc[train], y[train], inputs.iloc[test], y[test], seed, about)


def separate_target(frame: pd.DataFrame, target: str) -> tuple[pd.DataFrame, Array, int]:
    """Return the rows that have a target (without the target column), their targets, and the number of dropped rows."""
    frame = as_frame(frame)
    names = [str(name) for name in frame.columns]
    if target not in names:
        raise TableError(f"there is no column {quoted(target)}{suggest_names(target, names)}")
    position = names.index(target)
    column = frame.iloc[:, position]
    is_missing = missing_mask(column)
    y = _numeric_target(target, column, is_missing)
    inputs, n_missing = frame.drop(columns=frame.columns[position]), int(is_missing.sum())
    return (inputs.iloc[np.flatnonzero(~is_missing)], y[~is_missing], n_missing) if n_missing else (inputs, y, 0)


def _numeric_target(name: str, column: pd.Series, is_missing: Array) -> Array:
    """Return the target column as numbers (booleans as 0 and 1). Raise a TableError if a target is not a number."""
    if np.all(is_missing):
        raise TableError(f"the target {quoted(name)} is missing in every row; choose another target column")
    if column.dtype.kind in "mMc" or hasattr(column, "cat"):
        raise TableError(
            f"the target {quoted(name)} must contain numbers, but its type is {column.dtype}; choose another target "
            "column"
        )
    column = column.astype("float64") if column.dtype == bool else column
    y, is_invalid = as_numbers(column, is_missing)
    is_invalid |= np.isinf(y)
    if np.any(is_invalid):
        k = int(np.argmax(is_invalid))
        raise TableError(
            f"the target {quoted(name)} must contain finite numbers, but row {column.index[k]} (counting from 0) is "
            f"{quoted(str(column.iloc[k]))}; choose another target column, or use hkrr.HyperKernelClassifier in Python "
            "to predict classes"
        )
    return y


def compare(model: TableRegressor, split: Split, others: dict[str, Array] | None = None) -> HeldOutScores:
    """Return the R2 of the model and of two baselines on the held-out rows, with confidence intervals.

    The baselines are fitted to the same encoded columns as the model. They are `hkrr.baselines.KernelRidgeCV` (Gaussian
    kernel, lambda and gamma chosen by the leave-one-out error, at most 1,000 Nystrom centers) and scikit-learn's
    RidgeCV on standardized columns. The 95% confidence intervals are percentiles of R2 over 1,000 bootstrap samples of
    the held-out rows. All methods use the same bootstrap samples. The models are not fitted again for each sample, so
    the intervals only describe the uncertainty due to the choice of the held-out rows.

    Parameters
    ----------
    model : TableRegressor
        Model fitted to ``split.train``.
    split : Split
        Result of `hold_out` with at least two held-out rows.
    others : dict of arrays or None, default=None
        Predictions of each baseline for the held-out rows, by name. None fits the two baselines above.

    Returns
    -------
    HeldOutScores
    """
    if len(split.y_test) < _MIN_ROWS or np.all(split.y_test == split.y_test[0]):
        raise TableError("R2 needs held-out rows with different targets; hold out a larger fraction of the rows")
    if others is None:
        X, X_test = model.transform(split.train), model.transform(split.test)
        others = baseline_predictions(X, split.y_train, X_test, split.seed)
    predictions = np.column_stack([model.predict(split.test), *others.values()])
    r2, low, high = r2_intervals(split.y_test, predictions, split.seed)
    sizes = len(split.y_train), len(split.y_test)
    return HeldOutScores(split.target, ("hkrr", *others), r2, low, high, *sizes, split.seed, LEVEL)


def baseline_predictions(X: Array, y: Array, X_test: Array, seed: int) -> dict[str, Array]:
    """Fit the two baselines, and return the predictions of each baseline for the rows of X_test, in a dict by name."""
    # These modules are imported here because importing them is slow.
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    n_centers: Literal["all"] | int = "all" if len(X) <= _MAX_KRR_CENTERS else _MAX_KRR_CENTERS
    baselines = {
        "kernel ridge": KernelRidgeCV(n_centers=n_centers, random_state=seed),
        "linear": make_pipeline(StandardScaler(), RidgeCV(_RIDGE_ALPHAS)),
    }
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        return {name: baseline.fit(X, y).predict(X_test) for name, baseline in baselines.items()}


def _r2(y: Array, predictions: Array) -> Array:
    """Return ``R2 = 1 - |y - f|^2 / |y - mean(y)|^2`` for each column f of the predictions."""
    y = y[:, None]
    r2: Array = 1.0 - np.sum((y - predictions) ** 2, axis=0) / np.sum((y - np.mean(y)) ** 2)
    return r2


def r2_intervals(y: Array, predictions: Array, seed: int) -> tuple[tuple[float, ...], ...]:
    """Return three tuples: R2 of each column of predictions, and the lower and upper ends of its bootstrap interval."""
    # Divide the targets and the predictions by the range of the targets, because the squares of numbers near 1e200
    # overflow.
    scale = np.max(np.abs(y - y[0]))
    y, predictions = (y - y[0]) / scale, (predictions - y[0]) / scale
    rng, n = np.random.RandomState(seed), len(y)
    samples: list[Array] = []
    while len(samples) < _N_RESAMPLES:
        rows = rng.randint(n, size=n)
        if np.any(y[rows] != y[rows[0]]):  # R2 is undefined for samples whose targets are all equal
            samples.append(_r2(y[rows], predictions[rows]))
    low, high = np.quantile(np.array(samples), [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return tuple(tuple(float(each) for each in part) for part in (_r2(y, predictions), low, high))
