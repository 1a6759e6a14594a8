"""What a picture is of: a model, the names of its columns, and rows as it sees them, whatever it is wrapped in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from hkrr.importance import FeatureImportances, column_names


@dataclass(frozen=True)
class Subject:
    """A fitted model, and the way to it."""

    model: Any  # HyperKernelRidge, HyperKernelRidgeCV or HyperKernelClassifier
    names: list[str]
    steps: tuple[Callable[[Any], Any], ...]  # from rows as they are given to rows as the model takes them

    def rows(self, X: Any) -> Any:
        """Return rows as the model takes them."""
        for step in self.steps:
            X = step(X)
        return X


def subject_of(estimator: Any) -> Subject:
    """Return the model in a table's regressor, a pipeline or a search, or raise where there is none of this library."""
    from hkrr.tables.regressor import TableRegressor

    model: Any = estimator
    names, steps = None, list[Callable[[Any], Any]]()
    while not _has_map(model):
        if isinstance(model, Pipeline) and len(model) > 0:
            if len(model) > 1:
                before = model[:-1]
                names = _names_of(before)
                steps.append(before.transform)
            model = model[-1]
        elif isinstance(model, TableRegressor):
            check_is_fitted(model, "model_")
            names = [str(name) for name in model.feature_names_out_]
            steps.append(model.transform)
            model = model.model_
        elif hasattr(model, "refit") and hasattr(model, "estimator"):  # a search, scikit-learn's or another
            check_is_fitted(model)
            if not hasattr(model, "best_estimator_"):
                raise ValueError(f"estimator keeps no model: give {type(model).__name__} refit=True")
            model = model.best_estimator_
        else:
            got = type(estimator).__name__
            inner = "" if model is estimator else f" of a {type(model).__name__}"
            raise TypeError(
                "estimator must be a fitted HyperKernelRidge, HyperKernelRidgeCV or HyperKernelClassifier, or a "
                f"TableRegressor, a Pipeline or a search around one; got a {got}{inner}"
            )
    check_is_fitted(model)
    if names is None or len(names) != model.n_features_in_ or hasattr(model, "feature_names_in_"):
        names = column_names(model)
    return Subject(model, names, tuple(steps))


def _has_map(estimator: Any) -> bool:
    return isinstance(estimator, FeatureImportances)


def _names_of(steps: Pipeline) -> list[str] | None:
    """Return the names of the columns that these steps leave, where they know them."""
    try:
        return [str(name) for name in steps.get_feature_names_out()]
    except (AttributeError, ValueError):  # a step that has no names, or needs those of columns that had none
        return None
