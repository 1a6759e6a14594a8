"""Ablation of the search of `HyperKernelRidgeCV`: the default search, compared with variants that lack one part of it.

    python benchmarks/ablation.py [--variants NAME ...] [--problems NAME ...] [--seeds N] [--append] [--out NAME]

The problems and groups of problems are those of search.py. A case is one problem with one seed. Each variant runs in a
process of its own, which changes constants or functions of hkrr before the first fit. All variants fit a case one after
another before the next case starts, so that other load on the machine affects all variants. With `--append`, cases that
are in the CSV file already are skipped. The results are written to NAME.csv and NAME.md in benchmarks/results. The
default NAME is `ablation`.

A variant is a function in `VARIANTS`. If the search no longer has the constant or function that a variant changes, the
variant stops with an error.
"""

from __future__ import annotations

import argparse
import importlib
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from search import GROUPS, RESULTS_OF_A_FIT, TrueMap, fit, is_right, is_success, names_of_problems
from workers import Row, Table, Worker, commit, errors, least, median, reported, serve, used_commits, valid

SEARCH = "hkrr.estimators.search"
# The default value of --problems: names of problems and groups. A fit of these problems takes seconds. A fit of the
# other problems of search.py takes up to a minute.
DEFAULT_PROBLEMS = ("data set 1", "data set 2", "planted", "two of 15 columns, m = 400")
KEYS = ("variant", "problem", "seed")


def change(module: str, name: str, value: Any) -> None:
    """Replace a constant or function of a module, or an attribute of a class (``"Class.attribute"``).

    If there is no such constant, function or attribute, an AttributeError is raised.
    """
    *path, last = name.split(".")
    owner = importlib.import_module(module)
    for part in path:
        owner = getattr(owner, part)
    getattr(owner, last)  # raises an AttributeError if the search no longer has this part
    setattr(owner, last, value)


def one_size() -> None:
    """Use the smallest numbers of rows and centers in `directions.SIZES` for any number of directions of the map."""
    directions = importlib.import_module(f"{SEARCH}.directions")
    _, n_rows, n_centers = directions.SIZES[0]
    change(f"{SEARCH}.directions", "SIZES", ((math.inf, n_rows, n_centers),))


def many_centers() -> None:
    """Use the largest numbers of rows and centers in `directions.SIZES` for any number of directions of the map."""
    directions = importlib.import_module(f"{SEARCH}.directions")
    change(f"{SEARCH}.directions", "SIZES", directions.SIZES[-1:])


def no_rescaling() -> None:
    """Leave out the refit of the scales, which follows the refinement of the best map on all rows."""
    change(f"{SEARCH}.search_stages", "rescale", lambda problem, candidate: candidate)


VARIANTS: dict[str, Callable[[], None]] = {
    "default": lambda: None,
    "no moment starts": lambda: change(f"{SEARCH}.directions", "moment_starts", lambda *_, **__: []),
    "stop after the first cut": lambda: change(f"{SEARCH}.directions", "_WIDENINGS", 0),
    "no added directions": lambda: change(f"{SEARCH}.directions", "DirectionSearch._widen", lambda search: True),
    "no held-out check": lambda: change(f"{SEARCH}.search_stages", "needs_check", lambda *_, **__: False),
    "few centers only": one_size,
    "many centers from the start": many_centers,
    "lambda learned with the map": lambda: change("hkrr.criteria.evidence", "Evidence.profiles_lambda", False),
    "narrow starts": lambda: change(f"{SEARCH}.directions", "_MOST_WIDTH", 3),
    "no rescaling": no_rescaling,
}


def run(workers: dict[str, Worker], cases: Sequence[Row], table: Table) -> None:
    """Fit each case with each variant, and add the results to the table."""
    true_map, version = TrueMap(), commit()
    for case in cases:
        for variant, worker in workers.items():
            if table.has(variant=variant, **case):
                continue
            known = true_map.score(case["problem"], case["seed"])
            found = worker.run(**case, state=10**6 + case["seed"])
            table.add(variant=variant, **case, commit=version, R2_krr_on_true_map=known, **found)


def summary(rows: Sequence[Row], problems: Sequence[str]) -> Iterator[Row]:
    """Yield a row of statistics for each variant, computed over the cases of the given problems.

    For each case, the time of the variant is divided by the time of the default search. "time / default" is the median
    of these ratios.
    """
    rows = [row for row in rows if row["problem"] in problems]
    default = {(row["problem"], row["seed"]): row for row in rows if row["variant"] == "default"}
    for variant in dict.fromkeys(row["variant"] for row in rows):
        some = [row for row in rows if row["variant"] == variant]
        gaps = [row["R2"] - row["R2_krr_on_true_map"] for row in some if row["R2"] != ""]
        pairs = [(row, default[at]) for row in some if (at := (row["problem"], row["seed"])) in default]
        ratios = [one["seconds"] / other["seconds"] for one, other in pairs if "" not in (one["R2"], other["R2"])]
        yield {
            "variant": variant,
            "right d": f"{sum(map(is_right, some))} of {len(some)}",
            "success": f"{sum(map(is_success, some))} of {len(some)}",
            "median R2": median(valid(some, "R2")),
            "least R2": least(valid(some, "R2")),
            "least R2 - KRR on the true Bx": least(gaps),
            "median seconds": median(valid(some, "seconds"), 2),
            "time / default": median(ratios, 2),
        }


def page(rows: Sequence[Row]) -> str:
    """Return the Markdown page of all results: one table for each group of problems, and one for each problem."""
    from objective import machine, markdown

    text = ["# benchmarks/ablation.py", "", machine(), "", used_commits(rows, "variant")]
    text += ["", "A fit succeeds if the selected number of directions d is the true number, and its R2 is close to"]
    text += ["the R2 of kernel ridge regression on the true coordinates Bx (see search.md)."]
    present = list(dict.fromkeys(row["problem"] for row in rows))
    parts = {f"Group {group}": [name for name in names if name in present] for group, names in GROUPS.items()}
    parts |= {f"Problem {name}": [name] for name in present}
    if len(present) > 1:
        parts = {"All problems": present, **parts}
    for title, names in parts.items():
        if names:
            text += ["", f"## {title}", "", markdown(list(summary(rows, names)))]
    return "\n".join([*text, *errors(rows, KEYS), ""])


def main() -> None:
    """Run the cases and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--variants", nargs="*", default=list(VARIANTS))
    parser.add_argument("--problems", nargs="*", default=DEFAULT_PROBLEMS, help="names of problems or groups")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--append", action="store_true", help="keep the results of the CSV file, and skip its cases")
    parser.add_argument("--out", default="ablation")
    options = parser.parse_args()
    if unknown := [name for name in options.variants if name not in VARIANTS]:
        raise SystemExit(f"--variants: unknown variant {unknown[0]!r}; choose from {[*VARIANTS]}")
    cases = [{"problem": name, "seed": k} for name in names_of_problems(options.problems) for k in range(options.seeds)]
    workers = {name: Worker(__file__, arguments=[name]) for name in options.variants}
    for name, worker in workers.items():
        if not worker.start():
            raise SystemExit(f"the variant {name!r} cannot be applied: see the error above")
    table = Table(options.out, (*KEYS, "commit", *RESULTS_OF_A_FIT), len(KEYS), options.append)
    with reported(table, page, workers.values()):
        run(workers, cases, table)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        VARIANTS[sys.argv[2]]()
        serve(fit)
    else:
        main()
