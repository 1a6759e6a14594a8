"""Inverses, determinants and solutions of large systems, which are computed in float32 if this is accurate enough."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from hkrr._base import linear_algebra
from hkrr._base.linear_algebra import inverse_and_log_det, solve_positive_definite

EPS32 = float(np.finfo(np.float32).eps)
LARGE = 600  # number of rows from which inverses are computed in float32


@pytest.fixture(scope="module")
def eigenvectors():
    return np.linalg.qr(np.random.default_rng(0).normal(size=(LARGE, LARGE)))[0]


def _system(Q, condition, lowest=1.0, T=2):
    """Return a symmetric matrix, and an array of T right-hand sides.

    The columns of Q are the eigenvectors. The eigenvalues are between `lowest` and `condition` times `lowest`.
    """
    A = (Q * np.geomspace(lowest, condition * lowest, len(Q))) @ Q.T
    return (A + A.T) / 2.0, np.random.default_rng(1).normal(size=(len(Q), T))


@pytest.mark.parametrize(
    ("condition", "dtype"),
    [(1.0, np.float32), (10.0, np.float32), (1e3, np.float32), (1e9, np.float64), (1e12, np.float64)],
)
@pytest.mark.parametrize("lowest", [1e-20, 1.0, 1e20])
def test_inverse_determinant_and_solution(eigenvectors, condition, dtype, lowest):
    """Test the errors of the inverse, of the logarithm of the determinant, and of the solution.

    Ill-conditioned matrices are inverted in float64, other matrices in float32. The relative error of the inverse is at
    most ten times epsilon times the condition number, where epsilon is the machine epsilon of the dtype of the inverse.
    The same bound holds for the eigenvalues of the rounded matrix. It therefore also holds for the mean error of their
    logarithms, whose sum is the logarithm of the determinant. If the inverse is in float32, the solution is refined
    until its relative residual is at most 1e-8. In float64, the relative residual has the same bound as the inverse.
    """
    A, b = _system(eigenvectors, condition, lowest)
    inverse, log_det, x = inverse_and_log_det(A.copy(), b)
    assert inverse.dtype == dtype
    assert x.dtype == np.float64
    values = np.geomspace(lowest, condition * lowest, LARGE)
    tolerance = 10.0 * max(float(np.finfo(dtype).eps) * condition, EPS32**2)
    expected = (eigenvectors / values) @ eigenvectors.T
    assert np.linalg.norm(inverse - expected, 2) <= tolerance / lowest
    assert log_det == pytest.approx(np.sum(np.log(values)), abs=tolerance * LARGE)
    assert_array_equal(inverse, inverse.T)
    residual = 1e-8 if dtype is np.float32 else tolerance
    assert np.linalg.norm(A @ x - b) <= residual * np.linalg.norm(b)


@pytest.mark.parametrize("n", [LARGE - 1, LARGE])
def test_only_large_systems_use_float32(eigenvectors, n):
    A, b = _system(eigenvectors, 10.0)
    inverse, log_det, x = inverse_and_log_det(A[:n, :n].copy(), b[:n])
    assert inverse.dtype == (np.float32 if n == LARGE else np.float64)
    tolerance = 1e-12 if n < LARGE else 100.0 * EPS32
    assert_allclose(inverse, np.linalg.inv(A[:n, :n]), rtol=0, atol=tolerance)
    assert log_det == pytest.approx(np.linalg.slogdet(A[:n, :n])[1], rel=tolerance)
    assert_allclose(x, np.linalg.solve(A[:n, :n], b[:n]), rtol=0, atol=1e-7)


def test_a_system_in_single_precision_stays_in_single_precision(eigenvectors):
    A, b = _system(eigenvectors, 10.0)
    found = inverse_and_log_det(A.astype(np.float32), b.astype(np.float32))
    assert [np.asarray(one).dtype for one in found] == [np.float32] * 3
    assert_allclose(found[0], np.linalg.inv(A), rtol=0, atol=100.0 * EPS32)
    assert_allclose(found[2], np.linalg.solve(A, b), rtol=0, atol=1000.0 * EPS32)


def test_a_singular_matrix_gets_jitter_and_an_indefinite_one_raises(eigenvectors):
    """Test that a matrix with a lowest eigenvalue of -1e-13 gets jitter, and that -0.1 raises an error.

    The largest eigenvalue is 1, so an eigenvalue of -1e-13 can be a rounding error of zero.
    """
    values = np.linspace(-1e-13, 1.0, LARGE)
    A = (eigenvectors * values) @ eigenvectors.T
    inverse, log_det, x = inverse_and_log_det(((A + A.T) / 2.0).copy(), np.ones((LARGE, 1)))
    assert all(np.all(np.isfinite(one)) for one in (inverse, log_det, x))
    A = (eigenvectors * np.linspace(-0.1, 1.0, LARGE)) @ eigenvectors.T
    with pytest.raises(FloatingPointError, match="positive definite"):
        inverse_and_log_det((A + A.T) / 2.0, np.ones((LARGE, 1)))


@pytest.mark.parametrize(
    "value",
    [
        np.nan,
        np.inf,
    ],
)
def test_values_that_are_not_finite_raise(eigenvectors, value):
    A, b = _system(eigenvectors, 10.0)
    A[3, 3] = value
    with pytest.raises(FloatingPointError, match="finite"):
        inverse_and_log_det(A, b)


def test_right_hand_sides_of_zeros(eigenvectors):
    A, b = _system(eigenvectors, 10.0)
    assert_array_equal(inverse_and_log_det(A, 0.0 * b)[2], 0.0)


@pytest.mark.parametrize("scales", [(1.0, 1e-12), (1e-30, 1e-30), (1e-50, 1e-50), (1e30, 1.0)])
def test_each_right_hand_side_is_solved_accurately(eigenvectors, scales):
    A, b = _system(eigenvectors, 10.0)
    x = inverse_and_log_det(A.copy(), b * scales)[2]
    assert_allclose(x / scales, np.linalg.solve(A, b), rtol=0, atol=1e-6)


def test_right_hand_sides_below_the_range_of_float32_are_solved_accurately(eigenvectors):
    A, b = _system(eigenvectors, 10.0)
    x = inverse_and_log_det(A.copy(), b * (1.0, 1e-50))[2]
    assert_allclose(x / (1.0, 1e-50), np.linalg.solve(A, b), rtol=0, atol=1e-6)


@pytest.mark.parametrize(("of_A", "of_b"), [(1.0, 1e50), (1e39, 1.0)])
def test_values_above_the_range_of_float32_give_no_warning(eigenvectors, of_A, of_b):
    A, b = _system(eigenvectors, 10.0)
    x = inverse_and_log_det(of_A * A, of_b * b)[2]
    assert_allclose(x * of_A / of_b, np.linalg.solve(A, b), rtol=0, atol=1e-6)


@pytest.mark.parametrize(("condition", "dtype"), [(10.0, np.float32), (1e3, np.float32), (1e10, np.float64)])
@pytest.mark.parametrize("jitter", [0.0, 0.3])
@pytest.mark.parametrize("n_threads", [1, 2])
def test_large_systems(monkeypatch, eigenvectors, condition, dtype, jitter, n_threads):
    """Test the residual of the solution, and the factor, the norm and the jitter in `SolveInfo`.

    The largest eigenvalue of the matrix is 1. With a jitter of 0.3, every matrix is so well conditioned that float32 is
    enough. `SolveInfo` records only jitter in addition to the jitter that is passed to the solver.
    """
    monkeypatch.setattr(linear_algebra, "_LARGE", LARGE)
    A, b = _system(eigenvectors, condition, 1.0 / condition)
    x, used, info = solve_positive_definite(A.copy(), b, jitter, n_threads, with_norm=True)
    shifted = A + jitter * np.eye(LARGE)
    assert used == jitter
    assert info.jitter == 0.0
    assert info.norm == pytest.approx(np.linalg.norm(shifted, 1))
    assert np.linalg.norm(shifted @ x - b) <= 1e-6 * np.linalg.norm(b)
    dtype = np.float32 if jitter else dtype
    assert info.factor.dtype == dtype
    factor = np.tril(info.factor).astype(np.float64)
    assert_allclose(factor @ factor.T, shifted, rtol=0, atol=10.0 * np.finfo(dtype).eps)


def test_a_large_singular_system_gets_the_same_jitter_as_a_small_one(monkeypatch, eigenvectors):
    A = (eigenvectors * np.linspace(-1e-9, 1.0, LARGE)) @ eigenvectors.T
    A, b = (A + A.T) / 2.0, np.ones((LARGE, 1))
    found = []
    for large in (LARGE + 1, LARGE):
        monkeypatch.setattr(linear_algebra, "_LARGE", large)
        x, jitter, info = solve_positive_definite(A.copy(), b, 0.0)
        assert_allclose((A + jitter * np.eye(LARGE)) @ x, b, atol=1e-4)
        found.append((jitter, info.jitter))
    assert found[0] == pytest.approx(found[1])
    assert 1e-9 <= found[0][0] <= 1e-6
