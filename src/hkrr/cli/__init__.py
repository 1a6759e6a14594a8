"""The command line: ``hkrr demo``, ``fit``, ``predict``, ``report``, ``info``, ``bench``, ``reproduce``."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from hkrr.cli import bench, demo, fit, info, predict, report, reproduce

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
    """Hyper-kernel ridge regression: learn functions that depend on many inputs through a few unknown directions.

    To see it work: hkrr demo. Then: hkrr fit houses.csv --target price, and hkrr report model.hkrr houses.csv
    """


app.command()(demo.demo)
app.command()(fit.fit)
app.command()(predict.predict)
app.command()(report.report)
app.command()(info.info)
app.command()(bench.bench)
app.command()(reproduce.reproduce)
