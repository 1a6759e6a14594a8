"""The benchmark methods of this library: `HyperKernelRidgeCV`, `HyperKernelEnsemble` and the baselines."""

from __future__ import annotations

import time
from typing import Any, Literal

import numpy as np

from hkrr.bench.method_interface import Answer, Draw, Method, Setting, Task, directions, log_uniform, tuned

# Maximum number of centers of kernel ridge regression on all inputs, and on the directions of a subspace estimator. If
# there are more training rows, the centers are drawn at random from the rows.
_EXACT_ROWS, _SUBSPACE_ROWS = 2000, 1000


def _n_centers(task: Task, most: int) -> int | Literal["all"]:
    return "all" if len(task.y) <= most else most


def _hkrr(kernel: str, about: str) -> Method:
    """Return `HyperKernelRidgeCV` as a benchmark method. The estimator tunes itself within the time budget."""

    def run(task: Task) -> Answer:
        from hkrr.estimators.ridge_cv import HyperKernelRidgeCV
        from hkrr.kernels import kernel_name

        began = time.perf_counter()
        model = HyperKernelRidgeCV(kernel=kernel, time_limit=task.seconds, random_state=task.seed).fit(task.X, task.y)
        fit_seconds = time.perf_counter() - began
        note = f"{kernel_name(model.kernel_)}, {model.map_shape_}, {model.n_components_} directions"
        return Answer(model.predict(task.X_test), model.components_, fit_seconds, note)

    return Method(run, about, ("hkrr", "hkrr.estimators.ridge_cv"))


def _ensemble() -> Method:
    """Return `HyperKernelEnsemble` as a benchmark method. The estimator tunes itself within the time budget."""

    def run(task: Task) -> Answer:
        from hkrr.estimators.ensemble import HyperKernelEnsemble
        from hkrr.kernels import kernel_name

        began = time.perf_counter()
        model = HyperKernelEnsemble(time_limit=task.seconds, random_state=task.seed).fit(task.X, task.y)
        fit_seconds = time.perf_counter() - began
        note = "; ".join(
            f"{weight:.2f} {kernel_name(one.kernel_)}, {one.map_shape_}, {one.n_components_} directions"
            for weight, one in zip(model.weights_, model.members_, strict=True)
        )
        return Answer(model.predict(task.X_test), model.members_[0].components_, fit_seconds, note)

    about = "`HyperKernelEnsemble` with default parameters, a weighted sum of models with different kernels and maps"
    return Method(run, about, ("hkrr", "hkrr.estimators.ensemble"))


def _kernel_ridge(
    about: str, n_centers: int | None = None, centers: Literal["uniform", "leverage"] = "uniform"
) -> Method:
    """Return kernel ridge regression on all inputs as a benchmark method, tuned by the leave-one-out error.

    With ``n_centers=None``, all rows are centers if there are at most 2,000 rows, and 2,000 centers are drawn if there
    are more.
    """

    def run(task: Task) -> Answer:
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

    def make(setting: Setting, task: Task) -> Any:
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

    def make(setting: Setting, task: Task) -> Any:
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


def _rfm(rng: np.random.RandomState, task: Task) -> Setting:
    return {
        "kernel": "laplace" if rng.uniform() < 0.8 else "gaussian",
        "bandwidth": log_uniform(rng, 0.5, 200.0),
        "reg": log_uniform(rng, 1e-6, 10.0),
        "diagonal": bool(rng.uniform() < 0.5),
    }


def _rbf(rng: np.random.RandomState, task: Task) -> Setting:
    return {
        "n_units": int(rng.choice([20, 50, 100, 200])),
        "reg_lambda": log_uniform(rng, 1e-8, 1e-3),
        "learning_rate": log_uniform(rng, 1e-3, 1e-1),
    }


def _hyper_rbf(rng: np.random.RandomState, task: Task) -> Setting:
    return {"n_components": directions(rng, task), **_rbf(rng, task)}


def _bkernn(rng: np.random.RandomState, task: Task) -> Setting:
    return {
        "reg_lambda": log_uniform(rng, 1e-5, 1e-1),
        "penalty": str(rng.choice(["feature", "variable", "basic"])),
    }


def _relu(rng: np.random.RandomState, task: Task) -> Setting:
    return {"n_units": int(rng.choice([32, 100, 300, 1000])), "reg_lambda": log_uniform(rng, 1e-6, 1.0)}


def _rcls(rng: np.random.RandomState, task: Task) -> Setting:
    return {
        "n_components": directions(rng, task),
        "n_slices": int(rng.choice([2, 3, 5, 10])),
        "link": str(rng.choice(["knn", "polynomial"])),
        "n_neighbors": int(rng.choice([3, 5, 10, 20])),
        "n_cells": int(rng.choice([1, 2, 4])),
        "degree": int(rng.choice([1, 2, 3])),
    }


METHODS = {
    "hkrr_ensemble": _ensemble(),
    "hkrr": _hkrr("gaussian", "`HyperKernelRidgeCV` with default parameters (Gaussian kernel)"),
    "hkrr_auto": _hkrr(
        "auto", '`HyperKernelRidgeCV(kernel="auto")`, which chooses among seven kernels and three shapes of the map B'
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
