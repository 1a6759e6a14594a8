"""Tests of the evidence with Nystrom centers, minimized over lambda at a given map.

With Nystrom centers, the evidence is a variational bound. The oracle `Bound` evaluates this bound with NumPy on a fine
grid of lambda, and refines each local minimum.
"""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize_scalar

from hkrr.criteria import Evidence, LeaveOneOut
from hkrr.estimators.search.candidates import Candidate, Origin, descend
from hkrr.rows import InMemoryRows
from support import oracles_criteria as criteria_oracles
from support.oracles import gram, project
from support.random_problems import ONE_GAMMA, Problem, case_id, central_difference, make_problem, unit_direction

LOWEST, HIGHEST = 1e-12, 1e3
GRID = np.linspace(math.log(LOWEST), math.log(HIGHEST), 401)
BY_ID = {case.id: case for case in ONE_GAMMA}
GAUSSIAN, MATERN = BY_ID["gaussian-gamma0.3"], BY_ID["matern32-nu1.5-gamma0.3"]
PRODUCT, SMOOTH_PRODUCT = BY_ID["product_laplace-gamma0.3"], BY_ID["product_matern-nu1.5-gamma0.3"]
each_kernel = pytest.mark.parametrize("case", [GAUSSIAN, MATERN, PRODUCT], ids=case_id)
each_layout = pytest.mark.parametrize(("T", "weighted"), [(1, False), (3, True)], ids=["plain", "targets-weights"])
each_seed = pytest.mark.parametrize("seed", range(3))


class Bound:
    """The variational bound of Titsias (2009) for a kernel k, a problem p and a map B, as a function of lambda.

    The bound l is

        q_t  =  min_beta ( |sqrt(w) y_t - V' beta|^2 + nu |beta|^2 ) / (nu W),
        l    =  mean_t log(q_t) / 2 + ( log det S + (W - c) log nu ) / (2 W)
                + ( sum_i w_i k(x_i, x_i) - tr VV' ) / (2 nu W).

    The vector w contains the weights, W is their sum, nu = lambda W, and c is the number of centers. K is the kernel
    matrix of rows and centers, and K_cc = T T' that of the centers, with its Cholesky factor T. Moreover, V = T^-1 K'
    diag(sqrt(w)) and S = V V' + nu I. The mean is over the targets t that are not zero everywhere.
    """

    def __init__(self, k, p, B):
        P, C, root = project(p.X, B), project(p.centers, B), np.sqrt(p.weights)[:, None]
        self.T = np.linalg.cholesky(gram(k, C, C))
        self.V = np.linalg.solve(self.T, (root * gram(k, P, C)).T)
        self.y, self.W = root * p.Y, np.sum(p.weights)
        self.left_out = sum(w * k(x, x) for w, x in zip(p.weights, P, strict=True)) - np.sum(self.V**2)

    def solve(self, reg_lambda):
        """Return beta and S for each lambda of a vector."""
        S = self.V @ self.V.T + (reg_lambda * self.W)[:, None, None] * np.eye(len(self.V))
        return np.linalg.solve(S, np.broadcast_to(self.V @ self.y, (len(S), len(self.V), self.y.shape[1]))), S

    def values(self, reg_lambda):
        """Return the bound for each lambda of a vector."""
        nu, c, W = reg_lambda * self.W, len(self.V), self.W
        beta, S = self.solve(reg_lambda)
        penalty = nu[:, None] * np.sum(beta**2, axis=1)
        q = (np.sum((self.y - self.V.T @ beta) ** 2, axis=1) + penalty) / (nu[:, None] * W)
        q = q[:, np.any(self.y != 0.0, axis=0)]
        log_det = np.linalg.slogdet(S)[1] + (W - c) * np.log(nu)
        return np.mean(np.log(q), axis=1) / 2.0 + log_det / (2.0 * W) + self.left_out / (2.0 * nu * W)

    def value(self, log_lambda):
        """Return the bound for one log lambda."""
        return float(self.values(np.exp([log_lambda]))[0])

    def minima(self):
        """Return the pairs (value, lambda) of all local minima in the range of lambda, the lowest value first."""
        on_grid, found = self.values(np.exp(GRID)), []
        for i, value in enumerate(on_grid):
            if value > min(on_grid[max(i - 1, 0) : i + 2]):
                continue
            if i in (0, len(GRID) - 1):
                found.append((float(value), math.exp(GRID[i])))
                continue
            inside = {"bounds": (GRID[i - 1], GRID[i + 1]), "method": "bounded", "options": {"xatol": 1e-9}}
            end = minimize_scalar(self.value, **inside)
            found.append((float(end.fun), math.exp(end.x)))
        return sorted(found)

    def alpha(self, reg_lambda):
        """Return the coefficients of the kernel functions, T^-T beta."""
        return np.linalg.solve(self.T.T, self.solve(np.array([reg_lambda]))[0][0])


def _problem(seed=0, m=36, c=8, T=1, weighted=False, noise=0.2):
    """Return a problem with m rows, c centers and T targets, which are smooth functions of Bx plus noise.

    The best lambda is not at an end of its range.
    """
    p = make_problem(m=m, D=3, c=c, T=T, weighted=weighted, seed=seed)
    B = 1.2 * np.linalg.qr(p.B.T)[0].T
    P, rng = p.X @ B.T, np.random.default_rng([seed, 1])
    Y = np.stack([np.sin(P[:, 0] + t) + 0.3 * P[:, 1] for t in range(T)], axis=1) + noise * rng.normal(size=(m, T))
    return p._replace(y=Y[:, 0] if T == 1 else Y, B=B)


def _criterion(p, kernel, reg_lambda=1.0, **options):
    return Evidence(InMemoryRows(p.X, p.y, p.w, **options), p.centers, kernel, reg_lambda, True)


def _assert_same(one, two, rtol):
    """Check that two results agree, with tolerances relative to the largest entry.

    A rounding error of the criterion changes the best lambda, and with it alpha, by about the square root of the error.
    """
    assert one.value == pytest.approx(two.value, rel=rtol, abs=rtol)
    assert one.reg_lambda == pytest.approx(two.reg_lambda, rel=1e-5)
    assert_allclose(one.grad, two.grad, rtol=0, atol=1e-5 * np.abs(two.grad).max())
    assert_allclose(one.alpha, two.alpha, rtol=0, atol=1e-5 * np.abs(two.alpha).max())


def _assert_finite(found):
    assert math.isfinite(found.value)
    assert np.all(np.isfinite(found.grad))
    assert np.all(np.isfinite(found.alpha))
    assert LOWEST * (1 - 1e-12) <= found.reg_lambda <= HIGHEST * (1 + 1e-12)


@each_kernel
@each_layout
def test_the_bound_of_the_oracle_is_that_of_dense_matrices(case, T, weighted):
    """Test that the oracle of this file agrees with `oracles_criteria.evidence`, which uses dense m x m matrices."""
    p = _problem(T=T, weighted=weighted)
    lambdas = np.array([1e-4, 1e-2, 1.0])
    dense = [criteria_oracles.evidence(case.value, p.X, p.Y, p.weights, p.centers, one, p.B) for one in lambdas]
    assert_allclose(Bound(case.value, p, p.B).values(lambdas), dense, rtol=0, atol=1e-9)


@each_kernel
@each_layout
@each_seed
def test_matches_a_dense_search_over_lambda(case, T, weighted, seed):
    """Test that the value, lambda and alpha agree with the lowest minimum that the oracle finds.

    The 36 rows are computed in blocks of 11, so that the last block is smaller.
    """
    p = _problem(seed, T=T, weighted=weighted)
    found, bound = _criterion(p, case.kernel, block_size=11).profiled(p.B), Bound(case.value, p, p.B)
    value, reg_lambda = bound.minima()[0]
    assert 1e-8 < reg_lambda < 100.0
    assert found.value == pytest.approx(value, abs=1e-9)
    assert found.reg_lambda == pytest.approx(reg_lambda, rel=1e-4)
    assert abs(found.grad_log_lambda) <= 1e-6
    alpha = bound.alpha(found.reg_lambda)
    assert_allclose(found.alpha, alpha, rtol=0, atol=1e-8 * np.abs(alpha).max())


@each_kernel
@each_layout
@each_seed
def test_equals_the_criterion_at_the_found_lambda(case, T, weighted, seed):
    """Test that `profiled` returns the same result as `reduced` at the lambda that `profiled` has found.

    The result does not depend on the lambda of the constructor.
    """
    p = _problem(seed, T=T, weighted=weighted)
    criterion = _criterion(p, case.kernel)
    found = criterion.profiled(p.B)
    expected = criterion.reduced(p.B, found.reg_lambda)
    assert found.value == pytest.approx(expected.value, rel=1e-13, abs=1e-13)
    assert found.grad_log_lambda == pytest.approx(expected.grad_log_lambda, abs=1e-11)
    assert_allclose(found.grad, expected.grad, rtol=1e-10, atol=1e-12)
    assert_allclose(found.alpha, expected.alpha, rtol=1e-10, atol=1e-12)
    other = _criterion(p, case.kernel, 1e-7).profiled(p.B)
    assert (other.value, other.reg_lambda) == (found.value, found.reg_lambda)


@each_kernel
@each_layout
@each_seed
def test_gradient_of_the_minimum(case, T, weighted, seed):
    """Test that the derivative along a random direction agrees with central differences.

    The central differences are those of the minimum over lambda that the oracle finds.
    """
    p = _problem(seed, T=T, weighted=weighted)
    found = _criterion(p, case.kernel).profiled(p.B)
    assert 1e-8 < found.reg_lambda < 100.0
    direction = unit_direction(np.random.default_rng(seed), p.B.shape)
    slope = central_difference(lambda B: Bound(case.value, p, B).minima()[0][0], p.B, direction)
    assert abs(slope - np.sum(found.grad * direction)) <= 1e-6 * np.linalg.norm(found.grad)


@each_kernel
@pytest.mark.parametrize("weighted", [False, True])
def test_a_target_of_zeros_changes_nothing(case, weighted):
    p = _problem(T=2, weighted=weighted)
    beside = p._replace(y=np.column_stack([p.y[:, 0], np.zeros(len(p.y)), p.y[:, 1]]))
    found, expected = (_criterion(one, case.kernel).profiled(p.B) for one in (beside, p))
    assert_allclose(found.alpha[:, 1], 0.0, atol=1e-14)
    assert found.value == pytest.approx(expected.value, abs=1e-12)
    assert found.reg_lambda == pytest.approx(expected.reg_lambda, rel=1e-5)
    assert_allclose(found.grad, expected.grad, rtol=0, atol=1e-6 * np.abs(expected.grad).max())
    assert_allclose(found.alpha[:, [0, 2]], expected.alpha, rtol=0, atol=1e-5 * np.abs(expected.alpha).max())
    value, reg_lambda = Bound(case.value, beside, p.B).minima()[0]
    assert found.value == pytest.approx(value, abs=1e-9)
    assert found.reg_lambda == pytest.approx(reg_lambda, rel=1e-4)


@each_kernel
def test_only_targets_of_zeros(case):
    p = _problem(T=2)
    found = _criterion(p._replace(y=np.zeros_like(p.y)), case.kernel).profiled(p.B)
    _assert_finite(found)
    assert_allclose(found.alpha, 0.0, atol=1e-14)


@each_kernel
@pytest.mark.parametrize("T", [1, 3])
def test_integer_weights_are_repeated_rows(case, T):
    """Test that one row of weight 2 equals two copies, and that integer weights from 0 to 3 equal repeated rows."""
    p = _problem(T=T)
    one_twice = np.ones(len(p.X))
    one_twice[5] = 2.0
    for counts in (one_twice, np.random.default_rng(0).integers(0, 4, size=len(p.X)).astype(float)):
        copies = np.repeat(np.arange(len(p.X)), counts.astype(int))
        weighted, repeated = p._replace(w=counts), p._replace(X=p.X[copies], y=p.y[copies])
        one, two = (_criterion(data, case.kernel).profiled(p.B) for data in (weighted, repeated))
        _assert_same(one, two, 1e-11)
        assert one.value == pytest.approx(Bound(case.value, repeated, p.B).minima()[0][0], abs=1e-9)


@each_kernel
@pytest.mark.parametrize("scale", [1e-6, 1e4])
def test_the_unit_of_the_target_does_not_change_lambda(case, scale):
    p = _problem(T=2, weighted=True)
    found, base = (_criterion(one, case.kernel).profiled(p.B) for one in (p._replace(y=scale * p.y), p))
    assert_allclose(found.alpha / scale, base.alpha, rtol=0, atol=1e-5 * np.abs(base.alpha).max())
    assert found.value == pytest.approx(base.value + math.log(scale), abs=1e-11)
    assert found.reg_lambda == pytest.approx(base.reg_lambda, rel=1e-5)


def test_only_the_evidence_with_centers_profiles_lambda():
    p = _problem()
    rows = InMemoryRows(p.X, p.y)
    for learn_lambda in (True, False):
        assert Evidence(rows, p.centers, MATERN.kernel, 1.0, learn_lambda).profiles_lambda is True
        assert Evidence(rows, None, MATERN.kernel, 1.0, learn_lambda).profiles_lambda is False
        for centers in (p.centers, None):
            assert LeaveOneOut(rows, centers, MATERN.kernel, 1.0, learn_lambda).profiles_lambda is False
    assert _criterion(p, MATERN.kernel).at(1e-2, GAUSSIAN.kernel).profiles_lambda is True


@each_kernel
@each_seed
def test_targets_of_noise(case, seed):
    """Test that the best lambda is large for random targets.

    If the targets are orthogonal to the kernel functions of all centers, lambda is at the upper end of its range.
    """
    p = _problem(seed, T=2)
    noise = np.random.default_rng(seed).normal(size=p.y.shape)
    K = case.kernel(p.X @ p.B.T, p.centers @ p.B.T)
    unexplained = noise - K @ np.linalg.lstsq(K, noise, rcond=None)[0]
    found = _criterion(p._replace(y=unexplained), case.kernel).profiled(p.B)
    _assert_finite(found)
    assert found.reg_lambda == pytest.approx(HIGHEST, rel=1e-6)
    random = p._replace(y=noise)
    found, (value, _) = _criterion(random, case.kernel).profiled(p.B), Bound(case.value, random, p.B).minima()[0]
    _assert_finite(found)
    assert found.reg_lambda > 0.03
    assert found.value == pytest.approx(value, abs=1e-9)


@each_kernel
@each_seed
def test_targets_without_noise(case, seed):
    """Test that lambda is almost zero for targets that the model can interpolate, and that the model interpolates them.

    The rows are three copies of the centers, and y is a linear combination of the kernel functions of the centers. The
    kernel matrix of the rows then equals its Nystrom approximation, so the bound decreases down to the smallest lambda.
    """
    p = _problem(seed)
    X = np.tile(p.centers, (3, 1))
    K = case.kernel(X @ p.B.T, p.centers @ p.B.T)
    p = p._replace(X=X, y=K @ p.alpha[:, 0])
    found = _criterion(p, case.kernel).profiled(p.B)
    _assert_finite(found)
    assert found.reg_lambda < 1e-9
    assert_allclose(K @ found.alpha[:, 0], p.y, rtol=0, atol=1e-6 * np.abs(p.y).max())
    smooth = _problem(seed, noise=0.0)
    _assert_finite(_criterion(smooth, case.kernel).profiled(smooth.B))


def _problem_with_two_minima(seed):
    """Return a random problem of 20 to 59 rows. For the seeds below, the bound has two local minima in lambda."""
    rng = np.random.default_rng(seed)
    m, c = int(rng.integers(20, 60)), int(rng.integers(4, 11))
    X, B = rng.normal(size=(m, 3)), 10.0 ** rng.uniform(-0.5, 0.5) * rng.normal(size=(2, 3))
    y = np.sin(3.0 * X[:, 0]) + 10.0 ** rng.uniform(-1.0, 0.5) * rng.normal(size=m)
    return Problem(X, y, None, X[:c], B, np.zeros((c, 1)))


@pytest.mark.parametrize("seed", [738, 743, 32935, 27167, 38485, 49110])
def test_the_lower_of_two_minima_is_found(seed):
    """Test that the global minimum over lambda is found. The two minima differ by 6e-7 to 2e-3 nats per row."""
    p = _problem_with_two_minima(seed)
    (value, reg_lambda), (second, _) = Bound(GAUSSIAN.value, p, p.B).minima()
    found = _criterion(p, GAUSSIAN.kernel).profiled(p.B)
    assert 1e-7 < second - value < 2e-3
    assert found.value == pytest.approx(value, abs=1e-9)
    assert found.reg_lambda == pytest.approx(reg_lambda, rel=1e-4)


@pytest.mark.parametrize("case", [GAUSSIAN, MATERN, SMOOTH_PRODUCT], ids=case_id)
@pytest.mark.parametrize("nu", [1e-6, 30.0])
def test_descent_ends_at_a_stationary_point_of_map_and_lambda(case, nu):
    """Test that at the end of a run of L-BFGS, the derivatives in the map and in log lambda are zero.

    The runs start from two values of nu, which is lambda times the total weight. The kernels have a derivative
    everywhere. The product Laplace kernel is left out, because a run can end at a kink, where the gradient is not zero.
    """
    p = _problem(m=48, c=10, weighted=True)
    kernel = case.kernel.with_gamma(1.0)
    criterion = _criterion(p, kernel)
    start = Candidate(Origin.RANDOM, kernel, 0.7 * p.B, nu)
    end, result = descend(criterion, start, 300, tol=1e-6, plateau=0.0)
    W = criterion.rows.total_weight
    found = criterion.reduced(end.B, end.nu / W)
    assert result.reason in ("converged", "stalled")
    assert not end.lambda_at_bound
    assert end.value == pytest.approx(found.value, abs=1e-12)
    assert end.value < criterion.profiled(start.B).value
    assert abs(found.grad_log_lambda) <= 1e-6
    assert np.linalg.norm(found.grad) <= 1e-4
    assert_allclose(result.alpha, found.alpha, rtol=0, atol=1e-9 * np.abs(found.alpha).max())
    for factor in (0.5, 2.0):
        assert criterion.reduced(end.B, factor * end.nu / W).value > end.value


@each_kernel
@each_layout
def test_tensors_give_the_same_result(case, T, weighted):
    torch = pytest.importorskip("torch")
    from hkrr.rows.torch_device import TorchRows

    p = _problem(T=T, weighted=weighted)
    tensors = [None if array is None else torch.as_tensor(array) for array in (p.X, p.y, p.w)]
    rows = TorchRows(*tensors, device="cpu", block_size=11)
    criterion = Evidence(rows, p.centers, case.kernel, 1.0, True)
    found, expected = criterion.profiled(p.B), _criterion(p, case.kernel).profiled(p.B)
    assert criterion.profiles_lambda is True
    assert isinstance(found.value, float)
    assert isinstance(found.reg_lambda, float)
    assert isinstance(found.grad, np.ndarray)
    assert isinstance(found.alpha, np.ndarray)
    _assert_same(found, expected, 1e-11)
