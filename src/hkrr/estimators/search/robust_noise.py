"""The heavy-tailed (Student-t) noise model, which replaces normal noise if the residuals have heavy tails.

The criteria assume normal noise. A single gross error in y can then determine the map, because a function with a spike
at the row with the error has the best criterion. The remedy is a Student-t distribution with 4 degrees of freedom. This
distribution is a scale mixture of normal distributions: row i has the noise variance ``nu / omega_i``, where omega_i is
small for an outlier. In all criteria, a row with weight w has the noise variance nu / w. A fit with heavy-tailed noise
is therefore a fit with the weights omega. The weights and the fit are computed alternately (iteratively reweighted
least squares).

The weights are computed from leave-one-out errors. Let e_it be the error of target t at row i, v_i the variance of the
function at row i given all other rows, in units of the signal variance, and T the number of targets. Then

    ``omega_i = (4 + T) / (4 + sum_t z_it / q_t)``,    ``z_it = e_it^2 / (v_i + nu)``.

The scale q_t is the maximum likelihood estimate under the Student-t distribution. The errors also decide between the
normal and the Student-t distribution: the Student-t distribution is used if it increases the log density of the errors
by more than 0.2 nats per row. For example, outliers that increase the variance of the residuals by half have this
effect. The Student-t distribution is not used if more than a tenth of the rows would be outliers, because so many large
residuals are probably signal and not errors in y. It is also not used if more than half of the rows have the same
target.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import gammaln

from hkrr._base.linear_algebra import Array, inverse_from_factor, jittered_cholesky, project
from hkrr._base.threads import single_threaded_blas
from hkrr.kernels import Kernel
from hkrr.kernels.expansion_values import expand_latent
from hkrr.rows import InMemoryRows
from hkrr.solvers.initialization import median_sample, median_scale

# Degrees of freedom of the Student-t distribution.
DEGREES = 4.0
# The Student-t distribution is used if it increases the log density of the errors by more than the first number of nats
# per row, and by more than the second number in total.
LEAST_GAIN, _LEAST_TOTAL_GAIN = 0.2, 10.0
# Rows with a weight below this value are outliers. With one target, a residual of about 9 times the scale of the
# Student-t distribution has this weight.
OUTLIER_WEIGHT = 0.06
# If the rows have weights w, outliers are searched only if the effective number of rows, (sum w)^2 / sum w^2, is at
# least this number.
_LEAST_ROWS = 10
# Maximum fraction of rows that are outliers. If there are more, the noise is modelled as normal.
_MOST_OUTLIERS = 0.1
# If the mean squared error is below this fraction of the variance of the target, the target is treated as noise-free,
# and the Student-t distribution is not used.
_LEAST_UNEXPLAINED = 1e-4
# Ratio of the standard deviation to the median absolute deviation of a normal distribution.
_MAD_TO_STD = 1.4826
# Lower bound on the scale of the Student-t distribution, relative to the median of the squared errors.
_LEAST_SCALE = 0.01
# Maximum number of rows whose leave-one-out errors are computed. For the other rows, prediction errors are used.
_EXACT_ROWS = 1_000
# Settings of `plain_weights`: the maximum number of rows, the values of nu that are tried, and the maximum number of
# rounds of reweighting.
_PLAIN_ROWS, _PLAIN_NOISES, _ROUNDS = 500, (0.01, 0.1, 1.0, 10.0, 100.0), 10
# The rounds end when no weight changes by more than this amount.
_WEIGHT_TOLERANCE = 0.02
# Number of fixed-point iterations that compute the scale of the Student-t distribution.
_SCALE_ITERATIONS = 50


def student_weights(squares: Array, scale: Array) -> Array:
    """Return the weights omega_i, given the standardized squared errors (n, T) and the scales (T,)."""
    return (DEGREES + len(scale)) / (DEGREES + (squares / scale).sum(axis=1))


@dataclass(frozen=True)
class Errors:
    """Standardized errors of predictions at n rows for T targets. They are usually leave-one-out errors."""

    # (n, T): squared errors, divided by variances that are known up to the factors q_t (z_it in the module docstring).
    squares: Array
    log_variance: Array  # (n,): logarithms of these variances, without the factors q_t
    # Ratio of the mean squared error to the variance of the target, which is estimated from the median absolute
    # deviation. With several targets, the largest of these ratios. Infinity if the ratio was not computed.
    unexplained: float = math.inf

    @cached_property
    def scale(self) -> Array:
        """The scales q_t, which maximize the likelihood of the Student-t distribution."""
        squares = self.squares
        tiny = np.finfo(np.float64).tiny
        scale = np.maximum(np.median(squares, axis=0), tiny)
        least = np.maximum(_LEAST_SCALE * scale, tiny)
        for _ in range(_SCALE_ITERATIONS):
            scale = np.maximum(np.mean(student_weights(squares, scale)[:, None] * squares, axis=0), least)
        return scale

    @cached_property
    def weights(self) -> Array:
        """The weights omega_i."""
        return student_weights(self.squares, self.scale)

    @cached_property
    def student_density(self) -> float:
        """Mean log density of the errors under the Student-t distribution with the scales `scale`."""
        T, scale = self.squares.shape[1], self.scale
        constant = gammaln((DEGREES + T) / 2.0) - gammaln(DEGREES / 2.0) - 0.5 * T * math.log(DEGREES * math.pi)
        spread = np.log1p(np.sum(self.squares / scale, axis=1) / DEGREES)
        tails = -0.5 * float(np.sum(np.log(scale))) - 0.5 * (DEGREES + T) * float(np.mean(spread))
        return float(constant + tails - self._half_log_variance)

    @property
    def normal_density(self) -> float:
        """Mean log density of the errors under the normal distribution with the maximum likelihood scales."""
        mean = np.mean(self.squares, axis=0)
        scale = np.maximum(mean, np.finfo(np.float64).tiny)
        return float(-0.5 * np.sum(np.log(2.0 * math.pi * scale) + mean / scale)) - self._half_log_variance

    @property
    def _half_log_variance(self) -> float:
        return float(0.5 * self.squares.shape[1] * np.mean(self.log_variance))

    @property
    def density(self) -> float:
        """Mean log density of the errors under the better of the two distributions."""
        return max(self.student_density, self.normal_density)

    @property
    def heavy_tailed(self) -> bool:
        """Whether the noise should be modelled by a Student-t distribution, as described in the module docstring."""
        gain = self.student_density - self.normal_density
        if not (gain > LEAST_GAIN and gain * len(self.squares) > _LEAST_TOTAL_GAIN):
            return False
        if self.unexplained < _LEAST_UNEXPLAINED:
            return False
        return float(np.mean(self.weights < OUTLIER_WEIGHT)) <= _MOST_OUTLIERS


def find_outliers(residuals: Array, sample_weight: Array) -> list[int]:
    """Return the indices of the outliers among the residuals (n, T) of rows with sample weights (n,).

    The farthest outlier is first. Rows with zero weight are ignored.
    """
    counted = np.flatnonzero(sample_weight > 0)
    squares = sample_weight[counted, None] * residuals[counted] ** 2
    weights = Errors(squares, np.zeros(len(counted))).weights
    order = np.argsort(weights, kind="stable")
    return [int(k) for k in counted[order[: np.count_nonzero(weights < OUTLIER_WEIGHT)]]]


def can_have_outliers(rows: InMemoryRows) -> bool:
    """Return whether outliers can be distinguished from signal.

    This is not possible if more than half of the rows have the same value of a target, or if the effective number of
    rows, ``(sum w)^2 / sum w^2`` for sample weights w, is below 10.
    """
    _, Y, w = rows.gather()
    if w is not None and float(np.sum(w)) ** 2 < _LEAST_ROWS * float(np.sum(w * w)):
        return False
    return bool(np.any(shows_outliers(Y)))


def shows_outliers(Y: Array) -> Array:
    """Return which targets can show outliers: those for which at most half of the rows have the same value."""
    return np.mean(np.median(Y, axis=0) == Y, axis=0) <= 0.5


def target_errors(rows: InMemoryRows) -> Errors:
    """Return the errors of a constant prediction, the median of each target."""
    _, Y, w = rows.gather()
    Y = Y[:, shows_outliers(Y)]
    variance = np.ones(len(Y)) if w is None else 1.0 / w
    return Errors((Y - np.median(Y, axis=0)) ** 2 / variance[:, None], np.log(variance))


def weighted_rows(rows: InMemoryRows, omega: Array | None) -> InMemoryRows:
    """Return the rows with the weights `omega` of the heavy-tailed noise, or unchanged if `omega` is None."""
    return rows if omega is None else rows.reweighted(omega)


def leave_one_out_errors(
    rows: InMemoryRows, omega: Array | None, kernel: Kernel, B: Array, nu: float, rng: np.random.RandomState
) -> Errors:
    """Return the errors of kernel ridge regression at the map B with the noise level nu.

    B may also be the diagonal of a diagonal map. `omega` contains the weights of the heavy-tailed noise. The weights of
    `rows` do not include them. All rows are centers if there are at most 1,000, and otherwise 1,000 random rows. The
    errors of the centers are leave-one-out errors. The errors of all other rows are prediction errors.
    """
    X, Y, w = weighted_rows(rows, omega).gather()
    Y = Y[:, shows_outliers(Y)]
    w = np.ones(len(Y)) if w is None else w
    # The noise variances without the weights of the heavy-tailed noise.
    noise = nu / w if omega is None else nu * omega / w
    some = np.arange(len(Y)) if len(Y) <= _EXACT_ROWS else np.sort(rows.draw(_EXACT_ROWS, rng))
    P = project(X, B)
    with single_threaded_blas():
        return _standardized(kernel, P, Y, nu / w, noise, some)


def _standardized(kernel: Kernel, P: Array, Y: Array, weighted_noise: Array, noise: Array, some: Array) -> Errors:
    """Return the standardized errors at the latent points P.

    `weighted_noise` and `noise` are the noise variances with and without the weights of the heavy-tailed noise. `some`
    contains the indices of the centers.
    """
    K = kernel(P[some], P[some])
    K[np.diag_indices_from(K)] += weighted_noise[some]
    factor, _ = jittered_cholesky(K, 0.0)
    inverse = inverse_from_factor(factor)
    alpha, diagonal = inverse @ Y[some], np.diagonal(inverse)
    errors, variance = np.empty_like(Y), np.empty(len(Y))
    errors[some] = alpha / diagonal[:, None]
    # The variance is at most the kernel's diagonal. For very small weights, rounding errors dominate the difference.
    variance[some] = np.clip(1.0 / diagonal - weighted_noise[some], 0.0, kernel.diagonal(P[some]))
    others = np.setdiff1d(np.arange(len(Y)), some, assume_unique=True)
    if len(others):
        errors[others] = Y[others] - expand_latent(kernel, P[others], P[some], alpha)
        # This is an approximation: computing the variance of each of these rows would take far longer.
        variance[others] = np.mean(variance[some])
    variance = variance + noise
    spread = _MAD_TO_STD * np.median(np.abs(Y - np.median(Y, axis=0)), axis=0)
    unexplained = np.mean(errors**2, axis=0) / np.maximum(spread**2, np.finfo(np.float64).tiny)
    return Errors(errors**2 / variance[:, None], np.log(variance), float(np.max(unexplained)))


def plain_weights(
    rows: InMemoryRows, kernel: Kernel, rng: np.random.RandomState, deadline: float
) -> tuple[Array, float]:
    """Return the weights omega for plain kernel ridge regression, and the mean log density of its errors.

    The median heuristic sets the scale of the kernel, from the median distance between rows. The weights are computed
    for several values of nu, on at most 500 rows. For the nu with the highest log density of the errors, the weights of
    all rows are computed and returned.
    """
    B = np.full(rows.n_features, median_scale(kernel, median_sample(rows, rng)))
    few = np.sort(rows.draw(_PLAIN_ROWS, rng))
    some = rows.subset(few)
    ends: list[tuple[float, float, Array]] = []
    for nu in _PLAIN_NOISES:
        if ends and time.perf_counter() > deadline:
            break
        omega, errors = _iterate(some, target_errors(some).weights, kernel, B, nu, rng)
        ends.append((errors.student_density, nu, omega))
    density, nu, omega = max(ends, key=lambda end: end[0])
    if len(few) < rows.n_rows:
        # The errors of the other rows are not known yet. The initial weights of these rows are computed from the errors
        # of a constant prediction.
        everywhere = target_errors(rows).weights
        everywhere[few] = omega
        in_time = time.perf_counter() < deadline
        omega = leave_one_out_errors(rows, everywhere, kernel, B, nu, rng).weights if in_time else everywhere
    return omega, density


def _iterate(
    rows: InMemoryRows, omega: Array, kernel: Kernel, B: Array, nu: float, rng: np.random.RandomState
) -> tuple[Array, Errors]:
    """Compute errors and weights alternately, until the weights hardly change. Return the weights and the errors."""
    for _ in range(_ROUNDS):
        errors = leave_one_out_errors(rows, omega, kernel, B, nu, rng)
        before, omega = omega, errors.weights
        if np.max(np.abs(omega - before)) < _WEIGHT_TOLERANCE:
            break
    return omega, errors
