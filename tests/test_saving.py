"""Saved and loaded, a model is the same to the last bit; a save that fails leaves what was there."""

import errno
import json
import os
import pickle
import re
import resource
import subprocess
import sys
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from safetensors import safe_open
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.model_selection import KFold, RepeatedKFold, ShuffleSplit

import hkrr
from hkrr import baselines, disk, kernels, solvers
from hkrr.saving.layouts import LAYOUTS
from saved_models import CLASSES, apply, fitted, new_rows, rows, saved, unfitted

HERE = Path(__file__).parent
VARIANTS = ["grid", "learned grid", "polynomials", "cells"]


def header_of(path):
    with safe_open(path, framework="numpy") as file:
        return json.loads(file.metadata()["hkrr"])


def through_a_file(model, folder):
    hkrr.save(model, folder / "model.safetensors")
    return hkrr.load(folder / "model.safetensors")


def assert_same(found, expected, where=""):
    """Types, values, dtypes and the order of memory."""
    assert type(found) is type(expected), where
    if isinstance(expected, np.ndarray):
        assert_array_equal(found, expected, err_msg=where, strict=True)
        assert found.flags.f_contiguous == expected.flags.f_contiguous, where
        assert found.flags.writeable
    elif isinstance(expected, dict):
        assert list(found) == list(expected), where
        for key in expected:
            assert_same(found[key], expected[key], f"{where}[{key!r}]")
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected), where
        for i, (one, other) in enumerate(zip(found, expected, strict=True)):
            assert_same(one, other, f"{where}[{i}]")
    elif isinstance(expected, np.random.RandomState):
        assert_same(found.get_state(legacy=False), expected.get_state(legacy=False), where)
    elif type(expected).__module__.startswith(("hkrr.", "sklearn.neural_network", "sklearn.neighbors._reg")):
        names = [name for name in vars(expected) if not name.startswith("_")]
        assert names
        for name in names:
            assert_same(getattr(found, name), getattr(expected, name), f"{where}.{name}")
    elif hasattr(expected, "split") and not isinstance(expected, str):
        assert repr(found) == repr(expected), where
    else:
        assert found == expected or (found != found and expected != expected), where


# ------------------------------------------------------------------------------------------------------ round trips


def test_every_estimator_has_a_layout():
    assert {name for name, layout in LAYOUTS.items() if layout.ours} == set(CLASSES)


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
def test_the_order_of_memory_is_kept(shape, tmp_path):
    """Products of matrices round differently in either order, also of those that have one row or column."""
    model = clone(fitted("HyperKernelRidge")).fit(*rows())
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


def test_names_of_columns_and_kinds_of_output(tmp_path):
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


def test_a_fit_of_tensors(tmp_path):
    torch = pytest.importorskip("torch")
    X, y = (torch.from_numpy(array) for array in rows())
    model = unfitted("HyperKernelRidge").set_params(device=torch.device("cpu")).fit(X, y)
    again = through_a_file(model, tmp_path)
    assert again.device == "cpu"
    assert_array_equal(again.predict(X).numpy(), model.predict(X).numpy(), strict=True)


def test_several_targets_and_their_truncation(tmp_path):
    X, y = rows()
    model = unfitted("HyperKernelRidgeCV").fit(X, np.column_stack([y, 2 * y]))
    again = through_a_file(model, tmp_path)
    assert_same(again.truncation_, model.truncation_)
    assert_array_equal(again.predict(9 * new_rows()), model.predict(9 * new_rows()), strict=True)


def test_whole_targets_of_nearest_neighbours(tmp_path):
    X, y = rows()
    model = baselines.RCLS(2).fit(X, np.round(3 * y).astype(np.int16))
    assert_array_equal(through_a_file(model, tmp_path).predict(new_rows()), model.predict(new_rows()), strict=True)


@pytest.mark.parametrize("name", CLASSES)
def test_pickle_and_joblib_keep_working(name, tmp_path):
    model = fitted(name)
    again = through_a_file(model, tmp_path)
    joblib.dump(again, tmp_path / "joblib")
    for copied in (
        pickle.loads(pickle.dumps(model)),
        pickle.loads(pickle.dumps(again)),
        joblib.load(tmp_path / "joblib"),
    ):
        assert_array_equal(apply(copied, new_rows()), apply(model, new_rows()), strict=True)


# ------------------------------------------------------------------------------------------------------- parameters


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kernel", kernels.Matern(nu=2.5, gamma=0.5)),
        ("kernel", kernels.Laplace()),
        ("kernel", kernels.RationalQuadratic(alpha=2)),
        ("solver", solvers.AGD(n_alpha=3, alpha_step="lipschitz")),
        ("solver", solvers.VarPro(s_max=2.0, norm_bound=None)),
        ("solver", solvers.LBFGS(memory=3)),
        ("random_state", np.random.RandomState(7)),
        ("init", np.eye(3)[:2].astype(np.float32)),
        ("centers", [[0.0, 1.0, 2.0], [1.0, 2.0, 3.0]]),
        ("tol", np.float64(1e-3)),
        ("n_init", np.int32(3)),
        ("n_init", np.uint64(2**63)),
        ("scale_features", np.bool_(False)),
        ("time_limit", float("inf")),
        ("time_limit", np.float32(0.1)),
    ],
)
def test_parameters_come_back(name, value, tmp_path):
    model = clone(fitted("HyperKernelRidge")).fit(*rows())
    setattr(model, name, value)
    if name == "time_limit" and value == float("inf"):
        with pytest.raises(ValueError, match="cannot be saved: time_limit must be"):
            hkrr.save(model, tmp_path / "model")
        return
    assert_same(getattr(through_a_file(model, tmp_path), name), value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cv", KFold(3, shuffle=True, random_state=1)),
        ("cv", ShuffleSplit(2, test_size=0.2, random_state=np.random.RandomState(3))),
        ("cv", [(np.arange(3), np.arange(3, 5))]),
        ("n_components", range(1, 4)),
        ("n_components", (1, 2)),
        ("reg_lambdas", np.logspace(-3, -1, 3)),
        ("reg_lambdas", [0.1, 1]),
    ],
)
def test_parameters_of_the_search_come_back(name, value, tmp_path):
    model = pickle.loads(pickle.dumps(fitted("grid")))
    setattr(model, name, value)
    found = getattr(through_a_file(model, tmp_path), name)
    assert_same(found, value) if name != "cv" or isinstance(value, list) else _assert_same_splits(found, value)


def _assert_same_splits(found, expected):
    X = np.zeros((9, 1))
    assert type(found) is type(expected)
    for one, other in zip(found.split(X), expected.split(X), strict=True):
        assert_same(one, other)


def test_a_random_state_goes_on_where_it_was(tmp_path):
    state = np.random.RandomState(3)
    state.standard_normal(3)  # an odd number: one is kept for the next call
    model = clone(fitted("GradientKDR")).fit(*rows()).set_params(random_state=state)
    again = through_a_file(model, tmp_path).random_state
    assert_array_equal(again.standard_normal(700), state.standard_normal(700))


def test_callbacks_are_left_out_and_the_header_says_so(tmp_path):
    model = unfitted("HyperKernelRidge").set_params(callbacks=[lambda state: None]).fit(*rows())
    assert through_a_file(model, tmp_path).callbacks is None
    assert header_of(tmp_path / "model.safetensors")["left_out"] == ["callbacks"]
    assert len(model.callbacks) == 1


class OwnKernel(kernels.Gaussian):
    """A kernel that the library does not know."""


class Gaussian(kernels.Gaussian):
    """One that has the name of one it knows."""


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("kernel", OwnKernel(), "kernel is a test_saving.OwnKernel"),
        ("kernel", Gaussian(), "kernel is a test_saving.Gaussian"),
        ("solver", object(), "solver is a builtins.object"),
        ("init", np.ones((2, 3), dtype=object), "init is an array of object"),
        ("centers", pd.DataFrame(np.ones((2, 3))), "centers is a pandas"),
        ("random_state", np.random.RandomState(np.random.PCG64(0)), "use a seed"),
        ("max_iter", 2**63, "64 bits"),
        ("tol", np.longdouble(1), "tol is a number of kind"),
        ("init", {1: 2}, "keys are no texts"),
        ("device", "nowhere", "device='nowhere' is none of PyTorch's"),
    ],
)
def test_what_cannot_be_saved_is_refused_with_its_name(name, value, said, tmp_path):
    model = clone(fitted("HyperKernelRidge")).fit(*rows())
    setattr(model, name, value)
    with pytest.raises(ValueError, match=re.escape(said)):
        hkrr.save(model, tmp_path / "model")
    assert os.listdir(tmp_path) == []


def test_a_splitter_of_another_kind_is_refused_with_the_remedy(tmp_path):
    model = pickle.loads(pickle.dumps(fitted("grid"))).set_params(cv=RepeatedKFold())
    with pytest.raises(ValueError, match=r"cv is a sklearn.*RepeatedKFold.*model\.set_params\(cv=\.\.\.\)"):
        hkrr.save(model, tmp_path / "model")
    hkrr.save(model.set_params(cv=5), tmp_path / "model")


def test_models_that_are_no_models_are_refused(tmp_path):
    for name in CLASSES:
        with pytest.raises(NotFittedError):
            hkrr.save(unfitted(name), tmp_path / "model")
    for other in (Ridge().fit(*rows()), fitted("RCLS").link_, "model", None):
        with pytest.raises(TypeError, match=rf"got a {type(other).__name__}"):
            hkrr.save(other, tmp_path / "model")
    noted = pickle.loads(pickle.dumps(fitted("SIR")))
    noted.note_ = "mine"
    with pytest.raises(ValueError, match="'note_', which a file has no place for"):
        hkrr.save(noted, tmp_path / "model")
    broken = pickle.loads(pickle.dumps(fitted("HyperKernelRidge")))
    broken.dual_coef_[3] = np.nan
    with pytest.raises(ValueError, match="dual_coef_ holds NaN"):
        hkrr.save(broken, tmp_path / "model")
    assert os.listdir(tmp_path) == []


def test_more_names_than_a_header_has_room_for(tmp_path):
    X = np.random.default_rng(0).standard_normal((5, 3000))
    model = baselines.SIR(1, n_slices=2).fit(pd.DataFrame(X, columns=[f"{i:1000}" for i in range(3000)]), X[:, 0])
    with pytest.raises(ValueError, match="names of the columns"):
        hkrr.save(model, tmp_path / "model")
    del model.feature_names_in_
    assert_array_equal(through_a_file(model, tmp_path).components_, model.components_)


# --------------------------------------------------------------------------------------------------------- the file


def test_the_header_says_what_the_file_is(tmp_path):
    X, y = rows()
    model = unfitted("HyperKernelRidge").fit(X, np.column_stack([y, y]))
    hkrr.save(model, tmp_path / "model")
    header = header_of(tmp_path / "model")
    assert header["format"] == 1
    assert header["library"] == hkrr.__version__
    assert header["class"] == "HyperKernelRidge"
    assert header["parameters"]["kernel"] == "gaussian"
    assert header["tensors"]["centers_"] == {"dtype": "F64", "shape": [30, 3], "order": "C"}
    seconds = model.history_["time"][-1]
    expected = {"n_features": 3, "n_centers": 30, "n_targets": 2, "n_components": 2, "n_iter": model.n_iter_}
    assert header["summary"] == {**expected, "stopped": model.result_.reason, "seconds": seconds}


@pytest.mark.parametrize("name", ["HyperKernelRidgeCV", "ReLUNetwork", "polynomials", "RCLS"])
def test_files_of_format_1_are_read(name):
    """These files were written once, by the first version that could: they must be read for ever."""
    folder = HERE / "fixtures"
    expected = json.loads((folder / "format1.json").read_text())[name]
    model = hkrr.load(folder / f"format1-{name}.safetensors")
    assert_allclose(model.predict(np.array(expected["X"])), expected["predicted"], rtol=1e-9)
    assert {key: repr(value) for key, value in model.get_params().items()} == expected["parameters"]


def test_importing_the_library_imports_neither_onnx_nor_safetensors():
    code = "import sys, hkrr; print(*(name for name in ('onnx', 'onnxruntime', 'safetensors') if name in sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == ""


def test_the_page_on_saving_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code = re.findall(r"```python\n(.*?)```", (HERE.parent / "docs" / "saving.md").read_text(), flags=re.DOTALL)
    exec("\n".join(code), {"__name__": "__main__"})
    assert capsys.readouterr().out == "True\nTrue\nTrue\n"


# --------------------------------------------------------------------------------------------- a save that goes wrong


def _fail(error):
    def failing(*arguments, **options):
        raise error

    return failing


@pytest.mark.parametrize("call", ["replace", "fsync"])
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), r"Not saved \(No space left on device\): make room"),
        (OSError(errno.EROFS, "Read-only file system"), "cannot be written to: choose another one"),
        (OSError(errno.EIO, "Input/output error"), "check the disk"),
        (KeyboardInterrupt(), None),
    ],
)
def test_a_save_that_fails_leaves_what_was_there(call, error, expected, tmp_path, monkeypatch):
    before = saved(fitted("SIR"), tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(disk.os, call, _fail(error))
        with pytest.raises(type(error), match=expected) as raised:
            hkrr.save(fitted("SAVE"), tmp_path / "saved")
    assert getattr(raised.value, "errno", None) == getattr(error, "errno", None)
    assert os.listdir(tmp_path) == ["saved"]
    assert (tmp_path / "saved").read_bytes() == before


def test_a_write_that_ends_half_way_leaves_what_was_there(tmp_path):
    before = saved(fitted("SIR"), tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, hard))
    try:
        with pytest.raises(OSError, match="what was there before is as it was"):
            hkrr.save(fitted("SAVE"), tmp_path / "saved")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert os.listdir(tmp_path) == ["saved"]
    assert (tmp_path / "saved").read_bytes() == before


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only for the superuser")
def test_a_folder_that_is_read_only(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(PermissionError, match="choose another one"):
        hkrr.save(fitted("SIR"), tmp_path / "model")
    tmp_path.chmod(0o700)
    assert os.listdir(tmp_path) == []


def test_places_that_are_none(tmp_path):
    with pytest.raises(FileNotFoundError, match="the folder does not exist"):
        hkrr.save(fitted("SIR"), tmp_path / "nowhere" / "model")
    with pytest.raises(IsADirectoryError, match="give the name of a file"):
        hkrr.save(fitted("SIR"), tmp_path)
    assert os.listdir(tmp_path) == []


def test_the_folder_is_synced_after_the_rename(tmp_path, monkeypatch):
    done = []
    replace, fsync = os.replace, os.fsync

    def watched_fsync(descriptor):
        done.append("folder" if os.path.isdir(f"/proc/self/fd/{descriptor}") else "file")
        fsync(descriptor)

    monkeypatch.setattr(disk.os, "replace", lambda *paths: (done.append("rename"), replace(*paths)))
    monkeypatch.setattr(disk.os, "fsync", watched_fsync)
    hkrr.save(fitted("SIR"), tmp_path / "model")
    assert done == ["file", "rename", "folder"]


@pytest.mark.parametrize(("code", "raises"), [(errno.EINVAL, False), (errno.EIO, True)])
def test_a_folder_that_cannot_be_synced(code, raises, tmp_path, monkeypatch):
    fsync = os.fsync

    def failing(descriptor):
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(code, os.strerror(code))
        fsync(descriptor)

    monkeypatch.setattr(disk.os, "fsync", failing)
    if raises:
        with pytest.raises(OSError, match="Saved, but a power cut"):
            hkrr.save(fitted("SIR"), tmp_path / "model")
    else:
        hkrr.save(fitted("SIR"), tmp_path / "model")
    assert_array_equal(hkrr.load(tmp_path / "model").components_, fitted("SIR").components_)


def test_links_and_permissions_are_those_of_any_other_file(tmp_path):
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    hkrr.save(fitted("SIR"), tmp_path / "link")
    (tmp_path / "plain").touch()
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == saved(fitted("SIR"), tmp_path)
    assert (tmp_path / "saved").stat().st_mode == (tmp_path / "plain").stat().st_mode
