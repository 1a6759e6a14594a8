"""Tests of standard deviations and intervals for every kind of input, and for unusual data."""

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone

import hkrr
from hkrr import HyperKernelRidge, HyperKernelRidgeCV


def data(n=80, n_targets=1, seed=0):
    rng = np.random.RandomState(seed)
    X = rng.standard_normal((n, 3))
    Y = np.column_stack([np.sin(X[:, 0] + X[:, 1]), X[:, 1] ** 2])[:, :n_targets]
    Y = Y + 0.1 * rng.standard_normal(Y.shape)
    return X, Y[:, 0] if n_targets == 1 else Y


def quick(**options):
    return HyperKernelRidge(2, **{"n_centers": 20, "n_init": 1, "max_iter": 10, "random_state": 0, **options})


@pytest.fixture(scope="module", params=[1, 2])
def model(request):
    return quick().fit(*data(n_targets=request.param))


def everything(model, X):
    return [*model.predict(X, return_std=True), *model.predict_interval(X, 0.8)]


def as_array(values):
    return np.asarray(values.compute() if hasattr(values, "compute") else values)


WAYS = {
    "tensor": lambda X, folder: torch.from_numpy(X),
    "file": lambda X, folder: np.save(folder / "X.npy", X) or folder / "X.npy",
    "function": lambda X, folder: lambda: iter([X[:30], X[30:]]),
    "dask array": lambda X, folder: da.from_array(X, chunks=(25, 2)),
    "dask frame": lambda X, folder: dd.from_pandas(pd.DataFrame(X), npartitions=3),
}


@pytest.mark.parametrize("way", WAYS)
def test_inputs_of_every_kind(model, way, tmp_path):
    X = data(seed=1)[0]
    found = everything(model, WAYS[way](X, tmp_path))
    for values, expected in zip(found, everything(model, X), strict=True):
        assert isinstance(values, torch.Tensor) == (way == "tensor")
        np.testing.assert_allclose(as_array(values), expected, rtol=1e-9, atol=1e-9)


def test_data_frames_and_float32(model):
    X = data(seed=1)[0]
    expected = everything(model, X)
    for values, same in zip(everything(model, pd.DataFrame(X).to_numpy()), expected, strict=True):
        np.testing.assert_array_equal(values, same)
    for values, near in zip(everything(model, X.astype(np.float32)), expected, strict=True):
        assert values.dtype == np.float32
        np.testing.assert_allclose(values, near, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("n_centers", [20, "all"])
def test_fit_of_tensors(n_centers):
    X, y = data()
    # A rough kernel and a large lambda keep rounding errors small.
    rough = quick(n_centers=n_centers, kernel="matern32", reg_lambda=1e-2)
    here = clone(rough).fit(X, y)
    there = rough.fit(torch.from_numpy(X), torch.from_numpy(y))
    assert there.noise_variance_ == pytest.approx(here.noise_variance_, rel=1e-4)
    np.testing.assert_allclose(there.interval_scores_, here.interval_scores_, rtol=1e-3, atol=1e-4)
    there.calibrate(torch.from_numpy(X), torch.from_numpy(y))
    np.testing.assert_allclose(there.interval_scores_, here.calibrate(X, y).interval_scores_, rtol=1e-3, atol=1e-4)


def test_fit_of_files(tmp_path):
    X, y = data()
    np.save(tmp_path / "rows.npy", np.column_stack([X, y]))
    here, there = quick().fit(X, y), quick().fit(tmp_path / "rows.npy", 3)
    np.testing.assert_allclose(there.interval_scores_, here.interval_scores_, rtol=1e-6)
    np.testing.assert_allclose(there.predict(X, True)[1], here.predict(X, True)[1], rtol=1e-6)


def test_fit_with_cv():
    X, y = data()
    model = HyperKernelRidgeCV([1, 2], cv=2, criterion="training", reg_lambdas=[1e-2], n_init=2, random_state=0)
    model.fit(X, y)
    assert model.interval_scores_.shape == (len(X),)
    lower, upper = model.predict_interval(X)
    assert np.all(lower < upper)


def test_intervals_around_truncated_predictions_are_not_truncated():
    X, y = data()
    model = HyperKernelRidgeCV([2], cv=2, criterion="training", reg_lambdas=[1e-3], n_init=2, random_state=0)
    model.fit(X, y)
    model.truncation_ = 0.2
    lower, upper = model.predict_interval(X)
    np.testing.assert_allclose((lower + upper) / 2, np.clip((lower + upper) / 2, -0.2, 0.2), atol=1e-12)
    np.testing.assert_allclose(model.predict(X, True)[0], model.predict(X))
    assert upper.max() > 0.2


def odd_data():
    X, y = data()
    rng = np.random.RandomState(3)
    return {
        "constant y": (X, np.full(len(X), 3.0)),
        "one target constant": (X, np.column_stack([y, np.full(len(X), 3.0)])),
        "no noise": (X, X[:, 0]),
        "three rows": (X[:3], y[:3]),
        "two rows": (X[:2], y[:2]),
        "more columns than rows": (rng.standard_normal((12, 30)), y[:12]),
        "constant X": (np.ones_like(X), y),
        "copies": (np.repeat(X[:20], 4, axis=0), np.repeat(y[:20], 4)),
        "one x, many y": (np.repeat(X[:2], 40, axis=0), y),
        "heavy tails": (X, y + rng.standard_cauchy(len(X))),
        "large numbers": (1e6 * X, 1e8 * y),
        "small numbers": (1e-6 * X, 1e-8 * y),
    }


ODD_DATA = odd_data()


# Some of these data sets cause warnings about the fit.
@pytest.mark.filterwarnings("ignore::hkrr.HKRRWarning")
@pytest.mark.parametrize(
    ("n_centers", "reg_lambda"),
    [
        pytest.param(1, 1e-3, marks=pytest.mark.thorough),
        (10, 1e-9),
        pytest.param("all", 1e-9, marks=pytest.mark.thorough),
    ],
)
@pytest.mark.parametrize("name", ODD_DATA)
def test_intervals_of_unusual_data_are_finite(name, n_centers, reg_lambda):
    X, y = ODD_DATA[name]
    n_centers = "all" if n_centers == 10 and len(X) < 10 else n_centers
    model = quick(n_centers=n_centers, reg_lambda=reg_lambda, max_iter=3).fit(X, y)
    found = [*model.predict(X, return_std=True), *model.predict_interval(X, 0.4)]
    assert all(np.all(np.isfinite(values)) for values in found)
    assert np.all(found[1] >= 0)
    assert np.all(found[2] <= found[3])
    if name == "constant y":
        np.testing.assert_array_equal(found[1], 0.0)
        np.testing.assert_allclose(found[2], 3.0)
    model.calibrate(X, y)
    assert all(np.all(np.isfinite(values)) for values in model.predict_interval(X, 0.4))


def test_too_few_rows_raise():
    X, y = data(n=5)
    model = quick(n_centers="all").fit(X, y)
    with pytest.raises(ValueError, match=r"coverage=0\.9 needs at least 9 conformal scores .* this model has 5: use"):
        model.predict_interval(X)


def test_rows_of_weight_zero_get_no_score():
    X, y = data()
    w = np.ones(len(X))
    w[::4] = 0.0
    for n_centers in (20, "all"):
        model = quick(n_centers=n_centers).fit(X, np.where(w > 0, y, 1e3), w)
        assert len(model.interval_scores_) == 60
        assert model.interval_scores_.max() < 10


@pytest.mark.parametrize("n_centers", [20, "all"])
def test_files_of_earlier_versions(n_centers, tmp_path):
    model = quick(n_centers=n_centers).fit(*data())
    model._store_uncertainty(None)
    hkrr.save(model, tmp_path / "model.hkrr")
    with pytest.raises(ValueError, match="saved by an earlier version of hkrr"):
        hkrr.load(tmp_path / "model.hkrr").predict_interval(data()[0])


def test_a_resumed_fit_has_the_same_uncertainty(tmp_path):
    X, y = data()

    def stop(state):
        if state.n_iter == 2:
            raise RuntimeError

    options = {"checkpoint": tmp_path / "fit.checkpoint", "checkpoint_every": 0, "max_iter": 4}
    with pytest.raises(RuntimeError):
        quick(callbacks=[stop], **options).fit(X, y)
    found, expected = quick(**options).fit(X, y), quick(max_iter=4).fit(X, y)
    # This fit reads the checkpoint of a finished fit.
    again = quick(**options).fit(X, y)
    for model in (found, again):
        np.testing.assert_array_equal(model.interval_scores_, expected.interval_scores_)
        np.testing.assert_array_equal(model.posterior_factor_, expected.posterior_factor_)
        np.testing.assert_array_equal(model.predict(X, True)[1], expected.predict(X, True)[1])
