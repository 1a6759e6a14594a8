"""Helper functions for plots over latent coordinates z = Bx.

The functions choose the directions to draw, label the axes, and find input rows x with given latent coordinates.
"""

from __future__ import annotations

import numpy as np

from hkrr._base.checks import check_int
from hkrr._base.linear_algebra import Array
from hkrr._maps import map_row
from hkrr.estimators.fitted.importance import column_stds, direction_effects, loadings
from hkrr.plotting._style import short
from hkrr.tables.inner_models import OneMapRegressor


def chosen_directions(model: OneMapRegressor, latent: Array, directions: tuple[int, ...] | None) -> list[int]:
    """Return the indices of the directions to draw, counted from 0.

    If `directions` is None, return the two directions that change the predictions most, or all directions if there are
    at most two.
    """
    d = latent.shape[1]
    if directions is None:
        if d <= 2:
            return list(range(d))
        effects = direction_effects(model, np.std(latent, axis=0))
        return sorted(np.argsort(-effects, kind="stable")[:2].tolist())
    chosen = [check_int("directions", k, 0) for k in np.atleast_1d(np.asarray(directions, dtype=object)).tolist()]
    if len(chosen) not in (1, 2) or len(set(chosen)) < len(chosen) or max(chosen) >= d:
        raise ValueError(f"directions must be one or two different integers from 0 to {d - 1}, got {directions!r}")
    return chosen


def direction_axis(model: OneMapRegressor, names: list[str], k: int) -> tuple[float, str]:
    """Return the divisor of the plotted coordinates along direction k, and the label of its axis.

    If the direction uses a single column, the divisor is the coefficient of this column, and the label is the name of
    the column. The axis then shows the values of the column. Otherwise the divisor is 1.
    """
    table, row = map_row(loadings(model), k), map_row(model.map_, k)
    used = np.flatnonzero(row)
    if len(used) == 1:
        is_ranked = model.column_transform_ is not None and used[0] in model.column_transform_.ranked
        return float(row[used[0]]), short(names[used[0]]) + (" (normal score)" if is_ranked else "")
    order = np.argsort(-np.abs(table), kind="stable")[: min(3, len(used))]
    terms = " ".join(f"{'+' if table[j] >= 0 else '−'}{abs(table[j]):.2f} {short(names[j])}" for j in order)
    return 1.0, f"direction {k + 1}\n{terms}{' …' if len(used) > len(order) else ''}"


def grid_side(values: Array, n: int) -> Array:
    """Return n evenly spaced points that cover the values with a small margin."""
    low, high = float(np.min(values)), float(np.max(values))
    margin = 0.02 * (high - low) or 0.5  # the margin is 0.5 if all values are equal
    return np.linspace(low - margin, high + margin, n)


def rows_at(model: OneMapRegressor, Z: Array) -> Array:
    """Return one row x with ``B x = z`` for each row z of Z.

    Many rows x have the same ``B x``. The one closest to the median of the centers, in standardized coordinates, is
    returned. This choice does not change the predictions, because the predictions depend on x only through Bx.
    """
    B, typical = model.map_, np.median(model.centers_, axis=0)
    if B.ndim == 1:
        return _original(model, np.where(B != 0, Z / np.where(B != 0, B, 1.0), typical))
    # Distances are measured in standardized coordinates, so that x does not depend on the units of the columns.
    scale = column_stds(model)
    scale = np.where(scale > 0, scale, 1.0)
    return _original(model, typical + ((Z - B @ typical) @ np.linalg.pinv(B * scale).T) * scale)


def _original(model: OneMapRegressor, rows: Array) -> Array:
    """Return rows in the original units of X, given rows in the units of the centers."""
    return rows if model.column_transform_ is None else model.column_transform_.inverse(rows)
