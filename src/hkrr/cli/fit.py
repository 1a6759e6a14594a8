"""``hkrr fit DATA``: fit a model to a table, save it, and print a summary."""

from __future__ import annotations

import shlex
import time
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from sklearn.base import BaseEstimator

from hkrr.cli._console import format_duration, one_line_errors, print_json, print_line
from hkrr.cli._files import check_output_file

if TYPE_CHECKING:
    from hkrr import HyperKernelEnsemble, HyperKernelRidgeCV
    from hkrr._base.linear_algebra import Array
    from hkrr.cli._live_view import View
    from hkrr.tables import Split, TableClassifier, TableRegressor


def fit(
    data: Annotated[
        str,
        typer.Argument(help="CSV (also .csv.gz, .tsv) or Parquet file, or - for standard input.", show_default=False),
    ],
    target: Annotated[
        str | None,
        typer.Option("--target", "-t", help="Column to predict. Default: the last column.", show_default=False),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="File to save the model to.")] = Path("model.hkrr"),
    test_share: Annotated[
        float, typer.Option(min=0.0, max=0.9, help="Fraction of the rows to hold out for testing; 0 for none.")
    ] = 0.2,
    task: Annotated[
        Literal["auto", "regression", "classification"],
        typer.Option(help="Whether to predict numbers or classes. 'auto' decides by the values of the target."),
    ] = "auto",
    missing: Annotated[
        Literal["impute", "refuse"],
        typer.Option(help="'impute' replaces missing values; 'refuse' stops with an error if a value is missing."),
    ] = "impute",
    drop: Annotated[
        list[str] | None,
        typer.Option(help="Column to ignore. Repeat the option, or separate names by commas.", show_default=False),
    ] = None,
    kernel: Annotated[
        str | None,
        typer.Option(
            help="Fit one model with this kernel: gaussian, matern32, laplace, ..., or 'auto' for the best kernel. "
            "Default: a weighted sum of models with different kernels and maps.",
            show_default=False,
        ),
    ] = None,
    n_components: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Fit one model with this number of directions. Default: chosen from the data.",
            show_default=False,
        ),
    ] = None,
    time_limit: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            help="Approximate limit in seconds for the whole command. The fit itself gets at least half of the limit. "
            "Default: no limit.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of the random numbers.")] = 0,
    n_jobs: Annotated[
        int | None, typer.Option(help="Number of parallel processes; -1 for one per core.", show_default=False)
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            help="File for the state of the fit. After Ctrl-C or a crash, the same command resumes from this file.",
            show_default=False,
        ),
    ] = None,
    checkpoint_every: Annotated[float, typer.Option(min=0.0, help="Seconds between checkpoints.")] = 60.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")] = False,
) -> None:
    """Fit a model that predicts one column of a table from the other columns.

    Text, dates and missing values are handled automatically, and the summary
    shows how each column was encoded. Some rows are held out for testing. The
    summary compares the R2 of the model on these rows with the R2 of tuned
    kernel ridge regression and of a linear model.

    If the target contains text, booleans, two values or a few whole numbers,
    its values are classes, and the model predicts their probabilities. The
    summary then compares accuracy and log loss with logistic regression.

    hkrr fit houses.csv --target price -o houses.hkrr

    hkrr fit houses.parquet --drop id --drop name --time-limit 60
    """
    console, start = Console(), time.perf_counter()
    with one_line_errors(as_json):
        from hkrr.tables import describe

        check_output_file("--out", out)
        if checkpoint is not None:
            check_output_file("--checkpoint", checkpoint)
        split = read_split(data, target, drop or [], test_share, seed, task)
        settings = {
            "time_limit": time_limit,
            "checkpoint": checkpoint,
            "checkpoint_every": checkpoint_every,
            "n_jobs": n_jobs,
            "random_state": seed,
        }
        model = _table_model(split, kernel, n_components, missing, settings)
        view = None
        if not (as_json or quiet):
            _print_task(console, data, split, is_default_target=target is None)
            view = _make_view(Console(stderr=True), model, split)
        messages = _fit_and_save(model, view, split, out, start)
        if as_json:
            result = {
                "target": split.target,
                "task": split.task.kind,
                "warnings": messages,
                "out": str(out),
            }
            content = describe(model)  # computing the importances takes time
            print_json({**content, **result, "seconds": time.perf_counter() - start})
        elif not quiet:
            _print_summary(console, model, messages, start, out, data)


def _table_model(
    split: Split,
    kernel: str | None,
    n_components: int | None,
    missing: Literal["impute", "refuse"],
    settings: dict[str, Any],
) -> TableRegressor | TableClassifier:
    """Return the model to fit to the table, before the fit.

    Raise an error if the rows contain invalid values or if a parameter of the model is invalid, so that the user sees
    the error before the fit starts.
    """
    import hkrr
    from hkrr.tables import learn_encoder
    from hkrr.tables.task import are_numbers

    encoded = learn_encoder(split.train, missing).transform(split.test)
    if split.task.of_classes:
        if kernel is not None or n_components is not None:
            reason = f" ({split.task.reason})" if split.task.reason else ""
            advice = ", or use --task regression" if are_numbers(split.y_train) else ""
            raise ValueError(
                "--kernel and --n-components are for regression, but the values of the target are classes"
                f"{reason}; leave these options out{advice}"
            )
        classifier = hkrr.HyperKernelClassifier(**settings)
        classifier.check_parameters(encoded.shape[1])
        return hkrr.TableClassifier(classifier, missing=missing)
    regressor: HyperKernelEnsemble | HyperKernelRidgeCV = hkrr.HyperKernelEnsemble(**settings)
    if kernel is not None or n_components is not None:
        regressor = hkrr.HyperKernelRidgeCV(n_components=n_components or "auto", kernel=kernel or "auto", **settings)
    regressor.check_parameters(encoded.shape[1])
    return hkrr.TableRegressor(regressor, missing=missing)


def read_split(
    data: str,
    target: str | None,
    drop: list[str],
    test_share: float,
    seed: int,
    task: Literal["auto", "regression", "classification"] = "auto",
) -> Split:
    """Read a table, drop columns, and split the table into training and held-out rows."""
    from hkrr.exceptions import TableError
    from hkrr.tables import hold_out, read_table
    from hkrr.tables.encoding import suggest_names

    frame = read_table(data)
    drop = [name for each in drop for name in ([each] if each in frame.columns else map(str.strip, each.split(",")))]
    for name in drop:
        if name not in frame.columns:
            raise TableError(f"there is no column {name!r} to drop{suggest_names(name, list(frame.columns))}")
    frame = frame.drop(columns=drop)
    if frame.shape[1] == 0:
        raise TableError("--drop removes all columns; drop fewer columns")
    return hold_out(frame, frame.columns[-1] if target is None else target, test_share, seed, task)


def _make_view(console: Console, model: TableRegressor | TableClassifier, split: Split) -> View:
    """Create the live display of the fit, add it to the callbacks of the model, and return it."""
    from hkrr.cli._live_view import View

    inner = _inner(model)
    options = inner.get_params(deep=False)
    resume_message = _resume_message(options["checkpoint"])
    any_kernel = options.get("kernel", "auto") == "auto"
    view = View(console, model, split, any_kernel, options["time_limit"], resume_message)
    # The estimator and its callbacks are copied before the fit. A view contains a console, which cannot be copied, so
    # the callback is a function that calls the view.
    inner.set_params(callbacks=[lambda state: view(state)])
    return view


def _inner(model: TableRegressor | TableClassifier) -> BaseEstimator:
    """Return the unfitted estimator that is a parameter of the model."""
    return model.regressor if hasattr(model, "regressor") else model.classifier


def _resume_message(checkpoint: Path | None) -> str:
    """Return a message about the checkpoint from which the fit resumes, or "" if the fit does not resume."""
    from hkrr._storage.checkpoint import recorded

    found = None if checkpoint is None else recorded(checkpoint)
    if found is None:
        return ""
    n_steps, is_finished = found
    steps = f"{n_steps:,} step{'s' if n_steps != 1 else ''} of the search"
    return f"Resuming from {checkpoint}: {'the fit is finished' if is_finished else f'the file contains {steps}'}"


def _fit_and_save(
    model: TableRegressor | TableClassifier, view: View | None, split: Split, out: Path, start: float
) -> list[str]:
    """Fit, evaluate and save the model, and return the warnings.

    After Ctrl-C, save the best model found so far, if there is one, and raise a KeyboardInterrupt. Its message tells
    the user what was saved.
    """
    import pandas as pd

    import hkrr
    from hkrr._storage.checkpoint import best_model_so_far
    from hkrr.exceptions import HKRRWarning
    from hkrr.tables import compare

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            with nullcontext() if view is None else view.shown():
                if view is not None and len(split.y_test):
                    names = "logistic regression" if split.task.of_classes else "kernel ridge and a linear model"
                    view.start_stage(f"baselines for the comparison: {names}")
                baselines = _baseline_predictions(model, split)
                inner = _inner(model)
                limit = inner.time_limit
                if limit is not None:
                    left = round(limit - (time.perf_counter() - start), 1)
                    inner.set_params(time_limit=max(left, limit / 2))
                try:
                    model.fit(split.train, pd.Series(split.y_train, name=split.target))
                finally:  # the saved model has the time limit of the user, not the remaining time
                    for each in (inner, vars(model).get("model_")):
                        if each is not None:
                            each.set_params(time_limit=limit)
        except KeyboardInterrupt as stop:
            if best_model_so_far(stop) is not model:
                raise KeyboardInterrupt(_nothing_saved_message(_inner(model).checkpoint)) from None
            hkrr.save(model, out)
            message = f"Stopped. The best model so far was saved to {out}. Run the same command again to resume."
            raise KeyboardInterrupt(message) from None
        hkrr.save(model, out)  # save before the evaluation, which may fail
        if len(split.y_test):
            try:
                model.held_out_ = compare(model, split, baselines)
                hkrr.save(model, out)
            except KeyboardInterrupt:
                raise KeyboardInterrupt(f"Stopped before the evaluation. The model was saved to {out}.") from None
            except (ValueError, ArithmeticError) as error:
                warnings.warn(f"The model could not be evaluated: {error}", HKRRWarning, stacklevel=2)
    return list(dict.fromkeys(" ".join(str(each.message).split()) for each in caught))


def _baseline_predictions(model: TableRegressor | TableClassifier, split: Split) -> dict[str, Array] | None:
    """Return the predictions of the baselines for the held-out rows, or None if there are no held-out rows.

    The baselines are fitted before the model, so that the model can use the rest of the time limit.
    """
    from hkrr.tables import learn_encoder
    from hkrr.tables.held_out_comparison import baseline_predictions, class_baselines

    if not len(split.y_test):
        return None
    encoder = learn_encoder(split.train, model.missing)
    X, X_test = encoder.transform(split.train), encoder.transform(split.test)
    try:
        if split.task.of_classes:
            return class_baselines(X, split.y_train, X_test)
        return baseline_predictions(X, split.y_train, X_test, split.seed)
    except (ValueError, ArithmeticError):  # `compare` fits the baselines again and reports the error
        return None


def _nothing_saved_message(checkpoint: Path | None) -> str:
    if checkpoint is None:
        return "Stopped. Nothing was saved. With --checkpoint FILE, Ctrl-C saves the best model so far."
    return f"Stopped before a model was found. Run the same command again to resume from {checkpoint}."


def _print_task(console: Console, data: str, split: Split, is_default_target: bool) -> None:
    from hkrr.tables.task import are_numbers

    name = "standard input" if data == "-" else Path(data).name
    note = " (the last column; use --target for another)" if is_default_target else ""
    print_line(console, f"{name}: predicting {split.target!r}{note} from {split.train.shape[1]} columns")
    n, n_test = len(split.y_train), len(split.y_test)
    if split.task.of_classes:
        n_classes = len(set(split.y_train) | set(split.y_test))
        reason = f"{split.task.reason}, so its values are" if split.task.reason else "The values of the target are"
        advice = " (use --task regression to predict numbers)" if are_numbers(split.y_train) else ""
        print_line(console, f"{reason} {n_classes} classes{advice}")
    dropped = f"; {split.about}" if split.about else ""
    print_line(console, f"{n:,} training rows, {f'{n_test:,}' if n_test else 'no'} held-out rows{dropped}")


def _print_summary(
    console: Console, model: TableRegressor | TableClassifier, messages: list[str], start: float, out: Path, data: str
) -> None:
    from hkrr.cli._model_summary import show_columns, show_facts, show_map, show_outliers, show_scores, show_warnings
    from hkrr.tables import describe

    content = describe(model)
    show_scores(console, getattr(model, "held_out_", None))
    show_facts(console, model)
    show_map(console, content)
    show_columns(console, content)
    show_outliers(console, content)
    show_warnings(console, messages)
    file, table = shlex.quote(str(out)), "DATA.csv" if data == "-" else shlex.quote(data)
    took = format_duration(time.perf_counter() - start)
    print_line(console, f"\nFinished in {took}. The model was saved to {out}. Next steps:")
    print_line(console, f"  hkrr report {file} {table} -o report.html")
    print_line(console, f"  hkrr predict {file} NEW.csv -o predictions.csv")
