"""Candidates of the model search, and the optimization runs that improve them.

A candidate consists of a kernel, a map of some shape, a noise level, and the value of the criterion for these three.
Candidates with different kernels and shapes are compared by one score, a BIC in nats:

    ``score = T W l + (dof / 2) log W``

Here l is the criterion in nats per row and target, T the number of targets that are not constant, W the total weight of
the rows, and dof the number of parameters of the map. If the map uses only k of the D columns, the logarithm of the
number of choices of k columns is added (the extended BIC of Chen and Chen, 2008). Instead of lambda, a candidate stores
``nu = lambda W``, the ratio of the noise variance to the signal variance. This ratio does not depend on the number of
rows. Gamma is fixed at 1, because the map contains the scale. A run is one optimization by L-BFGS, from a starting
candidate to a better one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import joblib
import numpy as np
from joblib.parallel import get_active_backend
from scipy.special import gammaln

from hkrr._base import resume_journal as journal
from hkrr._base.linear_algebra import Array
from hkrr._base.threads import Lockstep, in_threads, single_threaded_blas
from hkrr._maps import Full, Scaled, Shape, ShapedCriterion
from hkrr.criteria import Criterion, Grouped
from hkrr.criteria.batched_evidence import InLockstep, answer, can_be_batched
from hkrr.exceptions import FitError
from hkrr.kernels import KERNELS, Kernel
from hkrr.objective import LAMBDA_BOUNDS
from hkrr.rows import Rows
from hkrr.solvers import LBFGS, Result, at_bound, run
from hkrr.solvers.driver import MESSAGES, StopReason, check_stored, empty_history, run_key
from hkrr.solvers.initialization import median_sample, median_scale

# Initial value of lambda of a run.
FIRST_LAMBDA = 0.03
# Initial noise level nu (see `Candidate`) of a run that does not start from a learned map.
FIRST_NOISE = 0.1
# Maximum numbers of iterations of a short run and of a long run. Only the best candidates get a long run.
SHORT_RUN, LONG_RUN = 12, 60
# Message of a run that reached its maximum number of iterations.
AT_LIMIT = "the iteration limit of the search was reached; this is usual, as the last iterations change little"
# A run stops when the norm of the gradient is below the first number, or when the criterion decreases by less than the
# second number per iteration. Both numbers are relative to the attribute `loss_at_zero` of the criterion.
_TOL, _PLATEAU = 1e-5, 1e-6


def unit_kernel(name: str) -> Kernel:
    """Return the kernel with the given name and gamma 1. The map of a candidate includes the scale."""
    return KERNELS[name].with_gamma(1.0)


class Origin(StrEnum):
    """How the starting map of a run was obtained."""

    RANDOM = "random"  # a random map
    MOMENTS = "moments"  # leading eigenvectors of a moment matrix
    CUT = "cut"  # a map truncated to its largest directions
    WIDENED = "widened"  # the best map, plus random directions
    POLISHED = "polished"  # the best directions, refined on all rows of the search
    RESCALED = "rescaled"  # the chosen map, with its scales and noise refitted
    COMPARED = "compared"  # the chosen map, scored against plain kernel ridge regression
    HELD_OUT = "held out"  # the chosen map or a simpler rival, scored on held-out rows
    DIRECTIONS = "directions"  # directions found with the Gaussian kernel
    PLAIN = "plain"  # a multiple of the identity: plain kernel ridge regression
    MEAN = "mean"  # the largest lambda, so that every prediction is the mean of y
    DIAGONAL = "diagonal"  # one scale per column
    SPARSE = "sparse"  # a diagonal map of the columns that the lasso selects
    SQUARE = "square"  # a full D x D map for D columns, started from a diagonal map


# Origins of the runs that search for directions, and of the runs that compare kernels and shapes of the map. Scores are
# comparable within the first group, and within the second group if they were computed on the same number of rows.
FIND_DIRECTIONS = (Origin.RANDOM, Origin.MOMENTS, Origin.CUT, Origin.WIDENED)
COMPARE_KERNELS = (Origin.DIRECTIONS, Origin.PLAIN, Origin.DIAGONAL, Origin.SPARSE, Origin.SQUARE)


@dataclass(frozen=True)
class Candidate:
    """A kernel, a map and a noise level, with the value of the criterion for these three."""

    origin: Origin  # how the starting map was obtained
    kernel: Kernel  # with gamma 1
    B: Array  # (d, D): the map; (D,): the diagonal of a diagonal or identity map
    nu: float  # ratio of the noise variance to the signal variance: lambda times the total weight of the rows
    value: float = math.inf  # value of the criterion; infinity if it was not evaluated, or if its evaluation failed
    score: float = math.inf  # score by which candidates are compared; see the module docstring
    seconds: float = 0.0  # time spent in optimization runs
    shape: Shape = field(default_factory=Full)  # determines the parameters that a run may change
    n_free_columns: int | None = None  # number of linearly independent columns of X; None means all
    lambda_at_bound: bool = False  # whether lambda ended at a bound of its range
    dropped: bool = False  # whether it was dropped after a short run: other candidates were better, or the run failed
    n_rows: int | None = None  # number of rows in the comparison of kernels and shapes; None for all other runs
    n_iter: int = 0  # number of iterations of the last run
    n_centers: int | None = None  # number of centers in the search for directions; None for all other runs
    spectrum: tuple[float, ...] | None = None  # singular values before a cut, divided by the largest one
    ranked: bool = False  # whether the columns are transformed to normal scores

    @property
    def label(self) -> str:
        """The label in ``path_["start"]``: the origin, and the suffix ", dropped" if it applies."""
        return self.origin + (", dropped" if self.dropped else "")

    @property
    def seconds_per_iteration(self) -> float:
        """Time of one iteration of the last run."""
        return self.seconds / max(self.n_iter, 1)

    @property
    def n_components(self) -> int:
        """Number of directions."""
        return int(self.B.shape[0])

    @property
    def norm(self) -> float:
        """The largest singular value of the map."""
        return float(np.max(np.abs(self.B)) if self.B.ndim == 1 else np.linalg.norm(self.B, 2))

    @property
    def degrees_of_freedom(self) -> float:
        """Number of free parameters of the map, from its shape.

        Linearly dependent columns add no parameters. With a rotation-invariant kernel, parameters that only rotate the
        directions are not included, because rotations do not change the kernel.
        """
        columns = self.B.shape[-1] if self.n_free_columns is None else self.n_free_columns
        return self.shape.degrees_of_freedom(self.B.shape[0], columns, self.kernel.rotation_invariant)

    @property
    def choice(self) -> float:
        """Logarithm of the number of ways to choose the columns of a diagonal or identity map, 0 if all are used."""
        if self.B.ndim == 2:
            return 0.0
        D, k = len(self.B), np.count_nonzero(self.B)
        return float(gammaln(D + 1) - gammaln(k + 1) - gammaln(D - k + 1)) if k < D else 0.0

    def restarted(self, **changes: Any) -> Candidate:
        """Return the candidate with the given changes, before it is evaluated: without a value, a score and a time."""
        return replace(self, value=math.inf, score=math.inf, seconds=0.0, **changes)


def optimism(dof: float, n_rows: float, total_weight: float) -> float:
    """Return the optimism, in nats, of a criterion that was minimized on n rows and is extrapolated to W rows.

    Each parameter lowers the criterion on the n rows by half a nat by chance. Extrapolation to W rows multiplies this
    gain by W / n. The optimism is the excess, ``(W / n - 1) / 2`` nats per parameter. It has to be added to the
    extrapolated criterion. `dof` is the number of parameters, `n_rows` is n, and `total_weight` is W.
    """
    return 0.5 * dof * max(total_weight / n_rows - 1.0, 0.0)


def score(
    criterion: Criterion | Grouped, value: float, candidate: Candidate | None, total_weight: float | None = None
) -> float:
    """Return the score ``T W l + (dof / 2) log W`` of a candidate, given the value of its criterion.

    The module docstring explains the formula. W is `total_weight`, or the total weight of the rows of the criterion if
    `total_weight` is None. If `candidate` is None, there is no penalty for parameters.
    """
    W = criterion.rows.total_weight if total_weight is None else total_weight
    n_targets = max(1, int(np.count_nonzero(criterion.squares)))
    nats = n_targets * W * criterion.nats(value)
    if candidate is None:
        return nats
    return nats + 0.5 * candidate.degrees_of_freedom * math.log(max(W, 2.0)) + candidate.choice


def mean_only(criterion: Criterion, like: Candidate, total_weight: float) -> Candidate:
    """Return a candidate that predicts the mean of y for every row: the candidate `like` with the largest lambda.

    Its map does not matter, so its score has no penalty for parameters. The score is extrapolated to `total_weight`.
    """
    largest, W = LAMBDA_BOUNDS[1], criterion.rows.total_weight
    with single_threaded_blas():
        value = criterion.at(largest, like.kernel).reduced(like.B).value
    found = like.restarted(origin=Origin.MEAN, nu=largest * W, lambda_at_bound=True)
    return replace(found, value=value, score=score(criterion, value, None, total_weight))


def score_on_all_rows(candidate: Candidate, searched_weight: float, total_weight: float) -> float:
    """Return the score of a candidate, extrapolated from the rows of the search to all rows.

    `searched_weight` is the total weight of the rows of the search, and `total_weight` is that of all rows. A weak
    direction may improve the score on all rows although it does not improve the score on the rows of the search,
    because its gain is proportional to the number of rows, whereas its penalty grows with the logarithm of this number.
    """
    dof = candidate.degrees_of_freedom
    nats = candidate.score - 0.5 * dof * math.log(max(searched_weight, 2.0))
    penalty = 0.5 * dof * math.log(max(total_weight, 2.0)) + optimism(dof, searched_weight, total_weight)
    return total_weight / searched_weight * nats + penalty


def descend(
    criterion: Criterion | Grouped,
    start: Candidate,
    max_iter: int,
    deadline: float = math.inf,
    *,
    tol: float = _TOL,
    plateau: float = _PLATEAU,
) -> tuple[Candidate, Result]:
    """Run at most ``max_iter`` iterations of L-BFGS on the map and lambda. Return the new candidate and the result."""
    time_limit = None if math.isinf(deadline) else deadline - time.perf_counter()
    settings: dict[str, Any] = {"max_iter": max_iter, "tol": tol, "plateau": plateau}
    result = run(*_arguments(criterion, start), **settings, time_limit=time_limit)
    end = _ended(criterion, start, result)
    message = result.message
    if result.reason == StopReason.MAX_ITER:
        message = AT_LIMIT
    return end, replace(result, B=end.B, message=message)


def _arguments(criterion: Criterion | Grouped, start: Candidate) -> tuple[LBFGS, ShapedCriterion, Array]:
    """Return the solver, the objective and the starting parameters of a run."""
    at_start = criterion.at(start.nu / criterion.rows.total_weight, start.kernel)
    return LBFGS(), ShapedCriterion(at_start, start.shape), start.shape.parameters(start.B)


def _ended(criterion: Criterion | Grouped, start: Candidate, result: Result | None) -> Candidate:
    """Return the candidate at the end of its run. `result` is the result of the run, or None if the run failed."""
    if result is None:
        return replace(start, value=math.inf, score=math.inf)
    return replace(
        start,
        B=start.shape.map(result.B),
        nu=result.reg_lambda * criterion.rows.total_weight,
        value=result.objective,
        score=score(criterion, result.objective, start),
        seconds=start.seconds + result.history["time"][-1],
        n_iter=result.n_iter,
        lambda_at_bound=at_bound(result.reg_lambda),
    )


def improve(criterion: Criterion | Grouped, start: Candidate, max_iter: int, deadline: float) -> Candidate:
    """Return the candidate after a run of `descend`. If the run fails, the value and the score are infinite."""
    with single_threaded_blas():
        try:
            return descend(criterion, start, max_iter, deadline)[0]
        except FitError:
            return _ended(criterion, start, None)


def _run_within(criterion: Criterion | Grouped, start: Candidate, max_iter: int, seconds: float) -> Result | None:
    """Return the result of a run in a worker process, or None if the run fails."""
    limit = None if math.isinf(seconds) else seconds
    with single_threaded_blas(), suppress(FitError):
        return run(*_arguments(criterion, start), max_iter=max_iter, tol=_TOL, plateau=_PLATEAU, time_limit=limit)
    return None


def count_workers(n_jobs: int | None) -> int:
    """Return the number of joblib workers for the runs of a search. One worker means that the runs use threads.

    Runs use workers only inside ``joblib.parallel_config`` with a backend of processes or of a cluster, such as Dask.
    """
    backend, _ = get_active_backend(prefer="threads")
    return 1 if getattr(backend, "supports_sharedmem", False) else int(joblib.effective_n_jobs(n_jobs))


def improve_each(
    criterion: Criterion | Grouped,
    starts: Sequence[Candidate],
    max_iter: int,
    deadline: float = math.inf,
    *,
    n_jobs: int | None = None,
    n_threads: int = 1,
) -> list[Candidate]:
    """Run `improve` on each candidate in `starts`. Return the improved candidates in the same order.

    On a GPU, the runs are made at the same time, and their evaluations are computed in batches. Otherwise the runs are
    distributed over threads, or over the workers of a joblib backend (see `count_workers`). After the deadline, threads
    evaluate only the first candidate, and workers evaluate each candidate once.
    """

    def one(k: int, criterion: Criterion | Grouped = criterion) -> Candidate:
        if k > 0 and time.perf_counter() > deadline:
            return _ended(criterion, starts[k], None)
        return improve(criterion, starts[k], max_iter, deadline)

    # A batch is evaluated with the kernel of the criterion, but `descend` uses the kernel of each candidate. Runs are
    # therefore batched only if all candidates have the kernel of the criterion.
    alike = all(isinstance(start.shape, Full) and start.kernel == criterion.kernel for start in starts)
    if len(starts) > 1 and alike and can_be_batched(criterion):
        batched, lockstep = criterion, Lockstep(len(starts), lambda maps: answer(batched, maps))
        return lockstep.map(lambda k: one(k, InLockstep(batched, k, lockstep)))
    if count_workers(n_jobs) > 1:
        # The deadline is passed as the number of seconds left, because a worker may run on a machine with a different
        # clock.
        left = deadline - time.perf_counter()
        settings: dict[str, Any] = {"max_iter": max_iter, "tol": _TOL, "plateau": _PLATEAU}
        arguments = [_arguments(criterion, start) for start in starts]
        keys = [run_key(*each, **settings) for each in arguments]
        results: list[Result | None] = [journal.lookup(key) for key in keys]
        missing = [k for k, result in enumerate(results) if result is None]
        jobs = (joblib.delayed(_run_within)(criterion, starts[k], max_iter, left) for k in missing)
        for k, result in zip(missing, joblib.Parallel(n_jobs=n_jobs, return_as="generator")(jobs), strict=True):
            results[k] = result
            if result is not None and result.reason != StopReason.TIME_LIMIT:
                journal.record(keys[k], result)  # a worker process has no journal (`hkrr._base.resume_journal`)
        for (*_, B0), result in zip(arguments, results, strict=True):
            if result is not None:
                check_stored(result, B0)
        return [_ended(criterion, start, result) for start, result in zip(starts, results, strict=True)]

    # Runs on a GPU share the GPU, so threads would not be faster.
    return in_threads(one, range(len(starts)), 1 if criterion.rows.pays_to_batch else n_threads)


def plain_start(rows: Rows, kernel: Kernel, rng: np.random.RandomState) -> Candidate:
    """Return the start of plain kernel ridge regression: a multiple of the identity, by the median heuristic."""
    ones, scale = np.ones(rows.n_features), median_scale(kernel, median_sample(rows, rng))
    return Candidate(
        Origin.PLAIN, kernel, scale * ones, FIRST_NOISE, shape=Scaled(ones), n_free_columns=rows.n_free_columns
    )


def plain_kernel_ridge(
    criterion: Criterion | Grouped,
    kernel: Kernel,
    noises: Sequence[float],
    rng: np.random.RandomState,
    deadline: float = math.inf,
) -> tuple[Candidate, Result]:
    """Fit plain kernel ridge regression. Return the best candidate and the result of its run.

    The map of the candidate is a multiple of the identity. ``noises`` contains the initial values of nu. One run is
    made for each of these values, because a single run can end in a local minimum with almost no noise.
    """
    start = plain_start(criterion.rows, kernel, rng)
    ends = [descend(criterion, replace(start, nu=nu), LONG_RUN, deadline) for nu in noises]
    best, result = min(ends, key=lambda end: end[0].value)
    return replace(best, seconds=sum(end.seconds for end, _ in ends)), result


def unchanged(candidate: Candidate, reg_lambda: float, reason: StopReason) -> Result:
    """Return the result of a run without iterations that ends at the candidate for the given reason."""
    B, no_coefficients = candidate.B, np.zeros((0, 1))
    return Result(B, no_coefficients, candidate.value, reg_lambda, 0, reason.value, MESSAGES[reason], empty_history())
