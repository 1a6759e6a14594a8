"""Excess risk against the number of centers, uniform or by leverage scores, and its rate with few (theorem 2)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from hkrr.estimator import HyperKernelRidge
from hkrr.experiments.base import COLOURS, Case, Claim, Table, run_all
from hkrr.experiments.paper import draw_with_truth, seeds
from hkrr.experiments.store import column
from hkrr.kernels import Gaussian
from hkrr.theory import als_centers, effective_dimension, maximal_dimension, plain_centers

CENTERS = {"uniform": COLOURS["AGD"], "leverage": COLOURS["L-BFGS"]}
_AS_GOOD = 1.1  # times the risk with all rows as centers


@dataclass(frozen=True)
class Config:
    """Data set 1 with lambda = m^-zeta, and c = m^zeta centers for the rate, zeta = 1/2."""

    n_samples: int = 1000
    n_features: int = 20
    n_components: int = 2
    sizes: tuple[int, ...] = (250, 500, 1000, 2000)
    n_centers: tuple[int, ...] = (5, 10, 20, 40, 80, 160, 320, 640, 1000)
    reg_lambda: float = 1e-3
    n_test: int = 4000
    repeats: int = 5
    seed: int = 0

    @classmethod
    def quick(cls, seed: int = 0) -> Config:
        """Return what takes seconds."""
        return cls(
            n_samples=120,
            n_features=5,
            n_components=1,
            sizes=(60, 120),
            n_centers=(5, 20, 120),
            n_test=300,
            repeats=1,
            seed=seed,
        )


def cases(config: Config) -> list[Case]:
    """Return each number of centers and way to draw them; each size with few and with all; the theorem's sizes."""
    runs = range(config.repeats)
    by_centers = [
        {"part": "centers", "m": config.n_samples, "c": c, "centers": how, "repeat": repeat}
        for repeat in runs
        for c in config.n_centers
        for how in CENTERS
    ]
    by_size = [
        {"part": "rate", "m": m, "c": c, "centers": "uniform", "repeat": repeat}
        for repeat in runs
        for m in config.sizes
        for c in (4 * math.isqrt(m), m)
    ]
    return [*by_centers, *by_size, {"part": "theorem", "m": config.n_samples, "c": 0, "centers": "", "repeat": 0}]


def run_case(config: Config, case: Case) -> Table:
    """Return the excess risk of one fit, over the variance of the noiseless target; or what the theorems ask for."""
    m, seed = case["m"], seeds(config.seed, case["repeat"])
    data = draw_with_truth(m, config.n_test, config.n_features, config.n_components, seed.data)
    reg_lambda = config.reg_lambda * math.sqrt(config.n_samples / m)
    if case["part"] == "theorem":
        return [{**case, **_theorem(data.X @ data.B.T, reg_lambda)}]
    model = HyperKernelRidge(
        config.n_components,
        reg_lambda=reg_lambda,
        n_centers="all" if case["c"] >= m else case["c"],
        centers=case["centers"],
        n_jobs=1,
        random_state=seed.model,
    ).fit(data.X, data.y)
    return [{**case, "excess_risk": data.excess_risk(model.predict(data.X_test))}]


def _theorem(P: Any, reg_lambda: float) -> dict[str, float]:
    """Return the effective dimensions at the true map, and the numbers of centers that follow."""
    gamma = Gaussian().median_gamma(P)
    K = Gaussian(gamma=gamma)(P, P)
    n_inf, n_eff = maximal_dimension(K, reg_lambda), effective_dimension(K, reg_lambda)
    return {
        "n_inf": n_inf,
        "n_eff": n_eff,
        "plain": plain_centers(n_inf, reg_lambda),
        "als": als_centers(n_eff, len(P)),
    }


def run(config: Config) -> Table:
    """Return all the risks."""
    return run_all(config, cases(config), run_case)


def _risk(table: Table, **where: Any) -> float:
    return float(np.median(column(table, "excess_risk", **where)))


def enough(table: Table, how: str) -> int:
    """Return the least number of centers whose median risk is within a tenth of that of all rows."""
    numbers = sorted({row["c"] for row in table if row["part"] == "centers"})
    target = _AS_GOOD * _risk(table, part="centers", c=numbers[-1], centers="uniform")
    good = (c for c in numbers if _risk(table, part="centers", c=c, centers=how) <= target or c == numbers[-1])
    return int(next(good))


def slopes(table: Table) -> dict[str, float]:
    """Return the slope of log risk against log m, with few centers and with all."""
    sizes = sorted({row["m"] for row in table if row["part"] == "rate"})
    few = [_risk(table, part="rate", m=m, c=4 * math.isqrt(m)) for m in sizes]
    every = [_risk(table, part="rate", m=m, c=m) for m in sizes]
    return {
        name: float(np.polyfit(np.log(sizes), np.log(risks), 1)[0]) for name, risks in (("few", few), ("all", every))
    }


def claims(table: Table) -> list[Claim]:
    """Return the two claims about centers."""
    slope, uniform, leverage = slopes(table), enough(table, "uniform"), enough(table, "leverage")
    (theorem,) = (row for row in table if row["part"] == "theorem")
    return [
        Claim(
            "fewer centers than rows cost nothing in rate (4 sqrt(m) centers, slope at most 0.15 above that with all)",
            slope["few"] - slope["all"] < 0.15,
            f"slope {slope['few']:.2f} with few, {slope['all']:.2f} with all",
        ),
        Claim(
            "leverage scores need fewer centers than uniform ones (to come within a tenth of all rows)",
            leverage < uniform,
            f"{leverage} against {uniform}; the theorems' formulas give {theorem['als']} and {theorem['plain']}"
            f" (N = {theorem['n_eff']:.0f}, N_inf = {theorem['n_inf']:.0f})",
        ),
    ]


def plot(table: Table) -> Any:
    """Draw the risk against the centers with the theorem's number, and against the rows."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10.5, 4.2), layout="constrained")
    (theorem,) = (row for row in table if row["part"] == "theorem")
    for how, colour in CENTERS.items():
        rows = [row for row in table if row["part"] == "centers" and row["centers"] == how]
        axes[0].loglog([row["c"] for row in rows], [row["excess_risk"] for row in rows], ".", color=colour, alpha=0.35)
        numbers = sorted({row["c"] for row in rows})
        middle = [_risk(table, part="centers", c=c, centers=how) for c in numbers]
        axes[0].loglog(numbers, middle, "-", color=colour, label=how)
    axes[0].axvline(theorem["plain"], color=CENTERS["uniform"], ls=":", label=f"theorem, uniform: {theorem['plain']}")
    axes[0].axvline(theorem["als"], color=CENTERS["leverage"], ls=":", label=f"theorem, leverage: {theorem['als']}")
    axes[0].set(title=f"m = {theorem['m']}", xlabel="centers", ylabel="excess risk / variance")
    sizes, slope = sorted({row["m"] for row in table if row["part"] == "rate"}), slopes(table)
    for name, colour in (("few", COLOURS["L-BFGS"]), ("all", COLOURS["grey"])):
        risks = [_risk(table, part="rate", m=m, c=4 * math.isqrt(m) if name == "few" else m) for m in sizes]
        label = f"{'4 sqrt(m)' if name == 'few' else 'm'} centers: slope {slope[name]:.2f}"
        axes[1].loglog(sizes, risks, "o-", color=colour, label=label)
    axes[1].set(title="rate", xlabel="training rows")
    for ax in axes:
        ax.grid(alpha=0.3)
        ax.legend(frameon=False, fontsize="small")
    return figure
