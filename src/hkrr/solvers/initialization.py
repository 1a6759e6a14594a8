"""Starting maps of the optimization.

The paper's rule (section 5) samples random maps and scores them on held-out rows. The median heuristic sets the gamma
of each map, from the median distance between the mapped rows. In many dimensions, the scores of random maps differ
little, and at a small lambda most random maps lead to poor local minima. For L-BFGS, the four maps with the best scores
are therefore optimized for a sequence of decreasing values of lambda, called the path. At a large lambda the objective
is smooth, and it becomes rougher as lambda decreases. The map with the lowest objective at the end of the path becomes
the starting map.
"""

from __future__ import annotations

import math
import time
from typing import NamedTuple

import numpy as np

from hkrr._base.linear_algebra import Array
from hkrr._base.threads import Lockstep, in_threads, value_or_error
from hkrr.centers import uniform
from hkrr.exceptions import FitError
from hkrr.kernels import Kernel
from hkrr.kernels.base import MEDIAN_ROWS, with_median_gamma
from hkrr.objective import Objective, Reduced
from hkrr.rows import InMemoryRows, Rows
from hkrr.solvers import Solver, run
from hkrr.solvers.batched_objective import objective_can_be_batched, reduced_batch

# Maximum numbers of rows and centers that are used to score starting maps.
_SCORING_ROWS = 4000
_SCORING_CENTERS = 300
# Starting maps are scored on held-out rows if there are at least this many rows, and by the training objective
# otherwise.
_TOO_FEW_TO_HOLD_OUT = 50
# Maximum number of starting maps that are optimized along the path, the sequence of decreasing values of lambda.
_PATH_STARTS = 4
# First lambda of the path, and ratio of each lambda to the previous lambda.
_FIRST_PATH_LAMBDA = 0.1
_PATH_FACTOR = 10**-0.5
# Number of iterations at each lambda of the path.
_PATH_ITERATIONS = 10
# Maximum number of centers in the optimizations along the path.
_PATH_CENTERS = 100
# Maximum number of rows that `median_sample` draws by default. The model search uses these rows to compute the scale of
# a starting map by the median heuristic. Fewer rows than `MEDIAN_ROWS` are enough, because the search then improves
# this scale. `median_kernel` draws `MEDIAN_ROWS` rows, because the gamma that it computes is not improved later.
_SCALE_ROWS = 500

# A starting map and its kernel.
StartingMap = tuple[Array, Kernel]


class Ranked(NamedTuple):
    """Starting maps with their kernels, sorted from best to worst, and the number of maps that were drawn."""

    starts: list[StartingMap]
    n_drawn: int


def starting_rows(rows: Rows, rng: np.random.RandomState) -> InMemoryRows:
    """Return the rows that are used to choose the starting map.

    These are 4,000 rows drawn uniformly, or all rows if there are at most 4,000.
    """
    return rows.at_most(_SCORING_ROWS, rng).in_memory()


def sample_map(n_components: int, n_features: int, rng: np.random.RandomState) -> Array:
    """Return a map with independent normal entries, divided by its spectral norm. Its rows span a random subspace."""
    B = rng.standard_normal((n_components, n_features))
    return B / np.linalg.norm(B, 2)


def median_sample(rows: Rows, rng: np.random.RandomState, n_rows: int = _SCALE_ROWS) -> Array:
    """Return the inputs of at most `n_rows` randomly drawn rows. The median heuristic uses them."""
    return rows.take(rows.draw(n_rows, rng))


def median_scale(kernel: Kernel, P: Array) -> float:
    """Return ``s = sqrt(gamma)``, where gamma is the value of the median heuristic at the latent points P.

    The map ``s B`` with gamma 1 is equivalent to the map B with this gamma.
    """
    return math.sqrt(kernel.median_gamma(P))


def median_kernel(kernel: Kernel, rows: InMemoryRows, B: Array, rng: np.random.RandomState) -> Kernel:
    """Return the kernel with the gamma of the median heuristic at the map B.

    The median is taken over the distances between at most 1,000 mapped rows. A kernel that already has a gamma is
    returned unchanged.
    """
    if kernel.gamma is not None:
        return kernel
    return with_median_gamma(kernel, median_sample(rows, rng, MEDIAN_ROWS), B)


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
    """Sample ``n_init`` maps, and return them with their kernels, sorted from best to worst.

    The median heuristic sets the gamma of each map, unless the kernel already has a gamma. For each map, the
    closed-form coefficients are computed on two thirds of the rows. The score of the map is the mean squared error on
    the remaining third. At most 4,000 rows and 300 centers are used. With fewer than 50 rows, all rows are centers, and
    the score is the training objective.

    No more maps are drawn after `deadline`, a value of ``time.perf_counter``. Maps that cannot be scored are left out.
    If no map can be scored, the first map is returned, and the later fit reports the problem.
    """
    if rows.n_counted < _TOO_FEW_TO_HOLD_OUT:
        training = held_out = rows
        centers = None
    else:
        order = rows.draw(_SCORING_ROWS, rng)
        cut = (2 * len(order)) // 3
        training, held_out = rows.subset(order[:cut]), rows.subset(order[cut:])
        centers = uniform(training, min(n_centers, _SCORING_CENTERS, cut), rng)

    scored: list[tuple[float, StartingMap]] = []
    for _ in range(n_init):
        B = sample_map(n_components, rows.n_features, rng)
        start = (B, median_kernel(kernel, rows, B, rng))
        scored.append((_score(training, held_out, centers, start, reg_lambda), start))
        if time.perf_counter() > deadline:
            break
    valid = sorted((item for item in scored if np.isfinite(item[0])), key=lambda item: item[0])
    return Ranked([start for _, start in valid or scored[:1]], len(scored))


def _score(
    training: InMemoryRows, held_out: InMemoryRows, centers: Array | None, start: StartingMap, reg_lambda: float
) -> float:
    B, kernel = start
    objective = Objective(training, centers, kernel, reg_lambda)
    try:
        if held_out is training:
            return objective.reduced(B).value
        # With lambda = 0 the objective is the mean squared error on the held-out rows.
        return Objective(held_out, centers, kernel, 0.0).value(B, objective.solve_alpha(B))
    except (ArithmeticError, np.linalg.LinAlgError):
        return np.inf


def descend_lambda(
    rows: Rows,
    starts: list[StartingMap],
    solver: Solver,
    *,
    reg_lambda: float,
    n_centers: int,
    rng: np.random.RandomState,
    deadline: float = np.inf,
) -> StartingMap:
    """Optimize the first four starting maps for decreasing values of lambda, and return the best map with its kernel.

    Each map is first multiplied by 0.5, because the fitted functions are then smoother. Then ten iterations are run at
    each lambda in 0.1, 0.032, 0.01, ... that is larger than ``reg_lambda``. The best map has the lowest objective at
    ``reg_lambda`` after these iterations. At most 4,000 rows and 100 centers are used. On a GPU all maps are optimized
    at the same time, and their evaluations are computed in batches. The optimization ends early at `deadline`, a value
    of ``time.perf_counter``. If ``reg_lambda`` is at least 0.1, the first starting map is returned unchanged.
    """
    if reg_lambda >= _FIRST_PATH_LAMBDA:
        return starts[0]
    rows = rows.at_most(_SCORING_ROWS, rng)
    centers = uniform(rows, min(n_centers, _PATH_CENTERS, rows.n_counted), rng)
    # Use one thread for each starting map. The sums over at most 4,000 rows are too small to be split among further
    # threads.
    n_threads, rows = rows.n_threads, rows.on_threads(1)
    starts = starts[:_PATH_STARTS]
    lockstep = Lockstep(len(starts), _reduced_of_each)

    def end_of(k: int) -> tuple[float, StartingMap]:
        if k > 0 and time.perf_counter() > deadline:
            return np.inf, starts[k]
        try:
            return descend(k)
        except (FitError, ArithmeticError, np.linalg.LinAlgError):
            return np.inf, starts[k]  # a starting map that cannot be evaluated must not be chosen

    def descend(k: int) -> tuple[float, StartingMap]:
        B, kernel = starts[k]
        B = 0.5 * B
        path_lambda = _FIRST_PATH_LAMBDA
        while path_lambda > reg_lambda and (left := deadline - time.perf_counter()) > 0:
            objective = Objective(rows, centers, kernel, path_lambda)
            batched = _BatchedObjective(objective, k, lockstep) if rows.pays_to_batch else objective
            B = run(solver, batched, B, max_iter=_PATH_ITERATIONS, time_limit=left).B
            path_lambda *= _PATH_FACTOR
        return Objective(rows, centers, kernel, reg_lambda).reduced(B).value, (B, kernel)

    numbers = range(len(starts))
    ends = lockstep.map(end_of) if rows.pays_to_batch else in_threads(end_of, numbers, n_threads)
    return min(ends, key=lambda end: end[0])[1]


class _BatchedObjective:
    """The objective for one starting map. It is evaluated in batches with the objectives of the other starting maps."""

    def __init__(self, objective: Objective, start: int, lockstep: Lockstep) -> None:
        self._objective, self._start, self._lockstep = objective, start, lockstep
        self.n_centers, self.loss_at_zero = objective.n_centers, objective.loss_at_zero
        self.reg_lambda, self.learn_lambda = objective.reg_lambda, objective.learn_lambda
        self.content = objective.content

    def reduced(self, B: Array) -> Reduced:
        found: Reduced = self._lockstep.ask(self._start, (self._objective, B))
        return found


def _reduced_of_each(requests: list[tuple[Objective, Array]]) -> list[Reduced | Exception]:
    if all(objective_can_be_batched(objective) for objective, _ in requests):
        found = reduced_batch(*zip(*requests, strict=True))
        if found is not None:
            return list(found)
    return [value_or_error(objective.reduced, B) for objective, B in requests]
