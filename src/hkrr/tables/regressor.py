"""TableRegressor: a regressor for data frames with numbers, dates, booleans, text and missing values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from scipy.special import ndtri
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.utils.metaestimators import available_if

from hkrr._base.linear_algebra import Array
from hkrr.estimators.ensemble import HyperKernelEnsemble
from hkrr.tables.missing import missing_matrix, missing_variances, row_weights
from hkrr.tables.table_model import TableModel, as_frame

if TYPE_CHECKING:
    import pandas as pd


def _has_intervals(model: TableRegressor) -> bool:
    return hasattr(model.model_ if hasattr(model, "model_") else model.regressor, "predict_interval")


class TableRegressor(RegressorMixin, TableModel):
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

    @property
    def unfitted(self) -> BaseEstimator:
        """The regressor to fit to the encoded columns, before the fit."""
        return HyperKernelEnsemble() if self.regressor is None else clone(self.regressor)

    def _missing_value_weights(self, frame: pd.DataFrame, encoded: Array, y: Array) -> Array | None:
        is_missing = missing_matrix(self.encoder_, frame)
        base, added = missing_variances(is_missing, encoded, y)
        if np.any(added):
            self.missing_variances_ = added
        return row_weights(is_missing, base, added)

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

        If values are missing in a row, its interval is wider: the variances of its missing columns, which
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
