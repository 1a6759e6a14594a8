"""The paper's setting of its experiments (appendix D.1): data split three ways, starts, budgets, the exact refit.

Of ten maps sampled in the unit ball the one of least validation error is the start, with the gamma of the median rule
there, for every method alike; so are the centers. Then a method has its seconds; then kernel ridge regression on the
map it has found, gamma and lambda chosen on the validation rows, scores on the test rows.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import eigh, solve_triangular

from hkrr._arrays import EPS, Array, jittered_cholesky
from hkrr.centers import uniform
from hkrr.datasets import make_mim_mixed, make_mim_sines
from hkrr.initialization import sample_map
from hkrr.kernels import Gaussian
from hkrr.metrics import subspace_distance
from hkrr.objective import Objective
from hkrr.rows import InMemoryRows
from hkrr.solvers import AGD, LBFGS, Solver, VarPro, run

METHODS = ("VarPro", "AGD", "L-BFGS")
STARTS = ("uniform", "normal")  # how the entries of sampled maps are drawn
_MAKE = {1: make_mim_sines, 2: make_mim_mixed}
_UNLIMITED = 10**9
_CHOICE_CENTERS = 1_000  # of the fits that choose gamma and lambda of the refit
_MEDIAN_ROWS = 1_000


def solver(method: str, **options: Any) -> Solver:
    """Return the solver of that name, its parameters written out, so that no change of a default changes the paper."""
    armijo: dict[str, Any] = {"rho": 0.5, "delta": 0.8, "c": 1e-4}
    solvers: dict[str, Solver] = {
        "VarPro": VarPro(**armijo, **options),
        "AGD": AGD(**armijo, n_alpha=10, **options),
        "L-BFGS": LBFGS(memory=10),
    }
    return solvers[method]


def seed_of(seed: int, repeat: int, role: str) -> int:
    """Return a seed for one role of a repeat: from one stream a start could resemble the true map."""
    roles = ("data", "start", "model")
    return int(np.random.SeedSequence([seed, repeat, roles.index(role)]).generate_state(1)[0])


def draw_map(d: int, D: int, entries: str, rng: np.random.RandomState) -> Array:
    """Return a map of spectral norm 1: "uniform" entries in [0, 1], as the paper draws its true ones, or "normal" ones.

    The paper samples its starts "randomly in the ball" too, and does not say how. Uniform entries are positive, like
    those of the true map, which is a good start.
    """
    if entries == "normal":
        return sample_map(d, D, rng)
    B = rng.uniform(0.0, 1.0, (d, D))
    return B / np.linalg.norm(B, 2)


class Split(NamedTuple):
    """Rows to learn from, to choose by, and to test on."""

    X: Array
    y: Array
    X_validation: Array
    y_validation: Array
    X_test: Array
    y_test: Array
    B: Array


def draw(data_set: int, n_train: int, n_validation: int, n_test: int, D: int, d: int, seed: int) -> Split:
    """Draw one of the paper's two data sets, split three ways."""
    data = _MAKE[data_set](n_train + n_validation + n_test, D, d, random_state=seed)
    ends = np.cumsum([n_train, n_validation])
    X, y = np.split(data.X, ends), np.split(data.y, ends)
    return Split(X[0], y[0], X[1], y[1], X[2], y[2], data.B)


class Start(NamedTuple):
    """What every method begins with."""

    objective: Objective
    B: Array


def best_start(
    split: Split, d: int, n_centers: int, reg_lambda: float, entries: str, seed: int, n_maps: int = 10
) -> Start:
    """Return the sampled map of least validation error, with its gamma and the centers (the paper's section 5)."""
    rng = np.random.RandomState(seed)
    rows = InMemoryRows(split.X, split.y)
    centers = uniform(rows, n_centers, rng)
    starts = []
    for _ in range(n_maps):
        B = draw_map(d, split.X.shape[1], entries, rng)
        kernel = Gaussian(gamma=Gaussian().median_gamma(split.X[:_MEDIAN_ROWS] @ B.T))
        objective = Objective(rows, centers, kernel, reg_lambda)
        predicted = kernel(split.X_validation @ B.T, centers @ B.T) @ objective.solve_alpha(B)
        starts.append((_mean_square(predicted, split.y_validation), Start(objective, B)))
    return min(starts, key=lambda start: start[0])[1]


class Budget(NamedTuple):
    """What a method has: centers, lambda, seconds; and how its starts are drawn."""

    n_centers: int
    reg_lambda: float
    seconds: float
    entries: str


class Grid(NamedTuple):
    """What the refit chooses from: lambdas, and factors of the gamma of the median rule."""

    lambdas: Sequence[float]
    scales: Sequence[float]


def scored(split: Split, method: str, d: int, budget: Budget, grid: Grid, seed: int) -> dict[str, float]:
    """Return the test R2 of the map that a method has learned when its time is over, and how it got there."""
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


def refit(split: Split, B: Array, grid: Grid) -> float:
    """Return the test R2 of exact kernel ridge regression at a map, gamma and lambda chosen on the validation rows.

    They are chosen with 1,000 centers (all rows, where there are fewer), for which one decomposition serves all
    lambdas; the last fit has every row as a center.
    """
    P, P_validation, P_test = (X @ B.T for X in (split.X, split.X_validation, split.X_test))
    rows = InMemoryRows(P, split.y)
    C = uniform(rows, min(_CHOICE_CENTERS, len(P)), np.random.RandomState(0))
    gamma = Gaussian().median_gamma(P[:_MEDIAN_ROWS])
    best, lowest = (gamma, grid.lambdas[0]), math.inf
    for scale in grid.scales:
        kernel = Gaussian(gamma=gamma * scale)
        errors = _errors_along_lambda(kernel, P, split.y, C, P_validation, split.y_validation, grid.lambdas)
        k = int(np.argmin(errors))
        if errors[k] < lowest:
            best, lowest = (gamma * scale, grid.lambdas[k]), errors[k]
    kernel = Gaussian(gamma=best[0])
    alpha = Objective(rows, None, kernel, best[1]).solve_alpha(np.eye(len(B)))
    blocks = np.array_split(P_test, 1 + len(P_test) // 1000)
    predicted = np.concatenate([kernel(block, P) @ alpha for block in blocks])
    return 1.0 - _mean_square(predicted, split.y_test) / float(np.var(split.y_test))


def _errors_along_lambda(
    kernel: Gaussian, P: Array, y: Array, C: Array, P_validation: Array, y_validation: Array, lambdas: Sequence[float]
) -> list[float]:
    """Return the validation error for each lambda: with ``K_cc = T T'``, ``V = T^-1 K'`` and ``V V' = U diag(s) U'``,
    alpha is ``T^-T U (U' V y / (s + lambda m))``."""
    T, _ = jittered_cholesky(kernel(C, C), EPS * len(C))
    V = solve_triangular(T, kernel(P, C).T, lower=True, check_finite=False)
    s, U = eigh(V @ V.T, overwrite_a=True, check_finite=False)
    target = U.T @ (V @ y)
    features = solve_triangular(T, kernel(P_validation, C).T, lower=True, check_finite=False).T @ U
    shrunk = target[:, None] / (np.maximum(s, 0.0)[:, None] + len(P) * np.asarray(lambdas))
    return [_mean_square(column[:, None], y_validation) for column in (features @ shrunk).T]


def _mean_square(predicted: Array, y: Array) -> float:
    return float(np.mean((predicted[:, 0] - y) ** 2))
