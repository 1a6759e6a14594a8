"""ONNX graphs, run by onnxruntime, predict what the models predict."""

import sys

import numpy as np
import onnxruntime
import pytest
from sklearn.exceptions import NotFittedError

import hkrr
from hkrr import baselines, kernels
from saved_models import CLASSES, fitted, new_rows, rows, unfitted

KERNELS = {
    **kernels.KERNELS,
    "cubic": kernels.RationalQuadratic(alpha=2.5),
    "anova52": kernels.Anova(nu=2.5),
    "product12": kernels.ProductMatern(nu=0.5),
    "quartic": kernels.Polynomial(degree=4, coef0=0.0),
}


def run(model, X):
    """Return what onnxruntime makes of the model at these rows, of float32."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    graph = hkrr.to_onnx(model).SerializeToString()
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    assert [one.name for one in session.get_inputs()] == ["X"]
    (found,) = session.run(None, {"X": X})
    return found


def assert_agrees(model, X, scale):
    X = X.astype(np.float32)
    expected = model.predict(X)
    found = run(model, X)
    assert found.dtype == np.float32
    assert found.shape == expected.shape
    assert np.max(np.abs(found - expected)) <= 1e-5 * scale
    assert np.ptp(expected) > 0.1 * scale  # a model that says something


# Polynomials at a lambda of 1e-8 have terms of 1e13 here: what they add up to depends on the order of the centers.
CASES = [(name, reg_lambda) for name in KERNELS for reg_lambda in (1e-2, 1e-8)]
CASES = [case for case in CASES if case not in [("polynomial", 1e-8), ("quartic", 1e-8)]]


@pytest.mark.parametrize(("kernel", "reg_lambda"), CASES)
def test_every_kernel(kernel, reg_lambda):
    """At the smaller lambda the coefficients are large and cancel; rows of the fit are among those predicted."""
    X, y = rows()
    X, units = X.astype(np.float32), np.array([1.0, 30.0, 0.01], dtype=np.float32)
    parameters = {"kernel": KERNELS[kernel], "max_iter": 2, "n_init": 1, "random_state": 0}
    model = hkrr.HyperKernelRidge(2, reg_lambda=reg_lambda, **parameters).fit(X * units + 100 * units, y)
    found = np.concatenate([X, new_rows()]).astype(np.float32) * units + 100 * units
    assert_agrees(model, found, np.std(y))


@pytest.mark.parametrize("name", ["gaussian", "product_matern32"])
def test_several_targets(name):
    X, y = rows()
    Y = np.column_stack([y, 100 * X[:, 2]])
    model = hkrr.HyperKernelRidge(2, kernel=name, max_iter=2, n_init=1, random_state=0).fit(X, Y)
    assert_agrees(model, new_rows(), np.std(Y))
    assert run(model, new_rows()[:1].astype(np.float32)).shape == (1, 2)


@pytest.mark.parametrize("n_targets", [None, 1, 2])
@pytest.mark.parametrize("truncate", [True, False])
def test_truncation(n_targets, truncate):
    X, y = rows()
    Y = y if n_targets is None else np.column_stack([y, -3 * y])[:, :n_targets]
    model = unfitted("HyperKernelRidgeCV").set_params(kernel="polynomial", truncate=truncate).fit(X, Y)
    far = 30 * new_rows()
    beyond = np.abs(model.predict(far)) >= model.truncation_
    assert beyond.any()
    assert not beyond.all()
    assert (np.abs(model.predict(far)) <= model.truncation_).all() == truncate
    assert_agrees(model, far, np.max(np.abs(model.predict(far))))


@pytest.mark.parametrize("name", ["KernelRidgeCV", "RBFNetwork", "HyperRBFNetwork", "RecursiveFeatureMachine", "grid"])
def test_other_sums_of_kernels(name):
    model = fitted(name)
    assert_agrees(model, new_rows(), np.ptp(model.predict(new_rows())))


def test_what_cannot_be_a_graph_is_refused():
    sums = {"HyperKernelRidge", "HyperKernelRidgeCV", "KernelRidgeCV", "RBFNetwork", "HyperRBFNetwork"}
    for name in set(CLASSES) - sums - {"RecursiveFeatureMachine"}:
        with pytest.raises(TypeError, match=f"got a {name}"):
            hkrr.to_onnx(fitted(name))
    with pytest.raises(NotFittedError):
        hkrr.to_onnx(hkrr.HyperKernelRidge())

    class Own(kernels.Gaussian):
        pass

    model = baselines.KernelRidgeCV(kernel=Own(), gamma="median").fit(*rows())
    with pytest.raises(TypeError, match="got a Own"):
        hkrr.to_onnx(model)


def test_without_onnx_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match=r"pip install 'hkrr\[onnx\]'"):
        hkrr.to_onnx(fitted("HyperKernelRidge"))
