"""What a fitted model is, on a terminal: from `hkrr.tables.describe`."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from rich.console import Console

from hkrr.cli._console import say

_MOST_LINES = 15  # of directions, and of columns
_MOST_COLUMNS = 8  # by their importance
_LEAST_SHARE = 0.005  # what is shown as 1%
_WIDEST_NAME = 30


_CLEARLY = 0.01  # by so much of R2
_PLAIN = {"kernel ridge": "hkrr.baselines.KernelRidgeCV in Python", "linear": "sklearn.linear_model.RidgeCV in Python"}


def show_scores(console: Console, model: Any) -> None:
    """Print the scores on the held-out rows, where the model has them."""
    scores = getattr(model, "held_out_", None)
    if scores is not None:
        say(console, f"\n{scores}")
        best = max(range(len(scores.r2)), key=lambda k: scores.r2[k])
        if best > 0 and scores.r2[best] > scores.r2[0] + _CLEARLY:
            name = scores.methods[best]
            where = _PLAIN.get(name, "in Python")  # a file may name others
            told = f"A plain model, {name}, does better on these rows: think of taking it ({where})."
            say(console, textwrap.fill(told, 79), "yellow")


_OF_CLASSES = ("Classes", "Loss", "Log loss", "Accuracy")


def show_classes(console: Console, model: Any) -> None:
    """Print the classes of a classifier and how good it was on rows held out, as its summary does."""
    if hasattr(model, "classes_"):
        facts = [(f"{name}:", value) for name, value in model.summary().facts if name.startswith(_OF_CLASSES)]
        say(console, "")
        _show_rows(console, facts)


def show_map(console: Console, found: dict[str, Any]) -> None:
    """Print the directions, or what there is in their place."""
    if "directions" not in found:
        return
    D, d = found["n_features"], found["n_components"]
    shape, kernel, directions = found.get("map_shape", "full"), found["kernel"], found["directions"]
    if found.get("stopped") == "time_limit":
        say(console, "\nThe time limit ended the search: with more time it may do better.")
    if found.get("stopped") == "interrupted":
        say(console, "\nThe fit was interrupted: this is the best that it had found by then.")
    if shape == "identity":
        say(console, f"\nNo few directions were found: kernel ridge on all {D} columns ({kernel} kernel).")
    elif shape == "diagonal":
        say(console, f"\nNo few directions were found: a scale for each of {D} columns ({kernel} kernel).")
    else:
        say(console, f"\n{d} direction{'s' if d > 1 else ''} of {D} columns ({kernel} kernel), the strongest first:")
        _show_rows(console, [(f"{each['weight']:.2f}", _terms(each)) for each in directions])
    _show_importances(console, found.get("importances", []))


def _show_importances(console: Console, importances: list[dict[str, Any]]) -> None:
    """Print which columns move the prediction most."""
    listed = [f"{each['column']} {each['share']:.0%}" for each in importances if each["share"] >= _LEAST_SHARE]
    shown = listed[:_MOST_COLUMNS]
    if shown:
        more = [f"and {len(importances) - len(shown)} more"] if len(importances) > len(shown) else []
        lines = textwrap.wrap(", ".join([*shown, *more]), max(20, console.width - 2))
        say(console, "\nWhat moves the prediction most:\n" + "\n".join(f"  {line}" for line in lines))


def _terms(direction: dict[str, Any]) -> str:
    pairs = zip(direction["columns"], direction["loadings"], strict=True)
    terms = [f"{loading:+.2f} {name}" for name, loading in pairs]
    return ", ".join([*terms, *([f"and {direction['n_more']} more"] if direction["n_more"] else [])])


def show_columns(console: Console, found: dict[str, Any], everything: bool = False) -> None:
    """Print what became of the columns; of plain numbers their number alone, unless everything is asked for."""
    columns = found.get("columns", [])
    if not columns or "kind" not in columns[0]:
        return
    told = [each for each in columns if everything or each["kind"] != "number" or each["about"]]
    n_plain = len(columns) - len(told)
    plain = f" ({n_plain} more {'is a number' if n_plain == 1 else 'are numbers'})" if n_plain else ""
    if not told:
        say(console, f"\nAll {len(columns)} columns are numbers, and stay as they are.")
        return
    say(console, f"\nColumns{plain}:")
    rows = [(each["name"], each["kind"], each["about"]) for each in told]
    _show_rows(console, rows, len(rows) if everything else _MOST_LINES)


def _show_rows(console: Console, rows: Sequence[tuple[str, ...]], most: int = _MOST_LINES) -> None:
    """Print rows of cells under each other, the last one wrapped where the terminal is too narrow."""
    shown = rows[:most]
    widths = [min(_WIDEST_NAME, max(len(cell) for cell in column)) for column in list(zip(*shown, strict=True))[:-1]]
    indent = 2 + sum(widths) + 2 * len(widths)
    for row in shown:
        begin = "".join(f"{_cut(cell, width):{width}}  " for cell, width in zip(row, widths, strict=False))
        lines = textwrap.wrap(row[-1], max(20, console.width - indent)) or [""]
        for k, line in enumerate(lines):
            say(console, f"  {begin if k == 0 else ' ' * (indent - 2)}{line}".rstrip())
    if len(rows) > most:
        say(console, f"  and {len(rows) - most} more")


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 3]}..."


def show_findings(console: Console, messages: list[str]) -> None:
    """Print what deserves attention."""
    for message in messages:
        say(console, "\n" + textwrap.fill(f"! {message}", console.width, subsequent_indent="  "), "yellow")
