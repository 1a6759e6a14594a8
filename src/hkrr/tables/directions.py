"""The directions of a fitted map in the names of the columns, by how much each column moves them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hkrr.importance import scaled_map
from hkrr.tables.regressor import TableRegressor


@dataclass(frozen=True)
class Direction:
    """A direction: how much it weighs beside the first, and the columns that matter most in it, with their signs.

    A loading is the change of the latent coordinate when the column moves by its standard deviation, in units of the
    largest one; the sign of a whole direction means nothing, so its first loading is positive.
    """

    weight: float
    columns: tuple[str, ...]
    loadings: tuple[float, ...]
    n_more: int  # columns that are not listed

    def __str__(self) -> str:
        terms = [f"{value:+.2f} {name}" for name, value in zip(self.columns, self.loadings, strict=True)]
        return "  ".join([*terms, *([f"and {self.n_more} more"] if self.n_more else [])])


def directions(model: Any, names: Any = None, most: int = 5, least: float = 0.1) -> list[Direction]:
    """Return the directions of a fitted map, the heaviest first.

    With S the standard deviations of the columns (of the model's centers, which are training rows) the map in units
    that compare is B S. Where rotations of the latent coordinates change nothing, and the map is not diagonal, its
    directions are the right singular vectors of B S, each as heavy as its singular value; otherwise they are its rows.

    Parameters
    ----------
    model : TableRegressor, HyperKernelRidge or HyperKernelRidgeCV, fitted
    names : sequence of str or None, default=None
        Names of the columns; None for the model's own, or x0, x1, ...
    most : int, default=5
        Columns that are listed of a direction, at most.
    least : float, default=0.1
        Loading below which a column is not listed.

    Returns
    -------
    list of Direction

    Examples
    --------
    >>> from hkrr import HyperKernelRidge
    >>> from hkrr.datasets import make_mim_sines
    >>> from hkrr.tables import directions
    >>> data = make_mim_sines(200, n_features=4, n_components=1, random_state=0)
    >>> model = HyperKernelRidge(1, random_state=0).fit(data.X, data.y)
    >>> (found,) = directions(model, ["a", "b", "c", "d"], most=2)
    >>> found.weight, found.loadings[0], found.n_more
    (1.0, 1.0, 2)
    """
    if isinstance(model, TableRegressor):
        names = model.feature_names_out_ if names is None else names
        model = model.model_
    B = model.components_
    if names is None:
        names = getattr(model, "feature_names_in_", [f"x{k}" for k in range(B.shape[1])])
    scaled = scaled_map(model)
    rows = np.linalg.norm(scaled, axis=1)
    if model.kernel_.rotation_invariant and getattr(model, "map_shape_", "full") == "full":
        _, rows, Vt = np.linalg.svd(scaled, full_matrices=False)
        scaled = rows[:, None] * Vt
    heaviest = float(np.max(rows))
    found = []
    for k in np.argsort(-rows, kind="stable"):
        if rows[k] == 0.0:
            continue
        loadings = scaled[k] / scaled[k, np.argmax(np.abs(scaled[k]))]
        order = [j for j in np.argsort(-np.abs(loadings), kind="stable") if abs(loadings[j]) >= least]
        listed = order[:most]
        found.append(
            Direction(
                float(rows[k] / heaviest),
                tuple(str(names[j]) for j in listed),
                tuple(float(loadings[j]) for j in listed),
                int(np.count_nonzero(loadings)) - len(listed),
            )
        )
    return found
