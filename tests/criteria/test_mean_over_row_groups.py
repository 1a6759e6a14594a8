"""Tests of the grouped criterion: the mean of the evidence, or of the leave-one-out error, over groups of rows.

It is compared with a loop over naive oracles, with finite differences, and with the exact criterion of all rows.
"""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from hkrr.criteria import Evidence, Grouped, LeaveOneOut
from hkrr.rows import InMemoryRows
from support.every_criterion import ORACLES, every_criterion
from support.random_problems import ONE_GAMMA, case_id, central_difference, make_problem, unit_direction

LAMBDA, M, GROUPS = 0.05, 19, 3  # groups of 7, 6 and 6 rows
NAMES = ["gaussian-", "matern32", "laplace", "product_matern-nu1.5", "product_laplace", "anova-nu0.5"]
CASES = [case for case in ONE_GAMMA if case.id.startswith(tuple(NAMES))]
ROUGH = [case for case in CASES if case.name in ("matern32", "product_laplace")]
rough_kernels = pytest.mark.parametrize("case", ROUGH, ids=case_id)


def _grouped(criterion, p, kernel, n_groups=GROUPS, reg_lambda=LAMBDA, **options):
    return Grouped(criterion, InMemoryRows(p.X, p.y, p.w), n_groups, kernel, reg_lambda, **options)


def _oracle(criterion, k, p, n_groups, reg_lambda):
    """Return sum_g (W_g / W) l_g(B, lambda W / W_g), where l_g(B, lambda) is the criterion of the rows of group g.

    W_g is the sum of the weights of these rows, and W the sum of all weights. The groups are consecutive rows and have
    nearly equal sizes.
    """
    W, total = sum(p.weights), 0.0
    for group in np.array_split(np.arange(len(p.X)), n_groups):
        W_g = sum(p.weights[group])
        value = ORACLES[criterion](k, p.X[group], p.Y[group], p.weights[group], None, reg_lambda * W / W_g, p.B)
        total += W_g / W * value
    return total


def _assert_same_bits(one, two):
    assert (one.value, one.grad_log_lambda) == (two.value, two.grad_log_lambda)
    assert_array_equal(one.grad, two.grad)


@every_criterion
@pytest.mark.parametrize(("T", "weighted"), [(1, False), (1, True), (3, False), (3, True)])
@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_matches_a_loop_over_the_oracles(criterion, T, weighted, case):
    p = make_problem(m=M, T=T, weighted=weighted)
    found = _grouped(criterion, p, case.kernel)
    for reg_lambda in (None, 0.4):  # the lambda of the constructor, and a different lambda
        reduced = found.reduced(p.B, reg_lambda)
        expected = _oracle(criterion, case.value, p, GROUPS, reg_lambda or LAMBDA)
        assert reduced.value == pytest.approx(expected, rel=1e-12, abs=1e-12)
        assert reduced.grad.shape == p.B.shape


@every_criterion
@rough_kernels
@pytest.mark.parametrize("n_groups", [2, 9, 10, 19])
def test_any_number_of_groups(criterion, case, n_groups):
    """Test that 19 rows in 2, 9, 10 or 19 groups have the value of the oracle.

    If there are 9 or 10 groups, each group has one to three rows. If there are 19 groups, each group has one row.
    """
    p = make_problem(m=M)
    expected = _oracle(criterion, case.value, p, n_groups, LAMBDA)
    assert _grouped(criterion, p, case.kernel, n_groups).reduced(p.B).value == pytest.approx(expected, rel=1e-12)


@every_criterion
@rough_kernels
def test_offsets_and_scales_of_the_rows_count(criterion, case):
    """Test that the groups use the coordinates of the rows, (X - x_offset) / x_scale and y - y_offset."""
    p, scale = make_problem(m=M, T=3), np.array([0.5, 1.0, 2.0, 10.0])
    rows = InMemoryRows(scale * p.X + 3.0, p.y - 2.0, p.w, x_offset=np.full(4, 3.0), x_scale=scale, y_offset=-2.0)
    found = Grouped(criterion, rows, GROUPS, case.kernel, LAMBDA).reduced(p.B)
    assert found.value == pytest.approx(_oracle(criterion, case.value, p, GROUPS, LAMBDA), rel=1e-11)


@every_criterion
@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_directional_derivatives(criterion, case):
    """Test that the derivatives with respect to B and log lambda agree with central differences.

    Central differences have errors of order 1e-10.
    """
    for seed in range(2):
        p = make_problem(m=50, D=5, T=3, seed=seed)
        found = _grouped(criterion, p, case.kernel, n_groups=4)
        reduced, v = found.reduced(p.B), unit_direction(np.random.default_rng(seed), p.B.shape)
        along = central_difference(lambda B, f=found: f.reduced(B).value, p.B, v)
        assert abs(along - np.sum(reduced.grad * v)) <= 1e-6 * np.linalg.norm(reduced.grad)
        in_lambda = central_difference(lambda t, f=found, B=p.B: f.reduced(B, math.exp(t)).value, math.log(LAMBDA), 1.0)
        assert in_lambda == pytest.approx(reduced.grad_log_lambda, rel=1e-6, abs=1e-8)


@every_criterion
@pytest.mark.parametrize("case", CASES, ids=case_id)
@pytest.mark.parametrize("weighted", [False, True])
def test_one_group_is_the_exact_criterion(criterion, case, weighted):
    p = make_problem(m=40, T=3, weighted=weighted)
    one = _grouped(criterion, p, case.kernel, n_groups=1).reduced(p.B)
    exact = criterion(InMemoryRows(p.X, p.y, p.w), None, case.kernel, LAMBDA).reduced(p.B)
    assert one.value == pytest.approx(exact.value, rel=1e-13)
    assert one.grad_log_lambda == pytest.approx(exact.grad_log_lambda, rel=1e-11)
    assert_allclose(one.grad, exact.grad, rtol=1e-11, atol=1e-12 * np.abs(exact.grad).max())


@every_criterion
@rough_kernels
def test_threads_do_not_change_the_result(criterion, case):
    p = make_problem(m=200, T=3)
    one, two = (_grouped(criterion, p, case.kernel, 5, n_threads=n) for n in (1, 2))
    _assert_same_bits(one.reduced(p.B), two.reduced(p.B))


@every_criterion
def test_at_is_another_criterion_and_leaves_the_first_alone(criterion):
    p, (first, second) = make_problem(m=M), [case.kernel for case in ROUGH]
    found = _grouped(criterion, p, first)
    before, warmer, other = found.reduced(p.B), found.at(0.4), found.at(0.4, second)
    for actual, kernel in ((warmer, first), (other, second)):
        assert isinstance(actual, Grouped)
        _assert_same_bits(actual.reduced(p.B), _grouped(criterion, p, kernel, reg_lambda=0.4).reduced(p.B))
    _assert_same_bits(found.reduced(p.B), before)
    assert len({r.value for r in (before, warmer.reduced(p.B), other.reduced(p.B))}) == 3


def test_nats():
    """Test the conversion to a negative log likelihood per row, in nats.

    The evidence is already in nats and does not change. A leave-one-out error is converted to half its logarithm.
    """
    p = make_problem(m=M)
    assert _grouped(Evidence, p, ROUGH[0].kernel).nats(-0.3) == -0.3
    assert _grouped(LeaveOneOut, p, ROUGH[0].kernel).nats(0.3) == pytest.approx(math.log(0.3) / 2.0, rel=1e-14)
