"""Tests of the evidence and leave-one-out criteria.

They are compared with naive oracles, scikit-learn, autograd and finite differences, and checked for identities.
"""

import math
import pickle
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sk_gp

from hkrr import HyperKernelRidge, kernels
from hkrr.criteria import CRITERIA, Evidence, LeaveOneOut
from hkrr.objective import Objective
from hkrr.rows import InMemoryRows
from hkrr.solvers import AGD, LBFGS, VarPro
from support import oracles_criteria as criteria_oracles
from support.every_criterion import ORACLES, every_criterion
from support.random_problems import ONE_GAMMA, case_id, central_difference, make_problem, torch_gram, unit_direction
from support.user_kernels import USER

LAMBDA = 0.05
QUICK = {"kernel": "matern32", "max_iter": 10, "init": np.eye(4)[:2] + 0.1}
BY_ID = {case.id: case for case in ONE_GAMMA}
ROUGH = [BY_ID[name] for name in ("matern32-nu1.5-gamma0.3", "product_laplace-gamma0.3")]
exact_or_not = pytest.mark.parametrize("exact", [True, False], ids=["exact", "centers"])
rough_kernels = pytest.mark.parametrize("case", ROUGH, ids=case_id)
by_name = pytest.mark.parametrize("name", list(CRITERIA))


def _problem(kernel, exact, **options):
    """Return a problem and its centers (None if exact).

    The feature space of a polynomial kernel of degree 1, 2 or 3 has dimension 2, 6 or 10 here. The number of centers is
    at most this dimension, so that the kernel matrix of the centers is not singular.
    """
    p = make_problem(c={None: 5, 1: 2, 2: 5, 3: 8}[getattr(kernel, "degree", None)], **options)
    return p, None if exact else p.centers


def _criterion(criterion, p, centers, kernel, reg_lambda=LAMBDA, **options):
    return criterion(InMemoryRows(p.X, p.y, p.w, **options), centers, kernel, reg_lambda, learn_lambda=True)


def _assert_same(one, two, rtol, shift=0.0, factor=1.0, alpha_factor=1.0):
    """Check that the value of ``one`` is ``factor * two.value + shift``.

    Also check that the derivatives of ``one`` are those of ``two`` times ``factor``, and its coefficients those of
    ``two`` times ``alpha_factor``. The tolerance for arrays is relative to the largest entry.
    """
    assert one.value == pytest.approx(factor * two.value + shift, rel=rtol, abs=rtol * factor)
    assert one.grad_log_lambda == pytest.approx(factor * two.grad_log_lambda, rel=rtol, abs=rtol * factor)
    for actual, expected in ((one.grad, factor * two.grad), (one.alpha, alpha_factor * two.alpha)):
        assert_allclose(actual, expected, rtol=rtol, atol=rtol * np.abs(expected).max())


@every_criterion
@exact_or_not
@pytest.mark.parametrize(
    ("T", "weighted"),
    [(1, False), (3, True), *(pytest.param(*layout, marks=pytest.mark.thorough) for layout in ((1, True), (3, False)))],
)
@pytest.mark.parametrize("case", ONE_GAMMA + USER, ids=case_id)
def test_matches_the_oracle(criterion, exact, T, weighted, case):
    """Test that the value agrees with the oracle, and the coefficients alpha with those of the training objective.

    The 17 rows are computed in blocks of 7, so that the last block is smaller. The tolerance depends on the matrices
    that are inverted. The exact criterion inverts only K + s I, where s is lambda times the total weight. With Nystrom
    centers, rounding errors of the criterion and of the oracle are multiplied by the condition number of the kernel
    matrix of the centers. For polynomial kernels, this number is up to 1e6.
    """
    p, centers = _problem(case.kernel, exact, T=T, weighted=weighted)
    found = _criterion(criterion, p, centers, case.kernel, block_size=7)
    tolerance = 1e-12 if exact else 1e-8 if case.name == "polynomial" else 1e-10
    for reg_lambda in (None, 0.4):  # the lambda of the constructor, and a different lambda
        reduced, given = found.reduced(p.B, reg_lambda), reg_lambda or LAMBDA
        expected = ORACLES[criterion](case.value, p.X, p.Y, p.weights, centers, given, p.B)
        assert reduced.value == pytest.approx(expected, rel=tolerance, abs=tolerance)
        assert (reduced.grad.shape, reduced.alpha.shape) == (p.B.shape, (17 if exact else len(p.centers), T))
        alpha = Objective(InMemoryRows(p.X, p.y, p.w), centers, case.kernel, given).solve_alpha(p.B)
        assert_allclose(reduced.alpha, alpha, rtol=0, atol=10.0 * tolerance * np.abs(alpha).max())
    at_zero = 1.0 if criterion is Evidence else np.sum(p.weights[:, None] * p.Y**2) / p.weights.sum()
    assert found.loss_at_zero == pytest.approx(at_zero, rel=1e-13)


@every_criterion
@rough_kernels
@pytest.mark.parametrize("block_size", [1, 7, 100, "auto"])
def test_blocks_agree_to_rounding_and_threads_bitwise(criterion, case, block_size):
    p = make_problem(T=3)
    settings = [{"block_size": block_size, "n_threads": 1}, {"block_size": block_size, "n_threads": 2}, {}]
    one, two, whole = (_criterion(criterion, p, p.centers, case.kernel, **s).reduced(p.B) for s in settings)
    assert (one.value, one.grad_log_lambda) == (two.value, two.grad_log_lambda)
    assert_array_equal(one.grad, two.grad)
    assert_array_equal(one.alpha, two.alpha)
    _assert_same(one, whole, 1e-10)


@every_criterion
@rough_kernels
@pytest.mark.parametrize("weighted", [False, True])
def test_exact_is_all_rows_as_centers(criterion, case, weighted):
    """Test that passing all rows as centers gives the exact criterion.

    The condition number of the kernel matrix is about 1e3, so both computations are accurate to ten digits.
    """
    p = make_problem(m=30, T=3, weighted=weighted)
    exact, given = (_criterion(criterion, p, c, case.kernel, block_size=13).reduced(p.B) for c in (None, p.X))
    _assert_same(given, exact, 1e-9)


@pytest.mark.parametrize("T", [1, 3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", ["gaussian-gamma0.3", "matern32-nu1.5-gamma0.3", "anova-nu0.5-gamma0.3"])
def test_the_bound_is_never_below_the_evidence_and_falls_with_more_centers(name, T, weighted):
    """Test the variational bound, which is the evidence with Nystrom centers, for 1, 3, 10, 25 and 40 centers.

    The bound is not below the exact evidence, does not increase with more centers, and equals the exact evidence if all
    40 rows are centers. The tolerance is 1e-8: the Gaussian kernel matrix of 40 rows is singular up to rounding errors,
    so that jitter changes the bounds by about 1e-8.
    """
    p, kernel = make_problem(m=40, T=T, weighted=weighted), BY_ID[name].kernel
    for seed, reg_lambda in enumerate((1e-3, 1e-2, 1.0)):
        B = np.random.default_rng(seed).normal(size=p.B.shape)
        exact = _criterion(Evidence, p, None, kernel, reg_lambda).reduced(B).value
        bounds = [_criterion(Evidence, p, p.X[:c], kernel, reg_lambda).reduced(B).value for c in (1, 3, 10, 25, 40)]
        assert bounds[0] > exact + 1e-4
        assert all(later <= earlier + 1e-8 for earlier, later in pairwise(bounds))
        assert bounds[-1] == pytest.approx(exact, abs=1e-8)  # with all rows as centers, the bound is the evidence


@every_criterion
@exact_or_not
@pytest.mark.parametrize("kernel", [*kernels.KERNELS, *(case.kernel for case in USER)], ids=str)
def test_directional_derivatives(criterion, exact, kernel):
    """Test that the derivatives with respect to B and log lambda agree with central differences.

    Central differences have errors of order 1e-10.
    """
    kernel = kernels.get_kernel(kernel).with_gamma(0.3)
    for seed in range(2):
        p, centers = _problem(kernel, exact, m=70, D=5, T=3, seed=seed)
        found = _criterion(criterion, p, centers, kernel, block_size=67)
        reduced, direction = found.reduced(p.B), unit_direction(np.random.default_rng(seed), p.B.shape)
        along_B = central_difference(lambda B, f=found: f.reduced(B).value, p.B, direction)
        assert abs(along_B - np.sum(reduced.grad * direction)) <= 1e-6 * np.linalg.norm(reduced.grad)
        in_lambda = central_difference(lambda t, f=found, B=p.B: f.reduced(B, math.exp(t)).value, math.log(LAMBDA), 1.0)
        assert in_lambda == pytest.approx(reduced.grad_log_lambda, rel=1e-6, abs=1e-8)


@every_criterion
@exact_or_not
@pytest.mark.parametrize("case", ONE_GAMMA, ids=case_id)
def test_agrees_with_autograd(criterion, exact, case):
    """Test that the value and the derivatives agree with autograd of a different formula.

    This formula uses m x m matrices for m rows. For the leave-one-out error, it contains one explicit refit for each
    row that is left out.
    """
    torch = pytest.importorskip("torch")
    p, given = _problem(case.kernel, exact, m=14, T=3)
    X, Y, w = (torch.tensor(a) for a in (p.X, p.Y, p.w))
    B, log_lambda = (torch.tensor(a, dtype=torch.float64, requires_grad=True) for a in (p.B, math.log(LAMBDA)))
    K, left_out = torch_gram(torch, case, X @ B.T, X @ B.T), torch.zeros(14, dtype=X.dtype)
    if not exact:
        C = torch.tensor(p.centers) @ B.T
        Kmc, diagonal = torch_gram(torch, case, X @ B.T, C), K.diagonal()
        K = Kmc @ torch.linalg.solve(torch_gram(torch, case, C, C), Kmc.T)
        left_out = diagonal - K.diagonal()
    oracle = getattr(criteria_oracles, f"torch_{ORACLES[criterion].__name__}")
    value = oracle(torch, K, left_out, Y, w, log_lambda.exp() * w.sum())
    value.backward()
    reduced, expected = _criterion(criterion, p, given, case.kernel).reduced(p.B), B.grad.numpy()
    tolerance = 1e-10 if exact else 1e-6 if case.name == "polynomial" else 1e-8
    assert reduced.value == pytest.approx(value.item(), rel=tolerance, abs=tolerance)
    assert_allclose(reduced.grad, expected, rtol=tolerance, atol=tolerance * np.abs(expected).max())
    assert reduced.grad_log_lambda == pytest.approx(log_lambda.grad.item(), rel=tolerance, abs=tolerance)


@pytest.mark.parametrize("T", [1, 3])
@pytest.mark.parametrize("nu", [math.inf, 0.5, 1.5, 2.5])
def test_evidence_is_that_of_a_gaussian_process_regressor(nu, T):
    """Test the evidence of m rows against the log likelihood of scikit-learn's `GaussianProcessRegressor`.

    The evidence equals the log likelihood divided by -m, minus 1/2 + log(2 pi)/2, averaged over the targets. The scale
    of the covariance is the one with the largest likelihood, which is y'(K + noise I)^-1 y / m.
    """
    p = make_problem(m=30, T=T, weighted=False)
    kernel = kernels.Gaussian(gamma=0.3) if nu == math.inf else kernels.Matern(nu=nu, gamma=0.3)
    ell, noise, P, total = 1.0 / math.sqrt(0.6), LAMBDA * 30, p.X @ p.B.T, 0.0
    inverse = np.linalg.inv(kernel(P, P) + noise * np.eye(30))
    mother = sk_gp.RBF(ell) if nu == math.inf else sk_gp.Matern(ell, nu=nu)
    for y in p.Y.T:
        scale, found = y @ inverse @ y / 30, []
        for s in (scale, 1.01 * scale, 0.99 * scale):
            covariance = sk_gp.ConstantKernel(s) * mother + sk_gp.WhiteKernel(s * noise)
            model = GaussianProcessRegressor(covariance, alpha=0.0, optimizer=None).fit(P, y)
            found.append(-model.log_marginal_likelihood_value_ / 30 - 0.5 - math.log(2.0 * math.pi) / 2.0)
        assert found[0] == min(found)
        total += found[0] / T
    assert _criterion(Evidence, p, None, kernel).reduced(p.B).value == pytest.approx(total, rel=1e-12, abs=1e-12)


@exact_or_not
@pytest.mark.parametrize("T", [1, 3])
@pytest.mark.parametrize("case", [*ROUGH, BY_ID["gaussian-gamma0.3"], BY_ID["polynomial-degree3-coef01.0-gamma0.3"]])
def test_integer_weights_are_repeated_rows_for_the_evidence(exact, T, case):
    """Test that a row with an integer weight n has the same effect on the evidence as n equal rows of weight 1.

    The weights are between 1 and 3 if all rows are centers, and between 0 and 3 with Nystrom centers.
    """
    p, centers = _problem(case.kernel, exact, T=T)
    counts = np.random.default_rng(11).integers(1 if exact else 0, 4, size=17)
    repeated = p._replace(X=np.repeat(p.X, counts, axis=0), y=np.repeat(p.y, counts, axis=0), w=None)
    one = _criterion(Evidence, p._replace(w=counts.astype(float)), centers, case.kernel).reduced(p.B)
    two = _criterion(Evidence, repeated, centers, case.kernel).reduced(p.B)
    expected = criteria_oracles.repeated_evidence(case.value, p.X, p.Y, counts, centers, LAMBDA, p.B)
    tolerance = 1e-11 if exact else 1e-7 if case.name == "polynomial" else 1e-9
    assert one.value == pytest.approx(expected, abs=tolerance)
    # The coefficient of a repeated center is the sum of the coefficients of its copies.
    alpha = np.add.reduceat(two.alpha, np.cumsum(counts) - counts) if exact else two.alpha
    _assert_same(one, replace(two, alpha=alpha), tolerance)


@every_criterion
@rough_kernels
def test_zero_weights_and_scaled_weights(criterion, case):
    """Test that rows of weight zero are ignored, and that scaling the weights does not change the leave-one-out error.

    Scaling the weights does change the evidence.
    """
    p = make_problem(T=3)
    p.w[[2, 9]] = 0.0
    counted = p._replace(X=p.X[p.w > 0], y=p.y[p.w > 0], w=p.w[p.w > 0])
    whole = _criterion(criterion, p, p.centers, case.kernel).reduced(p.B)
    _assert_same(whole, _criterion(criterion, counted, p.centers, case.kernel).reduced(p.B), 1e-11)
    if criterion is LeaveOneOut:
        doubled = _criterion(criterion, p._replace(w=2.0 * p.w), p.centers, case.kernel).reduced(p.B)
        _assert_same(doubled, whole, 1e-11)


@every_criterion
@exact_or_not
@pytest.mark.parametrize("scale", [1e-6, 37.0])
def test_unit_of_the_target(criterion, exact, scale):
    p, centers = _problem(ROUGH[0].kernel, exact, T=3)
    base = _criterion(criterion, p, centers, ROUGH[0].kernel).reduced(p.B)
    scaled = _criterion(criterion, p._replace(y=scale * p.y), centers, ROUGH[0].kernel).reduced(p.B)
    changes = {"shift": math.log(scale)} if criterion is Evidence else {"factor": scale**2}
    _assert_same(scaled, base, 1e-12, alpha_factor=scale, **changes)
    if criterion is Evidence:  # each target has its own scale
        columns = _criterion(criterion, p._replace(y=p.y * [scale, 1.0, 1.0]), centers, ROUGH[0].kernel).reduced(p.B)
        assert columns.value == pytest.approx(base.value + math.log(scale) / 3.0, abs=1e-12)
        assert_allclose(columns.grad, base.grad, rtol=1e-10, atol=1e-12)


def _data(m=80, D=4, T=1, seed=0):
    rng = np.random.default_rng([seed, m, D, T])
    X = rng.normal(size=(m, D))
    y = np.stack([np.sin(2.0 * X[:, 0] + t) + 0.5 * X[:, 1] for t in range(T)], axis=1) + 0.2 * rng.normal(size=(m, T))
    return X, y[:, 0] if T == 1 else y


# Cases of the next test in which lambda may tend to 0, all with the leave-one-out error. Each case is a tuple (name, T,
# weighted, n_centers, seed).
LOO_SLIDES = [("loo", 1, 0, "all", 0), ("loo", 1, 0, "all", 1), ("loo", 3, 1, "all", 2)]


@by_name
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in (1, 2))])
@pytest.mark.parametrize(("T", "weighted", "n_centers"), [(1, 0, "all"), (1, 1, 25), (3, 1, "all")])
def test_learned_lambda_is_stationary(request, name, T, weighted, n_centers, seed):
    """Test that the criterion is stationary in log lambda at the end of a fit, and larger at twice this lambda.

    The derivative with respect to log lambda must be at most 1e-4 of the criterion's `loss_at_zero`. The tolerance of
    the solver is 1e-6 of this value, but the solver may stall slightly earlier.
    """
    if (name, T, weighted, n_centers, seed) in LOO_SLIDES:
        # Rounding errors of the standardized columns decide which of the three fits fails, so the mark is not strict.
        reason = "known fault: on small data, the lambda learned by the leave-one-out error can tend to 0"
        request.applymarker(pytest.mark.xfail(reason=reason, strict=False))
    X, y = _data(T=T, seed=seed)
    w = np.random.default_rng(1).uniform(0.5, 2.0, size=len(X))
    w = w / w.mean() if weighted else None  # a mean above one would count as repeated rows, which imply less noise
    options = {"kernel": "matern32", "n_centers": n_centers, "criterion": name, "random_state": 0}
    model = HyperKernelRidge(reg_lambda="auto", max_iter=1000, **options).fit(X, y, w)
    # Evaluate the criterion in the coordinates of the fitted model, at its map and lambda.
    rows, centers = InMemoryRows(X - model.x_offset_, y - model.intercept_, w), model.centers_ - model.x_offset_
    found = CRITERIA[name](rows, None if n_centers == "all" else centers, model.kernel_, model.reg_lambda_)
    reduced = found.reduced(model.components_)
    assert model.result_.reason in ("converged", "stalled")
    assert reduced.value == pytest.approx(model.result_.objective, rel=1e-7)
    assert 1e-12 < model.reg_lambda_ < 1e3
    assert abs(reduced.grad_log_lambda) <= 1e-4 * found.loss_at_zero
    assert found.reduced(model.components_, 2.0 * model.reg_lambda_).value > reduced.value


@by_name
def test_fits_of_every_shape_give_a_model_that_pickles(name):
    """Test fits with two targets and with weights, some of them zero.

    The predictions are accurate and equal to those of a fit without the rows of weight zero. The attribute
    `reg_lambda_` is the given lambda, if one is given. A pickled model has the same predictions.
    """
    X, y = _data(T=2)
    w = np.random.default_rng(2).uniform(0.5, 2.0, size=len(X))
    w[:5] = 0.0
    for reg_lambda in ("auto", 0.02):
        unfitted = HyperKernelRidge(criterion=name, reg_lambda=reg_lambda, random_state=0, **QUICK)
        model, fewer = clone(unfitted).fit(X, y, w), clone(unfitted).fit(X[5:], y[5:], w[5:])
        assert model.score(X[5:], y[5:]) > 0.8
        assert (model.reg_lambda_ == 0.02) == (reg_lambda == 0.02)
        assert_allclose(model.predict(X), fewer.predict(X), rtol=0, atol=1e-6)
        assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), model.predict(X))
    assert HyperKernelRidge(reg_lambda=0.03, max_iter=1).fit(X, y).reg_lambda_ == 0.03


@by_name
@pytest.mark.parametrize("n_centers", ["all", 20])
def test_constant_targets(name, n_centers):
    """Test that a constant target is predicted up to rounding, and hardly influences the fit of another target."""
    X, y = _data()
    model = HyperKernelRidge(criterion=name, reg_lambda="auto", n_centers=n_centers, random_state=0, **QUICK)
    assert_allclose(clone(model).fit(X, np.full(80, 0.1)).predict(2.0 * X), 0.1, rtol=1e-9)
    alone, beside = clone(model).fit(X, y), clone(model).fit(X, np.column_stack([y, np.full(80, 0.1)]))
    assert beside.reg_lambda_ == pytest.approx(alone.reg_lambda_, rel=1e-4)
    assert_allclose(beside.predict(X)[:, 0], alone.predict(X), rtol=0, atol=1e-4)


WRONG = [{"reg_lambda": "auto"}, {"reg_lambda": "best", "criterion": "loo"}, {"reg_lambda": 0.0, "criterion": "loo"}]
WRONG += [{"criterion": "likelihood"}, {"criterion": None}]
WRONG += [{"criterion": c, "solver": s} for c in CRITERIA for s in ("varpro", "agd", VarPro(), AGD())]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_errors_name_the_argument(wrong):
    message = "criterion.*solver" if "solver" in wrong else f"^{next(iter(wrong))} must be"
    with pytest.raises(ValueError, match=message):
        HyperKernelRidge(**wrong).fit(*_data())
    HyperKernelRidge(**wrong | {"reg_lambda": 0.1, "criterion": "loo", "solver": LBFGS()}, max_iter=1).fit(*_data())


def test_evidence_is_better_than_the_training_objective_where_a_full_map_overfits():
    """Test that the evidence has a larger test R2 than the training objective, at the same lambda.

    The data have 150 rows and 20 columns, and the target depends on two columns. The mean test R2 is 0.93 for the
    evidence and 0.85 for the training objective. Two cases are not tested: a learned lambda, and the leave-one-out
    error, which is not always better than the training objective.
    """
    gains = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X, noise = rng.normal(size=(1150, 20)), 0.2 * rng.normal(size=150)
        z = np.sin(1.5 * X[:, 0]) + 0.5 * X[:, 1]
        model = HyperKernelRidge(n_centers="all", random_state=seed, max_iter=100)
        ours, theirs = (
            clone(model).set_params(criterion=c).fit(X[:150], z[:150] + noise) for c in ("evidence", "training")
        )
        gains.append(ours.score(X[150:], z[150:]) - theirs.score(X[150:], z[150:]))
    assert np.mean(gains) > 0.03
