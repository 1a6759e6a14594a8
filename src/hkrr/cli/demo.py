"""``hkrr demo``: create a synthetic table, fit a model to it, and write a report."""

from __future__ import annotations

import shlex
import textwrap
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from hkrr.cli._console import one_line_errors, print_line
from hkrr.cli._files import make_output_folder

# Numbers of rows, columns and directions of the synthetic table.
_ROWS, _COLUMNS, _DIRECTIONS = 750, 50, 3
# If the R2 of kernel ridge and of the linear model differ by less than this, a note says that they are equally good.
_SMALL_DIFFERENCE = 0.01


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the table, the model and the report.")] = Path(
        "demo"
    ),
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of the random table.")] = 0,
) -> None:
    """Fit a model to a synthetic table whose target depends on 50 columns through 3 directions, and write a report.

    Of the 750 rows, 150 are held out. The commands are shown, so that you can
    run them on your own table.

    hkrr demo
    """
    console = Console()
    with one_line_errors(as_json=False):
        make_output_folder(console, out)
        _run_demo(console, out, seed)


def _run_demo(console: Console, out: Path, seed: int) -> None:
    """Create the table, and run ``hkrr fit`` and ``hkrr report`` on the table."""
    import pandas as pd

    import hkrr
    from hkrr.datasets import make_mim_sines

    data = make_mim_sines(_ROWS, n_features=_COLUMNS, n_components=_DIRECTIONS, random_state=seed)
    table = pd.DataFrame(data.X, columns=[f"x{k}" for k in range(_COLUMNS)]).assign(y=data.y)
    planted, model, page = (str(out / name) for name in ("planted.csv", "planted.hkrr", "report.html"))
    table.to_csv(planted, index=False)
    print_line(console, f"Wrote {planted}: {_ROWS} rows, {_COLUMNS} columns and a target y")
    print_line(
        console,
        f"y depends on the columns through {_DIRECTIONS} directions; because of the noise in y, R2 is at most 0.99",
    )
    _run(console, ["fit", planted, "--target", "y", "--kernel", "gaussian", "--out", model])
    _, kernel_ridge, linear = hkrr.load(model).held_out_.r2
    if abs(kernel_ridge - linear) < _SMALL_DIFFERENCE:
        note = (
            f"Kernel ridge is about as good as a linear model here: in {_COLUMNS} dimensions the rows are so far apart "
            "that a very wide, nearly linear kernel is best."
        )
        print_line(console, "\n" + textwrap.fill(note, 79))
    _run(console, ["report", model, planted, "--out", page])


def _run(console: Console, arguments: list[str]) -> None:
    """Print a command and run it."""
    from hkrr.cli import app

    print_line(console, f"\n$ hkrr {shlex.join(arguments)}", "bold")
    status = app(arguments, standalone_mode=False)
    if status:
        raise typer.Exit(status)
