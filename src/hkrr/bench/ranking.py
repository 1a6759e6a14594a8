"""Statistics of benchmark results: ranks, errors relative to the best method, and their bootstrap intervals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import rankdata

from hkrr._base.linear_algebra import Array
from hkrr.bench.benchmark_runner import Row
from hkrr.bench.method_interface import CLASSIFICATION
from hkrr.bench.problems import parse, planted_names

# The names of this library's estimators start with this name. All other methods are peers.
OURS = "hkrr"
# The groups of problems, which have separate sections of the page, and the score by which each group ranks methods.
PLANTED, TABLES, CLASSES = "Planted models", "Tables", "Classes"
SCORES = {PLANTED: "R2", TABLES: "R2", CLASSES: "log_loss"}
# Scores of which a lower value is better.
_LOWER_IS_BETTER = ("log_loss", "calibration_error")
# The columns of the CSV file that the statistics use.
_COLUMNS = (
    "R2",
    "log_loss",
    "accuracy",
    "calibration_error",
    "constant_error",
    "subspace_distance",
    "seconds",
    "fit_seconds",
    "peak_mb",
    "n_train",
    "n_features",
)
# Options that select a random draw or a split of the same problem. Results that differ only in these options are
# averaged.
_REPEATS = ("seed", "split")
# Errors below this number count as this number in relative errors, because the ratio of two tiny errors says little.
LEAST_ERROR = {"R2": 1e-3, "log_loss": 1e-2}
# Number of bootstrap samples, and coverage of the intervals.
_N_RESAMPLES, LEVEL = 2000, 0.95
# Minimum number of problems for which intervals are computed.
_FEWEST_PROBLEMS = 3


def is_ours(method: str) -> bool:
    """Return whether a method is an estimator of this library. All other methods are peers."""
    return method.startswith(OURS)


class Results(NamedTuple):
    """Arrays with one row for each problem and one column for each method. Entries of failed methods are NaN."""

    problems: list[str]
    methods: list[str]
    columns: dict[str, Any]
    # The score by which methods are ranked: "R2" or "log_loss".
    score: str = "R2"

    def values(self, column: str, method: str) -> Any:
        """Return the values of a column for one method, with one value for each problem."""
        return self.columns[column][:, self.methods.index(method)]

    def ranks(self, score: str = "") -> Any:
        """Return the rank of each method on each problem. The best method has rank 1. Failed methods are last."""
        score = score or self.score
        sign = 1.0 if score in _LOWER_IS_BETTER else -1.0
        values = sign * self.columns[score]
        return np.array([rankdata(np.where(np.isnan(row), np.inf, row)) for row in values])

    def errors(self) -> Any:
        """Return the error of each method on each problem, which is NaN for failed methods.

        For regression, this is the root mean squared error divided by the standard deviation of the targets. For
        classes, it is the log loss.
        """
        return np.maximum(self.columns["rmse" if self.score == "R2" else "log_loss"], LEAST_ERROR[self.score])

    def relative_errors(self) -> Any:
        """Return the errors divided by the lowest error on the same problem.

        A failed method gets the error of the constant prediction: the mean of the targets, or the class frequencies.
        """
        errors = self.errors()
        constant = np.fmax.reduce(self.columns["constant_error"], axis=1, keepdims=True)
        errors = np.where(np.isnan(errors), np.where(np.isnan(constant), 1.0, constant), errors)
        return errors / errors.min(axis=1, keepdims=True)

    def subset(self, problems: Iterable[str]) -> Results:
        """Return the results on the given problems only."""
        wanted = [problem for problem in self.problems if problem in set(problems)]
        index = [self.problems.index(problem) for problem in wanted]
        return self._replace(problems=wanted, columns={name: values[index] for name, values in self.columns.items()})


def bootstrap_intervals(values: Array) -> tuple[Array, Array]:
    """Return 95% bootstrap intervals of the means of the columns, by resampling the rows.

    `values` has one row for each problem and one column for each method. With fewer than three rows, the intervals are
    NaN. The random seed is fixed.
    """
    n = len(values)
    if n < _FEWEST_PROBLEMS:
        return np.full(values.shape[1], np.nan), np.full(values.shape[1], np.nan)
    samples = np.random.RandomState(0).randint(n, size=(_N_RESAMPLES, n))
    low, high = np.quantile(values[samples].mean(axis=1), [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return low, high


def groups(rows: Sequence[Row]) -> dict[str, Results]:
    """Return the results of each group of problems (planted models, tables, classes) that has results."""
    parts: dict[str, list[Row]] = {name: [] for name in SCORES}
    for row in rows:
        planted = parse(row["problem"])[0] in planted_names()
        parts[PLANTED if planted else CLASSES if row.get("task") == CLASSIFICATION else TABLES].append(row)
    return {name: collect_results(part, SCORES[name]) for name, part in parts.items() if part}


def collect_results(rows: Sequence[Row], score: str = "R2") -> Results:
    """Collect the results in arrays, averaged over the seeds or splits of each problem.

    If a method failed on one seed or split of a problem, its results on this problem are NaN.
    """
    methods = list(dict.fromkeys(row["method"] for row in rows))
    cells: dict[str, dict[str, list[Row]]] = {}
    for row in rows:
        cells.setdefault(_without_repeats(row["problem"]), {}).setdefault(row["method"], []).append(row)
    problems = list(cells)

    def column(name: str) -> Any:
        values = [
            [np.mean([_value(row, name) for row in cells[problem].get(method, [{}])]) for method in methods]
            for problem in problems
        ]
        return np.array(values, dtype=float).reshape(len(problems), len(methods))

    return Results(problems, methods, {name: column(name) for name in (*_COLUMNS, "rmse")}, score)


def _without_repeats(problem: str) -> str:
    source, options = parse(problem)
    kept = [f"{key}={value}" for key, value in options.items() if key not in _REPEATS]
    return f"{source}:{','.join(kept)}" if kept else source


def _value(row: Row, column: str) -> float:
    if column == "rmse":
        return float(np.sqrt(np.maximum(1.0 - _value(row, "R2"), 0.0)))
    text = row.get(column)
    return float("nan") if text in (None, "") else float(text)


def best_peer(results: Results) -> list[str | None]:
    """Return the peer with the lowest error on each problem, or None if all peers failed."""
    peers = [k for k, method in enumerate(results.methods) if not is_ours(method)]
    ranks = np.where(np.isnan(results.columns[results.score]), np.inf, results.ranks())[:, peers]
    return [results.methods[peers[int(np.argmin(row))]] if np.any(np.isfinite(row)) else None for row in ranks]
