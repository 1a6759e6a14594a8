"""Tests of Armijo backtracking.

It tries the step sizes of the paper, checks the Armijo condition on the displacement, and always ends.
"""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hkrr.solvers.line_search import Armijo
from support import oracles

PARAMETERS = [
    Armijo(rho=0.5, delta=0.8, c=1e-4, s_max=math.inf),
    Armijo(rho=0.3, delta=1.0, c=0.3, s_max=math.inf),
    Armijo(rho=0.7, delta=0.5, c=1e-4, s_max=0.9),
]
every_rule = pytest.mark.parametrize("rule", PARAMETERS, ids=["default", "monotone", "capped"])
ZERO = np.zeros((1, 1))


def search(rule, last, start, move, change, magnitude=1.0):
    """Return the accepted step or None, and the list of step sizes that were tried.

    `rule` searches from the point `start`, with the previous step size `last`. ``move(size)`` returns the point after a
    step of the given size, and ``change(point)`` the change of the objective. `magnitude` is the absolute value of the
    objective at `start`.
    """
    tried = []

    def recorded(size):
        tried.append(size)
        return move(size)

    return rule.search(last, start, recorded, change, magnitude), tried


def paper_trials(rule, last):
    """Yield the step sizes of appendix C: min(last / (rho delta), s_max) times rho, rho^2, rho^3, and so on."""
    size = min(last / (rule.rho * rule.delta), rule.s_max)
    while True:
        size = rule.rho * size
        yield size


@every_rule
@pytest.mark.parametrize("last", [1e-3, 1.0, 50.0])
@pytest.mark.parametrize("refused", [0, 1, 5])
def test_tries_exactly_the_steps_of_the_paper(rule, last, refused):
    """Test that the trial step sizes are those of `paper_trials`, in the same order.

    The first `refused` trials are rejected, and the next trial is accepted.
    """
    answers = iter([1.0] * refused + [-1e9])
    step, tried = search(rule, last, ZERO, lambda size: ZERO - size, lambda point: next(answers))
    expected = list(itertools.islice(paper_trials(rule, last), refused + 1))
    assert tried == pytest.approx(expected, rel=1e-14)
    assert step.size == tried[-1]
    np.testing.assert_array_equal(step.point, ZERO - tried[-1])


def _quadratic(seed, D=3):
    """Return f(x) = x'Ax/2 with curvatures from 0.1 to 100, a random x, and the gradient at x."""
    rng = np.random.default_rng(seed)
    Q = np.linalg.qr(rng.normal(size=(D, D)))[0]
    A, x = Q @ np.diag(np.geomspace(0.1, 100.0, D)) @ Q.T, rng.normal(size=(1, D))
    return lambda z: 0.5 * float(np.vdot(z, z @ A)), x, x @ A


def _suffices(rule, f, x, z, size):
    """Return whether f(z) - f(x) <= -(c/s) |z - x|^2 for the step size s, up to rounding."""
    return f(z) - f(x) <= -(rule.c / size) * float(np.sum((z - x) ** 2)) + 1e-14 * abs(f(x))


@every_rule
@pytest.mark.parametrize("bounded", [False, True], ids=["free", "in the ball"])
@settings(max_examples=20, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), last=st.floats(1e-4, 1e3))
def test_accepts_the_first_step_of_sufficient_decrease(rule, bounded, seed, last):
    """Test that the condition holds at the accepted step and at no earlier trial, with and without a projection."""
    f, x, grad = _quadratic(seed)
    project = oracles.project_spectral_ball if bounded else np.asarray
    x = project(x)
    step, tried = search(rule, last, x, lambda s: project(x - s * grad), lambda z: f(z) - f(x), abs(f(x)))
    assert _suffices(rule, f, x, step.point, step.size)
    assert not any(_suffices(rule, f, x, project(x - s * grad), s) for s in tried[:-1])


def test_without_a_projection_the_condition_is_that_of_the_paper():
    """Test that without a projection, the Armijo condition is f(x - s grad) - f(x) <= -c s |grad|^2, as in the paper.

    For f(x) = x^2/2 at x = 1, the change of f is s^2/2 - s and the bound is -c s. The condition on the step size s is
    then c <= 1 - s/2. Hence c = 0.4 accepts s = 1, but c = 0.6 rejects it.
    """
    x = np.ones((1, 1))
    for c, size in [(0.4, 1.0), (0.6, 0.5)]:
        rule = Armijo(rho=0.5, delta=1.0, c=c)
        step, _ = search(rule, 1.0, x, lambda s: x - s * x, lambda z: 0.5 * float(z[0, 0] ** 2) - 0.5, 0.5)
        assert step.size == size


@pytest.mark.parametrize("last", [1e-3, 1.0, 50.0])
@pytest.mark.parametrize("magnitude", [1.0, 0.0])
def test_ends_at_a_critical_point_on_the_boundary(last, magnitude):
    """Test that the search ends after one trial if no step changes the point.

    The point is b = 1, the function is f(b) = -b, and the ball is |b| <= 1. The gradient is -1, but the projection
    moves each step back to b = 1.
    """
    b = np.ones((1, 1))
    move, change = (lambda s: np.minimum(b + s, 1.0)), (lambda z: float(b[0, 0] - z[0, 0]))
    step, tried = search(PARAMETERS[0], last, b, move, change, magnitude)
    np.testing.assert_array_equal(step.point, b)
    assert len(tried) == 1


@pytest.mark.parametrize("last", [0.1, 1.0, 1e9])
@pytest.mark.parametrize("refused", [0, 3])
def test_never_steps_further_than_s_max(last, refused):
    answers = iter([math.inf] * refused + [-1e9])
    rule = Armijo(rho=0.9, delta=0.2, c=1e-4, s_max=2.0)
    _, tried = search(rule, last, ZERO, lambda size: ZERO - size, lambda point: next(answers))
    assert max(tried) <= 2.0


@pytest.mark.parametrize(("delta", "growth"), [(1.0, 1.0), (0.8, 1.25), (0.5, 2.0)])
def test_steps_grow_by_one_over_delta(delta, growth):
    """Test that step i has the size 1 / delta^i times the first size if every first trial is accepted."""
    rule, size = Armijo(rho=0.5, delta=delta, c=1e-4), 1.0
    for i in range(1, 11):
        step, tried = search(rule, size, ZERO, lambda s: ZERO, lambda point: -1.0)
        size = step.size
        assert len(tried) == 1
        assert size == pytest.approx(growth**i, rel=1e-13)


@pytest.mark.parametrize("change", [math.inf, math.nan])
@every_rule
def test_raises_if_nothing_is_finite(rule, change):
    with pytest.raises(FloatingPointError, match=r"^the objective is not finite at the smallest step size$"):
        search(rule, 1.0, np.ones((2, 2)), lambda size: np.ones((2, 2)) * (1 - size), lambda point: change)


@pytest.mark.parametrize("change", [1.0, 1e-9])
@every_rule
def test_gives_up_after_a_bounded_number_of_contractions(rule, change):
    """Test that the search returns None after a limited number of trials if no trial is accepted."""
    step, tried = search(rule, 1.0, np.ones((2, 2)), lambda size: np.ones((2, 2)) * (1 - size), lambda point: change)
    assert step is None
    assert len(tried) <= 5000


@every_rule
def test_the_number_of_contractions_does_not_depend_on_the_first_step(rule):
    """Test that the number of trials does not depend on the first step size if all trials are rejected.

    The smallest step size is relative to the first step size, so the units of the step size do not matter.
    """
    sizes = []
    for last in (1e-3, 1e-2, 0.1):  # smaller than s_max of every rule
        step, tried = search(rule, last, ZERO, lambda size: ZERO + size, lambda point: 1.0)
        assert step is None
        sizes.append(np.array(tried) / last)
    assert len(sizes[0]) == len(sizes[1]) == len(sizes[2])
    np.testing.assert_allclose(sizes[0], sizes[1], rtol=1e-12)


@pytest.mark.parametrize("last", [1e-3, 1.0, 50.0])
def test_gives_up_when_the_point_no_longer_changes(last):
    """Test that the search ends when 1 + size rounds to 1. If the last step size is 0, it ends without a trial."""
    one, rule = np.ones((1, 1)), PARAMETERS[0]
    step, tried = search(rule, last, one, lambda size: one + size, lambda point: 1.0)
    assert step is None
    assert one + tried[-1] == one != one + tried[-2]
    assert search(rule, 0.0, one, lambda size: one + size, lambda point: 1.0) == (None, [])


@pytest.mark.parametrize("rho", [0.1, 0.5, 0.9])
def test_contracts_far_enough_for_every_rho(rho):
    """Test that the search succeeds for every rho in (0, 1) and any first step size, as in appendix C.

    For f = x^2/2 at x = 1, step sizes below 2 (1 - c) decrease f sufficiently. The first trial is about 1e10.
    """
    x = np.ones((1, 1))
    rule = Armijo(rho=rho, delta=0.8, c=1e-4)
    step, _ = search(rule, 1e10, x, lambda s: x - s * x, lambda z: 0.5 * float(z[0, 0] ** 2) - 0.5, 0.5)
    assert step is not None
    assert rho * 1.9 < step.size < 2.0


def test_accepts_a_change_that_is_only_rounding():
    """Test that an increase of f by eps |f| is accepted, and an increase by 1e9 eps |f| is not."""
    eps = np.finfo(float).eps
    for magnitude in [1e-8, 1.0, 1e8]:
        start, move = ZERO, lambda size: ZERO + 1e-30
        assert search(PARAMETERS[0], 1.0, start, move, lambda z, m=magnitude: eps * m, magnitude)[0] is not None
        assert search(PARAMETERS[0], 1.0, start, move, lambda z, m=magnitude: 1e9 * eps * m, magnitude)[0] is None


@pytest.mark.parametrize(
    ("name", "value"),
    [("rho", v) for v in (0.0, 1.0, -0.5, 1.5, math.nan)]
    + [("delta", v) for v in (0.0, 1.01, -1.0, math.nan)]
    + [("c", v) for v in (0.0, -1e-4, 1.0, 1.5, math.nan)]
    + [("s_max", v) for v in (0.0, -1.0, math.nan)],
)
def test_rejects_parameters_outside_the_paper(name, value):
    """Test that parameters outside the ranges of the paper are errors.

    The paper requires rho in (0, 1), delta in (0, 1], c in (0, 1) and s_max > 0.
    """
    with pytest.raises(ValueError, match=rf"\b{name}\b.*{value}"):
        Armijo(**{name: value})


@pytest.mark.parametrize(("name", "value"), [("rho", 0.99), ("delta", 1.0), ("c", 0.99), ("s_max", 0.01)])
def test_takes_parameters_of_the_paper(name, value):
    assert getattr(Armijo(**{name: value}), name) == value
