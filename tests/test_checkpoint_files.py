"""The file of a checkpoint: what a kill leaves beside it, and files that no fit has written."""

import os

import pytest

from hkrr import disk
from hkrr.disk import remove_unfinished, replace_file


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
