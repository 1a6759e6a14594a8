"""Finding B, lambda and the number of directions by one criterion: what to try next, and when to stop.

For d = 1, 2, ... the criterion is minimised from several random maps and scales, from the best map of d - 1 directions
grown by one, and from moments of the data; all take a few steps, the best two go on (and the one from moments beside
them, where it would be one of the two). The map found is then shrunk by its smallest
direction, as another start for d - 1; where that improves, so is its result, and on downwards. Each d has a score
(`hkrr.candidates`) with ``dof = d D - d (d - 1) / 2`` parameters (rotations are free, where the kernel does not notice
them). The search goes on until two more directions have not lowered it: some signals need two at once.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np
from scipy.linalg import norm as vector_norm  # whose squares do not overflow
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh
from tqdm.auto import tqdm

from hkrr._arrays import Array
from hkrr.candidates import FIRST_LAMBDA, LONG, SHORT, Candidate, improve, improve_each
from hkrr.criteria import Criterion
from hkrr.exceptions import FitError
from hkrr.initialization import sample_map
from hkrr.kernels import Kernel, kernel_name
from hkrr.progress import Report
from hkrr.rows import InMemoryRows
from hkrr.threads import single_threaded_blas

SEARCH_ROWS, SEARCH_CENTERS = 2_000, 100  # that are enough to tell the directions
_SURVIVORS = 2
_MEDIAN_ROWS = 500
_MOMENTS = "moments"
_HALVINGS, _ROUNDING = 30, 1e-9  # of a grown direction, until it changes nothing
_FEW_COLUMNS = 300
_PATIENCE = 2  # directions tried beyond the best before the search ends


def random_starts(
    rows: InMemoryRows, kernel: Kernel, n_components: int, n_starts: int, rng: np.random.RandomState
) -> list[Candidate]:
    """Return random maps at the median rule's scale and at half of it, in turn."""
    sample = rows.take(rows.draw(_MEDIAN_ROWS, rng))
    starts = []
    for k in range(n_starts):
        B = sample_map(n_components, rows.n_features, rng)
        scale = math.sqrt(kernel.median_gamma(sample @ B.T)) * (1.0 if k % 2 == 0 else 0.5)
        nu = FIRST_LAMBDA * rows.total_weight
        starts.append(Candidate("random", kernel, scale * B, nu, n_free_columns=rows.n_free_columns))
    return starts


def moment_starts(rows: InMemoryRows, kernel: Kernel, n_components: int) -> list[Candidate]:
    """Return the map of the leading eigenvectors of ``sum_i w_i y_i x_i x_i'``, at the median rule's scale.

    Where the target is even in its directions, as a product of two, random maps see nothing of them in many dimensions,
    and these moments do once m is a few times D (principal Hessian directions: Li, 1992).
    """
    X, Y, w = rows.gather()
    if n_components > X.shape[1]:
        return []
    rng = np.random.RandomState(0)  # of its own: the other starts are what they are without this one
    y = Y[:, int(np.argmax(np.sum(Y * Y, axis=0)))]
    leading = _leading_directions(X, y if w is None else w * y, rng, n_components)
    if len(leading) < n_components:
        return []
    B = np.array(leading)
    scale = math.sqrt(kernel.median_gamma(X[rows.draw(_MEDIAN_ROWS, rng)] @ B.T))
    nu = FIRST_LAMBDA * rows.total_weight
    return [Candidate(_MOMENTS, kernel, scale * B, nu, n_free_columns=rows.n_free_columns)]


def grown(
    criterion: Criterion, candidate: Candidate, rng: np.random.RandomState, deadline: float = math.inf
) -> list[Candidate]:
    """Return the candidate with one more direction: the best of finite steps along a few that the residual suggests.

    Where even that lies above the candidate, a second one along the same direction, so short that it lies no higher
    (but for rounding): its run cannot end above the map of one direction less, of which it is a special case.

    With r the residual and R the inputs off the span of B, the directions are the leading eigenvectors of
    sum r_i R_i R_i', R'r, R'(r * index), and one at random. A zero row would never move, and a tiny one misleads.
    """
    B = candidate.B
    X, Y, w = criterion.rows.gather()
    reg_lambda = candidate.nu / criterion.rows.total_weight
    alpha = criterion.reduced(B, reg_lambda).alpha
    residual = Y - criterion.kernel(X @ B.T, criterion.centers @ B.T) @ alpha
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
        raise FloatingPointError("no direction to grow along has a finite criterion")
    starts = [replace(candidate, start="grown", B=best, value=lowest, score=math.inf, seconds=0.0)]
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
    """Return the n leading eigenvectors of ``sum_i r_i R_i R_i'``; with many columns that matrix is never formed."""
    D = R.shape[1]
    R, r = _near_one(R), _near_one(r)
    if D <= _FEW_COLUMNS:
        eigenvalues, vectors = np.linalg.eigh((R * r[:, None]).T @ R)
        return list(vectors[:, np.argsort(-np.abs(eigenvalues))[:n]].T)
    product = LinearOperator((D, D), matvec=lambda v: R.T @ (r * (R @ v.ravel())), dtype=np.float64)
    try:
        return list(eigsh(product, k=n, v0=rng.standard_normal(D), tol=1e-2, maxiter=50)[1].T)
    except ArpackError as error:  # of which some have converged, or none
        return list(getattr(error, "eigenvectors", np.zeros((D, 0))).T)


def _near_one(values: Array) -> Array:
    """Return the values times a power of two, which costs no bits: products of three large ones would overflow."""
    return np.ldexp(values, -np.frexp(np.max(np.abs(values)))[1])


def shrunk(candidate: Candidate, rotation_invariant: bool) -> Candidate:
    """Return the candidate without its smallest direction."""
    B = candidate.B
    if rotation_invariant:
        _, s, Vt = np.linalg.svd(B, full_matrices=False)
        B = s[:, None] * Vt
    smallest = int(np.argmin(np.linalg.norm(B, axis=1)))
    return replace(
        candidate, start="shrunk", B=np.delete(B, smallest, axis=0), value=math.inf, score=math.inf, seconds=0.0
    )


def search_dimensions(
    criterion: Criterion,
    dimensions: Sequence[int],
    *,
    n_starts: int,
    rng: np.random.RandomState,
    n_jobs: int | None = None,
    n_threads: int = 1,
    deadline: float = math.inf,
    patient: bool = True,
    verbose: int = 0,
    report: Report | None = None,
) -> tuple[dict[int, Candidate], list[Candidate]]:
    """Return the best candidate for each number of directions tried, and all of them in the order of their ends.

    ``patient`` ends the search two directions past the best; otherwise all the dimensions are tried. The starts share
    ``n_threads`` threads, so the rows of the criterion should have none of their own. The report is told of the best
    candidate each time there is a better one.
    """
    rows, kernel, report = criterion.rows, criterion.kernel, report or Report()
    assert isinstance(rows, InMemoryRows)
    best: dict[int, Candidate] = {}
    ends: list[Candidate] = []

    def improve_all(starts: list[Candidate], max_iter: int) -> list[Candidate]:
        ended = improve_each(criterion, starts, max_iter, deadline, n_jobs=n_jobs, n_threads=n_threads)
        bar.update(len(ended))
        return sorted(ended, key=lambda candidate: candidate.value)

    def keep(candidate: Candidate) -> bool:
        """Record an end; return whether it is the best of its number of directions."""
        ends.append(candidate)
        d = candidate.n_components
        if not math.isfinite(candidate.value) or (d in best and candidate.value >= best[d].value):
            return False
        best[d] = candidate
        if candidate.score <= min(one.score for one in best.values()):
            report.found(candidate)
        return True

    with tqdm(disable=not verbose, desc="search", unit="run") as bar:
        for d in dimensions:
            report.trying(f"{d} direction{'s' if d > 1 else ''}, {kernel_name(kernel)}")
            starts, in_reserve = random_starts(rows, kernel, d, n_starts, rng), []
            if d - 1 in best:
                # A grown start that cannot be evaluated is one start less.
                with single_threaded_blas(), suppress(FloatingPointError, np.linalg.LinAlgError):
                    start, *in_reserve = grown(criterion, best[d - 1], rng, deadline)
                    starts.append(start)
            begun = improve_all([*starts, *moment_starts(rows, kernel, d)], SHORT)
            # The start from moments takes the place of no other: it may be ahead early, and no better in the end.
            places = _SURVIVORS + any(end.start == _MOMENTS for end in begun[:_SURVIVORS])
            going_on, dropped = begun[:places], begun[places:]
            dropped += [end for end in going_on if not math.isfinite(end.value)]
            ends += [replace(end, start=f"{end.start}, dropped") for end in dropped]
            for candidate in improve_all([end for end in going_on if math.isfinite(end.value)], LONG):
                keep(candidate)
            # One more direction cannot be worse; if all starts say so they have failed.
            if d in best and in_reserve and best[d].value > best[d - 1].value:
                keep(improve_all(in_reserve, LONG)[0])
            # A better map of k directions is a better start for k - 1, and that one for k - 2.
            k = d
            while k in best and k - 1 in best and time.perf_counter() < deadline:
                bar.update()
                if not keep(improve(criterion, shrunk(best[k], kernel.rotation_invariant), LONG, deadline)):
                    break
                k -= 1
            if time.perf_counter() > deadline:
                break
            if best:
                winner = min(best.values(), key=lambda candidate: candidate.score).n_components
                bar.set_postfix(tried=d, best=winner)
                if patient and d >= min(3, dimensions[-1]) and d >= winner + _PATIENCE:
                    break
    if not best:
        raise FitError("No start has a finite criterion: check the scale of X and y.")
    return best, ends
