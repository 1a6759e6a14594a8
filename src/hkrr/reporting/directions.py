"""Contents of the section on columns and directions: their loadings, and their effects on the prediction.

The model is ``f(x) = g(z)`` with ``z = Bx``. The effect of direction k is the root mean square derivative of g with
respect to ``z_k``, times the standard deviation of ``z_k`` over the rows of the report:

    ``sqrt( mean_i (dg/dz_k)(z_i)^2 ) std(z_k)``

For the scores of classes, the squares are summed over the classes. The effect of column j is its importance for the
target of the report, as in `hkrr.estimators.fitted.importance`. If
every direction uses a single column, the effect of a direction is the importance of its column.

For an ensemble, the directions are those of its first member. The importances of the columns are averaged over the
members with their weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hkrr._base.linear_algebra import project
from hkrr._maps import ShapeName, map_row
from hkrr.estimators.fitted.fitted_attributes import KernelAndMap, map_shape, transformed_columns
from hkrr.estimators.fitted.importance import (
    direction_weights,
    has_single_columns,
    importances,
    largest_loadings,
    loadings,
    mean_slopes,
    single_column_effects,
)
from hkrr.reporting.report_input import ReportInput, sample_indices

# Maximum number of directions in a report.
MOST_DIRECTIONS = 6
# Maximum number of loadings of a direction in a report, and maximum number of importances.
MOST_LOADINGS = 40
# Maximum number of rows over which the squared derivatives of g are averaged.
_GRADIENT_ROWS = 1000


@dataclass(frozen=True)
class Loading:
    """The name of a column, with its loading or its importance.

    The loading of a column in a direction is the coefficient of the standardized column.
    """

    column: str
    weight: float  # the loading or the importance


@dataclass(frozen=True)
class ReportedDirection:
    """A direction of the model: a row of the map B."""

    number: int  # row of B, counted from 1
    singular_value: float  # weight of the direction; the largest weight of all directions is 1
    share: float  # effect on the prediction, as a fraction of the sum over all directions
    # The largest nonzero loadings in decreasing order of absolute value. The squares of all loadings sum to 1.
    loadings: list[Loading]
    n_left_out: int  # number of columns with a nonzero loading that are not in `loadings`
    left_out: float  # sum of the squared loadings of the columns that are not in `loadings`


@dataclass(frozen=True)
class Directions:
    """The directions that change the prediction most, and the importances of the columns."""

    n_components: int
    n_columns: int
    shape: ShapeName
    directions: list[ReportedDirection]
    # The largest importances of the model's columns, in decreasing order. The importances of all columns sum to 1.
    importances: list[Loading]
    # The largest importances of the table's columns. The importance of a table column is the largest importance of the
    # model's columns that encode it.
    table_importances: list[Loading]
    n_columns_left_out: int  # number of the model's columns that are not in `importances`
    # The weight, the kernel and the map of each member of an ensemble. Empty for a single model.
    members: list[tuple[float, KernelAndMap]]

    @property
    def of_ensemble(self) -> bool:
        """Whether there are several members. If so, the directions are those of the first member."""
        return len(self.members) > 1


def describe_directions(data: ReportInput) -> Directions:
    """Return the directions of the model and the importances of its columns."""
    model, B, target = data.model, data.model.map_, data.target_index
    rows = transformed_columns(model, data.X[sample_indices(len(data.X), _GRADIENT_ROWS)])
    effects = mean_slopes(model, rows, target) * project(transformed_columns(model, data.X), B).std(axis=0)
    by_column = importances(model, target)
    if has_single_columns(model):
        effects = single_column_effects(model, by_column)
    members: list[tuple[float, KernelAndMap]] = []
    if data.ensemble is not None:
        pairs = list(zip(data.ensemble.weights_, data.ensemble.members_, strict=True))
        parts = zip(data.ensemble.shares, data.ensemble.members_, strict=True)
        by_column = sum(share * importances(member, target) for share, member in parts)
        members = [(float(w), KernelAndMap.of(m)) for w, m in pairs]
    total = float(np.sum(effects))
    shares = effects / total if total > 0 else np.zeros_like(effects)
    order = np.argsort(-shares, kind="stable")[:MOST_DIRECTIONS]
    ranked = np.argsort(-by_column, kind="stable")
    by_table_column: dict[str, float] = {}  # the largest importance of the columns that encode a table column
    for j in ranked:
        by_table_column.setdefault(data.origins[j], float(by_column[j]))
    return Directions(
        n_components=len(B),
        n_columns=B.shape[-1],
        shape=map_shape(model),
        directions=[_direction(data, int(k), float(shares[k])) for k in np.sort(order)],
        importances=[Loading(data.columns[j], float(by_column[j])) for j in ranked[:MOST_LOADINGS]],
        table_importances=[Loading(name, largest) for name, largest in by_table_column.items()][:MOST_LOADINGS],
        n_columns_left_out=max(0, len(ranked) - MOST_LOADINGS),
        members=members,
    )


def _direction(data: ReportInput, k: int, share: float) -> ReportedDirection:
    weights = map_row(loadings(data.model), k)
    order = largest_loadings(weights)
    shown, rest = order[:MOST_LOADINGS], order[MOST_LOADINGS:]
    return ReportedDirection(
        number=k + 1,
        singular_value=float(direction_weights(data.model)[k]),
        share=share,
        loadings=[Loading(data.columns[j], float(weights[j])) for j in shown],
        n_left_out=len(rest),
        left_out=float(np.sum(weights[rest] ** 2)),
    )
