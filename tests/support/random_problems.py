"""Small random problems and the list of kernels, shared by the tests."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import pytest

from hkrr import kernels
from support import oracles

# Seeds of slow tests. `make test` uses the first seed, `make thorough` uses both seeds.
SEEDS = [0, pytest.param(1, marks=pytest.mark.thorough)]


class Problem(NamedTuple):
    """A regression problem: inputs X, targets y, weights w (or None), centers, a map B and coefficients alpha."""

    X: np.ndarray
    y: np.ndarray
    w: np.ndarray | None
    centers: np.ndarray
    B: np.ndarray
    alpha: np.ndarray

    @property
    def Y(self):
        """The targets as an (m, T) array."""
        return self.y.reshape(len(self.y), -1)

    @property
    def weights(self):
        """The weights, or ones if w is None."""
        return np.ones(len(self.X)) if self.w is None else self.w


def make_problem(m=17, D=4, d=2, c=5, T=1, *, weighted=True, seed=0):
    """Return a random problem with m rows, D columns, d directions, c centers and T targets.

    The inputs are normally distributed, and B is scaled so that Bx has about unit variance. Half of the centers are
    rows of X, so that some distances are zero.
    """
    rng = np.random.default_rng([seed, m, D, d, c, T])
    X = rng.normal(size=(m, D))
    y = rng.normal(size=m if T == 1 else (m, T))
    centers = np.vstack([X[: c // 2], rng.normal(size=(c - c // 2, D))])
    B, alpha = rng.normal(size=(d, D)) / np.sqrt(D), rng.normal(size=(c, T))
    w = rng.uniform(0.5, 2.0, size=m)
    return Problem(X, y, w if weighted else None, centers, B, alpha)


def separated_points(rng, n, c, d):
    """Return points P (n, d) and C (c, d). The coordinates of P and C differ by more than 0.05.

    The points are thus away from the kinks of the kernels, so that finite differences are accurate.
    """
    P = np.round(4.0 * rng.normal(size=(n, d))) / 4.0 + rng.uniform(-0.03, 0.03, size=(n, d))
    C = np.round(4.0 * rng.normal(size=(c, d))) / 4.0 + 0.125 + rng.uniform(-0.03, 0.03, size=(c, d))
    return P, C


def unit_direction(rng, shape):
    """Return a random direction with Frobenius norm 1."""
    direction = rng.normal(size=shape)
    return direction / np.linalg.norm(direction)


def central_difference(f, x, direction, step=1e-5):
    """Return (f(x + h v) - f(x - h v)) / (2 h) for the direction v and the step h.

    The truncation error is about h^2 = 1e-10, and the rounding error is about eps / h = 1e-11.
    """
    return (f(x + step * direction) - f(x - step * direction)) / (2.0 * step)


@dataclass(frozen=True)
class Case:
    """A kernel of the library, with the oracle functions of its value and its gradient (slope)."""

    id: str
    name: str
    kernel: kernels.Kernel
    value: Callable
    slope: Callable
    norm: str | None  # the norm in the median heuristic, or None if the kernel is not translation invariant
    shape: dict  # parameters of the kernel other than gamma

    @property
    def gamma(self):
        """The gamma with which the kernel is evaluated."""
        return 1.0 if self.kernel.gamma is None else self.kernel.gamma


_SHAPES = [
    ("gaussian", kernels.Gaussian, {}, "l2"),
    ("laplace", kernels.Laplace, {}, "l2"),
    ("matern12", kernels.Matern, {"nu": 0.5}, "l2"),
    ("matern32", kernels.Matern, {"nu": 1.5}, "l2"),
    ("matern52", kernels.Matern, {"nu": 2.5}, "l2"),
    ("rational_quadratic", kernels.RationalQuadratic, {"alpha": 1.0}, "l2"),
    ("rational_quadratic", kernels.RationalQuadratic, {"alpha": 0.4}, "l2"),
    ("rational_quadratic", kernels.RationalQuadratic, {"alpha": 3.0}, "l2"),
    ("inverse_multiquadric", kernels.InverseMultiquadric, {}, "l2"),
    ("product_laplace", kernels.ProductLaplace, {}, "l1"),
    ("product_matern", kernels.ProductMatern, {"nu": 0.5}, "l1"),
    ("product_matern", kernels.ProductMatern, {"nu": 1.5}, "l1"),
    ("product_matern", kernels.ProductMatern, {"nu": 2.5}, "l1"),
    ("anova", kernels.Anova, {"nu": 0.5}, "l1"),
    ("anova", kernels.Anova, {"nu": 1.5}, "l1"),
    ("anova", kernels.Anova, {"nu": 2.5}, "l1"),
    ("polynomial", kernels.Polynomial, {"degree": 1, "coef0": 0.0}, None),
    ("polynomial", kernels.Polynomial, {"degree": 2, "coef0": 0.5}, None),
    ("polynomial", kernels.Polynomial, {"degree": 3, "coef0": 1.0}, None),
]


def kernel_cases(*gammas):
    """Return a case for each kernel, each choice of its parameters, and each gamma. If gamma is None, 1 is used."""
    cases = []
    for name, cls, shape, norm in _SHAPES:
        # The kernel matern12 equals the Laplace kernel, whose oracle is used. The oracles of the other Matern kernels
        # take no argument nu.
        formula = "laplace" if name == "matern12" else name
        arguments = {} if cls is kernels.Matern else shape
        for gamma in gammas:
            value = partial(getattr(oracles, formula), gamma=1.0 if gamma is None else gamma, **arguments)
            slope = partial(getattr(oracles, f"{formula}_slope"), gamma=1.0 if gamma is None else gamma, **arguments)
            label = "-".join([name, *(f"{key}{number}" for key, number in shape.items()), f"gamma{gamma}"])
            cases.append(Case(label, name, cls(**shape, gamma=gamma), value, slope, norm, shape))
    return cases


CASES = kernel_cases(None, 0.3, 2.0)
ONE_GAMMA = kernel_cases(0.3)


def torch_gram(torch, case, P, C):
    """Return the kernel matrix, computed by PyTorch so that autograd can differentiate it.

    The constant 1e-300 under the square root makes the derivative at distance zero 0 instead of NaN.
    """
    difference, gamma, shape = P[:, None] - C[None], case.gamma, case.shape
    s, u = (difference**2).sum(-1), math.sqrt(2.0 * gamma) * difference.abs()
    r = (2.0 * gamma * s + 1e-300).sqrt()
    matern = {
        0.5: lambda t: torch.exp(-t),
        1.5: lambda t: (1.0 + math.sqrt(3.0) * t) * torch.exp(-math.sqrt(3.0) * t),
        2.5: lambda t: (1.0 + math.sqrt(5.0) * t + 5.0 / 3.0 * t**2) * torch.exp(-math.sqrt(5.0) * t),
    }
    formulas = {
        "gaussian": lambda: torch.exp(-gamma * s),
        "laplace": lambda: torch.exp(-r),
        **{name: lambda: matern[shape["nu"]](r) for name in ("matern12", "matern32", "matern52")},
        "rational_quadratic": lambda: (1.0 + gamma * s / shape["alpha"]) ** -shape["alpha"],
        "inverse_multiquadric": lambda: (1.0 + 2.0 * gamma * s).rsqrt(),
        "product_laplace": lambda: torch.exp(-u.sum(-1)),
        "product_matern": lambda: matern[shape["nu"]](u).prod(-1),
        "anova": lambda: ((1.0 + matern[shape["nu"]](u)) / 2.0).prod(-1),
        "polynomial": lambda: (gamma * P @ C.T + shape["coef0"]) ** shape["degree"],
    }
    return formulas[case.name]()


def case_id(case):
    """Return the id of a case for pytest."""
    return case.id
