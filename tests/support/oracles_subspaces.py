"""Naive implementations of the subspace estimators in plain loops. They share no code with the library.

Sources: Li (1991), Cook and Weisberg (1991), Li (1992), Xia, Tong, Li and Zhu (2002), Fukumizu, Bach and Jordan (2009),
Fukumizu and Leng (2014), Klock, Lanteri and Vigogna (2021). Z denotes whitened inputs, y the target and m the
number of rows.
"""

import itertools
import math

import numpy as np

# ------------------------------------------------------------------------------------------------ standardized inputs


def inverse_root(X):
    """Return S^(-1/2), where S is the covariance of X with divisor m, as in Li (1991)."""
    values, vectors = np.linalg.eigh(np.cov(X.T, bias=True).reshape(X.shape[1], X.shape[1]))
    return vectors @ np.diag(1.0 / np.sqrt(values)) @ vectors.T


def standardise(X):
    """Return S^(-1/2) (x - mean) for each row x."""
    root, mean = inverse_root(X), X.mean(axis=0)
    return np.array([root @ (x - mean) for x in X])


def equal_slices(y, n_slices):
    """Return the row indices, sorted by the target and split into slices of equal size.

    ``n_slices`` must divide the number of rows.
    """
    size = len(y) // n_slices
    assert size * n_slices == len(y)
    order = sorted(range(len(y)), key=lambda i: y[i])
    return [order[h * size : (h + 1) * size] for h in range(n_slices)]


def leading(M, n_components):
    """Return the eigenvectors of the largest eigenvalues in absolute value, as rows."""
    values, vectors = np.linalg.eigh(M)
    return vectors[:, np.argsort(-np.abs(values))[:n_components]].T


# ------------------------------------------------------------------------------------------------- inverse regression


def sir_matrix(Z, y, n_slices):
    """Return sum_h p_h m_h m_h', where slice h has the fraction p_h of the rows and the mean m_h of z."""
    M = np.zeros((Z.shape[1], Z.shape[1]))
    for rows in equal_slices(y, n_slices):
        mean = sum(Z[i] for i in rows) / len(rows)
        M += len(rows) / len(y) * np.outer(mean, mean)
    return M


def save_matrix(Z, y, n_slices, ddof):
    """Return sum_h p_h (I - V_h)^2.

    Slice h has n_h rows, which are the fraction p_h of all rows. V_h is their covariance with the divisor n_h - ddof.
    """
    eye = np.eye(Z.shape[1])
    M = np.zeros_like(eye)
    for rows in equal_slices(y, n_slices):
        mean = sum(Z[i] for i in rows) / len(rows)
        V = sum(np.outer(Z[i] - mean, Z[i] - mean) for i in rows) / (len(rows) - ddof)
        M += len(rows) / len(y) * (eye - V) @ (eye - V)
    return M


def phd_matrix(Z, y):
    """Return (1/m) sum_i r_i z_i z_i', where r are the residuals of a linear fit with an intercept."""
    design = np.column_stack([np.ones(len(Z)), Z])
    r = y - design @ np.linalg.lstsq(design, y)[0]
    return sum(r[i] * np.outer(Z[i], Z[i]) for i in range(len(Z))) / len(Z)


# --------------------------------------------------------------------------------------------------- local linear fits


def local_weights(Z, C, B):
    """Return exp(-|B (z_i - c_j)|^2 / (2 h^2)) for the rows z_i of Z and c_j of C. Each column is scaled to the sum 1.

    The bandwidth is h = 1.06 s m^(-1/(p+4)), where m is the number of rows of Z, p is the number of rows of B, and s^2
    is the median of the squared distances |B (z_i - c_j)|^2 divided by 2 p.
    """
    p = len(B)
    squared = np.array([[math.dist(B @ z, B @ c) ** 2 for c in C] for z in Z])
    h = 1.06 * math.sqrt(np.median(squared) / (2 * p)) * len(Z) ** (-1.0 / (p + 4))
    W = np.array([[math.exp(-s / (2 * h**2)) for s in row] for row in squared])
    return W / W.sum(axis=0)


def local_line(P, y, q, w, ridge):
    """Return the a and b that minimize sum_i w_i (y_i - a - b'(p_i - q))^2 + rho |b|^2, by stacked least squares.

    rho is ``ridge`` times the mean diagonal entry of the weighted covariance of the p_i. As in the library, rows with
    less than 1e-12 of the largest weight are ignored, because they can change the last digits. q is called the anchor.
    """
    kept = w > 1e-12 * w.max()
    P, y, w, p = P[kept], y[kept], w[kept], P.shape[1]
    mean = w @ P
    rho = ridge * sum(w[i] * np.sum((P[i] - mean) ** 2) for i in range(len(P))) / p
    rows = [math.sqrt(w[i]) * np.concatenate([[1.0], P[i] - q]) for i in range(len(P))]
    rows += [np.concatenate([[0.0], math.sqrt(rho) * e]) for e in np.eye(p)]
    targets = [math.sqrt(w[i]) * y[i] for i in range(len(P))] + [0.0] * p
    solution = np.linalg.lstsq(np.array(rows), np.array(targets))[0]
    return solution[0], solution[1:]


def local_lines(P, y, Q, W, ridge):
    """Return the a and b of `local_line` at every anchor (row of Q), with the weights in the columns of W."""
    fits = [local_line(P, y, q, W[:, j], ridge) for j, q in enumerate(Q)]
    return np.array([a for a, _ in fits]), np.array([b for _, b in fits])


def opg_matrix(Z, y, n_components, n_iter, ridge):
    """Return (1/m) sum_j b_j b_j', where b_j are the slopes of the local fit at row j.

    In the first iteration the weights use all coordinates. Later iterations use the coordinates of the current map.
    """

    def matrix(B):
        _, slopes = local_lines(Z, y, Z, local_weights(Z, Z, B), ridge)
        return sum(np.outer(b, b) for b in slopes) / len(slopes)

    M = matrix(np.eye(Z.shape[1]))
    for _ in range(n_iter):
        M = matrix(leading(M, n_components))
    return M


def mave_objective(Z, y, C, W, levels, slopes, B):
    """Return sum_ij w_ij (y_i - a_j - b_j' B (z_i - c_j))^2 for the weights w_ij in W.

    The anchors c_j are the rows of C, a_j are the levels, and b_j the slopes.
    """
    pairs = itertools.product(range(len(Z)), range(len(C)))
    return sum(W[i, j] * (y[i] - levels[j] - slopes[j] @ B @ (Z[i] - C[j])) ** 2 for i, j in pairs)


def mave_map(Z, y, C, W, levels, slopes, ridge):
    """Return the B that minimizes `mave_objective` plus rho |B|^2, by stacked least squares, and rho.

    b_j' B (z_i - c_j) is linear in the entries of B, with the coefficients b_jk (z_i - c_j)_l. rho is ``ridge`` times
    the mean over the entries of B of the weighted sums of squared coefficients.
    """
    d, D = slopes.shape[1], Z.shape[1]
    pairs = list(itertools.product(range(len(Z)), range(len(C))))
    rows = np.array([math.sqrt(W[i, j]) * np.outer(slopes[j], Z[i] - C[j]).ravel() for i, j in pairs])
    targets = np.array([math.sqrt(W[i, j]) * (y[i] - levels[j]) for i, j in pairs])
    rho = ridge * np.sum(rows**2) / (d * D)
    rows = np.vstack([rows, math.sqrt(rho) * np.eye(d * D)])
    return np.linalg.lstsq(rows, np.concatenate([targets, np.zeros(d * D)]))[0].reshape(d, D), rho


# -------------------------------------------------------------------------------------------------------------- kernels


def gram(P, gamma):
    """Return exp(-gamma |p_i - p_j|^2), computed entry by entry."""
    return np.array([[math.exp(-gamma * math.dist(p, q) ** 2) for q in P] for p in P])


def median_gamma(P):
    """Return 1 / (2 median^2), where median is the median distance over all pairs of rows i < j of P."""
    pairs = itertools.combinations(range(len(P)), 2)
    return 1.0 / (2.0 * np.median([math.dist(P[i], P[j]) for i, j in pairs]) ** 2)


def centred(K):
    """Return H K H with H = I - 1 1'/m."""
    H = np.eye(len(K)) - np.ones_like(K) / len(K)
    return H @ K @ H


def kdr_objective(Z, G_y, B, gamma, epsilon):
    """Return tr(G_y (G + m eps I)^-1) / m, with an explicit inverse.

    G is the centred kernel matrix of the points B z_i, where z_i are the m rows of Z. G_y is a kernel matrix of the
    targets.
    """
    m = len(Z)
    return np.trace(G_y @ np.linalg.inv(centred(gram(Z @ B.T, gamma)) + m * epsilon * np.eye(m))) / m


def gradient_kdr_matrix(K, G_y, gamma, Z, epsilon):
    """Return (1/m) sum_i N_i' A^-1 G_y A^-1 N_i with A = K + m eps I.

    K and G_y are the kernel matrices of the rows z_i of Z and of the targets. Row j of N_i is the gradient of k(z_j, x)
    with respect to x at x = z_i.
    """
    m, D = Z.shape
    inverse = np.linalg.inv(K + m * epsilon * np.eye(m))
    M = np.zeros((D, D))
    for i in range(m):
        N = np.array([2 * gamma * math.exp(-gamma * math.dist(z, Z[i]) ** 2) * (z - Z[i]) for z in Z])
        M += N.T @ inverse @ G_y @ inverse @ N / m
    return M


# ----------------------------------------------------------------------------------------------------------------- RCLS


def rcls_matrix(Z, y, parts):
    """Return sum_h p_h b_h b_h', where slice h has the fraction p_h of the rows and the slopes b_h of a linear fit."""
    M = np.zeros((Z.shape[1], Z.shape[1]))
    for rows in parts:
        design = np.column_stack([np.ones(len(rows)), Z[rows]])
        slope = np.linalg.lstsq(design, y[rows])[0][1:]
        M += len(rows) / len(y) * np.outer(slope, slope)
    return M


def monomials(x, degree):
    """Return all monomials of the entries of x with a total degree of at most ``degree``."""
    powers = itertools.product(range(degree + 1), repeat=len(x))
    return np.array([math.prod(float(v) ** k for v, k in zip(x, e, strict=True)) for e in powers if sum(e) <= degree])


def piecewise_polynomial(X, y, X_new, n_cells, degree):
    """Return the predictions of least-squares polynomials on the cells of a grid over the range of X.

    A cell with fewer rows than twice the number of coefficients uses a polynomial fitted to all rows.
    """
    low, high = X.min(axis=0), X.max(axis=0)

    def cell(x):
        place = [math.floor(n_cells * (v - a) / (b - a)) for v, a, b in zip(x, low, high, strict=True)]
        return tuple(min(max(k, 0), n_cells - 1) for k in place)

    def predict(rows, x):
        A = np.array([monomials(row, degree) for row in X[rows]])
        return monomials(x, degree) @ np.linalg.lstsq(A, y[rows])[0]

    everything, found = list(range(len(X))), []
    for x in X_new:
        rows = [i for i in everything if cell(X[i]) == cell(x)]
        enough = len(rows) >= 2 * len(monomials(x, degree))
        found.append(min(max(predict(rows if enough else everything, x), y.min()), y.max()))
    return np.array(found)
