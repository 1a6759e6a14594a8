"""Scikit-learn's kernel ridge regression, network, forest and Gaussian process."""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
from scipy.optimize import minimize

from hkrr._arrays import Array
from hkrr.bench.methods import Answer, Method, Setting, Task, log_uniform, tuned

# Rows that the Gaussian process learns its lengths on, for a share of the seconds; rows that it is exact on at most;
# test rows predicted at once.
_GP_ROWS, _GP_SHARE, _GP_EXACT_ROWS, _BLOCK = 1000, 0.7, 5000, 2000


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

    return RandomForestRegressor(n_jobs=task.threads, random_state=task.seed, **setting)


def _draw_forest(rng: np.random.RandomState, task: Task) -> Setting:
    return {"max_features": float(rng.uniform(0.2, 1.0)), "min_samples_leaf": int(rng.choice([1, 2, 3, 5, 10]))}


class _Process:
    """Matern 3/2 with a length for each input, learned on some rows until the time is over, and exact on more."""

    def __init__(self, seed: int, seconds: float) -> None:
        self.seed, self.seconds = seed, seconds

    def fit(self, X: Array, y: Array) -> _Process:
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

        order = np.random.RandomState(self.seed).permutation(len(y))
        some, more = order[:_GP_ROWS], order[:_GP_EXACT_ROWS]
        # Lengths begin where two rows are a length apart: at one, in 50 dimensions, K is the identity.
        kernel = ConstantKernel() * Matern(np.full(X.shape[1], np.sqrt(X.shape[1])), nu=1.5) + WhiteKernel()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a length at its bound: an input without effect
            learned = GaussianProcessRegressor(kernel, optimizer=self._in_time).fit(X[some], y[some])
        self.model = GaussianProcessRegressor(learned.kernel_, optimizer=None).fit(X[more], y[more])
        return self

    def _in_time(self, objective: Any, start: Array, bounds: Array) -> tuple[Array, float]:
        """L-BFGS-B, as scikit-learn's own optimiser, with an end."""
        until = time.perf_counter() + self.seconds

        def watch(intermediate_result: Any) -> None:
            if time.perf_counter() > until:
                raise StopIteration

        found = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds, callback=watch)
        return found.x, found.fun

    def predict(self, X: Array) -> Array:
        blocks = np.array_split(X, 1 + len(X) // _BLOCK)
        return np.concatenate([self.model.predict(block) for block in blocks])


def _gpr(task: Task) -> Answer:
    from sklearn.preprocessing import StandardScaler

    began = time.perf_counter()
    inputs, target = StandardScaler().fit(task.X), StandardScaler().fit(task.y[:, None])
    model = _Process(task.seed, _GP_SHARE * task.seconds)
    model.fit(inputs.transform(task.X), target.transform(task.y[:, None])[:, 0])
    fit_seconds = time.perf_counter() - began
    predicted = target.inverse_transform(model.predict(inputs.transform(task.X_test))[:, None])[:, 0]
    m = len(task.y)
    note = f"lengths learned on {min(_GP_ROWS, m)} rows, exact on {min(_GP_EXACT_ROWS, m)}"
    return Answer(predicted, None, fit_seconds, note)


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
