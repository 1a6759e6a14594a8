"""The two losses of a classifier: from a regression on codes to scores, and to probabilities, by rows held out.

Each is a function of a `Task` and returns `Found`. Where there are few rows for each parameter of the map, that is
learned anew without the rows held out: a map that has learned its rows by heart shows nothing of it on them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from hkrr._arrays import Array
from hkrr.canonical import canonical_map
from hkrr.classification.calibration import Calibration, calibrate, of_all_classes, probabilities
from hkrr.classification.classes import codes_of, one_hot, turns
from hkrr.classification.logistic import Coefficients, LogisticObjective
from hkrr.classification.logistic_path import Map, polished, spread
from hkrr.classification.logistic_solve import losses
from hkrr.classification.score_function import ScoreFunction
from hkrr.diagnostics import unannounced
from hkrr.exceptions import FitError
from hkrr.held_out import largest_directions
from hkrr.objective import Objective
from hkrr.rows import InMemoryRows, Rows
from hkrr.scaling import Moments
from hkrr.selection import HyperKernelRidgeCV
from hkrr.shapes import Full, square_is_affordable
from hkrr.threads import single_threaded_blas

_CENTERS = 2_000  # of the logistic scores at most
_ROWS = 20_000  # that are looked at to choose and to calibrate, at most
_ROWS_FOR_A_PARAMETER = 30  # of the map, below which it is learned anew without the rows held out
_FEWEST_ROWS = 40  # from which that can be
_LEAST_SHARE = 0.01
_PATIENCE = 2  # values of nu that may be worse than the best before the path ends


@dataclass(frozen=True)
class Task:
    """A regression on codes, and the rows that it was fitted on; weights are in units of rows."""

    regressor: HyperKernelRidgeCV
    X: Array
    index: Array
    weight: Array | None
    n_classes: int
    deadline: float = np.inf

    def rows(self, which: Any, targets: Array) -> tuple[Rows, Moments]:
        """Return some of the rows in the coordinates of the regression, their targets as they are."""
        weight = None if self.weight is None else self.weight[which]
        data = InMemoryRows(
            self.X[which], targets, weight, block_size=self.regressor.block_size, n_threads=self.regressor._n_threads
        )
        scaled, scaling = self.regressor._scaled(data)
        if not self.regressor.scale_features:
            return scaled.with_coordinates(None, None, None), scaling
        return scaled.with_coordinates(
            scaling.x_mean, np.where(scaling.constant, np.inf, scaling.x_scale), None
        ), scaling

    @property
    def total_weight(self) -> float:
        """The sum of the weights."""
        return float(len(self.X) if self.weight is None else np.sum(self.weight))

    def labels(self, which: Any) -> Array:
        """Return 0 or 1 for each class; of two classes, of the second."""
        found = one_hot(self.index[which], self.n_classes)
        return found[:, 1:] if self.n_classes == 2 else found

    def some(self) -> Task:
        """Return the task on 20,000 of the rows at most: itself, where these are no more."""
        if len(self.X) <= _ROWS:
            return self
        which = np.random.RandomState(0).choice(len(self.X), _ROWS, replace=False)
        weight = None if self.weight is None else self.weight[which]
        return replace(self, X=self.X[which], index=self.index[which], weight=weight)

    def without(self, held_out: Array) -> HyperKernelRidgeCV:
        """Return the regression on the other rows: learned anew where the map has many parameters for the rows."""
        model, learn = self.regressor, ~held_out
        few = len(self.X) < _ROWS_FOR_A_PARAMETER * model.components_.size
        late = time.perf_counter() > self.deadline
        if model.map_shape_ != "full" or not few or late or len(self.X) < _FEWEST_ROWS:
            return model
        again = HyperKernelRidgeCV(
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
        with unannounced():
            return again.fit(
                self.X[learn],
                codes_of(self.index[learn], self.n_classes),
                None if self.weight is None else self.weight[learn],
            )


@dataclass(frozen=True)
class HeldOut:
    """The calibration, and how good its probabilities are for the rows that it is by."""

    link: Calibration
    log_loss: float
    accuracy: float


@dataclass(frozen=True)
class Found:
    """A calibrated score function, and what was chosen for it."""

    function: ScoreFunction
    singular_values: Array
    shape: str
    held_out: HeldOut
    softness: float | None = None
    nu: float | None = None


def squared(task: Task) -> Found:
    """The regression's outputs as scores."""
    model = task.regressor
    alpha, b = model.dual_coef_.reshape(len(model.centers_), -1), np.atleast_1d(model.intercept_)
    function = ScoreFunction(model.components_, model.kernel_, model.x_offset_, model.centers_, alpha, b)
    few = task.some()
    if few is task:
        held_out = turns(task.index)
        outputs = np.concatenate([_outputs_without(task, part) for part in _shown(task, held_out)])
        found = _calibrated(task, held_out, outputs, soft=True)
    else:  # so many that a row's own part in its score is little
        everything = np.ones(len(few.X), dtype=bool)
        outputs = function.of(InMemoryRows(few.X, np.empty((len(few.X), 0))))
        found = _calibrated(few, [everything], outputs, soft=True)
    at, link = function.calibrated(found.link.slope, found.link.offsets), found.link
    return Found(at, model.singular_values_, model.map_shape_, found, softness=link.softness)


def logistic(task: Task) -> Found:
    """Map and scores by the logistic loss."""
    few = task.some()
    held_out = turns(few.index)
    # One answer for all: rows held out say nothing of a map of another shape.
    fewest = min(int(np.count_nonzero(~part)) for part in held_out)
    square = square_is_affordable(fewest, task.X.shape[1], task.regressor.kernel_)
    paths = [_Path(few, few.without(part), ~part, part, square) for part in _shown(task, held_out)]
    best, nu, worse = np.inf, np.inf, 0
    with tqdm(disable=not task.regressor.verbose, desc="log loss, held out", unit="nu") as bar:
        while worse < _PATIENCE and (nu == np.inf or time.perf_counter() < task.deadline):
            gone_on = [path.go_on() for path in paths]
            if not all(gone_on):
                break
            loss = sum(path.loss for path in paths)
            best, nu, worse = (loss, paths[0].nu, 0) if loss < best else (best, nu, worse + 1)
            bar.update()
            bar.set_postfix(nu=f"{nu:.2g}", best=f"{best / sum(path.weight for path in paths):.4f}")
    last = _Path(task, task.regressor, slice(None), slice(0), square)
    while last.nu > nu and last.go_on():
        pass
    if last.nu == np.inf:
        raise FitError("The logistic loss cannot be evaluated at the map found: use loss='squared', or another kernel.")
    scores = np.concatenate([path.function(nu)[0].of(path.fresh) for path in paths])
    found = _calibrated(few, held_out, scores, soft=False)
    function, singular_values = last.function(last.nu)
    function = function.calibrated(found.link.slope, found.link.offsets)
    return Found(function, singular_values, last.shape, found, nu=last.nu)


def _shown(task: Task, held_out: list[Array]) -> Iterable[Array]:
    """Return the turns, with a bar where that is wanted."""
    turns: Iterable[Array] = tqdm(held_out, disable=not task.regressor.verbose, desc="rows held out", unit="turn")
    return turns


def _calibrated(task: Task, held_out: list[Array], scores: Array, soft: bool) -> HeldOut:
    """Return the calibration of the scores of rows held out, those of one turn after those of another."""
    which = np.concatenate([np.flatnonzero(part) for part in held_out])
    weight = np.ones(len(which)) if task.weight is None else task.weight[which]
    index, scores = task.index[which], of_all_classes(scores, soft)
    link = calibrate(scores, one_hot(index, task.n_classes), weight, soft)
    p = probabilities(link.linear(scores), link.softness)
    log_loss = -np.average(np.log(p[np.arange(len(p)), index]), weights=weight)
    return HeldOut(link, float(log_loss), float(np.average(np.argmax(p, axis=1) == index, weights=weight)))


LINKS: dict[str, Callable[[Task], Found]] = {"logistic": logistic, "squared": squared}


class _Path:
    """The path of nu on some rows, and what it says of others."""

    def __init__(self, task: Task, start: HyperKernelRidgeCV, learn: Any, last: Any, square: bool) -> None:
        self._task, self._last = task, last
        self._rows, self._scaling = task.rows(learn, task.labels(learn))
        self._labels = task.labels(last)
        self._weights = np.ones(len(self._labels)) if task.weight is None else task.weight[last]
        self.fresh = InMemoryRows(task.X[last], self._labels)
        x_scale = np.where(self._scaling.constant, 0.0, self._scaling.x_scale)
        begin = Map.of(start.components_, start.kernel_, x_scale, start.map_shape_)
        # Where the regression found no direction that stands out, the logistic loss may: from all of them alike.
        self._square = square and start.map_shape_ == "identity"
        if self._square:
            begin = replace(begin, shape=Full())
        self._steps, self._maps = polished(self._rows, begin, task.deadline), dict[float, Map]()
        self.weight = float(np.sum(self._weights))
        self.nu, self.loss, self.shape = np.inf, 0.0, begin.shape.name

    def go_on(self) -> bool:
        """Take the next nu; return whether there was one."""
        with single_threaded_blas():
            found = next(self._steps, None)
        if found is None:
            return False
        self.nu, at, objective, coefficients = found
        self._maps[self.nu] = at
        if len(self._labels) > 0:
            scores = self._function(at, objective.centers, coefficients)[0].of(self.fresh)
            self.loss = float(self._weights @ losses(scores, self._labels))
        return True

    def function(self, nu: float) -> tuple[ScoreFunction, Array]:
        """Return the score function at that nu, and the singular values of its map."""
        at = self._maps[nu]
        if self._square:
            at = replace(at, B=_without_the_least(at.B))
        centers = spread(self._rows.gather()[0], _CENTERS)
        with single_threaded_blas():
            coefficients = LogisticObjective(self._rows, centers, at.kernel).solve(at.B, nu)
        return self._function(at, centers, coefficients)

    def _function(self, at: Map, centers: Array, found: Coefficients) -> tuple[ScoreFunction, Array]:
        scaling = self._scaling
        B = np.where(scaling.constant, 0.0, at.B)
        components, kernel, singular_values = canonical_map(B, at.kernel, scaling.x_scale)
        raw = centers * scaling.x_scale + scaling.x_mean
        return ScoreFunction(components, kernel, scaling.x_mean, raw, found.alpha, found.intercept), singular_values


def _without_the_least(B: Array) -> Array:
    """Return a map without its least directions, those that together make a hundredth of the squared distances."""
    squares = np.linalg.svd(B, compute_uv=False) ** 2
    beyond = np.sum(squares) - np.cumsum(squares)  # what is left out with so many directions
    return largest_directions(B, 1 + int(np.argmax(beyond <= _LEAST_SHARE * np.sum(squares))))


def _outputs_without(task: Task, held_out: Array) -> Array:
    """Return the regression's outputs for rows held out: of one learned without them, or at the same map."""
    model, learn = task.without(held_out), ~held_out
    if model is not task.regressor:
        return model.predict(task.X[held_out]).reshape(np.count_nonzero(held_out), -1)
    codes = codes_of(task.index, task.n_classes).reshape(len(task.X), -1)
    weight = None if task.weight is None else task.weight[learn]
    mean = np.average(codes[learn], axis=0, weights=weight)
    data = InMemoryRows(task.X[learn], codes[learn], weight, n_threads=model._n_threads)
    data = data.with_coordinates(model.x_offset_, None, mean)
    centers = None if len(model.centers_) >= len(task.X) else model.centers_ - model.x_offset_
    # The same noise, lambda W, of fewer rows.
    reg_lambda = model.reg_lambda_ * task.total_weight / data.total_weight
    with single_threaded_blas():
        alpha = Objective(data, centers, model.kernel_, reg_lambda).solve_alpha(model.components_)
    points = model.centers_ if centers is not None else task.X[learn]
    function = ScoreFunction(model.components_, model.kernel_, model.x_offset_, points, alpha, mean)
    return function.of(InMemoryRows(task.X[held_out], np.empty((np.count_nonzero(held_out), 0))))
