"""``hkrr report MODEL DATA``: a model and rows as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from hkrr.cli._console import check_file, errors_in_a_line, load_model, say, say_json


def report(
    model: Annotated[Path, typer.Argument(help="Model that hkrr fit (or hkrr.save) wrote.", show_default=False)],
    data: Annotated[
        str,
        typer.Argument(help="CSV or Parquet file, rows with their target; - for standard input.", show_default=False),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The HTML file to write.")] = Path("report.html"),
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            "-t",
            help="Column that is predicted; by default the one that was fitted to.",
            show_default=False,
        ),
    ] = None,
    title: Annotated[str | None, typer.Option(help="Heading of the page.", show_default=False)] = None,
    coverage: Annotated[float, typer.Option(min=0.01, max=0.999, help="Share of rows that intervals hold.")] = 0.9,
    no_compare: Annotated[
        bool, typer.Option("--no-compare", help="Fit nothing: leave the comparison out where the model knows none.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, and nothing else.")] = False,
) -> None:
    """Write a page on a model: what it learned, how sure it is, how it compares, which rows it gets wrong.

    The page is one file that loads nothing: open it in any browser, or send it on. Rows that the model has not seen
    tell most.

    hkrr report houses.hkrr new_houses.csv -o report.html
    """
    with errors_in_a_line(as_json):
        check_file("--out", out)
        found = _written(model, data, out, target, title, coverage, not no_compare)
        if as_json:
            say_json(found)
            return
        r2 = "" if found["r2"] is None else f", R2 {found['r2']:.3f}"
        seen = "" if found["held_out"] else " (rows of the fit among them, which flatter it)"
        say(Console(), f"{out}: {found['rows']:,} rows{r2}{seen}; open it in a browser.")


def _written(
    model: Path, data: str, out: Path, target: str | None, title: str | None, coverage: float, compare: bool
) -> dict[str, Any]:
    """Write the page, and return the figures of its head."""
    import pandas as pd

    import hkrr
    from hkrr.disk import replace_file
    from hkrr.reporting import gather, render
    from hkrr.tables import as_columns, read_table
    from hkrr.tables.comparison import without_target
    from hkrr.tables.description import target_of

    fitted = load_model(model)
    if hasattr(fitted, "predict_proba"):
        raise ValueError(
            f"a report is of a regressor, and {model} holds a {type(fitted).__name__}: print(hkrr.load({str(model)!r})"
            ".summary()) and hkrr.plotting.LinkDisplay show it in Python"
        )
    name = target if target is not None else target_of(fitted)
    if name is None:
        raise ValueError("--target: the model does not know the name of its target; give it")
    table = read_table(data)
    if name not in table.columns and target is None:
        raise ValueError(f"{data} has no column {name!r}, the target: a report needs rows whose target is known")
    rows, values, _ = without_target(table, name)
    X = rows if isinstance(fitted, hkrr.tables.TableRegressor) else as_columns(fitted, rows)
    y = pd.Series(values, name=name)
    facts = gather(fitted, X, y, title=title, coverage=coverage, compare=compare)
    replace_file(out, render(facts).encode())
    return {"out": str(out), "rows": facts.n_rows, "r2": facts.errors.r2, "held_out": facts.errors.held_out}
