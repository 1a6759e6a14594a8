"""The base class of criteria. It computes the coefficients in whitened coordinates and the gradient with respect to B.

Notation: K is the kernel matrix between rows and centers, K_cc the kernel matrix of the centers, w the sample weights,
W their sum, and y the targets. In matrix formulas, sqrt(w) stands for diag(sqrt(w)). T is the lower Cholesky factor of
K_cc, so T T' = K_cc. Furthermore, V = T^-1 K' sqrt(w), S = V V' + nu I and nu = lambda W. The noise variance of the
equivalent Gaussian process is nu times its signal variance. The coefficients are ``alpha = T^-T beta``, where beta
solves ``S beta = V sqrt(w) y``.

A criterion l is a function of V, y and nu that is invariant under rotations of V. Let G_V be the gradient of l with
respect to V. Because of the invariance, A = G_V V' is symmetric, and

    dl/dK = sqrt(w) G_V' T^-1,    dl/dK_cc = -1/2 T^-T A T^-1.

The kernel's pullback converts these two derivatives into the gradient with respect to B, as for the training objective
(`hkrr.objective`).
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from hkrr._base.linear_algebra import (
    EPS,
    Array,
    add_to_diagonal,
    array_namespace,
    gram,
    inverse_and_log_det,
    jittered_cholesky,
    project,
    solve_triangular,
    solve_with_lower,
)
from hkrr._base.resume_journal import rounded
from hkrr.kernels import Kernel, Pullback
from hkrr.objective import LAMBDA_BOUNDS, Reduced
from hkrr.rows import Rows


@dataclass(frozen=True)
class Whitened:
    """Sums over the rows for a given map, and quantities computed from these sums, on the device of the rows.

    The module docstring defines the symbols.
    """

    B: Array
    C: Array  # latent centers, the centers mapped by B
    T: Array  # lower Cholesky factor of K_cc
    pullback_cc: Pullback
    nu: float
    VV: Array  # V V'
    beta: Array  # solution of S beta = V sqrt(w) y
    fitted: Array  # y' sqrt(w) V' beta for each target, the part of y' w y that the fit explains
    S_factor: Array  # lower Cholesky factor of S
    kappa_sum: Array  # sum_i w_i k(x_i, x_i)

    @property
    def alpha(self) -> Array:
        """Coefficients of the kernel functions at the centers."""
        return self.unwhiten(self.beta)

    def unwhiten(self, M: Array) -> Array:
        """Return ``T^-T M``."""
        return solve_triangular(self.T, copy_array(M), transpose=True)

    def sandwich(self, M: Array) -> Array:
        """Return ``T^-T M T^-1`` for a symmetric M."""
        return self.unwhiten(self.unwhiten(M).T)

    def S_solve(self, M: Array) -> Array:
        """Return ``S^-1 M``."""
        return solve_with_lower(self.S_factor, M)


# Targets are rescaled for float32 if the largest absolute target is outside this range, because float32 cannot
# represent the squares of such targets and their sums.
_SMALLEST_TARGET, _LARGEST_TARGET = 1e-12, 1e12


class Criterion(ABC):
    """Abstract base class of criteria that can be minimized over both the map B and lambda.

    Each call of the method `reduced` takes a few passes over the rows.

    Parameters
    ----------
    rows : Rows
        The training data.
    centers : array (c, D) or None
        Nystrom centers, shifted and scaled like the rows. None uses all rows as centers, and the criterion is then
        exact.
    kernel : Kernel
        The kernel k of latent points.
    reg_lambda : float
        Lambda, or the starting value of lambda if lambda is learned.
    learn_lambda : bool, default=False
        Whether the solver also optimizes lambda.

    Examples
    --------
    >>> from hkrr.criteria import CRITERIA
    >>> from hkrr.datasets import make_mim_sines
    >>> from hkrr.kernels import Gaussian
    >>> from hkrr.rows import InMemoryRows
    >>> data = make_mim_sines(60, n_features=5, n_components=2, random_state=0)
    >>> rows = InMemoryRows(data.X, data.y)
    >>> criterion = CRITERIA["loo"](rows, data.X[:20], Gaussian(gamma=1.0), 1e-2, learn_lambda=True)
    >>> criterion.reduced(data.B).grad.shape
    (2, 5)
    """

    def __init__(
        self, rows: Rows, centers: Array | None, kernel: Kernel, reg_lambda: float, learn_lambda: bool = False
    ) -> None:
        self.rows, self.kernel, self.reg_lambda, self.learn_lambda = rows, kernel, reg_lambda, learn_lambda
        self.exact = centers is None
        if centers is None:
            centers, Y, w = rows.gather()
            w = np.ones(rows.n_rows) if w is None else w
            if np.any(w == 0):
                raise ValueError("rows with sample_weight 0 cannot be centers: remove these rows first")
            self._Y, self._w = rows.place(Y), rows.place(w)
        self.centers = centers
        self.placed_centers = rows.place(centers)
        self.squares = np.atleast_1d(rows.fetch(rows.sum(_squares)[0])[0])

    def at(self, reg_lambda: float, kernel: Kernel | None = None) -> Self:
        """Return a copy that learns lambda, starting from ``reg_lambda``, with the given kernel if it is not None."""
        other = copy.copy(self)
        other.reg_lambda, other.learn_lambda = reg_lambda, True
        other.kernel = self.kernel if kernel is None else kernel
        return other

    def in_single_precision(self) -> Self:
        """Return a copy. If all rows are centers, the copy computes in float32, which is faster.

        If the squares of the targets could leave the range of float32, the targets are divided by a constant. The
        leave-one-out error is then multiplied by a constant, and a constant is added to the evidence.
        """
        other = copy.copy(self)
        if not self.exact:
            return other
        xp = array_namespace(self.placed_centers)
        largest = float(xp.max(xp.abs(self._Y)))
        unit = 1.0 if _SMALLEST_TARGET < largest < _LARGEST_TARGET else largest or 1.0
        other._Y = self._Y / unit
        for name in ("placed_centers", "_Y", "_w"):
            setattr(other, name, xp.astype(getattr(other, name), xp.float32))
        return other

    # Upper bound on lambda in `profiled`. The model search sets a smaller value, because the gradient with respect to
    # the map vanishes if lambda is very large.
    most_lambda = LAMBDA_BOUNDS[1]

    @property
    def profiles_lambda(self) -> bool:
        """Whether `profiled` can minimize the criterion over lambda at little cost."""
        return False

    def nats(self, value: float) -> float:
        """Convert a value of the criterion to a negative log likelihood per row, in nats.

        The default implementation is for mean squared errors and returns half the logarithm of the value.
        """
        return 0.5 * math.log(max(value, 1e-300))

    @property
    def n_centers(self) -> int:
        """Number of centers."""
        return int(self.centers.shape[0])

    @property
    def content(self) -> tuple[Any, ...]:
        """Values that identify the criterion in the journal of a checkpoint (`hkrr._base.resume_journal`).

        The rows are represented by their number, their total weight and the sum of squares of each target.
        """
        rows = (self.rows.n_rows, *rounded(self.squares, self.rows.total_weight))
        settings = (self.exact, self.kernel, self.reg_lambda, self.learn_lambda, self.most_lambda)
        return (type(self).__name__, *rows, self.centers, *settings)

    @property
    @abstractmethod
    def loss_at_zero(self) -> float:
        """Scale of the criterion. The solvers multiply their tolerance for the gradient by this value."""

    def reduced(self, B: Array, reg_lambda: float | None = None) -> Reduced:
        """Return the criterion at B and lambda, its derivatives with respect to B and log lambda, and the coefficients.

        If all rows are centers, B may also be a vector (D,), which stands for a diagonal D x D map.
        """
        reg_lambda = self.reg_lambda if reg_lambda is None else reg_lambda
        B = self.rows.place(B)
        B = array_namespace(B).astype(B, self.placed_centers.dtype, copy=False)
        found = self._exact(B, reg_lambda) if self.exact else self._nystrom(self._whiten(B, reg_lambda))
        value, grad, alpha, slope = self.rows.fetch(*found)
        return Reduced(float(value), grad, alpha, float(slope))

    def profiled(self, B: Array) -> Reduced:
        """Return the minimum of the criterion over lambda at B, its gradient with respect to B, and the coefficients.

        The gradient is that of the criterion at the best lambda (envelope theorem). Lambda is at most ``most_lambda``.
        This method can be called only if ``profiles_lambda`` is true.
        """
        B = self.rows.place(B)
        white = self._whiten(B, None)
        value, grad, alpha, slope = self.rows.fetch(*self._nystrom(white))
        return Reduced(float(value), grad, alpha, float(slope), white.nu / self.rows.total_weight)

    def leave_one_out(self, B: Array, intercept: bool = False) -> Array:
        """Return, for each row, the prediction of the model fitted to all other rows, as an array (n, n_targets).

        The model has the given map, and the kernel and lambda of the criterion. All rows must be centers. If
        `intercept` is True, the model has an intercept, which is also fitted to the other rows. This is needed if the
        targets were centered: otherwise, their mean would reveal the target of the row that is left out.
        """
        P = project(self.placed_centers, self.rows.place(B))
        noise = self.reg_lambda * self.rows.total_weight / self._w
        inverse, _, alpha = inverse_and_log_det(add_to_diagonal(self.kernel(P, P), noise), self._Y)
        diagonal = inverse.diagonal()
        if intercept:
            sums = inverse.sum(axis=1)
            total = sums.sum()
            diagonal = diagonal - sums * sums / total
            alpha = alpha - sums[:, None] * alpha.sum(axis=0) / total
        predicted: Array = self.rows.fetch(self._Y - alpha / diagonal[:, None])[0]
        return predicted

    def _best_nu(self, VV: Array, Vy: Array, kappa_sum: Array) -> float:
        """Return the nu that minimizes the criterion, given V V', V sqrt(w) y and ``sum_i w_i k(x_i, x_i)``."""
        raise NotImplementedError  # this method is needed only if `profiles_lambda` is true

    @abstractmethod
    def _exact(self, B: Array, reg_lambda: float) -> tuple[Array, Array, Array, Array]:
        """Return the criterion l, dl/dB, the coefficients and dl/d(log lambda), with all rows as centers."""

    @abstractmethod
    def _nystrom(self, white: Whitened) -> tuple[Array, Array, Array, Array]:
        """Return the criterion l, dl/dB, the coefficients and dl/d(log lambda), with Nystrom centers."""

    def _whiten(self, B: Array, reg_lambda: float | None) -> Whitened:
        """Return V V', V sqrt(w) y and the sum of the kernel's diagonal, which are sums over the rows, and beta.

        The sums take one pass over the rows. If lambda is None, the best lambda for B is used.
        """
        kernel = self.kernel
        C = self.placed_centers @ B.T
        xp = array_namespace(C)
        K_cc, pullback_cc = kernel.vjp(C, C)
        kappa = float(xp.max(kernel.diagonal(C)))
        T, _ = jittered_cholesky(copy_array(K_cc), 10.0 * EPS * self.n_centers * kappa)

        def block(X: Array, Y: Array, w: Array | None, B: Array, C: Array, T: Array) -> tuple[Array, Array, Array]:
            xp = array_namespace(X)
            P = X @ B.T
            K, diagonal = kernel(P, C), kernel.diagonal(P)
            if w is not None:
                root = xp.sqrt(w)[:, None]
                K *= root
                Y = root * Y
                diagonal = w * diagonal
            V = solve_triangular(T, K.T)
            return gram(V.T), V @ Y, xp.sum(diagonal)

        VV, Vy, kappa_sum = self.rows.sum(block, self.n_centers, B, C, T)
        nu = self._best_nu(VV, Vy, kappa_sum) if reg_lambda is None else reg_lambda * self.rows.total_weight
        S_factor, _ = jittered_cholesky(copy_array(VV), nu)
        beta = solve_with_lower(S_factor, Vy)
        fitted = xp.sum(Vy * beta, axis=0)
        return Whitened(B, C, T, pullback_cc, nu, VV, beta, fitted, S_factor, kappa_sum)

    def _grad_from_centers(self, white: Whitened, dC: Array, A: Array) -> Array:
        """Return the contribution of the centers to dl/dB, where l is the criterion.

        `dC` is the gradient of l with respect to the latent centers C for fixed K_cc. `A` is the matrix G_V V' of the
        module docstring, from which the gradient through K_cc is computed.
        """
        left, right = white.pullback_cc(-0.5 * white.sandwich(0.5 * (A + A.T)))
        return (dC + left + right).T @ self.placed_centers


def copy_array(A: Array) -> Array:
    """Return a copy of a NumPy array or a tensor, of the same type."""
    return array_namespace(A).asarray(A, copy=True)


def _squares(X: Array, Y: Array, w: Array | None) -> tuple[Array]:
    return (array_namespace(Y).sum(Y * Y if w is None else w[:, None] * Y * Y, axis=0),)
