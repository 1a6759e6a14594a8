"""Tests of the importances, the summary and the saved files of a classifier, and of ties between classes."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.utils import estimator_html_repr

import hkrr
from hkrr.estimators.classification.probability_calibration import (
    MIN_PROBABILITY,
    expand_scores,
    probabilities,
    probability_jacobian,
)
from hkrr.estimators.fitted.importance import average_gradient_outer_product
from support.handmade_models import made_classifier, made_labels

kinds = pytest.mark.parametrize(("loss", "K"), [("logistic", 2), ("logistic", 3), ("squared", 2), ("squared", 3)])
STEP = 1e-5


@pytest.mark.parametrize("softness", [None, 0.1, 3.0])
@pytest.mark.parametrize("K", [2, 4])
def test_slopes_of_probabilities_are_those_of_differences(softness, K):
    u = np.random.default_rng(0).normal(size=(6, K)) / (1.0 if softness is None else 4.0)
    found = probability_jacobian(u, softness)
    for j, move in enumerate(STEP * np.eye(K)):
        expected = (probabilities(u + move, softness) - probabilities(u - move, softness)) / (2 * STEP)
        assert_allclose(found[:, :, j], expected, atol=1e-8)


@kinds
def test_importances_against_finite_differences_of_probabilities(loss, K):
    model = made_classifier(2, 3, K, loss=loss)
    squares = np.zeros(3)
    for j, move in enumerate(STEP * np.eye(3)):
        slopes = (model.predict_proba(model.centers_ + move) - model.predict_proba(model.centers_ - move)) / (2 * STEP)
        squares[j] = np.mean(np.sum(slopes**2, axis=1))
    assert_allclose(np.diag(average_gradient_outer_product(model, model.centers_)), squares, rtol=1e-6)
    effects = np.sqrt(squares) * np.std(model.centers_, axis=0)
    assert_allclose(model.feature_importances_, effects / np.sum(effects), rtol=1e-6)


@kinds
def test_importance_of_a_binary_column(loss, K):
    model = made_classifier(2, 3, K, loss=loss)
    model.centers_[:, 1] = np.arange(len(model.centers_)) % 2
    effects = np.zeros(3)
    for j in (0, 2):
        move = STEP * np.eye(3)[j]
        slopes = (model.predict_proba(model.centers_ + move) - model.predict_proba(model.centers_ - move)) / (2 * STEP)
        effects[j] = np.sqrt(np.mean(np.sum(slopes**2, axis=1))) * np.std(model.centers_[:, j])
    for value in (0.0, 1.0):
        there = model.centers_.copy()
        there[:, 1] = value
        steps = model.predict_proba(there) - model.predict_proba(model.centers_)
        effects[1] += np.mean(model.centers_[:, 1] == value) * np.mean(np.sum(steps**2, axis=1)) / 2.0
    effects[1] = np.sqrt(effects[1])
    assert_allclose(model.feature_importances_, effects / np.sum(effects), rtol=1e-6)


def test_a_constant_added_to_all_scores_does_not_change_importances():
    model = made_classifier(1, 3, 3)
    expected = model.feature_importances_
    model.dual_coef_ = model.dual_coef_ + np.linspace(-1.0, 1.0, len(model.centers_))[:, None]
    assert_allclose(model.feature_importances_, expected, rtol=1e-6)


@kinds
def test_summary(loss, K):
    model = made_classifier(2, 4, K, loss=loss, names=["age", "height", "weight", "speed"])
    text = str(model.summary())
    assert max(map(len, text.splitlines())) <= 78
    for says in (
        "p(y | x) = p(y | Bx)",
        f"Rows                  {50 if K == 2 else 90}",
        f"Classes, {K}            {'' if K == 2 else chr(39) + 'c' + chr(39) + ' 40 rows (44.4%), '}'b' 30 rows",
        "logistic; nu 0.1, chosen on held-out rows" if loss == "logistic" else "softness of the link 0.2",
        "Log loss, held out    0.4000 (",
        f"Accuracy, held out    0.8500 ({30 / 50 if K == 2 else 40 / 90:.4f} if the largest class is predicted)",
        "1  weight 1.00:",
        "class codes as targets, which provided the initial map, stopped after 12 iterations: stalled",
    ):
        assert says in " ".join(text.split()) or says in text
    shares = dict(zip(model.feature_names_in_, model.feature_importances_, strict=True))
    assert dict(model.summary().importances) == pytest.approx(shares)
    assert "<table>" in model.summary()._repr_html_()
    assert "HyperKernelClassifier" in estimator_html_repr(model)


def test_summary_of_a_fit_with_many_rows():
    """With the squared loss and more than 20,000 rows, the calibration and its scores use training rows."""
    for loss, used in (("squared", "training"), ("logistic", "held out")):
        model = made_classifier(1, 2, 2, loss=loss)
        model.class_count_ = np.array([15_000, 5_001])
        text = str(model.summary())
        assert f"Log loss, {used}" in text
        assert f"Accuracy, {used}" in text
        assert f"{used.replace(' ', '-')} rows" in " ".join(text.split())


def test_summary_of_many_classes_with_long_names():
    model = made_classifier(1, 2, 12)
    model.classes_ = np.array([f"a label that is much too long, number {k:02}" for k in range(12)])
    model.class_weight = "balanced"
    text = str(model.summary())
    assert max(map(len, text.splitlines())) <= 78
    assert "and 4 more" in text
    assert "Class weights         balanced" in text


def test_saved_models(tmp_path):
    """A loaded model has the same summary. Files of earlier versions, which lack some attributes, can be loaded too."""
    model = made_classifier(2, 3, 3)
    hkrr.save(model, tmp_path / "model")
    again = hkrr.load(tmp_path / "model")
    assert str(again.summary()) == str(model.summary())
    assert_array_equal(again.feature_importances_, model.feature_importances_)
    for name in ("class_count_", "class_prior_", "held_out_log_loss_", "held_out_accuracy_", "map_shape_"):
        delattr(model, name)
    hkrr.save(model, tmp_path / "model")
    text = str(hkrr.load(tmp_path / "model").summary())
    assert "Classes, 3            'a', 'b', 'c'" in text
    assert "held out" not in text


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("class_count_", np.array([1, 2]), "class_prior_ has the shape"),
        ("class_prior_", np.array([0.5, 0.5, 0.0]), "class_prior_ is not positive"),
        ("classes_", np.array(["a", "b"]), r"dual_coef_ must have the shape \(n_centers,\)"),
        ("map_shape_", "round", "map_shape_ is not one of"),
    ],
)
def test_inconsistent_attributes_are_not_saved(name, value, message, tmp_path):
    model = made_classifier(1, 2, 3)
    setattr(model, name, value)
    with pytest.raises(ValueError, match=message):
        hkrr.save(model, tmp_path / "model")


@kinds
def test_labels_agree_with_probabilities_for_extreme_and_tied_scores(loss, K):
    model = made_classifier(1, 2, K, loss=loss)
    X, _ = made_labels(model, 50)
    for factor in (0.0, 1e-18, 1.0, 1e3, -1e3):
        other = made_classifier(1, 2, K, loss=loss)
        other.dual_coef_, other.intercept_ = factor * model.dual_coef_, factor * np.asarray(model.intercept_)
        p = other.predict_proba(X)
        assert np.all(p >= MIN_PROBABILITY / K)
        assert_array_equal(other.predict(X), other.classes_[np.argmax(p, axis=1)])
    other.dual_coef_ = 0.0 * model.dual_coef_
    other.intercept_ = 0.0 * np.asarray(model.intercept_)
    assert_array_equal(other.predict(X), other.classes_[0])


def test_expand_scores():
    scores = np.array([[-1.0], [0.5]])
    assert_array_equal(expand_scores(scores, False), [[0.5, -0.5], [-0.25, 0.25]])
    assert_array_equal(expand_scores(scores, True), [[1.0, 0.0], [0.25, 0.75]])
