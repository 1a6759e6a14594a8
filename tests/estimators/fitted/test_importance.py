"""Feature importances, against finite differences of the predictions, and what they do at the edges."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import SelectFromModel

import hkrr
from hkrr import HyperKernelRidge, HyperKernelRidgeCV
from hkrr.importance import average_gradient_outer_product, column_names, loadings, weights
from hkrr.kernels import KERNELS
from made_models import made_model

STEP = 1e-5


def _gradients(model, x):
    """Return the gradients of all targets at one row, by finite differences of `predict`."""
    slopes = []
    for j in range(len(x)):
        move = np.zeros(len(x))
        move[j] = STEP
        up, down = model.predict((x + move)[None]), model.predict((x - move)[None])
        slopes.append(np.ravel((up - down) / (2 * STEP)))
    return np.array(slopes).T


def _by_loops(model, rows):
    total = np.zeros((rows.shape[1], rows.shape[1]))
    for x in rows:
        for gradient in _gradients(model, x):
            total += np.outer(gradient, gradient)
    return total / len(rows)


@pytest.mark.parametrize("n_targets", [1, 2])
@pytest.mark.parametrize("kernel", KERNELS)
def test_outer_product_is_that_of_finite_differences(kernel, n_targets):
    model = made_model(n_components=2, n_features=3, kernel=kernel, n_targets=n_targets)
    rows = np.random.default_rng(1).normal(size=(7, 3))
    assert_allclose(average_gradient_outer_product(model, rows), _by_loops(model, rows), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("kernel", KERNELS)
def test_importances_are_those_of_finite_differences(kernel):
    """At the centers; there the symmetric difference has no slope of the kink of its own center, as here."""
    model = made_model(n_components=2, n_features=3, kernel=kernel)
    moves = np.sqrt(np.diag(_by_loops(model, model.centers_))) * model.centers_.std(axis=0)
    # Kernels with a kink: a difference over it is off by the step.
    assert_allclose(model.feature_importances_, moves / moves.sum(), rtol=1e-4)
    assert np.sum(model.feature_importances_) == pytest.approx(1.0)


def test_blocks_do_not_matter(monkeypatch):
    model = made_model(n_components=2, n_features=3)
    whole = average_gradient_outer_product(model, model.centers_)
    monkeypatch.setattr("hkrr.importance._BLOCK_ENTRIES", 25)
    assert_allclose(average_gradient_outer_product(model, model.centers_), whole, rtol=1e-12)


def test_units_do_not_matter():
    """A column in other units, a target in others, and numbers whose squares are none: the same importances."""
    model = made_model(n_components=2, n_features=3)
    expected = model.feature_importances_
    units = np.array([1e-120, 1.0, 1e90])
    other = made_model(n_components=2, n_features=3)
    other.centers_, other.x_offset_ = other.centers_ * units, other.x_offset_ * units
    other.components_, other.dual_coef_ = other.components_ / units, other.dual_coef_ * 1e200
    assert_allclose(other.feature_importances_, expected, rtol=1e-9)


def test_a_constant_function_has_none():
    model = made_model(n_components=1, n_features=3)
    model.dual_coef_ = np.zeros_like(model.dual_coef_)
    assert model.feature_importances_.tolist() == [0.0, 0.0, 0.0]


def test_a_constant_column_has_none():
    model = made_model(n_components=1, n_features=3)
    model.centers_[:, 1] = 5.0
    assert model.feature_importances_[1] == 0.0
    assert np.all(model.feature_importances_[[0, 2]] > 0)


def test_many_centers_are_sampled(monkeypatch):
    model = made_model(n_components=2, n_features=3)
    whole = model.feature_importances_
    monkeypatch.setattr("hkrr.steps._MOST_ROWS", 10)
    sampled = model.feature_importances_
    assert np.array_equal(sampled, model.feature_importances_)
    assert not np.array_equal(sampled, whole)


@pytest.mark.parametrize("cls", [HyperKernelRidge, HyperKernelRidgeCV])
def test_before_a_fit_there_are_none(cls):
    assert not hasattr(cls(), "feature_importances_")
    with pytest.raises(NotFittedError):
        _ = cls().feature_importances_


def test_of_a_fit(tmp_path):
    """The column that matters is found; selection by it works; a file keeps what it needs."""
    X = np.random.default_rng(0).normal(size=(120, 4))
    model = HyperKernelRidge(1, n_init=3, random_state=0).fit(X, np.sin(2 * X[:, 2]))
    assert model.feature_importances_[2] > 0.9
    assert SelectFromModel(model, prefit=True).get_support().tolist() == [False, False, True, False]
    hkrr.save(model, tmp_path / "model")
    assert np.array_equal(hkrr.load(tmp_path / "model").feature_importances_, model.feature_importances_)
    with pytest.raises(ValueError, match="features"):
        average_gradient_outer_product(model, X[:, :2])


def test_loadings_have_length_one_and_no_units():
    model = made_model(n_components=2, n_features=3)
    found = loadings(model)
    assert_allclose(np.sum(found**2, axis=1), 1.0)
    expected = model.components_ * model.centers_.std(axis=0)
    assert_allclose(found, expected / np.linalg.norm(expected, axis=1, keepdims=True))
    model.components_ = model.components_ * [[1.0], [0.0]]
    assert loadings(model)[1].tolist() == [0.0, 0.0, 0.0]


def test_weights_of_directions_go_with_their_rows():
    """Of a kernel that keeps the rows as they are, in whatever order these are."""
    model = made_model(3, 3, kernel="anova")
    model.components_ = np.diag([0.1, 1.0, 0.5])
    model.centers_ = model.centers_ / model.centers_.std(axis=0)
    assert_allclose(weights(model), [0.1, 1.0, 0.5])
    assert weights(made_model(3, 3)).tolist() == [1.0, 0.5, 0.25]


def test_names():
    assert column_names(made_model(n_features=3)) == ["x0", "x1", "x2"]
    assert column_names(made_model(n_features=2, names=["age", "height"])) == ["age", "height"]
