"""How far a column of few values moves the prediction: by the steps between its values.

Between two values of such a column there are no data, and what the function does there nobody asked for: with a kernel
of coordinates it is often flat at both values and steep in between, so that a gradient at the rows sees nothing of the
step, or far too much. Hence the steps themselves, to each value v that occurs, with its share p_v of the rows:

    ``move_j^2 = 1/2 mean_i sum_v p_v |f(x_i, its j-th entry set to v) - f(x_i)|^2``

Two draws of a column differ, in the square mean, by twice its variance: where f is linear in the column, ``move_j`` is
``|df/dx_j| std_j``, as by the gradient. (It is the root of Sobol's total index times the variance of f, by Jansen's
formula, and what permuting the column does to the predictions.)
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hkrr._arrays import Array
from hkrr.kernels import Coordinatewise, Kernel

_MOST_VALUES = 20  # beyond, neighbours are near enough for a gradient to know the steps
_FEWEST_ROWS, _MOST_ROWS = 200, 1_000  # that a mean is over: enough for two digits, where the work below allows it
_WORK = 100_000_000  # entries of kernel matrices, in all: a second or two
_BLOCK_ENTRIES = 2_000_000  # of one at once
_TINY = 1e-200  # a factor of a kernel below which dividing by it loses what is left


def some_rows(n_rows: int, work: int) -> Array:
    """Return the places of the rows that a mean is taken over, each of which costs so many entries; always the same."""
    wanted = min(max(_WORK // max(work, 1), _FEWEST_ROWS), _MOST_ROWS)
    return np.arange(n_rows) if n_rows <= wanted else np.random.RandomState(0).permutation(n_rows)[:wanted]


def columns_of_few_values(X: Array) -> dict[int, tuple[Array, Array]]:
    """Return the columns with 2 to 20 values, each there twice on average: the values, and their shares of the rows."""
    found = {}
    for j in range(X.shape[1]):
        values, counts = np.unique(X[:, j], return_counts=True)
        if 2 <= len(values) <= min(_MOST_VALUES, len(X) // 2):
            found[j] = (values, counts / len(X))
    return found


def moves_by_steps(model: Any, columns: dict[int, tuple[Array, Array]], dual_coef: Array) -> Array:
    """Return ``move_j`` for each of these columns, over the centers, of the function with these coefficients.

    Several targets count by the sum of their squares, and so do the probabilities of a classifier, which are taken of
    its own coefficients, and then by the same factor.
    """
    if not columns:
        return np.zeros(0)
    scale, B, centers = math.sqrt(model.kernel_.scale), model.components_, model.centers_
    C = scale * ((centers - model.x_offset_) @ B.T)
    kernel, alpha = model.kernel_.with_gamma(1.0), dual_coef.reshape(len(C), -1)
    n_steps = sum(len(values) - 1 for values, _ in columns.values())
    rows = some_rows(len(C), len(C) * n_steps)
    squares = np.zeros(len(columns))
    for block in np.array_split(rows, math.ceil(len(rows) * len(C) / _BLOCK_ENTRIES)):
        P, K = C[block], kernel(C[block], C)
        before = _predicted(model, K)
        for place, (j, (values, shares)) in enumerate(columns.items()):
            for value, share in zip(values, shares, strict=True):
                moved = centers[block, j] != value
                if not np.any(moved) or not np.any(B[:, j]):
                    continue
                step = scale * np.outer(value - centers[block[moved], j], B[:, j])
                after = _after(kernel, P[moved], C, K[moved], step)
                change = (after - K[moved]) @ alpha if before is None else _predicted(model, after) - before[moved]
                squares[place] += share * float(np.sum(change**2))
    return np.sqrt(squares / (2.0 * len(rows)))


def _predicted(model: Any, K: Array) -> Array | None:
    """Return what a link makes of the outputs, over the size of the coefficients; None where there is no link."""
    dual_coef = model.dual_coef_.reshape(K.shape[1], -1)
    linked: Array | None = model._linked(K @ dual_coef + model.intercept_)
    return None if linked is None else linked / (float(np.max(np.abs(dual_coef))) or 1.0)


def _after(kernel: Kernel, P: Array, C: Array, K: Array, step: Array) -> Array:
    """Return the kernel matrix of ``P + step``, where that of P is K."""
    changed = np.any(step != 0, axis=0)
    if isinstance(kernel, Coordinatewise) and not np.all(changed):
        # A product: the factors of coordinates that stay need not be computed again for every column.
        before = kernel(P[:, changed], C[:, changed])
        if np.min(before) > _TINY:
            return K / before * kernel((P + step)[:, changed], C[:, changed])
    return kernel(P + step, C)
