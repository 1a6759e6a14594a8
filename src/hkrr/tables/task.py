"""The task of a target column: regression or classification, and the labels of the classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from hkrr._base.error_text import quoted
from hkrr._base.linear_algebra import Array
from hkrr.exceptions import TableError
from hkrr.tables.encoding import as_numbers, as_texts, is_boolean, missing_mask

if TYPE_CHECKING:
    import pandas as pd

# A column of whole numbers is taken as classes if it has at most _MAX_INTEGER_CLASSES distinct values, with at least
# _ROWS_PER_INTEGER rows per value on average.
_MAX_INTEGER_CLASSES, _ROWS_PER_INTEGER = 10, 10
# Maximum number of classes, and minimum number of rows per class on average.
_MAX_CLASSES, _ROWS_PER_CLASS = 500, 2


class Task(NamedTuple):
    """What to predict.

    Attributes
    ----------
    kind : {"regression", "classification"}
        Whether the targets are numbers or labels.
    reason : str
        Why the values are labels, if this was inferred from the column, or else "".

    Examples
    --------
    >>> import pandas as pd
    >>> from hkrr.tables import Task, infer_task
    >>> infer_task("sold", pd.Series(["yes", "no"]))
    Task(kind='classification', reason="'sold' contains text")
    >>> Task("regression").of_classes
    False
    """

    kind: Literal["regression", "classification"]
    reason: str = ""

    @property
    def of_classes(self) -> bool:
        """Whether the targets are labels."""
        return self.kind == "classification"


REGRESSION = Task("regression")


def infer_task(name: str, column: pd.Series) -> Task:
    """Infer the task from the target column.

    Text, categories and booleans are labels, and so are numbers with two distinct values. Whole numbers are taken as
    labels if they have at most ten distinct values, with at least ten rows per value on average. All other numbers are
    targets of a regression.

    Parameters
    ----------
    name : str
        Name of the column.
    column : pandas.Series
        The target column.

    Returns
    -------
    Task

    Examples
    --------
    >>> import pandas as pd
    >>> from hkrr.tables import infer_task
    >>> infer_task("sold", pd.Series(["yes", "no"])).kind, infer_task("price", pd.Series([1.5, 2.25, 3.0])).kind
    ('classification', 'regression')
    """
    present = column[~missing_mask(column)]
    if len(present) == 0 or present.dtype.kind in "mMc":
        return REGRESSION  # the error message about such a target says what to do
    if is_boolean(present) or hasattr(present, "cat"):
        what = "booleans" if is_boolean(present) else "categories"
        return Task("classification", f"{quoted(name)} contains {what}")
    numbers, is_invalid = as_numbers(present, np.zeros(len(present), dtype=bool))
    if np.mean(is_invalid) > 0.5:
        return Task("classification", f"{quoted(name)} contains text")
    values = np.unique(numbers[~is_invalid])
    if np.any(is_invalid) or not np.all(np.isfinite(values)):
        return REGRESSION
    if len(values) == 2:
        return Task("classification", f"{quoted(name)} has two distinct values")
    few = 2 < len(values) <= min(_MAX_INTEGER_CLASSES, len(numbers) / _ROWS_PER_INTEGER)
    if few and np.all(values == np.round(values)):
        return Task("classification", f"{quoted(name)} has {len(values)} distinct whole numbers")
    return REGRESSION


def as_labels(name: str, column: pd.Series) -> Array:
    """Return the labels of a column without missing values as strings. Raise a TableError if they cannot be classes."""
    if column.dtype.kind in "mMc":
        raise TableError(
            f"the target {quoted(name)} must contain labels, but its type is {column.dtype}; choose another target "
            "column"
        )
    labels = np.asarray(as_texts(column), dtype=str)
    n_classes = len(np.unique(labels))
    if n_classes > _MAX_CLASSES or n_classes * _ROWS_PER_CLASS > max(len(labels), 2 * _ROWS_PER_CLASS):
        advice = "predict numbers (--task regression)" if are_numbers(labels) else "choose another target column"
        raise TableError(
            f"the target {quoted(name)} has {n_classes:,} different values in {len(labels):,} rows, too many for "
            f"classes; {advice}"
        )
    return labels


def are_numbers(labels: Array) -> bool:
    """Return whether all labels, which are strings, can be read as numbers."""
    try:
        return bool(np.all(np.isfinite(labels.astype(np.float64))))
    except ValueError:
        return False
