"""Conformal scores: standardized leave-one-out residuals, from which `predict_interval` computes its intervals.

No rows are held out of the fit. At a fixed map, a row with residual r_i and leverage h_i has the leave-one-out residual
``r_i / (1 - h_i)``. But the d x D map B was learned from that row too, so intervals based on these residuals are too
narrow. The effect of the row on the map is therefore included to first order. The derivatives of f(x) = g(Bx) with
respect to B at row x_i are the gradient of g (a column of d entries) times x_i' (a row of D entries),

    J_i = grad g(B x_i) x_i'

These are d D numbers. A diagonal map has one derivative for the scale of each column that it uses, and a scaled
identity has one. The derivatives are used as features in addition to the kernels, with a Gaussian prior on the change
of B. The prior variance of an entry of B is the mean square of the entries of B. The prior variance of the logarithm of
a scale is 1.
Let w_i be the sample weights, W their sum, and nu = lambda W. Let H be the hat matrix at a fixed map, with the diagonal
entries h_i. Let J be the matrix whose row i contains the entries of J_i. Each row of the data and of J is multiplied by
the square root of its weight. The leverages of the linear model with the additional features are then

    h'_i = h_i + R_i Q^-1 R_i',   R = (I - H) J,   Q = J'(I - H) J + rho I

with ``rho = nu d D / |B|^2`` for a full map (|B| is the Frobenius norm), and ``rho = nu`` otherwise. R_i is row i of R.
The leave-one-out residual is ``r_i / (1 - h'_i)``. The score of row i is the absolute value of this residual, divided
by the standard deviation that the equivalent Gaussian process (`hkrr.estimators.fitted.posterior`) has at row i when
the row is left out. The square of this standard deviation is ``s (slack + nu + (nu / w_i) h_i / (1 - h_i))``. Here s is
the scale of the process, and ``slack = k(x, x) - |v|^2``, with v as defined in `hkrr.estimators.fitted.posterior`, is
the variance that the centers cannot represent. If all rows are centers, the slack is zero.

Several targets share the map. A row is then left out with all its targets, and 1 - h'_i is a matrix. Each target has
its own scale s, and is divided by sqrt(s).

The increases h'_i - h_i of the leverages add up to at most the number p of derivatives. If p is less than a five
hundredth of the number of rows, the increases are negligible and are not computed.

At most 1,000 rows get a score. If there are fewer centers than rows (Nystrom), the sums over rows use a sample of at
most 20,000 rows. If the rows are not in memory, the sample has at most 4,000 rows.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import LinAlgError

from hkrr._base.linear_algebra import (
    Array,
    SolveInfo,
    array_namespace,
    jittered_cholesky,
    project,
    solve_triangular,
)
from hkrr._maps import KernelExpansion, Shape
from hkrr._storage.json_codec import storable
from hkrr.estimators.fitted.posterior import center_factor, pack_lower, shrinkage_factor
from hkrr.kernels import Kernel
from hkrr.kernels.expansion_values import expand, kernel_and_slopes
from hkrr.objective import Objective
from hkrr.rows import InMemoryRows, Rows
from hkrr.rows.base import weights

# Maximum number of rows that get a score.
SCORED_ROWS = 1_000
# Maximum numbers of rows in the sums over rows: for rows in memory, and for rows that must be fetched from files or a
# device. If there are more rows, a random sample of this size is used.
MAX_SUMMED_ROWS, _MAX_FETCHED_ROWS = 20_000, 4_000
# Maximum number of derivatives with respect to the map. If there are more, a random projection reduces their number
# and approximately preserves inner products.
MAX_TANGENTS = 1_000
# Minimum number of derivatives per row for which the effect of a row on the map is computed.
_NEGLIGIBLE = 0.002
# Lower bound on (1 - h') / (1 - h), with h and h' as in the module docstring. If there are fewer centers than rows, it
# is also a lower bound on 1 - h.
_MIN_FREEDOM = 1e-6
# Half of the values of a normal distribution are farther from the mean than this number of standard deviations.
_NORMAL_QUARTILE = 0.6745


@storable
class LeftOut(NamedTuple):
    """Leave-one-out errors of the rows from which interval scores are computed. The number of targets is t."""

    targets: Array  # (n_scores, t)
    errors: Array  # (n_scores, t): targets minus their leave-one-out predictions
    deviations: Array  # (n_scores, t): standard deviations of the errors, according to the equivalent Gaussian process
    counts: Array  # (n_scores,): weights of the rows

    @property
    def scores(self) -> Array:
        """The conformal scores. Each column is sorted."""
        return equal_weight_scores(np.abs(self.errors) / self.deviations, self.counts)


@storable
class Uncertainty(NamedTuple):
    """Quantities that a fitted model stores for standard deviations and intervals."""

    prior_variance: Array  # (n_targets,): the scale s of the Gaussian process
    noise_variance: Array  # (n_targets,)
    left_out: LeftOut  # gives the conformal scores
    factor: Array | None  # G of `hkrr.estimators.fitted.posterior`, packed; None if all rows are centers
    center_weight: Array | None  # (n_centers,); None if the rows have no weights, or not all are centers


class _ScoredRows(NamedTuple):
    """Quantities of the n rows that get a score. There are t targets, and p derivatives with respect to B.

    The docstring of this module defines the symbols. If the effect of a row on the map is negligible, p is zero.
    """

    freedom: Array  # (n,): ``1 - h``
    slack: Array  # (n,): ``k(x, x) - |v|^2``
    R: Array  # (n, t, p): ``(I - H) J``, each row multiplied by the square root of its weight
    Q: Array  # (p, p): ``J'(I - H) J``, without the prior term ``rho I``
    residual: Array  # (n, t), divided by sqrt(s)
    weight: Array  # (n,)


def estimate_uncertainty(
    objective: Objective,
    B: Array,
    alpha: Array,
    solution: Array,
    info: SolveInfo,
    shape: Shape,
    given: Rows | None = None,
) -> Uncertainty | None:
    """Return the uncertainty of a fit, or None if a factorization fails or memory runs out.

    `alpha` are the coefficients of the model. `solution` are the coefficients that solve the linear system at B, and
    `info` has the details of this solve, such as the Cholesky factor. `alpha` and `solution` differ if the solver
    stopped before it had solved the system. `shape` determines what was learned: all entries of B, one scale per
    column, or one scale. With heavy-tailed noise, the weights of the objective are small for outliers, and `given` are
    the rows with the weights that the user gave. Otherwise `given` is None.
    """
    if info.factor is None:
        return None
    try:
        with np.errstate(all="ignore"):
            estimate = _estimate_exact if objective.exact else _estimate_with_centers
            found = estimate(objective, B, alpha, solution, info, shape, given)
            return found if given is None else _at_typical_rows(found)
    except (ArithmeticError, LinAlgError, MemoryError):
        # The fit itself is complete and remains valid without an uncertainty estimate.
        return None


def _at_typical_rows(found: Uncertainty) -> Uncertainty:
    """Return the uncertainty with rescaled variances.

    This function is for fits with heavy-tailed noise. The variances are rescaled so that half of the absolute
    leave-one-out errors exceed 0.67 standard deviations, as for a normal distribution. The given variances are too
    small, because they refer to the scale of the Student-t distribution, which is smaller than the standard deviation
    of the errors.
    """
    factor = np.median(found.left_out.scores, axis=0) / _NORMAL_QUARTILE
    factor = np.where(factor > 0.0, factor, 1.0)
    return found._replace(
        prior_variance=found.prior_variance * factor**2,
        noise_variance=found.noise_variance * factor**2,
        left_out=found.left_out._replace(deviations=found.left_out.deviations * factor),
    )


def _estimate_exact(
    objective: Objective, B: Array, alpha: Array, solution: Array, info: SolveInfo, shape: Shape, given: Rows | None
) -> Uncertainty:
    """Return the uncertainty if all rows are centers.

    Here ``I - H = nu (D K D + nu I)^-1``, where K is the kernel matrix of the rows and D is the diagonal matrix of the
    square roots of the weights. The Cholesky factor of ``D K D + nu I`` is known from the linear solve.
    """
    rows = objective.rows
    X, Y, w = rows.gather()
    weight = np.ones(len(X)) if w is None else w
    W, root = rows.total_weight, np.sqrt(weight)[:, None]
    nu = objective.reg_lambda * W
    scale = np.sum(Y * solution, axis=0) / W
    unit = _unit(scale)
    # The factor stays on the device. The system is solved by two triangular solves instead of an inverse matrix, which
    # would need a copy of the factor. The right-hand sides have the dtype of the factor, because LAPACK would otherwise
    # convert a factor in float32 to float64, which is also a copy.
    dtype = np.float32 if info.factor.dtype == np.float32 else np.float64
    scored = _choose_scored_rows(weight)
    if map_matters(B, shape, len(X)):
        fitted, slopes = _values_and_slopes(rows, objective.kernel, B, objective.centers, alpha / unit)
        J = root[:, :, None] * shape.tangents(X, B, slopes, MAX_TANGENTS)
        half = solve_triangular(info.factor, rows.place(J.reshape(len(J), -1).astype(dtype)))
        R = nu * rows.fetch(solve_triangular(info.factor, half, transpose=True))[0].reshape(J.shape)
        fitted, R, Q = fitted[scored], R[scored], np.tensordot(J, R, ((0, 1), (0, 1)))
    else:
        fitted = KernelExpansion(objective.kernel, B, objective.centers, alpha / unit).at(X[scored])
        R, Q = _no_derivatives(fitted)
    columns = np.zeros((len(X), len(scored)), dtype=dtype)
    columns[scored, np.arange(len(scored))] = 1.0
    columns = solve_triangular(info.factor, rows.place(columns))
    scored_rows = _ScoredRows(
        freedom=nu * rows.fetch((columns * columns).sum(axis=0))[0],
        slack=np.zeros(len(scored)),
        R=R,
        Q=Q,
        residual=Y[scored] / unit - fitted,
        weight=weight[scored],
    )
    counts = weight if given is None else given.map(weights)[:, 0]
    left_out = _left_out(scored_rows, nu, shape.prior_precision(B), unit, Y[scored], counts[scored])
    return Uncertainty(scale, nu * scale, left_out, None, w)


def _estimate_with_centers(
    objective: Objective, B: Array, alpha: Array, solution: Array, info: SolveInfo, shape: Shape, given: Rows | None
) -> Uncertainty:
    """Return the uncertainty of a fit with fewer centers than rows (Nystrom), from sums over a sample of the rows.

    The matrices T, G and V are defined in `hkrr.estimators.fitted.posterior`, and v_i is column i of V. J contains the
    derivatives with respect to the map, and each row is multiplied by the square root of its weight (see the docstring
    of this module). Smoothing J by kernel ridge regression gives the coefficients ``Z = T^-T S^-1 V J``, where
    ``S = V V' + nu I``, and therefore ``S^-1 = G'G / nu``. Then ``h_i = |G v_i|^2 / nu``, ``(I - H) J = J - K Z`` and
    ``J'(I - H) J = (J - K Z)'(J - K Z) + nu Z' T T' Z``.
    """
    kernel, centers = objective.kernel, objective.centers
    nu, C = objective.reg_lambda * objective.rows.total_weight, project(centers, B)
    drawn = _draw_sample(objective.rows)
    sample = objective.rows.in_memory() if drawn is None else objective.rows.subset(drawn)
    X, Y, w = sample.gather()
    weight = np.ones(len(X)) if w is None else w
    counts = weight
    if given is not None:
        counts = (given if drawn is None else given.subset(drawn)).map(weights)[:, 0]
    T = center_factor(kernel, C)
    G = shrinkage_factor(info, T, objective.reg_lambda, objective.rows)
    residual = Y - KernelExpansion(kernel, B, centers, solution).of_rows(sample)
    scale = np.maximum(weight @ (Y * residual), 0.0) / (sample.total_weight * nu)
    unit = _unit(scale)
    scored = _choose_scored_rows(weight)
    root, P = np.sqrt(weight[scored])[:, None], project(X[scored], B)
    V = solve_triangular(T, kernel(P, C).T)
    GV = G @ (V * root.T)
    expansion = KernelExpansion(kernel, B, centers, alpha / unit)
    if map_matters(B, shape, len(X)):
        # Q is a sum over all rows, but the sample contains only some of the rows.
        share = sample.total_weight / objective.rows.total_weight
        fitted, R, Q = _derivatives_with_centers(sample, scored, expansion, shape, T, G, nu, share)
        R *= root[:, :, None]
    else:
        fitted = expansion.at(X[scored])
        R, Q = _no_derivatives(fitted)
    scored_rows = _ScoredRows(
        freedom=np.maximum(1.0 - np.sum(GV * GV, axis=0) / nu, _MIN_FREEDOM),
        slack=np.maximum(kernel.diagonal(P) - np.sum(V * V, axis=0), 0.0),
        R=R,
        Q=Q,
        residual=Y[scored] / unit - fitted,
        weight=weight[scored],
    )
    left_out = _left_out(scored_rows, nu, shape.prior_precision(B), unit, Y[scored], counts[scored])
    return Uncertainty(scale, nu * scale, left_out, pack_lower(G), None)


def _derivatives_with_centers(
    sample: InMemoryRows,
    scored: Array,
    expansion: KernelExpansion,
    shape: Shape,
    T: Array,
    G: Array,
    nu: float,
    share: float,
) -> tuple[Array, Array, Array]:
    """Return f(x) and ``(I - H) J`` at the scored rows, and ``J'(I - H) J``, for a fit with fewer centers than rows.

    The symbols are those of `_estimate_with_centers`. `share` is the weight of the sample divided by that of all rows.
    """
    B, C, t = expansion.B, expansion.latent_centers, expansion.alpha.shape[1]
    kernel, (X, _, w) = expansion.kernel, sample.gather()
    fitted, slopes = _values_and_slopes(sample, kernel, B, expansion.centers, expansion.alpha)

    def smoothing_residual(X: Array, S: Array, B: Array, C: Array, Z: Array) -> Array:
        """Return ``J - K Z``."""
        J = shape.tangents(X, B, S.reshape(len(X), t, len(B)), MAX_TANGENTS)
        return J - expand(kernel, X, B, C, Z).reshape(J.shape)

    def kernel_products(X: Array, S: Array, w: Array | None, B: Array, C: Array) -> tuple[Array]:
        """Return ``K' W J``, where W is the diagonal matrix of the weights w."""
        J = shape.tangents(X, B, S.reshape(len(X), t, len(B)), MAX_TANGENTS).reshape(len(X), -1)
        return (kernel(project(X, B), C).T @ (J if w is None else w[:, None] * J),)

    def residual_products(X: Array, S: Array, w: Array | None, B: Array, C: Array, Z: Array) -> tuple[Array]:
        """Return ``R' W R``, where R is the smoothing residual ``J - K Z`` and W is the diagonal matrix of w."""
        R = smoothing_residual(X, S, B, C, Z)
        return (np.tensordot(R, R if w is None else w[:, None, None] * R, ((0, 1), (0, 1))),)

    slope_rows = InMemoryRows(X, slopes.reshape(len(X), -1), w, n_threads=sample.n_threads)
    width = max(len(C), t * min(shape.n_parameters(B), MAX_TANGENTS))
    (KJ,) = slope_rows.sum(kernel_products, width, B, C)
    white = G.T @ (G @ solve_triangular(T, KJ / share)) / nu
    Z = solve_triangular(T, white.copy(), transpose=True)
    (RR,) = slope_rows.sum(residual_products, width, B, C, Z)
    by_target = white.reshape(len(C), t, -1)
    Q = RR / share + nu * np.tensordot(by_target, by_target, ((0, 1), (0, 1)))
    return fitted[scored], smoothing_residual(X[scored], slopes[scored], B, C, Z), Q


def map_matters(B: Array, shape: Shape, n_rows: int) -> bool:
    """Return whether the effect of a row on the map is computed (see the docstring of this module)."""
    return shape.n_parameters(B) >= _NEGLIGIBLE * n_rows


def _no_derivatives(fitted: Array) -> tuple[Array, Array]:
    """Return R and Q of `_ScoredRows` for a map on which the effect of a row is negligible."""
    return np.zeros((*fitted.shape, 0)), np.zeros((0, 0))


def _draw_sample(rows: Rows) -> Array | None:
    """Return the indices of the rows over which the sums are computed, or None if all rows are used."""
    if isinstance(rows, InMemoryRows) and rows.n_rows <= MAX_SUMMED_ROWS:
        return None
    size = MAX_SUMMED_ROWS if isinstance(rows, InMemoryRows) else _MAX_FETCHED_ROWS
    return rows.draw(size, np.random.RandomState(0))


def _choose_scored_rows(weight: Array) -> Array:
    """Return the indices of the rows that get a score: at most 1,000 rows with positive weight."""
    positive = np.flatnonzero(weight > 0)
    if len(positive) <= SCORED_ROWS:
        return positive
    return np.random.RandomState(0).choice(positive, SCORED_ROWS, replace=False)


def _unit(scale: Array) -> Array:
    """Return the unit of each target: sqrt(s), or 1 for a target with s = 0."""
    return np.where(scale > 0, np.sqrt(np.maximum(scale, 0.0)), 1.0)


def _values_and_slopes(rows: Rows, kernel: Kernel, B: Array, centers: Array, alpha: Array) -> tuple[Array, Array]:
    """Return f(x) for every row, shape (n, t), and the gradient of g at Bx, shape (n, t, d)."""
    t, d = alpha.shape[1], len(B)

    def block(X: Array, Y: Array, w: Array | None, B: Array, C: Array, alpha: Array) -> tuple[Array]:
        K, slopes = kernel_and_slopes(kernel, project(X, B), C, alpha)
        return (array_namespace(X).concat([K @ alpha, slopes.reshape(len(X), -1)], axis=1),)

    arrays = (rows.place(array) for array in (B, project(centers, B), alpha))
    found = rows.map(block, len(centers), *arrays)
    return found[:, :t], found[:, t:].reshape(-1, t, d)


def _left_out(rows: _ScoredRows, nu: float, precision: float, unit: Array, targets: Array, counts: Array) -> LeftOut:
    """Return the leave-one-out errors of the rows that get a score.

    `precision` is the inverse of the prior variance of the parameters of the map, so that ``rho = nu precision``.
    `unit` contains sqrt(s) for each target. The residuals of `rows` have been divided by `unit`. `targets` and `counts`
    are the targets and the weights that are returned with the errors.
    """
    freedom, weight = rows.freedom[:, None], rows.weight[:, None]
    variance = rows.slack[:, None] + nu * (1.0 + (1.0 - freedom) / freedom / weight)
    errors, deviations = _leave_one_out_residuals(rows, nu * precision), np.sqrt(variance)
    if not np.all(np.isfinite(errors / deviations)):
        raise FloatingPointError("a leave-one-out residual is not finite")
    return LeftOut(targets, unit * errors, unit * np.broadcast_to(deviations, errors.shape), counts)


def _leave_one_out_residuals(rows: _ScoredRows, rho: float) -> Array:
    """Return ``(1 - h'_i)^-1 r_i`` for each row i, where 1 - h'_i is a t x t matrix for t targets.

    The docstring of this module defines h'_i and `rho`. r_i is the residual of the row.
    """
    n, t, p = rows.R.shape
    freedom = rows.freedom[:, None, None] * np.eye(t)
    if p > 0:
        Q = rows.Q.copy()
        Q.flat[:: p + 1] += rho
        half = solve_triangular(jittered_cholesky(Q, 0.0)[0], rows.R.reshape(n * t, p).T).T.reshape(n, t, p)
        freedom = freedom - half @ half.transpose(0, 2, 1)
    values, vectors = np.linalg.eigh(freedom)
    values = np.maximum(values, _MIN_FREEDOM * rows.freedom[:, None])
    rotated = np.sum(vectors * rows.residual[:, :, None], axis=1) / values
    return np.sum(vectors * rotated[:, None, :], axis=2)


def equal_weight_scores(scores: Array, weight: Array) -> Array:
    """Return conformal scores that all have the same weight. Each column is sorted.

    If the given scores have different weights, they are replaced by quantiles of their weighted distribution. The
    number of quantiles is Kish's effective sample size, ``(sum w)^2 / sum w^2``.
    """
    if np.all(weight == weight[0]):
        return np.sort(scores, axis=0)
    n = max(1, int(np.sum(weight) ** 2 / np.sum(weight**2)))
    levels = (np.arange(n) + 0.5) / n
    return np.quantile(scores, levels, axis=0, weights=weight, method="inverted_cdf")


class TooFewScores(ValueError):
    """The model has too few conformal scores for the requested coverage."""

    def __init__(self, coverage: float, n: int) -> None:
        self.coverage, self.n = coverage, n
        self.least = math.ceil(coverage / (1.0 - coverage) * (1.0 - 1e-12))
        super().__init__(
            f"coverage={coverage:g} needs at least {self.least} conformal scores (interval_scores_), but this model "
            f"has {n}: use a lower coverage, or call calibrate(X, y) with at least {self.least} rows that were not "
            "used in the fit"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickle the arguments of __init__ instead of the message.
        return type(self), (self.coverage, self.n)


def conformal_quantile(scores: Array, coverage: float) -> Array:
    """Return a bound that a new score does not exceed with probability at least `coverage`.

    The bound is the k-th smallest of the n scores, where ``k = ceil((n + 1) coverage)``.
    """
    n = len(scores)
    # Without the factor 1 - 1e-12, a rounding error of the product could increase k by one.
    k = math.ceil((n + 1) * coverage * (1.0 - 1e-12))
    if k > n:
        raise TooFewScores(coverage, n)
    found: Any = scores[k - 1]
    return found
