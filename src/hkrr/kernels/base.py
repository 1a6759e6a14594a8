"""The base class of kernels, and the median heuristic, which chooses gamma from the distances between points."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from scipy.spatial.distance import pdist

from hkrr._base.linear_algebra import Array, array_namespace, low_rank_product

# The types of the functions that `Kernel.vjp` and `Kernel.vjp_low_rank` return.
Pullback = Callable[[Array], tuple[Array, Array]]
LowRankPullback = Callable[[Array, Array], tuple[Array, Array]]

# Maximum number of rows between which the median heuristic computes distances. If there are more rows,
# `with_median_gamma` uses the first 1,000 rows, and `hkrr.solvers.initialization` draws rows at random.
MEDIAN_ROWS = 1000
# A kernel without a formula for its diagonal computes it from kernel matrices with at most this many rows.
_DIAGONAL_BLOCK = 64


@dataclass(frozen=True, kw_only=True)
class Kernel(ABC):
    """Abstract base class of kernels: a positive definite function of two latent points.

    Parameters
    ----------
    gamma : float or None, default=None
        Scale of the kernel. If None, the estimator chooses gamma. If the kernel is called directly, None means 1.

    Examples
    --------
    >>> import numpy as np
    >>> from hkrr.kernels import Gaussian, Kernel
    >>> kernel = Gaussian().with_gamma(2.0)
    >>> isinstance(kernel, Kernel), kernel.scale, kernel.rotation_invariant
    (True, 2.0, True)
    >>> K, pullback = kernel.vjp(np.zeros((1, 2)), np.ones((3, 2)))
    >>> dP, dC = pullback(np.ones((1, 3)))
    >>> K.shape, dP.shape, dC.shape
    ((1, 3), (1, 2), (3, 2))
    """

    gamma: float | None = None

    def __post_init__(self) -> None:
        if self.gamma is not None and not 0 < self.gamma < math.inf:
            raise ValueError(f"gamma must be a positive finite number or None, got {self.gamma!r}")

    @abstractmethod
    def __call__(self, P: Array, C: Array) -> Array:
        """Return the matrix k(p_i, c_j)."""

    @abstractmethod
    def vjp(self, P: Array, C: Array) -> tuple[Array, Pullback]:
        """Return K and a function that maps G to the gradients of sum(G * K) with respect to P and C.

        K is the matrix k(p_i, c_j), G is an array of the same shape, and * is the entrywise product. The function may
        overwrite G.
        """

    def vjp_low_rank(self, P: Array, C: Array) -> tuple[Array, LowRankPullback]:
        """Return K and a function that maps R and A to the gradients of sum(R A' * K) with respect to P and C.

        R A' is a matrix product, and * is the entrywise product. R has one row for each row of P, and A one row for
        each row of C. Both have one column per target. This implementation forms the matrix R A'. Subclasses can
        override it with a formula that does not need R A'.
        """
        K, pullback = self.vjp(P, C)
        return K, lambda R, A: pullback(low_rank_product(R, A))

    @property
    def scale(self) -> float:
        """Value of gamma used in computations: 1 if gamma is None."""
        return 1.0 if self.gamma is None else self.gamma

    @property
    def rotation_invariant(self) -> bool:
        """Whether k(Qp, Qc) = k(p, c) for every rotation Q."""
        return False

    def with_gamma(self, gamma: float) -> Self:
        """Return the same kernel with a different gamma."""
        return replace(self, gamma=float(gamma))

    def diagonal(self, P: Array) -> Array:
        """Return the vector of k(p_i, p_i)."""
        blocks = [P[i : i + _DIAGONAL_BLOCK] for i in range(0, P.shape[0], _DIAGONAL_BLOCK)]
        return array_namespace(P).concat([self(block, block).diagonal() for block in blocks])

    def diagonal_pullback(self, P: Array, g: Array) -> Array:
        """Return the gradient of ``sum_i g_i k(p_i, p_i)`` with respect to P."""
        xp = array_namespace(P)
        parts = []
        for i in range(0, P.shape[0], _DIAGONAL_BLOCK):
            block = P[i : i + _DIAGONAL_BLOCK]
            left, right = self.vjp(block, block)[1](_diagonal_matrix(g[i : i + _DIAGONAL_BLOCK]))
            parts.append(left + right)
        return xp.concat(parts)

    def median_gamma(self, P: Array) -> float:
        """Return the gamma of the median heuristic (section 5 of the paper).

        It is ``1 / (2 median^2)``, where median is the median distance between distinct rows of P.
        """
        return median_rule(P, "euclidean")


def with_median_gamma(kernel: Kernel, X: Array, B: Array | None = None, factor: float = 1.0) -> Kernel:
    """Return the kernel with `factor` times the median-heuristic gamma of the first 1,000 rows of X, or of X B'."""
    P = X[:MEDIAN_ROWS] if B is None else X[:MEDIAN_ROWS] @ B.T
    return kernel.with_gamma(factor * kernel.median_gamma(P))


def _diagonal_matrix(values: Array) -> Array:
    xp = array_namespace(values)
    return xp.eye(values.shape[0], dtype=values.dtype, device=values.device) * values


def median_rule(P: Array, metric: str) -> float:
    """Return the gamma of the median heuristic for a given metric.

    It is ``1 / (2 median^2)``, where median is the median distance between distinct rows of P. If P has only one
    distinct row, or if this value is not finite, 1 is returned.
    """
    points = np.unique(np.asarray(P, dtype=np.float64), axis=0)
    if len(points) < 2:
        return 1.0
    distances = pdist(points, metric)
    # The median distance can underflow to zero even though the rows are distinct. The mean distance is then used.
    typical = float(np.median(distances)) or float(np.mean(distances))
    gamma = 0.5 / typical**2 if typical > 0 else math.inf
    return gamma if math.isfinite(gamma) else 1.0
