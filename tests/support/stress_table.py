"""Write the stress table into docs/robustness.md: ``python tests/stress_table.py``, from the root of the repository."""

from __future__ import annotations

import sys
from pathlib import Path

from stress_cases import CASES, GROUPS, estimators
from stress_check import Outcome, check

PAGE = "docs/robustness.md"
BEGIN, END = "<!-- the table: python tests/stress_table.py -->", "<!-- the end of the table -->"
_CLASSES = ("HyperKernelRidge", "HyperKernelRidgeCV")


def told(outcome: Outcome) -> str:
    """Return an outcome in few words."""
    if outcome.explained is None:
        return f"refused: {outcome.said}"
    # One digit: the last ones are the machine's.
    explained = f"fits, R2 {max(0.0, outcome.explained):.1f}"
    return explained + "".join(f"; `{name}`" for name in outcome.warned)


def row(name: str) -> str:
    """Return the line of a case."""
    models = estimators(CASES[name])
    cells = [told(check(models[cls], *CASES[name].make())) if cls in models else "" for cls in _CLASSES]
    return f"| {name} | " + " | ".join(cells) + " |"


def table() -> str:
    """Return all of them."""
    lines = []
    for group, cases in GROUPS.items():
        lines += ["", f"### {group}", "", f"| case | {' | '.join(_CLASSES)} |", "|---|---|---|", *map(row, cases)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    page = Path(PAGE)
    before, rest = page.read_text().split(BEGIN)
    page.write_text(before + BEGIN + "\n" + table() + "\n" + END + rest.split(END)[1])
    sys.stdout.write(f"{len(CASES)} cases in {PAGE}\n")
