"""What the experiments share: the paper's setting of a fit, its data split three ways, its refit, the three solvers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from hkrr._arrays import Array
from hkrr.candidates import FIRST_LAMBDA, plain
from hkrr.centers import uniform
from hkrr.criteria import Evidence
from hkrr.datasets import make_mim_mixed, make_mim_sines
from hkrr.estimator import HyperKernelRidge
from hkrr.kernels import Gaussian
from hkrr.metrics import subspace_distance
from hkrr.objective import Objective
from hkrr.rows import InMemoryRows
from hkrr.solvers import AGD, LBFGS, Solver, VarPro
from hkrr.threads import single_threaded_blas

METHODS = ("VarPro", "AGD", "L-BFGS")
MAKE = {1: make_mim_sines, 2: make_mim_mixed}
_UNLIMITED = 10**9
_EXACT_ROWS, _CENTERS = 4_000, 2_000
_EVIDENCE_ROWS = 1_000


def solver(method: str) -> Solver:
    """Return the solver of that name with its defaults."""
    solvers: dict[str, Solver] = {"VarPro": VarPro(), "AGD": AGD(), "L-BFGS": LBFGS()}
    return solvers[method]


class Seeds(NamedTuple):
    """A seed for what is drawn as data, and one for a model: from one stream a start could resemble the true map."""

    data: int
    model: int


def seeds(seed: int, repeat: int) -> Seeds:
    """Return the seeds of a repeat."""
    return Seeds(1000 * seed + repeat, 1_000_000 + 1000 * seed + repeat)


class Grid(NamedTuple):
    """What the refit chooses from: lambdas, and factors of the gamma of the median rule."""

    lambdas: Sequence[float]
    scales: Sequence[float]


class Split(NamedTuple):
    """Rows to learn from, to choose by, and to test on."""

    X: Array
    y: Array
    X_validation: Array
    y_validation: Array
    X_test: Array
    y_test: Array
    B: Array


def draw(data_set: int, n_train: int, n_validation: int, n_test: int, D: int, d: int, seed: int) -> Split:
    """Draw one of the paper's two data sets, split three ways."""
    data = MAKE[data_set](n_train + n_validation + n_test, D, d, random_state=seed)
    ends = np.cumsum([n_train, n_validation])
    X, y = np.split(data.X, ends), np.split(data.y, ends)
    return Split(X[0], y[0], X[1], y[1], X[2], y[2], data.B)


class Truth(NamedTuple):
    """Rows to learn from, and test rows whose target has no noise: the mean squared error there is the excess risk."""

    X: Array
    y: Array
    X_test: Array
    z_test: Array
    B: Array

    def excess_risk(self, predicted: Array) -> float:
        """Return the excess risk over the variance of the noiseless target."""
        return float(np.mean((predicted - self.z_test) ** 2) / np.var(self.z_test))


def draw_with_truth(n_train: int, n_test: int, D: int, d: int, seed: int) -> Truth:
    """Draw data set 1, noisy to learn from and noiseless to test on."""
    noisy, clean = (make_mim_sines(n_train + n_test, D, d, noise=noise, random_state=seed) for noise in (0.01, 0.0))
    return Truth(noisy.X[:n_train], noisy.y[:n_train], noisy.X[n_train:], clean.y[n_train:], noisy.B)


def learn_map(split: Split, method: str, d: int, n_centers: int, reg_lambda: float, seconds: float, seed: int) -> Any:
    """Return the paper's fit: no scaling, no intercept, the best of ten sampled maps, stopped by the clock."""
    model = HyperKernelRidge(
        d,
        reg_lambda=reg_lambda,
        n_centers=n_centers,
        solver=solver(method),
        scale_features=False,
        fit_intercept=False,
        max_iter=_UNLIMITED,
        tol=0.0,
        time_limit=seconds,
        n_jobs=1,
        random_state=seed,
    )
    return model.fit(split.X, split.y)


def scored(
    split: Split, method: str, d: int, n_centers: int, reg_lambda: float, seconds: float, seed: int, grid: Grid
) -> dict[str, float]:
    """Return the test R2 of the map that a method has learned when its time is over, and how it got there."""
    model = learn_map(split, method, d, n_centers, reg_lambda, seconds, seed)
    return {
        "R2": refit(split, model.components_, grid),
        "objective": float(model.result_.objective),
        "subspace_distance": float(subspace_distance(model.components_, split.B)),
        "iterations": int(model.n_iter_),
        "seconds": float(model.history_["time"][-1]),
    }


def refit(split: Split, B: Array, grid: Grid) -> float:
    """Return the test R2 of kernel ridge regression at a map, gamma and lambda chosen on the validation rows.

    All rows are centers up to 4,000 of them, 2,000 drawn at random beyond, where the paper is exact: at 16,000 rows
    that takes a minute for every pair of gamma and lambda.
    """
    P, P_validation, P_test = (X @ B.T for X in (split.X, split.X_validation, split.X_test))
    rows = InMemoryRows(P, split.y)
    rng, identity = np.random.RandomState(0), np.eye(len(B))
    centers = None if len(P) <= _EXACT_ROWS else uniform(rows, _CENTERS, rng)
    best, lowest = None, math.inf
    gamma = Gaussian().median_gamma(P[rng.permutation(len(P))[:1000]])
    with single_threaded_blas():
        for scale in grid.scales:
            kernel = Gaussian(gamma=gamma * scale)
            for reg_lambda in grid.lambdas:
                objective = Objective(rows, centers, kernel, reg_lambda)
                alpha = objective.solve_alpha(identity)
                error = _squares(kernel(P_validation, objective.centers) @ alpha, split.y_validation)
                if error < lowest:
                    best, lowest = (kernel, objective.centers, alpha), error
        if best is None:
            return -math.inf
        kernel, C, alpha = best
        return 1.0 - _squares(kernel(P_test, C) @ alpha, split.y_test) / float(np.var(split.y_test))


def _squares(predicted: Array, y: Array) -> float:
    return float(np.mean((predicted[:, 0] - y) ** 2))


def learned_krr(X: Array, y: Array, X_test: Array, seed: int) -> Array:
    """Return the predictions of kernel ridge regression, exact, its lambda and gamma by the evidence.

    That is maximised on at most 1,000 rows; the noise in units of the signal, nu = lambda m, is kept for all of them.
    """
    rng, mean = np.random.RandomState(seed), float(np.mean(y))
    X, X_test = X / X.std(axis=0), X_test / X.std(axis=0)
    rows = InMemoryRows(X, y - mean)
    some = rows if len(X) <= _EVIDENCE_ROWS else rows.subset(rows.draw(_EVIDENCE_ROWS, rng))
    kernel = Gaussian(gamma=1.0)
    with single_threaded_blas():
        noises = (0.001, 0.1, FIRST_LAMBDA * some.n_rows)
        found, _ = plain(Evidence(some, None, kernel, 1.0, True), kernel, noises, rng)
        scale = float(found.B[0])
        alpha = Objective(rows, None, kernel, found.nu / len(X)).solve_alpha(found.matrix)
        return kernel(scale * X_test, scale * X) @ alpha[:, 0] + mean
