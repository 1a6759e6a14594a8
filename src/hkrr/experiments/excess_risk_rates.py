"""Excess risk against the number of rows m, for several input dimensions D (theorem 1).

Three methods are compared: hyper-kernel ridge regression (HKRR), kernel ridge regression (KRR) on X, and KRR on the
true coordinates Bx (called "KRR on the true map"). The theorem gives the rate at which the risk of HKRR decreases for
large m. If m / D is small, HKRR does not find the map. As m grows, the risk of HKRR first drops by orders of magnitude
and only then follows this rate. The claims therefore use the slopes of log(risk) against log(m) over the three largest
m. The slopes over all m are also reported.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from hkrr.estimators.ridge_cv import HyperKernelRidgeCV
from hkrr.experiments.excess_risk_tools import draw_with_truth, learned_krr, slope
from hkrr.experiments.experiment_runner import Case, Claim, Table, quick_config
from hkrr.experiments.figures import GREY, ORANGE, PURPLE, SKY, label_values, panels
from hkrr.experiments.paper_setting import seed_of
from hkrr.experiments.result_store import column
from hkrr.theory import rate

# The three methods and their colours.
SYSTEMS = {"HKRR": PURPLE, "KRR on X": ORANGE, "KRR on the true map": SKY}
# The rate is estimated from this many values of m, the largest ones.
_LAST = 3


@dataclass(frozen=True)
class Config:
    """Settings for data set 1 of the paper. HKRR is given the true number of directions, as in the theorem."""

    sizes: tuple[int, ...] = (100, 200, 400, 800, 1600, 3200)
    features: tuple[int, ...] = (10, 20, 50)
    n_components: int = 3
    n_test: int = 4000
    repeats: int = 5
    seed: int = 0

    quick = quick_config(sizes=(100, 200, 400), features=(4, 6), n_components=2, n_test=500, repeats=1)


def cases(config: Config) -> list[Case]:
    """Return one case (a run) for each combination of an input dimension, a number of rows and a repeat."""
    return [
        {"D": D, "m": m, "repeat": repeat}
        for repeat in range(config.repeats)
        for D in config.features
        for m in config.sizes
    ]


def run_case(config: Config, case: Case) -> Table:
    """Return the excess risk of each method, divided by the variance of the noiseless target."""
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


def curve(table: Table, D: int, system: str, last: int = 0) -> tuple[list[int], list[float]]:
    """Return numbers of rows m and the median excess risk for each m.

    If `last` is positive, only the `last` largest m are used. If `last` is 0, all m are used.
    """
    sizes = sorted(set(column(table, "m", D=D, system=system)))[-last:]
    return sizes, [float(np.median(column(table, "excess_risk", D=D, system=system, m=m))) for m in sizes]


def claims(table: Table) -> list[Claim]:
    """Check the two claims about the rates, estimated over the largest numbers of rows."""
    features = sorted(set(column(table, "D")))
    late = {system: [slope(*curve(table, D, system, _LAST)) for D in features] for system in SYSTEMS}
    over_all = {system: [slope(*curve(table, D, system)) for D in features] for system in SYSTEMS}
    number = f"{_listed(late)}. Slopes over all sizes: {_listed(over_all)}"
    spread = {system: max(values) - min(values) for system, values in late.items()}
    faster = all(a < b for a, b in zip(late["HKRR"], late["KRR on X"], strict=True))
    # KRR's rate deteriorates with D if its slope at the largest D is less than half of its slope at the smallest D.
    deteriorates = late["KRR on X"][0] < 0.0 and late["KRR on X"][-1] > 0.5 * late["KRR on X"][0]
    known = all(np.isfinite(value) for values in late.values() for value in values)
    if not known:
        number = "a slope needs at least 2 sizes"
    sizes = curve(table, features[0], "HKRR", _LAST)[0]
    of_sizes = f"slopes over m = {', '.join(map(str, sizes))}, for D = {', '.join(map(str, features))}"
    return [
        Claim(
            "HKRR's risk falls faster with m than KRR's, at every D", faster if known else None, f"{of_sizes}: {number}"
        ),
        Claim(
            "HKRR's slope hardly depends on D (spread below 0.3) while KRR's does "
            "(at the largest D, KRR's slope is less than half of its slope at the smallest D)",
            spread["HKRR"] < 0.3 and deteriorates if known and len(features) > 1 else None,
            f"spread of HKRR {spread['HKRR']:.2f}; KRR on X from {late['KRR on X'][0]:.2f} at D = {features[0]}"
            f" to {late['KRR on X'][-1]:.2f} at D = {features[-1]}"
            if known
            else number,
        ),
    ]


def _listed(slopes: dict[str, list[float]]) -> str:
    """Return the slopes of each method as text. The list of each method has one slope for each D."""
    return "; ".join(f"{system} {', '.join(f'{one:.2f}' for one in each)}" for system, each in slopes.items())


def plot(table: Table) -> Any:
    """Plot the risks on a log-log scale, and the theorem's rate. The legend has the slopes for the largest m."""
    features = sorted(set(column(table, "D")))
    figure, axes = panels(len(features), (4.6 * len(features), 4.4), sharey=True)
    exponent = rate(table[0]["d"], math.inf)  # the Gaussian kernel is infinitely smooth
    for ax, D in zip(axes, features, strict=True):
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
        label_values(ax, sizes)
        ax.legend(frameon=False, fontsize="small", title=f"slope over the last {_LAST} sizes")
    axes[0].set_ylabel("excess risk / variance")
    return figure
