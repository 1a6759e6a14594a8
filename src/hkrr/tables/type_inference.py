"""What each column of a table is, by its values: numbers, dates, truths, text, or nothing that a model can use."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np

from hkrr._arrays import Array
from hkrr.columns import (
    MISSING_VALUE,
    Column,
    Encoder,
    as_days,
    as_numbers,
    as_texts,
    check_none_missing,
    is_numeric,
    missing_in,
    order_of,
)
from hkrr.exceptions import TableError
from hkrr.rows.source import shown

MOST_VALUES = 50  # of a text column that have a column each
_RARE = 0.001  # of the rows, and one row at least: a value that no more have is rare
_MANY_MISSING = 0.05  # of the rows: then a column says which
_IDENTIFIER = 0.9  # of the values of a text column differ: it names the rows
_FEW_ROWS = 10  # of which nothing can be said to be an identifier
# A column is numbers if so many of its values are, and no more than so many words stand between them.
_NUMBERS, _WORDS = 0.9, 3
# Where identifiers begin that do not at 0 or 1; and what may be a year.
_LARGE, _YEARS = 1000, (1500, 2200)
_TRUTHS = ({"false", "true"}, {"no", "yes"}, {"n", "y"}, {"f", "t"})
_AMBIGUOUS_DATE = re.compile(r"\d{1,2}[./-]\d{1,2}[./-]\d{2,4}( .*)?")


def learn_encoder(frame: Any, missing: str) -> Encoder:
    """Return what becomes of every column of a data frame; raise where nothing is left to learn from.

    Parameters
    ----------
    frame : pandas.DataFrame
    missing : {"impute", "refuse"}

    Returns
    -------
    Encoder

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
    columns = tuple(_learned(str(name), frame.iloc[:, k], missing) for k, name in enumerate(frame.columns))
    if all(column.kind == "left out" for column in columns):
        why = "; ".join(f"{shown(column.name)}: {column.about}" for column in columns[:5])
        raise TableError(f"no column is left to learn from ({why or 'there is none beside the target'})")
    return Encoder(columns, missing)


def _learned(name: str, series: Any, missing: str) -> Column:
    strange = _strange(series)
    if strange is not None:
        return Column(name, "left out", strange)
    is_missing = missing_in(series)
    if np.all(is_missing):
        return Column(name, "left out", "all values are missing", n_missing=len(series))
    if is_numeric(series) and not hasattr(series, "cat"):
        found = _numeric(name, "number", series, is_missing, as_numbers(series, is_missing)[0])
    else:
        found = _of_texts(name, series, is_missing)
    if missing == "refuse" and found.kind != "left out":
        check_none_missing(name, series, found.missing(series))
    return found


def _strange(series: Any) -> str | None:
    """Return what a column holds that is no single value, or None."""
    if getattr(series.dtype, "kind", "") == "c":
        return "complex numbers"
    for value in series if series.dtype == object else ():
        if isinstance(value, list | tuple | dict | set | bytes | np.ndarray):
            return f"each value is a {type(value).__name__}, no number or text"
    return None


def _of_texts(name: str, series: Any, is_missing: Array) -> Column:
    """Return what a column is whose values are texts, dates, truths, or objects that have a text."""
    is_date = getattr(series.dtype, "kind", "") == "M"
    if not is_date and not hasattr(series, "cat"):
        if getattr(series.dtype, "kind", "") == "m":
            return Column(name, "left out", "lengths of time: make them numbers, in a unit of yours")
        texts = as_texts(series)
        numbers, wrong = as_numbers(series, is_missing)
        words = tuple(dict.fromkeys(texts[wrong]))
        if wrong.sum() <= (1 - _NUMBERS) * (~is_missing).sum() and len(words) <= _WORDS:
            return _numeric(name, "number", series, is_missing | wrong, numbers, words)
        truths = {text.lower() for text in texts[~is_missing]}
        if truths in _TRUTHS:
            low, high = sorted(truths)
            return _truth(name, is_missing, np.array([text.lower() == high for text in texts]), (low, high))
    if not hasattr(series, "cat"):
        order = "" if is_date else order_of(as_texts(series)[~is_missing])
        days, wrong = as_days(series, is_missing, order)
        if not np.any(wrong):
            found = _numeric(name, "date", series, is_missing, days)
            if found.kind == "left out" or not order:
                return found
            return replace(found, values=(order,), about=f"{order}; {found.about}")
    return _text(name, as_texts(series), is_missing)


def _numeric(name: str, kind: str, series: Any, is_missing: Array, found: Array, words: tuple[str, ...] = ()) -> Column:
    n_missing, there = int(is_missing.sum()), found[~is_missing]
    if np.any(np.isinf(there)):
        row = series.index[int(np.argmax(np.isinf(found) & ~is_missing))]
        raise TableError(f"column {shown(name)} holds infinity in row {row} (the first row is 0): numbers are finite")
    if np.all(there == there[0]) and not n_missing:
        return Column(name, "left out", "all values are the same", n_missing=n_missing)
    first = there[0]
    if kind == "number" and len(there) >= _FEW_ROWS and not n_missing and _numbers_rows(there, series.index):
        return Column(name, "left out", "it numbers the rows")
    indicator = n_missing > _MANY_MISSING * len(found) or bool(n_missing and np.all(there == first))
    about = ["days since 1970"] if kind == "date" else []
    if words:
        about.append(f"{', '.join(map(shown, words))} taken for missing")
    if n_missing:
        about.append(f"{n_missing:,} missing: the median{', and a column that says where' if indicator else ''}")
    # Half of each: the sum of two numbers near the largest is none.
    low, high = np.quantile(there, 0.5, method="lower"), np.quantile(there, 0.5, method="higher")
    return Column(name, kind, "; ".join(about), float(low / 2 + high / 2), indicator, (), words, n_missing)


def _numbers_rows(values: Array, index: Any) -> bool:
    """Whether values count the rows, some of which may be held out: by the index, which counts them too.

    From 0, 1 or a large number on: one row for each age from 30 to 90, or for each year, is no numbering.
    """
    if index.dtype.kind not in "iu":
        return False
    first = values[0] - index[0]
    large = first >= _LARGE and first == math.floor(first) and not (_YEARS[0] <= first <= values.max() <= _YEARS[1])
    return (first in (0, 1) or large) and bool(np.all(values - np.asarray(index) == first))


def _truth(name: str, is_missing: Array, is_high: Array, values: tuple[str, str]) -> Column:
    n_missing = int(is_missing.sum())
    fill = float(2 * np.count_nonzero(is_high[~is_missing]) > np.count_nonzero(~is_missing))
    indicator = n_missing > _MANY_MISSING * len(is_high)
    about = [f"{values[0]} is 0, {values[1]} is 1"]
    if n_missing:
        usual = values[int(fill)]
        about.append(f"{n_missing:,} missing: {usual}{', and a column that says where' if indicator else ''}")
    return Column(name, "truth", "; ".join(about), fill, indicator, values, (), n_missing)


def _text(name: str, texts: Array, is_missing: Array) -> Column:
    counts = Counter(texts[~is_missing])
    n, n_missing = int((~is_missing).sum()), int(is_missing.sum())
    if len(counts) == 1 and not n_missing:
        return Column(name, "left out", "all values are the same")
    if n >= _FEW_ROWS and len(counts) > _IDENTIFIER * n:
        if all(_AMBIGUOUS_DATE.fullmatch(text) for text in counts):
            return Column(name, "left out", "dates that can be read in two ways: write them as 2024-03-01")
        return Column(name, "left out", "nearly all values differ: it names the rows", n_missing=n_missing)
    if n_missing:
        counts[MISSING_VALUE] += n_missing
    least = max(2, math.ceil(_RARE * len(texts)))
    # The most frequent first, and of those as frequent in the order of the alphabet: whatever the order of the rows.
    ranked = sorted((value for value, count in counts.items() if count >= least), key=lambda v: (-counts[v], v))
    kept = tuple(ranked[:MOST_VALUES])
    if not kept:
        return Column(name, "left out", "no value stands in two rows", n_missing=n_missing)
    about = "a column for one value" if len(kept) == 1 else f"a column for each of {len(kept)} values"
    if len(kept) < len(counts):
        n_rarer = len(counts) - len(kept)
        about += f", {n_rarer:,} rarer {'one is' if n_rarer == 1 else 'ones are'} 0 in all"
    if n_missing:
        about += f"; {n_missing:,} missing: {'a value of its own' if MISSING_VALUE in kept else '0 in all'}"
    return Column(name, "text", about, values=kept, n_missing=n_missing)
