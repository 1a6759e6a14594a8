"""Variable projection, the paper's first algorithm: gradient steps in B, and closed-form solutions for alpha."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, cast

from hkrr._base.linear_algebra import Array
from hkrr.solvers._projected_gradient import ProjectedGradient
from hkrr.solvers.driver import JointObjective, Monitor, ReducedObjective


@dataclass(frozen=True, kw_only=True)
class VarPro(ProjectedGradient):
    """Variable projection (VarPro), as in the paper's detailed algorithm.

    Each iteration computes ``B+ = proj(B - s dL/dB(B, alpha))`` and then ``alpha+ = argmin L(B+, .)``, where L is the
    objective, alpha are the coefficients, s is the step size, and proj is the projection onto the maps within the norm
    bound. The line search keeps alpha fixed: it requires ``L(B+, alpha) - L(B, alpha) <= -(c/s) |B+ - B|^2``.

    Parameters
    ----------
    norm_bound : float or None, default=1.0
        Bound on the spectral norm of B. None means no bound.
    rho, delta, c, s_max : float, default=0.5, 0.8, 1e-4, inf
        Parameters of the line search. After a rejected step, the step size is multiplied by rho. The first step size
        that a search tries is 1 / delta times the last accepted step size. c is the constant in the sufficient
        decrease condition, and s_max is an upper bound on the step size. See `hkrr.solvers.line_search`.
    first_step : float or None, default=None
        Initial step size. The first line search uses it as the last accepted step size. None means the step size at
        which a gradient step moves B by a distance equal to the norm of B.

    Examples
    --------
    >>> from hkrr import HyperKernelRidge
    >>> from hkrr.datasets import make_mim_sines
    >>> from hkrr.solvers import VarPro
    >>> data = make_mim_sines(100, n_features=5, n_components=1, random_state=0)
    >>> solver = VarPro(norm_bound=None)
    >>> paper = {"n_centers": 5, "reg_lambda": 1e-7, "scale_features": False, "fit_intercept": False, "max_iter": 50}
    >>> model = HyperKernelRidge(1, solver=solver, **paper, random_state=0).fit(data.X, data.y)
    >>> model.history_["objective"][-1] < model.history_["objective"][0]
    True
    """

    required_attributes: ClassVar[tuple[str, ...]] = ("value", "value_and_grad_B", "solve_alpha")

    def minimize(self, objective: ReducedObjective, B0: Array, monitor: Monitor) -> None:
        """Run from B0 until the monitor stops the run, or no step decreases the objective."""
        objective = cast(JointObjective, objective)  # `run` has checked that all attributes exist
        saved = monitor.resume()
        if saved is None:
            B, alpha, value, grad, size = self.start(objective, B0)
            self._report(monitor, B, alpha, value, grad, size)
        else:
            B, alpha, value, grad, size = (saved[name] for name in ("B", "alpha", "value", "grad", "size"))
        while (step := self.step_in_B(objective, monitor, B, alpha, value, grad, size)) is not None:
            B, size = step.point, step.size
            alpha = objective.solve_alpha(B)
            value, grad = objective.value_and_grad_B(B, alpha)
            self._report(monitor, B, alpha, value, grad, size)

    def _report(self, monitor: Monitor, B: Array, alpha: Array, value: float, grad: Array, size: float) -> None:
        memory = {"B": B, "alpha": alpha, "value": value, "grad": grad, "size": size}
        monitor(B, alpha, value, self.mapping_norm(B, grad, size), size, memory=memory)
