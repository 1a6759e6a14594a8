"""`FittedMap`: the attributes that the functions and mixins of this package expect of a fitted model."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np

from hkrr._base.linear_algebra import Array
from hkrr._maps import KernelExpansion, ShapeName
from hkrr.kernels import Kernel, kernel_name
from hkrr.rows.column_transform import ColumnTransform


class FittedMap:
    """Base class of fitted models ``f(x) = g(Bx)``, where g is a linear combination of kernel functions at centers.

    The class declares the attributes that `fit` sets. `hkrr.HyperKernelRidge` documents these attributes.
    """

    map_: Array
    singular_values_: Array
    kernel_: Kernel
    gamma_: float
    centers_: Array
    dual_coef_: Array
    intercept_: Any
    x_offset_: Array
    reg_lambda_: float
    n_features_in_: int
    feature_names_in_: Array
    # Only a search that compares kernels can set this attribute.
    column_transform_: ColumnTransform | None = None

    @property
    def components_(self) -> Array:
        """The map B as a matrix (n_components, n_features). For a diagonal map, each access creates the matrix."""
        return np.diag(self.map_) if self.map_.ndim == 1 else self.map_

    @property
    def _n_features_out(self) -> int:
        return len(self.map_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]  # defined by scikit-learn's base classes
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


Fitted = TypeVar("Fitted", bound=FittedMap)


def kernel_expansion(model: FittedMap) -> KernelExpansion:
    """Return the fitted function: the predictions before truncation."""
    return KernelExpansion(
        model.kernel_,
        model.map_,
        model.centers_,
        model.dual_coef_,
        model.intercept_,
        model.x_offset_,
        model.column_transform_,
    )


def transformed_columns(model: FittedMap, X: Array) -> Array:
    """Return X in the units of the centers: unchanged, or transformed if the model transforms the columns."""
    return X if model.column_transform_ is None else model.column_transform_(X)


def with_expansion(model: Fitted, function: KernelExpansion, singular_values: Array) -> Fitted:
    """Return a copy of a fitted model with another function, and the singular values of its map."""
    other = copy.copy(model)
    other.map_, other.singular_values_ = function.B, singular_values
    other.kernel_, other.gamma_ = function.kernel, function.kernel.scale
    other.centers_, other.x_offset_ = function.centers, function.x_offset
    other.dual_coef_, other.intercept_ = function.alpha, function.intercept
    return other


def map_shape(model: FittedMap) -> ShapeName:
    """Return the shape of the map. It is "full" unless a search selected a different shape and set ``map_shape_``."""
    return ShapeName(getattr(model, "map_shape_", ShapeName.FULL))


class KernelAndMap(NamedTuple):
    """A combination of a kernel and a map. Its text is, for example, "gaussian, 2 directions" or "anova, diagonal"."""

    kernel: str  # name of the kernel
    shape: ShapeName
    n_components: int

    @classmethod
    def of(cls, model: FittedMap) -> Self:
        """Return the kernel and the map of a fitted model."""
        return cls(kernel_name(model.kernel_), map_shape(model), len(model.map_))

    def __str__(self) -> str:
        is_full = self.shape == ShapeName.FULL
        return f"{self.kernel}, {ShapeName.FULL.describe(self.n_components) if is_full else self.shape}"
