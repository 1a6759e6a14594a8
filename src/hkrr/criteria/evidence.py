"""The log evidence per row of the equivalent Gaussian process, maximized over the signal variance."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
from scipy.optimize import brentq

from hkrr._base.linear_algebra import (
    Array,
    add_to_diagonal,
    array_namespace,
    inverse_and_log_det,
    inverse_from_factor,
    low_rank_product,
    project,
    pull_to_map,
)
from hkrr.criteria.base import Criterion, Whitened, copy_array
from hkrr.objective import LAMBDA_BOUNDS

# Lower bound on the noise variance of a target, relative to the mean square of the target. Without this bound, the
# evidence of a target that is fitted without residuals would be infinite.
MIN_NOISE = 1e-10
# Lower bound on the noise variance of a target that is zero in all rows. Such a target has no share in the evidence.
_TINY = 1e-300
# Number of points in the grid of log nu that is searched for minima. The grid extends over the allowed range of lambda.
_GRID = 36


def least_residual(squares: Array) -> Array:
    """Return the smallest residual of each target that `MIN_NOISE` allows, from the sums of squares of the targets."""
    return array_namespace(squares).clip(MIN_NOISE * squares, min=_TINY)


def signal_variance(residual: Array, least: Array, nu_W: Array | float) -> tuple[Array, Array]:
    """Return the signal variance q of each target (see `Evidence`), and 1 / q, set to 0 where `least` limits q.

    Where `residual` is above `least`, q is ``residual / nu_W``. Here `nu_W` is nu times the total weight of the rows,
    and `residual` is the sum of squared residuals plus nu times the squared norm of the function. `least` is the
    smallest residual that the bound on the noise variance allows (`least_residual`). The second return value is needed
    for gradients: the derivative of log q with respect to `residual` is proportional to 1 / q, and 0 where the bound
    determines q.
    """
    xp = array_namespace(residual)
    q = xp.maximum(residual, least) / nu_W
    return q, xp.where(residual > least, 1.0 / q, 0.0)


class Evidence(Criterion):
    """Negative log evidence per row, up to a constant. Lower is better.

    Kernel ridge regression is the posterior mean of a Gaussian process with covariance s k(Bx, Bx') and noise variance
    s nu / w_i. For each target, the evidence is maximized over the scale s. The maximizer is called q. The other
    symbols are defined in the module `hkrr.criteria.base`. If all m rows are centers, q = y'(K + nu diag(1/w))^-1 y / W
    and

        ``l = log(q) / 2 + (log det(K + nu diag(1/w)) + sum_i log w_i + (W - m) log nu) / (2 W)``.

    The noise variance q nu of a target is at least 1e-10 times its mean square. Otherwise the evidence would have no
    upper bound if a target is a linear function without noise and the kernel is linear, and the search would prefer
    this model even if it predicts the other targets poorly.

    With c < m Nystrom centers, the criterion is the variational bound of Titsias (2009), where y'y stands for
    sum_i w_i y_i^2:

        ``q = (y'y - y' sqrt(w) V' beta) / (nu W)``

        ``l = log(q) / 2 + (log det S + (W - c) log nu) / (2 W) + (sum_i w_i k(x_i, x_i) - tr VV') / (2 nu W)``.

    The last term penalizes the part of the kernel's trace that the centers do not capture. A row with weight w has the
    same effect as w identical rows. For several targets, the criterion is the mean over the targets that are not zero
    in all rows. (A constant target is zero after the mean of y is subtracted.)

    Examples
    --------
    >>> from hkrr.criteria import Evidence
    >>> from hkrr.datasets import make_mim_sines
    >>> from hkrr.kernels import Gaussian
    >>> from hkrr.rows import InMemoryRows
    >>> data = make_mim_sines(100, n_features=5, n_components=2, random_state=0)
    >>> evidence = Evidence(InMemoryRows(data.X, data.y), None, Gaussian(gamma=1.0), 1e-3)
    >>> evidence.reduced(data.B).value < evidence.reduced(data.B[:, ::-1]).value  # the true map is better
    True
    """

    @property
    def loss_at_zero(self) -> float:
        return 1.0

    def nats(self, value: float) -> float:
        return value

    @cached_property
    def share(self) -> Array:
        """`share_on_host`, on the device of the rows."""
        return self.rows.place(self.share_on_host)

    @cached_property
    def share_on_host(self) -> Array:
        """Weights of the targets in the mean: zero for targets that are zero in all rows, and equal for all others."""
        varies = (self.squares > 0).astype(np.float64)
        return varies / max(1.0, float(np.sum(varies)))

    @cached_property
    def least(self) -> Array:
        """The smallest residual of each target (see `least_residual`)."""
        return self.rows.place(least_residual(self.squares))

    def _exact(self, B: Array, reg_lambda: float) -> tuple[Array, Array, Array, Array]:
        W, P, share = self.rows.total_weight, project(self.placed_centers, B), self.share
        xp = array_namespace(P)
        nu = reg_lambda * W
        K, pullback = self.kernel.vjp(P, P)
        noise = nu / self._w
        inverse, log_det, alpha = inverse_and_log_det(add_to_diagonal(copy_array(K), noise), self._Y)
        explained = xp.astype(xp.sum(self._Y * alpha, axis=0), share.dtype, copy=False)
        squares = xp.astype(xp.sum(self._w[:, None] * self._Y * self._Y, axis=0), share.dtype, copy=False)
        q, inverse_q = signal_variance(nu * explained, least_residual(squares), nu * W)
        # A row with weight w has the same effect as w repeated rows. The log determinant for all W repeated rows is
        # computed from the matrix of the distinct rows. Each distinct row adds log(w), and each further repetition adds
        # log(nu).
        left_over = W - len(self._w)
        log_det = log_det + xp.sum(xp.log(self._w)) + left_over * math.log(nu)
        value = (share @ xp.log(q)) / 2.0 + log_det / (2.0 * W)
        weight = xp.astype(share * inverse_q / (2.0 * W), alpha.dtype, copy=False)
        G = inverse / (2.0 * W) - low_rank_product(weight * alpha, alpha)
        bounded = xp.astype(inverse_q == 0.0, share.dtype)  # where the bound `MIN_NOISE` makes q proportional to 1 / nu
        grad_log_lambda = G.diagonal() @ noise + (left_over / W - share @ bounded) / 2.0
        left, right = pullback(G)
        return value, pull_to_map(left + right, self.placed_centers, B), alpha, grad_log_lambda

    @property
    def profiles_lambda(self) -> bool:
        return not self.exact

    def _best_nu(self, VV: Array, Vy: Array, kappa_sum: Array) -> float:
        xp = array_namespace(VV)
        if not bool(xp.all(xp.isfinite(VV))):  # PyTorch would raise a RuntimeError, which solvers do not catch
            raise FloatingPointError("a kernel matrix contains values that are not finite")
        eigenvalues, vectors = xp.linalg.eigh(VV)
        squares = (vectors.T @ Vy) ** 2
        eigenvalues, squares, kappa_sum = self.rows.fetch(eigenvalues, squares, kappa_sum)
        return self.best_nu(eigenvalues, squares, float(kappa_sum))

    def best_nu(self, eigenvalues: Array, squares: Array, kappa_sum: float) -> float:
        """Return the nu that minimizes the variational bound (see `Evidence`).

        `eigenvalues` are those of V V'. `squares` contains the squared coordinates of V sqrt(w) y in the eigenbasis of
        V V', and `kappa_sum` is the weighted sum of k(x_i, x_i) over the rows. With these arguments, evaluating the
        bound at one nu takes a few operations per eigenvalue. The bound can have several local minima, so each local
        minimum on a grid of log nu is refined.
        """
        W, c = self.rows.total_weight, self.n_centers
        share, least = self.share_on_host, least_residual(self.squares)
        eigenvalues = np.maximum(eigenvalues, 0.0)
        slack = max(kappa_sum - float(np.sum(eigenvalues)), 0.0)

        def bound(log_nu: Array | float) -> Array:
            nu = np.exp(np.atleast_1d(log_nu))
            shifted = eigenvalues + nu[:, None]
            q, _ = signal_variance(self.squares - (1.0 / shifted) @ squares, least, nu[:, None] * W)
            log_det = np.sum(np.log(shifted), axis=1) + (W - c) * np.log(nu)
            return np.log(q) @ share / 2.0 + log_det / (2.0 * W) + slack / (2.0 * nu * W)

        def slope(log_nu: float) -> float:
            nu = math.exp(log_nu)
            inverse = 1.0 / (eigenvalues + nu)
            _, inverse_q = signal_variance(self.squares - inverse @ squares, least, nu * W)
            by_scale = share @ (inverse**2 @ squares * inverse_q / W - 1.0)
            return float(by_scale + (nu * np.sum(inverse) + W - c - slack / nu) / W)

        grid = np.linspace(math.log(LAMBDA_BOUNDS[0] * W), math.log(self.most_lambda * W), _GRID)
        on_grid = bound(grid)
        padded = np.concatenate([[math.inf], on_grid, [math.inf]])
        minima = []
        for k in np.flatnonzero((on_grid <= padded[:-2]) & (on_grid <= padded[2:])).tolist():
            low, middle, high = (float(grid[j]) for j in (max(k - 1, 0), k, min(k + 1, _GRID - 1)))
            low, high = (middle, high) if slope(middle) < 0.0 else (low, middle)
            minima.append((float(on_grid[k]), middle))
            if slope(low) < 0.0 < slope(high):
                # The root of the slope is more accurate than the minimum of function values with rounding errors.
                root = float(brentq(slope, low, high, xtol=1e-12))
                minima.append((float(bound(root)[0]), root))
        if not minima:
            raise FloatingPointError("the evidence is not finite for any lambda")
        return math.exp(min(minima)[1])

    def _nystrom(self, white: Whitened) -> tuple[Array, Array, Array, Array]:
        B, W, nu, c, share = white.B, self.rows.total_weight, white.nu, self.n_centers, self.share
        kernel = self.kernel
        xp = array_namespace(B)
        squares = self.rows.place(self.squares)
        q, inverse_q = signal_variance(squares - white.fitted, self.least, nu * W)
        slack = white.kappa_sum - xp.sum(white.VV.diagonal())
        log_det = 2.0 * xp.sum(xp.log(white.S_factor.diagonal())) + (W - c) * math.log(nu)
        value = (share @ xp.log(q)) / 2.0 + log_det / (2.0 * W) + slack / (2.0 * nu * W)

        S_inverse = inverse_from_factor(white.S_factor)
        middle = add_to_diagonal(S_inverse / W, -1.0 / (nu * W))
        weight = share * inverse_q / (nu * W)  # for each target, the factor of (residuals) alpha' in the gradient
        # A is the matrix G_V V' of `hkrr.criteria.base`. The residuals r satisfy V sqrt(w) r = nu beta, so computing A
        # takes no further pass over the rows.
        A = white.VV @ middle - low_rank_product(nu * weight * white.beta, white.beta)
        alpha = white.alpha

        def block(
            X: Array, Y: Array, w: Array | None, B: Array, C: Array, to_K: Array, alpha: Array, weight: Array
        ) -> tuple[Array, Array]:
            P = X @ B.T
            K, pullback = kernel.vjp(P, C)
            G = K @ to_K - low_rank_product(weight * (Y - K @ alpha), alpha)
            if w is not None:
                G *= w[:, None]
            dP, dC = pullback(G)
            on_diagonal = array_namespace(P).ones_like(P[:, 0]) if w is None else w
            dP += kernel.diagonal_pullback(P, on_diagonal / (2.0 * nu * W))
            return dP.T @ X, dC

        grad, dC = self.rows.sum(block, c, B, white.C, white.sandwich(middle), alpha, weight)
        # Derivatives of the three terms of `value` with respect to log nu.
        by_scale = share @ (xp.sum(white.beta * white.beta, axis=0) * inverse_q / W - 1.0) / 2.0
        by_log_det = (nu * xp.sum(S_inverse.diagonal()) + W - c) / (2.0 * W)
        grad_log_lambda = by_scale + by_log_det - slack / (2.0 * nu * W)
        return value, grad + self._grad_from_centers(white, dC, A), alpha, grad_log_lambda
