"""The evidence of the equivalent Gaussian process, per row and with its scale profiled out."""

from __future__ import annotations

import math

import numpy as np

from hkrr._arrays import Array, jittered_cholesky, low_rank_product, project, pull_to_map
from hkrr.criteria.base import Criterion, inverse_from_factor
from hkrr.objective import Reduced

# A target that is fitted without any residual has no finite evidence: its scale stops here.
_LEAST_SCALE = 1e-300


class Evidence(Criterion):
    """Minus the log evidence per row, up to a constant; the lower the better.

    Kernel ridge regression is the posterior mean of a Gaussian process with covariance s k_B and noise of variance
    s nu / w_i. Its evidence, maximised over the scale s (of each target by itself), is with q = y'(K + nu/w)^-1 y / W

        ``l = log(q) / 2 + (log det(K + nu/w) + ...) / (2 W)``

    when all rows are centers, and otherwise the variational bound of Titsias (2009), which adds what the centers leave
    out of the kernel's trace:

        ``l = log(q)/2 + (log det S + (W - c) log nu) / (2 W) + (sum w k(x, x) - tr VV') / (2 nu W)``

    with q = (y'y - y'V'beta) / (nu W). Weights count as repeated rows. Several targets are averaged (but
    for constant ones).
    """

    @property
    def loss_at_zero(self) -> float:
        return 1.0

    def nats(self, value: float) -> float:
        return value

    @property
    def _share(self) -> Array:
        """What each target counts: alike, but a constant one has no evidence and no say."""
        varies = (self.squares > 0).astype(np.float64)
        return varies / max(1.0, float(np.sum(varies)))

    def _exact(self, B: Array, reg_lambda: float) -> Reduced:
        W, P = self.rows.total_weight, project(self.centers, B)
        nu = reg_lambda * W
        K, pullback = self.kernel.vjp(P, P)
        noise = nu / self._w
        A = K.copy()
        np.fill_diagonal(A, A.diagonal() + noise)
        factor, _ = jittered_cholesky(A, 0.0)
        inverse = inverse_from_factor(factor)
        alpha = inverse @ self._Y
        q = np.maximum(np.sum(self._Y * alpha, axis=0) / W, _LEAST_SCALE)
        # log det of W repeated rows: of the distinct ones, and of the noise that repetition leaves over.
        left_over = W - len(self._w)
        log_det = 2.0 * np.sum(np.log(factor.diagonal())) + np.sum(np.log(self._w)) + left_over * math.log(nu)
        value = float(self._share @ np.log(q)) / 2.0 + float(log_det) / (2.0 * W)
        G = inverse / (2.0 * W) - low_rank_product(alpha * (self._share / (2.0 * W * q)), alpha)
        grad_log_lambda = float(G.diagonal() @ noise) + left_over / (2.0 * W)
        left, right = pullback(G)
        return Reduced(value, pull_to_map(left + right, self.centers, B), alpha, grad_log_lambda)

    def _nystrom(self, B: Array, reg_lambda: float) -> Reduced:
        white = self._whiten(B, reg_lambda)
        W, nu, c = self.rows.total_weight, white.nu, self.n_centers
        q = np.maximum((self.squares - white.fitted) / (nu * W), _LEAST_SCALE)
        slack = white.kappa_sum - float(np.trace(white.VV))
        log_det = 2.0 * np.sum(np.log(white.S_factor.diagonal())) + (W - c) * math.log(nu)
        value = float(self._share @ np.log(q)) / 2.0 + float(log_det) / (2.0 * W) + slack / (2.0 * nu * W)

        S_inverse = inverse_from_factor(white.S_factor)
        middle = S_inverse / W
        np.fill_diagonal(middle, middle.diagonal() - 1.0 / (nu * W))
        weight = self._share / (q * nu * W)  # of r alpha', for each target
        # V r = nu beta, so the row sums in A are known without another pass.
        A = white.VV @ middle - low_rank_product(nu * weight * white.beta, white.beta)
        to_K, alpha, C = white.sandwich(middle), white.alpha, white.C

        def block(X: Array, Y: Array, w: Array | None) -> tuple[Array, Array]:
            P = X @ B.T
            K, pullback = self.kernel.vjp(P, C)
            G = K @ to_K - low_rank_product(weight * (Y - K @ alpha), alpha)
            if w is not None:
                G *= w[:, None]
            dP, dC = pullback(G)
            on_diagonal = np.ones(len(P)) if w is None else w
            dP += self.kernel.diagonal_pullback(P, on_diagonal / (2.0 * nu * W))
            return dP.T @ X, dC

        grad, dC = self.rows.sum(block, c)
        # Each of the three terms above, differentiated in log nu.
        by_scale = self._share @ (np.sum(white.beta * white.beta, axis=0) / (q * W) - 1.0) / 2.0
        by_log_det = (nu * float(np.trace(S_inverse)) + W - c) / (2.0 * W)
        grad_log_lambda = float(by_scale) + by_log_det - slack / (2.0 * nu * W)
        return Reduced(value, grad + self._grad_from_centers(white, dC, A), alpha, grad_log_lambda)
