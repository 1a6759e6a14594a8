"""The command line: ``hkrr report``, ``hkrr reproduce`` and ``hkrr bench``."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from hkrr.cli import bench, report, reproduce

app = typer.Typer(no_args_is_help=True)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hkrr {version('hkrr')}")
        raise typer.Exit


@app.callback()
def _main(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Hyper-kernel ridge regression: learn functions that depend on many inputs through a few unknown directions."""


app.command()(report.report)
app.command()(reproduce.reproduce)
app.command()(bench.bench)
