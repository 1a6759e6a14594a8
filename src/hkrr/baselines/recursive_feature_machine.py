"""The recursive feature machine: kernel ridge regression with a distance learned from outer products of gradients."""

from __future__ import annotations

import math
from typing import Any, Literal, Self

import numpy as np
from scipy.linalg import eigh
from sklearn.utils import check_random_state

from hkrr._base.checks import check_bool, check_choice, check_int, check_positive
from hkrr._base.linear_algebra import Array, solve_positive_definite
from hkrr._maps import KernelExpansion
from hkrr.baselines._kernel_expansion_regressor import KernelExpansionRegressor
from hkrr.kernels import Gaussian, Kernel, Laplace
from hkrr.kernels.expansion_values import kernel_and_slopes

KERNELS = {"laplace": Laplace, "gaussian": Gaussian}


class RecursiveFeatureMachine(KernelExpansionRegressor):
    """Recursive feature machine: kernel ridge regression with a learned Mahalanobis distance.

    Each iteration solves ``(K_M + reg I) a = y`` for a, and then sets M to ``sum_i grad f(x_i) grad f(x_i)'``, divided
    by the largest entry of this sum. K_M is the kernel matrix for the distance ``|M^(1/2) (x - x')|``, f is the fitted
    function with the coefficients a, and M is the identity in the first iteration. The iteration with the lowest error
    on held-out rows gives the final model. Source: Radhakrishnan, Beaglehole, Pandit and Belkin (2024), Mechanism for
    feature learning in neural networks and backpropagation-free machine learning models, Science 383.

    Parameters
    ----------
    kernel : {"laplace", "gaussian"}, default="laplace"
        ``exp(-t / bandwidth)`` or ``exp(-t^2 / (2 bandwidth^2))``, where t is the distance.
    bandwidth : float, default=10.0
        Bandwidth of the kernel.
    reg : float, default=1e-3
        Regularization, added to the diagonal of the kernel matrix.
    n_iter : int, default=5
        Number of updates of M.
    diagonal : bool, default=False
        Whether to restrict M to a diagonal matrix.
    validation_fraction : float, default=0.2
        Fraction of the rows that are held out to choose the iteration. With 0, no rows are held out, and the model of
        the last iteration is used.
    scale_features : bool, default=True
        Whether to standardize the columns of X.
    random_state : int, RandomState instance or None, default=None
        Seed of the held-out rows.

    Attributes
    ----------
    M_ : array (n_features, n_features)
        The learned matrix M. With ``scale_features=True`` it applies to the standardized columns of X.
    components_ : array (n_features, n_features)
        A square root of M in the original units of X: the learned distance between x and x' is
        ``|components_ (x - x')|``.
    best_iter_ : int
        Number of updates of M before the chosen iteration.

    Examples
    --------
    >>> from hkrr.baselines import RecursiveFeatureMachine
    >>> from hkrr.datasets import make_planted
    >>> data = make_planted("product", 600, n_features=10, random_state=0)
    >>> model = RecursiveFeatureMachine(random_state=0).fit(data.X, data.y)
    >>> round(model.score(data.X, data.y), 2)
    1.0
    """

    def __init__(
        self,
        *,
        kernel: Literal["laplace", "gaussian"] = "laplace",
        bandwidth: float = 10.0,
        reg: float = 1e-3,
        n_iter: int = 5,
        diagonal: bool = False,
        validation_fraction: float = 0.2,
        scale_features: bool = True,
        random_state: Any = None,
    ) -> None:
        self.kernel, self.bandwidth, self.reg, self.n_iter, self.diagonal = kernel, bandwidth, reg, n_iter, diagonal
        self.validation_fraction, self.scale_features, self.random_state = (
            validation_fraction,
            scale_features,
            random_state,
        )

    def fit(self, X: Any, y: Any) -> Self:
        """Run the iterations, and keep the model of the iteration with the lowest held-out error."""
        self._check()
        Z, Y, scaling = self._standardize(X, y, scale=self.scale_features)
        training, held_out = self._split(len(Z))
        C, targets = Z[training], Y[training]
        kernel: Kernel = KERNELS[self.kernel](gamma=0.5 / self.bandwidth**2)
        M, lowest = np.eye(Z.shape[1]), math.inf
        for k in range(self.n_iter + 1):
            B = square_root(M)
            P = C @ B.T
            alpha, *_ = solve_positive_definite(kernel(P, P), targets, self.reg)
            predicted = KernelExpansion(kernel, B, C, alpha).at(Z[held_out])
            # Without held-out rows, the error is set to -k, so that the last iteration is selected.
            error = float(np.mean((predicted - Y[held_out]) ** 2)) if len(held_out) else -k
            if k == 0 or error < lowest:
                best, lowest = (B, alpha, M, k), error
            if k < self.n_iter:
                M = agop(kernel, P, alpha, B)
                if self.diagonal:
                    M = np.diag(M.diagonal())
                largest = M.max()
                if not largest > 0:
                    # The fitted function is constant, so all gradients are zero.
                    break
                M = M / largest
        B, alpha, self.M_, self.best_iter_ = best
        self._set_expansion(B, kernel, C, alpha, scaling)
        return self

    def _check(self) -> None:
        check_choice("kernel", self.kernel, tuple(KERNELS))
        check_positive("bandwidth", self.bandwidth)
        check_positive("reg", self.reg, zero=True)
        check_int("n_iter", self.n_iter, 0)
        check_bool("diagonal", self.diagonal)
        check_bool("scale_features", self.scale_features)
        if check_positive("validation_fraction", self.validation_fraction, zero=True) >= 1.0:
            raise ValueError(f"validation_fraction must be below 1, got {self.validation_fraction!r}")

    def _split(self, n_rows: int) -> tuple[Array, Array]:
        order = check_random_state(self.random_state).permutation(n_rows)
        n_held_out = min(round(self.validation_fraction * n_rows), n_rows - 1)
        return order[n_held_out:], order[:n_held_out]


def square_root(M: Array) -> Array:
    """Return the symmetric square root of a positive semidefinite matrix."""
    values, vectors = eigh(M)
    return (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T


def agop(kernel: Kernel, P: Array, alpha: Array, B: Array) -> Array:
    """Return ``sum_i grad f(x_i) grad f(x_i)'``, summed over the targets, for ``f(x) = sum_j alpha_j k(Bx, p_j)``.

    The p_j are the rows of P, the training rows mapped by B: ``p_j = B x_j``.
    """
    gradients = kernel_and_slopes(kernel, P, P, alpha)[1].reshape(-1, P.shape[1]) @ B
    return gradients.T @ gradients
