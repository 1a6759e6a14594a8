"""The header and the sections of the page, in reading order. All names and values are escaped.

The header has the main result in one or two sentences, the most important numbers, and cautions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from html import escape
from typing import Any

from hkrr._maps import ShapeName
from hkrr.estimators.fitted.diagnostics import STOP_REASONS
from hkrr.reporting.directions import Directions, Loading, ReportedDirection
from hkrr.reporting.html_elements import bars, figure, panel, table
from hkrr.reporting.report_data import Facts
from hkrr.reporting.section_charts import (
    comparison_chart,
    curve_chart,
    error_histogram,
    map_chart,
    objective_chart,
    predicted_against_actual,
    scores_by_directions,
    spectrum_chart,
)
from hkrr.reporting.text_formatting import count, formula, headline, listed, number, percent, score, shortened

# Minimum difference in R2 for which the header says that another method does better.
_CLEARLY_BETTER = 0.01
# Names of the methods in the sentences of the header.
_METHOD_NAMES = {"kernel ridge": "kernel ridge regression", "linear": "a linear model"}


@dataclass(frozen=True)
class Section:
    """A section of the page."""

    anchor: str
    title: str
    html: str


def header(facts: Facts) -> str:
    """Return the HTML of the header."""
    errors = facts.errors
    r2 = "not defined" if errors.r2 is None else score(errors.r2)
    meaning = "fraction of the variance that the model explains; 1 is perfect, 0 is no better than the mean"
    cards = [(r2, f"R² {_on_which_rows(facts)}", meaning)]
    known = facts.comparison
    if known is not None and not known.refitted:
        cards = [
            (score(known.r2[0]), f"R² on {known.n_test:,} held-out rows", meaning),
            (r2, f"R² {_on_which_rows(facts)}", "the same for the rows of this report"),
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
    tiles = "".join(
        f'<div class="card"><dt>{escape(name)}</dt><dd><strong>{escape(value)}</strong>'
        f"<span>{escape(meaning)}</span></dd></div>"
        for value, name, meaning in cards
    )
    return f'<p class="lead">{escape(headline(facts))}</p><dl class="cards">{tiles}</dl>' + "".join(
        f'<p class="note">{escape(note)}</p>' for note in _notes(facts)
    )


def _on_which_rows(facts: Facts) -> str:
    errors = facts.errors
    if errors.held_out:
        return "on these rows, which are new to the model"
    if errors.seen is None or errors.seen > 0.95:
        return "on these rows, which the model was fitted to"
    return "on these rows; the model was fitted to some of them"


def _notes(facts: Facts) -> Iterator[str]:
    errors = facts.errors
    if errors.r2 is None:
        yield f"{facts.target} is the same in all of these rows. There is nothing to explain, and R² is not defined."
    if not errors.held_out:
        which = "These rows" if errors.seen in (None, 1.0) else f"At least {percent(errors.seen or 0.0)} of these rows"
        where = " See “Comparison with other methods”." if facts.comparison is not None else ""
        yield (
            f"{which} were used to fit the model. Errors on such rows are smaller than on new rows. Judge the model by "
            f"rows that it was not fitted to.{where}"
        )
    elif errors.seen is not None and errors.seen >= 0.005:
        yield f"{percent(errors.seen)} of these rows are identical to rows that the model was fitted to."
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
    if facts.health is not None and facts.health.findings:
        yield f"The checks of the fit found {count(len(facts.health.findings), 'problem')}. See “Checks of the fit”."


def sections(facts: Facts) -> list[Section]:
    """Return the sections of a report."""
    writers: list[tuple[str, str, Callable[[Facts], str]]] = [
        ("directions", "Columns and directions", _directions),
        ("link", "The learned function", _link),
        ("sure", "Accuracy", _accuracy),
        ("compare", "Comparison with other methods", _comparison),
        ("wrong", "Rows with the largest errors", _worst_rows),
        ("training", "Training", _training),
        ("health", "Checks of the fit", _health),
        ("made", "Settings and versions", _provenance),
    ]
    return [Section(anchor, title, write(facts)) for anchor, title, write in writers]


def _directions(facts: Facts) -> str:
    """Return the section on the importances of the columns and the directions."""
    found = facts.directions
    others = f"{count(found.n_columns_left_out, 'less important column')} not shown."
    panels = [
        panel(
            "Columns",
            "<p>How much the prediction changes with a typical change of each column, as a fraction of the total.</p>"
            + bars(found.importances, False, found.n_columns_left_out, others),
        )
    ]
    if found.shape == ShapeName.FULL and len(found.directions) > 1:
        shares = [Loading(f"Direction {each.number}", each.share) for each in found.directions]
        panels.append(
            panel(
                "Directions",
                "<p>How much the prediction changes with a typical change along each direction, as a fraction "
                "of the total.</p>" + bars(shares, signed=False),
            )
        )
    if found.shape == ShapeName.FULL:
        panels += [panel(f"Direction {each.number}", _direction(each, found)) for each in found.directions]
    return (
        f'<p>{escape(_introduction(found))}</p>{_members(found)}<div class="tabs" data-tabs="Columns and directions">'
        f"{''.join(panels)}</div>"
    )


def _members(found: Directions) -> str:
    """Return the HTML table of the members of an ensemble, or "" for a single model."""
    if not found.members:
        return ""
    rows = [[f"{weight:.2f}", each.kernel, each.shape.describe(each.n_components)] for weight, each in found.members]
    return table(["weight", "kernel", "map"], rows, "Models and their weights")


def _introduction(found: Directions) -> str:
    if found.of_ensemble:
        text = f"The prediction is a weighted sum of {len(found.members)} models with different kernels or maps."
        return f"{text} The directions below are those of the first model." if found.shape == ShapeName.FULL else text
    if found.shape == ShapeName.IDENTITY:
        return "The search found that a model of all columns with equal weights is better than a few directions."
    if found.shape == ShapeName.DIAGONAL:
        return "The search found that a model with one weight per column is better than sums of several columns."
    text = "A direction is a weighted sum of the columns. The model predicts each row from " + (
        "the value of this direction alone."
        if found.n_components == 1
        else f"the values of these {found.n_components} directions alone."
    )
    if found.n_components > len(found.directions):
        text += f" The {len(found.directions)} directions that change the prediction most are shown."
    return text


def _direction(direction: ReportedDirection, found: Directions) -> str:
    left_out = percent(direction.left_out)
    others = f"{count(direction.n_left_out, 'more column')} with {left_out} of the sum of squared weights."
    weight = ""
    if found.n_components > 1:
        size = direction.singular_value
        relative = "the largest of all directions" if size == 1 else f"{number(size, 2)} times the largest weight"
        weight = (
            f"<p>This direction accounts for {percent(direction.share)} of the changes of the prediction. Its weight "
            f"in the model is {relative}.</p>"
        )
    return (
        f'<p class="formula">{escape(formula(direction))}</p>{weight}'
        "<p class='small'>Each weight is for a change of the column by one standard deviation. Only the relative sizes "
        "and signs of the weights matter; reversing all signs gives the same model.</p>"
        + bars(direction.loadings, True, direction.n_left_out, others)
    )


def _link(facts: Facts) -> str:
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


def direction_name(facts: Facts, direction: int) -> str:
    """Return the name of a direction: the name of its column if it has a single column, else "direction k"."""
    if facts.directions.shape != ShapeName.FULL:
        for each in facts.directions.directions:
            if each.number == direction and len(each.loadings) == 1:
                return shortened(each.loadings[0].column, 30)
    return f"direction {direction}"


def _accuracy(facts: Facts) -> str:
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


def _comparison(facts: Facts) -> str:
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


def _worst_rows(facts: Facts) -> str:
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


def _training(facts: Facts) -> str:
    found = facts.training
    figures = []
    n = len(found.objective)
    if n > 1:
        caption = f"The objective over {count(n - 1, 'iteration')}. Lower is better."
        figures.append(figure(objective_chart(found), caption))
    if found.spectrum is not None and facts.directions.shape == ShapeName.FULL:
        n_kept, n = facts.directions.n_components, len(found.spectrum)
        figures.append(
            figure(
                spectrum_chart(found.spectrum, n_kept),
                f"The search started with {count(n, 'direction')} and shrank those that do not matter. The bars show "
                "the size of each direction (its singular value). The directions to the left of the dashed line were "
                "kept.",
            )
        )
    if found.path is not None:
        which = "first" if facts.directions.of_ensemble else "chosen"
        chosen = f"The {which} model uses all columns, not a few directions."
        if facts.directions.shape == ShapeName.FULL and found.path.chosen in found.path.n_components:
            chosen = f"The ring marks the number of the {which} model, {found.path.chosen}."
        figures.append(
            figure(
                scores_by_directions(found.path),
                "The search for the number of directions. A dot is a run of the search. The line joins the best run "
                f"for each number of directions. {chosen} Lower is better.",
            )
        )
    reason = f"Why the last run stopped: {STOP_REASONS.get(found.stopped, found.stopped)}."
    if n <= 1:
        reason += " The iterations of this run were not recorded."
    text = f"<p>{escape(reason)}</p>"
    if figures:
        text += f'<div class="figures{" one" if len(figures) == 1 else ""}">{"".join(figures)}</div>'
    if found.runs:
        shown = "" if found.n_runs == len(found.runs) else f" (the first {len(found.runs)} are shown)"
        text += (
            f"<details><summary>All {found.n_runs:,} runs of the search{shown}</summary>"
            + table([name.replace("_", " ") for name in found.run_columns], found.runs, "Runs of the search", True)
            + "</details>"
        )
    return text


_KINDS = {
    "IllConditionedWarning": "Numerically unstable",
    "EdgeWarning": "At the edge of a range",
    "PoorFitWarning": "Poor fit",
    "OverfitWarning": "Too many parameters",
    "FailedStartsWarning": "Failed starting maps",
    "NotConvergedWarning": "Not converged",
}


def _health(facts: Facts) -> str:
    if facts.health is None:
        return "<p>There are no checks, because the fit was interrupted.</p>"
    findings = "".join(
        f'<li class="finding"><strong>{escape(_KINDS.get(each.kind, each.kind))}.</strong> '
        f"{escape(each.message[:1].upper() + each.message[1:])}.</li>"
        for each in facts.health.findings
    )
    verdict = (
        f'<p>Problems found, and what to do about them:</p><ul class="findings">{findings}</ul>'
        if findings
        else '<p class="fine">No problems were found.</p>'
    )
    figures = "".join(
        f"<div><dt>{escape(name)}</dt><dd><strong>{escape(value)}</strong> <span>{escape(meaning)}</span></dd></div>"
        for name, value, meaning in facts.health.figures
    )
    is_open = "" if findings else " open"
    return f'{verdict}<details{is_open}><summary>All values</summary><dl class="facts">{figures}</dl></details>'


def _provenance(facts: Facts) -> str:
    found = facts.making
    results = "".join(
        f"<div><dt>{escape(name)}</dt><dd><code>{escape(value)}</code></dd></div>" for name, value in found.results
    )
    parameters = ", ".join(f"{name}={value}" for name, value in found.parameters.items())
    code = (
        f"from hkrr import {found.estimator}\nfrom hkrr.reporting import write_report\n\n"
        f"model = {found.estimator}({parameters}).fit(X, y)\n"
        'write_report(model, X_new, y_new, "report.html")\n'
    )
    versions = listed([f"{name} {value}" for name, value in found.versions.items()])
    return (
        f'<dl class="facts">{results}</dl><p>Python code for the same fit and report:</p>'
        f'<pre tabindex="0"><code>{escape(code)}</code></pre>'
        f'<p class="small">Written on {escape(found.date)} with {escape(versions)}.</p>'
    )
