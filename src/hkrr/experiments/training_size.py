"""Test R2 against the number of training rows, for three values of d, the number of directions (figure 2, bottom)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hkrr.experiments.experiment_runner import Case, Claim, Table, quick_config
from hkrr.experiments.figures import COLOURS, panels
from hkrr.experiments.paper_setting import METHODS, Figure2Config
from hkrr.experiments.result_store import column


@dataclass(frozen=True)
class Config(Figure2Config):
    """The setting of figure 2 (bottom) in the paper, for data set 1."""

    sizes: tuple[int, ...] = (1000, 4000, 8000, 12000, 16000)
    dimensions: tuple[int, ...] = (3, 20, 50)
    n_centers: int = 25
    reg_lambda: float = 1e-8
    seconds: float = 80.0
    repeats: int = 10

    quick = quick_config(
        sizes=(100, 300),
        dimensions=(2, 4, 10),
        n_validation=100,
        n_test=300,
        n_features=10,
        n_components=2,
        seconds=0.25,
        repeats=1,
    )


def cases(config: Config) -> list[Case]:
    """Return one case (a run) for each number of rows, number of directions, repeat and method."""
    return [
        {"m": m, "d": d, "repeat": repeat, "method": method}
        for repeat in range(config.repeats)
        for m in config.sizes
        for d in config.dimensions
        for method in METHODS
    ]


def run_case(config: Config, case: Case) -> Table:
    """Return one row with the scores of one run."""
    return [{**case, **config.scores(1, case["m"], case)}]


def _median(table: Table, **where: Any) -> float:
    return float(np.median(column(table, "R2", **where)))


def claims(table: Table) -> list[Claim]:
    """Check the two claims about the effect of d at a fixed time budget. They use the larger half of the sizes m."""
    dimensions, sizes = (sorted(set(column(table, name))) for name in ("d", "m"))
    if len(dimensions) < 3:
        tried = ", ".join(map(str, dimensions))
        number = f"three values of d are needed, but only d = {tried} was tried"
        return [Claim("the effect of d at a fixed time budget", None, number)]
    few, middle, every = dimensions[0], dimensions[len(dimensions) // 2], dimensions[-1]
    large = sizes[len(sizes) // 2 :]
    finished = {(row["method"], row["m"], row["d"]) for row in table}
    pairs = [(method, m) for method in ("VarPro", "AGD") for m in large]
    keys = [pair for pair in pairs if all((*pair, d) in finished for d in dimensions)]
    at = {(method, m, d): _median(table, method=method, m=m, d=d) for method, m in keys for d in dimensions}
    number = "; ".join(
        f"{method}, m = {m}: " + ", ".join(f"{at[method, m, d]:.3f} (d = {d})" for d in dimensions)
        for method, m in keys
    )
    worse = all(at[method, m, every] < at[method, m, middle] for method, m in keys)
    better = all(at[method, m, middle] > at[method, m, few] for method, m in keys)
    return [
        Claim(
            f"at a fixed time budget, d = {every} is worse than d = {middle} for large m (medians)",
            worse if keys else None,
            number,
        ),
        Claim(f"for large m, d = {middle} is better than d = {few} (medians)", better if keys else None, number),
    ]


def plot(table: Table) -> Any:
    """Plot R2 against m, with one panel for each number of directions. Lines are medians, and points are runs."""
    dimensions, sizes = (sorted(set(column(table, name))) for name in ("d", "m"))
    figure, axes = panels(len(dimensions), (4.4 * len(dimensions), 4), sharey=True)
    for ax, d in zip(axes, dimensions, strict=True):
        for method in METHODS:
            where = {"d": d, "method": method}
            ax.plot(column(table, "m", **where), column(table, "R2", **where), ".", color=COLOURS[method], alpha=0.4)
            there = [m for m in sizes if column(table, "R2", m=m, **where)]
            ax.plot(there, [_median(table, m=m, **where) for m in there], "-", color=COLOURS[method], label=method)
        ax.set(title=f"d = {d}", xlabel="training rows", ylim=(max(-1.0, min(column(table, "R2"))), 1.02))
    axes[0].set_ylabel("test R2")
    axes[0].legend(frameon=False)
    return figure
