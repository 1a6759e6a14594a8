"""L-BFGS on the reduced function H(B) = min_a L(B, a): the default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize

from hkrr._arrays import EPS, Array
from hkrr._validation import check_int
from hkrr.objective import Objective, Reduced
from hkrr.solvers.base import Monitor, StopRun

# Relative decrease, of the loss of the zero function, that is nothing but rounding.
_ROUNDING = 10.0 * EPS


@dataclass(frozen=True, kw_only=True)
class LBFGS:
    """SciPy's L-BFGS on ``H(B) = min_a L(B, a)``; the gradient is dL/dB at the minimiser (envelope theorem).

    There is no bound on the norm of B. For a radial kernel the scale of B and gamma are one degree of freedom, so this
    is a solver over gamma too.

    Parameters
    ----------
    memory : int, default=10
        Pairs of steps and gradients that approximate the Hessian.
    """

    memory: int = 10

    def __post_init__(self) -> None:
        check_int("memory", self.memory, 1)

    def minimize(self, objective: Objective, B0: Array, monitor: Monitor) -> None:
        """Run from B0 until the monitor ends it, or the objective no longer falls."""
        # SciPy's tolerance is absolute below one: in units of the loss at zero it means the same for every y.
        unit = objective.loss_at_zero or 1.0
        evaluated: dict[bytes, Reduced] = {}

        def value_and_grad(x: Array) -> tuple[float, Array]:
            monitor.check_time()
            reduced = objective.reduced(x.reshape(B0.shape))
            if not (np.isfinite(reduced.value) and np.all(np.isfinite(reduced.grad))):
                raise StopRun("not_finite")
            evaluated.clear()
            evaluated[x.tobytes()] = reduced
            return reduced.value / unit, reduced.grad.ravel() / unit

        previous = B0

        def report(intermediate_result: Any) -> None:
            nonlocal previous
            B = intermediate_result.x.reshape(B0.shape)
            # The accepted point is the one evaluated last; look, rather than trust.
            reduced = evaluated.get(intermediate_result.x.tobytes()) or objective.reduced(B)
            step = float(np.linalg.norm(B - previous))
            previous = B.copy()
            monitor(B, reduced.alpha, reduced.value, float(np.linalg.norm(reduced.grad)), step)

        start = objective.reduced(B0)
        monitor(B0, start.alpha, start.value, float(np.linalg.norm(start.grad)), 0.0)
        unlimited = np.iinfo(np.int32).max
        minimize(
            value_and_grad,
            B0.ravel(),
            jac=True,
            method="L-BFGS-B",
            callback=report,
            options={"maxcor": self.memory, "maxiter": unlimited, "maxfun": unlimited, "ftol": _ROUNDING, "gtol": 0.0},
        )
