"""Kernel ridge regression on all inputs, exact or with Nystrom centers, lambda and gamma by leave-one-out.

With all rows as centers and ``K = U diag(s) U'``, the fitted values and the leverages are
``U s/(s + lambda m) U'y`` and ``sum_j U_ij^2 s_j/(s_j + lambda m)``: one decomposition serves the whole path of lambda.
With c centers, ``K_cc = T T'`` and ``V = T^-1 K_cm``, the same holds with the eigenvectors of V V'. The error of
leaving row i out is ``r_i / (1 - h_i)``, exactly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from scipy.linalg import eigh, solve_triangular
from sklearn.utils import check_random_state

from hkrr._arrays import EPS, Array, jittered_cholesky
from hkrr._validation import check_choice, check_int, check_positive
from hkrr.baselines._expansion import KernelExpansion
from hkrr.centers import leverage, uniform
from hkrr.kernels import Kernel, get_kernel
from hkrr.rows import InMemoryRows
from hkrr.threads import blas_for

_MEDIAN_ROWS = 1000
_FACTORS = (1 / 16, 1 / 4, 1.0, 4.0)
_LAMBDAS = tuple(10.0 ** (-k / 2) for k in range(1, 21))


class _Path(NamedTuple):
    """One decomposition: features F of the rows with ``F'F = diag(s)``, ``K ~ F F'``, and the way to coefficients."""

    kernel: Kernel
    centers: Array
    F: Array
    s: Array
    to_alpha: Array  # alpha = to_alpha @ (F'y / (s + lambda m))

    def errors(self, Y: Array, lambdas: Sequence[float]) -> Array:
        """Return the mean squared leave-one-out error for each lambda."""
        shrunk = 1.0 / (self.s[:, None] + len(Y) * np.asarray(lambdas))  # k x n_lambdas
        leverages = (self.F * self.F) @ shrunk
        targets = self.F.T @ Y
        errors = []
        for h, factors in zip(leverages.T, shrunk.T, strict=True):
            residuals = Y - self.F @ (factors[:, None] * targets)
            # A leverage of one leaves nothing to predict the row by: that lambda is out.
            errors.append(np.mean(residuals**2 / (1.0 - h[:, None]) ** 2) if np.all(h < 1.0) else math.inf)
        return np.array(errors)

    def alpha(self, Y: Array, reg_lambda: float) -> Array:
        """Return the coefficients at the centers."""
        return self.to_alpha @ ((self.F.T @ Y) / (self.s[:, None] + len(Y) * reg_lambda))


def decompose(kernel: Kernel, Z: Array, centers: Array | None) -> _Path:
    """Return the decomposition for these centers, or the exact one (None)."""
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


class KernelRidgeCV(KernelExpansion):
    """``min_f sum_i (f(x_i) - y_i)^2 / m + lambda |f|^2``, with lambda (and gamma) of least leave-one-out error.

    Parameters
    ----------
    kernel : str or Kernel, default="gaussian"
    gamma : "auto", "median" or float, default="auto"
        "auto": the best of four multiples of the median rule's. A kernel instance's own gamma is kept.
    reg_lambdas : "auto" or sequence of float, default="auto"
        The path; "auto" is twenty values from 0.3 down to 1e-10.
    n_centers : "all" or int, default="all"
        "all" is exact.
    centers : {"uniform", "leverage"}, default="uniform"
        How centers are drawn: uniformly, or by approximate leverage scores.
    random_state : int, RandomState or None

    Attributes
    ----------
    reg_lambda_, gamma_ : float
        What was chosen.
    loo_error_ : float
        Its mean squared leave-one-out error.

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
        """Fit along the path, for every gamma, and keep the best."""
        Z, Y, found = self._validated(X, y)
        rng = check_random_state(self.random_state)
        lambdas = self._check(len(Z))
        rows = InMemoryRows(Z, Y)
        lowest = math.inf
        with blas_for(len(Z) if self.n_centers == "all" else self.n_centers):
            for turn, kernel in enumerate(self._kernels(Z, rng)):
                path = decompose(kernel, Z, self._draw(rows, kernel, lambdas, rng))
                errors = path.errors(Y, lambdas)
                k = int(np.argmin(errors))
                if turn == 0 or errors[k] < lowest:
                    best, lowest = (path, lambdas[k]), float(errors[k])
        path, self.reg_lambda_ = best
        self.gamma_, self.loo_error_ = path.kernel.scale, lowest
        self._keep(np.eye(Z.shape[1]), path.kernel, path.centers, path.alpha(Y, self.reg_lambda_), found)
        return self

    def _check(self, n_rows: int) -> list[float]:
        """Raise for the first parameter that cannot be; return the lambdas."""
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
        kernel = get_kernel(self.kernel)
        if not isinstance(self.gamma, str):
            if kernel.gamma not in (None, self.gamma):
                raise ValueError(f"gamma={self.gamma} and a kernel with gamma={kernel.gamma}: give one of them")
            return [kernel.with_gamma(self.gamma)]
        if kernel.gamma is not None:
            return [kernel]
        median = kernel.median_gamma(Z[rng.permutation(len(Z))[:_MEDIAN_ROWS]])
        return [kernel.with_gamma(median * factor) for factor in (_FACTORS if self.gamma == "auto" else (1.0,))]

    def _draw(
        self, rows: InMemoryRows, kernel: Kernel, lambdas: list[float], rng: np.random.RandomState
    ) -> Array | None:
        """Return the centers, or None for all rows."""
        if self.n_centers == "all" or self.n_centers >= rows.n_rows:
            return None
        if self.centers == "uniform":
            return uniform(rows, self.n_centers, rng)
        middle = float(np.exp(np.mean(np.log(lambdas))))
        return leverage(rows, self.n_centers, rng, B=np.eye(rows.n_features), kernel=kernel, t0=middle)
