"""The canonical form of a learned map: one representative of all maps that define the same function.

For every kernel in this library and every s > 0, (B, gamma) and (B / s, gamma s^2) define the same function. For a
rotation-invariant kernel, B and Q B also define the same function, for every rotation Q. The canonical form has
spectral norm 1 in the original units of X. For rotation-invariant kernels, a full map (a d x D matrix) satisfies two
more conditions in the coordinates of the optimization (standardized by default). Its rows are orthogonal and sorted by
decreasing norm, and the entry of largest absolute value in each row is positive. A diagonal map, stored as the vector
of its scales, stays diagonal: its rows are in the order of the columns.
"""

from __future__ import annotations

import numpy as np
from sklearn.utils.extmath import svd_flip

from hkrr._base.linear_algebra import Array
from hkrr.exceptions import FitError
from hkrr.kernels import Kernel

# Upper bound on the norm of a map. The square of a larger norm could overflow.
_LARGEST = 1e150


def principal_form(B: Array) -> tuple[Array, Array]:
    """Return ``diag(s) V'`` and s, where ``B = U diag(s) V'`` is the singular value decomposition of B.

    The first array is a rotation of B: ``U' B``. Its rows are orthogonal and sorted by decreasing norm.
    """
    _, s, Vt = np.linalg.svd(B, full_matrices=False)
    return s[:, None] * Vt, s


def map_row(B: Array, k: int) -> Array:
    """Return row k of a map (d, D), or of the diagonal map whose diagonal is the vector B."""
    return np.where(np.arange(len(B)) == k, B, 0.0) if B.ndim == 1 else B[k]


def canonical_map(B: Array, kernel: Kernel, x_scale: Array | None) -> tuple[Array, Kernel, Array]:
    """Return the canonical map in the original units of X, the kernel with its new gamma, and the singular values of B.

    B is the learned map in the coordinates of the optimization, in which the columns of X were divided by the entries
    of ``x_scale``. If ``x_scale`` is None, X was not scaled. The returned singular values are divided by the largest
    singular value. If B is the vector of a diagonal map, the canonical map is a vector too. Its singular values are the
    absolute values of its entries, in the order of the columns.
    """
    if B.ndim == 1:
        s = np.abs(B)
    else:
        rotated, s = principal_form(B)
        if kernel.rotation_invariant:
            B = svd_flip(None, rotated, u_based_decision=False)[1]
    canonical = B if x_scale is None else B / x_scale
    norm = float(np.max(np.abs(canonical)) if B.ndim == 1 else np.linalg.norm(canonical, 2))
    if not norm > 0:
        return canonical, kernel, s
    if not norm < _LARGEST:
        raise FitError("X varies so little that gamma overflows: multiply its columns by a power of ten first")
    return canonical / norm, kernel.with_gamma(kernel.scale * norm**2), s / np.max(s)
