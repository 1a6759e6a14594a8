"""SVG charts. The style sheet of the page sets their colours for light, dark and printed pages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

import numpy as np

from hkrr.reporting.text_formatting import number, shortened

# Width of a chart. All lengths are in SVG units. The width is about the width of a phone screen in pixels, so that
# phones show the text at its normal size.
_WIDTH = 360
# Margins between the axes and the edges of the chart.
_LEFT, _RIGHT, _BOTTOM = 54, 10, 40
# Approximate width of a digit.
_LETTER = 6.6
# Maximum number of characters of a tick label. Longer whole numbers are written with "k" or "M".
_LONGEST_LABEL = 7

Range = tuple[float, float]


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Return at most ``most + 1`` evenly spaced round numbers between `low` and `high`."""
    rough = (high - low) / most
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= rough * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    return [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]


def tick_labels(values: Sequence[float]) -> list[str]:
    """Return the numbers as strings, with as many digits as are needed to distinguish them."""
    for digits in range(2, 12):
        labels = [number(value, digits) for value in values]
        exact = all(
            abs(float(f"{value:.{digits}g}") - value) <= 1e-3 * abs(values[1] - values[0]) for value in values[1:]
        )
        if exact and len(set(labels)) == len(labels):
            break
    return [_compact(label) for label in labels] if values else []


def _compact(label: str) -> str:
    """Return a long label in thousands or millions: "2,500,000" becomes "2.5M"."""
    for zeros, letter in ((6, "M"), (3, "k")):
        whole = label.replace(",", "")
        if len(label) > _LONGEST_LABEL and "." not in whole and whole.lstrip("−").isdigit():
            return f"{number(float(whole.replace('−', '-')) / 10**zeros, 6)}{letter}"
    return label


def axis_range(values: Sequence[float], margin: float = 0.05) -> Range:
    """Return an axis range that contains the values. The margin on each side is `margin` times their range."""
    low, high = float(np.min(values)), float(np.max(values))
    all_equal = high - low <= 1e-12 * max(abs(low), abs(high))
    room = max(1.0, 0.1 * abs(low)) if all_equal else margin * (high - low)
    return low - room, high + room


class Chart:
    """A chart with two axes. Its methods draw into the chart, and `svg` returns the chart as an SVG element.

    `x` and `y` are the ranges of the axes, and the parameters `kind` of the methods are CSS classes. `label` describes
    the chart to screen readers. If `x_whole` is True, the horizontal axis has ticks at whole numbers only. The vertical
    axis has no ticks below `least_y`.
    """

    def __init__(
        self,
        label: str,
        x: Range,
        y: Range,
        x_name: str,
        y_name: str,
        *,
        x_whole: bool = False,
        y_ticks: bool = True,
        least_y: float = -math.inf,
        height: int = 250,
    ) -> None:
        self.x, self.y = x, y
        self._label, self._height, self._top = label, height, 24 if y_name else 4
        self._parts: list[str] = []
        heights = [value for value in ticks(*y) if value >= least_y] if y_ticks else []
        labels = tick_labels(heights)
        self._left = max([_LEFT, *(round(8 + _LETTER * len(text)) for text in labels)])
        right, bottom = _WIDTH - _RIGHT, height - _BOTTOM
        for value, text in zip(heights, labels, strict=True):
            at = self.to_y(value)
            self._add(f'<line class="grid" x1="{self._left}" x2="{right}" y1="{at}" y2="{at}"/>')
            self._text(self._left - 6, at + 4, text, "tick end")
        for value, text in self._x_ticks(x_whole):
            half = _LETTER * len(text) / 2
            self._text(min(self.to_x(value), _WIDTH - half), bottom + 16, text, "tick middle")
        self._add(f'<line class="axis" x1="{self._left}" x2="{right}" y1="{bottom}" y2="{bottom}"/>')
        self._text((self._left + right) / 2, height - 6, shortened(x_name, 52), "name middle")
        self._text(4, 13, shortened(y_name, 52), "name")

    def _x_ticks(self, whole: bool) -> list[tuple[float, str]]:
        """Return the ticks of the horizontal axis and their labels. There are as many ticks as fit side by side."""
        for most in (5, 3, 2):
            values = [value for value in ticks(*self.x, most) if not whole or value == round(value)]
            labels = tick_labels(values)
            if _LETTER * sum(len(text) + 2 for text in labels) <= _WIDTH - self._left:
                break
        return list(zip(values, labels, strict=True))

    def to_x(self, value: float) -> float:
        """Return the horizontal coordinate of a value in the SVG."""
        return round(self._left + (value - self.x[0]) / (self.x[1] - self.x[0]) * (_WIDTH - self._left - _RIGHT), 1)

    def to_y(self, value: float) -> float:
        """Return the vertical coordinate of a value in the SVG."""
        return round(
            self._height
            - _BOTTOM
            - (value - self.y[0]) / (self.y[1] - self.y[0]) * (self._height - self._top - _BOTTOM),
            1,
        )

    def dots(self, x: Sequence[float], y: Sequence[float], kind: str = "dots") -> None:
        """Draw the dots that lie within the axes.

        The dots are a single path, which takes less space in the file than one circle per dot.
        """
        inside = [
            (a, b) for a, b in zip(x, y, strict=True) if self.x[0] <= a <= self.x[1] and self.y[0] <= b <= self.y[1]
        ]
        self._add(f'<path class="{kind}" d="{"".join(f"M{self.to_x(a)} {self.to_y(b)}h0" for a, b in inside)}"/>')

    def line(self, x: Sequence[float], y: Sequence[float], kind: str = "line") -> None:
        """Draw a line through points, clipped to the axes."""
        path = "L".join(f"{self.to_x(a)} {self.to_y(b)}" for a, b in zip(x, y, strict=True))
        # A nested svg element clips the line to the axes.
        width, height = _WIDTH - self._left - _RIGHT, self._height - self._top - _BOTTOM
        box = f'x="{self._left}" y="{self._top}" width="{width}" height="{height}"'
        view = f'viewBox="{self._left} {self._top} {width} {height}"'
        self._add(f'<svg {box} {view}><path class="{kind}" d="M{path}"/></svg>')

    def bars(self, edges: Sequence[float], heights: Sequence[float]) -> None:
        """Draw a histogram."""
        for low, high, height in zip(edges[:-1], edges[1:], heights, strict=True):
            left, top = self.to_x(low), self.to_y(height)
            width = max(self.to_x(high) - left - 1.0, 0.5)
            self._add(f'<rect class="bar" x="{left}" y="{top}" width="{width:.1f}" height="{self.to_y(0) - top:.1f}"/>')

    def error_bar(self, low: float, high: float, x: float, y: float, kind: str) -> None:
        """Draw a dot with a horizontal error bar from `low` to `high`."""
        height = self.to_y(y)
        ends = [min(max(end, self.x[0]), self.x[1]) for end in (low, high)]
        self._add(
            f'<line class="whisker {kind}" x1="{self.to_x(ends[0])}" x2="{self.to_x(ends[1])}" '
            f'y1="{height}" y2="{height}"/>'
        )
        if self.x[0] <= x <= self.x[1]:
            self._add(f'<circle class="{kind}" cx="{self.to_x(x)}" cy="{height}" r="5"/>')

    def image(self, png: str, x: Range, y: Range) -> None:
        """Draw a base64-encoded PNG image over the given ranges."""
        left, top = self.to_x(x[0]), self.to_y(y[1])
        width, height = self.to_x(x[1]) - left, self.to_y(y[0]) - top
        self._add(
            f'<image href="data:image/png;base64,{png}" x="{left}" y="{top}" width="{width:.1f}" '
            f'height="{height:.1f}" preserveAspectRatio="none"/>',
        )

    def note(self, x: float, y: float, text: str) -> None:
        """Write text centered at a point, shifted to stay within the axes."""
        half = 3.2 * len(text)
        self._text(
            min(max(self.to_x(x), self._left + half), _WIDTH - _RIGHT - half),
            self.to_y(y),
            text,
            "tick middle",
        )

    def ring(self, x: float, y: float) -> None:
        """Draw a ring around a point."""
        self._add(f'<circle class="ring" cx="{self.to_x(x)}" cy="{self.to_y(y)}" r="7"/>')

    def colour_scale(self, colours: Sequence[tuple[int, int, int]], low: float, high: float) -> None:
        """Draw a colour scale above the axes, with the values at its ends."""
        width, right = 7, _WIDTH - _RIGHT - 44
        left = right - width * len(colours)
        for i, (r, g, b) in enumerate(colours):
            self._add(f'<rect x="{left + i * width}" y="5" width="{width}" height="9" fill="rgb({r},{g},{b})"/>')
        self._text(left - 4, 13, number(low), "tick end")
        self._text(right + 4, 13, number(high), "tick")

    def svg(self) -> str:
        """Return the chart as an SVG element."""
        return (
            f'<svg class="chart" viewBox="0 0 {_WIDTH} {self._height}" role="img" aria-label="{escape(self._label)}">'
            f"{''.join(self._parts)}</svg>"
        )

    def _text(self, x: float, y: float, text: str, kind: str) -> None:
        self._add(f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>')

    def _add(self, part: str) -> None:
        self._parts.append(part)
