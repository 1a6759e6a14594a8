"""Rows of Dask collections: the partitions stay with the workers, the small arrays go out, sums come back.

One task a partition a pass, each summed there as `InMemoryRows` are (or as `TorchRows`, on workers with a GPU), then
added eight by eight on the workers, always in the same order. All that a task needs is in the graph: a worker that dies
costs the time to compute its partitions again.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from concurrent.futures import CancelledError
from functools import reduce
from operator import add
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.delayed import delayed
from distributed import Client, KilledWorker, get_client, wait
from distributed.comm.core import CommClosedError

from hkrr._arrays import Array
from hkrr.exceptions import FitError
from hkrr.rows.base import BlockFunction, Rows
from hkrr.rows.memory import InMemoryRows

Coordinates = tuple[Array | None, Array | None, Array | None]
Part = tuple[Array, Array]
Call = tuple[BlockFunction, int, tuple[Array, ...], Coordinates]

# Small arrays travel with the tasks: beyond this Dask would warn of them.
_SMALL = {"distributed.admin.large-graph-warning-threshold": "1GB"}
_FAN_IN = 8  # results added by a task: each level of them costs the scheduler's time
_POLL, _PATIENCE = 2.0, 5  # seconds between looks whether there are workers, and looks without any
_NO_WORKERS = (
    f"The Dask cluster has had no workers for {_PATIENCE * _POLL:.0f} seconds: where they are still to come, wait for "
    "them with client.wait_for_workers(1); otherwise start it again, and fit again."
)
_LENGTHS = "y has {} entries and X has {} rows: give one entry for each row"
_GONE = "The Dask cluster does not answer any more ({}): start it again, with a new Client, and fit again."


class DaskRows(Rows):
    """Rows of Dask arrays or data frames.

    Parameters
    ----------
    X, y : dask arrays or data frames of the same rows; y may be None
    client : distributed.Client or None
        None for the one that is at hand.
    device : torch device of the workers, or None for NumPy
    block_size : rows in a block of a partition, or "auto"
    """

    n_threads = 1

    def __init__(
        self, X: Any, y: Any, *, client: Client | None = None, device: Any = None, block_size: Any = "auto"
    ) -> None:
        self._client: Any = _client_at_hand() if client is None else client
        names = [repr(name) for name in getattr(X, "columns", range(X.shape[1]))]
        X, y = _as_array(X), None if y is None else _as_array(y)
        self.n_features, self.n_targets = int(X.shape[1]), 0 if y is None else 1 if y.ndim == 1 else int(y.shape[1])
        lengths = self._pair_up(X, y)
        self._starts = np.concatenate([[0], np.cumsum([n for n in lengths if n])]).astype(int)
        self.n_rows = self.n_counted = int(self._starts[-1])
        self.n_free_columns, self.total_weight = self.n_features, float(self.n_rows)
        self._coordinates: Coordinates = (None, None, None)
        for k, fault in zip(np.flatnonzero(lengths), self._gather(self._on_parts(_fault)), strict=True):
            if fault:
                array, row, column, what = fault
                where = f"partition {k}, row {row}" + (f", column {names[column]}" if array == "X" else "")
                raise ValueError(f"{array} holds {what} ({where}); impute it or drop those rows first")
        # Made once: on a worker with a GPU this is what brings them there.
        self._parts = self._on_parts(_rows, device, block_size)

    def _pair_up(self, X: Any, y: Any) -> Array:
        """Make the pairs (X, Y) of partitions that have rows, on the workers; return the lengths of all partitions."""
        whole_columns = {1: -1}
        X = X.rechunk(whole_columns)
        blocks_X, blocks_Y = X.to_delayed().ravel(), [None] * X.numblocks[0]
        if y is not None:
            if not _known(X) or not _known(y):
                if X.numblocks[0] != y.numblocks[0]:
                    X, y = (
                        self._measured(X),
                        self._measured(y),
                    )  # cut elsewhere: computed twice, to see where
                    return self._pair_up(X, y)
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

    def with_coordinates(self, x_offset: Array | None, x_scale: Array | None, y_offset: Array | None) -> DaskRows:
        other = copy.copy(self)
        other._coordinates = (x_offset, x_scale, y_offset)
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
        """Return what a pass needs, as a task: it is sent once, and made again where it is lost."""
        return self._submit(_same, (fn, width, small, self._coordinates))

    def _on_parts(self, fn: Callable[..., Any], *arguments: Any) -> list[Any]:
        repeated = ([argument] * len(self._parts) for argument in arguments)
        with dask.config.set(_SMALL):
            return list(self._asked(lambda: self._client.map(fn, self._parts, *repeated, pure=False)))

    def _submit(self, fn: Callable[..., Any], *arguments: Any) -> Any:
        with dask.config.set(_SMALL):
            return self._asked(lambda: self._client.submit(fn, *arguments, pure=False))

    def _compute(self, tasks: list[Any]) -> list[Any]:
        return list(self._asked(lambda: self._client.compute(tasks)))

    def _gather(self, futures: list[Any]) -> list[Any]:
        def answer() -> list[Any]:
            idle = 0
            while True:
                try:
                    wait(futures, timeout=_POLL)  # type: ignore[no-untyped-call]  # distributed has few types
                except TimeoutError:
                    connected = self._client.status == "running"  # before asking, which would wait for an answer
                    workers = connected and self._client.scheduler_info().get("workers")
                    idle = 0 if workers else idle + 1
                    if not connected and idle == 2:
                        raise FitError(_GONE.format("the client has lost its scheduler")) from None
                    if idle == _PATIENCE:
                        raise FitError(_NO_WORKERS) from None
                    continue
                return list(self._client.gather(futures))

        return list(self._asked(answer))

    def _measured(self, array: Any) -> Any:
        """Return a Dask array whose chunks have known lengths."""
        if _known(array):
            return array
        blocks = array.to_delayed()
        lengths = self._gather(self._compute([delayed(len)(block) for block in blocks.reshape(len(blocks), -1)[:, 0]]))
        return _with_lengths(array, lengths)

    def _asked(self, question: Callable[[], Any]) -> Any:
        """Return the cluster's answer, or say that it is gone."""
        try:
            return question()
        except KilledWorker as error:
            raise FitError(f"Workers of the Dask cluster died again and again; of memory? ({error})") from error
        except FitError:
            raise
        except Exception as error:
            lost = isinstance(error, CommClosedError | TimeoutError | CancelledError)
            if lost or self._client.status != "running":  # whatever a client says that has been closed
                raise FitError(_GONE.format(error or type(error).__name__)) from error
            raise  # of the user's own collections


def _client_at_hand() -> Client:
    try:
        return get_client()
    except ValueError:
        raise ValueError(
            "X is a Dask collection, and there is no client: start one with dask.distributed.Client(), for this "
            "machine or with the address of a cluster"
        ) from None


def _as_array(collection: Any) -> Any:
    return collection.to_dask_array() if hasattr(collection, "to_dask_array") else collection


def _known(array: Any) -> bool:
    """Whether the lengths of a Dask array's chunks are known."""
    return not np.any(np.isnan(array.chunks[0]))


def _with_lengths(array: Any, lengths: Any) -> Any:
    chunks = (tuple(int(n) for n in lengths), *array.chunks[1:])
    return da.Array(array.dask, array.name, chunks, dtype=array.dtype)  # type: ignore[no-untyped-call]  # few types


def _lengths(part: Part) -> tuple[int, int]:
    return len(part[0]), len(part[1])


def _same(call: Call) -> Call:
    return call


def _pair(X: Any, y: Any) -> Part:
    X = _numbers(X)
    if y is None:
        return X, np.empty((len(X), 0))
    y = _numbers(y).astype(np.float64, copy=False)
    return X, y[:, None] if y.ndim == 1 else y


def _numbers(values: Any) -> Array:
    values = np.asarray(values)
    if values.dtype.kind == "O":  # columns of several kinds, or of those of pandas that know of missing values
        import pandas as pd

        table = pd.DataFrame(values)
        return table.mask(table.isna(), np.nan).to_numpy(np.float64)
    return values if values.dtype.kind == "f" else values.astype(np.float64)


def _fault(part: Part) -> tuple[str, int, int, str] | None:
    """Return where the first value is that is no finite number, if there is one."""
    for name, values in zip(("X", "y"), part, strict=True):
        if values.size and not np.isfinite(values.sum(dtype=np.float64)) and not np.all(np.isfinite(values)):
            row, column = (int(k) for k in np.argwhere(~np.isfinite(values))[0])
            return name, row, column, "NaN" if np.isnan(values[row, column]) else "infinity"
    return None


def _rows(part: Part, device: Any, block_size: Any) -> Rows:
    if device is None:
        return InMemoryRows(*part, block_size=block_size)
    from hkrr.rows.device import TorchRows

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
