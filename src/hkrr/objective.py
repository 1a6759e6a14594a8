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
from typing import Any

import numpy as np

from hkrr._arrays import (
    EPS,
    Array,
    Watch,
    array_namespace,
    dot,
    gram,
    is_torch_array,
    jittered_cholesky,
    solve_positive_definite,
    solve_triangular,
)
from hkrr.journal import about
from hkrr.kernels import Kernel
from hkrr.rows import Rows

# Below this lambda / kappa the normal equations are whitened: above it they lose at most eps * 1e8, eight digits.
WHITEN_BELOW = 1e-4


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
        return float(dot(alpha, self.A @ alpha - 2.0 * self.b)) + self.constant

    def grad(self, alpha: Array) -> Array:
        """Return ``2 (A alpha - b)``."""
        return 2.0 * (self.A @ alpha - self.b)

    def change(self, gradient: Array, displacement: Array) -> float:
        """Return L(B, a + displacement) - L(B, a), given the gradient at a: exact, nothing cancels."""
        return float(dot(displacement, gradient + self.A @ displacement))

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
            centers, Y, w = rows.gather()
            self._Y = rows.place(Y)
            self._root_weight = rows.place(np.ones((rows.n_rows, 1)) if w is None else np.sqrt(w)[:, None])
        self.centers = centers
        self._placed_centers = rows.place(centers)
        self.loss_at_zero = float(rows.sum(_sum_of_squares)[0]) / rows.total_weight

    @property
    def n_centers(self) -> int:
        """Number of centers."""
        return int(self.centers.shape[0])

    @property
    def content(self) -> tuple[Any, ...]:
        """What its values depend on, for the keys of a journal; of the rows their number, weight and squares."""
        rows = about(self.loss_at_zero, self.rows.total_weight)
        return ("training", self.rows.n_rows, *rows, self.centers, self.exact, self.kernel, self.reg_lambda)

    def _place(self, B: Array, *more: Array) -> tuple[Array, ...]:
        """Return B, ``C = X~ B'`` and what is given beside it, where the sums are."""
        B = self.rows.place(B)
        return B, self._placed_centers @ B.T, *(self.rows.place(array) for array in more)

    def value(self, B: Array, alpha: Array) -> float:
        """Return L(B, alpha)."""
        B, C, alpha = self._place(B, alpha)
        kernel = self.kernel

        def block(X: Array, Y: Array, w: Array | None, B: Array, C: Array, alpha: Array) -> tuple[Array]:
            return (_weighted_square(kernel(X @ B.T, C) @ alpha - Y, w),)

        (loss,) = self.rows.sum(block, self.n_centers, B, C, alpha)
        return float(loss / self.rows.total_weight + self._penalty(kernel(C, C), alpha))

    def grad_alpha(self, B: Array, alpha: Array) -> Array:
        """Return ``(2/W) K'w(K alpha - y) + 2 lambda K_cc alpha``."""
        B, C, alpha = self._place(B, alpha)
        kernel = self.kernel

        def block(X: Array, Y: Array, w: Array | None, B: Array, C: Array, alpha: Array) -> tuple[Array]:
            K = kernel(X @ B.T, C)
            return (K.T @ _weighted(K @ alpha - Y, w),)

        (Kr,) = self.rows.sum(block, self.n_centers, B, C, alpha)
        gradient = (2.0 / self.rows.total_weight) * Kr + 2.0 * self.reg_lambda * (kernel(C, C) @ alpha)
        return self.rows.fetch(gradient)[0]

    def grad_B(self, B: Array, alpha: Array) -> Array:
        """Return dL/dB at (B, alpha)."""
        return self.value_and_grad_B(B, alpha)[1]

    def value_and_grad_B(self, B: Array, alpha: Array) -> tuple[float, Array]:
        """Return L(B, alpha) and dL/dB, from one pass over the rows."""
        value, grad = self.rows.fetch(*self._value_and_grad(*self._place(B, alpha)))
        return float(value), grad

    def _value_and_grad(self, B: Array, C: Array, alpha: Array) -> tuple[Array, Array]:
        kernel, factor = self.kernel, 2.0 / self.rows.total_weight

        def block(X: Array, Y: Array, w: Array | None, B: Array, C: Array, alpha: Array) -> tuple[Array, Array, Array]:
            K, pullback = kernel.vjp_low_rank(X @ B.T, C)
            residual = K @ alpha - Y
            dP, dC = pullback(factor * _weighted(residual, w), alpha)
            return _weighted_square(residual, w), dP.T @ X, dC

        loss, grad, dC = self.rows.sum(block, self.n_centers, B, C, alpha)
        K_cc, pullback = kernel.vjp_low_rank(C, C)
        value = loss / self.rows.total_weight + self._penalty(K_cc, alpha)
        left, right = pullback(self.reg_lambda * alpha, alpha)
        return value, grad + (dC + left + right).T @ self._placed_centers

    def inner(self, B: Array) -> Quadratic:
        """Return L(B, .) as a quadratic in alpha, from one pass over the rows."""
        B, C = self._place(B)
        A, b = self.rows.fetch(*self._normal_equations(B, C))
        return Quadratic(A, b, self.loss_at_zero, self._ridge(self._kappa(C)))

    def _normal_equations(self, B: Array, C: Array) -> tuple[Array, Array]:
        """Return ``A = K'WK/W + lambda K_cc`` and ``b = K'WY/W``."""
        kernel = self.kernel

        def block(X: Array, Y: Array, w: Array | None, B: Array, C: Array) -> tuple[Array, Array]:
            K, Y = _times_root(w, kernel(X @ B.T, C), Y)
            return gram(K), K.T @ Y

        A, b = self.rows.sum(block, self.n_centers, B, C)
        A /= self.rows.total_weight
        A += self.reg_lambda * kernel(C, C)
        return A, b / self.rows.total_weight

    def solve_alpha(self, B: Array, watch: Watch | None = None) -> Array:
        """Return the minimiser of L(B, .): ``(K'WK + lambda W K_cc) alpha = K'Wy``."""
        B, C = self._place(B)
        if self.exact:
            return self.rows.fetch(self._solve_exact(self._square_kernel(B, C), watch))[0]
        return self.rows.fetch(self._solve(B, C, watch)[0])[0]

    def reduced(self, B: Array) -> Reduced:
        """Return H(B) = min_a L(B, a), its gradient, and the minimiser."""
        B, C = self._place(B)
        if self.exact:
            value, grad, alpha = self.rows.fetch(*self._reduced_exact(C))
            return Reduced(float(value), grad, alpha)
        alpha, ridge = self._solve(B, C)
        value, grad = self._value_and_grad(B, C, alpha)
        value, grad, alpha = self.rows.fetch(value + ridge * dot(alpha, alpha), grad, alpha)
        return Reduced(float(value), grad, alpha)

    def _solve(self, B: Array, C: Array, watch: Watch | None = None) -> tuple[Array, float]:
        """Return the minimiser, and the ridge it was found with."""
        kappa = self._kappa(C)
        if self.reg_lambda < WHITEN_BELOW * kappa:
            return self._solve_whitened(B, C, kappa, watch)
        A, b = self._normal_equations(B, C)
        if watch is not None:
            watch.jitter, watch.penalty = EPS * self.n_centers, self.reg_lambda * self.kernel(C, C)
            watch.worst = (kappa / self.reg_lambda + 1.0) ** 2
        return solve_positive_definite(A, b, self._ridge(kappa), watch=watch)

    def _solve_whitened(self, B: Array, C: Array, kappa: float, watch: Watch | None = None) -> tuple[Array, float]:
        """With T T' = K_cc and V = T^-1 K': ``(V W V' / W + lambda I) beta = V W y / W``, ``alpha = T^-T beta``."""
        kernel = self.kernel
        T, jitter = jittered_cholesky(kernel(C, C), 10.0 * EPS * self.n_centers * kappa)

        def block(X: Array, Y: Array, w: Array | None, B: Array, C: Array, T: Array) -> tuple[Array, Array]:
            K, Y = _times_root(w, kernel(X @ B.T, C), Y)
            V = solve_triangular(T, K.T)
            return gram(V.T), V @ Y

        S, v = self.rows.sum(block, self.n_centers, B, C, T)
        S /= self.rows.total_weight
        if watch is not None:
            watch.jitter, watch.penalty = jitter / kappa, self.reg_lambda
        beta, _ = solve_positive_definite(S, v / self.rows.total_weight, self.reg_lambda, watch=watch)
        return solve_triangular(T, beta, transpose=True), self.reg_lambda * jitter

    def _reduced_exact(self, P: Array) -> tuple[Array, Array, Array]:
        """With all rows as centers, K a - y = -lambda W a / w: H = lambda tr(y'a) and dH/dK = -lambda a a'."""
        K, pullback = self.kernel.vjp_low_rank(P, P)
        alpha = self._solve_exact(array_namespace(K).asarray(K, copy=True))
        left, right = pullback(-self.reg_lambda * alpha, alpha)
        return self.reg_lambda * dot(self._Y, alpha), (left + right).T @ self._placed_centers, alpha

    def _square_kernel(self, B: Array, C: Array) -> Array:
        """Return K of all rows: where they are, at once on a device, on threads otherwise."""
        kernel = self.kernel
        if is_torch_array(C):
            return kernel(C, C)

        def block(X: Array, Y: Array, w: Array | None, B: Array, C: Array) -> tuple[Array]:
            return (kernel(X @ B.T, C),)

        return self.rows.map(block, self.n_centers, B, C)

    def _solve_exact(self, K: Array, watch: Watch | None = None) -> Array:
        """Solve ``(K + lambda W diag(1/w)) a = y`` as a = D b, (D K D + lambda W I) b = D y with D = diag(sqrt w)."""
        root = self._root_weight
        K *= root
        K *= root.T
        nu = self.reg_lambda * self.rows.total_weight
        if watch is not None:
            watch.penalty = nu
        return root * solve_positive_definite(K, root * self._Y, nu, self.rows.n_threads, watch)[0]

    def _penalty(self, K_cc: Array, alpha: Array) -> Array:
        return self.reg_lambda * dot(alpha, K_cc @ alpha)

    def _kappa(self, C: Array) -> float:
        return float(array_namespace(C).max(self.kernel.diagonal(C)))

    def _ridge(self, kappa: float) -> float:
        """Return what keeps A definite."""
        return EPS * self.n_centers * kappa * (kappa + self.reg_lambda)


def _times_root(w: Array | None, K: Array, Y: Array) -> tuple[Array, Array]:
    """Return both with their rows times sqrt(w); K is overwritten."""
    if w is None:
        return K, Y
    root = array_namespace(w).sqrt(w)[:, None]
    K *= root
    return K, root * Y


def _weighted(R: Array, w: Array | None) -> Array:
    return R if w is None else w[:, None] * R


def _weighted_square(R: Array, w: Array | None) -> Array:
    return dot(R, _weighted(R, w))


def _sum_of_squares(X: Array, Y: Array, w: Array | None) -> tuple[Array]:
    return (_weighted_square(Y, w),)
