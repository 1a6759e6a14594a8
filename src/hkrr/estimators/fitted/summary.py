"""A fitted model on one page: what was fitted, what was chosen, what it found, how it ended."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from hkrr._arrays import Array
from hkrr.diagnostics import ENDS, Diagnostics
from hkrr.importance import column_names, loadings, weights
from hkrr.kernels import kernel_name
from hkrr.solvers.base import MESSAGES

_WIDTH = 78
_OF_DIRECTIONS = "Directions, as loadings of the standardised columns (share of the square)"
_MOST_DIRECTIONS, _MOST_LOADINGS, _MOST_COLUMNS = 6, 4, 10
_LONGEST_NAME = 24
_SHAPES = {
    "identity": "plain: every column as it is, no directions were found",
    "diagonal": "diagonal: a scale for each column",
    "full": "full",
}


@dataclass(frozen=True)
class Summary:
    """A model on one page; `print` it, or let a notebook show it.

    Attributes
    ----------
    title : str
    facts : tuple of (str, str)
        What was fitted and chosen: names and values.
    directions : tuple of str
        Each direction as its strongest columns, and their share of its square length. Loadings are in standard
        deviations of the columns, and each direction has length one.
    importances : tuple of (str, float)
        The most important columns, and how much of ``feature_importances_`` each has.
    notes : tuple of str
        How the fit ended, and what deserves attention.
    """

    title: str
    facts: tuple[tuple[str, str], ...]
    directions: tuple[str, ...]
    importances: tuple[tuple[str, float], ...]
    notes: tuple[str, ...]

    def __str__(self) -> str:
        double, single = "=" * _WIDTH, "-" * _WIDTH
        lines = [self.title.center(_WIDTH).rstrip(), double]
        for name, value in self.facts:
            lines += _wrapped(f"{name:<22}", value)
        lines += [single, _OF_DIRECTIONS]
        for line in self.directions:
            lines += _wrapped("  ", line)
        lines += [single, "Importances, as shares of 1"]
        longest = max(len(name) for name, _ in self.importances)
        most = max(share for _, share in self.importances[:_MOST_COLUMNS]) or 1.0
        for place, (name, share) in enumerate(self.importances):
            # What the others sum up to is no column.
            bar = "#" * round((_WIDTH - longest - 12) * share / most) if place < _MOST_COLUMNS else ""
            lines.append(f"  {name:<{longest}}  {share:6.3f}  {bar}".rstrip())
        lines.append(single)
        for note in self.notes:
            lines += _wrapped("", note)
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        def table(rows: Any) -> str:
            cells = (
                f"<tr><th style='text-align:left'>{a}</th><td style='text-align:left'>{b}</td></tr>" for a, b in rows
            )
            return f"<table>{''.join(cells)}</table>"

        bars = (
            (
                escape(name),
                f"{share:.3f} <span style='display:inline-block;height:.7em;background:#0072B2;"
                f"width:{12 * share:.2f}em'></span>",
            )
            for name, share in self.importances
        )
        return (
            f"<div><h4>{escape(self.title)}</h4>"
            + table((escape(name), escape(value)) for name, value in self.facts)
            + f"<p>{_OF_DIRECTIONS}</p>"
            + f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in self.directions)}</ul>"
            + f"<p>Importances, as shares of 1</p>{table(bars)}"
            + "".join(f"<p>{escape(note)}</p>" for note in self.notes)
            + "</div>"
        )


class Summarised:
    """The part of an estimator that says in words what it has learned."""

    def summary(self) -> Summary:
        """Return the model on one page: what was fitted and chosen, its directions, its columns, how it ended.

        Returns
        -------
        Summary
            To be printed, or shown by a notebook.

        Examples
        --------
        >>> from hkrr import HyperKernelRidge
        >>> from hkrr.datasets import make_mim_sines
        >>> data = make_mim_sines(200, n_features=5, n_components=1, random_state=0)
        >>> summary = HyperKernelRidge(1, random_state=0).fit(data.X, data.y).summary()
        >>> "\\n".join(str(summary).splitlines()[2:5])
        'Rows                  200 distinct\\nColumns               5\\nCenters               200'
        """
        check_is_fitted(self)
        return self._page()

    def _page(self) -> Summary:
        return summarise(self)


def summarise(model: Any, columns: list[str] | None = None) -> Summary:
    """Return the summary of a fitted model, its columns called so, or by the names that it was fitted with."""
    found: Diagnostics | None = getattr(model, "diagnostics_", None)  # none after Ctrl-C
    n_rows = None if found is None else found.n_rows
    of_targets = {"Targets": f"{model.dual_coef_.shape[1]}"} if model.dual_coef_.ndim == 2 else {}
    distinct = found is not None and found.n_rows == found.n_centers  # copies of a row are one then
    facts = (*facts_of_map(model, n_rows, of_targets, distinct), *_facts(model, found))
    return page(model, "f(x) = g(Bx)", facts, notes_of(model, found), columns)


def page(
    model: Any,
    formula: str,
    facts: Iterable[tuple[str, str]],
    notes: Iterable[str],
    columns: list[str] | None = None,
) -> Summary:
    """Return the summary of a model with a map, with its directions and columns."""
    names = [
        name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 2] + ".."
        for name in (column_names(model) if columns is None else columns)
    ]
    return Summary(
        f"{type(model).__name__}: {formula}",
        tuple(facts),
        tuple(_directions(model, names)),
        tuple(_importances(model.feature_importances_, names)),
        tuple(notes),
    )


def facts_of_map(
    model: Any, n_rows: int | None, of_targets: dict[str, str], distinct: bool = False
) -> Iterator[tuple[str, str]]:
    """Yield how large a model is, and what its map is; what there is to say of the targets is in the middle."""
    d, D = model.components_.shape
    shape = getattr(model, "map_shape_", "full")
    if n_rows is not None:
        yield "Rows", f"{n_rows:,}{' distinct' if distinct else ''}"
    yield "Columns", f"{D:,}"
    yield "Centers", f"{len(model.centers_):,}"
    yield from of_targets.items()
    yield "Directions", f"{d}" if shape == "full" else f"{d}, the columns"
    yield "Map", _SHAPES[shape]
    yield "Kernel", f"{kernel_name(model.kernel_)}, gamma {model.gamma_:.4g}"


def _facts(model: Any, found: Diagnostics | None) -> Iterator[tuple[str, str]]:
    yield "lambda", f"{model.reg_lambda_:.4g}{_how_lambda(model)}"
    yield "Criterion", _criterion(model)
    if found is None:
        return
    if found.explained_share is None:
        yield "R2, training rows", "none: y is constant"
    else:
        yield (
            "R2, training rows",
            f"{found.explained_share:.4f}, {100 * (1 - found.explained_share):.3g}% left to noise",
        )
    yield "Parameters in effect", f"{found.effective_dimension:.1f}, the trace of the hat matrix"


def _how_lambda(model: Any) -> str:
    if hasattr(model, "cv_results_"):
        return ", chosen on held-out rows" if len(set(model.cv_results_["reg_lambda"].tolist())) > 1 else ""
    return ", learned" if hasattr(model, "path_") or isinstance(getattr(model, "reg_lambda", None), str) else ", given"


def _criterion(model: Any) -> str:
    if not hasattr(model, "best_score_"):
        return f"{model.criterion}, {model.result_.objective:.5g} at the end"
    if hasattr(model, "cv_results_"):
        return f"{model.criterion}; held-out mean squared error {model.best_score_:.4g}"
    return f"{model.criterion}; score (BIC, in nats) {model.best_score_:.4g}"


def _directions(model: Any, names: list[str]) -> Iterator[str]:
    if getattr(model, "map_shape_", "full") != "full":
        yield "None: the map keeps the columns' own axes. See their importances."
        return
    table, weight = loadings(model), weights(model)
    for k in range(min(len(table), _MOST_DIRECTIONS)):
        order = np.argsort(-np.abs(table[k]), kind="stable")[:_MOST_LOADINGS]
        share = float(np.sum(table[k, order] ** 2))
        terms = "  ".join(f"{table[k, j]:+.2f} {names[j]}" for j in order if table[k, j] != 0)
        rest = "" if len(names) <= _MOST_LOADINGS else f"  ({100 * share:.0f}%)"
        yield f"{k + 1}  weight {weight[k]:.2f}:  {terms or 'no column: it is zero'}{rest}"
    if len(table) > _MOST_DIRECTIONS:
        most = float(np.max(weight[_MOST_DIRECTIONS:]))
        yield f"and {len(table) - _MOST_DIRECTIONS} more, of weights up to {most:.2g}"


def _importances(importances: Array, names: list[str]) -> Iterator[tuple[str, float]]:
    order = np.argsort(-importances, kind="stable")
    for j in order[:_MOST_COLUMNS]:
        yield names[j], float(importances[j])
    rest = order[_MOST_COLUMNS:]
    if len(rest):
        yield f"{len(rest)} other{'s' if len(rest) > 1 else ''}", float(np.sum(importances[rest]))


def notes_of(model: Any, found: Diagnostics | None) -> Iterator[str]:
    """Yield how a fit ended, and what of it deserves attention."""
    result = model.result_
    said = f" ({result.message})" if result.message not in MESSAGES.values() else ""
    why = ENDS.get(result.reason, "see result_.message")
    yield f"Ended after {model.n_iter_} iterations: {result.reason}, {why}{said}."
    if found is None:
        yield "Nothing is known of the health of this fit: it was interrupted, or comes from an old file."
        return
    for _, message in found.findings():
        yield f"! {message}"


def _wrapped(head: str, text: str) -> list[str]:
    indent = " " * (len(head) if head.strip() else len(head) + 4)
    return textwrap.wrap(text, _WIDTH, initial_indent=head, subsequent_indent=indent, break_on_hyphens=False)
