"""Ctrl-C: what arrives is short and is Python's own, and what a grid has come to is kept."""

import os
import re
import signal
import subprocess
import sys
import traceback
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import hkrr
from hkrr import HyperKernelRidge, grid, tuning
from test_checkpoint import assert_same, ridge
from test_checkpoint_searches import _interrupt_at, breaking
from victims import data, model_of


def arrives(model):
    """Fit, and return what Ctrl-C lets out of it."""
    with pytest.raises(KeyboardInterrupt) as found:
        model.fit(*data())
    return found.value


def test_what_arrives_is_short_and_says_what_is_there(tmp_path, monkeypatch):
    one = arrives(ridge(tmp_path / "one", callbacks=[_interrupt_at(8)]))
    with monkeypatch.context() as patch:
        patch.setattr(tuning, "polish", breaking(tuning.polish, KeyboardInterrupt()))
        search = arrives(model_of("search", checkpoint=tmp_path / "search"))
        patch.setattr(grid, "models_along_lambda", breaking(grid.models_along_lambda, KeyboardInterrupt(), 2))
        pairs = arrives(model_of("grid", checkpoint=tmp_path / "grid"))
        patch.setattr(tuning, "directions", breaking(tuning.directions, KeyboardInterrupt()))
        early = arrives(model_of("search", checkpoint=tmp_path / "early"))
    for stop in (one, search, pairs, early):
        assert type(stop) is KeyboardInterrupt  # of another class Python ends with another status
        assert len("".join(traceback.format_exception(stop)).splitlines()) < 20
        assert ("the estimator has the best model so far, and" in str(stop)) == (stop is not early)
        assert str(stop).endswith("the same call goes on from its checkpoint")


def _grid(path=None, **more):
    return model_of("grid", checkpoint=path).set_params(n_components=[2, 3], cv=2, n_init=1, **more)


@pytest.mark.filterwarnings("ignore::hkrr.EdgeWarning")  # of a grid as small as this one
@pytest.mark.parametrize("criterion", ["training", "evidence"])
def test_an_interrupted_grid_keeps_the_best_pair_so_far(tmp_path, monkeypatch, criterion):
    """Two numbers of directions and two splits: the fourth is the last split of the last number."""
    X, y = data()
    more = {"criterion": criterion} | ({} if criterion == "training" else {"reg_lambdas": "auto"})
    path, model = tmp_path / "fit.checkpoint", _grid(tmp_path / "fit.checkpoint", **more)
    expected = _grid(**more).fit(X, y)
    with monkeypatch.context() as patch:
        patch.setattr(grid, "models_along_lambda", breaking(grid.models_along_lambda, KeyboardInterrupt(), 4))
        arrives(model)
    table, full = model.cv_results_, expected.cv_results_
    scored = np.asarray(table["n_components"]) < 3  # three have an error on one split only: no match
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


def test_a_grid_that_has_scored_nothing_keeps_the_fit_that_it_was_at(tmp_path, monkeypatch):
    model, original = _grid(tmp_path / "fit.checkpoint"), HyperKernelRidge._learn

    def learn(self, *arguments):
        self.callbacks = [_interrupt_at(5)]
        original(self, *arguments)

    monkeypatch.setattr(HyperKernelRidge, "_learn", learn)
    arrives(model)
    assert (model.n_components_, model.n_iter_, model.result_.reason) == (2, 5, "interrupted")
    assert model.cv_results_ == {}
    assert np.all(np.isfinite(model.predict(data()[0])))


def test_a_grid_without_a_checkpoint_is_as_it_was(monkeypatch):
    model = model_of("grid")
    monkeypatch.setattr(grid, "models_along_lambda", breaking(grid.models_along_lambda, KeyboardInterrupt(), 2))
    arrives(model)
    assert [name for name in vars(model) if name.endswith("_")] == []


_FITS = """
import sys
from victims import data, model_of

if __name__ == "__main__":
    model = model_of("grid", checkpoint=sys.argv[1], checkpoint_every=0.0)
    model.set_params(n_jobs=2, n_components=[1, 2, 3, 4], cv=20, n_init=10, verbose=1).fit(*data())
"""


@pytest.mark.thorough
def test_a_real_ctrl_c_while_processes_fit(tmp_path):
    """Sent to all of them, as a terminal does; none of them is left, and Python ends as Ctrl-C ends it."""
    (tmp_path / "fits.py").write_text(_FITS)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    command = [sys.executable, str(tmp_path / "fits.py"), str(tmp_path / "fit.checkpoint")]
    with subprocess.Popen(command, stderr=-1, env=environment, start_new_session=True, text=True) as child:
        while not re.search(r" [1-9]\d*/80", child.stderr.readline()):  # of the progress bar
            assert child.poll() is None
        os.killpg(child.pid, signal.SIGINT)
        told = child.communicate(timeout=300)[1]
    assert child.returncode == -signal.SIGINT
    assert "KeyboardInterrupt: the estimator has the best model so far" in told
    assert _alive_in_session(child.pid) == []


def _alive_in_session(session):
    """The processes of a session that still run; one that has ended may wait for its parent to ask."""
    listed = subprocess.run(["ps", "-o", "stat=,args=", "-s", str(session)], capture_output=True, text=True).stdout
    return [line for line in listed.splitlines() if not line.startswith("Z")]
