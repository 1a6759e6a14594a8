"""The schemas of saved models: which classes can be saved, which attributes are stored, and how they are checked.

``SCHEMAS``, at the end, contains the schemas of all classes, and ``FORMER`` those of files of earlier versions. A
schema lists fitted attributes. The parameters of the constructor are also stored, but need no entry. When an estimator
gets a new fitted attribute, add the attribute and its check to the optional attributes of the schema, because files of
earlier versions lack the attribute. If the value of the attribute is a dataclass, the dataclass also needs the
decorator `hkrr._storage.json_codec.storable`.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.neighbors import KNeighborsRegressor
from sklearn.neural_network import MLPRegressor

from hkrr import baselines
from hkrr._base.checks import check_bool, check_choice, check_int
from hkrr._maps import ShapeName
from hkrr._storage.safetensors_format import Refusal
from hkrr.estimators._parameter_checks import check_shared_parameters
from hkrr.estimators.classification import HyperKernelClassifier
from hkrr.estimators.classification.class_scores import ClassScores
from hkrr.estimators.ensemble import HyperKernelEnsemble
from hkrr.estimators.fitted.base import Regressor
from hkrr.estimators.fitted.diagnostics import Diagnostics
from hkrr.estimators.ridge import HyperKernelRidge
from hkrr.estimators.ridge_cv import HyperKernelRidgeCV
from hkrr.saving import attribute_checks as checks
from hkrr.saving.attribute_checks import (
    Check,
    Sizes,
    encoder,
    float_per_target,
    floats,
    held_out,
    held_out_classes,
    non_negative_int,
    number,
    number_between,
    numeric,
    one_of,
    or_none,
    table_model,
    text,
    variances,
)
from hkrr.saving.former_classifier import PARAMETERS, FormerClassifier, convert
from hkrr.tables import TableClassifier, TableRegressor


@dataclass(frozen=True)
class Schema:
    """The parameters and fitted attributes that are stored for models of one class, and their checks."""

    cls: type[Any]
    # The check of each fitted attribute, in the order in which the checks run. For an attribute that is a model, a
    # tuple with the names of the allowed classes. For a list of models, a list with these names.
    attributes: dict[str, Check | tuple[str, ...] | list[str]]
    optional: dict[str, Check] = field(default_factory=dict)  # checks of attributes that can be absent
    check_together: Callable[[Any], None] = lambda model: None  # checks conditions on several attributes or parameters
    # Names of the stored parameters. None means all parameters. The schemas of this library's classes have None.
    parameters: tuple[str, ...] | None = None
    # Parameters that are estimators, and the attributes with their fitted clones. Only the fitted clones are stored.
    copies: dict[str, str] = field(default_factory=dict)
    is_part: bool = False  # whether models of the class are stored only as attributes of other models
    # Converts a model of an earlier version to the present class. None if the class is the present one.
    convert: Callable[[FormerClassifier], BaseEstimator] | None = None

    @property
    def is_own(self) -> bool:
        """Whether the class belongs to this library. If so, the schema must list all attributes of the class."""
        return str(self.cls.__module__).startswith("hkrr.")

    def parameter_names(self) -> tuple[str, ...]:
        """Return the names of the parameters that are stored."""
        return self.parameters or tuple(inspect.signature(self.cls).parameters)


# Checks of attributes that several classes have in common: the columns, the kernel expansion, the map, and the output
# configuration of scikit-learn.
Attributes = dict[str, Check | tuple[str, ...] | list[str]]
COLUMNS: Attributes = {"n_features_in_": checks.n_columns}
_EXPANSION: Attributes = {
    "x_offset_": floats("D"),
    "kernel_": checks.kernel,
    "centers_": floats("c", "D"),
    "dual_coef_": floats("c", "*t"),
    "intercept_": float_per_target("*t"),
}
FUNCTION: Attributes = {**COLUMNS, "map_": checks.linear_map, **_EXPANSION}
OUTPUT: dict[str, Check] = {"_sklearn_output_config": checks.output_config}


def schema_of_file(name: str, attributes: Any) -> Schema:
    """Return the schema that the class with this name had in the version that stored the attributes."""
    if name in FORMER and isinstance(attributes, dict) and FORMER[name][0] in attributes:
        return FORMER[name][1]
    return SCHEMAS[name]


def check_model(model: BaseEstimator | FormerClassifier, schema: Schema | None = None) -> None:
    """Raise Refusal if an attribute of a model is missing or invalid. A valid model can predict or transform.

    `schema` is the schema of the model. If it is None, it is the present schema of the class.
    """
    schema = SCHEMAS[type(model).__name__] if schema is None else schema
    sizes: Sizes = {}
    for name, check in {**schema.attributes, **schema.optional, "feature_names_in_": checks.names}.items():
        if name not in vars(model):
            if name in schema.attributes:
                raise Refusal(f"it lacks the attribute {name}")
        elif isinstance(check, tuple):
            _check_inner(name, getattr(model, name), check)
        elif isinstance(check, list):
            if not isinstance(getattr(model, name), list):
                raise Refusal(f"{name} is not a list")
            for i, inner in enumerate(getattr(model, name)):
                _check_inner(f"{name}[{i}]", inner, check)
        else:
            check(name, getattr(model, name), sizes)
    try:
        schema.check_together(model)
    except Refusal:
        raise
    except ValueError as error:  # raised by an estimator's own check of its parameters
        raise Refusal(str(error)) from None


def _check_inner(name: str, model: object, allowed: Iterable[str]) -> None:
    if type(model) not in [SCHEMAS[known].cls for known in allowed]:
        raise Refusal(f"{name} is not one of {', '.join(allowed)}")
    check_model(model)


_DEVICE = re.compile(r"(cpu|cuda|mps|xpu)(:\d{1,3})?")


def _regressor(model: HyperKernelRidge | HyperKernelRidgeCV | HyperKernelEnsemble) -> None:
    check_shared_parameters(model)
    _check_device(model)
    if len({name in vars(model) for name in ("prior_variance_", "noise_variance_")}) > 1:
        raise Refusal("it must have both prior_variance_ and noise_variance_, or neither")


def _map_model(model: HyperKernelRidge | HyperKernelRidgeCV) -> None:
    _regressor(model)
    if model.map_.shape != model.result_.B.shape:
        raise Refusal(f"map_ has the shape {model.map_.shape}, but result_.B has the shape {model.result_.B.shape}")


def _check_device(model: Regressor | HyperKernelClassifier | FormerClassifier) -> None:
    if model.device is not None and not _DEVICE.fullmatch(str(model.device)):
        raise Refusal(f"device={model.device!r} is not a PyTorch device")


def _map_model_cv(model: HyperKernelRidgeCV) -> None:
    _map_model(model)
    check_bool("truncate", model.truncate)


def _ensemble(model: HyperKernelEnsemble) -> None:
    _regressor(model)
    if len(model.members_) != len(model.weights_):
        raise Refusal(f"weights_ has {len(model.weights_)} entries, but members_ has {len(model.members_)}")
    with np.errstate(over="ignore"):
        if np.min(model.weights_) < 0 or not np.isfinite(np.sum(model.weights_)):
            raise Refusal("weights_ contains negative numbers, or numbers that are too large")
    for i, member in enumerate(model.members_):
        if member.n_features_in_ != model.n_features_in_:
            raise Refusal(
                f"members_[{i}] was fitted with {member.n_features_in_} columns, but the model with "
                f"{model.n_features_in_}"
            )
        if np.shape(member.intercept_) != np.shape(model.intercept_):
            raise Refusal(f"members_[{i}] and the model have different numbers of targets")
        if not hasattr(member, "map_shape_"):
            raise Refusal(f"members_[{i}] lacks the attribute map_shape_")


def _classifier(model: HyperKernelClassifier) -> None:
    _check_device(model)
    _all_or_none(model, _CLASSES)
    scores, n_classes = model.scores_, len(model.classes_)
    if np.shape(scores.intercept_) != (n_classes,):
        raise Refusal(f"scores_ must have {n_classes} targets, because there are {n_classes} classes")
    if scores.n_features_in_ != model.n_features_in_:
        raise Refusal(
            f"scores_ was fitted with {scores.n_features_in_} columns, but the model with {model.n_features_in_}"
        )
    if np.min(getattr(model, "class_count_", 1)) < 1:
        raise Refusal("class_count_ contains numbers below 1")
    if np.max(getattr(model, "class_prior_", 1.0)) > 1.0:
        raise Refusal("class_prior_ contains numbers above 1")
    if model.refined_ and len(model.members_) > 1:
        raise Refusal(f"refined_ is True, but scores_ has {len(model.members_)} members")
    if hasattr(model, "softness_") and not model.refined_:
        raise Refusal("it has the attribute softness_, but refined_ is False")


def _former_classifier(model: FormerClassifier) -> None:
    _check_device(model)
    check_choice("loss", model.loss, ("logistic", "squared"))
    n_classes = len(model.classes_)
    if np.shape(model.dual_coef_)[1:] != (() if n_classes == 2 else (n_classes,)):
        shape = "(n_centers,)" if n_classes == 2 else f"(n_centers, {n_classes})"
        raise Refusal(
            f"dual_coef_ must have the shape {shape}, because there are {n_classes} classes; "
            f"it has the shape {np.shape(model.dual_coef_)}"
        )
    _all_or_none(model, _FORMER_CLASSES)
    if (model.softness_ is None) != (model.loss == "logistic"):
        raise Refusal("softness_ must be None if loss is 'logistic', and a number otherwise")
    regressor = model.regressor_
    if regressor.n_features_in_ != model.n_features_in_:
        raise Refusal(
            f"regressor_ was fitted with {regressor.n_features_in_} columns, but the model with {model.n_features_in_}"
        )
    if np.shape(regressor.intercept_) != np.shape(model.intercept_):
        raise Refusal("regressor_ and the model have different numbers of targets")


def _all_or_none(model: object, names: Iterable[str]) -> None:
    known = [name in vars(model) for name in names]
    if any(known) and not all(known):
        raise Refusal(f"it has some of the attributes {', '.join(names)}, but not all of them")


_SHAPE = one_of(*(name.value for name in ShapeName))
_MAP_MODEL: Attributes = {
    **FUNCTION,
    "gamma_": number(positive=True),
    "singular_values_": floats("d"),
    "reg_lambda_": number(),
    "n_iter_": non_negative_int,
    "result_": checks.result,
}
_MAP_MODEL_CV: Attributes = {
    **_MAP_MODEL,
    "truncation_": float_per_target("*t", at_least=0.0),
    "n_components_": non_negative_int,
    "best_score_": number(),
}
_CLASSES: dict[str, Check] = {
    "class_count_": numeric("K", kinds="i"),
    "class_prior_": floats("K", positive=True),
    "held_out_log_loss_": number_between(0.0, math.inf),
    "held_out_accuracy_": number_between(0.0, 1.0),
}
# Bounds on the softness of classifiers of version 0.1, which was learned between 0.02 and 10.
_softness = number_between(0.01, 20.0)
_CLASSIFIER: Attributes = {
    **COLUMNS,
    "classes_": checks.classes,
    "scores_": ("ClassScores",),
    "offsets_": floats("K"),
    "refined_": checks.flag,
}
_FORMER_CLASSES: dict[str, Check] = {**_CLASSES, "map_shape_": _SHAPE}
_FORMER_CLASSIFIER: Attributes = {
    **FUNCTION,
    "gamma_": number(positive=True),
    "singular_values_": floats("d"),
    "classes_": checks.classes,
    "softness_": or_none(_softness),
    "nu_": or_none(number(positive=True)),
    "regressor_": ("HyperKernelRidgeCV",),
}
_REGRESSOR: dict[str, Check] = {
    **dict.fromkeys(("prior_variance_", "noise_variance_"), float_per_target("*t", at_least=0.0)),
    "interval_scores_": checks.scores,
    "diagnostics_": checks.record(Diagnostics),
}
_MAP: dict[str, Check] = {
    **OUTPUT,
    **_REGRESSOR,
    "posterior_factor_": checks.packed,
    "center_weight_": floats("c", positive=True),
}
_ENSEMBLE: Attributes = {
    **COLUMNS,
    "members_": ["HyperKernelRidgeCV"],
    "weights_": floats("n_members"),
    "intercept_": float_per_target("*t"),
    "truncation_": float_per_target("*t", at_least=0.0),
    "path_": checks.table,
}
_SEARCHED: dict[str, Check] = {
    **_MAP,
    "map_shape_": _SHAPE,
    "spectrum_": floats("width"),
    "column_transform_": checks.column_transform,
    "path_": checks.table,
    "cv_results_": checks.table,
}


def _piecewise(model: baselines.PiecewisePolynomial) -> None:
    D = model.n_features_in_
    n_cells, degree = check_int("n_cells", model.n_cells, 1), check_int("degree", model.degree, 0)
    if D * math.log2(n_cells) > 62:
        raise Refusal(f"n_cells={n_cells} is too large for {D} columns: n_cells^n_features must be at most 2^62")
    # Compute the binomial coefficient (D + degree choose degree) factor by factor, and stop before it becomes huge.
    n_monomials = 1
    for k in range(1, degree + 1):
        n_monomials = n_monomials * (D + k) // k
        if n_monomials > len(model.everywhere_):
            break
    if n_monomials != len(model.everywhere_):
        raise Refusal(
            f"everywhere_ must have one coefficient for each monomial of degree at most {degree} in {D} columns; "
            f"it has {len(model.everywhere_)}"
        )
    if not all(0 <= cell < n_cells**D for cell in model.cells_):
        raise Refusal(f"the keys of cells_ must be at least 0 and below n_cells^n_features = {n_cells}^{D}")


def _rcls(model: baselines.RCLS) -> None:
    n_inputs = model.link_._fit_X.shape[1] if hasattr(model.link_, "_fit_X") else model.link_.n_features_in_
    if n_inputs != len(model.components_):
        raise Refusal(f"link_ was fitted with {n_inputs} columns, but components_ has {len(model.components_)} rows")


def _relu(model: baselines.ReLUNetwork) -> None:
    if model.network_.n_features_in_ != model.n_features_in_:
        raise Refusal(
            f"network_ was fitted with {model.network_.n_features_in_} columns, but the model with "
            f"{model.n_features_in_}"
        )


def _neighbors(model: KNeighborsRegressor) -> None:
    if check_int("n_neighbors", model.n_neighbors, 1) > len(model._y):
        raise Refusal(f"n_neighbors={model.n_neighbors} exceeds the number of training rows, {len(model._y)}")


def _layers(*shapes: tuple[str, ...]) -> Check:
    """Return a check for a list of float arrays with the given shapes."""

    def check(name: str, value: Any, sizes: Sizes) -> None:
        if not isinstance(value, list) or len(value) != len(shapes):
            raise Refusal(f"{name} is not a list of {len(shapes)} arrays")
        for i, (array, letters) in enumerate(zip(value, shapes, strict=True)):
            floats(*letters)(f"{name}[{i}]", array, sizes)

    return check


def _cells(name: str, value: Any, sizes: Sizes) -> None:
    if not isinstance(value, dict):
        raise Refusal(f"{name} is not a dict")
    for cell, coefficients in value.items():
        non_negative_int(name, cell, sizes)
        floats("monomials")(name, coefficients, sizes)


def _range(name: str, value: Any, sizes: Sizes) -> None:
    if not isinstance(value, tuple) or len(value) != 2:
        raise Refusal(f"{name} is not a tuple of two numbers")
    for end in value:
        checks.finite_number(name, end, sizes)
    if value[0] > value[1]:
        raise Refusal(f"the maximum in {name} is below the minimum")


def _numbers_or_none(name: str, value: Any, sizes: Sizes) -> None:
    """Check a number, a list of numbers or None.

    Some attributes of MLPRegressor have one of these types, depending on whether early stopping is used.
    """
    for each in value if isinstance(value, list) else [] if value is None else [value]:
        number()(name, each, sizes)


_MAPPED_EXPANSION: Attributes = {**COLUMNS, "components_": floats("d", "D"), **_EXPANSION, "_one_target": checks.flag}
_SQUARE_EXPANSION: Attributes = {**_MAPPED_EXPANSION, "components_": floats("D", "D")}
_SUBSPACE: Attributes = {**COLUMNS, "components_": floats("d", "D"), "eigenvalues_": floats("d")}
_BKERNN: Attributes = {
    **COLUMNS,
    "mean_": floats("D"),
    "W_": floats("D", "p"),
    "Z_": floats("m", "p"),
    "alpha_": floats("m"),
    "intercept_": checks.finite_number,
    "components_": floats("d", "D"),
    "n_iter_": non_negative_int,
}
_PIECEWISE: Attributes = {
    **COLUMNS,
    "low_": floats("D"),
    "width_": floats("D", positive=True),
    "everywhere_": floats("monomials"),
    "cells_": _cells,
    "range_": _range,
}
_NETWORK: Attributes = {
    **COLUMNS,
    "coefs_": _layers(("D", "units"), ("units", "outputs")),
    "intercepts_": _layers(("units",), ("outputs",)),
    "n_layers_": one_of(3),
    "n_outputs_": one_of(1),
    "out_activation_": one_of("identity"),
    **dict.fromkeys(("n_iter_", "t_"), non_negative_int),
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

BASELINES = (
    Schema(
        baselines.KernelRidgeCV,
        {**_SQUARE_EXPANSION, "reg_lambda_": number(), "gamma_": number(positive=True), "loo_error_": number()},
    ),
    Schema(baselines.RBFNetwork, {**_SQUARE_EXPANSION, "n_iter_": non_negative_int}),
    Schema(baselines.HyperRBFNetwork, {**_MAPPED_EXPANSION, "n_iter_": non_negative_int}),
    Schema(
        baselines.RecursiveFeatureMachine, {**_SQUARE_EXPANSION, "M_": floats("D", "D"), "best_iter_": non_negative_int}
    ),
    Schema(baselines.BKerNN, _BKERNN),
    Schema(
        baselines.ReLUNetwork,
        {
            **COLUMNS,
            "moments_": checks.moments,
            "y_scale_": checks.finite_number,
            "network_": ("MLPRegressor",),
            "n_iter_": non_negative_int,
        },
        check_together=_relu,
    ),
    Schema(
        baselines.RCLS,
        {**_SUBSPACE, "link_": ("KNeighborsRegressor", "PiecewisePolynomial")},
        OUTPUT,
        _rcls,
    ),
    Schema(baselines.PiecewisePolynomial, _PIECEWISE, check_together=_piecewise),
    Schema(baselines.KDR, {**_SUBSPACE, "n_iter_": non_negative_int}, OUTPUT),
    *(
        Schema(cls, _SUBSPACE, OUTPUT)
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
    # The scikit-learn estimators that are attributes of the models above.
    Schema(
        KNeighborsRegressor,
        {"_fit_X": floats("rows", "D"), "_y": numeric("rows")},
        check_together=_neighbors,
        parameters=("n_neighbors",),
    ),
    Schema(MLPRegressor, _NETWORK, parameters=_NETWORK_PARAMETERS),
)


_ALL = (
    Schema(HyperKernelRidge, _MAP_MODEL, _MAP, _map_model),
    Schema(HyperKernelRidgeCV, _MAP_MODEL_CV, _SEARCHED, _map_model_cv),
    Schema(HyperKernelEnsemble, _ENSEMBLE, _REGRESSOR, _ensemble),
    Schema(ClassScores, _ENSEMBLE, {"diagnostics_": checks.record(Diagnostics)}, _ensemble, is_part=True),
    Schema(HyperKernelClassifier, _CLASSIFIER, {**OUTPUT, **_CLASSES, "softness_": _softness}, _classifier),
    *BASELINES,
    Schema(
        TableRegressor,
        {
            **COLUMNS,
            "encoder_": encoder,
            "model_": ("HyperKernelRidgeCV", "HyperKernelRidge", "HyperKernelEnsemble", "KernelRidgeCV"),
        },
        {
            "held_out_": held_out,
            "target_": text,
            "missing_variances_": variances,
            "outliers_": numeric("outliers", kinds="i"),
        },
        table_model,
        copies={"regressor": "model_"},
    ),
    Schema(
        TableClassifier,
        {**COLUMNS, "encoder_": encoder, "model_": ("HyperKernelClassifier",)},
        {"held_out_": held_out_classes, "target_": text},
        table_model,
        copies={"classifier": "model_"},
    ),
)
SCHEMAS: dict[str, Schema] = {schema.cls.__name__: schema for schema in _ALL}
# For classes whose attributes have changed: an attribute that only files of earlier versions have, and the schema of
# these files.
FORMER: dict[str, tuple[str, Schema]] = {
    "HyperKernelClassifier": (
        "regressor_",
        Schema(
            FormerClassifier,
            _FORMER_CLASSIFIER,
            {**OUTPUT, **_FORMER_CLASSES},
            _former_classifier,
            parameters=PARAMETERS,
            convert=convert,
        ),
    )
}
