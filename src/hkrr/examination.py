"""How the health of a fitted model is found out: the numbers of its `hkrr.diagnostics.Diagnostics`.

With A the positive definite system that gave the coefficients, L its Cholesky factor and R lambda's part of it,

    with all rows as centers            A = sqrt(w) K sqrt(w) + lambda W I,      R = lambda W I
    with centers, lambda >= 1e-4 kappa  A = K'WK / W + lambda K_cc,              R = lambda K_cc
    with centers, below                 A = T^-1 K'WK T^-T / W + lambda I,       R = lambda I    (T T' = K_cc)

the effective dimension is ``d_eff = tr A^-1 (A - R) = c - tr L^-1 R L^-T``, the trace of the hat matrix: how many
parameters the function has. Beyond 512 centers the trace is an average over 64 random signs z of ``z' L^-1 R L^-T z``
(Hutchinson's): off by ``sqrt(d_eff / 32)`` at most, one standard deviation, as the eigenvalues of the hat matrix are
between 0 and 1. The condition number is LAPACK's estimate in the 1-norm.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpocon

from hkrr._arrays import EPS, Array, Watch, array_namespace
from hkrr.conformal import Uncertainty, uncertainty_of
from hkrr.diagnostics import OVERSHOOT, Diagnostics, Starts
from hkrr.exceptions import FitError
from hkrr.journal import step
from hkrr.kernels import Kernel
from hkrr.objective import Objective
from hkrr.overfitting import adjusted_share, parameters_of
from hkrr.rows import Rows
from hkrr.rows.base import targets
from hkrr.solvers import Result, at_bound
from hkrr.threads import blas_for

SAMPLE_ROWS = 20_000  # that predictions are looked at, at most
_PROBES, _EXACT_TRACE = 64, 512
_COMPARED, _FEW = 200, 10  # rows whose correlations are looked at, and what they must be at least
_NO_SCALE = 1e-6  # from one, or zero: correlations at which gamma has lost its meaning
_SHORT_RUN, _TAIL, _STILL_FALLING = 50, 0.2, 0.01
_SLACK, _SLACK_OF_SAMPLE = 1e-7, 1e-2

LOST = (
    "Rounding has left nothing of the fit: on its own training rows it is worse than the mean of y. Raise reg_lambda, "
    "use scale_features=True, or take a bounded kernel such as 'gaussian'."
)

Predict = Callable[[Rows], Array]


class Solve(NamedTuple):
    """What is known of a solve once its factor is gone: a few numbers, which a journal can keep."""

    condition: float
    effective_dimension: float
    jitter: float
    worst: float  # the largest condition number that costs the fitted function digits


def diagnose(
    rows: Rows,
    objective: Any,
    result: Result,
    predict: Predict,
    starts: Starts,
    *,
    edges: tuple[str, ...] = (),
    truncation: Any = None,
    solve: Solve | None = None,
    map_parameters: float | None = None,
) -> Diagnostics:
    """Return the health of a model, in the coordinates of its optimisation.

    Parameters
    ----------
    rows : Rows
    objective : Objective or Criterion
        What was solved: its kernel, its centers, and whether these are all rows.
    result : Result
    predict : callable
        The stored model as a function of rows, before it is cut.
    starts : Starts
    edges : tuple of str
        What is known to have ended at an edge.
    truncation : float, array or None
        Where predictions are cut.
    solve : Solve or None
        The one that gave the coefficients; without, it is done once more.
    map_parameters : float or None
        How many the map has; None: as a full map that the run has learned.

    Raises
    ------
    FitError
        Where rounding has left nothing of the fit.
    """
    if objective.learn_lambda and at_bound(result.reg_lambda):
        edges = (*edges, "reg_lambda")
    solve = solved_again(rows, objective, result)[0] if solve is None else solve
    with np.errstate(all="ignore"), blas_for(len(objective.centers)):
        found = _diagnose(rows, objective, result, predict, starts, edges, truncation, solve)
    if map_parameters is None:  # of a map that was given, and not learned, none
        learned = parameters_of(result.B, rows.n_free_columns, objective.kernel.rotation_invariant)
        map_parameters = learned if result.n_iter > 0 else 0.0
    explained, effective = found.explained_share, found.effective_dimension
    return replace(found, adjusted_share=adjusted_share(explained, effective, map_parameters, rows.n_counted))


def _diagnose(
    rows: Rows,
    objective: Any,
    result: Result,
    predict: Predict,
    starts: Starts,
    edges: tuple[str, ...],
    truncation: Any,
    solve: Solve,
) -> Diagnostics:
    sample: Rows = rows if rows.n_rows <= SAMPLE_ROWS else rows.subset(rows.draw(SAMPLE_ROWS, _rng()))
    kernel, B, C = objective.kernel, result.B, objective.centers @ result.B.T
    slack = _SLACK if rows.n_rows <= SAMPLE_ROWS else _SLACK_OF_SAMPLE
    explained, truncated, overshooting = _shares(sample, predict, truncation, slack)
    if not _has_scale(sample, kernel, B, C):
        edges = (*edges, "gamma")
    if explained is None:
        edges = ()  # to fit what is constant, everything is as good
    return Diagnostics(
        condition=solve.condition,
        digits=-math.log10(EPS * min(solve.condition, solve.worst)),
        jitter=solve.jitter,
        effective_dimension=solve.effective_dimension,
        explained_share=explained,
        truncated_share=truncated,
        overshooting_share=overshooting,
        starts_tried=starts.tried,
        starts_dropped=starts.dropped,
        starts_failed=starts.failed,
        stopped=result.reason,
        still_falling=_still_falling(result, objective.loss_at_zero),
        at_edge=edges,
        n_rows=rows.n_counted,
        n_centers=len(objective.centers),
    )


def solved_again(rows: Rows, objective: Any, result: Result) -> tuple[Solve, Uncertainty | None]:
    """Return what is known of the solve at the end of a run, and how sure the model is, from one more solve.

    That is as much as half an evaluation of the objective. What cannot be solved again has an infinite condition.
    """

    def compute() -> tuple[Any, ...]:
        watch, solved, sure = Watch(), result.alpha, None
        last = Objective(rows, None if objective.exact else objective.centers, objective.kernel, result.reg_lambda)
        with np.errstate(all="ignore"), blas_for(len(objective.centers)):
            try:
                solved = last.solve_alpha(result.B, watch)
                sure = uncertainty_of(last, result.B, result.alpha, solved, watch, "full")
            except (ArithmeticError, np.linalg.LinAlgError):
                watch = Watch()
            return tuple(known_of(watch, rows)), None if sure is None else tuple(sure)

    known, sure = step(("solved again", objective.content, result.B, result.reg_lambda), compute)
    return Solve(*known), None if sure is None else Uncertainty(*sure)


def of_search(
    model: Any, rows: Rows, objective: Any, result: Result, winner: Any, ends: list[Any], solve: Solve
) -> Diagnostics:
    """Return the health of a HyperKernelRidgeCV that a search has chosen: the winner, of all candidates tried."""
    dropped = sum("dropped" in end.start and math.isfinite(end.value) for end in ends)
    failed = sum(not math.isfinite(end.value) for end in ends)
    if model.time_limit is not None:  # what there was no time to look at has no value either, and has not failed
        dropped, failed = dropped + failed, 0
    tried = {end.n_components for end in ends if end.shape.name == "full"}
    edges: tuple[str, ...] = ()
    if winner.shape.name == "full":
        edges = _at_an_end("n_components", winner.n_components, tried, model.n_features_in_)
    if winner.lambda_at_bound:
        edges = (*edges, "reg_lambda")
    starts, cut = Starts(len(ends), dropped, failed), model.truncation_ if model.truncate else None
    p = winner.degrees_of_freedom
    return diagnose(
        rows, objective, result, model._uncut, starts, edges=edges, truncation=cut, solve=solve, map_parameters=p
    )


def of_grid(model: Any, last: Any, X: Array) -> Diagnostics:
    """Return the health of a HyperKernelRidgeCV whose pair is of a grid, from its last fit, a HyperKernelRidge."""
    found: Diagnostics = last.diagnostics_
    lambdas, dimensions = (set(model.cv_results_[name].tolist()) for name in ("reg_lambda", "n_components"))
    edges = _at_an_end("n_components", model.n_components_, dimensions, model.n_features_in_)
    if len(lambdas) > 1:
        edges += _at_an_end("reg_lambdas", model.reg_lambda_, lambdas, math.inf)
    truncated = overshooting = None
    if model.truncate:
        some = X if len(X) <= SAMPLE_ROWS else X[_rng().permutation(len(X))[:SAMPLE_ROWS]]
        predicted = last.predict(some).reshape(len(some), -1)
        truncated, overshooting = _shares_beyond(predicted, model.truncation_, np.ones(len(some)))
    edges = (*edges, *found.at_edge)
    return replace(found, at_edge=edges, truncated_share=truncated, overshooting_share=overshooting)


def _at_an_end(name: str, value: float, tried: set[Any], most: float) -> tuple[str, ...]:
    """Return the name if the value is the least or the largest of several that were tried, and more would be possible.

    One direction is the fewest there can be, and ``most`` the most.
    """
    if len(tried) < 2:
        return ()
    fewest = name == "n_components" and value == 1
    return (name,) if (value == min(tried) and not fewest) or (value == max(tried) and value < most) else ()


def known_of(watch: Watch, rows: Rows) -> Solve:
    """Return what is to be known of a solve, from what it left behind."""
    with np.errstate(all="ignore"):
        return Solve(*condition_and_dimension(watch, rows), float(watch.jitter), float(watch.worst))


def condition_and_dimension(watch: Watch, rows: Rows) -> tuple[float, float]:
    """Return the condition number and the effective dimension of a system that was solved."""
    if watch.factor is None:
        return math.inf, math.nan
    # On the processor: a transfer of what is c x c, and c^2 of work for each of the probes.
    factor = rows.fetch(watch.factor)[0]
    upper = factor.T  # in the order of memory that LAPACK takes without a copy
    reciprocal, _ = dpocon(upper, watch.norm, uplo="U")
    c = len(factor)
    Z = np.eye(c) if c <= _EXACT_TRACE else _rng().choice([-1.0, 1.0], (c, _PROBES))
    half = solve_triangular(upper, Z, check_finite=False)  # L^-T Z
    penalty = watch.penalty
    of_lambda = np.vdot(half, penalty * half if isinstance(penalty, float) else rows.fetch(penalty)[0] @ half)
    if c > _EXACT_TRACE:
        of_lambda /= _PROBES
    return 1.0 / reciprocal if reciprocal > 0 else math.inf, float(np.clip(c - of_lambda, 0.0, c))


def _rng() -> np.random.RandomState:
    """Return a generator of its own: the user's is what it would be without an examination."""
    return np.random.RandomState(0)


def _shares_beyond(predicted: Array, truncation: Any, counted: Array) -> tuple[float, float]:
    """Return the share of the rows whose prediction is cut, and of those where it goes far beyond that."""
    sizes = np.abs(predicted)
    cut, far = (np.any(sizes > room * truncation, axis=1) for room in (1.0, OVERSHOOT))
    return float(np.average(cut, weights=counted)), float(np.average(far, weights=counted))


def _shares(
    sample: Rows, predict: Predict, truncation: Any, slack: float
) -> tuple[float | None, float | None, float | None]:
    """Return the share of the variance that is explained, of the rows whose prediction is cut, and of those far beyond.

    The coefficients are a minimum of what is ``sum w y^2`` at zero. Where the error is above that, up to the slack of
    what a part of the rows can say, there is nothing in them but rounding.
    """
    # Rows that are elsewhere stay there: what comes back is a few numbers for each.
    centred, Y = sample.map(targets), sample.with_coordinates(None, None, None).map(targets)
    w = sample.map(_weights)[:, 0]
    predicted = predict(sample).reshape(Y.shape)
    truncated = overshooting = None
    if truncation is not None:
        truncated, overshooting = _shares_beyond(predicted, truncation, w > 0)
        predicted = np.clip(predicted, -truncation, truncation)
    unit = float(np.max(np.abs(Y))) or 1.0  # the squares of very large numbers, or small ones, are none

    def squares(part: Array) -> float:
        return float(np.sum(w[:, None] * (part / unit) ** 2))

    of_model, of_mean, of_zero = (
        squares(part) for part in (Y - predicted, Y - np.average(Y, axis=0, weights=w), centred)
    )
    of_rounding, nothing = (float(np.sum(w)) * Y.shape[1] * (digits * EPS) ** 2 for digits in (8.0, 64.0))
    if not of_model <= (1.0 + slack) * of_zero + of_rounding:
        raise FitError(LOST)
    return (1.0 - of_model / of_mean if of_mean > nothing else None), truncated, overshooting


def _weights(X: Array, Y: Array, w: Array | None) -> tuple[Array]:
    return (array_namespace(Y).ones_like(Y[:, :1]) if w is None else w[:, None],)


def _has_scale(sample: Rows, kernel: Kernel, B: Array, C: Array) -> bool:
    """Return whether the kernel tells some pairs of rows and centers from others.

    Its correlations ``k(p, c) / sqrt(k(p, p) k(c, c))``, but for those of a point with itself, are neither all one nor
    all zero.
    """
    rng = _rng()
    P = sample.take(sample.draw(_COMPARED, rng)) @ B.T
    C = C[rng.permutation(len(C))[:_COMPARED]]
    apart = np.any(P[:, None] != C[None], axis=2)
    if np.count_nonzero(np.any(apart, axis=1)) < _FEW:
        return True  # of few points, all alike or all apart is no surprise
    correlations = kernel(P, C) / np.sqrt(kernel.diagonal(P)[:, None] * kernel.diagonal(C))
    nearest, farthest = float(np.max(correlations[apart])), float(np.min(correlations[apart]))
    return not (farthest > 1.0 - _NO_SCALE or nearest < _NO_SCALE)


def _still_falling(result: Result, loss_at_zero: float) -> bool:
    """Return whether a run that was not meant to be short ended at its limit, its objective far from resting."""
    values = result.history["objective"]
    if result.reason != "max_iter" or result.n_iter < _SHORT_RUN:
        return False
    before = values[-1 - math.ceil(_TAIL * result.n_iter)]
    return bool(before - values[-1] > _STILL_FALLING * loss_at_zero)
