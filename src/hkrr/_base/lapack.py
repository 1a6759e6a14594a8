"""Cholesky factorization and inversion by LAPACK, without the global interpreter lock.

SciPy's functions hold the lock while LAPACK computes, so that other threads have to wait. `scipy.linalg.cython_lapack`
exports the addresses of the same routines, and ctypes releases the lock while it calls them.

The functions take square NumPy arrays of float32 or float64 in C order, and overwrite them. NumPy stores such an array
row by row, but LAPACK expects a matrix column by column. LAPACK therefore sees the transpose: the lower triangle of the
array is the upper triangle for LAPACK.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import CFUNCTYPE, byref, c_char, c_char_p, c_int, c_void_p, py_object, pythonapi
from functools import cache
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cython_lapack

# Number of rows and columns of the blocks that `copy_upper_triangle` copies. Such a block fits the cache of a core.
_BLOCK = 256


@cache
def _routine(name: str) -> Callable[..., None]:
    """Return the LAPACK routine of this name, which must have the arguments uplo, n, a, lda and info."""
    get_name, get_pointer = pythonapi.PyCapsule_GetName, pythonapi.PyCapsule_GetPointer
    get_name.restype, get_name.argtypes = c_char_p, [py_object]
    get_pointer.restype, get_pointer.argtypes = c_void_p, [py_object, c_char_p]
    capsule = cython_lapack.__pyx_capi__[name]
    routine: Callable[..., None] = CFUNCTYPE(None, *[c_void_p] * 5)(get_pointer(capsule, get_name(capsule)))
    return routine


def _call(name: str, A: Any) -> None:
    if A.dtype not in (np.float32, np.float64) or not A.flags.carray or A.shape != (len(A), len(A)):
        raise ValueError(
            "LAPACK needs a contiguous, writeable square matrix of float32 or float64, "
            f"got {A.dtype} with shape {A.shape}"
        )
    n, info = c_int(len(A)), c_int(0)
    routine = _routine(("s" if A.dtype == np.float32 else "d") + name)
    routine(byref(c_char(b"U")), byref(n), A.ctypes.data, byref(n), byref(info))
    if info.value:
        raise LinAlgError("the matrix is not positive definite")


def cholesky_in_place(A: Any) -> Any:
    """Overwrite the lower triangle of a symmetric matrix A by the lower Cholesky factor of A, and return A.

    Entries above the diagonal are unchanged. If A is not positive definite, a LinAlgError is raised, and all entries of
    A except the diagonal are restored to their original values.
    """
    try:
        _call("potrf", A)
    except LinAlgError:
        copy_upper_triangle(A)
        raise
    return A


def copy_upper_triangle(A: Any) -> None:
    """Overwrite the entries of A below the diagonal by those above it."""
    for start in range(0, len(A), _BLOCK):
        block = slice(start, start + _BLOCK)
        A[block, :start] = A[:start, block].T
        below = np.tril_indices(len(A[block]), -1)
        A[block, block][below] = A[block, block].T[below]


def inverse_in_place(factor: Any) -> Any:
    """Return the inverse of a matrix, given its lower Cholesky factor. All entries of `factor` are overwritten."""
    _call("potri", factor)
    copy_upper_triangle(factor.T)  # `potri` computes only the lower triangle of the inverse: copy it
    return factor
