"""The pictures of a benchmark: accuracy against time, ranks with their critical difference, risk against m and D."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import studentized_range

from hkrr.bench.problems import parse
from hkrr.bench.results import OURS, Results, results
from hkrr.bench.runner import Row

_LEVEL = 0.05
_COLOURS = 20  # of the palette: from there on they come again, with dashed lines
_FILES = (
    "accuracy-time-planted.png",
    "accuracy-time-tables.png",
    "ranks-planted.png",
    "ranks-tables.png",
    "risk-m.png",
    "risk-D.png",
)


def draw(rows: Sequence[Row], out: Path) -> list[tuple[str, str]]:
    """Draw all that the cells allow into ``out``; return the files and their captions. Earlier ones are removed."""
    import matplotlib.pyplot as plt

    found = results(rows)
    groups = {"planted models": found.planted()}
    groups["tables"] = [problem for problem in found.problems if problem not in groups["planted models"]]
    for name in _FILES:
        (out / name).unlink(missing_ok=True)
    drawn: list[tuple[str, str]] = []

    def save(figure: Any, name: str, caption: str) -> None:
        figure.savefig(out / name, dpi=110)
        plt.close(figure)
        drawn.append((name, caption))

    for (group, problems), time, ranks in zip(groups.items(), _FILES[:2], _FILES[2:4], strict=True):
        if problems and len(found.methods) > 1:
            some = found.some(problems)
            save(accuracy_and_time(some), time, f"Error against time: {group}")
            if len(problems) > 1:
                save(critical_difference(some), ranks, f"Mean ranks: {group}")
    for axis, meaning, name in (("m", "training rows", _FILES[4]), ("D", "inputs", _FILES[5])):
        series = along(found, axis)
        if series:
            save(risk_along(found, axis, meaning, series), name, f"Error against the number of {meaning}")
    return drawn


def _colours(methods: Sequence[str]) -> dict[str, Any]:
    import matplotlib.pyplot as plt

    others = [method for method in methods if not method.startswith(OURS)]
    palette = plt.get_cmap("tab20")
    return {OURS: "black", f"{OURS}_auto": "dimgray", **{name: palette(k % _COLOURS) for k, name in enumerate(others)}}


def accuracy_and_time(found: Results) -> Any:
    """Draw the medians over the problems: 1 - R2 against seconds, each point with its number in the list beside it."""
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(9, 6), layout="constrained")
    colours = _colours(found.methods)
    points = {
        method: (np.nanmedian(found.of("seconds", method)), max(1.0 - float(np.nanmedian(R2)), 1e-4))
        for method in found.methods
        if not np.all(np.isnan(R2 := found.of("R2", method)))
    }
    for number, (method, point) in enumerate(sorted(points.items(), key=lambda item: item[1][1]), start=1):
        ours = method == OURS
        ax.scatter(
            *point,
            s=260 if ours else 60,
            color=colours[method],
            marker="*" if ours else "o",
            label=f"{number}  {method}",
        )
        ax.annotate(str(number), point, xytext=(7, 3), textcoords="offset points", fontsize=8)
    ax.set(xscale="log", yscale="log", xlabel="seconds of tuning, fitting and predicting (median)")
    ax.set_ylabel("1 - R2 on test rows (median)")
    ax.set_title(f"{_count(len(found.problems))}: the lower left is best")
    ax.grid(which="both", lw=0.3)
    figure.legend(loc="outside right upper", fontsize=8)
    return figure


def _count(n: int) -> str:
    return "1 problem" if n == 1 else f"{n} problems"


def critical_difference(found: Results) -> Any:
    """Draw the mean ranks; bars join methods that Nemenyi's test does not tell apart at 5% (Demsar, 2006)."""
    import matplotlib.pyplot as plt

    ranks = found.ranks()
    n, k = ranks.shape
    mean = ranks.mean(axis=0)
    critical = float(studentized_range.ppf(1 - _LEVEL, k, np.inf) / np.sqrt(2)) * np.sqrt(k * (k + 1) / (6.0 * n))
    order = np.argsort(mean)
    figure, ax = plt.subplots(figsize=(9, 1.6 + 0.26 * k), layout="constrained")
    for place, j in enumerate(order):
        colour = "black" if found.methods[j].startswith(OURS) else "tab:blue"
        ax.plot([0.5, mean[j]], [place, place], color="gainsboro", lw=0.8, zorder=0)
        ax.scatter(mean[j], place, color=colour, zorder=3)
    # Groups that are not told apart, each beside the last one, to the right of the points.
    groups = [(place, int(np.sum(mean[order] <= mean[j] + critical)) - 1) for place, j in enumerate(order)]
    bars = [(a, b) for i, (a, b) in enumerate(groups) if b > a and (i == 0 or b > groups[i - 1][1])]
    for i, (start, end) in enumerate(bars):
        x = k + 0.8 + 0.35 * i
        ax.plot([x, x], [start - 0.2, end + 0.2], color="gray", lw=3, solid_capstyle="round")
    ax.set_yticks(range(k), [f"{found.methods[j]}  {mean[j]:.1f}" for j in order], fontsize=8)
    ax.set(xlabel=f"mean rank over {_count(n)}", xlim=(0.5, k + 1.2 + 0.35 * len(bars)), ylim=(k - 0.4, -0.6))
    ax.set_title(
        f"Bars at the right join methods not told apart at 5% (critical difference {critical:.1f})", fontsize=10
    )
    return figure


def along(found: Results, axis: str) -> dict[str, list[tuple[int, str]]]:
    """Return the problems that differ in one option alone, in its order, where there are three or more."""
    series: dict[str, list[tuple[int, str]]] = {}
    for problem in found.problems:
        source, options = parse(problem)
        value = options.pop(axis, None)
        if value is not None and value.isdigit():
            rest = ", ".join((source, *(f"{key}={text}" for key, text in options.items())))
            series.setdefault(rest, []).append((int(value), problem))
    return {name: sorted(points) for name, points in series.items() if len(points) >= 3}


def risk_along(found: Results, axis: str, meaning: str, series: dict[str, list[tuple[int, str]]]) -> Any:
    """Draw 1 - R2 of every method against m or D, a panel for each series."""
    import matplotlib.pyplot as plt

    height = max(5.0, 0.6 + 0.19 * len(found.methods))  # the legend has a line for each
    figure, axes = plt.subplots(
        1, len(series), figsize=(5.5 * len(series) + 1.5, height), layout="constrained", squeeze=False, sharey=True
    )
    colours = _colours(found.methods)
    for ax, (name, points) in zip(axes[0], series.items(), strict=True):
        rows = [found.problems.index(problem) for _, problem in points]
        for k, method in enumerate(found.methods):
            risk = np.clip(1.0 - found.of("R2", method)[rows], 1e-4, 2.0)
            ours = method.startswith(OURS)
            ax.plot(
                [value for value, _ in points],
                risk,
                "o-" if k < _COLOURS else "s--",
                color=colours[method],
                lw=2.5 if ours else 1,
                ms=3,
                label=method,
            )
        ax.set(xscale="log", yscale="log", xlabel=f"{axis}, {meaning}", title=name)
        ax.set_xticks([value for value, _ in points], [str(value) for value, _ in points])
        ax.minorticks_off()
    axes[0, 0].set_ylabel("1 - R2 on test rows")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside right upper", fontsize=8)
    return figure
