"""Test that the iterates of each solver satisfy its formulas, and that failed runs are reported.

Callbacks record the iterates. The formulas are evaluated at these iterates by the simple implementations in
`support.oracles`. In the docstrings, a denotes the coefficients alpha.
"""

import itertools
import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize

from hkrr import FitError, HyperKernelRidge
from hkrr.objective import Objective
from hkrr.rows import InMemoryRows
from hkrr.solvers import AGD, LBFGS, VarPro, run
from support import oracles
from support.random_problems import case_id
from support.solver_problems import GAUSSIAN, KERNELS, LAMBDA, Watched, corners, every_kernel, every_solver

SMOOTH = [case for case in KERNELS if case.name != "laplace"]
seeds = pytest.mark.parametrize("seed", [0, 1, 2])


def states_of(solver, case, problem, max_iter=12):
    states = []
    run(solver, problem.objective(case), problem.B0, max_iter=max_iter, tol=0.0, callbacks=[states.append])
    assert len(states) > 3, "the run is too short to test anything"
    return states


def step_in_B(case, problem, state, size, bound=1.0):
    """Return proj(B - s dL/dB(B, alpha)) for the step size s and the given norm bound."""
    grad = oracles.grad_B(case.value, case.slope, *problem.arguments, state.B, state.alpha)
    return oracles.project_spectral_ball(state.B - size * grad, bound)


@pytest.mark.parametrize(
    ("solver", "case"),
    [
        pytest.param(solver, case, marks=() if solver == VarPro() or case is GAUSSIAN else pytest.mark.thorough)
        for solver in (VarPro(), VarPro(rho=0.3, delta=0.6, c=0.3), VarPro(s_max=0.2, first_step=0.1))
        for case in KERNELS
    ],
)
def test_varpro_accepts_the_steps_of_the_paper(solver, case):
    """Test that each accepted step size s is the first with L(B+, a) - L(B, a) <= -(c/s) |B+ - B|^2, for fixed a.

    B+ is the map after the step, and a are the coefficients before the step. The trial step sizes are
    rho^k min(last / (rho delta), s_max) with k >= 1, where last is the previous step size. Rounding errors are about
    1e-13 times L. For the Laplace kernel, small distances have only half of the digits, so the maps agree only to 1e-7.
    """
    problem = corners()
    states = states_of(solver, case, problem)

    def change(old, B):
        values = (oracles.loss(case.value, *problem.arguments, b, old.alpha) for b in (B, old.B))
        return next(values) - next(values)

    def bound(old, B, size):
        return -solver.c / size * np.sum((B - old.B) ** 2)

    for old, new in itertools.pairwise(states):
        size, rounding = new.step, 1e-13 * old.objective
        assert_allclose(new.B, step_in_B(case, problem, old, size), rtol=0, atol=1e-7)
        assert change(old, new.B) <= bound(old, new.B, size) + rounding
        trials = math.log(size / min(old.step / (solver.rho * solver.delta), solver.s_max)) / math.log(solver.rho)
        assert trials == pytest.approx(round(trials), abs=1e-9)
        assert trials > 0.5
        if trials > 1.5:
            longer = size / solver.rho
            refused = step_in_B(case, problem, old, longer)
            assert change(old, refused) > bound(old, refused, longer) - rounding


@pytest.mark.parametrize("case", SMOOTH, ids=case_id)
def test_varpro_solves_for_alpha_at_every_iterate(case):
    """Test that the gradient with respect to alpha is zero up to rounding, and that alpha is the oracle's solution."""
    problem = corners(T=2)
    for state in states_of(VarPro(), case, problem):
        hessian = oracles.hessian_alpha(case.value, problem.X, problem.w, problem.centers, LAMBDA, state.B)
        grad = oracles.grad_alpha(case.value, *problem.arguments, state.B, state.alpha)
        assert np.max(np.abs(grad)) <= 1e-12 * np.linalg.norm(hessian) * np.linalg.norm(state.alpha)
        expected = oracles.solve_alpha(case.value, *problem.arguments, state.B)
        assert_allclose(state.alpha, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("n_alpha", "bound"),
    [(1, 1.0), (3, None), *(pytest.param(*pair, marks=pytest.mark.thorough) for pair in [(1, None), (3, 1.0)])],
)
@pytest.mark.parametrize("case", SMOOTH, ids=case_id)
def test_agd_is_the_informal_algorithm(case, n_alpha, bound):
    """Test that an iteration is the step B+ = B - s_B dL/dB(B, a) and n_alpha steps a -= dL/da(B+, a) / L2.

    This is the informal description of AGD in the paper. L2 is the largest eigenvalue of (2/W) K'wK + 2 lambda K_cc,
    the Hessian of L with respect to a. Here K is the kernel matrix of rows and centers, K_cc that of the centers, w the
    diagonal matrix of the weights, and W their sum. The test takes only the step sizes s_B from the run, and repeats
    its twelve iterations independently. Rounding errors add up, so the tolerance is 1e-9.
    """
    problem = corners()
    states = states_of(AGD(n_alpha=n_alpha, alpha_step="lipschitz", norm_bound=bound), case, problem)
    B, alpha = problem.B0, oracles.solve_alpha(case.value, *problem.arguments, problem.B0)
    assert_allclose(states[0].alpha, alpha, rtol=1e-7, atol=1e-7)
    alpha = states[0].alpha
    for state in states[1:]:
        B = B - state.step * oracles.grad_B(case.value, case.slope, *problem.arguments, B, alpha)
        B = B if bound is None else oracles.project_spectral_ball(B, bound)
        hessian = oracles.hessian_alpha(case.value, problem.X, problem.w, problem.centers, LAMBDA, B)
        for _ in range(n_alpha):
            gradient = oracles.grad_alpha(case.value, *problem.arguments, B, alpha)
            alpha = alpha - gradient / np.linalg.eigvalsh(hessian)[-1]
        assert_allclose(state.B, B, rtol=1e-9, atol=1e-9)
        assert_allclose(state.alpha, alpha, rtol=1e-9, atol=1e-9)


@every_kernel
def test_agd_armijo_steps_in_alpha(case):
    """Test that a+ = a - s dL/da(B+, a) with L(B+, a+) - L(B+, a) <= -c s |dL/da(B+, a)|^2.

    a and a+ are the coefficients before and after an iteration. Both sides of the condition use the new map B+.
    """
    problem, solver = corners(T=2), AGD(n_alpha=1, c=0.2)
    states = states_of(solver, case, problem)
    for old, new in itertools.pairwise(states):
        arguments = (*problem.arguments, new.B)
        before, after = (oracles.loss(case.value, *arguments, alpha) for alpha in (old.alpha, new.alpha))
        gradient = oracles.grad_alpha(case.value, *arguments, old.alpha)
        size = np.vdot(old.alpha - new.alpha, gradient) / np.vdot(gradient, gradient)
        assert size > 0.0
        assert_allclose(new.alpha, old.alpha - size * gradient, rtol=0, atol=1e-9 * np.max(np.abs(new.alpha)))
        assert after - before <= -solver.c * size * np.sum(gradient**2) + 1e-13 * before


@pytest.mark.parametrize("alpha_step", ["armijo", "lipschitz"])
@every_kernel
def test_agd_increases_in_neither_variable(case, alpha_step):
    """Test that L(B, a) >= L(B+, a) >= L(B+, a+), up to rounding of a sum.

    (B, a) and (B+, a+) are the iterates before and after a step.
    """
    problem = corners()
    states = states_of(AGD(alpha_step=alpha_step), case, problem)
    for old, new in itertools.pairwise(states):
        between = oracles.loss(case.value, *problem.arguments, new.B, old.alpha)
        assert between <= old.objective + 1e-13 * problem.loss_at_zero
        assert new.objective <= between + 1e-13 * problem.loss_at_zero


@seeds
def test_lbfgs_and_bfgs_find_the_same_minimum(seed):
    """Test that L-BFGS finds the same minimum as SciPy's BFGS from the same start.

    BFGS minimizes the oracle's reduced function. Both solvers stop when the norm of the gradient is about 1e-7.
    """
    problem = corners(seed, m=12)

    def reduced(x):
        B = x.reshape(2, 2)
        alpha = oracles.solve_alpha(GAUSSIAN.value, *problem.arguments, B)
        gradient = oracles.grad_B(GAUSSIAN.value, GAUSSIAN.slope, *problem.arguments, B, alpha)
        return oracles.loss(GAUSSIAN.value, *problem.arguments, B, alpha), gradient.ravel()

    peer = minimize(reduced, problem.B0.ravel(), jac=True, method="BFGS", options={"gtol": 1e-7})
    result = run(LBFGS(), problem.objective(GAUSSIAN), problem.B0, max_iter=500, tol=1e-7)
    assert result.objective == pytest.approx(peer.fun, rel=1e-9)


@seeds
@pytest.mark.parametrize("tol", [1e-5, 1e-7])
def test_lbfgs_continues_until_tol(seed, tol):
    """Test that L-BFGS reaches a small gradient. The reduced function is smooth and accurate to 1e-15."""
    problem = corners(seed)
    result = run(LBFGS(), problem.objective(GAUSSIAN), problem.B0, max_iter=500, tol=tol)
    assert result.reason == "converged"
    assert result.history["grad_norm"][-1] <= tol * problem.loss_at_zero


def planted(centers, axes):
    """Return X, Y and the centers, where Y is a combination of kernels at the centers for the map B = 2 I.

    X contains the points of a grid, and `axes` are the coordinates of these points along each axis. The map 2 I is
    outside the ball of maps with norm at most one.
    """
    X = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, len(axes))
    Y = oracles.gram(GAUSSIAN.value, 2.0 * X, 2.0 * centers) @ np.array([[1.0], [-1.0], [-1.0], [1.0]])
    return X, Y, centers


def interval():
    return planted(np.array([[-1.5], [-0.5], [0.5], [1.5]]), [np.linspace(-2.0, 2.0, 17)])


def plane():
    return planted(corners().centers, [np.linspace(-2.0, 2.2, 5), np.linspace(-2.1, 2.0, 5)])


@pytest.mark.parametrize("make", [interval, plane])
@pytest.mark.parametrize("solver", [VarPro(), AGD(), AGD(alpha_step="lipschitz")], ids=["VarPro", "AGD", "lipschitz"])
def test_stops_at_a_critical_point_on_the_boundary(make, solver):
    """Test that a solver converges to a point where the norm bound is active.

    At this point the gradient mapping is zero, but the gradient is not.
    """
    X, Y, centers = make()
    arguments, scale = (X, Y, np.ones(len(X)), centers, 1e-2), np.mean(Y**2)
    objective = Objective(InMemoryRows(X, Y), centers, GAUSSIAN.kernel, 1e-2)
    result = run(solver, objective, 0.5 * np.eye(X.shape[1]), max_iter=20_000, tol=1e-6)
    assert result.reason == "converged"
    assert np.linalg.norm(result.B, 2) == pytest.approx(1.0, abs=1e-12)
    gradient = oracles.grad_B(GAUSSIAN.value, GAUSSIAN.slope, *arguments, result.B, result.alpha)
    assert np.linalg.norm(gradient) > 1e-2 * scale
    size = max(result.history["step"][-1], 1e-3)
    moved = result.B - oracles.project_spectral_ball(result.B - size * gradient)
    assert np.linalg.norm(moved) / size <= 1e-6 * scale * (1 + 1e-6)

    free = run(LBFGS(), objective, result.B, max_iter=500).B
    assert np.linalg.norm(free, 2) > 1.2, "the minimizer without the bound must be outside the ball"
    assert oracles.reduced(GAUSSIAN.value, *arguments, free) < 0.9 * result.objective


class Descent:
    """A solver written by a user: gradient steps of constant size on the reduced function, computed in place."""

    def __init__(self, size):
        self.size = size

    def minimize(self, objective, B0, monitor):
        B, alpha, step = B0.copy(), objective.solve_alpha(B0), 0.0
        while True:
            reduced = objective.reduced(B)
            alpha[:] = reduced.alpha
            monitor(B, alpha, reduced.value, float(np.linalg.norm(reduced.grad)), step)
            step = self.size
            B -= step * reduced.grad


class FailingDescent(Descent):
    """A solver whose iterate number `at` is invalid.

    Its map is zero (``how="collapsed"``), or its coefficients and value are not finite (``how="not_finite"``).
    """

    def __init__(self, how, at=3):
        super().__init__(0.2)
        self.how, self.at = how, at

    def minimize(self, objective, B0, monitor):
        calls = iter(range(1_000_000))

        def spoil(B, alpha, value, norm, step):
            if next(calls) == self.at:
                B *= 0.0 if self.how == "collapsed" else 1.0
                alpha *= math.nan if self.how == "not_finite" else 1.0
                value = math.inf if self.how == "not_finite" else value
            monitor(B, alpha, value, norm, step)

        super().minimize(objective, B0, spoil)


def test_a_user_s_solver_runs_in_the_same_driver():
    """Test that the history, the callbacks and the tolerance work for a user's solver.

    The solver computes steps in place. This must not modify the states that callbacks keep.
    """
    problem, states = corners(), []
    result = run(Descent(0.5), problem.objective(GAUSSIAN), problem.B0, max_iter=9, tol=0.0, callbacks=[states.append])
    assert (result.reason, result.n_iter, len(states)) == ("max_iter", 9, 10)
    for state in states:
        expected = oracles.loss(GAUSSIAN.value, *problem.arguments, state.B, state.alpha)
        assert state.objective == pytest.approx(expected, rel=1e-10)
    result = run(Descent(0.5), problem.objective(GAUSSIAN), problem.B0, max_iter=5000, tol=1e-3)
    assert result.reason == "converged"
    X, y = problem.X, problem.Y[:, 0]
    fitted = HyperKernelRidge(solver=Descent(0.5), max_iter=3, tol=0.0, random_state=0).fit(X, y)
    assert (fitted.result_.reason, fitted.n_iter_) == ("max_iter", 3)


@pytest.mark.parametrize("how", ["collapsed", "not_finite"])
def test_a_failed_run_keeps_the_last_valid_iterate(how):
    problem = corners()
    result = run(FailingDescent(how), problem.objective(GAUSSIAN), problem.B0, max_iter=50, tol=0.0)
    valid = run(Descent(0.2), problem.objective(GAUSSIAN), problem.B0, max_iter=2, tol=0.0)
    assert (result.reason, result.n_iter) == (how, 2)
    assert_array_equal(result.B, valid.B)
    assert_array_equal(result.alpha, valid.alpha)
    assert result.objective == valid.objective
    assert {len(column) for column in result.history.values()} == {3}
    assert np.all(np.isfinite(result.history["objective"]))


@pytest.mark.parametrize(("how", "at"), [("collapsed", 3), ("not_finite", 3), ("not_finite", 0)])
def test_the_estimator_raises_for_a_failed_run(how, at):
    problem = corners()
    model = HyperKernelRidge(solver=FailingDescent(how, at), random_state=0)
    with pytest.raises(FitError, match="collapsed to zero" if how == "collapsed" else "finite"):
        model.fit(problem.X, problem.Y[:, 0])
    assert not hasattr(model, "components_")


@every_solver
@pytest.mark.parametrize("n", [4, 5, 6, 9])
def test_an_objective_that_becomes_nan_stops_the_run(solver, n):
    """Test that a run stops at its last valid iterate if the objective returns NaN from its n-th call on.

    This call can be anywhere in an iteration.
    """

    def spoil(call, method, arguments):
        return method(*arguments) if call < n else method(*(math.nan * a for a in arguments))

    problem = corners()
    result = run(solver, Watched(problem.objective(GAUSSIAN), spoil), problem.B0, max_iter=100, tol=0.0)
    assert result.reason == "not_finite"
    expected = oracles.loss(GAUSSIAN.value, *problem.arguments, result.B, result.alpha)
    assert result.objective == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize(
    ("solver", "name", "value"),
    [(cls, name, value) for cls in (VarPro, AGD) for name in ("norm_bound", "first_step") for value in (0.0, -1.0)]
    + [(cls, name, math.nan) for cls in (VarPro, AGD) for name in ("norm_bound", "first_step", "rho", "s_max")]
    + [(cls, name, value) for cls in (VarPro, AGD) for name, value in [("rho", 1.0), ("delta", 0.0), ("c", 0.0)]]
    + [(AGD, "n_alpha", value) for value in (0, -1, 1.5)]
    + [(AGD, "alpha_step", "newton"), (LBFGS, "memory", 0), (LBFGS, "memory", 2.5)],
)
def test_solvers_reject_bad_parameters_by_name(solver, name, value):
    with pytest.raises((ValueError, TypeError), match=rf"\b{name}\b"):
        solver(**{name: value})


@pytest.mark.parametrize("options", [{"first_alpha_step": 0.0}, {"first_alpha_step": 0.1, "alpha_step": "lipschitz"}])
def test_an_invalid_first_alpha_step_is_refused(options):
    with pytest.raises(ValueError, match="first_alpha_step"):
        AGD(**options)


class MapOnly:
    """An objective that, like the criteria, has only the reduced function and no value for given coefficients."""

    def __init__(self, objective):
        self.n_centers, self.loss_at_zero, self.reg_lambda = objective.n_centers, objective.loss_at_zero, 0.1
        self.learn_lambda, self.reduced = False, objective.reduced


@pytest.mark.parametrize(("solver", "missing"), [(VarPro(), "solve_alpha"), (AGD(), "inner")])
def test_a_solver_names_the_attributes_that_an_objective_lacks(solver, missing):
    problem = corners()
    objective = MapOnly(problem.objective(GAUSSIAN))
    with pytest.raises(
        TypeError, match=rf"{type(solver).__name__} cannot minimize .* MapOnly, which lacks .*'{missing}'"
    ):
        run(solver, objective, problem.B0)
    assert run(LBFGS(), objective, problem.B0, max_iter=2).n_iter == 2
    for name in ("learn_lambda", "loss_at_zero"):
        incomplete = MapOnly(objective)
        delattr(incomplete, name)
        with pytest.raises(TypeError, match=f"lacks the attribute '{name}'"):
            run(LBFGS(), incomplete, problem.B0)
