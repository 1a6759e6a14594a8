"""Cholesky factorization of large matrices, computed in place by threads of hkrr instead of the threads of BLAS.

The threads of BLAS keep their cores busy while they wait for each other. For example, on a machine with two cores, one
of them busy with other work, LAPACK factorized a matrix of 5,000 rows in 4.7 s with two threads and in 0.9 to 1.2 s
with one thread. Here each thread works on its own blocks with a single-threaded BLAS, and uses no processor time while
it waits. The result is bitwise the same for any number of threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cholesky, solve_triangular

from hkrr._base.lapack import copy_upper_triangle
from hkrr._base.threads import in_threads, single_threaded_blas

# Number of rows and columns of each block of the matrix.
_BLOCK = 512


def parallel_cholesky_in_place(A: Any, n_threads: int = 1) -> Any:
    """Overwrite the lower triangle of a symmetric matrix A by the lower Cholesky factor of A, and return A.

    Entries above the diagonal are unchanged. If A is not positive definite, a ``LinAlgError`` is raised, and all
    entries of A except the diagonal are restored to their original values.
    """
    try:
        _factorize(A, n_threads)
    except LinAlgError:
        copy_upper_triangle(A)
        raise
    return A


def _factorize(A: Any, n_threads: int) -> None:
    n = len(A)
    for start in range(0, n, _BLOCK):
        end = min(start + _BLOCK, n)
        with single_threaded_blas():
            corner = cholesky(A[start:end, start:end], lower=True, check_finite=False)
        lower = np.tril_indices(end - start)
        A[start:end, start:end][lower] = corner[lower]
        below = [slice(row, min(row + _BLOCK, n)) for row in range(end, n, _BLOCK)]

        def solve(rows: slice, columns: slice = slice(start, end), corner: Any = corner) -> None:
            A[rows, columns] = solve_triangular(corner, A[rows, columns].T, lower=True, check_finite=False).T

        def subtract(rows: slice, columns: slice = slice(start, end)) -> None:
            left, diagonal = A[rows, columns], rows.start
            A[rows, columns.stop : diagonal] -= left @ A[columns.stop : diagonal, columns].T
            square = np.tril_indices(rows.stop - rows.start)
            A[rows, rows][square] -= (left @ left.T)[square]

        in_threads(solve, below, n_threads)
        in_threads(subtract, below[::-1], n_threads)  # start with the longest rows of blocks, to balance the threads
