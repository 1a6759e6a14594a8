"""A fitted classifier on one page: its classes, what was chosen, and how good it was on rows held out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from hkrr.diagnostics import Diagnostics
from hkrr.summary import Summary, facts_of_map, notes_of, page

_MOST_CLASSES = 8
_LONGEST_LABEL = 24


def summarise(model: Any) -> Summary:
    """Return the summary of a fitted classifier."""
    found: Diagnostics | None = getattr(model.regressor_, "diagnostics_", None)  # none after Ctrl-C
    # What an earlier library has saved lacks the counts.
    counts = getattr(model, "class_count_", None)
    n_rows = None if counts is None else int(np.sum(counts))
    of_targets = {f"Classes, {len(model.classes_)}": _classes(model)}
    facts = (*facts_of_map(model, n_rows, of_targets), *_facts(model))
    return page(model, "p(y | x) = p(y | Bx)", facts, _notes(model, found))


def _classes(model: Any) -> str:
    """Return the labels, the most frequent first, with how many rows each has and its share of their weight."""
    labels = [repr(label) if isinstance(label, str) else f"{label}" for label in model.classes_.tolist()]
    labels = [label if len(label) <= _LONGEST_LABEL else label[: _LONGEST_LABEL - 2] + ".." for label in labels]
    order = np.arange(len(labels))
    if hasattr(model, "class_count_"):
        order = np.argsort(-model.class_count_, kind="stable")
        pairs = zip(labels, model.class_count_, model.class_prior_, strict=True)
        labels = [f"{label} {count:,} rows ({100 * prior:.3g}%)" for label, count, prior in pairs]
    more = f", and {len(labels) - _MOST_CLASSES} more" if len(labels) > _MOST_CLASSES else ""
    return ", ".join(labels[k] for k in order[:_MOST_CLASSES]) + more


def _facts(model: Any) -> Iterator[tuple[str, str]]:
    if model.loss == "logistic":
        yield "Loss", f"logistic; nu {model.nu_:.4g}, chosen on held-out rows"
    else:
        yield "Loss", f"squared, on codes; softness of the link {model.softness_:.3g}, by held-out rows"
        yield "lambda", f"{model.regressor_.reg_lambda_:.4g}, learned"
    if model.class_weight is not None:
        yield "Weights of classes", "balanced" if isinstance(model.class_weight, str) else "given"
    if hasattr(model, "held_out_log_loss_"):
        priors = model.class_prior_
        guess, most = -float(priors @ np.log(priors)), float(np.max(priors))
        yield "Log loss, held out", f"{model.held_out_log_loss_:.4f}; by the shares of the classes alone {guess:.4f}"
        yield "Accuracy, held out", f"{model.held_out_accuracy_:.4f}; by the most frequent class alone {most:.4f}"


def _notes(model: Any, found: Diagnostics | None) -> Iterator[str]:
    first, *others = notes_of(model.regressor_, found)
    yield f"The regression on codes, which the map began from: {first[0].lower()}{first[1:]}"
    yield from others
