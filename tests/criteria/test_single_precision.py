"""Tests of criteria with so many rows that systems are solved in float32, and of criteria that use only float32.

They are compared with the naive oracles. The relative error of a result in float32 is about the epsilon of float32
times the condition number of the matrix that is inverted. The tolerances are ten times this estimate.
"""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from hkrr._base import linear_algebra
from hkrr.criteria import Evidence
from hkrr.kernels import Gaussian, Laplace, Matern
from hkrr.rows import InMemoryRows
from support import oracles
from support import oracles_criteria as criteria_oracles
from support.every_criterion import ORACLES, every_criterion
from support.random_problems import ONE_GAMMA, case_id, central_difference, make_problem, unit_direction

EPS32 = float(np.finfo(np.float32).eps)
LAMBDA = 0.05


def _tolerance(value, p, reg_lambda=LAMBDA):
    """Return ten times the epsilon of float32 times the condition number of K + lambda W diag(1/w).

    K is the kernel matrix of all rows for the kernel function `value`, w the weights and W their sum.
    """
    K, noise = criteria_oracles.prior(value, p.X, None, p.B)[0], reg_lambda * np.sum(p.weights) / p.weights
    return 10.0 * EPS32 * np.linalg.cond(K + np.diag(noise))


def _assert_matches_the_oracle(reduced, oracle, p, tolerance, seed=0):
    """Check that the value agrees with the oracle, and the derivatives with finite differences of the oracle.

    The derivatives are those along a random direction of the map, and with respect to log lambda.
    """
    assert reduced.value == pytest.approx(oracle(LAMBDA, p.B), abs=tolerance * max(1.0, abs(reduced.value)))
    direction = unit_direction(np.random.default_rng(seed), p.B.shape)
    size = max(1.0, np.linalg.norm(reduced.grad))
    slope = central_difference(lambda B: oracle(LAMBDA, B), p.B, direction)
    assert np.sum(reduced.grad * direction) == pytest.approx(slope, abs=tolerance * size + 1e-8)
    slope = central_difference(lambda log: oracle(np.exp(log), p.B), np.log(LAMBDA), 1.0)
    size = max(1.0, abs(reduced.value))
    assert reduced.grad_log_lambda == pytest.approx(slope, abs=tolerance * size + 1e-8)


@every_criterion
@pytest.mark.parametrize(("T", "weighted"), [(1, False), (3, True)])
@pytest.mark.parametrize("case", ONE_GAMMA, ids=case_id)
def test_in_single_precision(criterion, T, weighted, case):
    p = make_problem(T=T, weighted=weighted)
    given = criterion(InMemoryRows(p.X, p.y, p.w), None, case.kernel, LAMBDA, learn_lambda=True)
    reduced = given.in_single_precision().reduced(p.B)
    assert reduced.alpha.dtype == np.float32

    def oracle(reg_lambda, B):
        return ORACLES[criterion](case.value, p.X, p.Y, p.weights, None, reg_lambda, B)

    _assert_matches_the_oracle(reduced, oracle, p, _tolerance(case.value, p))
    assert given.reduced(p.B).alpha.dtype == np.float64  # the original is unchanged


@pytest.mark.parametrize("case", ONE_GAMMA, ids=case_id)
def test_in_single_precision_with_a_diagonal_map(case):
    p = make_problem()
    B = np.array([0.8, 0.5, 0.3, 0.1])
    given = Evidence(InMemoryRows(p.X, p.y, p.w), None, case.kernel, LAMBDA, learn_lambda=True)
    found, expected = given.in_single_precision().reduced(B), given.reduced(B)
    tolerance = _tolerance(case.value, p._replace(B=np.diag(B)))
    assert found.grad.shape == (4,)
    assert_allclose(found.grad, expected.grad, rtol=0, atol=tolerance * max(1.0, np.abs(expected.grad).max()))


def test_in_single_precision_with_centers():
    """Test that `in_single_precision` does not change a criterion with Nystrom centers."""
    p = make_problem()
    given = Evidence(InMemoryRows(p.X, p.y, p.w), p.centers, Gaussian(gamma=0.3), LAMBDA, learn_lambda=True)
    found, expected = given.in_single_precision().reduced(p.B), given.reduced(p.B)
    assert found.value == expected.value
    assert_array_equal(found.grad, expected.grad)


@pytest.mark.parametrize("scale", [1e-25, 1e25])
@every_criterion
def test_in_single_precision_with_targets_in_other_units(criterion, scale):
    """Test that the direction of the gradient is correct for targets whose squares are outside the range of float32.

    Such targets are divided by a constant, which can change the length of the gradient, but not its direction.
    """
    p = make_problem()
    one, other = (
        criterion(InMemoryRows(p.X, factor * p.y, p.w), None, Gaussian(gamma=0.3), LAMBDA, learn_lambda=True)
        for factor in (1.0, scale)
    )
    expected, found = one.reduced(p.B).grad, np.float64(other.in_single_precision().reduced(p.B).grad)
    assert_allclose(found / np.linalg.norm(found), expected / np.linalg.norm(expected), rtol=0, atol=1e-4)


@every_criterion
def test_in_single_precision_with_tensors(criterion):
    pytest.importorskip("torch")
    from hkrr.rows import TorchRows

    p = make_problem(T=2)
    found, expected = (
        criterion(rows, None, Gaussian(gamma=0.3), LAMBDA, learn_lambda=True).in_single_precision().reduced(p.B)
        for rows in (TorchRows(p.X, p.y, p.w, device="cpu"), InMemoryRows(p.X, p.y, p.w))
    )
    assert found.value == pytest.approx(expected.value, abs=1e-4)
    assert_allclose(found.grad, expected.grad, rtol=0, atol=1e-4)


@every_criterion
@pytest.mark.parametrize(("T", "weighted"), [(1, False), (2, True)])
@pytest.mark.parametrize(
    ("kernel", "value"), [(Laplace(gamma=0.3), "laplace"), (Matern(nu=1.5, gamma=0.3), "matern32")]
)
def test_systems_in_float32_match_the_oracle(monkeypatch, criterion, T, weighted, kernel, value):
    """Test that the value and the derivatives agree with the oracle if the systems of 40 rows are solved in float32.

    The coefficients agree with those computed in float64, because they are improved by iterative refinement.
    """
    monkeypatch.setattr(linear_algebra, "_FLOAT32_ROWS", 40)
    p = make_problem(40, T=T, weighted=weighted)

    def k(x, c):
        return getattr(oracles, value)(x, c, gamma=0.3)

    def oracle(reg_lambda, B):
        return ORACLES[criterion](k, p.X, p.Y, p.weights, None, reg_lambda, B)

    given = criterion(InMemoryRows(p.X, p.y, p.w), None, kernel, LAMBDA, learn_lambda=True)
    reduced = given.reduced(p.B)
    _assert_matches_the_oracle(reduced, oracle, p, _tolerance(k, p))
    monkeypatch.undo()
    assert_allclose(reduced.alpha, given.reduced(p.B).alpha, rtol=0, atol=1e-6 * np.abs(reduced.alpha).max())


def _dense_evidence(p, reg_lambda, B):
    """Return the evidence with the Gaussian kernel and gamma = 0.3, by the formulas of `oracles_criteria.evidence`."""
    P, m, W = p.X @ B.T, len(p.X), np.sum(p.weights)
    K = np.exp(-0.3 * np.sum((P[:, None] - P[None]) ** 2, axis=2))
    s, root = reg_lambda * W, np.sqrt(p.weights)
    A, y = root[:, None] * K * root + s * np.eye(m), root[:, None] * p.Y
    q = np.sum(y * np.linalg.solve(A, y), axis=0) / W
    return np.mean(np.log(q)) / 2.0 + (np.linalg.slogdet(A)[1] + (W - m) * np.log(s)) / (2.0 * W)


def test_evidence_of_600_rows_matches_the_oracle():
    """Test that the evidence of 600 rows, the smallest number that is solved in float32, agrees with the reference.

    The reference is a vectorized formula, which is first compared with the naive oracle on 20 rows.

    The tolerance contains a bound on the condition number. With unit weights, the condition number is at most
    600 / (600 lambda) + 1 = 21. The largest weight is at most 4 times the smallest weight, so the bound is 4 * 21.
    """
    p = make_problem(20, T=2)
    naive = criteria_oracles.evidence(lambda x, c: oracles.gaussian(x, c, gamma=0.3), p.X, p.Y, p.w, None, LAMBDA, p.B)
    assert naive == pytest.approx(_dense_evidence(p, LAMBDA, p.B), rel=1e-10)
    p = make_problem(600, T=2)
    reduced = Evidence(InMemoryRows(p.X, p.y, p.w), None, Gaussian(gamma=0.3), LAMBDA, learn_lambda=True).reduced(p.B)
    _assert_matches_the_oracle(reduced, lambda *at: _dense_evidence(p, *at), p, 10.0 * EPS32 * 4.0 * 21.0)


def test_constant_targets_have_no_influence_in_single_precision():
    """Test that an additional target of zeros does not change the value and the gradient."""
    p = make_problem(T=2)
    beside, alone = (
        Evidence(InMemoryRows(p.X, y, p.w), None, Gaussian(gamma=0.3), LAMBDA, learn_lambda=True)
        .in_single_precision()
        .reduced(p.B)
        for y in (p.Y * [1.0, 0.0], p.Y[:, 0])
    )
    assert beside.value == pytest.approx(alone.value, abs=1e-5)
    assert_allclose(beside.grad, alone.grad, rtol=0, atol=1e-5)
