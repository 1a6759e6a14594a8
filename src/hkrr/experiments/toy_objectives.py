"""The paper's two toy functions of two variables (appendix D.2), as objectives for the library's solvers.

The functions are ``f(x, y) = (x - h(y))^2 + cos(pi y) + (1 - y)^2 + 1``, where h(y) is y^2 or the sigmoid of y. The
variable x plays the role of the coefficients alpha, and y plays the role of the map B, as a 1 x 1 matrix. Like the loss
L(B, alpha), f is quadratic in x and not convex in y. For fixed y, the minimizer is x = h(y). If x is eliminated, the
reduced function ``cos(pi y) + (1 - y)^2 + 1`` is the same for both choices of h. Its global minimum is 0 at y = 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hkrr._base.linear_algebra import Array
from hkrr.objective import Quadratic, Reduced
from hkrr.solvers import AGD, LBFGS, Solver, State, VarPro, run

# Names of the two choices of h: y^2 and the sigmoid of y.
LINKS = ("square", "sigmoid")
# Initial step sizes of the line searches. The results depend on the initial step size, which the paper does not state.
FIRST_STEPS = (0.01, 0.1, 1.0)
# Number of steps of AGD in x for each step in y. The paper does not state this number. With 1, steps in x and y
# alternate. With 10, x would be close to h(y), and AGD would behave almost like VarPro.
N_ALPHA = 1


@dataclass(frozen=True)
class Toy:
    """The function f(x, y) with x = alpha and y = B, as an objective for the solvers.

    ``x0`` is the initial x of AGD (the paper's alpha^0). AGD calls `solve_alpha` only before its first iteration, to
    get the initial x. `solve_alpha` therefore returns ``x0`` if it is set. For VarPro and L-BFGS, ``x0`` is None, and
    `solve_alpha` returns h(y).
    """

    link: str
    x0: float | None = None

    reg_lambda = 0.0
    # The tolerances of the solvers are relative to this loss.
    loss_at_zero = 1.0
    n_centers = 1
    learn_lambda = False

    def h(self, y: float) -> float:
        """Return h(y), the x that minimizes f for fixed y."""
        return y * y if self.link == "square" else 1.0 / (1.0 + math.exp(-y))

    def h_slope(self, y: float) -> float:
        """Return h'(y)."""
        return 2.0 * y if self.link == "square" else self.h(y) * (1.0 - self.h(y))

    def rest(self, y: float) -> float:
        """Return ``cos(pi y) + (1 - y)^2 + 1``, the reduced function."""
        return math.cos(math.pi * y) + (1.0 - y) ** 2 + 1.0

    def rest_slope(self, y: float) -> float:
        """Return the derivative of the reduced function."""
        return -math.pi * math.sin(math.pi * y) - 2.0 * (1.0 - y)

    def at(self, x: float, y: float) -> float:
        """Return f(x, y)."""
        return (x - self.h(y)) ** 2 + self.rest(y)

    def value(self, B: Array, alpha: Array) -> float:
        """Return f(alpha, B)."""
        return self.at(float(alpha[0, 0]), float(B[0, 0]))

    def value_and_grad_B(self, B: Array, alpha: Array) -> tuple[float, Array]:
        """Return f(alpha, B) and its derivative with respect to y = B."""
        x, y = float(alpha[0, 0]), float(B[0, 0])
        slope = -2.0 * (x - self.h(y)) * self.h_slope(y) + self.rest_slope(y)
        return self.at(x, y), np.array([[slope]])

    def solve_alpha(self, B: Array) -> Array:
        """Return the initial value ``x0`` if it is set, and h(y) otherwise."""
        return np.array([[self.h(float(B[0, 0])) if self.x0 is None else self.x0]])

    def inner(self, B: Array) -> Quadratic:
        """Return f as a quadratic function of x, for fixed y."""
        y = float(B[0, 0])
        return Quadratic(np.array([[1.0]]), np.array([[self.h(y)]]), self.h(y) ** 2 + self.rest(y))

    def reduced(self, B: Array) -> Reduced:
        """Return the reduced function at y, its derivative and the minimizing x."""
        y = float(B[0, 0])
        return Reduced(self.rest(y), np.array([[self.rest_slope(y)]]), self.solve_alpha(B))


def minimise(
    link: str, method: str, x0: float, y0: float, max_iter: int, first_step: float
) -> list[tuple[float, float, float]]:
    """Return the iterates (x, y, f(x, y)) of a method that starts at (x0, y0).

    `link` selects h, and `first_step` is the initial step size of the line searches of VarPro and AGD. In the first
    iteration, VarPro and L-BFGS only move x to h(y), the minimizer of f for fixed y.
    """
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
    # AGD also calls `record` at the starting point, so the first iterate is a duplicate.
    return path[1:] if method == "AGD" else path


def arrived(y: float) -> bool:
    """Return whether y is close to the global minimum at 1."""
    return abs(y - 1.0) < 0.05
