"""Test the estimated noise variances, the weights and the prediction intervals of rows with missing values."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import LinearRegression
from sklearn.neighbors import KNeighborsRegressor

import hkrr
from hkrr import HyperKernelRidge
from hkrr.tables import TableRegressor
from hkrr.tables.missing import missing_matrix, missing_variances, row_weights


def table(n=300, seed=0, share=0.15):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({name: rng.normal(size=n) for name in ("strong", "weak", "unused")})
    y = 3.0 * frame["strong"] + 0.5 * frame["weak"] + 0.1 * rng.normal(size=n)
    for name in frame:
        frame.loc[rng.random(n) < share, name] = np.nan
    return frame, y.rename("y")


def quick():
    return TableRegressor(HyperKernelRidge(1, n_init=1, reg_lambda=1e-3, random_state=0))


@pytest.mark.parametrize("seed", range(3))
def test_added_variances_are_the_variances_that_the_columns_explain(seed):
    frame, y = table(2000, seed)
    missing = frame.isna().to_numpy()
    base, added = missing_variances(missing, frame.fillna(0.0).to_numpy(), y.to_numpy())
    assert_allclose(added[:2], [9.0, 0.25], rtol=0.3)
    assert added[2] == 0.0  # a negligible variance is set to 0
    assert 0.01 < base < 0.02  # the noise variance 0.01 plus some error of the linear model
    expected = base / (base + missing @ added)
    assert_allclose(row_weights(missing, base, added), np.maximum(expected, 1e-3))


@pytest.mark.parametrize("odd", ["few", "text", "infinite", "constant", "two"])
def test_no_variance_is_added_for_few_missing_values_or_unusable_targets(odd):
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
    base, added = missing_variances(frame.isna().to_numpy(), frame.fillna(0.0).to_numpy(), y)
    assert_array_equal(added, 0.0)
    assert row_weights(frame.isna().to_numpy(), base, added) is None


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in (1, 2))])
def test_weights_improve_predictions_for_complete_rows(seed):
    """Test that a fit with weights has a smaller error on complete new rows than a fit with equal weights."""
    frame, y = table(seed=seed)
    model = quick().fit(frame, y)
    unweighted = HyperKernelRidge(**model.model_.get_params()).fit(model.transform(frame), y)
    new, truth = table(1000, seed + 10, share=0.0)
    numbers = model.transform(new)
    error, unweighted_error = (np.mean((each.predict(numbers) - truth) ** 2) for each in (model.model_, unweighted))
    assert error < unweighted_error


@pytest.mark.parametrize("n", [50, 70])
def test_inconsistent_lengths_are_refused(n):
    frame, _ = table(60)
    with pytest.raises(ValueError, match=f"y has {n} entries, but X has 60 rows"):
        quick().fit(frame, np.arange(float(n)))
    with pytest.raises(ValueError, match=f"sample_weight has {n} entries, but X has 60 rows"):
        quick().fit(frame, np.arange(60.0), np.ones(n))


@pytest.mark.parametrize("size", [1e-150, 1e150, 1e250])
def test_very_large_and_small_numbers(size):
    frame, y = table()
    missing, X = frame.isna().to_numpy(), frame.fillna(0.0).to_numpy()
    base, added = missing_variances(missing, size * X, y.to_numpy())
    of_scaled_y = missing_variances(missing, X, size * y.to_numpy())[1]
    assert_allclose(missing_variances(missing, X, y.to_numpy())[1], added)
    assert base > 0
    assert np.all(np.isfinite(of_scaled_y))


def test_boolean_targets():
    frame, y = table()
    assert missing_variances(frame.isna().to_numpy(), frame.fillna(0.0).to_numpy(), (y > 0).to_numpy())[0] > 0


def test_intervals_of_rows_with_missing_values_are_longer(tmp_path):
    frame, y = table()
    model = quick().fit(frame, y)
    new, truth = table(2000, 1)
    missing = new["strong"].isna().to_numpy()
    lower, upper = model.predict_interval(new)
    inside = (lower <= truth) & (truth <= upper)
    assert 0.8 < inside[missing].mean() < 0.99
    assert 0.8 < inside[~missing].mean() < 0.99
    assert np.min((upper - lower)[missing]) > 3.0 * np.median((upper - lower)[~missing])
    deviations = model.predict(new, return_std=True)[1]
    of_model = model.model_.predict(model.transform(new), return_std=True)[1]
    variance = missing_matrix(model.encoder_, new) @ model.missing_variances_
    assert_allclose(deviations, np.sqrt(of_model**2 + variance))
    hkrr.save(model, tmp_path / "model.hkrr")
    assert_array_equal(hkrr.load(tmp_path / "model.hkrr").predict_interval(new), (lower, upper))


def test_sample_weights_are_multiplied_by_the_weights_for_missing_values():
    frame, y = table(60)
    given = np.random.default_rng(0).uniform(0.5, 2.0, 60)
    model = TableRegressor(LinearRegression()).fit(frame, y, given)
    missing = frame.isna().to_numpy()
    weights = row_weights(missing, *missing_variances(missing, model.transform(frame), y.to_numpy()))
    expected = LinearRegression().fit(model.transform(frame), y, given * weights)
    assert_allclose(model.model_.coef_, expected.coef_)


def test_a_regressor_without_sample_weight_gets_none():
    frame, y = table(60)
    assert not hasattr(TableRegressor(KNeighborsRegressor()).fit(frame, y), "missing_variances_")


def test_a_table_without_missing_values_is_fitted_without_weights():
    frame, y = table(60, share=0.0)
    model = quick().fit(frame, y)
    assert not hasattr(model, "missing_variances_")
    assert_array_equal(model.predict(frame), model.model_.predict(model.transform(frame)))
