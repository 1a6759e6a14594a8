"""Armijo backtracking with adaptive steps (the paper's appendix C), and the projection onto a spectral-norm ball.

Let s be the last accepted step size. Each search starts with ``min(s / (rho delta), s_max)`` and multiplies this step
size by rho until the objective decreases sufficiently. It multiplies once before the first trial, so the first step
size that is tried is ``min(s / delta, rho s_max)``. If delta < 1, step sizes can grow as well as shrink.

The paper requires ``L(B+) - L(B) < -c s |grad|^2`` for the step from B to B+. This never holds at a critical point on
the boundary of the ball, where the step is zero but the gradient is not. The search here uses the displacement B+ - B
instead of the gradient:

    L(B+) - L(B) <= -(c / s) |B+ - B|^2.

If the projection does not change the point, both conditions have the same right-hand side. A change of the objective
within rounding error is accepted too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hkrr._base.linear_algebra import EPS, Array

# A search ends when its step size is at most this fraction of its initial step size. Such a small step does not change
# the point in floating-point arithmetic.
_SMALLEST = 1e-30


@dataclass(frozen=True)
class Step:
    """An accepted step: the step size and the new point."""

    size: float
    point: Array


@dataclass(frozen=True, kw_only=True)
class Armijo:
    """Armijo backtracking in which step sizes can grow from one search to the next.

    Parameters
    ----------
    rho : float, default=0.5
        Factor by which the step size is multiplied after a rejected step, between 0 and 1.
    delta : float, default=0.8
        The first step size that a search tries is ``1 / delta`` times the last accepted step size.
    c : float, default=1e-4
        Constant c in the sufficient decrease condition; see the description of this module.
    s_max : float, default=inf
        Upper bound on the step size.
    """

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
        """Return the first trial step that decreases the objective sufficiently, or None if there is no such step.

        Parameters
        ----------
        last_size : float
            Size of the last accepted step.
        start : array
            The current point.
        move : callable
            Function that is called with a step size and returns the new point.
        change : callable
            Function that is called with the new point and returns ``L(point) - L(start)``.
        magnitude : float
            ``|L(start)|``. Rounding errors of `change` are assumed to be proportional to this number.
        """
        size = min(last_size / (self.rho * self.delta), self.s_max)
        first, smallest, found = self.rho * size, _SMALLEST * size, 0.0
        while size > smallest:
            size *= self.rho
            point = move(size)
            displacement = point - start
            # A zero displacement means that the step is below rounding error, so the search ends. The first trial step
            # is exempt: at a critical point on the boundary of the ball, its displacement is exactly zero, and it is
            # accepted.
            if not np.any(displacement) and size < first:
                break
            needed = -(self.c / size) * float(np.vdot(displacement, displacement))
            found = change(point)
            if found <= needed + 4.0 * EPS * magnitude:
                return Step(size, point)
        if not math.isfinite(found):
            raise FloatingPointError("the objective is not finite at the smallest step size")
        return None


def spectral_ball(B: Array, bound: float = 1.0) -> Array:
    """Return the projection of B onto the matrices with spectral norm at most ``bound``.

    The projection clips the singular values of B at ``bound``.
    """
    U, s, Vt = np.linalg.svd(B, full_matrices=False)
    return B if s[0] <= bound else (U * np.minimum(s, bound)) @ Vt
