"""Contents of the section on the learned function g: curves and surfaces, with the rows.

A curve shows g along one direction, and a surface shows g over two directions. All other directions are fixed at their
medians. A dot is a row. Its height is the value of the curve or surface at that row plus the row's prediction error. If
no direction is fixed, this height is the target. For an ensemble, g and the errors are those of its first member.
Coordinates along a direction are standardized: they are measured from the mean over the rows, in standard deviations.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.spatial import cKDTree

from hkrr._base.linear_algebra import Array, project
from hkrr.estimators.fitted.fitted_attributes import transformed_columns
from hkrr.reporting.directions import Directions
from hkrr.reporting.report_input import RegressionInput, sample_indices

# Maximum number of directions with a curve. There is a surface for each pair of these directions.
_MOST_CURVES = 4
# Number of grid points of a curve, and along each side of a surface.
_N_CURVE, _N_SIDE = 201, 33
# Maximum number of rows that are drawn as dots.
_DOTS = 300
# Distances to the nearest row, in standard deviations. A surface has its full colours below the first distance and its
# palest colours above the second. In between, it fades.
NEAR, FAR = 0.35, 0.75
# Percentage of the rows, at each end of a direction, that the grid need not cover.
_TAIL = 0.5


@dataclass(frozen=True)
class Curve:
    """The function g along one direction: ``value[i]`` is its value at ``at[i]``.

    Dot k shows a row. Its position along the direction is ``dots_at[k]``, and its height is ``dots_value[k]``.
    """

    direction: int  # counted from 1
    at: list[float]
    value: list[float]
    dots_at: list[float]
    dots_value: list[float]


@dataclass(frozen=True)
class Surface:
    """The function g over two directions: ``value[i][j]`` is its value at ``(across[i], along[j])``.

    A dot shows a row. It consists of the coordinates of the row along the two directions, and the height of the dot.
    """

    directions: tuple[int, int]  # counted from 1
    across: list[float]
    along: list[float]
    value: list[list[float]]
    near: list[list[float]]  # 1 close to the rows, 0 far from all rows, where the value is extrapolated
    dots: list[tuple[float, float, float]]


@dataclass(frozen=True)
class Link:
    """The learned function g as curves over one direction and surfaces over two directions."""

    curves: list[Curve]
    surfaces: list[Surface]
    # Number of directions that are fixed at their medians in a surface, or in a curve if there are no surfaces.
    n_held: int


def link_values(data: RegressionInput, Z: Array) -> Array:
    """Return the prediction g(z) for each row z of Z, in the coordinates of the model's method ``transform``."""
    return data.model.predict_latent(Z).reshape(len(Z), -1)[:, data.target_index]


def describe_link(data: RegressionInput, found: Directions) -> Link:
    """Return the curves and surfaces of g over the directions that change the prediction most."""
    Z = project(transformed_columns(data.model, data.X), data.model.map_)
    mean, spread = Z.mean(axis=0), Z.std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    T = (Z - mean) / spread
    medians = np.median(T, axis=0)
    rows = sample_indices(len(T), _DOTS)
    errors = data.y[rows] - link_values(data, Z[rows])
    shares = {each.number - 1: each.share for each in found.directions}
    chosen = sorted(shares, key=lambda k: -shares[k])[:_MOST_CURVES]
    pairs = sorted(combinations(sorted(chosen), 2), key=lambda pair: -shares[pair[0]] - shares[pair[1]])

    def at(directions: tuple[int, ...], values: Array) -> Array:
        """Return g at the given coordinates along `directions`, with all other directions at their medians."""
        points = np.tile(medians, (len(values), 1))
        points[:, directions] = values
        return link_values(data, mean + spread * points)

    def curve(k: int) -> Curve:
        line = grid(T[:, k], _N_CURVE)
        dots = T[rows, k]
        heights = at((k,), dots[:, None]) + errors
        return Curve(k + 1, rounded(line), rounded(at((k,), line[:, None])), rounded(dots), rounded(heights))

    def surface(i: int, j: int) -> Surface:
        across, along = grid(T[:, i], _N_SIDE), grid(T[:, j], _N_SIDE)
        nodes = np.stack(np.meshgrid(across, along, indexing="ij"), axis=-1).reshape(-1, 2)
        distance, _ = cKDTree(T[:, [i, j]]).query(nodes)
        dots = T[np.ix_(rows, [i, j])]
        heights = at((i, j), dots) + errors
        return Surface(
            directions=(i + 1, j + 1),
            across=rounded(across),
            along=rounded(along),
            value=[rounded(line) for line in at((i, j), nodes).reshape(_N_SIDE, _N_SIDE)],
            near=np.clip((FAR - distance) / (FAR - NEAR), 0.0, 1.0).round(2).reshape(_N_SIDE, _N_SIDE).tolist(),
            dots=list(zip(rounded(dots[:, 0]), rounded(dots[:, 1]), rounded(heights), strict=True)),
        )

    return Link(
        curves=[curve(k) for k in chosen],
        surfaces=[surface(i, j) for i, j in pairs],
        n_held=max(0, T.shape[1] - min(2, len(chosen))),
    )


def grid(values: Array, n_points: int) -> Array:
    """Return an evenly spaced grid that covers the values without their tails, with a small margin."""
    low, high = np.percentile(values, [_TAIL, 100.0 - _TAIL])
    margin = 0.03 * (high - low) if high > low else 1.0
    return np.linspace(low - margin, high + margin, n_points)


def rounded(values: Array) -> list[float]:
    """Return the values rounded to five significant digits. A chart cannot show more."""
    return [float(f"{value:.5g}") for value in np.asarray(values).tolist()]
