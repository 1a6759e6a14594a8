"""A neural network with one hidden layer of rectified linear units: scikit-learn's `MLPRegressor` on scaled data."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.neural_network import MLPRegressor
from sklearn.utils.validation import check_is_fitted, validate_data

from hkrr._base.checks import check_int, check_positive
from hkrr._base.linear_algebra import Array
from hkrr.rows import InMemoryRows
from hkrr.rows.standardize import moments


class ReLUNetwork(RegressorMixin, BaseEstimator):
    """Neural network with one hidden layer, for a single target: ``f(x) = sum_j a_j max(w_j'x + c_j, 0) + b``.

    Adam learns the weights a_j and w_j and the biases b and c_j of all hidden units j. If there are at least 20 rows, a
    tenth of them are held out for early stopping.

    Parameters
    ----------
    n_units : int, default=100
        Number of hidden units.
    reg_lambda : float, default=1e-4
        Strength of the L2 penalty on the weights of the network.
    max_iter : int, default=1000
        Maximum number of epochs.
    random_state : int, RandomState instance or None, default=None
        Seed of the initial weights, the batches and the held-out rows.

    Attributes
    ----------
    network_ : MLPRegressor
        The network, fitted to standardized inputs and target.
    n_iter_ : int
        Number of epochs.

    Examples
    --------
    >>> from hkrr.baselines import ReLUNetwork
    >>> from hkrr.datasets import make_planted
    >>> data = make_planted("single", 300, n_features=5, random_state=0)
    >>> model = ReLUNetwork(random_state=0).fit(data.X, data.y)
    >>> round(model.score(data.X, data.y), 2)
    0.95
    """

    def __init__(
        self, n_units: int = 100, *, reg_lambda: float = 1e-4, max_iter: int = 1000, random_state: Any = None
    ) -> None:
        self.n_units, self.reg_lambda, self.max_iter, self.random_state = n_units, reg_lambda, max_iter, random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Train the network on standardized inputs and target."""
        check_int("n_units", self.n_units, 1)
        check_int("max_iter", self.max_iter, 1)
        check_positive("reg_lambda", self.reg_lambda, zero=True)
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        self.moments_ = moments(InMemoryRows(X, y[:, None]))
        deviations = y - self.moments_.y_mean[0]
        self.y_scale_ = float(np.std(deviations))
        self.network_ = MLPRegressor(
            hidden_layer_sizes=(self.n_units,),
            alpha=self.reg_lambda,
            max_iter=self.max_iter,
            early_stopping=len(y) >= 20,
            n_iter_no_change=20,
            random_state=self.random_state,
        )
        self.network_.fit(self._standardize(X), deviations / (self.y_scale_ or 1.0))
        self.n_iter_ = self.network_.n_iter_
        return self

    def predict(self, X: Any) -> Array:
        """Return the prediction at every row of X."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        return np.asarray(self.network_.predict(self._standardize(X)) * self.y_scale_ + self.moments_.y_mean[0])

    def _standardize(self, X: Array) -> Array:
        return (X - self.moments_.x_mean) / self.moments_.x_scale
