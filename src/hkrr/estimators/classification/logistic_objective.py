"""Kernel logistic regression on centers, and what its loss says of the map: sums over rows, as everything here.

    L(B, a, b) = sum_i w_i loss(y_i, f_i) / W  +  (nu / 2W) tr(a' K_cc a)  +  |b|^2 / 200W,      f = K a + b

with one column of a for two classes (loss log(1 + e^f) - y f), and one for each of more (log sum_k e^(f_k) - f_y). In
the terms of a Gaussian process 1/nu is the prior variance of the scores, and that of the constants is 100. At a map it
is convex: `hkrr.classification.logistic_solve` finds its minimum; where there are so many rows that their kernel matrix
is not kept, L-BFGS does, in coordinates in which its curvature is about the identity: with T T' = K_cc and
L L' = T^-1 K'w p (1 - p) K T^-T + nu I, ``a = T^-T L^-T gamma``. For data that a score can separate the penalty keeps
the minimum finite. There, the gradient in B of ``min over a, b of L`` is that of L, by the kernel's pullback (K_cc has
a ridge of 1e-8 kappa wherever it stands: what the kernel does not see of the coefficients would otherwise grow from map
to map):

    dL/dK = w (p - y) a' / W,   dL/dK_cc = (nu / 2W) a a',   dL/dB = dL/dP' X + dL/dC' X~
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.optimize import minimize

from hkrr._arrays import Array, gram, jittered_cholesky, solve_triangular
from hkrr.classification.logistic_solve import CONSTANT, MAX_ITER, MEMORY, curvatures, minimiser, value_and_error
from hkrr.kernels import Kernel
from hkrr.rows import Rows

_RIDGE = 1e-8
_HELD = 4_000_000  # entries of a kernel matrix that is kept while the coefficients are solved for


@dataclass(frozen=True)
class Coefficients:
    """Of the kernels at the centers, (c, T), the constants, (T,), and the scores (n, T) where they were held."""

    alpha: Array
    intercept: Array
    scores: Array | None = None


class LogisticObjective:
    """L for given rows, centers and kernel.

    Parameters
    ----------
    rows : Rows
        Their targets are 0 or 1: one column for two classes, or one for each of more.
    centers : array (c, D) in the coordinates of the rows
    kernel : Kernel
    """

    def __init__(self, rows: Rows, centers: Array, kernel: Kernel) -> None:
        self.rows, self.centers, self.kernel = rows, centers, kernel

    def value_and_gradient(self, B: Array, found: Coefficients, nu: float) -> tuple[float, Array, Array]:
        """Return L, and its gradients in alpha and the intercept."""
        kernel, W, C = self.kernel, self.rows.total_weight, self.centers @ B.T

        def block(
            X: Array, Y: Array, w: Array | None, B: Array, C: Array, alpha: Array, b: Array
        ) -> tuple[Array, Array, Array]:
            K = kernel(X @ B.T, C)
            value, error = value_and_error(K @ alpha + b, Y, w)
            return value, K.T @ error, np.sum(error, axis=0)

        value, by_alpha, by_b = self.rows.sum(block, len(C), B, C, found.alpha, found.intercept)
        smooth = nu * (kernel(C, C) @ found.alpha + self._ridge(C) * found.alpha)
        constant = CONSTANT * found.intercept
        value += 0.5 * (np.vdot(found.alpha, smooth) + found.intercept @ constant)
        return float(value) / W, (by_alpha + smooth) / W, (by_b + constant) / W

    def value_and_gradient_in_map(self, B: Array, found: Coefficients, nu: float) -> tuple[float, Array]:
        """Return L and dL/dB."""
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
        value += 0.5 * (np.vdot(found.alpha, smooth) + CONSTANT * found.intercept @ found.intercept)
        left, right = pullback(0.5 * nu * found.alpha, found.alpha)
        return float(value) / W, (grad + (dC + left + right).T @ self.centers) / W

    def solve(self, B: Array, nu: float, near: Array | None = None, tol: float = 1e-8) -> Coefficients:
        """Return the minimiser at a map, up to a gradient of ``tol`` in coordinates of unit curvature.

        ``near`` are scores of the rows to begin near, as those at a map near by; of many rows they are not looked at.
        """
        if self.rows.n_rows * len(self.centers) <= _HELD:
            return self._solve_held(B, nu, near, tol)
        at = self._coordinates(B, nu)

        def value_and_gradient(theta: Array) -> tuple[float, Array]:
            value, by_alpha, by_b = self.value_and_gradient(B, at.unpack(theta), nu)
            return value, at.pull(by_alpha, by_b)

        begin = np.zeros((len(self.centers) + 1) * self.rows.n_targets)
        options: dict[str, Any] = {"maxiter": MAX_ITER, "maxcor": MEMORY, "ftol": 0.0, "gtol": tol}
        return at.unpack(minimize(value_and_gradient, begin, jac=True, method="L-BFGS-B", options=options).x)

    def _solve_held(self, B: Array, nu: float, near: Array | None, tol: float) -> Coefficients:
        T, (X, Y, w) = self._whitening(B), self._everything
        V = solve_triangular(T, self.kernel(X @ B.T, self.centers @ B.T).T)
        theta, scores = minimiser(V, Y, w, nu, near, tol)
        return Coefficients(solve_triangular(T, theta[:-1].copy(), transpose=True), theta[-1], scores)

    @cached_property
    def _everything(self) -> tuple[Array, Array, Array | None]:
        return self.rows.gather()

    def _coordinates(self, B: Array, nu: float) -> Coordinates:
        """Return the coordinates of the coefficients that suit this map and nu, by the curvature at scores of zero."""
        kernel, n_targets, C, T = self.kernel, self.rows.n_targets, self.centers @ B.T, self._whitening(B)

        def block(X: Array, Y: Array, w: Array | None, B: Array, C: Array, T: Array) -> tuple[Array]:
            K = kernel(X @ B.T, C)
            curvature = curvatures(np.zeros_like(Y))
            K *= np.sqrt(curvature if w is None else w * curvature)[:, None]
            return (gram(solve_triangular(T, K.T).T),)

        (VV,) = self.rows.sum(block, len(C), B, C, T)
        W = self.rows.total_weight
        return Coordinates(T, jittered_cholesky(VV / W, nu / W)[0], n_targets)

    def _whitening(self, B: Array) -> Array:
        """Return T, the lower factor of K_cc and its ridge."""
        C = self.centers @ B.T
        return jittered_cholesky(self.kernel(C, C), self._ridge(C))[0]

    def _ridge(self, C: Array) -> float:
        """Return what is added to the diagonal of K_cc."""
        return _RIDGE * float(np.max(self.kernel.diagonal(C)))


@dataclass(frozen=True)
class Coordinates:
    """``gamma = L' T' alpha`` and the intercept, as one vector."""

    T: Array
    L: Array
    n_targets: int

    def unpack(self, theta: Array) -> Coefficients:
        """Return the coefficients."""
        gamma, intercept = theta[: -self.n_targets].reshape(-1, self.n_targets), theta[-self.n_targets :]
        beta = solve_triangular(self.L, gamma.copy(), transpose=True)
        return Coefficients(solve_triangular(self.T, beta, transpose=True), intercept)

    def pull(self, by_alpha: Array, by_intercept: Array) -> Array:
        """Return the gradient in the vector."""
        by_gamma = solve_triangular(self.L, solve_triangular(self.T, by_alpha))
        return np.concatenate([by_gamma.ravel(), by_intercept])
