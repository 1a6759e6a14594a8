"""The paper's adaptive rule, its table: the truncated held-out error of every pair (d, lambda) on every split."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

import joblib
import numpy as np
from sklearn.base import clone
from sklearn.model_selection import ShuffleSplit, check_cv
from tqdm.auto import tqdm

from hkrr import journal
from hkrr._arrays import Array
from hkrr._validation import check_positive
from hkrr.checkpoints import checkpointing
from hkrr.diagnostics import unannounced
from hkrr.estimator import HyperKernelRidge
from hkrr.examination import of_grid
from hkrr.exceptions import FitError
from hkrr.rows import InMemoryRows

_LAMBDAS = tuple(10.0**-k for k in range(1, 7))


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
    keys = [("errors", d, lambdas, split, warm_start) for d, split in jobs]
    errors: list[Any] = [journal.known(key) for key in keys]
    missing = [k for k, known in enumerate(errors) if known is None]
    found = joblib.Parallel(n_jobs=n_jobs, return_as="generator")(
        joblib.delayed(_recorded_errors)(keys[k], base, jobs[k][0], lambdas, X, y, weight, jobs[k][1], warm_start)
        for k in missing
    )
    told = f"{len(dimensions)} numbers of directions x {len(splits)} splits, {len(lambdas)} lambdas each"
    bar = tqdm(found, desc=told, total=len(jobs), initial=len(jobs) - len(missing), disable=not verbose)
    for k, one in zip(missing, bar, strict=True):
        errors[k] = one
        journal.record(keys[k], one)  # by whichever process it was found
    table = np.array(errors).reshape(len(dimensions), len(splits), len(lambdas)).transpose(0, 2, 1)
    return table[:, :, ~np.all(np.isnan(table), axis=(0, 1))]


def _recorded_errors(key: tuple[Any, ...], *task: Any) -> list[float]:
    """Return `_errors_along_lambda`; in this process, whose journal it is, a step."""
    return journal.step(key, lambda: _errors_along_lambda(*task))


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
            with unannounced():
                model.fit(X, y, weight)
        except FitError:
            yield None
            continue
        if warm_start and np.linalg.matrix_rank(model.components_ * X.std(axis=0)) == n_components:
            start = {"init": model.components_, "kernel": model.kernel_}
        yield model


class Chosen(NamedTuple):
    """The pair of least error: its fit on all rows, its number of directions, its error, and the table of all pairs."""

    model: HyperKernelRidge
    n_components: int
    error: float
    table: dict[str, Any]


def fit_on_grid(model: Any, X: Array, y: Array, weight: Array | None, dimensions: list[int]) -> None:
    """Fit a HyperKernelRidgeCV with `cv`: the pair of least truncated held-out error, then a fit on all rows."""
    with checkpointing(model, InMemoryRows(X, y, weight)) as rng:
        chosen = choose(model, X, y, weight, dimensions, rng)
    for name, value in vars(chosen.model).items():
        if name.endswith("_") and not name.startswith("_"):
            setattr(model, name, value)
    model.cv_results_, model.n_components_, model.best_score_ = chosen.table, chosen.n_components, chosen.error
    model._examine(of_grid(model, chosen.model, X))


def choose(
    model: Any, X: Array, y: Array, weight: Array | None, dimensions: list[int], rng: np.random.RandomState
) -> Chosen:
    """Return the fit of the pair that a HyperKernelRidgeCV with `cv` chooses."""
    lambdas: tuple[Any, ...]
    if not isinstance(model.reg_lambdas, str):
        grid = (check_positive("reg_lambdas", value) for value in model.reg_lambdas)
        lambdas = tuple(sorted(grid, reverse=True))
    else:
        lambdas = _LAMBDAS if model.criterion == "training" else ("auto",)
    seed = int(rng.randint(2**31 - 1))
    splitter = ShuffleSplit(1, test_size=0.25, random_state=seed) if model.cv == "holdout" else check_cv(model.cv)
    base = HyperKernelRidge(
        kernel=model.kernel,
        criterion=model.criterion,
        solver=model.solver,
        n_init=model.n_init,
        fit_intercept=model.fit_intercept,
        scale_features=model.scale_features,
        block_size=model.block_size,
        device=model.device,
        random_state=seed,
    )
    with journal.paused():
        splits = list(splitter.split(X, y))
    errors = grid_errors(base, dimensions, lambdas, X, y, weight, splits, model.warm_start, model.n_jobs, model.verbose)
    mean = errors.mean(axis=2) if errors.size else np.full(errors.shape[:2], np.nan)
    if not np.any(np.isfinite(mean)):
        raise FitError("No pair of the grid could be fitted: check the scale of X and y.")
    i, j = np.unravel_index(int(np.argmin(np.where(np.isfinite(mean), mean, np.inf))), mean.shape)
    table = {
        "n_components": np.repeat(dimensions, len(lambdas)),
        "reg_lambda": np.tile(lambdas, len(dimensions)),
        "mean_error": mean.ravel(),
        "std_error": errors.std(axis=2).ravel(),
        **{f"split{k}_error": errors[:, :, k].ravel() for k in range(errors.shape[2])},
    }
    last = clone(base).set_params(n_jobs=model.n_jobs, verbose=model.verbose)
    if model.refit != "full":
        last.set_params(n_centers=min(model.refit, len(X)))
    # A lambda that was chosen along a path is fitted along it.
    along = lambdas[: j + 1] if model.warm_start else lambdas[j : j + 1]
    best = deque(models_along_lambda(last, dimensions[i], along, X, y, weight, model.warm_start), maxlen=1)[0]
    if best is None:
        raise FitError("The pair chosen could be fitted on the splits, but not on all rows: check the scale of X.")
    return Chosen(best, dimensions[i], float(mean[i, j]), table)


def largest_target(y: Array) -> Array:
    """Return M, the largest absolute target (of each)."""
    return np.max(np.abs(y.astype(np.float64)), axis=0)  # in float: an int8 of -128 has no absolute value


def _part(weight: Array | None, rows: Array) -> Array | None:
    return None if weight is None else weight[rows]
