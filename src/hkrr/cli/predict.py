"""``hkrr predict MODEL DATA``: predictions with intervals, a row for each row."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from hkrr.cli._console import check_file, errors_in_a_line, load_model, say, say_json

_COVERAGE = 0.9
_SUFFIXES = (".csv", ".parquet", ".pq")


def predict(
    model: Annotated[Path, typer.Argument(help="The model: a file of hkrr fit, or of hkrr.save.", show_default=False)],
    data: Annotated[str, typer.Argument(help="CSV or Parquet file; - for standard input.", show_default=False)],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="CSV or Parquet file; standard output by default.", show_default=False),
    ] = None,
    coverage: Annotated[
        float | None,
        typer.Option(
            min=0.01, max=0.999, help=f"Share of rows that intervals hold; {_COVERAGE} by default.", show_default=False
        ),
    ] = None,
    no_intervals: Annotated[
        bool, typer.Option("--no-intervals", help="Leave out the columns lower and upper.")
    ] = False,
    std: Annotated[bool, typer.Option("--std", help="Add a column with standard deviations.")] = False,
    keep: Annotated[
        list[str] | None,
        typer.Option(help="Column of the table to carry over; several times, or with commas.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object (with -o).")] = False,
) -> None:
    """Predict the rows of a table with a model, and say how sure that is.

    There is a row for each row, in their order, with the columns prediction,
    lower and upper; of a classifier with the label and the probability of each
    class. Columns of the table are taken by name, in any order;
    others are ignored. A big file is read in pieces.

    hkrr predict houses.hkrr new.csv -o predictions.csv --keep id

    cat new.csv | hkrr predict houses.hkrr - --no-intervals
    """
    with errors_in_a_line(as_json):
        if no_intervals and coverage is not None:
            raise ValueError("give one of --coverage and --no-intervals")
        if as_json and out is None:
            raise ValueError("--json needs -o: standard output is one JSON object then")
        if out is not None:
            check_file("--out", out)
            if out.suffix.lower() not in _SUFFIXES:
                raise ValueError(f"--out {out}: give a name that ends with {', '.join(_SUFFIXES)}")
        columns = [name.strip() for each in keep or [] for name in each.split(",") if name.strip()]
        asked = None if no_intervals else coverage or _COVERAGE
        pieces = _predicted(model, data, asked, coverage is not None, std, columns, as_json)
        n_rows, names = _write(pieces, out)
        if as_json:
            say_json({"rows": n_rows, "columns": names, "out": str(out)})
        elif out is not None:
            say(Console(), f"{n_rows:,} rows in {out}: {', '.join(names)}")


def _predicted(
    path: Path, data: str, coverage: float | None, insisted: bool, std: bool, keep: list[str], as_json: bool
) -> Iterator[Any]:
    """Yield the predictions, piece by piece; without intervals where the model has none and nobody insisted."""
    from hkrr.exceptions import TableError
    from hkrr.tables import predict_frame, read_pieces

    model = load_model(path)
    if hasattr(model, "predict_proba") and not insisted:
        coverage = None  # probabilities are in their place
    for piece in read_pieces(data):
        try:
            yield predict_frame(model, piece, coverage=coverage, std=std, keep=keep)
        except TableError:
            raise
        except ValueError as error:
            why = _why(error, path)
            if coverage is None or insisted:
                raise ValueError(why) from None
            coverage, found = None, predict_frame(model, piece, std=std, keep=keep)
            if not as_json:
                say(Console(stderr=True), f"No intervals: {' '.join(why.split())}", "yellow")
            yield found


def _why(error: ValueError, path: Path) -> str:
    """Return what is wrong, with what can be done about it on the command line."""
    from hkrr.conformal import TooFewScores

    if not isinstance(error, TooFewScores):
        return str(error)
    most = math.floor(1000 * error.n / (error.n + 1)) / 1000
    return (
        f"--coverage {error.coverage:g} takes {error.least:,} distinct rows to tell by, and this model has {error.n:,}"
        f": give --coverage {most:g} or less, fit to more rows, or calibrate it in Python with rows that it has not "
        f"seen, hkrr.load({str(path)!r}).calibrate(X, y)"
    )


def _write(pieces: Iterator[Any], out: Path | None) -> tuple[int, list[str]]:
    """Write the pieces one after the other; a file is there whole, or as it was."""
    from hkrr.disk import replacing

    pieces = chain([next(pieces)], pieces)  # what is wrong with the table shows before anything is written
    if out is None:
        return _write_csv(pieces, sys.stdout)
    with replacing(out) as temporary:
        if out.suffix.lower() != ".csv":
            return _write_parquet(pieces, temporary)
        with open(temporary, "x", encoding="utf-8", newline="") as file:
            return _write_csv(pieces, file)


def _write_csv(pieces: Iterator[Any], file: Any) -> tuple[int, list[str]]:
    n_rows, names = 0, list[str]()
    for piece in pieces:
        piece.to_csv(file, index=False, header=n_rows == 0, lineterminator="\n")
        n_rows, names = n_rows + len(piece), list(piece.columns)
    file.flush()
    return n_rows, names


def _write_parquet(pieces: Iterator[Any], path: Path) -> tuple[int, list[str]]:
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
