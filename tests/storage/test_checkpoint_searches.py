"""Tests of checkpoints of searches, grids and fits to data that are not in memory, and of the effects of Ctrl-C."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import hkrr
from hkrr import CheckpointError, HyperKernelRidge, HyperKernelRidgeCV
from hkrr._base.threads import in_threads, raise_if_stopped
from hkrr._storage.checkpoint_format import read
from hkrr.estimators import _grid_search
from hkrr.estimators.search import search_stages
from hkrr.solvers import driver
from support.child_processes import TIMEOUT, child_process
from support.killed_fits import data, model_of
from support.paths import DOCS
from support.platforms import posix_only
from support.stopped_fits import BreakAt, Broken, assert_same, breaking, interrupt_at, ridge


@pytest.fixture(scope="module")
def whole_search():
    """Return a model fitted by a search without interruption, and the number of runs of the solver."""
    with pytest.MonkeyPatch.context() as patch:
        runs = count_runs(patch)
        return model_of("search").fit(*data()), len(runs)


def count_runs(patch):
    """Return a list that gets an entry for each run of a solver from now on, except for runs that are replayed."""
    runs, original = [], driver._run
    patch.setattr(driver, "_run", lambda *a, **k: runs.append(1) or original(*a, **k))
    return runs


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_search_resumes_with_any_number_of_jobs(tmp_path, monkeypatch, whole_search, n_jobs):
    X, y = data()
    path = tmp_path / "fit.checkpoint"
    with monkeypatch.context() as patch:
        patch.setattr(search_stages, "rescale", breaking(search_stages.rescale, Broken()))
        with pytest.raises(Broken):
            model_of("search", checkpoint=path).set_params(n_jobs=n_jobs).fit(X, y)
    runs, (expected, full) = count_runs(monkeypatch), whole_search
    found = model_of("search", checkpoint=path).fit(X, y)
    # The stages before the error are not repeated. Only the rescaling and the final comparison remain.
    assert 0 < len(runs) < 0.5 * full
    assert_same(found, expected)
    for name in ("start", "score", "criterion"):
        assert found.path_[name] == expected.path_[name]
    runs.clear()
    again = model_of("search", checkpoint=path).fit(X, y)
    assert runs == []
    assert_same(again, expected)
    assert again.path_ == found.path_  # including the recorded seconds


@pytest.mark.filterwarnings("ignore::hkrr.EdgeWarning")  # the best candidate of such a small grid is at its edge
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_grid_resumes_with_any_number_of_jobs(tmp_path, monkeypatch, n_jobs):
    X, y = data()
    path = tmp_path / "fit.checkpoint"
    # Raise the error at the last call, the final fit. With two jobs, worker processes make the first two calls.
    last = 3 if n_jobs == 1 else 1
    with monkeypatch.context() as patch:
        patch.setattr(_grid_search, "models_along_lambda", breaking(_grid_search.models_along_lambda, Broken(), last))
        with pytest.raises(Broken):
            model_of("grid", checkpoint=path).set_params(n_jobs=n_jobs).fit(X, y)
    assert sum(kind == "step" for kind, _ in read(path)[1]) == 2  # the scores of one and of two directions
    pairs = []
    original = _grid_search._scores_along_lambda
    monkeypatch.setattr(_grid_search, "_scores_along_lambda", lambda *a: pairs.append(1) or original(*a))
    found = model_of("grid", checkpoint=path).fit(X, y)
    assert pairs == []
    expected = model_of("grid").fit(X, y)
    assert_same(found, expected)
    for name, column in expected.cv_results_.items():
        assert_array_equal(found.cv_results_[name], column)


@pytest.fixture
def evaluations(monkeypatch):
    """Return a list that gets an entry for each evaluation of an objective that is computed and not replayed."""
    found, original = [], hkrr.objective.Objective.reduced
    monkeypatch.setattr(hkrr.objective.Objective, "reduced", lambda *a: found.append(1) or original(*a))
    return found


def _count(evaluations, fit):
    before = len(evaluations)
    return fit(), len(evaluations) - before


def test_files_resume_and_other_files_are_refused(tmp_path, evaluations):
    X, y = data(m=400)
    path, table = tmp_path / "fit.checkpoint", tmp_path / "rows.npy"
    np.save(table, np.column_stack([X, y]))
    with pytest.raises(Broken):
        ridge(path, callbacks=[BreakAt(8)]).fit(str(table), 4)
    other = np.column_stack([X, y])
    other[[5, 6], 4] = other[[6, 5], 4]  # exchange the targets of two rows
    np.save(tmp_path / "other.npy", other)
    with pytest.raises(CheckpointError, match="its data were different"):
        ridge(path).fit(str(tmp_path / "other.npy"), 4)
    with pytest.raises(CheckpointError, match="its data were of a different type"):
        ridge(path).fit(X, y)
    found, few = _count(evaluations, lambda: ridge(path).fit(str(table), 4))
    expected, full = _count(evaluations, lambda: ridge().fit(str(table), 4))
    assert_same(found, expected)
    assert 0 < few <= full - 9  # the start and the first eight iterations are not repeated


def _check_rows_resume(path, rows, X, evaluations):
    with pytest.raises(Broken):
        ridge(path, callbacks=[BreakAt(8)]).fit(*rows)
    run = next(value for (kind, _), value in read(path)[1].items() if kind == "run")
    assert len(run.value) > 8
    found, few = _count(evaluations, lambda: ridge(path).fit(*rows))
    expected, full = _count(evaluations, lambda: ridge().fit(*rows))
    assert 0 < few <= full - 9
    assert_allclose(found.components_, expected.components_, rtol=0.0, atol=1e-10)
    assert_allclose(found.predict(X), expected.predict(X), rtol=0.0, atol=1e-10)


def test_tensors_resume(tmp_path, evaluations):
    torch = pytest.importorskip("torch")
    X, y = data(m=400)
    _check_rows_resume(tmp_path / "fit.checkpoint", (torch.tensor(X), torch.tensor(y)), X, evaluations)


@pytest.mark.thorough
def test_dask_collections_resume(tmp_path, evaluations):
    da, distributed = pytest.importorskip("dask.array"), pytest.importorskip("distributed")
    X, y = data(m=400)
    rows = da.from_array(X, chunks=(150, 4)), da.from_array(y, chunks=150)
    with distributed.Client(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None):
        _check_rows_resume(tmp_path / "fit.checkpoint", rows, X, evaluations)


# ------------------------------------------------------------------------------------------------------------- Ctrl-C


@pytest.mark.parametrize("solver", ["lbfgs", "varpro"])
def test_an_interrupted_fit_with_a_checkpoint_keeps_the_best_model(tmp_path, solver):
    X, y = data()
    path = tmp_path / "fit.checkpoint"
    model = ridge(path, solver=solver, callbacks=[interrupt_at(8)])
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    assert model.result_.reason == "interrupted"
    assert model.n_iter_ == 8 == len(model.history_["objective"]) - 1
    eight = ridge(solver=solver, max_iter=8).fit(X, y)
    assert_same(model, eight)
    assert_same(ridge(path, solver=solver).fit(X, y), ridge(solver=solver).fit(X, y))


def test_an_interrupted_fit_without_a_checkpoint_leaves_the_estimator_unchanged():
    X, y = data()
    model = ridge(callbacks=[interrupt_at(3)])
    before = dict(vars(model))
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    assert vars(model) == before
    model.set_params(callbacks=None).fit(X, y)
    predicted = model.predict(X)
    model.set_params(callbacks=[interrupt_at(3)])
    with pytest.raises(KeyboardInterrupt):
        model.fit(X[:, :3], y)
    assert model.n_features_in_ == 4
    assert_array_equal(model.predict(X), predicted)


def test_an_interrupted_search_keeps_its_best_candidate(tmp_path, monkeypatch, whole_search):
    X, y = data()
    path = tmp_path / "fit.checkpoint"
    for name, checkpoint, fitted in (("find_directions", path, False), ("polish", None, False), ("polish", path, True)):
        model = model_of("search", checkpoint=checkpoint)
        with monkeypatch.context() as patch:
            patch.setattr(search_stages, name, breaking(getattr(search_stages, name), KeyboardInterrupt()))
            with pytest.raises(KeyboardInterrupt):
                model.fit(X, y)
        assert hasattr(model, "components_") == hasattr(model, "n_features_in_") == fitted
    assert model.result_.reason == "interrupted"
    assert model.n_components_ == 2
    assert model.score(X, y) > 0.9
    assert_same(model_of("search", checkpoint=path).fit(X, y), whole_search[0])


def test_all_threads_end_before_the_error_is_raised():
    running, both_started = set(), threading.Barrier(2)

    def work(k):
        running.add(k)
        both_started.wait(timeout=60)
        try:
            if k == 1:
                raise Broken
            while True:
                raise_if_stopped()
                time.sleep(0.001)
        finally:
            running.discard(k)

    with pytest.raises(Broken):
        in_threads(work, range(2), 2)
    assert running == set()


_SEARCHES = """
import json, sys, threading
from hkrr._base.threads import pool
from support.killed_fits import data, model_of

model = model_of("search", checkpoint=sys.argv[1], checkpoint_every=0.0).set_params(n_jobs=None)
try:
    model.fit(*data())
    outcome = "finished"
except KeyboardInterrupt:
    outcome = model.result_.reason if hasattr(model, "result_") else "unfitted"
usual = ("MainThread", "hkrr", "tqdm_monitor")  # idle threads of the pool and of tqdm remain after every fit
others = [one.name for one in threading.enumerate() if not one.name.startswith(usual)]
print(json.dumps([outcome, others, pool(2)._work_queue.qsize()]), flush=True)
"""


@posix_only
def test_a_real_ctrl_c_while_threads_search(tmp_path, whole_search):
    path = tmp_path / "fit.checkpoint"
    folders = list(sys.path)
    environment = {**os.environ, "OMP_NUM_THREADS": "2", "PYTHONPATH": os.pathsep.join(folders)}
    command, deadline = [sys.executable, "-c", _SEARCHES, str(path)], time.monotonic() + TIMEOUT
    with child_process(command, stdout=subprocess.PIPE, env=environment) as child:
        while child.poll() is None and not (path.exists() and sum(kind == "step" for kind, _ in read(path)[1]) > 8):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        child.send_signal(signal.SIGINT)
        outcome, others, waiting = json.loads(child.communicate(timeout=TIMEOUT)[0])
    assert (outcome, others, waiting) == ("interrupted", [], 0)
    assert child.returncode == 0
    assert not read(path)[1]["fit", ""]["finished"]
    assert_same(model_of("search", checkpoint=path).fit(*data()), whole_search[0])


@pytest.mark.thorough
def test_the_page_on_checkpoints_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    page = (DOCS / "checkpoints.md").read_text()
    exec("\n".join(re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)), {"__name__": "__main__"})
    assert capsys.readouterr().out == "1\n"
    assert (tmp_path / "fit.checkpoint").exists()


def test_both_estimators_have_the_parameters():
    for cls in (HyperKernelRidge, HyperKernelRidgeCV):
        parameters = cls().get_params()
        assert (parameters["checkpoint"], parameters["checkpoint_every"]) == (None, 60.0)
