"""Access to the models inside a `TableRegressor` and a `HyperKernelEnsemble`."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from hkrr.estimators.classification import HyperKernelClassifier
from hkrr.estimators.ensemble import HyperKernelEnsemble
from hkrr.estimators.fitted.importance import column_names
from hkrr.estimators.ridge import HyperKernelRidge
from hkrr.estimators.ridge_cv import HyperKernelRidgeCV
from hkrr.tables.regressor import TableRegressor

# A regressor with a single map.
OneMapRegressor: TypeAlias = HyperKernelRidge | HyperKernelRidgeCV
# A model with a single map.
OneMapModel: TypeAlias = OneMapRegressor | HyperKernelClassifier
# A regressor that learns one or more maps, also from a table.
AnyRegressor: TypeAlias = OneMapRegressor | HyperKernelEnsemble | TableRegressor


class InnerModels(NamedTuple):
    """The models inside a fitted estimator."""

    table: TableRegressor | None  # the estimator itself if it is a table regressor
    # `whole` and `first` can also be models of `hkrr.baselines`, as in a description of a saved model.
    whole: BaseEstimator  # the model that predicts, from encoded columns if there is a table regressor
    first: BaseEstimator  # the first member of `whole` if it is an ensemble, or else `whole`

    @property
    def column_names(self) -> list[str]:
        """Names of the columns that the model receives, or x0, x1, ... if the model was fitted without names."""
        return column_names(self.first) if self.table is None else self.table.encoder_.names_out


def unwrap_model(model: BaseEstimator) -> InnerModels:
    """Return the models inside an estimator. Raise NotFittedError if the estimator is an unfitted table regressor."""
    table, whole = None, model
    if isinstance(model, TableRegressor):
        check_is_fitted(model, "model_")
        table, whole = model, model.model_
    return InnerModels(table, whole, whole.members_[0] if isinstance(whole, HyperKernelEnsemble) else whole)
