"""Encoding of table columns as numbers. A `Column` describes the encoding of one column, an `Encoder` that of a table.

The kind of a column decides how it is encoded:

    number     one column with the value
    date       one column with the days since 1970-01-01
    truth      one column of 0 and 1 (for a boolean column of the table)
    text       one indicator column for each frequent value (one-hot encoding); rare and unseen values are 0 in all of
               these columns
    left out   no column

Missing numbers and dates are replaced by the median, and missing booleans by the more frequent value. If more than 5%
of the values of such a column are missing, or if all its other values are equal, an extra column is 1 where the value
is missing and 0 elsewhere. In a text column, missing values form a category of their own.

`hkrr.tables.type_inference` creates the `Column` records from the training rows. This module uses the records to encode
rows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from hkrr._base.error_text import quoted, truncated
from hkrr._base.linear_algebra import Array
from hkrr._storage.json_codec import storable
from hkrr.exceptions import TableError

if TYPE_CHECKING:
    import pandas as pd

# Strings that are read as missing values.
MISSING_TEXTS = frozenset(
    ("", "NA", "N/A", "n/a", "#N/A", "#NA", "<NA>", "NaN", "nan", "-nan", "NaT", "NULL", "Null", "null", "None")
)
# Value that replaces missing entries of a text column.
MISSING_CATEGORY = "(missing)"
# Values of `Column.kind`. They are stored in model files.
Kind = Literal["number", "date", "truth", "text", "left out"]
# Maximum number of columns for which the error message about an unknown column name lists all column names.
_MAX_LISTED_NAMES = 8
# Maximum number of classes for which the confusion matrix is printed, and maximum length of a label in it.
_MAX_LISTED_CLASSES, _MAX_LABEL = 10, 12
_MONTHS_PER_YEAR = 12
# Orders of the day and the month in dates such as 25/03/2024, 25.3.2024 and 25-03-2024. For dates in the ISO format,
# such as 2024-03-25, the order is the empty string.
DAY_FIRST, MONTH_FIRST = "day first", "month first"
# An example of a date for each order, used in error messages.
_DATE_EXAMPLES = {"": "2024-03-25", DAY_FIRST: "25/03/2024", MONTH_FIRST: "03/25/2024"}
# Dates with the year at the end, possibly followed by a time of day.
_YEAR_LAST_DATE = re.compile(r"(\d{1,2})([./-])(\d{1,2})\2(\d{4})(?:[ T](.+))?")


@storable
@dataclass(frozen=True)
class Column:
    """Record of how one column of a table is encoded.

    Attributes
    ----------
    name : str
        Name of the column in the table.
    kind : {"number", "date", "truth", "text", "left out"}
        Type of the column. "truth" means a boolean column, and "left out" a column that is not used.
    about : str
        Description of the encoding, or the reason why the column is left out.
    fill : float
        Replacement for a missing number, date or boolean.
    indicator : bool
        Whether there is an extra encoded column that is 1 where the value is missing and 0 elsewhere.
    values : tuple of str
        For a text column, the values that have an indicator column. For a boolean column, the string encoded as 0 and
        the string encoded as 1. For a column of dates such as 25/03/2024, the order: "day first" or "month first".
        Empty for all other columns.
    words : tuple of str
        For a column of numbers, the strings that mean "missing" in this column, in addition to common ones such as
        "NA".
    n_missing : int
        Number of missing values among the training rows. It is stored for users: the encoding does not depend on it.
    """

    name: str
    kind: Kind
    about: str = ""
    fill: float = 0.0
    indicator: bool = False
    values: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    n_missing: int = 0

    @property
    def is_used(self) -> bool:
        """Whether the column is encoded, and not left out."""
        return self.kind != "left out"

    @property
    def names_out(self) -> list[str]:
        """Names of the columns into which this column is encoded."""
        if not self.is_used:
            return []
        names = [f"{self.name}={value}" for value in self.values] if self.kind == "text" else [self.name]
        return [*names, f"{self.name} is missing"] if self.indicator else names

    def missing(self, series: pd.Series) -> Array:
        """Return a boolean mask of the missing values of a series."""
        if self.kind == "number" and is_numeric(series):
            return np.asarray(series.isna(), dtype=bool)
        return missing_mask(series, self.words)

    def encode(self, series: pd.Series) -> Array:
        """Return the series encoded as numbers, with one column for each of `names_out`."""
        is_missing = self.missing(series)
        if self.kind == "text":
            positions = {value: k for k, value in enumerate(self.values)}
            texts = np.where(is_missing, MISSING_CATEGORY, as_texts(series))
            position = np.array([positions.get(text, -1) for text in texts], dtype=np.int64)
            return (position[:, None] == np.arange(len(self.values))).astype(np.float64)
        parse = {"number": as_numbers, "date": self._as_days, "truth": self._as_booleans}[self.kind]
        numbers, is_invalid = parse(series, is_missing)
        if np.any(is_invalid):
            expected = {
                "number": "a number",
                "date": f"a date (such as {_DATE_EXAMPLES.get(self._date_order)})",
                "truth": f"one of {', '.join(self.values)}",
            }[self.kind]
            raise TableError(
                f"{cell(self.name, series, is_invalid)} is not {expected}; correct it or leave the cell empty"
            )
        if np.any(np.isinf(numbers)):
            raise TableError(f"{cell(self.name, series, np.isinf(numbers))} is not a finite number; correct it")
        numbers = np.where(is_missing, self.fill, numbers)
        return np.column_stack([numbers, is_missing.astype(np.float64)] if self.indicator else [numbers])

    @property
    def _date_order(self) -> str:
        return self.values[0] if self.kind == "date" and self.values else ""

    def _as_days(self, series: pd.Series, is_missing: Array) -> tuple[Array, Array]:
        return as_days(series, is_missing, self._date_order)

    def _as_booleans(self, series: pd.Series, is_missing: Array) -> tuple[Array, Array]:
        texts = [text.lower() for text in as_texts(series)]
        is_one = np.array([text in (self.values[1], "true", "1") for text in texts], dtype=bool)
        is_zero = np.array([text in (self.values[0], "false", "0") for text in texts], dtype=bool)
        return is_one.astype(np.float64), ~is_missing & ~is_one & ~is_zero


@storable
@dataclass(frozen=True)
class Encoder:
    """Record of how all columns of a table are encoded.

    Attributes
    ----------
    columns : tuple of Column
        One record for each column of the table.
    missing : {"impute", "refuse"}
        "impute" replaces missing values, and "refuse" raises an error if a value is missing.
    """

    columns: tuple[Column, ...]
    missing: str = "impute"

    @property
    def names_out(self) -> list[str]:
        """Names of the columns of the encoded matrix."""
        return [name for column in self.columns for name in column.names_out]

    def transform(self, frame: pd.DataFrame) -> Array:
        """Return the encoded matrix (n_rows, n_columns_out) of a data frame.

        Columns are matched by name, in any order. Columns that the encoder does not know are ignored.
        """
        positions = {str(name): k for k, name in enumerate(frame.columns)}
        blocks = [np.zeros((len(frame), 0))]
        for column in self.columns:
            if not column.is_used:
                continue
            if column.name not in positions:
                raise TableError(f"there is no column {quoted(column.name)}{suggest_names(column.name, positions)}")
            series = frame.iloc[:, positions[column.name]]
            if self.missing == "refuse":
                check_none_missing(column.name, series, column.missing(series))
            blocks.append(column.encode(series))
        return np.hstack(blocks)


@storable
@dataclass(frozen=True)
class HeldOutScores:
    """R2 of a model and of baselines on held-out rows, with confidence intervals. ``str`` returns them as a text table.

    Attributes
    ----------
    target : str
        Name of the target column.
    methods : tuple of str
        Names of the methods. The first method is the model itself, named "hkrr". The other methods are the baselines.
    r2, low, high : tuple of float
        R2 of each method, and the lower and upper ends of its confidence interval.
    n_train, n_test, seed : int
        Number of training rows, number of held-out rows, and seed of the split.
    level : float
        Confidence level of the intervals.
    """

    target: str
    methods: tuple[str, ...]
    r2: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    n_train: int
    n_test: int
    seed: int
    level: float

    def __str__(self) -> str:
        lines = [f"R2 on {self.n_test:,} held-out rows, with {100 * self.level:g}% confidence intervals"]
        for name, *numbers in zip(self.methods, self.r2, self.low, self.high, strict=True):
            lines.append("  {:13} {:.3f}  ({:.3f} to {:.3f})".format(name, *numbers))
        return "\n".join(lines)


@storable
@dataclass(frozen=True)
class HeldOutClassScores:
    """Accuracy and log loss of a classifier and of baselines on held-out rows. ``str`` returns them as a text table.

    Attributes
    ----------
    target : str
        Name of the target column.
    methods : tuple of str
        Names of the methods. The first method is the model itself, named "hkrr". The other methods are the baselines.
    accuracy, accuracy_low, accuracy_high : tuple of float
        Accuracy of each method, and the lower and upper ends of its confidence interval.
    log_loss, log_loss_low, log_loss_high : tuple of float
        Log loss of each method, and the lower and upper ends of its confidence interval.
    classes : tuple of str
        Labels of the classes.
    confusion : tuple of tuples of int
        Confusion matrix: ``confusion[i][j]`` is the number of held-out rows of class i for which class j is predicted.
    n_train, n_test, seed : int
        Number of training rows, number of held-out rows, and seed of the split.
    level : float
        Confidence level of the intervals.
    """

    target: str
    methods: tuple[str, ...]
    accuracy: tuple[float, ...]
    accuracy_low: tuple[float, ...]
    accuracy_high: tuple[float, ...]
    log_loss: tuple[float, ...]
    log_loss_low: tuple[float, ...]
    log_loss_high: tuple[float, ...]
    classes: tuple[str, ...]
    confusion: tuple[tuple[int, ...], ...]
    n_train: int
    n_test: int
    seed: int
    level: float

    def __str__(self) -> str:
        lines = [
            f"Scores on {self.n_test:,} held-out rows, with {100 * self.level:g}% confidence intervals",
            f"  {'':20} {'accuracy':24} log loss",
        ]
        accuracies = zip(self.accuracy, self.accuracy_low, self.accuracy_high, strict=True)
        losses = zip(self.log_loss, self.log_loss_low, self.log_loss_high, strict=True)
        for name, accuracy, loss in zip(self.methods, accuracies, losses, strict=True):
            lines.append("  {:20} {:.3f} ({:.3f} to {:.3f})   {:.3f} ({:.3f} to {:.3f})".format(name, *accuracy, *loss))
        return "\n".join([*lines, *self._confusion_lines()])

    def _confusion_lines(self) -> list[str]:
        """Return the confusion matrix as text, if there are at most ten classes."""
        if len(self.classes) > _MAX_LISTED_CLASSES:
            return []
        names = [truncated(label, _MAX_LABEL) for label in self.classes]
        width = max(6, *map(len, names))
        head = " ".join(f"{name:>{width}}" for name in names)
        rows = (
            f"  {name:{width}} " + " ".join(f"{count:>{width},}" for count in counts)
            for name, counts in zip(names, self.confusion, strict=True)
        )
        heading = "Number of held-out rows of each class (one line each), by predicted class:"
        return ["", heading, f"  {'':{width}} {head}", *rows]


def check_none_missing(name: str, series: pd.Series, is_missing: Array) -> None:
    """Raise a TableError if a value is missing. The message names the column and the row of the first missing value."""
    if np.any(is_missing):
        n, row = int(is_missing.sum()), series.index[int(np.argmax(is_missing))]
        raise TableError(
            f"column {quoted(name)} has {n:,} missing value{'s' if n > 1 else ''}, the first in row {row} (counting "
            "from 0), but this model accepts no missing values; fill them in, drop the column, or fit a model with "
            "missing='impute'"
        )


def suggest_names(name: str, names: Sequence[str] | dict[str, Any]) -> str:
    """Return suggestions for an unknown column name, as the end of an error message.

    If some of the names are similar to the unknown name, these names are suggested. Otherwise all names are listed, or
    the five closest names if there are more than eight names.
    """
    by_lower_case = {each.lower(): each for each in names}

    def closest(n: int, cutoff: float) -> list[str]:
        return [quoted(by_lower_case[each]) for each in get_close_matches(name.lower(), by_lower_case, n, cutoff)]

    if similar := closest(3, 0.6):
        return f"; did you mean {', '.join(similar[:-1])}{' or ' if similar[1:] else ''}{similar[-1]}?"
    if len(names) <= _MAX_LISTED_NAMES:
        return f"; the columns are {', '.join(map(quoted, names))}" if names else ""
    return f"; the closest of the {len(names):,} columns are {', '.join(closest(5, 0.0))}"


def is_numeric(series: pd.Series) -> bool:
    """Return whether the dtype of a series is numeric. Booleans and strings are not numeric."""
    from pandas.api import types

    return bool(types.is_numeric_dtype(series.dtype) and not types.is_bool_dtype(series.dtype))


def is_boolean(series: pd.Series) -> bool:
    """Return whether the dtype of a series is boolean, with or without missing values."""
    from pandas.api import types

    return bool(types.is_bool_dtype(series.dtype) and not hasattr(series, "cat"))


def missing_mask(series: pd.Series, words: tuple[str, ...] = ()) -> Array:
    """Return a boolean mask of the missing values. Strings such as "NA", and the given words, are missing values."""
    is_missing = np.asarray(series.isna(), dtype=bool)
    if is_numeric(series):
        return is_missing
    missing_texts = MISSING_TEXTS.union(words)
    return is_missing | np.array([text in missing_texts for text in as_texts(series)], dtype=bool)


def as_texts(series: pd.Series) -> Array:
    """Return the values as strings without surrounding spaces. Whole numbers are written without a decimal point."""

    def text(value: Any) -> str:
        if isinstance(value, float | np.floating) and float(value).is_integer():
            value = int(value)
        return str(value).strip()

    return np.array([text(value) for value in series], dtype=object)


def as_numbers(series: pd.Series, is_missing: Array) -> tuple[Array, Array]:
    """Return the values as numbers, and a mask of the values that are neither numbers nor missing."""
    import pandas as pd

    if is_numeric(series):
        return series.to_numpy(dtype=np.float64, na_value=np.nan), np.zeros(len(series), dtype=bool)
    texts = pd.Series(np.where(is_missing, "nan", as_texts(series)), dtype=object)
    numbers = pd.to_numeric(texts, errors="coerce").to_numpy(dtype=np.float64)
    return numbers, np.isnan(numbers) & ~is_missing


def infer_date_order(texts: Array) -> str:
    """Return the order "day first" or "month first" of dates such as 25/03/2024, or "" if the order is not certain.

    A number above 12 must be the day. The order is certain if every string is such a date, and if numbers above 12
    occur in only one of the first two positions.
    """
    matches = [_YEAR_LAST_DATE.fullmatch(text) for text in texts]
    if not matches or not all(matches):
        return ""
    first, second = (max(int(each[k]) for each in matches if each) for k in (1, 3))
    orders = {(True, False): DAY_FIRST, (False, True): MONTH_FIRST}
    return orders.get((first > _MONTHS_PER_YEAR, second > _MONTHS_PER_YEAR), "")


def _to_iso_date(text: str, order: str) -> str:
    """Return a date such as 25/03/2024 in the form 2024-03-25.

    For any other string, return a string that is not a date. The value is then reported as invalid.
    """
    match = _YEAR_LAST_DATE.fullmatch(text)
    if match is None:
        return f"no {text}"
    first, _, second, year, hour = match.groups()
    day, month = (first, second) if order == DAY_FIRST else (second, first)
    return f"{year}-{month:0>2}-{day:0>2}{f'T{hour}' if hour else ''}"


def as_days(series: pd.Series, is_missing: Array, order: str = "") -> tuple[Array, Array]:
    """Return dates as days since 1970-01-01, and a mask of the values that are neither dates nor missing."""
    import pandas as pd

    dtype = series.dtype
    if isinstance(dtype, pd.DatetimeTZDtype):
        dates = series.dt.tz_convert("UTC").dt.tz_localize(None)
    elif getattr(dtype, "kind", "") == "M":
        dates = series
    else:
        texts = as_texts(series)
        if order:
            texts = np.array([_to_iso_date(text, order) for text in texts], dtype=object)
        texts = pd.Series(np.where(is_missing, "", texts), dtype=object)
        dates = pd.to_datetime(texts, format="ISO8601", errors="coerce", utc=True).dt.tz_localize(None)
    values = dates.to_numpy()
    values = values if values.dtype.kind == "M" else values.astype("datetime64[us]")
    # Keep the time unit of the values. A finer unit covers fewer years, so distant dates would overflow.
    unit: Any = np.datetime_data(values.dtype)[0]
    units_per_day = np.timedelta64(1, "D") / np.timedelta64(1, unit)
    days = np.where(np.isnat(values), np.nan, values.astype(np.int64) / units_per_day)
    return days, np.isnan(days) & ~is_missing


def cell(name: str, series: pd.Series, mask: Array) -> str:
    """Return text with the value, column and row of the first cell in the mask, as the subject of an error message."""
    k = int(np.argmax(mask))
    return f"{quoted(str(series.iloc[k]))} in column {quoted(name)}, row {series.index[k]} (counting from 0),"
