"""Charts as SVG: colours by class, so that the style sheet decides them, light, dark and printed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

import numpy as np

from hkrr.reporting.words import number, shortened

_WIDTH = 360  # about the width of a phone: letters keep their size there
_LEFT, _RIGHT, _BOTTOM = 54, 10, 40
_LETTER = 6.6  # the width of a digit, about
_LONGEST_LABEL = 7  # characters to the left of an axis, where thousands can be left out

Range = tuple[float, float]


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Return at most so many round numbers between two ends.

    Examples
    --------
    >>> ticks(0.0, 9.7)
    [0.0, 2.0, 4.0, 6.0, 8.0]
    """
    rough = (high - low) / most
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= rough * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    return [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]


def tick_labels(values: Sequence[float]) -> list[str]:
    """Return the numbers with as many digits as tell them apart.

    Examples
    --------
    >>> tick_labels([-1.9725, -1.97, -1.9675])
    ['−1.9725', '−1.97', '−1.9675']
    """
    for digits in range(2, 12):
        labels = [number(value, digits) for value in values]
        exact = all(
            abs(float(f"{value:.{digits}g}") - value) <= 1e-3 * abs(values[1] - values[0]) for value in values[1:]
        )
        if exact and len(set(labels)) == len(labels):
            break
    return [_compact(label) for label in labels] if values else []


def _compact(label: str) -> str:
    """Return a label without its thousands where it is long: 2,500,000 is 2.5M."""
    for zeros, letter in ((6, "M"), (3, "k")):
        whole = label.replace(",", "")
        if len(label) > _LONGEST_LABEL and "." not in whole and whole.lstrip("−").isdigit():
            return f"{number(float(whole.replace('−', '-')) / 10**zeros, 6)}{letter}"
    return label


def spread(values: Sequence[float], room: float = 0.05) -> Range:
    """Return the ends of an axis that holds the values; of one value alone, an axis around it."""
    low, high = float(np.min(values)), float(np.max(values))
    room = room * (high - low) if high - low > 1e-12 * max(abs(low), abs(high)) else max(1.0, 0.1 * abs(low))
    return low - room, high + room


class Chart:
    """Two axes, and what is drawn between them."""

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
        height: int = 250,
    ) -> None:
        self.x, self.y = x, y
        self._label, self._height, self._top = label, height, 24 if y_name else 4
        self._parts: list[str] = []
        heights = ticks(*y) if y_ticks else []
        labels = tick_labels(heights)
        self._left = max([_LEFT, *(round(8 + _LETTER * len(text)) for text in labels)])
        right, bottom = _WIDTH - _RIGHT, height - _BOTTOM
        for value, text in zip(heights, labels, strict=True):
            at = self.down(value)
            self._add(f'<line class="grid" x1="{self._left}" x2="{right}" y1="{at}" y2="{at}"/>')
            self._text(self._left - 6, at + 4, text, "tick end")
        for value, text in self._across(x_whole):
            half = _LETTER * len(text) / 2
            self._text(min(self.right(value), _WIDTH - half), bottom + 16, text, "tick middle")
        self._add(f'<line class="axis" x1="{self._left}" x2="{right}" y1="{bottom}" y2="{bottom}"/>')
        self._text((self._left + right) / 2, height - 6, shortened(x_name, 52), "name middle")
        self._text(4, 13, shortened(y_name, 52), "name")

    def _across(self, whole: bool) -> list[tuple[float, str]]:
        """Return the places of the axis across and their labels: as many as have room beside each other."""
        for most in (5, 3, 2):
            places = [value for value in ticks(*self.x, most) if not whole or value == round(value)]
            labels = tick_labels(places)
            if _LETTER * sum(len(text) + 2 for text in labels) <= _WIDTH - self._left:
                break
        return list(zip(places, labels, strict=True))

    def right(self, value: float) -> float:
        """Return the place of a value on the axis across."""
        return round(self._left + (value - self.x[0]) / (self.x[1] - self.x[0]) * (_WIDTH - self._left - _RIGHT), 1)

    def down(self, value: float) -> float:
        """Return the place of a value on the axis up."""
        return round(
            self._height
            - _BOTTOM
            - (value - self.y[0]) / (self.y[1] - self.y[0]) * (self._height - self._top - _BOTTOM),
            1,
        )

    def dots(self, x: Sequence[float], y: Sequence[float], kind: str = "dots") -> None:
        """Draw dots, those within the axes, as one path: of hundreds, a circle each would be long."""
        inside = [
            (a, b) for a, b in zip(x, y, strict=True) if self.x[0] <= a <= self.x[1] and self.y[0] <= b <= self.y[1]
        ]
        self._add(f'<path class="{kind}" d="{"".join(f"M{self.right(a)} {self.down(b)}h0" for a, b in inside)}"/>')

    def line(self, x: Sequence[float], y: Sequence[float], kind: str = "line") -> None:
        """Draw a line through points."""
        path = "L".join(f"{self.right(a)} {self.down(b)}" for a, b in zip(x, y, strict=True))
        # An svg within cuts off what goes beyond the axes.
        width, height = _WIDTH - self._left - _RIGHT, self._height - self._top - _BOTTOM
        box = f'x="{self._left}" y="{self._top}" width="{width}" height="{height}"'
        view = f'viewBox="{self._left} {self._top} {width} {height}"'
        self._add(f'<svg {box} {view}><path class="{kind}" d="M{path}"/></svg>')

    def bars(self, edges: Sequence[float], heights: Sequence[float]) -> None:
        """Draw a histogram."""
        for low, high, height in zip(edges[:-1], edges[1:], heights, strict=True):
            left, top = self.right(low), self.down(height)
            width = max(self.right(high) - left - 1.0, 0.5)
            self._add(f'<rect class="bar" x="{left}" y="{top}" width="{width:.1f}" height="{self.down(0) - top:.1f}"/>')

    def interval(self, low: float, high: float, value: float, at: float, kind: str) -> None:
        """Draw a dot with its interval across, at a height."""
        y = self.down(at)
        ends = [min(max(end, self.x[0]), self.x[1]) for end in (low, high)]
        self._add(
            f'<line class="whisker {kind}" x1="{self.right(ends[0])}" x2="{self.right(ends[1])}" y1="{y}" y2="{y}"/>'
        )
        if self.x[0] <= value <= self.x[1]:
            self._add(f'<circle class="{kind}" cx="{self.right(value)}" cy="{y}" r="5"/>')

    def image(self, png: str, x: Range, y: Range) -> None:
        """Draw a picture over a part of the plane."""
        left, top = self.right(x[0]), self.down(y[1])
        width, height = self.right(x[1]) - left, self.down(y[0]) - top
        self._add(
            f'<image href="data:image/png;base64,{png}" x="{left}" y="{top}" width="{width:.1f}" '
            f'height="{height:.1f}" preserveAspectRatio="none"/>',
        )

    def note(self, x: float, y: float, text: str) -> None:
        """Write a text around a point, within the axes."""
        half = 3.2 * len(text)
        self._text(
            min(max(self.right(x), self._left + half), _WIDTH - _RIGHT - half), self.down(y), text, "tick middle"
        )

    def ring(self, x: float, y: float) -> None:
        """Draw a ring around a point."""
        self._add(f'<circle class="ring" cx="{self.right(x)}" cy="{self.down(y)}" r="7"/>')

    def scale(self, colours: Sequence[tuple[int, int, int]], low: float, high: float) -> None:
        """Draw a scale of colours above the plane, with its ends."""
        width, right = 7, _WIDTH - _RIGHT - 44
        left = right - width * len(colours)
        for i, (r, g, b) in enumerate(colours):
            self._add(f'<rect x="{left + i * width}" y="5" width="{width}" height="9" fill="rgb({r},{g},{b})"/>')
        self._text(left - 4, 13, number(low), "tick end")
        self._text(right + 4, 13, number(high), "tick")

    def svg(self) -> str:
        """Return the chart."""
        return (
            f'<svg class="chart" viewBox="0 0 {_WIDTH} {self._height}" role="img" aria-label="{escape(self._label)}">'
            f"{''.join(self._parts)}</svg>"
        )

    def _text(self, x: float, y: float, text: str, kind: str) -> None:
        self._add(f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>')

    def _add(self, part: str) -> None:
        self._parts.append(part)
