"""The paper's adaptive rule, its table: the truncated held-out error of every pair (d, lambda) on every split."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import joblib
import numpy as np
from sklearn.base import clone
from tqdm.auto import tqdm

from hkrr._arrays import Array
from hkrr.estimator import HyperKernelRidge
from hkrr.exceptions import FitError


def grid_errors(
    base: HyperKernelRidge,
    dimensions: list[int],
    lambdas: tuple[Any, ...],
    X: Array,
    y: Array,
    weight: Array | None,
    splits: list[tuple[Array, Array]],
    warm_start: bool,
    n_jobs: int | None,
    verbose: int = 0,
) -> Array:
    """Return the errors, by number of directions, lambda (from the largest down) and split.

    A fit that fails has an infinite error. A split without a row that counts is left out: it decides nothing.
    """
    jobs = [(d, split) for d in dimensions for split in splits]
    found = joblib.Parallel(n_jobs=n_jobs, return_as="generator")(
        joblib.delayed(_errors_along_lambda)(base, d, lambdas, X, y, weight, split, warm_start) for d, split in jobs
    )
    told = f"{len(dimensions)} numbers of directions x {len(splits)} splits, {len(lambdas)} lambdas each"
    errors = list(tqdm(found, desc=told, total=len(jobs), disable=not verbose))
    table = np.array(errors).reshape(len(dimensions), len(splits), len(lambdas)).transpose(0, 2, 1)
    return table[:, :, ~np.all(np.isnan(table), axis=(0, 1))]


def _errors_along_lambda(
    base: HyperKernelRidge,
    n_components: int,
    lambdas: tuple[Any, ...],
    X: Array,
    y: Array,
    weight: Array | None,
    split: tuple[Array, Array],
    warm_start: bool,
) -> list[float]:
    """Return the truncated held-out error of one number of directions, for each lambda from the largest down."""
    train, test = split
    if weight is not None:
        train, test = train[weight[train] > 0], test[weight[test] > 0]
    if len(test) == 0:
        return [math.nan] * len(lambdas)
    M = largest_target(y[train])
    errors: list[float] = []
    for model in models_along_lambda(base, n_components, lambdas, X[train], y[train], _part(weight, train), warm_start):
        if model is None:
            errors.append(math.inf)
            continue
        squared = (np.clip(model.predict(X[test]), -M, M) - y[test]) ** 2
        errors.append(float(np.average(squared.reshape(len(test), -1).mean(axis=1), weights=_part(weight, test))))
    return errors


def models_along_lambda(
    base: HyperKernelRidge,
    n_components: int,
    lambdas: tuple[Any, ...],
    X: Array,
    y: Array,
    weight: Array | None,
    warm_start: bool,
) -> Iterator[HyperKernelRidge | None]:
    """Yield the fit for each lambda, from the largest down, or None where it fails; from the one before if so asked."""
    start: dict[str, Any] = {}
    for reg_lambda in lambdas:
        model = clone(base).set_params(n_components=n_components, reg_lambda=reg_lambda, **start)
        try:
            model.fit(X, y, weight)
        except FitError:
            yield None
            continue
        if warm_start and np.linalg.matrix_rank(model.components_ * X.std(axis=0)) == n_components:
            start = {"init": model.components_, "kernel": model.kernel_}
        yield model


def largest_target(y: Array) -> Array:
    """Return M, the largest absolute target (of each)."""
    return np.max(np.abs(y.astype(np.float64)), axis=0)  # in float: an int8 of -128 has no absolute value


def _part(weight: Array | None, rows: Array) -> Array | None:
    return None if weight is None else weight[rows]
