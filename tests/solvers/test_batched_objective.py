"""Tests of batched evaluations of several objectives, of runs in lockstep, and of single evaluations as a fallback.

Runs in lockstep wait until each of them has requested an evaluation. The requests are then answered in one batch.
"""

import threading

import numpy as np
import pytest
from numpy.testing import assert_allclose

from hkrr._base.threads import Lockstep
from hkrr.kernels import get_kernel
from hkrr.objective import Objective
from hkrr.rows import InMemoryRows
from hkrr.rows.torch_device import TorchRows
from hkrr.solvers import LBFGS, initialization
from hkrr.solvers.batched_objective import objective_can_be_batched, reduced_batch
from hkrr.solvers.initialization import _reduced_of_each, descend_lambda, sample_map

M, D, d = 300, 6, 2
MAPS = [sample_map(d, D, np.random.RandomState(k)) for k in range(3)]
# With narrow kernels the kernel matrix of the centers is well conditioned, and rounding errors are small.
GAMMAS, LAMBDAS = [5.0, 10.0, 20.0], [1e-1, 1e-2, 1e-3]


def _data(T=1):
    rng = np.random.default_rng(T)
    X = rng.normal(size=(M, D))
    Y = np.column_stack([np.sin(X[:, 0] + X[:, 1]), X[:, 2] ** 2])[:, :T]
    return X, Y + 0.1 * rng.normal(size=Y.shape)


def _rows(T=1, weighted=False, **options):
    w = np.random.default_rng(5).uniform(0.5, 2.0, size=M) if weighted else None
    rows = TorchRows(*_data(T), w, device="cpu", **options)
    rows.pays_to_batch = True  # as on a GPU
    return rows


def _objectives(rows, kernel, lambdas=LAMBDAS, n_centers=15):
    centers = rows.take(np.arange(n_centers))
    return [
        Objective(rows, centers, get_kernel(kernel).with_gamma(gamma), each)
        for gamma, each in zip(GAMMAS, lambdas, strict=True)
    ]


@pytest.mark.parametrize("shift", [0.0, 1e5])
@pytest.mark.parametrize(("weighted", "block_size"), [(False, "auto"), (True, 70)])
@pytest.mark.parametrize("T", [1, 2])
@pytest.mark.parametrize("kernel", ["gaussian", "matern32", "matern52", "rational_quadratic"])
def test_a_batch_agrees_with_single_evaluations(kernel, T, weighted, block_size, shift):
    rows = _rows(T, weighted, block_size=block_size).with_coordinates(np.full(D, -shift), None, None)
    objectives = _objectives(rows, kernel)
    assert all(objective_can_be_batched(objective) for objective in objectives)
    found = reduced_batch(objectives, MAPS)
    for one, objective, B in zip(found, objectives, MAPS, strict=True):
        expected = objective.reduced(B)
        # Rounding errors are largest for the coefficients. If the mean of X is large, they are larger for all values.
        lost = 1.0 if shift == 0.0 else 1e3
        assert_allclose(one.value, expected.value, rtol=1e-9 * lost)
        assert_allclose(one.grad, expected.grad, rtol=0.0, atol=1e-7 * lost * np.max(np.abs(expected.grad)))
        if shift == 0.0:
            assert_allclose(one.alpha, expected.alpha, rtol=0.0, atol=1e-5 * np.max(np.abs(expected.alpha)))


def test_unsupported_objectives_are_recognised():
    rows = _rows()
    assert not objective_can_be_batched(_objectives(rows, "laplace")[0])  # not smooth at distance zero
    assert not objective_can_be_batched(
        _objectives(rows, "gaussian", [1e-5] * 3)[0]
    )  # needs whitening, as lambda is small
    assert not objective_can_be_batched(Objective(rows, None, get_kernel("gaussian").with_gamma(1.0), 1e-2))
    assert not objective_can_be_batched(Objective(InMemoryRows(*_data()), _data()[0][:9], get_kernel("gaussian"), 1e-2))


def test_identical_centers_need_more_jitter():
    rows = _rows()
    centers = np.repeat(rows.take(np.arange(3)), 20, axis=0)
    objectives = [Objective(rows, centers, get_kernel("gaussian").with_gamma(1.0), 1e-4)] * 2
    found = reduced_batch(objectives, MAPS[:2])
    assert found is None or np.all(np.isfinite([one.value for one in found]))


@pytest.mark.parametrize("reg_lambda", [1e-3, 1e-5])
@pytest.mark.parametrize("kernel", ["gaussian", "laplace"])
def test_the_path_in_lockstep_gives_the_same_maps(kernel, reg_lambda, monkeypatch):
    monkeypatch.setattr(initialization, "_PATH_ITERATIONS", 2)  # more iterations would amplify rounding errors
    starts = [(B, get_kernel(kernel).with_gamma(5.0)) for B in MAPS]
    ends = []
    for rows in (_rows(), InMemoryRows(*_data())):
        rng = np.random.RandomState(0)
        ends.append(descend_lambda(rows, starts, LBFGS(), reg_lambda=reg_lambda, n_centers=15, rng=rng)[0])
    assert_allclose(ends[0], ends[1], rtol=0.0, atol=1e-5)


def test_requests_are_answered_together():
    batch_sizes = []

    def answer(requests):
        batch_sizes.append(len(requests))
        return [2 * request for request in requests]

    lockstep = Lockstep(3, answer)
    # Run k makes k + 1 requests. Runs that have ended do not block the remaining runs.
    assert lockstep.map(lambda k: [lockstep.ask(k, 10 * k + i) for i in range(k + 1)]) == [[0], [20, 22], [40, 42, 44]]
    assert batch_sizes == [3, 2, 1]


def test_an_error_is_raised_in_all_runs_and_no_thread_is_left():
    def answer(requests):
        raise ZeroDivisionError

    before = set(threading.enumerate())
    lockstep = Lockstep(2, answer)
    with pytest.raises(ZeroDivisionError):
        lockstep.map(lambda k: lockstep.ask(k, k))
    assert not [thread for thread in set(threading.enumerate()) - before if "ThreadPool" in thread.name]


def test_an_error_as_an_answer_is_raised_in_its_run_only():
    lockstep = Lockstep(2, lambda requests: [KeyError("zero"), requests[1]])

    def run(k):
        try:
            return lockstep.ask(k, 7)
        except KeyError:
            return "raised"

    assert lockstep.map(run) == ["raised", 7]


def test_too_few_answers_are_an_error_for_all():
    lockstep = Lockstep(3, lambda requests: requests[:1])
    with pytest.raises(ValueError, match="shorter"):
        lockstep.map(lambda k: lockstep.ask(k, k))


def test_a_failing_start_does_not_affect_the_others():
    rows = _rows()
    good, bad = _objectives(rows, "gaussian")[:2]

    class Failing:
        exact, kernel, reg_lambda, n_centers = False, bad.kernel, bad.reg_lambda, bad.n_centers
        rows = InMemoryRows(*_data())  # rows in memory are not batched

        def reduced(self, B):
            raise FloatingPointError

    found = _reduced_of_each([(good, MAPS[0]), (Failing(), MAPS[1])])
    assert found[0].value == good.reduced(MAPS[0]).value
    assert isinstance(found[1], FloatingPointError)


def test_an_error_in_one_run_does_not_stop_the_others():
    lockstep = Lockstep(2, lambda requests: requests)
    asked = []

    def run(k):
        if k == 0:
            raise KeyError(k)
        asked.extend(lockstep.ask(k, i) for i in range(3))

    with pytest.raises(KeyError):
        lockstep.map(run)
    assert asked == [0, 1, 2]
