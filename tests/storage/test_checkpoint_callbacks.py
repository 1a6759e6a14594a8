"""Tests of checkpoints in special situations.

A callback fits models, a fit resumes with a different block size, or the disk is full at the end of a fit.
"""

import errno

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import hkrr
from hkrr import HyperKernelRidge
from hkrr._base.progress_bar import NoBar
from hkrr._storage.atomic_write import replace_file
from hkrr._storage.checkpoint_format import read
from hkrr.objective import Objective
from hkrr.rows import standardize
from hkrr.solvers import Monitor
from support.killed_fits import data


def ridge(**more):
    return HyperKernelRidge(1, **{"n_centers": 30, "max_iter": 20, "init": np.eye(1, 4), "random_state": 0, **more})


def test_fits_in_a_callback_are_not_recorded(tmp_path):
    """Test that a checkpoint does not record the fits of a callback.

    As in a permutation test, the callback fits models with the same rows, with the original and with permuted targets.
    """
    X, y = data()
    others = y, y[::-1].copy()
    scores = []

    def fit_others(state):
        if state.n_iter == 1:
            scores.append([ridge(n_centers=31).fit(X, other).score(X, other) for other in others])

    path = tmp_path / "fit.checkpoint"
    ridge(callbacks=[fit_others]).fit(X, y)
    ridge(callbacks=[fit_others], checkpoint=path).fit(X, y)
    ridge(checkpoint=tmp_path / "alone").fit(X, y)
    assert scores[0] == scores[1]
    assert len(read(path)[1]) == len(read(tmp_path / "alone")[1])


def test_a_run_stopped_by_a_callback_resumes_without_it(tmp_path):
    X, y = data()
    path = tmp_path / "fit.checkpoint"
    ended = ridge(callbacks=[lambda state: state.n_iter == 3], checkpoint=path).fit(X, y)
    assert (ended.n_iter_, ended.result_.reason) == (3, "callback")
    assert_array_equal(ridge(checkpoint=path).fit(X, y).components_, ridge().fit(X, y).components_)


def test_other_block_sizes_resume_even_if_the_moments_differ_in_the_last_bit(tmp_path, monkeypatch):
    """Test that a fit resumes from its recorded evaluations although its moments differ from the recorded moments.

    The block size differs, so the means of the columns differ in the last bit. Moments are normally rounded, which
    prevents such differences for most data. This test switches the rounding off.
    """
    monkeypatch.setattr(standardize, "_rounded", lambda values, scale: values)
    X, y = data(m=400)
    X += 0.1 * np.pi
    computed = []
    reduced = Objective.reduced
    monkeypatch.setattr(Objective, "reduced", lambda self, B: computed.append(1) or reduced(self, B))

    class Broken(Exception):
        pass

    def stop(state):
        if state.n_iter == 8:
            raise Broken

    path, moments = tmp_path / "fit.checkpoint", []
    for size in (400, 7):  # if the moments were the same, nothing would be tested
        moments.append(ridge(max_iter=0, block_size=size).fit(X, y).x_offset_)
    assert np.any(moments[0] != moments[1])
    with pytest.raises(Broken):
        ridge(block_size=400, checkpoint=path, checkpoint_every=0, callbacks=[stop]).fit(X, y)
    before = len(computed)
    ridge(block_size=7, checkpoint=path).fit(X, y)
    between = len(computed)
    ridge(block_size=7).fit(X, y)
    # The recorded evaluations of the eight iterations were not repeated.
    assert between - before <= len(computed) - between - 8


@pytest.mark.parametrize("interrupted", [False, True])
def test_a_disk_that_is_full_at_the_end_does_not_lose_the_model(tmp_path, monkeypatch, interrupted):
    X, y = data()
    n_writes = []

    def full_after_the_first(path, content):
        n_writes.append(1)
        if len(n_writes) > 1:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        replace_file(path, content)

    def stop(state):
        if interrupted and state.n_iter == 5:
            raise KeyboardInterrupt

    monkeypatch.setattr("hkrr._storage.checkpoint.replace_file", full_after_the_first)
    model = ridge(checkpoint=tmp_path / "fit.checkpoint", checkpoint_every=3600, callbacks=[stop])
    if interrupted:
        with pytest.raises(KeyboardInterrupt):
            model.fit(X, y)
        assert model.result_.reason == "interrupted"
    else:
        with pytest.warns(hkrr.HKRRWarning, match=r"The fit is finished.*No space left"):
            model.fit(X, y)
        assert_array_equal(model.components_, ridge().fit(X, y).components_)
    assert read(tmp_path / "fit.checkpoint")


def test_replayed_times_never_decrease(monkeypatch):
    """Test that the times in the history do not decrease if a replay takes longer than the original run.

    The original run took 0.5 s between the two evaluations, and the replay takes 5 s.
    """
    now = [100.0]
    monkeypatch.setattr("hkrr.solvers.driver.time.perf_counter", lambda: now[0])
    monitor = Monitor(1.0, 1e-3, 10, 0.0, None, (), NoBar(), None)
    for seconds, later in ((1.0, 5.0), (1.5, 0.0)):
        monitor.skip_to(seconds)
        now[0] += later
        monitor(np.ones((1, 2)), np.ones((2, 1)), 1.0, 1.0, 0.0)
    assert monitor.history["time"] == [6.0, 6.0]
