"""Run a new user's first commands, and write what they printed to docs/transcript.md.

    python docs/make_transcript.py [TABLE ...]      (a minute for each)

The first table is a planted model that `hkrr demo` draws. Each TABLE is a CSV or Parquet file, or a folder with
data.csv.gz in it, whose last column is the target; it is fitted and reported on under its own name.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

_PAGE = Path(__file__).parent / "transcript.md"
_HEAD = """# The first commands, as they were run

From a clone to a report in two commands, in an environment of yours:

    pip install ".[cli]"
    hkrr demo

What follows is what the commands printed, on {machine}; this page is written by
`python docs/make_transcript.py`.
"""


def run(command: str, folder: Path) -> str:
    """Return a command and all that it printed, on a terminal of 80 columns that is none."""
    name, *arguments = shlex.split(command)
    done = subprocess.run(
        [sys.executable, "-m", name, *arguments],
        cwd=folder,
        env={**os.environ, "COLUMNS": "80"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    )
    return f"$ {command}\n{done.stdout}"


def transcript(tables: list[Path], folder: Path) -> str:
    """Return the page."""
    machine = f"{os.cpu_count()} cores ({platform.machine()}), Python {platform.python_version()}"
    if os.getloadavg()[0] > (os.cpu_count() or 1):
        machine += ", busy with other work too"
    parts = [_HEAD.format(machine=machine), "## A planted model\n", _block([run("hkrr demo", folder)])]
    for table in tables:
        source = table / "data.csv.gz" if table.is_dir() else table
        name, suffix = (table.name, ".csv.gz") if table.is_dir() else (table.stem, table.suffix)
        shutil.copy(source, folder / f"{name}{suffix}")
        commands = [
            f"hkrr fit {name}{suffix} -o {name}.hkrr",
            f"hkrr report {name}.hkrr {name}{suffix} -o {name}.html",
            f"hkrr predict {name}.hkrr {name}{suffix} -o predictions.csv",
            f"hkrr info {name}.hkrr",
        ]
        parts += [f"## A table: {name}\n", _block([run(command, folder) for command in commands])]
    return "\n".join(parts)


def _block(texts: list[str]) -> str:
    return "```text\n" + "\n".join(text.rstrip() + "\n" for text in texts) + "```\n"


def main() -> None:
    """Run the commands in a folder that is gone afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        page = transcript([Path(name).resolve() for name in sys.argv[1:]], Path(folder))
    _PAGE.write_text(page, encoding="utf-8")
    print(page)


if __name__ == "__main__":
    main()
