"""The update of B in VarPro and AGD: a projected gradient step with an Armijo line search."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hkrr._base.linear_algebra import Array
from hkrr.solvers.driver import JointObjective, Monitor
from hkrr.solvers.line_search import Armijo, Step, spectral_ball


@dataclass(frozen=True, kw_only=True)
class ProjectedGradient:
    """Base class of `VarPro` and `AGD`, with the common parameters (see `VarPro`) and the update of B."""

    norm_bound: float | None = 1.0
    rho: float = 0.5
    delta: float = 0.8
    c: float = 1e-4
    s_max: float = np.inf
    first_step: float | None = None

    def __post_init__(self) -> None:
        _ = self.line_search  # checks rho, delta, c and s_max
        for name in ("norm_bound", "first_step"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be positive or None, got {value!r}")

    @property
    def line_search(self) -> Armijo:
        """The line search with the parameters rho, delta, c and s_max."""
        return Armijo(rho=self.rho, delta=self.delta, c=self.c, s_max=self.s_max)

    def project(self, B: Array) -> Array:
        """Return the projection of B onto the maps with spectral norm at most `norm_bound`."""
        return B if self.norm_bound is None else spectral_ball(B, self.norm_bound)

    def start(self, objective: JointObjective, B0: Array) -> tuple[Array, Array, float, Array, float]:
        """Return the first map and coefficients, the objective and its gradient at both, and the first step size."""
        B = self.project(B0)
        alpha = objective.solve_alpha(B)
        value, grad = objective.value_and_grad_B(B, alpha)
        return B, alpha, value, grad, self.first_step or self.own_length_step(B, grad)

    def own_length_step(self, B: Array, grad: Array) -> float:
        """Return the step size for which a gradient step moves B by a distance equal to the norm of B."""
        length = float(np.linalg.norm(grad))
        return float(np.linalg.norm(B)) / length if length > 0 else 1.0

    def mapping_norm(self, B: Array, grad: Array, size: float) -> float:
        """Return the norm of the gradient mapping, ``|B - proj(B - s grad)| / s``, where s is the step size (`size`).

        This norm is zero exactly at the critical points of the problem with the norm bound. If the gradient step is
        shorter than 1e-6 times the norm of B, the step size is increased, because a shorter step would be lost in the
        rounding of B.
        """
        size = max(size, 1e-6 * self.own_length_step(B, grad))
        return float(np.linalg.norm(B - self.project(B - size * grad))) / size

    def step_in_B(
        self,
        objective: JointObjective,
        monitor: Monitor,
        B: Array,
        alpha: Array,
        value: float,
        grad: Array,
        last_size: float,
    ) -> Step | None:
        """Return a step from B that sufficiently decreases the objective for fixed alpha, or None if there is none.

        `value` and `grad` are the objective and its gradient with respect to B at (B, alpha), and `last_size` is the
        last accepted step size. In the paper's detailed algorithms, this line search is the inner loop.
        """

        def change(candidate: Array) -> float:
            monitor.check_time()
            return objective.value(candidate, alpha) - value

        return self.line_search.search(last_size, B, lambda s: self.project(B - s * grad), change, abs(value))
