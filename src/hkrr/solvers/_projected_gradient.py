"""The step in B that the paper's two algorithms share: a projected gradient step with Armijo backtracking."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hkrr._arrays import Array
from hkrr.line_search import Armijo, Step
from hkrr.objective import Objective
from hkrr.projections import identity, spectral_ball
from hkrr.solvers.base import Monitor


@dataclass(frozen=True, kw_only=True)
class ProjectedGradient:
    """Parameters and steps in B of `VarPro` and `AGD`."""

    norm_bound: float | None = 1.0
    rho: float = 0.5
    delta: float = 0.8
    c: float = 1e-4
    s_max: float = np.inf
    first_step: float | None = None

    def __post_init__(self) -> None:
        _ = self.line_search  # building it checks rho, delta, c and s_max
        for name in ("norm_bound", "first_step"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be positive or None, got {value!r}")

    @property
    def line_search(self) -> Armijo:
        """The Armijo rule of these parameters."""
        return Armijo(rho=self.rho, delta=self.delta, c=self.c, s_max=self.s_max)

    def project(self, B: Array) -> Array:
        """Return the nearest map within the norm bound."""
        return identity(B) if self.norm_bound is None else spectral_ball(B, self.norm_bound)

    def own_length_step(self, B: Array, grad: Array) -> float:
        """Return the step that moves B by its own length."""
        length = float(np.linalg.norm(grad))
        return float(np.linalg.norm(B)) / length if length > 0 else 1.0

    def mapping_norm(self, B: Array, grad: Array, size: float) -> float:
        """Return ``|B - proj(B - s grad)| / s``, which vanishes exactly at the critical points in the ball.

        A step lost in the rounding of B would show nothing: the size taken moves B by a part in 10^6 at least.
        """
        size = max(size, 1e-6 * self.own_length_step(B, grad))
        return float(np.linalg.norm(B - self.project(B - size * grad))) / size

    def step_in_B(
        self, objective: Objective, monitor: Monitor, B: Array, alpha: Array, value: float, grad: Array, last: float
    ) -> Step | None:
        """Return B^{i+1}, with alpha held: the inner loop of the paper's detailed algorithms."""

        def change(candidate: Array) -> float:
            monitor.check_time()
            return objective.value(candidate, alpha) - value

        return self.line_search.search(last, B, lambda s: self.project(B - s * grad), change, abs(value))
