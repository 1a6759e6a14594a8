"""Kernel logistic regression on centers, and what its loss says of the map: sums over rows, as everything here.

    L(B, a, b) = sum_i w_i loss(y_i, f_i) / W  +  (nu / 2W) tr(a' K_cc a)  +  |b|^2 / 200W,      f = K a + b

with one column of a for two classes (loss log(1 + e^f) - y f), and one for each of more (log sum_k e^(f_k) - f_y). In
the terms of a Gaussian process 1/nu is the prior variance of the scores, and that of the constants is 100. At a map it
is convex; L-BFGS finds its minimum in coordinates in which its largest possible curvature is about the identity: with
T T' = K_cc and L L' = rho T^-1 K'WK T^-T + nu I, ``a = T^-T L^-T gamma``. For data that a score can separate the
penalty keeps the minimum finite. At the minimum the gradient in B is that of L (the envelope theorem), by the kernel's
pullback:

    dL/dK = w (p - y) a' / W,   dL/dK_cc = (nu / 2W) a a',   dL/dB = dL/dP' X + dL/dC' X~
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, log_softmax

from hkrr._arrays import EPS, Array, gram, jittered_cholesky, solve_triangular
from hkrr.kernels import Kernel
from hkrr.rows import Rows

_MAX_ITER, _MEMORY = 500, 20
_CONSTANT = 0.01  # precision of the constants


@dataclass(frozen=True)
class Coefficients:
    """Of the kernels at the centers, (c, T), and the constants, (T,)."""

    alpha: Array
    intercept: Array


def class_probabilities(F: Array) -> Array:
    """Return the probability of class 1 of two, from one column of scores, or of every class from K."""
    return expit(F) if F.shape[1] == 1 else np.exp(log_softmax(F, axis=1))


def losses(F: Array, Y: Array) -> Array:
    """Return each row's loss: minus the log probability of its class."""
    if F.shape[1] == 1:
        return np.asarray(np.logaddexp(0.0, F) - Y * F)[:, 0]
    return -np.sum(Y * log_softmax(F, axis=1), axis=1)


class LogisticObjective:
    """L(B, ., .) at one map.

    Parameters
    ----------
    rows : Rows
        Their targets are 0 or 1: one column for two classes, or one for each of more.
    centers : array (c, D) in the coordinates of the rows
    kernel : Kernel
    B : array (d, D)
    """

    def __init__(self, rows: Rows, centers: Array, kernel: Kernel, B: Array) -> None:
        self.rows, self.centers, self.kernel, self.B = rows, centers, kernel, B
        self.C = centers @ B.T
        self._K_cc = kernel(self.C, self.C)
        kappa = float(np.max(kernel.diagonal(self.C)))
        self._T, _ = jittered_cholesky(self._K_cc.copy(), 10.0 * EPS * len(centers) * kappa)

    def value_and_gradient(self, found: Coefficients, nu: float) -> tuple[float, Array, Array]:
        """Return L, and its gradients in alpha and the intercept."""
        kernel, W = self.kernel, self.rows.total_weight

        def block(
            X: Array, Y: Array, w: Array | None, B: Array, C: Array, alpha: Array, b: Array
        ) -> tuple[Array, Array, Array]:
            K = kernel(X @ B.T, C)
            value, error = _value_and_error(K @ alpha + b, Y, w)
            return value, K.T @ error, np.sum(error, axis=0)

        value, by_alpha, by_b = self.rows.sum(block, len(self.C), self.B, self.C, found.alpha, found.intercept)
        smooth = nu * (self._K_cc @ found.alpha)
        constant = _CONSTANT * found.intercept
        value += 0.5 * (np.vdot(found.alpha, smooth) + found.intercept @ constant)
        return float(value) / W, (by_alpha + smooth) / W, (by_b + constant) / W

    def value_and_gradient_in_map(self, found: Coefficients, nu: float) -> tuple[float, Array]:
        """Return L and dL/dB."""
        kernel, W = self.kernel, self.rows.total_weight

        def block(
            X: Array, Y: Array, w: Array | None, B: Array, C: Array, alpha: Array, b: Array
        ) -> tuple[Array, Array, Array]:
            K, pullback = kernel.vjp_low_rank(X @ B.T, C)
            value, error = _value_and_error(K @ alpha + b, Y, w)
            dP, dC = pullback(error, alpha)
            return value, dP.T @ X, dC

        value, grad, dC = self.rows.sum(block, len(self.C), self.B, self.C, found.alpha, found.intercept)
        K_cc, pullback = kernel.vjp_low_rank(self.C, self.C)
        value += 0.5 * (nu * np.vdot(found.alpha, K_cc @ found.alpha) + _CONSTANT * found.intercept @ found.intercept)
        left, right = pullback(0.5 * nu * found.alpha, found.alpha)
        return float(value) / W, (grad + (dC + left + right).T @ self.centers) / W

    def solve(self, nu: float, start: Coefficients | None = None, tol: float = 1e-8) -> Coefficients:
        """Return the minimiser, up to a gradient of ``tol`` in those coordinates."""
        T, c, factor = self.rows.n_targets, len(self.C), self._curvature(nu)

        def unpack(theta: Array) -> Coefficients:
            beta = solve_triangular(factor, theta[: c * T].reshape(c, T).copy(), transpose=True)
            return Coefficients(solve_triangular(self._T, beta, transpose=True), theta[c * T :])

        def value_and_gradient(theta: Array) -> tuple[float, Array]:
            value, by_alpha, by_b = self.value_and_gradient(unpack(theta), nu)
            by_gamma = solve_triangular(factor, solve_triangular(self._T, by_alpha))
            return value, np.concatenate([by_gamma.ravel(), by_b])

        first = np.zeros(c * T + T)
        if start is not None:
            first = np.concatenate([(factor.T @ (self._T.T @ start.alpha)).ravel(), start.intercept])
        options: dict[str, Any] = {"maxiter": _MAX_ITER, "maxcor": _MEMORY, "ftol": 0.0, "gtol": tol}
        return unpack(minimize(value_and_gradient, first, jac=True, method="L-BFGS-B", options=options).x)

    def _curvature(self, nu: float) -> Array:
        """Return the lower factor of a typical Hessian in whitened coefficients, over W."""
        kernel, T = self.kernel, self.rows.n_targets

        def block(X: Array, Y: Array, w: Array | None, B: Array, C: Array, T: Array) -> tuple[Array]:
            K = kernel(X @ B.T, C)
            if w is not None:
                K *= np.sqrt(w)[:, None]
            return (gram(solve_triangular(T, K.T).T),)

        (VV,) = self.rows.sum(block, len(self.C), self.B, self.C, self._T)
        rho = 0.25 if T == 1 else (T - 1.0) / T**2  # p (1 - p) of classes that are alike
        return jittered_cholesky(rho / self.rows.total_weight * VV, nu / self.rows.total_weight)[0]


def _value_and_error(F: Array, Y: Array, w: Array | None) -> tuple[Array, Array]:
    """Return the sum of the weighted losses, and their gradients in the scores."""
    each, error = losses(F, Y), class_probabilities(F) - Y
    return (np.sum(each), error) if w is None else (w @ each, w[:, None] * error)
