"""Functions that print a fitted model on the terminal.

They use the `Summary` of the model and the dict that `hkrr.tables.describe` returns, called `content` here.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from sklearn.base import BaseEstimator

from hkrr._base.error_text import truncated
from hkrr._maps import ShapeName
from hkrr.cli._console import print_line
from hkrr.estimators.fitted.summary import MEMBER_COLUMNS, Summary, SummaryMixin
from hkrr.solvers.driver import StopReason
from hkrr.tables.inner_models import unwrap_model

if TYPE_CHECKING:
    from hkrr.tables import HeldOutClassScores, HeldOutScores

# Maximum number of directions, or of table columns, in a printed list.
_MAX_ROWS = 15
# Maximum number of importances to print, and smallest importance to print. Smaller importances are rounded to 0%.
_MAX_IMPORTANCES, _MIN_SHARE = 8, 0.005
# Maximum width of a printed cell, except for the last cell of a row. Longer text is truncated.
_MAX_NAME_WIDTH = 30
# A baseline is recommended if its score (R2, or minus the log loss) exceeds that of the model by more than this number.
_MIN_GAIN = 0.01
# For each baseline, the name of the class that a user can fit in Python.
_BASELINE_CLASSES = {
    "kernel ridge": "hkrr.baselines.KernelRidgeCV",
    "linear": "sklearn.linear_model.RidgeCV",
    "logistic regression": "sklearn.linear_model.LogisticRegression",
}
# Maximum number of outliers to list.
_MAX_OUTLIERS = 5
# Pattern of the column names that are given to a file without a header line.
_NO_HEADER = re.compile(r"column \d+")
# Printed names of column types that differ from the names stored in model files.
_KIND_NAMES = {"truth": "boolean"}


def show_scores(console: Console, scores: HeldOutScores | HeldOutClassScores | None) -> None:
    """Print the scores on the held-out rows, if there are any, and recommend a baseline that scores higher."""
    if scores is None:
        return
    print_line(console, f"\n{scores}")
    if hasattr(scores, "log_loss"):
        values, is_better, gap = tuple(-loss for loss in scores.log_loss), "has a smaller log loss", "\n"
    else:
        values, is_better, gap = scores.r2, "scores higher", ""
    best = max(range(len(values)), key=lambda k: values[k])
    if best > 0 and values[best] > values[0] + _MIN_GAIN:
        name = scores.methods[best]
        # A model file may also contain scores of baselines that are not in _BASELINE_CLASSES.
        where = f" ({_BASELINE_CLASSES[name]} in Python)" if name in _BASELINE_CLASSES else ""
        message = f"The baseline '{name}' {is_better} on these rows. Consider using it instead{where}."
        print_line(console, gap + textwrap.fill(message, 79), "yellow")


def show_facts(console: Console, model: BaseEstimator) -> None:
    """Print the facts of the summary of a model, and the members of an ensemble.

    For an estimator without the method ``summary``, nothing is printed.
    """
    if not isinstance(unwrap_model(model).whole, SummaryMixin):
        return
    summary: Summary = model.summary()
    print_line(console, "")
    _show_rows(console, [(f"{name}:", value) for name, value in summary.facts])
    if summary.members:
        n = len(summary.members)
        what = "Classification by" if hasattr(model, "predict_proba") else "Weighted sum of"
        print_line(console, f"\n{what} {n} model{'s' if n > 1 else ''}:")
        _show_rows(console, [MEMBER_COLUMNS, *summary.members], n + 1)


def show_map(console: Console, content: dict[str, Any]) -> None:
    """Print why the fit ended early, the directions of a map that combines columns, and the important columns.

    The directions of an ensemble of several models are not printed.
    """
    if "directions" not in content:
        return
    if content.get("stopped") == StopReason.TIME_LIMIT:
        print_line(console, "\nThe time limit stopped the search. A longer limit may give a better model.")
    if content.get("stopped") == StopReason.INTERRUPTED:
        print_line(console, "\nThe fit was interrupted. This is the best model found before the interruption.")
    if len(content.get("members", [])) <= 1 and content.get("map_shape", ShapeName.FULL) == ShapeName.FULL:
        print_line(console, "\nDirections, largest weight first.")
        print_line(console, "Each line: weight of the direction, then the largest loadings of its columns:")
        _show_rows(console, [(f"{each['weight']:.2f}", _format_direction(each)) for each in content["directions"]])
    _show_importances(console, content.get("importances", []))


def show_outliers(console: Console, content: dict[str, Any]) -> None:
    """Print how many training rows are outliers, and the lines of the file with the largest residuals."""
    n, labels = content.get("diagnostics", {}).get("n_outliers", 0), content.get("outliers")
    if not labels:
        return
    has_header = not all(_NO_HEADER.fullmatch(each["name"]) for each in content["columns"])
    lines = ", ".join(str(label + 1 + has_header) for label in labels[:_MAX_OUTLIERS])
    more = f" and {n - _MAX_OUTLIERS:,} more" if n > _MAX_OUTLIERS else ""
    rows = f"{n:,} rows were treated as outliers: lines" if n > 1 else "1 row was treated as an outlier: line"
    header = " (the header is line 1)" if has_header else ""
    print_line(console, "\n" + textwrap.fill(f"{rows} {lines}{more} of the file{header}.", console.width))


def _show_importances(console: Console, importances: list[dict[str, Any]]) -> None:
    """Print the names and importances of the most important columns."""
    listed = [f"{each['column']} {each['share']:.0%}" for each in importances if each["share"] >= _MIN_SHARE]
    listed = listed[:_MAX_IMPORTANCES]
    if listed:
        more = [f"and {len(importances) - len(listed)} more"] if len(importances) > len(listed) else []
        lines = textwrap.wrap(", ".join([*listed, *more]), max(20, console.width - 2))
        print_line(console, "\nMost important columns:\n" + "\n".join(f"  {line}" for line in lines))


def _format_direction(direction: dict[str, Any]) -> str:
    pairs = zip(direction["columns"], direction["loadings"], strict=True)
    terms = [f"{loading:+.2f} {name}" for name, loading in pairs]
    return ", ".join([*terms, *([f"and {direction['n_more']} more"] if direction["n_more"] else [])])


def show_columns(console: Console, content: dict[str, Any], everything: bool = False) -> None:
    """Print how each column is encoded.

    If `everything` is False, at most 15 columns are listed, and plain numeric columns are counted but not listed.
    """
    columns = content.get("columns", [])
    if not columns or "kind" not in columns[0]:
        return
    listed = [each for each in columns if everything or each["kind"] != "number" or each["about"]]
    if not listed:
        print_line(console, f"\nAll {len(columns)} columns are numeric.")
        return
    n_plain = len(columns) - len(listed)
    plain = f" (and {n_plain} numeric column{'s' if n_plain > 1 else ''})" if n_plain else ""
    print_line(console, f"\nColumns{plain}:")
    rows = [(each["name"], _KIND_NAMES.get(each["kind"], each["kind"]), each["about"]) for each in listed]
    _show_rows(console, rows, len(rows) if everything else _MAX_ROWS)


def _show_rows(console: Console, rows: Sequence[tuple[str, ...]], max_rows: int = _MAX_ROWS) -> None:
    """Print rows of cells in aligned columns, at most `max_rows` rows, and the number of rows that are left out.

    The last cell of a row is wrapped to the width of the terminal.
    """
    listed = rows[:max_rows]
    columns = list(zip(*listed, strict=True))
    widths = [min(_MAX_NAME_WIDTH, max(len(cell) for cell in column)) for column in columns[:-1]]
    indent = 2 + sum(widths) + 2 * len(widths)
    for row in listed:
        start = "".join(f"{truncated(cell, width, '...'):{width}}  " for cell, width in zip(row, widths, strict=False))
        lines = textwrap.wrap(row[-1], max(20, console.width - indent)) or [""]
        for k, line in enumerate(lines):
            print_line(console, f"  {start if k == 0 else ' ' * (indent - 2)}{line}".rstrip())
    if len(rows) > max_rows:
        print_line(console, f"  and {len(rows) - max_rows} more")


def show_warnings(console: Console, messages: list[str]) -> None:
    """Print each warning after an exclamation mark."""
    for message in messages:
        print_line(console, "\n" + textwrap.fill(f"! {message}", console.width, subsequent_indent="  "), "yellow")
