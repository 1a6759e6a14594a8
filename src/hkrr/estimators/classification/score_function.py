"""`ScoreFunction`: the function from inputs to class scores."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from hkrr._base.linear_algebra import Array
from hkrr._maps import KernelExpansion
from hkrr.kernels import Kernel
from hkrr.rows import Rows


@dataclass(frozen=True)
class ScoreFunction:
    """The function ``k((x - x_offset) B', (centers - x_offset) B') alpha + intercept``, where B is `components`.

    Inputs and centers are in the original coordinates of X. For two classes, `alpha` has one column. For more classes,
    `alpha` has one column per class.
    """

    components: Array
    kernel: Kernel
    x_offset: Array
    centers: Array
    alpha: Array
    intercept: Array

    # The caller checks that the scores are finite.
    @np.errstate(over="ignore", invalid="ignore")
    def of(self, rows: Rows) -> Array:
        """Return the scores of all rows, shape (n, n_scores)."""
        alpha = self.alpha.reshape(len(self.centers), -1)
        found = KernelExpansion(self.kernel, self.components, self.centers, alpha, self.intercept, self.x_offset)
        return found.of_rows(rows)

    def calibrated(self, slope: float, offsets: Array) -> ScoreFunction:
        """Return the score function whose scores are multiplied by `slope` and shifted by the offset of each class.

        Two classes have a single score. It is shifted by the difference of the two offsets.
        """
        if self.alpha.shape[1] == 1:
            offsets = offsets[1:] - offsets[:1]
        return replace(self, alpha=slope * self.alpha, intercept=slope * self.intercept + offsets)
