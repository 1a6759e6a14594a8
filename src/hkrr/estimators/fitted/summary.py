"""`Summary`: a one-page description of a fitted model or of an ensemble (a weighted sum of models), as text or HTML."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, cast

import numpy as np
from sklearn.utils.validation import check_is_fitted

from hkrr._base.error_text import truncated
from hkrr._base.linear_algebra import Array
from hkrr._maps import ShapeName
from hkrr.estimators.fitted.diagnostics import STOP_REASONS, Diagnostics
from hkrr.estimators.fitted.fitted_attributes import FittedMap, KernelAndMap, map_shape
from hkrr.estimators.fitted.importance import (
    column_names,
    direction_weights,
    largest_loadings,
    loadings,
)
from hkrr.kernels import kernel_name
from hkrr.solvers.driver import MESSAGES

if TYPE_CHECKING:
    from hkrr.estimators.ensemble import HyperKernelEnsemble
    from hkrr.estimators.fitted.base import MapModel

# Width of the text in characters.
_WIDTH = 78
_DIRECTIONS_HEADING = "Directions: loadings of the standardized columns (% of the squared length)"
_MEMBERS_HEADING = "Members, largest weight first"
# Names of the columns of `Summary.members`.
MEMBER_COLUMNS = ("weight", "kernel", "map", "directions", "columns", "centers")
_IMPORTANCES_HEADING = "Feature importances, as fractions of their sum"
# Maximum numbers of directions, of loadings per direction, and of importances that are shown.
_MAX_DIRECTIONS, _MAX_LOADINGS, _MAX_COLUMNS = 6, 4, 10
# Maximum length of a column name. Longer names are cut.
_MAX_NAME_LENGTH = 24


@dataclass(frozen=True)
class Summary:
    """One-page description of a fitted model, which can be printed or displayed in a notebook."""

    title: str  # name of the estimator and formula of the model
    facts: tuple[tuple[str, str], ...]  # names and values of the settings, sizes and scores of the fit
    # A line for each direction. It lists the columns with the largest loadings, and the percentage of the squared
    # length of the direction that these columns contribute. Loadings refer to standardized columns, and each direction
    # has length 1.
    directions: tuple[str, ...]
    importances: tuple[tuple[str, float], ...]  # the most important columns and their ``feature_importances_``
    notes: tuple[str, ...]  # why the fit stopped, and the problems that the diagnostics found
    # For each member of an ensemble: the weight, the kernel, the shape of the map, the number of directions, and the
    # number of centers. Empty for a single model. For an ensemble, the field `directions` describes the first member.
    members: tuple[tuple[str, ...], ...] = ()

    def __str__(self) -> str:
        double, single = "=" * _WIDTH, "-" * _WIDTH
        lines = [self.title.center(_WIDTH).rstrip(), double]
        for name, value in self.facts:
            lines += _wrap(f"{name:<22}", value)
        if self.members:
            rows = [MEMBER_COLUMNS, *self.members]
            widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
            lines += [single, _MEMBERS_HEADING]
            lines += ["  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        lines += [single, _DIRECTIONS_HEADING]
        for line in self.directions:
            lines += _wrap("  ", line)
        lines += [single, _IMPORTANCES_HEADING]
        longest = max(len(name) for name, _ in self.importances)
        largest = max(share for _, share in self.importances[:_MAX_COLUMNS]) or 1.0
        for place, (name, share) in enumerate(self.importances):
            # If there are more than ten columns, the last entry is the sum over all columns that are not shown. It has
            # no bar.
            bar = "#" * round((_WIDTH - longest - 12) * share / largest) if place < _MAX_COLUMNS else ""
            lines.append(f"  {name:<{longest}}  {share:6.3f}  {bar}".rstrip())
        lines.append(single)
        for note in self.notes:
            lines += _wrap("", note)
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        def table(rows: Iterable[tuple[str, str]]) -> str:
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
            + self._members_html()
            + f"<p>{_DIRECTIONS_HEADING}</p>"
            + f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in self.directions)}</ul>"
            + f"<p>{_IMPORTANCES_HEADING}</p>{table(bars)}"
            + "".join(f"<p>{escape(note)}</p>" for note in self.notes)
            + "</div>"
        )

    def _members_html(self) -> str:
        if not self.members:
            return ""
        head = "".join(f"<th>{name}</th>" for name in MEMBER_COLUMNS)
        body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in self.members)
        return f"<p>{_MEMBERS_HEADING}</p><table><tr>{head}</tr>{body}</table>"


class SummaryMixin:
    """Mixin for fitted models that adds `summary`."""

    def summary(self, columns: list[str] | None = None) -> Summary:
        """Return a one-page description of the model: its settings, directions, feature importances and diagnostics.

        Parameters
        ----------
        columns : list of str or None, default=None
            Names of the columns. If None, the column names of the training data are used.

        Returns
        -------
        Summary
            The summary can be printed, or displayed in a notebook.

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
        return self._make_summary(columns)

    def _make_summary(self, columns: list[str] | None) -> Summary:
        return summarize(cast("MapModel", self), columns)


def summarize(model: MapModel, columns: list[str] | None) -> Summary:
    """Return the summary of a fitted regressor. `columns` defaults to the column names of the training data."""
    # A fit that was interrupted by Ctrl-C has no diagnostics.
    found: Diagnostics | None = getattr(model, "diagnostics_", None)
    n_rows = None if found is None else found.n_rows
    # If all rows are centers, identical rows were merged.
    distinct = found is not None and found.n_rows == found.n_centers
    names = _shortened(column_names(model) if columns is None else columns)
    return Summary(
        f"{type(model).__name__}: f(x) = g(Bx)",
        (*_map_facts(model, n_rows, distinct), *_fit_facts(model, found)),
        tuple(_direction_lines(model, names)),
        tuple(_largest_importances(model.feature_importances_, names)),
        tuple(_fit_notes(model, found)),
    )


def summarize_ensemble(ensemble: HyperKernelEnsemble, columns: list[str] | None) -> Summary:
    """Return the summary of a fitted ensemble, with the directions of its first member. See `summarize`."""
    found: Diagnostics | None = getattr(ensemble, "diagnostics_", None)
    members, first = ensemble.members_, ensemble.members_[0]
    names = _shortened(column_names(first) if columns is None else columns)
    several = (f"Of the first member, with weight {ensemble.weights_[0]:.3f}:",) if len(members) > 1 else ()
    return Summary(
        f"{type(ensemble).__name__}: f(x) = sum_k w_k g_k(B_k x)",
        tuple(_ensemble_facts(ensemble, found)),
        (*several, *_direction_lines(first, names)),
        tuple(_largest_importances(ensemble.feature_importances_, names)),
        tuple(_fit_notes(first, found)),
        tuple(
            (
                f"{weight:.3f}",
                *map(str, KernelAndMap.of(member)),
                "normal scores" if member.column_transform_ is not None else "values",
                f"{len(member.centers_):,}",
            )
            for weight, member in zip(ensemble.weights_, members, strict=True)
        ),
    )


def _ensemble_facts(ensemble: HyperKernelEnsemble, found: Diagnostics | None) -> Iterator[tuple[str, str]]:
    if found is not None and found.n_rows is not None:
        yield "Rows", f"{found.n_rows:,}{' distinct' if found.n_rows == found.n_centers else ''}"
    yield "Columns", f"{ensemble.n_features_in_:,}"
    yield from _target_facts(ensemble.members_[0]).items()
    if hasattr(ensemble, "noise_variance_"):
        low, *others = np.unique(np.sqrt(ensemble.noise_variance_))
        yield "Noise", f"standard deviation {low:.4g}{f' to {others[-1]:.4g}' if others else ''}"
    if found is not None:
        yield _explained(found)


def _shortened(names: list[str]) -> list[str]:
    return [truncated(name, _MAX_NAME_LENGTH) for name in names]


def _target_facts(model: MapModel) -> dict[str, str]:
    return {"Targets": f"{model.dual_coef_.shape[1]}"} if model.dual_coef_.ndim == 2 else {}


def _map_facts(model: MapModel, n_rows: int | None, distinct: bool) -> Iterator[tuple[str, str]]:
    """Yield the facts about the size of a model, its targets, its map and its kernel.

    `n_rows` is None if the number of rows is not known. `distinct` tells whether `n_rows` counts identical rows once.
    """
    d, D = len(model.map_), model.map_.shape[-1]
    shape = map_shape(model)
    if n_rows is not None:
        yield "Rows", f"{n_rows:,}{' distinct' if distinct else ''}"
    yield "Columns", f"{D:,}"
    yield "Centers", f"{len(model.centers_):,}"
    yield from _target_facts(model).items()
    is_full = shape == ShapeName.FULL
    yield "Directions", f"{d}" if is_full else f"{d} (the columns)"
    yield "Map", shape.value if is_full else f"{shape}: {shape.describe(d)}, without combining them into directions"
    if model.column_transform_ is not None:
        yield "Transform", f"normal scores of {model.column_transform_.n_scored:,} columns"
    yield "Kernel", f"{kernel_name(model.kernel_)}, gamma {model.gamma_:.4g}"


def _fit_facts(model: MapModel, found: Diagnostics | None) -> Iterator[tuple[str, str]]:
    yield "lambda", f"{model.reg_lambda_:.4g}{model._describe_lambda()}"
    yield "Criterion", f"{model.criterion}{model._describe_score()}"
    if found is None:
        return
    yield _explained(found)
    yield "Effective dimension", f"{found.effective_dimension:.1f}, the trace of the hat matrix"


def _explained(found: Diagnostics) -> tuple[str, str]:
    name = "R2, training rows"
    note = "; outliers have small weights" if found.outliers else ""
    share = found.explained_share
    if share is None:
        return name, "undefined: y is constant"
    return name, f"{share:.4f} ({100 * (1 - share):.3g}% of the variance unexplained){note}"


def _direction_lines(model: FittedMap, names: list[str]) -> Iterator[str]:
    if model.map_.ndim == 1 or map_shape(model) != ShapeName.FULL:
        yield "None: the map does not mix columns. See the feature importances."
        return
    table, weight = loadings(model), direction_weights(model)
    for k in range(min(len(table), _MAX_DIRECTIONS)):
        order = largest_loadings(table[k], _MAX_LOADINGS)
        share = float(np.sum(table[k, order] ** 2))
        terms = "  ".join(f"{table[k, j]:+.2f} {names[j]}" for j in order)
        rest = "" if len(names) <= _MAX_LOADINGS else f"  ({100 * share:.0f}%)"
        yield f"{k + 1}  weight {weight[k]:.2f}:  {terms or 'zero'}{rest}"
    if len(table) > _MAX_DIRECTIONS:
        largest = float(np.max(weight[_MAX_DIRECTIONS:]))
        yield f"and {len(table) - _MAX_DIRECTIONS} more, with weights up to {largest:.2g}"


def _largest_importances(importances: Array, names: list[str]) -> Iterator[tuple[str, float]]:
    order = np.argsort(-importances, kind="stable")
    for j in order[:_MAX_COLUMNS]:
        yield names[j], float(importances[j])
    rest = order[_MAX_COLUMNS:]
    if len(rest):
        yield f"{len(rest)} other{'s' if len(rest) > 1 else ''}", float(np.sum(importances[rest]))


def _fit_notes(model: MapModel, found: Diagnostics | None) -> Iterator[str]:
    """Yield why a fit stopped, and the problems that its diagnostics found."""
    result = model.result_
    # The message is added only if it says more than the reason, as after a search.
    message = "" if result.message == MESSAGES.get(result.reason) else f" ({result.message})"
    reason = STOP_REASONS.get(result.reason, "see result_.message")
    iterations = "1 iteration" if model.n_iter_ == 1 else f"{model.n_iter_} iterations"
    yield f"Stopped after {iterations}: {result.reason}, {reason}{message}."
    if found is None:
        yield (
            "No diagnostics: this is a member of an ensemble, its fit was interrupted, or it was saved by an earlier "
            "version of hkrr."
        )
        return
    if found.n_outliers:
        yield f"Heavy-tailed (Student-t) noise model, because the targets have outliers: {found.named_outliers}."
    for _, message in found.findings():
        yield f"! {message}"


def _wrap(head: str, text: str) -> list[str]:
    indent = " " * (len(head) if head.strip() else len(head) + 4)
    return textwrap.wrap(text, _WIDTH, initial_indent=head, subsequent_indent=indent, break_on_hyphens=False)
