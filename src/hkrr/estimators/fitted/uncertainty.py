"""`UncertaintyMixin`: the methods of fitted models for standard deviations and prediction intervals."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted

from hkrr._base.checks import require_finite
from hkrr._base.linear_algebra import Array, is_torch_array
from hkrr.estimators.fitted.conformal import conformal_quantile
from hkrr.rows import Rows
from hkrr.rows.open_inputs import is_external

_NO_UNCERTAINTY = (
    "this model has no uncertainty estimate: it was saved by an earlier version of hkrr, its fit was interrupted, or "
    "its linear system could not be factorized again. "
)


class UncertaintyMixin:
    """Mixin for fitted regressors that adds `predict_interval`, `calibrate`, and the standard deviations of `predict`.

    A regressor implements `_mean_and_std_of_rows`. This method takes a `hkrr.rows.Rows` and returns an array with
    2 n_targets columns: the predictions of all targets, followed by their standard deviations.
    """

    prior_variance_: Any
    noise_variance_: Any
    interval_scores_: Array
    _apply: Callable[..., Any]
    _mean_and_std_of_rows: Callable[[Rows], Array]

    @property
    @abstractmethod
    def _output_shape(self) -> tuple[int, ...]:
        """Shape of the prediction of one row: () for a single target, or (n_targets,)."""

    def predict_interval(self, X: Any, coverage: float = 0.9) -> tuple[Any, Any]:
        """Return prediction intervals, which contain a new observation with a given probability.

        The interval has the ends ``f(x) - q sigma(x)`` and ``f(x) + q sigma(x)``. Here sigma(x) is the standard
        deviation that ``predict(X, return_std=True)`` returns. The factor q is a quantile of the absolute leave-one-out
        errors of the training rows. These errors are divided by sigma and corrected to first order for the learned map
        (see `hkrr.estimators.fitted.conformal`). After `calibrate`, q is a quantile of the absolute errors on the
        calibration rows, divided by sigma. The coverage holds on average over random training rows and new rows. For a
        single x, the probability can differ. The ends of the intervals are not truncated, because noisy observations
        can lie outside the range of the predictions.

        Parameters
        ----------
        X : array, data frame, tensor, path(s), callable or Dask collection
            As in `predict`.
        coverage : float, default=0.9
            Probability, between 0 and 1. A higher coverage needs more training rows: at least 9 rows for 0.9, and at
            least 99 rows for 0.99.

        Returns
        -------
        lower, upper : array, tensor or Dask collection
            Ends of the intervals, of the same type and shape as the predictions. With several targets, each target has
            its own intervals with this coverage.

        Examples
        --------
        >>> from hkrr import HyperKernelRidge
        >>> from hkrr.datasets import make_mim_sines
        >>> data = make_mim_sines(700, n_features=10, n_components=2, random_state=0)
        >>> model = HyperKernelRidge(criterion="evidence", reg_lambda="auto", random_state=0)
        >>> model = model.fit(data.X[:300], data.y[:300])
        >>> lower, upper = model.predict_interval(data.X[300:], coverage=0.9)
        >>> inside = (lower <= data.y[300:]) & (data.y[300:] <= upper)
        >>> bool(0.85 < inside.mean() < 0.95)
        True
        """
        check_is_fitted(self)
        if isinstance(coverage, bool) or not isinstance(coverage, int | float | np.number) or not 0 < coverage < 1:
            raise ValueError(f"coverage must be a number between 0 and 1, such as 0.9; got {coverage!r}")
        if not hasattr(self, "interval_scores_"):
            remedy = "Fit the model again, or call calibrate(X, y) with rows that were not used in the fit."
            raise ValueError(_NO_UNCERTAINTY + remedy)
        factor = conformal_quantile(self.interval_scores_, float(coverage))
        predicted, std = self._split_columns(self._mean_and_std_columns(X))
        return _add_multiple(predicted, std, -factor), _add_multiple(predicted, std, factor)

    def calibrate(self, X: Any, y: Any) -> Self:
        """Calibrate the prediction intervals on rows that were not used in the fit (split conformal prediction).

        Suppose that new rows come from the same distribution as the n calibration rows. Then, on average over
        calibration sets, the intervals contain at least the requested fraction of the new rows, even if the model is
        poor. This average is exactly ``ceil((n + 1) coverage) / (n + 1)`` if no scores are equal. Calibration replaces
        the scores that `fit` computed. It does not change predictions.

        Parameters
        ----------
        X : array, data frame or tensor (n_samples, n_features)
            Calibration rows.
        y : array or tensor (n_samples,) or (n_samples, n_targets)
            Targets of the calibration rows.

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
        if is_external(X) or isinstance(y, str):
            raise ValueError(
                "X and y of calibrate must be arrays, data frames or tensors: load the calibration rows into memory"
            )
        y = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
        check_consistent_length(X, y)
        predicted, std = self._split_columns(self._mean_and_std_columns(X).astype(np.float64))
        if y.shape != predicted.shape:
            raise ValueError(
                f"y has shape {y.shape}, but the predictions have shape {predicted.shape}: give the same targets as in "
                "the fit"
            )
        self.interval_scores_ = np.sort(np.abs(y - predicted) / std, axis=0)
        return self

    def _mean_and_std(self, X: Any) -> tuple[Any, Any]:
        """Return the predictions, and the standard deviations of new observations."""
        if not hasattr(self, "noise_variance_"):
            raise ValueError(_NO_UNCERTAINTY + "Fit the model again to use return_std=True.")
        predicted, std = self._split_columns(self._mean_and_std_columns(X))
        varies = np.asarray(self.prior_variance_) > 0
        if not np.all(varies):
            # The standard deviation of a constant target is zero, but `_mean_and_std_columns` returns 1 for it.
            std = std * (varies if varies.ndim else float(varies))
        return predicted, std

    def _mean_and_std_columns(self, X: Any) -> Any:
        """Return 2 n_targets columns: the predictions of all targets, followed by their standard deviations.

        The standard deviations are those of new observations. The widths of the intervals are proportional to these
        numbers. For a constant target, and for a model without an uncertainty estimate, they are replaced by 1.
        """
        return self._apply(X, self._mean_and_std_columns, (2 * self._n_targets,), self._mean_and_std_of_rows)

    @property
    def _n_targets(self) -> int:
        return math.prod(self._output_shape)

    def _split_columns(self, both: Any) -> tuple[Any, Any]:
        """Return the left and the right half of the columns, each in the shape of predictions."""
        n = self._n_targets
        if hasattr(both, "columns"):
            # This is a Dask data frame.
            if not self._output_shape:
                return both[0], both[1]
            right = both[list(range(n, 2 * n))]
            return both[list(range(n))], right.rename(columns={n + k: k for k in range(n)})
        if not self._output_shape:
            return both[:, 0], both[:, 1]
        return both[:, :n], both[:, n:]


def _add_multiple(predicted: Any, std: Any, factor: Array) -> Any:
    """Return ``predicted + factor * std`` in the array type of the inputs. `factor` has one entry for each target."""
    if hasattr(predicted, "map_partitions"):
        # These are Dask data frames. Each partition is computed on its worker.
        return predicted.map_partitions(_add_multiple_to_partition, std, factor)
    if is_torch_array(std):
        return predicted + std * std.new_tensor(factor)
    return require_finite("ends of the intervals", lambda: predicted + std * np.asarray(factor, dtype=std.dtype))


def _add_multiple_to_partition(predicted: Any, std: Any, factor: Array) -> Any:
    return predicted + std * factor
