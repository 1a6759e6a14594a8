"""What was learned, first half: the directions, the columns they are made of, and how far each moves the prediction.

With ``z = Bx`` and the gradient of g at every row, the average gradient outer product of g, its diagonal scaled to
standard deviations, says how far the prediction moves along each direction; pulled back by B, along each column:

    ``sqrt( mean_i (dg/dz_k)(z_i)^2 ) std(z_k)``  and  ``sqrt( mean_i (B' grad g(z_i))_j^2 ) std(x_j)``

The latter are the model's own importances, of this target; a direction that is a column moves it as the column does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hkrr._arrays import Array
from hkrr.importance import importances, loadings
from hkrr.importance import weights as weights_of
from hkrr.reporting.subject import Subject

MOST_DIRECTIONS = 6
MOST_LOADINGS = 40
_GRADIENT_ROWS = 1000


@dataclass(frozen=True)
class Loading:
    """What one column has in a direction: for one standard deviation of it, the directions' own scale apart."""

    column: str
    weight: float


@dataclass(frozen=True)
class Direction:
    """A row of B."""

    number: int  # its row of B, from 1
    singular_value: float
    share: float  # of the moves along all directions
    loadings: list[Loading]  # the largest first; squares of all loadings sum to 1
    n_left_out: int
    left_out: float  # the share of those squares


@dataclass(frozen=True)
class Directions:
    """The directions that move the prediction most, and the columns."""

    n_components: int
    n_columns: int
    shape: str  # "full", "diagonal" or "identity"
    directions: list[Direction]
    importances: list[Loading]  # of columns, the largest first; they sum to 1
    named: list[Loading]  # the same by columns of the table as given: of several made from one, the largest
    n_columns_left_out: int


def sample(n_rows: int, most: int) -> Array:
    """Return the places of at most that many rows, the same in every report."""
    if n_rows <= most:
        return np.arange(n_rows)
    return np.sort(np.random.default_rng(0).choice(n_rows, most, replace=False))


def latent_gradients(subject: Subject, X: Array) -> Array:
    """Return the gradient of g at ``Bx`` for every row of X."""
    model = subject.model
    P = (X - model.x_offset_) @ model.components_.T
    C = (model.centers_ - model.x_offset_) @ model.components_.T
    alpha = model.dual_coef_.reshape(len(C), -1)[:, [subject.target_index]]
    return np.asarray(model.kernel_.vjp_low_rank(P, C)[1](np.ones((len(P), 1)), alpha)[0])


def describe_directions(subject: Subject) -> Directions:
    """Return what the map is made of."""
    model, B = subject.model, subject.model.components_
    X = subject.X[sample(len(subject.X), _GRADIENT_ROWS)]
    gradients = latent_gradients(subject, X)
    along = np.sqrt(np.mean(gradients**2, axis=0)) * (subject.X @ B.T).std(axis=0)
    by_column = importances(model, subject.target_index)
    if np.all(np.sum(B != 0, axis=1) <= 1):
        along = (B != 0) @ by_column
    shares = _shares(along)
    order = np.argsort(-shares, kind="stable")[:MOST_DIRECTIONS]
    ranking = [Loading(subject.columns[j], float(by_column[j])) for j in np.argsort(-by_column, kind="stable")]
    return Directions(
        n_components=len(B),
        n_columns=B.shape[1],
        shape=getattr(model, "map_shape_", "full"),
        directions=[_direction(subject, int(k), float(shares[k])) for k in np.sort(order)],
        importances=ranking[:MOST_LOADINGS],
        named=_by_origin(ranking, subject.shown_columns)[:MOST_LOADINGS],
        n_columns_left_out=max(0, len(ranking) - MOST_LOADINGS),
    )


def _direction(subject: Subject, k: int, share: float) -> Direction:
    weights = loadings(subject.model)[k]
    order = [j for j in np.argsort(-np.abs(weights), kind="stable") if weights[j] != 0]
    shown, rest = order[:MOST_LOADINGS], order[MOST_LOADINGS:]
    return Direction(
        number=k + 1,
        singular_value=float(weights_of(subject.model)[k]),
        share=share,
        loadings=[Loading(subject.columns[j], float(weights[j])) for j in shown],
        n_left_out=len(rest),
        left_out=float(np.sum(weights[rest] ** 2)),
    )


def _by_origin(ranking: list[Loading], columns: list[str]) -> list[Loading]:
    """Return the largest of each column of the table: one of text became several, such as "colour=red"."""
    known, largest = set(columns), dict[str, float]()
    for each in ranking:
        origin = each.column if each.column in known else each.column.rsplit("=", 1)[0]
        largest.setdefault(origin, each.weight)
    return [Loading(name, weight) for name, weight in largest.items()]


def _shares(moves: Array) -> Array:
    total = float(np.sum(moves))
    return moves / total if total > 0 else np.zeros_like(moves)
