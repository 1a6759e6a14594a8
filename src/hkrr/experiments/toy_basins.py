"""For each method, the basins of attraction of the global minimum of the paper's toy functions (appendix D.2).

Each method runs from a grid of starting points (x0, y0). The results depend on the initial step size of the line
searches. The paper does not state this step size, so three values are tried. For each of the two functions, the figure
shows the grid for the middle value of the step size, and the success rate for all three values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hkrr.experiments.experiment_runner import Case, Claim, Table, quick_config
from hkrr.experiments.figures import COLOURS
from hkrr.experiments.paper_setting import METHODS
from hkrr.experiments.result_store import column
from hkrr.experiments.toy_objectives import FIRST_STEPS, LINKS, Toy, arrived, minimise

# Colours of the starting points from which the global minimum is reached by both VarPro and AGD, by AGD only, by VarPro
# only, and by neither method.
BOTH, ONLY_AGD, ONLY_VARPRO, NONE = "#7B3294", COLOURS["AGD"], COLOURS["VarPro"], "#BBBBBB"


@dataclass(frozen=True)
class Config:
    """The grid of starting points (x0, y0) for both functions, and the initial step sizes of VarPro and AGD."""

    x0: tuple[float, float] = (-3.0, 7.0)
    y0: tuple[float, float] = (-3.0, 3.0)
    n_points: int = 31
    first_steps: tuple[float, ...] = FIRST_STEPS
    max_iter: int = 500
    # The seed has no effect, because the experiment is deterministic.
    seed: int = 0

    quick = quick_config(n_points=9)


def cases(config: Config) -> list[Case]:
    """Return one case (a run) for each combination of a function, an initial step size and a row of the grid."""
    return [
        {"link": link, "first_step": step, "y0": float(y0)}
        for link in LINKS
        for step in config.first_steps
        for y0 in _grid(config.y0, config)
    ]


def _grid(ends: tuple[float, float], config: Config) -> Any:
    return np.linspace(*ends, config.n_points).round(6)


def run_case(config: Config, case: Case) -> Table:
    """Return the final y of each method from the starting points in one row of the grid, which have the same y0."""
    rows = []
    ends: dict[str, float] = {}
    for x0 in _grid(config.x0, config):
        start = float(x0), case["y0"], config.max_iter, case["first_step"]
        for method in METHODS:
            # VarPro and L-BFGS eliminate x, so their result does not depend on x0. They run once for each y0.
            if method == "AGD" or method not in ends:
                ends[method] = round(minimise(case["link"], method, *start)[-1][1], 4)
            rows.append({**case, "x0": float(x0), "method": method, "y": ends[method]})
    return rows


def shares(table: Table, link: str, first_step: float) -> dict[str, float]:
    """Return the fraction of starting points from which each method reaches the global minimum."""
    where = {"link": link, "first_step": first_step}
    ends = {method: column(table, "y", method=method, **where) for method in METHODS}
    return {
        method: float(np.mean([arrived(y) for y in each])) if each else float("nan") for method, each in ends.items()
    }


def _steps(table: Table) -> list[float]:
    return sorted({row["first_step"] for row in table})


def claims(table: Table) -> list[Claim]:
    """Check for both functions whether AGD reaches the global minimum from more starting points than VarPro."""
    found = []
    for link in LINKS:
        tried = {step: shares(table, link, step) for step in _steps(table)}
        share = {step: each for step, each in tried.items() if not np.isnan(sum(each.values()))}
        number = "; ".join(
            f"initial step size {step:g}: " + ", ".join(f"{method} {value:.1%}" for method, value in each.items())
            for step, each in share.items()
        )
        text = (
            "the basin of the global minimum is larger for AGD by more than one percentage point "
            f"({link}, for every initial step size)"
        )
        larger = all(each["AGD"] > each["VarPro"] + 0.01 for each in share.values())
        found.append(Claim(text, larger if len(share) == len(tried) else None, number))
    return found


def plot(table: Table) -> Any:
    """Plot which methods succeed from each starting point, and the success rate of each method.

    A star marks the global minimizer, and crosses mark the local minimizers.
    """
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    steps = _steps(table)
    middle = steps[len(steps) // 2]
    figure, axes = plt.subplots(1, 4, figsize=(17.5, 4.6), layout="constrained", width_ratios=[1.1, 1.1, 0.9, 0.9])
    for ax, bars, link in zip(axes[:2], axes[2:], LINKS, strict=True):
        _map(ax, [row for row in table if row["link"] == link and row["first_step"] == middle], Toy(link))
        ax.set_title(f"{link}, initial step size {middle:g}")
        for k, step in enumerate(steps):
            share = shares(table, link, step)
            x = np.arange(len(METHODS)) + (len(METHODS) + 1) * k
            bars.bar(x, np.nan_to_num(list(share.values())), color=[COLOURS[method] for method in METHODS])
        ticks = 1 + (len(METHODS) + 1) * np.arange(len(steps))
        bars.set(title=f"{link}: success rate", ylim=(0, 1), xlabel="initial step size", xticks=ticks)
        bars.set_xticklabels([f"{step:g}" for step in steps])
    names = {"both succeed": BOTH, "only AGD": ONLY_AGD, "only VarPro": ONLY_VARPRO, "neither": NONE}
    patches = [Patch(color=colour, label=name) for name, colour in names.items()]
    marks = [
        Line2D([], [], ls="", marker="*", color="white", mec="black", ms=12, label="global minimum"),
        Line2D([], [], ls="", marker="+", color="#F0E442", mew=2.5, ms=10, label="local minimum"),
    ]
    bars = [Patch(color=COLOURS[method], label=f"{method} (bars)") for method in METHODS]
    figure.legend(handles=[*patches, *marks, *bars], loc="outside lower center", ncols=9, fontsize="small")
    return figure


def _map(ax: Any, rows: Table, toy: Toy) -> None:
    from matplotlib.colors import ListedColormap

    xs, ys = (sorted({row[name] for row in rows}) for name in ("x0", "y0"))
    there = {(row["x0"], row["y0"], row["method"]): arrived(row["y"]) for row in rows}
    kind = [[2 * (not there[x, y, "AGD"]) + (not there[x, y, "VarPro"]) for x in xs] for y in ys]
    colours = ListedColormap([BOTH, ONLY_AGD, ONLY_VARPRO, NONE])
    ax.pcolormesh(xs, ys, kind, cmap=colours, vmin=-0.5, vmax=3.5, shading="nearest")
    ax.plot(toy.h(1.0), 1.0, "*", color="white", mec="black", ms=15)
    for y in _local_minimisers(toy):
        ax.plot(toy.h(y), y, "+", color="#F0E442", ms=12, mew=2.5)
    ax.set(xlabel="x0", ylabel="y0", xlim=(xs[0], xs[-1]), ylim=(ys[0], ys[-1]))


def _local_minimisers(toy: Toy) -> list[float]:
    """Return the local minimizers of the reduced function, except the global minimizer, with three decimals."""
    y = np.linspace(-6.0, 6.0, 12001)
    values = np.array([toy.rest(each) for each in y])
    inner = (values[1:-1] < values[:-2]) & (values[1:-1] < values[2:])
    return [float(each) for each in y[1:-1][inner] if not arrived(float(each))]
