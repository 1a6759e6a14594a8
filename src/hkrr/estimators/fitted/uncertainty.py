"""How sure a fitted model is: standard deviations and intervals, for `hkrr._model.MapModel`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted

from hkrr._arrays import Array, is_torch_array
from hkrr._validation import in_finite_numbers
from hkrr.conformal import Uncertainty, quantile
from hkrr.opening import is_elsewhere
from hkrr.posterior import mean_and_variance
from hkrr.rows import Rows

_KEPT = ("prior_variance_", "noise_variance_", "interval_scores_", "posterior_factor_", "center_weight_")
_UNKNOWN = (
    "this model does not know how sure it is: an earlier version of hkrr saved it, its fit was interrupted, or its "
    "system could not be factorised again. "
)


class Uncertain:
    """The part of a model that knows how far off its predictions may be."""

    prior_variance_: Any
    noise_variance_: Any
    interval_scores_: Array
    dual_coef_: Array
    intercept_: Any
    _applied: Callable[..., Any]
    _uncut: Callable[[Rows], Array]
    _cut: Callable[[Array], Array]

    def predict_interval(self, X: Any, coverage: float = 0.9) -> tuple[Any, Any]:
        """Return intervals that hold a new observation with a given probability.

        ``f(x) -+ q sigma(x)``, sigma(x) the standard deviation of the equivalent Gaussian process (that of
        ``predict(X, return_std=True)``) and q a quantile of how far off rows are, in its units: of the training rows,
        each left out of the fit, the map's share in it to first order (see `hkrr.conformal`), or after `calibrate` of
        rows that the fit has not seen. The probability is over training and new rows alike, not for each x by itself.
        Ends are not cut, as predictions may be: noise may go beyond.

        Parameters
        ----------
        X : as in `predict`
        coverage : float, default=0.9
            Between 0 and 1. The more, the more rows it takes to know: 9 for 0.9, 99 for 0.99.

        Returns
        -------
        lower, upper : each as `predict` returns
            Of several targets each has its own intervals, that hold it with this probability.

        Examples
        --------
        >>> from hkrr import HyperKernelRidgeCV
        >>> from hkrr.datasets import make_mim_sines
        >>> data = make_mim_sines(700, n_features=10, n_components=2, random_state=0)
        >>> model = HyperKernelRidgeCV(random_state=0).fit(data.X[:300], data.y[:300])
        >>> lower, upper = model.predict_interval(data.X[300:], coverage=0.9)
        >>> inside = (lower <= data.y[300:]) & (data.y[300:] <= upper)
        >>> bool(0.85 < inside.mean() < 0.95)
        True
        """
        check_is_fitted(self)
        if isinstance(coverage, bool) or not isinstance(coverage, int | float | np.number) or not 0 < coverage < 1:
            raise ValueError(f"coverage must be a number between 0 and 1, got {coverage!r}: 0.9 for nine rows in ten")
        if not hasattr(self, "interval_scores_"):
            raise ValueError(_UNKNOWN + "Fit it anew, or call calibrate(X, y) with rows that the fit has not seen.")
        reach = quantile(self.interval_scores_, float(coverage))
        predicted, spread = self._halves(self._mean_and_spread(X))
        return _end(predicted, spread, -reach), _end(predicted, spread, reach)

    def calibrate(self, X: Any, y: Any) -> Self:
        """Take the lengths of intervals from rows that the fit has not seen: split conformal prediction.

        For new rows from where these came from, intervals then hold at least ``coverage`` of them, whatever the model
        is worth: on average over the rows calibrated with, and exactly ``ceil((n + 1) coverage) / (n + 1)`` of them
        unless scores tie. What `fit` has found is replaced; predictions are as before.

        Parameters
        ----------
        X : array, data frame or tensor (n_samples, n_features)
        y : array or tensor (n_samples,) or (n_samples, n_targets)

        Returns
        -------
        self

        Examples
        --------
        >>> from hkrr import HyperKernelRidge
        >>> from hkrr.datasets import make_mim_sines
        >>> data = make_mim_sines(500, n_features=5, n_components=2, random_state=0)
        >>> model = HyperKernelRidge(random_state=0).fit(data.X[:300], data.y[:300])
        >>> model.calibrate(data.X[300:400], data.y[300:400]).interval_scores_.shape
        (100,)
        """
        check_is_fitted(self)
        X, y = (part.detach().cpu().numpy() if is_torch_array(part) else part for part in (X, y))
        if is_elsewhere(X) or isinstance(y, str):
            raise ValueError("calibrate takes arrays, data frames and tensors: give some rows in memory")
        y = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
        check_consistent_length(X, y)
        predicted, spread = self._halves(self._mean_and_spread(X).astype(np.float64))
        if y.shape != predicted.shape:
            raise ValueError(
                f"y has the shape {y.shape}, and predictions have {predicted.shape}: give the same targets"
            )
        self.interval_scores_ = np.sort(np.abs(y - predicted) / spread, axis=0)
        return self

    def _mean_and_std(self, X: Any) -> tuple[Any, Any]:
        """Return the predictions, and the standard deviations of new observations."""
        if not hasattr(self, "noise_variance_"):
            raise ValueError(_UNKNOWN + "Fit it anew for return_std=True.")
        predicted, spread = self._halves(self._mean_and_spread(X))
        known = np.asarray(self.prior_variance_) > 0
        if not np.all(known):  # a target without any variance has no deviations
            spread = spread * (known if known.ndim else float(known))
        return predicted, spread

    def _mean_and_spread(self, X: Any) -> Any:
        """Return the predictions of each target, and beside them the unit that intervals are measured in."""
        return self._applied(X, "_mean_and_spread", (2 * self._n_targets,), self._mean_and_spread_of_rows)

    def _mean_and_spread_of_rows(self, rows: Rows) -> Array:
        if not hasattr(self, "noise_variance_"):  # calibrated without
            predicted = self._cut(self._uncut(rows)).reshape(-1, self._n_targets)
            return np.hstack([predicted, np.ones_like(predicted)])
        found = mean_and_variance(self, rows)
        prior, noise = np.atleast_1d(self.prior_variance_), np.atleast_1d(self.noise_variance_)
        spread = np.sqrt(found[:, -1:] * prior + noise)
        return np.hstack([self._cut(found[:, :-1]), np.where(prior > 0, spread, 1.0)])

    @property
    def _n_targets(self) -> int:
        return math.prod(self.dual_coef_.shape[1:])

    def _halves(self, both: Any) -> tuple[Any, Any]:
        """Return the left and the right half of the columns, each in the shape of predictions."""
        n = self._n_targets
        if hasattr(both, "columns"):  # of a Dask data frame
            if self.dual_coef_.ndim == 1:
                return both[0], both[1]
            right = both[list(range(n, 2 * n))]
            return both[list(range(n))], right.rename(columns={n + k: k for k in range(n)})
        if self.dual_coef_.ndim == 1:
            return both[:, 0], both[:, 1]
        return both[:, :n], both[:, n:]

    def _keep_uncertainty(self, found: Uncertainty | None) -> None:
        """Keep what a fit has found, in the place of what an earlier one has."""
        for name in _KEPT:
            self.__dict__.pop(name, None)
        if found is None:
            return
        one = self.dual_coef_.ndim == 1
        for name, value in (("prior_variance_", found.prior_variance), ("noise_variance_", found.noise_variance)):
            setattr(self, name, float(value[0]) if one else value)
        self.interval_scores_ = found.scores[:, 0] if one else found.scores
        for name, array in (("posterior_factor_", found.factor), ("center_weight_", found.center_weight)):
            if array is not None:
                setattr(self, name, array)


def _end(predicted: Any, spread: Any, reach: Array) -> Any:
    """Return ``predicted + reach * spread``, target by target, in the kind of array that they are."""
    if hasattr(predicted, "map_partitions"):  # a data frame of Dask: each part where it is
        return predicted.map_partitions(_end_of_part, spread, reach)
    if is_torch_array(spread):
        return predicted + spread * spread.new_tensor(reach)
    return in_finite_numbers("ends", lambda: predicted + spread * np.asarray(reach, dtype=spread.dtype))


def _end_of_part(predicted: Any, spread: Any, reach: Array) -> Any:
    return predicted + spread * reach
