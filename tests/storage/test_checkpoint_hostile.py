"""Mutated checkpoints are refused, or equivalent to the original.

The script benchmarks/fuzz_checkpoints.py tests many more mutations.
"""

from random import Random

import numpy as np
import pytest

from hkrr import CheckpointError
from hkrr._storage.checkpoint_format import as_bytes, packed, read
from support.mutated_checkpoints import (
    CHECKPOINT_MUTATIONS,
    FITS,
    FORGED,
    checkpoints,
    outcome,
    resumed,
    rows,
    values_of,
)

ORIGINALS = checkpoints()


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    path, found = tmp_path_factory.mktemp("originals") / "fit.checkpoint", {}
    for name, data in ORIGINALS.items():
        path.write_bytes(data)
        found[name] = values_of(resumed(name, path))
    return found


def test_originals_resume(tmp_path, expected):
    for name in FITS:
        assert outcome(name, tmp_path / "none", expected[name]) == (
            "another model" if name == "done" else "the same model"
        )
        (tmp_path / "none").unlink()


@pytest.mark.parametrize("way", CHECKPOINT_MUTATIONS)
def test_mutated_checkpoints(tmp_path, expected, way):
    random, path, found = Random(way), tmp_path / "fit.checkpoint", set()
    for k in range(4 if way in ("deep", "huge") else 40):
        name = list(FITS)[k % len(FITS)]
        path.write_bytes(CHECKPOINT_MUTATIONS[way](ORIGINALS[name], random))
        found.add(outcome(name, path, expected[name]))
    assert "not finite" not in found
    if way not in FORGED:
        assert found <= {"refused", "the same model"}


@pytest.mark.parametrize(("name", "part"), [("random", 0), ("random", 1), ("random", 3), ("search", 0), ("search", 1)])
def test_invalid_steps_are_refused(tmp_path, name, part):
    """Test that a checkpoint is refused if one member of a recorded tuple has the wrong type.

    The tuple is the result of a step of the fit, and `part` is the index of the member.
    """
    path = tmp_path / "fit.checkpoint"
    path.write_bytes(ORIGINALS[name])
    _, entries = read(path)
    length = {"random": 4, "search": 3}[name]
    (key,) = (
        key
        for key, one in entries.items()
        if key[0] == "step" and isinstance(one, tuple) and len(one) == length and isinstance(one[0], np.ndarray)
    )
    entries[key] = tuple("x" if k == part else one for k, one in enumerate(entries[key]))
    path.write_bytes(as_bytes({each: packed(value) for each, value in entries.items()}))
    with pytest.raises(CheckpointError, match=r"contains an invalid (start|final fit), .*; use another path"):
        resumed(name, path)


def test_an_integer_lambda_resumes(tmp_path):
    """Test that a checkpoint with an integer for lambda, which a fit can write, is accepted."""
    path = tmp_path / "fit.checkpoint"
    for _ in range(2):
        model = FITS["lbfgs"][0]().set_params(reg_lambda=1, checkpoint=path).fit(*rows())
    assert model.reg_lambda_ == 1
