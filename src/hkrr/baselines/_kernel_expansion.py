"""What the rivals that are sums of kernels share: ``f(x) = sum_j a_j k(B (x - o), B (c_j - o)) + b``, in units of X."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from hkrr._arrays import Array
from hkrr._validation import in_finite_numbers
from hkrr.kernels import Kernel
from hkrr.rows import InMemoryRows
from hkrr.scaling import Moments, moments


class KernelExpansion(MultiOutputMixin, RegressorMixin, BaseEstimator):
    """It keeps ``components_`` (B), ``x_offset_`` (o), ``kernel_``, ``centers_``, ``dual_coef_`` and ``intercept_``."""

    def predict(self, X: Any) -> Array:
        """Return f at every row, in blocks."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        values = in_finite_numbers("predictions", lambda: self._values(X))
        return values[:, 0] if self.dual_coef_.ndim == 1 else values

    def _values(self, X: Array) -> Array:
        C = (self.centers_ - self.x_offset_) @ self.components_.T
        coefficients = self.dual_coef_.reshape(len(C), -1)

        def block(X: Array, Y: Array, w: Array | None) -> tuple[Array]:
            return (self.kernel_((X - self.x_offset_) @ self.components_.T, C) @ coefficients + self.intercept_,)

        return InMemoryRows(X, np.empty((len(X), 0))).map(block, len(C))

    def _validated(self, X: Any, y: Any, scale: bool = True) -> tuple[Array, Array, Moments]:
        """Return standardised inputs (or as they are), centred targets (a column each), and the moments."""
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True, multi_output=True)
        self._one_target = np.ndim(y) == 1
        Y = np.asarray(y, dtype=np.float64).reshape(len(X), -1)
        found = moments(InMemoryRows(X, Y))
        if not scale:
            found = replace(found, x_mean=np.zeros_like(found.x_mean), x_scale=np.ones_like(found.x_scale))
        return (X - found.x_mean) / found.x_scale, Y - found.y_mean, found

    def _keep(self, B: Array, kernel: Kernel, centers: Array, alpha: Array, found: Moments) -> None:
        """Store the function, in the coordinates of X."""
        self.components_, self.kernel_, self.x_offset_ = B / found.x_scale, kernel, found.x_mean
        self.centers_ = centers * found.x_scale + found.x_mean
        self.dual_coef_ = alpha[:, 0] if self._one_target else alpha
        self.intercept_ = float(found.y_mean[0]) if self._one_target else found.y_mean
