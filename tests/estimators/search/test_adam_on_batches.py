"""Learning a map from random batches of rows with Adam.

The tests cover the batches, the steps compared with a plain implementation, failures, deadlines and checkpoints.
"""

import math
import time
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from hkrr._base.resume_journal import Journal
from hkrr._base.threads import in_threads
from hkrr._maps import Diagonal, Full
from hkrr.criteria import Evidence, LeaveOneOut
from hkrr.estimators.search.adam_on_batches import learn_on_batches
from hkrr.estimators.search.candidates import Candidate, Origin
from hkrr.estimators.search.search_problem import SearchProblem
from hkrr.exceptions import CheckpointError
from hkrr.kernels import KERNELS
from hkrr.rows import InMemoryRows

B0 = np.array([[0.8, 0.1, 0.0], [0.0, 0.6, -0.2], [0.1, 0.0, 0.4]])


class Recorded(Evidence):
    """An evidence criterion that records its batches, and raises an error in the steps listed in `failing`."""

    batches, failing, error = [], (), FloatingPointError("in this step")

    def __init__(self, rows, *arguments):
        super().__init__(rows, *arguments)
        if rows.n_rows > 1:
            self.batches.append(rows.gather()[0])

    def reduced(self, B, reg_lambda=None):
        found = super().reduced(B, reg_lambda)
        if len(self.batches) - 1 not in self.failing:
            return found
        if self.error is None:
            return replace(found, grad=np.full_like(found.grad, np.nan))
        raise self.error


@pytest.fixture
def recorded(monkeypatch):
    """Return `Recorded` without recorded batches and failing steps."""
    for name, value in {"batches": [], "failing": (), "error": FloatingPointError("in this step")}.items():
        monkeypatch.setattr(Recorded, name, value)
    return Recorded


def _data(n=40, T=1, D=3, noise=0.2, seed=0):
    rng = np.random.default_rng([seed, n, T, D])
    X = rng.normal(size=(n, D))
    Y = np.stack([np.sin(2.0 * X[:, 0] + t) + 0.3 * X[:, 1] for t in range(T)], axis=1)
    return X - X.mean(axis=0), Y - Y.mean(axis=0) + noise * rng.normal(size=(n, T))


def _problem(rows=None, make=Evidence, **options):
    rows = InMemoryRows(*_data()) if rows is None else rows
    return SearchProblem(rows, make, range(1, 4), True, 2, rng=np.random.RandomState(0), **options)


def _start(kernel="gaussian", diagonal=False):
    shape, B = (Diagonal(), np.array([0.8, 0.4, 0.2])) if diagonal else (Full(), B0)
    return Candidate(Origin.SQUARE, KERNELS[kernel].with_gamma(1.0), B, 0.2, 3.0, 4.0, shape=shape)


def _same(one, two):
    assert_array_equal(one.B, two.B)
    assert (one.nu, one.n_iter, one.value, one.score) == (two.nu, two.n_iter, two.value, two.score)


# ------------------------------------------------------------------------------------ batches and steps


@pytest.mark.parametrize(("n_rows", "in_a_pass"), [(10, 4), (20, 2), (40, 1), (13, 3), (39, 1)])
def test_a_pass_draws_no_row_twice(recorded, n_rows, in_a_pass):
    """Test that the batches of one pass through the 40 rows have no row in common.

    If the batch size does not divide 40, the rows that do not fill a batch are left out of the pass.
    """
    X = _data()[0]
    learn_on_batches(_problem(make=recorded), _start(), n_rows, 3 * in_a_pass, 0)
    assert [len(batch) for batch in recorded.batches] == [n_rows] * (3 * in_a_pass)
    passes = [np.concatenate(recorded.batches[k : k + in_a_pass]) for k in range(0, 3 * in_a_pass, in_a_pass)]
    for one in passes:
        assert len(np.unique(one, axis=0)) == in_a_pass * n_rows
        assert {tuple(row) for row in one} <= {tuple(row) for row in X}
    assert not np.array_equal(passes[0], passes[1])


def test_a_batch_has_all_rows_if_there_are_fewer_rows(recorded):
    learn_on_batches(_problem(make=recorded), _start(), 100, 2, 0)
    assert [len(np.unique(batch, axis=0)) for batch in recorded.batches] == [40, 40]


@pytest.mark.parametrize("first", [1.0, 0.0])
def test_rows_of_weight_zero_are_left_out(recorded, first):
    X, Y = _data()
    w = np.where(np.arange(40) % 3 == 1, 0.0, 1.5)
    w[0] = first
    learn_on_batches(_problem(InMemoryRows(X, Y, w), recorded), _start(), 9, 6, 0)
    used = {tuple(row) for batch in recorded.batches for row in batch}
    assert used == {tuple(row) for row in X[w > 0]}


@pytest.mark.parametrize("diagonal", [False, True])
@pytest.mark.parametrize("make", [Evidence, LeaveOneOut])
@pytest.mark.parametrize(("T", "weighted"), [(1, False), (2, True)])
@pytest.mark.parametrize("n_steps", [1, 4, 15])
def test_steps_match_adam_by_hand(make, T, weighted, diagonal, n_steps):
    """Test that the learned map and noise agree with a plain implementation of Adam.

    Each batch contains all rows, so that the order of the rows does not matter. The unit of a step is 0.4 times the
    root mean square of the entries for a full map, and 0.1 for the logarithm of a scale or of nu. The first ten steps
    are shorter, and the steps decrease like a cosine. The library computes the gradients in float32, and this test in
    float64, so that the results differ slightly.
    """
    X, Y = _data(T=T)
    w = np.random.default_rng(5).uniform(0.5, 1.5, size=40) if weighted else None
    rows, start = InMemoryRows(X, Y, w), _start("matern32", diagonal)
    found = learn_on_batches(_problem(rows, make), start, 40, n_steps, 0)
    criterion = make(rows, None, start.kernel, 1.0, True)
    B, log_nu = (np.log(start.B) if diagonal else start.B), math.log(start.nu)
    unit = 0.1 if diagonal else 0.4 * math.sqrt(sum(entry**2 for entry in B.ravel()) / B.size)
    units = np.append(np.full(B.size, unit), 0.1)
    mean = square = np.zeros(B.size + 1)
    for t in range(1, n_steps + 1):
        at = criterion.reduced(np.exp(B) if diagonal else B, math.exp(log_nu) / rows.total_weight)
        grad = units * np.append((at.grad * np.exp(B) if diagonal else at.grad).ravel(), at.grad_log_lambda)
        mean, square = 0.9 * mean + 0.1 * grad, 0.95 * square + 0.05 * grad**2
        size = min(1.0, t / 10.0) * (1.0 + math.cos(math.pi * (t - 1) / n_steps)) / 2.0
        change = size * units * (mean / (1.0 - 0.9**t)) / np.sqrt(square / (1.0 - 0.95**t))
        B, log_nu = B - change[:-1].reshape(B.shape), log_nu - change[-1]
    assert_allclose(found.B, np.exp(B) if diagonal else B, rtol=0, atol=2e-4)
    assert found.nu == pytest.approx(math.exp(log_nu), rel=2e-4)
    assert found.n_iter == n_steps


def test_nu_stays_within_its_range():
    """Test that nu stays between 1e-6 and 10 if the targets are pure noise, and if they have no noise.

    The runs start from nu = 10 and nu = 1e-6.
    """
    X, Y = _data(noise=0.0)
    for start, targets in ((10.0, np.random.default_rng(0).normal(size=(40, 1))), (1e-6, Y)):
        found = learn_on_batches(_problem(InMemoryRows(X, targets)), replace(_start(), nu=start), 20, 12, 0)
        assert 1e-6 * (1 - 1e-12) <= found.nu <= 10.0 * (1 + 1e-12)


def test_the_candidate_keeps_everything_but_its_map_and_noise():
    start = replace(_start(), n_rows=500, seconds=7.0, n_free_columns=3)
    found = learn_on_batches(_problem(), start, 20, 3, 0)
    assert found == replace(start, B=found.B, nu=found.nu, n_iter=3, seconds=found.seconds)
    assert 0.0 < found.seconds < 7.0
    assert_array_equal(start.B, B0)  # the start is not modified


def test_constant_columns_of_zeros_do_not_change_the_map():
    X, Y = _data()
    B = np.hstack([B0, np.zeros((3, 2))])
    rows = InMemoryRows(np.hstack([X, np.zeros((40, 2))]), Y)
    found = learn_on_batches(_problem(rows), replace(_start(), B=B), 20, 6, 0)
    assert_array_equal(found.B[:, 3:], 0.0)
    assert not np.any(found.B[:, 0] == B0[:, 0])


# ------------------------------------------------------------------------------------ the same result, better maps


def test_the_result_depends_on_the_seed_only():
    one, same, other = (learn_on_batches(_problem(), _start(), 15, 6, seed) for seed in (3, 3, 4))
    _same(one, same)
    assert not np.array_equal(one.B, other.B)


def test_the_result_does_not_depend_on_threads():
    expected = [learn_on_batches(_problem(), _start(), 15, 6, seed) for seed in range(4)]
    threaded = _problem(InMemoryRows(*_data()).on_threads(2), n_threads=2)
    found = in_threads(lambda seed: learn_on_batches(threaded, _start(), 15, 6, seed), range(4), 2)
    for one, other in zip(expected, found, strict=True):
        _same(one, other)


@pytest.mark.parametrize("kernel", ["gaussian", "laplace"])
def test_a_planted_map_improves_the_evidence_of_other_rows(kernel):
    """Test that a map learned from 1,500 rows has a better evidence on 300 other rows than the starting map.

    The target depends on three directions of eight columns.
    """
    rng = np.random.default_rng(0)
    X, planted = rng.normal(size=(1_800, 8)), np.linalg.qr(rng.normal(size=(8, 8)))[0][:3]
    P = X @ planted.T
    Y = (np.sin(1.5 * P[:, 0]) + P[:, 1] * P[:, 2])[:, None] + 0.1 * rng.normal(size=(1_800, 1))
    start = replace(_start(kernel), B=0.3 * np.eye(8))
    found = learn_on_batches(_problem(InMemoryRows(X[:1_500], Y[:1_500])), start, 200, 60, 0)
    held_out = Evidence(InMemoryRows(X[1_500:], Y[1_500:]), None, start.kernel, 1.0, True)
    before, after = (held_out.reduced(one.B, one.nu / 300.0).value for one in (start, found))
    assert after < before - 0.2
    # The learned map has most of its size in the planted directions.
    assert np.sum((found.B @ planted.T) ** 2) > 0.8 * np.sum(found.B**2)


# ------------------------------------------------------------------------------------ failures and deadlines


@pytest.mark.parametrize("error", [FloatingPointError(), ZeroDivisionError(), np.linalg.LinAlgError(), None], ids=repr)
def test_a_step_that_fails_is_skipped(recorded, monkeypatch, error):
    """Test that a run of eight steps, of which three fail, makes the other five steps.

    The first step fails too. If `error` is None, a step that fails has the gradient NaN.
    """
    monkeypatch.setattr(recorded, "failing", (0, 3, 4))
    monkeypatch.setattr(recorded, "error", error)
    found = learn_on_batches(_problem(make=recorded), _start(), 10, 8, 0)
    assert (found.n_iter, found.value, found.score) == (5, 3.0, 4.0)
    assert len(recorded.batches) == 8
    assert np.all(np.isfinite(found.B))
    assert not np.array_equal(found.B, B0)


@pytest.mark.parametrize("error", [FloatingPointError(), None], ids=repr)
def test_if_all_steps_fail_the_score_is_infinite(recorded, monkeypatch, error):
    monkeypatch.setattr(recorded, "failing", range(8))
    monkeypatch.setattr(recorded, "error", error)
    found = learn_on_batches(_problem(make=recorded), _start(), 10, 8, 0)
    assert (found.n_iter, found.value, found.score) == (0, math.inf, math.inf)
    assert_array_equal(found.B, B0)
    assert found.nu == pytest.approx(0.2)


def test_after_the_deadline_there_is_no_step():
    found = learn_on_batches(_problem(deadline=time.perf_counter() - 1.0), _start(), 10, 8, 0)
    assert (found.n_iter, found.value, found.score) == (0, math.inf, math.inf)
    assert_array_equal(found.B, B0)


def _stop_after(monkeypatch, n_steps):
    """Let the deadline pass after this number of steps."""
    answers = iter([True] * n_steps)
    monkeypatch.setattr(SearchProblem, "in_time", property(lambda _: next(answers, False)))


def test_a_run_ends_at_the_deadline(monkeypatch):
    _stop_after(monkeypatch, 3)
    found = learn_on_batches(_problem(), _start(), 10, 8, 0)
    assert (found.n_iter, found.value, found.score) == (3, 3.0, 4.0)
    assert np.all(np.isfinite(found.B))
    assert not np.array_equal(found.B, B0)


# ------------------------------------------------------------------------------------ checkpoints


def test_a_finished_run_is_restored_from_the_journal(recorded):
    """Test that a repeated run makes no evaluation, and that runs with other settings are not restored."""
    journal = Journal(lambda _: None, 1e9)
    with journal.activated():
        first = learn_on_batches(_problem(make=recorded), _start(), 10, 5, 0)
        assert len(recorded.batches) == 5
        _same(learn_on_batches(_problem(make=recorded), _start(), 10, 5, 0), first)
        assert len(recorded.batches) == 5
        start = _start()
        others = [(start, 10, 5, 1), (start, 11, 5, 0), (start, 10, 4, 0), (replace(start, nu=0.3), 10, 5, 0)]
        others += [(replace(start, B=2.0 * B0), 10, 5, 0), (_start("laplace"), 10, 5, 0)]
        for k, settings in enumerate(others):
            learn_on_batches(_problem(make=recorded), *settings)
            assert len(journal.steps) == k + 2


def test_a_run_that_was_cut_by_the_deadline_is_not_stored(monkeypatch):
    journal = Journal(lambda _: None, 1e9)
    with journal.activated():
        with monkeypatch.context() as patch:
            _stop_after(patch, 3)
            assert learn_on_batches(_problem(), _start(), 10, 5, 0).n_iter == 3
        assert journal.steps == {}
        whole = learn_on_batches(_problem(), _start(), 10, 5, 0)
    _same(whole, learn_on_batches(_problem(), _start(), 10, 5, 0))


@pytest.mark.parametrize(
    "stored", [(B0[:2], 0.1, 5), (B0, -1.0, 5), (B0, math.inf, 5), (B0, math.nan, 5), None, "text"]
)
def test_a_stored_run_that_was_changed_raises(stored):
    journal = Journal(lambda _: None, 1e9)
    with journal.activated():
        learn_on_batches(_problem(), _start(), 10, 5, 0)
        (name,) = journal.steps
        journal.steps[name] = stored
        with pytest.raises(CheckpointError):
            learn_on_batches(_problem(), _start(), 10, 5, 0)
