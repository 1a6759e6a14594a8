"""Cells as arrays: ranks, the best of the others, how often this library is first and how soon."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import rankdata

from hkrr.bench.problems import parse, planted_names
from hkrr.bench.runner import Row

OURS = "hkrr"
# An error within this part of another's reaches it, and a time below this part of another's is clearly less.
TIE, CLEARLY = 0.01, 0.9
_COLUMNS = ("R2", "subspace_distance", "seconds", "fit_seconds", "peak_mb", "n_train", "n_features")
# Options that draw other rows of the same data: their cells are one problem, by the mean.
_REPEATS = ("seed", "split")


class Results(NamedTuple):
    """A row for each problem and a column for each method; NaN where a cell failed."""

    problems: list[str]
    methods: list[str]
    columns: dict[str, Any]

    def of(self, column: str, method: str) -> Any:
        """Return a column of one method, over the problems."""
        return self.columns[column][:, self.methods.index(method)]

    def ranks(self) -> Any:
        """Return the rank of each method on each problem by its R2, 1 the best; failed ones are last."""
        return np.array([rankdata(np.where(np.isnan(row), np.inf, -row)) for row in self.columns["R2"]])

    def some(self, problems: Iterable[str]) -> Results:
        """Return the results on these problems."""
        wanted = [problem for problem in self.problems if problem in set(problems)]
        index = [self.problems.index(problem) for problem in wanted]
        return self._replace(problems=wanted, columns={name: values[index] for name, values in self.columns.items()})

    def planted(self) -> list[str]:
        """Return the problems whose true map is known."""
        return [problem for problem in self.problems if parse(problem)[0] in planted_names()]

    def failed_peers(self) -> Any:
        """Return how many methods of others failed on each problem."""
        others = [k for k, method in enumerate(self.methods) if not method.startswith(OURS)]
        return np.isnan(self.columns["R2"][:, others]).sum(axis=1)


def results(rows: Sequence[Row]) -> Results:
    """Return the means of the cells over the seeds or splits of a problem; failed on one of them is failed."""
    methods = list(dict.fromkeys(row["method"] for row in rows))
    cells: dict[str, dict[str, list[Row]]] = {}
    for row in rows:
        cells.setdefault(_without_repeats(row["problem"]), {}).setdefault(row["method"], []).append(row)
    problems = list(cells)

    def column(name: str) -> Any:
        values = [
            [np.mean([_float(row.get(name)) for row in cells[problem].get(method, [{}])]) for method in methods]
            for problem in problems
        ]
        return np.array(values, dtype=float).reshape(len(problems), len(methods))

    return Results(problems, methods, {name: column(name) for name in _COLUMNS})


def _without_repeats(problem: str) -> str:
    source, options = parse(problem)
    kept = [f"{key}={value}" for key, value in options.items() if key not in _REPEATS]
    return f"{source}:{','.join(kept)}" if kept else source


def _float(text: Any) -> float:
    return float("nan") if text in (None, "") else float(text)


def best_peer(found: Results) -> list[str | None]:
    """Return, for each problem, the method of others with the best R2 (variants of ours are ours)."""
    others = [method for method in found.methods if not method.startswith(OURS)]
    R2 = np.stack([found.of("R2", method) for method in others], axis=1)
    return [others[int(np.nanargmax(row))] if np.any(np.isfinite(row)) else None for row in R2]


class Standing(NamedTuple):
    """On how many of n problems this library is first, is at the best peer's error, and is there in less time."""

    n: int
    first: int
    reached: int
    sooner: int
    clearly_sooner: int
    sooner_than_fit: int  # clearly


def standing(found: Results) -> Standing:
    """Return how often this library has the least error, and how often it is there sooner than the best peer."""
    ours, seconds = found.of("R2", OURS), found.of("seconds", OURS)
    counts = np.zeros(5, dtype=int)
    for k, peer in enumerate(best_peer(found)):
        if peer is None:
            counts += bool(np.isfinite(ours[k]))
            continue
        theirs, their_seconds, their_fit = (found.of(name, peer)[k] for name in ("R2", "seconds", "fit_seconds"))
        reached = 1.0 - ours[k] <= (1.0 + TIE) * (1.0 - theirs)
        times = (seconds[k] < their_seconds, seconds[k] < CLEARLY * their_seconds, seconds[k] < CLEARLY * their_fit)
        counts += [ours[k] > theirs, reached, *(bool(reached and less) for less in times)]
    return Standing(len(found.problems), *counts.tolist())
