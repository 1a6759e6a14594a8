"""Accuracy of `HyperKernelRidgeCV` with default parameters, compared with kernel ridge regression on the true Bx.

    python benchmarks/adaptive.py [paper] [planted]

The arguments select the paper's data sets or ten kinds of planted models (synthetic data with known directions). By
default, both run, which takes ten minutes on two cores. The results are written to adaptive-*.csv, adaptive.md and
adaptive.png in benchmarks/results.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import GridSearchCV
from tqdm.auto import tqdm

from hkrr import HyperKernelRidgeCV
from hkrr._base.threads import single_threaded_blas
from hkrr.datasets import PLANTED, Dataset, make_mim_mixed, make_mim_sines, make_planted
from hkrr.metrics import subspace_distance
from objective import RESULTS, Row, machine, markdown, read, write

N_TEST = 4000


def tuned_krr(Z: np.ndarray, y: np.ndarray, m: int, lowest_log_gamma: float) -> float:
    """Return the test R2 of kernel ridge regression, tuned by five-fold cross-validation.

    The first m rows are training rows, and the other rows are test rows. The smallest gamma that is tried is
    10^lowest_log_gamma. Cross-validation uses at most 1,500 training rows, and the final fit at most 8,000, because the
    cost is cubic in the number of rows.
    """
    Z, y = Z / Z.std(axis=0), y - y[:m].mean()
    n = min(m, 1500)
    grid = {"alpha": n * np.logspace(-7, -1, 7), "gamma": np.logspace(lowest_log_gamma, 0.5, 8)}
    with single_threaded_blas():
        search = GridSearchCV(KernelRidge(kernel="rbf"), grid).fit(Z[:n], y[:n])
    if n == m:
        return float(search.score(Z[m:], y[m:]))
    best = KernelRidge(kernel="rbf", **search.best_params_)
    last = min(m, 8000)
    return float(best.fit(Z[:last], y[:last]).score(Z[m:], y[m:]))


def run_case(make: Callable[[int, int], Dataset], m: int, seed: int) -> Row:
    """Fit with default parameters, and return the test scores of the fitted model and of kernel ridge regression."""
    data = make(m + N_TEST, seed)
    began = time.perf_counter()
    # The seed differs from the seed of the data. With the same seed, a random starting map could coincide with
    # the true map.
    model = HyperKernelRidgeCV(random_state=1_000_000 + seed).fit(data.X[:m], data.y[:m])
    seconds = time.perf_counter() - began
    scale = data.X.std(axis=0)
    return {
        "seed": seed,
        "R2": round(float(model.score(data.X[m:], data.y[m:])), 4),
        "R2_krr_on_true_map": round(tuned_krr(data.X @ data.B.T, data.y, m, -2.0), 4),
        "R2_krr_on_inputs": round(tuned_krr(data.X, data.y, m, -4.0), 4),
        "n_components": model.n_components_,
        "true_n_components": len(data.B),
        "subspace_distance": round(subspace_distance(model.components_ * scale, data.B * scale), 3),
        "seconds": round(seconds, 1),
    }


def paper() -> list[Row]:
    """The paper's two data sets with D = 50 and three directions."""
    cases = [
        ("data set 1", make_mim_sines, 600, 10),
        ("data set 2", make_mim_mixed, 600, 10),
        ("data set 1", make_mim_sines, 4000, 5),
        ("data set 1", make_mim_sines, 16000, 5),
    ]
    runs = [(name, make, m, seed) for name, make, m, n_seeds in cases for seed in range(n_seeds)]
    return [
        {"problem": name, "m": m, **run_case(lambda n, s, make=make: make(n, random_state=s), m, seed)}
        for name, make, m, seed in tqdm(runs, desc="paper")
    ]


def planted() -> list[Row]:
    """Ten kinds of planted models with m = 600."""
    runs = [(kind, seed) for kind in PLANTED for seed in range(5)]
    return [
        {"problem": kind, "m": 600} | run_case(lambda n, s, kind=kind: make_planted(kind, n, random_state=s), 600, seed)
        for kind, seed in tqdm(runs, desc="planted")
    ]


def summary(rows: list[Row]) -> list[Row]:
    """Return the medians over the seeds for each problem and size."""
    out: list[Row] = []
    for key in dict.fromkeys((row["problem"], row["m"]) for row in rows):
        some = [row for row in rows if (row["problem"], row["m"]) == key]
        right = sum(int(row["n_components"]) == int(row["true_n_components"]) for row in some)
        medians = {name: float(np.median([float(row[name]) for row in some])) for name in some[0] if name in _MEDIANS}
        gap = medians["R2_krr_on_true_map"] - medians["R2"]
        out.append(
            {
                "problem": key[0],
                "m": key[1],
                **{name: round(value, 4) for name, value in medians.items()},
                "gap": round(gap, 4),
                "right_d": f"{right} of {len(some)}",
            }
        )
    return out


_MEDIANS = ("R2", "R2_krr_on_true_map", "R2_krr_on_inputs", "subspace_distance", "seconds")


def plot(rows: list[Row]) -> None:
    """Plot R2 for each problem and seed, with the R2 of kernel ridge regression on the true coordinates Bx."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    keys = list(dict.fromkeys((row["problem"], row["m"]) for row in rows))
    figure, ax = plt.subplots(figsize=(8, 0.42 * len(keys) + 1.2), layout="constrained")
    for k, key in enumerate(reversed(keys)):
        some = [row for row in rows if (row["problem"], row["m"]) == key]
        known = [float(row["R2_krr_on_true_map"]) for row in some]
        learned = [float(row["R2"]) for row in some]
        ax.plot(
            known,
            [k + 0.15] * len(some),
            "|",
            ms=9,
            color="#999999",
            label="kernel ridge on the true map" if k == 0 else None,
        )
        ax.plot(
            learned, [k - 0.1] * len(some), "o", ms=4, color="#0072B2", label="HyperKernelRidgeCV()" if k == 0 else None
        )
    ax.set_yticks(range(len(keys)), [f"{name}, m = {m}" for name, m in reversed(keys)])
    ax.set(xlabel="test R2, one mark per seed", title="Default parameters: d, lambda, gamma and B are unknown")
    ax.legend(frameon=False, loc="lower left")
    ax.grid(axis="x", alpha=0.3)
    figure.savefig(RESULTS / "adaptive.png", dpi=110)


def main() -> None:
    """Run the requested parts, and write the Markdown page and the figure from the CSV files of all parts."""
    parts = {"paper": paper, "planted": planted}
    for name in sys.argv[1:] or parts:
        write(f"adaptive-{name}", parts[name]())
    page, everything = ["# benchmarks/adaptive.py", "", machine(), ""], []
    for name, part in parts.items():
        if rows := read(f"adaptive-{name}"):
            everything += rows
            page += [f"{part.__doc__} Default parameters, medians over the seeds.", "", markdown(summary(rows)), ""]
    (RESULTS / "adaptive.md").write_text("\n".join([*page, "![R2 of every seed](adaptive.png)", ""]))
    print("\n".join(page))
    plot(everything)


if __name__ == "__main__":
    main()
