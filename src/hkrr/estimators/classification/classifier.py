"""`HyperKernelClassifier`: the classification estimator."""

from __future__ import annotations

import copy
import math
import os
import time
from collections.abc import Iterable
from typing import Any, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from hkrr._base.checks import require_finite
from hkrr._base.linear_algebra import Array
from hkrr._maps import ShapeName
from hkrr._storage.checkpoint import FitInterrupted
from hkrr.estimators.classification.class_link import ClassLink, fit_link
from hkrr.estimators.classification.class_scores import ClassScores
from hkrr.estimators.classification.labels import check_labels, class_weights, one_hot
from hkrr.estimators.classification.logistic_refinement import RefinementProblem, refine
from hkrr.estimators.classification.summary import summarize_classifier
from hkrr.estimators.fitted.base import fitting
from hkrr.estimators.fitted.diagnostics import Diagnostics, fit_warnings_silenced
from hkrr.estimators.fitted.fitted_attributes import transformed_columns
from hkrr.estimators.fitted.summary import Summary, SummaryMixin
from hkrr.estimators.ridge_cv import HyperKernelRidgeCV
from hkrr.estimators.search.progress import SearchCallback
from hkrr.estimators.search.search_and_refit import LeftOutPredictions
from hkrr.rows.open_inputs import is_external
from hkrr.rows.weights import (
    any_identical,
    check_lengths,
    check_numbers,
    check_weights,
    merge_identical,
    normalize_weights,
    without_zero_weights,
)

# A map with few directions is refined by the logistic loss if there are at most this many rows. With more rows, the
# refinement takes long and gains little.
_MOST_REFINED_ROWS = 2_000
# The refinement starts from a member whose share of the weights is at least this number, if there is one.
_LEAST_SHARE = 0.05
# Share of the time limit for the ensemble, if a map may be refined afterwards.
_SHARE_OF_SCORES = 0.7


class HyperKernelClassifier(
    SummaryMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClassifierMixin, BaseEstimator
):
    """Classification by an ensemble of kernel expansions on learned maps, with calibrated probabilities.

    The models of the ensemble are regressions on the indicators of the classes (1 in the rows of a class, 0 elsewhere).
    They differ in their kernels and maps, and are selected and fitted as in `HyperKernelEnsemble`. All classes share
    one kernel matrix, so that the evidence and the leave-one-out predictions of a model have closed forms. A link
    function maps the scores of the models to probabilities. Its weights and offsets minimize the log loss of the
    leave-one-out predictions, plus a price for the parameters of the maps.

    With at most 2,000 rows, a map with few directions is also refined by the logistic loss. If the log loss of held-out
    rows is then smaller, the refined model is the only member.

    Parameters
    ----------
    class_weight : "balanced", dict or None, default=None
        Weights of the classes. `sample_weight` is multiplied by these weights. None means that all classes have the
        weight 1. The predicted probabilities refer to the weighted data.
    n_init, refit, time_limit, scale_features, block_size, device, n_jobs, verbose, random_state
        As in `HyperKernelEnsemble`.
    checkpoint, checkpoint_every, callbacks
        As in `HyperKernelEnsemble`. The refinement by the logistic loss is not stored, so a resumed fit repeats it.

    Attributes
    ----------
    classes_ : array (n_classes,)
        Sorted labels of the rows with positive weight.
    class_count_, class_prior_ : arrays (n_classes,)
        Number of rows with positive weight in each class, and the fraction of the total weight that belongs to each
        class. The weights include `class_weight`.
    members_ : list of HyperKernelRidgeCV
        The fitted models, largest weight first. Their targets are the indicators of the classes.
    weights_ : array (n_members,)
        The weights of the members in the link function.
    offsets_ : array (n_classes,)
        The offsets of the classes in the link function.
    refined_ : bool
        Whether the map was refined by the logistic loss. If True, the scores of the only member are logarithms of
        probabilities. If False, the logarithms of the scores are taken.
    held_out_log_loss_, held_out_accuracy_ : float
        Log loss and accuracy of the leave-one-out predictions from which the link was computed. The maps were learned
        from all rows, so the values are optimistic. If `refined_` is True, they are computed from held-out rows.
    scores_ : HyperKernelEnsemble
        The ensemble of the members.
    components_, map_shape_, n_components_
        Map of the first member, its shape and its number of directions, as in `HyperKernelRidgeCV`.
    feature_importances_ : array (n_features,)
        Importances of the columns for the scores, averaged over the members with their weights.
    path_, diagnostics_
        Table of the optimization runs, and diagnostics of the first member, as in `HyperKernelEnsemble`.

    Examples
    --------
    >>> from hkrr import HyperKernelClassifier
    >>> from hkrr.datasets import make_mim_classes
    >>> data = make_mim_classes(500, n_features=5, n_components=1, random_state=0)
    >>> model = HyperKernelClassifier(random_state=0).fit(data.X[:200], data.y[:200])
    >>> model.predict_proba(data.X[200:]).shape, model.score(data.X[200:], data.y[200:]) > 0.8
    ((300, 2), True)
    """

    def __init__(
        self,
        *,
        class_weight: Literal["balanced"] | dict[Any, float] | None = None,
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
        callbacks: Iterable[SearchCallback] | None = None,
    ) -> None:
        self.class_weight = class_weight
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
        self.callbacks = callbacks

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the members and the link function.

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
        if is_external(X):
            raise ValueError(
                "X must be an array or a data frame in memory: a classifier does not accept tensors, files, functions "
                "or Dask collections"
            )
        with fitting(self):
            return self._fit(X, y, sample_weight)

    def check_parameters(self, n_features: int) -> None:
        """Raise ValueError if a parameter is invalid."""
        self._unfitted_scores().check_parameters(n_features)

    def _unfitted_scores(self) -> ClassScores:
        settings = {name: value for name, value in self.get_params(deep=False).items() if name != "class_weight"}
        return ClassScores(**settings)

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> Self:
        began = time.perf_counter()
        check_lengths(X, y, sample_weight)
        check_numbers(X, None)
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32], ensure_min_samples=2)
        y, weight = check_labels(y), check_weights(sample_weight, X)
        X, y, weight = without_zero_weights(X, y, weight)
        self.classes_, index = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            only = repr(self.classes_.tolist()[0])
            raise ValueError(f"y has 1 class, {only}, among the rows of positive weight; at least 2 classes are needed")
        weight = class_weights(self.class_weight, y, weight)
        self.class_count_, totals = np.bincount(index), np.bincount(index, weight)
        self.class_prior_ = totals / np.sum(totals)
        self.check_parameters(X.shape[1])
        scores, limit, labels = self._unfitted_scores(), self.time_limit, one_hot(index, len(self.classes_))
        deadline = math.inf if limit is None else began + limit
        if limit is not None and len(X) <= _MOST_REFINED_ROWS:
            scores.time_limit = _SHARE_OF_SCORES * limit
        left_out, stopped = scores.fit_members(X, labels, weight)
        scores.time_limit = limit
        found = fit_link(_training_predictions(scores.members_, X, labels, weight) if left_out is None else left_out)
        self.refined_ = False
        if stopped is None and len(X) <= _MOST_REFINED_ROWS and time.perf_counter() < deadline:
            start = _few_directions(scores, found.link) or self._regression(X, labels, weight, deadline)
            rows = X, index, normalize_weights(weight)
            if weight is not None or any_identical(X, labels):
                # Merged rows are sorted, so repeated rows and weights give the same held-out rows.
                merged, merged_labels, total = merge_identical(X, labels, weight)
                rows = merged, np.argmax(merged_labels, axis=1), normalize_weights(total)
            rows = transformed_columns(start, rows[0]), *rows[1:]
            refinable = RefinementProblem(start, *rows, len(self.classes_), deadline, self.verbose)
            refined = refine(refinable) if _has_few_directions(start) else None
            if refined is not None and refined[1].expected_log_loss < found.expected_log_loss:
                model, found = refined
                scores.members_, self.refined_ = [model], True
        scores.weights_, self.offsets_ = found.link.weights, found.link.offsets
        self.scores_ = scores
        self.held_out_log_loss_, self.held_out_accuracy_ = found.log_loss, found.accuracy
        if stopped is not None:
            raise FitInterrupted(self, stopped) from None
        return self

    def _regression(self, X: Array, labels: Array, weight: Array | None, deadline: float) -> HyperKernelRidgeCV:
        """Return a regression on the indicators of the classes, whose map has few directions if they suffice."""
        left = deadline - time.perf_counter()
        model = HyperKernelRidgeCV(
            n_init=self.n_init,
            time_limit=None if math.isinf(deadline) else max(left / 3.0, 0.1),
            scale_features=self.scale_features,
            block_size=self.block_size,
            device=self.device,
            n_jobs=self.n_jobs,
            random_state=self.random_state,
        )
        with fit_warnings_silenced():
            return model.fit(X, labels, weight)

    @property
    def members_(self) -> list[HyperKernelRidgeCV]:
        """The fitted models, largest weight first."""
        return self.scores_.members_

    @property
    def weights_(self) -> Array:
        """The weights of the members in the link function."""
        return self.scores_.weights_

    @property
    def components_(self) -> Array:
        """The map of the first member."""
        return self.members_[0].components_

    @property
    def map_shape_(self) -> str:
        """The structure of the map of the first member: "full", "diagonal" or "identity"."""
        return self.members_[0].map_shape_

    @property
    def n_components_(self) -> int:
        """The number of directions of the first member."""
        return len(self.members_[0].map_)

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    @property
    def feature_importances_(self) -> Array:
        """Importances of the columns for the scores, averaged over the members with their weights."""
        check_is_fitted(self)
        return self.scores_.feature_importances_

    @property
    def path_(self) -> dict[str, list[Any]]:
        """Table of the optimization runs of the search."""
        path: dict[str, list[Any]] = self.scores_.path_
        return path

    @property
    def diagnostics_(self) -> Diagnostics:
        """Diagnostics of the regression of the first member on the indicators of the classes."""
        return self.scores_.diagnostics_

    @property
    def _link(self) -> ClassLink:
        # Only classifiers that were saved by version 0.1 have the attribute softness_.
        softness = getattr(self, "softness_", None)
        return ClassLink(self.weights_, self.offsets_, of_logarithms=not self.refined_, softness=softness)

    def _scores(self, X: Any) -> list[Array]:
        """Return the scores of each member."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=[np.float64, np.float32])
        return [member.predict(X) for member in self.members_]

    def decision_function(self, X: Any) -> Array:
        """Return the logarithms of the probabilities of the classes, up to a constant in each row.

        Two classes have a single value, the logarithm of the ratio of their probabilities. It is positive if the second
        class is predicted.

        Parameters
        ----------
        X : array or data frame (n_samples, n_features)
            Rows to classify.

        Returns
        -------
        array (n_samples,) or (n_samples, n_classes)
        """
        scores, link = self._scores(X), self._link

        def values() -> Array:
            found = link.log_probabilities(scores)
            return found[:, 1] - found[:, 0] if len(self.classes_) == 2 else found

        return require_finite("scores", values)

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
        scores, link = self._scores(X), self._link
        return require_finite("probabilities", lambda: link.probabilities(scores))

    def _make_summary(self, columns: list[str] | None) -> Summary:
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
        """Return the latent coordinates of the first member, ``X @ components_.T``.

        If the first member transforms the columns (`column_transform_` is not None), X stands for the transformed
        columns.

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
        return np.asarray(self.members_[0].transform(X))


def with_first_member(model: HyperKernelClassifier) -> HyperKernelClassifier:
    """Return a fitted classifier whose only member is the first member of `model`, with the weights of all members."""
    model, scores = copy.copy(model), copy.copy(model.scores_)
    scores.members_, scores.weights_ = scores.members_[:1], np.array([np.sum(scores.weights_)])
    model.scores_ = scores
    return model


def latent_probabilities(model: HyperKernelClassifier, Z: Array) -> Array:
    """Return the class probabilities of `with_first_member` at the rows z of Z, in the coordinates of `transform`."""
    first = with_first_member(model)
    return first._link.probabilities([first.members_[0].predict_latent(Z)])


def _few_directions(scores: ClassScores, link: ClassLink) -> HyperKernelRidgeCV | None:
    """Return the member of largest weight among those with few directions, or None if its weight is too small."""
    for member, weight in zip(scores.members_, link.weights, strict=True):
        if _has_few_directions(member) and weight >= _LEAST_SHARE * np.sum(link.weights):
            return member
    return None


def _has_few_directions(model: HyperKernelRidgeCV) -> bool:
    """Return whether the map of a model is full, but has fewer directions than columns."""
    return model.map_shape_ == ShapeName.FULL and model.n_components_ < model.n_features_in_


def _training_predictions(
    members: list[HyperKernelRidgeCV], X: Array, labels: Array, weight: Array | None
) -> LeftOutPredictions:
    """Return the predictions of the training rows, which are used if there are no leave-one-out predictions."""
    row_weight = np.ones(len(X)) if weight is None else weight
    frequencies = np.average(labels, axis=0, weights=row_weight)
    predictions = [member.predict(X) - frequencies for member in members]
    return LeftOutPredictions(predictions, labels - frequencies, row_weight, np.zeros(len(predictions)), 0.0)
