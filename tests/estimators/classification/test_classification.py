"""Tests of HyperKernelClassifier: scikit-learn conventions, the documented formulas, labels, weights, stopped fits."""

import copy
import math
import pickle
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

from hkrr import HyperKernelClassifier, HyperKernelRidgeCV
from hkrr.datasets import make_mim_classes
from hkrr.estimators.classification import classifier
from hkrr.estimators.classification.labels import held_out_folds
from hkrr.estimators.fitted import base
from hkrr.estimators.search import search_and_refit
from hkrr.estimators.search.progress import Phase
from hkrr.estimators.search.search_and_refit import LeftOutPredictions
from support.quick_search import make_quick
from support.random_problems import SEEDS
from support.stopped_fits import breaking

# The regressions on noisy labels cause warnings.
pytestmark = pytest.mark.filterwarnings("ignore::hkrr.HKRRWarning")

# Checks that take seconds. `make thorough` runs all checks.
SLOW = {
    "check_array_api_input",
    "check_transformer_data_not_an_array",
    "check_pipeline_consistency",
    "check_classifiers_classes",
    "check_transformer_general",
    "check_classifiers_train",
    "check_estimators_pickle",
    "check_sample_weight_equivalence_on_dense_data",
    "check_transformer_preserve_dtypes",
    "check_estimators_dtypes",
    "check_estimators_nan_inf",
    "check_classifier_data_not_an_array",
    "check_fit_score_takes_y",
    "check_supervised_y_2d",
    "check_positive_only_tag_during_fit",
    "check_dtype_object",
    "check_dont_overwrite_parameters",
    "check_f_contiguous_array_estimator",
}
CHECKS = [
    pytest.param(estimator, check, id=f"{name}-{k}", marks=[pytest.mark.thorough] if name in SLOW else [])
    for k, (estimator, check) in enumerate(estimator_checks_generator(HyperKernelClassifier(n_init=1, n_jobs=1)))
    for name in [getattr(check, "func", check).__name__]
]


@pytest.mark.parametrize(("estimator", "check"), CHECKS)
def test_sklearn_compatible(estimator, check, monkeypatch):
    make_quick(monkeypatch)
    monkeypatch.setattr(classifier, "refine", _no_refinement)
    check(estimator)


@pytest.mark.thorough
@parametrize_with_checks([HyperKernelClassifier()])
def test_sklearn_compatible_with_the_default_settings(estimator, check):
    check(estimator)


def _no_refinement(task):
    """Return None, as `refine` does if it fails."""


def _planted(K=2, m=50, D=5, seed=2, n_test=2000):
    """Return K overlapping classes that depend on one direction of D columns.

    Return X and y of m training rows, and X, y and the true class probabilities of test rows.
    """
    data = make_mim_classes(m + n_test, D, 1, K, random_state=seed)
    return data.X[:m], data.y[:m], data.X[m:], data.y[m:], data.probabilities[m:]


def _model(**options):
    return HyperKernelClassifier(**{"n_init": 1, "n_jobs": 1, "random_state": 0} | options)


def _log_loss(model, X, y):
    p, index = model.predict_proba(X), np.searchsorted(model.classes_, y)
    return -np.mean(np.log(p[np.arange(len(y)), index]))


@pytest.fixture
def quick(monkeypatch):
    """Use few iterations and no refinement. The accuracy does not matter in tests with this fixture."""
    make_quick(monkeypatch)
    monkeypatch.setattr(classifier, "refine", _no_refinement)


@cache
def _fitted(K, refined):
    """Return a model of K classes, fitted to 80 rows with few iterations."""
    X, y, *_ = _planted(K, 80)
    with pytest.MonkeyPatch.context() as patch:
        make_quick(patch)
        if not refined:
            patch.setattr(classifier, "refine", _no_refinement)
        model = _model().fit(X, y)
    assert model.refined_ == refined
    return model


# K classes, and whether the map is refined.
CASES = {"2 classes": (2, False), "3 classes": (3, False), "3 classes, refined": (3, True)}


@pytest.fixture(params=CASES.values(), ids=CASES)
def fitted(request):
    return _fitted(*request.param)


def _test_rows(model):
    return _planted(len(model.classes_), 80)[2:]


# ------------------------------------------------------------------------------------ documented formulas


def test_probabilities_are_those_of_the_documented_formula(fitted):
    """Test that p_j is the softmax of ``sum_m w_m g(f_mj) + b_j``, where f_mj are the predictions of the members.

    g(f) is ``log(softplus(5 f))``, or f if the map was refined by the logistic loss.
    """
    X = _test_rows(fitted)[0][:100]
    p = fitted.predict_proba(X)
    scores = [member.predict(X) for member in fitted.members_]
    for i in range(len(X)):
        logs = []
        for j in range(len(fitted.classes_)):
            logs.append(fitted.offsets_[j])
            for weight, f in zip(fitted.weights_, scores, strict=True):
                g = f[i, j] if fitted.refined_ else math.log(math.log1p(math.exp(f[i, j] / 0.2)))
                logs[-1] += weight * g
        powers = [math.exp(one - max(logs)) for one in logs]
        assert_allclose(p[i], np.array(powers) / sum(powers), rtol=1e-6, atol=1e-8)


def test_decisions_labels_and_scores_agree_with_the_probabilities(fitted):
    X, y, truth = _test_rows(fitted)
    K, p, decisions = len(fitted.classes_), fitted.predict_proba(X), fitted.decision_function(X)
    assert p.shape == (len(X), K)
    assert_allclose(np.sum(p, axis=1), 1.0, rtol=1e-12)
    assert np.all((p > 0.0) & (p < 1.0))
    if K == 2:
        assert_allclose(decisions, np.log(p[:, 1] / p[:, 0]), rtol=1e-6, atol=1e-6)
        assert_array_equal(fitted.predict(X), (decisions > 0.0).astype(int))
    else:
        logs = np.log(p)
        assert_allclose(decisions - decisions[:, :1], logs - logs[:, :1], rtol=1e-5, atol=1e-5)
    assert_array_equal(fitted.predict(X), fitted.classes_[np.argmax(p, axis=1)])
    assert fitted.score(X, y) == np.mean(fitted.predict(X) == y)
    assert fitted.score(X, y) > np.mean(np.argmax(truth, axis=1) == y) - 0.15
    assert_allclose(fitted.predict_proba(X.astype(np.float32)), p, atol=1e-3)


def test_the_map_is_that_of_the_first_member(fitted):
    X, *_ = _test_rows(fitted)
    first = fitted.members_[0]
    assert_array_equal(fitted.components_, first.components_)
    assert_allclose(fitted.transform(X), X @ fitted.components_.T)
    assert fitted.transform(X).shape == (len(X), fitted.n_components_)
    assert fitted.map_shape_ == first.map_shape_
    assert type(fitted.map_shape_) is str
    names = [f"hyperkernelclassifier{k}" for k in range(fitted.n_components_)]
    assert list(fitted.get_feature_names_out()) == names


def test_the_members_and_their_weights(fitted):
    assert (len(fitted.members_) == 1) == fitted.refined_
    assert all(type(member) is HyperKernelRidgeCV for member in fitted.members_)
    assert len(fitted.weights_) == len(fitted.members_)
    assert np.all(fitted.weights_ > 0.0)
    assert_allclose(fitted.weights_, np.sort(fitted.weights_)[::-1], rtol=1e-2)
    assert fitted.offsets_.shape == (len(fitted.classes_),)
    assert fitted.scores_.members_ is fitted.members_
    assert fitted.scores_.weights_ is fitted.weights_
    shares = fitted.weights_ / np.sum(fitted.weights_)
    mean = sum(share * member.feature_importances_ for share, member in zip(shares, fitted.members_, strict=True))
    assert_allclose(fitted.feature_importances_, mean, rtol=1e-12)
    assert np.sum(fitted.feature_importances_) == pytest.approx(1.0)


def test_the_reported_quality(fitted):
    """Test that the log loss and the accuracy of the left-out rows are about those of new rows.

    The leave-one-out predictions may be too accurate, because the maps were learned from all rows.
    """
    X, y, _ = _test_rows(fitted)
    K = len(fitted.classes_)
    assert 0.0 < fitted.held_out_log_loss_ < _log_loss(fitted, X, y) + 0.1 < math.log(K) + 0.1
    assert fitted.held_out_accuracy_ == pytest.approx(fitted.score(X, y), abs=0.15)


def test_counts_path_and_diagnostics(fitted):
    y = _planted(len(fitted.classes_), 80)[1]
    assert_array_equal(fitted.class_count_, np.bincount(y))
    assert_allclose(fitted.class_prior_, np.bincount(y) / 80)
    assert {"plain", "diagonal", "square"} <= set(fitted.path_["start"])
    assert fitted.diagnostics_ is fitted.scores_.diagnostics_
    assert fitted.diagnostics_.n_rows == 80


def test_copies_predict_the_same(fitted):
    X, *_ = _test_rows(fitted)
    for again in (pickle.loads(pickle.dumps(fitted)), copy.deepcopy(fitted)):
        assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))
        assert again.get_params().keys() == fitted.get_params().keys()
        assert str(again.summary()) == str(fitted.summary())
        assert again.diagnostics_ == fitted.diagnostics_
        again.offsets_[0] += 1.0
        assert not np.allclose(again.predict_proba(X), fitted.predict_proba(X))


@pytest.mark.parametrize(
    "method", ["predict", "predict_proba", "decision_function", "transform", "summary", "get_feature_names_out"]
)
def test_a_model_that_is_not_fitted(method):
    with pytest.raises(NotFittedError):
        getattr(HyperKernelClassifier(), method)(*([] if method in ("summary", "get_feature_names_out") else [X40]))


# ------------------------------------------------------------------------------------ refinement


def test_the_refinement_by_the_logistic_loss_lowers_the_log_loss():
    refined, plain = _fitted(3, True), _fitted(3, False)
    X, y, _ = _test_rows(refined)
    assert refined.held_out_log_loss_ < plain.held_out_log_loss_
    assert _log_loss(refined, X, y) < _log_loss(plain, X, y) - 0.02
    assert refined.map_shape_ == "full"
    # The path and the diagnostics are those of the search.
    assert refined.path_["score"] == plain.path_["score"]
    assert refined.diagnostics_ == plain.diagnostics_


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_refinements_of_maps_of_ten_columns(seed, monkeypatch):
    make_quick(monkeypatch)
    X, y, X_test, y_test, _ = _planted(3, 120, 10, seed)
    refined = _model().fit(X, y)
    monkeypatch.setattr(classifier, "refine", _no_refinement)
    plain = _model().fit(X, y)
    assert (refined.refined_, plain.refined_) == (True, False)
    assert _log_loss(refined, X_test, y_test) < _log_loss(plain, X_test, y_test)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(("loss", "price", "accepted"), [(0.29, 0.0, True), (0.2, 0.09, True), (0.2, 0.11, False)])
def test_a_refinement_is_accepted_if_it_lowers_the_expected_log_loss(loss, price, accepted, monkeypatch):
    """Test refinements of a model whose log loss is 0.2, and whose price is 0.1."""
    X, y, *_ = _planted(3, 80)
    w, tasks, fit_link = np.linspace(0.5, 1.0, 80), [], classifier.fit_link

    def refine(task):
        tasks.append(task)
        return copy.copy(task.regressor), replace(fit_link(_none(task)), log_loss=loss, accuracy=0.7, price=price)

    def _none(task):
        targets = np.eye(3)[task.index] - np.bincount(task.index) / 80
        return LeftOutPredictions([0.5 * targets], targets, np.ones(80), np.zeros(1), 0.0)

    monkeypatch.setattr(classifier, "fit_link", lambda *given: replace(fit_link(*given), log_loss=0.2, price=0.1))
    monkeypatch.setattr(classifier, "refine", refine)
    model = _model().fit(X, y, w)
    (task,) = tasks
    order = np.lexsort(X.T[::-1])  # rows with weights are sorted
    assert_allclose(task.weight, (w / np.mean(w))[order])
    assert_array_equal(task.index, y[order])
    assert task.regressor.map_shape_ == "full"
    assert task.regressor.n_components_ < 5
    assert model.refined_ == accepted
    assert model.held_out_log_loss_ == (loss if accepted else 0.2)
    assert (task.regressor in model.members_) == (not accepted)
    assert len(model.members_) == 1 or not accepted


def test_only_a_map_with_few_directions_and_a_large_weight_is_refined():
    scores = _fitted(3, False).scores_
    few = [member.map_shape_ == "full" and member.n_components_ < 5 for member in scores.members_]
    assert any(few)
    first = few.index(True)

    def chosen(share):
        weights = np.where(np.arange(len(few)) == first, share, 0.0)
        weights[first - 1] += 1.0 - share
        return classifier._few_directions(scores, classifier.ClassLink(weights, np.zeros(3)))

    assert chosen(0.06) is scores.members_[first]
    assert chosen(0.04) is (scores.members_[first - 1] if few[first - 1] else None)


# ------------------------------------------------------------------------------------ accuracy


def _calibration_error(p, truth, n_bins=10):
    """Return the expected calibration error of the probability of class 1, relative to the true probabilities."""
    bins = np.minimum((p[:, 1] * n_bins).astype(int), n_bins - 1)
    parts = [bins == k for k in np.unique(bins)]
    return sum(np.mean(part) * abs(np.mean(p[part, 1]) - np.mean(truth[part, 1])) for part in parts)


def test_probabilities_are_calibrated(fitted):
    X, _, truth = _test_rows(fitted)
    assert _calibration_error(fitted.predict_proba(X), truth) < 0.2


@pytest.mark.thorough
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("K", "m", "D"), [(2, 150, 4), (2, 150, 15), (3, 300, 4), (5, 400, 4)])
def test_probabilities_of_whole_fits(K, m, D, seed):
    """Test the calibration and the log loss of fits with the default numbers of iterations."""
    X, y, X_test, y_test, truth = _planted(K, m, D, seed)
    model = _model().fit(X, y)
    assert _calibration_error(model.predict_proba(X_test), truth) < 0.08
    best = -np.mean(np.log(truth[np.arange(len(y_test)), y_test]))
    # The model explains at least half of the explainable log loss.
    assert _log_loss(model, X_test, y_test) < 0.5 * (best + math.log(K))


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("seed", SEEDS)
def test_labels_without_a_relation_to_the_inputs(seed):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(1060, 3)), (rng.uniform(size=1060) < 0.3).astype(int)
    model = _model().fit(X[:60], y[:60])
    prior = np.mean(y[:60])
    baseline = -np.mean(np.log(np.where(y[60:] == 1, prior, 1.0 - prior)))
    assert _log_loss(model, X[60:], y[60:]) < baseline + 0.15


# ------------------------------------------------------------------------------------ labels and classes


LABELS = {
    "strings": np.array(["no", "yes"]),
    "objects": np.array(["no", "yes"], dtype=object),
    "booleans": np.array([False, True]),
    "integers": np.array([-7, 30]),
}
OTHER_LABELS = {"unsigned": np.array([3, 200], dtype=np.uint8), "floats": np.array([1.0, 2.0])}


@pytest.fixture(scope="module")
def small():
    """Return a classifier fitted to 40 rows with labels 0 and 1."""
    with pytest.MonkeyPatch.context() as patch:
        make_quick(patch)
        patch.setattr(classifier, "refine", _no_refinement)
        X, y, *_ = _planted(2, 40)
        return _model().fit(X, y)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    "kind",
    [*LABELS, *(pytest.param(k, marks=pytest.mark.thorough) for k in OTHER_LABELS)],
)
def test_labels_of_all_types(kind, small):
    X, y, X_test, *_ = _planted(2, 40)
    expected, labels = small.predict_proba(X_test), (LABELS | OTHER_LABELS)[kind]
    model = _model().fit(X, labels[y])
    assert_array_equal(model.classes_, labels)
    assert_array_equal(model.predict_proba(X_test), expected)
    assert_array_equal(model.predict(X_test), labels[np.argmax(expected, axis=1)])
    assert model.predict(X_test).dtype == model.classes_.dtype


@pytest.mark.usefixtures("quick")
def test_the_order_of_the_labels_does_not_matter(small):
    X, y, X_test, *_ = _planted(2, 40)
    reversed_labels = _model().fit(X, 1 - y)
    assert_allclose(reversed_labels.predict_proba(X_test)[:, ::-1], small.predict_proba(X_test), atol=0.02)


@pytest.mark.usefixtures("quick")
def test_many_classes():
    """Test 30 classes, each with three rows around a point on a line."""
    rng = np.random.default_rng(0)
    index = np.tile(np.arange(30), 3)
    X = np.column_stack([index + 0.1 * rng.normal(size=90), rng.normal(size=90)])
    model = _model().fit(X, np.array([f"class {k:02}" for k in index]))
    p = model.predict_proba(X)
    assert p.shape == (90, 30)
    assert_allclose(np.sum(p, axis=1), 1.0)
    assert np.min(p) > 0.0
    assert np.mean(np.abs(np.argmax(p, axis=1) - index)) < 5.0
    assert "and 22 more" in str(model.summary())


@pytest.mark.parametrize("K", [2, pytest.param(3, marks=pytest.mark.thorough)])
def test_a_class_with_one_row(K, monkeypatch):
    make_quick(monkeypatch)
    X, y, X_test, *_ = _planted(K, 50)
    y = np.minimum(y, K - 2)
    y[np.argmax(X[:, 0])] = K - 1
    model = _model().fit(X, y)
    p = model.predict_proba(X_test)
    assert_array_equal(model.class_count_[-1], 1)
    assert np.all(np.isfinite(p))
    assert np.mean(p[:, -1]) < 0.2


@pytest.mark.parametrize("n", [2, 3, *(pytest.param(n, marks=pytest.mark.thorough) for n in (4, 5, 9))])
def test_a_few_rows(n, monkeypatch):
    make_quick(monkeypatch)
    X = np.random.default_rng(0).normal(size=(n, 2))
    model = _model().fit(X, np.arange(n) % 2)
    p = model.predict_proba(X)
    assert_allclose(np.sum(p, axis=1), 1.0)
    assert np.all((p > 0.0) & (p < 1.0))


@pytest.mark.usefixtures("quick")
def test_separable_classes():
    X = np.column_stack([np.linspace(-1.0, 1.0, 40), np.zeros(40)])
    y = (X[:, 0] > 0.0).astype(int)
    model = _model().fit(X, y)
    p = model.predict_proba(X)
    assert model.score(X, y) == 1.0
    assert np.all(np.isfinite(model.weights_))
    # The smoothed labels keep the probabilities of 40 rows away from 0 and 1.
    assert np.min(p) > 1e-4
    assert model.held_out_log_loss_ > 1e-4


@pytest.mark.usefixtures("quick")
def test_rows_far_from_the_training_rows():
    X, y, *_ = _planted(3, 40)
    model = _model().fit(X, y)
    for size in (1e3, 1e8, 1e100):
        p = model.predict_proba(size * X)
        assert_allclose(np.sum(p, axis=1), 1.0)
        assert np.min(p) > 0.0


# ------------------------------------------------------------------------------------ weights


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("K", [2, pytest.param(3, marks=pytest.mark.thorough)])
def test_integer_weights_equal_repeated_rows(K):
    X, y, X_test, *_ = _planted(K, 50)
    times = np.arange(50) % 3
    weighted, repeated = _model().fit(X, y, times.astype(float)), _model()
    every = np.repeat(np.arange(50), times)
    repeated.fit(X[every], y[every])
    assert_allclose(repeated.predict_proba(X_test), weighted.predict_proba(X_test), rtol=1e-2, atol=1e-3)
    assert_allclose(repeated.class_prior_, weighted.class_prior_)
    assert_array_equal(weighted.class_count_, np.bincount(y[times > 0]))


@pytest.mark.usefixtures("quick")
def test_equal_weights_equal_no_weights(small):
    X, y, X_test, *_ = _planted(2, 40)
    weighted = _model().fit(X, y, np.full(40, 3.0))
    assert_allclose(weighted.predict_proba(X_test), small.predict_proba(X_test), rtol=1e-6, atol=1e-9)


@pytest.mark.usefixtures("quick")
def test_classes_without_positive_weight_are_removed():
    X, y, X_test, *_ = _planted(3, 40)
    model = _model().fit(X, y, (y < 2).astype(float))
    assert_array_equal(model.classes_, [0, 1])
    assert model.predict_proba(X_test).shape == (2000, 2)
    without = _model().fit(X[y < 2], y[y < 2])
    assert_array_equal(model.predict_proba(X_test), without.predict_proba(X_test))


@pytest.mark.usefixtures("quick")
def test_balanced_class_weights():
    """Test that class_weight="balanced" gives the same model as its weights, passed as a dict or as sample weights."""
    X, y, X_test, *_ = _planted(2, 40)
    y[:15] = 0
    counts = np.bincount(y)
    each = len(y) / (2 * counts)
    balanced = _model(class_weight="balanced").fit(X, y)
    by_dict = _model(class_weight={0: each[0], 1: each[1]}).fit(X, y)
    by_rows, p = _model().fit(X, y, each[y]), balanced.predict_proba(X_test)
    assert_allclose(by_dict.predict_proba(X_test), p, rtol=1e-9)
    assert_allclose(by_rows.predict_proba(X_test), p, rtol=1e-9)
    assert_allclose(balanced.class_prior_, [0.5, 0.5])
    assert_array_equal(balanced.class_count_, counts)
    assert np.mean(p[:, 1]) > np.mean(_model().fit(X, y).predict_proba(X_test)[:, 1]) + 0.02


@pytest.mark.usefixtures("quick")
def test_balanced_class_weights_are_computed_without_rows_of_weight_zero():
    X, y, X_test, *_ = _planted(3, 40)
    w = (np.arange(40) % 4 > 0) * (y < 2)
    model = _model(class_weight="balanced").fit(X, y, w)
    expected = _model(class_weight="balanced").fit(X[w > 0], y[w > 0])
    assert_array_equal(model.predict_proba(X_test), expected.predict_proba(X_test))


# ------------------------------------------------------------------------------------ bad input

X40 = np.random.default_rng(0).normal(size=(40, 2))
Y40 = (X40[:, 0] > 0).astype(int)


@pytest.mark.parametrize(
    ("parameters", "y", "weight", "message"),
    [
        ({}, np.zeros(40), None, "y has 1 class, 0.0.*at least 2 classes are needed"),
        ({}, Y40, (Y40 == 0).astype(float), "1 class, 0, among the rows of positive weight"),
        ({}, Y40, np.zeros(40), "Sample weights must contain at least one non-zero number"),
        ({}, X40[:, 0], None, "Unknown label type: continuous"),
        ({}, np.where(Y40 == 1, np.nan, 0.0), None, "y contains NaN"),
        ({}, np.where(Y40 == 1, np.inf, 0.0), None, "y contains infinity|Input y contains infinity"),
        ({}, np.array([None, "a"] * 20, dtype=object), None, "y contains labels of different types"),
        ({}, np.array([1, "a"] * 20, dtype=object), None, r"labels of different types \(int, str\)"),
        ({}, np.array([np.nan, "a"] * 20, dtype=object), None, "y contains labels of different types|NaN"),
        ({}, Y40[:39], None, "y has 39 entries, but X has 40 rows"),
        ({}, np.eye(2)[Y40], None, "y should be a 1d array"),
        ({}, None, None, "y"),
        ({}, Y40, -np.ones(40), "sample_weight must not be negative"),
        ({}, Y40, np.full(40, np.nan), "sample_weight"),
        ({}, Y40, np.ones(39), "sample_weight"),
        ({"class_weight": "even"}, Y40, None, "class_weight must be one of 'balanced', a dict"),
        ({"class_weight": {0: -1.0, 1: 1.0}}, Y40, None, "class_weight must contain positive finite numbers"),
        ({"class_weight": {0: np.inf, 1: 1.0}}, Y40, None, "class_weight must contain positive finite numbers"),
        ({"class_weight": {0: 0.0, 1: 1.0}}, Y40, None, "class_weight must contain positive finite numbers"),
        ({"class_weight": {7: 2.0}}, Y40, None, "class_weight"),
        ({"class_weight": [1.0, 2.0]}, Y40, None, "class_weight must be 'balanced', a dict or None"),
        ({"n_init": 0}, Y40, None, "n_init"),
        ({"refit": 0}, Y40, None, "refit"),
        ({"refit": "half"}, Y40, None, "refit"),
        ({"scale_features": 2}, Y40, None, "scale_features"),
        ({"time_limit": -1.0}, Y40, None, "time_limit must be a positive"),
        ({"time_limit": "1"}, Y40, None, "time_limit"),
        ({"n_jobs": 0}, Y40, None, "n_jobs"),
        ({"random_state": "zero"}, Y40, None, "zero"),
        ({"callbacks": print}, Y40, None, "callbacks"),
        ({"verbose": -1}, Y40, None, "verbose"),
    ],
)
def test_invalid_input_raises(parameters, y, weight, message):
    model = _model(**parameters)
    with pytest.raises(ValueError, match=message):
        model.fit(X40, y, weight)
    assert not [name for name in vars(model) if name.endswith("_")]


def test_the_removed_parameters_are_refused():
    for name in ("n_components", "kernel", "loss"):
        with pytest.raises(TypeError, match=name):
            HyperKernelClassifier(**{name: 1})


def test_files_are_refused():
    with pytest.raises(ValueError, match="X must be an array or a data frame in memory"):
        HyperKernelClassifier().fit("table.csv", "label")


@pytest.mark.usefixtures("quick")
def test_a_failed_fit_keeps_the_former_model(small):
    model = copy.deepcopy(small)
    with pytest.raises(ValueError, match="at least 2 classes"):
        model.fit(X40, np.zeros(40))
    X_test = _planted(2, 40)[2]
    assert_array_equal(model.predict_proba(X_test), small.predict_proba(X_test))


# ------------------------------------------------------------------------------------ settings


@pytest.mark.usefixtures("quick")
def test_data_frames_in_a_grid_search_of_a_pipeline():
    X, y, X_test, y_test, _ = _planted(2, 50, 4)
    frame, names = pd.DataFrame(X, columns=list("abcd")), pd.Series(np.array(["no", "yes"])[y])
    pipeline = make_pipeline(StandardScaler(), _model()).set_output(transform="pandas")
    grid = GridSearchCV(pipeline, {"hyperkernelclassifier__class_weight": ["balanced"]}, cv=2)
    grid.fit(frame, names)
    assert grid.score(pd.DataFrame(X_test, columns=list("abcd")), np.array(["no", "yes"])[y_test]) > 0.7
    best = grid.best_estimator_[-1]
    assert best.class_weight == "balanced"
    assert list(best.feature_names_in_) == list("abcd")
    columns = [f"hyperkernelclassifier{k}" for k in range(best.n_components_)]
    assert list(grid.best_estimator_.transform(frame).columns) == columns


@pytest.mark.usefixtures("quick")
def test_the_random_state_determines_the_model(small):
    X, y, X_test, *_ = _planted(2, 40)
    expected = small.predict_proba(X_test)
    again = copy.deepcopy(small).fit(X, y)
    assert_array_equal(again.predict_proba(X_test), expected)
    other = _model(random_state=np.random.RandomState(4)).fit(X, y)
    assert not np.array_equal(other.predict_proba(X_test), expected)


@pytest.mark.parametrize("case", ["3 classes", pytest.param("3 classes, refined", marks=pytest.mark.thorough)])
def test_the_number_of_threads_does_not_change_the_model(case, monkeypatch):
    K, refined = CASES[case]
    X, y, X_test, *_ = _planted(K, 80)
    make_quick(monkeypatch)
    if not refined:
        monkeypatch.setattr(classifier, "refine", _no_refinement)
    threads = []
    monkeypatch.setattr(base, "count_threads", lambda n_jobs: threads.append(n_jobs) or 3)
    model = _model(n_jobs=None).fit(X, y)
    assert threads
    assert_allclose(model.predict_proba(X_test), _fitted(K, refined).predict_proba(X_test), rtol=1e-6, atol=1e-9)


@pytest.mark.thorough
def test_two_workers_give_the_same_model():
    X, y, X_test, *_ = _planted(3, 60)
    first, second = (_model(n_jobs=n_jobs).fit(X, y).predict_proba(X_test) for n_jobs in (1, 2))
    assert_allclose(second, first, rtol=1e-6, atol=1e-9)


@pytest.mark.usefixtures("quick")
def test_refit_limits_the_number_of_centers():
    X, y, X_test, *_ = _planted(2, 50)
    model = _model(refit=20).fit(X, y)
    assert {len(member.centers_) for member in model.members_} == {20}
    assert np.all(np.isfinite(model.predict_proba(X_test)))
    assert model.score(X, y) > 0.8


@pytest.mark.usefixtures("quick")
def test_a_second_fit_forgets_the_first_one():
    X, y, X_test, *_ = _planted(2, 40)
    model = _model().fit(pd.DataFrame(X[:, :2], columns=["a", "b"]), np.arange(40) % 3)
    model.fit(X, y)
    fresh = _model().fit(X, y)
    assert set(vars(model)) == set(vars(fresh))
    assert_array_equal(model.predict_proba(X_test), fresh.predict_proba(X_test))


@pytest.mark.usefixtures("quick")
def test_verbose_prints_the_stages(capfd):
    X, y, *_ = _planted(2, 40)
    _model().fit(X, y)
    assert capfd.readouterr() == ("", "")
    _model(verbose=1).fit(X, y)
    assert "weights of the ensemble" in capfd.readouterr().out


# ------------------------------------------------------------------------------------ stopped fits


@pytest.mark.parametrize("time_limit", [1e-6, 0.5, pytest.param(3.0, marks=pytest.mark.thorough)])
def test_a_time_limit_still_gives_a_model(time_limit, monkeypatch):
    X, y, X_test, *_ = _planted(3, 100)
    if time_limit < 0.1:
        monkeypatch.setattr(classifier, "_few_directions", lambda scores, link: scores.members_[0])
        monkeypatch.setattr(classifier, "refine", breaking(None, AssertionError("a map is refined after the deadline")))
    model = _model(time_limit=time_limit).fit(X, y)
    p = model.predict_proba(X_test)
    assert_allclose(np.sum(p, axis=1), 1.0)
    assert np.min(p) > 0.0
    assert math.isfinite(model.held_out_log_loss_)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("phase", [Phase.STARTS, Phase.KERNELS, Phase.WEIGHTS])
def test_a_callback_stops_the_search(phase):
    X, y, X_test, *_ = _planted(3, 50)
    states = []

    def stop(state):
        states.append(state)
        return state.phase is phase and state.n_components is not None

    model = _model(callbacks=[stop]).fit(X, y)
    assert states[-1].phase is Phase.FINAL_FIT
    assert len(model.members_) == 1
    assert np.all(np.isfinite(model.predict_proba(X_test)))


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("where", ["run_search", "_weigh", "final_fit"])
def test_ctrl_c_without_a_checkpoint_leaves_the_estimator_unchanged(where, monkeypatch):
    X, y, *_ = _planted(2, 40)
    model = _model()
    monkeypatch.setattr(search_and_refit, where, breaking(getattr(search_and_refit, where), KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    assert not [name for name in vars(model) if name.endswith("_")]


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("where", ["_weigh", "final_fit"])
def test_ctrl_c_with_a_checkpoint_keeps_the_best_model_and_the_fit_can_be_resumed(where, small, tmp_path, monkeypatch):
    X, y, X_test, *_ = _planted(2, 40)
    model = _model(checkpoint=tmp_path / "fit")
    with monkeypatch.context() as patch:
        patch.setattr(search_and_refit, where, breaking(getattr(search_and_refit, where), KeyboardInterrupt()))
        patch.setattr(classifier, "_few_directions", lambda scores, link: scores.members_[0])
        patch.setattr(classifier, "refine", breaking(None, AssertionError("a map is refined after Ctrl-C")))
        with pytest.raises(KeyboardInterrupt, match="the estimator holds the best model so far") as stop:
            model.fit(X, y)
    assert stop.value.model is model
    assert len(model.members_) == len(model.weights_) == 1
    assert not model.refined_
    assert model.score(X, y) > 0.7
    assert np.all(np.isfinite(model.predict_proba(X_test)))
    assert "Log loss" in str(model.summary())
    assert_array_equal(clone(model).fit(X, y).predict_proba(X_test), small.predict_proba(X_test))


@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_ctrl_c_in_the_refinement_leaves_the_estimator_unchanged(has_checkpoint, tmp_path, monkeypatch):
    """Test that a fit that is interrupted in the refinement can be resumed, without another search."""
    make_quick(monkeypatch)
    X, y, X_test, *_ = _planted(3, 80)
    model = _model(checkpoint=tmp_path / "fit" if has_checkpoint else None)
    with monkeypatch.context() as patch:
        patch.setattr(classifier, "refine", breaking(None, KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            model.fit(X, y)
    assert not [name for name in vars(model) if name.endswith("_")]
    if has_checkpoint:
        monkeypatch.setattr(classifier, "refine", _no_refinement)
        expected = _fitted(3, False)
        monkeypatch.setattr("hkrr.solvers.lbfgs.LBFGS.minimize", breaking(None, AssertionError("a run is made again")))
        assert_array_equal(model.fit(X, y).predict_proba(X_test), expected.predict_proba(X_test))


# ------------------------------------------------------------------------------------ folds and data


@pytest.mark.parametrize("n", [2, 7, 40, 400, 2000])
def test_folds_hold_out_a_fifth_of_every_class(n):
    index = np.arange(n) % 2
    parts = held_out_folds(index)
    assert len(parts) == (min(5, n) if n < 300 else {400: 3, 2000: 2}[n])
    assert np.max(np.sum(parts, axis=0)) <= 1
    for part in parts:
        assert abs(np.count_nonzero(part) - n / min(5, n)) < 1.5
        if n >= 40:
            assert abs(np.count_nonzero(part & (index == 1)) - n / 10) < 1.5


def test_make_mim_classes():
    data = make_mim_classes(20_000, 6, 2, 3, sharpness=2.0, random_state=0)
    assert_allclose(np.linalg.norm(data.B, axis=1), 1.0)
    assert_allclose(data.probabilities.sum(axis=1), 1.0)
    V, k = data.X @ data.B.T, 2
    F = [np.sin(1.5 * V + 2 * np.pi * k / 3 + np.arange(2)).sum(1) + 0.5 * V.sum(1) * np.cos(2 * np.pi * k / 3)]
    logs = np.log(data.probabilities)
    assert np.corrcoef(F[0], logs[:, k] - logs.mean(axis=1))[0, 1] > 0.99
    # Label frequencies match the probabilities within 5 standard errors, in bins of the probability.
    for low in np.arange(0.0, 1.0, 0.1):
        part = (data.probabilities[:, 0] >= low) & (data.probabilities[:, 0] < low + 0.1)
        p = np.mean(data.probabilities[part, 0])
        assert abs(np.mean(data.y[part] == 0) - p) < 5.0 * np.sqrt(p * (1 - p) / np.count_nonzero(part))
    for wrong in ({"n_components": 9}, {"n_classes": 1}, {"sharpness": 0.0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            make_mim_classes(10, 6, **{"n_components": 2, **wrong})
