"""``hkrr info MODEL``: describe a model file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from hkrr.cli._console import one_line_errors, print_json, print_line
from hkrr.cli._files import load_model


def info(
    model: Annotated[Path, typer.Argument(help="Model file written by hkrr fit or hkrr.save.", show_default=False)],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Describe a model: parameters, scores, directions, columns and diagnostics of the fit.

    hkrr info houses.hkrr
    """
    console = Console()
    with one_line_errors(as_json):
        from hkrr.cli._model_summary import show_columns, show_facts, show_map, show_outliers, show_scores
        from hkrr.saving import written_by
        from hkrr.tables import describe
        from hkrr.tables.inner_models import unwrap_model

        fitted = load_model(model)
        content = {"file": str(model), "library": written_by(model), **describe(fitted)}
        if as_json:
            print_json(content)
            return
        kind = content.get("regressor", content.get("classifier"))
        inner = "" if kind is None else f" with a {kind}"
        print_line(console, f"{model}: a {content['class']}{inner}, saved by hkrr {content['library']}")
        if content["parameters"]:
            print_line(
                console,
                "Parameters: " + ", ".join(f"{name}={value!r}" for name, value in content["parameters"].items()),
            )
        if "target" in content:
            print_line(console, f"Target: {content['target']!r}")
        show_facts(console, fitted)
        show_scores(console, getattr(fitted, "held_out_", None))
        show_map(console, content)
        show_columns(console, content, everything=True)
        show_outliers(console, content)
        diagnostics = getattr(unwrap_model(fitted).whole, "diagnostics_", None)
        if diagnostics is not None:
            if "outliers" in content:  # `show_outliers` has already printed the outliers
                diagnostics = replace(diagnostics, n_outliers=0)
            heading = "Diagnostics of the first model, a regression on the indicators of the classes:\n"
            heading = heading if "classes" in content else ""
            print_line(console, f"\n{heading}{diagnostics}")
