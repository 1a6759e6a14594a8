"""The objective of kernel logistic regression: values, gradients and the minimizer at a fixed map.

Let K be the kernel matrix between rows and centers, K_cc the kernel matrix of the centers, a the coefficients, b the
intercepts, w the sample weights and W their sum. The scores are ``f = K a + b``, and the objective is

    J(B, a, b) = sum_i w_i loss(y_i, f_i) / W  +  (nu / 2W) tr(a' K_cc a)  +  |b|^2 / 200W

For two classes, a has one column and the loss is log(1 + e^f) - y f. For more classes, a has one column per class and
the loss is log sum_k e^(f_k) - f_y. In terms of a Gaussian process, the scores have the prior covariance k / nu, and
the intercepts have the prior variance 100.

At a fixed map J is convex, and the penalty keeps the minimizer finite for separable data. The minimizer is computed by
`hkrr.estimators.classification.logistic_solver`.

The gradient of ``min over a, b of J`` with respect to B equals the gradient of J with respect to B at the minimizing
a and b. Let p be the predicted probabilities, X~ the centers, P = X B' and C = X~ B'. The gradient follows from

    dJ/dK = w (p - y) a' / W,   dJ/dK_cc = (nu / 2W) a a',   dJ/dB = dJ/dP' X + dJ/dC' X~

by the chain rule (`Kernel.vjp_low_rank`). A ridge of 1e-8 times the largest diagonal entry is always added to K_cc.
Without this ridge, components of the coefficients in the null space of K_cc would grow from one map to the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hkrr._base.linear_algebra import Array, jittered_cholesky, solve_triangular
from hkrr.estimators.classification.logistic_solver import INTERCEPT_PRECISION, minimize_coefficients, value_and_error
from hkrr.kernels import Kernel
from hkrr.rows import Rows

# Ridge that is added to K_cc, relative to the largest diagonal entry of K_cc.
_RIDGE = 1e-8


@dataclass(frozen=True)
class Coefficients:
    """The coefficients of the score function."""

    alpha: Array  # (n_centers, n_targets), of the kernels
    intercept: Array  # (n_targets,)
    scores: Array  # (n_rows, n_targets)


class LogisticObjective:
    """The objective J of the module docstring with given rows, centers and kernel.

    The targets of the rows are 0 or 1, with one column for two classes and K columns for K > 2 classes. The centers
    have the same units as the rows.
    """

    def __init__(self, rows: Rows, centers: Array, kernel: Kernel) -> None:
        self.rows, self.centers, self.kernel = rows, centers, kernel

    def value_and_gradient_in_map(self, B: Array, found: Coefficients, nu: float) -> tuple[float, Array]:
        """Return J, and its gradient with respect to B."""
        kernel, W, C = self.kernel, self.rows.total_weight, self.centers @ B.T

        def block(
            X: Array, Y: Array, w: Array | None, B: Array, C: Array, alpha: Array, b: Array
        ) -> tuple[Array, Array, Array]:
            K, pullback = kernel.vjp_low_rank(X @ B.T, C)
            value, error = value_and_error(K @ alpha + b, Y, w)
            dP, dC = pullback(error, alpha)
            return value, dP.T @ X, dC

        value, grad, dC = self.rows.sum(block, len(C), B, C, found.alpha, found.intercept)
        K_cc, pullback = kernel.vjp_low_rank(C, C)
        smooth = nu * (K_cc @ found.alpha + self._ridge(C) * found.alpha)
        value += 0.5 * (np.vdot(found.alpha, smooth) + INTERCEPT_PRECISION * found.intercept @ found.intercept)
        left, right = pullback(0.5 * nu * found.alpha, found.alpha)
        return float(value) / W, (grad + (dC + left + right).T @ self.centers) / W

    def solve(self, B: Array, nu: float, initial_scores: Array | None = None, tol: float = 1e-8) -> Coefficients:
        """Return the coefficients that minimize J at a fixed map.

        The solver starts from `initial_scores`, such as the scores at a similar map, or from zero scores if they are
        None. `tol` is the tolerance on the gradient, in coordinates in which the curvature is approximately the
        identity.
        """
        T, (X, Y, w) = self._whitening(B), self._arrays
        V = solve_triangular(T, self.kernel(X @ B.T, self.centers @ B.T).T)
        theta, scores = minimize_coefficients(V, Y, w, nu, initial_scores, tol)
        return Coefficients(solve_triangular(T, theta[:-1].copy(), transpose=True), theta[-1], scores)

    @cached_property
    def _arrays(self) -> tuple[Array, Array, Array | None]:
        return self.rows.gather()

    def _whitening(self, B: Array) -> Array:
        """Return T, the lower Cholesky factor of K_cc plus its ridge."""
        C = self.centers @ B.T
        return jittered_cholesky(self.kernel(C, C), self._ridge(C))[0]

    def _ridge(self, C: Array) -> float:
        """Return the ridge that is added to the diagonal of K_cc."""
        return _RIDGE * float(np.max(self.kernel.diagonal(C)))
