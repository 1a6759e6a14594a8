"""Data at the edges, and what must be learned there: one column, all directions, few rows, equal rows, copies."""

import warnings
from contextlib import suppress

import numpy as np
import pytest
from numpy.testing import assert_allclose

from hkrr import FitError, HKRRWarning, HyperKernelRidge, HyperKernelRidgeCV
from stress_check import share_of_error

both_kernels = pytest.mark.parametrize(
    ("kernel", "seed"), [("gaussian", 0), pytest.param("gaussian", 1, marks=pytest.mark.thorough), ("auto", 0)]
)


def _fit(X, y, weight=None, **options):
    return HyperKernelRidgeCV(**{"n_init": 2, "random_state": 0} | options).fit(X, y, weight)


@both_kernels
def test_one_column(kernel, seed):
    """There is one direction, and its scale is learned."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(300, 1))
    z = np.sin(3.0 * X[:, 0])
    found = _fit(X[:100], z[:100] + 0.1 * rng.normal(size=100), kernel=kernel)
    assert (found.n_components_, found.components_.shape) == (1, (1, 1))
    assert found.score(X[100:], z[100:]) > 0.95


@both_kernels
def test_as_many_directions_as_columns(kernel, seed):
    """Asked for, or found: a product of three columns needs all of them, in whatever shape."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, size=(650, 3))
    z = np.prod(X, axis=1)
    y = z[:150] + 0.02 * rng.normal(size=150)
    for n_components in ("auto", 3):
        found = _fit(X[:150], y, kernel=kernel, n_components=n_components)
        assert found.components_.shape == (3, 3)
        assert np.linalg.matrix_rank(found.components_) == 3
        assert found.score(X[150:], z[150:]) > 0.9
    assert found.map_shape_ == "full"


@pytest.mark.filterwarnings("ignore::hkrr.HKRRWarning")  # of the target that is noise
@both_kernels
def test_fewer_rows_than_columns(kernel, seed):
    """A column of 60 that 30 rows show is used; and where there is nothing but noise, little more is made of it."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(1030, 60))
    for signal, most in ((5.0 * X[:, 0] + X[:, 1:6].sum(axis=1), 0.9), (np.zeros(1030), 1.3)):
        y = signal + rng.normal(size=1030)
        found = _fit(X[:30], y[:30], kernel=kernel)
        assert np.mean((found.predict(X[30:]) - y[30:]) ** 2) < most * np.var(y[30:])


@pytest.mark.filterwarnings("ignore::hkrr.PoorFitWarning")  # and that is said
@both_kernels
def test_rows_that_are_all_equal_have_their_mean_predicted(kernel, seed):
    y = np.random.default_rng(seed).normal(size=40)
    found = _fit(np.full((40, 3), 0.7), y, kernel=kernel)
    assert_allclose(found.predict(np.random.default_rng(1).normal(size=(5, 3))), np.mean(y), rtol=1e-9)


@both_kernels
def test_repeated_inputs_with_targets_of_their_own_tell_of_the_noise(kernel, seed):
    """Ten targets for each of thirty x: they are averaged, not followed."""
    rng = np.random.default_rng(seed)
    X = np.repeat(rng.normal(size=(30, 2)), 10, axis=0)
    z = np.sin(2.0 * X[:, 0])
    found = _fit(X, z + 0.5 * rng.normal(size=300), kernel=kernel)
    assert np.mean((found.predict(X) - z) ** 2) < 0.05  # ten of variance 0.25 have means of variance 0.025


@pytest.mark.parametrize("criterion", ["training", "evidence", "loo"])
def test_copies_of_all_rows_are_the_rows(criterion):
    """Twice, or three times, whatever the criterion; there is a regular matrix and one start to amplify no rounding."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = np.sin(2.0 * X[:, 0]) + 0.2 * rng.normal(size=60)
    reg_lambda = 0.01 if criterion == "training" else "auto"
    options = {"n_centers": "all", "kernel": "matern32", "init": np.eye(2, 3) + 0.1, "max_iter": 5}
    once, twice, thrice = (
        HyperKernelRidge(criterion=criterion, reg_lambda=reg_lambda, **options).fit(np.tile(X, (k, 1)), np.tile(y, k))
        for k in (1, 2, 3)
    )
    for copies in (twice, thrice):
        assert copies.reg_lambda_ == pytest.approx(once.reg_lambda_, rel=1e-6)
        assert_allclose(copies.predict(X), once.predict(X), rtol=0, atol=1e-6)


def test_products_of_three_that_overflow():
    """Moments of X, X and y, of numbers whose squares are numbers: found by generated cases."""
    X = 1e123 * np.array([[1.0, -1.0, 4.9], [2.8, 10.0, 7.3], [0.1, 3.0, -2.0]])
    y = 1e63 * np.array([-6.2, 0.4, 1.0])
    model = HyperKernelRidgeCV(n_components=1, n_init=1, random_state=0, scale_features=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HKRRWarning)
        assert np.all(np.isfinite(model.fit(X, y).predict(X)))


@pytest.mark.parametrize("seed", range(12))
def test_what_rounding_makes_worse_than_the_mean_is_no_model(seed):
    """One x, and targets that differ in their last four digits: coefficients of 1e13 times those cancel, or do not."""
    X, y = np.zeros((3, 1)), 1e12 + np.random.default_rng(seed).normal(size=3)
    model = HyperKernelRidge(1, kernel="anova", reg_lambda=1e-14, n_init=1, max_iter=4, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HKRRWarning)
        with suppress(FitError):  # which is what the others of these should be
            assert share_of_error(model.fit(X, y).predict(X), y, None) <= 1.0 + 1e-6
