"""Trajectories of VarPro, AGD and L-BFGS on the paper's toy functions, from its starts (figure 1, appendix D.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hkrr.experiments.base import COLOURS, Case, Claim, Table, run_all
from hkrr.experiments.store import column
from hkrr.experiments.toy import METHODS, Toy, arrived, minimise

# The paper's starts; from the first and the third AGD is said to escape a minimum that holds VarPro, from the second
# both arrive.
STARTS = {"square": ((-1.5, -1.5), (-1.5, -0.1)), "sigmoid": ((5.0, -1.75),)}


@dataclass(frozen=True)
class Config:
    """How far a run may go."""

    max_iter: int = 500
    seed: int = 0  # nothing is drawn here

    @classmethod
    def quick(cls, seed: int = 0) -> Config:
        """Return all there is: it takes a moment."""
        return cls(seed=seed)


def cases(config: Config) -> list[Case]:
    """Return each function, start and method."""
    return [
        {"link": link, "x0": x0, "y0": y0, "method": method}
        for link, starts in STARTS.items()
        for x0, y0 in starts
        for method in METHODS
    ]


def run_case(config: Config, case: Case) -> Table:
    """Return the iterates of one run."""
    path = minimise(case["link"], case["method"], case["x0"], case["y0"], config.max_iter)
    return [{**case, "iteration": k, "x": x, "y": y, "loss": loss} for k, (x, y, loss) in enumerate(path)]


def run(config: Config) -> Table:
    """Return all the iterates."""
    return run_all(config, cases(config), run_case)


def claims(table: Table) -> list[Claim]:
    """Return what the paper says of its starts."""
    ends = {(row["link"], row["y0"], row["method"]): row["y"] for row in table}  # the last row of a run is its end
    found = []
    for link, y0 in (("square", -1.5), ("sigmoid", -1.75)):
        agd, varpro = ends[link, y0, "AGD"], ends[link, y0, "VarPro"]
        text = f"AGD escapes a local minimum in which VarPro stays ({link}, y0 = {y0:g})"
        number = f"AGD ends at y = {agd:.2f}, VarPro at {varpro:.2f}, L-BFGS at {ends[link, y0, 'L-BFGS']:.2f}"
        found.append(Claim(text, arrived(agd) and not arrived(varpro), number))
    steps = {method: len(column(table, "loss", link="square", y0=-0.1, method=method)) - 1 for method in METHODS}
    both = arrived(ends["square", -0.1, "AGD"]) and arrived(ends["square", -0.1, "VarPro"])
    text = "from y0 = -0.1 both arrive, and VarPro takes fewer iterations (square)"
    number = ", ".join(f"{method} {n}" for method, n in steps.items())
    return [*found, Claim(text, both and steps["VarPro"] < steps["AGD"], number)]


def plot(table: Table) -> Any:
    """Draw the level sets with the trajectories, and the loss against iterations, a column a start."""
    import matplotlib.pyplot as plt

    starts = [(link, *start) for link in STARTS for start in STARTS[link]]
    figure, axes = plt.subplots(2, len(starts), figsize=(4.4 * len(starts), 7.4), layout="constrained")
    for top, bottom, (link, x0, y0) in zip(axes[0], axes[1], starts, strict=True):
        _levels(top, link, [row for row in table if row["link"] == link and row["y0"] == y0])
        for method in METHODS:
            where = {"link": link, "y0": y0, "method": method}
            x, y, loss = (column(table, name, **where) for name in ("x", "y", "loss"))
            top.plot(x, y, "o-", ms=3, lw=1.2, color=COLOURS[method], label=method)
            bottom.semilogy(np.maximum(loss, 1e-16), color=COLOURS[method], label=method)
        top.plot(x0, y0, "o", color="black", ms=6)
        top.plot(Toy(link).h(1.0), 1.0, "*", color="white", mec="black", ms=14)
        top.set(title=f"{link}, from ({x0:g}, {y0:g})", xlabel="x", ylabel="y")
        bottom.set(xlabel="iteration", ylabel="f", ylim=(1e-12, None))
        bottom.grid(alpha=0.3)
    axes[1, 0].legend(frameon=False)
    return figure


def _levels(ax: Any, link: str, rows: Table) -> None:
    """Draw the level sets of the function around these iterates."""
    x, y = ([row[name] for row in rows] for name in ("x", "y"))
    margin = 0.5
    xs = np.linspace(min(*x, 0.0) - margin, max(*x, 1.5) + margin, 160)
    ys = np.linspace(min(*y, -1.5) - margin, max(*y, 1.5) + margin, 160)
    toy = Toy(link)
    values = np.array([[toy.at(a, b) for a in xs] for b in ys])
    ax.contour(xs, ys, values, levels=np.logspace(-1, 2, 18), colors=COLOURS["grey"], linewidths=0.6)
