"""`HyperKernelRidge`: kernel ridge regression on a learned linear map of the inputs, with a given number of directions.

The class validates the data and the parameters, finds a starting map, minimizes the objective and stores the result.
The mathematics is in `hkrr.objective`, `hkrr.criteria` and `hkrr.solvers`.
"""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple, Self

import numpy as np

from hkrr._base.checks import check_matrix
from hkrr._base.linear_algebra import Array
from hkrr._base.resume_journal import rounded, step
from hkrr._base.threads import blas_for
from hkrr._base.value_hashing import digest
from hkrr._storage.checkpoint import FitInterrupted, checkpointing
from hkrr.centers import auto_size, draw_centers
from hkrr.criteria import CRITERIA, Criterion
from hkrr.estimators._parameter_checks import check_ridge_parameters
from hkrr.estimators.fitted.base import MapModel, fitting
from hkrr.estimators.fitted.diagnostics import Starts, diagnose, repeat_solve
from hkrr.exceptions import FitError
from hkrr.kernels import Kernel, get_kernel
from hkrr.objective import Objective
from hkrr.rows import Rows
from hkrr.rows.open_inputs import is_external
from hkrr.rows.standardize import Moments, standardize
from hkrr.rows.weights import MERGED_ROWS, any_copies, check_weights, merge_copies, merge_identical, normalize_weights
from hkrr.solvers import LBFGS, Callback, Interrupted, Solver, get_solver, run
from hkrr.solvers.driver import StopReason
from hkrr.solvers.initialization import descend_lambda, median_kernel, ranked_maps, starting_rows

# Initial value of lambda if lambda is learned (reg_lambda="auto").
_FIRST_LAMBDA = 1e-3


class HyperKernelRidge(MapModel):
    """Hyper-kernel ridge regression: kernel ridge regression on a learned linear map of the inputs.

    The model is ``f(x) = g(Bx)``, where B is a linear map to d directions and g a function in the space of a kernel k.
    B and g are learned together, by minimizing

        ``L(B, a) = sum_i w_i |sum_j a_j k(B x_i, B c_j) - y_i|^2 / sum_i w_i  +  lambda a' K_cc a``

    over B and over the coefficients a of the kernels at the centers c_j. Here w_i are the sample weights, and K_cc is
    the kernel matrix of the centers. The method is meant for targets that depend on many inputs through a few unknown
    directions (multi-index models). `HyperKernelRidgeCV` also selects the number of directions and lambda.

    Parameters
    ----------
    n_components : int, default=2
        Number of directions d. It is the number of rows of B.
    reg_lambda : float or "auto", default=1e-3
        Regularization lambda, normalized by the number of samples: ``alpha`` in scikit-learn's KernelRidge is
        ``lambda * n_samples``. "auto" learns lambda together with B. This needs the criterion "evidence" or "loo".
    kernel : str or Kernel, default="gaussian"
        The kernel k: a name in `hkrr.kernels.KERNELS`, or an instance such as ``Matern(nu=2.5)``.
    gamma : "median" or float, default="median"
        Scale of the kernel at the starting map. The starting map has spectral norm 1 in standardized coordinates, or is
        given by `init`. "median" sets gamma to ``1 / (2 median^2)``, where median is the median distance between mapped
        rows. If `kernel` is an instance whose gamma is set, the gamma of the kernel is used instead.
    n_centers : "auto", "all" or int, default="auto"
        Number of Nystrom centers. "auto" takes ``1 / reg_lambda`` centers, or 1,000 if lambda is learned. The paper's
        Nystrom theorem requires a number of this order. The number is raised to at least 100, and limited to 2,896
        (because of memory) and to the number of rows. "all" takes every row as a center. The fit is then exact, and its
        cost is cubic in the number of rows.
    centers : "uniform", "leverage", "kmeans" or array (n_centers, n_features), default="uniform"
        How the centers are chosen. "uniform" draws rows uniformly. "leverage" draws rows by approximate leverage scores
        at the starting map. "kmeans" uses the centroids of k-means. An array contains the centers themselves. If
        `centers` is an array, `n_centers` must be "auto".
    criterion : {"training", "evidence", "loo"}, default="training"
        The function of B that is minimized. "training" is the objective above, as in the paper. "evidence" is the
        negative log evidence of the equivalent Gaussian process, and "loo" is the leave-one-out error; see
        `hkrr.criteria`. "evidence" and "loo" are less prone to overfit the map, but an iteration costs several times as
        much, and the solver must be "lbfgs".
    solver : "lbfgs", "varpro", "agd" or Solver, default="lbfgs"
        "lbfgs" is L-BFGS on the reduced objective, in which the coefficients are eliminated. "varpro" and "agd" are the
        algorithms of the paper. See `hkrr.solvers`.
    init : "random", "sir", "save", "phd", "opg", "mave" or array (n_components, n_features), default="random"
        The starting map.

        - "random" draws `n_init` random maps and scores them on held-out rows. VarPro and AGD start from the best map,
          as in the paper. For L-BFGS, each of the best four maps is first optimized with a decreasing lambda: ten
          iterations at each of the values 0.1, 0.032, 0.01, ... above `reg_lambda`. L-BFGS then starts from the map
          with the lowest objective. ``history_`` does not include these first iterations, and `max_iter` does not limit
          them.
        - "sir", "save", "phd", "opg" and "mave" start from a classical estimate of the subspace; see `hkrr.baselines`.
          This estimate is the only starting map, and a poor estimate can lead to a poor local minimum. "opg" and "mave"
          make the weakest assumptions.
        - An array is the starting map itself, in the original units of X. To continue an earlier fit, pass the
          ``components_`` of that fit as `init` and its ``gamma_`` as `gamma`.
    n_init : int, default=10
        Number of random maps for ``init="random"``.
    fit_intercept : bool, default=True
        Whether to subtract the mean of y before the fit and add it to the predictions.
    scale_features : bool, default=True
        Whether to standardize the columns of X during the optimization. ``components_`` always refers to the original
        columns. If False, "standardized coordinates" in this docstring means the original units of X.
    max_iter : int, default=200
        Maximum number of iterations of the solver.
    tol : float, default=1e-6
        Tolerance on the gradient. The solver has converged when the norm of the gradient is at most ``tol`` times the
        variance of y. With ``criterion="evidence"``, the norm must be at most ``tol``, because the evidence has no
        units.
    time_limit : float or None, default=None
        Time limit in seconds. None means no limit. When the limit is reached, the fit stops and keeps the best map so
        far.
    block_size : "auto" or int, default="auto"
        Number of rows that are processed at once. "auto" adapts to the cache of the processor or to the memory of the
        GPU.
    device : torch device, str or None, default=None
        Device on which the passes over the rows are computed. None means NumPy on the CPU, or the device of X if X is a
        tensor. "cuda" means a GPU, through PyTorch. For Dask collections, `device` is the device of each worker. Files
        are always processed on the CPU.
    n_jobs : int or None, default=None
        Number of threads for the passes over the rows. None means as many threads as BLAS uses, and -1 means all
        processors. `n_jobs` does not limit the threads of PyTorch and of the workers of a Dask cluster.
    callbacks : list of callables or None, default=None
        Functions that are called with a `hkrr.solvers.State` at the starting map and after every iteration. If a
        function returns True, the fit stops. None means no functions.
    verbose : int, default=0
        If above 0, a progress bar is shown.
    random_state : int, RandomState or None, default=None
        Seed for the random maps, the held-out rows and the centers.
    checkpoint : str, path or None, default=None
        File in which the state of the fit is saved. None means that nothing is saved. If a fit is interrupted in any
        way, calling `fit` again with the same arguments resumes it and gives the same model. With a checkpoint, Ctrl-C
        also stores the best model so far in the estimator. See docs/checkpoints.md.
    checkpoint_every : float, default=60
        Seconds between two writes of the checkpoint.

    Attributes
    ----------
    components_ : array (n_components, n_features)
        The map B in the original units of X, scaled to spectral norm 1. For rotation-invariant kernels, its rows are
        orthogonal in standardized coordinates, and the row with the largest singular value comes first.
    map_ : array (n_components, n_features) or (n_features,)
        The stored form of the map: the matrix ``components_``, or the vector of its diagonal if the map is
        diagonal. Only `HyperKernelRidgeCV` can select a diagonal map.
    singular_values_ : array (n_components,)
        Singular values of the map in standardized coordinates, divided by the largest singular value. They are the
        weights of the directions.
    gamma_ : float
        Scale gamma of the kernel for the map ``components_``.
    kernel_ : Kernel
        The kernel, with the scale ``gamma_``.
    centers_ : array (n_centers, n_features)
        The centers, in the original units of X.
    x_offset_ : array (n_features,)
        The vector that is subtracted from X before the map is applied: the column means, or zero if `scale_features` is
        False. Only predictions of polynomial kernels (including the linear kernel) depend on the offset.
    dual_coef_ : array (n_centers,) or (n_centers, n_targets)
        The coefficients a.
    intercept_ : float or array (n_targets,)
        The intercept. Predictions are ``kernel_((X - x_offset_) @ components_.T, (centers_ - x_offset_) @
        components_.T) @ dual_coef_ + intercept_``.
    reg_lambda_ : float
        The given or learned value of lambda.
    n_iter_ : int
        Number of iterations of the solver, at least 1.
    result_ : Result
        Result of the solver. ``result_.reason`` tells why the solver stopped: "converged" (the gradient is below
        `tol`), "stalled" (no step lowers the objective further), "max_iter", "time_limit", "callback" or "interrupted".
        ``result_.objective`` is the final value of the objective.
    history_ : dict of lists
        Progress of the solver. The columns "time" (in seconds), "objective", "grad_norm" and "step" have one entry for
        the starting map and one for each iteration. For VarPro and AGD, "step" is the step size. For L-BFGS, "step" is
        the norm of the step.
    diagnostics_ : Diagnostics
        Report on the quality of the fit. It can be printed; see `hkrr.Diagnostics`.
    prior_variance_, noise_variance_ : float or array (n_targets,)
        Variances in the equivalent Gaussian process. The prior variance of the function at x is ``prior_variance_``
        times k(x, x). ``noise_variance_`` is the variance of the noise. See `hkrr.estimators.fitted.posterior`.
    interval_scores_ : array (n_scores,) or (n_scores, n_targets)
        Standardized leave-one-out errors, used by `predict_interval`; see `hkrr.estimators.fitted.conformal`.
    posterior_factor_ : array
        Factor of the posterior covariance. Only present if there are fewer centers than rows.
    center_weight_ : array (n_centers,)
        Sample weights of the centers. Only present if all rows are centers and have weights.
    feature_importances_ : array (n_features,)
        Effect of each column on the predictions; see `hkrr.estimators.fitted.importance`.
    n_features_in_ : int
        Number of columns seen during `fit`.
    feature_names_in_ : array (n_features,)
        Names of the columns. Only present if X has column names that are all strings.

    See Also
    --------
    HyperKernelRidgeCV : The same model. The number of directions and lambda are selected automatically.

    References
    ----------
    "The paper" is: Huang, Labarrière, De Vito, Poggio and Rosasco, *Learning multi-index models with hyper-kernel ridge
    regression*, 2025.

    Examples
    --------
    >>> from hkrr import HyperKernelRidge
    >>> from hkrr.datasets import make_mim_sines
    >>> data = make_mim_sines(600, n_features=20, n_components=2, random_state=0)
    >>> model = HyperKernelRidge(n_components=2, random_state=0).fit(data.X[:400], data.y[:400])
    >>> model.score(data.X[400:], data.y[400:]) > 0.95
    True
    """

    def __init__(
        self,
        n_components: int = 2,
        *,
        reg_lambda: float | Literal["auto"] = 1e-3,
        kernel: str | Kernel = "gaussian",
        gamma: Literal["median"] | float = "median",
        n_centers: Literal["auto", "all"] | int = "auto",
        centers: Any = "uniform",
        criterion: Literal["training", "evidence", "loo"] = "training",
        solver: str | Solver = "lbfgs",
        init: Any = "random",
        n_init: int = 10,
        fit_intercept: bool = True,
        scale_features: bool = True,
        max_iter: int = 200,
        tol: float = 1e-6,
        time_limit: float | None = None,
        block_size: Literal["auto"] | int = "auto",
        device: Any = None,
        n_jobs: int | None = None,
        callbacks: Iterable[Callback] | None = None,
        verbose: int = 0,
        random_state: Any = None,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: float = 60.0,
    ) -> None:
        self.n_components = n_components
        self.reg_lambda = reg_lambda
        self.kernel = kernel
        self.gamma = gamma
        self.n_centers = n_centers
        self.centers = centers
        self.criterion = criterion
        self.solver = solver
        self.init = init
        self.n_init = n_init
        self.fit_intercept = fit_intercept
        self.scale_features = scale_features
        self.max_iter = max_iter
        self.tol = tol
        self.time_limit = time_limit
        self.block_size = block_size
        self.device = device
        self.n_jobs = n_jobs
        self.callbacks = callbacks
        self.verbose = verbose
        self.random_state = random_state
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn the map B and the function g.

        Parameters
        ----------
        X : array or data frame (n_samples, n_features)
            The inputs. X can also be a tensor, a path or list of paths of Parquet, CSV or .npy files, or a Dask array
            or data frame. X can also be a function that returns an iterable of blocks, each a pair of arrays (inputs,
            targets). The function must return the same blocks on every call.
        y : array (n_samples,) or (n_samples, n_targets)
            The targets. Several targets share one map. The objective sums their squared errors, so targets with a large
            variance dominate. Standardize the targets to give them equal weight. For files, y is the name or the index
            of a column. If X is a function, y must be None. For a Dask data frame, y is the name of a column or a Dask
            collection.
        sample_weight : array or tensor (n_samples,) or None, default=None
            Weights of the rows. None means that all rows have the weight 1.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If the data or the parameters are invalid. The message names the invalid argument and says what to do.
        FitError
            If the optimization does not give a valid model, because numbers overflow or the map collapses to zero.
        CheckpointError
            If the file `checkpoint` is damaged, in use by another process, or belongs to a different fit.
        """
        began = time.perf_counter()
        with fitting(self):
            data, one_target = self._load(X, y, sample_weight)
            with checkpointing(self, data) as rng:
                self._fit_rows(data, one_target, rng, began)
        return self

    def _load(self, X: Any, y: Any, sample_weight: Any) -> tuple[Rows, bool]:
        """Check the data and the parameters. Return the rows, and whether there is a single target.

        Identical rows are merged if all rows become centers. With the criteria "evidence" and "loo" and at most 20,000
        rows, identical rows and near copies (rows with almost equal values) are merged for any number of centers.
        """
        if is_external(X):
            data, one_target = self._open_rows(X, y, sample_weight)
            check_ridge_parameters(self, data.n_rows, data.n_features)
            exact = self._count_centers(data.n_counted) == data.n_counted
            if not exact and (self.criterion == "training" or data.n_rows > MERGED_ROWS):
                return data.with_normalized_weights(), one_target
            X, Y, weight = data.gather()
            y, device = Y[:, 0] if one_target else Y, getattr(data, "device", None)
        else:
            X, y = self._validate_arrays(X, y, sample_weight)
            check_ridge_parameters(self, *X.shape)
            weight, device = check_weights(sample_weight, X), self.device
        n_counted = len(X) if weight is None else int(np.count_nonzero(weight))
        exact = self._count_centers(n_counted) == n_counted
        if self.criterion != "training" and len(X) <= MERGED_ROWS and (exact or any_copies(X, y, weight)):
            X, y, weight = merge_copies(X, y, weight)
        elif exact:
            X, y, weight = merge_identical(X, y, weight)
        else:
            weight = normalize_weights(weight)
        return self._array_rows(X, y, weight, device), y.ndim == 1

    def _fit_rows(self, data: Rows, one_target: bool, rng: np.random.RandomState, began: float) -> None:
        deadline = began + (np.inf if self.time_limit is None else self.time_limit)
        kernel, solver = _kernel_with_gamma(self.kernel, self.gamma), get_solver(self.solver)
        rows, scaling = standardize(data, scale_features=self.scale_features, fit_intercept=self.fit_intercept)
        # Read the number of threads before entering blas_for, because blas_for may limit BLAS to one thread.
        n_threads, n_centers = self._n_threads, self._count_centers(rows.n_counted)
        with blas_for(n_centers):
            start = self._find_start(rows, kernel, solver, n_centers, scaling, rng, deadline, n_threads)
            centers = self._choose_centers(rows, n_centers, start.kernel, start.B, scaling, rng)
            objective = self._objective(rows, centers, start.kernel)
            try:
                result = run(
                    solver,
                    objective,
                    start.B,
                    max_iter=self.max_iter,
                    tol=self.tol,
                    time_limit=None if self.time_limit is None else deadline - time.perf_counter(),
                    callbacks=self.callbacks or (),
                    verbose=self.verbose,
                )
            except Interrupted as stop:
                self._store(stop.result, objective.kernel, objective.centers, scaling, one_target=one_target)
                raise FitInterrupted(self, stop) from None
        if result.reason in (StopReason.COLLAPSED, StopReason.NOT_FINITE):
            raise FitError(f"The fit stopped after {result.n_iter} iterations: {result.message}.")
        self._store(result, objective.kernel, objective.centers, scaling, one_target=one_target)
        solve, uncertainty = repeat_solve(rows, objective, result)
        self._store_uncertainty(uncertainty)
        self._set_diagnostics(diagnose(rows, objective, result, self._untruncated, start.counts, solve=solve))

    def _find_start(
        self,
        rows: Rows,
        kernel: Kernel,
        solver: Solver,
        n_centers: int,
        scaling: Moments,
        rng: np.random.RandomState,
        deadline: float,
        n_threads: int,
    ) -> _FoundStart:
        """Return the starting map of a fit: a given map, a classical estimate, or the best of several random maps.

        With L-BFGS, the best random maps are first optimized with decreasing values of lambda. The resulting map with
        the lowest objective is returned.
        """
        init, n_components, n_init, reg_lambda = self.init, self.n_components, self.n_init, self._first_lambda
        follow_path = isinstance(solver, LBFGS) and self.max_iter > 0

        def compute() -> _FoundStart:
            sample = starting_rows(rows, rng).on_threads(n_threads)
            if not isinstance(init, str):
                B = _check_init(init, n_components, scaling)
            elif init != "random":
                from hkrr.baselines.subspace_initialization import subspace_map  # slow to import

                B = subspace_map(init, sample, n_components, rng)
            else:
                shared: dict[str, Any] = {
                    "reg_lambda": reg_lambda,
                    "n_centers": n_centers,
                    "rng": rng,
                    "deadline": deadline,
                }
                starts, n_drawn = ranked_maps(sample, kernel, n_components=n_components, n_init=n_init, **shared)
                best = starts[0]
                if follow_path:
                    best = descend_lambda(rows.to_device(sample), starts, solver, **shared)
                return _FoundStart(*best, Starts(n_drawn, dropped=len(starts) - 1, failed=n_drawn - len(starts)))
            return _FoundStart(B, median_kernel(kernel, sample, B, rng), Starts())

        settings = (init, n_components, n_init, reg_lambda, n_centers, kernel, type(solver).__name__, follow_path)
        key = ("start", *settings, rows.n_rows, *rounded(scaling.x_mean, scaling.y_mean), digest(rng.get_state()))
        return _recorded_start(key, compute, kernel, (n_components, rows.n_features), rng, deadline)

    @property
    def _first_lambda(self) -> float:
        """The value of reg_lambda, or the initial value of lambda if lambda is learned."""
        return _FIRST_LAMBDA if isinstance(self.reg_lambda, str) else self.reg_lambda

    def _describe_lambda(self) -> str:
        return ", learned" if isinstance(self.reg_lambda, str) else ", given"

    def _describe_score(self) -> str:
        return f", final value {self.result_.objective:.5g}"

    def _count_centers(self, n_rows: int) -> int:
        if self.n_centers == "auto":
            return auto_size(n_rows, self._first_lambda)
        return n_rows if self.n_centers == "all" else min(self.n_centers, n_rows)

    def _choose_centers(
        self, rows: Rows, n_centers: int, kernel: Kernel, B: Array, scaling: Moments, rng: np.random.RandomState
    ) -> Array | None:
        """Return the centers in standardized coordinates, or None if all rows are centers."""
        if not isinstance(self.centers, str):
            return scaling.coordinates(check_matrix("centers", self.centers, rows.n_features))
        if n_centers == rows.n_counted:
            return None
        return draw_centers(self.centers, rows, n_centers, rng, B=B, kernel=kernel, t0=self._first_lambda)

    def _objective(self, rows: Rows, centers: Array | None, kernel: Kernel) -> Objective | Criterion:
        if self.criterion == "training":
            return Objective(rows, centers, kernel, self._first_lambda)
        return CRITERIA[self.criterion](rows, centers, kernel, self._first_lambda, self.reg_lambda == "auto")


def _kernel_with_gamma(kernel: str | Kernel, gamma: Literal["median"] | float) -> Kernel:
    """Return the kernel. If gamma is a number, the gamma of the kernel is set to that number."""
    kernel = get_kernel(kernel)
    if isinstance(gamma, str):
        return kernel
    if kernel.gamma not in (None, gamma):
        raise ValueError(
            f"gamma={gamma} conflicts with gamma={kernel.gamma} of the kernel: leave gamma at 'median', or pass a "
            "kernel without a gamma"
        )
    return kernel.with_gamma(gamma)


class _FoundStart(NamedTuple):
    """The starting map, the kernel with its gamma at that map, and the numbers of starting maps (see `Starts`)."""

    B: Array
    kernel: Kernel
    counts: Starts


def _check_init(init: Any, n_components: int, scaling: Moments) -> Array:
    """Check the array `init`, and convert it from the original units of X to standardized coordinates."""
    B = check_matrix("init", init, len(scaling.x_scale), n_components) * scaling.x_scale
    if np.linalg.matrix_rank(B) < n_components:
        raise ValueError(
            "init must have nonzero, linearly independent rows, because the solver cannot separate dependent "
            "directions: replace the dependent rows, or lower n_components"
        )
    return B


def _recorded_start(
    key: tuple[Any, ...],
    compute: Callable[[], _FoundStart],
    kernel: Kernel,
    shape: tuple[int, int],
    rng: np.random.RandomState,
    deadline: float,
) -> _FoundStart:
    """Return the starting map of a fit. If the checkpoint contains it, return the stored map, otherwise compute it.

    The map is stored in the journal of the checkpoint (`hkrr._base.resume_journal`) under the given key. The state of
    the random number generator after the computation is stored too, so that a resumed fit draws the same centers.
    """

    def values() -> tuple[Array, float | None, np.random.RandomState, Starts]:
        B, started, counts = compute()
        return B, started.gamma, copy.deepcopy(rng), counts

    def is_start(stored: Any) -> bool:
        B, gamma, after, counts = stored
        fits = isinstance(B, np.ndarray) and B.shape == shape
        counted = isinstance(counts, Starts) and all(type(one) is int for one in counts)
        return fits and counted and isinstance(after, np.random.RandomState) and (gamma is None or 0.0 < gamma < np.inf)

    B, gamma, after, counts = step(key, values, lambda _: time.perf_counter() < deadline, is_start)
    rng.set_state(after.get_state())
    return _FoundStart(B, kernel if gamma is None else kernel.with_gamma(gamma), counts)
