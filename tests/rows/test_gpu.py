"""Tests of fits on a GPU (skipped on machines without a GPU), and tests of running out of memory on any machine."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from hkrr import HyperKernelRidge, HyperKernelRidgeCV
from hkrr.estimators import ridge_cv
from hkrr.rows import torch_device
from hkrr.rows.torch_device import TorchRows

on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def _data(m=3000, D=4):
    rng = np.random.default_rng(m)
    X = rng.normal(size=(m, D))
    return X, np.sin(X[:, 0] + 0.25 * X[:, 1]) + 0.3 * rng.normal(size=m)


def _products(X, Y, w):
    return X.T @ X, X.T @ Y


def _check_sums(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert_allclose(one.cpu(), other.cpu(), rtol=1e-12)


def test_a_block_that_does_not_fit_is_halved_for_later_passes_too():
    rows = TorchRows(*_data(), device="cpu", block_size=2000)
    tried = []

    def fits_600(X, Y, w):
        tried.append(len(X))
        if len(X) > 600:
            raise torch.cuda.OutOfMemoryError("out of memory")
        return _products(X, Y, w)

    found = rows.sum(fits_600, 7)
    assert tried[:3] == [2000, 1000, 500]
    tried.clear()
    _check_sums(found, rows.sum(fits_600, 7))
    assert set(tried) == {500}  # later passes start with the reduced size
    _check_sums(found, TorchRows(*_data(), device="cpu").sum(_products))
    mapped = rows.map(lambda X, Y, w: (X[:, 0],) if fits_600(X, Y, w) else None, 9)
    assert_array_equal(mapped, _data()[0][:, 0])


def test_running_out_of_memory_at_the_smallest_block_is_an_error():
    def fails(X, Y, w):
        raise torch.cuda.OutOfMemoryError("out of memory")

    with pytest.raises(torch.cuda.OutOfMemoryError):
        TorchRows(*_data(), device="cpu").sum(fails)


def test_rows_of_weight_zero_have_no_largest_target():
    X, y = _data(10)
    w = np.ones(10)
    w[np.argmax(np.abs(y))] = 0.0
    assert TorchRows(X, y, w, device="cpu").largest_targets() == np.max(np.abs(y[w > 0]))


def test_the_final_fit_of_a_search_uses_the_device_of_the_tensors(monkeypatch):
    devices = []
    original = ridge_cv.HyperKernelRidgeCV._array_rows

    def spy(self, X, y, weight, device):
        devices.append(device)
        return original(self, X, y, weight, device)

    monkeypatch.setattr(ridge_cv.HyperKernelRidgeCV, "_array_rows", spy)
    X, y = (torch.as_tensor(part) for part in _data(100))
    HyperKernelRidgeCV(n_components=1, n_init=1, random_state=0).fit(X, y)
    assert set(devices) == {torch.device("cpu")}


def _model(**options):
    """Return a model whose fit amplifies rounding errors little, as explained in test_rows_conformance.py."""
    common = {"kernel": "matern32", "reg_lambda": 1e-2, "n_centers": 20, "n_init": 1, "random_state": 0}
    return HyperKernelRidge(1, **{**common, **options})


@on_a_gpu
@pytest.mark.parametrize(
    "options", [{}, {"n_init": 4}, {"criterion": "evidence", "max_iter": 5}, {"n_centers": "all"}], ids=str
)
def test_fits_on_a_gpu_match_those_in_memory(options):
    X, y = _data(600)
    expected = _model(**options).fit(X, y)
    for model, data in (
        (_model(device="cuda", **options), (X, y)),
        (_model(**options), (torch.as_tensor(X, device="cuda"), torch.as_tensor(y, device="cuda"))),
    ):
        model.fit(*data)
        assert_array_equal(model.centers_, expected.centers_)
        assert_allclose(model.components_, expected.components_, rtol=0.0, atol=1e-6)
        assert_allclose(model.set_params(device=None).predict(X), expected.predict(X), rtol=0.0, atol=1e-5)


@on_a_gpu
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_streamed_from_the_host_match_those_on_the_gpu(monkeypatch, dtype, weighted):
    X, y = (part.astype(dtype) for part in _data(100_000))
    w = np.random.default_rng(0).uniform(size=len(X)) if weighted else None
    resident = TorchRows(X, y, w, device="cuda", block_size=7000)
    monkeypatch.setattr(torch_device, "_SHARE_FOR_DATA", 0.0)
    streamed = TorchRows(X, y, w, device="cuda", block_size=7000)
    assert streamed._X.device.type == "cpu"
    for _ in range(3):
        for one, other in zip(streamed.sum(_weighted), resident.sum(_weighted), strict=True):
            assert_array_equal(one.cpu(), other.cpu())
    assert_array_equal(streamed.map(_first), resident.map(_first))
    assert_array_equal(streamed.take(np.array([5, 99_999, 5])), resident.take(np.array([5, 99_999, 5])))


def _weighted(X, Y, w):
    R = X if w is None else w[:, None] * X
    return X.T @ R, R.T @ Y


def _first(X, Y, w):
    return (X[:, 0] + Y[:, 0],)
