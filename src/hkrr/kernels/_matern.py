"""The Matern functions of one distance, shared by the radial and the coordinatewise kernels."""

from __future__ import annotations

import math

from hkrr._arrays import Array, array_namespace


def check_nu(nu: float) -> None:
    """Raise unless the Matern function of that smoothness has the closed form used here."""
    if nu not in (0.5, 1.5, 2.5):
        raise ValueError(f"nu must be 0.5, 1.5 or 2.5, got {nu!r}")


def matern_in_place(nu: float, z: Array) -> Array:
    """Return the Matern function of z = sqrt(2 nu) distance / ell, which is overwritten: its cost is that of memory."""
    decay = -z
    decay = array_namespace(z).exp(decay, out=decay)
    if nu > 0.5:
        decay *= matern_polynomial(nu, z)
    return decay


def matern_polynomial(nu: float, z: Array) -> Array:
    """Return what exp(-z) is multiplied by: 1 + z for nu = 3/2, 1 + z + z^2 / 3 for 5/2. The former overwrites z."""
    if nu == 1.5:
        z += 1.0
        return z
    square = z * z
    square *= 1.0 / 3.0
    square += z
    square += 1.0
    return square


def matern_log_slope(nu: float, t: Array) -> Array:
    """Return (log matern)'(t)."""
    if nu == 0.5:
        return -array_namespace(t).ones_like(t)
    return t * matern_log_slope_over_t(nu, t)


def matern_log_slope_over_t(nu: float, t: Array) -> Array:
    """Return (log matern)'(t) / t, for nu = 3/2 and 5/2."""
    z = math.sqrt(2.0 * nu) * t
    if nu == 1.5:
        z += 1.0
        return -3.0 / z
    return (-5.0 / 3.0) * (1.0 + z) / (1.0 + z + z * z / 3.0)
