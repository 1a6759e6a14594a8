"""Tests of the header of model files, of files written by earlier versions, and of attempts to save that fail."""

import errno
import json
import os
import re
import stat
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import hkrr
from hkrr._storage import atomic_write
from support.models_to_save import CLASSES, fitted, header_of, rows, saved, unfitted
from support.paths import DOCS
from support.platforms import posix_only
from support.write_model_files import outputs_of, write

FOLDER = Path(__file__).parent / "fixtures"


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
    """Test that files written by the first version can be loaded, and that the models make the recorded predictions.

    Every later version must be able to load these files.
    """
    expected = json.loads((FOLDER / "format1.json").read_text())[name]
    model = hkrr.load(FOLDER / f"format1-{name}.safetensors")
    assert_allclose(model.predict(np.array(expected["X"])), expected["predicted"], rtol=1e-9)
    # Parameters that were added later have their defaults.
    expected_parameters = {key: repr(value) for key, value in type(model)().get_params().items()}
    expected_parameters.update(expected["parameters"])
    assert {key: repr(value) for key, value in model.get_params().items()} == expected_parameters


def _recorded(folder):
    """Return the records of `support.write_model_files` in a folder, by the name of the model file."""
    return {
        f"{path.stem}-{name}": recorded
        for path in sorted(folder.glob("format*.json"))
        for name, recorded in json.loads(path.read_text()).items()
        if "outputs" in recorded
    }


def _check_outputs(path, expected):
    """Check that the model in a file has the recorded outputs and parameters."""
    assert path.stat().st_size < 30_000
    model = hkrr.load(path)
    X = pd.DataFrame(expected["X"]) if isinstance(expected["X"], dict) else np.array(expected["X"])
    found = outputs_of(model, X)
    assert set(found) == set(expected["outputs"])
    for output, values in expected["outputs"].items():
        if isinstance(values[0], str):
            assert found[output].tolist() == values
        else:
            assert_allclose(found[output], values, rtol=1e-6)  # the posterior factor is stored in single precision
    parameters = {key: repr(value) for key, value in model.get_params(deep=False).items()}
    # Classifiers of version 0.1 had more parameters.
    gone = ("n_components", "loss", "kernel") if path.stem in ("format1-logistic", "format1-squared") else ()
    expected_parameters = {key: value for key, value in expected["parameters"].items() if key not in gone}
    assert {key: parameters[key] for key in expected_parameters} == expected_parameters


@pytest.mark.parametrize("name", _recorded(FOLDER))
def test_stored_models_have_the_recorded_outputs(name):
    """Test that models loaded from stored files have the outputs that were recorded when the files were written.

    Every later version must reproduce these outputs.
    """
    _check_outputs(FOLDER / f"{name}.safetensors", _recorded(FOLDER)[name])


@pytest.mark.thorough
def test_stored_models_of_the_present_format(tmp_path):
    """Test the files that `support.write_model_files` writes, which are stored when the file format changes."""
    write(tmp_path)
    recorded = _recorded(tmp_path)
    assert len(recorded) == len(CLASSES) + 2
    for name, expected in recorded.items():
        _check_outputs(tmp_path / f"{name}.safetensors", expected)
    with pytest.raises(FileExistsError):
        write(tmp_path)


def test_the_page_on_saving_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code = re.findall(r"```python\n(.*?)```", (DOCS / "saving.md").read_text(), flags=re.DOTALL)
    exec("\n".join(code), {"__name__": "__main__"})
    assert capsys.readouterr().out == "True\nTrue\nTrue\n"


def _fail(error):
    def failing(*arguments, **options):
        raise error

    return failing


@pytest.mark.parametrize("call", ["replace", "fsync"])
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), r"Not saved \(No space left on device\); free some space"),
        (OSError(errno.EROFS, "Read-only file system"), "not writable, so choose another one"),
        (OSError(errno.EIO, "Input/output error"), "check the disk"),
        (KeyboardInterrupt(), None),
    ],
)
def test_a_failed_save_leaves_the_previous_file(call, error, expected, tmp_path, monkeypatch):
    before = saved(fitted("SIR"), tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(atomic_write.os, call, _fail(error))
        with pytest.raises(type(error), match=expected) as raised:
            hkrr.save(fitted("SAVE"), tmp_path / "saved")
    assert getattr(raised.value, "errno", None) == getattr(error, "errno", None)
    assert os.listdir(tmp_path) == ["saved"]
    assert (tmp_path / "saved").read_bytes() == before


@posix_only
def test_an_incomplete_write_leaves_the_previous_file(tmp_path):
    import resource

    before = saved(fitted("SIR"), tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, hard))
    try:
        with pytest.raises(OSError, match="an existing file is unchanged"):
            hkrr.save(fitted("SAVE"), tmp_path / "saved")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert os.listdir(tmp_path) == ["saved"]
    assert (tmp_path / "saved").read_bytes() == before


@posix_only
def test_a_folder_that_is_read_only(tmp_path):
    if os.geteuid() == 0:
        pytest.skip("root can write to read-only folders")
    tmp_path.chmod(0o500)
    with pytest.raises(PermissionError, match="choose another one"):
        hkrr.save(fitted("SIR"), tmp_path / "model")
    tmp_path.chmod(0o700)
    assert os.listdir(tmp_path) == []


def test_paths_that_are_not_files(tmp_path):
    with pytest.raises(FileNotFoundError, match="the folder does not exist"):
        hkrr.save(fitted("SIR"), tmp_path / "nowhere" / "model")
    with pytest.raises(IsADirectoryError, match="give the name of a file"):
        hkrr.save(fitted("SIR"), tmp_path)
    assert os.listdir(tmp_path) == []


@posix_only
def test_a_path_that_is_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="a device or a pipe; give the name of a file"):
        hkrr.save(fitted("SIR"), tmp_path / "pipe")
    assert (tmp_path / "pipe").is_fifo()
    assert os.listdir(tmp_path) == ["pipe"]


def test_the_longest_name_that_a_file_can_have(tmp_path):
    """Test that a model can be saved to a file whose name has 252 bytes.

    On most file systems a name has at most 255 bytes, which also holds for the name of the temporary file.
    """
    name = "\N{CAT FACE}" * 63
    hkrr.save(fitted("SIR"), tmp_path / name)
    assert os.listdir(tmp_path) == [name]


def _is_folder(descriptor):
    return stat.S_ISDIR(os.fstat(descriptor).st_mode)


@posix_only
def test_the_folder_is_synced_after_the_rename(tmp_path, monkeypatch):
    done = []
    replace, fsync = os.replace, os.fsync

    def watched_fsync(descriptor):
        done.append("folder" if _is_folder(descriptor) else "file")
        fsync(descriptor)

    monkeypatch.setattr(atomic_write.os, "replace", lambda *paths: (done.append("rename"), replace(*paths)))
    monkeypatch.setattr(atomic_write.os, "fsync", watched_fsync)
    hkrr.save(fitted("SIR"), tmp_path / "model")
    assert done == ["file", "rename", "folder"]


@posix_only
@pytest.mark.parametrize(("code", "raises"), [(errno.EINVAL, False), (errno.EIO, True)])
def test_a_folder_that_cannot_be_synced(code, raises, tmp_path, monkeypatch):
    fsync = os.fsync

    def failing(descriptor):
        if _is_folder(descriptor):
            raise OSError(code, os.strerror(code))
        fsync(descriptor)

    monkeypatch.setattr(atomic_write.os, "fsync", failing)
    if raises:
        with pytest.raises(OSError, match="Saved, but a power failure"):
            hkrr.save(fitted("SIR"), tmp_path / "model")
    else:
        hkrr.save(fitted("SIR"), tmp_path / "model")
    assert_array_equal(hkrr.load(tmp_path / "model").components_, fitted("SIR").components_)


@posix_only
def test_symbolic_links_and_permissions(tmp_path):
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    hkrr.save(fitted("SIR"), tmp_path / "link")
    (tmp_path / "plain").touch()
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == saved(fitted("SIR"), tmp_path)
    assert (tmp_path / "saved").stat().st_mode == (tmp_path / "plain").stat().st_mode
