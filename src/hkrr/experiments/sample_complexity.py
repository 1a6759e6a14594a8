"""Excess risk against the number of rows, for three input sizes: HKRR, KRR on X, KRR on the true map (theorem 1).

The theorem is about large m. With few rows for each input the map is not found at all, and between there and the rate
the risk drops by orders of magnitude: slopes are fitted over all sizes, and over the largest three, which count.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from hkrr.experiments.base import GREY, ORANGE, PURPLE, SKY, Case, Claim, Table, run_all
from hkrr.experiments.paper import seed_of
from hkrr.experiments.risk import draw_with_truth, learned_krr, slope
from hkrr.experiments.store import column
from hkrr.selection import HyperKernelRidgeCV
from hkrr.theory import rate

SYSTEMS = {"HKRR": PURPLE, "KRR on X": ORANGE, "KRR on the true map": SKY}
_LAST = 3  # sizes that the rate is read off


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
    data_seed, seed = (seed_of(config.seed, case["repeat"], role) for role in ("data", "model"))
    data = draw_with_truth(case["m"], config.n_test, case["D"], config.n_components, data_seed)
    X, y, X_test, B = data.X, data.y, data.X_test, data.B
    predicted = {
        "HKRR": HyperKernelRidgeCV(config.n_components, n_jobs=1, random_state=seed).fit(X, y).predict(X_test),
        "KRR on X": learned_krr(X, y, X_test, seed),
        "KRR on the true map": learned_krr(X @ B.T, y, X_test @ B.T, seed),
    }
    d = config.n_components
    return [{**case, "d": d, "system": name, "excess_risk": data.excess_risk(each)} for name, each in predicted.items()]


def run(config: Config) -> Table:
    """Return all the risks."""
    return run_all(config, cases(config), run_case)


def curve(table: Table, D: int, system: str, last: int = 0) -> tuple[list[int], list[float]]:
    """Return the (last few) sizes and the median excess risks."""
    sizes = sorted(set(column(table, "m", D=D, system=system)))[-last:]
    return sizes, [float(np.median(column(table, "excess_risk", D=D, system=system, m=m))) for m in sizes]


def claims(table: Table) -> list[Claim]:
    """Return the two claims about the rates, read off the largest sizes."""
    features = sorted(set(column(table, "D")))
    late = {system: [slope(*curve(table, D, system, _LAST)) for D in features] for system in SYSTEMS}
    over_all = {system: [slope(*curve(table, D, system)) for D in features] for system in SYSTEMS}
    number = "; ".join(
        f"{system}: "
        + ", ".join(
            f"{a:.2f} (D = {D}, over all sizes {b:.2f})"
            for D, a, b in zip(features, values, over_all[system], strict=True)
        )
        for system, values in late.items()
    )
    spread = {system: max(values) - min(values) for system, values in late.items()}
    faster = all(a < b for a, b in zip(late["HKRR"], late["KRR on X"], strict=True))
    # KRR's rate is said to wear off with D: at the largest D less than half of that at the smallest.
    wears_off = late["KRR on X"][0] < 0.0 and late["KRR on X"][-1] > 0.5 * late["KRR on X"][0]
    known = all(np.isfinite(value) for values in late.values() for value in values)
    if not known:
        number = "one size has no slope"
    sizes = curve(table, features[0], "HKRR", _LAST)[0]
    of_sizes = f"slopes over m = {', '.join(map(str, sizes))}"
    return [
        Claim(
            "HKRR's risk falls faster with m than KRR's, at every D", faster if known else None, f"{of_sizes}: {number}"
        ),
        Claim(
            "HKRR's slope hardly depends on D (spread below 0.3) while KRR's does (less than half at the largest D)",
            spread["HKRR"] < 0.3 and wears_off if known and len(features) > 1 else None,
            f"{of_sizes}: spread of HKRR {spread['HKRR']:.2f}, KRR on X from {late['KRR on X'][0]:.2f}"
            f" (D = {features[0]}) to {late['KRR on X'][-1]:.2f} (D = {features[-1]})"
            if known
            else f"{of_sizes}: {number}",
        ),
    ]


def plot(table: Table) -> Any:
    """Draw the risks, log-log, with the slopes over the largest sizes and the theorem's bound for smooth kernels."""
    import matplotlib.pyplot as plt

    features = sorted(set(column(table, "D")))
    shape: dict[str, Any] = {
        "figsize": (4.6 * len(features), 4.4),
        "layout": "constrained",
        "sharey": True,
        "squeeze": False,
    }
    figure, axes = plt.subplots(1, len(features), **shape)
    exponent = rate(table[0]["d"], math.inf)  # the Gaussian kernel is smooth without end
    for ax, D in zip(axes[0], features, strict=True):
        for system, colour in SYSTEMS.items():
            where = {"D": D, "system": system}
            ax.loglog(column(table, "m", **where), column(table, "excess_risk", **where), ".", color=colour, alpha=0.35)
            value = slope(*curve(table, D, system, _LAST))
            label = f"{system}: {value:.2f}" if np.isfinite(value) else system
            ax.loglog(*curve(table, D, system), "-", color=colour, label=label)
        sizes, risks = curve(table, D, "HKRR")
        bound = risks[-1] * (sizes[-1] / np.array(sizes)) ** exponent
        ax.loglog(sizes, bound, ":", color=GREY, label=f"the paper's rate, r → ∞, θ = 1 (slope only): {-exponent:.2f}")
        ax.set(title=f"D = {D}", xlabel="training rows")
        ax.set_xticks(sizes, [str(m) for m in sizes])
        ax.set_xticks([], minor=True)
        ax.grid(alpha=0.3)
        ax.legend(frameon=False, fontsize="small", title=f"slope over the last {_LAST} sizes")
    axes[0, 0].set_ylabel("excess risk / variance")
    return figure
