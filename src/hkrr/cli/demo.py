"""``hkrr demo``: a planted model as a table, fitted, and its report."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from hkrr.cli._console import check_folder, say


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
    import pandas as pd

    from hkrr.cli import app
    from hkrr.datasets import make_mim_sines

    console = Console()
    check_folder(console, out)
    data = make_mim_sines(750, n_features=50, n_components=3, random_state=seed)
    table = pd.DataFrame(data.X, columns=[f"x{k}" for k in range(1, 51)]).assign(y=data.y)
    planted, model, page = (str(out / name) for name in ("planted.csv", "planted.hkrr", "report.html"))
    table.to_csv(planted, index=False)
    say(
        console,
        f"{planted}: 750 rows, 50 columns; y depends on 3 directions of them, and the noise allows an R2 of 0.99",
    )
    for arguments in (
        ["fit", planted, "--target", "y", "--kernel", "gaussian", "--out", model],
        ["report", model, planted, "--out", page],
    ):
        say(console, f"\n$ hkrr {shlex.join(arguments)}", "bold")
        app(arguments, standalone_mode=False)
