"""Excess risk against the number of rows, for three input sizes: HKRR, KRR on X, KRR on the true map (theorem 1)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from hkrr.experiments.base import COLOURS, Case, Claim, Table, run_all
from hkrr.experiments.paper import draw_with_truth, learned_krr, seeds
from hkrr.selection import HyperKernelRidgeCV
from hkrr.theory import rate

SYSTEMS = {"HKRR": COLOURS["L-BFGS"], "KRR on X": COLOURS["VarPro"], "KRR on the true map": COLOURS["AGD"]}


@dataclass(frozen=True)
class Config:
    """Data set 1; the number of directions is given, as in the theorem."""

    sizes: tuple[int, ...] = (100, 200, 400, 800, 1600, 3200)
    features: tuple[int, ...] = (10, 20, 50)
    n_components: int = 3
    n_test: int = 4000
    repeats: int = 5
    seed: int = 0

    @classmethod
    def quick(cls, seed: int = 0) -> Config:
        """Return what takes seconds."""
        return cls(sizes=(100, 200, 400), features=(4, 6), n_components=2, n_test=500, repeats=1, seed=seed)


def cases(config: Config) -> list[Case]:
    """Return each dimension, size and run."""
    return [
        {"D": D, "m": m, "repeat": repeat}
        for repeat in range(config.repeats)
        for D in config.features
        for m in config.sizes
    ]


def run_case(config: Config, case: Case) -> Table:
    """Return the excess risk of each system, over the variance of the noiseless target."""
    seed = seeds(config.seed, case["repeat"])
    data = draw_with_truth(case["m"], config.n_test, case["D"], config.n_components, seed.data)
    X, y, X_test, B = data.X, data.y, data.X_test, data.B
    predicted = {
        "HKRR": HyperKernelRidgeCV(config.n_components, n_jobs=1, random_state=seed.model).fit(X, y).predict(X_test),
        "KRR on X": learned_krr(X, y, X_test, seed.model),
        "KRR on the true map": learned_krr(X @ B.T, y, X_test @ B.T, seed.model),
    }
    d = config.n_components
    return [{**case, "d": d, "system": name, "excess_risk": data.excess_risk(each)} for name, each in predicted.items()]


def run(config: Config) -> Table:
    """Return all the risks."""
    return run_all(config, cases(config), run_case)


def curve(table: Table, D: int, system: str) -> tuple[list[int], list[float]]:
    """Return the sizes and the median excess risks."""
    rows = [row for row in table if row["D"] == D and row["system"] == system]
    sizes = sorted({row["m"] for row in rows})
    return sizes, [float(np.median([row["excess_risk"] for row in rows if row["m"] == m])) for m in sizes]


def slope(table: Table, D: int, system: str) -> float:
    """Return the least-squares slope of log risk against log m."""
    sizes, risks = curve(table, D, system)
    return float(np.polyfit(np.log(sizes), np.log(risks), 1)[0])


def claims(table: Table) -> list[Claim]:
    """Return the two claims about the rates."""
    features = sorted({row["D"] for row in table})
    slopes = {system: [slope(table, D, system) for D in features] for system in SYSTEMS}
    number = "; ".join(
        f"{system}: " + ", ".join(f"{value:.2f} (D = {D})" for D, value in zip(features, values, strict=True))
        for system, values in slopes.items()
    )
    spread = {system: max(values) - min(values) for system, values in slopes.items()}
    faster = all(a < b for a, b in zip(slopes["HKRR"], slopes["KRR on X"], strict=True))
    return [
        Claim("HKRR's risk falls faster with m than KRR's, at every D", faster, number),
        Claim(
            "HKRR's slope hardly depends on D while KRR's does (spread over D below 0.2, and above)",
            spread["HKRR"] < 0.2 < spread["KRR on X"],
            f"spread over D: HKRR {spread['HKRR']:.2f}, KRR on X {spread['KRR on X']:.2f}",
        ),
    ]


def plot(table: Table) -> Any:
    """Draw the risks, log-log, with the fitted slopes and the theorem's limit for smooth kernels, 1 / m."""
    import matplotlib.pyplot as plt

    features = sorted({row["D"] for row in table})
    figure, axes = plt.subplots(1, len(features), figsize=(4.6 * len(features), 4.2), layout="constrained", sharey=True)
    for ax, D in zip(axes, features, strict=True):
        for system, colour in SYSTEMS.items():
            rows = [row for row in table if row["D"] == D and row["system"] == system]
            ax.loglog([row["m"] for row in rows], [row["excess_risk"] for row in rows], ".", color=colour, alpha=0.35)
            ax.loglog(*curve(table, D, system), "-", color=colour, label=f"{system}: {slope(table, D, system):.2f}")
        sizes, risks = curve(table, D, "HKRR")
        exponent = rate(table[0]["d"], math.inf)  # the Gaussian kernel is smooth without end
        theorem = risks[-1] * (sizes[-1] / np.array(sizes)) ** exponent
        ax.loglog(sizes, theorem, ":", color="black", label=f"the paper's rate: {-exponent:.2f}")
        ax.set(title=f"D = {D}", xlabel="training rows")
        ax.grid(alpha=0.3)
        ax.legend(frameon=False, fontsize="small", title="slope")
    axes[0].set_ylabel("excess risk / variance")
    return figure
