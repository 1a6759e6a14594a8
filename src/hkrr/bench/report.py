"""The page of a benchmark: Markdown tables of its cells, and what they say."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from hkrr.bench.methods import MOST_SETTINGS, Method
from hkrr.bench.methods import __doc__ as rules_of_methods
from hkrr.bench.results import OURS, TIE, Results, best_peer, results, standing
from hkrr.bench.runner import Row

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
_OVERRUN = 1.2  # of the seconds: clearly longer
_COLUMNS = """In the first table of each section: the mean rank by test R2 (1 is best; a method that failed is last), on
how many problems a method is first, the median and the worst R2, the median sine of the largest angle between the true
directions and the leading ones that were found (0 is exact, 1 misses one entirely; only for methods that learn
directions), and medians of the seconds of tuning, fitting and predicting together, of the seconds of the last fit
alone (of those that tune themselves: of all of it), and of the megabytes by which memory rose. Medians are over the
problems a method did not fail on. First counts ties for each of them, and every line is a method, variants of this
library too; elsewhere on this page "others" are all but those, the systems that `hkrr.baselines` holds included. A
problem given with several seeds or splits counts once, by the mean."""
_PLANTED = """Planted models depend on a few directions by construction: this is what the library is made for, and these
kinds are those it was developed on, mostly with other draws. `hkrr.datasets.make_planted` says what each of them
is."""


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
    """Write ``out/README.md`` with the pictures (file, caption) that were drawn, and return its path."""
    found = results(rows)
    with_map = found.planted()
    groups = {"Planted models": with_map, "Tables": [each for each in found.problems if each not in with_map]}
    title = "This library and its rivals, side by side" if OURS in found.methods else "Methods, side by side"
    lines = [f"# {title}", "", f"    {command}", "", f"{machine()}. {budget}.", "", _rules(), "", _COLUMNS, ""]
    if about:
        lines += ["The tables:", "", *(f"- {each}" for each in about), ""]
    for heading, problems in groups.items():
        if problems:
            lines += [f"## {heading}", "", *([_PLANTED, ""] if problems is with_map else [])]
            lines += [*_section(found.some(problems)), ""]
    for file, caption in pictures:
        lines += [f"## {caption}", "", f"![{caption}]({file})", ""]
    failed = [f"- {row['problem']}, {row['method']}: {row['error']}" for row in rows if row.get("error")]
    if failed:
        lines += ["## What failed", "", *failed, ""]
    lines += [*_overruns(rows), *_machine_lines(rows)]
    if missing:
        lines += [f"Not installed, and left out: {', '.join(missing)}.", ""]
    lines += ["## The methods", "", *(f"- `{name}`: {methods[name].about}" for name in found.methods), ""]
    path = out / "README.md"
    path.write_text("\n".join(lines))
    return path


def _section(found: Results) -> list[str]:
    lines = [*markdown(summary(found)), ""]
    if OURS in found.methods and any(not name.startswith(OURS) for name in found.methods):
        lines += [*_standing(found), *_variants(found), "", *markdown(beside_best(found)), "", *losses(found), ""]
    for title, column, digits in (
        ("Test R2", "R2", 3),
        ("Seconds of tuning, fitting and predicting", "seconds", 1),
        ("Distance to the true directions", "subspace_distance", 2),
    ):
        if not np.all(np.isnan(found.columns[column])):
            lines += [f"{title}:", "", *markdown(_grid(found, column, digits)), ""]
    return lines


def summary(found: Results) -> list[Row]:
    """Return a line for each method, the best mean rank first; columns with nothing in them are left out."""
    ranks = found.ranks()
    lines = []
    for method in sorted(found.methods, key=lambda name: ranks[:, found.methods.index(name)].mean()):
        k = found.methods.index(method)
        R2 = found.of("R2", method)
        lines.append(
            {
                "method": method,
                "mean rank": f"{ranks[:, k].mean():.2f}",
                "first": f"{np.sum(ranks[:, k] < 2)} of {len(R2)}",
                "median R2": _number(R2, 3),
                "worst R2": "" if np.all(np.isnan(R2)) else f"{np.nanmin(R2):.3f}",
                "distance": _number(found.of("subspace_distance", method), 2),
                "seconds": _number(found.of("seconds", method), 1),
                "last fit": _number(found.of("fit_seconds", method), 1),
                "MB": _number(found.of("peak_mb", method), 0),
                "failed": str(int(np.isnan(R2).sum()) or ""),
            }
        )
    return [{name: line[name] for name in line if any(each[name] for each in lines)} for line in lines]


def _standing(found: Results) -> list[str]:
    n, first, reached, sooner, clearly_sooner, sooner_than_fit = standing(found)
    failed = found.failed_peers()
    problems = f"{np.sum(failed > 0)} of the {n} problems, {failed.max()} at most on one"
    with_failures = f" (Methods of others failed on {problems}; they count as last.)" if np.any(failed) else ""
    return [
        f"- `{OURS}` has less error than all methods of others on {first} of {n} ({first / n:.0%}).{with_failures}",
        f"- It reaches the best peer's error (1 - R2, to {TIE:.0%}) on {reached} of {n}, and in less time than that "
        f"peer's tuning and fit on {sooner} ({sooner / n:.0%}), by a tenth or more on {clearly_sooner} "
        f"({clearly_sooner / n:.0%}); than that peer's last fit alone, as if its settings had been known, by a tenth "
        f"or more on {sooner_than_fit} ({sooner_than_fit / n:.0%}).",
    ]


def _variants(found: Results) -> list[str]:
    """Return a sentence for each other form of this library: where it is better than the default, and where worse."""
    lines = []
    for variant in (name for name in found.methods if name.startswith(OURS) and name != OURS):
        gain = found.of("R2", variant) - found.of("R2", OURS)
        if np.all(np.isnan(gain)):
            continue
        k, best = int(np.nanargmin(gain)), int(np.nanargmax(gain))
        lines.append(
            f"- `{variant}` is better than `{OURS}` on {np.sum(gain > 0)} of {len(gain)}; the most on "
            f"{found.problems[best]} (by {gain[best]:.3f}), the least on {found.problems[k]} (by {gain[k]:.3f})."
        )
    return lines


def _overruns(rows: Sequence[Row]) -> list[str]:
    """Return which methods took clearly longer than they were given."""
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
        f"{count} of {len(rows)} fits took a fifth more than the seconds they had, or longer: one fit takes as long as "
        f"it takes, and only the limit ends it. The longest of each method: {named}.",
        "",
    ]


def beside_best(found: Results) -> list[Row]:
    """Return a line for each problem: this library beside the best of the others."""
    lines = []
    for k, (problem, peer) in enumerate(zip(found.problems, best_peer(found), strict=True)):
        line = {
            "problem": problem,
            "m": f"{np.nanmax(found.columns['n_train'][k]):.0f}",
            "D": f"{np.nanmax(found.columns['n_features'][k]):.0f}",
            f"R2 of {OURS}": f"{found.of('R2', OURS)[k]:.4f}",
            "its seconds": f"{found.of('seconds', OURS)[k]:.1f}",
            "best peer": peer or "",
        }
        if peer:
            line["R2 of the peer"] = f"{found.of('R2', peer)[k]:.4f}"
            line["the peer's seconds"] = f"{found.of('seconds', peer)[k]:.1f}"
            line["its last fit"] = f"{found.of('fit_seconds', peer)[k]:.1f}"
        lines.append(line)
    return lines


def losses(found: Results) -> list[str]:
    """Return where this library is not the best, and by how much; a sentence if there is no such place."""
    ours = found.of("R2", OURS)
    lines = []
    for k, (problem, peer) in enumerate(zip(found.problems, best_peer(found), strict=True)):
        if peer and not ours[k] >= found.of("R2", peer)[k]:
            better = {
                method: found.of("R2", method)[k] - ours[k]
                for method in found.methods
                if not method.startswith(OURS) and found.of("R2", method)[k] > ours[k]
            }
            named = (f"{name} by {_size(gain)}" for name, gain in sorted(better.items(), key=lambda item: -item[1]))
            lines.append(f"- {problem}: {', '.join(named) or 'it failed'}")
    against = [_against(found, method) for method in found.methods if not method.startswith(OURS)]
    return [
        f"Where `{OURS}` loses, and to whom (difference of R2):" if lines else f"`{OURS}` loses nowhere here.",
        *([""] if lines else []),
        *lines,
        "",
        f"`{OURS}` against each (problems on which it is better): " + ", ".join(against) + ".",
    ]


def _size(difference: float) -> str:
    return f"{difference:.4f}" if difference >= 1e-4 else "less than 0.0001"


def _against(found: Results, method: str) -> str:
    theirs = np.where(np.isnan(found.of("R2", method)), -np.inf, found.of("R2", method))
    return f"{method} {np.sum(found.of('R2', OURS) > theirs)} of {len(theirs)}"


def _grid(found: Results, column: str, digits: int) -> list[Row]:
    """Return a line for each method and a column for each problem, or the other way where there are fewer methods."""
    values = found.columns[column]
    if len(found.problems) <= len(found.methods):
        return [
            {"method": method, **{p: _number(values[k : k + 1, j], digits) for k, p in enumerate(found.problems)}}
            for j, method in enumerate(found.methods)
        ]
    return [
        {"problem": problem, **{m: _number(values[k : k + 1, j], digits) for j, m in enumerate(found.methods)}}
        for k, problem in enumerate(found.problems)
    ]


def _number(values: Any, digits: int) -> str:
    """Return the median of the numbers that are there."""
    return "" if np.all(np.isnan(values)) else f"{np.nanmedian(values):.{digits}f}"


def markdown(lines: Sequence[Row]) -> list[str]:
    """Return a table in Markdown."""
    names = list(dict.fromkeys(name for line in lines for name in line))
    rows = ["| " + " | ".join(str(line.get(name, "")) for name in names) + " |" for line in lines]
    return ["| " + " | ".join(names) + " |", "|" + " --- |" * len(names), *rows]


def _machine_lines(rows: Sequence[Row]) -> list[str]:
    """Return how even the machine was: the same small product, timed before every fit."""
    times = [float(row["machine_ms"]) for row in rows if row.get("machine_ms")]
    if not times:
        return []
    low, middle, high = np.percentile(times, [5, 50, 95])
    return [
        f"A fixed matrix product before each fit took {middle:.1f} ms in the middle, less than {low:.1f} ms for a "
        f"twentieth of the fits, more than {high:.1f} ms for another.",
        "",
    ]


def machine() -> str:
    """Return the machine and the versions, in a line."""
    versions = []
    for package in _PACKAGES:
        try:
            versions.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    cores = f"{os.cpu_count()} cores ({_processor()})"
    return f"{cores}, Python {platform.python_version()}, {', '.join(versions)}"


def _processor() -> str:
    """Return the processor's name where the system tells it (Linux), or its kind."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _rules() -> str:
    """Return the rules, as the module that follows them states them."""
    rules = (rules_of_methods or "").split("\n\n", 1)[1].strip()
    return f"{rules} At most {MOST_SETTINGS} settings are tried."
