"""Training loss against time, from many starts: where both algorithms arrive, and where AGD escapes (figure 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hkrr.centers import uniform
from hkrr.datasets import make_mim_sines
from hkrr.experiments.base import COLOURS, Case, Claim, Table, run_all
from hkrr.experiments.paper import METHODS, draw_map, seed_of, solver
from hkrr.experiments.store import column
from hkrr.kernels import Gaussian
from hkrr.objective import Objective
from hkrr.rows import InMemoryRows
from hkrr.solvers import run as run_solver

_SAME = 0.05  # relative difference of losses that counts as the same end
_SETTLED = 0.02  # a loss that falls by no more than this in the second half of the time has arrived somewhere
_POINTS = 200  # of a loss curve that are kept


@dataclass(frozen=True)
class Config:
    """The paper's problem; its lambda, its starts (it shows two) and its seconds are not given for this figure."""

    n_samples: int = 300
    n_features: int = 300
    n_components: int = 2
    n_centers: int = 5
    reg_lambda: float = 1e-7
    starts: str = "uniform"  # the entries of the maps, or "normal"
    seconds: float = 60.0
    repeats: int = 10
    seed: int = 0

    @classmethod
    def quick(cls, seed: int = 0) -> Config:
        """Return what takes seconds."""
        return cls(n_features=30, seconds=0.5, repeats=3, seed=seed)


def cases(config: Config) -> list[Case]:
    """Return each start and method."""
    return [{"start": start, "method": method} for start in range(config.repeats) for method in METHODS]


def run_case(config: Config, case: Case) -> Table:
    """Return the loss curve of one run: the same data and centers for all, the same start for every method."""
    d, D = config.n_components, config.n_features
    data = make_mim_sines(config.n_samples, D, d, B=np.eye(d, D), random_state=seed_of(config.seed, 0, "data"))
    rows = InMemoryRows(data.X, data.y)
    centers = uniform(rows, config.n_centers, np.random.RandomState(seed_of(config.seed, 0, "model")))
    B = draw_map(d, D, config.starts, np.random.RandomState(seed_of(config.seed, case["start"], "start")))
    kernel = Gaussian(gamma=Gaussian().median_gamma(data.X @ B.T))
    objective = Objective(rows, centers, kernel, config.reg_lambda)
    options: dict[str, Any] = {"max_iter": 10**9, "tol": 0.0, "time_limit": config.seconds}
    history = run_solver(solver(case["method"]), objective, B, **options).history
    seconds, loss = np.array(history["time"]), np.array(history["objective"])
    # As many points as a curve needs, evenly over the logarithm of the time, with the first and the last.
    wanted = np.geomspace(max(seconds[0], 1e-4), max(seconds[-1], 2e-4), _POINTS)
    kept = np.unique([0, *np.minimum(np.searchsorted(seconds, wanted), len(loss) - 1), len(loss) - 1])
    limit = {"time_limit": config.seconds}
    return [{**case, **limit, "seconds": float(seconds[k]), "iteration": int(k), "loss": float(loss[k])} for k in kept]


def run(config: Config) -> Table:
    """Return all the curves."""
    return run_all(config, cases(config), run_case)


class _Curve:
    """The loss of one run over time."""

    def __init__(self, table: Table, start: int, method: str) -> None:
        where = {"start": start, "method": method}
        self.seconds, self.loss = column(table, "seconds", **where), column(table, "loss", **where)
        self.end = self.loss[-1]
        half = column(table, "time_limit", **where)[-1] / 2
        pairs = zip(self.seconds, self.loss, strict=True)
        at_half = [self.loss[0], *(loss for second, loss in pairs if second <= half)][-1]
        # One that stopped by itself before half of the time has arrived as well.
        self.settled = at_half - self.end <= _SETTLED * self.end

    def seconds_to(self, loss: float) -> float:
        """Return when the run first came within the tolerance of a loss."""
        pairs = zip(self.seconds, self.loss, strict=True)
        return float(next(second for second, value in pairs if value <= (1.0 + _SAME) * loss))


def _kinds(table: Table) -> tuple[dict[int, dict[str, _Curve]], list[int], list[int], list[int]]:
    """Return the curves by start; the starts where AGD ends lower, where both arrive at one end, where AGD escapes."""
    curves = {start: {method: _Curve(table, start, method) for method in METHODS} for start in _whole_starts(table)}
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


def _whole_starts(table: Table) -> list[int]:
    """Return the starts from which every method's run has ended."""
    ended = {(row["start"], row["method"]) for row in table}
    return [start for start in sorted({start for start, _ in ended}) if all((start, m) in ended for m in METHODS)]


def claims(table: Table) -> list[Claim]:
    """Return the claims about the two algorithms; "arrived": the loss hardly falls in the second half of the time."""
    curves, lower, both, escapes = _kinds(table)
    goals = {start: max(curves[start]["AGD"].end, curves[start]["VarPro"].end) for start in both}
    faster = [s for s in both if curves[s]["VarPro"].seconds_to(goals[s]) < curves[s]["AGD"].seconds_to(goals[s])]
    n = len(curves)
    return [
        Claim(
            "AGD ends lower than VarPro from most starts",
            len(lower) > n / 2 if n else None,
            f"{len(lower)} of {n} starts",
        ),
        Claim(
            "VarPro is faster where both arrive",
            len(faster) > len(both) / 2 if both else None,
            f"{len(faster)} of {len(both)} starts where both arrive at the same loss, of {n}",
        ),
        Claim(
            "there are starts where AGD escapes a minimum in which VarPro stays",
            bool(escapes) if n else None,
            f"{len(escapes)} of {n} starts where VarPro has come to rest above AGD",
        ),
    ]


def plot(table: Table) -> Any:
    """Draw a start where both arrive, one where AGD escapes (or ends lower by most), then the ends of all."""
    import matplotlib.pyplot as plt

    curves, lower, both, escapes = _kinds(table)
    shown = {f"start {both[0]}: both arrive": both[0]} if both else {}
    if escapes or lower:
        most = max(escapes or lower, key=lambda start: curves[start]["VarPro"].end / curves[start]["AGD"].end)
        shown[f"start {most}: {'AGD escapes' if escapes else 'AGD ends lower'}"] = most
    if not shown and curves:
        shown[f"start {min(curves)}"] = min(curves)
    n = len(shown) + 1
    figure, axes = plt.subplots(1, n, figsize=(4.4 * n, 3.8), layout="constrained", squeeze=False)
    axes = axes[0]
    for ax, (title, start) in zip(axes, shown.items(), strict=False):
        for method, curve in curves[start].items():
            ax.loglog(curve.seconds, curve.loss, color=COLOURS[method], label=method)
        ax.set(title=title, xlabel="seconds", ylabel="training loss")
        ax.grid(alpha=0.3)
    if shown:
        axes[0].legend(frameon=False)
    for k, method in enumerate(METHODS):
        ends = [of[method].end for of in curves.values()]
        beside = [start + 0.15 * (k - 1) for start in curves]  # so that equal ends do not hide each other
        axes[-1].semilogy(beside, ends, "o", color=COLOURS[method], label=method)
    axes[-1].set(title="where each start ends", xlabel="start", ylabel="training loss at the end", xticks=list(curves))
    axes[-1].grid(alpha=0.3)
    return figure
