"""Kernel ridge regression on all inputs, exact or with Nystrom centers, tuned by the leave-one-out error.

The kernel matrix K of the m rows, or its Nystrom approximation, is decomposed as ``F F'`` with ``F'F = diag(s)``. The
fitted values are ``F (F'y / (s + lambda m))``, and the leverages are ``h_i = sum_j F_ij^2 / (s_j + lambda m)``. The
same decomposition can therefore be used for all values of lambda. The leave-one-out residual of row i is exactly
``r_i / (1 - h_i)``, where r_i is the residual of the fit to all rows.

With all rows as centers, F is computed from the eigendecomposition ``K = U diag(s) U'``: ``F = U diag(s)^(1/2)``. With
c Nystrom centers, let K_cc be the kernel matrix of the centers, K_cm the kernel matrix between the centers and the
rows, T the lower Cholesky factor of K_cc, and ``V = T^-1 K_cm``. With the eigendecomposition ``V V' = U diag(s) U'``,
``F = V'U``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from scipy.linalg import eigh, solve_triangular
from sklearn.utils import check_random_state

from hkrr._base.checks import check_choice, check_int, check_positive
from hkrr._base.linear_algebra import EPS, Array, jittered_cholesky
from hkrr._base.threads import blas_for
from hkrr.baselines._kernel_expansion_regressor import KernelExpansionRegressor
from hkrr.centers import leverage, uniform
from hkrr.kernels import Kernel, get_kernel
from hkrr.kernels.base import with_median_gamma
from hkrr.rows import InMemoryRows

# The median heuristic sets gamma to 1 / (2 median^2), where median is the median distance between two rows.
# gamma="auto" tries these multiples of that value.
_FACTORS = (1 / 16, 1 / 4, 1.0, 4.0)
# Values of lambda that reg_lambdas="auto" tries.
_LAMBDAS = tuple(10.0 ** (-k / 2) for k in range(1, 21))


class _Path(NamedTuple):
    """The decomposition ``K ~ F F'`` with ``F'F = diag(s)`` for one kernel, which is used for all values of lambda."""

    kernel: Kernel
    centers: Array
    F: Array
    s: Array
    # The coefficients are alpha = to_alpha @ (F'y / (s + lambda m)).
    to_alpha: Array

    def errors(self, Y: Array, lambdas: Sequence[float]) -> Array:
        """Return the mean squared leave-one-out error of the targets Y for each value in `lambdas`."""
        shrunk = 1.0 / (self.s[:, None] + len(Y) * np.asarray(lambdas))  # one row per s_j, one column per lambda
        leverages = (self.F * self.F) @ shrunk
        targets = self.F.T @ Y
        errors = []
        for h, factors in zip(leverages.T, shrunk.T, strict=True):
            residuals = Y - self.F @ (factors[:, None] * targets)
            # If a row has leverage 1, its leave-one-out residual is undefined: exclude this lambda.
            errors.append(np.mean(residuals**2 / (1.0 - h[:, None]) ** 2) if np.all(h < 1.0) else math.inf)
        return np.array(errors)

    def alpha(self, Y: Array, reg_lambda: float) -> Array:
        """Return the coefficients of the kernels at the centers for given targets Y and a given lambda."""
        return self.to_alpha @ ((self.F.T @ Y) / (self.s[:, None] + len(Y) * reg_lambda))


def decompose(kernel: Kernel, Z: Array, centers: Array | None) -> _Path:
    """Return the decomposition ``K ~ F F'`` for the rows of Z and the given centers (see the docstring of this module).

    If ``centers`` is None, all rows are centers.
    """
    if centers is None:
        s, U = eigh(kernel(Z, Z), check_finite=False)
        s = np.maximum(s, 0.0)
        root = np.sqrt(s)
        # alpha = U (U'y / (s + lambda m)), and F'y = root * U'y.
        return _Path(kernel, Z, U * root, s, U / np.where(root > 0, root, np.inf))
    T, _ = jittered_cholesky(kernel(centers, centers), EPS * len(centers))
    V = solve_triangular(T, kernel(Z, centers).T, lower=True, check_finite=False)
    s, U = eigh(V @ V.T, check_finite=False)
    return _Path(
        kernel, centers, V.T @ U, np.maximum(s, 0.0), solve_triangular(T, U, lower=True, trans="T", check_finite=False)
    )


class KernelRidgeCV(KernelExpansionRegressor):
    """Kernel ridge regression with lambda and gamma chosen by the leave-one-out error.

    The fit minimizes ``sum_i (f(x_i) - y_i)^2 / m + lambda |f|^2`` over functions f, where m is the number of rows and
    ``|f|`` is the norm of f in the reproducing kernel Hilbert space.

    Parameters
    ----------
    kernel : str or Kernel, default="gaussian"
        The kernel.
    gamma : "auto", "median" or float, default="auto"
        Scale of the kernel. "median" uses the median heuristic: ``1 / (2 median^2)``, where median is the median
        distance between two rows (see `Kernel.median_gamma`). "auto" chooses the best of four multiples of this value.
        If ``kernel`` is an instance with its own gamma, "auto" and "median" keep that gamma.
    reg_lambdas : "auto" or sequence of float, default="auto"
        Values of lambda to try. "auto" tries twenty values from 0.3 to 1e-10.
    n_centers : "all" or int, default="all"
        Number of Nystrom centers. With "all" every row is a center, and the solution is exact.
    centers : {"uniform", "leverage"}, default="uniform"
        How to draw the centers: uniformly, or with probabilities proportional to approximate leverage scores.
    random_state : int, RandomState instance or None, default=None
        Seed for drawing the centers and the rows that the median heuristic uses.

    Attributes
    ----------
    reg_lambda_, gamma_ : float
        The chosen values.
    loo_error_ : float
        The mean squared leave-one-out error at the chosen values.

    Examples
    --------
    >>> from hkrr.baselines import KernelRidgeCV
    >>> from hkrr.datasets import make_mim_sines
    >>> data = make_mim_sines(300, n_features=3, n_components=1, random_state=0)
    >>> model = KernelRidgeCV().fit(data.X[:200], data.y[:200])
    >>> round(model.score(data.X[200:], data.y[200:]), 2)
    0.89
    """

    def __init__(
        self,
        *,
        kernel: str | Kernel = "gaussian",
        gamma: Literal["auto", "median"] | float = "auto",
        reg_lambdas: Any = "auto",
        n_centers: Literal["all"] | int = "all",
        centers: Literal["uniform", "leverage"] = "uniform",
        random_state: Any = None,
    ) -> None:
        self.kernel, self.gamma, self.reg_lambdas = kernel, gamma, reg_lambdas
        self.n_centers, self.centers, self.random_state = n_centers, centers, random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Compute the leave-one-out error for every gamma and lambda, and fit with the best gamma and lambda."""
        Z, Y, scaling = self._standardize(X, y)
        rng = check_random_state(self.random_state)
        lambdas = self._check()
        rows = InMemoryRows(Z, Y)
        lowest = math.inf
        with blas_for(len(Z) if self.n_centers == "all" else self.n_centers):
            for n_tried, kernel in enumerate(self._kernels(Z, rng)):
                path = decompose(kernel, Z, self._draw_centers(rows, kernel, lambdas, rng))
                errors = path.errors(Y, lambdas)
                k = int(np.argmin(errors))
                if n_tried == 0 or errors[k] < lowest:
                    best, lowest = (path, lambdas[k]), float(errors[k])
        path, self.reg_lambda_ = best
        self.gamma_, self.loo_error_ = path.kernel.scale, lowest
        self._set_expansion(np.eye(Z.shape[1]), path.kernel, path.centers, path.alpha(Y, self.reg_lambda_), scaling)
        return self

    def _check(self) -> list[float]:
        """Check the parameters, and return the values of lambda as a list."""
        if self.n_centers != "all":
            check_int("n_centers (if not 'all')", self.n_centers, 1)
        check_choice("centers", self.centers, ("uniform", "leverage"))
        if isinstance(self.gamma, str):
            check_choice("gamma", self.gamma, ("auto", "median"), also=", or a positive number")
        else:
            check_positive("gamma", self.gamma)
        if isinstance(self.reg_lambdas, str):
            check_choice("reg_lambdas", self.reg_lambdas, ("auto",), also=", or positive numbers")
            return list(_LAMBDAS)
        if np.ndim(self.reg_lambdas) != 1 or len(self.reg_lambdas) == 0:
            raise ValueError(f"reg_lambdas must be 'auto' or a list of positive numbers, got {self.reg_lambdas!r}")
        return [check_positive("reg_lambdas", value) for value in self.reg_lambdas]

    def _kernels(self, Z: Array, rng: np.random.RandomState) -> list[Kernel]:
        """Return one kernel for each value of gamma to try."""
        kernel = get_kernel(self.kernel)
        if not isinstance(self.gamma, str):
            if kernel.gamma not in (None, self.gamma):
                raise ValueError(f"gamma={self.gamma}, but the kernel has gamma={kernel.gamma}: set only one of them")
            return [kernel.with_gamma(self.gamma)]
        if kernel.gamma is not None:
            return [kernel]
        kernel = with_median_gamma(kernel, Z[rng.permutation(len(Z))])
        return [kernel.with_gamma(kernel.scale * factor) for factor in (_FACTORS if self.gamma == "auto" else (1.0,))]

    def _draw_centers(
        self, rows: InMemoryRows, kernel: Kernel, lambdas: list[float], rng: np.random.RandomState
    ) -> Array | None:
        """Return the centers, or None if all rows are centers."""
        if self.n_centers == "all" or self.n_centers >= rows.n_rows:
            return None
        if self.centers == "uniform":
            return uniform(rows, self.n_centers, rng)
        middle = float(np.exp(np.mean(np.log(lambdas))))
        return leverage(rows, self.n_centers, rng, B=np.eye(rows.n_features), kernel=kernel, t0=middle)
