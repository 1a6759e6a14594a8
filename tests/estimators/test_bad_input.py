"""Test that errors name the invalid argument, and that unusual but valid input gives finite predictions."""

import os

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.exceptions import NotFittedError

from hkrr import FitError, HyperKernelRidge, HyperKernelRidgeCV
from hkrr.kernels import KERNELS, Gaussian
from hkrr.solvers import AGD

M, D = 24, 3
NAN, INF = float("nan"), float("inf")


def data(m=M, D=D, seed=0):
    rng = np.random.default_rng([seed, m, D])
    X = rng.normal(size=(m, D))
    return X, np.sin(X[:, 0]) + 0.1 * rng.normal(size=m)


def changed(array, index, value):
    array = array.copy()
    array[index] = value
    return array


X, Y = data()


# Cases: name of a parameter, an invalid value, and a pattern that must follow the name in the error message.
PARAMETERS = [
    *[("n_components", value, "") for value in (0, -1, 1.5, 2.0, "two", None)],
    ("n_components", D + 1, rf"\b{D}\b"),
    *[("reg_lambda", value, "") for value in (0, 0.0, -1e-3, NAN, INF, "auto", None)],
    *[("gamma", value, "median") for value in (0, 0.0, -1.0, NAN, INF, "mean", None)],
    ("kernel", "gauss", "'gaussian'.*'laplace'.*'polynomial'.*gauss"),
    ("kernel", Gaussian, "'gaussian'"),
    ("kernel", 3, "'gaussian'"),
    ("solver", "adam", "'lbfgs'.*'varpro'.*'agd'.*adam"),
    ("solver", AGD, "'lbfgs'"),
    ("solver", None, "'lbfgs'"),
    ("init", "zeros", "'random'.*zeros"),
    ("init", np.zeros((2, D)), "zero"),
    ("init", np.ones((2, D)), "independent"),
    ("init", np.ones((3, D)), rf"\(2, {D}\)"),
    ("init", np.ones((2, D + 1)), rf"\(2, {D}\)"),
    ("init", np.ones(D), rf"\(2, {D}\)"),
    ("init", changed(np.ones((2, D)), (0, 0), NAN), "NaN"),
    ("init", np.full((2, D), "a"), ""),
    ("centers", "grid", "'uniform'.*'leverage'.*'kmeans'.*grid"),
    ("centers", np.ones((5, D + 1)), rf"{D}\)"),
    ("centers", np.ones((0, D)), rf"{D}\)"),
    ("centers", np.ones(D), rf"{D}\)"),
    ("centers", changed(np.ones((4, D)), (1, 1), INF), "infinity"),
    ("centers", None, ""),
    ("n_centers", "most", "'auto'.*'all'.*most"),
    ("n_centers", M + 1, rf"\b{M}\b"),
    *[("n_centers", value, "") for value in (0, -3, 2.5, None)],
    ("criterion", "aic", "'training'.*aic"),
    *[("n_init", value, "") for value in (0, -1, 1.5, None)],
    *[("max_iter", value, "") for value in (-1, 1.5, "many", None)],
    *[("tol", value, "") for value in (-1e-9, NAN, "small", None)],
    *[("time_limit", value, "") for value in (0, -1.0, NAN, "long")],
    *[("block_size", value, "auto") for value in (0, -1, 2.5, "big", None)],
    ("n_jobs", 0, ""),
    ("callbacks", print, ""),
    ("callbacks", [3], ""),
]


@pytest.mark.parametrize(("name", "value", "pattern"), PARAMETERS, ids=lambda value: repr(value)[:30])
def test_errors_name_the_invalid_parameter(name, value, pattern):
    """Test that the error message for an invalid value names the parameter and describes the allowed values."""
    with pytest.raises((ValueError, TypeError), match=rf"(?s)\b{name}\b.*{pattern}"):
        HyperKernelRidge(**{name: value}).fit(X, Y)


def test_kernel_names_are_all_listed():
    """Test that the error message for an unknown kernel lists all kernel names."""
    with pytest.raises(ValueError, match="kernel") as error:
        HyperKernelRidge(kernel="?").fit(X, Y)
    assert all(repr(name) in str(error.value) for name in KERNELS)


def test_refuses_two_gammas():
    """Test that a kernel with a gamma and a different value of the parameter `gamma` raise an error."""
    with pytest.raises(ValueError, match="gamma"):
        HyperKernelRidge(kernel=Gaussian(gamma=1.0), gamma=2.0).fit(X, Y)


# Cases: X, y, sample_weight, and a pattern of the error message.
ARRAYS = {
    "NaN in X": (changed(X, (3, 1), NAN), Y, None, r"\bX\b.*NaN"),
    "infinity in X": (changed(X, (3, 1), -INF), Y, None, r"\bX\b.*infinity"),
    "NaN in y": (X, changed(Y, 3, NAN), None, r"\by\b.*NaN"),
    "infinity in y": (X, changed(Y, 3, INF), None, r"\by\b.*infinity"),
    "NaN in weights": (X, Y, changed(np.ones(M), 2, NAN), "sample_weight.*NaN"),
    "infinite weight": (X, Y, changed(np.ones(M), 2, INF), "sample_weight.*infinity"),
    "sparse X": (sparse.csr_array(X), Y, None, r"[Ss]parse.*\bX\b.*dense"),
    "text in X": (np.full((M, D), "a"), Y, None, r"\bX\b|string|decimal"),
    "objects in X": (changed(X.astype(object), (0, 0), "a"), Y, None, r"\bX\b|string"),
    "text in y": (X, np.full(M, "a"), None, r"\by\b|string"),
    "complex X": (X + 1j, Y, None, "[Cc]omplex"),
    "X of one dimension": (X[:, 0], Y, None, "2D"),
    "X of three dimensions": (X[None], Y, None, r"\bX\b|dim 3"),
    "y of three dimensions": (X, Y[:, None, None], None, r"\by\b|dim 3"),
    "no rows": (X[:0], Y[:0], None, r"0 sample|\bX\b.*rows"),
    "no columns": (X[:, :0], Y, None, r"0 feature|\bX\b.*columns"),
    "one row": (X[:1], Y[:1], None, r"1 sample|n_samples ?= ?1"),
    "no y": (X, None, None, r"\by\b.*None"),
    "short y": (X, Y[:-1], None, rf"{M - 1}.*{M}"),
    "long y": (X, np.append(Y, 1.0), None, rf"{M + 1}.*{M}"),
    "short weights": (X, Y, np.ones(M - 1), rf"sample_weight.*{M}"),
    "weights of two dimensions": (X, Y, np.ones((M, 2)), r"[Ss]ample.?weights?.*1D"),
    "negative weights": (X, Y, changed(np.ones(M), 0, -1.0), "(?i)sample.?weight.*negative"),
    "weights of zero": (X, Y, np.zeros(M), "(?i)sample.?weight.*(positive|non-zero)"),
    "one row of weight": (X, Y, changed(np.zeros(M), 0, 1.0), "sample_weight.*2|2.*sample_weight"),
}


@pytest.mark.parametrize("case", ARRAYS.values(), ids=ARRAYS.keys())
def test_errors_name_the_invalid_data(case):
    X, y, w, pattern = case
    with pytest.raises((ValueError, TypeError), match=rf"(?s){pattern}"):
        HyperKernelRidge().fit(X, y, w)


def test_mismatched_lengths_name_both_arguments():
    """Test that the error message for arrays of different lengths names both X and y."""
    with pytest.raises(ValueError, match=r"\bX\b.*\by\b|\by\b.*\bX\b"):
        HyperKernelRidge().fit(X, Y[:-1])


@pytest.mark.parametrize("method", ["predict", "transform"])
def test_predict_and_transform_refuse_invalid_input(method):
    model = HyperKernelRidge(max_iter=1, random_state=0)
    with pytest.raises(NotFittedError, match=r"HyperKernelRidge.*not fitted.*fit"):
        getattr(model, method)(X)
    call = getattr(model.fit(X, Y), method)
    with pytest.raises(ValueError, match=rf"X has {D + 1} features.*expecting {D}"):
        call(np.ones((2, D + 1)))
    for value, word in [(NAN, "NaN"), (INF, "infinity")]:
        with pytest.raises(ValueError, match=rf"\bX\b.*{word}"):
            call(changed(X, (0, 0), value))
    with pytest.raises(TypeError, match=r"[Ss]parse"):
        call(sparse.csr_array(X))
    with pytest.raises(ValueError, match=r"0 sample|\bX\b"):
        call(X[:0])
    with pytest.raises(ValueError, match="2D"):
        call(X[0])


def _good():
    """Return cases of unusual but valid input, keyed by name: X, y and parameters."""
    rng = np.random.default_rng(1)
    wide = rng.normal(size=(8, 20))
    readonly = X.copy()
    readonly.flags.writeable = False
    return {
        "constant target": (X, np.full(M, 3.0), {}),
        "zero target": (X, np.zeros(M), {}),
        "constant column": (np.column_stack([X, np.full(M, 7.0)]), Y, {}),
        "large constant column": (np.column_stack([X, np.full(M, 1e8 + 0.1)]), Y, {}),
        "all columns constant": (np.ones((M, D)), Y, {}),
        "duplicate rows": (np.repeat(X[:8], 3, axis=0), Y, {}),
        "duplicate rows, few centers": (np.repeat(X[:8], 3, axis=0), Y, {"n_centers": 12}),
        "duplicate rows, k-means": (
            np.repeat(X, 5, axis=0),
            np.repeat(Y, 5),
            {"centers": "kmeans", "reg_lambda": 0.01},
        ),
        "duplicate rows, leverage": (np.repeat(X[:8], 3, axis=0), Y, {"centers": "leverage"}),
        "collinear columns": (np.column_stack([X, X @ [1.0, 2.0, 3.0], X[:, 0]]), Y, {}),
        "units that differ by 1e6": (X * [1e-6, 1.0, 1e6], Y, {}),
        "far from the origin": (X + 1e6, Y, {}),
        "raw units": (X * [1e-3, 1.0, 1e3], Y, {"scale_features": False}),
        "large target": (X, 1e9 * Y, {}),
        "small target": (X, 1e-9 * Y, {}),
        "fewer rows than columns": (wide, wide[:, 0], {}),
        "one column": (X[:, :1], Y, {"n_components": 1}),
        "as many components as columns": (X, Y, {"n_components": D}),
        "two rows": (X[:2], Y[:2], {}),
        "two equal rows": (X[[0, 0]], Y[:2], {}),
        "integers": (np.rint(3 * X).astype(int), np.rint(3 * Y).astype(int), {}),
        "booleans": (X > 0, Y > 0, {}),
        "Fortran order": (np.asfortranarray(X), Y, {}),
        "strided": (np.repeat(np.repeat(X, 2, axis=0), 2, axis=1)[::2, ::2], np.repeat(Y, 2)[::2], {}),
        "reversed": (X[::-1], Y[::-1], {}),
        "read only": (readonly, Y, {}),
        "lists": (X.tolist(), Y.tolist(), {}),
        "a column of targets": (X, Y[:, None], {}),
        "one center": (X, Y, {"n_centers": 1}),
        "centers given twice": (X, Y, {"centers": X[[0, 0, 1, 1, 2]]}),
        "a tiny start": (X, Y, {"init": 1e-12 * np.eye(2, D)}),
        "almost no penalty": (X, Y, {"reg_lambda": 1e-14}),
        "a large penalty": (X, Y, {"reg_lambda": 1e3}),
    }


GOOD = _good()


PAIRS = [
    *((kernel, "lbfgs") for kernel in ("gaussian", "laplace", "anova", "product_matern32", "polynomial")),
    *((kernel, solver) for kernel in ("gaussian", "laplace") for solver in ("varpro", "agd")),
]
# Cases: name of an input, and a pair of kernel and solver. By default, each input is tried with one pair. The thorough
# tests try all pairs.
ALL = [(name, pair) for name in GOOD for pair in PAIRS]
QUICK = [(name, PAIRS[k % 5 if k % 2 else 5 + k % 4]) for k, name in enumerate(GOOD)]


@pytest.mark.filterwarnings("ignore::hkrr.HKRRWarning")  # the input is unusual
@pytest.mark.parametrize(
    ("name", "pair"), [*QUICK, *(pytest.param(*one, marks=pytest.mark.thorough) for one in ALL if one not in QUICK)]
)
def test_unusual_input_gives_finite_predictions(name, pair):
    """Test that predictions are finite and in a reasonable range, without warnings of other libraries."""
    kernel, solver = pair
    X, y, parameters = GOOD[name]
    model = HyperKernelRidge(**{"max_iter": 10, "random_state": 0} | parameters, kernel=kernel, solver=solver)
    predictions = model.fit(X, y).predict(X)
    assert predictions.shape == np.shape(y)
    assert np.all(np.isfinite(predictions))
    assert np.all(np.isfinite(model.transform(X)))
    assert np.all(np.isfinite(model.components_))
    assert np.all(np.isfinite(model.predict(np.asarray(X)[:1] + np.ones(np.shape(X)[1]))))
    spread = np.max(np.abs(y - np.mean(y)))
    assert np.max(np.abs(predictions - np.mean(y))) <= 3.0 * spread + 1e-9 * abs(np.mean(y))


@pytest.mark.parametrize("solver", ["lbfgs", "varpro", "agd"])
def test_a_constant_target_is_predicted(solver):
    """Test that a constant target is predicted exactly, up to rounding. The intercept makes this possible."""
    model = HyperKernelRidge(solver=solver, random_state=0).fit(X, np.full(M, 3.0))
    assert_allclose(model.predict(10.0 * X), 3.0, rtol=1e-12)


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value", "ignore:divide by zero")
@pytest.mark.parametrize("solver", ["lbfgs", "varpro", "agd"])
@pytest.mark.parametrize("units", [(1e200, 1.0), (1.0, 1e200)], ids=["X", "y"])
@pytest.mark.parametrize("scale_features", [True, False])
def test_numbers_whose_squares_overflow_do_not_give_a_broken_model(units, scale_features, solver):
    """Test that the fit gives finite predictions or raises an error that explains the problem."""
    model = HyperKernelRidge(solver=solver, scale_features=scale_features, max_iter=5, random_state=0)
    finite, message = False, ""
    try:
        finite = np.all(np.isfinite(model.fit(units[0] * X, units[1] * Y).predict(units[0] * X)))
    except (FitError, ValueError) as error:
        message = str(error)
    assert finite or any(word in message for word in ("finite", "scale", "large"))


@pytest.mark.parametrize("layout", [np.asfortranarray, lambda X: np.repeat(X, 2, axis=1)[:, ::2], np.ndarray.tolist])
def test_the_layout_of_memory_does_not_matter(layout):
    """Test that the memory layout of X changes predictions only by rounding, as the order of summation may differ."""
    parameters = {"kernel": "laplace", "reg_lambda": 0.1, "max_iter": 5, "random_state": 0}
    expected = HyperKernelRidge(**parameters).fit(X, Y).predict(X)
    assert_allclose(HyperKernelRidge(**parameters).fit(layout(X), Y).predict(layout(X)), expected, rtol=1e-8, atol=1e-8)


@pytest.mark.filterwarnings("ignore::hkrr.HKRRWarning")  # some data are pure noise, or have two rows
@settings(
    max_examples=60 if os.environ.get("HKRR_LONG") == "1" else 25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(
    m=st.integers(2, 30),
    D=st.integers(1, 6),
    T=st.integers(0, 3),
    share=st.floats(0.0, 1.0),
    dtype=st.sampled_from([np.float64, np.float32, np.int64, np.int8, np.bool_]),
    kernel=st.sampled_from(sorted(KERNELS)),
    solver=st.sampled_from(["lbfgs", "varpro", "agd"]),
    centers=st.sampled_from(["uniform", "leverage"]),
    weighted=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_shape_and_dtype(m, D, T, share, dtype, kernel, solver, centers, weighted, seed):
    """Test that the results have the expected shapes and dtypes and that the predictions are finite.

    The sizes, dtypes, kernels, solvers, centers and weights are random.
    """
    rng = np.random.default_rng(seed)
    X, y = (2.0 * rng.normal(size=(m, D))).astype(dtype), rng.normal(size=(m, T) if T else m)
    d, c = 1 + int(share * (D - 1)), 1 + int(share * (m - 1))
    model = HyperKernelRidge(d, kernel=kernel, solver=solver, centers=centers, n_centers=c, max_iter=3, random_state=0)
    model.fit(X, y, rng.integers(1, 4, size=m) if weighted else None)
    predictions, latent = model.predict(X), model.transform(X)
    floating = np.float32 if dtype is np.float32 else np.float64
    assert (predictions.shape, predictions.dtype) == (y.shape, floating)
    assert (latent.shape, latent.dtype) == ((m, d), floating)
    assert np.all(np.isfinite(predictions))
    assert model.components_.shape == (d, D)
    assert model.centers_.shape[1] == D
    assert model.dual_coef_.shape == (len(model.centers_), *y.shape[1:])


BOTH = (HyperKernelRidge(), HyperKernelRidgeCV())


@pytest.mark.parametrize("model", BOTH, ids=lambda model: type(model).__name__)
@pytest.mark.parametrize("y", [list("abcdefgh"), [str(k) for k in range(8)], np.array(list("abcdefgh"), dtype=object)])
def test_a_target_of_text_is_refused(model, y):
    X = np.random.default_rng(0).standard_normal((8, 2))
    with pytest.raises(ValueError, match=r"^y must be numeric for a regressor, got text \('[a0]'\)"):
        model.fit(X, y)


@pytest.mark.parametrize("model", BOTH, ids=lambda model: type(model).__name__)
def test_a_target_of_dates_is_refused(model):
    X = np.random.default_rng(0).standard_normal((8, 2))
    with pytest.raises(ValueError, match=r"^y must be numeric for a regressor, got dates or times"):
        model.fit(X, np.arange("2020-01", "2020-09", dtype="datetime64[M]"))


@pytest.mark.parametrize("model", BOTH, ids=lambda model: type(model).__name__)
@pytest.mark.parametrize("kind", ["object", "string", "category", "datetime64[ns]", "timedelta64[ns]"])
def test_a_column_that_is_not_numeric_is_named(model, kind):
    values = {
        "datetime64[ns]": pd.date_range("2020-01-01", periods=8),
        "timedelta64[ns]": pd.to_timedelta(range(8), "s"),
    }
    column = pd.Series(values.get(kind, list("abcdefgh"))).astype(kind)
    frame = pd.DataFrame({"size": np.arange(8.0), "city": column})
    with pytest.raises(ValueError, match=r"^column 'city' of X is not numeric .*OneHotEncoder, or drop it"):
        model.fit(frame, np.arange(8.0))


def test_numbers_of_dtype_object_are_accepted():
    X = np.random.default_rng(0).standard_normal((30, 2))
    plain, objects = pd.DataFrame(X, columns=["a", "b"]), pd.DataFrame(X, columns=["a", "b"]).astype({"b": object})
    one, two = (HyperKernelRidge(1, random_state=0).fit(frame, X[:, 0]).predict(plain) for frame in (plain, objects))
    assert_array_equal(one, two)


@pytest.mark.parametrize(
    ("kernel", "hint"),
    [
        ("gausian", r"did you mean 'gaussian'\?"),
        ("rbf", r"did you mean 'gaussian'\?"),
        ("auto", "'auto' is supported by HyperKernelRidgeCV with cv=None only"),
        (Gaussian, r"pass an instance, Gaussian\(\), instead of the class"),
    ],
)
def test_a_misspelled_kernel_gets_a_hint(kernel, hint):
    with pytest.raises(ValueError, match=f"kernel must be one of .*{hint}$"):
        HyperKernelRidge(kernel=kernel).fit(np.eye(4), np.arange(4.0))
