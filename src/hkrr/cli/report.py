"""``hkrr report MODEL DATA``: write an HTML report on a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from hkrr.cli._console import one_line_errors, print_json, print_line
from hkrr.cli._files import check_output_file, load_model


def report(
    model: Annotated[Path, typer.Argument(help="Model file written by hkrr fit or hkrr.save.", show_default=False)],
    data: Annotated[
        str,
        typer.Argument(help="CSV or Parquet file with a target column, or - for standard input.", show_default=False),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="HTML file to write.")] = Path("report.html"),
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            "-t",
            help="Name of the target column. Default: the target of the fit.",
            show_default=False,
        ),
    ] = None,
    title: Annotated[str | None, typer.Option(help="Title of the page.", show_default=False)] = None,
    coverage: Annotated[
        float, typer.Option(min=0.01, max=0.999, help="Probability that a prediction interval contains the target.")
    ] = 0.9,
    no_compare: Annotated[
        bool,
        typer.Option("--no-compare", help="Do not fit baselines. A comparison in the model file is still shown."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Write an HTML report on a model: directions, uncertainty, comparison with baselines, largest errors.

    The report is a single file that loads nothing from the network. Its scores
    are most reliable for rows that were not used in the fit.

    hkrr report houses.hkrr new_houses.csv -o report.html
    """
    with one_line_errors(as_json):
        check_output_file("--out", out)
        figures = _write_report(model, data, out, target, title, coverage, not no_compare)
        if as_json:
            print_json(figures)
            return
        r2 = "" if figures["r2"] is None else f", R2 {figures['r2']:.3f}"
        note = "" if figures["held_out"] else " (includes training rows, so R2 is optimistic)"
        print_line(Console(), f"Wrote {out}: {figures['rows']:,} rows{r2}{note}. Open it in a browser.")


def _write_report(
    model: Path, data: str, out: Path, target: str | None, title: str | None, coverage: float, compare: bool
) -> dict[str, Any]:
    """Write the report, and return its path, the number of rows, R2, and whether the rows were held out of the fit."""
    import pandas as pd

    import hkrr
    from hkrr._storage.atomic_write import replace_file
    from hkrr.reporting import gather, render
    from hkrr.tables import as_columns, read_table
    from hkrr.tables.held_out_comparison import separate_target
    from hkrr.tables.json_description import target_name

    fitted = load_model(model)
    if hasattr(fitted, "predict_proba"):
        raise ValueError(
            f"reports support only regressors, but {model} contains a {type(fitted).__name__}; use hkrr info {model}, "
            "or the plots of hkrr.plotting in Python"
        )
    name = target if target is not None else target_name(fitted)
    if name is None:
        raise ValueError("the model file does not contain the name of the target column; give the name with --target")
    table = read_table(data)
    if name not in table.columns and target is None:
        raise ValueError(f"{data} has no column {name!r}, the target of the model; a report needs rows with the target")
    rows, values, *_ = separate_target(table, name)
    X = rows if isinstance(fitted, hkrr.tables.TableRegressor) else as_columns(fitted, rows)
    y = pd.Series(values, name=name)
    facts = gather(fitted, X, y, title=title, coverage=coverage, compare=compare)
    replace_file(out, render(facts).encode())
    return {"out": str(out), "rows": facts.n_rows, "r2": facts.errors.r2, "held_out": facts.errors.held_out}
