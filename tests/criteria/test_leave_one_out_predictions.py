"""Leave-one-out predictions of a criterion, compared with one fit for each row that is left out."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from hkrr.criteria import CRITERIA, Evidence
from hkrr.kernels import Gaussian, Matern
from hkrr.rows import InMemoryRows
from support import oracles
from support.random_problems import ONE_GAMMA, case_id, make_problem

LAMBDA = 0.05
each_kernel = pytest.mark.parametrize("case", ONE_GAMMA, ids=case_id)
each_layout = pytest.mark.parametrize(("T", "weighted"), [(1, False), (3, True)])
each_map = pytest.mark.parametrize("diagonal", [False, True], ids=["full", "diagonal"])


def _map(p, diagonal):
    return np.array([0.7, 1.2, 0.1, 0.0]) if diagonal else p.B


def _refitted(k, X, Y, w, B, reg_lambda=LAMBDA):
    """Return the prediction of each row by the fit to all others. The noise of row i is ``lambda W / w_i``."""
    P = oracles.project(X, oracles.as_matrix(B))
    K, noise, found = oracles.gram(k, P, P), reg_lambda * sum(w) / w, np.empty_like(Y)
    for i in range(len(X)):
        rest = np.arange(len(X)) != i
        found[i] = K[i, rest] @ np.linalg.solve(K[rest][:, rest] + np.diag(noise[rest]), Y[rest])
    return found


@each_kernel
@each_layout
@each_map
def test_predictions_match_refits(case, T, weighted, diagonal):
    p = make_problem(T=T, weighted=weighted)
    B = _map(p, diagonal)
    found = Evidence(InMemoryRows(p.X, p.y, p.w), None, case.kernel, LAMBDA).leave_one_out(B)
    assert found.shape == (17, T)
    assert_allclose(found, _refitted(case.value, p.X, p.Y, p.weights, B), rtol=0, atol=1e-12 * np.abs(p.Y).max())


@each_layout
@each_map
def test_tensors_give_the_same_predictions(T, weighted, diagonal):
    torch = pytest.importorskip("torch")
    from hkrr.rows.torch_device import TorchRows

    p, kernel = make_problem(T=T, weighted=weighted), Matern(nu=1.5, gamma=0.3)
    B = _map(p, diagonal)
    tensors = [None if array is None else torch.as_tensor(array) for array in (p.X, p.y, p.w)]
    found = Evidence(TorchRows(*tensors, device="cpu", block_size=7), None, kernel, LAMBDA).leave_one_out(B)
    assert isinstance(found, np.ndarray)
    expected = Evidence(InMemoryRows(p.X, p.y, p.w), None, kernel, LAMBDA).leave_one_out(B)
    assert_allclose(found, expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("make", CRITERIA.values(), ids=CRITERIA)
def test_another_kernel_and_lambda(make):
    """Test that `at` changes the kernel and lambda of the predictions, and leaves the original criterion unchanged."""
    p = make_problem(T=2)
    case = next(case for case in ONE_GAMMA if case.name == "product_laplace")
    criterion = make(InMemoryRows(p.X, p.y, p.w), None, Gaussian(gamma=1.0), LAMBDA)
    before = criterion.leave_one_out(p.B)
    found = criterion.at(0.4, case.kernel).leave_one_out(p.B)
    assert_allclose(found, _refitted(case.value, p.X, p.Y, p.weights, p.B, 0.4), rtol=0, atol=1e-12)
    assert_allclose(criterion.leave_one_out(p.B), before, rtol=0, atol=0)


def test_the_mean_squared_error_is_the_leave_one_out_criterion():
    p = make_problem(T=3)
    criterion = CRITERIA["loo"](InMemoryRows(p.X, p.y, p.w), None, Gaussian(gamma=0.3), LAMBDA)
    error = np.sum(p.w[:, None] * (p.Y - criterion.leave_one_out(p.B)) ** 2) / np.sum(p.w)
    assert error == pytest.approx(criterion.reduced(p.B).value, rel=1e-12)
