"""Sliced inverse regression, sliced average variance estimation and principal Hessian directions."""

from __future__ import annotations

import numpy as np

from hkrr._base.checks import check_int
from hkrr._base.linear_algebra import Array
from hkrr.baselines._subspace_estimator import SubspaceEstimator, slices


class SlicingEstimator(SubspaceEstimator):
    """The base class of the estimators that group the rows into slices by their targets, with the common parameters."""

    # The smallest valid value of n_slices.
    _least_slices = 2

    def __init__(self, n_components: int = 2, *, n_slices: int = 10) -> None:
        self.n_components, self.n_slices = n_components, n_slices

    def _check(self) -> None:
        check_int("n_slices", self.n_slices, self._least_slices)


class SIR(SlicingEstimator):
    """Sliced inverse regression.

    The directions are the leading eigenvectors of ``M = sum_h p_h m_h m_h'``, converted to the original units of X.
    Here p_h is the fraction of the rows in slice h of the target, and m_h is the mean over the slice of the whitened
    inputs (the inputs after a linear transformation to covariance I). SIR finds directions along which the mean of the
    inputs changes with the target. It misses directions on which the target depends through an even function, such as
    a square. Source: Li (1991), Sliced inverse regression for dimension reduction, JASA 86.

    Parameters
    ----------
    n_components : int, default=2
        Number of directions to estimate.
    n_slices : int, default=10
        Maximum number of slices of the target. A target with fewer distinct values has one slice for each value.

    Attributes
    ----------
    components_ : array (n_components, n_features)
        The directions in the original units of X: rows of unit length, in decreasing order of absolute eigenvalue.
    eigenvalues_ : array (n_components,)
        The eigenvalue of M for each direction.

    Examples
    --------
    >>> from hkrr.baselines import SIR
    >>> from hkrr.datasets import make_planted
    >>> data = make_planted("single", 2000, random_state=0)
    >>> SIR(n_components=1).fit(data.X, data.y).components_.shape
    (1, 200)
    """

    def _matrix(self, Z: Array, y: Array) -> Array:
        means = np.array([np.sqrt(len(rows)) * Z[rows].mean(axis=0) for rows in slices(y, self.n_slices)])
        return means.T @ means / len(Z)


class SAVE(SlicingEstimator):
    """Sliced average variance estimation.

    The directions are the leading eigenvectors of ``M = sum_h p_h (I - V_h)^2``, converted to the original units of X.
    Here p_h is the fraction of the rows in slice h of the target, and V_h is the covariance over the slice of the
    whitened inputs (the inputs after a linear transformation to covariance I). Unlike SIR, SAVE also finds directions
    on which the target depends through an even function, but it needs a larger sample for the same accuracy. Source:
    Cook and Weisberg (1991), comment on Li's paper (see `SIR`), JASA 86.

    Parameters
    ----------
    n_components : int, default=2
        Number of directions to estimate.
    n_slices : int, default=10
        Maximum number of slices of the target. Fewer slices are used if a slice would have fewer than two rows, because
        a covariance needs two rows.

    Attributes
    ----------
    components_ : array (n_components, n_features)
        The directions in the original units of X: rows of unit length, in decreasing order of absolute eigenvalue.
    eigenvalues_ : array (n_components,)
        The eigenvalue of M for each direction.

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

    def _matrix(self, Z: Array, y: Array) -> Array:
        M = np.zeros((Z.shape[1], Z.shape[1]))
        for rows in slices(y, min(self.n_slices, max(1, len(y) // 2))):
            centred = Z[rows] - Z[rows].mean(axis=0)
            # The covariance divides by n_h - 1, so a slice with one row is skipped.
            if len(rows) > 1:
                gap = np.eye(Z.shape[1]) - centred.T @ centred / (len(rows) - 1)
                M += len(rows) / len(Z) * gap @ gap
        return M


class PHD(SubspaceEstimator):
    """Principal Hessian directions.

    The directions are the leading eigenvectors of ``M = (1/m) sum_i r_i z_i z_i'``, converted to the original units of
    X. Here z_i are the whitened inputs of the m rows (the inputs after a linear transformation to covariance I), and
    r_i are the residuals of a linear fit of y. For normal inputs M estimates the mean Hessian of the regression
    function. Directions are ranked by the absolute value of their eigenvalues. PHD detects curvature but not linear
    trends. Source: Li (1992), On principal Hessian directions, JASA 87.

    Parameters
    ----------
    n_components : int, default=2
        Number of directions to estimate.

    Attributes
    ----------
    components_ : array (n_components, n_features)
        The directions in the original units of X: rows of unit length, in decreasing order of absolute eigenvalue.
    eigenvalues_ : array (n_components,)
        The eigenvalue of M for each direction.

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
