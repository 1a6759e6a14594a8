"""Functions that create CSV, Parquet and .npy files with random or deliberate errors."""

import io
import warnings
from collections.abc import Callable
from decimal import Decimal
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hkrr.rows.file_readers import open_source
from support.mutated_model_files import mutate_bytes

# Column names. They have equal lengths and occur nowhere else in a file, so that replacing one by another in the bytes
# of a file changes nothing else.
NAMES = ["aa", "bb", "cc", "yy"]
KINDS = ("csv", "parquet", "npy")
CELLS = [
    "",
    '"',
    '""',
    '"1',
    '1"2',
    "\0",
    "\r",
    "\n",
    ",",
    ",,,,",
    "1e999",
    "-1e308",
    "1e-400",
    "9" * 400,
    "0x1p3",
    "nan",
    "NULL",
    "inf",
    "true",
    "False",
    "1_000",
    " 1",
    "1,5",
    "1;5",
    "é",
    "\N{ARABIC-INDIC DIGIT ONE}",
    "\N{CAT FACE}",
    "\ufeff",
    "x" * 3000,
    "[" * 500,
    "2020-01-01",
    "1 or 2",
]
PANDAS_METADATA = [
    b"",
    b"{",
    b"\xff\xfe",
    b"[]",
    b"1",
    b"null",
    b'{"index_columns": null}',
    b'{"index_columns": 3}',
    b'{"index_columns": [["aa"], {}, null]}',
    b'{"index_columns": ["aa", "bb", "cc", "yy"]}',
    b"[" * 50_000,
]


@cache
def originals(kind: str) -> list[bytes]:
    """Return the bytes of valid files of the given kind. The mutations start from these files."""
    rng = np.random.default_rng(0)
    numbers = {name: rng.standard_normal(40) for name in NAMES}
    mixed = {**numbers, "bb": rng.integers(0, 9, 40), "cc": rng.random(40) < 0.5}
    if kind == "csv":
        plain, truths = (_as_csv(table) for table in (numbers, mixed))
        quoted = '"' + plain.strip().replace(",", '","').replace("\n", '"\n"') + '"\n'
        windows = truths.replace("\n", "\r\n")
        return [text.encode(code) for text, code in ((plain, "utf-8"), (quoted, "utf-8"), (windows, "utf-8-sig"))]
    if kind == "npy":
        table = np.column_stack(list(numbers.values()))
        return [_as_npy(array) for array in (table, np.asfortranarray(table), (9 * table).astype(">i2"), table > 0)]
    thin = pa.table({name: pa.array(column, pa.float32()) for name, column in numbers.items()})
    decimals = pa.array([Decimal(k) / 8 for k in range(40)], pa.decimal128(12, 3))
    nulls = pa.array([None if k == 3 else k % 2 == 0 for k in range(40)])
    tables = [
        pa.table(numbers),
        pa.table(mixed),
        thin,
        pa.table({**mixed, "bb": decimals}),
        pa.table({**mixed, "cc": nulls}),
    ]
    return [
        as_parquet(tables[0], compression="none", use_dictionary=False),
        as_parquet(tables[0], compression="snappy", row_group_size=15),
        as_parquet(tables[1], compression="gzip", data_page_version="2.0"),
        as_parquet(tables[1], compression="zstd", write_page_checksum=True),
        as_parquet(tables[2], compression="none", use_dictionary=False, column_encoding="BYTE_STREAM_SPLIT"),
        as_parquet(tables[3], compression="none", write_page_index=True),
        as_parquet(tables[4], compression="none", store_schema=False),
    ]


def _as_csv(table: dict[str, Any]) -> str:
    lines = [",".join(table), *(",".join(str(value) for value in row) for row in zip(*table.values(), strict=True))]
    return "\n".join(lines) + "\n"


def _as_npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def as_parquet(table: pa.Table, **options: Any) -> bytes:
    """Return the bytes of a Parquet file."""
    file = io.BytesIO()
    pq.write_table(table, file, **options)
    return file.getvalue()


def truncate(data: bytes, random: Random) -> bytes:
    """Remove the end or the beginning of the file."""
    at = random.randrange(len(data))
    return data[:at] if random.random() < 0.8 else data[at:]


def other_content(data: bytes, random: Random) -> bytes:
    """Return the bytes of a file with unrelated content, whatever ``data`` holds."""
    kinds = [
        b"",
        b"\n",
        b"\n\n\n",
        b"PAR1",
        b"PAR1PAR1",
        b"\x93NUMPY",
        b"PK\x03\x04",
        b"\x1f\x8b",
        random.randbytes(99),
    ]
    return random.choice([*kinds, random.choice(originals(random.choice(KINDS)))])


def mutate_cells(data: bytes, random: Random) -> bytes:
    """Replace cells of a CSV file, including its header, or write rows that are too long or too short."""
    lines = [line.split(",") for line in data.decode("utf-8").split("\n")]
    for _ in range(random.choice([1, 1, 3])):
        line = random.choice([lines[0], random.choice(lines)])
        action = random.randrange(4)
        if action == 0 or not line:
            line.insert(random.randrange(len(line) + 1), random.choice(CELLS))
        elif action == 1:
            del line[random.randrange(len(line)) :]
        else:
            line[random.randrange(len(line))] = random.choice([*CELLS, *NAMES])
    return "\n".join(",".join(line) for line in lines).encode("utf-8")


def encode_otherwise(data: bytes, random: Random) -> bytes:
    """Write the text of a CSV file in an encoding other than UTF-8."""
    text = data.decode("utf-8-sig").replace("aa", random.choice(["aa", "äa", "\N{CAT FACE}"]))
    return text.encode(random.choice(["utf-16", "utf-16-le", "utf-32", "latin-1", "cp037"]), "replace")


def mutate_footer(data: bytes, random: Random) -> bytes:
    """Change the footer of a Parquet file or its length."""
    length = int.from_bytes(data[-8:-4], "little")
    if random.random() < 0.2:
        lie = random.choice([0, 1, length - 1, length + 1, len(data), 2**31 - 1, 2**31, 2**32 - 1])
        return data[:-8] + lie.to_bytes(4, "little") + data[-4:]
    footer = mutate_bytes(data[-8 - length : -8], random)
    return data[: -8 - length] + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def mutate_pages(data: bytes, random: Random) -> bytes:
    """Overwrite bytes in the pages of a Parquet file and keep the footer."""
    end = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    found = bytearray(data)
    for _ in range(random.choice([1, 2, 8])):
        at = random.randrange(4, end)
        n = random.choice([1, 1, 4])
        found[at : at + n] = random.randbytes(n)
    return bytes(found)


def other_table(data: bytes, random: Random) -> bytes:
    """Return a valid Parquet file with unusual content, whatever ``data`` holds.

    The file can have columns that are not numeric, no columns, no rows, empty or repeated names, or unusual metadata.
    """
    n = random.choice([0, 1, 5])
    number = pa.array([1.5] * n, pa.float64())
    odd = [
        pa.array(["1"] * n, pa.string()),
        pa.array([[1.0]] * n, pa.list_(pa.float64())),
        pa.array([{"aa": 1.0}] * n, pa.struct([("aa", pa.float64())])),
        pa.array([None] * n, pa.null()),
        pa.array([None] * n, pa.float64()),
        pa.array(["1"] * n, pa.string()).dictionary_encode(),
        pa.array([1] * n, pa.timestamp("ns")),
        pa.array([1] * n, pa.duration("s")),
        pa.array([Decimal(1)] * n, pa.decimal256(60, 3)),
        pa.array([2**64 - 1] * n, pa.uint64()),
        pa.array([np.float16(1)] * n, pa.float16()),
        pa.array([None] * n, pa.bool_()),
        pa.array([np.inf] * n, pa.float32()),
    ]
    names = random.choice([NAMES, ["aa", "aa", "cc", "yy"], ["", "bb", "cc", "yy"], ["aa.bb", "bb", "\0", "yy"]])
    columns = [random.choice([number, *odd]) for _ in names]
    n_columns = random.choice([0, 1, 4, 4, 4, 4])
    table = pa.table(columns[:n_columns], names=names[:n_columns])
    if random.random() < 0.4:
        table = table.replace_schema_metadata({b"pandas": random.choice(PANDAS_METADATA)})
    return as_parquet(table)


def mutate_npy_header(data: bytes, random: Random) -> bytes:
    """Change the header dictionary of a .npy file."""
    length = int.from_bytes(data[8:10], "little")
    header = data[10 : 10 + length].decode("latin-1")
    lies = [
        "(0, 4)",
        "(4, 0)",
        "(-1, 4)",
        "(40,)",
        "(2**40, 4)",
        "(1099511627776, 4)",
        "(True, 4)",
        "40",
        "()",
        "(" * 90,
    ]
    header = header.replace("(40, 4)", random.choice(["(40, 4)", *lies]))
    kinds = ["<f8", "|O", "<f2", "<f16", "<c16", "|S8", "<U2", "<M8[s]", "[('a', '<f8')]", "nonsense"]
    header = header.replace("<f8", random.choice(kinds)).encode("latin-1")
    if random.random() < 0.3:
        header = mutate_bytes(header, random)
    return data[:8] + len(header).to_bytes(2, "little") + header + data[10 + length :]


_ANY: dict[str, Callable[[bytes, Random], bytes]] = {
    "bytes": mutate_bytes,
    "truncated": truncate,
    "other content": other_content,
}
MUTATIONS: dict[str, dict[str, Callable[[bytes, Random], bytes]]] = {
    "csv": {**_ANY, "cells": mutate_cells, "encoding": encode_otherwise},
    "parquet": {**_ANY, "footer": mutate_footer, "pages": mutate_pages, "table": other_table},
    "npy": {**_ANY, "header": mutate_npy_header},
}


def mutated(kind: str, random: Random) -> tuple[str, bytes]:
    """Return the name of a mutation, and a file mutated in this way."""
    way = random.choice(list(MUTATIONS[kind]))
    return way, MUTATIONS[kind][way](random.choice(originals(kind)), random)


def outcome(path: Path, target: str | int | None) -> str:
    """Read a file and return "refused", "read", or a description of an unexpected outcome.

    "refused" means that reading raised a ValueError whose message contains the path. "read" means that all values are
    finite and the number of rows is correct.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            source = open_source(path, target)
            n_rows = source.n_rows
            chunks = list(source.chunks())
        except ValueError as error:
            if type(error) is ValueError and str(path) in str(error) and len(str(error)) < 2000:
                return "refused"
            return f"raised {type(error).__name__}: {error}"
        except Exception as error:
            return f"raised {type(error).__name__}: {error}"
    n_read = sum(len(X) for X, _ in chunks)
    fine = all(
        X.shape == (len(Y), source.n_features) and np.isfinite(X).all() and np.isfinite(Y).all() for X, Y in chunks
    )
    return "read" if fine and n_read == n_rows else f"invalid result: {n_read} of {n_rows} rows, finite: {fine}"
