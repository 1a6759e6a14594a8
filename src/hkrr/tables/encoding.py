"""How the columns of a table become numbers: a plain record for each column, and the matrix that they make together.

    number     one column: the value
    date       one column: days since the beginning of 1970
    truth      one column: 0 or 1
    text       a column for each value that is kept, 1 in the rows that have it; rare and unseen values are 0 in all
    left out   none

A missing number or date is the median, a missing truth the more frequent one, a missing text a value of its own; where
many are missing, a column more says so. `hkrr.tables` finds the records out; here they are applied.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from hkrr._arrays import Array
from hkrr.exceptions import TableError
from hkrr.rows.source import shown

# What stands for a missing value in a file that people or programs wrote.
MISSING = frozenset(
    ("", "NA", "N/A", "n/a", "#N/A", "#NA", "<NA>", "NaN", "nan", "-nan", "NaT", "NULL", "Null", "null", "None")
)
MISSING_VALUE = "(missing)"  # as a value of a text column
KINDS = ("number", "date", "truth", "text", "left out")
_FEW_NAMES = 8  # of columns: all are named where none is like the one asked for
_MONTHS = 12
# Dates as 25/03/2024 (or 25.3.2024, 25-03-2024), by which number of them is the day; and one of each.
DAY_FIRST, MONTH_FIRST = "day first", "month first"
_EXAMPLES = {"": "2024-03-25", DAY_FIRST: "25/03/2024", MONTH_FIRST: "03/25/2024"}
_SPELLED = re.compile(r"(\d{1,2})([./-])(\d{1,2})\2(\d{4})(?:[ T](.+))?")


@dataclass(frozen=True)
class Column:
    """What becomes of one column.

    Attributes
    ----------
    name : str
    kind : {"number", "date", "truth", "text", "left out"}
    about : str
        In words: what was done, or why it is left out.
    fill : float
        What a missing number, date or truth becomes.
    indicator : bool
        Whether a column more is 1 where the value is missing.
    values : tuple of str
        Of text, the values that have columns; of a truth, what is 0 and what is 1; of dates that are not written as
        2024-03-25, "day first" or "month first".
    words : tuple of str
        Of numbers, the words that stand for a missing one, beside the usual ones.
    n_missing : int
        Missing values among the training rows.
    """

    name: str
    kind: str
    about: str = ""
    fill: float = 0.0
    indicator: bool = False
    values: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    n_missing: int = 0

    @property
    def names_out(self) -> list[str]:
        """The names of the columns that it becomes."""
        if self.kind == "left out":
            return []
        names = [f"{self.name}={value}" for value in self.values] if self.kind == "text" else [self.name]
        return [*names, f"{self.name} is missing"] if self.indicator else names

    def missing(self, series: Any) -> Array:
        """Return where values are missing."""
        if self.kind == "number" and is_numeric(series):
            return np.asarray(series.isna(), dtype=bool)
        return missing_in(series, self.words)

    def encode(self, series: Any) -> Array:
        """Return the values as numbers, a column for each of `names_out`."""
        is_missing = self.missing(series)
        if self.kind == "text":
            places = {value: k for k, value in enumerate(self.values)}
            texts = np.where(is_missing, MISSING_VALUE, as_texts(series))
            place = np.array([places.get(text, -1) for text in texts], dtype=np.int64)
            return (place[:, None] == np.arange(len(self.values))).astype(np.float64)
        read = {"number": as_numbers, "date": self._as_days, "truth": self._as_truths}[self.kind]
        found, wrong = read(series, is_missing)
        if np.any(wrong):
            kind = {"number": "a number", "date": f"a date (such as {_EXAMPLES.get(self._order)})"}.get(self.kind, "")
            kind = kind or f"one of {', '.join(self.values)}"
            raise TableError(f"column {shown(self.name)} holds {_first(series, wrong)}, which is not {kind}")
        if np.any(np.isinf(found)):
            raise TableError(
                f"column {shown(self.name)} holds {_first(series, np.isinf(found))}: numbers must be finite"
            )
        found = np.where(is_missing, self.fill, found)
        columns = [found, is_missing.astype(np.float64)] if self.indicator else [found]
        return np.column_stack(columns)

    @property
    def _order(self) -> str:
        return self.values[0] if self.kind == "date" and self.values else ""

    def _as_days(self, series: Any, is_missing: Array) -> tuple[Array, Array]:
        return as_days(series, is_missing, self._order)

    def _as_truths(self, series: Any, is_missing: Array) -> tuple[Array, Array]:
        texts = [text.lower() for text in as_texts(series)]
        ones = np.array([text in (self.values[1], "true", "1") for text in texts], dtype=bool)
        zeros = np.array([text in (self.values[0], "false", "0") for text in texts], dtype=bool)
        return ones.astype(np.float64), ~is_missing & ~ones & ~zeros


@dataclass(frozen=True)
class Encoder:
    """What becomes of all columns, and whether missing values are filled in ("impute") or are an error ("refuse")."""

    columns: tuple[Column, ...]
    missing: str = "impute"

    @property
    def names_out(self) -> list[str]:
        """The names of the columns of the matrix."""
        return [name for column in self.columns for name in column.names_out]

    def transform(self, frame: Any) -> Array:
        """Return the matrix (n_rows, n_columns_out) of a data frame, its columns by name and in any order."""
        positions = {str(name): k for k, name in enumerate(frame.columns)}
        parts = [np.zeros((len(frame), 0))]
        for column in self.columns:
            if column.kind == "left out":
                continue
            if column.name not in positions:
                raise TableError(f"there is no column {shown(column.name)}{nearest(column.name, list(positions))}")
            series = frame.iloc[:, positions[column.name]]
            if self.missing == "refuse":
                check_none_missing(column.name, series, column.missing(series))
            parts.append(column.encode(series))
        return np.hstack(parts)


@dataclass(frozen=True)
class HeldOutScores:
    """R2 on rows that were held out, of a model and of others beside it; `print` it.

    Attributes
    ----------
    target : str
    methods : tuple of str
        The model's name, "hkrr", first.
    r2, low, high : tuple of float
        R2 of each method, and the ends of its interval.
    n_train, n_test, seed : int
        Rows learned from, rows held out, and how they were drawn.
    level : float
        Of the intervals.
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
        lines = [f"R2 on {self.n_test:,} rows that were held out of the fit, with {100 * self.level:g}% intervals"]
        for name, *numbers in zip(self.methods, self.r2, self.low, self.high, strict=True):
            lines.append("  {:13} {:.3f}  ({:.3f} to {:.3f})".format(name, *numbers))
        return "\n".join(lines)


def check_none_missing(name: str, series: Any, is_missing: Array) -> None:
    """Raise where values are missing."""
    if np.any(is_missing):
        row = series.index[int(np.argmax(is_missing))]
        n = int(is_missing.sum())
        raise TableError(
            f"column {shown(name)} has {n:,} missing value{'s' if n > 1 else ''}, the first in row {row} (the first "
            "row is 0), and missing='refuse': fill them in, drop the column, or let missing='impute' do it"
        )


def nearest(name: str, names: list[str]) -> str:
    """Return a question after the names that are like the one asked for, or those that are least unlike it."""
    from difflib import get_close_matches

    like = {each.lower(): each for each in names}

    def closest(n: int, cutoff: float) -> list[str]:
        return [shown(like[each]) for each in get_close_matches(name.lower(), list(like), n, cutoff)]

    if close := closest(3, 0.6):
        return f": is it {', '.join(close[:-1])}{' or ' if close[1:] else ''}{close[-1]}?"
    if len(names) <= _FEW_NAMES:
        return f"; there are {', '.join(map(shown, names))}" if names else ""
    return f"; of {len(names):,} columns the closest are {', '.join(closest(5, 0.0))}"


def is_numeric(series: Any) -> bool:
    """Whether a series holds numbers, and not texts that may be some."""
    from pandas.api import types

    return bool(types.is_numeric_dtype(series.dtype) and not types.is_bool_dtype(series.dtype))


def missing_in(series: Any, words: tuple[str, ...] = ()) -> Array:
    """Return where values are missing, texts that say so among them."""
    found = np.asarray(series.isna(), dtype=bool)
    if is_numeric(series):
        return found
    gone = MISSING.union(words)
    return found | np.array([text in gone for text in as_texts(series)], dtype=bool)


def as_texts(series: Any) -> Array:
    """Return the values as texts without spaces around them; whole numbers without a decimal point."""

    def text(value: Any) -> str:
        if isinstance(value, float | np.floating) and float(value).is_integer():
            value = int(value)
        return str(value).strip()

    return np.array([text(value) for value in series], dtype=object)


def as_numbers(series: Any, is_missing: Array) -> tuple[Array, Array]:
    """Return the values as numbers, and where there is something else."""
    import pandas as pd

    if is_numeric(series):
        return series.to_numpy(dtype=np.float64, na_value=np.nan), np.zeros(len(series), dtype=bool)
    texts = pd.Series(np.where(is_missing, "nan", as_texts(series)), dtype=object)
    found = pd.to_numeric(texts, errors="coerce").to_numpy(dtype=np.float64)
    return found, np.isnan(found) & ~is_missing


def order_of(texts: Array) -> str:
    """Return how dates are written that are not as 2024-03-25: the one way that all of them can be read, or nothing."""
    found = [_SPELLED.fullmatch(text) for text in texts]
    if not found or not all(found):
        return ""
    first, second = (max(int(each[k]) for each in found if each) for k in (1, 3))
    ways = {(True, False): DAY_FIRST, (False, True): MONTH_FIRST}
    return ways.get((first > _MONTHS, second > _MONTHS), "")


def _in_one_way(text: str, order: str) -> str:
    """Return a date as 2024-03-25; what is none stays what it is, which no date can be read from."""
    found = _SPELLED.fullmatch(text)
    if found is None:
        return f"no {text}"
    first, _, second, year, hour = found.groups()
    day, month = (first, second) if order == DAY_FIRST else (second, first)
    return f"{year}-{month:0>2}-{day:0>2}{f'T{hour}' if hour else ''}"


def as_days(series: Any, is_missing: Array, order: str = "") -> tuple[Array, Array]:
    """Return dates as days since the beginning of 1970, and where there is something else."""
    import pandas as pd

    kind = series.dtype
    if isinstance(kind, pd.DatetimeTZDtype) or getattr(kind, "kind", "") == "M":
        dates = series.dt.tz_convert("UTC").dt.tz_localize(None) if isinstance(kind, pd.DatetimeTZDtype) else series
    else:
        written = as_texts(series)
        if order:
            written = np.array([_in_one_way(text, order) for text in written], dtype=object)
        texts = pd.Series(np.where(is_missing, "", written), dtype=object)
        dates = pd.to_datetime(texts, format="ISO8601", errors="coerce", utc=True).dt.tz_localize(None)
    values = dates.to_numpy()
    values = values if values.dtype.kind == "M" else values.astype("datetime64[us]")
    # In the unit that they have: another one has not as many years.
    unit: Any = np.datetime_data(values.dtype)[0]
    in_a_day = np.timedelta64(1, "D") / np.timedelta64(1, unit)
    found = np.where(np.isnat(values), np.nan, values.astype(np.int64) / in_a_day)
    return found, np.isnan(found) & ~is_missing


def _first(series: Any, where: Array) -> str:
    k = int(np.argmax(where))
    return f"{shown(str(series.iloc[k]))} in row {series.index[k]} (the first row is 0)"
