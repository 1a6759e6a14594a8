"""The benchmark methods of this library: its estimators, which get tables unprepared, and the baselines."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from hkrr.bench.method_interface import (
    CLASSIFICATION,
    REGRESSION,
    Answer,
    BenchmarkTask,
    Draw,
    Method,
    Setting,
    directions,
    log_uniform,
    predictions,
    tuned,
)
from hkrr.bench.preparation import raw

# Maximum number of centers of kernel ridge regression on all inputs, and on the directions of a subspace estimator. If
# there are more training rows, the centers are drawn at random from the rows.
_EXACT_ROWS, _SUBSPACE_ROWS = 2000, 1000
# Fraction of the time limit that is passed to the estimators. The rest is for encoding tables and for predictions.
_SHARE = 0.95


def _n_centers(task: BenchmarkTask, most: int) -> int | Literal["all"]:
    return "all" if len(task.y) <= most else most


class _Stages:
    """A callback of a search that measures the seconds of its phases."""

    def __init__(self) -> None:
        self.phase, self.since = "start", time.perf_counter()
        self.seconds: dict[str, float] = defaultdict(float)

    def __deepcopy__(self, memo: Any) -> _Stages:
        return self  # scikit-learn's clone copies the callbacks of an estimator

    def __call__(self, state: Any) -> None:
        if state.phase is not None:
            self.begin(state.phase.name.lower().replace("_", " "))

    def begin(self, phase: str) -> None:
        """Add the time since the last call to the current phase, and begin another phase."""
        now = time.perf_counter()
        self.seconds[self.phase] += now - self.since
        self.phase, self.since = phase, now


def _ours(make: Callable[[dict[str, Any]], Any], about: str, module: str, task_name: str = REGRESSION) -> Method:
    """Return an estimator of this library as a benchmark method. The estimator tunes itself within the time limit.

    ``make(options)`` returns the estimator. For a data frame, it becomes the model of a `TableRegressor` or a
    `TableClassifier`. The note lists the members with their weights, and the seconds of each phase of the search.
    """

    def run(task: BenchmarkTask) -> Answer:
        from hkrr.kernels import kernel_name
        from hkrr.tables import TableClassifier, TableRegressor

        began, stages = time.perf_counter(), _Stages()
        model = make({"time_limit": _SHARE * task.seconds, "random_state": task.seed, "callbacks": [stages]})
        if hasattr(task.X, "columns"):
            model = TableClassifier(model) if task.n_classes else TableRegressor(model)
        model.fit(task.X, task.y)
        stages.begin("predictions")
        fit_seconds = time.perf_counter() - began
        fitted = getattr(model, "model_", model)
        members, weights = getattr(fitted, "members_", [fitted]), getattr(fitted, "weights_", [1.0])
        note = "; ".join(
            f"{weight:.2f} {kernel_name(one.kernel_)}, {one.map_shape_}, {one.n_components_} directions, "
            f"{len(one.centers_)} centers"
            for weight, one in zip(weights, members, strict=True)
        )
        predicted = predictions(model, task.X_test, task)
        stages.begin("end")
        note += "; " + ", ".join(f"{phase} {seconds:.1f} s" for phase, seconds in stages.seconds.items())
        return Answer(predicted, members[0].components_, fit_seconds, note)

    return Method(run, about, ("hkrr", module), (task_name,), raw)


def _ridge_cv(kernel: str, about: str) -> Method:
    def make(options: dict[str, Any]) -> Any:
        from hkrr.estimators.ridge_cv import HyperKernelRidgeCV

        return HyperKernelRidgeCV(kernel=kernel, **options)

    return _ours(make, about, "hkrr.estimators.ridge_cv")


def _ensemble(options: dict[str, Any]) -> Any:
    from hkrr.estimators.ensemble import HyperKernelEnsemble

    return HyperKernelEnsemble(**options)


def _classifier(options: dict[str, Any]) -> Any:
    from hkrr.estimators.classification import HyperKernelClassifier

    return HyperKernelClassifier(**options)


def _kernel_ridge(
    about: str, n_centers: int | None = None, centers: Literal["uniform", "leverage"] = "uniform"
) -> Method:
    """Return kernel ridge regression on all inputs as a benchmark method, tuned by the leave-one-out error.

    With ``n_centers=None``, all rows are centers if there are at most 2,000 rows, and 2,000 centers are drawn if there
    are more.
    """

    def run(task: BenchmarkTask) -> Answer:
        from hkrr.baselines import KernelRidgeCV

        began = time.perf_counter()
        n = _n_centers(task, _EXACT_ROWS) if n_centers is None else n_centers
        model = KernelRidgeCV(n_centers=n, centers=centers, random_state=task.seed).fit(task.X, task.y)
        fit_seconds = time.perf_counter() - began
        note = f"lambda={model.reg_lambda_:.3g} gamma={model.gamma_:.3g}, {len(model.centers_)} centers"
        return Answer(model.predict(task.X_test), None, fit_seconds, note)

    about = f"kernel ridge regression on all inputs, {about}, tuned by the leave-one-out error (`KernelRidgeCV`)"
    return Method(run, about, ("hkrr.baselines",))


def _baseline(name: str, draw: Draw, about: str, *, seeded: bool = True, learns_map: bool = True) -> Method:
    """Return a regressor of `hkrr.baselines` as a benchmark method, tuned by random search.

    `name` is the class of the regressor, `draw` draws random settings of its parameters, and `about` describes the
    method. `seeded` and `learns_map` say whether the class has the parameter random_state, and whether it learns a map.
    """

    def make(setting: Setting, task: BenchmarkTask) -> Any:
        import hkrr.baselines

        return getattr(hkrr.baselines, name)(**setting, **({"random_state": task.seed} if seeded else {}))

    search = tuned(make, draw)
    run = search if learns_map else lambda task: search(task)._replace(components=None)
    return Method(run, f"{about} (`{name}`)", ("hkrr.baselines",))


def _subspace(name: str, full_name: str, seeded: bool = False) -> Method:
    """Return a subspace estimator followed by kernel ridge regression as a benchmark method.

    `name` is the class of the estimator, and `full_name` its name in the description. Random search chooses the number
    of directions.
    """

    def make(setting: Setting, task: BenchmarkTask) -> Any:
        from sklearn.pipeline import make_pipeline

        import hkrr.baselines

        estimator = getattr(hkrr.baselines, name)
        n_components = min(setting.get("n_components", 2), task.X.shape[1])
        return make_pipeline(
            estimator(n_components, **({"random_state": task.seed} if seeded else {})),
            hkrr.baselines.KernelRidgeCV(n_centers=_n_centers(task, _SUBSPACE_ROWS), random_state=task.seed),
        )

    run = tuned(make, lambda rng, task: {"n_components": directions(rng, task)})
    about = f"{full_name} (`{name}`), then kernel ridge regression on the estimated directions"
    return Method(run, about, ("hkrr.baselines",))


def _rfm(rng: np.random.RandomState, task: BenchmarkTask) -> Setting:
    return {
        "kernel": "laplace" if rng.uniform() < 0.8 else "gaussian",
        "bandwidth": log_uniform(rng, 0.5, 200.0),
        "reg": log_uniform(rng, 1e-6, 10.0),
        "diagonal": bool(rng.uniform() < 0.5),
    }


def _rbf(rng: np.random.RandomState, task: BenchmarkTask) -> Setting:
    return {
        "n_units": int(rng.choice([20, 50, 100, 200])),
        "reg_lambda": log_uniform(rng, 1e-8, 1e-3),
        "learning_rate": log_uniform(rng, 1e-3, 1e-1),
    }


def _hyper_rbf(rng: np.random.RandomState, task: BenchmarkTask) -> Setting:
    return {"n_components": directions(rng, task), **_rbf(rng, task)}


def _bkernn(rng: np.random.RandomState, task: BenchmarkTask) -> Setting:
    return {
        "reg_lambda": log_uniform(rng, 1e-5, 1e-1),
        "penalty": str(rng.choice(["feature", "variable", "basic"])),
    }


def _relu(rng: np.random.RandomState, task: BenchmarkTask) -> Setting:
    return {"n_units": int(rng.choice([32, 100, 300, 1000])), "reg_lambda": log_uniform(rng, 1e-6, 1.0)}


def _rcls(rng: np.random.RandomState, task: BenchmarkTask) -> Setting:
    return {
        "n_components": directions(rng, task),
        "n_slices": int(rng.choice([2, 3, 5, 10])),
        "link": str(rng.choice(["knn", "polynomial"])),
        "n_neighbors": int(rng.choice([3, 5, 10, 20])),
        "n_cells": int(rng.choice([1, 2, 4])),
        "degree": int(rng.choice([1, 2, 3])),
    }


METHODS = {
    "hkrr_ensemble": _ours(
        _ensemble,
        "`HyperKernelEnsemble` with default parameters, a weighted sum of models with different kernels and maps",
        "hkrr.estimators.ensemble",
    ),
    "hkrr_classifier": _ours(
        _classifier,
        "`HyperKernelClassifier` with default parameters",
        "hkrr.estimators.classification",
        CLASSIFICATION,
    ),
    "hkrr": _ridge_cv("gaussian", "`HyperKernelRidgeCV` with default parameters (Gaussian kernel)"),
    "hkrr_auto": _ridge_cv(
        "auto", '`HyperKernelRidgeCV(kernel="auto")`, which chooses among eight kernels and several shapes of the map B'
    ),
    "krr": _kernel_ridge("at most 2,000 centers"),
    "krr_nystrom": _kernel_ridge("500 centers", 500),
    "krr_leverage": _kernel_ridge("500 centers drawn by leverage scores", 500, "leverage"),
    "rfm": _baseline("RecursiveFeatureMachine", _rfm, "recursive feature machine, the implementation of this library"),
    "rbf": _baseline("RBFNetwork", _rbf, "radial basis function network with learned centers", learns_map=False),
    "hyper_rbf": _baseline(
        "HyperRBFNetwork", _hyper_rbf, "radial basis function network with learned centers and a learned map B"
    ),
    "bkernn": _baseline("BKerNN", _bkernn, "mean of Brownian kernels along learned, penalized directions"),
    "relu": _baseline("ReLUNetwork", _relu, "neural network with one hidden layer"),
    "rcls": _baseline(
        "RCLS", _rcls, "response-conditional least squares, then nearest neighbours or polynomials", seeded=False
    ),
    "sir": _subspace("SIR", "sliced inverse regression"),
    "save": _subspace("SAVE", "sliced average variance estimation"),
    "phd": _subspace("PHD", "principal Hessian directions"),
    "opg": _subspace("OPG", "outer product of gradients", seeded=True),
    "mave": _subspace("MAVE", "minimum average variance estimation", seeded=True),
    "kdr": _subspace("KDR", "kernel dimension reduction", seeded=True),
    "gkdr": _subspace("GradientKDR", "gradient-based kernel dimension reduction", seeded=True),
}
