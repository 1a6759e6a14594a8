"""How far each column moves the prediction, and what the directions are made of.

The gradient of ``f(x) = g(Bx)`` is ``B' grad g(Bx)``. Its average outer product over rows,

    ``G = mean_i grad f(x_i) grad f(x_i)' = B' M B,    M = mean_i grad g(B x_i) grad g(B x_i)'``,

says along which inputs the function changes: M is d x d, so that nothing but G itself has the size of the columns. The
importance of column j is ``sqrt(G_jj)`` times the spread of that column: by how much the prediction changes, in the
square mean, with a typical move of the column while all others stay. The predictions of a classifier are its
probabilities, and G is their sum, ``sum_k mean_i grad p_k(x_i) grad p_k(x_i)'``: scores that move where the class is
sure move nothing, and a constant that all scores share does not count. A gradient knows small moves: of a column of few
values it may see nothing of the steps between them, and those are taken in its place; see `hkrr.steps`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted, validate_data

from hkrr._arrays import Array
from hkrr._validation import in_finite_numbers
from hkrr.steps import columns_of_few_values, moves_by_steps, some_rows

_CAUSE = "the units of X are too large or too small"
_BLOCK_ENTRIES = 2_000_000  # of a kernel matrix at once


class FeatureImportances:
    """The part of an estimator that says which columns matter."""

    @property
    def feature_importances_(self) -> Array:
        """How far each column moves the prediction, as shares of 1; see `hkrr.importance`.

        ``sqrt(G_jj) std_j``, or, of a column with 20 values or fewer, the steps from each of them to the others
        (`hkrr.steps`), divided by the sum of all. Means and standard deviations are over the centers (some 200 to 1,000
        where there are more), which are training rows or, with ``centers="kmeans"``, stand for them. Centers drawn by
        leverage come from the edges of the data more often than its rows do; `average_gradient_outer_product` takes any
        rows. Predictions are those before any truncation, and several targets count by their variances, as they do in
        `fit`. All zero where the function is constant.
        """
        check_is_fitted(self)
        return importances(self)

    def _linked(self, outputs: Array) -> Array | None:
        """Return what is predicted (n, n_predicted) from the outputs (n, T); None: it is they."""
        return None

    def _link_slopes(self, outputs: Array) -> Array | None:
        """Return the derivatives (n, n_predicted, T) of what is predicted in the outputs (n, T); None: it is they."""
        return None


def average_gradient_outer_product(model: Any, X: Any) -> Array:
    """Return ``G = mean_i grad f(x_i) grad f(x_i)'`` over the rows of X, in its coordinates.

    The eigenvectors of G are the directions in which predictions change most, and ``sqrt(G_jj)`` is the slope along
    column j, in the square mean. Of several targets it is the sum, and of a classifier the sum over the probabilities.
    Where a kernel has a kink (Laplace) the slope at a center is that of all other centers.

    Parameters
    ----------
    model : fitted HyperKernelRidge, HyperKernelRidgeCV or HyperKernelClassifier
    X : array or data frame (n_samples, n_features)

    Returns
    -------
    array (n_features, n_features)

    Examples
    --------
    >>> import numpy as np
    >>> from hkrr import HyperKernelRidge
    >>> from hkrr.importance import average_gradient_outer_product
    >>> X = np.random.default_rng(0).normal(size=(200, 5))
    >>> model = HyperKernelRidge(1, random_state=0).fit(X, np.sin(X[:, 2]))
    >>> G = average_gradient_outer_product(model, X)
    >>> int(np.argmax(np.diag(G))), model.feature_importances_.round(1)
    (2, array([0., 0., 1., 0., 0.]))
    """
    check_is_fitted(model)
    X = validate_data(model, X, reset=False, dtype=np.float64)
    B = math.sqrt(model.kernel_.scale) * model.components_
    G: Array = B.T @ latent_outer_product(model, X, model.dual_coef_) @ B
    return G


def latent_outer_product(model: Any, X: Array, dual_coef: Array) -> Array:
    """Return M over the rows of X, for latent coordinates in units of the kernel: ``z = sqrt(gamma) B x``."""
    # At gamma = 1, whatever the units of X: squares of slopes could overflow otherwise.
    scale, B = math.sqrt(model.kernel_.scale), model.components_.T
    P, C = (scale * ((points - model.x_offset_) @ B) for points in (X, model.centers_))
    kernel, alpha = model.kernel_.with_gamma(1.0), dual_coef.reshape(len(C), -1)
    n_rows = max(1, _BLOCK_ENTRIES // len(C))
    M = np.zeros((P.shape[1], P.shape[1]))
    for start in range(0, len(P), n_rows):
        block = P[start : start + n_rows]
        K, pullback = kernel.vjp_low_rank(block, C)
        each = [pullback(np.ones((len(block), 1)), alpha[:, t : t + 1])[0] for t in range(alpha.shape[1])]
        by_output = model._link_slopes(K @ model.dual_coef_.reshape(len(C), -1) + model.intercept_)
        if by_output is not None:
            each = list(np.moveaxis(by_output @ np.stack(each, axis=1), 1, 0))
        for slopes in each:
            M += slopes.T @ slopes
    return M / len(P)


def importances(model: Any, target: int | None = None) -> Array:
    """Return ``feature_importances_``, of all targets or of one of them."""
    return in_finite_numbers("importances", lambda: _importances(model, target), _CAUSE)


def _importances(model: Any, target: int | None) -> Array:
    dual_coef = _relative_coefficients(model, target)
    B = math.sqrt(model.kernel_.scale) * model.components_ * spreads(model)
    squares = np.sum(B * (_outer_product_at_centers(model, dual_coef) @ B), axis=0)
    moves = np.sqrt(np.maximum(squares, 0.0))  # a sum that rounding makes negative is none
    few = columns_of_few_values(model.centers_)
    moves[list(few)] = moves_by_steps(model, few, dual_coef)
    total = float(np.sum(moves))
    return moves / total if total > 0 else moves


def direction_moves(model: Any, spread: Array) -> Array:
    """Return how far each direction moves the prediction, up to a factor, with these spreads of the latent coordinates.

    Where each direction is a column, that is the column's importance.
    """
    used = model.components_ != 0
    if np.all(np.sum(used, axis=1) <= 1):
        return np.asarray(used @ importances(model))
    M = _outer_product_at_centers(model, _relative_coefficients(model))
    return np.sqrt(np.diag(M)) * spread


def _relative_coefficients(model: Any, target: int | None = None) -> Array:
    """Return coefficients of size one, which have squares that are numbers."""
    dual_coef = model.dual_coef_.reshape(len(model.centers_), -1)
    dual_coef = dual_coef if target is None else dual_coef[:, [target]]
    return dual_coef / (float(np.max(np.abs(dual_coef))) or 1.0)


def _outer_product_at_centers(model: Any, dual_coef: Array) -> Array:
    # The kernels of tables take their time for every direction.
    rows = some_rows(len(model.centers_), len(model.centers_) * len(model.components_))
    return latent_outer_product(model, model.centers_[rows], dual_coef)


def spreads(model: Any) -> Array:
    """Return the standard deviation of each column over the centers."""
    size = np.max(np.abs(model.centers_), axis=0)
    size = np.where(size > 0, size, 1.0)  # the squares of very large numbers, or small ones, are none
    return np.std(model.centers_ / size, axis=0) * size


def scaled_map(model: Any) -> Array:
    """Return the map in units of the columns' spreads, its largest entry one: squares of its entries are numbers."""
    B = in_finite_numbers("directions", lambda: model.components_ * spreads(model), _CAUSE)
    return B / (float(np.max(np.abs(B))) or 1.0)


def loadings(model: Any) -> Array:
    """Return the directions in units of the columns' spreads, each of length one: what share a column has of each."""
    B = scaled_map(model)
    B = B / np.maximum(np.max(np.abs(B), axis=1, keepdims=True), np.finfo(np.float64).tiny)
    length = np.linalg.norm(B, axis=1, keepdims=True)
    return B / np.where(length > 0, length, 1.0)


def weights(model: Any) -> Array:
    """Return the weight of each direction, the largest being 1: the singular values of the map, or, where the kernel
    keeps its rows as they are and these are in another order, the lengths of its rows."""
    if model.kernel_.rotation_invariant:
        of_model: Array = model.singular_values_
        return of_model
    lengths = np.linalg.norm(scaled_map(model), axis=1)
    return lengths / (float(np.max(lengths)) or 1.0)


def column_names(model: Any) -> list[str]:
    """Return the names of the columns that the model was fitted with, or x0, x1, ... as in scikit-learn."""
    if hasattr(model, "feature_names_in_"):
        return [str(name) for name in model.feature_names_in_]
    return [f"x{j}" for j in range(model.n_features_in_)]
