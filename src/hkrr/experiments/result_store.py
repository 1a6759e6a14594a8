"""The finished cases of an experiment on the disk, and the table made of them."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import platform
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

Row = dict[str, Any]
Table = list[Row]
Case = dict[str, Any]

# What may change while the cases that are there stay good.
_NOT_OF_A_CASE = ("repeats",)


class Store:
    """The finished cases of one config in a file of JSON lines: each is on the disk as soon as it has ended."""

    def __init__(self, path: Path, config: Any) -> None:
        settings = {name: value for name, value in asdict(config).items() if name not in _NOT_OF_A_CASE}
        settings["hkrr"] = version("hkrr")
        self._path = path
        self._digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]
        self._done: dict[str, Row] = {}
        if path.exists():
            for line in path.read_text().splitlines():
                try:
                    entry = json.loads(line)
                except json.JSONDecodeError:
                    continue  # the line of a run that was killed while it wrote
                if entry["config"] == self._digest:
                    self._done[_key(entry["case"])] = entry

    def __contains__(self, case: Case) -> bool:
        return _key(case) in self._done

    def rows(self, case: Case) -> Table:
        """Return the rows of a finished case."""
        rows: Table = self._done[_key(case)]["rows"]
        return rows

    def seconds(self, case: Case) -> float:
        """Return how long a finished case took."""
        return float(self._done[_key(case)]["seconds"])

    def add(self, case: Case, rows: Table, seconds: float) -> None:
        """Keep a case, on the disk before anything else happens."""
        line = json.dumps({"config": self._digest, "case": case, "seconds": round(seconds, 3), "rows": rows})
        with open(self._path, "a") as file:
            if file.tell() > 0 and not self._ends_a_line():
                file.write("\n")
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())
        # Through JSON, so that a table is the same whether its cases were run now or read back.
        self._done[_key(case)] = json.loads(line)

    def _ends_a_line(self) -> bool:
        """Return whether the file ends a line; not so where a run was killed while it wrote."""
        with open(self._path, "rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read() == b"\n"


def provenance(config: Any) -> str:
    """Return what a result is of: the config, the library's version and the machine."""
    settings = ", ".join(f"{name}={value}" for name, value in asdict(config).items())
    cpu = platform.processor() or platform.machine()
    return f"hkrr {version('hkrr')}, {os.cpu_count()} cores ({cpu}), Python {platform.python_version()}; {settings}"


def _key(case: Case) -> str:
    return json.dumps(case, sort_keys=True)


def write_csv(table: Table, path: Path) -> None:
    """Write a table, its columns in the order in which they first appear; numbers to six digits."""
    columns = list(dict.fromkeys(name for row in table for name in row))
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
        writer.writeheader()
        for row in table:
            writer.writerow(
                {name: f"{value:.6g}" if isinstance(value, float) else value for name, value in row.items()}
            )


def column(table: Table, name: str, **where: Any) -> list[Any]:
    """Return a column of the rows that have these values; rows without the names are left out."""
    return [row[name] for row in table if all(row.get(key) == value for key, value in where.items())]
