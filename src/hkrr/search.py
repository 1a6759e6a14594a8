"""Finding B, lambda and the number of directions by one criterion: what to try next, and when to stop.

For d = 1, 2, ... the criterion is minimised from several random maps and scales, and from the best map of d - 1
directions grown by one; all take a few steps, the best two go on. The map found is then shrunk by its smallest
direction, as another start for d - 1; where that improves, so is its result, and on downwards. Each d has a score, the
criterion in nats over the rows searched plus the price of its parameters (BIC),

    ``score(d) = T W l + (dof / 2) log W,    dof = d D - d (d - 1) / 2``

for T targets (rotations are free, where the kernel does not notice them). The search goes on until two more directions
have not lowered it: some signals need two at once.

In all of it lambda is carried as nu = lambda W, the noise in units of the signal, which does not change with the number
of rows; and gamma is 1, its scale being the map's own.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import joblib
import numpy as np
from tqdm.auto import tqdm

from hkrr._arrays import Array
from hkrr.criteria import Criterion, Evidence
from hkrr.exceptions import FitError
from hkrr.initialization import sample_map
from hkrr.kernels import Kernel
from hkrr.objective import Reduced
from hkrr.rows import InMemoryRows, single_threaded_blas
from hkrr.solvers import LBFGS, Result, State, run

_FIRST_LAMBDA = 0.03  # at a random start
_SHORT, _LONG = 12, 60  # iterations before and after the poor starts are dropped
_SURVIVORS = 2
_PATIENCE = 2  # directions tried beyond the best before the search ends
_PLATEAU = 1e-6  # a fall, per iteration and row, that decides nothing


@dataclass(frozen=True)
class Candidate:
    """A map, its noise, and what the criterion says of it."""

    start: str
    B: Array
    nu: float
    value: float
    score: float
    seconds: float

    @property
    def n_components(self) -> int:
        """Number of directions."""
        return int(self.B.shape[0])


class Plateau:
    """A callback that ends a run whose objective has fallen by less than ``least`` an iteration for five of them."""

    def __init__(self, least: float) -> None:
        self._least, self._last = least, [math.inf] * 5

    def __call__(self, state: State) -> bool:
        oldest, self._last = self._last[0], [*self._last[1:], state.objective]
        return oldest - state.objective < 5 * self._least


def degrees_of_freedom(n_components: int, n_features: int, rotation_invariant: bool) -> float:
    """Return the parameters of a map: its entries, less the rotations that change nothing."""
    free = n_components * (n_components - 1) / 2 if rotation_invariant else 0
    return n_components * n_features - free


def score(criterion: Criterion, value: float, dof: float) -> float:
    """Return ``T W l + (dof / 2) log W``; for a mean squared error l is half its logarithm."""
    W, n_targets = criterion.rows.total_weight, max(1, int(np.count_nonzero(criterion.squares)))
    nats = value if isinstance(criterion, Evidence) else 0.5 * math.log(max(value, 1e-300))
    return n_targets * W * nats + 0.5 * dof * math.log(max(W, 2.0))


def improve(criterion: Criterion, start: Candidate, max_iter: int, deadline: float = math.inf) -> Candidate:
    """Return the candidate after at most ``max_iter`` steps of L-BFGS on the map and lambda.

    One that cannot be evaluated comes back with a criterion of infinity.
    """
    began = time.perf_counter()
    with single_threaded_blas():
        criterion = _at(criterion, start.nu)
        try:
            result = run(
                LBFGS(),
                criterion,
                start.B,
                max_iter=max_iter,
                tol=1e-5,
                time_limit=None if math.isinf(deadline) else deadline - began,
                callbacks=[Plateau(_PLATEAU * criterion.loss_at_zero)],
            )
        except FitError:
            return replace(start, value=math.inf, score=math.inf)
    d, D = result.B.shape
    dof = degrees_of_freedom(d, D, criterion.kernel.rotation_invariant)
    return Candidate(
        start.start,
        result.B,
        result.reg_lambda * criterion.rows.total_weight,
        result.objective,
        score(criterion, result.objective, dof),
        start.seconds + time.perf_counter() - began,
    )


def _at(criterion: Criterion, nu: float) -> Criterion:
    """Return the criterion with lambda learned from where nu puts it."""
    centers = None if criterion.exact else criterion.centers
    return type(criterion)(criterion.rows, centers, criterion.kernel, nu / criterion.rows.total_weight, True)


class OneScale:
    """A criterion at B = s I, plain kernel ridge regression: s, a 1 x 1 matrix, and lambda are learned."""

    learn_lambda = True

    def __init__(self, criterion: Criterion) -> None:
        self._criterion, self._identity = criterion, np.eye(criterion.rows.n_features)
        self.reg_lambda, self.loss_at_zero = criterion.reg_lambda, criterion.loss_at_zero
        self.n_centers = criterion.n_centers

    def reduced(self, s: Array, reg_lambda: float) -> Reduced:
        """Return the criterion, its derivatives in s and log lambda, and the coefficients."""
        reduced = self._criterion.reduced(s[0, 0] * self._identity, reg_lambda)
        return replace(reduced, grad=np.array([[np.trace(reduced.grad)]]))


def plain(
    criterion: Criterion, noises: Sequence[float], rng: np.random.RandomState, deadline: float = math.inf
) -> tuple[Candidate, Result]:
    """Return the best of plain kernel ridge regression, as a candidate with a multiple of the identity for its map.

    From each of the given nu, and from lambda = 0.03: a single run can end where the noise is taken for nothing.
    """
    began, rows = time.perf_counter(), criterion.rows
    scale = math.sqrt(criterion.kernel.median_gamma(rows.take(rows.draw(500, rng))))
    results = []
    for nu in (*noises, _FIRST_LAMBDA * rows.total_weight):
        left = None if math.isinf(deadline) else deadline - time.perf_counter()
        one_scale = OneScale(_at(criterion, nu))
        results.append(run(LBFGS(), one_scale, np.array([[scale]]), max_iter=_LONG, tol=1e-5, time_limit=left))
    best = min(results, key=lambda result: result.objective)
    B, nu = best.B[0, 0] * np.eye(rows.n_features), best.reg_lambda * rows.total_weight
    candidate = Candidate(
        "plain", B, nu, best.objective, score(criterion, best.objective, 1.0), time.perf_counter() - began
    )
    return candidate, best


def random_starts(
    rows: InMemoryRows, kernel: Kernel, n_components: int, n_starts: int, rng: np.random.RandomState
) -> list[Candidate]:
    """Return random maps at the median rule's scale and at half of it, in turn."""
    sample = rows.take(rows.draw(500, rng))
    starts = []
    for k in range(n_starts):
        B = sample_map(n_components, rows.n_features, rng)
        scale = math.sqrt(kernel.median_gamma(sample @ B.T)) * (1.0 if k % 2 == 0 else 0.5)
        starts.append(Candidate("random", scale * B, _FIRST_LAMBDA * rows.total_weight, math.inf, math.inf, 0.0))
    return starts


def grown(criterion: Criterion, candidate: Candidate, rng: np.random.RandomState) -> Candidate:
    """Return the candidate with one more direction: the best of finite steps along a few that the residual suggests.

    With r the residual and R the inputs off the span of B: the leading eigenvectors of sum r_i R_i R_i', R'r,
    R'(r * index), and one at random. A zero row would never move, and a tiny one misleads.
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
    eigenvalues, vectors = np.linalg.eigh((R * r[:, None]).T @ R)
    leading = vectors[:, np.argsort(-np.abs(eigenvalues))[:2]].T
    index = X @ np.linalg.svd(B, full_matrices=False)[2][0]
    directions = [*leading, R.T @ r, R.T @ (r * index), rng.standard_normal(X.shape[1])]
    best, lowest = None, math.inf
    for direction in directions:
        direction = direction - basis @ (basis.T @ direction)
        length = float(np.linalg.norm(direction))
        if length == 0.0:
            continue
        for step in (0.1, 0.3, 0.6):
            tried = np.vstack([B, (step * np.linalg.norm(B, 2) / length) * direction])
            value = criterion.reduced(tried, reg_lambda).value
            if value < lowest:
                best, lowest = tried, value
    if best is None:
        raise FloatingPointError("no direction to grow along has a finite criterion")
    return replace(candidate, start="grown", B=best, value=lowest, score=math.inf, seconds=0.0)


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
    deadline: float = math.inf,
    patient: bool = True,
    verbose: int = 0,
) -> tuple[dict[int, Candidate], list[Candidate]]:
    """Return the best candidate for each number of directions tried, and all of them in the order of their ends.

    ``patient`` ends the search two directions past the best; otherwise all the dimensions are tried.
    """
    rows, kernel = criterion.rows, criterion.kernel
    assert isinstance(rows, InMemoryRows)
    best: dict[int, Candidate] = {}
    ends: list[Candidate] = []
    bar = tqdm(disable=not verbose, desc="search", unit="run")

    def improve_all(starts: list[Candidate], max_iter: int) -> list[Candidate]:
        ended: list[Candidate] = joblib.Parallel(n_jobs=n_jobs)(
            joblib.delayed(improve)(criterion, start, max_iter, deadline) for start in starts
        )
        bar.update(len(ended))
        return sorted(ended, key=lambda candidate: candidate.value)

    def keep(candidate: Candidate) -> bool:
        """Record an end; return whether it is the best of its number of directions."""
        ends.append(candidate)
        d = candidate.n_components
        if not math.isfinite(candidate.value) or (d in best and candidate.value >= best[d].value):
            return False
        best[d] = candidate
        return True

    for d in dimensions:
        starts = random_starts(rows, kernel, d, n_starts, rng)
        if d - 1 in best:
            # A grown start that cannot be evaluated is one start less.
            with single_threaded_blas(), suppress(FloatingPointError):
                starts.append(grown(criterion, best[d - 1], rng))
        survivors = [start for start in improve_all(starts, _SHORT)[:_SURVIVORS] if math.isfinite(start.value)]
        for candidate in improve_all(survivors, _LONG):
            keep(candidate)
        if d not in best:
            continue
        # A better map of k directions is a better start for k - 1, and that one for k - 2.
        k = d
        while k - 1 in best and time.perf_counter() < deadline:
            bar.update()
            if not keep(improve(criterion, shrunk(best[k], kernel.rotation_invariant), _LONG, deadline)):
                break
            k -= 1
        winner = min(best.values(), key=lambda candidate: candidate.score).n_components
        bar.set_postfix(tried=d, best=winner)
        enough = patient and d >= min(3, dimensions[-1]) and d >= winner + _PATIENCE
        if enough or time.perf_counter() > deadline:
            break
    bar.close()
    if not best:
        raise FitError("No start has a finite criterion: check the scale of X and y.")
    return best, ends
