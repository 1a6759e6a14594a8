"""Test TableClassifier: fit and predict, compatibility with scikit-learn, and loading of valid and damaged files."""

import copy
import pickle

import numpy as np
import pandas as pd
import polars
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags

import hkrr
from hkrr._storage.checkpoint import FitInterrupted, best_model_so_far
from hkrr._storage.safetensors_format import pack
from hkrr.tables import TableClassifier, compare, describe, hold_out, predict_frame
from support.hostile_files import refused
from support.house_table import KIND, kinds
from support.models_to_save import assert_same
from support.mutated_model_files import parts


def logistic(**options):
    return TableClassifier(make_pipeline(StandardScaler(), LogisticRegression()), **options)


@pytest.fixture(scope="module")
def split():
    return hold_out(kinds(120), KIND, 0.25, task="auto")


@pytest.fixture(scope="module")
def model(split):
    return logistic().fit(split.train, pd.Series(split.y_train, name=KIND))


@pytest.fixture(scope="module")
def small():
    """Return a split of a small table with a number, a text column and missing values."""
    return hold_out(kinds(60)[["area (m2)", "town", KIND]], KIND, 0.25, task="auto")


@pytest.fixture(scope="module")
def learned(small):
    """Return a HyperKernelClassifier that was fitted to the small table in about a second, with its scores."""
    found = TableClassifier(hkrr.HyperKernelClassifier(n_init=1, time_limit=1, random_state=0))
    found.fit(small.train, pd.Series(small.y_train, name=KIND))
    found.held_out_ = compare(found, small)
    return found


def test_fit_and_predict(model, split):
    assert model.score(split.test, split.y_test) > 0.7
    assert model.classes_.tolist() == ["flat", "house", "villa"]
    probabilities = model.predict_proba(split.test)
    assert probabilities.shape == (30, 3)
    assert_allclose(probabilities.sum(axis=1), 1.0)
    predicted = model.predict(split.test)
    assert_array_equal(predicted, model.classes_[np.argmax(probabilities, axis=1)])
    assert_array_equal(predicted, model.model_.predict(model.transform(split.test)))
    assert model.score(split.test, split.y_test) == accuracy_score(split.y_test, predicted)


def test_columns_of_text_dates_and_missing_values(model, split):
    kind_of = dict(zip(model.columns_["name"], model.columns_["kind"], strict=True))
    assert kind_of.pop("garden") == "truth"
    assert kind_of.pop("town") == "text"
    assert kind_of.pop("sold") == "date"
    assert [name for name in kind_of if kind_of[name] == "number"] == ["area (m2)", "age", "rooms"]
    assert [name for name in kind_of if kind_of[name] == "left out"] == ["id", "owner", "country", "empty"]
    names = list(model.feature_names_out_)
    assert {"area (m2)", "area (m2) is missing", "town=Bari", "town=(missing)", "sold"} <= set(names)
    assert list(model.get_feature_names_out()) == names
    assert list(model.feature_names_in_) == list(split.train.columns)
    assert model.n_features_in_ == 10
    assert sum(model.columns_["columns"]) == len(names) == model.transform(split.test).shape[1]
    assert model.target_ == KIND
    assert not hasattr(logistic().fit(split.train, split.y_train), "target_")


def test_columns_are_matched_by_name(model, split):
    shuffled = split.test[split.test.columns[::-1]].assign(more=1.0).drop(columns=["id", "owner"])
    assert_array_equal(model.predict_proba(shuffled), model.predict_proba(split.test))
    with pytest.raises(hkrr.TableError, match=r"there is no column 'age'; did you mean 'Age'\?"):
        model.predict(split.test.rename(columns={"age": "Age"}))
    polars_frame = polars.from_pandas(split.test)
    assert_array_equal(model.predict_proba(polars_frame), model.predict_proba(split.test))


def test_unseen_categories_and_rows_without_any_value(model, split):
    rows = split.test.assign(town="Atlantis")
    encoded = dict(zip(model.feature_names_out_, model.transform(rows).T, strict=True))
    assert all(np.all(encoded[name] == 0.0) for name in encoded if name.startswith("town="))
    assert set(model.predict(rows)) <= set(model.classes_)
    empty = pd.DataFrame({name: [None] for name in split.test.columns})
    assert np.isfinite(model.predict_proba(empty)).all()


@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        (np.array(["b", "a"]), "OU"),
        (np.array(["b", "a"], dtype=object), "OU"),
        (pd.Series(["b", "a"], dtype="string"), "OU"),
        (pd.Categorical(["b", "a"]), "OU"),
        (np.array(["2", "1"]), "OU"),
        (np.array([7, 3]), "i"),
        (np.array([True, False]), "b"),
    ],
)
def test_labels_keep_their_type(small, labels, kind):
    """Test that labels that are strings stay strings, also if they look like numbers."""
    frame = small.train
    index = np.arange(len(frame)) % 2
    y = pd.Series(labels).iloc[index].reset_index(drop=True)
    model = logistic().fit(frame, y)
    expected = sorted(set(pd.Series(labels)))
    assert model.classes_.tolist() == expected
    assert [type(each) for each in model.classes_.tolist()] == [type(each) for each in np.array(expected).tolist()]
    assert model.predict(frame).dtype.kind in kind


def test_invalid_arguments():
    frame = kinds(20)
    with pytest.raises(TypeError, match="X must be a data frame with column names, got ndarray"):
        logistic().fit(np.ones((3, 2)), ["a", "b", "a"])
    with pytest.raises(ValueError, match="missing must be one of 'impute', 'refuse'"):
        logistic(missing="drop").fit(frame, frame[KIND])
    with pytest.raises(
        hkrr.TableError, match=r"missing values?, the first in row .* or fit a model with missing='impu"
    ):
        logistic(missing="refuse").fit(frame.drop(columns=KIND), frame[KIND])
    for call in (logistic().predict, logistic().predict_proba, lambda X: logistic().classes_):
        with pytest.raises(NotFittedError):
            call(frame)


def test_a_failed_fit_leaves_the_model_unchanged(split):
    model = logistic().fit(split.train, split.y_train)
    before = model.predict_proba(split.test)
    with pytest.raises(ValueError, match="class"):
        model.fit(split.train, ["a"] * len(split.train))
    assert_array_equal(model.predict_proba(split.test), before)


def test_the_default_is_the_hyper_kernel_classifier(monkeypatch):
    made = []
    monkeypatch.setattr(hkrr.HyperKernelClassifier, "fit", lambda self, X, y: made.append(self) or self)
    frame = kinds(20)
    hkrr.TableClassifier().fit(frame, frame[KIND])
    assert made[0].get_params() == hkrr.HyperKernelClassifier().get_params()


def test_scikit_learn_compatibility(split):
    model = logistic(missing="refuse")
    assert repr(clone(model)) == repr(model)
    assert is_classifier(model)
    assert not is_regressor(model)
    tags = get_tags(model)
    assert tags.input_tags.string
    assert tags.input_tags.categorical
    assert not tags.input_tags.allow_nan
    assert get_tags(logistic()).input_tags.allow_nan
    found = cross_val_score(logistic(), split.train, split.y_train, cv=3, scoring="neg_log_loss")
    assert found.shape == (3,)
    assert np.all(found > -1.05)


def test_weights_are_passed_to_the_classifier(split):
    weight = np.where(split.y_train == "villa", 1e-9, 1.0)
    model = TableClassifier(LogisticRegression(max_iter=5000)).fit(split.train[["age", "town"]], split.y_train, weight)
    assert np.all(model.predict_proba(split.test)[:, 2] < 1e-3)
    with pytest.raises(ValueError, match="weight"):
        model.fit(split.train, split.y_train, np.ones(3))


def test_a_refit_forgets_the_earlier_target_and_scores(split):
    model = logistic().fit(split.train, pd.Series(split.y_train, name=KIND))
    model.held_out_ = compare(model, split)
    model.fit(split.train, split.y_train)
    assert not hasattr(model, "held_out_")
    assert not hasattr(model, "target_")


def test_ctrl_c_keeps_the_best_model_so_far(split):
    class Stopped(LogisticRegression):
        def fit(self, X, y):
            super().fit(X, y)
            raise FitInterrupted(self) if self.C == 1.0 else KeyboardInterrupt

    frame = split.train[["age"]]
    model = TableClassifier(Stopped())
    with pytest.raises(KeyboardInterrupt) as stop:
        model.fit(frame, split.y_train)
    assert best_model_so_far(stop.value) is model
    assert model.classes_.tolist() == ["flat", "house", "villa"]
    assert model.predict(frame).shape == (90,)
    unfitted = TableClassifier(Stopped(C=2.0))
    with pytest.raises(KeyboardInterrupt) as stop:
        unfitted.fit(frame, split.y_train)
    assert best_model_so_far(stop.value) is None
    with pytest.raises(NotFittedError):
        unfitted.predict(frame)


def test_attributes_that_the_model_lacks_raise_an_error(model):
    for call in (model.summary, lambda: model.feature_importances_, lambda: model.diagnostics_):
        with pytest.raises(AttributeError, match=r"a fitted Pipeline\) has no [a-z_]+; HyperKernelClassifier has"):
            call()
    assert not hasattr(model, "feature_importances_")
    assert not hasattr(model, "predict_interval")


def test_predictions_as_a_table(model, split):
    found = predict_frame(model, split.test, keep=["town"])
    names = [f"probability of {label}" for label in ("flat", "house", "villa")]
    assert list(found.columns) == ["town", "prediction", *names]
    assert_array_equal(found["prediction"], model.predict(split.test))
    assert_array_equal(found[names], model.predict_proba(split.test))


def test_descriptions(learned):
    found = describe(learned)
    assert (found["class"], found["classifier"], found["target"]) == ("TableClassifier", "HyperKernelClassifier", KIND)
    assert "regressor" not in found
    assert found["classes"] == ["flat", "house", "villa"]
    assert sum(found["class_count"]) == 45
    assert found["held_out"]["methods"] == ["hkrr", "logistic regression", "class frequencies"]
    assert np.sum(found["held_out"]["confusion"]) == 15
    assert [each["weight"] for each in found["members"]] == learned.model_.weights_.tolist()


def test_summary_and_importances_use_the_names_of_the_table(learned, tmp_path):
    hkrr.save(learned, tmp_path / "model.hkrr")
    for each in (learned, hkrr.load(tmp_path / "model.hkrr")):
        shares = dict(zip(each.feature_names_out_, each.feature_importances_, strict=True))
        assert sum(shares.values()) == pytest.approx(1.0)
        first, share = each.summary().importances[0]
        assert shares[first] == share == max(shares.values())
        assert "town=Bari" in str(each.summary())
        assert str(each.diagnostics_) == str(each.model_.diagnostics_)


def test_save_and_load(learned, small, tmp_path):
    hkrr.save(learned, tmp_path / "model.hkrr")
    again = hkrr.load(tmp_path / "model.hkrr")
    assert_array_equal(again.predict_proba(small.test), learned.predict_proba(small.test), strict=True)
    assert_array_equal(again.predict(small.test), learned.predict(small.test), strict=True)
    assert_same(again, learned)
    assert repr(again) == repr(learned)
    assert again.held_out_ == learned.held_out_
    hkrr.save(again, tmp_path / "second")
    assert (tmp_path / "second").read_bytes() == (tmp_path / "model.hkrr").read_bytes()
    for other in (pickle.loads(pickle.dumps(learned)), copy.deepcopy(learned)):
        assert_array_equal(other.predict_proba(small.test), learned.predict_proba(small.test), strict=True)


def test_the_default_classifier_is_still_none_after_loading(learned, tmp_path):
    model = copy.copy(learned)
    model.classifier = None
    hkrr.save(model, tmp_path / "model")
    assert hkrr.load(tmp_path / "model").classifier is None


def test_other_classifiers_are_not_saved(model, tmp_path):
    with pytest.raises(ValueError, match="model_ is not one of HyperKernelClassifier"):
        hkrr.save(model, tmp_path / "model")


def _scores(**values):
    return lambda header: header["attributes"]["held_out_"]["object"].update(values)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda header: header["attributes"].pop("encoder_"), "it lacks the attribute encoder_"),
        (lambda header: header["attributes"].update(held_out_=3), "held_out_ is not a HeldOutClassScores"),
        (
            _scores(log_loss_low={"tuple": [1.0]}),
            "the scores of held_out_ must have one entry for each of its 3",
        ),
        (_scores(classes={"tuple": ["a"]}), "the confusion matrix of held_out_ must have one row and column for each"),
        (_scores(confusion={"tuple": [{"tuple": [1]}] * 3}), "the confusion matrix of held_out_ must have one row and"),
        (_scores(accuracy="odd"), r"held_out_.accuracy is not of type tuple"),
        (lambda header: header["parameters"].update(missing="drop"), "missing must be one of"),
        (lambda header: header["parameters"].update(classifier=3), "classifier is not an estimator"),
        (lambda header: header["attributes"].update(more=1), "'more' is not one of the known attributes"),
    ],
)
def test_inconsistent_files_are_refused(learned, tmp_path, change, match):
    hkrr.save(learned, tmp_path / "model")
    header, arrays = parts((tmp_path / "model").read_bytes())
    change(header)
    refused(pack(header, arrays), match)
