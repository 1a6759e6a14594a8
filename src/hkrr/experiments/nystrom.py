"""Excess risk against the number of Nystrom centers, and its decrease with m for 4 sqrt(m) centers (theorem 2).

Here m is the number of training rows. The decrease is measured by the rate: the slope of log(risk) against log(m).

The experiment has two parts, "centers" and "rate".

The part "centers" compares uniform sampling of the centers with leverage-score sampling. It uses kernel ridge
regression on the true coordinates Bx with fixed gamma and lambda, so that only the centers differ between the fits. The
theorem's N (the effective dimension) and N_inf (the number of rows times the largest leverage score) are computed for
this regression. The risk is divided by the risk with all rows as centers, on the same data. There are two kinds of
inputs. The inputs "cube" are uniform on a cube, as in the paper. About nine tenths of the inputs "clustered" are in a
cube with a fifth of the side length, so uniform sampling draws few centers outside this smaller cube.

The part "rate" fits hyper-kernel ridge regression to m rows with lambda = 0.03 / sqrt(m), once with 4 sqrt(m) centers
and once with all rows as centers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from hkrr._base.linear_algebra import Array
from hkrr._maps import KernelExpansion
from hkrr.centers import leverage, uniform
from hkrr.datasets import make_mim_sines
from hkrr.estimators.ridge import HyperKernelRidge
from hkrr.experiments.excess_risk_tools import Truth, draw_with_truth, slope
from hkrr.experiments.experiment_runner import Case, Claim, Table, quick_config
from hkrr.experiments.figures import GREY, ORANGE, PURPLE, SKY, label_values, panels
from hkrr.experiments.paper_setting import seed_of
from hkrr.experiments.result_store import column
from hkrr.kernels import Gaussian
from hkrr.kernels.base import with_median_gamma
from hkrr.objective import Objective
from hkrr.rows import InMemoryRows
from hkrr.theory import als_centers, leverage_scores, plain_centers

# The ways to sample centers, and their colours.
HOW = {"uniform": ORANGE, "leverage": PURPLE}
# The kinds of inputs.
INPUTS = ("cube", "clustered")
# A number of centers is sufficient if the risk is at most this multiple of the risk with all rows as centers.
_AS_GOOD = 1.1
# In the part "rate", lambda is _RATE_LAMBDA / sqrt(m), and the number of centers is _RATE_CENTERS sqrt(m).
_RATE_LAMBDA, _RATE_CENTERS = 0.03, 4
# If the risk exceeds this fraction of the variance of the target, the fit has failed, and no rate can be estimated.
_FITTED = 0.5


@dataclass(frozen=True)
class Config:
    """Settings for data set 1 of the paper."""

    n_samples: int = 2000
    n_features: int = 20
    n_components: int = 2
    sizes: tuple[int, ...] = (250, 500, 1000, 2000)
    n_centers: tuple[int, ...] = (10, 14, 20, 28, 40, 57, 80, 113, 160, 226, 320, 640)
    reg_lambda: float = 1e-3
    n_test: int = 4000
    repeats: int = 10
    seed: int = 0

    quick = quick_config(n_samples=200, n_features=5, sizes=(100, 200), n_centers=(10, 40), n_test=300, repeats=1)


def cases(config: Config) -> list[Case]:
    """Return the cases of both parts.

    The part "centers" has one case for each combination of a kind of inputs and a repeat. The part "rate" has two cases
    for each combination of a number of rows and a repeat: one with 4 sqrt(m) centers, and one with all rows as centers.
    """
    by_centers = [
        {"part": "centers", "inputs": inputs, "m": config.n_samples, "repeat": repeat}
        for repeat in range(config.repeats)
        for inputs in INPUTS
    ]
    by_size = [
        {"part": "rate", "inputs": "cube", "m": m, "repeat": repeat, "few": few}
        for repeat in range(config.repeats)
        for m in config.sizes
        for few in (True, False)
    ]
    return [*by_centers, *by_size]


def run_case(config: Config, case: Case) -> Table:
    """Return one row for each fit to one draw of the data.

    The column ``excess_risk`` is the excess risk divided by the variance of the noiseless target.
    """
    data_seed, seed = (seed_of(config.seed, case["repeat"], role) for role in ("data", "model"))
    if case["part"] == "rate":
        return [_rate(config, case, data_seed, seed)]
    data = draw_with_truth(case["m"], config.n_test, config.n_features, config.n_components, data_seed)
    if case["inputs"] == "clustered":
        data = _clustered(config, data_seed)
    P = data.X @ data.B.T
    rows, rng = InMemoryRows(P, data.y), np.random.RandomState(seed)
    kernel = with_median_gamma(Gaussian(), P)
    m, identity = rows.n_rows, np.eye(config.n_components)
    P_test = data.X_test @ data.B.T

    def risk(centers: Array | None) -> float:
        objective = Objective(rows, centers, kernel, config.reg_lambda)
        function = KernelExpansion(kernel, identity, objective.centers, objective.solve_alpha(identity))
        return data.excess_risk(function.at(P_test)[:, 0])

    scores = leverage_scores(kernel(P, P), config.reg_lambda)
    n_eff, n_inf = float(scores.sum()), float(m * scores.max())
    common = {
        **case,
        "risk_of_all_rows": risk(None),
        "n_eff": n_eff,
        "n_inf": n_inf,
        "theorem_uniform": plain_centers(n_inf, config.reg_lambda),
        "theorem_leverage": als_centers(n_eff, m),
    }
    table = []
    for c in config.n_centers:
        for how in HOW:
            options: dict[str, Any] = (
                {"B": identity, "kernel": kernel, "t0": config.reg_lambda} if how == "leverage" else {}
            )
            centers = np.unique((leverage if how == "leverage" else uniform)(rows, c, rng, **options), axis=0)
            table.append({**common, "how": how, "drawn": c, "c": len(centers), "excess_risk": risk(centers)})
    return table


def _clustered(config: Config, seed: int) -> Truth:
    """Return data set 1 with clustered inputs.

    Each training or test input is multiplied by 0.2 with probability 0.9, so about nine tenths of the inputs lie in the
    cube [-0.2, 0.2]^D.
    """
    n = config.n_samples + config.n_test
    drawn = make_mim_sines(n, config.n_features, config.n_components, noise=0.0, random_state=seed)
    rng = np.random.RandomState(seed)
    X = np.where(rng.uniform(size=(n, 1)) < 0.9, 0.2, 1.0) * drawn.X
    d = config.n_components
    z = np.sin((1.0 + np.arange(1, d + 1) / d) * np.pi * (X @ drawn.B.T)).sum(axis=1)
    y = z + np.sqrt(0.01 * np.var(z)) * rng.standard_normal(n)
    m = config.n_samples
    return Truth(X[:m], y[:m], X[m:], z[m:], drawn.B)


def _rate(config: Config, case: Case, data_seed: int, seed: int) -> dict[str, Any]:
    m = case["m"]
    c = min(m, _RATE_CENTERS * math.isqrt(m)) if case["few"] else m
    data = draw_with_truth(m, config.n_test, config.n_features, config.n_components, data_seed)
    options: dict[str, Any] = {"n_centers": "all" if c == m else c, "n_init": 10, "n_jobs": 1, "random_state": seed}
    model = HyperKernelRidge(config.n_components, reg_lambda=_RATE_LAMBDA / math.sqrt(m), **options)
    risk = data.excess_risk(model.fit(data.X, data.y).predict(data.X_test))
    return {**case, "how": "uniform", "drawn": c, "c": c, "excess_risk": risk}


def ratios(table: Table, inputs: str, how: str) -> dict[int, float]:
    """For each number of centers, return the ratio of the risk to the risk with all rows as centers.

    The ratio is the median over the repeats.
    """
    rows = [row for row in table if row["part"] == "centers" and row["inputs"] == inputs and row["how"] == how]
    drawn = sorted({row["drawn"] for row in rows})
    return {
        c: float(np.median([row["excess_risk"] / row["risk_of_all_rows"] for row in rows if row["drawn"] == c]))
        for c in drawn
    }


def sufficient_centers(table: Table, inputs: str, how: str) -> float:
    """Return the smallest sufficient number of centers, or infinity if no number is sufficient.

    A number of centers is sufficient if the risk exceeds the risk with all rows as centers by at most 10%, for this
    number and for every larger number that was tried.
    """
    ratio = ratios(table, inputs, how)
    return next((c for c in ratio if all(ratio[more] <= _AS_GOOD for more in ratio if more >= c)), math.inf)


def rate_curve(table: Table, few: bool) -> tuple[list[int], list[float]]:
    """Return the numbers of rows m, and the median risk for each m.

    The centers are 4 sqrt(m) rows if `few` is True, and all rows otherwise.
    """
    finished = {(row["m"], row["few"]) for row in table if row["part"] == "rate"}
    sizes = [m for m in sorted({m for m, _ in finished}) if (m, True) in finished and (m, False) in finished]
    return sizes, [float(np.median(column(table, "excess_risk", part="rate", m=m, few=few))) for m in sizes]


def claims(table: Table) -> list[Claim]:
    """Check the claims about the rate with 4 sqrt(m) centers, and about the numbers of centers that are sufficient."""
    slopes = {few: slope(*rate_curve(table, few)) for few in (True, False)}
    ends = {few: rate_curve(table, few)[1][-1:] for few in (True, False)}
    # A rate can only be estimated if the models fit the data, and if the risk with all rows decreases with m.
    has_rate = np.isfinite(slopes[False]) and slopes[False] < 0.0 and max(*ends[True], *ends[False]) < _FITTED
    found = [
        Claim(
            "fewer centers than rows do not change the rate "
            "(4 sqrt(m) centers: slope at most 0.15 above the slope with all rows)",
            slopes[True] - slopes[False] < 0.15 if has_rate else None,
            _describe_slopes(slopes)
            + "risks at the largest m with few centers and with all rows: "
            + ", ".join(f"{r:.2g}" for r in ends[True] + ends[False]),
        )
    ]
    for inputs in INPUTS:
        need = {how: sufficient_centers(table, inputs, how) for how in HOW}
        rows = [row for row in table if row["part"] == "centers" and row["inputs"] == inputs]
        if not rows:
            continue
        m = rows[0]["m"]
        middle = {name: float(np.median([row[name] for row in rows])) for name in ("n_eff", "n_inf")}
        asked = {how: float(np.median([row[f"theorem_{how}"] for row in rows])) for how in HOW}
        formulas = ", ".join(f"{how} {asked[how]:.0f}" for how in HOW)
        beyond = f" (more than the {m} rows)" if min(asked.values()) > m else ""
        found.append(
            Claim(
                f"leverage-score sampling needs fewer centers than uniform sampling ({inputs} inputs; for a risk "
                "within 10% of the risk with all rows)",
                need["leverage"] < need["uniform"] if min(need.values()) < math.inf else None,
                f"leverage {need['leverage']}, uniform {need['uniform']}; N = {middle['n_eff']:.0f},"
                f" N_inf = {middle['n_inf']:.0f}; number of centers in the theorems: {formulas}{beyond}",
            )
        )
    return found


def _describe_slopes(slopes: dict[bool, float]) -> str:
    if not all(np.isfinite(value) for value in slopes.values()):
        return ""
    return f"slope {slopes[True]:.2f} with 4 sqrt(m) centers, {slopes[False]:.2f} with all rows; "


def plot(table: Table) -> Any:
    """Plot the risk against the number of centers for both kinds of inputs, and against the number of rows.

    Dotted vertical lines mark the theorem's numbers of centers, if they are at most the number of rows.
    """
    figure, axes = panels(3, (14, 4.2))
    for ax, inputs in zip(axes, INPUTS, strict=False):
        rows = [row for row in table if row["part"] == "centers" and row["inputs"] == inputs]
        if not rows:
            continue
        m = rows[0]["m"]
        for how, colour in HOW.items():
            some = [row for row in rows if row["how"] == how]
            ratio = [row["excess_risk"] / row["risk_of_all_rows"] for row in some]
            ax.loglog([row["drawn"] for row in some], ratio, ".", color=colour, alpha=0.3)
            middle = ratios(table, inputs, how)
            asked = float(np.median([row[f"theorem_{how}"] for row in some]))
            label = f"{how}; the theorem requires {asked:.0f}"
            ax.loglog(list(middle), list(middle.values()), "-", color=colour, label=label)
            if asked <= m:
                ax.axvline(asked, color=colour, ls=":")
        ax.axhline(_AS_GOOD, color=GREY, lw=1, ls=":")
        ax.set(title=f"{inputs} inputs, m = {m}", xlabel="centers drawn", ylabel="risk / risk with all rows")
    for few, colour in ((True, SKY), (False, GREY)):
        value = slope(*rate_curve(table, few))
        label = f"{'4 sqrt(m)' if few else 'm'} centers" + (f": slope {value:.2f}" if np.isfinite(value) else "")
        axes[2].loglog(*rate_curve(table, few), "o-", color=colour, label=label)
    axes[2].set(title="rate, learned maps", xlabel="training rows", ylabel="excess risk / variance")
    label_values(axes[2], rate_curve(table, True)[0])
    for ax in axes:
        if ax.lines:
            ax.legend(frameon=False, fontsize="small")
    return figure
