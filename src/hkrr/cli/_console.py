"""Functions shared by the commands: printing, one-line errors, progress bars and durations."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


def print_line(console: Console, text: str, style: str | None = None) -> None:
    """Print text without wrapping lines and without interpreting brackets as markup."""
    console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def print_json(content: dict[str, Any]) -> None:
    """Print a JSON object."""
    typer.echo(json.dumps(content, indent=2, allow_nan=False))


@contextmanager
def one_line_errors(as_json: bool) -> Iterator[None]:
    """Print errors raised in the context as one line (or as a JSON object), and exit with a status code.

    The code is 2 for invalid input, 1 for a failed fit or too little memory, and 130 after Ctrl-C.
    """
    from hkrr.exceptions import FitError

    def exit_with(message: str, status: int) -> typer.Exit:
        if as_json:
            print_json({"error": message})
        else:
            print_line(Console(stderr=True), message, "red")
        return typer.Exit(status)

    try:
        yield
    except BrokenPipeError:  # the program that reads the output has closed the pipe; typer handles this error
        raise
    except OSError as error:
        file = f"{error.filename}: " if error.filename else ""
        raise exit_with(f"{file}{error.strerror or error}", 2) from None
    except (FitError, ArithmeticError) as error:
        raise exit_with(_one_line(error), 1) from None
    except MemoryError:
        raise exit_with("Not enough memory; use fewer rows or columns.", 1) from None
    except (ValueError, TypeError, ImportError) as error:
        raise exit_with(_one_line(error), 2) from None
    except KeyboardInterrupt as error:
        raise exit_with(_one_line(error) or "Stopped.", 130) from None


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


def progress_bar(console: Console, name: str, unit: str) -> Progress:
    """Return a progress bar that shows the number of finished units, the elapsed time and the remaining time.

    The remaining time is a string, which the caller sets as the field ``left`` of the task.
    """
    return Progress(
        TextColumn(f"{name:17}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}", markup=False),
        console=console,
    )


def format_progress(seconds_left: float | None, is_done: bool) -> str:
    """Return the remaining time as text for a progress bar. `seconds_left` is None until the first run is finished."""
    if is_done:
        return "done"
    if seconds_left is None:
        return "time left is shown after the first run"
    return f"{format_duration(seconds_left)} left"


def format_duration(seconds: float) -> str:
    """Return a duration as text, in seconds, minutes or hours."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
