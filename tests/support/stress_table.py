"""Run all stress cases and write the table of their outcomes into docs/robustness.md.

Run it as ``PYTHONPATH=tests python -m support.stress_table``.
"""

from __future__ import annotations

import sys
from pathlib import Path

from support.stress_cases import CASES, GROUPS, estimators
from support.stress_check import Outcome, check

PAGE = "docs/robustness.md"
BEGIN = "<!-- the table: PYTHONPATH=tests python -m support.stress_table -->"
END = "<!-- the end of the table -->"
_CLASSES = ("HyperKernelRidge", "HyperKernelRidgeCV")


def describe(outcome: Outcome) -> str:
    """Return the text of an outcome for the table: R2 on new rows and warnings, or the message of the error."""
    if outcome.explained_on_fresh is None:
        return f"refused: {outcome.message}"
    return f"fits, R2 {rounded(outcome.explained_on_fresh)}" + "".join(f"; `{name}`" for name in outcome.warned)


def rounded(R2: float) -> str:
    """Return R2 with one digit, or "below 0" or "below -1", because further digits depend on the machine."""
    if R2 < -0.05:
        return "below 0" if R2 >= -1.0 else "below -1"
    return f"{max(0.0, R2):.1f}"


def row(name: str) -> str:
    """Run a case with both estimators and return its row of the table."""
    case = CASES[name]
    models, fresh = estimators(case), case.make.fresh()
    cells = [describe(check(models[cls], *case.make(), fresh=fresh)) if cls in models else "" for cls in _CLASSES]
    return f"| {name} | " + " | ".join(cells) + " |"


def table() -> str:
    """Return the tables of all groups of cases in Markdown."""
    lines = []
    for group, cases in GROUPS.items():
        lines += ["", f"### {group}", "", f"| case | {' | '.join(_CLASSES)} |", "|---|---|---|", *map(row, cases)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    page = Path(PAGE)
    before, rest = page.read_text().split(BEGIN)
    page.write_text(before + BEGIN + "\n" + table() + "\n" + END + rest.split(END)[1])
    sys.stdout.write(f"{len(CASES)} cases in {PAGE}\n")
