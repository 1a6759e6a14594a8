"""What must hold of a TableRegressor for it to predict: records of plain values that agree with each other."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hkrr._validation import check_choice
from hkrr.columns import DAY_FIRST, KINDS, MONTH_FIRST, Column, Encoder, HeldOutScores
from hkrr.records.format import Refusal
from hkrr.saving import checks
from hkrr.saving.checks import Sizes

_column, _encoder, _scores = (checks.record(cls) for cls in (Column, Encoder, HeldOutScores))


def encoder(name: str, value: Any, sizes: Sizes) -> None:
    """An Encoder, each of its columns sound."""
    _encoder(name, value, sizes)
    for column in value.columns:
        _column(f"{name}.columns", column, sizes)
        if column.kind not in KINDS:
            raise Refusal(f"{name} has a column of an unknown kind, {column.kind[:40]!r}")
        if not math.isfinite(column.fill):
            raise Refusal(f"{name} fills with NaN or infinity")
        if column.kind == "truth" and len(column.values) != 2:
            raise Refusal(f"{name} has a truth that is not one of two values")
        if column.kind == "date" and column.values not in ((), (DAY_FIRST,), (MONTH_FIRST,)):
            raise Refusal(f"{name} has dates that are written in an unknown way")


def text(name: str, value: Any, sizes: Sizes) -> None:
    """A text."""
    if not isinstance(value, str):
        raise Refusal(f"{name} is no text")


def variances(name: str, value: Any, sizes: Sizes) -> None:
    """An array of finite numbers that are not negative."""
    if not isinstance(value, np.ndarray) or value.ndim != 1 or value.dtype != np.float64:
        raise Refusal(f"{name} is no array of numbers")
    if not np.all(np.isfinite(value)) or np.any(value < 0):
        raise Refusal(f"{name} holds numbers that are no variances")


def held_out(name: str, value: Any, sizes: Sizes) -> None:
    """Scores, as many of each."""
    _scores(name, value, sizes)
    if len({len(each) for each in (value.methods, value.r2, value.low, value.high)}) != 1:
        raise Refusal(f"{name} has not as many scores as methods")


def table_regressor(model: Any) -> None:
    """The columns, their names and the inner model's agree."""
    check_choice("missing", model.missing, ("impute", "refuse"))
    check_choice("missing", model.encoder_.missing, ("impute", "refuse"))
    if not isinstance(model.regressor, bool | None) and not hasattr(model.regressor, "get_params"):
        raise Refusal("regressor is no estimator")
    names = [column.name for column in model.encoder_.columns]
    if names != list(getattr(model, "feature_names_in_", ())):
        raise Refusal("encoder_ has other columns than feature_names_in_")
    if len(getattr(model, "missing_variances_", names)) != len(names):
        raise Refusal("missing_variances_ has other columns than encoder_")
    if len(model.encoder_.names_out) != model.model_.n_features_in_:
        raise Refusal("model_ does not fit encoder_")
