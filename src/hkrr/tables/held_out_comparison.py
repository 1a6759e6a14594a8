"""Evaluation of a model on held-out rows, compared with simple baselines.

The baselines of a regression are tuned kernel ridge regression and a linear model. The baselines of a classification
are logistic regression and the frequencies of the classes.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from hkrr._base.checks import check_choice
from hkrr._base.error_text import quoted
from hkrr._base.linear_algebra import Array
from hkrr.baselines import KernelRidgeCV
from hkrr.estimators.classification.class_link import LEAST_PROBABILITY
from hkrr.exceptions import TableError
from hkrr.tables.classifier import TableClassifier
from hkrr.tables.encoding import (
    HeldOutClassScores,
    HeldOutScores,
    as_numbers,
    is_boolean,
    missing_mask,
    suggest_names,
)
from hkrr.tables.regressor import TableRegressor
from hkrr.tables.table_model import as_frame
from hkrr.tables.task import REGRESSION, Task, as_labels, infer_task

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
    task : Task
        Whether the targets are numbers or labels of classes.
    """

    target: str
    train: pd.DataFrame
    y_train: Array
    test: pd.DataFrame
    y_test: Array
    seed: int
    about: str = ""
    task: Task = REGRESSION


def hold_out(
    frame: pd.DataFrame,
    target: str,
    share: float = 0.2,
    seed: int = 0,
    task: Literal["auto", "regression", "classification"] = "regression",
) -> Split:
    """Separate the target from a table, and return the table split at random into training and held-out rows.

    The rows of each class are split separately, so that the classes have about the same frequencies in both parts. If
    possible, every class keeps a training row.

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
    task : {"auto", "regression", "classification"}, default="regression"
        Whether the targets are numbers or labels. "auto" infers the task from the column (`infer_task`).

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
    inputs, y, n_dropped, found = separate_target(frame, target, task)
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
    if found.of_classes:
        order = stratified(y, order, n_test)
    test, train = np.sort(order[:n_test]), np.sort(order[n_test:])
    if np.all(y[train] == y[train[0]]):
        where = "row" if np.all(y == y[0]) else "training row"
        value = quoted(str(y[train[0]])) if found.of_classes else f"{y[train[0]]:g}"
        raise TableError(f"the target {quoted(target)} is {value} in every {where}; there is nothing to learn")
    about = f"dropped {n_dropped:,} row{'s' if n_dropped > 1 else ''} without a target" if n_dropped else ""
    return Split(target, inputs.iloc[train], y[train], inputs.iloc[test], y[test], seed, about, found)


def stratified(labels: Array, order: Array, n_test: int) -> Array:
    """Reorder the rows such that the classes are about as frequent among the first `n_test` rows as among all rows.

    The share of a class is rounded down. The remaining rows come from the classes with the largest remainders. The last
    row of a class is only taken if there is no other row.
    """
    _, first, index = np.unique(labels[order], return_index=True, return_inverse=True)
    index = np.argsort(np.argsort(first))[index]  # number the classes in the random order of their first rows
    counts = np.bincount(index)
    shares = n_test * counts / len(order)
    n_held_out = np.floor(shares).astype(int)
    for _ in range(n_test - int(np.sum(n_held_out))):
        is_last, is_used_up = n_held_out == counts - 1, n_held_out == counts
        lacking = shares - n_held_out - np.where(is_used_up, np.inf, np.where(is_last, len(order), 0.0))
        n_held_out[np.argmax(lacking)] += 1
    rank = np.empty(len(order), dtype=int)  # number of earlier rows of the same class
    for k, count in enumerate(counts):
        rank[index == k] = np.arange(count)
    return order[np.argsort(rank >= n_held_out[index], kind="stable")]


def separate_target(
    frame: pd.DataFrame, target: str, task: Literal["auto", "regression", "classification"] = "regression"
) -> tuple[pd.DataFrame, Array, int, Task]:
    """Return the rows that have a target, their targets, the number of dropped rows, and the task.

    The rows are returned without the target column. See `hold_out` for `task`.
    """
    check_choice("task", task, ("auto", "regression", "classification"))
    inputs, column, is_missing = split_columns(as_frame(frame), target)
    found = infer_task(target, column) if task == "auto" else Task(task)
    y = as_labels(target, column[~is_missing]) if found.of_classes else _numeric_target(target, column, is_missing)
    n_missing = int(is_missing.sum())
    if n_missing and not found.of_classes:
        y = y[~is_missing]
    return inputs.iloc[np.flatnonzero(~is_missing)] if n_missing else inputs, y, n_missing, found


def split_columns(frame: pd.DataFrame, target: str) -> tuple[pd.DataFrame, pd.Series, Array]:
    """Return the table without the target column, the target column, and a mask of the rows without a target."""
    names = [str(name) for name in frame.columns]
    if target not in names:
        raise TableError(f"there is no column {quoted(target)}{suggest_names(target, names)}")
    position = names.index(target)
    column = frame.iloc[:, position]
    is_missing = missing_mask(column)
    if np.all(is_missing):
        raise TableError(f"the target {quoted(target)} is missing in every row; choose another target column")
    return frame.drop(columns=frame.columns[position]), column, is_missing


def _numeric_target(name: str, column: pd.Series, is_missing: Array) -> Array:
    """Return the target column as numbers (booleans as 0 and 1). Raise a TableError if a target is not a number."""
    if column.dtype.kind in "mMc" or hasattr(column, "cat"):
        raise TableError(
            f"the target {quoted(name)} must contain numbers, but its type is {column.dtype}; choose another target "
            "column"
        )
    column = column.astype("float64") if is_boolean(column) else column
    y, is_invalid = as_numbers(column, is_missing)
    is_invalid |= np.isinf(y)
    if np.any(is_invalid):
        k = int(np.argmax(is_invalid))
        raise TableError(
            f"the target {quoted(name)} must contain finite numbers, but row {column.index[k]} (counting from 0) is "
            f"{quoted(str(column.iloc[k]))}; choose another target column, or predict classes: --task classification, "
            "or hkrr.TableClassifier in Python"
        )
    return y


def compare(
    model: TableRegressor | TableClassifier, split: Split, others: dict[str, Array] | None = None
) -> HeldOutScores | HeldOutClassScores:
    """Return the scores of the model and of two baselines on the held-out rows, with confidence intervals.

    The score of a regressor is R2. The scores of a classifier are accuracy and log loss, and its baselines are
    scikit-learn's LogisticRegression on standardized columns and the frequencies of the classes.

    The baselines of a regressor are `hkrr.baselines.KernelRidgeCV` (Gaussian kernel, lambda and gamma chosen by the
    leave-one-out error, at most 1,000 Nystrom centers) and scikit-learn's RidgeCV on standardized columns. The
    baselines are fitted to the same encoded columns as the model. The 95% confidence intervals are percentiles of the
    scores over 1,000 bootstrap samples of the held-out rows. All methods use the same bootstrap samples. The models are
    not fitted again for each sample, so the intervals only describe the uncertainty due to the choice of the held-out
    rows.

    Parameters
    ----------
    model : TableRegressor or TableClassifier
        Model fitted to ``split.train``.
    split : Split
        Result of `hold_out` with at least two held-out rows.
    others : dict of arrays or None, default=None
        Predictions of each baseline for the held-out rows, by name. For a classifier, these are probabilities (n_test,
        n_classes). None fits the two baselines above.

    Returns
    -------
    HeldOutScores or HeldOutClassScores
    """
    if split.task.of_classes != hasattr(model, "predict_proba"):
        raise ValueError(f"a {type(model).__name__} cannot be compared on a split for a {split.task.kind}")
    if split.task.of_classes:
        return _compare_classes(model, split, others)
    if len(split.y_test) < _MIN_ROWS or np.all(split.y_test == split.y_test[0]):
        raise TableError("R2 needs held-out rows with different targets; hold out a larger fraction of the rows")
    if others is None:
        X, X_test = model.transform(split.train), model.transform(split.test)
        others = baseline_predictions(X, split.y_train, X_test, split.seed)
    predictions = np.column_stack([model.predict(split.test), *others.values()])
    r2, low, high = r2_intervals(split.y_test, predictions, split.seed)
    sizes = len(split.y_train), len(split.y_test)
    return HeldOutScores(split.target, ("hkrr", *others), r2, low, high, *sizes, split.seed, LEVEL)


def _compare_classes(model: TableClassifier, split: Split, others: dict[str, Array] | None) -> HeldOutClassScores:
    """Return the accuracy and the log loss of a classifier and of the baselines."""
    if others is None:
        X, X_test = model.transform(split.train), model.transform(split.test)
        others = class_baselines(X, split.y_train, X_test)
    classes = np.unique(split.y_train)
    if model.classes_.tolist() != classes.tolist():
        raise ValueError("the classes of the model are not those of the training rows; fit the model to split.y_train")
    index: Array = np.searchsorted(classes, split.y_test)
    known = np.isin(split.y_test, classes)
    parts = [model.predict_proba(split.test), *others.values()]
    n, rows = len(index), np.arange(len(index))
    # All methods give the probability 0 to a class that is not in the training rows. The lower bound on probabilities
    # limits its log loss.
    right = np.column_stack([known & (np.argmax(p, axis=1) == index) for p in parts])
    own = np.column_stack([np.where(known, p[rows, np.minimum(index, len(classes) - 1)], 0.0) for p in parts])
    losses = -np.log(np.maximum(own, LEAST_PROBABILITY))
    rng = np.random.RandomState(split.seed)
    samples = [rng.randint(n, size=n) for _ in range(_N_RESAMPLES)]
    tails = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
    scores: dict[str, tuple[float, ...]] = {}
    for name, values in (("accuracy", right.astype(np.float64)), ("log_loss", losses)):
        low, high = np.quantile(np.array([values[sample].mean(axis=0) for sample in samples]), tails, axis=0)
        for suffix, part in (("", values.mean(axis=0)), ("_low", low), ("_high", high)):
            scores[name + suffix] = tuple(part.tolist())
    labels = np.union1d(classes, split.y_test)
    predicted = np.searchsorted(labels, classes[np.argmax(parts[0], axis=1)])
    confusion = np.zeros((len(labels), len(labels)), dtype=int)
    np.add.at(confusion, (np.searchsorted(labels, split.y_test), predicted), 1)
    return HeldOutClassScores(
        target=split.target,
        methods=("hkrr", *others),
        classes=tuple(labels.tolist()),
        confusion=tuple(tuple(row) for row in confusion.tolist()),
        n_train=len(split.y_train),
        n_test=n,
        seed=split.seed,
        level=LEVEL,
        **scores,
    )


def class_baselines(X: Array, y: Array, X_test: Array) -> dict[str, Array]:
    """Return the probabilities that two baselines predict for the rows of X_test: {name of the baseline: array}.

    The baselines are logistic regression and the frequencies of the classes.
    """
    # These modules are imported here because importing them is slow.
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    logistic = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    with warnings.catch_warnings(), np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        warnings.simplefilter("ignore", ConvergenceWarning)
        probabilities = logistic.fit(X, y).predict_proba(X_test)
    frequencies = np.unique(y, return_counts=True)[1] / len(y)
    return {"logistic regression": probabilities, "class frequencies": np.tile(frequencies, (len(X_test), 1))}


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
