"""``hkrr predict MODEL DATA``: predict the target for the rows of a table, with prediction intervals."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer
from rich.console import Console

from hkrr.cli._console import one_line_errors, print_json, print_line
from hkrr.cli._files import check_output_file, load_model

if TYPE_CHECKING:
    import pandas as pd

_DEFAULT_COVERAGE = 0.9
_SUFFIXES = (".csv", ".parquet", ".pq")


def predict(
    model: Annotated[Path, typer.Argument(help="Model file written by hkrr fit or hkrr.save.", show_default=False)],
    data: Annotated[str, typer.Argument(help="CSV or Parquet file, or - for standard input.", show_default=False)],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="CSV or Parquet file to write. Default: standard output.", show_default=False),
    ] = None,
    coverage: Annotated[
        float | None,
        typer.Option(
            min=0.01,
            max=0.999,
            help=f"Probability that a prediction interval contains the target. Default: {_DEFAULT_COVERAGE}.",
            show_default=False,
        ),
    ] = None,
    no_intervals: Annotated[
        bool, typer.Option("--no-intervals", help="Do not write the columns lower and upper.")
    ] = False,
    std: Annotated[bool, typer.Option("--std", help="Write a column std with the standard deviations.")] = False,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            help="Column to copy to the output. Repeat the option, or separate names by commas.", show_default=False
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print only one JSON object; requires --out.")] = False,
) -> None:
    """Predict the target for the rows of a table, with prediction intervals.

    The output has one row for each row of the table, in the same order, with
    the columns prediction, lower and upper. For a classifier, the columns are
    the predicted label and the probability of each class. Columns of the table
    are matched by name, and additional columns are ignored. Large files are
    read in pieces.

    hkrr predict houses.hkrr new.csv -o predictions.csv --keep id

    cat new.csv | hkrr predict houses.hkrr - --no-intervals
    """
    with one_line_errors(as_json):
        if no_intervals and coverage is not None:
            raise ValueError("--coverage and --no-intervals are mutually exclusive; use only one of them")
        if as_json and out is None:
            raise ValueError("--json requires --out, because standard output is used for the JSON object")
        if out is not None:
            check_output_file("--out", out)
            if out.suffix.lower() not in _SUFFIXES:
                raise ValueError(f"--out {out}: the file name must end with {', '.join(_SUFFIXES)}")
        columns = [name.strip() for each in keep or [] for name in each.split(",") if name.strip()]
        wanted = None if no_intervals else coverage or _DEFAULT_COVERAGE
        pieces = _predict_pieces(model, data, wanted, coverage is not None, std, columns, as_json)
        n_rows, names = _write(pieces, out)
        if as_json:
            print_json({"rows": n_rows, "columns": names, "out": str(out)})
        elif out is not None:
            print_line(Console(), f"Wrote {n_rows:,} rows to {out}: {', '.join(names)}")


def _predict_pieces(
    path: Path, data: str, coverage: float | None, required: bool, std: bool, keep: list[str], as_json: bool
) -> Iterator[pd.DataFrame]:
    """Yield the predictions for each piece of the table.

    `required` says whether the user gave a coverage. If the model cannot compute the intervals, a ValueError is raised
    if `required` is True. If it is False, a warning is printed, and the predictions have no intervals.
    """
    from hkrr.exceptions import TableError
    from hkrr.tables import predict_frame, read_pieces

    model = load_model(path)
    if hasattr(model, "predict_proba") and not required:
        coverage = None  # a classifier has probabilities instead of intervals
    for piece in read_pieces(data):
        try:
            yield predict_frame(model, piece, coverage=coverage, std=std, keep=keep)
        except TableError:
            raise
        except ValueError as error:
            message = _explain(error, path)
            if coverage is None or required:
                raise ValueError(message) from None
            coverage, predictions = None, predict_frame(model, piece, std=std, keep=keep)
            if not as_json:
                print_line(Console(stderr=True), f"No intervals: {' '.join(message.split())}", "yellow")
            yield predictions


def _explain(error: ValueError, path: Path) -> str:
    """Return the message of an error. If the coverage is too large for the model, the message says what to do."""
    from hkrr.estimators.fitted.conformal import TooFewScores

    if not isinstance(error, TooFewScores):
        return str(error)
    largest = math.floor(1000 * error.n / (error.n + 1)) / 1000
    return (
        f"--coverage {error.coverage:g} needs the residuals of at least {error.least:,} rows, but this model has "
        f"{error.n:,} residuals; use --coverage {largest:g} or less, fit a model to more rows, or calibrate the model "
        f"on new rows with hkrr.load({str(path)!r}).calibrate(X, y) in Python"
    )


def _write(pieces: Iterator[pd.DataFrame], out: Path | None) -> tuple[int, list[str]]:
    """Write the predictions to a file or to standard output. Return the number of rows and the column names.

    If an error occurs, an existing file is left unchanged.
    """
    from hkrr._storage.atomic_write import replacing

    pieces = chain([next(pieces)], pieces)  # raises errors in the first piece before anything is written
    if out is None:
        return _write_csv(pieces, sys.stdout)
    with replacing(out) as temporary:
        if out.suffix.lower() != ".csv":
            return _write_parquet(pieces, temporary)
        with open(temporary, "x", encoding="utf-8", newline="") as file:
            return _write_csv(pieces, file)


def _write_csv(pieces: Iterator[pd.DataFrame], file: TextIO) -> tuple[int, list[str]]:
    n_rows, names = 0, list[str]()
    for piece in pieces:
        piece.to_csv(file, index=False, header=n_rows == 0, lineterminator="\n")
        n_rows, names = n_rows + len(piece), list(piece.columns)
    file.flush()
    return n_rows, names


def _write_parquet(pieces: Iterator[pd.DataFrame], path: Path) -> tuple[int, list[str]]:
    import pyarrow
    from pyarrow import parquet

    first = next(pieces)
    table = pyarrow.Table.from_pandas(first, preserve_index=False)
    n_rows = len(first)
    with parquet.ParquetWriter(path, table.schema) as writer:
        writer.write_table(table)
        for piece in pieces:
            writer.write_table(pyarrow.Table.from_pandas(piece, schema=table.schema, preserve_index=False))
            n_rows += len(piece)
    return n_rows, list(first.columns)
