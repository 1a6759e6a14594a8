"""Time and success rate of the search of `HyperKernelRidgeCV`, compared with another version of hkrr.

    python benchmarks/search.py [--old FOLDER] [--problems NAME ...] [--seeds N] [--states N] [--append] [--out NAME]

FOLDER is a checkout of another version; without it, only the version in this repository is run. A case is one data set
of a problem, with one value of `random_state`. The two versions run in separate processes, and fit each case one after
the other, so that other load on the machine affects both. `--problems` takes names of problems and of groups (paper,
planted, hard). `--seeds` is the number of data sets of each problem. `--states` is the number of values of
`random_state` for the first data set. With `--append`, cases that are in the CSV file already are skipped, so that a
run can be resumed or extended. The results are written to NAME.csv and NAME.md in benchmarks/results. The default NAME
is `search`.

Each R2 is compared with the R2 of kernel ridge regression on the true coordinates Bx (`tuned_krr` of adaptive.py). The
R2 on the true coordinates is computed once for each data set, before the fits, and kept in true_map.csv.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hkrr.datasets import PLANTED, Dataset, make_mim_mixed, make_mim_sines, make_planted
from workers import HERE, Row, Table, Worker, commit, errors, least, median, reported, serve, used_commits, valid

N_TEST = 4000


def sum_of_sines(n: int, seed: int, n_features: int, n_components: int, slope: float) -> Dataset:
    """Return data with the target ``sum_j sin((1 + slope j) z_j)`` plus noise.

    The z_j are the coordinates of x along orthonormal directions. The variance of the noise is a hundredth of the
    variance of the sum.
    """
    rng = np.random.RandomState(seed)
    X = rng.standard_normal((n, n_features))
    B = np.linalg.qr(rng.standard_normal((n_features, n_components)))[0].T
    f = np.sum(np.sin((1.0 + slope * np.arange(n_components)) * (X @ B.T)), axis=1)
    noise = 0.1 * float(np.std(f))
    return Dataset(X, f + noise * rng.standard_normal(n), B, noise)


# For each problem: the number of training rows, and a function of a number of rows and a seed that returns the data.
PROBLEMS: dict[str, tuple[int, Callable[[int, int], Dataset]]] = {
    "data set 1": (600, lambda n, seed: make_mim_sines(n, random_state=seed)),
    "data set 2": (600, lambda n, seed: make_mim_mixed(n, random_state=seed)),
    "data set 1, m = 4,000": (4000, lambda n, seed: make_mim_sines(n, random_state=seed)),
    "data set 1, m = 16,000": (16000, lambda n, seed: make_mim_sines(n, random_state=seed)),
    **{kind: (600, lambda n, seed, kind=kind: make_planted(kind, n, random_state=seed)) for kind in PLANTED},
    "two of 15 columns, m = 400": (400, lambda n, seed: make_mim_sines(n, 15, 2, random_state=seed)),
    "five directions, m = 4,000": (4000, lambda n, seed: sum_of_sines(n, seed, 50, 5, 1 / 4)),
    "eight directions, m = 8,000": (8000, lambda n, seed: sum_of_sines(n, seed, 40, 8, 1 / 8)),
    "one of 500 columns, m = 3,000": (
        3000,
        lambda n, seed: make_planted("single", n, n_features=500, random_state=seed),
    ),
    "product of 200 columns, m = 1,500": (
        1500,
        lambda n, seed: make_planted("product", n, n_features=200, random_state=seed),
    ),
}


GROUPS: dict[str, list[str]] = {
    "paper": [name for name in PROBLEMS if name.startswith("data set")],
    "planted": list(PLANTED),
    "hard": [name for name in PROBLEMS if not name.startswith("data set") and name not in PLANTED],
}
# A fit succeeds if the number of directions is right, and if R2 is at least the R2 of kernel ridge regression on the
# true coordinates Bx minus this tolerance. The second value is the tolerance for the problem "steps".
TOLERANCE, TOLERANCE_STEPS = 0.01, 0.03
KEYS = ("cases", "problem", "seed", "state", "version")
RESULTS_OF_A_FIT = ("seconds", "R2", "R2_krr_on_true_map", "n_components", "true_n_components", "error")


def fit(problem: str, seed: int, state: int) -> Row:
    """Fit a model with default parameters, and return the results.

    `seed` is the seed of the data, and `state` is the parameter `random_state` of the model.
    """
    from hkrr import HyperKernelRidgeCV

    m, make = PROBLEMS[problem]
    data = make(m + N_TEST, seed)
    began = time.perf_counter()
    model = HyperKernelRidgeCV(random_state=state).fit(data.X[:m], data.y[:m])
    seconds = time.perf_counter() - began
    return {
        "seconds": round(seconds, 2),
        "R2": round(float(model.score(data.X[m:], data.y[m:])), 4),
        "n_components": int(model.n_components_),
        "true_n_components": len(data.B),
    }


def names_of_problems(given: Sequence[str]) -> list[str]:
    """Return names of problems, given names of problems and of groups."""
    names = [name for one in given for name in GROUPS.get(one, [one])]
    if unknown := [name for name in names if name not in PROBLEMS]:
        raise SystemExit(f"--problems: unknown name {unknown[0]!r}; choose from {[*GROUPS, *PROBLEMS]}")
    return list(dict.fromkeys(names))


class TrueMap:
    """The R2 of kernel ridge regression on the true coordinates Bx, computed once for each problem and seed."""

    def __init__(self) -> None:
        self._table = Table("true_map", ("problem", "seed", "R2_krr_on_true_map"), 2, append=True)

    def score(self, problem: str, seed: int) -> float:
        """Return the R2 for a problem and seed."""
        if not self._table.has(problem=problem, seed=seed):
            from adaptive import tuned_krr

            m, make = PROBLEMS[problem]
            data = make(m + N_TEST, seed)
            found = round(tuned_krr(data.X @ data.B.T, data.y, m, -2.0), 4)
            self._table.add(problem=problem, seed=seed, R2_krr_on_true_map=found)
        rows = [row for row in self._table.rows if (row["problem"], row["seed"]) == (problem, seed)]
        return float(rows[0]["R2_krr_on_true_map"])


def run(workers: dict[str, Worker], commits: dict[str, str], cases: list[Row], table: Table) -> None:
    """Fit each case with each version, and add the results to the table."""
    true_map = TrueMap()
    for case in cases:
        for version, worker in workers.items():
            if table.has(**case, version=version):
                continue
            known = true_map.score(case["problem"], case["seed"])
            found = worker.run(problem=case["problem"], seed=case["seed"], state=case["state"])
            table.add(**case, version=version, commit=commits[version], R2_krr_on_true_map=known, **found)


def is_right(row: Row) -> bool:
    """Return whether the number of directions is right."""
    return row["error"] == "" and row["n_components"] == row["true_n_components"]


def is_success(row: Row) -> bool:
    """Return whether the number of directions is right and R2 is close to that of kernel ridge on the true Bx."""
    tolerance = TOLERANCE_STEPS if row["problem"] == "steps" else TOLERANCE
    return is_right(row) and row["R2"] >= row["R2_krr_on_true_map"] - tolerance


def summary(rows: Sequence[Row]) -> Iterator[Row]:
    """Yield a row for each problem and version, and for the ten planted models together."""
    problems = {name: [name] for name in dict.fromkeys(row["problem"] for row in rows)}
    if set(PLANTED) <= set(problems):
        problems["ten planted models"] = GROUPS["planted"]
    for title, names in problems.items():
        for version in dict.fromkeys(row["version"] for row in rows):
            some = [row for row in rows if row["problem"] in names and row["version"] == version]
            gaps = [row["R2"] - row["R2_krr_on_true_map"] for row in some if row["R2"] != ""]
            if some:
                yield {
                    "problem": title,
                    "version": version,
                    "right d": f"{sum(map(is_right, some))} of {len(some)}",
                    "success": f"{sum(map(is_success, some))} of {len(some)}",
                    "median R2": median(valid(some, "R2")),
                    "least R2": least(valid(some, "R2")),
                    "least R2 - KRR on the true Bx": least(gaps),
                    "median seconds": median(valid(some, "seconds"), 2),
                    "time / other": ratio(rows, some) if version != "other" else "",
                }


def ratio(rows: Sequence[Row], some: Sequence[Row]) -> Any:
    """Return the median time of the rows `some`, divided by that of the version "other" on the same cases.

    `rows` contains the rows of all versions. Cases that only one of the two versions has completed are left out. If no
    case is left, the result is an empty string.
    """
    key = KEYS[:-1]
    others = {tuple(row[name] for name in key): row for row in rows if row["version"] == "other"}
    pairs = [(row, others[at]) for row in some if (at := tuple(row[name] for name in key)) in others]
    pairs = [pair for pair in pairs if all(row["seconds"] != "" for row in pair)]
    if not pairs:
        return ""
    ours, theirs = (float(np.median([pair[k]["seconds"] for pair in pairs])) for k in (0, 1))
    return round(ours / theirs, 2)


def page(rows: Sequence[Row]) -> str:
    """Return the Markdown page of all results."""
    from objective import machine, markdown

    text = ["# benchmarks/search.py", "", machine(), "", used_commits(rows, "version")]
    text += ["", "A fit succeeds if the selected number of directions d is the true number, and its R2 is at most"]
    text += [f"{TOLERANCE} ({TOLERANCE_STEPS} for the problem `steps`) below the R2 of kernel ridge regression on the"]
    text += ['true coordinates Bx. "time / other" is the ratio of the median seconds to those of the version "other".']
    titles = {"seeds": "Different data sets", "states": "One data set, different values of random_state"}
    for cases, title in titles.items():
        if some := [row for row in rows if row["cases"] == cases]:
            text += ["", f"## {title}", "", markdown(list(summary(some)))]
    return "\n".join([*text, *errors(rows, KEYS), ""])


def main() -> None:
    """Run the cases and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", type=Path, help="folder of the other version")
    parser.add_argument("--problems", nargs="*", default=list(PROBLEMS), help="names of problems or groups")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--states", type=int, default=0)
    parser.add_argument("--append", action="store_true", help="keep the results of the CSV file, and skip its cases")
    parser.add_argument("--out", default="search")
    options = parser.parse_args()
    names = names_of_problems(options.problems)
    cases: list[Row] = []
    for name in names:
        # The seeds of the data and of the search differ. Otherwise a random starting map could coincide with the true
        # map.
        cases += [{"cases": "seeds", "problem": name, "seed": k, "state": 10**6 + k} for k in range(options.seeds)]
    for name in names:
        cases += [{"cases": "states", "problem": name, "seed": 0, "state": k} for k in range(options.states)]
    folders = {"other": options.old.resolve()} if options.old else {}
    folders["this"] = HERE
    workers = {version: Worker(__file__, folder) for version, folder in folders.items()}
    table = Table(options.out, (*KEYS, "commit", *RESULTS_OF_A_FIT), len(KEYS), options.append)
    with reported(table, page, workers.values()):
        run(workers, {version: commit(folder) for version, folder in folders.items()}, cases, table)


if __name__ == "__main__":
    serve(fit) if sys.argv[1:] == ["--worker"] else main()
