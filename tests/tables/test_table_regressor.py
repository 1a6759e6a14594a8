"""Test TableRegressor: fit and predict, compatibility with scikit-learn, and loading of valid and damaged files."""

import contextlib
import copy
import pickle
import warnings
from random import Random
from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import cross_val_score

import hkrr
from hkrr._storage.safetensors_format import pack
from hkrr.tables import TableRegressor, compare, describe, hold_out, table_model
from hkrr.tables.missing import missing_matrix
from support.hostile_files import load, refused
from support.house_table import TARGET, table
from support.models_to_save import assert_same
from support.mutated_model_files import MUTATIONS, parts


def quick(**options):
    return TableRegressor(hkrr.HyperKernelRidgeCV(n_components=1, n_init=1, random_state=0), **options)


@pytest.fixture(scope="module")
def split():
    return hold_out(table(), TARGET, 0.25)


@pytest.fixture(scope="module")
def model(split):
    found = quick().fit(split.train, split.y_train)
    found.held_out_ = compare(found, split)
    return found


def test_fit_and_predict(model, split):
    assert model.score(split.test, split.y_test) > 0.7
    assert model.predict(split.test).shape == (30,)
    assert model.transform(split.test).shape == (30, len(model.feature_names_out_))
    assert_array_equal(model.predict(split.test), model.model_.predict(model.transform(split.test)))
    assert list(model.get_feature_names_out()) == list(model.feature_names_out_)
    assert list(model.feature_names_in_) == list(split.train.columns)
    assert pd.DataFrame(model.columns_)["columns"].sum() == len(model.feature_names_out_)


def test_columns_are_matched_by_name(model, split):
    shuffled = split.test[split.test.columns[::-1]].assign(more=1.0).drop(columns=["id", "owner"])
    assert_array_equal(model.predict(shuffled), model.predict(split.test))
    with pytest.raises(hkrr.TableError, match=r"there is no column 'age'; did you mean 'Age'\?"):
        model.predict(split.test.rename(columns={"age": "Age"}))
    with pytest.raises(hkrr.TableError, match=r"there is no column 'area \(m2\)'; the columns are 'x', 'y'$"):
        model.predict(pd.DataFrame({"x": [1], "y": [2]}))


def test_frames_of_texts_and_of_polars(model, split):
    texts = split.test.astype(str).mask(split.test.isna(), "")
    assert_array_equal(model.predict(texts), model.predict(split.test))
    assert_array_equal(model.predict(polars.from_pandas(split.test)), model.predict(split.test))


def test_one_row_and_rows_without_any_value(model, split):
    assert model.predict(split.test.iloc[:1]).shape == (1,)
    empty = pd.DataFrame({name: [None] for name in split.test.columns})
    assert np.isfinite(model.predict(empty)).all()


def test_invalid_arguments():
    frame = table(20)
    with pytest.raises(TypeError, match="X must be a data frame with column names, got ndarray"):
        quick().fit(np.ones((3, 2)), [1, 2, 3])
    with pytest.raises(ValueError, match="missing must be one of 'impute', 'refuse'"):
        quick(missing="drop").fit(frame, frame[TARGET])
    with pytest.raises(hkrr.TableError, match="two columns are named '1'"):
        quick().fit(pd.DataFrame([[1, 2]], columns=[1, "1"]), [1])
    with pytest.raises(NotFittedError):
        quick().predict(frame)
    assert not hasattr(TableRegressor(LinearRegression()), "predict_interval")


def test_a_failed_fit_leaves_the_model_unchanged(split):
    model = quick().fit(split.train, split.y_train)
    before = model.predict(split.test)
    with pytest.raises(ValueError, match="NaN"):
        model.fit(split.train, np.full(len(split.train), np.nan))
    assert_array_equal(model.predict(split.test), before)


def test_the_default_is_the_ensemble(monkeypatch):
    made = []
    monkeypatch.setattr(hkrr.HyperKernelEnsemble, "fit", lambda self, X, y: made.append(self) or self)
    frame = table(20)
    hkrr.TableRegressor().fit(frame, frame[TARGET])
    assert made[0].get_params() == hkrr.HyperKernelEnsemble().get_params()


def test_outliers_have_the_labels_of_the_frame():
    frame = table(80)[["age", "area (m2)", TARGET]].dropna()
    rows = frame.index[[5, 30]]
    frame.loc[rows, TARGET] += 50.0
    model = quick().fit(frame.drop(columns=TARGET), frame[TARGET])
    assert list(model.diagnostics_.outliers) in ([5, 30], [30, 5])
    assert set(model.outliers_) == set(rows)
    assert describe(model)["outliers"] == model.outliers_.tolist()
    named = frame.set_index(frame.index.astype(str))
    assert not hasattr(model.fit(named.drop(columns=TARGET), named[TARGET]), "outliers_")


def test_scikit_learn_compatibility():
    frame = table(60)
    linear = TableRegressor(LinearRegression())
    assert cross_val_score(linear, frame.drop(columns=TARGET), frame[TARGET], cv=3).shape == (3,)
    assert repr(clone(quick(missing="refuse"))) == repr(quick(missing="refuse"))
    weight = np.r_[np.ones(59), 1e6]
    heavy = linear.fit(frame.drop(columns=TARGET), frame[TARGET], sample_weight=weight)
    assert heavy.predict(frame)[-1] == pytest.approx(frame[TARGET].iloc[-1], abs=1e-3)


def test_intervals_and_deviations_are_passed_through(split):
    class WithIntervals(LinearRegression):
        def predict(self, X, return_std=False):
            found = super().predict(X)
            return (found, np.ones(len(X))) if return_std else found

        def predict_interval(self, X, coverage=0.9):
            return self.predict(X) - coverage, self.predict(X) + coverage

    model = TableRegressor(WithIntervals()).fit(split.train, split.y_train)
    complete = ~missing_matrix(model.encoder_, split.test).any(axis=1)
    assert 0 < complete.sum() < len(complete)
    predicted, std = model.predict(split.test, return_std=True)
    assert_array_equal(std[complete], 1.0)
    lower, upper = model.predict_interval(split.test, 0.5)
    assert_array_equal(upper[complete], predicted[complete] + 0.5)
    np.testing.assert_allclose(upper + lower, 2.0 * predicted)


def test_summary_and_importances_use_the_names_of_the_table(model, tmp_path):
    hkrr.save(model, tmp_path / "model.hkrr")
    for each in (model, hkrr.load(tmp_path / "model.hkrr")):
        shares = dict(zip(each.feature_names_out_, each.feature_importances_, strict=True))
        first, share = each.summary().importances[0]
        assert shares[first] == share == max(shares.values())
        assert "town=Bari" in str(each.summary())
        assert each.summary().facts == each.model_.summary().facts
        assert each.diagnostics_ is each.model_.diagnostics_


def test_calibrate_passes_encoded_rows_to_the_model(model, split):
    copied = copy.deepcopy(model)
    assert copied.calibrate(split.test, pd.Series(split.y_test)) is copied
    inner = copy.deepcopy(model.model_).calibrate(model.transform(split.test), split.y_test)
    assert_array_equal(copied.model_.interval_scores_, inner.interval_scores_)
    assert len(inner.interval_scores_) == len(split.test) != len(model.model_.interval_scores_)


def test_attributes_that_the_model_lacks_raise_an_error(split):
    plain = TableRegressor(LinearRegression()).fit(split.train, split.y_train)
    calls = {
        "summary": plain.summary,
        "calibrate": lambda: plain.calibrate(split.test, split.y_test),
        "feature_importances_": lambda: plain.feature_importances_,
        "diagnostics_": lambda: plain.diagnostics_,
    }
    for name, call in calls.items():
        with pytest.raises(AttributeError, match=f"LinearRegression. has no {name}; HyperKernelEnsemble"):
            call()
    with pytest.raises(NotFittedError):
        quick().summary()


def test_save_and_load(model, split, tmp_path):
    hkrr.save(model, tmp_path / "model.hkrr")
    again = hkrr.load(tmp_path / "model.hkrr")
    assert_array_equal(again.predict(split.test), model.predict(split.test), strict=True)
    assert_same(again, model)
    assert repr(again) == repr(model)
    hkrr.save(again, tmp_path / "second")
    assert (tmp_path / "second").read_bytes() == (tmp_path / "model.hkrr").read_bytes()
    for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert_array_equal(other.predict(split.test), model.predict(split.test), strict=True)


def test_the_default_regressor_is_still_none_after_loading(split, tmp_path):
    model = TableRegressor(missing="refuse")
    model.encoder_, model.model_ = _fitted_parts(split)
    model.feature_names_in_ = np.array(["age"], dtype=object)
    model.n_features_in_ = 1
    hkrr.save(model, tmp_path / "model")
    again = hkrr.load(tmp_path / "model")
    assert (again.regressor, again.missing) == (None, "refuse")


def _fitted_parts(split):
    ages = split.train[["age"]]
    found = TableRegressor(hkrr.baselines.KernelRidgeCV(), missing="refuse").fit(ages, split.y_train)
    return found.encoder_, found.model_


def test_other_regressors_are_not_saved(split, tmp_path):
    model = TableRegressor(LinearRegression()).fit(split.train, split.y_train)
    with pytest.raises(ValueError, match="model_ is not one of HyperKernelRidgeCV"):
        hkrr.save(model, tmp_path / "model")


@pytest.fixture(scope="module")
def saved(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "model"
    hkrr.save(model, path)
    return path.read_bytes()


def _with(saved, change):
    header, arrays = parts(saved)
    change(header)
    return pack(header, arrays)


def _columns(header):
    """Return the records of the columns in the header of a model file."""
    return header["attributes"]["encoder_"]["object"]["columns"]["tuple"]


def _set(index, **values):
    return lambda header: _columns(header)[index]["object"].update(values)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda header: header["attributes"].pop("encoder_"), "it lacks the attribute encoder_"),
        (lambda header: header["attributes"].update(encoder_=3), "encoder_ is not an? Encoder"),
        (lambda header: header["attributes"].update(held_out_=3), "held_out_ is not a HeldOutScores"),
        (
            lambda header: header["attributes"]["held_out_"]["object"].update(r2={"tuple": [1.0]}),
            "the lists r2, low and high of held_out_ must have one entry for each of its",
        ),
        (lambda header: _columns(header).pop(), "the columns of encoder_ must have the names in feature_names_in_"),
        (lambda header: _columns(header).append(3), r"encoder_.columns is not of type tuple"),
        (_set(1, kind="odd"), "a column of unknown kind 'odd'"),
        (_set(1, fill={"float": "nan"}), "in encoder_ must be finite, got nan"),
        (_set(1, fill="x"), "is not of type float"),
        (_set(1, indicator=False), "model_ was fitted with [0-9]+ columns, but encoder_ gives [0-9]+ columns"),
        (_set(5, values={"tuple": ["no"]}), "must have two values; it has 1"),
        (_set(6, values={"tuple": ["odd"]}), "must be empty, 'day first' or 'month first'"),
        (_set(1, odd=1), "it contains an invalid Column"),
        (lambda header: header["parameters"].update(missing="drop"), "missing must be one of"),
        (lambda header: header["parameters"].update(regressor=3), "regressor is not an estimator"),
        (
            lambda header: header.update(feature_names=None),
            "the columns of encoder_ must have the names in feature_names_in_",
        ),
        (
            lambda header: header["attributes"]["model_"]["model"].update({"class": "SIR"}),
            "class 'SIR' is unknown",
        ),
        (lambda header: header["attributes"].update(more=1), "'more' is not one of the known attributes"),
    ],
)
def test_inconsistent_files_are_refused(saved, change, match):
    refused(_with(saved, change), match)


@pytest.mark.parametrize("seeds", [range(50), pytest.param(range(50, 150), marks=pytest.mark.thorough)])
def test_mutated_files_are_refused_or_usable(saved, split, seeds):
    for seed in seeds:
        random = Random(seed)
        way = random.choice(list(MUTATIONS))
        try:
            found = load(MUTATIONS[way](saved, random))
        except hkrr.ModelFileError:
            continue
        with warnings.catch_warnings(), contextlib.suppress(hkrr.TableError):  # if a column type or name changed
            warnings.simplefilter("ignore")  # changed numbers near 1e308 overflow and cause warnings
            assert len(found.predict(split.test)) == len(split.test)


@pytest.mark.parametrize("seconds", [0.5, 100.0])
def test_the_encoding_counts_in_the_time_limit(seconds, monkeypatch):
    """Test that the regressor gets the time that the encoding has left, at least a tenth of the limit."""
    clock = iter([0.0, seconds])
    monkeypatch.setattr(table_model, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    frame = pd.DataFrame({"x": np.arange(20.0), "colour": ["red", "blue"] * 10})
    seen = []

    class Limited(LinearRegression):
        def __init__(self, time_limit=None):
            super().__init__()
            self.time_limit = time_limit

        def fit(self, X, y):
            seen.append(self.time_limit)
            return super().fit(X, y)

    model = TableRegressor(Limited(time_limit=2.0)).fit(frame, np.arange(20.0))
    assert seen == [max(2.0 - seconds, 0.2)]
    assert model.model_.time_limit == 2.0
