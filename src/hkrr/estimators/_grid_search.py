"""The adaptive rule of the paper: selection of lambda and the number of directions d on a grid, by held-out error.

A model is fitted for each pair (d, lambda) on the training rows of every split. The error of the pair on a split is the
mean squared error of the truncated predictions on the held-out rows. The pair with the smallest mean error over the
splits is then fitted on all rows.

If Ctrl-C stops a fit that has a checkpoint, the result is a model for the best pair so far. The map of this model is
the map from the split on which the pair had its smallest error. The coefficients are fitted on all rows.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, NamedTuple

import joblib
import numpy as np
from sklearn.base import clone
from sklearn.model_selection import ShuffleSplit, check_cv

from hkrr._base import resume_journal as journal
from hkrr._base.checks import check_positive
from hkrr._base.linear_algebra import Array
from hkrr._base.progress_bar import progress_bar
from hkrr._storage.checkpoint import best_model_so_far
from hkrr.estimators.fitted.diagnostics import fit_warnings_silenced
from hkrr.estimators.ridge import HyperKernelRidge
from hkrr.estimators.search.final_fit import QUICK_CENTERS
from hkrr.exceptions import FitError
from hkrr.kernels import get_kernel
from hkrr.rows.base import largest_target
from hkrr.rows.weights import find_copies
from hkrr.solvers.driver import MESSAGES, StopReason

# Values of lambda to compare if criterion="training" and reg_lambdas="auto".
_LAMBDAS = tuple(10.0**-k for k in range(1, 7))
# With at least this many distinct rows, all copies of a row are kept in the same part of a split. With fewer distinct
# rows, the training part could then have fewer than two distinct rows.
_LEAST_DISTINCT = 4
# The type of a score: the tuple (held-out error, map, gamma, lambda) of one fit on one split.
_Score = tuple[float, Array | None, float, float]
# Score of a fit that raised a FitError.
_FAILED: _Score = (math.inf, None, math.nan, math.nan)
# Score of a fit that was not run, or that has no held-out rows of positive weight.
_UNKNOWN: _Score = (math.nan, None, math.nan, math.nan)
# The type of the values of reg_lambda to compare: numbers in decreasing order, or ("auto",).
Lambdas = tuple[float | str, ...]


@dataclass(frozen=True)
class Grid:
    """The data of a grid search, and the pairs (number of directions, lambda) to compare."""

    base: HyperKernelRidge  # cloned for each fit, with the `n_components` and `reg_lambda` of the pair
    X: Array
    y: Array
    weight: Array | None
    splits: list[tuple[Array, Array]]  # indices of the training rows and of the held-out rows
    dimensions: Sequence[int]  # values of `n_components`
    lambdas: Lambdas  # values of `reg_lambda` in decreasing order, or ``("auto",)`` if lambda is learned
    warm_start: bool  # whether each fit starts from the map learned for the next larger lambda


class GridChoice(NamedTuple):
    """The result of a grid search: the model of the selected pair, fitted on all rows, and the table of all pairs.

    `n_components` and `error` are the number of directions and the mean held-out error of the selected pair.
    `interrupted` is True if Ctrl-C stopped the search.
    """

    model: HyperKernelRidge
    n_components: int
    error: float
    table: dict[str, Any]
    interrupted: bool = False


def lambda_grid(reg_lambdas: Any, criterion: str) -> Lambdas:
    """Return the values of lambda to compare, in decreasing order, or ``("auto",)`` if lambda is learned.

    `reg_lambdas` and `criterion` are the parameters of `HyperKernelRidgeCV`.
    """
    if not isinstance(reg_lambdas, str):
        return tuple(sorted((check_positive("reg_lambdas", value) for value in reg_lambdas), reverse=True))
    return _LAMBDAS if criterion == "training" else ("auto",)


def make_splits(cv: Any, X: Array, y: Array, seed: int) -> list[tuple[Array, Array]]:
    """Return the training and held-out indices of each split.

    `cv` is "holdout" (one random quarter of the rows is held out), a number of folds, or a scikit-learn splitter. For
    "holdout" and a number of folds, all copies of a row are in the same part of each split, because the error on a
    held-out copy of a training row would be a training error. The splits of a splitter are used as they are.
    """
    splitter = ShuffleSplit(1, test_size=0.25, random_state=seed) if cv == "holdout" else check_cv(cv)
    source = find_copies(X, y) if isinstance(cv, str | Integral) else None
    with journal.paused():
        if source is None:
            return list(splitter.split(X, y))
        # Only the distinct rows are split. Each copy goes to the same part as the row that it is a copy of.
        kept, group = np.unique(source, return_inverse=True)
        if len(kept) < max(_LEAST_DISTINCT, 0 if cv == "holdout" else int(cv)):
            return list(splitter.split(X, y))
        splits = splitter.split(kept)
        return [(np.flatnonzero(np.isin(group, train)), np.flatnonzero(np.isin(group, test))) for train, test in splits]


def search_grid(grid: Grid, final: HyperKernelRidge, n_jobs: int | None, verbose: int, keep_best: bool) -> GridChoice:
    """Return the pair with the smallest mean held-out error, its model fitted to all rows, and the table of pairs.

    `final` is cloned for the fit on all rows. If `keep_best` is True, the best pair so far is returned after Ctrl-C. If
    it is False, KeyboardInterrupt is raised.
    """
    found: list[list[_Score] | None] = []
    try:
        _score_pairs(found, grid, n_jobs, verbose)
        i, j, error, table = _least_error(found, grid.dimensions, grid.lambdas)
        # With warm starts, the map depends on the fits for the larger lambdas, so these fits are repeated on all rows.
        lambdas = grid.lambdas[: j + 1] if grid.warm_start else grid.lambdas[j : j + 1]
        d, data = grid.dimensions[i], (grid.X, grid.y, grid.weight)
        model = deque(models_along_lambda(final, d, lambdas, *data, grid.warm_start), maxlen=1)[0]
    except KeyboardInterrupt as stop:
        best = _best_so_far(stop, grid, found) if keep_best else None
        if best is None:
            raise
        return best
    if model is None:
        raise FitError(
            f"The final fit to all rows with the selected pair n_components={d}, reg_lambda={grid.lambdas[j]} failed, "
            "although the fits to the splits succeeded: check the scale of X."
        )
    return GridChoice(model, d, error, table)


def _score_pairs(found: list[list[_Score] | None], grid: Grid, n_jobs: int | None, verbose: int) -> None:
    """Fill the list `found` with the scores of all pairs (number of directions, lambda).

    The list has one entry for each combination of a number of directions and a split. The entry contains one score for
    each lambda. Each entry is set as soon as it is computed, so that the finished entries are available after Ctrl-C.
    """
    jobs = [(d, split) for d in grid.dimensions for split in grid.splits]
    keys = [("scores", d, grid.lambdas, split, grid.warm_start) for d, split in jobs]
    found[:] = [journal.lookup(key) for key in keys]
    missing = [k for k, known in enumerate(found) if known is None]
    shared = replace(grid, splits=[])
    scored = joblib.Parallel(n_jobs=n_jobs, return_as="generator")(
        joblib.delayed(_recorded_scores)(keys[k], shared, *jobs[k]) for k in missing
    )
    sizes = (len(grid.dimensions), len(grid.splits), len(grid.lambdas))
    description = "{} values of n_components x {} splits, {} lambdas each".format(*sizes)
    bar = progress_bar(scored, shown=verbose, desc=description, total=len(jobs), initial=len(jobs) - len(missing))
    for k, scores in zip(missing, bar, strict=True):
        found[k] = scores
        # The scores are recorded here, because worker processes do not have the journal of the checkpoint.
        journal.record(keys[k], scores)


def _recorded_scores(key: tuple[Any, ...], grid: Grid, n_components: int, split: tuple[Array, Array]) -> list[_Score]:
    """Return the scores for a number of directions and a split, from the checkpoint if it contains them.

    The journal of the checkpoint (`hkrr._base.resume_journal`) stores the scores as one step. When the step is done,
    the journal deletes the entries that were recorded during the step. A worker process has no journal, so it only
    computes the scores.
    """
    return journal.step(key, lambda: _scores_along_lambda(grid, n_components, split))


def _scores_along_lambda(grid: Grid, n_components: int, split: tuple[Array, Array]) -> list[_Score]:
    """Return the scores (see `_Score`) of the fits on a split, one for each lambda in decreasing order."""
    X, y, weight = grid.X, grid.y, grid.weight
    train, test = split
    if weight is not None:
        train, test = train[weight[train] > 0], test[weight[test] > 0]
    if len(test) == 0:
        return [_UNKNOWN] * len(grid.lambdas)
    M = largest_target(y[train])
    scores: list[_Score] = []
    data = (X[train], y[train], _take(weight, train))
    for model in models_along_lambda(grid.base, n_components, grid.lambdas, *data, grid.warm_start):
        if model is None:
            scores.append(_FAILED)
            continue
        squared = (np.clip(model.predict(X[test]), -M, M) - y[test]) ** 2
        error = float(np.average(squared.reshape(len(test), -1).mean(axis=1), weights=_take(weight, test)))
        scores.append((error, model.components_, model.gamma_, model.reg_lambda_))
    return scores


def models_along_lambda(
    base: HyperKernelRidge,
    n_components: int,
    lambdas: Lambdas,
    X: Array,
    y: Array,
    weight: Array | None,
    warm_start: bool,
) -> Iterator[HyperKernelRidge | None]:
    """Yield a fitted model for each lambda, or None if the fit fails.

    `lambdas` is in decreasing order. The settings of the models are those of `base`. If `warm_start` is True, each fit
    starts from the map and the kernel of the last fit, unless the rows of that map are linearly dependent.
    """
    start: dict[str, Any] = {}
    for reg_lambda in lambdas:
        model = clone(base).set_params(n_components=n_components, reg_lambda=reg_lambda, **start)
        try:
            with fit_warnings_silenced():
                model.fit(X, y, weight)
        except FitError:
            yield None
            continue
        if warm_start and np.linalg.matrix_rank(model.components_ * X.std(axis=0)) == n_components:
            start = {"init": model.components_, "kernel": model.kernel_}
        yield model


def _least_error(
    found: list[list[_Score] | None], dimensions: Sequence[int], lambdas: Lambdas
) -> tuple[int, int, float, dict[str, Any]]:
    """Return the indices i and j of the best pair, its mean error, and the table of all pairs.

    The best pair, ``(dimensions[i], lambdas[j])``, has the smallest mean error over the splits. If the search was
    interrupted, some pairs were fitted on fewer splits than others. In this case, only the pairs that were fitted on
    the largest number of splits are compared. Splits whose held-out rows all have weight zero are ignored.
    """
    rows = [[score[0] for score in scores or [_UNKNOWN] * len(lambdas)] for scores in found]
    errors = np.array(rows).reshape(len(dimensions), -1, len(lambdas)).transpose(0, 2, 1)
    errors = errors[:, :, ~np.all(np.isnan(errors), axis=(0, 1))]
    mean = errors.mean(axis=2) if errors.size else np.full(errors.shape[:2], np.nan)
    done = np.count_nonzero(~np.isnan(errors), axis=2)
    # If the search was interrupted, some fits were not run.
    if np.any(done < errors.shape[2]):
        sums = np.sum(errors, axis=2, where=~np.isnan(errors))
        mean = np.where(done == done.max(), sums / np.maximum(done, 1), np.nan)
    if not np.any(np.isfinite(mean)):
        raise FitError("All fits of the grid (n_components, reg_lambda) failed: check the scale of X and y.")
    i, j = np.unravel_index(int(np.argmin(np.where(np.isfinite(mean), mean, np.inf))), mean.shape)
    table = {
        "n_components": np.repeat(dimensions, len(lambdas)),
        "reg_lambda": np.tile(lambdas, len(dimensions)),
        "mean_error": mean.ravel(),
        "std_error": errors.std(axis=2).ravel(),
        **{f"split{k}_error": errors[:, :, k].ravel() for k in range(errors.shape[2])},
    }
    return int(i), int(j), float(mean[i, j]), table


def _best_so_far(stop: KeyboardInterrupt, grid: Grid, found: list[list[_Score] | None]) -> GridChoice | None:
    """Return a model for the best pair so far, or None if there is no model to keep.

    If no pair was scored yet, the model is the unfinished fit that Ctrl-C interrupted.
    """
    try:
        i, j, error, table = _least_error(found, grid.dimensions, grid.lambdas)
    except FitError:
        fit = best_model_so_far(stop)
        return None if fit is None else GridChoice(fit, fit.n_components, math.nan, {}, interrupted=True)
    d, n_splits = grid.dimensions[i], len(grid.splits)
    of_pair = [scores[j] for scores in found[i * n_splits : (i + 1) * n_splits] if scores is not None]
    _, B, gamma, reg_lambda = min((score for score in of_pair if score[1] is not None), key=lambda score: score[0])
    if np.linalg.matrix_rank(B * grid.X.std(axis=0)) < d:
        return None  # the map cannot be used as `init`, because its rows are linearly dependent
    quick = clone(grid.base).set_params(
        n_components=d,
        reg_lambda=reg_lambda,
        kernel=get_kernel(grid.base.kernel).with_gamma(gamma),
        init=B,
        criterion="training",
        n_centers=min(QUICK_CENTERS, len(grid.X)),
        max_iter=0,
    )
    try:
        with fit_warnings_silenced(), journal.paused():
            quick.fit(grid.X, grid.y, grid.weight)
    except FitError:
        return None
    reason = StopReason.INTERRUPTED
    quick.result_ = replace(quick.result_, reason=reason.value, message=MESSAGES[reason])
    return GridChoice(quick, d, error, table, interrupted=True)


def _take(weight: Array | None, rows: Array) -> Array | None:
    return None if weight is None else weight[rows]
