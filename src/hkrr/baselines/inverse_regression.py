"""Sliced inverse regression, sliced average variance estimation and principal Hessian directions."""

from __future__ import annotations

import numpy as np

from hkrr._arrays import Array
from hkrr._validation import check_int
from hkrr.baselines._subspace import SubspaceEstimator, slices


class SIR(SubspaceEstimator):
    """Sliced inverse regression: ``M = sum_h p_h m_h m_h'``, m_h the mean of z in slice h of the target, p_h its share.

    Finds directions along which the mean of the inputs moves with the target; it misses even links. Source: Li (1991),
    Sliced inverse regression for dimension reduction, JASA 86.

    Parameters
    ----------
    n_components : int, default=2
    n_slices : int, default=10

    Attributes
    ----------
    components_ : array (n_components, n_features)
        The directions, each of length one, the one that counts most first.
    eigenvalues_ : array (n_components,)
        How much each counts.

    Examples
    --------
    >>> from hkrr.baselines import SIR
    >>> from hkrr.datasets import make_planted
    >>> data = make_planted("single", 2000, random_state=0)
    >>> SIR(n_components=1).fit(data.X, data.y).components_.shape
    (1, 200)
    """

    def __init__(self, n_components: int = 2, *, n_slices: int = 10) -> None:
        self.n_components, self.n_slices = n_components, n_slices

    def _check(self) -> None:
        check_int("n_slices", self.n_slices, 2)

    def _matrix(self, Z: Array, y: Array) -> Array:
        means = np.array([np.sqrt(len(rows)) * Z[rows].mean(axis=0) for rows in slices(y, self.n_slices)])
        return means.T @ means / len(Z)


class SAVE(SubspaceEstimator):
    """Sliced average variance estimation: ``M = sum_h p_h (I - V_h)^2``, V_h the covariance of z in slice h.

    Sees even links as well as odd ones, and needs more rows than SIR. Source: Cook and Weisberg (1991), discussion of
    Li's paper, JASA 86.

    Parameters
    ----------
    n_components : int, default=2
    n_slices : int, default=10
        At most: a slice needs two rows for a covariance.

    Attributes
    ----------
    components_ : array (n_components, n_features)
        The directions, each of length one, the one that counts most first.
    eigenvalues_ : array (n_components,)
        How much each counts.

    Examples
    --------
    >>> from hkrr.baselines import SAVE
    >>> from hkrr.datasets import make_planted
    >>> from hkrr.metrics import subspace_distance
    >>> data = make_planted("product", 2000, n_features=10, random_state=0)
    >>> model = SAVE(n_components=2).fit(data.X, data.y)
    >>> round(subspace_distance(model.components_, data.B), 2)
    0.09
    """

    def __init__(self, n_components: int = 2, *, n_slices: int = 10) -> None:
        self.n_components, self.n_slices = n_components, n_slices

    def _check(self) -> None:
        check_int("n_slices", self.n_slices, 2)

    def _matrix(self, Z: Array, y: Array) -> Array:
        M = np.zeros((Z.shape[1], Z.shape[1]))
        for rows in slices(y, min(self.n_slices, max(1, len(y) // 2))):
            centred = Z[rows] - Z[rows].mean(axis=0)
            # Divided by n_h - 1, as a covariance is: with n_h - 1 = 0 there is none, and the slice says nothing.
            if len(rows) > 1:
                gap = np.eye(Z.shape[1]) - centred.T @ centred / (len(rows) - 1)
                M += len(rows) / len(Z) * gap @ gap
        return M


class PHD(SubspaceEstimator):
    """Principal Hessian directions: ``M = (1/m) sum_i r_i z_i z_i'``, r the residual of the linear fit of y.

    For normal inputs M is the mean Hessian of the regression function; eigenvalues of either sign count. It sees
    curvature, and no linear trend. Source: Li (1992), On principal Hessian directions, JASA 87.

    Parameters
    ----------
    n_components : int, default=2

    Attributes
    ----------
    components_ : array (n_components, n_features)
        The directions, each of length one, the one that counts most first.
    eigenvalues_ : array (n_components,)
        How much each counts.

    Examples
    --------
    >>> from hkrr.baselines import PHD
    >>> from hkrr.datasets import make_planted
    >>> from hkrr.metrics import subspace_distance
    >>> data = make_planted("product", 2000, n_features=10, random_state=0)
    >>> model = PHD(n_components=2).fit(data.X, data.y)
    >>> round(subspace_distance(model.components_, data.B), 2)
    0.11
    """

    def __init__(self, n_components: int = 2) -> None:
        self.n_components = n_components

    def _matrix(self, Z: Array, y: Array) -> Array:
        r = y - y.mean()
        r = r - Z @ np.linalg.lstsq(Z, r, rcond=None)[0]
        return (Z.T * r) @ Z / len(Z)
