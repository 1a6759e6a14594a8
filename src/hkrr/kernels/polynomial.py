"""The polynomial kernel, a function of the scalar product of two points."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hkrr._base.linear_algebra import Array, array_namespace
from hkrr.kernels.base import Kernel, Pullback


@dataclass(frozen=True, kw_only=True)
class Polynomial(Kernel):
    """Polynomial kernel ``(gamma p.c + coef0)^degree``, where p.c is the scalar product.

    Parameters
    ----------
    gamma : float or None, default=None
        Scale of the scalar product. If None, the estimator chooses gamma. If the kernel is called directly, None means
        1.
    degree : int, default=3
        Degree, at least 1.
    coef0 : float, default=1.0
        Constant term. It must not be negative.

    Examples
    --------
    >>> import numpy as np
    >>> from hkrr.kernels import Polynomial
    >>> Polynomial(gamma=1.0, degree=2)(np.array([[1.0, 2.0]]), np.array([[3.0, 4.0]]))  # (11 + 1)^2
    array([[144.]])
    """

    degree: int = 3
    coef0: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.degree < 1 or self.degree != int(self.degree):
            raise ValueError(f"degree must be an integer of at least 1, got {self.degree!r}")
        if not 0 <= self.coef0 < math.inf:
            raise ValueError(f"coef0 must be finite and at least 0 for a positive definite kernel, got {self.coef0!r}")

    @property
    def rotation_invariant(self) -> bool:
        return True

    def __call__(self, P: Array, C: Array) -> Array:
        return (self.scale * (P @ C.T) + self.coef0) ** self.degree

    def vjp(self, P: Array, C: Array) -> tuple[Array, Pullback]:
        base = self.scale * (P @ C.T) + self.coef0

        def pullback(G: Array) -> tuple[Array, Array]:
            G *= (self.degree * self.scale) * base ** (self.degree - 1)
            return G @ C, G.T @ P

        return base**self.degree, pullback

    def diagonal(self, P: Array) -> Array:
        return (self.scale * array_namespace(P).sum(P * P, axis=1) + self.coef0) ** self.degree

    def diagonal_pullback(self, P: Array, g: Array) -> Array:
        base = self.scale * array_namespace(P).sum(P * P, axis=1) + self.coef0
        return (2.0 * self.degree * self.scale * g * base ** (self.degree - 1))[:, None] * P

    def median_gamma(self, P: Array) -> float:
        """Return ``1 / mean |p|^2``. With this gamma, ``gamma p.p`` is 1 on average.

        The median distance of other kernels is not used, because this kernel is not a function of the distance.
        """
        square = float(np.mean(np.sum(np.square(np.asarray(P, dtype=np.float64)), axis=1)))
        gamma = 1.0 / square if square > 0 else math.inf
        return gamma if math.isfinite(gamma) else 1.0
