"""Armijo backtracking with steps that may grow again: the paper's appendix C.

Each search starts from the last accepted step s, dilated to ``min(s / (rho delta), s_max)``, and contracts it by rho
until the decrease suffices. With delta < 1 the steps adapt in both directions.

The paper asks ``L(B+) - L(B) < -c s |grad|^2``. At a critical point on the boundary of the ball that never holds: the
gradient does not vanish there, the step does. So the displacement is used instead of the gradient,

    L(B+) - L(B) <= -(c / s) |B+ - B|^2,

the same wherever the projection is inactive; and a change that is nothing but rounding is accepted.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hkrr._arrays import EPS, Array

# A step contracted this far moves nothing any more, whatever the point and the gradient.
_SMALLEST = 1e-30


@dataclass(frozen=True)
class Step:
    """An accepted step: its size, and the point it leads to."""

    size: float
    point: Array


@dataclass(frozen=True, kw_only=True)
class Armijo:
    """Non-monotone Armijo backtracking: contraction rho, dilatation delta, decrease c, largest step s_max."""

    rho: float = 0.5
    delta: float = 0.8
    c: float = 1e-4
    s_max: float = np.inf

    def __post_init__(self) -> None:
        if not 0 < self.rho < 1:
            raise ValueError(f"rho must lie in (0, 1), got {self.rho!r}")
        if not 0 < self.delta <= 1:
            raise ValueError(f"delta must lie in (0, 1], got {self.delta!r}")
        if not 0 < self.c < 1:
            raise ValueError(f"c must lie in (0, 1), got {self.c!r}")
        if not self.s_max > 0:
            raise ValueError(f"s_max must be positive, got {self.s_max!r}")

    def search(
        self,
        last_size: float,
        start: Array,
        move: Callable[[float], Array],
        change: Callable[[Array], float],
        magnitude: float,
    ) -> Step | None:
        """Return the first step that decreases enough, or None when none that moves the point does.

        Parameters
        ----------
        last_size : the step accepted last, s_{i-1}
        start : the point to move from
        move : the point a step of a given size leads to
        change : L(point) - L(start)
        magnitude : ``|L(start)|``, which says what rounding is
        """
        size = min(last_size / (self.rho * self.delta), self.s_max)
        first, smallest, found = self.rho * size, _SMALLEST * size, 0.0
        while size > smallest:
            size *= self.rho
            point = move(size)
            displacement = point - start
            if not np.any(displacement) and size < first:
                break  # contracted until nothing moves; a first step that does not is a critical point of the ball
            needed = -(self.c / size) * float(np.vdot(displacement, displacement))
            found = change(point)
            if found <= needed + 4.0 * EPS * magnitude:
                return Step(size, point)
        if not math.isfinite(found):
            raise FloatingPointError("the objective is not finite however short the step")
        return None
