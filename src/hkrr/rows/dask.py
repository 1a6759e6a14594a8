"""Rows of Dask collections.

The partitions stay on the workers. Each pass over the rows sends the map and other small arrays to the workers. One
task for each partition computes the sums over its rows, with `TorchRows` if a device is given and with `InMemoryRows`
otherwise. The workers then add the results in groups of eight, always in the same order. The task graph contains
everything that a task needs, so Dask can recompute the partitions of a worker that died.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from concurrent.futures import CancelledError
from functools import reduce
from operator import add
from typing import Any, Literal

import dask
import dask.array as da
import numpy as np
from dask.delayed import delayed
from distributed import Client, KilledWorker, get_client, wait
from distributed.comm.core import CommClosedError

from hkrr._base.linear_algebra import Array
from hkrr.exceptions import FitError
from hkrr.rows.base import BlockFunction, Coordinates, Rows
from hkrr.rows.column_transform import ColumnTransform
from hkrr.rows.in_memory import InMemoryRows

# The arrays X and Y of a partition.
Part = tuple[Array, Array]
# What a pass over the rows sends to the workers: the block function, its width, its small arrays, and the coordinates.
Call = tuple[BlockFunction, int, tuple[Array, ...], Coordinates]

# Dask setting: the size of a task graph above which Dask issues a warning. It is larger than Dask's default, because
# the arrays that each pass sends to the workers are part of the graph.
_GRAPH_LIMIT = {"distributed.admin.large-graph-warning-threshold": "1GB"}
# Number of partial sums that one task adds.
_FAN_IN = 8
# Seconds between two checks of whether the cluster has workers.
_POLL = 2.0
# Number of consecutive checks without workers after which an error is raised.
_PATIENCE = 5
_NO_WORKERS = (
    f"The Dask cluster has had no workers for {_PATIENCE * _POLL:.0f} seconds. If workers are still starting, wait for "
    "them with client.wait_for_workers(1). Otherwise restart the cluster and fit again."
)
_LENGTHS = "y has {} entries, but X has {} rows; pass one entry per row"
_NO_ANSWER = "The Dask cluster no longer answers ({}). Restart it, connect a new Client and fit again."


class DaskRows(Rows):
    """Rows of Dask arrays or data frames.

    Parameters
    ----------
    X : dask array or data frame (m, D)
        Inputs.
    y : dask array, series or data frame with the same rows as X, or None
        Targets. None if there are no targets.
    client : distributed.Client or None, default=None
        The client of the cluster that computes the sums. None uses the current client.
    device : torch.device, str or None, default=None
        PyTorch device on which the workers compute. None computes with NumPy on the CPU.
    block_size : int or "auto", default="auto"
        Number of rows in a block. Each partition is processed in blocks. "auto" chooses a block size that suits the
        cache or the device.
    """

    n_threads = 1

    def __init__(
        self,
        X: Any,
        y: Any,
        *,
        client: Client | None = None,
        device: Any = None,
        block_size: Literal["auto"] | int = "auto",
    ) -> None:
        self._client: Any = _current_client() if client is None else client
        names = [repr(name) for name in getattr(X, "columns", range(X.shape[1]))]
        X, y = _as_array(X), None if y is None else _as_array(y)
        self.n_features, self.n_targets = int(X.shape[1]), 0 if y is None else 1 if y.ndim == 1 else int(y.shape[1])
        lengths = self._pair_up(X, y)
        self._starts = np.concatenate([[0], np.cumsum([n for n in lengths if n])]).astype(int)
        self.n_rows = self.n_counted = int(self._starts[-1])
        self.n_free_columns, self.total_weight = self.n_features, float(self.n_rows)
        self._coordinates: Coordinates = (None, None, None, None)
        for k, found in zip(np.flatnonzero(lengths), self._gather(self._on_parts(_find_nonfinite)), strict=True):
            if found:
                array, row, column, value = found
                where = f"partition {k}, row {row}" + (f", column {names[column]}" if array == "X" else "")
                raise ValueError(f"{array} holds {value} ({where}); impute the value or drop the row first")
        # The row sources are created once, because on workers with a GPU this step copies the partitions to the GPU.
        self._parts = self._on_parts(_rows, device, block_size)

    def _pair_up(self, X: Any, y: Any) -> Array:
        """Create the nonempty partitions (X, Y) on the workers, and return the lengths of all partitions."""
        whole_columns = {1: -1}
        X = X.rechunk(whole_columns)
        blocks_X, blocks_Y = X.to_delayed().ravel(), [None] * X.numblocks[0]
        if y is not None:
            if not _lengths_known(X) or not _lengths_known(y):
                if X.numblocks[0] != y.numblocks[0]:
                    # X and y are partitioned differently. To repartition y like X, Dask must know the lengths of the
                    # partitions.
                    return self._pair_up(self._with_known_lengths(X), self._with_known_lengths(y))
            elif len(X) != len(y):
                raise ValueError(_LENGTHS.format(len(y), len(X)))
            else:
                y = y.rechunk({0: X.chunks[0]})
            blocks_Y = list((y if y.ndim == 1 else y.rechunk(whole_columns)).to_delayed().ravel())
        parts = self._compute([delayed(_pair)(*both) for both in zip(blocks_X, blocks_Y, strict=True)])
        self._parts = parts
        lengths, lengths_Y = np.array(self._gather(self._on_parts(_lengths))).reshape(-1, 2).T
        if lengths.sum() != lengths_Y.sum():
            raise ValueError(_LENGTHS.format(lengths_Y.sum(), lengths.sum()))
        if np.any(lengths != lengths_Y):
            return self._pair_up(_with_lengths(X, lengths), _with_lengths(y, lengths_Y))
        self._parts = [part for part, n in zip(parts, lengths, strict=True) if n]
        return lengths

    def with_coordinates(
        self,
        x_offset: Array | None,
        x_scale: Array | None,
        y_offset: Array | None,
        transform: ColumnTransform | None = None,
    ) -> DaskRows:
        other = copy.copy(self)
        other._coordinates = (x_offset, x_scale, y_offset, transform)
        return other

    def sum(self, fn: BlockFunction, width: int = 1, *small: Array) -> tuple[Any, ...]:
        terms = self._on_parts(_sum, self._call(fn, width, small))
        while len(terms) > 1:
            groups = [terms[k : k + _FAN_IN] for k in range(0, len(terms), _FAN_IN)]
            terms = [group[0] if len(group) == 1 else self._submit(_add, *group) for group in groups]
        return tuple(self._gather(terms)[0])

    def map(self, fn: BlockFunction, width: int = 1, *small: Array) -> Array:
        return np.concatenate(self._gather(self._on_parts(_map, self._call(fn, width, small))))

    def largest_targets(self) -> Array:
        return np.max(self._gather(self._on_parts(_largest)), axis=0)

    def subset(self, indices: Array) -> InMemoryRows:
        indices = np.asarray(indices)
        where = np.searchsorted(self._starts, indices, side="right") - 1
        used = np.unique(where)
        parts = self._gather([self._submit(_take, self._parts[k], indices[where == k] - self._starts[k]) for k in used])
        X = np.empty((len(indices), self.n_features))
        Y = np.empty((len(indices), self.n_targets))
        for k, (X_part, Y_part) in zip(used, parts, strict=True):
            X[where == k], Y[where == k] = X_part, Y_part
        return InMemoryRows(X, Y).with_coordinates(*self._coordinates)

    def _call(self, fn: BlockFunction, width: int, small: tuple[Array, ...]) -> Any:
        """Wrap the arguments of a pass over the rows in one Dask task, so that each worker receives them only once."""
        return self._submit(_identity, (fn, width, small, self._coordinates))

    def _on_parts(self, fn: Callable[..., Any], *arguments: Any) -> list[Any]:
        repeated = ([argument] * len(self._parts) for argument in arguments)
        with dask.config.set(_GRAPH_LIMIT):
            return list(self._ask_cluster(lambda: self._client.map(fn, self._parts, *repeated, pure=False)))

    def _submit(self, fn: Callable[..., Any], *arguments: Any) -> Any:
        with dask.config.set(_GRAPH_LIMIT):
            return self._ask_cluster(lambda: self._client.submit(fn, *arguments, pure=False))

    def _compute(self, tasks: list[Any]) -> list[Any]:
        return list(self._ask_cluster(lambda: self._client.compute(tasks)))

    def _gather(self, futures: list[Any]) -> list[Any]:
        def results() -> list[Any]:
            idle = 0
            while True:
                try:
                    wait(futures, timeout=_POLL)  # type: ignore[no-untyped-call]  # Dask has no annotations
                except TimeoutError:
                    # Check the connection first: without a connection, scheduler_info() would wait for an answer.
                    connected = self._client.status == "running"
                    workers = connected and self._client.scheduler_info().get("workers")
                    idle = 0 if workers else idle + 1
                    if not connected and idle == 2:
                        raise FitError(_NO_ANSWER.format("the client has lost its scheduler")) from None
                    if idle == _PATIENCE:
                        raise FitError(_NO_WORKERS) from None
                    continue
                return list(self._client.gather(futures))

        return list(self._ask_cluster(results))

    def _with_known_lengths(self, array: Any) -> Any:
        """Return the same Dask array with known chunk lengths."""
        if _lengths_known(array):
            return array
        blocks = array.to_delayed()
        lengths = self._gather(self._compute([delayed(len)(block) for block in blocks.reshape(len(blocks), -1)[:, 0]]))
        return _with_lengths(array, lengths)

    def _ask_cluster(self, request: Callable[[], Any]) -> Any:
        """Return the result of a request to the cluster, or raise a FitError if the cluster does not answer."""
        try:
            return request()
        except KilledWorker as error:
            raise FitError(
                f"Workers of the Dask cluster died repeatedly, perhaps because they ran out of memory ({error}). Use "
                "smaller partitions, or workers with more memory."
            ) from error
        except FitError:
            raise
        except Exception as error:
            lost = isinstance(error, CommClosedError | TimeoutError | CancelledError)
            if lost or self._client.status != "running":  # a closed client can raise errors of many types
                raise FitError(_NO_ANSWER.format(error or type(error).__name__)) from error
            raise  # the error was raised while Dask computed the user's collections


def _current_client() -> Client:
    try:
        return get_client()
    except ValueError:
        raise ValueError(
            "X is a Dask collection, but there is no Dask client: call dask.distributed.Client() to start a local "
            "cluster, or Client(address) to connect to a running cluster"
        ) from None


def _as_array(collection: Any) -> Any:
    return collection.to_dask_array() if hasattr(collection, "to_dask_array") else collection


def _lengths_known(array: Any) -> bool:
    """Return whether the lengths of a Dask array's chunks are known."""
    return not np.any(np.isnan(array.chunks[0]))


def _with_lengths(array: Any, lengths: Any) -> Any:
    chunks = (tuple(int(n) for n in lengths), *array.chunks[1:])
    return da.Array(array.dask, array.name, chunks, dtype=array.dtype)  # type: ignore[no-untyped-call]  # Dask has no annotations


def _lengths(part: Part) -> tuple[int, int]:
    return len(part[0]), len(part[1])


def _identity(call: Call) -> Call:
    return call


def _pair(X: Any, y: Any) -> Part:
    X = _numbers(X)
    if y is None:
        return X, np.empty((len(X), 0))
    y = _numbers(y).astype(np.float64, copy=False)
    return X, y[:, None] if y.ndim == 1 else y


def _numbers(values: Any) -> Array:
    values = np.asarray(values)
    if values.dtype.kind == "O":  # the columns have several types, or nullable pandas types
        import pandas as pd

        table = pd.DataFrame(values)
        return table.mask(table.isna(), np.nan).to_numpy(np.float64)
    return values if values.dtype.kind == "f" else values.astype(np.float64)


def _find_nonfinite(part: Part) -> tuple[str, int, int, str] | None:
    """Return the array name, row, column and kind of the first value that is not finite, or None if all are finite."""
    for name, values in zip(("X", "y"), part, strict=True):
        if values.size and not np.isfinite(values.sum(dtype=np.float64)) and not np.all(np.isfinite(values)):
            row, column = (int(k) for k in np.argwhere(~np.isfinite(values))[0])
            return name, row, column, "NaN" if np.isnan(values[row, column]) else "infinity"
    return None


def _rows(part: Part, device: Any, block_size: Literal["auto"] | int) -> Rows:
    if device is None:
        return InMemoryRows(*part, block_size=block_size)
    from hkrr.rows.torch_device import TorchRows

    return TorchRows(*part, device=device, block_size=block_size)


def _sum(rows: Rows, call: Call) -> tuple[Any, ...]:
    fn, width, small, coordinates = call
    return rows.fetch(*rows.with_coordinates(*coordinates).sum(fn, width, *small))


def _map(rows: Rows, call: Call) -> Array:
    fn, width, small, coordinates = call
    return rows.with_coordinates(*coordinates).map(fn, width, *small)


def _largest(rows: Rows) -> Array:
    return rows.largest_targets()


def _take(rows: Rows, indices: Array) -> Part:
    X, Y, _ = rows.subset(indices).gather()
    return X, Y


def _add(*terms: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(reduce(add, parts) for parts in zip(*terms, strict=True))
