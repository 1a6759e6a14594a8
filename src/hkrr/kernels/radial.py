"""Radial kernels: functions of the squared distance between two latent points."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field

import numpy as np

from hkrr._base.linear_algebra import Array, array_namespace, is_torch_array, scaled_squared_distances
from hkrr.kernels._matern import check_nu, matern_in_place, matern_polynomial
from hkrr.kernels.base import Kernel, LowRankPullback, Pullback


class Radial(Kernel):
    """Base class of radial kernels ``k(p, c) = phi(u)`` with ``u = gamma |p - c|^2``.

    Subclasses implement ``value_and_decay``. Let * be the entrywise product, and W = -G * phi'(u). The gradients of
    sum(G * K) with respect to P and C are

    ``dP = 2 gamma (W C - (W 1) * P)``,  ``dC = 2 gamma (W' P - (W' 1) * C)``,

    where 1 is a vector of ones. The vectors W 1 and W' 1 multiply the rows of P and C.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import numpy as np
    >>> from hkrr.kernels import Radial
    >>> @dataclass(frozen=True, kw_only=True)
    ... class Cauchy(Radial):
    ...     def value_and_decay(self, u):
    ...         phi = 1.0 / (1.0 + u)
    ...         return phi, phi * phi
    >>> Cauchy(gamma=1.0)(np.array([[0.0]]), np.array([[0.0], [1.0], [3.0]]))
    array([[1. , 0.5, 0.1]])
    """

    @property
    def smooth_at_zero(self) -> bool:
        """Whether phi is differentiable at u = 0. If not, distances below the rounding error are set to zero."""
        return True

    @property
    def rotation_invariant(self) -> bool:
        return True

    @abstractmethod
    def value_and_decay(self, u: Array) -> tuple[Array, Array]:
        """Return phi(u) and -phi'(u) entrywise. ``u`` may be overwritten.

        If phi(u) = -phi'(u), the same array may be returned twice.
        """

    def value(self, u: Array) -> Array:
        """Return phi(u) entrywise. ``u`` may be overwritten."""
        return self.value_and_decay(u)[0]

    def diagonal(self, P: Array) -> Array:
        return self.value(array_namespace(P).zeros_like(P[:, 0]))

    def diagonal_pullback(self, P: Array, g: Array) -> Array:
        return array_namespace(P).zeros_like(P)

    def _distances(self, P: Array, C: Array) -> Array:
        """Return the matrix of u = gamma |p - c|^2 for points and centers that `_around_centers` has shifted."""
        xp = array_namespace(P, C)
        u = scaled_squared_distances(P, C, self.scale)
        # Rounding can make small entries negative. Taking absolute values is as accurate as clipping, and four times as
        # fast.
        u = xp.abs(u, out=u)
        if not self.smooth_at_zero:
            of_P, of_C = xp.sum(P * P, axis=1, keepdims=True), xp.sum(C * C, axis=1, keepdims=True).T
            rounding = 8.0 * float(xp.finfo(u.dtype).eps) * self.scale
            if is_torch_array(u):
                u[u < rounding * (of_P + of_C)] = 0.0
            elif u.size > 0:
                # Usually few distances are below the largest rounding error. One pass finds them, and only they are
                # compared with their own rounding errors.
                i, j = np.nonzero(u < rounding * (np.max(of_P) + np.max(of_C)))
                u[i, j] = np.where(u[i, j] < rounding * (of_P[i, 0] + of_C[0, j]), 0.0, u[i, j])
        return u

    def _values(self, P: Array, C: Array) -> Array:
        return self.value(self._distances(P, C))

    def _values_and_decays(self, P: Array, C: Array) -> tuple[Array, Array]:
        return self.value_and_decay(self._distances(P, C))

    def __call__(self, P: Array, C: Array) -> Array:
        return self._values(*_around_centers(P, C))

    def vjp(self, P: Array, C: Array) -> tuple[Array, Pullback]:
        xp = array_namespace(P, C)
        P, C = _around_centers(P, C)
        K, decay = self._values_and_decays(P, C)

        def pullback(G: Array) -> tuple[Array, Array]:
            G *= decay
            # In BLAS, ((d + 1) x c) @ (c x n) is a third faster than (n x c) @ (c x (d + 1)).
            to_P = (xp.concat([C, xp.ones_like(C[:, :1])], axis=1).T @ G.T).T
            to_C = (xp.concat([P, xp.ones_like(P[:, :1])], axis=1).T @ G).T
            factor = 2.0 * self.scale
            return factor * (to_P[:, :-1] - to_P[:, -1:] * P), factor * (to_C[:, :-1] - to_C[:, -1:] * C)

        return K, pullback

    def vjp_low_rank(self, P: Array, C: Array) -> tuple[Array, LowRankPullback]:
        """Return K and a function that maps R and A to the gradients of sum(R A' * K) with respect to P and C.

        The function multiplies the matrix D = -phi'(u) by d + 1 columns for each target and does not form R A'. (The
        number of latent dimensions is d, and * is the entrywise product.) For one target with R = r and A = a, let
        W = (r a') * D. Then ``W [C, 1] = r * D (a * [C, 1])``, where 1 is a column of ones.
        """
        xp = array_namespace(P, C)
        P, C = _around_centers(P, C)
        K, decay = self._values_and_decays(P, C)
        P1, C1 = (xp.concat([M, xp.ones_like(M[:, :1])], axis=1) for M in (P, C))

        def pullback(R: Array, A: Array) -> tuple[Array, Array]:
            to_P, to_C = xp.zeros_like(P1), xp.zeros_like(C1)
            for t in range(R.shape[1]):
                r, a = R[:, t : t + 1], A[:, t : t + 1]
                # In BLAS, ((d + 1) x c) @ (c x n) is a third faster than (n x c) @ (c x (d + 1)).
                to_P += r * ((a * C1).T @ decay.T).T
                to_C += a * ((r * P1).T @ decay).T
            factor = 2.0 * self.scale
            return factor * (to_P[:, :-1] - to_P[:, -1:] * P), factor * (to_C[:, :-1] - to_C[:, -1:] * C)

        return K, pullback


def _around_centers(P: Array, C: Array) -> tuple[Array, Array]:
    """Return both sets of points shifted by the mean of the centers.

    Smaller norms reduce the cancellation in |p|^2 + |c|^2 - 2 p.c.
    """
    origin = array_namespace(P, C).mean(C, axis=0, keepdims=True)
    return P - origin, C - origin


@dataclass(frozen=True, kw_only=True)
class Gaussian(Radial):
    """Gaussian kernel ``exp(-gamma |p - c|^2)``.

    Examples
    --------
    >>> import numpy as np
    >>> from hkrr.kernels import Gaussian
    >>> Gaussian(gamma=0.5)(np.array([[0.0]]), np.array([[0.0], [1.0], [2.0]])).round(3)
    array([[1.   , 0.607, 0.135]])
    """

    def value(self, u: Array) -> Array:
        u *= -1.0
        return array_namespace(u).exp(u, out=u)

    def value_and_decay(self, u: Array) -> tuple[Array, Array]:
        K = self.value(u)
        return K, K

    def _values(self, P: Array, C: Array) -> Array:
        if not is_torch_array(P):
            return super()._values(P, C)
        # On a GPU, passes over the matrix dominate the cost. This formula saves two passes: the change of sign, because
        # the squared distances are computed with the factor -gamma, and the absolute value in `_distances`. A squared
        # distance that rounding makes negative then gives a kernel value slightly larger than 1.
        u = scaled_squared_distances(P, C, -self.scale)
        return array_namespace(u).exp(u, out=u)

    def _values_and_decays(self, P: Array, C: Array) -> tuple[Array, Array]:
        K = self._values(P, C)
        return K, K


@dataclass(frozen=True, kw_only=True)
class RationalQuadratic(Radial):
    """Rational quadratic kernel ``(1 + gamma |p - c|^2 / alpha)^(-alpha)``.

    Parameters
    ----------
    gamma : float or None, default=None
        Scale of the squared distance. If None, the estimator chooses gamma. If the kernel is called directly, None
        means 1.
    alpha : float, default=1.0
        Exponent. As alpha grows, the kernel approaches the Gaussian kernel.

    Examples
    --------
    >>> import numpy as np
    >>> from hkrr.kernels import RationalQuadratic
    >>> RationalQuadratic(gamma=0.5, alpha=2.0)(np.array([[0.0]]), np.array([[0.0], [1.0], [2.0]])).round(3)
    array([[1.  , 0.64, 0.25]])
    """

    alpha: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.alpha > 0:
            raise ValueError(f"alpha must be positive, got {self.alpha!r}")

    def value_and_decay(self, u: Array) -> tuple[Array, Array]:
        base = 1.0 + u / self.alpha
        K = base**-self.alpha
        return K, K / base


@dataclass(frozen=True, kw_only=True)
class InverseMultiquadric(Radial):
    """Inverse multiquadric kernel ``(1 + |p - c|^2 / ell^2)^(-1/2)`` with ``ell^2 = 1 / (2 gamma)``.

    Examples
    --------
    >>> import numpy as np
    >>> from hkrr.kernels import InverseMultiquadric
    >>> InverseMultiquadric(gamma=0.5)(np.array([[0.0]]), np.array([[0.0], [1.0], [2.0]])).round(3)
    array([[1.   , 0.707, 0.447]])
    """

    def value_and_decay(self, u: Array) -> tuple[Array, Array]:
        base = 1.0 + 2.0 * u
        K = base**-0.5
        return K, K / base


@dataclass(frozen=True, kw_only=True)
class Matern(Radial):
    """Matern kernel with smoothness nu and length scale ``ell = 1 / sqrt(2 gamma)``.

    With ``z = sqrt(2 nu) |p - c| / ell``, the kernel is exp(-z) times 1, 1 + z or 1 + z + z^2 / 3 for nu = 0.5, 1.5 or
    2.5.

    Parameters
    ----------
    gamma : float or None, default=None
        Scale of the squared distance, ``1 / (2 ell^2)``. If None, the estimator chooses gamma. If the kernel is called
        directly, None means 1.
    nu : {0.5, 1.5, 2.5}, default=1.5
        Smoothness.

    Examples
    --------
    >>> import numpy as np
    >>> from hkrr.kernels import Matern
    >>> Matern(gamma=0.5, nu=2.5)(np.array([[0.0]]), np.array([[0.0], [1.0], [2.0]])).round(3)
    array([[1.   , 0.524, 0.139]])
    """

    nu: float = 1.5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_nu(self.nu)

    @property
    def smooth_at_zero(self) -> bool:
        return self.nu > 0.5

    def value(self, u: Array) -> Array:
        u *= 4.0 * self.nu
        return matern_in_place(self.nu, array_namespace(u).sqrt(u, out=u))

    def value_and_decay(self, u: Array) -> tuple[Array, Array]:
        xp = array_namespace(u)
        u *= 4.0 * self.nu
        z = xp.sqrt(u, out=u)  # z = sqrt(2 nu) distance / ell
        decay = -z
        decay = xp.exp(decay, out=decay)
        if self.nu == 0.5:
            # -phi'(u) = exp(-z) / z. At z = 0 the kernel is not differentiable, and the gradient is set to zero.
            z[z == 0] = math.inf
            return decay, decay / z
        if self.nu == 1.5:
            K = matern_polynomial(1.5, z)
            K *= decay
            decay *= 3.0
            return K, decay
        K = matern_polynomial(2.5, z)
        K *= decay
        z += 1.0
        z *= 5.0 / 3.0
        decay *= z
        return K, decay


@dataclass(frozen=True, kw_only=True)
class Laplace(Matern):
    """Laplace kernel ``exp(-|p - c| / ell)`` with ``ell = 1 / sqrt(2 gamma)``, the Matern kernel with smoothness 1/2.

    Examples
    --------
    >>> import numpy as np
    >>> from hkrr.kernels import Laplace
    >>> Laplace(gamma=0.5)(np.array([[0.0]]), np.array([[0.0], [1.0], [2.0]])).round(3)
    array([[1.   , 0.368, 0.135]])
    """

    nu: float = field(default=0.5, init=False)
