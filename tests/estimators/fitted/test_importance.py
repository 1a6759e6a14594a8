"""Tests of feature importances, loadings and direction weights, mostly against finite differences of predictions."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import SelectFromModel

import hkrr
from hkrr import HyperKernelRidge, HyperKernelRidgeCV
from hkrr.estimators.fitted.importance import average_gradient_outer_product, column_names, direction_weights, loadings
from hkrr.kernels import KERNELS
from support.handmade_models import made_model

STEP = 1e-5


def _by_loops(model, rows):
    """Return the average outer product of the gradients, computed by finite differences of `predict`."""
    n, D = rows.shape
    slopes = [(model.predict(rows + step) - model.predict(rows - step)) / (2 * STEP) for step in STEP * np.eye(D)]
    # One gradient for each row and target.
    gradients = np.moveaxis(np.array(slopes).reshape(D, n, -1), 0, -1).reshape(-1, D)
    return sum(np.outer(gradient, gradient) for gradient in gradients) / n


@pytest.mark.parametrize("n_targets", [1, 2])
@pytest.mark.parametrize("kernel", KERNELS)
def test_outer_product_against_finite_differences(kernel, n_targets):
    model = made_model(n_components=2, n_features=3, kernel=kernel, n_targets=n_targets)
    rows = np.random.default_rng(1).normal(size=(7, 3))
    assert_allclose(average_gradient_outer_product(model, rows), _by_loops(model, rows), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("kernel", KERNELS)
def test_importances_against_finite_differences(kernel):
    """Importances match finite differences of the predictions at the centers.

    At a center, the central difference of the kernel function of this center is zero, even if the kernel has a kink
    there. The library also leaves this kernel function out of the gradient.
    """
    model = made_model(n_components=2, n_features=3, kernel=kernel)
    moves = np.sqrt(np.diag(_by_loops(model, model.centers_))) * model.centers_.std(axis=0)
    # For kernels with a kink, the error of a finite difference is of the order of the step.
    assert_allclose(model.feature_importances_, moves / moves.sum(), rtol=1e-4)
    assert np.sum(model.feature_importances_) == pytest.approx(1.0)


def test_block_size_does_not_matter(monkeypatch):
    model = made_model(n_components=2, n_features=3)
    whole = average_gradient_outer_product(model, model.centers_)
    monkeypatch.setattr("hkrr.estimators.fitted.importance._BLOCK_ENTRIES", 25)
    assert_allclose(average_gradient_outer_product(model, model.centers_), whole, rtol=1e-12)


def test_units_do_not_matter():
    """Importances do not change with the units of columns and targets, even if squares would overflow."""
    model = made_model(n_components=2, n_features=3)
    expected = model.feature_importances_
    units = np.array([1e-120, 1.0, 1e90])
    other = made_model(n_components=2, n_features=3)
    other.centers_, other.x_offset_ = other.centers_ * units, other.x_offset_ * units
    other.map_, other.dual_coef_ = other.components_ / units, other.dual_coef_ * 1e200
    assert_allclose(other.feature_importances_, expected, rtol=1e-9)


def test_constant_function():
    model = made_model(n_components=1, n_features=3)
    model.dual_coef_ = np.zeros_like(model.dual_coef_)
    assert model.feature_importances_.tolist() == [0.0, 0.0, 0.0]


def test_constant_column():
    model = made_model(n_components=1, n_features=3)
    model.centers_[:, 1] = 5.0
    assert model.feature_importances_[1] == 0.0
    assert np.all(model.feature_importances_[[0, 2]] > 0)


def test_many_centers_are_sampled(monkeypatch):
    model = made_model(n_components=2, n_features=3)
    whole = model.feature_importances_
    monkeypatch.setattr("hkrr.estimators.fitted.importance._MAX_ROWS", 10)
    sampled = model.feature_importances_
    assert np.array_equal(sampled, model.feature_importances_)
    assert not np.array_equal(sampled, whole)


@pytest.mark.parametrize("cls", [HyperKernelRidge, HyperKernelRidgeCV])
def test_not_fitted(cls):
    assert not hasattr(cls(), "feature_importances_")
    with pytest.raises(NotFittedError):
        _ = cls().feature_importances_


def test_fitted_model(tmp_path):
    """A fit finds the relevant column, SelectFromModel selects it, and a saved model has the same importances."""
    X = np.random.default_rng(0).normal(size=(120, 4))
    model = HyperKernelRidge(1, n_init=3, random_state=0).fit(X, np.sin(2 * X[:, 2]))
    assert model.feature_importances_[2] > 0.9
    assert SelectFromModel(model, prefit=True).get_support().tolist() == [False, False, True, False]
    hkrr.save(model, tmp_path / "model")
    assert np.array_equal(hkrr.load(tmp_path / "model").feature_importances_, model.feature_importances_)
    with pytest.raises(ValueError, match="features"):
        average_gradient_outer_product(model, X[:, :2])


def test_loadings():
    model = made_model(n_components=2, n_features=3)
    found = loadings(model)
    assert_allclose(np.sum(found**2, axis=1), 1.0)
    expected = model.components_ * model.centers_.std(axis=0)
    assert_allclose(found, expected / np.linalg.norm(expected, axis=1, keepdims=True))
    model.map_ = model.components_ * [[1.0], [0.0]]
    assert loadings(model)[1].tolist() == [0.0, 0.0, 0.0]


def test_direction_weights():
    """If the kernel is not rotation invariant, the weights are the lengths of the rows of the map, in their order."""
    model = made_model(3, 3, kernel="anova")
    model.map_ = np.diag([0.1, 1.0, 0.5])
    model.centers_ = model.centers_ / model.centers_.std(axis=0)
    assert_allclose(direction_weights(model), [0.1, 1.0, 0.5])
    assert direction_weights(made_model(3, 3)).tolist() == [1.0, 0.5, 0.25]


def test_column_names():
    assert column_names(made_model(n_features=3)) == ["x0", "x1", "x2"]
    assert column_names(made_model(n_features=2, names=["age", "height"])) == ["age", "height"]
