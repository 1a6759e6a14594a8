"""What the commands share: lines as they are, and a bar with the time left."""

from __future__ import annotations

from pathlib import Path

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


def say(console: Console, text: str, style: str | None = None) -> None:
    """Print a line as it is: not wrapped, and no bracket of it read as markup."""
    console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


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
    if seconds_left < 90:
        return f"{seconds_left:.0f} s left"
    return f"{seconds_left / 60:.0f} min left" if seconds_left < 5400 else f"{seconds_left / 3600:.1f} h left"
