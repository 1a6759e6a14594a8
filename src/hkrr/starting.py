"""The start of a fit: its kernel, a map that was given, a classical estimate, or the best of random maps; its centers.

For a checkpoint it is one step, whose result is the map, the kernel's gamma, and the random numbers that come next.
"""

from __future__ import annotations

import copy
import time
from typing import Any

import numpy as np

from hkrr._arrays import Array
from hkrr._validation import check_matrix
from hkrr.centers import draw_centers
from hkrr.criteria import CRITERIA, Criterion
from hkrr.diagnostics import Starts
from hkrr.initialization import descend_lambda, median_kernel, ranked_maps, starting_rows
from hkrr.journal import about, step
from hkrr.kernels import Kernel, get_kernel
from hkrr.meaning import digest
from hkrr.objective import Objective
from hkrr.rows import Rows
from hkrr.scaling import Moments
from hkrr.solvers import LBFGS, Solver


def kernel_of(model: Any) -> Kernel:
    """Return the kernel of a HyperKernelRidge, with its gamma where one is given."""
    kernel = get_kernel(model.kernel)
    if model.gamma == "median":
        return kernel
    if kernel.gamma not in (None, model.gamma):
        raise ValueError(f"gamma={model.gamma} and a kernel with gamma={kernel.gamma}: give one of them")
    return kernel.with_gamma(model.gamma)


def centers_of(
    model: Any, rows: Rows, kernel: Kernel, B: Array, scaling: Moments, rng: np.random.RandomState
) -> Array | None:
    """Return the centers of a HyperKernelRidge in the coordinates of the optimisation, or None for all rows."""
    if not isinstance(model.centers, str):
        return scaling.coordinates(check_matrix("centers", model.centers, rows.n_features))
    n_centers = model._n_centers(rows.n_counted)
    if n_centers == rows.n_counted:
        return None
    return draw_centers(model.centers, rows, n_centers, rng, B=B, kernel=kernel, t0=model._lambda)


def objective_of(model: Any, rows: Rows, centers: Array | None, kernel: Kernel) -> Objective | Criterion:
    """Return what a HyperKernelRidge minimises."""
    if model.criterion == "training":
        return Objective(rows, centers, kernel, model._lambda)
    return CRITERIA[model.criterion](rows, centers, kernel, model._lambda, model.reg_lambda == "auto")


def starting_point(
    model: Any,
    rows: Rows,
    kernel: Kernel,
    solver: Solver,
    scaling: Moments,
    rng: np.random.RandomState,
    deadline: float,
    n_threads: int,
) -> tuple[Array, Kernel, Starts]:
    """Return where a HyperKernelRidge starts: at the map given, at an estimate, or at the best of random maps.

    A fit that goes on starts where it did before, and has the random numbers that it had after that.
    """

    def found() -> tuple[Array, Kernel, Starts]:
        sample = starting_rows(rows, rng).on_threads(n_threads)
        if not isinstance(model.init, str):
            B = check_matrix("init", model.init, rows.n_features, model.n_components) * scaling.x_scale
            if np.linalg.matrix_rank(B) < model.n_components:
                raise ValueError("init must have linearly independent rows, none of them zero: dependent rows stay so")
            return B, median_kernel(kernel, sample, B, rng), Starts()
        if model.init != "random":
            from hkrr.baselines.start import starting_map  # its relatives are slow to import

            B = starting_map(model.init, sample, model.n_components, rng)
            return B, median_kernel(kernel, sample, B, rng), Starts()
        sizes = {"reg_lambda": model._lambda, "n_centers": model._n_centers(rows.n_counted)}
        limits: dict[str, Any] = {"rng": rng, "deadline": deadline}
        starts, n_drawn = ranked_maps(
            sample, kernel, n_components=model.n_components, n_init=model.n_init, **sizes, **limits
        )
        told = Starts(tried=n_drawn, dropped=len(starts) - 1, failed=n_drawn - len(starts))
        if not isinstance(solver, LBFGS) or model.max_iter == 0:
            return *starts[0], told
        return *descend_lambda(rows.bring(sample), starts, solver, **sizes, **limits), told

    def compute() -> tuple[Array, float | None, np.random.RandomState, tuple[int, int, int]]:
        B, started, starts = found()
        return B, started.gamma, copy.deepcopy(rng), (starts.tried, starts.dropped, starts.failed)

    def is_start(known: Any) -> bool:
        B, gamma, after, starts = known
        fits = isinstance(B, np.ndarray) and B.shape == (model.n_components, rows.n_features)
        counts = isinstance(starts, tuple) and len(starts) == 3 and all(type(one) is int for one in starts)
        return fits and counts and isinstance(after, np.random.RandomState) and (gamma is None or 0.0 < gamma < np.inf)

    told = (model.n_components, model.reg_lambda, model.criterion, model.init, model.n_init, model.n_centers, kernel)
    key = (*told, type(solver).__name__, model.max_iter == 0, rows.n_rows, *about(scaling.x_mean, scaling.y_mean))
    key = ("start", *key, digest(rng.get_state()))
    B, gamma, after, starts = step(key, compute, lambda _: time.perf_counter() < deadline, is_start)
    rng.set_state(after.get_state())
    return B, kernel if gamma is None else kernel.with_gamma(gamma), Starts(*starts)
