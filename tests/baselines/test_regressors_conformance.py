"""The baseline regressors: scikit-learn conventions, edge cases, units, invalid parameters, and what they learn."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from hkrr.baselines import BKerNN, HyperRBFNetwork, KernelRidgeCV, RBFNetwork, RecursiveFeatureMachine, ReLUNetwork
from hkrr.kernels import Gaussian
from hkrr.metrics import subspace_distance
from support import oracles
from support.oracles_baseline_regressors import UNITS, data, fresh

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
# Additional settings of classes that other models already test. Only `make thorough` tests them.
VARIANTS = ("uniform", "diagonal machine", "bkernn of columns", "plain bkernn")
SEVERAL_TARGETS = [name for name in MODELS if "bkernn" not in name and name != "relu"]
every_model = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.thorough) if name in VARIANTS else name for name in MODELS]
)
# With few rows, scikit-learn's network may warn that it has not converged after 1,000 epochs. Whether it does depends
# on the seed and on rounding. Only this warning is ignored: hkrr's own NotConvergedWarning has a different message.
may_not_converge = pytest.mark.filterwarnings("ignore:Stochastic Optimizer:sklearn.exceptions.ConvergenceWarning")


def fit(name, X, y, **parameters):
    return clone(MODELS[name]).set_params(random_state=0, **parameters).fit(X, y)


# Some of scikit-learn's checks do not set the parameter random_state, so it is set here.
@may_not_converge
@parametrize_with_checks(
    [
        KernelRidgeCV(random_state=0),
        RecursiveFeatureMachine(n_iter=2, random_state=0),
        RBFNetwork(max_iter=20, random_state=0),
        HyperRBFNetwork(1, max_iter=20, random_state=0),
        BKerNN(max_iter=5, n_particles=10, random_state=0),
        ReLUNetwork(random_state=0),
    ]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.thorough
@parametrize_with_checks(
    [
        KernelRidgeCV(n_centers=100, centers="leverage", kernel="laplace"),
        RecursiveFeatureMachine(random_state=0),
        RecursiveFeatureMachine(kernel="gaussian", diagonal=True, scale_features=False, validation_fraction=0.0),
        BKerNN(max_iter=10, n_particles=10, random_state=0),
    ]
)
def test_scikit_learn_checks_of_other_settings(estimator, check):
    check(estimator)


# ------------------------------------------------------------------------------------------------------- edge cases


@every_model
@pytest.mark.parametrize("constant", [0.0, 0.1, -3e5])
def test_a_constant_target_is_predicted(name, constant):
    X, _, _ = data(m=40)
    found = fit(name, X, np.full(40, constant)).predict(X + 0.1 * UNITS)
    assert_allclose(found, constant, rtol=1e-8, atol=1e-12)


@every_model
@pytest.mark.parametrize("constant", [0.0, 0.1, 1e6 + 0.1])
def test_a_constant_column_has_no_effect(name, constant):
    """An additional constant column has almost no effect on the predictions.

    If the values in the constant column change by 0.001, the predictions change by at most 0.05. Without the column,
    the models that draw no random initial values have the same predictions. In the map of BKerNN, the largest loading
    belongs to another column.
    """
    X, y, _ = data(m=40)
    with_it = np.column_stack([X, np.full(40, constant)])
    found = fit(name, with_it, y)
    moved = with_it + np.array([0.0, 0.0, 0.0, 1e-3])
    assert_allclose(found.predict(moved), found.predict(with_it), rtol=0.0, atol=0.05)
    # These models are compared with a fit without the constant column. The other models draw random initial values, and
    # the number of draws depends on the number of columns.
    if name in ("ridge", "uniform", "machine", "diagonal machine", "network"):
        assert_allclose(found.predict(with_it), fit(name, X, y).predict(X), rtol=1e-8)
    if "bkernn" in name:
        assert np.max(np.abs(found.components_[:, 3])) < np.max(np.abs(found.components_[:, :3]))


@every_model
def test_rows_that_are_all_equal(name):
    """If all rows of X are equal, the prediction is close to the mean of the target over the fitted rows."""
    y = np.random.default_rng(0).normal(size=40)
    found = fit(name, np.full((40, 3), 0.1), y).predict(np.full((5, 3), 0.1))
    assert_allclose(found, found[0], rtol=1e-8)
    assert abs(found[0] - y.mean()) < 0.2


@may_not_converge
@every_model
@pytest.mark.parametrize(("m", "D"), [(1, 3), (2, 3), (3, 1), (9, 3), (10, 3), (11, 30)])
def test_few_rows(name, m, D):
    """With m rows and D columns, the predictions differ from the mean target by at most ten times the range of y.

    If there is a single row, all predictions are equal to its target.
    """
    rng = np.random.default_rng([m, D])
    X, y = rng.normal(size=(m, D)), rng.normal(size=m) + 5.0
    found = fit(name, X, y).predict(np.vstack([X, rng.normal(size=(20, D))]))
    assert np.all(np.abs(found - y.mean()) <= 10.0 * np.ptp(y) + 1e-8)
    if m == 1:
        assert_allclose(found, y[0], rtol=1e-8)


@every_model
def test_one_column(name):
    """With one column, the test R2 of every model is above 0.9 on a sine with noise.

    The variance of the noise is 1% of the variance of the sine.
    """
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.5, 1.5, size=(300, 1))
    y = np.sin(2.0 * X[:, 0]) + 0.07 * rng.normal(size=300)
    options = {"max_iter": 500} if "network" in name else {}
    # The default bandwidth is meant for many columns.
    options |= {"bandwidth": 1.0} if "machine" in name else {}
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
    """If the unit of a column changes, its loadings change by the inverse factor.

    The number of directions stays the same.
    """
    X, y, _ = data(m=40)
    units = np.array([1e3, 1e-3, 3.0])
    B, other = (fit(name, X * u, y).components_ for u in (np.ones(3), units))
    assert other.shape == B.shape
    assert subspace_distance(other * units * X.std(axis=0), B * X.std(axis=0)) < 1e-8


@every_model
def test_units_of_the_target_do_not_matter(name):
    """If the target is multiplied by 3 and shifted by 100, so are the predictions.

    For BKerNN, only the shift is tested.
    """
    X, y, _ = data(m=40)
    factor = 1.0 if "bkernn" in name else 3.0
    found = fit(name, X, factor * y + 100.0).predict(X)
    assert_allclose(found, factor * fit(name, X, y).predict(X) + 100.0, rtol=1e-8)


@every_model
@pytest.mark.parametrize("power", [-300, 300, *(pytest.param(k, marks=pytest.mark.thorough) for k in (-60, 20, 60))])
def test_huge_and_tiny_targets(name, power):
    """If the target is multiplied by 2**power, so are the predictions.

    For BKerNN, the test is weaker: the training error must not exceed the error of predicting the mean of y.
    """
    X, y, _ = data(m=40)
    scale = 2.0**power
    found = fit(name, X, scale * y).predict(X) / scale
    if "bkernn" in name:
        assert np.mean((found - y) ** 2) <= np.var(y) * (1.0 + 1e-8)
    else:
        assert_allclose(found, fit(name, X, y).predict(X), rtol=1e-8)


# ------------------------------------------------------------------------------------------------ conventions


@pytest.mark.parametrize("name", [name for name in MODELS if name != "ridge"])
def test_random_state(name):
    """The same seed gives identical predictions, and a different seed gives different predictions."""
    X, y, _ = data(m=40)
    first, again, other = (fit(name, X, y).set_params(random_state=seed).fit(X, y).predict(X) for seed in (0, 0, 1))
    assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("name", SEVERAL_TARGETS)
def test_several_targets(name):
    """Column t of the predictions predicts target t. A target of shape (m, 1) gives predictions of shape (m, 1)."""
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
    # A data frame is stored by columns, so sums are rounded differently.
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
def test_an_invalid_parameter_is_named_in_the_error(model, name, value):
    X, y, _ = data()
    with pytest.raises(ValueError, match=rf"\b{name}\b"):
        model(**{name: value}).fit(X, y)


def test_a_kernel_keeps_its_own_gamma():
    """If a kernel is passed as an instance with a gamma, this gamma is used.

    A different value of the parameter gamma of the estimator raises an error.
    """
    X, y, _ = data()
    for model in (KernelRidgeCV(), RBFNetwork(max_iter=5)):
        assert model.set_params(kernel=Gaussian(gamma=0.123)).fit(X, y).kernel_.gamma == 0.123
    with pytest.raises(ValueError, match="gamma"):
        KernelRidgeCV(kernel=Gaussian(gamma=0.123), gamma=0.5).fit(X, y)


# -------------------------------------------------------------------------------------------------- what they learn


@pytest.mark.parametrize("seed", [0, *(pytest.param(k, marks=pytest.mark.thorough) for k in (1, 2))])
@pytest.mark.parametrize("scale", [1.0, pytest.param(1e3, marks=pytest.mark.thorough), 1e6])
def test_bkernn_learns(seed, scale):
    """For any scale of the target, BKerNN finds the direction in six dimensions on which the target depends.

    With penalty="feature" this is an oblique direction, and with penalty="variable" it is a single column.
    """
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


@pytest.mark.parametrize("seed", [0, *(pytest.param(k, marks=pytest.mark.thorough) for k in (1, 2))])
def test_networks_learn(seed):
    """With 300 epochs instead of one, the test score of both networks is higher.

    The hyper-RBF network also finds the direction in six dimensions on which the target depends. Its predictions agree
    with the formula of the network.
    """
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
def test_networks_use_their_best_epoch(network):
    """With nine rows, none are held out, and the epoch with the lowest training error is used.

    More epochs therefore cannot increase this error.
    """
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
