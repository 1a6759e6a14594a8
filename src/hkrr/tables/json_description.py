"""Description of a fitted model as a dict of plain values, which can be printed or written as JSON."""

from __future__ import annotations

import inspect
import math
import os
from dataclasses import asdict
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, is_classifier

from hkrr.estimators.classification import HyperKernelClassifier
from hkrr.estimators.ensemble import HyperKernelEnsemble
from hkrr.estimators.fitted.fitted_attributes import KernelAndMap
from hkrr.estimators.fitted.importance import FeatureImportancesMixin
from hkrr.kernels import kernel_name
from hkrr.tables.direction_summary import directions
from hkrr.tables.inner_models import unwrap_model

_CLASSIFIER_ATTRIBUTES = (
    "classes_",
    "class_count_",
    "class_prior_",
    "refined_",
    "held_out_log_loss_",
    "held_out_accuracy_",
)


def describe(model: BaseEstimator) -> dict[str, Any]:
    """Return a description of a fitted model as nested dicts and lists of strings, finite numbers and None.

    Parameters
    ----------
    model : estimator of this library
        A fitted model.

    Returns
    -------
    dict
        The keys depend on the model. A key is absent if the model does not have the corresponding attribute.

        - All models have "class", "parameters" (the parameters that differ from their defaults) and "n_features". For a
          model for data frames, "parameters" and "n_features" describe its ``model_``.
        - A model for data frames also has "regressor" or "classifier" (the class of its ``model_``), "missing" and
          "columns" (the encoding of each column). It has "target" and "held_out" if the name of the target and the
          scores on held-out rows are known, and "outliers" (the index labels of the outliers) if there are outliers.
          For other models that were fitted with column names, "columns" contains the names.
        - A model with a map also has "n_components", "map_shape", "kernel", "reg_lambda", "n_centers", "directions",
          "importances" (of the columns, in decreasing order), "stopped" (why the solver or the search stopped),
          "diagnostics" and "findings" (the warnings that follow from the diagnostics).
        - An ensemble also has "members", with the keys "weight", "kernel", "shape" and "n_components" for each member,
          largest weight first. The keys that describe a map are those of the first member.
        - A classifier also has "members", "classes", "class_count", "class_prior", "refined", "held_out_log_loss" and
          "held_out_accuracy".

    Examples
    --------
    >>> from hkrr import HyperKernelRidge
    >>> from hkrr.datasets import make_mim_sines
    >>> from hkrr.tables import describe
    >>> data = make_mim_sines(200, n_features=4, n_components=2, random_state=0)
    >>> description = describe(HyperKernelRidge(2, random_state=0).fit(data.X, data.y))
    >>> description["class"], description["n_components"], description["parameters"]
    ('HyperKernelRidge', 2, {'random_state': 0})
    """
    models = unwrap_model(model)
    table, inner, first = models
    content: dict[str, Any] = {"class": type(model).__name__, "parameters": _changed_parameters(inner)}
    if table is not None:
        content["classifier" if is_classifier(table) else "regressor"] = type(inner).__name__
        content["missing"] = table.missing
        if target_name(table) is not None:
            content["target"] = target_name(table)
        if hasattr(table, "held_out_"):
            content["held_out"] = asdict(table.held_out_)
        if hasattr(table, "outliers_"):
            content["outliers"] = table.outliers_.tolist()
        columns = table.columns_
        content["columns"] = [dict(zip(columns, each, strict=True)) for each in zip(*columns.values(), strict=True)]
    elif hasattr(model, "feature_names_in_"):
        content["columns"] = [{"name": str(name)} for name in model.feature_names_in_]
    content["n_features"] = int(inner.n_features_in_)
    if isinstance(inner, HyperKernelEnsemble | HyperKernelClassifier):
        content["members"] = [
            {"weight": weight, **KernelAndMap.of(member)._asdict()}
            for weight, member in zip(inner.weights_, inner.members_, strict=True)
        ]
    for name in ("n_components_", "map_shape_", "reg_lambda_"):
        if hasattr(first, name):
            content[name.rstrip("_")] = getattr(first, name)
    for name in _CLASSIFIER_ATTRIBUTES:
        if hasattr(inner, name):
            content[name.rstrip("_")] = np.asarray(getattr(inner, name)).tolist()
    if hasattr(first, "kernel_"):
        content["kernel"] = kernel_name(first.kernel_)
        content["n_centers"] = len(first.centers_)
        content.setdefault("n_components", len(first.map_ if hasattr(first, "map_") else first.components_))
    if hasattr(first, "singular_values_"):
        content["directions"] = [asdict(each) for each in directions(model)]
    if isinstance(first, FeatureImportancesMixin):
        names, shares = models.column_names, inner.feature_importances_
        order = np.argsort(-shares, kind="stable")
        content["importances"] = [{"column": names[j], "share": float(shares[j])} for j in order]
    if hasattr(first, "result_"):
        content["stopped"] = first.result_.reason
    if hasattr(inner, "diagnostics_"):
        content["diagnostics"] = asdict(inner.diagnostics_)
        content["findings"] = [message for _, message in inner.diagnostics_.findings()]
    plain: dict[str, Any] = _as_json_value(content)
    return plain


def target_name(model: BaseEstimator) -> str | None:
    """Return the name of the target: ``target_``, or else ``held_out_.target``, or None if the model has neither."""
    name: str | None = getattr(model, "target_", None)
    return name if name is not None else getattr(getattr(model, "held_out_", None), "target", None)


def _changed_parameters(model: BaseEstimator) -> dict[str, Any]:
    """Return the parameters of an estimator that differ from their default values."""
    defaults = {name: each.default for name, each in inspect.signature(type(model)).parameters.items()}
    parameters = model.get_params(deep=False)
    return {name: value for name, value in parameters.items() if repr(value) != repr(defaults.get(name))}


def _as_json_value(value: Any) -> Any:
    """Convert a value to JSON types. Numbers that are not finite become None. Other objects become their repr."""
    if isinstance(value, dict):
        return {str(key): _as_json_value(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json_value(each) for each in value]
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, bool | int | float | str) else repr(value)
