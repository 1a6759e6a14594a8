"""How it was found: the objective over the iterations, and what the search tried."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

# Runs of the search over numbers of directions: their scores compare with each other, and with no others.
_STAGE = ("random", "moments", "grown", "shrunk")
_MOST_RUNS = 120


@dataclass(frozen=True)
class Path:
    """Scores by number of directions, lower is better."""

    score_name: str
    n_components: list[int]  # of each run
    score: list[float]
    chosen: int


@dataclass(frozen=True)
class Training:
    """The last run's objective, and the search before it."""

    objective: list[float]  # of each iteration, the start first
    stopped: str
    seconds: float | None
    path: Path | None
    run_columns: list[str]
    runs: list[list[Any]]
    n_runs: int


def describe_training(model: Any) -> Training:
    """Return the story of a fit, as far as the model keeps it."""
    table = getattr(model, "path_", None) or getattr(model, "cv_results_", None) or {}
    columns = [name for name in table if not name.startswith("split")]
    runs = [list(run) for run in zip(*(table[name] for name in columns), strict=True)]
    seconds = table.get("seconds")
    history = getattr(model, "history_", {})
    times = history.get("time", [])
    return Training(
        objective=[float(value) for value in history.get("objective", [])],
        stopped=model.result_.reason,
        seconds=float(sum(seconds)) if seconds is not None else float(times[-1]) if len(times) else None,
        path=_path(model),
        run_columns=columns,
        runs=[[_plain(value) for value in run] for run in runs[:_MOST_RUNS]],
        n_runs=len(runs),
    )


def _path(model: Any) -> Path | None:
    if hasattr(model, "path_"):
        table, name = model.path_, "score (BIC)"
        runs = [
            (d, score)
            for start, d, score in zip(table["start"], table["n_components"], table["score"], strict=True)
            if start.split(",")[0] in _STAGE and math.isfinite(score)
        ]
    elif hasattr(model, "cv_results_"):
        table, name = model.cv_results_, "held-out mean squared error"
        pairs = zip(table["n_components"], table["mean_error"], strict=True)
        runs = [(d, error) for d, error in pairs if math.isfinite(error)]
    else:
        return None
    if len({d for d, _ in runs}) < 2:
        return None
    return Path(name, [int(d) for d, _ in runs], [float(score) for _, score in runs], int(model.n_components_))


def _plain(value: Any) -> Any:
    """Return a number or a text; a number that is none is a text too."""
    if isinstance(value, str):
        return value
    number = float(value)
    return number if math.isfinite(number) else str(number)
