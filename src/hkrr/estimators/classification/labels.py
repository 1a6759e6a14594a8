"""Labels of the classes: checks, indicators, class weights, and stratified folds."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets

from hkrr._base.checks import check_choice
from hkrr._base.linear_algebra import Array

# Number of folds into which the rows are divided. Not all folds are held out (see `_FOLDS_USED`).
_N_FOLDS = 5
# Number of folds that are held out in turn, if there are fewer than this number of rows. With more rows, it is 2.
_FOLDS_USED = ((300, 5), (1_000, 3))


def check_labels(y: Array) -> Array:
    """Return the labels as an array of one type. Raise ValueError if y does not contain class labels."""
    if y.dtype == object:
        types = {type(label) for label in y.tolist()}
        if len(types) > 1:
            names = ", ".join(sorted(each.__name__ for each in types))
            raise ValueError(f"y contains labels of different types ({names}): convert all to str, or all to numbers")
        y = np.asarray(y.tolist())
    check_classification_targets(y)
    return y


def class_weights(class_weight: Any, y: Array, sample_weight: Array | None) -> Array | None:
    """Return the weights of the rows multiplied by the weights of their classes.

    With "balanced", class k has the weight ``W / (K W_k)``, where K is the number of classes, W_k the total weight of
    the rows of class k, and W the total weight of all rows. This is scikit-learn's definition if all rows have
    weight 1. A row of weight 2 has the same effect as two identical rows of weight 1.
    """
    if class_weight is None:
        return sample_weight
    classes, index = np.unique(y, return_inverse=True)
    if isinstance(class_weight, str):
        check_choice("class_weight", class_weight, ("balanced",), ", a dict with a weight for each class, or None")
        totals = np.bincount(index, weights=sample_weight)
        weights = np.sum(totals) / (len(classes) * totals)
    elif isinstance(class_weight, dict):
        weights = compute_class_weight(class_weight, classes=classes, y=y)
        if not np.all(np.isfinite(weights)) or np.any(weights <= 0):
            raise ValueError(f"class_weight must contain positive finite numbers, got {class_weight!r}")
    else:
        raise ValueError(f"class_weight must be 'balanced', a dict or None, got {class_weight!r}")
    return weights[index] if sample_weight is None else weights[index] * sample_weight


def one_hot(index: Array, n_classes: int) -> Array:
    """Return an array with 1 in the column of each row's class and 0 elsewhere."""
    return np.eye(n_classes)[index]


def held_out_folds(index: Array) -> list[Array]:
    """Return boolean masks of the rows to hold out, one mask for each fold that is used.

    Each mask holds out about a fifth of every class. With more rows, there are fewer masks: from 5 to 2.
    """
    fold = np.empty(len(index), dtype=int)
    rng, n_assigned = np.random.RandomState(0), 0
    n_folds = min(_N_FOLDS, len(index))
    for k in np.unique(index):
        (rows,) = np.nonzero(index == k)
        fold[rng.permutation(rows)] = (n_assigned + np.arange(len(rows))) % n_folds
        n_assigned += len(rows)
    n_used = next((used for rows, used in _FOLDS_USED if len(index) < rows), 2)
    return [fold == k for k in range(min(n_used, n_folds))]
