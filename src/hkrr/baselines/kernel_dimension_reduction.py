"""Kernel dimension reduction (KDR) and gradient-based KDR, which estimate subspaces with kernels of inputs and target.

KDR looks for a subspace such that the target is conditionally independent of X given the projection of X.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from sklearn.utils import check_random_state

from hkrr._base.checks import check_int, check_positive
from hkrr._base.linear_algebra import Array
from hkrr.baselines._subspace_estimator import SubspaceEstimator
from hkrr.kernels import Gaussian, Kernel
from hkrr.kernels.base import with_median_gamma
from hkrr.solvers.line_search import Armijo


def _centred(K: Array) -> Array:
    return K - K.mean(axis=0) - K.mean(axis=1)[:, None] + K.mean()


class KDR(SubspaceEstimator):
    """Kernel dimension reduction: ``min_B tr( G_y (G_{XB'} + m eps I)^-1 )`` over B with orthonormal rows.

    G_y and G_{XB'} are the centred kernel matrices of the target and of the projected inputs, m is the number of rows,
    and eps is the parameter ``epsilon``. The trace is the conditional variance of the target given Bx, in the feature
    space of the target's kernel. It is minimized by gradient descent over matrices B with orthonormal rows, starting
    from the map of `GradientKDR`. The inputs are whitened before the optimization, and the directions are converted to
    the original units of X afterwards. Source: Fukumizu, Bach and Jordan (2009), Kernel dimension reduction in
    regression, Annals of Statistics 37.

    Parameters
    ----------
    n_components : int, default=2
        Number of directions to estimate.
    epsilon : float, default=1e-2
        Regularization of the inverse kernel matrix.
    max_iter : int, default=50
        Maximum number of gradient descent iterations.
    tol : float, default=1e-4
        Stop when the norm of the projected gradient is at most this fraction of the objective. The projection removes
        changes of B within its row space.
    max_rows : int, default=1000
        Maximum number of rows to use. If X has more rows, a random subsample is drawn. The cost of an iteration is
        cubic in the number of rows that are used.
    random_state : int, RandomState instance or None, default=None
        Seed of the subsample.

    Attributes
    ----------
    components_ : array (n_components, n_features)
        The directions in the original units of X: rows of unit length, in decreasing order of absolute eigenvalue.
    eigenvalues_ : array (n_components,)
        For each direction, the eigenvalue of the matrix M of `GradientKDR`, computed from the projected inputs.
    n_iter_ : int
        Number of gradient descent iterations.

    Examples
    --------
    >>> from hkrr.baselines import KDR
    >>> from hkrr.datasets import make_planted
    >>> from hkrr.metrics import subspace_distance
    >>> data = make_planted("product", 300, n_features=6, random_state=0)
    >>> model = KDR(n_components=2, max_rows=300, random_state=0).fit(data.X, data.y)
    >>> round(subspace_distance(model.components_, data.B), 2)
    0.09
    """

    def __init__(
        self,
        n_components: int = 2,
        *,
        epsilon: float = 1e-2,
        max_iter: int = 50,
        tol: float = 1e-4,
        max_rows: int = 1000,
        random_state: Any = None,
    ) -> None:
        self.n_components, self.epsilon, self.max_iter, self.tol = n_components, epsilon, max_iter, tol
        self.max_rows, self.random_state = max_rows, random_state

    def _check(self) -> None:
        check_positive("epsilon", self.epsilon)
        check_int("max_iter", self.max_iter, 1)
        check_positive("tol", self.tol, zero=True)
        check_int("max_rows", self.max_rows, 2)

    def _matrix(self, Z: Array, y: Array) -> Array:
        rng = check_random_state(self.random_state)
        some = rng.permutation(len(Z))[: self.max_rows]
        Z, y = Z[some], y[some]
        d = min(self.n_components, Z.shape[1])
        B = np.linalg.eigh(gradient_matrix(Z, y, self.epsilon))[1][:, ::-1][:, :d].T
        kernel_y = with_median_gamma(Gaussian(), y[:, None])
        G_y = _centred(kernel_y(y[:, None], y[:, None]))
        kernel = with_median_gamma(Gaussian(), Z @ B.T)
        search, size = Armijo(), 1.0
        value, gradient = conditional_variance(Z, G_y, B, kernel, self.epsilon)
        for n_iter in range(1, self.max_iter + 1):
            self.n_iter_ = n_iter
            # Remove the component of the gradient in the row space of B: rotations of B in this space do not change the
            # objective.
            tangent = gradient - gradient @ B.T @ B
            if np.linalg.norm(tangent) <= self.tol * value:
                break
            here, base, slope = B, value, tangent

            def move(s: float, here: Array = here, slope: Array = slope) -> Array:
                Q, R = np.linalg.qr((here - s * slope).T)
                # The QR decomposition may flip the sign of a row, so flip it back.
                return (Q * np.where(np.diag(R) < 0, -1.0, 1.0)).T

            def change(candidate: Array, base: float = base) -> float:
                return conditional_variance(Z, G_y, candidate, kernel, self.epsilon)[0] - base

            step = search.search(size, here, move, change, abs(base))
            if step is None:
                break
            B, size = step.point, step.size
            value, gradient = conditional_variance(Z, G_y, B, kernel, self.epsilon)
        # The leading eigenvectors of this matrix span the row space of B. Each eigenvalue is the mean squared gradient
        # along its eigenvector.
        return B.T @ gradient_matrix(Z @ B.T, y, self.epsilon) @ B


def conditional_variance(Z: Array, G_y: Array, B: Array, kernel: Kernel, epsilon: float) -> tuple[float, Array]:
    """Return ``tr(G_y (G + m eps I)^-1) / m`` and its gradient with respect to B.

    G is the centred kernel matrix of the m rows of Z B', G_y is the centred kernel matrix of the target, and eps is
    `epsilon`.
    """
    m = len(Z)
    P = Z @ B.T
    K, pullback = kernel.vjp(P, P)
    A = _centred(K)
    A[np.diag_indices(m)] += m * epsilon
    factor = cho_factor(A, lower=True, check_finite=False)
    half = cho_solve(factor, G_y, check_finite=False)
    value = float(np.trace(half)) / m
    # d tr(G_y A^-1) = -tr(A^-1 G_y A^-1 dA), and dA = H dK H with the centring matrix H.
    dK = _centred(-cho_solve(factor, half.T, check_finite=False)) / m
    left, right = pullback(dK)
    return value, (left + right).T @ Z


class GradientKDR(SubspaceEstimator):
    """Gradient-based KDR: ``M = (1/m) sum_i N_i' (G_x + m eps I)^-1 G_y (G_x + m eps I)^-1 N_i``.

    G_x and G_y are the kernel matrices of the whitened inputs x_i (the inputs after a linear transformation to
    covariance I) and of the target, m is the number of rows, and eps is the parameter ``epsilon``. Row j of the m x D
    matrix N_i is the gradient of the Gaussian kernel k(x_j, x) with respect to x at x = x_i. M is the mean outer
    product of the gradients of a regression function: the regression of the target's kernel features on X. The
    directions are the leading eigenvectors of M, converted to the original units of X. The estimator needs no iterative
    optimization. Source: Fukumizu and Leng (2014), Gradient-based kernel dimension reduction for regression, JASA 109.

    Parameters
    ----------
    n_components : int, default=2
        Number of directions to estimate.
    epsilon : float, default=1e-3
        Regularization of the inverse kernel matrix.
    max_rows : int, default=2000
        Maximum number of rows to use. If X has more rows, a random subsample is drawn. The cost is cubic in the number
        of rows that are used.
    random_state : int, RandomState instance or None, default=None
        Seed of the subsample.

    Attributes
    ----------
    components_ : array (n_components, n_features)
        The directions in the original units of X: rows of unit length, in decreasing order of absolute eigenvalue.
    eigenvalues_ : array (n_components,)
        The eigenvalue of M for each direction.

    Examples
    --------
    >>> from hkrr.baselines import GradientKDR
    >>> from hkrr.datasets import make_planted
    >>> from hkrr.metrics import subspace_distance
    >>> data = make_planted("product", 300, n_features=6, random_state=0)
    >>> model = GradientKDR(n_components=2, random_state=0).fit(data.X, data.y)
    >>> round(subspace_distance(model.components_, data.B), 2)
    0.14
    """

    def __init__(
        self, n_components: int = 2, *, epsilon: float = 1e-3, max_rows: int = 2000, random_state: Any = None
    ) -> None:
        self.n_components, self.epsilon, self.max_rows = n_components, epsilon, max_rows
        self.random_state = random_state

    def _check(self) -> None:
        check_positive("epsilon", self.epsilon)
        check_int("max_rows", self.max_rows, 2)

    def _matrix(self, Z: Array, y: Array) -> Array:
        some = check_random_state(self.random_state).permutation(len(Z))[: self.max_rows]
        return gradient_matrix(Z[some], y[some], self.epsilon)


def gradient_matrix(Z: Array, y: Array, epsilon: float) -> Array:
    """Return the matrix M of gradient-based KDR (see `GradientKDR`).

    Let z_i be the m rows of Z, K their kernel matrix, k_i its column i, and G_y the kernel matrix of the target. For
    the Gaussian kernel, row j of N_i is ``2 gamma K_ij (z_j - z_i)``. Let ``A = K + m eps I`` and
    ``F = A^-1 G_y A^-1``, let 1 be the vector of ones, and let * be the entrywise product. Then

        N_i' F N_i = 4 gamma^2 (Z - 1 z_i')' (F * k_i k_i') (Z - 1 z_i').

    The sum over i is computed without forming the m matrices N_i. Let ``u_i = k_i * (F k_i)``, the row sums of
    ``F * k_i k_i'``. Then the sum equals ``4 gamma^2`` times

        Z' (F * K K') Z - sum_i (Z' u_i) z_i' - sum_i z_i (Z' u_i)' + sum_i (1' u_i) z_i z_i'.
    """
    m = len(Z)
    kernel, kernel_y = (with_median_gamma(Gaussian(), points) for points in (Z, y[:, None]))
    K = kernel(Z, Z)
    A = K + m * epsilon * np.eye(m)
    factor = cho_factor(A, lower=True, check_finite=False)
    G_y = kernel_y(y[:, None], y[:, None])
    F = cho_solve(factor, cho_solve(factor, G_y, check_finite=False).T, check_finite=False)
    U = K * (F @ K)  # column i is u_i
    totals = U.sum(axis=0)  # 1' u_i
    cross = Z.T @ U @ Z  # sum_i (Z' u_i) z_i'
    M = Z.T @ (F * (K @ K.T)) @ Z - cross - cross.T + (Z.T * totals) @ Z
    return (4.0 * kernel.scale**2 / m) * (M + M.T) / 2.0
