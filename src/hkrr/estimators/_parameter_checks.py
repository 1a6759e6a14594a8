"""Checks of the parameters of the estimators, made before anything is computed.

Each error names the parameter, the value received and the values allowed.
"""

from __future__ import annotations

import numbers
import os
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator

from hkrr._base.checks import check_bool, check_choice, check_int, check_positive
from hkrr.criteria import CRITERIA
from hkrr.kernels import get_kernel
from hkrr.solvers import AGD, LBFGS, VarPro, get_solver

if TYPE_CHECKING:
    from hkrr.estimators.ensemble import HyperKernelEnsemble
    from hkrr.estimators.ridge import HyperKernelRidge
    from hkrr.estimators.ridge_cv import HyperKernelRidgeCV

# Strings that HyperKernelRidge accepts as `init`. All except "random" are names of classical subspace estimators.
_INITS = ("random", "sir", "save", "phd", "opg", "mave")
# With `cv` and ``n_components="auto"``, the maximum number of directions in the grid.
_GRID_COMPONENTS = 10


def check_shared_parameters(model: HyperKernelRidge | HyperKernelRidgeCV | HyperKernelEnsemble) -> None:
    """Raise ValueError if a parameter that all estimators share is invalid."""
    if model.time_limit is not None:
        check_positive("time_limit", model.time_limit)
    if model.block_size != "auto":
        check_int("block_size (if not 'auto')", model.block_size, 1)
    for name in ("fit_intercept", "scale_features"):
        check_bool(name, getattr(model, name))
    if model.n_jobs is not None and (not isinstance(model.n_jobs, numbers.Integral) or model.n_jobs == 0):
        raise ValueError(f"n_jobs must be None or a nonzero integer, got {model.n_jobs!r}")
    if model.checkpoint is not None and not isinstance(model.checkpoint, str | os.PathLike):
        raise ValueError(f"checkpoint must be a file path or None, got {model.checkpoint!r}")
    check_positive("checkpoint_every", model.checkpoint_every, zero=True)
    check_int("verbose", int(model.verbose) if isinstance(model.verbose, bool) else model.verbose, 0)


def check_callbacks(callbacks: Any) -> None:
    if callbacks is not None and not (
        isinstance(callbacks, list | tuple) and all(callable(callback) for callback in callbacks)
    ):
        raise ValueError(f"callbacks must be a list of functions with one argument, or None; got {callbacks!r}")


def _check_n_components(n_components: int, n_features: int) -> None:
    if n_components > n_features:
        raise ValueError(
            f"n_components={n_components} exceeds the number of columns of X, n_features={n_features}; "
            f"use at most n_components={n_features}"
        )


def check_ridge_parameters(model: HyperKernelRidge, n_rows: int, n_features: int) -> None:
    """Raise ValueError if a parameter of a HyperKernelRidge is invalid for this number of rows and columns."""
    _check_n_components(check_int("n_components", model.n_components, 1), n_features)
    if not isinstance(model.reg_lambda, str):
        check_positive("reg_lambda", model.reg_lambda)
    elif model.reg_lambda != "auto" or model.criterion not in CRITERIA:
        raise ValueError(
            f"reg_lambda must be a positive number, or 'auto' with criterion={' or '.join(map(repr, CRITERIA))}; got "
            f"{model.reg_lambda!r} with criterion={model.criterion!r}"
        )
    if model.gamma != "median":
        check_positive("gamma (if not 'median')", model.gamma)
    check_choice("criterion", model.criterion, ("training", *CRITERIA))
    if model.criterion != "training" and isinstance(get_solver(model.solver), VarPro | AGD):
        raise ValueError(
            f"criterion={model.criterion!r} needs solver='lbfgs'; 'varpro' and 'agd' support criterion='training' only"
        )
    check_int("n_init", model.n_init, 1)
    check_int("max_iter", model.max_iter, 0)
    check_positive("tol", model.tol, zero=True)
    check_shared_parameters(model)
    check_callbacks(model.callbacks)
    if isinstance(model.init, str):
        check_choice("init", model.init, _INITS, " or an array (n_components, n_features)")
    elif isinstance(model.init, BaseEstimator):
        raise ValueError(
            f"init must be one of {', '.join(map(repr, _INITS))}, or an array (n_components, n_features); got the "
            f"estimator {model.init!r}: pass the name of the method, or fit the estimator and pass its components_"
        )
    if not isinstance(model.centers, str):
        if model.n_centers != "auto":
            raise ValueError(
                f"n_centers={model.n_centers!r} conflicts with passing an array as centers: leave n_centers at 'auto'"
            )
        return
    check_choice("centers", model.centers, ("uniform", "leverage", "kmeans"), " or an array of points")
    if isinstance(model.n_centers, str):
        check_choice("n_centers", model.n_centers, ("auto", "all"), " or an integer")
    elif check_int("n_centers", model.n_centers, 1) > n_rows:
        raise ValueError(f"n_centers={model.n_centers} exceeds n_samples={n_rows}; use at most {n_rows}, or 'all'")


def check_search_parameters(model: HyperKernelRidgeCV | HyperKernelEnsemble) -> None:
    """Raise ValueError if a parameter that the search of an estimator uses is invalid."""
    check_int("n_init", model.n_init, 1)
    if model.refit != "full":
        check_int("refit (if not 'full')", model.refit, 1)
    check_shared_parameters(model)
    check_callbacks(model.callbacks)


def check_cv_parameters(model: HyperKernelRidgeCV, n_features: int) -> list[int]:
    """Raise ValueError if a parameter of the model is invalid. Return the values of `n_components` to try."""
    check_choice("criterion", model.criterion, (*CRITERIA, "training"))
    check_search_parameters(model)
    check_bool("truncate", model.truncate)
    check_bool("warm_start", model.warm_start)
    if isinstance(model.reg_lambdas, str):
        check_choice("reg_lambdas", model.reg_lambdas, ("auto",), " or a list of positive numbers")
    elif np.ndim(model.reg_lambdas) != 1 or len(model.reg_lambdas) == 0:
        raise ValueError(f"reg_lambdas must be 'auto' or a list of positive numbers, got {model.reg_lambdas!r}")
    if model.cv is None:
        _check_search_parameters(model)
        most = n_features
    else:
        _check_grid_parameters(model)
        most = min(n_features, _GRID_COMPONENTS)
    if isinstance(model.n_components, str):
        check_choice("n_components", model.n_components, ("auto",), ", an integer or a list of integers")
        return list(range(1, most + 1))
    if np.size(model.n_components) == 0:
        raise ValueError("n_components is empty: pass at least one number of directions")
    given = [model.n_components] if np.ndim(model.n_components) == 0 else list(model.n_components)
    dimensions = sorted({check_int("n_components", d, 1) for d in given})
    _check_n_components(dimensions[-1], n_features)
    return dimensions


def _check_search_parameters(model: HyperKernelRidgeCV) -> None:
    """Raise ValueError if a parameter of a HyperKernelRidgeCV without `cv` is invalid."""
    if not (isinstance(model.kernel, str) and model.kernel == "auto"):
        get_kernel(model.kernel)
    if not isinstance(get_solver(model.solver), LBFGS):
        raise ValueError(
            f"solver={model.solver!r} needs cv: without cv, L-BFGS learns the map and lambda together; leave solver at "
            "'lbfgs', or pass cv"
        )
    if model.criterion == "training":
        raise ValueError("criterion='training' cannot select lambda by itself: pass cv, for example cv='holdout'")
    if not isinstance(model.reg_lambdas, str):
        raise ValueError("reg_lambdas needs cv: without cv, lambda is learned; leave reg_lambdas at 'auto', or pass cv")
    if model.warm_start:
        raise ValueError("warm_start=True needs cv, which compares a grid of lambdas; pass cv, or use warm_start=False")


def _check_grid_parameters(model: HyperKernelRidgeCV) -> None:
    """Raise ValueError if a parameter of a HyperKernelRidgeCV with `cv` is invalid."""
    if isinstance(model.cv, str):
        check_choice("cv", model.cv, ("holdout",), ", a number of folds or a splitter")
    if isinstance(model.kernel, str) and model.kernel == "auto":
        raise ValueError("kernel='auto' cannot be combined with cv: pass one kernel, or leave cv at None")
    get_kernel(model.kernel)
    get_solver(model.solver)
    if model.time_limit is not None:
        raise ValueError(
            "time_limit cannot be combined with cv: to shorten the search, pass fewer values in n_components and "
            "reg_lambdas"
        )
    if model.callbacks:
        raise ValueError(
            "callbacks cannot be combined with cv, because they report the progress of a search that runs only if cv "
            "is None; leave cv at None, or omit callbacks"
        )
