"""Evaluation of the evidence at several maps in one batch. The model search uses it on a GPU.

A GPU finishes a small evaluation before the host can launch the next evaluation, so a batch of evaluations costs little
more than a single evaluation. The formulas are those of `hkrr.criteria.evidence` with Nystrom centers, minimized over
lambda, for radial kernels. The first axis of each array is the index of the map.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

import numpy as np

from hkrr._base.linear_algebra import EPS, Array, array_namespace
from hkrr._base.threads import Lockstep, value_or_error
from hkrr.criteria.evidence import Evidence, signal_variance
from hkrr.kernels.batched import latent_centers, pull_back, squared_distances
from hkrr.kernels.radial import Radial
from hkrr.objective import Reduced


def can_be_batched(criterion: object) -> TypeGuard[Evidence]:
    """Return whether `profiled_batch` supports a criterion.

    The criterion must be the evidence with given centers (Nystrom), and its rows must be on a GPU. The kernel must be
    radial, smooth at distance zero, and have gamma 1, as in the model search.
    """
    return (
        isinstance(criterion, Evidence)
        and criterion.rows.pays_to_batch
        and criterion.profiles_lambda
        and isinstance(criterion.kernel, Radial)
        and criterion.kernel.smooth_at_zero
        and criterion.kernel.scale == 1.0
    )


class InLockstep(Evidence):
    """The evidence for one of several parallel solver runs, whose evaluations are computed in batches.

    `can_be_batched` must be True for the criterion, and `number` is the index of this run. `lockstep` collects one map
    from each run, and calls `answer` to evaluate the evidence at all these maps.
    """

    def __init__(self, criterion: Evidence, number: int, lockstep: Lockstep) -> None:
        self.__dict__.update(criterion.__dict__)
        self._number, self._lockstep = number, lockstep

    def profiled(self, B: Array) -> Reduced:
        found: Reduced = self._lockstep.ask(self._number, B)
        return found


def answer(criterion: Evidence, maps: list[Array]) -> list[Reduced | Exception]:
    """Return ``criterion.profiled(B)`` for each map B, or the exception that was raised for this map."""
    try:
        found = profiled_batch(criterion, maps)
    except (ArithmeticError, np.linalg.LinAlgError):  # single evaluations show which map failed
        found = None
    return [value_or_error(criterion.profiled, B) for B in maps] if found is None else list(found)


def profiled_batch(criterion: Evidence, maps: Sequence[Array]) -> list[Reduced] | None:
    """Return ``criterion.profiled(B)`` for each map B, or None if a factorization fails or a sum is not finite.

    The number of directions may differ between the maps. Smaller maps are padded with rows of zeros, which do not
    change the kernel.
    """
    rows, kernel, W, c = criterion.rows, criterion.kernel, criterion.rows.total_weight, criterion.n_centers
    assert isinstance(kernel, Radial)
    centers = criterion.placed_centers
    B = np.zeros((len(maps), max(len(one) for one in maps), rows.n_features))
    for k, one in enumerate(maps):
        B[k, : len(one)] = one
    B = rows.place(B)
    xp = array_namespace(B)
    C, origin, K_cc, decay_cc = latent_centers(kernel, centers, B)
    kappa = float(kernel.diagonal(centers[:1])[0])
    identity = xp.eye(c, dtype=B.dtype, device=B.device)
    T, failed = xp.linalg.cholesky_ex(K_cc + 10.0 * EPS * c * kappa * identity)
    if bool(failed.any()):  # a matrix needs more jitter, which only `Evidence` can determine
        return None

    def sums(X: Array, Y: Array, w: Array | None, B: Array, C: Array, origin: Array, T: Array) -> tuple[Array, Array]:
        K = kernel.value(squared_distances(X @ B.mT - origin, C))
        if w is not None:
            root = xp.sqrt(w)[:, None]
            K, Y = root * K, root * Y
        V = xp.linalg.solve_triangular(T, K.mT, upper=False)
        return V @ V.mT, V @ Y

    VV, Vy = rows.sum(sums, len(maps) * c, B, C, origin, T)
    if not bool(xp.all(xp.isfinite(VV))):  # PyTorch would raise a RuntimeError for the whole batch
        return None
    eigenvalues, vectors = xp.linalg.eigh(VV)
    kappa_sum, share = kappa * W, criterion.share
    on_host, squares_on_host = rows.fetch(eigenvalues, (vectors.mT @ Vy) ** 2)
    both = zip(on_host, squares_on_host, strict=True)
    noise = np.array([criterion.best_nu(one, its_squares, kappa_sum) for one, its_squares in both])
    nu = rows.place(noise[:, None, None])
    # S = VV' + nu I is diagonal in the eigenbasis of VV'.
    spectrum = xp.clip(eigenvalues, min=0.0)[:, None, :] + nu
    S_inverse = (vectors / spectrum) @ vectors.mT
    beta = S_inverse @ Vy
    squares = rows.place(criterion.squares)
    residual = squares - xp.sum(Vy * beta, axis=-2)
    q, inverse_q = signal_variance(residual, criterion.least, nu[:, 0] * W)  # (maps, targets)
    slack = kappa_sum - xp.sum(eigenvalues, axis=-1)
    log_det = xp.sum(xp.log(spectrum[:, 0]), axis=-1) + (W - c) * xp.log(nu[:, 0, 0])
    value = (xp.log(q) @ share) / 2.0 + log_det / (2.0 * W) + slack / (2.0 * nu[:, 0, 0] * W)

    middle = S_inverse / W - identity / (nu * W)
    weight = (share * inverse_q / (nu[:, 0] * W))[:, None, :]
    A = VV @ middle - (nu * weight * beta) @ beta.mT

    def unwhiten(M: Array) -> Array:
        return xp.linalg.solve_triangular(T.mT, M, upper=True)

    def sandwich(M: Array) -> Array:
        return unwhiten(unwhiten(M).mT)

    alpha = unwhiten(beta)

    def gradient(
        X: Array, Y: Array, w: Array | None, B: Array, C: Array, origin: Array, to_K: Array, alpha: Array, weight: Array
    ) -> tuple[Array, Array]:
        P = X @ B.mT - origin
        K, decay = kernel.value_and_decay(squared_distances(P, C))
        G = K @ to_K - (weight * (Y - K @ alpha)) @ alpha.mT
        if w is not None:
            G = w[:, None] * G
        dP, dC = pull_back(G * decay, P, C)
        return dP.mT @ X, dC

    grad, dC = rows.sum(gradient, len(maps) * c, B, C, origin, sandwich(middle), alpha, weight)
    left, right = pull_back(-0.5 * sandwich(0.5 * (A + A.mT)) * decay_cc, C, C)
    grad = grad + (dC + left + right).mT @ centers
    values, grads, alphas = rows.fetch(value, grad, alpha)
    return [
        Reduced(float(one), grads[k, : len(maps[k])], alphas[k], 0.0, float(noise[k]) / W)
        for k, one in enumerate(values)
    ]
