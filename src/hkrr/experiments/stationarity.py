"""The convergence theorem, looked at: N times the least squared gradient after N steps, path lengths, eigenvalues.

The theorem bounds the gradient in B itself by ``C / N``, with ``C = L(B0, alpha0) / (c s)``, s the least step taken.
Where the bound on the norm of B holds a map on the sphere that gradient need not vanish: there the gradient mapping
``(B - proj(B - s dL/dB)) / s`` does (with the gradient in alpha, for AGD). Both are kept.

It supposes that the least eigenvalue of K_mm stays away from nought. A map can bring two centers together, and then it
does not: such runs are counted, and the claims are of the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from hkrr._arrays import Array
from hkrr.centers import uniform
from hkrr.datasets import make_mim_sines
from hkrr.experiments.base import COLOURS, Case, Claim, Table, run_all
from hkrr.experiments.paper import METHODS, draw_map, seed_of, solver
from hkrr.experiments.store import column
from hkrr.kernels import Gaussian
from hkrr.objective import Objective
from hkrr.rows import InMemoryRows
from hkrr.solvers import State
from hkrr.solvers import run as run_solver

_ARMIJO = 1e-4  # c, as in `paper.solver`
_POINTS = 150
_MOVED = 0.01  # a loss that has fallen by less than this share says nothing about convergence
_AT_REST = 1e-12  # a squared gradient that has fallen to so much of the first one: what is left is rounding
_SIGMA = 1e-4  # a least eigenvalue of K_mm below this is not away from nought


@dataclass(frozen=True)
class Config:
    """A problem that suits the theorem: few centers, and a kernel narrower than the median rule's, for a sound K_mm."""

    n_samples: int = 300
    n_features: int = 10
    n_components: int = 2
    n_centers: int = 5
    reg_lambda: float = 0.01
    gamma_factor: float = 4.0
    n_iterations: int = 20000
    repeats: int = 5
    seed: int = 0

    @classmethod
    def quick(cls, seed: int = 0) -> Config:
        """Return what takes seconds."""
        return cls(n_samples=100, n_features=5, n_centers=5, n_iterations=500, repeats=2, seed=seed)


def cases(config: Config) -> list[Case]:
    """Return each start and method."""
    return [{"start": start, "method": method} for start in range(config.repeats) for method in METHODS]


def run_case(config: Config, case: Case) -> Table:
    """Return the run at some of its iterations, evenly over their logarithm."""
    d, D = config.n_components, config.n_features
    data = make_mim_sines(config.n_samples, D, d, random_state=seed_of(config.seed, 0, "data"))
    rows = InMemoryRows(data.X, data.y)
    rng = np.random.RandomState(seed_of(config.seed, case["start"], "start"))
    B0 = draw_map(d, D, "normal", rng)
    kernel = Gaussian(gamma=config.gamma_factor * Gaussian().median_gamma(data.X @ B0.T))
    objective = Objective(rows, uniform(rows, config.n_centers, rng), kernel, config.reg_lambda)
    told: list[dict[str, float]] = []
    places: list[tuple[Array, Array]] = []

    def record(state: State) -> None:
        C = objective.centers @ state.B.T
        told.append(
            {
                "loss": state.objective,
                "squared_gradient": float(np.sum(objective.value_and_grad_B(state.B, state.alpha)[1] ** 2)),
                "squared_mapping": state.grad_norm**2,
                "least_eigenvalue": float(np.linalg.eigvalsh(kernel(C, C))[0]),
                "step": state.step,
                "norm_of_B": float(np.linalg.norm(state.B, 2)),
            }
        )
        places.append((state.B, state.alpha))

    run_solver(solver(case["method"]), objective, B0, max_iter=config.n_iterations, tol=1e-9, callbacks=[record])
    steps_B, steps_alpha = (_lengths([place[k] for place in places]) for k in (0, 1))
    least = {name: np.minimum.accumulate([each[name] for each in told]) for name in told[0]}
    paths = {"path_of_B": np.cumsum(steps_B), "path_of_alpha": np.cumsum(steps_alpha)}
    kept = np.unique(np.geomspace(1, len(told), _POINTS).astype(int)) - 1
    return [
        {
            **case,
            "iteration": int(k + 1),
            "loss": told[k]["loss"],
            "least_squared_gradient": float(least["squared_gradient"][k]),
            "least_squared_mapping": float(least["squared_mapping"][k]),
            "least_eigenvalue": float(least["least_eigenvalue"][k]),
            "least_step": float(least["step"][k]),
            "norm_of_B": told[k]["norm_of_B"],
            **{name: float(values[k]) for name, values in paths.items()},
        }
        for k in kept
    ]


def _lengths(points: list[Array]) -> list[float]:
    """Return the length of each step, with nought for the start."""
    return [0.0, *(float(np.linalg.norm(after - before)) for before, after in pairwise(points))]


def run(config: Config) -> Table:
    """Return all the runs."""
    return run_all(config, cases(config), run_case)


def _runs(table: Table, method: str) -> list[Table]:
    starts = sorted(set(column(table, "start")))
    runs = ([row for row in table if row["start"] == start and row["method"] == method] for start in starts)
    return [rows for rows in runs if rows]


def _suits(rows: Table) -> bool:
    """Return whether a run moved at all, and kept to what the theorem supposes."""
    moved = rows[-1]["loss"] < (1.0 - _MOVED) * rows[0]["loss"]
    return bool(moved and rows[-1]["least_eigenvalue"] >= _SIGMA)


def bound_used(rows: Table, name: str) -> float:
    """Return the largest ``N min |gradient|^2`` of a run over the theorem's constant ``L0 / (c s)``."""
    constant = rows[0]["loss"] / (_ARMIJO * rows[-1]["least_step"])
    return float(max(row["iteration"] * row[name] for row in rows) / constant)


def exponent(rows: Table, name: str) -> float:
    """Return the exponent of N by which a quantity grows over the last decade of steps."""
    last = [row for row in rows if row["iteration"] >= rows[-1]["iteration"] / 10 and row[name] > 0]
    if rows[-1][name] <= _AT_REST * rows[0][name]:
        return float("-inf")  # nothing is left to fall but rounding
    if len(last) < 3:
        return float("nan")  # too few steps to tell
    return float(np.polyfit(np.log([row["iteration"] for row in last]), np.log([row[name] for row in last]), 1)[0])


def left_to_go(rows: Table, name: str) -> float:
    """Return the share of a path that the last nine tenths of the steps add; none where the run has come to rest."""
    if rows[-1]["least_squared_mapping"] <= _AT_REST * rows[0]["least_squared_mapping"]:
        return 0.0
    early = max(row[name] for row in rows if row["iteration"] <= max(1.0, rows[-1]["iteration"] / 10))
    return 1.0 - early / rows[-1][name] if rows[-1][name] > 0 else 0.0


def claims(table: Table) -> list[Claim]:
    """Return whether the bound C / N holds, how fast the gradient falls, and whether the paths come to an end."""
    found = []
    for method in ("VarPro", "AGD"):
        every = _runs(table, method)
        runs = [rows for rows in every if _suits(rows)]
        singular = sum(rows[-1]["least_eigenvalue"] < _SIGMA for rows in every)
        of = f"{len(runs)} of {len(every)} starts; in {singular} the least eigenvalue of K_mm fell below {_SIGMA:g}"
        outside = sum(rows[-1]["norm_of_B"] > 1.0 - 1e-9 for rows in runs)
        used = max((bound_used(rows, "least_squared_gradient") for rows in runs), default=0.0)
        found.append(
            Claim(
                f"N min |grad_B|^2 stays below the theorem's constant ({method})",
                used <= 1.0 if runs else None,
                f"at most {used:.1e} of it; {of}",
            )
        )
        for name, text in (("gradient", "|grad_B|^2"), ("mapping", "|gradient mapping|^2")):
            exponents = [exponent(rows, f"least_squared_{name}") for rows in runs]
            slowest = max((value for value in exponents if not np.isnan(value)), default=np.nan)
            found.append(
                Claim(
                    f"min {text} falls at least as 1 / N over the last decade of steps ({method})",
                    None if np.isnan(slowest) else slowest <= -1.0,
                    ("" if np.isnan(slowest) else f"slowest as N^{slowest:.2f}; ")
                    + f"{outside} runs end on the sphere |B| = 1; {of}",
                )
            )
        for variable in ("B", "alpha"):
            rest = max((left_to_go(rows, f"path_of_{variable}") for rows in runs), default=0.0)
            found.append(
                Claim(
                    f"the path of {variable} has finite length: the last 9/10 of steps add under a tenth ({method})",
                    rest < 0.1 if runs else None,
                    f"at most {rest:.1%}; {of}",
                )
            )
    return found


def plot(table: Table) -> Any:
    """Draw the quantities against the number of steps, a line a start."""
    import matplotlib.pyplot as plt

    panels = {
        "N min |grad_B|^2": ("least_squared_gradient", True),
        "N min |gradient mapping|^2": ("least_squared_mapping", True),
        "path length of B": ("path_of_B", False),
        "path length of alpha": ("path_of_alpha", False),
        "least eigenvalue of K_mm so far": ("least_eigenvalue", False),
    }
    figure, axes = plt.subplots(1, len(panels), figsize=(20, 4), layout="constrained")
    for ax, (title, (name, times_n)) in zip(axes, panels.items(), strict=True):
        for method in METHODS:
            for k, rows in enumerate(_runs(table, method)):
                n = np.array([row["iteration"] for row in rows])
                values = np.array([row[name] if row[name] > 0 else np.nan for row in rows]) * (n if times_n else 1)
                ax.loglog(n, values, color=COLOURS[method], alpha=0.8, lw=1.2, label=method if k == 0 else None)
        ax.set(title=title, xlabel="N")
        ax.grid(alpha=0.3)
    axes[0].legend(frameon=False)
    return figure
