"""`HyperKernelRidgeCV`: hyper-kernel ridge regression that selects the number of directions and lambda.

The selection works in one of two ways. Without `cv`, a search minimizes a criterion (`hkrr.estimators.search`). With
`cv`, the pairs (number of directions, lambda) of a grid are compared by held-out error
(`hkrr.estimators._grid_search`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from copy import copy
from typing import Any, Literal, Self

import numpy as np
from sklearn.base import clone

from hkrr._base.linear_algebra import Array
from hkrr._storage.checkpoint import FitInterrupted, checkpointing
from hkrr.estimators._grid_search import Grid, lambda_grid, make_splits, search_grid
from hkrr.estimators._parameter_checks import check_cv_parameters
from hkrr.estimators._search_mixin import SearchInputMixin
from hkrr.estimators.fitted.base import MapModel, fitting
from hkrr.estimators.fitted.diagnostics import diagnose_grid
from hkrr.estimators.ridge import HyperKernelRidge
from hkrr.estimators.search.candidates import Candidate
from hkrr.estimators.search.final_fit import FinalFit
from hkrr.estimators.search.path_table import path_table
from hkrr.estimators.search.progress import SearchCallback
from hkrr.estimators.search.search_and_refit import select_model
from hkrr.kernels import Kernel, get_kernel
from hkrr.rows import InMemoryRows
from hkrr.rows.base import largest_target
from hkrr.rows.open_inputs import is_external
from hkrr.rows.standardize import Moments
from hkrr.rows.weights import check_weights, without_zero_weights
from hkrr.solvers import Solver


class HyperKernelRidgeCV(SearchInputMixin, MapModel):
    """Hyper-kernel ridge regression with automatic selection of the number of directions and of lambda.

    By default, the map, lambda and the scale of the kernel are learned together, by maximizing the evidence of the
    equivalent Gaussian process. The number of directions is selected by a BIC based on the evidence. Plain kernel ridge
    regression on all inputs is one of the models that are compared. If its score is close to the score of the best map,
    the two are compared on held-out rows. If the residuals have heavy tails, a Student-t noise model gives outliers a
    small weight. See docs/choosing.md.

    With ``criterion="training"`` and `cv`, the estimator follows the adaptive rule of the paper (see
    `HyperKernelRidge`): it selects the pair (d, lambda) with the smallest held-out error on a grid, where d is the
    number of directions. The predictions are truncated.

    Parameters
    ----------
    n_components : "auto", int or list of int, default="auto"
        Number of directions, or list of numbers from which one is selected. Without `cv`, "auto" starts from maps
        with many directions and keeps the directions that lower the score. With `cv`, "auto" tries 1 to 10 directions.
    criterion : {"evidence", "loo", "training"}, default="evidence"
        The criterion that the map minimizes, as in `HyperKernelRidge`. "training" needs `cv`.
    cv : None, "holdout", int or splitter, default=None
        How the model is selected. None means that the criterion itself selects the model. With any other value, the
        number of directions is selected by held-out error, and so is lambda, unless lambda is learned. "holdout" holds
        out one random quarter of the rows. An int is a number of folds. With "holdout" or an int, all copies of a row
        are held out together.
    reg_lambdas : "auto" or list of float, default="auto"
        With `cv`, the values of lambda to compare. For ``criterion="training"``, "auto" means 1e-1, 1e-2, ..., 1e-6.
        For the criteria "evidence" and "loo", "auto" means that lambda is learned.
    warm_start : bool, default=False
        With `cv`, whether the fit for each lambda starts from the map learned for the next larger lambda.
    solver : {"lbfgs", "varpro", "agd"} or Solver, default="lbfgs"
        With `cv`, the solver of every fit. Without `cv`, the solver must be "lbfgs".
    kernel : str, Kernel or "auto", default="gaussian"
        The kernel. Without `cv`, gamma is learned, and a gamma set in the kernel is ignored. "auto" (only without `cv`)
        selects among several kernels and among identity, diagonal and full maps, by the score that also selects the
        number of directions. Use "auto" for tables whose columns are individually meaningful.
    truncate : bool, default=True
        Whether predictions are clipped to ``[-truncation_, truncation_]``, as in the paper.
    n_init : int, default=4
        Number of random starting maps. With `cv`, this is the number for each fit of the grid.
    refit : "full" or int, default="full"
        Number of centers of the final fit on all rows. Without `cv`, "full" takes all rows as centers if there are at
        most 5,000 rows, and 2,000 centers otherwise. With ``kernel="auto"`` these numbers are 10,000 rows and 4,000
        centers. With `cv`, "full" takes as many centers as ``HyperKernelRidge(n_centers="auto")``.
    time_limit : float or None, default=None
        Time limit in seconds for the whole fit. None means no limit. A limit cannot be combined with `cv`. The search
        stops early enough to leave time for the final fit of the best model so far. The number of centers of the final
        fit is reduced if necessary.
    fit_intercept, scale_features, block_size, device, verbose, random_state
        As in `HyperKernelRidge`. The search uses at most 20,000 rows. The search for directions, the comparison of
        kernels with ``kernel="auto"`` and the final fit run on `device`. Without `cv`, ``verbose=1`` prints a line for
        each stage of the search instead of a progress bar.
    n_jobs : int or None, default=None
        Without `cv`, the number of threads, as in `HyperKernelRidge`. Inside ``joblib.parallel_config`` with a backend
        of processes or of a cluster, such as Dask, `n_jobs` is also the number of workers, among which the optimization
        runs of the search are distributed. With `cv`, the number of joblib workers, among which the fits of the grid
        are distributed. The model does not depend on `n_jobs`.
    checkpoint, checkpoint_every
        As in `HyperKernelRidge`. After Ctrl-C, the estimator contains the best model so far, with at most 500 centers.
    callbacks : list of callables or None, default=None
        Functions that are called with a `hkrr.estimators.SearchState` when the search enters a stage or finds a better
        model. If a function returns True, the search stops, and the final fit is made for the best model so far. None
        means no functions. Callbacks cannot be combined with `cv`.

    Attributes
    ----------
    n_components_ : int
        Selected number of directions.
    reg_lambda_ : float
        Selected lambda.
    map_shape_ : {"full", "diagonal", "identity"}
        Shape of the selected map, only without `cv`. "identity" means plain kernel ridge regression.
    spectrum_ : array
        Singular values of the map before superfluous directions were cut off, in standardized coordinates, divided by
        the largest singular value. Directions that the target does not need have small singular values. Only present
        without `cv`, and only if the selected map was cut in this way.
    best_score_ : float
        The score of the selected model; lower is better. Without `cv`, the score is a BIC in nats, from the last stage
        of the search that computed a score for this model. With `cv`, the score is the mean squared error on held-out
        rows.
    path_ : dict of lists
        Without `cv`, a table of the optimization runs of the search, one entry for each run. The columns are "start",
        "kernel", "shape" (of the map), "n_components", "n_rows" (in the comparison of kernels), "n_centers" (in the
        search for directions), "reg_lambda", "gamma" (for a map of norm 1 in standardized coordinates), "criterion",
        "score" and "seconds". ``pandas.DataFrame(model.path_)`` converts the table to a data frame. Only scores that
        were computed on the same rows are comparable. The column "start" shows which runs used the same rows:

        - "random" (a random map), "moments" (a map computed from moments of the data), "cut" (a map truncated to its
          largest directions) and "widened" (the best map with additional random directions): the search for directions.
          Only scores with the same number of centers are comparable. The suffix ", dropped" marks maps that were
          optimized for a few iterations only, because other maps were better.
        - "polished": the best directions, refined on all rows of the search (at most 20,000).
        - "rescaled": the selected map after a refit of its scales.
        - "compared" and "plain": the selected map and plain kernel ridge regression.
        - "directions" (a map with a few directions), "plain" (plain kernel ridge regression), "diagonal", "sparse" (a
          diagonal map of the columns that the lasso selects) and "square" (a full map with as many directions as
          columns), only with ``kernel="auto"``: the comparison of kernels and shapes of the map. Only scores with the
          same number of rows are comparable.
        - "mean": the mean of y as the prediction for every row. Present only if its score is better than that of plain
          kernel ridge regression.
        - "held out": the check of the selected map on held-out rows. Here "criterion" and "score" are mean squared
          errors, relative to the variance of y.
    cv_results_ : dict of arrays
        With `cv`, a table of all pairs (number of directions, lambda). The columns are "n_components", "reg_lambda",
        "mean_error" and "std_error" (mean and standard deviation of the error over the splits), and "split0_error",
        "split1_error", ... (the error on each split).
    truncation_ : float or array (n_targets,)
        The level at which predictions are clipped. With `cv`, the level is the largest absolute value of the target.
        Without `cv`, the level is twice this value, because correct predictions for new rows can exceed the training
        targets. Targets that the Student-t noise model treats as outliers do not count.
    components_, map_, gamma_, kernel_, centers_, dual_coef_, singular_values_, diagnostics_, feature_importances_, ...
        As in `HyperKernelRidge`. If ``map_shape_`` is "diagonal" or "identity", ``map_`` is the vector of the scales of
        the columns, and ``components_`` and ``singular_values_`` are in the order of the columns. ``components_`` is
        then created on each access, because it takes much memory if there are many columns.

    See Also
    --------
    HyperKernelRidge : The same model with a given number of directions and a given lambda.

    Examples
    --------
    >>> from hkrr import HyperKernelRidgeCV
    >>> from hkrr.datasets import make_mim_sines
    >>> data = make_mim_sines(600, n_features=5, n_components=1, random_state=0)
    >>> model = HyperKernelRidgeCV(random_state=0).fit(data.X[:100], data.y[:100])
    >>> model.n_components_, model.score(data.X[100:], data.y[100:]) > 0.97
    (1, True)
    """

    def __init__(
        self,
        n_components: Literal["auto"] | int | Sequence[int] | np.ndarray = "auto",
        *,
        criterion: Literal["evidence", "loo", "training"] = "evidence",
        cv: Any = None,
        reg_lambdas: Literal["auto"] | Sequence[float] | np.ndarray = "auto",
        warm_start: bool = False,
        solver: str | Solver = "lbfgs",
        kernel: str | Kernel = "gaussian",
        truncate: bool = True,
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
        self.n_components = n_components
        self.criterion = criterion
        self.cv = cv
        self.reg_lambdas = reg_lambdas
        self.warm_start = warm_start
        self.solver = solver
        self.kernel = kernel
        self.truncate = truncate
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
        """Select the model and fit it.

        Parameters
        ----------
        X, y, sample_weight
            As in `HyperKernelRidge.fit`. With `cv`, only arrays and data frames are supported.

        Returns
        -------
        self
        """
        began = time.perf_counter()
        with fitting(self):
            if self.cv is None:
                self._fit_by_search(X, y, sample_weight, began)
            else:
                self._fit_on_grid(X, y, sample_weight)
        return self

    def _fit_on_grid(self, X: Any, y: Any, sample_weight: Any) -> None:
        """Select the pair (number of directions, lambda) with the smallest held-out error, and fit it to all rows."""
        if is_external(X):
            raise ValueError(
                "cv needs X and y as arrays or data frames in memory: leave cv at None for tensors, files, functions "
                "and Dask collections"
            )
        X, y = self._validate_arrays(X, y, sample_weight)
        dimensions = self.check_parameters(X.shape[1])
        weight = check_weights(sample_weight, X)
        self._delete_selection()
        X_counted, y_counted, _ = without_zero_weights(X, y, weight)
        self.truncation_ = largest_target(y_counted)
        with checkpointing(self, InMemoryRows(X, y, weight)) as rng:
            seed = int(rng.randint(2**31 - 1))
            base = HyperKernelRidge(
                kernel=self.kernel,
                criterion=self.criterion,
                solver=self.solver,
                n_init=self.n_init,
                fit_intercept=self.fit_intercept,
                scale_features=self.scale_features,
                block_size=self.block_size,
                device=self.device,
                random_state=seed,
            )
            final = clone(base).set_params(n_jobs=self.n_jobs, verbose=self.verbose)
            if self.refit != "full":
                final.set_params(n_centers=min(self.refit, len(X)))
            lambdas, splits = lambda_grid(self.reg_lambdas, self.criterion), make_splits(self.cv, X, y, seed)
            grid = Grid(base, X, y, weight, splits, dimensions, lambdas, self.warm_start)
            chosen = search_grid(grid, final, self.n_jobs, self.verbose, keep_best=self.checkpoint is not None)
            self._adopt(chosen.model)
            self.cv_results_, self.n_components_, self.best_score_ = chosen.table, chosen.n_components, chosen.error
            if chosen.interrupted:
                self.__dict__.pop("diagnostics_", None)
                raise FitInterrupted(self)
        fitted, truncation = chosen.model, self.truncation_ if self.truncate else None
        self._set_diagnostics(
            diagnose_grid(
                fitted.diagnostics_,
                chosen.table,
                chosen.n_components,
                fitted.reg_lambda_,
                X_counted,
                fitted.predict,
                truncation,
            )
        )

    def _fit_by_search(self, X: Any, y: Any, sample_weight: Any, began: float) -> None:
        """Search for the best model on a sample of the rows in memory, then fit its coefficients on all rows."""
        loaded = self._load(X, y, sample_weight)
        self._delete_selection()
        with checkpointing(self, loaded.rows) as rng:
            kernel = None if self._selects_kernel else get_kernel(self.kernel).with_gamma(1.0)
            plan = self._prepare(loaded, kernel, rng, began)
            selected = select_model(plan, kernel, keep_best=self.checkpoint is not None)
            self._store_selected(selected.winner, selected.fit, plan.scaling, selected.y_offset, loaded.one_target)
            self.path_ = path_table(selected.candidates, plan.rows.total_weight)
            if selected.interrupted_by is not None:
                raise FitInterrupted(self, selected.interrupted_by) from None
            self._diagnose(selected, loaded, self._untruncated)

    def _quick_model(self, candidate: Candidate, fit: FinalFit, scaling: Moments, one_target: bool) -> MapModel:
        model = copy(self)
        model._store(fit.result, candidate.kernel, fit.objective.centers, scaling, one_target=one_target)
        return model

    def _store_selected(
        self, winner: Candidate, fit: FinalFit, scaling: Moments, y_offset: Array | None, one_target: bool
    ) -> None:
        """Set the attributes of a model that a search selected."""
        scaling = scaling.shifted(y_offset)
        self._store(fit.result, winner.kernel, fit.objective.centers, scaling, one_target=one_target)
        self._store_uncertainty(fit.uncertainty)
        self.n_components_, self.best_score_ = winner.n_components, winner.score
        self.map_shape_ = winner.shape.name.value
        if winner.spectrum is not None:
            self.spectrum_ = np.array(winner.spectrum)

    def check_parameters(self, n_features: int) -> list[int]:
        """Raise ValueError if a parameter is invalid. Return the values of `n_components` to try."""
        return check_cv_parameters(self, n_features)

    def _describe_lambda(self) -> str:
        """Return how lambda was chosen. If `cv` was used with a single lambda, return ""."""
        if not hasattr(self, "cv_results_"):
            return ", learned"
        return ", chosen on held-out rows" if len(set(self.cv_results_["reg_lambda"].tolist())) > 1 else ""

    def _describe_score(self) -> str:
        """Return the score of the selected model as text."""
        name = "held-out mean squared error" if hasattr(self, "cv_results_") else "score (BIC, in nats)"
        return f"; {name} {self.best_score_:.4g}"

    def _delete_selection(self) -> None:
        """Delete the results of an earlier fit that exist only with `cv`, or only without `cv`."""
        for name in ("cv_results_", "path_", "map_shape_", "spectrum_"):
            self.__dict__.pop(name, None)

    def _truncate(self, predicted: Array) -> Array:
        """Return the predictions, clipped to ``[-truncation_, truncation_]`` if `truncate` is True."""
        return np.clip(predicted, -self.truncation_, self.truncation_) if self.truncate else predicted

    def _exhausted_parameters(self) -> set[str]:
        """Return the parameters that warnings must not suggest, because changing them cannot improve this fit."""
        exhausted = super()._exhausted_parameters()
        # Without cv, lambda is learned, and reg_lambdas must be "auto".
        return exhausted if self.cv is not None else exhausted | {"reg_lambdas"}

    @property
    def _selects_kernel(self) -> bool:
        return isinstance(self.kernel, str) and self.kernel == "auto"
