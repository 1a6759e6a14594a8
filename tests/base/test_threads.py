"""Thread pools: the order of results, errors, nested calls, the limit on BLAS threads, and forked processes."""

import json
import subprocess
import sys
from threading import Barrier, Event, Thread, get_ident
from time import sleep

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from hkrr._base import threads
from hkrr._base.threads import in_pool_thread, in_threads, single_threaded_blas
from hkrr.rows import InMemoryRows, threads_for_sums


def _blas_threads():
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


@pytest.mark.parametrize("n_threads", [1, 2, 3])
@pytest.mark.parametrize("n", [0, 1, 2, 20])
def test_results_are_in_the_order_of_the_items(n_threads, n):
    assert in_threads(lambda k: k * k, (k for k in range(n)), n_threads) == [k * k for k in range(n)]


def test_all_threads_work_at_the_same_time():
    both = Barrier(2, timeout=60)

    def work(k):
        both.wait()
        return k

    assert in_threads(work, [0, 1], 2) == [0, 1]


@pytest.mark.parametrize("n_threads", [1, 2, 3])
def test_an_error_is_raised_and_blas_restored(n_threads):
    def work(k):
        if k == 3:
            raise KeyError("fourth item")
        return k

    with threadpool_limits(2, user_api="blas"):
        before = _blas_threads()
        with pytest.raises(KeyError, match="fourth item"):
            in_threads(work, range(8), n_threads)
        assert _blas_threads() == before
    assert in_threads(work, range(3), n_threads) == [0, 1, 2]


def test_blas_has_one_thread_inside_and_is_restored():
    with threadpool_limits(2, user_api="blas"):
        before = _blas_threads()
        assert set(before) == {2}
        for n_threads in (1, 2):
            inside = in_threads(lambda k: _blas_threads(), range(4), n_threads)
            assert {number for one in inside for number in one} == {1}
            assert _blas_threads() == before


def _elsewhere(work):
    """Return the result of ``work()`` in a new thread, and a function that ends the new thread."""
    found, end = [], Event()

    def run():
        found.append(work())
        end.wait(60)

    thread = Thread(target=run)
    thread.start()
    while not found and thread.is_alive():
        sleep(0.01)
    return found[0], lambda: (end.set(), thread.join(60))


def test_the_last_thread_to_leave_restores_blas():
    """Test that the number of BLAS threads is restored when the last of two threads leaves the shared limit.

    The first thread, which has set the limit, leaves earlier.
    """
    with threadpool_limits(2, user_api="blas"):
        before = _blas_threads()
        limit = threads._SharedLimit()
        limit.__enter__()
        _, end = _elsewhere(limit.__enter__)
        limit.__exit__()
        assert set(_blas_threads()) == {1}
        _, end_too = _elsewhere(limit.__exit__)
        assert _blas_threads() == before
        end()
        end_too()


def test_a_limit_of_the_caller_is_restored():
    """Test that a limit on BLAS threads set by the caller is restored after a computation in a different thread."""
    outside = _blas_threads()
    with threadpool_limits(2, user_api="blas"):
        inside, end = _elsewhere(lambda: in_threads(lambda k: _blas_threads(), range(2), 1))
        assert {number for one in inside for number in one} == {1}
        assert set(_blas_threads()) == {2}
    assert _blas_threads() == outside
    end()


def test_threads_of_a_pool_are_recognised():
    foreign = []
    thread = Thread(target=lambda: foreign.append(in_pool_thread()))
    thread.start()
    thread.join(timeout=60)
    assert foreign == [False]
    assert not in_pool_thread()
    assert in_threads(lambda k: in_pool_thread(), range(3), 2) == [True] * 3
    assert in_threads(lambda k: in_pool_thread(), range(3), 1) == [False] * 3


def test_nested_calls_stay_on_their_thread():
    def inner(k):
        return get_ident()

    def outer(k):
        return get_ident(), in_threads(inner, range(5), 3)

    for own, inside in in_threads(outer, range(6), 2):
        assert set(inside) == {own}
        assert own != get_ident()


# This script runs in a separate process, because deadlocked threads cannot be ended.
_NESTED = """
import json
import numpy as np
from hkrr.rows import InMemoryRows
from hkrr._base.threads import in_threads

def nested(depth, n):
    if depth == 0:
        return n
    return sum(in_threads(lambda k: nested(depth - 1, n + k), range(5), 2))

rows = InMemoryRows(np.arange(200.0).reshape(100, 2), np.zeros(100), block_size=5, n_threads=2)

def sums(k):
    total, = rows.sum(lambda X, Y, w: (X.sum() + len(X) * k,))
    return [float(total), float(rows.map(lambda X, Y, w: (X[:, 0] + k,))[-1])]

print(json.dumps({"nested": nested(3, 0), "sums": in_threads(sums, range(7), 2)}))
"""


def test_nested_calls_do_not_deadlock():
    """Test that nested calls end, although they have more items than the pool has threads.

    If a nested call waited for a free thread, all threads would wait for each other (a deadlock).
    """
    done = subprocess.run([sys.executable, "-c", _NESTED], capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["nested"] == sum(i + j + k for i in range(5) for j in range(5) for k in range(5))
    assert found["sums"] == [[sum(range(200)) + 100.0 * k, 198.0 + k] for k in range(7)]


@pytest.mark.parametrize("n_threads", [1, 2])
def test_nested_sums_are_bitwise_the_same(n_threads):
    rng = np.random.default_rng(0)
    rows = InMemoryRows(rng.normal(size=(1003, 4)), rng.normal(size=1003), block_size=50, n_threads=2)

    def work(k):
        return rows.sum(lambda X, Y, w: (X.T @ Y,))[0].tobytes()

    assert set(in_threads(work, range(5), n_threads)) == {work(0)}


def test_large_terms_are_summed_by_fewer_threads():
    widths = [1, 100, 1000, 3000, 10_000, 100_000]
    allowed = [threads_for_sums(width) for width in widths]
    assert allowed == sorted(allowed, reverse=True)
    assert allowed[-1] == 1
    for width, most in zip(widths, allowed, strict=True):
        assert most == 1 or 16 * width**2 * most <= 1 << 29


def test_pools_and_limits_are_reset_after_a_fork(monkeypatch):
    """Test that a forked process gets a new pool and a new limit on BLAS threads.

    Without the reset, the forked process would have the pool, the lock and the limit of its parent: a pool whose
    threads do not exist, a lock that is never released, and a limit that is never removed.
    """
    limit = threads._SharedLimit()
    monkeypatch.setattr(threads, "_shared_limit", limit)
    old = threads.pool(2)
    with threadpool_limits(2, user_api="blas"):
        limit.__enter__()
        held = limit._limit
        limit._lock.acquire()
        threads._after_fork()
        held.close()  # this process is not really forked, so restore its number of BLAS threads
        assert single_threaded_blas() is limit
        before = _blas_threads()
        assert set(before) == {2}
        with single_threaded_blas():
            assert set(_blas_threads()) == {1}
        assert _blas_threads() == before
        assert threads.pool(2) is not old
        assert in_threads(lambda k: k + 1, range(5), 2) == [1, 2, 3, 4, 5]
        assert _blas_threads() == before
