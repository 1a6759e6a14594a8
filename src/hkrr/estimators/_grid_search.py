"""The paper's adaptive rule, its table: the truncated held-out error of every pair (d, lambda) on every split.

Of each fit on a split the error, the map, its gamma and its lambda are kept. Where Ctrl-C ends the grid, the pair of
least error so far is what it has come to: coefficients on all rows, at the map that the pair had on its best split.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
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
from hkrr.kernels import get_kernel
from hkrr.rows import InMemoryRows
from hkrr.solvers import Interrupted
from hkrr.solvers.base import MESSAGES

_LAMBDAS = tuple(10.0**-k for k in range(1, 7))
_QUICK_CENTERS = 500
# Of a fit on a split: its held-out error, its map, its gamma and its lambda.
_Score = tuple[float, Array | None, float, float]
_FAILED: _Score = (math.inf, None, math.nan, math.nan)
_NOT_KNOWN: _Score = (math.nan, None, math.nan, math.nan)


def score_pairs(
    found: list[list[_Score] | None],
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
) -> None:
    """Put the scores along lambda of each number of directions, for each split, into `found`, as they come."""
    jobs = [(d, split) for d in dimensions for split in splits]
    keys = [("scores", d, lambdas, split, warm_start) for d, split in jobs]
    found[:] = [journal.known(key) for key in keys]
    missing = [k for k, known in enumerate(found) if known is None]
    scored = joblib.Parallel(n_jobs=n_jobs, return_as="generator")(
        joblib.delayed(_recorded_scores)(keys[k], base, jobs[k][0], lambdas, X, y, weight, jobs[k][1], warm_start)
        for k in missing
    )
    told = f"{len(dimensions)} numbers of directions x {len(splits)} splits, {len(lambdas)} lambdas each"
    bar = tqdm(scored, desc=told, total=len(jobs), initial=len(jobs) - len(missing), disable=not verbose)
    for k, one in zip(missing, bar, strict=True):
        found[k] = one
        journal.record(keys[k], one)  # by whichever process it was found


def _recorded_scores(key: tuple[Any, ...], *task: Any) -> list[_Score]:
    """Return `_scores_along_lambda`; in this process, whose journal it is, a step."""
    return journal.step(key, lambda: _scores_along_lambda(*task))


def _scores_along_lambda(
    base: HyperKernelRidge,
    n_components: int,
    lambdas: tuple[Any, ...],
    X: Array,
    y: Array,
    weight: Array | None,
    split: tuple[Array, Array],
    warm_start: bool,
) -> list[_Score]:
    """Return the score of one number of directions, its error truncated, for each lambda from the largest down."""
    train, test = split
    if weight is not None:
        train, test = train[weight[train] > 0], test[weight[test] > 0]
    if len(test) == 0:
        return [_NOT_KNOWN] * len(lambdas)
    M = largest_target(y[train])
    scores: list[_Score] = []
    for model in models_along_lambda(base, n_components, lambdas, X[train], y[train], _part(weight, train), warm_start):
        if model is None:
            scores.append(_FAILED)
            continue
        squared = (np.clip(model.predict(X[test]), -M, M) - y[test]) ** 2
        error = float(np.average(squared.reshape(len(test), -1).mean(axis=1), weights=_part(weight, test)))
        scores.append((error, model.components_, model.gamma_, model.reg_lambda_))
    return scores


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
    interrupted: bool = False


def fit_on_grid(model: Any, X: Array, y: Array, weight: Array | None, dimensions: list[int]) -> None:
    """Fit a HyperKernelRidgeCV with `cv`: the pair of least truncated held-out error, then a fit on all rows."""
    with checkpointing(model, InMemoryRows(X, y, weight)) as rng:
        chosen = choose(model, X, y, weight, dimensions, rng)
        for name, value in vars(chosen.model).items():
            if name.endswith("_") and not name.startswith("_"):
                setattr(model, name, value)
        model.cv_results_, model.n_components_, model.best_score_ = chosen.table, chosen.n_components, chosen.error
        if chosen.interrupted:
            model.__dict__.pop("diagnostics_", None)
            raise Interrupted(model.result_, model)
    model._examine(of_grid(model, chosen.model, X))


def choose(
    model: Any, X: Array, y: Array, weight: Array | None, dimensions: list[int], rng: np.random.RandomState
) -> Chosen:
    """Return the fit of the pair that a HyperKernelRidgeCV with `cv` chooses; with a checkpoint, at Ctrl-C so far."""
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
    found: list[list[_Score] | None] = []
    try:
        score_pairs(
            found, base, dimensions, lambdas, X, y, weight, splits, model.warm_start, model.n_jobs, model.verbose
        )
        i, j, error, table = _least(found, dimensions, lambdas)
        last = clone(base).set_params(n_jobs=model.n_jobs, verbose=model.verbose)
        if model.refit != "full":
            last.set_params(n_centers=min(model.refit, len(X)))
        # A lambda that was chosen along a path is fitted along it.
        along = lambdas[: j + 1] if model.warm_start else lambdas[j : j + 1]
        best = deque(models_along_lambda(last, dimensions[i], along, X, y, weight, model.warm_start), maxlen=1)[0]
    except KeyboardInterrupt as stop:
        so_far = None if model.checkpoint is None else _so_far(stop, base, found, dimensions, lambdas, X, y, weight)
        if so_far is None:
            raise
        return so_far
    if best is None:
        raise FitError("The pair chosen could be fitted on the splits, but not on all rows: check the scale of X.")
    return Chosen(best, dimensions[i], error, table)


def _least(
    found: list[list[_Score] | None], dimensions: list[int], lambdas: tuple[Any, ...]
) -> tuple[int, int, float, dict[str, Any]]:
    """Return the places of the pair of least error in the grid, that error, and the table; or raise FitError.

    Of a grid that is not done, the numbers of directions that were fitted on the most splits are compared. A split
    without a row that counts is left out: it decides nothing.
    """
    rows = [[score[0] for score in one or [_NOT_KNOWN] * len(lambdas)] for one in found]
    errors = np.array(rows).reshape(len(dimensions), -1, len(lambdas)).transpose(0, 2, 1)
    errors = errors[:, :, ~np.all(np.isnan(errors), axis=(0, 1))]
    mean = errors.mean(axis=2) if errors.size else np.full(errors.shape[:2], np.nan)
    done = np.count_nonzero(~np.isnan(errors), axis=2)
    if np.any(done < errors.shape[2]):  # interrupted
        mean = np.where(
            done == done.max(), np.sum(errors, axis=2, where=~np.isnan(errors)) / np.maximum(done, 1), np.nan
        )
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
    return int(i), int(j), float(mean[i, j]), table


def _so_far(
    stop: KeyboardInterrupt,
    base: HyperKernelRidge,
    found: list[list[_Score] | None],
    dimensions: list[int],
    lambdas: tuple[Any, ...],
    X: Array,
    y: Array,
    weight: Array | None,
) -> Chosen | None:
    """Return what a grid has come to when Ctrl-C ends it, or None: the fit it was at, where no pair has been scored."""
    try:
        i, j, error, table = _least(found, dimensions, lambdas)
    except FitError:
        if not isinstance(stop, Interrupted) or stop.model is None:
            return None
        n_components = stop.model.n_components
        return Chosen(stop.model, n_components, math.nan, {}, interrupted=True)
    n_splits = len(found) // len(dimensions)
    of_pair = [one[j] for one in found[i * n_splits : (i + 1) * n_splits] if one is not None]
    _, B, gamma, reg_lambda = min((score for score in of_pair if score[1] is not None), key=lambda score: score[0])
    if np.linalg.matrix_rank(B * X.std(axis=0)) < dimensions[i]:
        return None  # no map to start from
    quick = clone(base).set_params(
        n_components=dimensions[i],
        reg_lambda=reg_lambda,
        kernel=get_kernel(base.kernel).with_gamma(gamma),
        init=B,
        criterion="training",
        n_centers=min(_QUICK_CENTERS, len(X)),
        max_iter=0,
    )
    try:
        with unannounced(), journal.paused():
            quick.fit(X, y, weight)
    except FitError:  # what was asked for is to stop
        return None
    quick.result_ = replace(quick.result_, reason="interrupted", message=MESSAGES["interrupted"])
    return Chosen(quick, dimensions[i], error, table, interrupted=True)


def largest_target(y: Array) -> Array:
    """Return M, the largest absolute target (of each)."""
    return np.max(np.abs(y.astype(np.float64)), axis=0)  # in float: an int8 of -128 has no absolute value


def _part(weight: Array | None, rows: Array) -> Array | None:
    return None if weight is None else weight[rows]
