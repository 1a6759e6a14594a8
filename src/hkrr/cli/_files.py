"""Functions for the files and folders that are arguments of the commands."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from hkrr.cli._console import print_line

# Suffixes of the names of files that contain tables.
_TABLE_SUFFIXES = (".csv", ".tsv", ".parquet", ".pq")


def load_model(path: Path) -> Any:
    """Load a model from a file. If the file is a table, raise an error with a command that fits a model."""
    import hkrr

    try:
        return hkrr.load(path)
    except hkrr.ModelFileError:
        if path.name.lower().removesuffix(".gz").endswith(_TABLE_SUFFIXES):
            command = f"hkrr fit {shlex.quote(str(path))} --target COLUMN"
            raise ValueError(f"{path} is a table, not a model; to fit a model, run: {command}") from None
        raise


def check_output_file(option: str, path: Path) -> None:
    """Raise a ValueError if an output file cannot be written. `option` is the name of the command-line option.

    This check runs before a long computation.
    """
    if path.is_dir():
        raise ValueError(f"{option} {path}: this is a folder; give a file name")
    if not path.parent.is_dir():
        raise ValueError(f"{option} {path}: the folder {path.parent} does not exist; create it first")
    if not os.access(path.parent, os.W_OK) or (path.exists() and not os.access(path, os.W_OK)):
        raise ValueError(f"{option} {path}: you have no permission to write this file; choose another file")


def make_output_folder(console: Console, folder: Path) -> None:
    """Create the output folder of a command. If this is impossible, print the reason and exit with status 2."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"--out {folder}: the folder cannot be created ({error.strerror}); choose another folder."
        print_line(console, message, "red")
        raise typer.Exit(2) from None
