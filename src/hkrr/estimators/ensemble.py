"""`HyperKernelEnsemble`: a weighted sum of models with different kernels and maps, for tabular data.

The models of the sum are called members. A search selects them from many candidates (combinations of a kernel and a
map).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from typing import Any, Literal, Self

import numpy as np

from hkrr._base.linear_algebra import Array
from hkrr._storage.checkpoint import FitInterrupted, checkpointing
from hkrr.estimators._parameter_checks import check_search_parameters
from hkrr.estimators._search_mixin import SearchInputMixin
from hkrr.estimators.fitted.base import MapModel, fitting
from hkrr.estimators.fitted.conformal import LeftOut
from hkrr.estimators.fitted.summary import Summary, SummaryMixin, summarize_ensemble
from hkrr.estimators.ridge_cv import HyperKernelRidgeCV
from hkrr.estimators.search.candidates import Candidate
from hkrr.estimators.search.final_fit import FinalFit
from hkrr.estimators.search.path_table import path_table
from hkrr.estimators.search.progress import SearchCallback
from hkrr.estimators.search.search_and_refit import FitPlan, SelectedMembers, select_members
from hkrr.estimators.search.stacking import LEAST_SQUARES
from hkrr.rows import Rows
from hkrr.rows.standardize import Moments


class HyperKernelEnsemble(SummaryMixin, SearchInputMixin):
    """Weighted sum of hyper-kernel ridge regressions with different kernels and maps, for tabular data.

    Use this class for tables whose columns are individually meaningful. A candidate is a combination of a kernel and a
    map. The kernels are smooth and rough radial kernels, product kernels and the linear kernel. The maps have one scale
    for all columns, one scale per column, one scale for each column that the lasso selects, a few directions, or as
    many directions as columns. The columns can also be transformed to normal scores. The candidates are learned by
    maximizing the evidence on growing samples of the rows. After each sample, the worst candidates are dropped. The
    members of the ensemble are the best candidates, fitted on all rows. Their weights minimize the leave-one-out error
    (the cross-validation error with at most 1,000 rows) plus a penalty for the parameters of the maps. If a map with a
    few directions explains the target far better than maps that do not combine columns, the ensemble has a single
    member. See docs/choosing.md.

    Parameters
    ----------
    n_init, refit, time_limit, fit_intercept, scale_features, block_size, device, n_jobs, verbose, random_state
        As in `HyperKernelRidgeCV` with ``kernel="auto"``.
    checkpoint, checkpoint_every, callbacks
        As in `HyperKernelRidgeCV`. After Ctrl-C, the estimator contains a single member, the best model so far.

    Attributes
    ----------
    members_ : list of HyperKernelRidgeCV
        The fitted models, largest weight first. A member can use columns that are transformed to normal scores (ranks
        as quantiles of the normal distribution). The attribute ``column_transform_`` of such a member is the transform,
        a `hkrr.rows.column_transform.ColumnTransform`; for all other members it is None. ``components_`` and
        ``centers_`` of such a member refer to the transformed columns, but its methods take the original columns.
    weights_ : array (n_members,)
        The weights of the members. They are not negative, and their sum is close to 1. The prediction is
        ``intercept_ + sum_k weights_[k] * (members_[k].predict(X) - intercept_)``.
    intercept_ : float or array (n_targets,)
        Weighted mean of the targets, or 0 if `fit_intercept` is False.
    feature_importances_ : array (n_features,)
        Importances of the columns, averaged over the members with their weights.
    path_ : dict of lists
        A table of the optimization runs of the search, as in `HyperKernelRidgeCV`.
    diagnostics_ : Diagnostics
        Report on the quality of the fit. The entries about predictions (`explained_share`, `truncated_share`,
        `overshooting_share` and the outliers) refer to the ensemble. The entries about starting maps refer to the
        search. The other entries refer to the first member.
    truncation_ : float or array (n_targets,)
        The level at which the predictions of the members are clipped: twice the largest absolute target. Targets that
        the heavy-tailed noise model treats as outliers do not count.
    noise_variance_, prior_variance_, interval_scores_
        As in `HyperKernelRidge`. The variances are averaged over the members with their weights.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    See Also
    --------
    HyperKernelRidgeCV : With ``kernel="auto"``, a single model, selected from the same candidates.

    Examples
    --------
    >>> from sklearn.datasets import make_friedman1
    >>> from hkrr import HyperKernelEnsemble
    >>> X, y = make_friedman1(400, noise=0.5, random_state=0)
    >>> model = HyperKernelEnsemble(random_state=0).fit(X[:100], y[:100])
    >>> model.score(X[100:], y[100:]) > 0.9
    True
    """

    _most_fits = 2
    _stacking = LEAST_SQUARES

    def __init__(
        self,
        *,
        n_init: int = 4,
        refit: Literal["full"] | int = "full",
        time_limit: float | None = None,
        fit_intercept: bool = True,
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
        self.n_init = n_init
        self.refit = refit
        self.time_limit = time_limit
        self.fit_intercept = fit_intercept
        self.scale_features = scale_features
        self.block_size = block_size
        self.device = device
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every
        self.callbacks = callbacks

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Select the members and their weights, and fit the members.

        Parameters
        ----------
        X, y, sample_weight
            As in `HyperKernelRidge.fit`.

        Returns
        -------
        self
        """
        began = time.perf_counter()
        with fitting(self):
            loaded = self._load(X, y, sample_weight)
            with checkpointing(self, loaded.rows) as rng:
                plan = self._prepare(loaded, None, rng, began)
                members = select_members(plan, keep_best=self.checkpoint is not None)
                self._store_members(members, plan, loaded.one_target)
                first = members.fits[0]
                self.path_ = path_table(first.candidates, plan.rows.total_weight)
                self.__dict__.pop("diagnostics_", None)
                if first.interrupted_by is not None:
                    raise FitInterrupted(self, first.interrupted_by) from None
                self._diagnose(first, loaded, self._predict_rows)
        return self

    def check_parameters(self, n_features: int) -> list[int]:
        """Raise ValueError if a parameter is invalid. Return the values of `n_components` to try."""
        check_search_parameters(self)
        return list(range(1, n_features + 1))

    @property
    def _selects_kernel(self) -> bool:
        return True

    def _store_members(self, members: SelectedMembers, plan: FitPlan, one_target: bool) -> None:
        """Set the members, their weights and the uncertainty of their sum."""
        self.members_ = []
        for one in members.fits:
            member = self._member(one.winner)
            member._store_selected(one.winner, one.fit, plan.scaling_of(one.winner), one.y_offset, one_target)
            self.members_.append(member)
        self.weights_ = members.weights
        self.intercept_ = self.members_[0].intercept_
        for name in ("noise_variance_", "prior_variance_", "interval_scores_"):
            self.__dict__.pop(name, None)
        found = [one.fit.uncertainty for one in members.fits]
        if any(one is None for one in found):
            return
        shares = self.shares
        for name in ("noise_variance_", "prior_variance_"):
            setattr(self, name, sum(share * getattr(m, name) for share, m in zip(shares, self.members_, strict=True)))
        parts = [one.left_out for one in found if one is not None]
        scores = _combined(parts, self.weights_, shares).scores
        self.interval_scores_ = scores[:, 0] if one_target else scores

    def _member(self, candidate: Candidate) -> HyperKernelRidgeCV:
        """Return a model with the kernel of the candidate and the settings of the ensemble, before it is fitted."""
        member = HyperKernelRidgeCV(
            kernel=candidate.kernel,
            n_init=self.n_init,
            refit=self.refit,
            fit_intercept=self.fit_intercept,
            scale_features=self.scale_features,
            block_size=self.block_size,
            device=self.device,
            n_jobs=self.n_jobs,
        )
        member.truncation_, member.n_features_in_ = self.truncation_, self.n_features_in_
        if hasattr(self, "feature_names_in_"):
            member.feature_names_in_ = self.feature_names_in_
        return member

    def _quick_model(self, candidate: Candidate, fit: FinalFit, scaling: Moments, one_target: bool) -> MapModel:
        model = self._member(candidate)
        model._store(fit.result, candidate.kernel, fit.objective.centers, scaling, one_target=one_target)
        return model

    def _set_truncation(self, level: Any) -> None:
        self.truncation_ = level
        for member in self.members_:
            member.truncation_ = level

    def _exhausted_parameters(self) -> set[str]:
        """Return the parameters that warnings must not suggest, because changing them cannot improve this fit."""
        could_help = {
            "n_init": True,
            "scale_features": not self.scale_features,
            "time_limit": self.time_limit is not None,
        }
        return {name for name in self.get_params(deep=False) if not could_help.get(name, False)}

    def _make_summary(self, columns: list[str] | None) -> Summary:
        return summarize_ensemble(self, columns)

    @property
    def shares(self) -> Array:
        """The weights divided by their sum, or equal numbers if all weights are zero."""
        total = float(np.sum(self.weights_))
        return self.weights_ / total if total > 0 else np.full(len(self.weights_), 1.0 / len(self.weights_))

    @property
    def _output_shape(self) -> tuple[int, ...]:
        return self.members_[0]._output_shape

    def _predict_rows(self, rows: Rows) -> Array:
        return self._sum([member._predict_rows(rows) for member in self.members_])

    def _sum(self, predictions: list[Array]) -> Array:
        """Return the weighted sum of the predictions of the members."""
        b = self.intercept_
        return b + sum(weight * (one - b) for weight, one in zip(self.weights_, predictions, strict=True))

    def _mean_and_std_of_rows(self, rows: Rows) -> Array:
        columns, t = [member._mean_and_std_of_rows(rows) for member in self.members_], self._n_targets
        variance = sum(share * one[:, t:] ** 2 for share, one in zip(self.shares, columns, strict=True))
        return np.hstack([self._sum([one[:, :t] for one in columns]), np.sqrt(variance)])

    @property
    def feature_importances_(self) -> Array:
        """Importances of the columns, averaged over the members with their weights."""
        return sum(s * member.feature_importances_ for s, member in zip(self.shares, self.members_, strict=True))


def _combined(parts: list[LeftOut], weights: Array, shares: Array) -> LeftOut:
    """Return the leave-one-out errors and standard deviations of a weighted sum of models.

    `parts` has the errors of the models, and `weights` their weights w_k in the sum. For centered targets y, model k
    predicts f_k with the error ``e_k = y - f_k``. The sum predicts ``sum_k w_k f_k``, so its error is
    ``(1 - sum_k w_k) y + sum_k w_k e_k``. The variance of this error is the average of the variances of the models'
    errors, weighted by `shares` (the weights divided by their sum).
    """
    first = parts[0]
    errors = (1.0 - np.sum(weights)) * first.targets
    errors = errors + sum(weight * one.errors for weight, one in zip(weights, parts, strict=True))
    variance = sum(share * one.deviations**2 for share, one in zip(shares, parts, strict=True))
    return first._replace(errors=errors, deviations=np.sqrt(variance))
