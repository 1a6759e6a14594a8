"""Tests of HyperKernelRidge: scikit-learn conventions, invariances, and the formulas of the public attributes."""

import inspect
import pickle
import random
from dataclasses import replace

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.kernel_ridge import KernelRidge
from sklearn.utils.estimator_checks import parametrize_with_checks

from hkrr import HyperKernelRidge, kernels
from hkrr.solvers import AGD, LBFGS, VarPro
from support import oracles
from support.random_problems import ONE_GAMMA, case_id

LAMBDA = 0.1
solvers = pytest.mark.parametrize("solver", ["lbfgs", "varpro", "agd"])


def data(m=40, D=4, T=1, seed=0):
    """Return X, y and a starting map with two directions.

    Each of the T targets depends on two columns and has noise of standard deviation 0.1.
    """
    rng = np.random.default_rng([seed, m, D, T])
    X, B0 = rng.normal(size=(m, D)), rng.normal(size=(2, D)) / np.sqrt(D)
    y = np.stack([np.sin(X[:, 0] + t) + 0.5 * X[:, 1] for t in range(T)], axis=1) + 0.1 * rng.normal(size=(m, T))
    return X, y[:, 0] if T == 1 else y, B0


def fit(X, y, sample_weight=None, **parameters):
    """Fit with five iterations, a rough kernel and a large lambda, so that rounding errors stay small."""
    defaults = {"reg_lambda": LAMBDA, "kernel": "matern32", "max_iter": 5, "random_state": 0}
    return HyperKernelRidge(**defaults | parameters).fit(X, y, sample_weight)


def excused_checks(estimator):
    """Return the check that is expected to fail if only 5 rows are drawn as centers.

    With random centers, a fit with integer weights is not the same as a fit with repeated rows.
    """
    drawn = {"check_sample_weight_equivalence_on_dense_data": "random centers"}
    return drawn if estimator.n_centers == 5 else {}


@pytest.mark.filterwarnings("ignore::hkrr.HKRRWarning")  # some checks have targets of pure noise
@parametrize_with_checks(
    [
        HyperKernelRidge(n_init=1, max_iter=20),
    ],
    expected_failed_checks=excused_checks,
)
def test_sklearn_compatible(estimator, check):
    check(estimator)


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore::hkrr.HKRRWarning")  # some checks have targets of pure noise
@parametrize_with_checks(
    [
        HyperKernelRidge(),
        HyperKernelRidge(n_centers="all", n_jobs=2, scale_features=False, fit_intercept=False, max_iter=5),
        HyperKernelRidge(n_centers=5, max_iter=10),
        HyperKernelRidge(solver="varpro", kernel="laplace", max_iter=30),
        HyperKernelRidge(solver="agd", kernel="laplace", max_iter=30),
        HyperKernelRidge(n_centers=5, centers="kmeans", kernel="anova", max_iter=10),
        HyperKernelRidge(centers="leverage", max_iter=5),
    ],
    expected_failed_checks=excused_checks,
)
def test_sklearn_compatible_in_other_settings(estimator, check):
    check(estimator)


def test_signature():
    """Test the names, order and defaults of the parameters, which are part of the public interface."""
    expected = {"n_components": 2, "reg_lambda": 1e-3, "kernel": "gaussian", "gamma": "median", "n_centers": "auto"}
    expected |= {"centers": "uniform", "criterion": "training", "solver": "lbfgs", "init": "random", "n_init": 10}
    expected |= {"fit_intercept": True, "scale_features": True, "max_iter": 200, "tol": 1e-6, "time_limit": None}
    expected |= {
        "block_size": "auto",
        "device": None,
        "n_jobs": None,
        "callbacks": None,
        "verbose": 0,
        "random_state": None,
        "checkpoint": None,
        "checkpoint_every": 60.0,
    }
    found = inspect.signature(HyperKernelRidge).parameters
    assert {name: parameter.default for name, parameter in found.items()} == expected
    assert list(found) == list(expected)
    positional = [name for name, p in found.items() if p.kind is not inspect.Parameter.KEYWORD_ONLY]
    assert positional == ["n_components"]


def test_fit_does_not_change_its_arguments():
    """Test that `fit` changes neither X, y and weights nor the parameters, even if these are mutable."""
    X, y, B0 = data()
    w = np.linspace(0.0, 2.0, len(X))
    given = {"init": B0, "centers": X[:7].copy(), "callbacks": []}
    given |= {"kernel": kernels.Matern(nu=2.5), "solver": AGD(n_alpha=2)}
    copies = {name: pickle.loads(pickle.dumps(value)) for name, value in given.items()}
    untouched = [array.copy() for array in (X, y, w)]
    model = fit(X, y, w, random_state=np.random.RandomState(3), **given)
    parameters = model.get_params()
    for name, value in given.items():
        assert parameters[name] is value
        np.testing.assert_equal(value, copies[name])
    for array, before in zip((X, y, w), untouched, strict=True):
        assert_array_equal(array, before)


@pytest.mark.parametrize("solver", [LBFGS(memory=3), VarPro(), "agd"], ids=str)
@pytest.mark.parametrize("T", [1, 2])
def test_pickles_and_clones_predict_the_same(tmp_path, solver, T):
    X, y, _ = data(T=T)
    model = fit(X, y, solver=solver, kernel=kernels.Matern(nu=1.5))
    joblib.dump(model, tmp_path / "model")
    for copy in (pickle.loads(pickle.dumps(model)), joblib.load(tmp_path / "model"), clone(model).fit(X, y)):
        assert_array_equal(copy.predict(X), model.predict(X))
        assert copy.get_params().keys() == model.get_params().keys()


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
def test_data_frames(frame):
    X, y, _ = data()
    names = ["age", "height", "mass", "pulse"]
    table = frame(dict(zip(names, X.T, strict=True)))
    model = fit(table, y)
    assert list(model.feature_names_in_) == names
    assert_array_equal(model.predict(table), fit(X, y).predict(X))
    out = model.get_feature_names_out()
    assert list(out) == ["hyperkernelridge0", "hyperkernelridge1"]
    latent = model.set_output(transform="pandas").transform(table)
    assert isinstance(latent, pd.DataFrame)
    assert list(latent.columns) == list(out)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame(dict(zip(["a", *names[1:]], X.T, strict=True))))


@solvers
def test_each_target_is_fitted_separately(solver):
    """Test that, at a given map, the predictions for several targets equal the predictions of separate fits."""
    X, Y, B0 = data(T=3)
    same = {"init": B0, "max_iter": 0, "solver": solver, "n_centers": 15}
    together = fit(X, Y, **same).predict(X)
    assert together.shape == Y.shape
    for t in range(3):
        assert_allclose(together[:, t], fit(X, Y[:, t], **same).predict(X), rtol=1e-9, atol=1e-9)


@solvers
@pytest.mark.parametrize("max_iter", [0, 5])
def test_integer_weights_are_repeated_rows(solver, max_iter):
    """Test that integer weights and repeated rows give the same model.

    Five iterations amplify rounding errors, so the tolerance for five iterations is 1e-6.
    """
    X, y, B0 = data(m=20)
    w = np.arange(20) % 3 + 1
    same = {"init": B0, "n_centers": "all", "gamma": 0.4, "max_iter": max_iter, "solver": solver}
    weighted, repeated = fit(X, y, w, **same), fit(np.repeat(X, w, axis=0), np.repeat(y, w), **same)
    tolerance = 1e-9 if max_iter == 0 else 1e-6
    assert_allclose(weighted.predict(X), repeated.predict(X), rtol=tolerance, atol=tolerance)
    assert weighted.result_.objective == pytest.approx(repeated.result_.objective, rel=tolerance)
    assert weighted.intercept_ == pytest.approx(np.average(y, weights=w), rel=1e-12)


@pytest.mark.parametrize("centers", ["uniform", "leverage", "kmeans"])
@pytest.mark.parametrize("kind", [float, int, np.float32])
@pytest.mark.parametrize("start", ["given", "random"])
def test_zero_weights_are_dropped_rows(centers, kind, start):
    """Test that rows of weight zero have no effect on centers, means, the median heuristic and the start."""
    X, y, B0 = data(m=60)
    w = (np.arange(60) % 4 > 0).astype(kind)
    kept = w > 0
    X[~kept], y[~kept] = 1e3, -1e5
    same = {"centers": centers, "n_centers": 20, "init": B0 if start == "given" else "random"}
    dropped, weighted = fit(X[kept], y[kept], **same), fit(X, y, w, **same)
    assert_allclose(weighted.predict(X[kept]), dropped.predict(X[kept]), rtol=1e-7, atol=1e-7)


def test_only_the_ratios_of_weights_matter():
    X, y, _ = data()
    w = np.linspace(0.5, 2.0, len(X))
    assert_allclose(fit(X, y, 1e3 * w).predict(X), fit(X, y, w).predict(X), rtol=1e-7)
    assert np.max(np.abs(fit(X, y, w).predict(X) - fit(X, y).predict(X))) > 1e-3


@solvers
def test_float32_stays_float32(solver):
    """Test that float32 input gives float32 results, which differ from the float64 results only by rounding.

    All sums are computed in float64. Only the results are rounded to float32, with a relative error of 6e-8.
    """
    X, y, _ = data()
    X, y = X.astype(np.float32), y.astype(np.float32)
    single, double = fit(X, y, solver=solver), fit(X.astype(float), y.astype(float), solver=solver)
    for method in ("predict", "transform"):
        answer, expected = getattr(single, method)(X), getattr(double, method)(X.astype(float))
        assert (answer.dtype, expected.dtype) == (np.float32, np.float64)
        assert_allclose(answer, expected, rtol=1e-5, atol=1e-6)


@solvers
@pytest.mark.parametrize("scale_features", [True, False])
@pytest.mark.parametrize("case", ONE_GAMMA[::2], ids=case_id)
def test_public_attributes_are_the_model(case, scale_features, solver):
    """Test that the public attributes satisfy predict(x) = sum_j dual_coef_j k(B x, B c_j) + intercept and |B| = 1.

    The kernel k is computed by the independent formula of the oracle.
    """
    X, y, _ = data(m=25)
    scale_features = scale_features and case.norm is not None  # the polynomial kernel depends on the offset
    shape = {key: value for key, value in case.value.keywords.items() if key != "gamma"}
    model = fit(X + 1.0, y, kernel=replace(case.kernel, gamma=None), scale_features=scale_features, solver=solver)
    B, C = model.components_, model.centers_
    assert np.linalg.norm(B, 2) == pytest.approx(1.0, rel=1e-12)
    assert model.kernel_.gamma == model.gamma_ > 0
    assert model.singular_values_.shape == (2,)
    assert model.singular_values_[0] == pytest.approx(1.0)
    assert_allclose(model.transform(X), X @ B.T, rtol=1e-12, atol=1e-13)
    K = oracles.gram(lambda p, c: case.value.func(p, c, gamma=model.gamma_, **shape), (X + 1.0) @ B.T, C @ B.T)
    expected = K @ model.dual_coef_ + model.intercept_
    assert_allclose(model.predict(X + 1.0), expected, rtol=0, atol=1e-7 * np.max(np.abs(K) @ np.abs(model.dual_coef_)))


PEERS = [
    (kernels.Gaussian(gamma=0.4), {"kernel": "rbf", "gamma": 0.4}),
    (kernels.ProductLaplace(gamma=0.4), {"kernel": "laplacian", "gamma": np.sqrt(0.8)}),
    (kernels.Polynomial(degree=2, coef0=0.5, gamma=0.4), {"kernel": "poly", "degree": 2, "coef0": 0.5, "gamma": 0.4}),
]


@solvers
@pytest.mark.parametrize(("kernel", "peer"), PEERS, ids=["gaussian", "laplacian", "polynomial"])
def test_agrees_with_kernel_ridge_at_a_given_map(kernel, peer, solver):
    """Test that, with all m rows as centers and a fixed map B0, the model equals scikit-learn's KernelRidge on X B0'.

    The parameter alpha of KernelRidge is lambda * m.
    """
    X, y, B0 = data()
    B0 = 0.9 * B0 / np.linalg.norm(B0, 2)
    same = {"scale_features": False, "fit_intercept": False, "init": B0, "max_iter": 0, "solver": solver}
    model = fit(X, y, kernel=kernel, n_centers="all", **same)
    expected = KernelRidge(alpha=LAMBDA * len(X), **peer).fit(X @ B0.T, y)
    fresh = data(seed=1)[0]
    assert_allclose(model.predict(fresh), expected.predict(fresh @ B0.T), rtol=1e-8, atol=1e-8)


def test_history_and_result():
    X, y, _ = data()
    model = fit(X, y, max_iter=7, tol=0.0)
    table = pd.DataFrame(model.history_)
    assert list(table.columns) == ["time", "objective", "grad_norm", "step"]
    assert len(table) == model.n_iter_ + 1 == 8
    assert (model.result_.reason, model.result_.n_iter) == ("max_iter", 7)
    assert "max_iter" in model.result_.message
    assert fit(X, y, max_iter=200, tol=1e-2).result_.reason == "converged"
    assert fit(X, y, max_iter=10**6, tol=0.0, time_limit=1e-6).result_.reason == "time_limit"
    seen = []
    stopped = fit(X, y, callbacks=[lambda state: seen.append(state.n_iter), lambda state: state.n_iter == 2])
    assert (stopped.result_.reason, seen) == ("callback", [0, 1, 2])


@pytest.mark.parametrize("centers", ["uniform", "leverage", "kmeans"])
def test_random_state(centers):
    """Test that equal seeds give equal models, and different seeds give different models.

    The global random states of NumPy and Python are neither used nor changed.
    """
    X, y, _ = data()
    before = np.random.get_state()[1].copy(), random.getstate()  # noqa: NPY002  # the test is about the global state
    models = [fit(X, y, centers=centers, n_centers=10, random_state=seed) for seed in (5, 5, 6)]
    first, second, third = (model.predict(X) for model in models)
    assert_array_equal(first, second)
    assert np.max(np.abs(first - third)) > 1e-6
    assert_array_equal(before[0], np.random.get_state()[1])  # noqa: NPY002  # the test is about the global state
    assert before[1] == random.getstate()


@solvers
def test_threads_and_blocks_do_not_change_the_model(solver):
    """Test that the number of threads does not change the model, and the block size changes it by at most 1e-7.

    Blocks are summed in the same order for any number of threads. A different block size changes the order of the sums.
    """
    X, y, _ = data(m=2000)
    one, two = (fit(X, y, n_centers=20, block_size=128, n_jobs=n, solver=solver).predict(X) for n in (1, 2))
    assert_array_equal(one, two)
    assert_allclose(fit(X, y, n_centers=20, block_size=777, solver=solver).predict(X), one, rtol=1e-7, atol=1e-7)


@solvers
@pytest.mark.parametrize("kernel", ["gaussian", "matern32", "laplace", "rational_quadratic"])
def test_rotating_the_inputs_rotates_the_map(kernel, solver):
    """Test that a fit to rotated inputs X Q', from the starting map B0 Q', gives the same model in rotated coordinates.

    Q is an orthogonal matrix. Up to signs, ``components_`` is multiplied by Q'. The predictions do not change.
    """
    X, y, B0 = data()
    Q = np.linalg.qr(np.random.default_rng(1).normal(size=(4, 4)))[0]
    same = {"kernel": kernel, "scale_features": False, "solver": solver}
    plain, rotated = fit(X, y, init=B0, **same), fit(X @ Q.T, y, init=B0 @ Q.T, **same)
    assert_allclose(rotated.predict(X @ Q.T), plain.predict(X), rtol=1e-6, atol=1e-6)
    gram = plain.components_.T @ plain.components_
    assert_allclose(rotated.components_.T @ rotated.components_, Q @ gram @ Q.T, rtol=0, atol=1e-6)


@solvers
def test_units_do_not_matter(solver):
    """Test that different units (factors up to 1e6) and origins of the columns change predictions only by rounding."""
    X, y, _ = data()
    units, origin = np.array([1e6, 1e-6, 1e3, 1.0]), np.array([1e6, 2e-6, -1e4, 30.0])
    expected, changed = fit(X, y, solver=solver).predict(X), X * units + origin
    assert_allclose(fit(changed, y, solver=solver).predict(changed), expected, rtol=1e-6, atol=1e-6)


@solvers
@pytest.mark.parametrize("factor", [1e-6, -3.0, 1e6])
def test_scaling_the_target_scales_the_predictions(factor, solver):
    X, y, _ = data()
    expected = fit(X, y, solver=solver).predict(X)
    assert_allclose(fit(X, factor * y, solver=solver).predict(X) / factor, expected, rtol=1e-6, atol=1e-6)
    shifted = fit(X, y + 100.0, solver=solver).predict(X)
    assert_allclose(shifted - 100.0, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("verbose", [0, 1])
def test_verbose_shows_a_bar_on_stderr(capfd, verbose):
    X, y, _ = data()
    fit(X, y, verbose=verbose)
    out, err = capfd.readouterr()
    assert out == ""
    assert ("5/5" in err) if verbose else (err == "")


@pytest.mark.parametrize("n_centers", [15, "all"])
def test_dual_coef_solves_the_normal_equations(n_centers):
    """Test that ``dual_coef_`` solves (K' diag(w) K + lambda sum(w) K_cc) a = K' diag(w) (y - intercept).

    K is the kernel matrix of rows and centers, K_cc the kernel matrix of the centers, and w are the sample weights.
    """
    X, y, _ = data()
    w = np.linspace(0.5, 2.0, len(X))
    model = fit(X, y, w, n_centers=n_centers)
    P, C = (Z @ model.components_.T for Z in (X - model.x_offset_, model.centers_ - model.x_offset_))
    K, K_cc = model.kernel_(P, C), model.kernel_(C, C)
    A = K.T @ (w[:, None] * K) + model.reg_lambda * w.sum() * K_cc
    b = K.T @ (w * (y - model.intercept_))
    assert_allclose(A @ model.dual_coef_, b, atol=1e-9 * np.abs(b).max())
