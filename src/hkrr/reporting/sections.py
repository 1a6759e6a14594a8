"""The sections of the page, in reading order. All names and values are escaped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import Any

from hkrr._maps import ShapeName
from hkrr.estimators.fitted.diagnostics import STOP_REASONS
from hkrr.reporting.directions_and_link_sections import directions_section, link_section
from hkrr.reporting.html_elements import figure, table
from hkrr.reporting.report_data import Facts
from hkrr.reporting.section_charts import (
    comparison_chart,
    error_histogram,
    objective_chart,
    predicted_against_actual,
    scores_by_directions,
    spectrum_chart,
)
from hkrr.reporting.text_formatting import count, listed, number, percent, score, shortened


@dataclass(frozen=True)
class Section:
    """A section of the page."""

    anchor: str
    title: str
    html: str


def sections(facts: Facts) -> list[Section]:
    """Return the sections of a report."""
    writers: list[tuple[str, str, Callable[[Facts], str]]] = [
        ("directions", "Columns and directions", directions_section),
        ("link", "The learned function", link_section),
        ("sure", "Accuracy", _accuracy),
        ("compare", "Comparison with other methods", _comparison),
        ("wrong", "Rows with the largest errors", _worst_rows),
        ("training", "Training", _training),
        ("health", "Checks of the fit", _health),
        ("made", "Settings and versions", _provenance),
    ]
    return [Section(anchor, title, write(facts)) for anchor, title, write in writers]


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
                f"the size of each direction (its singular value). The {n_kept} to the left of the dashed line were "
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
    "EdgeWarning": "At an edge",
    "PoorFitWarning": "Poor fit",
    "OverfitWarning": "Too many parameters",
    "FailedStartsWarning": "Failed starts",
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
