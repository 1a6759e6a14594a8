"""The leave-one-out error, in closed form."""

from __future__ import annotations

import numpy as np

from hkrr._base.linear_algebra import (
    Array,
    add_to_diagonal,
    array_namespace,
    dot,
    inverse_from_factor,
    jittered_cholesky,
    low_rank_product,
    project,
    pull_to_map,
    solve_triangular,
)
from hkrr.criteria.base import Criterion, Whitened, copy_array

# Lower bound on 1 - h_i, where h_i is the leverage score of row i. A row whose fitted value is determined by its own
# target alone has h_i = 1, and its leave-one-out error would not be finite.
_MIN_FREEDOM = 1e-10


class LeaveOneOut(Criterion):
    """Leave-one-out error ``(1/W) sum_i w_i (r_i / (1 - h_i))^2`` with residuals r_i and diagonal entries h_i of the
    hat matrix.

    Here w_i are the sample weights and W is their sum. The target of each row is predicted with the coefficients fitted
    to all other rows. The formula is exact for fixed centers. A row with weight w is left out as a whole, and not as w
    repeated rows.

    Examples
    --------
    >>> from hkrr.criteria import LeaveOneOut
    >>> from hkrr.datasets import make_mim_sines
    >>> from hkrr.kernels import Gaussian
    >>> from hkrr.rows import InMemoryRows
    >>> data = make_mim_sines(100, n_features=5, n_components=2, random_state=0)
    >>> error = LeaveOneOut(InMemoryRows(data.X, data.y), None, Gaussian(gamma=1.0), 1e-3)
    >>> error.reduced(data.B).value < error.reduced(data.B[:, ::-1]).value  # the true map is better
    True
    """

    @property
    def loss_at_zero(self) -> float:
        return float(np.sum(self.squares)) / self.rows.total_weight

    def _exact(self, B: Array, reg_lambda: float) -> tuple[Array, Array, Array, Array]:
        """Return the criterion l, dl/dB, the coefficients and dl/d(log lambda), with all rows as centers.

        The errors are ``r_i / (1 - h_i) = alpha_i / (A^-1)_ii`` with A = K + nu diag(1/w) and nu = lambda W, where K is
        the kernel matrix of the rows and alpha are the coefficients.
        """
        W, P = self.rows.total_weight, project(self.placed_centers, B)
        xp = array_namespace(P)
        K, pullback = self.kernel.vjp(P, P)
        noise = reg_lambda * W / self._w
        inverse = inverse_from_factor(jittered_cholesky(add_to_diagonal(copy_array(K), noise), 0.0)[0])
        alpha = inverse @ self._Y
        diagonal = inverse.diagonal()[:, None]
        error = alpha / diagonal
        value = xp.sum(self._w[:, None] * error * error) / W
        by_alpha = 2.0 * self._w[:, None] * error / (W * diagonal)
        by_diagonal = -xp.sum(by_alpha * error, axis=1)
        pulled = low_rank_product(inverse @ by_alpha, alpha)
        G = -0.5 * (pulled + pulled.T) - (inverse * by_diagonal) @ inverse
        grad_log_lambda = G.diagonal() @ noise
        left, right = pullback(G)
        return value, pull_to_map(left + right, self.placed_centers, B), alpha, grad_log_lambda

    def _nystrom(self, white: Whitened) -> tuple[Array, Array, Array, Array]:
        B, kernel, W, alpha = white.B, self.kernel, self.rows.total_weight, white.alpha

        def errors(
            X: Array, Y: Array, w: Array | None, B: Array, C: Array, T: Array, S_factor: Array, alpha: Array
        ) -> tuple[Array, Array, Array, Array, Array]:
            """Return V, sqrt(w), sqrt(w) r, and the derivatives of the criterion with respect to sqrt(w) r and h.

            V is defined in `hkrr.criteria.base`, r are the residuals, and h is the diagonal of the hat matrix.
            """
            xp = array_namespace(X)
            K = kernel(X @ B.T, C)
            root = xp.ones_like(X[:, :1]) if w is None else xp.sqrt(w)[:, None]
            residual = root * (Y - K @ alpha)
            V = solve_triangular(T, (root * K).T)
            half = solve_triangular(S_factor, copy_array(V))
            freedom = xp.clip(1.0 - xp.sum(half * half, axis=0), min=_MIN_FREEDOM)[:, None]
            by_residual = 2.0 * residual / (W * freedom**2)
            by_h = xp.sum(by_residual * residual / freedom, axis=1)
            return V, root, residual, by_residual, by_h

        def second(X: Array, Y: Array, w: Array | None, *small: Array) -> tuple[Array, Array, Array]:
            V, _, residual, by_residual, by_h = errors(X, Y, w, *small)
            return 0.5 * dot(by_residual, residual), V @ by_residual, (V * by_h) @ V.T

        small = (B, white.C, white.T, white.S_factor, alpha)
        value, Vg, Q = self.rows.sum(second, self.n_centers, *small)
        z = white.S_solve(Vg)
        M = white.S_solve(white.S_solve(Q).T)
        M = 0.5 * (M + M.T)
        S_inverse = inverse_from_factor(white.S_factor)

        def third(
            X: Array, Y: Array, w: Array | None, beta: Array, z: Array, S_inverse: Array, M: Array, *small: Array
        ) -> tuple[Array, Array]:
            V, root, residual, by_residual, by_h = errors(X, Y, w, *small)
            B, C, T = small[:3]
            # The gradient with respect to V is bounded and is multiplied by T^-1 only once. A nearly singular K_cc
            # therefore costs at most half of the digits.
            G_V = low_rank_product(beta, V.T @ z - by_residual) - low_rank_product(z, residual)
            G_V += 2.0 * (S_inverse @ (V * by_h) - M @ V)
            _, pullback = kernel.vjp(X @ B.T, C)
            dP, dC = pullback(copy_array(root * solve_triangular(T, G_V, transpose=True).T))
            return dP.T @ X, dC

        beta = white.beta
        grad, dC = self.rows.sum(third, self.n_centers, beta, z, S_inverse, M, *small)
        A = low_rank_product(beta, white.VV @ z - Vg) - white.nu * low_rank_product(z, beta)
        A += 2.0 * white.S_solve(Q) - 2.0 * M @ white.VV
        grad_log_lambda = white.nu * (dot(z, beta) - array_namespace(M).sum(M.diagonal()))
        return value, grad + self._grad_from_centers(white, dC, A), alpha, grad_log_lambda
