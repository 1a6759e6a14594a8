"""HyperKernelRidge: the scikit-learn estimator. It validates, assembles, solves and stores; the maths is elsewhere."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from typing import Any, Literal, Self

import numpy as np

from hkrr._arrays import Array
from hkrr._model import MapModel
from hkrr._validation import check_parameters
from hkrr.centers import auto_size
from hkrr.checkpoints import checkpointing, left_as_it_was
from hkrr.examination import diagnose
from hkrr.exceptions import FitError
from hkrr.kernels import Kernel
from hkrr.opening import is_elsewhere
from hkrr.rows import Rows
from hkrr.samples import any_identical, check_weights, in_units_of_rows, merge_identical
from hkrr.solvers import Callback, Interrupted, Solver, get_solver, run
from hkrr.solves import solved_again
from hkrr.starting import centers_of, kernel_of, objective_of, starting_point
from hkrr.threads import blas_for

_FIRST_LAMBDA = 1e-3  # where it begins when it is learned
# Rows up to which repeated ones are looked for, where they count; data that are elsewhere are brought here for that.
_MERGED_ROWS = 20_000


class HyperKernelRidge(MapModel):
    """Hyper-kernel ridge regression: kernel ridge regression on a learned linear map of the inputs.

    Learns a map B of d rows and a function g together, so that ``g(Bx)`` predicts y: the minimiser of

        ``L(B, a) = sum_i w_i |sum_j a_j k(B x_i, B c_j) - y_i|^2 / sum_i w_i  +  lambda a' K_cc a``

    over B and the coefficients a of the kernels at the centers c_j. For targets that depend on many inputs through a
    few unknown directions (multi-index models).

    Parameters
    ----------
    n_components : int, default=2
        Number of directions d, the rows of B.
    reg_lambda : float or "auto", default=1e-3
        The paper's lambda, per sample: scikit-learn's KernelRidge calls ``lambda * n_samples`` alpha. "auto" learns it
        together with B, where the criterion can: "evidence" or "loo".
    kernel : str or Kernel, default="gaussian"
        The mother kernel k, a name of `hkrr.kernels.KERNELS` or an instance, as ``Matern(nu=2.5)``.
    gamma : "median" or float, default="median"
        Scale of the kernel, which belongs to the starting map: of spectral norm 1 in standardised coordinates, or
        `init`. "median" sets it to ``1 / (2 median^2)`` with the median distance between mapped rows (a kernel
        instance's own gamma, where it has one, is kept).
    n_centers : "auto", "all" or int, default="auto"
        Number of Nystrom centers. "auto" takes ``1 / reg_lambda`` (1,000 where lambda is learned), the order of the
        paper's Nystrom theorem, between 100 and 2,896 (by memory), or all rows where there are fewer. "all" takes every
        row: exact, cubic in the rows.
    centers : "uniform", "leverage", "kmeans" or array (n_centers, n_features), default="uniform"
        Rows drawn uniformly, rows drawn by approximate leverage scores at the starting map, centroids, or given points
        (then `n_centers` must be left at "auto").
    criterion : {"training", "evidence", "loo"}, default="training"
        What B is chosen by: the training objective above (the paper's), the evidence of the equivalent Gaussian
        process, or the leave-one-out error; see `hkrr.criteria`. The last two resist overfitting the map, cost several
        times as much an iteration, and need the solver "lbfgs".
    solver : "lbfgs", "varpro", "agd" or a solver, default="lbfgs"
        L-BFGS on the reduced function, or the paper's algorithms; see `hkrr.solvers`.
    init : "random", "sir", "save", "phd", "opg", "mave" or array (n_components, n_features), default="random"
        "random" samples `n_init` maps and scores them on held-out rows. VarPro and AGD start from the best, as in the
        paper; L-BFGS leads the best four down a path of lambda from 0.1 to `reg_lambda`, ten iterations at each half
        decade, and starts from the lowest (these iterations are not part of `max_iter` or ``history_``). "sir" to
        "mave" start from that estimate of the subspace (see `hkrr.baselines`): one start instead of many, as good as
        that estimate ("opg" and "mave" assume least). An array is a map to start from, in the coordinates of X; to go
        on from a fit, pass its ``components_``, and ``gamma_`` too.
    n_init : int, default=10
        Maps sampled by ``init="random"``.
    fit_intercept : bool, default=True
        Whether to centre y.
    scale_features : bool, default=True
        Whether to standardise the columns during optimisation. The scaling is folded back into ``components_``.
    max_iter : int, default=200
        Iterations of the solver at most.
    tol : float, default=1e-6
        The solver has converged when the norm of its gradient is at most ``tol`` times the variance of y (for the
        evidence, which has no units, ``tol`` itself).
    time_limit : float or None, default=None
        Seconds that the fit may take; the best map so far is kept.
    block_size : "auto" or int, default="auto"
        Rows computed at once; "auto" suits the processor's cache, or the device's memory.
    device : torch device, str or None, default=None
        Where the passes over the rows run: None is NumPy, or the device of a tensor X; "cuda" a GPU, through PyTorch
        (with Dask, that of each worker). Files are computed on the processor.
    n_jobs : int or None, default=None
        Threads for the passes over the rows. None takes as many as BLAS would, -1 one for each processor. (Devices, and
        the workers of a cluster, have their own.)
    callbacks : list of callables or None, default=None
        Each is called with a `hkrr.solvers.State` after every iteration; one that returns True ends the fit.
    verbose : int, default=0
        Above 0: a progress bar.
    random_state : int, RandomState or None, default=None
        Seed of the sampled maps, the held-out rows and the centers.
    checkpoint : str, path or None, default=None
        A file to keep the state of the fit in. However a fit is broken off, the same call goes on from there, and ends
        with the same model; Ctrl-C then also leaves the best model so far in the estimator. See docs/checkpoints.md.
    checkpoint_every : float, default=60
        Seconds between two writes of that file.

    Attributes
    ----------
    components_ : array (n_components, n_features)
        The map B, of spectral norm 1, in the coordinates of X. For kernels that no rotation changes, its rows are
        orthogonal in the coordinates of the optimisation, the most important first.
    singular_values_ : array (n_components,)
        Singular values of the map in the coordinates of the optimisation, divided by the largest: the weights of its
        directions.
    gamma_ : float
        Scale of the kernel that goes with ``components_``.
    kernel_ : Kernel
        The kernel, with that scale.
    centers_ : array (n_centers, n_features)
    x_offset_ : array (n_features,)
        What is subtracted from X before the map: the column means, or zero. Only the polynomial kernel notices.
    dual_coef_ : array (n_centers,) or (n_centers, n_targets)
    intercept_ : float or array (n_targets,)
        Predictions are ``kernel_((X - x_offset_) @ components_.T, (centers_ - x_offset_) @ components_.T) @ dual_coef_
        + intercept_``.
    reg_lambda_ : float
        Lambda, as given or learned.
    n_iter_ : int
        Iterations of the solver (1 where none was needed).
    result_ : Result
        The end of the run: ``result_.reason`` is "converged" (the gradient is below `tol`), "stalled" (no step lowers
        the objective any more), "max_iter", "time_limit", "callback" or "interrupted"; ``result_.objective`` is the
        last value.
    history_ : dict of lists
        "time" (seconds), "objective", "grad_norm" and "step" (the step size of VarPro and AGD, the length of the move
        of L-BFGS), one entry for each iteration and the start.
    diagnostics_ : Diagnostics
        The health of the fit, to be printed; see `hkrr.diagnostics`.
    prior_variance_, noise_variance_ : float or array (n_targets,)
        Of the equivalent Gaussian process: of the function (times k(x, x)), and of the noise; see `hkrr.posterior`.
    interval_scores_ : array (n_scores,) or (n_scores, n_targets)
        How far off the rows left out are, for `predict_interval`; see `hkrr.conformal`.
    posterior_factor_, center_weight_ : arrays, where not all rows are centers, and where these have weights
    feature_importances_, n_features_in_, feature_names_in_
        How far each column moves the prediction (see `hkrr.importance`); the others are as everywhere in scikit-learn.

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
        """Learn the map and the function.

        Parameters
        ----------
        X : array or data frame (n_samples, n_features)
            Or a tensor; a path, or a list of paths, of Parquet, CSV or .npy files; a function that gives blocks (X, y),
            the same each time it is called; a Dask array or data frame.
        y : array (n_samples,) or (n_samples, n_targets)
            Several targets share one map, and count by their variances: standardise them to count alike. For files the
            name or the index of a column; nothing where X gives blocks; for a Dask data frame a name or a collection.
        sample_weight : array or tensor (n_samples,) or None

        Returns
        -------
        self

        Raises
        ------
        ValueError
            For data or parameters that cannot be; the message names the argument and the remedy.
        FitError
            Where the optimisation leaves no sound model: numbers too large to square, or a map that collapses.
        CheckpointError
            Where `checkpoint` is damaged, in use, or belongs to another fit.
        """
        began = time.perf_counter()
        with left_as_it_was(self), np.errstate(over="ignore", divide="ignore", invalid="ignore"):  # told of in words
            data, one_target = (self._opened if is_elsewhere(X) else self._in_memory)(X, y, sample_weight)
            with checkpointing(self, data) as rng:
                self._learn(data, one_target, rng, began)
        return self

    def _learn(self, data: Rows, one_target: bool, rng: np.random.RandomState, began: float) -> None:
        deadline = began + (np.inf if self.time_limit is None else self.time_limit)
        kernel, solver = kernel_of(self), get_solver(self.solver)
        rows, scaling = self._scaled(data)
        n_threads = self._n_threads  # of BLAS, before it is held at one

        with blas_for(self._n_centers(rows.n_counted)):
            B, kernel, starts = starting_point(self, rows, kernel, solver, scaling, rng, deadline, n_threads)
            objective = objective_of(self, rows, centers_of(self, rows, kernel, B, scaling, rng), kernel)
            told: dict[str, Any] = {"callbacks": self.callbacks or (), "verbose": self.verbose}
            limit = None if self.time_limit is None else deadline - time.perf_counter()
            try:
                result = run(solver, objective, B, max_iter=self.max_iter, tol=self.tol, time_limit=limit, **told)
            except Interrupted as stop:
                self._store(stop.result, objective.kernel, objective.centers, scaling, one_target=one_target)
                stop.model = self
                raise
        if result.reason in ("collapsed", "not_finite"):
            raise FitError(f"The fit stopped after {result.n_iter} iterations: {result.message}.")
        self._store(result, objective.kernel, objective.centers, scaling, one_target=one_target)
        solve, sure = solved_again(rows, objective, result)
        self._keep_uncertainty(sure)
        self._examine(diagnose(rows, objective, result, self._uncut, starts, solve=solve))

    def _opened(self, X: Any, y: Any, sample_weight: Any) -> tuple[Rows, bool]:
        """Return the rows; what may have to be merged, as arrays are."""
        data, one_target = super()._opened(X, y, sample_weight)
        check_parameters(self, data.n_rows, data.n_features)
        exact = self._n_centers(data.n_counted) == data.n_counted
        if exact or (self.criterion != "training" and data.n_rows <= _MERGED_ROWS):
            X, Y, weight = data.gather()
            return self._merged(X, Y[:, 0] if one_target else Y, weight, getattr(data, "device", None))
        return data.in_units_of_rows(), one_target

    def _in_memory(self, X: Any, y: Any, sample_weight: Any) -> tuple[Rows, bool]:
        X, y = self._validated(X, y, sample_weight)
        check_parameters(self, *X.shape)
        return self._merged(X, y, check_weights(sample_weight, X), self.device)

    def _merged(self, X: Array, y: Array, weight: Array | None, device: Any) -> tuple[Rows, bool]:
        """Return the rows of arrays; where all become centers, each sample once."""
        n_counted = len(X) if weight is None else int(np.count_nonzero(weight))
        few = self.criterion != "training" and len(X) <= _MERGED_ROWS
        if self._n_centers(n_counted) == n_counted or (few and any_identical(X, y)):
            X, y, weight = merge_identical(X, y, weight)
        else:
            weight = in_units_of_rows(weight)
        return self._in_blocks(X, y, weight, device), y.ndim == 1

    @property
    def _lambda(self) -> float:
        """Lambda, or where it begins when it is learned."""
        return _FIRST_LAMBDA if isinstance(self.reg_lambda, str) else self.reg_lambda

    def _n_centers(self, n_rows: int) -> int:
        if self.n_centers == "auto":
            return auto_size(n_rows, self._lambda)
        return n_rows if self.n_centers == "all" else min(self.n_centers, n_rows)
