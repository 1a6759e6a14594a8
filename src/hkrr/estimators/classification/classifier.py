"""HyperKernelClassifier: a regression on codes of the classes finds the map, and a link makes probabilities of it."""

from __future__ import annotations

import math
import os
import time
from typing import Any, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from hkrr._arrays import Array
from hkrr._validation import check_choice
from hkrr.checkpoints import kept_by, left_as_it_was
from hkrr.classification.calibration import of_all_classes, probabilities, slopes_of_probabilities
from hkrr.classification.classes import class_weights, codes_of, each_once, labels_of
from hkrr.classification.links import LINKS, Task
from hkrr.classification.score_function import ScoreFunction
from hkrr.classification.summary import summarise
from hkrr.diagnostics import Diagnostics
from hkrr.importance import FeatureImportances
from hkrr.kernels import Kernel
from hkrr.opening import is_elsewhere
from hkrr.samples import check_lengths, check_numbers, check_weights
from hkrr.selection import HyperKernelRidgeCV
from hkrr.summary import Summarised, Summary


class HyperKernelClassifier(
    FeatureImportances, Summarised, ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClassifierMixin, BaseEstimator
):
    """Classification on a learned linear map of the inputs, with probabilities that are calibrated.

    A `HyperKernelRidgeCV` on codes of the classes (-1 and 1 for two, a column of 0 and 1 for each of more) finds a map,
    a kernel and the number of directions. Then

    - ``loss="logistic"``: the map is polished, and the scores are fitted, by the multinomial log loss
      ``sum_i w_i loss(y_i, f(x_i)) + (nu / 2) |f|^2``, f = g(Bx), down a path of nu; see
      `hkrr.classification.logistic`. Probabilities are ``softmax(f)``.
    - ``loss="squared"``: the regression's outputs are the scores, and a link with soft ends makes them probabilities.

    What is to be chosen (nu; slope, offsets and softness of the links) is chosen by rows held out, of which map and
    scores knew nothing: see `hkrr.classification.calibration`.

    Parameters
    ----------
    n_components : "auto", int or list of int, default="auto"
        Numbers of directions to choose from, as in `HyperKernelRidgeCV`.
    loss : {"logistic", "squared"}, default="logistic"
        What the scores, and with "logistic" the map, are fitted by. "squared" takes less time (6 to 13 seconds of one
        core for 300 to 1,000 rows, against 7 to 20), and with few rows for each parameter of the map it is less
        accurate. A number of directions that is given, instead of "auto", saves nearly half.
    class_weight : "balanced", dict or None, default=None
        Weights of the classes, which multiply those of the rows; probabilities are those of the data so weighted.
    kernel, n_init, refit, scale_features, block_size, device, n_jobs, verbose, random_state
        As in `HyperKernelRidgeCV`. The logistic loss is computed on the processor, with 2,000 centers at most.
    time_limit : float or None, default=None
        About how many seconds the fit may take; half of them are the regression's.
    checkpoint, checkpoint_every
        As in `HyperKernelRidgeCV`, for the regression on all rows; what comes after it is computed anew.

    Attributes
    ----------
    classes_ : array (n_classes,)
        The labels that rows of positive weight have, sorted.
    class_count_, class_prior_ : arrays (n_classes,)
        How many rows of positive weight each class has, and its share of the weights, `class_weight` included.
    components_, singular_values_, gamma_, kernel_, x_offset_, centers_
        The map, the kernel and the centers, as in `HyperKernelRidge`.
    dual_coef_ : array (n_centers,) or (n_centers, n_classes)
    intercept_ : float or array (n_classes,)
        The decision function is ``kernel_((X - x_offset_) @ components_.T, (centers_ - x_offset_) @ components_.T) @
        dual_coef_ + intercept_``.
    softness_ : float or None
        Of the link of the squared loss.
    nu_ : float or None
        Chosen for the logistic loss.
    held_out_log_loss_, held_out_accuracy_ : float
        Of the calibrated probabilities, on the rows held out that nu and the link were chosen by.
    map_shape_ : {"full", "diagonal", "identity"}
        As in `HyperKernelRidgeCV`, of this map.
    feature_importances_ : array (n_features,)
        How far each column moves the probabilities: `hkrr.importance`.
    regressor_ : HyperKernelRidgeCV
        The regression on the codes, which the map began from; its map is this one's with ``loss="squared"``.
    n_components_, path_, diagnostics_
        As in `HyperKernelRidgeCV`: the regression's.

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
        n_components: Any = "auto",
        *,
        loss: Literal["logistic", "squared"] = "logistic",
        class_weight: Any = None,
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
        """Learn the map, the scores and the probabilities.

        Parameters
        ----------
        X : array or data frame (n_samples, n_features)
        y : array (n_samples,)
            Labels of any kind that can be sorted: texts, whole numbers, truths.
        sample_weight : array (n_samples,) or None
            A row of weight zero is as if it were not there, and so is a class that has no others.

        Returns
        -------
        self
        """
        check_choice("loss", self.loss, tuple(LINKS))
        if is_elsewhere(X):
            raise ValueError("X must be an array or a data frame in memory; a classifier takes no other data")
        with left_as_it_was(self), np.errstate(over="ignore", divide="ignore", invalid="ignore"):  # told of in words
            return self._fit(X, y, sample_weight)

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> Self:
        began = time.perf_counter()
        check_lengths(X, y, sample_weight)
        check_numbers(X, None)
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32], ensure_min_samples=2)
        y, weight = labels_of(y), check_weights(sample_weight, X)
        if weight is not None and np.any(weight == 0):
            X, y, weight = X[weight > 0], y[weight > 0], weight[weight > 0]
        classes, index = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            only = repr(classes.tolist()[0])
            raise ValueError(f"y has 1 class, {only}, among the rows of positive weight; a classifier needs 2 classes")
        weight = class_weights(self.class_weight, y, weight)
        self.class_count_, totals = np.bincount(index), np.bincount(index, weight)
        self.class_prior_ = totals / np.sum(totals)
        X, index, weight = each_once(X, index, weight)
        regressor = self._regressor()
        deadline = math.inf if self.time_limit is None else began + self.time_limit
        try:
            regressor.fit(X, codes_of(index, len(classes)), weight)
        except KeyboardInterrupt as stop:
            if kept_by(stop) is regressor:
                self._finish(Task(regressor, X, index, weight, len(classes), deadline=0.0), classes)
                vars(stop)["model"] = self
            raise
        return self._finish(Task(regressor, X, index, weight, len(classes), deadline), classes)

    def _regressor(self) -> HyperKernelRidgeCV:
        settings = {k: v for k, v in self.get_params(deep=False).items() if k not in ("loss", "class_weight")}
        if self.time_limit is not None and isinstance(self.time_limit, int | float):
            settings["time_limit"] = self.time_limit / 2
        return HyperKernelRidgeCV(**settings, truncate=False)

    def _finish(self, task: Task, classes: Any) -> Self:
        """Fit and calibrate the scores, and keep all that has been found."""
        found = LINKS[self.loss](task)
        self.regressor_, self.classes_ = task.regressor, classes
        function, one = found.function, len(classes) == 2
        self.components_, self.singular_values_ = function.components, found.singular_values
        self.kernel_, self.gamma_ = function.kernel, function.kernel.scale
        self.x_offset_, self.centers_ = function.x_offset, function.centers
        self.dual_coef_ = function.alpha[:, 0] if one else function.alpha
        self.intercept_ = float(function.intercept[0]) if one else function.intercept
        self.softness_, self.nu_, self.map_shape_ = found.softness, found.nu, found.shape
        self.held_out_log_loss_, self.held_out_accuracy_ = found.held_out.log_loss, found.held_out.accuracy
        return self

    @property
    def n_components_(self) -> int:
        """Number of directions."""
        return int(self.components_.shape[0])

    @property
    def path_(self) -> dict[str, list[Any]]:
        """The story of the search for the regression."""
        path: dict[str, list[Any]] = self.regressor_.path_
        return path

    @property
    def diagnostics_(self) -> Diagnostics:
        """The health of the regression."""
        return self.regressor_.diagnostics_

    def decision_function(self, X: Any) -> Array:
        """Return the scores: of class 1 for two classes, above 0 where that is predicted; otherwise of every class.

        Parameters
        ----------
        X : array or data frame (n_samples, n_features)

        Returns
        -------
        array (n_samples,) or (n_samples, n_classes)
        """
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=[np.float64, np.float32])
        rows = self.regressor_._in_blocks(X, np.empty((len(X), 0)), None, self.device)
        parts = self.components_, self.kernel_, self.x_offset_, self.centers_, self.dual_coef_
        scores = ScoreFunction(*parts, np.asarray(self.intercept_)).of(rows)
        if not np.all(np.isfinite(scores)):
            raise ValueError("the scores hold NaN or infinity: X is far from what was fitted, or the model is damaged")
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def predict_proba(self, X: Any) -> Array:
        """Return the probability of each class, in the order of ``classes_``.

        Parameters
        ----------
        X : as in `decision_function`

        Returns
        -------
        array (n_samples, n_classes)
        """
        scores = self.decision_function(X)
        return self._linked(scores.reshape(len(scores), -1))

    def _linked(self, outputs: Array) -> Array:
        return probabilities(of_all_classes(outputs, self.softness_ is not None), self.softness_)

    def _link_slopes(self, outputs: Array) -> Array:
        slopes = slopes_of_probabilities(of_all_classes(outputs, self.softness_ is not None), self.softness_)
        return slopes if outputs.shape[1] > 1 else slopes @ np.array([[-0.5], [0.5]])

    def _page(self) -> Summary:
        return summarise(self)

    def predict(self, X: Any) -> Array:
        """Return the most probable label; of those that are equally so, the first in ``classes_``.

        Parameters
        ----------
        X : as in `decision_function`

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
        X : as in `decision_function`

        Returns
        -------
        array (n_samples, n_components)
        """
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=[np.float64, np.float32])
        return X @ self.components_.astype(X.dtype, copy=False).T

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[0])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
