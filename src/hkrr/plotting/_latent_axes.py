"""The latent coordinates as axes: which of them, in what units, and the rows of X that lie at them."""

from __future__ import annotations

from typing import Any

import numpy as np

from hkrr._arrays import Array
from hkrr._validation import check_int
from hkrr.importance import direction_moves, loadings, spreads
from hkrr.plotting._style import short


def chosen_directions(model: Any, latent: Array, directions: tuple[int, ...] | None) -> list[int]:
    """Return the directions that are drawn, from 0: those given, or the two that move predictions most."""
    d = latent.shape[1]
    if directions is None:
        if d <= 2:
            return list(range(d))
        moves = direction_moves(model, np.std(latent, axis=0))
        return sorted(np.argsort(-moves, kind="stable")[:2].tolist())
    chosen = [check_int("directions", k, 0) for k in np.atleast_1d(np.asarray(directions, dtype=object)).tolist()]
    if len(chosen) not in (1, 2) or len(set(chosen)) < len(chosen) or max(chosen) >= d:
        raise ValueError(f"directions must be one or two different numbers from 0 to {d - 1}, got {directions!r}")
    return chosen


def direction_axis(model: Any, names: list[str], k: int) -> tuple[float, str]:
    """Return the unit of a direction and its label: of a single column those of the column."""
    table = loadings(model)[k]
    used = np.flatnonzero(model.components_[k])
    if len(used) == 1:
        return float(model.components_[k, used[0]]), short(names[used[0]])
    order = np.argsort(-np.abs(table), kind="stable")[: min(3, len(used))]
    terms = " ".join(f"{'+' if table[j] >= 0 else '−'}{abs(table[j]):.2f} {short(names[j])}" for j in order)
    return 1.0, f"direction {k + 1}\n{terms}{' …' if len(used) > len(order) else ''}"


def side_of(values: Array, n: int) -> Array:
    """Return n places that range over the values."""
    low, high = float(np.min(values)), float(np.max(values))
    room = 0.02 * (high - low) or 0.5  # a single value is in the middle
    return np.linspace(low - room, high + room, n)


def rows_at(model: Any, Z: Array) -> Array:
    """Return rows x with Bx = z, the nearest to a typical one: in what else they differ no model sees."""
    B, typical = model.components_, np.median(model.centers_, axis=0)
    # The units of the columns should not decide which of them is moved.
    scale = spreads(model)
    scale = np.where(scale > 0, scale, 1.0)
    return typical + ((Z - B @ typical) @ np.linalg.pinv(B * scale).T) * scale
