"""Test that predictions of exported ONNX graphs, computed by onnxruntime, agree with those of the models."""

import sys
from dataclasses import dataclass

import numpy as np
import onnxruntime
import pytest
from sklearn.exceptions import NotFittedError

import hkrr
from hkrr import baselines, kernels
from support.models_to_save import CLASSES, copied, fitted, new_rows, rows, unfitted

KERNELS = {
    **kernels.KERNELS,
    "cubic": kernels.RationalQuadratic(alpha=2.5),
    "anova52": kernels.Anova(nu=2.5),
    "product12": kernels.ProductMatern(nu=0.5),
    "quartic": kernels.Polynomial(degree=4, coef0=0.0),
}


def run(model, X):
    """Return the float32 predictions of the exported model for the rows X, computed by onnxruntime."""
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
    assert np.ptp(expected) > 0.1 * scale  # the predictions are not constant


# For polynomial kernels and lambda = 1e-8, the terms of a prediction reach 1e13, so rounding errors of their sum are
# large. These kernels are tested with a larger lambda.
POLYNOMIALS = ("polynomial", "quartic", "linear")
CASES = [
    *((name, 1e-2 if name in POLYNOMIALS else 1e-8) for name in KERNELS),
    *(pytest.param(name, 1e-2, marks=pytest.mark.thorough) for name in KERNELS if name not in POLYNOMIALS),
]


@pytest.mark.parametrize(("kernel", "reg_lambda"), CASES)
def test_every_kernel(kernel, reg_lambda):
    """Test that the predictions of exported models are accurate for every kernel.

    At lambda = 1e-8 the coefficients are large and the terms of a prediction almost cancel. The rows include training
    rows, whose distance to a center is zero.
    """
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


@pytest.mark.parametrize("n_targets", [None, 2])
def test_ensembles_clip_each_member(n_targets):
    X, y = rows()
    Y = y + 3 if n_targets is None else np.column_stack([y + 3, -3 * y])
    model, kernel_names = copied("HyperKernelEnsemble"), ("polynomial", "laplace")
    model.members_ = [unfitted("HyperKernelRidgeCV").set_params(kernel=name).fit(X, Y) for name in kernel_names]
    model.intercept_ = model.members_[0].intercept_
    assert abs(np.sum(model.weights_) - 1) > 0.05  # so that the intercept has an influence
    far = 30 * new_rows()
    clipped = np.abs(model.members_[0].predict(far)) == model.members_[0].truncation_
    assert clipped.any()
    assert not clipped.all()
    for X in (far, new_rows()):
        assert_agrees(model, X, np.ptp(model.predict(X)))


@pytest.mark.parametrize("name", ["KernelRidgeCV", "RBFNetwork", "HyperRBFNetwork", "RecursiveFeatureMachine", "grid"])
def test_other_kernel_expansions(name):
    model = fitted(name)
    assert_agrees(model, new_rows(), np.ptp(model.predict(new_rows())))


def test_models_that_cannot_be_converted_are_refused():
    sums = {"HyperKernelRidge", "HyperKernelRidgeCV", "HyperKernelEnsemble", "RecursiveFeatureMachine"}
    for name in set(CLASSES) - sums - {"KernelRidgeCV", "RBFNetwork", "HyperRBFNetwork"}:
        with pytest.raises(TypeError, match=f"got a {name}"):
            hkrr.to_onnx(fitted(name))
    with pytest.raises(NotFittedError):
        hkrr.to_onnx(hkrr.HyperKernelRidge())

    class Own(kernels.Gaussian):
        pass

    model = baselines.KernelRidgeCV(kernel=Own(), gamma="median").fit(*rows())
    with pytest.raises(TypeError, match="got a Own"):
        hkrr.to_onnx(model)


def test_a_registered_kernel_without_a_formula_is_refused(monkeypatch):
    @dataclass(frozen=True, kw_only=True)
    class Cauchy(kernels.Radial):
        def value_and_decay(self, u):
            phi = 1.0 / (1.0 + u)
            return phi, phi * phi

    monkeypatch.setitem(kernels.KERNELS, "cauchy", Cauchy())
    X, y = rows()
    model = hkrr.HyperKernelRidge(1, kernel="cauchy", n_centers=10, max_iter=2, random_state=0).fit(X, y)
    with pytest.raises(TypeError, match="no formula for the kernel Cauchy"):
        hkrr.to_onnx(model)


def test_without_onnx_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match=r"pip install 'hkrr\[onnx\]'"):
        hkrr.to_onnx(fitted("HyperKernelRidge"))
