"""`HyperKernelClassifier`: the classification estimator."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from typing import Any, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from hkrr._base.checks import check_choice
from hkrr._base.linear_algebra import Array, project
from hkrr._base.threads import count_threads
from hkrr._storage.checkpoint import FitInterrupted, best_model_so_far, restored_on_failure
from hkrr.estimators.classification.labels import check_labels, class_codes, class_weights, merge_copies_within_classes
from hkrr.estimators.classification.losses import LOSSES, Task
from hkrr.estimators.classification.probability_calibration import (
    expand_scores,
    probabilities,
    probability_jacobian,
)
from hkrr.estimators.classification.summary import summarize_classifier
from hkrr.estimators.fitted.diagnostics import Diagnostics
from hkrr.estimators.fitted.importance import FeatureImportancesMixin
from hkrr.estimators.fitted.summary import Summary, SummaryMixin
from hkrr.estimators.ridge_cv import HyperKernelRidgeCV
from hkrr.kernels import Kernel
from hkrr.rows.open_inputs import array_rows, is_external
from hkrr.rows.weights import check_lengths, check_numbers, check_weights


class HyperKernelClassifier(
    FeatureImportancesMixin,
    SummaryMixin,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    ClassifierMixin,
    BaseEstimator,
):
    """Classification on a learned linear map of the inputs, with calibrated probabilities.

    First, a `HyperKernelRidgeCV` is fitted, with class codes as targets. Class codes are the classes encoded as
    numbers: -1 and 1 for two classes, and otherwise a column of 0 and 1 for each class. This regression,
    ``regressor_``, finds a map, a kernel and the number of directions. Then the scores of the classes are fitted,
    depending on the loss:

    - ``loss="logistic"``: the map is refined and the scores f(x) = g(Bx) are fitted by minimizing the penalized log
      loss ``sum_i w_i loss(y_i, f(x_i)) + (nu / 2) |f|^2``. The minimization is repeated for decreasing values of the
      penalty nu; see `hkrr.estimators.classification.logistic_objective`. The probabilities are ``softmax(f)``.
    - ``loss="squared"``: the scores are the outputs of ``regressor_``. A link function maps the scores to
      probabilities.

    The penalty nu and the parameters of the link (slope, offsets and softness) are chosen on held-out rows; see
    `hkrr.estimators.classification.probability_calibration`. The scores of the held-out rows are computed by models
    fitted without these rows. However, these models take their map (with "logistic", their initial map) from
    ``regressor_``, which was fitted to all rows. The regression is repeated without the held-out rows only if its map
    is full (any d x D matrix) and there are at least 40 rows, but fewer than 30 rows per entry of the map. With
    ``loss="squared"`` and more than 20,000 rows, training rows are used instead of held-out rows.

    Parameters
    ----------
    n_components : "auto", int or list of int, default="auto"
        Numbers of directions to choose from, as in `HyperKernelRidgeCV`. A fit with a single number takes slightly more
        than half as long as a fit with "auto".
    loss : {"logistic", "squared"}, default="logistic"
        Loss function of the scores and, with "logistic", of the map. "squared" is faster: for 300 to 1,000 rows it
        takes 6 to 13 seconds on one core, and "logistic" takes 7 to 20 seconds. But "squared" is less accurate if the
        map has many parameters relative to the number of rows.
    class_weight : "balanced", dict or None, default=None
        Weights of the classes, by which `sample_weight` is multiplied. None means that all classes have the weight 1.
        The predicted probabilities refer to the weighted data.
    kernel : str or Kernel, default="gaussian"
        Kernel, as in `HyperKernelRidgeCV`.
    n_init : int, default=4
        Number of random starting maps, as in `HyperKernelRidgeCV`.
    refit : "full" or int, default="full"
        Number of centers of ``regressor_``, as in `HyperKernelRidgeCV`. With ``loss="logistic"``, the scores have at
        most 2,000 centers.
    time_limit : float or None, default=None
        Approximate time limit of the fit in seconds. None means no limit. ``regressor_`` gets half of this time.
    scale_features : bool, default=True
        Whether to standardize the columns, as in `HyperKernelRidgeCV`.
    block_size : "auto" or int, default="auto"
        Number of rows in a block, as in `HyperKernelRidgeCV`.
    device : str, torch.device or None, default=None
        Device of ``regressor_``, as in `HyperKernelRidgeCV`. The logistic loss is always computed on the CPU.
    n_jobs : int or None, default=None
        Number of parallel jobs, as in `HyperKernelRidgeCV`.
    verbose : int, default=0
        If above 0, the progress of the fit is shown.
    random_state : int, RandomState or None, default=None
        Seed, as in `HyperKernelRidgeCV`.
    checkpoint : path or None, default=None
        Checkpoint file of ``regressor_``, as in `HyperKernelRidgeCV`. The fit of the scores is not stored, so a resumed
        fit repeats it.
    checkpoint_every : float, default=60.0
        Seconds between two writes of the checkpoint.

    Attributes
    ----------
    classes_ : array (n_classes,)
        Sorted labels of the rows with positive weight.
    class_count_, class_prior_ : arrays (n_classes,)
        Number of rows with positive weight in each class, and the fraction of the total weight that belongs to each
        class. The weights include `class_weight`.
    components_, map_, singular_values_, gamma_, kernel_, x_offset_, centers_
        Map, kernel and centers, as in `HyperKernelRidge`.
    dual_coef_ : array (n_centers,) or (n_centers, n_classes)
        Coefficients of the decision function.
    intercept_ : float or array (n_classes,)
        Intercept of the decision function. The decision function is ``kernel_((X - x_offset_) @ components_.T,
        (centers_ - x_offset_) @ components_.T) @ dual_coef_ + intercept_``.
    softness_ : float or None
        Softness of the link with ``loss="squared"``, otherwise None.
    nu_ : float or None
        Penalty chosen with ``loss="logistic"``, otherwise None.
    held_out_log_loss_, held_out_accuracy_ : float
        Log loss and accuracy of the calibrated probabilities on the held-out rows that were used to choose nu and the
        link. With ``loss="squared"`` and more than 20,000 rows, these are training rows.
    map_shape_ : {"full", "diagonal", "identity"}
        Shape of the map, as in `HyperKernelRidgeCV`.
    feature_importances_ : array (n_features,)
        Effect of each column on the probabilities; see `hkrr.estimators.fitted.importance`.
    regressor_ : HyperKernelRidgeCV
        The regression with the class codes as targets. With ``loss="squared"``, its map is the map of the classifier.
        With ``loss="logistic"``, its map is only the initial map.
    n_components_ : int
        Number of directions.
    path_, diagnostics_
        Table of the optimization runs and diagnostics of ``regressor_``, as in `HyperKernelRidgeCV`.

    Examples
    --------
    >>> from hkrr import HyperKernelClassifier
    >>> from hkrr.datasets import make_mim_classes
    >>> data = make_mim_classes(500, n_features=5, n_components=1, random_state=0)
    >>> model = HyperKernelClassifier(1, n_init=1, random_state=0).fit(data.X[:200], data.y[:200])
    >>> model.predict_proba(data.X[200:]).shape, model.score(data.X[200:], data.y[200:]) > 0.8
    ((300, 2), True)
    """

    def __init__(
        self,
        n_components: Literal["auto"] | int | Sequence[int] | np.ndarray = "auto",
        *,
        loss: Literal["logistic", "squared"] = "logistic",
        class_weight: Literal["balanced"] | dict[Any, float] | None = None,
        kernel: str | Kernel = "gaussian",
        n_init: int = 4,
        refit: Literal["full"] | int = "full",
        time_limit: float | None = None,
        scale_features: bool = True,
        block_size: Literal["auto"] | int = "auto",
        device: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
        random_state: Any = None,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: float = 60.0,
    ) -> None:
        self.n_components = n_components
        self.loss = loss
        self.class_weight = class_weight
        self.kernel = kernel
        self.n_init = n_init
        self.refit = refit
        self.time_limit = time_limit
        self.scale_features = scale_features
        self.block_size = block_size
        self.device = device
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the map, the scores and the probabilities.

        Parameters
        ----------
        X : array or data frame (n_samples, n_features)
            Training rows.
        y : array (n_samples,)
            Class labels: strings, integers or booleans.
        sample_weight : array (n_samples,) or None, default=None
            Weights of the rows. None means that all rows have the weight 1. Rows of weight zero are removed. Classes
            that have only such rows are removed too.

        Returns
        -------
        self
        """
        check_choice("loss", self.loss, tuple(LOSSES))
        if is_external(X):
            raise ValueError(
                "X must be an array or a data frame in memory: a classifier does not accept tensors, files, functions "
                "or Dask collections"
            )
        # NumPy's warnings are suppressed, because values that are not finite raise a FitError or a ValueError.
        with restored_on_failure(self), np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            return self._fit(X, y, sample_weight)

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> Self:
        began = time.perf_counter()
        check_lengths(X, y, sample_weight)
        check_numbers(X, None)
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32], ensure_min_samples=2)
        y, weight = check_labels(y), check_weights(sample_weight, X)
        if weight is not None and np.any(weight == 0):
            X, y, weight = X[weight > 0], y[weight > 0], weight[weight > 0]
        classes, index = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            only = repr(classes.tolist()[0])
            raise ValueError(f"y has 1 class, {only}, among the rows of positive weight; at least 2 classes are needed")
        weight = class_weights(self.class_weight, y, weight)
        self.class_count_, totals = np.bincount(index), np.bincount(index, weight)
        self.class_prior_ = totals / np.sum(totals)
        X, index, weight = merge_copies_within_classes(X, index, weight)
        regressor = self._regressor()
        deadline = math.inf if self.time_limit is None else began + self.time_limit
        try:
            regressor.fit(X, class_codes(index, len(classes)), weight)
        except KeyboardInterrupt as stop:
            if best_model_so_far(stop) is not regressor:
                raise
            self._finish(Task(regressor, X, index, weight, len(classes), deadline=0.0), classes)
            raise FitInterrupted(self, stop) from None
        return self._finish(Task(regressor, X, index, weight, len(classes), deadline), classes)

    def _regressor(self) -> HyperKernelRidgeCV:
        settings = {k: v for k, v in self.get_params(deep=False).items() if k not in ("loss", "class_weight")}
        if self.time_limit is not None and isinstance(self.time_limit, int | float):
            settings["time_limit"] = self.time_limit / 2
        return HyperKernelRidgeCV(**settings, truncate=False)

    def _finish(self, task: Task, classes: Any) -> Self:
        """Fit and calibrate the scores, and set the fitted attributes."""
        found = LOSSES[self.loss](task)
        self.regressor_, self.classes_ = task.regressor, classes
        function, one = found.function, len(classes) == 2
        self.map_, self.singular_values_ = function.B, found.singular_values
        self.kernel_, self.gamma_ = function.kernel, function.kernel.scale
        self.x_offset_, self.centers_ = function.x_offset, function.centers
        self.dual_coef_ = function.alpha[:, 0] if one else function.alpha
        self.intercept_ = float(np.asarray(function.intercept)[0]) if one else function.intercept
        self.softness_, self.nu_, self.map_shape_ = found.softness, found.nu, found.shape.value
        self.held_out_log_loss_, self.held_out_accuracy_ = found.held_out.log_loss, found.held_out.accuracy
        return self

    @property
    def n_components_(self) -> int:
        """Number of directions."""
        return len(self.map_)

    @property
    def path_(self) -> dict[str, list[Any]]:
        """Table of the optimization runs of ``regressor_``, the regression with the class codes as targets."""
        path: dict[str, list[Any]] = self.regressor_.path_
        return path

    @property
    def diagnostics_(self) -> Diagnostics:
        """Diagnostics of ``regressor_``, the regression with the class codes as targets."""
        return self.regressor_.diagnostics_

    def decision_function(self, X: Any) -> Array:
        """Return the scores of the classes.

        Two classes have a single score, which is positive if the second class is predicted.

        Parameters
        ----------
        X : array or data frame (n_samples, n_features)
            Rows to classify.

        Returns
        -------
        array (n_samples,) or (n_samples, n_classes)
        """
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=[np.float64, np.float32])
        no_targets, fitted = np.empty((len(X), 0)), self.regressor_
        threads = count_threads(fitted.n_jobs)
        rows = array_rows(X, no_targets, None, device=self.device, block_size=fitted.block_size, n_threads=threads)
        with np.errstate(over="ignore", invalid="ignore"):
            scores = self._expansion.of_rows(rows)
        if not np.all(np.isfinite(scores)):
            raise ValueError(
                "the scores contain NaN or infinity: check that X has the same units as the training rows, and that "
                "the model file is not damaged"
            )
        return scores

    def predict_proba(self, X: Any) -> Array:
        """Return the probability of each class, in the order of ``classes_``.

        Parameters
        ----------
        X : array or data frame (n_samples, n_features)
            Rows, as in `decision_function`.

        Returns
        -------
        array (n_samples, n_classes)
        """
        scores = self.decision_function(X)
        return self._apply_link(scores.reshape(len(scores), -1))

    def _apply_link(self, outputs: Array) -> Array:
        return probabilities(expand_scores(outputs, self.softness_ is not None), self.softness_)

    def _link_jacobian(self, outputs: Array) -> Array:
        jacobian = probability_jacobian(expand_scores(outputs, self.softness_ is not None), self.softness_)
        return jacobian if outputs.shape[1] > 1 else jacobian @ np.array([[-0.5], [0.5]])

    def _make_summary(self, columns: list[str] | None = None) -> Summary:
        return summarize_classifier(self, columns)

    def predict(self, X: Any) -> Array:
        """Return the most probable label of each row. Ties are resolved in favor of the first label in ``classes_``.

        Parameters
        ----------
        X : array or data frame (n_samples, n_features)
            Rows, as in `decision_function`.

        Returns
        -------
        array (n_samples,)
        """
        most_probable = np.argmax(self.predict_proba(X), axis=1)
        return self.classes_[most_probable]

    def transform(self, X: Any) -> Array:
        """Return the latent coordinates ``X @ components_.T``.

        Parameters
        ----------
        X : array or data frame (n_samples, n_features)
            Rows, as in `decision_function`.

        Returns
        -------
        array (n_samples, n_components)
        """
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=[np.float64, np.float32])
        return project(X, self.map_.astype(X.dtype, copy=False))
