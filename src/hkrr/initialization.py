"""Where the optimisation starts.

The paper's rule (its section 5): sampled maps, each with its median gamma, scored on held-out rows. In many dimensions
one random map is hardly better than another, and at a small lambda most lead to poor local minima. So for L-BFGS the
chosen map is then led down a path of lambda, from smooth landscapes to rough ones (docs/readings.md has the figures).
"""

from __future__ import annotations

import time

import numpy as np

from hkrr._arrays import Array
from hkrr.centers import uniform
from hkrr.kernels import Kernel
from hkrr.objective import Objective
from hkrr.rows import InMemoryRows
from hkrr.solvers import LBFGS, run

# Rows that the median rule, and the scoring of starts, look at.
_MEDIAN_ROWS = 1000
_SCORING_ROWS = 4000
_SCORING_CENTERS = 300
# With fewer rows than this a held-out part decides nothing: the training objective scores the maps instead.
_TOO_FEW_TO_HOLD_OUT = 50
# The path of lambda: where it begins, the factor between its points, and what is spent on each.
_PATH_START = 0.1
_PATH_FACTOR = 10**-0.5
_PATH_ITERATIONS = 10
_PATH_CENTERS = 100


def sample_map(n_components: int, n_features: int, rng: np.random.RandomState) -> Array:
    """Return a map with normal entries, divided by its spectral norm: a random subspace."""
    B = rng.standard_normal((n_components, n_features))
    return B / np.linalg.norm(B, 2)


def median_kernel(kernel: Kernel, rows: InMemoryRows, B: Array, rng: np.random.RandomState) -> Kernel:
    """Return the kernel with the median rule's gamma at the map B, over the pairs of at most 1,000 rows."""
    if rows.n_rows <= _MEDIAN_ROWS:
        return kernel.with_gamma(kernel.median_gamma(rows.gather()[0] @ B.T))
    return kernel.with_gamma(kernel.median_gamma(uniform(rows, _MEDIAN_ROWS, rng) @ B.T))


def best_sampled_map(
    rows: InMemoryRows,
    kernel: Kernel,
    *,
    n_components: int,
    n_init: int,
    reg_lambda: float,
    n_centers: int,
    rng: np.random.RandomState,
) -> tuple[Array, Kernel]:
    """Return the best of ``n_init`` sampled maps, with its kernel.

    Each map has its own median gamma (unless the kernel's gamma is given) and its closed-form coefficients on two
    thirds of the rows; the mean squared error on the other third is its score. At most 4,000 rows and 300 centers are
    used.
    """
    candidates = []
    for _ in range(n_init):
        B = sample_map(n_components, rows.n_features, rng)
        candidates.append((B, kernel if kernel.gamma is not None else median_kernel(kernel, rows, B, rng)))
    if n_init == 1:
        return candidates[0]
    scores = _scores(rows, candidates, reg_lambda, n_centers, rng)
    # A start that could not be scored is no start: NaN counts as the worst.
    return candidates[int(np.argmin(np.nan_to_num(scores, nan=np.inf, posinf=np.inf)))]


def _scores(
    rows: InMemoryRows,
    candidates: list[tuple[Array, Kernel]],
    reg_lambda: float,
    n_centers: int,
    rng: np.random.RandomState,
) -> list[float]:
    if rows.n_rows < _TOO_FEW_TO_HOLD_OUT:
        return [Objective(rows, None, kernel, reg_lambda).reduced(B).value for B, kernel in candidates]
    order = rng.permutation(rows.n_rows)[:_SCORING_ROWS]
    cut = (2 * len(order)) // 3
    training, held_out = rows.subset(order[:cut]), rows.subset(order[cut:])
    centers = uniform(training, min(n_centers, _SCORING_CENTERS, cut), rng)
    scores = []
    for B, kernel in candidates:
        alpha = Objective(training, centers, kernel, reg_lambda).solve_alpha(B)
        # With lambda = 0 the objective is the mean squared error.
        scores.append(Objective(held_out, centers, kernel, 0.0).value(B, alpha))
    return scores


def descend_lambda(
    rows: InMemoryRows,
    kernel: Kernel,
    B: Array,
    *,
    reg_lambda: float,
    n_centers: int,
    time_limit: float | None,
    rng: np.random.RandomState,
) -> Array:
    """Return the map led from lambda = 0.1 down to ``reg_lambda``: ten L-BFGS iterations at each tenfold and a half.

    It begins at half its length, where the kernel is smoother still. At most 4,000 rows and 100 centers are used.
    """
    if rows.n_rows > _SCORING_ROWS:
        rows = rows.subset(rng.choice(rows.n_rows, _SCORING_ROWS, replace=False))
    centers = uniform(rows, min(n_centers, _PATH_CENTERS, rows.n_rows), rng)
    B, path_lambda, started = 0.5 * B, _PATH_START, time.perf_counter()
    while path_lambda > reg_lambda:
        left = None if time_limit is None else time_limit - (time.perf_counter() - started)
        if left is not None and left <= 0:
            break
        objective = Objective(rows, centers, kernel, path_lambda)
        B = run(LBFGS(), objective, B, max_iter=_PATH_ITERATIONS, time_limit=left).B
        path_lambda *= _PATH_FACTOR
    return B
