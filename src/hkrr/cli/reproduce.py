"""``hkrr reproduce NAME...``: the paper's experiments."""

from __future__ import annotations

import os
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from hkrr.cli._console import check_folder, in_words, progress_bar, say
from hkrr.experiments import NAMES, get_experiment
from hkrr.experiments.base import Outcome
from hkrr.experiments.base import reproduce as reproduce_one

_STYLES = {True: "green", False: "yellow", None: "dim"}


def reproduce(
    names: Annotated[list[str], typer.Argument(help=f"Experiments, or 'all': {', '.join(NAMES)}.", show_default=False)],
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes: seconds instead of hours.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Where the files go; 'reproduced' by default, 'reproduced/quick' with --quick.", show_default=False
        ),
    ] = None,
    repeats: Annotated[
        int | None, typer.Option(min=1, help="Runs of each setting; the paper's number by default.", show_default=False)
    ] = None,
    n_jobs: Annotated[int, typer.Option(help="Runs at once, a core each; -1 for all cores.")] = 1,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of all that is drawn. (Runs with a limit of time differ all the same.)")
    ] = 0,
) -> None:
    """Run the paper's experiments: a CSV, a picture and a TXT with the claims each. Ctrl-C keeps what is done."""
    console = Console()
    if out is None:
        out = Path("reproduced", "quick") if quick else Path("reproduced")
    unknown = [name for name in names if name not in (*NAMES, "all")]
    if unknown:
        say(console, f"There is no experiment {unknown[0]!r}: choose from {', '.join(NAMES)}, or 'all'.")
        raise typer.Exit(2)
    if n_jobs == 0:
        say(console, "--n-jobs must not be 0: give the number of runs at once, or -1 for one on each core.")
        raise typer.Exit(2)
    check_folder(console, out)
    if n_jobs > (os.cpu_count() or 1):
        say(console, f"{n_jobs} runs at once on {os.cpu_count()} cores: those with a limit of time will do less in it.")
    if quick:
        say(console, "Small runs, to try things out: what they say of the paper's claims means little.")
    failed = False
    for name in NAMES if "all" in names else dict.fromkeys(names):
        experiment = get_experiment(name)
        config = experiment.Config.quick(seed=seed) if quick else experiment.Config(seed=seed)
        if repeats is not None and any(field.name == "repeats" for field in fields(config)):
            config = replace(config, repeats=repeats)
        try:
            outcome = _with_progress(console, name, experiment, config, out, n_jobs)
        except KeyboardInterrupt:
            say(console, f"Stopped. What is done is kept in {out}: the same command goes on from there.")
            raise typer.Exit(130) from None
        except RuntimeError as error:  # not one run ended
            say(console, f"  {error}", "red")
            failed = True
            continue
        for claim in outcome.claims:
            say(console, f"  {claim}", _STYLES[claim.holds])
        if outcome.failures:
            say(console, f"  {len(outcome.failures)} runs failed. The first, {outcome.failures[0]}", "red")
            failed = True
        say(console, f"  {outcome.csv}, {outcome.picture.name}, {outcome.csv.with_suffix('.txt').name}")
    if failed:
        raise typer.Exit(1)


def _with_progress(console: Console, name: str, experiment: Any, config: Any, out: Path, n_jobs: int) -> Outcome:
    """Run an experiment under a bar with the time left."""
    with progress_bar(console, name, "runs") as progress:
        task = progress.add_task(name, total=None, left="")

        def show(done: int, total: int, seconds_left: float | None) -> None:
            progress.update(task, completed=done, total=total, left=in_words(seconds_left, done == total))

        return reproduce_one(name, experiment, config, out, n_jobs=n_jobs, on_progress=show)
