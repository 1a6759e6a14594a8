"""Accuracy and calibration of `HyperKernelClassifier`, compared with scikit-learn classifiers.

    python benchmarks/classification.py [DATA]

The run takes some minutes and writes classification.csv and classification.md to benchmarks/results. The problems are
synthetic data with known directions and probabilities (planted models), scikit-learn data sets, and regression tables.
DATA is the folder of the tables: each table is a file NAME/data.csv.gz with the target in the last column. The target
is divided into two or three classes at its median or terciles. Without DATA, the tables are omitted. Each problem has
at most 400 training rows and 4,000 test rows.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from tqdm.auto import tqdm

from hkrr import HKRRWarning, HyperKernelClassifier
from hkrr.datasets import make_mim_classes
from objective import RESULTS, Row, machine, markdown, write

M, M_TEST, N_BINS = 400, 4000, 15
# Planted models: number of training rows, columns, directions and classes, and the sharpness of the classes (with a
# larger sharpness, the classes overlap less).
PLANTED = [(300, 10, 1, 2, 3.0), (300, 20, 2, 2, 3.0), (400, 20, 2, 3, 3.0), (400, 10, 2, 2, 8.0)]
# Names of tables, and the number of classes into which the target of each table is divided.
TABLES = {"airfoil": 2, "concrete": 3, "kin40k": 2, "skillcraft": 3, "wine": 2}
METHODS: dict[str, Any] = {
    "ours": lambda: HyperKernelClassifier(random_state=0),
    "logistic regression": lambda: make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000)),
    "SVC, calibrated": lambda: CalibratedClassifierCV(make_pipeline(StandardScaler(), SVC()), ensemble=False),
    "gradient boosting": lambda: HistGradientBoostingClassifier(early_stopping=True, random_state=0),
}


class Problem(NamedTuple):
    """A classification problem. The first ``n_train`` rows are training rows.

    ``truth`` holds the true class probabilities of all rows, or None if they are unknown.
    """

    name: str
    X: Any
    y: Any
    n_train: int
    truth: Any = None


def problems(folder: Path | None) -> Iterator[Problem]:
    """Yield all problems, with the tables in ``folder`` unless it is None."""
    for m, D, d, K, sharpness in PLANTED:
        data = make_mim_classes(m + M_TEST, D, d, K, sharpness=sharpness, random_state=0)
        name = f"planted m={m} D={D} d={d} K={K} sharpness={sharpness:g}"
        yield Problem(name, data.X, data.y, m, data.probabilities)
    rng = np.random.RandomState(0)
    for name, load in {"breast cancer": load_breast_cancer, "wine": load_wine, "digits": load_digits}.items():
        X, y = load(return_X_y=True)
        order = rng.permutation(len(X))
        yield Problem(name, X[order], y[order], min(M, 2 * len(X) // 3))
    for table, K in TABLES.items() if folder is not None else ():
        rows = np.loadtxt(folder / table / "data.csv.gz", delimiter=",")
        rows = rows[rng.permutation(len(rows))[: M + M_TEST]]
        cuts = np.quantile(rows[:, -1], np.arange(1, K) / K)
        y = np.searchsorted(cuts, rows[:, -1], side="right")
        yield Problem(f"{table}, {K} classes", rows[:, :-1], y, min(M, 2 * len(rows) // 3))


def expected_calibration_error(p: Any, y: Any) -> tuple[float, list[Row]]:
    """Return the expected calibration error over 15 bins of the confidence, and a table of the bins."""
    confidence, right = np.max(p, axis=1), np.argmax(p, axis=1) == y
    bins = np.minimum((confidence * N_BINS).astype(int), N_BINS - 1)
    table = [
        {"bin": k, "rows": int(np.sum(bins == k)), "confidence": confidence[bins == k].mean()}
        | {"accuracy": right[bins == k].mean()}
        for k in np.unique(bins)
    ]
    return sum(row["rows"] * abs(row["confidence"] - row["accuracy"]) for row in table) / len(y), table


def run_case(problem: Problem, method: str) -> tuple[Row, list[Row]]:
    """Return the scores of one method on one problem, and the table of its calibration bins (one row per bin)."""
    train, test = slice(problem.n_train), slice(problem.n_train, problem.n_train + M_TEST)
    model, y = METHODS[method](), problem.y[test]
    began = time.process_time()
    model.fit(problem.X[train], problem.y[train])
    seconds = time.process_time() - began
    p = model.predict_proba(problem.X[test])
    own = np.clip(p[np.arange(len(y)), y], 1e-15, 1.0)
    error, table = expected_calibration_error(p, y)
    row: Row = {
        "problem": problem.name,
        "method": method,
        "accuracy": round(float(np.mean(np.argmax(p, axis=1) == y)), 4),
        "log_loss": round(float(-np.mean(np.log(own))), 4),
        "brier": round(float(np.mean(np.sum((p - np.eye(p.shape[1])[y]) ** 2, axis=1))), 4),
        "ece": round(error, 4),
        "error_of_probabilities": "",
        "cpu_seconds": round(seconds, 1),
    }
    if problem.truth is not None:
        row["error_of_probabilities"] = round(float(np.sqrt(np.mean((p - problem.truth[test]) ** 2))), 4)
    return row, [{"problem": problem.name, "method": method, **line} for line in table]


def best_possible(problem: Problem) -> Row:
    """Return the scores of the true probabilities, which no method can beat on average."""
    p, y = problem.truth[problem.n_train :], problem.y[problem.n_train :]
    return {
        "problem": problem.name,
        "method": "true probabilities",
        "accuracy": round(float(np.mean(np.argmax(p, axis=1) == y)), 4),
        "log_loss": round(float(-np.mean(np.log(p[np.arange(len(y)), y]))), 4),
        "brier": round(float(np.mean(np.sum((p - np.eye(p.shape[1])[y]) ** 2, axis=1))), 4),
        "ece": round(expected_calibration_error(p, y)[0], 4),
        "error_of_probabilities": 0.0,
        "cpu_seconds": "",
    }


def summary(rows: list[Row]) -> list[Row]:
    """Return the mean scores of each method over all problems."""
    out = []
    for method in METHODS:
        some = [row for row in rows if row["method"] == method]
        columns = ("accuracy", "log_loss", "brier", "ece", "cpu_seconds")
        out.append(
            {"method": method} | {name: round(float(np.mean([row[name] for row in some])), 3) for name in columns}
        )
    return out


def reliability(lines: list[Row]) -> list[Row]:
    """Return a table of the mean confidence and the accuracy of each method in each bin, over all problems."""
    out = []
    for k in sorted({line["bin"] for line in lines}):
        row: Row = {"confidence": f"{k / N_BINS:.2f} to {(k + 1) / N_BINS:.2f}"}
        for method in METHODS:
            some = [line for line in lines if line["bin"] == k and line["method"] == method]
            n = sum(line["rows"] for line in some)
            confidence, accuracy = (
                sum(line["rows"] * line[key] for line in some) for key in ("confidence", "accuracy")
            )
            row[method] = f"{confidence / n:.3f} / {accuracy / n:.3f} ({n})" if n else ""
        out.append(row)
    return out


def main() -> None:
    """Run all methods on all problems, and write the CSV file and the Markdown page."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    rows: list[Row] = []
    lines: list[Row] = []
    warnings.simplefilter("ignore", HKRRWarning)
    for problem in tqdm(list(problems(folder))):
        if problem.truth is not None:
            rows.append(best_possible(problem))
        for method in METHODS:
            row, table = run_case(problem, method)
            rows.append(row)
            lines += table
    write("classification", rows)
    page = (
        f"# benchmarks/classification.py\n\n{machine()}. At most {M} training rows and {M_TEST} test rows. ece is the"
        f" expected calibration error with {N_BINS} bins of the confidence. error_of_probabilities is the root mean"
        " squared error of the probabilities, if the true probabilities are known.\n\nMeans over all problems:\n\n"
        + markdown(summary(rows))
        + "\n\nCalibration over all problems: mean confidence / accuracy (number of rows):\n\n"
        + markdown(reliability(lines))
        + "\n\n"
        + markdown(rows)
        + "\n"
    )
    (RESULTS / "classification.md").write_text(page)
    print(page)


if __name__ == "__main__":
    main()
