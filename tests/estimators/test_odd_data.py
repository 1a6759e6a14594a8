"""Tests of the models learned from unusual data: one column, as many directions as columns, few rows, repeated rows."""

import warnings
from contextlib import suppress

import numpy as np
import pytest
from numpy.testing import assert_allclose

from hkrr import FitError, HKRRWarning, HyperKernelRidge, HyperKernelRidgeCV
from support.stress_check import share_of_error

both_kernels = pytest.mark.parametrize(
    ("kernel", "seed"),
    [("gaussian", 0), *(pytest.param(*each, marks=pytest.mark.thorough) for each in [("gaussian", 1), ("auto", 0)])],
)


def _fit(X, y, weight=None, **options):
    return HyperKernelRidgeCV(**{"n_init": 2, "random_state": 0} | options).fit(X, y, weight)


@both_kernels
def test_one_column(kernel, seed):
    """Test that, with one column, one direction is selected and its scale is learned well enough for R2 > 0.95."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(300, 1))
    z = np.sin(3.0 * X[:, 0])
    found = _fit(X[:100], z[:100] + 0.1 * rng.normal(size=100), kernel=kernel)
    assert (found.n_components_, found.components_.shape) == (1, (1, 1))
    assert found.score(X[100:], z[100:]) > 0.95


@both_kernels
def test_as_many_directions_as_columns(kernel, seed):
    """Test that three directions are used for a product of three columns, with n_components="auto" and with 3."""
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


@pytest.mark.filterwarnings("ignore::hkrr.HKRRWarning")  # one target is pure noise
@both_kernels
def test_fewer_rows_than_columns(kernel, seed):
    """Test the mean squared error on new rows of a fit to 30 rows of 60 columns.

    It is at most 0.9 times the variance of y if one column has a strong effect, and at most 1.3 times the variance if y
    is pure noise.
    """
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(1030, 60))
    for signal, most in ((5.0 * X[:, 0] + X[:, 1:6].sum(axis=1), 0.9), (np.zeros(1030), 1.3)):
        y = signal + rng.normal(size=1030)
        found = _fit(X[:30], y[:30], kernel=kernel)
        assert np.mean((found.predict(X[30:]) - y[30:]) ** 2) < most * np.var(y[30:])


@pytest.mark.filterwarnings("ignore::hkrr.PoorFitWarning")  # the model explains nothing
@both_kernels
def test_identical_rows_predict_the_mean(kernel, seed):
    y = np.random.default_rng(seed).normal(size=40)
    found = _fit(np.full((40, 3), 0.7), y, kernel=kernel)
    assert_allclose(found.predict(np.random.default_rng(1).normal(size=(5, 3))), np.mean(y), rtol=1e-9)


@both_kernels
def test_repeated_inputs_are_averaged(kernel, seed):
    """Test that predictions are close to the mean if each of thirty inputs occurs with ten noisy targets."""
    rng = np.random.default_rng(seed)
    X = np.repeat(rng.normal(size=(30, 2)), 10, axis=0)
    z = np.sin(2.0 * X[:, 0])
    found = _fit(X, z + 0.5 * rng.normal(size=300), kernel=kernel)
    assert np.mean((found.predict(X) - z) ** 2) < 0.05  # the mean of ten targets of variance 0.25 has variance 0.025


@pytest.mark.parametrize("criterion", ["training", "evidence", "loo"])
def test_copies_of_all_rows_do_not_change_the_model(criterion):
    """Test that repeating all rows two or three times changes lambda and predictions by at most 1e-6.

    The problem is well conditioned, so that rounding errors stay small.
    """
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
    """Test that predictions are finite if third moments of X and y overflow, although their squares do not.

    A generated test case found this problem.
    """
    X = 1e123 * np.array([[1.0, -1.0, 4.9], [2.8, 10.0, 7.3], [0.1, 3.0, -2.0]])
    y = 1e63 * np.array([-6.2, 0.4, 1.0])
    model = HyperKernelRidgeCV(n_components=1, n_init=1, random_state=0, scale_features=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HKRRWarning)
        assert np.all(np.isfinite(model.fit(X, y).predict(X)))


@pytest.mark.parametrize("seed", range(12))
def test_a_fit_destroyed_by_rounding_is_refused(seed):
    """Test that a fit whose predictions are worse than the mean of y raises an error.

    All inputs are identical, and the targets differ only in their last four digits. The coefficients are 1e13 times
    larger than the targets and have to cancel.
    """
    X, y = np.zeros((3, 1)), 1e12 + np.random.default_rng(seed).normal(size=3)
    model = HyperKernelRidge(1, kernel="anova", reg_lambda=1e-14, n_init=1, max_iter=4, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HKRRWarning)
        with suppress(FitError):  # an error is the expected outcome if the fit is worse than the mean
            assert share_of_error(model.fit(X, y).predict(X), y, None) <= 1.0 + 1e-6
