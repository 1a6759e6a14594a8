"""HTML elements of the sections: bars, tabs, figures, legends and tables. All names and values are escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from hkrr.reporting.directions import Loading
from hkrr.reporting.text_formatting import number, percent, shortened

# Number of bars that are visible before the list is expanded.
_FIRST_BARS = 10
# Maximum number of characters in a cell of a table. Longer values are shortened.
_LONGEST_CELL = 40
# A column whose heading has more characters than this gets a minimum width.
_LONG_HEAD = 24


def bars(loadings: Sequence[Loading], signed: bool, n_left_out: int = 0, left_out: str = "") -> str:
    """Return a list of bars. The bars after the tenth are hidden until the reader expands the list.

    If `signed` is True, negative bars point to the left. `n_left_out` is the number of columns without a bar, and
    `left_out` is a text about these columns. The text is written below the hidden bars, and omitted if no bars are
    hidden.
    """
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
    """Return a panel with a heading. A script shows the panels as tabs. Without JavaScript, they are stacked."""
    return f'<section class="panel" data-tab="{escape(name)}"><h3>{escape(name)}</h3>{html}</section>'


def figure(content: str, caption: str, extra: str = "") -> str:
    """Return a figure element with its caption. `extra` contains further attributes of the element."""
    return f"<figure{extra}>{content}<figcaption>{escape(caption)}</figcaption></figure>"


def legend(entries: Sequence[tuple[str, str]]) -> str:
    """Return a legend. An entry consists of the CSS class of a colour and of a name."""
    items = (
        f'<li><span class="swatch {kind}"></span>{escape(shortened(name, _LONGEST_CELL))}</li>'
        for kind, name in entries
    )
    return f'<ul class="legend">{"".join(items)}</ul>'


def table(names: Sequence[str], rows: Sequence[Sequence[Any]], caption: str, sortable: bool = False) -> str:
    """Return a table in a scrollable box. An attribute stores the exact value of each number. Sorting uses it."""

    def cell(value: Any) -> str:
        if isinstance(value, float):
            return f'<td class="number" data-value="{value!r}">{escape(number(value, 4))}</td>'
        tooltip = f' title="{escape(value)}"' if len(value) > _LONGEST_CELL else ""
        return f"<td{tooltip}>{escape(shortened(value, _LONGEST_CELL))}</td>"

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


def count_table(
    names: Sequence[str],
    columns: Sequence[int],
    counts: Sequence[Sequence[int]],
    last: Sequence[str],
    heads: tuple[str, str],
    caption: str,
) -> str:
    """Return a table of counts in a scrollable box. Larger shares of the sum of a line have stronger colours.

    Parameters
    ----------
    names : sequence of str
        The headings of the lines, and of the columns.
    columns : sequence of int
        The indices of the columns to show.
    counts : sequence of sequences of int
        The counts, one sequence for each line.
    last : sequence of str
        The entries of the last column.
    heads : tuple of str
        The headings of the first and of the last column.
    caption : str
        Description of the table for screen readers.
    """

    def cell(i: int, j: int) -> str:
        share = counts[i][j] / max(sum(counts[i]), 1)
        kinds = ["number", *(["right"] if i == j else [])]
        kinds += [f"level-{1 + (share >= 0.1) + (share >= 0.5)}" if counts[i][j] else "zero"]
        return f'<td class="{" ".join(kinds)}">{counts[i][j]:,}</td>'

    def head(name: str, kind: str, scope: str = "col") -> str:
        label = escape(shortened(name, _LONG_HEAD))
        return f'<th scope="{scope}" class="{kind}" title="{escape(name)}">{label}</th>'

    top = head(heads[0], "") + "".join(head(names[j], "number") for j in columns) + head(heads[1], "number")
    body = "".join(
        f"<tr>{head(name, '', 'row')}{''.join(cell(i, j) for j in columns)}"
        f'<td class="number">{escape(last[i])}</td></tr>'
        for i, name in enumerate(names)
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}">'
        f'<table class="counts"><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'
    )
