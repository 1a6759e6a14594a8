"""Learning the map by minimizing the logistic loss for decreasing penalties nu.

The initial map is the map of a regression on the indicators of the classes. With such targets, a flexible map tends to
interpolate the training rows. For example, on 300 rows with 20 columns, where the best possible accuracy is 87%, the
regression classifies all training rows correctly, but only 75% of new rows. The logistic loss with a large nu undoes
this overfitting: the scores are small and smooth, and the map is refined for such scores. Then nu is lowered. The
refinement at each nu starts from the map of the previous nu.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg.lapack import dpstrf
from scipy.optimize import minimize

from hkrr._base.linear_algebra import Array
from hkrr.estimators.classification.logistic_objective import Coefficients, LogisticObjective
from hkrr.kernels import Kernel
from hkrr.rows import Rows

# The penalties nu, from 10 to 0.001.
NUS = tuple(10.0 ** (1.0 - 0.5 * k) for k in range(9))
# Maximum number of L-BFGS iterations at each nu.
_MAX_STEPS = 20
# Tolerance on the gradient for the solver of the coefficients.
_COEFFICIENT_TOL = 1e-5
# Value that replaces the objective at maps where the objective cannot be evaluated.
_FAILED_VALUE = 1e10
# Maximum number of centers that are used to refine the map.
_MAX_CENTERS = 300
# Tolerance of the pivoted Cholesky decomposition, relative to the largest diagonal entry.
_DEPENDENCE_TOL = 1e-6


@dataclass(frozen=True)
class Map:
    """A full map for standardized rows, with its kernel. The map includes the scale, so gamma is 1."""

    B: Array
    kernel: Kernel

    @classmethod
    def of(cls, components: Array, kernel: Kernel, x_scale: Array) -> Map:
        """Return the map of a fitted model.

        `components` is the map in the original units of X, and `x_scale` contains the numbers by which standardization
        divides the columns.
        """
        return cls(np.sqrt(kernel.scale) * components * x_scale, kernel.with_gamma(1.0))


def refined_maps(
    rows: Rows, start: Map, deadline: float
) -> Iterator[tuple[float, Map, LogisticObjective, Coefficients]]:
    """Yield nu, the refined map, the objective and the coefficients, for decreasing values of nu.

    The objective uses at most 300 centers. The iteration ends early if the objective cannot be evaluated
    at a map. After the deadline, the map is refined by a single L-BFGS iteration at each nu.
    """
    points, found, scores = _evenly_spaced(rows.gather()[0], _MAX_CENTERS), start, None
    with suppress(ArithmeticError, np.linalg.LinAlgError):
        for nu in NUS:
            objective = LogisticObjective(rows, independent_points(points, found), start.kernel)
            found, scores = _refine(objective, found, nu, scores, deadline)
            coefficients = objective.solve(found.B, nu, scores, _COEFFICIENT_TOL)
            scores = coefficients.scores
            yield nu, found, objective, coefficients


def independent_points(points: Array, at: Map) -> Array:
    """Return a subset of the points such that the kernel functions at these points are linearly independent.

    The kernel functions are those of the map `at`. The subset consists of the pivots of a pivoted Cholesky
    decomposition of the kernel matrix, with a tolerance of 1e-6 times its largest diagonal entry. Leaving out the other
    points changes the solution much less than the penalty nu does.
    """
    P = points @ at.B.T
    K = at.kernel(P, P)
    _, pivots, rank, _ = dpstrf(K, tol=_DEPENDENCE_TOL * float(np.max(K.diagonal())), lower=1)
    return points[np.sort(pivots[:rank] - 1)]


def _refine(
    objective: LogisticObjective, start: Map, nu: float, scores: Array | None, deadline: float
) -> tuple[Map, Array | None]:
    """Minimize ``min over a, b of J(B, a, b)`` over B by at most 20 L-BFGS iterations. Return the map and its scores.

    J is the objective of `hkrr.estimators.classification.logistic_objective`.
    """
    last = scores

    def value_and_gradient(theta: Array) -> tuple[float, Array]:
        nonlocal last
        B = theta.reshape(start.B.shape)
        try:
            found = objective.solve(B, nu, last, _COEFFICIENT_TOL)
        except (ArithmeticError, np.linalg.LinAlgError):
            # The line search rejects a point with this large value and tries a shorter step.
            return _FAILED_VALUE, np.zeros_like(theta)
        last = found.scores
        value, grad = objective.value_and_gradient_in_map(B, found, nu)
        return value, grad.ravel()

    def stop_at_deadline(theta: Array) -> None:
        if time.perf_counter() > deadline:
            raise StopIteration

    steps = {"method": "L-BFGS-B", "options": {"maxiter": _MAX_STEPS}, "callback": stop_at_deadline}
    found = minimize(value_and_gradient, start.B.ravel(), jac=True, **steps)
    return replace(start, B=found.x.reshape(start.B.shape)), last


def _evenly_spaced(points: Array, n: int) -> Array:
    """Return at most n of the points, at evenly spaced indices."""
    return points[np.linspace(0, len(points) - 1, min(n, len(points))).round().astype(int)]
