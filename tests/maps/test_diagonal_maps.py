"""Tests of diagonal maps stored as vectors: the results agree with those of the same maps stored as matrices."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from hkrr._base.linear_algebra import project, pull_to_map
from hkrr._maps import Diagonal, Full, Scaled
from hkrr.criteria import Grouped
from hkrr.estimators.search.candidates import Candidate, Origin
from hkrr.estimators.search.path_table import path_table
from hkrr.kernels import Gaussian
from hkrr.objective import Objective
from hkrr.rows import InMemoryRows
from support.every_criterion import ORACLES, every_criterion
from support.random_problems import ONE_GAMMA, case_id, central_difference, make_problem, unit_direction

LAMBDA, D = 0.05, 4
SCALES = np.array([0.7, 0.05, 1.9, 1e-9])  # the last column is almost removed
every_kernel = pytest.mark.parametrize("case", ONE_GAMMA, ids=case_id)


def _exact(criterion, p, kernel):
    return criterion(InMemoryRows(p.X, p.y, p.w), None, kernel, LAMBDA, learn_lambda=True)


def _groups(criterion, p, kernel):
    return Grouped(criterion, InMemoryRows(p.X, p.y, p.w), 3, kernel, LAMBDA)


def test_products_with_a_vector_match_those_with_the_matrix():
    rng = np.random.default_rng(0)
    X, dP, B = rng.normal(size=(7, D)), rng.normal(size=(7, D)), rng.normal(size=(2, D))
    assert_allclose(project(X, SCALES), [[row[j] * SCALES[j] for j in range(D)] for row in X], rtol=1e-15)
    assert_allclose(project(X, B), [[row @ direction for direction in B] for row in X], rtol=1e-13, atol=1e-15)
    by_hand = [sum(dP[i, j] * X[i, j] for i in range(7)) for j in range(D)]
    assert_allclose(pull_to_map(dP, X, SCALES), by_hand, rtol=1e-13, atol=1e-14)
    assert_allclose(pull_to_map(dP[:, :2], X, B), dP[:, :2].T @ X, rtol=1e-14)


@every_criterion
@pytest.mark.parametrize("build", [_exact, _groups])
@pytest.mark.parametrize(("T", "weighted"), [(1, False), (3, True)])
@every_kernel
def test_the_criterion_at_a_vector_matches_the_matrix(criterion, build, T, weighted, case):
    """Test that the values agree, and that the gradient for a vector is the diagonal of the gradient for a matrix."""
    p = make_problem(m=21, D=D, T=T, weighted=weighted)
    found = build(criterion, p, case.kernel)
    for reg_lambda in (None, 0.4):
        vector, matrix = found.reduced(SCALES, reg_lambda), found.reduced(np.diag(SCALES), reg_lambda)
        assert vector.grad.shape == (D,)
        assert vector.value == pytest.approx(matrix.value, rel=1e-13, abs=1e-14)
        assert vector.grad_log_lambda == pytest.approx(matrix.grad_log_lambda, rel=1e-11, abs=1e-13)
        size = np.abs(matrix.grad).max()
        assert_allclose(vector.grad, np.diag(matrix.grad), rtol=1e-11, atol=1e-12 * size)
        assert_allclose(vector.alpha, matrix.alpha, rtol=1e-11, atol=1e-11 * np.abs(matrix.alpha).max(initial=0.0))


@every_criterion
@every_kernel
def test_the_criterion_at_a_vector_matches_the_oracle(criterion, case):
    p = make_problem(m=17, D=D, T=3)
    expected = ORACLES[criterion](case.value, p.X, p.Y, p.weights, None, LAMBDA, np.diag(SCALES))
    assert _exact(criterion, p, case.kernel).reduced(SCALES).value == pytest.approx(expected, rel=1e-11, abs=1e-11)


@every_criterion
@pytest.mark.parametrize("build", [_exact, _groups])
@pytest.mark.parametrize("case", [case for case in ONE_GAMMA if case.name in ("gaussian", "anova")], ids=case_id)
def test_directional_derivatives_in_the_vector(criterion, build, case):
    for seed in range(3):
        p, rng = make_problem(m=30, D=D, T=2, seed=seed), np.random.default_rng(seed)
        at, v = rng.uniform(0.3, 1.5, size=D), unit_direction(rng, D)
        found = build(criterion, p, case.kernel)
        along = central_difference(lambda x, f=found: f.reduced(x).value, at, v)
        grad = found.reduced(at).grad
        assert abs(along - grad @ v) <= 1e-6 * np.linalg.norm(grad)


@pytest.mark.parametrize("n_centers", [None, 9])
@pytest.mark.parametrize(("T", "weighted"), [(1, False), (3, True)])
@every_kernel
def test_the_objective_at_a_vector_matches_the_matrix(n_centers, T, weighted, case):
    p = make_problem(m=21, D=D, T=T, weighted=weighted)
    centers = None if n_centers is None else p.X[:n_centers]
    for reg_lambda in (LAMBDA, 1e-6):  # the system is whitened for the second value
        found = Objective(InMemoryRows(p.X, p.y, p.w), centers, case.kernel, reg_lambda)
        alpha = found.solve_alpha(SCALES)
        close = {"rtol": 1e-6, "atol": 1e-6 * np.abs(alpha).max()}
        assert_allclose(alpha, found.solve_alpha(np.diag(SCALES)), **close)
        vector, matrix = (found.reduced(B) for B in (SCALES, np.diag(SCALES)))
        assert vector.value == pytest.approx(matrix.value, rel=1e-8)
        assert_allclose(vector.grad, np.diag(matrix.grad), rtol=1e-6, atol=1e-8 * np.abs(matrix.grad).max())
        assert found.value(SCALES, alpha) == pytest.approx(found.value(np.diag(SCALES), alpha), rel=1e-12)
        value, grad = found.value_and_grad_B(SCALES, alpha)
        other_value, other_grad = found.value_and_grad_B(np.diag(SCALES), alpha)
        assert value == pytest.approx(other_value, rel=1e-12)
        assert_allclose(grad, np.diag(other_grad), rtol=1e-9, atol=1e-10 * np.abs(other_grad).max())
        assert_allclose(found.inner(SCALES).A, found.inner(np.diag(SCALES)).A, rtol=1e-12, atol=1e-14)


def test_a_candidate_has_its_number_of_directions_and_its_norm():
    B = np.random.default_rng(1).normal(size=(2, D))
    full = Candidate(Origin.RANDOM, Gaussian(gamma=1.0), B, 0.1)
    assert (full.n_components, full.norm) == (2, pytest.approx(np.linalg.svd(B)[1][0], rel=1e-14))
    for shape in (Diagonal(), Scaled(SCALES)):
        candidate = Candidate(Origin.RANDOM, Gaussian(gamma=1.0), SCALES, 0.1, shape=shape)
        assert (candidate.n_components, candidate.norm) == (D, 1.9)


def test_the_path_shows_a_vector_as_its_matrix():
    """Test that the table of candidates is the same for a diagonal map stored as a vector and as a matrix.

    In the table, gamma is that of a map of norm 1. Lambda is the noise level nu (30) divided by the total weight (60).
    """
    kernel = Gaussian(gamma=0.5)
    ends = [
        Candidate(Origin.RANDOM, kernel, SCALES, 30.0, -0.1, 2.0, 0.3, Diagonal()),
        Candidate(Origin.RANDOM, kernel, np.diag(SCALES), 30.0, -0.1, 2.0, 0.3, Full()),
    ]
    vector, matrix = (path_table([end], 60.0) for end in ends)
    assert (vector.pop("shape"), matrix.pop("shape")) == (["diagonal"], ["full"])
    assert vector == matrix
    assert vector["gamma"] == [pytest.approx(0.5 * 1.9**2, rel=1e-14)]
    assert (vector["reg_lambda"], vector["n_components"]) == ([0.5], [D])
