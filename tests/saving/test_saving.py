"""Test that a loaded model equals the saved model in every bit.

The tests cover every class of model and every type of training data.
"""

import os
import pickle
from dataclasses import dataclass, replace

import joblib
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone

import hkrr
from hkrr import baselines, kernels
from hkrr._storage import json_codec as codec
from hkrr.saving import attribute_checks
from hkrr.saving.schemas import SCHEMAS
from hkrr.tables import TableRegressor
from support.models_to_save import (
    CLASSES,
    apply,
    assert_same,
    copied,
    fitted,
    header_of,
    new_rows,
    rows,
    through_a_file,
    unfitted,
    with_two_members,
)

VARIANTS = ["grid", "learned grid", "polynomials", "cells"]


def test_every_estimator_has_a_schema():
    # TableRegressor and TableClassifier take data frames and are tested separately.
    own = {name: schema for name, schema in SCHEMAS.items() if schema.is_own}
    assert set(own) == {*CLASSES, "TableRegressor", "TableClassifier", "ClassScores"}
    assert [name for name, schema in own.items() if schema.is_part] == ["ClassScores"]


@pytest.mark.parametrize("name", [*CLASSES, *VARIANTS])
def test_a_loaded_model_is_the_saved_one(name, tmp_path):
    model = fitted(name)
    again = through_a_file(model, tmp_path)
    assert_array_equal(apply(again, new_rows()), apply(model, new_rows()), strict=True)
    assert_same(again, model)
    assert_same(again.get_params(), model.get_params())
    assert repr(again) == repr(model)
    hkrr.save(again, tmp_path / "second")
    assert (tmp_path / "second").read_bytes() == (tmp_path / "model.safetensors").read_bytes()
    assert repr(clone(again)) == repr(clone(model))
    assert sorted(os.listdir(tmp_path)) == ["model.safetensors", "second"]


@pytest.mark.parametrize("kernel", list(kernels.KERNELS))
@pytest.mark.parametrize("n_components", [1, 3])
def test_every_kernel_predicts_the_same_bits(kernel, n_components, tmp_path):
    X, y = rows()
    Y = np.column_stack([y, X[:, 2]])
    parameters = {"kernel": kernel, "init": np.eye(3)[:n_components], "max_iter": 1, "random_state": 0}
    model = hkrr.HyperKernelRidge(n_components, **parameters).fit(np.asfortranarray(X), Y)
    again = through_a_file(model, tmp_path)
    for Z in (new_rows(), new_rows().astype(np.float32), new_rows()[:1]):
        assert_array_equal(again.predict(Z), model.predict(Z), strict=True)
        assert_array_equal(again.transform(Z), model.transform(Z), strict=True)
    assert again.kernel_ == model.kernel_


@pytest.mark.parametrize("shape", [(4, 3), (1, 3), (4, 1)])
def test_the_memory_order_is_kept(shape, tmp_path):
    """Test that arrays keep their memory order, because the rounding errors of matrix products depend on it."""
    model = copied("HyperKernelRidge")
    model.set_params(init=np.asfortranarray(np.ones(shape)), centers=np.ones(shape))
    again = through_a_file(model, tmp_path)
    assert again.init.strides == model.init.strides
    assert again.centers.strides == model.centers.strides


def test_long_histories_are_tensors(tmp_path):
    X, y = rows()
    model = hkrr.HyperKernelRidge(2, solver="varpro", max_iter=100, tol=0.0, random_state=0, n_init=1).fit(X, y)
    assert len(model.history_["time"]) > 64
    again = through_a_file(model, tmp_path)
    assert_same(again.history_, model.history_)
    assert again.result_.history is again.history_
    assert "result_.history.objective" in header_of(tmp_path / "model.safetensors")["tensors"]


def test_column_names_and_output_configuration(tmp_path):
    X, y = rows()
    frame = pd.DataFrame(X, columns=["a", "größe", 'c"\n'])
    model = unfitted("HyperKernelRidge").fit(frame, y).set_output(transform="pandas")
    again = through_a_file(model, tmp_path)
    assert_array_equal(again.feature_names_in_, model.feature_names_in_, strict=True)
    assert_array_equal(again.predict(frame), model.predict(frame))
    pd.testing.assert_frame_equal(again.transform(frame), model.transform(frame))
    with pytest.raises(ValueError, match="feature names"):
        again.predict(frame[frame.columns[::-1]])
    assert header_of(tmp_path / "model.safetensors")["feature_names"] == list(frame.columns)


@pytest.fixture(scope="module")
def ensemble():
    """Return an ensemble of two members with the same centers, fitted to named columns and two targets."""
    X, y = rows()
    frame, Y = pd.DataFrame(X, columns=["a", "b", "c"]), np.column_stack([y, 3 + X[:, 2]])
    return with_two_members(unfitted("HyperKernelEnsemble").fit(frame, Y), frame, Y)


def test_an_ensemble_keeps_its_outputs_and_its_members(ensemble, tmp_path):
    again = through_a_file(ensemble, tmp_path)
    assert_same(again, ensemble)
    frame = pd.DataFrame(new_rows(), columns=["a", "b", "c"])
    assert_same(again.predict(frame, return_std=True), ensemble.predict(frame, return_std=True))
    assert_same(again.predict_interval(frame, 0.8), ensemble.predict_interval(frame, 0.8))
    assert_same(again.feature_importances_, ensemble.feature_importances_)
    for one, other in zip(again.members_, ensemble.members_, strict=True):
        assert_same(one.predict(frame), other.predict(frame))
        with pytest.raises(ValueError, match="feature names"):
            one.predict(frame[["c", "b", "a"]])
    assert header_of(tmp_path / "model.safetensors")["summary"] == {"n_features": 3, "n_members": 2}


def test_centers_that_members_share_are_stored_once(ensemble, tmp_path):
    def stored():
        return [name for name in header_of(tmp_path / "model.safetensors")["tensors"] if name.endswith("centers_")]

    first, second = through_a_file(ensemble, tmp_path).members_
    assert stored() == ["members_.0.centers_"]
    assert second.centers_ is first.centers_
    other = pickle.loads(pickle.dumps(ensemble))
    other.members_[1].centers_ += 1.0
    again = through_a_file(other, tmp_path)
    assert stored() == ["members_.0.centers_", "members_.1.centers_"]
    assert_same(again, other)


def test_an_ensemble_in_a_table_regressor(tmp_path):
    X, y = rows()
    model = TableRegressor(unfitted("HyperKernelEnsemble"))
    model = model.fit(pd.DataFrame(X, columns=["a", "b", "c"]), y)
    with_two_members(model.model_, X, y)
    frame = pd.DataFrame(new_rows(), columns=["a", "b", "c"])
    again = through_a_file(model, tmp_path)
    assert_same(again.model_, model.model_)
    assert_same(again.predict(frame, return_std=True), model.predict(frame, return_std=True))


def test_a_classifier_whose_fit_was_interrupted(tmp_path):
    def stop(state):
        if state.score is not None:  # there is a best model so far
            raise KeyboardInterrupt

    X, y = rows()
    model = unfitted("HyperKernelClassifier").set_params(checkpoint=tmp_path / "checkpoint", callbacks=[stop])
    with pytest.raises(KeyboardInterrupt, match="holds the best model so far"):
        model.fit(pd.DataFrame(X, columns=["a", "b", "c"]), np.where(y > 0, "high", "low"))
    assert not hasattr(model, "diagnostics_")
    again = through_a_file(model, tmp_path)
    assert_same(again.members_, model.members_)
    frame = pd.DataFrame(new_rows(), columns=["a", "b", "c"])
    assert_array_equal(again.predict_proba(frame), model.predict_proba(frame), strict=True)


def test_a_fit_of_tensors(tmp_path):
    torch = pytest.importorskip("torch")
    X, y = (torch.from_numpy(array) for array in rows())
    model = unfitted("HyperKernelRidge").set_params(device=torch.device("cpu")).fit(X, y)
    again = through_a_file(model, tmp_path)
    assert again.device == "cpu"
    assert_array_equal(again.predict(X).numpy(), model.predict(X).numpy(), strict=True)


def _blocks():
    X, y = rows()
    return [(X[:20], y[:20]), (X[20:], y[20:])]


def _frame():
    X, y = rows()
    return pd.DataFrame(X, columns=["a", "b", "c"]).assign(y=y)


@pytest.mark.parametrize("name", ["HyperKernelRidge", "HyperKernelRidgeCV"])
@pytest.mark.parametrize("kind", ["csv", "parquet", "npy", "blocks"])
def test_a_fit_of_files(name, kind, tmp_path):
    _frame().to_csv(tmp_path / "rows.csv", index=False)
    _frame().to_parquet(tmp_path / "rows.parquet")
    np.save(tmp_path / "rows.npy", _frame().to_numpy())
    model = unfitted(name).fit(_blocks) if kind == "blocks" else unfitted(name).fit(tmp_path / f"rows.{kind}", -1)
    again = through_a_file(model, tmp_path)
    assert_same(again, model)
    given = _blocks
    if kind in ("csv", "parquet"):
        assert list(again.feature_names_in_) == ["a", "b", "c"]
        given = tmp_path / f"rows.{kind}"
    assert_array_equal(again.predict(given), model.predict(given), strict=True)


def test_a_fit_of_dask_collections(tmp_path):
    distributed = pytest.importorskip("distributed")
    dd = pytest.importorskip("dask.dataframe")
    with distributed.Client(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0"):
        collection = dd.from_pandas(_frame(), npartitions=2)
        model = unfitted("HyperKernelRidge").fit(collection, "y")
        again = through_a_file(model, tmp_path)
        assert_same(again, model)
        assert list(again.feature_names_in_) == ["a", "b", "c"]
        assert_array_equal(again.predict(collection).compute(), model.predict(collection).compute(), strict=True)


@dataclass(frozen=True)
class Noted:
    """A record with fields of all supported types."""

    share: float
    count: int
    fine: bool = True
    least: float | None = None
    remarks: tuple[str, ...] = ()


@pytest.fixture
def noted(monkeypatch):
    """Return a model whose schema has the optional attribute `noted_`, a storable record."""
    monkeypatch.setitem(codec._OBJECTS, "Noted", Noted)
    monkeypatch.setitem(SCHEMAS["HyperKernelRidge"].optional, "noted_", attribute_checks.record(Noted))
    return copied("HyperKernelRidge")


@pytest.mark.parametrize(
    "value",
    [
        Noted(0.5, 3),
        Noted(np.float64(0.5), np.int64(3), np.bool_(False), float("inf"), ("a", "b")),
        Noted(1, 2, False, None, ()),
    ],
)
def test_attributes_that_are_records(value, noted, tmp_path):
    noted.noted_ = value
    again = through_a_file(noted, tmp_path)
    assert_same(again, noted)
    assert again.noted_ == value
    # A file without the attribute can be loaded.
    assert not hasattr(through_a_file(fitted("HyperKernelRidge"), tmp_path), "noted_")


@pytest.mark.parametrize(
    ("field", "value"),
    [("share", "much"), ("share", None), ("count", 1.5), ("count", True), ("fine", 1), ("remarks", ("a", 1))],
)
def test_records_with_fields_of_a_wrong_type_are_refused(field, value, noted, tmp_path):
    noted.noted_ = replace(Noted(0.5, 3), **{field: value})
    with pytest.raises(ValueError, match=rf"cannot be saved: noted_\.{field} is not of type"):
        hkrr.save(noted, tmp_path / "model")


def test_several_targets_and_their_truncation(tmp_path):
    X, y = rows()
    model = unfitted("HyperKernelRidgeCV").fit(X, np.column_stack([y, 2 * y]))
    again = through_a_file(model, tmp_path)
    assert_same(again.truncation_, model.truncation_)
    assert_array_equal(again.predict(9 * new_rows()), model.predict(9 * new_rows()), strict=True)


def test_integer_targets_of_nearest_neighbours(tmp_path):
    X, y = rows()
    model = baselines.RCLS(2).fit(X, np.round(3 * y).astype(np.int16))
    assert_array_equal(through_a_file(model, tmp_path).predict(new_rows()), model.predict(new_rows()), strict=True)


@pytest.mark.parametrize("name", CLASSES)
def test_pickle_and_joblib_keep_working(name, tmp_path):
    model = fitted(name)
    again = through_a_file(model, tmp_path)
    joblib.dump(again, tmp_path / "joblib")
    for copy in (
        pickle.loads(pickle.dumps(model)),
        pickle.loads(pickle.dumps(again)),
        joblib.load(tmp_path / "joblib"),
    ):
        assert_array_equal(apply(copy, new_rows()), apply(model, new_rows()), strict=True)
