"""Tests of HyperKernelClassifier: scikit-learn conventions, label types, weights, and calibration."""

import pickle
from copy import deepcopy

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
from hkrr import HyperKernelClassifier, HyperKernelRidgeCV
from hkrr.datasets import make_mim_classes
from hkrr.estimators.classification import losses as losses_module
from hkrr.estimators.classification.labels import class_codes, held_out_folds
from hkrr.estimators.classification.losses import Task, _held_out_outputs, fit_logistic
from hkrr.estimators.search import search_and_refit
from support.quick_search import make_quick

# Noisy labels cause warnings about `regressor_`, the regression with the class codes as targets.
pytestmark = pytest.mark.filterwarnings("ignore::hkrr.HKRRWarning")
losses = pytest.mark.parametrize("loss", ["logistic", "squared"])
squared_or_thorough = pytest.mark.parametrize("loss", ["squared", pytest.param("logistic", marks=pytest.mark.thorough)])
QUICK = {"n_init": 1, "random_state": 0}


# The squared loss, two directions, few centers and few iterations make the fits fast. The thorough test below has no
# such shortcuts.
@parametrize_with_checks([HyperKernelClassifier(2, n_init=1, loss="squared", refit=20)])
def test_sklearn_compatible(estimator, check, monkeypatch):
    make_quick(monkeypatch)
    # With this constant, the regression is never repeated without the held-out rows, which saves time.
    monkeypatch.setattr(losses_module, "_ROWS_PER_PARAMETER", 0)
    check(estimator)


@pytest.mark.thorough
@parametrize_with_checks([HyperKernelClassifier(), HyperKernelClassifier(2, n_init=1, loss="squared")])
def test_sklearn_compatible_in_other_settings(estimator, check):
    check(estimator)


def planted(K, m=150, D=4, seed=0, n_test=2000):
    """Return K overlapping classes that depend on one direction of D columns.

    Return X and y of m training rows, and X, y and the true class probabilities of test rows.
    """
    data = make_mim_classes(m + n_test, D, 1, K, random_state=seed)
    return data.X[:m], data.y[:m], data.X[m:], data.y[m:], data.probabilities[m:]


@pytest.fixture(
    scope="module",
    params=[
        ("logistic", 3),
        ("squared", 2),
        pytest.param(("logistic", 2), marks=pytest.mark.thorough),
        pytest.param(("squared", 3), marks=pytest.mark.thorough),
    ],
    ids=str,
)
def fitted(request):
    loss, K = request.param
    X, y, *_ = planted(K)
    return HyperKernelClassifier(1, loss=loss, **QUICK).fit(X, y)


def calibration_error(p, truth, n_bins=10):
    """Return the expected calibration error of the probability of class 1, relative to the true probabilities."""
    bins = np.minimum((p[:, 1] * n_bins).astype(int), n_bins - 1)
    parts = [bins == k for k in np.unique(bins)]
    return sum(np.mean(part) * abs(np.mean(p[part, 1]) - np.mean(truth[part, 1])) for part in parts)


def test_methods_and_attributes(fitted):
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


def test_probabilities_are_calibrated(fitted):
    """The expected calibration error of the probabilities is below 0.05.

    If the map overfits, the raw outputs of `regressor_` are not calibrated (see the next test).
    """
    _, _, X_test, _, truth = planted(len(fitted.classes_))
    assert calibration_error(fitted.predict_proba(X_test), truth) < 0.05


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.thorough
def test_calibration_of_an_overfitted_map(seed):
    """The calibration error of the probabilities is below 0.08, even if `regressor_` interpolates its training rows.

    With 150 rows of 15 columns, `regressor_` interpolates. The calibration error of its own outputs is above 0.08.
    """
    X, y, X_test, _, truth = planted(2, D=15, seed=seed)
    model = HyperKernelClassifier(1, **QUICK).fit(X, y)
    share, on_its_rows = (np.clip((1.0 + model.regressor_.predict(rows)) / 2.0, 0.0, 1.0) for rows in (X_test, X))
    assert np.mean(np.abs(on_its_rows - y)) < 0.01
    assert calibration_error(np.column_stack([1 - share, share]), truth) > 0.08
    assert calibration_error(model.predict_proba(X_test), truth) < 0.08


def test_held_out_outputs_at_a_fixed_map():
    """The held-out outputs are the predictions of kernel ridge regression on the other rows, at a fixed map.

    The kernel ridge regression has the class codes as targets, and the same noise as the model of all rows.
    """
    X, y, *_ = planted(3, m=100, D=2)
    weight = np.linspace(0.5, 1.5, 100)
    model = HyperKernelRidgeCV(1, truncate=False, **QUICK).fit(X, class_codes(y, 3), weight)
    (part, *_) = held_out_folds(y)
    assert 15 <= np.count_nonzero(part) <= 25
    found = _held_out_outputs(Task(model, X, y, weight, 3), part)
    P = (X - model.x_offset_) @ model.components_.T
    K, codes, learn = model.kernel_(P, P), np.eye(3)[y], ~part
    mean = np.average(codes[learn], axis=0, weights=weight[learn])
    noise = np.diag(model.reg_lambda_ * np.sum(weight) / weight[learn])
    alpha = np.linalg.solve(K[np.ix_(learn, learn)] + noise, codes[learn] - mean)
    assert_allclose(found, K[np.ix_(part, learn)] @ alpha + mean, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("n", [2, 7, 40, 400, 2000, 6000])
def test_folds_hold_out_a_fifth_of_every_class(n):
    index = np.arange(n) % 2
    parts = held_out_folds(index)
    assert len(parts) == (min(5, n) if n < 300 else {400: 3, 2000: 2, 6000: 1}[n])
    assert np.max(np.sum(parts, axis=0)) <= 1
    for part in parts:
        assert abs(np.count_nonzero(part) - n / min(5, n)) < 1.5
        if n >= 40:
            assert abs(np.count_nonzero(part & (index == 1)) - n / 10) < 1.5


LABELS = {
    "strings": np.array(["no", "yes"]),
    "objects": np.array(["no", "yes"], dtype=object),
    "booleans": np.array([False, True]),
    "integers": np.array([-7, 30]),
    "floats": np.array([1.0, 2.0]),
}


@pytest.fixture(scope="module")
def small():
    """Return a classifier fitted to 30 rows with labels 0 and 1."""
    X, y, *_ = planted(2, m=30)
    return HyperKernelClassifier(1, loss="squared", **QUICK).fit(X, y)


@pytest.mark.parametrize("kind", LABELS)
def test_labels_of_all_types(kind, small, tmp_path):
    X, y, X_test, *_ = planted(2, m=30)
    expected = small.predict_proba(X_test)
    model = HyperKernelClassifier(1, loss="squared", **QUICK).fit(X, LABELS[kind][y])
    assert_array_equal(model.classes_, LABELS[kind])
    assert_array_equal(model.predict_proba(X_test), expected)
    assert_array_equal(model.predict(X_test), LABELS[kind][np.argmax(expected, axis=1)])
    hkrr.save(model, tmp_path / "model")
    loaded = hkrr.load(tmp_path / "model")
    assert_array_equal(loaded.predict(X_test), model.predict(X_test), strict=True)
    assert_array_equal(loaded.predict_proba(X_test), expected)


def test_pickled_and_saved_models(fitted, tmp_path):
    _, _, X_test, *_ = planted(len(fitted.classes_))
    expected = fitted.predict_proba(X_test)
    hkrr.save(fitted, tmp_path / "model")
    for copy in (pickle.loads(pickle.dumps(fitted)), hkrr.load(tmp_path / "model")):
        assert_array_equal(copy.predict_proba(X_test), expected)
        assert_array_equal(copy.regressor_.predict(X_test), fitted.regressor_.predict(X_test))
        assert copy.get_params().keys() == fitted.get_params().keys()
        assert copy.diagnostics_ == fitted.diagnostics_


def test_data_frames_in_a_grid_search_of_a_pipeline():
    X, y, X_test, y_test, _ = planted(2, m=60)
    frame, names = pd.DataFrame(X, columns=list("abcd")), pd.Series(np.array(["no", "yes"])[y])
    pipeline = make_pipeline(StandardScaler(), HyperKernelClassifier(1, loss="squared", **QUICK))
    pipeline.set_output(transform="pandas")
    grid = GridSearchCV(pipeline, {"hyperkernelclassifier__class_weight": [None, "balanced"]}, cv=2)
    grid.fit(frame, names)
    assert grid.score(pd.DataFrame(X_test, columns=list("abcd")), np.array(["no", "yes"])[y_test]) > 0.7
    assert list(grid.best_estimator_[-1].feature_names_in_) == list("abcd")
    assert list(grid.best_estimator_.transform(frame).columns) == ["hyperkernelclassifier0"]


@losses
@pytest.mark.parametrize(("K", "m"), [(2, 45), pytest.param(3, 60, marks=pytest.mark.thorough)])
def test_integer_weights_equal_repeated_rows(loss, K, m):
    X, y, X_test, *_ = planted(K, m=m)
    times = np.arange(m) % 3
    model = HyperKernelClassifier(1, loss=loss, **QUICK)
    weighted = clone(model).fit(X, y, times.astype(float)).predict_proba(X_test)
    every = np.repeat(np.arange(m), times)
    assert_allclose(clone(model).fit(X[every], y[every]).predict_proba(X_test), weighted, rtol=1e-4, atol=1e-6)


@squared_or_thorough
def test_classes_without_positive_weight_are_removed(loss):
    X, y, *_ = planted(3, m=40)
    model = HyperKernelClassifier(1, loss=loss, **QUICK).fit(X, y, (y < 2).astype(float))
    assert_array_equal(model.classes_, [0, 1])


def test_balanced_class_weights():
    """class_weight="balanced" gives the same model as the same weights, passed as a dict or as sample weights."""
    X, y, X_test, *_ = planted(2, m=36)
    y[:13] = 0
    counts = np.bincount(y)
    each = len(y) / (2 * counts)
    model = HyperKernelClassifier(1, loss="squared", **QUICK)
    balanced = clone(model).set_params(class_weight="balanced").fit(X, y).predict_proba(X_test)
    by_dict = clone(model).set_params(class_weight={0: each[0], 1: each[1]}).fit(X, y).predict_proba(X_test)
    by_rows = clone(model).fit(X, y, each[y]).predict_proba(X_test)
    assert_allclose(by_dict, balanced, rtol=1e-9)
    assert_allclose(by_rows, balanced, rtol=1e-9)
    assert np.mean(balanced[:, 1]) > np.mean(clone(model).fit(X, y).predict_proba(X_test)[:, 1]) + 0.02


def test_the_shape_of_the_map_is_a_plain_string(small):
    assert type(small.map_shape_) is str


def test_a_dict_of_class_weights_is_saved(small, tmp_path):
    model = deepcopy(small).set_params(class_weight={0: 1.0, 1: 2.0})
    hkrr.save(model, tmp_path / "model")
    assert hkrr.load(tmp_path / "model").class_weight == {0: 1.0, 1: 2.0}


X40 = np.random.default_rng(0).normal(size=(40, 2))
Y40 = (X40[:, 0] > 0).astype(int)


@pytest.mark.parametrize(
    ("parameters", "y", "weight", "message"),
    [
        ({}, np.zeros(40), None, "y has 1 class, 0.0.*at least 2 classes are needed"),
        ({}, Y40, (Y40 == 0).astype(float), "1 class, 0, among the rows of positive weight"),
        ({}, X40[:, 0], None, "Unknown label type: continuous"),
        ({}, np.where(Y40 == 1, np.nan, 0.0), None, "y contains NaN"),
        ({}, np.array([None, "a"] * 20, dtype=object), None, "y contains labels of different types"),
        ({}, Y40[:39], None, "y has 39 entries, but X has 40 rows"),
        ({}, np.eye(2)[Y40], None, "y should be a 1d array"),
        ({}, Y40, -np.ones(40), "sample_weight must not be negative"),
        ({"loss": "hinge"}, Y40, None, "loss must be one of 'logistic', 'squared'; got 'hinge'"),
        ({"class_weight": "even"}, Y40, None, "class_weight must be one of 'balanced', a dict"),
        ({"class_weight": {0: -1.0, 1: 1.0}}, Y40, None, "class_weight must contain positive finite numbers"),
        ({"class_weight": [1.0, 2.0]}, Y40, None, "class_weight must be 'balanced', a dict or None"),
        ({"n_components": 3}, Y40, None, "n_components=3 exceeds the number of columns"),
        ({"kernel": "cubic"}, Y40, None, "kernel"),
        ({"time_limit": -1.0}, Y40, None, "time_limit must be a positive"),
    ],
)
def test_invalid_input_raises(parameters, y, weight, message):
    model = HyperKernelClassifier(**{**QUICK, **parameters})
    with pytest.raises(ValueError, match=message):
        model.fit(X40, y, weight)
    assert not hasattr(model, "classes_")


def test_files_are_refused():
    with pytest.raises(ValueError, match="X must be an array or a data frame in memory"):
        HyperKernelClassifier().fit("table.csv", "label")


@losses
def test_an_interrupted_fit_resumes_to_the_same_model(loss, tmp_path, monkeypatch):
    X, y, X_test, *_ = planted(2, m=36)
    model = HyperKernelClassifier(1, loss=loss, checkpoint=tmp_path / "fit", **QUICK)
    expected = clone(model).set_params(checkpoint=None).fit(X, y).predict_proba(X_test)
    final_fit, calls = search_and_refit.final_fit, []

    def interrupted_once(*arguments, **options):
        calls.append(arguments)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return final_fit(*arguments, **options)

    monkeypatch.setattr(search_and_refit, "final_fit", interrupted_once)
    with pytest.raises(KeyboardInterrupt) as stop:
        model.fit(X, y)
    assert stop.value.model is model
    assert np.all(np.isfinite(model.predict_proba(X_test)))
    assert_array_equal(model.fit(X, y).predict_proba(X_test), expected)


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


@losses
def test_verbose_shows_progress_bars(loss, capfd):
    X, y, *_ = planted(2, m=36)
    HyperKernelClassifier(1, loss=loss, verbose=1, **QUICK).fit(X, y)
    err = capfd.readouterr().err
    assert "held-out folds: 100%" in err
    assert ("held-out log loss" in err) == (loss == "logistic")


@squared_or_thorough
def test_no_progress_bars_by_default(loss, capfd):
    X, y, *_ = planted(2, m=36)
    HyperKernelClassifier(1, loss=loss, **QUICK).fit(X, y)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(("n", "n_constant", "shape"), [(36, 0, "identity"), (60, 0, "full"), (60, 10, "full")])
def test_folds_and_final_fit_use_maps_of_one_shape(n, n_constant, shape):
    """A square map is learned only if it has fewer parameters than half the training rows of the smallest fold.

    A square map of five columns has 15 parameters. With 36 rows, 15 is more than half of the 28 training rows of the
    smallest fold, so all folds and the final fit use a multiple of the identity. Constant columns have no parameters.
    """
    X, y, *_ = planted(2, m=n, D=5)
    X = np.hstack([X, np.full((n, n_constant), 3.0)])
    model = HyperKernelRidgeCV(1, truncate=False, **QUICK).fit(X, class_codes(y, 2))
    model.map_shape_, model.map_ = "identity", np.eye(X.shape[1])
    assert fit_logistic(Task(model, X, y, None, 2, deadline=0.0)).shape == shape


def test_equal_weights_equal_no_weights(small):
    X, y, X_test, *_ = planted(2, m=30)
    weighted = HyperKernelClassifier(1, loss="squared", **QUICK).fit(X, y, np.full(30, 3.0))
    assert_array_equal(weighted.predict_proba(X_test), small.predict_proba(X_test))
