"""What B, and lambda, are chosen by, beside the training objective: the evidence and the leave-one-out error."""

from hkrr.criteria.base import Criterion
from hkrr.criteria.evidence import Evidence
from hkrr.criteria.grouped import Grouped
from hkrr.criteria.leave_one_out import LeaveOneOut

__all__ = ["CRITERIA", "Criterion", "Evidence", "Grouped", "LeaveOneOut"]

CRITERIA: dict[str, type[Criterion]] = {"loo": LeaveOneOut, "evidence": Evidence}
