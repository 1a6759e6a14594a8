"""The pictures of a benchmark: accuracy against time, ranks with their critical difference, risk against m and D."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import studentized_range

from hkrr.bench.problems import parse
from hkrr.bench.report import OURS, Results, planted, results
from hkrr.bench.runner import Row

_LEVEL = 0.05


def draw(rows: Sequence[Row], out: Path) -> list[tuple[str, str]]:
    """Draw all that the cells allow into ``out``; return the files and their captions."""
    found = results(rows)
    groups = {"planted models": planted(found)}
    groups["tables"] = [problem for problem in found.problems if problem not in groups["planted models"]]
    drawn: list[tuple[str, str]] = []

    def save(figure: Any, name: str, caption: str) -> None:
        figure.savefig(out / f"{name}.png", dpi=110)
        drawn.append((f"{name}.png", caption))

    for group, problems in groups.items():
        if problems and len(found.methods) > 1:
            some = found.some(problems)
            save(accuracy_and_time(some), f"accuracy-time-{group.split()[-1]}", f"Error against time: {group}")
            if len(problems) > 1:
                save(critical_difference(some), f"ranks-{group.split()[-1]}", f"Mean ranks: {group}")
    for axis, meaning in (("m", "training rows"), ("D", "inputs")):
        series = along(found, axis)
        if series:
            save(risk_along(found, axis, meaning, series), f"risk-{axis}", f"Error against the number of {meaning}")
    return drawn


def _colours(methods: Sequence[str]) -> dict[str, Any]:
    import matplotlib.pyplot as plt

    others = [method for method in methods if not method.startswith(OURS)]
    palette = plt.get_cmap("tab20")
    return {OURS: "black", f"{OURS}_auto": "dimgray", **{name: palette(k % 20) for k, name in enumerate(others)}}


def accuracy_and_time(found: Results) -> Any:
    """Draw the medians over the problems: 1 - R2 against seconds."""
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(9, 6), layout="constrained")
    colours = _colours(found.methods)
    for method in found.methods:
        R2, seconds = found.of("R2", method), found.of("seconds", method)
        if np.all(np.isnan(R2)):
            continue
        x, y = np.nanmedian(seconds), max(1.0 - float(np.nanmedian(R2)), 1e-4)
        ax.scatter(x, y, s=90 if method == OURS else 45, color=colours[method], marker="*" if method == OURS else "o")
        ax.annotate(method, (x, y), xytext=(5, 3), textcoords="offset points", fontsize=8)
    ax.set(xscale="log", yscale="log", xlabel="seconds of tuning, fitting and predicting (median)")
    ax.set_ylabel("1 - R2 on test rows (median)")
    ax.set_title(f"{len(found.problems)} problems: the lower left is best")
    return figure


def critical_difference(found: Results) -> Any:
    """Draw the mean ranks; bars join methods that Nemenyi's test does not tell apart at 5% (Demsar, 2006)."""
    import matplotlib.pyplot as plt

    ranks = found.ranks()
    n, k = ranks.shape
    mean = ranks.mean(axis=0)
    critical = float(studentized_range.ppf(1 - _LEVEL, k, np.inf) / np.sqrt(2)) * np.sqrt(k * (k + 1) / (6.0 * n))
    order = np.argsort(mean)
    figure, ax = plt.subplots(figsize=(9, 1.2 + 0.26 * k), layout="constrained")
    for place, j in enumerate(order):
        ax.scatter(mean[j], -place, color="black" if found.methods[j].startswith(OURS) else "tab:blue", zorder=3)
        ax.annotate(
            f"{found.methods[j]}  {mean[j]:.1f}",
            (mean[j], -place),
            xytext=(8, -3),
            textcoords="offset points",
            fontsize=8,
        )
    last = -1
    for place, j in enumerate(order):
        end = int(np.sum(mean[order] <= mean[j] + critical)) - 1
        if end > max(last, place):
            ax.plot([mean[j] - 0.15] * 2, [-place, -end], color="lightgray", lw=4, solid_capstyle="round", zorder=1)
            last = end
    ax.set(yticks=[], xlabel=f"mean rank over {n} problems", xlim=(0.5, k + 1.5))
    ax.set_title(f"Joined: not told apart at 5% (critical difference {critical:.1f})", fontsize=10)
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

    figure, axes = plt.subplots(
        1, len(series), figsize=(5.5 * len(series) + 1.5, 5), layout="constrained", squeeze=False, sharey=True
    )
    colours = _colours(found.methods)
    for ax, (name, points) in zip(axes[0], series.items(), strict=True):
        rows = [found.problems.index(problem) for _, problem in points]
        for method in found.methods:
            risk = np.clip(1.0 - found.of("R2", method)[rows], 1e-4, 2.0)
            ours = method.startswith(OURS)
            ax.plot(
                [value for value, _ in points],
                risk,
                "o-",
                color=colours[method],
                lw=2.5 if ours else 1,
                ms=3,
                label=method,
            )
        ax.set(xscale="log", yscale="log", xlabel=f"{axis}, {meaning}", title=name)
    axes[0, 0].set_ylabel("1 - R2 on test rows")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside right upper", fontsize=8)
    return figure
