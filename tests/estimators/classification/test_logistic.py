"""Tests of kernel logistic regression against a naive implementation, finite differences and repeated rows."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import check_grad, minimize

from hkrr import kernels
from hkrr.estimators.classification import logistic_objective, logistic_solver
from hkrr.estimators.classification.logistic_objective import Coefficients, LogisticObjective
from hkrr.estimators.classification.logistic_path import NUS, Map, independent_points, refined_maps
from hkrr.estimators.classification.logistic_solver import class_probabilities, losses
from hkrr.rows import InMemoryRows

classes = pytest.mark.parametrize("K", [2, 3])


def problem(K, n=30, D=4, seed=0):
    """Return n rows with K classes: the inputs, coded labels, weights, centers, a map, and the class of each row."""
    rng = np.random.default_rng([seed, K])
    X, B, w = rng.normal(size=(n, D)), rng.normal(size=(2, D)) / 2, rng.uniform(0.5, 2.0, n)
    index = (X[:, 0] + 0.5 * rng.normal(size=n) > 0).astype(int) + (K == 3) * (X[:, 1] > 0.3)
    Y = np.eye(K)[index]
    return X, Y[:, 1:] if K == 2 else Y, w, X[:7], B, index


def matrix(kernel, P, C):
    """Return the kernel matrix of the points P and C, computed entry by entry."""
    return np.array([[kernel(p[None], c[None])[0, 0] for c in C] for p in P])


def naive(K, K_cc, index, w, nu, alpha, b):
    """Return the objective of the coefficients alpha and the intercepts b, computed row by row from its definition.

    K is the kernel matrix of rows and centers, K_cc that of the centers, and index contains the class of each row.
    """
    value = 0.0
    for row, k, weight in zip(K, index, w, strict=True):
        scores = row @ alpha + b
        scores = np.array([0.0, scores[0]]) if len(scores) == 1 else scores
        value -= weight * (scores[k] - np.log(np.sum(np.exp(scores))))
    return (value + nu / 2 * np.sum(alpha * (K_cc @ alpha)) + b @ b / 200) / np.sum(w)


@classes
@pytest.mark.parametrize("how", ["in blocks", "lbfgs", "newton"])
def test_minimizer_of_the_naive_objective(K, how, monkeypatch):
    monkeypatch.setattr(logistic_objective, "_MAX_STORED_ENTRIES", 0 if how == "in blocks" else 10_000)
    monkeypatch.setattr(logistic_solver, "_MAX_NEWTON_UNKNOWNS", 0 if how == "lbfgs" else 600)
    X, Y, w, centers, B, index = problem(K)
    kernel, nu, T = kernels.Matern(nu=1.5, gamma=0.5), 0.3, Y.shape[1]
    objective = LogisticObjective(InMemoryRows(X, Y, w, block_size=11), centers, kernel)

    C = centers @ B.T
    of_rows, of_centers = matrix(kernel, X @ B.T, C), matrix(kernel, C, C) + 1e-8 * np.eye(len(C))

    def explicit(theta):
        return naive(of_rows, of_centers, index, w, nu, theta[:-T].reshape(-1, T), theta[-T:])

    found = objective.solve(B, nu)
    theta = np.concatenate([found.alpha.ravel(), found.intercept])
    value, by_alpha, by_b = objective.value_and_gradient(B, found, nu)
    assert_allclose(value, explicit(theta), rtol=1e-12)
    assert_allclose(np.concatenate([by_alpha.ravel(), by_b]), 0.0, atol=1e-6)
    oracle = minimize(explicit, np.zeros(len(theta)), method="BFGS", options={"gtol": 1e-6})
    assert value <= oracle.fun + 1e-9
    assert_allclose(theta, oracle.x, atol=2e-3)
    # Warm starts, good and bad, lead to the same minimizer.
    scores = of_rows @ found.alpha + found.intercept
    for initial in (scores, scores + 1.0, -3.0 * scores, np.full_like(scores, 800.0)):
        again = objective.solve(B, nu, initial)
        assert_allclose(again.alpha, found.alpha, atol=1e-5)
        if how != "in blocks":
            assert_allclose(again.scores, scores, atol=1e-6)


@classes
@pytest.mark.parametrize("kernel", ["gaussian", "product_matern32", "polynomial"])
def test_gradients_against_finite_differences(K, kernel):
    X, Y, w, centers, B, _ = problem(K)
    objective = LogisticObjective(InMemoryRows(X, Y, w, block_size=11), centers, kernels.get_kernel(kernel))
    rng = np.random.default_rng(1)
    T = Y.shape[1]
    at = Coefficients(rng.normal(size=(len(centers), T)), rng.normal(size=T))
    direction = rng.normal(size=B.shape)

    def along(t):
        return objective.value_and_gradient_in_map(B + t[0] * direction, at, 0.2)[0]

    def slope(t):
        return [np.vdot(objective.value_and_gradient_in_map(B + t[0] * direction, at, 0.2)[1], direction)]

    assert check_grad(along, slope, [0.0]) < 1e-6 * (1.0 + abs(slope([0.0])[0]))
    value, by_alpha, by_b = objective.value_and_gradient(B, at, 0.2)
    assert_allclose(value, along([0.0]), rtol=1e-12)
    step = rng.normal(size=at.alpha.shape)
    moved = [
        objective.value_and_gradient(B, Coefficients(at.alpha + h * step, at.intercept + h), 0.2)[0]
        for h in (1e-5, -1e-5)
    ]
    assert_allclose((moved[0] - moved[1]) / 2e-5, np.vdot(by_alpha, step) + np.sum(by_b), rtol=1e-6)


@classes
def test_integer_weights_equal_repeated_rows(K):
    X, Y, _, centers, B, _ = problem(K)
    times = np.arange(len(X)) % 3 + 1
    once = LogisticObjective(InMemoryRows(X, Y, times.astype(float)), centers, kernels.Gaussian(gamma=0.5))
    rows = InMemoryRows(np.repeat(X, times, axis=0), np.repeat(Y, times, axis=0))
    repeated = LogisticObjective(rows, centers, kernels.Gaussian(gamma=0.5))
    assert_allclose(once.solve(B, 0.1).alpha, repeated.solve(B, 0.1).alpha, rtol=1e-5, atol=1e-7)


@classes
def test_warm_starts_save_steps(K, monkeypatch):
    """A solve that starts from the scores at a similar map needs fewer linear systems than a solve from zero."""
    X, Y, w, centers, B, _ = problem(K)
    objective = LogisticObjective(InMemoryRows(X, Y, w), centers, kernels.Gaussian(gamma=0.5))
    initial = objective.solve(B, 0.1).scores
    solve, systems = logistic_solver._System._solve_newton_system, []
    monkeypatch.setattr(logistic_solver._System, "_solve_newton_system", lambda *a: systems.append(1) or solve(*a))
    objective.solve(1.01 * B, 0.1, tol=1e-5)
    from_zero = len(systems)
    objective.solve(1.01 * B, 0.1, initial, tol=1e-5)
    assert len(systems) - from_zero < from_zero


def test_independent_points_span_all_kernels():
    X = np.random.default_rng(0).normal(size=(200, 3))
    at = Map.of(np.array([[0.3, 0.4, 0.0]]), kernels.Gaussian(gamma=1.0), np.ones(3), "full")
    chosen = independent_points(X, at)
    assert len(chosen) < 30
    P, C = X @ at.B.T, chosen @ at.B.T
    K, K_cc = at.kernel(P, C), at.kernel(C, C)
    assert_allclose(K @ np.linalg.solve(K_cc, K.T), at.kernel(P, P), atol=1e-5)
    assert np.linalg.cond(K_cc) < 1e9
    # With a narrow kernel, the kernel functions are nearly orthogonal, so almost all points are kept.
    rough = Map.of(20.0 * np.eye(3), kernels.Gaussian(gamma=1.0), np.ones(3), "full")
    assert len(independent_points(X, rough)) > 190


@classes
def test_scores_of_separable_data_are_finite(K):
    X = np.linspace(-3, 3, 40)[:, None]
    index = np.digitize(X[:, 0], np.linspace(-3, 3, K + 1)[1:-1])
    Y = np.eye(K)[index][:, 1:] if K == 2 else np.eye(K)[index]
    objective = LogisticObjective(InMemoryRows(X, Y), X, kernels.Gaussian(gamma=1.0))
    found = objective.solve(np.eye(1), 1e-3)
    F = objective.kernel(X, X) @ found.alpha + found.intercept
    assert np.all(np.isfinite(found.alpha))
    assert 1e-4 < np.max(losses(F, Y)) < 0.4
    assert np.min(class_probabilities(F)) > 0


@pytest.mark.parametrize("shape", ["full", "diagonal", "identity"])
def test_path_lowers_the_objective_and_keeps_the_shape(shape):
    X, Y, w, *_ = problem(2, n=60)
    rows = InMemoryRows(X, Y, w)
    B = np.random.default_rng(0).normal(size=(2, 4)) if shape == "full" else np.eye(4)
    begin = Map.of(B, kernels.Gaussian(gamma=0.3), np.ones(4), shape)
    assert_allclose(begin.B, np.sqrt(0.3) * B)
    found = list(refined_maps(rows, begin))
    assert [nu for nu, *_ in found] == list(NUS)
    before = begin.B
    for nu, at, objective, coefficients in found:
        start = objective.value_and_gradient(before, objective.solve(before, nu), nu)[0]
        end = objective.value_and_gradient(at.B, coefficients, nu)[0]
        assert end <= start + 1e-8
        before = at.B
    assert end < start + 1e-8
    off_diagonal = before - np.diag(before.diagonal()) if shape != "full" else 0.0
    assert_allclose(off_diagonal, 0.0)
    if shape == "identity":
        assert_allclose(before, before[0, 0] * np.eye(4))
    assert not np.allclose(before, begin.B, rtol=1e-3)
