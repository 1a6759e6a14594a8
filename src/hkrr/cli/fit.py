"""``hkrr fit DATA``: a table in, a model and a summary out."""

from __future__ import annotations

import shlex
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console

from hkrr.cli._console import check_file, duration, errors_in_a_line, say, say_json

if TYPE_CHECKING:
    from hkrr.tables import Split, TableRegressor


def fit(
    data: Annotated[
        str, typer.Argument(help="CSV (or .csv.gz, .tsv) or Parquet file; - for standard input.", show_default=False)
    ],
    target: Annotated[
        str | None,
        typer.Option("--target", "-t", help="Column to predict; the last one by default.", show_default=False),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the model goes.")] = Path("model.hkrr"),
    test_share: Annotated[
        float, typer.Option(min=0.0, max=0.9, help="Share of the rows held out to test the model; 0 for none.")
    ] = 0.2,
    missing: Annotated[
        Literal["impute", "refuse"], typer.Option(help="Missing values: fill them in, or end with an error.")
    ] = "impute",
    drop: Annotated[
        list[str] | None, typer.Option(help="Column to leave out; several times, or with commas.", show_default=False)
    ] = None,
    kernel: Annotated[
        str,
        typer.Option(help="Kernel: gaussian, matern32, laplace, ..., or auto to choose it, and the map's shape."),
    ] = "auto",
    n_components: Annotated[
        int | None, typer.Option(min=1, help="Number of directions; chosen by default.", show_default=False)
    ] = None,
    time_limit: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            help="Seconds for all of it, about; half of them at least are the fit's. No limit by default.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of all that is drawn.")] = 0,
    n_jobs: Annotated[
        int | None, typer.Option(help="Processes at once; -1 for one on each core.", show_default=False)
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            help="File to keep the state in: after Ctrl-C or a kill the same command goes on from there.",
            show_default=False,
        ),
    ] = None,
    checkpoint_every: Annotated[float, typer.Option(min=0.0, help="Seconds between two writes of it.")] = 60.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, and nothing else.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors alone.")] = False,
) -> None:
    """Learn to predict a column of a table from the others.

    Text, dates and missing values are taken care of, and what was done to each
    column is said. Some rows are held out: the model's R2 there is shown beside
    that of tuned kernel ridge regression and of a linear model.

    hkrr fit houses.csv --target price -o houses.hkrr

    hkrr fit houses.parquet --drop id --drop name --time-limit 60
    """
    console, began = Console(), time.perf_counter()
    with errors_in_a_line(as_json):
        check_file("--out", out)
        if checkpoint is not None:
            check_file("--checkpoint", checkpoint)
        model = _model(
            missing,
            {"kernel": kernel, "n_components": n_components or "auto", "time_limit": time_limit, "n_jobs": n_jobs},
            {"checkpoint": checkpoint, "checkpoint_every": checkpoint_every, "random_state": seed},
        )
        split = prepare(data, target, drop or [], test_share, seed, model)
        view = None
        if not (as_json or quiet):
            _say_what(console, data, split, target is None)
            view = _view(Console(stderr=True), model, split)
        told = _fitted(model, view, split, out, began)
        seconds = time.perf_counter() - began
        if as_json:
            from hkrr.tables import describe

            say_json({**describe(model), "target": split.target, "warnings": told, "seconds": seconds, "out": str(out)})
        elif not quiet:
            _summary(console, model, told, seconds, out, data)


def prepare(
    data: str, target: str | None, drop: list[str], test_share: float, seed: int, model: TableRegressor
) -> Split:
    """Return the table of a file without the columns to leave out, its target, and the rows held out.

    What cannot be encoded is an error here, before minutes are spent: rows that are held out too. So is an option of
    the model that cannot be.
    """
    from hkrr.columns import nearest
    from hkrr.exceptions import TableError
    from hkrr.tables import hold_out, learn_encoder, read_table

    frame = read_table(data)
    drop = [name for each in drop for name in ([each] if each in frame.columns else map(str.strip, each.split(",")))]
    for name in drop:
        if name not in frame.columns:
            raise TableError(f"there is no column {name!r} to drop{nearest(name, list(frame.columns))}")
    frame = frame.drop(columns=drop)
    if frame.shape[1] == 0:
        raise TableError("no column is left: drop fewer")
    split = hold_out(frame, frame.columns[-1] if target is None else target, test_share, seed)
    encoded = learn_encoder(split.train, model.missing).transform(split.test)
    model.regressor._check(encoded.shape[1])
    return split


def _model(missing: Any, *settings: dict[str, Any]) -> TableRegressor:
    """Return the model to fit."""
    from hkrr import HyperKernelRidgeCV
    from hkrr.tables import TableRegressor

    options = {name: value for each in settings for name, value in each.items()}
    return TableRegressor(HyperKernelRidgeCV(**options), missing=missing)


def _view(console: Console, model: TableRegressor, split: Split) -> Any:
    """Return the view of the fit on a console."""
    from hkrr.cli._view import View

    options = model.regressor.get_params(deep=False)
    going_on = _going_on(options["checkpoint"])
    view = View(console, model, split, options["kernel"] == "auto", options["time_limit"], going_on)
    # A function, and not the view itself: estimators are copied before they are fitted, and a console cannot be.
    model.regressor.set_params(callbacks=[lambda state: view(state)])
    return view


def _going_on(checkpoint: Path | None) -> str:
    """Return what there is to say of a checkpoint that the fit goes on from."""
    from hkrr.checkpoints import recorded

    found = None if checkpoint is None else recorded(checkpoint)
    if found is None:
        return ""
    n_steps, ended = found
    done = "the fit had ended" if ended else f"it holds {n_steps:,} step{'s' if n_steps != 1 else ''} of the search"
    return f"going on from {checkpoint}: {done}"


def _fitted(model: TableRegressor, view: Any, split: Split, out: Path, began: float) -> list[str]:
    """Fit, compare and save the model; return what it was warned of. After Ctrl-C save the best so far, if any."""
    from contextlib import nullcontext

    import pandas as pd

    import hkrr
    from hkrr.checkpoints import kept_by
    from hkrr.exceptions import HKRRWarning
    from hkrr.tables import compare

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            with nullcontext() if view is None else view.shown():
                if view is not None and len(split.y_test):
                    view.trying("kernel ridge and a linear model, to compare with")
                others = _others(model, split)
                limit = model.regressor.time_limit
                if limit is not None:
                    left = round(limit - (time.perf_counter() - began), 1)
                    model.regressor.set_params(time_limit=max(left, limit / 2))
                try:
                    model.fit(split.train, pd.Series(split.y_train, name=split.target))
                finally:  # the file says what was asked for
                    for each in (model.regressor, vars(model).get("model_")):
                        if each is not None:
                            each.set_params(time_limit=limit)
        except KeyboardInterrupt as stop:
            if kept_by(stop) is not model:
                raise KeyboardInterrupt(_nothing_kept(model.regressor.checkpoint)) from None
            hkrr.save(model, out)
            kept = f"Stopped. The best model so far is in {out}; the same command goes on from its checkpoint."
            raise KeyboardInterrupt(kept) from None
        hkrr.save(model, out)  # now: whatever becomes of the scores, the model is not lost
        if len(split.y_test):
            try:
                model.held_out_ = compare(model, split, others)
                hkrr.save(model, out)
            except KeyboardInterrupt:
                raise KeyboardInterrupt(f"Stopped before the scores. The model is in {out}.") from None
            except (ValueError, ArithmeticError) as error:
                warnings.warn(f"There are no scores: {error}", HKRRWarning, stacklevel=2)
    return list(dict.fromkeys(" ".join(str(each.message).split()) for each in caught))


def _others(model: TableRegressor, split: Split) -> Any:
    """Return what others predict for the held-out rows: before the fit, which has the rest of the time."""
    from hkrr.tables import learn_encoder
    from hkrr.tables.comparison import predicted_by_others

    if not len(split.y_test):
        return None
    encoder = learn_encoder(split.train, model.missing)
    X, X_test = encoder.transform(split.train), encoder.transform(split.test)
    try:
        return predicted_by_others(X, split.y_train, X_test, split.seed)
    except (ValueError, ArithmeticError):  # of which the scores will speak
        return None


def _nothing_kept(checkpoint: Any) -> str:
    if checkpoint is None:
        more = "with --checkpoint FILE, Ctrl-C keeps the best model so far, and the same command goes on"
        return f"Stopped, and nothing is kept: {more}."
    return f"Stopped before there was a model to keep; the same command goes on from {checkpoint}."


def _say_what(console: Console, data: str, split: Split, is_last: bool) -> None:
    name = "standard input" if data == "-" else Path(data).name
    last = " (the last column; --target names another)" if is_last else ""
    n, n_test = len(split.y_train), len(split.y_test)
    say(console, f"{name}: predicting {split.target!r}{last} from {split.train.shape[1]} columns")
    held_out = f"{n_test:,} held out" if n_test else "none held out"
    say(console, f"{n:,} rows to learn from, {held_out}{f'; {split.about}' if split.about else ''}")


def _summary(console: Console, model: TableRegressor, told: list[str], seconds: float, out: Path, data: str) -> None:
    from hkrr.cli._summary import show_columns, show_findings, show_map, show_scores
    from hkrr.tables import describe

    found = describe(model)
    show_scores(console, model)
    show_map(console, found)
    show_columns(console, found)
    show_findings(console, told)
    say(console, f"\n{duration(seconds)}. The model is in {out}. Next:")
    say(
        console,
        f"  hkrr report {shlex.quote(str(out))} {'DATA.csv' if data == '-' else shlex.quote(data)} -o report.html",
    )
    say(console, f"  hkrr predict {shlex.quote(str(out))} NEW.csv -o predictions.csv")
