"""The summary of a fitted classifier: classes, loss, and performance on held-out rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from hkrr.estimators.classification.losses import MAX_ROWS
from hkrr.estimators.fitted.diagnostics import Diagnostics
from hkrr.estimators.fitted.summary import Summary, fit_notes, make_summary, map_facts

if TYPE_CHECKING:
    from hkrr.estimators.classification.classifier import HyperKernelClassifier

# Maximum number of classes that are listed.
_MAX_CLASSES = 8
# Maximum length of a label. Longer labels are cut.
_MAX_LABEL_LENGTH = 24


def summarize_classifier(model: HyperKernelClassifier, columns: list[str] | None = None) -> Summary:
    """Return the summary of a fitted classifier. If `columns` is None, the names of the training data are used."""
    # A fit that was interrupted by Ctrl-C has no diagnostics.
    found: Diagnostics | None = getattr(model.regressor_, "diagnostics_", None)
    # Models saved by earlier versions of hkrr have no class counts.
    counts = getattr(model, "class_count_", None)
    n_rows = None if counts is None else int(np.sum(counts))
    class_facts = {f"Classes, {len(model.classes_)}": _describe_classes(model)}
    facts = (*map_facts(model, n_rows, class_facts), *_loss_facts(model))
    return make_summary(model, "p(y | x) = p(y | Bx)", facts, _notes(model, found), columns)


def _describe_classes(model: HyperKernelClassifier) -> str:
    """Return the labels in order of frequency, each with its number of rows and its percentage of the total weight."""
    labels = [repr(label) if isinstance(label, str) else f"{label}" for label in model.classes_.tolist()]
    labels = [label if len(label) <= _MAX_LABEL_LENGTH else label[: _MAX_LABEL_LENGTH - 2] + ".." for label in labels]
    order = np.arange(len(labels))
    if hasattr(model, "class_count_"):
        order = np.argsort(-model.class_count_, kind="stable")
        triples = zip(labels, model.class_count_, model.class_prior_, strict=True)
        labels = [f"{label} {count:,} rows ({100 * prior:.3g}%)" for label, count, prior in triples]
    more = f", and {len(labels) - _MAX_CLASSES} more" if len(labels) > _MAX_CLASSES else ""
    return ", ".join(labels[k] for k in order[:_MAX_CLASSES]) + more


def _loss_facts(model: HyperKernelClassifier) -> Iterator[tuple[str, str]]:
    n_rows = np.sum(getattr(model, "class_count_", 0))
    rows = "training" if model.loss == "squared" and n_rows > MAX_ROWS else "held out"
    if model.loss == "logistic":
        yield "Loss", f"logistic; nu {model.nu_:.4g}, chosen on held-out rows"
    else:
        source = f"from {rows.replace(' ', '-')} rows"
        yield "Loss", f"squared, on class codes; softness of the link {model.softness_:.3g}, {source}"
        yield "lambda", f"{model.regressor_.reg_lambda_:.4g}, learned"
    if model.class_weight is not None:
        yield "Class weights", "balanced" if isinstance(model.class_weight, str) else "given"
    if hasattr(model, "held_out_log_loss_"):
        priors = model.class_prior_
        baseline, largest = -float(priors @ np.log(priors)), float(np.max(priors))
        log_loss, accuracy = model.held_out_log_loss_, model.held_out_accuracy_
        yield f"Log loss, {rows}", f"{log_loss:.4f} ({baseline:.4f} if the class frequencies are predicted)"
        yield f"Accuracy, {rows}", f"{accuracy:.4f} ({largest:.4f} if the largest class is predicted)"


def _notes(model: HyperKernelClassifier, found: Diagnostics | None) -> Iterator[str]:
    first, *others = fit_notes(model.regressor_, found)
    yield f"The regression with class codes as targets, which provided the initial map, {first[0].lower()}{first[1:]}"
    yield from others
