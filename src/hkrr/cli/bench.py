"""``hkrr bench PROBLEM...``: methods side by side, under equal rules."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from hkrr.bench import METHODS, pictures, report
from hkrr.bench.problems import PLANTED_SUITE, label, load_problem, planted_names
from hkrr.bench.results import results
from hkrr.bench.runner import Row, Rules, run_cells
from hkrr.cli._console import check_folder, in_words, progress_bar, say

_ON_THE_PAGE_ALONE = ("last fit", "MB", "failed")


def bench(
    problems: Annotated[
        list[str],
        typer.Argument(
            help="A planted model, such as sines:m=600,D=50,d=3,seed=0 (models: "
            f"{', '.join(planted_names())}); a table, prices.csv or prices.parquet, with :target=price if the target "
            "is not the last column; FOLDER:split=0 with data.csv.gz and test_mask.csv.gz in it; openml:NAME; or "
            "'planted' for all planted models of the report.",
            show_default=False,
        ),
    ],
    methods: Annotated[
        str, typer.Option(help=f"Names with commas between, or 'all': {', '.join(METHODS)}.")
    ] = "hkrr,krr,rfm,relu,random_forest,sk_krr",
    seconds: Annotated[float, typer.Option(min=1.0, help="Seconds for tuning and fitting, for every method.")] = 30.0,
    threads: Annotated[int, typer.Option(min=1, help="Threads, for every method.")] = 1,
    n_jobs: Annotated[int, typer.Option(min=1, help="Fits at once, each in a process of its own.")] = 1,
    limit: Annotated[float, typer.Option(min=1.0, help="Seconds after which a process is ended.")] = 600.0,
    out: Annotated[Path, typer.Option(help="Where bench.csv, README.md and the pictures go.")] = Path("bench"),
) -> None:
    """Run methods on problems: a CSV, a page and pictures. Ctrl-C keeps what is done; the same command goes on.

    Of a table, a fifth of the rows are test rows; rows with missing values are left out, and text becomes a column for
    each value. A name and seed=1 (or split=1) draws other rows; the page shows the mean over them.
    """
    console = Console()
    asked = _known(console, methods)
    names = _installed(console, asked)
    wanted = [each for problem in problems for each in (PLANTED_SUITE if problem == "planted" else (problem,))]
    about = _read_all(console, list(dict.fromkeys(wanted)))
    check_folder(console, out)
    rules = Rules(seconds, threads, limit)
    try:
        rows = _with_progress(console, wanted, names, rules, out / "bench.csv", n_jobs)
    except KeyboardInterrupt:
        say(console, f"Stopped. What is done is kept in {out / 'bench.csv'}: the same command goes on from there.")
        raise typer.Exit(130) from None
    except ValueError as error:  # the file that is there is of other columns
        say(console, f"{error}", "red")
        raise typer.Exit(2) from None
    _show(console, rows)
    page = write_page(rows, out, rules, about, [name for name in asked if name not in names])
    say(console, f"{out / 'bench.csv'}, {page}")
    if all(row.get("error") for row in rows):
        raise typer.Exit(1)


def _known(console: Console, methods: str) -> list[str]:
    """Return the methods asked for, each once, or say which there is none of and end with 2."""
    names = list(METHODS) if methods == "all" else [name.strip() for name in methods.split(",") if name.strip()]
    unknown = [name for name in names if name not in METHODS]
    if unknown or not names:
        say(console, f"There is no method {(unknown or [''])[0]!r}: choose from {', '.join(METHODS)}, or 'all'.", "red")
        raise typer.Exit(2)
    return list(dict.fromkeys(names))


def _installed(console: Console, names: list[str]) -> list[str]:
    """Return the methods whose packages are there, and say which are left out; end with 2 if all are."""
    missing = {name: packages for name in names if (packages := METHODS[name].missing())}
    if missing:
        packages = sorted({package for each in missing.values() for package in each})
        say(
            console,
            f"Left out: {', '.join(missing)} (not installed: {', '.join(packages)}; "
            f"python -m pip install {' '.join(packages)}).",
            "yellow",
        )
    if len(missing) == len(names):
        raise typer.Exit(2)
    return [name for name in names if name not in missing]


def _read_all(console: Console, problems: list[str]) -> list[str]:
    """Return what was made of each table, having said it; say why one cannot be read, before hours are spent."""
    labels: dict[str, str] = {}
    about = []
    for problem in problems:
        try:
            if (name := label(problem)) in labels:
                raise ValueError(f"{labels[name]!r} and {problem!r} are both called {name!r}: give one another name")
            labels[name] = problem
            found = load_problem(problem).about
        except (ValueError, OSError, ImportError) as error:
            say(console, f"{error}", "red")
            raise typer.Exit(2) from None
        if found:
            say(console, found)
            about.append(found)
    return about


def _show(console: Console, rows: list[Row]) -> None:
    """Print a line for each method, as much of the page's as a narrow terminal holds, and what failed."""
    lines = [
        {name: value.replace(" of ", "/") for name, value in line.items() if name not in _ON_THE_PAGE_ALONE}
        for line in report.summary(results(rows))
    ]
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="bold")
    for name in lines[0]:
        # Headings may wrap on a narrow terminal; names and numbers are shown whole.
        table.add_column(name, min_width=max(len(line[name]) for line in lines))
    for line in lines:
        table.add_row(*line.values())
    console.print(table)
    for row in rows:
        if row.get("error"):
            say(console, f"failed: {row['problem']} {row['method']}: {row['error']}", "yellow")


def write_page(rows: list[Row], out: Path, rules: Rules, about: list[str], missing: list[str]) -> Path:
    """Draw the pictures and write the page of these cells."""
    import matplotlib

    matplotlib.use("agg")
    command = " ".join(["hkrr", *(shlex.quote(_without_path(word)) for word in sys.argv[1:])])
    threads = "one thread" if rules.threads == 1 else f"{rules.threads} threads"
    budget = (
        f"For every method {rules.seconds:g} s of tuning and fitting and {threads}; a process for each fit, which is "
        f"ended after {rules.limit:g} s"
    )
    drawn = pictures.draw(rows, out)
    return report.write(rows, out, drawn, command=command, budget=budget, methods=METHODS, about=about, missing=missing)


def _without_path(word: str) -> str:
    """Return an argument as it can stand in a page that others read: a path without its folders."""
    return f"DIR/{Path(word).name}" if "/" in word else word


def _with_progress(
    console: Console, problems: list[str], methods: list[str], rules: Rules, path: Path, n_jobs: int
) -> list[Row]:
    """Run the cells under a bar that names the ones at work."""
    began, at_first = time.monotonic(), -1
    with progress_bar(console, "bench", "cells") as progress:
        task = progress.add_task("bench", total=None, left="")

        def show(done: int, total: int, what: str) -> None:
            nonlocal at_first
            at_first = done if at_first < 0 else at_first
            left = None
            if done > at_first:
                left = (time.monotonic() - began) / (done - at_first) * (total - done)
            progress.update(task, completed=done, total=total, left=f"{in_words(left, done == total)}  {what}")

        return run_cells(problems, methods, rules, path, n_jobs=n_jobs, on_progress=show)
