"""OPG and MAVE: subspace estimation from the gradients of local linear fits.

Some of the training rows serve as anchors. At each anchor j, a linear function of the whitened inputs z (the inputs
after a linear transformation to covariance I) is fitted to the target, with the weight
``w_ij = exp(-|P (z_i - z_j)|^2 / (2 h^2))`` for row i and the bandwidth h. The slopes of the fit estimate the gradient
of the regression function at row j. This gradient lies in the row space of B. The matrix P is the identity in the first
iteration and the current map afterwards, as in the refined version of Xia and others (2002). The neighbourhoods thus
adapt to the relevant directions.

In many dimensions the neighbourhood of an anchor may have fewer rows than the local fit has slopes. The local fits
therefore use a ridge penalty of 0.001 times the mean variance of the neighbourhood. Rows whose weight is at most 1e-12
times the largest weight are ignored.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.utils import check_random_state

from hkrr._base.checks import check_int
from hkrr._base.linear_algebra import Array
from hkrr.baselines._subspace_estimator import SubspaceEstimator

# Ridge penalty of the local fits, relative to the mean variance of the neighbourhood.
_RIDGE = 1e-3


class _LocalLinear(SubspaceEstimator):
    """The base class of OPG and MAVE, with their common parameters."""

    # The smallest valid value of n_iter.
    _least_iter = 0

    def __init__(
        self, n_components: int = 2, *, n_iter: int = 10, n_anchors: int = 500, random_state: Any = None
    ) -> None:
        self.n_components, self.n_iter, self.n_anchors = n_components, n_iter, n_anchors
        self.random_state = random_state

    def _check(self) -> None:
        check_int("n_iter", self.n_iter, self._least_iter)
        check_int("n_anchors", self.n_anchors, self.n_components)

    def _mean_outer_product(self, Z: Array, y: Array, n_iter: int, random_state: Any) -> Array:
        """Return the matrix M of `OPG`."""
        anchors = _anchors(len(Z), self.n_anchors, random_state)
        M = np.eye(Z.shape[1])
        for k in range(n_iter + 1):
            d = min(self.n_components, Z.shape[1])
            near = None if k == 0 else np.linalg.eigh(M)[1][:, -d:].T
            _, slopes = local_fits(Z, y, Z[anchors], weights(Z, Z[anchors], near))
            M = slopes.T @ slopes / len(slopes)
        return M


class OPG(_LocalLinear):
    """Outer product of gradients.

    The directions are the leading eigenvectors of ``M = (1/n) sum_j b_j b_j'``, converted to the original units of X.
    The n anchors are training rows, and b_j are the slopes of a linear function of the whitened inputs (the inputs
    after a linear transformation to covariance I) that is fitted around anchor j. Source: Xia, Tong, Li and Zhu (2002),
    An adaptive estimation of dimension reduction space, JRSS B 64.

    Parameters
    ----------
    n_components : int, default=2
        Number of directions to estimate.
    n_iter : int, default=10
        Number of times that the neighbourhoods are recomputed with the current directions.
    n_anchors : int, default=500
        Maximum number of anchor rows. If X has more rows, the anchor rows are drawn at random.
    random_state : int, RandomState instance or None, default=None
        Seed of the anchor rows.

    Attributes
    ----------
    components_ : array (n_components, n_features)
        The directions in the original units of X: rows of unit length, in decreasing order of absolute eigenvalue.
    eigenvalues_ : array (n_components,)
        The eigenvalue of M for each direction.

    Examples
    --------
    >>> from hkrr.baselines import OPG
    >>> from hkrr.datasets import make_planted
    >>> from hkrr.metrics import subspace_distance
    >>> data = make_planted("product", 300, n_features=10, random_state=0)
    >>> model = OPG(n_components=2, random_state=0).fit(data.X, data.y)
    >>> round(subspace_distance(model.components_, data.B), 2)
    0.04
    """

    def _matrix(self, Z: Array, y: Array) -> Array:
        return self._mean_outer_product(Z, y, self.n_iter, self.random_state)


class MAVE(_LocalLinear):
    """Minimum average variance estimation: ``min sum_ij w_ij (y_i - a_j - b_j' B (z_i - z_j))^2`` over a, b and B.

    Here z_i are the whitened inputs and y_i the target of row i. The anchors j are training rows, around which linear
    functions are fitted: w_ij is the weight of row i in the local fit at anchor j, a_j is the intercept of this fit,
    and b_j are its slopes. The algorithm starts from the map of OPG with ``n_iter=3``. Each iteration then computes the
    local fits for the current map, and a new map for these local fits. The new map is the solution of a linear
    least-squares problem. Source: Xia, Tong, Li and Zhu (2002), see `OPG`.

    Parameters
    ----------
    n_components : int, default=2
        Number of directions to estimate.
    n_iter : int, default=10
        Number of iterations.
    n_anchors : int, default=500
        Maximum number of anchor rows. If X has more rows, the anchor rows are drawn at random.
    random_state : int, RandomState instance or None, default=None
        Seed of the anchor rows.

    Attributes
    ----------
    components_ : array (n_components, n_features)
        The directions in the original units of X: rows of unit length, in decreasing order of absolute eigenvalue.
    eigenvalues_ : array (n_components,)
        For each direction, the eigenvalue of the mean outer product of the slopes of the local fits.

    Examples
    --------
    >>> from hkrr.baselines import MAVE
    >>> from hkrr.datasets import make_planted
    >>> from hkrr.metrics import subspace_distance
    >>> data = make_planted("product", 300, n_features=10, random_state=0)
    >>> model = MAVE(n_components=2, random_state=0).fit(data.X, data.y)
    >>> round(subspace_distance(model.components_, data.B), 2)
    0.03
    """

    _least_iter = 1

    def _matrix(self, Z: Array, y: Array) -> Array:
        rng = check_random_state(self.random_state)
        anchors = _anchors(len(Z), self.n_anchors, rng)
        d = min(self.n_components, Z.shape[1])
        B = np.linalg.eigh(self._mean_outer_product(Z, y, 3, rng))[1][:, -d:].T
        C = Z[anchors]
        for _ in range(self.n_iter):
            W = weights(Z, C, B)
            levels, slopes = local_fits(Z @ B.T, y, C @ B.T, W)
            B = np.linalg.qr(_map_at(Z, y, C, W, levels, slopes).T)[0].T
        # Weight the directions by the slopes of the local fits at the final map.
        _, slopes = local_fits(Z @ B.T, y, C @ B.T, weights(Z, C, B))
        return B.T @ (slopes.T @ slopes / len(slopes)) @ B


def _anchors(n_rows: int, n_anchors: int, random_state: Any) -> Array:
    rng = check_random_state(random_state)
    return np.arange(n_rows) if n_rows <= n_anchors else rng.choice(n_rows, n_anchors, replace=False)


def weights(Z: Array, C: Array, B: Array | None) -> Array:
    """Return the weight of each row at each anchor, as an array (rows, anchors). Each column sums to one.

    The rows of C are the anchors. The weight of a row decreases with its distance from the anchor. Distances are
    measured between the rows of ``Z B'`` and ``C B'``, or between the rows of Z and C if B is None. The bandwidth is
    ``1.06 s n^(-1/(p + 4))``, where p is the number of coordinates, n is the number of rows and s^2 is the median
    squared distance divided by 2 p.
    """
    P, Q = (Z, C) if B is None else (Z @ B.T, C @ B.T)
    squared = cdist(P, Q, "sqeuclidean")
    p = P.shape[1]
    width = 1.06**2 * max(float(np.median(squared)) / (2 * p), np.finfo(float).tiny) * len(Z) ** (-2 / (p + 4))
    # Prevent underflow. The subtraction multiplies all weights of an anchor by the same factor, which the normalization
    # below removes.
    squared -= squared.min(axis=0)
    W = np.exp(-squared / (2 * width))
    return np.asarray(W / W.sum(axis=0))


def local_fits(P: Array, y: Array, Q: Array, W: Array) -> tuple[Array, Array]:
    """Around each anchor, fit a linear function to y by weighted least squares with a small ridge penalty.

    Return the values and the slopes of the functions at the anchors. The rows of P are the inputs of the functions, and
    the rows of Q are the anchors. Column j of W contains the weights of the rows in the fit around anchor j.
    """
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
    """Return the map B that minimizes MAVE's weighted sum of squares plus a ridge penalty, for fixed local fits.

    The rows of C are the anchors, and W are the weights from `weights`. `levels` and `slopes` are the intercepts and
    slopes of the local fits. The matrix of the normal equations is a sum of Kronecker products over the anchors.
    """
    d, D = slopes.shape[1], Z.shape[1]
    A, b = np.zeros((d * D, d * D)), np.zeros((d, D))
    for c, w, level, slope in zip(C, W.T, levels, slopes, strict=True):
        rows = w > 1e-12 * w.max()
        gaps, v = Z[rows] - c, w[rows]
        A += np.kron(np.outer(slope, slope), (gaps.T * v) @ gaps)
        b += np.outer(slope, (gaps.T * v) @ (y[rows] - level))
    A[np.diag_indices(d * D)] += _RIDGE * max(np.trace(A) / (d * D), np.finfo(float).tiny)
    return np.linalg.solve(A, b.ravel()).reshape(d, D)
