"""Tests with generated data and parameters: each fit must pass the check of the stress cases.

With the environment variable HKRR_LONG=1, thousands of cases are generated.
"""

import os

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hkrr import HyperKernelRidge, HyperKernelRidgeCV
from hkrr.datasets import make_mim_sines
from hkrr.kernels import KERNELS
from support.stress_check import check

# Whether this is a long run, with many more generated cases.
LONG = os.environ.get("HKRR_LONG") == "1"
# A long run takes up to an hour.
pytestmark = pytest.mark.timeout(3600 if LONG else 120)

_powers = st.integers(-150, 150)
_kinds = st.sampled_from(["float64", "float32", "float16", "int64", "int8", "bool"])


@st.composite
def tables(draw):
    """Generate X, y and weights (or None), with random sizes, dtypes, scales and linear dependencies."""
    m, D, n_targets = draw(st.integers(2, 20)), draw(st.integers(1, 6)), draw(st.sampled_from([0, 0, 0, 1, 2]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    X, y = rng.normal(size=(m, D)), rng.normal(size=(m, n_targets) if n_targets else m)
    if draw(st.booleans()):
        y = (y.T + np.sin(2.0 * X[:, 0])).T
    for _ in range(draw(st.integers(0, 3))):
        j, k = draw(st.integers(0, D - 1)), draw(st.integers(0, D - 1))
        change = draw(st.sampled_from(["copied", "constant", "scaled", "shifted", "nearly copied"]))
        if change == "copied":
            X[:, j] = X[:, k]
        elif change == "nearly copied":
            X[:, j] = X[:, k] * (1.0 + 1e-14 * rng.normal(size=m))
        elif change == "constant":
            X[:, j] = draw(st.floats(-1e12, 1e12))
        elif change == "scaled":
            X[:, j] *= 10.0 ** draw(st.integers(-12, 12))
        else:
            X[:, j] += 10.0 ** draw(st.integers(0, 15))
    if draw(st.booleans()):
        rows = rng.integers(0, m, size=m)
        X = X[rows]
        y = y[rows] if draw(st.booleans()) else y
    kind = draw(_kinds)
    scale = 10.0 ** draw(st.one_of(st.just(0), _powers)) if kind == "float64" else 20.0
    X = (X / (np.max(np.abs(X)) or 1.0) * scale).astype(kind)
    y = y * 10.0 ** draw(st.one_of(st.just(0), _powers)) + draw(st.sampled_from([0.0, 1.0, 1e12]))
    if draw(st.booleans()):
        y[rng.integers(0, m)] = draw(st.sampled_from([1e12, -1e12, 0.0]))
    weight = draw(st.sampled_from([None, None, "zeros", "spread", "whole"]))
    if weight == "zeros":
        weight = rng.integers(0, 2, size=m)
        weight[:2] = 1
    elif weight == "spread":
        weight = 10.0 ** rng.uniform(-10, 10, size=m)
    elif weight == "whole":
        weight = rng.integers(1, 4, size=m)
    return X, y, weight


def _settings(examples, long_examples):
    # Every run generates the same cases, so that only a change of the code can cause a failure. With HKRR_LONG=1, every
    # run generates new cases.
    no_limits = {"deadline": None, "suppress_health_check": list(HealthCheck)}
    return settings(max_examples=long_examples if LONG else examples, derandomize=not LONG, **no_limits)


@_settings(80, 5000)
@given(
    table=tables(),
    share=st.floats(0.0, 1.0),
    kernel=st.sampled_from(sorted(KERNELS)),
    log_lambda=st.integers(-14, 6),
    n_centers=st.sampled_from(["auto", "all", 1, 0.5]),
    scale_features=st.booleans(),
    criterion=st.sampled_from(["training", "training", "evidence", "loo"]),
)
def test_any_fit(table, share, kernel, log_lambda, n_centers, scale_features, criterion):
    X, _, weight = table
    counted = len(X) if weight is None else int(np.count_nonzero(weight))
    model = HyperKernelRidge(
        1 + int(share * (X.shape[1] - 1)),
        kernel=kernel,
        reg_lambda=10.0**log_lambda,
        n_centers=max(1, counted // 2) if n_centers == 0.5 else n_centers,
        criterion=criterion,
        scale_features=scale_features,
        n_init=1,
        max_iter=4,
        random_state=0,
    )
    check(model, *table)


@_settings(20, 1600)
@given(
    table=tables(),
    share=st.floats(0.0, 1.0),
    kernel=st.sampled_from(sorted(KERNELS)),
    criterion=st.sampled_from(["evidence", "loo"]),
    refit=st.sampled_from(["full", 1, 5]),
    scale_features=st.booleans(),
)
def test_any_search(table, share, kernel, criterion, refit, scale_features):
    model = HyperKernelRidgeCV(
        1 + int(share * (table[0].shape[1] - 1)),
        kernel=kernel,
        criterion=criterion,
        refit=refit,
        scale_features=scale_features,
        n_init=1,
        random_state=0,
    )
    check(model, *table)


def test_overflow_within_a_fit_gives_a_clear_error_or_a_valid_model():
    """Test three fits in which numbers overflow.

    In the first fit a gradient overflows, and a clear error is raised. In the other two fits a criterion overflows, but
    the final model is valid.
    """
    far = np.array([[9.5174559e09], [-1e10]]), np.array([6.4042265e149, 1.04900117e149])
    refused = check(HyperKernelRidge(1, reg_lambda=1.0, scale_features=False, n_init=1, max_iter=4), *far)
    assert "finite" in refused.message
    tiny = np.array([[1e-139], [1e-139 * (1 + 4e-15)]]), np.array([0.4, -0.6])
    check(HyperKernelRidge(1, kernel="anova", reg_lambda=1.0, n_init=1, max_iter=4, random_state=0), *tiny)
    data = make_mim_sines(300, n_features=8, n_components=2, random_state=0)
    valid = check(HyperKernelRidgeCV([2], random_state=0), data.X, data.y * 1e150)
    assert valid.explained > 0.9
