"""``hkrr report MODEL DATA``: a model and rows as one HTML page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from hkrr.cli._console import say


def report(
    model: Annotated[Path, typer.Argument(help="A model that hkrr.save wrote.", show_default=False)],
    data: Annotated[Path, typer.Argument(help="CSV or Parquet file: rows with their target.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", "-o", help="The HTML file to write.")] = Path("report.html"),
    target: Annotated[
        str | None,
        typer.Option(help="The column that is predicted; by default the one that was fitted to.", show_default=False),
    ] = None,
    title: Annotated[str | None, typer.Option(help="Heading of the page.", show_default=False)] = None,
    coverage: Annotated[float, typer.Option(min=0.01, max=0.999, help="Share of rows that intervals hold.")] = 0.9,
    no_compare: Annotated[
        bool, typer.Option("--no-compare", help="Fit nothing: leave the comparison out where the model knows none.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Write a page on a model: what it learned, how sure it is, how it compares, which rows it gets wrong.

    The page is one file that loads nothing: open it in any browser, or send it on. Rows that the model has not seen
    tell most.

    hkrr report houses.hkrr new_houses.csv -o report.html
    """
    try:
        found = _written(model, data, out, target, title, coverage, not no_compare)
    except (ValueError, OSError, ImportError) as error:
        text = " ".join(str(error).split())
        if as_json:
            typer.echo(json.dumps({"error": text}))
        else:
            say(Console(stderr=True), text, "red")
        raise typer.Exit(2) from None
    if as_json:
        typer.echo(json.dumps(found))
    else:
        r2 = "" if found["r2"] is None else f", R2 {found['r2']:.3f}"
        say(Console(), f"{out}: {found['rows']:,} rows{r2}; open it in a browser.")


def _written(
    model: Path, data: Path, out: Path, target: str | None, title: str | None, coverage: float, compare: bool
) -> dict[str, Any]:
    """Write the page, and return the figures of its head."""
    import hkrr
    from hkrr.reporting import gather, render

    fitted, frame = hkrr.load(model), read_rows(data)
    name = target if target is not None else getattr(getattr(fitted, "held_out_", None), "target", None)
    if name is None:
        raise ValueError("--target: the model does not know the name of its target; give it")
    if name not in frame.columns:
        raise ValueError(
            f"--target {name}: {data} has no such column; it has {', '.join(map(str, frame.columns[:20]))}"
        )
    X, y = frame.drop(columns=name), frame[name]
    known = [str(column) for column in getattr(fitted, "feature_names_in_", X.columns)]
    missing = [column for column in known if column not in X.columns]
    if missing:
        raise ValueError(f"{data} lacks the column {missing[0]!r}, which the model was fitted with")
    facts = gather(fitted, X[known], y, title=title, coverage=coverage, compare=compare)
    out.write_text(render(facts), encoding="utf-8")
    return {"out": str(out), "rows": facts.n_rows, "r2": facts.errors.r2, "held_out": facts.errors.held_out}


def read_rows(path: Path) -> Any:
    """Return a table as a data frame."""
    import pandas

    return pandas.read_parquet(path) if path.suffix.lower() in (".parquet", ".pq") else pandas.read_csv(path)
