"""Importances of columns with few values: steps by loops, beside permutations, and wherever they are shown."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn.inspection import permutation_importance

import hkrr
from hkrr import HyperKernelRidge, HyperKernelRidgeCV
from hkrr.importance import average_gradient_outer_product, direction_moves, importances
from hkrr.kernels import KERNELS, Polynomial
from hkrr.plotting import ImportanceDisplay
from hkrr.reporting import gather
from hkrr.steps import columns_of_few_values
from hkrr.tables import TableRegressor, describe
from made_models import made_model


def _of_few_values(n_components=2, **options):
    """Return a model of four columns: with two values, three that are unevenly apart, and two without repetition."""
    model = made_model(n_components, 4, **options)
    model.centers_[:, 0] = model.centers_[:, 0] > 0.2
    model.centers_[:, 1] = np.array([-1.0, 0.5, 0.75])[np.arange(len(model.centers_)) % 3]
    return model


def _by_loops(model, j):
    """Return ``move_j`` as the formula says it, by predictions."""
    column, total = model.centers_[:, j], 0.0
    for x in model.centers_:
        for value in np.unique(column):
            moved = x.copy()
            moved[j] = value
            change = model.predict(moved[None]) - model.predict(x[None])
            total += np.mean(column == value) * np.sum(change**2)
    return np.sqrt(total / len(column) / 2)


def _expected(model):
    G = np.diag(average_gradient_outer_product(model, model.centers_))
    moves = np.sqrt(G) * model.centers_.std(axis=0)
    moves[:2] = [_by_loops(model, j) for j in (0, 1)]
    return moves / moves.sum()


@pytest.mark.parametrize("kernel", KERNELS)
def test_steps_are_those_of_loops(kernel):
    model = _of_few_values(kernel=kernel)
    assert_allclose(model.feature_importances_, _expected(model), rtol=1e-9)


@pytest.mark.parametrize("scale", [1.0, 1e3])
@pytest.mark.parametrize("kernel", ["anova", "product_laplace", "product_matern32", "gaussian"])
def test_steps_where_each_direction_is_a_column(kernel, scale):
    """Factors of the columns that stay are used again; where a factor is too small to divide by, all are computed."""
    model = _of_few_values(4, kernel=kernel)
    model.components_ = np.diag([scale, 0.7, 0.0, 0.5])
    assert_allclose(model.feature_importances_, _expected(model), rtol=1e-9)
    assert_allclose(direction_moves(model, np.ones(4)), model.feature_importances_)


def test_several_targets_count_by_their_squares():
    model = _of_few_values(n_targets=2)
    assert_allclose(model.feature_importances_, _expected(model), rtol=1e-9)
    one = _of_few_values(n_targets=2)
    one.dual_coef_ = one.dual_coef_[:, 1]
    one.intercept_ = 2.0
    assert_allclose(importances(model, 1), one.feature_importances_, rtol=1e-12)


def test_of_a_linear_function_steps_and_gradients_are_the_same():
    model = _of_few_values()
    model.kernel_ = Polynomial(degree=1).with_gamma(0.8)
    slopes = 0.8 * model.components_.T @ model.components_ @ (model.centers_ - model.x_offset_).T @ model.dual_coef_
    moves = np.abs(slopes) * model.centers_.std(axis=0)
    assert_allclose(model.feature_importances_, moves / moves.sum(), rtol=1e-9)


def test_which_columns_have_few_values():
    many, n = np.arange(60.0), 60
    X = np.column_stack([many, many % 2, many % 20, many % 21, np.ones(n)])
    found = columns_of_few_values(X)
    assert list(found) == [1, 2]
    assert found[1][0].tolist() == [0.0, 1.0]
    assert found[1][1].tolist() == [0.5, 0.5]
    # Few rows, each with a value of its own, are no column of few values.
    assert columns_of_few_values(many[:5, None]) == {}


def test_blocks_and_samples(monkeypatch):
    model = _of_few_values()
    whole = model.feature_importances_
    monkeypatch.setattr("hkrr.steps._BLOCK_ENTRIES", 90)
    assert_allclose(model.feature_importances_, whole, rtol=1e-12)
    monkeypatch.setattr("hkrr.steps._MOST_ROWS", 30)
    assert_allclose(model.feature_importances_, whole, atol=0.1)
    assert not np.allclose(model.feature_importances_, whole, rtol=1e-6)


@pytest.mark.parametrize("kernel", ["gaussian", "product_laplace", "anova"])
def test_a_planted_column_of_two_values_has_the_share_that_permuting_it_gives(kernel):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    X[:, 1] = rng.random(200) < 0.3
    y = X[:, 0] + 3.0 * X[:, 1] + 0.05 * rng.normal(size=200)
    model = HyperKernelRidge(2, kernel=kernel, criterion="evidence", n_init=1, max_iter=40, random_state=0).fit(X, y)
    found = permutation_importance(model, X, y, n_repeats=10, random_state=0, scoring="neg_mean_squared_error")
    moves = np.sqrt(np.maximum(found.importances_mean, 0.0))
    assert_allclose(model.feature_importances_[1], (moves / moves.sum())[1], atol=0.03)


def test_a_step_that_the_gradient_does_not_see():
    """Where two values are far apart in units of the kernel the function is flat at both."""
    model = _of_few_values(4, kernel="anova")
    model.components_ = np.diag([1e3, 0.7, 0.3, 0.5])
    slopes = np.sqrt(np.diag(average_gradient_outer_product(model, model.centers_))) * model.centers_.std(axis=0)
    assert slopes[0] < 1e-6 * slopes[1]
    assert model.feature_importances_[0] > 0.1


def test_all_that_shows_importances_agrees(tmp_path):
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
