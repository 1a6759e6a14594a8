"""Excess risk if d and lambda are chosen by the error on held-out rows, or by the evidence (theorem 3).

Here d is the number of directions and lambda is the regularization parameter. Two rules are compared. The paper's rule,
"held-out", fits one model to the training rows for every pair (d, lambda) on a grid. It chooses the model with the
lowest error on separate validation rows, where predictions are clipped at the largest absolute training target. The
chosen model is not fitted again. The second rule, "evidence", maximizes the evidence on the same training rows and
needs no grid. For each rule, the risk ratio is the excess risk of the chosen model divided by the lowest excess risk on
the grid.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hkrr.estimators.ridge import HyperKernelRidge
from hkrr.estimators.ridge_cv import HyperKernelRidgeCV
from hkrr.exceptions import FitError
from hkrr.experiments.excess_risk_tools import draw_with_truth, slope
from hkrr.experiments.experiment_runner import Case, Claim, Table, quick_config
from hkrr.experiments.figures import GREY, ORANGE, PURPLE, label_values, panels
from hkrr.experiments.paper_setting import seed_of
from hkrr.experiments.result_store import column

# The rules that choose d and lambda, and their colours.
RULES = {"held-out": PURPLE, "evidence": ORANGE}


@dataclass(frozen=True)
class Config:
    """Settings for data set 1 of the paper. For each m in ``sizes``, there are m training and m / 3 validation rows."""

    sizes: tuple[int, ...] = (200, 400, 800, 1600)
    n_features: int = 20
    n_components: int = 3
    dimensions: tuple[int, ...] = (1, 2, 3, 4, 5, 6)
    lambdas: tuple[float, ...] = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
    n_test: int = 4000
    repeats: int = 5
    seed: int = 0

    quick = quick_config(
        sizes=(100, 200),
        n_features=5,
        n_components=2,
        dimensions=(1, 2, 3),
        lambdas=(1e-1, 1e-3, 1e-5),
        n_test=300,
        repeats=1,
    )


def cases(config: Config) -> list[Case]:
    """Return one case (a run) for each combination of a number of rows and a repeat."""
    return [{"m": m, "repeat": repeat} for repeat in range(config.repeats) for m in config.sizes]


def run_case(config: Config, case: Case) -> Table:
    """Return for each rule the chosen d and lambda, the excess risk, and the lowest excess risk on the grid."""
    m, n_validation = case["m"], case["m"] // 3
    data_seed, model_seed = (seed_of(config.seed, case["repeat"], role) for role in ("data", "model"))
    drawn = draw_with_truth(m + n_validation, config.n_test, config.n_features, config.n_components, data_seed)
    data = drawn._replace(X=drawn.X[:m], y=drawn.y[:m])
    X_validation, y_validation = drawn.X[m:], drawn.y[m:]
    M = float(np.max(np.abs(data.y)))
    fits = []
    for d in config.dimensions:
        for reg_lambda in config.lambdas:
            model = HyperKernelRidge(d, reg_lambda=reg_lambda, n_init=10, n_jobs=1, random_state=model_seed)
            try:
                model.fit(data.X, data.y)
            except FitError:  # skip the pair (d, lambda) if the fit fails
                continue
            error = np.mean((np.clip(model.predict(X_validation), -M, M) - y_validation) ** 2)
            fits.append((float(error), data.excess_risk(model.predict(data.X_test)), d, reg_lambda))
    _, risk, d, reg_lambda = min(fits)
    evidence = HyperKernelRidgeCV(n_jobs=1, random_state=model_seed).fit(data.X, data.y)
    common = {**case, "true_d": config.n_components, "least_on_grid": min(fit[1] for fit in fits)}
    return [
        {**common, "rule": "held-out", "excess_risk": risk, "d": d, "reg_lambda": reg_lambda},
        {
            **common,
            "rule": "evidence",
            "excess_risk": data.excess_risk(evidence.predict(data.X_test)),
            "d": int(evidence.n_components_),
            "reg_lambda": float(evidence.reg_lambda_),
        },
    ]


def prices(table: Table, rule: str) -> dict[int, float]:
    """For each number of rows, return the median over the repeats of the risk ratio of a rule."""
    medians = {}
    for m in sorted(set(column(table, "m"))):
        rows = [row for row in table if row["rule"] == rule and row["m"] == m]
        medians[m] = float(np.median([row["excess_risk"] / row["least_on_grid"] for row in rows]))
    return medians


def claims(table: Table) -> list[Claim]:
    """Check two claims about the rule "held-out": its risk ratio does not grow with m, and its chosen d exceeds d*.

    m is the number of training rows, and d* is the true number of directions. The second claim is a conjecture of the
    paper.
    """
    price = prices(table, "held-out")
    largest = [row for row in table if row["m"] == max(price) and row["rule"] == "held-out"]
    above = sum(row["d"] > row["true_d"] for row in largest)
    number = "; ".join(
        f"{rule} " + ", ".join(f"{value:.2f}" for value in prices(table, rule).values()) for rule in RULES
    )
    growth = slope(list(price), list(price.values()))
    has_slope = bool(np.isfinite(growth))
    return [
        Claim(
            "choosing d and lambda on held-out rows keeps the rate (as m grows, the ratio of the risk to the lowest "
            "risk on the grid has a slope below 0.1)",
            growth < 0.1 if has_slope else None,
            (f"slope {growth:+.2f}; " if has_slope else "")
            + f"risk / lowest risk on the grid for m = {', '.join(map(str, price))}: {number}",
        ),
        Claim(
            "the chosen d exceeds d* in most runs at the largest m (the paper's conjecture)",
            above > len(largest) / 2,
            f"{above} of {len(largest)} runs",
        ),
    ]


def plot(table: Table) -> Any:
    """Plot the chosen d, the chosen lambda and the risk ratio against the number of rows."""
    figure, axes = panels(3, (13, 4))
    for offset, (rule, colour) in zip((0.95, 1.05), RULES.items(), strict=True):
        rows = [row for row in table if row["rule"] == rule]
        x = [row["m"] * offset for row in rows]
        axes[0].plot(x, [row["d"] for row in rows], "o", color=colour, alpha=0.6, label=rule)
        axes[1].loglog(x, [row["reg_lambda"] for row in rows], "o", color=colour, alpha=0.6)
        axes[2].loglog(x, [row["excess_risk"] / row["least_on_grid"] for row in rows], "o", color=colour, alpha=0.4)
        price = prices(table, rule)
        axes[2].loglog(list(price), list(price.values()), "-", color=colour)
    axes[0].axhline(table[0]["true_d"], color=GREY, ls=":", label="d*")
    axes[2].axhline(1.0, color=GREY, ls=":")
    sizes = sorted(set(column(table, "m")))
    for ax, title in zip(axes, ("chosen d", "chosen lambda", "risk / lowest risk on the grid"), strict=True):
        ax.set(title=title, xlabel="training rows", xscale="log")
        label_values(ax, sizes)
    axes[0].legend(frameon=False)
    return figure
