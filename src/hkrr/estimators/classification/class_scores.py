"""`ClassScores`: an ensemble of regressions on the indicators of the classes."""

from __future__ import annotations

from collections.abc import Callable

from hkrr._base.linear_algebra import Array
from hkrr._storage.checkpoint import best_model_so_far
from hkrr.estimators._search_mixin import CheckedData
from hkrr.estimators.classification.class_link import LOG_LOSS
from hkrr.estimators.ensemble import HyperKernelEnsemble
from hkrr.estimators.search.search_and_refit import FitPlan, LeftOutPredictions, SelectedMembers, SelectedModel
from hkrr.rows import Rows


class ClassScores(HyperKernelEnsemble):
    """Ensemble of regressions on the indicators of the classes, which `HyperKernelClassifier` fits.

    The weights of the members are those of the link (`hkrr.estimators.classification.class_link`). Unlike in
    `HyperKernelEnsemble`, the weighted sum of the members has no meaning.

    """

    _stacking = LOG_LOSS
    _left_out: LeftOutPredictions | None

    def fit_members(
        self, X: Array, Y: Array, weight: Array | None
    ) -> tuple[LeftOutPredictions | None, KeyboardInterrupt | None]:
        """Fit the members. Return their leave-one-out predictions, if there are any.

        If Ctrl-C stopped the fit after a first model has been found, the exception is returned too.
        """
        stopped: KeyboardInterrupt | None = None
        try:
            self.fit(X, Y, weight)
        except KeyboardInterrupt as stop:
            if best_model_so_far(stop) is not self:
                raise
            stopped = stop
        left_out = self._left_out
        del self._left_out  # fitted models neither keep nor save it
        return left_out, stopped

    def _store_members(self, members: SelectedMembers, plan: FitPlan, one_target: bool) -> None:
        super()._store_members(members, plan, one_target)
        self._left_out = members.left_out

    def _diagnose(self, selected: SelectedModel, loaded: CheckedData, predict: Callable[[Rows], Array]) -> None:
        # The diagnostics refer to the regression of the first member.
        super()._diagnose(selected, loaded, self.members_[0]._predict_rows)
