"""OPG and MAVE: the subspace from local linear fits.

At anchor rows j a line is fitted to the target with weights ``w_ij = exp(-|P (z_i - z_j)|^2 / (2 h^2))``; its slopes
are gradients of the regression function, and lie in the rows of B. P is the identity at first, and the map found so far
from then on, so that neighbours become near in what matters (the refined versions of Xia and others, 2002).

The local fits have a ridge of a thousandth of the mean variance of their neighbourhood, as in many dimensions an anchor
has fewer neighbours than slopes; rows with less than 1e-12 of the largest weight are left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.utils import check_random_state

from hkrr._arrays import Array
from hkrr._validation import check_int
from hkrr.baselines._subspace import SubspaceEstimator

# Ridge of the local fits, relative to the mean variance of the neighbourhood.
_RIDGE = 1e-3


class _LocalLinear(SubspaceEstimator):
    """What both have: parameters, and their checks."""

    _least_iter = 0

    def __init__(
        self, n_components: int = 2, *, n_iter: int = 10, n_anchors: int = 500, random_state: Any = None
    ) -> None:
        self.n_components, self.n_iter, self.n_anchors = n_components, n_iter, n_anchors
        self.random_state = random_state

    def _check(self) -> None:
        check_int("n_iter", self.n_iter, self._least_iter)
        check_int("n_anchors", self.n_anchors, self.n_components)


class OPG(_LocalLinear):
    """Outer product of gradients: ``M = (1/n) sum_j b_j b_j'``, b_j the slopes of the local linear fit at anchor j.

    Source: Xia, Tong, Li and Zhu (2002), An adaptive estimation of dimension reduction space, JRSS B 64.

    Parameters
    ----------
    n_components : int, default=2
    n_iter : int, default=10
        Refinements of the neighbourhoods.
    n_anchors : int, default=500
        Local fits, at rows drawn at random where there are more.
    random_state : int, RandomState or None

    Attributes
    ----------
    components_ : array (n_components, n_features)
        The directions, each of length one, the one that counts most first.
    eigenvalues_ : array (n_components,)
        How much each counts.

    Examples
    --------
    >>> from hkrr.baselines import OPG
    >>> from hkrr.datasets import make_planted
    >>> from hkrr.metrics import subspace_distance
    >>> data = make_planted("product", 600, n_features=10, random_state=0)
    >>> model = OPG(n_components=2, random_state=0).fit(data.X, data.y)
    >>> round(subspace_distance(model.components_, data.B), 2)
    0.03
    """

    def _matrix(self, Z: Array, y: Array) -> Array:
        anchors = _anchors(len(Z), self.n_anchors, self.random_state)
        M = np.eye(Z.shape[1])
        for k in range(self.n_iter + 1):
            d = min(self.n_components, Z.shape[1])
            near = None if k == 0 else np.linalg.eigh(M)[1][:, -d:].T
            _, slopes = local_fits(Z, y, Z[anchors], weights(Z, Z[anchors], near))
            M = slopes.T @ slopes / len(slopes)
        return M


class MAVE(_LocalLinear):
    """Minimum average variance estimation: ``min sum_ij w_ij (y_i - a_j - b_j' B (z_i - z_j))^2`` over a, b and B.

    By turns: the local fits at the map, then the map at the fits (a linear least-squares problem), from the map of OPG
    after three refinements.
    Source: Xia, Tong, Li and Zhu (2002), as OPG.

    Parameters
    ----------
    n_components : int, default=2
    n_iter : int, default=10
    n_anchors : int, default=500
    random_state : int, RandomState or None

    Attributes
    ----------
    components_ : array (n_components, n_features)
        The directions, each of length one, the one that counts most first.
    eigenvalues_ : array (n_components,)
        How much each counts.

    Examples
    --------
    >>> from hkrr.baselines import MAVE
    >>> from hkrr.datasets import make_planted
    >>> from hkrr.metrics import subspace_distance
    >>> data = make_planted("product", 600, n_features=10, random_state=0)
    >>> model = MAVE(n_components=2, random_state=0).fit(data.X, data.y)
    >>> round(subspace_distance(model.components_, data.B), 2)
    0.02
    """

    _least_iter = 1

    def _matrix(self, Z: Array, y: Array) -> Array:
        rng = check_random_state(self.random_state)
        anchors = _anchors(len(Z), self.n_anchors, rng)
        d = min(self.n_components, Z.shape[1])
        start = OPG(d, n_iter=3, n_anchors=self.n_anchors, random_state=rng)._matrix(Z, y)
        B = np.linalg.eigh(start)[1][:, -d:].T
        C = Z[anchors]
        for _ in range(self.n_iter):
            W = weights(Z, C, B)
            levels, slopes = local_fits(Z @ B.T, y, C @ B.T, W)
            B = np.linalg.qr(_map_at(Z, y, C, W, levels, slopes).T)[0].T
        # The slopes at the last map weigh its directions.
        _, slopes = local_fits(Z @ B.T, y, C @ B.T, weights(Z, C, B))
        return B.T @ (slopes.T @ slopes / len(slopes)) @ B


def _anchors(n_rows: int, n_anchors: int, random_state: Any) -> Array:
    rng = check_random_state(random_state)
    return np.arange(n_rows) if n_rows <= n_anchors else rng.choice(n_rows, n_anchors, replace=False)


def weights(Z: Array, C: Array, B: Array | None) -> Array:
    """Return the weights of the rows at each anchor (rows x anchors), which sum to one.

    The bandwidth is ``1.06 s n^(-1/(p + 4))``, p the number of coordinates that distances are taken in and s^2 the
    median squared distance over 2 p.
    """
    P, Q = (Z, C) if B is None else (Z @ B.T, C @ B.T)
    squared = cdist(P, Q, "sqeuclidean")
    p = P.shape[1]
    width = 1.06**2 * max(float(np.median(squared)) / (2 * p), np.finfo(float).tiny) * len(Z) ** (-2 / (p + 4))
    squared -= squared.min(axis=0)  # the same factor for all rows of an anchor: it keeps exp from vanishing
    W = np.exp(-squared / (2 * width))
    return np.asarray(W / W.sum(axis=0))


def local_fits(P: Array, y: Array, Q: Array, W: Array) -> tuple[Array, Array]:
    """Return the levels and slopes of the weighted linear fits of y around each anchor q_j."""
    p = P.shape[1]
    levels, slopes = np.empty(len(Q)), np.empty((len(Q), p))
    for j, (q, w) in enumerate(zip(Q, W.T, strict=True)):
        rows = w > 1e-12 * w.max()
        D, v = P[rows] - q, w[rows]
        mean_D, mean_y = v @ D, v @ y[rows]
        D = D - mean_D
        A = (D.T * v) @ D
        A[np.diag_indices(p)] += _RIDGE * max(np.trace(A) / p, np.finfo(float).tiny)
        slopes[j] = np.linalg.solve(A, (D.T * v) @ (y[rows] - mean_y))
        levels[j] = mean_y - slopes[j] @ mean_D
    return levels, slopes


def _map_at(Z: Array, y: Array, C: Array, W: Array, levels: Array, slopes: Array) -> Array:
    """Return the B that minimises the sum for given fits: its normal equations, a Kronecker sum over the anchors."""
    d, D = slopes.shape[1], Z.shape[1]
    A, b = np.zeros((d * D, d * D)), np.zeros((d, D))
    for c, w, level, slope in zip(C, W.T, levels, slopes, strict=True):
        rows = w > 1e-12 * w.max()
        gaps, v = Z[rows] - c, w[rows]
        A += np.kron(np.outer(slope, slope), (gaps.T * v) @ gaps)
        b += np.outer(slope, (gaps.T * v) @ (y[rows] - level))
    A[np.diag_indices(d * D)] += _RIDGE * max(np.trace(A) / (d * D), np.finfo(float).tiny)
    return np.linalg.solve(A, b.ravel()).reshape(d, D)
