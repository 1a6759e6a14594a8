"""Labels as numbers to learn from: classes, codes and weights, and rows held out of every class.

Two classes are one column of -1 and 1; K classes one column for each, 1 in a row's own and 0 elsewhere. (The K - 1
coordinates of a simplex would say the same with one column less; but the evidence has a scale for each column, so it
would depend on the order of the classes.)
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets

from hkrr._arrays import Array
from hkrr._validation import check_choice
from hkrr.samples import any_identical, in_units_of_rows, merge_identical

_MERGED_ROWS = 20_000  # up to which repeated rows are looked for
_PARTS = 5
_TURNS = ((300, 5), (1_000, 3), (5_000, 2))  # below so many rows, how many parts are held out in turn; one beyond


def labels_of(y: Array) -> Array:
    """Return the labels in an array of one kind, or raise where they are none."""
    if y.dtype == object:
        kinds = {type(label) for label in y.tolist()}
        if len(kinds) > 1:
            some = ", ".join(sorted(kind.__name__ for kind in kinds))
            raise ValueError(f"y holds labels of different kinds ({some}): make them all texts, or all numbers")
        y = np.asarray(y.tolist())
    check_classification_targets(y)
    return y


def class_weights(class_weight: Any, y: Array, sample_weight: Array | None) -> Array | None:
    """Return the rows' weights times those of their classes.

    "balanced" is ``W / (K W_k)``, W_k the weight of the rows of class k: as scikit-learn's where all weights are one,
    and the same for repeated rows.
    """
    if class_weight is None:
        return sample_weight
    classes, index = np.unique(y, return_inverse=True)
    if isinstance(class_weight, str):
        check_choice("class_weight", class_weight, ("balanced",), ", a dict of a weight for each class, or None")
        totals = np.bincount(index, weights=sample_weight)
        each = np.sum(totals) / (len(classes) * totals)
    elif isinstance(class_weight, dict):
        each = compute_class_weight(class_weight, classes=classes, y=y)
        if not np.all(np.isfinite(each)) or np.any(each <= 0):
            raise ValueError(f"class_weight must hold positive finite numbers, got {class_weight!r}")
    else:
        raise ValueError(f"class_weight must be 'balanced', a dict or None, got {class_weight!r}")
    return each[index] if sample_weight is None else each[index] * sample_weight


def one_hot(index: Array, n_classes: int) -> Array:
    """Return 1 in the column of each row's class, 0 elsewhere."""
    return np.eye(n_classes)[index]


def codes_of(index: Array, n_classes: int) -> Array:
    """Return the targets of the regression."""
    return 2.0 * index - 1.0 if n_classes == 2 else one_hot(index, n_classes)


def each_once(X: Array, index: Array, weight: Array | None) -> tuple[Array, Array, Array | None]:
    """Return rows that are there several times once, with the sum of their weights, and weights of mean one."""
    if weight is not None and np.all(weight == weight[0]):
        weight = None  # rows in another order would be held out: another model for the same data
    if len(X) <= _MERGED_ROWS and (weight is not None or any_identical(X, index)):
        X, index, weight = merge_identical(X, index, weight)
        return X, index.astype(int), weight
    return X, index, in_units_of_rows(weight)


def turns(index: Array) -> list[Array]:
    """Return which rows to hold out, in turn: a fifth of every class each time; more often of few rows."""
    part = np.empty(len(index), dtype=int)
    rng, so_far = np.random.RandomState(0), 0
    n_parts = min(_PARTS, len(index))
    for k in np.unique(index):
        (rows,) = np.nonzero(index == k)
        part[rng.permutation(rows)] = (so_far + np.arange(len(rows))) % n_parts
        so_far += len(rows)
    n_turns = next((turns for rows, turns in _TURNS if len(index) < rows), 1)
    return [part == turn for turn in range(min(n_turns, n_parts))]
