"""What the classical estimators of the subspace share: whitening, and the eigenvectors of a matrix made of the data.

Each finds a symmetric matrix M whose leading eigenvectors span (a part of) the rows of B, in coordinates
``z = W (x - mean)`` in which the inputs have the identity as their covariance; back in those of X the map is
``V_d' W``, V_d the eigenvectors of the d largest eigenvalues in absolute value.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from hkrr._arrays import Array
from hkrr._validation import check_int
from hkrr.exceptions import PoorFitWarning

# Directions of the inputs with less than this share of the largest variance are taken for constant.
_RANK = 1e-10
# A column whose spread is no more than this share of its mean is constant up to rounding.
_ROUNDING = 1e-14


class SubspaceEstimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """A transformer that finds the directions a target depends on: ``fit(X, y)``, then ``transform(X)``.

    After `fit`: ``components_`` (n_components, n_features), each row of length one, and ``eigenvalues_``, how much each
    direction counts (zero for directions beyond the rank of X).
    """

    n_components: int

    def fit(self, X: Any, y: Any) -> Any:
        """Find the directions."""
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True, ensure_min_samples=2)
        check_int("n_components", self.n_components, 1)
        if self.n_components > X.shape[1]:
            raise ValueError(f"n_components={self.n_components} exceeds the number of columns of X, {X.shape[1]}")
        self._check()
        whitener, mean = _whiten(X)
        M = self._matrix((X - mean) @ whitener.T, np.asarray(y, dtype=np.float64))
        if not np.any(M) or np.all(y == y[0]):
            warnings.warn(
                f"{type(self).__name__} sees nothing of X in this target: the directions are arbitrary; try another "
                "method, or a target that varies",
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
        """Raise for the first parameter that cannot be."""

    @abstractmethod
    def _matrix(self, Z: Array, y: Array) -> Array:
        """Return M, of the whitened inputs and the target."""

    def transform(self, X: Any) -> Array:
        """Return ``X @ components_.T``."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        return np.asarray(X @ self.components_.T)

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


def signed(components: Array) -> Array:
    """Return the directions with a positive largest entry: they have no sign of their own, and runs are compared."""
    largest = np.take_along_axis(components, np.abs(components).argmax(axis=1)[:, None], axis=1)
    return np.asarray(components * np.where(largest < 0, -1.0, 1.0))


def _whiten(X: Array) -> tuple[Array, Array]:
    """Return W (r x D) with ``W (x - mean)`` of covariance I, r the rank, and the mean."""
    mean = X.mean(axis=0)
    centred = X - mean
    spread = centred.std(axis=0)
    # In units of the columns' own spread: which directions are constant must not depend on the units of X.
    scale = np.where(spread > _ROUNDING * np.maximum(np.abs(mean), spread.max(initial=0.0) * 1e-150), spread, np.inf)
    _, s, Vt = np.linalg.svd(centred / scale, full_matrices=False)
    keep = s > np.sqrt(_RANK) * s[0] if s.size and s[0] > 0 else np.zeros(s.shape, dtype=bool)
    if not keep.any():
        return np.eye(X.shape[1]), mean
    return Vt[keep] * (np.sqrt(len(X)) / s[keep])[:, None] / scale, mean


def _complete(directions: Array, n_components: int) -> Array:
    """Return rows of length one; where the inputs have a lower rank than asked for, orthogonal ones are added."""
    directions = directions / np.linalg.norm(directions, axis=1, keepdims=True)
    missing = n_components - len(directions)
    if missing <= 0:
        return directions
    rest = np.linalg.svd(directions)[2][len(directions) :]
    return np.vstack([directions, rest[:missing]])


def slices(y: Array, n_slices: int) -> list[Array]:
    """Return the rows of each of (at most) that many slices of y, of nearly equal size; equal targets stay together."""
    order = np.argsort(y, kind="stable")
    values, starts = np.unique(y[order], return_index=True)
    if len(values) <= n_slices:
        cuts = starts[1:]
    else:
        wanted = np.arange(1, n_slices) * len(y) / n_slices
        cuts = np.unique(starts[np.minimum(np.searchsorted(starts, wanted), len(starts) - 1)])
        cuts = cuts[cuts > 0]
    return [part for part in np.split(order, cuts) if len(part)]
