"""The canonical form of a learned map: one representative of all the maps that are the same function.

(B, gamma) and (B / s, gamma s^2) are the same function for every kernel here, and for a kernel that no rotation changes
so are B and QB. The form reported has spectral norm 1 in the coordinates of X, and where rotations are free, rows that
are orthogonal in the coordinates of the optimisation, the largest first, each with its largest loading positive.
"""

from __future__ import annotations

import numpy as np
from sklearn.utils.extmath import svd_flip

from hkrr._arrays import Array
from hkrr.exceptions import FitError
from hkrr.kernels import Kernel

_LARGEST = 1e150  # norm of a map, whose square is a number still


def canonical_map(B: Array, kernel: Kernel, x_scale: Array | None) -> tuple[Array, Kernel, Array]:
    """Return the map in the coordinates of X, the kernel that goes with it, and the relative singular values of B."""
    _, s, Vt = np.linalg.svd(B, full_matrices=False)
    if kernel.rotation_invariant:
        Vt = svd_flip(None, Vt, u_based_decision=False)[1]
        B = s[:, None] * Vt
    components = B if x_scale is None else B / x_scale
    norm = float(np.linalg.norm(components, 2))
    if not norm > 0:
        return components, kernel, s
    if not norm < _LARGEST:
        raise FitError("X varies too little for gamma to be a number: multiply its columns by a power of ten first")
    return components / norm, kernel.with_gamma(kernel.scale * norm**2), s / s[0]
