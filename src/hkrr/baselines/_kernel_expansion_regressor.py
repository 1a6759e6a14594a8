"""The base class of the baselines that predict with a weighted sum of kernels (`hkrr._maps.KernelExpansion`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from hkrr._base.checks import require_finite
from hkrr._base.linear_algebra import Array
from hkrr._maps import KernelExpansion
from hkrr.kernels import Kernel
from hkrr.rows import InMemoryRows
from hkrr.rows.standardize import Moments, moments


class KernelExpansionRegressor(MultiOutputMixin, RegressorMixin, BaseEstimator):
    """A regressor that predicts ``f(x) = sum_j a_j k(B (x - o), B (c_j - o)) + b``.

    The ``fit`` of a subclass starts with `_standardize` and ends with `_set_expansion`. `_set_expansion` sets the
    fitted attributes ``components_`` (B), ``x_offset_`` (o), ``kernel_`` (k), ``centers_`` (c_j), ``dual_coef_`` (a_j)
    and ``intercept_`` (b), all in the original units of X.
    """

    def predict(self, X: Any) -> Array:
        """Return the predictions at the rows of X, computed in blocks of rows."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        rows = InMemoryRows(X, np.empty((len(X), 0)))
        return require_finite("predictions", lambda: self._expansion.of_rows(rows))

    @property
    def _expansion(self) -> KernelExpansion:
        return KernelExpansion(
            self.kernel_, self.components_, self.centers_, self.dual_coef_, self.intercept_, self.x_offset_
        )

    def _standardize(self, X: Any, y: Any, scale: bool = True) -> tuple[Array, Array, Moments]:
        """Validate X and y. Return the standardized inputs, the centred targets, and the moments of the columns.

        The targets are returned as a matrix with one column per target, even if y is one-dimensional. The moments are
        the means and standard deviations of the columns. With ``scale=False`` the inputs are returned unchanged, and
        the moments have mean 0 and scale 1 for each column of X.
        """
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True, multi_output=True)
        self._one_target = np.ndim(y) == 1
        Y = np.asarray(y, dtype=np.float64).reshape(len(X), -1)
        scaling = moments(InMemoryRows(X, Y))
        if not scale:
            scaling = replace(scaling, x_mean=np.zeros_like(scaling.x_mean), x_scale=np.ones_like(scaling.x_scale))
        return (X - scaling.x_mean) / scaling.x_scale, Y - scaling.y_mean, scaling

    def _set_expansion(self, B: Array, kernel: Kernel, centers: Array, alpha: Array, scaling: Moments) -> None:
        """Convert an expansion for standardized inputs to the original units of X, and set the fitted attributes."""
        self.components_, self.kernel_, self.x_offset_ = B / scaling.x_scale, kernel, scaling.x_mean
        self.centers_ = scaling.original(centers)
        self.dual_coef_ = alpha[:, 0] if self._one_target else alpha
        self.intercept_ = float(scaling.y_mean[0]) if self._one_target else scaling.y_mean
