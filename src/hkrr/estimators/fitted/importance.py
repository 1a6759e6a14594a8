"""Feature importances, and the directions of a fitted map in terms of the columns.

The effect of a column is the root mean square change of the prediction when the column changes by a typical amount and
all other columns stay fixed. The importances are the effects of all columns, divided by their sum. The effect of a
column is computed in one of two ways.

From gradients. The gradient of ``f(x) = g(Bx)`` is ``B' grad g(Bx)``. The average outer product of this gradient over
the rows is

    ``G = mean_i grad f(x_i) grad f(x_i)' = B' M B,    M = mean_i grad g(B x_i) grad g(B x_i)'``

where M is a d x d matrix. The effect of column j is ``sqrt(G_jj)`` times the standard deviation of the column. For
several targets, G is the sum over the targets.

From finite differences, for columns with few distinct values. Gradients describe small changes, but there are no data
between two values of such a column. With a product kernel the function is often flat at both values and steep in
between. A gradient at the rows then misses the jump or exaggerates it. The jumps themselves are used instead:

    ``effect_j^2 = 1/2 mean_i sum_v p_v |f(x_i with its j-th entry set to v) - f(x_i)|^2``

Here p_v is the fraction of the rows that have the value v in column j.

The factor 1/2 makes both kinds of effects comparable: the mean squared difference between two random draws from a
column is twice the variance of the column. If f is linear in the column, the effect is therefore ``|df/dx_j| std_j``,
as for gradients. If the column is independent of all other columns, the squared effect is also Sobol's total index
times the variance of f (Jansen's formula). In any case, the squared effect is half the expected mean squared change of
the predictions when the column is permuted at random.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted, validate_data

from hkrr._base.checks import require_finite
from hkrr._base.linear_algebra import Array, project, scaled_squared_distances
from hkrr._maps import map_row
from hkrr.estimators.fitted.fitted_attributes import FittedMap, kernel_expansion, transformed_columns
from hkrr.kernels import Coordinatewise, Kernel, Radial
from hkrr.kernels.expansion_values import kernel_and_slopes

# Likely cause of values that are not finite, used in error messages.
_CAUSE = "the units of X are too large or too small"
# Maximum number of entries of a kernel matrix in memory. Larger matrices are computed in blocks of rows.
_BLOCK_ENTRIES = 2_000_000
# The effect of a column is computed from finite differences if the column has at most this many distinct values, and
# from gradients otherwise. With more values, neighbouring values are close together, and gradients are accurate.
_MAX_VALUES = 20
# If there are many centers, gradients are averaged over a random sample of the centers. These are the minimum and the
# maximum size of the sample. The averages are accurate to about two digits.
_MIN_ROWS, _MAX_ROWS = 200, 1_000
# Maximum number of kernel entries that are computed for a sample of the centers. Computing this many entries takes one
# or two seconds. If this maximum would allow fewer than 200 centers in the sample, 200 centers are used.
_MAX_ENTRIES = 100_000_000
# A product kernel has one factor for each coordinate. If some coordinates of the points change, the kernel matrix is
# divided by the old factors of these coordinates and multiplied by the new factors. This is only done if all products
# of the old factors exceed this number, because smaller numbers may have underflowed. Otherwise the matrix is computed
# again from all coordinates.
_MIN_FACTOR = 1e-200


class FeatureImportancesMixin(FittedMap):
    """Mixin for fitted models that adds ``feature_importances_``."""

    @property
    def feature_importances_(self) -> Array:
        """Effects of the columns on the predictions before truncation, divided by their sum.

        The effect of a column is its standard deviation times the root mean square slope of the predictions along the
        column. For columns with at most 20 distinct values, finite differences are used instead of slopes (see
        `hkrr.estimators.fitted.importance`). Standard deviations are over the centers. Mean squares are over the
        centers too, or over a sample of 200 to 1,000 centers if there are more. Centers are training rows, or cluster
        means of training rows with ``centers="kmeans"``. Centers drawn by leverage scores overrepresent the edges of
        the data. `average_gradient_outer_product` averages over any given rows instead. For several targets, the
        squared effects on the targets are added, so targets with a large variance dominate, as in `fit`. All
        importances are zero if the function is constant.
        """
        check_is_fitted(self)
        return importances(self)


def average_gradient_outer_product(model: FittedMap, X: Any) -> Array:
    """Return ``G = mean_i grad f(x_i) grad f(x_i)'`` over the rows of X, in the original units of X.

    If the model transforms the columns (``column_transform_`` is not None), G is in the units of the transformed
    columns.

    The eigenvectors of G with the largest eigenvalues are the directions along which the predictions change most.
    ``sqrt(G_jj)`` is the root mean square slope along column j. For several targets, G is the sum over the targets.
    Some kernels, such as the Laplace kernel, are not differentiable at their center. If a row of X coincides with a
    center of such a kernel, the gradient at this row omits the term of that center.

    Parameters
    ----------
    model : HyperKernelRidge or HyperKernelRidgeCV
        A fitted model, or a member of a `HyperKernelEnsemble` or `HyperKernelClassifier`.
    X : array or data frame (n_samples, n_features)
        Rows at which the gradients are computed.

    Returns
    -------
    array (n_features, n_features)

    Examples
    --------
    >>> import numpy as np
    >>> from hkrr import HyperKernelRidge
    >>> from hkrr.estimators import average_gradient_outer_product
    >>> X = np.random.default_rng(0).normal(size=(200, 5))
    >>> model = HyperKernelRidge(1, random_state=0).fit(X, np.sin(X[:, 2]))
    >>> G = average_gradient_outer_product(model, X)
    >>> int(np.argmax(np.diag(G))), model.feature_importances_.round(1)
    (2, array([0., 0., 1., 0., 0.]))
    """
    check_is_fitted(model)
    X = transformed_columns(model, validate_data(model, X, reset=False, dtype=np.float64))
    B = math.sqrt(model.kernel_.scale) * model.map_
    M = _latent_outer_product(model, X, model.dual_coef_)
    G: Array = B[:, None] * M * B if B.ndim == 1 else B.T @ M @ B
    return G


def importances(model: FittedMap, target: int | None = None) -> Array:
    """Return ``feature_importances_``, or the importances for a single target if `target` is its index."""
    return require_finite("importances", lambda: _importances(model, target), _CAUSE)


def _importances(model: FittedMap, target: int | None) -> Array:
    dual_coef = _normalized_coefficients(model, target)
    B = math.sqrt(model.kernel_.scale) * model.map_ * column_stds(model)
    if B.ndim == 1:
        effects = mean_slopes(model, _sampled_centers(model), target) * np.abs(B)
    else:
        M = _latent_outer_product(model, _sampled_centers(model), dual_coef)
        # Rounding errors can make a sum of squares negative.
        effects = np.sqrt(np.maximum(np.sum(B * (M @ B), axis=0), 0.0))
    few = columns_with_few_values(model.centers_)
    effects[list(few)] = finite_difference_effects(model, few, dual_coef)
    total = float(np.sum(effects))
    return effects / total if total > 0 else effects


def direction_effects(model: FittedMap, latent_std: Array) -> Array:
    """Return the effect of each direction on the predictions, up to a common factor.

    The effect is the root mean square slope of the predictions along the direction, times the standard deviation of the
    latent coordinate, which is an entry of `latent_std`. If each direction is a single column, the effect is the
    importance of that column.
    """
    if has_single_columns(model):
        return single_column_effects(model, importances(model))
    return mean_slopes(model, _sampled_centers(model)) * latent_std


def has_single_columns(model: FittedMap) -> bool:
    """Return whether each direction has at most one column with a nonzero entry, as for a diagonal map."""
    return model.map_.ndim == 1 or bool(np.all(np.count_nonzero(model.map_, axis=1) <= 1))


def single_column_effects(model: FittedMap, by_column: Array) -> Array:
    """Return the effect of each direction of a map whose directions have at most one nonzero entry.

    The effect of a direction is the effect of its only column. `by_column` contains the effects of the columns.
    """
    return np.asarray(project(by_column, model.map_ != 0))


def _normalized_coefficients(model: FittedMap, target: int | None = None) -> Array:
    """Return the coefficients divided by their largest absolute value, so that their squares do not overflow."""
    dual_coef = model.dual_coef_.reshape(len(model.centers_), -1)
    dual_coef = dual_coef if target is None else dual_coef[:, [target]]
    return dual_coef / (float(np.max(np.abs(dual_coef))) or 1.0)


def _in_kernel_units(model: FittedMap, X: Array) -> Array:
    """Return the latent coordinates ``sqrt(gamma) B x``. In these units gamma is 1, and slopes do not overflow."""
    return math.sqrt(model.kernel_.scale) * kernel_expansion(model).latent(X)


def _sample_rows(n_rows: int, entries_per_row: int) -> Array:
    """Return the indices of the rows that a mean uses: all rows, or a sample drawn with a fixed seed.

    The size of the sample depends on `entries_per_row`, the number of kernel entries to compute for each row.
    """
    size = min(max(_MAX_ENTRIES // max(entries_per_row, 1), _MIN_ROWS), _MAX_ROWS)
    return np.arange(n_rows) if n_rows <= size else np.random.RandomState(0).permutation(n_rows)[:size]


def _sampled_centers(model: FittedMap) -> Array:
    # Evaluating a coordinatewise kernel takes time proportional to the number of directions. Each kernel entry is
    # therefore counted once per direction.
    return model.centers_[_sample_rows(len(model.centers_), len(model.centers_) * len(model.map_))]


def mean_slopes(model: FittedMap, X: Array, target: int | None = None) -> Array:
    """Return the root mean square slope along each direction, averaged over the rows of X, up to a common factor."""
    all_slopes = _latent_slopes(model, X, _normalized_coefficients(model, target))
    return np.sqrt(sum(np.sum(slopes**2, axis=0) for slopes in all_slopes) / len(X))  # sqrt(M_kk), without forming M


def _latent_outer_product(model: FittedMap, X: Array, dual_coef: Array) -> Array:
    """Return the matrix M of the module docstring, averaged over the rows of X, in the units of `_in_kernel_units`."""
    return sum(slopes.T @ slopes for slopes in _latent_slopes(model, X, dual_coef)) / len(X)


def _latent_slopes(model: FittedMap, X: Array, dual_coef: Array) -> Iterator[Array]:
    """Yield the slopes (n * n_targets, n_components) of all targets, for blocks of X.

    The slopes are derivatives with respect to the latent coordinates of `_in_kernel_units`.
    """
    P, C = _in_kernel_units(model, X), _in_kernel_units(model, model.centers_)
    kernel, alpha = model.kernel_.with_gamma(1.0), dual_coef.reshape(len(C), -1)
    n_rows = max(1, _BLOCK_ENTRIES // len(C))
    for start in range(0, len(P), n_rows):
        slopes = kernel_and_slopes(kernel, P[start : start + n_rows], C, alpha)[1]
        yield slopes.reshape(-1, P.shape[1])


def columns_with_few_values(X: Array) -> dict[int, tuple[Array, Array]]:
    """Return the distinct values of each column with few values, and the fraction of the rows with each value.

    The keys are the indices of the columns. A column has few values if it has 2 to 20 distinct values, each of which
    occurs at least twice on average.
    """
    found = {}
    for j in range(X.shape[1]):
        values, counts = np.unique(X[:, j], return_counts=True)
        if 2 <= len(values) <= min(_MAX_VALUES, len(X) // 2):
            found[j] = (values, counts / len(X))
    return found


def finite_difference_effects(model: FittedMap, columns: dict[int, tuple[Array, Array]], dual_coef: Array) -> Array:
    """Return the effect of each column in `columns`, averaged over the centers.

    `columns` is the result of `columns_with_few_values`, and `dual_coef` are the coefficients, divided by their largest
    absolute value. The squared effects on several targets are added.
    """
    if not columns:
        return np.zeros(0)
    scale, centers = math.sqrt(model.kernel_.scale), model.centers_
    C = _in_kernel_units(model, centers)
    kernel, alpha = model.kernel_.with_gamma(1.0), dual_coef.reshape(len(C), -1)
    radial = kernel if isinstance(kernel, Radial) else None
    if radial is not None:
        C = C - np.mean(C, axis=0)  # smaller norms reduce the cancellation in the squared distances
    n_steps = sum(len(values) - 1 for values, _ in columns.values())
    rows = _sample_rows(len(C), len(C) * n_steps)
    squares = np.zeros(len(columns))
    for block in np.array_split(rows, math.ceil(len(rows) * len(C) / _BLOCK_ENTRIES)):
        P, K = C[block], kernel(C[block], C)
        u = None if radial is None else scaled_squared_distances(P, C, 1.0)
        for place, (j, (values, shares)) in enumerate(columns.items()):
            column = map_row(model.map_.T, j)  # column j of the map
            for value, share in zip(values, shares, strict=True):
                moved = centers[block, j] != value
                if not np.any(moved) or not np.any(column):
                    continue
                step = scale * (value - centers[block[moved], j])
                if radial is not None and u is not None:
                    K_after = radial.value(_shifted_distances(u[moved], P[moved] @ column, C @ column, step, column))
                else:
                    K_after = _shifted_kernel(kernel, P[moved], C, K[moved], np.outer(step, column))
                change = (K_after - K[moved]) @ alpha
                squares[place] += share * float(np.sum(change**2))
    return np.sqrt(squares / (2.0 * len(rows)))


def _shifted_distances(u: Array, p: Array, c: Array, step: Array, column: Array) -> Array:
    """Return the squared distances between points moved by ``step column'`` and the centers.

    `u` contains the squared distances between the points P and the centers C before. `p` and `c` are ``P column`` and
    ``C column``. This takes less time than computing the distances again, above all if there are many directions.
    """
    u = u + 2.0 * step[:, None] * (p[:, None] - c) + (column @ column * step**2)[:, None]
    return np.abs(u, out=u)  # rounding can make small entries negative


def _shifted_kernel(kernel: Kernel, P: Array, C: Array, K: Array, step: Array) -> Array:
    """Return the kernel matrix between ``P + step`` and C, given the kernel matrix K between P and C."""
    changed = np.any(step != 0, axis=0)
    if isinstance(kernel, Coordinatewise) and not np.all(changed):
        # The kernel is a product over coordinates, so only the factors of changed coordinates are computed again.
        before = kernel(P[:, changed], C[:, changed])
        if np.min(before) > _MIN_FACTOR:
            return K / before * kernel((P + step)[:, changed], C[:, changed])
    return kernel(P + step, C)


def column_stds(model: FittedMap) -> Array:
    """Return the standard deviation of each column over the centers."""
    size = np.max(np.abs(model.centers_), axis=0)
    # Dividing by the largest entry avoids overflow and underflow of the squares.
    size = np.where(size > 0, size, 1.0)
    return np.std(model.centers_ / size, axis=0) * size


def _standardized_map(model: FittedMap) -> Array:
    """Return the map for standardized columns, divided by its largest absolute entry. A diagonal map is a vector."""
    B = require_finite("directions", lambda: model.map_ * column_stds(model), _CAUSE)
    return B / (float(np.max(np.abs(B))) or 1.0)


def loadings(model: FittedMap) -> Array:
    """Return the directions for standardized columns, each scaled to length 1.

    The square of a loading is the fraction that the column contributes to the squared length of the direction. If the
    map is stored as the vector of a diagonal map, the result is a vector too: direction k is column k, and its loading
    is 1, -1 or 0.
    """
    B = _standardized_map(model)
    if B.ndim == 1:
        return np.sign(B)
    B = B / np.maximum(np.max(np.abs(B), axis=1, keepdims=True), np.finfo(np.float64).tiny)
    length = np.linalg.norm(B, axis=1, keepdims=True)
    return B / np.where(length > 0, length, 1.0)


def largest_loadings(row: Array, most: int | None = None) -> Array:
    """Return the indices of the largest nonzero loadings in a row of `loadings`, in decreasing absolute value."""
    order = np.argsort(-np.abs(row), kind="stable")[:most]
    return order[row[order] != 0]


def direction_weights(model: FittedMap) -> Array:
    """Return the weight of each direction; the largest weight is 1.

    For rotation-invariant kernels the weights are the singular values of the map. For other kernels the rows of the map
    are not its singular vectors, and the weights are the lengths of the rows for standardized columns.
    """
    if model.kernel_.rotation_invariant:
        return model.singular_values_
    B = _standardized_map(model)
    lengths = np.abs(B) if B.ndim == 1 else np.linalg.norm(B, axis=1)
    return lengths / (float(np.max(lengths)) or 1.0)


def column_names(model: FittedMap) -> list[str]:
    """Return the column names of the training data, or x0, x1, ... as in scikit-learn if they had no names."""
    if hasattr(model, "feature_names_in_"):
        return [str(name) for name in model.feature_names_in_]
    return [f"x{j}" for j in range(model.n_features_in_)]
