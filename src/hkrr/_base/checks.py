"""Checks of the arguments: each error names the argument, what it got, and what it takes."""

from __future__ import annotations

import importlib.util
import math
import numbers
import os
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from hkrr._arrays import Array

# Numbers of directions that a grid tries where none are given: each is a column of fits.
_GRID_COMPONENTS = 10
# Where HyperKernelRidge can start: sampled maps, or a classical estimate of the subspace.
INITS = ("random", "sir", "save", "phd", "opg", "mave")


def check_installed(module: str, extra: str, what: str) -> None:
    """Raise with the remedy where an optional package is not there."""
    if importlib.util.find_spec(module) is None:
        raise ImportError(f"{what} need the package {module}: install it with pip install 'hkrr[{extra}]'")


def check_int(name: str, value: Any, minimum: int) -> int:
    """Return a whole number of at least ``minimum``."""
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < minimum:
        raise ValueError(f"{name} must be a whole number of at least {minimum}, got {value!r}")
    return int(value)


def check_positive(name: str, value: Any, *, zero: bool = False) -> float:
    """Return a finite number above zero (or at zero, where that is allowed)."""
    fine = isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)
    if not fine or value < 0 or (value == 0 and not zero):
        raise ValueError(f"{name} must be a {'non-negative' if zero else 'positive'} finite number, got {value!r}")
    return float(value)


def check_choice(name: str, value: Any, choices: tuple[str, ...], also: str = "") -> None:
    """Raise unless the value is one of the names."""
    if not (isinstance(value, str) and value in choices):
        known = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{name} must be one of {known}{also}; got {value!r}")


def check_matrix(name: str, value: Any, n_features: int, n_rows: int | None = None) -> Array:
    """Return a finite float64 matrix of that many columns (and rows)."""
    try:
        matrix = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be an array of numbers of shape (n, {n_features})") from None
    expected = f"({'n' if n_rows is None else n_rows}, {n_features})"
    wrong_rows = matrix.ndim == 2 and n_rows is not None and matrix.shape[0] != n_rows
    if matrix.ndim != 2 or matrix.shape[1] != n_features or matrix.shape[0] == 0 or wrong_rows:
        raise ValueError(f"{name} must be an array of shape {expected}, got shape {matrix.shape}")
    if not np.all(np.isfinite(matrix)):
        raise ValueError(f"{name} holds NaN or infinity; give finite numbers")
    return matrix


def in_finite_numbers(what: str, compute: Callable[[], Array], cause: str = "X is far from what was fitted") -> Array:
    """Return what is computed of a fitted model, or raise in words where that overflows or cannot be factorised."""
    try:
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):  # told of below
            values = compute()
            if np.all(np.isfinite(values)):
                return values
            why = "hold NaN or infinity"
    except (FloatingPointError, np.linalg.LinAlgError) as error:
        why = f"cannot be computed ({error})"
    raise ValueError(f"the {what} {why}: {cause}, or the model is damaged")


def check_choice_of_bool(name: str, value: Any) -> None:
    """Raise unless the value is True or False."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} must be True or False, got {value!r}")


def check_common(model: Any) -> None:
    """Raise for the first of the parameters that every estimator here has, and that cannot be."""
    if model.time_limit is not None:
        check_positive("time_limit", model.time_limit)
    if model.block_size != "auto":
        check_int("block_size (if not 'auto')", model.block_size, 1)
    for name in ("fit_intercept", "scale_features"):
        check_choice_of_bool(name, getattr(model, name))
    if model.n_jobs is not None and (not isinstance(model.n_jobs, numbers.Integral) or model.n_jobs == 0):
        raise ValueError(f"n_jobs must be None or a whole number other than 0, got {model.n_jobs!r}")
    if model.checkpoint is not None and not isinstance(model.checkpoint, str | os.PathLike):
        raise ValueError(f"checkpoint must be the path of a file, or None; got {model.checkpoint!r}")
    check_positive("checkpoint_every", model.checkpoint_every, zero=True)
    check_int("verbose", int(model.verbose) if isinstance(model.verbose, bool) else model.verbose, 0)


def check_callbacks(callbacks: Any) -> None:
    """Raise unless they are functions, or None."""
    if callbacks is not None and not (
        isinstance(callbacks, list | tuple) and all(callable(callback) for callback in callbacks)
    ):
        raise ValueError(f"callbacks must be a list of functions of one State, or None; got {callbacks!r}")


def check_parameters(model: Any, n_rows: int, n_features: int) -> None:
    """Raise for the first parameter of a HyperKernelRidge that cannot be, before anything is computed."""
    if check_int("n_components", model.n_components, 1) > n_features:
        raise ValueError(
            f"n_components={model.n_components} exceeds the number of columns of X, n_features={n_features}; "
            f"ask for at most {n_features} directions"
        )
    if not isinstance(model.reg_lambda, str):
        check_positive("reg_lambda", model.reg_lambda)
    elif model.reg_lambda != "auto" or model.criterion not in ("evidence", "loo"):
        raise ValueError(
            f"reg_lambda must be a positive number, or 'auto' with criterion='evidence' or 'loo'; got "
            f"{model.reg_lambda!r} with criterion={model.criterion!r}"
        )
    if model.gamma != "median":
        check_positive("gamma (if not 'median')", model.gamma)
    check_choice("criterion", model.criterion, ("training", "evidence", "loo"))
    if model.criterion != "training" and (model.solver in ("varpro", "agd") or hasattr(model.solver, "norm_bound")):
        raise ValueError(f"criterion={model.criterion!r} needs solver='lbfgs'; VarPro and AGD take 'training' only")
    check_int("n_init", model.n_init, 1)
    check_int("max_iter", model.max_iter, 0)
    check_positive("tol", model.tol, zero=True)
    check_common(model)
    check_callbacks(model.callbacks)
    if isinstance(model.init, str):
        check_choice("init", model.init, INITS, " or an array (n_components, n_features)")
    elif isinstance(model.init, BaseEstimator):
        raise ValueError(
            f"init must be one of {', '.join(map(repr, INITS))}, or an array (n_components, n_features); got the "
            f"estimator {model.init!r}: give its name, or fit it and give its components_"
        )
    if not isinstance(model.centers, str):
        if model.n_centers != "auto":
            raise ValueError(f"n_centers={model.n_centers!r} and an array of centers: leave n_centers at 'auto'")
        return
    check_choice("centers", model.centers, ("uniform", "leverage", "kmeans"), " or an array of points")
    if isinstance(model.n_centers, str):
        check_choice("n_centers", model.n_centers, ("auto", "all"), " or a whole number")
    elif check_int("n_centers", model.n_centers, 1) > n_rows:
        raise ValueError(f"n_centers={model.n_centers} exceeds n_samples={n_rows}; use n_centers='all'")


def check_search(model: Any, n_features: int) -> list[int]:
    """Raise for the first parameter of a HyperKernelRidgeCV that cannot be; return the numbers of directions to try."""
    check_choice("criterion", model.criterion, ("evidence", "loo", "training"))
    if model.criterion == "training" and model.cv is None:
        raise ValueError("criterion='training' cannot choose lambda by itself: give cv, for example cv='holdout'")
    if model.cv is None and not isinstance(model.reg_lambdas, str):
        raise ValueError("reg_lambdas is the grid that goes with cv; without cv lambda is learned: leave it at 'auto'")
    if isinstance(model.reg_lambdas, str):
        check_choice("reg_lambdas", model.reg_lambdas, ("auto",), " or a list of positive numbers")
    elif np.ndim(model.reg_lambdas) != 1 or len(model.reg_lambdas) == 0:
        raise ValueError(f"reg_lambdas must be 'auto' or a list of positive numbers, got {model.reg_lambdas!r}")
    if isinstance(model.cv, str):
        check_choice("cv", model.cv, ("holdout",), ", a number of folds or a splitter")
    check_int("n_init", model.n_init, 1)
    check_common(model)
    check_choice_of_bool("truncate", model.truncate)
    check_choice_of_bool("warm_start", model.warm_start)
    if model.time_limit is not None and model.cv is not None:
        raise ValueError("give one of time_limit and cv: a grid is shortened by n_components= and reg_lambdas=")
    check_callbacks(model.callbacks)
    if model.callbacks and model.cv is not None:
        raise ValueError("give one of callbacks and cv: they are told of the search that there is without cv")
    if model.warm_start and model.cv is None:
        raise ValueError("warm_start goes with cv: it starts each lambda of the grid from the one above it")
    if model.refit != "full":
        check_int("refit (if not 'full')", model.refit, 1)
    if isinstance(model.n_components, str):
        check_choice("n_components", model.n_components, ("auto",), ", a whole number or a list of them")
        return list(range(1, (n_features if model.cv is None else min(n_features, _GRID_COMPONENTS)) + 1))
    if np.size(model.n_components) == 0:
        raise ValueError("n_components is empty: give at least one number of directions")
    dimensions = sorted({check_int("n_components", d, 1) for d in np.atleast_1d(model.n_components).tolist()})
    if dimensions[-1] > n_features:
        raise ValueError(
            f"n_components={dimensions[-1]} exceeds the number of columns of X, n_features={n_features}; "
            f"ask for at most {n_features} directions"
        )
    return dimensions
