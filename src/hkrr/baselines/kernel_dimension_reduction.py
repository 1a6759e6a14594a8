"""Kernel dimension reduction: the subspace that leaves nothing of the target to explain, by kernels on both sides."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from sklearn.utils import check_random_state

from hkrr._arrays import Array
from hkrr._validation import check_int, check_positive
from hkrr.baselines._subspace import SubspaceEstimator
from hkrr.kernels import Gaussian
from hkrr.line_search import Armijo

_MEDIAN_ROWS = 1000


def _gaussian(P: Array, factor: float = 1.0) -> Gaussian:
    """Return the Gaussian kernel with (a multiple of) the median rule's gamma."""
    kernel = Gaussian()
    return kernel.with_gamma(factor * kernel.median_gamma(P[:_MEDIAN_ROWS]))


def _centred(K: Array) -> Array:
    return K - K.mean(axis=0) - K.mean(axis=1)[:, None] + K.mean()


class KDR(SubspaceEstimator):
    """Kernel dimension reduction: ``min_B tr( G_y (G_{XB'} + m eps I)^-1 )`` over B with orthonormal rows.

    G are centred kernel matrices; the trace is the conditional variance of the target given Bx in the feature space of
    its kernel. Gradient steps on the sphere of such B, from the map of `GradientKDR`. Source: Fukumizu, Bach and Jordan
    (2009), Kernel dimension reduction in regression, Annals of Statistics 37.

    Parameters
    ----------
    n_components : int, default=2
    epsilon : float, default=1e-2
    max_iter : int, default=50
    tol : float, default=1e-4
        Ends when the gradient along the subspaces is at most so much of the trace.
    max_rows : int, default=1000
        Rows used, drawn at random where there are more: a step costs their cube.
    random_state : int, RandomState or None

    Attributes
    ----------
    components_ : array (n_components, n_features)
        The directions, each of length one, the one that counts most first.
    eigenvalues_ : array (n_components,)
        How much each counts.

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
        kernel_y = _gaussian(y[:, None])
        G_y = _centred(kernel_y(y[:, None], y[:, None]))
        kernel = _gaussian(Z @ B.T)
        search, size = Armijo(), 1.0
        value, gradient = conditional_variance(Z, G_y, B, kernel, self.epsilon)
        for n_iter in range(1, self.max_iter + 1):
            self.n_iter_ = n_iter
            tangent = gradient - gradient @ B.T @ B  # along the subspaces: turning B within its span changes nothing
            if np.linalg.norm(tangent) <= self.tol * value:
                break
            here, base, slope = B, value, tangent

            def move(s: float, here: Array = here, slope: Array = slope) -> Array:
                Q, R = np.linalg.qr((here - s * slope).T)
                return (Q * np.where(np.diag(R) < 0, -1.0, 1.0)).T  # else a row could turn around at any step

            def change(candidate: Array, base: float = base) -> float:
                return conditional_variance(Z, G_y, candidate, kernel, self.epsilon)[0] - base

            step = search.search(size, here, move, change, abs(base))
            if step is None:
                break
            B, size = step.point, step.size
            value, gradient = conditional_variance(Z, G_y, B, kernel, self.epsilon)
        # Its directions are weighed, and ordered, by the gradients along them.
        return B.T @ gradient_matrix(Z @ B.T, y, self.epsilon) @ B


def conditional_variance(Z: Array, G_y: Array, B: Array, kernel: Gaussian, epsilon: float) -> tuple[float, Array]:
    """Return ``tr(G_y (G + m eps)^-1) / m`` and its gradient in B, G the centred kernel matrix of Z B'."""
    m = len(Z)
    P = Z @ B.T
    K, pullback = kernel.vjp(P, P)
    A = _centred(K)
    A[np.diag_indices(m)] += m * epsilon
    factor = cho_factor(A, lower=True, check_finite=False)
    half = cho_solve(factor, G_y, check_finite=False)
    value = float(np.trace(half)) / m
    # d tr(G_y A^-1) = -tr(A^-1 G_y A^-1 dA), and dA = H dK H with the centring H.
    dK = _centred(-cho_solve(factor, half.T, check_finite=False)) / m
    left, right = pullback(dK)
    return value, (left + right).T @ Z


class GradientKDR(SubspaceEstimator):
    """Gradient-based KDR: ``M = (1/m) sum_i N_i' (G_x + m eps I)^-1 G_y (G_x + m eps I)^-1 N_i``.

    N_i is the m x D matrix of the gradients of k(x_j, x) in x at x_i: M is the mean outer product of the gradients of
    the regression of the target's features. No optimisation. Source: Fukumizu and Leng (2014), Gradient-based kernel
    dimension reduction for regression, JASA 109.

    Parameters
    ----------
    n_components : int, default=2
    epsilon : float, default=1e-3
    max_rows : int, default=2000
        Rows used, drawn at random where there are more: the cost is their cube.
    random_state : int, RandomState or None

    Attributes
    ----------
    components_ : array (n_components, n_features)
        The directions, each of length one, the one that counts most first.
    eigenvalues_ : array (n_components,)
        How much each counts.

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
    """Return the matrix M of gradient-based KDR.

    For the Gaussian kernel row j of N_i is ``2 gamma k_ij (z_j - z_i)``, so that with F = A^-1 G_y A^-1 and k_i the
    column i of K, ``N_i' F N_i = 4 gamma^2 (Z - z_i)' (F * k_i k_i') (Z - z_i)``, which is summed over i as
    ``Z' S Z - T - T' + ...`` without the m matrices: with ``S = F * (K'K)`` and ``q_i = F (k_i * .)``.
    """
    m = len(Z)
    kernel, kernel_y = _gaussian(Z), _gaussian(y[:, None])
    K = kernel(Z, Z)
    A = K + m * epsilon * np.eye(m)
    factor = cho_factor(A, lower=True, check_finite=False)
    G_y = kernel_y(y[:, None], y[:, None])
    F = cho_solve(factor, cho_solve(factor, G_y, check_finite=False).T, check_finite=False)
    # sum_i (F * k_i k_i') = F * (K K'), sum_i z_i 1' (F * k_i k_i') Z with row sums u_i = k_i * (F k_i).
    FK = F @ K
    U = K * FK  # column i: k_i * (F k_i), the row sums of F * k_i k_i'
    totals = U.sum(axis=0)  # 1' (F * k_i k_i') 1
    cross = Z.T @ U @ Z  # sum_i (Z' u_i) z_i'
    M = Z.T @ (F * (K @ K.T)) @ Z - cross - cross.T + (Z.T * totals) @ Z
    return (4.0 * kernel.scale**2 / m) * (M + M.T) / 2.0
