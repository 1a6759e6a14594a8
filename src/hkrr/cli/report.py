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

    For classes, the report shows the confusion table, ROC curves and the
    calibration of the probabilities.

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
        note = "" if figures["held_out"] else f" (includes training rows, so {_OPTIMISTIC[figures['task']]})"
        print_line(Console(), f"Wrote {out}: {figures['rows']:,} rows{_scores(figures)}{note}. Open it in a browser.")


# What is said about the scores if training rows are among the rows of the report.
_OPTIMISTIC = {"regression": "R2 is optimistic", "classification": "the scores are optimistic"}


def _scores(figures: dict[str, Any]) -> str:
    if figures["task"] == "classification":
        return f", accuracy {figures['accuracy']:.3f}, log loss {figures['log_loss']:.3f}"
    return "" if figures["r2"] is None else f", R2 {figures['r2']:.3f}"


def _write_report(
    model: Path, data: str, out: Path, target: str | None, title: str | None, coverage: float, compare: bool
) -> dict[str, Any]:
    """Write the report, and return its path, the number of rows, the scores, and whether the rows were held out."""
    import pandas as pd

    from hkrr._storage.atomic_write import replace_file
    from hkrr.reporting import ClassFacts, RegressionFacts, gather, render
    from hkrr.tables import as_columns, read_table
    from hkrr.tables.held_out_comparison import separate_target, split_columns
    from hkrr.tables.json_description import target_name
    from hkrr.tables.table_model import TableModel

    fitted = load_model(model)
    name = target if target is not None else target_name(fitted)
    if name is None:
        raise ValueError("the model file does not contain the name of the target column; give the name with --target")
    table = read_table(data)
    if name not in table.columns and target is None:
        raise ValueError(f"{data} has no column {name!r}, the target of the model; a report needs rows with the target")
    if hasattr(fitted, "predict_proba"):
        inputs, column, is_missing = split_columns(table, name)
        rows, y = inputs[~is_missing], column[~is_missing].rename(name)
    else:
        rows, values, *_ = separate_target(table, name)
        y = pd.Series(values, name=name)
    X = rows if isinstance(fitted, TableModel) else as_columns(fitted, rows)
    facts = gather(fitted, X, y, title=title, coverage=coverage, compare=compare)
    replace_file(out, render(facts).encode())
    figures: dict[str, Any] = {"out": str(out), "rows": facts.n_rows}
    if isinstance(facts, ClassFacts):
        scores = {"accuracy": facts.errors.accuracy, "log_loss": facts.errors.log_loss}
        return {**figures, "task": "classification", **scores, "held_out": facts.errors.held_out}
    assert isinstance(facts, RegressionFacts)
    return {**figures, "task": "regression", "r2": facts.errors.r2, "held_out": facts.errors.held_out}
