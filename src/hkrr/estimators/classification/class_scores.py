"""`ClassScores`: an ensemble of regressions on the indicators of the classes."""

from __future__ import annotations

from collections.abc import Callable

from hkrr._base.linear_algebra import Array
from hkrr.estimators._search_mixin import Loaded
from hkrr.estimators.classification.class_link import LOG_LOSS
from hkrr.estimators.ensemble import HyperKernelEnsemble
from hkrr.estimators.search.search_and_refit import LeftOutPredictions, Members, Selection
from hkrr.rows import Rows
from hkrr.rows.standardize import Moments


class ClassScores(HyperKernelEnsemble):
    """Ensemble of regressions on the indicators of the classes, which `HyperKernelClassifier` fits.

    The weights of the members are those of the link (`hkrr.estimators.classification.class_link`). Unlike in
    `HyperKernelEnsemble`, the weighted sum of the members has no meaning.

    Attributes
    ----------
    left_out_ : LeftOutPredictions or None
        Leave-one-out predictions of the members.
    """

    _stacking = LOG_LOSS
    left_out_: LeftOutPredictions | None

    def _store_members(self, members: Members, scaling: Moments, one_target: bool) -> None:
        super()._store_members(members, scaling, one_target)
        self.left_out_ = members.left_out

    def _diagnose(self, selected: Selection, loaded: Loaded, predict: Callable[[Rows], Array]) -> None:
        # The diagnostics refer to the regression of the first member.
        super()._diagnose(selected, loaded, self.members_[0]._predict_rows)
