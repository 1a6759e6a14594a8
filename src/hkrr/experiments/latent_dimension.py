"""Test R2 against the number of directions, for the paper's two data sets (figure 2, top)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hkrr.experiments.base import COLOURS, Case, Claim, Table, run_all
from hkrr.experiments.paper import METHODS, Grid, draw, scored, seeds


@dataclass(frozen=True)
class Config:
    """The paper's setting; the numbers of directions are read off its axis."""

    dimensions: tuple[int, ...] = (1, 2, 3, 4, 5, 10, 20, 35, 50)
    n_train: int = 600
    n_validation: int = 600
    n_test: int = 4800
    n_features: int = 50
    n_components: int = 3
    n_centers: int = 5
    reg_lambda: float = 1e-7
    seconds: float = 60.0
    repeats: int = 5
    lambdas: tuple[float, ...] = tuple(10.0**-k for k in range(1, 9))
    scales: tuple[float, ...] = (0.1, 0.3, 1.0, 3.0, 10.0)
    seed: int = 0

    @classmethod
    def quick(cls, seed: int = 0) -> Config:
        """Return what takes seconds."""
        return cls(
            dimensions=(1, 2, 4),
            n_train=150,
            n_validation=150,
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
    """Return each data set, number of directions, run and method."""
    return [
        {"data_set": data_set, "d": d, "repeat": repeat, "method": method}
        for repeat in range(config.repeats)
        for data_set in (1, 2)
        for d in config.dimensions
        for method in METHODS
    ]


def run_case(config: Config, case: Case) -> Table:
    """Return the score of one run."""
    seed = seeds(config.seed, case["repeat"])
    sizes = config.n_train, config.n_validation, config.n_test, config.n_features, config.n_components
    split, grid = draw(case["data_set"], *sizes, seed.data), Grid(config.lambdas, config.scales)
    budget = config.n_centers, config.reg_lambda, config.seconds
    return [
        {**case, "true_d": config.n_components, **scored(split, case["method"], case["d"], *budget, seed.model, grid)}
    ]


def run(config: Config) -> Table:
    """Return all the scores."""
    return run_all(config, cases(config), run_case)


def medians(table: Table, data_set: int, method: str) -> dict[int, float]:
    """Return the median R2 over the runs, for each number of directions."""
    rows = [row for row in table if row["data_set"] == data_set and row["method"] == method]
    return {
        d: float(np.median([row["R2"] for row in rows if row["d"] == d])) for d in sorted({row["d"] for row in rows})
    }


def claims(table: Table) -> list[Claim]:
    """Return what the paper says of too few and of too many directions, for its two algorithms on both data sets."""
    true_d = table[0]["true_d"]
    few_cost, many_cost, many_help, settings = [], [], [], []
    for data_set in (1, 2):
        for method in ("VarPro", "AGD"):
            at = medians(table, data_set, method)
            more = [value for d, value in at.items() if true_d < d <= 20]
            settings.append(f"{method}, data set {data_set}")
            few_cost.append(at[true_d] - max(value for d, value in at.items() if d < true_d))
            many_cost.append(at[true_d] - float(np.median(more)))
            many_help.append(float(np.mean([value > at[true_d] for value in more])))
    few = ", ".join(f"{name}: {cost:+.2f}" for name, cost in zip(settings, few_cost, strict=True))
    many = ", ".join(f"{name}: {cost:+.2f}" for name, cost in zip(settings, many_cost, strict=True))
    often = ", ".join(f"{name}: {share:.0%}" for name, share in zip(settings, many_help, strict=True))
    return [
        Claim("d < d* costs much accuracy (R2 lost, more than 0.1)", all(cost > 0.1 for cost in few_cost), few),
        Claim(
            "d > d* costs little (median over d* < d <= 20, R2 lost below 0.05)", all(c < 0.05 for c in many_cost), many
        ),
        Claim("d > d* often helps (of the d tried, more than half)", float(np.mean(many_help)) > 0.5, often),
    ]


def plot(table: Table) -> Any:
    """Draw the median, and every run, against d."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained", sharey=True)
    for ax, data_set in zip(axes, (1, 2), strict=True):
        for method in METHODS:
            rows = [row for row in table if row["data_set"] == data_set and row["method"] == method]
            ax.plot([row["d"] for row in rows], [row["R2"] for row in rows], ".", color=COLOURS[method], alpha=0.4)
            middle = medians(table, data_set, method)
            ax.plot(middle.keys(), middle.values(), "-", color=COLOURS[method], label=method)
        ax.axvline(table[0]["true_d"], color=COLOURS["grey"], lw=1, ls=":")
        ax.set(title=f"data set {data_set}", xlabel="d", xscale="log", ylim=(-0.1, 1.02))
        ax.set_xticks(sorted({row["d"] for row in table}), sorted({row["d"] for row in table}))
        ax.grid(alpha=0.3)
    axes[0].set_ylabel("test R2")
    axes[0].legend(frameon=False)
    return figure
