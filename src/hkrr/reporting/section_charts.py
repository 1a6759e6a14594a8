"""Functions that draw the charts of the sections as SVG."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hkrr.reporting.baseline_comparison import Comparison
from hkrr.reporting.contour_image import band_colours, contour_png
from hkrr.reporting.link_function import Curve, Surface
from hkrr.reporting.prediction_errors import Errors
from hkrr.reporting.svg_chart import Chart, axis_range
from hkrr.reporting.training_history import SearchScores, Training

UNIT = "standard deviations from the mean row"


def value_range(surface: Surface) -> tuple[float, float]:
    """Return the smallest and the largest value of the surface near the rows."""
    values = np.array(surface.value)[np.array(surface.near) >= 0.5]
    values = values if len(values) else np.array(surface.value)
    return float(values.min()), float(values.max())


def curve_chart(found: Curve, name: str, target: str) -> str:
    """Return a chart of the function along a direction, with the rows as dots."""
    # The vertical axis is limited to about twice the range of the dots, so that the dots stay readable.
    low, high = np.percentile(found.dots_value, [1, 99])
    room = high - low if high > low else 1.0
    heights = [low, high, *np.clip(found.value, low - room / 2, high + room / 2)]
    chart = Chart(f"{target} along {name}", (found.at[0], found.at[-1]), axis_range(heights), f"{name}, {UNIT}", target)
    chart.dots(found.dots_at, found.dots_value)
    chart.line(found.at, found.value)
    return chart.svg()


def map_chart(found: Surface, names: Sequence[str], target: str) -> str:
    """Return a contour map of the function over two directions, with the rows as dots and a colour scale."""
    first, second = names
    low, high = value_range(found)
    x, y = (found.across[0], found.across[-1]), (found.along[0], found.along[-1])
    chart = Chart(f"map of {target} over {first} and {second}", x, y, f"{first}, standard deviations", second)
    chart.image(contour_png(found, low, high), x, y)
    chart.dots([dot[0] for dot in found.dots], [dot[1] for dot in found.dots], "dots over")
    chart.colour_scale(band_colours(), low, high)
    return chart.svg()


def predicted_against_actual(errors: Errors) -> str:
    """Return a scatter chart of predicted against actual values, with the line of exact predictions."""
    both = axis_range([*errors.actual, *errors.predicted])
    chart = Chart("predicted against actual", both, both, "actual", "predicted")
    chart.line(both, both, "exact")
    chart.dots(errors.actual, errors.predicted)
    return chart.svg()


def error_histogram(errors: Errors) -> str:
    """Return a histogram of the errors."""
    ends = (errors.bin_edges[0], errors.bin_edges[-1])
    heights = (0.0, 1.05 * max(errors.bin_counts))
    chart = Chart("histogram of the errors", axis_range(ends, 0.02), heights, "error", "rows")
    chart.bars(errors.bin_edges, errors.bin_counts)
    if chart.x[0] < 0 < chart.x[1]:
        chart.line((0.0, 0.0), chart.y, "exact")
    return chart.svg()


def comparison_chart(found: Comparison) -> str:
    """Return a chart of the R2 of the methods with intervals.

    The lower end of the axis is at least -0.5. If the R2 of a method is below the lower end, the dot of the method is
    omitted, and the name of the method is written at the left edge.
    """
    least = max(min(*found.low, 0.9) - 0.03, -0.5)
    n = len(found.methods)
    chart = Chart(
        "R² of the methods",
        (least, 1.0 + 0.03 * (1.0 - least)),
        (0.0, float(n)),
        "R²",
        "",
        y_ticks=False,
        height=46 + 40 * n,
    )
    for i, (name, r2, low, high) in enumerate(zip(found.methods, found.r2, found.low, found.high, strict=True)):
        at = n - i - 0.65
        chart.error_bar(low, high, r2, at, "ours" if i == 0 else "other")
        chart.note(max(r2, least), at + 0.26, name)
    return chart.svg()


def objective_chart(found: Training) -> str:
    """Return a chart of the objective over the iterations."""
    n = len(found.objective)
    chart = Chart(
        "objective over the iterations",
        (0.0, float(n - 1)),
        axis_range(found.objective),
        "iteration",
        "objective",
        x_whole=True,
    )
    chart.line(range(n), found.objective)
    return chart.svg()


def spectrum_chart(spectrum: list[float], n_kept: int) -> str:
    """Return a chart of the singular values of a map, with a line after the `n_kept` directions that were kept."""
    n = len(spectrum)
    chart = Chart("size of each direction", (0.5, n + 0.5), (0.0, 1.05), "direction", "size", x_whole=True)
    chart.bars([k + 0.5 for k in range(n + 1)], spectrum)
    chart.line((n_kept + 0.5, n_kept + 0.5), chart.y, "exact")
    return chart.svg()


def scores_by_directions(path: SearchScores) -> str:
    """Return a chart of the score of every run, with a line through the best score for each number of directions."""
    numbers = sorted(set(path.n_components))
    best = {d: min(s for k, s in zip(path.n_components, path.score, strict=True) if k == d) for d in numbers}
    chart = Chart(
        "scores by number of directions",
        (numbers[0] - 0.4, numbers[-1] + 0.4),
        axis_range(path.score),
        "directions",
        path.score_name,
        x_whole=True,
    )
    chart.dots(path.n_components, path.score)
    chart.line(numbers, [best[d] for d in numbers])
    if path.chosen in best:
        chart.ring(path.chosen, best[path.chosen])
    return chart.svg()
