"""Search over the number of directions d, with one kernel and one criterion.

For d = 1, 2, ... the criterion is minimized from several starts:

- random maps at two scales,
- the best map with d - 1 directions, plus a new direction,
- the leading eigenvectors of a moment matrix of the data.

Every start gets a short run, and the best two starts continue with a long run. If the start from moments is among the
best two, the best three continue, so that this start never displaces a different start. The best map with d directions,
without its smallest direction, is then a start for d - 1 directions. If this start leads to a better map with d - 1
directions than before, the better map is shrunk to d - 2 directions in the same way, and so on.

The best map for each d has a score (`hkrr.estimators.search.candidates`). For a rotation-invariant kernel and D
columns, the map has ``dof = d D - d (d - 1) / 2`` parameters. The search stops when two more directions have not
lowered the score. One more direction is not enough, because some signals appear only when two directions are added
together.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np
from scipy.linalg import norm as vector_norm  # unlike NumPy's norm, it does not overflow for large entries
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

from hkrr._base.linear_algebra import Array
from hkrr._base.progress_bar import progress_bar
from hkrr._base.threads import single_threaded_blas
from hkrr._maps import KernelExpansion, principal_form
from hkrr.criteria import Criterion
from hkrr.estimators.search.candidates import (
    FIRST_LAMBDA,
    LONG,
    MEDIAN_ROWS,
    SHORT,
    Candidate,
    Origin,
    improve,
    improve_each,
)
from hkrr.estimators.search.progress import Phase, Progress
from hkrr.exceptions import FitError
from hkrr.kernels import Kernel, kernel_name
from hkrr.rows import InMemoryRows
from hkrr.solvers.initialization import median_sample, sample_map

# Maximum numbers of rows and centers in the search for directions.
SEARCH_ROWS, SEARCH_CENTERS = 2_000, 100
# Number of starts that continue after the short runs.
_SURVIVORS = 2
# Maximum number of times that the length of an added direction is halved, and relative increase of the criterion that
# is attributed to rounding.
_HALVINGS, _ROUNDING = 30, 1e-9
# Maximum number of columns D for which the D x D moment matrix is formed.
_FEW_COLUMNS = 300
# The search stops when this number of additional directions has not lowered the score.
_PATIENCE = 2


def random_starts(
    rows: InMemoryRows, kernel: Kernel, n_components: int, n_starts: int, rng: np.random.RandomState
) -> list[Candidate]:
    """Return random maps, alternately at the scale of the median rule and at half of this scale."""
    sample = median_sample(rows, rng, MEDIAN_ROWS)
    starts = []
    for k in range(n_starts):
        B = sample_map(n_components, rows.n_features, rng)
        scale = math.sqrt(kernel.median_gamma(sample @ B.T)) * (1.0 if k % 2 == 0 else 0.5)
        starts.append(_start(Origin.RANDOM, kernel, scale * B, rows))
    return starts


def moment_starts(rows: InMemoryRows, kernel: Kernel, n_components: int) -> list[Candidate]:
    """Return a list with one start, whose map consists of the leading eigenvectors of a moment matrix.

    The moment matrix is ``sum_i w_i y_i x_i x_i'``, where x_i, y_i and w_i are the inputs, the target and the weight of
    row i. Its eigenvectors are called principal Hessian directions (Li, 1992). They are the rows of the map, which is
    scaled by the median rule. If there are several targets, the target with the largest sum of squares is used. The
    list is empty if fewer than ``n_components`` eigenvectors are found.

    This start helps if the target is an even function of a few directions, for example the product of two directions.
    A random map in many dimensions then contains almost no information on the target. The moment matrix contains this
    information if the number of rows is a few times the number of columns.
    """
    X, Y, w = rows.gather()
    if n_components > X.shape[1]:
        return []
    # A separate generator is used, so that the random starts do not depend on this start.
    rng = np.random.RandomState(0)
    y = Y[:, int(np.argmax(np.sum(Y * Y, axis=0)))]
    leading = _leading_directions(X, y if w is None else w * y, rng, n_components)
    if len(leading) < n_components:
        return []
    B = np.array(leading)
    scale = math.sqrt(kernel.median_gamma(median_sample(rows, rng, MEDIAN_ROWS) @ B.T))
    return [_start(Origin.MOMENTS, kernel, scale * B, rows)]


def _start(origin: Origin, kernel: Kernel, B: Array, rows: InMemoryRows) -> Candidate:
    return Candidate(origin, kernel, B, FIRST_LAMBDA * rows.total_weight, n_free_columns=rows.n_free_columns)


def grow(
    criterion: Criterion, candidate: Candidate, rng: np.random.RandomState, deadline: float = math.inf
) -> list[Candidate]:
    """Return one or two candidates with one more direction than the given candidate.

    Let B be the given map, r the (weighted) residuals of the target with the largest residuals, R the part of X that is
    orthogonal to the rows of B, and z the projection of X on the leading direction of B. The new directions tried are

    - the two leading eigenvectors of ``sum_i r_i R_i R_i'``,
    - ``R'r``,
    - ``R'(r * z)``,
    - a random direction.

    Each direction is tried with three lengths. The first candidate is the combination of direction and length with the
    lowest criterion. The lengths are not small. With a length of zero, the gradient with respect to the new row
    would be zero. With a tiny length, the criterion says little about the gain at the final length.

    If the first candidate has a higher criterion than the given candidate, there is a second candidate. The second
    candidate has the same new direction, with a length so short that the criterion does not increase (up to rounding).
    A run from the second candidate cannot end with a higher criterion than the given candidate.
    """
    B = candidate.B
    X, Y, w = criterion.rows.gather()
    reg_lambda = candidate.nu / criterion.rows.total_weight
    alpha = criterion.reduced(B, reg_lambda).alpha
    residual = Y - KernelExpansion(criterion.kernel, B, criterion.centers, alpha).at(X)
    if w is not None:
        residual = w[:, None] * residual
    r = residual[:, int(np.argmax(np.sum(residual**2, axis=0)))]
    basis = np.linalg.qr(B.T)[0]
    R = X - (X @ basis) @ basis.T
    leading = _leading_directions(R, r, rng)
    index = X @ np.linalg.svd(B, full_matrices=False)[2][0]
    directions = [*leading, R.T @ r, R.T @ (r * index), rng.standard_normal(X.shape[1])]
    best, lowest = None, math.inf
    for direction in directions:
        direction = direction - basis @ (basis.T @ direction)
        length = float(vector_norm(direction))
        if length == 0.0 or (best is not None and time.perf_counter() > deadline):
            continue
        for step in (0.1, 0.3, 0.6):
            tried = np.vstack([B, step * np.linalg.norm(B, 2) * (direction / length)])
            value = criterion.reduced(tried, reg_lambda).value
            if value < lowest:
                best, lowest = tried, value
    if best is None:
        raise FloatingPointError("the criterion is not finite for any direction that could be added")
    starts = [replace(candidate, origin=Origin.GROWN, B=best, value=lowest, score=math.inf, seconds=0.0)]
    if lowest > candidate.value:
        short = best.copy()
        for _ in range(_HALVINGS):
            if time.perf_counter() > deadline:
                break
            short[-1] *= 0.5
            value = criterion.reduced(short, reg_lambda).value
            if value <= candidate.value + _ROUNDING * abs(candidate.value):
                return [*starts, replace(starts[0], B=short, value=value)]
    return starts


def _leading_directions(R: Array, r: Array, rng: np.random.RandomState, n: int = 2) -> list[Array]:
    """Return the eigenvectors of ``sum_i r_i R_i R_i'`` for the n eigenvalues of largest absolute value.

    R_i is row i of R, and r_i is entry i of r. With more than 300 columns, the matrix is not formed, and ARPACK is
    used. If ARPACK does not converge, fewer than n eigenvectors are returned.
    """
    D = R.shape[1]
    R, r = _scale_to_one(R), _scale_to_one(r)
    if D <= _FEW_COLUMNS:
        eigenvalues, vectors = np.linalg.eigh((R * r[:, None]).T @ R)
        return list(vectors[:, np.argsort(-np.abs(eigenvalues))[:n]].T)
    product = LinearOperator((D, D), matvec=lambda v: R.T @ (r * (R @ v.ravel())), dtype=np.float64)
    try:
        return list(eigsh(product, k=n, v0=rng.standard_normal(D), tol=1e-2, maxiter=50)[1].T)
    except ArpackError as error:
        # The subclass ArpackNoConvergence has an attribute with the eigenvectors that did converge.
        return list(getattr(error, "eigenvectors", np.zeros((D, 0))).T)


def _scale_to_one(values: Array) -> Array:
    """Return the values divided by a power of two, such that the largest absolute value is between 0.5 and 1.

    Products of three such values do not overflow, and the division by a power of two has no rounding error.
    """
    return np.ldexp(values, -np.frexp(np.max(np.abs(values)))[1])


def shrink(candidate: Candidate) -> Candidate:
    """Return the candidate without its smallest direction."""
    B = principal_form(candidate.B)[0] if candidate.kernel.rotation_invariant else candidate.B
    smallest = int(np.argmin(np.linalg.norm(B, axis=1)))
    B = np.delete(B, smallest, axis=0)
    return replace(candidate, origin=Origin.SHRUNK, B=B, value=math.inf, score=math.inf, seconds=0.0)


def search_dimensions(
    criterion: Criterion,
    dimensions: Sequence[int],
    *,
    n_starts: int,
    rng: np.random.RandomState,
    n_jobs: int | None = None,
    n_threads: int = 1,
    deadline: float = math.inf,
    stop_early: bool = True,
    verbose: int = 0,
    progress: Progress | None = None,
) -> tuple[dict[int, Candidate], list[Candidate]]:
    """Return the best candidate for each number of directions, and all candidates in the order of their runs.

    Parameters
    ----------
    criterion : Criterion
        The criterion to minimize. Its rows must use one thread, because the starts are distributed over the threads.
    dimensions : sequence of int
        Numbers of directions to try, in increasing order.
    n_starts : int
        Number of random starts for each number of directions.
    rng : RandomState
        Random number generator of the starts.
    n_jobs : int or None
        Number of joblib workers.
    n_threads : int
        Number of threads. Only used if there is one worker.
    deadline : float
        Time (of ``time.perf_counter``) at which the search stops.
    stop_early : bool
        Whether to stop when two more directions have not lowered the score. Otherwise all `dimensions` are tried.
    verbose : int
        If above 0, a progress bar is shown.
    progress : Progress or None
        Object that is notified of each stage and of each new best candidate.
    """
    rows, kernel, progress = criterion.rows, criterion.kernel, progress or Progress()
    assert isinstance(rows, InMemoryRows)
    best: dict[int, Candidate] = {}
    ends: list[Candidate] = []

    def improve_all(starts: list[Candidate], max_iter: int) -> list[Candidate]:
        ended = improve_each(criterion, starts, max_iter, deadline, n_jobs=n_jobs, n_threads=n_threads)
        bar.update(len(ended))
        return sorted(ended, key=lambda candidate: candidate.value)

    def keep(candidate: Candidate) -> bool:
        """Add a candidate to the results. Return whether it is the new best candidate for its number of directions."""
        ends.append(candidate)
        d = candidate.n_components
        if not math.isfinite(candidate.value) or (d in best and candidate.value >= best[d].value):
            return False
        best[d] = candidate
        if candidate.score <= min(one.score for one in best.values()):
            progress.found(candidate)
        return True

    with progress_bar(shown=verbose, desc="search", unit="run") as bar:
        for d in dimensions:
            progress.begin(f"{d} direction{'s' if d > 1 else ''}, {kernel_name(kernel)}", Phase.DIRECTIONS, d)
            starts, in_reserve = random_starts(rows, kernel, d, n_starts, rng), []
            if d - 1 in best:
                # If the best map with d - 1 directions cannot be grown, the grown start is left out.
                with single_threaded_blas(), suppress(FloatingPointError, np.linalg.LinAlgError):
                    start, *in_reserve = grow(criterion, best[d - 1], rng, deadline)
                    starts.append(start)
            ended = improve_all([*starts, *moment_starts(rows, kernel, d)], SHORT)
            # The start from moments often has the lowest criterion after the short run, which says little about the end
            # of the long run. This start must therefore not displace a different start.
            n_kept = _SURVIVORS + any(end.origin is Origin.MOMENTS for end in ended[:_SURVIVORS])
            survivors = [end for end in ended[:n_kept] if math.isfinite(end.value)]
            dropped = ended[n_kept:] + [end for end in ended[:n_kept] if not math.isfinite(end.value)]
            ends += [replace(end, dropped=True) for end in dropped]
            for candidate in improve_all(survivors, LONG):
                keep(candidate)
            # The minimum of the criterion over maps with d directions is never above the minimum for d - 1 directions.
            # If the best value for d is above the best value for d - 1, all starts ended in poor local minima. Then the
            # start in reserve, the second candidate of `grow`, is used.
            if d in best and in_reserve and best[d].value > best[d - 1].value:
                keep(improve_all(in_reserve, LONG)[0])
            # The best map with k directions is shrunk to a start for k - 1 directions. If this improves the best map
            # with k - 1 directions, that map is shrunk in turn.
            k = d
            while k in best and k - 1 in best and time.perf_counter() < deadline:
                bar.update()
                if not keep(improve(criterion, shrink(best[k]), LONG, deadline)):
                    break
                k -= 1
            if time.perf_counter() > deadline:
                break
            if best:
                winner = min(best.values(), key=lambda candidate: candidate.score).n_components
                bar.set_postfix(tried=d, best=winner)
                if stop_early and d >= min(3, dimensions[-1]) and d >= winner + _PATIENCE:
                    break
    if not best:
        raise FitError("The criterion is not finite for any starting map: check the scale of X and y.")
    return best, ends
