"""Tests of the objective, compared with naive implementations in plain loops (the oracles), scikit-learn and autograd.

Identities that the objective must satisfy are tested too.
"""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.kernel_ridge import KernelRidge

from hkrr import kernels
from hkrr.objective import Objective
from hkrr.rows import InMemoryRows
from support import oracles
from support.random_problems import ONE_GAMMA, case_id, central_difference, make_problem, torch_gram, unit_direction

LAMBDA = 0.05
every_kernel = pytest.mark.parametrize("case", ONE_GAMMA, ids=case_id)
BY_ID = {case.id: case for case in ONE_GAMMA}
FEW = [BY_ID[name] for name in ("gaussian-gamma0.3", "matern32-nu1.5-gamma0.3", "product_laplace-gamma0.3")]
few_kernels = pytest.mark.parametrize("case", FEW, ids=case_id)
layouts = pytest.mark.parametrize(
    ("T", "weighted"), [(1, False), (1, True), (3, False), (3, True)], ids=["T1", "T1-weights", "T3", "T3-weights"]
)


def _objective(problem, kernel, reg_lambda=LAMBDA, **options):
    rows = InMemoryRows(problem.X, problem.y, problem.w, **options)
    return Objective(rows, problem.centers, kernel, reg_lambda)


def _oracle(problem, reg_lambda=LAMBDA):
    """Return the arguments that the functions in `oracles` take after the kernel."""
    return problem.X, problem.Y, problem.weights, problem.centers, reg_lambda


def _everything(objective, B, alpha):
    """Return all values and arrays that the objective computes at (B, alpha)."""
    reduced = objective.reduced(B)
    arrays = [
        objective.inner(B).grad(alpha),
        objective.value_and_grad_B(B, alpha)[1],
        objective.solve_alpha(B),
        reduced.grad,
    ]
    return [np.asarray(objective.value(B, alpha)), np.asarray(reduced.value), *arrays]


@every_kernel
@layouts
def test_matches_the_oracle(case, T, weighted):
    """Test that the value and the gradients match the oracle. The 17 rows are in blocks of 7, 7 and 3 rows.

    The order of the sums changes the last digits, so the tolerance is 1e-10.
    """
    p = make_problem(T=T, weighted=weighted)
    objective = _objective(p, case.kernel, block_size=7)
    arguments = (*_oracle(p), p.B, p.alpha)
    value, gradient = oracles.loss(case.value, *arguments), oracles.grad_alpha(case.value, *arguments)
    assert objective.value(p.B, p.alpha) == pytest.approx(value, rel=1e-10)
    assert_allclose(objective.inner(p.B).grad(p.alpha), gradient, rtol=1e-10, atol=1e-10)
    expected = oracles.grad_B(case.value, case.slope, *arguments)
    assert_allclose(objective.value_and_grad_B(p.B, p.alpha)[1], expected, rtol=1e-10, atol=1e-10)


@every_kernel
@layouts
def test_minimizer_matches_the_oracle(case, T, weighted):
    """Test that the fitted values, the minimum and the gradient at the minimizer match the oracle.

    The fitted values and the minimum are unique. The minimizer alpha is unique only if K_cc, the kernel matrix of the
    centers, is invertible, so it is compared only if K_cc is well conditioned. For polynomial kernels of low degree,
    K_cc is singular.
    """
    p = make_problem(T=T, weighted=weighted)
    objective = _objective(p, case.kernel, block_size=7)
    expected = oracles.solve_alpha(case.value, *_oracle(p), p.B)
    K = oracles.gram(case.value, oracles.project(p.X, p.B), oracles.project(p.centers, p.B))
    Kcc = oracles.gram(case.value, oracles.project(p.centers, p.B), oracles.project(p.centers, p.B))
    minimum = oracles.loss(case.value, *_oracle(p), p.B, expected)
    reduced = objective.reduced(p.B)
    for alpha in (objective.solve_alpha(p.B), reduced.alpha):
        assert alpha.shape == (5, T)
        assert_allclose(K @ alpha, K @ expected, rtol=1e-9, atol=1e-9 * np.abs(p.y).max())
        if np.linalg.cond(Kcc) < 1e6:
            assert_allclose(alpha, expected, rtol=1e-8, atol=1e-8 * np.abs(expected).max())
    assert reduced.value == pytest.approx(minimum, rel=1e-10)
    gradient = oracles.grad_B(case.value, case.slope, *_oracle(p), p.B, expected)
    assert_allclose(reduced.grad, gradient, rtol=1e-8, atol=1e-8 * np.abs(gradient).max())


@every_kernel
def test_normal_equations_and_envelope(case):
    p = make_problem(m=40, c=8, T=3)
    objective = _objective(p, case.kernel)
    alpha = objective.solve_alpha(p.B)
    K = oracles.gram(case.value, oracles.project(p.X, p.B), oracles.project(p.centers, p.B))
    Kcc = oracles.gram(case.value, oracles.project(p.centers, p.B), oracles.project(p.centers, p.B))
    A = K.T @ (p.w[:, None] * K) + LAMBDA * p.w.sum() * Kcc
    right = K.T @ (p.w[:, None] * p.Y)
    assert np.linalg.norm(A @ alpha - right) <= 1e-10 * np.linalg.norm(right)
    reduced = objective.reduced(p.B)
    gradient = objective.value_and_grad_B(p.B, alpha)[1]
    assert_allclose(reduced.grad, gradient, rtol=1e-9, atol=1e-9 * np.abs(gradient).max())
    # The reduced value may include a ridge term of the size of rounding errors.
    assert reduced.value == pytest.approx(objective.value(p.B, alpha), rel=1e-8)


@every_kernel
@pytest.mark.parametrize("seed", range(2))
def test_directional_derivatives(case, seed):
    """Test that the gradients of L and H along random directions equal central differences.

    L(B, alpha) is the objective, and H(B) = min_alpha L(B, alpha) is the reduced objective.
    """
    p = make_problem(m=23, D=5, d=2, c=6, T=3, seed=seed)
    objective = _objective(p, case.kernel, block_size=10)
    rng = np.random.default_rng(seed)
    in_B, in_alpha = unit_direction(rng, p.B.shape), unit_direction(rng, p.alpha.shape)
    reduced = objective.reduced(p.B)
    checks = [
        (lambda B: objective.value(B, p.alpha), p.B, in_B, objective.value_and_grad_B(p.B, p.alpha)[1]),
        (lambda alpha: objective.value(p.B, alpha), p.alpha, in_alpha, objective.inner(p.B).grad(p.alpha)),
        (lambda B: objective.reduced(B).value, p.B, in_B, reduced.grad),
    ]
    for function, point, direction, gradient in checks:
        difference = central_difference(function, point, direction)
        floor = 1e-9 * abs(function(point))  # rounding error of the value divided by the step
        assert abs(difference - np.sum(gradient * direction)) <= 1e-6 * np.linalg.norm(gradient) + floor


@few_kernels
@pytest.mark.parametrize("block_size", [1, 7, 17, 100, "auto"])
def test_blocks_agree_to_rounding_and_threads_bitwise(case, block_size):
    p = make_problem(T=3)
    one, two = (
        _everything(_objective(p, case.kernel, block_size=block_size, n_threads=n), p.B, p.alpha) for n in (1, 2)
    )
    for by_one, by_two in zip(one, two, strict=True):
        assert_array_equal(by_one, by_two)
    for by_blocks, whole in zip(one, _everything(_objective(p, case.kernel), p.B, p.alpha), strict=True):
        assert_allclose(by_blocks, whole, rtol=1e-9, atol=1e-9 * np.abs(whole).max())


def test_threads_do_not_change_sums_of_large_blocks():
    """Test that results with one and two threads are equal in every bit for large blocks.

    The blocks are so large that BLAS would use several threads and thereby change the order of additions.
    """
    p = make_problem(m=2100, D=50, d=5, c=600)
    one, two = (_objective(p, kernels.Gaussian(gamma=0.3), block_size=1024, n_threads=n).reduced(p.B) for n in (1, 2))
    assert one.value == two.value
    assert_array_equal(one.alpha, two.alpha)
    assert_array_equal(one.grad, two.grad)


@few_kernels
@pytest.mark.parametrize("lowest", [0.5, 0.0])
def test_without_centers_all_rows_are_centers(case, lowest):
    p = make_problem(m=20, T=3)
    p.w[3] = lowest
    exact, given = (Objective(InMemoryRows(p.X, p.y, p.w), c, case.kernel, LAMBDA).reduced(p.B) for c in (None, p.X))
    K = case.kernel(p.X @ p.B.T, p.X @ p.B.T)
    assert exact.value == pytest.approx(given.value, rel=1e-9)
    assert_allclose(K @ exact.alpha, K @ given.alpha, rtol=1e-8, atol=1e-8)
    assert_allclose(exact.grad, given.grad, rtol=1e-7, atol=1e-8 * np.abs(given.grad).max())


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("kernel", "options"),
    [
        (kernels.Gaussian(gamma=0.2), {"kernel": "rbf", "gamma": 0.2}),
        (kernels.ProductLaplace(gamma=0.2), {"kernel": "laplacian", "gamma": math.sqrt(0.4)}),
        (kernels.Polynomial(degree=3, coef0=1.0, gamma=0.2), {"kernel": "poly", "gamma": 0.2, "degree": 3, "coef0": 1}),
    ],
    ids=["rbf", "laplacian", "poly"],
)
def test_agrees_with_kernel_ridge(kernel, options, weighted):
    """Test that with B = I and all rows as centers, predictions equal those of KernelRidge with alpha = lambda W.

    W is the sum of the weights.
    """
    p = make_problem(m=40, D=3, weighted=weighted)
    new = np.random.default_rng(9).normal(size=(30, 3))
    objective = Objective(InMemoryRows(p.X, p.y, p.w), p.X, kernel, 0.01)
    predictions = kernel(new, p.X) @ objective.solve_alpha(np.eye(3))
    ridge = KernelRidge(alpha=0.01 * p.weights.sum(), **options).fit(p.X, p.y, sample_weight=p.w)
    assert_allclose(predictions[:, 0], ridge.predict(new), rtol=1e-8, atol=1e-8)


# The closed form needs an invertible K_cc. The polynomial kernel of degree 1 is excluded: it has only two features, so
# that K_cc is singular for five centers.
@pytest.mark.parametrize("case", [case for case in ONE_GAMMA if case.shape.get("degree") != 1], ids=case_id)
def test_reduced_gradient_agrees_with_autograd(case):
    """Test that the reduced gradient agrees with autograd.

    Autograd differentiates the closed form of alpha(B) and does not use the envelope theorem.
    """
    torch = pytest.importorskip("torch")
    p = make_problem(m=30, D=4, d=2, c=5, T=3)
    X, Y, w, centers = (torch.tensor(a) for a in (p.X, p.Y, p.w, p.centers))
    B = torch.tensor(p.B, requires_grad=True)
    K, Kcc = torch_gram(torch, case, X @ B.T, centers @ B.T), torch_gram(torch, case, centers @ B.T, centers @ B.T)
    alpha = torch.linalg.solve(K.T @ (w[:, None] * K) + LAMBDA * w.sum() * Kcc, K.T @ (w[:, None] * Y))
    value = (w[:, None] * (K @ alpha - Y) ** 2).sum() / w.sum() + LAMBDA * (alpha * (Kcc @ alpha)).sum()
    value.backward()
    reduced = _objective(p, case.kernel).reduced(p.B)
    expected = B.grad.numpy()
    assert reduced.value == pytest.approx(value.item(), rel=1e-10)
    assert_allclose(reduced.grad, expected, rtol=1e-8, atol=1e-8 * np.abs(expected).max())


def _assert_same(first, second, p, rtol):
    for one, two in zip(_everything(first, p.B, p.alpha), _everything(second, p.B, p.alpha), strict=True):
        assert_allclose(one, two, rtol=rtol, atol=rtol * np.abs(two).max())


@few_kernels
@pytest.mark.parametrize("T", [1, 3])
def test_integer_weights_are_repeated_rows(case, T):
    p = make_problem(T=T)
    counts = np.random.default_rng(11).integers(0, 4, size=len(p.X))
    repeated = p._replace(X=np.repeat(p.X, counts, axis=0), y=np.repeat(p.y, counts, axis=0), w=None)
    weighted = p._replace(w=counts.astype(float))
    _assert_same(_objective(weighted, case.kernel), _objective(repeated, case.kernel), p, rtol=1e-9)


@few_kernels
def test_scale_of_the_weights_does_not_matter(case):
    p = make_problem(T=3)
    _assert_same(_objective(p._replace(w=37.0 * p.w), case.kernel), _objective(p, case.kernel), p, rtol=1e-10)
    equal, none = p._replace(w=np.full(len(p.X), 0.2)), p._replace(w=None)
    _assert_same(_objective(equal, case.kernel), _objective(none, case.kernel), p, rtol=1e-10)


@few_kernels
@pytest.mark.parametrize("T", [1, 3])
def test_offsets_and_scales_transform_the_arrays(case, T):
    p = make_problem(T=T)
    rng = np.random.default_rng(12)
    x_offset, x_scale, y_offset = rng.normal(size=4), rng.uniform(0.5, 2.0, size=4), rng.normal(size=T)
    by_rows = InMemoryRows(p.X, p.y, p.w, x_offset=x_offset, x_scale=x_scale, y_offset=y_offset, block_size=7)
    moved = p._replace(X=(p.X - x_offset) / x_scale, y=p.y - (y_offset[0] if T == 1 else y_offset))
    first = Objective(by_rows, p.centers, case.kernel, LAMBDA)
    _assert_same(first, _objective(moved, case.kernel), p, rtol=1e-10)
    assert_allclose(by_rows.take(np.array([3, 0, 16])), moved.X[[3, 0, 16]], rtol=1e-14)
    assert (by_rows.n_rows, by_rows.n_features, by_rows.n_targets) == (17, 4, T)
    assert by_rows.total_weight == pytest.approx(p.w.sum(), rel=1e-14)


@few_kernels
def test_float32_data_are_computed_in_float64(case):
    p = make_problem(T=3)
    single = p._replace(X=p.X.astype(np.float32), y=p.y.astype(np.float32))
    rounded = p._replace(X=single.X.astype(float), y=single.y.astype(float))
    _assert_same(_objective(single, case.kernel), _objective(rounded, case.kernel), p, rtol=1e-12)
    # Rounding the data to float32, a relative error of 6e-8, changes alpha by 6e-8 times a modest condition number.
    _assert_same(_objective(single, case.kernel), _objective(p, case.kernel), p, rtol=1e-4)


@every_kernel
@pytest.mark.parametrize("weighted", [False, True])
def test_lipschitz_is_the_largest_eigenvalue_of_the_hessian(case, weighted):
    p = make_problem(T=3, weighted=weighted)
    hessian = oracles.hessian_alpha(case.value, p.X, p.weights, p.centers, LAMBDA, p.B)
    expected = np.linalg.eigvalsh(hessian)[-1]
    assert _objective(p, case.kernel).inner(p.B).lipschitz() == pytest.approx(expected, rel=1e-10)


# Each function takes a problem, and returns a problem, gamma and lambda for which the linear system is ill-conditioned.
HARD = {
    "duplicate-centers": lambda p: (p._replace(centers=np.vstack([p.centers, p.centers])), 0.3, 1e-8),
    "all-centers-equal": lambda p: (p._replace(centers=np.repeat(p.centers[:1], 5, axis=0)), 0.3, 1e-8),
    "small-lambda": lambda p: (p, 0.3, 1e-8),
    "almost-no-lambda": lambda p: (p, 0.3, 1e-14),
    "nearly-constant-kernel": lambda p: (p, 1e-5, 1e-8),
    "constant-kernel": lambda p: (p, 1e-18, 1e-8),
    "tiny-B": lambda p: (p._replace(B=1e-9 * p.B), 0.3, 1e-8),
    "zero-B": lambda p: (p._replace(B=0.0 * p.B), 0.3, 1e-8),
    "nearly-diagonal-kernel": lambda p: (p, 1e6, 1e-8),
}
HARD_IDS = ["gaussian", "laplace", "matern32-nu1.5", "product_laplace", "anova-nu0.5", "polynomial-degree3-coef01.0"]


@pytest.mark.parametrize("hard", HARD)
@pytest.mark.parametrize("case", [BY_ID[f"{name}-gamma0.3"] for name in HARD_IDS], ids=case_id)
def test_ill_conditioned_problems_stay_finite(case, hard):
    """Test that the solution is finite and not worse than alpha = 0.

    If gamma and B are not extreme, the solution must also reach the minimum.
    """
    p, gamma, reg_lambda = HARD[hard](make_problem(m=40, c=12, T=2))
    objective = _objective(p, case.kernel.with_gamma(gamma), reg_lambda)
    reduced = objective.reduced(p.B)
    at_zero = objective.value(p.B, np.zeros((len(p.centers), 2)))
    assert np.isfinite(reduced.value)
    assert np.isfinite(reduced.alpha).all()
    assert np.isfinite(reduced.grad).all()
    assert objective.value(p.B, reduced.alpha) <= at_zero * (1.0 + 1e-12)
    assert reduced.value <= at_zero * (1.0 + 1e-12)
    if hard in ("duplicate-centers", "all-centers-equal", "small-lambda"):
        minimum = oracles.reduced(case.value, *_oracle(p, reg_lambda), p.B)
        assert reduced.value == pytest.approx(minimum, abs=1e-7 * at_zero)


@pytest.mark.parametrize("reg_lambda", [1e-3, 1e-5, 1e-7])
@few_kernels
def test_minimum_with_many_centers_and_little_penalty(case, reg_lambda):
    """Test that the minimum is accurate to nine digits if K_cc is ill-conditioned and lambda is small.

    The condition number of K_cc, the kernel matrix of the centers, is below 1e9. Whitening with the Cholesky factor of
    K_cc keeps nine digits of the minimum. The normal equations would lose these digits.
    """
    rng = np.random.default_rng(13)
    X = rng.uniform(-1.0, 1.0, size=(150, 3))
    y = np.sin(3.0 * X[:, :1]) + X[:, 1:2] ** 2 + 0.1 * rng.normal(size=(150, 1))
    objective = Objective(InMemoryRows(X, y), X[:60], case.kernel, reg_lambda)
    minimum = oracles.reduced(case.value, X, y, np.ones(150), X[:60], reg_lambda, np.eye(3))
    reduced = objective.reduced(np.eye(3))
    assert objective.value(np.eye(3), reduced.alpha) == pytest.approx(minimum, rel=1e-6)
    assert reduced.value == pytest.approx(minimum, rel=1e-6)
