"""Benchmark of the speed and memory of the objective and the solvers. Compared times are measured in the same run.

    python benchmarks/objective.py [evaluation] [small] [blocks] [memory] [starts] [solvers]    (all by default; 20 min)

The arguments select benchmarks, which are functions of this module. Each benchmark writes a CSV file to
benchmarks/results. The tables of all benchmarks are written to benchmarks/results/objective.md.
"""

from __future__ import annotations

import csv
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from threadpoolctl import ThreadpoolController, threadpool_limits
from tqdm.auto import tqdm

from hkrr import HyperKernelRidge
from hkrr._base.threads import single_threaded_blas
from hkrr.datasets import make_mim_mixed, make_mim_sines
from hkrr.kernels import Gaussian
from hkrr.objective import Objective
from hkrr.rows import InMemoryRows
from hkrr.solvers import AGD, LBFGS, VarPro, run
from hkrr.solvers.initialization import ranked_maps

RESULTS = Path(__file__).parent / "results"
# Time limit of the solvers AGD and VarPro in seconds.
SECONDS = 60.0
Row = dict[str, object]


def problem(
    m: int, D: int, d: int, c: int, n_threads: int, seed: int = 0, block_size: int | str = "auto"
) -> tuple[Objective, np.ndarray]:
    """Return the objective of the paper's data set 1, and a starting map, which is the best of ten random maps.

    There are m rows, D columns, d directions and c uniformly drawn centers. lambda is 1e-3.
    """
    data = make_mim_sines(m, D, d, random_state=seed)
    rng = np.random.RandomState(seed)
    rows = InMemoryRows(data.X, data.y - data.y.mean(), n_threads=n_threads, block_size=block_size)
    B, kernel = ranked_maps(rows, Gaussian(), n_components=d, n_init=10, reg_lambda=1e-3, n_centers=c, rng=rng)[0]
    centers = data.X[rng.choice(m, c, replace=False)]
    return Objective(rows, centers, kernel, 1e-3), B


def side_by_side(calls: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Return the median seconds of each call.

    The calls alternate, so that other load on the machine affects all calls.
    """
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for repeat in range(repeats + 1):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            if repeat:  # the first round is a warm-up and is not counted
                seconds[name].append(time.perf_counter() - start)
    return {name: float(np.median(values)) for name, values in seconds.items()}


def evaluation() -> list[Row]:
    """Time the reduced objective and its gradient, and NumPy's K.T @ K of the same size, on one and two threads."""
    m, D, d, c = 20_000, 50, 5, 500
    K = np.random.default_rng(0).standard_normal((m, c))
    ours = {n: problem(m, D, d, c, n) for n in (1, 2)}
    blas = ThreadpoolController()
    calls: dict[str, Callable[[], object]] = {}
    for n, (objective, B) in ours.items():

        def reduced(objective: Objective = objective, B: np.ndarray = B) -> object:
            with single_threaded_blas():  # the solvers also use one BLAS thread below 3,000 centers
                return objective.reduced(B)

        def bare(n: int = n) -> object:
            with blas.limit(limits=n, user_api="blas"):
                return K.T @ K

        calls |= {f"reduced {n}": reduced, f"bare {n}": bare}
    seconds = side_by_side(calls, 21)
    # One and two threads are compared once more without NumPy's product. The product uses 80 MB, which would evict the
    # data from the cache.
    threads = side_by_side({name: call for name, call in calls.items() if name.startswith("reduced")}, 21)
    return [
        {
            "threads": n,
            "reduced_ms": round(1e3 * seconds[f"reduced {n}"], 1),
            "bare_KtK_ms": round(1e3 * seconds[f"bare {n}"], 1),
            "ratio": round(seconds[f"reduced {n}"] / seconds[f"bare {n}"], 2),
            "times_as_fast_as_one_thread": round(threads["reduced 1"] / threads[f"reduced {n}"], 2),
            "bare_times_as_fast": round(seconds["bare 1"] / seconds[f"bare {n}"], 2),
        }
        for n in (1, 2)
    ]


def small() -> list[Row]:
    """Time one evaluation on one core (600 rows, 100 centers), and a default fit with one and two BLAS threads."""
    objective, B = problem(600, 50, 3, 100, 1)
    data = make_mim_sines(600, random_state=0)
    model = HyperKernelRidge(3, n_centers=100, random_state=0)

    def fit(n: int) -> object:
        with threadpool_limits(n):
            return model.fit(data.X, data.y)

    with single_threaded_blas():
        one = side_by_side({"evaluation": lambda: objective.reduced(B)}, 501)["evaluation"]
    fits = side_by_side({"one": lambda: fit(1), "two": lambda: fit(2)}, 15)
    return [
        {
            "evaluation_ms": round(1e3 * one, 2),
            "fit_ms_blas_1_thread": round(1e3 * fits["one"], 1),
            "fit_ms_blas_2_threads": round(1e3 * fits["two"], 1),
            "ratio": round(fits["two"] / fits["one"], 2),
        }
    ]


def memory() -> list[Row]:
    """Measure the peak memory of a fit to 1,000,000 rows with 200 centers. The memory of the data does not count."""
    rows: list[Row] = []
    for n_jobs in (1, 2):
        command = [sys.executable, __file__, "--memory-of-one-fit", str(n_jobs)]
        out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        rows.append({"rows": 1_000_000, "centers": 200, "threads": n_jobs, "peak_beyond_the_data_MB": float(out)})
    return rows


def memory_of_one_fit(n_jobs: int) -> float:
    """Return the increase of the peak resident memory in a fit, in MB."""
    rng = np.random.default_rng(0)
    m, D = 1_000_000, 20
    X = np.empty((m, D), dtype=np.float32)
    for start in range(0, m, 10_000):
        X[start : start + 10_000] = rng.uniform(-1.0, 1.0, (10_000, D))
    y = np.sin(3.0 * X[:, 0]) + X[:, 1]
    # Run a small fit first, so that code and libraries are loaded.
    HyperKernelRidge(2, n_centers=20, max_iter=1, random_state=0).fit(X[:1000], y[:1000])
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak resident memory
    HyperKernelRidge(2, n_centers=200, max_iter=2, n_jobs=n_jobs, random_state=0).fit(X, y)
    return round((_status("VmHWM") - before) / 1024, 1)


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


def blocks() -> list[Row]:
    """Time the reduced objective and its gradient (20,000 rows, 500 centers, one thread) for several block sizes."""
    objectives = {}
    for megabytes in (0.5, 1, 2, 4, 8, 16):
        objective, B = problem(20_000, 50, 5, 500, 1, block_size=int(megabytes * 2**20 / (8 * 500)))
        objectives[str(megabytes)] = (objective, B)
    with single_threaded_blas():
        calls = {name: (lambda o=o, B=B: o.reduced(B)) for name, (o, B) in objectives.items()}
        seconds = side_by_side(calls, 11)
    return [{"block_MB": name, "reduced_ms": round(1e3 * value, 1)} for name, value in seconds.items()]


def starts() -> list[Row]:
    """Compute, for ten seeds, the test R2 of fits that start from one random map and of default fits.

    The fits use 100 centers and lambda = 1e-3.
    """
    problems = {
        "sines, D = 20, d = 2, m = 400": (make_mim_sines, 20, 2, 400),
        "sines, D = 50, d = 3, m = 600": (make_mim_sines, 50, 3, 600),
        "mixed, D = 50, d = 3, m = 600": (make_mim_mixed, 50, 3, 600),
    }
    rows: list[Row] = []
    for name, (make, D, d, m) in problems.items():
        for start in ("one random map", "default"):
            scores, seconds = [], 0.0
            for seed in range(10):
                data = make(m + 2000, D, d, random_state=seed)
                init = np.random.default_rng(seed).standard_normal((d, D)) if start == "one random map" else "random"
                model = HyperKernelRidge(d, n_centers=100, init=init, random_state=seed)
                began = time.perf_counter()
                model.fit(data.X[:m], data.y[:m])
                seconds += time.perf_counter() - began
                scores.append(model.score(data.X[m:], data.y[m:]))
            rows.append(
                {
                    "problem": name,
                    "start": start,
                    "median_R2": round(float(np.median(scores)), 3),
                    "least_R2": round(min(scores), 3),
                    "above_0.9": sum(score > 0.9 for score in scores),
                    "seconds_a_fit": round(seconds / 10, 2),
                }
            )
    return rows


def solvers() -> list[Row]:
    """Measure the time that L-BFGS takes to reach the objective that AGD and VarPro reach after 60 s.

    The problem is the paper's data set 1 with 600 rows, 25 centers and lambda = 1e-3. "times_as_fast" is the time in
    which AGD or VarPro comes within 2% of its objective after 60 s, divided by the time of L-BFGS.
    """
    rows: list[Row] = []
    rivals = [make(norm_bound=bound) for make in (AGD, VarPro) for bound in (1.0, None)]
    bar = tqdm(total=3 * len(rivals), desc="solvers", unit="run")
    for seed in range(3):
        objective, B = problem(600, 50, 3, 25, 1, seed)
        ours = [run(LBFGS(), objective, B, max_iter=2000).history for _ in range(5)]
        for rival in rivals:
            theirs = run(rival, objective, B, max_iter=10**9, tol=0.0, time_limit=SECONDS).history
            final = theirs["objective"][-1]
            near = _first(theirs, 1.02 * final)
            reached = float(np.median([_first(history, final) for history in ours]))
            rows.append(
                {
                    "seed": seed,
                    "solver": type(rival).__name__,
                    "norm_bound": rival.norm_bound,
                    "objective_after_60_s": round(final, 5),
                    "iterations": len(theirs["time"]) - 1,
                    "seconds_to_within_2_percent": round(near, 3),
                    "lbfgs_ms_to_that_objective": round(1e3 * reached, 2),
                    "times_as_fast": round(near / reached, 0),
                    "lbfgs_final": round(ours[0]["objective"][-1], 5),
                }
            )
            bar.update()
    return rows


def _first(history: dict[str, list[float]], level: float) -> float:
    """Return the first time at which the objective is at most ``level``, or infinity if it never is."""
    return next((t for t, value in zip(history["time"], history["objective"], strict=True) if value <= level), np.inf)


def machine() -> str:
    """Return the processor, the number of cores and the versions of Python and NumPy in one line."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if os.path.exists("/proc/cpuinfo") else []
    model = next((line.split(":")[1].strip() for line in lines if "model name" in line), platform.processor())
    return f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}, NumPy {np.__version__}"


def markdown(rows: list[Row]) -> str:
    """Return the rows as a Markdown table."""
    header = list(rows[0])
    lines = [header, ["---"] * len(header), *[[str(row[name]) for name in header] for row in rows]]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def write(name: str, rows: list[Row]) -> None:
    """Write the rows to a CSV file in benchmarks/results."""
    RESULTS.mkdir(exist_ok=True)
    with open(RESULTS / f"{name}.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def read(name: str) -> list[Row]:
    """Return the rows of a CSV file written by `write`, or an empty list if there is no such file."""
    path = RESULTS / f"{name}.csv"
    if not path.exists():
        return []
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def main() -> None:
    """Run the selected benchmarks, and write the Markdown page from the CSV files of all benchmarks."""
    parts = {
        "evaluation": evaluation,
        "small": small,
        "blocks": blocks,
        "memory": memory,
        "starts": starts,
        "solvers": solvers,
    }
    for name in sys.argv[1:] or parts:
        rows = parts[name]()
        write(f"objective-{name}", rows)
        print(f"\n{parts[name].__doc__}\n{markdown(rows)}")
    page = ["# benchmarks/objective.py", "", machine(), ""]
    for name, part in parts.items():
        if rows := read(f"objective-{name}"):
            page += [f"{part.__doc__}", "", markdown(rows), ""]
    (RESULTS / "objective.md").write_text("\n".join(page))


if __name__ == "__main__":
    if "--memory-of-one-fit" in sys.argv:
        print(memory_of_one_fit(int(sys.argv[-1])))
    else:
        main()
