"""Tests of `hkrr.theory`: leverage scores, effective dimensions, numbers of centers and rates.

The results are compared with oracles written from the definitions. The oracles compute leverage scores by a matrix
inverse, by eigenvectors, in an explicit feature space, and in rational arithmetic. They compute the numbers of centers
from the Nystrom theorem and its extension to approximate leverage scores. They compute the exponents of the rates as
functions of s = d / r, where d is the number of directions and r the smoothness of the kernel. In the theorems, s is
the exponent of the covering number.
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


# ---------------------------------------------------------------------------------------------------- naive oracles
def scores_by_inverse(K, t):
    """Return the diagonal of K (K + t m I)^-1, computed by an inverse."""
    m = len(K)
    return np.diag(K @ np.linalg.inv(K + t * m * np.eye(m)))


def scores_by_eigenvectors(K, t):
    """Return the leverage scores sum_j u_ij^2 s_j / (s_j + t m) of all rows i, with the eigenpairs (s_j, u_j) of K."""
    m = len(K)
    values, vectors = np.linalg.eigh(K)
    return np.array([sum(vectors[i, j] ** 2 * values[j] / (values[j] + t * m) for j in range(m)) for i in range(m)])


def scores_in_rationals(K, t):
    """Return the diagonal of (K + t m I)^-1 K by Gauss-Jordan elimination in exact arithmetic."""
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
    """Return N_x(t) = <phi(x), (Sigma + t I)^-1 phi(x)> for all rows x.

    The rows of F are the feature vectors phi(x). Sigma is the mean of phi(x) phi(x)'.
    """
    m, p = F.shape
    Sigma = np.zeros((p, p))
    for phi in F:
        Sigma += np.outer(phi, phi) / m
    return np.array([phi @ np.linalg.solve(Sigma + t * np.eye(p), phi) for phi in F])


def plain_bound(n_inf, reg_lambda, delta, kappa):
    """Return the number of uniformly drawn centers in the Nystrom theorem, before rounding.

    It is max(67, 5 N_inf) log(4 kappa / (lambda delta)).
    """
    log = math.log(4.0) + math.log(kappa) - math.log(reg_lambda) - math.log(delta)
    return max(67.0 * log, 5.0 * n_inf * log)


def als_bound(n_eff, n_rows, delta, T):
    """Return the number of centers in the theorem for T-approximate leverage scores, before rounding.

    It is max(334, 78 T^2 N) log(8 m / delta), where N is `n_eff` and m is `n_rows`.
    """
    log = math.log(8.0) + math.log(n_rows) - math.log(delta)
    return max(334.0 * log, 78.0 * T**2 * n_eff * log)


def exponent(s, theta):
    """Return theta / (1 + s), the exponent of the rate in the first theorem.

    It is theta times the supremum of zeta < 1 / (1 + s), where lambda = m^-zeta.
    """
    return theta / (1 + s)


def exponent_for_all_m(s, theta):
    """Return the exponent of lambda^theta at lambda = m^-(1 / ((1 + theta) (1 + s))), which holds for all m."""
    return theta / ((1 + theta) * (1 + s))


def is_smallest_integer_from(number, bound):
    """Return whether ``number`` is the ceiling of ``bound``, up to the rounding error of the bound."""
    return bound * (1.0 - 1e-13) <= number < (bound + 1.0) * (1.0 + 1e-13)


def rounding(K, t):
    """Return a bound on the rounding error of scores that a backward stable solve with A = K + t m I computes.

    Let |.| be the spectral norm. The error is c eps cond(A) |A^-1 K| with c of order m, cond(A) <= (|K| + t m) / (t m)
    and |A^-1 K| = |K| / (|K| + t m). With c = 10 m, this gives 10 eps |K| / t. For large t, the bound decreases with t
    in the same way as the scores, which are then near K_ii / (t m).
    """
    return 10.0 * EPS * np.linalg.norm(K, 2) / t


# -------------------------------------------------------------------------------------------------- kernel matrices
def _points(m, D, seed=0):
    return np.random.default_rng([seed, m, D]).normal(size=(m, D))


def _gaussian(X, gamma):
    return np.array([[math.exp(-gamma * np.sum((x - z) ** 2)) for z in X] for x in X])


def _integer_features(m, p):
    """Return a feature matrix F of small integers, so that F F' has no rounding errors and a known rank."""
    return np.random.default_rng([m, p]).integers(-3, 4, size=(m, p)).astype(float)


def _quadratic():
    """Return the kernel (1 + x'z)^2 in the plane, and its six explicit features."""
    X, root = _points(11, 2), math.sqrt(2.0)
    a, b = X[:, 0], X[:, 1]
    F = np.column_stack([np.ones(11), root * a, root * b, a * a, b * b, root * a * b])
    return (1.0 + X @ X.T) ** 2, F


def _linear(m, p):
    F = _integer_features(m, p)
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
T_GRID = [1e-4, 1e-2, 1.0, 1e3]
MATRIX_FUNCTIONS = [leverage_scores, effective_dimension, maximal_dimension]
every_matrix = pytest.mark.parametrize("K", MATRICES.values(), ids=MATRICES.keys())


# ------------------------------------------------------------------------ leverage scores and effective dimensions
@every_matrix
def test_scores_and_dimensions_match_the_oracles(K):
    """Test that the scores and dimensions match all oracles.

    Both the results and the oracles have rounding errors, so the tolerance is twice the bound on these errors.
    """
    for t in T_GRID:
        m, atol, scores = len(K), 2.0 * rounding(K, t), leverage_scores(K, t)
        assert scores.shape == (m,)
        for oracle in (scores_by_inverse, scores_by_eigenvectors, scores_in_rationals):
            assert_allclose(scores, oracle(K, t), rtol=1e-13, atol=atol)
        expected, N, N_inf = scores_by_eigenvectors(K, t), effective_dimension(K, t), maximal_dimension(K, t)
        assert type(N) is float
        assert type(N_inf) is float
        assert_allclose(N, sum(expected), rtol=1e-13, atol=m * atol)
        assert_allclose(N_inf, m * max(expected), rtol=1e-13, atol=m * atol)


@pytest.mark.parametrize(("K", "F"), FEATURES.values(), ids=FEATURES.keys())
def test_scores_and_dimensions_in_the_feature_space(K, F):
    """Test that N_x, computed in the feature space, is m times the leverage score of row x.

    The effective dimension N is the mean of N_x over the rows, and the maximal dimension N_inf is the maximum.
    """
    for t in T_GRID:
        m, N, atol = len(K), pointwise_dimensions(F, t), 2.0 * rounding(K, t)
        assert_allclose(leverage_scores(K, t), N / m, rtol=1e-13, atol=atol)
        assert_allclose(effective_dimension(K, t), np.mean(N), rtol=1e-13, atol=m * atol)
        assert_allclose(maximal_dimension(K, t), np.max(N), rtol=1e-13, atol=m * atol)


@pytest.mark.parametrize("t", [1e-2, 1.0])
def test_effective_dimension_is_the_trace_of_the_hat_matrix(t):
    """Test that the scores are the diagonal of the hat matrix of scikit-learn's KernelRidge, and that N is its trace.

    The argument t corresponds to the paper's lambda, so t m is the alpha of KernelRidge.
    """
    K = MATRICES["gaussian"]
    m = len(K)
    hat = KernelRidge(alpha=t * m, kernel="precomputed").fit(K, np.eye(m)).predict(K)
    assert_allclose(leverage_scores(K, t), np.diag(hat), rtol=1e-13, atol=2.0 * rounding(K, t))
    assert_allclose(effective_dimension(K, t), np.trace(hat), rtol=1e-13, atol=2.0 * m * rounding(K, t))


@pytest.mark.parametrize("t", [0.125, 1.0, 8.0])
def test_scores_worked_out_by_hand(t):
    """Test that the scores and dimensions equal values that were computed by hand.

    The cases are one row, two rows with correlation c (eigenvalues 1 + c and 1 - c), five equal rows (a single nonzero
    eigenvalue, 5), and a diagonal matrix.
    """
    assert_allclose(leverage_scores([[3.0]], t), [3.0 / (3.0 + t)], rtol=1e-14)
    for c in (-0.5, 0.0, 0.75):
        expected = 0.5 * ((1.0 + c) / (1.0 + c + 2.0 * t) + (1.0 - c) / (1.0 - c + 2.0 * t))
        assert_allclose(leverage_scores([[1.0, c], [c, 1.0]], t), [expected, expected], rtol=1e-13)
    assert_allclose(leverage_scores(np.ones((5, 5)), t), np.full(5, 1.0 / (5.0 * (1.0 + t))), rtol=1e-13)
    assert_allclose(effective_dimension(np.ones((5, 5)), t), 1.0 / (1.0 + t), rtol=1e-13)
    assert_allclose(maximal_dimension(np.diag([9.0, 1.0, 0.0]), t), 27.0 / (9.0 + 3.0 * t), rtol=1e-13)


def test_a_zero_kernel_has_zero_dimensions():
    for t in (1e-300, 1e-3, 1.0, 1e300):
        assert_array_equal(leverage_scores(np.zeros((3, 3)), t), np.zeros(3))
        assert effective_dimension(np.zeros((3, 3)), t) == 0.0
        assert maximal_dimension(np.zeros((3, 3)), t) == 0.0


def test_scores_lie_between_zero_and_one():
    """Test that scores lie between 0 and 1 for every t, even if t is so small that K + t m I has no Cholesky factor."""
    for K, t in itertools.product(MATRICES.values(), [1e-300, 1e-18, 1e-14, 1e-9, 1e-4, 1.0, 1e4, 1e300]):
        scores = leverage_scores(K, t)
        assert np.all(scores >= 0.0)
        assert np.all(scores <= 1.0)


def test_dimensions_are_ordered():
    """Test that N <= N_inf <= kappa / t, N_inf <= m and N <= tr K / (t m), where kappa is the maximum of diag(K)."""
    for K, t in itertools.product(MATRICES.values(), T_GRID):
        m, kappa = len(K), np.max(np.diag(K))
        N, N_inf = effective_dimension(K, t), maximal_dimension(K, t)
        slack = m * rounding(K, t)
        assert 0.0 < N <= N_inf * (1.0 + 1e-13)
        assert N_inf <= kappa / t * (1.0 + 1e-13) + slack
        assert N_inf <= m
        assert np.trace(K) / (t * m) * (1.0 + 1e-13) + slack >= N


def test_dimensions_are_equal_for_exchangeable_rows():
    """Test that N = N_inf if all rows have the same score. The rows are equally spaced points on a circle."""
    angles = 2.0 * math.pi * np.arange(9) / 9.0
    K = _gaussian(np.column_stack([np.cos(angles), np.sin(angles)]), 0.7)
    assert_allclose(maximal_dimension(K, 0.01), effective_dimension(K, 0.01), rtol=1e-11)


@every_matrix
def test_dimensions_decrease_with_t_but_less_than_proportionally(K):
    """Test that N and N_inf decrease with t, and that t N and t N_inf increase with t.

    For every eigenvalue s of K, s / (s + t m) decreases with t, and t s / (s + t m) increases with t.
    """
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
def test_small_t_gives_the_rank_and_the_leverage_of_least_squares(m, p):
    """Test that for small t, N is the rank of K, and the scores are the leverages of least squares on the features.

    If t m is 1e-7 times the smallest positive eigenvalue of K, the relative error is 1e-7.
    """
    F = _integer_features(m, p)
    K, rank = F @ F.T, np.linalg.matrix_rank(F)
    least = np.linalg.eigvalsh(K)[m - rank]
    t = 1e-7 * least / m
    slack = 1e-7 + rounding(K, t)
    Q = np.linalg.svd(F)[0][:, :rank]
    assert rank == min(m, p)
    assert abs(effective_dimension(K, t) - rank) <= m * slack
    assert_allclose(leverage_scores(K, t), np.sum(Q * Q, axis=1), rtol=0.0, atol=slack)
    assert_allclose(maximal_dimension(K, t), m * np.max(np.sum(Q * Q, axis=1)), rtol=0.0, atol=m * slack)


@pytest.mark.parametrize("factor", [1e14, 1e290])
def test_large_t_gives_the_diagonal_over_t_m(factor):
    """Test that for large t, score i is K_ii / (t m) (1 + O(|K| / (t m))).

    The tolerance is relative to the largest score.
    """
    for K in MATRICES.values():
        m, t = len(K), factor * np.linalg.norm(K, 2)
        expected = np.diag(K) / m
        assert_allclose(t * leverage_scores(K, t), expected, rtol=1e-11, atol=1e-11 * np.max(expected))
        assert_allclose(t * effective_dimension(K, t), np.trace(K) / m, rtol=1e-11)
        assert effective_dimension(K, t) <= m / factor * (1.0 + 1e-13)


@every_matrix
def test_invariances(K):
    """Test how the scores and dimensions change if the rows are permuted or repeated, or K and t are scaled.

    Permuting the rows permutes the scores. Scaling K and t by the same factor changes nothing. Repeating all rows does
    not change their empirical distribution. Hence N_x, its mean N and its maximum N_inf do not change, and the score of
    a row is divided equally among its copies.
    """
    m, order = len(K), np.random.default_rng(0).permutation(len(K))
    for t in T_GRID:
        scores, atol = leverage_scores(K, t), 2.0 * rounding(K, t)
        permuted = K[np.ix_(order, order)]
        assert_allclose(leverage_scores(permuted, t), scores[order], rtol=1e-13, atol=atol)
        for function in (effective_dimension, maximal_dimension):
            assert_allclose(function(permuted, t), function(K, t), rtol=1e-13, atol=m * atol)
        for scale in (1e-100, 0.3, 1e8, 1e100):
            assert_allclose(leverage_scores(scale * K, scale * t), scores, rtol=1e-13, atol=atol)
        for times in (2, 5):
            repeated = np.tile(K, (times, times))
            atol_repeated = rounding(K, t) + rounding(repeated, t)
            found = times * leverage_scores(repeated, t)
            assert_allclose(found, np.tile(scores, times), rtol=1e-13, atol=times * atol_repeated)
            for function in (effective_dimension, maximal_dimension):
                expected = function(K, t)
                assert_allclose(function(repeated, t), expected, rtol=1e-13, atol=times * m * atol_repeated)


@pytest.mark.parametrize("kernel", ["gaussian", "matern32", "laplace"])
def test_approximate_scores_from_all_rows_are_exact(kernel):
    """Test that approximate scores are exact if the pilot sample contains all rows, in any order.

    The rounding error of the formula is of order m eps (1 + |K| / (t m))^2.
    """
    X, B = _points(60, 4), _points(2, 4, seed=1)
    kernel = kernels.get_kernel(kernel).with_gamma(0.3)
    K = kernel(X @ B.T, X @ B.T)
    for t in (1e-2, 1e-1, 1.0):
        atol = 10.0 * 60 * EPS * (1.0 + np.linalg.norm(K, 2) / (60 * t)) ** 2
        rows = InMemoryRows(X, np.zeros(60), block_size=17)
        approximate = centers.approximate_leverage_scores(rows, B, kernel, t, X[::-1].copy())
        assert atol <= 1e-8
        assert_allclose(approximate, leverage_scores(K, t), rtol=1e-13, atol=atol)


@pytest.mark.parametrize("t", [1e-2, 1e-1])
def test_approximate_scores_from_half_of_the_rows_are_within_a_factor_two(t):
    """Test that scores from a pilot sample of every other row differ from the exact scores by at most a factor 2.

    This is the definition of (T, t0)-approximate scores with T = 2, which must hold for all t >= t0. The test uses two
    values of t.
    """
    X, B = _points(200, 4), _points(2, 4, seed=1) / 2.0
    kernel = kernels.get_kernel("gaussian").with_gamma(0.3)
    exact = leverage_scores(kernel(X @ B.T, X @ B.T), t)
    approximate = centers.approximate_leverage_scores(InMemoryRows(X, np.zeros(200)), B, kernel, t, X[::2].copy())
    assert np.all(exact / 2.0 <= approximate)
    assert np.all(approximate <= 2.0 * exact)


@pytest.mark.parametrize("gamma", [1e-14, 1e-8, 1e-3])
def test_a_nearly_constant_kernel(gamma):
    """Test that the scores match rational arithmetic for Gaussian kernels with condition numbers above 1e16."""
    K = _gaussian(_points(7, 2), gamma)
    for t in (1e-9, 1e-6, 1e-3, 1.0):
        assert_allclose(leverage_scores(K, t), scores_in_rationals(K, t), rtol=1e-13, atol=rounding(K, t))
        # For the constant kernel 11', all scores are 1 / (m (1 + t)). The difference K - 11' changes a score by at most
        # |K - 11'| / (t m).
        atol = rounding(K, t) + np.linalg.norm(K - 1.0, 2) / (7.0 * t)
        assert_allclose(leverage_scores(K, t), np.full(7, 1.0 / (7.0 * (1.0 + t))), rtol=0.0, atol=atol)


@pytest.mark.parametrize("t", [1e-9, 1e-5, 1e-2, 1.0])
def test_repeated_rows_share_a_score(t):
    """Test that the n copies of a row have the same score, at most 1/n. In this test, two rows have 5 and 2 copies."""
    K = _gaussian(np.repeat(_points(2, 3), [5, 2], axis=0), 0.5)
    scores = leverage_scores(K, t)
    assert_allclose(scores, scores_in_rationals(K, t), rtol=1e-13, atol=rounding(K, t))
    assert_allclose(scores, [scores[0]] * 5 + [scores[6]] * 2, rtol=1e-13, atol=2.0 * rounding(K, t))
    assert np.all(scores <= np.array([1 / 5] * 5 + [1 / 2] * 2) + rounding(K, t))


def test_types_of_kernel_matrices():
    """Test that K may be a list or an array of any numeric dtype and memory layout, and is not modified.

    The test uses integers, float32, a read-only array, and different memory layouts.
    """
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
def test_plain_centers_match_the_theorem():
    grid = itertools.product([0.0, 1.0, 13.39, 13.41, 50, 12345.6], [1e-9, 1e-3, 0.5], [1e-6, 0.1, 0.7], [0.25, 1.0, 7])
    for n_inf, reg_lambda, delta, kappa in grid:
        number = plain_centers(n_inf, reg_lambda, delta=delta, kappa=kappa)
        assert type(number) is int
        assert is_smallest_integer_from(number, plain_bound(n_inf, reg_lambda, delta, kappa))


def test_als_centers_match_the_theorem():
    n_rows = [1, 1000, np.int64(10**7)]
    for n_eff, m, delta, T in itertools.product(
        [0.0, 1.0, 4.28, 4.29, 50, 12345.6], n_rows, [1e-6, 0.1, 0.7], [1, 1.5, 3.0]
    ):
        number = als_centers(n_eff, m, delta=delta, T=T)
        assert type(number) is int
        assert is_smallest_integer_from(number, als_bound(n_eff, m, delta, T))


def test_defaults_of_the_numbers_of_centers():
    """Test that the defaults are delta = 0.1, kappa = 1 and T = 1."""
    assert plain_centers(30.0, 1e-4) == plain_centers(30.0, 1e-4, delta=0.1, kappa=1.0)
    assert is_smallest_integer_from(plain_centers(30.0, 1e-4), plain_bound(30.0, 1e-4, 0.1, 1.0))
    assert als_centers(30.0, 5000) == als_centers(30.0, 5000, delta=0.1, T=1.0)
    assert is_smallest_integer_from(als_centers(30.0, 5000), als_bound(30.0, 5000, 0.1, 1.0))


def test_centers_worked_out_by_hand():
    """Test that the numbers of centers equal values computed by hand, for arguments that make the logarithms equal 6.

    `plain_centers` contains log(4 kappa / (lambda delta)), which is 6 if kappa = lambda = 1 and delta = 4 / e^6. The
    number of centers is then max(67, 5 N_inf) * 6. `als_centers` contains log(8 m / delta), which is 6 if m = 1 and
    delta = 8 / e^6. The number of centers is then max(334, 78 T^2 N) * 6.
    """
    assert is_smallest_integer_from(plain_centers(2.0, 1.0, delta=4.0 * math.exp(-6.0)), 67 * 6)
    assert is_smallest_integer_from(plain_centers(40.0, 1.0, delta=4.0 * math.exp(-6.0)), 5 * 40 * 6)
    assert is_smallest_integer_from(als_centers(2.0, 1, delta=8.0 * math.exp(-6.0)), 334 * 6)
    assert is_smallest_integer_from(als_centers(5.0, 1, delta=8.0 * math.exp(-6.0), T=2.0), 78 * 4 * 5 * 6)


def _increases(values):
    return all(a <= b for a, b in itertools.pairwise(values)) and values[0] < values[-1]


def test_harder_problems_need_more_centers():
    grid = [1.0, 3.0, 10.0, 30.0, 100.0, 1000.0]
    assert _increases([plain_centers(n, 1e-3) for n in grid])
    assert _increases([plain_centers(20.0, 1e-3 / n) for n in grid])
    assert _increases([plain_centers(20.0, 1e-3, delta=0.9 / n) for n in grid])
    assert _increases([plain_centers(20.0, 1e-3, kappa=n) for n in grid])
    assert _increases([als_centers(n, 1000) for n in grid])
    assert _increases([als_centers(20.0, int(n)) for n in grid])
    assert _increases([als_centers(20.0, 1000, delta=0.9 / n) for n in grid])
    assert _increases([als_centers(20.0, 1000, T=n) for n in grid])


def test_only_the_ratio_of_kappa_and_lambda_matters():
    for scale in (0.01, 5.0, 1e6):
        expected = plain_bound(25.0, 1e-3, 0.1, 1.0)
        assert is_smallest_integer_from(plain_centers(25.0, scale * 1e-3, kappa=scale), expected)


def test_there_is_at_least_one_center():
    """Test that at least one center is returned for every lambda.

    For lambda > 4 kappa / delta = 40, the logarithm in the formula is negative.
    """
    for reg_lambda, n_inf in itertools.product([39.0, 40.0, 41.0, 1e6], [0.0, 1.0, 100.0]):
        assert plain_centers(n_inf, reg_lambda) >= 1


def _two_atoms(p, t):
    """Return N and N_inf at lambda = t for two orthogonal points with the probabilities p and 1 - p.

    k(x, x) is 1 at both points.
    """
    return p / (p + t) + (1.0 - p) / (1.0 - p + t), 1.0 / (p + t)


@pytest.mark.parametrize("n_rows", [10**5, 10**6, 10**8])
def test_leverage_scores_need_fewer_centers_if_a_rare_point_matters(n_rows):
    """Test that sampling by leverage scores needs fewer centers than uniform sampling if a rare point matters.

    The remark after the theorem says so. The rare point has the probability lambda. Lambda is the smallest value that
    the theorem for leverage scores allows, 19 log(2 m / delta) / m.
    """
    t = 19.0 * math.log(2.0 * n_rows / 0.1) / n_rows
    N, N_inf = _two_atoms(t, t)
    assert N_inf > N
    assert als_centers(N, n_rows) < plain_centers(N_inf, t)


@pytest.mark.parametrize("n_rows", [2000, 10**6])
def test_leverage_scores_need_more_centers_if_all_points_have_the_same_score(n_rows):
    """Test that sampling by leverage scores needs more centers than uniform sampling if N = N_inf.

    For lambda >= 1 / m this follows from the constants: 78 > 5, 334 > 67 and 8 m > 4 / lambda.
    """
    for N in (1.0, 10.0, 1000.0):
        assert als_centers(N, n_rows) > plain_centers(N, 1.0 / n_rows)


@pytest.mark.parametrize("delta", [0.01, 0.5])
def test_the_number_of_centers_suffices_for_orthogonal_points(delta):
    """Test that the numbers of centers suffice for orthogonal points with the probabilities 1/2, 1/4, 1/8 and so on.

    The proofs need |(I - P) Sigma^1/2|^2 <= 3 lambda, where P projects on the span of the centers. For orthogonal
    points, this holds if every point with a probability above 3 lambda is drawn. A union bound gives the probability
    that such a point is missed. Uniform sampling draws a point of probability p with probability p, and sampling by
    leverage scores draws it with probability p / (p + lambda) / N.
    """
    masses = np.array([0.5**n for n in range(1, 30)] + [0.5**29])
    for t in (1e-4, 1e-3, 1e-2):
        N_x = 1.0 / (masses + t)
        N, N_inf = float(masses @ N_x), float(np.max(N_x))
        heavy = masses > 3.0 * t
        plain, als = plain_centers(N_inf, t, delta=delta), als_centers(N, 10**6, delta=delta)
        assert np.sum((1.0 - masses[heavy]) ** plain) <= delta
        assert np.sum((1.0 - (masses * N_x)[heavy] / N) ** als) <= delta


# -------------------------------------------------------------------------------------------------------------- rates
DIMENSIONS, SMOOTHNESS, SOURCES = [1, 2, 3, np.int64(17)], [1, 2, 5, 0.5, 40.0], [1, 0.5, 0.125]


def test_rates_match_the_theorems():
    """Test that the rates match the formulas of the theorems, evaluated in rational arithmetic."""
    for d, r, theta in itertools.product(DIMENSIONS, SMOOTHNESS, SOURCES):
        s = Fraction(int(d)) / Fraction(r)
        assert_allclose(rate(d, r, theta), float(exponent(s, Fraction(theta))), rtol=1e-14)
        assert_allclose(rate_for_all_m(d, r, theta), float(exponent_for_all_m(s, Fraction(theta))), rtol=1e-14)
        assert_allclose(minimax_rate(d, r), float(1 / (1 + s / 2)), rtol=1e-14)
        for value in (rate(d, r, theta), rate_for_all_m(d, r, theta), minimax_rate(d, r)):
            assert isinstance(value, float)


def test_the_default_source_condition_is_a_target_in_the_rkhs():
    """Test that the default is theta = 1, which means that the target is in the RKHS, and test its exponents.

    `rate` is then the minimax exponent for 2 d inputs, 2 r / (2 r + 2 d). `rate_for_all_m`, the exponent of the bound
    that holds for every number of rows m, is half of this exponent, r / (2 r + 2 d).
    """
    for d, r in itertools.product(DIMENSIONS, SMOOTHNESS):
        assert rate(d, r) == rate(d, r, 1.0) == rate(d, r, source=1.0)
        assert rate_for_all_m(d, r) == rate_for_all_m(d, r, 1.0)
        assert_allclose(rate(d, r), minimax_rate(2 * d, r), rtol=1e-14)
        assert_allclose(rate_for_all_m(d, r), rate(d, r) / 2.0, rtol=1e-14)


def test_infinitely_smooth_kernels():
    """Test that the exponents have the right limits as the smoothness r goes to infinity.

    `rate` tends to theta, `rate_for_all_m` to theta / (1 + theta), and `minimax_rate` to 1.
    """
    for d, theta in itertools.product(DIMENSIONS, SOURCES):
        assert_allclose(rate(d, math.inf, theta), theta, rtol=1e-14)
        assert_allclose(rate_for_all_m(d, math.inf, theta), theta / (1.0 + theta), rtol=1e-14)
        assert_allclose(minimax_rate(d, math.inf), 1.0, rtol=1e-14)
        for r in (1e200, sys.float_info.max):
            assert_allclose(rate(d, r, theta), rate(d, math.inf, theta), rtol=1e-14)
            assert_allclose(rate_for_all_m(d, r, theta), rate_for_all_m(d, math.inf, theta), rtol=1e-14)
            assert_allclose(minimax_rate(d, r), minimax_rate(d, math.inf), rtol=1e-14)


def test_rates_increase_with_smoothness_and_source_and_decrease_with_the_dimension():
    grid = [1e-3, 0.5, 1, 2, 3.5, 10, 1e4, math.inf]
    for d, theta in itertools.product(DIMENSIONS, SOURCES):
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


def test_the_curse_of_dimensionality_is_avoided():
    """Test that with d directions among D inputs, the rate is better than the minimax rate for D inputs if D > 2 d.

    If D < 2 d, it is worse.
    """
    for r, d in itertools.product(SMOOTHNESS, (1, 3, 10)):
        assert rate(d, r) > minimax_rate(2 * d + 1, r)
        assert rate(d, r) < minimax_rate(2 * d - 1, r)


# -------------------------------------------------------------------------------------------------- invalid arguments
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
RATE = (
    {"n_components": 3, "smoothness": 2.0, "source": 1.0},
    {"n_components": NOT_A_SIZE, "smoothness": NOT_POSITIVE, "source": NOT_A_SOURCE},
)
# For each function: valid arguments, and invalid values of each argument.
ARGUMENTS = {
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
    rate: RATE,
    rate_for_all_m: RATE,
    minimax_rate: ({"n_features": 10, "smoothness": 2.0}, {"n_features": NOT_A_SIZE, "smoothness": NOT_POSITIVE}),
}


@pytest.mark.parametrize("K", NOT_A_MATRIX.values(), ids=NOT_A_MATRIX.keys())
def test_k_must_be_a_kernel_matrix(K):
    for function in MATRIX_FUNCTIONS:
        with pytest.raises(ValueError, match=r"\bK\b"):
            function(K, 0.1)


@pytest.mark.parametrize("K", [-np.eye(3), np.array([[1.0, 2.0], [2.0, 1.0]])], ids=["negative", "indefinite"])
def test_k_must_be_positive(K):
    """Test that a matrix K that is not positive semidefinite raises an error.

    The error is raised only if K + t m I has no Cholesky factor, as in this test.
    """
    for function in MATRIX_FUNCTIONS:
        with pytest.raises((ValueError, FloatingPointError), match="positive"):
            function(K, 0.1)


def test_t_must_be_positive():
    for function, t in itertools.product(MATRIX_FUNCTIONS, NOT_POSITIVE_AND_FINITE):
        with pytest.raises(ValueError, match=r"\bt\b"):
            function(np.eye(3), t)


@pytest.mark.parametrize("function", ARGUMENTS, ids=lambda f: f.__name__)
def test_each_argument_is_checked(function):
    valid, invalid = ARGUMENTS[function]
    assert function(**valid) > 0
    for name, values in invalid.items():
        for value in values:
            with pytest.raises(ValueError, match=rf"\b{name}\b"):
                function(**valid | {name: value})
