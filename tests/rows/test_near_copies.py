"""Tests of near copies of rows: which rows are found, how they are merged, and fits of tables with near copies.

A near copy of a row differs from the row by at most a small tolerance in every column. The row is called the source of
the copy. A row that is not a copy is its own source.
"""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from hkrr import HyperKernelRidge, HyperKernelRidgeCV
from hkrr.estimators.classification.labels import one_hot
from hkrr.rows.weights import any_copies, find_copies, find_near_copies, merge_copies, merge_identical

# ------------------------------------------------------------------------------------------------ which rows are found


def _tolerances(table):
    """Return, for each column, the largest difference between a row and its near copy.

    It is 1e-5 times the standard deviation, or times the distance between the first and the last decile if this is
    smaller. With three to nine rows, the second smallest and the second largest value are used instead of the deciles.
    """
    n, found = len(table), []
    trimmed = 1 if 3 <= n < 10 else n // 10
    for column in table.T:
        sort = sorted(column.tolist())
        found.append(1e-5 * min(float(np.std(column)), sort[n - 1 - trimmed] - sort[trimmed]))
    return found


def _check_sources(table, source):
    """Check, by comparing all pairs of rows, that each row is near its source but no two sources are near."""
    tolerances = _tolerances(table)

    def near(a, b, factor):
        return all(abs(x - z) <= factor * t for x, z, t in zip(a.tolist(), b.tolist(), tolerances, strict=True))

    assert_array_equal(source[source], source)
    assert all(near(table[i], table[j], 1.0 + 1e-9) for i, j in enumerate(source))
    sources = np.unique(source)
    assert not any(near(table[i], table[j], 1.0 - 1e-9) for i in sources for j in sources if i < j)


def _random_table(seed):
    """Return a small table: some columns are rounded or constant, and some rows are repeated with differences."""
    rng = np.random.default_rng(seed)
    n, D = rng.integers(2, 40), rng.integers(1, 12)
    table = rng.normal(size=(n, D)) * 10.0 ** rng.integers(-3, 3, size=D) + rng.choice([0.0, 1e3], size=D)
    for j in range(D):
        if rng.uniform() < 0.4:
            table[:, j] = rng.choice([np.zeros(n), np.round(rng.normal(size=n)), 0.1 * rng.integers(0, 9, size=n)])
    drawn = rng.integers(n, size=rng.integers(1, 60))
    size = 10.0 ** rng.uniform(-7, -4, size=(len(drawn), 1)) * rng.choice([0.0, 1.0], size=(len(drawn), D))
    return rng.permutation(np.vstack([table, table[drawn] + size * table.std(axis=0) * rng.normal(size=size.shape)]))


@pytest.mark.parametrize("seed", [*range(30), *(pytest.param(s, marks=pytest.mark.thorough) for s in range(30, 500))])
def test_the_copies_are_those_found_by_comparing_all_pairs(seed):
    table = _random_table(seed)
    _check_sources(table, find_near_copies(table))


def _planted(seed=0, n=30, D=3, size=1e-6):
    """Return a table of n distinct rows and their copies, in random order, and the group of each row.

    A group is a distinct row and its copies. Random numbers between -size and size are added to all entries.
    """
    rng = np.random.default_rng(seed)
    group = rng.permutation(np.repeat(np.arange(n), rng.integers(1, 5, size=n)))
    table = rng.normal(size=(n, D))[group]
    return table + size * rng.uniform(-1.0, 1.0, size=table.shape), group


def _with_outlier(table):
    return np.vstack([table, np.full(table.shape[1], 1e12)])


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table,
        lambda table: table + 1e8,
        lambda table: 1e300 * table,
        lambda table: 1e-300 * table,
        lambda table: table * [1e-300, 1.0, 1e300],
        lambda table: np.column_stack([table, np.full(len(table), 0.3)]),
        lambda table: table.astype(np.float32),
        lambda table: (100.0 + table).astype(np.float32),
        _with_outlier,
    ],
    ids=["plain", "offset", "huge", "tiny", "mixed", "constant", "float32", "float32 offset", "outlier"],
)
def test_copies_are_found_in_any_units(change):
    table, group = _planted()
    with np.errstate(all="raise", under="ignore"):
        source = find_near_copies(change(table))
    if change is _with_outlier:
        group = np.append(group, group.max() + 1)
    assert_array_equal(source[:, None] == source, group[:, None] == group)


@pytest.mark.parametrize("table", [np.zeros((1, 2)), np.zeros((5, 2)), np.full((3, 1), 0.1)], ids=str)
def test_equal_rows_are_copies_of_one_row(table):
    assert len(np.unique(find_near_copies(table))) == 1


def test_a_chain_of_copies_is_cut():
    """Test that 401 rows on a line, each a near copy of the next row, are not all merged into one row."""
    x = np.append(np.linspace(0.0, 1e-3, 401), np.linspace(10.0, 11.0, 401))
    table = np.column_stack([x, x])
    source = find_near_copies(table)
    _check_sources(table, source)
    assert len(np.unique(source[:401])) > 15


def test_the_search_stops_if_too_many_rows_are_nearly_copies():
    rng = np.random.default_rng(0)
    table = rng.integers(0, 2, size=(2000, 1)) + 1.2e-5 * rng.normal(size=(2000, 20))
    source = find_near_copies(table)
    assert_array_equal(source[source], source)
    assert np.all(np.abs(table - table[source]) <= 1e-5)


# ------------------------------------------------------------------------------------------------ merging


@pytest.mark.parametrize("T", [1, 2])
@pytest.mark.parametrize("weighted", [False, True])
def test_near_copies_are_merged_to_weights_of_mean_one(T, weighted):
    table, group = _planted(D=3 + T)
    X, y = table[:, :3], table[:, 3] if T == 1 else table[:, 3:]
    w = np.random.default_rng(1).uniform(0.5, 2.0, size=len(X)) if weighted else None
    X2, y2, w2 = merge_copies(X, y, w)
    assert (X2.shape, y2.shape) == ((30, 3), (30, *y.shape[1:]))
    first = [np.flatnonzero(np.all(np.abs(X - x) < 1e-4, axis=1))[0] for x in X2]
    expected = np.bincount(group, weights=w)[group[first]]
    assert_allclose(w2, expected / expected.mean(), rtol=1e-13)
    order = np.random.default_rng(2).permutation(len(X))
    again = merge_copies(X[order], y[order], None if w is None else w[order])
    assert_array_equal(again[0], X2)
    assert_array_equal(again[1], y2)
    assert_allclose(again[2], w2, rtol=1e-13)


def test_near_copies_of_weight_zero_are_removed():
    table, _ = _planted()
    doubled, w = np.vstack([table, table + 1e-7]), np.repeat([1.0, 0.0], len(table))
    for one, other in zip(
        merge_copies(doubled[:, :2], doubled[:, 2], w), merge_copies(table[:, :2], table[:, 2], None), strict=True
    ):
        assert_array_equal(one, other)


def test_a_single_outlier_among_a_few_rows_does_not_turn_the_others_into_copies():
    y = np.array([0.6, -0.7, 0.3, 1e12, -1.2])
    _, target, w = merge_copies(np.zeros((5, 1)), y, np.array([9.0, 1.0, 2.0, 1e-9, 4.0]))
    assert_array_equal(np.sort(target), np.sort(y))
    assert_allclose(np.average(target, weights=w), np.average(y, weights=[9.0, 1.0, 2.0, 1e-9, 4.0]), rtol=1e-13)


def _check_not_merged(X, y):
    """Check that the table is treated as if only identical rows were copies."""
    assert find_copies(X, y) is None
    for one, other in zip(merge_copies(X, y, None), merge_identical(X, y, None), strict=True):
        assert_array_equal(one, other)


@pytest.mark.parametrize("difference", [1e-4, 0.1])
def test_near_copies_of_inputs_with_other_targets_are_not_merged(difference):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 3)), rng.normal(size=40)
    X, y = np.vstack([X, X + 1e-7]), np.append(y, y + difference)
    _check_not_merged(X, y)
    assert not any_copies(X, y, None)


@pytest.mark.parametrize("jitter", [0.0, 1e-8])
def test_frequencies_are_not_copies(jitter):
    """Test that rows are not merged as near copies if they repeat because inputs and targets take few values.

    If `jitter` is positive, equal inputs are replaced by nearly equal inputs.
    """
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, size=(300, 2)) + jitter * rng.uniform(size=(300, 2))
    _check_not_merged(X, rng.integers(0, 2, size=300).astype(float))


def test_rows_of_rounded_inputs_are_not_copies():
    rng = np.random.default_rng(0)
    _check_not_merged(np.round(rng.normal(size=(2000, 1)), 1), rng.normal(size=2000))


@pytest.mark.parametrize("K", [2, 3])
def test_near_copies_of_the_same_class_are_merged(K):
    """Test that near copies of rows are merged if their targets are indicators of classes."""
    table, index = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % K
    X, Y, w = merge_copies(
        np.vstack([table, table + 1e-7, table[:10]]), one_hot(np.r_[index, index, index[:10]], K), None
    )
    assert len(X) == 40
    assert_array_equal(Y.sum(axis=0), np.bincount(index))
    counts = np.bincount(index) * 2 + np.bincount(index[:10], minlength=K)
    assert_allclose(w @ Y, counts * 40 / 90)


def test_copies_of_different_classes_are_not_merged():
    """Test that two copies of each row are kept if they belong to different classes."""
    X = np.random.default_rng(0).normal(size=(30, 3))
    index = np.arange(30) % 3
    X, Y, _ = merge_copies(np.vstack([X, X]), one_hot(np.append(index, (index + 1) % 3), 3), None)
    assert len(X) == 60
    assert_array_equal(Y.sum(axis=0), [20.0, 20.0, 20.0])


# ------------------------------------------------------------------------------------------------ fits


def _forty_rows(seed):
    """Return X and y of 40 rows, the same rows with near copies, and X and y of 1,000 other rows."""
    rng = np.random.default_rng(seed)
    w = rng.normal(size=4)
    X = rng.normal(size=(1040, 4))
    y = np.sin(2.0 * X @ w / np.linalg.norm(w)) + X[:, 0] + 0.1 * rng.normal(size=1040)
    distinct, test = slice(0, 40), slice(40, None)
    near = np.append(y[distinct], y[distinct] + 1e-6 * y[distinct].std() * rng.normal(size=40))
    return (X[distinct], y[distinct]), (np.tile(X[distinct], (2, 1)), near), (X[test], y[test])


def _cv(seed):
    return HyperKernelRidgeCV(random_state=seed)


def _coverage(model, X, y):
    low, high = model.predict_interval(X, coverage=0.9)
    return np.mean((low <= y) & (y <= high))


def _few_centers(seed):
    return HyperKernelRidge(2, criterion="evidence", reg_lambda="auto", n_centers=30, random_state=seed)


@pytest.mark.parametrize(
    ("make", "seed"),
    [(_cv, 0), (_few_centers, 0), *(pytest.param(_cv, s, marks=pytest.mark.thorough) for s in range(1, 10))],
)
def test_near_copies_do_not_hide_the_noise(make, seed):
    """Test that near copies change neither the quality of predictions for other rows nor the coverage of intervals."""
    distinct, near, (X, y) = _forty_rows(seed)
    once, copies = make(seed).fit(*distinct), make(seed).fit(*near)
    assert copies.score(X, y) > once.score(X, y) - 0.02
    assert 0.2 < copies.reg_lambda_ / once.reg_lambda_ < 5.0
    assert _coverage(copies, X, y) > _coverage(once, X, y) - 0.05


def test_the_training_criterion_keeps_near_copies():
    """Test that a criterion that learns the noise merges near copies, but the paper's training objective does not."""
    _, (X, y), _ = _forty_rows(0)
    settings = {"n_centers": "all", "max_iter": 2, "random_state": 0}
    assert len(HyperKernelRidge(1, **settings).fit(X, y).centers_) == 80
    assert len(HyperKernelRidge(1, criterion="evidence", reg_lambda="auto", **settings).fit(X, y).centers_) == 40
