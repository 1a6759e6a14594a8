"""Solver of kernel logistic regression with the kernel matrix in memory: Newton's method, or L-BFGS for large systems.

The objective J is defined in `hkrr.estimators.classification.logistic_objective`. With T T' = K_cc and V = T^-1 K', the
scores are F = V'beta + b with beta = T'a, and J times the total weight W is

    sum_i w_i loss(y_i, F_i)  +  (nu / 2) |beta|^2  +  |b|^2 / 200

Newton's step from scores F solves ``(V S V' + nu I) beta = V (S F + w (y - p))``, where S is the weighted curvature of
the losses and p are the probabilities at F. The intercepts are included by a row of ones in V. The step depends on the
previous iterate only through its scores. This allows a warm start from a similar map: the scores at similar maps are
similar, but the coefficients need not be, because K_cc is nearly singular. L-BFGS works in coordinates in which the
curvature is approximately the identity.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, log_softmax

from hkrr._base.linear_algebra import Array, add_to_diagonal, jittered_cholesky, solve_triangular, solve_with_lower

# Prior precision of the intercepts.
INTERCEPT_PRECISION = 0.01
# Maximum number of iterations of L-BFGS, and number of past iterations that it uses.
_MAX_ITER, _MEMORY = 500, 20
# Lower bound on the curvature of a loss. The coordinates in which L-BFGS works are defined by this curvature.
_MIN_CURVATURE = 1e-3
# Maximum number of unknowns for Newton's method. With more unknowns, L-BFGS is faster.
_MAX_NEWTON_UNKNOWNS = 600
# Maximum number of Newton iterations, and of halvings of the step in each iteration.
_MAX_NEWTON_STEPS, _MAX_HALVINGS = 50, 30


def class_probabilities(F: Array) -> Array:
    """Return the class probabilities.

    One column of scores gives the probability of class 1. K columns of scores give the probabilities of K classes.
    """
    return expit(F) if F.shape[1] == 1 else np.exp(log_softmax(F, axis=1))


def losses(F: Array, Y: Array) -> Array:
    """Return the loss of each row: minus the log-probability of its class."""
    if F.shape[1] == 1:
        return np.asarray(np.logaddexp(0.0, F) - Y * F)[:, 0]
    return -np.sum(Y * log_softmax(F, axis=1), axis=1)


def value_and_error(F: Array, Y: Array, w: Array | None) -> tuple[Any, Array]:
    """Return the weighted sum of the losses, and its gradient with respect to the scores."""
    each, error = losses(F, Y), class_probabilities(F) - Y
    return (np.sum(each), error) if w is None else (w @ each, w[:, None] * error)


def curvatures(F: Array) -> Array:
    """Return the curvature of the loss of each row, which is at least 1e-3.

    For two classes the curvature is p (1 - p). For more classes, an average over the classes is used.
    """
    p = class_probabilities(F)
    each = np.mean(p * (1.0 - p), axis=1)
    return np.maximum(each if F.shape[1] == 1 else each * F.shape[1] / (F.shape[1] - 1.0), _MIN_CURVATURE)


def minimize_coefficients(
    V: Array, Y: Array, w: Array | None, nu: float, initial_scores: Array | None, tol: float
) -> tuple[Array, Array]:
    """Return the coefficients beta (c + 1, n_targets) of the minimum and the scores of the rows (n, n_targets).

    The last row of the coefficients contains the intercepts. V (c, n) is the whitened kernel matrix for c centers and n
    rows. The labels Y are coded as in `LogisticObjective`. If `initial_scores` is None, the solver starts from zero
    scores. `tol` is the tolerance on the gradient of J, in coordinates in which the curvature is approximately the
    identity.
    """
    system = _System(
        np.vstack([V, np.ones(V.shape[1])]), Y, w, np.append(np.full(len(V), nu), INTERCEPT_PRECISION)[:, None]
    )
    if (len(V) + 1) * Y.shape[1] <= _MAX_NEWTON_UNKNOWNS:
        return system.by_newton(initial_scores, tol)
    return system.by_lbfgs(initial_scores, tol)


class _System:
    """The objective W J as a function of theta.

    The last row of theta contains the intercepts, and its other rows contain the coefficients beta. The last row of V
    consists of ones.
    """

    def __init__(self, V: Array, Y: Array, w: Array | None, penalty: Array) -> None:
        self.V, self.Y, self.w, self.penalty = V, Y, w, penalty
        self.W = float(len(Y) if w is None else np.sum(w))

    def value(self, theta: Array, F: Array) -> tuple[float, Array]:
        """Return the objective, and the gradient of the losses with respect to the scores."""
        value, error = value_and_error(F, self.Y, self.w)
        return float(value + 0.5 * np.sum(self.penalty * theta**2)), error

    def by_newton(self, initial_scores: Array | None, tol: float) -> tuple[Array, Array]:
        theta, F = np.zeros((len(self.V), self.Y.shape[1])), np.zeros_like(self.Y)
        value, error = self.value(theta, F)
        if initial_scores is not None:
            _, initial_error = value_and_error(initial_scores, self.Y, self.w)
            new_theta = self._solve_newton_system(
                initial_scores, self.V @ (self._apply_curvature(initial_scores) - initial_error)
            )
            new_F = self.V.T @ new_theta
            new_value, new_error = self.value(new_theta, new_F)
            if new_value < value:
                theta, F, value, error = new_theta, new_F, new_value, new_error
        for _ in range(_MAX_NEWTON_STEPS):
            gradient = self.V @ error + self.penalty * theta
            step = self._solve_newton_system(F, gradient)
            decrement = float(np.vdot(gradient, step))
            if decrement <= self.W * tol**2:
                break
            move = self.V.T @ step
            for halved in range(_MAX_HALVINGS):
                share = 0.5**halved
                new_theta, new_F = theta - share * step, F - share * move
                new_value, new_error = self.value(new_theta, new_F)
                if new_value <= value:
                    break
            else:
                # No step lowers the objective by more than rounding errors.
                break
            theta, F, value, error = new_theta, new_F, new_value, new_error
            # The third derivative of a loss is at most its second derivative. This bounds the gradient after a full
            # step by a term of second order in the step. If the bound is below the tolerance, the solver stops.
            if halved == 0 and 0.25 * np.max(np.abs(move)) ** 2 * decrement <= self.W * tol**2:
                break
        return theta, F

    def _apply_curvature(self, F: Array) -> Array:
        """Return S F, where S is the curvature (the second derivative) of the losses at the scores F."""
        p = class_probabilities(F)
        curved = p * (1.0 - p) * F if F.shape[1] == 1 else p * (F - np.sum(p * F, axis=1, keepdims=True))
        return curved if self.w is None else self.w[:, None] * curved

    def _solve_newton_system(self, F: Array, right: Array) -> Array:
        """Solve ``(V S V' + penalty) theta = right``, where S is the curvature at the scores F."""
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

    def by_lbfgs(self, initial_scores: Array | None, tol: float) -> tuple[Array, Array]:
        F = np.zeros_like(self.Y) if initial_scores is None else initial_scores
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
        if initial_scores is not None:
            # Approximate Newton's step from the initial scores, with one average curvature for all classes.
            _, error = value_and_error(initial_scores, self.Y, self.w)
            begin = Z @ (curvature[:, None] * initial_scores - error) / self.W
        options: dict[str, Any] = {"maxiter": _MAX_ITER, "maxcor": _MEMORY, "ftol": 0.0, "gtol": tol}
        end = minimize(value_and_gradient, begin.ravel(), jac=True, method="L-BFGS-B", options=options)
        gamma = end.x.reshape(shape)
        return solve_triangular(L, gamma.copy(), transpose=True), Z.T @ gamma
