"""Tests of fits to Dask collections on a cluster of two processes: partitions, killed workers, and error messages."""

import gc
import os
import signal
import time
from functools import partial
from itertools import pairwise
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from hkrr import FitError, HyperKernelRidge, HyperKernelRidgeCV
from support.platforms import posix_only

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")

M = 900
NAMES = ["a", "b", "c"]
# Short timeouts, so that the tests of a closed cluster are fast. No other test depends on them.
SOON = {"distributed.comm.timeouts.connect": "1s", "distributed.deploy.lost-worker-timeout": "1s"}


def _data(T=1, m=M):
    rng = np.random.default_rng([m, T])
    X = rng.normal(size=(m, 3)) * [1.0, 3.0, 10.0]
    y = np.sin(X[:, 0] + X[:, 1] / 6.0) + 0.3 * rng.normal(size=m)
    return X, y if T == 1 else np.column_stack([y, X[:, 2] / 10.0])


def _model(**options):
    """Return a model whose fit amplifies rounding errors little, as explained in test_rows_conformance.py."""
    common = {"kernel": "matern32", "reg_lambda": 1e-2, "n_centers": 20, "n_init": 1, "random_state": 0}
    return HyperKernelRidge(1, **{**common, **options})


def _check_alike(found, expected):
    """Check that the centers are bitwise equal, the maps agree to 1e-6, and the coefficients to 1e-5 of the largest."""
    assert_array_equal(found.centers_, expected.centers_)
    assert_allclose(found.components_, expected.components_, rtol=0.0, atol=1e-6)
    scale = np.max(np.abs(expected.dual_coef_))
    assert_allclose(found.dual_coef_, expected.dual_coef_, rtol=0.0, atol=1e-5 * scale)


def _arrays(x_chunks=(250, 3), y_chunks=250):
    X, y = _data()
    return da.from_array(X, chunks=x_chunks), da.from_array(y, chunks=y_chunks)


def _part(rows, table):
    return table.iloc[slice(*rows)]


def _parts(*lengths):
    """Return a Dask data frame with columns a, y, b, c and partitions of the given lengths, which may be zero."""
    X, y = _data()
    table = pd.DataFrame(X, columns=NAMES)
    table.insert(1, "y", y)
    return dd.from_map(_part, list(pairwise(np.cumsum([0, *lengths]))), table=table, meta=table.iloc[:0])


# The next two tests must run before this module's cluster is started, because they require that no client exists.
def test_without_a_client_the_error_names_the_remedy():
    with pytest.raises((ValueError, FitError), match=r"distributed\.Client|Client\("):
        _model().fit(*_arrays())


@pytest.mark.parametrize("when", ["before", "within"])
@pytest.mark.parametrize("by", ["cluster", pytest.param("address", marks=pytest.mark.thorough)])
def test_a_closed_cluster_raises_a_clear_error(when, by):
    """Test that a fit raises a clear error if the cluster is closed before or during the fit.

    A client created from a local cluster is closed with the cluster. A client connected by address has to detect that
    the scheduler is gone.
    """
    options = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "dashboard_address": ":0"}
    with dask.config.set(SOON), distributed.LocalCluster(**options, protocol="tcp://") as cluster:
        client = distributed.Client(cluster if by == "cluster" else cluster.scheduler_address)

        def close(state):
            cluster.close()

        if when == "before":
            close(None)
        try:
            with pytest.raises(FitError if when == "within" else (FitError, ValueError), match=r"cluster|Client"):
                _model(callbacks=[close]).fit(*_arrays())
        finally:
            client.close(timeout=1)


@pytest.fixture(scope="module")
def cluster():
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": ":0", "memory_limit": 0}
    with distributed.LocalCluster(**options) as cluster:
        yield cluster


@pytest.fixture
def client(cluster):
    """Return a client of the cluster. If a test has killed a worker, wait until the worker is replaced."""
    with distributed.Client(cluster) as client:
        client.wait_for_workers(2)
        yield client


@pytest.fixture(scope="module")
def expected():
    return _model().fit(*_data())


@pytest.mark.parametrize(
    ("x_chunks", "y_chunks"),
    [
        pytest.param(((1, 700, 199), 3), 900, marks=pytest.mark.thorough, id="uneven"),
        pytest.param((450, 2), (899, 1), marks=pytest.mark.thorough, id="split columns"),
        pytest.param(((0, 400, 0, 500, 0), 2), (899, 1), id="zero rows, split columns"),
    ],
)
@pytest.mark.usefixtures("client")
def test_arrays_with_any_chunks(expected, x_chunks, y_chunks):
    _check_alike(_model().fit(*_arrays(x_chunks, (y_chunks,))), expected)


@pytest.mark.thorough
@pytest.mark.usefixtures("client")
def test_arrays_of_unknown_lengths(expected):
    frame = _parts(300, 600)
    _check_alike(_model().fit(frame[NAMES].values, frame["y"].values), expected)


@pytest.mark.parametrize(
    ("target", "zero"),
    [
        ("by name", True),
        pytest.param("by name", False, marks=pytest.mark.thorough),
        pytest.param("a series", False, marks=pytest.mark.thorough),  # tested by test_rows_conformance.py too
        pytest.param("a series", True, marks=pytest.mark.thorough),
    ],
)
@pytest.mark.usefixtures("client")
def test_frames(expected, target, zero):
    frame = _parts(*((0, 400, 0, 500, 0) if zero else (300, 1, 599)))
    model = _model().fit(*((frame, "y") if target == "by name" else (frame[NAMES], frame["y"])))
    _check_alike(model, expected)
    assert list(model.feature_names_in_) == NAMES


@pytest.mark.usefixtures("client")
def test_columns_of_several_types_and_several_targets():
    X, Y = _data(T=2)
    table = pd.DataFrame({"i": np.round(X[:, 2]).astype(np.int32), "t": X[:, 1] > 0, "f": X[:, 0].astype(np.float32)})
    frame = dd.from_pandas(table, npartitions=3)
    model = _model().fit(frame, da.from_array(Y, chunks=(500, 1)))
    expected = _model().fit(table.to_numpy(dtype=float), Y)
    _check_alike(model, expected)
    assert model.dual_coef_.shape == (20, 2)
    assert_allclose(np.asarray(model.predict(frame)), expected.predict(table.to_numpy(dtype=float)), atol=1e-5)


@pytest.mark.usefixtures("client")
def test_the_rows_stay_with_the_workers(monkeypatch):
    """Test that a fit of more than 4,000 rows never collects all rows on the client.

    The starting map is chosen on a subsample of 4,000 rows.
    """
    from hkrr.rows.dask import DaskRows

    def refuse(self, *arguments):
        raise AssertionError("all rows were asked for")

    for name in ("in_memory", "gather"):
        monkeypatch.setattr(DaskRows, name, refuse)
    X, y = _data(m=4500)
    _model(max_iter=1).fit(da.from_array(X, chunks=(999, 3)), da.from_array(y, chunks=999))


def test_no_tasks_are_left_on_the_cluster(client):
    model = _model(max_iter=1).fit(*_arrays())
    for _ in range(600):  # Dask releases tasks asynchronously
        gc.collect()
        left = client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.tasks))
        if not left:
            break
        time.sleep(0.1)
    assert left == []
    assert model.predict(_data()[0]).shape == (M,)


def _dies_once(marker, X, Y, w):
    """Return the sums of a block. The first call creates the file `marker` and kills its worker."""
    if not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return X.sum(axis=0), len(X)


@posix_only
def test_a_worker_killed_inside_a_pass_is_replaced(client, tmp_path):
    from hkrr.rows.dask import DaskRows

    total, count = DaskRows(*_arrays((100, 3))).sum(partial(_dies_once, str(tmp_path / "died")))
    assert (tmp_path / "died").exists()
    assert count == M
    assert_allclose(total, _data()[0].sum(axis=0), rtol=1e-10)


@posix_only
@pytest.mark.thorough
@pytest.mark.usefixtures("client")
def test_a_worker_killed_between_two_steps_is_replaced(cluster, expected):
    killed = []

    def kill(state):
        if not killed:
            killed.append(next(iter(cluster.workers.values())).pid)
            os.kill(killed[0], signal.SIGKILL)

    _check_alike(_model(callbacks=[kill]).fit(*_arrays()), expected)
    assert len(killed) == 1


def _fail(block):
    raise ZeroDivisionError("computed")


def _lazy(collection):
    """Return the same collection with blocks that raise an error when they are computed."""
    if hasattr(collection, "columns"):
        return collection.map_partitions(_fail, meta=collection._meta)
    return collection.map_blocks(_fail, meta=np.empty((0, 0)), dtype=collection.dtype)


@pytest.mark.usefixtures("client")
@pytest.mark.parametrize("zero", [True, pytest.param(False, marks=pytest.mark.thorough)], ids=["zero rows", ""])
@pytest.mark.parametrize("kind", ["array", pytest.param("columns apart", marks=pytest.mark.thorough), "frame"])
def test_predictions_are_lazy_collections(kind, zero):
    lengths = (0, 400, 0, 500) if zero else (400, 500)
    table = pd.DataFrame(_data()[0], columns=NAMES)
    model = _model(max_iter=1).fit(table if kind == "frame" else table.to_numpy(), _data()[1])
    X = _parts(*lengths)[NAMES] if kind == "frame" else _arrays((lengths, 2 if kind == "columns apart" else 3))[0]
    predicted = model.predict(X)
    assert dask.is_dask_collection(predicted)
    assert dask.is_dask_collection(model.predict(_lazy(X)))
    expected = model.predict(table if kind == "frame" else table.to_numpy())
    assert_allclose(np.asarray(predicted.compute()), expected, atol=1e-12)
    if kind != "frame":
        assert predicted.shape == (M,)


def test_predictions_need_no_cluster():
    X, Y = _data(T=2)
    model = _model(max_iter=1).fit(X, Y)
    for dtype in (np.float64, np.float32, np.int64):
        predicted = model.predict(da.from_array(X.astype(dtype), chunks=(400, 3)))
        assert predicted.shape == (M, 2)
        computed = predicted.compute(scheduler="synchronous")
        assert computed.dtype == predicted.dtype == model.predict(X.astype(dtype)).dtype
        assert_array_equal(computed, model.predict(X.astype(dtype)))
    with pytest.raises(ValueError, match="3"):  # raised by predict, not when the collection is computed
        model.predict(da.zeros((10, 2)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, y, frame: (X, y[:-1]), "y "),
        (lambda X, y, frame: (X, _data()[1]), "y must be a Dask collection"),
        (lambda X, y, frame: (X, "y"), "'y'"),
        (lambda X, y, frame: (frame, "z"), "'z'"),
        (lambda X, y, frame: (X, y, y), "sample_weight"),
        (lambda X, y, frame: (X[:1], y[:1]), "at least 2"),
        (lambda X, y, frame: (X[:0], y[:0]), "at least 2"),
        (lambda X, y, frame: (X, da.where(y > 1.5, np.nan, y)), "y .*NaN"),
        (lambda X, y, frame: (da.where(X > 30.0, np.inf, X), y), "X .*infinity"),
        (lambda X, y, frame: (frame.assign(b=frame["b"].astype(str)), "y"), "'b'"),
    ],
    ids=["lengths", "array", "no names", "no such name", "weights", "one row", "no rows", "NaN", "infinity", "text"],
)
@pytest.mark.usefixtures("client")
def test_errors_name_the_invalid_collection(change, message):
    with pytest.raises(ValueError, match=message):
        _model().fit(*change(*_arrays(), _parts(300, 600)))


@pytest.mark.usefixtures("client")
def test_transform_gives_collections(expected):
    X = _arrays((250, 2))[0]
    found = expected.transform(X)
    assert dask.is_dask_collection(found)
    assert_allclose(found.compute(), _data()[0] @ expected.components_.T, atol=1e-12)


@pytest.mark.usefixtures("client")
def test_the_search_takes_collections():
    X, y = _data(m=200)
    expected = HyperKernelRidgeCV(1, n_init=1, random_state=0).fit(X, y)
    given = da.from_array(X, chunks=(70, 3)), da.from_array(y, chunks=70)
    found = HyperKernelRidgeCV(1, n_init=1, random_state=0).fit(*given)
    assert_allclose(
        found.components_, expected.components_, rtol=0.0, atol=1e-6
    )  # the documented accuracy of every row source
    predicted = found.predict(given[0])
    assert dask.is_dask_collection(predicted)
    assert_allclose(predicted.compute(), expected.predict(X), atol=1e-5)  # follows from the accuracy of the map


@pytest.mark.usefixtures("client")
def test_the_starts_of_the_search_run_on_the_cluster():
    """Test that with joblib's Dask backend, the starts run on the workers and give the same result."""
    X, y = _data(m=200)
    expected = HyperKernelRidgeCV(1, n_init=2, random_state=0).fit(X, y)
    with joblib.parallel_config(backend="dask"):
        found = HyperKernelRidgeCV(1, n_init=2, n_jobs=2, random_state=0).fit(X, y)
    assert_array_equal(found.components_, expected.components_)
