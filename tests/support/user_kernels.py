"""Two user-defined kernels with their oracles, used to test all functions that accept a kernel."""

from dataclasses import dataclass

import numpy as np

from hkrr import kernels
from support import oracles
from support.random_problems import Case


@dataclass(frozen=True)
class InverseSquare(kernels.Radial):
    """A user-defined radial kernel 2 (1 + gamma s)^-2 with s = |p - c|^2. Its diagonal is 2 instead of 1."""

    gamma: float | None = None

    def value_and_decay(self, u):
        """Return phi(u) = 2 (1 + u)^-2 and -phi'(u), where u = gamma |p - c|^2."""
        return 2.0 * (1.0 + u) ** -2.0, 4.0 * (1.0 + u) ** -3.0


@dataclass(frozen=True)
class LinearGaussian(kernels.Kernel):
    """A user-defined kernel (1 + gamma p.c) exp(-gamma |p - c|^2) that implements only the two abstract methods."""

    gamma: float | None = None

    def __call__(self, P, C):
        """Return the kernel matrix."""
        return self.vjp(P, C)[0]

    def vjp(self, P, C):
        """Return the kernel matrix and its pullback."""
        gamma = 1.0 if self.gamma is None else self.gamma
        E = np.exp(-gamma * ((P[:, None] - C[None]) ** 2).sum(axis=2))
        linear = 1.0 + gamma * P @ C.T

        def pullback(G):
            GE, GK = G * E, G * E * linear
            dP = GE @ C - 2.0 * (GK.sum(axis=1)[:, None] * P - GK @ C)
            dC = GE.T @ P - 2.0 * (GK.sum(axis=0)[:, None] * C - GK.T @ P)
            return gamma * dP, gamma * dC

        return E * linear, pullback


def _inverse_square(p, c):
    return 2.0 * (1.0 + 0.3 * oracles.squared_distance(p, c)) ** -2.0


def _inverse_square_slope(p, c):
    return oracles.radial_gradient(p, c, -2.4 * (1.0 + 0.3 * oracles.squared_distance(p, c)) ** -3.0)


def _linear_gaussian(p, c):
    return (1.0 + 0.3 * oracles.dot(p, c)) * oracles.gaussian(p, c, 0.3)


def _linear_gaussian_slope(p, c):
    left = 0.3 * oracles.gaussian(p, c, 0.3) * np.asarray(c)
    return left + (1.0 + 0.3 * oracles.dot(p, c)) * oracles.gaussian_slope(p, c, 0.3)


USER = [
    Case("user-radial", "user", InverseSquare(gamma=0.3), _inverse_square, _inverse_square_slope, "l2", {}),
    Case("user-kernel", "user", LinearGaussian(gamma=0.3), _linear_gaussian, _linear_gaussian_slope, None, {}),
]
