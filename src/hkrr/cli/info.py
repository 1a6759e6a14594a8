"""``hkrr info MODEL``: what a file of a model says."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from hkrr.cli._console import errors_in_a_line, load_model, say, say_json


def info(
    model: Annotated[Path, typer.Argument(help="The model: a file of hkrr fit, or of hkrr.save.", show_default=False)],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, and nothing else.")] = False,
) -> None:
    """Show what a model is: scores, directions, columns, settings, health.

    hkrr info houses.hkrr
    """
    console = Console()
    with errors_in_a_line(as_json):
        from hkrr.cli._summary import show_classes, show_columns, show_map, show_scores
        from hkrr.saving import written_by
        from hkrr.tables import describe

        found = load_model(model)
        about = {"file": str(model), "library": written_by(model), **describe(found)}
        if as_json:
            say_json(about)
            return
        inner = f" of a {about['regressor']}" if "regressor" in about else ""
        say(console, f"{model}: a {about['class']}{inner}, saved by hkrr {about['library']}")
        if about["parameters"]:
            say(console, "Settings: " + ", ".join(f"{name}={value!r}" for name, value in about["parameters"].items()))
        if "target" in about:
            say(console, f"Predicts {about['target']!r}")
        show_classes(console, found)
        show_scores(console, found)
        show_map(console, about)
        show_columns(console, about, everything=True)
        health = getattr(getattr(found, "model_", found), "diagnostics_", None)
        if health is not None:
            of = "The regression on codes that the map began from:\n" if "classes" in about else ""
            say(console, f"\n{of}{health}")
