"""Estimate of the remaining time of a fit, from the phase that its search has reached.

A search goes through a known sequence of phases (`hkrr.estimators.search.progress.Phase`). A phase consists of one or
more stages. Each phase starts after a fraction of the total time that is roughly the same for all data. If this
fraction is s and t seconds have passed, the remaining time is about ``t (1 - s) / s``. Within a phase, the fraction
grows with time until it reaches the fraction at which the next phase starts. If a phase takes longer than expected, the
fraction stops growing, and the estimated remaining time grows instead. If the targets have outliers, there can be a
second search, which takes about as long as the first. The displayed value approaches a new estimate over a few seconds,
so that it does not jump.
"""

from __future__ import annotations

import math

from hkrr.estimators.search.progress import Phase, SearchState

# Phases of a search in their order, and the fraction of the total time that has passed when each phase starts. The
# fractions are averages over tables and planted models (synthetic data with known directions) of 300 to 1,500 rows.
# Many searches skip the phases WIDENING and HELD_OUT_CHECK. HELD_OUT_CHECK takes a third of the total time. The
# fractions of the phases before HELD_OUT_CHECK were measured in fits that skip it. They can therefore be larger than
# the fraction at which HELD_OUT_CHECK starts. The first list is for searches with a given kernel. The second list is
# for searches that also choose the kernel.
_ONE_KERNEL = (
    (Phase.STARTS, 0.0),
    (Phase.CUT, 0.40),
    (Phase.WIDENING, 0.45),
    (Phase.POLISHING, 0.55),
    (Phase.AGAINST_PLAIN, 0.85),
    (Phase.HELD_OUT_CHECK, 0.63),
    (Phase.FINAL_FIT, 0.95),
)
_ANY_KERNEL = (
    (Phase.STARTS, 0.0),
    (Phase.CUT, 0.07),
    (Phase.WIDENING, 0.09),
    (Phase.KERNELS, 0.12),
    (Phase.FINALISTS, 0.60),
    (Phase.HELD_OUT_CHECK, 0.63),
    (Phase.WEIGHTS, 0.95),
    (Phase.FINAL_FIT, 0.97),
)
# Upper bound on the estimated fraction of the total time that has passed, as long as the fit is running.
_MAX_SHARE = 0.99
# Phases that many searches skip. The phase WEIGHTS occurs only in the search of an ensemble.
_OPTIONAL = (Phase.WIDENING, Phase.HELD_OUT_CHECK, Phase.WEIGHTS)
# Minimum fraction of the total time, and minimum number of seconds, that must have passed before an estimate is made.
_MIN_SHARE, _MIN_SECONDS = 0.02, 1.0
# Time constant, in seconds, with which the displayed value approaches the estimate.
_SMOOTHING_SECONDS = 2.5


class TimeLeft:
    """Estimate of the remaining seconds of a fit.

    `any_kernel` tells whether the search also chooses the kernel. If the fit is `resumed`, the results of the first
    stages are read from a checkpoint, which takes almost no time.
    """

    def __init__(self, any_kernel: bool, resumed: bool = False) -> None:
        self._plan = _ANY_KERNEL if any_kernel else _ONE_KERNEL
        # Position of the current phase in the plan.
        self._position = 0
        # Fractions of the total time that have passed at the start and at the end of the current phase, and the seconds
        # that have passed at the start of the phase.
        self._share, self._end_share, self._stage_start = 0.0, self._plan[1][1], 0.0
        # Start of the first phase that is computed, not read from a checkpoint: the fraction of the total time, and the
        # seconds, that have passed until then. None until this phase starts.
        self._origin = None if resumed else (0.0, 0.0)
        # Seconds from `_origin` to the end of the fit, as estimated at the start of the current phase.
        self._total: float | None = None
        # Time of the last call of `smoothed`, and the value that it returned.
        self._displayed: tuple[float, float] | None = None

    def start_stage(self, state: SearchState) -> None:
        """Record that a stage starts. `state` is the state of the search at this moment."""
        seconds = state.seconds
        if state.phase is Phase.STARTS and self._share > 0.0:
            self._start_again(seconds)
            return
        share, end_share = self._shares(state)
        if share in (0.0, self._share):  # the phase of the stage is unknown, or is the current phase
            return
        before = self.estimate(seconds)
        if self._origin is None and seconds - self._stage_start > _MIN_SECONDS:
            self._origin = self._share, self._stage_start
        self._share, self._end_share, self._stage_start = share, max(end_share, share), seconds
        if self._origin is None:
            return
        spent, progress = seconds - self._origin[1], share - self._origin[0]
        if progress < _MIN_SHARE or spent < _MIN_SECONDS:
            return
        total = spent * (1.0 - self._origin[0]) / progress
        # Combine the previous and the new estimate in a geometric mean. The new estimate has twice the weight, because
        # it is based on more progress.
        self._total = total if before is None else math.cbrt((spent + before) * total**2)

    def _start_again(self, seconds: float) -> None:
        """Record that a second search starts."""
        if self._origin is not None:
            # The second search is expected to take as long as the first. The final fit, which only follows the second
            # search, is neglected because it takes little time.
            self._total = seconds - self._origin[1]
            self._origin = 0.0, seconds
        self._position, self._share, self._end_share, self._stage_start = 0, 0.0, self._plan[1][1], seconds

    def _shares(self, state: SearchState) -> tuple[float, float]:
        """Return the fractions of the total time that have passed at the start and at the end of the phase of `state`.

        If the phase is unknown, return zeros.
        """
        for k in range(self._position, len(self._plan)):
            if state.phase is self._plan[k][0]:
                self._position = k
                later = [share for phase, share in self._plan[k + 1 :] if phase not in _OPTIONAL]
                return self._plan[k][1], later[0] if later else _MAX_SHARE
        return 0.0, 0.0

    def estimate(self, seconds: float) -> float | None:
        """Return the remaining seconds after `seconds` seconds of the fit, or None if it is too early to tell."""
        if self._total is None or self._origin is None:
            return None
        first, spent = self._origin[0], seconds - self._origin[1]
        share = min(max(first + (1.0 - first) * spent / self._total, self._share), self._end_share)
        return spent * (1.0 - share) / (share - first) if share > first else self._total

    def smoothed(self, seconds: float) -> float | None:
        """Return the remaining seconds for a live display. The value changes to a new estimate over a few seconds."""
        left = self.estimate(seconds)
        if left is None:
            return None
        if self._displayed is not None:
            then, before = self._displayed
            expected = max(0.0, before - (seconds - then))
            left = expected + (left - expected) * (1.0 - math.exp(-(seconds - then) / _SMOOTHING_SECONDS))
        self._displayed = seconds, left
        return left


def format_time_left(seconds: float) -> str:
    """Return an estimate of the remaining time as text, rounded to 5 s, 10 s, 1 min or 0.1 h."""
    if seconds < 7.5:
        return "a few seconds left"
    if seconds < 175.0:
        unit = 5 if seconds < 57.5 else 10
        return f"about {unit * round(seconds / unit)} s left"
    return f"about {round(seconds / 60)} min left" if seconds < 5400 else f"about {seconds / 3600:.1f} h left"
