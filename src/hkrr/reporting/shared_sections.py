"""The parts of the page that are the same for regressors and classifiers. All names and values are escaped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from hkrr._maps import ShapeName
from hkrr.estimators.fitted.diagnostics import STOP_REASONS
from hkrr.reporting.directions import Directions, Loading, ReportedDirection
from hkrr.reporting.html_elements import bars, figure, panel, table
from hkrr.reporting.report_data import Facts
from hkrr.reporting.section_charts import objective_chart, scores_by_directions, spectrum_chart
from hkrr.reporting.text_formatting import count, formula, listed, number, percent, shortened


@dataclass(frozen=True)
class Section:
    """A section of the page."""

    anchor: str
    title: str
    html: str


def header_html(lead: str, cards: Sequence[tuple[str, str, str]], notes: Iterable[str]) -> str:
    """Return the HTML of the header. A card consists of a value, its name and its meaning."""
    tiles = "".join(
        f'<div class="card"><dt>{escape(name)}</dt><dd><strong>{escape(value)}</strong>'
        f"<span>{escape(meaning)}</span></dd></div>"
        for value, name, meaning in cards
    )
    return f'<p class="lead">{escape(lead)}</p><dl class="cards">{tiles}</dl>' + "".join(
        f'<p class="note">{escape(note)}</p>' for note in notes
    )


def on_which_rows(seen: float | None, held_out: bool) -> str:
    """Return what the model knows of the rows. `seen` is the fraction of the rows that it was fitted to, if known."""
    if held_out:
        return "on these rows, which are new to the model"
    if seen is None or seen > 0.95:
        return "on these rows, which the model was fitted to"
    return "on these rows; the model was fitted to some of them"


def training_rows_notes(seen: float | None, held_out: bool, where: str) -> Iterator[str]:
    """Yield a caution if the model was fitted to some of the rows. `where` is added to it."""
    if not held_out:
        which = "These rows" if seen in (None, 1.0) else f"At least {percent(seen or 0.0)} of these rows"
        yield (
            f"{which} were used to fit the model. Errors on such rows are smaller than on new rows. Judge the model by "
            f"rows that it was not fitted to.{where}"
        )
    elif seen is not None and seen >= 0.005:
        yield f"{percent(seen)} of these rows are identical to rows that the model was fitted to."


def findings_notes(facts: Facts) -> Iterator[str]:
    """Yield a note if the checks of the fit found problems."""
    if facts.health is not None and facts.health.findings:
        yield f"The checks of the fit found {count(len(facts.health.findings), 'problem')}. See “Checks of the fit”."


def directions_section(facts: Facts, weighted_sum: str) -> str:
    """Return the section on the importances of the columns and the directions.

    `weighted_sum` is the start of a sentence about an ensemble, which ends with the number of its models.
    """
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
        f"<p>{escape(_introduction(found, weighted_sum))}</p>{_members(found)}"
        f'<div class="tabs" data-tabs="Columns and directions">{"".join(panels)}</div>'
    )


def _members(found: Directions) -> str:
    """Return the HTML table of the members of an ensemble, or "" for a single model."""
    if not found.members:
        return ""
    rows = [[f"{weight:.2f}", each.kernel, each.shape.describe(each.n_components)] for weight, each in found.members]
    return table(["weight", "kernel", "map"], rows, "Models and their weights")


def _introduction(found: Directions, weighted_sum: str) -> str:
    if found.of_ensemble:
        text = f"{weighted_sum} {len(found.members)} models with different kernels or maps."
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


def direction_name(facts: Facts, direction: int) -> str:
    """Return the name of a direction: the name of its column if it has a single column, else "direction k"."""
    if facts.directions.shape != ShapeName.FULL:
        for each in facts.directions.directions:
            if each.number == direction and len(each.loadings) == 1:
                return shortened(each.loadings[0].column, 30)
    return f"direction {direction}"


def training_section(facts: Facts) -> str:
    """Return the section on the objective and the runs of the search."""
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


def health_section(facts: Facts) -> str:
    """Return the section on the diagnostics of the fit."""
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


def provenance_section(facts: Facts) -> str:
    """Return the section on the settings and versions, with Python code for the same fit."""
    found = facts.making
    results = "".join(
        f"<div><dt>{escape(name)}</dt><dd><code>{escape(value)}</code></dd></div>" for name, value in found.results
    )
    parameters = ", ".join(f"{name}={value}" for name, value in found.parameters.items())
    names, model = found.estimator, f"{found.estimator}({parameters})"
    if found.table is not None:
        names, model = f"{names}, {found.table}", f"{found.table}({model})"
    code = (
        f"from hkrr import {names}\nfrom hkrr.reporting import write_report\n\n"
        f"model = {model}.fit(X, y)\n"
        'write_report(model, X_new, y_new, "report.html")\n'
    )
    versions = listed([f"{name} {value}" for name, value in found.versions.items()])
    return (
        f'<dl class="facts">{results}</dl><p>Python code for the same fit and report:</p>'
        f'<pre tabindex="0"><code>{escape(code)}</code></pre>'
        f'<p class="small">Written on {escape(found.date)} with {escape(versions)}.</p>'
    )
