"""Learning a map from random batches of the rows, with Adam (Kingma and Ba, 2015).

The time to compute the exact criterion on n rows is proportional to n^3, so a map cannot be learned from all rows of a
large table at once. On 1,000 of 10,000 rows, the criterion takes a thousandth of the time, but a full map that is
learned from the same 1,000 rows until convergence overfits them. Here each step uses a new batch of rows, so that after
a few passes all rows have contributed to the map. The step size decreases to zero, so that the last steps average over
many batches. Chen et al. (2020) analyze this method for the parameters of Gaussian processes.

The learned noise level suits fits to as many rows as a batch has. The noise level and the scale of the map therefore
have to be learned again, on more rows.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from hkrr._base.linear_algebra import Array
from hkrr._base.resume_journal import rounded, step
from hkrr._base.threads import raise_if_stopped, single_threaded_blas
from hkrr._maps import Full
from hkrr._maps.shapes import shape_key
from hkrr.criteria import Criterion
from hkrr.estimators.search.candidates import Candidate
from hkrr.estimators.search.search_problem import SearchProblem

# Decay rates of the moving averages of the gradient and of its square, and number of first steps in which the step size
# grows.
_MEAN_DECAY, _SQUARE_DECAY, _WARM_UP = 0.9, 0.95, 10
# Largest step of a parameter: for the entries of a full map relative to their root mean square, and for logarithms of
# scales and of nu.
_ENTRY_STEP, _LOG_STEP = 0.4, 0.1
# Range of nu.
_LEAST_NU, _MOST_NU = 1e-6, 10.0


def learn_on_batches(problem: SearchProblem, start: Candidate, n_rows: int, n_steps: int, seed: int) -> Candidate:
    """Return the candidate after `n_steps` steps from `start`, each on a batch of `n_rows` random rows.

    A candidate is a kernel, a map and a noise level. No step begins after the deadline of the problem. A step is
    skipped if the criterion cannot be computed on its batch. If no step succeeds, the value and the score of the
    returned candidate are infinite. Otherwise they are those of `start`, because the new map has not been scored.
    """
    began = time.perf_counter()
    _, Y, w = problem.rows.gather()
    squares = Y * Y if w is None else w[:, None] * Y * Y
    rows = (problem.rows.n_rows, *rounded(problem.rows.total_weight, np.sum(squares, axis=0)))
    key = (*rows, start.kernel, shape_key(start.shape), start.B, start.nu, n_rows, n_steps, seed)

    def compute() -> tuple[Array, float, int]:
        with single_threaded_blas():
            return _adam(problem, start, n_rows, n_steps, np.random.RandomState(seed))

    def is_valid(found: Any) -> bool:
        B, nu, n_iter = found
        return np.shape(B) == start.B.shape and bool(np.all(np.isfinite(B))) and 0 < nu < math.inf and n_iter >= 0

    B, nu, n_iter = step(
        ("run on random batches", problem.make.__name__, *key),
        compute,
        keep=lambda found: problem.in_time,
        is_valid=is_valid,
    )
    end = replace(start, B=B, nu=nu, n_iter=n_iter, seconds=time.perf_counter() - began)
    return end if n_iter > 0 else replace(end, value=math.inf, score=math.inf)


def _adam(
    problem: SearchProblem, start: Candidate, n_rows: int, n_steps: int, rng: np.random.RandomState
) -> tuple[Array, float, int]:
    """Run the steps of Adam from `start`. Return the final map, the final nu and the number of steps that succeeded."""
    shape, parameters = start.shape, start.shape.parameters(start.B)
    full = isinstance(shape, Full)
    unit = _ENTRY_STEP * math.sqrt(float(np.mean(parameters**2))) if full else _LOG_STEP
    # All parameters as one vector. Its last entry is the logarithm of nu.
    units = np.append(np.full(parameters.size, unit), _LOG_STEP)
    theta = np.append(parameters.ravel(), math.log(start.nu)) / units
    mean, square, done = np.zeros_like(theta), np.zeros_like(theta), 0
    batches = _batches(problem, n_rows, rng)
    for t in range(n_steps):
        raise_if_stopped()
        if not problem.in_time:
            break
        criterion = problem.criterion(problem.rows.subset(next(batches)), None, start.kernel)
        try:
            gradient = units * _gradient(criterion, start, theta * units)
        except (ArithmeticError, np.linalg.LinAlgError):
            continue
        if not np.all(np.isfinite(gradient)):
            continue
        done += 1
        mean += (1.0 - _MEAN_DECAY) * (gradient - mean)
        square += (1.0 - _SQUARE_DECAY) * (gradient**2 - square)
        size = min(1.0, (t + 1) / _WARM_UP) * 0.5 * (1.0 + math.cos(math.pi * t / n_steps))
        root = np.sqrt(square / (1.0 - _SQUARE_DECAY**done))
        theta -= size * (mean / (1.0 - _MEAN_DECAY**done)) / np.where(root > 0.0, root, 1.0)
        theta[-1] = np.clip(theta[-1], math.log(_LEAST_NU) / units[-1], math.log(_MOST_NU) / units[-1])
    learned = theta * units
    return shape.map(learned[:-1].reshape(parameters.shape)), math.exp(learned[-1]), done


def _gradient(criterion: Criterion, start: Candidate, values: Array) -> Array:
    """Return the derivatives of the criterion with respect to `values`: the parameters of the map, then log nu."""
    shape = start.shape
    parameters = values[:-1].reshape(np.shape(shape.parameters(start.B)))
    reg_lambda = math.exp(values[-1]) / criterion.rows.total_weight
    reduced = criterion.in_single_precision().reduced(shape.map(parameters), reg_lambda)
    assert reduced.grad_log_lambda is not None
    return np.append(shape.gradient(parameters, reduced.grad).ravel(), reduced.grad_log_lambda)


def _batches(problem: SearchProblem, n_rows: int, rng: np.random.RandomState) -> Iterator[Array]:
    """Yield indices of random batches of `n_rows` rows, endlessly. A pass over the rows uses each row at most once."""
    counted = problem.rows.draw(problem.rows.n_rows, rng)
    while True:
        order = rng.permutation(counted)
        for first in range(0, max(1, len(order) - n_rows + 1), n_rows):
            yield order[first : first + n_rows]
