"""The shapes a map may have: a full matrix, a diagonal one, a multiple of a given one or of each of its rows.

A shape turns its parameters into a map, and a gradient in the map into one in the parameters. `Shaped` is a criterion
seen through a shape, so that the same solver learns them all. Scales are learned through their logarithms: the steps
that suit them are relative ones. A diagonal map is held as its diagonal, a vector: nothing of size D x D.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from hkrr._arrays import Array
from hkrr.kernels import Kernel
from hkrr.objective import Reduced

# Logarithms of scales beyond this are held there: a line search may try what no kernel can be evaluated at.
_LARGEST_LOG = 30.0


def _scales(logs: Array) -> tuple[Array, Array]:
    """Return exp(logs), the logs held within their bounds, and its derivative."""
    scales = np.exp(np.clip(logs, -_LARGEST_LOG, _LARGEST_LOG))
    return scales, np.where(np.abs(logs) < _LARGEST_LOG, scales, 0.0)


class Shape(Protocol):
    """What a shape is."""

    name: str

    def parameters(self, B: Array) -> Array:
        """Return the parameters of a map of this shape, a matrix."""

    def map(self, parameters: Array) -> Array:
        """Return the map B (d, D), or the diagonal of one (D,)."""

    def gradient(self, parameters: Array, grad: Array) -> Array:
        """Return the gradient in the parameters from the one in B."""

    def degrees_of_freedom(self, n_components: int, n_features: int, rotation_invariant: bool) -> float:
        """Return how many parameters the data can see."""


class Full:
    """Any d x D matrix: ``d D - d (d - 1) / 2`` parameters where rotations change nothing, d D otherwise."""

    name = "full"

    def parameters(self, B: Array) -> Array:
        return B

    def map(self, parameters: Array) -> Array:
        return parameters

    def gradient(self, parameters: Array, grad: Array) -> Array:
        return grad

    def degrees_of_freedom(self, n_components: int, n_features: int, rotation_invariant: bool) -> float:
        d = min(n_components, n_features)  # of more directions than columns the others are combinations
        return n_components * n_features if not rotation_invariant else d * n_features - d * (d - 1) / 2


def square_is_affordable(n_rows: float, n_features: int, kernel: Kernel) -> bool:
    """Whether a map of all D directions has fewer parameters than half the rows: no score would take it otherwise.

    For a radial kernel: for others the columns' scales are all that such a map is about.
    """
    if n_features == 1 or not kernel.rotation_invariant:
        return False
    return Full().degrees_of_freedom(n_features, n_features, True) < n_rows / 2


class Diagonal:
    """``B = diag(exp(p))``, a scale for each column: D parameters."""

    name = "diagonal"

    def parameters(self, B: Array) -> Array:
        return np.log(B)[None, :]

    def map(self, parameters: Array) -> Array:
        return _scales(parameters[0])[0]

    def gradient(self, parameters: Array, grad: Array) -> Array:
        return (grad * _scales(parameters[0])[1])[None, :]

    def degrees_of_freedom(self, n_components: int, n_features: int, rotation_invariant: bool) -> float:
        return n_features


class Scaled:
    """``B = exp(p) base``: one parameter. With ones (the identity) for its base, plain kernel ridge regression."""

    name = "identity"

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


class ScaledRows(Full):
    """``B = diag(exp(p)) base``: a scale for each of the directions of a full map, which are held."""

    def __init__(self, base: Array) -> None:
        length = np.linalg.norm(base, axis=1, keepdims=True)
        self.base = base / np.where(length > 0, length, 1.0)  # a direction of no length has no scale

    def parameters(self, B: Array) -> Array:
        length = np.linalg.norm(B, axis=1, keepdims=True)
        return np.log(np.where(length > 0, length, 1.0))

    def map(self, parameters: Array) -> Array:
        return _scales(parameters)[0] * self.base

    def gradient(self, parameters: Array, grad: Array) -> Array:
        return _scales(parameters)[1] * np.sum(grad * self.base, axis=1, keepdims=True)


def content_of(shape: Shape) -> tuple[Any, ...]:
    """Return what a shape is, for the keys of a journal."""
    return (type(shape).__name__, getattr(shape, "base", None))


class Shaped:
    """A criterion as a function of the parameters of a shape, for a solver that learns lambda too."""

    learn_lambda = True

    def __init__(self, criterion: Any, shape: Shape) -> None:
        self._criterion, self._shape = criterion, shape
        self.reg_lambda, self.loss_at_zero = criterion.reg_lambda, criterion.loss_at_zero
        self.n_centers = criterion.n_centers

    @property
    def content(self) -> tuple[Any, ...]:
        """What its values depend on, for the keys of a journal."""
        return (*content_of(self._shape), self._criterion.content)

    def reduced(self, parameters: Array, reg_lambda: float) -> Reduced:
        """Return the criterion, its derivatives in the parameters and in log lambda, and the coefficients."""
        reduced: Reduced = self._criterion.reduced(self._shape.map(parameters), reg_lambda)
        return replace(reduced, grad=self._shape.gradient(parameters, reduced.grad))
