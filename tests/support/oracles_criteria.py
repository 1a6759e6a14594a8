"""Naive oracles of the criteria, with dense m x m matrices and one refit for each row that is left out.

A row of weight w_i counts like w_i equal rows. W is sum_i w_i, and s is lambda W. K is the kernel matrix of all rows.
With Nystrom centers it is replaced by its approximation Q = K_mc K_cc^-1 K_cm. The functions for NumPy take a kernel
k(p, c) of `oracles` and then (X, Y, w, centers, lambda, B), where Y has the shape (m, T). With centers=None, all rows
are centers. This module does not import the library.
"""

import math

import numpy as np

from support.oracles import gram, project


def prior(k, X, centers, B):
    """Return the m x m prior covariance of the criterion, K or Q, and the diagonal of K minus this covariance."""
    P = project(X, B)
    diagonal = np.array([k(p, p) for p in P])
    if centers is None:
        return gram(k, P, P), np.zeros(len(P))
    C = project(centers, B)
    Kmc, Kcc = gram(k, P, C), gram(k, C, C)
    Q = Kmc @ np.linalg.inv(Kcc) @ Kmc.T
    return Q, diagonal - np.diag(Q)


def repeated_evidence(k, X, Y, counts, centers, reg_lambda, B):
    """Return the evidence of the data set in which row i occurs counts_i times.

    Let n be the number of repeated rows, s = lambda n and q_t = y_t'(K + s I)^-1 y_t / n for target t. The evidence is
    the mean over the targets of log(q_t) / 2, plus log det(K + s I) / (2 n). With Nystrom centers, K is replaced by Q
    and sum_i (K - Q)_ii / (2 s n) is added.
    """
    rows = [i for i, count in enumerate(counts) for _ in range(int(count))]
    K, left_out = prior(k, X[rows], centers, B)
    n, s, y = len(rows), reg_lambda * len(rows), Y[rows]
    A = K + s * np.eye(n)
    inverse, (sign, log_det) = np.linalg.inv(A), np.linalg.slogdet(A)
    assert sign == 1.0
    fit = sum(math.log(y[:, t] @ inverse @ y[:, t] / n) / 2.0 for t in range(y.shape[1])) / y.shape[1]
    return fit + log_det / (2.0 * n) + sum(left_out) / (2.0 * s * n)


def evidence(k, X, Y, w, centers, reg_lambda, B):
    """Return the evidence for any weights: w_i equal rows are merged into one row with noise s / w_i.

    Here W = sum_i w_i and s = lambda W. Let E be the W x m matrix that repeats rows, so that E'E = diag(w), and let
    D = diag(sqrt(w)). Then E is a matrix with orthonormal columns times D, and

        log det(E K E' + s I_W)      =  log det(D K D + s I_m) + (W - m) log s
        (E y)'(E K E' + s I)^-1 (E y)  =  (D y)'(D K D + s I)^-1 (D y).
    """
    K, left_out = prior(k, X, centers, B)
    m, W = len(X), sum(w)
    s, D = reg_lambda * W, np.diag(np.sqrt(w))
    A, y = D @ K @ D + s * np.eye(m), D @ Y
    inverse, (sign, log_det) = np.linalg.inv(A), np.linalg.slogdet(A)
    assert sign == 1.0
    fit = sum(math.log(y[:, t] @ inverse @ y[:, t] / W) / 2.0 for t in range(y.shape[1])) / y.shape[1]
    return fit + (log_det + (W - m) * math.log(s)) / (2.0 * W) + sum(w * left_out) / (2.0 * s * W)


def refit(K, Kcc, Y, w, penalty):
    """Return argmin_a sum_i w_i |K_i a - y_i|^2 + penalty tr(a' K_cc a), from one stacked least-squares problem."""
    values, vectors = np.linalg.eigh(Kcc)
    root = np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T
    top = np.vstack([np.sqrt(w)[:, None] * K, math.sqrt(penalty) * root])
    right = np.vstack([np.sqrt(w)[:, None] * Y, np.zeros((len(Kcc), Y.shape[1]))])
    return np.linalg.lstsq(top, right, rcond=None)[0]


def leave_one_out(k, X, Y, w, centers, reg_lambda, B):
    """Return (1/W) sum_i w_i |y_i - K_i a^(-i)|^2, where K_i is row i of the kernel matrix of rows and centers.

    W is the sum of the weights w_i. The coefficients a^(-i) are fitted without row i, with the same centers and the
    same lambda W.
    """
    P = project(X, B)
    C = P if centers is None else project(centers, B)
    K, Kcc, W, total = gram(k, P, C), gram(k, C, C), sum(w), 0.0
    for i in range(len(X)):
        rest = np.arange(len(X)) != i
        alpha = refit(K[rest], Kcc, Y[rest], w[rest], reg_lambda * W)
        total += w[i] * sum((Y[i, t] - K[i] @ alpha[:, t]) ** 2 for t in range(Y.shape[1]))
    return total / W


def torch_evidence(torch, K, left_out, Y, w, s):
    """Return the same value as `evidence`, computed from the prior covariance K so that autograd can differentiate it.

    ``torch`` is the module PyTorch, the arrays are tensors, and s = lambda W. ``left_out`` is the second array
    that `prior` returns.
    """
    m, W, root = len(Y), w.sum(), w.sqrt()
    A = root[:, None] * K * root + s * torch.eye(m, dtype=K.dtype)
    q = (root[:, None] * Y * torch.linalg.solve(A, root[:, None] * Y)).sum(0) / W
    log_det = torch.linalg.slogdet(A)[1] + (W - m) * s.log()
    return q.log().mean() / 2 + log_det / (2 * W) + (w * left_out).sum() / (2 * s * W)


def torch_leave_one_out(torch, K, left_out, Y, w, s):
    """Return the same value as `leave_one_out`, computed from the prior covariance K.

    Each row is predicted by the posterior mean of the Gaussian process given all other rows.
    """
    total = 0.0
    for i in range(len(Y)):
        rest = torch.arange(len(Y)) != i
        A = K[rest][:, rest] + torch.diag(s / w[rest])
        total = total + w[i] * ((Y[i] - K[i, rest] @ torch.linalg.solve(A, Y[rest])) ** 2).sum()
    return total / w.sum()
