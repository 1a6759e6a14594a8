"""Checkpoints: what they belong to, what refuses them, what a restarted fit is spared, and where they fail."""

import errno
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import hkrr
from hkrr import CheckpointError, HyperKernelRidge, HyperKernelRidgeCV
from hkrr.checkpoint_file import as_bytes, packed, read
from hkrr.meaning import digest
from hkrr.solvers import LBFGS, StopRun
from victims import data, model_of

FITTED = ("components_", "dual_coef_", "centers_", "intercept_", "gamma_", "reg_lambda_")


class Broken(Exception):
    """What ends a fit in these tests."""


class BreakAt:
    """A callback that breaks the fit off at an iteration, and counts those that it sees."""

    def __init__(self, n_iter):
        self.n_iter, self.seen = n_iter, []

    def __call__(self, state):
        self.seen.append(state.n_iter)
        if state.n_iter == self.n_iter:
            raise Broken


def assert_same(found, expected):
    for name in FITTED:
        assert_array_equal(getattr(found, name), getattr(expected, name), err_msg=name)


def ridge(path=None, **more):
    parameters = {"n_centers": 30, "max_iter": 25, "n_init": 2, "random_state": 0, "n_jobs": 1}
    return HyperKernelRidge(**{**parameters, "checkpoint": path, **more})


@pytest.fixture
def broken_off(tmp_path):
    """The path of a checkpoint of `ridge`, broken off at its eighth iteration."""
    path = tmp_path / "fit.checkpoint"
    with pytest.raises(Broken):
        ridge(path, callbacks=[BreakAt(8)]).fit(*data())
    return path


@pytest.mark.parametrize("solver", ["lbfgs", "varpro", "agd"])
def test_goes_on_where_it_was_broken_off(tmp_path, monkeypatch, solver):
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
    # L-BFGS is run again on what was noted, and callbacks see it all; the others go on from the last iterate.
    assert watching.seen[0] == (0 if solver == "lbfgs" else 12)
    assert watching.seen[-1] == found.n_iter_ == expected.n_iter_
    assert_same(found, expected)
    for name in ("objective", "grad_norm", "step"):
        assert found.history_[name] == expected.history_[name]
    assert np.all(np.diff(found.history_["time"]) >= 0)
    calls.clear()
    again = ridge(path, solver=solver).fit(X, y)  # done: nothing is computed but what the start needs not
    assert calls == []
    assert_same(again, expected)
    assert again.history_ == found.history_


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
    "device": "cpu",  # through PyTorch, which rounds otherwise than NumPy
}
FREE = {"time_limit": 100.0, "block_size": 50, "n_jobs": 2, "verbose": 0, "checkpoint_every": 1.0}


def test_every_other_parameter_is_refused_by_name(broken_off):
    pytest.importorskip("torch")
    before = broken_off.read_bytes()
    assert {*OTHER, *FREE, "callbacks", "checkpoint"} == set(HyperKernelRidge().get_params())
    for name, value in OTHER.items():
        with pytest.raises(CheckpointError, match=rf"another fit: its {name} was .*, and is now .*other path"):
            ridge(broken_off, **{name: value}).fit(*data())
    assert broken_off.read_bytes() == before
    assert_same(ridge(broken_off, **{**FREE, "block_size": "auto"}).fit(*data()), ridge().fit(*data()))


def test_other_data_or_another_class_is_refused(broken_off):
    X, y = data()
    swapped, weight = y.copy(), np.ones(len(y))
    swapped[:2], weight[0] = y[1::-1], 2.0
    for other in ((X, swapped), (X + np.eye(len(X), 4) * 1e-12, y), (X, y, weight)):
        with pytest.raises(CheckpointError, match="its data were other ones"):
            ridge(broken_off).fit(*other)
    with pytest.raises(CheckpointError, match="had 90 rows, 4 columns and 1 targets, and these have 89 rows"):
        ridge(broken_off).fit(X[1:], y[1:])
    with pytest.raises(CheckpointError, match="is of a HyperKernelRidge, and this is a HyperKernelRidgeCV"):
        HyperKernelRidgeCV(checkpoint=broken_off).fit(X, y)
    assert_same(ridge(broken_off).fit(np.asfortranarray(X), y), ridge().fit(X, y))


def test_damaged_or_foreign_files_are_refused(broken_off, tmp_path):
    whole = broken_off.read_bytes()
    middle = bytearray(whole)
    middle[len(whole) // 2] ^= 1
    hkrr.save(ridge().fit(*data()), tmp_path / "model")
    odd = as_bytes({("fit", ""): packed({"seed": 0})})
    pickled = pickle.dumps(ridge())
    foreign = {
        b"": "it has 0 bytes",
        (tmp_path / "model").read_bytes(): "it is a saved model: hkrr.load reads it",
        pickled: "it seems to be a pickle",
        b"x,y\n1,2\n": "it seems to be a text",
    }
    damaged = dict.fromkeys((whole[:100], whole[:-1], bytes(middle), odd), "its? .*damaged|cut off")
    for content, said in {**foreign, **damaged}.items():
        broken_off.write_bytes(content)
        with pytest.raises(CheckpointError, match=rf"fit\.checkpoint cannot be used: {said}") as raised:
            ridge(broken_off).fit(*data())
        # What is no checkpoint of anybody's is nothing that one should be told to delete.
        rest = "" if content in foreign else ", or delete the file to begin anew"
        assert str(raised.value).endswith(f"; give checkpoint another path{rest}.")
        assert broken_off.read_bytes() == content  # never begun anew in silence
    broken_off.write_bytes(whole)
    with pytest.raises(hkrr.ModelFileError, match=r"it is the checkpoint of a fit: an estimator with checkpoint="):
        hkrr.load(broken_off)


def test_an_older_library_s_is_refused(broken_off, monkeypatch):
    monkeypatch.setattr("hkrr.checkpoints.__version__", "9.9")
    with pytest.raises(CheckpointError, match=r"written by hkrr .*, and this is hkrr 9\.9"):
        ridge(broken_off).fit(*data())


def test_without_a_seed_the_one_drawn_is_kept(tmp_path):
    X, y = data()
    path = tmp_path / "fit.checkpoint"
    with pytest.raises(Broken):
        ridge(path, random_state=None, callbacks=[BreakAt(3)]).fit(X, y)
    seed = read(path)[1]["fit", ""]["seed"]
    assert_same(ridge(path, random_state=None).fit(X, y), ridge(random_state=seed).fit(X, y))
    # A generator is what it was at the start of the fit, and is left as the fit leaves it.
    rng, other = np.random.RandomState(5), np.random.RandomState(5)
    path.unlink()
    with pytest.raises(Broken):
        ridge(path, random_state=np.random.RandomState(5), callbacks=[BreakAt(3)]).fit(X, y)
    assert_same(ridge(path, random_state=rng).fit(X, y), ridge(random_state=other).fit(X, y))
    assert digest(rng.get_state()) == digest(other.get_state())
    with pytest.raises(CheckpointError, match="its random_state was"):
        ridge(path, random_state=rng).fit(X, y)


def test_a_full_disk_leaves_the_last_good_checkpoint(broken_off, monkeypatch):
    X, y = data()
    original, left = os.fsync, [6]

    def full(descriptor):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        original(descriptor)

    begun, model = broken_off.read_bytes(), ridge(broken_off, checkpoint_every=0.0)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match=r"No space left.*make room, or choose another"):
            model.fit(X, y)
    assert not hasattr(model, "components_")
    assert broken_off.read_bytes() != begun
    assert [each.name for each in broken_off.parent.iterdir() if each.suffix == ".tmp"] == []
    left[0] = 0
    seen = BreakAt(-1)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            ridge(broken_off, callbacks=[seen]).fit(X, y)
    assert seen.seen == []  # before any work is done
    assert_same(ridge(broken_off).fit(X, y), ridge().fit(X, y))


def test_folders_that_cannot_be_written(tmp_path):
    with pytest.raises(OSError, match="the folder does not exist: make it first"):
        ridge(tmp_path / "nowhere" / "fit").fit(*data())
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError, match="checkpoint is a folder; give the name of a file"):
        ridge(tmp_path / "folder").fit(*data())
    for path, said in (
        ("/dev/null", "is a device or a pipe; give the name of a file"),
        ("/proc/fit", "cannot be written"),
    ):
        with pytest.raises(OSError, match=said):  # in the second no file can be made, by nobody
            ridge(path).fit(*data())
    assert not Path("/dev/.null.lock").exists()
    os.chmod(tmp_path / "folder", 0o555)
    if os.access(tmp_path / "folder", os.W_OK):
        pytest.skip("whoever runs this (root?) may write everywhere")
    with pytest.raises(OSError, match="cannot be written to: choose another one"):
        ridge(tmp_path / "folder" / "fit").fit(*data())


@pytest.mark.parametrize(("name", "value"), [("checkpoint", 3), ("checkpoint_every", -1), ("checkpoint_every", "x")])
def test_bad_arguments(name, value):
    for model in (ridge(), HyperKernelRidgeCV()):
        with pytest.raises(ValueError, match=f"{name} must be"):
            model.set_params(**{name: value}).fit(*data())


_WAITS = """
import sys
import hkrr
from victims import data

def wait(state):
    if state.n_iter == 10:
        print("here", flush=True)
        sys.stdin.readline()

path = sys.argv[1]
hkrr.HyperKernelRidge(n_centers=30, max_iter=25, n_init=2, random_state=0, n_jobs=1, checkpoint=path,
                      checkpoint_every=0, callbacks=[wait]).fit(*data())
"""


def test_a_second_process_is_told_so_and_goes_on_when_the_first_is_killed(tmp_path):
    path = tmp_path / "fit.checkpoint"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    with subprocess.Popen([sys.executable, "-c", _WAITS, str(path)], stdin=-1, stdout=-1, env=environment) as first:
        assert first.stdout.readline() == b"here\n"
        with pytest.raises(CheckpointError, match=r"fit\.checkpoint is in use by another fit: wait for it"):
            ridge(path).fit(*data())
        first.kill()
    watching = BreakAt(-1)
    assert_same(ridge(path, callbacks=[watching]).fit(*data()), ridge().fit(*data()))
    assert len(read(path)[1]) == 5  # the fit, its moments, its start, its run and what is known of its end


def test_long_names_that_begin_alike_have_locks_of_their_own(tmp_path):
    one, other = tmp_path / f"{'x' * 120}.one", tmp_path / f"{'x' * 120}.other"
    fits = [lambda state: ridge(other, max_iter=1).fit(*data())]
    ridge(one, max_iter=1, callbacks=fits).fit(*data())  # the other while this one holds its lock


def test_a_run_that_ran_out_of_time_goes_on(tmp_path):
    X, y = data()
    path = tmp_path / "fit.checkpoint"
    cut = ridge(path, time_limit=1e-9).fit(X, y)
    assert cut.result_.reason == "time_limit"
    assert cut.n_iter_ <= 1
    found = ridge(path, time_limit=None).fit(X, y)
    assert found.result_.reason != "time_limit"


class Stranger:
    """A solver of one's own: gradient steps of the reduced function, and one value that is not noted."""

    def minimize(self, objective, B0, monitor):
        B = B0
        for _ in range(30):
            found = objective.reduced(B)
            assert objective.value(B, found.alpha) <= 2.0 * found.value
            monitor(B, found.alpha, found.value, float(np.linalg.norm(found.grad)), 0.1)
            B = B - 0.1 * found.grad
        raise StopRun("stalled")


def test_a_solver_of_one_s_own_goes_on(tmp_path):
    X, y = data()
    path = tmp_path / "fit.checkpoint"
    with pytest.raises(Broken):
        ridge(path, solver=Stranger(), callbacks=[BreakAt(8)]).fit(X, y)
    run = next(value for (kind, _), value in read(path)[1].items() if kind == "run")
    assert len(run["evaluations"]["value"]) == 9
    assert_same(ridge(path, solver=Stranger()).fit(X, y), ridge(solver=Stranger()).fit(X, y))


def test_nothing_is_left_of_it_in_a_fit_without(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model_of("lbfgs").fit(*data())
    assert list(tmp_path.iterdir()) == []
