"""A Dask cluster for the tests of rows on a cluster."""

import pytest


@pytest.fixture(scope="module")
def client():
    """Start a cluster of two threads in this process. test_dask.py uses a cluster of processes."""
    distributed = pytest.importorskip("distributed")
    with distributed.Client(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0") as client:
        yield client
