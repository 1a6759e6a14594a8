"""Kernels k(p, c) of latent points p = B x, called mother kernels in the paper, and their gradients.

Every kernel implements two calls, for latent points P (n x d) and latent centers C (c x d):

    kernel(P, C)       ->  K                    the n x c matrix k(p_i, c_j)
    kernel.vjp(P, C)   ->  K, pullback          pullback(G) = gradients of sum(G * K) with respect to P and C

Here G is an n x c matrix, and sum(G * K) is the sum of the products of corresponding entries.
The training objective and all criteria use derivatives of a kernel only through its pullback. No array of size
n x c x d is formed: radial kernels multiply an n x c matrix by d + 1 columns, and coordinatewise kernels loop over the
d coordinates.

For every kernel, ``gamma`` is a scale: ``k_gamma(p, c) = k_1(sqrt(gamma) p, sqrt(gamma) c)``, where k_gamma is the
kernel with this gamma. It follows that (B, gamma) and (B / s, gamma s^2) give the same function for every s > 0. Most
formulas of kernels use the length scale ``ell = 1 / sqrt(2 gamma)``. The median heuristic, which sets ell to the median
distance between points, can therefore be used for every radial kernel.

To add a kernel, derive a class from `Radial` and implement one method, or derive it from `Coordinatewise` or `Kernel`
and implement two methods.
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
    "linear": Polynomial(degree=1, coef0=0.0),
}


def get_kernel(kernel: Any) -> Kernel:
    """Return the kernel with the given name. An instance of `Kernel` is returned unchanged.

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
        hint = f"; pass an instance, {kernel.__name__}(), instead of the class"
    elif kernel == "auto":
        hint = "; 'auto' is supported by HyperKernelRidgeCV with cv=None only"
    elif isinstance(kernel, str):
        alike = get_close_matches({"rbf": "gaussian"}.get(kernel, kernel), KERNELS, n=1)
        hint = f"; did you mean {alike[0]!r}?" if alike else ""
    raise ValueError(f"kernel must be one of {known}, or an hkrr.kernels.Kernel; got {kernel!r}{hint}")


def kernel_name(kernel: Kernel) -> str:
    """Return the name of the kernel in `KERNELS`, regardless of gamma, or its class name if it is not in `KERNELS`.

    Examples
    --------
    >>> from hkrr.kernels import Matern, kernel_name
    >>> kernel_name(Matern(gamma=3.0, nu=2.5))
    'matern52'
    """
    bare = replace(kernel, gamma=None)
    return next((name for name, known in KERNELS.items() if known == bare), type(kernel).__name__)
