"""The evidence of the equivalent Gaussian process, per row and with its scale profiled out."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from hkrr._arrays import (
    Array,
    add_to_diagonal,
    array_namespace,
    inverse_from_factor,
    jittered_cholesky,
    low_rank_product,
    project,
    pull_to_map,
)
from hkrr.criteria.base import Criterion, copied

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

    Examples
    --------
    >>> from hkrr.criteria import Evidence
    >>> from hkrr.datasets import make_mim_sines
    >>> from hkrr.kernels import Gaussian
    >>> from hkrr.rows import InMemoryRows
    >>> data = make_mim_sines(100, n_features=5, n_components=2, random_state=0)
    >>> evidence = Evidence(InMemoryRows(data.X, data.y), None, Gaussian(gamma=1.0), 1e-3)
    >>> evidence.reduced(data.B).value < evidence.reduced(data.B[:, ::-1]).value  # the true map, and another
    True
    """

    @property
    def loss_at_zero(self) -> float:
        return 1.0

    def nats(self, value: float) -> float:
        return value

    @cached_property
    def _share(self) -> Array:
        """What each target counts: alike, but a constant one has no evidence and no say."""
        varies = (self.squares > 0).astype(np.float64)
        return self.rows.place(varies / max(1.0, float(np.sum(varies))))

    def _exact(self, B: Array, reg_lambda: float) -> tuple[Array, Array, Array, Array]:
        W, P, share = self.rows.total_weight, project(self._placed_centers, B), self._share
        xp = array_namespace(P)
        nu = reg_lambda * W
        K, pullback = self.kernel.vjp(P, P)
        noise = nu / self._w
        factor, _ = jittered_cholesky(add_to_diagonal(copied(K), noise), 0.0)
        inverse = inverse_from_factor(factor)
        alpha = inverse @ self._Y
        q = xp.clip(xp.sum(self._Y * alpha, axis=0) / W, min=_LEAST_SCALE)
        # log det of W repeated rows: of the distinct ones, and of the noise that repetition leaves over.
        left_over = W - len(self._w)
        log_det = 2.0 * xp.sum(xp.log(factor.diagonal())) + xp.sum(xp.log(self._w)) + left_over * math.log(nu)
        value = (share @ xp.log(q)) / 2.0 + log_det / (2.0 * W)
        G = inverse / (2.0 * W) - low_rank_product(alpha * (share / (2.0 * W * q)), alpha)
        grad_log_lambda = G.diagonal() @ noise + left_over / (2.0 * W)
        left, right = pullback(G)
        return value, pull_to_map(left + right, self._placed_centers, B), alpha, grad_log_lambda

    def _nystrom(self, B: Array, reg_lambda: float) -> tuple[Array, Array, Array, Array]:
        white = self._whiten(B, reg_lambda)
        W, nu, c, share, kernel = self.rows.total_weight, white.nu, self.n_centers, self._share, self.kernel
        xp = array_namespace(B)
        q = xp.clip((self.rows.place(self.squares) - white.fitted) / (nu * W), min=_LEAST_SCALE)
        slack = white.kappa_sum - xp.sum(white.VV.diagonal())
        log_det = 2.0 * xp.sum(xp.log(white.S_factor.diagonal())) + (W - c) * math.log(nu)
        value = (share @ xp.log(q)) / 2.0 + log_det / (2.0 * W) + slack / (2.0 * nu * W)

        S_inverse = inverse_from_factor(white.S_factor)
        middle = add_to_diagonal(S_inverse / W, -1.0 / (nu * W))
        weight = share / (q * nu * W)  # of r alpha', for each target
        # V r = nu beta, so the row sums in A are known without another pass.
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
        # Each of the three terms above, differentiated in log nu.
        by_scale = share @ (xp.sum(white.beta * white.beta, axis=0) / (q * W) - 1.0) / 2.0
        by_log_det = (nu * xp.sum(S_inverse.diagonal()) + W - c) / (2.0 * W)
        grad_log_lambda = by_scale + by_log_det - slack / (2.0 * nu * W)
        return value, grad + self._grad_from_centers(white, dC, A), alpha, grad_log_lambda
