"""The bytes of a checkpoint: what a journal holds, as one safetensors file.

The file has three tensors of bytes: "texts" and "arrays", the values one after another as `hkrr.records` makes JSON and
arrays of them, and "index", a JSON list of ``[kind, name, bytes of text, bytes of arrays]``. (Tensors with names of
their own would be thousands, and the table of a file is small.) Reading is as safe as that of a model: nothing is run,
the checksum finds accidents, and what is damaged is refused.
"""

from __future__ import annotations

import json
import math
import os
from typing import Any, NamedTuple

import numpy as np

from hkrr._arrays import Array
from hkrr._version import __version__
from hkrr.records.format import Refusal, pack, parsed, unpack
from hkrr.records.values import decode, encode

FORMAT = 1
_KIND = "hkrr checkpoint"
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
        arrays = {name: _array(data, *entry) for name, entry in content["arrays"].items()}
        return decode(content["value"], arrays)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise Refusal(f"{_DAMAGED} ({error})") from None


def _array(data: bytes, dtype: str, shape: list[int], order: str, at: int) -> Array:
    kind = np.dtype(dtype)
    if kind.kind not in "fiub" or order not in ("C", "F") or not all(type(n) is int and n >= 0 for n in (*shape, at)):
        raise Refusal(_DAMAGED)
    found = np.frombuffer(data, dtype=kind, count=math.prod(shape), offset=at)
    return found.reshape(shape, order=order).copy(order=order)  # type: ignore[call-overload]  # "C" or "F", as checked


def as_bytes(entries: dict[_ENTRY, Packed]) -> bytes:
    """Return the bytes of a file of these values, by their kind and name."""
    index = [[*entry, len(value.text), len(value.arrays)] for entry, value in entries.items()]
    tensors = {
        "index": json.dumps(index, separators=(",", ":")).encode(),
        "texts": b"".join(value.text for value in entries.values()),
        "arrays": b"".join(value.arrays for value in entries.values()),
    }
    header = {"format": FORMAT, "library": __version__}
    return pack(header, {name: np.frombuffer(data, dtype=np.uint8) for name, data in tensors.items()}, _KIND)


def read(path: str | os.PathLike[str]) -> tuple[str, dict[_ENTRY, Any]]:
    """Return the version of the library that wrote a file, and its values; or raise Refusal."""
    header, tensors = unpack(path, _KIND)
    if set(tensors) != {"index", "texts", "arrays"} or any(array.dtype != np.uint8 for array in tensors.values()):
        raise Refusal(_DAMAGED)
    index, texts, arrays = (tensors[name].tobytes() for name in ("index", "texts", "arrays"))
    found: dict[_ENTRY, Any] = {}
    text_at = array_at = 0
    try:
        for kind, name, text_length, array_length in parsed(f'{{"index":{index.decode()}}}')["index"]:
            text, data = texts[text_at : text_at + text_length], arrays[array_at : array_at + array_length]
            text_at, array_at = text_at + text_length, array_at + array_length
            found[str(kind), str(name)] = unpacked(text, data)
    except (KeyError, TypeError, UnicodeDecodeError) as error:
        raise Refusal(f"{_DAMAGED} ({error})") from None
    return str(header["library"]), found
