"""Scikit-learn's kernel ridge regression, network, forest and Gaussian process."""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np

from hkrr._arrays import Array
from hkrr.bench.methods import Answer, Method, Setting, Task, log_uniform, tuned

# Rows that the Gaussian process learns its lengths on, and test rows predicted at once.
_GP_ROWS, _BLOCK = 1000, 2000


def standardised(model: Any) -> Any:
    """Return the estimator on inputs and a target in units of the training rows."""
    from sklearn.compose import TransformedTargetRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    pipeline = make_pipeline(StandardScaler(), model)
    return TransformedTargetRegressor(pipeline, transformer=StandardScaler(), check_inverse=False)


def _kernel_ridge(setting: Setting, task: Task) -> Any:
    from sklearn.kernel_ridge import KernelRidge

    return standardised(KernelRidge(**{"kernel": "rbf", "gamma": 0.5 / task.X.shape[1], "alpha": 0.1, **setting}))


def _draw_kernel_ridge(rng: np.random.RandomState, task: Task) -> Setting:
    return {
        "kernel": str(rng.choice(["rbf", "laplacian"])),
        "gamma": log_uniform(rng, 0.01, 10.0) / task.X.shape[1],
        "alpha": log_uniform(rng, 1e-6, 10.0),
    }


def _mlp(setting: Setting, task: Task) -> Any:
    from sklearn.neural_network import MLPRegressor

    options = {"early_stopping": True, "max_iter": 500, "n_iter_no_change": 20, "random_state": task.seed, **setting}
    return standardised(MLPRegressor(**options))


def _draw_mlp(rng: np.random.RandomState, task: Task) -> Setting:
    return {
        "hidden_layer_sizes": (int(rng.choice([50, 100, 200, 400])),) * int(rng.randint(1, 4)),
        "alpha": log_uniform(rng, 1e-6, 1.0),
        "learning_rate_init": log_uniform(rng, 3e-4, 1e-2),
    }


def _forest(setting: Setting, task: Task) -> Any:
    from sklearn.ensemble import RandomForestRegressor

    return RandomForestRegressor(300, n_jobs=task.threads, random_state=task.seed, **setting)


def _draw_forest(rng: np.random.RandomState, task: Task) -> Setting:
    return {"max_features": float(rng.uniform(0.2, 1.0)), "min_samples_leaf": int(rng.choice([1, 2, 3, 5, 10]))}


class _Process:
    """Matern 3/2 with a length for each input, learned on some rows and exact on all."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def fit(self, X: Array, y: Array) -> _Process:
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

        some = np.random.RandomState(self.seed).permutation(len(y))[:_GP_ROWS]
        kernel = ConstantKernel() * Matern(np.ones(X.shape[1]), nu=1.5) + WhiteKernel()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a length at its bound: an input without effect
            learned = GaussianProcessRegressor(kernel, random_state=self.seed).fit(X[some], y[some])
        self.model = GaussianProcessRegressor(learned.kernel_, optimizer=None).fit(X, y)
        return self

    def predict(self, X: Array) -> Array:
        blocks = np.array_split(X, 1 + len(X) // _BLOCK)
        return np.concatenate([self.model.predict(block) for block in blocks])


def _gpr(task: Task) -> Answer:
    from sklearn.preprocessing import StandardScaler

    began = time.perf_counter()
    inputs, target = StandardScaler().fit(task.X), StandardScaler().fit(task.y[:, None])
    model = _Process(task.seed).fit(inputs.transform(task.X), target.transform(task.y[:, None])[:, 0])
    fit_seconds = time.perf_counter() - began
    predicted = target.inverse_transform(model.predict(inputs.transform(task.X_test))[:, None])[:, 0]
    return Answer(predicted, None, fit_seconds, f"lengths learned on {min(_GP_ROWS, len(task.y))} rows")


METHODS = {
    "sk_krr": Method(
        tuned(_kernel_ridge, _draw_kernel_ridge), "scikit-learn's `KernelRidge`", ("sklearn.kernel_ridge",)
    ),
    "mlp": Method(
        tuned(_mlp, _draw_mlp), "scikit-learn's `MLPRegressor`, one to three layers", ("sklearn.neural_network",)
    ),
    "random_forest": Method(
        tuned(_forest, _draw_forest), "scikit-learn's `RandomForestRegressor`", ("sklearn.ensemble",)
    ),
    "gpr": Method(
        _gpr,
        "scikit-learn's `GaussianProcessRegressor`, Matern 3/2, a length for each input",
        ("sklearn.gaussian_process",),
    ),
}
