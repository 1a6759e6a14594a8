"""Small fitted models of every class, that the tests of saving share."""

import warnings
from functools import cache

import numpy as np

import hkrr
from hkrr import baselines

CLASSES = ["HyperKernelRidge", "HyperKernelRidgeCV", *baselines.__all__]


def rows(n=30, n_features=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, n_features))
    return X, np.sin(2 * X[:, 0]) + 0.1 * X[:, 1]


def new_rows():
    """Rows to predict; some are those of the fit, where distances are zero."""
    return np.concatenate([rows()[0][:10], rows(20, seed=1)[0]])


def _quick(cls, **parameters):
    few = {"max_iter": 3, "n_iter": 2, "n_units": 5, "n_particles": 3, "n_init": 1, "random_state": 0}
    return cls(**{**{name: value for name, value in few.items() if name in cls().get_params()}, **parameters})


def unfitted(name):
    """Return an estimator of that class, or of one of the variants below."""
    if name == "HyperKernelRidge":
        return _quick(hkrr.HyperKernelRidge, n_components=2)
    if name == "HyperKernelRidgeCV":
        return _quick(hkrr.HyperKernelRidgeCV, n_components=1)
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
    """Return a fitted one; do not change it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a network of three passes has not converged
        return unfitted(name).fit(*rows())


def apply(model, X):
    """Return predictions, or where there are none, latent coordinates."""
    return model.predict(X) if hasattr(model, "predict") else model.transform(X)


def saved(model, folder):
    """Return the bytes of the saved model."""
    hkrr.save(model, folder / "saved")
    return (folder / "saved").read_bytes()
