"""Checks of the input of a report on a classifier: a fitted model, and rows with the labels of their classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hkrr._base.linear_algebra import Array
from hkrr.estimators.classification import HyperKernelClassifier
from hkrr.reporting.report_input import ReportInput, check_model_and_rows, check_numbers_of_rows
from hkrr.tables.encoding import HeldOutClassScores, as_texts
from hkrr.tables.inner_models import AnyClassifier

# Maximum number of classes that have their own colour and their own curves.
MOST_COLOURED = 10


@dataclass(frozen=True)
class Classes:
    """The classes of a report.

    The first `n_known` classes are those of the model, in the order of ``classes_``. The others occur only in the rows
    of the report. `coloured` are the indices of the most frequent classes of the model among the rows, at most ten, in
    increasing order.
    """

    labels: list[str]
    n_known: int
    n_rows: list[int]  # number of rows of each class
    coloured: list[int]

    def colour(self, k: int) -> int | None:
        """Return the number of the colour of class k, or None if the class has no colour of its own."""
        return self.coloured.index(k) if k in self.coloured else None


@dataclass(frozen=True, kw_only=True)
class ClassInput(ReportInput):
    """A fitted classifier, and the rows and classes to report on."""

    whole: HyperKernelClassifier
    classes: Classes
    index: Array  # class of each row, as an index of `classes.labels`
    probabilities: Array  # (n, n_known)
    held_out: HeldOutClassScores | None  # scores on rows that were held out when the model was fitted


def check_class_input(model: AnyClassifier, X: Any, y: Any) -> ClassInput:
    """Check the classifier and the rows, and return them as a `ClassInput`. `y` contains the labels of the rows."""
    fields = check_model_and_rows(model, X)
    values = _labels(y)
    check_numbers_of_rows(len(fields["X"]), len(values))
    classes, index = _classes(model.classes_, values)
    name = getattr(y, "name", None)
    name = getattr(model, "target_", None) if name is None else name
    return ClassInput(
        **fields,
        target="y" if name is None else str(name),
        target_index=None,
        classes=classes,
        index=index,
        probabilities=model.predict_proba(X),
        held_out=getattr(model, "held_out_", None),
    )


def _labels(y: Any) -> list[Any]:
    """Return the labels as a list. Raise a ValueError if y is not one-dimensional, or if a label is missing."""
    values = np.asarray(y)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        raise ValueError(f"y must contain one label for each row, got an array of shape {values.shape}")
    labels: list[Any] = values.tolist()
    # NaN and pandas.NaT differ from themselves. pandas.NA does not convert to a boolean.
    n_missing = sum(label is None or type(label).__name__ == "NAType" or label != label for label in labels)
    if n_missing:
        raise ValueError(f"y is missing in {n_missing} of the {len(labels)} rows; remove these rows from X and y")
    return labels


def _classes(known: Array, values: Sequence[Any]) -> tuple[Classes, Array]:
    """Return the classes of the model and of the rows, and the class of each row.

    A label belongs to a class if they are equal, or else if they are equal as text. For example, the labels of a model
    that was fitted by ``hkrr fit`` are texts such as "1" and "True", but the rows may contain numbers or booleans.
    """
    names = as_texts(known.tolist())
    texts = as_texts(values)
    lookup: dict[Any, int] = {name: k for k, name in enumerate(names)} | {
        label: k for k, label in enumerate(known.tolist())
    }
    found = [lookup.get(value, lookup.get(text)) for value, text in zip(values, texts, strict=True)]
    others = sorted({text for text, k in zip(texts, found, strict=True) if k is None})
    index = [len(names) + others.index(text) if k is None else k for text, k in zip(texts, found, strict=True)]
    counts = Counter(index)
    labels = [*names, *others]
    most_frequent = sorted(range(len(names)), key=lambda k: -counts[k])[:MOST_COLOURED]
    return Classes(labels, len(names), [counts[k] for k in range(len(labels))], sorted(most_frequent)), np.array(index)
