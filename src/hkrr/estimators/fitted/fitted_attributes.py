"""`FittedMap`: the attributes that the functions and mixins of this package expect of a fitted model."""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np

from hkrr._base.linear_algebra import Array
from hkrr._maps import KernelExpansion, ShapeName
from hkrr.kernels import Kernel, kernel_name


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

    @property
    def components_(self) -> Array:
        """The map B as a matrix (n_components, n_features). For a diagonal map, each access creates the matrix."""
        return np.diag(self.map_) if self.map_.ndim == 1 else self.map_

    @property
    def _expansion(self) -> KernelExpansion:
        """The fitted function: the predictions before truncation."""
        return KernelExpansion(self.kernel_, self.map_, self.centers_, self.dual_coef_, self.intercept_, self.x_offset_)

    @property
    def _n_features_out(self) -> int:
        return len(self.map_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]  # defined by scikit-learn's base classes
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


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
