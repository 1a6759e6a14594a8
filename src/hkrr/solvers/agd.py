"""Alternating gradient descent, the paper's second algorithm. It alternates gradient steps in B and in alpha."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, cast

import numpy as np

from hkrr._base.checks import check_int
from hkrr._base.linear_algebra import Array
from hkrr.objective import Quadratic
from hkrr.solvers._projected_gradient import ProjectedGradient
from hkrr.solvers.driver import JointObjective, Monitor, ReducedObjective


@dataclass(frozen=True, kw_only=True)
class AGD(ProjectedGradient):
    """Alternating gradient descent (AGD).

    Each iteration computes ``B+ = proj(B - s_B dL/dB(B, alpha))`` and then takes `n_alpha` steps
    ``alpha -= s_alpha dL/dalpha(B+, alpha)``. Here L is the objective, alpha are the coefficients, s_B and s_alpha are
    the step sizes, and proj is the projection onto the maps within the norm bound.

    For a fixed map, L is a quadratic function of alpha. Its c x c matrix, for c centers, is a sum over the rows and is
    computed once for each map. Every step in alpha then costs only a few products with this matrix. The initial alpha
    is the closed-form solution at the starting map.

    Parameters
    ----------
    norm_bound, rho, delta, c, s_max, first_step
        See `VarPro`. The line search in alpha uses the same rho, delta, c and s_max.
    n_alpha : int, default=10
        Number of gradient steps in alpha after each gradient step in B.
    alpha_step : {"armijo", "lipschitz"}, default="armijo"
        Rule for the step size in alpha. "armijo" uses a line search. "lipschitz" uses the inverse of the Lipschitz
        constant of the gradient with respect to alpha at the current map.
    first_alpha_step : float or None, default=None
        Initial step size in alpha. None means the inverse of the Lipschitz constant at the starting map.

    Examples
    --------
    >>> from hkrr import HyperKernelRidge
    >>> from hkrr.datasets import make_mim_sines
    >>> from hkrr.solvers import AGD
    >>> data = make_mim_sines(100, n_features=5, n_components=1, random_state=0)
    >>> solver = AGD(n_alpha=5, alpha_step="lipschitz")
    >>> paper = {"n_centers": 5, "reg_lambda": 1e-7, "scale_features": False, "fit_intercept": False, "max_iter": 50}
    >>> model = HyperKernelRidge(1, solver=solver, **paper, random_state=0).fit(data.X, data.y)
    >>> model.history_["objective"][-1] < model.history_["objective"][0]
    True
    """

    required_attributes: ClassVar[tuple[str, ...]] = ("value", "value_and_grad_B", "solve_alpha", "inner")

    n_alpha: int = 10
    alpha_step: Literal["armijo", "lipschitz"] = "armijo"
    first_alpha_step: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_int("n_alpha", self.n_alpha, 1)
        if self.alpha_step not in ("armijo", "lipschitz"):
            raise ValueError(f"alpha_step must be 'armijo' or 'lipschitz', got {self.alpha_step!r}")
        if self.first_alpha_step is not None and not self.first_alpha_step > 0:
            raise ValueError(f"first_alpha_step must be positive or None, got {self.first_alpha_step!r}")
        if self.first_alpha_step is not None and self.alpha_step == "lipschitz":
            raise ValueError("first_alpha_step requires alpha_step='armijo', as 'lipschitz' determines all step sizes")

    def minimize(self, objective: ReducedObjective, B0: Array, monitor: Monitor) -> None:
        """Run from B0 until the monitor stops the run, or no step decreases the objective."""
        objective = cast(JointObjective, objective)  # `run` has checked that all attributes exist
        saved = monitor.resume()
        if saved is None:
            B, alpha, value, grad, size_B = self.start(objective, B0)
            size_alpha = self.first_alpha_step or _inverse(objective.inner(B).lipschitz())
            memory = {"B": B, "alpha": alpha, "value": value, "grad": grad, "size_B": size_B, "size_alpha": size_alpha}
            monitor(B, alpha, value, self.mapping_norm(B, grad, size_B), size_B, memory=memory)
        else:
            B, alpha, value, grad = (saved[name] for name in ("B", "alpha", "value", "grad"))
            size_B, size_alpha = saved["size_B"], saved["size_alpha"]
        while (step := self.step_in_B(objective, monitor, B, alpha, value, grad, size_B)) is not None:
            B, size_B = step.point, step.size
            inner = objective.inner(B)
            alpha, size_alpha = self._steps_in_alpha(inner, alpha, size_alpha)
            value, grad = objective.value_and_grad_B(B, alpha)
            # Multiply the norm of dL/dalpha by the square root of the loss of the zero function. It then has the same
            # units as dL/dB: the units of y^2.
            slope = math.sqrt(objective.loss_at_zero) * float(np.linalg.norm(inner.grad(alpha)))
            norm = math.hypot(self.mapping_norm(B, grad, size_B), slope)
            memory = {"B": B, "alpha": alpha, "value": value, "grad": grad, "size_B": size_B, "size_alpha": size_alpha}
            monitor(B, alpha, value, norm, size_B, memory=memory)

    def _steps_in_alpha(self, inner: Quadratic, alpha: Array, size: float) -> tuple[Array, float]:
        """Return alpha after `n_alpha` gradient steps, and the last step size.

        The map is fixed: `inner` is the objective at the new map as a function of alpha. `size` is the initial step
        size.
        """
        if self.alpha_step == "lipschitz":
            size = _inverse(inner.lipschitz())
        for _ in range(self.n_alpha):
            grad = inner.grad(alpha)
            if self.alpha_step == "lipschitz":
                alpha = alpha - size * grad
                continue
            step = self._step_in_alpha(inner, alpha, grad, size)
            if step is None:
                break
            alpha, size = step
        return alpha, size

    def _step_in_alpha(self, inner: Quadratic, alpha: Array, grad: Array, last: float) -> tuple[Array, float] | None:
        step = self.line_search.search(
            last,
            alpha,
            lambda s: alpha - s * grad,
            lambda candidate: inner.change(grad, candidate - alpha),
            abs(inner.constant),
        )
        return None if step is None else (step.point, step.size)


def _inverse(lipschitz: float) -> float:
    return 1.0 / lipschitz if lipschitz > 0 else 1.0
