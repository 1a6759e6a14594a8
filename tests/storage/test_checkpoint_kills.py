"""Test that fits that are killed at random times and resumed end with bitwise the model of an uninterrupted fit."""

import random

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from hkrr._storage.checkpoint_format import read
from support.killed_fits import CASES, FitServer
from support.platforms import posix_only

pytestmark = posix_only  # the fits run in forks of a server process
# Number of times that the fit of each case is killed. The script benchmarks/kills.py kills fits more often.
KILLS = 3
# Cases that are tested only by `make thorough`.
THOROUGH = ("varpro", "grid", "evidence", "agd", "kernels")


@pytest.fixture(scope="module")
def server():
    process = FitServer()
    yield process
    process.close()


def n_recorded(path):
    """Return the number of steps, evaluations and iterates that a checkpoint records.

    VarPro and AGD record iterates, because they resume from their stored state. L-BFGS replays its evaluations.
    """
    _, entries = read(path)
    found = sum(kind == "step" for kind, _ in entries)
    for (kind, _), value in entries.items():
        if kind == "run":
            found += len(value.value)
            found += 0 if value.state is None else value.state.n_iter + 1
    return found


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.thorough) if case in THOROUGH else case for case in CASES]
)
def test_killed_at_random_and_resumed(server, tmp_path, case):
    whole, resumed, path = tmp_path / "whole.npz", tmp_path / "resumed.npz", tmp_path / "fit.checkpoint"
    # The reference fit has a checkpoint too, so that its duration is comparable. Other tests compare resumed fits with
    # fits without a checkpoint.
    code, seconds = server.fit(case, tmp_path / "other.checkpoint", whole)
    assert code == 0
    expected = np.load(whole)
    times, kills, resumable = random.SystemRandom(), 0, 0
    while kills < KILLS:
        after = times.uniform(0.0, 0.7 * seconds)
        code, _ = server.fit(case, path, resumed, kill_after=after)
        assert code in (-9, 0)  # killed, or finished before it could be killed
        if code == 0:
            path.unlink()  # start over
        else:
            kills += 1
        resumable = n_recorded(path) if path.exists() else 0
    code, _ = server.fit(case, path, resumed)
    assert code == 0
    found = np.load(resumed)
    for name in expected.files:
        if name != "count":
            assert_array_equal(found[name], expected[name], err_msg=name)
    if resumable > 1:
        assert found["count"] < expected["count"]
    assert [each.name for each in tmp_path.iterdir() if each.suffix == ".tmp"] == []
    # The fit is finished: the same call evaluates almost nothing.
    code, _ = server.fit(case, path, resumed)
    finished = np.load(resumed)
    assert code == 0
    assert_array_equal(finished["predicted"], expected["predicted"])
    assert finished["count"] <= 0.3 * expected["count"]
