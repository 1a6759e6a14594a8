"""TableRegressor: a regressor over data frames, with numbers, dates, truths, text and missing values."""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np
from scipy.special import ndtri
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from hkrr._arrays import Array
from hkrr._validation import check_choice, check_installed
from hkrr.checkpoints import kept_by, left_as_it_was
from hkrr.diagnostics import Diagnostics
from hkrr.exceptions import TableError
from hkrr.rows.source import shown
from hkrr.samples import check_lengths
from hkrr.selection import HyperKernelRidgeCV
from hkrr.summary import Summary, summarise
from hkrr.tables.guessing import learn_encoder
from hkrr.tables.unknown import missing_in, variances_of_missing, weights_of


def _has_intervals(model: Any) -> bool:
    return hasattr(model.model_ if hasattr(model, "model_") else model.regressor, "predict_interval")


class TableRegressor(RegressorMixin, BaseEstimator):
    """A regressor over data frames as they come: it guesses what each column is, and makes numbers of it.

    Numbers stay what they are; dates become days, truths 0 and 1, and a text column one column for each of its (at
    most 50 most frequent) values, which are all 0 for rare and for unseen values. Columns that say nothing, all values
    being the same, missing, or (of texts) different, are left out. `columns_` tells what became of each.

    Parameters
    ----------
    regressor : estimator or None, default=None
        What is fitted to the numbers; None is ``HyperKernelRidgeCV(kernel="auto")``.
    missing : {"impute", "refuse"}, default="impute"
        What becomes of missing values: a number or a date is the median, a truth the more frequent one, a text a value
        of its own, with a column that says where they were if many are missing; or an error.

    Attributes
    ----------
    encoder_ : Encoder
        What becomes of each column, as plain data.
    columns_ : dict of lists
        The same as a table: "name", "kind", "columns" (how many it becomes) and "about". A pandas.DataFrame can be made
        of it.
    model_ : estimator
        The regressor, fitted to the numbers.
    feature_names_in_, n_features_in_ : the columns of the data frame
    feature_names_out_ : array of str
        The columns of the numbers, as "area" or "colour=red".
    target_ : str
        The name of y, where it has one.
    feature_importances_ : array (n_features_out,)
        How far each of these columns moves the prediction, as shares of 1; where `model_` knows it.
    diagnostics_ : Diagnostics
        The health of the fit, where `model_` has examined it.
    missing_variances_ : array, a number for each column
        By how much a prediction is less sure, as a variance, where a column is missing; only where it is for some. Rows
        weighed less by that in the fit, and their intervals are longer: see `hkrr.tables.unknown`.
    held_out_ : HeldOutScores
        The scores on rows that were held out, where `compare` has found them and they were set.

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

    def __init__(self, regressor: Any = None, *, missing: Literal["impute", "refuse"] = "impute") -> None:
        self.regressor = regressor
        self.missing = missing

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Find out what the columns are, and fit.

        Parameters
        ----------
        X : pandas or polars data frame
        y : array (n_samples,), or a column of numbers
        sample_weight : array (n_samples,) or None

        Returns
        -------
        self
        """
        check_choice("missing", self.missing, ("impute", "refuse"))
        frame = as_frame(X)
        with left_as_it_was(self):
            for name in ("held_out_", "target_", "missing_variances_"):
                self.__dict__.pop(name, None)
            if getattr(y, "name", None) is not None:
                self.target_ = str(y.name)
            self.encoder_ = learn_encoder(frame, self.missing)  # before the fit, whose callbacks may need it
            self.feature_names_in_ = np.array([str(name) for name in frame.columns], dtype=object)
            self.n_features_in_ = len(self.feature_names_in_)
            model: Any = HyperKernelRidgeCV(kernel="auto") if self.regressor is None else clone(self.regressor)
            numbers, y = self.encoder_.transform(frame), np.asarray(y)
            check_lengths(numbers, y, sample_weight)
            weights = {} if sample_weight is None else {"sample_weight": sample_weight}
            if has_fit_parameter(model, "sample_weight"):
                known = self._weights_where_some_is_missing(frame, numbers, y)
                if known is not None:
                    weights = {"sample_weight": known if sample_weight is None else known * np.asarray(sample_weight)}
            try:
                self.model_: Any = model.fit(numbers, y, **weights)
            except KeyboardInterrupt as stop:
                if kept_by(stop) is not None:
                    self.model_, vars(stop)["model"] = kept_by(stop), self  # the best so far
                raise
        return self

    def _weights_where_some_is_missing(self, frame: Any, numbers: Array, y: Array) -> Array | None:
        missing = missing_in(self.encoder_, frame)
        base, known = variances_of_missing(missing, numbers, y)
        if np.any(known):
            self.missing_variances_ = known
        return weights_of(missing, base, known)

    def transform(self, X: Any) -> Array:
        """Return the table as numbers (n_samples, n_features_out), a column for each of `feature_names_out_`."""
        check_is_fitted(self, "encoder_")
        return self.encoder_.transform(as_frame(X))

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Return the predictions.

        Parameters
        ----------
        X : data frame
            Columns are taken by their names, in any order; others are ignored.
        return_std : bool, default=False
            Whether to return standard deviations too, where `model_` has them.

        Returns
        -------
        array (n_samples,), or a pair of them
        """
        numbers = self._numbers(X)
        if not return_std:
            return self.model_.predict(numbers)
        predicted, spread = self.model_.predict(numbers, return_std=True)
        return predicted, np.sqrt(spread**2 + self._variance_of_missing(X))

    @available_if(_has_intervals)  # type: ignore[untyped-decorator]  # scikit-learn ships no types
    def predict_interval(self, X: Any, coverage: float = 0.9) -> Any:
        """Return intervals that hold a new target with this probability, as `model_` does.

        They are longer for rows of which something is missing that would have told much.
        """
        found = self.model_.predict_interval(self._numbers(X), coverage)
        more = self._variance_of_missing(X)
        if not np.any(more):
            return found
        lower, upper = found
        # Of two errors that know nothing of each other the squares add up, and so do those of an interval's halves.
        half, of_missing = (upper - lower) / 2.0, ndtri((1.0 + coverage) / 2.0) * np.sqrt(more)
        longer = np.hypot(half, of_missing) - half
        return lower - longer, upper + longer

    def _variance_of_missing(self, X: Any) -> Any:
        """Return by how much the variance of each row is greater for what is missing of it."""
        known = getattr(self, "missing_variances_", None)
        return 0.0 if known is None else missing_in(self.encoder_, as_frame(X)) @ known

    def calibrate(self, X: Any, y: Any) -> Self:
        """Take the lengths of intervals from rows that the fit has not seen, as `model_` does.

        Parameters
        ----------
        X : data frame
        y : array (n_samples,), or a column of numbers

        Returns
        -------
        self
        """
        self._of_model("calibrate")(self.transform(X), np.asarray(y))
        return self

    def summary(self) -> Summary:
        """Return the model on one page, as `model_` does, with the columns called as in `feature_names_out_`."""
        self._of_model("summary")
        return summarise(self.model_, self.encoder_.names_out)

    @property
    def feature_importances_(self) -> Array:
        """How far each column of the numbers moves the prediction."""
        found: Array = self._of_model("feature_importances_")
        return found

    @property
    def diagnostics_(self) -> Diagnostics:
        """The health of the fit."""
        found: Diagnostics = self._of_model("diagnostics_")
        return found

    def _of_model(self, name: str) -> Any:
        """Return what `model_` has of this name, or raise."""
        check_is_fitted(self, "model_")
        if not hasattr(self.model_, name):
            raise AttributeError(
                f"model_, a {type(self.model_).__name__}, has no {name}: a HyperKernelRidge or HyperKernelRidgeCV has, "
                "after a fit that was not interrupted"
            )
        return getattr(self.model_, name)

    def _numbers(self, X: Any) -> Array:
        check_is_fitted(self, "model_")
        return self.transform(X)

    @property
    def columns_(self) -> dict[str, list[Any]]:
        """What became of each column."""
        columns = self.encoder_.columns
        return {
            "name": [column.name for column in columns],
            "kind": [column.kind for column in columns],
            "columns": [len(column.names_out) for column in columns],
            "about": [column.about for column in columns],
        }

    @property
    def feature_names_out_(self) -> Array:
        """The names of the columns of the numbers."""
        return np.array(self.encoder_.names_out, dtype=object)

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Return the names of the columns that `transform` gives."""
        check_is_fitted(self, "encoder_")
        return self.feature_names_out_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.categorical = True
        tags.input_tags.allow_nan = self.missing == "impute"
        return tags


def as_frame(X: Any) -> Any:
    """Return a pandas data frame with names that differ, or raise."""
    check_installed("pandas", "cli", "tables")
    import pandas as pd

    if hasattr(X, "to_pandas"):
        X = X.to_pandas()
    if not isinstance(X, pd.DataFrame):
        raise TypeError(f"X must be a data frame, whose columns have names; got a {type(X).__name__}")
    names = [str(name) for name in X.columns]
    if len(set(names)) < len(names):
        repeated = next(name for name in names if names.count(name) > 1)
        raise TableError(f"two columns are called {shown(repeated)}; rename one")
    return X
