"""Planted multi-index models: y = g(B x) + noise, with B known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Dataset:
    """Inputs X (m, D), target y (m,), the true map B (d, D), and the standard deviation of the noise."""

    X: Matrix
    y: Matrix
    B: Matrix
    noise: float


def make_mim_sines(
    n_samples: int, n_features: int = 50, n_components: int = 3, *, noise: float = 0.01, random_state: Any = None
) -> Dataset:
    """Draw the paper's first data set: a sum of sines of growing frequency.

    x uniform on [-1, 1]^D, ``y = sum_j sin((1 + j/d) pi (Bx)_j) + noise``, j = 1, ..., d. The entries of B are uniform
    on [0, 1], then B is divided by its spectral norm.

    Parameters
    ----------
    n_samples, n_features, n_components : int
        m, D and d.
    noise : float, default=0.01
        Variance of the noise over that of the noiseless target: no predictor can pass an R2 of 1 / (1 + noise).
    random_state : int, RandomState or None

    Returns
    -------
    Dataset

    Examples
    --------
    >>> from hkrr.datasets import make_mim_sines
    >>> data = make_mim_sines(100, n_features=10, n_components=2, random_state=0)
    >>> data.X.shape, data.y.shape, data.B.shape
    ((100, 10), (100,), (2, 10))
    """
    return _planted(_sines, 1.0, n_samples, n_features, n_components, noise, random_state)


def make_mim_mixed(
    n_samples: int, n_features: int = 50, n_components: int = 3, *, noise: float = 0.01, random_state: Any = None
) -> Dataset:
    """Draw the paper's second data set: sines, and products across indices.

    x uniform on [-10, 10]^D, ``y = sum_j sin(0.5 (Bx)_j - j) + 0.5 (Bx)_{j+1} cos(0.4 (Bx)_{j+2} - j + 1) + noise``,
    j = 1, ..., d, with the indices j + 1 and j + 2 taken modulo d. The parameters and B are as in `make_mim_sines`.
    """
    return _planted(_mixed, 10.0, n_samples, n_features, n_components, noise, random_state)


def _sines(P: Matrix) -> Matrix:
    d = P.shape[1]
    j = np.arange(1, d + 1)
    return np.asarray(np.sin((1.0 + j / d) * np.pi * P).sum(axis=1))


def _mixed(P: Matrix) -> Matrix:
    j = np.arange(1, P.shape[1] + 1)
    following, second = np.roll(P, -1, axis=1), np.roll(P, -2, axis=1)
    return np.asarray((np.sin(0.5 * P - j) + 0.5 * following * np.cos(0.4 * second - j + 1)).sum(axis=1))


def _planted(
    link: Callable[[Matrix], Matrix],
    half_width: float,
    n_samples: int,
    n_features: int,
    n_components: int,
    noise: float,
    random_state: Any,
) -> Dataset:
    if not 1 <= n_components <= n_features:
        raise ValueError(f"n_components must lie between 1 and n_features={n_features}, got {n_components}")
    if noise < 0:
        raise ValueError(f"noise must not be negative, got {noise}")
    rng = check_random_state(random_state)
    B = rng.uniform(0.0, 1.0, (n_components, n_features))
    B /= np.linalg.norm(B, 2)
    X = rng.uniform(-half_width, half_width, (n_samples, n_features))
    z = link(X @ B.T)
    deviation = float(np.sqrt(noise * np.var(z)))
    return Dataset(X, z + deviation * rng.standard_normal(n_samples), B, deviation)
