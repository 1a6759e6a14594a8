"""Synthetic multi-index models y = g(B x) + noise with a known map B. The coordinates of B x are called indices.

`make_mim_sines` and `make_mim_mixed` generate the data sets of the paper. `make_planted` generates the planted models
in `PLANTED`, each of which is difficult in a different way. `make_mim_classes` generates class labels and their true
probabilities.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.utils import check_random_state

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Dataset:
    """A regression data set: inputs X (m, D), target y (m,), true map B (d, D), and standard deviation of the noise."""

    X: Matrix
    y: Matrix
    B: Matrix
    noise: float


def make_mim_sines(
    n_samples: int,
    n_features: int = 50,
    n_components: int = 3,
    *,
    noise: float = 0.01,
    B: Any = None,
    random_state: Any = None,
) -> Dataset:
    """Generate the paper's first data set, a sum of sines of increasing frequency.

    The inputs are uniform on [-1, 1]^D, and ``y = sum_j sin((1 + j/d) pi (Bx)_j) + noise`` with j = 1, ..., d. The
    entries of B are uniform on [0, 1], and B is then divided by its spectral norm.

    Parameters
    ----------
    n_samples : int
        Number of rows, m.
    n_features : int, default=50
        Number of columns of X, D.
    n_components : int, default=3
        Number of directions, d.
    noise : float, default=0.01
        Variance of the noise divided by the variance of the noise-free target. No predictor can exceed an R2 of
        1 / (1 + noise).
    B : array (n_components, n_features) or None, default=None
        The map. It is used without normalization. If None, a random map is drawn as described above.
    random_state : int, RandomState or None, default=None
        Seed of the random numbers.

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
    return _planted(_sines, 1.0, n_samples, n_features, n_components, noise, B, random_state)


def make_mim_mixed(
    n_samples: int,
    n_features: int = 50,
    n_components: int = 3,
    *,
    noise: float = 0.01,
    B: Any = None,
    random_state: Any = None,
) -> Dataset:
    """Generate the paper's second data set, a sum of sines and of linear terms multiplied by cosines.

    The inputs are uniform on [-10, 10]^D, and
    ``y = sum_j [sin(0.5 (Bx)_j - j) + 0.5 (Bx)_{j+1} cos(0.4 (Bx)_{j+2} - j + 1)] + noise`` with j = 1, ..., d. The
    subscripts j + 1 and j + 2 wrap around after d. The parameters have the same meaning as in `make_mim_sines`, and a
    random map B is drawn in the same way.

    Examples
    --------
    >>> from hkrr.datasets import make_mim_mixed
    >>> data = make_mim_mixed(100, n_features=10, n_components=3, random_state=0)
    >>> data.X.shape, data.B.shape, float(abs(data.X).max()) <= 10.0
    ((100, 10), (3, 10), True)
    """
    return _planted(_mixed, 10.0, n_samples, n_features, n_components, noise, B, random_state)


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
    given: Any,
    random_state: Any,
) -> Dataset:
    if not 1 <= n_components <= n_features:
        raise ValueError(f"n_components must lie between 1 and n_features={n_features}, got {n_components}")
    if noise < 0:
        raise ValueError(f"noise must not be negative, got {noise}")
    rng = check_random_state(random_state)
    B = rng.uniform(0.0, 1.0, (n_components, n_features))
    B /= np.linalg.norm(B, 2)
    if given is not None:
        given = np.asarray(given, dtype=np.float64)
        if given.shape != B.shape or not np.all(np.isfinite(given)):
            raise ValueError(f"B must be a finite array of shape {B.shape}, got shape {given.shape}")
        B = given
    X = rng.uniform(-half_width, half_width, (n_samples, n_features))
    z = link(X @ B.T)
    deviation = float(np.sqrt(noise * np.var(z)))
    return Dataset(X, z + deviation * rng.standard_normal(n_samples), B, deviation)


def _unit(P: Matrix) -> Matrix:
    """Return the indices, the columns of P, divided by their standard deviations.

    The difficulty of the link function then does not depend on the number of columns of X.
    """
    return np.asarray(P / P.std(axis=0))


def _five(V: Matrix) -> Matrix:
    return np.sin(1.5 * V[:, 0]) + 0.5 * V[:, 1] ** 2 + np.tanh(2.0 * V[:, 2]) + V[:, 3] * np.cos(V[:, 4])


@dataclass(frozen=True)
class Planted:
    """Definition of a planted model (synthetic data with known directions).

    `link` is the function g of the indices, `n_components` the number of directions, and `n_features` the default
    number of columns. `inputs` and `noise` name the distributions of the inputs and of the noise.
    """

    link: Callable[[Matrix], Matrix]
    n_components: int
    n_features: int = 50
    inputs: str = "normal"
    noise: str = "normal"


# The planted models by name. The docstring of `make_planted` describes them.
PLANTED: dict[str, Planted] = {
    "product": Planted(lambda V: V[:, 0] * V[:, 1], 2),
    "ratio": Planted(lambda V: V[:, 0] / (0.5 + V[:, 1] ** 2), 2),
    "steps": Planted(lambda V: np.sign(V[:, 0]) + np.abs(V[:, 1]), 2),
    "single": Planted(lambda V: np.sin(2.0 * V[:, 0]) + 0.5 * V[:, 0], 1, n_features=200),
    "five": Planted(_five, 5, n_features=30),
    "correlated": Planted(lambda V: np.sin(1.5 * V[:, 0]) + 0.5 * V[:, 1] ** 2, 2, inputs="correlated"),
    "binary": Planted(lambda V: np.tanh(2.0 * V[:, 0]) + V[:, 0] * V[:, 1], 2, inputs="binary"),
    "heavy_tails": Planted(lambda V: np.sin(1.5 * V[:, 0]) + 0.5 * V[:, 1] ** 2, 2, noise="student"),
    "units": Planted(lambda V: np.sin(1.5 * V[:, 0]) * V[:, 1], 2, inputs="units"),
    "weak": Planted(lambda V: np.sin(1.5 * V[:, 0]) + 0.2 * V[:, 1] ** 2, 2),
}


def make_planted(
    kind: str, n_samples: int, *, n_features: int | None = None, noise: float = 0.01, random_state: Any = None
) -> Dataset:
    """Generate data of a planted model, a key of `PLANTED`: synthetic data with known directions.

    The link function g is applied to indices (coordinates of Bx) of mean 0 and variance 1. The models are:

    - "product": the product of two indices. Its graph is a saddle.
    - "ratio": a steep ratio of two indices.
    - "steps": a jump along one index, and a kink along another index.
    - "single": one index in 200 dimensions.
    - "five": five indices.
    - "correlated": inputs from an autoregression with coefficient 0.7.
    - "binary": inputs that are 0 or 1.
    - "heavy_tails": Student-t noise with 3 degrees of freedom.
    - "units": columns whose scales differ by factors of up to 1e6.
    - "weak": two directions; the second direction explains little of the variance.

    Parameters
    ----------
    kind : str
        A key of `PLANTED`.
    n_samples : int
        Number of rows.
    n_features : int or None, default=None
        Number of columns of X. If None, the number is 200 for "single", 30 for "five" and 50 otherwise.
    noise : float, default=0.01
        Variance of the noise divided by the variance of the noise-free target.
    random_state : int, RandomState or None, default=None
        Seed of the random numbers.

    Returns
    -------
    Dataset

    Examples
    --------
    >>> from hkrr.datasets import make_planted
    >>> make_planted("product", 100, random_state=0).B.shape
    (2, 50)
    """
    if kind not in PLANTED:
        raise ValueError(f"kind must be one of {', '.join(map(repr, PLANTED))}; got {kind!r}")
    if noise < 0:
        raise ValueError(f"noise must not be negative, got {noise}")
    model, rng = PLANTED[kind], check_random_state(random_state)
    D = model.n_features if n_features is None else n_features
    if model.n_components > D:
        raise ValueError(f"n_features must be at least {model.n_components} for {kind!r}, got {n_features}")
    B = rng.standard_normal((model.n_components, D))
    X = rng.standard_normal((n_samples, D))
    if model.inputs == "correlated":
        for j in range(1, D):
            X[:, j] = 0.7 * X[:, j - 1] + np.sqrt(1.0 - 0.7**2) * X[:, j]
    elif model.inputs == "binary":
        X = (X > 0).astype(np.float64)
    elif model.inputs == "units":
        scale = 10.0 ** rng.uniform(-3, 3, D)
        X, B = X * scale, B / scale
    B /= np.linalg.norm(B, 2)
    P = X @ B.T
    z = model.link(_unit(P - P.mean(axis=0)))
    deviation = float(np.sqrt(noise * np.var(z)))
    # The Student-t distribution with 3 degrees of freedom has variance 3.
    epsilon = (
        rng.standard_t(3, n_samples) / np.sqrt(3.0) if model.noise == "student" else rng.standard_normal(n_samples)
    )
    return Dataset(X, z + deviation * epsilon, B, deviation)


@dataclass(frozen=True)
class ClassDataset:
    """A classification data set: inputs X (m, D), labels y (m,), true map B (d, D), true probabilities (m, K)."""

    X: Matrix
    y: NDArray[np.int64]
    B: Matrix
    probabilities: Matrix


def make_mim_classes(
    n_samples: int,
    n_features: int = 20,
    n_components: int = 2,
    n_classes: int = 2,
    *,
    sharpness: float = 3.0,
    random_state: Any = None,
) -> ClassDataset:
    """Generate class labels whose probabilities depend on the inputs through a few directions.

    The inputs x are standard normal, and the rows of B are random unit vectors. With v = Bx, class k has the
    probability ``softmax(sharpness * F(v) / sd)_k``, where
    ``F_k(v) = sum_j [sin(1.5 v_j + 2 pi k / K + j) + 0.5 v_j cos(2 pi k / K)]`` and sd is the standard deviation of all
    values of F. Both j = 0, ..., d - 1 and k = 0, ..., K - 1 start from zero.

    Parameters
    ----------
    n_samples : int
        Number of rows, m.
    n_features : int, default=20
        Number of columns of X, D.
    n_components : int, default=2
        Number of directions, d.
    n_classes : int, default=2
        Number of classes, K.
    sharpness : float, default=3.0
        Standard deviation of the class scores before the softmax. With smaller values, the classes overlap more.
    random_state : int, RandomState or None, default=None
        Seed of the random numbers.

    Returns
    -------
    ClassDataset

    Examples
    --------
    >>> from hkrr.datasets import make_mim_classes
    >>> data = make_mim_classes(100, n_classes=3, random_state=0)
    >>> data.X.shape, data.y.shape, data.probabilities.shape
    ((100, 20), (100,), (100, 3))
    """
    if not 1 <= n_components <= n_features:
        raise ValueError(f"n_components must lie between 1 and n_features={n_features}, got {n_components}")
    if n_classes < 2:
        raise ValueError(f"n_classes must be at least 2, got {n_classes}")
    if not sharpness > 0:
        raise ValueError(f"sharpness must be positive, got {sharpness}")
    rng = check_random_state(random_state)
    B = rng.standard_normal((n_components, n_features))
    B /= np.linalg.norm(B, axis=1, keepdims=True)
    X = rng.standard_normal((n_samples, n_features))
    V, j, phase = X @ B.T, np.arange(n_components), 2.0 * np.pi * np.arange(n_classes) / n_classes
    F = np.stack([(np.sin(1.5 * V + t + j) + 0.5 * V * np.cos(t)).sum(axis=1) for t in phase], axis=1)
    probabilities = softmax(sharpness * F / np.std(F), axis=1)
    y = np.argmax(probabilities.cumsum(axis=1) > rng.uniform(size=(n_samples, 1)), axis=1)
    return ClassDataset(X, y, B, probabilities)
