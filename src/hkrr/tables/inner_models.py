"""Access to the models inside a model for data frames, an ensemble and a classifier."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from hkrr.estimators.classification import HyperKernelClassifier
from hkrr.estimators.ensemble import HyperKernelEnsemble
from hkrr.estimators.fitted.importance import column_names
from hkrr.estimators.ridge import HyperKernelRidge
from hkrr.estimators.ridge_cv import HyperKernelRidgeCV
from hkrr.tables.classifier import TableClassifier
from hkrr.tables.regressor import TableRegressor
from hkrr.tables.table_model import TableModel

# A regressor with a single map.
OneMapRegressor: TypeAlias = HyperKernelRidge | HyperKernelRidgeCV
# A regressor that learns one or more maps, also from a table.
AnyRegressor: TypeAlias = OneMapRegressor | HyperKernelEnsemble | TableRegressor
# A classifier that learns maps, also from a table.
AnyClassifier: TypeAlias = HyperKernelClassifier | TableClassifier


class InnerModels(NamedTuple):
    """The models inside a fitted estimator."""

    table: TableModel | None  # the estimator itself if it is a model for data frames
    # `whole` and `first` can also be models of `hkrr.baselines`, as in a description of a saved model.
    whole: BaseEstimator  # the model that predicts, from encoded columns if there is such a model
    first: BaseEstimator  # the first member of `whole` if it has members, or else `whole`

    @property
    def column_names(self) -> list[str]:
        """Names of the columns that the model receives, or x0, x1, ... if the model was fitted without names."""
        return column_names(self.first) if self.table is None else self.table.encoder_.names_out


def unwrap_model(model: BaseEstimator) -> InnerModels:
    """Return the models inside an estimator. Raise NotFittedError if it is unfitted."""
    table, whole = None, model
    if isinstance(model, TableModel):
        check_is_fitted(model, "model_")
        table, whole = model, model.model_
    has_members = isinstance(whole, HyperKernelEnsemble | HyperKernelClassifier)
    if has_members:
        check_is_fitted(whole)
    return InnerModels(table, whole, whole.members_[0] if has_members else whole)
