"""A small well-conditioned problem, and the solvers and kernels that are tested on it."""

from typing import NamedTuple

import numpy as np
import pytest

from hkrr.objective import Objective
from hkrr.rows import InMemoryRows
from hkrr.solvers import AGD, LBFGS, VarPro
from support.random_problems import ONE_GAMMA, case_id

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
    """A well-conditioned problem: the centers are the corners of a square, so no two mapped centers are close."""

    X: np.ndarray
    Y: np.ndarray
    w: np.ndarray
    centers: np.ndarray
    B0: np.ndarray

    def objective(self, case):
        return Objective(InMemoryRows(self.X, self.Y, self.w), self.centers, case.kernel, LAMBDA)

    @property
    def arguments(self):
        """Arguments for the functions in `oracles`: those between the kernel and the map B."""
        return self.X, self.Y, self.w, self.centers, LAMBDA

    @property
    def loss_at_zero(self):
        """Loss of the zero function, sum w |y|^2 / W, where W is the sum of the weights."""
        return float(np.sum(self.w[:, None] * self.Y**2) / np.sum(self.w))


def corners(seed=0, m=20, T=1, start=(0.6, 0.6)):
    rng = np.random.default_rng([seed, m, T])
    X = rng.uniform(-2.0, 2.0, size=(m, 2))
    y = np.tanh(X[:, 0]) + 0.5 * np.sin(1.5 * X[:, 1])
    Y = y[:, None] + 0.1 * rng.normal(size=(m, T))
    centers = 1.5 * np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    B0 = np.diag(start) + 0.05 * rng.normal(size=(2, 2))
    return Corners(X, Y, rng.uniform(0.5, 2.0, size=m), centers, B0)


class Watched:
    """An objective that calls ``hook(call, method, arguments)`` instead of each method. `call` counts the calls."""

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
