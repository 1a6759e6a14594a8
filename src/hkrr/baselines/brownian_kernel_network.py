"""BKerNN: kernel regression with a mean of Brownian kernels along learned, penalized directions.

The directions are the columns w_1, ..., w_p of W. The kernel is ``(1/p) sum_j k(w_j'x, w_j'x')``, where ``k(s, t) =
(|s| + |t| - |s - t|) / 2`` is the covariance of Brownian motion on the line. K denotes the kernel matrix of the m
training rows after centring its rows and columns, and y the centred target. For given W, the coefficients are ``alpha =
(K + m lambda I)^-1 y``. With these coefficients, the objective is a function of W only. Proximal gradient descent
minimizes

    G(W) + lambda Omega(W),     G(W) = (lambda / 2) y' (K + m lambda I)^-1 y,

over W, where Omega is the penalty (see `BKerNN`). The coefficients sum to zero, because K and y are centred. The
gradient of G with respect to w_j is therefore ``(lambda / (2 p)) sum_a alpha_a s_a x_a``, where x_a are the inputs of
row a and ``s_a = sum_b alpha_b sign(w_j'(x_a - x_b))``. All s_a are computed in O(m log m) by sorting. The kernel
matrix needs ``sum_j |w_j'(x_a - x_b)|``, the L1 distance between rows a and b of X W.
"""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.spatial.distance import cdist
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from hkrr._base.checks import check_choice, check_int, check_positive
from hkrr._base.linear_algebra import Array
from hkrr.rows import InMemoryRows
from hkrr.rows.standardize import moments

# Parameters of the backtracking line search: the factor by which the step size grows before each iteration, the factor
# by which it shrinks after a rejected trial, and the maximum number of trials in an iteration.
_GROW, _SHRINK, _HALVINGS = 1.5, 0.5, 30


class BKerNN(RegressorMixin, BaseEstimator):
    """Regression of a single target with a mean of Brownian kernels along learned directions.

    Source: Follain and Bach (2025), Enhanced feature learning via regularisation: integrating neural networks and
    kernel methods. The paper's formula for the proximal step of the feature penalty has the factor 1/p, but the
    definition of the penalty implies 1/sqrt(p). This implementation uses 1/sqrt(p).

    Parameters
    ----------
    reg_lambda : float, default=1e-3
        Regularization strength lambda. The target is divided by its standard deviation before the fit, so lambda does
        not depend on the units of y.
    n_particles : int, default=50
        Number p of directions w_j.
    penalty : {"feature", "variable", "basic"}, default="feature"
        Penalty Omega on W. "feature" favours few directions: ``tr((W W')^(1/2)) / (2 sqrt(p))``. "variable" favours
        few columns of X: ``sum_a |row a of W| / (2 sqrt(p))``. "basic" penalizes the length of each direction:
        ``sum_j |w_j| / (2 p)``.
    max_iter : int, default=100
        Maximum number of proximal gradient iterations.
    tol : float, default=1e-5
        Stop when the norm of the change of W in an iteration is at most this fraction of the norm of W.
    random_state : int, RandomState instance or None, default=None
        Seed of the initial directions.

    Attributes
    ----------
    W_ : array (n_features, n_particles)
        The directions, in the original units of X.
    components_ : array (n_directions, n_features)
        The main directions: the left singular vectors of W for standardized inputs, multiplied by their singular values
        and converted to the original units of X. Directions are dropped if their singular value is below 1/n_features
        of the sum of all singular values.
    n_iter_ : int
        Number of proximal gradient iterations.

    Examples
    --------
    >>> from hkrr.baselines import BKerNN
    >>> from hkrr.datasets import make_planted
    >>> data = make_planted("single", 200, n_features=10, random_state=0)
    >>> model = BKerNN(random_state=0).fit(data.X, data.y)
    >>> round(model.score(data.X, data.y), 2)
    1.0
    """

    def __init__(
        self,
        *,
        reg_lambda: float = 1e-3,
        n_particles: int = 50,
        penalty: Literal["feature", "variable", "basic"] = "feature",
        max_iter: int = 100,
        tol: float = 1e-5,
        random_state: Any = None,
    ) -> None:
        self.reg_lambda, self.n_particles, self.penalty = reg_lambda, n_particles, penalty
        self.max_iter, self.tol, self.random_state = max_iter, tol, random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Learn the directions and the function."""
        check_positive("reg_lambda", self.reg_lambda)
        check_int("n_particles", self.n_particles, 1)
        check_int("max_iter", self.max_iter, 1)
        check_positive("tol", self.tol, zero=True)
        check_choice("penalty", self.penalty, tuple(PENALTIES))
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        scaling = moments(InMemoryRows(X, y))
        self.mean_, scale, y_mean = scaling.x_mean, scaling.x_scale, float(scaling.y_mean[0])
        y_scale = float(np.std(y - y_mean)) or 1.0
        Z, target = (X - self.mean_) / scale, (y - y_mean) / y_scale
        rng = check_random_state(self.random_state)
        p = self.n_particles
        W = rng.standard_normal((Z.shape[1], p)) / np.sqrt(Z.shape[1])
        value, alpha = objective(Z, target, W, self.reg_lambda)
        step = 1.0
        for n_iter in range(1, self.max_iter + 1):
            self.n_iter_ = n_iter
            gradient = gradient_in_W(Z, alpha, W, self.reg_lambda)
            step *= _GROW
            for _ in range(_HALVINGS):
                new = PENALTIES[self.penalty](W - step * gradient, step * self.reg_lambda)
                move = new - W
                new_value, new_alpha = objective(Z, target, new, self.reg_lambda)
                if new_value <= value + np.vdot(gradient, move) + np.vdot(move, move) / (2.0 * step):
                    break
                step *= _SHRINK
            else:
                break
            W, value, alpha = new, new_value, new_alpha
            if np.linalg.norm(move) <= self.tol * max(float(np.linalg.norm(W)), self.tol):
                break
        self.alpha_, self.Z_ = y_scale * alpha, Z @ W
        self.W_ = W / scale[:, None]
        self.intercept_ = y_mean - float(np.mean(brownian(self.Z_, self.Z_) @ self.alpha_))
        # Select directions in standardized coordinates, so that the selection does not depend on the units of X.
        U, s, _ = np.linalg.svd(W, full_matrices=False)
        # At least one direction is kept, because the threshold is at most the mean of the singular values.
        kept = s >= (1.0 - 1e-9) * s.sum() / len(scale)
        self.components_ = (U[:, kept] * s[kept]).T / scale
        return self

    def predict(self, X: Any) -> Array:
        """Return the prediction at every row of X."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        return np.asarray(brownian((X - self.mean_) @ self.W_, self.Z_) @ self.alpha_ + self.intercept_)


def brownian(P: Array, Q: Array) -> Array:
    """Return the kernel matrix of the rows of P and Q: the mean over the columns of ``(|s| + |t| - |s - t|) / 2``.

    Here s and t are the entries of the two rows in a column.
    """
    sizes = np.abs(P).sum(axis=1)[:, None] + np.abs(Q).sum(axis=1)
    return np.asarray((sizes - cdist(P, Q, "cityblock")) / (2.0 * P.shape[1]))


def objective(Z: Array, y: Array, W: Array, reg_lambda: float) -> tuple[float, Array]:
    """Return G(W) and the coefficients alpha (see the docstring of this module).

    Z are the standardized inputs and y is the centred target. The mean of alpha, which is only a rounding error, is
    subtracted.
    """
    P = Z @ W
    K = brownian(P, P)
    K -= K.mean(axis=0)
    K -= K.mean(axis=1)[:, None]
    K[np.diag_indices(len(K))] += len(K) * reg_lambda
    alpha = cho_solve(cho_factor(K, lower=True, overwrite_a=True, check_finite=False), y, check_finite=False)
    return 0.5 * reg_lambda * float(y @ alpha), alpha - alpha.mean()


def gradient_in_W(Z: Array, alpha: Array, W: Array, reg_lambda: float) -> Array:
    """Return dG/dW at the coefficients `alpha` that `objective` returns. It has one column for each direction."""
    gradient = np.empty_like(W)
    for j, p in enumerate((Z @ W).T):
        order = np.argsort(p)
        sums = np.concatenate([[0.0], np.cumsum(alpha[order])])
        # For each row: the sum of the coefficients of all rows with a smaller projection, minus the sum for all rows
        # with a larger projection. Rows with the same projection contribute nothing.
        below, upto = (np.searchsorted(p[order], p, side) for side in ("left", "right"))
        signs = sums[below] - (sums[-1] - sums[upto])
        gradient[:, j] = Z.T @ (alpha * signs)
    return gradient * (reg_lambda / (2.0 * W.shape[1]))


def _shrink(sizes: Array, by: float) -> Array:
    """Return the soft-thresholding factor ``max(1 - by / size, 0)`` for each norm in ``sizes``."""
    return np.maximum(1.0 - by / np.where(sizes > 0, sizes, np.inf), 0.0)


def _feature(W: Array, t: float) -> Array:
    U, s, Vt = np.linalg.svd(W, full_matrices=False)
    return (U * (s * _shrink(s, t / (2.0 * np.sqrt(W.shape[1]))))) @ Vt


def _variable(W: Array, t: float) -> Array:
    return W * _shrink(np.linalg.norm(W, axis=1), t / (2.0 * np.sqrt(W.shape[1])))[:, None]


def _basic(W: Array, t: float) -> Array:
    return W * _shrink(np.linalg.norm(W, axis=0), t / (2.0 * W.shape[1]))


# The proximal operator of each penalty: argmin_V |V - W|^2 / 2 + t Omega(V).
PENALTIES = {"feature": _feature, "variable": _variable, "basic": _basic}
