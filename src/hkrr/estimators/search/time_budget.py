"""A prediction of the duration of the final fit, and the division of a time limit between the search and this fit."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hkrr._base.lapack import cholesky_in_place
from hkrr._base.linear_algebra import Array, array_namespace
from hkrr._base.threads import in_threads
from hkrr.estimators.fitted.conformal import MAX_SUMMED_ROWS, MAX_TANGENTS, SCORED_ROWS, map_matters
from hkrr.estimators.search.candidates import Candidate
from hkrr.kernels import Kernel
from hkrr.kernels.expansion_values import kernel_and_slopes
from hkrr.rows import Rows, threads_for_sums

# A time limit does not reduce the number of centers of the final fit below this number.
_LEAST_CENTERS = 500
# Three operations are timed, on matrices with these numbers of rows: a Cholesky factorization, a matrix product, and
# the computation of a kernel matrix. The matrix of the factorization is the largest, because the factorization of a
# small matrix is less efficient. The kernel matrix has fewer rows if there are many columns: the number of its points
# times the number of columns is at most _KERNEL_VALUES, if this allows at least 50 points.
_FACTOR_SAMPLE, _PRODUCT_SAMPLE, _KERNEL_SAMPLE = 1000, 500, 400
_KERNEL_VALUES = 150_000
# Time that is kept in reserve, because the predicted duration of the final fit is not exact, and the diagnostics of a
# small fit take about 0.1 seconds. The reserve is this fraction of the time limit plus this number of seconds, but at
# most _MOST_RESERVED of the limit.
_RESERVE, _RESERVE_SECONDS, _MOST_RESERVED = 0.03, 0.1, 0.08
# Predicted durations are multiplied by this number, because other processes can slow a fit down.
_CAUTION = 1.3
# Maximum fraction of the time limit that is reserved for the final fits, apart from the reserve.
_SHARE_OF_FIT = 0.4
# Fractions of the rows that are tried if there is no time for a fit with all rows as centers.
_SUBSETS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)
# Number of passes over the square matrix of a system in which all rows are centers: conversions between float32 and
# float64, products of iterative refinement, norms and mirrored triangles. The number was measured with 9,000 rows.
_PASSES = 40
# Number of square matrices that such a fit copies from a GPU.
_COPIES = 2
# If the ratio of the number of rows to nu is above this number, the matrix is assumed to be too ill-conditioned for
# float32.
_ILL_CONDITIONED = 1e6


class DurationModel:
    """Prediction of the duration of a final fit, from the times of small operations on this machine.

    Each operation runs on all threads at once, so that the time includes the effect of other load on the machine. Each
    operation is timed four times. The first time is discarded, and the median of the other three is used.

    Parameters
    ----------
    kernel : Kernel
        The kernel of the fit.
    rows : Rows
        The rows of the fit. The operations are timed on their device.
    n_threads : int
        Number of threads of the fit. On a GPU, the operations are timed one at a time.
    """

    def __init__(self, kernel: Kernel, rows: Rows, n_threads: int) -> None:
        # Small operations do not keep a GPU busy.
        n_threads, times_larger = (1, 4) if rows.pays_to_batch else (n_threads, 1)
        n_factor, n_product = times_larger * _FACTOR_SAMPLE, times_larger * _PRODUCT_SAMPLE
        n = times_larger * min(_KERNEL_SAMPLE, max(50, _KERNEL_VALUES // rows.n_features))
        P = rows.place(np.random.RandomState(0).standard_normal((n, rows.n_features)))
        A, definite = rows.place(np.ones((n_product, n_product))), rows.place(2.0 * np.eye(n_factor))
        xp = array_namespace(definite)
        single = xp.astype(definite, xp.float32)

        def seconds(work: Callable[[], Any]) -> float:
            times = []
            for _ in range(4):
                began = time.perf_counter()
                # An entry of the result is fetched, because a GPU computes asynchronously.
                in_threads(lambda _: rows.fetch(work()[0, 0]), range(n_threads), n_threads)
                times.append(time.perf_counter() - began)
            return float(np.median(times[1:]))

        def factor(matrix: Array) -> Array:
            copied = xp.asarray(matrix, copy=True)
            return xp.linalg.cholesky(copied) if rows.pays_to_batch else cholesky_in_place(copied)

        # Seconds per entry of a kernel matrix, without and with the gradients of the fitted function.
        self._entry = seconds(lambda: kernel(P, P)) / n**2
        self._slopes = seconds(lambda: kernel_and_slopes(kernel, P, P, P[:, :1])[0]) / n**2
        # Seconds per c^3 for the factorization of a c x c matrix in float64 and in float32.
        self._factor = seconds(lambda: factor(definite)) / n_factor**3
        self._factor_single = seconds(lambda: factor(single)) / n_factor**3
        # Seconds per entry for a pass over a matrix.
        self._pass = seconds(lambda: xp.astype(definite, xp.float32)) / n_factor**2
        # Seconds per m c^2 for the product A'A of an m x c matrix A.
        self._product = seconds(lambda: A.T @ A) / n_product**3
        # Seconds per m c^2 for the sums over m rows with c centers. The factor 3, which was measured, covers the
        # products, the whitening and the memory traffic.
        self._sum = 3.0 * self._product
        # Seconds per entry for copying a matrix from a GPU.
        self._fetch = seconds(lambda: rows.fetch(definite)[0]) / n_factor**2 if rows.pays_to_batch else 0.0
        self._n_threads = n_threads

    def seconds(self, n_rows: int, n_centers: int, candidate: Candidate | None = None) -> float:
        """Return the approximate duration of a fit in seconds, if other processes slow it down by 30 percent.

        It is the sum of the times for the kernel matrices, the matrix products, the factorizations, the interval scores
        and the diagnostics. If `nu` of the candidate, the ratio of the noise variance to the signal variance, is very
        small, a factorization in float32 fails and is repeated in float64. If the map of the candidate has few
        parameters, the interval scores need no gradients of the fitted function. Without a candidate, nu is assumed to
        be moderate, and the gradients to be needed.
        """
        entries = min(n_rows, MAX_SUMMED_ROWS) * n_centers / self._n_threads
        scores, n_columns = self._entry * entries, min(SCORED_ROWS, n_rows)
        with_slopes = candidate is None or map_matters(candidate.B, candidate.shape, n_rows)
        if with_slopes:
            scores += self._slopes * entries
            n_columns += 2 * min(MAX_TANGENTS, 0 if candidate is None else candidate.shape.n_parameters(candidate.B))
        products = self._product * min(n_centers, n_rows) ** 2 * n_columns
        if n_centers >= n_rows:
            factor = self._factor_single
            if candidate is not None and n_rows > _ILL_CONDITIONED * candidate.nu:
                factor += self._factor
            solve = self._entry * n_rows**2 + factor * n_rows**3
            solve = solve / self._n_threads + (_PASSES * self._pass + _COPIES * self._fetch) * n_rows**2
            return _CAUTION * (solve + products + scores)
        scores += 3.0 * products + (2.0 if with_slopes else 0.0) * self._entry * entries
        n_threads = min(self._n_threads, threads_for_sums(n_centers))
        sums = self._entry * n_rows * n_centers + self._sum * n_rows * n_centers**2
        solve = sums / n_threads + self._entry * n_centers**2 + 4.0 * self._factor * n_centers**3
        return _CAUTION * (solve + scores)

    def affordable(
        self, n_rows: int, n_centers: int, seconds: float, candidate: Candidate | None = None
    ) -> tuple[int, int]:
        """Return the numbers of rows and of centers, at most `n_centers`, that can be fitted in the given time.

        If all rows should be centers, but there is no time for this, up to half of the rows are left out. In the same
        time, a fit with all remaining rows as centers can have several times as many centers as a fit to all rows. If
        this is not enough, or if not all rows should be centers, all rows are used and the number of centers is
        reduced. The minimum is 500, because a fit with fewer centers is hardly faster.
        """
        if n_centers >= n_rows > _LEAST_CENTERS:
            for share in _SUBSETS:
                if self.seconds(int(share * n_rows), int(share * n_rows), candidate) <= seconds:
                    return int(share * n_rows), int(share * n_rows)
        n_centers = min(n_centers, n_rows)
        while n_centers > _LEAST_CENTERS and self.seconds(n_rows, n_centers, candidate) > seconds:
            n_centers = max(_LEAST_CENTERS, int(0.8 * n_centers))
        return n_rows, n_centers


def reserve(limit: float) -> float:
    """Return the number of seconds before the time limit at which the final fit should end."""
    return min(_RESERVE * limit + _RESERVE_SECONDS, _MOST_RESERVED * limit)


class TimeBudget:
    """Division of a time limit between the search and the final fit.

    Parameters
    ----------
    rows : Rows
        All rows of the final fit.
    limit : float or None
        The time limit in seconds. None means no limit.
    began : float
        Time (of ``time.perf_counter``) at which the fit started.
    reading : float
        Predicted time in seconds for reading the rows in the final fit.
    n_threads : int
        Number of threads of the final fit.
    """

    def __init__(self, rows: Rows, limit: float | None, began: float, reading: float, n_threads: int) -> None:
        self._rows, self._limit, self._began = rows, limit, began
        self._reading, self._n_threads = reading, n_threads

    def search_deadline(self, kernel: Kernel, n_centers: int, n_fits: int) -> float:
        """Return the time (of ``time.perf_counter``) at which the search has to stop.

        Time for the final fit is reserved: the predicted duration of the fit, the time for reading the rows, and
        `reserve` in case the prediction is too low. If the final fit would need more than 0.4 of the time limit,
        fewer centers or fewer rows are assumed (`DurationModel.affordable`). `n_fits` is the maximum number of final
        fits. Time is reserved for as many of them as need at most 0.4 of the time limit together, at least for one.
        """
        if self._limit is None:
            return math.inf
        duration = DurationModel(kernel, self._rows, self._n_threads)
        size = duration.affordable(self._rows.n_rows, n_centers, _SHARE_OF_FIT * self._limit)
        each = duration.seconds(*size) + self._reading
        n_fits = min(n_fits, max(1, int(_SHARE_OF_FIT * self._limit / each)))
        return self._began + self._limit - reserve(self._limit) - n_fits * each

    def affordable_size(self, candidate: Candidate, n_centers: int, n_fits: int = 1) -> tuple[int, int]:
        """Return the numbers of rows and of centers of a final fit, if the time left is divided by `n_fits`.

        If less than a tenth of the time limit is left, the final fits get a tenth, and may exceed the limit.
        """
        if self._limit is None:
            return self._rows.n_rows, n_centers
        duration = DurationModel(candidate.kernel, self._rows, self._n_threads)
        return duration.affordable(self._rows.n_rows, n_centers, self._left / n_fits, candidate)

    def affordable_fits(self, candidates: Sequence[Candidate], n_centers: int) -> int:
        """Return how many of these candidates can be fitted, one after the other, in the time left: at least one."""
        if self._limit is None:
            return len(candidates)
        left, n_rows = self._left, self._rows.n_rows
        for n_fits, candidate in enumerate(candidates):
            duration = DurationModel(candidate.kernel, self._rows, self._n_threads)
            left -= duration.seconds(n_rows, n_centers, candidate) + self._reading
            if left < 0.0:
                return max(n_fits, 1)
        return len(candidates)

    @property
    def _left(self) -> float:
        """The number of seconds left for final fits, at least a tenth of the time limit."""
        assert self._limit is not None
        left = self._began + self._limit - reserve(self._limit) - time.perf_counter() - self._reading
        return max(left, self._limit / 10)
