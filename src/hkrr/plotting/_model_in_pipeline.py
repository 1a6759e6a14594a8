"""Access to the hkrr model inside a table regressor, pipeline or parameter search, and to the input of the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from hkrr.estimators.classification import HyperKernelClassifier
from hkrr.estimators.classification.classifier import with_first_member
from hkrr.estimators.ensemble import HyperKernelEnsemble
from hkrr.estimators.fitted.importance import column_names
from hkrr.tables.inner_models import OneMapRegressor, unwrap_model
from hkrr.tables.table_model import TableModel


@dataclass(frozen=True)
class UnwrappedModel:
    """A fitted model, the names of its columns, and the functions that compute its input.

    The model may be inside an outer estimator, such as a pipeline.
    """

    model: OneMapRegressor | HyperKernelEnsemble | HyperKernelClassifier
    names: list[str]
    # Functions that convert the input of the outer estimator to the input of the model, in the order of application.
    steps: tuple[Callable[[Any], Any], ...]

    def transform_rows(self, X: Any) -> Any:
        """Convert rows of the outer estimator's input to rows of the model's input."""
        for step in self.steps:
            X = step(X)
        return X

    @property
    def ensemble(self) -> HyperKernelEnsemble | None:
        """The model if it is an ensemble, the ensemble of the scores of a classifier, or None."""
        if isinstance(self.model, HyperKernelClassifier):
            return self.model.scores_
        return self.model if isinstance(self.model, HyperKernelEnsemble) else None

    @property
    def with_map(self) -> OneMapRegressor:
        """The model itself, or the first member of an ensemble or of a classifier, for plots of a single map."""
        return self.model if isinstance(self.model, OneMapRegressor) else self.model.members_[0]

    @property
    def with_link(self) -> OneMapRegressor | HyperKernelClassifier:
        """The model that predicts from the map of `with_map`.

        For a classifier, it is a classifier with the first member only, which gets the weights of all members.
        """
        if not isinstance(self.model, HyperKernelClassifier):
            return self.with_map
        return with_first_member(self.model)

    @property
    def member(self) -> str:
        """A note that says which member of an ensemble `with_map` is. Empty if the model has no other members."""
        if isinstance(self.model, OneMapRegressor) or len(self.model.members_) == 1:
            return ""
        return f"member 1 of {len(self.model.members_)}, weight {self.model.weights_[0]:.2f}"


def unwrap(estimator: BaseEstimator) -> UnwrappedModel:
    """Return the hkrr model inside an estimator. Raise TypeError if there is none.

    The estimator may be the model itself, or a `TableRegressor`, a pipeline or a parameter search that contains the
    model, possibly nested.
    """
    model, names, steps = estimator, None, list[Callable[[Any], Any]]()
    while not isinstance(model, OneMapRegressor | HyperKernelEnsemble | HyperKernelClassifier):
        if isinstance(model, Pipeline) and len(model) > 0:
            if len(model) > 1:
                before = model[:-1]
                names = _output_names(before)
                steps.append(before.transform)
            model = model[-1]
        elif isinstance(model, TableModel):
            steps.append(model.transform)
            inner = unwrap_model(model)
            names, model = inner.column_names, inner.whole
        elif hasattr(model, "refit") and hasattr(model, "estimator"):  # a parameter search, such as GridSearchCV
            check_is_fitted(model)
            if not hasattr(model, "best_estimator_"):
                raise ValueError(f"estimator has no best_estimator_; construct {type(model).__name__} with refit=True")
            model = model.best_estimator_
        else:
            got = type(estimator).__name__
            around = "" if model is estimator else f" around a {type(model).__name__}"
            raise TypeError(
                "estimator must be a fitted HyperKernelRidge, HyperKernelRidgeCV, HyperKernelEnsemble or "
                "HyperKernelClassifier, or a TableRegressor, a Pipeline or a parameter search with one of these "
                f"models; got a {got}{around}"
            )
    check_is_fitted(model)
    if names is None or len(names) != model.n_features_in_ or hasattr(model, "feature_names_in_"):
        names = column_names(model)
    return UnwrappedModel(model, names, tuple(steps))


def _output_names(steps: Pipeline) -> list[str] | None:
    """Return the names of the output columns of a pipeline, or None if the names are unknown."""
    try:
        return [str(name) for name in steps.get_feature_names_out()]
    except (AttributeError, ValueError):  # a step has no output names, or needs input names that are missing
        return None
