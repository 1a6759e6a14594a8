"""Mother kernels k(p, c) on the latent space: values, and the pullback that carries a gradient back to the points.

Every kernel answers two calls, for blocks P (n x d) and C (c x d):

    kernel(P, C)       ->  K                    the n x c matrix k(p_i, c_j)
    kernel.vjp(P, C)   ->  K, pullback          pullback(G) = gradients of sum(G * K) in P and in C

The pullback is all that the objective, whatever its criterion, needs of a kernel's derivative, and nothing of size
n x c x d is formed: radial kernels use one product of n x c with d + 1 columns, kernels over coordinates loop over
the d coordinates.

``gamma`` is a scale, for every kernel: ``k_gamma(p, c) = k_1(sqrt(gamma) p, sqrt(gamma) c)``. It is written through
the length scale ``ell = 1 / sqrt(2 gamma)``, so that one median rule suits all. (B, gamma) and (B / s, gamma s^2) are
then the same function.

To add a kernel, extend `Radial` (one method), `Coordinatewise` (two) or `Kernel` itself (two).
"""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from hkrr.kernels.base import Kernel, Pullback
from hkrr.kernels.coordinatewise import Anova, Coordinatewise, ProductLaplace, ProductMatern
from hkrr.kernels.polynomial import Polynomial
from hkrr.kernels.radial import Gaussian, InverseMultiquadric, Laplace, Matern, Radial, RationalQuadratic

__all__ = [
    "KERNELS",
    "Anova",
    "Coordinatewise",
    "Gaussian",
    "InverseMultiquadric",
    "Kernel",
    "Laplace",
    "Matern",
    "Polynomial",
    "ProductLaplace",
    "ProductMatern",
    "Pullback",
    "Radial",
    "RationalQuadratic",
    "get_kernel",
    "kernel_name",
]

KERNELS: dict[str, Kernel] = {
    "gaussian": Gaussian(),
    "laplace": Laplace(),
    "matern12": Matern(nu=0.5),
    "matern32": Matern(nu=1.5),
    "matern52": Matern(nu=2.5),
    "rational_quadratic": RationalQuadratic(),
    "inverse_multiquadric": InverseMultiquadric(),
    "product_laplace": ProductLaplace(),
    "product_matern32": ProductMatern(nu=1.5),
    "product_matern52": ProductMatern(nu=2.5),
    "anova": Anova(),
    "polynomial": Polynomial(),
}


def get_kernel(kernel: Any) -> Kernel:
    """Return the kernel of that name, or the kernel itself.

    Examples
    --------
    >>> from hkrr.kernels import get_kernel
    >>> get_kernel("matern52")
    Matern(gamma=None, nu=2.5)
    """
    if isinstance(kernel, Kernel):
        return kernel
    if isinstance(kernel, str) and kernel in KERNELS:
        return KERNELS[kernel]
    known = ", ".join(repr(name) for name in KERNELS)
    hint = ""
    if isinstance(kernel, type) and issubclass(kernel, Kernel):
        hint = f"; write {kernel.__name__}(), with brackets"
    elif kernel == "auto":
        hint = "; 'auto' is for HyperKernelRidgeCV without cv"
    elif isinstance(kernel, str):
        alike = get_close_matches({"rbf": "gaussian"}.get(kernel, kernel), KERNELS, n=1)
        hint = f"; did you mean {alike[0]!r}?" if alike else ""
    raise ValueError(f"kernel must be one of {known}, or a hkrr.kernels.Kernel; got {kernel!r}{hint}")


def kernel_name(kernel: Kernel) -> str:
    """Return the name that `get_kernel` knows the kernel by, whatever its gamma; otherwise that of its class.

    Examples
    --------
    >>> from hkrr.kernels import Matern, kernel_name
    >>> kernel_name(Matern(gamma=3.0, nu=2.5))
    'matern52'
    """
    bare = replace(kernel, gamma=None)
    return next((name for name, known in KERNELS.items() if known == bare), type(kernel).__name__)
