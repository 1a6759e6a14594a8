"""How good a model is on rows that it has not seen, beside tuned kernel ridge regression and a linear model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hkrr._arrays import Array
from hkrr.baselines import KernelRidgeCV
from hkrr.columns import HeldOutScores, as_numbers, missing_in, nearest
from hkrr.exceptions import TableError
from hkrr.rows.source import shown
from hkrr.tables.regressor import TableRegressor, as_frame

_FEWEST = 2  # rows on either side
_RESAMPLES, LEVEL = 1000, 0.95
_KRR_CENTERS = 1000  # beyond so many rows: its time grows with the cube of them
_ALPHAS = tuple(10.0**k for k in range(-4, 7))


@dataclass(frozen=True)
class Split:
    """A table without its target, in rows to learn from and rows held out; and what is to be said about it."""

    target: str
    train: Any
    y_train: Array
    test: Any
    y_test: Array
    seed: int
    about: str = ""


def hold_out(frame: Any, target: str, share: float = 0.2, seed: int = 0) -> Split:
    """Take the target out of a table, and draw rows to be held out.

    Parameters
    ----------
    frame : data frame
    target : str
        The name of the column to predict. Rows where it is missing are left out.
    share : float, default=0.2
        Share of the rows that are held out, 0 for none.
    seed : int, default=0

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
    inputs, y, gone = without_target(frame, target)
    n_test = round(share * len(y))
    if len(y) - n_test < _FEWEST or (share > 0 and n_test < _FEWEST):
        of = f"{len(y)} {'row with a target is' if len(y) == 1 else 'rows with a target are'} too few to"
        if len(y) < _FEWEST:
            raise TableError(f"{of} learn from: {_FEWEST} are needed")
        raise TableError(
            f"{of} hold out a share of {share:g}: {_FEWEST} are needed on either side; a share of 0 holds out none"
        )
    order = np.random.RandomState(seed).permutation(len(y))
    test, train = np.sort(order[:n_test]), np.sort(order[n_test:])
    if np.all(y[train] == y[train[0]]):
        where = "row" if np.all(y == y[0]) else "row to learn from"
        raise TableError(f"the target {shown(target)} is {y[train[0]]:g} in every {where}: there is nothing to learn")
    about = f"{gone:,} row{'s' if gone > 1 else ''} without a target left out" if gone else ""
    return Split(target, inputs.iloc[train], y[train], inputs.iloc[test], y[test], seed, about)


def without_target(frame: Any, target: str) -> tuple[Any, Array, int]:
    """Return the rows of a table that have a target, without it; the targets; and how many rows have none."""
    frame = as_frame(frame)
    names = [str(name) for name in frame.columns]
    if target not in names:
        raise TableError(f"there is no column {shown(target)}{nearest(target, names)}")
    place = names.index(target)
    is_missing = missing_in(frame.iloc[:, place])
    y = _targets(target, frame.iloc[:, place], is_missing)
    rows, gone = frame.drop(columns=frame.columns[place]), int(is_missing.sum())
    return (rows.iloc[np.flatnonzero(~is_missing)], y[~is_missing], gone) if gone else (rows, y, 0)


def _targets(name: str, column: Any, is_missing: Array) -> Array:
    """Return the target as numbers; truths are 0 and 1."""
    if np.all(is_missing):
        raise TableError(f"the target {shown(name)} is missing in every row")
    if column.dtype.kind in "mMc" or hasattr(column, "cat"):
        raise TableError(f"the target {shown(name)} holds {column.dtype}: numbers are needed")
    column = column.astype("float64") if column.dtype == bool else column
    y, wrong = as_numbers(column, is_missing)
    wrong |= np.isinf(y)
    if np.any(wrong):
        k = int(np.argmax(wrong))
        found = f"{shown(str(column.iloc[k]))} in row {column.index[k]} (the first row is 0)"
        raise TableError(
            f"the target {shown(name)} holds {found}: finite numbers are needed; "
            "name another column (for classes there is hkrr.HyperKernelClassifier, in Python)"
        )
    return y


def compare(model: TableRegressor, split: Split, others: dict[str, Array] | None = None) -> HeldOutScores:
    """Return R2 on the held-out rows, with an interval, of the model and of two others on the same numbers.

    The others are `hkrr.baselines.KernelRidgeCV` (Gaussian kernel, lambda and gamma by leave-one-out; 1,000 Nystrom
    centers beyond 1,000 rows) and scikit-learn's RidgeCV on standardised columns. Intervals are of 95%, by the
    bootstrap: the percentiles of R2 over 1,000 draws of as many held-out rows with replacement, the same draws for all.
    They say how far the held-out rows may mislead, the model being what it is.

    Parameters
    ----------
    model : TableRegressor
        Fitted to ``split.train``.
    split : Split
        From `hold_out`, with held-out rows.
    others : dict of arrays or None, default=None
        What others predict for the held-out rows, by their names, where that is known already.

    Returns
    -------
    HeldOutScores
    """
    if len(split.y_test) < _FEWEST or np.all(split.y_test == split.y_test[0]):
        raise TableError("R2 needs held-out rows whose targets differ: hold out more of them")
    if others is None:
        X, X_test = model.transform(split.train), model.transform(split.test)
        others = predicted_by_others(X, split.y_train, X_test, split.seed)
    predicted = np.column_stack([model.predict(split.test), *others.values()])
    r2, low, high = scores(split.y_test, predicted, split.seed)
    sizes = len(split.y_train), len(split.y_test)
    return HeldOutScores(split.target, ("hkrr", *others), r2, low, high, *sizes, split.seed, LEVEL)


def predicted_by_others(X: Array, y: Array, X_test: Array, seed: int) -> dict[str, Array]:
    """Return what the two others, fitted to the same numbers, predict for test rows, by their names."""
    # Here, as importing them takes a while.
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    n_centers: Any = "all" if len(X) <= _KRR_CENTERS else _KRR_CENTERS
    others = {
        "kernel ridge": KernelRidgeCV(n_centers=n_centers, random_state=seed),
        "linear": make_pipeline(StandardScaler(), RidgeCV(_ALPHAS)),
    }
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        return {name: other.fit(X, y).predict(X_test) for name, other in others.items()}


def r2_of(y: Array, predicted: Array) -> Array:
    """Return ``1 - |y - f|^2 / |y - mean|^2`` for each column of predictions."""
    y = y[:, None]
    found: Array = 1.0 - np.sum((y - predicted) ** 2, axis=0) / np.sum((y - np.mean(y)) ** 2)
    return found


def scores(y: Array, predicted: Array, seed: int) -> tuple[tuple[float, ...], ...]:
    """Return R2 of each column, and the ends of its interval by the bootstrap, the same draws for all."""
    # In units of the targets' spread: squares of numbers near 1e200 are none.
    scale = np.max(np.abs(y - y[0]))
    y, predicted = (y - y[0]) / scale, (predicted - y[0]) / scale
    rng, n = np.random.RandomState(seed), len(y)
    draws: list[Array] = []
    while len(draws) < _RESAMPLES:
        rows = rng.randint(n, size=n)
        if np.any(y[rows] != y[rows[0]]):  # of one value alone there is no R2
            draws.append(r2_of(y[rows], predicted[rows]))
    low, high = np.quantile(np.array(draws), [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return tuple(tuple(float(each) for each in part) for part in (r2_of(y, predicted), low, high))
