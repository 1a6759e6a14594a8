"""What was learned, second half: the function g of the directions, as curves and as surfaces, with the rows.

A curve is g along one direction, a surface g over two, the others held at their medians. A dot is a row, at the height
of the curve (or surface) there plus the row's error: with one direction (or two) that is its target. Directions are
measured in standard deviations from the mean of the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.spatial import cKDTree

from hkrr._arrays import Array
from hkrr.reporting.directions import Directions, sample
from hkrr.reporting.subject import Subject

_MOST_CURVES = 4
_CURVE, _GRID = 201, 33  # points of a curve, and of a side of a surface
_DOTS = 300
_NEAR, _FAR = 0.35, 0.75  # standard deviations to the nearest row, beyond which a surface is more and more a guess
_TAIL = 0.5  # per cent of the rows beyond each end of a picture


@dataclass(frozen=True)
class Curve:
    """g along one direction."""

    direction: int
    at: list[float]
    value: list[float]
    dots_at: list[float]
    dots_value: list[float]


@dataclass(frozen=True)
class Surface:
    """g over two directions: value[i][j] is that at (across[i], along[j])."""

    directions: tuple[int, int]
    across: list[float]
    along: list[float]
    value: list[list[float]]
    near: list[list[float]]  # 1 where there are rows near, 0 where a value is a guess
    dots: list[tuple[float, float, float]]


@dataclass(frozen=True)
class Link:
    """The function, in pictures."""

    curves: list[Curve]
    surfaces: list[Surface]
    n_dots: int
    n_held: int  # directions held at their medians in a surface, or in a curve where there are no surfaces


def link_values(subject: Subject, Z: Array) -> Array:
    """Return g at latent points, in the coordinates of ``transform``."""
    model = subject.model
    offset = model.x_offset_ @ model.components_.T
    C = model.centers_ @ model.components_.T - offset
    predicted = model._cut(model.kernel_(Z - offset, C) @ model.dual_coef_ + model.intercept_)
    return np.asarray(predicted.reshape(len(Z), -1)[:, subject.target_index])


def describe_link(subject: Subject, found: Directions) -> Link:
    """Return the pictures of g over the directions that move it most."""
    Z = subject.X @ subject.model.components_.T
    mean, spread = Z.mean(axis=0), Z.std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    T = (Z - mean) / spread
    middle = np.median(T, axis=0)
    rows = sample(len(T), _DOTS)
    errors = (subject.y - subject.predicted)[rows]
    shares = {each.number - 1: each.share for each in found.directions}
    chosen = sorted(shares, key=lambda k: -shares[k])[:_MOST_CURVES]
    pairs = sorted(combinations(sorted(chosen), 2), key=lambda pair: -shares[pair[0]] - shares[pair[1]])

    def at(places: tuple[int, ...], values: Array) -> Array:
        """Return g where these directions have these values, and the others their medians."""
        points = np.tile(middle, (len(values), 1))
        points[:, places] = values
        return link_values(subject, mean + spread * points)

    def curve(k: int) -> Curve:
        line = _range(T[:, k], _CURVE)
        dots = T[rows, k]
        heights = at((k,), dots[:, None]) + errors
        return Curve(k + 1, _round(line), _round(at((k,), line[:, None])), _round(dots), _round(heights))

    def surface(i: int, j: int) -> Surface:
        across, along = _range(T[:, i], _GRID), _range(T[:, j], _GRID)
        nodes = np.stack(np.meshgrid(across, along, indexing="ij"), axis=-1).reshape(-1, 2)
        distance, _ = cKDTree(T[:, [i, j]]).query(nodes)
        dots = T[np.ix_(rows, [i, j])]
        heights = at((i, j), dots) + errors
        return Surface(
            directions=(i + 1, j + 1),
            across=_round(across),
            along=_round(along),
            value=[_round(line) for line in at((i, j), nodes).reshape(_GRID, _GRID)],
            near=np.clip((_FAR - distance) / (_FAR - _NEAR), 0.0, 1.0).round(2).reshape(_GRID, _GRID).tolist(),
            dots=list(zip(_round(dots[:, 0]), _round(dots[:, 1]), _round(heights), strict=True)),
        )

    return Link(
        curves=[curve(k) for k in chosen],
        surfaces=[surface(i, j) for i, j in pairs],
        n_dots=len(rows),
        n_held=max(0, T.shape[1] - min(2, len(chosen))),
    )


def _range(values: Array, n_points: int) -> Array:
    """Return an even grid over nearly all of the values."""
    low, high = np.percentile(values, [_TAIL, 100.0 - _TAIL])
    room = 0.03 * (high - low) if high > low else 1.0
    return np.linspace(low - room, high + room, n_points)


def _round(values: Array) -> list[float]:
    """Return five digits of each: more than a picture has."""
    return [float(f"{value:.5g}") for value in np.asarray(values).tolist()]
