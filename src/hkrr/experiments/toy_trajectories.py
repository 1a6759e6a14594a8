"""Trajectories of VarPro, AGD and L-BFGS on the toy functions, from the paper's starting points (figure 1).

Appendix D.2 of the paper defines the functions. Each method runs with three initial step sizes of its line search. The
figure shows the trajectories for the middle step size. The claims are checked for all three step sizes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hkrr.experiments.experiment_runner import Case, Claim, Table, quick_config
from hkrr.experiments.figures import COLOURS, GREY
from hkrr.experiments.paper_setting import METHODS
from hkrr.experiments.result_store import column
from hkrr.experiments.toy_objectives import FIRST_STEPS, Toy, arrived, minimise

# The paper's three starting points (x0, y0). According to the paper, VarPro gets stuck in a local minimum from
# (-1.5, -1.5) and from (5, -1.75), but AGD does not. From (-1.5, -0.1), both methods reach the global minimum.
STARTS = {"square": ((-1.5, -1.5), (-1.5, -0.1)), "sigmoid": ((5.0, -1.75),)}


@dataclass(frozen=True)
class Config:
    """Settings of the experiment: the maximum number of iterations."""

    max_iter: int = 500
    # The seed has no effect, because the experiment is deterministic.
    seed: int = 0

    quick = quick_config()  # the same as the full configuration, which runs in seconds


def cases(config: Config) -> list[Case]:
    """Return one case (a run) for each function, starting point, initial step size and method."""
    return [
        {"link": link, "x0": x0, "y0": y0, "first_step": step, "method": method}
        for link, starts in STARTS.items()
        for x0, y0 in starts
        for step in FIRST_STEPS
        for method in METHODS
    ]


def run_case(config: Config, case: Case) -> Table:
    """Return the iterates of one run."""
    path = minimise(case["link"], case["method"], case["x0"], case["y0"], config.max_iter, case["first_step"])
    return [{**case, "iteration": k, "x": x, "y": y, "loss": loss} for k, (x, y, loss) in enumerate(path)]


def claims(table: Table) -> list[Claim]:
    """Check the paper's claims about its three starting points. They must hold for every initial step size."""
    found = []
    for link, y0 in (("square", -1.5), ("sigmoid", -1.75)):
        ends = _ends(table, link, y0)
        escapes = [arrived(of["AGD"]) and not arrived(of["VarPro"]) for of in ends.values()]
        number = "; ".join(
            f"initial step size {step:g}: " + ", ".join(f"{method} ends at y = {y:.2f}" for method, y in of.items())
            for step, of in ends.items()
        )
        setting = f"{link}, y0 = {y0:g}, for every initial step size"
        text = f"AGD escapes a local minimum in which VarPro gets stuck ({setting})"
        found.append(Claim(text, all(escapes) if len(ends) == len(FIRST_STEPS) else None, number))
    ends = _ends(table, "square", -0.1)
    steps = {
        step: {m: len(column(table, "y", link="square", y0=-0.1, first_step=step, method=m)) - 1 for m in METHODS}
        for step in ends
    }
    faster = [
        arrived(of["AGD"]) and arrived(of["VarPro"]) and steps[step]["VarPro"] < steps[step]["AGD"]
        for step, of in ends.items()
    ]
    number = "; ".join(
        f"initial step size {step:g}: " + ", ".join(f"{method} {n}" for method, n in of.items())
        for step, of in steps.items()
    )
    text = (
        "from y0 = -0.1 both VarPro and AGD reach the global minimum, and VarPro takes fewer iterations "
        "(square, for every initial step size)"
    )
    return [*found, Claim(text, all(faster) if len(ends) == len(FIRST_STEPS) else None, number)]


def _ends(table: Table, link: str, y0: float) -> dict[float, dict[str, float]]:
    """Return the final y of each method for each initial step size, if the runs of all methods have finished."""
    # The rows of a run are in the order of the iterations, so the last row of the run overwrites the earlier rows.
    ends = {(row["first_step"], row["method"]): row["y"] for row in table if row["link"] == link and row["y0"] == y0}
    return {
        step: {method: ends[step, method] for method in METHODS}
        for step in FIRST_STEPS
        if all((step, method) in ends for method in METHODS)
    }


def plot(table: Table) -> Any:
    """Plot the trajectories on the level sets, and the loss against the iteration, for each starting point."""
    import matplotlib.pyplot as plt

    starts = [(link, *start) for link in STARTS for start in STARTS[link]]
    step = FIRST_STEPS[len(FIRST_STEPS) // 2]
    table = [row for row in table if row["first_step"] == step]
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
        top.set(title=f"{link}, from ({x0:g}, {y0:g}), initial step size {step:g}", xlabel="x", ylabel="y")
        bottom.set(xlabel="iteration", ylabel="f", ylim=(1e-12, None))
        bottom.grid(alpha=0.3)
    axes[1, 0].legend(frameon=False)
    return figure


def _levels(ax: Any, link: str, rows: Table) -> None:
    """Plot the level sets of the function in the region of the iterates."""
    x, y = ([row[name] for row in rows] for name in ("x", "y"))
    margin = 0.5
    xs = np.linspace(min(*x, 0.0) - margin, max(*x, 1.5) + margin, 160)
    ys = np.linspace(min(*y, -1.5) - margin, max(*y, 1.5) + margin, 160)
    toy = Toy(link)
    values = np.array([[toy.at(a, b) for a in xs] for b in ys])
    ax.contour(xs, ys, values, levels=np.logspace(-1, 2, 18), colors=GREY, linewidths=0.6)
