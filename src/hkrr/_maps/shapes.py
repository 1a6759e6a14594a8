"""The shapes of a map: a full matrix, a diagonal matrix, a given map times one scale, or given directions with scales.

A shape converts its parameters into a map, and the gradient with respect to the map into the gradient with respect to
the parameters. `ShapedCriterion` expresses a criterion as a function of the parameters of a shape, so that one solver
can learn all shapes. Scales are parametrized by their logarithms, so that a step of the solver multiplies a scale by a
positive factor. A diagonal map is stored as the vector of its diagonal, so no D x D array is formed.
"""

from __future__ import annotations

import math
from dataclasses import replace
from enum import StrEnum
from typing import Any, Protocol

import numpy as np

from hkrr._base.linear_algebra import Array, project
from hkrr.criteria import Criterion, Grouped
from hkrr.kernels import Kernel
from hkrr.objective import Reduced

# Maximum absolute value of the logarithm of a scale. Larger values are clipped, because a line search may try scales
# for which the kernel overflows.
_LARGEST_LOG = 30.0


def _scales(logs: Array) -> tuple[Array, Array]:
    """Return exp(logs), with logs clipped to [-30, 30], and the derivative, which is zero where logs is clipped."""
    scales = np.exp(np.clip(logs, -_LARGEST_LOG, _LARGEST_LOG))
    return scales, np.where(np.abs(logs) < _LARGEST_LOG, scales, 0.0)


class ShapeName(StrEnum):
    """The names of the shapes. The attribute ``map_shape_`` of a model is one of these strings."""

    FULL = "full"
    DIAGONAL = "diagonal"
    IDENTITY = "identity"

    def describe(self, n_components: int) -> str:
        """Return a description of a map of this shape, such as "3 directions"."""
        if self == ShapeName.FULL:
            return f"{n_components:,} direction{'s' if n_components > 1 else ''}"
        return "one scale for all columns" if self == ShapeName.IDENTITY else "a scale for each column"


class Shape(Protocol):
    """Interface of the shapes of a map. A shape computes a map from its parameters."""

    name: ShapeName

    def parameters(self, B: Array) -> Array:
        """Return the parameters of the map B, as a matrix. For a diagonal map, B is the vector of its diagonal (D,)."""

    def map(self, parameters: Array) -> Array:
        """Return the map B (d, D) with the given parameters, or the diagonal (D,) of a diagonal map."""

    def gradient(self, parameters: Array, grad: Array) -> Array:
        """Return the gradient with respect to the parameters. `grad` is the gradient with respect to the map B."""

    def degrees_of_freedom(self, n_components: int, n_features: int, rotation_invariant: bool) -> float:
        """Return the number of identifiable parameters of a map with `n_components` rows and `n_features` columns.

        A full map has fewer identifiable parameters if the kernel is rotation invariant, because a rotation of B then
        does not change the model.
        """

    def n_parameters(self, B: Array) -> int:
        """Return the number of parameters of the map B, including those that only rotate it."""
        return int(self.degrees_of_freedom(len(B), B.shape[-1], False))

    def tangents(self, X: Array, B: Array, slopes: Array, most: int) -> Array:
        """Return the derivatives of f(x) = g(Bx) with respect to the p parameters at the n rows of X, shape (n, t, p).

        `slopes` (n, t, d) contains the gradients of the t targets of g. If p exceeds `most`, a random projection
        reduces the derivatives to `most` numbers and approximately preserves their inner products.
        """

    def prior_precision(self, B: Array) -> float:
        """Return the inverse of the prior variance of the parameters. For the logarithms of scales, it is 1."""
        return 1.0


def _random_projection(n_parameters: int, most: int, rng: np.random.RandomState) -> Array:
    return rng.standard_normal((n_parameters, most)) / math.sqrt(most)


class Full(Shape):
    """Any d x D matrix.

    It has ``d D`` identifiable parameters, or ``d D - d (d - 1) / 2`` if the kernel is rotation invariant.
    """

    name = ShapeName.FULL

    def parameters(self, B: Array) -> Array:
        return B

    def map(self, parameters: Array) -> Array:
        return parameters

    def gradient(self, parameters: Array, grad: Array) -> Array:
        return grad

    def degrees_of_freedom(self, n_components: int, n_features: int, rotation_invariant: bool) -> float:
        d = min(n_components, n_features)  # more than D rows of B are linearly dependent
        return n_components * n_features if not rotation_invariant else d * n_features - d * (d - 1) / 2

    def tangents(self, X: Array, B: Array, slopes: Array, most: int) -> Array:
        n, t, d = slopes.shape
        if B.size <= most:
            return (slopes[:, :, :, None] * X[:, None, None, :]).reshape(n, t, B.size)
        rng, J = np.random.RandomState(0), np.zeros((n, t, most))
        for k in range(d):
            J += slopes[:, :, k, None] * (X @ _random_projection(X.shape[1], most, rng))[:, None, :]
        return J

    def prior_precision(self, B: Array) -> float:
        return float(B.size / max(np.sum(B * B), np.finfo(np.float64).tiny))


def square_map_is_affordable(n_rows: float, n_free_columns: int, kernel: Kernel) -> bool:
    """Return whether a search should try a full map with as many directions as there are linearly independent columns.

    `n_free_columns` is the number of linearly independent columns (see `hkrr.rows.InMemoryRows.count_free_columns`). It
    must be at least two, and the kernel must be rotation invariant. The map must have fewer identifiable parameters
    than half the number of rows, because the scores of models penalize parameters and would never select a larger map.
    """
    if n_free_columns == 1 or not kernel.rotation_invariant:
        return False
    return Full().degrees_of_freedom(n_free_columns, n_free_columns, True) < n_rows / 2


class Diagonal(Shape):
    """Diagonal map ``B = diag(exp(p))``, with one scale per column.

    If `base` is given, only the columns where it is not zero have a scale. The scales of all other columns are zero.
    """

    name = ShapeName.DIAGONAL

    def __init__(self, base: Array | None = None) -> None:
        self.base = base
        self._columns = slice(None) if base is None else np.flatnonzero(base)

    def parameters(self, B: Array) -> Array:
        return np.log(B[self._columns])[None, :]

    def map(self, parameters: Array) -> Array:
        scales = _scales(parameters[0])[0]
        if self.base is None:
            return scales
        B = np.zeros(len(self.base))
        B[self._columns] = scales
        return B

    def gradient(self, parameters: Array, grad: Array) -> Array:
        return (grad[self._columns] * _scales(parameters[0])[1])[None, :]

    def degrees_of_freedom(self, n_components: int, n_features: int, rotation_invariant: bool) -> float:
        return n_features if self.base is None else min(n_features, int(np.count_nonzero(self.base)))

    def tangents(self, X: Array, B: Array, slopes: Array, most: int) -> Array:
        J = (slopes * project(X, B)[:, None, :])[:, :, self._columns]
        p = J.shape[2]
        return J if p <= most else J @ _random_projection(p, most, np.random.RandomState(0))


class Scaled(Shape):
    """A given map times a scale: ``B = exp(p) base``. The only parameter is p.

    If `base` is a vector of ones, the map is a multiple of the identity, and the model is plain kernel ridge
    regression.
    """

    name = ShapeName.IDENTITY

    def __init__(self, base: Array) -> None:
        self.base = base

    def parameters(self, B: Array) -> Array:
        return np.log([[float(np.sum(B * self.base)) / float(np.sum(self.base * self.base))]])

    def map(self, parameters: Array) -> Array:
        return float(_scales(parameters[0, 0])[0]) * self.base

    def gradient(self, parameters: Array, grad: Array) -> Array:
        return _scales(parameters)[1] * float(np.sum(grad * self.base))

    def degrees_of_freedom(self, n_components: int, n_features: int, rotation_invariant: bool) -> float:
        return 1.0

    def tangents(self, X: Array, B: Array, slopes: Array, most: int) -> Array:
        return np.sum(slopes * project(X, B)[:, None, :], axis=2, keepdims=True)


class ScaledRows(Full):
    """Full map ``B = diag(exp(p)) U`` with fixed directions.

    The directions are the rows of U: the rows of `base`, scaled to unit length. Only the scales exp(p) are learned, one
    for each direction.
    """

    def __init__(self, base: Array) -> None:
        length = np.linalg.norm(base, axis=1, keepdims=True)
        self.base = base / np.where(length > 0, length, 1.0)  # rows of zeros stay zero

    def parameters(self, B: Array) -> Array:
        length = np.linalg.norm(B, axis=1, keepdims=True)
        return np.log(np.where(length > 0, length, 1.0))

    def map(self, parameters: Array) -> Array:
        return _scales(parameters)[0] * self.base

    def gradient(self, parameters: Array, grad: Array) -> Array:
        return _scales(parameters)[1] * np.sum(grad * self.base, axis=1, keepdims=True)


def shape_key(shape: Shape) -> tuple[Any, ...]:
    """Return the values that identify a shape in the journal of a checkpoint (`hkrr._base.resume_journal`)."""
    return (type(shape).__name__, getattr(shape, "base", None))


class ShapedCriterion:
    """A criterion as a function of the parameters of a shape and of lambda.

    If the criterion can be minimized over lambda at little cost, each evaluation does so, and the result is a function
    of the parameters alone. L-BFGS then needs far fewer iterations: otherwise, it would have to follow a narrow valley
    in which lambda and the scale of the map change together.
    """

    def __init__(self, criterion: Criterion | Grouped, shape: Shape) -> None:
        self._criterion, self._shape = criterion, shape
        self.learn_lambda = not criterion.profiles_lambda
        self.reg_lambda, self.loss_at_zero = criterion.reg_lambda, criterion.loss_at_zero
        self.n_centers = criterion.n_centers

    @property
    def content(self) -> tuple[Any, ...]:
        """Values that identify the criterion in the journal of a checkpoint (`hkrr._base.resume_journal`)."""
        return (*shape_key(self._shape), self._criterion.content)

    def reduced(self, parameters: Array, reg_lambda: float | None = None) -> Reduced:
        """Return the criterion, its derivatives with respect to the parameters and log lambda, and the coefficients.

        If `reg_lambda` is None, the criterion is minimized over lambda.
        """
        B = self._shape.map(parameters)
        if reg_lambda is None:
            assert isinstance(self._criterion, Criterion)
            reduced = self._criterion.profiled(B)
        else:
            reduced = self._criterion.reduced(B, reg_lambda)
        return replace(reduced, grad=self._shape.gradient(parameters, reduced.grad))
