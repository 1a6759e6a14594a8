"""Evaluation of the reduced function H of `hkrr.objective` at several maps in one batch. This is faster on a GPU.

A GPU finishes a small evaluation before the host can launch the next evaluation, so a batch of evaluations costs little
more than a single evaluation. The formulas are the same as in `hkrr.objective` for radial kernels. The first axis of
each array is the index of the map.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hkrr._base.linear_algebra import EPS, Array, array_namespace
from hkrr.kernels.batched import latent_centers, pull_back, squared_distances
from hkrr.kernels.radial import Radial
from hkrr.objective import WHITEN_BELOW, Objective, Reduced


def objective_can_be_batched(objective: Objective) -> bool:
    """Return whether `reduced_batch` supports an objective.

    The rows must be on a GPU, and the centers must be given (Nystrom). The kernel must be radial and smooth at distance
    zero. Lambda must be at least ``WHITEN_BELOW``, because the batch does not whiten the system (see `hkrr.objective`).
    (The limit is for lambda / kappa, where kappa is the maximum of k(x, x). For radial kernels, kappa is 1.)
    """
    return (
        objective.rows.pays_to_batch
        and not objective.exact
        and isinstance(objective.kernel, Radial)
        and objective.kernel.smooth_at_zero
        and objective.reg_lambda >= WHITEN_BELOW
    )


def reduced_batch(objectives: Sequence[Objective], maps: Sequence[Array]) -> list[Reduced] | None:
    """Return the reduced function of each objective at its map, or None if a factorization fails.

    All objectives must have the same rows, the same centers and the same kernel up to gamma. Lambda may differ. The
    maps must have the same shape.
    """
    one = objectives[0]
    rows, kernel, W, n_centers = one.rows, one.kernel, one.rows.total_weight, one.n_centers
    assert isinstance(kernel, Radial)
    centers, B = rows.place(one.centers), rows.place(np.stack([np.asarray(B) for B in maps]))
    # Move the scale of the kernel into the maps: phi(gamma |p - c|^2) = phi(|sqrt(gamma) p - sqrt(gamma) c|^2).
    roots, reg_lambda = (
        rows.place(np.array(values)[:, None, None])
        for values in ([objective.kernel.scale**0.5 for objective in objectives], [o.reg_lambda for o in objectives])
    )
    B = roots * B
    xp = array_namespace(B)
    C, origin, K_cc, decay_cc = latent_centers(kernel, centers, B)

    def normal_equations(X: Array, Y: Array, w: Array | None, B: Array, C: Array, origin: Array) -> tuple[Array, Array]:
        K = kernel.value(squared_distances(X @ B.mT - origin, C))
        weighted = K if w is None else w[:, None] * K
        return weighted.mT @ K, weighted.mT @ Y

    A, b = rows.sum(normal_equations, len(maps) * n_centers, B, C, origin)
    ridge = EPS * n_centers * (1.0 + reg_lambda)
    identity = xp.eye(n_centers, dtype=A.dtype, device=A.device)
    factor, failed = xp.linalg.cholesky_ex(A / W + reg_lambda * K_cc + ridge * identity)
    if bool(failed.any()):  # a matrix needs more jitter, which only `Objective` can determine
        return None
    alpha = xp.cholesky_solve(b / W, factor)

    def gradient(
        X: Array, Y: Array, w: Array | None, B: Array, C: Array, origin: Array, alpha: Array
    ) -> tuple[Array, Array, Array]:
        P = X @ B.mT - origin
        K, decay = kernel.value_and_decay(squared_distances(P, C))
        residual = K @ alpha - Y
        weighted = residual if w is None else w[:, None] * residual
        dP, dC = pull_back((2.0 / W) * weighted @ alpha.mT * decay, P, C)
        return xp.sum(residual * weighted, axis=(-2, -1)), dP.mT @ X, dC

    loss, grad, dC = rows.sum(gradient, len(maps) * n_centers, B, C, origin, alpha)
    left, right = pull_back(reg_lambda * (alpha @ alpha.mT) * decay_cc, C, C)
    grad = roots * (grad + (dC + left + right).mT @ centers)
    penalty = xp.sum(alpha * (reg_lambda * (K_cc @ alpha) + ridge * alpha), axis=(-2, -1))
    values, grads, alphas = rows.fetch(loss / W + penalty, grad, alpha)
    return [Reduced(float(value), *rest) for value, *rest in zip(values, grads, alphas, strict=True)]
