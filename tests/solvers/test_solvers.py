"""Tests that all solvers must pass with all kernels.

The simple implementations in `support.oracles` recompute the objective at the iterates. The history, the callbacks, the
limits and the reasons for stopping are tested for each solver.
"""

import math
import random
import time
from typing import NamedTuple

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from hkrr.solvers import AGD, LBFGS, VarPro, get_solver, run
from support import oracles
from support.random_problems import case_id
from support.solver_problems import (
    BY_NAME,
    GAUSSIAN,
    KERNELS,
    SMOOTH,
    SOLVERS,
    Corners,
    Watched,
    corners,
    every_solver,
)


def gradient_mapping(solver, B, grad, size):
    """Return (B - proj(B - s grad)) / s for the step size s, or the gradient if the solver has no norm bound."""
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
    """Return a run of 15 iterations and its states.

    The problem of the last kernel has two targets. The norm of its starting map is above the norm bound.
    """
    case, states = request.param, []
    problem = corners(T=2, start=(3.0, 0.3)) if case is KERNELS[-1] else corners()
    solver = SOLVERS[solver_id]
    result = run(solver, problem.objective(case), problem.B0, max_iter=15, tol=0.0, callbacks=[states.append])
    return Recorded(solver, case, problem, states, result)


def test_descends(recorded):
    """Test that the objective never increases, up to the rounding of a sum of twenty squares."""
    objective = np.array(recorded.result.history["objective"])
    assert np.max(np.diff(objective)) <= 1e-13 * recorded.problem.loss_at_zero
    assert objective[-1] < 0.999 * objective[0]


def test_stays_in_the_ball(recorded):
    """Test that the norm of every iterate, including the start, is at most the bound, up to rounding in the SVD."""
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
    """Test that the first state is B0 (projected if there is a norm bound) with the closed-form solution for alpha."""
    bound = getattr(recorded.solver, "norm_bound", None)
    B0, start = recorded.problem.B0, recorded.states[0]
    assert_allclose(start.B, B0 if bound is None else oracles.project_spectral_ball(B0, bound), rtol=0, atol=1e-14)
    expected = oracles.reduced(recorded.case.value, *recorded.problem.arguments, start.B)
    assert recorded.result.history["objective"][0] == pytest.approx(expected, rel=1e-10)


def test_every_objective_belongs_to_its_iterate(recorded):
    """Test that each recorded objective equals L(B, alpha) of the oracle at its iterate.

    The oracle sums in a different order, so the tolerance is 1e-10.
    """
    for state in recorded.states:
        expected = oracles.loss(recorded.case.value, *recorded.problem.arguments, state.B, state.alpha)
        assert state.objective == pytest.approx(expected, rel=1e-10)


def test_grad_norm_is_the_norm_of_the_gradient_mapping(recorded):
    """Test that `grad_norm` is the norm of the gradient mapping (B - proj(B - s grad)) / s.

    proj is the projection to the norm bound, s the step size, and grad the gradient with respect to B. For AGD,
    `grad_norm` may also include the gradient with respect to alpha. The tolerance is 1e-6 because small distances, in
    the Laplace kernel, have only half of the digits.
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
    assert type(result.reason) is str
    assert result.reason in ("max_iter", "stalled", "converged")
    assert result.message


@every_solver
def test_is_deterministic_and_has_no_side_effects(solver):
    """Test that two runs agree in every bit, B0 is not modified, and the global random states are unchanged."""
    problem = corners()
    B0 = problem.B0.copy()
    B0.flags.writeable = False
    legacy, python = np.random.get_state(), random.getstate()  # noqa: NPY002  # the global state is tested
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
def test_a_callback_stops_the_run(solver, true):
    """Test that a callback stops the run by returning True or a NumPy boolean.

    All other callbacks are still called with the last state.
    """
    problem, seen = corners(), []
    stop = [lambda state: true if state.n_iter == 3 else None, lambda state: seen.append(state.n_iter)]
    result = run(solver, problem.objective(GAUSSIAN), problem.B0, max_iter=20, tol=0.0, callbacks=stop)
    assert (result.reason, result.n_iter) == ("callback", 3)
    assert seen == [0, 1, 2, 3]


@every_solver
def test_respects_the_time_limit(solver):
    """Test that a run with a slow objective stops soon after the time limit.

    Five calls of the objective exceed the limit. The solver may make five more calls to finish the iteration.
    """

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
    """Test that the norm of the gradient mapping at the result is at most ``tol`` times the loss of the zero function.

    For AGD the same holds for the gradient with respect to alpha.
    """
    problem, case = corners(), BY_NAME[name]
    result = run(solver, problem.objective(case), problem.B0, max_iter=5000, tol=1e-4)
    assert result.reason == "converged"
    _assert_critical(solver, case, problem, result, 1e-4)
    assert result.history["grad_norm"][-1] <= 1e-4 * problem.loss_at_zero < result.history["grad_norm"][-2]


@every_solver
def test_callbacks_see_every_state_of_a_run_that_converges(solver):
    """Test that callbacks are called with the start and all iterates, including the last iterate."""
    problem, seen = corners(), []
    result = run(solver, problem.objective(GAUSSIAN), problem.B0, max_iter=5000, tol=1e-2, callbacks=[seen.append])
    assert result.reason == "converged"
    assert [state.n_iter for state in seen] == list(range(result.n_iter + 1))


@every_solver
@pytest.mark.parametrize(
    ("case", "seed"),
    [
        # The test `test_converges_to_a_critical_point` covers the other kernels.
        pytest.param(case, seed, marks=() if seed == 0 and case in KERNELS[-2:] else pytest.mark.thorough)
        for case in KERNELS
        for seed in (0, 1)
    ],
)
def test_converged_means_a_critical_point(solver, case, seed):
    """Test that the result is a critical point if the reason is "converged".

    In particular, a run is not called converged because its steps are lost in rounding.
    """
    problem = corners(seed)
    result = run(solver, problem.objective(case), problem.B0, max_iter=300, tol=1e-5)
    if result.reason == "converged":
        _assert_critical(solver, case, problem, result, 1e-5)


def _assert_critical(solver, case, problem, result, tol):
    """Assert that the norm of the gradient mapping is at most ``tol`` times the loss of the zero function.

    A larger step size does not increase this norm, so any step size above the last step size can be used.
    """
    arguments = (*problem.arguments, result.B, result.alpha)
    grad = oracles.grad_B(case.value, case.slope, *arguments)
    size = max(result.history["step"][-1], 1e-3) if hasattr(solver, "norm_bound") else 1.0
    limit = tol * problem.loss_at_zero * (1.0 + 1e-6)
    assert np.linalg.norm(gradient_mapping(solver, result.B, grad, size)) <= limit
    if isinstance(solver, AGD):
        # dL/dalpha has the units of y. It is multiplied by the root of a loss, because dL/dB and the loss have the
        # units of y^2.
        slope = np.linalg.norm(oracles.grad_alpha(case.value, *arguments))
        assert math.sqrt(problem.loss_at_zero) * slope <= limit


def test_names():
    """Test that a name gives a solver with default parameters, and that a solver is returned unchanged."""
    assert [get_solver(name) for name in ("lbfgs", "varpro", "agd")] == [LBFGS(), VarPro(), AGD()]
    solver = AGD(n_alpha=3)
    assert get_solver(solver) is solver
