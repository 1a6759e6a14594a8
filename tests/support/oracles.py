"""Naive oracles: the formulas of the library in plain loops, as a reference for the tests.

Every formula is written for one pair of points, one row, one center or one coordinate at a time, so that it can be
compared with the paper directly. NumPy only stores arrays and solves dense systems. The tests compare the blocked and
vectorised code of the library with these functions. This module does not import the library.

A kernel is a pair of functions of two points: its value `k(p, c)` and its gradient with respect to p, `dk(p, c)`. All
kernels are symmetric, so the gradient with respect to c is `dk(c, p)`. If a kernel has a kink at distance zero, its
derivative there is set to 0.

In the docstrings of kernels, s = |p - c|^2, r = sqrt(s), ell = 1/sqrt(2 gamma) and t_j = |p_j - c_j| / ell.
"""

import math

import numpy as np

# ---------------------------------------------------------------------------------------------------------- kernels


def squared_distance(p, c):
    """Return s = sum_j (p_j - c_j)^2."""
    return sum((float(a) - float(b)) ** 2 for a, b in zip(p, c, strict=True))


def dot(p, c):
    """Return the scalar product p.c = sum_j p_j c_j."""
    return sum(float(a) * float(b) for a, b in zip(p, c, strict=True))


def radial_gradient(p, c, factor):
    """Return the vector factor * (p - c)."""
    return np.array([factor * (float(a) - float(b)) for a, b in zip(p, c, strict=True)])


def length_scale(gamma):
    """Return ell = 1/sqrt(2 gamma)."""
    return 1.0 / math.sqrt(2.0 * gamma)


def gaussian(p, c, gamma):
    """Return k = exp(-gamma s), where s = |p - c|^2."""
    return math.exp(-gamma * squared_distance(p, c))


def gaussian_slope(p, c, gamma):
    """Return dk/dp_j = -2 gamma (p_j - c_j) exp(-gamma s), where s = |p - c|^2."""
    return radial_gradient(p, c, -2.0 * gamma * math.exp(-gamma * squared_distance(p, c)))


def laplace(p, c, gamma):
    """Return k = exp(-r/ell), where r = |p - c| and ell = 1/sqrt(2 gamma)."""
    return math.exp(-math.sqrt(squared_distance(p, c)) / length_scale(gamma))


def laplace_slope(p, c, gamma):
    """Return dk/dp_j = -exp(-r/ell) (p_j - c_j)/(ell r), and 0 at r = 0.

    Here r = |p - c| and ell = 1/sqrt(2 gamma).
    """
    r, ell = math.sqrt(squared_distance(p, c)), length_scale(gamma)
    return radial_gradient(p, c, 0.0 if r == 0.0 else -math.exp(-r / ell) / (ell * r))


def matern32(p, c, gamma):
    """Return k = (1 + sqrt(3) r/ell) exp(-sqrt(3) r/ell), where r = |p - c| and ell = 1/sqrt(2 gamma)."""
    r, ell = math.sqrt(squared_distance(p, c)), length_scale(gamma)
    return (1.0 + math.sqrt(3.0) * r / ell) * math.exp(-math.sqrt(3.0) * r / ell)


def matern32_slope(p, c, gamma):
    """Return dk/dp_j = -(3/ell^2) exp(-sqrt(3) r/ell) (p_j - c_j), where r = |p - c| and ell = 1/sqrt(2 gamma)."""
    r, ell = math.sqrt(squared_distance(p, c)), length_scale(gamma)
    return radial_gradient(p, c, -3.0 / ell**2 * math.exp(-math.sqrt(3.0) * r / ell))


def matern52(p, c, gamma):
    """Return k = (1 + sqrt(5) r/ell + 5 r^2/(3 ell^2)) exp(-sqrt(5) r/ell).

    Here r = |p - c| and ell = 1/sqrt(2 gamma).
    """
    r, ell = math.sqrt(squared_distance(p, c)), length_scale(gamma)
    return (1.0 + math.sqrt(5.0) * r / ell + 5.0 * r**2 / (3.0 * ell**2)) * math.exp(-math.sqrt(5.0) * r / ell)


def matern52_slope(p, c, gamma):
    """Return dk/dp_j = -(5/(3 ell^2)) (1 + sqrt(5) r/ell) exp(-sqrt(5) r/ell) (p_j - c_j).

    Here r = |p - c| and ell = 1/sqrt(2 gamma).
    """
    r, ell = math.sqrt(squared_distance(p, c)), length_scale(gamma)
    factor = -5.0 / (3.0 * ell**2) * (1.0 + math.sqrt(5.0) * r / ell) * math.exp(-math.sqrt(5.0) * r / ell)
    return radial_gradient(p, c, factor)


def rational_quadratic(p, c, gamma, alpha):
    """Return k = (1 + gamma s/alpha)^(-alpha), where s = |p - c|^2."""
    return (1.0 + gamma * squared_distance(p, c) / alpha) ** (-alpha)


def rational_quadratic_slope(p, c, gamma, alpha):
    """Return dk/dp_j = -2 gamma (1 + gamma s/alpha)^(-alpha-1) (p_j - c_j), where s = |p - c|^2."""
    return radial_gradient(p, c, -2.0 * gamma * (1.0 + gamma * squared_distance(p, c) / alpha) ** (-alpha - 1.0))


def inverse_multiquadric(p, c, gamma):
    """Return k = (1 + 2 gamma s)^(-1/2), where s = |p - c|^2."""
    return (1.0 + 2.0 * gamma * squared_distance(p, c)) ** (-0.5)


def inverse_multiquadric_slope(p, c, gamma):
    """Return dk/dp_j = -2 gamma (1 + 2 gamma s)^(-3/2) (p_j - c_j), where s = |p - c|^2."""
    return radial_gradient(p, c, -2.0 * gamma * (1.0 + 2.0 * gamma * squared_distance(p, c)) ** (-1.5))


def polynomial(p, c, gamma, degree, coef0):
    """Return k = (gamma p.c + coef0)^degree."""
    return (gamma * dot(p, c) + coef0) ** degree


def polynomial_slope(p, c, gamma, degree, coef0):
    """Return dk/dp_j = degree gamma c_j (gamma p.c + coef0)^(degree-1)."""
    return np.array([degree * gamma * float(b) * (gamma * dot(p, c) + coef0) ** (degree - 1) for b in c])


def product_laplace(p, c, gamma):
    """Return k = exp(-sum_j |p_j - c_j|/ell), where ell = 1/sqrt(2 gamma)."""
    return math.exp(-sum(abs(float(a) - float(b)) for a, b in zip(p, c, strict=True)) / length_scale(gamma))


def product_laplace_slope(p, c, gamma):
    """Return dk/dp_j = -sign(p_j - c_j) k/ell, where ell = 1/sqrt(2 gamma) and sign(0) = 0."""
    k, ell = product_laplace(p, c, gamma), length_scale(gamma)
    return np.array([-np.sign(float(a) - float(b)) * k / ell for a, b in zip(p, c, strict=True)])


def matern_factor(t, nu):
    """Return the Matern function of t >= 0, a distance divided by the length scale. nu is 1/2, 3/2 or 5/2."""
    if nu == 0.5:
        return math.exp(-t)
    if nu == 1.5:
        return (1.0 + math.sqrt(3.0) * t) * math.exp(-math.sqrt(3.0) * t)
    return (1.0 + math.sqrt(5.0) * t + 5.0 * t * t / 3.0) * math.exp(-math.sqrt(5.0) * t)


def matern_factor_slope(t, nu):
    """Return the derivative of `matern_factor` with respect to t.

    The derivative is -exp(-t) for nu = 1/2 (but 0 at t = 0), -3 t exp(-sqrt(3) t) for nu = 3/2, and
    -(5/3) t (1 + sqrt(5) t) exp(-sqrt(5) t) for nu = 5/2.
    """
    if nu == 0.5:
        return 0.0 if t == 0.0 else -math.exp(-t)
    if nu == 1.5:
        return -3.0 * t * math.exp(-math.sqrt(3.0) * t)
    return -5.0 / 3.0 * t * (1.0 + math.sqrt(5.0) * t) * math.exp(-math.sqrt(5.0) * t)


def product_matern(p, c, gamma, nu):
    """Return k = prod_j matern_nu(|p_j - c_j|/ell).

    matern_nu is the function `matern_factor`, and ell = 1/sqrt(2 gamma).
    """
    ell, k = length_scale(gamma), 1.0
    for a, b in zip(p, c, strict=True):
        k *= matern_factor(abs(float(a) - float(b)) / ell, nu)
    return k


def product_matern_slope(p, c, gamma, nu):
    """Return dk/dp_j = matern_nu'(t_j) sign(p_j - c_j)/ell prod_(i != j) matern_nu(t_i), where t_j = |p_j - c_j|/ell.

    matern_nu is the function `matern_factor`, and ell = 1/sqrt(2 gamma).
    """
    ell, gradient = length_scale(gamma), np.zeros(len(p))
    for j in range(len(p)):
        u = float(p[j]) - float(c[j])
        gradient[j] = matern_factor_slope(abs(u) / ell, nu) * np.sign(u) / ell
        for i in range(len(p)):
            if i != j:
                gradient[j] *= matern_factor(abs(float(p[i]) - float(c[i])) / ell, nu)
    return gradient


def anova(p, c, gamma, nu):
    """Return k = prod_j (1 + matern_nu(|p_j - c_j|/ell))/2.

    matern_nu is the function `matern_factor`, and ell = 1/sqrt(2 gamma).
    """
    ell, k = length_scale(gamma), 1.0
    for a, b in zip(p, c, strict=True):
        k *= (1.0 + matern_factor(abs(float(a) - float(b)) / ell, nu)) / 2.0
    return k


def anova_slope(p, c, gamma, nu):
    """Return dk/dp_j = matern_nu'(t_j) sign(p_j - c_j)/(2 ell) prod_(i != j) (1 + matern_nu(t_i))/2.

    matern_nu is the function `matern_factor`, t_j = |p_j - c_j|/ell, and ell = 1/sqrt(2 gamma).
    """
    ell, gradient = length_scale(gamma), np.zeros(len(p))
    for j in range(len(p)):
        u = float(p[j]) - float(c[j])
        gradient[j] = matern_factor_slope(abs(u) / ell, nu) * np.sign(u) / (2.0 * ell)
        for i in range(len(p)):
            if i != j:
                gradient[j] *= (1.0 + matern_factor(abs(float(p[i]) - float(c[i])) / ell, nu)) / 2.0
    return gradient


def gram(k, P, C):
    """Return the kernel matrix K_ij = k(p_i, c_j)."""
    return np.array([[k(p, c) for c in C] for p in P])


def pullback(dk, P, C, G):
    """Return dP_i = sum_j G_ij dk(p_i, c_j) and dC_j = sum_i G_ij dk(c_j, p_i), the gradients of sum_ij G_ij K_ij."""
    dP, dC = np.zeros(np.shape(P)), np.zeros(np.shape(C))
    for i, p in enumerate(P):
        for j, c in enumerate(C):
            dP[i] += G[i, j] * dk(p, c)
            dC[j] += G[i, j] * dk(c, p)
    return dP, dC


def median_gamma(P, norm="l2"):
    """Return 1/(2 median^2), where the median of |p_i - p_j| is taken over all pairs of different points.

    |.| is the norm `norm`, "l1" or "l2". If there is no such pair, return 1.
    """
    distances = []
    for i in range(len(P)):
        for j in range(i + 1, len(P)):
            differences = [abs(float(a) - float(b)) for a, b in zip(P[i], P[j], strict=True)]
            if any(u != 0.0 for u in differences):
                distances.append(sum(differences) if norm == "l1" else math.sqrt(sum(u * u for u in differences)))
    if not distances:
        return 1.0
    distances.sort()
    half = len(distances) // 2
    median = distances[half] if len(distances) % 2 else (distances[half - 1] + distances[half]) / 2.0
    return 1.0 / (2.0 * median**2)


# -------------------------------------------------------------------------------------------------------- objective


def as_matrix(B):
    """Return a map as a matrix. A vector stands for a diagonal map."""
    return np.diag(B) if B.ndim == 1 else B


def project(X, B):
    """Return the points B x_i as the rows of a matrix."""
    return np.array([[dot(b, x) for b in B] for x in X])


def residuals(k, X, Y, centers, B, alpha):
    """Return the residuals r_it = sum_j k(B x_i, B c_j) alpha_jt - y_it of row i and target t."""
    K, R = gram(k, project(X, B), project(centers, B)), np.zeros(np.shape(Y))
    for i in range(len(X)):
        for t in range(Y.shape[1]):
            R[i, t] = sum(K[i, j] * alpha[j, t] for j in range(len(centers))) - Y[i, t]
    return R


def loss(k, X, Y, w, centers, reg_lambda, B, alpha):
    """Return the objective L(B, alpha).

    L = sum_i w_i sum_t r_it^2 / W + lambda sum_t sum_jl alpha_jt k(B c_j, B c_l) alpha_lt with W = sum_i w_i and the
    residuals r_it of the function `residuals`.
    """
    R, Kcc = residuals(k, X, Y, centers, B, alpha), gram(k, project(centers, B), project(centers, B))
    total = sum(w[i] * R[i, t] ** 2 for i in range(len(X)) for t in range(Y.shape[1])) / sum(w)
    for t in range(Y.shape[1]):
        for j in range(len(centers)):
            for n in range(len(centers)):
                total += reg_lambda * alpha[j, t] * Kcc[j, n] * alpha[n, t]
    return total


def grad_alpha(k, X, Y, w, centers, reg_lambda, B, alpha):
    """Return dL/dalpha_jt = (2/W) sum_i w_i k(B x_i, B c_j) r_it + 2 lambda sum_l k(B c_j, B c_l) alpha_lt.

    W is the sum of the weights w_i, and r_it are the residuals of the function `residuals`.
    """
    K, Kcc = gram(k, project(X, B), project(centers, B)), gram(k, project(centers, B), project(centers, B))
    R, gradient = residuals(k, X, Y, centers, B, alpha), np.zeros(np.shape(alpha))
    for j in range(len(centers)):
        for t in range(Y.shape[1]):
            gradient[j, t] += 2.0 / sum(w) * sum(w[i] * K[i, j] * R[i, t] for i in range(len(X)))
            gradient[j, t] += 2.0 * reg_lambda * sum(Kcc[j, n] * alpha[n, t] for n in range(len(centers)))
    return gradient


def grad_B(k, dk, X, Y, w, centers, reg_lambda, B, alpha):
    """Return dL/dB.

    By the chain rule, the derivative of k(Bx, Bc) with respect to B is dk(Bx, Bc) x' + dk(Bc, Bx) c'.
    """
    P, C, R = project(X, B), project(centers, B), residuals(k, X, Y, centers, B, alpha)
    gradient = np.zeros(np.shape(B))
    for i in range(len(X)):
        for j in range(len(centers)):
            factor = 2.0 * w[i] / sum(w) * sum(R[i, t] * alpha[j, t] for t in range(Y.shape[1]))
            gradient += factor * (np.outer(dk(P[i], C[j]), X[i]) + np.outer(dk(C[j], P[i]), centers[j]))
    for j in range(len(centers)):
        for n in range(len(centers)):
            factor = reg_lambda * sum(alpha[j, t] * alpha[n, t] for t in range(Y.shape[1]))
            gradient += factor * (np.outer(dk(C[j], C[n]), centers[j]) + np.outer(dk(C[n], C[j]), centers[n]))
    return gradient


def solve_alpha(k, X, Y, w, centers, reg_lambda, B):
    """Return the minimizer a of L, computed as one stacked least-squares problem.

    The problem is to minimize |sqrt(w/W) (K a - y)|^2 + |sqrt(lambda) R a|^2 with R'R = K_cc. K is the kernel matrix of
    rows and centers, K_cc that of the centers, and W the sum of the weights w.
    """
    K, Kcc = gram(k, project(X, B), project(centers, B)), gram(k, project(centers, B), project(centers, B))
    values, vectors = np.linalg.eigh(Kcc)
    root = np.array([math.sqrt(max(v, 0.0)) * vectors[:, n] for n, v in enumerate(values)])
    weight = np.array([[math.sqrt(v / sum(w))] for v in w])
    top = np.vstack([weight * K, math.sqrt(reg_lambda) * root])
    right = np.vstack([weight * Y, np.zeros((len(centers), Y.shape[1]))])
    return np.linalg.lstsq(top, right, rcond=None)[0]


def reduced(k, X, Y, w, centers, reg_lambda, B):
    """Return the reduced function H(B) = min_a L(B, a)."""
    return loss(k, X, Y, w, centers, reg_lambda, B, solve_alpha(k, X, Y, w, centers, reg_lambda, B))


def hessian_alpha(k, X, w, centers, reg_lambda, B):
    """Return the Hessian of L with respect to the coefficients alpha of one target.

    The entry (j, l) is (2/W) sum_i w_i K_ij K_il + 2 lambda k(B c_j, B c_l), where K_ij = k(B x_i, B c_j) and W is the
    sum of the weights w_i.
    """
    K, H = (
        gram(k, project(X, B), project(centers, B)),
        2.0 * reg_lambda * gram(k, project(centers, B), project(centers, B)),
    )
    for j in range(len(centers)):
        for n in range(len(centers)):
            H[j, n] += 2.0 / sum(w) * sum(w[i] * K[i, j] * K[i, n] for i in range(len(X)))
    return H


# ----------------------------------------------------------------------------------- centers, projections, data sets


def leverage_scores(k, X, B, t):
    """Return the leverage scores l_i(t) = (K (K + t m I)^-1)_ii of all m rows."""
    K = gram(k, project(X, B), project(X, B))
    return np.diag(np.linalg.solve(K + t * len(X) * np.eye(len(X)), K))


def project_spectral_ball(B, bound=1.0):
    """Return the projection of B to spectral norm at most ``bound``: sum_n min(s_n, bound) u_n v_n'.

    Here s_n are the singular values of B, and u_n, v_n its singular vectors.
    """
    U, singular, Vt = np.linalg.svd(B, full_matrices=False)
    projected = np.zeros(np.shape(B))
    for n, value in enumerate(singular):
        projected += min(value, bound) * np.outer(U[:, n], Vt[n])
    return projected


def orthonormal_rows(B):
    """Return an orthonormal basis of the span of the rows of B.

    Each row is orthogonalized twice (Gram-Schmidt). Rows that are linearly dependent on earlier rows are skipped.
    """
    basis = []
    for row in np.asarray(B, dtype=float):
        v = row.copy()
        for _ in range(2):
            for q in basis:
                v = v - dot(q, v) * q
        if math.sqrt(dot(v, v)) > 1e-10 * math.sqrt(dot(row, row)):
            basis.append(v / math.sqrt(dot(v, v)))
    return np.array(basis)


def subspace_distance(B1, B2):
    """Return the spectral norm of (I - P1) Q2.

    P1 is the orthogonal projection onto the row span of B1. The columns of Q2 are an orthonormal basis of the row span
    of B2.
    """
    Q1, Q2 = orthonormal_rows(B1), orthonormal_rows(B2)
    left = np.array([q - sum(dot(q, e) * e for e in Q1) for q in Q2])
    return np.linalg.svd(left, compute_uv=False)[0]


def mim_sines(X, B):
    """Return the targets of `make_mim_sines` without noise: z_i = sum_(j=1..d) sin((1 + j/d) pi (B x_i)_j)."""
    d, P = len(B), project(X, B)
    return np.array([sum(math.sin((1.0 + j / d) * math.pi * p[j - 1]) for j in range(1, d + 1)) for p in P])


def mim_mixed(X, B):
    """Return the targets of `make_mim_mixed` without noise.

    z_i = sum_(j=1..d) (sin(v_j/2 - j) + v_(j+1) cos(0.4 v_(j+2) - j + 1)/2) with v = B x_i and indices modulo d.
    """
    d, z = len(B), np.zeros(len(X))
    for i, v in enumerate(project(X, B)):
        for j in range(1, d + 1):
            after, second = v[j % d], v[(j + 1) % d]
            z[i] += math.sin(0.5 * v[j - 1] - j) + 0.5 * after * math.cos(0.4 * second - j + 1)
    return z
