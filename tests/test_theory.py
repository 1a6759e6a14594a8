"""The quantities of the paper's theorems: leverage scores, effective dimensions, numbers of centers and rates.

The oracles below are written from the definitions: scores by the inverse, by eigenvectors, in an explicit feature space
and in rational arithmetic; the numbers of centers from the Nystrom theorem and its extension to approximate leverage
scores; the exponents from the theorems, with s = d / r, the exponent of the covering number, for their variable.
"""

from __future__ import annotations

import itertools
import math
import sys
from fractions import Fraction

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.kernel_ridge import KernelRidge

from hkrr import centers, kernels
from hkrr.rows import InMemoryRows
from hkrr.theory import (
    als_centers,
    effective_dimension,
    leverage_scores,
    maximal_dimension,
    minimax_rate,
    plain_centers,
    rate,
    rate_for_all_m,
)

EPS = np.finfo(np.float64).eps


# ---------------------------------------------------------------------------------------------------------- the oracles
def scores_by_inverse(K, t):
    """The diagonal of K (K + t m I)^-1, as it is written."""
    m = len(K)
    return np.diag(K @ np.linalg.inv(K + t * m * np.eye(m)))


def scores_by_eigenvectors(K, t):
    """sum_j u_ij^2 s_j / (s_j + t m), over the eigenpairs of K."""
    m = len(K)
    values, vectors = np.linalg.eigh(K)
    return np.array([sum(vectors[i, j] ** 2 * values[j] / (values[j] + t * m) for j in range(m)) for i in range(m)])


def scores_in_rationals(K, t):
    """The diagonal of (K + t m I)^-1 K by Gauss-Jordan elimination, with no rounding but that of the answer."""
    m = len(K)
    exact = [[Fraction(float(value)) for value in row] for row in K]
    left = [[exact[i][j] + (m * Fraction(t) if i == j else 0) for j in range(m)] for i in range(m)]
    right = [list(row) for row in exact]
    for n in range(m):
        pivot = next(i for i in range(n, m) if left[i][n] != 0)
        left[n], left[pivot] = left[pivot], left[n]
        right[n], right[pivot] = right[pivot], right[n]
        scale = left[n][n]
        left[n], right[n] = [a / scale for a in left[n]], [a / scale for a in right[n]]
        for i in range(m):
            factor = left[i][n]
            if i != n and factor != 0:
                left[i] = [a - factor * b for a, b in zip(left[i], left[n], strict=True)]
                right[i] = [a - factor * b for a, b in zip(right[i], right[n], strict=True)]
    return np.array([float(right[i][i]) for i in range(m)])


def pointwise_dimensions(F, t):
    """N_x(t) = <phi(x), (Sigma + t I)^-1 phi(x)> at each row, with Sigma the mean of phi(x) phi(x)' over the rows."""
    m, p = F.shape
    Sigma = np.zeros((p, p))
    for phi in F:
        Sigma += np.outer(phi, phi) / m
    return np.array([phi @ np.linalg.solve(Sigma + t * np.eye(p), phi) for phi in F])


def plain_bound(n_inf, reg_lambda, delta, kappa):
    """The Nystrom theorem: 67 log(4 kappa / (lambda delta)) or 5 N_inf log(4 kappa / (lambda delta)), the larger."""
    log = math.log(4.0) + math.log(kappa) - math.log(reg_lambda) - math.log(delta)
    return max(67.0 * log, 5.0 * n_inf * log)


def als_bound(n_eff, n_rows, delta, T):
    """Its extension to T-approximate leverage scores: (334 or 78 T^2 N, the larger) log(8 m / delta)."""
    log = math.log(8.0) + math.log(n_rows) - math.log(delta)
    return max(334.0 * log, 78.0 * T**2 * n_eff * log)


def exponent(s, theta):
    """theta times the supremum of zeta < 1 / (1 + s), at which lambda = m^-zeta: the first theorem."""
    return theta / (1 + s)


def exponent_for_all_m(s, theta):
    """lambda^theta at lambda = m^-(1 / ((1 + theta) (1 + s))): the theorem without a condition on m."""
    return theta / ((1 + theta) * (1 + s))


def is_smallest_integer_from(number, bound):
    """Whether ``number`` is the ceiling of ``bound``, up to the rounding of a product of logarithms."""
    return bound * (1.0 - 1e-13) <= number < (bound + 1.0) * (1.0 + 1e-13)


def rounding(K, t):
    """How far scores may be from the exact ones: a backward stable solve with A = K + t m I.

    It errs by c eps cond(A) |A^-1 K|, where cond(A) <= (|K| + t m) / (t m) and |A^-1 K| = |K| / (|K| + t m), c of
    order m: that is 10 eps |K| / t. At large t that is relative to the scores, which are near K_ii / (t m).
    """
    return 10.0 * EPS * np.linalg.norm(K, 2) / t


# ------------------------------------------------------------------------------------------------------ kernel matrices
def _points(m, D, seed=0):
    return np.random.default_rng([seed, m, D]).normal(size=(m, D))


def _gaussian(X, gamma):
    return np.array([[math.exp(-gamma * np.sum((x - z) ** 2)) for z in X] for x in X])


def _integers(m, p):
    """Features of small whole numbers, so that F F' has no rounding and its rank is known."""
    return np.random.default_rng([m, p]).integers(-3, 4, size=(m, p)).astype(float)


def _quadratic():
    """(1 + x'z)^2 on the plane, and the six features it is the inner product of."""
    X, root = _points(11, 2), math.sqrt(2.0)
    a, b = X[:, 0], X[:, 1]
    F = np.column_stack([np.ones(11), root * a, root * b, a * a, b * b, root * a * b])
    return (1.0 + X @ X.T) ** 2, F


def _linear(m, p):
    F = _integers(m, p)
    return F @ F.T, F


FEATURES = {
    "linear, rank 3": _linear(12, 3),
    "linear, more features than rows": _linear(6, 15),
    "one feature": _linear(7, 1),
    "one row": (np.array([[2.5]]), np.array([[math.sqrt(2.5)]])),
    "quadratic": _quadratic(),
    "orthogonal rows": (np.diag([4.0, 1.0, 0.25, 0.0]), np.diag([2.0, 1.0, 0.5, 0.0])),
}
MATRICES = {name: K for name, (K, _) in FEATURES.items()} | {
    "gaussian": _gaussian(_points(10, 3), 0.4),
    "gaussian, repeated rows": _gaussian(np.repeat(_points(4, 3), 3, axis=0), 0.4),
    "gaussian, nearly constant": _gaussian(_points(10, 3), 1e-9),
    "gaussian, nearly the identity": _gaussian(_points(10, 3), 1e3),
    "small and large rows": np.outer(*2 * [np.logspace(-3, 3, 8)]) * _gaussian(_points(8, 2), 0.5),
}
every_matrix = pytest.mark.parametrize("K", MATRICES.values(), ids=MATRICES.keys())
every_feature_map = pytest.mark.parametrize(("K", "F"), FEATURES.values(), ids=FEATURES.keys())
every_t = pytest.mark.parametrize("t", [1e-4, 1e-2, 1.0, 1e3])
MATRIX_FUNCTIONS = [leverage_scores, effective_dimension, maximal_dimension]
every_matrix_function = pytest.mark.parametrize("function", MATRIX_FUNCTIONS, ids=lambda f: f.__name__)


# ---------------------------------------------------------------------------------------- leverage scores and N, N_inf
@every_matrix
@every_t
@pytest.mark.parametrize("oracle", [scores_by_inverse, scores_by_eigenvectors, scores_in_rationals])
def test_scores_are_the_oracles(K, t, oracle):
    """Both sides round, hence twice the bound."""
    scores = leverage_scores(K, t)
    assert scores.shape == (len(K),)
    assert_allclose(scores, oracle(K, t), rtol=1e-13, atol=2.0 * rounding(K, t))


@every_feature_map
@every_t
def test_scores_and_dimensions_are_those_of_the_feature_space(K, F, t):
    """m l_i is N_x at row i; N is its mean over the empirical distribution and N_inf its largest value."""
    m = len(K)
    N = pointwise_dimensions(F, t)
    atol = 2.0 * rounding(K, t)
    assert_allclose(leverage_scores(K, t), N / m, rtol=1e-13, atol=atol)
    assert_allclose(effective_dimension(K, t), np.mean(N), rtol=1e-13, atol=m * atol)
    assert_allclose(maximal_dimension(K, t), np.max(N), rtol=1e-13, atol=m * atol)


@every_matrix
@every_t
def test_dimensions_are_the_sum_and_m_times_the_largest_of_the_scores(K, t):
    m, scores = len(K), scores_by_eigenvectors(K, t)
    N, N_inf = effective_dimension(K, t), maximal_dimension(K, t)
    assert type(N) is float
    assert type(N_inf) is float
    assert_allclose(N, sum(scores), rtol=1e-13, atol=2.0 * m * rounding(K, t))
    assert_allclose(N_inf, m * max(scores), rtol=1e-13, atol=2.0 * m * rounding(K, t))


@pytest.mark.parametrize("t", [1e-2, 1.0])
def test_effective_dimension_is_the_trace_of_the_hat_matrix_of_ridge_regression(t):
    """t is the paper's lambda, so t m is the penalty of an objective that sums over rows, scikit-learn's alpha."""
    K = MATRICES["gaussian"]
    m = len(K)
    hat = KernelRidge(alpha=t * m, kernel="precomputed").fit(K, np.eye(m)).predict(K)
    assert_allclose(leverage_scores(K, t), np.diag(hat), rtol=1e-13, atol=2.0 * rounding(K, t))
    assert_allclose(effective_dimension(K, t), np.trace(hat), rtol=1e-13, atol=2.0 * m * rounding(K, t))


@pytest.mark.parametrize("t", [0.125, 1.0, 8.0])
def test_scores_worked_out_by_hand(t):
    """One row; two rows of correlation c, with eigenvalues 1 + c and 1 - c; m equal rows, with one eigenvalue, m."""
    assert_allclose(leverage_scores([[3.0]], t), [3.0 / (3.0 + t)], rtol=1e-14)
    for c in (-0.5, 0.0, 0.75):
        expected = 0.5 * ((1.0 + c) / (1.0 + c + 2.0 * t) + (1.0 - c) / (1.0 - c + 2.0 * t))
        assert_allclose(leverage_scores([[1.0, c], [c, 1.0]], t), [expected, expected], rtol=1e-13)
    assert_allclose(leverage_scores(np.ones((5, 5)), t), np.full(5, 1.0 / (5.0 * (1.0 + t))), rtol=1e-13)
    assert_allclose(effective_dimension(np.ones((5, 5)), t), 1.0 / (1.0 + t), rtol=1e-13)
    assert_allclose(maximal_dimension(np.diag([9.0, 1.0, 0.0]), t), 27.0 / (9.0 + 3.0 * t), rtol=1e-13)


@pytest.mark.parametrize("t", [1e-300, 1e-3, 1.0, 1e300])
def test_a_kernel_that_is_zero_has_no_dimensions(t):
    assert_array_equal(leverage_scores(np.zeros((3, 3)), t), np.zeros(3))
    assert effective_dimension(np.zeros((3, 3)), t) == 0.0
    assert maximal_dimension(np.zeros((3, 3)), t) == 0.0


@every_matrix
@pytest.mark.parametrize("t", [1e-300, 1e-18, 1e-14, 1e-9, 1e-4, 1.0, 1e4, 1e300])
def test_scores_lie_between_zero_and_one(K, t):
    """Whatever t, so below the rounding of K too, where the shifted matrix has no Cholesky factor."""
    scores = leverage_scores(K, t)
    assert np.all(scores >= 0.0)
    assert np.all(scores <= 1.0)


@every_matrix
@every_t
def test_dimensions_are_ordered(K, t):
    """N <= N_inf <= kappa / t, with kappa the largest k(x, x) of the rows; N <= tr K / (t m) and N <= m too."""
    m, kappa = len(K), np.max(np.diag(K))
    N, N_inf = effective_dimension(K, t), maximal_dimension(K, t)
    slack = m * rounding(K, t)
    assert 0.0 < N <= N_inf * (1.0 + 1e-13)
    assert N_inf <= kappa / t * (1.0 + 1e-13) + slack
    assert N_inf <= m
    assert effective_dimension(K, t) <= np.trace(K) / (t * m) * (1.0 + 1e-13) + slack


def test_dimensions_meet_where_all_rows_are_alike():
    """A circulant K: the kernel of equally spaced points on a circle."""
    angles = 2.0 * math.pi * np.arange(9) / 9.0
    K = _gaussian(np.column_stack([np.cos(angles), np.sin(angles)]), 0.7)
    assert_allclose(maximal_dimension(K, 0.01), effective_dimension(K, 0.01), rtol=1e-11)


@every_matrix
def test_dimensions_fall_with_t_and_less_than_in_proportion(K):
    """s / (s + t m) falls with t and t s / (s + t m) grows; K's rounding is far below the steps of 10."""
    grid = [1e-3, 1e-2, 1e-1, 1.0, 1e1, 1e2]
    for t, larger in itertools.pairwise(grid):
        slack = len(K) * (rounding(K, t) + rounding(K, larger))
        for function in (effective_dimension, maximal_dimension):
            assert function(K, larger) < function(K, t) + slack
            assert larger * function(K, larger) > t * function(K, t) - larger * slack
        before, after = leverage_scores(K, t), leverage_scores(K, larger)
        assert np.all(after <= before + slack)
    assert effective_dimension(K, 1e2) < effective_dimension(K, 1e-3)


@pytest.mark.parametrize(("m", "p"), [(12, 3), (7, 1), (9, 4), (6, 15)])
def test_small_t_counts_the_rank_and_gives_the_scores_of_least_squares(m, p):
    """At t m = 1e-7 of the least positive eigenvalue N misses the rank by at most 1e-7 of it, and the rounding."""
    F = _integers(m, p)
    K, rank = F @ F.T, np.linalg.matrix_rank(F)
    least = np.linalg.eigvalsh(K)[m - rank]
    t = 1e-7 * least / m
    slack = 1e-7 + rounding(K, t)
    Q = np.linalg.svd(F)[0][:, :rank]
    assert rank == min(m, p)
    assert abs(effective_dimension(K, t) - rank) <= m * slack
    assert_allclose(leverage_scores(K, t), np.sum(Q * Q, axis=1), rtol=0.0, atol=slack)
    assert_allclose(maximal_dimension(K, t), m * np.max(np.sum(Q * Q, axis=1)), rtol=0.0, atol=m * slack)


@every_matrix
@pytest.mark.parametrize("factor", [1e14, 1e290])
def test_large_t_leaves_the_diagonal_over_t_m(K, factor):
    """l_i = K_ii / (t m) (1 + O(|K| / (t m))): relative to the largest, as every score's rounding is."""
    m, t = len(K), factor * np.linalg.norm(K, 2)
    expected = np.diag(K) / m
    assert_allclose(t * leverage_scores(K, t), expected, rtol=1e-11, atol=1e-11 * np.max(expected))
    assert_allclose(t * effective_dimension(K, t), np.trace(K) / m, rtol=1e-11)
    assert effective_dimension(K, t) <= m / factor * (1.0 + 1e-13)


@every_matrix
@every_t
def test_a_permutation_of_the_rows_permutes_the_scores(K, t):
    order = np.random.default_rng(0).permutation(len(K))
    atol = 2.0 * rounding(K, t)
    permuted = K[np.ix_(order, order)]
    assert_allclose(leverage_scores(permuted, t), leverage_scores(K, t)[order], rtol=1e-13, atol=atol)
    assert_allclose(effective_dimension(permuted, t), effective_dimension(K, t), rtol=1e-13, atol=len(K) * atol)
    assert_allclose(maximal_dimension(permuted, t), maximal_dimension(K, t), rtol=1e-13, atol=len(K) * atol)


@every_matrix
@every_t
@pytest.mark.parametrize("scale", [1e-100, 0.3, 1e8, 1e100])
def test_a_scaled_kernel_at_a_scaled_t_has_the_same_scores(K, t, scale):
    assert_allclose(leverage_scores(scale * K, scale * t), leverage_scores(K, t), rtol=1e-13, atol=2.0 * rounding(K, t))


@every_matrix
@every_t
@pytest.mark.parametrize("times", [2, 5])
def test_repeating_all_rows_changes_no_dimension(K, t, times):
    """The empirical distribution is the same, hence N_x, its mean and its maximum; copies share a score."""
    repeated = np.tile(K, (times, times))
    atol = rounding(K, t) + rounding(repeated, t)
    assert_allclose(
        times * leverage_scores(repeated, t), np.tile(leverage_scores(K, t), times), rtol=1e-13, atol=times * atol
    )
    for function in (effective_dimension, maximal_dimension):
        assert_allclose(function(repeated, t), function(K, t), rtol=1e-13, atol=len(repeated) * atol)


@pytest.mark.parametrize("t", [1e-2, 1e-1, 1.0])
@pytest.mark.parametrize("kernel", ["gaussian", "matern32", "laplace"])
def test_approximate_scores_from_all_rows_are_these(kernel, t):
    """T = 1 when the pilot is all rows, in any order; a difference over t m rounds by m eps (1 + |K| / (t m))^2."""
    X, B = _points(60, 4), _points(2, 4, seed=1)
    kernel = kernels.get_kernel(kernel).with_gamma(0.3)
    K = kernel(X @ B.T, X @ B.T)
    atol = 10.0 * 60 * EPS * (1.0 + np.linalg.norm(K, 2) / (60 * t)) ** 2
    rows = InMemoryRows(X, np.zeros(60), block_size=17)
    approximate = centers.approximate_leverage_scores(rows, B, kernel, t, X[::-1].copy())
    assert atol <= 1e-8
    assert_allclose(approximate, leverage_scores(K, t), rtol=1e-13, atol=atol)


@pytest.mark.parametrize("t", [1e-2, 1e-1])
def test_approximate_scores_from_half_of_the_rows_are_within_a_factor(t):
    """The definition of (T, t0)-approximate scores, at T = 2: half of the rows in the plane see what a smooth kernel
    sees at this t. The rows of the pilot are every other one."""
    X, B = _points(200, 4), _points(2, 4, seed=1) / 2.0
    kernel = kernels.get_kernel("gaussian").with_gamma(0.3)
    exact = leverage_scores(kernel(X @ B.T, X @ B.T), t)
    approximate = centers.approximate_leverage_scores(InMemoryRows(X, np.zeros(200)), B, kernel, t, X[::2].copy())
    assert np.all(exact / 2.0 <= approximate)
    assert np.all(approximate <= 2.0 * exact)


@pytest.mark.parametrize("gamma", [1e-14, 1e-8, 1e-3])
@pytest.mark.parametrize("t", [1e-9, 1e-6, 1e-3, 1.0])
def test_a_nearly_constant_kernel(gamma, t):
    """Gaussian matrices of condition 1e16 and more, against rational arithmetic; at t = 1e-9 the bound is 1e-5."""
    K = _gaussian(_points(7, 2), gamma)
    assert_allclose(leverage_scores(K, t), scores_in_rationals(K, t), rtol=1e-13, atol=rounding(K, t))
    # One dimension, shared alike, but for K - 11', which moves a score by at most |K - 11'| / (t m).
    atol = rounding(K, t) + np.linalg.norm(K - 1.0, 2) / (7.0 * t)
    assert_allclose(leverage_scores(K, t), np.full(7, 1.0 / (7.0 * (1.0 + t))), rtol=0.0, atol=atol)


@pytest.mark.parametrize("t", [1e-9, 1e-5, 1e-2, 1.0])
def test_repeated_rows_share_a_score(t):
    """Two distinct rows, of 5 and 2 copies: the scores of the weighted pair, and never more than one copy in n each."""
    K = _gaussian(np.repeat(_points(2, 3), [5, 2], axis=0), 0.5)
    scores = leverage_scores(K, t)
    assert_allclose(scores, scores_in_rationals(K, t), rtol=1e-13, atol=rounding(K, t))
    assert_allclose(scores, [scores[0]] * 5 + [scores[6]] * 2, rtol=1e-13, atol=2.0 * rounding(K, t))
    assert np.all(scores <= np.array([1 / 5] * 5 + [1 / 2] * 2) + rounding(K, t))


def test_what_k_may_be():
    """Lists, whole numbers, float32, either order of memory, read-only: the same scores, and K is left as it was."""
    K, t = FEATURES["linear, rank 3"][0], 0.5
    expected = leverage_scores(K, t)
    read_only = K.copy()
    read_only.flags.writeable = False
    for other in (K.tolist(), K.astype(int), K.astype(np.float32), np.asfortranarray(K), np.repeat(K, 2, 1)[:, ::2]):
        assert_allclose(leverage_scores(other, t), expected, rtol=1e-13)
    assert_array_equal(leverage_scores(read_only, t), expected)
    assert leverage_scores(K.astype(np.float32), t).dtype == np.float64
    for function in MATRIX_FUNCTIONS:
        for order in "CF":
            given = np.array(K, order=order)
            function(given, t)
            assert_array_equal(given, K)
        assert function(K, np.float64(t)) is not None
        assert function(K, 1) is not None


# ------------------------------------------------------------------------------------------------- numbers of centers
@pytest.mark.parametrize("n_inf", [0.0, 1.0, 13.39, 13.41, 50, 12345.6])
@pytest.mark.parametrize("reg_lambda", [1e-9, 1e-3, 0.5])
@pytest.mark.parametrize("delta", [1e-6, 0.1, 0.7])
@pytest.mark.parametrize("kappa", [0.25, 1.0, 7])
def test_plain_centers_are_the_theorems(n_inf, reg_lambda, delta, kappa):
    number = plain_centers(n_inf, reg_lambda, delta=delta, kappa=kappa)
    assert type(number) is int
    assert is_smallest_integer_from(number, plain_bound(n_inf, reg_lambda, delta, kappa))


@pytest.mark.parametrize("n_eff", [0.0, 1.0, 4.28, 4.29, 50, 12345.6])
@pytest.mark.parametrize("n_rows", [1, 1000, np.int64(10**7)])
@pytest.mark.parametrize("delta", [1e-6, 0.1, 0.7])
@pytest.mark.parametrize("T", [1, 1.5, 3.0])
def test_als_centers_are_the_theorems(n_eff, n_rows, delta, T):
    number = als_centers(n_eff, n_rows, delta=delta, T=T)
    assert type(number) is int
    assert is_smallest_integer_from(number, als_bound(n_eff, n_rows, delta, T))


def test_defaults_of_the_numbers_of_centers():
    """delta = 0.1, kappa = 1, T = 1."""
    assert plain_centers(30.0, 1e-4) == plain_centers(30.0, 1e-4, delta=0.1, kappa=1.0)
    assert is_smallest_integer_from(plain_centers(30.0, 1e-4), plain_bound(30.0, 1e-4, 0.1, 1.0))
    assert als_centers(30.0, 5000) == als_centers(30.0, 5000, delta=0.1, T=1.0)
    assert is_smallest_integer_from(als_centers(30.0, 5000), als_bound(30.0, 5000, 0.1, 1.0))


def test_centers_worked_out_by_hand():
    """delta = 4 / e^k and delta = 8 / e^k make each logarithm a whole number k: 67 k, 5 N k, 334 k and 78 T^2 N k."""
    assert is_smallest_integer_from(plain_centers(2.0, 1.0, delta=4.0 * math.exp(-6.0)), 67 * 6)
    assert is_smallest_integer_from(plain_centers(40.0, 1.0, delta=4.0 * math.exp(-6.0)), 5 * 40 * 6)
    assert is_smallest_integer_from(als_centers(2.0, 1, delta=8.0 * math.exp(-6.0)), 334 * 6)
    assert is_smallest_integer_from(als_centers(5.0, 1, delta=8.0 * math.exp(-6.0), T=2.0), 78 * 4 * 5 * 6)


def _never_falls(values):
    return all(a <= b for a, b in itertools.pairwise(values)) and values[0] < values[-1]


def test_more_is_asked_for_where_the_task_is_harder():
    grid = [1.0, 3.0, 10.0, 30.0, 100.0, 1000.0]
    assert _never_falls([plain_centers(n, 1e-3) for n in grid])
    assert _never_falls([plain_centers(20.0, 1e-3 / n) for n in grid])
    assert _never_falls([plain_centers(20.0, 1e-3, delta=0.9 / n) for n in grid])
    assert _never_falls([plain_centers(20.0, 1e-3, kappa=n) for n in grid])
    assert _never_falls([als_centers(n, 1000) for n in grid])
    assert _never_falls([als_centers(20.0, int(n)) for n in grid])
    assert _never_falls([als_centers(20.0, 1000, delta=0.9 / n) for n in grid])
    assert _never_falls([als_centers(20.0, 1000, T=n) for n in grid])


def test_kappa_and_lambda_count_by_their_ratio():
    """N_inf is that of a kernel and a lambda scaled alike, and so is the number of centers."""
    for scale in (0.01, 5.0, 1e6):
        expected = plain_bound(25.0, 1e-3, 0.1, 1.0)
        assert is_smallest_integer_from(plain_centers(25.0, scale * 1e-3, kappa=scale), expected)


@pytest.mark.parametrize("reg_lambda", [39.0, 40.0, 41.0, 1e6])
@pytest.mark.parametrize("n_inf", [0.0, 1.0, 100.0])
def test_a_fit_has_at_least_one_center(reg_lambda, n_inf):
    """Beyond lambda = 4 kappa / delta = 40 the logarithm is negative, and any number is enough for the theorem."""
    assert plain_centers(n_inf, reg_lambda) >= 1


def _two_atoms(p, t):
    """N and N_inf of a kernel with k(x, x) = 1 and a distribution on two orthogonal points, of masses p and 1 - p."""
    return p / (p + t) + (1.0 - p) / (1.0 - p + t), 1.0 / (p + t)


@pytest.mark.parametrize("n_rows", [10**5, 10**6, 10**8])
def test_leverage_scores_need_fewer_centers_where_a_rare_point_matters(n_rows):
    """The remark below the Nystrom theorem, at the least lambda that its extension is for, 19 log(2 m / delta) / m."""
    t = 19.0 * math.log(2.0 * n_rows / 0.1) / n_rows
    N, N_inf = _two_atoms(t, t)
    assert N_inf > N
    assert als_centers(N, n_rows) < plain_centers(N_inf, t)


@pytest.mark.parametrize("N", [1.0, 10.0, 1000.0])
@pytest.mark.parametrize("n_rows", [2000, 10**6])
def test_leverage_scores_need_no_fewer_where_all_points_are_alike(N, n_rows):
    """N = N_inf: then 78 > 5, 334 > 67 and 8 m > 4 / lambda, at lambda >= 1 / m, leave nothing to gain."""
    assert als_centers(N, n_rows) > plain_centers(N, 1.0 / n_rows)


@pytest.mark.parametrize("t", [1e-4, 1e-3, 1e-2])
@pytest.mark.parametrize("delta", [0.01, 0.5])
def test_that_many_centers_are_enough_for_orthogonal_points(t, delta):
    """|(I - P) Sigma^1/2|^2 <= 3 lambda, what both proofs need, is here that no point of mass above 3 lambda is missed.

    The masses halve from 1/2 down. A union bound gives the probability of a miss, under uniform sampling of the rows
    and under sampling by leverage scores, of p / (p + lambda) / N for a point of mass p.
    """
    masses = np.array([0.5**n for n in range(1, 30)] + [0.5**29])
    N_x = 1.0 / (masses + t)
    N, N_inf = float(masses @ N_x), float(np.max(N_x))
    heavy = masses > 3.0 * t
    plain, als = plain_centers(N_inf, t, delta=delta), als_centers(N, 10**6, delta=delta)
    assert np.sum((1.0 - masses[heavy]) ** plain) <= delta
    assert np.sum((1.0 - (masses * N_x)[heavy] / N) ** als) <= delta


# ---------------------------------------------------------------------------------------------------------- the rates
every_dimension = pytest.mark.parametrize("d", [1, 2, 3, np.int64(17)])
every_smoothness = pytest.mark.parametrize("r", [1, 2, 5, 0.5, 40.0])
every_source = pytest.mark.parametrize("theta", [1, 0.5, 0.125])


@every_dimension
@every_smoothness
@every_source
def test_rates_are_the_theorems(d, r, theta):
    """In rational arithmetic; a handful of roundings is below 1e-14."""
    s = Fraction(int(d)) / Fraction(r)
    assert_allclose(rate(d, r, theta), float(exponent(s, Fraction(theta))), rtol=1e-14)
    assert_allclose(rate_for_all_m(d, r, theta), float(exponent_for_all_m(s, Fraction(theta))), rtol=1e-14)
    assert_allclose(minimax_rate(d, r), float(1 / (1 + s / 2)), rtol=1e-14)
    for value in (rate(d, r, theta), rate_for_all_m(d, r, theta), minimax_rate(d, r)):
        assert isinstance(value, float)


@every_dimension
@every_smoothness
def test_the_source_condition_is_that_of_the_rkhs_by_default(d, r):
    """theta = 1: m^-(2 r / (2 r + 2 d)), the remark on suboptimality, which is minimax for 2 d inputs; then half."""
    assert rate(d, r) == rate(d, r, 1.0) == rate(d, r, source=1.0)
    assert rate_for_all_m(d, r) == rate_for_all_m(d, r, 1.0)
    assert_allclose(rate(d, r), minimax_rate(2 * d, r), rtol=1e-14)
    assert_allclose(rate_for_all_m(d, r), rate(d, r) / 2.0, rtol=1e-14)


@every_dimension
@every_source
def test_kernels_that_are_smooth_without_end(d, theta):
    """r to infinity: theta, theta / (1 + theta) and 1; the text below the second theorem has 1/2 at theta = 1."""
    assert_allclose(rate(d, math.inf, theta), theta, rtol=1e-14)
    assert_allclose(rate_for_all_m(d, math.inf, theta), theta / (1.0 + theta), rtol=1e-14)
    assert_allclose(minimax_rate(d, math.inf), 1.0, rtol=1e-14)
    for r in (1e200, sys.float_info.max):
        assert_allclose(rate(d, r, theta), rate(d, math.inf, theta), rtol=1e-14)
        assert_allclose(rate_for_all_m(d, r, theta), rate_for_all_m(d, math.inf, theta), rtol=1e-14)
        assert_allclose(minimax_rate(d, r), minimax_rate(d, math.inf), rtol=1e-14)


@every_dimension
@every_source
def test_rates_grow_with_smoothness_and_source_and_fall_with_the_dimension(d, theta):
    grid = [1e-3, 0.5, 1, 2, 3.5, 10, 1e4, math.inf]
    for r, smoother in itertools.pairwise(grid):
        assert 0.0 < rate(d, r, theta) < rate(d, smoother, theta) <= theta
        assert 0.0 < rate_for_all_m(d, r, theta) < rate_for_all_m(d, smoother, theta) <= 0.5
        assert 0.0 < minimax_rate(d, r) < minimax_rate(d, smoother) <= 1.0
    for r in grid[:-1]:
        assert rate(d + 1, r, theta) < rate(d, r, theta)
        assert rate_for_all_m(d + 1, r, theta) < rate_for_all_m(d, r, theta)
        assert minimax_rate(d + 1, r) < minimax_rate(d, r)
    for r in grid:
        assert rate(d, r, theta / 2.0) < rate(d, r, theta)
        assert rate_for_all_m(d, r, theta / 2.0) < rate_for_all_m(d, r, theta)
        assert rate_for_all_m(d, r, theta) < rate(d, r, theta)


@every_smoothness
def test_the_curse_of_the_inputs_dimension_is_beaten(r):
    """With d directions of D inputs the rate is better than minimax for D > 2 d, and is not for D < 2 d."""
    for d in (1, 3, 10):
        assert rate(d, r) > minimax_rate(2 * d + 1, r)
        assert rate(d, r) < minimax_rate(2 * d - 1, r)


# ---------------------------------------------------------------------------------------------------------- bad input
NOT_A_MATRIX = {
    "a number": 1.0,
    "a vector": np.ones(3),
    "not square": np.ones((2, 3)),
    "a stack": np.ones((2, 2, 2)),
    "empty": np.zeros((0, 0)),
    "NaN": np.array([[1.0, math.nan], [math.nan, 1.0]]),
    "NaN on the diagonal": np.diag([1.0, math.nan]),
    "infinite": np.diag([1.0, math.inf]),
    "ragged": [[1.0], [1.0, 2.0]],
    "text": [["a", "b"], ["c", "d"]],
    "None": None,
    "not symmetric": np.array([[1.0, 0.9], [0.1, 1.0]]),
}
NOT_POSITIVE = [0.0, -1.0, math.nan, -math.inf, "1", None]
NOT_POSITIVE_AND_FINITE = [*NOT_POSITIVE, math.inf]
NOT_A_SIZE = [0, -1, 1.5, 2.0, math.nan, math.inf, "2", None, True]
NOT_A_DIMENSION = [-1e-3, -math.inf, math.nan, math.inf, "1", None]
NOT_A_PROBABILITY = [0.0, 1.0, -0.1, 1.1, math.nan, math.inf, "0.1", None]
NOT_A_FACTOR = [0.999, 0.0, -2.0, math.nan, math.inf, "1", None]
NOT_A_SOURCE = [0.0, -0.5, 1.0 + 1e-9, 2.0, math.nan, math.inf, "1", None]
WRONG = {
    plain_centers: (
        {"n_inf": 20.0, "reg_lambda": 1e-3, "delta": 0.1, "kappa": 1.0},
        {
            "n_inf": NOT_A_DIMENSION,
            "reg_lambda": NOT_POSITIVE_AND_FINITE,
            "delta": NOT_A_PROBABILITY,
            "kappa": NOT_POSITIVE_AND_FINITE,
        },
    ),
    als_centers: (
        {"n_eff": 20.0, "n_rows": 2000, "delta": 0.1, "T": 1.0},
        {"n_eff": NOT_A_DIMENSION, "n_rows": NOT_A_SIZE, "delta": NOT_A_PROBABILITY, "T": NOT_A_FACTOR},
    ),
    rate: (
        {"n_components": 3, "smoothness": 2.0, "source": 1.0},
        {"n_components": NOT_A_SIZE, "smoothness": NOT_POSITIVE, "source": NOT_A_SOURCE},
    ),
    rate_for_all_m: (
        {"n_components": 3, "smoothness": 2.0, "source": 1.0},
        {"n_components": NOT_A_SIZE, "smoothness": NOT_POSITIVE, "source": NOT_A_SOURCE},
    ),
    minimax_rate: (
        {"n_features": 10, "smoothness": 2.0},
        {"n_features": NOT_A_SIZE, "smoothness": NOT_POSITIVE},
    ),
}
WRONG_CASES = [
    pytest.param(function, good, name, value, id=f"{function.__name__}-{name}-{value!r}")
    for function, (good, bad) in WRONG.items()
    for name, values in bad.items()
    for value in values
]


@every_matrix_function
@pytest.mark.parametrize("K", NOT_A_MATRIX.values(), ids=NOT_A_MATRIX.keys())
def test_k_must_be_a_kernel_matrix(function, K):
    with pytest.raises(ValueError, match=r"\bK\b"):
        function(K, 0.1)


@every_matrix_function
@pytest.mark.parametrize("K", [-np.eye(3), np.array([[1.0, 2.0], [2.0, 1.0]])], ids=["negative", "indefinite"])
def test_k_must_be_positive(function, K):
    """Seen where K + t m I has no Cholesky factor, as at this t: an error that says so, as for every kernel matrix."""
    with pytest.raises((ValueError, FloatingPointError), match="positive"):
        function(K, 0.1)


@every_matrix_function
@pytest.mark.parametrize("t", NOT_POSITIVE_AND_FINITE, ids=repr)
def test_t_must_be_positive(function, t):
    with pytest.raises(ValueError, match=r"\bt\b"):
        function(np.eye(3), t)


@pytest.mark.parametrize(("function", "good", "name", "value"), WRONG_CASES)
def test_each_argument_is_checked(function, good, name, value):
    assert function(**good) > 0
    with pytest.raises(ValueError, match=rf"\b{name}\b"):
        function(**good | {name: value})
