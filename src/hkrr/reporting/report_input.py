"""Checks of the input of a report: a fitted model, the rows and targets, and the names of the columns and rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted, validate_data

from hkrr._base.checks import check_int
from hkrr._base.linear_algebra import Array
from hkrr.estimators.classification import HyperKernelClassifier
from hkrr.estimators.ensemble import HyperKernelEnsemble
from hkrr.rows.open_inputs import is_external
from hkrr.tables.encoding import HeldOutScores
from hkrr.tables.inner_models import AnyClassifier, AnyRegressor, OneMapRegressor, unwrap_model
from hkrr.tables.table_model import TableModel, as_frame


@dataclass(frozen=True, kw_only=True)
class ReportInput:
    """A fitted model and the rows to report on."""

    table: TableModel | None  # the model for data frames around `whole`, if there is one
    whole: OneMapRegressor | HyperKernelEnsemble | HyperKernelClassifier  # the model that predicts
    # The model whose map and function are shown: the first member of an ensemble, or the model itself.
    model: OneMapRegressor
    X: Array  # the rows as the model receives them
    columns: list[str]  # names of the columns of `X`
    target: str  # name of the target
    target_index: int | None  # None means all targets of `model`, as for the scores of the classes
    row_names: Sequence[Any]
    table_columns: list[str]  # names of the columns that the user passed; they differ from `columns` if X was encoded
    origins: list[str]  # for each of `columns`, the table column that it encodes
    cell: Callable[[int, str], Any]  # returns the value of a cell, given its row number and its table column

    @property
    def ensemble(self) -> HyperKernelEnsemble | None:
        """The model if it is an ensemble, the ensemble of the scores of a classifier, or None."""
        if isinstance(self.whole, HyperKernelClassifier):
            return self.whole.scores_
        return self.whole if isinstance(self.whole, HyperKernelEnsemble) else None


@dataclass(frozen=True, kw_only=True)
class RegressionInput(ReportInput):
    """A fitted regressor, and the rows and targets to report on."""

    y: Array  # the target that the report is about
    target_index: int
    n_other_targets: int
    predicted: Array
    # Returns the bounds (n, 2) of the prediction intervals with a given coverage. None if the model has no method
    # ``predict_interval``.
    interval: Callable[[float], Array] | None
    held_out: HeldOutScores | None = None  # scores on rows that were held out when the model was fitted


def check_report_input(model: AnyRegressor, X: Any, y: Any, target: int = 0) -> RegressionInput:
    """Check the regressor and the rows, and return them as a `RegressionInput`.

    Parameters
    ----------
    model : fitted HyperKernelEnsemble, HyperKernelRidge or HyperKernelRidgeCV
        The model, or a `TableRegressor` that contains such a model in its attribute ``model_``. The method
        ``transform`` of the table regressor then computes the input of the model.
    X, y : array or data frame
        Rows and targets, as in ``model.score``.
    target : int, default=0
        Index of the target to report on if the model has several targets.

    Returns
    -------
    RegressionInput
    """
    fields = check_model_and_rows(model, X)
    shown, n_rows = fields["model"], len(fields["X"])
    one_target = shown.dual_coef_.ndim == 1
    n_targets = 1 if one_target else shown.dual_coef_.shape[1]
    if check_int("target", target, 0) >= n_targets:
        raise ValueError(f"target must be an integer from 0 to {n_targets - 1}, got {target}")

    def of_target(values: Any) -> Array:
        """Return the values of the chosen target, from an array (n,) or (n, n_targets)."""
        values = np.asarray(values)
        return (values if one_target else values[..., target]).astype(np.float64)

    def interval(coverage: float) -> Array:
        return np.column_stack([of_target(bound) for bound in model.predict_interval(X, coverage)])

    y_values = _target_values(y, n_targets, target)
    check_numbers_of_rows(n_rows, len(y_values))
    return RegressionInput(
        **fields,
        y=y_values,
        target=_target_name(y, n_targets, target),
        target_index=target,
        n_other_targets=n_targets - 1,
        predicted=of_target(model.predict(X)),
        interval=interval if hasattr(model, "predict_interval") else None,
        held_out=getattr(model, "held_out_", None),
    )


def check_model_and_rows(model: AnyRegressor | AnyClassifier, X: Any) -> dict[str, Any]:
    """Check the model and the rows, and return the fields of `ReportInput` that do not depend on the targets."""
    table, inner, shown = unwrap_model(model)
    if not isinstance(inner, OneMapRegressor | HyperKernelEnsemble | HyperKernelClassifier):
        around = "" if table is None else f" around a {type(inner).__name__}"
        raise ValueError(
            "model must be a fitted HyperKernelEnsemble, HyperKernelRidge, HyperKernelRidgeCV or "
            f"HyperKernelClassifier, got {type(model).__name__}{around}"
        )
    check_is_fitted(inner)
    if is_external(X):
        raise ValueError("X must be an array or a data frame in memory; load some of the rows first")
    matrix, columns, origins, table_columns, cell = _from_matrix(inner, X) if table is None else _from_table(table, X)
    return {
        "table": table,
        "whole": inner,
        "model": shown,
        "X": matrix,
        "columns": columns,
        "row_names": _row_names(X),
        "table_columns": table_columns,
        "origins": origins,
        "cell": cell,
    }


def check_numbers_of_rows(n_rows: int, n_targets: int) -> None:
    """Raise a ValueError if the numbers of rows and of targets differ, or if there are too few rows for a report."""
    if n_targets != n_rows:
        raise ValueError(f"X has {n_rows} rows, but y has {n_targets} entries; pass one target for each row")
    if n_rows < 2:
        raise ValueError(f"a report needs at least 2 rows, got {n_rows}")


def sample_indices(n_rows: int, most: int) -> Array:
    """Return the sorted indices of at most `most` rows, drawn at random with a fixed seed."""
    if n_rows <= most:
        return np.arange(n_rows)
    return np.sort(np.random.default_rng(0).choice(n_rows, most, replace=False))


def _from_matrix(
    model: OneMapRegressor | HyperKernelEnsemble | HyperKernelClassifier, X: Any
) -> tuple[Array, list[str], list[str], list[str], Callable[[int, str], Any]]:
    """Return the fields of `ReportInput` that describe X, which is an array or a numeric data frame.

    These fields are `X`, `columns`, `origins`, `table_columns` and `cell`. The table columns are the columns of the
    model.
    """
    matrix = validate_data(model, X, reset=False, dtype=np.float64)
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        names = getattr(X, "columns", [f"x{j}" for j in range(matrix.shape[1])])
    columns = [str(name) for name in names]
    position = {name: j for j, name in enumerate(columns)}
    return matrix, columns, columns, columns, lambda row, name: float(matrix[row, position[name]])


def _from_table(model: TableModel, X: Any) -> tuple[Array, list[str], list[str], list[str], Callable[[int, str], Any]]:
    """Return the same fields as `_from_matrix`. X is a data frame that a model for data frames encodes."""
    X = as_frame(X)
    matrix = model.transform(X)  # raises an error if a column is missing that the model uses
    encoded = [column for column in model.encoder_.columns for _ in column.names_out]
    positions = {str(name): k for k, name in enumerate(X.columns)}
    position = {str(name): positions[str(name)] for name in model.feature_names_in_ if str(name) in positions}
    columns, origins = model.encoder_.names_out, [column.name for column in encoded]
    return matrix, columns, origins, list(position), lambda row, name: X.iat[row, position[name]]


def _target_values(y: Any, n_targets: int, target: int) -> Array:
    values = np.asarray(y)
    if values.dtype.kind not in "biuf":
        raise ValueError(f"y must be an array of numbers, got the dtype {values.dtype}")
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    expected = 1 if n_targets == 1 else 2
    if values.ndim != expected or (expected == 2 and values.shape[1] != n_targets):
        raise ValueError(f"y has shape {values.shape}, but the model has {n_targets} target(s); pass y as in fit")
    values = (values if expected == 1 else values[:, target]).astype(np.float64)
    if not np.all(np.isfinite(values)):
        raise ValueError("y contains NaN or infinity; remove those rows")
    return values


def _target_name(y: Any, n_targets: int, target: int) -> str:
    names = getattr(y, "columns", None)
    if names is not None:
        return str(names[target if n_targets > 1 else 0])
    name = getattr(y, "name", None)
    return str(name) if name is not None else "y" if n_targets == 1 else f"y[{target}]"


def _row_names(X: Any) -> Sequence[Any]:
    """Return the index of a pandas data frame, or the row numbers."""
    index = getattr(X, "index", None)
    return list(index) if index is not None and not callable(index) else range(len(X))
