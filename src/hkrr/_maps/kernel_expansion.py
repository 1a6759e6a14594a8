"""The regression function of a fitted model, a kernel expansion at the centers.

    ``f(x) = sum_j a_j k(B (x - o), B (c_j - o)) + b``

Here c_j are the centers, a_j the coefficients, o is an offset and b the intercept. The offset changes f only for the
polynomial kernel, since all other kernels are translation invariant.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hkrr._base.linear_algebra import Array, project
from hkrr.kernels import Kernel
from hkrr.kernels.expansion_values import expand, expand_latent
from hkrr.rows import Rows
from hkrr.rows.column_transform import ColumnTransform


@dataclass(frozen=True)
class KernelExpansion:
    """The regression function of a fitted model: a linear combination of kernels at the centers, plus an intercept."""

    kernel: Kernel
    B: Array  # (d, D): the map from inputs to latent points; (D,): the diagonal of a diagonal map
    centers: Array  # (c, D), in the units of X, after the transform of the columns, if any
    alpha: Array  # (c,) or (c, n_targets)
    intercept: float | Array = 0.0  # a number, or an array (n_targets,)
    x_offset: Array | None = None  # (D,), subtracted from X and the centers before the map is applied; None: zero
    transform: ColumnTransform | None = None  # transform of the columns of X (not of the centers)

    @property
    def latent_centers(self) -> Array:
        """Latent centers, ``B (c_j - o)``."""
        return self.latent(self.centers)

    def latent(self, X: Array) -> Array:
        """Return the latent points ``B (x - o)`` of points x in the units of the centers."""
        return project(X if self.x_offset is None else X - self.x_offset, self.B)

    def at_latent(self, P: Array) -> Array:
        """Return the values at latent points ``P = B (x - o)``."""
        return expand_latent(self.kernel, P, self.latent_centers, self.alpha) + self.intercept

    def at(self, X: Array) -> Array:
        """Return the values at points in the units of the centers. One kernel matrix is computed for all points."""
        return self.at_latent(self.latent(X))

    def of_rows(self, rows: Rows) -> Array:
        """Return the values at all rows of a row source, computed block by block. X is in its original units."""
        kernel, C = self.kernel, self.latent_centers

        def block(X: Array, Y: Array, w: Array | None, B: Array, C: Array, alpha: Array, b: Array) -> tuple[Array]:
            return (expand(kernel, X, B, C, alpha) + b,)

        small = (self.B, C, self.alpha, np.atleast_1d(self.intercept))
        if self.x_offset is not None:
            rows = rows.with_coordinates(self.x_offset, None, None, self.transform)
        return rows.map(block, len(C), *(rows.place(array) for array in small))
