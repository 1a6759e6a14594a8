"""An objective whose evaluations are noted in a journal, and handed back to a run that is started again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hkrr._arrays import Array
from hkrr.journal import Run
from hkrr.objective import Reduced


@dataclass(frozen=True)
class Evaluation:
    """The reduced function at x, the map (and lambda, where it is learned), and when in the run that was known."""

    x: Array
    reduced: Reduced
    seconds: float


class Noted:
    """The objective as a solver sees it: `reduced` is handed back from the journal while a solver asks the same.

    The same to the last bit: from the first other question on, what was noted is dropped. All else that an objective
    has is computed as ever.
    """

    def __init__(self, objective: Any, run: Run, monitor: Any) -> None:
        self._objective, self._run, self._monitor = objective, run, monitor
        self._asked = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._objective, name)

    def reduced(self, B: Array, *reg_lambda: float) -> Reduced:
        """Return the objective's own `reduced`, or what it was."""
        x, noted = np.append(np.ravel(B), reg_lambda), self._run.evaluations
        k, self._asked = self._asked, self._asked + 1
        if k < len(noted) and noted[k].x.tobytes() == x.tobytes():
            self._monitor.went_by(noted[k].seconds)
            known: Reduced = noted[k].reduced
            return known
        del noted[k:]
        found: Reduced = self._objective.reduced(B, *reg_lambda)
        noted.append(Evaluation(x, found, self._monitor.seconds))
        self._run.noted()
        return found
