"""The threaded Cholesky factorization: agreement with SciPy, the same result for any number of threads, failures."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg import LinAlgError, cholesky

from hkrr._base import linear_algebra, parallel_cholesky
from hkrr._base.linear_algebra import solve_positive_definite, solve_with_lower
from hkrr._base.parallel_cholesky import parallel_cholesky_in_place

# Numbers of rows of the test matrices. The blocks have eight rows in these tests.
SIZES = [1, 7, 8, 9, 16, 50]


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(parallel_cholesky, "_BLOCK", 8)


def _matrix(n, seed=0):
    """Return an exactly symmetric matrix with eigenvalues of at least one."""
    M = np.random.default_rng([seed, n]).normal(size=(n, n))
    A = M @ M.T + np.eye(n)
    return (A + A.T) / 2.0


@pytest.mark.parametrize("n", SIZES)
def test_only_the_lower_triangle_is_overwritten_by_the_factor(n):
    A, given = _matrix(n), _matrix(n)
    found = parallel_cholesky_in_place(A)
    assert found is A
    assert_allclose(np.tril(A), cholesky(given, lower=True), rtol=1e-10, atol=1e-12)
    assert_array_equal(np.triu(A, 1), np.triu(given, 1))


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("n_threads", [2, 3, 8])
def test_the_result_does_not_depend_on_the_number_of_threads(n, n_threads):
    assert_array_equal(parallel_cholesky_in_place(_matrix(n), n_threads), parallel_cholesky_in_place(_matrix(n)))


@pytest.mark.parametrize("n", SIZES)
def test_a_matrix_in_single_precision_stays_in_single_precision(n):
    """Test that the factor L of a float32 matrix A is float32, and that L L' agrees with A.

    The difference is at most 1e-6 times the largest entry of A. Large systems are solved in float32.
    """
    A = _matrix(n).astype(np.float32)
    factor = parallel_cholesky_in_place(A.copy(), 2)
    assert factor.dtype == np.float32
    assert_array_equal(factor, parallel_cholesky_in_place(A.copy()))
    lower = np.tril(factor).astype(np.float64)
    assert_allclose(lower @ lower.T, A, rtol=0, atol=1e-6 * np.abs(A).max())


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("T", [1, 3])
def test_solving_with_the_factor(n, T):
    b = np.random.default_rng(n).normal(size=(n, T))
    assert_allclose(_matrix(n) @ solve_with_lower(parallel_cholesky_in_place(_matrix(n)), b), b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("broken", [0, 7, 8, 30, 49])
@pytest.mark.parametrize("n_threads", [1, 2])
def test_a_failure_restores_all_entries_but_the_diagonal(broken, n_threads):
    """Test that after a failed factorization of A, only the diagonal of A has changed.

    The factorization can then be repeated with a larger jitter on the diagonal.
    """
    A = _matrix(50)
    A[broken, broken] = -1.0
    given = A.copy()
    with pytest.raises(LinAlgError):
        parallel_cholesky_in_place(A, n_threads)
    off = ~np.eye(50, dtype=bool)
    assert_array_equal(A[off], given[off])


@pytest.mark.parametrize("lowest", [1e-3, -1e-9])
def test_large_and_small_systems_have_the_same_solutions(monkeypatch, lowest):
    """Test that the blocked algorithm for large systems has the same solution and the same jitter as LAPACK.

    The matrix needs jitter if its lowest eigenvalue is negative.
    """
    Q = np.linalg.qr(np.random.default_rng(0).normal(size=(40, 40)))[0]
    A = (Q * np.linspace(lowest, 1.0, 40)) @ Q.T
    A, b = (A + A.T) / 2.0, np.random.default_rng(1).normal(size=(40, 2))
    x, jitter, _ = solve_positive_definite(A.copy(), b, 0.0)
    monkeypatch.setattr(linear_algebra, "_LARGE", 40)
    for n_threads in (1, 3):
        x_large, jitter_large, _ = solve_positive_definite(A.copy(), b, 0.0, n_threads)
        assert jitter_large == jitter
        assert (jitter > 0.0) == (lowest < 0.0)
        assert_allclose((A + jitter * np.eye(40)) @ x_large, b, atol=1e-5)
        assert_allclose(x_large, x, rtol=1e-4, atol=1e-4 * np.abs(x).max())
