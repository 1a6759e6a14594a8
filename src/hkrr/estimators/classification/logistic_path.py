"""The map by the logistic loss: from one that a regression on codes has found, down a path of nu.

Targets of two values invite a flexible map to interpolate them (300 rows of 20 columns, of which no score can classify
more than 87% right: the regression fits all of them, and 75% of new ones). The logistic loss with a large nu undoes
that: the map is polished where scores are small and smooth first, then with a smaller nu from there, and so on.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg.lapack import dpstrf
from scipy.optimize import minimize

from hkrr._arrays import Array
from hkrr.classification.logistic import Coefficients, LogisticObjective
from hkrr.kernels import Kernel
from hkrr.rows import InMemoryRows, Rows
from hkrr.shapes import Diagonal, Full, Scaled, Shape

NUS = tuple(10.0 ** (1.0 - 0.5 * k) for k in range(9))
_STEPS, _TOL = 20, 1e-5  # of L-BFGS at each nu, and of the coefficients between
_HUGE = 1e10
_ROWS, _CENTERS = 2_000, 300
_DEPENDENT = 1e-6


@dataclass(frozen=True)
class Map:
    """A map in the coordinates of the rows, its kernel (of gamma 1, the scale is the map's), and its shape."""

    B: Array
    kernel: Kernel
    shape: Shape

    @classmethod
    def of(cls, components: Array, kernel: Kernel, x_scale: Array, shape: str) -> Map:
        """Return that of a fitted model: components in the coordinates of X, "full", "diagonal" or "identity"."""
        B = np.sqrt(kernel.scale) * components * x_scale
        if shape == "diagonal":
            scales = np.linalg.norm(B, axis=0)
            B = np.diag(np.where(scales > 0, scales, 1.0))  # what is constant has any scale
        return cls(B, kernel.with_gamma(1.0), _shape(shape, B))


def _shape(name: str, B: Array) -> Shape:
    if name == "identity":
        return Scaled(B)
    return Diagonal() if name == "diagonal" else Full()


def polished(
    rows: Rows, start: Map, deadline: float = math.inf
) -> Iterator[tuple[float, Map, LogisticObjective, Coefficients]]:
    """Yield, for each nu of the path, the map polished there, and the coefficients at it; on some rows and centers.

    It ends early where a map cannot be evaluated. After the deadline each nu is given one step.
    """
    rows = some_of(rows, _ROWS)
    points, found, scores = spread(rows.gather()[0], _CENTERS), start, None
    with suppress(ArithmeticError, np.linalg.LinAlgError):
        for nu in NUS:
            objective = LogisticObjective(rows, needed(points, found), start.kernel)
            found, scores = _polish(objective, found, nu, scores, deadline)
            coefficients = objective.solve(found.B, nu, scores, _TOL)
            scores = coefficients.scores
            yield nu, found, objective, coefficients


def needed(points: Array, at: Map) -> Array:
    """Return those of the points at which the kernels, at this map, are no combination of the others.

    By a pivoted Cholesky decomposition of their kernel matrix, up to a part in 10^6 of its diagonal: what is left out
    is far less than nu lets the scores have of it.
    """
    P = points @ at.B.T
    K = at.kernel(P, P)
    _, pivots, rank, _ = dpstrf(K, tol=_DEPENDENT * float(np.max(K.diagonal())), lower=1)
    return points[np.sort(pivots[:rank] - 1)]


def _polish(
    objective: LogisticObjective, start: Map, nu: float, scores: Array | None, deadline: float
) -> tuple[Map, Array | None]:
    """Return the map after some steps on ``min over a, b of L(B, a, b)``, and scores near those at it."""
    shape, last, diagonal = start.shape, scores, isinstance(start.shape, Diagonal)
    first = shape.parameters(start.B.diagonal() if diagonal else start.B)

    def matrix(theta: Array) -> Array:
        B = shape.map(theta.reshape(first.shape))
        return np.diag(B) if diagonal else B

    def value_and_gradient(theta: Array) -> tuple[float, Array]:
        nonlocal last
        B = matrix(theta)
        try:
            found = objective.solve(B, nu, last, _TOL)
        except (ArithmeticError, np.linalg.LinAlgError):
            return _HUGE, np.zeros_like(theta)  # a step too far, which the line search takes back
        last = found.scores
        value, grad = objective.value_and_gradient_in_map(B, found, nu)
        return value, shape.gradient(theta.reshape(first.shape), grad.diagonal() if diagonal else grad).ravel()

    def until_the_deadline(theta: Array) -> None:
        if time.perf_counter() > deadline:
            raise StopIteration

    steps = {"method": "L-BFGS-B", "options": {"maxiter": _STEPS}, "callback": until_the_deadline}
    found = minimize(value_and_gradient, first.ravel(), jac=True, **steps)
    return replace(start, B=matrix(found.x)), last


def some_of(rows: Rows, n: int) -> InMemoryRows:
    """Return at most n of the rows, drawn in a fixed way."""
    few = rows.n_rows <= n
    found: InMemoryRows = rows.in_memory() if few else rows.subset(rows.draw(n, np.random.RandomState(0)))
    return found


def spread(points: Array, n: int) -> Array:
    """Return at most n of the points, evenly spread over their order."""
    return points[np.linspace(0, len(points) - 1, min(n, len(points))).round().astype(int)]
