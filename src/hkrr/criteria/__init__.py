"""Criteria that can be minimized over both the map B and lambda: the evidence and the leave-one-out error.

The estimators offer a third criterion, the training objective. It is implemented in `hkrr.objective.Objective`.
"""

from hkrr.criteria.base import Criterion
from hkrr.criteria.evidence import Evidence
from hkrr.criteria.leave_one_out import LeaveOneOut
from hkrr.criteria.mean_over_row_groups import Grouped

__all__ = ["CRITERIA", "Criterion", "Evidence", "Grouped", "LeaveOneOut"]

CRITERIA: dict[str, type[Criterion]] = {"evidence": Evidence, "loo": LeaveOneOut}
