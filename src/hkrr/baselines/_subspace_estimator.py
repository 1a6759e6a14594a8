"""The base class of the subspace estimators: whitening, and the leading eigenvectors of a matrix.

Each estimator whitens the inputs: ``z = W (x - mean)`` has the identity as its covariance. From z and the target, the
estimator computes a symmetric matrix M, whose leading eigenvectors estimate the row space of B in f(x) = g(Bx), or some
directions of this space. The eigenvectors are directions for the whitened inputs z. In the original units of X, the map
is ``V_d' W``. The columns of V_d are the eigenvectors of the d eigenvalues with the largest absolute values, where d is
``n_components``.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from hkrr._base.checks import check_int
from hkrr._base.linear_algebra import Array
from hkrr.exceptions import PoorFitWarning

# A direction is treated as constant if the variance of the standardized inputs along it is at most this fraction of the
# largest variance along any direction.
_RANK = 1e-10
# A column is treated as constant if its standard deviation is at most this fraction of its absolute mean.
_ROUNDING = 1e-14


class Projection(ClassNamePrefixFeaturesOutMixin, TransformerMixin):
    """A transformer that projects the inputs on the directions in ``components_``."""

    components_: Array

    def transform(self, X: Any) -> Array:
        """Return ``X @ components_.T``."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        return np.asarray(X @ self.components_.T)

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)


class SubspaceEstimator(Projection, BaseEstimator):
    """A transformer that estimates the directions of X on which the target depends.

    ``fit`` sets ``components_`` of shape (n_components, n_features), with rows of unit length, and ``eigenvalues_``,
    the eigenvalue of M for each direction (see the docstring of this module). If n_components exceeds the rank of the
    inputs, arbitrary orthogonal directions with the eigenvalue zero are appended.
    """

    n_components: int

    def fit(self, X: Any, y: Any) -> Any:
        """Estimate the directions from the data."""
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True, ensure_min_samples=2)
        check_int("n_components", self.n_components, 1)
        if self.n_components > X.shape[1]:
            raise ValueError(
                f"n_components={self.n_components} exceeds the number of columns of X; use at most {X.shape[1]}"
            )
        self._check()
        whitener, mean = _whiten(X)
        M = self._matrix((X - mean) @ whitener.T, np.asarray(y, dtype=np.float64))
        if not np.any(M) or np.all(y == y[0]):
            warnings.warn(
                f"{type(self).__name__} found no dependence of y on X, so the directions are arbitrary; check that "
                "y is not constant, or try another method",
                PoorFitWarning,
                stacklevel=2,
            )
        values, vectors = np.linalg.eigh(M)
        order = np.argsort(-np.abs(values), kind="stable")[: self.n_components]
        components = _complete(vectors[:, order].T @ whitener, self.n_components)
        self.eigenvalues_ = np.zeros(self.n_components)
        self.eigenvalues_[: len(order)] = values[order]
        self.components_ = signed(components)
        return self

    def _check(self) -> None:
        """Raise a ValueError if a parameter of the subclass is invalid."""

    @abstractmethod
    def _matrix(self, Z: Array, y: Array) -> Array:
        """Return the matrix M, given the whitened inputs Z and the target y."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


def signed(components: Array) -> Array:
    """Flip the sign of each direction so that its entry of largest absolute value is positive.

    This makes the directions of different fits comparable.
    """
    largest = np.take_along_axis(components, np.abs(components).argmax(axis=1)[:, None], axis=1)
    return np.asarray(components * np.where(largest < 0, -1.0, 1.0))


def _whiten(X: Array) -> tuple[Array, Array]:
    """Return the whitening matrix W of shape (rank, n_features), and the mean of the rows x of X.

    The covariance of ``W (x - mean)`` is the identity. If all columns are constant, W is the identity.
    """
    mean = X.mean(axis=0)
    centred = X - mean
    spread = centred.std(axis=0)
    # Divide each column by its standard deviation first. The rank, and hence the set of directions that are treated as
    # constant, then does not depend on the units of X.
    scale = np.where(spread > _ROUNDING * np.maximum(np.abs(mean), spread.max(initial=0.0) * 1e-150), spread, np.inf)
    _, s, Vt = np.linalg.svd(centred / scale, full_matrices=False)
    keep = s > np.sqrt(_RANK) * s[0] if s.size and s[0] > 0 else np.zeros(s.shape, dtype=bool)
    if not keep.any():
        return np.eye(X.shape[1]), mean
    return Vt[keep] * (np.sqrt(len(X)) / s[keep])[:, None] / scale, mean


def _complete(directions: Array, n_components: int) -> Array:
    """Scale each row to unit length. If there are fewer than n_components rows, append orthogonal rows."""
    directions = directions / np.linalg.norm(directions, axis=1, keepdims=True)
    missing = n_components - len(directions)
    if missing <= 0:
        return directions
    rest = np.linalg.svd(directions)[2][len(directions) :]
    return np.vstack([directions, rest[:missing]])


def slices(y: Array, n_slices: int) -> list[Array]:
    """Split the rows, sorted by y, into at most n_slices slices of nearly equal size. Return the indices of each slice.

    Rows with equal targets are in the same slice.
    """
    order = np.argsort(y, kind="stable")
    values, starts = np.unique(y[order], return_index=True)
    if len(values) <= n_slices:
        cuts = starts[1:]
    else:
        wanted = np.arange(1, n_slices) * len(y) / n_slices
        cuts = np.unique(starts[np.minimum(np.searchsorted(starts, wanted), len(starts) - 1)])
        cuts = cuts[cuts > 0]
    return [part for part in np.split(order, cuts) if len(part)]
