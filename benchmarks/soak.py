"""Benchmark of the resident memory of one process over many fits, which must not grow.

    python benchmarks/soak.py [n_fits]      (500 by default; some minutes)

The fits cycle through a list of models: each solver, each criterion, all rows as centers, the search, the grid search,
data in arrays and in a .npy file, one and two threads. Each model makes predictions and is then deleted. The results
are written to soak.md and soak.csv in benchmarks/results.
"""

from __future__ import annotations

import gc
import itertools
import platform
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil

from hkrr import HyperKernelRidge, HyperKernelRidgeCV
from hkrr.datasets import make_mim_sines

_RESULTS = Path(__file__).parent / "results"
# Number of fits between two lines of the table.
_EVERY = 50
# Number of fits before the slope of the memory is measured. After these fits, caches, thread pools and the allocator's
# arenas are filled.
_SETTLED = 100


def models(seed: int) -> list[tuple[str, HyperKernelRidge | HyperKernelRidgeCV, bool]]:
    """Return for each model its name, the model, and whether it is fitted from the file."""

    def ridge(**options: object) -> HyperKernelRidge:
        return HyperKernelRidge(2, n_init=2, max_iter=5, random_state=seed, **{"n_centers": 25, "n_jobs": 1, **options})

    def search(**options: object) -> HyperKernelRidgeCV:
        return HyperKernelRidgeCV([2], n_init=1, n_jobs=1, random_state=seed, **options)

    return [
        ("lbfgs", ridge(), False),
        ("lbfgs, file", ridge(), True),
        ("varpro", ridge(solver="varpro"), False),
        ("varpro, file", ridge(solver="varpro"), True),
        ("agd", ridge(solver="agd"), False),
        ("lbfgs, two threads", ridge(n_jobs=2, block_size=30), False),
        ("evidence", ridge(criterion="evidence", reg_lambda="auto"), False),
        ("leave-one-out", ridge(criterion="loo"), False),
        ("all rows", ridge(n_centers="all"), False),
        ("search", search(), False),
        ("search, file", search(), True),
        ("grid", search(criterion="training", cv="holdout", reg_lambdas=[1e-2]), False),
    ]


def soak(n_fits: int) -> list[tuple[int, int]]:
    """Run the fits, and return pairs of the number of fits and the resident memory in kB after garbage collection."""
    data = make_mim_sines(100, n_features=6, n_components=2, random_state=0)
    process, sampled = psutil.Process(), []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npy"
        np.save(path, np.column_stack([data.X, data.y]))
        rounds = itertools.chain.from_iterable(models(seed) for seed in itertools.count())
        for k, (_, model, from_file) in enumerate(itertools.islice(rounds, n_fits), 1):
            model.fit(path, -1) if from_file else model.fit(data.X, data.y)
            model.predict(data.X)
            del model
            gc.collect()
            sampled.append((k, process.memory_info().rss // 1024))
    return sampled


def main(n_fits: int = 500) -> None:
    """Run the benchmark, and print and write the results."""
    began = time.perf_counter()
    sampled = soak(n_fits)
    numbers, memory = np.array(sampled).T
    late = numbers > _SETTLED
    slope = float(np.polyfit(numbers[late], memory[late], 1)[0]) if late.sum() > 1 else float("nan")
    lines = ["| fits | resident, MB |", "| --- | --- |"]
    lines += [f"| {k} | {kb / 1024:.1f} |" for k, kb in sampled if k % _EVERY == 0]
    text = "\n".join(
        [
            "# Many fits in one process",
            "",
            f"`python benchmarks/soak.py {n_fits}`: {len(models(0))} kinds of fits (each solver, the criteria, "
            "all rows as centers, the search, the grid, arrays and a .npy file), each followed by a prediction.",
            "",
            *lines,
            "",
            f"Slope over the fits after the first {_SETTLED}: {slope:.2f} kB per fit. "
            f"Python {platform.python_version()}, NumPy {np.__version__}; {time.perf_counter() - began:.0f} s.",
            "",
        ]
    )
    print(text)
    _RESULTS.mkdir(exist_ok=True)
    (_RESULTS / "soak.md").write_text(text, encoding="utf-8")
    np.savetxt(_RESULTS / "soak.csv", sampled, fmt="%d", delimiter=",", header="fits,resident_kb", comments="")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
