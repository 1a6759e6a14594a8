"""Rows of which something is missing: how unsure they are, what they weigh, how long their intervals are."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import LinearRegression
from sklearn.neighbors import KNeighborsRegressor

import hkrr
from hkrr import HyperKernelRidge
from hkrr.tables import TableRegressor
from hkrr.tables.unknown import missing_in, variances_of_missing, weights_of


def table(n=300, seed=0, share=0.15):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({name: rng.normal(size=n) for name in ("much", "little", "nothing")})
    y = 3.0 * frame["much"] + 0.5 * frame["little"] + 0.1 * rng.normal(size=n)
    for name in frame:
        frame.loc[rng.random(n) < share, name] = np.nan
    return frame, y.rename("y")


def quick():
    return TableRegressor(HyperKernelRidge(1, n_init=1, reg_lambda=1e-3, random_state=0))


@pytest.mark.parametrize("seed", range(3))
def test_variances_are_those_that_the_columns_explain(seed):
    frame, y = table(2000, seed)
    missing = frame.isna().to_numpy()
    base, known = variances_of_missing(missing, frame.fillna(0.0).to_numpy(), y.to_numpy())
    assert_allclose(known[:2], [9.0, 0.25], rtol=0.3)
    assert known[2] == 0.0  # what adds next to nothing changes no weight
    assert 0.01 < base < 0.02  # the noise, and what a linear model of such rows lacks
    expected = base / (base + missing @ known)
    assert_allclose(weights_of(missing, base, known), np.maximum(expected, 1e-3))


@pytest.mark.parametrize("odd", ["few", "text", "infinite", "constant", "two"])
def test_where_nothing_can_be_said_nothing_is(odd):
    frame, y = table(share=0.005 if odd == "few" else 0.15)
    y = y.to_numpy(copy=True)
    if odd == "text":
        y = y.astype(str)
    elif odd == "infinite":
        y[3] = np.inf
    elif odd == "constant":
        y = np.full_like(y, 2.0)
    elif odd == "two":
        y = np.column_stack([y, y])
    base, known = variances_of_missing(frame.isna().to_numpy(), frame.fillna(0.0).to_numpy(), y)
    assert_array_equal(known, 0.0)
    assert weights_of(frame.isna().to_numpy(), base, known) is None


@pytest.mark.parametrize("seed", range(3))
def test_few_rows_do_not_lead_the_others_astray(seed):
    """The same fit, of which every row weighs as much, is worse for new rows that are whole."""
    frame, y = table(seed=seed)
    model = quick().fit(frame, y)
    alike = HyperKernelRidge(**model.model_.get_params()).fit(model.transform(frame), y)
    new, truth = table(1000, seed + 10, share=0.0)
    numbers = model.transform(new)
    error, error_of_alike = (np.mean((each.predict(numbers) - truth) ** 2) for each in (model.model_, alike))
    assert error < error_of_alike


@pytest.mark.parametrize("n", [50, 70])
def test_other_numbers_of_rows_are_told_of(n):
    frame, _ = table(60)
    with pytest.raises(ValueError, match=f"y has {n} entries and X has 60 rows"):
        quick().fit(frame, np.arange(float(n)))
    with pytest.raises(ValueError, match=f"sample_weight has {n} entries and X has 60 rows"):
        quick().fit(frame, np.arange(60.0), np.ones(n))


@pytest.mark.parametrize("size", [1e-150, 1e150, 1e250])
def test_any_size_of_numbers(size):
    frame, y = table()
    missing, X = frame.isna().to_numpy(), frame.fillna(0.0).to_numpy()
    base, known = variances_of_missing(missing, size * X, y.to_numpy())
    of_large = variances_of_missing(missing, X, size * y.to_numpy())[1]
    assert_allclose(variances_of_missing(missing, X, y.to_numpy())[1], known)
    assert base > 0
    assert np.all(np.isfinite(of_large))


def test_truths_are_targets_too():
    frame, y = table()
    assert variances_of_missing(frame.isna().to_numpy(), frame.fillna(0.0).to_numpy(), (y > 0).to_numpy())[0] > 0


def test_intervals_of_such_rows_are_longer(tmp_path):
    frame, y = table()
    model = quick().fit(frame, y)
    new, truth = table(2000, 1)
    missing = new["much"].isna().to_numpy()
    lower, upper = model.predict_interval(new)
    inside = (lower <= truth) & (truth <= upper)
    assert 0.8 < inside[missing].mean() < 0.99
    assert 0.8 < inside[~missing].mean() < 0.99
    assert np.min((upper - lower)[missing]) > 3.0 * np.median((upper - lower)[~missing])
    spread = model.predict(new, return_std=True)[1]
    of_model = model.model_.predict(model.transform(new), return_std=True)[1]
    more = missing_in(model.encoder_, new) @ model.missing_variances_
    assert_allclose(spread, np.sqrt(of_model**2 + more))
    hkrr.save(model, tmp_path / "model.hkrr")
    assert_array_equal(hkrr.load(tmp_path / "model.hkrr").predict_interval(new), (lower, upper))


def test_weights_of_rows_are_multiplied():
    frame, y = table(60)
    given = np.random.default_rng(0).uniform(0.5, 2.0, 60)
    model = TableRegressor(LinearRegression()).fit(frame, y, given)
    missing = frame.isna().to_numpy()
    known = weights_of(missing, *variances_of_missing(missing, model.transform(frame), y.to_numpy()))
    expected = LinearRegression().fit(model.transform(frame), y, given * known)
    assert_allclose(model.model_.coef_, expected.coef_)


def test_a_regressor_that_takes_no_weights_is_given_none():
    frame, y = table(60)
    assert not hasattr(TableRegressor(KNeighborsRegressor()).fit(frame, y), "missing_variances_")


def test_a_table_that_is_whole_is_fitted_as_before():
    frame, y = table(60, share=0.0)
    model = quick().fit(frame, y)
    assert not hasattr(model, "missing_variances_")
    assert_array_equal(model.predict(frame), model.model_.predict(model.transform(frame)))
