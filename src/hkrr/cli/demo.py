"""``hkrr demo``: a planted model as a table, fitted, and its report."""

from __future__ import annotations

import shlex
import textwrap
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from hkrr.cli._console import check_folder, errors_in_a_line, say

_ROWS, _COLUMNS, _DIRECTIONS = 750, 50, 3
_ALIKE = 0.01  # in R2


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the table, the model and the page.")] = Path(
        "demo"
    ),
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of the table.")] = 0,
) -> None:
    """Draw a table whose target depends on 50 columns through 3 directions; fit it, and write its report.

    Of the 750 rows, 150 are held out. The commands it runs are shown: they are yours for a table of your own.

    hkrr demo
    """
    console = Console()
    with errors_in_a_line(as_json=False):
        check_folder(console, out)
        _show(console, out, seed)


def _show(console: Console, out: Path, seed: int) -> None:
    """Make the table, and run the commands."""
    import pandas as pd

    import hkrr
    from hkrr.datasets import make_mim_sines

    data = make_mim_sines(_ROWS, n_features=_COLUMNS, n_components=_DIRECTIONS, random_state=seed)
    table = pd.DataFrame(data.X, columns=[f"x{k}" for k in range(_COLUMNS)]).assign(y=data.y)
    planted, model, page = (str(out / name) for name in ("planted.csv", "planted.hkrr", "report.html"))
    table.to_csv(planted, index=False)
    about = f"{_ROWS} rows, {_COLUMNS} columns; y depends on {_DIRECTIONS} directions of them"
    say(console, f"{planted}: {about}, and the noise allows an R2 of 0.99")
    _run(console, ["fit", planted, "--target", "y", "--kernel", "gaussian", "--out", model])
    _, kernel_ridge, linear = hkrr.load(model).held_out_.r2
    if abs(kernel_ridge - linear) < _ALIKE:
        why = f"in {_COLUMNS} columns rows are so far apart that a very wide kernel, which is all but linear, does best"
        say(console, "\n" + textwrap.fill(f"(Kernel ridge is no better than a linear model here: {why}.)", 79))
    _run(console, ["report", model, planted, "--out", page])


def _run(console: Console, arguments: list[str]) -> None:
    """Show a command, and run it."""
    from hkrr.cli import app

    say(console, f"\n$ hkrr {shlex.join(arguments)}", "bold")
    status = app(arguments, standalone_mode=False)
    if status:
        raise typer.Exit(status)
