"""A network with one hidden layer of rectified linear units: scikit-learn's, on standardised data."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.neural_network import MLPRegressor
from sklearn.utils.validation import check_is_fitted, validate_data

from hkrr._arrays import Array
from hkrr._validation import check_int, check_positive
from hkrr.rows import InMemoryRows
from hkrr.scaling import moments


class ReLUNetwork(RegressorMixin, BaseEstimator):
    """``f(x) = sum_j a_j max(w_j'x + c_j, 0) + b``, for one target, all of it learned by Adam, with early stopping.

    Parameters
    ----------
    n_units : int, default=100
    reg_lambda : float, default=1e-4
        Weight decay.
    max_iter : int, default=1000
        Passes over the rows at most.
    random_state : int, RandomState or None

    Attributes
    ----------
    network_ : MLPRegressor
        Fitted to standardised inputs and target.
    n_iter_ : int
        Passes made.

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
        """Train until the error on a tenth of the rows, held out, has come to rest."""
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
        self.network_.fit(self._scaled(X), deviations / (self.y_scale_ or 1.0))
        self.n_iter_ = self.network_.n_iter_
        return self

    def predict(self, X: Any) -> Array:
        """Return the network's value at every row."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        return np.asarray(self.network_.predict(self._scaled(X)) * self.y_scale_ + self.moments_.y_mean[0])

    def _scaled(self, X: Array) -> Array:
        return (X - self.moments_.x_mean) / self.moments_.x_scale
