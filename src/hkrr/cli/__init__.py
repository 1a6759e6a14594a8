"""The command line: ``hkrr demo``, ``fit``, ``predict``, ``report``, ``info``, ``bench``, ``reproduce``."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from hkrr.cli import bench, demo, fit, info, predict, report, reproduce


def _without_types(parameters: list[Any]) -> list[Any]:
    """Return the parameters of a command, of which those that take no value show no type in its help."""
    for each in parameters:
        if getattr(each, "is_flag", False) and each.metavar is None:
            each.metavar = ""
    return parameters


class _Group(TyperGroup):
    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types(super().get_params(ctx))


class _Command(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types(super().get_params(ctx))


app = typer.Typer(no_args_is_help=True, cls=_Group)


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


for _each in (demo.demo, fit.fit, predict.predict, report.report, info.info, bench.bench, reproduce.reproduce):
    app.command(cls=_Command)(_each)
