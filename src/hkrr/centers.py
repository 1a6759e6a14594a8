"""Nystrom centers: how many to use, and how to choose them.

The regression function is a linear combination of kernel functions at c centers. The paper's Nystrom theorem requires
``c >= max(67, 5 N_inf(lambda)) log(4 kappa / (lambda delta))`` centers drawn uniformly. Here N_inf(lambda) is the
maximal dimension (`hkrr.theory`), kappa the maximum of k(x, x), and 1 - delta the probability with which the theorem
holds. Since N_inf(lambda) <= kappa / lambda, the remark after the theorem states that c of order kappa / lambda
suffices. If m rows are fitted with lambda = m^-zeta, this order is m^zeta. `auto_size` uses this order. Sampling by
leverage scores (appendix B of the paper) prefers rows with a large influence on the fit, and needs fewer centers than
uniform sampling.
"""

from __future__ import annotations

import math

import numpy as np

from hkrr._base.linear_algebra import Array, array_namespace, jittered_cholesky, solve_triangular
from hkrr.kernels import Kernel
from hkrr.rows import Rows

# Maximum memory, in bytes, for the four c x c matrices of a fit with c centers. It limits the default number of
# centers.
_AUTO_BYTES = 256 * 2**20
# k-means is fitted to this number of randomly drawn rows, which is large enough to represent all rows. If more centers
# are wanted, as many rows as centers are drawn.
_KMEANS_ROWS = 20_000
# Maximum number of rows in the pilot sample, from which leverage scores are computed.
_PILOT_ROWS = 2_000


def auto_size(n_rows: int, reg_lambda: float, kappa: float = 1.0) -> int:
    """Return the default number of centers, ``kappa / lambda``.

    kappa is the maximum of k(x, x), and lambda is ``reg_lambda``. The number is at least 100 and at most 2,896 (a
    memory limit), and never exceeds the number of rows. The order ``kappa / lambda`` is stated in the remark after the
    paper's Nystrom theorem (see the description of this module). The logarithm and the constants of the theorem are
    omitted, because they are far from sharp.

    Examples
    --------
    >>> from hkrr.centers import auto_size
    >>> auto_size(10_000, 1e-3), auto_size(10_000, 1e-1), auto_size(50, 1e-3), auto_size(10_000, 1e-9)
    (1000, 100, 50, 2896)
    """
    by_memory = math.isqrt(_AUTO_BYTES // (4 * 8))
    by_theorem = max(100, math.ceil(min(kappa / reg_lambda, by_memory)))
    return min(n_rows, by_theorem, by_memory)


def uniform(rows: Rows, n_centers: int, rng: np.random.RandomState) -> Array:
    """Return ``n_centers`` rows drawn uniformly without replacement (plain Nystrom).

    Examples
    --------
    >>> import numpy as np
    >>> from hkrr.centers import uniform
    >>> from hkrr.rows import InMemoryRows
    >>> rows = InMemoryRows(np.arange(20.0).reshape(10, 2), np.zeros(10))
    >>> uniform(rows, 3, np.random.RandomState(0)).shape
    (3, 2)
    """
    if n_centers > rows.n_rows:
        raise ValueError(f"n_centers={n_centers} is larger than the number of rows; use at most {rows.n_rows}")
    return rows.take(rows.draw(n_centers, rng))


def uniform_or_all(rows: Rows, n_centers: int, rng: np.random.RandomState) -> Array | None:
    """Return n_centers rows drawn uniformly. If there are at most n_centers rows, return None, which means all rows.

    Examples
    --------
    >>> import numpy as np
    >>> from hkrr.centers import uniform_or_all
    >>> from hkrr.rows import InMemoryRows
    >>> rows = InMemoryRows(np.arange(20.0).reshape(10, 2), np.zeros(10))
    >>> uniform_or_all(rows, 10, np.random.RandomState(0)) is None
    True
    """
    return None if rows.n_rows <= n_centers else uniform(rows, n_centers, rng)


def kmeans(rows: Rows, n_centers: int, rng: np.random.RandomState) -> Array:
    """Return the centroids of scikit-learn's k-means, computed on a sample of the rows.

    The sample has 20,000 rows, or n_centers rows if n_centers is larger. If there are fewer rows, all rows are used. If
    the sample has at most n_centers distinct rows, these distinct rows are returned instead of centroids.

    Examples
    --------
    >>> import numpy as np
    >>> from hkrr.centers import kmeans
    >>> from hkrr.rows import InMemoryRows
    >>> rows = InMemoryRows(np.array([[0.0], [0.2], [5.0], [5.2]]), np.zeros(4))
    >>> np.sort(kmeans(rows, 2, np.random.RandomState(0)), axis=0)
    array([[0.1],
           [5.1]])
    """
    sample = rows.take(rows.draw(max(_KMEANS_ROWS, n_centers), rng))
    distinct = np.unique(sample, axis=0)
    if len(distinct) <= n_centers:
        return distinct
    from sklearn.cluster import KMeans  # imported here, because the import takes 0.1 s and k-means is rarely used

    return KMeans(n_centers, n_init=1, random_state=rng).fit(sample).cluster_centers_


def leverage(rows: Rows, n_centers: int, rng: np.random.RandomState, *, B: Array, kernel: Kernel, t0: float) -> Array:
    """Return rows drawn with replacement, with probabilities proportional to approximate leverage scores.

    This is the paper's (T, t0)-approximate leverage score sampling: the scores approximate the leverage scores of
    kernel ridge regression with the map B and lambda = t0, up to a factor T. The scores are computed from a pilot
    sample with four rows for each center, but at least 300 and at most 2,000 rows. With a larger pilot sample, T is
    closer to 1.

    Examples
    --------
    >>> import numpy as np
    >>> from hkrr.centers import leverage
    >>> from hkrr.kernels import Gaussian
    >>> from hkrr.rows import InMemoryRows
    >>> X = np.append(np.linspace(0.0, 1.0, 99), 50.0)[:, None]  # 99 rows close together and one far from them
    >>> rng = np.random.RandomState(0)
    >>> drawn = leverage(InMemoryRows(X, X[:, 0]), 20, rng, B=np.eye(1), kernel=Gaussian(gamma=1.0), t0=1e-3)
    >>> float(drawn.max())
    50.0
    """
    pilot = rows.take(rows.draw(max(300, min(4 * n_centers, _PILOT_ROWS)), rng))
    scores = approximate_leverage_scores(rows, B, kernel, t0, pilot)
    return rows.take(rng.choice(rows.n_rows, n_centers, replace=True, p=scores / np.sum(scores)))


def draw_centers(
    how: str, rows: Rows, n_centers: int, rng: np.random.RandomState, *, B: Array, kernel: Kernel, t0: float
) -> Array:
    """Return centers chosen by the method ``how``: "uniform", "leverage" or "kmeans".

    Only "leverage" uses the map B, the kernel and the regularization t0. "leverage" and "kmeans" may return fewer than
    n_centers centers.

    Examples
    --------
    >>> import numpy as np
    >>> from hkrr.centers import draw_centers
    >>> from hkrr.kernels import Gaussian
    >>> from hkrr.rows import InMemoryRows
    >>> rows, rng = InMemoryRows(np.arange(20.0).reshape(10, 2), np.zeros(10)), np.random.RandomState(0)
    >>> draw_centers("kmeans", rows, 4, rng, B=np.eye(2), kernel=Gaussian(gamma=1.0), t0=1e-3).shape
    (4, 2)
    """
    if how == "leverage":
        # Rows are drawn with replacement. Repeated centers are removed, because they add no new kernel function.
        return np.unique(leverage(rows, n_centers, rng, B=B, kernel=kernel, t0=t0), axis=0)
    return kmeans(rows, n_centers, rng) if how == "kmeans" else uniform(rows, n_centers, rng)


def approximate_leverage_scores(rows: Rows, B: Array, kernel: Kernel, t: float, pilot: Array) -> Array:
    """Return approximate leverage scores of all m rows, computed from c pilot rows in one pass over the rows.

    The leverage score of row i at the regularization t is ``l_i(t) = (K (K + t m I)^-1)_ii``, where K is the kernel
    matrix of the latent points p_i = B x_i of all rows. It is approximated by
    ``(k(p_i, p_i) - k_i' (K_cc + t c I)^-1 k_i) / (t m)``, where K_cc is the kernel matrix of the pilot rows and k_i
    holds the kernel values between row i and the pilot rows. The approximation is exact if the pilot sample contains
    all rows, and otherwise correct up to a factor T (Rudi, Calandriello, Carratino, Rosasco: On fast leverage score
    sampling, 2018). The m x m matrix K is never formed. Rows with weight zero get the score zero.

    Examples
    --------
    >>> import numpy as np
    >>> from hkrr.centers import approximate_leverage_scores
    >>> from hkrr.kernels import Gaussian
    >>> from hkrr.rows import InMemoryRows
    >>> X, kernel = np.linspace(0.0, 3.0, 50)[:, None], Gaussian(gamma=1.0)
    >>> scores = approximate_leverage_scores(InMemoryRows(X, X[:, 0]), np.eye(1), kernel, 1e-2, pilot=X)
    >>> K = kernel(X, X)
    >>> bool(np.allclose(scores, np.diag(K @ np.linalg.inv(K + 1e-2 * 50 * np.eye(50)))))
    True
    """
    C = pilot @ B.T
    K_cc = kernel(C, C)
    factor, _ = jittered_cholesky(K_cc, t * len(C))

    def block(X: Array, Y: Array, w: Array | None, B: Array, C: Array, factor: Array) -> tuple[Array]:
        P = X @ B.T
        half = solve_triangular(factor, kernel(P, C).T)
        scores = kernel.diagonal(P) - array_namespace(P).sum(half * half, axis=0)
        return (scores if w is None else scores * (w > 0),)

    small = (rows.place(array) for array in (B, C, factor))
    return np.maximum(rows.map(block, len(C), *small), 0.0) / (t * rows.n_rows)
