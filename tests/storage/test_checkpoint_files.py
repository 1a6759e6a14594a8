"""The file of a checkpoint: what a kill leaves beside it, and files that no fit has written."""

import json
import os
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from hkrr import CheckpointError, __version__, disk
from hkrr.checkpoint_file import FORMAT, as_bytes, packed, read, unpacked
from hkrr.disk import remove_unfinished, replace_file
from hkrr.records.format import Refusal, pack
from hkrr.solvers import Result
from test_checkpoint import BreakAt, Broken, ridge
from victims import data


class Killed(BaseException):
    """What stands for a kill: nothing is tidied up after it."""


@pytest.fixture
def killed_write(monkeypatch):
    """Write to a path as a process that is killed before the rename does, and return the file that it leaves."""

    def write(path):
        def kill(*paths):
            raise Killed

        before = set(path.parent.iterdir())
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", kill)
            patch.setattr(disk.Path, "unlink", lambda *a, **k: None)
            with pytest.raises(Killed):
                replace_file(path, b"new")
        (left,) = set(path.parent.iterdir()) - before
        return left

    return write


@pytest.mark.parametrize("name", ["fit", "x" * 60 + ".checkpoint", "x" * 255, "\u00e9" * 120, "a[0-9]*.ck"])
def test_what_a_kill_leaves_is_removed(tmp_path, killed_write, name):
    path = tmp_path / name
    replace_file(path, b"old")
    left = killed_write(path)
    remove_unfinished(path)
    assert not left.exists()
    assert [each.name for each in tmp_path.iterdir()] == [name]
    assert path.read_bytes() == b"old"


def test_what_another_file_s_writer_is_at_is_left_alone(tmp_path, killed_write):
    one, other = tmp_path / f"{'x' * 120}.one", tmp_path / f"{'x' * 120}.other"
    left = killed_write(other)
    remove_unfinished(one)
    assert left.exists()
    remove_unfinished(other)
    assert not left.exists()


# ----------------------------------------------------------------------------------------------------- forged files


def test_arrays_that_share_bytes_or_leave_some_out_are_refused():
    value = {"a": np.arange(6.0).reshape(2, 3), "b": np.arange(3), "none": np.empty((0, 2))}
    text, arrays = packed(value)
    for name, array in unpacked(text, arrays).items():
        assert_array_equal(array, value[name])
    content = json.loads(text)
    same, gap, unused = (json.loads(text) for _ in range(3))
    same["arrays"]["v.b"] = [*content["arrays"]["v.b"][:3], 0]
    gap["arrays"]["v.a"] = ["<f8", [2, 2], "C", 0]
    unused["value"] = None
    for forged, bytes_of in ((same, arrays), (gap, arrays), (unused, arrays), (content, arrays + bytes(8))):
        with pytest.raises(Refusal, match="damaged"):
            unpacked(json.dumps(forged).encode(), bytes_of)


@pytest.mark.parametrize(
    "lengths",
    [
        [(1, 0), (1, 0), (-1, 0), (1, 0)],  # one text twice
        [(1, 0)],  # fewer than there are
        [(1.0, 0), (1, 0)],
        [(1, 0), (1, 8)],  # more than there are
    ],
)
def test_lengths_that_are_not_those_of_the_tensors_are_refused(tmp_path, lengths):
    text = packed([0]).text  # `lengths` count in these
    index = [["step", str(k), n * len(text), more] for k, (n, more) in enumerate(lengths)]
    tensors = {"index": json.dumps(index).encode(), "texts": 2 * text, "arrays": b""}
    header = {"format": FORMAT, "library": __version__}
    arrays = {name: np.frombuffer(part, dtype=np.uint8) for name, part in tensors.items()}
    (tmp_path / "forged").write_bytes(pack(header, arrays, "hkrr checkpoint"))
    with pytest.raises(Refusal, match="damaged"):
        read(tmp_path / "forged")


def test_values_that_make_no_sense_are_refused(tmp_path):
    path = tmp_path / "fit.checkpoint"
    with pytest.raises(Broken):
        ridge(path, callbacks=[BreakAt(8)]).fit(*data())
    _, entries = read(path)
    step, run = (next(key for key in entries if key[0] == kind) for kind in ("step", "run"))
    columns = entries[run]["evaluations"]
    endless = dict.fromkeys(("time", "objective", "grad_norm", "step"), range(2**62))
    result = Result(np.eye(1), np.eye(1), 0.5, 1e-3, 1, "converged", "", endless)
    memory = {"history": endless, "length": 2**62, "memory": {}, "state": {}, "start_norm": 1.0}
    forged = [
        (step, (result, 1.0)),
        (step, replace(result, history={"time": [1.0]}, B=np.array([[np.nan]]))),
        (run, {"evaluations": {}, "memory": memory}),
        (step, 3.0),
        (step, ()),
        (run, 3.0),
        (run, {"evaluations": {**columns, "value": columns["value"][1:]}, "memory": None}),
        (run, {"evaluations": {**columns, "grad": "text"}, "memory": None}),
        (("fit", ""), {**entries["fit", ""], "seed": -1}),
        (("other", ""), 3.0),
    ]
    for key, value in forged:
        path.write_bytes(as_bytes({each: packed(old) for each, old in {**entries, key: value}.items()}))
        with pytest.raises(CheckpointError, match=r"cannot be used: it was damaged.*give checkpoint another path"):
            ridge(path).fit(*data())
