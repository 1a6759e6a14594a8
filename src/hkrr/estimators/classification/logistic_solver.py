"""Kernel logistic regression where the kernel matrix of all rows is held in memory: by Newton's method, or L-BFGS.

With T T' = K_cc and V = T^-1 K' the scores are F = V'beta + b, beta = T'a, and the objective (times W) is

    sum_i w_i loss(y_i, F_i)  +  (nu / 2) |beta|^2  +  |b|^2 / 200

Newton's step from scores F solves ``(V S V' + nu I) beta = V (S F + w (y - p))``, S the curvature of the losses: what
came before enters by its scores alone. Those at a map near by are near; its coefficients, of a K_cc that is nearly
singular, would be far. Large systems are solved by L-BFGS in coordinates in which the curvature is about the identity.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, log_softmax

from hkrr._arrays import Array, add_to_diagonal, jittered_cholesky, solve_triangular, solve_with_lower

CONSTANT = 0.01  # precision of the constants
MAX_ITER, MEMORY = 500, 20
_LEAST_CURVATURE = 1e-3
_SMALL, _MAX_NEWTON, _HALVINGS = 600, 50, 30  # unknowns up to which Newton's method is quicker, and its limits


def class_probabilities(F: Array) -> Array:
    """Return the probability of class 1 of two, from one column of scores, or of every class from K."""
    return expit(F) if F.shape[1] == 1 else np.exp(log_softmax(F, axis=1))


def losses(F: Array, Y: Array) -> Array:
    """Return each row's loss: minus the log probability of its class."""
    if F.shape[1] == 1:
        return np.asarray(np.logaddexp(0.0, F) - Y * F)[:, 0]
    return -np.sum(Y * log_softmax(F, axis=1), axis=1)


def value_and_error(F: Array, Y: Array, w: Array | None) -> tuple[Any, Array]:
    """Return the sum of the weighted losses, and their gradients in the scores."""
    each, error = losses(F, Y), class_probabilities(F) - Y
    return (np.sum(each), error) if w is None else (w @ each, w[:, None] * error)


def curvatures(F: Array) -> Array:
    """Return p (1 - p) for each row; of more classes their mean, as if all were alike; never nearly zero."""
    p = class_probabilities(F)
    each = np.mean(p * (1.0 - p), axis=1)
    return np.maximum(each if F.shape[1] == 1 else each * F.shape[1] / (F.shape[1] - 1.0), _LEAST_CURVATURE)


def minimiser(V: Array, Y: Array, w: Array | None, nu: float, near: Array | None, tol: float) -> tuple[Array, Array]:
    """Return beta with the constants below it, (c + 1, T), and the scores of the rows.

    Parameters
    ----------
    V : array (c, n)
    Y : array (n, T)
        As in `LogisticObjective`.
    w : array (n,) or None
    nu : float
    near : array (n, T) or None
        Scores to begin near.
    tol : float
        Of the gradient of L in coordinates of unit curvature.
    """
    system = _System(np.vstack([V, np.ones(V.shape[1])]), Y, w, np.append(np.full(len(V), nu), CONSTANT)[:, None])
    if (len(V) + 1) * Y.shape[1] <= _SMALL:
        return system.by_newton(near, tol)
    return system.by_lbfgs(near, tol)


class _System:
    """The objective in theta, beta with the constants below it; V has a row of ones for these."""

    def __init__(self, V: Array, Y: Array, w: Array | None, penalty: Array) -> None:
        self.V, self.Y, self.w, self.penalty = V, Y, w, penalty
        self.W = float(len(Y) if w is None else np.sum(w))

    def value(self, theta: Array, F: Array) -> tuple[float, Array]:
        """Return the objective, and the gradient of the losses in the scores."""
        value, error = value_and_error(F, self.Y, self.w)
        return float(value + 0.5 * np.sum(self.penalty * theta**2)), error

    def by_newton(self, near: Array | None, tol: float) -> tuple[Array, Array]:
        theta, F = np.zeros((len(self.V), self.Y.shape[1])), np.zeros_like(self.Y)
        value, error = self.value(theta, F)
        if near is not None:
            _, error_near = value_and_error(near, self.Y, self.w)
            there = self._solved(near, self.V @ (self._curved(near) - error_near))
            found = self.V.T @ there
            value_there, error_there = self.value(there, found)
            if value_there < value:
                theta, F, value, error = there, found, value_there, error_there
        for _ in range(_MAX_NEWTON):
            gradient = self.V @ error + self.penalty * theta
            step = self._solved(F, gradient)
            decrement = float(np.vdot(gradient, step))
            if decrement <= self.W * tol**2:
                break
            move = self.V.T @ step
            for halved in range(_HALVINGS):
                share = 0.5**halved
                there, found = theta - share * step, F - share * move
                value_there, error_there = self.value(there, found)
                if value_there <= value:
                    break
            else:
                break  # no step lowers it any more: rounding
            theta, F, value, error = there, found, value_there, error_there
            # What is left of the gradient is of second order in the step: a loss's third derivative is at most its
            # second one.
            if halved == 0 and 0.25 * np.max(np.abs(move)) ** 2 * decrement <= self.W * tol**2:
                break
        return theta, F

    def _curved(self, F: Array) -> Array:
        """Return S F: the curvature of each row's loss times its scores."""
        p = class_probabilities(F)
        curved = p * (1.0 - p) * F if F.shape[1] == 1 else p * (F - np.sum(p * F, axis=1, keepdims=True))
        return curved if self.w is None else self.w[:, None] * curved

    def _solved(self, F: Array, right: Array) -> Array:
        """Return the solution of ``(V S V' + penalty) theta = right``, S the curvature at the scores F."""
        V, n_targets, p = self.V, F.shape[1], class_probabilities(F)
        hessian = np.empty((n_targets, len(V), n_targets, len(V)))
        for t in range(n_targets):
            for s in range(t + 1):
                curvature = p[:, t] * ((t == s) - p[:, s])
                hessian[t, :, s] = (V * (curvature if self.w is None else self.w * curvature)) @ V.T
                hessian[s, :, t] = hessian[t, :, s]
        n = right.size
        hessian = add_to_diagonal(hessian.reshape(n, n), np.tile(self.penalty[:, 0], n_targets))
        factor, _ = jittered_cholesky(hessian, 0.0)
        return solve_with_lower(factor, right.T.reshape(-1, 1)).reshape(n_targets, -1).T

    def by_lbfgs(self, near: Array | None, tol: float) -> tuple[Array, Array]:
        F = np.zeros_like(self.Y) if near is None else near
        curvature = curvatures(F) if self.w is None else self.w * curvatures(F)
        A = add_to_diagonal((self.V * curvature) @ self.V.T, self.penalty[:, 0])
        L = jittered_cholesky(A / self.W, 0.0)[0]
        Z = solve_triangular(L, self.V.copy())
        shape = (len(Z), F.shape[1])

        def value_and_gradient(gamma: Array) -> tuple[float, Array]:
            theta = solve_triangular(L, gamma.reshape(shape).copy(), transpose=True)
            value, error = self.value(theta, Z.T @ gamma.reshape(shape))
            by_gamma = Z @ error + solve_triangular(L, self.penalty * theta)
            return value / self.W, by_gamma.ravel() / self.W

        begin = np.zeros(shape)
        if near is not None:  # as Newton's step, were the classes alike
            _, error = value_and_error(near, self.Y, self.w)
            begin = Z @ (curvature[:, None] * near - error) / self.W
        options: dict[str, Any] = {"maxiter": MAX_ITER, "maxcor": MEMORY, "ftol": 0.0, "gtol": tol}
        end = minimize(value_and_gradient, begin.ravel(), jac=True, method="L-BFGS-B", options=options)
        gamma = end.x.reshape(shape)
        return solve_triangular(L, gamma.copy(), transpose=True), Z.T @ gamma
