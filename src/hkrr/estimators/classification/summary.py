"""The summary of a fitted classifier: classes, members, and performance on rows that were left out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from hkrr._base.error_text import truncated
from hkrr.estimators.fitted.importance import column_names
from hkrr.estimators.fitted.summary import Summary, summarize_ensemble

if TYPE_CHECKING:
    from hkrr.estimators.classification.classifier import HyperKernelClassifier

# Maximum number of classes that are listed.
_MAX_CLASSES = 8
# Maximum length of a label. Longer labels are cut.
_MAX_LABEL_LENGTH = 24


def summarize_classifier(model: HyperKernelClassifier, columns: list[str] | None) -> Summary:
    """Return the summary of a fitted classifier. If `columns` is None, the names of the training data are used."""
    summary = summarize_ensemble(model.scores_, column_names(model) if columns is None else columns)
    facts = (*_size_facts(model), *_class_facts(model))
    return replace(summary, title=f"{type(model).__name__}: p(y | x)", facts=facts)


def _size_facts(model: HyperKernelClassifier) -> Iterator[tuple[str, str]]:
    # Models saved by version 0.1 may lack the numbers of rows of the classes.
    if hasattr(model, "class_count_"):
        yield "Rows", f"{int(np.sum(model.class_count_)):,}"
    yield "Columns", f"{model.n_features_in_:,}"


def _describe_classes(model: HyperKernelClassifier) -> str:
    """Return the labels in order of frequency, each with its number of rows and its percentage of the total weight."""
    labels = [repr(label) if isinstance(label, str) else f"{label}" for label in model.classes_.tolist()]
    labels = [truncated(label, _MAX_LABEL_LENGTH) for label in labels]
    order = np.arange(len(labels))
    if hasattr(model, "class_count_"):
        order = np.argsort(-model.class_count_, kind="stable")
        triples = zip(labels, model.class_count_, model.class_prior_, strict=True)
        labels = [f"{label} {count:,} rows ({100 * prior:.3g}%)" for label, count, prior in triples]
    more = f", and {len(labels) - _MAX_CLASSES} more" if len(labels) > _MAX_CLASSES else ""
    return ", ".join(labels[k] for k in order[:_MAX_CLASSES]) + more


def _class_facts(model: HyperKernelClassifier) -> Iterator[tuple[str, str]]:
    yield f"Classes, {len(model.classes_)}", _describe_classes(model)
    if model.class_weight is not None:
        yield "Class weights", "balanced" if isinstance(model.class_weight, str) else "given"
    if hasattr(model, "softness_"):
        yield "Loss", f"squared, of version 0.1; softness of the link {model.softness_:.3g}"
    elif model.refined_:
        yield "Loss", "logistic; the map of the best regression on the classes was refined"
    if not hasattr(model, "held_out_log_loss_"):
        return
    priors = model.class_prior_
    baseline, largest = -float(priors @ np.log(priors)), float(np.max(priors))
    rows = "held out" if model.refined_ else "left out"
    log_loss, accuracy = model.held_out_log_loss_, model.held_out_accuracy_
    yield f"Log loss, {rows}", f"{log_loss:.4f} ({baseline:.4f} if the class frequencies are predicted)"
    yield f"Accuracy, {rows}", f"{accuracy:.4f} ({largest:.4f} if the largest class is predicted)"
