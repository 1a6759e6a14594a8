"""L-BFGS on the reduced function H(B) = min_a L(B, a), the default solver."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.linalg import norm as vector_norm  # unlike NumPy's norm, it does not overflow for large entries
from scipy.optimize import minimize

from hkrr._base.checks import check_int
from hkrr._base.linear_algebra import EPS, Array
from hkrr.objective import LAMBDA_BOUNDS, Reduced
from hkrr.solvers.driver import Monitor, ReducedObjective, StopReason, StopRun

# L-BFGS stops when an iteration decreases the objective by less than this fraction of the loss of the zero function.
# Such a decrease is within rounding error.
_ROUNDING = 10.0 * EPS
# Lambda is treated as being at a bound if log lambda differs from the logarithm of the bound by at most this number.
_AT_BOUND = 1e-6
_LOG_LAMBDA_BOUNDS = (math.log(LAMBDA_BOUNDS[0]), math.log(LAMBDA_BOUNDS[1]))


def at_bound(reg_lambda: float) -> bool:
    """Return whether a learned lambda is at one of its bounds, 1e-12 and 1e3.

    Examples
    --------
    >>> from hkrr.solvers import at_bound
    >>> at_bound(1e-12), at_bound(1e-3)
    (True, False)
    """
    low, high = _LOG_LAMBDA_BOUNDS
    return not low + _AT_BOUND < math.log(reg_lambda) < high - _AT_BOUND


@dataclass(frozen=True, kw_only=True)
class LBFGS:
    """SciPy's L-BFGS applied to the reduced function ``H(B) = min_a L(B, a)``, where a are the coefficients.

    By the envelope theorem, the gradient of H is dL/dB at the minimizing coefficients. The norm of B is not bounded.
    For a radial kernel, scaling B has the same effect as changing gamma, so this solver also optimizes gamma.

    Parameters
    ----------
    memory : int, default=10
        Number of past steps that L-BFGS stores, with their changes of the gradient, to approximate the Hessian.

    Examples
    --------
    >>> from hkrr import HyperKernelRidge
    >>> from hkrr.datasets import make_mim_sines
    >>> from hkrr.solvers import LBFGS
    >>> data = make_mim_sines(200, n_features=5, n_components=2, random_state=0)
    >>> model = HyperKernelRidge(2, solver=LBFGS(memory=20), random_state=0).fit(data.X, data.y)
    >>> model.result_.reason in ("converged", "stalled")
    True
    """

    required_attributes: ClassVar[tuple[str, ...]] = ("reduced", "learn_lambda")

    memory: int = 10

    def __post_init__(self) -> None:
        check_int("memory", self.memory, 1)

    def minimize(self, objective: ReducedObjective, B0: Array, monitor: Monitor) -> None:
        """Run from B0 until the monitor stops the run, or the objective no longer decreases."""
        # SciPy's tolerance for the decrease is absolute if the values of the objective are below one. Dividing the
        # values by the loss of the zero function makes them independent of the scale of y.
        unit = objective.loss_at_zero or 1.0
        problem = _MapAndLambda(objective) if objective.learn_lambda else _MapOnly(objective)
        evaluated: dict[bytes, Reduced] = {}

        def value_and_grad(x: Array) -> tuple[float, Array]:
            monitor.check_time()
            reduced = problem.reduced(x, B0.shape)
            if not (np.isfinite(reduced.value) and np.all(np.isfinite(reduced.grad))):
                raise StopRun(StopReason.NOT_FINITE)
            evaluated.clear()
            evaluated[x.tobytes()] = reduced
            return reduced.value / unit, problem.gradient(reduced) / unit

        previous = B0

        def report(intermediate_result: Any) -> None:
            nonlocal previous
            x = intermediate_result.x
            # The accepted point is usually the point evaluated last, but SciPy does not guarantee this.
            reduced = evaluated.get(x.tobytes()) or problem.reduced(x, B0.shape)
            B, reg_lambda = problem.split(x, B0.shape)
            reg_lambda = reg_lambda if reduced.reg_lambda is None else reduced.reg_lambda
            step = float(np.linalg.norm(B - previous))
            previous = B.copy()
            norm = float(vector_norm(problem.gradient(reduced), check_finite=False))
            monitor(B, reduced.alpha, reduced.value, norm, step, reg_lambda)

        x0 = problem.join(B0)
        start = problem.reduced(x0, B0.shape)
        norm = float(vector_norm(problem.gradient(start), check_finite=False))
        monitor(B0, start.alpha, start.value, norm, 0.0, start.reg_lambda)
        unlimited = np.iinfo(np.int32).max
        minimize(
            value_and_grad,
            x0,
            jac=True,
            method="L-BFGS-B",
            bounds=problem.bounds(B0.size),
            callback=report,
            options={"maxcor": self.memory, "maxiter": unlimited, "maxfun": unlimited, "ftol": _ROUNDING, "gtol": 0.0},
        )


class _MapOnly:
    """The minimization problem passed to SciPy if lambda is not one of its variables. x contains the entries of B.

    Lambda is then given, or each evaluation of the objective minimizes over lambda.
    """

    def __init__(self, objective: ReducedObjective) -> None:
        self.objective = objective

    def join(self, B: Array) -> Array:
        return B.ravel()

    def split(self, x: Array, shape: tuple[int, int]) -> tuple[Array, float]:
        return x.reshape(shape), self.objective.reg_lambda

    def reduced(self, x: Array, shape: tuple[int, int]) -> Reduced:
        return self.objective.reduced(x.reshape(shape))

    def gradient(self, reduced: Reduced) -> Array:
        return reduced.grad.ravel()

    def bounds(self, size: int) -> list[tuple[float | None, float | None]] | None:
        return None


class _MapAndLambda(_MapOnly):
    """The minimization problem if lambda is one of its variables. x contains the entries of B, then log lambda."""

    def join(self, B: Array) -> Array:
        return np.append(B.ravel(), math.log(self.objective.reg_lambda))

    def split(self, x: Array, shape: tuple[int, int]) -> tuple[Array, float]:
        return x[:-1].reshape(shape), math.exp(x[-1])

    def reduced(self, x: Array, shape: tuple[int, int]) -> Reduced:
        return self.objective.reduced(*self.split(x, shape))

    def gradient(self, reduced: Reduced) -> Array:
        return np.append(reduced.grad.ravel(), np.asarray(reduced.grad_log_lambda))

    def bounds(self, size: int) -> list[tuple[float | None, float | None]]:
        return [(None, None)] * size + [_LOG_LAMBDA_BOUNDS]
