"""L-BFGS on the reduced function H(B) = min_a L(B, a): the default."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import norm as vector_norm  # whose squares do not overflow
from scipy.optimize import minimize

from hkrr._arrays import EPS, Array
from hkrr._validation import check_int
from hkrr.objective import Reduced
from hkrr.solvers.base import Monitor, StopRun

# Relative decrease, of the loss of the zero function, that is nothing but rounding.
_ROUNDING = 10.0 * EPS
_AT_BOUND = 1e-6  # of log lambda, where it is at a bound but for rounding
# Where lambda may go when it is learned: beyond, nothing is fitted, or rounding is.
_LOG_LAMBDA_BOUNDS = (math.log(1e-12), math.log(1e3))


def at_bound(reg_lambda: float) -> bool:
    """Return whether a lambda that was learned ended where it may not go beyond.

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
    """SciPy's L-BFGS on ``H(B) = min_a L(B, a)``; the gradient is dL/dB at the minimiser (envelope theorem).

    There is no bound on the norm of B. For a radial kernel the scale of B and gamma are one degree of freedom, so this
    is a solver over gamma too.

    Parameters
    ----------
    memory : int, default=10
        Pairs of steps and gradients that approximate the Hessian.

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

    memory: int = 10

    def __post_init__(self) -> None:
        check_int("memory", self.memory, 1)

    def minimize(self, objective: Any, B0: Array, monitor: Monitor) -> None:
        """Run from B0 until the monitor ends it, or the objective no longer falls."""
        # SciPy's tolerance is absolute below one: in units of the loss at zero it means the same for every y.
        unit = objective.loss_at_zero or 1.0
        problem = _Learned(objective) if getattr(objective, "learn_lambda", False) else _Plain(objective)
        evaluated: dict[bytes, Reduced] = {}

        def value_and_grad(x: Array) -> tuple[float, Array]:
            monitor.check_time()
            reduced = problem.reduced(x, B0.shape)
            if not (np.isfinite(reduced.value) and np.all(np.isfinite(reduced.grad))):
                raise StopRun("not_finite")
            evaluated.clear()
            evaluated[x.tobytes()] = reduced
            return reduced.value / unit, problem.gradient(reduced) / unit

        previous = B0

        def report(intermediate_result: Any) -> None:
            nonlocal previous
            x = intermediate_result.x
            # The accepted point is the one evaluated last; look, rather than trust.
            reduced = evaluated.get(x.tobytes()) or problem.reduced(x, B0.shape)
            B, reg_lambda = problem.split(x, B0.shape)
            step = float(np.linalg.norm(B - previous))
            previous = B.copy()
            norm = float(vector_norm(problem.gradient(reduced), check_finite=False))
            monitor(B, reduced.alpha, reduced.value, norm, step, reg_lambda)

        x0 = problem.join(B0)
        start = problem.reduced(x0, B0.shape)
        monitor(B0, start.alpha, start.value, float(vector_norm(problem.gradient(start), check_finite=False)), 0.0)
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


class _Plain:
    """The map alone: x holds the entries of B."""

    def __init__(self, objective: Any) -> None:
        self.objective = objective

    def join(self, B: Array) -> Array:
        return B.ravel()

    def split(self, x: Array, shape: tuple[int, int]) -> tuple[Array, float]:
        return x.reshape(shape), self.objective.reg_lambda

    def reduced(self, x: Array, shape: tuple[int, int]) -> Reduced:
        reduced: Reduced = self.objective.reduced(x.reshape(shape))
        return reduced

    def gradient(self, reduced: Reduced) -> Array:
        return reduced.grad.ravel()

    def bounds(self, size: int) -> list[tuple[float | None, float | None]] | None:
        return None


class _Learned(_Plain):
    """The map and lambda: x holds the entries of B, and log lambda last."""

    def join(self, B: Array) -> Array:
        return np.append(B.ravel(), math.log(self.objective.reg_lambda))

    def split(self, x: Array, shape: tuple[int, int]) -> tuple[Array, float]:
        return x[:-1].reshape(shape), math.exp(x[-1])

    def reduced(self, x: Array, shape: tuple[int, int]) -> Reduced:
        reduced: Reduced = self.objective.reduced(*self.split(x, shape))
        return reduced

    def gradient(self, reduced: Reduced) -> Array:
        return np.append(reduced.grad.ravel(), np.asarray(reduced.grad_log_lambda))

    def bounds(self, size: int) -> list[tuple[float | None, float | None]]:
        return [(None, None)] * size + [_LOG_LAMBDA_BOUNDS]
