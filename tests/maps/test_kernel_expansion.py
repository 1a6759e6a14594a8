"""Tests of `KernelExpansion` against a naive loop over points and centers."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from hkrr._maps import KernelExpansion
from hkrr.kernels import get_kernel
from hkrr.kernels.expansion_values import kernel_and_slopes
from hkrr.rows import InMemoryRows
from support.random_problems import make_problem

OFFSET = np.array([0.5, -1.0, 2.0, 0.1])


def _expansion(p, kernel, intercept, x_offset):
    alpha = p.alpha[:, 0] if p.y.ndim == 1 else p.alpha
    return KernelExpansion(get_kernel(kernel).with_gamma(0.3), p.B, p.centers, alpha, intercept, x_offset)


def _naive(f, X):
    """Return f(X) by its formula, with one kernel evaluation for each point, center and target."""
    offset = np.zeros(X.shape[1]) if f.x_offset is None else f.x_offset
    alpha, values = f.alpha.reshape(len(f.centers), -1), []
    for x in X:
        value = np.zeros(alpha.shape[1]) + f.intercept
        for c, a in zip(f.centers, alpha, strict=True):
            k = f.kernel((f.B @ (x - offset))[None, :], (f.B @ (c - offset))[None, :])[0, 0]
            value = value + k * a
        values.append(value)
    return np.array(values).reshape(len(X), *f.alpha.shape[1:])


@pytest.mark.parametrize("kernel", ["gaussian", "product_laplace", "polynomial"])
@pytest.mark.parametrize("x_offset", [None, OFFSET], ids=["no-offset", "offset"])
@pytest.mark.parametrize(("T", "intercept"), [(1, 0.7), (3, np.array([0.7, -0.2, 5.0]))], ids=["one-target", "three"])
def test_matches_a_loop(kernel, x_offset, T, intercept):
    """Test that the values equal those of a loop, at points given as an array and at the rows of a row source.

    The row source has 17 rows in blocks of 7 rows, so the last block is shorter.
    """
    p = make_problem(T=T)
    f = _expansion(p, kernel, intercept, x_offset)
    expected = _naive(f, p.X)
    assert expected.shape == ((17,) if T == 1 else (17, T))
    assert_allclose(f.at(p.X), expected, rtol=1e-12, atol=1e-13)
    P = (p.X if x_offset is None else p.X - x_offset) @ p.B.T
    assert_allclose(f.at_latent(P), expected, rtol=1e-12, atol=1e-13)
    assert_allclose(f.of_rows(InMemoryRows(p.X, p.y, block_size=7)), expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("T", [1, 3])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_rows_of_tensors(T, dtype):
    torch = pytest.importorskip("torch")
    from hkrr.rows.torch_device import TorchRows

    p = make_problem(T=T)
    X = torch.as_tensor(p.X).to(getattr(torch, dtype))
    f = _expansion(p, "matern32", 0.7, OFFSET)
    found = f.of_rows(TorchRows(X, torch.empty((len(X), 0)), device="cpu", block_size=7))
    assert isinstance(found, np.ndarray)
    assert_allclose(found, _naive(f, X.numpy().astype(float)), rtol=1e-12, atol=1e-13)


def test_the_default_has_no_intercept_and_no_offset():
    p = make_problem()
    f = KernelExpansion(get_kernel("gaussian").with_gamma(0.3), p.B, p.centers, p.alpha)
    assert_allclose(f.at(p.X), _naive(f, p.X), rtol=1e-12, atol=1e-13)
    assert_allclose(f.latent_centers, p.centers @ p.B.T, rtol=1e-14)


@pytest.mark.parametrize("kernel", ["gaussian", "product_matern32", "polynomial"])
def test_slopes_equal_finite_differences(kernel):
    p, step = make_problem(T=3), 1e-6
    kernel = get_kernel(kernel).with_gamma(0.3)
    P, C = p.X @ p.B.T, p.centers @ p.B.T
    K, slopes = kernel_and_slopes(kernel, P, C, p.alpha)
    assert_allclose(K, kernel(P, C), rtol=1e-12)
    assert slopes.shape == (17, 3, len(p.B))
    for k, e in enumerate(step * np.eye(len(p.B))):
        expected = (kernel(P + e, C) - kernel(P - e, C)) @ p.alpha / (2.0 * step)
        assert_allclose(slopes[:, :, k], expected, rtol=1e-6, atol=1e-8)
