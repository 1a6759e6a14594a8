"""Test that NamedTuples and dataclasses are converted to JSON and back.

Unknown classes and fields are refused.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from hkrr._base.resume_journal import RunRecord
from hkrr._storage import json_codec as codec
from hkrr._storage.json_codec import decode, encode, storable
from hkrr._storage.safetensors_format import Refusal
from hkrr.solvers import State


class Pair(NamedTuple):
    """A NamedTuple with a default."""

    values: Any
    note: str | None = None


@dataclass(frozen=True)
class Point:
    """A dataclass with a default."""

    x: float
    inner: Any = None


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setattr(codec, "_OBJECTS", dict(codec._OBJECTS))
    for cls in (Pair, Point):
        assert storable(cls) is cls


def round_trip(value):
    arrays = {}
    content = encode(value, "v", arrays)
    found = decode(content, arrays)
    assert arrays == {}  # every array is used
    return found


@pytest.mark.usefixtures("registered")
def test_records_are_restored():
    found = round_trip({"a": Pair(np.arange(3.0)), "b": Point(0.5, inner=(Pair(1, "x"), Point(float("inf"))))})
    assert type(found["a"]) is Pair
    assert_array_equal(found["a"].values, np.arange(3.0), strict=True)
    assert found["b"] == Point(0.5, inner=(Pair(1, "x"), Point(float("inf"))))
    assert type(found["b"].inner[0]) is Pair


@pytest.mark.usefixtures("registered")
def test_missing_fields_have_their_defaults():
    for cls, first in (("Pair", "values"), ("Point", "x")):
        assert decode({"object": {"class": cls, first: 1.5}}, {})


@pytest.mark.parametrize("cls", ["Pair", "Point"])
@pytest.mark.parametrize("fields", [{}, {"x": 1.0, "values": 1.0}, {"unknown": 1.0}])
@pytest.mark.usefixtures("registered")
def test_unknown_and_missing_fields_are_refused(cls, fields):
    with pytest.raises(Refusal, match=f"invalid {cls}"):
        decode({"object": {"class": cls, **fields}}, {})


def test_unregistered_classes_are_refused():
    for value in (Pair(1), Point(1.0)):
        name = type(value).__name__
        with pytest.raises(Refusal, match=f"{name}, but files can contain only"):
            encode(value, "v", {})
        with pytest.raises(Refusal, match=f"unknown class '{name}'"):
            decode({"object": {"class": name, "x": 1.0}}, {})


def test_another_class_of_a_registered_name_is_refused():
    class State(NamedTuple):
        n_iter: int

    with pytest.raises(Refusal, match="State, but files can contain only"):
        encode(State(1), "v", {})


def test_the_record_of_a_run_is_restored():
    state = State(1, np.eye(1, 2), np.ones((3, 1)), 0.5, 0.1, 0.2, 1.5, 1e-3)
    memory, history = {"B": np.asfortranarray(np.eye(2))}, {"time": [0.1, 1.5]}
    record = RunRecord(
        [np.ones(2)], [0.1], [0.5], [np.eye(1, 2)], [np.ones((3, 1))], [None], [1e-3], memory, state, 1.0, history
    )
    found = round_trip(record)
    assert isinstance(found, RunRecord)
    assert isinstance(found.state, State)
    assert (found.seconds, found.value, found.grad_log_lambda) == ([0.1], [0.5], [None])
    assert (found.reg_lambda, found.start_norm, found.history) == ([1e-3], 1.0, history)
    assert_array_equal(found.state.alpha, state.alpha)
    assert_array_equal(found.grad[0], record.grad[0], strict=True)


@pytest.mark.parametrize(("n", "tensors"), [(64, 64), (65, 1)])
def test_a_long_list_of_arrays_of_one_shape_is_stored_as_one_tensor(n, tensors):
    value = [np.full((2, 3), float(i)) for i in range(n)]
    arrays = {}
    content = encode(value, "v", arrays)
    assert len(arrays) == tensors
    found = decode(content, arrays)
    assert arrays == {}
    assert len(found) == n
    for one, other in zip(value, found, strict=True):
        assert_array_equal(one, other, strict=True)
    mixed = [*value, np.zeros(2)]  # a different shape
    assert [each.shape for each in round_trip(mixed)] == [each.shape for each in mixed]


def test_a_long_record_has_a_short_header():
    # With one tensor for each of 12,000 evaluations, the header would be too long and would be refused.
    n = 12_000
    record = RunRecord(
        x=[np.ones(3)] * n, seconds=[0.5] * n, value=[1.0] * n, grad=[np.ones((1, 3))] * n, alpha=[np.ones((2, 1))] * n
    )
    record.grad_log_lambda, record.reg_lambda = [None] * n, [0.1] * n
    arrays = {}
    text = str(encode(record, "v", arrays))
    assert text.count("[") + text.count("{") < 100
    assert len(arrays) == 6
