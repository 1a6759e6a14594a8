"""Tests of robust noise: leave-one-out errors, densities and weights against naive oracles, and fits with outliers.

Robust noise has a Student-t distribution, whose heavy tails allow for outliers. It is used if the errors have heavy
tails. Row i then gets a weight omega_i, which is small for an outlier.
"""

import warnings
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

import hkrr
from hkrr import HyperKernelRidgeCV
from hkrr._storage.safetensors_format import pack
from hkrr.estimators.search import robust_noise, search_stages
from hkrr.estimators.search.robust_noise import (
    OUTLIER_WEIGHT,
    Errors,
    can_have_outliers,
    find_outliers,
    leave_one_out_errors,
    plain_weights,
    student_weights,
    target_errors,
)
from hkrr.kernels import Gaussian
from hkrr.rows import InMemoryRows
from support import oracles_robust_noise as oracles
from support.mutated_model_files import parts
from support.oracles import gram, project
from support.random_problems import ONE_GAMMA, case_id
from support.stopped_fits import Broken, assert_same, breaking

# ------------------------------------------------------------------------------------------------ leave-one-out errors

MAPS = {"full": np.array([[1.0, 0.5, -0.3], [-0.2, 0.8, 1.0]]), "diagonal": np.array([1.0, 0.4, 0.1])}


def _rows(T=1, weighted=False, centered=True, n=25):
    """Return n rows with an outlier, their arrays X, Y and w, and random weights omega of robust noise."""
    rng = np.random.default_rng([n, T])
    X = rng.normal(size=(n, 3))
    Y = np.sin(2.0 * X[:, :T]) + 0.3 * rng.normal(size=(n, T)) + 3.0
    Y[4] += 20.0
    w, omega = rng.uniform(0.5, 2.0, size=n), rng.uniform(0.1, 1.3, size=n)
    w = w if weighted else np.ones(n)
    y_offset = np.average(Y, axis=0, weights=w) if centered else None
    return InMemoryRows(X, Y, w if weighted else None, y_offset=y_offset), X, Y, w, omega


@pytest.mark.parametrize("case", ONE_GAMMA, ids=case_id)
@pytest.mark.parametrize("shape", MAPS)
def test_leave_one_out_errors_of_all_kernels(case, shape):
    rows, X, Y, w, omega = _rows(T=2, weighted=True)
    B = MAPS[shape]
    found = leave_one_out_errors(rows, omega, case.kernel, B, 0.2, np.random.RandomState(0))
    dense = B if B.ndim == 2 else np.diag(B)
    squares, logs = oracles.leave_one_out(case.value, X, Y, w, omega, dense, 0.2, centered=True)
    assert_allclose(found.squares, squares, rtol=1e-8, atol=1e-10)
    assert_allclose(found.log_variance, logs, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("T", [1, 2])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("robust", [False, True])
@pytest.mark.parametrize("centered", [False, True])
@pytest.mark.parametrize("nu", [1e-3, 1.0])
def test_leave_one_out_errors(T, weighted, robust, centered, nu):
    rows, X, Y, w, omega = _rows(T, weighted, centered)
    case = ONE_GAMMA[0]
    found = leave_one_out_errors(
        rows, omega if robust else None, case.kernel, MAPS["full"], nu, np.random.RandomState(0)
    )
    omega = omega if robust else np.ones(len(Y))
    squares, logs = oracles.leave_one_out(case.value, X, Y, w, omega, MAPS["full"], nu, centered)
    # The condition number of K + diag(nu / w) is about 25 / nu.
    assert_allclose(found.squares, squares, rtol=1e-8, atol=1e-10)
    assert_allclose(found.log_variance, logs, rtol=1e-8, atol=1e-10)


def test_the_errors_of_other_rows_are_prediction_errors(monkeypatch):
    """Test the errors of a table with more rows than the limit for leave-one-out errors, which is 10 in this test.

    Ten of the 25 rows are the centers and have leave-one-out errors. The errors of all other rows are errors of the
    predictions by these ten rows.
    """
    monkeypatch.setattr(robust_noise, "_EXACT_ROWS", 10)
    rows, X, Y, w, omega = _rows(T=2, weighted=True)
    case, nu = ONE_GAMMA[0], 0.2
    found = leave_one_out_errors(rows, omega, case.kernel, MAPS["full"], nu, np.random.RandomState(3))
    some = np.sort(rows.draw(10, np.random.RandomState(3)))
    weights, centered = oracles.robust_weights_and_targets(Y, w, omega, centered=True)
    P = project(X, MAPS["full"])
    variances = []
    for i in some:
        others = [j for j in some if j != i]
        noise = nu / weights[others]
        mean, variance = oracles.mean_and_variance(case.value, P[others], centered[others], noise, P[i])
        variances.append(variance)
        total = variance + nu * omega[i] / weights[i]
        assert_allclose(found.squares[i], (centered[i] - mean) ** 2 / total, rtol=1e-8)
        assert_allclose(found.log_variance[i], np.log(total), rtol=1e-8)
    alpha = np.linalg.solve(gram(case.value, P[some], P[some]) + np.diag(nu / weights[some]), centered[some])
    for i in np.setdiff1d(np.arange(len(X)), some):
        total = np.mean(variances) + nu * omega[i] / weights[i]
        error = centered[i] - gram(case.value, P[[i]], P[some])[0] @ alpha
        assert_allclose(found.squares[i], error**2 / total, rtol=1e-8)
        assert_allclose(found.log_variance[i], np.log(total), rtol=1e-8)


def test_errors_of_a_constant_function():
    rows, _, Y, w, _ = _rows(T=2, weighted=True)
    found, median = target_errors(rows), np.median(Y, axis=0)
    for i in range(len(Y)):
        assert_allclose(found.squares[i], w[i] * (Y[i] - median) ** 2, rtol=1e-12)
        assert_allclose(found.log_variance[i], -np.log(w[i]), rtol=1e-12, atol=1e-15)


# ------------------------------------------------------------------------------------------- densities, scales, weights


def _errors(T, n=200, seed=0):
    """Return n errors with heavy tails for each of T targets. The targets have different scales."""
    rng = np.random.default_rng([seed, T, n])
    squares = (rng.standard_t(3, size=(n, T)) * np.logspace(0, 2, T)) ** 2
    return Errors(squares, rng.normal(size=n))


@pytest.mark.parametrize("T", [1, 2, 3])
def test_densities(T):
    errors = _errors(T)
    squares, logs = errors.squares, errors.log_variance
    assert errors.student_density == pytest.approx(oracles.student_log_density(squares, errors.scale, logs), rel=1e-10)
    normal = oracles.normal_log_density(squares, np.mean(squares, axis=0), logs)
    assert errors.normal_density == pytest.approx(normal, rel=1e-10)
    assert errors.density == max(errors.student_density, errors.normal_density)
    if T == 1:
        residuals, deviation = np.sqrt(squares[:, 0]), np.sqrt(errors.scale[0])
        one = stats.t.logpdf(residuals, df=4, scale=deviation).mean() - 0.5 * np.mean(logs)
        assert errors.student_density == pytest.approx(one, rel=1e-10)


@pytest.mark.parametrize("T", [1, 2])
def test_the_scale_maximizes_the_likelihood(T):
    errors = _errors(T, n=60)
    assert_allclose(errors.scale, oracles.best_student_scale(errors.squares), rtol=1e-4)


def test_the_scale_is_bounded_below():
    """Test that the scale is positive, and the results finite, if all errors or more than half of them are zero."""
    for n in (20, 2000):
        zero = Errors(np.zeros((n, 1)), np.zeros(n))
        assert zero.scale > 0
        assert np.isfinite(zero.density)
        assert not zero.heavy_tailed
    squares = np.r_[np.zeros(12), np.ones(8)][:, None]
    assert np.all(np.isfinite(Errors(squares, np.zeros(20)).weights))


@pytest.mark.parametrize("T", [1, 2])
def test_weights(T):
    errors = _errors(T)
    expected = [
        (4.0 + T) / (4.0 + sum(z / q for z, q in zip(one, errors.scale, strict=True))) for one in errors.squares
    ]
    assert_allclose(errors.weights, expected, rtol=1e-12)
    assert_allclose(student_weights(errors.squares, errors.scale), expected, rtol=1e-12)
    # The best scale is a fixed point: the mean of the weighted squares is equal to it.
    assert_allclose(np.mean(errors.weights[:, None] * errors.squares, axis=0), errors.scale, rtol=1e-6)


def _of(residuals):
    return Errors(np.reshape(residuals, (len(residuals), -1)) ** 2, np.zeros(len(residuals)))


@pytest.mark.parametrize("n", [20, 100, 400, pytest.param(2000, marks=pytest.mark.thorough)])
def test_normal_errors_are_not_heavy_tailed(n):
    rng = np.random.default_rng(n)
    assert not any(_of(rng.normal(size=(n, T))).heavy_tailed for T in (1, 2, 3) for _ in range(100))


def test_heavy_tails():
    rng = np.random.default_rng(0)
    for _ in range(20):
        one = rng.normal(size=400)
        assert not _of(one).heavy_tailed
        one[17] = 50.0
        assert _of(one).heavy_tailed
        assert _of(1e-9 * one).heavy_tailed  # the scale does not matter
        assert _of(rng.standard_t(1, size=400)).heavy_tailed
        assert _of(np.column_stack([rng.normal(size=400), one])).heavy_tailed


def test_many_outliers_are_not_heavy_tails():
    rng = np.random.default_rng(0)
    for share, expected in ((0.08, True), (0.13, False)):
        for _ in range(20):
            one = rng.normal(size=400)
            one[: int(share * 400)] *= 1000.0
            assert _of(one).heavy_tailed == expected


def test_few_rows_are_not_heavy_tailed():
    """Test that errors of five rows with one outlier do not count as heavy-tailed.

    For this, the Student-t distribution must increase the log density of the errors, summed over the rows, by 10 nats.
    """
    rng = np.random.default_rng(0)
    for _ in range(100):
        assert not _of(np.r_[rng.normal(size=4), 1e3]).heavy_tailed


def test_find_outliers_are_sorted():
    residuals = np.random.default_rng(0).normal(size=(200, 1))
    residuals[[3, 90, 20]] = [[40.0], [-1e6], [300.0]]
    assert find_outliers(residuals, np.ones(200)) == [90, 20, 3]
    residuals[[3, 90, 20]] = 0.0
    assert find_outliers(residuals, np.ones(200)) == []


def test_find_outliers_with_weights():
    """Test that rows with zero weight are no outliers, and that residuals are judged relative to the noise of the row.

    The noise variance of a row is proportional to one over its weight.
    """
    rng = np.random.default_rng(0)
    weight = np.r_[np.zeros(150), rng.uniform(0.5, 2.0, size=148), 1e-4, 1e4]
    residuals = rng.normal(size=(300, 1)) / np.sqrt(np.where(weight > 0, weight, 1e-6))[:, None]
    assert find_outliers(residuals, weight) == []
    residuals[200], residuals[299] = 50.0, 0.3
    assert find_outliers(residuals, weight) == [200, 299]


def test_one_value_of_most_targets_is_no_noise():
    x = np.arange(10.0)

    def check(*targets):
        return not can_have_outliers(InMemoryRows(np.zeros((10, 1)), np.column_stack(targets)))

    zeros = np.where(x < 6, 0.0, x)
    assert check(zeros)
    assert check(zeros, np.ones(10))
    assert not check(x, zeros)
    assert not check(x)
    assert not check(np.where(x < 5, 0.0, x))
    assert not check(np.where((x < 3) | (x > 7), x, 4.0))
    assert check(np.ones(10))


def test_a_few_rows_with_all_the_weight_cannot_have_outliers():
    X, y, weight = np.zeros((30, 1)), np.arange(30.0), np.full(30, 1e-9)
    weight[:5] = 1.0
    assert not can_have_outliers(InMemoryRows(X, y, weight))
    assert can_have_outliers(InMemoryRows(X, y, np.full(30, 1e-9)))


@pytest.mark.parametrize("n", [300, 1500])
def test_plain_weights_are_small_for_outliers(n):
    """Test that the weights from which a robust search starts are small at outliers, and close to 1 at other rows.

    The targets have large and moderate errors at six rows. With 1,500 rows, only a sample of the rows is used to
    compute the weights.
    """
    rng = np.random.default_rng(n)
    X = rng.normal(size=(n, 3))
    y = np.sin(X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=n)
    bad = rng.choice(n, 6, replace=False)
    y[bad] += [1e6, -300.0, 40.0, -30.0, 20.0, 20.0]
    rows = InMemoryRows(X, y, y_offset=np.array([y.mean()]))
    omega, density = plain_weights(rows, Gaussian(gamma=1.0), np.random.RandomState(0), np.inf)
    assert np.isfinite(density)
    assert np.all(omega[bad] < OUTLIER_WEIGHT)
    good = np.setdiff1d(np.arange(n), bad)
    assert np.median(omega[good]) > 0.8
    assert np.mean(omega[good] < OUTLIER_WEIGHT) < 0.02


# ----------------------------------------------------------------------------------------------------------------- fits


@cache
def _problem(n=300, D=6, seed=0):
    """Return X and y, and new rows with their targets without noise.

    The function is f(x) = sin(2 w'x) + x_0 with a random unit vector w. The noise has the standard deviation 0.05.
    """
    rng = np.random.default_rng([n, D, seed])
    w = rng.normal(size=D)
    w /= np.linalg.norm(w)
    X, X_new = rng.normal(size=(n, D)), rng.normal(size=(1000, D))
    f = [np.sin(2.0 * Z @ w) + Z[:, 0] for Z in (X, X_new)]
    return X, f[0] + 0.05 * rng.normal(size=n), X_new, f[1]


@cache
def _small(seed=0):
    """Return the same four arrays as `_problem`, for f(x) = sin(x_0 + x_1) and 150 rows.

    A fit to these rows takes less than a second.
    """
    rng = np.random.default_rng(seed)
    X, X_new = rng.normal(size=(150, 3)), rng.normal(size=(500, 3))
    y = np.sin(X[:, 0] + X[:, 1]) + 0.05 * rng.normal(size=150)
    return X, y, X_new, np.sin(X_new[:, 0] + X_new[:, 1])


def _model(**options):
    return HyperKernelRidgeCV(**{"n_init": 1, "random_state": 0, **options})


def _with(y, **errors):
    """Return a copy of y with errors added. For example, ``r3=50.0`` adds 50 to row 3."""
    y = y.copy()
    for row, error in errors.items():
        y[int(row[1:])] += error
    return y


def _r2(predicted, f):
    return np.min(1.0 - np.mean((predicted - f) ** 2, axis=0) / np.var(f, axis=0))


def _scattered(y, seed=0):
    """Return y with errors N(0, 20^2) at 5% of the rows, and the indices and errors of these rows."""
    rng = np.random.default_rng(seed)
    rows, errors = rng.choice(len(y), len(y) // 20, replace=False), rng.normal(0.0, 20.0, size=len(y) // 20)
    y = y.copy()
    y[rows] += errors
    return y, rows, errors


@cache
def _never_heavy_tailed():
    """Return the fit to the small problem without outliers, with the test for heavy tails switched off."""
    X, y, *_ = _small()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Errors, "heavy_tailed", property(lambda errors: False))
        return _model().fit(X, y)


@cache
def _robust():
    """Return the fit to the small problem with outliers at rows 3 and 7."""
    X, y, *_ = _small()
    return _model().fit(X, _with(y, r3=50.0, r7=-1e6))


@pytest.mark.parametrize("error", [50.0, pytest.param(1e6, marks=pytest.mark.thorough)])
def test_one_outlier(error):
    X, y, X_new, f = _problem()
    model = _model().fit(X, _with(y, r17=error))
    # Without an outlier, R2 is 0.99 or more. Without robust noise, R2 is negative.
    assert _r2(model.predict(X_new), f) > 0.98
    assert (model.diagnostics_.outliers, model.diagnostics_.n_outliers) == ((17,), 1)


def test_scattered_outliers():
    X, y, X_new, f = _problem()
    y, rows, errors = _scattered(y)
    model = _model().fit(X, y)
    assert _r2(model.predict(X_new), f) > 0.98
    found = model.diagnostics_
    # Errors of less than about 9 standard deviations of the noise are no outliers.
    assert set(rows[abs(errors) > 1.0]) <= set(found.outliers) <= set(rows)
    assert found.n_outliers == len(found.outliers)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(1, 4))
def test_outliers_of_several_problems(seed):
    """Test that all outliers are found, except at rows that are the outermost in a latent coordinate.

    There, no other row shows that the function does not pass through the outlier. With seed 1, the target of such a row
    has an error of -8.4. This outlier is not found. Nevertheless, R2 is above 0.99.
    """
    X, y, X_new, f = _problem(seed=seed)
    clean = _r2(_model().fit(X, y).predict(X_new), f)
    for error in (50.0, 1e6):
        model = _model().fit(X, _with(y, r17=error))
        assert _r2(model.predict(X_new), f) > min(0.98, clean - 0.01)
        assert model.diagnostics_.outliers == (17,)
    y, rows, errors = _scattered(y, seed)
    model = _model().fit(X, y)
    assert _r2(model.predict(X_new), f) > min(0.98, clean - 0.01)
    assert set(model.diagnostics_.outliers) <= set(rows)
    latent = np.abs(model.transform(X))
    for missed in set(rows[abs(errors) > 1.0]) - set(model.diagnostics_.outliers):
        assert np.any(latent[missed] == np.max(latent, axis=0))


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(3))
def test_one_gross_error_among_many_rows(seed):
    """Test that a gross error in one of 2,000 rows is found, and hardly influences the fit.

    Only a sample of the rows is used for the first weights. If the row with the gross error is not in the sample, it
    must not influence the weights of the sample.
    """
    rng = np.random.default_rng(seed)
    X, X_new = rng.normal(size=(2000, 6)), rng.normal(size=(500, 6))
    y = np.sin(X[:, 0] + X[:, 1]) + 0.05 * rng.normal(size=2000)
    row = int(rng.integers(2000))
    y[row] = 1e6
    model = _model().fit(X, y)
    assert _r2(model.predict(X_new), np.sin(X_new[:, 0] + X_new[:, 1])) > 0.99
    assert model.diagnostics_.outliers == (row,)


def test_clean_data():
    """Test that, without outliers, the predictions are bitwise those of a model without the test for heavy tails."""
    X, y, X_new, f = _small()
    model = _model().fit(X, y)
    assert _r2(model.predict(X_new), f) > 0.99
    assert (model.diagnostics_.outliers, model.diagnostics_.n_outliers) == ((), 0)
    assert_array_equal(model.predict(X_new), _never_heavy_tailed().predict(X_new))
    assert "outlier" not in str(model.diagnostics_)
    assert "outlier" not in str(model.summary())


def test_without_robust_noise_an_outlier_spoils_the_fit(monkeypatch):
    """Test that the planted outliers matter: a fit with normal noise fails."""
    X, y, X_new, f = _small()
    monkeypatch.setattr(Errors, "heavy_tailed", property(lambda errors: False))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hkrr.HKRRWarning)
        model = _model().fit(X, _with(y, r3=50.0, r7=-1e6))
    assert _r2(model.predict(X_new), f) < 0.0


def test_outliers_of_the_small_problem():
    _, _, X_new, f = _small()
    model = _robust()
    assert _r2(model.predict(X_new), f) > 0.99
    assert model.diagnostics_.outliers == (7, 3)  # the farthest first
    assert _r2(model.predict(X_new), _never_heavy_tailed().predict(X_new)) > 0.99


def test_outliers_are_indices_of_the_given_rows():
    """Test that `diagnostics_.outliers` contains indices of the given rows, although the fit uses other rows.

    The fit merges copies of rows, and drops rows with zero weight. The targets of the dropped rows do not count.
    """
    X, y, X_new, f = _small()
    y = _with(y, r3=50.0, r11=60.0)
    weight = np.ones(150)
    weight[[11, 20, 40]] = 0.0
    index = np.r_[np.arange(150), [5, 5, 3, 9, 9, 9, 11]]
    index = index[np.random.default_rng(0).permutation(len(index))]
    model = _model().fit(X[index], y[index], weight[index])
    assert sorted(model.diagnostics_.outliers) == np.flatnonzero(index == 3).tolist()
    assert _r2(model.predict(X_new), f) > 0.99


def test_rows_with_zero_weight_do_not_hide_outliers():
    """Test that an outlier is found if most rows have zero weight and meaningless targets."""
    X, y, X_new, f = _small()
    y = _with(y, r3=50.0)
    rng = np.random.default_rng(0)
    X, y = np.vstack([X, rng.normal(size=(300, 3))]), np.r_[y, 1e3 * rng.normal(size=300)]
    model = _model().fit(X, y, np.r_[np.ones(150), np.zeros(300)])
    assert model.diagnostics_.outliers == (3,)
    assert _r2(model.predict(X_new), f) > 0.99


def test_a_clean_target_with_heavy_tails_is_signal():
    """Test that large values of the target are not outliers if the function explains them.

    The target is exp(x_0 + x_1) with normal noise. Its largest values are far from the median.
    """
    X, _, X_new, _ = _small()
    y = np.exp(X[:, 0] + X[:, 1]) + 0.05 * np.random.default_rng(0).normal(size=150)
    assert target_errors(InMemoryRows(X, y)).heavy_tailed
    model = _model().fit(X, y)
    assert model.diagnostics_.n_outliers == 0
    assert _r2(model.predict(X_new), np.exp(X_new[:, 0] + X_new[:, 1])) > 0.98


@pytest.mark.thorough
@pytest.mark.xfail(reason="errors of the fit at the edge of noise-free data are reported as outliers", strict=True)
def test_a_target_without_noise_has_no_outliers():
    X, _, X_new, _ = _small()
    model = _model().fit(X, np.exp(2.0 * X[:, 0] + X[:, 1]))
    assert _r2(model.predict(X_new), np.exp(2.0 * X_new[:, 0] + X_new[:, 1])) > 0.9
    assert model.diagnostics_.n_outliers == 0


def test_zero_inflated_targets():
    X, _, X_new, _ = _small()

    def f(Z):
        return np.maximum(Z[:, 0] + Z[:, 1] - 0.75, 0.0)

    y = f(X)
    assert 0.6 < np.mean(y == 0.0) < 0.8
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hkrr.HKRRWarning)
        model = _model().fit(X, y)
    assert model.diagnostics_.n_outliers == 0
    assert _r2(model.predict(X_new), f(X_new)) > 0.9


@pytest.mark.parametrize("options", [{}, pytest.param({"fit_intercept": False}, marks=pytest.mark.thorough)])
def test_several_targets(options):
    """Test that outliers of several targets are found, in the first target only or in both targets."""
    X, y, X_new, f = _small()
    Y = np.column_stack([y, 0.5 * X[:, 0] ** 2 + 0.05 * np.random.default_rng(1).normal(size=150)])
    Y[[3, 9], 0] += [50.0, -60.0]
    Y[20] += 1e4
    model = _model(**options).fit(X, Y)
    assert model.diagnostics_.outliers == (20, 9, 3)
    assert _r2(model.predict(X_new), np.column_stack([f, 0.5 * X_new[:, 0] ** 2])) > 0.95


def test_without_an_intercept():
    X, y, X_new, f = _small()
    model = _model(fit_intercept=False).fit(X, _with(y, r3=50.0))
    assert model.intercept_ == 0.0
    assert model.diagnostics_.outliers == (3,)
    assert _r2(model.predict(X_new), f) > 0.99


def test_the_intercept_is_not_the_mean_of_the_outliers():
    """Test that the intercept is a weighted mean of y in which outliers hardly count."""
    _, y, *_ = _small()
    model = _robust()
    assert model.intercept_ == pytest.approx(np.mean(y), abs=0.2)  # the mean with the outliers is below -6000


def test_leave_one_out_criterion():
    X, y, X_new, f = _small()
    model = _model(criterion="loo").fit(X, _with(y, r3=50.0))
    assert model.diagnostics_.outliers == (3,)
    assert _r2(model.predict(X_new), f) > 0.98


@pytest.mark.thorough
def test_automatic_kernel():
    X, y, X_new, f = _problem()
    model = _model(kernel="auto").fit(X, _with(y, r17=50.0))
    assert model.diagnostics_.outliers == (17,)
    assert _r2(model.predict(X_new), f) > 0.98


# ------------------------------------------------------------------------------------ interruptions, checkpoints, files


@pytest.mark.parametrize("n_found", [1, pytest.param(2, marks=pytest.mark.thorough)])
def test_a_callback_stops_a_robust_search(n_found):
    """Test that the model of a search that is stopped early has the weights of robust noise.

    Its R2 is high, although the search stops at one of its first maps, which have more directions than needed.
    """
    X, y, X_new, f = _small()
    looks = []

    def stop(state):
        if state.n_components is not None:
            looks.append(state.predict(X_new))
        return state.n_found >= n_found

    model = _model(callbacks=[stop]).fit(X, _with(y, r3=50.0, r7=-1e6))
    assert model.result_.reason == "callback"
    assert _r2(model.predict(X_new), f) > 0.9
    assert model.diagnostics_.outliers == (7, 3)
    assert_allclose(looks[-1], model.predict(X_new), rtol=0.0, atol=1e-6)


def test_interruption_of_a_robust_search(tmp_path, monkeypatch):
    X, y, X_new, f = _small()
    model = _model(checkpoint=tmp_path / "fit.checkpoint")
    with monkeypatch.context() as patch:
        patch.setattr(search_stages, "rescale", breaking(search_stages.rescale, KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt, match="the best model so far"):
            model.fit(X, _with(y, r3=50.0, r7=-1e6))
    assert _r2(model.predict(X_new), f) > 0.9


@pytest.mark.thorough
@pytest.mark.parametrize("function", ["polish", "rescale", "leave_one_out_errors", "compare_with_plain"])
@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_robust_search_resumes(tmp_path, monkeypatch, function, at):
    X, y, X_new, _ = _small()
    y, path = _with(y, r3=50.0, r7=-1e6), tmp_path / "fit.checkpoint"
    with monkeypatch.context() as patch:
        patch.setattr(search_stages, function, breaking(getattr(search_stages, function), Broken(), at))
        try:
            _model(checkpoint=path, checkpoint_every=0).fit(X, y)
        except Broken:
            pass
        else:
            assert at > 1  # the fit called the function fewer than `at` times
    found, expected = _model(checkpoint=path).fit(X, y), _robust()
    assert_same(found, expected)
    assert_array_equal(found.predict(X_new), expected.predict(X_new))
    assert found.diagnostics_ == expected.diagnostics_


def test_texts_name_the_outliers():
    model = _robust()
    assert "2 (rows 7, 3), with small weights" in str(model.diagnostics_)
    text = " ".join(str(model.summary()).split())
    assert "Heavy-tailed (Student-t) noise model, because the targets have outliers: 2 (rows 7, 3)" in text
    one = replace(model.diagnostics_, outliers=(7,), n_outliers=1)
    assert "1 (row 7), with small weights" in str(one)
    many = replace(model.diagnostics_, outliers=tuple(range(100)), n_outliers=1234)
    assert "1,234 (rows 0, 1, 2, 3, 4, ...), with small weights" in str(many)


def test_files_contain_the_outliers(tmp_path):
    model, path = _robust(), tmp_path / "model"
    hkrr.save(model, path)
    found = hkrr.load(path)
    assert found.diagnostics_ == model.diagnostics_
    assert found.diagnostics_.outliers == (7, 3)
    assert str(found.summary()) == str(model.summary())


def test_files_without_outliers_are_read(tmp_path):
    """Test that a model file of an earlier version, whose diagnostics have no outliers, can be loaded."""
    path = tmp_path / "model.safetensors"
    hkrr.save(_robust(), path)
    header, arrays = parts(path.read_bytes())
    found = header["attributes"]["diagnostics_"]["object"]
    assert found.pop("n_outliers") == 2
    del found["outliers"]
    path.write_bytes(pack(header, arrays))
    model = hkrr.load(path)
    assert model.diagnostics_ == replace(_robust().diagnostics_, outliers=(), n_outliers=0)
    assert "outlier" not in str(model.summary())
