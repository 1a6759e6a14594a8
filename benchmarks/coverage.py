"""Coverage of the prediction intervals on new rows, for planted models (data with known directions) and tables.

    python benchmarks/coverage.py [DATA]

The run takes half an hour. After an interruption, it resumes with the missing fits. DATA is a folder with one subfolder
per table, which contains a file data.csv.gz (no header, target in the last column). Without DATA, only the planted
models run. The results are written to coverage.csv (one line per fit) and coverage.md in benchmarks/results. Each seed
gives a new random sample of a planted model or a new split of a table. There are up to 4,000 test rows. At most half of
the rows of a table are training rows.
"""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from hkrr import HyperKernelRidge, HyperKernelRidgeCV
from hkrr.datasets import PLANTED, make_mim_mixed, make_mim_sines, make_planted
from objective import RESULTS, machine, markdown

COVERAGES = (0.8, 0.9, 0.95)
N_TEST, N_SEEDS = 4000, 3
_PAPERS = {"sines": make_mim_sines, "mixed": make_mim_mixed}
# Planted models: kind, number of training rows and columns, and the ratio of the noise variance to the signal variance.
DRAWN = [
    *((kind, m, D, 0.01) for kind in _PAPERS for m, D in ((300, 10), (600, 50), (1200, 30))),
    ("sines", 600, 20, 0.2),
    *((kind, 600, 30, 0.05) for kind in PLANTED),
]
# Maximum number of training rows of a table.
TABLE_ROWS = 1000
# Tables for additional fits with kernel="auto" (first split only), and the maximum number of their training rows.
WITH_ANY_KERNEL, ANY_KERNEL_ROWS = ("airfoil", "concrete", "energy", "wine"), 500
# Tables that are also fitted with more training rows (first split only), and the maximum number of these rows. Only
# some of these rows are centers.
LARGE, LARGE_ROWS = ("kin40k",), 6000
# Columns that identify a fit in the CSV file.
KEY = ["problem", "m", "D", "noise", "model", "seed"]


def models(seed: int, n_components: int = 3) -> dict[str, Any]:
    """Return the models to evaluate, by name."""
    return {
        "CV": HyperKernelRidgeCV(random_state=seed, n_jobs=1),
        "auto": HyperKernelRidgeCV(kernel="auto", time_limit=60.0, random_state=seed, n_jobs=1),
        "evidence": HyperKernelRidge(n_components, criterion="evidence", reg_lambda="auto", random_state=seed),
        "training": HyperKernelRidge(n_components, random_state=seed),
    }


def draw_planted(kind: str, m: int, D: int, noise: float, seed: int) -> tuple[Any, ...]:
    """Return training and test rows of a planted model."""
    if kind in _PAPERS:
        data = _PAPERS[kind](m + N_TEST, D, 3, noise=noise, random_state=seed)
    else:
        data = make_planted(kind, m + N_TEST, n_features=D, noise=noise, random_state=seed)
    return data.X[:m], data.y[:m], data.X[m:], data.y[m:]


def split(table: Any, most: int, seed: int) -> tuple[Any, ...]:
    """Return at most ``most`` training rows and at most 4,000 test rows of a table, drawn at random."""
    order = np.random.RandomState(seed).permutation(len(table))
    m = min(most, len(table) // 2)
    train, test = table[order[:m]], table[order[m : m + N_TEST]]
    return train[:, :-1], train[:, -1], test[:, :-1], test[:, -1]


def evaluate(model: Any, X: Any, y: Any, X_test: Any, y_test: Any) -> dict[str, Any]:
    """Fit a model, and return the coverage and the mean width of its prediction intervals on the test rows.

    The keys "held 0.8", "held 0.9" and "held 0.95" hold the observed coverage at each requested coverage. The width is
    divided by the standard deviation of y. "held by std" is the coverage of the prediction plus or minus 1.645 standard
    deviations, which is 0.9 for normal errors.
    """
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fits that raise warnings are evaluated too
        model.fit(X, y)
    row: dict[str, Any] = {"seconds": round(time.process_time() - began, 1), "d": len(model.components_)}
    predicted, deviation = model.predict(X_test, return_std=True)
    row["R2"] = round(1.0 - float(np.mean((predicted - y_test) ** 2)) / float(np.var(y_test)), 4)
    for coverage in COVERAGES:
        lower, upper = model.predict_interval(X_test, coverage)
        row[f"held {coverage}"] = round(float(np.mean((lower <= y_test) & (y_test <= upper))), 4)
        if coverage == 0.9:
            row["width"] = round(float(np.mean(upper - lower) / np.std(y_test)), 3)
    row["held by std"] = round(float(np.mean(np.abs(predicted - y_test) <= 1.645 * deviation)), 4)
    return row


def tasks(folder: Path | None) -> list[tuple[dict[str, Any], Any]]:
    """Return for each fit its key in the CSV file, and a function that returns its training and test rows."""
    found: list[tuple[dict[str, Any], Any]] = []
    tables = sorted(each for each in folder.iterdir() if (each / "data.csv.gz").exists()) if folder else []
    for seed in range(N_SEEDS):
        for kind, m, D, noise in DRAWN:
            names = ["CV", "evidence", "training"] if (m, D) == (600, 50) or noise == 0.2 else ["CV"]
            for name in names:
                key = {"problem": kind, "m": m, "D": D, "noise": noise, "model": name, "seed": seed}
                rows = (kind, m, D, noise, seed)
                found.append((key, lambda rows=rows: draw_planted(*rows)))
        for table in tables:
            sizes = [("CV", TABLE_ROWS)]
            sizes += [("auto", ANY_KERNEL_ROWS)] * (table.name in WITH_ANY_KERNEL and seed == 0)
            sizes += [("CV", LARGE_ROWS)] * (table.name in LARGE and seed == 0)
            for name, most in sizes:
                data = _table(table)
                m = min(most, len(data) // 2)
                key = {"problem": table.name, "m": m, "D": data.shape[1] - 1, "noise": np.nan, "model": name}
                found.append(({**key, "seed": seed}, lambda data=data, most=most, seed=seed: split(data, most, seed)))
    return found


_tables: dict[Path, Any] = {}


def _table(folder: Path) -> Any:
    if folder not in _tables:
        _tables[folder] = pd.read_csv(folder / "data.csv.gz", header=None).to_numpy(dtype=np.float64)
    return _tables[folder]


def page(table: pd.DataFrame) -> str:
    """Return the Markdown page: differences between observed and requested coverage, in percentage points."""
    held = [f"held {coverage}" for coverage in COVERAGES]
    by = table.groupby(KEY[:-1], dropna=False, sort=False)
    mean = by[["d", "R2", *held, "width", "held by std", "seconds"]].mean().reset_index()
    mean.insert(5, "fits", by.size().to_numpy())
    for name, coverage in zip([*held, "held by std"], [*COVERAGES, 0.9], strict=True):
        mean[name] = (100.0 * (mean[name] - coverage)).map("{:+.1f}".format)
    for name, digits in (("d", 1), ("R2", 3), ("width", 2), ("seconds", 0)):
        mean[name] = mean[name].map(f"{{:.{digits}f}}".format)
    mean["noise"] = mean["noise"].map(lambda value: "" if np.isnan(value) else f"{value:g}")
    names = {name: f"at {coverage:g}" for name, coverage in zip(held, COVERAGES, strict=True)}
    rows = mean.rename(columns={**names, "held by std": "std at 0.9"}).to_dict("records")
    kinds = []
    for title, some in (
        ("planted", table["noise"].notna()),
        ("tables", table["noise"].isna()),
    ):
        for model in table[some]["model"].unique():
            part = table[some & (table["model"] == model)]
            off = [f"{100.0 * (part[name].mean() - c):+.1f}" for name, c in zip(held, COVERAGES, strict=True)]
            line = {"problems": title, "model": model, "fits": len(part)}
            kinds.append({**line, **dict(zip(names.values(), off, strict=True))})
    return (
        f"# benchmarks/coverage.py\n\n{machine()}.\n\n"
        "- at 0.8, at 0.9, at 0.95: the coverage of `predict_interval` on new rows minus the requested coverage, in"
        " percentage points (means over the fits).\n"
        "- width: the mean width of the intervals at 0.9, divided by the standard deviation of y.\n"
        "- std at 0.9: the coverage of the prediction plus or minus 1.645 standard deviations, minus 0.9, in percentage"
        " points. The standard deviations are those of `predict(X, return_std=True)`, which ignore the uncertainty of"
        " the map.\n\n"
        "The coverage of a single fit with n calibration scores has a standard deviation of about"
        " `sqrt(coverage (1 - coverage) / n)`, which is 1.7 percentage points for a coverage of 0.9 and n = 300. The"
        " models are HyperKernelRidgeCV (CV), HyperKernelRidgeCV with kernel='auto' and time_limit=60 (auto), and"
        " HyperKernelRidge with 3 directions, fitted by the evidence with a learned lambda (evidence) or by the"
        " training objective (training).\n\n" + markdown(kinds) + "\n\n" + markdown(rows) + "\n"
    )


def main() -> None:
    """Run the fits that are missing in the CSV file, and write the CSV file and the Markdown page after each fit."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    path = RESULTS / "coverage.csv"
    table = pd.read_csv(path) if path.exists() else pd.DataFrame(columns=KEY)
    done = {tuple(str(row[name]) for name in KEY) for row in table.to_dict("records")}
    for key, rows in tqdm(tasks(folder)):
        if tuple(str(key[name]) for name in KEY) in done:
            continue
        row = {**key, **evaluate(models(key["seed"])[key["model"]], *rows())}
        table = pd.DataFrame([*table.to_dict("records"), row])
        table.to_csv(path, index=False)
        (RESULTS / "coverage.md").write_text(page(table))


if __name__ == "__main__":
    main()
