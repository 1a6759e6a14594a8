"""The command line: ``hkrr reproduce`` and ``hkrr bench``."""

from __future__ import annotations

import typer

from hkrr.cli import bench, reproduce

app = typer.Typer(no_args_is_help=True)


@app.callback()
def _main() -> None:
    """Hyper-kernel ridge regression: learn functions that depend on many inputs through a few unknown directions."""


app.command()(reproduce.reproduce)
app.command()(bench.bench)
