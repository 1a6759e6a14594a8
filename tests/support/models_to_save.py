"""Small fitted models of every class that can be saved, and functions that save and compare models."""

import json
import pickle
import warnings
from functools import cache

import numpy as np
from numpy.testing import assert_array_equal
from safetensors import safe_open

import hkrr
from hkrr import baselines

CLASSES = [
    "HyperKernelRidge",
    "HyperKernelRidgeCV",
    "HyperKernelEnsemble",
    "HyperKernelClassifier",
    *baselines.__all__,
]


def rows(n=30, n_features=3, seed=0):
    """Return training data X and y."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, n_features))
    return X, np.sin(2 * X[:, 0]) + 0.1 * X[:, 1]


def new_rows():
    """Return rows to predict. They include training rows, whose distance to a center is zero."""
    return np.concatenate([rows()[0][:10], rows(20, seed=1)[0]])


def _quick(cls, **parameters):
    few = {"max_iter": 3, "n_iter": 2, "n_units": 5, "n_particles": 3, "n_init": 1, "random_state": 0}
    return cls(**{**{name: value for name, value in few.items() if name in cls().get_params()}, **parameters})


def unfitted(name):
    """Return an unfitted estimator. `name` is the name of its class, or of one of the variants below."""
    if name == "HyperKernelRidge":
        return _quick(hkrr.HyperKernelRidge, n_components=2)
    if name == "HyperKernelRidgeCV":
        return _quick(hkrr.HyperKernelRidgeCV, n_components=1)
    if name == "HyperKernelEnsemble":
        return _quick(hkrr.HyperKernelEnsemble)
    if name == "HyperKernelClassifier":
        return _quick(hkrr.HyperKernelClassifier)
    if name == "grid":
        return _quick(hkrr.HyperKernelRidgeCV, n_components=[1, 2], cv=2, criterion="training", reg_lambdas=[0.1, 0.01])
    if name == "learned grid":
        return _quick(hkrr.HyperKernelRidgeCV, n_components=1, cv="holdout")
    if name == "polynomials":
        return baselines.RCLS(2, link="polynomial", n_cells=2, degree=1)
    if name == "cells":
        return baselines.PiecewisePolynomial(n_cells=2, degree=0)
    return _quick(getattr(baselines, name))


@cache
def fitted(name):
    """Return a fitted model. It is shared between tests and must not be modified."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a network does not converge in three epochs
        X, y = rows()
        model = unfitted(name).fit(X, y > 0 if name == "HyperKernelClassifier" else y)
        if name == "HyperKernelClassifier":
            with_two_members(model.scores_, X, np.column_stack([y <= 0, y > 0]).astype(float))
            for each in ("prior_variance_", "noise_variance_", "interval_scores_", "posterior_factor_"):
                vars(model.members_[1]).pop(each, None)  # members of a classifier lack these attributes
            model.refined_ = False  # a refined classifier has one member
        return with_two_members(model, X, y) if name == "HyperKernelEnsemble" else model


def with_two_members(ensemble, X, y):
    """Replace the members of an ensemble by its first member and a model with another kernel, both with centers X."""
    second = unfitted("HyperKernelRidgeCV").set_params(kernel="laplace").fit(X, y)
    del second.path_, second.diagnostics_  # members of an ensemble lack these attributes
    ensemble.members_, ensemble.weights_ = [ensemble.members_[0], second], np.array([0.7, 0.2])
    return ensemble


def copied(name):
    """Return a copy of a fitted model, which can be modified."""
    return pickle.loads(pickle.dumps(fitted(name)))


def apply(model, X):
    """Return the predictions of a model, or its latent coordinates if it cannot predict."""
    return model.predict(X) if hasattr(model, "predict") else model.transform(X)


def saved(model, folder):
    """Save a model in a folder, and return the bytes of the file."""
    hkrr.save(model, folder / "saved")
    return (folder / "saved").read_bytes()


def header_of(path):
    """Return the hkrr header of a model file."""
    with safe_open(path, framework="numpy") as file:
        return json.loads(file.metadata()["hkrr"])


def through_a_file(model, folder):
    """Save a model in a folder, and return the model that is loaded from the file."""
    hkrr.save(model, folder / "model.safetensors")
    return hkrr.load(folder / "model.safetensors")


def assert_same(found, expected, where=""):
    """Assert that two models or values have equal types, values, dtypes and memory orders."""
    assert type(found) is type(expected), where
    if isinstance(expected, np.ndarray):
        assert_array_equal(found, expected, err_msg=where, strict=True)
        assert found.flags.f_contiguous == expected.flags.f_contiguous, where
        assert found.flags.writeable
    elif isinstance(expected, dict):
        assert list(found) == list(expected), where
        for key in expected:
            assert_same(found[key], expected[key], f"{where}[{key!r}]")
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected), where
        for i, (one, other) in enumerate(zip(found, expected, strict=True)):
            assert_same(one, other, f"{where}[{i}]")
    elif isinstance(expected, np.random.RandomState):
        assert_same(found.get_state(legacy=False), expected.get_state(legacy=False), where)
    elif type(expected).__module__.startswith(("hkrr.", "sklearn.neural_network", "sklearn.neighbors._reg")):
        names = [name for name in vars(expected) if not name.startswith("_")]
        assert names
        for name in names:
            assert_same(getattr(found, name), getattr(expected, name), f"{where}.{name}")
    elif hasattr(expected, "split") and not isinstance(expected, str):
        assert repr(found) == repr(expected), where
    else:
        assert found == expected or (found != found and expected != expected), where
