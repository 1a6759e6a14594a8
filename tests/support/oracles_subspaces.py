"""Naive oracles of the classical estimators of the subspace: their formulas in plain loops, nothing of the library.

Sources: Li (1991), Cook and Weisberg (1991), Li (1992), Xia, Tong, Li and Zhu (2002), Fukumizu, Bach and Jordan (2009),
Fukumizu and Leng (2014), Klock, Lanteri and Vigogna (2021). Z are rows already standardised, unless said otherwise.
"""

import itertools
import math

import numpy as np

# ------------------------------------------------------------------------------------------------ standardised inputs


def inverse_root(X):
    """S^(-1/2), S the covariance of X with divisor m: the standardisation of Li (1991)."""
    values, vectors = np.linalg.eigh(np.cov(X.T, bias=True).reshape(X.shape[1], X.shape[1]))
    return vectors @ np.diag(1.0 / np.sqrt(values)) @ vectors.T


def standardise(X):
    """S^(-1/2) (x - mean), row by row."""
    root, mean = inverse_root(X), X.mean(axis=0)
    return np.array([root @ (x - mean) for x in X])


def equal_slices(y, n_slices):
    """Rows sorted by the target, cut in blocks of one size (which must divide the number of rows)."""
    size = len(y) // n_slices
    assert size * n_slices == len(y)
    order = sorted(range(len(y)), key=lambda i: y[i])
    return [order[h * size : (h + 1) * size] for h in range(n_slices)]


def leading(M, n_components):
    """Rows: the eigenvectors of the largest eigenvalues in absolute value."""
    values, vectors = np.linalg.eigh(M)
    return vectors[:, np.argsort(-np.abs(values))[:n_components]].T


# ------------------------------------------------------------------------------------------------- inverse regression


def sir_matrix(Z, y, n_slices):
    """sum_h p_h m_h m_h'."""
    M = np.zeros((Z.shape[1], Z.shape[1]))
    for rows in equal_slices(y, n_slices):
        mean = sum(Z[i] for i in rows) / len(rows)
        M += len(rows) / len(y) * np.outer(mean, mean)
    return M


def save_matrix(Z, y, n_slices, ddof):
    """sum_h p_h (I - V_h)^2, V_h the covariance in slice h, with divisor n_h - ddof."""
    eye = np.eye(Z.shape[1])
    M = np.zeros_like(eye)
    for rows in equal_slices(y, n_slices):
        mean = sum(Z[i] for i in rows) / len(rows)
        V = sum(np.outer(Z[i] - mean, Z[i] - mean) for i in rows) / (len(rows) - ddof)
        M += len(rows) / len(y) * (eye - V) @ (eye - V)
    return M


def phd_matrix(Z, y):
    """(1/m) sum_i r_i z_i z_i', r the residuals of the line with an intercept."""
    design = np.column_stack([np.ones(len(Z)), Z])
    r = y - design @ np.linalg.lstsq(design, y)[0]
    return sum(r[i] * np.outer(Z[i], Z[i]) for i in range(len(Z))) / len(Z)


# --------------------------------------------------------------------------------------------------------- local lines


def local_weights(Z, C, B):
    """exp(-|B (z_i - c_j)|^2 / (2 h^2)), columns summing to 1; h = 1.06 s m^(-1/(p+4)), 2 p s^2 the median of the
    squared distances.
    """
    p = len(B)
    squared = np.array([[math.dist(B @ z, B @ c) ** 2 for c in C] for z in Z])
    h = 1.06 * math.sqrt(np.median(squared) / (2 * p)) * len(Z) ** (-1.0 / (p + 4))
    W = np.array([[math.exp(-s / (2 * h**2)) for s in row] for row in squared])
    return W / W.sum(axis=0)


def local_line(P, y, q, w, ridge):
    """Level and slopes that minimise sum_i w_i (y_i - a - b'(p_i - q))^2 + rho |b|^2 over a and b, by stacked rows.

    rho is ``ridge`` times the mean diagonal entry of the weighted covariance of the p_i. As in the library, rows with
    less than 1e-12 of the largest weight are left out: at an anchor far from all others they move the last digits.
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
    """`local_line` at every anchor."""
    fits = [local_line(P, y, q, W[:, j], ridge) for j, q in enumerate(Q)]
    return np.array([a for a, _ in fits]), np.array([b for _, b in fits])


def opg_matrix(Z, y, n_components, n_iter, ridge):
    """(1/m) sum_j b_j b_j' at all rows: weights in all coordinates first, then in those of the map found so far."""

    def matrix(B):
        _, slopes = local_lines(Z, y, Z, local_weights(Z, Z, B), ridge)
        return sum(np.outer(b, b) for b in slopes) / len(slopes)

    M = matrix(np.eye(Z.shape[1]))
    for _ in range(n_iter):
        M = matrix(leading(M, n_components))
    return M


def mave_objective(Z, y, C, W, levels, slopes, B):
    """sum_ij w_ij (y_i - a_j - b_j' B (z_i - c_j))^2."""
    pairs = itertools.product(range(len(Z)), range(len(C)))
    return sum(W[i, j] * (y[i] - levels[j] - slopes[j] @ B @ (Z[i] - C[j])) ** 2 for i, j in pairs)


def mave_map(Z, y, C, W, levels, slopes, ridge):
    """The B that minimises the sum plus rho |B|^2, by least squares on one row for each pair (i, j); and rho.

    b_j' B (z_i - c_j) is linear in the entries of B with coefficients b_jk (z_i - c_j)_l; rho is ``ridge`` times the
    mean squared norm that such a coefficient has, weights included.
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
    """exp(-gamma |p_i - p_j|^2), an entry at a time."""
    return np.array([[math.exp(-gamma * math.dist(p, q) ** 2) for q in P] for p in P])


def median_gamma(P):
    """1 / (2 median^2) of the distances between different rows."""
    pairs = itertools.combinations(range(len(P)), 2)
    return 1.0 / (2.0 * np.median([math.dist(P[i], P[j]) for i, j in pairs]) ** 2)


def centred(K):
    """H K H, H = I - 1 1'/m."""
    H = np.eye(len(K)) - np.ones_like(K) / len(K)
    return H @ K @ H


def kdr_objective(Z, G_y, B, gamma, epsilon):
    """tr(G_y (G_{ZB'} + m eps I)^-1) / m, with the inverse written out."""
    m = len(Z)
    return np.trace(G_y @ np.linalg.inv(centred(gram(Z @ B.T, gamma)) + m * epsilon * np.eye(m))) / m


def gradient_kdr_matrix(K, G_y, gamma, Z, epsilon):
    """(1/m) sum_i N_i' A^-1 G_y A^-1 N_i, A = K + m eps I, row j of N_i the gradient of k(z_j, x) in x at x = z_i."""
    m, D = Z.shape
    inverse = np.linalg.inv(K + m * epsilon * np.eye(m))
    M = np.zeros((D, D))
    for i in range(m):
        N = np.array([2 * gamma * math.exp(-gamma * math.dist(z, Z[i]) ** 2) * (z - Z[i]) for z in Z])
        M += N.T @ inverse @ G_y @ inverse @ N / m
    return M


# ----------------------------------------------------------------------------------------------------------------- RCLS


def rcls_matrix(Z, y, parts):
    """sum_h p_h b_h b_h', b_h the slopes of the line fitted to the rows of slice h."""
    M = np.zeros((Z.shape[1], Z.shape[1]))
    for rows in parts:
        design = np.column_stack([np.ones(len(rows)), Z[rows]])
        slope = np.linalg.lstsq(design, y[rows])[0][1:]
        M += len(rows) / len(y) * np.outer(slope, slope)
    return M


def monomials(x, degree):
    """All products of powers of the entries of x, of total degree at most ``degree``."""
    powers = itertools.product(range(degree + 1), repeat=len(x))
    return np.array([math.prod(float(v) ** k for v, k in zip(x, e, strict=True)) for e in powers if sum(e) <= degree])


def piecewise_polynomial(X, y, X_new, n_cells, degree):
    """Least-squares polynomials on the cells of the grid over the range of X; few rows: the polynomial of all rows."""
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
