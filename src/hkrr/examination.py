"""How the health of a fitted model is found out: the numbers of its `hkrr.diagnostics.Diagnostics`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from hkrr._arrays import EPS, Array, array_namespace
from hkrr.diagnostics import OVERSHOOT, Diagnostics, Starts
from hkrr.exceptions import FitError
from hkrr.kernels import Kernel
from hkrr.overfitting import adjusted_share, parameters_of
from hkrr.rows import Rows
from hkrr.rows.base import targets
from hkrr.solvers import Result, at_bound
from hkrr.solves import Solve, rng_of_its_own, solved_again
from hkrr.threads import blas_for

SAMPLE_ROWS = 20_000  # that predictions are looked at, at most
_COMPARED, _FEW = 200, 10  # rows whose correlations are looked at, and what they must be at least
_NO_SCALE = 1e-6  # from one, or zero: correlations at which gamma has lost its meaning
_SHORT_RUN, _TAIL, _STILL_FALLING = 50, 0.2, 0.01
_SLACK, _SLACK_OF_SAMPLE = 1e-7, 1e-2

LOST = (
    "Rounding has left nothing of the fit: on its own training rows it is worse than the mean of y. Raise reg_lambda, "
    "use scale_features=True, or take a bounded kernel such as 'gaussian'."
)

Predict = Callable[[Rows], Array]


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
    sample: Rows = rows if rows.n_rows <= SAMPLE_ROWS else rows.subset(rows.draw(SAMPLE_ROWS, rng_of_its_own()))
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
        some = X if len(X) <= SAMPLE_ROWS else X[rng_of_its_own().permutation(len(X))[:SAMPLE_ROWS]]
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
    rng = rng_of_its_own()
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
