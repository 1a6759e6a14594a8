"""HyperKernelClassifier: scikit-learn's conventions, labels and weights of all kinds, calibration against the truth."""

import pickle

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import hkrr
from hkrr import HyperKernelClassifier, HyperKernelRidgeCV, selection
from hkrr.classification import links
from hkrr.classification.classes import codes_of, turns
from hkrr.classification.links import Task, _outputs_without
from hkrr.datasets import make_mim_classes

pytestmark = pytest.mark.filterwarnings("ignore::hkrr.HKRRWarning")  # of labels that are noise, and that is said
losses = pytest.mark.parametrize("loss", ["logistic", "squared"])
QUICK = {"n_init": 1, "random_state": 0}


# Scores of the squared loss, two directions given: the rest is the same for both.
@parametrize_with_checks([HyperKernelClassifier(2, n_init=1, loss="squared")])
def test_sklearn_compatible(estimator, check):
    check(estimator)


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore::hkrr.HKRRWarning")  # of targets that are noise, and that is said
@parametrize_with_checks([HyperKernelClassifier()])
def test_sklearn_compatible_as_it_is(estimator, check):
    check(estimator)


def planted(K, m=150, D=4, seed=0, n_test=2000):
    """One direction, and classes that overlap; training and test rows."""
    data = make_mim_classes(m + n_test, D, 1, K, random_state=seed)
    return data.X[:m], data.y[:m], data.X[m:], data.y[m:], data.probabilities[m:]


@pytest.fixture(scope="module", params=[("logistic", 2), ("logistic", 3), ("squared", 2), ("squared", 3)], ids=str)
def fitted(request):
    loss, K = request.param
    X, y, *_ = planted(K)
    return HyperKernelClassifier(1, loss=loss, **QUICK).fit(X, y)


def calibration_error(p, truth, n_bins=10):
    """Mean, over bins of the probability of class 1 as predicted, of its distance to the true mean there."""
    bins = np.minimum((p[:, 1] * n_bins).astype(int), n_bins - 1)
    parts = [bins == k for k in np.unique(bins)]
    return sum(np.mean(part) * abs(np.mean(p[part, 1]) - np.mean(truth[part, 1])) for part in parts)


def test_what_a_fitted_one_has_and_says(fitted):
    K = len(fitted.classes_)
    _, _, X_test, y_test, truth = planted(K)
    p, scores = fitted.predict_proba(X_test), fitted.decision_function(X_test)
    assert p.shape == (len(X_test), K)
    assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)
    assert np.all((p > 0) & (p < 1))
    assert_array_equal(fitted.predict(X_test), np.argmax(p, axis=1))
    assert_array_equal(fitted.predict(X_test), scores > 0 if K == 2 else np.argmax(scores, axis=1))
    assert fitted.score(X_test, y_test) == np.mean(fitted.predict(X_test) == y_test)
    assert fitted.score(X_test, y_test) > np.mean(np.argmax(truth, axis=1) == y_test) - 0.05
    latent = fitted.transform(X_test)
    assert_array_equal(latent, X_test @ fitted.components_.T)
    C = (fitted.centers_ - fitted.x_offset_) @ fitted.components_.T
    by_hand = fitted.kernel_((X_test - fitted.x_offset_) @ fitted.components_.T, C) @ fitted.dual_coef_
    assert_allclose(scores, by_hand + fitted.intercept_, rtol=1e-9, atol=1e-9)
    assert fitted.n_components_ == len(fitted.singular_values_) == 1
    assert fitted.gamma_ == fitted.kernel_.scale
    assert list(fitted.get_feature_names_out()) == ["hyperkernelclassifier0"]
    assert isinstance(fitted.regressor_, HyperKernelRidgeCV)
    assert fitted.diagnostics_ is fitted.regressor_.diagnostics_
    assert "score" in fitted.path_
    assert_allclose(fitted.predict_proba(X_test.astype(np.float32)), p, atol=1e-4)


def test_probabilities_are_calibrated_against_the_true_ones(fitted):
    """A bound that the regression's outputs, taken for probabilities as they are, do not meet (see below)."""
    _, _, X_test, _, truth = planted(len(fitted.classes_))
    assert calibration_error(fitted.predict_proba(X_test), truth) < 0.05


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.thorough)])
@pytest.mark.thorough
def test_calibration_where_the_map_has_learned_its_rows_by_heart(seed):
    """150 rows of 15 columns: the regression's outputs, taken as they are, are far off, and on its rows nobody sees."""
    X, y, X_test, _, truth = planted(2, D=15, seed=seed)
    model = HyperKernelClassifier(1, **QUICK).fit(X, y)
    share, on_its_rows = (np.clip((1.0 + model.regressor_.predict(rows)) / 2.0, 0.0, 1.0) for rows in (X_test, X))
    assert np.mean(np.abs(on_its_rows - y)) < 0.01
    assert calibration_error(np.column_stack([1 - share, share]), truth) > 0.08
    assert calibration_error(model.predict_proba(X_test), truth) < 0.08


def test_outputs_of_rows_held_out_are_those_of_a_fit_without_them():
    """At a map that is kept: kernel ridge regression on the other rows, with the same noise."""
    X, y, *_ = planted(3, m=100, D=2)
    weight = np.linspace(0.5, 1.5, 100)
    model = HyperKernelRidgeCV(1, truncate=False, **QUICK).fit(X, codes_of(y, 3), weight)
    (part, *_) = turns(y)
    assert 15 <= np.count_nonzero(part) <= 25
    found = _outputs_without(Task(model, X, y, weight, 3), part)
    P = (X - model.x_offset_) @ model.components_.T
    K, codes, learn = model.kernel_(P, P), np.eye(3)[y], ~part
    mean = np.average(codes[learn], axis=0, weights=weight[learn])
    noise = np.diag(model.reg_lambda_ * np.sum(weight) / weight[learn])
    alpha = np.linalg.solve(K[np.ix_(learn, learn)] + noise, codes[learn] - mean)
    assert_allclose(found, K[np.ix_(part, learn)] @ alpha + mean, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("n", [2, 7, 40, 400, 2000, 6000])
def test_every_class_is_held_out_by_a_fifth(n):
    index = np.arange(n) % 2
    parts = turns(index)
    assert len(parts) == (min(5, n) if n < 300 else {400: 3, 2000: 2, 6000: 1}[n])
    assert np.max(np.sum(parts, axis=0)) <= 1
    for part in parts:
        assert abs(np.count_nonzero(part) - n / min(5, n)) < 1.5
        if n >= 40:
            assert abs(np.count_nonzero(part & (index == 1)) - n / 10) < 1.5


LABELS = {
    "texts": np.array(["no", "yes"]),
    "objects": np.array(["no", "yes"], dtype=object),
    "truths": np.array([False, True]),
    "numbers": np.array([-7, 30]),
    "floats": np.array([1.0, 2.0]),
}


@pytest.fixture(scope="module")
def of_codes():
    """Probabilities where the labels are 0 and 1."""
    X, y, X_test, *_ = planted(2, m=60)
    return HyperKernelClassifier(1, loss="squared", **QUICK).fit(X, y).predict_proba(X_test)


@pytest.mark.parametrize("kind", LABELS)
def test_labels_of_all_kinds(kind, of_codes, tmp_path):
    X, y, X_test, *_ = planted(2, m=60)
    expected = of_codes
    model = HyperKernelClassifier(1, loss="squared", **QUICK).fit(X, LABELS[kind][y])
    assert_array_equal(model.classes_, LABELS[kind])
    assert_array_equal(model.predict_proba(X_test), expected)
    assert_array_equal(model.predict(X_test), LABELS[kind][np.argmax(expected, axis=1)])
    hkrr.save(model, tmp_path / "model")
    again = hkrr.load(tmp_path / "model")
    assert_array_equal(again.predict(X_test), model.predict(X_test), strict=True)
    assert_array_equal(again.predict_proba(X_test), expected)


def test_copies_are_the_same(fitted, tmp_path):
    _, _, X_test, *_ = planted(len(fitted.classes_))
    expected = fitted.predict_proba(X_test)
    hkrr.save(fitted, tmp_path / "model")
    for copy in (pickle.loads(pickle.dumps(fitted)), hkrr.load(tmp_path / "model")):
        assert_array_equal(copy.predict_proba(X_test), expected)
        assert_array_equal(copy.regressor_.predict(X_test), fitted.regressor_.predict(X_test))
        assert copy.get_params().keys() == fitted.get_params().keys()
        assert copy.diagnostics_ == fitted.diagnostics_


def test_frames_a_grid_and_a_pipeline():
    X, y, X_test, y_test, _ = planted(2, m=80)
    frame, names = pd.DataFrame(X, columns=list("abcd")), pd.Series(np.array(["no", "yes"])[y])
    pipeline = make_pipeline(StandardScaler(), HyperKernelClassifier(1, loss="squared", **QUICK))
    pipeline.set_output(transform="pandas")
    grid = GridSearchCV(pipeline, {"hyperkernelclassifier__class_weight": [None, "balanced"]}, cv=2)
    grid.fit(frame, names)
    assert grid.score(pd.DataFrame(X_test, columns=list("abcd")), np.array(["no", "yes"])[y_test]) > 0.7
    assert list(grid.best_estimator_[-1].feature_names_in_) == list("abcd")
    assert list(grid.best_estimator_.transform(frame).columns) == ["hyperkernelclassifier0"]


@losses
def test_weights_are_repetitions_and_zero_is_absence(loss):
    X, y, X_test, *_ = planted(3, m=60)
    times = np.arange(60) % 3
    model = HyperKernelClassifier(1, loss=loss, **QUICK)
    weighted = clone(model).fit(X, y, times.astype(float)).predict_proba(X_test)
    every = np.repeat(np.arange(60), times)
    assert_allclose(clone(model).fit(X[every], y[every]).predict_proba(X_test), weighted, rtol=1e-4, atol=1e-6)
    # A class that only rows of weight zero have is none.
    gone = clone(model).fit(X, y, (y < 2).astype(float))
    assert_array_equal(gone.classes_, [0, 1])


def test_balanced_weights_are_those_given_by_hand():
    X, y, X_test, *_ = planted(2, m=60)
    y[:20] = 0
    counts = np.bincount(y)
    each = len(y) / (2 * counts)
    model = HyperKernelClassifier(1, loss="squared", **QUICK)
    balanced = clone(model).set_params(class_weight="balanced").fit(X, y).predict_proba(X_test)
    by_dict = clone(model).set_params(class_weight={0: each[0], 1: each[1]}).fit(X, y).predict_proba(X_test)
    by_rows = clone(model).fit(X, y, each[y]).predict_proba(X_test)
    assert_allclose(by_dict, balanced, rtol=1e-9)
    assert_allclose(by_rows, balanced, rtol=1e-9)
    assert np.mean(balanced[:, 1]) > np.mean(clone(model).fit(X, y).predict_proba(X_test)[:, 1]) + 0.02


def test_a_dict_of_weights_is_saved(tmp_path):
    X, y, *_ = planted(2, m=40)
    model = HyperKernelClassifier(1, loss="squared", class_weight={0: 1.0, 1: 2.0}, **QUICK).fit(X, y)
    hkrr.save(model, tmp_path / "model")
    assert hkrr.load(tmp_path / "model").class_weight == {0: 1.0, 1: 2.0}


X40 = np.random.default_rng(0).normal(size=(40, 2))
Y40 = (X40[:, 0] > 0).astype(int)


@pytest.mark.parametrize(
    ("parameters", "y", "weight", "message"),
    [
        ({}, np.zeros(40), None, "y has 1 class, 0.0.*needs 2 classes"),
        ({}, Y40, (Y40 == 0).astype(float), "1 class, 0, among the rows of positive weight"),
        ({}, X40[:, 0], None, "Unknown label type: continuous"),
        ({}, np.where(Y40 == 1, np.nan, 0.0), None, "y contains NaN"),
        ({}, np.array([None, "a"] * 20, dtype=object), None, "y holds labels of different kinds"),
        ({}, Y40[:39], None, "y has 39 entries and X has 40 rows"),
        ({}, np.eye(2)[Y40], None, "y should be a 1d array"),
        ({}, Y40, -np.ones(40), "sample_weight must not be negative"),
        ({"loss": "hinge"}, Y40, None, "loss must be one of 'logistic', 'squared'; got 'hinge'"),
        ({"class_weight": "even"}, Y40, None, "class_weight must be one of 'balanced', a dict"),
        ({"class_weight": {0: -1.0, 1: 1.0}}, Y40, None, "class_weight must hold positive finite numbers"),
        ({"class_weight": [1.0, 2.0]}, Y40, None, "class_weight must be 'balanced', a dict or None"),
        ({"n_components": 3}, Y40, None, "n_components=3 exceeds the number of columns"),
        ({"kernel": "cubic"}, Y40, None, "kernel"),
        ({"time_limit": -1.0}, Y40, None, "time_limit must be a positive"),
    ],
)
def test_what_cannot_be_is_an_error_that_says_so(parameters, y, weight, message):
    model = HyperKernelClassifier(**{**QUICK, **parameters})
    with pytest.raises(ValueError, match=message):
        model.fit(X40, y, weight)
    assert not hasattr(model, "classes_")


def test_files_and_tensors_are_refused_in_words():
    with pytest.raises(ValueError, match="X must be an array or a data frame in memory"):
        HyperKernelClassifier().fit("table.csv", "label")


@losses
def test_a_fit_that_was_interrupted_goes_on_to_the_same_model(loss, tmp_path, monkeypatch):
    X, y, X_test, *_ = planted(2, m=60)
    model = HyperKernelClassifier(1, loss=loss, checkpoint=tmp_path / "fit", **QUICK)
    expected = clone(model).set_params(checkpoint=None).fit(X, y).predict_proba(X_test)
    last_fit, calls = selection.last_fit, []

    def interrupted_once(*arguments):
        calls.append(arguments)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return last_fit(*arguments)

    monkeypatch.setattr(selection, "last_fit", interrupted_once)
    with pytest.raises(KeyboardInterrupt) as stop:
        model.fit(X, y)
    assert stop.value.model is model
    assert np.all(np.isfinite(model.predict_proba(X_test)))
    assert_array_equal(model.fit(X, y).predict_proba(X_test), expected)


def test_the_data_set_is_what_it_says():
    data = make_mim_classes(20_000, 6, 2, 3, sharpness=2.0, random_state=0)
    assert_allclose(np.linalg.norm(data.B, axis=1), 1.0)
    assert_allclose(data.probabilities.sum(axis=1), 1.0)
    V, k = data.X @ data.B.T, 2
    F = [np.sin(1.5 * V + 2 * np.pi * k / 3 + np.arange(2)).sum(1) + 0.5 * V.sum(1) * np.cos(2 * np.pi * k / 3)]
    logs = np.log(data.probabilities)
    assert np.corrcoef(F[0], logs[:, k] - logs.mean(axis=1))[0, 1] > 0.99
    # Labels come as often as they should: in bins of the probability, within 5 standard errors.
    for low in np.arange(0.0, 1.0, 0.1):
        part = (data.probabilities[:, 0] >= low) & (data.probabilities[:, 0] < low + 0.1)
        p = np.mean(data.probabilities[part, 0])
        assert abs(np.mean(data.y[part] == 0) - p) < 5.0 * np.sqrt(p * (1 - p) / np.count_nonzero(part))
    for wrong in ({"n_components": 9}, {"n_classes": 1}, {"sharpness": 0.0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            make_mim_classes(10, 6, **{"n_components": 2, **wrong})


@losses
def test_verbose_shows_how_far_it_is(loss, capfd):
    X, y, *_ = planted(2, m=60)
    HyperKernelClassifier(1, loss=loss, **QUICK).fit(X, y)
    assert capfd.readouterr().err == ""
    HyperKernelClassifier(1, loss=loss, verbose=1, **QUICK).fit(X, y)
    err = capfd.readouterr().err
    assert "rows held out: 100%" in err
    assert ("log loss, held out" in err) == (loss == "logistic")


@pytest.mark.parametrize(("n", "shape"), [(36, "identity"), (60, "full")])
def test_maps_of_the_rows_held_out_have_the_shape_of_the_last(n, shape):
    """All five directions have 15 parameters: fewer than half of 36 rows, and not of the 29 that a turn leaves."""
    X, y, *_ = planted(2, m=n, D=5)
    model = HyperKernelRidgeCV(1, truncate=False, **QUICK).fit(X, codes_of(y, 2))
    model.map_shape_, model.components_ = "identity", np.eye(5)
    assert links.logistic(Task(model, X, y, None, 2, deadline=0.0)).shape == shape


def test_weights_that_are_all_alike_are_none():
    data = make_mim_classes(80, n_features=3, n_components=1, random_state=0)
    options = {"n_init": 1, "loss": "squared", "random_state": 0}
    plain = HyperKernelClassifier(1, **options).fit(data.X, data.y)
    alike = HyperKernelClassifier(1, **options).fit(data.X, data.y, np.full(80, 3.0))
    assert_array_equal(alike.predict_proba(data.X), plain.predict_proba(data.X))
