"""Clusters as they are: without workers, with devices of their own; columns as they come, and the user's own errors."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from hkrr import FitError, HyperKernelRidge, HyperKernelRidgeCV, selection

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")
da = pytest.importorskip("dask.array")
sizeof = pytest.importorskip("dask.sizeof").sizeof
dd = pytest.importorskip("dask.dataframe")

from hkrr.rows import dask_collections  # noqa: E402  # needs what is imported above
from hkrr.rows.dask_collections import DaskRows  # noqa: E402  # as above

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
    """A cluster in threads of this process: quick to start, and what is tested here does not depend on processes."""
    options = {"processes": False, "threads_per_worker": 1, "dashboard_address": ":0"}
    with distributed.LocalCluster(n_workers=2, **options) as cluster, distributed.Client(cluster) as client:
        yield client


def _arrays():
    table = _table().to_numpy()
    return da.from_array(table[:, :3], chunks=(150, 3)), da.from_array(table[:, 3], chunks=150)


def test_a_cluster_without_workers_is_a_clear_error(monkeypatch):
    monkeypatch.setattr(dask_collections, "_POLL", 0.05)
    options = {"processes": False, "dashboard_address": ":0"}
    with (
        distributed.LocalCluster(n_workers=0, **options) as cluster,
        distributed.Client(cluster) as idle,
        pytest.raises(FitError, match="no workers"),
    ):
        DaskRows(*_arrays(), client=idle)


def test_a_cluster_without_workers_is_a_clear_error_for_frames_too(monkeypatch):
    monkeypatch.setattr(dask_collections, "_POLL", 0.05)
    options = {"processes": False, "dashboard_address": ":0"}
    X = dd.from_pandas(_table(), npartitions=2)  # of lengths that are not known
    with (
        distributed.LocalCluster(n_workers=0, **options) as cluster,
        distributed.Client(cluster) as idle,
        pytest.raises(FitError, match="wait_for_workers"),
    ):
        DaskRows(X[["a"]], X["y"], client=idle)


def test_partitions_weigh_what_they_hold(client):
    """By this Dask decides what to move, and what to leave where it is."""
    rows = DaskRows(*_arrays())
    sizes = client.gather(client.map(sizeof, rows._parts, pure=False))
    assert np.all(np.array(sizes) >= 8 * 4 * np.diff(rows._starts))


def test_an_error_of_the_users_own_tasks_arrives_as_it_is(client):
    def spoilt(block):
        raise OSError("a spoilt file")

    X, y = _arrays()
    with pytest.raises(OSError, match="a spoilt file"):
        _model().fit(X.map_blocks(spoilt, dtype=X.dtype), y)


def test_columns_are_known_by_their_names(client):
    table = _table()
    model = _model().fit(dd.from_pandas(table, npartitions=2), "y")
    other = dd.from_pandas(table[["c", "y", "a", "b"]].assign(more=1.0), npartitions=3)
    assert model.score(other, "y") == pytest.approx(model.score(table[["a", "b", "c"]], table["y"]), abs=1e-12)


def test_a_column_that_is_missing_is_named(client):
    model = _model().fit(dd.from_pandas(_table(), npartitions=2), "y")
    with pytest.raises(ValueError, match="X has no column 'b'"):
        model.score(dd.from_pandas(_table().drop(columns="b"), npartitions=2), "y")


def test_names_that_are_no_text_are_none(client):
    table = pd.DataFrame(_table().to_numpy())
    X, y = dd.from_pandas(table[[0, 1, 2]], npartitions=2), dd.from_pandas(table[3], npartitions=2)
    model = _model().fit(X, y)
    assert not hasattr(model, "feature_names_in_")
    assert_allclose(model.predict(X).compute(), model.predict(table[[0, 1, 2]].to_numpy()), rtol=0.0, atol=1e-12)


def test_a_value_that_is_no_number_is_named_with_its_partition(client):
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


@pytest.mark.parametrize("options", [{}, {"device": "cpu"}, {"block_size": 37}, {"device": "cpu", "block_size": 37}])
def test_partitions_are_computed_as_they_would_be_here(client, options):
    table = _table().to_numpy()
    expected = _model().fit(table[:, :3], table[:, 3])
    found = _model(**options).fit(*_arrays())
    assert_array_equal(found.centers_, expected.centers_)
    assert_allclose(found.components_, expected.components_, rtol=0.0, atol=1e-6)


def test_the_search_draws_the_same_rows_from_collections(client, monkeypatch):
    monkeypatch.setattr(selection, "SAMPLE_ROWS", 150)
    table = _table().to_numpy()
    options = {"n_components": 1, "n_init": 1, "refit": 60, "random_state": 0}
    expected = HyperKernelRidgeCV(**options).fit(table[:, :3], table[:, 3])
    found = HyperKernelRidgeCV(**options).fit(*_arrays())
    assert found.truncation_ == expected.truncation_
    assert_array_equal(found.centers_, expected.centers_)
    assert_allclose(found.predict(table[:, :3]), expected.predict(table[:, :3]), rtol=0.0, atol=1e-6)


@pytest.mark.parametrize("name", ["X", "y"])
@pytest.mark.parametrize("kind", ["complex128", "datetime64[s]", "U3"])
def test_arrays_of_no_real_numbers_are_named(client, name, kind):
    X, y = _arrays()
    X, y = (X.astype(kind), y) if name == "X" else (X, y.astype(kind))
    with pytest.raises(ValueError, match=f"{name} holds no real numbers"):
        _model().fit(X, y)


COMPUTED = []  # rows: the workers are threads of this process


def _counted(block):
    COMPUTED.append(len(block))
    return block


@pytest.mark.parametrize("cut", ["alike", "elsewhere"])
def test_partitions_of_unknown_lengths_are_computed_once_where_x_and_y_are_cut_alike(client, cut):
    COMPUTED.clear()
    table = dd.from_pandas(_table(), npartitions=4)
    X, y = table[["a", "b", "c"]], table["y"]
    X = X.map_partitions(_counted, meta=X._meta)
    y = y if cut == "alike" else dd.from_pandas(_table()["y"], npartitions=3)
    found, expected = _model().fit(X, y), _model().fit(*_arrays())
    assert_allclose(found.components_, expected.components_, rtol=0.0, atol=1e-6)
    assert sum(COMPUTED) == M * (1 if cut == "alike" else 2)


def test_a_scheduler_that_is_gone_is_an_error_after_two_looks(client, monkeypatch):
    """And it is not asked anything first: that would take as long as its client is patient, half a minute."""
    monkeypatch.setattr(dask_collections, "_POLL", 0.05)
    rows = DaskRows(*_arrays(), client=client)
    rows._client = _Lost()
    with pytest.raises(FitError, match="lost its scheduler"):
        rows._gather([distributed.Future("never", client=client)])


class _Lost:
    """A client that waits for its scheduler to come back."""

    status = "connecting"

    def scheduler_info(self):
        raise AssertionError("asked")
