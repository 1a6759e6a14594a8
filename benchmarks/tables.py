"""Test R2 on real tables: HyperKernelRidgeCV beside xRFM, CatBoost, LightGBM and an ARD Gaussian process, in one run.

    python benchmarks/tables.py --data DIR [--methods a,b] [--tables x,y] [--splits 0,1] [--threads N]
    python benchmarks/tables.py --report [--methods a,b]

DIR/NAME/data.csv.gz holds a table (no header, one row a sample, the target last) and DIR/NAME/test_mask.csv.gz ten
columns of 0/1, one a split (1: a test row). All ten splits count where a table has under 2,000 rows, the first three
otherwise; at most 10,000 training rows, drawn alike for every method; R2 on all the test rows.

Each fit runs in a fresh process, and each result is a row of benchmarks/results/tables.csv as soon as it is there, the
failed ones with their error: stop it and start it again as you like (to run a cell anew, delete its row). The page is
benchmarks/results/tables.md, with a picture. The peers are in benchmarks/requirements.txt.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import rankdata
from sklearn.metrics import r2_score
from sklearn.preprocessing import StandardScaler
from tqdm.auto import tqdm

# objective.py and hkrr are imported where they are used: the peers' processes need neither.

RESULTS = Path(__file__).parent / "results"
COLUMNS = ("table", "split", "method", "R2", "seconds", "threads", "n_train", "note", "error")
MAX_TRAIN = 10_000
SMALL_TABLE = 2000  # rows; a smaller table has all ten splits
N_SPLITS_LARGE = 3
VALIDATION = 0.2
N_SETTINGS = 18  # of xrfm_tuned, the default among them
SCREEN_ROWS = 1000  # xrfm_tuned: with twice as many rows to fit on, settings are screened on this many of them
GP_ROWS = 1000  # rows that the hyper-parameters of gpr_ard are learned on
MAX_ROUNDS = 5000  # of the boosted trees
PATIENCE = 100
TIME_LIMIT, TUNE_SECONDS = 55, 50  # of hkrr and of xrfm_tuned

SETUP = f"""\
How they were run. hkrr: `HyperKernelRidgeCV(kernel="auto", time_limit={TIME_LIMIT})`; its stages were settled while
looking at the test R2 of these tables, which flatters it. xrfm: its defaults; a fifth of the training rows chooses
the iteration, and is not fitted on. xrfm_tuned: the best on that fifth of the default and of up to {N_SETTINGS - 1}
settings drawn from pytabkit's ranges, for {TUNE_SECONDS} s (with more than {2 * SCREEN_ROWS} rows to fit on they are
screened on {SCREEN_ROWS} of them, and a fit that has begun may end, so that it takes longer there). catboost and
lightgbm: early stopping on that fifth gives the number of trees, then all rows are fitted; CatBoost's learning rate
of .05 was preferred to its own rule on the test rows of six splits, in its favour. gpr_ard: Matern 3/2, its length
scales learned on at most {GP_ROWS} rows, exact on all of them. Only hkrr and xrfm_tuned have a limit of time, and so
could gain from threads."""

Row = dict[str, object]


class Task(NamedTuple):
    """What a method is given: the training rows, the test inputs, and the means it may use."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    split: int
    threads: int
    time_limit: float
    tune_seconds: float

    def parts(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows to fit on and those to validate on, the same for every method."""
        rows = np.random.RandomState(self.split).permutation(len(self.y))
        n = round(VALIDATION * len(rows))
        return rows[n:], rows[:n]

    def standardised(self) -> tuple[Task, Callable[[np.ndarray], np.ndarray]]:
        """Return the task with inputs and target in units of the training rows, and the way back for predictions."""
        scaler, mean, scale = StandardScaler().fit(self.X), self.y.mean(), self.y.std()
        task = self._replace(
            X=scaler.transform(self.X), y=(self.y - mean) / scale, X_test=scaler.transform(self.X_test)
        )
        return task, lambda predictions: predictions * scale + mean


Answer = tuple[np.ndarray, str]  # predictions at the test rows, and a note


def hkrr(task: Task) -> Answer:
    """HyperKernelRidgeCV, which chooses its kernel too; it scales the inputs itself."""
    from hkrr import HyperKernelRidgeCV
    from hkrr.kernels import kernel_name

    model = HyperKernelRidgeCV(kernel="auto", time_limit=task.time_limit, random_state=task.split).fit(task.X, task.y)
    return model.predict(task.X_test), f"{kernel_name(model.kernel_)}, {model.map_shape_}, {model.n_components_} rows"


def xrfm(task: Task) -> Answer:
    """XRFM, all defaults; the validation part chooses the iteration."""
    task, back = task.standardised()
    fit, validation = task.parts()
    _, model = fit_xrfm(task, fit, validation, None, None)
    return back(predict_xrfm(model, task.X_test)), ""


def xrfm_tuned(task: Task) -> Answer:
    """XRFM, the best of the default and of settings drawn at random, by the error on the validation part.

    With many rows one fit takes minutes, so the drawn settings are screened on a part of them, for half of the time,
    and the best one meets the default on all rows: xRFM then makes fewer iterations if it would take much longer than
    the default took (it always makes one).
    """
    began = time.perf_counter()
    task, back = task.standardised()
    fit, validation = task.parts()
    rng = np.random.RandomState(task.split)
    settings = [draw_xrfm(rng) for _ in range(N_SETTINGS - 1)]
    best, model = fit_xrfm(task, fit, validation, None, None)
    default_seconds = time.perf_counter() - began
    note, n_failed, chosen = f"default fit {default_seconds:.0f} s", 0, "default"

    if len(fit) > 2 * SCREEN_ROWS:
        screening = time.perf_counter()
        losses: list[float] = []
        for setting in settings:
            if losses and time.perf_counter() - screening > task.tune_seconds / 2:
                break
            try:
                loss, _ = fit_xrfm(task, fit[:SCREEN_ROWS], validation[:SCREEN_ROWS], setting, None)
            except Exception:  # a setting that cannot be fitted is a bad one
                loss, n_failed = np.inf, n_failed + 1
            losses.append(loss)
        settings = [settings[int(np.argmin(losses))]]
        note += f", {len(losses)} settings screened on {SCREEN_ROWS} rows"

    for n_tried, setting in enumerate(settings, start=1):
        left = task.tune_seconds - (time.perf_counter() - began)
        if n_tried > 1 and left <= 0:
            n_tried -= 1
            break
        try:
            loss, other = fit_xrfm(task, fit, validation, setting, max(left, default_seconds))
        except Exception:
            n_failed += 1
            continue
        if loss < best:
            best, model = loss, other
            chosen = " ".join(f"{k}={v:.3g}" if isinstance(v, float) else f"{k}={v}" for k, v in setting.items())
    note += f", {n_tried + 1} settings on all rows, {n_failed} failed, chosen: {chosen}"
    return back(predict_xrfm(model, task.X_test)), note


def draw_xrfm(rng: np.random.RandomState) -> dict[str, Any]:
    """Draw a setting from the ranges that pytabkit gives for xRFM (its default space)."""
    exponent = rng.uniform(0.7, 1.4)
    return {
        "kernel": "lpq" if rng.uniform() < 0.8 else "l2",
        "bandwidth": float(np.exp(rng.uniform(np.log(0.5), np.log(200)))),
        "reg": float(np.exp(rng.uniform(np.log(1e-6), np.log(10)))),
        "exponent": exponent,
        "norm_p": exponent + (2 - exponent) * rng.uniform(0, 0.8),
        "diag": bool(rng.uniform() < 0.5),
    }


def fit_xrfm(
    task: Task, fit: np.ndarray, validation: np.ndarray, setting: dict[str, Any] | None, seconds: float | None
) -> tuple[float, Any]:
    """Return the squared error on the validation rows and the model, of a setting or of the default (None)."""
    from xrfm import xRFM

    params = None
    if setting is not None:
        model_params = {name: value for name, value in setting.items() if name != "reg"}
        params = {"model": model_params, "fit": {"reg": setting["reg"], "iters": 5, "early_stop_rfm": True}}
    model = xRFM(
        rfm_params=params,
        device="cpu",
        tuning_metric="mse",
        time_limit_s=seconds,
        n_threads=task.threads,
        random_state=task.split,
        verbose=False,
    )
    X, y = task.X.astype(np.float32), task.y.astype(np.float32)
    model.fit(X[fit], y[fit], X[validation], y[validation])
    loss = float(np.mean((predict_xrfm(model, X[validation]) - y[validation]) ** 2))
    return (loss if np.isfinite(loss) else np.inf), model


def predict_xrfm(model: Any, X: np.ndarray) -> np.ndarray:
    """Return one number a row."""
    return np.asarray(model.predict(X.astype(np.float32)), dtype=float).ravel()


def catboost(task: Task) -> Answer:
    """CatBoost: early stopping finds the number of trees, then all training rows are fitted with it."""
    from catboost import CatBoostRegressor

    fit, validation = task.parts()
    options = {
        "learning_rate": 0.05,
        "thread_count": task.threads,
        "random_seed": task.split,
        "verbose": False,
        "allow_writing_files": False,
    }
    first = CatBoostRegressor(iterations=MAX_ROUNDS, early_stopping_rounds=PATIENCE, **options)
    first.fit(task.X[fit], task.y[fit], eval_set=(task.X[validation], task.y[validation]))
    n_trees = first.best_iteration_ + 1
    model = CatBoostRegressor(iterations=n_trees, **options).fit(task.X, task.y)
    return model.predict(task.X_test), f"{n_trees} trees"


def lightgbm(task: Task) -> Answer:
    """LightGBM: early stopping finds the number of trees, then all training rows are fitted with it."""
    from lightgbm import LGBMRegressor, early_stopping

    fit, validation = task.parts()
    options = {
        "learning_rate": 0.03,
        "subsample": 0.9,
        "subsample_freq": 1,
        "colsample_bytree": 0.9,
        "n_jobs": task.threads,
        "random_state": task.split,
        "verbosity": -1,
    }
    first = LGBMRegressor(n_estimators=MAX_ROUNDS, **options).fit(
        task.X[fit],
        task.y[fit],
        eval_X=task.X[validation],
        eval_y=task.y[validation],
        callbacks=[early_stopping(PATIENCE, verbose=False)],
    )
    n_trees = int(first.best_iteration_)
    model = LGBMRegressor(n_estimators=n_trees, **options).fit(task.X, task.y)
    return model.predict(task.X_test), f"{n_trees} trees"


def gpr_ard(task: Task) -> Answer:
    """A Gaussian process, Matern 3/2 with a length for each input, learned on some rows and fitted on all."""
    import warnings

    from sklearn.exceptions import ConvergenceWarning
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    task, back = task.standardised()
    some = np.random.RandomState(task.split).permutation(len(task.y))[:GP_ROWS]
    kernel = ConstantKernel() * Matern(np.ones(task.X.shape[1]), nu=1.5) + WhiteKernel()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a length at its bound: an input that does not matter
        learned = GaussianProcessRegressor(kernel, normalize_y=True, random_state=task.split)
        learned.fit(task.X[some], task.y[some])
    model = GaussianProcessRegressor(learned.kernel_, optimizer=None, normalize_y=True).fit(task.X, task.y)
    blocks = np.array_split(task.X_test, 1 + len(task.X_test) // 2000)  # a block of the kernel at a time
    return back(np.concatenate([model.predict(block) for block in blocks])), f"learned on {len(some)} rows"


class Method(NamedTuple):
    """A method, and the packages that are imported before its clock starts."""

    run: Callable[[Task], Answer]
    packages: tuple[str, ...]


METHODS = {
    "hkrr": Method(hkrr, ("hkrr",)),
    "xrfm": Method(xrfm, ("torch", "xrfm")),
    "xrfm_tuned": Method(xrfm_tuned, ("torch", "xrfm")),
    "catboost": Method(catboost, ("catboost",)),
    "lightgbm": Method(lightgbm, ("lightgbm",)),
    "gpr_ard": Method(gpr_ard, ("sklearn.gaussian_process",)),
}


def mask(folder: Path) -> np.ndarray:
    """Return which rows of a table are test rows, one column a split."""
    return np.asarray(np.loadtxt(folder / "test_mask.csv.gz", delimiter=",", ndmin=2) == 1)


def load(folder: Path, split: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the training and test rows of a split: X, y, X_test, y_test."""
    data, test = np.loadtxt(folder / "data.csv.gz", delimiter=",", ndmin=2), mask(folder)[:, split]
    train = np.flatnonzero(~test)
    if len(train) > MAX_TRAIN:
        train = np.random.RandomState(split).choice(train, MAX_TRAIN, replace=False)
    return data[train, :-1], data[train, -1], data[test, :-1], data[test, -1]


def one(folder: Path, split: int, name: str, options: dict[str, Any], sender: Connection) -> None:
    """Fit and score one cell, in a process of its own, and send what came of it."""
    row: Row = {}
    try:
        X, y, X_test, y_test = load(folder, split)
        row["n_train"] = len(y)
        method = METHODS[name]
        for package in method.packages:
            importlib.import_module(package)
        began = time.perf_counter()
        predictions, row["note"] = method.run(Task(X, y, X_test, split, **options))
        row["seconds"] = round(time.perf_counter() - began, 2)
        row["R2"] = round(float(r2_score(y_test, predictions)), 6)
    except Exception as error:
        message = (str(error).splitlines() or [""])[0]
        row["error"] = f"{type(error).__name__}: {message}"[:200]
    sender.send(row)


def cell(folder: Path, split: int, name: str, options: dict[str, Any]) -> Row:
    """Return the row of one cell, whatever its process did."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=one, args=(folder, split, name, options, sender), daemon=True)
    process.start()
    sender.close()
    try:
        row = receiver.recv()
        process.join()
    except EOFError:  # it crashed or was killed
        process.join()
        row = {"error": f"its process ended with exit code {process.exitcode}"}
    return {"table": folder.name, "split": split, "method": name, "threads": options["threads"], **row}


def rows_so_far() -> list[dict[str, str]]:
    """Return the cells that are there."""
    path = RESULTS / "tables.csv"
    if not path.exists():
        return []
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def append(row: Row) -> None:
    """Add a cell to the file."""
    RESULTS.mkdir(exist_ok=True)
    with open(RESULTS / "tables.csv", "a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
        if file.tell() == 0:
            writer.writeheader()
        writer.writerow(row)


def run(args: argparse.Namespace) -> None:
    """Run the cells asked for that are not there yet, small tables first."""
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = str(args.threads)  # the processes of the cells inherit them
    options = {"threads": args.threads, "time_limit": args.time_limit, "tune_seconds": args.tune_seconds}
    folders = [path.parent for path in args.data.glob("*/data.csv.gz")]
    if args.tables:
        folders = [folder for folder in folders if folder.name in args.tables]
    sizes = {folder: len(mask(folder)) for folder in folders}
    there = {(row["table"], row["split"], row["method"]) for row in rows_so_far()}
    todo = [
        (folder, split, name)
        for folder in sorted(folders, key=lambda folder: (sizes[folder], folder.name))
        for split in (args.splits or range(10 if sizes[folder] < SMALL_TABLE else N_SPLITS_LARGE))
        for name in args.methods or METHODS
        if (folder.name, str(split), name) not in there
    ]
    bar = tqdm(todo)
    for folder, split, name in bar:
        bar.set_description(f"{folder.name} {split} {name}")
        append(cell(folder, split, name, options))


def grid(
    values: dict[tuple[str, str], list[float]], tables: Sequence[str], methods: Sequence[str], digits: int
) -> list[Row]:
    """Return a table of means, one row a table and one column a method; failed cells (NaN) are left out and counted."""

    def show(some: list[float]) -> str:
        good = [value for value in some if np.isfinite(value)]
        failed = f" ({len(some) - len(good)} failed)" if len(good) < len(some) else ""
        return (f"{np.mean(good):.{digits}f}" if good else "") + failed

    return [{"table": table, **{name: show(values[table, name]) for name in methods}} for table in tables]


def report(only: Sequence[str] | None) -> None:
    """Write the page: R2, ranks and seconds, over the splits of tables that all the methods have been run on."""
    from objective import machine, markdown

    rows = [row for row in rows_so_far() if not only or row["method"] in only]
    cells = {(row["table"], row["split"], row["method"]): row for row in rows}
    methods = [name for name in METHODS if any(row["method"] == name for row in rows)]
    every = list(dict.fromkeys((row["table"], row["split"]) for row in rows))
    splits = [key for key in every if all((*key, name) in cells for name in methods)]
    tables = list(dict.fromkeys(table for table, _ in splits))
    if not splits:
        print("no split of a table that all the methods have been run on")
        return

    R2: dict[tuple[str, str], list[float]] = {(table, name): [] for table in tables for name in methods}
    seconds: dict[tuple[str, str], list[float]] = {key: [] for key in R2}
    ranks: dict[tuple[str, str], list[float]] = {key: [] for key in R2}
    for table, split in splits:
        some = [cells[table, split, name] for name in methods]
        scores = [float(row["R2"] or "nan") for row in some]
        places = rankdata([-score if np.isfinite(score) else np.inf for score in scores])  # a failed one is last
        for name, row, score, place in zip(methods, some, scores, places, strict=True):
            R2[table, name].append(score)
            ranks[table, name].append(float(place))
            if row["seconds"]:
                seconds[table, name].append(float(row["seconds"]))

    medians = {key: [float(np.median(values))] if values else [np.nan] for key, values in seconds.items()}
    mean_rank = {name: f"{np.mean([np.mean(ranks[table, name]) for table in tables]):.2f}" for name in methods}
    overall = {name: [s for table in tables for s in seconds[table, name]] for name in methods}
    median = {name: f"{np.median(values):.1f}" if values else "" for name, values in overall.items()}
    sizes = [
        {"splits": sum(key[0] == table for key in splits), "n_train": cells[table, split, methods[0]]["n_train"]}
        for table, split in {table: (table, split) for table, split in splits}.values()
    ]
    threads = ", ".join(
        f"{name} {'/'.join(sorted({cells[*key, name]['threads'] for key in splits}))}" for name in methods
    )
    page = [
        "# benchmarks/tables.py",
        "",
        f"{machine()}. {versions()}. Threads a fit: {threads}.",
        "",
        f"{len(splits)} splits of {len(tables)} tables, those that all the methods have been run on"
        f" (of {len(every)} that any has). Mean R2 on the test rows, over the splits:",
        "",
        markdown([{**row, **size} for row, size in zip(grid(R2, tables, methods, 4), sizes, strict=True)]),
        "",
        "Ranks (1 is best) within each split, averaged over the splits of a table, then over the tables; a failed fit"
        " is last:",
        "",
        markdown([*grid(ranks, tables, methods, 2), {"table": "mean rank", **mean_rank}]),
        "",
        "Median seconds of fit (its tuning too) and prediction:",
        "",
        markdown([*grid(medians, tables, methods, 1), {"table": "all", **median}]),
        "",
        SETUP,
        "",
    ]
    if failed := [row for row in rows if row["error"]]:
        page += ["Failed:", ""]
        page += [f"- {row['table']}, split {row['split']}, {row['method']}: {row['error']}" for row in failed]
        page += [""]
    page += ["![What each method leaves unexplained, beside hkrr](tables.png)", ""]
    (RESULTS / "tables.md").write_text("\n".join(page))
    print("\n".join(page))
    if "hkrr" in methods:
        plot({key: 1.0 - float(np.nanmean(values)) for key, values in R2.items()}, tables, methods)


def plot(unexplained: dict[tuple[str, str], float], tables: Sequence[str], methods: Sequence[str]) -> None:
    """Draw, for each table, the variance that each method leaves unexplained as a multiple of what hkrr leaves."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(8, 0.42 * len(tables) + 1.4), layout="constrained")
    peers = [name for name in methods if name != "hkrr"]
    colours = ["#D55E00", "#E69F00", "#009E73", "#CC79A7", "#56B4E9"]
    for name, marker, colour in zip(peers, "osD^v", colours, strict=False):  # however many peers there are
        ratio = [unexplained[table, name] / unexplained[table, "hkrr"] for table in tables]
        ax.plot(ratio, range(len(tables)), marker, color=colour, label=name, ms=6, alpha=0.85)
    ax.axvline(1.0, color="#0072B2", lw=2)
    ax.text(1.0, len(tables) - 0.4, "hkrr ", color="#0072B2", ha="right", va="bottom")
    ax.set_yticks(range(len(tables)), tables)
    ax.set_xscale("log")
    ax.set(xlabel="(1 - R2) as a multiple of hkrr's: left of the line is better", ylim=(-0.6, len(tables)))
    ax.grid(axis="x", alpha=0.3)
    ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.savefig(RESULTS / "tables.png", dpi=110)


def versions() -> str:
    """Return the versions of the packages compared, those that are installed here."""
    found = []
    for package in ("hkrr", "xrfm", "torch", "catboost", "lightgbm", "scikit-learn"):
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return ", ".join(found)


def main() -> None:
    """Run, and write the page."""

    def words(text: str) -> list[str]:
        return text.split(",")

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder of the tables")
    parser.add_argument("--methods", type=words, help=f"some of {','.join(METHODS)}")
    parser.add_argument("--tables", type=words, help="some of the folder's tables")
    parser.add_argument("--splits", type=lambda text: [int(word) for word in words(text)], help="some of 0 to 9")
    parser.add_argument("--threads", type=int, default=1, help="of each fit")
    parser.add_argument("--time-limit", type=float, default=TIME_LIMIT, help="seconds, of hkrr")
    parser.add_argument("--tune-seconds", type=float, default=TUNE_SECONDS, help="of xrfm_tuned")
    parser.add_argument("--report", action="store_true", help="only write the page")
    args = parser.parse_args()
    if unknown := set(args.methods or ()) - set(METHODS):
        parser.error(f"no such method: {', '.join(sorted(unknown))}")
    if not args.report:
        if args.data is None:
            parser.error("--data is needed")
        run(args)
    report(args.methods)


if __name__ == "__main__":
    main()
