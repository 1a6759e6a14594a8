"""Benchmark of the import time and of the prediction speed.

    python benchmarks/prediction.py      (a minute)

The import times of hkrr and of scikit-learn's kernel ridge are measured in separate processes. The time to predict one
row and the number of rows per second are measured with d = 3 directions and 500 centers, for several kernels, on one
and on two threads. The results are written to prediction.md and prediction.csv in benchmarks/results.
"""

from __future__ import annotations

import csv
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from hkrr import HyperKernelRidge
from hkrr.datasets import make_mim_sines

_RESULTS = Path(__file__).parent / "results"
_KERNELS = ("gaussian", "matern32", "laplace", "product_matern32")
_ROWS, _REPEATS = 500_000, 5
_IMPORT = "import time; began = time.perf_counter(); import {module}; print(time.perf_counter() - began)"


def seconds_of_imports() -> tuple[float, float]:
    """Return the shortest import times of sklearn.kernel_ridge and of hkrr, which are imported alternately."""
    times: dict[str, list[float]] = {"sklearn.kernel_ridge": [], "hkrr": []}
    for _ in range(2 * _REPEATS):
        for module, found in times.items():
            command = [sys.executable, "-c", _IMPORT.format(module=module)]
            found.append(float(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
    return min(times["sklearn.kernel_ridge"]), min(times["hkrr"])


def _seconds(model: HyperKernelRidge, X: np.ndarray, repeats: int) -> list[float]:
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        model.predict(X)
        times.append(time.perf_counter() - began)
    return times


def speeds() -> list[dict[str, object]]:
    """Return, for each kernel and number of threads, milliseconds for one row and rows per second for many rows."""
    data = make_mim_sines(2000, n_features=50, n_components=3, random_state=0)
    X = np.random.default_rng(0).normal(size=(_ROWS, 50))
    lines: list[dict[str, object]] = []
    for kernel in _KERNELS:
        model = HyperKernelRidge(3, kernel=kernel, n_centers=500, n_init=1, max_iter=5, random_state=0)
        model.fit(data.X, data.y)
        for n_jobs in (1, 2):
            model.set_params(n_jobs=n_jobs)
            one = float(np.median(_seconds(model, X[:1], 500)))
            many = min(_seconds(model, X, _REPEATS))
            lines.append(
                {
                    "kernel": kernel,
                    "threads": n_jobs,
                    "one_row_ms": f"{1e3 * one:.2f}",
                    "rows_a_second": f"{len(X) / many:.3g}",
                }
            )
    return lines


def main() -> None:
    """Run the benchmark, and print and write the results."""
    base, ours = seconds_of_imports()
    lines = speeds()
    with (_RESULTS / "prediction.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, list(lines[0]))
        table.writeheader()
        table.writerows(lines)
    text = [
        "# benchmarks/prediction.py",
        "",
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, NumPy {np.__version__}",
        "",
        f"`import hkrr` takes {ours:.2f} s, of which `import sklearn.kernel_ridge` alone takes {base:.2f} s.",
        "",
        f"Predictions at d = 3 with 500 centers and 50 columns: one row (median), and {_ROWS:,} rows at once.",
        "",
        "| " + " | ".join(lines[0]) + " |",
        "|" + " --- |" * len(lines[0]),
        *("| " + " | ".join(map(str, line.values())) + " |" for line in lines),
    ]
    (_RESULTS / "prediction.md").write_text("\n".join(text) + "\n")
    print("\n".join(text))


if __name__ == "__main__":
    main()
