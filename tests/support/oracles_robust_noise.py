"""Naive oracles of robust noise: leave-one-out errors by one refit for each row, and densities of the errors.

The noise variance of row i is nu / w_i, in units of the variance of the function. omega_i is the factor by which the
heavy-tailed noise model multiplies the weight w_i; it is small for outliers. This module does not import the
library.
"""

import math

import numpy as np
from scipy import stats
from scipy.optimize import minimize

from support.oracles import gram, project

DEGREES = 4.0


def mean_and_variance(k, P, Y, noise, p):
    """Return the mean (T,) and the variance of a Gaussian process at p, given rows P, Y and their noise variances."""
    K = gram(k, P, P) + np.diag(noise)
    column = np.array([k(p, one) for one in P])
    return column @ np.linalg.solve(K, Y), k(p, p) - column @ np.linalg.solve(K, column)


def robust_weights_and_targets(Y, w, omega, centered):
    """Return the weights w_i omega_i, scaled so that their sum is sum_i w_i, and the targets.

    If `centered`, the weighted mean is subtracted from the targets.
    """
    weights = w * omega
    weights = weights * (np.sum(w) / np.sum(weights))
    mean = sum(weights[i] * Y[i] for i in range(len(Y))) / np.sum(weights)
    return weights, Y - mean if centered else Y


def leave_one_out(k, X, Y, w, omega, B, nu, centered):
    """Return the standardized squared errors (n, T) and the logarithms of the variances (n,), by n refits.

    Row i is deleted, and the other rows give the mean and the variance of the function at row i. The noise variance of
    row i itself is nu divided by its weight without the factor omega_i.
    """
    weights, Y = robust_weights_and_targets(Y, w, omega, centered)
    P = project(X, B)
    squares, logs = np.empty_like(Y), np.empty(len(Y))
    for i in range(len(Y)):
        others = [j for j in range(len(Y)) if j != i]
        mean, variance = mean_and_variance(k, P[others], Y[others], nu / weights[others], P[i])
        total = variance + nu * omega[i] / weights[i]
        squares[i], logs[i] = (Y[i] - mean) ** 2 / total, math.log(total)
    return squares, logs


def student_log_density(squares, scale, log_variance):
    """Return the mean over the rows of the log density of the errors sqrt(z_it v_i).

    The errors of row i have a multivariate t distribution with the scale matrix v_i diag(q). `squares` holds the z_it,
    `scale` holds q, and `log_variance` the logarithms of the v_i.
    """
    errors = np.sqrt(squares) * np.exp(0.5 * log_variance)[:, None]
    return np.mean(
        [
            stats.multivariate_t.logpdf(error, shape=np.diag(np.exp(one) * scale), df=DEGREES)
            for error, one in zip(errors, log_variance, strict=True)
        ]
    )


def normal_log_density(squares, scale, log_variance):
    """Return the same mean as `student_log_density`, but for independent normal errors with the variances q_t v_i."""
    deviation = np.exp(0.5 * log_variance)[:, None]
    return np.mean(np.sum(stats.norm.logpdf(np.sqrt(squares) * deviation, scale=np.sqrt(scale) * deviation), axis=1))


def best_student_scale(squares):
    """Return the scales q (T,) that maximize the log density of the Student-t distribution, by numerical search."""
    logs = np.zeros(len(squares))
    found = minimize(
        lambda q: -student_log_density(squares, np.exp(q), logs),
        np.log(np.mean(np.minimum(squares, 9.0 * np.median(squares, axis=0)), axis=0)),
        method="Nelder-Mead",
        options={"xatol": 1e-7, "fatol": 1e-12, "maxiter": 2000},
    )
    assert found.success
    return np.exp(found.x)
