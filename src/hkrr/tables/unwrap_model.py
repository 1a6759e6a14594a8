"""Access to the models inside a `TableRegressor` and a `HyperKernelEnsemble`."""

from __future__ import annotations

from typing import Any, NamedTuple

from sklearn.utils.validation import check_is_fitted

from hkrr.estimators.ensemble import HyperKernelEnsemble
from hkrr.estimators.fitted.importance import column_names
from hkrr.tables.regressor import TableRegressor


class InnerModels(NamedTuple):
    """The models inside a fitted estimator."""

    table: TableRegressor | None  # the estimator itself if it is a table regressor
    whole: Any  # the model that predicts, from encoded columns if there is a table regressor
    first: Any  # the first member of `whole` if it is an ensemble, or else `whole`

    @property
    def column_names(self) -> list[str]:
        """Names of the columns that the model receives, or x0, x1, ... if the model was fitted without names."""
        return column_names(self.first) if self.table is None else self.table.encoder_.names_out


def unwrap_model(model: Any) -> InnerModels:
    """Return the models inside an estimator. Raise NotFittedError if the estimator is an unfitted table regressor."""
    table, whole = None, model
    if isinstance(model, TableRegressor):
        check_is_fitted(model, "model_")
        table, whole = model, model.model_
    return InnerModels(table, whole, whole.members_[0] if isinstance(whole, HyperKernelEnsemble) else whole)
