"""Of the objective: the change along a step, all rows as centers, and the ridges that keep the solves definite."""

import numpy as np
import pytest

import oracles
from hkrr._arrays import EPS
from hkrr.kernels import Gaussian, Polynomial
from hkrr.objective import Objective
from hkrr.rows import InMemoryRows
from problems import ONE_GAMMA, case_id, central_difference, make_problem, unit_direction

FEW = [case for case in ONE_GAMMA if case.name in ("gaussian", "product_laplace")]
LAMBDA = 0.05


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("case", FEW, ids=case_id)
def test_change_is_the_difference_of_two_values(case, weighted):
    p = make_problem(T=3, weighted=weighted)
    inner = Objective(InMemoryRows(p.X, p.y, p.w), p.centers, case.kernel, LAMBDA).inner(p.B)
    step = 0.3 * np.random.default_rng(1).normal(size=p.alpha.shape)
    expected = inner.value(p.alpha + step) - inner.value(p.alpha)
    assert inner.change(inner.grad(p.alpha), step) == pytest.approx(expected, rel=1e-10)
    # Of a step too short for that difference, the first order is left, to all its digits.
    tiny = 1e-12 * step
    slope = float(np.sum(tiny * inner.grad(p.alpha)))
    assert inner.change(inner.grad(p.alpha), tiny) == pytest.approx(slope, rel=1e-9)


def _rows(kind, p):
    """The rows, where they may be: NumPy's on one thread, or by blocks on two, or torch's."""
    if kind == "torch":
        pytest.importorskip("torch")
        from hkrr.rows.device import TorchRows

        return TorchRows(p.X, p.y, p.w, device="cpu", block_size=7)
    options = {"block_size": 7, "n_threads": 2} if kind == "two threads" else {"block_size": "auto"}
    return InMemoryRows(p.X, p.y, p.w, **options)


@pytest.mark.parametrize("kind", ["one thread", "two threads", "torch"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("reg_lambda", [LAMBDA, 1e-9])
@pytest.mark.parametrize("case", FEW, ids=case_id)
def test_all_rows_as_centers_solve_the_square_system(case, reg_lambda, weighted, kind):
    """(K + lambda W diag(1/w)) a = y, with a backward error of rounding size for every lambda, and H = lambda y'a."""
    p = make_problem(m=20, T=3, weighted=weighted)
    objective = Objective(_rows(kind, p), None, case.kernel, reg_lambda)
    P = oracles.project(p.X, p.B)
    A = oracles.gram(case.value, P, P) + reg_lambda * p.weights.sum() * np.diag(1.0 / p.weights)
    reduced = objective.reduced(p.B)
    for alpha in (np.asarray(objective.solve_alpha(p.B)), np.asarray(reduced.alpha)):
        residual = np.linalg.norm(A @ alpha - p.Y, axis=0)
        assert np.all(residual <= 1e-13 * np.linalg.norm(A) * np.linalg.norm(alpha, axis=0))
    expected = reg_lambda * np.sum(p.Y * np.linalg.solve(A, p.Y))
    assert reduced.value == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("reg_lambda", [0.05, 30.0])
@pytest.mark.parametrize("gamma", [0.02, 3.0])
def test_the_ridge_is_a_rounding_unit_of_the_largest_possible_eigenvalue(gamma, reg_lambda):
    """A = K'WK/W + lambda K_cc has entries of at most kappa^2 + lambda kappa, so eigenvalues of at most c times it."""
    p = make_problem(c=7)
    kernel = Polynomial(degree=2, coef0=0.5, gamma=gamma)
    inner = Objective(InMemoryRows(p.X, p.y), p.centers, kernel, reg_lambda).inner(p.B)
    kappa = max(float(kernel(c[None], c[None])[0, 0]) for c in p.centers @ p.B.T)
    assert inner.ridge == pytest.approx(EPS * 7 * (kappa**2 + reg_lambda * kappa), rel=1e-12)


def test_the_reduced_value_counts_the_ridge_of_its_minimiser():
    """Value and gradient belong together: the value is above L at the minimiser by the ridge, and its slope is right.

    A kernel so wide that most eigenvalues of K_cc are below rounding: the ridge is 4e-7 of the value.
    """
    rng = np.random.default_rng(3)
    X = rng.uniform(-1.0, 1.0, size=(60, 3))
    y = np.sin(4.0 * X @ np.array([0.7, 0.5, -0.3]))
    objective, B = Objective(InMemoryRows(X, y), X[:40], Gaussian(gamma=0.5), 1e-6), rng.normal(size=(2, 3)) / 2.0
    reduced = objective.reduced(B)
    assert reduced.value > objective.value(B, reduced.alpha) * (1.0 + 1e-8)
    direction = unit_direction(rng, B.shape)
    slope = central_difference(lambda at: objective.reduced(at).value, B, direction, step=1e-4)
    assert slope == pytest.approx(float(np.sum(reduced.grad * direction)), abs=1e-3 * np.linalg.norm(reduced.grad))


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_what_is_whitened_depends_on_lambda_over_kappa(scale):
    """Scaling the kernel, and lambda with it, is another way to write the same problem, and as accurate.

    Degree 1 without a constant is ridge regression on the columns, which are solved for by their singular values. The
    normal equations lose all but three digits of its minimum here. Lambda itself is far above 1e-4 for scale 1e4.
    """
    rng, reg_lambda = np.random.default_rng(5), 1e-7
    X = rng.normal(size=(200, 6)) * np.logspace(0, -2, 6)
    y = X @ np.logspace(0, 2, 6)
    kernel = Polynomial(degree=1, coef0=0.0, gamma=scale)
    reduced = Objective(InMemoryRows(X, y), X[:30], kernel, reg_lambda * scale).reduced(np.eye(6))
    U, sigma, _ = np.linalg.svd(X, full_matrices=False)
    fitted = U @ ((U.T @ y) * sigma**2 / (sigma**2 + reg_lambda * len(X)))
    assert reduced.value == pytest.approx(float(y @ (y - fitted)) / len(X), rel=1e-7)
