"""``hkrr reproduce NAME...``: run the experiments of the paper."""

from __future__ import annotations

import os
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from hkrr.cli._console import format_progress, print_line, progress_bar
from hkrr.cli._files import make_output_folder
from hkrr.experiments import NAMES, get_experiment
from hkrr.experiments.experiment_runner import Experiment, Outcome
from hkrr.experiments.experiment_runner import reproduce as reproduce_one

# Text styles of a claim that holds, does not hold, or is inconclusive.
_STYLES = {True: "green", False: "yellow", None: "dim"}


def reproduce(
    names: Annotated[
        list[str],
        typer.Argument(help=f"Names of experiments, or 'all'. Experiments: {', '.join(NAMES)}.", show_default=False),
    ],
    quick: Annotated[
        bool, typer.Option("--quick", help="Use small data sizes. The runs then take seconds instead of hours.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Output folder. Default: 'reproduced', or 'reproduced/quick' with --quick.", show_default=False
        ),
    ] = None,
    repeats: Annotated[
        int | None,
        typer.Option(min=1, help="Number of runs of each setting. Default: as in the paper.", show_default=False),
    ] = None,
    n_jobs: Annotated[int, typer.Option(help="Number of parallel runs; -1 for one per core.")] = 1,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of the random numbers. Experiments with a time limit are not reproducible.")
    ] = 0,
) -> None:
    """Run experiments of the paper. Each experiment writes a CSV file, a figure, and a text file with checked claims.

    After Ctrl-C, the finished runs are kept. Run the same command again to resume.
    """
    console = Console()
    if out is None:
        out = Path("reproduced", "quick") if quick else Path("reproduced")
    unknown = [name for name in names if name not in (*NAMES, "all")]
    if unknown:
        print_line(console, f"There is no experiment {unknown[0]!r}; choose from {', '.join(NAMES)}, or 'all'.")
        raise typer.Exit(2)
    if n_jobs == 0:
        print_line(console, "--n-jobs must not be 0; give the number of parallel runs, or -1 for one per core.")
        raise typer.Exit(2)
    make_output_folder(console, out)
    if n_jobs > (os.cpu_count() or 1):
        print_line(
            console,
            f"{n_jobs} parallel runs on {os.cpu_count()} cores: runs with a time limit do fewer iterations.",
        )
    if quick:
        print_line(
            console,
            "The data sizes of --quick are too small to check the claims of the paper. Use --quick for trials only.",
        )
    failed = False
    for name in NAMES if "all" in names else dict.fromkeys(names):
        experiment = get_experiment(name)
        config = experiment.Config.quick(seed=seed) if quick else experiment.Config(seed=seed)
        if repeats is not None and any(field.name == "repeats" for field in fields(config)):
            config = replace(config, repeats=repeats)
        try:
            outcome = _with_progress(console, name, experiment, config, out, n_jobs)
        except KeyboardInterrupt:
            print_line(console, f"Stopped. Finished runs are kept in {out}. Run the same command again to resume.")
            raise typer.Exit(130) from None
        except RuntimeError as error:  # all runs of the experiment failed
            print_line(console, f"  {error}", "red")
            failed = True
            continue
        for claim in outcome.claims:
            print_line(console, f"  {claim}", _STYLES[claim.holds])
        if outcome.failures:
            n = len(outcome.failures)
            print_line(console, f"  {n} run{'s' if n > 1 else ''} failed. First failure: {outcome.failures[0]}", "red")
            failed = True
        print_line(console, f"  {outcome.csv}, {outcome.picture.name}, {outcome.csv.with_suffix('.txt').name}")
    if failed:
        raise typer.Exit(1)


def _with_progress(console: Console, name: str, experiment: Experiment, config: Any, out: Path, n_jobs: int) -> Outcome:
    """Run an experiment with a progress bar, and return its outcome."""
    with progress_bar(console, name, "runs") as progress:
        task = progress.add_task(name, total=None, left="")

        def show(done: int, total: int, seconds_left: float | None) -> None:
            progress.update(task, completed=done, total=total, left=format_progress(seconds_left, done == total))

        return reproduce_one(name, experiment, config, out, n_jobs=n_jobs, on_progress=show)
