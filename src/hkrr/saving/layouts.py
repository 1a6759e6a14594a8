"""Which classes can be saved, what each keeps, and what must hold of it for the model to predict.

The table at the end is all there is. Parameters are those of the constructor, and need nothing here. A new attribute
needs a line, among the optional ones as earlier files lack it: with its check in `_MAP`, or, of a dataclass, in
`hkrr.records.values.ATTRIBUTE_RECORDS`.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.neighbors import KNeighborsRegressor
from sklearn.neural_network import MLPRegressor

from hkrr import baselines
from hkrr._validation import check_choice, check_choice_of_bool, check_common, check_int
from hkrr.classification import HyperKernelClassifier
from hkrr.estimator import HyperKernelRidge
from hkrr.records.format import Refusal
from hkrr.records.values import ATTRIBUTE_RECORDS
from hkrr.saving import checks
from hkrr.saving.checks import Check, Sizes, floats, level, number, numeric, one_of, whole
from hkrr.saving.table_checks import encoder, held_out, table_regressor
from hkrr.selection import HyperKernelRidgeCV
from hkrr.tables import TableRegressor


@dataclass(frozen=True)
class Layout:
    """What a class keeps."""

    cls: Any
    # Each fitted attribute and its check, in the order in which these are made; names: a model of one of those classes.
    attributes: dict[str, Check | tuple[str, ...]]
    optional: dict[str, Check] = field(default_factory=dict)
    # What no attribute shows alone.
    together: Callable[[Any], None] = lambda model: None
    # Of scikit-learn's classes the ones that this library sets; None: all.
    parameters: tuple[str, ...] | None = None
    # Parameters that are an estimator, and the attribute that is a fitted copy of it: a file has it once.
    copies: dict[str, str] = field(default_factory=dict)

    @property
    def ours(self) -> bool:
        """Whether the class is this library's: then all that a model holds must have a place."""
        return str(self.cls.__module__).startswith("hkrr.")

    def parameter_names(self) -> tuple[str, ...]:
        """Return the names of the parameters that are kept."""
        return self.parameters or tuple(inspect.signature(self.cls).parameters)


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
    if model.device is not None and not _DEVICE.fullmatch(str(model.device)):
        raise Refusal(f"device={model.device!r} is none of PyTorch's")


def _map_model_cv(model: Any) -> None:
    _map_model(model)
    check_choice_of_bool("truncate", model.truncate)


def _classifier(model: Any) -> None:
    check_choice("loss", model.loss, ("logistic", "squared"))
    n_classes = len(model.classes_)
    if np.shape(model.dual_coef_)[1:] != (() if n_classes == 2 else (n_classes,)):
        raise Refusal("dual_coef_ does not fit classes_")
    if (model.softness_ is None) != (model.loss == "logistic"):
        raise Refusal("softness_ does not fit loss")
    if model.regressor_.n_features_in_ != model.n_features_in_:
        raise Refusal("regressor_ has another number of columns")


def _piecewise(model: Any) -> None:
    D = model.n_features_in_
    n_cells, degree = check_int("n_cells", model.n_cells, 1), check_int("degree", model.degree, 0)
    if D * math.log2(n_cells) > 62:
        raise Refusal("n_cells are too many")
    n_monomials = 1  # D + degree over degree, one factor at a time: it is past the coefficients before it is large
    for k in range(1, degree + 1):
        n_monomials = n_monomials * (D + k) // k
        if n_monomials > len(model.everywhere_):
            break
    if n_monomials != len(model.everywhere_):
        raise Refusal(f"everywhere_ does not fit degree={degree}")
    if not all(0 <= cell < n_cells**D for cell in model.cells_):
        raise Refusal(f"cells_ does not fit n_cells={n_cells}")


def _rcls(model: Any) -> None:
    n_inputs = model.link_._fit_X.shape[1] if hasattr(model.link_, "_fit_X") else model.link_.n_features_in_
    if n_inputs != len(model.components_):
        raise Refusal("link_ does not fit components_")


def _relu(model: Any) -> None:
    if model.network_.n_features_in_ != model.n_features_in_:
        raise Refusal("network_ has another number of columns")


def _neighbors(model: Any) -> None:
    if check_int("n_neighbors", model.n_neighbors, 1) > len(model._y):
        raise Refusal(f"n_neighbors={model.n_neighbors} exceeds the rows there are")


def _layers(*shapes: tuple[str, ...]) -> Check:
    """A list of arrays of those shapes."""

    def check(name: str, value: Any, sizes: Sizes) -> None:
        if not isinstance(value, list) or len(value) != len(shapes):
            raise Refusal(f"{name} is no list of {len(shapes)} arrays")
        for i, (array, letters) in enumerate(zip(value, shapes, strict=True)):
            floats(*letters)(f"{name}[{i}]", array, sizes)

    return check


def _cells(name: str, value: Any, sizes: Sizes) -> None:
    if not isinstance(value, dict):
        raise Refusal(f"{name} is no dict")
    for cell, coefficients in value.items():
        whole(name, cell, sizes)
        floats("monomials")(name, coefficients, sizes)


def _range(name: str, value: Any, sizes: Sizes) -> None:
    if not isinstance(value, tuple) or len(value) != 2:
        raise Refusal(f"{name} is no pair")
    for end in value:
        checks.finite_number(name, end, sizes)
    if value[0] > value[1]:
        raise Refusal(f"{name} ends before it begins")


def _numbers_or_none(name: str, value: Any, sizes: Sizes) -> None:
    """A number or a list of them, or None: which of them scikit-learn's network has depends on how it stopped."""
    for each in value if isinstance(value, list) else [] if value is None else [value]:
        number()(name, each, sizes)


_Attributes = dict[str, Check | tuple[str, ...]]
_COLUMNS: _Attributes = {"n_features_in_": checks.n_columns}
_FUNCTION: _Attributes = {
    **_COLUMNS,
    "components_": floats("d", "D"),
    "x_offset_": floats("D"),
    "kernel_": checks.kernel,
    "centers_": floats("c", "D"),
    "dual_coef_": floats("c", "*t"),
    "intercept_": level("*t"),
}
_MAP_MODEL: _Attributes = {
    **_FUNCTION,
    "gamma_": number(positive=True),
    "singular_values_": floats("d"),
    "reg_lambda_": number(),
    "n_iter_": whole,
    "result_": checks.result,
}
_MAP_MODEL_CV: _Attributes = {
    **_MAP_MODEL,
    "truncation_": level("*t", at_least=0.0),
    "n_components_": whole,
    "best_score_": number(),
}
_CLASSIFIER: _Attributes = {
    **_FUNCTION,
    "gamma_": number(positive=True),
    "singular_values_": floats("d"),
    "classes_": checks.classes,
    "softness_": checks.positive_or_none,
    "nu_": checks.positive_or_none,
    "regressor_": ("HyperKernelRidgeCV",),
}
_MAPPED_EXPANSION: _Attributes = {**_FUNCTION, "_one_target": checks.flag}
_EXPANSION: _Attributes = {**_MAPPED_EXPANSION, "components_": floats("D", "D")}
_SUBSPACE: _Attributes = {**_COLUMNS, "components_": floats("d", "D"), "eigenvalues_": floats("d")}
_BKERNN: _Attributes = {
    **_COLUMNS,
    "mean_": floats("D"),
    "W_": floats("D", "p"),
    "Z_": floats("m", "p"),
    "alpha_": floats("m"),
    "intercept_": checks.finite_number,
    "components_": floats("d", "D"),
    "n_iter_": whole,
}
_PIECEWISE: _Attributes = {
    **_COLUMNS,
    "low_": floats("D"),
    "width_": floats("D", positive=True),
    "everywhere_": floats("monomials"),
    "cells_": _cells,
    "range_": _range,
}
_NETWORK: _Attributes = {
    **_COLUMNS,
    "coefs_": _layers(("D", "units"), ("units", "outputs")),
    "intercepts_": _layers(("units",), ("outputs",)),
    "n_layers_": one_of(3),
    "n_outputs_": one_of(1),
    "out_activation_": one_of("identity"),
    **dict.fromkeys(("n_iter_", "t_"), whole),
    **dict.fromkeys(
        ("loss_", "loss_curve_", "best_loss_", "validation_scores_", "best_validation_score_"), _numbers_or_none
    ),
}
_NETWORK_PARAMETERS = (
    "hidden_layer_sizes",
    "alpha",
    "max_iter",
    "early_stopping",
    "n_iter_no_change",
    "random_state",
)
_OUTPUT: dict[str, Check] = {"_sklearn_output_config": checks.output_config}
_SURE: dict[str, Check] = {
    **dict.fromkeys(("prior_variance_", "noise_variance_"), level("*t", at_least=0.0)),
    "interval_scores_": checks.scores,
    "posterior_factor_": checks.packed,
    "center_weight_": floats("c", positive=True),
}
_MAP: dict[str, Check] = {**_OUTPUT, **_SURE, **{name: checks.record(cls) for name, cls in ATTRIBUTE_RECORDS.items()}}
_SEARCHED: dict[str, Check] = {
    **_MAP,
    "map_shape_": one_of("full", "diagonal", "identity"),
    "path_": checks.table,
    "cv_results_": checks.table,
}


_ALL = (
    Layout(HyperKernelRidge, _MAP_MODEL, _MAP, _map_model),
    Layout(HyperKernelRidgeCV, _MAP_MODEL_CV, _SEARCHED, _map_model_cv),
    Layout(HyperKernelClassifier, _CLASSIFIER, _OUTPUT, _classifier),
    Layout(
        baselines.KernelRidgeCV,
        {**_EXPANSION, "reg_lambda_": number(), "gamma_": number(positive=True), "loo_error_": number()},
    ),
    Layout(baselines.RBFNetwork, {**_EXPANSION, "n_iter_": whole}),
    Layout(baselines.HyperRBFNetwork, {**_MAPPED_EXPANSION, "n_iter_": whole}),
    Layout(baselines.RecursiveFeatureMachine, {**_EXPANSION, "M_": floats("D", "D"), "best_iter_": whole}),
    Layout(baselines.BKerNN, _BKERNN),
    Layout(
        baselines.ReLUNetwork,
        {
            **_COLUMNS,
            "moments_": checks.moments,
            "y_scale_": checks.finite_number,
            "network_": ("MLPRegressor",),
            "n_iter_": whole,
        },
        together=_relu,
    ),
    Layout(
        baselines.RCLS,
        {**_SUBSPACE, "link_": ("KNeighborsRegressor", "PiecewisePolynomial")},
        _OUTPUT,
        _rcls,
    ),
    Layout(baselines.PiecewisePolynomial, _PIECEWISE, together=_piecewise),
    Layout(baselines.KDR, {**_SUBSPACE, "n_iter_": whole}, _OUTPUT),
    *(
        Layout(cls, _SUBSPACE, _OUTPUT)
        for cls in (
            baselines.GradientKDR,
            baselines.MAVE,
            baselines.OPG,
            baselines.PHD,
            baselines.RCLSDirections,
            baselines.SAVE,
            baselines.SIR,
        )
    ),
    Layout(
        TableRegressor,
        {**_COLUMNS, "encoder_": encoder, "model_": ("HyperKernelRidgeCV", "HyperKernelRidge", "KernelRidgeCV")},
        {"held_out_": held_out},
        table_regressor,
        copies={"regressor": "model_"},
    ),
    # Parts of the models above.
    Layout(
        KNeighborsRegressor,
        {"_fit_X": floats("rows", "D"), "_y": numeric("rows")},
        together=_neighbors,
        parameters=("n_neighbors",),
    ),
    Layout(MLPRegressor, _NETWORK, parameters=_NETWORK_PARAMETERS),
)
LAYOUTS: dict[str, Layout] = {layout.cls.__name__: layout for layout in _ALL}
