"""The table of all criteria with their naive implementations, for tests of every criterion."""

import pytest

from hkrr.criteria import CRITERIA
from support import oracles_criteria

_BY_NAME = {"evidence": oracles_criteria.evidence, "loo": oracles_criteria.leave_one_out}
ORACLES = {criterion: _BY_NAME[name] for name, criterion in CRITERIA.items()}
every_criterion = pytest.mark.parametrize("criterion", ORACLES, ids=CRITERIA)
