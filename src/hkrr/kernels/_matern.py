"""The Matern function matern_nu(t) of the scaled distance t = distance / ell, for radial and coordinatewise kernels.

With z = sqrt(2 nu) t, the function is exp(-z) times a polynomial in z. The polynomial is 1 for nu = 1/2, 1 + z for
nu = 3/2, and 1 + z + z^2 / 3 for nu = 5/2.
"""

from __future__ import annotations

import math

from hkrr._base.linear_algebra import Array, array_namespace


def check_nu(nu: float) -> None:
    """Raise a ValueError if nu is not 0.5, 1.5 or 2.5, the values for which a closed form is implemented."""
    if nu not in (0.5, 1.5, 2.5):
        raise ValueError(f"nu must be 0.5, 1.5 or 2.5, got {nu!r}")


def matern_in_place(nu: float, z: Array) -> Array:
    """Return the Matern function, given z = sqrt(2 nu) distance / ell. z may be overwritten to save memory."""
    decay = -z
    decay = array_namespace(z).exp(decay, out=decay)
    if nu > 0.5:
        decay *= matern_polynomial(nu, z)
    return decay


def matern_polynomial(nu: float, z: Array) -> Array:
    """Return the polynomial 1 + z for nu = 3/2, or 1 + z + z^2 / 3 for nu = 5/2. For nu = 3/2, z is overwritten."""
    if nu == 1.5:
        z += 1.0
        return z
    square = z * z
    square *= 1.0 / 3.0
    square += z
    square += 1.0
    return square


def matern_log_slope(nu: float, t: Array) -> Array:
    """Return the derivative of log matern_nu(t) with respect to t."""
    if nu == 0.5:
        return -array_namespace(t).ones_like(t)
    return t * matern_log_slope_over_t(nu, t)


def matern_log_slope_over_t(nu: float, t: Array) -> Array:
    """Return the derivative of log matern_nu(t), divided by t. nu must be 3/2 or 5/2."""
    z = math.sqrt(2.0 * nu) * t
    if nu == 1.5:
        z += 1.0
        return -3.0 / z
    return (-5.0 / 3.0) * (1.0 + z) / (1.0 + z + z * z / 3.0)
