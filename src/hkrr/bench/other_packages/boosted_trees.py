"""Boosted trees: CatBoost, LightGBM and XGBoost, each with its number of trees by early stopping."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from hkrr._arrays import Array
from hkrr.bench.methods import Method, Setting, Task, log_uniform, tuned

_MOST_TREES, _PATIENCE = 5000, 100
_SHARE = 0.4  # of the seconds, that one growth may take
# Rows and targets to stop by.
Judge = tuple[Array, Array]
Grow = Callable[[Any, Array, Array, Judge, float], int]


class Boosted:
    """Trees until rows that are judged by gain no more, or the time is over; then all rows with as many."""

    def __init__(self, task: Task, make: Callable[[int], Any], grow: Grow) -> None:
        self.task, self.make, self.grow = task, make, grow

    def judge(self, X: Array, y: Array, X_judge: Array, y_judge: Array) -> float:
        """Find the number of trees, and return the error with them."""
        model = self.make(_MOST_TREES)
        deadline = time.perf_counter() + _SHARE * self.task.seconds
        self.n_trees = max(1, self.grow(model, X, y, (X_judge, y_judge), deadline))
        return float(np.mean((np.asarray(model.predict(X_judge)) - y_judge) ** 2))

    def fit(self, X: Array, y: Array) -> Boosted:
        """Fit all rows."""
        self.model = self.make(self.n_trees).fit(X, y)
        return self

    def predict(self, X: Array) -> Array:
        """Return the sum of the trees."""
        return np.asarray(self.model.predict(X))


def _catboost(setting: Setting, task: Task) -> Boosted:
    from catboost import CatBoostRegressor

    options = {
        "learning_rate": 0.05,
        "thread_count": task.threads,
        "random_seed": task.seed,
        "verbose": False,
        "allow_writing_files": False,
        **setting,
    }

    def grow(model: Any, X: Array, y: Array, judge: Judge, deadline: float) -> int:
        class InTime:
            def after_iteration(self, info: Any) -> bool:
                return time.perf_counter() < deadline

        model.fit(X, y, eval_set=judge, early_stopping_rounds=_PATIENCE, callbacks=[InTime()])
        return int(model.best_iteration_) + 1

    return Boosted(task, lambda n: CatBoostRegressor(iterations=n, **options), grow)


def _draw_catboost(rng: np.random.RandomState, task: Task) -> Setting:
    return {
        "learning_rate": log_uniform(rng, 0.02, 0.2),
        "depth": int(rng.randint(3, 9)),
        "l2_leaf_reg": log_uniform(rng, 1.0, 10.0),
        "rsm": float(rng.uniform(0.5, 1.0)),
    }


def _lightgbm(setting: Setting, task: Task) -> Boosted:
    from lightgbm import LGBMRegressor, early_stopping
    from lightgbm.callback import EarlyStopException

    options = {
        "learning_rate": 0.03,
        "subsample": 0.9,
        "subsample_freq": 1,
        "colsample_bytree": 0.9,
        "n_jobs": task.threads,
        "random_state": task.seed,
        "verbosity": -1,
        **setting,
    }

    def grow(model: Any, X: Array, y: Array, judge: Judge, deadline: float) -> int:
        def in_time(env: Any) -> None:
            if time.perf_counter() > deadline:
                raise EarlyStopException(env.iteration, env.evaluation_result_list)

        stop = early_stopping(_PATIENCE, verbose=False)
        model.fit(X, y, eval_X=judge[0], eval_y=judge[1], callbacks=[in_time, stop])
        return int(model.best_iteration_) or int(model.n_estimators_)

    return Boosted(task, lambda n: LGBMRegressor(n_estimators=n, **options), grow)


def _draw_lightgbm(rng: np.random.RandomState, task: Task) -> Setting:
    return {
        "learning_rate": log_uniform(rng, 0.01, 0.1),
        "num_leaves": int(rng.choice([7, 15, 31, 63])),
        "min_child_samples": int(rng.choice([2, 5, 10, 20, 50])),
        "colsample_bytree": float(rng.uniform(0.4, 1.0)),
        "reg_lambda": log_uniform(rng, 1e-3, 10.0),
    }


def _xgboost(setting: Setting, task: Task) -> Boosted:
    from xgboost import XGBRegressor
    from xgboost.callback import TrainingCallback

    options = {
        "learning_rate": 0.05,
        "subsample": 0.9,
        "colsample_bytree": 0.9,
        "n_jobs": task.threads,
        "random_state": task.seed,
        "verbosity": 0,
        **setting,
    }

    class InTime(TrainingCallback):  # type: ignore[misc]  # xgboost has no types
        def __init__(self, deadline: float) -> None:
            super().__init__()
            self.deadline = deadline

        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            return time.perf_counter() > self.deadline

    def grow(model: Any, X: Array, y: Array, judge: Judge, deadline: float) -> int:
        model.set_params(early_stopping_rounds=_PATIENCE, callbacks=[InTime(deadline)])
        return int(model.fit(X, y, eval_set=[judge], verbose=False).best_iteration) + 1

    return Boosted(task, lambda n: XGBRegressor(n_estimators=n, **options), grow)


def _draw_xgboost(rng: np.random.RandomState, task: Task) -> Setting:
    return {
        "learning_rate": log_uniform(rng, 0.01, 0.2),
        "max_depth": int(rng.randint(2, 9)),
        "min_child_weight": log_uniform(rng, 1.0, 20.0),
        "colsample_bytree": float(rng.uniform(0.4, 1.0)),
        "reg_lambda": log_uniform(rng, 1e-2, 10.0),
    }


METHODS = {
    "catboost": Method(
        tuned(_catboost, _draw_catboost), "CatBoost, the number of trees by early stopping", ("catboost",)
    ),
    "lightgbm": Method(
        tuned(_lightgbm, _draw_lightgbm), "LightGBM, the number of trees by early stopping", ("lightgbm",)
    ),
    "xgboost": Method(tuned(_xgboost, _draw_xgboost), "XGBoost, the number of trees by early stopping", ("xgboost",)),
}
