"""Tests of standard deviations and intervals against dense Gaussian processes and explicit leave-one-out fits.

The reference implementations use only the fitted attributes, matrix inverses and finite differences.
"""

import pickle
from copy import deepcopy
from functools import cache

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel

import hkrr
from hkrr import HyperKernelRidge, HyperKernelRidgeCV
from hkrr._base import linear_algebra
from hkrr._maps import Diagonal, Full, Scaled
from hkrr.datasets import make_mim_sines
from hkrr.estimators.fitted import conformal
from hkrr.estimators.fitted.conformal import conformal_quantile, equal_weight_scores
from hkrr.kernels import Gaussian, Matern, Polynomial
from hkrr.objective import Objective
from hkrr.rows import InMemoryRows


def data(n=60, n_targets=1, n_features=4, seed=0, noise=0.2):
    rng = np.random.RandomState(seed)
    X = rng.standard_normal((n, n_features))
    clean = [np.sin(X[:, 0] + X[:, 1]), X[:, 1] ** 2, X[:, 0] * X[:, 2]]
    Y = np.column_stack(clean[:n_targets]) + noise * rng.standard_normal((n, n_targets))
    return X, Y[:, 0] if n_targets == 1 else Y


def latent(model, X):
    return (X - model.x_offset_) @ model.components_.T


def dense_posterior(model, X, y, w, new):
    """Return the scale s of each target, and the variance of f at the new rows divided by s, by textbook formulas.

    The prior covariance of f is s times the kernel, and the variance of the noise of row i is s nu / w_i, where nu is
    lambda times the sum of the weights w.
    """
    Y = y.reshape(len(y), -1) - model.intercept_
    k, P, C, N = model.kernel_, latent(model, X), latent(model, model.centers_), latent(model, new)
    nu = model.reg_lambda_ * np.sum(w)
    if len(C) == len(X):
        A = k(P, P) + np.diag(nu / w)
        inverse = np.linalg.inv(A)
        variance = k.diagonal(N) - np.diag(k(N, P) @ inverse @ k(P, N))
    else:
        # Titsias (2009): the values u at the centers have the covariance K_cc M^-1 K_cc, where K_cx is the kernel
        # matrix of centers and rows, and M = K_cc + K_cx diag(w) K_xc / nu.
        K, K_cx = k(C, C), k(C, P)
        M = K + K_cx @ np.diag(w / nu) @ K_cx.T
        to_f = k(N, C) @ np.linalg.inv(K)
        covariance = K @ np.linalg.inv(M) @ K
        variance = k.diagonal(N) - np.diag(to_f @ k(C, N)) + np.diag(to_f @ covariance @ to_f.T)
        inverse = np.linalg.inv(K_cx.T @ np.linalg.inv(K) @ K_cx + np.diag(nu / w))
    scale = np.array([y_t @ inverse @ y_t for y_t in Y.T]) / np.sum(w)
    return scale, variance


CASES = {
    "exact": {"n_centers": "all"},
    "exact, weights": {"n_centers": "all", "weights": True},
    "exact, three targets": {"n_centers": "all", "n_targets": 3},
    "centers": {"n_centers": 15},
    "centers, weights, three targets": {"n_centers": 15, "weights": True, "n_targets": 3},
    "centers, small lambda": {"n_centers": 15, "reg_lambda": 3e-5},
    "Matern": {"n_centers": 20, "kernel": Matern(nu=1.5)},
    "Polynomial": {"n_centers": 5, "kernel": Polynomial(degree=2), "reg_lambda": 1e-2},
}


@cache
def fitted(n_targets=1, weights=False, **options):
    X, y = data(n_targets=n_targets)
    w = np.random.RandomState(1).uniform(0.5, 2.0, len(X)) if weights else np.ones(len(X))
    # With few iterations from a given map, both rows of the map stay long. The kernel matrix of the centers is then not
    # singular, and the dense formulas are accurate.
    options = {"reg_lambda": 3e-3, "init": np.eye(2, X.shape[1]), "max_iter": 3, "random_state": 0, **options}
    model = HyperKernelRidge(2, **options)
    model.fit(X, y, w if weights else None)
    return model, X, y, w / np.mean(w)


@pytest.fixture(scope="module", params=CASES)
def case(request):
    return fitted(**CASES[request.param])


def test_std_against_the_dense_process(case):
    model, X, y, w = case
    new = data(n=25, seed=5)[0] * 1.5
    scale, variance = dense_posterior(model, X, y, w, new)
    noise = scale * model.reg_lambda_ * np.sum(w)
    np.testing.assert_allclose(np.ravel(model.prior_variance_), scale, rtol=1e-6)
    np.testing.assert_allclose(np.ravel(model.noise_variance_), noise, rtol=1e-6)
    predicted, deviation = model.predict(new, return_std=True)
    np.testing.assert_allclose(predicted, model.predict(new), rtol=1e-12, atol=1e-12)
    assert deviation.shape == predicted.shape
    expected = np.sqrt(variance[:, None] * scale + noise)
    np.testing.assert_allclose(deviation.reshape(len(new), -1), expected, rtol=1e-5)


def test_std_against_scikit_learn():
    model, X, y, _ = fitted(n_centers="all")
    s, noise = model.prior_variance_, model.noise_variance_
    kernel = s * RBF(1.0 / np.sqrt(2.0 * model.gamma_)) + WhiteKernel(noise)
    process = GaussianProcessRegressor(kernel, alpha=0.0, optimizer=None)
    process.fit(latent(model, X), y - model.intercept_)
    new = data(n=30, seed=5)[0]
    mean, deviation = process.predict(latent(model, new), return_std=True)
    found = model.predict(new, return_std=True)
    np.testing.assert_allclose(found[0], mean + model.intercept_, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(found[1], deviation, rtol=1e-7)


def test_numerically_singular_centers():
    """Standard deviations are accurate although the kernel matrix of the 150 centers is rank deficient.

    Inside the data, the Gaussian process with 150 centers is the same as the process with all 300 rows as centers.
    """
    X, _ = data(n=300)
    y = np.sin(X[:, 0]) + 0.1 * np.random.RandomState(2).standard_normal(300)
    model = HyperKernelRidge(1, n_centers=150, reg_lambda=1e-5, max_iter=20, random_state=0).fit(X, y)
    assert np.linalg.matrix_rank(model.kernel_(*[latent(model, model.centers_)] * 2)) < 100
    P, new = latent(model, X), np.median(X, axis=0) + 0.3 * data(n=40, seed=3)[0]
    nu, k, N = model.reg_lambda_ * 300, model.kernel_, latent(model, new)
    variance = k.diagonal(N) - np.diag(k(N, P) @ np.linalg.solve(k(P, P) + nu * np.eye(300), k(P, N)))
    _, deviation = model.predict(new, return_std=True)
    np.testing.assert_allclose(deviation**2 - model.noise_variance_, model.prior_variance_ * variance, rtol=1e-3)


def explicit_scores(model, X, y, w, shape="full"):
    """Return the sorted conformal scores, computed by solving a linear model again without each row.

    The score of a row is the absolute error of its prediction without this row, divided by its standard deviation
    without this row. The linear model approximates f(x) = g(Bx), where both g and the map B are fitted. It has two
    kinds of features. The features of the first kind are the kernel functions of the centers, with the penalty matrix
    nu K_cc. Here nu is lambda times the sum of the weights, and K_cc is the kernel matrix of the centers. The features
    of the second kind are the derivatives of f with respect to B for a fixed g. They are computed by finite
    differences, in the standardized coordinates of the optimization. Their penalty is nu d D / |B|^2 for a full d x D
    map, and nu otherwise. Each target is divided by the square root of its scale s (see `dense_posterior`). All targets
    are fitted in a single linear system.
    """
    n = len(X)
    Y = y.reshape(n, -1) - model.intercept_
    t = Y.shape[1]
    scale, _ = dense_posterior(model, X, y, w, X)
    k, P, C = model.kernel_, latent(model, X), latent(model, model.centers_)
    nu, c = model.reg_lambda_ * np.sum(w), len(C)
    alpha = model.dual_coef_.reshape(c, t) / np.sqrt(scale)
    x_mean, x_scale = np.average(X, axis=0, weights=w), None
    x_scale = np.sqrt(np.average((X - x_mean) ** 2, axis=0, weights=w))
    Z = (X - x_mean) / x_scale
    slopes = np.empty((n, t, P.shape[1]))
    for j in range(P.shape[1]):
        step = np.zeros(P.shape[1])
        step[j] = 1e-6 * np.std(P)
        slopes[:, :, j] = (k(P + step, C) - k(P - step, C)) @ alpha / (2.0 * step[j])
    B = model.components_ * x_scale
    if shape == "full":
        J = np.array([[np.outer(slopes[i, s], Z[i]).ravel() for s in range(t)] for i in range(n)])
        rho = nu * B.size / np.sum(B**2)
    else:
        J, rho = slopes * (Z @ B.T)[:, None, :], nu
        if shape == "identity":
            J = J.sum(axis=2, keepdims=True)
    p = J.shape[2]
    K, K_cc = k(P, C), k(C, C)
    penalty = np.zeros((t * c + p, t * c + p))
    for s in range(t):
        penalty[s * c : (s + 1) * c, s * c : (s + 1) * c] = nu * K_cc
    penalty[t * c :, t * c :] = rho * np.eye(p)
    Phi = np.zeros((n, t, t * c + p))
    for s in range(t):
        Phi[:, s, s * c : (s + 1) * c] = K
    Phi[:, :, t * c :] = J
    residual = Y / np.sqrt(scale) - K @ alpha
    A = sum(w[i] * Phi[i].T @ Phi[i] for i in range(n)) + penalty
    jitter = 1e-12 * np.trace(A) / len(A) * np.eye(len(A))
    scores = np.empty((n, t))
    for i in range(n):
        # If row i is left out, the coefficients change by -(A - w_i Phi_i' Phi_i)^-1 w_i Phi_i' r_i. Phi_i are the
        # features of row i and r_i is its residual. The error is the residual minus Phi_i times this change.
        change = np.linalg.solve(A - w[i] * Phi[i].T @ Phi[i] + jitter, w[i] * Phi[i].T @ residual[i])
        error = residual[i] + Phi[i] @ change
        without = dense_variance_without(model, X, w, i)
        scores[i] = np.abs(error) / np.sqrt(without + nu)
    return np.sort(scores, axis=0)


def dense_variance_without(model, X, w, i):
    """Return the variance of f at row i divided by s, in the dense process without row i. nu stays the same."""
    k, C = model.kernel_, latent(model, model.centers_)
    nu = model.reg_lambda_ * np.sum(w)
    kept = np.arange(len(X)) != i
    P, N, w = latent(model, X[kept]), latent(model, X[i : i + 1]), w[kept]
    if len(C) == len(X):
        value = k(N, N) - k(N, P) @ np.linalg.inv(k(P, P) + np.diag(nu / w)) @ k(P, N)
    else:
        K, K_cx = k(C, C), k(C, P)
        to_f, M = k(N, C) @ np.linalg.inv(K), K + K_cx @ np.diag(w / nu) @ K_cx.T
        value = k(N, N) - to_f @ k(C, N) + to_f @ K @ np.linalg.inv(M) @ K @ to_f.T
    return value.item()


@pytest.mark.parametrize("name", [name for name in CASES if "weights" not in name])
def test_scores_against_explicit_leave_one_out(name):
    model, X, y, w = fitted(**CASES[name])
    expected = explicit_scores(model, X, y, w)
    found = model.interval_scores_.reshape(len(X), -1)
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("name", ["exact, weights", "centers, weights, three targets"])
def test_weighted_scores_against_explicit_leave_one_out(name, monkeypatch):
    seen = []
    monkeypatch.setattr(
        conformal, "equal_weight_scores", lambda scores, weight: seen.append((scores, weight)) or scores
    )
    # Calling the wrapped function fits a new model instead of using the cache.
    model, X, y, w = fitted.__wrapped__(**CASES[name])
    ((scores, weight),) = seen
    np.testing.assert_allclose(np.sort(weight), np.sort(w), rtol=1e-12)
    expected = explicit_scores(model, X, y, w)
    np.testing.assert_allclose(np.sort(scores, axis=0), expected, rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("shape", [Diagonal(), Scaled(np.ones(4))], ids=["diagonal", "identity"])
def test_scores_of_diagonal_and_identity_maps(shape, monkeypatch):
    original = conformal.estimate_uncertainty
    monkeypatch.setattr(
        hkrr.estimators.fitted.diagnostics, "estimate_uncertainty", lambda *given: original(*given[:-1], shape)
    )
    X, y = data()
    model = HyperKernelRidge(4, init=np.diag([1.0, 0.7, 0.5, 0.2]), n_centers=20, max_iter=0, reg_lambda=1e-3)
    model.fit(X, y)
    B = model.components_ * X.std(axis=0)
    # The map is still diagonal, up to the order of its rows.
    assert np.count_nonzero(np.abs(B) > 1e-12) == 4
    expected = explicit_scores(model, X, y, np.ones(len(X)), shape.name)
    np.testing.assert_allclose(model.interval_scores_[:, None], expected, rtol=2e-3, atol=2e-4)


def test_scores_without_tangents_against_fits_without_the_row(monkeypatch):
    """At a fixed map, the score of each row equals the standardized error of a fit to all other rows.

    Tangents are the derivatives of f with respect to the map. Here they are set to zero, which keeps the map fixed.
    """
    monkeypatch.setattr(Full, "tangents", lambda self, X, B, slopes, most: np.zeros((len(X), slopes.shape[1], 1)))
    X, y = data(n=25)
    options = {"n_centers": "all", "max_iter": 0, "fit_intercept": False, "scale_features": False}
    B = np.array([[0.6, 0.6, 0.0, 0.1], [0.0, 0.3, 0.5, 0.0]])
    model = HyperKernelRidge(2, init=B, gamma=0.8, reg_lambda=1e-2, **options).fit(X, y)
    nu, scores = 1e-2 * len(X), []
    for i in range(len(X)):
        kept = np.arange(len(X)) != i
        other = HyperKernelRidge(2, init=B, gamma=0.8, reg_lambda=nu / (len(X) - 1), **options).fit(X[kept], y[kept])
        predicted, deviation = other.predict(X[i : i + 1], return_std=True)
        in_our_units = deviation[0] * np.sqrt(model.prior_variance_ / other.prior_variance_)
        scores.append(abs(y[i] - predicted[0]) / in_our_units)
    np.testing.assert_allclose(model.interval_scores_, np.sort(scores), rtol=1e-6)


@pytest.mark.parametrize("n_centers", ["all", 60])
def test_the_effect_of_a_row_on_a_map_with_few_parameters_is_negligible(n_centers, monkeypatch):
    """Test that the scores hardly change if the effect of each row on a map with 4 parameters is not computed."""
    X, y = data(n=1000, noise=0.3)
    options = {"init": np.array([[0.6, 0.6, 0.0, 0.1]]), "n_centers": n_centers, "max_iter": 0, "reg_lambda": 1e-3}
    scores = []
    for least in (0.0, 0.005):
        monkeypatch.setattr(conformal, "_NEGLIGIBLE", least)
        scores.append(HyperKernelRidge(1, random_state=0, **options).fit(X, y).interval_scores_)
    assert np.all(scores[0] >= scores[1] - 1e-9)
    assert not np.array_equal(*scores)
    np.testing.assert_allclose(scores[1], scores[0], rtol=0.03, atol=0.01)


def test_projected_tangents_keep_their_inner_products():
    rng = np.random.RandomState(0)
    X, slopes, B = rng.standard_normal((40, 60)), rng.standard_normal((40, 1, 3)), np.ones((3, 60))
    all_of_them, mixed = (Full().tangents(X, B, slopes, most)[:, 0] for most in (180, 170))
    assert mixed.shape == (40, 170)
    exact, about = all_of_them @ all_of_them.T, mixed @ mixed.T
    size = np.sqrt(np.outer(np.diag(exact), np.diag(exact)))
    # The bound is 5.5 standard deviations of an entry, because the maximum is over 820 distinct entries.
    assert np.max(np.abs(about - exact) / size) < 5.5 * np.sqrt(2.0 / 170)


def test_sums_over_a_sample_of_the_rows(monkeypatch):
    X, y = data(n=400, noise=0.3)
    options = {"n_centers": 30, "n_init": 1, "max_iter": 20, "random_state": 0, "reg_lambda": 1e-3}
    whole = HyperKernelRidge(2, **options).fit(X, y)
    monkeypatch.setattr(conformal, "SCORED_ROWS", 150)
    monkeypatch.setattr(conformal, "MAX_SUMMED_ROWS", 300)
    part = HyperKernelRidge(2, **options).fit(X, y)
    assert part.interval_scores_.shape == (150,)
    np.testing.assert_array_equal(part.posterior_factor_, whole.posterior_factor_)
    assert part.noise_variance_ == pytest.approx(whole.noise_variance_, rel=0.15)
    every = HyperKernelRidge(2, **{**options, "n_centers": "all"}).fit(X, y)
    assert every.interval_scores_.shape == (150,)
    for model in (part, every):
        assert np.median(model.interval_scores_) == pytest.approx(np.median(whole.interval_scores_), rel=0.25)


def test_large_systems_give_the_same_scores(monkeypatch):
    """Test that a system that is factorized in float32 gives the same coefficients and scores.

    The coefficients are refined in float64. The scores are computed with the factor in float32, so their relative
    errors are about the epsilon of float32 (1.2e-7) times the square root of the condition number of 1,000. The errors
    that were measured are at most 1.2e-6.
    """
    X, y = data(n=120)
    B = np.array([[0.6, 0.6, 0.0, 0.1], [0.0, 0.3, 0.5, 0.0]])
    scores, coefficients = [], []
    for large, dtype in ((10_000, np.float64), (50, np.float32)):
        monkeypatch.setattr(linear_algebra, "_LARGE", large)
        objective = Objective(InMemoryRows(X, y), None, Gaussian(gamma=0.3), 1e-3)
        alpha, info = objective.solve(B)
        assert info.factor.dtype == dtype
        coefficients.append(alpha)
        scores.append(conformal.estimate_uncertainty(objective, B, alpha, alpha, info, Full()).left_out.scores)
    np.testing.assert_allclose(*coefficients, rtol=0, atol=1e-7 * np.abs(coefficients[0]).max())
    np.testing.assert_allclose(*scores, rtol=5e-6)


@pytest.fixture(scope="module")
def planted():
    drawn = make_mim_sines(3200, n_features=20, n_components=2, noise=0.02, random_state=3)
    model = HyperKernelRidgeCV([2], n_init=2, random_state=0).fit(drawn.X[:200], drawn.y[:200])
    return model, drawn.X[200:], drawn.y[200:]


def covered(model, X, y, coverage):
    lower, upper = model.predict_interval(X, coverage)
    return float(np.mean((lower <= y) & (y <= upper)))


def test_coverage_on_new_rows(planted):
    """The coverage on new rows is as requested, up to three standard errors of 200 scores.

    Scores that ignore that the map was learned would not pass this test.
    """
    model, X, y = planted
    for coverage in (0.8, 0.9):
        assert abs(covered(model, X, y, coverage) - coverage) < 3.0 * np.sqrt(coverage * (1 - coverage) / 200)


def test_coverage_after_calibration(planted):
    model, X, y = planted
    other = pickle.loads(pickle.dumps(model))
    assert other.calibrate(X[:1000], y[:1000]) is other
    np.testing.assert_array_equal(other.predict(X), model.predict(X))
    predicted, deviation = model.predict(X[:1000], return_std=True)
    np.testing.assert_allclose(other.interval_scores_, np.sort(np.abs(y[:1000] - predicted) / deviation))
    for coverage in (0.5, 0.9):
        # The coverage is exact on the 1,000 calibration rows, except that one row is at the end of its interval, where
        # rounding decides. On the 2,000 new rows it is as requested up to three standard errors of both samples.
        n_covered = round(1000 * covered(other, X[:1000], y[:1000], coverage))
        assert n_covered in (np.ceil(1001 * coverage), np.ceil(1001 * coverage) - 1)
        error = np.sqrt(coverage * (1 - coverage) * (1 / 1000 + 1 / 2000))
        assert abs(covered(other, X[1000:], y[1000:], coverage) - coverage) < 3.0 * error


def test_intervals_are_symmetric_and_grow_with_coverage(planted):
    model, X, _ = planted
    predicted, deviation = model.predict(X, return_std=True)
    lower, upper = model.predict_interval(X, 0.8)
    wider = model.predict_interval(X, 0.95)
    np.testing.assert_allclose((lower + upper) / 2, predicted, atol=1e-12)
    np.testing.assert_allclose((upper - lower) / deviation, (upper[0] - lower[0]) / deviation[0])
    assert np.all(wider[0] < lower)
    assert np.all(wider[1] > upper)
    # These rows are far from the training rows.
    far = model.predict(1e3 * model.components_, return_std=True)[1]
    np.testing.assert_allclose(far, np.sqrt(model.prior_variance_ + model.noise_variance_), rtol=1e-6)


@pytest.mark.parametrize("name", ["exact, weights", "centers, weights, three targets"])
@pytest.mark.parametrize("way", ["file", "pickle"])
def test_saved_and_pickled_models(name, way, tmp_path):
    model, X, _, _ = fitted(**CASES[name])
    if way == "file":
        hkrr.save(model, tmp_path / "model.hkrr")
        other = hkrr.load(tmp_path / "model.hkrr")
    else:
        # This call caches the posterior factors, which are not pickled.
        model.predict(X, return_std=True)
        other = pickle.loads(pickle.dumps(model))
        assert vars(other).keys() == vars(model).keys()
    for found, expected in zip(other.predict(X, True), model.predict(X, True), strict=True):
        np.testing.assert_array_equal(found, expected)
    for found, expected in zip(other.predict_interval(X), model.predict_interval(X), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("posterior_factor_", np.zeros(3, dtype=np.float32)),
        ("posterior_factor_", np.zeros(120)),
        ("interval_scores_", np.array([2.0, 1.0])),
        ("interval_scores_", np.array([-1.0, 1.0])),
        ("interval_scores_", np.array([[1.0], [2.0]])),
        ("noise_variance_", -1.0),
        ("prior_variance_", np.nan),
        ("center_weight_", np.zeros(15)),
    ],
)
def test_invalid_attributes_are_not_saved(name, value, tmp_path):
    model = deepcopy(fitted(**CASES["centers"])[0])
    setattr(model, name, value)
    with pytest.raises(ValueError, match=name):
        hkrr.save(model, tmp_path / "model.hkrr")


def test_refit_replaces_the_uncertainty():
    X, y = data()
    model = HyperKernelRidge(2, n_centers=10, max_iter=5, random_state=0).fit(X, y)
    first = model.predict(X, return_std=True)[1]
    assert hasattr(model, "posterior_factor_")
    model.set_params(n_centers="all").fit(X, 3.0 * y)
    assert not hasattr(model, "posterior_factor_")
    fresh = HyperKernelRidge(2, n_centers="all", max_iter=5, random_state=0).fit(X, 3.0 * y)
    np.testing.assert_array_equal(model.predict(X, True)[1], fresh.predict(X, True)[1])
    assert not np.allclose(fresh.predict(X, True)[1], first)


def test_a_model_without_uncertainty_raises():
    model, X, y, _ = deepcopy(fitted(n_centers=10))
    # Models saved by an earlier version of hkrr do not have the attributes of the uncertainty.
    model._store_uncertainty(None)
    with pytest.raises(ValueError, match="Fit the model again to use return_std"):
        model.predict(X, return_std=True)
    with pytest.raises(ValueError, match=r"call calibrate\(X, y\)"):
        model.predict_interval(X)
    # After calibration, all intervals of such a model have the same length.
    model.calibrate(X, y)
    lower, upper = model.predict_interval(X, 0.8)
    np.testing.assert_allclose(upper - lower, 2.0 * np.sort(np.abs(y - model.predict(X)))[int(np.ceil(0.8 * 61)) - 1])


@pytest.mark.parametrize("coverage", [0, 1, -0.1, 1.5, np.nan, "0.9", True, None])
def test_invalid_coverage_raises(planted, coverage):
    with pytest.raises(ValueError, match="coverage must be a number between 0 and 1"):
        planted[0].predict_interval(planted[1], coverage)


def test_too_high_a_coverage_raises(planted):
    model, X, _ = planted
    model.predict_interval(X[:5], 0.995)
    with pytest.raises(
        ValueError, match=r"coverage=0\.999 needs at least 999 conformal scores .* this model has 200"
    ) as raised:
        model.predict_interval(X[:5], 0.999)
    # The exception can be sent between processes.
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


@pytest.mark.parametrize(
    ("n", "coverage", "k"), [(9, 0.9, 9), (19, 0.9, 18), (99, 0.7, 70), (10, 0.5, 6), (3, 0.01, 1)]
)
def test_conformal_quantile(n, coverage, k):
    assert conformal_quantile(np.arange(1.0, n + 1), coverage) == k
    with pytest.raises(ValueError, match="lower coverage"):
        conformal_quantile(np.arange(8.0), 0.9)


def test_equal_weight_scores():
    scores = np.array([[3.0], [1.0], [2.0]])
    np.testing.assert_array_equal(equal_weight_scores(scores, np.full(3, 0.5)), [[1.0], [2.0], [3.0]])
    repeated = np.repeat(np.arange(100.0), 2)[:, None]
    weight = np.tile([2.0, 0.5], 100)
    found = equal_weight_scores(repeated, weight)[:, 0]
    assert len(found) == int((250.0**2) / (100 * 4.25))
    np.testing.assert_allclose(np.quantile(found, [0.1, 0.5, 0.9]), [10, 50, 90], atol=1.5)


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (np.zeros((5, 4)), np.zeros(4), "inconsistent numbers of samples"),
        (np.zeros((5, 4)), np.zeros((5, 2)), "give the same targets"),
        (np.zeros((5, 3)), np.zeros(5), "3 features"),
        (np.zeros((5, 4)), np.full(5, np.nan), "y contains NaN"),
        ("rows.csv", "target", "calibration rows into memory"),
    ],
)
def test_invalid_calibration_rows_raise(X, y, message):
    model = fitted(n_centers=10)[0]
    with pytest.raises(ValueError, match=message):
        model.calibrate(X, y)
