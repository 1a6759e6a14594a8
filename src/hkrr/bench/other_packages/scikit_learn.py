"""Scikit-learn's linear models, kernel methods, neural network, tree ensembles and Gaussian process."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import minimize

from hkrr._base.linear_algebra import Array
from hkrr.bench.method_interface import (
    CLASSIFICATION,
    REGRESSION,
    Answer,
    BenchmarkTask,
    Estimator,
    Method,
    Setting,
    log_uniform,
    tuned,
)

# The Gaussian process learns its length scales on at most _GP_ROWS rows, during the fraction _GP_SHARE of the time
# limit. The final fit uses at most _GP_EXACT_ROWS rows, and the test rows are predicted in blocks of about _BLOCK
# rows.
_GP_ROWS, _GP_SHARE, _GP_EXACT_ROWS, _BLOCK = 1000, 0.7, 5000, 2000
_BOTH = (REGRESSION, CLASSIFICATION)


def standardised(model: Estimator) -> Any:
    """Wrap an estimator so that its inputs and its target are standardized."""
    from sklearn.compose import TransformedTargetRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    pipeline = make_pipeline(StandardScaler(), model)
    return TransformedTargetRegressor(pipeline, transformer=StandardScaler(), check_inverse=False)


def _kernel_ridge(setting: Setting, task: BenchmarkTask) -> Any:
    from sklearn.kernel_ridge import KernelRidge

    return standardised(KernelRidge(**{"kernel": "rbf", "gamma": 0.5 / task.X.shape[1], "alpha": 0.1, **setting}))


def _draw_kernel_ridge(rng: np.random.RandomState, task: BenchmarkTask) -> Setting:
    return {
        "kernel": str(rng.choice(["rbf", "laplacian"])),
        "gamma": log_uniform(rng, 0.01, 10.0) / task.X.shape[1],
        "alpha": log_uniform(rng, 1e-6, 10.0),
    }


def _mlp(setting: Setting, task: BenchmarkTask) -> Any:
    from sklearn.neural_network import MLPRegressor

    options = {"early_stopping": True, "max_iter": 500, "n_iter_no_change": 20, "random_state": task.seed, **setting}
    return standardised(MLPRegressor(**options))


def _draw_mlp(rng: np.random.RandomState, task: BenchmarkTask) -> Setting:
    return {
        "hidden_layer_sizes": (int(rng.choice([50, 100, 200, 400])),) * int(rng.randint(1, 4)),
        "alpha": log_uniform(rng, 1e-6, 1.0),
        "learning_rate_init": log_uniform(rng, 3e-4, 1e-2),
    }


def _forest(setting: Setting, task: BenchmarkTask) -> Any:
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    forest = RandomForestClassifier if task.n_classes else RandomForestRegressor
    return forest(n_jobs=task.threads, random_state=task.seed, **setting)


def _draw_forest(rng: np.random.RandomState, task: BenchmarkTask) -> Setting:
    return {"max_features": float(rng.uniform(0.2, 1.0)), "min_samples_leaf": int(rng.choice([1, 2, 3, 5, 10]))}


def _boosting(setting: Setting, task: BenchmarkTask) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    boosting = HistGradientBoostingClassifier if task.n_classes else HistGradientBoostingRegressor
    return boosting(early_stopping=True, max_iter=1000, random_state=task.seed, **setting)


def _draw_boosting(rng: np.random.RandomState, task: BenchmarkTask) -> Setting:
    return {
        "learning_rate": log_uniform(rng, 0.01, 0.3),
        "max_leaf_nodes": int(rng.choice([7, 15, 31, 63])),
        "min_samples_leaf": int(rng.choice([5, 10, 20, 50])),
        "max_features": float(rng.uniform(0.4, 1.0)),
        "l2_regularization": log_uniform(rng, 1e-3, 10.0),
    }


def _ridge(setting: Setting, task: BenchmarkTask) -> Any:
    from sklearn.linear_model import Ridge

    return standardised(Ridge(**setting))


def _draw_ridge(rng: np.random.RandomState, task: BenchmarkTask) -> Setting:
    return {"alpha": log_uniform(rng, 1e-3, 1e4)}


def _logistic(setting: Setting, task: BenchmarkTask) -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000, **setting))


def _draw_logistic(rng: np.random.RandomState, task: BenchmarkTask) -> Setting:
    return {"C": log_uniform(rng, 1e-4, 1e3)}


def _svc(setting: Setting, task: BenchmarkTask) -> Any:
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC

    # The parameter is deprecated, but the probabilities of CalibratedClassifierCV have a higher log loss.
    warnings.filterwarnings("ignore", message=".*probability.*", category=FutureWarning)
    return make_pipeline(StandardScaler(), SVC(probability=True, random_state=task.seed, **setting))


def _draw_svc(rng: np.random.RandomState, task: BenchmarkTask) -> Setting:
    return {"C": log_uniform(rng, 0.1, 1e3), "gamma": log_uniform(rng, 0.01, 10.0) / task.X.shape[1]}


class _Process:
    """A Gaussian process with a Matern 3/2 kernel and one length scale per input.

    The length scales are learned on a subsample within a time limit. The final fit keeps the length scales and uses at
    most 5,000 rows.
    """

    def __init__(self, seed: int, seconds: float) -> None:
        self.seed, self.seconds = seed, seconds

    def fit(self, X: Array, y: Array) -> _Process:
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

        order = np.random.RandomState(self.seed).permutation(len(y))
        some, more = order[:_GP_ROWS], order[:_GP_EXACT_ROWS]
        # Start with length scales near the typical distance between two rows. With length scales of 1 in 50 dimensions,
        # the kernel matrix would be almost the identity.
        kernel = ConstantKernel() * Matern(np.full(X.shape[1], np.sqrt(X.shape[1])), nu=1.5) + WhiteKernel()
        with warnings.catch_warnings():
            # Scikit-learn warns if a length scale is at its upper bound. This is expected for an irrelevant input.
            warnings.simplefilter("ignore", ConvergenceWarning)
            learned = GaussianProcessRegressor(kernel, optimizer=self._minimize).fit(X[some], y[some])
        self.model = GaussianProcessRegressor(learned.kernel_, optimizer=None).fit(X[more], y[more])
        return self

    def _minimize(
        self, objective: Callable[[Array], tuple[float, Array]], start: Array, bounds: Array
    ) -> tuple[Array, float]:
        """Minimize with L-BFGS-B, as scikit-learn does by default, but with a time limit."""
        deadline = time.perf_counter() + self.seconds

        def check_time(intermediate_result: Any) -> None:
            if time.perf_counter() > deadline:
                raise StopIteration

        result = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds, callback=check_time)
        return result.x, result.fun

    def predict(self, X: Array) -> Array:
        blocks = np.array_split(X, 1 + len(X) // _BLOCK)
        return np.concatenate([self.model.predict(block) for block in blocks])


def _gpr(task: BenchmarkTask) -> Answer:
    from sklearn.preprocessing import StandardScaler

    began = time.perf_counter()
    inputs, target = StandardScaler().fit(task.X), StandardScaler().fit(task.y[:, None])
    model = _Process(task.seed, _GP_SHARE * task.seconds)
    model.fit(inputs.transform(task.X), target.transform(task.y[:, None])[:, 0])
    fit_seconds = time.perf_counter() - began
    predicted = target.inverse_transform(model.predict(inputs.transform(task.X_test))[:, None])[:, 0]
    m = len(task.y)
    note = f"length scales learned on {min(_GP_ROWS, m)} rows, final fit on {min(_GP_EXACT_ROWS, m)}"
    return Answer(predicted, None, fit_seconds, note)


METHODS = {
    "ridge": Method(tuned(_ridge, _draw_ridge), "scikit-learn's `Ridge`", ("sklearn.linear_model",)),
    "logistic": Method(
        tuned(_logistic, _draw_logistic),
        "scikit-learn's `LogisticRegression`",
        ("sklearn.linear_model",),
        (CLASSIFICATION,),
    ),
    "sk_krr": Method(
        tuned(_kernel_ridge, _draw_kernel_ridge), "scikit-learn's `KernelRidge`", ("sklearn.kernel_ridge",)
    ),
    "svc": Method(
        tuned(_svc, _draw_svc),
        "scikit-learn's `SVC` with `probability=True` (pairwise Platt scaling)",
        ("sklearn.svm",),
        (CLASSIFICATION,),
    ),
    "mlp": Method(
        tuned(_mlp, _draw_mlp), "scikit-learn's `MLPRegressor`, one to three hidden layers", ("sklearn.neural_network",)
    ),
    "random_forest": Method(tuned(_forest, _draw_forest), "scikit-learn's random forest", ("sklearn.ensemble",), _BOTH),
    "hist_boosting": Method(
        tuned(_boosting, _draw_boosting),
        "scikit-learn's histogram gradient boosting with early stopping",
        ("sklearn.ensemble",),
        _BOTH,
    ),
    "gpr": Method(
        _gpr,
        "scikit-learn's `GaussianProcessRegressor`, Matern 3/2 kernel with one length scale per input",
        ("sklearn.gaussian_process",),
    ),
}
