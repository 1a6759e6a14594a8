"""The command line ``hkrr``, with the commands demo, fit, predict, report, info, bench and reproduce."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperCommand, TyperGroup

from hkrr._version import __version__
from hkrr.cli import bench, demo, fit, info, predict, report, reproduce
from hkrr.cli._console import print_json, print_line


def _hide_flag_types(parameters: list[Any]) -> list[Any]:
    """Remove the value type from the help text of flags, which take no value, and return the parameters."""
    for parameter in parameters:
        if getattr(parameter, "is_flag", False) and parameter.metavar is None:
            parameter.metavar = ""
    return parameters


class _Group(TyperGroup):
    def main(  # type: ignore[override]  # the other parameters of the base class are in `options`
        self, args: Any = None, standalone_mode: bool = True, **options: Any
    ) -> Any:
        """Run a command. Usage errors are printed in one line, like all other errors."""
        if not standalone_mode:
            return super().main(args, standalone_mode=False, **options)
        try:
            status = super().main(args, standalone_mode=False, **options)
        except Exception as error:
            # Only usage errors have the method `format_message`. Typer does not export the class of usage errors.
            if not hasattr(error, "format_message"):
                raise
            _print_usage_error(error, as_json="--json" in (sys.argv[1:] if args is None else args))
            status = 2
        sys.exit(status)

    def get_params(self, ctx: Any) -> list[Any]:
        return _hide_flag_types(super().get_params(ctx))


class _Command(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return _hide_flag_types(super().get_params(ctx))


def _print_usage_error(error: Any, as_json: bool) -> None:
    command = error.ctx.command_path if error.ctx is not None else "hkrr"
    if type(error).__name__ == "NoArgsIsHelpError":
        typer.echo(error.ctx.get_help())
    elif as_json:
        print_json({"error": error.format_message()})
    else:
        print_line(Console(stderr=True), f"{error.format_message().rstrip('.')}; see {command} --help", "red")


app = typer.Typer(no_args_is_help=True, cls=_Group)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hkrr {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Hyper-kernel ridge regression: learn functions that depend on many inputs through a few unknown directions.

    For a demonstration, run hkrr demo. For a table of your own, run:

    hkrr fit houses.csv --target price

    hkrr report model.hkrr houses.csv
    """


for _function in (demo.demo, fit.fit, predict.predict, report.report, info.info, bench.bench, reproduce.reproduce):
    app.command(cls=_Command)(_function)
