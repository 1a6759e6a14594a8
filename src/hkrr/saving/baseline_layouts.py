"""The layouts of `hkrr.baselines`, and of the parts of scikit-learn that they are made of."""

from __future__ import annotations

import math
from typing import Any

from sklearn.neighbors import KNeighborsRegressor
from sklearn.neural_network import MLPRegressor

from hkrr import baselines
from hkrr._validation import check_int
from hkrr.records.format import Refusal
from hkrr.saving import checks
from hkrr.saving.checks import Check, Sizes, floats, number, numeric, one_of, whole
from hkrr.saving.layout import COLUMNS, FUNCTION, OUTPUT, Attributes, Layout


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


_MAPPED_EXPANSION: Attributes = {**FUNCTION, "_one_target": checks.flag}
_EXPANSION: Attributes = {**_MAPPED_EXPANSION, "components_": floats("D", "D")}
_SUBSPACE: Attributes = {**COLUMNS, "components_": floats("d", "D"), "eigenvalues_": floats("d")}
_BKERNN: Attributes = {
    **COLUMNS,
    "mean_": floats("D"),
    "W_": floats("D", "p"),
    "Z_": floats("m", "p"),
    "alpha_": floats("m"),
    "intercept_": checks.finite_number,
    "components_": floats("d", "D"),
    "n_iter_": whole,
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

BASELINES = (
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
            **COLUMNS,
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
        OUTPUT,
        _rcls,
    ),
    Layout(baselines.PiecewisePolynomial, _PIECEWISE, together=_piecewise),
    Layout(baselines.KDR, {**_SUBSPACE, "n_iter_": whole}, OUTPUT),
    *(
        Layout(cls, _SUBSPACE, OUTPUT)
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
    # Parts of the models above.
    Layout(
        KNeighborsRegressor,
        {"_fit_X": floats("rows", "D"), "_y": numeric("rows")},
        together=_neighbors,
        parameters=("n_neighbors",),
    ),
    Layout(MLPRegressor, _NETWORK, parameters=_NETWORK_PARAMETERS),
)
