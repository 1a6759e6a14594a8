"""Radial basis function networks, trained by stochastic gradient descent. `HyperRBFNetwork` also learns the map B."""

from __future__ import annotations

import math
import warnings
from typing import Any, Self

import numpy as np
from sklearn.cluster import kmeans_plusplus
from sklearn.utils import check_random_state

from hkrr._base.checks import check_int, check_positive
from hkrr._base.linear_algebra import Array
from hkrr._maps import KernelExpansion
from hkrr.baselines._kernel_expansion_regressor import KernelExpansionRegressor
from hkrr.exceptions import NotConvergedWarning
from hkrr.kernels import Kernel, get_kernel
from hkrr.kernels.base import with_median_gamma
from hkrr.solvers.initialization import sample_map


class Adam:
    """The Adam optimizer (Kingma and Ba, 2015) for a list of arrays."""

    def __init__(self, shapes: list[tuple[int, ...]], rate: float) -> None:
        self.rate, self.n = rate, 0
        self.first, self.second = ([np.zeros(shape) for shape in shapes] for _ in range(2))

    def step(self, parameters: list[Array], gradients: list[Array]) -> None:
        """Update the parameters in place by one step of Adam, given the gradients with respect to them."""
        self.n += 1
        for parameter, gradient, first, second in zip(parameters, gradients, self.first, self.second, strict=True):
            first += 0.1 * (gradient - first)
            second += 0.001 * (gradient**2 - second)
            size = self.rate * math.sqrt(1.0 - 0.999**self.n) / (1.0 - 0.9**self.n)
            parameter -= size * first / (np.sqrt(second) + 1e-8)


class RBFNetwork(KernelExpansionRegressor):
    """Radial basis function network: ``f(x) = sum_j a_j k(|x - t_j|) + b`` with learned centers t_j.

    Stochastic gradient descent learns the centers and the coefficients a_j together. Source: Poggio and Girosi (1990),
    Networks for approximation and learning, Proceedings of the IEEE 78. That paper derives these models
    from regularization networks: they have movable centers, and fewer units than there are rows.

    Parameters
    ----------
    n_units : int, default=50
        Number of centers, at most the number of training rows.
    kernel : str or Kernel, default="gaussian"
        The kernel. If the gamma of the kernel is not set, the median heuristic chooses gamma.
    reg_lambda : float, default=1e-6
        Weight of the penalty ``a' K_tt a``, where K_tt is the kernel matrix of the centers.
    learning_rate : float, default=0.01
        Learning rate of Adam.
    batch_size : int, default=64
        Number of rows in a batch.
    max_iter : int, default=500
        Maximum number of epochs.
    patience : int, default=50
        Stop after this many epochs without a lower error on the held-out rows. A tenth of the training rows are held
        out. If there are fewer than ten training rows, none are held out, and the training error is used.
    random_state : int, RandomState instance or None, default=None
        Seed of the held-out rows, the initial centers and the batches.

    Attributes
    ----------
    n_iter_ : int
        Number of epochs.

    Examples
    --------
    >>> from hkrr.baselines import RBFNetwork
    >>> from hkrr.datasets import make_planted
    >>> data = make_planted("product", 300, n_features=5, random_state=0)
    >>> model = RBFNetwork(random_state=0).fit(data.X, data.y)
    >>> round(model.score(data.X, data.y), 2)
    0.96
    """

    _learns_map = False

    def __init__(
        self,
        n_units: int = 50,
        *,
        kernel: str | Kernel = "gaussian",
        reg_lambda: float = 1e-6,
        learning_rate: float = 0.01,
        batch_size: int = 64,
        max_iter: int = 500,
        patience: int = 50,
        random_state: Any = None,
    ) -> None:
        self.n_units, self.kernel, self.reg_lambda, self.learning_rate = n_units, kernel, reg_lambda, learning_rate
        self.batch_size, self.max_iter, self.patience, self.random_state = batch_size, max_iter, patience, random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Train with early stopping on held-out rows."""
        for name in ("n_units", "batch_size", "max_iter", "patience"):
            check_int(name, getattr(self, name), 1)
        check_positive("learning_rate", self.learning_rate)
        check_positive("reg_lambda", self.reg_lambda, zero=True)
        Z, Y, scaling = self._standardize(X, y)
        size = float(np.sqrt(np.mean(Y**2))) or 1.0
        # Scale the target, so that the learning rate does not depend on its units.
        Y = Y / size
        rng = check_random_state(self.random_state)
        order = rng.permutation(len(Z))
        n_held_out = len(Z) // 10
        held_out, training = order[:n_held_out], order[n_held_out:]
        n_components = self._check_n_components(Z.shape[1])
        B = sample_map(n_components, Z.shape[1], rng) if self._learns_map else np.eye(n_components)
        kernel = get_kernel(self.kernel)
        if kernel.gamma is None:
            kernel = with_median_gamma(kernel, Z[order], B)
        T = kmeans_plusplus(Z[training], min(self.n_units, len(training)), random_state=rng)[0]
        a = np.zeros((len(T), Y.shape[1]))
        # Adam updates these arrays in place.
        parameters = [a, T, B] if self._learns_map else [a, T]
        adam = Adam([each.shape for each in parameters], self.learning_rate)
        watched = held_out if n_held_out else training
        best, lowest, since = [each.copy() for each in (a, T, B)], math.inf, 0
        for n_iter in range(1, self.max_iter + 1):
            self.n_iter_ = n_iter
            shuffled = rng.permutation(training)
            for start in range(0, len(shuffled), self.batch_size):
                rows = shuffled[start : start + self.batch_size]
                adam.step(parameters, self._gradients(kernel, Z[rows], Y[rows], a, T, B)[: len(parameters)])
            error = float(np.mean((KernelExpansion(kernel, B, T, a).at(Z[watched]) - Y[watched]) ** 2))
            if error < lowest:
                best, lowest, since = [each.copy() for each in (a, T, B)], error, 0
            else:
                since += 1
            if since >= self.patience or not math.isfinite(error):
                break
        if not math.isfinite(error):
            warnings.warn(
                f"{type(self).__name__} diverged after {self.n_iter_} epochs, so the parameters of the best epoch "
                f"are used; use a learning_rate below {self.learning_rate}",
                NotConvergedWarning,
                stacklevel=2,
            )
        a, T, B = best
        self._set_expansion(B, kernel, T, a * size, scaling)
        return self

    def _check_n_components(self, n_features: int) -> int:
        """Return the number of rows of B, after checking that it is valid. Without a learned map, B is the identity."""
        return n_features

    def _gradients(self, kernel: Kernel, Z: Array, Y: Array, a: Array, T: Array, B: Array) -> list[Array]:
        """Return the gradients of ``|K a - Y|^2 / n + lambda a' K_tt a`` with respect to a, T and B.

        K is the kernel matrix between the n rows of Z and the centers T, and K_tt is the kernel matrix of the centers.
        """
        P, C = Z @ B.T, T @ B.T
        K, pullback = kernel.vjp(P, C)
        K_tt, pullback_tt = kernel.vjp(C, C)
        r = (2.0 / len(Z)) * (K @ a - Y)
        grad_a = K.T @ r + 2.0 * self.reg_lambda * K_tt @ a
        dP, dC = pullback(r @ a.T)
        left, right = pullback_tt(self.reg_lambda * a @ a.T)
        dC = dC + left + right
        return [grad_a, dC @ B, dP.T @ Z + dC.T @ T]


class HyperRBFNetwork(RBFNetwork):
    """Hyper-RBF network: ``f(x) = sum_j a_j k(|B (x - t_j)|) + b`` with a learned map B.

    Stochastic gradient descent learns B together with the centers t_j and the coefficients a_j. Source: Poggio and
    Girosi (1990), see `RBFNetwork`. That paper calls these models hyper basis functions.

    Parameters
    ----------
    n_components : int, default=2
        Number of rows of B.
    n_units, kernel, reg_lambda, learning_rate, batch_size, max_iter, patience, random_state
        See `RBFNetwork`.

    Attributes
    ----------
    components_ : array (n_components, n_features)
        The map B, in the original units of X.
    n_iter_ : int
        Number of epochs.

    Examples
    --------
    >>> from hkrr.baselines import HyperRBFNetwork
    >>> from hkrr.datasets import make_planted
    >>> data = make_planted("product", 300, n_features=5, random_state=0)
    >>> model = HyperRBFNetwork(n_components=2, random_state=0).fit(data.X, data.y)
    >>> round(model.score(data.X, data.y), 2)
    0.99
    """

    _learns_map = True

    def __init__(
        self,
        n_components: int = 2,
        *,
        n_units: int = 50,
        kernel: str | Kernel = "gaussian",
        reg_lambda: float = 1e-6,
        learning_rate: float = 0.01,
        batch_size: int = 64,
        max_iter: int = 500,
        patience: int = 50,
        random_state: Any = None,
    ) -> None:
        super().__init__(
            n_units,
            kernel=kernel,
            reg_lambda=reg_lambda,
            learning_rate=learning_rate,
            batch_size=batch_size,
            max_iter=max_iter,
            patience=patience,
            random_state=random_state,
        )
        self.n_components = n_components

    def _check_n_components(self, n_features: int) -> int:
        if check_int("n_components", self.n_components, 1) > n_features:
            raise ValueError(
                f"n_components={self.n_components} exceeds the number of columns of X; use at most {n_features}"
            )
        return self.n_components
