"""Tests of the transform of columns to normal scores, alone and as the coordinates of every kind of row source."""

from functools import cache
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm, rankdata

from hkrr.rows import InMemoryRows, column_transform, file_readers
from hkrr.rows.column_transform import ColumnTransform
from hkrr.rows.file_readers import open_source
from hkrr.rows.file_rows import FileRows
from hkrr.rows.reweighted import ReweightedRows
from hkrr.rows.standardize import Moments, moments, standardize
from hkrr.rows.torch_device import TorchRows

# Number of knots, number of values above which a column is ranked, and largest normal score.
KNOTS, FEW, MOST = column_transform._KNOTS, 10, 3.0
# Number of rows of most columns below. Each distinct value is a knot if there are fewer rows than knots.
N = 100


def _scores(column):
    """Return the normal scores of the distinct values of a column, in increasing order."""
    ranks = (rankdata(column) - 0.5) / len(column)  # equal values have the mean of their ranks 1, ..., n
    scores = dict(zip(column, np.clip(norm.ppf(ranks), -MOST, MOST), strict=True))
    return np.array([scores[value] for value in sorted(scores)])


def _oracle(training, x, center, scale):
    """Return the transform of the numbers x, if each distinct training value is a knot."""
    values = np.unique(training)
    if len(values) <= FEW:
        return (x - center) / scale
    return np.interp(x, values, _scores(training))


def _fit(X, center=None, scale=None):
    """Return the transform of the columns of X. The default center and scale of a column are 0 and 1."""
    D = X.shape[1]
    return ColumnTransform.to_normal_scores(
        X, np.zeros(D) if center is None else center, np.ones(D) if scale is None else scale
    )


def _column(name, n=N, seed=0):
    """Return a column of n values."""
    rng = np.random.default_rng([seed, n, *name.encode()])
    z = rng.normal(size=n)
    small = rng.integers(0, 2, size=n) == 0
    return {
        "normal": lambda: z,
        "negative": lambda: -5.0 - np.exp(z),
        "lognormal": lambda: np.exp(20.0 * z),
        "two scales": lambda: np.where(small, 1e-6 * z, 1e6 * z),
        "two groups": lambda: np.where(small, z, 1e9 + z),
        "huge": lambda: 1e300 * z,
        "tiny": lambda: 1e-300 * z,
        "subnormal": lambda: 5e-324 * rng.permutation(n),
        "huge and tiny": lambda: np.where(small, 1e-300 * z, 1e300 * z),
        "ties": lambda: np.round(5.0 * z),
        "mostly zero": lambda: np.where(rng.uniform(size=n) < 0.6, 0.0, z),
        "11 values": lambda: np.append(rng.permutation(11.0 + np.arange(11)), rng.integers(11, 22, size=n - 11)),
        "10 values": lambda: np.append(rng.permutation(10.0 + np.arange(10)), rng.integers(10, 20, size=n - 10)),
        "3 values": lambda: rng.choice([-2.0, 0.5, 7.0], size=n),
        "2 values": lambda: 1.0 * small,
        "constant": lambda: np.full(n, 5.0),
        "zero": lambda: np.zeros(n),
    }[name]()


STANDARDIZED = ["10 values", "3 values", "2 values", "constant", "zero"]
RANKED = [
    *("normal", "negative", "lognormal", "two scales", "two groups", "huge", "tiny", "subnormal", "huge and tiny"),
    *("ties", "mostly zero", "11 values"),
]


def _units(x):
    """Return a center and a scale of a column: about its mean and its standard deviation."""
    size = max(np.max(np.abs(x)), np.finfo(float).tiny)
    return np.mean(x / size) * size, np.std(x / size) * size or 1.0


def _table():
    """Return the columns of all kinds as one table, their centers and their scales."""
    X = np.column_stack([_column(name) for name in (*RANKED, *STANDARDIZED)])
    center, scale = np.array([_units(x) for x in X.T]).T
    return X, center, scale


def _points(x, seed=0):
    """Return numbers in, between and outside the values of a column."""
    values, rng = np.unique(x), np.random.default_rng(seed)
    between = values[:-1] + rng.uniform(size=len(values) - 1) * np.diff(values)
    width = np.ptp(values) or 1.0
    outside = [values[0] - 1e-3 * width, values[0] - 5.0 * width, values[-1] + 1e-3 * width, values[-1] + 5.0 * width]
    return np.concatenate([values, between, outside])


# ------------------------------------------------------------------------------------ the function of a column


@pytest.mark.parametrize("name", [*RANKED, *STANDARDIZED])
@pytest.mark.parametrize("n", [40, N, KNOTS - 1])
def test_columns_match_the_oracle(name, n):
    """Test the transform at training values, between them and outside their range.

    The tolerance is a multiple of the rounding errors of scores of at most 3, and of standardized values.
    """
    x = _column(name, n)
    center, scale = _units(x)
    transform = _fit(x[:, None], np.array([center]), np.array([scale]))
    assert transform.ranked.tolist() == ([0] if name in RANKED else [])
    points = _points(x)
    found = transform(points[:, None])[:, 0]
    expected = _oracle(x, points, center, scale)
    assert_allclose(found, expected, rtol=1e-13, atol=1e-13 * (1.0 + abs(center) / scale))


def test_normal_scores_by_hand():
    """Test the scores of eleven values, of which one occurs twice."""
    x = np.array([3.0, 1.0, 2.0, 2.0, 10.0, 9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 11.0])
    found = _fit(x[:, None])(np.array([[1.0], [2.0], [3.0], [11.0], [2.5], [0.0], [12.0]]))[:, 0]
    first, second, third, last = norm.ppf(np.array([0.5, 2.0, 3.5, 11.5]) / 12.0)
    assert_allclose(found, [first, second, third, last, 0.5 * (second + third), first, last], rtol=1e-14)


@pytest.mark.parametrize("name", ["10 values", "3 values", "2 values"])
def test_columns_with_few_values_are_not_clipped(name):
    x = _column(name)
    center, scale = _units(x)
    transform = _fit(x[:, None], np.array([center]), np.array([scale]))
    far = center + scale * np.array([-1e9, -1e3, -7.5, -1.0, 0.0, 0.3, 2.0, 500.0, 1e9])
    assert_allclose(transform(far[:, None])[:, 0], (far - center) / scale, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("value", [0.0, 5.0, -1e3, 1.7e18, 1e300])
def test_a_constant_column_is_zero(value):
    """Test a column whose center is its value and whose scale is 1, as in `Moments`."""
    transform = _fit(np.full((30, 1), value), np.array([value]), np.ones(1))
    assert_array_equal(transform(np.full((4, 1), value)), np.zeros((4, 1)))


@pytest.mark.parametrize("shift", [1e3, 1e6, 1e9])
def test_a_large_mean_of_few_values(shift):
    """Test that the error is at most the rounding error of the mean, in units of the scale."""
    x = shift + np.random.default_rng(0).integers(0, 5, size=50)
    center, scale = np.array([np.mean(x)]), np.array([np.std(x)])
    found = _fit(x[:, None], center, scale)(x[:, None])
    assert_allclose(found[:, 0], (x - center) / scale, atol=8.0 * np.finfo(float).eps * shift / scale[0])


@pytest.mark.parametrize("n", [N, 3000])
@pytest.mark.parametrize("name", RANKED)
def test_values_outside_the_range_are_clipped(name, n):
    x = _column(name, n)
    transform = _fit(x[:, None])
    lowest, highest = transform(np.array([[np.min(x)], [np.max(x)]]))[:, 0]
    assert_allclose([lowest, highest], _scores(x)[[0, -1]], rtol=1e-13)
    step = max(np.ptp(x), 1e-300)
    far = [np.min(x) - step, np.min(x) - 1e6 * step, -1.7e308, np.max(x) + step, np.max(x) + 1e6 * step, 1.7e308]
    assert_array_equal(transform(np.array(far)[:, None])[:, 0], np.repeat([lowest, highest], 3))


# Columns with more rows than knots: continuous values, many ties, and a value that most of the rows have.
LONG = ["normal", "lognormal", "two scales", "ties", "mostly zero", "11 values", "huge and tiny"]


def _bounds(x):
    """Return bounds of the transform at the distinct values of a column, if not each of them is a knot.

    The ranks (divided by n) of the two knots around a value are at most a step below, and at most a step and a gap
    above the rank of the value. The step is the range of the ranks divided by the number of knots - 1. The gap is the
    largest difference of the ranks of adjacent values. The exact score and the interpolated score both lie between the
    scores of the knots.
    """
    ranks = np.unique((rankdata(x) - 0.5) / len(x))
    step, gap = (ranks[-1] - ranks[0]) / (KNOTS - 1), np.max(np.diff(ranks))
    low, high = np.clip([ranks - 1.0001 * step, ranks + 1.0001 * (step + gap)], ranks[0], ranks[-1])
    return [np.clip(norm.ppf(one), -MOST, MOST) for one in (low, high)]


@pytest.mark.parametrize("n", [300, 1000, 20_000])
@pytest.mark.parametrize("name", LONG)
def test_more_rows_than_knots(name, n):
    x = _column(name, n)
    transform = _fit(x[:, None])
    assert transform.knots.shape == transform.values.shape == (1, KNOTS)
    found, scores = transform(np.unique(x)[:, None])[:, 0], _scores(x)
    low, high = _bounds(x)
    assert np.all((found >= low - 1e-12) & (found <= high + 1e-12))
    assert_allclose(found[[0, -1]], scores[[0, -1]], rtol=1e-12)
    # The knots are values of the column with their exact scores.
    at_knots = np.isin(np.unique(x), transform.knots)
    assert np.count_nonzero(at_knots) == len(np.unique(transform.knots))
    assert_allclose(found[at_knots], scores[at_knots], rtol=1e-12, atol=1e-12)
    if name == "11 values":  # the ranks of two values differ by more than the step
        assert_allclose(found, scores, rtol=1e-12, atol=1e-12)
    if name == "normal":
        # The error of a score is less than the distance of the scores at two knots.
        middle = np.abs(scores) < 1.0
        assert np.max(np.abs(found - scores)[middle]) < 1.0 / ((KNOTS - 1) * norm.pdf(1.0))
        assert np.count_nonzero(at_knots) > 0.9 * KNOTS


@pytest.mark.parametrize("n", [300, 1000])
def test_columns_with_fewer_values_than_knots_are_exact(n):
    """Test columns with more rows than knots, and a value that most rows have."""
    x = np.append(np.zeros(n - KNOTS + 20), np.exp(np.linspace(-5.0, 5.0, KNOTS - 20)))
    values = np.unique(x)
    assert len(values) < KNOTS
    assert_allclose(_fit(x[:, None])(values[:, None])[:, 0], _scores(x), rtol=1e-12, atol=1e-12)


def test_the_arrays_of_a_transform():
    X, center, scale = _table()
    transform = _fit(X, center, scale)
    assert_array_equal(transform.ranked, np.arange(len(RANKED)))
    assert transform.knots.shape == transform.values.shape == (len(RANKED), KNOTS)
    assert np.all(np.diff(transform.knots, axis=1) >= 0)
    assert np.all(np.diff(transform.values, axis=1) >= 0)
    assert np.all(np.abs(transform.values) <= MOST)
    for j, knots in enumerate(transform.knots):
        assert_array_equal(np.unique(knots), np.unique(X[:, j]))
    for name, expected in (("center", center), ("scale", scale)):
        assert_array_equal(getattr(transform, name), expected)


def test_each_column_has_its_own_function():
    X, center, scale = _table()
    found = _fit(X, center, scale)(X)
    for j in range(X.shape[1]):
        one = [j]
        assert_array_equal(found[:, one], _fit(X[:, one], center[one], scale[one])(X[:, one]))


def test_the_order_of_the_rows_does_not_matter():
    X, center, scale = _table()
    order = np.random.default_rng(1).permutation(N)
    transform, other = _fit(X, center, scale), _fit(X[order], center, scale)
    assert np.any(X[order] != X)
    for name in ("knots", "values", "ranked"):
        assert_array_equal(getattr(other, name), getattr(transform, name))
    assert_array_equal(transform(X)[order], other(X[order]))


INCREASING = {
    "affine": lambda x: 1e-5 + 1e200 * x,
    "cube": lambda x: x**3,
    "exp": np.exp,
    "tanh": np.tanh,
    "two slopes": lambda x: np.where(x < 0, 1e-8 * x, 1e8 * x),
    "jump": lambda x: x + 1e6 * (x > 0.0),
}


@pytest.mark.parametrize("name", ["normal", "ties", "mostly zero", "11 values"])
@pytest.mark.parametrize("function", INCREASING.values(), ids=INCREASING)
def test_scores_do_not_change_under_increasing_functions(name, function):
    """Test that the scores of the training values are bitwise the same, because all of them are knots."""
    x = _column(name) / 10.0
    other = function(x)
    assert len(np.unique(other)) == len(np.unique(x))
    assert np.max(np.abs(other - x)) > 1e-3
    assert_array_equal(_fit(other[:, None])(other[:, None]), _fit(x[:, None])(x[:, None]))


@pytest.mark.parametrize("name", RANKED)
def test_scores_change_sign_under_a_decreasing_function(name):
    x = _column(name)[:, None]
    assert_allclose(_fit(-x)(-x), -_fit(x)(x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.float16])
def test_other_dtypes_are_converted_to_float64(dtype):
    rng = np.random.default_rng(0)
    X = (30.0 * rng.normal(size=(N, 2)) * [1.0, 4.0]).astype(dtype)
    X[:, 1] = rng.integers(0, 3, size=N)
    units = np.mean(X, axis=0, dtype=np.float64), np.std(X, axis=0, dtype=np.float64)
    transform, expected = _fit(X, *units), _fit(X.astype(np.float64), *units)
    assert transform.ranked.tolist() == [0]
    for name in ("knots", "values"):
        assert_array_equal(getattr(transform, name), getattr(expected, name), strict=True)
    assert_array_equal(transform(X), expected(X.astype(np.float64)), strict=True)
    center, scale = (one[0] for one in units)
    assert_allclose(transform(X)[:, 0], _oracle(X[:, 0].astype(np.float64), X[:, 0], center, scale), atol=1e-13)


def test_linearity():
    """Test that the linearity is the squared correlation between a column and its scores, in any units."""
    X = _table()[0]
    X = X[:, [name not in ("huge", "huge and tiny", "tiny", "subnormal") for name in (*RANKED, *STANDARDIZED)]]
    transform = _fit(X)
    expected = [np.corrcoef(X[:, j], transform(X)[:, j])[0, 1] ** 2 for j in transform.ranked]
    linearity = transform.linearity(X)
    assert_allclose(linearity[transform.ranked], expected, rtol=1e-9)
    assert np.all(np.delete(linearity, transform.ranked) == 1.0)
    assert len(expected) == 8
    assert np.ptp(expected) > 0.5
    x = _column("lognormal")[:, None] / 1e10
    for units in (1e-150, 1e150):
        assert_allclose(_fit(units * x).linearity(units * x), _fit(x).linearity(x), rtol=1e-9)
    assert_allclose(_fit(_column("normal", 5000)[:, None]).linearity(_column("normal", 5000)[:, None]), 1.0, atol=0.01)


def test_the_data_are_not_changed():
    X, center, scale = _table()
    before = X.copy()
    transform = _fit(X, center, scale)
    transform.inverse(transform(X))
    assert_array_equal(X, before)


# ------------------------------------------------------------------------------------ monotonicity and inverse

NUMBERS = st.floats(-1e300, 1e300, allow_nan=False)


@settings(max_examples=200, deadline=None)
@given(
    training=st.lists(NUMBERS, min_size=FEW + 1, max_size=40, unique=True),
    repeats=st.lists(st.integers(0, 39), max_size=30),
    points=st.lists(NUMBERS, min_size=1, max_size=20),
)
def test_the_transform_is_monotone(training, repeats, points):
    """Test sorted points, among them the training values and their neighbors in floating point arithmetic.

    A value is the sum of a score and a part of the difference of two scores, so its rounding error is a few units in
    the last digit of 3.
    """
    x = np.array([*training, *(training[k % len(training)] for k in repeats)])
    transform = _fit(x[:, None])
    assert transform.ranked.tolist() == [0]
    points = np.sort([*points, *x, *np.nextafter(x, -np.inf), *np.nextafter(x, np.inf)])
    found = transform(points[:, None])[:, 0]
    rounding = 4.0 * MOST * np.finfo(float).eps
    assert np.all(np.diff(found) >= -rounding)
    scores = _scores(x)
    assert np.all((found >= scores[0] - rounding) & (found <= scores[-1] + rounding))
    assert_allclose(transform(np.unique(x)[:, None])[:, 0], scores, rtol=1e-12, atol=1e-12)


@settings(max_examples=100, deadline=None)
@given(
    training=st.lists(st.integers(-5, 4), min_size=2, max_size=40),
    center=st.floats(-10.0, 10.0),
    scale=st.floats(1e-3, 1e3),
    points=st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=20),
)
def test_a_standardized_column_is_increasing(training, center, scale, points):
    transform = _fit(np.array(training, dtype=float)[:, None], np.array([center]), np.array([scale]))
    assert transform.ranked.tolist() == []
    points = np.sort(points)
    found, expected = transform(points[:, None])[:, 0], (points - center) / scale
    rounding = 1e-12 * (abs(center) + np.max(np.abs(points)) + scale) / scale
    assert_allclose(found, expected, rtol=0.0, atol=rounding)
    assert np.all(np.diff(found) >= -rounding)


@pytest.mark.parametrize("name", [*RANKED, *STANDARDIZED])
def test_the_inverse_of_the_transform(name):
    """Test that `inverse` returns the points within the range of the training values.

    A score has a rounding error of about 1e-15. Where the distance of two scores is delta, this changes the inverse by
    1e-15 / delta times the distance of the knots on either side.
    """
    x = _column(name)
    center, scale = _units(x)
    transform = _fit(x[:, None], np.array([center]), np.array([scale]))
    points = np.sort(np.clip(_points(x), np.min(x), np.max(x)))
    back = transform.inverse(transform(points[:, None]))[:, 0]
    if name in STANDARDIZED:
        assert_allclose(back, points, rtol=1e-12, atol=1e-12 * scale)
        return
    values = np.unique(x)
    width, delta = np.diff(values), np.diff(_scores(x))
    slopes = np.append(np.append(0.0, width / delta), 0.0)
    right = np.searchsorted(values, points)
    tolerance = 1e-14 * np.maximum(
        np.maximum(slopes[right], slopes[np.minimum(right + 1, len(values))]), np.abs(points)
    )
    assert np.all(np.abs(back - points) <= tolerance + 1e-323)


@pytest.mark.parametrize("n", [N, 3000])
@pytest.mark.parametrize("name", ["normal", "lognormal", "negative", "two scales"])
def test_the_transform_of_the_inverse(name, n):
    """Test scores within their range, also if more than one value has the score 3 (3,000 rows)."""
    x = _column(name, n)
    transform = _fit(x[:, None])
    lowest, highest = _scores(x)[[0, -1]]
    assert (highest == MOST) == (n == 3000)
    scores = np.linspace(lowest, highest, 500)
    assert_allclose(transform(transform.inverse(scores[:, None]))[:, 0], scores, rtol=1e-9, atol=1e-9)


def test_the_inverse_clips_scores_of_ranked_columns_only():
    X = np.column_stack([_column("lognormal"), _column("3 values")])
    center, scale = X.mean(axis=0), X.std(axis=0)
    found = _fit(X, center, scale).inverse(np.array([[-50.0, -50.0], [50.0, 50.0]]))
    assert_array_equal(found[:, 0], [np.min(X[:, 0]), np.max(X[:, 0])])
    assert_allclose(found[:, 1], center[1] + np.array([-50.0, 50.0]) * scale[1], rtol=1e-12)


# ------------------------------------------------------------------------------------ moments


def test_moments_for_transformed_columns():
    X = np.column_stack([_column("lognormal"), _column("3 values"), _column("constant")])
    y = np.random.default_rng(0).normal(size=N)
    found = moments(InMemoryRows(X, y))
    assert found.transformed(None) is found
    transform = _fit(X, found.x_mean, found.x_scale)
    other = found.transformed(transform)
    assert isinstance(other, Moments)
    assert other.transform is transform
    assert found.transform is None
    assert_array_equal(other.y_mean, found.y_mean)
    points = X[::-1] * 1.1
    expected = transform(points)
    expected[:, 2] = 0.0
    assert_array_equal(other.coordinates(points), expected)
    assert_array_equal(other.original(expected), expected)  # in units of the transformed columns


# ------------------------------------------------------------------------------------ row sources

# Kinds of row sources, as in test_rows_conformance.py. The kinds in WEIGHTED take sample weights.
FILES = ["parquet", "csv", "npy"]
WEIGHTED = ["blocks of 97", "one block", "two threads", "torch", "torch, blocks of 97"]
KINDS = [*WEIGHTED, *FILES, "factory", "array", "frame"]
OPTIONS = {
    "blocks of 97": {"block_size": 97},
    "one block": {"block_size": 10_000},
    "two threads": {"n_threads": 2, "block_size": 150},
    "torch, blocks of 97": {"block_size": 97},
}
M = 703


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(file_readers, "CHUNK_BYTES", 16 << 10)


@cache
def _data(T=1, dtype=np.float64):
    """Return X, y, weights, and a transform that was learned from half of the rows."""
    rng = np.random.default_rng(T)
    X = np.column_stack(
        [np.exp(3.0 * rng.normal(size=M)), _column("two scales", M), rng.integers(0, 3, size=M), rng.normal(size=M)]
    ).astype(dtype)
    Y = np.sin(rng.normal(size=(M, T))) + 4.0
    half = X[: M // 2]
    transform = _fit(half, half.mean(axis=0, dtype=np.float64), half.std(axis=0, dtype=np.float64))
    assert transform.ranked.tolist() == [0, 1, 3]
    return X, Y[:, 0] if T == 1 else Y, rng.integers(0, 4, size=M).astype(float), transform


def _coordinates(T):
    """Return an offset and a scale of the transformed columns, and an offset of the targets."""
    return np.array([0.1, -0.2, 0.3, 0.0]), np.array([1.0, 2.0, 0.5, 3.0]), np.linspace(4.0, 5.0, T)


@pytest.fixture
def make(request, tmp_path):
    """Return a function that creates a row source of a given kind."""

    def rows(kind, X, y, w=None):
        if kind.startswith("torch"):
            return TorchRows(torch.as_tensor(X), torch.as_tensor(y), w, device="cpu", **OPTIONS.get(kind, {}))
        if kind in WEIGHTED:
            return InMemoryRows(X, y, w, **OPTIONS[kind])
        if kind == "factory":
            blocks = [(X[k : k + 300], y[k : k + 300]) for k in range(0, len(X), 300)]
            return FileRows(open_source(lambda: iter(blocks), None), block_size=101)
        if kind in ("array", "frame"):
            request.getfixturevalue("client")
            from hkrr.rows.dask import DaskRows

            if kind == "array":
                import dask.array as da

                uneven = ((1, 500, 2, len(X) - 503), (X.shape[1],))
                return DaskRows(da.from_array(X, chunks=uneven), da.from_array(y, chunks=(300, 1)[: y.ndim]))
            import dask.dataframe as dd

            frame = dd.from_pandas(_frame(X, y), npartitions=3)
            return DaskRows(frame.drop(columns="y"), frame["y"])
        return FileRows(open_source(_files(kind, tmp_path, X, y), 1 if kind == "npy" else "y"), block_size=101)

    return rows


def _frame(X, y):
    return pd.DataFrame({"x0": X[:, 0], "y": y, **{f"x{k}": X[:, k] for k in range(1, X.shape[1])}})


def _files(kind, folder, X, y):
    """Write two files with the target between the other columns."""
    table, cuts = _frame(X, y), [0, int(0.85 * len(X)), len(X)]
    save = {
        "parquet": lambda path, part: part.to_parquet(path, index=False, row_group_size=300),
        "csv": lambda path, part: part.astype(float).to_csv(path, index=False),
        "npy": lambda path, part: np.save(path, part.to_numpy()),
    }[kind]
    paths = [folder / f"{k}.{kind}" for k in range(2)]
    for path, (start, stop) in zip(paths, pairwise(cuts), strict=True):
        save(path, table.iloc[start:stop])
    return paths


def _terms(X, Y, w, B, shift):
    P = X @ B.T + shift
    Q = P if w is None else w[:, None] * P
    return P.T @ Q, Q.T @ Y, (P * Q).sum(), len(X)


def _inputs(X, Y, w):
    return (X,)


def _targets(X, Y, w):
    return (Y,)


def _check_same(found, expected):
    """Check that the arrays agree up to a few units in the last digit, or that both are None."""
    for a, b in zip(found, expected, strict=True):
        assert (a is None) == (b is None)
        if b is not None:
            assert_allclose(a, b, rtol=1e-14, atol=1e-14)


def _check_alike(rows, expected):
    """Check that two row sources give the same results for every method that returns data."""
    for name in ("n_rows", "n_counted", "n_features", "n_targets"):
        assert getattr(rows, name) == getattr(expected, name), name
    small = np.arange(2.0 * rows.n_features).reshape(2, -1) / 3.0, np.ones(2)
    for a, b in zip(rows.fetch(*rows.sum(_terms, 40, *small)), expected.sum(_terms, 40, *small), strict=True):
        # Adding m terms of equal size in a different order changes the sum by a factor of m eps at most.
        assert_allclose(a, b, rtol=1e-12, atol=1e-12 * np.max(np.abs(b)))
    _check_same([rows.map(fn, 40) for fn in (_inputs, _targets)], [expected.map(fn, 40) for fn in (_inputs, _targets)])
    some = np.random.RandomState(3).randint(rows.n_rows, size=60)  # indices that are unsorted and repeated
    _check_same([rows.take(some)], [expected.take(some)])
    _check_same(rows.gather(), expected.gather())
    _check_same(rows.in_memory().gather(), expected.gather())
    for indices in (some, np.array([rows.n_rows - 1])):
        part = rows.subset(indices)
        assert isinstance(part, InMemoryRows)
        _check_same(part.gather(), expected.subset(indices).gather())
        _check_same(part.subset(np.array([0])).gather(), expected.subset(indices[:1]).gather())
    one, other = (each.sample(50, np.random.RandomState(5)) for each in (rows, expected))
    _check_same(one.gather(), other.gather())


@pytest.mark.parametrize(
    ("kind", "T", "dtype"),
    [
        *((kind, 1, np.float64) for kind in KINDS),
        *((kind, 1, np.float32) for kind in KINDS if kind not in ("csv", "frame")),
        *((kind, 2, np.float64) for kind in KINDS if kind not in (*FILES, "frame")),
    ],
)
def test_rows_match_rows_that_were_transformed_before(make, kind, T, dtype):
    X, y, _, transform = _data(T, dtype)
    rows, before = make(kind, X, y), InMemoryRows(transform(X), y)
    assert np.max(np.abs(transform(X) - X)) > 1.0
    x_offset, x_scale, y_offset = _coordinates(T)
    for coordinates in ((None, None, None), (x_offset, x_scale, y_offset), (x_offset, None, y_offset)):
        moved = rows.with_coordinates(*coordinates, transform)
        _check_alike(moved, before.with_coordinates(*coordinates))
        assert_allclose(moved.largest_targets(), np.max(np.abs(y), axis=0), rtol=1e-14)
    # The coordinates are those of the last call, whatever came before, and the given rows do not change.
    again = moved.with_coordinates(x_offset, None, None)
    assert_array_equal(again.take(np.arange(9)), X[:9].astype(np.float64) - x_offset)
    for one in (rows, moved.with_coordinates(None, None, None)):
        assert_array_equal(one.take(np.arange(9)), X[:9].astype(np.float64))
        assert_array_equal(one.map(_inputs), X.astype(np.float64))


@pytest.mark.parametrize("kind", WEIGHTED)
def test_weighted_rows_match_rows_that_were_transformed_before(make, kind):
    X, y, w, transform = _data(T=2)
    rows, before = make(kind, X, y, w), InMemoryRows(transform(X), y, w)
    assert rows.n_counted < rows.n_rows
    coordinates = _coordinates(2)
    _check_alike(rows.with_coordinates(*coordinates, transform), before.with_coordinates(*coordinates))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", WEIGHTED)
def test_reweighted_rows_keep_the_transform(make, kind, weighted):
    X, y, w, transform = _data(T=2)
    w, coordinates = w if weighted else None, _coordinates(2)
    factors = np.random.default_rng(1).uniform(0.1, 1.0, size=M)
    rows = make(kind, X, y, w).with_coordinates(*coordinates, transform).reweighted(factors)
    expected = InMemoryRows(transform(X), y, w).with_coordinates(*coordinates).reweighted(factors)
    _check_alike(rows, expected)
    assert_array_equal(rows.with_coordinates(None, None, None).take(np.arange(9)), X[:9])


def _factors(X, Y, direction):
    """Return weights that depend on the coordinates. The arguments are NumPy arrays or tensors."""
    return 5.0 / (4.0 + (Y[:, 0] - X @ direction) ** 2)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "frame"])
def test_weights_are_computed_from_transformed_columns(make, kind):
    X, y, _, transform = _data(T=1)
    coordinates, direction = _coordinates(1), np.array([1.0, -0.5, 0.3, 2.0])
    rows = make(kind, X, y).with_coordinates(*coordinates, transform)
    before = InMemoryRows(transform(X), y).with_coordinates(*coordinates)
    found, expected = (ReweightedRows(one, _factors, 1, (one.place(direction),), center=True) for one in (rows, before))
    assert_allclose(found.y_mean, expected.y_mean, rtol=1e-12)
    for a, b in zip(found.gather(), expected.gather(), strict=True):
        assert_allclose(a, b, rtol=1e-12, atol=1e-12)
    assert np.ptp(found.gather()[2]) > 0.1
    part, other = (one.subset(np.array([5, 2, 5])).gather() for one in (found, expected))
    for a, b in zip(part, other, strict=True):
        assert_allclose(a, b, rtol=1e-12, atol=1e-12)
    with pytest.raises(NotImplementedError, match="fixed offsets and scales"):
        found.with_coordinates(None, None, None, transform)


def test_rows_that_are_moved_to_a_device_are_transformed_once():
    """Test that `to_device` keeps the coordinates of rows in memory."""
    X, y, w, transform = _data(T=2)
    source = TorchRows(X, y, w, device="cpu")
    source.pays_to_batch = True  # as on a GPU
    some = source.with_coordinates(*_coordinates(2), transform).subset(np.arange(40))
    moved = source.to_device(some)
    assert isinstance(moved, TorchRows)
    _check_same(moved.gather(), some.gather())
    _check_same([moved.map(_inputs)], [(transform(X[:40]) - _coordinates(2)[0]) / _coordinates(2)[1]])


@pytest.mark.parametrize("kind", ["blocks of 97", "torch"])
def test_rows_in_memory_are_reweighted_and_recentered(make, kind):
    """Test methods of rows in memory that return changed rows: all of them keep the transform."""
    X, y, w, transform = _data(T=2)
    rows = make(kind, X, y, w).with_coordinates(*_coordinates(2), transform).in_memory()
    expected = (transform(X) - _coordinates(2)[0]) / _coordinates(2)[1]
    changed = [rows.recentered(), rows.with_weights(w + 1.0, np.ones(2)), rows.on_threads(2), rows.count_free_columns()]
    for one in changed:
        _check_same([one.gather()[0], one.map(_inputs)], [expected, expected])
    assert_allclose(rows.recentered().gather()[1], y - np.average(y, axis=0, weights=w), atol=1e-12)


# ------------------------------------------------------------------------------------ linearly dependent columns


def _sums_of_columns():
    """Return standardized rows in memory whose third column is the sum of the first two, and their transform."""
    rng = np.random.default_rng(0)
    X = np.exp(rng.normal(size=(100, 3)))
    X[:, 2] = X[:, 0] + X[:, 1]
    rows, scaling = standardize(InMemoryRows(X, X[:, 0]), scale_features=True, fit_intercept=True)
    return rows, _fit(X, scaling.x_mean, scaling.x_scale)


def test_normal_scores_of_dependent_columns_are_counted_again():
    rows, transform = _sums_of_columns()
    counted = rows.count_free_columns()
    assert counted.n_free_columns == 2
    assert np.linalg.matrix_rank(counted.in_row_space(np.eye(3))) == 2
    ranked = rows.with_coordinates(None, None, rows.y_offset, transform).count_free_columns()
    assert ranked.n_free_columns == 3
    assert_array_equal(ranked.in_row_space(np.eye(3)), np.eye(3))


def test_the_row_space_does_not_remain_that_of_other_coordinates():
    rows, transform = _sums_of_columns()
    ranked = rows.count_free_columns().with_coordinates(None, None, rows.y_offset, transform).count_free_columns()
    assert ranked.n_free_columns == 3
    assert_array_equal(ranked.in_row_space(np.eye(3)), np.eye(3))
