"""Storage of the finished cases of an experiment in a JSON Lines file, and helper functions for tables."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import platform
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hkrr._version import __version__

Row = dict[str, Any]
Table = list[Row]
Case = dict[str, Any]

# Fields of a config that do not affect the results of its cases.
_IGNORED_FIELDS = ("repeats",)


class Store:
    """The finished cases of an experiment with one config, in a JSON Lines file. Each case is written when it is added.

    The file may also contain cases of other configs or of other versions of the library. These cases are ignored.
    """

    def __init__(self, path: Path, config: Any) -> None:
        settings = {name: value for name, value in asdict(config).items() if name not in _IGNORED_FIELDS}
        settings["hkrr"] = __version__
        self._path = path
        self._digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]
        self._done: dict[str, Row] = {}
        if path.exists():
            for line in path.read_text().splitlines():
                try:
                    entry = json.loads(line)
                except json.JSONDecodeError:
                    # The line is incomplete, because the process was killed while it was written.
                    continue
                if entry["config"] == self._digest:
                    self._done[_key(entry["case"])] = entry

    def __contains__(self, case: Case) -> bool:
        return _key(case) in self._done

    def rows(self, case: Case) -> Table:
        """Return the rows of a finished case."""
        rows: Table = self._done[_key(case)]["rows"]
        return rows

    def seconds(self, case: Case) -> float:
        """Return the duration of a finished case in seconds."""
        return float(self._done[_key(case)]["seconds"])

    def add(self, case: Case, rows: Table, seconds: float) -> None:
        """Store a finished case, and flush it to the disk."""
        line = json.dumps({"config": self._digest, "case": case, "seconds": round(seconds, 3), "rows": rows})
        with open(self._path, "a") as file:
            if file.tell() > 0 and not self._ends_with_newline():
                file.write("\n")
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())
        # Convert the rows to JSON and back, so that they are the same as rows that are read from the file.
        self._done[_key(case)] = json.loads(line)

    def _ends_with_newline(self) -> bool:
        """Return whether the file ends with a newline. The newline is missing if a process was killed while writing."""
        with open(self._path, "rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read() == b"\n"


def provenance(config: Any) -> str:
    """Return the library's version, the machine and the config as one line of text."""
    settings = ", ".join(f"{name}={value}" for name, value in asdict(config).items())
    cpu = platform.processor() or platform.machine()
    return f"hkrr {__version__}, {os.cpu_count()} cores ({cpu}), Python {platform.python_version()}; {settings}"


def _key(case: Case) -> str:
    return json.dumps(case, sort_keys=True)


def write_csv(table: Table, path: Path) -> None:
    """Write a table as CSV. Columns are in the order of first appearance, and floats have six significant digits."""
    columns = list(dict.fromkeys(name for row in table for name in row))
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
        writer.writeheader()
        for row in table:
            writer.writerow(
                {name: f"{value:.6g}" if isinstance(value, float) else value for name, value in row.items()}
            )


def column(table: Table, name: str, **where: Any) -> list[Any]:
    """Return the values of the column `name`, from the rows in which other columns have the values given by `where`."""
    return [row[name] for row in table if all(row.get(key) == value for key, value in where.items())]
