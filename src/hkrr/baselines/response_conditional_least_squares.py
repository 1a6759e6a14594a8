"""Response-conditional least squares (RCLS): subspace estimation with linear fits within slices of the target.

`RCLSDirections` estimates the subspace. `RCLS` adds a local regression on the projected inputs: nearest neighbours or
`PiecewisePolynomial`.
"""

from __future__ import annotations

from itertools import combinations_with_replacement
from typing import Any, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.neighbors import KNeighborsRegressor
from sklearn.utils.validation import check_is_fitted, validate_data

from hkrr._base.checks import check_choice, check_int
from hkrr._base.linear_algebra import Array
from hkrr.baselines._subspace_estimator import Projection, signed, slices
from hkrr.baselines.inverse_regression import SlicingEstimator

# Maximum binary logarithm of the number of grid cells. Cells of `PiecewisePolynomial` are numbered by 64-bit integers.
_MAX_LOG2_CELLS = 62


class RCLSDirections(SlicingEstimator):
    """Subspace estimation by response-conditional least squares.

    The directions are the leading eigenvectors of ``M = sum_h p_h b_h b_h'``, converted to the original units of X.
    Here p_h is the fraction of the rows in slice h of the target, and b_h are the least-squares slopes, within the
    slice, of y on the whitened inputs (the inputs after a linear transformation to covariance I). Source: Klock,
    Lanteri and Vigogna (2021), Estimating multi-index models with response-conditional least squares, Electronic
    Journal of Statistics 15.

    Parameters
    ----------
    n_components : int, default=2
        Number of directions to estimate.
    n_slices : int, default=10
        Maximum number of slices. The number is reduced, but not below n_components, if a slice would have fewer rows
        than twice the number of columns of X. If the target is constant within every slice, all rows form one slice.

    Attributes
    ----------
    components_ : array (n_components, n_features)
        The directions in the original units of X: rows of unit length, in decreasing order of absolute eigenvalue.
    eigenvalues_ : array (n_components,)
        The eigenvalue of M for each direction.

    Examples
    --------
    >>> from hkrr.baselines import RCLSDirections
    >>> from hkrr.datasets import make_planted
    >>> from hkrr.metrics import subspace_distance
    >>> data = make_planted("single", 2000, n_features=10, random_state=0)
    >>> model = RCLSDirections(n_components=1).fit(data.X, data.y)
    >>> round(subspace_distance(model.components_, data.B), 2)
    0.1
    """

    _least_slices = 1

    def _matrix(self, Z: Array, y: Array) -> Array:
        M = np.zeros((Z.shape[1], Z.shape[1]))
        n_slices = max(self.n_components, min(self.n_slices, len(y) // (2 * Z.shape[1])))
        # Slices with a constant target have no slopes. If all slices are constant, use one slice of all rows.
        parts = [rows for rows in slices(y, n_slices) if np.ptp(y[rows]) > 0] or [np.arange(len(y))]
        for rows in parts:
            gaps = Z[rows] - Z[rows].mean(axis=0)
            slope = np.linalg.lstsq(gaps, y[rows] - y[rows].mean(), rcond=1e-10)[0]
            M += len(rows) / len(Z) * np.outer(slope, slope)
        return M


class RCLS(Projection, RegressorMixin, BaseEstimator):
    """Local regression on the subspace of `RCLSDirections`.

    Source: see `RCLSDirections`.

    Parameters
    ----------
    n_components : int, default=2
        Number of directions to estimate.
    n_slices : int, default=10
        Maximum number of slices, see `RCLSDirections`.
    link : {"knn", "polynomial"}, default="knn"
        Regression on the projected inputs: k nearest neighbours, or a polynomial on each cell of a grid.
    n_neighbors : int, default=10
        Number of neighbours for ``link="knn"``.
    n_cells : int, default=4
        Number of grid cells along each direction for ``link="polynomial"``.
    degree : int, default=2
        Degree of the polynomials for ``link="polynomial"``.

    Attributes
    ----------
    components_ : array (n_components, n_features)
        Orthonormal rows. For every k, the first k rows span the same subspace as the first k directions of
        `RCLSDirections`.
    eigenvalues_ : array (n_components,)
        The eigenvalues of `RCLSDirections`.
    link_ : estimator
        The regression model fitted to ``X @ components_.T``.

    Examples
    --------
    >>> from hkrr.baselines import RCLS
    >>> from hkrr.datasets import make_planted
    >>> data = make_planted("single", 2000, n_features=10, random_state=0)
    >>> model = RCLS(n_components=1).fit(data.X, data.y)
    >>> round(model.score(data.X, data.y), 2)
    0.97
    """

    def __init__(
        self,
        n_components: int = 2,
        *,
        n_slices: int = 10,
        link: Literal["knn", "polynomial"] = "knn",
        n_neighbors: int = 10,
        n_cells: int = 4,
        degree: int = 2,
    ) -> None:
        self.n_components, self.n_slices, self.link = n_components, n_slices, link
        self.n_neighbors, self.n_cells, self.degree = n_neighbors, n_cells, degree

    def fit(self, X: Any, y: Any) -> Self:
        """Estimate the directions, then fit the regression on the projected inputs."""
        check_choice("link", self.link, ("knn", "polynomial"))
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True, ensure_min_samples=2)
        directions = RCLSDirections(self.n_components, n_slices=self.n_slices).fit(X, y)
        # Use an orthonormal basis, so that distances between projected rows are distances in the space of X.
        self.components_ = signed(np.linalg.qr(directions.components_.T)[0].T)
        self.eigenvalues_ = directions.eigenvalues_
        check_int("n_neighbors", self.n_neighbors, 1)
        if self.link == "knn":
            self.link_ = KNeighborsRegressor(min(self.n_neighbors, len(y)))
        else:
            self.link_ = PiecewisePolynomial(self.n_cells, self.degree)
        self.link_.fit(X @ self.components_.T, y)
        return self

    def predict(self, X: Any) -> Array:
        """Return the prediction of ``link_`` at ``X @ components_.T``."""
        P = self.transform(X)
        return np.asarray(self.link_.predict(P))


class PiecewisePolynomial(RegressorMixin, BaseEstimator):
    """Piecewise polynomial regression on a regular grid over the range of the inputs, for few inputs.

    Each cell of the grid has its own polynomial. A cell with fewer rows than twice the number of coefficients uses a
    polynomial fitted to all rows.

    Parameters
    ----------
    n_cells : int, default=4
        Number of cells along each input.
    degree : int, default=2
        Total degree of the polynomials.

    Examples
    --------
    >>> import numpy as np
    >>> from hkrr.baselines import PiecewisePolynomial
    >>> X = np.linspace(-1.0, 1.0, 100)[:, None]
    >>> model = PiecewisePolynomial(n_cells=4, degree=2).fit(X, np.sin(5.0 * X[:, 0]))
    >>> model.score(X, np.sin(5.0 * X[:, 0])) > 0.99
    True
    """

    def __init__(self, n_cells: int = 4, degree: int = 2) -> None:
        self.n_cells, self.degree = n_cells, degree

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the polynomial of each cell by least squares."""
        check_int("n_cells", self.n_cells, 1)
        check_int("degree", self.degree, 0)
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        if X.shape[1] * np.log2(self.n_cells) > _MAX_LOG2_CELLS:
            raise ValueError(
                f"n_cells={self.n_cells} with {X.shape[1]} columns gives too many cells; use a smaller n_cells, "
                "or fewer columns"
            )
        self.low_, high = X.min(axis=0), X.max(axis=0)
        self.width_ = np.where(high > self.low_, high - self.low_, 1.0)
        features, cells = self._features(X), self._cells(X)
        self.everywhere_ = np.linalg.lstsq(features, y, rcond=None)[0]
        self.cells_ = {
            cell: np.linalg.lstsq(features[rows], y[rows], rcond=None)[0]
            for cell in np.unique(cells)
            if np.sum(rows := cells == cell) >= 2 * features.shape[1]
        }
        self.range_ = float(y.min()), float(y.max())
        return self

    def predict(self, X: Any) -> Array:
        """Return the value of the polynomial of each row's cell, clipped to the range of the training targets."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        features, cells = self._features(X), self._cells(X)
        values = features @ self.everywhere_
        for cell, coefficients in self.cells_.items():
            values[cells == cell] = features[cells == cell] @ coefficients
        return np.clip(values, *self.range_)

    def _features(self, X: Array) -> Array:
        """Return all monomials, up to the total degree, of the inputs scaled to [0, 1]."""
        U = (X - self.low_) / self.width_
        columns = [
            np.prod(U[:, list(powers)], axis=1)
            for degree in range(self.degree + 1)
            for powers in combinations_with_replacement(range(U.shape[1]), degree)
        ]
        return np.stack(columns, axis=1)

    def _cells(self, X: Array) -> Array:
        """Return the index of each row's cell."""
        index = np.clip(self.n_cells * (X - self.low_) / self.width_, 0, self.n_cells - 1).astype(int)
        return np.asarray(np.ravel_multi_index(tuple(index.T), (self.n_cells,) * X.shape[1]))
