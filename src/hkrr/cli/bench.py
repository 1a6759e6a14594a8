"""``hkrr bench PROBLEM...``: compare methods on the same data, with the same time limit and number of threads."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from hkrr.bench import METHODS, figures, report
from hkrr.bench.benchmark_runner import Row, Rules, run_cells
from hkrr.bench.method_interface import CLASSIFICATION, REGRESSION
from hkrr.bench.problems import PLANTED_SUITE, SKLEARN, label, load_problem, planted_names
from hkrr.bench.ranking import groups
from hkrr.cli._console import format_progress, print_line, progress_bar
from hkrr.cli._files import make_output_folder

# Columns of the table of results that are written to README.md, but not printed on the terminal.
_HIDDEN_COLUMNS = ("last fit", "MB", "failed")
# The words that select groups of methods.
_FAST = ("hkrr_ensemble", "hkrr_classifier", "ridge", "logistic", "krr", "svc", "random_forest", "hist_boosting")
_GROUPS = {
    "fast": (*_FAST, "catboost", "lightgbm"),
    "tables": (
        *(*_FAST, "hkrr", "hkrr_auto", "catboost", "catboost_td", "lightgbm", "lightgbm_td", "xgboost", "xgboost_td"),
        *("realmlp_td", "xrfm_d", "xrfm", "xrfm_tuned", "gpytorch_ard"),
    ),
    "all": tuple(METHODS),
}


def bench(
    problems: Annotated[
        list[str],
        typer.Argument(
            help="One or more problems. A problem is a planted model (synthetic data with known directions) such as "
            f"sines:m=600,D=50,d=3,seed=0 with m training rows, D columns and d directions (models: "
            f"{', '.join(planted_names())}); a table such as prices.csv or prices.parquet, followed by :target=price "
            "if the target is not the last column; FOLDER:split=0 for a folder with data.csv.gz and test_mask.csv.gz; "
            f"{', '.join(f'sklearn:{each}' for each in SKLEARN)}; or openml:NAME for a data set of OpenML. 'planted' "
            f"stands for the {len(PLANTED_SUITE)} planted models of the published benchmark.",
            show_default=False,
        ),
    ],
    methods: Annotated[
        str,
        typer.Option(
            help="Names of methods separated by commas, or 'fast' (methods that are quickly fitted), 'tables' (the "
            f"methods of the published benchmark of tables) or 'all'. Methods: {', '.join(METHODS)}. Each method runs "
            "on the problems that it is made for: regression, classes or both."
        ),
    ] = "fast",
    seconds: Annotated[
        float, typer.Option(min=1.0, help="Time limit for tuning, fitting and predicting, the same for each method.")
    ] = 30.0,
    threads: Annotated[int, typer.Option(min=1, help="Threads for each method.")] = 2,
    n_jobs: Annotated[int, typer.Option(min=1, help="Number of parallel fits, each in its own process.")] = 1,
    out: Annotated[Path, typer.Option(help="Output folder for bench.csv, README.md and the figures.")] = Path("bench"),
) -> None:
    """Compare methods on problems, and write the results to a CSV file, a page and figures.

    A fifth of the rows of a table are test rows. For FOLDER:split=k, column k
    of test_mask.csv.gz marks the test rows. Whether the target contains
    numbers or classes is inferred, and printed; :task=regression or
    :task=classification overrides it. Each method handles text and missing
    values in its own way. A different seed or split gives different training
    and test rows. If a problem is given with several seeds, the page shows the
    mean over the seeds. A method that exceeds the time limit by more than a
    twentieth and a second is killed, and ranked last. After Ctrl-C, the
    finished fits are kept. Run the same command again to resume.
    """
    console = Console()
    requested = _known_methods(console, methods)
    names = _installed_methods(console, requested)
    wanted = [each for problem in problems for each in (PLANTED_SUITE if problem == "planted" else (problem,))]
    about = _check_problems(console, list(dict.fromkeys(wanted)), names)
    make_output_folder(console, out)
    rules = Rules(seconds, threads)
    try:
        rows = _with_progress(console, wanted, names, rules, out / "bench.csv", n_jobs)
    except KeyboardInterrupt:
        print_line(
            console, f"Stopped. Finished fits are kept in {out / 'bench.csv'}. Run the same command again to resume."
        )
        raise typer.Exit(130) from None
    except ValueError as error:  # the existing bench.csv has different columns
        print_line(console, f"{error}", "red")
        raise typer.Exit(2) from None
    _print_results(console, rows)
    page = write_page(rows, out, rules, about, [name for name in requested if name not in names])
    print_line(console, f"{out / 'bench.csv'}, {page}")
    if all(row.get("error") for row in rows):
        raise typer.Exit(1)


def _known_methods(console: Console, methods: str) -> list[str]:
    """Return the requested methods without duplicates. If one is unknown, print an error and exit with status 2."""
    given = [name.strip() for name in methods.split(",") if name.strip()]
    names = [each for name in given for each in _GROUPS.get(name, (name,))]
    unknown = [name for name in names if name not in METHODS]
    if unknown or not names:
        print_line(
            console,
            f"There is no method {(unknown or [''])[0]!r}; choose from {', '.join(METHODS)}, or use --methods "
            f"{', '.join(_GROUPS)}.",
            "red",
        )
        raise typer.Exit(2)
    return list(dict.fromkeys(names))


def _installed_methods(console: Console, names: list[str]) -> list[str]:
    """Return the methods whose packages are installed, and print the missing packages of the other methods.

    If no method is installed, exit with status 2.
    """
    missing = {name: packages for name in names if (packages := METHODS[name].missing())}
    if missing:
        packages = sorted({package for each in missing.values() for package in each})
        print_line(
            console,
            f"Skipped: {', '.join(missing)} (not installed: {', '.join(packages)}; "
            f"run python -m pip install {' '.join(packages)}).",
            "yellow",
        )
    if len(missing) == len(names):
        raise typer.Exit(2)
    return [name for name in names if name not in missing]


def _check_problems(console: Console, problems: list[str], methods: list[str]) -> list[str]:
    """Load each problem, to detect errors before the fits. Print and return the descriptions of the tables.

    If a problem cannot be loaded, or if no method suits its task, print the reason and exit with status 2.
    """
    labels: dict[str, str] = {}
    about = []
    for problem in problems:
        try:
            if (name := label(problem)) in labels:
                raise ValueError(
                    f"{labels[name]!r} and {problem!r} have the same name {name!r}; rename one of the files"
                )
            labels[name] = problem
            loaded = load_problem(problem)
            task, description = CLASSIFICATION if loaded.n_classes else REGRESSION, loaded.about
            if not any(task in METHODS[each].tasks for each in methods):
                suitable = ", ".join(each for each, method in METHODS.items() if task in method.tasks)
                raise ValueError(
                    f"problem {problem!r}: none of the methods is made for {task}; choose --methods from {suitable}"
                )
        except (ValueError, OSError, ImportError) as error:
            print_line(console, f"{error}", "red")
            raise typer.Exit(2) from None
        if description:
            print_line(console, description)
            about.append(description)
    return about


def _print_results(console: Console, rows: list[Row]) -> None:
    """Print a table with the main results of each method, then the fits that failed."""
    for heading, results in groups(rows).items():
        lines = [
            {name: value.replace(" of ", "/") for name, value in line.items() if name not in _HIDDEN_COLUMNS}
            for line in report.summary(results)
        ]
        table = Table(title=heading, title_justify="left", box=None, padding=(0, 1), pad_edge=False)
        for name in lines[0]:
            # On a narrow terminal, headings may be wrapped, but names and numbers must not be.
            table.add_column(name, min_width=max(len(line[name]) for line in lines))
        for line in lines:
            table.add_row(*line.values())
        console.print(table)
    for row in rows:
        if row.get("error"):
            print_line(console, f"failed: {row['problem']} {row['method']}: {row['error']}", "yellow")


def write_page(rows: list[Row], out: Path, rules: Rules, about: list[str], missing: list[str]) -> Path:
    """Draw the figures, write the page with the results, and return its path."""
    import matplotlib

    matplotlib.use("agg")
    command = " ".join(["hkrr", *(shlex.quote(_without_path(word)) for word in sys.argv[1:])])
    threads = "one thread" if rules.threads == 1 else f"{rules.threads} threads"
    budget = (
        f"Each method has {rules.seconds:g} s for tuning, fitting and predicting, and {threads}. Each fit runs in its "
        f"own process, which is killed after {rules.most_seconds:g} s"
    )
    drawn = figures.draw(rows, out)
    return report.write(rows, out, drawn, command=command, budget=budget, methods=METHODS, about=about, missing=missing)


def _without_path(word: str) -> str:
    """Return a command-line argument for the page. If it is a path, its folders are replaced by DIR."""
    return f"DIR/{Path(word).name}" if "/" in word else word


def _with_progress(
    console: Console, problems: list[str], methods: list[str], rules: Rules, path: Path, n_jobs: int
) -> list[Row]:
    """Run the fits with a progress bar that names the fits in progress, and return the results."""
    start, n_at_start = time.monotonic(), -1
    with progress_bar(console, "bench", "fits") as progress:
        task = progress.add_task("bench", total=None, left="")

        def show(done: int, total: int, running: str) -> None:
            nonlocal n_at_start
            n_at_start = done if n_at_start < 0 else n_at_start
            left = None
            if done > n_at_start:
                left = (time.monotonic() - start) / (done - n_at_start) * (total - done)
            progress.update(
                task, completed=done, total=total, left=f"{format_progress(left, done == total)}  {running}"
            )

        return run_cells(problems, methods, rules, path, n_jobs=n_jobs, on_progress=show)
