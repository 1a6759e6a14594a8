"""Values and gradients of the kernel expansion ``k(P, C) alpha``, for NumPy arrays and PyTorch tensors."""

from __future__ import annotations

from hkrr._base.linear_algebra import Array, array_namespace, project
from hkrr.kernels.base import Kernel


def expand_latent(kernel: Kernel, P: Array, C: Array, alpha: Array) -> Array:
    """Return ``k(P, C) alpha``, the values at the latent points P for the latent centers C."""
    return kernel(P, C) @ alpha


def expand(kernel: Kernel, X: Array, B: Array, C: Array, alpha: Array) -> Array:
    """Return ``k(X B', C) alpha``, the values at the rows of X for the latent centers C."""
    return expand_latent(kernel, project(X, B), C, alpha)


def kernel_and_slopes(kernel: Kernel, P: Array, C: Array, alpha: Array) -> tuple[Array, Array]:
    """Return ``K = k(P, C)`` (n, c), and the gradients of ``K alpha`` at the latent points P (n, n_targets, d)."""
    xp = array_namespace(P)
    K, pullback = kernel.vjp_low_rank(P, C)
    ones = xp.ones_like(P[:, :1])
    return K, xp.stack([pullback(ones, alpha[:, t : t + 1])[0] for t in range(alpha.shape[1])], axis=1)
