"""Test that temporary files of killed processes are removed, and that forged checkpoint files are refused."""

import json
import os
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from hkrr import CheckpointError, __version__
from hkrr._storage import atomic_write
from hkrr._storage.atomic_write import remove_unfinished, replace_file
from hkrr._storage.checkpoint_format import as_bytes, packed, read, unpacked
from hkrr._storage.safetensors_format import CHECKPOINT_FORMAT, Refusal, pack
from hkrr.solvers import Result, State
from support.killed_fits import data
from support.stopped_fits import BreakAt, Broken, ridge


class Killed(BaseException):
    """Raised to simulate the death of a process, which then cannot remove its temporary files."""


@pytest.fixture
def killed_write(monkeypatch):
    """Return a function that writes to a path as if the process were killed before it renames the temporary file.

    The function returns the path of the temporary file that is left.
    """

    def write(path):
        def kill(*paths):
            raise Killed

        before = set(path.parent.iterdir())
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", kill)
            patch.setattr(atomic_write.Path, "unlink", lambda *a, **k: None)
            with pytest.raises(Killed):
                replace_file(path, b"new")
        (left,) = set(path.parent.iterdir()) - before
        return left

    return write


@pytest.mark.parametrize("name", ["fit", "x" * 60 + ".checkpoint", "x" * 255, "\u00e9" * 120, "a[0-9]*.ck"])
def test_temporary_files_of_killed_processes_are_removed(tmp_path, killed_write, name):
    path = tmp_path / name
    replace_file(path, b"old")
    left = killed_write(path)
    remove_unfinished(path)
    assert not left.exists()
    assert [each.name for each in tmp_path.iterdir()] == [name]
    assert path.read_bytes() == b"old"


def test_temporary_files_of_other_checkpoints_are_not_removed(tmp_path, killed_write):
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
        [(1, 0), (1, 0), (-1, 0), (1, 0)],  # one text is used twice
        [(1, 0)],  # one text is not used
        [(1.0, 0), (1, 0)],
        [(1, 0), (1, 8)],  # more bytes of arrays than the file has
    ],
)
def test_wrong_lengths_are_refused(tmp_path, lengths):
    text = packed([0]).text  # in `lengths`, the length of a text is given as a multiple of this length
    index = [["step", str(k), n * len(text), more] for k, (n, more) in enumerate(lengths)]
    tensors = {"index": json.dumps(index).encode(), "texts": 2 * text, "arrays": b""}
    header = {"format": CHECKPOINT_FORMAT, "library": __version__}
    arrays = {name: np.frombuffer(part, dtype=np.uint8) for name, part in tensors.items()}
    (tmp_path / "forged").write_bytes(pack(header, arrays, "hkrr checkpoint"))
    with pytest.raises(Refusal, match="damaged"):
        read(tmp_path / "forged")


def test_invalid_values_are_refused(tmp_path):
    path = tmp_path / "fit.checkpoint"
    with pytest.raises(Broken):
        ridge(path, callbacks=[BreakAt(8)]).fit(*data())
    _, entries = read(path)
    step, run = (next(key for key in entries if key[0] == kind) for kind in ("step", "run"))
    record = entries[run]
    endless = dict.fromkeys(("time", "objective", "grad_norm", "step"), range(2**62))
    result = Result(np.eye(1), np.eye(1), 0.5, 1e-3, 1, "converged", "", endless)
    state = State(2**62 - 1, np.eye(1), np.eye(1), 0.5, 0.1, 0.1, 1.0, 1e-3)
    forged = [
        (step, (result, 1.0)),
        (step, replace(result, history={"time": [1.0]}, B=np.array([[np.nan]]))),
        (run, replace(record, memory={}, state=state, start_norm=1.0, history=endless)),
        (run, replace(record, memory={}, state={}, start_norm=1.0)),
        (step, 3.0),
        (step, ()),
        (run, 3.0),
        (run, replace(record, value=record.value[1:])),
        (run, replace(record, grad="text")),
        (run, replace(record, alpha=["text", *record.alpha[1:]])),
        (run, replace(record, seconds=["text", *record.seconds[1:]])),
        (("fit", ""), {**entries["fit", ""], "seed": -1}),
        (("other", ""), 3.0),
    ]
    for key, value in forged:
        path.write_bytes(as_bytes({each: packed(old) for each, old in {**entries, key: value}.items()}))
        with pytest.raises(CheckpointError, match=r"cannot be used: it is damaged.*use another path for checkpoint"):
            ridge(path).fit(*data())
