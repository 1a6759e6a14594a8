"""The command line: ``hkrr demo``, ``fit``, ``predict``, ``report``, ``info``, ``bench``, ``reproduce``."""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperCommand, TyperGroup

from hkrr.cli import bench, demo, fit, info, predict, report, reproduce
from hkrr.cli._console import say, say_json


def _without_types(parameters: list[Any]) -> list[Any]:
    """Return the parameters of a command, of which those that take no value show no type in its help."""
    for each in parameters:
        if getattr(each, "is_flag", False) and each.metavar is None:
            each.metavar = ""
    return parameters


class _Group(TyperGroup):
    def main(self, args: Any = None, standalone_mode: bool = True, **options: Any) -> Any:  # type: ignore[override]  # called by name
        """Run a command; what cannot be asked for is told of in one line, as other errors are."""
        if not standalone_mode:
            return super().main(args, standalone_mode=False, **options)
        try:
            status = super().main(args, standalone_mode=False, **options)
        except Exception as error:
            if not hasattr(error, "format_message"):  # none of the errors of use, whose class has no public name
                raise
            _say_what_is_wrong(error, as_json="--json" in (sys.argv[1:] if args is None else args))
            status = 2
        sys.exit(status)

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types(super().get_params(ctx))


class _Command(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types(super().get_params(ctx))


def _say_what_is_wrong(error: Any, as_json: bool) -> None:
    command = error.ctx.command_path if error.ctx is not None else "hkrr"
    if type(error).__name__ == "NoArgsIsHelpError":
        typer.echo(error.ctx.get_help())
    elif as_json:
        say_json({"error": error.format_message()})
    else:
        say(Console(stderr=True), f"{error.format_message().rstrip('.')}; {command} --help says more", "red")


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
