"""Projections of the map B on the set it may move in."""

from __future__ import annotations

import numpy as np

from hkrr._arrays import Array


def spectral_ball(B: Array, bound: float = 1.0) -> Array:
    """Return the point nearest to B with spectral norm at most ``bound``: its singular values clipped."""
    U, s, Vt = np.linalg.svd(B, full_matrices=False)
    return B if s[0] <= bound else (U * np.minimum(s, bound)) @ Vt


def identity(B: Array) -> Array:
    """Return B: no bound."""
    return B
