"""Which classes can be saved, what each keeps, and what must hold of it for the model to predict.

The table at the end is all there is. Parameters are those of the constructor, and need nothing here. A new attribute
needs a line, among the optional ones as earlier files lack it: with its check in `_MAP`, or, of a dataclass, in
`hkrr.records.values.ATTRIBUTE_RECORDS`.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from hkrr._validation import check_choice, check_choice_of_bool, check_common
from hkrr.classification import HyperKernelClassifier
from hkrr.estimator import HyperKernelRidge
from hkrr.records.format import Refusal
from hkrr.records.values import ATTRIBUTE_RECORDS
from hkrr.saving import checks
from hkrr.saving.baseline_layouts import BASELINES
from hkrr.saving.checks import Check, Sizes, floats, level, number, numeric, one_of, whole
from hkrr.saving.layout import COLUMNS, FUNCTION, OUTPUT, Attributes, Layout
from hkrr.saving.table_checks import encoder, held_out, table_regressor, text, variances
from hkrr.selection import HyperKernelRidgeCV
from hkrr.tables import TableRegressor


def check_model(model: Any) -> None:
    """Raise Refusal unless the model can predict (or transform)."""
    layout = LAYOUTS[type(model).__name__]
    sizes: Sizes = {}
    for name, check in {**layout.attributes, **layout.optional, "feature_names_in_": checks.names}.items():
        if name not in vars(model):
            if name in layout.attributes:
                raise Refusal(f"it lacks {name}")
        elif isinstance(check, tuple):
            inner = getattr(model, name)
            if type(inner) not in [LAYOUTS[known].cls for known in check]:
                raise Refusal(f"{name} is none of {', '.join(check)}")
            check_model(inner)
        else:
            check(name, getattr(model, name), sizes)
    try:
        layout.together(model)
    except Refusal:
        raise
    except ValueError as error:  # of the estimators' own checks of their parameters
        raise Refusal(str(error)) from None


_DEVICE = re.compile(r"(cpu|cuda|mps|xpu)(:\d{1,3})?")


def _map_model(model: Any) -> None:
    check_common(model)
    _check_device(model)
    if len({name in vars(model) for name in ("prior_variance_", "noise_variance_")}) > 1:
        raise Refusal("of prior_variance_ and noise_variance_ it has one alone")


def _check_device(model: Any) -> None:
    if model.device is not None and not _DEVICE.fullmatch(str(model.device)):
        raise Refusal(f"device={model.device!r} is none of PyTorch's")


def _map_model_cv(model: Any) -> None:
    _map_model(model)
    check_choice_of_bool("truncate", model.truncate)


def _classifier(model: Any) -> None:
    _check_device(model)
    check_choice("loss", model.loss, ("logistic", "squared"))
    n_classes = len(model.classes_)
    if np.shape(model.dual_coef_)[1:] != (() if n_classes == 2 else (n_classes,)):
        raise Refusal("dual_coef_ does not fit classes_")
    known = [name in vars(model) for name in _CLASSES]
    if any(known) and not (all(known) and len(model.class_count_) == n_classes):
        raise Refusal("what it says of its classes does not fit classes_")
    if (model.softness_ is None) != (model.loss == "logistic"):
        raise Refusal("softness_ does not fit loss")
    if model.regressor_.n_features_in_ != model.n_features_in_:
        raise Refusal("regressor_ has another number of columns")


_MAP_MODEL: Attributes = {
    **FUNCTION,
    "gamma_": number(positive=True),
    "singular_values_": floats("d"),
    "reg_lambda_": number(),
    "n_iter_": whole,
    "result_": checks.result,
}
_MAP_MODEL_CV: Attributes = {
    **_MAP_MODEL,
    "truncation_": level("*t", at_least=0.0),
    "n_components_": whole,
    "best_score_": number(),
}
_CLASSIFIER: Attributes = {
    **FUNCTION,
    "gamma_": number(positive=True),
    "singular_values_": floats("d"),
    "classes_": checks.classes,
    "softness_": checks.positive_or_none,
    "nu_": checks.positive_or_none,
    "regressor_": ("HyperKernelRidgeCV",),
}
_CLASSES: dict[str, Check] = {
    "class_count_": numeric("K", kinds="i"),
    "class_prior_": floats("K", positive=True),
    "held_out_log_loss_": checks.finite_number,
    "held_out_accuracy_": checks.finite_number,
    "map_shape_": one_of("full", "diagonal", "identity"),
}
_SURE: dict[str, Check] = {
    **dict.fromkeys(("prior_variance_", "noise_variance_"), level("*t", at_least=0.0)),
    "interval_scores_": checks.scores,
    "posterior_factor_": checks.packed,
    "center_weight_": floats("c", positive=True),
}
_MAP: dict[str, Check] = {**OUTPUT, **_SURE, **{name: checks.record(cls) for name, cls in ATTRIBUTE_RECORDS.items()}}
_SEARCHED: dict[str, Check] = {
    **_MAP,
    "map_shape_": one_of("full", "diagonal", "identity"),
    "path_": checks.table,
    "cv_results_": checks.table,
}


_ALL = (
    Layout(HyperKernelRidge, _MAP_MODEL, _MAP, _map_model),
    Layout(HyperKernelRidgeCV, _MAP_MODEL_CV, _SEARCHED, _map_model_cv),
    Layout(HyperKernelClassifier, _CLASSIFIER, {**OUTPUT, **_CLASSES}, _classifier),
    *BASELINES,
    Layout(
        TableRegressor,
        {**COLUMNS, "encoder_": encoder, "model_": ("HyperKernelRidgeCV", "HyperKernelRidge", "KernelRidgeCV")},
        {"held_out_": held_out, "target_": text, "missing_variances_": variances},
        table_regressor,
        copies={"regressor": "model_"},
    ),
)
LAYOUTS: dict[str, Layout] = {layout.cls.__name__: layout for layout in _ALL}
