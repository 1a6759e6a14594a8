"""Naive implementations of the baseline regressors in plain loops. They share no code with the library.

A kernel is a function `k(p, c)` of two points, as in `oracles.py`. In `recursive_feature_machine` it is a function of
the distance.
"""

import math
import warnings

import numpy as np
import pytest

# The scale and the shift of each column of the inputs.
UNITS, SHIFT = np.array([1.0, 5.0, 0.1]), np.array([0.0, 3.0, -2.0])


def data(m=24, T=1, seed=0):
    """Return three columns with different units, T smooth noisy targets, and the standardized inputs."""
    rng = np.random.default_rng([seed, m, T])
    Z = rng.normal(size=(m, 3))
    Y = np.stack([np.sin(Z[:, 0] + 2.0 * t) + 0.5 * Z[:, 1] + 4.0 for t in range(T)], axis=1)
    Y += 0.1 * rng.normal(size=Y.shape)
    X = Z * UNITS + SHIFT
    return X, Y[:, 0] if T == 1 else Y, standardise(X)[0]


def fresh(X, n=10, seed=1):
    """Return new rows, and the same rows standardized with the mean and scale of X."""
    _, mean, scale = standardise(X)
    new = np.random.default_rng(seed).normal(size=(n, X.shape[1])) * UNITS + SHIFT
    return new, (new - mean) / scale


def standardise(X):
    """Return the columns with mean zero and variance one, the means and the scales. Constant columns become zero."""
    mean, scale = X.mean(axis=0), X.std(axis=0)
    scale[np.ptp(X, axis=0) == 0.0] = 1.0
    return (X - mean) / scale, mean, scale


# ------------------------------------------------------------------------------------------- kernel ridge regression


def nystrom_coefficients(K_mc, K_cc, Y, reg_lambda):
    """Return the solution a of (K_mc'K_mc + lambda m K_cc) a = K_mc'y, where m is the number of rows of K_mc.

    If centers repeat, the solution is not unique, and the solution with the smallest norm is returned.
    """
    m = len(K_mc)
    A, b = K_mc.T @ K_mc + reg_lambda * m * K_cc, K_mc.T @ Y
    return np.linalg.lstsq(A, b, rcond=1e-13)[0]


def leave_one_out_error(K_mc, K_cc, Y, reg_lambda):
    """Return the mean over rows i and targets of the squared error at row i of the fit without row i.

    The penalty in the fit without row i is lambda m, not lambda (m - 1). Y must be centred. It is not centred again
    without row i.
    """
    m, total = len(K_mc), 0.0
    for i in range(m):
        others = [j for j in range(m) if j != i]
        A = K_mc[others].T @ K_mc[others] + reg_lambda * m * K_cc
        a = np.linalg.lstsq(A, K_mc[others].T @ Y[others], rcond=1e-13)[0]
        total += np.mean((Y[i] - K_mc[i] @ a) ** 2)
    return total / m


def exact_leave_one_out_error(K, Y, reg_lambda):
    """Return the leave-one-out error with all rows as centers. The fit without row i has no center at row i."""
    m, total = len(K), 0.0
    for i in range(m):
        others = [j for j in range(m) if j != i]
        a = np.linalg.solve(K[np.ix_(others, others)] + reg_lambda * m * np.eye(m - 1), Y[others])
        total += np.mean((Y[i] - K[i, others] @ a) ** 2)
    return total / m


# -------------------------------------------------------------------------------------------- recursive feature machine


def laplace_of(bandwidth):
    """Return the Laplace kernel exp(-t / bandwidth) as a function of the distance t."""
    return lambda t: math.exp(-t / bandwidth)


def gaussian_of(bandwidth):
    """Return the Gaussian kernel exp(-t^2 / (2 bandwidth^2)) as a function of the distance t."""
    return lambda t: math.exp(-(t**2) / (2.0 * bandwidth**2))


def recursive_feature_machine(Z, Y, k, reg, n_iter, diagonal):
    """Return M and the fitted function after n_iter updates, with gradients by central differences.

    M is the matrix of the distance sqrt((p - c)' M (p - c)). A kernel may have a kink at its center. As the kernel is
    symmetric, it contributes zero to the central difference at this point.
    """
    n_features, step = Z.shape[1], 1e-5
    M = np.eye(n_features)
    for k_update in range(n_iter + 1):

        def distance(p, c, M=M):
            return math.sqrt(max((p - c) @ M @ (p - c), 0.0))

        K = np.array([[k(distance(p, c)) for c in Z] for p in Z])
        alpha = np.linalg.solve(K + reg * np.eye(len(Z)), Y)

        def f(x, alpha=alpha, distance=distance):
            return np.array([k(distance(x, c)) for c in Z]) @ alpha

        if k_update < n_iter:
            total = np.zeros((n_features, n_features))
            for x in Z:
                slopes = [(f(x + step * e) - f(x - step * e)) / (2.0 * step) for e in np.eye(n_features)]
                for gradient in np.array(slopes).reshape(n_features, -1).T:
                    total += np.outer(gradient, gradient)
            M = np.diag(np.diag(total)) if diagonal else total
            M = M / np.max(M)
    return M, f


def xrfm_machine(Z, Y, validation, kernel, n_iter, diagonal, keep_best=False):
    """Return the model of the xrfm package (bandwidth L = 3, reg = 0.1) and its matrix M, computed in float64.

    All rows are used in the gradients. The Gaussian kernel is xrfm's kernel with the exponent 2 and the bandwidth
    L sqrt(2). The kernel "l2" of xrfm adds 1e-8 to the diagonal of a full M. For a full M, the kernel "l2_high_dim" is
    therefore used. It adds nothing to the diagonal, but computes distances by expanding the square.
    """
    torch = pytest.importorskip("torch")
    with warnings.catch_warnings():
        # The docstrings of xrfm have invalid escape sequences.
        warnings.simplefilter("ignore")
        rfm = pytest.importorskip("xrfm.rfm_src").RFM
    shape = {"bandwidth": 3.0, "exponent": 1.0} if kernel == "laplace" else {"bandwidth": 18.0**0.5, "exponent": 2.0}
    model = rfm("l2" if diagonal else "l2_high_dim", **shape, diag=diagonal, device="cpu", verbose=False)
    pairs = [tuple(torch.from_numpy(part.reshape(len(part), -1)) for part in pair) for pair in ((Z, Y), validation)]
    options = {"return_best_params": keep_best, "early_stop_rfm": False, "total_points_to_sample": len(Z)}
    model.fit(*pairs, iters=n_iter, reg=0.1, **options)
    M = np.ones(Z.shape[1]) if model.M is None else model.M.numpy()
    return model, np.diag(M) if M.ndim == 1 else M


# ----------------------------------------------------------------------------------------------------- networks


def rbf_objective(k, Z, Y, a, T, B, reg_lambda):
    """Return |K a - Y|^2 / n + lambda a' K_tt a with K_ij = k(B z_i, B t_j).

    z_i are the n rows of Z, and t_j are the centers, the rows of T. K_tt is the kernel matrix of the points B t_j.
    """
    P, C = [B @ z for z in Z], [B @ t for t in T]
    loss = 0.0
    for p, y in zip(P, Y, strict=True):
        loss += np.sum((sum(k(p, c) * row for c, row in zip(C, a, strict=True)) - y) ** 2)
    penalty = sum(k(C[i], C[j]) * (a[i] @ a[j]) for i in range(len(C)) for j in range(len(C)))
    return loss / len(Z) + reg_lambda * penalty


def adam(start, gradients, rate):
    """Return the parameters after one step of Adam with each of the gradients.

    `start` are the initial parameters, and `rate` is the learning rate. The steps are in the efficient form of Kingma
    and Ba (2015), section 2, with beta_1 = 0.9, beta_2 = 0.999 and epsilon = 1e-8.
    """
    theta, m, v = start.copy(), np.zeros_like(start), np.zeros_like(start)
    for t, g in enumerate(gradients, start=1):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        theta -= rate * math.sqrt(1.0 - 0.999**t) / (1.0 - 0.9**t) * m / (np.sqrt(v) + 1e-8)
    return theta


# ------------------------------------------------------------------------------------------------------- BKerNN


def brownian(P, Q):
    """Return the kernel matrix: the mean over the coordinates s of p and t of q of (|s| + |t| - |s - t|) / 2."""
    value = np.empty((len(P), len(Q)))
    for i, p in enumerate(P):
        for j, q in enumerate(Q):
            value[i, j] = np.mean([(abs(s) + abs(t) - abs(s - t)) / 2.0 for s, t in zip(p, q, strict=True)])
    return value


def bkernn_coefficients(K, y, reg_lambda):
    """Return the coefficients (HKH + m lambda I)^-1 H y with H = I - 11'/m, and the intercept mean(y - K a)."""
    m = len(y)
    H = np.eye(m) - np.ones((m, m)) / m
    alpha = np.linalg.inv(H @ K @ H + m * reg_lambda * np.eye(m)) @ H @ y
    return alpha, np.mean(y - K @ alpha)


def bkernn_objective(Z, y, W, reg_lambda):
    """Return the minimum over a and b of |y - K a - b|^2 / (2m) + (lambda/2) a'Ka.

    The minimum is (lambda/2) y' H (HKH + m lambda I)^-1 H y with the centring matrix H.
    """
    alpha, _ = bkernn_coefficients(brownian(Z @ W, Z @ W), y, reg_lambda)
    return 0.5 * reg_lambda * (y @ alpha)


def bkernn_penalty(W, penalty):
    """Return one of the three penalties Omega(W) of Follain and Bach, see `BKerNN`."""
    n_features, p = W.shape
    if penalty == "feature":
        values = np.linalg.eigvalsh(W @ W.T / p)
        return 0.5 * sum(math.sqrt(max(value, 0.0)) for value in values)
    if penalty == "variable":
        return 0.5 * sum(math.sqrt(sum(W[a, j] ** 2 for j in range(p)) / p) for a in range(n_features))
    return 0.5 * sum(math.sqrt(sum(W[a, j] ** 2 for a in range(n_features))) for j in range(p)) / p
