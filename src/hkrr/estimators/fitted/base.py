"""What a fitted map does, whoever found it: predict, transform, and keep itself in canonical form."""

from __future__ import annotations

from collections.abc import Callable
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
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_is_fitted, validate_data

from hkrr._arrays import Array, is_torch_array
from hkrr._validation import check_installed, in_finite_numbers
from hkrr.canonical import canonical_map
from hkrr.diagnostics import Diagnostics, announce
from hkrr.importance import FeatureImportances
from hkrr.journal import step
from hkrr.kernels import Kernel
from hkrr.opening import apply_elsewhere, is_elsewhere, open_rows
from hkrr.rows import InMemoryRows, Rows
from hkrr.rows.base import targets
from hkrr.samples import check_lengths, check_numbers
from hkrr.scaling import Moments, moments
from hkrr.solvers import LBFGS, Result, get_solver
from hkrr.summary import Summarised
from hkrr.threads import blas_threads
from hkrr.uncertainty import Uncertain


class MapModel(
    Uncertain,
    FeatureImportances,
    Summarised,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    MultiOutputMixin,
    RegressorMixin,
    BaseEstimator,
):
    """The part of an estimator that works with a map, a kernel, centers and coefficients once they are there."""

    fit_intercept: bool
    scale_features: bool
    block_size: Literal["auto"] | int
    n_jobs: int | None
    device: Any = None

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Return ``g(Bx)`` for every row, in the dtype of X, or in float64 where float32 has no numbers of that size.

        Parameters
        ----------
        X : array, data frame, tensor, path(s), function that gives blocks, or Dask collection
            As in `fit`; files are read in pieces.
        return_std : bool, default=False
            Whether to return the standard deviations of new observations too: of the equivalent Gaussian process at
            the learned map (see `hkrr.posterior`), its noise included. That of the function alone is
            ``sqrt(std**2 - noise_variance_)``. The map is taken for the true one: `predict_interval` does not.

        Returns
        -------
        array (n_samples,) or (n_samples, n_targets); of a tensor a tensor, of a Dask collection one
            With ``return_std`` a pair of them.
        """
        check_is_fitted(self)
        if return_std:
            return self._mean_and_std(X)
        return self._applied(X, "predict", self.dual_coef_.shape[1:], self._predict_rows)

    def _applied(self, X: Any, name: str, tail: tuple[int, ...], of_rows: Callable[[Rows], Array]) -> Any:
        """Return ``of_rows`` of these rows, wherever they are; the arguments are those of `apply_elsewhere`."""

        def sound(rows: Rows) -> Array:
            return in_finite_numbers("predictions", lambda: of_rows(rows))

        if is_elsewhere(X):
            return apply_elsewhere(self, X, name, tail, sound)
        X = validate_data(self, X, reset=False, dtype=[np.float64, np.float32])
        rows = self._in_blocks(X, np.empty((len(X), 0)), None, self.device)
        return _as_dtype(sound(rows), X.dtype)

    def _predict_rows(self, rows: Rows) -> Array:
        return self._cut(self._uncut(rows))

    def _uncut(self, rows: Rows) -> Array:
        rows = rows.with_coordinates(self.x_offset_, None, None)
        C = (self.centers_ - self.x_offset_) @ self.components_.T
        kernel = self.kernel_

        def block(X: Array, Y: Array, w: Array | None, B: Array, C: Array, alpha: Array, b: Array) -> tuple[Array]:
            return (kernel(X @ B.T, C) @ alpha + b,)

        small = (self.components_, C, self.dual_coef_, np.atleast_1d(self.intercept_))
        return rows.map(block, len(C), *(rows.place(array) for array in small))

    def _cut(self, predicted: Array) -> Array:
        """Return predictions as they are to be seen; here as they are."""
        return predicted

    def transform(self, X: Any) -> Any:
        """Return the latent coordinates ``X @ components_.T``.

        Parameters
        ----------
        X : as in `predict`

        Returns
        -------
        array (n_samples, n_components); of a tensor a tensor, of a Dask collection one
        """
        check_is_fitted(self)
        if is_elsewhere(X):

            def latent(X: Array, Y: Array, w: Array | None, B: Array) -> tuple[Array]:
                return (X @ B.T,)

            B = self.components_
            return apply_elsewhere(self, X, "transform", B.shape[:1], lambda rows: rows.map(latent, 1, rows.place(B)))
        X = validate_data(self, X, reset=False, dtype=[np.float64, np.float32])
        return X @ self.components_.astype(X.dtype, copy=False).T

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return R2, the mean over the targets.

        Parameters
        ----------
        X, y : as in `fit`
        sample_weight : array or tensor (n_samples,) or None

        Returns
        -------
        float
        """
        if not is_elsewhere(X):
            return float(super().score(X, y, sample_weight))
        check_is_fitted(self)
        names = list(self.feature_names_in_) if hasattr(self, "feature_names_in_") and not is_torch_array(X) else None
        opened = open_rows(
            X, y, sample_weight, device=None, block_size=self.block_size, n_threads=self._n_threads, names=names
        )
        if opened.rows.n_features != self.n_features_in_:
            n, expected = opened.rows.n_features, self.n_features_in_
            raise ValueError(f"X has {n} columns, and the model was fitted with {expected}")
        weight = None if sample_weight is None else sample_weight.cpu()
        return float(r2_score(opened.rows.map(targets), self._predict_rows(opened.rows), sample_weight=weight))

    def _opened(self, X: Any, y: Any, sample_weight: Any) -> tuple[Rows, bool]:
        """Return the rows of tensors, files or Dask collections, and whether they have one target."""
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

    def _in_blocks(self, X: Array, y: Array, weight: Array | None, device: Any) -> Rows:
        """Return the rows of arrays, on the device or, where that is None, in memory."""
        if device is not None:
            check_installed("torch", "torch", "devices")
            from hkrr.rows.device import TorchRows

            return TorchRows(X, y, weight, device=device, block_size=self.block_size)
        return InMemoryRows(X, y, weight, block_size=self.block_size, n_threads=self._n_threads)

    def _scaled(self, data: Rows) -> tuple[Rows, Moments]:
        """Return the rows in the coordinates of the optimisation, and what those are."""
        # A step: with other blocks the sums may have other last bits, and all that follows would begin anew.
        found = step(("moments", data.n_rows), lambda: moments(data))
        if not self.scale_features:
            zero = np.zeros_like(found.x_mean)
            found = replace(found, x_mean=zero, x_scale=zero + 1.0, constant=np.zeros_like(found.constant))
        if not self.fit_intercept:
            found = replace(found, y_mean=np.zeros_like(found.y_mean))
        x_offset, x_scale = (None, None)
        if self.scale_features:  # what is constant up to rounding is zero, as it is to the map
            x_offset, x_scale = found.x_mean, np.where(found.constant, np.inf, found.x_scale)
        y_offset = found.y_mean if self.fit_intercept else None
        return data.with_coordinates(x_offset, x_scale, y_offset), found

    def _store(self, result: Result, kernel: Kernel, centers: Array, scaling: Moments, one_target: bool) -> None:
        B = np.where(scaling.constant, 0.0, result.B)
        self.components_, self.kernel_, self.singular_values_ = canonical_map(B, kernel, scaling.x_scale)
        self.gamma_ = self.kernel_.scale
        self.centers_ = centers * scaling.x_scale + scaling.x_mean
        self.x_offset_ = scaling.x_mean
        self.dual_coef_ = result.alpha[:, 0] if one_target else result.alpha
        self.intercept_ = float(scaling.y_mean[0]) if one_target else scaling.y_mean
        self.reg_lambda_ = result.reg_lambda
        self.n_iter_ = max(1, result.n_iter)
        self.result_, self.history_ = result, result.history
        self.__dict__.pop("diagnostics_", None)  # of an earlier fit, until this one is examined
        self._keep_uncertainty(None)

    def _examine(self, found: Diagnostics) -> None:
        """Keep what a fit says of its health, and warn of what deserves attention."""
        self.diagnostics_ = replace(found, remedies=self._remedies())
        announce(self.diagnostics_)

    def _remedies(self) -> tuple[str, ...]:
        """Return the names of the parameters whose change can help: not those that are as they should be."""
        settings = self.get_params(deep=False)
        by_lbfgs = isinstance(get_solver(settings["solver"]), LBFGS)
        useless = {
            "scale_features": settings["scale_features"],
            "solver": by_lbfgs,
            "criterion": settings["criterion"] == "evidence" or not by_lbfgs,  # which goes with L-BFGS alone
            "time_limit": settings["time_limit"] is None,
            "reg_lambdas": settings.get("cv") is None,  # without, lambda is learned
        }
        return tuple(name for name in settings if not useless.get(name, False))


def _as_dtype(values: Array, dtype: Any) -> Array:
    """Return the values in that dtype, unless it has no numbers of their size."""
    limits, largest = np.finfo(dtype), float(np.max(np.abs(values)))
    fits = largest == 0.0 or float(limits.tiny) <= largest <= float(limits.max)
    return values.astype(dtype, copy=False) if fits else values
