"""What a fitted model is, as plain values: for people's eyes, and as JSON."""

from __future__ import annotations

import inspect
import math
from dataclasses import asdict
from typing import Any

import numpy as np

from hkrr.importance import FeatureImportances, column_names
from hkrr.kernels import kernel_name
from hkrr.tables.directions import directions
from hkrr.tables.regressor import TableRegressor

_OF_CLASSES = (
    "classes_",
    "class_count_",
    "class_prior_",
    "nu_",
    "softness_",
    "held_out_log_loss_",
    "held_out_accuracy_",
)


def describe(model: Any) -> dict[str, Any]:
    """Return what there is to know of a fitted model, as texts, finite numbers, None, lists and dicts of them.

    Parameters
    ----------
    model : fitted estimator of this library

    Returns
    -------
    dict
        "class", "parameters" (those that are not the defaults), "n_features"; of a `TableRegressor` "target" and
        "held_out" (where it knows them) and "columns"; of a map "n_components", "map_shape", "kernel", "reg_lambda",
        "n_centers", "directions", "importances" (columns and shares, the largest first), "stopped" (why the search
        ended), "diagnostics" and "findings"; of a classifier "classes", "class_count", "class_prior", "nu", "softness",
        "held_out_log_loss" and "held_out_accuracy".

    Examples
    --------
    >>> from hkrr import HyperKernelRidge
    >>> from hkrr.datasets import make_mim_sines
    >>> from hkrr.tables import describe
    >>> data = make_mim_sines(200, n_features=4, n_components=2, random_state=0)
    >>> found = describe(HyperKernelRidge(2, random_state=0).fit(data.X, data.y))
    >>> found["class"], found["n_components"], found["parameters"]
    ('HyperKernelRidge', 2, {'random_state': 0})
    """
    table = model if isinstance(model, TableRegressor) else None
    inner = model if table is None else table.model_
    found: dict[str, Any] = {"class": type(model).__name__, "parameters": _changed(inner)}
    if table is not None:
        found["regressor"] = type(inner).__name__
        found["missing"] = table.missing
        if target_of(table) is not None:
            found["target"] = target_of(table)
        if hasattr(table, "held_out_"):
            found["held_out"] = asdict(table.held_out_)
        columns = table.columns_
        found["columns"] = [dict(zip(columns, each, strict=True)) for each in zip(*columns.values(), strict=True)]
    elif hasattr(model, "feature_names_in_"):
        found["columns"] = [{"name": str(name)} for name in model.feature_names_in_]
    found["n_features"] = int(inner.n_features_in_)
    for name in ("n_components_", "map_shape_", "reg_lambda_"):
        if hasattr(inner, name):
            found[name.rstrip("_")] = getattr(inner, name)
    for name in _OF_CLASSES:
        if hasattr(inner, name):
            found[name.rstrip("_")] = np.asarray(getattr(inner, name)).tolist()
    if hasattr(inner, "kernel_"):
        found["kernel"] = kernel_name(inner.kernel_)
        found["n_centers"] = len(inner.centers_)
        found.setdefault("n_components", len(inner.components_))
    if hasattr(inner, "singular_values_"):
        found["directions"] = [asdict(each) for each in directions(model)]
    if isinstance(inner, FeatureImportances):
        names = column_names(inner) if table is None else [str(name) for name in table.feature_names_out_]
        shares = inner.feature_importances_
        order = np.argsort(-shares, kind="stable")
        found["importances"] = [{"column": names[j], "share": float(shares[j])} for j in order]
    if hasattr(inner, "result_"):
        found["stopped"] = inner.result_.reason
    if hasattr(inner, "diagnostics_"):
        found["diagnostics"] = asdict(inner.diagnostics_)
        found["findings"] = [message for _, message in inner.diagnostics_.findings()]
    plain: dict[str, Any] = _plain(found)
    return plain


def target_of(model: Any) -> str | None:
    """Return the name of what a model predicts, or None: that of y, or else of the rows held out."""
    known = getattr(model, "target_", None)
    return known if known is not None else getattr(getattr(model, "held_out_", None), "target", None)


def _changed(model: Any) -> dict[str, Any]:
    """Return the parameters of an estimator that are not the defaults."""
    defaults = {name: each.default for name, each in inspect.signature(type(model)).parameters.items()}
    parameters = model.get_params(deep=False)
    return {name: value for name, value in parameters.items() if repr(value) != repr(defaults.get(name))}


def _plain(value: Any) -> Any:
    """Return a value as JSON can hold it; numbers that are not finite are None there."""
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, bool | int | float | str) else repr(value)
