"""The header and the sections of a report on a regressor, in reading order. All names and values are escaped.

The header has the main result in one or two sentences, the most important numbers, and cautions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from html import escape
from typing import Any

from hkrr._maps import ShapeName
from hkrr.reporting.html_elements import figure, panel, table
from hkrr.reporting.report_data import RegressionFacts
from hkrr.reporting.section_charts import (
    comparison_chart,
    curve_chart,
    error_histogram,
    map_chart,
    predicted_against_actual,
)
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
from hkrr.reporting.text_formatting import count, headline, number, percent, score, shortened

# Minimum difference in R2 for which the header says that another method does better.
_CLEARLY_BETTER = 0.01
# Names of the methods in the sentences of the header.
_METHOD_NAMES = {"kernel ridge": "kernel ridge regression", "linear": "a linear model"}


def header(facts: RegressionFacts) -> str:
    """Return the HTML of the header."""
    errors = facts.errors
    r2 = "not defined" if errors.r2 is None else score(errors.r2)
    meaning = "fraction of the variance that the model explains; 1 is perfect, 0 is no better than the mean"
    cards = [(r2, f"R² {on_which_rows(errors.seen, errors.held_out)}", meaning)]
    known = facts.comparison
    if known is not None and not known.refitted:
        cards = [
            (score(known.r2[0]), f"R² on {known.n_test:,} held-out rows", meaning),
            (r2, f"R² {on_which_rows(errors.seen, errors.held_out)}", "the same for the rows of this report"),
        ]
    cards.append(
        (
            number(errors.median_absolute),
            "typical error",
            f"half of the errors are smaller; the standard deviation of {shortened(facts.target)} is "
            f"{number(errors.target_std)}",
        )
    )
    if facts.directions.shape == ShapeName.FULL and not facts.directions.of_ensemble:
        d = facts.directions.n_components
        meaning = f"the model predicts each row from {'this number' if d == 1 else 'these numbers'} alone"
        cards.append((f"{d:,}", "direction" if d == 1 else "directions", meaning))
    cards.append((f"{facts.n_rows:,}", "rows in this report", f"with {count(facts.directions.n_columns, 'column')}"))
    return header_html(headline(facts), cards, _notes(facts))


def _notes(facts: RegressionFacts) -> Iterator[str]:
    errors = facts.errors
    if errors.r2 is None:
        yield f"{facts.target} is the same in all of these rows. There is nothing to explain, and R² is not defined."
    where = " See “Comparison with other methods”." if facts.comparison is not None else ""
    yield from training_rows_notes(errors.seen, errors.held_out, where)
    known = facts.comparison
    if known is not None and max(known.r2[1:], default=known.r2[0]) > known.r2[0] + _CLEARLY_BETTER:
        best = known.methods[known.r2.index(max(known.r2))]
        worse = "a new model with the settings of this model" if known.refitted else "this model"
        where = "See “Comparison with other methods”."
        yield f"On held-out rows, {_METHOD_NAMES.get(best, best)} does better than {worse}. {where}"
    if facts.other_targets:
        yield (
            f"The model predicts {count(facts.other_targets + 1, 'target')} with the same directions. "
            f"This report is about one of them, {facts.target}."
        )
    yield from findings_notes(facts)


def sections(facts: RegressionFacts) -> list[Section]:
    """Return the sections of a report."""
    writers: list[tuple[str, str, Callable[[RegressionFacts], str]]] = [
        ("directions", "Columns and directions", _directions),
        ("link", "The learned function", _link),
        ("sure", "Accuracy", _accuracy),
        ("compare", "Comparison with other methods", _comparison),
        ("wrong", "Rows with the largest errors", _worst_rows),
        ("training", "Training", training_section),
        ("health", "Checks of the fit", health_section),
        ("made", "Settings and versions", provenance_section),
    ]
    return [Section(anchor, title, write(facts)) for anchor, title, write in writers]


def _directions(facts: RegressionFacts) -> str:
    return directions_section(facts, "The prediction is a weighted sum of")


def _link(facts: RegressionFacts) -> str:
    """Return the section on the learned function."""
    link = facts.link
    learned = "The function of the first model" if facts.directions.of_ensemble else "The learned function"
    dots = "A dot is a row of the data."
    if link.n_held > 0:
        others = "directions" if facts.directions.shape == ShapeName.FULL else "columns"
        dots = (
            "A dot is a row of the data. Its height above or below the function is the row's prediction error. "
            f"The other {others} are fixed at their medians."
        )
    names = [direction_name(facts, each.direction) for each in link.curves]
    curves = "".join(
        figure(curve_chart(each, name, facts.target), f"The function along {name}.")
        for each, name in zip(link.curves, names, strict=True)
    )
    if not link.surfaces:
        return f'<p>{learned} along the direction. {dots}</p><div class="figures one">{curves}</div>'
    maps = "".join(
        figure(
            map_chart(each, [direction_name(facts, k) for k in each.directions], facts.target),
            "Brighter colours are higher values. Colours are pale far from all rows, where the function is unreliable.",
            f' class="flat" data-pair="{i}"',
        )
        for i, each in enumerate(link.surfaces)
    )
    surface = (
        '<div class="surface" id="surface"><noscript><p class="note">The rotating surface needs JavaScript. '
        "The maps show the same function.</p></noscript></div>"
    )
    return (
        f"<p>{learned}, over pairs of directions and along each direction. {dots}</p>"
        f'<div class="tabs" data-tabs="Views of the function">'
        + panel("Surface", surface)
        + panel("Map", f'<div class="figures one">{maps}</div>')
        + panel("Curves", f'<div class="figures">{curves}</div>')
        + "</div>"
    )


def _accuracy(facts: RegressionFacts) -> str:
    errors, target = facts.errors, shortened(facts.target)
    if errors.interval is None:
        text = f"This model has no prediction intervals ({errors.no_interval_reason}). See the typical error instead."
    else:
        caution = "" if errors.held_out else " This percentage can be too high for rows that the model was fitted to."
        text = (
            f"The {percent(errors.interval.coverage)} prediction intervals should contain the actual value in "
            f"{percent(errors.interval.coverage)} of the rows. They do so in {percent(errors.interval.covered)} of "
            f"these rows.{caution} Half of the intervals are narrower than {number(errors.interval.median_width)}."
        )
    figures = (
        f"Root mean square error: {number(errors.rmse)}. Median absolute error: {number(errors.median_absolute)}. Mean "
        f"error: {number(errors.mean, 2)}. Standard deviation of {target}: {number(errors.target_std)}."
    )
    n_shown = len(errors.actual)
    shown = f" ({n_shown:,} of {facts.n_rows:,} rows, drawn at random)" if n_shown < facts.n_rows else ""
    return (
        f'<p>{escape(text)}</p><p>{escape(figures)}</p><div class="figures">'
        + figure(
            predicted_against_actual(errors),
            f"Predicted against actual values{shown}. Rows on the line are predicted exactly.",
        )
        + figure(error_histogram(errors), "Errors of all rows. An error is the actual minus the predicted value.")
        + "</div>"
    )


_METHODS = {"kernel ridge": "kernel ridge regression, tuned", "linear": "linear model, tuned"}


def _comparison(facts: RegressionFacts) -> str:
    found = facts.comparison
    if found is None:
        return (
            "<p>There is no comparison. A comparison needs <code>compare=True</code>, at least 20 rows and a target "
            "that is not constant.</p>"
        )
    hkrr_name = "hkrr, with these settings" if found.refitted else "hkrr, this model"
    names = [hkrr_name if name == "hkrr" else _METHODS.get(name, name) for name in found.methods]
    if found.refitted:
        text = (
            f"All methods were fitted to {found.n_train:,} of these rows and tested on {found.n_test:,} others. For "
            "hkrr, a new model with the settings of this model was fitted. The comparison shows how the methods "
            "perform on these data, not how good this particular model is."
        )
    else:
        text = f"All methods were fitted to the same {found.n_train:,} rows and tested on {found.n_test:,} others."
    rows = [
        [name, score(r2), f"{score(low)} to {score(high)}"]
        for name, r2, low, high in zip(names, found.r2, found.low, found.high, strict=True)
    ]
    level = percent(found.level)
    return (
        f"<p>{escape(text)} The {level} intervals show how much R² could change with different test rows.</p>"
        f'<div class="figures one">{figure(comparison_chart(found), "R² on the test rows. Higher is better.")}</div>'
        + table(["method", "R²", f"{level} interval"], rows, "Methods compared")
    )


def _worst_rows(facts: RegressionFacts) -> str:
    errors = facts.errors
    names = ["row", "actual", "predicted", "error"]
    with_interval = errors.interval is not None
    names += [f"{percent(errors.interval.coverage)} interval"] if errors.interval is not None else []
    rows = []
    for each in errors.worst:
        row: list[Any] = [each.name, each.actual, each.predicted, each.error]
        if with_interval and each.interval is not None:
            row.append(" to ".join(number(end) for end in each.interval))
        rows.append(row + each.cells)
    more = f" Only the {len(errors.columns)} most important columns are shown." if errors.n_columns_left_out else ""
    return (
        f"<p>The {len(rows)} rows with the largest errors. Look for what they have in common, and for mistakes in the "
        f"data.{more} Click on a column heading to sort.</p>"
        + table(names + errors.columns, rows, "Rows with the largest errors", True)
    )
