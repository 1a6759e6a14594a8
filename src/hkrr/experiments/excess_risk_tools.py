"""Tools to measure excess risks: test data without noise, tuned kernel ridge regression, and slopes of log(risk)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hkrr._base.linear_algebra import Array
from hkrr._maps import KernelExpansion
from hkrr.criteria import Evidence
from hkrr.datasets import make_mim_sines
from hkrr.estimators.search.candidates import FIRST_LAMBDA, plain_kernel_ridge
from hkrr.kernels import Gaussian
from hkrr.objective import Objective
from hkrr.rows import InMemoryRows

# Maximum number of rows used to maximize the evidence.
_EVIDENCE_ROWS = 1_000


class Truth(NamedTuple):
    """Noisy training rows, and test rows with a noiseless target.

    Because the test target has no noise, the mean squared error on the test rows is the excess risk.
    """

    X: Array
    y: Array
    X_test: Array
    z_test: Array
    B: Array

    def excess_risk(self, predicted: Array) -> float:
        """Return the excess risk of the predictions at the test rows, divided by the variance of the noiseless target.

        The predictions are clipped at the largest absolute value of the training target.
        """
        M = float(np.max(np.abs(self.y)))
        return float(np.mean((np.clip(predicted, -M, M) - self.z_test) ** 2) / np.var(self.z_test))


def draw_with_truth(n_train: int, n_test: int, D: int, d: int, seed: int) -> Truth:
    """Draw data set 1 of the paper with D columns and d directions. Only the training target contains noise."""
    noisy, clean = (make_mim_sines(n_train + n_test, D, d, noise=noise, random_state=seed) for noise in (0.01, 0.0))
    return Truth(noisy.X[:n_train], noisy.y[:n_train], noisy.X[n_train:], clean.y[n_train:], noisy.B)


def learned_krr(X: Array, y: Array, X_test: Array, seed: int) -> Array:
    """Return the predictions of exact kernel ridge regression, with lambda and gamma chosen by the evidence.

    The evidence is maximized on at most 1,000 rows. The fit to all m rows uses the same gamma and the same nu, the
    ratio of the noise variance to the signal variance. Its lambda is nu / m.
    """
    rng, mean, scale = np.random.RandomState(seed), float(np.mean(y)), X.std(axis=0)
    X, X_test = X / scale, X_test / scale
    rows = InMemoryRows(X, y - mean)
    some = rows.at_most(_EVIDENCE_ROWS, rng)
    kernel = Gaussian(gamma=1.0)
    noises = (0.001, 0.1, FIRST_LAMBDA * some.n_rows)
    found, _ = plain_kernel_ridge(Evidence(some, None, kernel, 1.0, True), kernel, noises, rng)
    alpha = Objective(rows, None, kernel, found.nu / len(X)).solve_alpha(found.B)
    return KernelExpansion(kernel, found.B, X, alpha[:, 0], mean).at(X_test)


def slope(sizes: list[int], risks: list[float]) -> float:
    """Return the least-squares slope of log(risk) against log(size), or NaN if there are fewer than two sizes."""
    if len(sizes) < 2:
        return float("nan")
    return float(np.polyfit(np.log(sizes), np.log(risks), 1)[0])
