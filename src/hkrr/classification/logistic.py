"""Kernel logistic regression on centers, and what its loss says of the map: sums over rows, as everything here.

    L(B, a, b) = sum_i w_i loss(y_i, f_i) / W  +  (nu / 2W) tr(a' K_cc a)  +  |b|^2 / 200W,      f = K a + b

with one column of a for two classes (loss log(1 + e^f) - y f), and one for each of more (log sum_k e^(f_k) - f_y). In
the terms of a Gaussian process 1/nu is the prior variance of the scores, and that of the constants is 100. At a map it
is convex: Newton's method finds its minimum, or, for large systems, L-BFGS in coordinates in which its curvature is
about the identity: with T T' = K_cc and L L' = T^-1 K'w p (1 - p) K T^-T + nu I, ``a = T^-T L^-T gamma``. For data that
a score can separate the penalty keeps the minimum finite. There, the gradient in B of ``min over a, b of L`` is that of
L, by the kernel's pullback (K_cc has a ridge of 1e-8 kappa wherever it stands: what the kernel does not see of the
coefficients would otherwise grow from map to map):

    dL/dK = w (p - y) a' / W,   dL/dK_cc = (nu / 2W) a a',   dL/dB = dL/dP' X + dL/dC' X~
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, log_softmax

from hkrr._arrays import Array, add_to_diagonal, gram, jittered_cholesky, solve_triangular, solve_with_lower
from hkrr.kernels import Kernel
from hkrr.rows import Rows

_MAX_ITER, _MEMORY = 500, 20
_CONSTANT = 0.01  # precision of the constants
_LEAST_CURVATURE = 1e-3
_RIDGE = 1e-8
_SMALL, _MAX_NEWTON, _HALVINGS = 600, 50, 30  # unknowns up to which Newton's method is quicker, and its limits


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
            value, error = _value_and_error(K @ alpha + b, Y, w)
            return value, K.T @ error, np.sum(error, axis=0)

        value, by_alpha, by_b = self.rows.sum(block, len(C), B, C, found.alpha, found.intercept)
        smooth = nu * (kernel(C, C) @ found.alpha + self._ridge(C) * found.alpha)
        constant = _CONSTANT * found.intercept
        value += 0.5 * (np.vdot(found.alpha, smooth) + found.intercept @ constant)
        return float(value) / W, (by_alpha + smooth) / W, (by_b + constant) / W

    def value_and_gradient_in_map(self, B: Array, found: Coefficients, nu: float) -> tuple[float, Array]:
        """Return L and dL/dB."""
        kernel, W, C = self.kernel, self.rows.total_weight, self.centers @ B.T

        def block(
            X: Array, Y: Array, w: Array | None, B: Array, C: Array, alpha: Array, b: Array
        ) -> tuple[Array, Array, Array]:
            K, pullback = kernel.vjp_low_rank(X @ B.T, C)
            value, error = _value_and_error(K @ alpha + b, Y, w)
            dP, dC = pullback(error, alpha)
            return value, dP.T @ X, dC

        value, grad, dC = self.rows.sum(block, len(C), B, C, found.alpha, found.intercept)
        K_cc, pullback = kernel.vjp_low_rank(C, C)
        smooth = nu * (K_cc @ found.alpha + self._ridge(C) * found.alpha)
        value += 0.5 * (np.vdot(found.alpha, smooth) + _CONSTANT * found.intercept @ found.intercept)
        left, right = pullback(0.5 * nu * found.alpha, found.alpha)
        return float(value) / W, (grad + (dC + left + right).T @ self.centers) / W

    def coordinates(self, B: Array, nu: float, near: Coefficients | None) -> Coordinates:
        """Return the coordinates of the coefficients that suit this map and nu, and the curvature where they begin."""
        kernel, n_targets, C = self.kernel, self.rows.n_targets, self.centers @ B.T
        T = self._whitening(B)
        if near is None:
            near = Coefficients(np.zeros((len(C), n_targets)), np.zeros(n_targets))

        def block(
            X: Array, Y: Array, w: Array | None, B: Array, C: Array, T: Array, alpha: Array, b: Array
        ) -> tuple[Array]:
            K = kernel(X @ B.T, C)
            curvature = _curvatures(K @ alpha + b)
            K *= np.sqrt(curvature if w is None else w * curvature)[:, None]
            return (gram(solve_triangular(T, K.T).T),)

        (VV,) = self.rows.sum(block, len(C), B, C, T, near.alpha, near.intercept)
        W = self.rows.total_weight
        return Coordinates(T, jittered_cholesky(VV / W, nu / W)[0], n_targets)

    def solve(self, B: Array, nu: float, start: Coefficients | None = None, tol: float = 1e-8) -> Coefficients:
        """Return the minimiser at a map, up to a gradient of ``tol`` in coordinates of unit curvature."""
        if (len(self.centers) + 1) * self.rows.n_targets <= _SMALL:
            return self._newton(B, nu, start, tol)
        at = self.coordinates(B, nu, start)

        def value_and_gradient(theta: Array) -> tuple[float, Array]:
            value, by_alpha, by_b = self.value_and_gradient(B, at.unpack(theta), nu)
            return value, at.pull(by_alpha, by_b)

        options: dict[str, Any] = {"maxiter": _MAX_ITER, "maxcor": _MEMORY, "ftol": 0.0, "gtol": tol}
        return at.unpack(minimize(value_and_gradient, at.pack(start), jac=True, method="L-BFGS-B", options=options).x)

    def _newton(self, B: Array, nu: float, start: Coefficients | None, tol: float) -> Coefficients:
        """The same by Newton's method on ``beta = T' alpha``, the intercept below it: few steps, for small systems."""
        T, C, n_targets = self._whitening(B), self.centers @ B.T, self.rows.n_targets
        penalty = np.append(np.full(len(C), nu), _CONSTANT)[:, None]
        theta = np.zeros((len(C) + 1, n_targets))
        if start is not None:
            theta = np.vstack([T.T @ start.alpha, start.intercept])
        value, gradient, hessian = self._second_order(B, C, T, theta, penalty)
        for _ in range(_MAX_NEWTON):
            factor, _ = jittered_cholesky(hessian, 0.0)
            step = solve_with_lower(factor, gradient.T.reshape(-1, 1)).reshape(theta.T.shape).T
            decrement = float(np.vdot(gradient, step))
            if decrement <= self.rows.total_weight * tol**2:
                break
            for halved in range(_HALVINGS):
                there = theta - 0.5**halved * step
                found = self._second_order(B, C, T, there, penalty)
                if found[0] <= value:
                    break
            else:
                break  # no step lowers it any more: rounding
            theta, (value, gradient, hessian) = there, found
        return Coefficients(solve_triangular(T, theta[:-1].copy(), transpose=True), theta[-1])

    def _second_order(self, B: Array, C: Array, T: Array, theta: Array, penalty: Array) -> tuple[float, Array, Array]:
        """Return W L, its gradient and its Hessian."""
        kernel, n_targets = self.kernel, self.rows.n_targets

        def block(
            X: Array, Y: Array, w: Array | None, B: Array, C: Array, T: Array, theta: Array
        ) -> tuple[Array, Array, Array]:
            V = np.vstack([solve_triangular(T, kernel(X @ B.T, C).T), np.ones(len(X))])
            F = V.T @ theta
            value, error = _value_and_error(F, Y, w)
            p = class_probabilities(F)
            hessian = np.empty((n_targets, len(V), n_targets, len(V)))
            for t in range(n_targets):
                for s in range(t + 1):
                    curvature = p[:, t] * ((t == s) - p[:, s])
                    hessian[t, :, s] = hessian[s, :, t] = (V * (curvature if w is None else w * curvature)) @ V.T
            return value, V @ error, hessian

        value, gradient, hessian = self.rows.sum(block, len(C) * n_targets, B, C, T, theta)
        n = theta.size
        hessian = add_to_diagonal(hessian.reshape(n, n), np.tile(penalty[:, 0], n_targets))
        return float(value + 0.5 * np.sum(penalty * theta**2)), gradient + penalty * theta, hessian

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

    def pack(self, found: Coefficients | None) -> Array:
        """Return the vector; zero for none."""
        if found is None:
            return np.zeros((len(self.T) + 1) * self.n_targets)
        return np.concatenate([(self.L.T @ (self.T.T @ found.alpha)).ravel(), found.intercept])

    def unpack(self, theta: Array) -> Coefficients:
        """Return the coefficients."""
        gamma, intercept = theta[: -self.n_targets].reshape(-1, self.n_targets), theta[-self.n_targets :]
        beta = solve_triangular(self.L, gamma.copy(), transpose=True)
        return Coefficients(solve_triangular(self.T, beta, transpose=True), intercept)

    def pull(self, by_alpha: Array, by_intercept: Array) -> Array:
        """Return the gradient in the vector."""
        by_gamma = solve_triangular(self.L, solve_triangular(self.T, by_alpha))
        return np.concatenate([by_gamma.ravel(), by_intercept])


def _curvatures(F: Array) -> Array:
    """Return p (1 - p) for each row; of more classes their mean, as if all were alike; never nearly zero."""
    p = class_probabilities(F)
    each = np.mean(p * (1.0 - p), axis=1)
    return np.maximum(each if F.shape[1] == 1 else each * F.shape[1] / (F.shape[1] - 1.0), _LEAST_CURVATURE)


def _value_and_error(F: Array, Y: Array, w: Array | None) -> tuple[Array, Array]:
    """Return the sum of the weighted losses, and their gradients in the scores."""
    each, error = losses(F, Y), class_probabilities(F) - Y
    return (np.sum(each), error) if w is None else (w @ each, w[:, None] * error)
