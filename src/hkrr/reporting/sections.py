"""The sections of the page, in the order in which a reader asks. All texts from outside pass through `escape`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import Any

from hkrr.diagnostics import ENDS
from hkrr.reporting.facts import Facts
from hkrr.reporting.learned import directions_section, link_section
from hkrr.reporting.markup import figure, table
from hkrr.reporting.pictures import (
    compared,
    histogram,
    objective,
    predicted_against_actual,
    scores_by_directions,
)
from hkrr.reporting.words import count, listed, number, percent, score, shortened


@dataclass(frozen=True)
class Section:
    """A part of the page."""

    anchor: str
    title: str
    html: str


def sections(facts: Facts) -> list[Section]:
    """Return the sections of a report."""
    makers: list[tuple[str, str, Callable[[Facts], str]]] = [
        ("directions", "What it depends on", directions_section),
        ("link", "How it depends on it", link_section),
        ("sure", "How sure it is", _sure),
        ("compare", "How it compares", _comparison),
        ("wrong", "Rows it gets wrong", _wrong),
        ("training", "How it was found", _training),
        ("health", "Is it healthy?", _health),
        ("made", "How it was made", _made),
    ]
    return [Section(anchor, title, make(facts)) for anchor, title, make in makers]


def _sure(facts: Facts) -> str:
    errors, target = facts.errors, shortened(facts.target)
    if errors.interval is None:
        text = f"There are no intervals of this model ({errors.no_interval}): the typical error stands for them."
    else:
        text = (
            f"Intervals that should hold {percent(errors.interval.coverage)} of the rows hold "
            f"{percent(errors.interval.covered)} of these; half of them are narrower than "
            f"{number(errors.interval.median_width)}."
        )
        if not errors.held_out:
            text += " Of rows that were part of the fit, more than asked for may lie inside."
    figures = (
        f"Root mean square error {number(errors.rms)}, median size of an error {number(errors.median_size)}, mean "
        f"error {number(errors.mean, 2)}; {target} itself has a standard deviation of {number(errors.target_spread)}."
    )
    shown = (
        f" ({len(errors.actual):,} of {facts.n_rows:,} rows, drawn at random)"
        if len(errors.actual) < facts.n_rows
        else ""
    )
    return (
        f'<p>{escape(text)}</p><p>{escape(figures)}</p><div class="figures">'
        + figure(predicted_against_actual(errors), f"Predicted against actual{shown}: on the line, a row is exact.")
        + figure(histogram(errors), "Errors, actual minus predicted, of all rows.")
        + "</div>"
    )


_METHODS = {"kernel ridge": "kernel ridge regression, tuned", "linear": "linear model, tuned"}


def _comparison(facts: Facts) -> str:
    found = facts.comparison
    if found is None:
        return "<p>No comparison was made: ask for one with <code>compare=True</code>, and twenty rows or more.</p>"
    ours = "hkrr, with these settings" if found.anew else "hkrr, this model"
    names = [ours if name == "hkrr" else _METHODS.get(name, name) for name in found.methods]
    if found.anew:
        how = (
            f"All were fitted anew, ours with the settings of this model, to {found.n_train:,} of these rows, and "
            f"tested on {found.n_test:,} others: it tells how the method compares here, not how good this model is."
        )
    else:
        how = (
            f"All learned from the same {found.n_train:,} rows, and were tested on {found.n_test:,} that were held out."
        )
    rows = [
        [name, score(r2), f"{score(low)} to {score(high)}"]
        for name, r2, low, high in zip(names, found.r2, found.low, found.high, strict=True)
    ]
    level = percent(found.level)
    return (
        f"<p>{escape(how)} Intervals of {level} say how far so few test rows may mislead.</p>"
        f'<div class="figures one">{figure(compared(found), "R² on the test rows: farther right is better.")}</div>'
        + table(["method", "R²", f"{level} interval"], rows, "Methods compared")
    )


def _wrong(facts: Facts) -> str:
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
    more = ""
    if errors.n_columns_left_out:
        more = f" Of the columns, the {len(errors.columns)} that matter most are shown."
    return (
        f"<p>The {len(rows)} rows with the largest errors: look for what they have in common, or for mistakes in the "
        f"data.{more} A click on a heading sorts.</p>"
        + table(names + errors.columns, rows, "Rows of large error", True)
    )


def _training(facts: Facts) -> str:
    found = facts.training
    figures = []
    n = len(found.objective)
    if n > 1:
        figures.append(figure(objective(found), f"The objective over {count(n - 1, 'iteration')}: lower is better."))
    if found.path is not None:
        chosen = "no few directions were chosen in the end"
        if facts.directions.shape == "full" and found.path.chosen in found.path.n_components:
            chosen = f"the ring is what was chosen ({found.path.chosen})"
        figures.append(
            figure(
                scores_by_directions(found.path),
                "What the search tried: a dot is a run, the line joins the best for each number of directions, and "
                f"{chosen}. Lower is better.",
            )
        )
    stop = f"How the last run ended: {ENDS.get(found.stopped, found.stopped)}."
    if n <= 1:
        stop += " It kept no record of its iterations."
    text = f"<p>{escape(stop)}</p>"
    if figures:
        text += f'<div class="figures{" one" if len(figures) == 1 else ""}">{"".join(figures)}</div>'
    if found.runs:
        shown = "" if found.n_runs == len(found.runs) else f", the first {len(found.runs)}"
        text += (
            f"<details><summary>All {found.n_runs:,} runs of the search{shown}</summary>"
            + table([name.replace("_", " ") for name in found.run_columns], found.runs, "Runs of the search", True)
            + "</details>"
        )
    return text


_KINDS = {
    "IllConditionedWarning": "Numerically delicate",
    "EdgeWarning": "At an edge",
    "PoorFitWarning": "A poor fit",
    "OverfitWarning": "Too many parameters",
    "FailedStartsWarning": "Starts that failed",
    "NotConvergedWarning": "Not finished",
}


def _health(facts: Facts) -> str:
    if facts.health is None:
        return "<p>The fit was broken off before it was examined: there are no diagnostics.</p>"
    findings = "".join(
        f'<li class="finding"><strong>{escape(_KINDS.get(each.kind, each.kind))}.</strong> '
        f"{escape(each.message[:1].upper() + each.message[1:])}.</li>"
        for each in facts.health.findings
    )
    verdict = (
        f'<p>What deserves attention, and what to do about it:</p><ul class="findings">{findings}</ul>'
        if findings
        else '<p class="fine">Nothing here needs attention.</p>'
    )
    figures = "".join(
        f"<div><dt>{escape(name)}</dt><dd><strong>{escape(value)}</strong> <span>{escape(meaning)}</span></dd></div>"
        for name, value, meaning in facts.health.figures
    )
    is_open = "" if findings else " open"
    return f'{verdict}<details{is_open}><summary>All figures</summary><dl class="facts">{figures}</dl></details>'


def _made(facts: Facts) -> str:
    making = facts.making
    chosen = "".join(
        f"<div><dt>{escape(name)}</dt><dd><code>{escape(value)}</code></dd></div>" for name, value in making.chosen
    )
    settings = ", ".join(f"{name}={value}" for name, value in making.given.items())
    code = (
        f"from hkrr import {making.estimator}\nfrom hkrr.reporting import write_report\n\n"
        f"model = {making.estimator}({settings}).fit(X, y)\n"
        'write_report(model, X_new, y_new, "report.html")\n'
    )
    versions = listed([f"{name} {value}" for name, value in making.versions.items()])
    return (
        f'<dl class="facts">{chosen}</dl><p>The same in Python:</p><pre tabindex="0"><code>{escape(code)}</code></pre>'
        f'<p class="small">Written on {escape(making.date)} with {escape(versions)}.</p>'
    )
