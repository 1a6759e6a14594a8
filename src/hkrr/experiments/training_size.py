"""Test R2 against the number of training rows, for three numbers of directions (figure 2, bottom)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hkrr.experiments.base import COLOURS, Case, Claim, Table, run_all
from hkrr.experiments.paper import METHODS, Grid, draw, scored, seeds


@dataclass(frozen=True)
class Config:
    """The paper's setting, data set 1."""

    sizes: tuple[int, ...] = (1000, 4000, 8000, 12000, 16000)
    dimensions: tuple[int, ...] = (3, 20, 50)
    n_validation: int = 600
    n_test: int = 4800
    n_features: int = 50
    n_components: int = 3
    n_centers: int = 25
    reg_lambda: float = 1e-8
    seconds: float = 80.0
    repeats: int = 10
    lambdas: tuple[float, ...] = (1e-3, 1e-4, 1e-5, 1e-6)
    scales: tuple[float, ...] = (0.3, 1.0, 3.0)
    seed: int = 0

    @classmethod
    def quick(cls, seed: int = 0) -> Config:
        """Return what takes seconds."""
        return cls(
            sizes=(100, 300),
            dimensions=(2, 4, 10),
            n_validation=100,
            n_test=300,
            n_features=10,
            n_components=2,
            seconds=0.25,
            repeats=1,
            lambdas=(1e-2, 1e-4),
            scales=(1.0,),
            seed=seed,
        )


def cases(config: Config) -> list[Case]:
    """Return each size, number of directions, run and method."""
    return [
        {"m": m, "d": d, "repeat": repeat, "method": method}
        for repeat in range(config.repeats)
        for m in config.sizes
        for d in config.dimensions
        for method in METHODS
    ]


def run_case(config: Config, case: Case) -> Table:
    """Return the score of one run."""
    seed = seeds(config.seed, case["repeat"])
    sizes = case["m"], config.n_validation, config.n_test, config.n_features, config.n_components
    split, grid = draw(1, *sizes, seed.data), Grid(config.lambdas, config.scales)
    budget = config.n_centers, config.reg_lambda, config.seconds
    return [{**case, **scored(split, case["method"], case["d"], *budget, seed.model, grid)}]


def run(config: Config) -> Table:
    """Return all the scores."""
    return run_all(config, cases(config), run_case)


def _median(table: Table, **where: Any) -> float:
    return float(np.median([row["R2"] for row in table if all(row[name] == value for name, value in where.items())]))


def claims(table: Table) -> list[Claim]:
    """Return the two claims about many directions at a fixed budget, at the largest size, for both algorithms."""
    m, dimensions = max(row["m"] for row in table), sorted({row["d"] for row in table})
    few, middle, all_of_them = dimensions
    at = {method: {d: _median(table, m=m, d=d, method=method) for d in dimensions} for method in ("VarPro", "AGD")}
    number = "; ".join(
        f"{method}: " + ", ".join(f"d = {d}: {value:.3f}" for d, value in scores.items())
        for method, scores in at.items()
    )
    return [
        Claim(
            f"at a fixed budget d = {all_of_them} is worse than d = {middle} for large m (m = {m})",
            all(scores[all_of_them] < scores[middle] for scores in at.values()),
            number,
        ),
        Claim(
            f"for large m, d = {middle} is better than d = {few} (m = {m})",
            all(scores[middle] > scores[few] for scores in at.values()),
            number,
        ),
    ]


def plot(table: Table) -> Any:
    """Draw the median and every run against m, a panel a number of directions."""
    import matplotlib.pyplot as plt

    dimensions, sizes = (sorted({row[name] for row in table}) for name in ("d", "m"))
    figure, axes = plt.subplots(1, len(dimensions), figsize=(13, 4), layout="constrained", sharey=True)
    for ax, d in zip(axes, dimensions, strict=True):
        for method in METHODS:
            rows = [row for row in table if row["d"] == d and row["method"] == method]
            ax.plot([row["m"] for row in rows], [row["R2"] for row in rows], ".", color=COLOURS[method], alpha=0.4)
            middle = [_median(table, m=m, d=d, method=method) for m in sizes]
            ax.plot(sizes, middle, "-", color=COLOURS[method], label=method)
        ax.set(title=f"d = {d}", xlabel="training rows", ylim=(-0.1, 1.02))
        ax.grid(alpha=0.3)
    axes[0].set_ylabel("test R2")
    axes[0].legend(frameon=False)
    return figure
