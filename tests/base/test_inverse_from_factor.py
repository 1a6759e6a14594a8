"""The inverse from a Cholesky factor, compared with NumPy.

The lower triangle of the inverse is copied to the upper triangle in blocks of 256 rows. The numbers of rows in the
tests include values just below and just above this block size.
"""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from hkrr._base.linear_algebra import inverse_from_factor

sizes = pytest.mark.parametrize("n", [1, 2, 129, 255, 256, 257, 300])


def _matrix(n, condition):
    """Return a symmetric matrix with eigenvalues between 1 and `condition`, and random eigenvectors."""
    Q = np.linalg.qr(np.random.default_rng(n).normal(size=(n, n)))[0]
    A = (Q * np.geomspace(1.0, condition, n)) @ Q.T
    return (A + A.T) / 2.0


@sizes
@pytest.mark.parametrize("condition", [10.0, 1e6, 1e12])
def test_matches_numpy(n, condition):
    """Test that the inverse agrees with NumPy within 1e-14 times the condition number.

    The eigenvalues of the matrix are at least 1, so the entries of the inverse are at most 1.
    """
    A = _matrix(n, condition)
    found = inverse_from_factor(np.linalg.cholesky(A))
    assert_allclose(found, np.linalg.inv(A), rtol=0, atol=1e-14 * condition)


@sizes
def test_the_factor_is_not_overwritten(n):
    factor = np.linalg.cholesky(_matrix(n, 1e6))
    given = factor.copy()
    inverse_from_factor(factor)
    assert_array_equal(factor, given)


@sizes
def test_entries_above_the_diagonal_are_not_read(n):
    """Test that the inverse is the same if the entries of the factor above the diagonal are NaN, in C and F order."""
    factor = np.linalg.cholesky(_matrix(n, 10.0))
    expected = inverse_from_factor(factor)
    undefined = np.where(np.tri(n, dtype=bool), factor, np.nan)
    for order in "CF":
        assert_allclose(inverse_from_factor(np.array(undefined, order=order)), expected, rtol=0, atol=1e-15)


def test_rows_of_very_different_sizes():
    """Test that the inverse is accurate if the rows and columns of the matrix have scales from 1e-30 to 1e30.

    Without these scales, the condition number of the matrix is 10.
    """
    scale = np.geomspace(1e-30, 1e30, 300)
    A = _matrix(300, 10.0)
    found = inverse_from_factor(np.linalg.cholesky(scale[:, None] * A * scale))
    assert_allclose(scale[:, None] * found * scale, np.linalg.inv(A), rtol=0, atol=1e-13)


def test_tensors_give_the_same_inverse():
    torch = pytest.importorskip("torch")
    factor = np.linalg.cholesky(_matrix(129, 1e6))
    assert_allclose(inverse_from_factor(torch.tensor(factor)).numpy(), inverse_from_factor(factor), rtol=0, atol=1e-9)
