"""The page of a benchmark: Markdown tables of its cells, and what they say."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import rankdata

from hkrr.bench.methods import __doc__ as rules_of_methods
from hkrr.bench.runner import Row

OURS = "hkrr"
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
# An R2 within this of another counts as equal to it.
_TIE = 5e-4


class Results(NamedTuple):
    """Cells as arrays, a row for each problem and a column for each method; NaN where a cell failed."""

    problems: list[str]
    methods: list[str]
    columns: dict[str, Any]
    errors: dict[tuple[str, str], str]

    def of(self, column: str, method: str) -> Any:
        """Return a column of one method, over the problems."""
        return self.columns[column][:, self.methods.index(method)]

    def ranks(self) -> Any:
        """Return the rank of each method on each problem by its R2, 1 the best; failed ones are last."""
        return np.array([rankdata(np.where(np.isnan(row), np.inf, -row)) for row in self.columns["R2"]])

    def some(self, problems: Iterable[str]) -> Results:
        """Return the results on these problems."""
        wanted = [problem for problem in self.problems if problem in set(problems)]
        index = [self.problems.index(problem) for problem in wanted]
        return self._replace(problems=wanted, columns={name: values[index] for name, values in self.columns.items()})


def results(rows: Sequence[Row]) -> Results:
    """Return the cells of problems that every method was run on."""
    methods = list(dict.fromkeys(row["method"] for row in rows))
    cells = {(row["problem"], row["method"]): row for row in rows}
    problems = [
        problem
        for problem in dict.fromkeys(row["problem"] for row in rows)
        if all((problem, method) in cells for method in methods)
    ]

    def column(name: str) -> Any:
        return np.array(
            [[_float(cells[problem, method].get(name)) for method in methods] for problem in problems]
        ).reshape(len(problems), len(methods))

    names = ("R2", "subspace_distance", "seconds", "fit_seconds", "peak_mb", "n_train", "n_features")
    errors = {key: cells[key]["error"] for key in cells if key[0] in problems and cells[key].get("error")}
    return Results(problems, methods, {name: column(name) for name in names}, errors)


def _float(text: Any) -> float:
    return float("nan") if text in (None, "") else float(text)


def planted(found: Results) -> list[str]:
    """Return the problems whose true map is known: some method's distance to it is."""
    known = ~np.all(np.isnan(found.columns["subspace_distance"]), axis=1)
    return [problem for problem, is_known in zip(found.problems, known, strict=True) if is_known]


def write(rows: Sequence[Row], out: Path, pictures: Sequence[tuple[str, str]], command: str, budget: str) -> Path:
    """Write ``out/README.md`` with the pictures (file, caption) that were drawn, and return its path."""
    found = results(rows)
    with_map = planted(found)
    groups = {"Planted models": with_map, "Tables": [each for each in found.problems if each not in with_map]}
    lines = ["# This library and its rivals, side by side", "", f"    {command}", "", f"{machine()}. {budget}.", ""]
    lines += [_rules(), ""]
    for title, problems in groups.items():
        if problems:
            lines += [f"## {title}", "", *_section(found.some(problems)), ""]
    for file, caption in pictures:
        lines += [f"## {caption}", "", f"![{caption}]({file})", ""]
    if found.errors:
        lines += ["## What failed", ""]
        lines += [f"- {problem}, {method}: {error}" for (problem, method), error in found.errors.items()]
        lines += [""]
    path = out / "README.md"
    path.write_text("\n".join(lines))
    return path


def _section(found: Results) -> list[str]:
    lines = [*markdown(summary(found)), ""]
    if OURS in found.methods and len(found.methods) > 1:
        lines += [*standing(found), "", *markdown(beside_best(found)), "", *losses(found), ""]
    lines += ["Test R2 of each method:", "", *markdown(_grid(found, "R2", 3))]
    return lines


def summary(found: Results) -> list[Row]:
    """Return a line for each method, the best mean rank first."""
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
                "median distance": _number(found.of("subspace_distance", method), 2),
                "median s": _number(found.of("seconds", method), 1),
                "last fit, s": _number(found.of("fit_seconds", method), 1),
                "median MB": _number(found.of("peak_mb", method), 0),
                "failed": int(np.isnan(R2).sum()) or "",
            }
        )
    return lines


def best_peer(found: Results) -> list[str | None]:
    """Return, for each problem, the method of others with the best R2 (variants of ours are ours)."""
    others = [method for method in found.methods if not method.startswith(OURS)]
    R2 = np.stack([found.of("R2", method) for method in others], axis=1)
    return [others[int(np.nanargmax(row))] if np.any(np.isfinite(row)) else None for row in R2]


def standing(found: Results) -> list[str]:
    """Return how often this library has the least error, and how often it is there sooner than the best peer."""
    ours, best = found.of("R2", OURS), best_peer(found)
    n = len(found.problems)
    first = reached = sooner = sooner_than_fit = 0
    for k, peer in enumerate(best):
        theirs = found.of("R2", peer)[k] if peer else -np.inf
        first += bool(ours[k] > theirs)
        if peer is None or ours[k] >= theirs - _TIE:
            reached += 1
            sooner += peer is None or bool(found.of("seconds", OURS)[k] < found.of("seconds", peer)[k])
            sooner_than_fit += peer is None or bool(found.of("seconds", OURS)[k] < found.of("fit_seconds", peer)[k])
    return [
        f"- `{OURS}` has the least error of all methods on {first} of {n} ({first / n:.0%}).",
        f"- It reaches the best peer's error (within {_TIE:g} of R2) on {reached} of {n}, and in less time than "
        f"that peer's tuning and fit on {sooner} ({sooner / n:.0%}); in less time than that peer's last fit alone, as "
        f"if its settings had been known, on {sooner_than_fit} ({sooner_than_fit / n:.0%}).",
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
            line["its R2"] = f"{found.of('R2', peer)[k]:.4f}"
            line["seconds"] = f"{found.of('seconds', peer)[k]:.1f}"
            line["last fit"] = f"{found.of('fit_seconds', peer)[k]:.1f}"
        lines.append(line)
    return lines


def losses(found: Results) -> list[str]:
    """Return where this library is not the best, and by how much; a sentence if there is no such place."""
    ours = found.of("R2", OURS)
    lines = []
    for k, (problem, peer) in enumerate(zip(found.problems, best_peer(found), strict=True)):
        if peer and not ours[k] >= found.of("R2", peer)[k]:
            better = [
                f"{method} by {found.of('R2', method)[k] - ours[k]:.4f}"
                for method in found.methods
                if not method.startswith(OURS) and found.of("R2", method)[k] > ours[k]
            ]
            lines.append(f"- {problem}: {', '.join(better) or 'it failed'}")
    against = [_against(found, method) for method in found.methods if not method.startswith(OURS)]
    return [
        f"Where `{OURS}` loses, and to whom (difference of R2):" if lines else f"`{OURS}` loses nowhere here.",
        *([""] if lines else []),
        *lines,
        "",
        f"`{OURS}` against each (problems on which it is better): " + ", ".join(against) + ".",
    ]


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
    """Return a table in Markdown; its columns are those of the first line."""
    names = list(dict.fromkeys(name for line in lines for name in line))
    rows = ["| " + " | ".join(str(line.get(name, "")) for name in names) + " |" for line in lines]
    return ["| " + " | ".join(names) + " |", "|" + " --- |" * len(names), *rows]


def machine() -> str:
    """Return the machine and the versions, in a line."""
    versions = []
    for package in _PACKAGES:
        try:
            versions.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return f"{os.cpu_count()} cores ({platform.machine()}), Python {platform.python_version()}, {', '.join(versions)}"


def _rules() -> str:
    """Return the rules, as the module that follows them states them."""
    return (rules_of_methods or "").split("\n\n", 1)[1].strip()
