"""Run the first commands of a new user and write their output to docs/transcript.md.

    python docs/make_transcript.py [TABLE ...]      (takes about a minute for each table)

The first section of the page shows the output of `hkrr demo`. Each TABLE then has a section with the output of
`hkrr fit`, `hkrr report`, `hkrr predict` and `hkrr info`. A TABLE is a CSV or Parquet file, or a folder that contains
data.csv.gz. The last column of a table is the target.
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
_HEAD = """# A first session, with output

Two commands lead from a clone of the repository to a report, in a virtual environment:

    pip install ".[cli]"
    hkrr demo

The output below is from a machine with {machine}. `python docs/make_transcript.py` writes this page.
"""


def run(command: str, folder: Path) -> str:
    """Run a command in `folder`, and return the command line and its output.

    The output is formatted for 80 columns, without terminal colours.
    """
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
    """Run all commands in `folder`, and return the contents of the page."""
    machine = f"{os.cpu_count()} cores ({platform.machine()}), Python {platform.python_version()}"
    if os.getloadavg()[0] > (os.cpu_count() or 1):
        machine += "; the machine was also busy with other work"
    heading = "## A planted model: synthetic data with known directions\n"
    parts = [_HEAD.format(machine=machine), heading, _block([run("hkrr demo", folder)])]
    for table in tables:
        source = table / "data.csv.gz" if table.is_dir() else table
        name, _, suffix = f"{table.name}.csv.gz".partition(".") if table.is_dir() else table.name.partition(".")
        shutil.copy(source, folder / f"{name}.{suffix}")
        commands = [
            f"hkrr fit {name}.{suffix} -o {name}.hkrr",
            f"hkrr report {name}.hkrr {name}.{suffix} -o {name}.html",
            f"hkrr predict {name}.hkrr {name}.{suffix} -o predictions.csv",
            f"hkrr info {name}.hkrr",
        ]
        parts += [f"## A table: {name}\n", _block([run(command, folder) for command in commands])]
    return "\n".join(parts)


def _block(texts: list[str]) -> str:
    return "```text\n" + "\n".join(text.rstrip() + "\n" for text in texts) + "```\n"


def main() -> None:
    """Run the commands in a temporary folder and write the page."""
    with tempfile.TemporaryDirectory() as folder:
        page = transcript([Path(name).resolve() for name in sys.argv[1:]], Path(folder))
    _PAGE.write_text(page, encoding="utf-8")
    print(page)


if __name__ == "__main__":
    main()
