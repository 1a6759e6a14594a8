"""Tests of `diagnostics_` against their documented definitions, computed from the public attributes of the model."""

import numpy as np
import pytest

from hkrr import HyperKernelRidge, HyperKernelRidgeCV
from hkrr.datasets import make_mim_sines
from hkrr.solvers import VarPro

DATA = make_mim_sines(150, n_features=4, n_components=2, random_state=0)
may_warn = pytest.mark.filterwarnings("ignore::hkrr.exceptions.HKRRWarning")
WEIGHTS = np.random.default_rng(1).uniform(0.5, 2.0, size=150)


def _kernels(model, X):
    """Return the kernel matrix between rows and centers, and the kernel matrix of the centers."""
    B = model.components_
    P, C = (X - model.x_offset_) @ B.T, (model.centers_ - model.x_offset_) @ B.T
    return model.kernel_(P, C), model.kernel_(C, C)


def _untruncated(model, X):
    return _kernels(model, X)[0] @ model.dual_coef_ + model.intercept_


def _effective_dimension(model, X, w):
    """Return the trace of the hat matrix K (K' diag(w) K + lambda sum(w) K_cc)^-1 K' diag(w).

    K and K_cc are the two kernel matrices of `_kernels`, and w are the weights of the rows.
    """
    K, K_cc = _kernels(model, X)
    A = K.T @ (w[:, None] * K) + model.reg_lambda_ * w.sum() * K_cc
    return float(np.trace(K @ np.linalg.solve(A, K.T * w)))


def _system(model, X, w, kind):
    """Return the matrix of the linear system that the fit solves.

    `kind` is "all" (all rows are centers), "normal" (normal equations) or "whitened" (whitened normal equations).
    """
    K, K_cc = _kernels(model, X)
    if kind == "all":
        P, root = (X - model.x_offset_) @ model.components_.T, np.sqrt(w)[:, None]
        # The order of the rows can differ from the order of the centers.
        K = model.kernel_(P, P)
        return root * K * root.T + model.reg_lambda_ * w.sum() * np.eye(len(K))
    A = K.T @ (w[:, None] * K) / w.sum()
    if kind == "normal":
        return A + model.reg_lambda_ * K_cc
    T = np.linalg.cholesky(K_cc)
    return np.linalg.solve(T, np.linalg.solve(T, A).T) + model.reg_lambda_ * np.eye(len(K_cc))


def _explained(y, predicted, w):
    mean = np.average(y, weights=w)
    return 1.0 - np.average((y - predicted) ** 2, weights=w) / np.average((y - mean) ** 2, weights=w)


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weights"])
@pytest.mark.parametrize(
    ("kind", "n_centers", "reg_lambda"), [("all", "all", 1e-3), ("normal", 40, 1e-2), ("whitened", 40, 1e-5)]
)
def test_solve_diagnostics(kind, n_centers, reg_lambda, weighted):
    """Test that the diagnostics agree with their definitions in fits with each of the three linear systems.

    The Laplace kernel is used, because its matrix is well conditioned. LAPACK's estimate of the condition number is a
    lower bound.
    """
    w = WEIGHTS if weighted else np.ones(150)
    model = HyperKernelRidge(
        2, kernel="laplace", n_centers=n_centers, reg_lambda=reg_lambda, n_init=2, max_iter=20, random_state=0
    ).fit(DATA.X, DATA.y, sample_weight=w if weighted else None)
    found = model.diagnostics_
    assert found.effective_dimension == pytest.approx(_effective_dimension(model, DATA.X, w), rel=1e-6)
    condition = np.linalg.cond(_system(model, DATA.X, w, kind), 1)
    assert condition / 3.0 <= found.condition <= condition * (1.0 + 1e-6)
    assert 0.0 <= found.jitter <= 1e-12
    assert found.explained_share == pytest.approx(_explained(DATA.y, _untruncated(model, DATA.X), w), abs=1e-9)
    assert found.truncated_share is None
    assert found.stopped == model.result_.reason


@pytest.mark.parametrize("reg_lambda", [1e-3, 1e-5])
def test_digits(reg_lambda):
    """Test the documented formula of `digits`, the number of accurate digits of the solution.

    The number is -log10(eps condition). If lambda is at least 1e-4, it is at least -log10(eps / lambda^2). The second
    expression is accurate to a hundredth of a digit if lambda is small compared with k(x, x) = 1.
    """
    model = HyperKernelRidge(
        2, kernel="laplace", n_centers=40, reg_lambda=reg_lambda, n_init=2, max_iter=5, random_state=0
    )
    found = model.fit(DATA.X, DATA.y).diagnostics_
    eps = np.finfo(float).eps
    expected = -np.log10(eps * found.condition)
    if reg_lambda >= 1e-4:
        expected = max(expected, -np.log10(eps / reg_lambda**2))
    assert found.digits == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize("reg_lambdas", [[1e-3, 1e-4], [1.0, 1e-3, 1e-9]])
@may_warn
def test_truncated_share_and_edges_of_the_grid(reg_lambdas):
    """Test `truncated_share` and `overshooting_share`, and `at_edge` for the grid of lambda.

    They are the shares of the training rows whose predictions, before truncation, exceed the bound `truncation_`, and
    1.5 times this bound, in absolute value. The target has plateaus, which a smooth function overshoots.
    """
    y = np.clip(4.0 * DATA.y / np.abs(DATA.y).max(), -1.0, 1.0)
    model = HyperKernelRidgeCV(
        [2], criterion="training", cv="holdout", reg_lambdas=reg_lambdas, n_init=1, random_state=0
    )
    found = model.fit(DATA.X, y).diagnostics_
    share = np.mean(np.abs(_untruncated(model, DATA.X)) > model.truncation_)
    assert 0.0 < share < 1.0
    assert found.truncated_share == pytest.approx(share, abs=1e-12)
    far = np.mean(np.abs(_untruncated(model, DATA.X)) > 1.5 * model.truncation_)
    assert found.overshooting_share == pytest.approx(far, abs=1e-12)
    assert ("reg_lambdas" in found.at_edge) == (model.reg_lambda_ in (min(reg_lambdas), max(reg_lambdas)))


@may_warn
def test_slow_progress_is_not_still_falling():
    """A run that stops at `max_iter` is not reported as still falling if its last iterations make little progress.

    VarPro with bounded steps runs for 60 iterations. The last twelve iterations hardly lower the objective.
    """
    options = {"init": 0.3 * np.eye(2, 4), "gamma": 0.1, "n_centers": 40, "random_state": 0}
    model = HyperKernelRidge(2, solver=VarPro(s_max=1e-3), max_iter=60, **options).fit(DATA.X, DATA.y)
    values = model.history_["objective"]
    fall = values[-1 - (len(values) - 1) // 5] - values[-1]
    assert model.result_.reason == "max_iter"
    assert 0.0 < fall < 0.01 * np.var(DATA.y)
    assert not model.diagnostics_.still_falling


@pytest.mark.parametrize("numbers", [[1, 2], [1, 2, 3]])
@may_warn
def test_edges_of_n_components(numbers):
    """An edge is reported only if the chosen number of directions is at an end of the range.

    The data have two directions. The number 2 is at the end of the first range, and inside the second range.
    """
    model = HyperKernelRidgeCV(numbers, n_init=1, random_state=0).fit(DATA.X[:100], DATA.y[:100])
    found = model.diagnostics_
    assert ("n_components" in found.at_edge) == (model.n_components_ in (min(numbers), max(numbers)))
    assert "reg_lambda" not in found.at_edge
    assert 1e-12 < model.reg_lambda_ < 1e3
    assert found.starts_dropped + found.starts_failed < found.starts_tried
