"""The file format of models and checkpoints: a safetensors file with hkrr metadata and a checksum.

A safetensors file consists of the length of the header (8 bytes), the header, and the bytes of the tensors. The header
is a JSON object. It lists the tensors and can also hold metadata. hkrr stores one metadata entry, called the hkrr
metadata. This is a JSON object, written as a string in one line, with sorted keys and without spaces.

The entry "tensors" of the hkrr metadata repeats the dtype and shape of each tensor and adds its memory order, "C" or
"F". The file itself stores all tensors in C order. The original memory order is needed because matrix products of
arrays in C and in Fortran order round differently. The entry "checksum" is a SHA-256 hash. It is computed from the hkrr
metadata without this entry, followed by the bytes of the tensors in the order of their names.

Reading a file from an untrusted source is safe. Lengths are compared with the size of the file before memory is
allocated, the size and depth of the header are checked before it is parsed, and the tensors are read as numbers only.
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

from hkrr._base.linear_algebra import Array
from hkrr._storage.file_signatures import CHECKPOINT, MODEL, SIGNATURE_LENGTH, describe, has_signature
from hkrr._version import __version__

# Format numbers of model files and of checkpoints. All older formats of model files can be read. A checkpoint can be
# read only in the current format.
FORMAT, CHECKPOINT_FORMAT = 1, 2

# Maximum size of the header in bytes, and maximum number of its objects and lists. The second limit is needed because a
# header of empty lists takes thirty times its size in memory after parsing. In a large valid header, most bytes are
# names of columns.
_MAX_TABLE, _MAX_BRACKETS = 2 << 20, 100_000
# Maximum depth of nested objects and lists in the header.
_MAX_DEPTH = 20
# Maximum number of axes of a tensor, and upper bound on its axis lengths, byte offsets and number of entries.
_MAX_AXES, _MAX_AXIS = 8, 2**48
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
    """Raised if a file cannot be read, or a model cannot be saved. The caller adds the path of the file to the message.

    The reason is a clause such as "it is damaged", in which "it" is the file or the model. `remedied` says whether the
    reason includes advice. If it does not, the caller adds advice for damaged files. `foreign` says whether the file
    seems to belong to another program, or to be an hkrr file of another kind, such as a model instead of a checkpoint.
    Users must not be advised to delete such a file.
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
    """Return the bytes of a file of the given kind (MODEL or CHECKPOINT). The dict `header` is the hkrr metadata.

    The dtypes, shapes and memory orders of the arrays and the checksum are added to the metadata.
    """
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
    if _brackets(as_json(header))[1] > _MAX_BRACKETS or 3 * len(tensors) > _MAX_BRACKETS - 3:
        raise Refusal(f"it has more than {_MAX_BRACKETS:,} lists and dicts; convert long lists in parameters to arrays")
    if length > _MAX_TABLE:
        raise Refusal(
            f"its header has {length:,} bytes, more than the maximum of {_MAX_TABLE:,}. Most of these bytes are "
            "names of columns; shorten the names, or delete model.feature_names_in_"
        )
    return data


def unpack(path: str | os.PathLike[str], kind: str = MODEL) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return the hkrr metadata and the arrays of a file, or raise Refusal if the file is not valid."""
    try:
        return _unpack(path, kind)
    except MemoryError:  # a sparse file can be larger than the memory
        size = os.stat(path).st_size
        raise Refusal(
            f"its {size:,} bytes do not fit into memory; load it on a machine with more memory", remedied=True
        ) from None


def _unpack(path: str | os.PathLike[str], kind: str) -> tuple[dict[str, Any], dict[str, Array]]:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    mode = os.stat(path).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):  # open reports folders; reading a pipe would block
        raise Refusal("it is a device or a pipe; copy it to a file first", remedied=True, foreign=True)
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        try:
            table = _read_table(file, size)
            header, tensors = _header_and_tensors(table, size - 8 - len(table), kind)
        except Refusal as refusal:
            file.seek(0)
            start = file.read(SIGNATURE_LENGTH)
            if has_signature(start, kind):
                raise
            other = describe(start)
            reason = str(refusal) if other is None else f"it {other}"
            raise Refusal(reason, remedied=other is not None or refusal.remedied, foreign=True) from None
        file.seek(0)
        data = file.read(size)
    if len(data) != size or data[8 : 8 + len(table)] != table:
        raise Refusal("it changed while it was read; try again when no other process writes to it", remedied=True)
    body = memoryview(data)[8 + len(table) :]
    expected = header.pop("checksum", None)
    if expected != checksum(header, (body[tensors[name].begin : tensors[name].end] for name in sorted(tensors))):
        raise Refusal("its checksum is wrong, so it is damaged or was changed after it was written")
    orders = _memory_orders(header.pop("tensors", None), tensors)
    try:
        found = load(data)
    except SafetensorError as error:
        raise Refusal(f"it is not a valid safetensors file ({error})") from None
    # Copy the arrays in the memory order they had in the model, because rounding can depend on the memory order.
    return header, {name: np.array(found[name], order=orders[name]) for name in tensors}


def as_json(header: dict[str, Any]) -> str:
    """Return the hkrr metadata as JSON text. The keys are sorted, so equal metadata gives the same text."""
    return json.dumps(header, sort_keys=True, separators=(",", ":"), allow_nan=False)


def checksum(header: dict[str, Any], tensors: Iterable[bytes | memoryview]) -> str:
    """Return the SHA-256 hash of the hkrr metadata, without its entry "checksum", and the bytes of the tensors."""
    digest = hashlib.sha256(as_json({key: value for key, value in header.items() if key != "checksum"}).encode())
    for data in tensors:
        digest.update(data)
    return f"sha256:{digest.hexdigest()}"


def _dtype(name: str, array: Array) -> np.dtype[Any]:
    dtype: np.dtype[Any] = array.dtype.newbyteorder("<")
    if dtype not in _NAMES:
        raise Refusal(f"{name} is an array of {array.dtype}, which cannot be stored; convert it to floats")
    return dtype


def _order(array: Array) -> str:
    """Return "F" if the array has the strides of Fortran order, else "C".

    NumPy's flags cannot be used: for a matrix with a single row or column, the flags of both orders are set.
    """
    in_f = tuple(array.itemsize * math.prod(array.shape[:axis]) for axis in range(array.ndim))
    in_c = tuple(array.itemsize * math.prod(array.shape[axis + 1 :]) for axis in range(array.ndim))
    return "F" if array.strides == in_f != in_c else "C"


def _read_table(file: BinaryIO, size: int) -> bytes:
    """Return the header of a safetensors file, or raise Refusal if its length is not valid."""
    start = file.read(8)
    if len(start) < 8:
        raise Refusal(f"it has only {size} bytes, so it is truncated or not an hkrr file")
    length = int.from_bytes(start, "little")
    if length > size - 8 or length > _MAX_TABLE:
        raise Refusal(
            f"its first 8 bytes specify a header of {length:,} bytes, but {size - 8:,} bytes follow, and a header has "
            f"at most {_MAX_TABLE:,} bytes, so it is truncated or not an hkrr file"
        )
    return file.read(length)


def _header_and_tensors(table: bytes, n_bytes: int, kind: str) -> tuple[dict[str, Any], dict[str, _Tensor]]:
    try:
        entries = parsed(table.decode())
    except UnicodeDecodeError:
        raise Refusal("its header is not valid UTF-8, so it is damaged or not an hkrr file") from None
    metadata = entries.pop("__metadata__", None)
    text = metadata.get(kind) if isinstance(metadata, dict) and len(metadata) == 1 else None
    if not isinstance(text, str):
        reads = "hkrr.load reads only files written by hkrr.save" if kind == MODEL else "it is not a checkpoint"
        raise Refusal(f"it is a safetensors file written by another program; {reads}", remedied=True)
    header = parsed(text)
    check_format(header, kind)
    return header, _tensors(entries, n_bytes)


def check_format(header: dict[str, Any], kind: str) -> None:
    """Raise Refusal if this version of hkrr cannot read files of this kind in the format given in the hkrr metadata."""
    version, library = header.get("format"), header.get("library")
    if type(version) is not int or version < 1 or not isinstance(library, str):
        raise Refusal("its metadata has no format version, so it is not an hkrr file")
    if kind == CHECKPOINT and version != CHECKPOINT_FORMAT:
        raise Refusal(
            f"it was written by another version of hkrr, in format {str(version)[:20]}, but this version reads format "
            f"{CHECKPOINT_FORMAT} only"
        )
    if kind == MODEL and version > FORMAT:
        raise Refusal(
            f"it was written by hkrr {library[:40]} in format {str(version)[:20]}, but hkrr {__version__} reads format "
            f"{FORMAT} only; install a newer hkrr",
            remedied=True,
        )


def parsed(text: str) -> dict[str, Any]:
    """Return the JSON object that a text contains, or raise Refusal if the text is not a JSON object.

    The depth of the JSON is checked first, because the JSON parser is recursive.
    """
    deepest, n_brackets = _brackets(text)
    if deepest > _MAX_DEPTH:
        raise Refusal("its header is nested more deeply than any header that hkrr writes")
    if n_brackets > _MAX_BRACKETS:
        raise Refusal("its header has more lists and objects than any header that hkrr writes")
    try:
        parsed = json.loads(text, object_pairs_hook=_distinct, parse_constant=_no_constant)
    except ValueError as error:  # not JSON, a duplicate name, NaN, or a number with thousands of digits
        raise Refusal(f"its header is not valid JSON ({error}), so it is damaged or not an hkrr file") from None
    if not isinstance(parsed, dict):
        raise Refusal("its header is not a JSON object, so it is damaged or not an hkrr file")
    return parsed


def _brackets(text: str) -> tuple[int, int]:
    """Return the nesting depth of a JSON text and the number of its lists and objects.

    Brackets inside strings are not counted.
    """
    outside = np.frombuffer(_STRING.sub("", text).encode("ascii", "replace"), dtype=np.uint8)
    steps = np.isin(outside, np.frombuffer(b"[{", dtype=np.uint8)).astype(np.int8)
    n_open = int(np.count_nonzero(steps))
    steps -= np.isin(outside, np.frombuffer(b"]}", dtype=np.uint8)).astype(np.int8)
    return int(np.cumsum(steps, dtype=np.int32).max(initial=0)), n_open


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("duplicate name")
    return found


def _no_constant(name: str) -> None:
    raise ValueError(f"the number {name}")


def _tensors(entries: dict[str, Any], n_bytes: int) -> dict[str, _Tensor]:
    """Return the dtype, shape and position of each tensor, given the entries of the header.

    Raise Refusal unless the tensors cover each of the `n_bytes` bytes after the header exactly once.
    """
    tensors = {name: _tensor(entry) for name, entry in entries.items()}
    at = 0
    for _, _, begin, end in sorted(tensors.values(), key=lambda one: (one.begin, one.end)):
        if begin != at:
            raise Refusal("its tensors overlap or leave gaps, so it is damaged")
        at = end
    if at != n_bytes:
        raise Refusal(
            f"its tensors have {at:,} bytes, but {n_bytes:,} bytes follow the header, so it is truncated or damaged"
        )
    return tensors


def _tensor(entry: Any) -> _Tensor:
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise Refusal("its list of tensors is not valid, so it is damaged")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        raise Refusal(f"it contains numbers of an unsupported type ({str(dtype)[:20]!r})")
    if not (_whole(shape) and len(shape) <= _MAX_AXES and _whole(offsets) and len(offsets) == 2):
        raise Refusal("its list of tensors is not valid, so it is damaged")
    begin, end = offsets
    # An empty tensor, for example of shape (0, 2**40, 2**40), has no bytes, but can still be too long for a NumPy
    # array.
    too_long = math.prod(max(n, 1) for n in shape) >= _MAX_AXIS
    if too_long or end - begin != math.prod(shape) * _DTYPES[dtype].itemsize:
        raise Refusal("a tensor does not have the number of bytes that its shape and type require, so it is damaged")
    return _Tensor(_DTYPES[dtype], tuple(shape), begin, end)


def _whole(numbers: Any) -> bool:
    return isinstance(numbers, list) and all(type(number) is int and 0 <= number < _MAX_AXIS for number in numbers)


def _memory_orders(described: Any, tensors: dict[str, _Tensor]) -> dict[str, Any]:
    """Return the memory order of each tensor, or raise Refusal if the hkrr metadata contradicts the header."""
    if not isinstance(described, dict) or set(described) != set(tensors):
        raise Refusal("the tensors in its metadata differ from the tensors in the file, so it is damaged")
    for name, (dtype, shape, _, _) in tensors.items():
        orders = [{"dtype": _NAMES[dtype], "shape": list(shape), "order": order} for order in ("C", "F")]
        if described[name] not in orders:
            raise Refusal("the tensors in its metadata differ from the tensors in the file, so it is damaged")
    return {name: entry["order"] for name, entry in described.items()}
