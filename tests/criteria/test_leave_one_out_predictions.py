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
each_intercept = pytest.mark.parametrize("intercept", [False, True], ids=["", "intercept"])
each_map = pytest.mark.parametrize("diagonal", [False, True], ids=["full", "diagonal"])


def _map(p, diagonal):
    return np.array([0.7, 1.2, 0.1, 0.0]) if diagonal else p.B


def _refitted(k, X, Y, w, B, reg_lambda=LAMBDA, intercept=False):
    """Return, for each row, the prediction of a fit to all other rows.

    The fit solves ``(K + N) a = y`` for the coefficients a, where N is the diagonal matrix of the noise ``lambda W /
    w_i`` of row i, and W is the sum of the weights of all rows. An intercept b is not penalized: with an intercept, the
    fit solves ``(K + N) a + b 1 = y`` and ``1'a = 0``.
    """
    P, n = oracles.project(X, oracles.as_matrix(B)), len(X)
    K, noise, found = oracles.gram(k, P, P), reg_lambda * sum(w) / w, np.empty_like(Y)
    for i in range(n):
        rest = np.arange(n) != i
        system, right = K[rest][:, rest] + np.diag(noise[rest]), Y[rest]
        if intercept:
            ones = np.ones((n - 1, 1))
            system = np.block([[system, ones], [ones.T, np.zeros((1, 1))]])
            right = np.vstack([right, np.zeros((1, Y.shape[1]))])
        solution = np.linalg.solve(system, right)
        found[i] = K[i, rest] @ solution[: n - 1] + (solution[-1] if intercept else 0.0)
    return found


@each_kernel
@each_layout
@each_map
@each_intercept
def test_predictions_match_refits(case, T, weighted, diagonal, intercept):
    p = make_problem(T=T, weighted=weighted)
    B = _map(p, diagonal)
    found = Evidence(InMemoryRows(p.X, p.y, p.w), None, case.kernel, LAMBDA).leave_one_out(B, intercept)
    expected = _refitted(case.value, p.X, p.Y, p.weights, B, intercept=intercept)
    assert found.shape == (17, T)
    assert_allclose(found, expected, rtol=0, atol=1e-12 * np.abs(p.Y).max())


@each_layout
@each_map
@each_intercept
def test_tensors_give_the_same_predictions(T, weighted, diagonal, intercept):
    torch = pytest.importorskip("torch")
    from hkrr.rows.torch_device import TorchRows

    p, kernel = make_problem(T=T, weighted=weighted), Matern(nu=1.5, gamma=0.3)
    B = _map(p, diagonal)
    tensors = [None if array is None else torch.as_tensor(array) for array in (p.X, p.y, p.w)]
    found = Evidence(TorchRows(*tensors, device="cpu", block_size=7), None, kernel, LAMBDA)
    found = found.leave_one_out(B, intercept)
    assert isinstance(found, np.ndarray)
    expected = Evidence(InMemoryRows(p.X, p.y, p.w), None, kernel, LAMBDA).leave_one_out(B, intercept)
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


# ---------------------------------------------------------------------------------------------------- an intercept


def _predictions(X, y, w, B, *, intercept=True, reg_lambda=LAMBDA):
    return Evidence(InMemoryRows(X, y, w), None, Gaussian(gamma=0.3), reg_lambda).leave_one_out(B, intercept)


@each_layout
def test_centered_targets_do_not_reveal_the_target_that_is_left_out(T, weighted):
    """Test that the leave-one-out prediction of row 4 does not depend on the target of row 4.

    The weighted mean of all targets is subtracted before the fit, and added to the prediction. Without an intercept,
    the prediction does depend on the target of row 4, because the mean contains this target.
    """
    p = make_problem(T=T, weighted=weighted)

    def predicted(Y, intercept):
        mean = np.average(Y, axis=0, weights=p.weights)
        return _predictions(p.X, Y - mean, p.w, p.B, intercept=intercept)[4] + mean

    changed = p.Y.copy()
    changed[4] += 100.0
    assert_allclose(predicted(changed, True), predicted(p.Y, True), rtol=0, atol=1e-11)
    assert np.all(np.abs(predicted(changed, False) - predicted(p.Y, False)) > 0.1)


@each_layout
def test_a_constant_added_to_the_targets_is_added_to_the_predictions(T, weighted):
    p = make_problem(T=T, weighted=weighted)
    constants = np.array([1000.0, -3.0, 0.5])[:T]
    found, shifted = (_predictions(p.X, Y, p.w, p.B) for Y in (p.Y, p.Y + constants))
    assert_allclose(shifted, found + constants, rtol=0, atol=1e-10)
    assert_allclose(_predictions(p.X, 0.0 * p.Y + constants, p.w, p.B), 0.0 * p.Y + constants, rtol=1e-12)


def test_without_a_signal_the_intercept_is_the_weighted_mean_of_the_other_rows():
    """Test that each row is predicted by the weighted mean of the other targets, if the map is zero.

    The same holds approximately if lambda is very large.
    """
    p = make_problem(T=2)
    others = [np.average(np.delete(p.Y, i, 0), axis=0, weights=np.delete(p.w, i)) for i in range(len(p.X))]
    assert_allclose(_predictions(p.X, p.y, p.w, 0.0 * p.B), others, rtol=1e-12)
    assert_allclose(_predictions(p.X, p.y, p.w, p.B, reg_lambda=1e9), others, atol=1e-8)


def test_two_rows_with_an_intercept_predict_each_other():
    X, y = np.array([[0.0, 1.0], [2.0, -1.0]]), np.array([3.0, 7.0])
    assert_allclose(_predictions(X, y, np.array([1.0, 2.5]), np.eye(2)), [[7.0], [3.0]], rtol=1e-12)


def test_whole_weights_are_repeated_rows_for_the_rows_that_are_not_repeated():
    """Test that a row of weight 3 can be replaced by three equal rows without changing predictions of other rows.

    The prediction of the row itself does change: with three equal rows, only one of the copies is left out.
    """
    p = make_problem(T=2, weighted=False)
    w = np.where(np.arange(17) == 5, 3.0, 1.0)
    X, Y = (np.vstack([A, A[[5, 5]]]) for A in (p.X, p.Y))
    found, repeated = _predictions(p.X, p.Y, w, p.B), _predictions(X, Y, None, p.B)
    rest = np.arange(17) != 5
    assert_allclose(found[rest], repeated[:17][rest], rtol=0, atol=1e-12)
    assert np.all(np.abs(found[5] - repeated[5]) > 1e-3)
