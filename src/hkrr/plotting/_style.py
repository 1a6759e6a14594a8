"""The common style of the plots: colours, axes, legends, notes and short names."""

from __future__ import annotations

import textwrap
from typing import Any

from hkrr._base.checks import check_installed
from hkrr._base.error_text import truncated

# Six colours of Okabe and Ito's palette, which is safe for colour-blind readers. Black is left out, because it is
# invisible on a dark background.
BLUE, ORANGE, GREEN, PINK, SKY, VERMILION = "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00"
GREY = "#999999"
CATEGORIES = (BLUE, ORANGE, GREEN, PINK, SKY, VERMILION)
# Names of Matplotlib colour maps.
SEQUENTIAL, DIVERGING = "viridis", "PuOr"
# Default width and height of a figure in inches. The figure fits into one column of a two-column page.
SIZE = (4.6, 3.5)
# Font size of notes, ticks and legends, in points.
SMALL = 8
# Maximum number of characters in a line of a note.
_NOTE_WIDTH = 70
# Maximum number of characters of a column or class name. Longer names are truncated.
_LONGEST_NAME = 18


def axes(ax: Any, size: tuple[float, float] = SIZE, projection: str | None = None) -> Any:
    """Return the given axes, or the axes of a new figure of the given size if `ax` is None."""
    check_installed("matplotlib", "plot", "plots")
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=size, layout="constrained", subplot_kw={"projection": projection})[1]


def ink() -> Any:
    """Return the text colour of the current Matplotlib style."""
    import matplotlib as mpl

    return mpl.rcParams["text.color"]


def note(ax: Any, text: str) -> None:
    """Write small text above the axes."""
    ax.set_title(textwrap.fill(text, _NOTE_WIDTH), fontsize=SMALL, loc="left")


def legend(ax: Any, **options: Any) -> None:
    """Add a small, translucent legend."""
    ax.legend(fontsize=SMALL, framealpha=0.8, **options)


def short(name: str) -> str:
    """Return the name, truncated to the length that fits on an axis."""
    return truncated(name, _LONGEST_NAME, "…")
