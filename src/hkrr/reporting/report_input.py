"""What a report is about: a model, the rows it is shown on, and their names. All else asks this alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted, validate_data

from hkrr._arrays import Array
from hkrr._validation import check_int
from hkrr.estimator import HyperKernelRidge
from hkrr.opening import is_elsewhere
from hkrr.selection import HyperKernelRidgeCV
from hkrr.tables.regressor import as_frame


@dataclass(frozen=True)
class Subject:
    """A model and rows, as the sections see them."""

    model: Any  # HyperKernelRidge or HyperKernelRidgeCV
    X: Array  # what the model sees of the rows
    columns: list[str]
    y: Array
    target: str
    other_targets: int  # that the model has, and the report leaves out
    target_index: int
    predicted: Array
    row_names: Sequence[Any]
    shown_columns: list[str]  # of the rows as they were given, which may be other ones than the model sees
    cell: Callable[[int, str], Any]  # the value of a row in one of those
    interval: Callable[[float], Array] | None  # (n, 2) for a coverage
    held_out: Any = None  # scores on rows that were held out when the model was made


def subject_of(model: Any, X: Any, y: Any, target: int = 0) -> Subject:
    """Return the model and the rows, checked.

    Parameters
    ----------
    model : HyperKernelRidge or HyperKernelRidgeCV
        Fitted; or a regressor of tables around one, with it in ``model_`` and ``transform`` to its columns.
    X, y : array or data frame
        As in ``model.score``.
    target : int
        Which target, of several.
    """
    inner = getattr(model, "model_", model)
    if not isinstance(inner, HyperKernelRidge | HyperKernelRidgeCV):
        raise ValueError(f"model must be a fitted HyperKernelRidge or HyperKernelRidgeCV, got {type(model).__name__}")
    check_is_fitted(inner)
    if is_elsewhere(X):
        raise ValueError("X must be an array or a data frame in memory: read some of the rows first")
    matrix, columns, shown_columns, cell = _table(model, X) if inner is not model else _matrix(inner, X)
    n_targets = 1 if inner.dual_coef_.ndim == 1 else inner.dual_coef_.shape[1]
    if check_int("target", target, 0) >= n_targets:
        raise ValueError(f"target={target}, and the model has {n_targets}: they count from 0")

    def one(values: Any) -> Array:
        """Return the target of the report, of values (n,) or (n, ..., targets)."""
        values = np.asarray(values)
        return values if inner.dual_coef_.ndim == 1 else values[..., target]

    def interval(coverage: float) -> Array:
        lower, upper = model.predict_interval(X, coverage)
        return np.column_stack([one(lower), one(upper)]).astype(np.float64)

    y_values = _targets(y, n_targets, target)
    if len(y_values) != len(matrix):
        raise ValueError(f"X has {len(matrix)} rows and y {len(y_values)}: give one target for each row")
    if len(matrix) < 2:
        raise ValueError(f"a report needs at least 2 rows, got {len(matrix)}")
    return Subject(
        model=inner,
        X=matrix,
        columns=columns,
        y=y_values,
        target=_name_of_target(y, n_targets, target),
        other_targets=n_targets - 1,
        target_index=target,
        predicted=one(model.predict(X)).astype(np.float64),
        row_names=_row_names(X),
        shown_columns=shown_columns,
        cell=cell,
        interval=interval if hasattr(model, "predict_interval") else None,
        held_out=getattr(model, "held_out_", None),
    )


def _matrix(model: Any, X: Any) -> tuple[Array, list[str], list[str], Callable[[int, str], Any]]:
    """Return the numbers of an array or a data frame, the names of its columns, and how to look into a row."""
    matrix = validate_data(model, X, reset=False, dtype=np.float64)
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        names = getattr(X, "columns", [f"x{j}" for j in range(matrix.shape[1])])
    columns = [str(name) for name in names]
    place = {name: j for j, name in enumerate(columns)}
    return matrix, columns, columns, lambda row, name: float(matrix[row, place[name]])


def _table(model: Any, X: Any) -> tuple[Array, list[str], list[str], Callable[[int, str], Any]]:
    """Return the same of a data frame whose columns a regressor of tables turns into numbers."""
    X = as_frame(X)
    encoded = model.transform(X)
    columns = [str(name) for name in getattr(model, "feature_names_out_", getattr(encoded, "columns", ()))]
    matrix = np.asarray(encoded, dtype=np.float64)
    columns = columns or [f"x{j}" for j in range(matrix.shape[1])]
    used = getattr(model, "feature_names_in_", X.columns)
    place = {str(name): X.columns.get_loc(name) for name in used}
    return matrix, columns, list(place), lambda row, name: X.iat[row, place[name]]


def _targets(y: Any, n_targets: int, target: int) -> Array:
    values = np.asarray(y)
    if values.dtype.kind not in "biuf":
        raise ValueError("y must be an array of numbers")
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    expected = 1 if n_targets == 1 else 2
    if values.ndim != expected or (expected == 2 and values.shape[1] != n_targets):
        raise ValueError(f"y has shape {values.shape}, and the model has {n_targets} targets")
    values = (values if expected == 1 else values[:, target]).astype(np.float64)
    if not np.all(np.isfinite(values)):
        raise ValueError("y holds NaN or infinity: leave those rows out")
    return values


def _name_of_target(y: Any, n_targets: int, target: int) -> str:
    names = getattr(y, "columns", None)
    if names is not None:
        return str(names[target if n_targets > 1 else 0])
    name = getattr(y, "name", None)
    return str(name) if name is not None else "y" if n_targets == 1 else f"y[{target}]"


def _row_names(X: Any) -> Sequence[Any]:
    """Return the index of a pandas data frame, or the rows' numbers."""
    index = getattr(X, "index", None)
    return list(index) if index is not None and not callable(index) else range(len(X))
