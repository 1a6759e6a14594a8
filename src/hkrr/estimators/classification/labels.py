"""Class codes (the classes encoded as numbers), class weights, and stratified folds.

The class codes are the targets of the regression. Two classes are coded as one column of -1 and 1. K > 2 classes are
coded as K columns: 1 in the column of the row's own class, 0 elsewhere. Coding the classes as the corners of a simplex
would need only K - 1 columns. But the evidence has a separate scale for each column, so the evidence for such codes
would depend on the order of the classes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets

from hkrr._base.checks import check_choice
from hkrr._base.linear_algebra import Array
from hkrr.rows.weights import MERGED_ROWS, any_copies, merge_copies, normalize_weights

# Number of folds into which the rows are divided. Not all folds are held out (see `_FOLDS_USED`).
_N_FOLDS = 5
# Number of folds that are held out in turn: 5 for fewer than 300 rows, 3 for fewer than 1,000 rows, 2 for fewer than
# 5,000 rows, and one fold for 5,000 rows or more.
_FOLDS_USED = ((300, 5), (1_000, 3), (5_000, 2))


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


def class_codes(index: Array, n_classes: int) -> Array:
    """Return the class codes: -1 and 1 for two classes, otherwise a column of 0 and 1 for each class."""
    return 2.0 * index - 1.0 if n_classes == 2 else one_hot(index, n_classes)


def merge_copies_within_classes(X: Array, index: Array, weight: Array | None) -> tuple[Array, Array, Array | None]:
    """Merge copies of rows of the same class, scale the weights to mean 1, and return the new arrays.

    The weight of a merged row is the sum of the weights of its copies.
    """
    if weight is not None and np.all(weight == weight[0]):
        # Equal weights must give the same model as no weights. They are dropped, because rows with weights are merged
        # below, which sorts the rows and so changes the folds.
        weight = None
    if len(X) <= MERGED_ROWS and (weight is not None or any_copies(X, index, weight)):
        X, index, weight = merge_copies(X, index, weight)
        return X, index.astype(int), weight
    return X, index, normalize_weights(weight)


def held_out_folds(index: Array) -> list[Array]:
    """Return boolean masks of the rows to hold out, one mask for each fold that is used.

    Each mask holds out about a fifth of every class. With more rows, there are fewer masks: from 5 to 1.
    """
    fold = np.empty(len(index), dtype=int)
    rng, n_assigned = np.random.RandomState(0), 0
    n_folds = min(_N_FOLDS, len(index))
    for k in np.unique(index):
        (rows,) = np.nonzero(index == k)
        fold[rng.permutation(rows)] = (n_assigned + np.arange(len(rows))) % n_folds
        n_assigned += len(rows)
    n_used = next((used for rows, used in _FOLDS_USED if len(index) < rows), 1)
    return [fold == k for k in range(min(n_used, n_folds))]
