"""Contents of the section on training: the objective over the iterations, and the runs of the search.

A run is one optimization from a starting map.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from hkrr.estimators.search.path_table import comparable_runs
from hkrr.reporting.report_input import ReportInput

# Maximum number of runs in the table of runs.
_MOST_RUNS = 120


@dataclass(frozen=True)
class SearchScores:
    """The score and the number of directions of each run of the search. Lower scores are better."""

    score_name: str
    n_components: list[int]  # number of directions of each run
    score: list[float]  # score of each run
    chosen: int  # chosen number of directions


@dataclass(frozen=True)
class Training:
    """The objective of the final run of the solver, and the runs of the search before it."""

    objective: list[float]  # initial value, then the value after each iteration
    stopped: str  # why the solver stopped, as in ``result_.reason``
    seconds: float | None  # time of all runs of the search, or of the solver if there was no search; None if unknown
    path: SearchScores | None
    spectrum: list[float] | None  # singular values before directions were removed, divided by the largest one
    run_columns: list[str]  # columns of the table of runs
    runs: list[list[Any]]
    n_runs: int  # number of runs of the search; `runs` holds at most the first 120 of them


def describe_training(data: ReportInput) -> Training:
    """Return what the model has recorded about its fit: the objective and the runs of the search.

    For an ensemble, the objective and the spectrum are those of its first member.
    """
    model = data.model
    table = getattr(data.whole, "path_", None) or getattr(model, "cv_results_", None) or {}
    columns = [name for name in table if not name.startswith("split")]
    runs = [list(run) for run in zip(*(table[name] for name in columns), strict=True)]
    seconds = table.get("seconds")
    history = getattr(model, "history_", {})
    times = history.get("time", [])
    return Training(
        objective=[float(value) for value in history.get("objective", [])],
        stopped=model.result_.reason,
        seconds=float(sum(seconds)) if seconds is not None else float(times[-1]) if len(times) else None,
        path=_search_scores(data),
        spectrum=[float(value) for value in model.spectrum_] if hasattr(model, "spectrum_") else None,
        run_columns=columns,
        runs=[[_plain_value(value) for value in run] for run in runs[:_MOST_RUNS]],
        n_runs=len(runs),
    )


def _search_scores(data: ReportInput) -> SearchScores | None:
    """Return the scores of the runs of the search.

    Return None if there was no search, or if all runs with a score have the same number of directions.
    """
    model = data.model
    if hasattr(data.whole, "path_"):
        table, name = data.whole.path_, "score (BIC)"
        triples = zip(comparable_runs(table), table["n_components"], table["score"], strict=True)
        runs = [(d, score) for comparable, d, score in triples if comparable]
    elif hasattr(model, "cv_results_"):
        table, name = model.cv_results_, "held-out mean squared error"
        pairs = zip(table["n_components"], table["mean_error"], strict=True)
        runs = [(d, error) for d, error in pairs if math.isfinite(error)]
    else:
        return None
    if len({d for d, _ in runs}) < 2:
        return None
    return SearchScores(name, [int(d) for d, _ in runs], [float(score) for _, score in runs], int(model.n_components_))


def _plain_value(value: Any) -> Any:
    """Return a string unchanged, None as "", a finite number as a float, and NaN and infinity as strings."""
    if value is None or isinstance(value, str):
        return value or ""
    number = float(value)
    return number if math.isfinite(number) else str(number)
