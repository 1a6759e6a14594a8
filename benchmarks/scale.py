"""Benchmark of large data: a file of ten million rows, two Dask workers, and the time for different numbers of rows.

    python benchmarks/scale.py [file] [dask] [line]    (all by default; half an hour, 3 GB of disk)

The results are written to scale.csv and scale.md in benchmarks/results. Compared times are measured in the same run.
"""

from __future__ import annotations

import csv
import os
import platform
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hkrr.kernels import Gaussian
from hkrr.objective import Objective
from hkrr.rows import InMemoryRows
from hkrr.rows.file_readers import open_source
from hkrr.rows.file_rows import FileRows

RESULTS = Path(__file__).parent / "results"
# Number of columns and of centers.
D, CENTERS = 50, 200
# Number of rows in a generated block, and in a row group of the Parquet file.
CHUNK, GROUP = 100_000, 1_000_000
# A map with five directions. It generates the targets, and the objective is evaluated at this map.
MAP = np.random.RandomState(0).standard_normal((5, D)) / np.sqrt(D)


def block(k, n=CHUNK):
    """Return block k of the data: float32 inputs X, and targets y that are a sum of sines of the coordinates X MAP'."""
    X = np.random.default_rng(k).standard_normal((n, D), dtype=np.float32)
    return X, np.sin(1.5 * X @ MAP.T.astype(np.float32)).sum(axis=1)


def blocks(m):
    """Yield m rows in blocks. m must be a multiple of CHUNK or smaller than CHUNK."""
    for k in range(-(-m // CHUNK)):
        yield block(k, min(m, CHUNK))


def batched(items, n):
    """Yield the items in lists of n. The last list may be shorter."""
    items = iter(items)
    while group := list(islice(items, n)):
        yield group


def write_parquet(path, m):
    """Write m rows to a Parquet file in row groups of a million rows, about the default of pyarrow and pandas."""
    names = [*(f"x{k}" for k in range(D)), "y"]
    schema = pa.schema([(name, pa.float32()) for name in names])
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as writer:
        for group in batched(blocks(m), GROUP // CHUNK):
            tables = (pa.table([pa.array(np.ascontiguousarray(x)) for x in (*X.T, y)], schema=schema) for X, y in group)
            writer.write_table(pa.concat_tables(tables), row_group_size=GROUP)


def objective_of(rows):
    """Return the objective with the first 200 rows as centers, and a gamma that suits five directions."""
    return Objective(rows, rows.take(np.arange(CENTERS)), Gaussian(gamma=0.1), 1e-3)


def seconds_of(work, repeats=3):
    """Return the median seconds of repeated calls."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return float(np.median(times))


def resident():
    """Return the peak resident memory of this process in MB (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 2**10


def one_file(m):
    """Yield the time and memory of a fit from a file, and the times of one pass over the rows and of its parts.

    A pass reads the file and computes the normal equations. Reading and computing are also timed separately.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        write_parquet(path, m)
        yield {"what": "Parquet file, GB", "m": m, "value": path.stat().st_size / 1e9}
        peak, seconds = in_own_process(str(path), "y")
        yield {"what": "fit from the file, 5 iterations, peak resident MB", "m": m, "value": peak}
        yield {"what": "fit from the file, 5 iterations, seconds", "m": m, "value": seconds}
        threads = os.cpu_count() or 1
        file_rows = FileRows(open_source(path, "y"), n_threads=threads)
        some = [pair for _, pair in zip(range(10), blocks(m), strict=False)]
        in_memory = InMemoryRows(
            np.concatenate([X for X, _ in some]), np.concatenate([y for _, y in some]), n_threads=threads
        )
        objectives = objective_of(file_rows), objective_of(in_memory)
        for evaluate in objectives:
            evaluate.value(MAP, np.ones((CENTERS, 1)))  # checks the file and warms up
        share = m / in_memory.n_rows
        reading, bare, passing, computing = [], [], [], []
        for _ in range(3):  # alternate; all passes read the file from the page cache, because it has just been written
            bare.append(seconds_of(lambda: [None for _ in pq.ParquetFile(path).iter_batches(CHUNK)], 1))
            reading.append(seconds_of(lambda: [None for _ in file_rows._source.chunks()], 1))
            passing.append(seconds_of(lambda: objectives[0]._normal_equations(MAP, objectives[0].centers @ MAP.T), 1))
            computing.append(
                share * seconds_of(lambda: objectives[1]._normal_equations(MAP, objectives[1].centers @ MAP.T), 1)
            )
        read, only, compute, whole = (float(np.median(each)) for each in (reading, bare, computing, passing))
        yield {"what": "reading the file with pyarrow, seconds", "m": m, "value": only}
        yield {"what": "reading the file into arrays, seconds", "m": m, "value": read}
        yield {"what": "normal equations of blocks in memory, seconds", "m": m, "value": compute}
        yield {"what": "normal equations of the file, seconds", "m": m, "value": whole}
        yield {
            "what": "pass / (reading into arrays + computing)",
            "m": m,
            "value": whole / (read + compute),
        }
        yield {
            "what": "pass / (reading with pyarrow + computing)",
            "m": m,
            "value": whole / (only + compute),
        }


def fit(X, y):
    """Fit a model, and print the peak memory and the time in seconds.

    X is the path of a file and y its target. If X is "blocks", y is the number of rows to generate.
    """
    from hkrr import HyperKernelRidge

    began = time.perf_counter()
    X, y = (repeated(int(y)), None) if X == "blocks" else (X, y)
    HyperKernelRidge(5, n_centers=CENTERS, max_iter=5, random_state=0).fit(X, y)
    print(resident(), time.perf_counter() - began)


def on_dask(m, n_centers=300):
    """Yield the times of one evaluation of the reduced function with one and two workers, and of an empty pass.

    An empty pass applies a function that computes nothing to every partition of the rows.
    """
    from distributed import Client, LocalCluster

    seconds = {}
    for workers in (1, 2, 1, 2):  # alternate, so that other load on the machine affects both
        options = {"threads_per_worker": 1, "processes": True, "dashboard_address": ":0", "memory_limit": 0}
        with LocalCluster(n_workers=workers, **options) as cluster, Client(cluster):
            rows = dask_rows(8, m // 8)
            objective = Objective(rows, rows.take(np.arange(n_centers)), Gaussian(gamma=0.1), 1e-3)
            objective.reduced(MAP)
            seconds.setdefault(workers, []).append(seconds_of(lambda objective=objective: objective.reduced(MAP)))
            if len(seconds[workers]) == 2 and workers == 2:
                square = np.zeros((n_centers, n_centers))
                for n in (8, 200):  # small partitions, so that the overhead dominates the time
                    some = dask_rows(n, 1000)
                    for what, small in (
                        ("", ()),
                        (f", {n_centers} x {n_centers} numbers round trip", (square,)),
                    ):
                        empty = seconds_of(lambda some=some, small=small: some.sum(_nothing, 1, *small), 20)
                        what = f"Dask, two workers: an empty pass, {n} partitions of 1,000 rows{what}, ms"
                        yield {"what": what, "m": some.n_rows, "value": 1e3 * empty}
    one, two = (min(seconds[workers]) for workers in (1, 2))
    yield {"what": f"Dask, one worker: reduced with {n_centers} centers, seconds", "m": m, "value": one}
    yield {"what": f"Dask, two workers: reduced with {n_centers} centers, seconds", "m": m, "value": two}
    yield {"what": "Dask, speedup of two workers over one", "m": m, "value": one / two}


def dask_rows(n_partitions, n):
    """Return rows in partitions of n rows. The rows are generated on the workers."""
    import dask
    import dask.array as da

    from hkrr.rows.dask import DaskRows

    made = [dask.delayed(block, nout=2)(k, n) for k in range(n_partitions)]
    X = da.concatenate([da.from_delayed(pair[0], (n, D), np.float32) for pair in made])
    y = da.concatenate([da.from_delayed(pair[1], (n,), np.float32) for pair in made])
    return DaskRows(X, y)


def _nothing(X, Y, w, *small):
    return tuple(np.zeros_like(array) for array in small) or (np.zeros(1),)


def line(sizes=(10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)):
    """Yield the times of one evaluation of the reduced function for several numbers of rows m, and the memory of fits.

    Also yield the R2 and the intercept of a line fitted to the times, and the exponent of m.
    """
    objectives = {
        m: objective_of(FileRows(open_source(repeated(m), None), n_threads=os.cpu_count() or 1)) for m in sizes
    }
    times = {m: [] for m in sizes}
    for _ in range(3):  # alternate between the sizes, so that other load on the machine affects all sizes
        for m in sizes:
            work = lambda m=m: objectives[m].reduced(MAP)  # noqa: E731  # a def would take more lines
            times[m].append(seconds_of(work, 5 if m <= 300_000 else 1))
    seconds = np.array([np.median(times[m]) for m in sizes])
    for m, value in zip(sizes, seconds, strict=True):
        yield {"what": "reduced value and gradient of blocks from memory, seconds", "m": m, "value": value}
    slope, intercept = np.polyfit(sizes, seconds, 1)
    residual = seconds - slope * np.array(sizes) - intercept
    R2 = 1.0 - np.sum(residual**2) / np.sum((seconds - np.mean(seconds)) ** 2)
    yield {"what": "R2 of a straight line in m", "m": sizes[-1], "value": R2}
    yield {"what": "intercept of this line (m = 0), seconds", "m": 0, "value": intercept}
    # The R2 of the line depends mostly on the largest sizes. A line fit to the logarithms gives all sizes a similar
    # weight. Its slope is the exponent of m.
    power = np.polyfit(np.log(sizes), np.log(seconds), 1)[0]
    yield {"what": "exponent of m (line fit of the logarithms)", "m": sizes[-1], "value": power}
    for m in sizes[::2]:
        peak, _ = in_own_process("blocks", str(m))
        yield {"what": "fit, 5 iterations, peak resident MB", "m": m, "value": peak}


def repeated(m):
    """Return a function that returns an iterable of m rows, which repeats the same block."""
    X, y = block(0, min(m, CHUNK))
    return lambda: ((X, y) for _ in range(-(-m // CHUNK)))


def in_own_process(*arguments):
    """Return the peak memory and the time in seconds of a fit in a new process."""
    command = [sys.executable, __file__, "fit", *arguments]
    found = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    return float(found[0]), float(found[1])


PARTS = {"file": lambda: one_file(10_000_000), "dask": lambda: on_dask(1_000_000), "line": line}


def main():
    wanted = sys.argv[1:] or list(PARTS)
    if wanted[0] == "fit":
        fit(*wanted[1:])
        return
    rows = []
    if (RESULTS / "scale.csv").exists():
        with open(RESULTS / "scale.csv", newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["part"] not in wanted]
    for part in wanted:
        for row in PARTS[part]():
            rows.append({"part": part, **row, "value": f"{row['value']:.4g}"})
            print(*rows[-1].values(), sep="  ", flush=True)
            write(sorted(rows, key=lambda row: list(PARTS).index(row["part"])))


def write(rows):
    """Write the CSV file and the Markdown page."""
    with open(RESULTS / "scale.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, ["part", "what", "m", "value"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    lines = ["# benchmarks/scale.py", "", f"{machine()}. D = {D}, d = 5, {CENTERS} centers unless stated"]
    lines += [
        f"otherwise, X in float32. Files (row groups of {GROUP:,}) are read from the page cache.",
        "",
    ]
    lines += ["| what | m | |", "| --- | --- | --- |"]
    lines += [f"| {row['what']} | {int(row['m']):,} | {row['value']} |" for row in rows]
    (RESULTS / "scale.md").write_text("\n".join([*lines, ""]))


def machine():
    """Return a description of the processor, the memory and the versions."""
    info = Path("/proc/cpuinfo")
    names = [line.split(":")[1].strip() for line in info.read_text().splitlines() if "model name" in line]
    gigabytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    packages = ", ".join(f"{name} {version(name)}" for name in ("numpy", "pyarrow", "dask"))
    processor = names[0] if names else platform.machine()
    return f"{os.cpu_count()} cores ({processor}), {gigabytes:.0f} GB, Python {platform.python_version()}, {packages}"


if __name__ == "__main__":
    main()
