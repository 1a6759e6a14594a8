"""The file format of checkpoints: the entries of a journal in one safetensors file.

The file has three tensors of bytes. "texts" and "arrays" hold the entries one after another, as JSON and arrays
(`hkrr._storage.json_codec`). "index" is a JSON list with one item ``[kind, name, n_text, n_arrays]`` for each entry,
where n_text and n_arrays are the numbers of bytes of its text and of its arrays. The arrays share one tensor, because
separate tensors for thousands of arrays would not fit in the header of a file.

Reading a checkpoint is as safe as reading a model: no code is run, the checksum detects accidental damage, every byte
is used exactly once, and damaged files raise an error. Types and shapes are checked for each kind of entry. A forged
entry that passes these checks can still make a fit fail, or lead to a different model.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from hkrr._base.linear_algebra import Array
from hkrr._base.resume_journal import RunRecord
from hkrr._storage.file_signatures import CHECKPOINT
from hkrr._storage.json_codec import decode, encode
from hkrr._storage.safetensors_format import CHECKPOINT_FORMAT, Refusal, pack, parsed, unpack
from hkrr._version import __version__
from hkrr.rows.standardize import Moments
from hkrr.solvers import Result, State
from hkrr.solvers.driver import MESSAGES, empty_history

_DAMAGED = "it is damaged, or not a checkpoint"
# Type of the keys of entries. A key consists of a kind ("fit", "step" or "run") and a name.
_ENTRY = tuple[str, str]


class Packed(NamedTuple):
    """A value, stored as JSON text and the bytes of its arrays."""

    text: bytes
    arrays: bytes


def packed(value: Any) -> Packed:
    """Return a value as JSON text and the bytes of its arrays."""
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
    """Rebuild a value from its JSON text and the bytes of its arrays. This is the inverse of `packed`.

    Raise Refusal if the text or the bytes are invalid.
    """
    try:
        content = parsed(text.decode())
        arrays, at = {}, 0
        for name, entry in content["arrays"].items():
            arrays[name] = _array(data, at, *entry)
            at += arrays[name].nbytes
        value = decode(content["value"], arrays)
        if at != len(data) or arrays:  # `decode` removes the arrays that it uses
            raise Refusal(_DAMAGED)
        return value
    except Refusal:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise Refusal(f"{_DAMAGED} ({error})") from None


def _array(data: bytes, expected: int, dtype: str, shape: list[int], order: str, at: int) -> Array:
    """Return the array with the given dtype, shape and memory order that starts at byte `at` of the data.

    Raise Refusal if `at` is not `expected`, the end of the previous array. This ensures that no byte is used twice.
    """
    kind = np.dtype(dtype) if isinstance(dtype, str) else np.dtype(object)
    if kind.kind not in "fiub" or order not in ("C", "F") or not all(map(_whole, (*shape, at))) or at != expected:
        raise Refusal(_DAMAGED)
    found = np.frombuffer(data, dtype=kind, count=math.prod(shape), offset=at)
    return found.reshape(shape, order=order).copy(order=order)  # type: ignore[call-overload]  # "C" or "F", as checked


def _whole(number: Any) -> bool:
    return type(number) is int and number >= 0


def as_bytes(entries: dict[_ENTRY, Packed]) -> bytes:
    """Return the bytes of a checkpoint file. The keys of `entries` are the kind and the name of each entry."""
    index = [[*entry, len(value.text), len(value.arrays)] for entry, value in entries.items()]
    tensors = {
        "index": json.dumps(index, separators=(",", ":")).encode(),
        "texts": b"".join(value.text for value in entries.values()),
        "arrays": b"".join(value.arrays for value in entries.values()),
    }
    header = {"format": CHECKPOINT_FORMAT, "library": __version__}
    return pack(header, {name: np.frombuffer(data, dtype=np.uint8) for name, data in tensors.items()}, CHECKPOINT)


def read(path: str | os.PathLike[str]) -> tuple[str, dict[_ENTRY, Any]]:
    """Return the version of hkrr that wrote a checkpoint file, and the entries of the file.

    If the file is not a valid checkpoint, raise Refusal.
    """
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
            if not _IS_VALID[kind](found[kind, name]):
                raise Refusal(f"{_DAMAGED} (invalid {kind})")
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
    """Return whether a value can be the result of a step.

    Such a result is an array, a valid `Result`, valid `Moments`, or a non-empty tuple or list. In a tuple or list,
    every `Result` and all `Moments` must be valid; other items are not checked.
    """
    if isinstance(value, Result):
        if not _is_history(value.history):
            return False
        numbers = (value.objective, value.reg_lambda, *(one for column in value.history.values() for one in column))
        finite = _finite(value.B) and _finite(value.alpha, 2) and math.isfinite(value.objective)
        known = value.reason in MESSAGES and _whole(value.n_iter) and 0.0 < value.reg_lambda < math.inf
        return finite and known and all(isinstance(one, float | int) for one in numbers)
    if isinstance(value, Moments):
        sizes = {array.shape for array in (value.x_mean, value.x_scale, value.constant)}
        return len(sizes) == 1 and all(_finite(array, 1) for array in (value.x_mean, value.x_scale, value.y_mean))
    if isinstance(value, tuple | list):
        return len(value) > 0 and all(_is_step(one) for one in value if isinstance(one, Result | Moments))
    return isinstance(value, np.ndarray)


def _is_history(value: Any) -> bool:
    """Return whether a value is a dict of lists that all have the same length.

    Ranges are not accepted, because a range in a forged file could be so long that a loop over it would never end.
    """
    columns = list(value.values()) if isinstance(value, dict) else []
    return all(isinstance(column, list) for column in columns) and len({len(column) for column in columns}) == 1


def _finite(value: Any, ndim: int | None = None) -> bool:
    """Return whether a value is an array of finite floats, with `ndim` axes unless `ndim` is None."""
    floats = isinstance(value, np.ndarray) and value.dtype.kind == "f" and ndim in (None, value.ndim)
    return floats and bool(np.all(np.isfinite(value)))


def _is_run(value: Any) -> bool:
    """Return whether a value is a valid RunRecord.

    The lists of evaluations must have equal lengths. If ``memory`` is not None, ``history`` must include the
    iteration of ``state``.
    """
    if not isinstance(value, RunRecord) or not all(isinstance(column, list) for column in value.columns):
        return False
    optional = [number for number in (*value.grad_log_lambda, *value.reg_lambda) if number is not None]
    floats = all(isinstance(number, float) for number in (*value.seconds, *value.value, *optional))
    arrays = (*value.x, *value.grad, *value.alpha)
    if not floats or not all(isinstance(array, np.ndarray) and array.dtype.kind == "f" for array in arrays):
        return False
    if len({len(column) for column in value.columns}) != 1:
        return False
    if value.memory is None:
        return True
    state, history = value.state, value.history
    if not isinstance(value.memory, dict) or not isinstance(state, State) or not _whole(state.n_iter):
        return False
    columns = list(history.values()) if isinstance(history, dict) and set(history) == set(empty_history()) else [None]
    covered = all(isinstance(column, list) and len(column) > state.n_iter for column in columns)
    return covered and isinstance(value.start_norm, float)


_IS_VALID: dict[str, Callable[[Any], bool]] = {"fit": _is_fit, "step": _is_step, "run": _is_run}
