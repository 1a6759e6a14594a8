"""The two losses of the classifier. Each turns a regression into a calibrated score function.

The targets of the regression are class codes: the classes encoded as numbers.

`fit_squared` and `fit_logistic` take a `Task` and return a `ScoreFit`. Hyperparameters and the calibration are chosen
on held-out rows. (With more than 20,000 rows, `fit_squared` uses training rows instead.) The map of the regression was
learned from the held-out rows too. If the map is overfitted, it looks too good on these rows. A full map (any d x D
matrix) is therefore learned again without the held-out rows if there are few rows per entry of the map; see
`Task.regressor_without`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hkrr._base.linear_algebra import Array
from hkrr._base.progress_bar import progress_bar
from hkrr._base.threads import count_threads, single_threaded_blas
from hkrr._maps import Full, ShapeName, canonical_map, principal_form, square_map_is_affordable
from hkrr.estimators.classification.labels import class_codes, held_out_folds, one_hot
from hkrr.estimators.classification.logistic_objective import Coefficients, LogisticObjective
from hkrr.estimators.classification.logistic_path import Map, evenly_spaced, refined_maps
from hkrr.estimators.classification.logistic_solver import losses
from hkrr.estimators.classification.probability_calibration import Calibration, calibrate, expand_scores, probabilities
from hkrr.estimators.classification.score_function import ScoreFunction
from hkrr.estimators.fitted.diagnostics import fit_warnings_silenced
from hkrr.estimators.ridge_cv import HyperKernelRidgeCV
from hkrr.exceptions import FitError
from hkrr.objective import Objective
from hkrr.rows import InMemoryRows, Rows
from hkrr.rows.standardize import Moments, standardize

# Maximum number of centers of the logistic score function.
_MAX_CENTERS = 2_000
# Maximum number of rows that are used to choose hyperparameters and to calibrate.
MAX_ROWS = 20_000
# With fewer than this number of rows per entry of a full map (a d x D matrix), the map is learned again without the
# held-out rows.
_ROWS_PER_PARAMETER = 30
# With fewer than this number of rows in total, the map is not learned again.
_MIN_ROWS = 40
# The smallest directions of a square map (a full map with as many directions as columns) are dropped if together they
# contribute at most this fraction of the squared distances between mapped rows.
_NEGLIGIBLE_SHARE = 0.01
# The path of decreasing nu ends when this many consecutive values of nu do not improve the held-out loss.
_PATIENCE = 2


@dataclass(frozen=True)
class Task:
    """A regression that was fitted with the class codes as targets, and its training rows."""

    regressor: HyperKernelRidgeCV
    X: Array
    index: Array  # (n_samples,): index of the class of each row
    weight: Array | None  # a row of weight 2 has the same effect as two identical rows of weight 1
    n_classes: int
    deadline: float = np.inf  # time (of ``time.perf_counter``) by which the fit should be finished

    def rows(self, selected: Any, targets: Array) -> tuple[Rows, Moments]:
        """Return the selected rows with the given targets, in standardized coordinates, and the moments of the rows."""
        weight = None if self.weight is None else self.weight[selected]
        model = self.regressor
        n_threads = count_threads(model.n_jobs)
        data = InMemoryRows(self.X[selected], targets, weight, block_size=model.block_size, n_threads=n_threads)
        return standardize(data, scale_features=model.scale_features, fit_intercept=False)

    @property
    def total_weight(self) -> float:
        """The sum of the weights."""
        return float(len(self.X) if self.weight is None else np.sum(self.weight))

    def labels(self, selected: Any) -> Array:
        """Return the labels as 0 and 1: one column for each class, or only the second column for two classes."""
        codes = one_hot(self.index[selected], self.n_classes)
        return codes[:, 1:] if self.n_classes == 2 else codes

    def subsample(self) -> Task:
        """Return the task on a sample of 20,000 rows, or the task itself if it has at most 20,000 rows."""
        if len(self.X) <= MAX_ROWS:
            return self
        selected = np.random.RandomState(0).choice(len(self.X), MAX_ROWS, replace=False)
        weight = None if self.weight is None else self.weight[selected]
        return replace(self, X=self.X[selected], index=self.index[selected], weight=weight)

    def regressor_without(self, held_out: Array) -> HyperKernelRidgeCV:
        """Return the regression whose map is used to compute the scores of the held-out rows.

        The regression is fitted again without the held-out rows if its map is full, there are fewer than 30 rows per
        entry of the map but at least 40 rows in total, and the deadline has not passed. Otherwise the regression of the
        task is returned.
        """
        model, learn = self.regressor, ~held_out
        few = len(self.X) < _ROWS_PER_PARAMETER * model.map_.size
        late = time.perf_counter() > self.deadline
        if model.map_shape_ != ShapeName.FULL or not few or late or len(self.X) < _MIN_ROWS:
            return model
        other = HyperKernelRidgeCV(
            model.n_components_,
            kernel=model.kernel_,
            n_init=1,
            refit=model.refit,
            truncate=False,
            scale_features=model.scale_features,
            time_limit=None if model.time_limit is None else model.time_limit / 10,
            n_jobs=model.n_jobs,
            random_state=0,
        )
        with fit_warnings_silenced():
            return other.fit(
                self.X[learn],
                class_codes(self.index[learn], self.n_classes),
                None if self.weight is None else self.weight[learn],
            )


@dataclass(frozen=True)
class HeldOutCalibration:
    """A calibration, and the quality of its probabilities on the rows to which it was fitted."""

    link: Calibration
    log_loss: float
    accuracy: float


@dataclass(frozen=True)
class ScoreFit:
    """A calibrated score function, and its hyperparameters."""

    function: ScoreFunction
    singular_values: Array
    shape: ShapeName
    held_out: HeldOutCalibration
    softness: float | None = None
    nu: float | None = None


def fit_squared(task: Task) -> ScoreFit:
    """Return a calibrated score function whose scores are the outputs of the regression."""
    model = task.regressor
    alpha, b = model.dual_coef_.reshape(len(model.centers_), -1), np.atleast_1d(model.intercept_)
    function = ScoreFunction(model.kernel_, model.map_, model.centers_, alpha, b, model.x_offset_)
    sample = task.subsample()
    if sample is task:
        folds = held_out_folds(task.index)
        outputs = np.concatenate([_held_out_outputs(task, fold) for fold in _with_progress(task, folds)])
        found = _calibrate(task, folds, outputs, soft=True)
    else:
        # With more than 20,000 rows, a row hardly influences its own score, so the calibration can use training rows.
        all_rows = np.ones(len(sample.X), dtype=bool)
        outputs = function.of_rows(InMemoryRows(sample.X, np.empty((len(sample.X), 0))))
        found = _calibrate(sample, [all_rows], outputs, soft=True)
    calibrated, link = function.calibrated(found.link.slope, found.link.offsets), found.link
    return ScoreFit(calibrated, model.singular_values_, ShapeName(model.map_shape_), found, softness=link.softness)


def fit_logistic(task: Task) -> ScoreFit:
    """Return a calibrated score function whose map and scores are fitted by minimizing the logistic loss."""
    sample = task.subsample()
    folds = held_out_folds(sample.index)
    # Whether to learn a square map is decided once for all folds and the final fit, so that nu is chosen for maps of
    # the same shape as the final map.
    fewest = min(int(np.count_nonzero(~fold)) for fold in folds)
    rows = sample.rows(slice(None), sample.labels(slice(None)))[0].in_memory().count_free_columns()
    square = square_map_is_affordable(fewest, rows.n_free_columns, task.regressor.kernel_)
    paths = [_Path(sample, sample.regressor_without(fold), ~fold, fold, square) for fold in _with_progress(task, folds)]
    best, nu, n_worse = np.inf, np.inf, 0
    with progress_bar(shown=task.regressor.verbose, desc="held-out log loss", unit="nu") as bar:
        while n_worse < _PATIENCE and (nu == np.inf or time.perf_counter() < task.deadline):
            advanced = [path.advance() for path in paths]
            if not all(advanced):
                break
            loss = sum(path.loss for path in paths)
            best, nu, n_worse = (loss, paths[0].nu, 0) if loss < best else (best, nu, n_worse + 1)
            bar.update()
            bar.set_postfix(nu=f"{nu:.2g}", best=f"{best / sum(path.weight for path in paths):.4f}")
    final = _Path(task, task.regressor, slice(None), slice(0), square)
    while final.nu > nu and final.advance():
        pass
    if final.nu == np.inf:
        raise FitError(
            "The logistic loss cannot be evaluated at the initial map: use loss='squared', or a different kernel."
        )
    scores = np.concatenate([path.function(nu)[0].of_rows(path.held_out_rows) for path in paths])
    found = _calibrate(sample, folds, scores, soft=False)
    function, singular_values = final.function(final.nu)
    function = function.calibrated(found.link.slope, found.link.offsets)
    return ScoreFit(function, singular_values, final.shape, found, nu=final.nu)


LOSSES: dict[str, Callable[[Task], ScoreFit]] = {"logistic": fit_logistic, "squared": fit_squared}


def _with_progress(task: Task, folds: list[Array]) -> Iterable[Array]:
    """Return the folds, with a progress bar if `verbose` is set."""
    bar: Iterable[Array] = progress_bar(folds, shown=task.regressor.verbose, desc="held-out folds", unit="fold")
    return bar


def _calibrate(task: Task, folds: list[Array], scores: Array, soft: bool) -> HeldOutCalibration:
    """Return a calibration fitted to held-out scores, which are concatenated in the order of the folds."""
    held_out = np.concatenate([np.flatnonzero(fold) for fold in folds])
    weight = np.ones(len(held_out)) if task.weight is None else task.weight[held_out]
    index, scores = task.index[held_out], expand_scores(scores, soft)
    link = calibrate(scores, one_hot(index, task.n_classes), weight, soft)
    p = probabilities(link.linear(scores), link.softness)
    log_loss = -np.average(np.log(p[np.arange(len(p)), index]), weights=weight)
    accuracy = np.average(np.argmax(p, axis=1) == index, weights=weight)
    return HeldOutCalibration(link, float(log_loss), float(accuracy))


class _Path:
    """Maps and scores fitted to the training rows of a fold for decreasing nu, and their loss on the held-out rows."""

    def __init__(self, task: Task, start: HyperKernelRidgeCV, learn: Any, held_out: Any, square: bool) -> None:
        self._rows, self._scaling = task.rows(learn, task.labels(learn))
        self._labels = task.labels(held_out)
        self._weights = np.ones(len(self._labels)) if task.weight is None else task.weight[held_out]
        self.held_out_rows = InMemoryRows(task.X[held_out], self._labels)
        x_scale = np.where(self._scaling.constant, 0.0, self._scaling.x_scale)
        initial = Map.of(start.components_, start.kernel_, x_scale, ShapeName(start.map_shape_))
        # If the regression chose a scaled identity, the logistic loss may still find directions. A full square map is
        # then learned, starting from the scaled identity.
        self._square = square and start.map_shape_ == ShapeName.IDENTITY
        if self._square:
            # The rows of the square map that belong to constant columns are zero. They are removed, unless all columns
            # are constant in this fold.
            rows = np.any(initial.B, axis=1)
            initial = replace(initial, B=initial.B[rows] if np.any(rows) else initial.B, shape=Full())
        self._steps, self._maps = refined_maps(self._rows, initial, task.deadline), dict[float, Map]()
        self.weight = float(np.sum(self._weights))
        self.nu, self.loss, self.shape = np.inf, 0.0, initial.shape.name

    def advance(self) -> bool:
        """Fit the map and the scores for the next smaller nu. Return False if no nu is left, or if the fit fails."""
        with single_threaded_blas():
            found = next(self._steps, None)
        if found is None:
            return False
        self.nu, refined, objective, coefficients = found
        self._maps[self.nu] = refined
        if len(self._labels) > 0:
            scores = self._function(refined, objective.centers, coefficients)[0].of_rows(self.held_out_rows)
            self.loss = float(self._weights @ losses(scores, self._labels))
        return True

    def function(self, nu: float) -> tuple[ScoreFunction, Array]:
        """Return the score function for a nu that was already fitted, and the singular values of its map.

        The function has at most 2,000 centers.
        """
        refined = self._maps[nu]
        if self._square:
            refined = replace(refined, B=_drop_negligible_directions(refined.B))
        centers = evenly_spaced(self._rows.gather()[0], _MAX_CENTERS)
        with single_threaded_blas():
            coefficients = LogisticObjective(self._rows, centers, refined.kernel).solve(refined.B, nu)
        return self._function(refined, centers, coefficients)

    def _function(self, refined: Map, centers: Array, found: Coefficients) -> tuple[ScoreFunction, Array]:
        scaling = self._scaling
        B = np.where(scaling.constant, 0.0, refined.B)
        components, kernel, singular_values = canonical_map(B, refined.kernel, scaling.x_scale)
        centers = scaling.original(centers)
        return ScoreFunction(kernel, components, centers, found.alpha, found.intercept, scaling.x_mean), singular_values


def _drop_negligible_directions(B: Array) -> Array:
    """Return a map without its smallest directions, which contribute at most 1% of the squared latent distances."""
    with single_threaded_blas():
        B, s = principal_form(B)
    squares = s**2
    # Entry k is the sum of the squares that are dropped if k + 1 directions are kept.
    dropped = np.sum(squares) - np.cumsum(squares)
    return B[: 1 + int(np.argmax(dropped <= _NEGLIGIBLE_SHARE * np.sum(squares)))]


def _held_out_outputs(task: Task, held_out: Array) -> Array:
    """Return the outputs of the regression for held-out rows.

    Either the whole regression is fitted again without the held-out rows (see `Task.regressor_without`), or the map is
    kept and only the coefficients are fitted again.
    """
    model, learn = task.regressor_without(held_out), ~held_out
    if model is not task.regressor:
        return model.predict(task.X[held_out]).reshape(np.count_nonzero(held_out), -1)
    codes = class_codes(task.index, task.n_classes).reshape(len(task.X), -1)
    weight = None if task.weight is None else task.weight[learn]
    mean = np.average(codes[learn], axis=0, weights=weight)
    data = InMemoryRows(task.X[learn], codes[learn], weight, n_threads=count_threads(model.n_jobs))
    data = data.with_coordinates(model.x_offset_, None, mean)
    centers = None if len(model.centers_) >= len(task.X) else model.centers_ - model.x_offset_
    # The total weight W is smaller without the held-out rows. Lambda is increased to keep the noise level lambda W.
    reg_lambda = model.reg_lambda_ * task.total_weight / data.total_weight
    with single_threaded_blas():
        alpha = Objective(data, centers, model.kernel_, reg_lambda).solve_alpha(model.map_)
    points = model.centers_ if centers is not None else task.X[learn]
    function = ScoreFunction(model.kernel_, model.map_, points, alpha, mean, model.x_offset_)
    return function.of_rows(InMemoryRows(task.X[held_out], np.empty((np.count_nonzero(held_out), 0))))
