"""The bytes of a checkpoint: what a journal holds, as one safetensors file.

The file has three tensors of bytes: "texts" and "arrays", the values one after another as `hkrr.records` makes JSON and
arrays of them, and "index", a JSON list of ``[kind, name, bytes of text, bytes of arrays]``. (Tensors with names of
their own would be thousands, and the table of a file is small.) Reading is as safe as that of a model: nothing is run,
the checksum finds accidents, every byte is used once, and what is damaged is refused. Values are looked at as far as
their kind says what they are; a forged step of the right kind with wrong contents can still end a fit with an error, or
with another model.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from hkrr._arrays import Array
from hkrr._version import __version__
from hkrr.records.beginnings import CHECKPOINT
from hkrr.records.format import Refusal, pack, parsed, unpack
from hkrr.records.values import decode, encode
from hkrr.scaling import Moments
from hkrr.solvers import Result
from hkrr.solvers.base import MESSAGES

FORMAT = 1
_DAMAGED = "it was damaged, or is no checkpoint"
_ENTRY = tuple[str, str]


class Packed(NamedTuple):
    """A value as JSON, and the bytes of its arrays."""

    text: bytes
    arrays: bytes


def packed(value: Any) -> Packed:
    """Return a value as text and bytes."""
    arrays: dict[str, Array] = {}
    content = encode(value, "v", arrays)
    table, at = {}, 0
    parts = []
    for name, array in arrays.items():
        order = "F" if array.ndim > 1 and array.flags.f_contiguous and not array.flags.c_contiguous else "C"
        parts.append(array.tobytes(order=order))
        table[name] = [array.dtype.str, list(array.shape), order, at]
        at += len(parts[-1])
    text = json.dumps({"value": content, "arrays": table}, separators=(",", ":"), allow_nan=False)
    return Packed(text.encode(), b"".join(parts))


def unpacked(text: bytes, data: bytes) -> Any:
    """Return the value, or raise Refusal."""
    try:
        content = parsed(text.decode())
        arrays, at = {}, 0
        for name, entry in content["arrays"].items():
            arrays[name] = _array(data, at, *entry)
            at += arrays[name].nbytes
        value = decode(content["value"], arrays)
        if at != len(data) or arrays:  # `decode` takes out those that it uses
            raise Refusal(_DAMAGED)
        return value
    except Refusal:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise Refusal(f"{_DAMAGED} ({error})") from None


def _array(data: bytes, expected: int, dtype: str, shape: list[int], order: str, at: int) -> Array:
    """Return the array at the place where the one before it ends: no byte is used twice."""
    kind = np.dtype(dtype) if isinstance(dtype, str) else np.dtype(object)
    if kind.kind not in "fiub" or order not in ("C", "F") or not all(map(_whole, (*shape, at))) or at != expected:
        raise Refusal(_DAMAGED)
    found = np.frombuffer(data, dtype=kind, count=math.prod(shape), offset=at)
    return found.reshape(shape, order=order).copy(order=order)  # type: ignore[call-overload]  # "C" or "F", as checked


def _whole(number: Any) -> bool:
    return type(number) is int and number >= 0


def as_bytes(entries: dict[_ENTRY, Packed]) -> bytes:
    """Return the bytes of a file of these values, by their kind and name."""
    index = [[*entry, len(value.text), len(value.arrays)] for entry, value in entries.items()]
    tensors = {
        "index": json.dumps(index, separators=(",", ":")).encode(),
        "texts": b"".join(value.text for value in entries.values()),
        "arrays": b"".join(value.arrays for value in entries.values()),
    }
    header = {"format": FORMAT, "library": __version__}
    return pack(header, {name: np.frombuffer(data, dtype=np.uint8) for name, data in tensors.items()}, CHECKPOINT)


def read(path: str | os.PathLike[str]) -> tuple[str, dict[_ENTRY, Any]]:
    """Return the version of the library that wrote a file, and its values; or raise Refusal."""
    header, tensors = unpack(path, CHECKPOINT)
    if set(tensors) != {"index", "texts", "arrays"} or any(array.dtype != np.uint8 for array in tensors.values()):
        raise Refusal(_DAMAGED)
    index, texts, arrays = (tensors[name].tobytes() for name in ("index", "texts", "arrays"))
    found: dict[_ENTRY, Any] = {}
    text_at = array_at = 0
    try:
        for kind, name, text_length, array_length in parsed(f'{{"index":{index.decode()}}}')["index"]:
            if not (isinstance(name, str) and _whole(text_length) and _whole(array_length)) or (kind, name) in found:
                raise Refusal(_DAMAGED)
            text, data = texts[text_at : text_at + text_length], arrays[array_at : array_at + array_length]
            text_at, array_at = text_at + text_length, array_at + array_length
            found[kind, name] = unpacked(text, data)
            if not _SENSIBLE[kind](found[kind, name]):
                raise Refusal(f"{_DAMAGED} (a {kind} that makes no sense)")
    except Refusal:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Refusal(f"{_DAMAGED} ({error})") from None
    if (text_at, array_at) != (len(texts), len(arrays)):
        raise Refusal(_DAMAGED)
    return str(header["library"]), found


def _is_fit(value: Any) -> bool:
    return isinstance(value, dict) and _whole(value["seed"]) and value["seed"] < 2**32 and value["finished"] in (0, 1)


def _is_step(value: Any) -> bool:
    """Whether it is what steps have for results: an array, a record, or some of these and numbers together."""
    if isinstance(value, Result):
        if not _is_history(value.history):
            return False
        numbers = (value.objective, value.reg_lambda, *(one for column in value.history.values() for one in column))
        sound = _finite(value.B) and _finite(value.alpha, 2) and math.isfinite(value.objective)
        known = value.reason in MESSAGES and _whole(value.n_iter) and 0.0 < value.reg_lambda < math.inf
        return sound and known and all(isinstance(one, float | int) for one in numbers)
    if isinstance(value, Moments):
        sizes = {array.shape for array in (value.x_mean, value.x_scale, value.constant)}
        return len(sizes) == 1 and all(_finite(array, 1) for array in (value.x_mean, value.x_scale, value.y_mean))
    if isinstance(value, tuple | list):
        return len(value) > 0 and all(_is_step(one) for one in value if isinstance(one, Result | Moments))
    return isinstance(value, np.ndarray)


def _is_history(value: Any) -> bool:
    """Whether it is lists of one length: a range is as long as it likes, and would be gone through to its end."""
    columns = list(value.values()) if isinstance(value, dict) else []
    return all(isinstance(column, list) for column in columns) and len({len(column) for column in columns}) == 1


def _finite(value: Any, ndim: int | None = None) -> bool:
    """Whether it is an array of finite floats, with so many axes."""
    floats = isinstance(value, np.ndarray) and value.dtype.kind == "f" and ndim in (None, value.ndim)
    return floats and bool(np.all(np.isfinite(value)))


def _is_run(value: Any) -> bool:
    """Whether it is evaluations, as columns of one length, and what a solver remembers, its history as long as said."""
    columns, memory = value["evaluations"], value["memory"]
    if columns:
        needed = [columns[name] for name in ("x", "seconds", "value", "grad", "alpha")]
        needed += [] if columns["slope"] is None else [columns["slope"]]
        if not all(isinstance(each, np.ndarray) and each.dtype.kind == "f" and each.ndim > 0 for each in needed):
            return False
        one_number = (columns["seconds"], columns["value"], *needed[5:])
        if len({len(each) for each in needed}) != 1 or any(each.ndim != 1 for each in one_number):
            return False
    if memory is None:
        return True
    history = memory["history"]
    known = isinstance(memory["memory"], dict) and isinstance(memory["state"], dict) and _is_history(history)
    return known and len(history["time"]) == memory["length"] != 0 and isinstance(memory["start_norm"], float)


_SENSIBLE: dict[str, Callable[[Any], bool]] = {"fit": _is_fit, "step": _is_step, "run": _is_run}
