"""Statistics of benchmark results: ranks, the best peer on each problem, and how often the method ``hkrr`` is best.

A peer is any method except ``hkrr`` and its variants.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import rankdata

from hkrr.bench.benchmark_runner import Row
from hkrr.bench.problems import parse, planted_names

# Name of the method that is compared with the peers. The names of its variants start with this name.
OURS = "hkrr"
# `hkrr` matches a peer if the error 1 - R2 of `hkrr` exceeds the error of the peer by at most this fraction.
TIE = 0.01
# `hkrr` takes clearly less time than a peer if its time is below this fraction of the peer's time.
CLEARLY = 0.9
# The numeric columns of the CSV file that the statistics use.
_COLUMNS = ("R2", "subspace_distance", "seconds", "fit_seconds", "peak_mb", "n_train", "n_features")
# Options that select a random draw or a split of the same problem. Results that differ only in these options are
# averaged.
_REPEATS = ("seed", "split")


def is_ours(method: str) -> bool:
    """Return whether a method is `hkrr` or one of its variants. All other methods are peers."""
    return method.startswith(OURS)


class Results(NamedTuple):
    """Arrays with one row for each problem and one column for each method. Entries of failed methods are NaN."""

    problems: list[str]
    methods: list[str]
    columns: dict[str, Any]

    def values(self, column: str, method: str) -> Any:
        """Return the values of a CSV column for one method, with one value for each problem."""
        return self.columns[column][:, self.methods.index(method)]

    def ranks(self) -> Any:
        """Return the rank of each method on each problem by R2. The best method has rank 1. Failed methods are last."""
        return np.array([rankdata(np.where(np.isnan(row), np.inf, -row)) for row in self.columns["R2"]])

    def subset(self, problems: Iterable[str]) -> Results:
        """Return the results on the given problems only."""
        wanted = [problem for problem in self.problems if problem in set(problems)]
        index = [self.problems.index(problem) for problem in wanted]
        return self._replace(problems=wanted, columns={name: values[index] for name, values in self.columns.items()})

    def planted(self) -> list[str]:
        """Return the planted models among the problems: synthetic data with known directions."""
        return [problem for problem in self.problems if parse(problem)[0] in planted_names()]

    def failed_peers(self) -> Any:
        """Return the number of peers that failed on each problem."""
        peers = [k for k, method in enumerate(self.methods) if not is_ours(method)]
        return np.isnan(self.columns["R2"][:, peers]).sum(axis=1)


def collect_results(rows: Sequence[Row]) -> Results:
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


def best_peer(results: Results) -> list[str | None]:
    """Return the peer with the highest R2 on each problem, or None if all peers failed."""
    peers = [method for method in results.methods if not is_ours(method)]
    R2 = np.stack([results.values("R2", method) for method in peers], axis=1)
    return [peers[int(np.nanargmax(row))] if np.any(np.isfinite(row)) else None for row in R2]


class Standing(NamedTuple):
    """The numbers of problems on which `hkrr` matches or beats the best peer."""

    # Total number of problems.
    n: int
    # Number of problems on which `hkrr` has a lower error than every peer.
    first: int
    # Number of problems on which `hkrr` matches the error of the best peer, up to the tolerance TIE.
    reached: int
    # Number of problems on which `hkrr` matches the best peer and takes less time.
    sooner: int
    # Number of problems on which `hkrr` matches the best peer and takes clearly less time.
    clearly_sooner: int
    # Number of problems on which `hkrr` matches the best peer and takes clearly less time than the peer's final fit.
    sooner_than_fit: int


def standing(results: Results) -> Standing:
    """Return the numbers of problems that `Standing` defines."""
    ours, seconds = results.values("R2", OURS), results.values("seconds", OURS)
    counts = np.zeros(5, dtype=int)
    for k, peer in enumerate(best_peer(results)):
        if peer is None:
            counts += bool(np.isfinite(ours[k]))
            continue
        theirs, their_seconds, their_fit = (results.values(name, peer)[k] for name in ("R2", "seconds", "fit_seconds"))
        reached = 1.0 - ours[k] <= (1.0 + TIE) * (1.0 - theirs)
        times = (seconds[k] < their_seconds, seconds[k] < CLEARLY * their_seconds, seconds[k] < CLEARLY * their_fit)
        counts += [ours[k] > theirs, reached, *(bool(reached and less) for less in times)]
    return Standing(len(results.problems), *counts.tolist())
