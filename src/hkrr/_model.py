"""What a fitted map does, whoever found it: predict, transform, and keep itself in canonical form."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import joblib
import numpy as np
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    MultiOutputMixin,
    RegressorMixin,
    TransformerMixin,
)
from sklearn.utils.validation import check_is_fitted, validate_data

from hkrr._arrays import Array
from hkrr.canonical import canonical_map
from hkrr.kernels import Kernel
from hkrr.rows import InMemoryRows
from hkrr.samples import check_lengths, check_numbers
from hkrr.scaling import Moments, moments
from hkrr.solvers import Result
from hkrr.threads import blas_threads


class MapModel(ClassNamePrefixFeaturesOutMixin, TransformerMixin, MultiOutputMixin, RegressorMixin, BaseEstimator):
    """The part of an estimator that works with a map, a kernel, centers and coefficients once they are there."""

    fit_intercept: bool
    scale_features: bool
    block_size: Literal["auto"] | int
    n_jobs: int | None

    def predict(self, X: Any) -> Any:
        """Return ``g(Bx)`` for every row, in the dtype of X.

        Parameters
        ----------
        X : array or data frame (n_samples, n_features)

        Returns
        -------
        array (n_samples,) or (n_samples, n_targets)
        """
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=[np.float64, np.float32])
        rows = self._in_blocks(X, np.empty((len(X), 0)), x_offset=self.x_offset_)
        C = (self.centers_ - self.x_offset_) @ self.components_.T

        def block(X: Array, Y: Array, w: Array | None) -> tuple[Array]:
            return (self.kernel_(X @ self.components_.T, C) @ self.dual_coef_ + self.intercept_,)

        return rows.map(block, len(C)).astype(X.dtype, copy=False)

    def transform(self, X: Any) -> Any:
        """Return the latent coordinates ``X @ components_.T``.

        Parameters
        ----------
        X : array or data frame (n_samples, n_features)

        Returns
        -------
        array (n_samples, n_components)
        """
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=[np.float64, np.float32])
        return X @ self.components_.astype(X.dtype, copy=False).T

    def _validated(self, X: Any, y: Any, sample_weight: Any) -> tuple[Array, Array]:
        """Return the training data as arrays, or raise with the argument's name."""
        check_lengths(X, y, sample_weight)
        check_numbers(X, y)
        options = {"multi_output": True, "y_numeric": True, "ensure_min_samples": 2}
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32], **options)
        return X, y

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[0])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @property
    def _n_threads(self) -> int:
        return blas_threads() if self.n_jobs is None else int(joblib.effective_n_jobs(self.n_jobs))

    def _in_blocks(self, X: Array, y: Array, weight: Array | None = None, **coordinates: Array | None) -> InMemoryRows:
        return InMemoryRows(X, y, weight, block_size=self.block_size, n_threads=self._n_threads, **coordinates)

    def _rows(self, X: Array, y: Array, weight: Array | None) -> tuple[InMemoryRows, Moments]:
        """Return the rows in the coordinates of the optimisation, and what those are."""
        found = moments(self._in_blocks(X, y, weight))
        # The mean of a constant target may be off by rounding, and what is left would look like a signal.
        same = np.min(y, axis=0) == np.max(y, axis=0)
        found = replace(found, y_mean=np.where(same, y[0], found.y_mean))
        if not self.scale_features:
            found = replace(found, x_mean=np.zeros_like(found.x_mean), x_scale=np.ones_like(found.x_scale))
        if not self.fit_intercept:
            found = replace(found, y_mean=np.zeros_like(found.y_mean))
        x_offset, x_scale = (found.x_mean, found.x_scale) if self.scale_features else (None, None)
        y_offset = found.y_mean if self.fit_intercept else None
        return self._in_blocks(X, y, weight, x_offset=x_offset, x_scale=x_scale, y_offset=y_offset), found

    def _store(self, result: Result, kernel: Kernel, centers: Array, scaling: Moments, one_target: bool) -> None:
        B = np.where(scaling.constant, 0.0, result.B) if self.scale_features else result.B
        self.components_, self.kernel_, self.singular_values_ = canonical_map(B, kernel, scaling.x_scale)
        self.gamma_ = self.kernel_.scale
        self.centers_ = centers * scaling.x_scale + scaling.x_mean
        self.x_offset_ = scaling.x_mean
        self.dual_coef_ = result.alpha[:, 0] if one_target else result.alpha
        self.intercept_ = float(scaling.y_mean[0]) if one_target else scaling.y_mean
        self.reg_lambda_ = result.reg_lambda
        self.n_iter_ = max(1, result.n_iter)
        self.result_, self.history_ = result, result.history
