"""How often the held-out check is right: few rows, much noise, a map against plain kernel ridge regression.

    python benchmarks/held_out.py        (some minutes; writes benchmarks/results/held_out.csv and held_out.md)

For each problem and seed the map and its plain rival are found as `HyperKernelRidgeCV` finds them. Where it would ask,
the check decides, and both are then tried on 4,000 fresh rows without noise: right is whichever is better there.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from hkrr.criteria import Evidence
from hkrr.held_out import HeldOut, is_doubtful, squared_errors
from hkrr.kernels import Gaussian
from hkrr.rows import InMemoryRows
from hkrr.tuning import Task, compared_with_plain, directions, polish, worth_polishing
from objective import RESULTS, Row, machine, markdown, write

N_TEST, N_SEEDS = 4000, 10
# Rows, columns, and the noise's standard deviation over the signal's; infinity is noise alone.
PROBLEMS = [(200, 10, 1.4), (200, 10, math.inf), (600, 50, 1.0), (600, 50, math.inf), (600, 200, 1.0), (2000, 50, 2.0)]


def one(m: int, D: int, noise: float, seed: int) -> Row:
    """Return what the check said of one draw, and what fresh rows say."""
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
    task = Task(rows, Evidence, list(range(1, D + 1)), True, 4, rng, n_threads=2)
    best, _ = directions(task, Gaussian(gamma=1.0))
    polished, _ = polish(task, worth_polishing(task, best))
    chosen, rival, _ = compared_with_plain(task, polished)
    row: Row = {"m": m, "D": D, "noise": noise, "seed": seed, "d": chosen.n_components}
    row["lead"] = round(rival.score - chosen.score, 1)
    row["dof"] = chosen.degrees_of_freedom
    errors = [float(np.mean(squared_errors(rows, fresh, each))) for each in (chosen, rival)]
    row["error_of_map"], row["error_of_plain"] = (round(error, 4) for error in errors)
    asked = chosen.score <= rival.score and is_doubtful(chosen, rival)
    row["asked"] = asked
    if asked:
        verdict = HeldOut(Evidence, 4, rng, n_threads=2).compare(rows, chosen, rival)
        row["held_out_of_map"], row["held_out_of_plain"] = round(verdict.error, 4), round(verdict.error_of_rival, 4)
        row["kept"] = verdict.holds
        row["right"] = verdict.holds == (errors[0] <= errors[1])
    return row


def summary(rows: list[Row]) -> list[Row]:
    """Return, for each problem, how often the check was asked, and what it got right and wrong."""
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
                "asked": f"{len(asked)} of {len(some)}",
                "better map kept": _share(better, True),
                "worse map turned down": _share(worse, False),
                "mean error of the map": _mean(asked, lambda row: row["error_of_map"]),
                "of plain": _mean(asked, lambda row: row["error_of_plain"]),
                "of what was chosen": _mean(
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
    """Run all, and write the table and the page."""
    runs = [(*problem, seed) for problem in PROBLEMS for seed in range(N_SEEDS)]
    rows = [one(*each) for each in tqdm(runs)]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    write("held_out", [{name: row.get(name, "") for name in columns} for row in rows])
    page = (
        f"# benchmarks/held_out.py\n\n{machine()}. {N_SEEDS} seeds a problem; noise: its standard deviation over the"
        " signal's. Errors are squared, on fresh rows without noise, in units of the training targets' variance.\n\n"
        + markdown(summary(rows))
        + "\n"
    )
    (RESULTS / "held_out.md").write_text(page)
    print(page)


if __name__ == "__main__":
    main()
