"""Tests of ensembles and classifiers whose members transform the columns to normal scores.

The target depends on the ranks of two columns: one is lognormal, and the other has heavy tails on both sides. A third
column is normal and has no influence, and a fourth has two values.
"""

import copy
import pickle
import warnings
from dataclasses import replace

import numpy as np
import onnxruntime
import pandas as pd
import polars as pl
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm, rankdata
from sklearn.base import clone
from sklearn.metrics import r2_score

import hkrr
from hkrr import HyperKernelClassifier, HyperKernelEnsemble, HyperKernelRidge, HyperKernelRidgeCV
from hkrr._storage.safetensors_format import pack
from hkrr.datasets import make_mim_sines
from hkrr.estimators import _search_mixin, average_gradient_outer_product
from hkrr.estimators.classification import classifier
from hkrr.estimators.fitted import diagnostics
from hkrr.estimators.search import kernel_race, search_and_refit, search_stages
from hkrr.estimators.search.candidates import Candidate, Origin
from hkrr.estimators.search.held_out_check import HeldOutCheck
from hkrr.estimators.search.progress import Phase
from hkrr.exceptions import FitError
from hkrr.kernels import Gaussian
from hkrr.rows import InMemoryRows, column_transform
from support.hostile_files import load, refused
from support.models_to_save import assert_same, saved, through_a_file
from support.mutated_model_files import parts
from support.quick_search import make_quick
from support.stopped_fits import breaking

# The fits with few iterations, and the regressions on noisy labels, cause warnings.
pytestmark = pytest.mark.filterwarnings("ignore::hkrr.HKRRWarning")

# Number of training rows. There are more knots than rows, so the normal scores of all rows are exact.
N = 120


def _ensemble(**options):
    return HyperKernelEnsemble(**{"n_init": 1, "n_jobs": 1, "random_state": 0} | options)


def _data(n=N, seed=0, noise=0.1):
    """Return X, y and the function without noise of n training rows and 400 other rows."""
    rng = np.random.default_rng([seed, n])
    Z, two = rng.normal(size=(n + 400, 3)), rng.integers(0, 2, size=n + 400).astype(float)
    X = np.column_stack([np.exp(3.0 * Z[:, 0]), np.sinh(4.0 * Z[:, 1]), Z[:, 2], two])
    f = np.sin(2.0 * Z[:, 0]) + 0.5 * np.abs(Z[:, 1]) + 0.5 * two
    return X, f + noise * rng.normal(size=n + 400), f


def _training(n=N, **options):
    X, y, _ = _data(n, **options)
    return X[:n], y[:n]


def _transformed(model):
    """Return the members of a model whose columns are transformed. There is at least one."""
    found = [member for member in model.members_ if member.column_transform_ is not None]
    assert found
    return found


def _naive_scores(training, X):
    """Return the columns of X as the transform should return them, given the training rows."""
    columns = []
    for t, x in zip(training.T, X.T, strict=True):
        values = np.unique(t)
        if len(values) <= 10:
            columns.append((x - np.mean(t)) / np.std(t))
            continue
        scores = norm.ppf((rankdata(t) - 0.5) / len(t))
        assert np.max(np.abs(scores)) < 3.0
        columns.append(np.interp(x, values, [scores[t == value][0] for value in values]))
    return np.column_stack(columns)


def _naive_prediction(member, T):
    """Return the prediction of a member for rows in the units of its centers."""
    P, C = ((rows - member.x_offset_) @ member.components_.T for rows in (T, member.centers_))
    found = member.kernel_(P, C) @ member.dual_coef_ + member.intercept_
    return np.clip(found, -member.truncation_, member.truncation_)


def _without_transform(member):
    """Return a member that has the same function of rows that are already transformed."""
    other = copy.copy(member)
    del other.column_transform_
    assert other.column_transform_ is None
    return other


@pytest.fixture
def quick(monkeypatch):
    """Reduce the numbers of iterations. The accuracy does not matter in tests with this fixture."""
    make_quick(monkeypatch)


@pytest.fixture(scope="module")
def fitted():
    """Return an ensemble, and rows that were not used in its fit. The fixture must not be modified."""
    X, y, _ = _data()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = _ensemble().fit(X[:N], y[:N])
    _transformed(model)
    return model, X[N:], y[N:]


@pytest.fixture(scope="module")
def by_arrays():
    """Return training data, new rows, and the predictions of a quick fit for the new rows."""
    X, y, _ = _data()
    with pytest.MonkeyPatch.context() as patch:
        make_quick(patch)
        model = _ensemble().fit(X[:N], y[:N])
    _transformed(model)
    return X[:N], y[:N], X[N:], model.predict(X[N:])


# ------------------------------------------------------------------------------------ members and predictions


def test_the_first_member_is_transformed(fitted):
    model, X, y = fitted
    assert model.members_[0].column_transform_ is not None
    assert_array_equal(model.members_[0].column_transform_.ranked, [0, 1, 2])  # the fourth column has two values
    assert model.score(X, y) > 0.9
    for member in model.members_:
        assert ("column_transform_" in vars(member)) == (member.column_transform_ is not None)
        assert type(member) is HyperKernelRidgeCV
    assert not hasattr(model, "column_transform_")


@pytest.mark.usefixtures("quick")
def test_without_the_transform_the_fit_is_worse(by_arrays, monkeypatch):
    X, y, X_new, predicted = by_arrays
    monkeypatch.setattr(HyperKernelEnsemble, "_normal_scores", lambda *_: None)
    model = _ensemble().fit(X, y)
    assert all(member.column_transform_ is None for member in model.members_)
    f = _data()[2][N:]
    assert np.mean((predicted - f) ** 2) < 0.5 * np.mean((model.predict(X_new) - f) ** 2)


def test_the_transform_is_that_of_the_training_rows(fitted):
    model, X_new, _ = fitted
    X, _ = _training()
    assert column_transform._KNOTS > N
    for member in _transformed(model):
        for rows in (X, X_new, 1e3 * X_new, -X_new):
            assert_allclose(member.column_transform_(rows), _naive_scores(X, rows), rtol=1e-10, atol=1e-10)
        # All training rows are centers, in units of the transformed columns.
        assert_array_equal(member.x_offset_, np.zeros(4))
        centers, expected = (rows[np.lexsort(rows.T)] for rows in (member.centers_, _naive_scores(X, X)))
        assert_allclose(centers, expected, atol=1e-10)


def test_members_predict_the_naive_kernel_expansion(fitted):
    """Test the predictions for rows in original units. Some of these rows are outside the range of the training rows.

    The oracle uses its own normal scores. Rounding errors of the scores are multiplied by the sum of the absolute
    coefficients at most, if the kernel changes by at most 1 per unit.
    """
    model, X_new, _ = fitted
    X, _ = _training()
    rows = np.vstack([X_new, X, 10.0 * X_new[:50], -X_new[:50]])
    for member in _transformed(model):
        rounding = 1e-12 * (1.0 + np.sum(np.abs(member.dual_coef_)))
        assert rounding < 1e-4
        expected = _naive_prediction(member, _naive_scores(X, rows))
        assert_allclose(member.predict(rows), expected, rtol=0.0, atol=rounding)
        assert np.std(expected) > 0.1
    for member in model.members_:
        if member.column_transform_ is None:
            assert_allclose(member.predict(rows), _naive_prediction(member, rows), rtol=1e-9, atol=1e-9)


def test_the_prediction_is_the_weighted_sum_of_the_members(fitted):
    model, X, y = fitted
    total = sum(
        w * (member.predict(X) - model.intercept_) for w, member in zip(model.weights_, model.members_, strict=True)
    )
    assert_allclose(model.predict(X), model.intercept_ + total, rtol=1e-12)
    assert model.score(X, y) == pytest.approx(r2_score(y, model.predict(X)), rel=1e-12)


def test_values_outside_the_range_predict_like_the_extremes(fitted):
    model, _, _ = fitted
    X, _ = _training()
    inside, outside = (np.tile(np.median(X, axis=0), (4, 1)) for _ in range(2))
    inside[:, 0] = np.repeat([X[:, 0].min(), X[:, 0].max()], 2)
    outside[:, 0] = [X[:, 0].min() - 1e-9, -1e300, X[:, 0].max() * 1.001, 1e300]
    for member in _transformed(model):
        assert_array_equal(member.predict(outside), member.predict(inside))
        assert_array_equal(member.transform(outside), member.transform(inside))


def test_latent_coordinates(fitted):
    model, X, _ = fitted
    training, _ = _training()
    for member in _transformed(model):
        Z = member.transform(X)
        assert Z.shape == (len(X), member.n_components_)
        assert_allclose(Z, _naive_scores(training, X) @ member.components_.T, rtol=1e-9, atol=1e-9)
        assert_allclose(member.predict_latent(Z), member.predict(X), rtol=1e-9, atol=1e-9)
        single = member.transform(X.astype(np.float32))
        assert single.dtype == np.float32
        expected = member.transform(X.astype(np.float32).astype(np.float64))
        assert_allclose(single, expected, rtol=1e-5, atol=1e-5 * np.max(np.abs(expected)))
        assert_allclose(member.transform(torch.as_tensor(X)).numpy(), Z, rtol=1e-12, atol=1e-12)


def test_a_member_is_a_model_of_transformed_rows(fitted):
    """Test that a member without the transform gives the same results for rows that were transformed before."""
    model, X, _ = fitted
    for member in _transformed(model):
        plain, T = _without_transform(member), member.column_transform_(X)
        assert_allclose(member.predict(X), plain.predict(T), rtol=1e-12, atol=1e-12)
        for found, expected in zip(member.predict(X, return_std=True), plain.predict(T, return_std=True), strict=True):
            assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
        for found, expected in zip(member.predict_interval(X), plain.predict_interval(T), strict=True):
            assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
        assert_array_equal(member.transform(X), plain.transform(T))
        assert_array_equal(member.feature_importances_, plain.feature_importances_)
        G = average_gradient_outer_product(member, X)
        assert_array_equal(G, average_gradient_outer_product(plain, T))
        assert np.argmax(np.diag(G)) in (0, 1)


def test_importances(fitted):
    model, _, _ = fitted
    for one in (model, *_transformed(model)):
        importances = one.feature_importances_
        assert np.sum(importances) == pytest.approx(1.0)
        assert np.all(importances >= 0.0)
    assert np.argmax(model.feature_importances_) == 0
    assert np.argmin(model.feature_importances_) == 2
    mean = sum(s * one.feature_importances_ for s, one in zip(model.shares, model.members_, strict=True))
    assert_allclose(model.feature_importances_, mean, rtol=1e-12)


# ------------------------------------------------------------------------------------ uncertainty


def test_standard_deviations(fitted):
    model, X, _ = fitted
    deviations = []
    for member in model.members_:
        predicted, std = member.predict(X, return_std=True)
        assert_allclose(predicted, member.predict(X), rtol=1e-9, atol=1e-9)
        assert np.all(np.isfinite(std))
        assert np.all(std >= np.sqrt(member.noise_variance_))
        deviations.append(std)
    predicted, std = model.predict(X, return_std=True)
    assert_array_equal(predicted, model.predict(X))
    variance = sum(share * one**2 for share, one in zip(model.shares, deviations, strict=True))
    assert_allclose(std, np.sqrt(variance), rtol=1e-12)
    # The standard deviation of the target is about 0.8.
    assert 0.1 < np.median(std) < 0.5
    assert np.median(std) < np.median(model.predict(-100.0 * np.abs(X), return_std=True)[1])


def test_intervals(fitted):
    """Test that intervals with coverage 0.9 contain between 80% and 98% of the targets of new rows."""
    model, X, y = fitted
    assert model.interval_scores_.shape == (N,)
    for calibrated in (False, True):
        model = copy.deepcopy(model).calibrate(X[:120], y[:120]) if calibrated else model
        lower, upper = model.predict_interval(X[120:], coverage=0.9)
        assert 0.8 < np.mean((lower <= y[120:]) & (y[120:] <= upper)) < 0.98
        wider = model.predict_interval(X[120:], coverage=0.95)
        assert np.all((wider[0] <= lower) & (lower < upper) & (upper <= wider[1]))
        assert_array_equal(model.predict(X), fitted[0].predict(X))


# ------------------------------------------------------------------------------------ kinds of input


def test_dtypes_and_tensors(fitted):
    model, X, _ = fitted
    expected = model.predict(X)
    single, rounded = X.astype(np.float32), X.astype(np.float32).astype(np.float64)
    found = model.predict(single)
    assert found.dtype == np.float32
    assert_allclose(found, model.predict(rounded), rtol=1e-5, atol=1e-6)
    assert_allclose(model.predict(np.asfortranarray(X)), expected, rtol=1e-12, atol=1e-12)
    tensor = model.predict(torch.as_tensor(X))
    assert tensor.dtype == torch.float64
    assert_allclose(tensor.numpy(), expected, rtol=1e-9, atol=1e-9)
    assert_allclose(model.predict(torch.as_tensor(single)).numpy(), model.predict(rounded), rtol=1e-5, atol=1e-6)
    for one, other in zip(
        model.predict(torch.as_tensor(X), return_std=True), model.predict(X, return_std=True), strict=True
    ):
        assert_allclose(one.numpy(), other, rtol=1e-8, atol=1e-8)


def test_blocks_and_files(fitted, tmp_path):
    model, X, _ = fitted
    expected, member = model.predict(X), _transformed(model)[0]
    np.save(tmp_path / "rows.npy", X)
    pl.DataFrame(X, schema=list("abcd")).write_csv(tmp_path / "rows.csv")
    pl.DataFrame(X, schema=list("abcd")).write_parquet(tmp_path / "rows.parquet")
    for rows in (
        *(tmp_path / f"rows.{suffix}" for suffix in ("npy", "csv", "parquet")),
        lambda: (X[k : k + 70] for k in range(0, len(X), 70)),
    ):
        assert_allclose(model.predict(rows), expected, rtol=1e-9, atol=1e-9)
        assert_allclose(member.transform(rows), member.transform(X), rtol=1e-12, atol=1e-12)
        for one, other in zip(model.predict_interval(rows), model.predict_interval(X), strict=True):
            assert_allclose(one, other, rtol=1e-8, atol=1e-8)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("library", [pd, pl], ids=["pandas", "polars"])
def test_fits_to_data_frames(by_arrays, tmp_path, library):
    X, y, X_new, expected = by_arrays
    frame, new = (library.DataFrame({name: rows[:, k] for k, name in enumerate("abcd")}) for rows in (X, X_new))
    model = _ensemble().fit(frame, library.Series(y))
    _transformed(model)
    assert list(model.feature_names_in_) == list("abcd")
    assert_array_equal(model.predict(new), expected)
    (new.to_csv if library is pd else new.write_csv)(
        tmp_path / "new.csv", **({"index": False} if library is pd else {})
    )
    assert_allclose(model.predict(tmp_path / "new.csv"), expected, rtol=1e-9, atol=1e-9)
    member = _transformed(model)[0]
    assert_array_equal(member.predict(new), _ensemble_member(X, y, member).predict(X_new))


def _ensemble_member(X, y, like):
    """Return the member of a fit to arrays with the same kernel and shape of the map."""
    model = _ensemble().fit(X, y)
    return next(
        one for one in _transformed(model) if str(one.kernel) == str(like.kernel) and one.map_shape_ == like.map_shape_
    )


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_fits_to_files(by_arrays, tmp_path, suffix):
    X, y, X_new, expected = by_arrays
    path, new = tmp_path / f"table.{suffix}", tmp_path / f"new.{suffix}"
    for rows, target, file in ((X, y, path), (X_new, _data()[1][N:], new)):
        table = pl.DataFrame({"a": rows[:, 0], "b": rows[:, 1], "y": target, "c": rows[:, 2], "d": rows[:, 3]})
        (table.write_csv if suffix == "csv" else table.write_parquet)(file)
    model = _ensemble().fit(path, "y")
    _transformed(model)
    assert_allclose(model.predict(new), expected, atol=1e-6)
    assert model.score(new, "y") == pytest.approx(r2_score(_data()[1][N:], expected), abs=1e-6)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_fits_to_tensors(by_arrays, device, dtype):
    X, y, X_new, expected = by_arrays
    model = _ensemble(device=device).fit(torch.as_tensor(X).to(dtype), torch.as_tensor(y).to(dtype))
    _transformed(model)
    found = model.predict(torch.as_tensor(X_new).to(dtype))
    assert torch.is_tensor(found)
    if dtype == torch.float32:
        X, y, X_new = (rows.astype(np.float32) for rows in (X, y, X_new))
        expected = _ensemble().fit(X, y).predict(X_new)
    assert_allclose(found.numpy(), expected, atol=1e-5)
    for member in model.members_:
        transform = vars(member).get("column_transform_")
        values = [*vars(member).values(), *(vars(transform).values() if transform is not None else ())]
        assert not any(torch.is_tensor(value) for value in values)


@pytest.mark.usefixtures("quick")
def test_dask_collections(by_arrays):
    da, distributed = pytest.importorskip("dask.array"), pytest.importorskip("distributed")
    X, y, X_new, expected = by_arrays
    with distributed.Client(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None):
        model = _ensemble().fit(da.from_array(X, chunks=(50, 4)), da.from_array(y, chunks=50))
        _transformed(model)
        found = model.predict(da.from_array(X_new, chunks=(150, 4)))
        assert isinstance(found, da.Array)
        assert_allclose(found.compute(), expected, atol=1e-6)


@pytest.fixture
def small_samples(monkeypatch):
    """Make a search use a sample of 80 rows, so that a table of 120 rows is large."""
    make_quick(monkeypatch)
    for module, name in ((_search_mixin, "SAMPLE_ROWS"), (search_stages, "SAMPLE_ROWS"), (diagnostics, "_SAMPLE_ROWS")):
        monkeypatch.setattr(module, name, 80)


@pytest.mark.usefixtures("small_samples")
@pytest.mark.parametrize("kind", ["arrays", "file", "blocks", "tensors", "device"])
def test_fits_to_large_tables(tmp_path, kind):
    """Test fits whose transform is learned from a sample of the rows. The final fit has 60 centers."""
    X, y, f = _data()
    device = "cpu" if kind == "device" else None
    if kind == "file":
        np.save(tmp_path / "table.npy", np.column_stack([X[:N], y[:N]]))
        given = (tmp_path / "table.npy", 4)
    elif kind == "blocks":
        blocks = [(X[k : k + 40], y[k : k + 40]) for k in range(0, N, 40)]
        given = (lambda: iter(blocks),)
    elif kind == "tensors":
        given = torch.as_tensor(X[:N]), torch.as_tensor(y[:N])
    else:
        given = X[:N], y[:N]
    model = _ensemble(refit=60, device=device).fit(*given)
    for member in _transformed(model):
        transform = member.column_transform_
        assert len(np.unique(transform.knots[0])) == 80
        assert np.all(np.isin(transform.knots, X[:N]))
        assert len(member.centers_) == 60
        assert np.max(np.abs(member.centers_[:, :3])) < 3.0
    assert r2_score(f[N:], model.predict(X[N:])) > 0.85
    assert model.intercept_ == pytest.approx(np.mean(y[:N]), rel=1e-6)


@pytest.mark.usefixtures("quick")
def test_large_tables_with_outliers(monkeypatch):
    """Test a table of which the search uses a sample. The weights of all rows come from a fit to the sample.

    The sample of this fit must be in the coordinates of the rows.
    """
    for module, name in ((_search_mixin, "SAMPLE_ROWS"), (search_stages, "SAMPLE_ROWS"), (diagnostics, "_SAMPLE_ROWS")):
        monkeypatch.setattr(module, name, 200)
    calls, original = [], search_and_refit.robust_rows

    def spy(*given):
        calls.append(given)
        return original(*given)

    monkeypatch.setattr(search_and_refit, "robust_rows", spy)
    X, y, f = _data(400, noise=0.05)
    bad = np.random.default_rng(0).choice(400, 16, replace=False)
    y[bad] += 20.0
    model = _ensemble(refit=80).fit(X[:400], y[:400])
    _transformed(model)
    found = set(model.diagnostics_.outliers)
    assert set(bad) <= found
    assert len(found) <= len(bad) + 4
    assert r2_score(f[400:], model.predict(X[400:])) > 0.9
    assert any(winner.ranked for _, _, winner, _ in calls)
    for rows, sample, _, omega in calls:
        assert len(omega) == sample.n_rows == 200 < rows.n_rows
        assert {row.tobytes() for row in sample.gather()[0]} <= {row.tobytes() for row in rows.gather()[0]}


# ------------------------------------------------------------------------------------ saving, export, copies


def test_a_loaded_model_is_the_saved_one(fitted, tmp_path):
    model, X, _ = fitted
    again = through_a_file(model, tmp_path)
    assert_same(again, model)
    assert_array_equal(again.predict(X), model.predict(X), strict=True)
    assert_same(again.predict(X, return_std=True), model.predict(X, return_std=True))
    for one, other in zip(again.members_, model.members_, strict=True):
        assert ("column_transform_" in vars(one)) == ("column_transform_" in vars(other))
        assert_array_equal(one.predict(X), other.predict(X), strict=True)
        assert_array_equal(one.transform(X), other.transform(X), strict=True)
    assert str(again.summary()) == str(model.summary())
    hkrr.save(again, tmp_path / "second")
    assert (tmp_path / "second").read_bytes() == (tmp_path / "model.safetensors").read_bytes()


def test_a_member_is_saved_alone(fitted, tmp_path):
    member, X = _transformed(fitted[0])[0], fitted[1]
    again = through_a_file(member, tmp_path)
    assert_same(again, member)
    assert_array_equal(again.predict(X), member.predict(X), strict=True)
    assert_array_equal(again.column_transform_(X), member.column_transform_(X), strict=True)


@pytest.fixture(scope="module")
def file_parts(fitted, tmp_path_factory):
    """Return a function that returns the header and the arrays of the file of a transformed member."""
    data = saved(_transformed(fitted[0])[0], tmp_path_factory.mktemp("models"))
    return lambda: parts(data)


def _name(array):
    return f"column_transform_.{array}"


def _swap(array, row=0):
    array = array.copy()
    array[row, [10, 50]] = array[row, [50, 10]]
    return array


CHANGES = {
    "knots that decrease": ("knots", lambda a: -a, "not monotone"),
    "two knots exchanged": ("knots", _swap, "not monotone"),
    "two knots of the last column exchanged": ("knots", lambda a: _swap(a, -1), "not monotone"),
    "scores that decrease": ("values", lambda a: a[:, ::-1], "not monotone"),
    "two scores exchanged": ("values", _swap, "not monotone"),
    "NaN as a knot": ("knots", lambda a: np.where(a == a[0, 5], np.nan, a), "NaN or infinity"),
    "an infinite knot": ("knots", lambda a: np.where(a == a[0, -1], np.inf, a), "NaN or infinity"),
    "an infinite score": ("values", lambda a: np.where(a == a[0, 0], -np.inf, a), "NaN or infinity"),
    "fewer knots than scores": ("knots", lambda a: a[:, :-1], "shape"),
    "fewer columns of knots": ("knots", lambda a: a[:-1], "shape"),
    "knots as integers": ("knots", lambda a: np.arange(a.size).reshape(a.shape), "column_transform_"),
    "fewer centers than columns": ("center", lambda a: a[:-1], "shape"),
    "NaN as a center": ("center", lambda a: np.full_like(a, np.nan), "NaN or infinity"),
    "a scale of zero": ("scale", lambda a: 0.0 * a, "not positive"),
    "a negative scale": ("scale", lambda a: -a, "not positive"),
    "fewer ranked columns": ("ranked", lambda a: a[:-1], "column_transform_"),
    "a column twice": ("ranked", lambda a: np.array([0, 1, 1]), "increasing indices"),
    "columns in another order": ("ranked", lambda a: a[::-1], "increasing indices"),
    "a column that does not exist": ("ranked", lambda a: np.array([0, 1, 4]), "increasing indices"),
    "a negative index": ("ranked", lambda a: np.array([-1, 0, 1]), "increasing indices"),
    "indices as floats": ("ranked", lambda a: a.astype(float), "column_transform_"),
}


@pytest.mark.parametrize(("name", "change", "message"), CHANGES.values(), ids=CHANGES)
def test_tampered_transforms_are_refused(file_parts, name, change, message):
    header, arrays = file_parts()
    assert_array_equal(load(pack(header, arrays)).column_transform_.knots, arrays[_name("knots")])
    refused(pack(header, {**arrays, _name(name): np.ascontiguousarray(change(arrays[_name(name)]))}), message)


def test_a_single_knot_is_refused(file_parts):
    header, arrays = file_parts()
    for name in ("knots", "values"):
        arrays[_name(name)] = np.ascontiguousarray(arrays[_name(name)][:, :1])
    refused(pack(header, arrays), "not monotone")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "not an object of class ColumnTransform"),
        (3, "not an object of class ColumnTransform"),
        ({"object": {"class": "Gaussian", "gamma": 1.0}}, "not an object of class ColumnTransform"),
        ({"object": {"class": "ColumnTransform"}}, "invalid ColumnTransform"),
    ],
)
def test_other_objects_are_refused(file_parts, value, message):
    header, arrays = file_parts()
    header["attributes"]["column_transform_"] = value
    arrays = {key: array for key, array in arrays.items() if not key.startswith("column_transform_.")}
    refused(pack(header, arrays), message)


def test_a_transform_in_an_ensemble_is_checked(fitted, tmp_path):
    header, arrays = parts(saved(fitted[0], tmp_path))
    names = [name for name in arrays if name.endswith(_name("knots"))]
    assert len(names) == len(_transformed(fitted[0]))
    refused(pack(header, {**arrays, names[-1]: -arrays[names[-1]]}), "not monotone")


def test_pickles_and_clones(fitted):
    model, X, _ = fitted
    again = pickle.loads(pickle.dumps(model))
    assert_same(again, model)
    assert_array_equal(again.predict(X), model.predict(X))
    fresh = clone(model)
    assert repr(fresh) == repr(model)
    assert not hasattr(fresh, "members_")
    for member in _transformed(model):
        assert clone(member).column_transform_ is None
        assert_array_equal(copy.deepcopy(member).predict(X), member.predict(X))


def _run_onnx(model, X):
    """Return the predictions of the exported model for the float32 rows X."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    graph = hkrr.to_onnx(model).SerializeToString()
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    return session.run(None, {"X": X})[0]


def test_onnx(fitted):
    """Test training rows, new rows, and rows outside the range of the training rows."""
    model, X_new, _ = fitted
    X, _ = _training()
    rows = np.vstack([X, X_new, 10.0 * X_new, -X_new, np.full((1, 4), 1e30), np.full((1, 4), -1e30)])
    rows[:, 3] = np.clip(rows[:, 3], -5.0, 5.0)  # this column is not clipped
    rows = rows.astype(np.float32)
    for one in (model, *model.members_):
        found, expected = _run_onnx(one, rows), one.predict(rows)
        assert found.dtype == np.float32
        assert found.shape == expected.shape
        assert np.max(np.abs(found - expected)) <= 1e-5
        assert np.ptp(expected) > 0.1


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("T", [1, 2])
def test_onnx_if_all_columns_are_transformed(T):
    X, y = _training()
    Y = y if T == 1 else np.column_stack([y, np.abs(y)])
    model = _ensemble().fit(X[:, :2], Y)
    assert {len(member.column_transform_.ranked) for member in _transformed(model)} == {2}
    rows = _data()[0][N:, :2].astype(np.float32)
    assert_allclose(_run_onnx(model, rows), model.predict(rows), rtol=0.0, atol=1e-5)


def test_summaries(fitted, capsys):
    model, _, _ = fitted
    print(model.summary())
    text = capsys.readouterr().out
    assert "normal scores" in text
    place = {"normal scores": True, "values": False}
    found = [next(place[cell] for cell in row if cell in place) for row in model.summary().members]
    assert found == [member.column_transform_ is not None for member in model.members_]
    for member in model.members_:
        print(member.summary())
        lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Transform")]
        assert [line.split("  ")[-1].strip() for line in lines] == (
            [] if member.column_transform_ is None else ["normal scores of 3 columns"]
        )


# ------------------------------------------------------------------------------------ increasing functions of columns


def _stretched(X, function):
    """Return X with an increasing function of the first two columns."""
    X = X.copy()
    for j in range(2):
        before = len(np.unique(X[:, j]))
        X[:, j] = function(X[:, j])
        assert len(np.unique(X[:, j])) == before
    return X


def _mixed(X):
    """Return rows whose values are all training values, in other combinations."""
    return np.column_stack([np.random.default_rng(j).permutation(x) for j, x in enumerate(X[:N].T)])


INCREASING = {
    "log": lambda x: np.sign(x) * np.log1p(np.abs(x)),
    "cube": lambda x: x**3,
    "steps": lambda x: np.floor(x) * 1e3 + x,
}


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("function", INCREASING.values(), ids=INCREASING)
def test_increasing_functions_change_nothing_if_all_candidates_are_transformed(monkeypatch, function):
    """Test that the predictions are bitwise the same if only candidates with transformed columns take part.

    The training values are knots, so their normal scores are the same. Between knots, the transform is linear in the
    values of the column, so only rows of training values have the same predictions.
    """
    keep = kernel_race.Race._keep

    def no_directions(self):
        raise FitError("no directions are searched for")

    monkeypatch.setattr(kernel_race.Race, "_keep", lambda self, ends: keep(self, [one for one in ends if one.ranked]))
    monkeypatch.setattr(kernel_race.Race, "_sparse_starts", lambda self: [])
    monkeypatch.setattr(search_stages.DirectionSearch, "start", no_directions)
    X, y = _training()
    models = [_ensemble().fit(rows, y) for rows in (X, _stretched(X, function))]
    for model in models:
        assert len(_transformed(model)) == len(model.members_)
    one, other = (model.predict(rows) for model, rows in zip(models, (X, _stretched(X, function)), strict=True))
    assert_array_equal(one, other)
    one, other = (
        model.predict(rows) for model, rows in zip(models, (_mixed(X), _stretched(_mixed(X), function)), strict=True)
    )
    assert_array_equal(one, other)
    assert_array_equal(models[0].weights_, models[1].weights_)
    assert np.std(one) > 0.5


def test_increasing_functions_change_little():
    """Test the whole search. Candidates without the transform depend on the units, so other members can be selected."""
    X, y = _training(seed=1)
    other = _stretched(X, INCREASING["log"])
    models = _ensemble().fit(X, y), _ensemble().fit(other, y)
    weight = [sum(w for w, one in zip(m.weights_, m.members_, strict=True) if one.column_transform_) for m in models]
    assert np.min(weight) > 0.5
    one, other = (
        model.predict(rows)
        for model, rows in zip(models, (_mixed(X), _stretched(_mixed(X), INCREASING["log"])), strict=True)
    )
    assert r2_score(one, other) > 0.95


# ------------------------------------------------------------------------------------ weights, outliers, settings


@pytest.mark.usefixtures("quick")
def test_whole_weights_are_repeated_rows():
    X, y = _training()
    w = np.random.default_rng(1).integers(0, 4, size=N)
    weighted = _ensemble().fit(X, y, sample_weight=w)
    repeated = _ensemble().fit(np.repeat(X, w, axis=0), np.repeat(y, w))
    assert len(_transformed(weighted)) == len(_transformed(repeated))
    assert_allclose(weighted.weights_, repeated.weights_, atol=1e-6)
    X_new = _data()[0][N:]
    assert_allclose(weighted.predict(X_new), repeated.predict(X_new), atol=1e-6)


@pytest.mark.usefixtures("quick")
def test_rows_of_weight_zero_do_not_count(by_arrays):
    """Test that rows of weight zero do not change the ranks."""
    X, y, X_new, expected = by_arrays
    junk = np.random.default_rng(0).normal(size=(50, 4)) * [1e6, 1e9, 1e3, 10.0]
    weight = np.append(np.ones(N), np.zeros(50))
    model = _ensemble().fit(np.vstack([X, junk]), np.append(y, np.full(50, 1e3)), sample_weight=weight)
    _transformed(model)
    assert_array_equal(model.predict(X_new), expected)


@pytest.mark.usefixtures("quick")
def test_weights_that_are_not_whole():
    X, y, f = _data()
    w = np.random.default_rng(2).uniform(0.5, 2.0, size=N)
    model = _ensemble().fit(X[:N], y[:N], sample_weight=w)
    for member in _transformed(model):
        assert_allclose(member.column_transform_(X), _naive_scores_with_weights(X[:N], X, w), atol=1e-9)
    assert r2_score(f[N:], model.predict(X[N:])) > 0.85


def _naive_scores_with_weights(training, X, w):
    """Return the transformed columns. The weights count in the moments of columns with few values only."""
    found, t = _naive_scores(training, X), training[:, 3]
    mean = np.average(t, weights=w)
    found[:, 3] = (X[:, 3] - mean) / np.sqrt(np.average((t - mean) ** 2, weights=w))
    return found


def test_outliers():
    """Test that outliers have little effect on the fit, and are reported."""
    X, y, f = _data(noise=0.05)
    bad = np.random.default_rng(0).choice(N, 6, replace=False)
    y[bad] += 20.0 * np.tile([-1.0, 1.0], 3)
    model = _ensemble().fit(X[:N], y[:N])
    _transformed(model)
    assert r2_score(f[N:], model.predict(X[N:])) > 0.85
    assert set(bad) <= set(model.diagnostics_.outliers)


@pytest.mark.usefixtures("quick")
def test_several_targets():
    X, y, f = _data()
    Y, F = (np.column_stack([one, -2.0 * one + X[:, 3]]) for one in (y, f))
    model = _ensemble().fit(X[:N], Y[:N])
    for member in _transformed(model):
        assert_allclose(
            member.predict(X[N:]), _naive_prediction(member, _naive_scores(X[:N], X[N:])), rtol=1e-6, atol=1e-6
        )
    assert model.predict(X[N:]).shape == (400, 2)
    assert r2_score(F[N:], model.predict(X[N:])) > 0.85


@pytest.mark.usefixtures("quick")
def test_without_an_intercept():
    X, y, f = _data()
    model = _ensemble(fit_intercept=False).fit(X[:N], y[:N])
    assert {member.intercept_ for member in _transformed(model)} == {0.0}
    assert r2_score(f[N:], model.predict(X[N:])) > 0.85


@pytest.mark.usefixtures("quick")
def test_weights_come_from_transformed_columns(monkeypatch):
    """Test that the leave-one-out predictions are those for rows that were transformed before.

    The weights of the members are computed from these predictions.
    """
    calls, original = [], search_and_refit._leave_one_out

    def spy(*given):
        calls.append((given, original(*given)))
        return calls[-1][1]

    monkeypatch.setattr(search_and_refit, "_leave_one_out", spy)
    _ensemble().fit(*_training())
    ((problem, rows, candidates), (weighed, left_out)), *others = calls
    assert others == []
    assert weighed == list(candidates)
    for ranked in (False, True):
        X, Y, w = rows.arrays
        some = [k for k, one in enumerate(candidates) if one.ranked is ranked]
        assert ranked is False or len(some) > 0
        before = InMemoryRows(problem.ranks(X) if ranked else rows.gather()[0], Y, w, y_offset=rows.y_offset)
        plain = [replace(candidates[k], ranked=False) for k in some]
        if plain:
            _, expected = original(replace(problem, rows=before, ranks=None), before, plain)
            for k, one in zip(some, expected.predictions, strict=True):
                assert_allclose(left_out.predictions[k], one, rtol=1e-6, atol=1e-6)
                assert np.std(one) > 0.1


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("n_jobs", [2, -1])
def test_the_number_of_jobs_does_not_matter(by_arrays, n_jobs):
    X, y, X_new, expected = by_arrays
    model = _ensemble(n_jobs=n_jobs).fit(X, y)
    _transformed(model)
    assert_allclose(model.predict(X_new), expected, atol=1e-9)


@pytest.mark.usefixtures("quick")
def test_fewer_centers():
    X, y, f = _data()
    model = _ensemble(refit=40).fit(X[:N], y[:N])
    for member in _transformed(model):
        assert member.centers_.shape == (40, 4)
        expected = _naive_prediction(member, member.column_transform_(X[N:]))
        assert_allclose(member.predict(X[N:]), expected, rtol=1e-6, atol=1e-6)
    assert r2_score(f[N:], model.predict(X[N:])) > 0.85


@pytest.mark.usefixtures("quick")
def test_a_constant_column_has_no_influence():
    X, y, f = _data()
    wide = np.column_stack([X[:, :2], np.full(len(X), 1.7e18), X[:, 2:]])
    model = _ensemble().fit(wide[:N], y[:N])
    _transformed(model)
    assert r2_score(f[N:], model.predict(wide[N:])) > 0.85
    assert model.feature_importances_[2] == 0.0
    other = wide.copy()
    other[:, 2] = 3.0
    assert_array_equal(model.predict(other), model.predict(wide))


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    "estimator",
    [
        _ensemble(scale_features=False),
        HyperKernelRidgeCV(kernel="auto", n_init=1, random_state=0),
        HyperKernelRidgeCV(n_init=1, random_state=0),
        HyperKernelRidge(2, n_init=1, max_iter=3, random_state=0),
    ],
    ids=["scale_features", "auto", "ridge_cv", "ridge"],
)
def test_fits_that_never_transform(estimator):
    X, y = _training()
    model = clone(estimator).fit(X, y)
    for one in getattr(model, "members_", [model]):
        assert one.column_transform_ is None
        assert "column_transform_" not in vars(one)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(("width", "transformed"), [(1.0, False), (3.0, True)])
def test_columns_that_normal_scores_hardly_change_are_not_transformed(width, transformed):
    """Test a uniform column and a normal column (or its exponential function).

    The squared correlation between a uniform column and its normal scores is about 0.95.
    """
    Z = np.random.default_rng(0).normal(size=(N, 2))
    X = np.column_stack([norm.cdf(Z[:, 0]) ** width, np.exp(3.0 * Z[:, 1]) if transformed else Z[:, 1]])
    y = np.sin(2.0 * Z[:, 1]) + 0.3 * Z[:, 0]
    model = _ensemble().fit(X, y)
    found = [member.column_transform_ for member in model.members_ if member.column_transform_ is not None]
    assert (len(found) > 0) == transformed
    assert all(one.ranked.tolist() == [0, 1] for one in found)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(("most", "transformed"), [(4, True), (3, False)])
def test_tables_with_many_columns_are_not_transformed(monkeypatch, most, transformed):
    """Test that no column is transformed if there are more than 500 columns (here more than 4 or 3)."""
    monkeypatch.setattr(_search_mixin, "_MOST_COLUMNS", most)
    model = _ensemble().fit(*_training())
    assert any(member.column_transform_ is not None for member in model.members_) == transformed


@pytest.mark.parametrize("seed", [0, 1])
def test_a_planted_model_of_normal_inputs_is_not_transformed(seed):
    data = make_mim_sines(N, 8, 2, random_state=seed)
    model = _ensemble().fit(data.X, data.y)
    assert len(model.members_) == 1
    assert model.members_[0].column_transform_ is None


# ------------------------------------------------------------------------------------ callbacks and checkpoints


@pytest.mark.usefixtures("quick")
def test_callbacks_predict_in_original_units(by_arrays):
    """Test the predictions of the best candidate so far, in the states that callbacks get."""
    X, y, X_new, expected = by_arrays
    scores = []

    def watch(state):
        if state.n_components is not None:
            scores.append(r2_score(expected, state.predict(X_new)))

    model = _ensemble(callbacks=[watch]).fit(X, y)
    assert_array_equal(model.predict(X_new), expected)
    assert scores[-1] > 0.9
    assert scores[0] < scores[-1]


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("phase", [Phase.FINALISTS, Phase.WEIGHTS])
def test_a_callback_stops_the_search(by_arrays, phase):
    """Test that the member is the best candidate so far, which is transformed after the first round."""
    X, y, X_new, expected = by_arrays
    model = _ensemble(callbacks=[lambda state: state.phase is phase]).fit(X, y)
    (member,) = _transformed(model)
    assert model.diagnostics_.stopped == "callback"
    assert_allclose(member.predict(X_new), _naive_prediction(member, _naive_scores(X, X_new)), rtol=1e-6, atol=1e-6)
    assert r2_score(expected, model.predict(X_new)) > 0.7


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("where", ["_largest_first", "final_fit"])
def test_an_interrupted_fit_keeps_the_best_model_and_resumes(by_arrays, monkeypatch, tmp_path, where):
    X, y, X_new, expected = by_arrays
    model = _ensemble(checkpoint=tmp_path / "fit.checkpoint")
    with monkeypatch.context() as patch:
        patch.setattr(search_and_refit, where, breaking(getattr(search_and_refit, where), KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt, match="the estimator holds the best model so far"):
            model.fit(X, y)
    (member,) = _transformed(model)
    assert member.result_.reason == "interrupted"
    assert r2_score(expected, model.predict(X_new)) > 0.7
    assert_allclose(member.predict(X_new), _naive_prediction(member, _naive_scores(X, X_new)), rtol=1e-6, atol=1e-6)
    resumed, whole = clone(model).fit(X, y), _ensemble().fit(X, y)
    assert_array_equal(resumed.predict(X_new), expected)
    assert_array_equal(resumed.weights_, whole.weights_)
    for one, other in zip(resumed.members_, whole.members_, strict=True):
        assert_array_equal(one.map_, other.map_)
        assert ("column_transform_" in vars(one)) == ("column_transform_" in vars(other))
        if one.column_transform_ is not None:
            assert_same(one.column_transform_, other.column_transform_)


@pytest.mark.usefixtures("quick")
def test_a_finished_checkpoint_is_replayed(by_arrays, monkeypatch, tmp_path):
    X, y, X_new, expected = by_arrays
    model = _ensemble(checkpoint=tmp_path / "fit.checkpoint").fit(X, y)
    assert_array_equal(model.predict(X_new), expected)
    monkeypatch.setattr("hkrr.solvers.lbfgs.LBFGS.minimize", breaking(None, AssertionError("a run is made again")))
    again = clone(model).fit(X, y)
    _transformed(again)
    assert_array_equal(again.predict(X_new), expected)
    assert_array_equal(again.interval_scores_, model.interval_scores_)


@pytest.mark.usefixtures("quick")
def test_a_second_fit_forgets_the_first_one(by_arrays):
    X, y, X_new, expected = by_arrays
    rng = np.random.default_rng(0)
    model = _ensemble().fit(X, y)
    normal = rng.normal(size=(N, 2))
    model.fit(normal, np.sin(normal[:, 0]))
    assert all(member.column_transform_ is None for member in model.members_)
    model.fit(X, y)
    _transformed(model)
    assert_array_equal(model.predict(X_new), expected)


# ------------------------------------------------------------------------------------ classes


def _classes(K):
    X, _, f = _data()
    return X, np.array(["a", "b", "c"])[np.digitize(f, np.quantile(f, np.linspace(0.0, 1.0, K + 1)[1:-1]))]


@pytest.fixture(scope="module", params=[2, 3], ids=["2 classes", "3 classes"])
def classified(request):
    """Return a classifier without refinement, and rows that were not used in its fit."""
    X, y = _classes(request.param)
    with pytest.MonkeyPatch.context() as patch:
        make_quick(patch)
        patch.setattr(classifier, "refine", lambda task: None)
        model = HyperKernelClassifier(n_init=1, n_jobs=1, random_state=0).fit(X[:N], y[:N])
    _transformed(model)
    return model, X[N:], y[N:]


def test_probabilities_of_classes(classified):
    model, X, y = classified
    p = model.predict_proba(X)
    assert p.shape == (400, len(model.classes_))
    assert_allclose(np.sum(p, axis=1), 1.0, rtol=1e-12)
    assert np.all((p >= 0.0) & (p <= 1.0))
    assert model.score(X, y) > 0.7
    # The documented formula: the softmax of sum_m w_m log(softplus(5 f_m)) + b, with predictions f_m of the members.
    scores = sum(
        w * np.log(np.log1p(np.exp(5.0 * member.predict(X))))
        for w, member in zip(model.weights_, model.members_, strict=True)
    )
    expected = np.exp(scores + model.offsets_)
    assert_allclose(p, expected / np.sum(expected, axis=1, keepdims=True), rtol=1e-6, atol=1e-8)


def test_members_of_classifiers(classified):
    model, X, _ = classified
    training = _classes(2)[0][:N]
    for member in _transformed(model):
        expected = _naive_prediction(member, _naive_scores(training, X))
        assert_allclose(member.predict(X), expected, rtol=1e-6, atol=1e-6)
    assert_array_equal(model.transform(X), model.members_[0].transform(X))
    assert np.sum(model.feature_importances_) == pytest.approx(1.0)
    assert "normal scores" in str(model.summary())


def test_classifiers_are_saved(classified, tmp_path):
    model, X, _ = classified
    again = through_a_file(model, tmp_path)
    assert_same(again, model)
    assert_array_equal(again.predict_proba(X), model.predict_proba(X), strict=True)
    assert_array_equal(again.transform(X), model.transform(X), strict=True)
    pickled = pickle.loads(pickle.dumps(model))
    assert_array_equal(pickled.predict_proba(X), model.predict_proba(X), strict=True)


@pytest.mark.parametrize("K", [2, 3])
def test_a_refined_classifier_keeps_the_transform(tmp_path, monkeypatch, K):
    """Test a refined map of a direction of normal scores. The classes depend on a direction of lognormal columns.

    The refinement starts from the member with normal scores, so the map is refined on transformed columns.
    """
    rng = np.random.default_rng(3)
    Z = rng.normal(size=(N + 400, 5))
    X, f = np.exp(2.5 * Z), Z @ np.array([1.0, 1.0, -1.0, 0.0, 0.0]) + 0.3 * rng.normal(size=N + 400)
    y = np.digitize(f, np.quantile(f, np.linspace(0.0, 1.0, K + 1)[1:-1]))
    starts, refine, keep = [], classifier.refine, kernel_race.Race._keep

    def few_directions(self, ends):
        """Keep the candidates with few directions of transformed columns."""
        keep(self, [one for one in ends if one.ranked and one.B.ndim == 2 and len(one.B) < 5])

    def preferred(task):
        """Refine the map, and let the classifier use the result even if another model is better."""
        starts.append((task.regressor, task.X))
        model, found = refine(task)
        return model, replace(found, price=-np.inf)

    make_quick(monkeypatch)
    monkeypatch.setattr(kernel_race.Race, "_keep", few_directions)
    monkeypatch.setattr(classifier, "refine", preferred)
    model = HyperKernelClassifier(n_init=1, n_jobs=1, random_state=0).fit(X[:N], y[:N])
    assert model.refined_
    (member,) = model.members_
    start, T = starts[0]
    assert start.column_transform_ is member.column_transform_ is not None
    assert_allclose(T, _naive_scores(X[:N], X[:N]), atol=1e-10)
    p = model.predict_proba(X[N:])
    assert_allclose(np.sum(p, axis=1), 1.0, rtol=1e-12)
    assert model.score(X[N:], y[N:]) > 0.8
    assert member.n_components_ < 5
    assert not member.truncate
    P, C = ((rows - member.x_offset_) @ member.components_.T for rows in (_naive_scores(X[:N], X[N:]), member.centers_))
    expected = member.kernel_(P, C) @ member.dual_coef_ + member.intercept_
    assert_allclose(member.predict(X[N:]), expected, rtol=1e-6, atol=1e-6)
    again = through_a_file(model, tmp_path)
    assert_array_equal(again.predict_proba(X[N:]), p, strict=True)


# ------------------------------------------------------------------------------------ other cases


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("D", [2, 10])
def test_transformed_directions_are_cross_fitted(monkeypatch, D):
    """Test that the cross-fitted predictions are those for rows that were transformed before.

    With ten columns there are too few rows for a square map, so the directions are searched for again.
    """
    problems, original = [], search_and_refit._weigh
    monkeypatch.setattr(search_and_refit, "_weigh", lambda *given: problems.append(given[0]) or original(*given))
    Z = np.random.default_rng(0).normal(size=(N, D))
    _ensemble().fit(np.exp(2.0 * Z), np.sin(Z[:, 0] + Z[:, 1]))
    (problem,) = problems
    X, Y, w = problem.rows.arrays
    before = InMemoryRows(problem.ranks(X), Y, w, y_offset=problem.rows.y_offset)
    candidate = Candidate(
        Origin.DIRECTIONS, Gaussian(gamma=1.0), 0.5 * np.eye(D)[:1], 1.0, n_free_columns=D, ranked=True
    )
    (found,), (expected,) = (
        HeldOutCheck(replace(problem, rows=rows, ranks=ranks, rng=np.random.RandomState(0))).out_of_fold([one])
        for rows, ranks, one in (
            (problem.rows, problem.ranks, candidate),
            (before, None, replace(candidate, ranked=False)),
        )
    )
    assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    assert np.std(found) > 0.1


def test_a_direction_of_many_lognormal_columns():
    rng = np.random.default_rng(1)
    Z = rng.normal(size=(N + 500, 10))
    X, y = np.exp(2.0 * Z), np.sin(0.75 * np.sum(Z[:, :4], axis=1)) + 0.05 * rng.normal(size=N + 500)
    model = _ensemble().fit(X[:N], y[:N])
    assert model.score(X[N:], y[N:]) > 0.8


@pytest.mark.usefixtures("small_samples")
def test_fits_to_large_tables_with_copies():
    """Test a fit whose transform is learned from a sample of the rows, some of which are copies of other rows."""
    X, y, f = _data()
    again = np.append(np.arange(N), np.arange(60))
    model = _ensemble(refit=60).fit(X[again], y[again] + 7.0)
    _transformed(model)
    assert r2_score(f[N:] + 7.0, model.predict(X[N:])) > 0.8


@pytest.mark.usefixtures("quick")
def test_a_column_that_varies_in_its_last_digits_has_no_influence():
    """Test that a column that `Moments` treats as constant, because of its rounding errors, is not transformed.

    The fit is the same as with a column that is constant. The first column is distinct, so the rows are sorted by it.
    """
    rng = np.random.default_rng(1)
    steps, z = rng.integers(-10, 11, size=N + 300), rng.normal(size=N + 300)
    y = np.where(steps > 0, 1.0, -1.0) * np.sin(z) + np.sin(2.0 * z) + 0.05 * rng.normal(size=N + 300)
    X = np.column_stack([np.exp(3.0 * z), 1e15 + 0.125 * steps])
    constant = np.column_stack([X[:, 0], np.full(len(X), 1e15)])
    assert len(np.unique(X[:N, 1])) > 10
    model = _ensemble().fit(constant[:N], y[:N])
    _transformed(model)
    assert_allclose(_ensemble().fit(X[:N], y[:N]).predict(X), model.predict(constant), rtol=1e-9)
