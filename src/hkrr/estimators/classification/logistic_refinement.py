"""Refinement of a map with few directions by the logistic loss.

The map of the best regression model, whose targets are the indicators of the classes, is refined by minimizing the
penalized log loss

    ``sum_i w_i loss(y_i, f(x_i)) + (nu / 2) |f|^2``

for decreasing values of the penalty nu (`hkrr.estimators.classification.logistic_path`). The scores f are then
logarithms of probabilities. If a target depends on a few directions and there are few rows, the refined map is more
accurate than the map of the regression. The penalty nu and the offsets of the classes are chosen on held-out rows,
whose scores are computed by models fitted without these rows. If there are few rows for each entry of the map, the
map itself is also learned again without the held-out rows.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hkrr._base.linear_algebra import Array
from hkrr._base.progress_bar import progress_bar
from hkrr._base.threads import single_threaded_blas
from hkrr._maps import KernelExpansion, canonical_map
from hkrr.estimators.classification.class_link import LinkFit, fit_link
from hkrr.estimators.classification.labels import held_out_folds, one_hot
from hkrr.estimators.classification.logistic_objective import Coefficients, LogisticObjective
from hkrr.estimators.classification.logistic_path import Map, refined_maps
from hkrr.estimators.classification.logistic_solver import losses
from hkrr.estimators.fitted.diagnostics import fit_warnings_silenced
from hkrr.estimators.fitted.fitted_attributes import with_expansion
from hkrr.estimators.ridge_cv import HyperKernelRidgeCV
from hkrr.estimators.search.search_and_refit import LeftOutPredictions
from hkrr.rows import InMemoryRows, Rows
from hkrr.rows.standardize import Moments, standardize

# With fewer than this number of rows per entry of the map, the map is learned again without the held-out rows.
_ROWS_PER_PARAMETER = 30
# With fewer than this number of rows in total, the map is not learned again.
_MIN_ROWS = 40
# The path of decreasing nu ends when this many consecutive values of nu do not improve the held-out loss.
_PATIENCE = 2


@dataclass(frozen=True)
class RefinementProblem:
    """A regression on the indicators of the classes, and its training rows."""

    regressor: HyperKernelRidgeCV
    X: Array
    index: Array  # (n_samples,): index of the class of each row
    weight: Array | None  # a row of weight 2 has the same effect as two identical rows of weight 1
    n_classes: int
    deadline: float = np.inf  # time (of ``time.perf_counter``) by which the fit should be finished
    verbose: int = 0

    def rows(self, selected: Any) -> tuple[Rows, Moments]:
        """Return the selected rows with their labels, in standardized coordinates, and the moments of the rows."""
        weight = None if self.weight is None else self.weight[selected]
        data = InMemoryRows(self.X[selected], self.labels(selected), weight)
        return standardize(data, scale_features=self.regressor.scale_features, fit_intercept=False)

    def labels(self, selected: Any) -> Array:
        """Return the labels as 0 and 1: one column for each class, or only the second column for two classes."""
        codes = one_hot(self.index[selected], self.n_classes)
        return codes[:, 1:] if self.n_classes == 2 else codes

    def regressor_without(self, held_out: Array) -> HyperKernelRidgeCV:
        """Return the regression whose map is the starting map when the held-out rows are scored.

        The regression is fitted again without the held-out rows if there are fewer than 30 rows per entry of the map,
        but at least 40 rows in total, and the deadline has not passed. Otherwise it is the regression of the problem.
        """
        model, learn = self.regressor, ~held_out
        few = _MIN_ROWS <= len(self.X) < _ROWS_PER_PARAMETER * model.map_.size
        if not few or time.perf_counter() > self.deadline:
            return model
        other = HyperKernelRidgeCV(
            model.n_components_,
            kernel=model.kernel_,
            n_init=1,
            scale_features=model.scale_features,
            block_size=model.block_size,
            device=model.device,
            time_limit=None if np.isinf(self.deadline) else max(self.deadline - time.perf_counter(), 0.1) / 10,
            n_jobs=model.n_jobs,
            random_state=0,
        )
        targets, weight = one_hot(self.index[learn], self.n_classes), self.weight
        with fit_warnings_silenced():
            return other.fit(self.X[learn], targets, None if weight is None else weight[learn])


def refine(problem: RefinementProblem) -> tuple[HyperKernelRidgeCV, LinkFit] | None:
    """Return a model whose map and scores minimize the logistic loss, and its link. Return None if this fails.

    The model is a copy of the regression of the problem with another map and other coefficients.
    """
    folds = held_out_folds(problem.index)
    bar = progress_bar(folds, shown=problem.verbose, desc="held-out folds", unit="fold")
    paths = [_Path(problem, problem.regressor_without(fold), ~fold, fold) for fold in bar]
    best, nu, n_worse = np.inf, np.inf, 0
    # The final fit takes about as long as the fits without the held-out rows.
    began = time.perf_counter()
    half = began + 0.5 * (problem.deadline - began)
    with progress_bar(shown=problem.verbose, desc="held-out log loss", unit="nu") as bar:
        while n_worse < _PATIENCE and (nu == np.inf or time.perf_counter() < half):
            advanced = [path.advance() for path in paths]
            if not all(advanced):
                break
            loss = sum(path.loss for path in paths)
            best, nu, n_worse = (loss, paths[0].nu, 0) if loss < best else (best, nu, n_worse + 1)
            bar.update()
            bar.set_postfix(nu=f"{nu:.2g}", best=f"{best / sum(path.weight for path in paths):.4f}")
    final = _Path(problem, problem.regressor, slice(None), slice(0))
    while final.nu > nu and final.advance():
        pass
    if final.nu == np.inf:
        return None
    scores = np.concatenate([path.function(nu)[0].of_rows(path.held_out_rows) for path in paths])
    held_out = np.concatenate([np.flatnonzero(fold) for fold in folds])
    weight = np.ones(len(held_out)) if problem.weight is None else problem.weight[held_out]
    labels = one_hot(problem.index[held_out], problem.n_classes)
    targets = labels - np.average(labels, axis=0, weights=weight)
    link = fit_link(LeftOutPredictions([_both_classes(scores)], targets, weight, np.zeros(1), 0.0), of_logarithms=False)
    return with_scores(problem.regressor, *final.function(final.nu)), link


def _both_classes(scores: Array) -> Array:
    """Return one column for each class. The single score f of two classes is replaced by -f / 2 and f / 2."""
    return np.hstack([-scores, scores]) / 2.0 if scores.shape[1] == 1 else scores


def with_scores(regressor: HyperKernelRidgeCV, function: KernelExpansion, singular_values: Array) -> HyperKernelRidgeCV:
    """Return a copy of a regression on the classes that computes its map and scores from the given score function.

    The function has a single score for two classes, and otherwise one score for each class.
    """
    intercept = _both_classes(np.reshape(function.intercept, (1, -1)))[0]
    function = replace(function, alpha=_both_classes(function.alpha), intercept=intercept)
    model = with_expansion(regressor, function, singular_values)
    model.truncate, model.n_components_ = False, len(function.B)
    model.result_ = replace(model.result_, B=function.B, alpha=function.alpha)
    return model


class _Path:
    """Maps and scores fitted to the training rows of a fold for decreasing nu, and their loss on the held-out rows."""

    def __init__(self, problem: RefinementProblem, start: HyperKernelRidgeCV, learn: Any, held_out: Any) -> None:
        self._rows, self._scaling = problem.rows(learn)
        self._labels = problem.labels(held_out)
        self._weights = np.ones(len(self._labels)) if problem.weight is None else problem.weight[held_out]
        self.held_out_rows = InMemoryRows(problem.X[held_out], self._labels)
        x_scale = np.where(self._scaling.constant, 0.0, self._scaling.x_scale)
        initial = Map.of(start.components_, start.kernel_, x_scale)
        self._steps, self._maps = refined_maps(self._rows, initial, problem.deadline), dict[float, Map]()
        self.weight = float(np.sum(self._weights))
        self.nu, self.loss = np.inf, 0.0

    def advance(self) -> bool:
        """Fit the map and the scores for the next smaller nu. Return False if no nu is left, or if the fit fails."""
        with single_threaded_blas():
            found = next(self._steps, None)
        if found is None:
            return False
        self.nu, refined, objective, coefficients = found
        self._maps[self.nu] = refined
        if len(self._labels) > 0:
            scores = self._function(refined, objective.centers, coefficients)[0].of_rows(self.held_out_rows)
            self.loss = float(self._weights @ losses(scores, self._labels))
        return True

    def function(self, nu: float) -> tuple[KernelExpansion, Array]:
        """Return the score function for a nu that was already fitted, and the singular values of its map."""
        refined, centers = self._maps[nu], self._rows.gather()[0]
        with single_threaded_blas():
            coefficients = LogisticObjective(self._rows, centers, refined.kernel).solve(refined.B, nu)
        return self._function(refined, centers, coefficients)

    def _function(self, refined: Map, centers: Array, found: Coefficients) -> tuple[KernelExpansion, Array]:
        scaling = self._scaling
        B = np.where(scaling.constant, 0.0, refined.B)
        components, kernel, singular_values = canonical_map(B, refined.kernel, scaling.x_scale)
        centers = scaling.original(centers)
        return KernelExpansion(
            kernel, components, centers, found.alpha, found.intercept, scaling.x_mean
        ), singular_values
