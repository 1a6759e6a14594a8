"""Run all stress cases and write the table of their outcomes into docs/robustness.md.

Run it as ``PYTHONPATH=tests python -m support.stress_table``.
"""

from __future__ import annotations

import sys
from pathlib import Path

from support.stress_cases import CASES, GROUPS, estimators
from support.stress_check import Outcome, check

PAGE = "docs/robustness.md"
BEGIN, END = "<!-- the table: python tests/support/stress_table.py -->", "<!-- the end of the table -->"
_CLASSES = ("HyperKernelRidge", "HyperKernelRidgeCV")


def describe(outcome: Outcome) -> str:
    """Return the text of an outcome for the table: R2 and warnings, or the message of the error."""
    if outcome.explained is None:
        return f"refused: {outcome.message}"
    # R2 has only one digit, because further digits depend on the machine.
    explained = f"fits, R2 {max(0.0, outcome.explained):.1f}"
    return explained + "".join(f"; `{name}`" for name in outcome.warned)


def row(name: str) -> str:
    """Run a case with both estimators and return its row of the table."""
    models = estimators(CASES[name])
    cells = [describe(check(models[cls], *CASES[name].make())) if cls in models else "" for cls in _CLASSES]
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
