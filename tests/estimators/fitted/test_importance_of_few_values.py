"""Tests of the importances of columns with few distinct values.

The importances are compared with their formula, evaluated in loops, and with permutation importances. All reports must
show the same importances.
"""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn.inspection import permutation_importance

import hkrr
from hkrr import HyperKernelRidge, HyperKernelRidgeCV
from hkrr.estimators.fitted.importance import (
    average_gradient_outer_product,
    columns_with_few_values,
    direction_effects,
    importances,
)
from hkrr.kernels import KERNELS, Polynomial
from hkrr.plotting import ImportanceDisplay
from hkrr.reporting import gather
from hkrr.tables import TableRegressor, describe
from support.handmade_models import made_model


def _model_with_few_values(n_components=2, **options):
    """Return a model of four columns: one with two values, one with three values, and two continuous columns."""
    model = made_model(n_components, 4, **options)
    model.centers_[:, 0] = model.centers_[:, 0] > 0.2
    model.centers_[:, 1] = np.array([-1.0, 0.5, 0.75])[np.arange(len(model.centers_)) % 3]
    return model


def _by_loops(model, j):
    """Return the effect of column j: the root of half the mean squared change of the prediction.

    The change occurs when the value in column j is replaced by the value in column j of a random center.
    """
    column, total = model.centers_[:, j], 0.0
    for value in np.unique(column):
        moved = model.centers_.copy()
        moved[:, j] = value
        change = model.predict(moved) - model.predict(model.centers_)
        total += np.mean(column == value) * np.sum(change**2)
    return np.sqrt(total / len(column) / 2)


def _expected(model):
    G = np.diag(average_gradient_outer_product(model, model.centers_))
    effects = np.sqrt(G) * model.centers_.std(axis=0)
    effects[:2] = [_by_loops(model, j) for j in (0, 1)]
    return effects / effects.sum()


@pytest.mark.parametrize("kernel", KERNELS)
def test_importances_against_loops(kernel):
    model = _model_with_few_values(kernel=kernel)
    assert_allclose(model.feature_importances_, _expected(model), rtol=1e-9)


@pytest.mark.parametrize("scale", [1.0, 1e3])
@pytest.mark.parametrize("kernel", ["anova", "product_laplace", "product_matern32", "gaussian"])
def test_importances_of_diagonal_maps(kernel, scale):
    """Importances of diagonal maps match their formula.

    For product kernels, the factors of unchanged columns are reused. With the large scale, factors underflow, so the
    factor of one column cannot be removed by a division.
    """
    model = _model_with_few_values(4, kernel=kernel)
    model.map_ = np.diag([scale, 0.7, 0.0, 0.5])
    assert_allclose(model.feature_importances_, _expected(model), rtol=1e-9)
    assert_allclose(direction_effects(model, np.ones(4)), model.feature_importances_)


def test_several_targets():
    model = _model_with_few_values(n_targets=2)
    assert_allclose(model.feature_importances_, _expected(model), rtol=1e-9)
    one = _model_with_few_values(n_targets=2)
    one.dual_coef_ = one.dual_coef_[:, 1]
    one.intercept_ = 2.0
    assert_allclose(importances(model, 1), one.feature_importances_, rtol=1e-12)


def test_linear_function():
    model = _model_with_few_values()
    model.kernel_ = Polynomial(degree=1).with_gamma(0.8)
    slopes = 0.8 * model.components_.T @ model.components_ @ (model.centers_ - model.x_offset_).T @ model.dual_coef_
    effects = np.abs(slopes) * model.centers_.std(axis=0)
    assert_allclose(model.feature_importances_, effects / effects.sum(), rtol=1e-9)


def test_columns_with_few_values():
    many, n = np.arange(60.0), 60
    X = np.column_stack([many, many % 2, many % 20, many % 21, np.ones(n)])
    found = columns_with_few_values(X)
    assert list(found) == [1, 2]
    assert found[1][0].tolist() == [0.0, 1.0]
    assert found[1][1].tolist() == [0.5, 0.5]
    # A column without repeated values does not count as a column with few values, even if it has only five rows.
    assert columns_with_few_values(many[:5, None]) == {}


def test_block_size_and_sampling(monkeypatch):
    model = _model_with_few_values()
    whole = model.feature_importances_
    monkeypatch.setattr("hkrr.estimators.fitted.importance._BLOCK_ENTRIES", 90)
    assert_allclose(model.feature_importances_, whole, rtol=1e-12)
    monkeypatch.setattr("hkrr.estimators.fitted.importance._MAX_ROWS", 30)
    assert_allclose(model.feature_importances_, whole, atol=0.1)
    assert not np.allclose(model.feature_importances_, whole, rtol=1e-6)


@pytest.mark.parametrize("kernel", ["gaussian", "product_laplace", "anova"])
def test_binary_column_against_permutation_importance(kernel):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    X[:, 1] = rng.random(200) < 0.3
    y = X[:, 0] + 3.0 * X[:, 1] + 0.05 * rng.normal(size=200)
    model = HyperKernelRidge(2, kernel=kernel, criterion="evidence", n_init=1, max_iter=40, random_state=0).fit(X, y)
    found = permutation_importance(model, X, y, n_repeats=10, random_state=0, scoring="neg_mean_squared_error")
    effects = np.sqrt(np.maximum(found.importances_mean, 0.0))
    assert_allclose(model.feature_importances_[1], (effects / effects.sum())[1], atol=0.03)


def test_jump_that_the_gradient_misses():
    """Importances detect a jump between two values of a column although the gradient is zero at both values.

    The two values are far apart relative to the width of the kernel.
    """
    model = _model_with_few_values(4, kernel="anova")
    model.map_ = np.diag([1e3, 0.7, 0.3, 0.5])
    slopes = np.sqrt(np.diag(average_gradient_outer_product(model, model.centers_))) * model.centers_.std(axis=0)
    assert slopes[0] < 1e-6 * slopes[1]
    assert model.feature_importances_[0] > 0.1


def test_all_reports_show_the_same_importances(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"area": rng.normal(size=60), "colour": rng.choice(["red", "blue", "green"], 60)})
    price = frame["area"] + 2.0 * (frame["colour"] == "red")
    settings = {"kernel": "product_laplace", "n_init": 1, "random_state": 0}
    model = TableRegressor(HyperKernelRidgeCV(n_components=[2], **settings)).fit(frame, price)
    expected = dict(zip(model.feature_names_out_, model.model_.feature_importances_, strict=True))
    assert sum(expected.values()) == pytest.approx(1.0)
    assert {each["column"]: each["share"] for each in describe(model)["importances"]} == pytest.approx(expected)
    facts = gather(model, frame, price, compare=False)
    assert {each.column: each.weight for each in facts.directions.importances} == pytest.approx(expected)
    shown = ImportanceDisplay.from_estimator(model.model_)
    assert sorted(shown.importances) == pytest.approx(sorted(expected.values()))
    of_summary = [share for _, share in model.model_.summary().importances]
    assert of_summary == pytest.approx(sorted(expected.values(), reverse=True))
    hkrr.save(model, tmp_path / "model")
    again = hkrr.load(tmp_path / "model").model_
    assert np.array_equal(again.feature_importances_, model.model_.feature_importances_)
