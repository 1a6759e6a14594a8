"""Naive oracles of the criteria that choose B and lambda: dense matrices of all rows, one refit for each row left out.

With s = lambda W and W = sum_i w_i, the weights are read as counts of rows. `K` is the matrix of the kernel over all
rows or, with centers, its Nystrom approximation Q = K_mc K_cc^-1 K_cm. Every function takes the kernel k(p, c) of
`oracles` first and then (X, Y, w, centers, lambda, B), Y being (m, T); centers=None means all rows, exactly.
Nothing here imports the library.
"""

import math

import numpy as np

from oracles import gram, project


def prior(k, X, centers, B):
    """The m x m covariance of the rows that the criterion uses, and what it leaves out of the diagonal of K."""
    P = project(X, B)
    diagonal = np.array([k(p, p) for p in P])
    if centers is None:
        return gram(k, P, P), np.zeros(len(P))
    C = project(centers, B)
    Kmc, Kcc = gram(k, P, C), gram(k, C, C)
    Q = Kmc @ np.linalg.inv(Kcc) @ Kmc.T
    return Q, diagonal - np.diag(Q)


def repeated_evidence(k, X, Y, counts, centers, reg_lambda, B):
    """The evidence of the data set in which row i stands counts_i times.

    With n rows and s = lambda n: the mean over targets of log(q_t)/2, q_t = y_t'(K + s I)^-1 y_t / n, plus
    log det(K + s I)/(2n), plus, with centers, sum_i (K - Q)_ii / (2 s n).
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
    """The same for any weights: equal rows with one target merge into one row of noise s/w_i.

    E the W x m matrix of repeats, E'E = diag(w), D = diag(sqrt(w)): E is D behind an orthonormal matrix, so
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
    """argmin_a sum_i w_i |K_i a - y_i|^2 + penalty tr(a' K_cc a), as one stacked least-squares problem."""
    values, vectors = np.linalg.eigh(Kcc)
    root = np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T
    top = np.vstack([np.sqrt(w)[:, None] * K, math.sqrt(penalty) * root])
    right = np.vstack([np.sqrt(w)[:, None] * Y, np.zeros((len(Kcc), Y.shape[1]))])
    return np.linalg.lstsq(top, right, rcond=None)[0]


def leave_one_out(k, X, Y, w, centers, reg_lambda, B):
    """(1/W) sum_i w_i |y_i - K_i a^(-i)|^2, a^(-i) solved without row i, with all centers and lambda W as they were."""
    P = project(X, B)
    C = P if centers is None else project(centers, B)
    K, Kcc, W, total = gram(k, P, C), gram(k, C, C), sum(w), 0.0
    for i in range(len(X)):
        rest = np.arange(len(X)) != i
        alpha = refit(K[rest], Kcc, Y[rest], w[rest], reg_lambda * W)
        total += w[i] * sum((Y[i, t] - K[i] @ alpha[:, t]) ** 2 for t in range(Y.shape[1]))
    return total / W


def torch_evidence(torch, K, left_out, Y, w, s):
    """`evidence` of a prior of the rows, for autograd: torch is the module, the arrays are tensors, s = lambda W."""
    m, W, root = len(Y), w.sum(), w.sqrt()
    A = root[:, None] * K * root + s * torch.eye(m, dtype=K.dtype)
    q = (root[:, None] * Y * torch.linalg.solve(A, root[:, None] * Y)).sum(0) / W
    log_det = torch.linalg.slogdet(A)[1] + (W - m) * s.log()
    return q.log().mean() / 2 + log_det / (2 * W) + (w * left_out).sum() / (2 * s * W)


def torch_leave_one_out(torch, K, left_out, Y, w, s):
    """`leave_one_out` likewise: with prior covariance K, row i is predicted by the Gaussian process of the others."""
    total = 0.0
    for i in range(len(Y)):
        rest = torch.arange(len(Y)) != i
        A = K[rest][:, rest] + torch.diag(s / w[rest])
        total = total + w[i] * ((Y[i] - K[i, rest] @ torch.linalg.solve(A, Y[rest])) ** 2).sum()
    return total / w.sum()
