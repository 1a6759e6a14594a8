"""Where the optimisation starts.

The paper's rule (its section 5): sampled maps, each with its median gamma, scored on held-out rows. In many dimensions
one random map is hardly better than another, and at a small lambda most lead to poor local minima. So for L-BFGS the
best few are then led down a path of lambda, from smooth landscapes to rough ones, and the lowest is taken.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np

from hkrr._arrays import Array
from hkrr.batch import can_be_batched, reduced_batch
from hkrr.centers import uniform
from hkrr.exceptions import FitError
from hkrr.kernels import Kernel
from hkrr.objective import Objective, Reduced
from hkrr.rows import InMemoryRows, Rows
from hkrr.solvers import Solver, run
from hkrr.threads import InStep, in_threads

# Rows that the median rule, and the scoring of starts, look at.
_MEDIAN_ROWS = 1000
_SCORING_ROWS = 4000
_SCORING_CENTERS = 300
# With fewer rows than this a held-out part decides nothing: the training objective scores the maps instead.
_TOO_FEW_TO_HOLD_OUT = 50
# The path of lambda: how many maps take it, where it begins, the factor between its points, what is spent on each.
_PATH_STARTS = 4
_PATH_BEGIN = 0.1
_PATH_FACTOR = 10**-0.5
_PATH_ITERATIONS = 10
_PATH_CENTERS = 100

Start = tuple[Array, Kernel]


class Ranked(NamedTuple):
    """Maps to start from, the best first, and how many were drawn: the others could not be scored."""

    starts: list[Start]
    n_drawn: int


def starting_rows(rows: Rows, rng: np.random.RandomState) -> InMemoryRows:
    """Return the rows that the start is chosen on: 4,000 drawn uniformly, or all where there are no more."""
    if rows.n_counted > _SCORING_ROWS:
        some: InMemoryRows = rows.subset(rows.draw(_SCORING_ROWS, rng))
        return some
    everything: InMemoryRows = rows.in_memory()
    return everything


def sample_map(n_components: int, n_features: int, rng: np.random.RandomState) -> Array:
    """Return a map with normal entries, divided by its spectral norm: a random subspace."""
    B = rng.standard_normal((n_components, n_features))
    return B / np.linalg.norm(B, 2)


def median_kernel(kernel: Kernel, rows: InMemoryRows, B: Array, rng: np.random.RandomState) -> Kernel:
    """Return the kernel with the median rule's gamma at the map B, over the pairs of at most 1,000 rows."""
    if kernel.gamma is not None:
        return kernel
    return kernel.with_gamma(kernel.median_gamma(rows.take(rows.draw(_MEDIAN_ROWS, rng)) @ B.T))


def ranked_maps(
    rows: InMemoryRows,
    kernel: Kernel,
    *,
    n_components: int,
    n_init: int,
    reg_lambda: float,
    n_centers: int,
    rng: np.random.RandomState,
    deadline: float = np.inf,
) -> Ranked:
    """Return ``n_init`` sampled maps with their kernels, the best first; one that cannot be scored is no start.

    Each map has its own median gamma (unless the kernel's gamma is given) and its closed-form coefficients on two
    thirds of the rows; the mean squared error on the other third is its score. At most 4,000 rows and 300 centers are
    used. Past the deadline (of ``time.perf_counter``) no more maps are drawn. Where none can be scored the first one is
    returned: the fit says why.
    """
    if rows.n_counted < _TOO_FEW_TO_HOLD_OUT:
        training = held_out = rows
        centers = None
    else:
        order = rows.draw(_SCORING_ROWS, rng)
        cut = (2 * len(order)) // 3
        training, held_out = rows.subset(order[:cut]), rows.subset(order[cut:])
        centers = uniform(training, min(n_centers, _SCORING_CENTERS, cut), rng)

    scored: list[tuple[float, Start]] = []
    for _ in range(n_init):
        B = sample_map(n_components, rows.n_features, rng)
        start = (B, median_kernel(kernel, rows, B, rng))
        scored.append((_score(training, held_out, centers, start, reg_lambda), start))
        if time.perf_counter() > deadline:
            break
    sound = sorted((item for item in scored if np.isfinite(item[0])), key=lambda item: item[0])
    return Ranked([start for _, start in sound or scored[:1]], len(scored))


def _score(
    training: InMemoryRows, held_out: InMemoryRows, centers: Array | None, start: Start, reg_lambda: float
) -> float:
    B, kernel = start
    objective = Objective(training, centers, kernel, reg_lambda)
    try:
        if held_out is training:
            return objective.reduced(B).value
        # With lambda = 0 the objective is the mean squared error.
        return Objective(held_out, centers, kernel, 0.0).value(B, objective.solve_alpha(B))
    except (ArithmeticError, np.linalg.LinAlgError):
        return np.inf


def descend_lambda(
    rows: Rows,
    starts: list[Start],
    solver: Solver,
    *,
    reg_lambda: float,
    n_centers: int,
    rng: np.random.RandomState,
    deadline: float = np.inf,
) -> Start:
    """Lead the first four starts from lambda = 0.1 down to ``reg_lambda``, and return the one that ends lowest.

    Ten iterations at each of 0.1, 0.032, 0.01, ... above ``reg_lambda``, from half the length of the map, where the
    kernel is smoother still. At most 4,000 rows and 100 centers are used. On a GPU they go down in step, and what they
    evaluate is one batch.
    """
    if reg_lambda >= _PATH_BEGIN:
        return starts[0]
    if rows.n_counted > _SCORING_ROWS:
        rows = rows.subset(rows.draw(_SCORING_ROWS, rng))
    centers = uniform(rows, min(n_centers, _PATH_CENTERS, rows.n_counted), rng)
    n_threads, rows = rows.n_threads, rows.on_threads(1)  # a thread for each start, not for each block: they are small
    starts = starts[:_PATH_STARTS]
    in_step = InStep(len(starts), _reduced_of_each)

    def end_of(k: int) -> tuple[float, Start]:
        if k > 0 and time.perf_counter() > deadline:
            return np.inf, starts[k]
        try:
            return led_down(k)
        except (FitError, ArithmeticError, np.linalg.LinAlgError):
            return np.inf, starts[k]  # of several: what cannot be evaluated is not the lowest

    def led_down(k: int) -> tuple[float, Start]:
        B, kernel = starts[k]
        B = 0.5 * B
        path_lambda = _PATH_BEGIN
        while path_lambda > reg_lambda and (left := deadline - time.perf_counter()) > 0:
            objective = Objective(rows, centers, kernel, path_lambda)
            asking = _Asking(objective, k, in_step) if rows.pays_to_batch else objective
            B = run(solver, asking, B, max_iter=_PATH_ITERATIONS, time_limit=left).B
            path_lambda *= _PATH_FACTOR
        return Objective(rows, centers, kernel, reg_lambda).reduced(B).value, (B, kernel)

    numbers = range(len(starts))
    ends = in_step.map(end_of) if rows.pays_to_batch else in_threads(end_of, numbers, n_threads)
    return min(ends, key=lambda end: end[0])[1]


class _Asking:
    """An objective as a solver sees it, evaluated together with those of the other starts."""

    def __init__(self, objective: Objective, start: int, in_step: InStep) -> None:
        self._objective, self._start, self._in_step = objective, start, in_step
        self.n_centers, self.loss_at_zero = objective.n_centers, objective.loss_at_zero
        self.reg_lambda, self.content = objective.reg_lambda, objective.content

    def reduced(self, B: Array) -> Reduced:
        found: Reduced = self._in_step.ask(self._start, (self._objective, B))
        return found


def _reduced_of_each(questions: list[tuple[Objective, Array]]) -> list[Reduced | Exception]:
    if all(can_be_batched(objective) for objective, _ in questions):
        found = reduced_batch(*zip(*questions, strict=True))
        if found is not None:
            return list(found)
    return [_reduced_or_error(*question) for question in questions]


def _reduced_or_error(objective: Objective, B: Array) -> Reduced | Exception:
    """Return the error, too: it ends one start, and not those beside it."""
    try:
        return objective.reduced(B)
    except (ArithmeticError, np.linalg.LinAlgError) as error:
        return error
