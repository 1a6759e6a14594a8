"""Accuracy of `HyperKernelRidgeCV` on data with defects, and its accuracy, time and memory with a time limit.

    python benchmarks/unclean.py [--old FOLDER] [--cases NAME ...] [--seeds N] [--append] [--out NAME] [--list]

`--cases` takes names of cases and of groups (outliers, noise, copies, limits, columns). FOLDER is a checkout of another
version of hkrr; without it, only the version in this repository is run. Each case is fitted by each version and by
other methods (rivals) on the same rows. The rivals are the mean of y, ridge regression (`RidgeCV`), robust linear
regression (`HuberRegressor`) and tuned kernel ridge regression on all inputs (`hkrr.baselines.KernelRidgeCV`, at most
2,000 centers). R2 is computed on 2,000 new rows, whose targets are the function without noise. With `--append`, results
that are in the CSV file already are kept and not computed again. The results are written to NAME.csv and NAME.md in
benchmarks/results. The default NAME is `unclean`.

- outliers: 400 rows, 10 columns, ``f(x) = sin(2 w'x) + x_0`` with a random unit vector w, noise of standard deviation
  0.05. The defect is outliers, heavy-tailed noise, or noise that depends on x. Other cases have no defect, but a
  function with large values that are not outliers.
- noise: y is independent of X. R2 is ``1 - mean squared error / var(y)`` for new y, so the best possible R2 is 0. There
  are nine sizes of data sets, and four or five random data sets of each size, 40 in all. `--seeds` has no effect.
- copies: three cases, namely 80 rows, the same rows with exact copies of 40 of them, and the same rows with near copies
  of 40 of them. A normal error of standard deviation 1e-6 is added to the targets of the near copies.
- limits: 5,000 rows of 10 columns, noise of standard deviation 0.15, and time limits of 1 to 20 seconds.
- columns: 300 rows of 5,000 columns with a limit of 30 seconds. Each fit has a process of its own, whose peak memory is
  reported together with the size of the saved model.
"""

from __future__ import annotations

import argparse
import math
import resource
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from workers import HERE, Row, Table, Worker, commit, errors, least, median, reported, serve, used_commits, valid

N_NEW = 2000
NOISE = 0.05
VERSIONS = ("this", "other")
RIVALS = ("mean", "ridge", "huber", "krr")
# Maximum number of centers of the rival "krr".
KRR_CENTERS = 2000
KEYS = ("case", "seed", "method", "limit")
COLUMNS = (*KEYS, "commit", "R2", "seconds", "n_components", "coverage", "peak_MB", "file_MB", "warnings", "error")

Array = Any
Function = Callable[[Array], Array]
# A function that takes a random number generator, X and y, and returns changed training targets.
Change = Callable[[np.random.Generator, Array, Array], Array]


@dataclass(frozen=True)
class Data:
    """The training rows X and y, and new rows for the scores.

    `f_new` and `y_new` are the targets of the new rows without and with noise. R2 is
    ``1 - mean squared error / unit``.
    """

    X: Array
    y: Array
    X_new: Array
    f_new: Array
    y_new: Array
    unit: float


@dataclass(frozen=True)
class Case:
    """A random data set, and how methods are fitted to it."""

    make: Callable[[int], Data]  # returns the data for a seed
    group: str
    limits: tuple[float, ...] = (0.0,)  # time limits in seconds; 0 means no limit
    rivals: tuple[str, ...] = RIVALS
    n_seeds: int | None = None  # None means the value of the option --seeds
    clean: str | None = None  # name of the case with the same rows, but without the defect
    own_process: bool = False
    intervals: bool = False


def function_and_rows(seed: int, n: int, n_features: int, name: str) -> tuple[Function, Array, Array]:
    """Return a function without noise, n training rows and the new rows."""
    rng = np.random.default_rng([seed, n, n_features])
    w = rng.standard_normal(n_features)
    w /= np.linalg.norm(w)
    functions: dict[str, Function] = {
        "sine and line": lambda X: np.sin(2.0 * (X @ w)) + X[:, 0],
        "exponential": lambda X: np.exp(1.5 * (X @ w)),
        "spikes": lambda X: np.sin(2.0 * (X @ w)) + X[:, 0] + 3.0 * (X[:, 1] > 2.0),
        "linear": lambda X: X @ w,
        "sines": lambda X: np.sin(2.0 * X).sum(axis=1),
    }
    return functions[name], rng.standard_normal((n, n_features)), rng.standard_normal((N_NEW, n_features))


def data(
    seed: int,
    name: str = "sine and line",
    n: int = 400,
    n_features: int = 10,
    change: Change | None = None,
    noise: float = NOISE,
) -> Data:
    """Return data from a function with normal noise. `change` is then applied to the training targets.

    For one seed, the rows and the noise before the change are the same for all functions and changes.
    """
    f, X, X_new = function_and_rows(seed, n, n_features, name)
    rng = np.random.default_rng([seed, n, n_features, 1])
    y = f(X) + noise * rng.standard_normal(n)
    f_new = f(X_new)
    y_new = f_new + noise * rng.standard_normal(N_NEW)
    if change is not None:
        y = change(np.random.default_rng([seed, n, n_features, 2]), X, y)
    return Data(X, y, X_new, f_new, y_new, float(np.var(f_new)))


def shift(sizes: Sequence[float]) -> Change:
    """Return a function that adds each of the sizes to the target of one random row."""

    def change(rng: np.random.Generator, X: Array, y: Array) -> Array:
        y = y.copy()
        y[rng.choice(len(y), len(sizes), replace=False)] += np.array(sizes)
        return y

    return change


def contaminate(share: float, deviation: float) -> Change:
    """Return a function that adds normal noise to the targets of a fraction of the rows."""

    def change(rng: np.random.Generator, X: Array, y: Array) -> Array:
        y, n = y.copy(), round(share * len(y))
        y[rng.choice(len(y), n, replace=False)] += deviation * rng.standard_normal(n)
        return y

    return change


def depends_on_x(rng: np.random.Generator, X: Array, y: Array) -> Array:
    """Return the targets with additional noise. Its standard deviation increases with x_1, from 0 to 1."""
    share = np.array([0.5 * math.erfc(-x / math.sqrt(2.0)) for x in X[:, 1]])
    return y + share * rng.standard_normal(len(y))


def only_noise(seed: int) -> Data:
    """Return data whose target is independent of the inputs.

    The seed also determines the numbers of rows and columns.
    """
    n, n_features = [(n, D) for n in (100, 300, 1000) for D in (5, 20, 50)][seed % 9]
    rng = np.random.default_rng([seed, 3])
    X, X_new, y = (rng.standard_normal(size) for size in ((n, n_features), (N_NEW, n_features), n))
    return Data(X, y, X_new, np.zeros(N_NEW), rng.standard_normal(N_NEW), 1.0)


def copies(seed: int, jitter: float | None) -> Data:
    """Return 80 rows of 5 columns. Unless `jitter` is None, append copies of 40 of these rows with jittered targets."""
    one = data(seed, n=80, n_features=5)
    if jitter is None:
        return one
    rng = np.random.default_rng([seed, 4])
    again = rng.choice(80, 40, replace=False)
    y = np.concatenate([one.y, one.y[again] + jitter * rng.standard_normal(40)])
    return Data(np.vstack([one.X, one.X[again]]), y, one.X_new, one.f_new, one.y_new, one.unit)


def _outliers() -> dict[str, Case]:
    changes: dict[str, Change | None] = {
        "clean": None,
        "one row off by 5": shift([5.0]),
        "one row off by 50": shift([50.0]),
        "one row off by 1e6": shift([1e6]),
        "four rows off by 50": shift([50.0, -50.0, 50.0, -50.0]),
        "5% of rows, sd 5": contaminate(0.05, 5.0),
        "5% of rows, sd 20": contaminate(0.05, 20.0),
        "Student-t noise": lambda rng, X, y: y + 0.3 * rng.standard_t(2, len(y)),
        "Cauchy noise": lambda rng, X, y: y + 0.2 * rng.standard_cauchy(len(y)),
        "noise that depends on x": depends_on_x,
    }
    found = {
        name: Case(lambda seed, change=change: data(seed, change=change), "outliers", clean="clean")
        for name, change in changes.items()
    }
    for name, title in (("exponential", "exponential of w'x, clean"), ("spikes", "f + 3 where x_1 > 2, clean")):
        found[title] = Case(lambda seed, name=name: data(seed, name), "outliers")
    return found


CASES: dict[str, Case] = {
    **_outliers(),
    "pure noise": Case(only_noise, "noise", n_seeds=40),
    "80 rows": Case(lambda seed: copies(seed, None), "copies", clean="80 rows", intervals=True),
    "80 rows and 40 near copies": Case(lambda seed: copies(seed, 1e-6), "copies", clean="80 rows", intervals=True),
    "80 rows and 40 exact copies": Case(lambda seed: copies(seed, 0.0), "copies", clean="80 rows", intervals=True),
    "linear, 5,000 rows": Case(
        lambda seed: data(seed, "linear", 5000, noise=0.15), "limits", (1.0, 2.0, 5.0, 20.0), ("ridge", "krr")
    ),
    "sum of sines, 5,000 rows": Case(
        lambda seed: data(seed, "sines", 5000, noise=0.15), "limits", (1.0, 2.0, 5.0, 20.0), ("ridge", "krr")
    ),
    "5,000 columns": Case(
        lambda seed: data(seed, n=300, n_features=5000), "columns", (30.0,), ("ridge", "krr"), 1, own_process=True
    ),
}
GROUPS = {
    group: [name for name, case in CASES.items() if case.group == group]
    for group in dict.fromkeys(case.group for case in CASES.values())
}


def rival(method: str) -> Any:
    """Return the estimator of a rival."""
    from sklearn.dummy import DummyRegressor
    from sklearn.linear_model import HuberRegressor, RidgeCV

    from hkrr.baselines import KernelRidgeCV

    if method == "krr":
        return KernelRidgeCV(random_state=0)
    linear = {
        "mean": DummyRegressor(),
        "ridge": RidgeCV(np.logspace(-6, 6, 25)),
        "huber": HuberRegressor(max_iter=1000),
    }
    return linear[method]


def fit(case: str, seed: int, method: str, limit: float) -> Row:
    """Fit one method to the rows of a case, and return the results."""
    from hkrr import HKRRWarning, HyperKernelRidgeCV

    chosen = CASES[case]
    rows = chosen.make(seed)
    if method in VERSIONS:
        # The seeds of the data and of the search differ. Otherwise a random starting map could coincide with the true
        # map.
        model = HyperKernelRidgeCV(random_state=10**6 + seed, time_limit=limit or None)
    else:
        model = rival(method)
        if method == "krr" and len(rows.X) > KRR_CENTERS:
            model.set_params(n_centers=KRR_CENTERS)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        began = time.perf_counter()
        model.fit(rows.X, rows.y)
        seconds = time.perf_counter() - began
    error = float(np.mean((model.predict(rows.X_new) - rows.f_new) ** 2))
    # If the target is pure noise, R2 is computed for noisy new targets. Their error includes the variance of the noise.
    share = error / rows.unit if np.any(rows.f_new) else (error + rows.unit) / rows.unit
    found: Row = {"R2": round(1.0 - share, 4), "seconds": round(seconds, 2)}
    if method in VERSIONS:
        names = {one.category.__name__ for one in caught if issubclass(one.category, HKRRWarning)}
        found |= {"n_components": int(model.n_components_), "warnings": " ".join(sorted(names))}
    if method in VERSIONS and chosen.intervals:
        lower, upper = model.predict_interval(rows.X_new, coverage=0.9)
        found["coverage"] = round(float(np.mean((lower <= rows.y_new) & (rows.y_new <= upper))), 3)
    if chosen.own_process:
        found["peak_MB"] = peak_memory()
        if method in VERSIONS:
            found["file_MB"] = round(file_size(model) / 1e6, 1)
    return found


def peak_memory() -> int:
    """Return the peak memory of this process in MB.

    On Linux, the value is read from /proc, because the value of `getrusage` can include the memory of the parent
    process.
    """
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return round(int(line.split()[1]) / 1024)
    unit = 1 if sys.platform == "darwin" else 1024  # bytes on macOS, kB elsewhere
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20)


def file_size(model: Any) -> int:
    """Return the size of the saved model in bytes."""
    from hkrr.saving import save

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        save(model, path)
        return path.stat().st_size


def run(workers: dict[str, Worker], commits: dict[str, str], names: Sequence[str], n_seeds: int, table: Table) -> None:
    """Fit all methods to all cases, and add the results to the table."""
    for name in names:
        case = CASES[name]
        for seed in range(case.n_seeds or n_seeds):
            fits = [(version, limit) for limit in case.limits for version in workers]
            for method, limit in [*fits, *((method, 0.0) for method in case.rivals)]:
                if table.has(case=name, seed=seed, method=method, limit=limit):
                    continue
                worker = workers.get(method, workers["this"])
                if case.own_process:
                    worker.close()
                found = worker.run(case=name, seed=seed, method=method, limit=limit)
                if case.own_process:
                    worker.close()
                version = commits.get(method, "")
                table.add(case=name, seed=seed, method=method, limit=limit, commit=version, **found)


def summary(rows: Sequence[Row], names: Sequence[str]) -> Iterator[Row]:
    """Yield a row for each case, method and time limit.

    "least R2 - krr" is the smallest value, over the seeds, of the R2 of the method minus the R2 of "krr" on the same
    rows. "least R2 - mean" and "least R2 - huber" are defined in the same way. "least R2 - clean" subtracts the R2 of
    the same method on the rows without the defect.
    """
    scores = {tuple(row[name] for name in KEYS): row["R2"] for row in rows if row["R2"] != ""}
    for key in dict.fromkeys((row["case"], row["method"], row["limit"]) for row in rows if row["case"] in names):
        name, method, limit = key
        some = [row for row in rows if (row["case"], row["method"], row["limit"]) == key]
        fitted = [row for row in some if row["R2"] != ""]

        def differences(case: str | None, method: str, limit: float, fitted: Sequence[Row] = fitted) -> list[float]:
            # Differences between each R2 and the R2 of another case, method or limit with the same seed.
            others = [(row["R2"], scores.get((case, row["seed"], method, limit))) for row in fitted]
            return [one - other for one, other in others if other is not None]

        seconds, is_ours = valid(some, "seconds"), method in VERSIONS
        yield {
            "case": name,
            "method": method,
            "limit": limit or "",
            "fits": f"{len(fitted)} of {len(some)}",
            "median R2": median(valid(some, "R2")),
            "least R2": least(valid(some, "R2")),
            "R2 at least -0.02": sum(row["R2"] >= -0.02 for row in fitted) if CASES[name].group == "noise" else "",
            "least R2 - mean": least(differences(name, "mean", 0.0)) if CASES[name].group == "noise" else "",
            "least R2 - clean": least(differences(CASES[name].clean, method, limit)),
            "least R2 - huber": least(differences(name, "huber", 0.0)) if is_ours else "",
            "least R2 - krr": least(differences(name, "krr", 0.0)) if is_ours else "",
            "median seconds": median(seconds, 2),
            "most seconds": round(max(seconds), 2) if seconds else "",
            "most seconds / limit": round(max(seconds) / limit, 3) if seconds and limit else "",
            "least coverage": least(valid(some, "coverage"), 3),
            "most MB": max(valid(some, "peak_MB"), default=""),
            "file MB": max(valid(some, "file_MB"), default=""),
            "warnings": " ".join(sorted({word for row in some for word in str(row["warnings"]).split()})),
        }


def without_empty_columns(rows: Sequence[Row]) -> list[Row]:
    """Return the rows without the columns that are empty in all rows."""
    kept = [name for name in rows[0] if any(row[name] != "" for row in rows)]
    return [{name: row[name] for name in kept} for row in rows]


def page(rows: Sequence[Row]) -> str:
    """Return the Markdown page of all results."""
    from objective import machine, markdown

    versions = [row for row in rows if row["method"] in VERSIONS]
    text = ["# benchmarks/unclean.py", "", machine(), "", used_commits(versions, "method")]
    for group, names in GROUPS.items():
        if some := list(summary(rows, names)):
            text += ["", f"## {group.capitalize()}", "", markdown(without_empty_columns(some))]
    return "\n".join([*text, *errors(rows, KEYS), ""])


def main() -> None:
    """Run the cases and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", type=Path, help="folder of the other version")
    parser.add_argument("--cases", nargs="*", default=list(CASES), help="names of cases or groups")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--append", action="store_true", help="keep the results of the CSV file, and skip its cases")
    parser.add_argument("--out", default="unclean")
    parser.add_argument("--list", action="store_true", help="list the groups and cases")
    options = parser.parse_args()
    if options.list:
        print("\n".join(f"{group}: {'; '.join(names)}" for group, names in GROUPS.items()))
        return
    names = list(dict.fromkeys(name for one in options.cases for name in GROUPS.get(one, [one])))
    if unknown := [name for name in names if name not in CASES]:
        raise SystemExit(f"--cases: unknown case {unknown[0]!r}; the option --list prints all cases and groups")
    folders = {"other": options.old.resolve()} if options.old else {}
    folders["this"] = HERE
    table = Table(options.out, COLUMNS, len(KEYS), options.append)
    workers = {version: Worker(__file__, folder) for version, folder in folders.items()}
    commits = {version: commit(folder) for version, folder in folders.items()}
    with reported(table, page, workers.values()):
        run(workers, commits, names, options.seeds, table)


if __name__ == "__main__":
    serve(fit) if sys.argv[1:] == ["--worker"] else main()
