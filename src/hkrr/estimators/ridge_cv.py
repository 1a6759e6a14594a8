"""HyperKernelRidgeCV: lambda, the number of directions and the map, chosen by themselves."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from copy import copy
from typing import Any, Literal, Self

import joblib
import numpy as np

from hkrr._arrays import Array
from hkrr._model import MapModel
from hkrr._validation import check_search
from hkrr.candidates import Candidate, path_table
from hkrr.checkpoints import checkpointing, left_as_it_was
from hkrr.criteria import CRITERIA
from hkrr.examination import of_search
from hkrr.grid import fit_on_grid, largest_target
from hkrr.kernels import KERNELS, Kernel, get_kernel
from hkrr.last_fit import TimeLeft, full_size, last_fit, quick_fit
from hkrr.opening import is_elsewhere
from hkrr.progress import Report, SearchCallback
from hkrr.rows import Rows
from hkrr.samples import any_identical, check_weights, each_once, in_units_of_rows, merge_identical
from hkrr.solvers import LBFGS, Interrupted, get_solver
from hkrr.tuning import SAMPLE_ROWS, Task, tune

_ROOM = 2.0  # that predictions have beyond the largest target
_LAST_PASSES = 3  # over the rows, by the last fit: centers, squares, sums


class HyperKernelRidgeCV(MapModel):
    """Hyper-kernel ridge regression that tunes itself.

    By default the map, lambda and the scale of the kernel are chosen by the evidence of the equivalent Gaussian
    process, all of them at once and without held-out data, and the number of directions by a BIC on it; see
    `hkrr.search`. Plain kernel ridge regression on all inputs is one of the candidates. With ``criterion="training"``
    and `cv` it is the paper's rule: the pair (d, lambda) of least truncated held-out error over a grid.

    Parameters
    ----------
    n_components : "auto", int or list of int, default="auto"
        Numbers of directions to choose from; "auto" goes on while more may help (with `cv`, up to 10).
    criterion : {"evidence", "loo", "training"}, default="evidence"
        What the map is chosen by.
    cv : None, "holdout", int or splitter, default=None
        None chooses by the criterion itself. Otherwise the number of directions, and lambda where it is not learned,
        are those of least held-out error; with ``criterion="training"`` that is the paper's rule. "holdout" holds out a
        quarter of the rows, once.
    reg_lambdas : "auto" or list of float, default="auto"
        The grid of lambda that goes with `cv`; "auto" is 1e-1, 1e-2, ..., 1e-6 for ``criterion="training"``, and
        learns lambda otherwise.
    warm_start : bool, default=False
        With `cv`: start each lambda of the grid from the map of the one above it.
    solver : {"lbfgs", "varpro", "agd"} or a solver, default="lbfgs"
        With `cv`: what fits each pair. Without, it is L-BFGS.
    kernel : str, Kernel or "auto", default="gaussian"
        Without `cv` its gamma is learned, whatever it was. "auto" (without `cv`) chooses among several kernels, and
        among identity, diagonal and full maps, by the same score: for tables whose columns each mean something.
    truncate : bool, default=True
        Whether predictions are cut at M in absolute value (the paper's T_M).
    n_init : int, default=4
        Random starts for each number of directions.
    refit : "full" or int, default="full"
        Centers of the last fit, on all rows: "full" takes every row up to 5,000 of them, 2,000 beyond (10,000 and 4,000
        with ``kernel="auto"``; with `cv`, as many as ``HyperKernelRidge(n_centers="auto")``).
    time_limit : float or None, default=None
        Seconds for all of it, without `cv`: the search ends in time for a last fit of the best model so far, which has
        fewer centers where even that would take too long.
    fit_intercept, scale_features, block_size, device, verbose, random_state
        As in `HyperKernelRidge`. The search is on the processor, on at most 20,000 rows; the last fit is on the device.
    n_jobs : int or None, default=None
        Parallel starts (or grid points), through joblib; the model is the same for every number.
    checkpoint, checkpoint_every : as in `HyperKernelRidge`. After Ctrl-C the coefficients are from few centers.
    callbacks : list of callables or None, default=None
        Without `cv`: each is called with a `hkrr.progress.SearchState` when something else is tried or something better
        was found; one that returns True ends the search, with a last fit of the best so far.

    Attributes
    ----------
    n_components_, reg_lambda_ : chosen
    map_shape_ : {"full", "diagonal", "identity"}
        Without `cv`, the shape of the map: "identity" is plain kernel ridge regression.
    best_score_ : float
        The score chosen by: BIC in nats (with ``kernel="auto"`` that of the last stage), or the held-out mean squared
        error. Lower is better.
    path_ : dict of lists
        Without `cv`, the story of the search, one entry for each run: "start", "kernel", "shape" (of the map),
        "n_components", "reg_lambda", "gamma" (for a map of norm 1 in standardised coordinates), "criterion", "score",
        "seconds". Scores compare within a stage: "polished", "compared" and "plain", what was run on "half" the
        groups, the finalists, and "rescaled" each see other rows than those before them. A pandas.DataFrame can be made
        of it.
    cv_results_ : dict of arrays
        With `cv`: every pair, its error on each split, the mean and the standard deviation.
    truncation_ : float or array
        M: the largest absolute target seen; without `cv`, twice that, since of few rows a good model goes beyond them.
    components_, gamma_, kernel_, centers_, dual_coef_, singular_values_, diagnostics_, feature_importances_, ...
        As in `HyperKernelRidge`.

    Examples
    --------
    >>> from hkrr import HyperKernelRidgeCV
    >>> from hkrr.datasets import make_mim_sines
    >>> data = make_mim_sines(600, n_features=10, n_components=2, random_state=0)
    >>> model = HyperKernelRidgeCV(random_state=0).fit(data.X[:300], data.y[:300])
    >>> model.n_components_, model.score(data.X[300:], data.y[300:]) > 0.97
    (2, True)
    """

    def __init__(
        self,
        n_components: Any = "auto",
        *,
        criterion: Literal["evidence", "loo", "training"] = "evidence",
        cv: Any = None,
        reg_lambdas: Any = "auto",
        warm_start: bool = False,
        solver: Any = "lbfgs",
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
        """Choose, and learn.

        Parameters
        ----------
        X, y, sample_weight : as in `HyperKernelRidge.fit`
            With `cv`, arrays or data frames.

        Returns
        -------
        self
        """
        with left_as_it_was(self), np.errstate(over="ignore", divide="ignore", invalid="ignore"):  # told of in words
            return self._fit(X, y, sample_weight, time.perf_counter())

    def _fit(self, X: Any, y: Any, sample_weight: Any, began: float) -> Self:
        device = self.device
        if is_elsewhere(X):
            data, one_target = self._opened(X, y, sample_weight)
            device = getattr(data, "device", None)
            if self.cv is not None:
                raise ValueError("cv goes with arrays and data frames in memory: leave it at None for other data")
            self._forget()
            if data.n_rows > SAMPLE_ROWS:
                largest = data.largest_targets()
                self.truncation_ = _ROOM * (float(largest[0]) if one_target else largest)
                return self._fit_rows(data.in_units_of_rows(), one_target, self._check(data.n_features), began)
            X, Y, sample_weight = data.gather()
            y = Y[:, 0] if one_target else Y
        else:
            X, y = self._validated(X, y, sample_weight)
        dimensions = self._check(X.shape[1])
        weight = check_weights(sample_weight, X)
        counted = slice(None) if weight is None else weight > 0
        self._forget()
        self.truncation_ = largest_target(y[counted])
        if self.cv is not None:
            fit_on_grid(self, X, y, weight, dimensions)
            return self
        self.truncation_ *= _ROOM
        if weight is not None and np.any(weight == 0):
            X, y, weight = X[counted], y[counted], weight[counted]
        return self._fit_search(X, y, weight, device, dimensions, began)

    def _forget(self) -> None:
        """Remove what an earlier fit of the other kind has left."""
        for name in ("cv_results_", "path_", "map_shape_"):
            if hasattr(self, name):
                delattr(self, name)

    def _cut(self, predicted: Array) -> Array:
        """Return the predictions, cut at ``truncation_`` in absolute value where `truncate` is set."""
        return np.clip(predicted, -self.truncation_, self.truncation_) if self.truncate else predicted

    @property
    def _any_kernel(self) -> bool:
        return isinstance(self.kernel, str) and self.kernel == "auto"

    def _check(self, n_features: int) -> list[int]:
        if not self._any_kernel:
            get_kernel(self.kernel)
        elif self.cv is not None:
            raise ValueError("kernel='auto' chooses by the criterion: it goes with cv=None; give cv one kernel")
        if not isinstance(get_solver(self.solver), LBFGS) and self.cv is None:
            raise ValueError("solver goes with cv: without, the map and lambda are learned together, by L-BFGS")
        return check_search(self, n_features)

    def _fit_search(
        self, X: Array, y: Array, weight: Array | None, device: Any, dimensions: list[int], began: float
    ) -> Self:
        if self._last_centers(len(X)) == len(X) or (len(X) <= SAMPLE_ROWS and any_identical(X, y)):
            X, y, weight = merge_identical(X, y, weight)
        else:
            weight = in_units_of_rows(weight)
        return self._fit_rows(self._in_blocks(X, y, weight, device), y.ndim == 1, dimensions, began)

    def _last_centers(self, n_rows: int) -> int:
        """Return the number of centers of the last fit."""
        return full_size(n_rows, not self._any_kernel) if self.refit == "full" else min(self.refit, n_rows)

    def _fit_rows(self, data: Rows, one_target: bool, dimensions: list[int], began: float) -> Self:
        """Search on some of the rows, and fit the coefficients on all of them, wherever they are."""
        with checkpointing(self, data) as rng:
            return self._search(data, one_target, dimensions, rng, began)

    def _search(
        self, data: Rows, one_target: bool, dimensions: list[int], rng: np.random.RandomState, began: float
    ) -> Self:
        kernel = None if self._any_kernel else get_kernel(self.kernel).with_gamma(1.0)
        opened = time.perf_counter()
        rows, scaling = self._scaled(data)
        reading = _LAST_PASSES * (time.perf_counter() - opened) / 2  # of the last fit; the moments take two passes
        n_centers = self._last_centers(rows.n_rows)
        sample = rows.in_memory() if rows.n_rows <= SAMPLE_ROWS else each_once(rows.subset(rows.draw(SAMPLE_ROWS, rng)))
        sample = sample.on_threads(self._n_threads)
        likely = KERNELS["product_matern32"] if kernel is None else kernel
        time_left = TimeLeft(rows, self.time_limit, began, reading, self._n_threads)

        def quickly(found: Candidate) -> MapModel:
            (objective, result), model = quick_fit(sample, found, how_sure=False)[:2], copy(self)
            model._store(result, found.kernel, objective.centers, scaling, one_target=one_target)
            return model

        report = Report(self.callbacks or (), began, quickly)
        interrupted = None
        task = Task(
            sample,
            CRITERIA[self.criterion],
            dimensions,
            stands_for=rows.total_weight,
            choose_dimension=isinstance(self.n_components, str),
            n_starts=self.n_init,
            rng=rng,
            n_jobs=self.n_jobs,
            n_threads=self._n_threads if joblib.effective_n_jobs(self.n_jobs) == 1 else 1,
            deadline=time_left.deadline(likely, n_centers),
            verbose=self.verbose,
            report=report,
        )
        try:
            winner, result, ends = tune(task, kernel)
            n_centers = time_left.n_centers(winner.kernel, n_centers)
            report.trying("the last fit, on all rows", last=True)
            objective, result, solve, sure = last_fit(rows, winner, result, n_centers, rng)
        except KeyboardInterrupt as stop:
            if self.checkpoint is None or not report.best:
                raise
            interrupted, winner, ends = stop, report.best[-1], report.best[-1:]
            try:
                objective, result, solve, sure = quick_fit(sample, winner)
            except (ArithmeticError, np.linalg.LinAlgError):  # no model; what was asked for is to stop
                raise stop from None
        self._store(result, winner.kernel, objective.centers, scaling, one_target=one_target)
        self._keep_uncertainty(sure)
        self.n_components_, self.best_score_ = winner.n_components, winner.score
        self.map_shape_ = winner.shape.name
        self.path_ = path_table(ends, rows.total_weight)
        if interrupted is not None:
            raise Interrupted(result, self) from None
        self._examine(of_search(self, rows, objective, result, winner, ends, solve))
        return self
