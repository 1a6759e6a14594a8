"""What choosing d and lambda costs: by the paper's rule, on held-out rows, and by the evidence (theorem 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hkrr.estimator import HyperKernelRidge
from hkrr.experiments.base import COLOURS, Case, Claim, Table, run_all
from hkrr.experiments.paper import draw_with_truth, seeds
from hkrr.selection import HyperKernelRidgeCV

RULES = {"held-out": COLOURS["AGD"], "evidence": COLOURS["L-BFGS"]}


@dataclass(frozen=True)
class Config:
    """Data set 1."""

    sizes: tuple[int, ...] = (200, 400, 800, 1600)
    n_features: int = 20
    n_components: int = 3
    dimensions: tuple[int, ...] = (1, 2, 3, 4, 5, 6)
    lambdas: tuple[float, ...] = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
    n_test: int = 4000
    repeats: int = 5
    seed: int = 0

    @classmethod
    def quick(cls, seed: int = 0) -> Config:
        """Return what takes seconds."""
        return cls(
            sizes=(80, 160),
            n_features=5,
            n_components=1,
            dimensions=(1, 2),
            lambdas=(1e-1, 1e-3),
            n_test=300,
            repeats=1,
            seed=seed,
        )


def cases(config: Config) -> list[Case]:
    """Return each size and run."""
    return [{"m": m, "repeat": repeat} for repeat in range(config.repeats) for m in config.sizes]


def run_case(config: Config, case: Case) -> Table:
    """Return what each rule chose, its risk, and the least risk on the grid; all on the same rows."""
    seed = seeds(config.seed, case["repeat"])
    data = draw_with_truth(case["m"], config.n_test, config.n_features, config.n_components, seed.data)
    common: dict[str, Any] = {"n_jobs": 1, "random_state": seed.model}
    lambdas = list(config.lambdas)
    rules = {
        "held-out": HyperKernelRidgeCV(
            list(config.dimensions), criterion="training", cv="holdout", reg_lambdas=lambdas, **common
        ),
        "evidence": HyperKernelRidgeCV(**common),
    }

    def risk(model: Any) -> float:
        return data.excess_risk(model.fit(data.X, data.y).predict(data.X_test))

    least = min(
        risk(HyperKernelRidge(d, reg_lambda=each, **common)) for d in config.dimensions for each in config.lambdas
    )
    return [
        {
            **case,
            "true_d": config.n_components,
            "rule": rule,
            "excess_risk": risk(model),
            "least_on_grid": least,
            "d": int(model.n_components_),
            "reg_lambda": float(model.reg_lambda_),
        }
        for rule, model in rules.items()
    ]


def run(config: Config) -> Table:
    """Return all the choices."""
    return run_all(config, cases(config), run_case)


def _price(table: Table, rule: str, m: int) -> float:
    rows = [row for row in table if row["rule"] == rule and row["m"] == m]
    return float(np.median([row["excess_risk"] / row["least_on_grid"] for row in rows]))


def claims(table: Table) -> list[Claim]:
    """Return whether choosing keeps the rate, up to a constant, and whether d is overestimated as conjectured."""
    sizes = sorted({row["m"] for row in table})
    prices = {rule: [_price(table, rule, m) for m in sizes] for rule in RULES}
    number = "; ".join(f"{rule}: " + ", ".join(f"{p:.2f}" for p in values) for rule, values in prices.items())
    largest = [row for row in table if row["m"] == sizes[-1] and row["rule"] == "held-out"]
    above = sum(row["d"] > row["true_d"] for row in largest)
    return [
        Claim(
            "choosing d and lambda on held-out rows costs a constant factor (risk over the best of the grid at most 2)",
            max(prices["held-out"]) <= 2.0,
            f"for m = {', '.join(map(str, sizes))}: {number}",
        ),
        Claim(
            "the chosen d exceeds d* (the paper's conjecture; in most runs at the largest m)",
            above > len(largest) / 2,
            f"{above} of {len(largest)} runs",
        ),
    ]


def plot(table: Table) -> Any:
    """Draw the chosen d and lambda, and the price of choosing, against m."""
    import matplotlib.pyplot as plt

    sizes = sorted({row["m"] for row in table})
    figure, axes = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    for offset, (rule, colour) in zip((0.95, 1.05), RULES.items(), strict=True):
        rows = [row for row in table if row["rule"] == rule]
        x = [row["m"] * offset for row in rows]
        axes[0].plot(x, [row["d"] for row in rows], "o", color=colour, alpha=0.6, label=rule)
        axes[1].loglog(x, [row["reg_lambda"] for row in rows], "o", color=colour, alpha=0.6)
        axes[2].plot(x, [row["excess_risk"] / row["least_on_grid"] for row in rows], "o", color=colour, alpha=0.4)
        axes[2].plot(sizes, [_price(table, rule, m) for m in sizes], "-", color=colour)
    axes[2].axhline(1.0, color=COLOURS["grey"], ls=":")
    for ax, title in zip(axes, ("chosen d", "chosen lambda", "risk / best of the grid"), strict=True):
        ax.set(title=title, xlabel="training rows", xscale="log")
        ax.grid(alpha=0.3)
    axes[0].legend(frameon=False)
    return figure
