"""Tests of the shapes of a map: formulas, finite differences through a criterion, and extreme scales."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from hkrr._base.linear_algebra import project
from hkrr._maps import Diagonal, Full, Scaled, ScaledRows, ShapedCriterion
from hkrr.criteria import Evidence, LeaveOneOut
from hkrr.kernels import get_kernel
from hkrr.rows import InMemoryRows
from support.random_problems import central_difference, make_problem, unit_direction

LAMBDA, D = 0.05, 4
BASE = np.random.default_rng(5).normal(size=(2, D))
RADIAL, PRODUCT = ["gaussian", "matern32", "laplace"], ["product_matern32", "product_laplace", "anova"]
LOGS = np.array([0.3, -1.2, 0.0, 2.0])
SHAPES = {  # for each shape, its parameters (logarithms of scales, except for "full") and the map that they define
    "full": (Full(), BASE, BASE),
    "diagonal": (Diagonal(), LOGS[None, :], np.exp(LOGS)),
    "sparse": (Diagonal(np.array([2.0, 0.0, 0.0, -1.0])), np.array([[0.3, 2.0]]), np.exp([0.3, -np.inf, -np.inf, 2.0])),
    "scaled": (Scaled(BASE), np.array([[-0.7]]), math.exp(-0.7) * BASE),
    "scaled diagonal": (Scaled(np.exp(LOGS)), np.array([[-0.7]]), math.exp(-0.7) * np.exp(LOGS)),
    "scaled rows": (
        ScaledRows(3.0 * BASE),
        np.array([[-0.7], [0.4]]),
        np.exp([[-0.7], [0.4]]) * BASE / np.sqrt(np.sum(BASE**2, axis=1, keepdims=True)),
    ),
    "identity": (Scaled(np.ones(D)), np.array([[0.4]]), math.exp(0.4) * np.ones(D)),
}
every_shape = pytest.mark.parametrize("name", SHAPES)
both = pytest.mark.parametrize("make", [Evidence, LeaveOneOut])


def _thorough(*values):
    return [pytest.param(value, marks=pytest.mark.thorough) for value in values]


def _criterion(make, kernel, m=30, T=1, seed=0, n_features=D):
    """Return an exact criterion of weighted rows, with all rows as centers. It is finite for every lambda and B."""
    p = make_problem(m=m, D=n_features, T=T, seed=seed)
    return make(InMemoryRows(p.X, p.y, p.w), None, get_kernel(kernel).with_gamma(0.3), LAMBDA, learn_lambda=True)


@every_shape
def test_parameters_and_map_are_inverse_to_each_other(name):
    shape, parameters, B = SHAPES[name]
    assert (shape.parameters(B).shape, shape.map(parameters).shape) == (parameters.shape, B.shape)
    assert_allclose(shape.map(parameters), B, rtol=1e-14)
    assert_allclose(shape.parameters(B), parameters, rtol=1e-13, atol=1e-14)
    assert_allclose(shape.map(shape.parameters(B)), B, rtol=1e-13)


@pytest.mark.parametrize("columns", [[], [0], [1, 3], [0, 1, 2, 3, 4]])
def test_sparse_diagonal_maps(columns):
    """Test that a sparse diagonal map has one scale for each of the given columns, and the scale zero for all others.

    Only the gradient of the given columns counts. The nonzero entries of `base` mark the given columns. Their values do
    not matter.
    """
    rng, base = np.random.default_rng(len(columns)), np.zeros(5)
    base[columns] = rng.normal(size=len(columns))
    shape, scales, G = Diagonal(base), rng.uniform(0.1, 5.0, size=5), rng.normal(size=5)
    B = np.where(base != 0.0, scales, 0.0)
    parameters = shape.parameters(B)
    assert parameters.shape == (1, len(columns))
    assert_allclose(parameters[0], [math.log(scales[j]) for j in columns], rtol=1e-14)
    assert_allclose(shape.map(parameters), B, rtol=1e-14)
    assert_array_equal(shape.map(parameters)[base == 0.0], 0.0)
    for log in (-1e3, 1e3):
        assert_array_equal(shape.map(np.full((1, len(columns)), log)) > 0.0, base != 0.0)
    assert_allclose(shape.gradient(parameters, G), [[G[j] * scales[j] for j in columns]], rtol=1e-13)
    every = Diagonal().parameters(scales)
    assert_allclose(shape.gradient(parameters, G)[0], Diagonal().gradient(every, G)[0, columns], rtol=1e-14)


def test_the_gradient_of_a_function_of_a_sparse_map():
    """Test that the gradient of a function f of a sparse map equals finite differences.

    The function is ``f(B) = sum_j sin(c_j B_j) + prod_j (1 + B_j)``. Its derivatives with respect to the columns that
    are left out are not zero, but have no effect.
    """
    rng, shape = np.random.default_rng(2), Diagonal(np.array([0.0, 1.0, 1.0, 0.0, 1.0]))
    c, parameters = rng.normal(size=5), 0.5 * rng.normal(size=(1, 3))

    def f(p):
        B = shape.map(p)
        return np.sum(np.sin(c * B)) + np.prod(1.0 + B)

    B = shape.map(parameters)
    G = np.array([c[j] * math.cos(c[j] * B[j]) + np.prod(np.delete(1.0 + B, j)) for j in range(5)])
    found = shape.gradient(parameters, G)
    for k in range(3):
        unit = np.eye(3)[[k]]
        assert found[0, k] == pytest.approx(central_difference(f, parameters, unit), rel=1e-8)


def test_a_sparse_map_has_a_parameter_for_each_column_that_is_used():
    """Test that the degrees of freedom are the number of columns that the map uses.

    They are at most the number of linearly independent columns, the second argument.
    """
    shape = Diagonal(np.array([0.0, 2.0, 0.0, -1.0, 1e-9]))
    for rotation_invariant in (False, True):
        assert [shape.degrees_of_freedom(5, n, rotation_invariant) for n in (5, 4, 3, 2, 1)] == [3, 3, 3, 2, 1]
        assert Diagonal(np.ones(5)).degrees_of_freedom(5, 5, rotation_invariant) == 5
        assert Diagonal(np.zeros(5)).degrees_of_freedom(5, 5, rotation_invariant) == 0


@pytest.mark.parametrize("name", [name for name in SHAPES if name != "scaled rows"])
def test_tangents(name):
    """Test that the tangents are the derivatives of f(x) = sin(Bx) with respect to the parameters of the map B.

    The target is the vector of the sines of the latent coordinates. Each parameter has one tangent.
    """
    shape, parameters, B = SHAPES[name]
    X = np.random.default_rng(0).normal(size=(5, D))
    P = project(X, B)
    slopes = np.cos(P)[:, :, None] * np.eye(P.shape[1])
    found = shape.tangents(X, B, slopes, most=100)
    assert found.shape == (5, P.shape[1], parameters.size)
    assert parameters.size == shape.n_parameters(B)
    for k in range(parameters.size):
        unit = np.eye(parameters.size)[k].reshape(parameters.shape)
        expected = central_difference(lambda p: np.sin(project(X, shape.map(p))), parameters, unit)
        assert_allclose(found[:, :, k], expected, rtol=1e-6, atol=1e-8)


def test_names():
    assert (Full().name, Diagonal().name, Scaled(np.ones(D)).name) == ("full", "diagonal", "identity")
    assert Diagonal(np.array([1.0, 0.0])).name == "diagonal"


@pytest.mark.parametrize(("d", "n"), [(1, 1), (1, 6), (3, 6), (6, 6)])
def test_degrees_of_freedom(d, n):
    """Test that the degrees of freedom are the number of parameters that the data can determine.

    A full map of d directions in n columns has d n parameters. If the kernel is rotation invariant, the data cannot
    determine the d (d - 1)/2 angles of a rotation of the d coordinates. Diagonal maps and multiples of a map have the
    same number of parameters for every kernel.
    """
    assert Full().degrees_of_freedom(d, n, False) == d * n
    assert Full().degrees_of_freedom(d, n, True) == d * n - sum(range(d))
    for rotation_invariant in (False, True):
        assert Diagonal().degrees_of_freedom(n, n, rotation_invariant) == n
        assert Scaled(np.ones(n)).degrees_of_freedom(n, n, rotation_invariant) == 1


@every_shape
def test_the_gradient_is_the_transposed_derivative_of_the_map(name):
    """Test that <gradient(p, G), v> equals d/dt <G, map(p + t v)> for random G and v."""
    (shape, parameters, _), rng = SHAPES[name], np.random.default_rng(0)
    for _ in range(3):
        G, v = rng.normal(size=shape.map(parameters).shape), unit_direction(rng, parameters.shape)
        expected = central_difference(lambda p, G=G: np.sum(G * shape.map(p)), parameters, v)
        assert shape.gradient(parameters, G).shape == parameters.shape
        assert np.sum(shape.gradient(parameters, G) * v) == pytest.approx(expected, rel=1e-8, abs=1e-8)


@both
@every_shape
@pytest.mark.parametrize("kernel", ["gaussian", "product_matern32", *_thorough(*RADIAL[1:], *PRODUCT[1:])])
def test_directional_derivatives(make, name, kernel):
    """Test that the derivatives with respect to the parameters and to log lambda equal central differences.

    The errors of the central differences are of order 1e-10.
    """
    shape, parameters, _ = SHAPES[name]
    for seed in range(2):
        shaped, rng = ShapedCriterion(_criterion(make, kernel, T=2, seed=seed), shape), np.random.default_rng(seed)
        reduced, v = shaped.reduced(parameters, LAMBDA), unit_direction(rng, parameters.shape)
        assert reduced.grad.shape == parameters.shape
        along = central_difference(lambda p, f=shaped: f.reduced(p, LAMBDA).value, parameters, v)
        assert abs(along - np.sum(reduced.grad * v)) <= 1e-6 * np.linalg.norm(reduced.grad)
        in_lambda = central_difference(
            lambda t, f=shaped: f.reduced(parameters, math.exp(t)).value, math.log(LAMBDA), 1.0
        )
        assert in_lambda == pytest.approx(reduced.grad_log_lambda, rel=1e-6, abs=1e-8)


@both
@every_shape
def test_shaped_is_the_criterion_at_the_map(make, name):
    """Test that the value equals the criterion at the map as a matrix, even if the shape stores the map as a vector."""
    shape, parameters, B = SHAPES[name]
    criterion = _criterion(make, "matern32")
    shaped = ShapedCriterion(criterion, shape).reduced(parameters, 0.2)
    plain = criterion.reduced(B if B.ndim == 2 else np.diag(B), 0.2)
    assert shaped.value == pytest.approx(plain.value, rel=1e-12)
    assert shaped.grad_log_lambda == pytest.approx(plain.grad_log_lambda, rel=1e-10)
    assert_allclose(shaped.alpha, plain.alpha, rtol=1e-9)


@both
@pytest.mark.parametrize("kernel", ["gaussian", "anova", *_thorough(*RADIAL[1:], *PRODUCT[:-1])])
@pytest.mark.parametrize("name", ["diagonal", "sparse", "scaled", "scaled diagonal", "scaled rows", "identity"])
@pytest.mark.parametrize("log", [-1e3, 40.0, *_thorough(-300.0, -40.0, 300.0, 1e3)])
def test_extreme_logarithms_are_clipped(make, kernel, name, log):
    """Test that logarithms of scales beyond the bounds are clipped.

    Either all parameters or only the first parameter have the extreme value. Beyond the bounds, the value is finite and
    constant, and the gradient with respect to these parameters is zero.
    """
    shape, parameters, _ = SHAPES[name]
    shaped = ShapedCriterion(_criterion(make, kernel), shape)
    for held in (np.ones(parameters.size, dtype=bool), np.arange(parameters.size) == 0):
        held = held.reshape(parameters.shape)
        here, farther = (shaped.reduced(np.where(held, t, parameters), LAMBDA) for t in (log, 2.0 * log))
        assert math.isfinite(here.value)
        assert here.value == farther.value
        assert_array_equal(here.grad[held], 0.0)
        assert_array_equal(farther.grad, here.grad)
        assert np.all(np.isfinite(here.grad))
        assert math.isfinite(here.grad_log_lambda)


@both
@pytest.mark.parametrize("kernel", ["gaussian", "product_matern52", *_thorough(*RADIAL[1:], *PRODUCT)])
@pytest.mark.parametrize("n_features", [200, *_thorough(15)])
@pytest.mark.parametrize("log", [-1e3, 1e3])
def test_extreme_logarithms_of_many_columns(make, kernel, n_features, log):
    """Test that the value is finite and the gradient zero if the scales of many columns are extreme.

    The kernel is then 0 or 1. Intermediate products of the factors of a product kernel could nevertheless overflow.
    """
    shaped = ShapedCriterion(_criterion(make, kernel, n_features=n_features), Diagonal())
    reduced = shaped.reduced(np.full((1, n_features), log), LAMBDA)
    assert math.isfinite(reduced.value)
    assert math.isfinite(reduced.grad_log_lambda)
    assert_array_equal(reduced.grad, 0.0)


@pytest.mark.parametrize("name", ["diagonal", "identity"])
@pytest.mark.parametrize("log", [-20.0, 20.0])
def test_large_logarithms_are_not_clipped(name, log):
    """Test that logarithms of -20 and 20, scales of 2e-9 and 5e8, are not clipped."""
    shape, parameters = SHAPES[name][0], np.full_like(SHAPES[name][1], log)
    assert_allclose(shape.map(parameters), math.exp(log) * np.ones(D), rtol=1e-14)
    slope = np.full_like(parameters, math.exp(log) * D / parameters.size)
    assert_allclose(shape.gradient(parameters, np.ones(D)), slope, rtol=1e-14)
