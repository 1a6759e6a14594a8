"""The subspace estimators agree with naive implementations in plain loops, with statsmodels and published results."""

import itertools
import math

import numpy as np
import pytest
from numpy.testing import assert_allclose
from statsmodels.regression import dimred

from hkrr.baselines import KDR, MAVE, OPG, PHD, SAVE, SIR, GradientKDR
from hkrr.baselines._subspace_estimator import slices
from hkrr.baselines.kernel_dimension_reduction import conditional_variance, gradient_matrix
from hkrr.baselines.local_linear_gradients import _RIDGE, _map_at, local_fits, weights
from hkrr.kernels import Gaussian
from hkrr.metrics import subspace_distance
from support import oracles_subspaces as oracles


def data(m=60, D=4, seed=0):
    """Return correlated inputs with a nonzero mean, and a target that depends on two directions.

    Every method can find at least one of the two directions.
    """
    rng = np.random.default_rng([seed, m, D])
    X = rng.normal(size=(m, D)) @ rng.normal(size=(D, D)) + 2.0 * rng.normal(size=D)
    P = oracles.standardise(X)[:, :2]
    return X, np.exp(0.5 * P[:, 0]) + P[:, 1] ** 2 + 0.1 * rng.normal(size=m)


def orthonormal(d, D, seed=0):
    return np.linalg.qr(np.random.default_rng([seed, d, D]).normal(size=(D, d)))[0].T


def assert_same_directions(found, expected):
    """Check that the rows agree up to length and sign."""
    expected = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    signs = np.sign(np.sum(found * expected, axis=1))
    assert_allclose(found, signs[:, None] * expected, atol=1e-8)


def assert_eigen(model, X, M):
    """Check that the model has the leading eigenvalues of M and, in the coordinates of X, their eigenvectors.

    M is a matrix in the whitened coordinates of `oracles.standardise(X)`. Leading eigenvalues are those with the
    largest absolute values.
    """
    values, vectors = np.linalg.eigh(M)
    order = np.argsort(-np.abs(values))[: model.n_components]
    assert_allclose(model.eigenvalues_, values[order], rtol=1e-8)
    assert_same_directions(model.components_, vectors[:, order].T @ oracles.inverse_root(X))


# ------------------------------------------------------------------------------------------------- inverse regression


@pytest.mark.parametrize("n_slices", [2, 5, 10])
def test_sir_and_save_by_loops(n_slices):
    """SIR and SAVE agree with their formulas in plain loops.

    In SAVE, the covariance of a slice of n_h rows has the divisor n_h - 1. The covariance of all m rows, which whitens
    the inputs, has the divisor m.
    """
    X, y = data(100)
    Z = oracles.standardise(X)
    # With two slices the means span a single direction.
    assert_eigen(SIR(min(3, n_slices - 1), n_slices=n_slices).fit(X, y), X, oracles.sir_matrix(Z, y, n_slices))
    assert_eigen(SAVE(3, n_slices=n_slices).fit(X, y), X, oracles.save_matrix(Z, y, n_slices, ddof=1))


def test_phd_by_loops():
    X, y = data(100)
    assert_eigen(PHD(4).fit(X, y), X, oracles.phd_matrix(oracles.standardise(X), y))


@pytest.mark.parametrize("seed", range(3))
def test_sir_of_statsmodels(seed):
    """SIR agrees with statsmodels.

    Both implementations divide by m in the covariance of the m rows, and weight slices by their numbers of rows.
    """
    X, y = data(200, 5, seed)
    other = dimred.SlicedInverseReg(y, X).fit(slice_n=20)
    model = SIR(4, n_slices=10).fit(X, y)
    assert_same_directions(model.components_, other.params.T[:4])
    assert_allclose(model.eigenvalues_, other.eigs[:4], rtol=1e-8)


@pytest.mark.parametrize("seed", range(3))
def test_save_of_statsmodels(seed):
    """SAVE agrees with statsmodels up to a factor in the eigenvalues.

    Let slice h have n_h of the m rows. In statsmodels, the weight of this slice is n_h / H, where H is the number of
    slices. Here it is n_h / m. The eigenvalues of statsmodels are therefore larger by the factor m / H = 20.
    """
    X, y = data(200, 5, seed)
    other = dimred.SlicedAverageVarianceEstimation(y, X).fit(slice_n=20)
    model = SAVE(5, n_slices=10).fit(X, y)
    assert_same_directions(model.components_, other.params.T)
    assert_allclose(model.eigenvalues_, other.eigs / 20, rtol=1e-8)


@pytest.mark.parametrize("seed", range(3))
def test_phd_of_statsmodels(seed):
    """PHD agrees with statsmodels (resid=True) up to a factor of m / (m - 1) in the eigenvalues, for m = 200 rows.

    The covariance of statsmodels has the divisor m - 1 instead of m.
    """
    X, y = data(200, 5, seed)
    other = dimred.PrincipalHessianDirections(y, X).fit(resid=True)
    model = PHD(5).fit(X, y)
    assert_same_directions(model.components_, other.params.T)
    assert_allclose(model.eigenvalues_, other.eigs * 200 / 199, rtol=1e-8)


def _mean_of_chi2(values, degrees):
    """Check that the mean of chi-squared draws is within four standard errors of the degrees of freedom."""
    assert_allclose(np.mean(values), degrees, atol=4.0 * math.sqrt(2.0 * degrees / len(values)))


def test_sir_tail_eigenvalues_are_chi2():
    """For m rows of normal inputs, m times the sum of the last p - K eigenvalues is chi-squared.

    This is theorem 5.1 of Li (1991). The chi-squared distribution has (p - K)(H - K - 1) degrees of freedom, where p is
    the number of columns, K the number of directions and H the number of slices.
    """
    rng = np.random.default_rng(0)
    found = []
    for _ in range(200):
        X = rng.normal(size=(500, 5))
        found.append(500 * SIR(5, n_slices=6).fit(X, X[:, 0] + rng.normal(size=500)).eigenvalues_[1:].sum())
    _mean_of_chi2(found, (5 - 1) * (6 - 1 - 1))


def test_phd_eigenvalues_are_chi2():
    """For a target that is independent of the normal inputs, the eigenvalues have a known distribution (Li, 1992).

    Let there be m rows and p columns. Then m times the sum of the squared eigenvalues, divided by 2 var(y), is
    chi-squared with p (p + 1) / 2 degrees of freedom.
    """
    rng = np.random.default_rng(1)
    found = []
    for _ in range(200):
        X, y = rng.normal(size=(1000, 4)), rng.normal(size=1000)
        found.append(1000 * np.sum(PHD(4).fit(X, y).eigenvalues_ ** 2) / (2.0 * y.var()))
    _mean_of_chi2(found, 4 * 5 / 2)


def test_phd_is_the_mean_hessian():
    """For normal inputs, the eigenvalues of PHD estimate those of the mean Hessian of the target, by Stein's lemma.

    The Hessian of y = x_1^2 - x_2^2/2 is diag(2, -1, 0).
    """
    X = np.random.default_rng(2).normal(size=(20000, 3))
    y = X[:, 0] ** 2 - 0.5 * X[:, 1] ** 2
    # PHD computes the mean of r z z' over the m rows, where r is the residual of a linear fit and z the whitened row.
    # Each entry of this mean has a standard deviation of at most 10/sqrt(m) = 0.07.
    assert_allclose(PHD(3).fit(X, y).eigenvalues_, [2.0, -1.0, 0.0], atol=0.25)


@pytest.mark.parametrize("levels", [1, 3, 7, 20, 10**6])
@pytest.mark.parametrize("n_slices", [1, 2, 7, 10])
def test_slices_partition_the_rows(n_slices, levels):
    """There are at most n_slices slices, sorted by the target and not empty. Equal targets are in the same slice.

    If all targets are distinct, the sizes of the slices differ by at most one row.
    """
    y = np.random.default_rng(levels).integers(levels, size=103).astype(float)
    parts = slices(y, n_slices)
    assert sorted(np.concatenate(parts)) == list(range(103))
    assert len(parts) <= n_slices
    assert all(y[a].max() < y[b].min() for a, b in itertools.pairwise(parts))
    if levels <= n_slices:
        assert len(parts) == len(np.unique(y))
    if levels == 10**6:
        assert {len(part) for part in parts} <= {103 // n_slices, 103 // n_slices + 1}
        assert len(parts) == n_slices


# --------------------------------------------------------------------------------------------------- local linear fits


@pytest.mark.parametrize("d", [1, 2, 4])
def test_weights_by_loops(d):
    Z, B = oracles.standardise(data()[0]), orthonormal(d, 4)
    assert_allclose(weights(Z, Z[:7], B), oracles.local_weights(Z, Z[:7], B), rtol=1e-9)
    assert_allclose(weights(Z, Z, None), oracles.local_weights(Z, Z, np.eye(4)), rtol=1e-9)


@pytest.mark.parametrize("d", [1, 2, 4])
def test_local_lines_by_least_squares(d):
    X, y = data()
    P = oracles.standardise(X) @ orthonormal(d, 4).T
    W = oracles.local_weights(P, P[:9], np.eye(d))
    levels, slopes = local_fits(P, y, P[:9], W)
    expected = oracles.local_lines(P, y, P[:9], W, _RIDGE)
    assert_allclose(levels, expected[0], rtol=1e-8, atol=1e-8)
    assert_allclose(slopes, expected[1], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("n_iter", [0, 1, 3])
def test_opg_by_loops(n_iter):
    X, y = data(50)
    assert_eigen(OPG(2, n_iter=n_iter).fit(X, y), X, oracles.opg_matrix(oracles.standardise(X), y, 2, n_iter, _RIDGE))


@pytest.mark.parametrize("d", [1, 2])
def test_mave_map_by_least_squares(d):
    """For given local fits, MAVE's new map solves a least-squares problem, here stacked over all rows.

    The new map has a lower penalized objective than the map B with which the local fits were made.
    """
    X, y = data(40)
    Z, B = oracles.standardise(X), orthonormal(d, 4)
    W = oracles.local_weights(Z, Z, B)
    levels, slopes = oracles.local_lines(Z @ B.T, y, Z @ B.T, W, _RIDGE)
    found = _map_at(Z, y, Z, W, levels, slopes)
    expected, rho = oracles.mave_map(Z, y, Z, W, levels, slopes, _RIDGE)
    assert_allclose(found, expected, rtol=1e-8, atol=1e-8)
    before, after = (oracles.mave_objective(Z, y, Z, W, levels, slopes, A) + rho * np.sum(A**2) for A in (B, found))
    assert after < before


def _next_map(X, y, components):
    """Return the map after one naive iteration of MAVE, in the coordinates of X: local fits, then the map."""
    Z, root = oracles.standardise(X), oracles.inverse_root(X)
    B = np.linalg.qr(np.linalg.solve(root, components.T))[0].T
    W = oracles.local_weights(Z, Z, B)
    return oracles.mave_map(Z, y, Z, W, *oracles.local_lines(Z @ B.T, y, Z @ B.T, W, _RIDGE), _RIDGE)[0] @ root


@pytest.mark.parametrize("n_iter", [1, 4])
def test_mave_iteration_by_loops(n_iter):
    """A naive iteration, started from MAVE's map after k iterations, gives the subspace of k + 1 iterations."""
    X, y = data(40, 3)
    now, then = (MAVE(2, n_iter=k).fit(X, y).components_ for k in (n_iter, n_iter + 1))
    assert subspace_distance(_next_map(X, y, now), then) < 1e-8
    assert subspace_distance(now, then) > 1e-6  # the iteration changes the map


@pytest.mark.parametrize("seed", [0, *(pytest.param(k, marks=pytest.mark.thorough) for k in (1, 2))])
def test_mave_ends_below_opg(seed):
    """The map of MAVE has a lower value of MAVE's objective than the map of OPG.

    For each of the two maps, the weights and the local fits of the objective are computed from this map.
    """
    X, y = data(100, 4, seed)
    Z, root = oracles.standardise(X), oracles.inverse_root(X)

    def value(model):
        B = np.linalg.qr(np.linalg.solve(root, model.fit(X, y).components_.T))[0].T
        W = oracles.local_weights(Z, Z, B)
        return oracles.mave_objective(Z, y, Z, W, *oracles.local_lines(Z @ B.T, y, Z @ B.T, W, _RIDGE), B)

    assert value(MAVE(2)) < value(OPG(2, n_iter=0))


@pytest.mark.parametrize("seed", [0, *(pytest.param(k, marks=pytest.mark.thorough) for k in range(1, 5))])
@pytest.mark.parametrize("method", [OPG, MAVE])
def test_local_lines_of_a_linear_target(method, seed):
    """The direction of a linear target is found with an error below 0.01.

    The error is due to the ridge penalty of the local fits. This penalty is 0.001 times the mean eigenvalue of the
    covariance of the neighbourhood. It rotates the slopes by at most 0.001 times the ratio of the mean to the smallest
    eigenvalue. With 300 rows in three dimensions, this ratio is mostly below 10.
    """
    rng = np.random.default_rng([3, seed])
    X, b = rng.normal(size=(300, 3)), rng.normal(size=(1, 3))
    assert subspace_distance(method(1).fit(X, X @ b[0]).components_, b) < 0.01


# -------------------------------------------------------------------------------------------------------------- kernels


@pytest.mark.parametrize("centre", [True, False])
@pytest.mark.parametrize("d", [1, 2, 4])
def test_conditional_variance_by_matrices(d, centre):
    """The value of KDR's objective agrees with an explicit matrix inverse, and its gradient with central differences.

    The kernel matrix of the targets is centred or not. Central differences have an error of about 1e-9. The entries of
    the gradient are about 1e-2.
    """
    X, y = data(40)
    Z, B = oracles.standardise(X), orthonormal(d, 4)
    G_y = oracles.gram(y[:, None], oracles.median_gamma(y[:, None]))
    G_y = oracles.centred(G_y) if centre else G_y
    value, gradient = conditional_variance(Z, G_y, B, Gaussian().with_gamma(0.4), 0.01)
    assert_allclose(value, oracles.kdr_objective(Z, G_y, B, 0.4, 0.01), rtol=1e-10)
    for entry in np.ndindex(B.shape):
        step = np.zeros_like(B)
        step[entry] = 1e-5
        change = [oracles.kdr_objective(Z, G_y, B + sign * step, 0.4, 0.01) for sign in (1, -1)]
        assert_allclose(gradient[entry], (change[0] - change[1]) / 2e-5, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("seed", range(3))
def test_kdr_lowers_its_objective(seed):
    """The objective of KDR after 1, 5 and 20 steps is lower than at the start, and decreases with more steps.

    KDR starts from the map of gradient-based KDR. The scale of the kernel is that of the starting map.
    """
    X, y = data(60, 4, seed)
    Z, root = oracles.standardise(X), oracles.inverse_root(X)
    G_y = oracles.centred(oracles.gram(y[:, None], oracles.median_gamma(y[:, None])))
    start = oracles.leading(gradient_matrix(Z, y, 0.01), 2)
    gamma = oracles.median_gamma(Z @ start.T)
    values = [oracles.kdr_objective(Z, G_y, start, gamma, 0.01)]
    for max_iter in (1, 5, 20):
        components = KDR(2, epsilon=0.01, max_iter=max_iter, random_state=0).fit(X, y).components_
        B = np.linalg.qr(np.linalg.solve(root, components.T))[0].T
        values.append(oracles.kdr_objective(Z, G_y, B, gamma, 0.01))
    assert values[0] > values[1] > values[2] >= values[3]


def test_kdr_ends_where_the_gradient_vanishes():
    """After fifty steps, the norm of the projected gradient is below 0.001 times the norm at the start.

    The gradient is projected on the directions that are orthogonal to the rows of the map.
    """
    X, y = data(60)
    Z, root = oracles.standardise(X), oracles.inverse_root(X)
    G_y = oracles.centred(oracles.gram(y[:, None], oracles.median_gamma(y[:, None])))
    start = oracles.leading(gradient_matrix(Z, y, 0.01), 2)
    end = np.linalg.solve(root, KDR(2, epsilon=0.01, max_iter=50, random_state=0).fit(X, y).components_.T)
    kernel, sizes = Gaussian().with_gamma(oracles.median_gamma(Z @ start.T)), []
    for B in (start, np.linalg.qr(end)[0].T):
        gradient = conditional_variance(Z, G_y, B, kernel, 0.01)[1]
        sizes.append(np.linalg.norm(gradient - gradient @ B.T @ B))
    assert sizes[1] < 1e-3 * sizes[0]


@pytest.mark.parametrize("epsilon", [1e-3, 0.1])
def test_gradient_kdr_by_loops(epsilon):
    """The matrix of gradient-based KDR, whose eigenvectors are the directions, agrees with its formula in plain loops.

    As in the paper on gradient-based KDR, the kernel matrices are not centred.
    """
    X, y = data(40)
    Z = oracles.standardise(X)
    gamma, G_y = oracles.median_gamma(Z), oracles.gram(y[:, None], oracles.median_gamma(y[:, None]))
    expected = oracles.gradient_kdr_matrix(oracles.gram(Z, gamma), G_y, gamma, Z, epsilon)
    assert_allclose(gradient_matrix(Z, y, epsilon), expected, rtol=1e-8, atol=1e-8 * np.abs(expected).max())
    assert_eigen(GradientKDR(4, epsilon=epsilon).fit(X, y), X, expected)


def test_gradient_kdr_of_mogp_emulator():
    """The result agrees with the example in the documentation of the class gKDR of the package mogp_emulator.

    This class is a port of the code of the authors of gradient-based KDR.
    """
    X, y = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]), np.array([0.0, 1.0, 5.0, 6.0])
    found = GradientKDR(1, epsilon=1e-8).fit(X, y).transform([[0.5, 0.5]])
    assert_allclose(found, [[0.60092477]], atol=5e-9)  # eight digits are printed
