"""Tests of checkpoints.

A checkpoint is tied to the data and the parameters. A resumed fit repeats no recorded work. Write errors are reported.
"""

import errno
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hkrr
from hkrr import CheckpointError, HyperKernelRidge, HyperKernelRidgeCV
from hkrr._base.value_hashing import digest
from hkrr._storage.checkpoint_format import as_bytes, packed, read
from hkrr.solvers import LBFGS
from support.child_processes import child_process, read_line
from support.killed_fits import data, model_of
from support.platforms import posix_only
from support.stopped_fits import BreakAt, Broken, UserSolver, assert_same, ridge


@pytest.fixture
def stopped(tmp_path):
    """Return the path of the checkpoint of a fit of `ridge()` that was stopped at its eighth iteration."""
    path = tmp_path / "fit.checkpoint"
    with pytest.raises(Broken):
        ridge(path, callbacks=[BreakAt(8)]).fit(*data())
    return path


@pytest.mark.parametrize("solver", ["lbfgs", "varpro", "agd"])
def test_resumes_where_it_was_stopped(tmp_path, monkeypatch, solver):
    X, y = data()
    path, calls = tmp_path / "fit.checkpoint", []
    method = "reduced" if solver == "lbfgs" else "value_and_grad_B"
    original = getattr(hkrr.objective.Objective, method)
    monkeypatch.setattr(hkrr.objective.Objective, method, lambda *a: calls.append(1) or original(*a))
    expected = ridge(solver=solver).fit(X, y)
    full = len(calls)
    with pytest.raises(Broken):
        ridge(path, solver=solver, callbacks=[BreakAt(12)]).fit(X, y)
    calls.clear()
    watching = BreakAt(-1)
    found = ridge(path, solver=solver, callbacks=[watching]).fit(X, y)
    assert 0 < len(calls) < full - 10
    # L-BFGS replays its evaluations, so callbacks see all iterates. VarPro and AGD resume from the last iterate.
    assert watching.seen[0] == (0 if solver == "lbfgs" else 12)
    assert watching.seen[-1] == found.n_iter_ == expected.n_iter_
    assert_same(found, expected)
    for name in ("objective", "grad_norm", "step"):
        assert found.history_[name] == expected.history_[name]
    assert np.all(np.diff(found.history_["time"]) >= 0)
    calls.clear()
    again = ridge(path, solver=solver).fit(X, y)  # the fit is finished, so nothing is evaluated
    assert calls == []
    assert_same(again, expected)
    assert again.history_ == found.history_


# For each parameter that a checkpoint is tied to, a value that differs from the value in `ridge`.
OTHER = {
    "n_components": 1,
    "reg_lambda": 1e-2,
    "kernel": "matern32",
    "gamma": 0.5,
    "n_centers": 31,
    "centers": "kmeans",
    "criterion": "evidence",
    "solver": LBFGS(memory=5),
    "init": np.eye(2, 4),
    "n_init": 3,
    "fit_intercept": False,
    "scale_features": False,
    "max_iter": 26,
    "tol": 1e-5,
    "random_state": 1,
    "device": "cpu",  # PyTorch rounds differently from NumPy
}
# Parameters that may change when a fit resumes.
FREE = {"time_limit": 100.0, "block_size": 50, "n_jobs": 2, "verbose": 0, "checkpoint_every": 1.0}


def test_every_changed_parameter_is_refused_by_name(stopped):
    pytest.importorskip("torch")
    before = stopped.read_bytes()
    assert {*OTHER, *FREE, "callbacks", "checkpoint"} == set(HyperKernelRidge().get_params())
    for name, value in OTHER.items():
        with pytest.raises(CheckpointError, match=rf"another fit \(its {name} was .*, and is now .*other path"):
            ridge(stopped, **{name: value}).fit(*data())
    assert stopped.read_bytes() == before
    assert_same(ridge(stopped, **{**FREE, "block_size": "auto"}).fit(*data()), ridge().fit(*data()))


def test_other_data_and_other_classes_are_refused(stopped):
    X, y = data()
    swapped, weight = y.copy(), np.ones(len(y))
    swapped[:2], weight[0] = y[1::-1], 2.0
    for other in ((X, swapped), (X + np.eye(len(X), 4) * 1e-12, y), (X, y, weight)):
        with pytest.raises(CheckpointError, match="its data were different"):
            ridge(stopped).fit(*other)
    with pytest.raises(CheckpointError, match="had 90 rows, 4 columns and 1 targets, and the data now have 89 rows"):
        ridge(stopped).fit(X[1:], y[1:])
    with pytest.raises(CheckpointError, match="was written by a HyperKernelRidge, and this is a HyperKernelRidgeCV"):
        HyperKernelRidgeCV(checkpoint=stopped).fit(X, y)
    assert_same(ridge(stopped).fit(np.asfortranarray(X), y), ridge().fit(X, y))


def test_damaged_or_foreign_files_are_refused(stopped, tmp_path):
    whole = stopped.read_bytes()
    middle = bytearray(whole)
    middle[len(whole) // 2] ^= 1
    hkrr.save(ridge().fit(*data()), tmp_path / "model")
    odd = as_bytes({("fit", ""): packed({"seed": 0})})
    pickled = pickle.dumps(ridge())
    foreign = {
        b"": "it has only 0 bytes",
        (tmp_path / "model").read_bytes(): "it is a saved model; hkrr.load reads it",
        pickled: "it seems to be a pickle",
        b"x,y\n1,2\n": "it seems to be a text file",
    }
    damaged = dict.fromkeys((whole[:100], whole[:-1], bytes(middle), odd), "its? .*(damaged|truncated)")
    for content, said in {**foreign, **damaged}.items():
        stopped.write_bytes(content)
        with pytest.raises(CheckpointError, match=rf"fit\.checkpoint cannot be used: {said}") as raised:
            ridge(stopped).fit(*data())
        # Users must not be told to delete a file that is not a checkpoint.
        rest = "" if content in foreign else ", or delete the file to start over"
        assert str(raised.value).endswith(f"; use another path for checkpoint{rest}.")
        assert stopped.read_bytes() == content  # the file is not overwritten
    stopped.write_bytes(whole)
    with pytest.raises(hkrr.ModelFileError, match=r"it is the checkpoint of a fit; an estimator with checkpoint="):
        hkrr.load(stopped)


def test_a_checkpoint_of_another_version_is_refused(stopped, monkeypatch):
    monkeypatch.setattr("hkrr._storage.checkpoint.__version__", "9.9")
    with pytest.raises(CheckpointError, match=r"written by hkrr .*, but hkrr 9\.9 is installed"):
        ridge(stopped).fit(*data())


def test_a_checkpoint_in_another_format_is_refused(tmp_path):
    """Test that a checkpoint in format 1 is refused, because its entries differ from those of format 2.

    Model files have a format number of their own, which is still 1.
    """
    old = (Path(__file__).parent / "fixtures" / "format1.checkpoint").read_bytes()
    path = tmp_path / "fit.checkpoint"
    path.write_bytes(old)
    with pytest.raises(CheckpointError) as raised:
        ridge(path).fit(*data())
    assert str(raised.value) == (
        f"checkpoint={path} cannot be used: it was written by another version of hkrr, in format 1, but this version "
        "reads format 2 only; use another path for checkpoint, or delete the file to start over."
    )
    assert path.read_bytes() == old
    path.unlink()
    model = ridge(path).fit(*data())
    assert b'"format\\":2' in path.read_bytes()
    hkrr.save(model, tmp_path / "model")
    assert b'"format\\":1' in (tmp_path / "model").read_bytes()


def test_without_a_seed_the_drawn_one_is_stored(tmp_path):
    X, y = data()
    path = tmp_path / "fit.checkpoint"
    with pytest.raises(Broken):
        # Iteration 0 is the start, which every fit reaches. From some random starts there are fewer than 3 iterations.
        ridge(path, random_state=None, callbacks=[BreakAt(0)]).fit(X, y)
    seed = read(path)[1]["fit", ""]["seed"]
    assert_same(ridge(path, random_state=None).fit(X, y), ridge(random_state=seed).fit(X, y))
    # A RandomState must be in the same state at the start of both calls of fit. At the end of the resumed fit it is in
    # the same state as after an uninterrupted fit.
    rng, other = np.random.RandomState(5), np.random.RandomState(5)
    path.unlink()
    with pytest.raises(Broken):
        ridge(path, random_state=np.random.RandomState(5), callbacks=[BreakAt(3)]).fit(X, y)
    assert_same(ridge(path, random_state=rng).fit(X, y), ridge(random_state=other).fit(X, y))
    assert digest(rng.get_state()) == digest(other.get_state())
    with pytest.raises(CheckpointError, match="its random_state was"):
        ridge(path, random_state=rng).fit(X, y)


def test_a_full_disk_leaves_the_last_complete_checkpoint(stopped, monkeypatch):
    X, y = data()
    original, left = os.fsync, [6]

    def full(descriptor):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        original(descriptor)

    before, model = stopped.read_bytes(), ridge(stopped, checkpoint_every=0.0)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match=r"No space left.*free some space, or choose another"):
            model.fit(X, y)
    assert not hasattr(model, "components_")
    assert stopped.read_bytes() != before
    assert [each.name for each in stopped.parent.iterdir() if each.suffix == ".tmp"] == []
    left[0] = 0
    seen = BreakAt(-1)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            ridge(stopped, callbacks=[seen]).fit(X, y)
    assert seen.seen == []  # the error is raised before the first iteration
    assert_same(ridge(stopped).fit(X, y), ridge().fit(X, y))


def test_paths_that_cannot_be_written(tmp_path):
    with pytest.raises(OSError, match="the folder does not exist, so create it first"):
        ridge(tmp_path / "nowhere" / "fit").fit(*data())
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError, match="checkpoint is a folder; give the name of a file"):
        ridge(tmp_path / "folder").fit(*data())


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc, which only Linux has")
def test_a_folder_in_which_no_process_can_create_a_file():
    with pytest.raises(OSError, match=r"is not writable|check the disk"):
        ridge("/proc/fit").fit(*data())


@posix_only
def test_devices_and_folders_that_are_read_only(tmp_path):
    with pytest.raises(OSError, match="is a device or a pipe; give the name of a file"):
        ridge("/dev/null").fit(*data())
    assert not Path("/dev/.null.lock").exists()
    (tmp_path / "folder").mkdir()
    os.chmod(tmp_path / "folder", 0o555)
    if os.access(tmp_path / "folder", os.W_OK):
        pytest.skip("root can write to read-only folders")
    with pytest.raises(OSError, match="is not writable, so choose another one"):
        ridge(tmp_path / "folder" / "fit").fit(*data())


@pytest.mark.parametrize(("name", "value"), [("checkpoint", 3), ("checkpoint_every", -1), ("checkpoint_every", "x")])
def test_bad_arguments(name, value):
    for model in (ridge(), HyperKernelRidgeCV()):
        with pytest.raises(ValueError, match=f"{name} must be"):
            model.set_params(**{name: value}).fit(*data())


_WAITS = """
import sys
import hkrr
from support.killed_fits import data

def wait(state):
    if state.n_iter == 10:
        print("here", flush=True)
        sys.stdin.readline()

path = sys.argv[1]
hkrr.HyperKernelRidge(n_centers=30, max_iter=25, n_init=2, random_state=0, n_jobs=1, checkpoint=path,
                      checkpoint_every=0, callbacks=[wait]).fit(*data())
"""


@posix_only
def test_a_second_process_is_refused_and_resumes_when_the_first_is_killed(tmp_path):
    path = tmp_path / "fit.checkpoint"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path])}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with child_process([sys.executable, "-c", _WAITS, str(path)], env=environment, **pipes) as first:
        assert read_line(first, first.stdout) == "here\n"
        with pytest.raises(CheckpointError, match=r"fit\.checkpoint is in use by another fit; wait until"):
            ridge(path).fit(*data())
        first.kill()
    watching = BreakAt(-1)
    assert_same(ridge(path, callbacks=[watching]).fit(*data()), ridge().fit(*data()))
    assert len(read(path)[1]) == 5  # the entries: fit, moments, start, run and final solve


def test_long_names_with_a_common_prefix_have_separate_locks(tmp_path):
    one, other = tmp_path / f"{'x' * 120}.one", tmp_path / f"{'x' * 120}.other"
    fits = [lambda state: ridge(other, max_iter=1).fit(*data())]
    ridge(one, max_iter=1, callbacks=fits).fit(*data())  # the second fit runs while the first holds its lock


def test_a_run_that_ran_out_of_time_resumes(tmp_path):
    X, y = data()
    path = tmp_path / "fit.checkpoint"
    cut = ridge(path, time_limit=1e-9).fit(X, y)
    assert cut.result_.reason == "time_limit"
    assert cut.n_iter_ <= 1
    found = ridge(path, time_limit=None).fit(X, y)
    assert found.result_.reason != "time_limit"


def test_a_user_s_solver_resumes(tmp_path):
    X, y = data()
    path = tmp_path / "fit.checkpoint"
    with pytest.raises(Broken):
        ridge(path, solver=UserSolver(), callbacks=[BreakAt(8)]).fit(X, y)
    run = next(value for (kind, _), value in read(path)[1].items() if kind == "run")
    assert len(run.value) == 9
    assert_same(ridge(path, solver=UserSolver()).fit(X, y), ridge(solver=UserSolver()).fit(X, y))


def test_a_fit_without_checkpoint_leaves_no_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model_of("lbfgs").fit(*data())
    assert list(tmp_path.iterdir()) == []
