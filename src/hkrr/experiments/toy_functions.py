"""The paper's two functions of two variables (appendix D.2), as objectives that the library's own solvers minimise.

``f(x, y) = (x - h(y))^2 + cos(pi y) + (1 - y)^2 + 1`` with h(y) = y^2 or the sigmoid: like L(B, a), a quadratic in the
first variable, whose minimiser is x = h(y), and not convex in the second. y stands for the map B, a 1 x 1 matrix, and x
for the coefficients. What is left when x is eliminated is the same for both, ``cos(pi y) + (1 - y)^2 + 1``, with its
global minimum 0 at y = 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hkrr._arrays import Array
from hkrr.objective import Quadratic, Reduced
from hkrr.solvers import AGD, LBFGS, Solver, State, VarPro, run

LINKS = ("square", "sigmoid")
METHODS = ("VarPro", "AGD", "L-BFGS")
# The paper does not say with which step its line searches begin, and that decides much: three are tried.
FIRST_STEPS = (0.01, 0.1, 1.0)
# Nor how many steps AGD makes in x for one in y. One: it alternates. (With ten, x is nearly h(y), AGD nearly VarPro.)
N_ALPHA = 1


@dataclass(frozen=True)
class Toy:
    """f(x, y) with x = alpha and y = B, and what the solvers ask of an objective.

    ``x0`` is where AGD starts (the paper's alpha^0), which asks for the coefficients in closed form only there; the
    other methods have no x but h(y).
    """

    link: str
    x0: float | None = None

    reg_lambda = 0.0
    loss_at_zero = 1.0  # what tolerances are relative to
    n_centers = 1
    learn_lambda = False

    def h(self, y: float) -> float:
        """Return the minimiser in x."""
        return y * y if self.link == "square" else 1.0 / (1.0 + math.exp(-y))

    def h_slope(self, y: float) -> float:
        """Return h'(y)."""
        return 2.0 * y if self.link == "square" else self.h(y) * (1.0 - self.h(y))

    def rest(self, y: float) -> float:
        """Return ``cos(pi y) + (1 - y)^2 + 1``, the reduced function."""
        return math.cos(math.pi * y) + (1.0 - y) ** 2 + 1.0

    def rest_slope(self, y: float) -> float:
        """Return its derivative."""
        return -math.pi * math.sin(math.pi * y) - 2.0 * (1.0 - y)

    def at(self, x: float, y: float) -> float:
        """Return f(x, y)."""
        return (x - self.h(y)) ** 2 + self.rest(y)

    def value(self, B: Array, alpha: Array) -> float:
        """Return f."""
        return self.at(float(alpha[0, 0]), float(B[0, 0]))

    def value_and_grad_B(self, B: Array, alpha: Array) -> tuple[float, Array]:
        """Return f and df/dy."""
        x, y = float(alpha[0, 0]), float(B[0, 0])
        slope = -2.0 * (x - self.h(y)) * self.h_slope(y) + self.rest_slope(y)
        return self.at(x, y), np.array([[slope]])

    def solve_alpha(self, B: Array) -> Array:
        """Return x = h(y), or the x to start from."""
        return np.array([[self.h(float(B[0, 0])) if self.x0 is None else self.x0]])

    def inner(self, B: Array) -> Quadratic:
        """Return f(., y), a quadratic in x."""
        y = float(B[0, 0])
        return Quadratic(np.array([[1.0]]), np.array([[self.h(y)]]), self.h(y) ** 2 + self.rest(y), 0.0)

    def reduced(self, B: Array) -> Reduced:
        """Return the function of y alone, its slope, and x."""
        y = float(B[0, 0])
        return Reduced(self.rest(y), np.array([[self.rest_slope(y)]]), self.solve_alpha(B))


def minimise(
    link: str, method: str, x0: float, y0: float, max_iter: int, first_step: float
) -> list[tuple[float, float, float]]:
    """Return the iterates (x, y, f) of a method from a start; VarPro and L-BFGS go to x = h(y) at once."""
    toy = Toy(link)
    path = [(x0, y0, toy.at(x0, y0))]

    def record(state: State) -> None:
        path.append((float(state.alpha[0, 0]), float(state.B[0, 0]), state.objective))

    solvers: dict[str, Solver] = {
        "VarPro": VarPro(norm_bound=None, first_step=first_step),
        "AGD": AGD(norm_bound=None, first_step=first_step, n_alpha=N_ALPHA, first_alpha_step=first_step),
        "L-BFGS": LBFGS(),
    }
    objective = Toy(link, x0) if method == "AGD" else toy
    run(solvers[method], objective, np.array([[y0]]), max_iter=max_iter, tol=1e-8, callbacks=[record])
    return path[1:] if method == "AGD" else path  # AGD reports the start itself


def arrived(y: float) -> bool:
    """Return whether that is the global minimum, y = 1."""
    return abs(y - 1.0) < 0.05
