"""How far off rows are that a fit has not seen: the scores that the intervals of `predict_interval` are made of.

No rows are held out of a fit. At a fixed map the residual of a row left out is in closed form, ``r_i / (1 - h_i)``;
but the map was learned from that row too, and with dD numbers in it intervals made of these are too narrow. So the map
counts as well, to first order: f(x) = g(Bx) moves with B along its tangents, the slopes of g times x,

    J_i = dg(B x_i) x_i'        (d x D numbers; for a diagonal map the scale of each column, else one scale)

and these are put beside the kernels as further features, with a Gaussian prior on the change of B, whose entries vary
as those of B do (of logarithms of scales: by one). In weighted coordinates, with H the hat matrix at a fixed map,

    h'_i = h_i + R_i Q^-1 R_i',   R = (I - H) J,   Q = J'(I - H) J + rho I,   rho = nu dD / |B|^2

are the leverages of that larger linear model: the residual of a row left out is ``r_i / (1 - h'_i)``, and its score
that over the standard deviation which the equivalent Gaussian process (`hkrr.posterior`) without the row has there,
``s (slack + nu + (nu / w_i) h_i / (1 - h_i))``, with ``slack = k(x, x) - |v|^2`` what the centers leave out. Several
targets share the map: a row is left out with all of them, and 1 - h'_i is a matrix. (Targets are in units of sqrt(s).)

With many rows 1,000 of them have scores. With centers the sums are over 20,000 rows at most, 4,000 where rows have to
be brought here, and stand for all.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import LinAlgError

from hkrr._arrays import Array, Watch, array_namespace, jittered_cholesky, solve_triangular
from hkrr.kernels import Kernel
from hkrr.objective import Objective
from hkrr.posterior import center_factor, packed, shrinkage
from hkrr.rows import InMemoryRows, Rows

SCORED_ROWS = 1_000
_SUMMED_ROWS, _BROUGHT_ROWS = 20_000, 4_000
_TANGENTS = 1_000  # features at most: more of them are mixed at random, which keeps their products
_LEAST_FREEDOM = 1e-6  # of a row: what is left of 1 - h by the map, at least


class Uncertainty(NamedTuple):
    """What a fit keeps to know how sure it is; see the attributes of `hkrr.HyperKernelRidge`."""

    prior_variance: Array  # s of each target
    noise_variance: Array
    scores: Array  # (n, t), each column sorted
    factor: Array | None
    center_weight: Array | None


class _LeftOut(NamedTuple):
    """Of the rows that are scored, in weighted coordinates."""

    freedom: Array  # (n,) 1 - h
    slack: Array  # (n,) k(x, x) - |v|^2
    R: Array  # (n, t, p)
    Q: Array  # (p, p) but for the prior
    residual: Array  # (n, t)
    weight: Array  # (n,)


def uncertainty_of(
    objective: Objective, B: Array, alpha: Array, solved: Array, watch: Watch, shape: str
) -> Uncertainty | None:
    """Return what a fit keeps to know how sure it is, or None where the system cannot be factorised, or memory ends.

    Parameters
    ----------
    objective : Objective
    B : array (d, D)
    alpha : array (c, t)
        The coefficients of the model.
    solved : array (c, t)
        Those that the system has, the same but for solvers that stop before.
    watch : Watch
        What the solve has left behind.
    shape : {"full", "diagonal", "identity"}
        What of B was learned: all of it, the scale of each column, or one scale.
    """
    if watch.factor is None:
        return None
    try:
        with np.errstate(all="ignore"):
            return (_exact if objective.exact else _with_centers)(objective, B, alpha, solved, watch, shape)
    except (ArithmeticError, LinAlgError, MemoryError):  # a fit that is done is not lost for this
        return None


def _exact(objective: Objective, B: Array, alpha: Array, solved: Array, watch: Watch, shape: str) -> Uncertainty:
    """With all rows as centers ``I - H = nu (D K D + nu I)^-1``: the factor of that is there."""
    rows = objective.rows
    X, Y, w = rows.gather()
    weight = np.ones(len(X)) if w is None else w
    W, root = rows.total_weight, np.sqrt(weight)[:, None]
    nu = objective.reg_lambda * W
    scale = np.sum(Y * solved, axis=0) / W
    unit = _unit(scale)
    factor = rows.fetch(watch.factor)[0]
    fitted, slopes = _values_and_slopes(rows, objective.kernel, B, objective.centers, alpha / unit)
    J = root[:, :, None] * _tangents(X, B, slopes, shape)
    n, t, p = J.shape
    # Two triangular solves, as the factor need not be copied for them.
    half = solve_triangular(factor, J.reshape(n, t * p).copy())
    R = nu * solve_triangular(factor, half, transpose=True).reshape(n, t, p)
    some = _drawn(weight)
    columns = np.zeros((n, len(some)))
    columns[some, np.arange(len(some))] = 1.0
    columns = solve_triangular(factor, columns)
    left_out = _LeftOut(
        nu * np.sum(columns * columns, axis=0),
        np.zeros(len(some)),
        R[some],
        np.tensordot(J, R, ((0, 1), (0, 1))),
        (Y / unit - fitted)[some],
        weight[some],
    )
    scores = _scores(left_out, nu, _precision(B, shape))
    return Uncertainty(scale, nu * scale, scores, None, w)


def _with_centers(objective: Objective, B: Array, alpha: Array, solved: Array, watch: Watch, shape: str) -> Uncertainty:
    """With centers ``h_i = |G v_i|^2 / nu``, ``(I - H) J = J - K Z``, ``J'(I - H) J = |J - K Z|^2 + nu |T' Z|^2``.

    Z are the coefficients that smooth J, ``Z = T^-T S^-1 V J`` with ``S^-1 = G'G / nu``: two passes over the sample.
    """
    kernel, centers, t = objective.kernel, objective.centers, alpha.shape[1]
    nu, C = objective.reg_lambda * objective.rows.total_weight, centers @ B.T
    sample = _sample(objective.rows)
    X, Y, w = sample.gather()
    weight = np.ones(len(X)) if w is None else w
    stands_for = objective.rows.total_weight / sample.total_weight
    T = center_factor(kernel, C)
    G = shrinkage(watch, T, objective.reg_lambda, objective.rows)
    unsolved = Y - _values_and_slopes(sample, kernel, B, centers, solved)[0]
    scale = np.maximum(weight @ (Y * unsolved), 0.0) / (sample.total_weight * nu)
    unit = _unit(scale)
    fitted, slopes = _values_and_slopes(sample, kernel, B, centers, alpha / unit)

    def left_over(X: Array, S: Array, B: Array, C: Array, Z: Array) -> Array:
        """Return ``J - K Z``."""
        J = _tangents(X, B, S.reshape(len(X), t, len(B)), shape)
        return J - (kernel(X @ B.T, C) @ Z).reshape(J.shape)

    def smoothed(X: Array, S: Array, w: Array | None, B: Array, C: Array) -> tuple[Array]:
        J = _tangents(X, B, S.reshape(len(X), t, len(B)), shape).reshape(len(X), -1)
        return (kernel(X @ B.T, C).T @ (J if w is None else w[:, None] * J),)

    def squares(X: Array, S: Array, w: Array | None, B: Array, C: Array, Z: Array) -> tuple[Array]:
        R = left_over(X, S, B, C, Z)
        return (np.tensordot(R, R if w is None else w[:, None, None] * R, ((0, 1), (0, 1))),)

    of_slopes = InMemoryRows(X, slopes.reshape(len(X), -1), w, n_threads=sample.n_threads)
    width = max(len(C), t * min(B.size, _TANGENTS))
    (KJ,) = of_slopes.sum(smoothed, width, B, C)
    white = G.T @ (G @ solve_triangular(T, stands_for * KJ)) / nu
    Z = solve_triangular(T, white.copy(), transpose=True)
    (RR,) = of_slopes.sum(squares, width, B, C, Z)
    by_target = white.reshape(len(C), t, -1)
    some = _drawn(weight)
    root, P = np.sqrt(weight[some])[:, None], X[some] @ B.T
    V = solve_triangular(T, kernel(P, C).T)
    GV = G @ (V * root.T)
    left_out = _LeftOut(
        np.maximum(1.0 - np.sum(GV * GV, axis=0) / nu, _LEAST_FREEDOM),
        np.maximum(kernel.diagonal(P) - np.sum(V * V, axis=0), 0.0),
        root[:, :, None] * left_over(X[some], slopes[some], B, C, Z),
        stands_for * RR + nu * np.tensordot(by_target, by_target, ((0, 1), (0, 1))),
        (Y / unit - fitted)[some],
        weight[some],
    )
    scores = _scores(left_out, nu, _precision(B, shape))
    return Uncertainty(scale, nu * scale, scores, packed(G), None)


def _sample(rows: Rows) -> InMemoryRows:
    if isinstance(rows, InMemoryRows) and rows.n_rows <= _SUMMED_ROWS:
        return rows
    most = _SUMMED_ROWS if isinstance(rows, InMemoryRows) else _BROUGHT_ROWS
    sample: InMemoryRows = rows.subset(rows.draw(most, np.random.RandomState(0)))
    return sample


def _drawn(weight: Array) -> Array:
    """Return the rows to score: all that count, or so many of them."""
    counted = np.flatnonzero(weight > 0)
    if len(counted) <= SCORED_ROWS:
        return counted
    return np.random.RandomState(0).choice(counted, SCORED_ROWS, replace=False)


def _unit(scale: Array) -> Array:
    """Return sqrt(s); of a target without any, one."""
    return np.where(scale > 0, np.sqrt(np.maximum(scale, 0.0)), 1.0)


def _values_and_slopes(rows: Rows, kernel: Kernel, B: Array, centers: Array, alpha: Array) -> tuple[Array, Array]:
    """Return f of every row (n, t), and the slopes of g there (n, t, d)."""
    t, d = alpha.shape[1], len(B)

    def block(X: Array, Y: Array, w: Array | None, B: Array, C: Array, alpha: Array) -> tuple[Array]:
        xp = array_namespace(X)
        K, pullback = kernel.vjp_low_rank(X @ B.T, C)
        ones = xp.ones_like(X[:, :1])
        slopes = [pullback(ones, alpha[:, k : k + 1])[0] for k in range(t)]
        return (xp.concat([K @ alpha, *slopes], axis=1),)

    small = (rows.place(array) for array in (B, centers @ B.T, alpha))
    found = rows.map(block, len(centers), *small)
    return found[:, :t], found[:, t:].reshape(-1, t, d)


def _tangents(X: Array, B: Array, slopes: Array, shape: str) -> Array:
    """Return J (n, t, p): how f moves with what was learned of B."""
    if shape != "full":
        by_scale = slopes * (X @ B.T)[:, None, :]
        return by_scale if shape == "diagonal" else np.sum(by_scale, axis=2, keepdims=True)
    n, t, d = slopes.shape
    D = X.shape[1]
    if d * D <= _TANGENTS:
        return (slopes[:, :, :, None] * X[:, None, None, :]).reshape(n, t, d * D)
    rng = np.random.RandomState(0)
    J = np.zeros((n, t, _TANGENTS))
    for k in range(d):
        mixed = X @ (rng.standard_normal((D, _TANGENTS)) / math.sqrt(_TANGENTS))
        J += slopes[:, :, k, None] * mixed[:, None, :]
    return J


def _precision(B: Array, shape: str) -> float:
    """Return one over the prior variance of what was learned of B."""
    return B.size / max(float(np.sum(B * B)), np.finfo(np.float64).tiny) if shape == "full" else 1.0


def _scores(rows: _LeftOut, nu: float, precision: float) -> Array:
    """Return the scores (n, t), each column sorted."""
    freedom, weight = rows.freedom[:, None], rows.weight[:, None]
    variance = rows.slack[:, None] + nu * (1.0 + (1.0 - freedom) / freedom / weight)
    scores = np.abs(_left_out_residuals(rows, nu * precision)) / np.sqrt(variance)
    if not np.all(np.isfinite(scores)):
        raise FloatingPointError("a residual of a row left out is not finite")
    return equal_scores(scores, rows.weight)


def _left_out_residuals(rows: _LeftOut, rho: float) -> Array:
    """Return ``(1 - h'_i)^-1 r_i``, 1 - h'_i a matrix with one row for each target."""
    n, t, p = rows.R.shape
    Q = rows.Q.copy()
    Q.flat[:: p + 1] += rho
    half = solve_triangular(jittered_cholesky(Q, 0.0)[0], rows.R.reshape(n * t, p).T).T.reshape(n, t, p)
    freedom = rows.freedom[:, None, None] * np.eye(t) - half @ half.transpose(0, 2, 1)
    values, vectors = np.linalg.eigh(freedom)
    values = np.maximum(values, _LEAST_FREEDOM * rows.freedom[:, None])
    rotated = np.sum(vectors * rows.residual[:, :, None], axis=1) / values
    return np.sum(vectors * rotated[:, None, :], axis=2)


def equal_scores(scores: Array, weight: Array) -> Array:
    """Return the scores, each column sorted; with weights as many as these are worth, each of the same weight.

    ``(sum w)^2 / sum w^2`` rows of equal weight are worth as much (Kish), at the quantiles of the weighted ones.
    """
    if np.all(weight == weight[0]):
        return np.sort(scores, axis=0)
    n = max(1, int(np.sum(weight) ** 2 / np.sum(weight**2)))
    levels = (np.arange(n) + 0.5) / n
    return np.quantile(scores, levels, axis=0, weights=weight, method="inverted_cdf")


class TooFewScores(ValueError):
    """More coverage was asked for than so many scores can tell of."""

    def __init__(self, coverage: float, n: int) -> None:
        self.coverage, self.n = coverage, n
        self.least = math.ceil(coverage / (1.0 - coverage) * (1.0 - 1e-12))
        super().__init__(
            f"coverage={coverage:g} needs at least {self.least} scores, and this model has {n}: lower coverage, or "
            "call calibrate with as many rows"
        )

    def __reduce__(self) -> tuple[Any, ...]:  # for a way between processes: by what it was made of, not by its words
        return type(self), (self.coverage, self.n)


def quantile(scores: Array, coverage: float) -> Array:
    """Return what a new score is at most with that probability: the k-th of n, ``k = ceil((n + 1) coverage)``."""
    n = len(scores)
    k = math.ceil((n + 1) * coverage * (1.0 - 1e-12))  # what is whole up to rounding is whole
    if k > n:
        raise TooFewScores(coverage, n)
    found: Any = scores[k - 1]
    return found
