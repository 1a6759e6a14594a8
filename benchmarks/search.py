"""Time and success of the search of `HyperKernelRidgeCV` with default parameters, beside another version of hkrr.

    python benchmarks/search.py [--old FOLDER] [--problems NAME ...] [--seeds N] [--states N]

FOLDER is a checkout of the other version. Each case is fitted by both versions in turn, each in a process of its own,
so that both see the same load of the machine. `--seeds` is the number of data sets of each problem. `--states` is the
number of values of `random_state` for the first data set. The results are written to search.csv and search.md in
benchmarks/results.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hkrr.datasets import PLANTED, Dataset, make_mim_mixed, make_mim_sines, make_planted

N_TEST = 4000
HERE = Path(__file__).resolve().parent.parent


def sum_of_sines(n: int, seed: int, n_features: int, n_components: int, slope: float) -> Dataset:
    """Return ``sum_j sin((1 + slope j) z_j)`` of orthogonal indices z, with a hundredth of its variance as noise."""
    rng = np.random.RandomState(seed)
    X = rng.standard_normal((n, n_features))
    B = np.linalg.qr(rng.standard_normal((n_features, n_components)))[0].T
    f = np.sum(np.sin((1.0 + slope * np.arange(n_components)) * (X @ B.T)), axis=1)
    noise = 0.1 * float(np.std(f))
    return Dataset(X, f + noise * rng.standard_normal(n), B, noise)


# Number of training rows, and the data set of n rows and a seed, for each problem.
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
}


def fit(problem: str, seed: int, state: int) -> dict[str, Any]:
    """Return the results of a fit with default parameters."""
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


def work() -> None:
    """Fit the cases that arrive on standard input, one per line, and print the results."""
    for line in sys.stdin:
        print(json.dumps(fit(**json.loads(line))), flush=True)


class Worker:
    """A process that fits cases with the version of hkrr in a folder."""

    def __init__(self, folder: Path) -> None:
        environment = dict(os.environ, PYTHONPATH=str(folder / "src"), PYTHONWARNINGS="ignore")
        command = [sys.executable, __file__, "--worker"]
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def fit(self, **case: Any) -> dict[str, Any]:
        """Return the results of a case."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(case) + "\n")
        self._process.stdin.flush()
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        return found

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)


def run(workers: dict[str, Worker], cases: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Fit each case with each version, and yield the results."""
    for case in cases:
        for version, worker in workers.items():
            row = {**case, "version": version, **worker.fit(**case)}
            print(json.dumps(row), flush=True)
            yield row


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each problem and version: how often d is right, and medians of R2 and of the time."""
    out = []
    for problem in dict.fromkeys(row["problem"] for row in rows):
        medians = {}
        for version in dict.fromkeys(row["version"] for row in rows):
            some = [row for row in rows if (row["problem"], row["version"]) == (problem, version)]
            right = sum(row["n_components"] == row["true_n_components"] for row in some)
            medians[version] = float(np.median([row["seconds"] for row in some]))
            out.append(
                {
                    "problem": problem,
                    "version": version,
                    "right d": f"{right} of {len(some)}",
                    "median R2": round(float(np.median([row["R2"] for row in some])), 4),
                    "least R2": min(row["R2"] for row in some),
                    "median seconds": round(medians[version], 2),
                    "time / other": round(medians[version] / medians["other"], 2) if "other" in medians else "",
                }
            )
    return out


def main() -> None:
    """Run the cases and write the results."""
    from objective import RESULTS, machine, markdown, write

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", type=Path, help="folder of the other version")
    parser.add_argument("--problems", nargs="*", default=list(PROBLEMS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--states", type=int, default=0)
    parser.add_argument("--out", default="search")
    options = parser.parse_args()
    seeds = range(options.seeds)
    # The seeds of the data and of the search differ. Otherwise a random start could coincide with the true map.
    cases = [{"problem": name, "seed": k, "state": 10**6 + k} for name in options.problems for k in seeds]
    cases += [{"problem": name, "seed": 0, "state": k} for name in options.problems for k in range(options.states)]
    workers = {"other": Worker(options.old)} if options.old else {}
    workers["this"] = Worker(HERE)
    rows = list(run(workers, cases))
    for worker in workers.values():
        worker.close()
    write(options.out, rows)
    page = ["# benchmarks/search.py", "", machine(), "", markdown(summary(rows)), ""]
    (RESULTS / f"{options.out}.md").write_text("\n".join(page))
    print("\n".join(page))


if __name__ == "__main__":
    work() if sys.argv[1:] == ["--worker"] else main()
