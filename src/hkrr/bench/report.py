"""The report of a benchmark: a Markdown page with tables, figures and a summary of the results.

A peer is any method that is not an estimator of this library.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from hkrr.bench.benchmark_runner import Row
from hkrr.bench.method_interface import MOST_SETTINGS, Method
from hkrr.bench.method_interface import __doc__ as rules_of_methods
from hkrr.bench.ranking import (
    CLASSES,
    LEAST_ERROR,
    LEVEL,
    PLANTED,
    TABLES,
    Results,
    best_peer,
    bootstrap_intervals,
    groups,
    is_ours,
)

# Packages whose versions are reported.
_PACKAGES = (
    "hkrr",
    "numpy",
    "scikit-learn",
    "torch",
    "xrfm",
    "gpytorch",
    "catboost",
    "lightgbm",
    "xgboost",
    "xgboost-cpu",
    "pytabkit",
)
_COLUMNS = f"""The first table of each section has one line for each method. If a problem has several seeds or splits,
its results are averaged first, and the problem is counted once. The columns:

- mean rank: the mean of the ranks by test R2, or by the log loss of the test rows for classes. The best method has
  rank 1. Methods that failed or were over the limit share the last ranks.
- relative RMSE, relative log loss: the error divided by the lowest error of all methods on the same problem; geometric
  mean. A method that failed has the error of the constant prediction (the mean of the targets, or the class
  frequencies). Errors below {LEAST_ERROR["R2"]} standard deviations, or log losses below {LEAST_ERROR["log_loss"]},
  count as this number.
- first: the number of problems on which the method has the best score, alone or tied with other methods.
- median R2, worst R2; median log loss, worst log loss: over the problems on which the method did not fail.
- distance: the median sine of the largest angle between the true directions and the leading learned directions. It is 0
  for an exact match and 1 if a direction is missed entirely. Methods that learn no directions have no distance.
- seconds: the median time for tuning, fitting and predicting together.
- last fit: the median time of the final fit alone. For methods that tune themselves, this time includes the tuning.
- MB: the median increase of peak memory use.
- failed: the number of problems on which the method failed or was over the limit, for at least one seed or split.

The brackets contain {LEVEL:.0%} bootstrap intervals over the problems. Methods whose names do not begin with `hkrr` are
called peers, including the baselines of `hkrr.baselines`."""
_ABOUT = {
    PLANTED: """Planted models are synthetic data whose target depends on a few known directions. hkrr is designed for
such data. It was developed on models of these kinds, but mostly on other random draws. The documentation of
`hkrr.datasets.make_planted` describes each kind.""",
    TABLES: "",
    CLASSES: "",
}
_DEVELOPED = """hkrr was developed on the tables of this page: tables of the UCI repository, and the raw tables and data
sets that are listed below. Results on blind tables, which nobody has looked at before, are future work. Pretrained
models for tables (such as TabPFN) are absent, because they need downloads."""


def write(
    rows: Sequence[Row],
    out: Path,
    pictures: Sequence[tuple[str, str]],
    *,
    command: str,
    budget: str,
    methods: Mapping[str, Method],
    about: Sequence[str] = (),
    missing: Sequence[str] = (),
) -> Path:
    """Write the page to ``out/README.md`` and return its path.

    The rows are those of `run_cells`, and `pictures` has the file names and captions of figures. The page quotes
    `command`, which produced the results, and `budget`, a sentence about the time limit and the number of threads of
    each method. The sentence is passed without its final period. The page lists the methods, the descriptions `about`
    of the problems that are tables, and the methods that are `missing` because a package is not installed.
    """
    lines = ["# Benchmark of hkrr and its peers", "", f"    {command}", "", f"{machine()}. {budget}.", "", _rules(), ""]
    lines += [_COLUMNS, ""]
    if about:
        lines += [_DEVELOPED, "", "The tables:", "", *(f"- {each}" for each in about), ""]
    for heading, results in groups(rows).items():
        lines += [f"## {heading}", "", *([_ABOUT[heading], ""] if _ABOUT[heading] else []), *_section(results), ""]
    for file, caption in pictures:
        lines += [f"## {caption}", "", f"![{caption}]({file})", ""]
    failed = [f"- {row['problem']}, {row['method']}: {row['error']}" for row in rows if row.get("error")]
    if failed:
        lines += ["## Failures", "", *failed, ""]
    lines += _machine_lines(rows)
    if missing:
        lines += [f"Not run because a package is not installed: {', '.join(missing)}.", ""]
    names = dict.fromkeys(row["method"] for row in rows)
    lines += ["## Methods", "", *(f"- `{name}`: {methods[name].about}" for name in names), ""]
    path = out / "README.md"
    path.write_text("\n".join(lines))
    return path


def _section(results: Results) -> list[str]:
    lines = [*markdown(summary(results)), ""]
    if results.score == "log_loss":
        lines += ["By accuracy:", "", *markdown(accuracy_summary(results)), ""]
    if any(not is_ours(name) for name in results.methods):
        lines += ["The best peer on each problem:", "", *markdown(beside_best(results)), ""]
    for title, column, digits in (
        ("Test R2", "R2", 3),
        ("Log loss of the test rows", "log_loss", 3),
        ("Accuracy on the test rows", "accuracy", 3),
        ("Seconds of tuning, fitting and predicting", "seconds", 1),
        ("Distance to the true directions", "subspace_distance", 2),
    ):
        if not np.all(np.isnan(results.columns[column])):
            lines += [f"{title}:", "", *markdown(_grid(results, column, digits)), ""]
    return lines


def summary(results: Results) -> list[Row]:
    """Return a table with one line for each method, sorted by mean rank. Columns without any entry are omitted."""
    ranks, relative = results.ranks(), np.log(results.relative_errors())
    rank_intervals, error_intervals = bootstrap_intervals(ranks), np.exp(bootstrap_intervals(relative))
    score, error = ("R2", "relative RMSE") if results.score == "R2" else ("log loss", "relative log loss")
    best, worst = (np.fmax, np.nanmin) if results.score == "R2" else (np.fmin, np.nanmax)
    highest = best.reduce(results.columns[results.score], axis=1)
    lines = []
    for k in np.argsort(ranks.mean(axis=0), kind="stable"):
        method = results.methods[k]
        values = results.values(results.score, method)
        lines.append(
            {
                "method": method,
                "mean rank": f"{ranks[:, k].mean():.2f}" + _interval(rank_intervals, k, 1),
                error: f"{np.exp(relative[:, k].mean()):.3f}" + _interval(error_intervals, k, 2),
                "first": f"{np.sum(highest == values)} of {len(values)}",
                f"median {score}": _number(values, 3),
                f"worst {score}": "" if np.all(np.isnan(values)) else f"{worst(values):.3f}",
                "distance": _number(results.values("subspace_distance", method), 2),
                "seconds": _number(results.values("seconds", method), 1),
                "last fit": _number(results.values("fit_seconds", method), 1),
                "MB": _number(results.values("peak_mb", method), 0),
                "failed": str(int(np.isnan(values).sum()) or ""),
            }
        )
    return [{name: line[name] for name in line if any(each[name] for each in lines)} for line in lines]


def accuracy_summary(results: Results) -> list[Row]:
    """Return a table with the accuracy and the calibration error of each classifier, sorted by mean rank."""
    ranks = results.ranks("accuracy")
    intervals = bootstrap_intervals(ranks)
    return [
        {
            "method": (method := results.methods[k]),
            "mean rank": f"{ranks[:, k].mean():.2f}" + _interval(intervals, k, 1),
            "median accuracy": _number(results.values("accuracy", method), 3),
            "median calibration error": _number(results.values("calibration_error", method), 3),
        }
        for k in np.argsort(ranks.mean(axis=0), kind="stable")
    ]


def _interval(intervals: Any, k: int, digits: int) -> str:
    low, high = intervals[0][k], intervals[1][k]
    return "" if np.isnan(low) else f" [{low:.{digits}f}, {high:.{digits}f}]"


def beside_best(results: Results) -> list[Row]:
    """Return a table with one line for each problem that compares the estimators of this library with the best peer."""
    lines = []
    for k, (problem, peer) in enumerate(zip(results.problems, best_peer(results), strict=True)):
        m, D = (int(np.fmax.reduce(results.columns[name][k])) for name in ("n_train", "n_features"))
        line = {"problem": problem, "m": f"{m}", "D": f"{D}"}
        for method in filter(is_ours, results.methods):
            line |= {method: _score_and_time(results, method, k)}
        lines.append(line | {"best peer": f"{peer} {_score_and_time(results, peer, k)}" if peer else ""})
    return lines


def _score_and_time(results: Results, method: str, k: int) -> str:
    score, seconds = results.values(results.score, method)[k], results.values("seconds", method)[k]
    return "" if np.isnan(score) else f"{score:.4f} ({seconds:.1f} s)"


def _grid(results: Results, column: str, digits: int) -> list[Row]:
    """Return a table with the values of a result column, such as "R2", for every problem and method.

    If there are more problems than methods, the table has one line for each problem. Otherwise it has one line for each
    method.
    """
    values = results.columns[column]
    if len(results.problems) <= len(results.methods):
        return [
            {"method": method, **{p: _number(values[k : k + 1, j], digits) for k, p in enumerate(results.problems)}}
            for j, method in enumerate(results.methods)
        ]
    return [
        {"problem": problem, **{m: _number(values[k : k + 1, j], digits) for j, m in enumerate(results.methods)}}
        for k, problem in enumerate(results.problems)
    ]


def _number(values: Any, digits: int) -> str:
    """Return the median of the values as text, without the values that are NaN. Return "" if all values are NaN."""
    return "" if np.all(np.isnan(values)) else f"{np.nanmedian(values):.{digits}f}"


def markdown(lines: Sequence[Row]) -> list[str]:
    """Return the lines of a Markdown table."""
    names = list(dict.fromkeys(name for line in lines for name in line))
    rows = ["| " + " | ".join(str(line.get(name, "")) for name in names) + " |" for line in lines]
    return ["| " + " | ".join(names) + " |", "|" + " --- |" * len(names), *rows]


def _machine_lines(rows: Sequence[Row]) -> list[str]:
    """Return a paragraph on the speed of the machine, measured by a matrix product before each run."""
    times = [float(row["machine_ms"]) for row in rows if row.get("machine_ms")]
    if not times:
        return []
    low, middle, high = np.percentile(times, [5, 50, 95])
    return [
        "The same matrix product was timed before each run, as a measure of the speed of the machine. The median time "
        f"was {middle:.1f} ms, and 90% of the times were between {low:.1f} and {high:.1f} ms.",
        "",
    ]


def machine() -> str:
    """Return the processor and the package versions in one line."""
    versions = []
    for package in _PACKAGES:
        try:
            versions.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    cores = f"{os.cpu_count()} cores ({_processor()})"
    return f"{cores}, Python {platform.python_version()}, {', '.join(versions)}"


def _processor() -> str:
    """Return the processor's model name on Linux, or its architecture on other systems."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _rules() -> str:
    """Return the rules of the comparison, from the docstring of `hkrr.bench.method_interface`."""
    rules = (rules_of_methods or "").split("\n\n", 1)[1].strip()
    return f"{rules} At most {MOST_SETTINGS} settings are tried."
