"""Pieces of HTML that the sections are made of. All texts from outside pass through `escape`."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from hkrr.reporting.directions import Loading
from hkrr.reporting.words import number, percent, shortened

_FIRST_BARS = 10
_LONGEST_CELL, _LONG_HEAD = 40, 24


def bars(loadings: Sequence[Loading], signed: bool, n_left_out: int = 0, left_out: str = "") -> str:
    """Return a bar for each name; those after the first ten fold away, with a sentence on those that have none."""
    largest = max((abs(each.weight) for each in loadings), default=0.0) or 1.0

    def bar(each: Loading) -> str:
        width = 100.0 * abs(each.weight) / largest
        low = -100 if signed else 0
        left = -width if signed and each.weight < 0 else 0.0
        kind = "negative" if each.weight < 0 else "positive"
        text = f"{each.weight:+.2f}" if signed else percent(each.weight).replace("below ", "<")
        zero = '<line class="axis" x1="0" x2="0" y1="0" y2="10"/>' if signed else ""
        return (
            f'<li><span class="label" title="{escape(each.column)}">{escape(shortened(each.column))}</span>'
            f'<svg viewBox="{low} 0 {100 - low} 10" preserveAspectRatio="none" aria-hidden="true">'
            f'<rect class="{kind}" x="{left:.1f}" y="1" width="{width:.1f}" height="8"/>{zero}</svg>'
            f'<span class="value">{text.replace("-", "−")}</span></li>'
        )

    first, more = loadings[:_FIRST_BARS], loadings[_FIRST_BARS:]
    html = f'<ul class="bars">{"".join(map(bar, first))}</ul>'
    if more:
        rest = f'<p class="small">{escape(left_out)}</p>' if n_left_out else ""
        folded = f'<ul class="bars">{"".join(map(bar, more))}</ul>{rest}'
        html += f"<details><summary>{len(more) + n_left_out:,} more</summary>{folded}</details>"
    return html


def panel(name: str, html: str) -> str:
    """Return a part of a section that the script makes a tab of; without it, one under the other."""
    return f'<section class="panel" data-tab="{escape(name)}"><h3>{escape(name)}</h3>{html}</section>'


def figure(picture: str, caption: str, extra: str = "") -> str:
    """Return a picture with its caption."""
    return f"<figure{extra}>{picture}<figcaption>{escape(caption)}</figcaption></figure>"


def table(names: Sequence[str], rows: Sequence[Sequence[Any]], caption: str, sortable: bool = False) -> str:
    """Return a table that scrolls in its own box; numbers with their whole values, for sorting."""

    def cell(value: Any) -> str:
        if isinstance(value, float):
            return f'<td class="number" data-value="{value!r}">{escape(number(value, 4))}</td>'
        hint = f' title="{escape(value)}"' if len(value) > _LONGEST_CELL else ""
        return f"<td{hint}>{escape(shortened(value, _LONGEST_CELL))}</td>"

    def head(i: int, name: str) -> str:
        kinds = ["number"] if rows and isinstance(rows[0][i], float) else []
        kinds += ["long"] if len(name) > _LONG_HEAD else []
        return f'<th scope="col" class="{" ".join(kinds)}" title="{escape(name)}">{escape(shortened(name))}</th>'

    heads = "".join(head(i, name) for i, name in enumerate(names))
    body = "".join(f"<tr>{''.join(map(cell, row))}</tr>" for row in rows)
    kind = " data-sortable" if sortable else ""
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}">'
        f"<table{kind}><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>"
    )
