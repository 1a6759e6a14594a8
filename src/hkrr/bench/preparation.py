"""Preparation of tables for the methods of a benchmark. Everything is learned from the training rows only.

A table is a data frame with text, dates and missing values. `raw` leaves it as it is. `typed` is for methods that
handle categories and missing values themselves: numbers, booleans and dates (as days) become floats, and any other
column becomes a pandas categorical. `imputed` is for methods that handle only categories, and `numeric` is for all
other methods.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hkrr._base.linear_algebra import Array
from hkrr.tables.encoding import as_days, as_numbers, as_texts, infer_date_order, is_boolean, is_numeric, missing_mask

if TYPE_CHECKING:
    import pandas as pd

# One-hot encoding groups the values that occur in fewer than _FEWEST_ROWS training rows. It also groups the least
# frequent values of a column with more than _MOST_CATEGORIES values.
_FEWEST_ROWS, _MOST_CATEGORIES = 5, 50


def raw(X: Any, X_test: Any) -> tuple[Any, Any]:
    """Return the training and the test inputs unchanged."""
    return X, X_test


def typed(X: pd.DataFrame, X_test: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return data frames with columns of floats and of pandas categoricals, both with missing values as NaN.

    The columns are named x0, x1 and so on. The categories are integers. A value that does not occur in the training
    rows is a missing value.
    """
    import pandas as pd

    columns = [_typed_column(X.iloc[:, k], X_test.iloc[:, k]) for k in range(X.shape[1])]
    train, test = ({f"x{k}": column[part] for k, column in enumerate(columns)} for part in (0, 1))
    return pd.DataFrame(train, index=X.index), pd.DataFrame(test, index=X_test.index)


def _typed_column(train: pd.Series, test: pd.Series) -> tuple[Any, Any]:
    import pandas as pd

    masks = [missing_mask(each) for each in (train, test)]
    texts = [as_texts(each) for each in (train, test)]
    if not hasattr(train, "cat"):
        order = infer_date_order(texts[0][~masks[0]]) if train.dtype.kind not in "mMc" else ""
        for parse in (_as_floats, lambda series, mask: as_days(series, mask, order)):
            values, is_invalid = parse(train, masks[0])
            if not np.any(is_invalid):
                return values, parse(test, masks[1])[0]
    known, codes = np.unique(texts[0][~masks[0]], return_inverse=True)
    position = {value: code for code, value in enumerate(known)}
    train_codes = np.full(len(train), -1)
    train_codes[~masks[0]] = codes
    test_codes = np.where(masks[1], -1, [position.get(text, -1) for text in texts[1]])
    categories = pd.Index(range(len(known)))
    return tuple(pd.Categorical.from_codes(each, categories=categories) for each in (train_codes, test_codes))


def _as_floats(series: pd.Series, is_missing: Array) -> tuple[Array, Array]:
    """Return numbers, and booleans as 0 and 1, as floats. Also return a mask of the values that are neither."""
    if series.dtype.kind == "M":
        return np.zeros(len(series)), np.ones(len(series), dtype=bool)
    if is_numeric(series) or is_boolean(series):
        return series.to_numpy(dtype=np.float64, na_value=np.nan), np.zeros(len(series), dtype=bool)
    return as_numbers(series, is_missing)


def texts_of_categories(X: pd.DataFrame, X_test: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the result of `typed`, with categories as strings. A missing category is the string "-1"."""
    frames = typed(X, X_test)
    names = categorical_columns(frames[0])
    train, test = (frame.assign(**{name: frame[name].cat.codes.astype(str) for name in names}) for frame in frames)
    return train, test


def categorical_columns(X: Any) -> list[str]:
    """Return the names of the columns that are not numeric, or an empty list for an array."""
    return [name for name in X.columns if not is_numeric(X[name])] if hasattr(X, "columns") else []


def imputed(X: pd.DataFrame, X_test: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return data frames with columns of floats and of pandas categoricals, without missing values.

    A missing number is replaced by the median, and an extra column indicates the missing values. In a categorical
    column, missing values form a category.
    """
    import pandas as pd

    frames = typed(X, X_test)
    names = categorical_columns(frames[0])
    parts = [frame[names].apply(lambda one: one.cat.add_categories(-1).fillna(-1)) for frame in frames]
    if len(names) < X.shape[1]:
        numbers = [frame.drop(columns=names) for frame in frames]
        imputer = _imputer().set_output(transform="pandas").fit(numbers[0])
        parts = [pd.concat([imputer.transform(one), part], axis=1) for one, part in zip(numbers, parts, strict=True)]
    return parts[0], parts[1]


def numeric(X: pd.DataFrame, X_test: pd.DataFrame) -> tuple[Array, Array]:
    """Return arrays: numbers with imputed medians and indicators of missing values, and one-hot encoded categories."""
    from sklearn.compose import ColumnTransformer
    from sklearn.preprocessing import OneHotEncoder

    frames = typed(X, X_test)
    names = categorical_columns(frames[0])
    one_hot = OneHotEncoder(
        min_frequency=_FEWEST_ROWS,
        max_categories=_MOST_CATEGORIES,
        handle_unknown="infrequent_if_exist",
        sparse_output=False,
    )
    others = [name for name in frames[0].columns if name not in names]
    both = ColumnTransformer([("numbers", _imputer(), others), ("categories", one_hot, names)])
    train, test = (frame.astype(np.float64) for frame in frames)
    return np.asarray(both.fit_transform(train)), np.asarray(both.transform(test))


def _imputer() -> Any:
    from sklearn.impute import SimpleImputer

    return SimpleImputer(strategy="median", add_indicator=True, keep_empty_features=True)
