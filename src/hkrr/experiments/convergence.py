"""Training loss of VarPro, AGD and L-BFGS against time, from several starting maps (figure 1).

A run is one of these methods, started from one of the maps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hkrr.centers import uniform
from hkrr.datasets import make_mim_sines
from hkrr.experiments.experiment_runner import Case, Claim, Table, quick_config
from hkrr.experiments.figures import COLOURS, panels
from hkrr.experiments.paper_setting import METHODS, STARTS, draw_map, seed_of, solver
from hkrr.experiments.result_store import column
from hkrr.kernels import Gaussian
from hkrr.kernels.base import with_median_gamma
from hkrr.objective import Objective
from hkrr.rows import InMemoryRows
from hkrr.solvers import run as run_solver

# Two losses are considered equal if their relative difference is at most this number.
_SAME = 0.05
# A run is considered converged if its loss at half the time limit exceeds its final loss by at most this fraction of
# the final loss.
_SETTLED = 0.02
# Maximum number of points stored for each loss curve, besides the first and the last point.
_POINTS = 200


@dataclass(frozen=True)
class Config:
    """The setting of figure 1 in the paper.

    For this figure, the paper states neither lambda nor the time limit. The figure shows the runs from two starting
    maps, but the paper does not say how the maps were drawn.
    """

    n_samples: int = 300
    n_features: int = 300
    n_components: int = 2
    n_centers: int = 5
    reg_lambda: float = 1e-7
    starts: str = STARTS[0]
    seconds: float = 60.0
    repeats: int = 10
    seed: int = 0

    quick = quick_config(n_features=30, seconds=0.5, repeats=3)


def cases(config: Config) -> list[Case]:
    """Return one case (a run) for each combination of a starting map and a method."""
    return [{"start": start, "method": method} for start in range(config.repeats) for method in METHODS]


def run_case(config: Config, case: Case) -> Table:
    """Return the loss curve of one run.

    The data and the centers are the same in all runs. All methods use the same starting maps.
    """
    d, D = config.n_components, config.n_features
    data = make_mim_sines(config.n_samples, D, d, B=np.eye(d, D), random_state=seed_of(config.seed, 0, "data"))
    rows = InMemoryRows(data.X, data.y)
    centers = uniform(rows, config.n_centers, np.random.RandomState(seed_of(config.seed, 0, "model")))
    B = draw_map(d, D, config.starts, np.random.RandomState(seed_of(config.seed, case["start"], "start")))
    kernel = with_median_gamma(Gaussian(), data.X, B)
    objective = Objective(rows, centers, kernel, config.reg_lambda)
    options: dict[str, Any] = {"max_iter": 10**9, "tol": 0.0, "time_limit": config.seconds}
    history = run_solver(solver(case["method"]), objective, B, **options).history
    seconds, loss = np.array(history["time"]), np.array(history["objective"])
    # Keep points that are equally spaced in log time, and the first and the last point.
    wanted = np.geomspace(max(seconds[0], 1e-4), max(seconds[-1], 2e-4), _POINTS)
    kept = np.unique([0, *np.minimum(np.searchsorted(seconds, wanted), len(loss) - 1), len(loss) - 1])
    limit = {"time_limit": config.seconds}
    return [{**case, **limit, "seconds": float(seconds[k]), "iteration": int(k), "loss": float(loss[k])} for k in kept]


class _Curve:
    """The loss of one run over time."""

    def __init__(self, table: Table, start: int, method: str) -> None:
        where = {"start": start, "method": method}
        self.seconds, self.loss = column(table, "seconds", **where), column(table, "loss", **where)
        self.end = self.loss[-1]
        half = column(table, "time_limit", **where)[-1] / 2
        pairs = zip(self.seconds, self.loss, strict=True)
        at_half = [self.loss[0], *(loss for second, loss in pairs if second <= half)][-1]
        # A run that stopped before half the time limit is considered converged too.
        self.settled = at_half - self.end <= _SETTLED * self.end

    def seconds_to(self, loss: float) -> float:
        """Return the time at which the run first reached the given loss, up to the relative tolerance `_SAME`."""
        pairs = zip(self.seconds, self.loss, strict=True)
        return float(next(second for second, value in pairs if value <= (1.0 + _SAME) * loss))


def _classify(table: Table) -> tuple[dict[int, dict[str, _Curve]], list[int], list[int], list[int]]:
    """Return the curves of each starting map, and three lists of indices of starting maps.

    The first list contains the starting maps from which AGD ends with a lower loss than VarPro. The second list
    contains the starting maps from which AGD and VarPro converge to the same loss. The third list contains the starting
    maps of the first list from which VarPro has converged. From these maps, AGD escapes a minimum in which VarPro gets
    stuck.
    """
    curves = {start: {method: _Curve(table, start, method) for method in METHODS} for start in _complete_starts(table)}
    lower = [s for s, of in curves.items() if of["AGD"].end < (1.0 - _SAME) * of["VarPro"].end]
    both = [
        s
        for s, of in curves.items()
        if of["AGD"].settled
        and of["VarPro"].settled
        and abs(of["AGD"].end - of["VarPro"].end) <= _SAME * min(of["AGD"].end, of["VarPro"].end)
    ]
    escapes = [s for s in lower if curves[s]["VarPro"].settled]
    return curves, lower, both, escapes


def _complete_starts(table: Table) -> list[int]:
    """Return the indices of the starting maps from which the runs of all methods have finished."""
    finished = {(row["start"], row["method"]) for row in table}
    return [start for start in sorted({start for start, _ in finished}) if all((start, m) in finished for m in METHODS)]


def claims(table: Table) -> list[Claim]:
    """Check the claims that compare VarPro and AGD."""
    curves, lower, both, escapes = _classify(table)
    goals = {start: max(curves[start]["AGD"].end, curves[start]["VarPro"].end) for start in both}
    faster = [s for s in both if curves[s]["VarPro"].seconds_to(goals[s]) < curves[s]["AGD"].seconds_to(goals[s])]
    n = len(curves)
    return [
        Claim(
            "AGD ends with a lower loss than VarPro from most starting maps",
            len(lower) > n / 2 if n else None,
            f"{len(lower)} of {n} starting maps",
        ),
        Claim(
            "VarPro is faster than AGD when both reach the same loss",
            len(faster) > len(both) / 2 if both else None,
            f"both reach the same loss from {len(both)} of {n} starting maps; "
            f"VarPro is faster from {len(faster)} of these",
        ),
        Claim(
            "from some starting maps, AGD escapes a minimum in which VarPro gets stuck",
            bool(escapes) if n else None,
            f"from {len(escapes)} of {n} starting maps, VarPro converges to a higher loss than AGD",
        ),
    ]


def plot(table: Table) -> Any:
    """Plot the loss curves from two starting maps, and the final losses from all starting maps.

    From the first map, VarPro and AGD reach the same loss. From the second map, AGD escapes a minimum in which VarPro
    gets stuck. If AGD escapes from no starting map, the second map is one from which AGD ends with a lower loss than
    VarPro. If there are several such maps, the map with the largest ratio of VarPro's final loss to AGD's final loss is
    shown.
    """
    curves, lower, both, escapes = _classify(table)
    shown = {f"start {both[0]}: same loss": both[0]} if both else {}
    if escapes or lower:
        most = max(escapes or lower, key=lambda start: curves[start]["VarPro"].end / curves[start]["AGD"].end)
        shown[f"start {most}: {'AGD escapes' if escapes else 'AGD ends lower'}"] = most
    if not shown and curves:
        shown[f"start {min(curves)}"] = min(curves)
    n = len(shown) + 1
    figure, axes = panels(n, (4.4 * n, 3.8))
    for ax, (title, start) in zip(axes, shown.items(), strict=False):
        for method, curve in curves[start].items():
            ax.loglog(curve.seconds, curve.loss, color=COLOURS[method], label=method)
        ax.set(title=title, xlabel="seconds", ylabel="training loss")
    if shown:
        axes[0].legend(frameon=False)
    for k, method in enumerate(METHODS):
        ends = [of[method].end for of in curves.values()]
        # Shift the points of each method, so that equal losses do not hide each other.
        shifted = [start + 0.15 * (k - 1) for start in curves]
        axes[-1].semilogy(shifted, ends, "o", color=COLOURS[method], label=method)
    axes[-1].set(title="final loss of each start", xlabel="start", ylabel="final training loss", xticks=list(curves))
    return figure
