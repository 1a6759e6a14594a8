"""TableClassifier: a classifier for data frames with numbers, dates, booleans, text and missing values."""

from __future__ import annotations

from typing import Any, Literal

from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.validation import check_is_fitted

from hkrr._base.linear_algebra import Array
from hkrr.estimators.classification import HyperKernelClassifier
from hkrr.tables.table_model import TableModel


class TableClassifier(ClassifierMixin, TableModel):
    """A classifier for data frames that infers the type of each column and encodes the column as numbers.

    The columns are encoded as in `TableRegressor`.

    Parameters
    ----------
    classifier : estimator or None, default=None
        Classifier to fit to the encoded columns. None uses ``HyperKernelClassifier()``.
    missing : {"impute", "refuse"}, default="impute"
        How to handle missing values, as in `TableRegressor`.

    Attributes
    ----------
    classes_ : array (n_classes,)
        Sorted labels of the classes.
    model_ : estimator
        The classifier, fitted to the encoded columns.
    encoder_, columns_, feature_names_in_, n_features_in_, feature_names_out_, target_
        As in `TableRegressor`.
    feature_importances_ : array (n_features_out,)
        Importance of each encoded column. The importances sum to 1. Only present if ``model_`` has importances.
    diagnostics_ : Diagnostics
        Diagnostics of the fit. Only present if ``model_`` has diagnostics.
    held_out_ : HeldOutClassScores
        Scores on held-out rows. `fit` does not set this attribute. To save scores with the model, set this attribute to
        the result of `hkrr.tables.compare`.

    Examples
    --------
    >>> import pandas as pd
    >>> from sklearn.linear_model import LogisticRegression
    >>> from hkrr.tables import TableClassifier
    >>> frame = pd.DataFrame({"area": range(60), "colour": ["red", "blue", "green"] * 20})
    >>> model = TableClassifier(LogisticRegression()).fit(frame, frame["colour"] == "red")
    >>> model.classes_.tolist(), model.predict_proba(frame).shape
    ([False, True], (60, 2))
    """

    def __init__(
        self, classifier: BaseEstimator | None = None, *, missing: Literal["impute", "refuse"] = "impute"
    ) -> None:
        self.classifier: Any = classifier
        self.missing = missing

    @property
    def unfitted(self) -> BaseEstimator:
        """The classifier to fit to the encoded columns, before the fit."""
        return HyperKernelClassifier() if self.classifier is None else clone(self.classifier)

    @property
    def classes_(self) -> Array:
        """Sorted labels of the classes."""
        check_is_fitted(self, "model_")
        classes: Array = self.model_.classes_
        return classes

    def predict(self, X: Any) -> Array:
        """Return the most probable label of each row.

        Parameters
        ----------
        X : pandas or polars data frame
            Rows to predict. Columns are matched by name in any order, and additional columns are ignored.

        Returns
        -------
        array (n_samples,)
        """
        encoded = self._encode(X)
        labels: Array = self.model_.predict(encoded)
        return labels

    def predict_proba(self, X: Any) -> Array:
        """Return the probability of each class, in the order of ``classes_``.

        Parameters
        ----------
        X : pandas or polars data frame
            Rows, as in `predict`.

        Returns
        -------
        array (n_samples, n_classes)
        """
        encoded = self._encode(X)
        probabilities: Array = self.model_.predict_proba(encoded)
        return probabilities
