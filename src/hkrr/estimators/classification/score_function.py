"""`ScoreFunction`: the function from inputs to class scores."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from hkrr._base.linear_algebra import Array
from hkrr._maps import KernelExpansion
from hkrr.rows import Rows


@dataclass(frozen=True)
class ScoreFunction(KernelExpansion):
    """A kernel expansion whose values are the scores of the classes.

    Inputs and centers are in the original units of X. For two classes, `alpha` has one column. For more classes,
    `alpha` has one column per class.
    """

    # The caller checks that the scores are finite.
    @np.errstate(over="ignore", invalid="ignore")
    def of_rows(self, rows: Rows) -> Array:
        """Return the scores of all rows, shape (n, n_scores)."""
        return super().of_rows(rows)

    def calibrated(self, slope: float, offsets: Array) -> ScoreFunction:
        """Return the score function whose scores are multiplied by `slope` and shifted by the offset of each class.

        Two classes have a single score. It is shifted by the difference of the two offsets.
        """
        if self.alpha.shape[1] == 1:
            offsets = offsets[1:] - offsets[:1]
        return replace(self, alpha=slope * self.alpha, intercept=slope * self.intercept + offsets)
