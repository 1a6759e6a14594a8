"""Models with a diagonal or identity map, stored as a vector, compared with the same models with a dense matrix."""

import os
import tracemalloc

import dask.array as da
import matplotlib.pyplot as plt
import numpy as np
import onnxruntime
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

import hkrr
from hkrr import HyperKernelClassifier, HyperKernelRidgeCV
from hkrr._maps import Diagonal, Scaled, canonical_map
from hkrr._storage.safetensors_format import pack
from hkrr.estimators.fitted import conformal
from hkrr.estimators.fitted.diagnostics import diagnose_search, fit_warnings_silenced
from hkrr.estimators.fitted.fitted_attributes import kernel_expansion
from hkrr.estimators.fitted.importance import average_gradient_outer_product, direction_effects
from hkrr.estimators.search.candidates import Candidate, Origin, unchanged
from hkrr.estimators.search.final_fit import final_fit
from hkrr.kernels import get_kernel
from hkrr.plotting import LinkDisplay, SubspaceDisplay
from hkrr.reporting import gather
from hkrr.rows.standardize import standardize
from hkrr.rows.torch_device import TorchRows
from hkrr.solvers.driver import StopReason
from hkrr.tables import describe, directions
from support.hostile_files import refused
from support.models_to_save import assert_same, saved, through_a_file
from support.mutated_model_files import parts
from support.quick_search import make_quick

N, D = 50, 5
# Maps, given by the scales of the D columns in standardized coordinates. The last column of the data is constant.
SHAPES = {"diagonal": np.array([0.3, 0.9, 0.05, 0.6, 0.4]), "identity": np.full(D, 0.4)}
CASES = [
    (shape, kernel, n_centers, n_targets)
    for shape in SHAPES
    for kernel, n_centers, n_targets in [
        ("gaussian", N, 1),
        ("gaussian", 20, 2),
        ("product_matern32", N, 2),
        ("polynomial", 20, 1),
    ]
]
every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
every_shape = pytest.mark.parametrize("shape", SHAPES)


def data(n=N, n_targets=1, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, D)) * [1.0, 10.0, 0.1, 1.0, 1.0] + [0.0, 5.0, 0.0, 0.0, 2.0]
    X[:, 3], X[:, 4] = np.round(X[:, 3]), 2.0  # a column with few values, and a constant column
    Y = np.column_stack([np.sin(X[:, 0] + X[:, 1] / 10.0), X[:, 3]])[:, :n_targets] + 0.1 * rng.normal(size=(n, 1))
    return X, Y[:, 0] if n_targets == 1 else Y


def fit(case, *, dense, **parameters):
    """Fit the coefficients for a given map, as the search does for the map that it selects.

    The map is stored as a D x D matrix if `dense` is True, and as a vector otherwise.
    """
    shape, kernel, n_centers, n_targets = case
    X, y = data(n_targets=n_targets)
    model = HyperKernelRidgeCV(**parameters)
    loaded = model._load(X, y, None)
    rows, scaling = standardize(loaded.rows, scale_features=model.scale_features, fit_intercept=model.fit_intercept)
    B = np.diag(SHAPES[shape]) if dense else SHAPES[shape]
    fixed = Diagonal() if shape == "diagonal" else Scaled(np.ones(D))
    winner = Candidate(Origin.PLAIN, get_kernel(kernel).with_gamma(1.0), B, 0.5, 0.0, shape=fixed)
    found = final_fit(
        rows, winner, unchanged(winner, 0.01, StopReason.STALLED), n_centers, np.random.RandomState(0), True
    )
    model._store(found.result, winner.kernel, found.objective.centers, scaling, one_target=loaded.one_target)
    model._store_uncertainty(found.uncertainty)
    model.n_components_, model.best_score_, model.map_shape_ = D, 0.0, shape
    options = {"given": None, "time_limited": False, "truncation": model.truncation_, "solve": found.solve}
    model._set_diagnostics(
        diagnose_search(rows, found.objective, found.result, model._untruncated, winner, [winner], **options)
    )
    return model


def twins(case, **parameters):
    """Return the model whose map is stored as a vector, and the same model with the map as a D x D matrix."""
    return tuple(fit(case, dense=dense, **parameters) for dense in (False, True))


def same(found, expected, rtol=1e-7):
    assert_allclose(found, expected, rtol=rtol, atol=rtol * np.max(np.abs(expected), initial=0.0))


def row_order(dense):
    """Return, for each column, the row of the dense map that contains its scale, or the last row if its scale is 0."""
    return np.array([np.argmax(np.abs(column)) if np.any(column) else D - 1 for column in dense.components_.T])


@every_case
def test_the_attributes_are_those_of_the_matrix(case):
    model, dense = twins(case)
    assert model.map_.shape == model.result_.B.shape == (D,)
    assert dense.map_.shape == (D, D)
    assert_array_equal(model.components_, np.diag(model.map_))
    assert np.max(model.map_) == 1.0
    assert model.map_[-1] == 0.0
    same(model.gamma_, dense.gamma_)
    same(model.components_.T @ model.components_, dense.components_.T @ dense.components_)
    same(np.sort(model.singular_values_)[::-1], dense.singular_values_)
    same(model.singular_values_, np.where(np.arange(D) < D - 1, SHAPES[case[0]], 0.0) / SHAPES[case[0]][:-1].max())
    assert_array_equal(model.centers_, dense.centers_)


@every_case
def test_the_predictions_are_those_of_the_matrix(case):
    model, dense = twins(case)
    X = data(30, seed=1)[0]
    same(model.predict(X), dense.predict(X))
    same(model.transform(X), X @ model.components_.T)
    P, C = ((Z - model.x_offset_) @ np.diag(model.map_) for Z in (X, model.centers_))
    same(model._untruncated(model._array_rows(X, X[:, :0], None, None)), kernel_expansion(model).at(X))
    same(kernel_expansion(model).at(X), model.kernel_(P, C) @ model.dual_coef_ + model.intercept_)
    assert model.transform(X.astype(np.float32)).dtype == np.float32
    assert list(model.get_feature_names_out()) == [f"hyperkernelridgecv{j}" for j in range(D)]


@every_case
def test_the_uncertainty_is_that_of_the_matrix(case):
    model, dense = twins(case)
    X = data(30, seed=1)[0]
    same(model.interval_scores_, dense.interval_scores_, 1e-5)
    for found, expected in zip(model.predict(X, return_std=True), dense.predict(X, return_std=True), strict=True):
        same(found, expected, 1e-5)
    for found, expected in zip(model.predict_interval(X), dense.predict_interval(X), strict=True):
        same(found, expected, 1e-5)


@every_case
def test_the_importances_and_reports_are_those_of_the_matrix(case):
    model, dense = twins(case)
    order = row_order(dense)
    X, y = data(n_targets=case[3], seed=1)
    same(model.feature_importances_, dense.feature_importances_, 1e-6)
    same(average_gradient_outer_product(model, X), average_gradient_outer_product(dense, X), 1e-6)
    spread = np.arange(1.0, D + 1.0)
    same(direction_effects(model, spread)[:-1], direction_effects(dense, spread)[order][:-1], 1e-6)
    for (name, value), (other_name, other_value) in zip(model.summary().facts, dense.summary().facts, strict=True):
        assert name == other_name
        assert name == "Effective dimension" or value == other_value
    assert model.summary().directions == dense.summary().directions
    assert {each.columns for each in directions(model)} == {each.columns for each in directions(dense)}
    for each, other in zip(directions(model), directions(dense), strict=True):
        assert (each.loadings, each.n_more) == ((1.0,), 0)
        assert each.weight == pytest.approx(other.weight)
    names = [entry["columns"] for entry in describe(model)["directions"]]
    assert sorted(names) == [[f"x{j}"] for j in range(D - 1)]
    found, expected = (gather(one, X, y, compare=False) for one in (model, dense))
    shares = {each.loadings[0].column: each.share for each in expected.directions.directions if each.loadings}
    for each in found.directions.directions:
        column = f"x{each.number - 1}"
        assert [loading.column for loading in each.loadings] == ([] if column == "x4" else [column])
        assert each.share == pytest.approx(shares.get(column, 0.0), rel=1e-6, abs=1e-9)
    for each in found.link.curves:
        (twin,) = (one for one in expected.link.curves if order[each.direction - 1] + 1 == one.direction)
        same(each.value, twin.value, 1e-3)


@every_shape
def test_plots_are_those_of_the_matrix(shape):
    model, dense = twins((shape, "gaussian", N, 1))
    X, y = data(seed=1)
    found, expected = (SubspaceDisplay.from_estimator(one) for one in (model, dense))
    assert found.loadings.shape == (D,)
    assert found.ax_.get_xlabel() == expected.ax_.get_xlabel() == "weight of the standardized column"
    lengths = [[bar.get_width() for bar in display.bars_[0]] for display in (found, expected)]
    same(*lengths)
    order = row_order(dense)
    found = LinkDisplay.from_estimator(model, X, y, directions=(0, 1))
    expected = LinkDisplay.from_estimator(dense, X, y, directions=tuple(order[:2].tolist()))
    assert found.labels == expected.labels == ("x0", "x1")
    assert found.said == expected.said == "3 other columns fixed at their medians"
    same(found.values, expected.values)
    same(found.points, expected.points)
    labels = [LinkDisplay.from_estimator(one, X, y).labels for one in (model, dense)]
    assert set(labels[0]) == set(labels[1])
    plt.close("all")


@every_shape
def test_every_kind_of_input(shape, tmp_path):
    model = fit((shape, "gaussian", 20, 1), dense=False)
    X = data(30, seed=1)[0]
    np.save(tmp_path / "X.npy", X)
    inputs = {"tensor": torch.as_tensor(X), "file": tmp_path / "X.npy", "dask": da.from_array(X, chunks=(7, D))}
    for kind, given in inputs.items():
        for method in ("predict", "transform"):
            found = getattr(model, method)(given)
            same(np.asarray(found.compute() if kind == "dask" else found), getattr(model, method)(X), 1e-12)
    on_device = model.set_params(device="cpu")
    same(on_device.predict(X, return_std=True)[1], model.set_params(device=None).predict(X, return_std=True)[1])


@pytest.mark.parametrize("n_centers", [N, 20])
def test_a_final_fit_on_a_device(n_centers):
    case = ("diagonal", "gaussian", n_centers, 1)
    model, expected = fit(case, dense=False, device="cpu"), fit(case, dense=False)
    assert isinstance(model._array_rows(np.ones((2, D)), np.ones(2), None, "cpu"), TorchRows)
    same(model.dual_coef_, expected.dual_coef_, 1e-6)
    same(model.interval_scores_, expected.interval_scores_, 1e-5)


@every_shape
def test_saving_and_onnx(shape, tmp_path):
    model, dense = twins((shape, "gaussian", 20, 1))
    again = through_a_file(model, tmp_path)
    assert_same(again, model)
    assert again.map_.shape == again.result_.B.shape == (D,)
    X = data(30, seed=1)[0].astype(np.float32)
    assert_array_equal(again.predict(X), model.predict(X))
    graph = hkrr.to_onnx(model).SerializeToString()
    (found,) = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"]).run(None, {"X": X})
    same(found, dense.predict(X), 1e-4)


def test_files_with_the_former_name_of_the_map(tmp_path):
    """Test that files in which the map is a matrix named ``components_`` load, unless they also contain ``map_``."""
    dense = fit(("diagonal", "gaussian", 20, 1), dense=True)
    header, arrays = parts(saved(dense, tmp_path))
    arrays["components_"] = arrays.pop("map_")
    header["attributes"].pop("map_")
    header["attributes"]["components_"] = {"tensor": "components_"}
    (tmp_path / "former").write_bytes(pack(header, arrays))
    assert_same(hkrr.load(tmp_path / "former"), dense)
    header["attributes"]["map_"] = {"tensor": "map_"}
    refused(pack(header, {**arrays, "map_": arrays["components_"]}), "'components_' is not one of the known attributes")


def test_damaged_vectors_are_refused(tmp_path):
    header, arrays = parts(saved(fit(("diagonal", "gaussian", 20, 1), dense=False), tmp_path))
    for key in ("map_", "result_.B"):
        b = arrays[key]
        for other in (
            b[:-1],
            b[:0],
            b[None],
            np.diag(b),
            np.diag(b)[:2],
            b * np.nan,
            b.astype(np.int64),
            np.float64(1),
        ):
            refused(pack(header, {**arrays, key: np.asarray(other)}))
    for other in (arrays["map_"][:-1], arrays["map_"][None]):
        refused(pack(header, {**arrays, "map_": other, "result_.B": other}))


def test_the_canonical_form_of_a_vector():
    kernel, b, x_scale = get_kernel("gaussian").with_gamma(0.5), np.array([0.2, -3.0, 0.0]), np.array([0.1, 10.0, 1.0])
    found, with_gamma, s = canonical_map(b, kernel, x_scale)
    assert_allclose(found, [1.0, -0.15, 0.0])
    assert with_gamma.scale == pytest.approx(0.5 * 2.0**2)
    assert_allclose(s, [0.2 / 3.0, 1.0, 0.0])
    zero, same_kernel, _ = canonical_map(np.zeros(3), kernel, None)
    assert_array_equal(zero, np.zeros(3))
    assert same_kernel is kernel


def test_scores_of_many_scales_use_a_random_projection(monkeypatch):
    """Test that the median interval score changes by at most 30% if the tangents are projected to fewer dimensions.

    Tangents are the derivatives of the function with respect to the scales of the map.
    """
    case = ("diagonal", "gaussian", N, 1)
    expected = fit(case, dense=False).interval_scores_
    monkeypatch.setattr(conformal, "MAX_TANGENTS", 4)
    found = fit(case, dense=False).interval_scores_
    assert not np.array_equal(found, expected)
    assert_allclose(np.median(found), np.median(expected), rtol=0.3)


def test_a_classifier_on_an_identity_map(tmp_path, monkeypatch):
    make_quick(monkeypatch)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    y = np.sum(X**2, axis=1) > 2.4
    model = HyperKernelClassifier(n_init=1, n_jobs=1, random_state=0).fit(X, y)
    assert model.map_shape_ == "identity"
    assert model.members_[0].map_.shape == (3,)
    assert model.components_.shape == (model.n_components_, 3) == (3, 3)
    assert model.score(X, y) > 0.9
    assert_allclose(model.transform(X), X @ model.components_.T)
    again = through_a_file(model, tmp_path)
    assert_same(again, model)
    assert again.members_[0].map_.shape == (3,)
    assert_array_equal(again.predict_proba(X), model.predict_proba(X))


def test_many_columns_take_little_memory(tmp_path):
    """Test that no D x D array is created, from the fit to the report, if plain kernel ridge regression is selected."""
    n, D = 60, 4000
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, D))
    y = X[:, 0] + 0.1 * rng.normal(size=n)
    square = 8 * D * D

    def peak(call):
        tracemalloc.start()
        try:
            result = call()
            return result, tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    def use(model):
        model.predict(X, return_std=True)
        model.predict_interval(X)
        model.transform(X)
        str(model.summary())
        str(model.diagnostics_)
        describe(model)
        hkrr.save(model, tmp_path / "model")
        hkrr.load(tmp_path / "model").predict(X)
        hkrr.to_onnx(model)
        SubspaceDisplay.from_estimator(model)
        plt.close("all")

    search = HyperKernelRidgeCV(time_limit=2, n_init=1, random_state=0)
    with fit_warnings_silenced():
        model, in_fit = peak(lambda: search.fit(X, y))
    assert model.map_shape_ == "identity"
    assert in_fit < square / 2
    assert peak(lambda: use(model))[1] < square / 2
    assert os.path.getsize(tmp_path / "model") < 1.2 * X.nbytes
