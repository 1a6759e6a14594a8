"""The header and the sections of a report on a classifier, in reading order. All names and values are escaped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import Any

import numpy as np

from hkrr._maps import ShapeName
from hkrr.estimators.classification.class_link import LEAST_PROBABILITY
from hkrr.reporting.class_charts import (
    calibration_chart,
    class_curves_chart,
    class_regions_chart,
    colour_class,
    roc_chart,
)
from hkrr.reporting.class_input import Classes
from hkrr.reporting.class_regions import ClassCurves
from hkrr.reporting.html_elements import count_table, figure, legend, table
from hkrr.reporting.report_data import ClassFacts
from hkrr.reporting.shared_sections import (
    Section,
    direction_name,
    directions_section,
    findings_notes,
    header_html,
    health_section,
    on_which_rows,
    provenance_section,
    training_rows_notes,
    training_section,
)
from hkrr.reporting.text_formatting import class_headline, count, listed, loss, percent, score, shortened

# Minimum difference in log loss for which the header says that another method does better.
_CLEARLY_BETTER = 0.01
# Maximum number of classes in the confusion table. The other classes are added up.
_MOST_COUNTED = 30
# Maximum number of names of unknown classes in the header.
_MOST_NAMED = 5
# Maximum number of characters of a class that is followed by its probability.
_LONGEST_LABEL = 32
# Headings of the columns with the most probable classes.
_PLACES = ("most probable", "second", "third")


def class_header(facts: ClassFacts) -> str:
    """Return the HTML of the header."""
    errors, known, n_classes = facts.errors, facts.comparison, facts.classes.n_known
    on_rows = on_which_rows(errors.seen, errors.held_out)
    right, best = "fraction of the rows whose class is predicted correctly; ", "0 is perfect; "
    cards = []
    if known is not None:
        on_held_out = f"on {known.n_test:,} held-out rows"
        cards = [
            (score(known.accuracy[0]), f"accuracy {on_held_out}", right + _others(known.methods, known.accuracy)),
            (loss(known.log_loss[0]), f"log loss {on_held_out}", best + _others(known.methods, known.log_loss)),
        ]
        right, best = "", ""  # the meanings of the scores are explained once
    most_frequent = f"{score(errors.baseline_accuracy)} if the most frequent class is always predicted"
    frequencies = f"{loss(errors.baseline_log_loss)} if the frequencies of the classes in these rows are predicted"
    sizes = f"with {count(facts.directions.n_columns, 'column')} and {count(n_classes, 'class')}"
    cards += [
        (score(errors.accuracy), f"accuracy {on_rows}", f"{right}{most_frequent}"),
        (loss(errors.log_loss), f"log loss {on_rows}", f"{best}{frequencies}"),
        (f"{facts.n_rows:,}", "rows in this report", sizes),
    ]
    return header_html(class_headline(facts), cards, _notes(facts))


def _others(methods: Sequence[str], values: Sequence[float]) -> str:
    return ", ".join(f"{name} {value:.3f}" for name, value in zip(methods[1:], values[1:], strict=True))


def _notes(facts: ClassFacts) -> Iterator[str]:
    classes, known = facts.classes, facts.comparison
    others = classes.labels[classes.n_known :]
    if others:
        names = listed([shortened(name, 40) for name in others[:_MOST_NAMED]])
        more = f" and {len(others) - _MOST_NAMED} more" if len(others) > _MOST_NAMED else ""
        n = sum(classes.n_rows[classes.n_known :])
        yield (
            f"{count(n, 'row')} of this report {'belongs' if n == 1 else 'belong'} to classes that were not among the "
            f"training rows: {names}{more}. The model gives these classes the probability 0, which the log loss counts "
            f"as {LEAST_PROBABILITY:g}."
        )
    where = " See “Comparison with other methods”." if known is not None else ""
    yield from training_rows_notes(facts.errors.seen, facts.errors.held_out, where)
    if known is not None and min(known.log_loss) < known.log_loss[0] - _CLEARLY_BETTER:
        best = known.methods[known.log_loss.index(min(known.log_loss))]
        yield f"On held-out rows, the log loss of {best} is smaller than that of this model.{where}"
    yield from findings_notes(facts)


def class_sections(facts: ClassFacts) -> list[Section]:
    """Return the sections of a report on a classifier."""
    writers: list[tuple[str, str, Callable[[ClassFacts], str]]] = [
        ("directions", "Columns and directions", _directions),
        ("regions", "Classes over the directions", _regions),
        ("confusion", "Confusion table", _confusion),
        ("roc", "ROC curves", _roc),
        ("calibration", "Calibration", _calibration),
        ("compare", "Comparison with other methods", _comparison),
        ("wrong", "Rows with the largest log loss", _worst_rows),
        ("training", "Training", _training),
        ("health", "Checks of the fit", _health),
        ("made", "Settings and versions", provenance_section),
    ]
    return [Section(anchor, title, write(facts)) for anchor, title, write in writers]


def _directions(facts: ClassFacts) -> str:
    shared = directions_section(facts, "The probabilities are computed from weighted sums of the scores of")
    return (
        f"{shared}<p class='small'>The effects of columns and directions are those on the scores of the classes, from "
        "which the probabilities are computed.</p>"
    )


def _regions(facts: ClassFacts) -> str:
    """Return the section on the class probabilities over the directions of the first member."""
    found, classes = facts.regions, facts.classes
    first = "first model" if facts.directions.of_ensemble else "model"
    if found is None:
        uses = "all columns with equal weights"
        if facts.directions.shape == ShapeName.DIAGONAL:
            uses = "all columns, each with its own weight"
        return f"<p>There is no picture of the classes, because the {first} uses {uses}, not a few directions.</p>"
    alone = " This model alone is shown, with the weights of all models." if facts.directions.of_ensemble else ""
    entries = _legend_entries(classes, classes.coloured)
    if isinstance(found, ClassCurves):
        chart = class_curves_chart(found, classes, direction_name(facts, found.direction))
        text = f"The probabilities of the classes along the direction of the {first}.{alone}"
        caption = "The lines are probabilities. Below them, a dot is a row, in the strip and colour of its class."
        if classes.n_known == 2:
            caption = (
                f"The line is the probability of {shortened(classes.labels[1], 40)}. Below it, a dot is a row, in the "
                "strip and colour of its class."
            )
        if len(classes.coloured) < classes.n_known:
            text += f" Only the {len(classes.coloured)} most frequent classes are shown."
    else:
        names = [direction_name(facts, k) for k in found.directions]
        chart = class_regions_chart(found, classes, names)
        held = " The other directions are fixed at their medians." if found.n_held else ""
        text = f"The most probable class over {names[0]} and {names[1]} of the {first}.{alone}{held}"
        caption = (
            "Stronger colours are higher probabilities: below 0.6, up to 0.8, and above. The palest colours are far "
            "from all rows, where the probabilities are unreliable. A dot is a row, in the colour of its class."
        )
        if len(classes.coloured) < len(classes.labels):
            entries.append(("of-rest", "other classes"))
        if len(classes.coloured) < classes.n_known:
            text += f" The {len(classes.coloured)} most frequent classes have their own colours."
    return f'<p>{escape(text)}</p><div class="figures one">{figure(chart + legend(entries), caption)}</div>'


def _legend_entries(classes: Classes, shown: Sequence[int]) -> list[tuple[str, str]]:
    return [(colour_class(classes, k), classes.labels[k]) for k in shown]


def _confusion(facts: ClassFacts) -> str:
    """Return the section with the number of rows by actual and predicted class."""
    classes = facts.classes
    counts, n = np.array(facts.errors.confusion), len(classes.labels)
    order = sorted(range(n), key=lambda k: -classes.n_rows[k])
    alone = sorted(order[:_MOST_COUNTED]) if n > _MOST_COUNTED + 1 else list(range(n))
    groups, names = [[k] for k in alone], [classes.labels[k] for k in alone]
    text = (
        "Each line is a class, and the columns are the predicted classes. The last column is the fraction of the rows "
    )
    text += "of the class that are predicted correctly."
    if len(alone) < n:
        groups.append([k for k in range(n) if k not in alone])
        names.append(f"{n - len(alone)} other classes")
        text += f" The {len(alone)} most frequent classes are listed; the others are added up."
    table = [[int(np.sum(counts[np.ix_(actual, predicted)])) for predicted in groups] for actual in groups]
    right = [int(sum(counts[k, k] for k in group)) for group in groups]
    shares = [percent(n / sum(row)) if sum(row) else "" for n, row in zip(right, table, strict=True)]
    # No row is predicted to be of a class that the model does not know.
    columns = [j for j, group in enumerate(groups) if group[0] < classes.n_known]
    return f"<p>{escape(text)}</p>" + count_table(
        names, columns, table, shares, ("class", "correct"), "Confusion table"
    )


def _roc(facts: ClassFacts) -> str:
    """Return the section on the ROC curves and the areas under them."""
    errors, classes = facts.errors, facts.classes
    if errors.mean_area is None:
        return "<p>There are no ROC curves, because they need rows of at least two classes of the model.</p>"
    # With two classes, both curves have the same area. The curve of the second class is shown, as in scikit-learn.
    shown = [each for each in errors.roc if classes.n_known > 2 or each.of == 1]
    text = (
        "Each curve compares the rows of one class with all other rows. For every threshold, it shows the fraction of "
        "the rows of the class whose probability of this class is above the threshold (true positive rate), and the "
        "same fraction of the other rows (false positive rate). The area under the curve is the probability that a row "
        "of the class gets a higher probability than another row. 1 is perfect, and 0.5 is no better than chance."
    )
    if classes.n_known == 2:
        text += " The curve of the other class has the same area."
    else:
        text += f" The mean area of all classes is {score(errors.mean_area)}."
    if len(classes.coloured) < classes.n_known:
        text += f" The curves of the {len(shown)} most frequent classes are shown."
    entries = [
        (colour_class(classes, each.of), f"{shortened(classes.labels[each.of], 24)}: {score(each.area)}")
        for each in shown
    ]
    chart = roc_chart(shown, classes) + legend(entries)
    caption = "ROC curves, and the areas under them. The dashed line is the curve of random probabilities."
    return f'<p>{escape(text)}</p><div class="figures one">{figure(chart, caption)}</div>'


def _calibration(facts: ClassFacts) -> str:
    """Return the section on the calibration of the probabilities."""
    found = facts.errors.calibration
    text = (
        "The rows are grouped by the probability of their predicted class, in bins of width 0.1. If the probabilities "
        "are calibrated, about seven in ten predictions with the probability 0.7 are correct, and the dots are close "
        f"to the dashed line. The expected calibration error is {loss(found.error)}. It is the mean distance of "
        "the dots from the line, weighted by the numbers of rows."
    )
    caption = "Fraction of correct predictions by probability, with 95% confidence intervals."
    return f'<p>{escape(text)}</p><div class="figures one">{figure(calibration_chart(found), caption)}</div>'


def _comparison(facts: ClassFacts) -> str:
    """Return the section on the scores of the model and of other methods on held-out rows."""
    found = facts.comparison
    if found is None:
        text = (
            "There is no comparison, because the model has no scores on held-out rows. <code>hkrr fit</code> stores "
            "such scores."
        )
        if facts.left_out is not None:
            accuracy, log_loss = facts.left_out
            text += (
                " In the fit, the predictions of rows that were left out had the accuracy "
                f"{score(accuracy)} and the log loss {loss(log_loss)}. These values can be too good."
            )
        return f"<p>{text}</p>"
    level = percent(found.level)
    text = (
        f"All methods were fitted to the same {found.n_train:,} rows and tested on {found.n_test:,} others. The "
        f"{level} intervals show how much the scores could change with different test rows."
    )
    names = ["hkrr, this model", *found.methods[1:]]
    columns = (found.accuracy, found.accuracy_low, found.accuracy_high)
    accuracies = [f"{score(value)} ({score(low)} to {score(high)})" for value, low, high in zip(*columns, strict=True)]
    columns = (found.log_loss, found.log_loss_low, found.log_loss_high)
    losses = [f"{loss(value)} ({loss(low)} to {loss(high)})" for value, low, high in zip(*columns, strict=True)]
    rows = [list(row) for row in zip(names, accuracies, losses, strict=True)]
    return f"<p>{escape(text)}</p>" + table(["method", "accuracy", "log loss"], rows, "Methods compared")


def _worst_rows(facts: ClassFacts) -> str:
    """Return the section on the rows with the largest log loss."""
    errors, labels = facts.errors, facts.classes.labels
    names = ["row", "class", "log loss", "probability", *_PLACES[: facts.classes.n_known]]
    rows: list[list[Any]] = []
    for each in errors.worst:
        probable = [f"{shortened(labels[k], _LONGEST_LABEL)}: {p:.2f}" for k, p in each.most_probable]
        rows.append([each.name, labels[each.actual], each.log_loss, each.probability, *probable, *each.cells])
    n_wrong = sum(each.actual != each.predicted for each in errors.worst)
    more = f" Only the {len(errors.columns)} most important columns are shown." if errors.n_columns_left_out else ""
    return (
        f"<p>The {len(rows)} rows whose class has the smallest probability. {n_wrong} of them are predicted wrongly. "
        "The column “probability” has the probability of the class of the row. Look for what the rows have in common, "
        f"and for mistakes in the data.{more} Click on a column heading to sort.</p>"
        + table(names + errors.columns, rows, "Rows with the largest log loss", True)
    )


def _training(facts: ClassFacts) -> str:
    text = (
        "The models are regressions on the indicators of the classes, which are 1 in the rows of a class and 0 "
        "elsewhere."
    )
    if facts.refined:
        text += (
            " The map was then refined by the log loss. This section is about the regression from which the refinement "
            "started."
        )
    return f"<p>{text}</p>{training_section(facts)}"


def _health(facts: ClassFacts) -> str:
    which = "the first model" if facts.directions.of_ensemble else "the model"
    return f"<p>The checks refer to {which}, a regression on the indicators of the classes.</p>{health_section(facts)}"
