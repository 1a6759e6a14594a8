"""The steps of `fit` before and after a search: preparation of the rows and the time budget, and the diagnostics."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from hkrr._base.linear_algebra import Array
from hkrr.criteria import CRITERIA
from hkrr.estimators.fitted.base import MapModel, Regressor
from hkrr.estimators.fitted.diagnostics import diagnose_search
from hkrr.estimators.search.candidates import Candidate
from hkrr.estimators.search.final_fit import FinalFit, full_size, quick_fit
from hkrr.estimators.search.progress import Progress, SearchCallback
from hkrr.estimators.search.robust_noise import find_outliers, shows_outliers
from hkrr.estimators.search.search_and_refit import FitPlan, SelectedModel, robust_rows
from hkrr.estimators.search.search_problem import SearchProblem
from hkrr.estimators.search.search_stages import SAMPLE_ROWS
from hkrr.estimators.search.stacking import Stacking
from hkrr.estimators.search.time_budget import TimeBudget
from hkrr.kernels import KERNELS, Kernel
from hkrr.rows import InMemoryRows, Rows
from hkrr.rows.base import largest_target, targets, weights
from hkrr.rows.column_transform import ColumnTransform
from hkrr.rows.open_inputs import is_external
from hkrr.rows.standardize import Moments, standardize
from hkrr.rows.weights import (
    any_copies,
    check_weights,
    merge_copies,
    merge_copies_of_rows,
    normalize_weights,
    without_zero_weights,
)

# With more columns, no columns are transformed to normal scores.
_MOST_COLUMNS = 500
# Columns are transformed only if the squared correlation between a column and its normal scores is at most this number.
# For a uniform distribution, it is 0.955.
_LINEAR = 0.95
# ``truncation_`` is this factor times the largest absolute target.
_TRUNCATION_FACTOR = 2.0
# Number of passes of the final fit over the rows. One pass draws the centers, one sums the squares of the targets, and
# one sums the products of kernel values.
_FINAL_PASSES = 3


@dataclass(frozen=True)
class CheckedData:
    """The checked data of a fit.

    Attributes
    ----------
    rows : Rows
        The rows, in the original units of X and y. Copies of a row may have been merged.
    given : callable
        Function that returns the given rows in their original order, before rows were removed or merged.
    one_target : bool
        Whether there is a single target.
    dimensions : list of int
        The values of `n_components` to try.
    """

    rows: Rows
    given: Callable[[], Rows]
    one_target: bool
    dimensions: list[int]


class SearchInputMixin(Regressor):
    """Mixin of the estimators that search for a model without `cv`."""

    # An ensemble has no parameters with the next three names.
    n_components: Any = "auto"
    criterion: Literal["training", "evidence", "loo"] = "evidence"
    truncate: bool = True
    # Maximum number of final fits for which time is reserved. Only ensembles make several final fits.
    _most_fits = 1
    # How the weights of the members of an ensemble are computed.
    _stacking: Stacking | None = None
    n_init: int
    refit: Literal["full"] | int
    time_limit: float | None
    fit_intercept: bool
    scale_features: bool
    verbose: int
    callbacks: Any
    truncation_: Any

    @abstractmethod
    def check_parameters(self, n_features: int) -> list[int]:
        """Raise ValueError if a parameter is invalid. Return the values of `n_components` to try."""

    @abstractmethod
    def _quick_model(self, candidate: Candidate, fit: FinalFit, scaling: Moments, one_target: bool) -> MapModel:
        """Return a model with the map of a candidate and the coefficients of `fit`, a fit with few centers.

        Callbacks use this model for predictions.
        """

    @property
    @abstractmethod
    def _selects_kernel(self) -> bool:
        """Whether the kernel is selected by the search."""

    def _load(self, X: Any, y: Any, sample_weight: Any) -> CheckedData:
        """Check the data and the parameters, set ``truncation_``, and return the data.

        Tensors, files and Dask collections with at most 20,000 rows are copied to memory. If there are at most 20,000
        rows, identical rows and near copies (rows with almost equal values) are merged. With more rows, identical rows
        in memory are merged if all rows are centers of the final fit.
        """
        device = self.device
        if is_external(X):
            data, one_target = self._open_rows(X, y, sample_weight)
            dimensions = self.check_parameters(data.n_features)
            if data.n_rows > SAMPLE_ROWS:
                largest = data.largest_targets()
                self.truncation_ = _TRUNCATION_FACTOR * (float(largest[0]) if one_target else largest)
                return CheckedData(data.with_normalized_weights(), lambda: data, one_target, dimensions)
            X, Y, sample_weight = data.gather()
            y, device = Y[:, 0] if one_target else Y, getattr(data, "device", None)
        else:
            X, y = self._validate_arrays(X, y, sample_weight)
            dimensions = self.check_parameters(X.shape[1])
        weight = check_weights(sample_weight, X)
        # Rows on a device are copies of the arrays. These rows are therefore created only if they are needed.
        given = partial(self._array_rows, X, y, weight, device)
        X, y, weight = without_zero_weights(X, y, weight)
        self.truncation_ = _TRUNCATION_FACTOR * largest_target(y)
        if self._count_final_centers(len(X)) == len(X) or (len(X) <= SAMPLE_ROWS and any_copies(X, y, weight)):
            X, y, weight = merge_copies(X, y, weight)
        else:
            weight = normalize_weights(weight)
        return CheckedData(self._array_rows(X, y, weight, device), given, y.ndim == 1, dimensions)

    def _prepare(self, loaded: CheckedData, kernel: Kernel | None, rng: np.random.RandomState, began: float) -> FitPlan:
        """Return the standardized rows, the problem of the search and its time budget.

        `kernel` is None if the kernel is selected too. `began` is the time at which the fit started.
        """
        reading_began = time.perf_counter()
        rows, scaling = standardize(loaded.rows, scale_features=self.scale_features, fit_intercept=self.fit_intercept)
        # Standardization makes two passes over the rows. The time to read the rows in the final fit is estimated from
        # the time of these passes.
        reading = _FINAL_PASSES * (time.perf_counter() - reading_began) / 2
        n_threads, n_centers = self._n_threads, self._count_final_centers(rows.n_rows)
        sample = rows.in_memory() if rows.n_rows <= SAMPLE_ROWS else merge_copies_of_rows(rows.sample(SAMPLE_ROWS, rng))
        sample = sample.on_threads(n_threads)

        def fit_candidate(candidate: Candidate, omega: Array | None) -> MapModel:
            rows = problem.of(candidate).rows
            robust, y_offset = robust_rows(rows, rows, candidate, omega)
            fit = quick_fit(robust.in_memory(), candidate, with_uncertainty=False)
            return self._quick_model(candidate, fit, plan.scaling_of(candidate).shifted(y_offset), loaded.one_target)

        callbacks: tuple[SearchCallback, ...] = tuple(self.callbacks or ())
        budget = TimeBudget(rows, self.time_limit, began, reading, n_threads)
        likely_kernel = KERNELS["matern32"] if kernel is None else kernel
        problem = SearchProblem(
            sample,
            CRITERIA[self.criterion],
            loaded.dimensions,
            represented_weight=rows.total_weight,
            choose_dimension=isinstance(self.n_components, str),
            n_starts=self.n_init,
            rng=rng,
            n_jobs=self.n_jobs,
            n_threads=n_threads,
            deadline=budget.search_deadline(likely_kernel, n_centers, self._most_fits),
            progress=Progress(callbacks, began, fit_candidate, self.verbose),
            place=rows.to_device,
            stacking=self._stacking,
            ranks=self._normal_scores(sample, scaling),
        )
        plan = FitPlan(rows, scaling, problem, budget, n_centers)
        return plan

    def _normal_scores(self, sample: InMemoryRows, scaling: Moments) -> ColumnTransform | None:
        """Return the transform of the columns to normal scores, or None if it would hardly change any column.

        Only ensembles use it.
        """
        X = sample.arrays[0]
        if self._stacking is None or not self.scale_features or X.shape[1] > _MOST_COLUMNS:
            return None
        found = ColumnTransform.to_normal_scores(X, scaling.x_mean, scaling.x_scale, scaling.constant)
        return found if np.min(found.linearity(X)) <= _LINEAR else None

    def _count_final_centers(self, n_rows: int) -> int:
        """Return the number of centers of the final fit."""
        return full_size(n_rows, not self._selects_kernel) if self.refit == "full" else min(self.refit, n_rows)

    def _diagnose(self, selected: SelectedModel, loaded: CheckedData, predict: Callable[[Rows], Array]) -> None:
        """Set ``diagnostics_``, and set ``truncation_`` to a level that ignores outliers. Issue the warnings.

        `predict` returns the predictions for rows in the original units. The predictions of a single model must not be
        clipped. In the sum of an ensemble, the predictions of the members are clipped.
        """
        outliers = [] if selected.y_offset is None else _find_outliers_of(predict, loaded.given())
        if outliers:
            self._set_truncation(_largest_without(loaded, outliers))
        objective, result, solve, _ = selected.fit
        self._set_diagnostics(
            diagnose_search(
                objective.rows,
                objective,
                result,
                predict,
                selected.winner,
                selected.candidates,
                given=None if isinstance(self.n_components, str) else loaded.dimensions,
                time_limited=self.time_limit is not None,
                truncation=self.truncation_ if self.truncate else None,
                solve=solve,
                outliers=outliers,
            )
        )

    def _set_truncation(self, level: Any) -> None:
        """Set the level of truncation."""
        self.truncation_ = level


def _find_outliers_of(predict: Callable[[Rows], Array], rows: Rows) -> list[int]:
    """Return the indices of the outliers, largest residual first. The rows are in the original units of X and y."""
    Y = rows.map(targets)
    residuals = Y - predict(rows).reshape(Y.shape)
    return find_outliers(residuals[:, shows_outliers(Y)], rows.map(weights)[:, 0])


def _largest_without(loaded: CheckedData, outliers: list[int]) -> Any:
    """Return the level of truncation, computed from the rows that are not outliers."""
    rows = loaded.given()
    Y, counted = rows.map(targets), rows.map(weights)[:, 0] > 0
    counted[outliers] = False
    return _TRUNCATION_FACTOR * largest_target(Y[counted][:, 0] if loaded.one_target else Y[counted])
