"""`TableModel`: what a regressor and a classifier for data frames have in common."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator, is_classifier
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from hkrr._base.checks import check_choice, check_installed
from hkrr._base.error_text import quoted
from hkrr._base.linear_algebra import Array
from hkrr._storage.checkpoint import FitInterrupted, best_model_so_far, restored_on_failure
from hkrr.estimators.fitted.diagnostics import Diagnostics
from hkrr.estimators.fitted.summary import Summary
from hkrr.exceptions import TableError
from hkrr.rows.weights import check_lengths
from hkrr.tables.encoding import Encoder
from hkrr.tables.type_inference import learn_encoder

if TYPE_CHECKING:
    import pandas as pd


# Minimum fraction of a time limit that is left for the fit after the encoding of the columns.
_LEAST_SHARE = 0.1


@contextmanager
def _less_time(model: BaseEstimator, seconds: float) -> Iterator[None]:
    """Reduce the time limit of a model, if it has one, by the given number of seconds."""
    limit = getattr(model, "time_limit", None)
    if not isinstance(limit, (int, float)):
        yield  # There is no limit, or it is invalid. In the second case, `fit` raises the error.
        return
    model.time_limit = max(limit - seconds, _LEAST_SHARE * limit)
    try:
        yield
    finally:
        model.time_limit = limit


class TableModel(BaseEstimator):
    """Base class of estimators that infer the types of the columns of a data frame and encode them as numbers.

    `hkrr.tables.TableRegressor` documents the attributes.
    """

    missing: Literal["impute", "refuse"]
    encoder_: Encoder
    model_: BaseEstimator

    @property
    @abstractmethod
    def unfitted(self) -> BaseEstimator:
        """The estimator to fit to the encoded columns, before the fit."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Infer the type of each column, encode the columns, and fit the regressor or classifier to them.

        Parameters
        ----------
        X : pandas or polars data frame
            Training rows, without the target.
        y : array (n_samples,) or pandas.Series
            Targets of a regressor, or labels of a classifier: strings, integers or booleans. The name of a series is
            stored as `target_`.
        sample_weight : array (n_samples,) or None, default=None
            Weights of the rows. If a regressor supports weights, the weights of rows with missing values are reduced;
            see `hkrr.tables.missing`.

        Returns
        -------
        self
        """
        began = time.perf_counter()
        check_choice("missing", self.missing, ("impute", "refuse"))
        frame = as_frame(X)
        with restored_on_failure(self):
            for name in ("held_out_", "target_", "missing_variances_", "outliers_"):
                self.__dict__.pop(name, None)
            if getattr(y, "name", None) is not None:
                self.target_ = str(y.name)
            self.encoder_ = learn_encoder(frame, self.missing)  # callbacks may use the encoder during the fit
            self.feature_names_in_ = np.array([str(name) for name in frame.columns], dtype=object)
            self.n_features_in_ = len(self.feature_names_in_)
            model = self.unfitted
            encoded, y = self.encoder_.transform(frame), np.asarray(y)
            check_lengths(encoded, y, sample_weight)
            options = {} if sample_weight is None else {"sample_weight": sample_weight}
            if has_fit_parameter(model, "sample_weight"):
                weights = self._missing_value_weights(frame, encoded, y)
                if weights is not None:
                    weights = weights if sample_weight is None else weights * np.asarray(sample_weight)
                    options = {"sample_weight": weights}
            try:
                with _less_time(model, time.perf_counter() - began):
                    self.model_ = model.fit(encoded, y, **options)
            except KeyboardInterrupt as stop:
                if best_model_so_far(stop) is None:
                    raise
                self.model_ = best_model_so_far(stop)
                raise FitInterrupted(self, stop) from None
            outliers = getattr(getattr(self.model_, "diagnostics_", None), "outliers", ())
            if outliers and frame.index.dtype.kind in "iu":
                self.outliers_ = np.asarray(frame.index[list(outliers)], dtype=np.int64)
        return self

    def _missing_value_weights(self, frame: pd.DataFrame, encoded: Array, y: Array) -> Array | None:
        """Return weights of the rows according to their missing values, or None if all rows have the weight 1."""
        return None

    def transform(self, X: Any) -> Array:
        """Return the encoded columns (n_samples, n_features_out), in the order of ``feature_names_out_``."""
        check_is_fitted(self, "encoder_")
        return self.encoder_.transform(as_frame(X))

    def summary(self) -> Summary:
        """Return a one-page summary of ``model_``, with the column names in ``feature_names_out_``."""
        summary: Summary = self._from_model("summary")(self.encoder_.names_out)
        return summary

    @property
    def feature_importances_(self) -> Array:
        """Importance of each encoded column. The importances sum to 1."""
        importances: Array = self._from_model("feature_importances_")
        return importances

    @property
    def diagnostics_(self) -> Diagnostics:
        """Diagnostics of the fit."""
        diagnostics: Diagnostics = self._from_model("diagnostics_")
        return diagnostics

    def _from_model(self, name: str) -> Any:
        """Return an attribute of ``model_``, or raise an AttributeError that names models with this attribute."""
        check_is_fitted(self, "model_")
        if not hasattr(self.model_, name):
            others = "HyperKernelEnsemble and HyperKernelRidgeCV have"
            if is_classifier(self):
                others = "HyperKernelClassifier has"
            raise AttributeError(
                f"model_ (a fitted {type(self.model_).__name__}) has no {name}; {others} {name}, unless the fit was "
                "interrupted"
            )
        return getattr(self.model_, name)

    def _encode(self, X: Any) -> Array:
        check_is_fitted(self, "model_")
        return self.transform(X)

    @property
    def columns_(self) -> dict[str, list[Any]]:
        """Type of each column, number of encoded columns, and description of the encoding, as a dict of lists."""
        columns = self.encoder_.columns
        return {
            "name": [column.name for column in columns],
            "kind": [column.kind for column in columns],
            "columns": [len(column.names_out) for column in columns],
            "about": [column.about for column in columns],
        }

    @property
    def feature_names_out_(self) -> Array:
        """Names of the encoded columns."""
        return np.array(self.encoder_.names_out, dtype=object)

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Return the names of the columns that `transform` returns.

        Parameters
        ----------
        input_features : None
            Ignored. Present for compatibility with scikit-learn.

        Returns
        -------
        array of str
        """
        check_is_fitted(self, "encoder_")
        return self.feature_names_out_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.categorical = True
        tags.input_tags.allow_nan = self.missing == "impute"
        return tags


def as_frame(X: Any) -> pd.DataFrame:
    """Return a pandas or polars data frame as a pandas data frame, after checking that its column names are unique."""
    check_installed("pandas", "cli", "tables")
    import pandas as pd

    if hasattr(X, "to_pandas"):
        X = X.to_pandas()
    if not isinstance(X, pd.DataFrame):
        raise TypeError(f"X must be a data frame with column names, got {type(X).__name__}")
    names = [str(name) for name in X.columns]
    if len(set(names)) < len(names):
        repeated = next(name for name in names if names.count(name) > 1)
        raise TableError(f"two columns are named {quoted(repeated)}; rename one")
    return X
