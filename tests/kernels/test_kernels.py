"""Tests of all kernels and of user-defined kernels.

The kernels are compared with naive implementations in plain loops (the oracles), finite differences, scikit-learn and
autograd.
"""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.gaussian_process import kernels as sk_gp
from sklearn.metrics import pairwise

from hkrr import kernels
from hkrr.kernels import coordinatewise
from support import oracles
from support.random_problems import (
    CASES,
    ONE_GAMMA,
    case_id,
    central_difference,
    separated_points,
    torch_gram,
    unit_direction,
)
from support.user_kernels import USER

# Tolerances for float64. The formulas take about a dozen operations, so rounding errors are far below 1e-10.
EXACT = {"rtol": 1e-10, "atol": 1e-12}

every_case = pytest.mark.parametrize("case", CASES + USER, ids=case_id)
every_shape = pytest.mark.parametrize("case", ONE_GAMMA + USER, ids=case_id)


def _points(seed=0, n=6, c=5, d=3):
    """Return points P, centers C and a matrix G, all with normal entries.

    The first center equals a point, and the second center shares a coordinate with a point.
    """
    rng = np.random.default_rng(seed)
    P, C, G = rng.normal(size=(n, d)), rng.normal(size=(c, d)), rng.normal(size=(n, c))
    C[0], C[1, 0] = P[0], P[1, 0]
    return P, C, G


@every_case
def test_value_and_pullback_match_the_oracle(case):
    P, C, G = _points()
    K, pullback = case.kernel.vjp(P, C)
    expected = oracles.gram(case.value, P, C)
    assert_allclose(case.kernel(P, C), expected, **EXACT)
    assert_allclose(K, expected, **EXACT)
    for actual, expected in zip(pullback(G.copy()), oracles.pullback(case.slope, P, C, G), strict=True):
        assert_allclose(actual, expected, **EXACT)


def _check_directional(kernel, P, C, G, rng):
    """Check the gradients dP and dC of sum(G * K) along random directions V and U against central differences."""
    dP, dC = kernel.vjp(P, C)[1](G.copy())
    V, U = unit_direction(rng, P.shape), unit_direction(rng, C.shape)
    in_P = central_difference(lambda Q: np.sum(G * kernel(Q, C)), P, V)
    in_C = central_difference(lambda Q: np.sum(G * kernel(P, Q)), C, U)
    # The tolerance is 1e-6 of the gradient plus the rounding error of sum(G * K) divided by the step.
    floor = 1e-9 * np.sum(np.abs(G * kernel(P, C)))
    assert abs(in_P - np.sum(dP * V)) <= 1e-6 * np.linalg.norm(dP) + floor
    assert abs(in_C - np.sum(dC * U)) <= 1e-6 * np.linalg.norm(dC) + floor


@every_case
@pytest.mark.parametrize("seed", [0, *(pytest.param(k, marks=pytest.mark.thorough) for k in (1, 2))])
def test_pullback_along_random_directions(case, seed):
    rng = np.random.default_rng(seed)
    P, C = separated_points(rng, 6, 5, 3)
    _check_directional(case.kernel, P, C, rng.normal(size=(6, 5)), rng)


@every_shape
@settings(max_examples=20, deadline=None, database=None)
@given(n=st.integers(1, 6), c=st.integers(1, 6), d=st.integers(1, 5), seed=st.integers(0, 2**32 - 1))
def test_any_shape(case, n, c, d, seed):
    rng = np.random.default_rng(seed)
    P, C = separated_points(rng, n, c, d)
    G = rng.normal(size=(n, c))
    K, pullback = case.kernel.vjp(P, C)
    dP, dC = pullback(G.copy())
    assert (K.shape, dP.shape, dC.shape) == ((n, c), (n, d), (c, d))
    assert case.kernel.diagonal(P).shape == (n,)
    assert all(np.isfinite(a).all() for a in (K, dP, dC))
    assert_allclose(K, oracles.gram(case.value, P, C), **EXACT)
    _check_directional(case.kernel, P, C, G, rng)


@every_case
@pytest.mark.parametrize("offset", [0.0, 30.0])
def test_zero_distance(case, offset):
    """Test that k(p, p) and its derivatives match the oracles, near the origin and far from it.

    Far from the origin, |p - c|^2 would lose digits if it were computed as |p|^2 + |c|^2 - 2 p.c.
    """
    P = offset + np.random.default_rng(1).normal(size=(6, 3))
    K, pullback = case.kernel.vjp(P, P.copy())
    expected_diagonal = np.array([case.value(p, p) for p in P])
    assert_allclose(np.diag(K), expected_diagonal, rtol=1e-10)
    assert_allclose(case.kernel.diagonal(P), expected_diagonal, rtol=1e-10)
    for actual, expected in zip(pullback(np.eye(6)), oracles.pullback(case.slope, P, P, np.eye(6)), strict=True):
        assert_allclose(actual, expected, rtol=1e-10, atol=1e-10)  # zero for every translation-invariant kernel


@pytest.mark.parametrize("case", [case for case in CASES if case.norm], ids=case_id)
def test_almost_zero_distance(case):
    """Test that for points about 1e-9 apart, k is close to 1 and no derivative exceeds its bound.

    The bound is 2 sqrt(d) / ell, where d = 3 is the number of coordinates and ell = 1 / sqrt(2 gamma) the length scale.
    """
    P = np.random.default_rng(2).normal(size=(6, 3))
    C = P + 1e-9
    K, pullback = case.kernel.vjp(P, C)
    # A distance computed from inner products is accurate only to sqrt(eps) = 1.5e-8.
    assert_allclose(np.diag(K), 1.0, atol=2e-7)
    for gradient in pullback(np.eye(6)):
        assert np.linalg.norm(gradient, axis=1).max() <= 2.0 * math.sqrt(3.0) * math.sqrt(2.0 * case.gamma)


@pytest.mark.parametrize("far", [1e3, 1e80, 1e300])
@pytest.mark.parametrize("nu", [0.5, 1.5, 2.5])
def test_products_of_many_far_coordinates_are_zero(nu, far):
    kernel = kernels.ProductMatern(gamma=0.5, nu=nu)
    assert_array_equal(kernel(np.full((1, 9), far), np.zeros((2, 9))), np.zeros((1, 2)))
    # The same holds for centers that are far from each other.
    assert_array_equal(kernel(np.zeros((1, 9)), np.full((2, 9), [[-far], [far]])), np.zeros((1, 2)))
    small = np.float32(min(far, 1e30))
    assert_array_equal(kernel(np.full((1, 9), small), np.zeros((2, 9), dtype=np.float32)), np.zeros((1, 2)))


def test_cache_blocks_do_not_change_the_kernel(monkeypatch):
    P, C, _ = _points()
    for kernel in (kernels.ProductMatern(gamma=0.3), kernels.Anova(gamma=0.3)):
        whole = kernel(P, C)
        monkeypatch.setattr(coordinatewise, "_CACHED", 2 * len(C))
        assert_array_equal(kernel(P, C), whole)


@every_shape
def test_rows_do_not_influence_each_other(case):
    """Test that an outlier does not make the distances of other rows less accurate.

    The division of the rows into blocks is arbitrary, so the rows of a block must not influence each other.
    """
    P, C, G = _points()
    C[2], P[-1] = P[2] + 0.01, 1e6
    G[-1] = 0.0
    K, pullback = case.kernel.vjp(P, C)
    assert_allclose(K[:-1], oracles.gram(case.value, P[:-1], C), **EXACT)
    assert_allclose(pullback(G.copy())[0][:-1], oracles.pullback(case.slope, P[:-1], C, G[:-1])[0], **EXACT)


@every_shape
def test_gamma_is_a_scale(case):
    P, C, _ = _points()
    for gamma in (0.05, 1.7):
        scaled = case.kernel.with_gamma(1.0)(math.sqrt(gamma) * P, math.sqrt(gamma) * C)
        assert_allclose(case.kernel.with_gamma(gamma)(P, C), scaled, **EXACT)


@every_shape
def test_with_gamma_makes_a_copy(case):
    other = case.kernel.with_gamma(5.0)
    assert type(other) is type(case.kernel)
    assert other.gamma == 5.0
    assert case.kernel.gamma == 0.3
    assert dataclasses.replace(other, gamma=0.3) == case.kernel
    with pytest.raises(dataclasses.FrozenInstanceError):
        case.kernel.gamma = 1.0


@every_case
def test_gram_matrix_is_symmetric_and_positive_semidefinite(case):
    P = np.random.default_rng(3).normal(size=(25, 2))
    K = case.kernel(P, P)
    assert_allclose(K, K.T, rtol=1e-12, atol=1e-14)
    eigenvalues = np.linalg.eigvalsh(K)
    assert eigenvalues[0] >= -1e-12 * eigenvalues[-1]  # the rounding error of the eigenvalues is about 25 eps


@every_shape
def test_float32_points_are_accepted(case):
    P, C, G = (a.astype(np.float32) for a in _points())
    K, pullback = case.kernel.vjp(P, C)
    exact = [a.astype(float) for a in (P, C, G)]
    # The precision of float32 is 1e-7. At distance zero, the square root of a squared distance has an error of 3e-4, so
    # the absolute tolerance is 1e-3.
    assert_allclose(K, oracles.gram(case.value, *exact[:2]), rtol=1e-5, atol=1e-3)
    for actual, expected in zip(pullback(G.copy()), oracles.pullback(case.slope, *exact), strict=True):
        assert_allclose(actual, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("case", ONE_GAMMA, ids=case_id)
def test_median_gamma(case):
    rng = np.random.default_rng(4)
    P = rng.normal(size=(9, 3))
    if case.norm is None:
        assert case.kernel.median_gamma(P) == pytest.approx(1.0 / np.mean([oracles.dot(p, p) for p in P]), rel=1e-12)
        assert case.kernel.median_gamma(np.zeros((4, 3))) == 1.0
        return
    # Repeating each row adds pairs at distance zero, which are ignored, and repeats all other pairs equally often.
    for points in (P, P[:8], P[:2], np.vstack([P, P]), np.repeat(P[:8], 3, axis=0)):
        assert case.kernel.median_gamma(points) == pytest.approx(oracles.median_gamma(points, case.norm), rel=1e-10)
    assert case.kernel.median_gamma(np.vstack([P, P])) == pytest.approx(case.kernel.median_gamma(P), rel=1e-10)
    for constant in (np.full((4, 3), 0.1), np.zeros((4, 3)), P[:1]):
        assert case.kernel.median_gamma(constant) == 1.0


SKLEARN = {
    "gaussian": lambda P, C, g: pairwise.rbf_kernel(P, C, gamma=g),
    **dict.fromkeys(
        ("laplace", "matern12", "matern32", "matern52"),
        lambda P, C, g, nu=0.5: sk_gp.Matern(oracles.length_scale(g), nu=nu)(P, C),
    ),
    "rational_quadratic": lambda P, C, g, alpha: sk_gp.RationalQuadratic(oracles.length_scale(g), alpha)(P, C),
    "product_laplace": lambda P, C, g: pairwise.laplacian_kernel(P, C, gamma=math.sqrt(2.0 * g)),
    "polynomial": lambda P, C, g, degree, coef0: pairwise.polynomial_kernel(P, C, degree, g, coef0),
}


@pytest.mark.parametrize("case", [case for case in CASES if case.name in SKLEARN], ids=case_id)
def test_agrees_with_scikit_learn(case):
    P, C = separated_points(np.random.default_rng(5), 6, 5, 3)
    assert_allclose(case.kernel(P, C), SKLEARN[case.name](P, C, case.gamma, **case.shape), **EXACT)


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_pullback_agrees_with_autograd(case):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(6)
    P, C = separated_points(rng, 6, 5, 3)
    G = rng.normal(size=(6, 5))
    tP, tC = torch.tensor(P, requires_grad=True), torch.tensor(C, requires_grad=True)
    (torch.tensor(G) * torch_gram(torch, case, tP, tC)).sum().backward()
    dP, dC = case.kernel.vjp(P, C)[1](G.copy())
    assert_allclose(dP, tP.grad.numpy(), **EXACT)
    assert_allclose(dC, tC.grad.numpy(), **EXACT)


NAMES = {
    "gaussian": kernels.Gaussian(),
    "laplace": kernels.Laplace(),
    **{f"matern{round(2 * nu)}2": kernels.Matern(nu=nu) for nu in (0.5, 1.5, 2.5)},
    "rational_quadratic": kernels.RationalQuadratic(alpha=1.0),
    "inverse_multiquadric": kernels.InverseMultiquadric(),
    "product_laplace": kernels.ProductLaplace(),
    **{f"product_matern{round(2 * nu)}2": kernels.ProductMatern(nu=nu) for nu in (1.5, 2.5)},
    "anova": kernels.Anova(nu=0.5),
    "polynomial": kernels.Polynomial(degree=3, coef0=1.0),
    "linear": kernels.Polynomial(degree=1, coef0=0.0),
}


def test_kernels_by_name():
    assert kernels.KERNELS.keys() == NAMES.keys()
    P, C, _ = _points()
    for name, kernel in NAMES.items():
        assert kernels.get_kernel(name) == kernel
        assert kernels.get_kernel(kernel) is kernel
        assert_array_equal(kernels.KERNELS[name](P, C), kernel(P, C))


@pytest.mark.parametrize("gamma", [None, 0.3])
def test_the_linear_kernel_is_gamma_times_the_scalar_product(gamma):
    """Test that the value is gamma p.c, and that the derivatives with respect to p and c are gamma c and gamma p.

    If gamma is None, it is 1. `kernel_name` returns "linear" also for a copy of the kernel with a different gamma.
    """
    kernel, scale = dataclasses.replace(kernels.get_kernel("linear"), gamma=gamma), gamma or 1.0
    P, C, G = _points()
    dots = scale * np.array([[oracles.dot(p, c) for c in C] for p in P])
    K, pullback = kernel.vjp(P, C)
    for found in (K, kernel(P, C)):
        assert_allclose(found, dots, rtol=1e-13, atol=1e-14)
    assert_allclose(kernel.diagonal(P), [scale * oracles.dot(p, p) for p in P], rtol=1e-13)
    dP, dC = pullback(G.copy())
    assert_allclose(dP, scale * sum(G[:, [j]] * C[j] for j in range(len(C))), rtol=1e-12, atol=1e-13)
    assert_allclose(dC, scale * sum(G[[i]].T * P[i] for i in range(len(P))), rtol=1e-12, atol=1e-13)
    assert kernels.kernel_name(kernel) == "linear"
    assert kernels.kernel_name(kernels.Polynomial(degree=1)) == "Polynomial"


def test_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match="no_such_kernel") as caught:
        kernels.get_kernel("no_such_kernel")
    assert all(name in str(caught.value) for name in NAMES)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("offset", [0.0, 100.0])
def test_distances_below_rounding_are_zero_in_both_precisions(dtype, offset):
    """Test that equal rows far from zero have the kernel value 1 and a zero gradient, and other values are accurate.

    At the offset 100, squared distances of float32 have errors of about 0.01. Different rows have distances above 1.
    """
    P = (offset + 3.0 * np.arange(12.0).reshape(6, 2)).astype(dtype)
    K, pullback = kernels.Laplace(gamma=0.3).vjp(P, P.copy())
    assert K.dtype == dtype
    assert_array_equal(K.diagonal(), 1.0)
    r = np.sqrt(0.6 * np.sum((P[:, None] - P[None]).astype(np.float64) ** 2, axis=2))
    assert_allclose(K, np.exp(-r), rtol=0, atol=1e-12 if dtype is np.float64 else 1e-2 if offset else 1e-5)
    left, right = pullback(np.eye(6, dtype=dtype))
    assert_array_equal(left, 0.0)
    assert_array_equal(right, 0.0)
