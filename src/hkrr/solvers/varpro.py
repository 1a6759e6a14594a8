"""Variable projection (the paper's first algorithm): gradient steps in B, the closed form in alpha."""

from __future__ import annotations

from dataclasses import dataclass

from hkrr._arrays import Array
from hkrr.objective import Objective
from hkrr.solvers._projected_gradient import ProjectedGradient
from hkrr.solvers.base import Monitor


@dataclass(frozen=True, kw_only=True)
class VarPro(ProjectedGradient):
    """``B+ = proj(B - s dL/dB(B, alpha))``, then ``alpha+ = argmin L(B+, .)``: the paper's detailed VarPro.

    The line search holds alpha: ``L(B+, alpha) - L(B, alpha) <= -(c/s) |B+ - B|^2``.

    Parameters
    ----------
    norm_bound : float or None, default=1.0
        Bound on the spectral norm of B; None for no bound.
    rho, delta, c, s_max : float
        Contraction, dilatation, sufficient decrease and largest step of the line search; see `hkrr.line_search`.
    first_step : float or None
        Step size before the first search; None for the one that moves B by its own length.

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

    def minimize(self, objective: Objective, B0: Array, monitor: Monitor) -> None:
        """Run from B0 until the monitor ends it, or no step decreases the objective."""
        saved = monitor.resume()
        if saved is None:
            B = self.project(B0)
            alpha = objective.solve_alpha(B)
            value, grad = objective.value_and_grad_B(B, alpha)
            size = self.first_step or self.own_length_step(B, grad)
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
