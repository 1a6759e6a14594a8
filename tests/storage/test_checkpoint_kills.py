"""Fits that are killed at random moments and started again end with the model of an unbroken one, bit for bit."""

import random

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from hkrr.checkpoint_file import read
from victims import CASES, Victims

KILLS = 3  # of each case: 21 in all; benchmarks/kills.py makes more


@pytest.fixture(scope="module")
def victims():
    process = Victims()
    yield process
    process.close()


def noted(path):
    """How many steps and evaluations a checkpoint holds, or iterations of a solver that keeps its own memory."""
    _, entries = read(path)
    found = sum(kind == "step" for kind, _ in entries)
    for (kind, _), value in entries.items():
        if kind == "run":
            found += len(value["evaluations"].get("value", ()))
            found += 0 if value["memory"] is None else value["memory"]["length"]
    return found


@pytest.mark.parametrize("case", CASES)
def test_killed_at_random_and_started_again(victims, tmp_path, case):
    unbroken, again, path = tmp_path / "unbroken.npz", tmp_path / "again.npz", tmp_path / "fit.checkpoint"
    # With a checkpoint of its own: that a fit is the same without one is tested elsewhere. It also says how long it is.
    code, seconds = victims.fit(case, tmp_path / "other.checkpoint", unbroken)
    assert code == 0
    expected = np.load(unbroken)
    moments, kills, resumable = random.SystemRandom(), 0, 0
    while kills < KILLS:
        after = moments.uniform(0.0, 0.7 * seconds)
        code, _ = victims.fit(case, path, again, kill_after=after)
        assert code in (-9, 0)  # killed, or done before that
        if code == 0:
            path.unlink()  # and from the beginning
        else:
            kills += 1
        resumable = noted(path) if path.exists() else 0
    code, _ = victims.fit(case, path, again)
    assert code == 0
    found = np.load(again)
    for name in expected.files:
        if name != "count":
            assert_array_equal(found[name], expected[name], err_msg=name)
    if resumable > 1:
        assert found["count"] < expected["count"]
    assert [each.name for each in tmp_path.iterdir() if each.suffix == ".tmp"] == []
    # Done: the same call has nothing left to compute of the solver.
    code, _ = victims.fit(case, path, again)
    finished = np.load(again)
    assert code == 0
    assert_array_equal(finished["predicted"], expected["predicted"])
    assert finished["count"] <= 0.3 * expected["count"]
