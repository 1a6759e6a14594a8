"""The report of a benchmark: a Markdown page with tables, figures and a summary of the results.

A peer is any method except ``hkrr`` and its variants.
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
from hkrr.bench.ranking import OURS, TIE, Results, best_peer, collect_results, is_ours, standing

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
)
# The page lists the methods with runs that took longer than this multiple of their time budget.
_OVERRUN = 1.2
_COLUMNS = """The first table of each section has one line for each method. The statistics are computed over
the problems of the section:

- mean rank: the mean of the ranks by test R2. The best method has rank 1, and a method that failed is last.
- first: the number of problems on which the method has the highest test R2, alone or tied with other methods.
- median R2, worst R2: the median and the lowest test R2.
- distance: the median sine of the largest angle between the true directions and the leading learned directions. It is 0
  for an exact match and 1 if a direction is missed entirely. Methods that learn no directions have no distance.
- seconds: the median time for tuning, fitting and predicting together.
- last fit: the median time of the final fit alone. For methods that tune themselves, this time includes the tuning.
- MB: the median increase of peak memory use.
- failed: the number of problems on which the method failed.

The medians and the worst R2 of a method exclude the problems on which this method failed. Methods other than `hkrr` and
its variants are called peers, including the baselines of `hkrr.baselines`. If a problem has several seeds or splits,
its results are averaged first, and the problem is counted once."""
_PLANTED = """Planted models are synthetic data whose target depends on a few known directions. hkrr is designed for
such data. It was developed on models of these kinds, but mostly on other random draws. The documentation of
`hkrr.datasets.make_planted` describes each kind."""


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
    `command`, which produced the results, and `budget`, a sentence about the time budget and the number of threads of
    each method. The sentence is passed without its final period. The page lists the methods, the descriptions `about`
    of the problems that are tables, and the methods that are `missing` because a package is not installed.
    """
    results = collect_results(rows)
    with_map = results.planted()
    groups = {"Planted models": with_map, "Tables": [each for each in results.problems if each not in with_map]}
    title = "Benchmark of hkrr and its peers" if OURS in results.methods else "Benchmark"
    lines = [f"# {title}", "", f"    {command}", "", f"{machine()}. {budget}.", "", _rules(), "", _COLUMNS, ""]
    if about:
        lines += ["The tables:", "", *(f"- {each}" for each in about), ""]
    for heading, problems in groups.items():
        if problems:
            lines += [f"## {heading}", "", *([_PLANTED, ""] if problems is with_map else [])]
            lines += [*_section(results.subset(problems)), ""]
    for file, caption in pictures:
        lines += [f"## {caption}", "", f"![{caption}]({file})", ""]
    failed = [f"- {row['problem']}, {row['method']}: {row['error']}" for row in rows if row.get("error")]
    if failed:
        lines += ["## Failures", "", *failed, ""]
    lines += [*_overruns(rows), *_machine_lines(rows)]
    if missing:
        lines += [f"Not run because a package is not installed: {', '.join(missing)}.", ""]
    lines += ["## Methods", "", *(f"- `{name}`: {methods[name].about}" for name in results.methods), ""]
    path = out / "README.md"
    path.write_text("\n".join(lines))
    return path


def _section(results: Results) -> list[str]:
    lines = [*markdown(summary(results)), ""]
    if OURS in results.methods and any(not is_ours(name) for name in results.methods):
        lines += [*_standing(results), *_variants(results), "", *markdown(beside_best(results)), ""]
        lines += [*losses(results), ""]
    for title, column, digits in (
        ("Test R2", "R2", 3),
        ("Seconds of tuning, fitting and predicting", "seconds", 1),
        ("Distance to the true directions", "subspace_distance", 2),
    ):
        if not np.all(np.isnan(results.columns[column])):
            lines += [f"{title}:", "", *markdown(_grid(results, column, digits)), ""]
    return lines


def summary(results: Results) -> list[Row]:
    """Return a table with one line for each method, sorted by mean rank. Columns without any entry are omitted."""
    ranks, highest = results.ranks(), np.fmax.reduce(results.columns["R2"], axis=1)
    lines = []
    for method in sorted(results.methods, key=lambda name: ranks[:, results.methods.index(name)].mean()):
        k = results.methods.index(method)
        R2 = results.values("R2", method)
        lines.append(
            {
                "method": method,
                "mean rank": f"{ranks[:, k].mean():.2f}",
                "first": f"{np.sum(highest == R2)} of {len(R2)}",
                "median R2": _number(R2, 3),
                "worst R2": "" if np.all(np.isnan(R2)) else f"{np.nanmin(R2):.3f}",
                "distance": _number(results.values("subspace_distance", method), 2),
                "seconds": _number(results.values("seconds", method), 1),
                "last fit": _number(results.values("fit_seconds", method), 1),
                "MB": _number(results.values("peak_mb", method), 0),
                "failed": str(int(np.isnan(R2).sum()) or ""),
            }
        )
    return [{name: line[name] for name in line if any(each[name] for each in lines)} for line in lines]


def _standing(results: Results) -> list[str]:
    """Return sentences on how often `hkrr` has the lowest error, and how often it is faster than the best peer."""
    n, first, reached, sooner, clearly_sooner, sooner_than_fit = standing(results)
    failed = results.failed_peers()
    failures = ""
    if np.any(failed):
        peers = "one peer" if failed.max() == 1 else f"up to {failed.max()} peers"
        failures = f" On {np.sum(failed > 0)} of the {n} problems, {peers} failed. A failed peer is ranked last."
    known_setting = " On these problems it is faster even if the best setting of the peer is known in advance."
    return [
        f"- `{OURS}` has a lower error than all peers on {first} of {n} problems ({first / n:.0%}).{failures}",
        f"- `{OURS}` matches the best peer on {reached} of {n} problems: its error 1 - R2 is at most {TIE:.0%} larger "
        f"than the error of the peer. On {sooner} of {n} problems ({sooner / n:.0%}), it matches the peer in less time "
        f"than the peer takes for tuning, fitting and predicting. On {clearly_sooner} of {n} ({clearly_sooner / n:.0%})"
        ", it matches the peer in less than nine tenths of this time. On "
        f"{sooner_than_fit} of {n} ({sooner_than_fit / n:.0%}), it matches the peer in less than nine tenths of the "
        f"time of the peer's last fit alone.{known_setting if sooner_than_fit else ''}",
    ]


def _variants(results: Results) -> list[str]:
    """Return a line for each variant of `hkrr` that compares the variant with `hkrr` itself."""
    lines = []
    for variant in (name for name in results.methods if is_ours(name) and name != OURS):
        gain = results.values("R2", variant) - results.values("R2", OURS)
        if np.all(np.isnan(gain)):
            continue
        worst, best = int(np.nanargmin(gain)), int(np.nanargmax(gain))
        extremes = []
        if gain[best] > 0:
            extremes.append(f"The largest gain of R2 is {gain[best]:.3f}, on {results.problems[best]}.")
        if gain[worst] < 0:
            extremes.append(f"The largest loss of R2 is {-gain[worst]:.3f}, on {results.problems[worst]}.")
        higher = f"`{variant}` has a higher R2 than `{OURS}` on {np.sum(gain > 0)} of {len(gain)} problems."
        lines.append(" ".join(["-", higher, *extremes]))
    return lines


def _overruns(rows: Sequence[Row]) -> list[str]:
    """Return a paragraph on the methods that exceeded their time budget by more than a fifth."""
    longest: dict[str, float] = {}
    count = 0
    for row in rows:
        if row.get("seconds") and row.get("budget") and float(row["seconds"]) > _OVERRUN * float(row["budget"]):
            count += 1
            longest[row["method"]] = max(float(row["seconds"]), longest.get(row["method"], 0.0))
    if not longest:
        return []
    named = ", ".join(f"{name} {most:.0f} s" for name, most in sorted(longest.items(), key=lambda item: -item[1]))
    return [
        f"{count} of {len(rows)} runs exceeded their time budget by more than a fifth, because a fit that has started "
        "is interrupted only at the time limit of its process, which is longer than the budget. For each method with "
        f"such a run, the longest run took: {named}.",
        "",
    ]


def beside_best(results: Results) -> list[Row]:
    """Return a table with one line for each problem that compares `hkrr` with the best peer."""
    lines = []
    for k, (problem, peer) in enumerate(zip(results.problems, best_peer(results), strict=True)):
        line = {
            "problem": problem,
            "m": f"{np.nanmax(results.columns['n_train'][k]):.0f}",
            "D": f"{np.nanmax(results.columns['n_features'][k]):.0f}",
            f"R2 of {OURS}": f"{results.values('R2', OURS)[k]:.4f}",
            f"seconds of {OURS}": f"{results.values('seconds', OURS)[k]:.1f}",
            "best peer": peer or "",
        }
        if peer:
            line["R2 of the peer"] = f"{results.values('R2', peer)[k]:.4f}"
            line["seconds of the peer"] = f"{results.values('seconds', peer)[k]:.1f}"
            line["last fit of the peer"] = f"{results.values('fit_seconds', peer)[k]:.1f}"
        lines.append(line)
    return lines


def losses(results: Results) -> list[str]:
    """Return lines of Markdown that list the problems on which a peer is better than `hkrr`, with the R2 differences.

    The last line counts, for each peer, the problems on which `hkrr` is better.
    """
    ours = results.values("R2", OURS)
    lines = []
    for k, (problem, peer) in enumerate(zip(results.problems, best_peer(results), strict=True)):
        if peer and not ours[k] >= results.values("R2", peer)[k]:
            better = {
                method: results.values("R2", method)[k] - ours[k]
                for method in results.methods
                if not is_ours(method) and results.values("R2", method)[k] > ours[k]
            }
            named = (f"{name} by {_size(gain)}" for name, gain in sorted(better.items(), key=lambda item: -item[1]))
            lines.append(f"- {problem}: {', '.join(named) or f'{OURS} failed'}")
    wins = [_wins_against(results, method) for method in results.methods if not is_ours(method)]
    return [
        f"Problems on which a peer is better than `{OURS}`, with the difference of R2:"
        if lines
        else f"No peer is better than `{OURS}` on any of these problems.",
        *([""] if lines else []),
        *lines,
        "",
        f"Number of problems on which `{OURS}` is better than each peer: " + ", ".join(wins) + ".",
    ]


def _size(difference: float) -> str:
    return f"{difference:.4f}" if difference >= 1e-4 else "less than 0.0001"


def _wins_against(results: Results, method: str) -> str:
    theirs = np.where(np.isnan(results.values("R2", method)), -np.inf, results.values("R2", method))
    return f"{method} {np.sum(results.values('R2', OURS) > theirs)} of {len(theirs)}"


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
