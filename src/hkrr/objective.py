"""The objective of HKRR and its derivatives, as sums over rows.

    L(B, a) = sum_i w_i |(K a)_i - y_i|^2 / W  +  lambda tr(a' K_cc a)            (the paper's equation for L)

with P = X B', C = X~ B', K = k(P, C), K_cc = k(C, C), W = sum_i w_i, X~ the centers, and one column of y and of a for
each target. For a given map B it is a quadratic in a (`Quadratic`); its minimum over a is the reduced function H(B).
By the envelope theorem the gradient of H is that of L in B at the minimiser, so one gradient serves every solver:

    dL/dK = (2/W) w r a',   dL/dK_cc = lambda a a',   dL/dB = dL/dP' X + dL/dC' X~

where the kernel's pullback leads from dL/dK to dL/dP and dL/dC. Nothing of size m x c is kept, only blocks of it.

Numerics. Summed as K'K, the normal equations are exact to one rounding unit of their largest possible eigenvalue; a
ridge of that size, eps c kappa (kappa + lambda) |a|^2, keeps them definite. Its cost grows as eps (kappa / lambda)^2:
below lambda = 1e-4 kappa they are whitened by a factor of K_cc before they are summed, which takes twice the time and
is accurate for every lambda. `reduced` counts either ridge in its value: value and gradient belong together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular

from hkrr._arrays import EPS, Array, jittered_cholesky, low_rank_product, solve_positive_definite
from hkrr.kernels import Kernel
from hkrr.rows import Rows

# Below this lambda / kappa the normal equations are whitened: above it they lose at most eps * 1e8, eight digits.
_WHITEN_BELOW = 1e-4


@dataclass(frozen=True)
class Reduced:
    """The reduced function at a map: its value, its gradient in B, and the coefficients that attain it.

    A criterion that can choose lambda also has its derivative in log lambda.
    """

    value: float
    grad: Array
    alpha: Array
    grad_log_lambda: float | None = None


@dataclass(frozen=True)
class Quadratic:
    """L(B, .) at one map: ``tr(a' A a) - 2 tr(a' b) + constant``, A = K'WK/W + lambda K_cc, b = K'WY/W."""

    A: Array
    b: Array
    constant: float
    ridge: float

    def value(self, alpha: Array) -> float:
        """Return L(B, alpha)."""
        return float(np.vdot(alpha, self.A @ alpha - 2.0 * self.b)) + self.constant

    def grad(self, alpha: Array) -> Array:
        """Return ``2 (A alpha - b)``."""
        return 2.0 * (self.A @ alpha - self.b)

    def change(self, gradient: Array, displacement: Array) -> float:
        """Return L(B, a + displacement) - L(B, a), given the gradient at a: exact, nothing cancels."""
        return float(np.vdot(displacement, gradient + self.A @ displacement))

    def solve(self) -> Array:
        """Return the minimiser, the paper's closed form for alpha(B)."""
        return solve_positive_definite(self.A.copy(), self.b, self.ridge)[0]

    def lipschitz(self) -> float:
        """Return the Lipschitz constant of the gradient, twice the largest eigenvalue of A."""
        return 2.0 * float(np.linalg.eigvalsh(self.A)[-1])


class Objective:
    """L(B, a) for given rows, centers, kernel and lambda.

    Parameters
    ----------
    rows : Rows
    centers : array (c, D) in the coordinates of the rows, or None: all rows are centers. Then K is square, and
        ``(K + lambda W diag(1/w)) a = y`` gives the minimiser more cheaply, and accurately for every lambda.
    kernel : Kernel
    reg_lambda : float
    """

    learn_lambda = False  # the training objective would make it zero

    def __init__(self, rows: Rows, centers: Array | None, kernel: Kernel, reg_lambda: float) -> None:
        self.rows, self.kernel, self.reg_lambda = rows, kernel, reg_lambda
        self.exact = centers is None
        if centers is None:
            centers, self._Y, w = rows.gather()
            self._root_weight = np.ones((rows.n_rows, 1)) if w is None else np.sqrt(w)[:, None]
        self.centers = centers
        self.loss_at_zero = float(rows.sum(_sum_of_squares)[0]) / rows.total_weight

    @property
    def n_centers(self) -> int:
        """Number of centers."""
        return int(self.centers.shape[0])

    def value(self, B: Array, alpha: Array) -> float:
        """Return L(B, alpha)."""
        C = self.centers @ B.T

        def block(X: Array, Y: Array, w: Array | None) -> tuple[float]:
            return (_weighted_square(self.kernel(X @ B.T, C) @ alpha - Y, w),)

        (loss,) = self.rows.sum(block, self.n_centers)
        return float(loss) / self.rows.total_weight + self._penalty(self.kernel(C, C), alpha)

    def grad_alpha(self, B: Array, alpha: Array) -> Array:
        """Return ``(2/W) K'w(K alpha - y) + 2 lambda K_cc alpha``."""
        C = self.centers @ B.T

        def block(X: Array, Y: Array, w: Array | None) -> tuple[Array]:
            K = self.kernel(X @ B.T, C)
            return (K.T @ _weighted(K @ alpha - Y, w),)

        (Kr,) = self.rows.sum(block, self.n_centers)
        return (2.0 / self.rows.total_weight) * Kr + 2.0 * self.reg_lambda * (self.kernel(C, C) @ alpha)

    def grad_B(self, B: Array, alpha: Array) -> Array:
        """Return dL/dB at (B, alpha)."""
        return self.value_and_grad_B(B, alpha)[1]

    def value_and_grad_B(self, B: Array, alpha: Array) -> tuple[float, Array]:
        """Return L(B, alpha) and dL/dB, from one pass over the rows."""
        C = self.centers @ B.T
        factor = 2.0 / self.rows.total_weight

        def block(X: Array, Y: Array, w: Array | None) -> tuple[float, Array, Array]:
            K, pullback = self.kernel.vjp(X @ B.T, C)
            residual = K @ alpha - Y
            dP, dC = pullback(low_rank_product(factor * _weighted(residual, w), alpha))
            return _weighted_square(residual, w), dP.T @ X, dC

        loss, grad, dC = self.rows.sum(block, self.n_centers)
        K_cc, pullback = self.kernel.vjp(C, C)
        value = float(loss) / self.rows.total_weight + self._penalty(K_cc, alpha)
        left, right = pullback(low_rank_product(self.reg_lambda * alpha, alpha))
        return value, grad + (dC + left + right).T @ self.centers

    def inner(self, B: Array) -> Quadratic:
        """Return L(B, .) as a quadratic in alpha, from one pass over the rows."""
        C = self.centers @ B.T

        def block(X: Array, Y: Array, w: Array | None) -> tuple[Array, Array]:
            K, Y = _times_root(w, self.kernel(X @ B.T, C), Y)
            return K.T @ K, K.T @ Y

        A, b = self.rows.sum(block, self.n_centers)
        A /= self.rows.total_weight
        A += self.reg_lambda * self.kernel(C, C)
        return Quadratic(A, b / self.rows.total_weight, self.loss_at_zero, self._ridge(C))

    def solve_alpha(self, B: Array) -> Array:
        """Return the minimiser of L(B, .): ``(K'WK + lambda W K_cc) alpha = K'Wy``."""
        if self.exact:
            C = self.centers @ B.T
            return self._solve_exact(self.rows.map(lambda X, Y, w: (self.kernel(X @ B.T, C),), self.n_centers))
        return self._solve(B)[0]

    def reduced(self, B: Array) -> Reduced:
        """Return H(B) = min_a L(B, a), its gradient, and the minimiser."""
        if self.exact:
            return self._reduced_exact(B)
        alpha, ridge = self._solve(B)
        value, grad = self.value_and_grad_B(B, alpha)
        return Reduced(value + ridge * float(np.vdot(alpha, alpha)), grad, alpha)

    def _solve(self, B: Array) -> tuple[Array, float]:
        """Return the minimiser, and the ridge it was found with."""
        C = self.centers @ B.T
        kappa = float(np.max(self.kernel.diagonal(C)))
        if self.reg_lambda < _WHITEN_BELOW * kappa:
            return self._solve_whitened(B, C, kappa)
        inner = self.inner(B)
        return solve_positive_definite(inner.A, inner.b, inner.ridge)

    def _solve_whitened(self, B: Array, C: Array, kappa: float) -> tuple[Array, float]:
        """With T T' = K_cc and V = T^-1 K': ``(V W V' / W + lambda I) beta = V W y / W``, ``alpha = T^-T beta``."""
        T, jitter = jittered_cholesky(self.kernel(C, C), 10.0 * EPS * self.n_centers * kappa)

        def block(X: Array, Y: Array, w: Array | None) -> tuple[Array, Array]:
            K, Y = _times_root(w, self.kernel(X @ B.T, C), Y)
            V = solve_triangular(T, K.T, lower=True, overwrite_b=True, check_finite=False)
            return V @ V.T, V @ Y

        S, v = self.rows.sum(block, self.n_centers)
        S /= self.rows.total_weight
        beta, _ = solve_positive_definite(S, v / self.rows.total_weight, self.reg_lambda)
        alpha = solve_triangular(T, beta, lower=True, trans="T", check_finite=False)
        return alpha, self.reg_lambda * jitter

    def _reduced_exact(self, B: Array) -> Reduced:
        """With all rows as centers, K a - y = -lambda W a / w: H = lambda tr(y'a) and dH/dK = -lambda a a'."""
        P = self.centers @ B.T
        K, pullback = self.kernel.vjp(P, P)
        alpha = self._solve_exact(K.copy())
        left, right = pullback(low_rank_product(-self.reg_lambda * alpha, alpha))
        return Reduced(self.reg_lambda * float(np.vdot(self._Y, alpha)), (left + right).T @ self.centers, alpha)

    def _solve_exact(self, K: Array) -> Array:
        """Solve ``(K + lambda W diag(1/w)) a = y`` as a = D b, (D K D + lambda W I) b = D y with D = diag(sqrt w)."""
        root = self._root_weight
        K *= root
        K *= root.T
        n = self.rows.n_threads
        return root * solve_positive_definite(K, root * self._Y, self.reg_lambda * self.rows.total_weight, n)[0]

    def _penalty(self, K_cc: Array, alpha: Array) -> float:
        return self.reg_lambda * float(np.vdot(alpha, K_cc @ alpha))

    def _ridge(self, C: Array) -> float:
        kappa = float(np.max(self.kernel.diagonal(C)))
        return EPS * self.n_centers * kappa * (kappa + self.reg_lambda)


def _times_root(w: Array | None, K: Array, Y: Array) -> tuple[Array, Array]:
    """Return both with their rows times sqrt(w); K is overwritten."""
    if w is None:
        return K, Y
    root = np.sqrt(w)[:, None]
    K *= root
    return K, root * Y


def _weighted(R: Array, w: Array | None) -> Array:
    return R if w is None else w[:, None] * R


def _weighted_square(R: Array, w: Array | None) -> float:
    return float(np.vdot(R, _weighted(R, w)))


def _sum_of_squares(X: Array, Y: Array, w: Array | None) -> tuple[float]:
    return (_weighted_square(Y, w),)
