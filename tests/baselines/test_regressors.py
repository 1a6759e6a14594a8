"""The baseline regressors give the same results as scikit-learn, torch, xrfm and naive implementations."""

from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize_scalar
from sklearn.kernel_ridge import KernelRidge
from sklearn.neural_network import MLPRegressor

from hkrr.baselines import (
    BKerNN,
    HyperRBFNetwork,
    KernelRidgeCV,
    RecursiveFeatureMachine,
    ReLUNetwork,
    brownian_kernel_network,
)
from hkrr.baselines.rbf_network import Adam
from hkrr.kernels import get_kernel
from support import oracles
from support import oracles_baseline_regressors as naive
from support.oracles_baseline_regressors import UNITS, data, fresh
from support.random_problems import ONE_GAMMA, case_id, central_difference, unit_direction

GAMMA, LAMBDA = 0.3, 1e-2
two_kernels = pytest.mark.parametrize("kernel", ["gaussian", "laplace"])
penalties = pytest.mark.parametrize("penalty", ["feature", "variable", "basic"])
targets = pytest.mark.parametrize("T", [1, 2])


def gram(kernel, P, C, gamma=GAMMA):
    return oracles.gram(lambda p, c: getattr(oracles, kernel)(p, c, gamma), P, C)


# ------------------------------------------------------------------------------------------- kernel ridge regression


@pytest.mark.parametrize("case", ONE_GAMMA, ids=case_id)
@targets
@pytest.mark.parametrize("reg_lambda", [0.3, 1e-4])
def test_exact_ridge_agrees_with_scikit_learn(case, T, reg_lambda):
    """With every kernel, the predictions agree with `KernelRidge` of scikit-learn.

    The model of scikit-learn has the penalty alpha = lambda m for m rows, standardized inputs and a centred target.
    """
    X, Y, Z = data(T=T)
    new, new_Z = fresh(X)
    found = KernelRidgeCV(kernel=case.kernel, gamma=case.gamma, reg_lambdas=[reg_lambda]).fit(X, Y)
    known = KernelRidge(kernel="precomputed", alpha=reg_lambda * len(X))
    known.fit(oracles.gram(case.value, Z, Z), Y - Y.mean(axis=0))
    expected = known.predict(oracles.gram(case.value, new_Z, Z))
    assert found.predict(new).shape == (10, *Y.shape[1:])
    assert_allclose(found.predict(new), expected + Y.mean(axis=0), rtol=1e-8, atol=1e-8 * np.max(np.abs(expected)))


@two_kernels
@targets
@pytest.mark.parametrize("reg_lambda", [0.3, 1e-2, 1e-5, 1e-10])
def test_leave_one_out_error_by_refitting(kernel, T, reg_lambda):
    """The leave-one-out error agrees with refits that leave out one row at a time.

    The formula divides by one minus the leverage. This difference is of order lambda, so its relative rounding error is
    about 1e-15 / lambda.
    """
    X, Y, Z = data(T=T)
    found = KernelRidgeCV(kernel=kernel, gamma=GAMMA, reg_lambdas=[reg_lambda]).fit(X, Y)
    error = naive.exact_leave_one_out_error(gram(kernel, Z, Z), Y - Y.mean(axis=0), reg_lambda)
    assert_allclose(found.loo_error_, error, rtol=1e-8 + 1e-15 / reg_lambda)


@two_kernels
@targets
@pytest.mark.parametrize("centers", ["uniform", "leverage"])
@pytest.mark.parametrize("n_centers", [1, 8, 20])
def test_nystrom_solves_the_normal_equations(kernel, T, centers, n_centers):
    """The predictions agree with a least-squares solution of the normal equations, and the centers are rows of X.

    If a center is drawn repeatedly, the kernel matrix of the centers is singular, but the fitted function is still
    unique.
    """
    X, Y, Z = data(T=T)
    new, new_Z = fresh(X)
    options = {"n_centers": n_centers, "centers": centers, "random_state": 0}
    found = KernelRidgeCV(kernel=kernel, gamma=GAMMA, reg_lambdas=[LAMBDA], **options).fit(X, Y)
    rows = [int(np.argmin(np.sum((Z - c) ** 2, axis=1))) for c in (found.centers_ - X.mean(axis=0)) / X.std(axis=0)]
    assert_allclose(found.centers_, X[rows], rtol=1e-12, atol=1e-12)
    assert centers == "leverage" or len(set(rows)) == n_centers
    K_mc, K_cc, centred = gram(kernel, Z, Z[rows]), gram(kernel, Z[rows], Z[rows]), Y - Y.mean(axis=0)
    a = naive.nystrom_coefficients(K_mc, K_cc, centred, LAMBDA)
    assert_allclose(found.predict(new), gram(kernel, new_Z, Z[rows]) @ a + Y.mean(axis=0), rtol=1e-8)
    assert_allclose(found.loo_error_, naive.leave_one_out_error(K_mc, K_cc, centred, LAMBDA), rtol=1e-8)


@two_kernels
@targets
def test_lambda_and_gamma_have_the_lowest_error(kernel, T):
    """Of the given values, the chosen lambda has the lowest leave-one-out error.

    The error with gamma="auto" is at most the error with gamma="median". A fit with the gamma that "auto" has chosen
    gives the same model.
    """
    X, Y, Z = data(T=T)
    K, centred, path = gram(kernel, Z, Z), Y - Y.mean(axis=0), [1e-6, 3e-1, 1e-4, 3e-2, 1e-3, 3e-3]
    errors = [naive.exact_leave_one_out_error(K, centred, each) for each in path]
    found = KernelRidgeCV(kernel=kernel, gamma=GAMMA, reg_lambdas=path).fit(X, Y)
    assert found.reg_lambda_ == path[int(np.argmin(errors))]
    assert_allclose(found.loo_error_, min(errors), rtol=1e-8)
    auto, median = (KernelRidgeCV(kernel=kernel, gamma=gamma, reg_lambdas=path) for gamma in ("auto", "median"))
    assert_allclose(median.fit(X, Y).gamma_, oracles.median_gamma(Z), rtol=1e-12)
    assert auto.fit(X, Y).loo_error_ <= median.loo_error_
    again = KernelRidgeCV(kernel=kernel, gamma=auto.gamma_, reg_lambdas=path).fit(X, Y)
    assert_allclose(again.loo_error_, auto.loo_error_, rtol=1e-12)
    assert_allclose(again.predict(X), auto.predict(X), rtol=1e-12)


# ----------------------------------------------------------------------------------------- recursive feature machine


def machine(X, Y, **parameters):
    defaults = {"bandwidth": 3.0, "reg": 0.1, "validation_fraction": 0.0}
    return RecursiveFeatureMachine(**defaults | parameters).fit(X, Y)


@two_kernels
@pytest.mark.parametrize("diagonal", [False, True])
@pytest.mark.parametrize("n_iter", [0, 1, 2, 3, 5])
def test_feature_machine_agrees_with_xrfm(kernel, diagonal, n_iter):
    """The matrix M (the metric of the kernel) and the predictions agree with the xrfm package.

    The xrfm package computes the squared distances as |x|^2 - 2 x.z + |z|^2. For equal points x and z, the distance
    then has an error of sqrt(1e-16) = 1e-8. For the Laplace kernel, which has a kink, this leads to errors up to 1e-7.
    """
    X, y, Z = data()
    new, new_Z = fresh(X)
    found = machine(X, y, kernel=kernel, diagonal=diagonal, n_iter=n_iter)
    known, M = naive.xrfm_machine(Z, y - y.mean(), (new_Z, np.zeros(10)), kernel, n_iter, diagonal)
    tolerance = 1e-7 if kernel == "laplace" and not diagonal else 1e-10
    assert_allclose(found.M_, M, rtol=0.0, atol=tolerance)
    assert_allclose(found.predict(new), known.predict(new_Z)[:, 0] + y.mean(), rtol=0.0, atol=tolerance)
    assert found.best_iter_ == n_iter


@two_kernels
@pytest.mark.parametrize("diagonal", [False, True])
@targets
@pytest.mark.parametrize("n_iter", [1, 3])
def test_feature_machine_by_differences(kernel, diagonal, T, n_iter):
    """The matrix M and the predictions agree with a naive implementation that uses central differences.

    The central differences approximate the gradients from which M is computed. They have an error of 1e-10, which later
    iterations amplify to 1e-7. Without scaling, the model of standardized inputs has the same matrix M.
    """
    X, Y, Z = data(m=15, T=T)
    new, new_Z = fresh(X)
    found = machine(X, Y, kernel=kernel, diagonal=diagonal, n_iter=n_iter)
    k = naive.laplace_of(3.0) if kernel == "laplace" else naive.gaussian_of(3.0)
    M, f = naive.recursive_feature_machine(Z, Y - Y.mean(axis=0), k, 0.1, n_iter, diagonal)
    assert_allclose(found.M_, M, rtol=0.0, atol=1e-7)
    assert_allclose(found.predict(new), [f(z) + Y.mean(axis=0) for z in new_Z], rtol=0.0, atol=1e-7)
    raw = machine(Z, Y, kernel=kernel, diagonal=diagonal, n_iter=n_iter, scale_features=False)
    assert_allclose(raw.M_, found.M_, rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_feature_machine_uses_the_best_iterate(seed):
    """The iteration with the lowest error on held-out rows is used.

    Given the same training and held-out rows, the xrfm package chooses the same iteration.
    """
    X, y, Z = data(m=40, seed=seed)
    found = machine(X, y, validation_fraction=0.4, n_iter=6, random_state=seed, diagonal=True)
    training = [int(np.argmin(np.sum(((X - c) / UNITS) ** 2, axis=1))) for c in found.centers_]
    held_out = sorted(set(range(40)) - set(training))
    assert (len(set(training)), len(held_out)) == (24, 16)
    centred = y - y.mean()
    validation = (Z[held_out], centred[held_out])
    known, M = naive.xrfm_machine(Z[training], centred[training], validation, "laplace", 6, True, keep_best=True)
    assert found.best_iter_ == known.best_iter
    # With more than 25 points, torch computes squared distances as |x|^2 - 2 x.z + |z|^2. The distances then have
    # errors up to sqrt(1e-16) = 1e-8.
    assert_allclose(found.M_, M, rtol=0.0, atol=1e-7)
    assert_allclose(found.predict(X), known.predict(Z)[:, 0] + y.mean(), rtol=0.0, atol=1e-7)


def test_feature_machine_without_ridge_interpolates():
    X, y, _ = data()
    assert_allclose(machine(X, y, reg=0.0, n_iter=2).predict(X), y, rtol=1e-8)


# --------------------------------------------------------------------------------------------------------- networks


@pytest.mark.parametrize("kernel", ["gaussian", "laplace", "matern32", "inverse_multiquadric"])
@pytest.mark.parametrize("d", [1, 2, 4])
@targets
def test_gradients_of_the_networks(kernel, d, T):
    """The gradients with respect to the coefficients, the centers and the map agree with central differences.

    Central differences have an error of 1e-10 times the third derivative. Near a kink the error may reach 1e-6. With
    d = 4, the map is the identity, as in the plain RBF network.
    """
    rng = np.random.default_rng([d, T])
    Z, Y = 2.0 * rng.normal(size=(9, 4)), rng.normal(size=(9, T))
    at = [rng.normal(size=(5, T)), 2.0 * rng.normal(size=(5, 4)), np.eye(4) if d == 4 else rng.normal(size=(d, 4))]
    network = HyperRBFNetwork(d, reg_lambda=0.2)
    found = network._gradients(get_kernel(kernel).with_gamma(GAMMA), Z, Y, *at)

    def k(p, c):
        return getattr(oracles, kernel)(p, c, GAMMA)

    for i in range(3):
        direction = unit_direction(rng, at[i].shape)

        def objective(moved, i=i):
            return naive.rbf_objective(k, Z, Y, *at[:i], moved, *at[i + 1 :], reg_lambda=0.2)

        assert_allclose(np.vdot(found[i], direction), central_difference(objective, at[i], direction), atol=1e-6)


def test_adam():
    """The optimizer agrees with a naive implementation of Adam, and with torch up to 1e-7.

    The naive implementation is the more efficient of the two forms in section 2 of the paper of Kingma and Ba. In
    torch, epsilon is added at a different place, which changes a step by at most 3e-7 of its size.
    """
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    shapes, rate = [(3, 2), (5,)], 0.01
    starts = [rng.normal(size=shape) for shape in shapes]
    gradients = [[rng.choice([-1.0, 1.0], size=s) * rng.uniform(0.5, 2.0, size=s) for s in shapes] for _ in range(20)]
    found, theirs = [start.copy() for start in starts], [torch.tensor(start) for start in starts]
    ours, known = Adam(shapes, rate), torch.optim.Adam(theirs, lr=rate)
    for each in gradients:
        ours.step(found, each)
        for parameter, gradient in zip(theirs, each, strict=True):
            parameter.grad = torch.tensor(gradient)
        known.step()
    for i in range(2):
        assert_allclose(found[i], naive.adam(starts[i], [each[i] for each in gradients], rate), rtol=1e-10)
        assert_allclose(found[i], theirs[i].numpy(), rtol=0.0, atol=1e-7)


@pytest.mark.parametrize("m", [19, 60])
def test_relu_network_agrees_with_scikit_learn(m):
    """The predictions agree with `MLPRegressor` on standardized data, with early stopping for 20 rows or more."""
    X, y, Z = data(m=m)
    found = ReLUNetwork(7, reg_lambda=0.01, random_state=3).fit(X, y)
    settings = {"hidden_layer_sizes": (7,), "alpha": 0.01, "max_iter": 1000, "n_iter_no_change": 20, "random_state": 3}
    known = MLPRegressor(**settings, early_stopping=m >= 20).fit(Z, (y - y.mean()) / y.std())
    assert_allclose(found.predict(X), known.predict(Z) * y.std() + y.mean(), rtol=1e-8)
    assert found.n_iter_ == known.n_iter_ > 1


# ----------------------------------------------------------------------------------------------------------- BKerNN


def bkernn_problem(seed=0, m=12, D=3, p=4):
    """Return m random points in D columns, a target with mean zero and variance one, and p random directions."""
    rng = np.random.default_rng(seed)
    y = rng.normal(size=m)
    return rng.normal(size=(m, D)), (y - y.mean()) / y.std(), rng.normal(size=(D, p))


@pytest.mark.parametrize("reg_lambda", [1.0, 1e-2, 1e-4])
def test_bkernn_objective(reg_lambda):
    """The objective agrees with an explicit matrix inverse, and is the minimum of the ridge objective below.

    The ridge objective is minimized over the coefficients a and the intercept b. The returned coefficients have the sum
    zero, and random changes of the coefficients and the intercept increase the ridge objective.
    """
    Z, y, W = bkernn_problem()
    K = brownian_kernel_network.brownian(Z @ W, Z @ W)
    assert_allclose(K, naive.brownian(Z @ W, Z @ W), rtol=1e-12, atol=1e-12)
    value, alpha = brownian_kernel_network.objective(Z, y, W, reg_lambda)
    assert_allclose(value, naive.bkernn_objective(Z, y, W, reg_lambda), rtol=1e-8)
    assert abs(np.sum(alpha)) <= 1e-10 * np.sum(np.abs(alpha))

    def ridge(a, b):
        return np.mean((y - K @ a - b) ** 2) / 2.0 + reg_lambda * (a @ K @ a) / 2.0

    b = np.mean(y - K @ alpha)
    assert_allclose(ridge(alpha, b), value, rtol=1e-8)
    rng = np.random.default_rng(1)
    for size in (1.0, 1e-2, 1e-4):
        assert ridge(alpha + size * rng.normal(size=12), b + size * rng.normal()) > value


@pytest.mark.parametrize("seed", range(5))
def test_bkernn_gradient(seed):
    """The gradient agrees with central differences, which have a relative error of 1e-7 unless a kink is near."""
    Z, y, W = bkernn_problem(seed)
    found = brownian_kernel_network.gradient_in_W(Z, brownian_kernel_network.objective(Z, y, W, LAMBDA)[1], W, LAMBDA)
    direction = unit_direction(np.random.default_rng(seed), W.shape)
    known = central_difference(lambda W: naive.bkernn_objective(Z, y, W, LAMBDA), W, direction)
    assert_allclose(np.vdot(found, direction), known, rtol=1e-7, atol=1e-9)


@penalties
@pytest.mark.parametrize("t", [0.1, 1.0, 5.0, 100.0])
@pytest.mark.parametrize("shape", [(3, 4), (5, 2), (1, 3)], ids=str)
def test_proximal_maps(penalty, t, shape):
    """The proximal maps of the three penalties satisfy their optimality conditions.

    The proximal map V of W minimizes |W - V|^2 / 2 + t Omega(V), where Omega is the penalty. V is the minimizer if, and
    only if, the dual norm of W - V is at most t and <W - V, V> = t Omega(V).
    """
    W = 2.0 * np.random.default_rng(0).normal(size=shape)
    V = brownian_kernel_network.PENALTIES[penalty](W, t)
    p, rest = shape[1], W - V
    dual = {
        "feature": 2.0 * np.sqrt(p) * np.linalg.norm(rest, 2),
        "variable": 2.0 * np.sqrt(p) * np.max(np.linalg.norm(rest, axis=1)),
        "basic": 2.0 * p * np.max(np.linalg.norm(rest, axis=0)),
    }[penalty]
    assert dual <= t * (1.0 + 1e-12)
    # The eigenvalues in the naive penalty have an error of 1e-16, so their square roots have an error of 1e-8.
    assert_allclose(np.vdot(rest, V), t * naive.bkernn_penalty(V, penalty), rtol=1e-8, atol=1e-7 * t)


@penalties
def test_bkernn_fit(penalty):
    """The penalized objective does not increase with more iterations, and the predictions agree with the formula."""
    X, y, Z = data(m=30)
    y, (new, _) = (y - y.mean()) / y.std() + 7.0, fresh(X)
    values = []
    for max_iter in (1, 2, 3, 4, 5, 7, 10, 20, 50):
        model = BKerNN(reg_lambda=LAMBDA, n_particles=7, penalty=penalty, max_iter=max_iter, random_state=0).fit(X, y)
        W = model.W_ * X.std(axis=0)[:, None]
        values.append(naive.bkernn_objective(Z, y, W, LAMBDA) + LAMBDA * naive.bkernn_penalty(W, penalty))
        assert model.n_iter_ <= max_iter
    assert all(later <= earlier * (1.0 + 1e-12) for earlier, later in pairwise(values))
    assert values[-1] < 0.8 * values[0]
    alpha, b = naive.bkernn_coefficients(naive.brownian(X @ model.W_, X @ model.W_), y, LAMBDA)
    assert_allclose(model.predict(new), naive.brownian(new @ model.W_, X @ model.W_) @ alpha + b, rtol=1e-8)


@penalties
def test_bkernn_of_one_column(penalty):
    """With one column, the fit reaches the minimum of the penalized objective, found by a search over one number.

    Each direction w_j is then a number, the objective depends only on c = mean |w_j|, and the penalty is c / 2.
    """
    X, y, Z = data(m=30)
    y, K = (y - y.mean()) / y.std(), naive.brownian(Z[:, :1], Z[:, :1])
    known = minimize_scalar(lambda c: 0.5 * LAMBDA * (y @ naive.bkernn_coefficients(c * K, y, LAMBDA)[0] + c)).fun
    model = BKerNN(reg_lambda=LAMBDA, n_particles=5, penalty=penalty, max_iter=500, tol=1e-9, random_state=0)
    W = model.fit(X[:, :1], y).W_ * X[:, 0].std()
    found = naive.bkernn_objective(Z[:, :1], y, W, LAMBDA) + LAMBDA * naive.bkernn_penalty(W, penalty)
    assert_allclose(found, known, rtol=1e-8)
