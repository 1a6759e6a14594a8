"""The head of the page: what was learned in a sentence, the few figures that matter, and what to keep in mind."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from hkrr.reporting.facts import Facts
from hkrr.reporting.words import count, headline, number, percent, score, shortened

_BEATEN = 0.01  # in R2
_NAMES = {"kernel ridge": "kernel ridge regression", "linear": "a linear model"}


def opening(facts: Facts) -> str:
    """Return the head of the page: what was learned, and the few figures that matter."""
    errors = facts.errors
    r2 = "not defined" if errors.r2 is None else score(errors.r2)
    about = "the share of its variation that is explained; 1 is perfect, 0 no better than the mean"
    cards = [(r2, f"R² {_on_which_rows(facts)}", about)]
    if facts.comparison is not None and not facts.comparison.anew:
        known = facts.comparison
        cards = [
            (score(known.r2[0]), f"R² on {known.n_test:,} held-out rows", about),
            (r2, f"R² {_on_which_rows(facts)}", "the same of the rows below"),
        ]
    cards.append(
        (
            number(errors.median_size),
            "typical error",
            f"half of the rows are closer than this; {shortened(facts.target)} has a standard deviation of "
            f"{number(errors.target_spread)}",
        )
    )
    if facts.directions.shape == "full":
        d = facts.directions.n_components
        about = f"{count(d, 'number')} of a row: all that the model uses"
        cards.append((f"{d:,}", "direction" if d == 1 else "directions", about))
    cards.append((f"{facts.n_rows:,}", "rows in this report", f"of {count(facts.directions.n_columns, 'column')}"))
    tiles = "".join(
        f'<div class="card"><dt>{escape(name)}</dt><dd><strong>{escape(value)}</strong>'
        f"<span>{escape(about)}</span></dd></div>"
        for value, name, about in cards
    )
    notes = list(_notes(facts))
    return f'<p class="lead">{escape(headline(facts))}</p><dl class="cards">{tiles}</dl>' + "".join(
        f'<p class="note">{escape(note)}</p>' for note in notes
    )


def _on_which_rows(facts: Facts) -> str:
    errors = facts.errors
    if errors.held_out:
        return "on these rows, which are new to the model"
    if errors.seen is None:
        return "on these rows, which the model was fitted on"
    return "on these rows, which the model has seen" if errors.seen > 0.95 else "on these rows, some of them seen"


def _notes(facts: Facts) -> Iterator[str]:
    errors = facts.errors
    if errors.r2 is None:
        yield f"{facts.target} is the same in all of these rows: there is nothing to explain, and R² is not defined."
    if not errors.held_out:
        which = "These rows" if errors.seen in (None, 1.0) else f"At least {percent(errors.seen or 0.0)} of these rows"
        yield (
            f"{which} were part of the fit. Errors on such rows flatter a model: judge it by rows that are new to it"
            + (", as under “How it compares”." if facts.comparison is not None else ".")
        )
    elif errors.seen is not None and errors.seen >= 0.005:
        yield f"{percent(errors.seen)} of these rows have the same columns as rows of the fit; the others are new."
    known = facts.comparison
    if known is not None and max(known.r2[1:], default=known.r2[0]) > known.r2[0] + _BEATEN:
        best = known.methods[known.r2.index(max(known.r2))]
        yield f"On new rows {_NAMES.get(best, best)} does better than this model: see “How it compares”."
    if facts.other_targets:
        yield (
            f"The model has {count(facts.other_targets + 1, 'target')}, which share its directions. "
            f"This report is about one of them, {facts.target}."
        )
    if facts.health is not None and facts.health.findings:
        yield f"{count(len(facts.health.findings), 'finding')} on the health of the fit: see “Is it healthy?”."
