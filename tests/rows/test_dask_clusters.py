"""Tests of Dask clusters without workers, devices on workers, column names, and errors in user code."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from hkrr import FitError, HyperKernelRidge, HyperKernelRidgeCV
from hkrr.estimators import _search_mixin

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")
da = pytest.importorskip("dask.array")
sizeof = pytest.importorskip("dask.sizeof").sizeof
dd = pytest.importorskip("dask.dataframe")

from hkrr.rows import dask as dask_rows  # noqa: E402  # needs what is imported above
from hkrr.rows.dask import DaskRows  # noqa: E402  # as above

M = 400


def _table():
    rng = np.random.default_rng(M)
    table = pd.DataFrame(rng.normal(size=(M, 3)), columns=["a", "b", "c"])
    return table.assign(y=np.sin(table["a"]) + 0.3 * rng.normal(size=M))


def _model(**options):
    common = {"kernel": "matern32", "reg_lambda": 1e-2, "n_centers": 20, "n_init": 1, "random_state": 0}
    return HyperKernelRidge(1, **{**common, **options})


@pytest.fixture(scope="module")
def client():
    """Start a cluster whose workers are threads of this process. It starts faster than worker processes."""
    options = {"processes": False, "threads_per_worker": 1, "dashboard_address": ":0"}
    with distributed.LocalCluster(n_workers=2, **options) as cluster, distributed.Client(cluster) as client:
        yield client


def _arrays():
    table = _table().to_numpy()
    return da.from_array(table[:, :3], chunks=(150, 3)), da.from_array(table[:, 3], chunks=150)


def test_a_cluster_without_workers_raises_a_clear_error(monkeypatch):
    monkeypatch.setattr(dask_rows, "_POLL", 0.05)
    options = {"processes": False, "dashboard_address": ":0"}
    with (
        distributed.LocalCluster(n_workers=0, **options) as cluster,
        distributed.Client(cluster) as idle,
        pytest.raises(FitError, match="no workers"),
    ):
        DaskRows(*_arrays(), client=idle)


def test_a_cluster_without_workers_raises_a_clear_error_for_frames_too(monkeypatch):
    monkeypatch.setattr(dask_rows, "_POLL", 0.05)
    options = {"processes": False, "dashboard_address": ":0"}
    X = dd.from_pandas(_table(), npartitions=2)  # the lengths of the partitions are unknown
    with (
        distributed.LocalCluster(n_workers=0, **options) as cluster,
        distributed.Client(cluster) as idle,
        pytest.raises(FitError, match="wait_for_workers"),
    ):
        DaskRows(X[["a"]], X["y"], client=idle)


def test_sizeof_counts_the_arrays(client):
    """Test that `sizeof`, applied to a part of the rows, is at least the total size of the arrays of this part.

    Dask uses these sizes to decide which data to move between workers.
    """
    rows = DaskRows(*_arrays())
    sizes = client.gather(client.map(sizeof, rows._parts, pure=False))
    assert np.all(np.array(sizes) >= 8 * 4 * np.diff(rows._starts))


def test_errors_in_user_tasks_are_passed_on(client):
    def spoilt(block):
        raise OSError("a spoilt file")

    X, y = _arrays()
    with pytest.raises(OSError, match="a spoilt file"):
        _model().fit(X.map_blocks(spoilt, dtype=X.dtype), y)


def test_columns_are_matched_by_name(client):
    table = _table()
    model = _model(max_iter=1).fit(dd.from_pandas(table, npartitions=2), "y")
    other = dd.from_pandas(table[["c", "y", "a", "b"]].assign(more=1.0), npartitions=3)
    assert model.score(other, "y") == pytest.approx(model.score(table[["a", "b", "c"]], table["y"]), abs=1e-12)


def test_a_missing_column_is_named(client):
    model = _model(max_iter=1).fit(dd.from_pandas(_table(), npartitions=2), "y")
    with pytest.raises(ValueError, match="X has no column 'b'"):
        model.score(dd.from_pandas(_table().drop(columns="b"), npartitions=2), "y")


def test_column_names_that_are_not_strings_are_ignored(client):
    table = pd.DataFrame(_table().to_numpy())
    X, y = dd.from_pandas(table[[0, 1, 2]], npartitions=2), dd.from_pandas(table[3], npartitions=2)
    model = _model(max_iter=1).fit(X, y)
    assert not hasattr(model, "feature_names_in_")
    assert_allclose(model.predict(X).compute(), model.predict(table[[0, 1, 2]].to_numpy()), rtol=0.0, atol=1e-12)


def test_a_nonfinite_value_is_named_with_its_partition(client):
    table = _table()
    table.loc[399, "b"] = np.nan

    def part(rows):
        return table.iloc[slice(*rows)]

    X = dd.from_map(part, [(0, 0), (0, 0), (0, 200), (200, 400)], meta=table.iloc[:0])
    with pytest.raises(ValueError, match=r"NaN \(partition 3, row 199, column 'b'\)"):
        _model().fit(X, "y")


def test_missing_values_of_nullable_columns_are_named(client):
    table = _table().astype({"b": "Float64"})
    table.loc[3, "b"] = pd.NA
    with pytest.raises(ValueError, match=r"NaN \(partition 0, row 3, column 'b'\)"):
        _model().fit(dd.from_pandas(table, npartitions=2), "y")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"device": "cpu", "block_size": 37},
        pytest.param({"device": "cpu"}, marks=pytest.mark.thorough),
        pytest.param({"block_size": 37}, marks=pytest.mark.thorough),
    ],
)
def test_options_do_not_change_the_fit(client, expected, options):
    found = _model(**options).fit(*_arrays())
    assert_array_equal(found.centers_, expected.centers_)
    assert_allclose(found.components_, expected.components_, rtol=0.0, atol=1e-6)


def test_the_search_draws_the_same_rows_from_collections(client, monkeypatch):
    monkeypatch.setattr(_search_mixin, "SAMPLE_ROWS", 150)
    table = _table().to_numpy()
    # The kernel is not smooth, because 60 centers in one dimension make the system of a smooth kernel ill-conditioned.
    options = {"n_components": 1, "n_init": 1, "refit": 60, "random_state": 0, "kernel": "matern32"}
    expected = HyperKernelRidgeCV(**options).fit(table[:, :3], table[:, 3])
    found = HyperKernelRidgeCV(**options).fit(*_arrays())
    assert found.truncation_ == expected.truncation_
    assert_array_equal(found.centers_, expected.centers_)
    assert_allclose(found.predict(table[:, :3]), expected.predict(table[:, :3]), rtol=0.0, atol=1e-6)


@pytest.mark.parametrize("name", ["X", "y"])
@pytest.mark.parametrize("kind", ["complex128", "datetime64[s]", "U3"])
def test_arrays_that_are_not_real_numbers_are_named(client, name, kind):
    X, y = _arrays()
    X, y = (X.astype(kind), y) if name == "X" else (X, y.astype(kind))
    with pytest.raises(ValueError, match=f"{name} must contain real numbers"):
        _model().fit(X, y)


COMPUTED = []  # lengths of the partitions computed so far; the workers are threads and can append to this list


def _counted(block):
    COMPUTED.append(len(block))
    return block


@pytest.fixture(scope="module")
def expected():
    table = _table().to_numpy()
    return _model().fit(table[:, :3], table[:, 3])


@pytest.mark.parametrize("cut", ["same", "different"])
def test_partitions_of_unknown_lengths_are_computed_once_if_x_and_y_match(client, expected, cut):
    COMPUTED.clear()
    table = dd.from_pandas(_table(), npartitions=4)
    X, y = table[["a", "b", "c"]], table["y"]
    X = X.map_partitions(_counted, meta=X._meta)
    y = y if cut == "same" else dd.from_pandas(_table()["y"], npartitions=3)
    found = _model().fit(X, y)
    assert_allclose(found.components_, expected.components_, rtol=0.0, atol=1e-6)
    assert sum(COMPUTED) == M * (1 if cut == "same" else 2)


def test_a_lost_scheduler_is_an_error_after_two_checks(client, monkeypatch):
    """Test that the error is raised without a request to the scheduler. A request would wait 30 s for an answer."""
    monkeypatch.setattr(dask_rows, "_POLL", 0.05)
    rows = DaskRows(*_arrays(), client=client)
    rows._client = _Lost()
    with pytest.raises(FitError, match="lost its scheduler"):
        rows._gather([distributed.Future("never", client=client)])


class _Lost:
    """A client that has lost its scheduler and tries to reconnect."""

    status = "connecting"

    def scheduler_info(self):
        raise AssertionError("a request was sent to the scheduler")
