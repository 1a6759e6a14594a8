"""The bytes of a file: tensors and a header, as safetensors, with a checksum over both.

safetensors begins with the length of a JSON table of the tensors (8 bytes), the table, then their bytes. The table has
room for texts of one's own, and ours is the header: JSON in one line, its keys sorted, without spaces. Its "tensors"
repeats the dtype and shape of each tensor, and adds the order of its memory ("C" or "F": the file is always in C order,
but products of matrices round differently in the other). Its "checksum" is the SHA-256 of the header without it,
followed by the bytes of the tensors in the order of their names.

Whoever wrote a file, reading it is safe: lengths are compared with the size of the file before anything is allocated,
the table is small and flat before it is parsed, and only numbers are made of the rest.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import stat
from collections.abc import Iterable
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from hkrr._arrays import Array
from hkrr._version import __version__
from hkrr.records.beginnings import MODEL, SEEN, begins_as, seems

FORMAT = 1

# Bytes of the table, and its objects and lists: parsed, one of nothing else would take thirty times its bytes, where an
# honest one is mostly the names of columns.
_MOST_TABLE, _MOST_BRACKETS = 2 << 20, 100_000
_DEEPEST = 16
_MOST_AXES, _LONGEST_AXIS = 8, 2**48
_DTYPES: dict[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "I8": np.dtype("i1"),
    "U64": np.dtype("<u8"),
    "U32": np.dtype("<u4"),
    "U16": np.dtype("<u2"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"?', re.DOTALL)


class Refusal(ValueError):
    """Why a file cannot be read, or a model not be saved; whoever knows the path adds it.

    Parameters
    ----------
    reason : str
    remedied : bool
        Whether the reason says what to do; else what is said of damaged files is added.
    foreign : bool
        Whether the file is none of this kind, so that nobody should be asked to delete it.
    """

    def __init__(self, reason: str, *, remedied: bool = False, foreign: bool = False) -> None:
        super().__init__(reason)
        self.remedied, self.foreign = remedied, foreign


class _Tensor(NamedTuple):
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    begin: int
    end: int


def pack(header: dict[str, Any], arrays: dict[str, Array], kind: str = MODEL) -> bytes:
    """Return the bytes of a file of these; what the header says of the arrays, and its checksum, are added."""
    from safetensors.numpy import save

    stored = {name: np.asarray(array, dtype=_dtype(name, array), order="C") for name, array in arrays.items()}
    tensors = {
        name: {"dtype": _NAMES[array.dtype], "shape": list(array.shape), "order": _order(arrays[name])}
        for name, array in stored.items()
    }
    header = {**header, "tensors": tensors}
    header["checksum"] = checksum(header, (stored[name].tobytes() for name in sorted(stored)))
    data = save(stored, metadata={kind: as_json(header)})
    length = int.from_bytes(data[:8], "little")
    if _brackets(as_json(header))[1] > _MOST_BRACKETS or 3 * len(tensors) > _MOST_BRACKETS - 3:
        raise Refusal(f"it has more than {_MOST_BRACKETS:,} parts: a parameter that is a long list may be an array")
    if length > _MOST_TABLE:
        raise Refusal(
            f"its header has {length:,} bytes, and a file has room for {_MOST_TABLE:,}: most of it are the names of "
            "the columns; shorten them, or del model.feature_names_in_"
        )
    return data


def unpack(path: str | os.PathLike[str], kind: str = MODEL) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return the header and the arrays of a file, or raise Refusal."""
    try:
        return _unpack(path, kind)
    except MemoryError:  # a file that is mostly a hole can say any size, and be right
        size = os.stat(path).st_size
        raise Refusal(
            f"its {size:,} bytes are more than there is memory for: load it on a larger machine", remedied=True
        ) from None


def _unpack(path: str | os.PathLike[str], kind: str) -> tuple[dict[str, Any], dict[str, Array]]:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    mode = os.stat(path).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):  # of a folder opening it says so; a pipe would wait
        raise Refusal("it is no file but a device or a pipe: copy it to a file first", remedied=True, foreign=True)
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        try:
            table = _read_table(file, size)
            header, tensors = _header_and_tensors(table, size - 8 - len(table), kind)
        except Refusal as refusal:
            file.seek(0)
            start = file.read(SEEN)
            if begins_as(start, kind):
                raise
            other = seems(start)
            reason = str(refusal) if other is None else f"it {other}"
            raise Refusal(reason, remedied=other is not None or refusal.remedied, foreign=True) from None
        file.seek(0)
        data = file.read(size)
    if len(data) != size or data[8 : 8 + len(table)] != table:
        raise Refusal("it changed while it was read: try again when nobody writes to it", remedied=True)
    body = memoryview(data)[8 + len(table) :]
    said = header.pop("checksum", None)
    if said != checksum(header, (body[tensors[name].begin : tensors[name].end] for name in sorted(tensors))):
        raise Refusal("its checksum is wrong: it was damaged, or changed after it was written")
    described = _described(header.pop("tensors", None), tensors)
    try:
        found = load(data)
    except SafetensorError as error:
        raise Refusal(f"it is no safetensors file ({error})") from None
    # Copies in memory of their own, in the order the model had them: rounding can depend on it.
    return header, {name: np.array(found[name], order=described[name]) for name in tensors}


def as_json(header: dict[str, Any]) -> str:
    """Return the header as text: one text for one header."""
    return json.dumps(header, sort_keys=True, separators=(",", ":"), allow_nan=False)


def checksum(header: dict[str, Any], tensors: Iterable[bytes | memoryview]) -> str:
    """Return the SHA-256 of a header, without its checksum, and of the bytes of the tensors."""
    digest = hashlib.sha256(as_json({key: value for key, value in header.items() if key != "checksum"}).encode())
    for data in tensors:
        digest.update(data)
    return f"sha256:{digest.hexdigest()}"


def _dtype(name: str, array: Array) -> np.dtype[Any]:
    dtype: np.dtype[Any] = array.dtype.newbyteorder("<")
    if dtype not in _NAMES:
        raise Refusal(f"{name} is an array of {array.dtype}, which a file has no place for: make it one of floats")
    return dtype


def _order(array: Array) -> str:
    """Return "F" where the strides are those of that order. (Of one row or column both flags are set.)"""
    in_f = tuple(array.itemsize * math.prod(array.shape[:axis]) for axis in range(array.ndim))
    in_c = tuple(array.itemsize * math.prod(array.shape[axis + 1 :]) for axis in range(array.ndim))
    return "F" if array.strides == in_f != in_c else "C"


def _read_table(file: BinaryIO, size: int) -> bytes:
    """Return safetensors' table of the tensors."""
    start = file.read(8)
    if len(start) < 8:
        raise Refusal(
            f"it has {size} bytes, too few for any that hkrr writes: it was cut off, or is another kind of file"
        )
    length = int.from_bytes(start, "little")
    if length > size - 8 or length > _MOST_TABLE:
        raise Refusal(
            f"its first bytes say that {length:,} bytes of header follow, and there are {size - 8:,} in all (a header "
            f"has at most {_MOST_TABLE:,}): it was cut off, or hkrr did not write it"
        )
    return file.read(length)


def _header_and_tensors(table: bytes, n_bytes: int, kind: str) -> tuple[dict[str, Any], dict[str, _Tensor]]:
    try:
        entries = parsed(table.decode())
    except UnicodeDecodeError:
        raise Refusal("its header is no text: it was damaged, or hkrr did not write it") from None
    metadata = entries.pop("__metadata__", None)
    text = metadata.get(kind) if isinstance(metadata, dict) and len(metadata) == 1 else None
    if not isinstance(text, str):
        reads = "hkrr.load reads what hkrr.save wrote" if kind == MODEL else "it holds no checkpoint"
        raise Refusal(f"it is a safetensors file of something else: {reads}", remedied=True)
    header = parsed(text)
    check_format(header)
    return header, _tensors(entries, n_bytes)


def check_format(header: dict[str, Any]) -> None:
    """Raise unless this version of the library knows the format."""
    version, library = header.get("format"), header.get("library")
    if type(version) is not int or version < 1 or not isinstance(library, str):
        raise Refusal("its header does not say which format it is in: hkrr did not write it")
    if version > FORMAT:
        raise Refusal(
            f"it was written by hkrr {library[:40]} in format {str(version)[:20]}; this is hkrr {__version__}, which "
            f"reads format {FORMAT}: install a newer hkrr",
            remedied=True,
        )


def parsed(text: str) -> dict[str, Any]:
    """Return a JSON object; nesting is looked at first, as parsers go as deep as the text."""
    deepest, n_brackets = _brackets(text)
    if deepest > _DEEPEST:
        raise Refusal("its header is nested deeper than any that hkrr writes")
    if n_brackets > _MOST_BRACKETS:
        raise Refusal("its header has more parts than any that hkrr writes")
    try:
        parsed = json.loads(text, object_pairs_hook=_distinct, parse_constant=_no_constant)
    except ValueError as error:  # not JSON, a name twice, NaN, a number of thousands of digits
        raise Refusal(f"its header is no JSON ({error}): it was damaged, or hkrr did not write it") from None
    if not isinstance(parsed, dict):
        raise Refusal("its header is no JSON object: it was damaged, or hkrr did not write it")
    return parsed


def _brackets(text: str) -> tuple[int, int]:
    """Return how deep the brackets of a JSON text go, and how many open, those within its strings aside."""
    outside = np.frombuffer(_STRING.sub("", text).encode("ascii", "replace"), dtype=np.uint8)
    steps = np.isin(outside, np.frombuffer(b"[{", dtype=np.uint8)).astype(np.int8)
    n_open = int(np.count_nonzero(steps))
    steps -= np.isin(outside, np.frombuffer(b"]}", dtype=np.uint8)).astype(np.int8)
    return int(np.cumsum(steps, dtype=np.int32).max(initial=0)), n_open


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name that stands twice")
    return found


def _no_constant(name: str) -> None:
    raise ValueError(f"the number {name}")


def _tensors(entries: dict[str, Any], n_bytes: int) -> dict[str, _Tensor]:
    """Return where each tensor is; together they are all the bytes there are, none of them twice."""
    tensors = {name: _tensor(entry) for name, entry in entries.items()}
    at = 0
    for _, _, begin, end in sorted(tensors.values(), key=lambda one: (one.begin, one.end)):
        if begin != at:
            raise Refusal("its tensors overlap, or leave gaps: it was damaged")
        at = end
    if at != n_bytes:
        raise Refusal(f"its tensors are {at:,} bytes by its header, and {n_bytes:,} follow: it was cut off, or damaged")
    return tensors


def _tensor(entry: Any) -> _Tensor:
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise Refusal("its table of tensors is not that of a safetensors file: it was damaged")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        raise Refusal(f"it holds numbers of a kind that no model has ({str(dtype)[:20]!r})")
    if not (_whole(shape) and len(shape) <= _MOST_AXES and _whole(offsets) and len(offsets) == 2):
        raise Refusal("its table of tensors is not that of a safetensors file: it was damaged")
    begin, end = offsets
    # Of an empty tensor the other axes take no bytes, and could still be too long for an array.
    too_long = math.prod(max(n, 1) for n in shape) >= _LONGEST_AXIS
    if too_long or end - begin != math.prod(shape) * _DTYPES[dtype].itemsize:
        raise Refusal("the shape of a tensor does not fit its bytes: it was damaged")
    return _Tensor(_DTYPES[dtype], tuple(shape), begin, end)


def _whole(numbers: Any) -> bool:
    return isinstance(numbers, list) and all(type(number) is int and 0 <= number < _LONGEST_AXIS for number in numbers)


def _described(said: Any, tensors: dict[str, _Tensor]) -> dict[str, Any]:
    """Return the order of memory of each tensor, where the header says the same of them as safetensors' table."""
    if not isinstance(said, dict) or set(said) != set(tensors):
        raise Refusal("its header speaks of other tensors than there are: it was damaged")
    for name, (dtype, shape, _, _) in tensors.items():
        orders = [{"dtype": _NAMES[dtype], "shape": list(shape), "order": order} for order in ("C", "F")]
        if said[name] not in orders:
            raise Refusal("its header speaks of other tensors than there are: it was damaged")
    return {name: entry["order"] for name, entry in said.items()}
