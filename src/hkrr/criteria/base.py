"""What the criteria share: the estimator in whitened coordinates, and the way back from there to the map.

With T T' = K_cc, V = T^-1 K' sqrt(w), nu = lambda W (the noise variance of the equivalent Gaussian process, in units of
its signal's) and S = V V' + nu I, the coefficients are ``alpha = T^-T beta``, ``S beta = V sqrt(w) y``. A criterion is
a function of V, y and nu that no rotation of V's rows changes. So with G_V its gradient in V and A = G_V V', which is
then symmetric,

    dl/dK = sqrt(w) G_V' T^-1,    dl/dK_cc = -1/2 T^-T A T^-1,

and the kernel's pullback leads on to B, as it does for the training objective.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from hkrr._arrays import (
    EPS,
    Array,
    array_namespace,
    gram,
    jittered_cholesky,
    solve_triangular,
    solve_with_lower,
)
from hkrr.journal import about
from hkrr.kernels import Kernel, Pullback
from hkrr.objective import Reduced
from hkrr.rows import Rows


@dataclass(frozen=True)
class Whitened:
    """The sums over rows at one map, and what follows from them, all where the sums are."""

    B: Array
    C: Array  # projected centers
    T: Array  # lower factor of K_cc
    pullback_cc: Pullback
    nu: float
    VV: Array
    beta: Array
    fitted: Array  # y' V' beta for each target: what the fit explains of y'y
    S_factor: Array
    kappa_sum: Array  # sum of w_i k(x_i, x_i)

    @property
    def alpha(self) -> Array:
        """Coefficients of the kernels at the centers."""
        return self.back(self.beta)

    def back(self, M: Array) -> Array:
        """Return ``T^-T M``."""
        return solve_triangular(self.T, copied(M), transpose=True)

    def sandwich(self, M: Array) -> Array:
        """Return ``T^-T M T^-1`` for a symmetric M."""
        return self.back(self.back(M).T)

    def S_solve(self, M: Array) -> Array:
        """Return ``S^-1 M``."""
        return solve_with_lower(self.S_factor, M)


class Criterion(ABC):
    """A criterion for B, and for lambda: value and gradients from a few passes over the rows.

    Parameters
    ----------
    rows : Rows
    centers : array (c, D) in the coordinates of the rows, or None: all rows, and exact
    kernel : Kernel
    reg_lambda : float
        Lambda, or where it begins if it is learned.
    learn_lambda : bool

    Examples
    --------
    >>> from hkrr.criteria import CRITERIA
    >>> from hkrr.datasets import make_mim_sines
    >>> from hkrr.kernels import Gaussian
    >>> from hkrr.rows import InMemoryRows
    >>> data = make_mim_sines(60, n_features=5, n_components=2, random_state=0)
    >>> for name, make in CRITERIA.items():
    ...     criterion = make(InMemoryRows(data.X, data.y), data.X[:20], Gaussian(gamma=1.0), 1e-2, learn_lambda=True)
    ...     print(name, criterion.reduced(data.B).grad.shape)
    loo (2, 5)
    evidence (2, 5)
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
                raise ValueError("rows of weight zero cannot be centers: leave them out")
            self._Y, self._w = rows.place(Y), rows.place(w)
        self.centers = centers
        self._placed_centers = rows.place(centers)
        self.squares = np.atleast_1d(rows.fetch(rows.sum(_squares)[0])[0])

    def at(self, reg_lambda: float, kernel: Kernel | None = None) -> Self:
        """Return the same criterion with lambda learned from another beginning, or with another kernel."""
        other = copy.copy(self)
        other.reg_lambda, other.learn_lambda = reg_lambda, True
        other.kernel = self.kernel if kernel is None else kernel
        return other

    def nats(self, value: float) -> float:
        """Return the criterion as minus a log likelihood for each row; of a mean squared error half its logarithm."""
        return 0.5 * math.log(max(value, 1e-300))

    @property
    def n_centers(self) -> int:
        """Number of centers."""
        return int(self.centers.shape[0])

    @property
    def content(self) -> tuple[Any, ...]:
        """What its values depend on, for the keys of a journal; of the rows their number, weight and squares."""
        rows = (self.rows.n_rows, *about(self.squares, self.rows.total_weight))
        return (type(self).__name__, *rows, self.centers, self.exact, self.kernel, self.reg_lambda, self.learn_lambda)

    @property
    @abstractmethod
    def loss_at_zero(self) -> float:
        """What a gradient is compared with."""

    def reduced(self, B: Array, reg_lambda: float | None = None) -> Reduced:
        """Return the criterion at a map and a lambda, its gradients in B and log lambda, and the coefficients.

        Where all rows are centers B may be a vector, the diagonal of a map of D directions.
        """
        reg_lambda = self.reg_lambda if reg_lambda is None else reg_lambda
        B = self.rows.place(B)
        found = self._exact(B, reg_lambda) if self.exact else self._nystrom(B, reg_lambda)
        value, grad, alpha, slope = self.rows.fetch(*found)
        return Reduced(float(value), grad, alpha, float(slope))

    @abstractmethod
    def _exact(self, B: Array, reg_lambda: float) -> tuple[Array, Array, Array, Array]:
        """Return value, gradient in B, coefficients and gradient in log lambda, where the sums are."""

    @abstractmethod
    def _nystrom(self, B: Array, reg_lambda: float) -> tuple[Array, Array, Array, Array]:
        """Return the same with centers."""

    def _whiten(self, B: Array, reg_lambda: float) -> Whitened:
        """The first pass: V V', V y and the diagonal of the kernel, summed."""
        kernel = self.kernel
        C = self._placed_centers @ B.T
        xp = array_namespace(C)
        K_cc, pullback_cc = kernel.vjp(C, C)
        kappa = float(xp.max(kernel.diagonal(C)))
        T, _ = jittered_cholesky(copied(K_cc), 10.0 * EPS * self.n_centers * kappa)

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
        nu = reg_lambda * self.rows.total_weight
        S_factor, _ = jittered_cholesky(copied(VV), nu)
        beta = solve_with_lower(S_factor, Vy)
        fitted = xp.sum(Vy * beta, axis=0)
        return Whitened(B, C, T, pullback_cc, nu, VV, beta, fitted, S_factor, kappa_sum)

    def _grad_from_centers(self, white: Whitened, dC: Array, A: Array) -> Array:
        """Return what the centers add to dl/dB: through K, and through K_cc."""
        left, right = white.pullback_cc(-0.5 * white.sandwich(0.5 * (A + A.T)))
        return (dC + left + right).T @ self._placed_centers


def copied(A: Array) -> Array:
    """Return a copy, of the same namespace."""
    return array_namespace(A).asarray(A, copy=True)


def _squares(X: Array, Y: Array, w: Array | None) -> tuple[Array]:
    return (array_namespace(Y).sum(Y * Y if w is None else w[:, None] * Y * Y, axis=0),)
