"""Scores of classes: kernels at centers of a mapped row, one column of coefficients for each score."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from hkrr._arrays import Array
from hkrr.kernels import Kernel
from hkrr.rows import Rows


@dataclass(frozen=True)
class ScoreFunction:
    """``k((x - x_offset) B', (centers - x_offset) B') alpha + intercept``, in the coordinates of X."""

    components: Array
    kernel: Kernel
    x_offset: Array
    centers: Array
    alpha: Array
    intercept: Array

    @np.errstate(over="ignore", invalid="ignore")  # who asks tells of scores that are not finite, in words
    def of(self, rows: Rows) -> Array:
        """Return the scores of all rows, (n, T)."""
        C, kernel = (self.centers - self.x_offset) @ self.components.T, self.kernel

        def block(X: Array, Y: Array, w: Array | None, B: Array, C: Array, alpha: Array, b: Array) -> tuple[Array]:
            return (kernel(X @ B.T, C) @ alpha + b,)

        small = (self.components, C, self.alpha.reshape(len(C), -1), np.atleast_1d(self.intercept))
        shifted = rows.with_coordinates(self.x_offset, None, None)
        return shifted.map(block, len(C), *(rows.place(array) for array in small))

    def calibrated(self, slope: float, offsets: Array) -> ScoreFunction:
        """Return the scores times the slope, plus an offset for each class; of two classes theirs is a difference."""
        if self.alpha.shape[1] == 1:
            offsets = offsets[1:] - offsets[:1]
        return replace(self, alpha=slope * self.alpha, intercept=slope * self.intercept + offsets)
