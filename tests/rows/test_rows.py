"""Tests of rows in memory: sums over blocks, threads, BLAS threads, random draws, and moments of the columns."""

import multiprocessing
from threading import Barrier, Lock, Thread, get_ident

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_info, threadpool_limits

from hkrr import FitError, HyperKernelRidge
from hkrr._base.threads import single_threaded_blas
from hkrr.rows import InMemoryRows
from hkrr.rows.base import largest_target
from hkrr.rows.standardize import moments
from support.platforms import posix_only


def _rows(m=103, D=4, weighted=False, **options):
    rng = np.random.default_rng(0)
    w = rng.integers(0, 3, m).astype(float) if weighted else None
    return InMemoryRows(rng.normal(size=(m, D)), rng.normal(size=m), w, **options)


@pytest.mark.parametrize("block_size", [1, 7, 103, 1000, "auto"])
@pytest.mark.parametrize("n_threads", [1, 3])
def test_sum_and_map_process_every_row_once_in_order(block_size, n_threads):
    rows = _rows(weighted=True, block_size=block_size, n_threads=n_threads)
    X, Y, w = rows.gather()
    total, count = rows.sum(lambda X, Y, w: (w @ X, len(Y)))
    assert_allclose(total, w @ X, rtol=1e-12)
    assert count == 103
    assert_array_equal(rows.map(lambda X, Y, w: (Y[:, 0],)), Y[:, 0])


@pytest.mark.parametrize("width", [1, 3000, 50_000])
def test_sums_and_maps_are_bitwise_equal_for_any_number_of_threads(width):
    """Test that, with small and large values of ``width``, sums and maps do not depend on the number of threads.

    ``width`` is the number of columns of the largest array that the function of a block computes. If it is very large,
    fewer threads compute the sums.
    """
    C = np.random.default_rng(1).normal(size=(5, 4))

    def block(X, Y, w):
        return (w[:, None] * (X @ C.T),)

    for block_size in (1, 7, 1000, "auto"):
        rows = _rows(weighted=True, block_size=block_size)
        one, total = rows.map(block, width), rows.sum(lambda X, Y, w: (X.T @ X,), width)[0]
        for n_threads in (2, 3, 5):
            threaded = rows.on_threads(n_threads)
            assert_array_equal(threaded.map(block, width), one)
            assert_array_equal(threaded.sum(lambda X, Y, w: (X.T @ X,), width)[0], total)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
@pytest.mark.parametrize("columns", [(), (3,), (2, 2)])
def test_a_map_has_the_columns_and_the_dtype_of_its_blocks(dtype, columns):
    """Test that the result for a row does not depend on the block that contains the row."""

    def block(X, Y, w):
        return (np.multiply.outer(np.round(100.0 * Y[:, 0]).astype(dtype), np.ones(columns, dtype)),)

    whole = block(*_rows().gather())[0]
    assert whole.shape == (103, *columns)
    for block_size in (1, 7, 102, 103, 104, "auto"):
        found = _rows(block_size=block_size, n_threads=2).map(block)
        assert found.dtype == dtype
        assert_array_equal(found, whole)


@pytest.mark.parametrize("width", [1, 50_000])
def test_a_map_uses_all_threads_whatever_its_width(width):
    """Test that three threads are used: each thread waits in its first block for the other two threads.

    With fewer threads, the barrier would time out. The first block is computed before the threads start, because the
    shape of the output depends on it.
    """
    all_there, met, lock, first = Barrier(3), set(), Lock(), get_ident()

    def block(X, Y, w):
        if get_ident() == first:
            return (Y[:, 0],)
        with lock:
            new = get_ident() not in met
            met.add(get_ident())
        if new:
            all_there.wait(timeout=60)
        return (Y[:, 0],)

    rows = _rows(block_size=5).on_threads(3)
    assert_array_equal(rows.map(block, width), rows.gather()[1][:, 0])
    assert len(met) == 3


def test_all_blocks_of_a_map_have_a_single_blas_thread():
    threadpoolctl = pytest.importorskip("threadpoolctl")
    numbers = []

    def block(X, Y, w):
        numbers.append([one["num_threads"] for one in threadpoolctl.threadpool_info() if one["user_api"] == "blas"])
        return (X,)

    with threadpoolctl.threadpool_limits(2, "blas"):
        _rows(block_size=20).map(block)
    assert all(set(each) == {1} for each in numbers)


def test_on_threads_does_not_modify_the_rows():
    """Test that `on_threads` returns a copy that uses threads, and that the original rows use only the calling thread.

    The copy computes its first block in the calling thread too, because the shape of the output depends on this block.
    """
    rows = _rows(weighted=True, x_offset=np.arange(4.0), x_scale=np.full(4, 2.0), block_size=10)
    here = []
    threaded = rows.on_threads(3)

    def block(X, Y, w):
        here.append(get_ident())
        return (X,)

    assert_array_equal(threaded.map(block), rows.gather()[0])
    assert len(here) == 11
    assert here[0] == get_ident()
    assert get_ident() not in here[1:]
    here.clear()
    rows.map(block)
    assert set(here) == {get_ident()}
    assert (threaded.n_rows, threaded.n_counted, threaded.total_weight) == (
        rows.n_rows,
        rows.n_counted,
        rows.total_weight,
    )
    subset = threaded.subset(np.arange(50))
    here.clear()
    subset.map(block)
    assert get_ident() not in here[1:]  # subsets of threaded rows are threaded too


def test_an_error_in_a_block_is_passed_on():
    def broken(X, Y, w):
        raise RuntimeError("in a block")

    for method in ("sum", "map"):
        with pytest.raises(RuntimeError, match="in a block"):
            getattr(_rows(block_size=10, n_threads=2), method)(broken)


def _sum_in_child(rows, queue):
    queue.put(float(rows.sum(lambda X, Y, w: (X.sum(),))[0]))


@posix_only
@pytest.mark.filterwarnings(
    "ignore:This process:DeprecationWarning"
)  # Python 3.12 warns about forks of multithreaded processes
def test_threads_work_in_a_forked_process():
    rows = _rows(block_size=10, n_threads=2)
    expected = float(rows.sum(lambda X, Y, w: (X.sum(),))[0])
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_sum_in_child, args=(rows, queue), daemon=True)
    child.start()
    found = queue.get(timeout=60)
    child.join(timeout=60)
    assert found == expected


def test_only_rows_with_positive_weight_are_drawn():
    rows = _rows(weighted=True)
    w = rows.gather()[2]
    drawn = rows.draw(1000, np.random.RandomState(0))
    assert sorted(drawn) == list(np.flatnonzero(w))
    assert len(set(rows.draw(20, np.random.RandomState(0)))) == 20
    assert rows.at_most(len(drawn), np.random.RandomState(0)) is rows
    some = rows.at_most(20, np.random.RandomState(0))
    assert_array_equal(some.gather()[0], rows.take(rows.draw(20, np.random.RandomState(0))))


def _blas_threads():
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


def test_blas_limits_are_restored():
    """Test that the BLAS limits are restored after an error, and after two overlapping threads set the limit."""
    with threadpool_limits(2, user_api="blas"):
        before = _blas_threads()
        with single_threaded_blas():
            assert set(_blas_threads()) == {1}
        with pytest.raises(ZeroDivisionError), single_threaded_blas():
            1 / 0  # noqa: B018  # raises the error
        assert _blas_threads() == before

        inside, outside = Barrier(2, timeout=30), Barrier(2, timeout=30)

        def first():
            with single_threaded_blas():
                inside.wait()
            outside.wait()

        def second():
            with single_threaded_blas():
                inside.wait()
                outside.wait()

        threads = [Thread(target=first, daemon=True), Thread(target=second, daemon=True)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=60)
            assert not thread.is_alive()
        assert _blas_threads() == before


@pytest.mark.parametrize("weighted", [False, True])
def test_moments_match_those_of_scikit_learn(weighted):
    rows = _rows(weighted=weighted, x_scale=np.array([1e-3, 1.0, 1e3, 1.0]))
    X, Y, w = rows.gather()
    scaler = StandardScaler().fit(X, sample_weight=w)
    found = moments(rows)
    assert_allclose(found.x_mean, scaler.mean_, rtol=1e-10)
    assert_allclose(found.x_scale, scaler.scale_, rtol=1e-10)
    assert_allclose(found.y_mean, np.average(Y, axis=0, weights=w), rtol=1e-10)
    assert not found.constant.any()


@pytest.mark.parametrize("value", [0.0, 0.3, 1.1, -2.3, 1e6, 1e-6])
@pytest.mark.parametrize("m", [200, 30_000])
def test_a_constant_column_is_detected_and_gets_no_loading(value, m):
    """Test that the computed standard deviation of a constant column, a rounding error, is not used as its scale."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(m, 3))
    X[:, 2] = value
    found = moments(InMemoryRows(X, X[:, 0]))
    assert_array_equal(found.constant, [False, False, True])
    assert found.x_scale[2] == 1.0
    if m == 200:
        model = HyperKernelRidge(1, random_state=0, max_iter=30).fit(X, np.sin(X[:, 0]))
        assert model.components_[0, 2] == 0.0
        assert model.score(X, np.sin(X[:, 0])) > 0.99


def test_numbers_whose_squares_overflow_are_rejected():
    with pytest.raises(FitError, match="overflow"), np.errstate(over="ignore", invalid="ignore"):
        moments(InMemoryRows(np.array([[1e200], [-1e200]]), np.zeros(2)))


@pytest.mark.parametrize("value", [3.0, 1e-200, -1e150])
def test_the_mean_of_a_constant_target_ignores_rows_of_weight_zero(value):
    X, y, w = np.random.default_rng(0).normal(size=(60, 2)), np.full(60, value), np.ones(60)
    y[0], w[0] = 7.0, 0.0
    for rows in (InMemoryRows(X[1:], y[1:]), InMemoryRows(X, y, w)):
        assert moments(rows).y_mean == value


def test_each_target_has_its_own_largest_value():
    Y = np.array([[-128, 3], [5, 127], [0, -7]], dtype=np.int8)
    assert_array_equal(largest_target(Y), [128, 127])
    assert largest_target(Y[:, 0]) == 128
