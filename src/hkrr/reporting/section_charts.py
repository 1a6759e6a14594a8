"""The pictures of the page, each from the facts of one section."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hkrr.reporting.charts import Chart, spread
from hkrr.reporting.comparison import Comparison
from hkrr.reporting.contours import band_colours, contours
from hkrr.reporting.errors import Errors
from hkrr.reporting.link import Curve, Surface
from hkrr.reporting.training import Path, Training

_DEVIATIONS = "standard deviations from the mean row"


def value_range(surface: Surface) -> tuple[float, float]:
    """Return the least and the largest value where rows are near."""
    values = np.array(surface.value)[np.array(surface.near) >= 0.5]
    values = values if len(values) else np.array(surface.value)
    return float(values.min()), float(values.max())


def curve(found: Curve, name: str, target: str) -> str:
    """Return the function along a direction, with the rows."""
    # What goes far beyond the rows is cut off: the rows would be a line otherwise.
    low, high = np.percentile(found.dots_value, [1, 99])
    room = high - low if high > low else 1.0
    heights = [low, high, *np.clip(found.value, low - room / 2, high + room / 2)]
    chart = Chart(
        f"{target} along {name}", (found.at[0], found.at[-1]), spread(heights), f"{name}, {_DEVIATIONS}", target
    )
    chart.dots(found.dots_at, found.dots_value)
    chart.line(found.at, found.value)
    return chart.svg()


def flat_map(found: Surface, names: Sequence[str], target: str) -> str:
    """Return the function over two directions as a map, with the rows and the scale of its colours."""
    first, second = names
    low, high = value_range(found)
    x, y = (found.across[0], found.across[-1]), (found.along[0], found.along[-1])
    chart = Chart(f"map of {target} over {first} and {second}", x, y, f"{first}, standard deviations", second)
    chart.image(contours(found, low, high), x, y)
    chart.dots([dot[0] for dot in found.dots], [dot[1] for dot in found.dots], "dots over")
    chart.scale(band_colours(), low, high)
    return chart.svg()


def predicted_against_actual(errors: Errors) -> str:
    """Return the dots of the rows around the line on which all would lie."""
    both = spread([*errors.actual, *errors.predicted])
    chart = Chart("predicted against actual", both, both, "actual", "predicted")
    chart.line(both, both, "exact")
    chart.dots(errors.actual, errors.predicted)
    return chart.svg()


def histogram(errors: Errors) -> str:
    """Return how many rows have which error."""
    ends = (errors.bin_edges[0], errors.bin_edges[-1])
    chart = Chart("histogram of the errors", spread(ends, 0.02), (0.0, 1.05 * max(errors.bin_counts)), "error", "rows")
    chart.bars(errors.bin_edges, errors.bin_counts)
    if chart.x[0] < 0 < chart.x[1]:
        chart.line((0.0, 0.0), chart.y, "exact")
    return chart.svg()


def compared(found: Comparison) -> str:
    """Return R2 of the methods with intervals; what is far below zero stands at the edge."""
    least = max(min(*found.low, 0.9) - 0.03, -0.5)
    n = len(found.methods)
    chart = Chart(
        "R2 of the methods",
        (least, 1.0 + 0.03 * (1.0 - least)),
        (0.0, float(n)),
        "R²",
        "",
        y_ticks=False,
        height=46 + 40 * n,
    )
    for i, (name, r2, low, high) in enumerate(zip(found.methods, found.r2, found.low, found.high, strict=True)):
        at = n - i - 0.65
        chart.interval(low, high, r2, at, "ours" if i == 0 else "other")
        chart.note(max(r2, least), at + 0.26, name)
    return chart.svg()


def objective(found: Training) -> str:
    """Return the objective over the iterations."""
    n = len(found.objective)
    chart = Chart(
        "objective over the iterations",
        (0.0, float(n - 1)),
        spread(found.objective),
        "iteration",
        "objective",
        x_whole=True,
    )
    chart.line(range(n), found.objective)
    return chart.svg()


def scores_by_directions(path: Path) -> str:
    """Return every run, and the best for each number of directions."""
    numbers = sorted(set(path.n_components))
    best = {d: min(s for k, s in zip(path.n_components, path.score, strict=True) if k == d) for d in numbers}
    chart = Chart(
        "scores by number of directions",
        (numbers[0] - 0.4, numbers[-1] + 0.4),
        spread(path.score),
        "directions",
        path.score_name,
        x_whole=True,
    )
    chart.dots(path.n_components, path.score)
    chart.line(numbers, [best[d] for d in numbers])
    if path.chosen in best:
        chart.ring(path.chosen, best[path.chosen])
    return chart.svg()
