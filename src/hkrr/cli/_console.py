"""What the commands share: lines as they are, errors of one line, files that can be written, the time left."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

_TABLES = (".csv", ".tsv", ".parquet", ".pq")


def say(console: Console, text: str, style: str | None = None) -> None:
    """Print a line as it is: not wrapped, and no bracket of it read as markup."""
    console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def say_json(content: dict[str, Any]) -> None:
    """Print one JSON object."""
    typer.echo(json.dumps(content, indent=2, allow_nan=False))


@contextmanager
def errors_in_a_line(as_json: bool) -> Iterator[None]:
    """End a command with one line on what is wrong: status 2 for input that cannot be, 1 for a fit that failed."""
    from hkrr.exceptions import FitError

    def end(message: str, status: int) -> typer.Exit:
        if as_json:
            say_json({"error": message})
        else:
            say(Console(stderr=True), message, "red")
        return typer.Exit(status)

    try:
        yield
    except BrokenPipeError:  # whoever read has heard enough: typer knows what to do
        raise
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise end(f"{where}{error.strerror or error}", 2) from None
    except (FitError, ArithmeticError) as error:
        raise end(_one_line(error), 1) from None
    except MemoryError:
        raise end("There is not enough memory: give fewer rows or columns.", 1) from None
    except (ValueError, TypeError, ImportError) as error:
        raise end(_one_line(error), 2) from None
    except KeyboardInterrupt as error:
        raise end(_one_line(error) or "Stopped.", 130) from None


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


def load_model(path: Path) -> Any:
    """Return the model of a file; of a table say that it is one."""
    import hkrr

    try:
        return hkrr.load(path)
    except hkrr.ModelFileError:
        if path.name.lower().removesuffix(".gz").endswith(_TABLES):
            made = f"hkrr fit {shlex.quote(str(path))} --target COLUMN"
            raise ValueError(f"{path} is a table, and this takes a model: {made} makes one") from None
        raise


def check_file(option: str, path: Path) -> None:
    """Raise where a file cannot be written there: before hours are spent."""
    if path.is_dir():
        raise ValueError(f"{option} {path}: this is a folder; give the name of a file")
    if not path.parent.is_dir():
        raise ValueError(f"{option} {path}: there is no folder {path.parent}; make it first")
    if not os.access(path.parent, os.W_OK) or (path.exists() and not os.access(path, os.W_OK)):
        raise ValueError(f"{option} {path}: it cannot be written to; choose another folder")


def check_folder(console: Console, folder: Path) -> None:
    """Make the folder for a command's files, or say why it cannot be and end with 2."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        say(console, f"--out {folder}: no folder can be made there ({error.strerror}); give another.", "red")
        raise typer.Exit(2) from None


def progress_bar(console: Console, name: str, unit: str) -> Progress:
    """Return a bar that counts, with what is left in words (its field ``left``)."""
    return Progress(
        TextColumn(f"{name:17}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}", markup=False),
        console=console,
    )


def in_words(seconds_left: float | None, is_done: bool) -> str:
    """Return the time left, as one would say it."""
    if is_done:
        return "done"
    if seconds_left is None:
        return "the time left shows after the first run"
    return f"{duration(seconds_left)} left"


def duration(seconds: float) -> str:
    """Return a length of time, as one would say it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
