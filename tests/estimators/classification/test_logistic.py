"""Tests of kernel logistic regression against a naive implementation, finite differences and repeated rows.

The refinement of a map by the logistic loss is tested too.
"""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import check_grad, minimize

from hkrr import HyperKernelRidgeCV, kernels
from hkrr.datasets import make_mim_classes
from hkrr.estimators.classification import logistic_refinement, logistic_solver
from hkrr.estimators.classification.labels import held_out_folds
from hkrr.estimators.classification.logistic_objective import Coefficients, LogisticObjective
from hkrr.estimators.classification.logistic_path import NUS, Map, independent_points, refined_maps
from hkrr.estimators.classification.logistic_refinement import RefinementProblem, _Path, refine
from hkrr.estimators.classification.logistic_solver import class_probabilities, losses
from hkrr.estimators.fitted.diagnostics import fit_warnings_silenced
from hkrr.rows import InMemoryRows
from support.quick_search import make_quick

# The regressions on noisy labels cause warnings.
pytestmark = pytest.mark.filterwarnings("ignore::hkrr.HKRRWarning")
classes = pytest.mark.parametrize("K", [2, 3])


def labelled_rows(K, n=30, D=4, seed=0):
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
@pytest.mark.parametrize("how", ["lbfgs", "newton"])
def test_minimizer_of_the_naive_objective(K, how, monkeypatch):
    monkeypatch.setattr(logistic_solver, "_MAX_NEWTON_UNKNOWNS", 0 if how == "lbfgs" else 600)
    X, Y, w, centers, B, index = labelled_rows(K)
    kernel, nu, T = kernels.Matern(nu=1.5, gamma=0.5), 0.3, Y.shape[1]
    objective = LogisticObjective(InMemoryRows(X, Y, w, block_size=11), centers, kernel)

    C = centers @ B.T
    of_rows, of_centers = matrix(kernel, X @ B.T, C), matrix(kernel, C, C) + 1e-8 * np.eye(len(C))

    def explicit(theta):
        return naive(of_rows, of_centers, index, w, nu, theta[:-T].reshape(-1, T), theta[-T:])

    found = objective.solve(B, nu)
    theta = np.concatenate([found.alpha.ravel(), found.intercept])
    value, _ = objective.value_and_gradient_in_map(B, found, nu)
    assert_allclose(value, explicit(theta), rtol=1e-12)
    oracle = minimize(explicit, np.zeros(len(theta)), method="BFGS", options={"gtol": 1e-6})
    assert value <= oracle.fun + 1e-9
    assert_allclose(theta, oracle.x, atol=2e-3)
    # Warm starts, good and bad, lead to the same minimizer.
    scores = of_rows @ found.alpha + found.intercept
    for initial in (scores, scores + 1.0, -3.0 * scores, np.full_like(scores, 800.0)):
        again = objective.solve(B, nu, initial)
        assert_allclose(again.alpha, found.alpha, atol=1e-5)
        assert_allclose(again.scores, scores, atol=1e-6)


@classes
@pytest.mark.parametrize("kernel", ["gaussian", "product_matern32", "polynomial"])
def test_gradients_against_finite_differences(K, kernel):
    X, Y, w, centers, B, _ = labelled_rows(K)
    objective = LogisticObjective(InMemoryRows(X, Y, w, block_size=11), centers, kernels.get_kernel(kernel))
    rng = np.random.default_rng(1)
    T = Y.shape[1]
    at = Coefficients(rng.normal(size=(len(centers), T)), rng.normal(size=T), np.empty((0, T)))
    direction = rng.normal(size=B.shape)

    def along(t):
        return objective.value_and_gradient_in_map(B + t[0] * direction, at, 0.2)[0]

    def slope(t):
        return [np.vdot(objective.value_and_gradient_in_map(B + t[0] * direction, at, 0.2)[1], direction)]

    assert check_grad(along, slope, [0.0]) < 1e-6 * (1.0 + abs(slope([0.0])[0]))


@classes
def test_integer_weights_equal_repeated_rows(K):
    X, Y, _, centers, B, _ = labelled_rows(K)
    times = np.arange(len(X)) % 3 + 1
    once = LogisticObjective(InMemoryRows(X, Y, times.astype(float)), centers, kernels.Gaussian(gamma=0.5))
    rows = InMemoryRows(np.repeat(X, times, axis=0), np.repeat(Y, times, axis=0))
    repeated = LogisticObjective(rows, centers, kernels.Gaussian(gamma=0.5))
    assert_allclose(once.solve(B, 0.1).alpha, repeated.solve(B, 0.1).alpha, rtol=1e-5, atol=1e-7)


@classes
def test_warm_starts_save_steps(K, monkeypatch):
    """A solve that starts from the scores at a similar map needs fewer linear systems than a solve from zero."""
    X, Y, w, centers, B, _ = labelled_rows(K)
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
    at = Map.of(np.array([[0.3, 0.4, 0.0]]), kernels.Gaussian(gamma=1.0), np.ones(3))
    chosen = independent_points(X, at)
    assert len(chosen) < 30
    P, C = X @ at.B.T, chosen @ at.B.T
    K, K_cc = at.kernel(P, C), at.kernel(C, C)
    assert_allclose(K @ np.linalg.solve(K_cc, K.T), at.kernel(P, P), atol=1e-5)
    assert np.linalg.cond(K_cc) < 1e9
    # With a narrow kernel, the kernel functions are nearly orthogonal, so almost all points are kept.
    rough = Map.of(20.0 * np.eye(3), kernels.Gaussian(gamma=1.0), np.ones(3))
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


def test_path_lowers_the_objective():
    X, Y, w, *_ = labelled_rows(2, n=60)
    rows = InMemoryRows(X, Y, w)
    scales = np.array([1.0, 2.0, 0.5, 1.0])
    begin = Map.of(np.random.default_rng(0).normal(size=(2, 4)) / scales, kernels.Gaussian(gamma=0.3), scales)
    assert_allclose(begin.B, np.sqrt(0.3) * np.random.default_rng(0).normal(size=(2, 4)))
    assert begin.kernel.scale == 1.0
    found = list(refined_maps(rows, begin, np.inf))
    assert [nu for nu, *_ in found] == list(NUS)
    before = begin.B
    for nu, at, objective, coefficients in found:
        start = objective.value_and_gradient_in_map(before, objective.solve(before, nu), nu)[0]
        end = objective.value_and_gradient_in_map(at.B, coefficients, nu)[0]
        assert end <= start + 1e-8
        before = at.B
    assert not np.allclose(before, begin.B, rtol=1e-3)


def test_path_after_the_deadline():
    """Test that at most one iteration is made for each nu after the deadline."""
    X, Y, w, *_ = labelled_rows(2, n=60)
    begin = Map.of(np.random.default_rng(0).normal(size=(1, 4)), kernels.Gaussian(gamma=0.3), np.ones(4))
    late, whole = (next(refined_maps(InMemoryRows(X, Y, w), begin, deadline)) for deadline in (0.0, np.inf))
    assert late[0] == whole[0] == NUS[0]
    values = [objective.value_and_gradient_in_map(at.B, found, nu)[0] for nu, at, objective, found in (late, whole)]
    assert values[1] < values[0]


# ------------------------------------------------------------------------------------ refinement of a regression


def planted(K, n=60, D=4, seed=0):
    """Return X and the indices of K classes that depend on one direction, and a regression on their indicators."""
    data = make_mim_classes(n, D, 1, K, random_state=seed)
    with pytest.MonkeyPatch.context() as patch:
        make_quick(patch)
        model = HyperKernelRidgeCV(1, kernel="gaussian", n_init=1, n_jobs=1, random_state=0)
        return data.X, data.y, model.fit(data.X, np.eye(K)[data.y])


@pytest.fixture(scope="module", params=[2, 3], ids=["2 classes", "3 classes"])
def refined(request):
    """Return a problem, the log loss of each nu on held-out rows, and the refined model with its link."""
    K = request.param
    X, y, model = planted(K)
    problem, seen = RefinementProblem(model, X, y, np.linspace(0.5, 1.5, 60), K), []
    with pytest.MonkeyPatch.context() as patch:
        make_quick(patch)
        advance = logistic_refinement._Path.advance

        def recorded(path):
            found = advance(path)
            if found:
                seen.append((path.nu, path.loss, path.weight))
            return found

        patch.setattr(logistic_refinement._Path, "advance", recorded)
        return problem, seen, refine(problem)


def test_a_refined_model_minimizes_the_penalized_log_loss(refined):
    """Test that the scores of the model, at its own map, are those of the nu with the smallest held-out loss."""
    problem, seen, (model, _) = refined
    held_out = [one for one in seen if one[2] > 0.0]
    nus = sorted({nu for nu, *_ in held_out}, reverse=True)
    losses_of_nus = [sum(loss for at, loss, _ in held_out if at == nu) for nu in nus]
    nu = nus[int(np.argmin(losses_of_nus))]
    assert nus == list(NUS[: len(nus)])
    K = problem.n_classes
    mean = np.average(problem.X, axis=0, weights=problem.weight)
    scale = np.sqrt(np.average((problem.X - mean) ** 2, axis=0, weights=problem.weight))
    Z, Y = (problem.X - mean) / scale, np.eye(K)[problem.index]
    B = np.sqrt(model.gamma_) * model.components_ * scale
    objective = LogisticObjective(
        InMemoryRows(Z, Y[:, 1:] if K == 2 else Y, problem.weight), Z, model.kernel_.with_gamma(1.0)
    )
    found = objective.solve(B, nu)
    expected = objective.kernel(Z @ B.T, Z @ B.T) @ found.alpha + found.intercept
    scores = model.predict(problem.X)
    assert scores.shape == (60, K)
    if K == 2:
        assert_allclose(scores[:, 0], -scores[:, 1])
        scores = scores[:, 1:] - scores[:, :1]
    assert_allclose(scores, expected, atol=1e-3)


def test_a_refined_model_is_a_copy_of_the_regression(refined):
    problem, _, (model, _) = refined
    assert model is not problem.regressor
    assert (model.truncate, problem.regressor.truncate) == (False, True)
    assert model.n_components_ == 1
    assert model.map_.shape == (1, 4)
    assert_allclose(model.singular_values_, [1.0])
    assert not np.allclose(model.map_, problem.regressor.map_, rtol=1e-3)
    assert_array_equal(model.transform(problem.X), problem.X @ model.map_.T)
    assert model.result_.reason == problem.regressor.result_.reason


def test_the_link_of_a_refined_model(refined):
    """Test that the link is fitted to the scores of held-out rows, so that its weight is near 1."""
    problem, seen, (model, found) = refined
    assert not found.link.of_logarithms
    assert found.price == 0.0
    assert 0.3 < found.link.weights[0] < 3.0
    # The log loss after the fit of the link is at most that of the scores themselves.
    held_out = [one for one in seen if one[2] > 0.0]
    best = min(sum(loss for at, loss, _ in held_out if at == nu) for nu, *_ in held_out)
    assert found.log_loss <= best / np.sum(problem.weight) + 5e-3
    p = found.link.probabilities([model.predict(problem.X)])
    assert np.mean(np.argmax(p, axis=1) == problem.index) > 0.8


def test_the_scores_of_held_out_rows_do_not_use_their_labels():
    X, y, model = planted(3)
    (part, *_) = held_out_folds(y)
    scores = []
    for index in (y, np.where(part, (y + 1) % 3, y)):
        problem = RefinementProblem(model, X, index, None, 3)
        path = _Path(problem, model, ~part, part)
        assert path.advance()
        scores.append(path.function(path.nu)[0].of_rows(path.held_out_rows))
        loss = path.loss
    assert_array_equal(scores[0], scores[1])
    assert_allclose(loss, np.sum(losses(scores[1], np.eye(3)[(y[part] + 1) % 3])), rtol=1e-2)


@pytest.mark.parametrize(("n", "rows_per_entry", "again"), [(60, 30, True), (60, 15, False), (39, 30, False)])
def test_with_few_rows_the_regression_is_repeated_without_the_held_out_rows(n, rows_per_entry, again, monkeypatch):
    """Test that it is repeated with 40 rows or more, but fewer than 30 rows for each of the 4 entries of the map."""
    make_quick(monkeypatch)
    monkeypatch.setattr(logistic_refinement, "_ROWS_PER_PARAMETER", rows_per_entry)
    X, y, model = planted(2, n)
    problem, (part, *_) = RefinementProblem(model, X, y, None, 2), held_out_folds(y)
    found = problem.regressor_without(part)
    assert (found is not model) == again
    assert replace(problem, deadline=0.0).regressor_without(part) is model
    if again:
        assert len(found.centers_) == np.count_nonzero(~part)
        assert found.map_.shape == model.map_.shape
        assert found.kernel_.with_gamma(1.0) == model.kernel_.with_gamma(1.0)


def test_a_refinement_that_fails_returns_none(monkeypatch):
    make_quick(monkeypatch)
    X, y, model = planted(2)
    monkeypatch.setattr(logistic_refinement, "refined_maps", lambda *_: iter(()))
    assert refine(RefinementProblem(model, X, y, None, 2)) is None


def test_a_refinement_after_the_deadline_makes_a_single_step(monkeypatch):
    make_quick(monkeypatch)
    X, y, model = planted(2)
    found, link = refine(RefinementProblem(model, X, y, None, 2, deadline=0.0))
    assert np.all(np.isfinite(found.predict(X)))
    assert np.isfinite(link.log_loss)


def test_a_class_with_one_row_and_a_constant_column(monkeypatch):
    make_quick(monkeypatch)
    X, y, _ = planted(2)
    X, y = np.column_stack([X, np.full(60, 7.0)]), np.minimum(y, 0)
    y[3] = 1
    model = HyperKernelRidgeCV(1, kernel="gaussian", n_init=1, n_jobs=1, random_state=0)
    with fit_warnings_silenced():
        model.fit(X, np.eye(2)[y])
    found, link = refine(RefinementProblem(model, X, y, None, 2))
    assert_array_equal(found.map_[:, 4], 0.0)
    p = link.link.probabilities([found.predict(X)])
    assert np.all(np.isfinite(p))
    assert np.mean(p[:, 1]) < 0.2


def test_progress_bars(monkeypatch, capfd):
    make_quick(monkeypatch)
    X, y, model = planted(2)
    problem = RefinementProblem(model, X, y, None, 2, deadline=0.0)
    refine(problem)
    assert capfd.readouterr().err == ""
    refine(replace(problem, verbose=1))
    err = capfd.readouterr().err
    assert "held-out folds: 100%" in err
    assert "held-out log loss" in err
