"""Coordinatewise kernels: products of functions of the distance in each latent coordinate."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field

import numpy as np

from hkrr._base.linear_algebra import Array, array_namespace, is_torch_array
from hkrr.kernels._matern import (
    check_nu,
    matern_in_place,
    matern_log_slope,
    matern_log_slope_over_t,
    matern_polynomial,
)
from hkrr.kernels.base import Kernel, Pullback, median_rule

# Maximum number of entries of a temporary array. Several arrays of this size fit in the cache.
_CACHED = 1 << 17
# Number of coordinates whose Matern factors are computed with a single call of the exponential function.
_TOGETHER = 4
# Value at which z is clipped in `ProductMatern`. For larger z, exp(-z) times a polynomial in z underflows to zero.
_ZERO = 800.0


class Coordinatewise(Kernel):
    """Base class of product kernels ``k(p, c) = prod_j f(|p_j - c_j| / ell)``. They are not rotation invariant.

    Here p_j and c_j are coordinates j of the points p and c, and ``ell = 1 / sqrt(2 gamma)`` is the length scale.
    Subclasses implement ``factor``, the positive function f, and ``log_slope``, its logarithmic derivative (log f)'.
    With W = G * K, where * is the entrywise product, column j of the gradient of sum(G * K) with respect to P is the
    sum over the centers of ``(1 / ell) W * sign(p_j - c_j) * (log f)'``. This sum needs only one n x c array at a time.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import numpy as np
    >>> from hkrr.kernels import Coordinatewise
    >>> @dataclass(frozen=True, kw_only=True)
    ... class ProductCauchy(Coordinatewise):
    ...     def factor(self, t):
    ...         return 1.0 / (1.0 + t * t)
    ...     def log_slope(self, t):
    ...         return -2.0 * t / (1.0 + t * t)
    >>> ProductCauchy(gamma=0.5)(np.array([[0.0, 0.0]]), np.array([[1.0, 0.0], [1.0, 1.0]]))
    array([[0.5 , 0.25]])
    """

    @abstractmethod
    def factor(self, t: Array) -> Array:
        """Return f(t) for an array t >= 0. The array may be overwritten."""

    @abstractmethod
    def log_slope(self, t: Array) -> Array:
        """Return f'(t) / f(t) for an array t >= 0."""

    def __call__(self, P: Array, C: Array) -> Array:
        P, C = self._rate * P, self._rate * C
        if is_torch_array(P):
            return self._product(P, C)
        # Process the rows in small blocks, so that the temporary arrays stay in the cache. This is twice as fast as one
        # block.
        K = np.empty((len(P), len(C)), dtype=np.result_type(P, C))
        step = max(1, _CACHED // max(1, len(C)))
        for start in range(0, len(P), step):
            K[start : start + step] = self._product(P[start : start + step], C)
        return K

    def _product(self, P: Array, C: Array) -> Array:
        """Return the kernel matrix of points given in units of ell."""
        xp = array_namespace(P, C)
        K = None
        for j in range(P.shape[1]):
            t = P[:, j][:, None] - C[:, j][None, :]
            f = self.factor(xp.abs(t, out=t))
            if K is None:
                K = f
            else:
                K *= f
        return K

    def vjp(self, P: Array, C: Array) -> tuple[Array, Pullback]:
        xp = array_namespace(P, C)
        K = self(P, C)

        def pullback(G: Array) -> tuple[Array, Array]:
            G *= K
            scaled_P, scaled_C = self._rate * P, self._rate * C
            dP, dC = xp.zeros_like(P), xp.zeros_like(C)
            for j in range(P.shape[1]):
                slope = self.signed_log_slope(scaled_P[:, j][:, None] - scaled_C[:, j][None, :])
                slope *= G
                dP[:, j] = self._rate * xp.sum(slope, axis=1)
                dC[:, j] = -self._rate * xp.sum(slope, axis=0)
            return dP, dC

        return K, pullback

    def signed_log_slope(self, t: Array) -> Array:
        """Return ``sign(t) (log f)'(|t|)``. ``t`` may be overwritten.

        Subclasses can override this method with a cheaper formula.
        """
        xp = array_namespace(t)
        slope = self.log_slope(xp.abs(t))
        slope *= xp.sign(t)
        return slope

    @property
    def _rate(self) -> float:
        return math.sqrt(2.0 * self.scale)  # 1 / ell

    def diagonal(self, P: Array) -> Array:
        return self.factor(array_namespace(P).zeros_like(P[:, 0])) ** P.shape[1]

    def diagonal_pullback(self, P: Array, g: Array) -> Array:
        return array_namespace(P).zeros_like(P)

    def median_gamma(self, P: Array) -> float:
        """Return the gamma of the median heuristic with L1 distances."""
        return median_rule(P, "cityblock")


def _at_most(limit: float, z: Array) -> Array:
    return z.clamp_(max=limit) if is_torch_array(z) else np.minimum(z, limit, out=z)


@dataclass(frozen=True, kw_only=True)
class ProductMatern(Coordinatewise):
    """Product of Matern kernels of the coordinates: ``prod_j matern_nu(|p_j - c_j| / ell)``.

    The function matern_nu is exp(-z) times 1, 1 + z or 1 + z + z^2 / 3 for nu = 0.5, 1.5 or 2.5, where z is its
    argument times sqrt(2 nu).

    Parameters
    ----------
    gamma : float or None, default=None
        Scale of the kernel, ``1 / (2 ell^2)``. If None, the estimator chooses gamma. If the kernel is called
        directly, None means 1.
    nu : {0.5, 1.5, 2.5}, default=1.5
        Smoothness.

    Examples
    --------
    >>> import numpy as np
    >>> from hkrr.kernels import Matern, ProductMatern
    >>> P, C = np.array([[0.0, 0.0]]), np.array([[1.0, 2.0]])
    >>> one = Matern(gamma=0.5)(P[:, :1], C[:, :1]) * Matern(gamma=0.5)(P[:, 1:], C[:, 1:])
    >>> bool(np.allclose(ProductMatern(gamma=0.5)(P, C), one))
    True
    """

    nu: float = 1.5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_nu(self.nu)

    def _product(self, P: Array, C: Array) -> Array:
        """Return the kernel matrix of points given in units of ell, with one exponential for several coordinates.

        With z_j = sqrt(2 nu) |p_j - c_j| / ell, a group of coordinates contributes ``exp(-sum_j z_j)`` times the
        product of the polynomials in z_j.
        """
        xp = array_namespace(P, C)
        unit = math.sqrt(2.0 * self.nu)
        P, C = unit * P, unit * C
        K = None
        for first in range(0, P.shape[1], _TOGETHER):
            exponent = xp.zeros_like(P[:, :1] - C[:, :1].T)
            polynomial = None
            for j in range(first, min(first + _TOGETHER, P.shape[1])):
                z = P[:, j][:, None] - C[:, j][None, :]
                z = _at_most(_ZERO, xp.abs(z, out=z))  # for larger z the polynomials could overflow
                exponent -= z
                if self.nu > 0.5:
                    z = matern_polynomial(self.nu, z)
                    polynomial = z if polynomial is None else xp.multiply(polynomial, z, out=polynomial)
            part = xp.exp(exponent, out=exponent)
            if polynomial is not None:
                part *= polynomial
            K = part if K is None else xp.multiply(K, part, out=K)
        return K

    def factor(self, t: Array) -> Array:
        t *= math.sqrt(2.0 * self.nu)
        return matern_in_place(self.nu, t)

    def log_slope(self, t: Array) -> Array:
        return matern_log_slope(self.nu, t)

    def signed_log_slope(self, t: Array) -> Array:
        xp = array_namespace(t)
        if self.nu == 0.5:
            return -xp.sign(t)
        return t * matern_log_slope_over_t(self.nu, xp.abs(t))


@dataclass(frozen=True, kw_only=True)
class ProductLaplace(ProductMatern):
    """Laplace kernel of the L1 distance: ``exp(-sum_j |p_j - c_j| / ell)`` with ``ell = 1 / sqrt(2 gamma)``.

    Examples
    --------
    >>> import numpy as np
    >>> from hkrr.kernels import ProductLaplace
    >>> ProductLaplace(gamma=0.5)(np.array([[0.0, 0.0]]), np.array([[1.0, 2.0]])).round(4)  # exp(-3)
    array([[0.0498]])
    """

    nu: float = field(default=0.5, init=False)


@dataclass(frozen=True, kw_only=True)
class Anova(Coordinatewise):
    """ANOVA kernel ``prod_j (1 + matern_nu(|p_j - c_j| / ell)) / 2``.

    The function matern_nu is the same as in `ProductMatern`. For each subset of the coordinates, consider the product
    of the Matern kernels of these coordinates. The ANOVA kernel is the mean of these products over all subsets.

    Parameters
    ----------
    gamma : float or None, default=None
        Scale of the kernel, ``1 / (2 ell^2)``. If None, the estimator chooses gamma. If the kernel is called
        directly, None means 1.
    nu : {0.5, 1.5, 2.5}, default=0.5
        Smoothness.

    Examples
    --------
    >>> import numpy as np
    >>> from hkrr.kernels import Anova
    >>> Anova(gamma=0.5)(np.array([[0.0, 0.0]]), np.array([[100.0, 0.0]]))  # far apart in one coordinate only
    array([[0.5]])
    """

    nu: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_nu(self.nu)

    def factor(self, t: Array) -> Array:
        t *= math.sqrt(2.0 * self.nu)
        f = matern_in_place(self.nu, t)
        f += 1.0
        f *= 0.5
        return f

    def log_slope(self, t: Array) -> Array:
        slope = matern_log_slope(self.nu, t)
        f = matern_in_place(self.nu, math.sqrt(2.0 * self.nu) * t)
        slope *= f
        f += 1.0
        slope /= f
        return slope
