"""A candidate of the search: a kernel, a map of some shape, its noise, and what the criterion says of them.

Candidates of different kinds are compared by one score, the criterion in nats over the rows searched plus the price of
the map's parameters (BIC),

    ``score = T W l + (dof / 2) log W``

for T targets. Lambda is carried as nu = lambda W, the noise in units of the signal, which does not change with the
number of rows; and gamma is 1, its scale being the map's own.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import joblib
import numpy as np

from hkrr import journal
from hkrr._arrays import Array
from hkrr.criteria import Criterion, Grouped
from hkrr.exceptions import FitError
from hkrr.kernels import Kernel, kernel_name
from hkrr.shapes import Full, Scaled, Shape, Shaped, content_of
from hkrr.solvers import LBFGS, Result, State, at_bound, run
from hkrr.threads import in_threads, single_threaded_blas

FIRST_LAMBDA = 0.03  # at a random start
SHORT, LONG = 12, 60  # iterations before and after the poor starts are dropped
_PLATEAU = 1e-6  # a fall, per iteration and row, that decides nothing


@dataclass(frozen=True)
class Candidate:
    """A kernel, a map (a diagonal one as its diagonal), its noise, and what the criterion says of it."""

    start: str
    kernel: Kernel
    B: Array
    nu: float
    value: float = math.inf
    score: float = math.inf
    seconds: float = 0.0
    shape: Shape = field(default_factory=Full)
    n_free_columns: int | None = None  # of X, where they are fewer than its columns
    lambda_at_bound: bool = False  # of those that a learned one has

    @property
    def n_components(self) -> int:
        """Number of directions."""
        return int(self.B.shape[0])

    @property
    def matrix(self) -> Array:
        """The map as a matrix."""
        return np.diag(self.B) if self.B.ndim == 1 else self.B

    @property
    def norm(self) -> float:
        """Its largest singular value."""
        return float(np.max(np.abs(self.B)) if self.B.ndim == 1 else np.linalg.norm(self.B, 2))

    @property
    def degrees_of_freedom(self) -> float:
        """Number of parameters of the map."""
        columns = self.B.shape[-1] if self.n_free_columns is None else self.n_free_columns
        return self.shape.degrees_of_freedom(self.B.shape[0], columns, self.kernel.rotation_invariant)


class Plateau:
    """A callback that ends a run whose objective has fallen by less than ``least`` an iteration for five of them."""

    def __init__(self, least: float) -> None:
        self._least, self._last = least, [math.inf] * 5

    def __call__(self, state: State) -> bool:
        oldest, self._last = self._last[0], [*self._last[1:], state.objective]
        return oldest - state.objective < 5 * self._least


def optimism(dof: float, n_rows: float, total_weight: float) -> float:
    """Return what parameters learned on n rows gain by chance, half a nat each, once these stand for W rows."""
    return 0.5 * dof * max(total_weight / n_rows - 1.0, 0.0)


def score(criterion: Criterion | Grouped, value: float, dof: float, total_weight: float | None = None) -> float:
    """Return ``T W l + (dof / 2) log W``, W the rows of the criterion or those given."""
    W = criterion.rows.total_weight if total_weight is None else total_weight
    n_targets = max(1, int(np.count_nonzero(criterion.squares)))
    return n_targets * W * criterion.nats(value) + 0.5 * dof * math.log(max(W, 2.0))


def descend(
    criterion: Criterion | Grouped,
    start: Candidate,
    max_iter: int,
    deadline: float = math.inf,
    *,
    tol: float = 1e-5,
    plateau: float = _PLATEAU,
    verbose: int = 0,
) -> tuple[Candidate, Result]:
    """Return the candidate after at most ``max_iter`` steps of L-BFGS on its map and lambda, and the run."""
    W = criterion.rows.total_weight

    def compute() -> tuple[Result, float]:
        began = time.perf_counter()
        result = run(
            LBFGS(),
            Shaped(criterion.at(start.nu / W, start.kernel), start.shape),
            start.shape.parameters(start.B),
            max_iter=max_iter,
            tol=tol,
            time_limit=None if math.isinf(deadline) else deadline - began,
            callbacks=[Plateau(plateau * criterion.loss_at_zero)],
            verbose=verbose,
        )
        return result, time.perf_counter() - began

    key = ("descend", *_content(criterion, start), max_iter, tol, plateau)
    result, seconds = journal.step(key, compute, lambda found: found[0].reason != "time_limit")
    result = replace(result, B=start.shape.map(result.B))
    if result.reason == "callback":
        result = replace(result, reason="stalled", message="the criterion came to rest")
    elif result.reason == "converged":
        result = replace(result, message="the criterion is at a minimum")
    elif result.reason == "max_iter":
        result = replace(
            result, message="as many steps were made as the search allows, which is usual: the last ones change little"
        )
    end = replace(
        start,
        B=result.B,
        nu=result.reg_lambda * W,
        value=result.objective,
        score=score(criterion, result.objective, start.degrees_of_freedom),
        seconds=start.seconds + seconds,
        lambda_at_bound=at_bound(result.reg_lambda),
    )
    return end, result


def _content(criterion: Criterion | Grouped, start: Candidate) -> tuple[Any, ...]:
    """Return what a descent depends on, for the keys of a journal."""
    return criterion.content, start.kernel, start.B, start.nu, *content_of(start.shape)


def improve(criterion: Criterion | Grouped, start: Candidate, max_iter: int, deadline: float = math.inf) -> Candidate:
    """Return the candidate after at most ``max_iter`` steps; one that cannot be evaluated comes back with infinity."""

    def compute() -> _End:
        with single_threaded_blas():
            try:
                return _end_of(descend(criterion, start, max_iter, deadline)[0])
            except FitError:
                return _end_of(replace(start, value=math.inf, score=math.inf))

    key = ("improve", *_content(criterion, start), max_iter)

    def is_end(known: Any) -> bool:
        B, nu, *numbers, at_bound = known
        fits = isinstance(B, np.ndarray) and B.shape == start.B.shape and bool(np.all(np.isfinite(B)))
        return fits and 0.0 < nu < math.inf and all(isinstance(one, float) for one in numbers) and at_bound in (0, 1)

    return _ended(start, journal.step(key, compute, lambda _: time.perf_counter() < deadline, is_end))


# What is new in a candidate at the end of a run: all that has to be recorded.
_End = tuple[Array, float, float, float, float, bool]


def _end_of(candidate: Candidate) -> _End:
    return candidate.B, candidate.nu, candidate.value, candidate.score, candidate.seconds, candidate.lambda_at_bound


def _ended(start: Candidate, end: _End) -> Candidate:
    B, nu, value, score, seconds, lambda_at_bound = end
    return replace(start, B=B, nu=nu, value=value, score=score, seconds=seconds, lambda_at_bound=lambda_at_bound)


def _improve_within(criterion: Criterion | Grouped, start: Candidate, max_iter: int, seconds: float) -> Candidate:
    return improve(criterion, start, max_iter, time.perf_counter() + seconds)


def improve_each(
    criterion: Criterion | Grouped,
    starts: Sequence[Candidate],
    max_iter: int,
    deadline: float = math.inf,
    *,
    n_jobs: int | None = None,
    n_threads: int = 1,
) -> list[Candidate]:
    """Return all of them improved, in their order: by joblib's workers where more than one is asked for, or threads.

    Past the deadline threads look at the first alone, workers at each once.
    """
    if joblib.effective_n_jobs(n_jobs) > 1:
        # In seconds from now: a worker may be on another machine, with another clock.
        left = deadline - time.perf_counter()
        keys = [("improve", *_content(criterion, start), max_iter) for start in starts]
        ends: list[_End | None] = [journal.known(key) for key in keys]
        missing = [k for k, end in enumerate(ends) if end is None]
        jobs = (joblib.delayed(_improve_within)(criterion, starts[k], max_iter, left) for k in missing)
        for k, found in zip(missing, joblib.Parallel(n_jobs=n_jobs, return_as="generator")(jobs), strict=True):
            ends[k] = _end_of(found)
            if time.perf_counter() < deadline:
                journal.record(keys[k], ends[k])
        return [_ended(start, end) for start, end in zip(starts, ends, strict=True) if end is not None]

    def one(k: int) -> Candidate:
        if k > 0 and time.perf_counter() > deadline:
            return replace(starts[k], value=math.inf, score=math.inf)
        return improve(criterion, starts[k], max_iter, deadline)

    return in_threads(one, range(len(starts)), n_threads)


def plain(
    criterion: Criterion | Grouped,
    kernel: Kernel,
    noises: Sequence[float],
    rng: np.random.RandomState,
    deadline: float = math.inf,
) -> tuple[Candidate, Result]:
    """Return the best of plain kernel ridge regression, as a candidate with a multiple of the identity for its map.

    From each of the given nu: a single run can end where the noise is taken for nothing.
    """
    rows = criterion.rows
    identity = np.ones(rows.n_features)
    scale = math.sqrt(kernel.median_gamma(rows.take(rows.draw(500, rng))))
    start = Candidate(
        "plain", kernel, scale * identity, 1.0, shape=Scaled(identity), n_free_columns=rows.n_free_columns
    )
    starts = [replace(start, nu=nu) for nu in noises]
    ends = [descend(criterion, start, LONG, deadline) for start in starts]
    best, result = min(ends, key=lambda end: end[0].value)
    return replace(best, seconds=sum(end.seconds for end, _ in ends)), result


def path_table(candidates: Sequence[Candidate], total_weight: float) -> dict[str, list[Any]]:
    """Return the candidates as columns, lambda counted over all rows and gamma for a map of norm 1."""
    return {
        "start": [one.start for one in candidates],
        "kernel": [kernel_name(one.kernel) for one in candidates],
        "shape": [one.shape.name for one in candidates],
        "n_components": [one.n_components for one in candidates],
        "reg_lambda": [one.nu / total_weight for one in candidates],
        "gamma": [one.kernel.scale * one.norm**2 for one in candidates],
        "criterion": [one.value for one in candidates],
        "score": [one.score for one in candidates],
        "seconds": [one.seconds for one in candidates],
    }
