"""Random mutations of model files, used by the tests and by benchmarks/fuzz_load.py."""

import copy
import json
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import safetensors.numpy

from hkrr._storage.safetensors_format import pack

JUNK: list[Any] = [
    None,
    True,
    -1,
    0,
    1,
    7,
    2**62,
    2**63,
    10**400,
    0.5,
    -1e308,
    "",
    "auto",
    "x" * 300,
    "\ud800",
    [],
    [[]],
    [1, 2],
    {},
    {"float": "nan"},
    {"float": "inf"},
    {"tuple": [1.0, 0.0]},
    {"dict": [["time", [0.0]]]},
    {"range": [0, 2**62, 1]},
    {"scalar": ["int8", 300]},
    {"scalar": ["float64", 1.5]},
    {"texts": ["a" * 1000] * 50},
    {"tensor": "map_"},
    {"tensor": "nowhere"},
    {"column": ["dual_coef_", "float"]},
    {"object": {"class": "Gaussian", "gamma": -1.0}},
    {"object": {"class": "Polynomial", "degree": 10**18}},
    {"object": {"class": "ProductMatern", "nu": 2.5, "gamma": 1.0}},
    {"object": {"class": "Moments"}},
    {"splitter": {"class": "KFold", "n_splits": 1}},
    {"model": {"class": "SIR", "parameters": {}, "attributes": {}}},
    {"__reduce__": ["os.system", "true"]},
]


def parts(data: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the header and the arrays of a file. The entries that `pack` adds to the header are removed."""
    length = int.from_bytes(data[:8], "little")
    header = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["hkrr"])
    del header["tensors"], header["checksum"]
    return header, {name: array.copy() for name, array in safetensors.numpy.load(data).items()}


def with_table(data: bytes, change: Callable[[dict[str, Any]], Any]) -> bytes:
    """Return the file with a changed table of tensors and the correct length of the table.

    The function `change` modifies the table in place, or returns the bytes of a new table.
    """
    length = int.from_bytes(data[:8], "little")
    table = json.loads(data[8 : 8 + length])
    answer = change(table)
    text = answer if isinstance(answer, bytes) else json.dumps(table).encode()
    return len(text).to_bytes(8, "little") + text + data[8 + length :]


def nodes(tree: Any) -> list[tuple[Any, Any]]:
    """Return the position of each value in a JSON tree: the list or dict that contains it, and the index or key."""
    keys = list(tree) if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else []
    return [place for key in keys for place in ((tree, key), *nodes(tree[key]))]


def mutate_tree(tree: Any, random: Random) -> None:
    """Remove, exchange, rename or replace some values of a JSON tree."""
    for _ in range(random.choice([1, 1, 1, 2, 5])):
        places = nodes(tree)
        if not places:
            return
        holder, key = random.choice(places)
        action = random.randrange(4)
        if action == 0:
            del holder[key]
        elif action == 1:
            other, name = random.choice(places)
            holder[key] = copy.deepcopy(other[name])
        elif action == 2 and isinstance(holder, dict):
            holder[random.choice(["", "new", "class", "tensor", "gamma", "callbacks"])] = holder.pop(key)
        else:
            holder[key] = copy.deepcopy(random.choice(JUNK))


def mutate_header(data: bytes, random: Random) -> bytes:
    """Change some values of the header, and correct the checksum."""
    header, arrays = parts(data)
    mutate_tree(header, random)
    return pack(header, arrays)


def mutate_array(data: bytes, random: Random) -> bytes:
    """Change the values, the shape or the dtype of a tensor, and correct the checksum."""
    header, arrays = parts(data)
    name = random.choice(sorted(arrays))
    array = arrays[name]
    shorter = array[..., :-1] if array.ndim else array
    flat = array.astype(float).ravel()
    if flat.size:
        flat[random.randrange(flat.size)] = random.choice([np.nan, np.inf, -np.inf, 1e308, -1e308, 0.0, 1e-308])
    with np.errstate(over="ignore", invalid="ignore"):
        converted = array.astype(random.choice(["f4", "f2", "i8", "u1", "?"]))
    arrays[name] = random.choice(
        [
            flat.reshape(array.shape),
            shorter,
            array[1:] if array.ndim else array,
            array[:0] if array.ndim else array,
            array.ravel(),
            array[None],
            array.T,
            np.concatenate([array, array]) if array.ndim else array,
            converted,
        ]
    )
    if random.random() < 0.2:
        other = random.choice(sorted(arrays))
        arrays[name], arrays[other] = arrays[other], arrays[name]
    return pack(header, arrays)


def mutate_table(data: bytes, random: Random) -> bytes:
    """Change a value in the table of tensors, and correct the length of the table."""

    def change(table: dict[str, Any]) -> None:
        holder, key = random.choice(nodes(table))
        holder[key] = copy.deepcopy(
            random.choice([*JUNK, "F32", "BF16", "F8_E4M3", [0, 8], [2**40, 2**40], [2**62, 2]])
        )

    return with_table(data, change)


_BYTES = [b"[", b"{", b'"', b"\\", b"\0", b"9", b"-", b"e9", b"\n", b"\x7f", b"\x80", b"\xff", b"\xff\xff\xff\xff\x0f"]


def mutate_bytes(data: bytes, random: Random) -> bytes:
    """Flip a bit of the file, or remove, repeat or overwrite some of its bytes, once or several times."""
    found = bytearray(data)
    for _ in range(random.choice([1, 1, 2, 8])):
        at = random.randrange(len(found)) if random.random() < 0.5 else random.randrange(min(600, len(found)))
        action = random.randrange(5)
        if action == 0:
            found[at] ^= 1 << random.randrange(8)
        elif action == 1:
            del found[at : at + random.randrange(1, 64)]
        elif action == 2:
            found[at:at] = found[at : at + random.randrange(1, 64)]
        elif action == 3:
            n = random.choice([4, 8])
            found[at : at + n] = random.randbytes(n)
        else:
            found[at : at + 1] = random.choice(_BYTES)
        if not found:
            break
    return bytes(found)


def mutate_length(data: bytes, random: Random) -> bytes:
    """Replace the length of the table by a wrong number."""
    length = random.choice([0, 1, 8, len(data) - 8, len(data), 2**20, 2**31, 2**63, 2**64 - 1, random.getrandbits(64)])
    return length.to_bytes(8, "little") + data[8:]


def truncate(data: bytes, random: Random) -> bytes:
    """Truncate the file at a random position."""
    return data[: random.randrange(len(data))]


def deep(data: bytes, random: Random) -> bytes:
    """Replace the table or the header by deeply nested JSON."""
    depth = random.choice([17, 100, 1_000, 100_000])
    opening, closing = random.choice([("[", "]"), ('{"a":', "}"), ("[[", "")])
    text = opening * depth + random.choice(["1", ""]) + closing * depth
    if random.random() < 0.5:
        return with_table(data, lambda table: text.encode())
    return with_table(data, lambda table: table["__metadata__"].update(hkrr=text))


def huge(data: bytes, random: Random) -> bytes:
    """Replace the table or the header by a long JSON text that takes much more memory after parsing."""
    piece = random.choice(["[],", "{},", '"ab",', "1.5,", '{"a":1},', " "])
    text = "[" + piece * (random.choice([10_000, 2_000_000, 2_200_000]) // len(piece)) + "1]"
    if random.random() < 0.5:
        return with_table(data, lambda table: text.encode())
    return with_table(data, lambda table: table["__metadata__"].update(hkrr=text))


MUTATIONS: dict[str, Callable[[bytes, Random], bytes]] = {
    "header": mutate_header,
    "array": mutate_array,
    "table": mutate_table,
    "bytes": mutate_bytes,
    "length": mutate_length,
    "truncated": truncate,
    "deep": deep,
    "huge": huge,
}
