"""Predictions for the rows of a table, as a table: of a model over tables, or of any other that was saved."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np

from hkrr._arrays import Array
from hkrr.columns import Column, Encoder, nearest
from hkrr.exceptions import TableError
from hkrr.rows.source import shown
from hkrr.tables.regressor import TableRegressor, as_frame


def predict_frame(
    model: Any, frame: Any, *, coverage: float | None = None, std: bool = False, keep: Sequence[str] = ()
) -> Any:
    """Return the predictions for a data frame, row by row, as a data frame.

    Parameters
    ----------
    model : fitted estimator with ``predict``
        A `TableRegressor`, which takes columns by name. Another one takes columns of numbers: by the names it was
        fitted with, or, where it had none, all of them in their order.
    frame : data frame
    coverage : float or None, default=None
        For columns "lower" and "upper": the intervals of this coverage; not of a classifier.
    std : bool, default=False
        For a column "std": the standard deviation.
    keep : sequence of str, default=()
        Columns of the frame to carry over, first.

    Returns
    -------
    pandas.DataFrame
        With a column "prediction" (of several targets "prediction 0", "prediction 1", ...). Of a classifier that is the
        label, and there is a column "probability of LABEL" for each class.

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
    found: dict[str, Any] = {}
    for name in keep:
        if name not in names:
            raise TableError(f"there is no column {shown(name)} to keep{nearest(name, names)}")
        found[name] = frame.iloc[:, names.index(name)]
    if not hasattr(model, "predict"):
        raise TableError(f"the model is a {type(model).__name__}, which transforms, and has nothing to predict")
    X: Any = frame if isinstance(model, TableRegressor) else as_columns(model, frame)
    inner = getattr(model, "model_", model)
    if std and "return_std" not in inspect.signature(inner.predict).parameters:
        raise ValueError(f"a {type(inner).__name__} has no standard deviations")
    predicted, spread = model.predict(X, return_std=True) if std else (model.predict(X), None)
    parts: dict[str, Array] = {"prediction": predicted}
    if hasattr(model, "predict_proba"):
        each_class = zip(model.classes_.tolist(), model.predict_proba(X).T, strict=True)
        parts.update({f"probability of {label}": shares for label, shares in each_class})
    if coverage is not None:
        if not hasattr(model, "predict_interval"):
            instead = "; its probabilities say how sure it is" if hasattr(model, "predict_proba") else ""
            raise ValueError(f"a {type(inner).__name__} has no intervals{instead}")
        parts["lower"], parts["upper"] = model.predict_interval(X, coverage)
    if spread is not None:
        parts["std"] = spread
    for name, values in parts.items():
        values = np.asarray(values)
        columns = {name: values} if values.ndim == 1 else {f"{name} {k}": each for k, each in enumerate(values.T)}
        taken = next((each for each in columns if each in found), None)
        if taken is not None:
            raise TableError(f"a column to keep is called {shown(taken)}, as one of the predictions is: rename it")
        found.update(columns)
    return pd.DataFrame(found, index=frame.index)


def as_columns(model: Any, frame: Any) -> Any:
    """Return the columns of numbers that a model which knows nothing of tables was fitted with.

    Parameters
    ----------
    model : estimator
        Fitted; its columns are taken by name, or by position where it has no names.
    frame : data frame

    Returns
    -------
    data frame, or array where the model has no names

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

    n, known = model.n_features_in_, getattr(model, "feature_names_in_", None)
    if known is None and frame.shape[1] != n:
        raise TableError(
            f"the model was fitted with {n} columns without names, and these are {frame.shape[1]}: "
            "give those alone, in their order"
        )
    names = [str(name) for name in (frame.columns if known is None else known)]
    X = Encoder(tuple(Column(name, "number") for name in names), "refuse").transform(frame)
    return X if known is None else pd.DataFrame(X, columns=names)
