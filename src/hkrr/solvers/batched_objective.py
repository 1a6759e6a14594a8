"""The reduced functions of several maps as one batch, for small problems on a device.

A GPU does a small evaluation sooner than the host can ask for the next: several at once cost little more than one. The
formulas are those of `hkrr.objective`, with the maps along the first axis, for radial kernels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hkrr._arrays import EPS, Array, array_namespace
from hkrr.kernels.radial import Radial
from hkrr.objective import WHITEN_BELOW, Objective, Reduced


def can_be_batched(objective: Objective) -> bool:
    """Whether `reduced_batch` is for it: centers, a kernel of the distance, rows where batches pay, no tiny lambda."""
    return (
        objective.rows.pays_to_batch
        and not objective.exact
        and isinstance(objective.kernel, Radial)
        and objective.kernel.smooth_at_zero
        and objective.reg_lambda >= WHITEN_BELOW
    )


def reduced_batch(objectives: Sequence[Objective], maps: Sequence[Array]) -> list[Reduced] | None:
    """Return each objective's reduced function at its map, or None where a factorisation fails.

    The objectives differ in the kernel's gamma and in lambda alone.
    """
    one = objectives[0]
    rows, kernel, W, n_centers = one.rows, one.kernel, one.rows.total_weight, one.n_centers
    assert isinstance(kernel, Radial)
    centers, B = rows.place(one.centers), rows.place(np.stack([np.asarray(B) for B in maps]))
    # The scale of the kernel is in the maps: phi(gamma |p - c|^2) = phi(|sqrt(gamma) p - sqrt(gamma) c|^2).
    roots, reg_lambda = (
        rows.place(np.array(values)[:, None, None])
        for values in ([objective.kernel.scale**0.5 for objective in objectives], [o.reg_lambda for o in objectives])
    )
    B = roots * B
    xp = array_namespace(B)
    C = centers @ B.mT
    # Around the centers' mean, as `hkrr.kernels.radial`: away from it, what is wanted of distances would cancel.
    origin = xp.mean(C, axis=-2, keepdims=True)
    C = C - origin
    K_cc, decay_cc = kernel.value_and_decay(_squared_distances(C, C))

    def normal_equations(X: Array, Y: Array, w: Array | None, B: Array, C: Array, origin: Array) -> tuple[Array, Array]:
        K = kernel.value(_squared_distances(X @ B.mT - origin, C))
        weighted = K if w is None else w[:, None] * K
        return weighted.mT @ K, weighted.mT @ Y

    A, b = rows.sum(normal_equations, len(maps) * n_centers, B, C, origin)
    ridge = EPS * n_centers * (1.0 + reg_lambda)
    identity = xp.eye(n_centers, dtype=A.dtype, device=A.device)
    factor, failed = xp.linalg.cholesky_ex(A / W + reg_lambda * K_cc + ridge * identity)
    if bool(failed.any()):  # one needs more of a ridge: each by itself knows how much
        return None
    alpha = xp.cholesky_solve(b / W, factor)

    def gradient(
        X: Array, Y: Array, w: Array | None, B: Array, C: Array, origin: Array, alpha: Array
    ) -> tuple[Array, Array, Array]:
        P = X @ B.mT - origin
        K, decay = kernel.value_and_decay(_squared_distances(P, C))
        residual = K @ alpha - Y
        weighted = residual if w is None else w[:, None] * residual
        dP, dC = _pullback((2.0 / W) * weighted @ alpha.mT * decay, P, C)
        return xp.sum(residual * weighted, axis=(-2, -1)), dP.mT @ X, dC

    loss, grad, dC = rows.sum(gradient, len(maps) * n_centers, B, C, origin, alpha)
    left, right = _pullback(reg_lambda * (alpha @ alpha.mT) * decay_cc, C, C)
    grad = roots * (grad + (dC + left + right).mT @ centers)
    penalty = xp.sum(alpha * (reg_lambda * (K_cc @ alpha) + ridge * alpha), axis=(-2, -1))
    values, grads, alphas = rows.fetch(loss / W + penalty, grad, alpha)
    return [Reduced(float(value), *rest) for value, *rest in zip(values, grads, alphas, strict=True)]


def _squared_distances(P: Array, C: Array) -> Array:
    """Return ``|p_i - c_j|^2`` for each map."""
    xp = array_namespace(P, C)
    norms = xp.sum(P * P, axis=-1, keepdims=True) + xp.sum(C * C, axis=-1, keepdims=True).mT
    return xp.abs(norms - 2.0 * (P @ C.mT))


def _pullback(G: Array, P: Array, C: Array) -> tuple[Array, Array]:
    """Return the gradients in P and C from G * -phi'(u), as `Radial` with gamma = 1."""
    xp = array_namespace(G)
    to_P = G @ C - xp.sum(G, axis=-1, keepdims=True) * P
    to_C = G.mT @ P - xp.sum(G, axis=-2)[..., None] * C
    return 2.0 * to_P, 2.0 * to_C
