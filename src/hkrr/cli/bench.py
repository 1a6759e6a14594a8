"""``hkrr bench PROBLEM...``: methods side by side, under equal rules."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from hkrr.bench import METHODS, pictures, report
from hkrr.bench.problems import PLANTED_SUITE, load_problem
from hkrr.bench.runner import Row, Rules, read, run_cells
from hkrr.cli._console import check_folder, in_words, progress_bar, say


def bench(
    problems: Annotated[
        list[str],
        typer.Argument(
            help="Such as sines:m=600,D=50 (a planted model), prices.csv:target=price, FOLDER:split=0, openml:NAME; "
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
    """Run methods on problems: a CSV, a page and pictures. Ctrl-C keeps what is done; the same command goes on."""
    console = Console()
    names = list(METHODS) if methods == "all" else [name.strip() for name in methods.split(",") if name.strip()]
    unknown = [name for name in names if name not in METHODS]
    if unknown or not names:
        say(console, f"There is no method {(unknown or [''])[0]!r}: choose from {', '.join(METHODS)}, or 'all'.")
        raise typer.Exit(2)
    wanted = [each for problem in problems for each in (PLANTED_SUITE if problem == "planted" else (problem,))]
    for problem in dict.fromkeys(wanted):
        try:
            load_problem(problem)
        except Exception as error:  # whatever keeps a problem from being read: said before hours are spent
            say(console, f"{error}", "red")
            raise typer.Exit(2) from None
    check_folder(console, out)
    rules = Rules(seconds, threads, limit)
    try:
        rows = _with_progress(console, wanted, names, rules, out / "bench.csv", n_jobs)
    except KeyboardInterrupt:
        say(console, f"Stopped. What is done is kept in {out / 'bench.csv'}: the same command goes on from there.")
        raise typer.Exit(130) from None
    for line in report.markdown(report.summary(report.results(rows))):
        say(console, line)
    for row in rows:
        if row.get("error"):
            say(console, f"failed: {row['problem']} {row['method']}: {row['error']}", "yellow")
    same = {"budget": str(rules.seconds), "threads": str(rules.threads)}
    there = [row for row in read(out / "bench.csv") if all(row[key] == value for key, value in same.items())]
    page = write_page(there, out, rules)
    say(console, f"{out / 'bench.csv'}, {page}")


def write_page(rows: list[Row], out: Path, rules: Rules) -> Path:
    """Draw the pictures and write the page of all cells under these rules."""
    import matplotlib

    matplotlib.use("agg")
    command = " ".join(["hkrr", *(shlex.quote(_without_path(word)) for word in sys.argv[1:])])
    budget = f"{rules.seconds:g} s of tuning and fitting, {rules.threads} thread(s), a process for each fit"
    return report.write(rows, out, pictures.draw(rows, out), command, budget)


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
