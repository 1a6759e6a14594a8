"""Test that Ctrl-C raises a short KeyboardInterrupt, and that an interrupted grid search keeps its best candidate.

A candidate of the grid is a number of directions and a value of lambda.
"""

import os
import re
import signal
import subprocess
import sys
import traceback

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import hkrr
from hkrr import HyperKernelRidge
from hkrr.estimators import _grid_search
from hkrr.estimators.search import search_stages
from support.child_processes import TIMEOUT, child_process, read_line
from support.killed_fits import data, model_of
from support.platforms import posix_only
from support.stopped_fits import assert_same, breaking, interrupt_at, ridge


def interrupted(model):
    """Fit a model, and return the KeyboardInterrupt that is raised."""
    with pytest.raises(KeyboardInterrupt) as found:
        model.fit(*data())
    return found.value


def test_the_exception_is_short_and_says_what_the_estimator_holds(tmp_path, monkeypatch):
    one = interrupted(ridge(tmp_path / "one", callbacks=[interrupt_at(8)]))
    with monkeypatch.context() as patch:
        patch.setattr(search_stages, "polish", breaking(search_stages.polish, KeyboardInterrupt()))
        search = interrupted(model_of("search", checkpoint=tmp_path / "search"))
        patch.setattr(
            _grid_search, "models_along_lambda", breaking(_grid_search.models_along_lambda, KeyboardInterrupt(), 2)
        )
        pairs = interrupted(model_of("grid", checkpoint=tmp_path / "grid"))
        patch.setattr(search_stages, "find_directions", breaking(search_stages.find_directions, KeyboardInterrupt()))
        early = interrupted(model_of("search", checkpoint=tmp_path / "early"))
    for stop in (one, search, pairs, early):
        assert type(stop) is KeyboardInterrupt  # for a subclass Python would exit with a different status
        assert len("".join(traceback.format_exception(stop)).splitlines()) < 20
        assert ("the estimator holds the best model so far; " in str(stop)) == (stop is not early)
        assert str(stop).endswith("the same call of fit resumes from the checkpoint")


def _grid(path=None, **more):
    return model_of("grid", checkpoint=path).set_params(n_components=[2, 3], cv=2, n_init=1, **more)


@pytest.mark.filterwarnings("ignore::hkrr.EdgeWarning")  # the best candidate of such a small grid is at its edge
@pytest.mark.parametrize("criterion", ["training", pytest.param("evidence", marks=pytest.mark.thorough)])
def test_an_interrupted_grid_keeps_the_best_pair_so_far(tmp_path, monkeypatch, criterion):
    """Test that an interrupted grid search keeps the best pair (number of directions, lambda) with a known mean error.

    Two and three directions are each fitted on two splits, and the last of these four calls is interrupted. The error
    for three directions is then known on one split only.
    """
    X, y = data()
    more = {"criterion": criterion} | ({} if criterion == "training" else {"reg_lambdas": "auto"})
    path, model = tmp_path / "fit.checkpoint", _grid(tmp_path / "fit.checkpoint", **more)
    expected = _grid(**more).fit(X, y)
    with monkeypatch.context() as patch:
        patch.setattr(
            _grid_search, "models_along_lambda", breaking(_grid_search.models_along_lambda, KeyboardInterrupt(), 4)
        )
        interrupted(model)
    table, full = model.cv_results_, expected.cv_results_
    scored = np.asarray(table["n_components"]) < 3  # candidates with three directions have no mean error
    assert_array_equal(np.isfinite(table["mean_error"]), scored)
    assert_allclose(table["mean_error"][scored], full["mean_error"][scored], rtol=1e-12)
    k = int(np.nanargmin(table["mean_error"]))
    assert (model.n_components_, model.best_score_) == (table["n_components"][k], table["mean_error"][k])
    if criterion == "training":
        assert model.reg_lambda_ == table["reg_lambda"][k]
    assert model.result_.reason == "interrupted"
    assert model.score(X, y) > 0.9
    hkrr.save(model, tmp_path / "model")
    assert_array_equal(hkrr.load(tmp_path / "model").predict(X), model.predict(X))
    assert_same(_grid(path, **more).fit(X, y), expected)


def test_a_grid_without_a_scored_pair_keeps_the_current_fit(tmp_path, monkeypatch):
    model, original = _grid(tmp_path / "fit.checkpoint"), HyperKernelRidge._fit_rows

    def fit_rows(self, *arguments):
        self.callbacks = [interrupt_at(5)]
        original(self, *arguments)

    monkeypatch.setattr(HyperKernelRidge, "_fit_rows", fit_rows)
    interrupted(model)
    assert (model.n_components_, model.n_iter_, model.result_.reason) == (2, 5, "interrupted")
    assert model.cv_results_ == {}
    assert np.all(np.isfinite(model.predict(data()[0])))


def test_an_interrupted_grid_without_a_checkpoint_is_unchanged(monkeypatch):
    model = model_of("grid")
    monkeypatch.setattr(
        _grid_search, "models_along_lambda", breaking(_grid_search.models_along_lambda, KeyboardInterrupt(), 2)
    )
    interrupted(model)
    assert [name for name in vars(model) if name.endswith("_")] == []


_FITS = """
import sys
from support.child_processes import TIMEOUT, child_process, read_line
from support.killed_fits import data, model_of

if __name__ == "__main__":
    model = model_of("grid", checkpoint=sys.argv[1], checkpoint_every=0.0)
    model.set_params(n_jobs=2, n_components=[1, 2, 3, 4], cv=20, n_init=10, verbose=1).fit(*data())
"""


@posix_only
@pytest.mark.thorough
def test_a_real_ctrl_c_while_processes_fit(tmp_path):
    """Test that after Ctrl-C no process is left, and Python ends with the usual exit status.

    The signal is sent to all processes, as a terminal does.
    """
    (tmp_path / "fits.py").write_text(_FITS)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path])}
    command = [sys.executable, str(tmp_path / "fits.py"), str(tmp_path / "fit.checkpoint")]
    with child_process(command, stderr=subprocess.PIPE, env=environment) as child:
        while not re.search(r" [1-9]\d*/80", read_line(child, child.stderr)):  # the progress bar: a fit has ended
            assert child.poll() is None
        os.killpg(child.pid, signal.SIGINT)
        message = child.communicate(timeout=TIMEOUT)[1].decode()
        assert child.returncode == -signal.SIGINT
        assert "KeyboardInterrupt: the estimator holds the best model so far" in message
        assert _alive_in_session(child.pid) == []


def _alive_in_session(session):
    """Return the running processes of a session, without zombies."""
    command = ["ps", "-o", "stat=,args=", "-s", str(session)]
    listed = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT).stdout
    return [line for line in listed.splitlines() if not line.startswith("Z")]
