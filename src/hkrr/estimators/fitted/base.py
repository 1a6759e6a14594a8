"""The base classes of the regressors: `Regressor` for all regressors, `MapModel` for regressors with a single map."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    MultiOutputMixin,
    RegressorMixin,
    TransformerMixin,
)
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_is_fitted, validate_data

from hkrr._base.checks import require_finite
from hkrr._base.linear_algebra import Array, project
from hkrr._base.threads import count_threads
from hkrr._maps import canonical_map
from hkrr._storage.checkpoint import restored_on_failure
from hkrr.estimators.fitted.conformal import Uncertainty
from hkrr.estimators.fitted.diagnostics import Diagnostics, issue_warnings
from hkrr.estimators.fitted.fitted_attributes import kernel_expansion, transformed_columns
from hkrr.estimators.fitted.importance import FeatureImportancesMixin
from hkrr.estimators.fitted.posterior import mean_and_variance
from hkrr.estimators.fitted.summary import SummaryMixin
from hkrr.estimators.fitted.uncertainty import UncertaintyMixin
from hkrr.kernels import Kernel
from hkrr.rows import Rows
from hkrr.rows.base import targets
from hkrr.rows.open_inputs import apply_to_external, array_rows, is_external, open_rows
from hkrr.rows.standardize import Moments
from hkrr.rows.weights import check_lengths, check_numbers
from hkrr.solvers import LBFGS, Result, Solver, get_solver

# Names of the attributes that `_store_uncertainty` sets.
_UNCERTAINTY = ("prior_variance_", "noise_variance_", "interval_scores_", "posterior_factor_", "center_weight_")
# Names of the attributes that `_store`, `_store_uncertainty` and `_set_diagnostics` set.
_FITTED_ATTRIBUTES = (
    "map_",
    "singular_values_",
    "gamma_",
    "kernel_",
    "centers_",
    "x_offset_",
    "dual_coef_",
    "intercept_",
    "reg_lambda_",
    "n_iter_",
    "result_",
    "history_",
    "diagnostics_",
    *_UNCERTAINTY,
)


@contextmanager
def fitting(model: object) -> Iterator[None]:
    """Restore the attributes of an estimator if its fit fails (see `restored_on_failure`). Silence NumPy.

    The warnings are not needed, because numbers that overflow raise a FitError.
    """
    with restored_on_failure(model), np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        yield


class Regressor(UncertaintyMixin, MultiOutputMixin, RegressorMixin, BaseEstimator):
    """Base class of regressors that accept arrays, data frames, tensors, files and Dask collections.

    A subclass implements `fit` and `_exhausted_parameters`. It also implements `_predict_rows` and
    `_mean_and_std_of_rows`, whose argument is a `hkrr.rows.Rows`.
    """

    block_size: Literal["auto"] | int
    n_jobs: int | None
    device: Any = None
    n_features_in_: int
    feature_names_in_: Array

    @abstractmethod
    def _predict_rows(self, rows: Rows) -> Array:
        """Return the predictions for the given rows."""

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predict the targets of the rows of X.

        Parameters
        ----------
        X : array, data frame, tensor, path(s), callable that returns blocks, or Dask collection
            Rows to predict, in any form that `fit` accepts. Files are read in blocks.
        return_std : bool, default=False
            Whether to return the standard deviations of new observations too. They are computed from the equivalent
            Gaussian process at the learned map, and include the noise (see `hkrr.estimators.fitted.posterior`). The
            standard deviation of the function without noise is ``sqrt(std**2 - noise_variance_)``. The standard
            deviations do not include the uncertainty of the map itself, but the intervals of `predict_interval` do.

        Returns
        -------
        y : array (n_samples,) or (n_samples, n_targets)
            The predictions ``f(x) = g(Bx)``: a tensor if X is a tensor, a Dask collection if X is a Dask collection.
            Predictions for a float32 array are float32, unless they are too large or too small for float32.
        std : array of the same shape
            Standard deviations of new observations. Returned only with ``return_std=True``.
        """
        check_is_fitted(self)
        if return_std:
            return self._mean_and_std(X)
        return self._apply(X, self.predict, self._output_shape, self._predict_rows)

    def _apply(
        self, X: Any, of_block: Callable[[Any], Array], tail: tuple[int, ...], of_rows: Callable[[Rows], Array]
    ) -> Any:
        """Return ``of_rows(rows)`` for an input of any kind. See `apply_to_external` for the parameters."""

        def checked(rows: Rows) -> Array:
            return require_finite("predictions", lambda: of_rows(rows))

        if is_external(X):
            return apply_to_external(X, of_block, tail, checked, n_features=self.n_features_in_, **self._input_options)
        X = validate_data(self, X, reset=False, dtype=[np.float64, np.float32])
        rows = self._array_rows(X, np.empty((len(X), 0)), None, self.device)
        return _as_dtype(checked(rows), X.dtype)

    @property
    def _input_options(self) -> dict[str, Any]:
        """The names of the columns, the block size and the number of threads with which external inputs are read."""
        names = list(self.feature_names_in_) if hasattr(self, "feature_names_in_") else None
        return {"names": names, "block_size": self.block_size, "n_threads": self._n_threads}

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the coefficient of determination R2, averaged over the targets.

        Parameters
        ----------
        X, y : as in `fit`
            Rows and their targets.
        sample_weight : array or tensor (n_samples,) or None, default=None
            Weights of the rows. None means that all rows have the weight 1.

        Returns
        -------
        float
        """
        if not is_external(X):
            return float(super().score(X, y, sample_weight))
        check_is_fitted(self)
        opened = open_rows(X, y, sample_weight, device=None, **self._input_options)
        if opened.rows.n_features != self.n_features_in_:
            n, expected = opened.rows.n_features, self.n_features_in_
            raise ValueError(f"X has {n} columns, but the model was fitted with {expected} columns")
        weight = None if sample_weight is None else sample_weight.cpu()
        return float(r2_score(opened.rows.map(targets), self._predict_rows(opened.rows), sample_weight=weight))

    def _open_rows(self, X: Any, y: Any, sample_weight: Any) -> tuple[Rows, bool]:
        """Open tensors, files or Dask collections. Return the rows, and whether y is one-dimensional."""
        opened = open_rows(
            X, y, sample_weight, device=self.device, block_size=self.block_size, n_threads=self._n_threads
        )
        if opened.rows.n_rows < 2:
            raise ValueError(f"X has {opened.rows.n_rows} rows; a fit needs at least 2")
        self.n_features_in_ = opened.rows.n_features
        if opened.names is not None:
            self.feature_names_in_ = np.asarray(opened.names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        return opened.rows, opened.one_target

    def _validate_arrays(self, X: Any, y: Any, sample_weight: Any) -> tuple[Array, Array]:
        """Return the training data as validated arrays."""
        check_lengths(X, y, sample_weight)
        check_numbers(X, y)
        options = {"multi_output": True, "y_numeric": True, "ensure_min_samples": 2}
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32], **options)
        return X, y

    @property
    def _n_threads(self) -> int:
        return count_threads(self.n_jobs)

    def _array_rows(self, X: Array, y: Array, weight: Array | None, device: Any) -> Rows:
        return array_rows(X, y, weight, device=device, block_size=self.block_size, n_threads=self._n_threads)

    def _set_diagnostics(self, found: Diagnostics) -> None:
        """Set ``diagnostics_`` and issue its warnings."""
        exhausted = self._exhausted_parameters()
        remedies = tuple(name for name in self.get_params(deep=False) if name not in exhausted)
        self.diagnostics_ = replace(found, remedies=remedies)
        issue_warnings(self.diagnostics_)

    @abstractmethod
    def _exhausted_parameters(self) -> set[str]:
        """Return the parameters that warnings must not suggest, because changing them cannot improve this fit."""


class MapModel(
    FeatureImportancesMixin,
    SummaryMixin,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    Regressor,
):
    """Base class of regressors ``f(x) = g(Bx)``.

    A subclass implements `fit`. Its `fit` calls `_store` with the result of a solver, then `_store_uncertainty` and
    `_set_diagnostics`. This class adds `predict`, `transform` and `score`, which accept every kind of input. Its bases
    add:

    - `UncertaintyMixin`: `predict_interval`, `calibrate`, and the standard deviations of ``predict(return_std=True)``;
    - `FeatureImportancesMixin`: ``feature_importances_``;
    - `SummaryMixin`: `summary`.
    """

    fit_intercept: bool
    scale_features: bool
    solver: str | Solver
    criterion: Literal["training", "evidence", "loo"]
    time_limit: float | None

    @property
    def _output_shape(self) -> tuple[int, ...]:
        return tuple(self.dual_coef_.shape[1:])

    def _predict_rows(self, rows: Rows) -> Array:
        return self._truncate(self._untruncated(rows))

    def _untruncated(self, rows: Rows) -> Array:
        return kernel_expansion(self).of_rows(rows)

    def predict_latent(self, Z: Array) -> Array:
        """Return the predictions g(z) at the rows z of Z, in the coordinates of `transform`."""
        return self._truncate(kernel_expansion(self).at_latent(Z - project(self.x_offset_, self.map_)))

    def _truncate(self, predicted: Array) -> Array:
        """Return the predictions unchanged. `HyperKernelRidgeCV` overrides this method."""
        return predicted

    def _mean_and_std_of_rows(self, rows: Rows) -> Array:
        if not hasattr(self, "noise_variance_"):
            # The model was calibrated, but has no uncertainty estimate. Its intervals have the same width at all rows.
            predicted = self._truncate(self._untruncated(rows)).reshape(-1, self._n_targets)
            return np.hstack([predicted, np.ones_like(predicted)])
        found = mean_and_variance(self, rows)
        prior, noise = np.atleast_1d(self.prior_variance_), np.atleast_1d(self.noise_variance_)
        std = np.sqrt(found[:, -1:] * prior + noise)
        return np.hstack([self._truncate(found[:, :-1]), np.where(prior > 0, std, 1.0)])

    @abstractmethod
    def _describe_lambda(self) -> str:
        """Return how lambda was chosen: ", learned", for example. If this is not known, return ""."""

    @abstractmethod
    def _describe_score(self) -> str:
        """Return the value of the criterion, or the score of the model, as text."""

    def transform(self, X: Any) -> Any:
        """Return the latent coordinates ``X @ components_.T``.

        If the model transforms the columns (`column_transform_` is not None), X stands for the transformed columns.

        Parameters
        ----------
        X : array, data frame, tensor, path(s), callable or Dask collection
            As in `predict`.

        Returns
        -------
        array (n_samples, n_components)
            A tensor if X is a tensor, a Dask collection if X is a Dask collection.
        """
        check_is_fitted(self)
        if is_external(X):

            def latent(X: Array, Y: Array, w: Array | None, B: Array) -> tuple[Array]:
                return (project(X, B),)

            def of_rows(rows: Rows) -> Array:
                rows = rows.with_coordinates(None, None, None, self.column_transform_)
                return rows.map(latent, 1, rows.place(self.map_))

            tail, n_features = (len(self.map_),), self.n_features_in_
            return apply_to_external(X, self.transform, tail, of_rows, n_features=n_features, **self._input_options)
        X = validate_data(self, X, reset=False, dtype=[np.float64, np.float32])
        return project(transformed_columns(self, X).astype(X.dtype, copy=False), self.map_.astype(X.dtype, copy=False))

    def _store(self, result: Result, kernel: Kernel, centers: Array, scaling: Moments, one_target: bool) -> None:
        """Set the fitted attributes: the map in canonical form, and all values in the original units of X.

        If the columns are transformed, the values are in the units of the transformed columns.
        """
        B = np.where(scaling.constant, 0.0, result.B)
        self.map_, self.kernel_, self.singular_values_ = canonical_map(B, kernel, scaling.x_scale)
        self.gamma_ = self.kernel_.scale
        self.centers_ = scaling.original(centers)
        self.x_offset_ = scaling.x_mean
        self.__dict__.pop("column_transform_", None)
        if scaling.transform is not None:
            self.column_transform_ = scaling.transform
        self.dual_coef_ = result.alpha[:, 0] if one_target else result.alpha
        self.intercept_ = float(scaling.y_mean[0]) if one_target else scaling.y_mean
        self.reg_lambda_ = result.reg_lambda
        self.n_iter_ = max(1, result.n_iter)
        self.result_, self.history_ = result, result.history
        # Remove the diagnostics of an earlier fit.
        self.__dict__.pop("diagnostics_", None)
        self._store_uncertainty(None)

    def _store_uncertainty(self, found: Uncertainty | None) -> None:
        """Store the uncertainty of a fit as attributes, and remove the attributes of an earlier fit."""
        for name in _UNCERTAINTY:
            self.__dict__.pop(name, None)
        if found is None:
            return
        one_target = self.dual_coef_.ndim == 1
        for name, value in (("prior_variance_", found.prior_variance), ("noise_variance_", found.noise_variance)):
            setattr(self, name, float(value[0]) if one_target else value)
        scores = found.left_out.scores
        self.interval_scores_ = scores[:, 0] if one_target else scores
        for name, array in (("posterior_factor_", found.factor), ("center_weight_", found.center_weight)):
            if array is not None:
                setattr(self, name, array)

    def _adopt(self, fitted: MapModel) -> None:
        """Set the fitted attributes to those of another model."""
        for name in _FITTED_ATTRIBUTES:
            self.__dict__.pop(name, None)
            if hasattr(fitted, name):
                setattr(self, name, getattr(fitted, name))

    def _exhausted_parameters(self) -> set[str]:
        """Return the parameters that warnings must not suggest, because changing them cannot improve this fit."""
        uses_lbfgs = isinstance(get_solver(self.solver), LBFGS)
        exhausted = {
            "scale_features": self.scale_features,
            "solver": uses_lbfgs,
            # The only criterion that warnings suggest is "evidence", which requires the L-BFGS solver.
            "criterion": self.criterion == "evidence" or not uses_lbfgs,
            "time_limit": self.time_limit is None,
        }
        return {name for name, is_exhausted in exhausted.items() if is_exhausted}


def _as_dtype(values: Array, dtype: Any) -> Array:
    """Return the values in the given dtype, or unchanged if the largest absolute value would overflow or underflow."""
    limits, largest = np.finfo(dtype), float(np.max(np.abs(values)))
    fits = largest == 0.0 or float(limits.tiny) <= largest <= float(limits.max)
    return values.astype(dtype, copy=False) if fits else values
