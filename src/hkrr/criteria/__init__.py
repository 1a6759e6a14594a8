"""Criteria for choosing B and lambda: the evidence and the leave-one-out error.

The estimators offer a third criterion, the training objective. It is implemented in `hkrr.objective.Objective`.
"""

from hkrr.criteria.base import Criterion
from hkrr.criteria.evidence import Evidence
from hkrr.criteria.leave_one_out import LeaveOneOut
from hkrr.criteria.subsample_average import Grouped

__all__ = ["CRITERIA", "Criterion", "Evidence", "Grouped", "LeaveOneOut"]

CRITERIA: dict[str, type[Criterion]] = {"loo": LeaveOneOut, "evidence": Evidence}
