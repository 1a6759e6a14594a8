"""Tests of the evidence at several maps in one batch, and of solver runs in lockstep.

Runs in lockstep are parallel runs of the solver. Each run requests the evidence at one map, and the requests of all
runs are computed in one batch.

The tests need no GPU: they use CPU rows whose attribute `pays_to_batch` is True, as for rows on a GPU, so that the
batched code runs. The oracle evaluates the variational bound for one map at a time with dense m x m matrices. It
minimizes the bound over a fine grid of lambda, refined by SciPy.
"""

import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize_scalar

from hkrr import HyperKernelRidgeCV
from hkrr._base import threads
from hkrr._base.resume_journal import Journal
from hkrr._base.threads import Lockstep
from hkrr._maps import Diagonal
from hkrr.criteria import Evidence, Grouped, LeaveOneOut
from hkrr.criteria import batched_evidence as module
from hkrr.criteria.batched_evidence import InLockstep, answer, can_be_batched, profiled_batch
from hkrr.estimators.search import candidates
from hkrr.estimators.search.candidates import FIRST_LAMBDA, Candidate, Origin, improve, improve_each
from hkrr.estimators.search.search_problem import SearchProblem
from hkrr.kernels import get_kernel
from hkrr.kernels.batched import pull_back, squared_distances
from hkrr.rows import InMemoryRows
from hkrr.rows.torch_device import TorchRows
from support.random_problems import central_difference, unit_direction

torch = pytest.importorskip("torch")

M, D, N_CENTERS = 60, 4, 8
DIRECTION = np.array([0.8, 0.6, 0.0, 0.0])
LOWEST, HIGHEST = 1e-12, 1e3
KERNELS = ["gaussian", "matern32", "matern52", "rational_quadratic"]
PHI = {  # the kernels with gamma = 1 as functions of the distance r, where ell = 1 / sqrt(2)
    "gaussian": lambda r: np.exp(-(r**2)),
    "matern32": lambda r: (1.0 + math.sqrt(6.0) * r) * np.exp(-math.sqrt(6.0) * r),
    "matern52": lambda r: (1.0 + math.sqrt(10.0) * r + 10.0 / 3.0 * r**2) * np.exp(-math.sqrt(10.0) * r),
    "rational_quadratic": lambda r: 1.0 / (1.0 + r**2),
}


def _kernel(name):
    return get_kernel(name).with_gamma(1.0)


def _maps(numbers=(2, 1, 3), seed=0):
    """Return one map for each entry of `numbers`, which is the number of directions of the map.

    The first direction of each map is close to DIRECTION, on which the targets depend.
    """
    rng = np.random.default_rng(seed)
    maps = [0.15 * rng.normal(size=(d, D)) for d in numbers]
    for B in maps:
        B[0] += DIRECTION
    return maps


def _data(T=1, weighted=False, constant=False, m=M, noise=0.2):
    """Return inputs X, T targets Y, and weights or None. If `constant` is True, the last target is zero.

    The first N_CENTERS rows are the centers. They are far apart, so that their kernel matrix is well conditioned.
    """
    rng = np.random.default_rng([T, weighted, m])
    X = rng.uniform(-3.0, 3.0, size=(m, D))
    grid = np.linspace(-3.5, 3.5, N_CENTERS)
    first = [int(np.argmin(np.abs(X @ DIRECTION - one))) for one in grid]
    X = X[first + sorted(set(range(m)) - set(first))]
    assert len(X) == m
    latent = X @ DIRECTION
    Y = np.column_stack([np.sin(latent), latent**2 / 5.0])[:, :T] + noise * rng.normal(size=(m, T))
    Y -= Y.mean(axis=0)
    if constant:
        Y[:, -1] = 0.0
    return X, Y, rng.uniform(0.3, 2.5, size=m) if weighted else None


def _criterion(X, Y, w=None, kernel="gaussian", centers=None, **options):
    """Return the evidence of CPU rows whose attribute `pays_to_batch` is True, as for rows on a GPU."""
    rows = TorchRows(X, Y, w, device="cpu", **options)
    rows.pays_to_batch = True
    return Evidence(rows, X[:N_CENTERS] if centers is None else centers, _kernel(kernel), 1.0, True)


class Bound:
    """The variational bound at one map B, as a function of lambda.

    The bound l of m rows is

        q_t = y_t' D A^-1 D y_t / W,
        l   = mean_t log(q_t) / 2 + (log det A + (W - m) log s) / (2 W) + sum_i w_i (1 - Q_ii) / (2 s W).

    The vector w contains the weights, W is their sum, D = diag(sqrt(w)) and s = lambda W. K is the kernel matrix of
    rows and centers, K_cc that of the centers, Q = K K_cc^-1 K' and A = D Q D + s I. The mean is over the targets t
    that are not zero. Distances are computed from differences of the inputs.
    """

    def __init__(self, kernel, X, Y, w, centers, B):
        def gram(one, two):
            return PHI[kernel](np.linalg.norm((one[:, None] - two[None]) @ B.T, axis=2))

        w = np.ones(len(X)) if w is None else w
        K, root = gram(X, centers), np.sqrt(w)
        self.K, self.K_cc, self.w = K, gram(centers, centers), w
        Q = K @ np.linalg.inv(self.K_cc) @ K.T
        self.Q, self.y, self.W = root[:, None] * Q * root, root[:, None] * Y, np.sum(w)
        self.left_out = np.sum(w * (1.0 - np.diag(Q)))

    def values(self, log_lambda):
        s, m = np.exp(log_lambda) * self.W, len(self.Q)
        A = self.Q + s[:, None, None] * np.eye(m)
        y = self.y[:, np.any(self.y != 0.0, axis=0)]
        q = np.sum(y * np.linalg.solve(A, np.broadcast_to(y, (len(s), *y.shape))), axis=1) / self.W
        log_det = np.linalg.slogdet(A)[1] + (self.W - m) * np.log(s)
        return np.mean(np.log(q), axis=1) / 2 + log_det / (2 * self.W) + self.left_out / (2 * s * self.W)

    def minimum(self, highest=HIGHEST):
        """Return the minimum over lambda up to `highest`, and the best lambda.

        The grid starts at 1e-9, because A is ill-conditioned for smaller values of lambda.
        """
        grid = np.linspace(math.log(1e-9), math.log(highest), 120)
        on_grid = self.values(grid)
        k = int(np.argmin(on_grid))
        assert k > 0
        if k == len(grid) - 1:
            return float(on_grid[k]), highest
        end = minimize_scalar(
            lambda one: self.values(np.array([one]))[0], bounds=(grid[k - 1], grid[k + 1]), options={"xatol": 1e-9}
        )
        return float(end.fun), math.exp(end.x)

    def alpha(self, reg_lambda):
        """Return the solution of (K' diag(w) K + lambda W K_cc) alpha = K' diag(w) y."""
        left = self.K.T @ (self.w[:, None] * self.K) + reg_lambda * self.W * self.K_cc
        return np.linalg.solve(left, self.K.T @ (np.sqrt(self.w)[:, None] * self.y))


def _check(kernel, data, maps, shift=0.0, **options):
    """Compare a batch of maps with the oracle, and with `Evidence.profiled` for each map.

    The inputs of the batch are shifted by the constant `shift`, which does not change the result.
    """
    X, Y, w = data
    criterion = _criterion(X + shift, Y, w, kernel, **options)
    assert can_be_batched(criterion)
    found = profiled_batch(criterion, maps)
    assert len(found) == len(maps)
    lost = 1.0 if shift == 0.0 else 1e3  # a large mean of X increases the rounding errors
    rng = np.random.default_rng(0)
    for one, B in zip(found, maps, strict=True):

        def bound(B):
            return Bound(kernel, X, Y, w, X[:N_CENTERS], B)

        value, reg_lambda = bound(B).minimum()
        assert 1e-6 < reg_lambda < 100.0  # the tests of the bounds on lambda are separate
        assert one.value == pytest.approx(value, abs=1e-9 * lost)
        assert one.reg_lambda == pytest.approx(reg_lambda, rel=1e-5 * lost)
        alpha = bound(B).alpha(one.reg_lambda)
        assert_allclose(one.alpha, alpha, rtol=0, atol=1e-7 * lost * np.abs(alpha).max())
        assert one.grad.shape == B.shape
        direction = unit_direction(rng, B.shape)
        slope = central_difference(lambda B: bound(B).minimum()[0], B, direction)
        assert abs(slope - np.sum(one.grad * direction)) <= 1e-6 * lost * np.linalg.norm(one.grad)

        single = criterion.profiled(B)
        assert one.value == pytest.approx(single.value, abs=1e-11 * lost)
        assert one.reg_lambda == pytest.approx(single.reg_lambda, rel=1e-6 * lost)
        assert_allclose(one.grad, single.grad, rtol=0, atol=1e-7 * lost * np.abs(single.grad).max())
        assert_allclose(one.alpha, single.alpha, rtol=0, atol=1e-6 * lost * np.abs(single.alpha).max())


# ------------------------------------------------------------------------------------------------- kernels.batched


def test_squared_distances_and_their_gradients():
    rng = np.random.default_rng(0)
    P, C, F = rng.normal(size=(3, 5, 2)), rng.normal(size=(3, 4, 2)), rng.normal(size=(3, 5, 4))
    u = squared_distances(P, C)
    assert_allclose(u, np.sum((P[:, :, None] - C[:, None]) ** 2, axis=3), atol=1e-13)
    to_P, to_C = pull_back(F * np.exp(-u), P, C)  # the kernel is phi(u) = exp(-u), so -phi'(u) = exp(-u)
    assert (to_P.shape, to_C.shape) == (P.shape, C.shape)

    def total(P, C):
        return np.sum(F * np.exp(-np.sum((P[:, :, None] - C[:, None]) ** 2, axis=3)))

    for at_P, at_C in ((1.0, 0.0), (0.0, 1.0)):
        dP, dC = at_P * rng.normal(size=P.shape), at_C * rng.normal(size=C.shape)
        slope = central_difference(lambda t: total(P + t * dP, C + t * dC), 0.0, 1.0)  # noqa: B023
        assert slope == pytest.approx(np.sum(to_P * dP) + np.sum(to_C * dC), abs=1e-8)


def test_squared_distances_of_equal_points_are_not_negative():
    P = 1e3 * np.random.default_rng(0).normal(size=(2, 30, 3))
    assert np.min(squared_distances(P, P)) >= 0.0


# -------------------------------------------------------------------------------------------------- profiled_batch


@pytest.mark.parametrize(
    ("T", "weighted", "constant", "block_size"), [(1, False, False, "auto"), (2, True, False, 7), (2, True, True, 13)]
)
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_batch_agrees_with_the_oracle(kernel, T, weighted, constant, block_size):
    """Test that a batch of maps with 2, 1 and 3 directions agrees with the oracle.

    The 60 rows are computed in one block, or in blocks of 7 or 13 rows. The last block is then smaller.
    """
    _check(kernel, _data(T, weighted, constant), _maps(), block_size=block_size)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("block_size", [1, M, 1000])
@pytest.mark.parametrize("kernel", KERNELS)
def test_more_batches_agree_with_the_oracle(kernel, block_size, seed):
    _check(kernel, _data(2, True), _maps((1, 4, 2, 2, 3), seed), block_size=block_size)


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_large_mean_of_the_inputs(kernel):
    _check(kernel, _data(), _maps(), shift=1e5)


def test_a_batch_of_one_map():
    _check("gaussian", _data(), _maps((2,)))


def test_coordinates_of_the_rows_are_used():
    X, Y, w = _data(2, True)
    offset, scale, y_offset = np.array([3.0, -1.0, 0.0, 9.0]), np.array([2.0, 0.5, 1.0, 4.0]), np.array([5.0, -2.0])
    rows = TorchRows(scale * X + offset, Y + y_offset, w, device="cpu")
    rows = rows.with_coordinates(offset, scale, y_offset)
    found = profiled_batch(Evidence(rows, X[:N_CENTERS], _kernel("gaussian"), 1.0, True), _maps())
    for one, expected in zip(found, profiled_batch(_criterion(X, Y, w), _maps()), strict=True):
        assert one.value == pytest.approx(expected.value, abs=1e-11)
        assert_allclose(one.grad, expected.grad, rtol=0, atol=1e-6 * np.abs(expected.grad).max())


def test_reweighted_rows_have_the_weights_of_the_oracle():
    X, Y, w = _data(1, True)
    base = _criterion(X, Y)
    rows = base.rows.reweighted(w)
    rows.pays_to_batch = True
    criterion = Evidence(rows, X[:N_CENTERS], base.kernel, 1.0, True)
    scaled = w * (M / np.sum(w))
    for one, B in zip(profiled_batch(criterion, _maps()), _maps(), strict=True):
        assert one.value == pytest.approx(Bound("gaussian", X, Y, scaled, X[:N_CENTERS], B).minimum()[0], abs=1e-9)


@pytest.mark.parametrize("kernel", ["gaussian", "matern52"])
def test_lambda_is_at_most_its_bound(kernel):
    """Test that the best lambda of each map is at most `most_lambda` of the criterion.

    The targets are so noisy that the best lambda of some maps would be larger. For these maps, lambda is `most_lambda`,
    and the value and the gradient are those at this lambda.
    """
    X, Y, w = _data(1, True, noise=30.0)
    criterion = _criterion(X, Y, w, kernel)
    free = profiled_batch(criterion, _maps())
    assert max(one.reg_lambda for one in free) > 1.0
    criterion.most_lambda = FIRST_LAMBDA
    rng, n_at_bound = np.random.default_rng(0), 0
    for one, B in zip(profiled_batch(criterion, _maps()), _maps(), strict=True):
        value, reg_lambda = Bound(kernel, X, Y, w, X[:N_CENTERS], B).minimum(FIRST_LAMBDA)
        assert one.reg_lambda <= FIRST_LAMBDA * (1.0 + 1e-12)
        assert one.reg_lambda == pytest.approx(reg_lambda, rel=1e-5)
        assert one.value == pytest.approx(value, abs=1e-9)
        n_at_bound += reg_lambda == FIRST_LAMBDA
        direction = unit_direction(rng, B.shape)
        slope = central_difference(
            lambda B: Bound(kernel, X, Y, w, X[:N_CENTERS], B).minimum(FIRST_LAMBDA)[0], B, direction
        )
        assert abs(slope - np.sum(one.grad * direction)) <= 1e-6 * np.linalg.norm(one.grad)
    assert n_at_bound > 0
    # The copies of the criterion that a search makes keep the bound.
    assert InLockstep(criterion, 0, Lockstep(1, list)).at(1e-3).most_lambda == FIRST_LAMBDA


def test_equal_centers_and_a_map_of_zeros():
    """Test that a batch gives the same values and gradients as single evaluations, although K_cc is singular.

    K_cc is the kernel matrix of the centers.
    """
    X, Y, w = _data()
    criterion = _criterion(X, Y, w, centers=X[[0, 0, 1, 2]])
    maps = [np.zeros((1, D)), *_maps((2,))]
    for one, B in zip(answer(criterion, maps), maps, strict=True):
        single = criterion.profiled(B)
        assert one.value == pytest.approx(single.value, abs=1e-9)
        assert_allclose(one.grad, single.grad, rtol=0, atol=1e-6)
    assert_allclose(answer(criterion, maps)[0].grad, 0.0, atol=1e-12)


# ---------------------------------------------------------------------------------------------- fallback and errors


def _criterion_that_needs_jitter():
    """Return a criterion whose kernel matrix of the centers needs more jitter than a batch adds.

    There are four groups of six almost equal centers, far from zero. The computed distances within a group are rounding
    errors.
    """
    X, Y, w = _data()
    noise = 1e-9 * np.random.default_rng(1).normal(size=(24, D))
    return _criterion(X, Y, w, centers=100.0 * np.repeat(X[:4], 6, axis=0) + noise)


def test_a_failed_factorization_leads_to_single_evaluations():
    criterion, maps = _criterion_that_needs_jitter(), [np.eye(2, D), np.eye(D)]
    assert profiled_batch(criterion, maps) is None
    found = answer(criterion, maps)
    for one, B in zip(found, maps, strict=True):
        single = criterion.profiled(B)
        assert (one.value, one.reg_lambda) == (single.value, single.reg_lambda)
        assert_array_equal(one.grad, single.grad)


def test_one_ill_conditioned_map_does_not_change_the_others():
    criterion, good = _criterion_that_needs_jitter(), np.zeros((1, D))
    assert profiled_batch(criterion, [good]) is not None
    found = answer(criterion, [good, np.eye(2, D)])
    assert found[0].value == pytest.approx(profiled_batch(criterion, [good])[0].value, abs=1e-9)
    assert math.isfinite(found[1].value)


def _criterion_that_overflows():
    """Return a criterion, and a map at which it overflows.

    The map multiplies the last column by 1e308. This column is zero, except in the last row, which is not a center.
    """
    X, Y, w = _data()
    X[:, 3] = 0.0
    X[-1, 3] = 100.0
    bad = _maps((2,))[0]
    bad[:, 3] = 1e308
    return _criterion(X, Y, w), bad


@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_map_that_fails_does_not_affect_the_others(position):
    for criterion, bad in (_criterion_that_overflows(), (_criterion(*_data()), np.full((2, D), np.nan))):
        maps = _maps((2, 1))
        maps.insert(position, bad)
        found = answer(criterion, maps)
        assert isinstance(found[position], FloatingPointError)
        for k in {0, 1, 2} - {position}:
            assert found[k].value == criterion.profiled(maps[k]).value


def test_an_error_in_the_choice_of_lambda_does_not_affect_the_other_maps():
    class Failing(Evidence):
        def best_nu(self, eigenvalues, squares, kappa_sum):
            if eigenvalues[-2] < 1e-6:  # the map of zeros
                raise FloatingPointError
            return super().best_nu(eigenvalues, squares, kappa_sum)

    base = _criterion(*_data())
    criterion = Failing(base.rows, base.centers, base.kernel, 1.0, True)
    found = answer(criterion, [np.zeros((1, D)), *_maps((2,))])
    assert isinstance(found[0], FloatingPointError)
    assert found[1].value == pytest.approx(base.profiled(_maps((2,))[0]).value, abs=1e-11)


def test_what_can_be_batched():
    X, Y, w = _data()
    good = _criterion(X, Y, w)
    rows, centers, kernel = good.rows, good.centers, good.kernel
    assert can_be_batched(good)
    assert can_be_batched(good.at(1e-2, _kernel("matern52")))
    assert not can_be_batched(Evidence(rows, None, kernel, 1.0, True))
    assert not can_be_batched(LeaveOneOut(rows, centers, kernel, 1.0, True))
    assert not can_be_batched(Evidence(InMemoryRows(X, Y), centers, kernel, 1.0, True))
    assert not can_be_batched(Evidence(TorchRows(X, Y, device="cpu"), centers, kernel, 1.0, True))
    assert not can_be_batched(Grouped(Evidence, InMemoryRows(X, Y), 2, kernel, 1.0))
    for other in (_kernel("laplace"), _kernel("product_matern32"), _kernel("polynomial"), kernel.with_gamma(2.0)):
        assert not can_be_batched(good.at(1.0, other))


# --------------------------------------------------------------------------------------------- improve_each in lockstep


def _starts(numbers=(2, 1, 3), kernel="gaussian"):
    return [Candidate(Origin.RANDOM, _kernel(kernel), B, 0.1) for B in _maps(numbers, seed=3)]


@pytest.fixture
def batches(monkeypatch):
    """Return a list to which the sizes of all batches are added, in the order in which they are computed."""
    sizes, real = [], module.profiled_batch

    def counted(criterion, maps):
        sizes.append(len(maps))
        return real(criterion, maps)

    monkeypatch.setattr(module, "profiled_batch", counted)
    return sizes


def _assert_same_ends(ends, expected, tolerance=1e-6):
    assert len(ends) == len(expected)
    for one, two in zip(ends, expected, strict=True):
        assert one.B.shape == two.B.shape
        assert one.value == pytest.approx(two.value, abs=tolerance)
        assert one.score == pytest.approx(two.score, abs=M * tolerance)


@pytest.mark.parametrize(("kernel", "T", "weighted"), [("gaussian", 1, False), ("matern52", 2, True)])
def test_runs_in_lockstep_end_like_single_runs(kernel, T, weighted, batches):
    criterion, starts = _criterion(*_data(T, weighted), kernel), _starts(kernel=kernel)
    criterion.most_lambda = FIRST_LAMBDA
    ends = improve_each(criterion, starts, 8)
    assert batches[0] == 3
    assert batches == sorted(batches, reverse=True)  # a batch contains a request of each run that has not ended
    n_batches = len(batches)
    _assert_same_ends(ends, [improve(criterion, start, 8, np.inf) for start in starts])
    assert len(batches) == n_batches
    X, Y, w = _data(T, weighted)
    for end, start in zip(ends, starts, strict=True):
        assert end.value < criterion.profiled(start.B).value - 1e-3
        value, reg_lambda = Bound(kernel, X, Y, w, criterion.centers, end.B).minimum(FIRST_LAMBDA)
        assert end.value == pytest.approx(value, abs=1e-8)
        assert end.nu == pytest.approx(reg_lambda * criterion.rows.total_weight, rel=1e-4)


def test_starts_that_cannot_be_batched_are_run_one_by_one(batches):
    criterion, starts = _criterion(*_data()), _starts()
    improve_each(criterion, starts[:1], 2)
    diagonal = replace(starts[0], B=np.ones(D), shape=Diagonal())
    exact = Evidence(InMemoryRows(*_data()), None, criterion.kernel, 1.0, True)
    improve_each(exact, [diagonal, diagonal], 2)
    assert improve_each(criterion, [], 2) == []
    assert batches == []


def test_the_kernel_of_each_start_is_used():
    """Test that each start is improved with its own kernel. The second start has another kernel than the criterion."""
    criterion, starts = _criterion(*_data()), [*_starts((2,)), *_starts((2,), "matern32")]
    ends = improve_each(criterion, starts, 3)
    assert abs(ends[0].value - ends[1].value) > 1e-4
    _assert_same_ends(ends, [improve(criterion, start, 3, np.inf) for start in starts])


def test_a_start_that_cannot_be_evaluated_keeps_its_place():
    criterion, starts = _criterion(*_data()), _starts()
    starts[1] = replace(starts[1], B=np.full((2, D), np.nan), value=-1.0, score=-1.0)
    ends = improve_each(criterion, starts, 3)
    assert (ends[1].value, ends[1].score) == (math.inf, math.inf)
    _assert_same_ends([ends[0], ends[2]], [improve(criterion, starts[k], 3, np.inf) for k in (0, 2)])


def test_after_the_deadline_only_the_first_start_is_evaluated(batches):
    criterion, starts = _criterion(*_data()), _starts()
    ends = improve_each(criterion, starts, 50, time.perf_counter() - 1.0)
    assert set(batches) == {1}
    assert ends[0].value <= criterion.profiled(starts[0].B).value + 1e-9
    assert [(end.value, end.score) for end in ends[1:]] == [(math.inf, math.inf)] * 2
    assert_array_equal(ends[2].B, starts[2].B)


def _pool_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("ThreadPoolExecutor")]


@pytest.fixture
def endless(monkeypatch):
    """Return a criterion, starts whose runs never converge, an event that the tenth batch sets, and all batch sizes."""
    criterion, starts, tenth, calls, real = _criterion(*_data(m=200)), _starts(), threading.Event(), [], answer

    def slow(criterion, maps):
        calls.append(len(maps))
        if len(calls) == 10:
            tenth.set()
        time.sleep(0.002)
        # The objective decreases by the same amount in each call, so that the runs never converge.
        return [replace(one, value=-len(calls)) for one in real(criterion, maps)]

    monkeypatch.setattr(candidates, "answer", slow)
    return criterion, starts, tenth, calls


@pytest.mark.timeout(30)
def test_ctrl_c_stops_all_runs(endless, monkeypatch):
    criterion, starts, tenth, calls = endless

    def interrupted_wait(futures):
        assert tenth.wait(10.0)
        raise KeyboardInterrupt

    before = set(_pool_threads())
    monkeypatch.setattr(threads, "wait", interrupted_wait)
    with pytest.raises(KeyboardInterrupt):
        improve_each(criterion, starts, 100_000)
    assert set(_pool_threads()) <= before
    assert len(calls) < 1000


@pytest.mark.timeout(30)
@pytest.mark.parametrize("n_started", [0, 1, 2])
def test_ctrl_c_before_all_threads_have_started(endless, n_started, monkeypatch):
    """Test that the threads that have started do not wait for threads that will never start."""

    class Interrupted(ThreadPoolExecutor):
        n = 0

        def submit(self, *problem):
            if self.n == n_started:
                time.sleep(0.1)  # the other threads are waiting for an answer
                raise KeyboardInterrupt
            self.n += 1
            return super().submit(*problem)

    before = set(_pool_threads())
    monkeypatch.setattr(threads, "ThreadPoolExecutor", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        improve_each(*endless[:2], 100_000)
    assert set(_pool_threads()) <= before


@pytest.mark.timeout(30)
def test_an_exit_inside_an_answer_is_raised_in_all_runs():
    def exits(requests):
        raise SystemExit(3)

    lockstep = Lockstep(3, exits)
    with pytest.raises(SystemExit):
        lockstep.map(lambda k: lockstep.ask(k, k))


@pytest.mark.timeout(30)
def test_requests_are_not_answered_after_the_runs_were_stopped(monkeypatch):
    """Test that after Ctrl-C, a run that waits for an answer ends without an answer.

    There is no answer before Ctrl-C either, because the other run never sends a request.
    """
    lockstep, sleeping = Lockstep(2, list), threading.Event()
    ended = []

    def run(k):
        try:
            if k == 0:
                return lockstep.ask(k, k)
            return sleeping.wait(10.0)
        except threads.Stopped:
            ended.append(k)
            sleeping.set()
            raise

    def interrupted_wait(futures):
        wait(futures, timeout=0.1)
        raise KeyboardInterrupt

    monkeypatch.setattr(threads, "wait", interrupted_wait)
    with pytest.raises(KeyboardInterrupt):
        lockstep.map(run)
    assert ended == [0]


# --------------------------------------------------------------------------------------------------------- journal


def test_the_journal_records_each_run_in_lockstep(batches):
    criterion, starts = _criterion(*_data()), _starts()
    journal = Journal(lambda journal: None, 0.0)
    with journal.activated():
        ends = improve_each(criterion, starts, 4)
        assert len(journal.steps) == 3
        assert journal.runs == {}
        n_batches = len(batches)
        again = improve_each(criterion, starts, 4)
    assert len(batches) == n_batches > 1
    for one, two in zip(ends, again, strict=True):
        assert (one.value, one.nu, one.score) == (two.value, two.nu, two.score)
        assert_array_equal(one.B, two.B)


def test_an_interrupted_lockstep_resumes_from_the_journal(batches, monkeypatch):
    criterion, starts = _criterion(*_data()), _starts()
    expected = improve_each(criterion, starts, 6)
    n_batches = len(batches)
    journal, real, calls = Journal(lambda journal: None, 0.0), answer, []

    def failing(criterion, maps):
        calls.append(maps)
        if len(calls) == 4:
            raise RuntimeError("the device was lost")
        return real(criterion, maps)

    monkeypatch.setattr(candidates, "answer", failing)
    with journal.activated():
        with pytest.raises(RuntimeError, match="the device was lost"):
            improve_each(criterion, starts, 6)
        assert [len(run.record.x) for run in journal.runs.values()] == [3, 3, 3]
        batches.clear()
        ends = improve_each(criterion, starts, 6)
    assert len(batches) == n_batches - 3  # the first three evaluations of each run are replayed
    _assert_same_ends(ends, expected, 1e-12)


# ------------------------------------------------------------------------------------------------------- whole fits


@pytest.fixture
def like_a_gpu(monkeypatch):
    """Set `pays_to_batch` of all TorchRows on the CPU, as on a GPU, so that the batched code runs."""
    real = TorchRows.__init__

    def init(self, *args, **options):
        real(self, *args, **options)
        self.pays_to_batch = True

    monkeypatch.setattr(TorchRows, "__init__", init)


def test_rows_on_the_device_keep_what_the_search_knows(like_a_gpu):
    """Test that rows which are moved to the device keep their data, weights and number of independent columns."""
    X, Y, w = _data(2, True)
    X[:, 3] = X[:, 0] + X[:, 1]
    rows = InMemoryRows(X, Y, w).count_free_columns()
    assert rows.n_free_columns == 3
    problem = SearchProblem(
        rows, Evidence, [1], False, 1, np.random.RandomState(0), place=TorchRows(X, Y, device="cpu").to_device
    )
    moved = problem.criterion(rows, X[:N_CENTERS], _kernel("gaussian"))
    assert isinstance(moved.rows, TorchRows)
    assert can_be_batched(moved)
    assert (moved.rows.n_free_columns, moved.rows.n_rows) == (3, M)
    assert moved.rows.total_weight == pytest.approx(np.sum(w))
    value = Bound("gaussian", X, Y, w, X[:N_CENTERS], _maps()[0]).minimum()[0]
    assert profiled_batch(moved, _maps())[0].value == pytest.approx(value, abs=1e-9)


def _planted(m):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(m, 5))
    y = np.sin(2.0 * X[:, 0]) + X[:, 1] ** 2 + 0.1 * rng.normal(size=m)
    return X, y


def _check_whole_fit(m, batches, tolerance=0.1, **options):
    X, y = _planted(m)
    new = np.random.default_rng(5).normal(size=X.shape)
    fits = [HyperKernelRidgeCV(device=device, random_state=0, **options).fit(X, y) for device in ("cpu", None)]
    assert max(batches) > 1
    on_device, expected = fits
    assert on_device.n_components_ == expected.n_components_ == 2
    assert on_device.map_shape_ == expected.map_shape_
    assert on_device.best_score_ == pytest.approx(expected.best_score_, abs=tolerance)
    assert on_device.score(X, y) == pytest.approx(expected.score(X, y), abs=1e-3)
    assert_allclose(on_device.predict(new), expected.predict(new), rtol=0, atol=0.05)


def test_a_whole_fit_like_on_a_gpu(like_a_gpu, batches):
    _check_whole_fit(120, batches, n_components=[1, 2, 3], n_init=2, kernel="gaussian")


@pytest.mark.thorough
@pytest.mark.parametrize("kernel", ["gaussian", "matern52"])
def test_a_larger_fit_like_on_a_gpu(like_a_gpu, batches, kernel):
    """Test that a larger fit with batches agrees with a fit without a device.

    With matern52, rounding errors change the score of the search by up to 1 nat. A relative change of y by 1e-12
    changes the score of a fit without a device by 0.4 nats.
    """
    _check_whole_fit(300, batches, tolerance=1.0 if kernel == "matern52" else 0.1, kernel=kernel)


@pytest.mark.thorough
def test_a_checkpoint_of_a_fit_like_on_a_gpu(like_a_gpu, batches, tmp_path):
    X, y = _planted(120)
    options = {"n_components": [1, 2, 3], "n_init": 2, "random_state": 0, "device": "cpu"}
    model = HyperKernelRidgeCV(checkpoint=tmp_path / "fit", checkpoint_every=0.0, **options)
    first = model.fit(X, y).predict(X)
    batches.clear()
    assert_array_equal(model.fit(X, y).predict(X), first)
    assert batches == []
