"""Test hold_out, compare, directions, describe and predict_frame of hkrr.tables against NumPy and scikit-learn."""

import json

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import LinearRegression
from sklearn.metrics import r2_score

import hkrr
from hkrr.baselines import SIR, KernelRidgeCV
from hkrr.estimators.fitted.importance import direction_weights, loadings
from hkrr.tables import TableRegressor, compare, describe, directions, hold_out, predict_frame
from hkrr.tables.held_out_comparison import r2_intervals
from hkrr.tables.missing import missing_matrix
from support.house_table import TARGET, table


@pytest.fixture(scope="module")
def split():
    return hold_out(table(200), TARGET, 0.3, seed=1)


@pytest.fixture(scope="module")
def model(split):
    return TableRegressor(KernelRidgeCV()).fit(split.train, split.y_train)


def test_every_row_is_in_one_set_and_the_order_is_kept(split):
    frame = table(200)
    assert (len(split.train), len(split.test)) == (140, 60)
    both = pd.concat([split.train, split.test])
    assert sorted(both.index) == list(range(200))
    assert_array_equal(split.y_test, frame[TARGET][split.test.index])
    assert split.test.index.is_monotonic_increasing
    assert TARGET not in split.train
    again, other = (hold_out(frame, TARGET, 0.3, seed=seed) for seed in (1, 2))
    assert_array_equal(again.y_test, split.y_test)
    assert not np.array_equal(other.y_test, split.y_test)
    assert len(hold_out(frame, TARGET, 0).test) == 0


def test_rows_without_a_target_are_dropped():
    frame = pd.DataFrame({"x": range(20), "y": [*map(str, range(18)), "NA", None]})
    split = hold_out(frame, "y", 0.5)
    assert split.about == "dropped 2 rows without a target"
    assert sorted([*split.y_train, *split.y_test]) == list(range(18))
    booleans = hold_out(pd.DataFrame({"x": range(8), "y": [True, False] * 4}), "y", 0.25)
    assert set(booleans.y_train) == {0.0, 1.0}


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (["a", "b"] * 10, "the target 'y' must contain finite numbers, but row 0 (counting from 0) is 'a'"),
        ([1.0] * 20, "the target 'y' is 1 in every row; there is nothing to learn"),
        ([None] * 20, "the target 'y' is missing in every row"),
        ([*range(19), np.inf], "but row 19 (counting from 0) is 'inf'"),
        (pd.to_datetime(np.arange(20)), "must contain numbers, but its type is"),
        (pd.Categorical(["1", "2"] * 10), "must contain numbers, but its type is"),
        ([1.0, 2.0, *([None] * 18)], "too few rows to hold out a fraction of 0.2: 0 of the 2 rows with a target"),
        ([1.0, *([None] * 19)], "only 1 row has a target in the column 'y'; a fit needs at least 2 rows with a target"),
    ],
)
def test_unusable_targets_are_refused(column, message):
    with pytest.raises(hkrr.TableError) as raised:
        hold_out(pd.DataFrame({"x": range(20), "y": column}), "y")
    assert message in str(raised.value)


def test_constant_training_targets_are_refused():
    frame = pd.DataFrame({"x": range(20), "y": np.ones(20)})
    frame.loc[hold_out(frame.assign(y=range(20)), "y").test.index[0], "y"] = 2.0
    with pytest.raises(hkrr.TableError, match="the target 'y' is 1 in every training row; there is nothing"):
        hold_out(frame, "y")
    assert len(hold_out(frame, "y", 0.0).train) == 20


def test_invalid_arguments():
    with pytest.raises(hkrr.TableError, match=r"there is no column 'Price'; did you mean 'price'\?"):
        hold_out(table(20), "Price")
    with pytest.raises(ValueError, match="share must be at least 0 and below 1, got 1"):
        hold_out(table(20), TARGET, 1.0)


def test_scores_are_those_of_the_test_rows(model, split):
    found = compare(model, split)
    assert found.methods == ("hkrr", "kernel ridge", "linear")
    assert found.r2[0] == pytest.approx(r2_score(split.y_test, model.predict(split.test)), abs=1e-12)
    assert found.r2[1] == pytest.approx(found.r2[0], abs=1e-12)  # the model is the same estimator as the baseline
    X, X_test = model.transform(split.train), model.transform(split.test)
    plain = LinearRegression().fit(X, split.y_train)
    assert found.r2[2] == pytest.approx(r2_score(split.y_test, plain.predict(X_test)), abs=0.05)
    assert (found.n_train, found.n_test, found.seed, found.target) == (140, 60, 1, TARGET)
    for low, r2, high in zip(found.low, found.r2, found.high, strict=True):
        assert low < r2 < high < 1
    assert compare(model, split) == found
    assert "0.95" not in str(found).splitlines()[0]
    assert f"linear        {found.r2[2]:.3f}" in str(found)


def test_bootstrap_intervals_are_as_wide_as_the_spread_over_test_sets(model):
    """Test that the bootstrap intervals are as wide as the 95% range of R2 over 100 test sets of the same size."""
    many = table(6000, seed=7)
    y, predicted = many[TARGET].to_numpy(), model.predict(many)
    found = [r2_score(y[k : k + 60], predicted[k : k + 60]) for k in range(0, 6000, 60)]
    spread = np.quantile(found, 0.975) - np.quantile(found, 0.025)
    widths = []
    for k in range(0, 1200, 60):
        _, (low,), (high,) = r2_intervals(y[k : k + 60], predicted[k : k + 60, None], 0)
        widths.append(high - low)
    assert 0.7 * spread < np.mean(widths) < 1.3 * spread


def test_scores_of_huge_targets(split):
    huge = split.__class__(TARGET, split.train, 1e200 * split.y_train, split.test, 1e200 * split.y_test, 0)
    model = TableRegressor(KernelRidgeCV()).fit(huge.train, split.y_train)
    model.model_.dual_coef_ *= 1e200
    model.model_.intercept_ *= 1e200
    expected = r2_score(split.y_test, model.predict(huge.test) / 1e200)
    assert r2_intervals(huge.y_test, model.predict(huge.test)[:, None], 0)[0][0] == pytest.approx(expected)


def test_constant_test_targets_have_no_scores(model, split):
    same = split.__class__(TARGET, split.train, split.y_train, split.test.iloc[:3], np.ones(3), 0)
    with pytest.raises(hkrr.TableError, match="R2 needs held-out rows with different targets"):
        compare(model, same)


def _planted(kernel="gaussian"):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 4)) * [1.0, 10.0, 0.1, 1.0]
    z = X @ [1.0, -0.1, 0.0, 0.5]
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    return hkrr.HyperKernelRidge(1, kernel=kernel, n_init=3, random_state=0).fit(frame, np.sin(z)), frame


def test_loadings_are_the_map_times_standard_deviations():
    model, frame = _planted()
    (found,) = directions(model)
    assert found.weight == 1.0
    scaled = dict(zip(frame.columns, (model.components_ * frame.std(ddof=0).to_numpy())[0], strict=True))
    strongest = max(scaled, key=lambda name: abs(scaled[name]))
    assert found.columns[0] == strongest
    assert found.loadings[0] == 1.0
    assert dict(zip(found.columns, found.loadings, strict=True))["b"] == pytest.approx(scaled["b"] / scaled[strongest])
    assert set(found.columns[:2]) == {"a", "b"}
    assert len(found.columns) + found.n_more == 4
    assert str(found).startswith(f"+1.00 {strongest}  ")
    assert directions(model, ["p", "q", "r", "s"])[0].columns[0] == {"a": "p", "b": "q"}[strongest]


@pytest.mark.parametrize("kernel", ["gaussian", "product_laplace"])
def test_directions_are_sorted_by_weight(kernel):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 4)) * [1.0, 10.0, 0.1, 1.0]
    y = np.sin(X[:, 0]) + 0.1 * X[:, 1] * X[:, 3]
    model = hkrr.HyperKernelRidge(2, kernel=kernel, max_iter=10, random_state=0).fit(X, y)
    found = directions(model, least=0.0)
    order = np.argsort(-direction_weights(model))
    assert [each.weight for each in found] == pytest.approx(direction_weights(model)[order].tolist())
    for each, expected in zip(found, loadings(model)[order], strict=True):
        values = np.zeros(4)
        values[[int(name[1:]) for name in each.columns]] = each.loadings
        assert_allclose(values, expected / expected[np.argmax(np.abs(expected))])


def test_descriptions_are_valid_json(model, split):
    named, _ = _planted()
    for each in (model, named, SIR(1).fit(np.random.default_rng(0).standard_normal((50, 3)), np.arange(50.0))):
        found = describe(each)
        assert json.loads(json.dumps(found, allow_nan=False)) == found
        assert found["class"] == type(each).__name__
    assert describe(named)["parameters"] == {"n_components": 1, "n_init": 3, "random_state": 0}
    assert describe(model)["columns"][0] == {
        "name": "id",
        "kind": "left out",
        "columns": 0,
        "about": "the values are row numbers",
    }
    assert "target" not in describe(model)  # y was an array without a name
    model.held_out_ = compare(model, split)
    assert describe(model)["target"] == TARGET
    del model.held_out_
    model.target_ = "worth"
    assert describe(model)["target"] == "worth"
    assert "held_out" not in describe(model)
    del model.target_


def test_predictions_as_a_table(model, split):
    found = predict_frame(model, split.test, keep=["town", "id"])
    assert list(found.columns) == ["town", "id", "prediction"]
    assert_array_equal(found["prediction"], model.predict(split.test))
    assert_array_equal(found["id"], split.test["id"])
    with pytest.raises(hkrr.TableError, match=r"there is no column 'twon' to keep; did you mean 'town'\?"):
        predict_frame(model, split.test, keep=["twon"])
    with pytest.raises(ValueError, match="a KernelRidgeCV has no prediction intervals"):
        predict_frame(model, split.test, coverage=0.9)
    with pytest.raises(ValueError, match="a KernelRidgeCV has no predictive standard deviations"):
        predict_frame(model, split.test, std=True)
    clash = split.test.assign(prediction=1)
    with pytest.raises(hkrr.TableError, match="cannot keep the column 'prediction' because a result column"):
        predict_frame(model, clash, keep=["prediction"])


def test_predictions_of_models_fitted_to_numeric_columns():
    named, frame = _planted()
    texts = frame[["d", "c", "b", "a"]].astype(str).assign(more="x")
    assert_allclose(predict_frame(named, texts)["prediction"], named.predict(frame), rtol=1e-12)
    bare = hkrr.HyperKernelRidge(1, n_init=2, random_state=0).fit(frame.to_numpy(), np.column_stack([frame["a"]] * 2))
    found = predict_frame(bare, frame.astype(str))
    assert list(found.columns) == ["prediction 0", "prediction 1"]
    assert_allclose(found, bare.predict(frame.to_numpy()), rtol=1e-12)
    with pytest.raises(hkrr.TableError, match="fitted with 4 columns without names, but the table has 3 columns"):
        predict_frame(bare, frame[["a", "b", "c"]])
    with pytest.raises(hkrr.TableError, match="column 'a' has 1 missing value,"):
        predict_frame(named, frame.assign(a=[None, *frame["a"][1:]]))
    with pytest.raises(hkrr.TableError, match="a SIR cannot predict; it only transforms its inputs"):
        predict_frame(SIR(1).fit(frame.to_numpy(), frame["a"]), frame)


class _WithIntervals(LinearRegression):
    def predict(self, X, return_std=False):
        found = super().predict(X)
        return (found, np.full(len(X), 0.5)) if return_std else found

    def predict_interval(self, X, coverage=0.9):
        return self.predict(X) - coverage, self.predict(X) + coverage


def test_intervals_and_deviations_have_columns(split):
    model = TableRegressor(_WithIntervals()).fit(split.train, split.y_train)
    found = predict_frame(model, split.test, coverage=0.8, std=True)
    assert list(found.columns) == ["prediction", "lower", "upper", "std"]
    complete = ~missing_matrix(model.encoder_, split.test).any(axis=1)
    assert_allclose((found["upper"] - found["prediction"])[complete], 0.8)
    assert_allclose((found["prediction"] - found["lower"])[complete], 0.8)
    assert set(found["std"][complete]) == {0.5}
