"""Tests of tensors as inputs and outputs, and of computations by PyTorch on the CPU, which run the code for GPUs."""

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from hkrr import HyperKernelRidge, HyperKernelRidgeCV
from hkrr.objective import Objective
from hkrr.rows.torch_device import TorchRows

M, D = 500, 4


def _data(T=1):
    rng = np.random.default_rng(T)
    X = rng.normal(size=(M, D)) * [1.0, 2.0, 5.0, 10.0]
    y = np.sin(X[:, 0] + 0.25 * X[:, 1]) + 0.3 * rng.normal(size=M)
    return X, y if T == 1 else np.column_stack([y, X[:, 2] / 5.0 + 0.3 * rng.normal(size=M)])


def _model(**options):
    """Return a model whose fit amplifies rounding errors little, as explained in test_rows_conformance.py."""
    common = {"kernel": "matern32", "reg_lambda": 1e-2, "n_centers": 20, "n_init": 1, "random_state": 0}
    return HyperKernelRidge(1, **{**common, **options})


def _check_alike(found, expected, X):
    """Check that the centers are bitwise equal, the maps agree to 1e-6, and the predictions to 1e-5."""
    assert_array_equal(found.centers_, expected.centers_)
    assert_allclose(found.components_, expected.components_, rtol=0.0, atol=1e-6)
    assert_allclose(found.predict(X), expected.predict(X), rtol=0.0, atol=1e-5)
    for name, value in vars(found).items():
        assert not torch.is_tensor(value), name  # a fitted model does not need PyTorch


@pytest.mark.parametrize("T", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_fits_and_predictions_have_the_dtype_and_shape_of_the_tensors(dtype, T):
    X, y = (torch.as_tensor(part).to(dtype) for part in _data(T))
    expected = _model().fit(X.numpy(), y.numpy())
    model = _model().fit(X, y)
    _check_alike(model, expected, X.numpy())
    found = model.predict(X)
    assert found.dtype == dtype
    assert found.shape == y.shape
    assert found.device == X.device
    assert not found.requires_grad
    # Both predictions are computed in float64 as sums of terms of order one, and then rounded to the dtype of X.
    rounding = 1e-12 if dtype == torch.float64 else 1e-6
    assert_allclose(found.numpy(), model.predict(X.numpy()), rtol=rounding, atol=rounding)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_read(dtype):
    X, y = (torch.as_tensor(part).to(dtype) for part in _data())
    expected = _model().fit(X.double(), y.double())
    model = _model().fit(X, y)
    _check_alike(model, expected, X.double())
    assert model.predict(X).dtype == dtype


@pytest.mark.parametrize("dtype", [torch.int64, torch.int16, torch.uint8, torch.bool], ids=str)
def test_integers_and_booleans_are_read_and_predictions_are_floats(dtype):
    """Test that the predictions are floating point numbers even if X holds integers or booleans."""
    X = torch.as_tensor(np.clip(np.round(_data()[0]) + 20.0, 0, 255) if dtype != torch.bool else _data()[0] > 0).to(
        dtype
    )
    y = torch.as_tensor(_data()[1])
    model = _model().fit(X, y)
    found, expected = model.predict(X), model.predict(X.double())
    assert found.dtype.is_floating_point
    assert_allclose(
        found.numpy(), expected.numpy(), rtol=1e-6
    )  # the predictions have at least the precision of float32
    _check_alike(model, _model().fit(X.double(), y), X.double())


def test_integers_as_targets():
    X, y = _data()
    counts = np.round(5.0 * y).astype(np.int64)
    _check_alike(_model().fit(torch.as_tensor(X), torch.as_tensor(counts)), _model().fit(X, counts), X)


def test_tensors_of_any_strides():
    X, y = _data()
    expected = _model().fit(torch.as_tensor(X), torch.as_tensor(y))
    columns = torch.as_tensor(np.ascontiguousarray(X.T)).T
    every_second = torch.as_tensor(np.repeat(np.repeat(X, 2, axis=0), 3, axis=1))[::2, ::3]
    for other in (columns, every_second):
        assert not other.is_contiguous()
        _check_alike(_model().fit(other, torch.as_tensor(np.repeat(y, 2))[::2]), expected, X)
        # The rounding error of a prediction is relative to its terms, which are of order one.
        assert_allclose(expected.predict(other).numpy(), expected.predict(X), rtol=1e-12, atol=1e-13)


def test_tensors_that_require_a_gradient():
    """Test that tensors that require a gradient, such as the output of a network layer, are used like other tensors.

    The fit and the predictions use their values only.
    """
    X, y = (torch.as_tensor(part).requires_grad_() for part in _data())
    expected = _model().fit(*_data())
    assert not expected.predict(X).requires_grad
    _check_alike(_model().fit(X, y), expected, _data()[0])


@pytest.mark.parametrize(
    ("dtype", "criterion"),
    [
        (torch.float64, "training"),
        (torch.float32, "training"),
        (torch.int64, "evidence"),
        (torch.float64, "loo"),
    ],
    ids=str,
)
def test_weights(dtype, criterion):
    """Test that fits to weighted tensors agree with fits to arrays, and that rows of weight zero are never centers."""
    X, y = _data()
    w = np.random.default_rng(2).integers(0, 4, M)
    found = _model(criterion=criterion).fit(torch.as_tensor(X), torch.as_tensor(y), torch.as_tensor(w).to(dtype))
    _check_alike(found, _model(criterion=criterion).fit(X, y, w), X)
    kept = w > 0
    assert not set(found.centers_[:, 0]) & set(X[~kept, 0])


def test_zero_weights_with_all_rows_as_centers():
    X, y = (part[:160] for part in _data())
    w = np.repeat([0.0, 1.0, 2.0, 3.0], 40)
    for criterion in ("training", "evidence", "loo"):
        found = _model(criterion=criterion, n_centers="all").fit(*(torch.as_tensor(part) for part in (X, y, w)))
        expected = _model(criterion=criterion, n_centers="all").fit(X, y, w)
        assert_allclose(
            found.predict(X), expected.predict(X), rtol=0.0, atol=1e-5
        )  # the same tolerance as in _check_alike


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"X": torch.zeros(M)}, "X must be a matrix"),
        ({"X": torch.zeros(M, D, 1)}, "X must be a matrix"),
        ({"X": torch.zeros(1, D), "y": torch.zeros(1)}, "at least 2"),
        ({"X": torch.full((M, D), torch.nan)}, "X .*NaN"),
        ({"X": torch.zeros(M, D, dtype=torch.complex128)}, "X .*complex"),
        ({"y": torch.full((M,), torch.inf)}, "y .*infinity"),
        ({"y": torch.zeros(M - 1)}, "y must"),
        ({"y": torch.tensor(1.0)}, "y must"),
        ({"y": torch.zeros(M, 1, 1)}, "y must"),
        ({"y": np.zeros(M)}, "y must be a tensor"),
        ({"y": None}, "y must"),
        ({"sample_weight": torch.ones(M - 1)}, "sample_weight must"),
        ({"sample_weight": torch.ones(M, 1)}, "sample_weight must"),
        ({"sample_weight": -torch.ones(M)}, "sample_weight must not be negative"),
        ({"sample_weight": torch.zeros(M)}, "sample_weight must .*positive"),
        ({"sample_weight": torch.full((M,), torch.nan)}, "sample_weight .*NaN"),
        ({"sample_weight": np.ones(M)}, "sample_weight must be a tensor"),
    ],
    ids=lambda value: (
        None if isinstance(value, str) else "-".join(f"{k}{getattr(v, 'shape', v)}" for k, v in value.items())
    ),
)
def test_errors_name_the_invalid_tensor(change, message):
    X, y = (torch.as_tensor(part) for part in _data())
    with pytest.raises(ValueError, match=message):
        _model().fit(**{"X": X, "y": y, **change})


def test_errors_name_invalid_tensors_in_predict():
    X, y = _data()
    model = _model(max_iter=1).fit(X, y)
    for bad, message in (
        (torch.zeros(3, D - 1), f"{D} columns"),
        (torch.zeros(D), "matrix"),
        (torch.full((3, D), torch.nan), "NaN"),  # the same error as for an array
        (torch.full((3, D), torch.inf), "infinity"),
        (torch.zeros(0, D), r"0 sample|0 rows|no rows"),
    ):
        with pytest.raises(ValueError, match=message):
            model.predict(bad)


def test_feature_names_of_an_earlier_fit_are_removed():
    X, y = _data()
    model = _model(max_iter=1).fit(pd.DataFrame(X, columns=list("abcd")), y)
    model.fit(torch.as_tensor(X[:, :2]), torch.as_tensor(y))
    assert model.n_features_in_ == 2
    assert not hasattr(model, "feature_names_in_")
    assert model.predict(X[:, :2]).shape == (M,)


@pytest.fixture
def warned_always():
    """Make PyTorch repeat its warnings. It warns once per process by default, so tests would depend on each other."""
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(False)


@pytest.mark.usefixtures("warned_always")
@pytest.mark.parametrize("layout", ["C", "F", "read-only", "reversed", "float32", "frame"])
def test_arrays_on_a_device(layout):
    """Test that fits to arrays on a device accept all memory layouts that NumPy supports.

    PyTorch rejects negative strides and warns about read-only arrays.
    """
    X, y = _data()
    w = np.random.default_rng(1).uniform(0.5, 2.0, M)
    given = {
        "C": X,
        "F": np.asfortranarray(X),
        "read-only": X.copy(),
        "reversed": np.ascontiguousarray(X[::-1])[::-1],
        "float32": X.astype(np.float32),
        "frame": pd.DataFrame(X, columns=list("abcd")),
    }[layout]
    if layout == "read-only":
        given.setflags(write=False)
    found, expected = (_model(device=device).fit(given, y, w) for device in ("cpu", None))
    _check_alike(found, expected, given)
    assert isinstance(found.predict(given), np.ndarray)
    assert found.predict(given).dtype == (np.float32 if layout == "float32" else np.float64)


def test_several_targets_on_a_device():
    X, Y = _data(T=2)
    _check_alike(_model(device="cpu").fit(X, Y), _model().fit(X, Y), X)


def test_a_missing_device_is_a_clear_error():
    with pytest.raises((ValueError, RuntimeError), match="nowhere"):
        _model(device="nowhere").fit(*_data())
    if not torch.cuda.is_available():
        with pytest.raises((ValueError, RuntimeError), match="cuda"):
            _model(device="cuda").fit(*_data())


def test_a_tensor_is_moved_to_the_requested_device():
    X, y = _data()
    found = _model(device=torch.device("cpu")).fit(torch.as_tensor(X), torch.as_tensor(y))
    _check_alike(found, _model().fit(X, y), X)


def test_sums_are_tensors_until_they_are_fetched():
    """Test that sums are tensors that record no gradients, and that `fetch` returns NumPy arrays."""
    X, y = _data()
    rows = TorchRows(torch.as_tensor(X).requires_grad_(), torch.as_tensor(y), device="cpu", block_size=77)
    (total,) = rows.sum(lambda X, Y, w, B: ((X @ B.T).sum(),), 1, np.ones((1, D)))
    assert torch.is_tensor(total)
    assert not total.requires_grad
    (fetched,) = rows.fetch(total)
    assert isinstance(fetched, np.ndarray)
    assert_allclose(fetched, np.sum(X), rtol=1e-12, atol=1e-10)


def test_float32_rows_are_summed_in_float64():
    """Test that sums over float32 rows are bitwise equal to sums over the same numbers in float64."""
    X, y = (part.astype(np.float32) for part in _data())
    kernel = _model().fit(X, y).kernel_
    B = np.linalg.qr(np.random.default_rng(0).normal(size=(D, 2)))[0].T / 5.0
    found, expected = (
        Objective(TorchRows(*map(torch.as_tensor, data), device="cpu"), X[:5].astype(float), kernel, 1e-2).reduced(B)
        for data in ((X, y), (X.astype(float), y.astype(float)))
    )
    assert_array_equal(found.grad, expected.grad)
    assert found.value == expected.value


def test_transform_returns_tensors():
    X, y = _data()
    model = _model(max_iter=1).fit(X, y)
    for dtype in (torch.float64, torch.float32):
        found = model.transform(torch.as_tensor(X).to(dtype))
        assert torch.is_tensor(found)
        assert found.dtype == dtype
        assert_allclose(found.numpy(), model.transform(torch.as_tensor(X).to(dtype).numpy()), rtol=1e-6, atol=1e-6)


def test_the_search_takes_tensors():
    X, y = (part[:200] for part in _data())
    found = HyperKernelRidgeCV(1, n_init=1, random_state=0).fit(torch.as_tensor(X), torch.as_tensor(y))
    expected = HyperKernelRidgeCV(1, n_init=1, random_state=0).fit(X, y)
    assert_allclose(found.components_, expected.components_, rtol=0.0, atol=1e-6)
    assert torch.is_tensor(found.predict(torch.as_tensor(X)))
