"""LAPACK routines that run without Python's interpreter lock (the GIL).

The tests check agreement with NumPy, failures, refused matrices and parallel calls.
"""

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg import LinAlgError

from hkrr._base.lapack import cholesky_in_place, inverse_in_place

# Numbers of rows. Most of them are close to 256 or 512, because the lower triangle of the inverse is copied to the
# upper triangle in blocks of 256 rows.
sizes = pytest.mark.parametrize("n", [1, 2, 255, 256, 257, 300, 513])
dtypes = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def _matrix(n, dtype=np.float64, seed=0):
    """Return a symmetric matrix with eigenvalues between 1 and 10."""
    Q = np.linalg.qr(np.random.default_rng([seed, n]).normal(size=(n, n)))[0]
    A = (Q * np.geomspace(1.0, 10.0, n)) @ Q.T
    return ((A + A.T) / 2.0).astype(dtype)


@sizes
@dtypes
def test_only_the_lower_triangle_is_overwritten_by_the_factor(n, dtype):
    A, given = _matrix(n, dtype), _matrix(n, dtype)
    found = cholesky_in_place(A)
    assert found is A
    assert found.dtype == dtype
    expected = np.linalg.cholesky(given.astype(np.float64))
    assert_allclose(np.tril(found), expected, rtol=0, atol=100 * np.finfo(dtype).eps)
    assert_array_equal(np.triu(found, 1), np.triu(given, 1))


@sizes
@dtypes
def test_the_inverse_replaces_the_factor(n, dtype):
    """Test that the inverse overwrites the array of the factor, and that it is exactly symmetric.

    The entries of the factor above the diagonal are NaN: they must not be read.
    """
    factor = np.linalg.cholesky(_matrix(n)).astype(dtype)
    factor[np.triu_indices(n, 1)] = np.nan
    found = inverse_in_place(factor)
    assert found is factor
    assert found.dtype == dtype
    assert_array_equal(found, found.T)
    assert_allclose(found, np.linalg.inv(_matrix(n)), rtol=0, atol=100 * np.finfo(dtype).eps)


@dtypes
@pytest.mark.parametrize("n", [3, 256, 300])
@pytest.mark.parametrize("broken", [0, 1, -1])
def test_a_failure_restores_all_entries_but_the_diagonal(n, broken, dtype):
    A = _matrix(n, dtype)
    A[broken, broken] = -1.0
    given = A.copy()
    with pytest.raises(LinAlgError):
        cholesky_in_place(A)
    off = ~np.eye(n, dtype=bool)
    assert_array_equal(A[off], given[off])


@pytest.mark.parametrize(
    "A",
    [
        np.asfortranarray(np.eye(4) + 1.0),
        np.eye(8)[::2, ::2],
        np.eye(4)[:, :3],
        np.eye(4)[:3],
        np.ones(4),
        np.eye(4, dtype=np.int64),
        np.eye(4, dtype=np.complex128),
        np.eye(4, dtype=np.float16),
        np.eye(4, dtype=">f8"),
    ],
    ids=["Fortran", "strided", "wide columns", "wide", "vector", "integers", "complex", "float16", "big-endian"],
)
@pytest.mark.parametrize("function", [cholesky_in_place, inverse_in_place])
def test_other_matrices_are_refused_and_stay_unchanged(A, function):
    given = A.copy()
    with pytest.raises(ValueError, match="LAPACK needs"):
        function(A)
    assert_array_equal(A, given)


@dtypes
def test_parallel_calls_give_the_same_results(dtype):
    """Test that 24 tasks on four threads give the same results as one after another.

    Each task factorizes and inverts a matrix. Every third matrix is not positive definite, so its task fails.
    """

    def work(k):
        A = _matrix(60 + k, dtype, k)
        if k % 3 == 0:
            A[-1, -1] = -1.0
        try:
            return inverse_in_place(cholesky_in_place(A))
        except LinAlgError:
            return None

    expected = [work(k) for k in range(24)]
    assert [one is None for one in expected] == [k % 3 == 0 for k in range(24)]
    with ThreadPoolExecutor(4) as pool:
        for one, other in zip(pool.map(work, range(24)), expected, strict=True):
            assert_array_equal(one, other)


@pytest.mark.parametrize("function", [cholesky_in_place, inverse_in_place])
def test_other_threads_run_during_a_call(function):
    """Test that another thread can increase a counter during a call, because the call releases the interpreter lock.

    The test sets Python's switch interval to one minute. The interpreter therefore does not force the calling thread to
    release the lock, and the other thread runs only if the call itself releases it.
    """
    A, count, stop = 2.0 * np.eye(1_000), [0], threading.Event()

    def work():
        while not stop.is_set():
            count[0] += 1
            time.sleep(1e-4)

    function(A.copy())  # the first call loads the routine
    interval = sys.getswitchinterval()
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        sys.setswitchinterval(60.0)
        for _ in range(5):
            time.sleep(0.01)  # let the thread start
            before = count[0]
            function(A)
            during = count[0] - before
            if during:
                break
    finally:
        sys.setswitchinterval(interval)
        stop.set()
        thread.join(timeout=60)
    assert not thread.is_alive()
    assert during > 0


@pytest.mark.parametrize("function", [cholesky_in_place, inverse_in_place])
def test_read_only_matrices_are_refused(function):
    A = np.linalg.cholesky(_matrix(9))
    given = A.copy()
    A.flags.writeable = False
    with pytest.raises(ValueError, match="writeable"):
        function(A)
    assert_array_equal(A, given)
