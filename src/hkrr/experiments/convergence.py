"""Training loss against time, from many starts: where both algorithms arrive, and where AGD escapes (figure 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hkrr.datasets import make_mim_sines
from hkrr.estimator import HyperKernelRidge
from hkrr.experiments.base import COLOURS, Case, Claim, Table, run_all
from hkrr.experiments.paper import METHODS, seeds, solver
from hkrr.initialization import sample_map

_SAME = 0.05  # relative difference of losses that counts as the same end
_POINTS = 200  # of a loss curve that are kept


@dataclass(frozen=True)
class Config:
    """The paper's problem; its starts and seconds are not given there."""

    n_samples: int = 300
    n_features: int = 300
    n_components: int = 2
    n_centers: int = 5
    reg_lambda: float = 1e-7
    repeats: int = 10
    seconds: float = 30.0
    seed: int = 0

    @classmethod
    def quick(cls, seed: int = 0) -> Config:
        """Return what takes seconds."""
        return cls(n_features=30, repeats=3, seconds=0.5, seed=seed)


def cases(config: Config) -> list[Case]:
    """Return each start and method."""
    return [{"start": start, "method": method} for start in range(config.repeats) for method in METHODS]


def run_case(config: Config, case: Case) -> Table:
    """Return the loss curve of one run: the same data, centers and starting map for every method."""
    B = np.eye(config.n_components, config.n_features)
    data = make_mim_sines(config.n_samples, config.n_features, config.n_components, B=B, random_state=config.seed)
    start = sample_map(
        config.n_components, config.n_features, np.random.RandomState(seeds(config.seed, case["start"]).model)
    )
    model = HyperKernelRidge(
        config.n_components,
        reg_lambda=config.reg_lambda,
        n_centers=config.n_centers,
        solver=solver(case["method"]),
        init=start,
        scale_features=False,
        fit_intercept=False,
        max_iter=10**9,
        tol=0.0,
        time_limit=config.seconds,
        n_jobs=1,
        random_state=config.seed,
    ).fit(data.X, data.y)
    seconds, loss = np.array(model.history_["time"]), np.array(model.history_["objective"])
    # As many points as a curve needs, evenly over the logarithm of the time, with the first and the last.
    wanted = np.geomspace(max(seconds[0], 1e-4), max(seconds[-1], 2e-4), _POINTS)
    kept = np.unique([0, *np.minimum(np.searchsorted(seconds, wanted), len(loss) - 1), len(loss) - 1])
    return [{**case, "seconds": float(seconds[k]), "iteration": int(k), "loss": float(loss[k])} for k in kept]


def run(config: Config) -> Table:
    """Return all the curves."""
    return run_all(config, cases(config), run_case)


def _curve(table: Table, start: int, method: str) -> tuple[list[float], list[float]]:
    rows = [row for row in table if row["start"] == start and row["method"] == method]
    return [row["seconds"] for row in rows], [row["loss"] for row in rows]


def _ends(table: Table) -> dict[int, dict[str, float]]:
    """Return the last loss of each method, for each start."""
    ends: dict[int, dict[str, float]] = {}
    for row in table:
        ends.setdefault(row["start"], {})[row["method"]] = row["loss"]
    return ends


def _seconds_to(table: Table, start: int, method: str, loss: float) -> float:
    """Return when a run first came within the tolerance of a loss."""
    seconds, losses = _curve(table, start, method)
    return next(second for second, value in zip(seconds, losses, strict=True) if value <= (1.0 + _SAME) * loss)


def claims(table: Table) -> list[Claim]:
    """Return the two claims about the algorithms."""
    ends = _ends(table)
    lower = [start for start, end in ends.items() if end["AGD"] < (1.0 - _SAME) * end["VarPro"]]
    found = [
        Claim("AGD ends lower than VarPro from most starts", len(lower) > len(ends) / 2, f"{len(lower)} of {len(ends)}")
    ]
    both = _both_arrive(ends)
    faster = [
        start
        for start in both
        if _seconds_to(table, start, "VarPro", max(ends[start]["AGD"], ends[start]["VarPro"]))
        < _seconds_to(table, start, "AGD", max(ends[start]["AGD"], ends[start]["VarPro"]))
    ]
    text = "VarPro is faster where both arrive"
    return [*found, Claim(text, len(faster) > len(both) / 2, f"{len(faster)} of {len(both)} starts")]


def _both_arrive(ends: dict[int, dict[str, float]]) -> list[int]:
    return [
        start
        for start, end in ends.items()
        if abs(end["AGD"] - end["VarPro"]) <= _SAME * min(end["AGD"], end["VarPro"])
    ]


def plot(table: Table) -> Any:
    """Draw the first start of each kind: where both arrive, and where AGD ends lower by most; then all the ends."""
    import matplotlib.pyplot as plt

    ends = _ends(table)
    both = _both_arrive(ends)
    escapes = max(ends, key=lambda start: ends[start]["VarPro"] / ends[start]["AGD"])
    shown = {f"start {both[0]}: both arrive": both[0]} if both else {}
    if ends[escapes]["AGD"] < (1.0 - _SAME) * ends[escapes]["VarPro"]:
        shown[f"start {escapes}: AGD ends lower"] = escapes
    if not shown:
        shown["start 0"] = min(ends)
    figure, axes = plt.subplots(1, len(shown) + 1, figsize=(4.4 * (len(shown) + 1), 3.8), layout="constrained")
    for ax, (title, start) in zip(axes, shown.items(), strict=False):
        for method in METHODS:
            ax.loglog(*_curve(table, start, method), color=COLOURS[method], label=method)
        ax.set(title=title, xlabel="seconds", ylabel="training loss")
        ax.grid(alpha=0.3)
    axes[0].legend(frameon=False)
    for method in METHODS:
        axes[-1].semilogy([end[method] for end in ends.values()], "o", color=COLOURS[method], label=method)
    axes[-1].set(title="where each start ends", xlabel="start", ylabel="training loss at the end")
    axes[-1].grid(alpha=0.3)
    return figure
