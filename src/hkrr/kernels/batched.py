"""Squared distances and gradients of radial kernels for a batch of maps.

The first axis of each array is the index of the map.
"""

from __future__ import annotations

from hkrr._base.linear_algebra import Array, array_namespace
from hkrr.kernels.radial import Radial


def latent_centers(kernel: Radial, centers: Array, B: Array) -> tuple[Array, Array, Array, Array]:
    """Return the latent centers of each map, minus their mean, the mean, and the kernel matrix of the centers.

    The last value contains ``-phi'(u)`` for each entry phi(u) of the matrix. The mean is subtracted as in
    `hkrr.kernels.radial`: far from zero, distances have fewer correct digits.
    """
    xp = array_namespace(B)
    C = centers @ B.mT
    origin = xp.mean(C, axis=-2, keepdims=True)
    C = C - origin
    return C, origin, *kernel.value_and_decay(squared_distances(C, C))


def squared_distances(P: Array, C: Array) -> Array:
    """Return ``|p_i - c_j|^2`` for each map of the batch."""
    xp = array_namespace(P, C)
    norms = xp.sum(P * P, axis=-1, keepdims=True) + xp.sum(C * C, axis=-1, keepdims=True).mT
    return xp.abs(norms - 2.0 * (P @ C.mT))


def pull_back(G: Array, P: Array, C: Array) -> tuple[Array, Array]:
    """Return the gradients of sum(F * K) with respect to P and C, given ``G = -F * phi'(u)``.

    K is the matrix phi(u) with ``u = |p_i - c_j|^2``, F is any matrix of the same shape, and * is the entrywise
    product. `hkrr.kernels.Radial` uses the same formula.
    """
    xp = array_namespace(G)
    to_P = G @ C - xp.sum(G, axis=-1, keepdims=True) * P
    to_C = G.mT @ P - xp.sum(G, axis=-2)[..., None] * C
    return 2.0 * to_P, 2.0 * to_C
