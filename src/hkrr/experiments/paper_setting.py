"""The setting of the paper's experiments (appendix D.1): data splits, starting maps, time budgets and the exact refit.

Ten random maps with spectral norm 1 are sampled, and the map with the lowest validation error is the starting map. The
median heuristic at this map sets gamma. All methods use the same starting map, gamma and centers. Each method then runs
for its time budget. In the final step, the refit, kernel ridge regression is fitted to the inputs projected by the
learned map. The gamma and lambda of this regression are chosen on the validation rows, and R2 is computed on the test
rows.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from hkrr._base.linear_algebra import Array
from hkrr._maps import KernelExpansion
from hkrr.baselines.kernel_ridge import decompose
from hkrr.centers import uniform
from hkrr.datasets import make_mim_mixed, make_mim_sines
from hkrr.experiments.result_store import Case
from hkrr.kernels import Gaussian
from hkrr.kernels.base import with_median_gamma
from hkrr.metrics import subspace_distance
from hkrr.objective import Objective
from hkrr.rows import InMemoryRows
from hkrr.solvers import AGD, LBFGS, Solver, VarPro, run
from hkrr.solvers.initialization import sample_map

METHODS = ("VarPro", "AGD", "L-BFGS")
# Distributions of the entries of sampled maps. The first one is the default of the experiments.
STARTS = ("uniform", "normal")
# Functions that generate the paper's data sets 1 and 2.
_MAKE = {1: make_mim_sines, 2: make_mim_mixed}
# Number of sampled maps from which the starting map is chosen.
_N_MAPS = 10
# Maximum number of iterations. It is never reached, because the time budget ends a run.
_UNLIMITED = 10**9
# Maximum number of centers in the fits that choose gamma and lambda for the refit.
_CHOICE_CENTERS = 1_000


def solver(method: str, **options: Any) -> Solver:
    """Return a solver by name. The `options` are passed to VarPro and AGD only.

    The parameters rho, delta, c, n_alpha and memory are set here, so that a change of the library's defaults does not
    change them.
    """
    armijo: dict[str, Any] = {"rho": 0.5, "delta": 0.8, "c": 1e-4}
    solvers: dict[str, Solver] = {
        "VarPro": VarPro(**armijo, **options),
        "AGD": AGD(**armijo, n_alpha=10, **options),
        "L-BFGS": LBFGS(memory=10),
    }
    return solvers[method]


def seed_of(seed: int, repeat: int, role: str) -> int:
    """Return a seed that is different for each repeat and each role ("data", "start" or "model").

    With the same seed for all roles, the entries of a starting map could equal the entries of the true map.
    """
    roles = ("data", "start", "model")
    return int(np.random.SeedSequence([seed, repeat, roles.index(role)]).generate_state(1)[0])


def draw_map(d: int, D: int, entries: str, rng: np.random.RandomState) -> Array:
    """Draw a map with uniform entries in [0, 1] or with normal entries, and divide it by its spectral norm.

    `entries` is "uniform" or "normal".

    The paper draws the true maps with uniform entries, and the starting maps "randomly in the ball" without saying how.
    A map with uniform entries is a good starting map, because its entries are positive, like the entries of the true
    map.
    """
    if entries == "normal":
        return sample_map(d, D, rng)
    B = rng.uniform(0.0, 1.0, (d, D))
    return B / np.linalg.norm(B, 2)


class Split(NamedTuple):
    """Training, validation and test rows of a data set, and the true map B."""

    X: Array
    y: Array
    X_validation: Array
    y_validation: Array
    X_test: Array
    y_test: Array
    B: Array


def draw(data_set: int, n_train: int, n_validation: int, n_test: int, D: int, d: int, seed: int) -> Split:
    """Draw one of the paper's two data sets, and split it into training, validation and test rows."""
    data = _MAKE[data_set](n_train + n_validation + n_test, D, d, random_state=seed)
    ends = np.cumsum([n_train, n_validation])
    X, y = np.split(data.X, ends), np.split(data.y, ends)
    return Split(X[0], y[0], X[1], y[1], X[2], y[2], data.B)


class Start(NamedTuple):
    """The objective and the starting map, which are the same for all methods."""

    objective: Objective
    B: Array


def best_start(split: Split, d: int, n_centers: int, reg_lambda: float, entries: str, seed: int) -> Start:
    """Return the map with the lowest validation error among ten sampled maps, and its objective.

    This is the rule in section 5 of the paper. `entries` is the distribution of the entries of the maps, one of
    `STARTS`.
    """
    rng = np.random.RandomState(seed)
    rows = InMemoryRows(split.X, split.y)
    centers = uniform(rows, n_centers, rng)
    starts = []
    for _ in range(_N_MAPS):
        B = draw_map(d, split.X.shape[1], entries, rng)
        kernel = with_median_gamma(Gaussian(), split.X, B)
        objective = Objective(rows, centers, kernel, reg_lambda)
        predicted = KernelExpansion(kernel, B, centers, objective.solve_alpha(B)).at(split.X_validation)
        starts.append((_mean_squared_error(predicted, split.y_validation), Start(objective, B)))
    return min(starts, key=lambda start: start[0])[1]


class Budget(NamedTuple):
    """The parameters that all methods share."""

    n_centers: int
    reg_lambda: float
    # Time budget of a run in seconds.
    seconds: float
    # Distribution of the entries of the starting maps, one of `STARTS`.
    entries: str


class Grid(NamedTuple):
    """The values of lambda and gamma that the refit tries."""

    lambdas: tuple[float, ...] = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8)
    # The values of gamma, as multiples of the value of the median heuristic.
    scales: tuple[float, ...] = (0.1, 0.3, 1.0, 3.0, 10.0)


def learn_and_score(split: Split, method: str, d: int, budget: Budget, grid: Grid, seed: int) -> dict[str, float]:
    """Run a method for its time budget. Return the test R2 of the learned map and statistics of the run."""
    start = best_start(split, d, budget.n_centers, budget.reg_lambda, budget.entries, seed)
    began = time.perf_counter()
    options: dict[str, Any] = {"max_iter": _UNLIMITED, "tol": 0.0, "time_limit": budget.seconds}
    result = run(solver(method), start.objective, start.B, **options)
    seconds = time.perf_counter() - began
    return {
        "R2": refit(split, result.B, grid),
        "R2_of_start": refit(split, start.B, grid),
        "objective": float(result.objective),
        "subspace_distance": float(subspace_distance(result.B, split.B)),
        "iterations": int(result.n_iter),
        "seconds": seconds,
    }


@dataclass(frozen=True, kw_only=True)
class Figure2Config:
    """The fields that the two experiments of figure 2 have in common."""

    n_validation: int = 600
    n_test: int = 4800
    n_features: int = 50
    n_components: int = 3
    n_centers: int = 5
    reg_lambda: float = 1e-7
    seconds: float = 60.0
    starts: str = STARTS[0]
    lambdas: tuple[float, ...] = Grid().lambdas
    scales: tuple[float, ...] = Grid().scales
    repeats: int = 5
    seed: int = 0

    def scores(self, data_set: int, n_train: int, case: Case) -> dict[str, float]:
        """Run the method of a case on rows of a data set. Return the result of `learn_and_score`."""
        data_seed, seed = (seed_of(self.seed, case["repeat"], role) for role in ("data", "start"))
        sizes = n_train, self.n_validation, self.n_test, self.n_features, self.n_components
        budget = Budget(self.n_centers, self.reg_lambda, self.seconds, self.starts)
        split, grid = draw(data_set, *sizes, data_seed), Grid(self.lambdas, self.scales)
        return learn_and_score(split, case["method"], case["d"], budget, grid, seed)


def refit(split: Split, B: Array, grid: Grid) -> float:
    """Return the test R2 of kernel ridge regression on the projected inputs ``X B'``.

    The gamma and lambda with the lowest error on the validation rows are used. The fits that choose gamma and lambda
    use at most 1,000 centers, and one decomposition for all values of lambda. In the final fit, all rows are centers.
    """
    P, P_validation, P_test = (X @ B.T for X in (split.X, split.X_validation, split.X_test))
    rows = InMemoryRows(P, split.y)
    C = uniform(rows, min(_CHOICE_CENTERS, len(P)), np.random.RandomState(0))
    gamma = with_median_gamma(Gaussian(), P).scale
    best, lowest = (gamma, grid.lambdas[0]), math.inf
    for scale in grid.scales:
        kernel = Gaussian(gamma=gamma * scale)
        errors = _errors_along_lambda(kernel, P, split.y, C, P_validation, split.y_validation, grid.lambdas)
        k = int(np.argmin(errors))
        if errors[k] < lowest:
            best, lowest = (gamma * scale, grid.lambdas[k]), errors[k]
    kernel = Gaussian(gamma=best[0])
    alpha = Objective(rows, None, kernel, best[1]).solve_alpha(np.eye(len(B)))
    function = KernelExpansion(kernel, np.eye(len(B)), P, alpha)
    predicted = function.of_rows(InMemoryRows(P_test, split.y_test))
    return 1.0 - _mean_squared_error(predicted, split.y_test) / float(np.var(split.y_test))


def _errors_along_lambda(
    kernel: Gaussian, P: Array, y: Array, C: Array, P_validation: Array, y_validation: Array, lambdas: Sequence[float]
) -> list[float]:
    """Return the mean squared error on the validation rows for each lambda, with the rows of C as centers."""
    path = decompose(kernel, P, C)
    alpha = np.hstack([path.alpha(y[:, None], reg_lambda) for reg_lambda in lambdas])
    predicted = KernelExpansion(kernel, np.eye(P.shape[1]), C, alpha).at(P_validation)
    return [_mean_squared_error(column[:, None], y_validation) for column in predicted.T]


def _mean_squared_error(predicted: Array, y: Array) -> float:
    return float(np.mean((predicted[:, 0] - y) ** 2))
