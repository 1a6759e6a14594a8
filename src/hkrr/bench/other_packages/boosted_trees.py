"""Boosted trees: CatBoost, LightGBM and XGBoost. Early stopping chooses the number of trees.

Each package handles categories and missing values itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from hkrr._base.linear_algebra import Array
from hkrr.bench.method_interface import CLASSIFICATION, REGRESSION, BenchmarkTask, Method, Setting, log_uniform, tuned
from hkrr.bench.preparation import categorical_columns, texts_of_categories, typed

# Maximum number of trees. A fit stops earlier if the validation error has not decreased for _PATIENCE trees.
_MOST_TREES, _PATIENCE = 5000, 100
_BOTH = (REGRESSION, CLASSIFICATION)
# Fraction of the time limit that one fit with early stopping may use.
_SHARE = 0.4
# The type of the validation rows, a pair of inputs and target.
Validation = tuple[Any, Array]
# The type of a function that fits a model with early stopping until a deadline, and returns the best number of trees.
Grow = Callable[[Any, Any, Array, Validation, float], int]


class Boosted:
    """Boosted trees. Early stopping on validation rows chooses the number of trees of the final fit."""

    def __init__(self, task: BenchmarkTask, make: Callable[[int], Any], grow: Grow) -> None:
        self.task, self.make, self.grow = task, make, grow

    def fit_with_validation(self, X: Any, y: Array, X_validation: Any, y_validation: Array) -> Boosted:
        """Fit, and choose the number of trees by early stopping."""
        self.model = self.make(_MOST_TREES)
        deadline = time.perf_counter() + _SHARE * self.task.seconds
        self.n_trees = max(1, self.grow(self.model, X, y, (X_validation, y_validation), deadline))
        return self

    def fit(self, X: Any, y: Array) -> Boosted:
        """Fit with the chosen number of trees."""
        self.model = self.make(self.n_trees).fit(X, y)
        return self

    @property
    def classes_(self) -> Array:
        """The classes of the last fit."""
        return np.asarray(self.model.classes_)

    def predict(self, X: Any) -> Array:
        """Return the predictions of the last fit."""
        return np.asarray(self.model.predict(X))

    def predict_proba(self, X: Any) -> Array:
        """Return the probabilities of the classes, from the last fit."""
        return np.asarray(self.model.predict_proba(X))


def _catboost(setting: Setting, task: BenchmarkTask) -> Boosted:
    from catboost import CatBoostClassifier, CatBoostRegressor

    options = {
        "learning_rate": 0.05,
        "thread_count": task.threads,
        "random_seed": task.seed,
        "verbose": False,
        "allow_writing_files": False,
        "cat_features": categorical_columns(task.X),
        **setting,
    }

    def grow(model: Any, X: Array, y: Array, validation: Validation, deadline: float) -> int:
        class TimeLimit:
            def after_iteration(self, info: Any) -> bool:
                return time.perf_counter() < deadline

        model.fit(X, y, eval_set=validation, early_stopping_rounds=_PATIENCE, callbacks=[TimeLimit()])
        return int(model.best_iteration_) + 1

    trees = CatBoostClassifier if task.n_classes else CatBoostRegressor
    return Boosted(task, lambda n: trees(iterations=n, **options), grow)


def _draw_catboost(rng: np.random.RandomState, task: BenchmarkTask) -> Setting:
    return {
        "learning_rate": log_uniform(rng, 0.02, 0.2),
        "depth": int(rng.randint(3, 9)),
        "l2_leaf_reg": log_uniform(rng, 1.0, 10.0),
        "rsm": float(rng.uniform(0.5, 1.0)),
    }


def _lightgbm(setting: Setting, task: BenchmarkTask) -> Boosted:
    from lightgbm import LGBMClassifier, LGBMRegressor, early_stopping
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

    def grow(model: Any, X: Array, y: Array, validation: Validation, deadline: float) -> int:
        def check_time(env: Any) -> None:
            if time.perf_counter() > deadline:
                raise EarlyStopException(env.iteration, env.evaluation_result_list)

        stop = early_stopping(_PATIENCE, verbose=False)
        model.fit(X, y, eval_X=validation[0], eval_y=validation[1], callbacks=[check_time, stop])
        return int(model.best_iteration_) or int(model.n_estimators_)

    trees = LGBMClassifier if task.n_classes else LGBMRegressor
    return Boosted(task, lambda n: trees(n_estimators=n, **options), grow)


def _draw_lightgbm(rng: np.random.RandomState, task: BenchmarkTask) -> Setting:
    return {
        "learning_rate": log_uniform(rng, 0.01, 0.1),
        "num_leaves": int(rng.choice([7, 15, 31, 63])),
        "min_child_samples": int(rng.choice([2, 5, 10, 20, 50])),
        "colsample_bytree": float(rng.uniform(0.4, 1.0)),
        "reg_lambda": log_uniform(rng, 1e-3, 10.0),
    }


def _xgboost(setting: Setting, task: BenchmarkTask) -> Boosted:
    from xgboost import XGBClassifier, XGBRegressor
    from xgboost.callback import TrainingCallback

    options = {
        "learning_rate": 0.05,
        "subsample": 0.9,
        "colsample_bytree": 0.9,
        "n_jobs": task.threads,
        "random_state": task.seed,
        "verbosity": 0,
        "enable_categorical": True,
        **setting,
    }

    class TimeLimit(TrainingCallback):  # type: ignore[misc]  # xgboost has no types
        def __init__(self, deadline: float) -> None:
            super().__init__()
            self.deadline = deadline

        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            return time.perf_counter() > self.deadline

    def grow(model: Any, X: Array, y: Array, validation: Validation, deadline: float) -> int:
        model.set_params(early_stopping_rounds=_PATIENCE, callbacks=[TimeLimit(deadline)])
        return int(model.fit(X, y, eval_set=[validation], verbose=False).best_iteration) + 1

    trees = XGBClassifier if task.n_classes else XGBRegressor
    return Boosted(task, lambda n: trees(n_estimators=n, **options), grow)


def _draw_xgboost(rng: np.random.RandomState, task: BenchmarkTask) -> Setting:
    return {
        "learning_rate": log_uniform(rng, 0.01, 0.2),
        "max_depth": int(rng.randint(2, 9)),
        "min_child_weight": log_uniform(rng, 1.0, 20.0),
        "colsample_bytree": float(rng.uniform(0.4, 1.0)),
        "reg_lambda": log_uniform(rng, 1e-2, 10.0),
    }


_HOW = "with the number of trees chosen by early stopping"
METHODS = {
    name: Method(
        tuned(make, draw), f"{title} with the number of trees chosen by early stopping", (name,), _BOTH, prepare
    )
    for name, title, make, draw, prepare in (
        ("catboost", "CatBoost", _catboost, _draw_catboost, texts_of_categories),
        ("lightgbm", "LightGBM", _lightgbm, _draw_lightgbm, typed),
        ("xgboost", "XGBoost", _xgboost, _draw_xgboost, typed),
    )
}
