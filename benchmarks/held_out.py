"""Accuracy of the held-out check, which decides between a learned map and kernel ridge regression on all columns.

    python benchmarks/held_out.py

The run takes some minutes and writes held_out.csv and held_out.md to benchmarks/results. The problems are small and
noisy. For each problem and seed, the learned map and plain kernel ridge regression (on all columns) are fitted as in
`HyperKernelRidgeCV`. The check is run only if `HyperKernelRidgeCV` would run it, that is, if the score of the map is
only slightly better. The decision is right if the chosen model has the lower error on 4,000 new rows without noise.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from hkrr.criteria import Evidence
from hkrr.estimators.search.held_out_check import HeldOutCheck, needs_check, squared_errors
from hkrr.estimators.search.search_problem import SearchProblem
from hkrr.estimators.search.search_stages import compare_with_plain, find_directions, polish, select_for_polishing
from hkrr.kernels import Gaussian
from hkrr.rows import InMemoryRows
from objective import RESULTS, Row, machine, markdown, write

N_TEST, N_SEEDS = 4000, 10
# Number of rows and columns, and the ratio of the standard deviations of noise and signal. If the ratio is infinite,
# the target is pure noise.
PROBLEMS = [(200, 10, 1.4), (200, 10, math.inf), (600, 50, 1.0), (600, 50, math.inf), (600, 200, 1.0), (2000, 50, 2.0)]


def run_case(m: int, D: int, noise: float, seed: int) -> Row:
    """Return the decision of the check for one random data set, and the errors of both models on new rows."""
    rng = np.random.RandomState(seed)
    X = rng.standard_normal((m + N_TEST, D))
    direction = rng.standard_normal(D)
    index = X @ (direction / np.linalg.norm(direction))
    z = np.sin(2.0 * index) + 0.5 * index
    z = (z - z.mean()) / z.std() if math.isfinite(noise) else np.zeros(m + N_TEST)
    y = z.copy()
    y[:m] += (noise if math.isfinite(noise) else 1.0) * rng.standard_normal(m)
    rows = InMemoryRows(X[:m], y[:m] - y[:m].mean()).count_free_columns()
    fresh = InMemoryRows(X[m:], y[m:] - y[:m].mean())
    problem = SearchProblem(rows, Evidence, list(range(1, D + 1)), True, 4, rng, n_threads=2)
    best, _, searched_weight = find_directions(problem, Gaussian(gamma=1.0))
    polished, _ = polish(problem, select_for_polishing(problem, best, searched_weight))
    chosen, rival, _ = compare_with_plain(problem, polished)
    row: Row = {"m": m, "D": D, "noise": noise, "seed": seed, "d": chosen.n_components}
    row["lead"] = round(rival.score - chosen.score, 1)
    row["dof"] = chosen.degrees_of_freedom
    errors = [float(np.mean(squared_errors(rows, fresh, each))) for each in (chosen, rival)]
    row["error_of_map"], row["error_of_plain"] = (round(error, 4) for error in errors)
    asked = chosen.score <= rival.score and needs_check(chosen, rival)
    row["asked"] = asked
    if asked:
        verdict = HeldOutCheck(problem).compare(chosen, rival)
        row["held_out_of_map"], row["held_out_of_plain"] = round(verdict.error, 4), round(verdict.error_of_rival, 4)
        row["kept"] = verdict.holds
        row["right"] = verdict.holds == (errors[0] <= errors[1])
    return row


def summary(rows: list[Row]) -> list[Row]:
    """Return, for each problem, how often the check ran and how often its decision was right."""
    out: list[Row] = []
    for problem in PROBLEMS:
        some = [row for row in rows if (row["m"], row["D"], row["noise"]) == problem]
        asked = [row for row in some if row["asked"]]
        better = [row for row in asked if row["error_of_map"] <= row["error_of_plain"]]
        worse = [row for row in asked if row["error_of_map"] > row["error_of_plain"]]
        out.append(
            {
                "m": problem[0],
                "D": problem[1],
                "noise": problem[2],
                "check ran": f"{len(asked)} of {len(some)}",
                "better map kept": _share(better, True),
                "worse map rejected": _share(worse, False),
                "mean error of the map": _mean(asked, lambda row: row["error_of_map"]),
                "mean error of plain KRR": _mean(asked, lambda row: row["error_of_plain"]),
                "mean error of the choice": _mean(
                    asked, lambda row: row["error_of_map"] if row["kept"] else row["error_of_plain"]
                ),
            }
        )
    return out


def _share(rows: list[Row], kept: bool) -> str:
    return f"{sum(row['kept'] is kept for row in rows)} of {len(rows)}"


def _mean(rows: list[Row], what: Any) -> Any:
    return round(float(np.mean([what(row) for row in rows])), 3) if rows else ""


def main() -> None:
    """Run all problems, and write the CSV file and the Markdown page."""
    runs = [(*problem, seed) for problem in PROBLEMS for seed in range(N_SEEDS)]
    rows = [run_case(*each) for each in tqdm(runs)]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    write("held_out", [{name: row.get(name, "") for name in columns} for row in rows])
    page = (
        f"# benchmarks/held_out.py\n\n{machine()}. {N_SEEDS} seeds for each problem. noise is the ratio of the standard"
        " deviations of noise and signal. Errors are mean squared errors on new rows without noise, relative to the"
        " variance of the training targets.\n\n" + markdown(summary(rows)) + "\n"
    )
    (RESULTS / "held_out.md").write_text(page)
    print(page)


if __name__ == "__main__":
    main()
