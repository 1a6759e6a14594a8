"""The header of the page: the main result in one or two sentences, the most important numbers, and cautions."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from hkrr._maps import ShapeName
from hkrr.reporting.report_data import Facts
from hkrr.reporting.text_formatting import count, headline, number, percent, score, shortened

# Minimum difference in R2 for which the header says that another method does better.
_CLEARLY_BETTER = 0.01
# Names of the methods in the sentences of the header.
_NAMES = {"kernel ridge": "kernel ridge regression", "linear": "a linear model"}


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
        yield f"On held-out rows, {_NAMES.get(best, best)} does better than {worse}. {where}"
    if facts.other_targets:
        yield (
            f"The model predicts {count(facts.other_targets + 1, 'target')} with the same directions. "
            f"This report is about one of them, {facts.target}."
        )
    if facts.health is not None and facts.health.findings:
        yield f"The checks of the fit found {count(len(facts.health.findings), 'problem')}. See “Checks of the fit”."
