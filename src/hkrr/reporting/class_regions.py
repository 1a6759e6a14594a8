"""Contents of the section on the class probabilities over the directions of the first member.

The probabilities are those of a classifier whose only member is the first one, with the weights of all members. A map
with one direction gives curves, and a map with several directions gives regions over the two directions that change the
scores most. All other directions are fixed at their medians. Coordinates are standardized as in
`hkrr.reporting.link_function`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

from hkrr._base.linear_algebra import project
from hkrr._maps import ShapeName
from hkrr.estimators.classification.classifier import latent_probabilities
from hkrr.estimators.fitted.fitted_attributes import transformed_columns
from hkrr.reporting.class_input import ClassInput
from hkrr.reporting.directions import Directions
from hkrr.reporting.link_function import FAR, NEAR, grid, rounded
from hkrr.reporting.report_input import sample_indices

# Number of grid points of a curve, and along each side of the regions.
_N_CURVE, _N_SIDE = 201, 101
# Maximum number of rows that are drawn as dots.
_DOTS = 500


@dataclass(frozen=True)
class ClassCurves:
    """The probability of each class along one direction: ``probability[k][i]`` is that of class k at ``at[i]``.

    Dot i is a row. Its position along the direction is ``dots_at[i]``, and its class is ``dots_class[i]``.
    """

    direction: int  # counted from 1
    at: list[float]
    probability: list[list[float]]
    dots_at: list[float]
    dots_class: list[int]


@dataclass(frozen=True)
class ClassRegions:
    """The most probable class over two directions: ``most_probable[i][j]`` at ``(across[i], along[j])``.

    A dot is a row. It consists of the coordinates of the row along the two directions, and its class.
    """

    directions: tuple[int, int]  # counted from 1
    across: list[float]
    along: list[float]
    most_probable: list[list[int]]
    probability: list[list[float]]  # of the most probable class
    is_near: list[list[bool]]  # whether there is a row close to the point; otherwise, the value is extrapolated
    dots: list[tuple[float, float, int]]
    n_held: int  # number of directions that are fixed at their medians


def describe_regions(data: ClassInput, found: Directions) -> ClassCurves | ClassRegions | None:
    """Return the class probabilities over the directions, or None if the first member has no map of few directions."""
    if found.shape != ShapeName.FULL:
        return None
    Z = project(transformed_columns(data.model, data.X), data.model.map_)
    mean, spread = Z.mean(axis=0), Z.std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    T = (Z - mean) / spread
    rows = sample_indices(len(T), _DOTS)
    dots_class = data.index[rows].tolist()
    if T.shape[1] == 1:
        at = grid(T[:, 0], _N_CURVE)
        p = latent_probabilities(data.whole, mean + spread * at[:, None])
        return ClassCurves(1, rounded(at), [rounded(column) for column in p.T], rounded(T[rows, 0]), dots_class)
    largest = sorted(found.directions, key=lambda each: -each.share)[:2]
    i, j = sorted(each.number - 1 for each in largest)
    across, along = grid(T[:, i], _N_SIDE), grid(T[:, j], _N_SIDE)
    nodes = np.stack(np.meshgrid(across, along, indexing="ij"), axis=-1).reshape(-1, 2)
    points = np.tile(np.median(T, axis=0), (len(nodes), 1))
    points[:, [i, j]] = nodes
    p = latent_probabilities(data.whole, mean + spread * points)
    distance, _ = cKDTree(T[:, [i, j]]).query(nodes)
    shape = (_N_SIDE, _N_SIDE)
    return ClassRegions(
        directions=(i + 1, j + 1),
        across=rounded(across),
        along=rounded(along),
        most_probable=np.argmax(p, axis=1).reshape(shape).tolist(),
        probability=np.max(p, axis=1).round(4).reshape(shape).tolist(),
        is_near=(distance <= (NEAR + FAR) / 2).reshape(shape).tolist(),
        dots=list(zip(rounded(T[rows, i]), rounded(T[rows, j]), dots_class, strict=True)),
        n_held=T.shape[1] - 2,
    )
