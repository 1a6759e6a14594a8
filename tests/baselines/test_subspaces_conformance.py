"""The subspace estimators: which link functions they find, unusual data, and scikit-learn conventions."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.utils.estimator_checks import parametrize_with_checks

from hkrr.baselines import KDR, MAVE, OPG, PHD, RCLS, SAVE, SIR, GradientKDR, PiecewisePolynomial, RCLSDirections
from hkrr.baselines._subspace_estimator import slices
from hkrr.metrics import subspace_distance
from support import oracles_subspaces as oracles

METHODS = [SIR, SAVE, PHD, OPG, MAVE, KDR, GradientKDR, RCLSDirections]
every_method = pytest.mark.parametrize("method", METHODS)
every_model = pytest.mark.parametrize("method", [*METHODS, RCLS])


def make(method, n_components=2, **parameters):
    """Return an instance of the class `method`, with a fixed seed and few iterations if it has these parameters."""
    defaults = {"random_state": 0, "n_iter": 2, "max_iter": 5}
    known = method().get_params()
    return method(n_components, **{name: value for name, value in defaults.items() if name in known} | parameters)


def data(m=80, D=3, seed=0):
    rng = np.random.default_rng([seed, m, D])
    X = rng.normal(size=(m, D))
    return X, np.exp(0.5 * X[:, 0]) + X[:, -1] ** 2 + 0.1 * rng.normal(size=m)


def planted(link, d, m, D=6, seed=0):
    """Return normal inputs, a target that depends on d random directions with 5% noise, and the directions."""
    rng = np.random.default_rng([seed, m, D])
    X, B = rng.normal(size=(m, D)), np.linalg.qr(rng.normal(size=(D, d)))[0].T
    y = link(X @ B.T)
    return X, y + 0.05 * y.std() * rng.normal(size=m), B


# ------------------------------------------------------------------------------------------- links found and missed

LINKS = {
    "tanh": (1, lambda P: np.tanh(P[:, 0])),
    "square": (1, lambda P: P[:, 0] ** 2),
    "product": (2, lambda P: P[:, 0] * P[:, 1]),
    "ratio": (2, lambda P: P[:, 0] / (0.5 + (P[:, 1] + 1.5) ** 2)),
}
FOUND = {"tanh": set(METHODS) - {PHD}, "square": set(METHODS) - {SIR, RCLSDirections}, "ratio": set(METHODS)}
FOUND["product"] = FOUND["square"]


@pytest.mark.parametrize(
    ("link", "method"), [(link, m) for link, found in FOUND.items() for m in METHODS if m in found]
)
def test_recovers_the_subspace(link, method):
    """The distance between the estimated and the true subspace is below 0.25, on average over three samples.

    For random directions the distance is about 0.9 or more. For an estimate from m rows with D = 6 columns, it is
    sqrt(D/m) times a constant that depends on the method and the link. This root is 0.05 for 2,000 rows and 0.17 for
    200 rows.
    """
    d, function = LINKS[link]
    m = 2000 if method in (SIR, SAVE, PHD, RCLSDirections) else 200
    samples = [planted(function, d, m, seed=seed) for seed in range(3)]
    model = make(method, d)
    assert np.mean([subspace_distance(model.fit(X, y).components_, B) for X, y, B in samples]) < 0.25


@pytest.mark.parametrize(("method", "link"), [(SIR, "square"), (RCLSDirections, "square"), (PHD, "linear")])
def test_misses_the_links_that_theory_predicts(method, link):
    """Even with 5,000 rows, SIR and RCLS do not find the direction of an even link, nor PHD that of a linear link.

    For an even link, the conditional mean E(x|y) (used by SIR) and the slopes within slices of y (used by RCLS) are
    zero. For a linear link, the mean Hessian (used by PHD) is zero. SAVE finds the direction of both links.
    """
    function = LINKS[link][1] if link in LINKS else lambda P: P[:, 0]
    samples = [planted(function, 1, 5000, seed=seed) for seed in range(10)]
    missed = [subspace_distance(make(method, 1).fit(X, y).components_, B) for X, y, B in samples]
    assert np.mean(missed) > 0.5
    found = [subspace_distance(make(SAVE, 1).fit(X, y).components_, B) for X, y, B in samples]
    assert np.mean(found) < 0.1


# ----------------------------------------------------------------------------------------------------------------- RCLS


@pytest.mark.parametrize(("m", "n_slices", "made"), [(96, 1, 1), (96, 8, 8), (61, 8, 7), (92, 8, 8), (20, 8, 2)])
def test_rcls_by_loops(m, n_slices, made):
    """The eigenvalues and directions of RCLS agree with a naive implementation that uses `made` slices.

    With four columns, a slice needs at least eight rows. With m rows, only `made` slices are therefore made if
    `n_slices` is larger.
    """
    X, y = data(m, 4)
    parts = slices(y, made)
    assert min(len(part) for part in parts) >= 8
    values, vectors = np.linalg.eigh(oracles.rcls_matrix(oracles.standardise(X), y, parts))
    d = min(n_slices, 2)
    model = RCLSDirections(d, n_slices=n_slices).fit(X, y)
    assert_allclose(model.eigenvalues_, values[::-1][:d], rtol=1e-8)
    for row, vector in zip(model.components_, vectors.T[::-1], strict=False):
        assert subspace_distance(row, vector @ oracles.inverse_root(X)) < 1e-8


@pytest.mark.parametrize("n_slices", [1, 5, 10])
def test_rcls_of_a_linear_target_is_exact(n_slices):
    rng = np.random.default_rng(1)
    X, b = rng.normal(size=(200, 5)) @ rng.normal(size=(5, 5)), rng.normal(size=(1, 5))
    assert subspace_distance(RCLSDirections(1, n_slices=n_slices).fit(X, X @ b[0] + 3.0).components_, b) < 1e-8


def test_rcls_of_a_monotone_link():
    """Without noise, 20 slices give a far more accurate direction than one slice.

    The link tanh is nearly linear in a thin slice. With one slice, a linear function is fitted to all m = 4000 rows of
    D = 5 columns. The error of its direction is of order sqrt(D/m) = 0.035 times the nonlinear part of tanh.
    """
    one, many = [], []
    for seed in range(3):
        rng = np.random.default_rng([2, seed])
        X, b = rng.normal(size=(4000, 5)), rng.normal(size=(1, 5))
        y = np.tanh(X @ b[0] / np.linalg.norm(b))
        one.append(subspace_distance(RCLSDirections(1, n_slices=1).fit(X, y).components_, b))
        many.append(subspace_distance(RCLSDirections(1, n_slices=20).fit(X, y).components_, b))
    assert max(many) < 0.1 * np.mean(one) < 0.0035


def test_rcls_predicts_by_the_nearest_neighbours():
    X, y = data(60, 4)
    model = RCLS(2, n_slices=5, n_neighbors=7).fit(X, y)
    directions = RCLSDirections(2, n_slices=5).fit(X, y).components_
    assert subspace_distance(model.components_, directions) < 1e-12
    assert_allclose(model.components_ @ model.components_.T, np.eye(2), atol=1e-12)
    X_new = data(20, 4, seed=1)[0]
    P, P_new = X @ model.components_.T, X_new @ model.components_.T
    nearest = [np.argsort(np.sum((P - p) ** 2, axis=1))[:7] for p in P_new]
    assert_allclose(model.predict(X_new), [y[rows].mean() for rows in nearest], rtol=1e-10)


def test_rcls_predicts_by_polynomials():
    X, y = data(200, 4)
    model = RCLS(2, n_slices=5, link="polynomial", n_cells=2, degree=1).fit(X, y)
    X_new = data(20, 4, seed=1)[0]
    P, P_new = X @ model.components_.T, X_new @ model.components_.T
    assert_allclose(model.predict(X_new), oracles.piecewise_polynomial(P, y, P_new, 2, 1), rtol=1e-8)


@pytest.mark.parametrize(("d", "n_cells", "degree"), [(1, 1, 3), (1, 5, 0), (1, 4, 2), (2, 3, 1), (2, 2, 2), (3, 2, 1)])
def test_piecewise_polynomials_by_loops(d, n_cells, degree):
    """The predictions agree with plain loops, even for inputs outside the training range (in the outermost cells)."""
    X, y = data(150, d)
    X_new = 2.0 * data(60, d, seed=1)[0]
    found = PiecewisePolynomial(n_cells, degree).fit(X, y).predict(X_new)
    assert_allclose(found, oracles.piecewise_polynomial(X, y, X_new, n_cells, degree), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("n_cells", [1, 3])
@pytest.mark.parametrize("degree", [0, 1, 2, 3])
def test_piecewise_polynomials_reproduce_their_degree(degree, n_cells):
    """A polynomial of the model's degree is predicted exactly, clipped to the range of the training targets."""
    rng = np.random.default_rng(degree)
    X = rng.uniform(-2.0, 5.0, size=(400, 2))
    y = (1.0 + X[:, 0] - 2.0 * X[:, 1]) ** degree
    model = PiecewisePolynomial(n_cells, degree).fit(X[:300], y[:300])
    assert_allclose(model.predict(X[300:]), np.clip(y[300:], y[:300].min(), y[:300].max()), rtol=1e-8, atol=1e-8)


def test_piecewise_polynomials_far_away():
    """An input far outside the grid uses the polynomial of the nearest cell."""
    x = np.linspace(0.0, 1.0, 100)
    model = PiecewisePolynomial(2, 1).fit(x[:, None], np.abs(x - 0.3))
    assert_allclose(model.predict([[1e3], [1e25], [-1e3], [-1e25]]), 0.7)


# -------------------------------------------------------------------------------------------------------- unusual data


@every_method
@pytest.mark.parametrize(
    "units", [1e-6, 1.0, 1e6, *(pytest.param(unit, marks=pytest.mark.thorough) for unit in (1e-3, 1e3))]
)
def test_affine_change_of_the_inputs(method, units):
    """If a fit to the inputs x finds the map B, a fit to the inputs A (x + c) finds the map B A^-1.

    The maps are compared by the subspaces that their rows span. The vector c is random. The matrix A is random if
    `units` is 1. Otherwise, A is diagonal and changes the unit of the second column.
    """
    X, y = data(120)
    rng = np.random.default_rng(0)
    A = rng.normal(size=(3, 3)) if units == 1.0 else np.diag([1.0, units, 1.0])
    before, after = (make(method).fit(inputs, y).components_ for inputs in (X, (X + rng.normal(size=3)) @ A.T))
    assert subspace_distance(after @ A, before) < 1e-8


@every_model
def test_constant_column(method):
    """A constant column has zero loadings, and the other loadings do not change."""
    X, y = data()
    found = make(method).fit(np.insert(X, 1, 7.0, axis=1), y).components_
    assert_allclose(found[:, 1], 0.0, atol=1e-12)
    assert subspace_distance(np.delete(found, 1, axis=1), make(method).fit(X, y).components_) < 1e-8


@every_model
def test_duplicate_column(method):
    """A duplicate column does not change the space that is spanned by the centred latent coordinates."""
    X, y = data()
    twice = np.column_stack([X, X[:, 0]])
    one, two = make(method).fit(X, y).transform(X), make(method).fit(twice, y).transform(twice)
    assert subspace_distance((two - two.mean(axis=0)).T, (one - one.mean(axis=0)).T) < 1e-8


@every_method
def test_more_components_than_the_rank(method):
    """If n_components exceeds the rank of X, directions along which X does not vary are added, with eigenvalue zero.

    Here the last column is a copy of the first column, so X does not vary along their difference.
    """
    X, y = data()
    model = make(method, 4).fit(np.column_stack([X, X[:, 0]]), y)
    assert np.linalg.matrix_rank(model.components_) == 4
    assert_allclose(np.abs(model.components_[3]), [0.5**0.5, 0.0, 0.0, 0.5**0.5], atol=1e-8)
    assert_allclose(model.eigenvalues_[3], 0.0, atol=1e-12)


@every_model
@pytest.mark.parametrize("case", ["fewer rows than columns", "constant y", "constant X", "two rows", "binary y"])
def test_little_to_learn(method, case):
    """The directions are linearly independent and of unit length, even if there is little or nothing to learn."""
    X, y = data(40, 5)
    if case == "fewer rows than columns":
        X, y = data(12, 20)
    elif case == "two rows":
        X, y = X[:2], y[:2]
    elif case == "constant X":
        X = np.ones_like(X)
    else:
        y = np.full(40, 3.0) if case == "constant y" else (y > np.median(y)).astype(float)
    with warnings.catch_warnings():
        if case in ("constant y", "constant X", "two rows"):
            warnings.filterwarnings("ignore", r"\w+ found no dependence", UserWarning)
        model = make(method).fit(X, y)
    assert model.components_.shape == (2, X.shape[1])
    assert_allclose(np.linalg.norm(model.components_, axis=1), 1.0)
    assert np.linalg.matrix_rank(model.components_) == 2
    assert np.all(np.isfinite(model.transform(X)))


@every_model
def test_a_constant_target_gives_a_warning(method):
    X, _ = data(40, 5)
    with pytest.warns(UserWarning, match="found no dependence of y on X"):
        make(method).fit(X, np.full(40, 3.0))


def test_constant_inputs_give_a_warning():
    with pytest.warns(UserWarning, match="found no dependence of y on X"):
        SIR(2).fit(np.ones((40, 5)), data(40, 5)[1])


@every_model
def test_number_of_components(method):
    X, y = data()
    for wrong in (4, 0, 1.5, None):
        with pytest.raises(ValueError, match="n_components"):
            make(method, wrong).fit(X, y)
    assert np.linalg.matrix_rank(make(method, 3).fit(X, y).components_) == 3
    assert_array_equal(make(method, 1).fit(X[:, :1], y).components_, [[1.0]])


WRONG = [(SIR, {"n_slices": 1}), (SAVE, {"n_slices": 1.5}), (RCLSDirections, {"n_slices": 0}), (RCLS, {"n_slices": 0})]
WRONG += [(OPG, {"n_iter": -1}), (OPG, {"n_anchors": 0}), (MAVE, {"n_iter": 0}), (MAVE, {"n_anchors": 0})]
WRONG += [(KDR, {"epsilon": 0.0}), (KDR, {"max_iter": 0}), (KDR, {"max_rows": 1}), (GradientKDR, {"epsilon": -1.0})]
WRONG += [(RCLS, {"link": "spline"}), (RCLS, {"n_neighbors": 0}), (RCLS, {"link": "polynomial", "n_cells": 0})]


@pytest.mark.parametrize(("method", "parameters"), WRONG)
def test_wrong_parameters_are_named(method, parameters):
    with pytest.raises(ValueError, match=list(parameters)[-1]):
        make(method, **parameters).fit(*data())


# ---------------------------------------------------------------------------------------------------------- conventions


# One class of each family, and the regressors. The other classes share their code for inputs and outputs.
@parametrize_with_checks([*(make(method, 1) for method in (SIR, OPG, KDR, RCLS)), PiecewisePolynomial()])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.thorough
@parametrize_with_checks(
    [*(make(method, 1) for method in METHODS if method not in (SIR, OPG, KDR)), RCLS(1, link="polynomial")]
)
def test_scikit_learn_checks_of_other_settings(estimator, check):
    check(estimator)


@pytest.mark.parametrize("method", [OPG, MAVE, KDR, GradientKDR])
def test_random_state(method):
    """The same seed gives the same directions. A different seed draws different rows and gives different directions."""
    X, y = data()
    few = {"n_anchors": 30} if method in (OPG, MAVE) else {"max_rows": 30}
    first, again, other = (make(method, random_state=s, **few).fit(X, y).components_ for s in (0, 0, 1))
    assert_array_equal(first, again)
    assert subspace_distance(first, other) > 1e-6


@every_model
def test_names_signs_and_nan(method):
    X, y = data()
    model = make(method).fit(X, y)
    assert list(model.get_feature_names_out()) == [f"{method.__name__.lower()}{k}" for k in range(2)]
    assert_array_equal(model.components_.max(axis=1), np.abs(model.components_).max(axis=1))
    assert_array_equal(model.transform(X), X @ model.components_.T)
    X[3, 1] = np.nan
    with pytest.raises(ValueError, match="Input X contains NaN"):
        make(method).fit(X, y)
