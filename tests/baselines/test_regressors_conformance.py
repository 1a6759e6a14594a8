"""The rival regressors as estimators: conventions, data at the edges, units, wrong parameters, what they learn."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

import oracles
from hkrr.baselines import BKerNN, HyperRBFNetwork, KernelRidgeCV, RBFNetwork, RecursiveFeatureMachine, ReLUNetwork
from hkrr.kernels import Gaussian
from hkrr.metrics import subspace_distance
from oracles_regressors import UNITS, data, fresh

MODELS = {
    "ridge": KernelRidgeCV(),
    "uniform": KernelRidgeCV(n_centers=15),
    "leverage": KernelRidgeCV(n_centers=15, centers="leverage", kernel="laplace"),
    "machine": RecursiveFeatureMachine(),
    "diagonal machine": RecursiveFeatureMachine(kernel="gaussian", diagonal=True),
    "network": RBFNetwork(max_iter=50),
    "hyper network": HyperRBFNetwork(1, max_iter=50),
    "bkernn": BKerNN(max_iter=20, n_particles=10),
    "bkernn of columns": BKerNN(max_iter=20, n_particles=10, penalty="variable"),
    "plain bkernn": BKerNN(max_iter=20, n_particles=10, penalty="basic"),
    "relu": ReLUNetwork(),
}
SEVERAL_TARGETS = [name for name in MODELS if "bkernn" not in name and name != "relu"]
every_model = pytest.mark.parametrize("name", list(MODELS))
# scikit-learn's network warns where 1,000 passes are not enough for it: so it is with a few rows.
may_not_converge = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def fit(name, X, y, **parameters):
    return clone(MODELS[name]).set_params(random_state=0, **parameters).fit(X, y)


@parametrize_with_checks(
    [
        KernelRidgeCV(),
        KernelRidgeCV(n_centers=100, centers="leverage", kernel="laplace"),
        RecursiveFeatureMachine(),
        RecursiveFeatureMachine(kernel="gaussian", diagonal=True, scale_features=False, validation_fraction=0.0),
        RBFNetwork(max_iter=20),
        HyperRBFNetwork(1, max_iter=20),
        BKerNN(max_iter=10, n_particles=10),
        ReLUNetwork(),
    ]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


# ------------------------------------------------------------------------------------------------ data at the edges


@every_model
@pytest.mark.parametrize("constant", [0.0, 0.1, -3e5])
def test_a_constant_target_is_predicted(name, constant):
    X, _, _ = data(m=40)
    found = fit(name, X, np.full(40, constant)).predict(X + 0.1 * UNITS)
    assert_allclose(found, constant, rtol=1e-8, atol=1e-12)


@every_model
@pytest.mark.parametrize("constant", [0.0, 0.1, 1e6 + 0.1])
def test_a_constant_column_says_nothing(name, constant):
    """Where it moves by a thousandth after all, so do predictions, not more; no direction is made of it."""
    X, y, _ = data(m=40)
    with_it = np.column_stack([X, np.full(40, constant)])
    found = fit(name, with_it, y)
    moved = with_it + np.array([0.0, 0.0, 0.0, 1e-3])
    assert_allclose(found.predict(moved), found.predict(with_it), rtol=0.0, atol=0.05)
    if name in ("ridge", "uniform", "machine", "diagonal machine", "network"):  # the others start with random numbers
        assert_allclose(found.predict(with_it), fit(name, X, y).predict(X), rtol=1e-8)
    if "bkernn" in name:
        assert np.max(np.abs(found.components_[:, 3])) < np.max(np.abs(found.components_[:, :3]))


@every_model
def test_rows_that_are_all_equal(name):
    """There is one thing to predict: about the mean, of all rows or of those not held out."""
    y = np.random.default_rng(0).normal(size=40)
    found = fit(name, np.full((40, 3), 0.1), y).predict(np.full((5, 3), 0.1))
    assert_allclose(found, found[0], rtol=1e-8)
    assert abs(found[0] - y.mean()) < 0.2


@may_not_converge
@every_model
@pytest.mark.parametrize(("m", "D"), [(1, 3), (2, 3), (3, 1), (9, 3), (10, 3), (11, 30)])
def test_few_rows(name, m, D):
    """Finite, of the size of the targets; one row is predicted exactly."""
    rng = np.random.default_rng([m, D])
    X, y = rng.normal(size=(m, D)), rng.normal(size=m) + 5.0
    found = fit(name, X, y).predict(np.vstack([X, rng.normal(size=(20, D))]))
    assert np.all(np.abs(found - y.mean()) <= 10.0 * np.ptp(y) + 1e-8)
    if m == 1:
        assert_allclose(found, y[0], rtol=1e-8)


@every_model
def test_one_column(name):
    """A wave that all of them can follow; noise of a hundredth of its variance."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.5, 1.5, size=(300, 1))
    y = np.sin(2.0 * X[:, 0]) + 0.07 * rng.normal(size=300)
    options = {"max_iter": 500} if "network" in name else {}
    options |= {"bandwidth": 1.0} if "machine" in name else {}  # the default is made for many columns
    assert fit(name, X[:150], y[:150], **options).score(X[150:], y[150:]) > 0.9


# ------------------------------------------------------------------------------------------------------------- units


@every_model
def test_units_of_the_columns_do_not_matter(name):
    X, y, _ = data(m=40)
    new, _ = fresh(X)
    units, shift = np.array([1e3, 1e-6, 3.0]), np.array([-20.0, 1e-5, 7.0])
    found = fit(name, X * units + shift, y).predict(new * units + shift)
    assert_allclose(found, fit(name, X, y).predict(new), rtol=1e-8)


@pytest.mark.parametrize("name", ["hyper network", "bkernn", "plain bkernn"])
def test_units_of_the_columns_do_not_matter_to_the_directions(name):
    """In a unit a thousand times larger the entries are a thousand times smaller, and no direction comes or goes."""
    X, y, _ = data(m=40)
    units = np.array([1e3, 1e-3, 3.0])
    B, other = (fit(name, X * u, y).components_ for u in (np.ones(3), units))
    assert other.shape == B.shape
    assert subspace_distance(other * units * X.std(axis=0), B * X.std(axis=0)) < 1e-8


@every_model
def test_units_of_the_target_do_not_matter(name):
    """Degrees or kelvins; the objective of BKerNN weighs the target against its penalty, so only a shift for it."""
    X, y, _ = data(m=40)
    factor = 1.0 if "bkernn" in name else 3.0
    found = fit(name, X, factor * y + 100.0).predict(X)
    assert_allclose(found, factor * fit(name, X, y).predict(X) + 100.0, rtol=1e-8)


@every_model
@pytest.mark.parametrize("power", [-300, -60, 20, 60, 300])
def test_huge_and_tiny_targets(name, power):
    """A power of two changes no digit, until squares overflow: the same predictions. BKerNN's are finite at least."""
    X, y, _ = data(m=40)
    scale = 2.0**power
    found = fit(name, X, scale * y).predict(X) / scale
    if "bkernn" in name:
        assert np.mean((found - y) ** 2) <= np.var(y) * (1.0 + 1e-8)
    else:
        assert_allclose(found, fit(name, X, y).predict(X), rtol=1e-8)


# ------------------------------------------------------------------------------------------------ as estimators


@pytest.mark.parametrize("name", [name for name in MODELS if name != "ridge"])
def test_random_state(name):
    """The same number gives the same bits, another one another model."""
    X, y, _ = data(m=40)
    first, again, other = (fit(name, X, y).set_params(random_state=seed).fit(X, y).predict(X) for seed in (0, 0, 1))
    assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("name", SEVERAL_TARGETS)
def test_several_targets(name):
    """Each comes out in its column; one, as a column, stays a column."""
    X, Y, _ = data(m=40, T=2)
    found = fit(name, X, Y)
    assert found.predict(X[:7]).shape == (7, 2)
    for t in range(2):
        errors = np.mean((found.predict(X) - Y[:, [t]]) ** 2, axis=0)
        assert np.argmin(errors) == t
        assert errors[t] < 0.7 * np.var(Y[:, t])
    column = fit(name, X, Y[:, :1]).predict(X)
    assert_allclose(column[:, 0], fit(name, X, Y[:, 0]).predict(X), rtol=1e-8)


@every_model
def test_data_frames(name):
    X, y, _ = data(m=40)
    table = pd.DataFrame(X, columns=["age", "height", "mass"])
    model = fit(name, table, pd.Series(y))
    assert list(model.feature_names_in_) == ["age", "height", "mass"]
    # A frame lies in memory by columns, so that sums round otherwise.
    assert_allclose(model.predict(table), fit(name, X, y).predict(X), rtol=1e-8)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(table.rename(columns={"age": "a"}))


WRONG = [
    *((KernelRidgeCV, "kernel", value) for value in ("nope", None)),
    *((KernelRidgeCV, "gamma", value) for value in ("mean", 0.0, -1.0, np.nan, None)),
    *((KernelRidgeCV, "reg_lambdas", value) for value in ("many", [], [0.1, 0.0], [-1.0], [np.inf], 0.1, None)),
    *((KernelRidgeCV, "n_centers", value) for value in (0, -1, 2.5, "some", None)),
    *((KernelRidgeCV, "centers", value) for value in ("kmeans", None)),
    *((RecursiveFeatureMachine, "kernel", value) for value in ("matern32", None)),
    *((RecursiveFeatureMachine, "bandwidth", value) for value in (0.0, -1.0, "auto")),
    *((RecursiveFeatureMachine, "reg", value) for value in (-1.0, np.nan)),
    *((RecursiveFeatureMachine, "n_iter", value) for value in (-1, 1.5)),
    *((RecursiveFeatureMachine, "diagonal", value) for value in ("yes", None)),
    *((RecursiveFeatureMachine, "validation_fraction", value) for value in (-0.1, 1.0, np.nan, "all", None)),
    *((RecursiveFeatureMachine, "scale_features", value) for value in ("yes", None)),
    *((RBFNetwork, name, value) for name in ("n_units", "batch_size", "max_iter", "patience") for value in (0, 1.5)),
    *((RBFNetwork, "learning_rate", value) for value in (0.0, -1.0, "fast")),
    *((RBFNetwork, "reg_lambda", value) for value in (-1.0, np.nan)),
    *((RBFNetwork, "kernel", value) for value in ("nope", None)),
    *((HyperRBFNetwork, "n_components", value) for value in (0, 4, 1.5)),
    *((BKerNN, "reg_lambda", value) for value in (0.0, -1.0)),
    *((BKerNN, name, value) for name in ("n_particles", "max_iter") for value in (0, 1.5)),
    *((BKerNN, "penalty", value) for value in ("lasso", None)),
    *((BKerNN, "tol", value) for value in (-1.0, np.nan)),
    *((ReLUNetwork, name, value) for name in ("n_units", "max_iter") for value in (0, 1.5, "a")),
    *((ReLUNetwork, "reg_lambda", value) for value in (-1.0, np.nan)),
]


@pytest.mark.parametrize(("model", "name", "value"), WRONG, ids=lambda part: getattr(part, "__name__", str(part)))
def test_refuses_a_parameter_by_name(model, name, value):
    X, y, _ = data()
    with pytest.raises(ValueError, match=rf"\b{name}\b"):
        model(**{name: value}).fit(X, y)


def test_a_kernel_keeps_its_own_gamma():
    """As in `HyperKernelRidge`: a kernel's own is used, and another one beside it refused."""
    X, y, _ = data()
    for model in (KernelRidgeCV(), RBFNetwork(max_iter=5)):
        assert model.set_params(kernel=Gaussian(gamma=0.123)).fit(X, y).kernel_.gamma == 0.123
    with pytest.raises(ValueError, match="gamma"):
        KernelRidgeCV(kernel=Gaussian(gamma=0.123), gamma=0.5).fit(X, y)


# -------------------------------------------------------------------------------------------------- what they learn


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("scale", [1.0, 1e3, 1e6])
def test_bkernn_learns(seed, scale):
    """One direction of six, or one column, also from a target in small units (the larger it is, the less lambda)."""
    rng = np.random.default_rng(seed)
    X, oblique, column = rng.normal(size=(500, 6)), np.array([[0.6, 0.8, 0, 0, 0, 0]]), np.eye(1, 6)
    for penalty, B in (("feature", oblique), ("variable", column)):
        y = scale * (np.sin(2.0 * X @ B[0]) + 0.05 * rng.normal(size=500))
        model = BKerNN(reg_lambda=0.01, penalty=penalty, n_particles=20, random_state=seed).fit(X[:200], y[:200])
        assert model.score(X[200:], y[200:]) > 0.9
        assert model.components_.shape == (1, 6)
        assert subspace_distance(model.components_, B) < 0.1
        if penalty == "variable" and scale == 1.0:
            assert_array_equal(model.W_[1:], 0.0)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_networks_learn(seed):
    """Longer training is better on new rows; one direction of six is found where there is a map to learn."""
    rng = np.random.default_rng(seed)
    X, B = rng.normal(size=(900, 6)), np.array([[0.6, 0.8, 0.0, 0.0, 0.0, 0.0]])
    y = np.sin(2.0 * X @ B[0]) + 0.05 * rng.normal(size=900)
    scores = {}
    for network in (RBFNetwork(), HyperRBFNetwork(1)):
        for max_iter in (1, 300):
            network.set_params(n_units=20, max_iter=max_iter, random_state=seed).fit(X[:400], y[:400])
            assert network.n_iter_ <= max_iter
            scores[type(network), max_iter] = network.score(X[400:], y[400:])
        assert scores[type(network), 300] > scores[type(network), 1] + 0.05
    assert scores[HyperRBFNetwork, 300] > max(0.8, scores[RBFNetwork, 300])
    assert network.components_.shape == (1, 6)
    assert subspace_distance(network.components_, B) < 0.1
    C = network.centers_ @ network.components_.T
    K = oracles.gram(lambda p, c: oracles.gaussian(p, c, network.kernel_.gamma), X[:20] @ network.components_.T, C)
    assert_allclose(network.predict(X[:20]), K @ network.dual_coef_ + network.intercept_, rtol=1e-8)


@pytest.mark.parametrize("network", [RBFNetwork, HyperRBFNetwork])
def test_networks_keep_their_best_pass(network):
    """Nine rows leave none to hold out, and the error on them decides: it cannot rise with more passes."""
    X, y, _ = data(m=9)
    errors = [
        np.mean((network(learning_rate=0.3, max_iter=n, random_state=0).fit(X, y).predict(X) - y) ** 2)
        for n in (1, 2, 3, 5, 10, 30, 100)
    ]
    assert all(later <= earlier * (1.0 + 1e-12) for earlier, later in pairwise(errors))
    assert errors[-1] < errors[0]


@pytest.mark.parametrize("centers", ["uniform", "leverage"])
@pytest.mark.parametrize("n_centers", [24, 100])
def test_as_many_centers_as_rows_is_exact(centers, n_centers):
    X, y, _ = data()
    found = KernelRidgeCV(n_centers=n_centers, centers=centers, random_state=0).fit(X, y)
    assert_array_equal(found.predict(X), KernelRidgeCV().fit(X, y).predict(X))
