"""Inference of the type of each table column from its values: number, date, boolean or text.

Columns that cannot help a prediction are left out.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from hkrr._base.error_text import quoted
from hkrr._base.linear_algebra import Array
from hkrr.exceptions import TableError
from hkrr.tables.encoding import (
    MISSING_CATEGORY,
    Column,
    Encoder,
    Kind,
    as_days,
    as_numbers,
    as_texts,
    cell,
    check_none_missing,
    infer_date_order,
    is_numeric,
    missing_mask,
)

if TYPE_CHECKING:
    import pandas as pd

# Maximum number of values of a text column that get an indicator column. The most frequent values are chosen.
MAX_CATEGORIES = 50
# A text value is frequent if it occurs in at least this fraction of the rows, and in at least two rows.
_RARE_SHARE = 0.001
# Fraction of missing values above which a column of numbers, dates or booleans gets an indicator of missing values.
_INDICATOR_SHARE = 0.05
# Fraction of distinct values above which a text column is taken for an identifier and left out.
_IDENTIFIER_SHARE = 0.9
# Minimum number of rows for a column to be taken for an identifier or for row numbers.
_MIN_IDENTIFIER_ROWS = 10
# A text column is treated as numeric if at least the fraction `_MIN_NUMERIC_SHARE` of its values are numbers, and
# the other values are at most `_MAX_WORDS` distinct words. These words are treated as missing values.
_MIN_NUMERIC_SHARE, _MAX_WORDS = 0.9, 3
# Consecutive integers are taken for row numbers if the first is 0, 1, or at least `_MIN_LARGE_ROW_NUMBER`. If they are
# all in the range `_YEARS`, they are taken for years instead.
_MIN_LARGE_ROW_NUMBER, _YEARS = 1000, (1500, 2200)
# A text column is boolean if its distinct values, in lower case, are one of these pairs.
_BOOLEAN_TEXTS = ({"false", "true"}, {"no", "yes"}, {"n", "y"}, {"f", "t"})
# Dates with the year at the end, such as 25/03/2024, whose order of day and month may be ambiguous.
_YEAR_LAST_DATE = re.compile(r"\d{1,2}[./-]\d{1,2}[./-]\d{2,4}( .*)?")


def learn_encoder(frame: pd.DataFrame, missing: str) -> Encoder:
    """Infer the type of every column of a data frame and return an encoder for data frames with these columns.

    Parameters
    ----------
    frame : pandas.DataFrame
        The training rows, without the target.
    missing : {"impute", "refuse"}
        "impute" replaces missing values, and "refuse" raises an error if a value is missing.

    Returns
    -------
    Encoder

    Raises
    ------
    TableError
        If no column can be used, if a number is infinite, or if a value is missing and ``missing="refuse"``.

    Examples
    --------
    >>> import pandas as pd
    >>> from hkrr.tables import learn_encoder
    >>> frame = pd.DataFrame({"area": [71.5, None, 90.0], "town": ["Bari", "Bari", "Genova"]})
    >>> encoder = learn_encoder(frame, "impute")
    >>> encoder.names_out
    ['area', 'area is missing', 'town=Bari']
    >>> encoder.transform(frame)[1].tolist()
    [80.75, 1.0, 1.0]
    """
    columns = tuple(_infer_column(str(name), frame.iloc[:, k], missing) for k, name in enumerate(frame.columns))
    if not any(column.is_used for column in columns):
        reasons = "; ".join(f"{quoted(column.name)}: {column.about}" for column in columns[:5])
        raise TableError(f"no column can be used as input ({reasons or 'the table has only the target'})")
    return Encoder(columns, missing)


def _infer_column(name: str, series: pd.Series, missing: str) -> Column:
    reason = _unsupported(series)
    if reason is not None:
        return Column(name, "left out", reason)
    is_missing = missing_mask(series)
    if np.all(is_missing):
        return Column(name, "left out", "all values are missing", n_missing=len(series))
    if is_numeric(series) and not _is_categorical(series):
        column = _numeric_column(name, "number", series, is_missing, as_numbers(series, is_missing)[0])
    else:
        column = _infer_non_numeric(name, series, is_missing)
    if missing == "refuse" and column.is_used:
        check_none_missing(name, series, column.missing(series))
    return column


def _dtype_kind(series: pd.Series) -> str:
    """Return NumPy's one-letter code of the dtype of a series, or "" if the dtype has no code."""
    return str(getattr(series.dtype, "kind", ""))


def _is_categorical(series: pd.Series) -> bool:
    return hasattr(series, "cat")


def _unsupported(series: pd.Series) -> str | None:
    """Return why the values of a series are not supported, or None if they are supported."""
    if _dtype_kind(series) == "c":
        return "complex numbers are not supported"
    if _dtype_kind(series) == "m":
        return "durations are not supported (convert them to numbers, such as seconds)"
    for value in series if series.dtype == object else ():
        if isinstance(value, list | tuple | dict | set | bytes | np.ndarray):
            return f"values of type {type(value).__name__} are not supported"
    return None


def _infer_non_numeric(name: str, series: pd.Series, is_missing: Array) -> Column:
    """Return the `Column` for a dtype that is not numeric: strings, dates, booleans, categories or objects."""
    texts = as_texts(series)
    if _is_categorical(series):
        return _text_column(name, texts, is_missing)
    is_date = _dtype_kind(series) == "M"
    if not is_date:
        numbers, is_word = as_numbers(series, is_missing)
        words = tuple(dict.fromkeys(texts[is_word]))
        if is_word.sum() <= (1 - _MIN_NUMERIC_SHARE) * (~is_missing).sum() and len(words) <= _MAX_WORDS:
            return _numeric_column(name, "number", series, is_missing | is_word, numbers, words)
        values = {text.lower() for text in texts[~is_missing]}
        if values in _BOOLEAN_TEXTS:
            zero, one = sorted(values)
            return _boolean_column(name, is_missing, np.array([text.lower() == one for text in texts]), (zero, one))
    order = "" if is_date else infer_date_order(texts[~is_missing])
    days, is_invalid = as_days(series, is_missing, order)
    if np.any(is_invalid):
        return _text_column(name, texts, is_missing)
    column = _numeric_column(name, "date", series, is_missing, days)
    if column.is_used and order:
        return replace(column, values=(order,), about=f"{order}; {column.about}")
    return column


def _numeric_column(
    name: str, kind: Kind, series: pd.Series, is_missing: Array, numbers: Array, words: tuple[str, ...] = ()
) -> Column:
    n_missing, present = int(is_missing.sum()), numbers[~is_missing]
    if np.any(np.isinf(present)):
        raise TableError(f"{cell(name, series, np.isinf(numbers) & ~is_missing)} is not a finite number; correct it")
    is_constant = bool(np.all(present == present[0]))
    if is_constant and not n_missing:
        return Column(name, "left out", "all values are the same")
    is_long = len(present) >= _MIN_IDENTIFIER_ROWS and not n_missing
    if kind == "number" and is_long and _are_row_numbers(present, series.index):
        return Column(name, "left out", "the values are row numbers")
    # If all other values are equal, the column has no information except which values are missing.
    indicator = n_missing > _INDICATOR_SHARE * len(numbers) or bool(n_missing and is_constant)
    about = ["days since 1970"] if kind == "date" else []
    if words:
        about.append(f"{', '.join(map(quoted, words))} treated as missing")
    if n_missing:
        about.append(_describe_missing(n_missing, "replaced by the median", indicator))
    # The median is the mean of the two middle values. They are halved before they are added, because the sum of two
    # very large numbers would overflow.
    low, high = np.quantile(present, 0.5, method="lower"), np.quantile(present, 0.5, method="higher")
    return Column(name, kind, "; ".join(about), float(low / 2 + high / 2), indicator, (), words, n_missing)


def _describe_missing(n_missing: int, treatment: str, indicator: bool) -> str:
    return f"{n_missing:,} missing, {treatment}{', with an indicator column' if indicator else ''}"


def _are_row_numbers(values: Array, index: pd.Index) -> bool:
    """Return whether the values are row numbers, that is, whether they differ from the row index by a constant.

    The index is the position of each row in the whole table, so row numbers are also recognized in a subset of the
    rows. The constant is the number of the first row of the table. It must be 0, 1 or an integer of at least 1000, so
    that a column of ages 30, 31, ..., 90 is not taken for row numbers. Consecutive years are not taken for row numbers
    either.
    """
    if index.dtype.kind not in "iu":
        return False
    first = values[0] - index[0]
    is_large = first >= _MIN_LARGE_ROW_NUMBER and first == math.floor(first)
    are_years = _YEARS[0] <= first <= values.max() <= _YEARS[1]
    return (first in (0, 1) or (is_large and not are_years)) and bool(np.all(values - np.asarray(index) == first))


def _boolean_column(name: str, is_missing: Array, is_one: Array, values: tuple[str, str]) -> Column:
    n_missing = int(is_missing.sum())
    fill = float(2 * np.count_nonzero(is_one[~is_missing]) > np.count_nonzero(~is_missing))
    indicator = n_missing > _INDICATOR_SHARE * len(is_one)
    about = [f"{values[0]} = 0, {values[1]} = 1"]
    if n_missing:
        about.append(_describe_missing(n_missing, f"replaced by {values[int(fill)]}", indicator))
    return Column(name, "truth", "; ".join(about), fill, indicator, values, (), n_missing)


def _text_column(name: str, texts: Array, is_missing: Array) -> Column:
    counts = Counter(texts[~is_missing])
    n, n_missing = int((~is_missing).sum()), int(is_missing.sum())
    if len(counts) == 1 and not n_missing:
        return Column(name, "left out", "all values are the same")
    if n >= _MIN_IDENTIFIER_ROWS and len(counts) > _IDENTIFIER_SHARE * n:
        if all(_YEAR_LAST_DATE.fullmatch(text) for text in counts):
            return Column(name, "left out", "the format of the dates is ambiguous (write 2024-03-25)")
        return Column(name, "left out", "nearly all values differ, as in an identifier", n_missing=n_missing)
    if n_missing:
        counts[MISSING_CATEGORY] += n_missing
    min_count = max(2, math.ceil(_RARE_SHARE * len(texts)))
    # Values of equal frequency are sorted alphabetically, so that the order of the rows does not matter.
    ranked = sorted((value for value, count in counts.items() if count >= min_count), key=lambda v: (-counts[v], v))
    kept = tuple(ranked[:MAX_CATEGORIES])
    if not kept:
        return Column(name, "left out", "no value occurs twice", n_missing=n_missing)
    about = [f"one-hot encoded, {len(kept)} value{'s' if len(kept) > 1 else ''}"]
    if n_rare := len(counts) - len(kept):
        about.append(f"{n_rare:,} rare value{'s have' if n_rare > 1 else ' has'} no column")
    if n_missing:
        treatment = "encoded as a category" if MISSING_CATEGORY in kept else "too few for a column of their own"
        about.append(f"{n_missing:,} missing, {treatment}")
    return Column(name, "text", "; ".join(about), values=kept, n_missing=n_missing)
