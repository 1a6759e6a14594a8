"""TableRegressor: a regressor for data frames with numbers, dates, booleans, text and missing values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from scipy.special import ndtri
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from hkrr._base.checks import check_choice, check_installed
from hkrr._base.error_text import quoted
from hkrr._base.linear_algebra import Array
from hkrr._storage.checkpoint import FitInterrupted, best_model_so_far, restored_on_failure
from hkrr.estimators.ensemble import HyperKernelEnsemble
from hkrr.estimators.fitted.diagnostics import Diagnostics
from hkrr.estimators.fitted.summary import Summary
from hkrr.exceptions import TableError
from hkrr.rows.weights import check_lengths
from hkrr.tables.missing import missing_matrix, missing_variances, row_weights
from hkrr.tables.type_inference import learn_encoder

if TYPE_CHECKING:
    import pandas as pd


def _has_intervals(model: TableRegressor) -> bool:
    return hasattr(model.model_ if hasattr(model, "model_") else model.regressor, "predict_interval")


class TableRegressor(RegressorMixin, BaseEstimator):
    """A regressor for data frames that infers the type of each column and encodes the column as numbers.

    Numbers are kept. Dates become days since 1970-01-01, and booleans become 0 and 1. A text column is one-hot encoded:
    each of its most frequent values, at most 50, gets an indicator column. Rare and unseen values are 0 in all of these
    columns. Columns that cannot help a prediction are left out: constant columns, empty columns, row numbers, text
    columns in which nearly all values differ, and columns of unsupported types. ``columns_`` describes the encoding of
    each column.

    Parameters
    ----------
    regressor : estimator or None, default=None
        Regressor to fit to the encoded columns. None uses ``HyperKernelEnsemble()``.
    missing : {"impute", "refuse"}, default="impute"
        How to handle missing values. "impute" replaces missing numbers and dates by the median and missing booleans by
        the more frequent value. If more than 5% of the values of such a column are missing, or if all its other values
        are equal, an extra indicator column is 1 where a value is missing. In a text column, missing values form a
        category of their own. "refuse" raises an error if a value is missing.

    Attributes
    ----------
    encoder_ : Encoder
        The object that encodes the columns. Its attribute ``columns`` has one record for each column.
    columns_ : dict of lists
        Four lists with one entry for each column of the data frame: "name", "kind" (the type), "columns" (the number
        of encoded columns) and "about" (a description of the encoding, or the reason why the column is left out). The
        dict can be passed to pandas.DataFrame.
    model_ : estimator
        The regressor, fitted to the encoded columns.
    feature_names_in_ : array of str
        Names of the columns of the data frame.
    n_features_in_ : int
        Number of columns of the data frame.
    feature_names_out_ : array of str
        Names of the encoded columns, such as "area" or "colour=red".
    target_ : str
        Name of y. Only present if y has a name.
    feature_importances_ : array (n_features_out,)
        Importance of each encoded column. The importances sum to 1. Only present if ``model_`` has importances.
    diagnostics_ : Diagnostics
        Diagnostics of the fit. Only present if ``model_`` has diagnostics.
    missing_variances_ : array (n_features_in,)
        For each column, the variance that is added to the predictive variance of a row in which the column is missing.
        Such rows also have a smaller weight in the fit; see `hkrr.tables.missing`. Only present if at least one of
        these variances is positive.
    outliers_ : array of int
        Index labels of the training rows whose targets are outliers, at most 100, the largest residual first. Only
        present if there are outliers and the index of the data frame contains integers.
    held_out_ : HeldOutScores
        Scores on held-out rows. `fit` does not set this attribute. To save scores with the model, set this attribute to
        the result of `hkrr.tables.compare`.

    Examples
    --------
    >>> import pandas as pd
    >>> from hkrr import HyperKernelRidgeCV
    >>> from hkrr.tables import TableRegressor
    >>> frame = pd.DataFrame({"area": range(30, 90), "colour": ["red", "blue", "red"] * 20})
    >>> price = 3.0 * frame["area"] + 20.0 * (frame["colour"] == "red")
    >>> model = TableRegressor(HyperKernelRidgeCV(n_components=1, random_state=0)).fit(frame, price)
    >>> list(model.feature_names_out_)
    ['area', 'colour=red', 'colour=blue']
    >>> model.predict(pd.DataFrame({"colour": ["green"], "area": [50]})).shape
    (1,)
    >>> "colour=red" in str(model.summary())
    True
    """

    def __init__(
        self, regressor: BaseEstimator | None = None, *, missing: Literal["impute", "refuse"] = "impute"
    ) -> None:
        self.regressor: Any = regressor
        self.missing = missing

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Infer the type of each column, encode the columns, and fit the regressor.

        Parameters
        ----------
        X : pandas or polars data frame
            Training rows, without the target.
        y : array (n_samples,) or pandas.Series
            Targets. The name of a series is stored as `target_`.
        sample_weight : array (n_samples,) or None, default=None
            Weights of the rows. If the regressor supports weights, the weights of rows with missing values are reduced;
            see `hkrr.tables.missing`.

        Returns
        -------
        self
        """
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
            model = HyperKernelEnsemble() if self.regressor is None else clone(self.regressor)
            encoded, y = self.encoder_.transform(frame), np.asarray(y)
            check_lengths(encoded, y, sample_weight)
            options = {} if sample_weight is None else {"sample_weight": sample_weight}
            if has_fit_parameter(model, "sample_weight"):
                weights = self._missing_value_weights(frame, encoded, y)
                if weights is not None:
                    weights = weights if sample_weight is None else weights * np.asarray(sample_weight)
                    options = {"sample_weight": weights}
            try:
                self.model_: BaseEstimator = model.fit(encoded, y, **options)
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
        is_missing = missing_matrix(self.encoder_, frame)
        base, added = missing_variances(is_missing, encoded, y)
        if np.any(added):
            self.missing_variances_ = added
        return row_weights(is_missing, base, added)

    def transform(self, X: Any) -> Array:
        """Return the encoded columns (n_samples, n_features_out), in the order of ``feature_names_out_``."""
        check_is_fitted(self, "encoder_")
        return self.encoder_.transform(as_frame(X))

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Return the predictions.

        Parameters
        ----------
        X : pandas or polars data frame
            Rows to predict. Columns are matched by name in any order, and additional columns are ignored.
        return_std : bool, default=False
            Whether to return predictive standard deviations too. The method ``model_.predict`` must have the parameter
            `return_std`.

        Returns
        -------
        predictions : array (n_samples,)
        deviations : array (n_samples,)
            Only returned if `return_std` is True.
        """
        encoded = self._encode(X)
        if not return_std:
            return self.model_.predict(encoded)
        predictions, deviations = self.model_.predict(encoded, return_std=True)
        return predictions, np.sqrt(deviations**2 + self._added_variance(X))

    @available_if(_has_intervals)  # type: ignore[untyped-decorator]  # scikit-learn ships no types
    def predict_interval(self, X: Any, coverage: float = 0.9) -> Any:
        """Return the prediction intervals of ``model_.predict_interval``.

        If values are missing in a row, its interval is longer: the variances of its missing columns, which
        ``missing_variances_`` contains, are added to the predictive variance.

        Parameters
        ----------
        X : pandas or polars data frame
            Rows to predict.
        coverage : float, default=0.9
            Probability that an interval contains a new target.

        Returns
        -------
        lower, upper : array (n_samples,)
        """
        lower, upper = self.model_.predict_interval(self._encode(X), coverage)
        variance = self._added_variance(X)
        if not np.any(variance):
            return lower, upper
        # The missing values add an independent error, and the variances of independent errors add up. The half length
        # of an interval is proportional to the standard deviation of the error, so the squares of the half lengths also
        # add up.
        half_length = (upper - lower) / 2.0
        extension = np.hypot(half_length, ndtri((1.0 + coverage) / 2.0) * np.sqrt(variance)) - half_length
        return lower - extension, upper + extension

    def _added_variance(self, X: Any) -> Any:
        """Return the variance that the missing values of each row add to its predictive variance."""
        added = getattr(self, "missing_variances_", None)
        return 0.0 if added is None else missing_matrix(self.encoder_, as_frame(X)) @ added

    def calibrate(self, X: Any, y: Any) -> Self:
        """Calibrate the lengths of the prediction intervals on new rows, with ``model_.calibrate``.

        Parameters
        ----------
        X : pandas or polars data frame
            Rows that were not used in the fit.
        y : array (n_samples,) or pandas.Series
            Targets of these rows.

        Returns
        -------
        self
        """
        self._from_model("calibrate")(self.transform(X), np.asarray(y))
        return self

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
            raise AttributeError(
                f"model_ (a fitted {type(self.model_).__name__}) has no {name}; HyperKernelEnsemble and "
                f"HyperKernelRidgeCV have {name}, unless their fit was interrupted"
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
