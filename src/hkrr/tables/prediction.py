"""Predictions for the rows of a table, returned as a data frame with the same rows."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator

from hkrr._base.error_text import quoted
from hkrr._base.linear_algebra import Array
from hkrr.exceptions import TableError
from hkrr.tables.encoding import Column, Encoder, suggest_names
from hkrr.tables.inner_models import unwrap_model
from hkrr.tables.table_model import TableModel, as_frame

if TYPE_CHECKING:
    import pandas as pd


def predict_frame(
    model: BaseEstimator,
    frame: pd.DataFrame,
    *,
    coverage: float | None = None,
    std: bool = False,
    keep: Sequence[str] = (),
) -> pd.DataFrame:
    """Predict the target for the rows of a data frame, and return the predictions as a data frame.

    Parameters
    ----------
    model : estimator with ``predict``
        A fitted `TableRegressor` or `TableClassifier`, or a model that was fitted to numeric columns. The columns of
        the frame are matched by name. If the model was fitted without column names, all columns of the frame are used
        in their order.
    frame : pandas or polars data frame
        The rows to predict.
    coverage : float or None, default=None
        Probability that a prediction interval contains the target. The ends of the intervals are returned in the
        columns "lower" and "upper". None returns no intervals. A ValueError is raised if the model has no intervals.
        Classifiers have no intervals.
    std : bool, default=False
        Whether to return predictive standard deviations in a column "std". A ValueError is raised if the model has
        no standard deviations.
    keep : sequence of str, default=()
        Columns of the frame to copy to the front of the result.

    Returns
    -------
    pandas.DataFrame
        The predictions are in the column "prediction", or in "prediction 0", "prediction 1", ... for several targets.
        For a classifier, "prediction" contains the predicted label, and there is a column "probability of LABEL" for
        each class.

    Examples
    --------
    >>> import pandas as pd
    >>> from hkrr import HyperKernelRidge
    >>> from hkrr.tables import predict_frame
    >>> frame = pd.DataFrame({"name": ["a", "b", "c"], "area": [1.0, 2.0, 3.0]})
    >>> model = HyperKernelRidge(1, random_state=0).fit(frame[["area"]], [2.0, 4.0, 6.0])
    >>> list(predict_frame(model, frame, keep=["name"]).columns)
    ['name', 'prediction']
    """
    import pandas as pd

    frame = as_frame(frame)
    names = [str(name) for name in frame.columns]
    result: dict[str, Any] = {}
    for name in keep:
        if name not in names:
            raise TableError(f"there is no column {quoted(name)} to keep{suggest_names(name, names)}")
        result[name] = frame.iloc[:, names.index(name)]
    if not hasattr(model, "predict"):
        raise TableError(f"a {type(model).__name__} cannot predict; it only transforms its inputs")
    X: Any = frame if isinstance(model, TableModel) else as_columns(model, frame)
    inner = unwrap_model(model).whole
    if std and "return_std" not in inspect.signature(inner.predict).parameters:
        raise ValueError(f"a {type(inner).__name__} has no predictive standard deviations; predict without them")
    predictions, deviations = model.predict(X, return_std=True) if std else (model.predict(X), None)
    parts: dict[str, Array] = {"prediction": predictions}
    if hasattr(model, "predict_proba"):
        probabilities = zip(model.classes_.tolist(), model.predict_proba(X).T, strict=True)
        parts.update({f"probability of {label}": column for label, column in probabilities})
    if coverage is not None:
        if not hasattr(model, "predict_interval"):
            alternative = "; use its class probabilities instead" if hasattr(model, "predict_proba") else ""
            raise ValueError(f"a {type(inner).__name__} has no prediction intervals{alternative}")
        parts["lower"], parts["upper"] = model.predict_interval(X, coverage)
    if deviations is not None:
        parts["std"] = deviations
    for name, part in parts.items():
        values = np.asarray(part)
        columns = {name: values} if values.ndim == 1 else {f"{name} {k}": each for k, each in enumerate(values.T)}
        conflict = next((each for each in columns if each in result), None)
        if conflict is not None:
            raise TableError(
                f"cannot keep the column {quoted(conflict)} because a result column has the same name; rename it in "
                "the table"
            )
        result.update(columns)
    return pd.DataFrame(result, index=frame.index)


def as_columns(model: BaseEstimator, frame: pd.DataFrame) -> pd.DataFrame | Array:
    """Select the columns of a table that a model was fitted to, and convert them to numbers.

    Parameters
    ----------
    model : estimator
        A model that was fitted to numeric columns. Columns are matched by name, or by position if the model was fitted
        without column names.
    frame : pandas.DataFrame
        The table. Its columns may contain numbers stored as strings. A TableError is raised if a value is missing or is
        not a number.

    Returns
    -------
    pandas.DataFrame or array
        The columns as numbers. An array is returned if the model was fitted without column names.

    Examples
    --------
    >>> import pandas as pd
    >>> from hkrr import HyperKernelRidge
    >>> from hkrr.tables import as_columns
    >>> frame = pd.DataFrame({"name": ["a", "b", "c"], "area": ["1", "2", "3"]})
    >>> model = HyperKernelRidge(1, random_state=0).fit(pd.DataFrame({"area": [1.0, 2.0, 3.0]}), [2.0, 4.0, 6.0])
    >>> as_columns(model, frame)["area"].tolist()
    [1.0, 2.0, 3.0]
    """
    import pandas as pd

    n, fitted_names = model.n_features_in_, getattr(model, "feature_names_in_", None)
    if fitted_names is None and frame.shape[1] != n:
        raise TableError(
            f"the model was fitted with {n} columns without names, but the table has {frame.shape[1]} columns; select "
            f"the {n} columns of the fit, in the same order"
        )
    names = [str(name) for name in (frame.columns if fitted_names is None else fitted_names)]
    X = Encoder(tuple(Column(name, "number") for name in names), "refuse").transform(frame)
    return X if fitted_names is None else pd.DataFrame(X, columns=names)
