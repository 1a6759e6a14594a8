"""One conformance suite that every solver passes on every kind of kernel.

The objective is recomputed from the iterates by the naive oracle; the driver's promises (history, callbacks, limits,
reasons) are checked for each solver.
"""

import math
import random
import time
from typing import NamedTuple

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import oracles
from hkrr.objective import Objective
from hkrr.rows import InMemoryRows
from hkrr.solvers import AGD, LBFGS, VarPro, get_solver, run
from problems import ONE_GAMMA, case_id

SOLVERS = {
    "VarPro": VarPro(),
    "VarPro-free": VarPro(norm_bound=None),
    "AGD-armijo": AGD(alpha_step="armijo"),
    "AGD-lipschitz": AGD(alpha_step="lipschitz"),
    "AGD-free": AGD(norm_bound=None),
    "LBFGS": LBFGS(),
}
BY_NAME = {case.id.removesuffix("-gamma0.3"): case for case in ONE_GAMMA}
GAUSSIAN = BY_NAME["gaussian"]
SMOOTH = ["gaussian", "matern32-nu1.5", "rational_quadratic-alpha1.0", "product_matern-nu1.5", "anova-nu2.5"]
KERNELS = [BY_NAME[name] for name in (*SMOOTH, "laplace", "polynomial-degree2-coef00.5")]
every_solver = pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS.keys())
every_kernel = pytest.mark.parametrize("case", KERNELS, ids=case_id)
LAMBDA = 0.1


class Corners(NamedTuple):
    """A well-conditioned problem: the centers are the corners of a square, so the latent centers stay apart."""

    X: np.ndarray
    Y: np.ndarray
    w: np.ndarray
    centers: np.ndarray
    B0: np.ndarray

    def objective(self, case):
        return Objective(InMemoryRows(self.X, self.Y, self.w), self.centers, case.kernel, LAMBDA)

    @property
    def arguments(self):
        """What the oracles take after the kernel."""
        return self.X, self.Y, self.w, self.centers, LAMBDA

    @property
    def loss_at_zero(self):
        """L(., 0) = sum w |y|^2 / W."""
        return float(np.sum(self.w[:, None] * self.Y**2) / np.sum(self.w))


def corners(seed=0, m=20, T=1, start=(0.6, 0.6)):
    rng = np.random.default_rng([seed, m, T])
    X = rng.uniform(-2.0, 2.0, size=(m, 2))
    y = np.tanh(X[:, 0]) + 0.5 * np.sin(1.5 * X[:, 1])
    Y = y[:, None] + 0.1 * rng.normal(size=(m, T))
    centers = 1.5 * np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    B0 = np.diag(start) + 0.05 * rng.normal(size=(2, 2))
    return Corners(X, Y, rng.uniform(0.5, 2.0, size=m), centers, B0)


def gradient_mapping(solver, B, grad, size):
    """(B - proj(B - s grad)) / s, by the oracle's projection; the gradient itself where there is no bound."""
    if getattr(solver, "norm_bound", None) is None:
        return grad
    return (B - oracles.project_spectral_ball(B - size * grad, solver.norm_bound)) / size


class Recorded(NamedTuple):
    solver: object
    case: object
    problem: Corners
    states: list
    result: object


@pytest.fixture(scope="module", params=SOLVERS)
def solver_id(request):
    return request.param


@pytest.fixture(scope="module", params=KERNELS, ids=case_id)
def recorded(solver_id, request):
    """Fifteen iterations with everything the callbacks saw; the last kernel has two targets and starts outside."""
    case, states = request.param, []
    problem = corners(T=2, start=(3.0, 0.3)) if case is KERNELS[-1] else corners()
    solver = SOLVERS[solver_id]
    result = run(solver, problem.objective(case), problem.B0, max_iter=15, tol=0.0, callbacks=[states.append])
    return Recorded(solver, case, problem, states, result)


def test_descends(recorded):
    """The objective never rises: 1e-13 of the loss at zero allows for the rounding of a sum of twenty squares."""
    objective = np.array(recorded.result.history["objective"])
    assert np.max(np.diff(objective)) <= 1e-13 * recorded.problem.loss_at_zero
    assert objective[-1] < 0.999 * objective[0]


def test_stays_in_the_ball(recorded):
    """Every iterate, the start included: clipped singular values are at most the bound, up to the SVD's rounding."""
    bound = getattr(recorded.solver, "norm_bound", None) or np.inf
    assert max(np.linalg.norm(state.B, 2) for state in recorded.states) <= bound + 1e-14


def test_history_agrees_with_the_states(recorded):
    history, states = recorded.result.history, recorded.states
    assert set(history) == {"time", "objective", "grad_norm", "step"}
    assert [state.n_iter for state in states] == list(range(recorded.result.n_iter + 1))
    for name, column in history.items():
        assert column == [getattr(state, name) for state in states]
        assert np.all(np.isfinite(column))
    assert np.all(np.diff(history["time"]) >= 0.0)
    assert history["time"][0] >= 0.0


def test_row_zero_is_the_start(recorded):
    """B0, projected where there is a bound, with the closed form for alpha."""
    bound = getattr(recorded.solver, "norm_bound", None)
    B0, start = recorded.problem.B0, recorded.states[0]
    assert_allclose(start.B, B0 if bound is None else oracles.project_spectral_ball(B0, bound), rtol=0, atol=1e-14)
    expected = oracles.reduced(recorded.case.value, *recorded.problem.arguments, start.B)
    assert recorded.result.history["objective"][0] == pytest.approx(expected, rel=1e-10)


def test_every_objective_belongs_to_its_iterate(recorded):
    """L(B, alpha) by the oracle; the sums differ in their order only, so 1e-10."""
    for state in recorded.states:
        expected = oracles.loss(recorded.case.value, *recorded.problem.arguments, state.B, state.alpha)
        assert state.objective == pytest.approx(expected, rel=1e-10)


def test_grad_norm_is_the_norm_of_the_gradient_mapping(recorded):
    """(B - proj(B - s grad)) / s in B and, for AGD, at most the gradient in alpha beside it.

    The slack of 1e-6 is for the Laplace kernel: the squares of small distances keep half of the digits.
    """
    for state in recorded.states:
        arguments = (*recorded.problem.arguments, state.B, state.alpha)
        grad = oracles.grad_B(recorded.case.value, recorded.case.slope, *arguments)
        size = state.step if hasattr(recorded.solver, "norm_bound") else 1.0
        parts = [np.linalg.norm(gradient_mapping(recorded.solver, state.B, grad, size))]
        if isinstance(recorded.solver, AGD):
            root = math.sqrt(recorded.problem.loss_at_zero)
            parts.append(root * np.linalg.norm(oracles.grad_alpha(recorded.case.value, *arguments)))
        slack = 1e-6 * recorded.problem.loss_at_zero
        assert parts[0] - slack <= state.grad_norm <= np.linalg.norm(parts) + slack


def test_result_is_the_last_state(recorded):
    result, last = recorded.result, recorded.states[-1]
    assert_array_equal(result.B, last.B)
    assert_array_equal(result.alpha, last.alpha)
    assert (result.objective, result.n_iter) == (last.objective, last.n_iter)
    assert result.reason in ("max_iter", "stalled", "converged")
    assert result.message


@every_solver
def test_runs_twice_the_same_and_touches_nothing_else(solver):
    """Bit for bit; the start is not written to, and nobody's random numbers are drawn."""
    problem = corners()
    B0 = problem.B0.copy()
    B0.flags.writeable = False
    legacy, python = np.random.get_state(), random.getstate()  # noqa: NPY002  # the global state is what is watched
    first, second = (run(solver, problem.objective(GAUSSIAN), B0, max_iter=10) for _ in range(2))
    assert_array_equal(first.B, second.B)
    assert_array_equal(first.alpha, second.alpha)
    assert first.history["objective"] == second.history["objective"]
    assert_array_equal(B0, problem.B0)
    assert_array_equal(legacy[1], np.random.get_state()[1])  # noqa: NPY002  # as above
    assert python == random.getstate()


@every_solver
@pytest.mark.parametrize("max_iter", [0, 1, 4])
def test_max_iter(solver, max_iter):
    problem = corners()
    result = run(solver, problem.objective(GAUSSIAN), problem.B0, max_iter=max_iter, tol=0.0)
    assert (result.reason, result.n_iter) == ("max_iter", max_iter)
    assert {len(column) for column in result.history.values()} == {max_iter + 1}
    if max_iter == 0:
        assert_allclose(result.B, problem.B0, rtol=0, atol=1e-14)
        expected = oracles.solve_alpha(GAUSSIAN.value, *problem.arguments, problem.B0)
        assert_allclose(result.alpha, expected, rtol=1e-9, atol=1e-9)


@every_solver
@pytest.mark.parametrize("true", [True, np.True_], ids=["bool", "numpy bool"])
def test_a_callback_ends_the_run(solver, true):
    """Comparisons of arrays give NumPy's booleans: they count as well. The other callbacks see the last state too."""
    problem, seen = corners(), []
    stop = [lambda state: true if state.n_iter == 3 else None, lambda state: seen.append(state.n_iter)]
    result = run(solver, problem.objective(GAUSSIAN), problem.B0, max_iter=20, tol=0.0, callbacks=stop)
    assert (result.reason, result.n_iter) == ("callback", 3)
    assert seen == [0, 1, 2, 3]


class Watched:
    """An objective whose every call goes through ``hook(number of the call, method, arguments)``."""

    def __init__(self, objective, hook):
        self._objective, self._hook, self.calls = objective, hook, 0

    def __getattr__(self, name):
        attribute = getattr(self._objective, name)
        if not callable(attribute):
            return attribute

        def watched(*arguments):
            self.calls += 1
            return self._hook(self.calls, attribute, arguments)

        return watched


@every_solver
def test_keeps_the_time_limit(solver):
    """Every call sleeps: five fill the limit on any machine, and a few more may end what was begun."""

    def sleep_first(call, method, arguments):
        time.sleep(0.02)
        return method(*arguments)

    problem = corners()
    objective = Watched(problem.objective(GAUSSIAN), sleep_first)
    result = run(solver, objective, problem.B0, max_iter=100_000, tol=0.0, time_limit=0.1)
    assert result.reason == "time_limit"
    assert objective.calls <= 5 + 5
    expected = oracles.loss(GAUSSIAN.value, *problem.arguments, result.B, result.alpha)
    assert result.objective == pytest.approx(expected, rel=1e-10)


@every_solver
@pytest.mark.parametrize("name", SMOOTH)
def test_converges_to_a_critical_point(solver, name):
    """The gradient mapping (and AGD's gradient in alpha), by the oracle at the result, is below tol L(., 0)."""
    problem, case = corners(), BY_NAME[name]
    result = run(solver, problem.objective(case), problem.B0, max_iter=5000, tol=1e-4)
    assert result.reason == "converged"
    _assert_critical(solver, case, problem, result, 1e-4)
    assert result.history["grad_norm"][-1] <= 1e-4 * problem.loss_at_zero < result.history["grad_norm"][-2]


@every_solver
def test_callbacks_see_every_state_of_a_run_that_converges(solver):
    """The start, every iterate, and the last one too."""
    problem, seen = corners(), []
    result = run(solver, problem.objective(GAUSSIAN), problem.B0, max_iter=5000, tol=1e-2, callbacks=[seen.append])
    assert result.reason == "converged"
    assert [state.n_iter for state in seen] == list(range(result.n_iter + 1))


@every_solver
@every_kernel
@pytest.mark.parametrize("seed", [0, 1])
def test_never_claims_to_have_converged_where_it_has_not(solver, case, seed):
    """However a run ends, "converged" means a critical point: steps lost in rounding are no sign of one."""
    problem = corners(seed)
    result = run(solver, problem.objective(case), problem.B0, max_iter=300, tol=1e-5)
    if result.reason == "converged":
        _assert_critical(solver, case, problem, result, 1e-5)


def _assert_critical(solver, case, problem, result, tol):
    """|B - proj(B - s grad)|/s falls as s grows, so it is below tol at every s above the last step: here 1e-3."""
    arguments = (*problem.arguments, result.B, result.alpha)
    grad = oracles.grad_B(case.value, case.slope, *arguments)
    size = max(result.history["step"][-1], 1e-3) if hasattr(solver, "norm_bound") else 1.0
    limit = tol * problem.loss_at_zero * (1.0 + 1e-6)
    assert np.linalg.norm(gradient_mapping(solver, result.B, grad, size)) <= limit
    if isinstance(solver, AGD):
        # dL/dalpha has the units of y, dL/dB and the loss those of y^2.
        slope = np.linalg.norm(oracles.grad_alpha(case.value, *arguments))
        assert math.sqrt(problem.loss_at_zero) * slope <= limit


def test_names():
    """The names of the estimator's `solver` and what they stand for."""
    assert [get_solver(name) for name in ("lbfgs", "varpro", "agd")] == [LBFGS(), VarPro(), AGD()]
    solver = AGD(n_alpha=3)
    assert get_solver(solver) is solver
