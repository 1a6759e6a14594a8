"""Conformance tests: all row sources must give the same results as rows in memory."""

from functools import cache
from itertools import pairwise, product

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from hkrr import HyperKernelRidge
from hkrr._maps import KernelExpansion
from hkrr.criteria import Evidence, LeaveOneOut
from hkrr.kernels import Anova, Gaussian, Matern, Polynomial, ProductLaplace
from hkrr.objective import Objective
from hkrr.rows import InMemoryRows, file_readers
from hkrr.rows.file_readers import open_source
from hkrr.rows.file_rows import FileRows
from hkrr.rows.torch_device import TorchRows

# Kinds of row sources. "factory" is a function that returns blocks of rows. "array" and "frame" are Dask collections.
# The kinds in WEIGHTED take sample weights.
FILES = ["parquet", "csv", "npy"]
WEIGHTED = ["blocks of 97", "one block", "two threads", "torch", "torch, blocks of 97"]
KINDS = [*WEIGHTED, *FILES, "factory", "array", "frame"]
SEVERAL_TARGETS = [kind for kind in KINDS if kind not in (*FILES, "frame")]
OPTIONS = {
    "blocks of 97": {"block_size": 97},
    "one block": {"block_size": 10_000},
    "two threads": {"n_threads": 2, "block_size": 150},
    "torch, blocks of 97": {"block_size": 97},
}
# Numbers of rows in the tests of row sources and of fits. Files are read in chunks of 1,024 rows (CSV files: of 16 kB).
# Neither number is a multiple of a chunk.
M, M_FIT = 1303, 4211


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(file_readers, "CHUNK_BYTES", 16 << 10)


@cache
def _data(m=M, D=3, T=1, dtype=np.float64):
    """Return data of a planted model with one direction. The columns have different means and scales."""
    rng = np.random.default_rng([m, D, T])
    X = (rng.normal(size=(m, D)) * np.logspace(0, 1, D) + np.arange(D)).astype(dtype)
    Z = X / np.logspace(0, 1, D)
    y = np.sin(Z[:, 0] + 0.5 * Z[:, 1]) + 0.3 * rng.normal(size=m)
    return X, y if T == 1 else np.column_stack([y, *(Z[:, k] ** 2 for k in range(T - 1))])


def _frame(X, y):
    return pd.DataFrame({"x0": X[:, 0], "y": y, **{f"x{k}": X[:, k] for k in range(1, X.shape[1])}})


def _files(kind, folder, X, y):
    """Write two files with the target between the other columns. For npy and Parquet, also write an empty file."""
    table = _frame(X, y)
    cuts = [0, *([] if kind == "csv" else [0]), int(0.85 * len(X)), len(X)]
    save = {
        "parquet": lambda path, part: part.to_parquet(path, index=False, row_group_size=300),
        "csv": lambda path, part: part.astype(float).to_csv(
            path, index=False
        ),  # the shortest decimal form of a float32 is a different float64
        "npy": lambda path, part: np.save(path, part.to_numpy()),
    }[kind]
    paths = [folder / f"{k}.{kind}" for k in range(len(cuts) - 1)]
    for path, (start, stop) in zip(paths, pairwise(cuts), strict=True):
        save(path, table.iloc[start:stop])
    return paths, 1 if kind == "npy" else "y"


def _as_input(kind, folder, X, y):
    """Return X and y in a form that `fit` accepts."""
    if kind in FILES:
        return _files(kind, folder, X, y)
    if kind.startswith("torch"):
        return torch.as_tensor(X), torch.as_tensor(y)
    if kind == "factory":
        return lambda: ((X[k : k + 300], y[k : k + 300]) for k in range(0, len(X), 300)), None
    if kind == "array":
        import dask.array as da

        uneven = ((1, 500, 2, len(X) - 503), (X.shape[1],))
        return da.from_array(X, chunks=uneven), da.from_array(y, chunks=(700, 1)[: y.ndim])
    if kind == "frame":
        import dask.dataframe as dd

        return dd.from_pandas(_frame(X, y), npartitions=3), "y"
    return X, y


@pytest.fixture
def given(request, tmp_path):
    """Return the function `_as_input` with a temporary folder. For Dask collections it starts a client."""

    def inputs(kind, X, y):
        if kind in ("array", "frame"):
            request.getfixturevalue("client")
        return _as_input(kind, tmp_path, X, y)

    return inputs


@pytest.fixture
def make(given):
    """Return a function that creates a row source of a given kind."""

    def rows(kind, X, y, w=None):
        X, y = given(kind, X, y)
        if kind in ("array", "frame"):
            from hkrr.rows.dask import DaskRows

            return DaskRows(X, y) if kind == "array" else DaskRows(X.drop(columns="y"), X["y"])
        if kind in FILES or kind == "factory":
            return FileRows(open_source(X, y), block_size=101)
        if kind.startswith("torch"):
            return TorchRows(X, y, w, device="cpu", **OPTIONS.get(kind, {}))
        return InMemoryRows(X, y, w, **OPTIONS[kind])

    return rows


def _coordinates(X, y):
    return X.mean(axis=0, dtype=np.float64), X.std(axis=0, dtype=np.float64), np.atleast_1d(y.mean(axis=0))


def _terms(X, Y, w, B, shift):
    P = X @ B.T + shift
    Q = P if w is None else w[:, None] * P
    return P.T @ Q, Q.T @ Y, (P * Q).sum(), len(X)


def _check_same(found, expected):
    """Check that the arrays are bitwise equal, or that both are None."""
    for a, b in zip(found, expected, strict=True):
        assert (a is None) == (b is None)
        assert_array_equal(a, b)


def _check_alike(rows, expected):
    """Check that two row sources give the same results for every method."""
    for name in ("n_rows", "n_counted", "n_features", "n_free_columns", "n_targets"):
        assert getattr(rows, name) == getattr(expected, name), name
    assert_allclose(rows.total_weight, expected.total_weight, rtol=1e-14)

    small = np.arange(2.0 * rows.n_features).reshape(2, -1) / 3.0, np.ones(2)
    for a, b in zip(rows.fetch(*rows.sum(_terms, 40, *small)), expected.sum(_terms, 40, *small), strict=True):
        # Adding m terms of equal size in a different order changes the sum by a factor of m eps at most, about 1e-12.
        assert_allclose(a, b, rtol=1e-12, atol=1e-12 * np.max(np.abs(b)))
    # `Rows.map` returns the results in the order of the rows, bitwise equal to those of rows in memory.
    scale = np.linspace(1.0, 2.0, rows.n_features)
    for fn in (lambda X, Y, w, scale: (X[:, 0] * scale[0] + Y[:, -1],), lambda X, Y, w, scale: ((X - scale) * X,)):
        assert_array_equal(rows.map(fn, 40, scale), expected.map(fn, 40, scale))

    some = np.random.RandomState(3).randint(rows.n_rows, size=60)  # indices that are unsorted and repeated
    assert_array_equal(rows.take(some), expected.take(some))
    _check_same(rows.gather(), expected.gather())
    _check_same(rows.in_memory().gather(), expected.gather())
    for indices in (some, np.array([rows.n_rows - 1])):
        part = rows.subset(indices)
        assert isinstance(part, InMemoryRows)
        assert part.total_weight == expected.subset(indices).total_weight
        _check_same(part.gather(), expected.subset(indices).gather())

    one, other = np.random.RandomState(7), np.random.RandomState(7)
    for n in (1, 37, rows.n_rows, 10 * rows.n_rows):
        assert_array_equal(rows.draw(n, one), expected.draw(n, other))
    assert one.randint(2**31) == other.randint(2**31)


@pytest.mark.parametrize(
    ("kind", "T", "dtype"),
    [*product(KINDS, [1], [np.float64, np.float32]), *product(SEVERAL_TARGETS, [3], [np.float64])],
)
def test_rows_match_rows_in_memory(make, kind, T, dtype):
    X, y = _data(T=T, dtype=dtype)
    rows, expected = make(kind, X, y), InMemoryRows(X, y)
    coordinates = _coordinates(X, y)
    _check_alike(rows, expected)
    _check_alike(rows.with_coordinates(*coordinates), expected.with_coordinates(*coordinates))
    moved = rows.with_coordinates(coordinates[0], None, None)
    assert_array_equal(moved.take(np.arange(9)), X[:9].astype(np.float64) - coordinates[0])
    assert_array_equal(rows.take(np.arange(9)), X[:9].astype(np.float64))  # the original row source is unchanged


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
@pytest.mark.parametrize("kind", WEIGHTED)
def test_weighted_rows_match_rows_in_memory(make, kind, dtype):
    (X, y), w = _data(T=2), np.random.default_rng(5).integers(0, 4, M).astype(dtype)
    rows, expected = make(kind, X, y, w), InMemoryRows(X, y, w)
    assert rows.n_counted == np.count_nonzero(w) < rows.n_rows
    _check_alike(rows, expected)
    _check_alike(rows.with_coordinates(*_coordinates(X, y)), expected.with_coordinates(*_coordinates(X, y)))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not kind.startswith(("torch", "array", "frame"))])
def test_threads_do_not_change_the_results(make, kind):
    rows = make(kind, *_data())
    _check_same(*(part.sum(_terms, 9, np.ones((2, 3)), np.ones(2)) for part in (rows, rows.on_threads(2))))


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_in_a_block_is_passed_on(make, kind):
    def broken(X, Y, w):
        raise ZeroDivisionError("an error in a block of rows")

    rows = make(kind, *_data())
    for method in ("sum", "map"):
        with pytest.raises(ZeroDivisionError, match="in a block"):
            getattr(rows, method)(broken)


# Kernels, a map and five centers for which K_cc, the kernel matrix of the centers, is well conditioned. A quadratic
# polynomial kernel in two dimensions has 6 features, so five centers are not too many. The centers are far apart
# compared with the length scales. No two centers share a coordinate, because product kernels have kinks there. The
# condition number of K_cc is then a few hundred at most. If sums agree to 1e-12, the solutions therefore agree to
# better than 1e-9.
KERNELS = [Gaussian(gamma=2.0), Matern(nu=1.5, gamma=1.0), ProductLaplace(gamma=0.5), Anova(nu=1.5, gamma=0.5)]
KERNELS.append(Polynomial(degree=2, coef0=1.0, gamma=1.0))
MAP = np.array([[1.0, 0.5, -0.3], [-0.2, 0.8, 1.0]])
CENTERS = np.array([[0, 0], [2, 0.2], [-2, 0.5], [0.3, 2], [-0.2, -2]]) @ np.linalg.pinv(MAP).T


@pytest.mark.parametrize(
    "criterion", [Evidence, *(pytest.param(one, marks=pytest.mark.thorough) for one in (Objective, LeaveOneOut))]
)
@pytest.mark.parametrize("kind", KINDS[:-1])  # Dask data frames are converted to Dask arrays, so one type is enough
def test_criteria_are_the_same(make, kind, criterion):
    X, y = _data(T=2 if kind in SEVERAL_TARGETS else 1)
    both = [rows.with_coordinates(*_coordinates(X, y)) for rows in (make(kind, X, y), InMemoryRows(X, y))]
    for kernel in KERNELS:
        assert np.linalg.cond(kernel(CENTERS @ MAP.T, CENTERS @ MAP.T)) < 1e3
        _check_reduced(*(criterion(rows, CENTERS, kernel, 1e-2).reduced(MAP) for rows in both))


@pytest.mark.parametrize("kind", KINDS)
def test_all_rows_as_centers_are_the_same(make, kind):
    X, y = (part[:607] for part in _data())
    both = (rows.with_coordinates(*_coordinates(X, y)) for rows in (make(kind, X, y), InMemoryRows(X, y)))
    _check_reduced(*(Objective(rows, None, KERNELS[1], 1e-2).reduced(MAP) for rows in both))


def _check_reduced(found, expected):
    for name, b in vars(expected).items():
        assert isinstance(getattr(found, name), type(b)), name
        if b is not None:
            assert_allclose(getattr(found, name), b, rtol=1e-9, atol=1e-9 * np.max(np.abs(b)), err_msg=name)


# Settings for which rounding errors of the sums change the optimum by 1e-9 only, well below the documented 1e-6: a
# kernel that is not smooth, few centers, noise, a lambda near 1e-2 and converged fits. With a smooth kernel and many
# centers in one direction, K_cc would be singular up to rounding. The result of a fit that stops early would depend on
# rounding too.
SETTINGS = [
    {"reg_lambda": 1e-2, "centers": "leverage"},
    {"reg_lambda": "auto", "criterion": "evidence"},
    {"reg_lambda": 1e-2, "criterion": "loo", "centers": "kmeans", "scale_features": False, "fit_intercept": False},
]


@cache
def _reference(setting):
    return _estimator(n_jobs=1, **SETTINGS[setting]).fit(*_data(M_FIT))


def _estimator(**options):
    return HyperKernelRidge(1, **{"kernel": "matern32", "n_centers": 20, "n_init": 2, "random_state": 0, **options})


@pytest.mark.parametrize(
    ("kind", "setting"),
    [
        *((kind, 0) for kind in ["csv", "factory", "array", "device"]),
        *(("torch", 1), ("npy", 1), ("parquet", 2)),
        *(
            pytest.param(kind, 0, marks=pytest.mark.thorough)
            for kind in sorted(set(KINDS) - {"csv", "factory", "array"})
        ),
        *(pytest.param(kind, 2, marks=pytest.mark.thorough) for kind in ("torch", "factory")),
    ],
)
def test_fits_are_the_same(given, kind, setting):
    """Test that fits to all row sources agree with the fit in memory.

    There are more than 4,000 rows, so the starting map is chosen on a subsample.
    """
    options = {"device": "cpu"} if kind == "device" else dict(OPTIONS.get(kind, {}))
    model = _estimator(n_jobs=options.pop("n_threads", 1), **options, **SETTINGS[setting])
    _check_model(model.fit(*given(kind, *_data(M_FIT))), _reference(setting))


@pytest.mark.parametrize("kind", KINDS)
def test_a_diagonal_map_is_a_vector(make, kind):
    """Test that sums and predictions are the same for a diagonal map stored as a vector and as a matrix."""
    X, y = _data()
    b, kernel = np.array([0.5, 0.2, 0.01]), Gaussian(gamma=1.0)
    expected = Objective(InMemoryRows(X, y), X[:7], kernel, 1e-2)
    alpha = expected.solve_alpha(np.diag(b))
    rows = make(kind, X, y)
    found = Objective(rows, X[:7], kernel, 1e-2)
    assert_allclose(found.solve_alpha(b), alpha, rtol=1e-8, atol=1e-8 * np.max(np.abs(alpha)))
    value, grad = found.value_and_grad_B(b, alpha)
    other_value, other_grad = expected.value_and_grad_B(np.diag(b), alpha)
    assert value == pytest.approx(other_value, rel=1e-10)
    assert_allclose(grad, np.diag(other_grad), rtol=1e-8, atol=1e-10)
    predicted = KernelExpansion(kernel, b, X[:7], alpha, 0.3, X[0]).of_rows(rows)
    assert_allclose(predicted, KernelExpansion(kernel, np.diag(b), X[:7], alpha, 0.3, X[0]).at(X), rtol=1e-9, atol=1e-9)


def _check_model(model, expected):
    assert model.result_.reason == expected.result_.reason == "converged"
    assert_array_equal(model.centers_, expected.centers_)
    assert model.intercept_ == expected.intercept_
    assert_allclose(model.components_, expected.components_, rtol=0.0, atol=1e-6)
    # The tolerance is the first-order effect of an error of 1e-6 in the map, times ten for the curvature.
    for name in ("gamma_", "reg_lambda_"):
        assert_allclose(getattr(model, name), getattr(expected, name), rtol=1e-5)
    assert_allclose(model.dual_coef_, expected.dual_coef_, rtol=0.0, atol=1e-5 * np.max(np.abs(expected.dual_coef_)))


@pytest.mark.parametrize("setting", [{"n_centers": "all"}, {"criterion": "evidence"}], ids=["all", "repeated"])
@pytest.mark.parametrize("kind", ["torch", "factory", pytest.param("parquet", marks=pytest.mark.thorough)])
def test_fits_are_the_same_where_rows_in_memory_are_merged(given, kind, setting):
    """Test that fits agree with fits in memory in cases in which identical rows in memory are merged.

    Such cases are fits with all rows as centers (the default up to 1,000 rows), and fits by the evidence. In the second
    case, some rows are repeated.
    """
    X, y = (np.concatenate([part[:520], part[:40]]) if "criterion" in setting else part[:520] for part in _data())
    _check_model(*(_estimator(reg_lambda=1e-2, **setting).fit(*data) for data in (given(kind, X, y), (X, y))))
