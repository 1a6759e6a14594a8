"""The convergence theorem, looked at: N times the least squared gradient after N steps, path lengths, eigenvalues.

The theorem bounds the gradient in B itself, which need not vanish where the bound on the norm of B holds a map on the
sphere: there the gradient mapping ``(B - proj(B - s dL/dB)) / s`` does (with the gradient in alpha, for AGD). Both are
kept.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from hkrr._arrays import Array
from hkrr.centers import uniform
from hkrr.datasets import make_mim_sines
from hkrr.experiments.base import COLOURS, Case, Claim, Table, run_all
from hkrr.experiments.paper import METHODS, seeds, solver
from hkrr.initialization import sample_map
from hkrr.kernels import Gaussian
from hkrr.objective import Objective
from hkrr.rows import InMemoryRows
from hkrr.solvers import State
from hkrr.solvers import run as run_solver

_POINTS = 150


@dataclass(frozen=True)
class Config:
    """A problem small enough for thousands of steps."""

    n_samples: int = 300
    n_features: int = 20
    n_components: int = 2
    n_centers: int = 20
    reg_lambda: float = 1e-3
    n_iterations: int = 3000
    repeats: int = 5
    seed: int = 0

    @classmethod
    def quick(cls, seed: int = 0) -> Config:
        """Return what takes seconds."""
        return cls(n_samples=100, n_features=8, n_centers=8, n_iterations=100, repeats=2, seed=seed)


def cases(config: Config) -> list[Case]:
    """Return each start and method."""
    return [{"start": start, "method": method} for start in range(config.repeats) for method in METHODS]


def run_case(config: Config, case: Case) -> Table:
    """Return the run at some of its iterations, evenly over their logarithm."""
    data = make_mim_sines(config.n_samples, config.n_features, config.n_components, random_state=config.seed)
    rng = np.random.RandomState(seeds(config.seed, case["start"]).model)
    rows = InMemoryRows(data.X, data.y)
    B0 = sample_map(config.n_components, config.n_features, rng)
    kernel = Gaussian().with_gamma(Gaussian().median_gamma(data.X @ B0.T))
    objective = Objective(rows, uniform(rows, config.n_centers, rng), kernel, config.reg_lambda)
    told: list[_Told] = []

    def record(state: State) -> None:
        gradient = float(np.linalg.norm(objective.value_and_grad_B(state.B, state.alpha)[1]))
        C = objective.centers @ state.B.T
        least = float(np.linalg.eigvalsh(kernel(C, C))[0])
        told.append(
            _Told(gradient**2, state.grad_norm**2, state.B, state.alpha, least, float(np.linalg.norm(state.B, 2)))
        )

    run_solver(solver(case["method"]), objective, B0, max_iter=config.n_iterations, tol=0.0, callbacks=[record])
    least_gradient = np.minimum.accumulate([each.squared_gradient for each in told])
    least_mapping = np.minimum.accumulate([each.squared_mapping for each in told])
    path_of_B = _length([each.B for each in told])
    path_of_alpha = _length([each.alpha for each in told])
    kept = np.unique(np.geomspace(1, len(told), _POINTS).astype(int)) - 1
    return [
        {
            **case,
            "iteration": int(k + 1),
            "least_squared_gradient": float(least_gradient[k]),
            "least_squared_mapping": float(least_mapping[k]),
            "path_of_B": float(path_of_B[k]),
            "path_of_alpha": float(path_of_alpha[k]),
            "least_eigenvalue": told[k].least_eigenvalue,
            "norm_of_B": told[k].norm,
        }
        for k in kept
    ]


class _Told(NamedTuple):
    """What is kept of an iterate."""

    squared_gradient: float
    squared_mapping: float
    B: Array
    alpha: Array
    least_eigenvalue: float
    norm: float


def _length(points: list[Array]) -> Array:
    """Return the length of the path up to each point."""
    steps = [float(np.linalg.norm(after - before)) for before, after in pairwise(points)]
    return np.cumsum([0.0, *steps])


def run(config: Config) -> Table:
    """Return all the runs."""
    return run_all(config, cases(config), run_case)


def _runs(table: Table, method: str) -> list[Table]:
    starts = sorted({row["start"] for row in table})
    return [[row for row in table if row["start"] == start and row["method"] == method] for start in starts]


def claims(table: Table) -> list[Claim]:
    """Return whether the bound C / N holds, and whether the paths are of finite length, for both algorithms."""
    found = []
    for method in ("VarPro", "AGD"):
        runs = _runs(table, method)
        least = min(row["least_eigenvalue"] for rows in runs for row in rows)
        outside = sum(rows[-1]["norm_of_B"] > 1.0 - 1e-9 for rows in runs)
        for name, text in (("gradient", "|grad_B|^2, as printed,"), ("mapping", "|gradient mapping|^2")):
            bounded = sum(_bounded(rows, f"least_squared_{name}") for rows in runs)
            found.append(
                Claim(
                    f"N min {text} stays bounded: no larger in the second half of the steps than before ({method})",
                    bounded == len(runs),
                    f"{bounded} of {len(runs)} starts; {outside} end on the sphere |B| = 1",
                )
            )
        for of in ("B", "alpha"):
            rest = max(_second_half(rows, f"path_of_{of}") for rows in runs)
            found.append(
                Claim(
                    f"the path of {of} has finite length: the second half of the steps adds under a fifth ({method})",
                    rest < 0.2,
                    f"at most {rest:.1%}; least eigenvalue of K_mm on the way {least:.1e}",
                )
            )
    return found


def _bounded(rows: Table, name: str) -> bool:
    """Return whether N times that is no larger in the second half of the steps than in the first."""
    half = rows[-1]["iteration"] / 2
    early, late = (
        [r["iteration"] * r[name] for r in rows if (r["iteration"] <= half) is first] for first in (True, False)
    )
    return bool(max(late, default=0.0) <= max(early, default=math.inf))


def _second_half(rows: Table, name: str) -> float:
    """Return the share of a path that the second half of the steps adds."""
    at_half = max((row[name] for row in rows if row["iteration"] <= rows[-1]["iteration"] / 2), default=0.0)
    return 1.0 - at_half / rows[-1][name] if rows[-1][name] > 0 else 0.0


def plot(table: Table) -> Any:
    """Draw the four quantities against the number of steps, a line a start."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 5, figsize=(20, 4), layout="constrained")
    for method in METHODS:
        for k, rows in enumerate(_runs(table, method)):
            n = np.array([row["iteration"] for row in rows])
            style = {"color": COLOURS[method], "alpha": 0.8, "lw": 1.2, "label": method if k == 0 else None}
            axes[0].loglog(n, n * [max(row["least_squared_gradient"], 1e-32) for row in rows], **style)
            axes[1].loglog(n, n * [max(row["least_squared_mapping"], 1e-32) for row in rows], **style)
            axes[2].semilogx(n, [row["path_of_B"] for row in rows], **style)
            axes[3].loglog(n, [max(row["path_of_alpha"], 1e-12) for row in rows], **style)
            axes[4].loglog(n, [max(row["least_eigenvalue"], 1e-18) for row in rows], **style)
    titles = (
        "N min |grad_B|^2",
        "N min |gradient mapping|^2",
        "path length of B",
        "path length of alpha",
        "least eigenvalue of K_mm",
    )
    for ax, title in zip(axes, titles, strict=True):
        ax.set(title=title, xlabel="N")
        ax.grid(alpha=0.3)
    axes[0].legend(frameon=False)
    return figure
