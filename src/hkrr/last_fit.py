"""The last fit: the coefficients on all rows at the chosen map, and how long that will take."""

from __future__ import annotations

import time

import numpy as np
from scipy.linalg import cholesky

from hkrr.kernels import Kernel
from hkrr.rows import threads_for_sums
from hkrr.threads import single_threaded_blas

# Up to this many rows all of them are centers; beyond, so many. Rough kernels want more of them than smooth ones.
EXACT_ROWS, CENTERS = 5_000, 2_000
EXACT_ROWS_ROUGH, CENTERS_ROUGH = 10_000, 4_000
_SAMPLE, _KERNEL_SAMPLE = 500, 150  # rows of the small fit; of its kernel, which many columns make slow
_ROWS_FOR_A_THREAD = 1_000  # of a factorisation: its blocks of 512 rows are shared, and ever fewer


def full_size(n_rows: int, smooth: bool) -> int:
    """Return the number of centers that ``refit="full"`` stands for."""
    exact, centers = (EXACT_ROWS, CENTERS) if smooth else (EXACT_ROWS_ROUGH, CENTERS_ROUGH)
    return n_rows if n_rows <= exact else centers


class Clock:
    """Foretells the seconds of a last fit on so many threads, from a small one made here and now on one.

    On one: BLAS's threads spin while they wait for each other, and on a busy machine a small product then says nothing
    of a large one.
    """

    def __init__(self, kernel: Kernel, n_features: int, n_threads: int) -> None:
        P = np.random.RandomState(0).standard_normal((_SAMPLE, n_features))
        with single_threaded_blas():
            kernel(P[:10], P[:10])
            began = time.perf_counter()
            kernel(P[:_KERNEL_SAMPLE], P[:_KERNEL_SAMPLE])
            evaluated = time.perf_counter()
            cholesky(2.0 * np.eye(_SAMPLE), lower=True, overwrite_a=True, check_finite=False)
            solved = time.perf_counter()
        self._entry = (evaluated - began) / _KERNEL_SAMPLE**2
        self._flop = (solved - evaluated) / (_SAMPLE**3 / 3)
        self._n_threads = n_threads

    def seconds(self, n_rows: int, n_centers: int) -> float:
        """Return about how long the coefficients will take: kernel entries, products, a factorisation."""
        if n_centers >= n_rows:
            sharing = min(self._n_threads, max(1, n_rows // _ROWS_FOR_A_THREAD))
            return self._entry * n_rows**2 / self._n_threads + self._flop * n_rows**3 / 3 / sharing
        sharing = min(self._n_threads, threads_for_sums(n_centers))
        sums = self._entry * n_rows * n_centers + self._flop * 2 * n_rows * n_centers**2
        return sums / sharing + self._entry * n_centers**2 + self._flop * 2 * n_centers**3

    def affordable(self, n_rows: int, n_centers: int, seconds: float) -> int:
        """Return how many centers, n_centers at most, can be fitted in so many seconds (one always can)."""
        n_centers = min(n_centers, n_rows)
        while n_centers > 1 and self.seconds(n_rows, n_centers) > seconds:
            n_centers = max(1, int(0.8 * n_centers))
        return n_centers
