"""Description of the directions of a fitted map by column names and loadings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.base import BaseEstimator

from hkrr.estimators.fitted.importance import direction_weights, largest_loadings, loadings
from hkrr.tables.inner_models import unwrap_model


@dataclass(frozen=True)
class Direction:
    """One direction of a fitted map: its weight and its largest loadings.

    The loading of a column is the change of the coordinate along the direction when the column increases by one
    standard deviation. The scale and the sign of a direction are arbitrary. The loadings are therefore divided by the
    loading with the largest absolute value, so that the first loading is 1.

    Attributes
    ----------
    weight : float
        Weight of the direction, as defined in `directions`. The largest weight of a model is 1.
    columns : tuple of str
        Columns with the largest absolute loadings, in decreasing order.
    loadings : tuple of float
        Loadings of these columns, with signs.
    n_more : int
        Number of columns with a nonzero loading that are not listed in `columns`.
    """

    weight: float
    columns: tuple[str, ...]
    loadings: tuple[float, ...]
    n_more: int

    def __str__(self) -> str:
        terms = [f"{value:+.2f} {name}" for name, value in zip(self.columns, self.loadings, strict=True)]
        return "  ".join([*terms, *([f"and {self.n_more} more"] if self.n_more else [])])


def directions(
    model: BaseEstimator, names: Sequence[str] | None = None, most: int = 5, least: float = 0.1
) -> list[Direction]:
    """Return the directions of a fitted map in decreasing order of weight.

    The directions are the rows of B S, where B is the map and S is the diagonal matrix of the standard deviations of
    the columns over the model's centers. For rotation-invariant kernels such as the Gaussian, the weights are the
    model's ``singular_values_``. For other kernels, the weights are the norms of the rows of B S, divided by the
    largest norm. Directions whose loadings are all 0 are omitted.

    Parameters
    ----------
    model : estimator
        A fitted HyperKernelRidge, HyperKernelRidgeCV, HyperKernelEnsemble, HyperKernelClassifier, TableRegressor or
        TableClassifier. For an ensemble or a classifier, the directions of its first member are returned.
    names : sequence of str or None, default=None
        Names of the columns. None uses the column names of the fit, or x0, x1, ... if the model was fitted without
        names.
    most : int, default=5
        Maximum number of columns to list for each direction.
    least : float, default=0.1
        Smallest absolute loading to list. Columns with smaller loadings are only counted in `n_more`.

    Returns
    -------
    list of Direction

    Examples
    --------
    >>> from hkrr import HyperKernelRidge
    >>> from hkrr.datasets import make_mim_sines
    >>> from hkrr.tables import directions
    >>> data = make_mim_sines(200, n_features=4, n_components=2, random_state=0)
    >>> model = HyperKernelRidge(2, random_state=0).fit(data.X, data.y)
    >>> first, second = directions(model, ["a", "b", "c", "d"], most=2)
    >>> first.weight, first.loadings[0], first.n_more
    (1.0, 1.0, 2)
    """
    inner = unwrap_model(model)
    names = inner.column_names if names is None else names
    all_loadings, all_weights = loadings(inner.first), direction_weights(inner.first)
    order = np.argsort(-all_weights, kind="stable")
    if all_loadings.ndim == 1:  # a diagonal map: each direction is a single column
        return [Direction(float(all_weights[k]), (str(names[k]),), (1.0,), 0) for k in order if all_loadings[k] != 0]
    result = []
    for k in order:
        row = all_loadings[k]
        largest = row[np.argmax(np.abs(row))]
        if largest == 0.0:
            continue
        row = row / largest
        listed = [j for j in largest_loadings(row, most) if abs(row[j]) >= least]
        result.append(
            Direction(
                weight=float(all_weights[k]),
                columns=tuple(str(names[j]) for j in listed),
                loadings=tuple(float(row[j]) for j in listed),
                n_more=int(np.count_nonzero(row)) - len(listed),
            )
        )
    return result
