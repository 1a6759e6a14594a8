"""Tests of the selection of columns by the lasso: planted columns, noise, several targets, weights, and few rows."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.linear_model import Lasso
from sklearn.model_selection import KFold

from hkrr.estimators.search.lasso_columns import selected_columns
from hkrr.rows import InMemoryRows
from support.random_problems import SEEDS

ACTIVE = [3, 17, 40]


def _planted(seed, m=100, D=60, noise=0.1, active=ACTIVE):
    """Return inputs, and a centered target that depends linearly on the active columns."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, D))
    y = X[:, active] @ [2.0, -1.5, 1.0] + noise * rng.normal(size=m)
    return X - X.mean(axis=0), y - y.mean()


def _select(X, y, w=None):
    """Return the selected columns as sets of indices, and check that the vectors contain zeros and ones only."""
    found = selected_columns(InMemoryRows(X, y, w))
    for columns in found:
        assert columns.shape == (X.shape[1],)
        assert set(np.unique(columns)) <= {0.0, 1.0}
        assert 1 <= np.sum(columns) <= X.shape[1] / 2
    return [set(np.flatnonzero(columns)) for columns in found]


def _by_two_rules(X, y):
    """Return the columns that the lasso selects with two penalties, found by loops.

    The first penalty has the lowest cross-validated error. The second is the largest penalty whose error is at most one
    standard error larger.
    """
    largest = np.max(np.abs(X.T @ y)) / len(X)
    penalties = largest * np.logspace(0.0, -3.0, 100)
    errors = np.empty((100, 5))
    for fold, (learn, last) in enumerate(KFold(5).split(X)):
        for k, penalty in enumerate(penalties):
            model = Lasso(penalty, fit_intercept=False).fit(X[learn], y[learn])
            errors[k, fold] = np.mean((y[last] - model.predict(X[last])) ** 2)
    mean = errors.mean(axis=1)
    best = np.argmin(mean)
    limit = mean[best] + errors[best].std(ddof=1) / np.sqrt(5)
    simplest = next(k for k in range(100) if mean[k] <= limit)
    fits = (Lasso(penalties[k], fit_intercept=False).fit(X, y) for k in (best, simplest))
    return [set(np.flatnonzero(model.coef_)) for model in fits]


@pytest.mark.parametrize("seed", range(6))
def test_the_columns_of_a_sparse_target_are_selected(seed):
    """Test that the three of 60 columns on which the target depends are selected.

    Both penalties select these columns, and in total fewer than half of all columns. The larger penalty selects at most
    as many columns as the penalty with the lowest error.
    """
    found = _select(*_planted(seed))
    assert 1 <= len(found) <= 2
    for columns in found:
        assert set(ACTIVE) <= columns
        assert len(columns) < 30
    assert len(found[-1]) <= len(found[0])


@pytest.mark.parametrize("seed", SEEDS)
def test_the_two_rules_by_loops(seed):
    X, y = _planted(seed, m=40, D=16, noise=2.0, active=[3, 7, 10])
    expected = [columns for columns in _by_two_rules(X, y) if 1 <= len(columns) <= 8]
    assert expected
    assert _select(X, y) == expected[: 1 if expected[0] == expected[-1] else 2]


def test_noise_selects_few_columns_or_none():
    sizes = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        found = _select(rng.normal(size=(60, 40)), rng.normal(size=60))
        assert all(len(columns) <= 20 for columns in found)
        sizes.append(len(found))
    assert 0 in sizes


def test_a_target_of_all_columns_selects_nothing():
    """Test that sets of more than half of the columns are left out."""
    X, _ = _planted(0, m=200, D=6, active=[0, 1, 2])
    assert _select(X, X @ [1.0, -1.0, 2.0, 1.0, -2.0, 0.5]) == []
    assert _select(X, X @ [1.0, -1.0, 2.0, 0.0, 0.0, 0.0]) == [{0, 1, 2}]


def test_two_targets_give_the_union():
    """Test that two targets together select the union of the columns that each selects alone, for both penalties."""
    X, y = _planted(0)
    z = X[:, 5] + 0.5 * np.random.default_rng(5).normal(size=len(X))
    alone = [_select(X, target) for target in (y, z)]
    assert [len(found) for found in alone] == [2, 2]
    unions = [first | second for first, second in zip(*alone, strict=True)]
    assert all({5, *ACTIVE} <= columns and len(columns) <= 30 for columns in unions)
    assert unions[0] != unions[1]
    assert _select(X, np.column_stack([y, z])) == _select(X, np.column_stack([z, y])) == unions


def test_a_constant_target_selects_nothing():
    X, y = _planted(0)
    assert _select(X, 0.0 * y) == []
    assert _select(X, np.column_stack([y, 0.0 * y])) == _select(X, y)


def test_a_constant_column_is_not_selected():
    X, y = _planted(0)
    X[:, 5] = 0.0
    assert all(5 not in columns for columns in _select(X, y))


@pytest.mark.parametrize(("m", "D", "tried"), [(9, 20, False), (10, 20, True), (100, 2, False), (100, 3, True)])
def test_few_rows_or_columns_select_nothing(m, D, tried):
    X = np.random.default_rng(0).normal(size=(m, D))
    assert _select(X, X[:, 1]) == ([{1}] if tried else [])


def test_columns_without_convergence_give_no_warning():
    """Test that there is no warning if the lasso does not converge. In the tests, warnings are errors.

    The columns are nearly collinear, and the target has no noise.
    """
    rng = np.random.default_rng(0)
    shared = rng.normal(size=(30, 1))
    X = shared + 1e-4 * rng.normal(size=(30, 50))
    _select(X, X[:, 0] - X[:, 1] + 1e3 * (X[:, 2] - X[:, 3]))


def test_rows_of_weight_zero_have_no_influence():
    X, y = _planted(2, noise=1.0)
    w = np.where(np.arange(100) % 4 == 0, 0.0, np.random.default_rng(0).uniform(0.5, 2.0, size=100))
    absurd = np.where(w == 0.0, 1e3 * X[:, 50], y)
    assert _select(X, absurd, w) == _select(X, y, w)
    assert all(50 in columns for columns in _select(X, absurd))


def test_consecutive_rows_of_weight_zero():
    """Test that the columns are selected if all rows of one cross-validation fold have weight 0."""
    X, y = _planted(0)
    assert all(set(ACTIVE) <= columns for columns in _select(X, y, np.where(np.arange(100) < 20, 0.0, 1.0)))


@pytest.mark.parametrize("heavy", [0, 1])
def test_weights_decide_between_contradictory_rows(heavy):
    """Test that the rows with the large weights decide which column is selected.

    The targets of one half of the rows depend on column 10, and those of the other half on column 11.
    """
    X, _ = _planted(0)
    half = np.arange(100) % 2
    y = np.where(half == 1, X[:, 11], X[:, 10])
    found = _select(X, y, np.where(half == heavy, 1.0, 1e-6))
    assert found[-1] == {10 + heavy}


def test_the_units_of_the_weights_and_of_the_target_do_not_matter():
    X, y = _planted(3, noise=1.0)
    w = np.random.default_rng(0).uniform(0.5, 2.0, size=100)
    expected = _select(X, y, w)
    assert expected
    for factor in (2.0**-20, 2.0**20):
        assert _select(X, y, factor * w) == expected
        assert _select(X, factor * y, w) == expected


def test_the_rows_are_not_changed():
    X, y = _planted(0)
    rows = InMemoryRows(X.copy(), y.copy())
    selected_columns(rows)
    for found, given in zip(rows.gather()[:2], (X, y[:, None]), strict=True):
        assert_array_equal(found, given)
