"""The objective of hyper-kernel ridge regression and its derivatives, as sums over rows.

    L(B, a) = sum_i w_i |(K a)_i - y_i|^2 / W  +  lambda tr(a' K_cc a)            (the paper's equation for L)

Here X holds the m rows and X~ the c centers, P = X B', C = X~ B', K = k(P, C), K_cc = k(C, C), a are the coefficients
of the kernel functions at the centers, w_i are the sample weights and W = sum_i w_i. In matrix formulas, w stands for
diag(w). Both y and a have one column per target. For a given map B, L is a quadratic function of a (`Quadratic`). Its
minimum over a is the reduced function H(B). By the envelope theorem, the gradient of H at B is dL/dB at the minimizing
a. All solvers therefore use the same gradient, with the residuals r = K a - y:

    dL/dK = (2/W) w r a',   dL/dK_cc = lambda a a',   dL/dB = dL/dP' X + dL/dC' X~

The kernel's pullback converts dL/dK into dL/dP and dL/dC. Unless all rows are centers, only blocks of the m x c matrix
K are stored at any time. In all methods, B may also be a vector (D,), which stands for a diagonal D x D map.

Numerics. Let eps be the machine epsilon and kappa the largest entry of K_cc's diagonal. The rounding errors of the
normal equations, which are sums over the rows, are about eps times their largest possible eigenvalue, c kappa (kappa +
lambda). Adding the ridge term eps c kappa (kappa + lambda) |a|^2 keeps the normal equations positive definite. The
relative error of the solution grows like eps (kappa / lambda)^2. If lambda is below 1e-4 kappa, the blocks of K are
therefore whitened before they are summed: they are multiplied by the inverse Cholesky factor of K_cc. Whitening doubles
the time and is accurate for every lambda. The value returned by `reduced` includes the ridge term, so that value and
gradient are consistent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hkrr._base.linear_algebra import (
    EPS,
    Array,
    SolveInfo,
    array_namespace,
    dot,
    gram,
    is_torch_array,
    jittered_cholesky,
    project,
    pull_to_map,
    solve_positive_definite,
    solve_triangular,
)
from hkrr._base.resume_journal import rounded
from hkrr.kernels import Kernel
from hkrr.kernels.expansion_values import expand
from hkrr.rows import Rows

# The normal equations are whitened if lambda / kappa is below this value (see the docstring of this module). Above this
# value, the relative error without whitening is at most eps * 1e8, which means a loss of eight digits.
WHITEN_BELOW = 1e-4


# Bounds on a learned lambda. Above the upper bound the fitted function is practically zero. Below the lower bound
# rounding errors are fitted.
LAMBDA_BOUNDS = (1e-12, 1e3)


@dataclass(frozen=True)
class Reduced:
    """The reduced function H at a map B: its value, its gradient, and the minimizing coefficients ``alpha``.

    H(B) is the minimum of the training objective over the coefficients, or the value of a criterion. For criteria that
    can learn lambda, ``grad_log_lambda`` is the derivative with respect to log lambda. Otherwise it is None.
    ``reg_lambda`` is the best lambda for the map if the criterion was minimized over lambda too, and None otherwise.
    """

    value: float
    grad: Array
    alpha: Array
    grad_log_lambda: float | None = None
    reg_lambda: float | None = None


@dataclass(frozen=True)
class Quadratic:
    """L(B, a) for a fixed map B, as a function of the coefficients a: ``tr(a' A a) - 2 tr(a' b) + constant``.

    Here A = K'wK/W + lambda K_cc and b = K'wy/W, in the notation of the module docstring.
    """

    A: Array
    b: Array
    constant: float

    def grad(self, alpha: Array) -> Array:
        """Return ``2 (A alpha - b)``."""
        return 2.0 * (self.A @ alpha - self.b)

    def change(self, gradient: Array, displacement: Array) -> float:
        """Return L(B, a + displacement) - L(B, a), given the gradient at a, without cancellation of large values."""
        return float(dot(displacement, gradient + self.A @ displacement))

    def lipschitz(self) -> float:
        """Return the Lipschitz constant of the gradient, twice the largest eigenvalue of A."""
        return 2.0 * float(np.linalg.eigvalsh(self.A)[-1])


class Objective:
    """The training objective L(B, a) for given rows, centers, kernel and lambda.

    Parameters
    ----------
    rows : Rows
        The training data.
    centers : array (c, D) or None
        Nystrom centers, shifted and scaled like the rows. None uses all rows as centers. K is then square, and the
        minimizer solves ``(K + lambda W diag(1/w)) a = y``, where w are the sample weights and W is their sum. Solving
        this system costs less than solving the normal equations and is accurate for every lambda.
    kernel : Kernel
        The kernel k of latent points.
    reg_lambda : float
        The regularization parameter lambda.
    """

    learn_lambda = False  # H increases with lambda, so minimizing H over lambda would give lambda = 0

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
        """Values that identify the objective in the journal of a checkpoint (`hkrr._base.resume_journal`).

        The rows are represented by their number, their total weight and the mean square of the targets.
        """
        rows = rounded(self.loss_at_zero, self.rows.total_weight)
        return ("training", self.rows.n_rows, *rows, self.centers, self.exact, self.kernel, self.reg_lambda)

    def _place(self, B: Array, *more: Array) -> tuple[Array, ...]:
        """Return B, ``C = X~ B'`` and the arrays in ``more``, on the device where the sums are computed."""
        B = self.rows.place(B)
        return B, project(self._placed_centers, B), *(self.rows.place(array) for array in more)

    def value(self, B: Array, alpha: Array) -> float:
        """Return L(B, alpha)."""
        B, C, alpha = self._place(B, alpha)
        kernel = self.kernel

        def block(X: Array, Y: Array, w: Array | None, B: Array, C: Array, alpha: Array) -> tuple[Array]:
            return (_weighted_square(expand(kernel, X, B, C, alpha) - Y, w),)

        (loss,) = self.rows.sum(block, self.n_centers, B, C, alpha)
        return float(loss / self.rows.total_weight + self._penalty(kernel(C, C), alpha))

    def value_and_grad_B(self, B: Array, alpha: Array) -> tuple[float, Array]:
        """Return L(B, alpha) and dL/dB, computed in one pass over the rows."""
        value, grad = self.rows.fetch(*self._value_and_grad(*self._place(B, alpha)))
        return float(value), grad

    def _value_and_grad(self, B: Array, C: Array, alpha: Array) -> tuple[Array, Array]:
        kernel, factor = self.kernel, 2.0 / self.rows.total_weight

        def block(X: Array, Y: Array, w: Array | None, B: Array, C: Array, alpha: Array) -> tuple[Array, Array, Array]:
            K, pullback = kernel.vjp_low_rank(project(X, B), C)
            residual = K @ alpha - Y
            dP, dC = pullback(factor * _weighted(residual, w), alpha)
            return _weighted_square(residual, w), pull_to_map(dP, X, B), dC

        loss, grad, dC = self.rows.sum(block, self.n_centers, B, C, alpha)
        K_cc, pullback = kernel.vjp_low_rank(C, C)
        value = loss / self.rows.total_weight + self._penalty(K_cc, alpha)
        left, right = pullback(self.reg_lambda * alpha, alpha)
        return value, grad + pull_to_map(dC + left + right, self._placed_centers, B)

    def inner(self, B: Array) -> Quadratic:
        """Return L(B, alpha) as a quadratic function of alpha, computed in one pass over the rows."""
        B, C = self._place(B)
        A, b = self.rows.fetch(*self._normal_equations(B, C))
        return Quadratic(A, b, self.loss_at_zero)

    def _normal_equations(self, B: Array, C: Array) -> tuple[Array, Array]:
        """Return ``A = K'wK/W + lambda K_cc`` and ``b = K'wy/W``."""
        kernel = self.kernel

        def block(X: Array, Y: Array, w: Array | None, B: Array, C: Array) -> tuple[Array, Array]:
            K, Y = _times_root(w, kernel(project(X, B), C), Y)
            return gram(K), K.T @ Y

        A, b = self.rows.sum(block, self.n_centers, B, C)
        A /= self.rows.total_weight
        A += self.reg_lambda * kernel(C, C)
        return A, b / self.rows.total_weight

    def solve_alpha(self, B: Array) -> Array:
        """Return the alpha that minimizes L(B, alpha), the solution of ``(K'wK + lambda W K_cc) alpha = K'wy``."""
        return self.solve(B)[0]

    def solve(self, B: Array) -> tuple[Array, SolveInfo]:
        """Return the alpha that minimizes L(B, alpha), and details of the linear system that was solved."""
        B, C = self._place(B)
        if self.exact:
            alpha, _, info = self._solve_exact(self._square_kernel(B, C), with_norm=True)
        else:
            alpha, _, info = self._solve(B, C, with_norm=True)
        return self.rows.fetch(alpha)[0], info

    def reduced(self, B: Array) -> Reduced:
        """Return H(B) = min_a L(B, a), its gradient, and the minimizing coefficients."""
        B, C = self._place(B)
        if self.exact:
            value, grad, alpha = self.rows.fetch(*self._reduced_exact(B, C))
            return Reduced(float(value), grad, alpha)
        alpha, ridge = self._solve(B, C)[:2]
        value, grad = self._value_and_grad(B, C, alpha)
        value, grad, alpha = self.rows.fetch(value + ridge * dot(alpha, alpha), grad, alpha)
        return Reduced(float(value), grad, alpha)

    def _solve(self, B: Array, C: Array, with_norm: bool = False) -> tuple[Array, float, SolveInfo]:
        """Return the minimizing coefficients, the ridge that was added to the system, and details of the solve."""
        kappa = self._kappa(C)
        if self.reg_lambda < WHITEN_BELOW * kappa:
            return self._solve_whitened(B, C, kappa, with_norm)
        alpha, ridge, info = solve_positive_definite(
            *self._normal_equations(B, C), self._ridge(kappa), with_norm=with_norm
        )
        info = replace(
            info,
            jitter=EPS * self.n_centers + info.jitter,
            penalize=lambda Z: self.rows.fetch(self.reg_lambda * self.kernel(C, C))[0] @ Z,
            condition_bound=(kappa / self.reg_lambda + 1.0) ** 2,
        )
        return alpha, ridge, info

    def _solve_whitened(self, B: Array, C: Array, kappa: float, with_norm: bool) -> tuple[Array, float, SolveInfo]:
        """Return the minimizing coefficients alpha, the ridge that corresponds to the jitter of T, and details.

        Let T be the lower Cholesky factor of K_cc, and V = T^-1 K'. Then alpha = T^-T beta, where beta solves
        (VwV'/W + lambda I) beta = Vwy/W.
        """
        kernel = self.kernel
        T, jitter = jittered_cholesky(kernel(C, C), 10.0 * EPS * self.n_centers * kappa)

        def block(X: Array, Y: Array, w: Array | None, B: Array, C: Array, T: Array) -> tuple[Array, Array]:
            K, Y = _times_root(w, kernel(project(X, B), C), Y)
            V = solve_triangular(T, K.T)
            return gram(V.T), V @ Y

        S, v = self.rows.sum(block, self.n_centers, B, C, T)
        S /= self.rows.total_weight
        # The entries of S have rounding errors of this size. A smaller ridge would not keep S positive definite.
        ridge = max(self.reg_lambda, EPS * self.n_centers * float(array_namespace(S).max(S.diagonal())))
        beta, _, info = solve_positive_definite(S, v / self.rows.total_weight, ridge, with_norm=with_norm)
        info = replace(info, jitter=jitter / kappa + info.jitter, penalize=lambda Z: self.reg_lambda * Z, whitened=True)
        return solve_triangular(T, beta, transpose=True), self.reg_lambda * jitter, info

    def _reduced_exact(self, B: Array, P: Array) -> tuple[Array, Array, Array]:
        """Return the reduced function H, its gradient and the minimizing coefficients a if all rows are centers.

        Since K a - y = -lambda W a / w at the minimizer, H = lambda tr(y'a) and dH/dK = -lambda a a'.
        """
        K, pullback = self.kernel.vjp_low_rank(P, P)
        alpha, reg_lambda = self._solve_exact(array_namespace(K).asarray(K, copy=True))[:2]
        left, right = pullback(-reg_lambda * alpha, alpha)
        return reg_lambda * dot(self._Y, alpha), pull_to_map(left + right, self._placed_centers, B), alpha

    def _square_kernel(self, B: Array, C: Array) -> Array:
        """Return the kernel matrix of all rows.

        PyTorch tensors are processed by a single call of the kernel, and NumPy arrays in blocks by several threads.
        """
        kernel = self.kernel
        if is_torch_array(C):
            return kernel(C, C)

        def block(X: Array, Y: Array, w: Array | None, B: Array, C: Array) -> tuple[Array]:
            return (kernel(project(X, B), C),)

        return self.rows.map(block, self.n_centers, B, C)

    def _solve_exact(self, K: Array, with_norm: bool = False) -> tuple[Array, float, SolveInfo]:
        """Return the solution a of ``(K + lambda W diag(1/w)) a = y``, the lambda that was used, and details.

        K is overwritten.

        With D = diag(sqrt(w)), the solution is a = D b, where b solves (D K D + lambda W I) b = D y. The entries of K
        have rounding errors. Lambda W is raised to the size of these errors, because a smaller ridge would not keep the
        system positive definite.
        """
        root = self._root_weight
        K *= root
        K *= root.T
        nu = max(self.reg_lambda * self.rows.total_weight, EPS * len(K) * float(array_namespace(K).max(K.diagonal())))
        Y = root * self._Y
        solution, _, info = solve_positive_definite(K, Y, nu, self.rows.n_threads, with_norm)
        size = float(dot(Y, Y))
        # Rounding errors change the fitted values by at most this factor times eps |y|.
        bound = info.norm * math.sqrt(float(dot(solution, solution)) / size) if size > 0.0 else math.inf
        info = replace(info, penalize=lambda Z: nu * Z, condition_bound=bound)
        return root * solution, nu / self.rows.total_weight, info

    def _penalty(self, K_cc: Array, alpha: Array) -> Array:
        return self.reg_lambda * dot(alpha, K_cc @ alpha)

    def _kappa(self, C: Array) -> float:
        return float(array_namespace(C).max(self.kernel.diagonal(C)))

    def _ridge(self, kappa: float) -> float:
        """Return the multiple of the identity that keeps A positive definite."""
        return EPS * self.n_centers * kappa * (kappa + self.reg_lambda)


def _times_root(w: Array | None, K: Array, Y: Array) -> tuple[Array, Array]:
    """Return K and Y with their rows multiplied by sqrt(w). K is overwritten."""
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
