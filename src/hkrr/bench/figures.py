"""The figures of a benchmark.

The figures show the error against the time, the mean ranks with their critical difference, and the error against the
number of training rows m and the number of inputs D.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import studentized_range

from hkrr.bench.benchmark_runner import Row
from hkrr.bench.problems import parse
from hkrr.bench.ranking import CLASSES, OURS, PLANTED, TABLES, Results, groups, is_ours

# Significance level of the test for differences between mean ranks.
_LEVEL = 0.05
# Number of colours in the palette. If there are more methods, the colours are used again, with dashed lines.
_COLOURS = 20
# The end of the file names of the figures of each group of problems.
_SUFFIXES = {PLANTED: "planted", TABLES: "tables", CLASSES: "classes"}
# The options along which the error is drawn, with their meanings.
_SERIES = {"m": "training rows", "D": "inputs"}
# Names of the errors in the figures.
_ERRORS = {"R2": "RMSE / standard deviation", "log_loss": "log loss"}


def draw(rows: Sequence[Row], out: Path) -> list[tuple[str, str]]:
    """Draw all figures for which there are enough results, and return their file names and captions.

    The files are written into the folder ``out``. Figures of an earlier run in this folder are removed.
    """
    import matplotlib.pyplot as plt

    drawn: list[tuple[str, str]] = []
    for name in (
        *(f"{kind}-{s}" for s in _SUFFIXES.values() for kind in ("accuracy-time", "ranks")),
        "risk-m",
        "risk-D",
    ):
        (out / f"{name}.png").unlink(missing_ok=True)

    def save(figure: Any, name: str, caption: str) -> None:
        figure.savefig(out / f"{name}.png", dpi=110)
        plt.close(figure)
        drawn.append((f"{name}.png", caption))

    results_of = groups(rows)
    for group, results in results_of.items():
        if len(results.methods) > 1:
            save(error_and_time(results), f"accuracy-time-{_SUFFIXES[group]}", f"Error against time: {group.lower()}")
            if len(results.problems) > 1:
                save(critical_difference(results), f"ranks-{_SUFFIXES[group]}", f"Mean ranks: {group.lower()}")
    for option, meaning in _SERIES.items() if PLANTED in results_of else ():
        series = problem_series(results_of[PLANTED], option)
        if series:
            figure = error_along(results_of[PLANTED], option, meaning, series)
            save(figure, f"risk-{option}", f"Error against the number of {meaning}")
    return drawn


def _colours(methods: Sequence[str]) -> dict[str, Any]:
    import matplotlib.pyplot as plt

    ours = {OURS: "black", f"{OURS}_auto": "dimgray", f"{OURS}_ensemble": "darkgray", f"{OURS}_classifier": "black"}
    others = [method for method in methods if not is_ours(method)]
    palette = plt.get_cmap("tab20")
    return ours | {name: palette(k % _COLOURS) for k, name in enumerate(others)}


def error_and_time(results: Results) -> Any:
    """Plot the median error against the median time, with one point for each method, numbered as in the legend."""
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(9, 6), layout="constrained")
    colours = _colours(results.methods)
    points = {
        method: (np.nanmedian(results.values("seconds", method)), float(np.nanmedian(errors)))
        for method, errors in zip(results.methods, results.errors().T, strict=True)
        if not np.all(np.isnan(errors))
    }
    for number, (method, point) in enumerate(sorted(points.items(), key=lambda item: item[1][1]), start=1):
        ours = is_ours(method)
        ax.scatter(
            *point,
            s=260 if ours else 60,
            color=colours[method],
            marker="*" if ours else "o",
            label=f"{number}  {method}",
        )
        ax.annotate(str(number), point, xytext=(7, 3), textcoords="offset points", fontsize=8)
    ax.set(xscale="log", yscale="log", xlabel="seconds of tuning, fitting and predicting (median)")
    ax.set_ylabel(f"{_ERRORS[results.score]} on test rows (median)")
    ax.set_title(f"{_count(len(results.problems))}: the lower left is best")
    ax.grid(which="both", lw=0.3)
    figure.legend(loc="outside right upper", fontsize=8)
    return figure


def _count(n: int) -> str:
    return "1 problem" if n == 1 else f"{n} problems"


def critical_difference(results: Results) -> Any:
    """Plot the mean rank of each method. Bars join methods whose mean ranks do not differ significantly.

    Significance is determined by Nemenyi's test at the 5% level (Demsar, 2006).
    """
    import matplotlib.pyplot as plt

    ranks = results.ranks()
    n, k = ranks.shape
    mean = ranks.mean(axis=0)
    critical = float(studentized_range.ppf(1 - _LEVEL, k, np.inf) / np.sqrt(2)) * np.sqrt(k * (k + 1) / (6.0 * n))
    order = np.argsort(mean)
    figure, ax = plt.subplots(figsize=(9, 1.6 + 0.26 * k), layout="constrained")
    for place, j in enumerate(order):
        colour = "black" if is_ours(results.methods[j]) else "tab:blue"
        ax.plot([0.5, mean[j]], [place, place], color="gainsboro", lw=0.8, zorder=0)
        ax.scatter(mean[j], place, color=colour, zorder=3)
    # Draw the groups of methods without a significant difference as bars, to the right of the points.
    groups = [(place, int(np.sum(mean[order] <= mean[j] + critical)) - 1) for place, j in enumerate(order)]
    bars = [(a, b) for i, (a, b) in enumerate(groups) if b > a and (i == 0 or b > groups[i - 1][1])]
    for i, (start, end) in enumerate(bars):
        x = k + 0.8 + 0.35 * i
        ax.plot([x, x], [start - 0.2, end + 0.2], color="gray", lw=3, solid_capstyle="round")
    ax.set_yticks(range(k), [f"{results.methods[j]}  {mean[j]:.1f}" for j in order], fontsize=8)
    ax.set(xlabel=f"mean rank over {_count(n)}", xlim=(0.5, k + 1.2 + 0.35 * len(bars)), ylim=(k - 0.4, -0.6))
    ax.set_title(
        f"Bars join methods without a significant difference at 5% (critical difference {critical:.1f})", fontsize=10
    )
    return figure


def problem_series(results: Results, option: str) -> dict[str, list[tuple[int, str]]]:
    """Return each series of at least three problems that differ only in the given option.

    The keys of the dict are the common parts of the problem names. The values are lists of pairs (value of the option,
    problem), sorted by the value of the option.
    """
    series: dict[str, list[tuple[int, str]]] = {}
    for problem in results.problems:
        source, options = parse(problem)
        value = options.pop(option, None)
        if value is not None and value.isdigit():
            rest = ", ".join((source, *(f"{key}={text}" for key, text in options.items())))
            series.setdefault(rest, []).append((int(value), problem))
    return {name: sorted(points) for name, points in series.items() if len(points) >= 3}


def error_along(results: Results, option: str, meaning: str, series: dict[str, list[tuple[int, str]]]) -> Any:
    """Plot the error of every method against the given option ("m" or "D"), with one panel for each series.

    `meaning` describes the option in the axis label. `series` is the result of `problem_series`.
    """
    import matplotlib.pyplot as plt

    # Height of the figure in inches. The legend has one line for each method.
    height = max(5.0, 0.6 + 0.19 * len(results.methods))
    figure, axes = plt.subplots(
        1, len(series), figsize=(5.5 * len(series) + 1.5, height), layout="constrained", squeeze=False, sharey=True
    )
    colours = _colours(results.methods)
    for ax, (name, points) in zip(axes[0], series.items(), strict=True):
        rows = [results.problems.index(problem) for _, problem in points]
        for k, method in enumerate(results.methods):
            risk = np.minimum(results.errors()[rows, k], 1.5)
            ours = is_ours(method)
            ax.plot(
                [value for value, _ in points],
                risk,
                "o-" if k < _COLOURS else "s--",
                color=colours[method],
                lw=2.5 if ours else 1,
                ms=3,
                label=method,
            )
        ax.set(xscale="log", yscale="log", xlabel=f"{option}, {meaning}", title=name)
        ax.set_xticks([value for value, _ in points], [str(value) for value, _ in points])
        ax.minorticks_off()
    axes[0, 0].set_ylabel(f"{_ERRORS[results.score]} on test rows")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside right upper", fontsize=8)
    return figure
