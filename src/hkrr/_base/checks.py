"""Checks of arguments. Each error names the argument, the accepted values and the value received."""

from __future__ import annotations

import importlib.util
import math
import numbers
from collections.abc import Callable
from typing import Any

import numpy as np

from hkrr._base.linear_algebra import Array


def check_installed(module: str, extra: str, what: str) -> None:
    """Raise an ImportError if an optional package is missing.

    The message names the `extra` of hkrr that installs the package `module`. `what`, a plural noun such as "plots",
    names the feature that needs the package.
    """
    if importlib.util.find_spec(module) is None:
        raise ImportError(f"{what} need the package {module}: install it with pip install 'hkrr[{extra}]'")


def check_int(name: str, value: Any, minimum: int) -> int:
    """Return the value as an int. Raise a ValueError if it is not an integer or is less than ``minimum``."""
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < minimum:
        raise ValueError(f"{name} must be an integer of at least {minimum}, got {value!r}")
    return int(value)


def check_positive(name: str, value: Any, *, zero: bool = False) -> float:
    """Return the value as a float. Raise a ValueError if it is not a positive finite number.

    With ``zero=True`` the value may also be zero.
    """
    finite = isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)
    if not finite or value < 0 or (value == 0 and not zero):
        raise ValueError(f"{name} must be a {'non-negative' if zero else 'positive'} finite number, got {value!r}")
    return float(value)


def check_choice(name: str, value: Any, choices: tuple[str, ...], also: str = "") -> None:
    """Raise a ValueError if the value is not one of the choices.

    The message lists the choices, followed by `also`, a text such as ", or a number" that describes further accepted
    values.
    """
    if not (isinstance(value, str) and value in choices):
        known = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{name} must be one of {known}{also}; got {value!r}")


def check_matrix(name: str, value: Any, n_features: int, n_rows: int | None = None) -> Array:
    """Return the value as a float64 matrix. Raise a ValueError if its shape is wrong or an entry is not finite.

    The shape must be ``(n_rows, n_features)``. If `n_rows` is None, any positive number of rows is accepted.
    """
    try:
        matrix = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be an array of numbers of shape (n, {n_features})") from None
    expected = f"({'n' if n_rows is None else n_rows}, {n_features})"
    wrong_rows = matrix.ndim == 2 and n_rows is not None and matrix.shape[0] != n_rows
    if matrix.ndim != 2 or matrix.shape[1] != n_features or matrix.shape[0] == 0 or wrong_rows:
        raise ValueError(f"{name} must be an array of shape {expected}, got shape {matrix.shape}")
    if not np.all(np.isfinite(matrix)):
        raise ValueError(f"{name} contains NaN or infinity; all entries must be finite")
    return matrix


def require_finite(what: str, compute: Callable[[], Array], cause: str = "X is far from the training data") -> Array:
    """Return ``compute()``, an array computed from a fitted model.

    If the computation fails, or the array contains NaN or infinity, a ValueError is raised. The error message names the
    array by `what`, a plural noun such as "predictions", and gives `cause` as the likely cause.
    """
    try:
        # Suppress NumPy's warnings: the ValueError below reports results that are not finite.
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            values = compute()
            if np.all(np.isfinite(values)):
                return values
            why = "contain NaN or infinity"
    except (FloatingPointError, np.linalg.LinAlgError) as error:
        why = f"cannot be computed ({error})"
    raise ValueError(f"the {what} {why}: {cause}, or the model is damaged")


def check_bool(name: str, value: Any) -> None:
    """Raise a ValueError if the value is not True or False."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} must be True or False, got {value!r}")
