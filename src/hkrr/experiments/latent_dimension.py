"""Test R2 against the number of directions, for the paper's two data sets (figure 2, top)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hkrr.experiments.experiment_runner import Case, Claim, Table, quick_config
from hkrr.experiments.figures import COLOURS, GREY, label_values, panels
from hkrr.experiments.paper_setting import METHODS, Figure2Config
from hkrr.experiments.result_store import column

# Threshold for the median R2 (over the repetitions) of an algorithm that is given the true number of directions. If the
# median is lower, the algorithm has failed on the data set, and is left out when the claims are checked on it.
_USEFUL = 0.1


@dataclass(frozen=True)
class Config(Figure2Config):
    """The setting of figure 2 (top) in the paper.

    The paper does not state which values of d, the number of directions, were tried, so the values of ``dimensions``
    may differ.
    """

    dimensions: tuple[int, ...] = (1, 2, 3, 4, 6, 10, 20, 50)
    n_train: int = 600

    quick = quick_config(
        dimensions=(1, 2, 4),
        n_train=150,
        n_validation=150,
        n_test=300,
        n_features=10,
        n_components=2,
        seconds=0.25,
        repeats=1,
    )


def cases(config: Config) -> list[Case]:
    """Return one case (a run) for each combination of a data set, a number of directions, a repeat and a method."""
    return [
        {"data_set": data_set, "d": d, "repeat": repeat, "method": method}
        for repeat in range(config.repeats)
        for data_set in (1, 2)
        for d in config.dimensions
        for method in METHODS
    ]


def run_case(config: Config, case: Case) -> Table:
    """Return one row with the scores of one run."""
    return [{**case, "true_d": config.n_components, **config.scores(case["data_set"], config.n_train, case)}]


def medians(table: Table, data_set: int, method: str) -> dict[int, float]:
    """For each number of directions, return the median over the repeats of the R2 of a method on a data set."""
    where = {"data_set": data_set, "method": method}
    dimensions = sorted(set(column(table, "d", **where)))
    return {d: float(np.median(column(table, "R2", d=d, **where))) for d in dimensions}


def claims(table: Table) -> list[Claim]:
    """Check the claims about too few and too many directions, for VarPro and AGD on both data sets.

    d* is the true number of directions. If the median R2 of an algorithm at d* is below 0.1, the algorithm is excluded
    for this data set, and the claims name the algorithm.
    """
    true_d = table[0]["true_d"]
    lost_by_few, lost_by_many, gained = {}, {}, {}
    no_fit = []
    for data_set in (1, 2):
        for method in ("VarPro", "AGD"):
            at, name = medians(table, data_set, method), f"{method}, data set {data_set}"
            few = [value for d, value in at.items() if d < true_d]
            more = [value for d, value in at.items() if d > true_d]
            if at.get(true_d, 0.0) < _USEFUL:
                no_fit.append(name)
                continue
            if few:
                lost_by_few[name] = at[true_d] - max(few)
            if more:
                lost_by_many[name] = at[true_d] - float(np.median(more))
                gained[name] = float(np.mean([value > at[true_d] for value in more]))
    excluded = f"; no fit at d* (R2 below {_USEFUL:g}): {', '.join(no_fit)}" if no_fit else ""

    def claim(text: str, values: dict[str, float], holds: bool, form: str) -> Claim:
        number = ", ".join(f"{name}: {value:{form}}" for name, value in values.items())
        if not number and not no_fit:
            number = "no such d was tried"
        return Claim(text, holds if values else None, (number + excluded).removeprefix("; "))

    much = all(value > 0.1 for value in lost_by_few.values())
    little = all(value < 0.05 for value in lost_by_many.values())
    helps = bool(gained) and float(np.mean(list(gained.values()))) > 0.5
    texts = (
        "d < d* loses much accuracy (the best d < d* loses more than 0.1 of R2)",
        "d > d* loses little accuracy (the median loss of R2 over d > d* is below 0.05)",
        "d > d* often helps (R2 is higher for more than half of the d tried)",
    )
    return [
        claim(texts[0], lost_by_few, much, "+.3f"),
        claim(texts[1], lost_by_many, little, "+.3f"),
        claim(texts[2], gained, helps, ".0%"),
    ]


def plot(table: Table) -> Any:
    """Plot R2 against d: the medians as lines, and every run as a point."""
    dimensions = sorted(set(column(table, "d")))
    figure, axes = panels(2, (10, 4), sharey=True)
    for ax, data_set in zip(axes, (1, 2), strict=True):
        for method in METHODS:
            where = {"data_set": data_set, "method": method}
            ax.plot(column(table, "d", **where), column(table, "R2", **where), ".", color=COLOURS[method], alpha=0.4)
            middle = medians(table, data_set, method)
            ax.plot(list(middle), list(middle.values()), "-", color=COLOURS[method], label=method)
        ax.axvline(table[0]["true_d"], color=GREY, lw=1, ls=":")
        ax.set(title=f"data set {data_set}", xlabel="d", xscale="log", ylim=(max(-1.0, min(column(table, "R2"))), 1.02))
        label_values(ax, dimensions)
    axes[0].set_ylabel("test R2")
    axes[0].legend(frameon=False)
    return figure
