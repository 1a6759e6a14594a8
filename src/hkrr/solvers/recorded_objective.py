"""Recording and replay of evaluations in the journal of a checkpoint (`hkrr._base.resume_journal`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from hkrr._base.linear_algebra import Array
from hkrr._base.resume_journal import Run
from hkrr.objective import Reduced

if TYPE_CHECKING:
    from hkrr.solvers.driver import ReducedObjective


class ReplayedObjective:
    """A wrapper of an objective that records calls of ``reduced``, and replays the calls of an interrupted run.

    The recorded evaluations are returned in order, as long as the solver evaluates bitwise the same points. At the
    first different point, the remaining recorded evaluations are deleted. All other attributes and methods are those of
    the objective, and their calls are not recorded. `elapsed` returns the elapsed seconds of the run, and `skip_to` is
    called with the recorded seconds of each replayed evaluation.
    """

    def __init__(
        self, objective: ReducedObjective, run: Run, elapsed: Callable[[], float], skip_to: Callable[[float], None]
    ) -> None:
        self._objective, self._run = objective, run
        self._elapsed, self._skip_to = elapsed, skip_to
        self._n_calls = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._objective, name)

    def reduced(self, B: Array, *reg_lambda: float) -> Reduced:
        """Return the recorded evaluation at B if there is one. Otherwise compute the evaluation and record it."""
        x, record = np.append(np.ravel(B), reg_lambda), self._run.record
        k, self._n_calls = self._n_calls, self._n_calls + 1
        if k < len(record.x) and record.x[k].tobytes() == x.tobytes():
            self._skip_to(record.seconds[k])
            return Reduced(
                record.value[k], record.grad[k], record.alpha[k], record.grad_log_lambda[k], record.reg_lambda[k]
            )
        self._run.drop_evaluations(k)
        found: Reduced = self._objective.reduced(B, *reg_lambda)
        optional = [None if x is None else float(x) for x in (found.grad_log_lambda, found.reg_lambda)]
        self._run.add_evaluation(x, self._elapsed(), float(found.value), found.grad, found.alpha, *optional)
        return found
