"""Tests of details of the objective: changes along a step, all rows as centers, and the ridge of the linear systems."""

import dataclasses

import numpy as np
import pytest

import hkrr.objective
from hkrr._base.linear_algebra import EPS
from hkrr.kernels import KERNELS, Gaussian, Polynomial
from hkrr.objective import Objective
from hkrr.rows import InMemoryRows
from support import oracles
from support.random_problems import ONE_GAMMA, case_id, central_difference, make_problem, unit_direction

FEW = [case for case in ONE_GAMMA if case.name in ("gaussian", "product_laplace")]
LAMBDA = 0.05


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("case", FEW, ids=case_id)
def test_change_is_the_difference_of_two_values(case, weighted):
    p = make_problem(T=3, weighted=weighted)
    objective = Objective(InMemoryRows(p.X, p.y, p.w), p.centers, case.kernel, LAMBDA)
    inner = objective.inner(p.B)
    step = 0.3 * np.random.default_rng(1).normal(size=p.alpha.shape)
    expected = objective.value(p.B, p.alpha + step) - objective.value(p.B, p.alpha)
    assert inner.change(inner.grad(p.alpha), step) == pytest.approx(expected, rel=1e-10)
    # For a tiny step, a difference of values would lose all digits. The change must equal its first-order term.
    tiny = 1e-12 * step
    slope = float(np.sum(tiny * inner.grad(p.alpha)))
    assert inner.change(inner.grad(p.alpha), tiny) == pytest.approx(slope, rel=1e-9, abs=0.0)


def _rows(kind, p):
    """Return the rows as NumPy arrays on one thread, as NumPy blocks on two threads, or as torch tensors."""
    if kind == "torch":
        pytest.importorskip("torch")
        from hkrr.rows.torch_device import TorchRows

        return TorchRows(p.X, p.y, p.w, device="cpu", block_size=7)
    options = {"block_size": 7, "n_threads": 2} if kind == "two threads" else {"block_size": "auto"}
    return InMemoryRows(p.X, p.y, p.w, **options)


@pytest.mark.parametrize("kind", ["one thread", "two threads", "torch"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("reg_lambda", [LAMBDA, 1e-9])
@pytest.mark.parametrize("case", FEW, ids=case_id)
def test_all_rows_as_centers_solve_the_square_system(case, reg_lambda, weighted, kind):
    """Test that with all rows as centers, the minimizer a solves (K + lambda W diag(1/w)) a = y up to rounding errors.

    w are the weights, and W is their sum. The minimum of the objective is then lambda y'a.
    """
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
    """Test that the ridge is eps times an upper bound on the eigenvalues of A = K'wK/W + lambda K_cc.

    K is the kernel matrix of rows and centers, K_cc that of the centers, w the diagonal matrix of the weights, and W
    their sum. Let kappa be the maximum of k(c, c) over the centers. The entries of A are at most
    kappa^2 + lambda kappa. The eigenvalues are at most this number times the number of centers.
    """
    p = make_problem(c=7)
    kernel = Polynomial(degree=2, coef0=0.5, gamma=gamma)
    objective = Objective(InMemoryRows(p.X, p.y), p.centers, kernel, reg_lambda)
    ridge = objective._ridge(objective._kappa(p.centers @ p.B.T))
    kappa = max(float(kernel(c[None], c[None])[0, 0]) for c in p.centers @ p.B.T)
    assert ridge == pytest.approx(EPS * 7 * (kappa**2 + reg_lambda * kappa), rel=1e-12, abs=0.0)


def test_the_reduced_value_includes_the_ridge():
    """Test that the reduced value is larger than L at the minimizer, and that its derivative matches the gradient.

    The difference is the ridge term, 4e-7 of the value. The kernel is so wide that most eigenvalues of K_cc, the kernel
    matrix of the centers, are smaller than rounding errors.
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
def test_whitening_depends_on_lambda_over_kappa(scale):
    """Test that the accuracy stays the same if the kernel and lambda are scaled by the same factor.

    The system must be whitened if lambda / kappa is below 1e-4, where kappa is the maximum of k(c, c) over the centers.
    Both scales have the same lambda / kappa, below this limit. For the scale 1e4, lambda itself (1e-3) is above the
    limit, so a test of lambda alone would not whiten the system. Without whitening, the normal equations would keep
    only three digits of the minimum. A polynomial kernel of degree 1 without a constant gives ridge regression on the
    columns, so the expected minimum is computed by a singular value decomposition.
    """
    rng, reg_lambda = np.random.default_rng(5), 1e-7
    X = rng.normal(size=(200, 6)) * np.logspace(0, -2, 6)
    y = X @ np.logspace(0, 2, 6)
    kernel = Polynomial(degree=1, coef0=0.0, gamma=scale)
    reduced = Objective(InMemoryRows(X, y), X[:30], kernel, reg_lambda * scale).reduced(np.eye(6))
    U, sigma, _ = np.linalg.svd(X, full_matrices=False)
    fitted = U @ ((U.T @ y) * sigma**2 / (sigma**2 + reg_lambda * len(X)))
    assert reduced.value == pytest.approx(float(y @ (y - fitted)) / len(X), rel=1e-7)


@pytest.mark.parametrize("path", ["exact", "normal equations", "whitened"])
@pytest.mark.parametrize("weighted", [False, True])
def test_details_of_a_solve_describe_its_linear_system(weighted, path):
    """Test that the fields of `SolveInfo` describe the linear system that was solved.

    The three systems ("exact", "normal equations" and "whitened") are those in the docstrings of `Objective`.
    """
    p = make_problem(m=20, T=2, weighted=weighted)
    # The kernel is 3 on the diagonal, so that a missing factor kappa is noticed.
    kernel, kappa = Polynomial(degree=1, coef0=3.0, gamma=1e-6), 3.0
    reg_lambda = 1e-5 if path == "whitened" else LAMBDA
    W, w = p.weights.sum(), p.weights
    C = p.X if path == "exact" else p.centers
    K, K_cc = (3.0 + 1e-6 * oracles.project(points, p.B) @ oracles.project(C, p.B).T for points in (p.X, C))
    rows = InMemoryRows(p.X, p.y, p.w)
    _, info = Objective(rows, None if path == "exact" else C, kernel, reg_lambda).solve(p.B)
    penalty = info.penalize(np.eye(len(C)))
    lower = np.tril(info.factor)
    if path == "exact":
        A = np.sqrt(np.outer(w, w)) * K + reg_lambda * W * np.eye(len(K))
        np.testing.assert_allclose(penalty, reg_lambda * W * np.eye(len(C)))
        assert not info.whitened
        assert info.jitter == 0.0
        Y = np.sqrt(w)[:, None] * p.y
        solution = np.linalg.solve(A, Y)
        bound = np.linalg.norm(A, 1) * np.linalg.norm(solution) / np.linalg.norm(Y)
        assert info.condition_bound == pytest.approx(bound, rel=1e-9)
    elif path == "normal equations":
        A = (K.T * w) @ K / W + reg_lambda * K_cc
        np.testing.assert_allclose(penalty, reg_lambda * K_cc, rtol=1e-12)
        assert info.condition_bound == pytest.approx((kappa / reg_lambda + 1.0) ** 2, rel=1e-5)
        assert not info.whitened
        # The jitter includes the ridge that the objective adds and the amount that the factorization adds.
        assert EPS * len(C) <= info.jitter <= 1e-10
    else:
        added = info.jitter * kappa
        T = np.linalg.cholesky(K_cc + added * np.eye(len(C)))
        V = np.linalg.solve(T, K.T)
        A = (V * w) @ V.T / W + reg_lambda * np.eye(len(C))
        np.testing.assert_array_equal(penalty, reg_lambda * np.eye(len(C)))
        assert info.whitened
        assert info.jitter == pytest.approx(10.0 * EPS * len(C), rel=0.05, abs=0.0)
    np.testing.assert_allclose(lower @ lower.T, A, atol=1e-6 * np.max(A))
    assert info.norm == pytest.approx(np.linalg.norm(A, 1), rel=1e-2)


@pytest.mark.parametrize(("reg_lambda", "own"), [(LAMBDA, EPS), (1e-6, 10.0 * EPS)])
def test_the_jitter_is_the_sum_of_all_jitters(monkeypatch, reg_lambda, own):
    """Test that the jitter includes the jitter that the factorization of the system needed.

    `own` is the relative jitter, for each center, that the objective adds itself.
    """
    solve = hkrr.objective.solve_positive_definite

    def with_jitter(*args, **options):
        x, jitter, info = solve(*args, **options)
        return x, jitter, dataclasses.replace(info, jitter=0.25)

    monkeypatch.setattr(hkrr.objective, "solve_positive_definite", with_jitter)
    p = make_problem(m=20)
    _, info = Objective(InMemoryRows(p.X, p.y), p.centers, Gaussian(gamma=1.0), reg_lambda).solve(p.B)
    assert info.jitter - 0.25 == pytest.approx(own * len(p.centers), rel=0.3, abs=0.0)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_loss_at_zero_is_the_mean_square_of_the_targets(weighted):
    p = make_problem(m=20, T=2, weighted=weighted)
    objective = Objective(InMemoryRows(p.X, p.y, p.w), p.centers, Gaussian(gamma=1.0), LAMBDA)
    expected = np.sum(p.weights[:, None] * p.Y**2) / p.weights.sum()
    assert objective.loss_at_zero == pytest.approx(expected)
    assert objective.inner(p.B).constant == objective.loss_at_zero


def test_the_bound_limits_the_effect_of_rounding_errors_on_the_fitted_values():
    """Test that `condition_bound` limits the effect of rounding errors on a fit with a kernel matrix of low rank.

    The target has no noise. The condition number of the system is above 1e10, and the bound is more than a thousand
    times smaller. Random errors in the matrix, of the relative size 1e-13, change the fitted values by no more than the
    bound allows.
    """
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    y, B, nu = X @ [[1.0], [-2.0], [0.5]], np.eye(3), 1e-9
    _, info = Objective(InMemoryRows(X, y), None, Polynomial(degree=1, coef0=0.0), nu / 40).solve(B)
    A = X @ X.T + nu * np.eye(40)
    assert np.linalg.cond(A) > 1e10
    fitted, size = y - nu * np.linalg.solve(A, y), 1e-13
    for _ in range(20):
        E = rng.normal(size=A.shape)
        E = (E + E.T) * (size * np.linalg.norm(A, 2) / np.linalg.norm(E + E.T, 2))
        change = np.linalg.norm(y - nu * np.linalg.solve(A + E, y) - fitted)
        assert change <= (2.0 * size * info.condition_bound + 1e-13) * np.linalg.norm(y)
    assert info.condition_bound < 1e-3 * np.linalg.cond(A)


@pytest.mark.parametrize("path", ["exact", "whitened"])
def test_a_tiny_lambda_is_raised_to_the_size_of_the_rounding_errors(monkeypatch, path):
    """Test that the ridge is at least eps n times the largest diagonal entry of the n x n matrix of the system."""
    systems, solve = [], hkrr.objective.solve_positive_definite

    def recorded(A, b, ridge, *args, **options):
        systems.append((A.copy(), ridge))
        return solve(A, b, ridge, *args, **options)

    monkeypatch.setattr(hkrr.objective, "solve_positive_definite", recorded)
    p = make_problem(m=20)
    kernel = Polynomial(degree=1, coef0=3.0)  # the diagonal entries of both systems are not 1
    objective = Objective(InMemoryRows(p.X, p.y), None if path == "exact" else p.centers, kernel, 1e-300)
    objective.solve_alpha(p.B)
    [(A, ridge)] = systems
    assert ridge == pytest.approx(EPS * len(A) * np.max(A.diagonal()), rel=1e-12, abs=0.0)
    assert not np.isclose(np.max(A.diagonal()), 1.0, rtol=0.1)


def test_the_jitter_of_whitening_is_proportional_to_the_kernel(monkeypatch):
    """Test that the jitter is 10 eps times the number of centers times kappa, where kappa is the maximum of k(c, c)."""
    jitters, factorize = [], hkrr.objective.jittered_cholesky

    def recorded(K, jitter):
        jitters.append(jitter)
        return factorize(K, jitter)

    monkeypatch.setattr(hkrr.objective, "jittered_cholesky", recorded)
    p = make_problem(m=20)
    kernel = Polynomial(degree=1, coef0=3.0, gamma=1e-6)  # kappa is 3
    Objective(InMemoryRows(p.X, p.y), p.centers, kernel, 1e-6).solve_alpha(p.B)
    assert jitters == [pytest.approx(30.0 * EPS * len(p.centers), rel=1e-4, abs=0.0)]


@pytest.mark.parametrize("size", [0.0, 0.01])
def test_the_bound_on_rounding_errors_for_small_targets(size):
    """Test that `condition_bound` does not depend on the size of the targets, and is infinite if they are zero."""
    p, bounds = make_problem(m=20), []
    for factor in (1.0, size):
        y = p.y / np.linalg.norm(p.y) * factor
        _, info = Objective(InMemoryRows(p.X, y), None, Gaussian(gamma=0.5), LAMBDA).solve(p.B)
        bounds.append(info.condition_bound)
    assert bounds[1] == (pytest.approx(bounds[0], rel=1e-9) if size else np.inf)


def test_a_kernel_matrix_of_zeros_gives_zero_coefficients():
    """Test the linear kernel on inputs that are all zero, with one center."""
    rows = InMemoryRows(np.zeros((2, 1)), np.array([0.6, 0.1]))
    alpha, info = Objective(rows, np.zeros((1, 1)), KERNELS["linear"], 0.1).solve(np.ones((1, 1)))
    np.testing.assert_array_equal(alpha, [[0.0]])
    assert info.jitter == pytest.approx(EPS)
