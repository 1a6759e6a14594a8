"""A check of the convergence theorem: squared gradients, path lengths and the smallest eigenvalue of K_mm.

The theorem bounds the squared norm of the gradient of the loss L with respect to B. The minimum of this squared norm
over the first N steps (iterations) is at most ``C / N``. The constant is ``C = L(B0, alpha0) / (c s)``, where
L(B0, alpha0) is the initial loss, c is the constant of the Armijo condition and s is the smallest step size. If the
norm constraint on B is active, the gradient need not converge to zero, but the gradient mapping
``(B - proj(B - t dL/dB)) / t`` does. Here t is the step size of the iteration, and proj is the projection onto the maps
that satisfy the norm constraint. For AGD the gradient mapping also includes the gradient with respect to alpha. Both
the gradient and the gradient mapping are recorded. The length of a path is the sum of the distances between successive
iterates.

The theorem assumes that the smallest eigenvalue of K_mm, the kernel matrix of the centers, is bounded away from zero.
The assumption fails if the map moves two centers to the same point. The number of runs in which the assumption fails is
reported, and the claims are checked on all other runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from hkrr._base.linear_algebra import Array
from hkrr.centers import uniform
from hkrr.datasets import make_mim_sines
from hkrr.experiments.experiment_runner import Case, Claim, Table, quick_config
from hkrr.experiments.figures import COLOURS, panels
from hkrr.experiments.paper_setting import METHODS, draw_map, seed_of, solver
from hkrr.experiments.result_store import column
from hkrr.kernels import Gaussian
from hkrr.kernels.base import with_median_gamma
from hkrr.objective import Objective
from hkrr.rows import InMemoryRows
from hkrr.solvers import State
from hkrr.solvers import run as run_solver

# The Armijo constant c with which `paper_setting.solver` creates VarPro and AGD.
_ARMIJO = 1e-4
# Maximum number of iterations whose statistics are stored for each run.
_POINTS = 150
# A run is excluded from the claims if its loss fell by less than this fraction, because it hardly moved.
_MOVED = 0.01
# A run is considered converged if its squared gradient, divided by the squared gradient at the starting map, is at most
# this number.
_CONVERGED = 1e-12
# A run violates the assumption on K_mm if the smallest eigenvalue of K_mm falls below this value.
_SIGMA = 1e-4


@dataclass(frozen=True)
class Config:
    """A problem for which many runs satisfy the assumptions of the theorem.

    K_mm is well conditioned because there are only 5 centers, and because gamma is 4 times the value of the median
    heuristic.
    """

    n_samples: int = 300
    n_features: int = 10
    n_components: int = 2
    n_centers: int = 5
    reg_lambda: float = 0.01
    gamma_factor: float = 4.0
    n_iterations: int = 20000
    repeats: int = 5
    seed: int = 0

    quick = quick_config(n_samples=100, n_features=5, n_iterations=500, repeats=2)


def cases(config: Config) -> list[Case]:
    """Return one case (a run) for each combination of a starting map and a method."""
    return [{"start": start, "method": method} for start in range(config.repeats) for method in METHODS]


def run_case(config: Config, case: Case) -> Table:
    """Return statistics of one run at selected iterations, which are evenly spaced on a log scale."""
    d, D = config.n_components, config.n_features
    data = make_mim_sines(config.n_samples, D, d, random_state=seed_of(config.seed, 0, "data"))
    rows = InMemoryRows(data.X, data.y)
    rng = np.random.RandomState(seed_of(config.seed, case["start"], "start"))
    B0 = draw_map(d, D, "normal", rng)
    kernel = with_median_gamma(Gaussian(), data.X, B0, config.gamma_factor)
    objective = Objective(rows, uniform(rows, config.n_centers, rng), kernel, config.reg_lambda)
    records: list[dict[str, float]] = []
    iterates: list[tuple[Array, Array]] = []

    def record(state: State) -> None:
        C = objective.centers @ state.B.T
        records.append(
            {
                "loss": state.objective,
                "squared_gradient": float(np.sum(objective.value_and_grad_B(state.B, state.alpha)[1] ** 2)),
                "squared_mapping": state.grad_norm**2,
                "least_eigenvalue": float(np.linalg.eigvalsh(kernel(C, C))[0]),
                "step": state.step,
                "norm_of_B": float(np.linalg.norm(state.B, 2)),
            }
        )
        iterates.append((state.B, state.alpha))

    run_solver(solver(case["method"]), objective, B0, max_iter=config.n_iterations, tol=1e-9, callbacks=[record])
    steps_B, steps_alpha = (_step_lengths([iterate[k] for iterate in iterates]) for k in (0, 1))
    least = {name: np.minimum.accumulate([record[name] for record in records]) for name in records[0]}
    paths = {"path_of_B": np.cumsum(steps_B), "path_of_alpha": np.cumsum(steps_alpha)}
    kept = np.unique(np.geomspace(1, len(records), _POINTS).astype(int)) - 1
    return [
        {
            **case,
            "iteration": int(k + 1),
            "loss": records[k]["loss"],
            "least_squared_gradient": float(least["squared_gradient"][k]),
            "least_squared_mapping": float(least["squared_mapping"][k]),
            "least_eigenvalue": float(least["least_eigenvalue"][k]),
            "least_step": float(least["step"][k]),
            "norm_of_B": records[k]["norm_of_B"],
            **{name: float(values[k]) for name, values in paths.items()},
        }
        for k in kept
    ]


def _step_lengths(points: list[Array]) -> list[float]:
    """Return the distance of each point from the previous point, and 0 for the first point."""
    return [0.0, *(float(np.linalg.norm(after - before)) for before, after in pairwise(points))]


def _runs(table: Table, method: str) -> list[Table]:
    starts = sorted(set(column(table, "start")))
    runs = ([row for row in table if row["start"] == start and row["method"] == method] for start in starts)
    return [rows for rows in runs if rows]


def _satisfies_assumptions(rows: Table) -> bool:
    """Return whether a run is used for the claims.

    The loss of the run must fall by more than 1%, and the smallest eigenvalue of K_mm must stay at or above 1e-4.
    """
    moved = rows[-1]["loss"] < (1.0 - _MOVED) * rows[0]["loss"]
    return bool(moved and rows[-1]["least_eigenvalue"] >= _SIGMA)


def bound_used(rows: Table, name: str) -> float:
    """Return the largest ``N min |gradient|^2`` of a run over all N, divided by the theorem's constant C.

    The minimum is over the first N steps, and `name` is the column of the table that contains it. The run satisfies the
    bound of the theorem if the returned number is at most 1.
    """
    constant = rows[0]["loss"] / (_ARMIJO * rows[-1]["least_step"])
    return float(max(row["iteration"] * row[name] for row in rows) / constant)


def exponent(rows: Table, name: str) -> float:
    """Fit ``n^p`` to the column `name` over the last decade of steps n (from N / 10 to N), and return the exponent p.

    N is the number of steps of the run. If the run has converged, return minus infinity. If there are fewer than three
    rows to fit, return NaN.
    """
    last = [row for row in rows if row["iteration"] >= rows[-1]["iteration"] / 10 and row[name] > 0]
    if rows[-1][name] <= _CONVERGED * rows[0][name]:
        return float("-inf")
    if len(last) < 3:
        return float("nan")
    return float(np.polyfit(np.log([row["iteration"] for row in last]), np.log([row[name] for row in last]), 1)[0])


def late_share(rows: Table, name: str) -> float:
    """Return the fraction of a path's length that the last 90% of the steps add, or 0 if the run has converged."""
    if rows[-1]["least_squared_mapping"] <= _CONVERGED * rows[0]["least_squared_mapping"]:
        return 0.0
    early = max(row[name] for row in rows if row["iteration"] <= max(1.0, rows[-1]["iteration"] / 10))
    return 1.0 - early / rows[-1][name] if rows[-1][name] > 0 else 0.0


def claims(table: Table) -> list[Claim]:
    """Check the bound C / N, the rate at which the gradient decreases, and the finite length of the paths."""
    found = []
    for method in ("VarPro", "AGD"):
        every = _runs(table, method)
        runs = [rows for rows in every if _satisfies_assumptions(rows)]
        singular = sum(rows[-1]["least_eigenvalue"] < _SIGMA for rows in every)
        which = (
            f"{len(runs)} of {len(every)} runs satisfy the assumptions; "
            f"in {singular} runs, the smallest eigenvalue of K_mm fell below {_SIGMA:g}"
        )
        on_boundary = sum(rows[-1]["norm_of_B"] > 1.0 - 1e-9 for rows in runs)
        used = max((bound_used(rows, "least_squared_gradient") for rows in runs), default=0.0)
        found.append(
            Claim(
                f"N min |grad_B|^2 stays below the theorem's constant ({method})",
                used <= 1.0 if runs else None,
                f"at most {used:.1e} of the constant; {which}",
            )
        )
        for name, text in (("gradient", "|grad_B|^2"), ("mapping", "|gradient mapping|^2")):
            exponents = [exponent(rows, f"least_squared_{name}") for rows in runs]
            slowest = max((value for value in exponents if not np.isnan(value)), default=np.nan)
            found.append(
                Claim(
                    f"min {text} decreases at least as fast as 1 / N over the last decade of steps ({method})",
                    None if np.isnan(slowest) else slowest <= -1.0,
                    f"{_slowest_run(slowest)}; {on_boundary} runs end on the boundary |B| = 1; {which}",
                )
            )
        for variable in ("B", "alpha"):
            share = max((late_share(rows, f"path_of_{variable}") for rows in runs), default=0.0)
            found.append(
                Claim(
                    f"the path of {variable} gains less than 10% of its length in the last 90% of the steps ({method})",
                    share < 0.1 if runs else None,
                    f"largest gain {share:.1%}; {which}",
                )
            )
    return found


def _slowest_run(exponent: float) -> str:
    """Return the exponent of the run in which a quantity decreases most slowly, as a phrase for the claim."""
    if np.isnan(exponent):
        return "no run has enough steps for an exponent"
    if np.isneginf(exponent):
        return f"the quantity fell to at most {_CONVERGED:g} of its first value in every run"
    if exponent > -0.005:
        return "the quantity hardly decreased in the slowest run"
    return f"exponent of the slowest run: {exponent:.2f}"


def plot(table: Table) -> Any:
    """Plot each quantity against the number of steps, with one line for each starting map."""
    quantities = {
        "N min |grad_B|^2": ("least_squared_gradient", True),
        "N min |gradient mapping|^2": ("least_squared_mapping", True),
        "path length of B": ("path_of_B", False),
        "path length of alpha": ("path_of_alpha", False),
        "smallest eigenvalue of K_mm so far": ("least_eigenvalue", False),
    }
    figure, axes = panels(len(quantities), (20, 4))
    for ax, (title, (name, times_n)) in zip(axes, quantities.items(), strict=True):
        for method in METHODS:
            for k, rows in enumerate(_runs(table, method)):
                n = np.array([row["iteration"] for row in rows])
                values = np.array([row[name] if row[name] > 0 else np.nan for row in rows]) * (n if times_n else 1)
                ax.loglog(n, values, color=COLOURS[method], alpha=0.8, lw=1.2, label=method if k == 0 else None)
        ax.set(title=title, xlabel="N")
    axes[0].legend(frameon=False)
    return figure
