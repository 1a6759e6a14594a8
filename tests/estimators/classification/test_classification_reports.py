"""Tests of the summary of a classifier, of the importances of its columns, and of ties between classes."""

import copy

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.utils import estimator_html_repr

from hkrr import HyperKernelClassifier
from hkrr.datasets import make_mim_classes
from hkrr.estimators.classification import classifier
from support.quick_search import make_quick

# The regressions on noisy labels cause warnings.
pytestmark = pytest.mark.filterwarnings("ignore::hkrr.HKRRWarning")
NAMES = ["age", "height", "weight", "speed"]


@pytest.fixture(scope="module", params=[2, 3], ids=["2 classes", "3 classes"])
def fitted(request):
    """Return a model of 50 rows with 4 columns, whose classes have the labels a, b, and c."""
    data = make_mim_classes(50, 4, 1, request.param, random_state=0)
    with pytest.MonkeyPatch.context() as patch:
        make_quick(patch)
        patch.setattr(classifier, "refine", lambda task: None)
        model = HyperKernelClassifier(n_init=1, n_jobs=1, random_state=0)
        return model.fit(pd.DataFrame(data.X, columns=NAMES), np.array(list("abc"))[data.y])


def _with(model, **attributes):
    """Return a copy of a model with other attributes."""
    model = copy.deepcopy(model)
    for name, value in attributes.items():
        setattr(model, name, value)
    return model


def _facts(model):
    return dict(model.summary().facts)


def test_summary(fitted):
    K, counts = len(fitted.classes_), np.sort(fitted.class_count_)[::-1]
    text = str(fitted.summary())
    assert max(map(len, text.splitlines())) <= 78
    facts = _facts(fitted)
    pairs = zip(fitted.classes_, fitted.class_count_, strict=True)
    labels = [f"'{label}' {count} rows ({2 * count:g}%)" for label, count in pairs]
    by_size = sorted(labels, key=lambda label: -int(label.split()[1]))
    assert facts[f"Classes, {K}"].split(", ") == by_size
    assert (facts["Rows"], facts["Columns"]) == ("50", "4")
    priors = fitted.class_prior_
    entropy = -np.sum(priors * np.log(priors))
    loss, accuracy = fitted.held_out_log_loss_, fitted.held_out_accuracy_
    assert facts["Log loss, left out"] == f"{loss:.4f} ({entropy:.4f} if the class frequencies are predicted)"
    expected = f"{accuracy:.4f} ({counts[0] / 50:.4f} if the largest class is predicted)"
    assert facts["Accuracy, left out"] == expected
    assert facts.keys() == {"Rows", "Columns", f"Classes, {K}", "Log loss, left out", "Accuracy, left out"}
    # Names and values are separated by spaces.
    lines = text.splitlines()
    assert any(line.startswith("Log loss, left out  ") for line in lines)
    assert text.splitlines()[0].strip() == "HyperKernelClassifier: p(y | x)"
    assert "Stopped after" in text


def test_the_members_in_the_summary(fitted):
    members = fitted.summary().members
    assert [row[0] for row in members] == [f"{weight:.3f}" for weight in fitted.weights_]
    assert [row[2] for row in members] == [member.map_shape_ for member in fitted.members_]
    assert [row[5] for row in members] == ["50"] * len(fitted.members_)


def test_importances_in_the_summary(fitted):
    shares = dict(zip(NAMES, fitted.feature_importances_, strict=True))
    assert dict(fitted.summary().importances) == pytest.approx(shares)
    others = fitted.summary(columns=list("wxyz")).importances
    assert dict(others) == pytest.approx(dict(zip("wxyz", shares.values(), strict=True)))


def test_html(fitted):
    html = fitted.summary()._repr_html_()
    assert "<table>" in html
    assert "Members, largest weight first" in html
    assert "&#x27;a&#x27;" in html
    assert "HyperKernelClassifier" in estimator_html_repr(fitted)


def test_summary_of_many_classes_with_long_labels(fitted):
    labels = np.array([f"a label that is much too long, number {k:02}" for k in range(12)])
    counts = np.arange(1, 13)
    model = _with(fitted, classes_=labels, class_count_=counts, class_prior_=counts / 78, class_weight="balanced")
    text = str(model.summary())
    assert max(map(len, text.splitlines())) <= 78
    facts = _facts(model)
    assert facts["Classes, 12"].endswith(", and 4 more")
    assert facts["Classes, 12"].startswith("'a label that is much .. 12 rows (15.4%), ")
    assert facts["Class weights"] == "balanced"
    assert _facts(_with(fitted, class_weight={"a": 1.0, "b": 2.0}))["Class weights"] == "given"
    assert "Class weights" not in _facts(fitted)


def test_summary_of_a_refined_map(fitted):
    facts = _facts(_with(fitted, refined_=True))
    assert facts["Loss"] == "logistic; the map of the best regression on the classes was refined"
    assert {"Log loss, held out", "Accuracy, held out"} <= facts.keys()


def test_a_column_without_influence_has_no_importance():
    X = np.random.default_rng(0).normal(size=(50, 3))
    X[:, 2] = 4.0
    with pytest.MonkeyPatch.context() as patch:
        make_quick(patch)
        model = HyperKernelClassifier(n_init=1, n_jobs=1, random_state=0).fit(X, X[:, 0] > 0.2)
    assert np.argmax(model.feature_importances_) == 0
    assert model.feature_importances_[0] > 0.6
    assert model.feature_importances_[2] == 0.0
    moved = X + np.array([0.0, 0.0, 5.0])
    assert_allclose(model.predict_proba(moved), model.predict_proba(X))


@pytest.mark.parametrize("refined", [False, True])
@pytest.mark.parametrize("size", [0.0, 1e-18, 1.0, 1e3, 1e6])
def test_labels_agree_with_probabilities_for_extreme_and_tied_scores(fitted, size, refined):
    """Test scores that are multiplied by a number. If all scores are equal, the first label is predicted."""
    model = _with(fitted, refined_=refined)
    model.offsets_ = np.zeros_like(fitted.offsets_)
    for member in model.members_:
        member.truncate = False
        member.dual_coef_, member.intercept_ = size * member.dual_coef_, size * member.intercept_
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(50, 4)), columns=NAMES)
    p = model.predict_proba(X)
    assert_allclose(np.sum(p, axis=1), 1.0)
    assert np.min(p) > 1e-10
    assert_array_equal(model.predict(X), model.classes_[np.argmax(p, axis=1)])
    if size == 0.0:
        assert_array_equal(model.predict(X), "a")
        assert_allclose(p, 1.0 / len(model.classes_))


def test_scores_that_are_not_finite_are_refused(fitted):
    model = copy.deepcopy(fitted)
    model.members_[0].dual_coef_ = model.members_[0].dual_coef_ * np.nan
    X = pd.DataFrame(np.zeros((2, 4)), columns=NAMES)
    for method in ("predict", "predict_proba", "decision_function"):
        with pytest.raises(ValueError, match="NaN"):
            getattr(model, method)(X)
