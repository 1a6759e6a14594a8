"""Benchmark on one GPU: the reduced function, fits to synthetic data, data streamed from the host, and xRFM.

    python benchmarks/device.py [--out benchmarks/results] [--quick]

The reduced function of a map B is the minimum of the training objective over the coefficients. The results are written
to device.csv and device.md in the folder --out. --quick uses a tenth of the rows. X is float32, and all sums are
float64. xRFM is timed if it is installed.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import multiprocessing
import os
import queue
import time
from pathlib import Path

import numpy as np
import torch

from hkrr import HyperKernelRidge, HyperKernelRidgeCV
from hkrr.datasets import make_mim_sines
from hkrr.kernels import Gaussian
from hkrr.objective import Objective
from hkrr.rows import InMemoryRows
from hkrr.rows import torch_device as devices
from hkrr.rows.torch_device import TorchRows
from hkrr.solvers import LBFGS
from hkrr.solvers.initialization import descend_lambda, sample_map

D, N_TEST = 100, 100_000


def timed(work, repeats=5):
    """Call `work` several times. Return the median seconds of a call, and the result of the last call.

    The GPU is synchronized before and after each call.
    """
    seconds = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        began = time.perf_counter()
        found = work()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    return float(np.median(seconds)), found


def matrix_peak(n=8192):
    """Return the TFLOP/s of a float64 matrix product."""
    A = torch.randn(n, n, dtype=torch.float64, device="cuda")
    return 2 * n**3 / timed(lambda: A @ A)[0] / 1e12


def planted(m, seed=0):
    """Return training and test rows of the paper's sum of sines with five directions, as NumPy arrays.

    The noise limits R2 to 0.990.
    """
    data = make_mim_sines(m + N_TEST, D, 5, random_state=seed)
    X, y = data.X.astype(np.float32), data.y.astype(np.float32)
    return X[:m], y[:m], X[m:], y[m:]


def evaluations(m, peak):
    """Yield the times of one evaluation of the reduced function and its gradient, with m rows of data on the GPU.

    ``peak`` is the speed of a matrix product in TFLOP/s, for comparison.
    """
    X = torch.randn(m, D, device="cuda")
    y = torch.randn(m, device="cuda")
    rows = TorchRows(X, y, device="cuda")
    for c in (1000, 4000):
        rng = np.random.RandomState(0)
        B = rng.standard_normal((10, D)) / np.sqrt(D)
        objective = Objective(rows, rows.take(np.arange(c)), Gaussian(gamma=0.05), 1e-3)
        objective.reduced(B)
        seconds, _ = timed(lambda B=B, objective=objective: objective.reduced(B), 15)
        rate = 2.0 * m * c * c / seconds / 1e12
        note = f"K'K counted as a full product: {rate:.0f} TFLOP/s, {rate / peak:.2f} of a float64 matrix product"
        yield {"what": f"reduced value and gradient, {c} centers", "m": m, "seconds": seconds, "note": note}


def streamed(m):
    """Yield the time of one evaluation for data on the GPU and for data on the host, and the gradients' difference."""
    X, y, *_ = planted(m)
    found = {}
    kept = devices._SHARE_FOR_DATA
    for place, share in (("on the GPU", kept), ("on the host", 0.0)):
        devices._SHARE_FOR_DATA = share
        rows = TorchRows(X, y, device="cuda")
        objective = Objective(rows, rows.take(np.arange(1000)), Gaussian(gamma=0.05), 1e-3)
        B = np.random.RandomState(0).standard_normal((5, D)) / np.sqrt(D)
        objective.reduced(B)
        seconds, found[place] = timed(lambda B=B, objective=objective: objective.reduced(B), 3)
        yield {"what": f"reduced, 1000 centers, data {place}", "m": m, "seconds": seconds, "note": ""}
        del rows, objective
        torch.cuda.empty_cache()
    devices._SHARE_FOR_DATA = kept
    one, other = found.values()
    gap = np.max(np.abs(one.grad - other.grad)) / np.max(np.abs(one.grad))
    yield {"what": "relative difference of the two gradients", "m": m, "seconds": "", "note": f"{gap:.1e}"}


def little_memory(m):
    """Yield the block sizes and the error of an evaluation for which the GPU memory is too small for full blocks."""
    X, y = torch.randn(m, D), torch.randn(m)
    rows = TorchRows(X, y, device="cuda")
    objective = Objective(rows, rows.take(np.arange(1000)), Gaussian(gamma=0.05), 1e-3)
    B = np.random.RandomState(0).standard_normal((5, D)) / np.sqrt(D)
    expected = objective.reduced(B)
    torch.cuda.empty_cache()
    sizes = []
    original = TorchRows._blocks

    def record(self, size):
        sizes.append(size)
        return original(self, size)

    TorchRows._blocks = record
    total = torch.cuda.mem_get_info()[1]
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_allocated() + (1 << 30)) / total)
    found = objective.reduced(B)
    torch.cuda.set_per_process_memory_fraction(1.0)
    TorchRows._blocks = original
    gap = np.max(np.abs(found.grad - expected.grad)) / np.max(np.abs(expected.grad))
    blocks = " to ".join(f"{size:,}" for size in dict.fromkeys(sizes))
    note = f"{blocks}; relative error of the gradient {gap:.0e}"
    yield {"what": "1 GB of free memory: rows of a block", "m": m, "seconds": "", "note": note}


def fits(sizes):
    """Yield the times of fits of data in host memory. They include the transfer and the search for a starting map."""
    for m in sizes:
        X, y, X_test, y_test = planted(m)
        HyperKernelRidge(5, n_centers=100, max_iter=1, device="cuda", random_state=0).fit(X[:5000], y[:5000])
        model = HyperKernelRidge(5, reg_lambda=1e-4, n_centers=1000, max_iter=40, device="cuda", random_state=0)
        seconds, _ = timed(lambda X=X, y=y, model=model: model.fit(X, y), 1)
        score = model.score(X_test, y_test)
        note = f"test R2 {score:.4f}, {model.n_iter_} iterations"
        yield {"what": "HyperKernelRidge, 1000 centers", "m": m, "seconds": seconds, "note": note}


def searches(m):
    """Yield the time of `HyperKernelRidgeCV` with default parameters, including the transfer of the data."""
    X, y, X_test, y_test = planted(m)
    HyperKernelRidgeCV(device="cuda", random_state=0).fit(X[:2000], y[:2000])
    model = HyperKernelRidgeCV(device="cuda", random_state=0)
    seconds, _ = timed(lambda: model.fit(X, y), 1)
    note = f"test R2 {model.score(X_test, y_test):.4f}, {model.n_components_} directions (5 are right)"
    yield {"what": "HyperKernelRidgeCV, default parameters", "m": m, "seconds": seconds, "note": note}


def agreement():
    """Yield the difference between the maps of two converged fits, one on the CPU and one on the GPU."""
    data = make_mim_sines(20_000, 10, 2, noise=0.1, random_state=0)
    options = {"kernel": "matern32", "reg_lambda": 1e-2, "n_centers": 20, "random_state": 0}
    models = [HyperKernelRidge(2, **options, device=device).fit(data.X, data.y) for device in (None, "cuda")]
    gap = np.max(np.abs(models[0].components_ - models[1].components_))
    reasons = " and ".join(model.result_.reason for model in models)
    note = f"differ by {gap:.1e} ({reasons})"
    yield {"what": "components_, in memory and on the GPU", "m": 20_000, "seconds": "", "note": note}


def starts(m=4000, c=100):
    """Yield the times of fitting four starting maps with a decreasing sequence of lambdas (4,000 rows, 100 centers).

    The same four fits are timed three times: on host threads, one after another on the GPU, and in one batch on the
    GPU.
    """
    X, y, *_ = planted(m)
    y = y - y.mean()
    memory, card = InMemoryRows(X, y, n_threads=os.cpu_count() or 1), TorchRows(X, y, device="cuda")
    maps = [sample_map(5, D, np.random.RandomState(k)) for k in range(4)]
    kernel, options = Gaussian(gamma=0.5), {"reg_lambda": 1e-4, "n_centers": c}

    def path(of, rows):
        return descend_lambda(rows, [(B, kernel) for B in of], LBFGS(), rng=np.random.RandomState(0), **options)

    path(maps, memory)
    seconds, _ = timed(lambda: path(maps, memory), 3)
    yield {
        "what": "four starting maps, decreasing lambdas, host threads",
        "m": m,
        "seconds": seconds,
        "note": f"{os.cpu_count()} cores",
    }
    path(maps, card)
    seconds, _ = timed(lambda: [path([B], card) for B in maps], 3)
    yield {
        "what": "four starting maps, decreasing lambdas, one after another on the GPU",
        "m": m,
        "seconds": seconds,
        "note": "",
    }
    seconds, _ = timed(lambda: path(maps, card), 3)
    yield {
        "what": "four starting maps, decreasing lambdas, one batch on the GPU",
        "m": m,
        "seconds": seconds,
        "note": "",
    }


def xrfm_beside(m, limit):
    """Yield the time and the R2 of xRFM with default parameters, fitted to the data of `planted` with m rows.

    xRFM runs in a separate process, which is ended after ``limit`` seconds.
    """
    if importlib.util.find_spec("xrfm") is None:
        return
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    process = context.Process(target=fit_xrfm, args=(m, answers))
    process.start()
    answers.get()  # wait until the data are on the GPU
    what = "xRFM, defaults, data on the GPU"
    try:
        seconds, score = answers.get(timeout=limit)
        yield {"what": what, "m": m, "seconds": seconds, "note": f"test R2 {score:.4f}"}
    except queue.Empty:
        yield {"what": what, "m": m, "seconds": "", "note": f"not finished after {limit} s"}
    process.kill()
    process.join()


def fit_xrfm(m, answers):
    from xrfm import xRFM

    X, y, X_test, y_test = planted(m)
    X, y, X_test = (torch.as_tensor(part, device="cuda") for part in (X, y, X_test))
    answers.put("ready")
    n = int(0.8 * m)
    model = xRFM(device="cuda", tuning_metric="mse", verbose=False)
    seconds, _ = timed(lambda: model.fit(X[:n], y[:n, None], X[n:], y[n:, None]), 1)
    predicted = np.ravel(model.predict(X_test))
    answers.put((seconds, 1 - np.mean((predicted - y_test) ** 2) / np.var(y_test)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    scale = 10 if arguments.quick else 1
    m = 1_000_000 // scale
    arguments.out.mkdir(parents=True, exist_ok=True)
    peak = matrix_peak()
    rows = [{"what": "float64 matrix product", "m": 8192, "seconds": "", "note": f"{peak:.1f} TFLOP/s"}]
    parts = (
        evaluations(m, peak),
        agreement(),
        little_memory(m),
        streamed(m),
        starts(),
        fits((m // 10, m, 10 * m)),
        searches(m),
        xrfm_beside(m // 10, 120),
        xrfm_beside(m, 150),
    )
    for part in parts:
        for row in part:
            row["seconds"] = row["seconds"] if row["seconds"] == "" else round(row["seconds"], 4)
            rows.append(row)
            print(*row.values(), sep="  ", flush=True)
            write(rows, arguments.out)


def write(rows, out):
    with open(out / "device.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    machine = f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, CUDA {torch.version.cuda}"
    lines = ["# benchmarks/device.py", "", f"{machine}. D = {D}, X in float32, all sums in float64.", ""]
    lines += ["| what | m | seconds | |", "| --- | --- | --- | --- |"]
    lines += [f"| {row['what']} | {row['m']:,} | {row['seconds']} | {row['note']} |" for row in rows]
    (out / "device.md").write_text("\n".join([*lines, ""]))


if __name__ == "__main__":
    main()
