"""Fits that a callback or an error stops, and a comparison of fitted models."""

import numpy as np
from numpy.testing import assert_array_equal

from hkrr import HyperKernelRidge
from hkrr.solvers import StopRun

FITTED = ("components_", "dual_coef_", "centers_", "intercept_", "gamma_", "reg_lambda_")


class Broken(Exception):
    """Raised by callbacks to stop a fit."""


class BreakAt:
    """A callback that stops the fit at iteration `n_iter`, and lists the iterations at which it was called."""

    def __init__(self, n_iter):
        self.n_iter, self.seen = n_iter, []

    def __call__(self, state):
        self.seen.append(state.n_iter)
        if state.n_iter == self.n_iter:
            raise Broken


def assert_same(found, expected):
    for name in FITTED:
        assert_array_equal(getattr(found, name), getattr(expected, name), err_msg=name)


def ridge(path=None, **more):
    parameters = {"n_centers": 30, "max_iter": 25, "n_init": 2, "random_state": 0, "n_jobs": 1}
    return HyperKernelRidge(**{**parameters, "checkpoint": path, **more})


class UserSolver:
    """A solver written by a user: it takes gradient steps on the reduced function.

    It also calls ``objective.value``, which is not recorded in checkpoints.
    """

    def minimize(self, objective, B0, monitor):
        B = B0
        for _ in range(30):
            found = objective.reduced(B)
            assert objective.value(B, found.alpha) <= 2.0 * found.value
            monitor(B, found.alpha, found.value, float(np.linalg.norm(found.grad)), 0.1)
            B = B - 0.1 * found.grad
        raise StopRun("stalled")


def breaking(function, error, at=1):
    """Return a function that does the same as `function`, but raises `error` at call number `at`."""
    calls = []

    def call(*arguments, **keywords):
        calls.append(1)
        if len(calls) == at:
            raise error
        return function(*arguments, **keywords)

    return call


def interrupt_at(n_iter):
    def call(state):
        if state.n_iter == n_iter:
            raise KeyboardInterrupt

    return call
